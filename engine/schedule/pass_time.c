/* Learns how long passes take: exponentially weighted means by size, and one slope for positions (see the header).
 * Called by the scheduler's thread, once a step. Pure.
 * Why no least squares over everything: most steps of a server look alike, and what such steps do not tell would drift
 * away. Means stay where they were measured.
 * Invariant: never negative. */
#include "engine/schedule/pass_time.h"

#include <stddef.h>

/* A pass counts for a quarter of its size's mean; the slope forgets over some fifty. */
#define WEIGHT 0.25
#define KEPT 0.98
/* Positions are told apart as if they were known to so many tokens: where they hardly differ, what differs is noise. */
#define BLUR 256.0
/* A pass that took longer than so many times what was expected says more of the machine than of passes. */
#define OUTLIER 4.0

static uint32_t size_of(uint32_t tokens) {
    uint32_t i = 0;
    while (tokens >>= 1) i++;
    return i;
}

static double slope_of(const lar_pass_time *t) {
    double slope = t->spread > 0 ? t->together / t->spread : 0;
    return slope > 0 ? slope : 0;
}

void lar_pass_time_learn(lar_pass_time *t, lar_pass_load load, uint64_t us) {
    if (!load.tokens) return;
    lar_pass_size *s = &t->sizes[size_of(load.tokens)];
    double n = load.tokens, took = (double)us, position = (double)load.positions / n;
    if (s->tokens == 0) {
        *s = (lar_pass_size){n, took, position};
        return;
    }
    double expected = lar_pass_time_of(t, load);
    if (expected > 0 && took > OUTLIER * expected) took = OUTLIER * expected;
    double away = position - s->position, more = took / n - s->us / s->tokens;
    t->spread = KEPT * t->spread + away * away + BLUR * BLUR;
    t->together = KEPT * t->together + away * more;
    s->tokens += WEIGHT * (n - s->tokens);
    s->us += WEIGHT * (took - s->us);
    s->position += WEIGHT * away;
}

/* What the size's passes would have taken with their tokens at `position`. */
static double moved(const lar_pass_size *s, double position, double slope) {
    double us = s->us + slope * s->tokens * (position - s->position);
    return us > s->us / 4 ? us : s->us / 4;
}

double lar_pass_time_of(const lar_pass_time *t, lar_pass_load load) {
    const lar_pass_size *below = NULL, *above = NULL;
    double n = load.tokens, slope = slope_of(t);
    if (!load.tokens) return 0;
    for (uint32_t i = 0; i < LAR_PASS_SIZES; i++) {
        const lar_pass_size *s = &t->sizes[i];
        if (s->tokens > 0 && s->tokens <= n) below = s;
        if (s->tokens > n && !above) above = s;
    }
    double position = (double)load.positions / n;
    if (!below) return above ? moved(above, position, slope) : 0;
    double low = moved(below, position, slope), most = low * n / below->tokens;
    if (!above) return most;
    double high = moved(above, position, slope);
    if (high < low) high = low;
    double us = low + (high - low) * (n - below->tokens) / (above->tokens - below->tokens);
    return us < most ? us : most;
}

uint32_t lar_pass_time_trusted(const lar_pass_time *t) {
    double most = LAR_PASS_FIRST_TOKENS;
    for (uint32_t i = 0; i < LAR_PASS_SIZES; i++)
        if (2 * t->sizes[i].tokens > most) most = 2 * t->sizes[i].tokens;
    return most < (double)UINT32_MAX ? (uint32_t)most : UINT32_MAX;
}
