/* Whether the hit rate of two baselines differs by more than their spread (header: baseline.h).
 * Flow: baseline_command.c asks. Pure; no memory. Why by turn: first turns hit little and late ones much, so a change
 * in the mix of turns would look like a change of the rate; each turn's difference counts by the share of prompt tokens
 * that it has in both. Invariant: without a spread there is no verdict. Not here: reading, printing. */
#include <math.h>
#include <string.h>

#include "gateway/commands/baseline.h"

/* Turns whose spread is known must hold that much of the prompt tokens of both. */
#define COVERED_MIN 0.8
/* Standard errors beyond which a difference is one: 95 % of chance differences are smaller (Student's t for the fewest
 * blocks). */
#define ERRORS_MIN 2.13

static const char *const names[LAR_CHANGE_COUNT] = {
    [LAR_CHANGE_NONE] = "same",
    [LAR_CHANGE_BETTER] = "better",
    [LAR_CHANGE_WORSE] = "worse",
    [LAR_CHANGE_TOO_FEW] = "too few requests",
    [LAR_CHANGE_NOT_COMPARABLE] = "not comparable",
};

const char *lar_change_name(lar_change c) { return names[c]; }

static uint32_t common_names(const lar_baseline *a, const lar_baseline *b) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->model_count; i++) {
        for (uint32_t k = 0; k < b->model_count; k++) n += strcmp(a->models[i].name, b->models[k].name) == 0;
    }
    return n;
}

/* Fingerprints of two installations cannot be compared. */
static double common_prefixes(const lar_baseline *a, const lar_baseline *b) {
    uint64_t known = 0, all = 0;
    if (!a->key[0] || strcmp(a->key, b->key) != 0 || !a->prefix_count || !b->prefix_count) return -1;
    for (uint32_t k = 0; k < b->prefix_count; k++) {
        all += b->prefixes[k].count;
        for (uint32_t i = 0; i < a->prefix_count; i++) {
            if (a->prefixes[i].hash != b->prefixes[k].hash) continue;
            known += b->prefixes[k].count;
            break;
        }
    }
    return all ? (double)known / (double)all : -1;
}

static bool same_editions(const lar_baseline *a, const lar_baseline *b) {
    if (a->edition_count != b->edition_count) return false;
    for (uint32_t i = 0; i < a->edition_count; i++) {
        bool found = false;
        for (uint32_t k = 0; k < b->edition_count; k++)
            found = found || strcmp(a->editions[i].name, b->editions[k].name) == 0;
        if (!found) return false;
    }
    return true;
}

static double share(const lar_rate_sum *part, const lar_rate_sum *all) {
    return all->prompt ? (double)part->prompt / (double)all->prompt : 0;
}

static bool difference_by_turn(const lar_baseline *a, const lar_baseline *b, lar_comparison *c) {
    double covered_a = 0, covered_b = 0, sum = 0, variance = 0, weights = 0;
    for (int t = 0; t < LAR_BASELINE_TURNS; t++) {
        const lar_rate_sum *x = &a->turns[t], *y = &b->turns[t];
        if (x->error < 0 || y->error < 0 || x->rate < 0 || y->rate < 0) continue;
        double w = (share(x, &a->all) + share(y, &b->all)) / 2;
        covered_a += share(x, &a->all);
        covered_b += share(y, &b->all);
        weights += w;
        sum += w * (y->rate - x->rate);
        variance += w * w * (x->error * x->error + y->error * y->error);
    }
    if (covered_a < COVERED_MIN || covered_b < COVERED_MIN || weights <= 0) return false;
    c->difference = sum / weights;
    c->error = sqrt(variance) / weights;
    return true;
}

lar_comparison lar_baseline_compare(const lar_baseline *a, const lar_baseline *b) {
    lar_comparison c = {.difference = 0, .error = -1};
    c.models_common = common_names(a, b);
    c.models_only_a = a->model_count - c.models_common;
    c.models_only_b = b->model_count - c.models_common;
    c.prefixes_common = common_prefixes(a, b);
    c.same_edition = same_editions(a, b);
    c.same_settings = strcmp(a->canon, b->canon) == 0 && strcmp(a->rules_off, b->rules_off) == 0;
    c.change = LAR_CHANGE_NOT_COMPARABLE;
    if (!c.models_common || c.prefixes_common == 0) return c;
    c.change = LAR_CHANGE_TOO_FEW;
    if (a->all.rate < 0 || b->all.rate < 0) return c;
    c.by_turn = difference_by_turn(a, b, &c);
    if (!c.by_turn) {
        c.difference = b->all.rate - a->all.rate;
        if (a->all.error < 0 || b->all.error < 0) return c;
        c.error = sqrt(a->all.error * a->all.error + b->all.error * b->all.error);
    }
    bool apart = fabs(c.difference) > ERRORS_MIN * c.error && fabs(c.difference) > 1e-9;
    c.change = !apart ? LAR_CHANGE_NONE : c.difference > 0 ? LAR_CHANGE_BETTER : LAR_CHANGE_WORSE;
    return c;
}
