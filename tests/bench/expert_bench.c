/* What a budget for experts costs: hit rates of the policies on several kinds of routing, and a model's speed.
 *   expert_bench traces                      synthetic routing of V2-Lite's shape: 26 layers, 64 experts, 6 used
 *   expert_bench routing MODEL TEXT          a model's own routing, decoding the text token by token, and in prompts
 *   expert_bench speed MODEL [--threads N] [--prompt N] [--decode N]
 *                                            a model by budget: tokens a second, reads past the page cache
 * CSV to stdout. Traces: `uniform` (what random weights do), `zipf` (popularity 1/rank, other experts in each layer),
 * `turns` (zipf, and after every 100 tokens a prompt that uses all experts). Policy `share` is the cache's, `age` is
 * LRU; the budget is in percent of all experts. Not a test: nothing here fails by time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "engine/compute/panel_matmul.h"
#include "engine/engine.h"
#include "engine/model/forward.h"
#include "engine/model/model_text.h"

enum { LAYERS = 26, EXPERTS = 64, USED = 6, PASSES = 600, TURN = 100 };

static void must(lar_error e, const lar_diag *d) {
    if (!e) return;
    (void)fprintf(stderr, "expert_bench: %s\n", *d->text ? d->text : lar_error_text(e));
    exit(1);
}

static void *memory(size_t bytes) {
    void *p = calloc(bytes, 1);
    if (!p) abort();
    return p;
}

/* -- traces ------------------------------------------------------------------------------------------------------ */

/* Which experts each pass uses in each layer. */
typedef struct trace {
    const char *name;
    uint32_t layers, experts, used, passes;
    uint8_t *uses; /* (passes, layers, experts) */
} trace;

static uint8_t *uses_at(const trace *t, uint32_t pass, uint32_t layer) {
    return t->uses + ((size_t)pass * t->layers + layer) * t->experts;
}

static double random_unit(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(*seed >> 11) * 0x1p-53;
}

/* `used` different experts, each with the chance of its weight. */
static void draw(uint8_t *uses, const double *weight, uint64_t *seed) {
    double left = 0;
    for (uint32_t e = 0; e < EXPERTS; e++) left += weight[e];
    for (uint32_t k = 0; k < USED; k++) {
        double at = random_unit(seed) * left;
        uint32_t chosen = EXPERTS;
        for (uint32_t e = 0; e < EXPERTS && at >= 0; e++)
            if (!uses[e]) at -= weight[e], chosen = e;
        uses[chosen] = 1;
        left -= weight[chosen];
    }
}

static trace synthetic(const char *name) {
    trace t = {name, LAYERS, EXPERTS, USED, PASSES, memory((size_t)PASSES * LAYERS * EXPERTS)};
    double weight[LAYERS][EXPERTS];
    uint64_t seed = 42;
    bool flat = strcmp(name, "uniform") == 0, turns = strcmp(name, "turns") == 0;
    for (uint32_t l = 0; l < LAYERS; l++) {
        for (uint32_t e = 0; e < EXPERTS; e++) weight[l][e] = flat ? 1 : 1.0 / (e + 1);
        for (uint32_t e = EXPERTS - 1; e > 0; e--) {
            uint32_t other = (uint32_t)(random_unit(&seed) * (e + 1));
            double kept = weight[l][e];
            weight[l][e] = weight[l][other], weight[l][other] = kept;
        }
    }
    for (uint32_t p = 0; p < PASSES; p++)
        for (uint32_t l = 0; l < LAYERS; l++) {
            if (turns && p % TURN == 0) memset(uses_at(&t, p, l), 1, EXPERTS);
            else draw(uses_at(&t, p, l), weight[l], &seed);
        }
    return t;
}

/* Hits in percent, of the second half: the first fills the cache. */
static double replay(const trace *t, lar_expert_policy policy, uint32_t slots) {
    lar_expert_slots s;
    lar_diag d = {0};
    lar_expert_slots_options o = {policy, t->layers, t->experts, t->used, slots};
    const lar_expert_pool all = {0, slots};
    uint64_t hits = 0, asked = 0;
    uint32_t *starts = memory((t->experts + 1) * sizeof *starts);
    must(lar_expert_slots_init(&s, &o, &d), &d);
    for (uint32_t p = 0; p < t->passes; p++)
        for (uint32_t l = 0; l < t->layers; l++) {
            const uint8_t *uses = uses_at(t, p, l);
            for (uint32_t e = 0; e < t->experts; e++) starts[e + 1] = starts[e] + uses[e];
            lar_expert_slots_visit(&s, l, starts);
            for (uint32_t e = 0; e < t->experts; e++) {
                bool hit = s.slot_of[l * t->experts + e] != LAR_EXPERT_NONE;
                if (uses[e] && p >= t->passes / 2) asked++, hits += hit;
            }
            for (uint32_t e = 0; e < t->experts; e++)
                if (uses[e] && s.slot_of[l * t->experts + e] == LAR_EXPERT_NONE)
                    (void)lar_expert_slots_take(&s, &all, l * t->experts + e);
        }
    lar_expert_slots_release(&s);
    free(starts);
    return asked ? 100 * (double)hits / (double)asked : 0;
}

static void replay_all(const trace *t) {
    static const char *const names[] = {[LAR_EXPERTS_BY_SHARE] = "share", [LAR_EXPERTS_BY_AGE] = "age"};
    static const uint32_t percents[] = {100, 75, 50, 25, 10};
    for (size_t i = 0; i < sizeof percents / sizeof *percents; i++)
        for (int policy = 0; policy < 2; policy++) {
            uint32_t slots = t->layers * t->experts * percents[i] / 100;
            (void)printf("%s,%s,%u,%.1f\n", t->name, names[policy], percents[i],
                         replay(t, (lar_expert_policy)policy, slots ? slots : 1));
        }
    (void)fflush(stdout);
}

static void traces(void) {
    static const char *const names[] = {"uniform", "zipf", "turns"};
    (void)printf("trace,policy,budget_percent,hit_percent\n");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        trace t = synthetic(names[i]);
        replay_all(&t);
        free(t.uses);
    }
}

/* -- a model's routing ------------------------------------------------------------------------------------------- */

typedef struct recorder {
    trace *t;
    uint32_t pass, first; /* first: how many layers before the first with experts */
} recorder;

static void record(void *context, uint32_t layer, const uint32_t *chosen, uint32_t tokens) {
    recorder *r = context;
    uint8_t *uses = uses_at(r->t, r->pass, layer - r->first);
    for (uint32_t i = 0; i < tokens * r->t->used; i++) uses[chosen[i]] = 1;
}

typedef struct model {
    lar_model_files *files;
    lar_model_config config;
    lar_weights weights;
    lar_forward *forward;
    lar_ids ids;
} model;

static void read_ids(model *m, const char *text, lar_diag *d) {
    lar_buf bytes;
    lar_tokenizer *tokenizer;
    lar_buf_init(&bytes, 1 << 24);
    must(lar_file_read(text, LAR_FILE_REGULAR, &bytes, d), d);
    must(lar_model_tokenizer(m->files, &tokenizer, d), d);
    lar_ids_init(&m->ids, 1 << 24);
    must(lar_tokenizer_encode_plain(tokenizer, lar_buf_slice(&bytes), &m->ids, d), d);
    lar_tokenizer_free(tokenizer);
    lar_buf_release(&bytes);
}

/* The text in windows of the model's context, `chunk` tokens a pass. */
static void routing_by(model *m, const char *name, uint32_t chunk) {
    uint8_t kv[LAR_LAYERS_MAX] = {0};
    lar_page_layout layout = lar_forward_layout(&m->config, kv);
    uint32_t window = m->config.context < 512 ? m->config.context : 512, first = 0;
    lar_latent_cache *cache;
    lar_diag d = {0};
    while (!lar_config_is_moe(&m->config, first)) first++;
    trace t = {
        name, m->config.layers - first, m->config.router.experts, m->config.router.used, (uint32_t)m->ids.count / chunk,
        NULL};
    t.uses = memory((size_t)t.passes * t.layers * t.experts);
    recorder r = {&t, 0, first};
    must(lar_latent_cache_new_alone(&layout, window, &cache, &d), &d);
    lar_forward_set_watch(m->forward, record, &r);
    for (; r.pass < t.passes; r.pass++) {
        if (lar_latent_cache_length(cache) + chunk > window) lar_latent_cache_cut(cache, 0);
        must(lar_latent_cache_reserve(cache, chunk, &d), &d);
        lar_forward_part part = {.cache = cache, .ids = m->ids.ids + (size_t)r.pass * chunk, .count = chunk};
        must(lar_forward_run(m->forward, &part, 1, NULL, &d), &d);
    }
    lar_latent_cache_free(cache);
    replay_all(&t);
    free(t.uses);
}

static void routing(const char *path, const char *text) {
    model m = {0};
    lar_diag d = {0};
    must(lar_model_files_open(path, &m.files, &d), &d);
    must(lar_config_read(&m.config, m.files, &d), &d);
    lar_cpu cpu;
    must(lar_cpu_choose("auto", &cpu, &d), &d);
    lar_weights_options w = {.kernels = lar_kernels_panels(cpu)};
    must(lar_weights_load(&m.weights, &m.config, m.files, &w, &d), &d);
    lar_forward_options f = {.tokens_max = 128, .logits_max = 1};
    must(lar_forward_new(&m.config, &m.weights, &f, &m.forward, &d), &d);
    read_ids(&m, text, &d);
    (void)printf("trace,policy,budget_percent,hit_percent\n");
    routing_by(&m, "decode", 1);
    routing_by(&m, "prompts", 128);
    lar_forward_free(m.forward);
    lar_weights_release(&m.weights);
    lar_model_files_close(m.files);
    lar_ids_release(&m.ids);
}

/* -- speed ------------------------------------------------------------------------------------------------------- */

typedef struct speed {
    const char *model;
    uint32_t threads, prompt, decode;
} speed;

static double feed(lar_engine *e, lar_sequence *s, const uint32_t *ids, uint32_t count, float *logits) {
    lar_diag d = {0};
    uint32_t last = count - 1;
    uint64_t start = lar_clock_mono_ns();
    must(lar_engine_step(e, &(lar_engine_part){s, ids, count, &last, 1}, 1, logits, &d), &d);
    return (double)(lar_clock_mono_ns() - start) / 1e9;
}

static void speed_of(const speed *o, uint64_t budget, double percent) {
    lar_engine *e;
    lar_sequence *s;
    lar_diag d = {0};
    lar_engine_options how = {.path = o->model, .threads = o->threads, .activations = LAR_ACTIVATIONS_BY_TYPE};
    how.expert_bytes = budget;
    must(lar_engine_open(&how, &e, &d), &d);
    uint32_t total = o->prompt + o->decode, vocab = lar_engine_info_of(e).vocab;
    uint32_t *ids = memory(total * sizeof *ids);
    float *logits = memory(vocab * sizeof *logits);
    must(lar_sequence_new(e, total, &s, &d), &d);
    for (uint64_t i = 0; i < total; i++) ids[i] = (uint32_t)(i * 2654435761u % vocab);
    double prompt = feed(e, s, ids, o->prompt, logits), decode = 0;
    lar_expert_counts a = lar_engine_experts(e);
    for (uint32_t i = 0; i < o->decode; i++) decode += feed(e, s, ids + o->prompt + i, 1, logits);
    lar_expert_counts b = lar_engine_experts(e);
    double used = (double)(b.hits + b.misses - a.hits - a.misses),
           mib = (double)(b.bytes_read - a.bytes_read) / (1 << 20);
    (void)printf("%.0f,%.2f,%.2f,%.1f,%.2f,%.0f,%.0f,%.1f\n", percent, o->prompt / prompt, o->decode / decode,
                 used > 0 ? 100 * (double)(b.hits - a.hits) / used : 100, mib / o->decode,
                 mib * 1e6 / (double)(b.read_us - a.read_us + 1), mib * 1e6 / (double)(b.pack_us - a.pack_us + 1),
                 100 * (double)(b.stall_us - a.stall_us) / 1e6 / decode);
    (void)fflush(stdout);
    lar_sequence_free(s);
    lar_engine_close(e);
    free(ids), free(logits);
}

/* All packed experts, from what a refusal of one byte says. */
static uint64_t all_bytes(const speed *o) {
    lar_engine *e;
    lar_diag d = {0};
    unsigned long long all = 0;
    if (lar_engine_open(&(lar_engine_options){.path = o->model, .expert_bytes = 1}, &e, &d) != LAR_LIMIT)
        must(LAR_INVALID, &d);
    const char *at = strstr(d.text, "all of them are ");
    if (!at || sscanf(at, "all of them are %llu", &all) != 1) must(LAR_INVALID, &d);
    return all;
}

static void speeds(const speed *o) {
    static const uint32_t percents[] = {100, 75, 50, 25, 10};
    uint64_t all = all_bytes(o);
    (void)printf(
        "budget_percent,prefill_tokens_s,decode_tokens_s,decode_hit_percent,decode_mib_token,read_mib_s_thread,"
        "pack_mib_s_thread,decode_stall_percent\n");
    for (size_t i = 0; i < sizeof percents / sizeof *percents; i++)
        speed_of(o, percents[i] == 100 ? 0 : all / 100 * percents[i], percents[i]);
}

static uint32_t number(const char *text) {
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    if (*end || !n || n > 1 << 20) exit(2);
    return (uint32_t)n;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "traces") == 0) return traces(), 0;
    if (argc == 4 && strcmp(argv[1], "routing") == 0) return routing(argv[2], argv[3]), 0;
    if (argc < 3 || argc % 2 == 0 || strcmp(argv[1], "speed") != 0) {
        (void)fprintf(stderr,
                      "usage: expert_bench traces | routing MODEL TEXT | speed MODEL [--threads N] [--prompt N] "
                      "[--decode N]\n");
        return 2;
    }
    speed o = {argv[2], 0, 64, 64};
    for (int i = 3; i < argc; i += 2) {
        if (strcmp(argv[i], "--threads") == 0) o.threads = number(argv[i + 1]);
        else if (strcmp(argv[i], "--prompt") == 0) o.prompt = number(argv[i + 1]);
        else if (strcmp(argv[i], "--decode") == 0) o.decode = number(argv[i + 1]);
        else return 2;
    }
    speeds(&o);
    return 0;
}
