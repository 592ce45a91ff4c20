/* What fits, and what to change where a plan does not (header: plan.h).
 * Called by plan_command.c; calls lar_plan_compute, again and again. Any thread; does not block; allocates nothing.
 * Why by search: bytes grow with sequences and with context, but pages, windows and scratch make it no straight line.
 * Invariant: every change that is offered has itself been computed and fits. */
#include "engine/plan/plan.h"

enum { STEP_TOKENS = 64 };
static const uint64_t sequences_most = 1ull << 20, context_most = 1ull << 30, gib = 1ull << 30;

/* By how little precision is lost; what is larger than the plan's own is passed over. */
static const lar_dtype smaller_weights[] = {LAR_DTYPE_BF16, LAR_DTYPE_Q8_0, LAR_DTYPE_Q6_K,
                                            LAR_DTYPE_Q5_K, LAR_DTYPE_Q4_K, LAR_DTYPE_IQ4_XS};

/* Sizes in which memory is sold, GiB. */
static const uint64_t machines[] = {8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096};

static bool fits(const lar_plan_model *m, const lar_plan_request *r, lar_plan *p) {
    lar_diag ignored = {0};
    return lar_plan_compute(m, r, p, &ignored) == LAR_OK && p->verdict != LAR_PLAN_OVER;
}

/* The largest n in 0..most for which *slot = n * unit fits; `slot` points into `r`. */
static uint64_t search(const lar_plan_model *m, lar_plan_request *r, uint64_t *slot, uint64_t unit, uint64_t most) {
    uint64_t low = 0, high = most;
    lar_plan p;
    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;
        *slot = middle * unit;
        if (fits(m, r, &p)) low = middle;
        else high = middle - 1;
    }
    return low * unit;
}

uint64_t lar_plan_most_sequences(const lar_plan_model *m, const lar_plan_request *r) {
    lar_plan_request tried = *r;
    return search(m, &tried, &tried.sequences, 1, sequences_most);
}

uint64_t lar_plan_most_context(const lar_plan_model *m, const lar_plan_request *r) {
    lar_plan_request tried = *r;
    uint64_t most = m->field[LAR_PLAN_CONTEXT] ? m->field[LAR_PLAN_CONTEXT] : context_most;
    if (most < STEP_TOKENS) return 0;
    return search(m, &tried, &tried.context, STEP_TOKENS, most / STEP_TOKENS);
}

/* Takes the change if it fits. */
static bool offer(const lar_plan_model *m, lar_plan_change *c, const lar_plan_request *r, unsigned what) {
    lar_plan p;
    if (!fits(m, r, &p)) return false;
    *c = (lar_plan_change){.what = what, .request = *r, .plan = p};
    return true;
}

static bool fewer_sequences(const lar_plan_model *m, lar_plan_request r, lar_plan_change *c, unsigned what) {
    r.sequences = lar_plan_most_sequences(m, &r);
    return r.sequences && offer(m, c, &r, what | LAR_PLAN_CHANGE_SEQUENCES);
}

static bool shorter_context(const lar_plan_model *m, lar_plan_request r, lar_plan_change *c, unsigned what) {
    r.context = lar_plan_most_context(m, &r);
    return r.context && offer(m, c, &r, what | LAR_PLAN_CHANGE_CONTEXT);
}

/* The formats that take less than the plan's, the largest that fits. */
static bool smaller_kv(const lar_plan_model *m, lar_plan_request r, lar_plan_change *c) {
    lar_plan now, then;
    (void)fits(m, &r, &now);
    int kv = r.kv_layers ? 0 : (int)r.kv + 1;
    for (r.kv_layers = NULL; kv < LAR_KV_COUNT; kv++) {
        r.kv = (lar_kv)kv;
        if (fits(m, &r, &then) && then.token < now.token) return offer(m, c, &r, LAR_PLAN_CHANGE_KV);
    }
    return false;
}

static bool smaller_type(const lar_plan_model *m, lar_plan_request r, lar_plan_change *c) {
    lar_plan now, then;
    (void)fits(m, &r, &now);
    if (!m->parameters) return false;
    r.requantised = true;
    for (size_t i = 0; i < sizeof smaller_weights / sizeof *smaller_weights; i++) {
        r.weights = smaller_weights[i];
        if (fits(m, &r, &then) && then.weights < now.weights) return offer(m, c, &r, LAR_PLAN_CHANGE_WEIGHTS);
    }
    return false;
}

/* All at once: the smallest cache and weights, then as many requests as fit, or one as long as fits. */
static bool everything(const lar_plan_model *m, lar_plan_request r, lar_plan_change *c) {
    unsigned what = 0;
    if (r.kv != LAR_KV_INT8_128 || r.kv_layers) what |= LAR_PLAN_CHANGE_KV;
    r.kv = LAR_KV_INT8_128;
    r.kv_layers = NULL;
    lar_plan now, then;
    lar_plan_request small = r;
    small.requantised = true;
    small.weights = LAR_DTYPE_Q4_K;
    (void)fits(m, &r, &now);
    (void)fits(m, &small, &then);
    if (m->parameters && then.weights < now.weights) r = small, what |= LAR_PLAN_CHANGE_WEIGHTS;
    if (offer(m, c, &r, what) || fewer_sequences(m, r, c, what)) return true;
    if (r.sequences > 1) what |= LAR_PLAN_CHANGE_SEQUENCES;
    r.sequences = 1;
    return shorter_context(m, r, c, what);
}

static bool bigger_machine(const lar_plan_model *m, lar_plan_request r, lar_plan_change *c) {
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        r.memory = machines[i] * gib;
        r.reserve = lar_plan_reserve(r.memory);
        if (offer(m, c, &r, LAR_PLAN_CHANGE_MEMORY) && c->plan.verdict == LAR_PLAN_FITS) return true;
    }
    return false;
}

uint32_t lar_plan_changes(const lar_plan_model *m, const lar_plan_request *r,
                          lar_plan_change out[LAR_PLAN_CHANGES_MAX]) {
    lar_plan p;
    uint32_t n = 0;
    if (fits(m, r, &p)) return 0;
    n += fewer_sequences(m, *r, &out[n], 0);
    n += shorter_context(m, *r, &out[n], 0);
    n += smaller_kv(m, *r, &out[n]);
    n += smaller_type(m, *r, &out[n]);
    if (!n) n += everything(m, *r, &out[n]);
    n += bigger_machine(m, *r, &out[n]);
    return n;
}
