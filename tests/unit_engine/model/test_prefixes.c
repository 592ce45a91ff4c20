/* Prefix reuse of the engine with a real, small model: thousands of random operations of two tenants, in few pages,
 * with a page store that fails now and then and outlives the engine. Whatever was adopted, forked, cut, let go or read
 * back, and whoever else was in a step: logits have the bits of a cold run of the same tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/cache/latent_cache.h"
#include "engine/engine.h"
#include "tests/unit_engine/cache/memory_store.h"
#include "tests/unit_engine/files/file_box.h"
#include "tests/unit_engine/files/model_maker.h"

enum { TOKENS_MAX = 5 * LAR_PAGE_TOKENS, SEQUENCES = 5, POOL_PAGES = 14, OPERATIONS = 3000, VOCAB = 60, TOGETHER = 3 };

/* All that a model of this family has, as small as it goes. */
static const model_shape shape = {.layers = 2,
                                  .dense_layers = 1,
                                  .hidden = 24,
                                  .heads = 2,
                                  .q_rank = 10,
                                  .kv_rank = 16,
                                  .nope = 8,
                                  .rope = 4,
                                  .v_dim = 8,
                                  .dense_ff = 20,
                                  .expert_ff = 8,
                                  .experts = 4,
                                  .experts_used = 2,
                                  .shared = 1,
                                  .groups = 2,
                                  .groups_used = 1,
                                  .sigmoid = true,
                                  .vocab = VOCAB,
                                  .context = TOKENS_MAX,
                                  .expert_scale = 2.5,
                                  .eps = 1e-5,
                                  .rope_base = 10000,
                                  .type = LAR_DTYPE_BF16,
                                  .seed = 3,
                                  .embedding = 1};
static const char formats[] = "fp8,1=bf16"; /* what is kept is not what is computed */

typedef struct talk {
    lar_sequence *sequence; /* NULL: none */
    uint32_t tenant, length;
    uint32_t ids[TOKENS_MAX];
} talk;

typedef struct world {
    lar_engine *warm, *cold;
    memory_store store;
    talk talks[SEQUENCES];
    uint64_t dice, now;
    uint64_t adopted, adopted_later, computed, full;
    lar_prefix_counts before; /* of engines that are closed */
} world;

static uint32_t throw(world * w, uint32_t sides) {
    w->dice = w->dice * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(w->dice >> 33) % sides;
}

static uint64_t now_of(void *context) { return ((world *)context)->now; }
static lar_digest scope_of(uint32_t tenant) { return lar_digest_of(lar_slice_cstr(tenant ? "b" : "a")); }

static lar_engine *open_engine(lar_engine_options o) {
    char path[BOX_PATH_BYTES];
    lar_engine *e;
    lar_diag d = {0};
    o.path = box_path(&test_box, "model", path);
    o.kv = formats;
    o.threads = 1;
    if (lar_engine_open(&o, &e, &d)) fail_msg("%s", d.text);
    return e;
}

static void open_warm(world *w) {
    uint64_t page = lar_engine_info_of(w->cold).page_bytes;
    w->warm = open_engine((lar_engine_options){.page_bytes = POOL_PAGES * page,
                                               .page_store = &w->store.store,
                                               .now_ms = now_of,
                                               .context = w,
                                               .tokens_max = 48});
    assert_int_equal(lar_engine_pages(w->warm).pages, POOL_PAGES);
}

static world *world_of(uint64_t seed) {
    world *w = calloc(1, sizeof *w);
    w->dice = seed;
    memory_store_init(&w->store, 64);
    w->cold = open_engine((lar_engine_options){.attention = LAR_ATTENTION_ABSORBED});
    open_warm(w);
    return w;
}

static void end(talk *t) {
    lar_sequence_free(t->sequence);
    t->sequence = NULL;
}

static void close_warm(world *w) {
    for (int i = 0; i < SEQUENCES; i++) end(&w->talks[i]);
    lar_page_counts pages = lar_engine_pages(w->warm);
    lar_prefix_counts n = lar_engine_prefixes(w->warm);
    assert_int_equal(pages.held, n.pages); /* no page is lost */
    assert_int_equal(pages.held, n.idle + n.pinned);
    w->before.evicted += n.evicted, w->before.reloaded += n.reloaded, w->before.spilled += n.spilled;
    lar_engine_close(w->warm);
}

static void world_end(world *w) {
    close_warm(w);
    lar_engine_close(w->cold);
    memory_store_release(&w->store);
    free(w);
}

/* -- logits ------------------------------------------------------------------------------------------------------ */

/* Of the last of the tokens, by a new sequence of an engine that keeps nothing, in one step. */
static void cold_logits(const world *w, const talk *t, float logits[VOCAB]) {
    lar_sequence *s;
    lar_diag d = {0};
    const uint32_t last = t->length - 1;
    assert_int_equal(lar_sequence_new(w->cold, t->length, &s, &d), LAR_OK);
    assert_int_equal(lar_engine_step(w->cold, &(lar_engine_part){s, t->ids, t->length, &last, 1}, 1, logits, &d),
                     LAR_OK);
    lar_sequence_free(s);
}

/* Tokens that the talk has and its sequence has not, all in one step with those of others; compared. False: there are
 * not enough pages, and nothing has changed. */
static bool compute(world *w, talk *const *talks, uint32_t count) {
    lar_engine_part parts[TOGETHER];
    uint32_t last[TOGETHER];
    float logits[TOGETHER * VOCAB], cold[VOCAB];
    lar_diag d = {0};
    for (uint32_t i = 0; i < count; i++) {
        uint32_t from = lar_sequence_length(talks[i]->sequence), n = talks[i]->length - from;
        last[i] = n - 1;
        parts[i] = (lar_engine_part){talks[i]->sequence, talks[i]->ids + from, n, &last[i], 1};
        w->computed += n;
    }
    lar_error e = lar_engine_step(w->warm, parts, count, logits, &d);
    if (e == LAR_FULL) return w->full++, false;
    if (e) fail_msg("%s", d.text);
    for (uint32_t i = 0; i < count; i++) {
        cold_logits(w, talks[i], cold);
        if (memcmp(cold, logits + (size_t)i * VOCAB, sizeof cold) != 0)
            fail_msg("%u tokens, %u of them new: not the logits of a cold run", talks[i]->length, parts[i].count);
        if (throw(w, 4)) lar_sequence_keep(talks[i]->sequence, talks[i]->ids, talks[i]->length);
    }
    return true;
}

/* -- operations -------------------------------------------------------------------------------------------------- */

/* Few different pages, so that prefixes meet again. */
static void say(world *w, talk *t, uint32_t count) {
    uint32_t letter = throw(w, 2);
    for (; count && t->length < TOKENS_MAX; count--) {
        t->ids[t->length] = (letter * 31 + t->length * 7) % VOCAB;
        if (++t->length % LAR_PAGE_TOKENS == 0) letter = throw(w, 2);
    }
}

/* At the begin, and later, where it does something only behind kept pages. */
static void adopt(world *w, talk *t) {
    lar_digest scope = scope_of(t->tenant);
    lar_diag d = {0};
    uint32_t before = lar_sequence_length(t->sequence);
    lar_error e = throw(w, 2) ? lar_sequence_reserve(t->sequence, t->length - before, &d) : LAR_OK;
    assert_true(e == LAR_OK || e == LAR_FULL);
    uint32_t after = lar_sequence_adopt(t->sequence, &scope, t->ids, t->length);
    assert_true(after == before || (after < t->length && after % LAR_PAGE_TOKENS == 0));
    assert_int_equal(lar_sequence_length(t->sequence), after);
    w->adopted += after - before;
    w->adopted_later += before ? after - before : 0;
}

static void begin(world *w, talk *t) {
    lar_diag d = {0};
    t->tenant = throw(w, 2);
    t->length = 0;
    say(w, t, 1 + throw(w, TOKENS_MAX));
    assert_int_equal(lar_sequence_new(w->warm, TOKENS_MAX, &t->sequence, &d), LAR_OK);
    adopt(w, t);
}

/* One, or several together in one step. */
static void go_on(world *w) {
    talk *talks[TOGETHER];
    uint32_t count = 0, most = 1 + throw(w, TOGETHER), first = throw(w, SEQUENCES);
    for (uint32_t i = 0; i < SEQUENCES && count < most; i++) {
        talk *t = &w->talks[(first + i) % SEQUENCES];
        if (!t->sequence) begin(w, t);
        else say(w, t, throw(w, 3) ? 1 + throw(w, 90) : 1);
        if (throw(w, 2)) adopt(w, t);
        if (t->length > lar_sequence_length(t->sequence)) talks[count++] = t;
    }
    if (!count || compute(w, talks, count)) return;
    for (uint32_t i = 0; i < count; i++) talks[i]->length = lar_sequence_length(talks[i]->sequence);
    end(&w->talks[throw(w, SEQUENCES)]);
}

static void cut(world *w, talk *t) {
    if (!t->sequence) return;
    t->length = throw(w, lar_sequence_length(t->sequence) + 1);
    lar_sequence_cut(t->sequence, t->length);
}

static void fork(world *w, talk *from) {
    talk *to = &w->talks[throw(w, SEQUENCES)];
    lar_diag d = {0};
    if (!from->sequence || to == from) return;
    end(to);
    *to = *from;
    lar_error e = lar_sequence_fork(from->sequence, &to->sequence, &d);
    assert_true(e == LAR_OK || e == LAR_FULL);
}

static void pin(world *w, const talk *t) {
    lar_digest scope = scope_of(t->tenant);
    uint32_t pinned = lar_engine_pin(w->warm, &scope, t->ids, t->length, w->now + throw(w, 50));
    assert_true(pinned <= POOL_PAGES / 2);
}

static void restart(world *w) {
    close_warm(w);
    if (throw(w, 8) == 0) memory_store_clear(&w->store);
    open_warm(w);
}

static void operate(world *w) {
    talk *t = &w->talks[throw(w, SEQUENCES)];
    uint32_t what = throw(w, 100);
    if (what < 50) go_on(w);
    else if (what < 60) fork(w, t);
    else if (what < 75) cut(w, t);
    else if (what < 80) pin(w, t);
    else if (what < 82) w->store.fault = (memory_fault) throw(w, STORE_FAULTS);
    else if (what < 84) w->store.fault = STORE_WORKS;
    else if (what < 90) w->now += throw(w, 20);
    else if (what == 99 && throw(w, 4) == 0) restart(w);
    else end(t);
    lar_page_counts p = lar_engine_pages(w->warm);
    lar_prefix_counts n = lar_engine_prefixes(w->warm);
    assert_true(p.held <= POOL_PAGES && n.pages <= p.held && n.idle <= n.pages && n.pinned <= POOL_PAGES / 2);
}

/* E-17, E-23, E-24: warm or cold, alone or in company, and behind whoever was cut off. */
static void random_operations_give_the_logits_of_cold_runs(void **state) {
    (void)state;
    world *w = world_of(7);
    for (int i = 0; i < OPERATIONS; i++) operate(w);
    lar_prefix_counts n = lar_engine_prefixes(w->warm);
    uint64_t evicted = w->before.evicted + n.evicted, reloaded = w->before.reloaded + n.reloaded;
    print_message(
        "%llu tokens adopted, %llu of them later, %llu computed; %llu pages let go, %llu read back; %llu steps found no pages\n",
        (unsigned long long)w->adopted, (unsigned long long)w->adopted_later, (unsigned long long)w->computed,
        (unsigned long long)evicted, (unsigned long long)reloaded, (unsigned long long)w->full);
    assert_true(w->adopted > 10000 && w->adopted_later > 100 && evicted > 300 && reloaded > 100 && w->full > 10);
    world_end(w);
}

/* -- by name ----------------------------------------------------------------------------------------------------- */

static uint32_t adopted(world *w, uint32_t tenant, const talk *t, uint32_t capacity) {
    lar_digest scope = scope_of(tenant);
    lar_sequence *s;
    lar_diag d = {0};
    assert_int_equal(lar_sequence_new(w->warm, capacity, &s, &d), LAR_OK);
    assert_int_equal(lar_sequence_reserve(s, 1, &d), LAR_OK); /* is given back */
    uint32_t n = lar_sequence_adopt(s, &scope, t->ids, t->length);
    lar_sequence_free(s);
    return n;
}

/* One talk of `length` tokens of tenant 0, computed and kept. */
static talk *talk_of(world *w, uint32_t length) {
    talk *t = &w->talks[0];
    lar_digest scope = scope_of(t->tenant = 0);
    lar_diag d = {0};
    say(w, t, length);
    assert_int_equal(lar_sequence_new(w->warm, TOKENS_MAX, &t->sequence, &d), LAR_OK);
    assert_int_equal(lar_sequence_adopt(t->sequence, &scope, t->ids, 0), 0);
    assert_int_equal(lar_engine_step(w->warm, &(lar_engine_part){t->sequence, t->ids, length, NULL, 0}, 1, NULL, &d),
                     LAR_OK);
    lar_sequence_keep(t->sequence, t->ids, length);
    return t;
}

static void something_is_left_to_compute(void **state) {
    (void)state;
    world *w = world_of(1);
    talk *t = talk_of(w, 3 * LAR_PAGE_TOKENS);
    assert_int_equal(adopted(w, 0, t, TOKENS_MAX), 2 * LAR_PAGE_TOKENS); /* not the last token */
    t->length++;
    assert_int_equal(adopted(w, 0, t, TOKENS_MAX), 3 * LAR_PAGE_TOKENS);
    assert_int_equal(adopted(w, 0, t, 3 * LAR_PAGE_TOKENS - 1), 2 * LAR_PAGE_TOKENS);
    assert_int_equal(adopted(w, 1, t, TOKENS_MAX), 0);
    t->ids[LAR_PAGE_TOKENS] ^= 1;
    assert_int_equal(adopted(w, 0, t, TOKENS_MAX), LAR_PAGE_TOKENS);
    world_end(w);
}

/* Of a cut sequence that goes on otherwise both ways are kept, and each is what it says. */
static void both_ways_from_a_cut_are_kept(void **state) {
    (void)state;
    world *w = world_of(2);
    talk *t = talk_of(w, 3 * LAR_PAGE_TOKENS + 1), old = *t;
    lar_sequence_cut(t->sequence, t->length = LAR_PAGE_TOKENS + 10);
    for (; t->length < 3 * LAR_PAGE_TOKENS + 1; t->length++) t->ids[t->length] = (old.ids[t->length] + 1) % VOCAB;
    assert_true(compute(w, &t, 1));
    lar_sequence_keep(t->sequence, t->ids, t->length);
    assert_int_equal(lar_engine_prefixes(w->warm).pages, 5);
    for (int i = 0; i < 2; i++) {
        talk *again = &w->talks[1 + i];
        lar_digest scope = scope_of(0);
        lar_diag d = {0};
        *again = i ? *t : old;
        assert_int_equal(lar_sequence_new(w->warm, TOKENS_MAX, &again->sequence, &d), LAR_OK);
        assert_int_equal(lar_sequence_adopt(again->sequence, &scope, again->ids, again->length), 3 * LAR_PAGE_TOKENS);
        assert_true(compute(w, &again, 1));
    }
    world_end(w);
}

/* Two who compute the same at the same time hold one page each in the end, and a fork keeps as its origin does. */
static void equal_pages_become_one(void **state) {
    (void)state;
    world *w = world_of(3);
    talk *a = talk_of(w, LAR_PAGE_TOKENS + 5), *b = &w->talks[1], *c = &w->talks[2];
    lar_digest scope = scope_of(0);
    lar_diag d = {0};
    uint32_t held = lar_engine_pages(w->warm).held;
    *b = *a;
    b->length = LAR_PAGE_TOKENS;
    assert_int_equal(lar_sequence_new(w->warm, TOKENS_MAX, &b->sequence, &d), LAR_OK);
    assert_int_equal(lar_sequence_adopt(b->sequence, &scope, b->ids, 0), 0);
    const lar_engine_part part = {b->sequence, b->ids, b->length, NULL, 0};
    assert_int_equal(lar_engine_step(w->warm, &part, 1, NULL, &d), LAR_OK);
    assert_int_equal(lar_engine_pages(w->warm).held, held + 1);
    lar_sequence_keep(b->sequence, b->ids, b->length);
    assert_int_equal(lar_engine_pages(w->warm).held, held);
    *c = *a;
    assert_int_equal(lar_sequence_fork(a->sequence, &c->sequence, &d), LAR_OK);
    say(w, c, LAR_PAGE_TOKENS);
    assert_true(compute(w, &c, 1));
    lar_sequence_keep(c->sequence, c->ids, c->length);
    assert_int_equal(lar_engine_prefixes(w->warm).pages, 2);
    assert_int_equal(adopted(w, 0, c, TOKENS_MAX), 2 * LAR_PAGE_TOKENS);
    world_end(w);
}

/* Who waits while another computes the same prompt takes it over, and has room for the rest as before. */
static void a_prompt_that_others_compute_is_taken_over_later(void **state) {
    (void)state;
    world *w = world_of(5);
    talk *a = talk_of(w, 1), *b = &w->talks[1];
    lar_diag d = {0};
    say(w, a, 4 * LAR_PAGE_TOKENS);
    *b = *a;
    assert_int_equal(lar_sequence_new(w->warm, TOKENS_MAX, &b->sequence, &d), LAR_OK);
    adopt(w, b);
    assert_int_equal(w->adopted, 0);
    assert_true(compute(w, &a, 1));
    lar_sequence_keep(a->sequence, a->ids, a->length);
    assert_int_equal(lar_sequence_reserve(b->sequence, b->length, &d), LAR_OK);
    assert_int_equal(lar_engine_pages(w->warm).held, 10);
    adopt(w, b);
    assert_int_equal(w->adopted, 4 * LAR_PAGE_TOKENS);
    assert_int_equal(lar_engine_pages(w->warm).held, 5);
    assert_true(compute(w, &b, 1));
    assert_int_equal(lar_engine_prefixes(w->warm).misses, 4);
    assert_int_equal(lar_engine_prefixes(w->warm).hits, 4);
    world_end(w);
}

/* Every latent's first value, a little larger than it is, where `nudge` is not 0. */
static float nudge;

void __real_lar_latent_cache_put(lar_latent_cache *k, uint32_t layer, uint32_t position, const float *row);
void __wrap_lar_latent_cache_put(lar_latent_cache *k, uint32_t layer, uint32_t position, const float *row);

void __wrap_lar_latent_cache_put(lar_latent_cache *k, uint32_t layer, uint32_t position, const float *row) {
    float nudged[64];
    assert_true(shape.kv_rank + shape.rope <= sizeof nudged / sizeof *nudged);
    memcpy(nudged, row, (shape.kv_rank + shape.rope) * sizeof *nudged);
    nudged[0] += nudge;
    __real_lar_latent_cache_put(k, layer, position, nudged);
}

/* Pages of a program that computes otherwise, by however little, are not found. */
static void another_arithmetic_finds_nothing(void **state) {
    (void)state;
    world *w = world_of(6);
    const talk old = *talk_of(w, 2 * LAR_PAGE_TOKENS + 1);
    close_warm(w);
    nudge = 0x1p-10f;
    open_warm(w);
    nudge = 0;
    assert_int_equal(adopted(w, 0, &old, TOKENS_MAX), 0);
    close_warm(w);
    open_warm(w);
    assert_int_equal(adopted(w, 0, &old, TOKENS_MAX), 2 * LAR_PAGE_TOKENS);
    world_end(w);
}

/* Without pages there is nothing to keep, and a page store has nothing to store. */
static void without_pages_nothing_is_kept(void **state) {
    (void)state;
    world *w = world_of(4);
    talk t = {.length = 0};
    lar_digest scope = scope_of(0);
    lar_diag d = {0};
    lar_engine *e = NULL;
    lar_sequence *s;
    char path[BOX_PATH_BYTES];
    say(w, &t, 2 * LAR_PAGE_TOKENS);
    assert_int_equal(lar_sequence_new(w->cold, TOKENS_MAX, &s, &d), LAR_OK);
    assert_int_equal(lar_sequence_adopt(s, &scope, t.ids, t.length), 0);
    lar_sequence_keep(s, t.ids, 0);
    assert_int_equal(lar_engine_pin(w->cold, &scope, t.ids, t.length, 1), 0);
    assert_int_equal(lar_engine_prefixes(w->cold).pages + lar_engine_pages(w->cold).pages, 0);
    lar_sequence_free(s);
    lar_engine_options o = {.path = box_path(&test_box, "model", path), .page_store = &w->store.store};
    assert_int_equal(lar_engine_open(&o, &e, &d), LAR_INVALID);
    assert_null(e);
    assert_non_null(strstr(d.text, "page_bytes"));
    world_end(w);
}

static int prepare(void **state) {
    char path[BOX_PATH_BYTES];
    if (box_setup(state)) return 1;
    box_folder(&test_box, "model");
    model_write(&shape, LAR_MODEL_FOLDER, box_path(&test_box, "model", path));
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations_give_the_logits_of_cold_runs),
        cmocka_unit_test(something_is_left_to_compute),
        cmocka_unit_test(both_ways_from_a_cut_are_kept),
        cmocka_unit_test(equal_pages_become_one),
        cmocka_unit_test(a_prompt_that_others_compute_is_taken_over_later),
        cmocka_unit_test(another_arithmetic_finds_nothing),
        cmocka_unit_test(without_pages_nothing_is_kept),
    };
    return cmocka_run_group_tests(tests, prepare, box_teardown);
}
