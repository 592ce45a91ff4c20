/* Optimal string alignment distance with a cut-off, for suggestions in messages.
 * Called by the configuration loader and the command line, on errors only; any thread; never blocks; no memory.
 * A swap of two letters counts as one edit, since that is what typing errors are.
 * Invariant: best.ptr is NULL or distance is at most a third of the wanted name (and at least 2 are allowed). */
#include "gateway/config/nearest.h"

#include "policies/canon.h"

enum { NAME_BYTES_MAX = 64 };

static char plain(char c) {
    if (c >= 'A' && c <= 'Z') return (char)(c + 32);
    return c == '.' || c == '-' ? '_' : c;
}

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

static uint32_t distance(lar_slice a, lar_slice b) {
    uint32_t rows[3][NAME_BYTES_MAX + 1];
    uint32_t *before = rows[0], *last = rows[1], *now = rows[2];
    for (uint32_t j = 0; j <= b.len; j++) last[j] = j;
    for (uint32_t i = 1; i <= a.len; i++) {
        now[0] = i;
        for (uint32_t j = 1; j <= b.len; j++) {
            uint32_t cost = plain(a.ptr[i - 1]) == plain(b.ptr[j - 1]) ? 0 : 1;
            now[j] = least(least(last[j] + 1, now[j - 1] + 1), last[j - 1] + cost);
            if (i > 1 && j > 1 && plain(a.ptr[i - 1]) == plain(b.ptr[j - 2]) &&
                plain(a.ptr[i - 2]) == plain(b.ptr[j - 1]))
                now[j] = least(now[j], before[j - 2] + 1);
        }
        uint32_t *free_row = before;
        before = last;
        last = now;
        now = free_row;
    }
    return last[b.len];
}

void lar_nearest_init(lar_nearest *n, lar_slice wanted) {
    uint32_t allowed = (uint32_t)(wanted.len / 3);
    *n = (lar_nearest){.wanted = wanted, .distance = (allowed < 2 ? 2 : allowed) + 1};
}

void lar_nearest_offer(lar_nearest *n, lar_slice name) {
    if (n->wanted.len == 0 || name.len == 0 || n->wanted.len > NAME_BYTES_MAX || name.len > NAME_BYTES_MAX) return;
    uint32_t d = distance(n->wanted, name);
    /* A name of which every letter differs is no suggestion, however short both are. */
    if (d >= n->distance || d >= n->wanted.len) return;
    n->distance = d;
    n->best = name;
}

void lar_nearest_offer_rules(lar_nearest *n) {
    for (int i = 0; i < LAR_RULE_COUNT; i++) {
        lar_nearest_offer(n, lar_slice_cstr(lar_rule_id((lar_rule)i)));
        lar_nearest_offer(n, lar_slice_cstr(lar_rule_name((lar_rule)i)));
    }
}
