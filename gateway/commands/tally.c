/* Sums, hit rates, percentiles and money over journal records.
 * Flow: stats.c scans and adds. One thread; pure; heap memory bounded by the numbers of groups and samples.
 * Invariants: 1. unknown token counts are counted as unknown, never added as 0. 2. However many names clients
 * make up, there are at most LAR_GROUPS_MAX groups. 3. Sums saturate. Not here: prices (policies/prices.c). */
#include "gateway/commands/tally.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum { SAMPLES_MAX = 1 << 18, SLOTS = 4 * LAR_GROUPS_MAX };

/* -- samples ------------------------------------------------------------------------------------------ */

static void halve(lar_samples *s) {
    for (uint32_t i = 0; i < s->count / 2; i++) s->values[i] = s->values[2 * i];
    s->count /= 2;
    s->stride *= 2;
}

void lar_samples_add(lar_samples *s, int64_t us) {
    if (!s->stride) s->stride = 1;
    if (s->offered++ % s->stride) return;
    if (s->count == SAMPLES_MAX) halve(s);
    if (s->count == s->cap) {
        uint32_t cap = s->cap ? s->cap * 2 : 64;
        uint32_t *values = realloc(s->values, cap * sizeof *values);
        if (!values) return;
        s->values = values;
        s->cap = cap;
    }
    s->values[s->count++] = us < 0 ? 0 : us > UINT32_MAX ? UINT32_MAX : (uint32_t)us;
    s->sorted = false;
}

static int by_value(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

int64_t lar_samples_at(lar_samples *s, double part) {
    if (!s->count) return -1;
    if (!s->sorted) qsort(s->values, s->count, sizeof *s->values, by_value);
    s->sorted = true;
    double rank = part * (double)s->count;
    uint32_t at = (uint32_t)rank;
    if ((double)at < rank) at++;
    return s->values[at ? at - 1 : 0];
}

/* -- one tally ------------------------------------------------------------------------------------------- */

static void add(uint64_t *sum, int64_t n) {
    if (n <= 0) return;
    *sum = *sum > UINT64_MAX - (uint64_t)n ? UINT64_MAX : *sum + (uint64_t)n;
}

static uint64_t count_of(int64_t n) { return n > 0 ? (uint64_t)n : 0; }

bool lar_tally_has_prompt(const lar_journal_record *r) {
    if (r->flags & LAR_JREC_ANSWER_KEPT) return false;
    if (r->tokens.prompt != LAR_TOKENS_UNKNOWN || r->tokens.hit != LAR_TOKENS_UNKNOWN) return true;
    return r->ending != LAR_END_REFUSED && r->model[0];
}

uint64_t lar_tally_unknown(const lar_tally *t) { return t->requests - t->known - t->promptless; }

static void add_kept(lar_tally *t, const lar_journal_record *r) {
    t->kept++;
    add(&t->kept_prompt, r->raw.prompt);
    if (r->spelling == LAR_SPELLING_ANTHROPIC) { /* the cached part stands beside the prompt */
        add(&t->kept_prompt, r->raw.hit);
        add(&t->kept_prompt, r->raw.write);
    }
    add(&t->kept_output, r->raw.output);
}

void lar_tally_add(lar_tally *t, const lar_journal_record *r, const lar_price *price) {
    const int64_t unknown = LAR_TOKENS_UNKNOWN;
    const lar_tokens *n = &r->tokens;
    t->requests++;
    t->promptless += !lar_tally_has_prompt(r);
    if (r->flags & LAR_JREC_ANSWER_KEPT) add_kept(t, r);
    t->partial += (r->flags & LAR_JREC_USAGE_PARTIAL) != 0;
    t->odd += (r->flags & LAR_JREC_USAGE_ODD) != 0;
    t->edited += r->edits > 0;
    if (r->ttft_us != unknown) lar_samples_add(&t->ttft, r->ttft_us);
    if (n->hit == unknown || n->miss == unknown) return;
    t->known++;
    add(&t->prompt, n->prompt == unknown ? n->hit : n->prompt);
    if (n->prompt == unknown) add(&t->prompt, n->miss);
    add(&t->hit, n->hit);
    add(&t->miss, n->miss);
    add(&t->write, n->write);
    add(&t->output, n->output);
    if (!price || n->prompt == unknown || n->output == unknown) return;
    t->priced++;
    t->cost += lar_price_cost(price, count_of(n->prompt), count_of(n->hit), count_of(n->write), count_of(n->output));
    t->saved += lar_price_saved(price, count_of(n->hit) < count_of(n->prompt) ? count_of(n->hit) : count_of(n->prompt));
}

void lar_tally_release(lar_tally *t) { free(t->ttft.values); }

double lar_tally_rate(const lar_tally *t) {
    double sum = (double)t->hit + (double)t->miss;
    return sum > 0 ? (double)t->hit / sum : -1;
}

/* -- groups ------------------------------------------------------------------------------------------------ */

struct lar_groups {
    lar_tally *tallies;
    uint32_t count, cap;
    uint16_t slots[SLOTS]; /* index + 1; 0 = free */
    lar_tally others;
};

lar_groups *lar_groups_new(void) {
    lar_groups *g = calloc(1, sizeof *g);
    if (g) (void)memcpy(g->others.name, "(others)", sizeof "(others)");
    return g;
}

static bool grow(lar_groups *g) {
    uint32_t cap = g->cap ? g->cap * 2 : 16;
    lar_tally *t = cap > LAR_GROUPS_MAX ? NULL : realloc(g->tallies, cap * sizeof *t);
    if (!t) return false;
    g->tallies = t;
    g->cap = cap;
    return true;
}

lar_tally *lar_groups_get(lar_groups *g, const char *name) {
    lar_slice key = lar_slice_of(name, strnlen(name, sizeof g->others.name - 1));
    uint64_t at = lar_hash_low(lar_hash_of(key)) % SLOTS;
    for (; g->slots[at]; at = (at + 1) % SLOTS) {
        lar_tally *t = &g->tallies[g->slots[at] - 1];
        if (lar_slice_eq(key, lar_slice_cstr(t->name))) return t;
    }
    if (g->count == g->cap && !grow(g)) return &g->others;
    lar_tally *t = &g->tallies[g->count++];
    *t = (lar_tally){0};
    memcpy(t->name, key.ptr, key.len);
    g->slots[at] = (uint16_t)g->count;
    return t;
}

static int by_requests(const void *a, const void *b) {
    const lar_tally *x = a, *y = b;
    if (x->requests != y->requests) return x->requests < y->requests ? 1 : -1;
    return strcmp(x->name, y->name);
}

lar_tally *lar_groups_sorted(lar_groups *g, uint32_t *count) {
    if (g->count) qsort(g->tallies, g->count, sizeof *g->tallies, by_requests);
    /* The rest goes last, however large it is. */
    if (g->others.requests) {
        lar_tally *t = realloc(g->tallies, (g->count + 1) * sizeof *t);
        if (t) {
            g->tallies = t;
            t[g->count++] = g->others;
            g->others = (lar_tally){0};
        }
    }
    *count = g->count;
    return g->tallies;
}

void lar_groups_free(lar_groups *g) {
    if (!g) return;
    for (uint32_t i = 0; i < g->count; i++) lar_tally_release(&g->tallies[i]);
    lar_tally_release(&g->others);
    free(g->tallies);
    free(g);
}
