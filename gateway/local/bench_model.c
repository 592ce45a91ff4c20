/* larder bench-model: prefill and decode of one sequence, in rounds, with the read bandwidth of as many threads
 * measured before and after each round.
 * Called by main.c; engine.c computes. One thread and the engine's; blocks. Memory: ids and logits.
 * Why the share: a decoded token must read every weight that it uses, so bandwidth by active bytes is the most that any
 * program could reach. Not here: the kernels one by one (tests/bench/engine_bench.c). */
#include "gateway/local/bench_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/compute/bandwidth.h"
#include "gateway/config/option_value.h"
#include "gateway/local/compute_options.h"
#include "gateway/local/expert_report.h"
#include "gateway/local/local_options.h"

enum { OK, FAILED, ROUNDS_MAX = 99, TOKENS_MAX = 1 << 20, WARM_TOKENS = 16 };

static const char usage[] =
    "usage: larder bench-model --model PATH [options]\n"
    "Measures how many tokens a second a model reads (prefill) and answers (decode) on this machine, and the share of\n"
    "what memory could deliver. PATH is a Hugging Face folder or FILE.gguf.\n"
    "  --prompt N      tokens of the prompt, in passes of 512 (512)\n"
    "  --decode N      tokens decoded behind it, one by one (32)\n"
    "  --rounds N      all of it so often (3)\n"
    "  --csv           CSV instead of a table\n" LAR_COMPUTE_OPTIONS_HELP
    "Activations are by-type unless something else is asked for.\n";

typedef struct options {
    const char *model, *prompt, *decode, *rounds;
    lar_compute_options compute;
    bool csv;
    uint32_t prompt_tokens, decode_tokens, round_count;
} options;

typedef struct round {
    double prefill, decode;         /* tokens a second */
    double prefill_cpu, decode_cpu; /* milliseconds of the processor a token, of all threads: their waiting counts in */
    double read;                    /* GB/s of the same threads, the mean of before and after */
} round;

typedef struct bench {
    const options *o;
    lar_engine *engine;
    lar_engine_info info;
    lar_workers *readers;
    uint32_t *ids; /* (prompt_tokens + decode_tokens) */
    float *logits; /* (vocab) */
    round rounds[ROUNDS_MAX];
} bench;

#define AT(member) offsetof(options, member)
static const lar_local_option all[] = {
    {"--model", AT(model), LAR_LOCAL_TEXT, 0},   {"--prompt", AT(prompt), LAR_LOCAL_TEXT, 0},
    {"--decode", AT(decode), LAR_LOCAL_TEXT, 0}, {"--rounds", AT(rounds), LAR_LOCAL_TEXT, 0},
    {"--csv", AT(csv), LAR_LOCAL_FLAG, 0},       LAR_COMPUTE_ROWS(AT(compute)),
    {"--kv", AT(compute.kv), LAR_LOCAL_TEXT, 0},
};
static const lar_local_options table = {"bench-model", usage, all, sizeof all / sizeof *all};

static int bad(const char *format, const char *what) { return lar_local_options_bad(&table, format, what); }

/* `text` or, where it is NULL, `otherwise`. */
static bool number(const char *text, uint32_t otherwise, uint32_t most, uint32_t *out) {
    uint64_t value = otherwise;
    lar_diag d = {0};
    if (text && (lar_value_number(lar_slice_cstr(text), &value, &d) || value < 1 || value > most)) return false;
    *out = (uint32_t)value;
    return true;
}

/* -1: go on. */
static int take(int argc, char **argv, options *o) {
    int code = lar_local_options_take(&table, argc, argv, o);
    if (code >= 0) return code;
    if (!o->model) return bad("%s is missing", "--model");
    if (!number(o->prompt, 512, TOKENS_MAX, &o->prompt_tokens))
        return bad("--prompt %.40s: expected 1 to 1048576", o->prompt);
    if (!number(o->decode, 32, TOKENS_MAX, &o->decode_tokens))
        return bad("--decode %.40s: expected 1 to 1048576", o->decode);
    if (!number(o->rounds, 3, ROUNDS_MAX, &o->round_count)) return bad("--rounds %.40s: expected 1 to 99", o->rounds);
    return -1;
}

/* -- measuring ------------------------------------------------------------------------------------------------- */

static lar_error feed(bench *b, lar_sequence *s, uint32_t first, uint32_t count, lar_diag *d) {
    uint32_t last = count - 1;
    lar_engine_part part = {s, b->ids + first, count, &last, 1};
    return lar_engine_step(b->engine, &part, 1, b->logits, d);
}

typedef struct moment {
    uint64_t clock_ns, processor_ns;
} moment;

static moment now(void) { return (moment){lar_clock_mono_ns(), lar_clock_process_ns()}; }

static void since(moment start, uint32_t tokens, double *per_second, double *cpu_ms) {
    moment end = now();
    *per_second = tokens * 1e9 / (double)(end.clock_ns - start.clock_ns + 1);
    *cpu_ms = (double)(end.processor_ns - start.processor_ns) / 1e6 / tokens;
}

static lar_error one_round(bench *b, lar_sequence *s, round *r, lar_diag *d) {
    uint32_t prompt = b->o->prompt_tokens, decode = b->o->decode_tokens;
    double before = 0, after = 0;
    lar_sequence_cut(s, 0);
    lar_error e = lar_bandwidth_measure(b->readers, &before, d);
    moment start = now();
    if (!e) e = feed(b, s, 0, prompt, d);
    since(start, prompt, &r->prefill, &r->prefill_cpu);
    start = now();
    for (uint32_t i = 0; !e && i < decode; i++) e = feed(b, s, prompt + i, 1, d);
    since(start, decode, &r->decode, &r->decode_cpu);
    if (!e) e = lar_bandwidth_measure(b->readers, &after, d);
    r->read = (before + after) / 2;
    return e;
}

static lar_error measure(bench *b, lar_diag *d) {
    uint32_t total = b->o->prompt_tokens + b->o->decode_tokens;
    lar_sequence *s = NULL;
    lar_error e = lar_workers_start(b->info.threads, &b->readers, d);
    if (!e) e = lar_sequence_new(b->engine, total, &s, d);
    b->ids = malloc(total * sizeof *b->ids);
    b->logits = malloc(b->info.vocab * sizeof *b->logits);
    if (!e && (!b->ids || !b->logits)) e = lar_fail(LAR_NO_MEMORY, d, "no memory for the logits");
    if (!e) {
        /* Far apart and different, so that a prompt's tokens go to different experts. */
        for (uint64_t i = 0; i < total; i++) b->ids[i] = (uint32_t)(i * 2654435761u % b->info.vocab);
        e = feed(b, s, 0, total < WARM_TOKENS ? total : WARM_TOKENS, d); /* takes pages, wakes threads */
    }
    for (uint32_t i = 0; !e && i < b->o->round_count; i++) e = one_round(b, s, &b->rounds[i], d);
    lar_sequence_free(s);
    lar_workers_stop(b->readers);
    free(b->ids);
    free(b->logits);
    return e;
}

/* -- the report ------------------------------------------------------------------------------------------------ */

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double values[ROUNDS_MAX], uint32_t n) {
    qsort(values, n, sizeof *values, ascending);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static round median_round(const bench *b) {
    enum { FIGURES = sizeof(round) / sizeof(double) };
    round middle;
    double values[ROUNDS_MAX], figures[FIGURES], of_all[FIGURES];
    for (int k = 0; k < FIGURES; k++) {
        for (uint32_t i = 0; i < b->o->round_count; i++) {
            memcpy(figures, &b->rounds[i], sizeof figures);
            values[i] = figures[k];
        }
        of_all[k] = median(values, b->o->round_count);
    }
    memcpy(&middle, of_all, sizeof middle);
    return middle;
}

static void print_round(const bench *b, const char *name, const round *r) {
    double gb_s = r->decode * (double)b->info.active_bytes / 1e9;
    const char *row =
        b->o->csv ? "%s,%.2f,%.2f,%.2f,%.2f,%.3f,%.3f,%.3f\n" : "%-8s%12.1f%12.2f%12.1f%12.1f%9.0f %%%15.2f%14.2f\n";
    (void)printf(row, name, r->prefill, r->decode, gb_s, r->read, (b->o->csv ? 1 : 100) * gb_s / r->read,
                 r->prefill_cpu, r->decode_cpu);
}

static void report(const bench *b) {
    const lar_engine_info *i = &b->info;
    if (b->o->csv)
        (void)printf(
            "round,prefill_tokens_s,decode_tokens_s,decode_gb_s,read_gb_s,share,prefill_cpu_ms,decode_cpu_ms\n");
    else
        (void)printf(
            "%s, %u layers; %s kernels, %u thread%s; %.1f MB of weights a token; prompt of %u, decode of %u, latents "
            "in %s\n"
            "round   prefill t/s  decode t/s decode GB/s   read GB/s     share prefill CPU ms decode CPU ms\n",
            i->family, i->layers, i->kernels, i->threads, i->threads == 1 ? "" : "s", (double)i->active_bytes / 1e6,
            b->o->prompt_tokens, b->o->decode_tokens, i->kv);
    for (uint32_t k = 0; k < b->o->round_count; k++) {
        char name[12];
        (void)snprintf(name, sizeof name, "%u", k + 1);
        print_round(b, name, &b->rounds[k]);
    }
    round middle = median_round(b);
    print_round(b, "median", &middle);
}

static int failed(const char *path, lar_error e, const lar_diag *d) {
    (void)fprintf(stderr, "larder bench-model: %s: %s\n", path, *d->text ? d->text : lar_error_text(e));
    return FAILED;
}

int lar_command_bench_model(int argc, char **argv) {
    options o = {0};
    lar_diag d = {0};
    int code = take(argc, argv, &o);
    if (code >= 0) return code;
    lar_engine_options how = {.path = o.model};
    if (lar_compute_options_read(&o.compute, LAR_ACTIVATIONS_BY_TYPE, &how, &d)) return bad("%s", d.text);
    bench *b = calloc(1, sizeof *b);
    if (!b) return failed(o.model, LAR_NO_MEMORY, &d);
    b->o = &o;
    lar_error e = lar_engine_open(&how, &b->engine, &d);
    if (!e) {
        b->info = lar_engine_info_of(b->engine);
        e = measure(b, &d);
    }
    if (e) code = failed(o.model, e, &d);
    else {
        report(b);
        if (!o.csv) lar_expert_report(b->engine, stdout);
        code = OK;
    }
    lar_engine_close(b->engine);
    free(b);
    return code;
}
