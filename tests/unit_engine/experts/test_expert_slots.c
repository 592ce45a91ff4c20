/* Who stays in memory: the bookkeeping against a plain model, and what the policies promise. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka needs the three above first */
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/experts/expert_slots.h"

enum { LAYERS = 5, EXPERTS = 12, USED = 3, SLOTS = 23, KEYS = LAYERS * EXPERTS, HISTORY = 4096 };

static uint32_t next(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

/* All visits so far: who was used when. Shares are summed anew from them each time. */
typedef struct plain {
    lar_expert_policy policy;
    uint32_t layer_at[HISTORY];
    bool uses[HISTORY][EXPERTS];
    uint32_t visits;
    uint32_t slot_of[KEYS];
    bool held[SLOTS];
} plain;

static double plain_distance(const plain *p, uint32_t key) {
    uint32_t layer = key / EXPERTS, last = 0;
    float share = (float)USED / EXPERTS;
    for (uint32_t v = 0; v < p->visits; v++) {
        if (p->layer_at[v] != layer) continue;
        if (p->uses[v][key % EXPERTS]) last = v + 1;
        share += LAR_EXPERT_SHARE_STEP * ((p->uses[v][key % EXPERTS] ? 1.0f : 0.0f) - share);
    }
    if (p->policy == LAR_EXPERTS_BY_AGE) return p->visits - last;
    uint32_t ahead = 1, now = p->visits ? p->layer_at[p->visits - 1] : 0;
    while ((now + ahead) % LAYERS != layer) ahead++;
    return ahead + LAYERS * (1.0 - (double)share) / (double)share;
}

static uint32_t plain_expert_in(const plain *p, uint32_t slot) {
    for (uint32_t k = 0; k < KEYS; k++)
        if (p->slot_of[k] == slot) return k;
    return LAR_EXPERT_NONE;
}

/* The first empty slot of the pool, else that of the farthest. */
static uint32_t plain_take(plain *p, const lar_expert_pool *pool, uint32_t key) {
    uint32_t best = LAR_EXPERT_NONE;
    double farthest = -1;
    for (uint32_t s = pool->first; s < pool->first + pool->count; s++) {
        uint32_t in = plain_expert_in(p, s);
        double distance = in == LAR_EXPERT_NONE ? INFINITY : plain_distance(p, in);
        if (!p->held[s] && distance > farthest) farthest = distance, best = s;
    }
    if (best == LAR_EXPERT_NONE) return best;
    uint32_t gone = plain_expert_in(p, best);
    if (gone != LAR_EXPERT_NONE) p->slot_of[gone] = LAR_EXPERT_NONE;
    p->slot_of[key] = best;
    return best;
}

static lar_expert_slots slots_of(lar_expert_policy policy, uint32_t layers, uint32_t experts, uint32_t slots) {
    lar_expert_slots s;
    lar_diag d = {0};
    lar_expert_slots_options o = {policy, layers, experts, experts < USED ? experts : USED, slots};
    assert_int_equal(lar_expert_slots_init(&s, &o, &d), LAR_OK);
    return s;
}

static void visit_both(lar_expert_slots *s, plain *p, uint32_t layer, uint64_t *seed) {
    uint32_t starts[EXPERTS + 1] = {0};
    for (uint32_t e = 0; e < EXPERTS; e++) {
        p->uses[p->visits][e] = next(seed) % EXPERTS < (next(seed) % 3 ? USED : EXPERTS);
        starts[e + 1] = starts[e] + (p->uses[p->visits][e] ? 1 + next(seed) % 3 : 0);
    }
    p->layer_at[p->visits++] = layer;
    lar_expert_slots_visit(s, layer, starts);
}

static void compare(const lar_expert_slots *s, const plain *p) {
    assert_memory_equal(s->slot_of, p->slot_of, sizeof p->slot_of);
    for (uint32_t i = 0; i < SLOTS; i++) assert_int_equal(s->expert_in[i], plain_expert_in(p, i));
}

/* Layers out of order too, two pools, slots held and let go at random, drops. */
static void it_does_what_the_plain_model_does(void **state) {
    (void)state;
    const lar_expert_pool pools[] = {{0, 9}, {9, 14}};
    for (int policy = 0; policy < 2; policy++) {
        plain *p = calloc(1, sizeof *p);
        lar_expert_slots s = slots_of((lar_expert_policy)policy, LAYERS, EXPERTS, SLOTS);
        uint64_t seed = 77 + (uint64_t)policy;
        p->policy = (lar_expert_policy)policy;
        memset(p->slot_of, 0xff, sizeof p->slot_of);
        for (uint32_t turn = 0; turn < 3000; turn++) {
            uint32_t what = next(&seed) % 8, key = next(&seed) % KEYS, slot = next(&seed) % SLOTS;
            if (what == 0 && p->visits < HISTORY)
                visit_both(&s, p, next(&seed) % 4 ? (s.layer + 1) % LAYERS : next(&seed) % LAYERS, &seed);
            else if (what == 1) p->held[slot] = !p->held[slot], s.held[slot] = p->held[slot];
            else if (what == 2 && !p->held[slot]) {
                uint32_t in = plain_expert_in(p, slot);
                if (in != LAR_EXPERT_NONE) p->slot_of[in] = LAR_EXPERT_NONE;
                lar_expert_slots_drop(&s, slot);
            } else if (what > 2 && p->slot_of[key] == LAR_EXPERT_NONE) {
                const lar_expert_pool *pool = &pools[key / EXPERTS % 2];
                assert_int_equal(lar_expert_slots_take(&s, pool, key), plain_take(p, pool, key));
            }
            compare(&s, p);
        }
        assert_true(p->visits > 200);
        lar_expert_slots_release(&s);
        free(p);
    }
}

/* -- traces ------------------------------------------------------------------------------------------------------ */

/* Visits a layer with the experts of `uses`; returns how many were in memory. */
static uint32_t replay(lar_expert_slots *s, uint32_t layer, const bool *uses) {
    uint32_t *starts = calloc(s->experts + 1, sizeof *starts), hits = 0;
    const lar_expert_pool all = {0, s->count};
    for (uint32_t e = 0; e < s->experts; e++) starts[e + 1] = starts[e] + uses[e];
    lar_expert_slots_visit(s, layer, starts);
    for (uint32_t e = 0; e < s->experts; e++)
        if (uses[e]) hits += s->slot_of[layer * s->experts + e] != LAR_EXPERT_NONE;
    for (uint32_t e = 0; e < s->experts; e++)
        if (uses[e] && s->slot_of[layer * s->experts + e] == LAR_EXPERT_NONE)
            (void)lar_expert_slots_take(s, &all, layer * s->experts + e);
    free(starts);
    return hits;
}

/* A long prompt uses every expert of every layer, pass after pass: LRU keeps none of them until it comes again, an
 * estimate of the next use as many as there are slots. */
static void a_long_prompt_does_not_empty_the_cache(void **state) {
    (void)state;
    bool all[EXPERTS];
    memset(all, 1, sizeof all);
    uint32_t hits[2] = {0};
    for (int policy = 0; policy < 2; policy++) {
        lar_expert_slots s = slots_of((lar_expert_policy)policy, LAYERS, EXPERTS, KEYS / 2);
        for (uint32_t pass = 0; pass < 100; pass++)
            for (uint32_t l = 0; l < LAYERS; l++) hits[policy] += replay(&s, l, all);
        lar_expert_slots_release(&s);
    }
    assert_int_equal(hits[LAR_EXPERTS_BY_AGE], 0);
    assert_true(hits[LAR_EXPERTS_BY_SHARE] > 100 * KEYS * 4 / 10);
}

/* Favourites stay, whatever comes by; and after they have changed, the new ones do. */
static void favourites_stay_and_change(void **state) {
    (void)state;
    uint64_t seed = 5;
    lar_expert_slots s = slots_of(LAR_EXPERTS_BY_SHARE, LAYERS, EXPERTS, LAYERS * 4);
    for (uint32_t half = 0; half < 2; half++) {
        uint32_t hits = 0, asked = 0;
        for (uint32_t pass = 0; pass < 600; pass++)
            for (uint32_t l = 0; l < LAYERS; l++) {
                bool uses[EXPERTS] = {false};
                for (uint32_t k = 0; k < 3; k++)
                    uses[half * 6 + k] = true; /* three favourites, and one of all others */
                uses[next(&seed) % EXPERTS] = true;
                uint32_t n = replay(&s, l, uses);
                for (uint32_t e = 0; pass >= 300 && e < EXPERTS; e++) asked += uses[e];
                if (pass >= 300) hits += n;
            }
        assert_true(hits > asked * 3 / 4);
    }
    lar_expert_slots_release(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_does_what_the_plain_model_does),
        cmocka_unit_test(a_long_prompt_does_not_empty_the_cache),
        cmocka_unit_test(favourites_stay_and_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
