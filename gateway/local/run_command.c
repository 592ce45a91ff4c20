/* larder run: options, and which way to run.
 * Called by main.c; run_cases.c, run_chat.c and run_perplexity.c work. Messages go to stderr and say what to do. One
 * thread; blocks. Why options stay text until the model is open: what its makers say of sampling is the default.
 * Memory: borrows argv. Not here: what a model is (engine/engine.h). */
#include "gateway/local/run_command.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/file.h"
#include "gateway/config/option_value.h"
#include "gateway/local/compute_options.h"
#include "gateway/local/expert_report.h"
#include "gateway/local/local_options.h"
#include "gateway/local/run_cases.h"
#include "gateway/local/run_chat.h"
#include "gateway/local/run_perplexity.h"

enum { OK, FAILED, CONTEXT_TOKENS = 4096, TEXT_BYTES_MAX = 1 << 28 };

static const char usage[] =
    "usage: larder run --model PATH [-p TEXT] [options]\n"
    "       larder run --model PATH --ids CASES.json --logits OUT.safetensors [--kv FORMAT]\n"
    "       larder run --model PATH --perplexity TEXT\n"
    "Runs a model of the DeepSeek family on this machine. PATH is a Hugging Face folder or FILE.gguf. Answers go to\n"
    "standard output as they come, reasoning to standard error.\n"
    "  -p, --prompt TEXT     one answer to it; without it each line of standard input is a turn of one conversation\n"
    "  --system TEXT         the system message\n"
    "  --raw                 continue the text as it stands, without the model's chat template\n"
    "  --context N           tokens of the conversation (4096, or the model's if it has fewer)\n"
    "  --max-tokens N        of one answer (as the context allows)\n"
    "  --temperature N, --top-p N, --top-k N, --min-p N, --repetition-penalty N\n"
    "                        (as generation_config.json has them; else 1, 1, all, 0, 1); temperature 0: the likeliest\n"
    "  --frequency-penalty N, --presence-penalty N   (0)\n"
    "  --seed N              the same seed, the same answer (a new one each time)\n"
    "  --ids FILE            {\"cases\": [{\"name\": \"a\", \"ids\": [1, 2], \"positions\": [1]}]}; - is standard input.\n"
    "                        positions: tokens whose logits are wanted (absent: the last); continuation: a list, as\n"
    "                        many ids as it holds are added greedily\n"
    "  --logits FILE         written as safetensors: NAME.logits, and NAME.continuation and NAME.margin of greedy cases\n"
    "  --perplexity FILE     of a text, in windows of 512 tokens that do not overlap; - is standard input\n" LAR_COMPUTE_OPTIONS_HELP
    "Activations are f32 with --ids and --perplexity and by-type without, unless something else is asked for.\n";

typedef struct options {
    const char *model, *ids, *logits, *perplexity, *prompt, *system, *context, *max_tokens, *seed;
    const char *temperature, *top_p, *top_k, *min_p, *repetition, *frequency, *presence;
    lar_compute_options compute;
    bool raw;
} options;

enum { CHAT = 1, IDS = 2, SCORE = 4 };

#define AT(member) offsetof(options, member)
static const lar_local_option all[] = {
    {"--model", AT(model), LAR_LOCAL_TEXT, 0},
    {"--ids", AT(ids), LAR_LOCAL_TEXT, IDS},
    {"--logits", AT(logits), LAR_LOCAL_TEXT, IDS},
    {"--perplexity", AT(perplexity), LAR_LOCAL_TEXT, SCORE},
    {"--prompt", AT(prompt), LAR_LOCAL_TEXT, CHAT},
    {"-p", AT(prompt), LAR_LOCAL_TEXT, CHAT},
    {"--system", AT(system), LAR_LOCAL_TEXT, CHAT},
    {"--raw", AT(raw), LAR_LOCAL_FLAG, CHAT},
    {"--context", AT(context), LAR_LOCAL_TEXT, CHAT},
    {"--max-tokens", AT(max_tokens), LAR_LOCAL_TEXT, CHAT},
    {"--seed", AT(seed), LAR_LOCAL_TEXT, CHAT},
    {"--temperature", AT(temperature), LAR_LOCAL_TEXT, CHAT},
    {"--top-p", AT(top_p), LAR_LOCAL_TEXT, CHAT},
    {"--top-k", AT(top_k), LAR_LOCAL_TEXT, CHAT},
    {"--min-p", AT(min_p), LAR_LOCAL_TEXT, CHAT},
    {"--repetition-penalty", AT(repetition), LAR_LOCAL_TEXT, CHAT},
    {"--frequency-penalty", AT(frequency), LAR_LOCAL_TEXT, CHAT},
    {"--presence-penalty", AT(presence), LAR_LOCAL_TEXT, CHAT},
    LAR_COMPUTE_ROWS(AT(compute)),
    {"--kv", AT(compute.kv), LAR_LOCAL_TEXT, 0},
};
static const lar_local_options table = {"run", usage, all, sizeof all / sizeof *all};

static int bad(const char *format, const char *what) { return lar_local_options_bad(&table, format, what); }

/* Every option that was given does something. -1: go on. */
static int check_uses(const options *o) {
    unsigned use = o->ids ? IDS : o->perplexity ? SCORE : CHAT;
    for (size_t i = 0; i < table.count; i++) {
        if (!all[i].uses || (all[i].uses & use) || !lar_local_option_given(&all[i], o)) continue;
        return bad(use == IDS ? "%s does nothing with --ids" : "%s does nothing with --perplexity", all[i].name);
    }
    return -1;
}

/* -1: go on. */
static int take(int argc, char **argv, options *o) {
    int code = lar_local_options_take(&table, argc, argv, o);
    if (code >= 0) return code;
    if (!o->model) return bad("%s is missing", "--model");
    if (o->ids && !o->logits) return bad("%s is missing", "--logits");
    if (o->logits && !o->ids) return bad("%s is missing", "--ids");
    return check_uses(o);
}

static int failed(const char *path, lar_error e, const lar_diag *d) {
    (void)fprintf(stderr, "larder run: %s: %s", path, *d->text ? d->text : lar_error_text(e));
    if (d->has_offset) (void)fprintf(stderr, " (at byte %llu)", (unsigned long long)d->offset);
    (void)fprintf(stderr, "\n");
    return FAILED;
}

static void show_progress(void *context, uint32_t done, uint32_t total) {
    enum { WIDTH = 40 };
    (void)context;
    uint32_t filled = WIDTH * done / total;
    (void)fprintf(stderr, "\rloading [%.*s%*s] %u of %u layers", (int)filled,
                  "########################################", (int)(WIDTH - filled), "", done, total);
    if (done == total) (void)fprintf(stderr, "\r%*s\r", WIDTH + 36, "");
}

/* To a person at a terminal. */
static void report_experts(const lar_engine *e) {
    if (isatty(STDERR_FILENO)) lar_expert_report(e, stderr);
}

/* -- logits ------------------------------------------------------------------------------------------------------ */

static int run_ids(const options *o, lar_engine_options *how) {
    lar_run_cases cases;
    lar_engine *engine = NULL;
    lar_diag d = {0};
    const char *ids = strcmp(o->ids, "-") == 0 ? "/dev/stdin" : o->ids;
    lar_error e = lar_run_cases_read(&cases, ids, &d);
    int code = e ? failed(ids, e, &d) : OK;
    if (!e) {
        e = lar_engine_open(how, &engine, &d);
        if (e) code = failed(o->model, e, &d);
    }
    if (!e) {
        e = lar_run_cases_run(&cases, engine, o->logits, &d);
        if (e) code = failed(o->ids, e, &d);
        report_experts(engine);
    }
    lar_engine_close(engine);
    lar_run_cases_release(&cases);
    return code;
}

static int run_perplexity(const options *o, lar_engine_options *how) {
    lar_engine *engine = NULL;
    lar_engine_text beside;
    lar_perplexity p;
    lar_buf text;
    lar_diag d = {0};
    const char *path = strcmp(o->perplexity, "-") == 0 ? "/dev/stdin" : o->perplexity;
    lar_buf_init(&text, TEXT_BYTES_MAX);
    lar_error e = lar_file_read(path, LAR_FILE_OR_STREAM, &text, &d);
    int code = e ? failed(path, e, &d) : OK;
    if (!e) {
        e = lar_engine_open(how, &engine, &d);
        if (!e) e = lar_engine_text_read(engine, &beside, &d);
        if (e) code = failed(o->model, e, &d);
    }
    if (!e) {
        e = lar_run_perplexity(engine, beside.tokenizer, lar_buf_slice(&text), &p, &d);
        if (e) code = failed(path, e, &d);
        else
            (void)printf("perplexity %.3f on %llu tokens, windows of %u\n", p.value, (unsigned long long)p.tokens,
                         p.window);
        report_experts(engine);
        lar_engine_text_release(&beside);
    }
    lar_engine_close(engine);
    lar_buf_release(&text);
    return code;
}

/* -- text -------------------------------------------------------------------------------------------------------- */

typedef struct number {
    const char *name, *text; /* text NULL: not given */
    double *value;
} number;

static lar_error read_sampling(const options *o, lar_sampling *s, lar_diag *d) {
    const number numbers[] = {
        {"--temperature", o->temperature, &s->temperature},
        {"--top-p", o->top_p, &s->top_p},
        {"--min-p", o->min_p, &s->min_p},
        {"--repetition-penalty", o->repetition, &s->repetition},
        {"--frequency-penalty", o->frequency, &s->frequency},
        {"--presence-penalty", o->presence, &s->presence},
    };
    uint64_t top_k = s->top_k;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const number *n = &numbers[i];
        char *end = NULL;
        if (!n->text) continue;
        *n->value = strtod(n->text, &end);
        if (end == n->text || *end || !isfinite(*n->value))
            return lar_fail(LAR_INVALID, d, "%s %.40s: expected a number", n->name, n->text);
    }
    if (o->top_k && (lar_value_number(lar_slice_cstr(o->top_k), &top_k, NULL) || top_k > UINT32_MAX))
        return lar_fail(LAR_INVALID, d, "--top-k %.40s: expected a whole number", o->top_k);
    s->top_k = (uint32_t)top_k;
    if (o->seed && lar_value_number(lar_slice_cstr(o->seed), &s->seed, NULL))
        return lar_fail(LAR_INVALID, d, "--seed %.40s: expected a whole number", o->seed);
    if (!o->seed && getrandom(&s->seed, sizeof s->seed, 0) != sizeof s->seed)
        return lar_fail(LAR_IO, d, "no randomness: %s", strerror(errno));
    return LAR_OK;
}

static lar_error read_tokens(const char *name, const char *text, uint32_t most, uint32_t *out, lar_diag *d) {
    uint64_t n;
    if (!text) return LAR_OK;
    if (lar_value_number(lar_slice_cstr(text), &n, NULL) || n < 1 || n > most)
        return lar_fail(LAR_INVALID, d, "%s %.40s: expected 1 to %u", name, text, most);
    *out = (uint32_t)n;
    return LAR_OK;
}

/* What can be wrong before a model is open: every number, with the model's context not known yet. */
static lar_error check_numbers(const options *o, lar_diag *d) {
    lar_sampling s = LAR_SAMPLING_DEFAULT;
    lar_sampler *trial = NULL;
    uint32_t tokens;
    lar_error e = read_sampling(o, &s, d);
    if (!e) e = read_tokens("--context", o->context, UINT32_MAX, &tokens, d);
    if (!e) e = read_tokens("--max-tokens", o->max_tokens, UINT32_MAX, &tokens, d);
    if (!e) e = lar_sampler_new(&s, 1, &trial, d);
    lar_sampler_free(trial);
    return e;
}

static lar_error talk(const options *o, lar_engine *engine, lar_diag *d) {
    lar_engine_text text;
    uint32_t most = lar_engine_info_of(engine).context;
    lar_run_chat c = {.prompt = o->prompt, .system = o->system, .form = o->raw ? LAR_RUN_RAW : LAR_RUN_TEMPLATE};
    c.context = most < CONTEXT_TOKENS ? most : CONTEXT_TOKENS;
    lar_error e = lar_engine_text_read(engine, &text, d);
    if (e) return e;
    c.sampling = text.generation.sampling;
    e = read_sampling(o, &c.sampling, d);
    if (!e) e = read_tokens("--context", o->context, most, &c.context, d);
    if (!e) e = read_tokens("--max-tokens", o->max_tokens, UINT32_MAX, &c.tokens_max, d);
    if (!e) e = lar_run_chat_run(&c, engine, &text, d);
    lar_engine_text_release(&text);
    return e;
}

/* What a person at a terminal wants to know before the first answer. */
static void describe(const lar_engine *engine) {
    enum { KIB = 1024, MIB = 1024 * 1024 };
    lar_engine_info i = lar_engine_info_of(engine);
    if (!isatty(STDERR_FILENO)) return;
    (void)fprintf(stderr,
                  "[%s, %u layers, context %u; kernels %s, %u threads; %.1f MiB of weights beside the files, scratch "
                  "%.1f MiB of which %.1f are in use at most, %.1f KiB a token in %s]\n",
                  i.family, i.layers, i.context, i.kernels, i.threads, (double)i.packed_bytes / MIB,
                  (double)i.scratch_bytes / MIB, (double)i.scratch_peak / MIB, (double)i.token_bytes / KIB, i.kv);
}

static int run_text(const options *o, lar_engine_options *how) {
    lar_engine *engine = NULL;
    lar_diag d = {0};
    if (check_numbers(o, &d)) return bad("%s", d.text);
    if (o->raw && o->system) return bad("%s: there is no template to put it into", "--system with --raw");
    lar_error e = lar_engine_open(how, &engine, &d);
    if (!e) describe(engine);
    if (!e) e = talk(o, engine, &d);
    if (!e) report_experts(engine);
    lar_engine_close(engine);
    return e ? failed(o->model, e, &d) : OK;
}

int lar_command_run(int argc, char **argv) {
    options o = {0};
    lar_diag d = {0};
    int code = take(argc, argv, &o);
    if (code >= 0) return code;
    lar_engine_options how = {.path = o.model, .progress = isatty(STDERR_FILENO) ? show_progress : NULL};
    lar_activations otherwise = o.ids || o.perplexity ? LAR_ACTIVATIONS_F32 : LAR_ACTIVATIONS_BY_TYPE;
    if (lar_compute_options_read(&o.compute, otherwise, &how, &d)) return bad("%s", d.text);
    if (o.perplexity) return run_perplexity(&o, &how);
    return o.ids ? run_ids(&o, &how) : run_text(&o, &how);
}
