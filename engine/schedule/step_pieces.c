/* Cuts prompts into pieces for one step: the largest sum of tokens that the budget allows, found by halving, dealt out.
 * Called by the scheduler's thread, once a step. Pure.
 * Invariants: the oldest gets at least one token; the sum stays within the pass and twice what was ever measured. */
#include "engine/schedule/step_pieces.h"

#include "base/ensure.h"

static uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* By how many tokens it is next in turn. */
static uint32_t rank(const lar_piece *p) { return p->awaited ? smaller(p->awaited, p->left) : p->left; }

/* The one that has got nothing and has the fewest left, or count. */
static uint32_t fewest(const lar_piece *p, uint32_t count) {
    uint32_t best = count;
    for (uint32_t i = 1; i < count; i++)
        if (!p[i].count && (best == count || rank(&p[i]) < rank(&p[best]))) best = i;
    return best;
}

static void deal(lar_piece *p, uint32_t count, uint32_t tokens) {
    for (uint32_t i = 1; i < count; i++) p[i].count = 0;
    p[0].count = smaller(p[0].left, tokens - tokens / 2);
    tokens -= p[0].count;
    for (uint32_t i = fewest(p, count); tokens && i < count; i = fewest(p, count)) {
        p[i].count = smaller(p[i].left, tokens);
        tokens -= p[i].count;
    }
    p[0].count += smaller(p[0].left - p[0].count, tokens);
}

static lar_pass_load load_with(lar_pass_load load, const lar_piece *p, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        load.tokens += p[i].count;
        load.positions += (uint64_t)p[i].count * p[i].position + (uint64_t)p[i].count * (p[i].count - 1u) / 2;
    }
    return load;
}

void lar_step_pieces_cut(const lar_pass_time *t, const lar_step_room *room, lar_piece *pieces, uint32_t count) {
    if (!count) return;
    uint64_t left = 0;
    for (uint32_t i = 0; i < count; i++) {
        LAR_ASSERT(pieces[i].left > 0);
        left += pieces[i].left;
    }
    uint32_t most = smaller(room->tokens_max, lar_pass_time_trusted(t)), fits = 1;
    most = most > room->decoding.tokens ? most - room->decoding.tokens : 1;
    if (most > left) most = (uint32_t)left;
    double before = lar_pass_time_of(t, room->decoding);
    while (fits < most) {
        uint32_t middle = fits + (most - fits + 1) / 2;
        deal(pieces, count, middle);
        double added = lar_pass_time_of(t, load_with(room->decoding, pieces, count)) - before;
        if (added <= (double)room->budget_us) fits = middle;
        else most = middle - 1;
    }
    deal(pieces, count, fits);
}
