/* Choosing the next token. sample.h has the steps and where their order comes from.
 * Flow: whoever generates calls once a token. One thread at a time; never blocks.
 * Why candidates in widening rings: only the likeliest are sorted, until top_k and top_p are sure of theirs; sorting a
 * whole vocabulary would cost as much as a layer.
 * Memory: taken when the sampler is made: three arrays of the vocabulary's length.
 * Invariant: with finite logits a token is always chosen. */
#include "engine/model/sample.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/hash.h"
#include "engine/compute/vectors.h"

enum { SPAN = 1024 }; /* logits weighed at once */
/* A sum of vector weights beside exact ones: no more than it, so that a share of nearly all is found before the whole
 * vocabulary is sorted. */
#define SHY (1 - 2e-6)

typedef struct candidate {
    float logit; /* after all penalties, before temperature */
    uint32_t id;
} candidate;

struct lar_sampler {
    lar_sampling p;
    uint32_t vocab;
    uint64_t draws;
    lar_logit_bias *biases;
    float *logits;     /* (vocab): as penalties leave them */
    uint32_t *seen;    /* (vocab): times in the answer, times two, plus 1 if in the prompt */
    candidate *sorted; /* (vocab) */
    uint32_t sorted_count;
    const uint32_t *among; /* (among_count), borrowed: what the next choice is held to */
    uint32_t among_count;
};

double lar_sample_draw(uint64_t seed, uint64_t n) {
    return (double)(lar_mix64(seed + (n + 1) * LAR_MIX64_STEP) >> 11) * 0x1p-53;
}

/* -- making ------------------------------------------------------------------------------------------------------ */

typedef struct range {
    const char *name;
    double value, above, min, max; /* above < value, min <= value <= max */
} range;

lar_error lar_sampling_check(const lar_sampling *s, uint32_t vocab, lar_diag *d) {
    if (!vocab) return lar_fail(LAR_INVALID, d, "an empty vocabulary");
    const range ranges[] = {
        {"temperature", s->temperature, -1, 0, 100},
        {"top_p", s->top_p, 0, 0, 1},
        {"min_p", s->min_p, -1, 0, 1},
        {"frequency_penalty", s->frequency, -3, -2, 2},
        {"presence_penalty", s->presence, -3, -2, 2},
        {"repetition_penalty", s->repetition, 0, 0, 10},
        {"logprobs", s->logprobs, -1, 0, LAR_LOGPROBS_MAX},
        {"logit_bias", s->bias_count, -1, 0, LAR_LOGIT_BIAS_MAX},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        const range *r = &ranges[i];
        if (!(r->value > r->above && r->value >= r->min && r->value <= r->max))
            return lar_fail(LAR_INVALID, d, "%s is %g; it can be %s%g to %g", r->name, r->value,
                            r->above == r->min ? "above " : "", r->min, r->max);
    }
    for (uint32_t i = 0; i < s->bias_count; i++) {
        if (s->biases[i].id >= vocab)
            return lar_fail(LAR_INVALID, d, "logit_bias of token %u; the vocabulary ends at %u", s->biases[i].id,
                            vocab - 1);
        if (!(fabsf(s->biases[i].bias) <= 100))
            return lar_fail(LAR_INVALID, d, "logit_bias of token %u is %g; it can be -100 to 100", s->biases[i].id,
                            (double)s->biases[i].bias);
    }
    return LAR_OK;
}

lar_error lar_sampler_new(const lar_sampling *s, uint32_t vocab, lar_sampler **out, lar_diag *d) {
    *out = NULL;
    lar_error e = lar_sampling_check(s, vocab, d);
    if (e) return e;
    lar_sampler *n = calloc(1, sizeof *n);
    if (!n) return LAR_NO_MEMORY;
    *n = (lar_sampler){.p = *s, .vocab = vocab};
    n->biases = calloc(s->bias_count + 1u, sizeof *n->biases);
    n->logits = calloc(vocab, sizeof *n->logits);
    n->seen = calloc(vocab, sizeof *n->seen);
    n->sorted = calloc(vocab, sizeof *n->sorted);
    if (!n->biases || !n->logits || !n->seen || !n->sorted) return lar_sampler_free(n), LAR_NO_MEMORY;
    if (s->bias_count) memcpy(n->biases, s->biases, s->bias_count * sizeof *n->biases);
    n->p.biases = n->biases;
    *out = n;
    return LAR_OK;
}

void lar_sampler_free(lar_sampler *s) {
    if (!s) return;
    free(s->biases);
    free(s->logits);
    free(s->seen);
    free(s->sorted);
    free(s);
}

void lar_sampler_see(lar_sampler *s, const uint32_t *ids, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] < s->vocab) s->seen[ids[i]] |= 1;
}

/* -- steps ------------------------------------------------------------------------------------------------------- */

static void penalise(lar_sampler *s, const float *logits) {
    memcpy(s->logits, logits, s->vocab * sizeof *logits);
    for (uint32_t i = 0; i < s->p.bias_count; i++) s->logits[s->biases[i].id] += s->biases[i].bias;
    if (s->p.repetition == 1 && s->p.frequency == 0 && s->p.presence == 0) return;
    for (uint32_t i = 0; i < s->vocab; i++) {
        if (!s->seen[i]) continue;
        double x = (double)s->logits[i];
        uint32_t times = s->seen[i] >> 1;
        x = x > 0 ? x / s->p.repetition : x * s->p.repetition;
        if (times) x -= s->p.frequency * times + s->p.presence;
        s->logits[i] = (float)fmin(fmax(x, -(double)FLT_MAX), (double)FLT_MAX); /* finite, as choose() needs */
    }
}

static uint32_t largest(const float *x, uint32_t n) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

static bool goes_before(const candidate *x, const candidate *y) {
    return x->logit != y->logit ? x->logit > y->logit : x->id < y->id;
}

/* Lets the one at `at` of a heap whose top goes last sink to its place. */
static void sink(candidate *heap, uint32_t at, uint32_t count) {
    candidate moved = heap[at];
    for (uint64_t child = 2 * (uint64_t)at + 1; child < count; child = 2 * (uint64_t)at + 1) {
        if (child + 1 < count && goes_before(&heap[child], &heap[child + 1])) child++;
        if (!goes_before(&moved, &heap[child])) break;
        heap[at] = heap[child];
        at = (uint32_t)child;
    }
    heap[at] = moved;
}

/* By heap, in place: the C library's sort allocates. */
static void sort(candidate *c, uint32_t count) {
    for (uint32_t i = count / 2; i-- > 0;) sink(c, i, count);
    for (uint32_t n = count; n > 1; n--) {
        candidate last = c[0];
        c[0] = c[n - 1];
        c[n - 1] = last;
        sink(c, 0, n - 1);
    }
}

/* All tokens whose logit is at least `from`, sorted. They are the head of the whole sorted vocabulary. */
static void collect(lar_sampler *s, float from) {
    s->sorted_count = 0;
    for (uint32_t i = 0; i < s->vocab; i++)
        if (s->logits[i] >= from) s->sorted[s->sorted_count++] = (candidate){s->logits[i], i};
    sort(s->sorted, s->sorted_count);
}

/* How likely logits are beside the largest, which has 1; those below `floor` are out. */
typedef struct spread {
    float max, floor, scale;
} spread;

/* A temperature so low that its inverse is no float takes the largest, as the lowest one that is does. */
static spread spread_of(double temperature, float max, float floor) {
    return (spread){max, floor, (float)fmin(1 / temperature, 1e30)};
}

/* The weights of n logits, n <= SPAN, and their sum. */
static double weigh_span(const spread *s, const float *logits, uint32_t n, float *weights) {
    float none = 0;
    for (uint32_t i = 0; i < n; i++) weights[i] = logits[i] >= s->floor ? logits[i] - s->max : -INFINITY;
    return (double)lar_vectors_best()->weigh(weights, n, s->scale, &none);
}

static uint32_t span_at(uint32_t from, uint32_t n) { return n - from < SPAN ? n - from : SPAN; }

static double weigh_all(const spread *s, const float *logits, uint32_t n) {
    float weights[SPAN];
    double sum = 0;
    for (uint32_t from = 0; from < n; from += SPAN) sum += weigh_span(s, logits + from, span_at(from, n), weights);
    return sum;
}

/* The weight of one logit, as exactly as there is; for the few that are sorted. */
static double weight(const lar_sampler *s, float logit, float max) {
    return exp(((double)logit - (double)max) / s->p.temperature);
}

/* How many of the sorted stay, or 0 if more must be sorted to tell. `all`: the whole vocabulary is sorted. */
static uint32_t kept(const lar_sampler *s, float max, double total, bool all) {
    uint32_t k = s->p.top_k && s->p.top_k < s->vocab ? s->p.top_k : s->vocab, n = 0;
    if (s->sorted_count < k && !all && (s->p.top_p >= 1 || k < s->vocab)) return 0;
    if (s->sorted_count < k) k = s->sorted_count;
    double sum = 0;
    if (s->p.top_k && s->p.top_k < s->vocab) /* top_p is a share of what top_k left */
        for (total = 0; n < k; n++) total += weight(s, s->sorted[n].logit, max);
    for (n = 0; n < k && (s->p.top_p >= 1 || sum < s->p.top_p * total); n++) sum += weight(s, s->sorted[n].logit, max);
    return sum >= s->p.top_p * total || all || k == s->p.top_k ? n : 0;
}

/* Draws by the weights of the first n sorted, n > 0. */
static uint32_t draw_sorted(const lar_sampler *s, uint32_t n, float max, double fraction) {
    double total = 0, sum = 0;
    for (uint32_t i = 0; i < n; i++) total += weight(s, s->sorted[i].logit, max);
    for (uint32_t i = 0; i + 1 < n; i++)
        if ((sum += weight(s, s->sorted[i].logit, max)) > fraction * total) return s->sorted[i].id;
    return s->sorted[n - 1].id;
}

/* Draws from the vocabulary in the order of ids, with those below the floor left out. */
static uint32_t draw_all(const lar_sampler *s, const spread *how, double fraction) {
    float weights[SPAN];
    double aim = fraction * weigh_all(how, s->logits, s->vocab), sum = 0;
    uint32_t from = 0, drawn = 0;
    for (double more; from < s->vocab; from += SPAN, sum += more)
        if (sum + (more = weigh_span(how, s->logits + from, span_at(from, s->vocab), weights)) > aim) break;
    LAR_ASSERT(from < s->vocab); /* the sums are those of `aim`, and the fraction is below 1 */
    for (uint32_t i = 0; i < span_at(from, s->vocab) && sum <= aim; i++) {
        if (weights[i] == 0) continue;
        drawn = from + i;
        sum += (double)weights[i];
    }
    return drawn;
}

static uint32_t choose(lar_sampler *s) {
    uint32_t best = largest(s->logits, s->vocab);
    if (s->p.temperature == 0) return best;
    double fraction = lar_sample_draw(s->p.seed, s->draws++);
    float max = s->logits[best];
    /* min_p by logit: weight >= min_p. */
    float floor = s->p.min_p > 0 ? (float)((double)max + log(s->p.min_p) * s->p.temperature) : -INFINITY;
    if (floor > max) floor = max;
    spread how = spread_of(s->p.temperature, max, floor);
    if (s->p.top_p >= 1 && (!s->p.top_k || s->p.top_k >= s->vocab)) return draw_all(s, &how, fraction);
    double total = weigh_all(&how, s->logits, s->vocab) * SHY;
    for (double ring = 4 * s->p.temperature;; ring *= 2) {
        bool all = !((double)max - ring > (double)floor && ring < 1e4);
        collect(s, all ? floor : (float)((double)max - ring));
        uint32_t n = kept(s, max, total, all);
        if (n) return draw_sorted(s, n, max, fraction);
    }
}

static bool before(const float *logits, uint32_t a, uint32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
}

/* One of `ids`: the largest (ties: the lowest id), or drawn by weight. */
static uint32_t choose_among(lar_sampler *s, const uint32_t *ids, uint32_t count) {
    uint32_t best = ids[0], last = ids[0];
    double total = 0, sum = 0;
    for (uint32_t i = 1; i < count; i++)
        if (before(s->logits, ids[i], best)) best = ids[i];
    if (s->p.temperature == 0) return best;
    double fraction = lar_sample_draw(s->p.seed, s->draws++);
    for (uint32_t i = 0; i < count; i++) total += weight(s, s->logits[ids[i]], s->logits[best]);
    for (uint32_t i = 0; i < count && sum <= fraction * total; i++)
        sum += weight(s, s->logits[last = ids[i]], s->logits[best]);
    return last;
}

/* -- log-probabilities ------------------------------------------------------------------------------------------- */

/* log of the sum of exp(logits), or false if a logit is not finite. */
static bool log_sum(const float *logits, uint32_t n, double *out) {
    float max = logits[largest(logits, n)];
    spread how = spread_of(1, max, -INFINITY);
    bool finite = true;
    for (uint32_t i = 0; i < n; i++) finite &= isfinite(logits[i]) != 0;
    *out = (double)max + log(weigh_all(&how, logits, n));
    return finite;
}

static void report(const lar_sampler *s, const float *logits, double sum, lar_sampled *out) {
    uint32_t want = s->p.logprobs < s->vocab ? s->p.logprobs : s->vocab, n = 0;
    out->logprob = (float)((double)logits[out->id] - sum);
    for (uint32_t i = 0; want && i < s->vocab; i++) {
        if (n == want && !before(logits, i, out->top[n - 1].id)) continue;
        uint32_t at = n < want ? n++ : n - 1;
        for (; at && before(logits, i, out->top[at - 1].id); at--) out->top[at] = out->top[at - 1];
        out->top[at].id = i;
    }
    for (uint32_t i = 0; i < n; i++) out->top[i].value = (float)((double)logits[out->top[i].id] - sum);
    out->top_count = n;
}

void lar_sampler_hold(lar_sampler *s, const uint32_t *ids, uint32_t count) {
    s->among = ids;
    s->among_count = count;
}

lar_error lar_sampler_next(lar_sampler *s, const float *logits, lar_sampled *out, lar_diag *d) {
    double sum;
    if (!log_sum(logits, s->vocab, &sum))
        return lar_fail(LAR_INVALID, d,
                        "the model's logits are not finite: its weights are damaged, or an activation "
                        "overflowed");
    penalise(s, logits);
    out->id = s->among_count ? choose_among(s, s->among, s->among_count) : choose(s);
    s->among_count = 0;
    report(s, logits, sum, out);
    s->seen[out->id] += 2;
    return LAR_OK;
}
