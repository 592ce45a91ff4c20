/* Attention of a model's shape, as a decoded token or a piece of a prompt has it: the absorbed form over latents that
 * lie in memory, layer after layer, so that no layer finds its own in a cache.
 *   attention_bench [--threads N] [--rounds N] [--layers N] [--context N] [--tokens N] [FORMAT...]     CSV to stdout
 * Default: V2-Lite's heads, 27 layers, 540 tokens before one, two threads, 20 rounds; formats of latents: all. Of each
 * the median round. products_ms: the products with W_UK and W_UV alone, part of attend_ms. Not a test, and nothing here
 * fails by time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/cache/latent_cache.h"
#include "engine/compute/panel_matmul.h"
#include "engine/compute/workers.h"
#include "random_weights.h"

enum { HEADS = 16, RANK = 512, NOPE = 128, ROPE = 64, VALUE = 128, LAYERS_MOST = 61, ROUNDS_MOST = 999 };

typedef struct options {
    uint32_t threads, rounds, layers, context, tokens;
} options;

static void must(lar_error e, const lar_diag *d) {
    if (!e) return;
    (void)fprintf(stderr, "attention_bench: %s\n", *d->text ? d->text : lar_error_text(e));
    exit(1);
}

static void *memory(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!p) abort();
    return p;
}

static float *random_floats(size_t n) {
    uint64_t seed = 3;
    float *x = memory(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = random_float(&seed);
    return x;
}

typedef struct layer {
    lar_matrix up[HEADS], down[HEADS];
} layer;

typedef struct bench {
    const options *o;
    layer *layers;
    lar_latent_cache *cache;
    float *query, *latent, *out;
    lar_attention_part part;
    lar_attention a;
    lar_run run;
} bench;

static void prepare(lar_matrix m[HEADS], const random_weights *w, uint32_t out) {
    lar_diag d = {0};
    for (uint32_t h = 0; h < HEADS; h++)
        must(lar_matrix_prepare(&m[h], &(lar_rows){&w->tensor, (uint64_t)h * out, out},
                                lar_kernels_panels(lar_cpu_best()), LAR_ACTIVATIONS_BY_TYPE, &d),
             &d);
}

static void fill_cache(const bench *b) {
    const options *o = b->o;
    uint32_t all = o->context + o->tokens;
    float *row = random_floats(RANK + ROPE);
    lar_latent_cache_begin(b->cache);
    for (uint32_t i = 0; i < o->layers; i++)
        for (uint32_t t = 0; t < all; t++) lar_latent_cache_put(b->cache, i, t, row);
    lar_latent_cache_grow(b->cache, o->context);
    free(row);
}

static void attend_all(bench *b) {
    for (uint32_t i = 0; i < b->o->layers; i++) {
        b->a.key_absorb = b->layers[i].up, b->a.value_up = b->layers[i].down;
        b->part.latents = lar_latent_cache_rows(b->cache, i);
        lar_attend(&b->a, LAR_ATTENTION_ABSORBED, &b->run);
    }
}

static void multiply_all(bench *b) {
    const uint32_t head = NOPE + ROPE, tokens = b->o->tokens;
    for (uint32_t i = 0; i < b->o->layers; i++) {
        lar_matmul(&(lar_product){b->layers[i].up, HEADS, tokens, b->query, HEADS * head, head, b->latent, HEADS * RANK,
                                  RANK},
                   &b->run);
        lar_matmul(&(lar_product){b->layers[i].down, HEADS, tokens, b->latent, HEADS * RANK, RANK, b->out,
                                  HEADS * VALUE, VALUE},
                   &b->run);
    }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Milliseconds of a layer. */
static double median_ms(bench *b, void (*all)(bench *b)) {
    double ms[ROUNDS_MOST];
    all(b);
    for (uint32_t i = 0; i < b->o->rounds; i++) {
        uint64_t start = lar_clock_mono_ns();
        all(b);
        ms[i] = (double)(lar_clock_mono_ns() - start) / 1e6 / b->o->layers;
    }
    qsort(ms, b->o->rounds, sizeof *ms, ascending);
    return ms[b->o->rounds / 2];
}

static void bench_format(bench *b, lar_kv format) {
    const options *o = b->o;
    uint8_t kv[LAYERS_MOST];
    lar_diag d = {0};
    memset(kv, (int)format, sizeof kv);
    must(lar_latent_cache_new_alone(&(lar_page_layout){o->layers, RANK, ROPE, kv}, o->context + o->tokens, &b->cache,
                                    &d),
         &d);
    fill_cache(b);
    double attend = median_ms(b, attend_all), products = median_ms(b, multiply_all);
    (void)printf("%s,%u,%u,%u,%.4f,%.4f\n", lar_kv_info_of(format)->name, o->threads, o->context, o->tokens, attend,
                 products);
    (void)fflush(stdout);
    lar_latent_cache_free(b->cache);
}

static void set_up(bench *b, const random_weights *up, const random_weights *down) {
    const options *o = b->o;
    const uint32_t head = NOPE + ROPE;
    lar_diag d = {0};
    must(lar_workers_start(o->threads, &b->run.workers, &d), &d);
    b->layers = memory(o->layers * sizeof *b->layers);
    for (uint32_t i = 0; i < o->layers; i++)
        prepare(b->layers[i].up, up, RANK), prepare(b->layers[i].down, down, VALUE);
    b->query = random_floats((size_t)o->tokens * HEADS * head);
    b->latent = random_floats((size_t)o->tokens * HEADS * RANK);
    b->out = random_floats((size_t)o->tokens * HEADS * VALUE);
    b->a = (lar_attention){.shape = {HEADS, RANK, NOPE, ROPE, VALUE, 0.1f},
                           .key_absorb = b->layers[0].up,
                           .value_up = b->layers[0].down,
                           .parts = &b->part,
                           .count = 1,
                           .query = b->query,
                           .out = b->out};
    b->part = (lar_attention_part){.first = o->context, .tokens = o->tokens};
    b->a.scratch = memory(lar_attention_scratch(&b->a.shape, o->tokens, o->threads));
    b->run.workspace_bytes = lar_attention_workspace(&b->a, o->tokens, o->threads);
    uint64_t whole[2] = {lar_matmul_workspace(b->layers[0].up, HEADS, o->tokens),
                         lar_matmul_workspace(b->layers[0].down, HEADS, o->tokens)};
    for (int i = 0; i < 2; i++)
        if (whole[i] > b->run.workspace_bytes) b->run.workspace_bytes = whole[i];
    b->run.workspace = memory(b->run.workspace_bytes);
}

static void tear_down(bench *b) {
    for (uint32_t i = 0; i < b->o->layers; i++)
        for (uint32_t h = 0; h < HEADS; h++) {
            lar_matrix_release(&b->layers[i].up[h]);
            lar_matrix_release(&b->layers[i].down[h]);
        }
    lar_workers_stop(b->run.workers);
    free(b->layers), free(b->query), free(b->latent), free(b->out), free(b->a.scratch), free(b->run.workspace);
}

static bool is_chosen(int argc, char **argv, int first, lar_kv format) {
    for (int i = first; i < argc; i++)
        if (strcmp(argv[i], lar_kv_info_of(format)->name) == 0) return true;
    return first == argc;
}

static bool are_formats(int argc, char **argv, int first) {
    int known = 0;
    for (int format = 0; format < LAR_KV_COUNT; format++)
        for (int i = first; i < argc; i++) known += strcmp(argv[i], lar_kv_info_of((lar_kv)format)->name) == 0;
    return known == argc - first;
}

int main(int argc, char **argv) {
    options o = {2, 20, 27, 540, 1};
    int i = 1;
    for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        uint32_t value = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--threads") == 0) o.threads = value;
        else if (strcmp(argv[i], "--rounds") == 0) o.rounds = value;
        else if (strcmp(argv[i], "--layers") == 0) o.layers = value;
        else if (strcmp(argv[i], "--context") == 0) o.context = value;
        else if (strcmp(argv[i], "--tokens") == 0) o.tokens = value;
        else break;
    }
    if (!are_formats(argc, argv, i) || !o.rounds || o.rounds > ROUNDS_MOST || !o.layers || o.layers > LAYERS_MOST ||
        !o.tokens || o.tokens > LAR_ATTENTION_ABSORB_TOKENS) {
        (void)fprintf(stderr,
                      "usage: attention_bench [--threads N] [--rounds N] [--layers N] [--context N] [--tokens N] "
                      "[FORMAT...]\nat most %d rounds, %d layers, %d tokens\n",
                      ROUNDS_MOST, LAYERS_MOST, LAR_ATTENTION_ABSORB_TOKENS);
        return 2;
    }
    random_weights up, down;
    random_weights_init(&up, LAR_DTYPE_Q5_0, HEADS * RANK, NOPE, 1);
    random_weights_init(&down, LAR_DTYPE_Q4_K, HEADS * VALUE, RANK, 2);
    bench b = {.o = &o};
    set_up(&b, &up, &down);
    (void)printf("format,threads,context,tokens,attend_ms,products_ms\n");
    for (int format = 0; format < LAR_KV_COUNT; format++)
        if (is_chosen(argc, argv, i, (lar_kv)format)) bench_format(&b, (lar_kv)format);
    tear_down(&b);
    random_weights_release(&up), random_weights_release(&down);
    return 0;
}
