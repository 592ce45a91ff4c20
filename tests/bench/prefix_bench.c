/* What prefix reuse gives and costs: the time to the first token of a prompt, cold and again, by the form of attention,
 * and what a page costs the cache.
 *   prefix_bench MODEL [--tokens N] [--threads N] [--rounds N] [--kv FORMATS] [--activations f32|bf16|int8|by-type]
 *                [--only again]
 * CSV to stdout: seconds by the clock, and of the processor, which count less of what else the machine does. Default:
 * prompts of 4096 tokens, one thread, 1 round, fp8, by-type. Rows: `page_keep`, `page_find`, `page_let_go`: one page of
 * 4,096 in a cache, with its hash; `digest_whole`, `digest_sampled`: the model's name for a page store (MiB instead of
 * tokens); of each round `by_length` (attention expanded for long prompts, no pages), `cold`
 * (pages: absorbed attention) and `warm` (the same prompt again). --only again: the last two alone.
 * Not a test: nothing here fails by time; only logits that differ between cold and warm do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "engine/cache/kv_layers.h"
#include "engine/compute/workers.h"
#include "engine/engine.h"
#include "engine/model/model_config.h"
#include "engine/model/model_digest.h"

enum { PAGES = 4096 };

typedef struct options {
    const char *model, *kv;
    uint32_t tokens, threads, rounds;
    lar_activations activations;
    bool only_again;
} options;

static void must(lar_error e, const lar_diag *d) {
    if (!e) return;
    (void)fprintf(stderr, "prefix_bench: %s\n", *d->text ? d->text : lar_error_text(e));
    exit(1);
}

static void *memory(size_t bytes) {
    void *p = calloc(bytes, 1);
    if (!p) abort();
    return p;
}

typedef struct span {
    double clock, processor; /* seconds */
} span;

static span now(void) { return (span){(double)lar_clock_mono_ns() / 1e9, (double)clock() / CLOCKS_PER_SEC}; }

/* `times` things took since `start`. */
static span since(span start, uint32_t times) {
    span end = now();
    return (span){(end.clock - start.clock) / times, (end.processor - start.processor) / times};
}

static void print(const char *what, uint32_t tokens, span s) {
    (void)printf("%s,%u,%.7f,%.7f,%.1f\n", what, tokens, s.clock, s.processor, tokens / s.processor);
    (void)fflush(stdout);
}

static void bench_digest(const options *o) {
    lar_model_files *f;
    lar_diag d = {0};
    lar_digest digest;
    uint64_t bytes = 0;
    lar_model_digest_options how = {.kernels = lar_kernels_reference()};
    must(lar_model_files_open(o->model, &f, &d), &d);
    must(lar_workers_start(o->threads, &how.workers, &d), &d);
    for (uint32_t i = 0; i < lar_model_files_parts(f); i++) bytes += lar_model_files_part(f, i)->size;
    for (int reach = LAR_DIGEST_SAMPLED; reach >= 0; reach--) {
        how.reach = (lar_digest_reach)reach;
        span start = now();
        must(lar_model_digest_of(f, &how, &digest, &d), &d);
        print(reach ? "digest_sampled" : "digest_whole", (uint32_t)(bytes >> 20), since(start, 1));
    }
    lar_workers_stop(how.workers);
    lar_model_files_close(f);
}

/* -- the model --------------------------------------------------------------------------------------------------- */

static lar_engine *open_model(const options *o, uint64_t page_bytes) {
    lar_engine *e;
    lar_diag d = {0};
    lar_engine_options engine = {
        .path = o->model, .threads = o->threads, .activations = o->activations, .kv = o->kv, .page_bytes = page_bytes};
    must(lar_engine_open(&engine, &e, &d), &d);
    return e;
}

/* Seconds to the logits of the prompt's last token. */
static span first_token(lar_engine *e, const uint32_t *ids, uint32_t count, float *logits) {
    span start = now();
    lar_sequence *s;
    lar_diag d = {0};
    must(lar_sequence_new(e, count, &s, &d), &d);
    uint32_t from = lar_sequence_adopt(s, &(lar_digest){0}, ids, count), last = count - from - 1;
    must(lar_engine_step(e, &(lar_engine_part){s, ids + from, count - from, &last, 1}, 1, logits, &d), &d);
    lar_sequence_keep(s, ids, count);
    span taken = since(start, 1);
    lar_sequence_free(s);
    return taken;
}

static void make_prompt(const options *o, uint32_t round, uint32_t vocab, uint32_t *ids) {
    for (uint32_t i = 0; i < o->tokens; i++) ids[i] = (round * 7919 + i * 104729 + i / 3) % vocab;
}

static void bench_by_length(const options *o) {
    uint32_t *ids = memory(o->tokens * sizeof *ids);
    lar_engine *plain = open_model(o, 0);
    lar_engine_info info = lar_engine_info_of(plain);
    float *logits = memory(info.vocab * sizeof *logits);
    for (uint32_t round = 0; round < o->rounds; round++) {
        make_prompt(o, round, info.vocab, ids);
        print("by_length", o->tokens, first_token(plain, ids, o->tokens, logits));
    }
    lar_engine_close(plain);
    free(ids), free(logits);
}

/* Of a model that no engine has opened yet. */
static uint64_t page_bytes(const options *o) {
    lar_page_layout layout;
    lar_model_files *f;
    lar_model_config c;
    lar_diag d = {0};
    must(lar_model_files_open(o->model, &f, &d), &d);
    must(lar_config_read(&c, f, &d), &d);
    uint8_t *kv = memory(c.layers);
    must(lar_kv_layers_parse(o->kv, c.layers, kv, &d), &d);
    layout = (lar_page_layout){c.layers, c.rank, c.rope.dims, kv};
    uint64_t bytes = lar_page_layout_page_bytes(&layout);
    lar_model_files_close(f);
    free(kv);
    return bytes;
}

static void bench_again(const options *o) {
    uint32_t *ids = memory(o->tokens * sizeof *ids);
    lar_engine *paged = open_model(o, (o->tokens / LAR_PAGE_TOKENS + 2ull) * 2 * page_bytes(o));
    lar_engine_info info = lar_engine_info_of(paged);
    float *cold = memory(info.vocab * sizeof *cold), *warm = memory(info.vocab * sizeof *warm);
    for (uint32_t round = 0; round < o->rounds; round++) {
        make_prompt(o, round, info.vocab, ids);
        print("cold", o->tokens, first_token(paged, ids, o->tokens, cold));
        print("warm", o->tokens, first_token(paged, ids, o->tokens, warm));
        if (memcmp(cold, warm, info.vocab * sizeof *cold) != 0) {
            (void)fprintf(stderr, "prefix_bench: the second prompt has other logits\n");
            exit(1);
        }
    }
    lar_engine_close(paged);
    free(ids), free(cold), free(warm);
}

/* -- the cache alone --------------------------------------------------------------------------------------------- */

static uint64_t no_time(void *context) { return (void)context, 0; }

static void bench_cache(void) {
    static const uint8_t kv[] = {LAR_KV_FP8};
    const lar_page_layout layout = {1, 16, 4, kv};
    lar_page_pool *pool;
    lar_prefix_cache *cache;
    lar_diag d = {0};
    uint32_t *ids = memory((size_t)PAGES * LAR_PAGE_TOKENS * sizeof *ids);
    int32_t *pages = memory(PAGES * sizeof *pages);
    for (uint32_t i = 0; i < PAGES * LAR_PAGE_TOKENS; i++) ids[i] = i;
    must(lar_page_pool_new(&layout, (uint64_t)PAGES * lar_page_layout_page_bytes(&layout), &pool, &d), &d);
    must(lar_prefix_cache_new(&(lar_prefix_options){.pool = pool, .now_ms = no_time}, &cache, &d), &d);
    lar_prefix_end end = lar_prefix_root(cache, &(lar_digest){0}), root = end;
    span start = now();
    for (uint32_t i = 0; i < PAGES; i++) {
        pages[i] = lar_page_take(pool);
        (void)lar_prefix_publish(cache, &end, ids + (size_t)i * LAR_PAGE_TOKENS, pages[i]);
    }
    print("page_keep", LAR_PAGE_TOKENS, since(start, PAGES));
    for (uint32_t i = 0; i < PAGES; i++) lar_page_drop(pool, pages[i]);
    start = now();
    if (lar_prefix_find(cache, &root, ids, PAGES * LAR_PAGE_TOKENS, pages).pages != PAGES) abort();
    print("page_find", LAR_PAGE_TOKENS, since(start, PAGES));
    for (uint32_t i = 0; i < PAGES; i++) lar_page_drop(pool, pages[i]);
    start = now();
    for (uint32_t i = 0; i < PAGES; i++) pages[i] = lar_page_take(pool);
    print("page_let_go", LAR_PAGE_TOKENS, since(start, PAGES));
    for (uint32_t i = 0; i < PAGES; i++) lar_page_drop(pool, pages[i]);
    lar_prefix_cache_free(cache);
    lar_page_pool_free(pool);
    free(ids), free(pages);
}

static bool set_option(options *o, const char *name, const char *value) {
    static const char *const roundings[] = {"f32", "bf16", "int8", "by-type"};
    uint32_t number = (uint32_t)strtoul(value, NULL, 10);
    if (strcmp(name, "--tokens") == 0) return (o->tokens = number) > 1;
    if (strcmp(name, "--threads") == 0) return (o->threads = number) > 0;
    if (strcmp(name, "--rounds") == 0) return (o->rounds = number) > 0;
    if (strcmp(name, "--kv") == 0) return o->kv = value, true;
    if (strcmp(name, "--only") == 0) return o->only_again = strcmp(value, "again") == 0;
    for (int i = 0; i < 4; i++)
        if (strcmp(name, "--activations") == 0 && strcmp(value, roundings[i]) == 0)
            return o->activations = (lar_activations)i, true;
    return false;
}

int main(int argc, char **argv) {
    options o = {.kv = "fp8", .tokens = 4096, .threads = 1, .rounds = 1, .activations = LAR_ACTIVATIONS_BY_TYPE};
    bool ok = argc > 1 && argc % 2 == 0 && argv[1][0] != '-';
    for (int i = 2; ok && i + 1 < argc; i += 2) ok = set_option(&o, argv[i], argv[i + 1]);
    if (!ok) {
        (void)fprintf(stderr, "usage: prefix_bench MODEL [--tokens N] [--threads N] [--rounds N] [--kv FORMATS] "
                              "[--activations f32|bf16|int8|by-type] [--only again]\n");
        return 2;
    }
    o.model = argv[1];
    (void)printf("what,tokens,seconds,processor_s,tokens_processor_s\n");
    if (!o.only_again) {
        bench_cache();
        bench_digest(&o);
        bench_by_length(&o);
    }
    bench_again(&o);
    return 0;
}
