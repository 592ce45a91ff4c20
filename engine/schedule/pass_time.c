/* Learns how long passes take: exponentially weighted means by size, and one slope for positions (see the header).
 * Called by the scheduler's thread, once a step. Pure.
 * Why no least squares over everything: most steps of a server look alike, and what such steps do not tell would drift
 * away. Means stay where they were measured.
 * Invariant: never negative. */
#include "engine/schedule/pass_time.h"

#include <stddef.h>

/* A pass counts for a quarter of its size's mean, for less of the longer one; the slope forgets over some fifty. */
#define WEIGHT 0.25
#define LONGER_WEIGHT 0.03
#define KEPT 0.98
/* How far a mean that another size's passes contradict moves towards what they allow. */
#define DRAWN 0.0625
/* Positions are told apart as if they were known to so many tokens: where they hardly differ, what differs is noise. */
#define BLUR 256.0
/* A pass that took longer than so many times what was expected says more of the machine than of passes. */
#define OUTLIER 4.0

/* How many passes keep to a limit; the steps in which that quantile of what they take, by what was expected, moves; its
 * bounds; where it begins. */
#define LATE_KEPT 0.995
#define LATE_STEP 0.2
#define LATE_LEAST 1.25
#define LATE_FIRST 1.5
#define LATE_MOST 3.0

static uint32_t size_of(uint32_t tokens) {
    uint32_t i = 0;
    while (tokens >>= 1) i++;
    return i;
}

static double slope_of(const lar_pass_time *t) {
    double slope = t->spread > 0 ? t->together / t->spread : 0;
    return slope > 0 ? slope : 0;
}

/* What the size's passes would have taken with their tokens at `position`. */
static double moved(const lar_pass_size *s, double position, double slope) {
    double us = s->us + slope * s->tokens * (position - s->position);
    return us > s->us / 16 ? us : s->us / 16;
}

static void move_mean(lar_pass_size *s, const lar_pass_size *to, double weight) {
    s->tokens += weight * (to->tokens - s->tokens);
    s->us += weight * (to->us - s->us);
    s->position += weight * (to->position - s->position);
}

/* More tokens take longer, and by no more than in proportion: so much the other sizes are known to take by now. */
static void draw_others(lar_pass_time *t, const lar_pass_size *known) {
    double slope = slope_of(t);
    for (lar_pass_size *s = t->sizes; s < t->sizes + LAR_PASS_SIZES; s++) {
        if (s->tokens == 0 || s == known) continue;
        double same = moved(known, s->position, slope), ratio = s->tokens / known->tokens;
        double least = ratio > 1 ? same : same * ratio, most = ratio > 1 ? same * ratio : same;
        if (s->us < least) s->us += DRAWN * (least - s->us);
        if (s->us > most) s->us += DRAWN * (most - s->us);
    }
}

void lar_pass_time_learn(lar_pass_time *t, lar_pass_load load, uint64_t us) {
    if (!load.tokens) return;
    uint32_t i = size_of(load.tokens);
    lar_pass_size *s = &t->sizes[i], *longer = &t->longer[i], now = {load.tokens, (double)us, 0};
    now.position = (double)load.positions / now.tokens;
    if (s->tokens == 0) {
        *s = *longer = now;
        return;
    }
    double expected = lar_pass_time_of(t, load);
    if (expected > 0 && now.us > OUTLIER * expected) now.us = OUTLIER * expected;
    double away = now.position - longer->position, more = now.us / now.tokens - longer->us / longer->tokens;
    t->spread = KEPT * t->spread + away * away + BLUR * BLUR;
    t->together = KEPT * t->together + away * more;
    move_mean(s, &now, WEIGHT);
    move_mean(longer, &now, LONGER_WEIGHT);
    draw_others(t, s);
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

static double late(const lar_pass_time *t) { return t->late > 0 ? t->late : LATE_FIRST; }

/* A quantile by stochastic approximation: up by much where it was passed, down by little where not. */
void lar_pass_time_judge(lar_pass_time *t, double expected, uint64_t us) {
    if (expected <= 0) return;
    double q = late(t);
    q += LATE_STEP * ((double)us > q * expected ? LATE_KEPT : LATE_KEPT - 1);
    t->late = q < LATE_LEAST ? LATE_LEAST : q > LATE_MOST ? LATE_MOST : q;
}

double lar_pass_time_within(const lar_pass_time *t, uint64_t us) { return (double)us / late(t); }

uint32_t lar_pass_time_trusted(const lar_pass_time *t) {
    double most = LAR_PASS_FIRST_TOKENS;
    for (uint32_t i = 0; i < LAR_PASS_SIZES; i++)
        if (2 * t->sizes[i].tokens > most) most = 2 * t->sizes[i].tokens;
    return most < (double)UINT32_MAX ? (uint32_t)most : UINT32_MAX;
}
