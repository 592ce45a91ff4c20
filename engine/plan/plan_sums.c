/* The sums of a memory plan (header: plan.h).
 * Called by gateway/local/plan_command.c and plan_fit.c; calls nobody. Any thread; does not block; allocates nothing.
 * Why saturating: every product of fields that are each possible can leave 64 bits; a sum that stuck at the top is
 * refused once, at the end, and not at every step.
 * Not here: where the numbers come from (plan_config.c, plan_files.c), what to change (plan_fit.c). */
#include "engine/plan/plan.h"

static const uint64_t top = 1ull << 62;

static uint64_t add(uint64_t a, uint64_t b) { return a >= top || b >= top - a ? top : a + b; }

static uint64_t times(uint64_t a, uint64_t b) { return b && a > top / b ? top : a * b; }

static uint64_t up(uint64_t value, uint64_t unit) { return value / unit + (value % unit != 0); }

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Bytes of `values` values in a row, with the scales they need. */
static uint64_t row_bytes(const lar_kv_info *kv, uint64_t values) {
    return values * kv->value_bytes + (kv->group ? up(values, kv->group) * kv->scale_bytes : 0);
}

/* One token in one layer. */
static uint64_t layer_bytes(const lar_plan_model *m, const lar_kv_info *kv) {
    const uint64_t *f = m->field;
    if (m->latent) return row_bytes(kv, f[LAR_PLAN_RANK]) + f[LAR_PLAN_ROPE] * (kv->group ? 2 : kv->value_bytes);
    return f[LAR_PLAN_KV_HEADS] * (row_bytes(kv, f[LAR_PLAN_HEAD_DIM]) + row_bytes(kv, f[LAR_PLAN_VALUE_DIM]));
}

static uint64_t token_bytes(const lar_plan_model *m, const lar_plan_request *r) {
    uint64_t bytes = 0;
    if (!r->kv_layers)
        return times(layer_bytes(m, lar_kv_info_of(r->kv)), m->field[LAR_PLAN_LAYERS] - m->layers_stateless);
    for (uint64_t i = 0; i < m->field[LAR_PLAN_LAYERS]; i++)
        bytes = add(bytes, layer_bytes(m, lar_kv_info_of((lar_kv)r->kv_layers[i])));
    return bytes;
}

static uint64_t pages(uint64_t tokens) { return up(tokens, LAR_PAGE_TOKENS) * LAR_PAGE_TOKENS; }

static uint64_t request_bytes(const lar_plan_model *m, const lar_plan_request *r, uint64_t layer) {
    uint64_t whole = m->field[LAR_PLAN_LAYERS] - m->layers_stateless - m->layers_windowed;
    uint64_t window = least(r->context, m->field[LAR_PLAN_WINDOW]);
    return add(times(times(layer, whole), pages(r->context)), times(times(layer, m->layers_windowed), pages(window)));
}

static uint64_t all_weights(const lar_plan_model *m, const lar_plan_request *r) {
    if (!r->requantised && m->file_bytes) return m->file_bytes;
    const lar_dtype_info *type = lar_dtype_info_of(r->requantised ? r->weights : m->stored);
    return times(up(m->parameters, type->block_elements), type->block_bytes);
}

/* With a budget for experts: what is left of them in memory. Their share of the bytes is that of their parameters,
 * where it was not measured. */
static uint64_t weight_bytes(const lar_plan_model *m, const lar_plan_request *r) {
    if (r->held && !r->requantised) return r->held;
    const uint64_t *f = m->field, all = all_weights(m, r);
    uint64_t layers = f[LAR_PLAN_LAYERS] > f[LAR_PLAN_DENSE_LAYERS] ? f[LAR_PLAN_LAYERS] - f[LAR_PLAN_DENSE_LAYERS] : 0;
    uint64_t one = times(3 * f[LAR_PLAN_HIDDEN], f[LAR_PLAN_EXPERT_WIDTH]);
    uint64_t parameters = times(times(layers, f[LAR_PLAN_EXPERTS]), one);
    if (!r->experts || !m->parameters || parameters >= m->parameters) return all;
    uint64_t experts = (uint64_t)((double)all * ((double)parameters / (double)m->parameters));
    return experts > r->experts ? all - experts + r->experts : all;
}

/* Rows of float32 that live at once in a layer, for as many tokens as are in flight, and the logits of those that are
 * sampled: the stream, its norm and what a block adds; queries and heads, of up to 128 tokens also in the latent's
 * space; for each expert of a token its input, gate, up, output, and a row of weights. An upper bound for all paths. */
static uint64_t scratch_bytes(const lar_plan_model *m, const lar_plan_request *r) {
    const uint64_t *f = m->field;
    if (!f[LAR_PLAN_HIDDEN]) return 0;
    uint64_t rows = least(r->context, r->piece ? r->piece : LAR_PLAN_PIECE);
    if (rows < r->sequences) rows = r->sequences;
    uint64_t head = m->latent ? f[LAR_PLAN_NOPE] + f[LAR_PLAN_ROPE] : f[LAR_PLAN_HEAD_DIM];
    uint64_t dense = 3 * f[LAR_PLAN_HIDDEN] + 2 * f[LAR_PLAN_WIDTH];
    uint64_t experts = f[LAR_PLAN_EXPERTS_USED] * (3 * f[LAR_PLAN_HIDDEN] + 2 * f[LAR_PLAN_EXPERT_WIDTH]);
    uint64_t shared =
        f[LAR_PLAN_SHARED_WIDTH] ? f[LAR_PLAN_SHARED_WIDTH] : f[LAR_PLAN_EXPERTS_SHARED] * f[LAR_PLAN_EXPERT_WIDTH];
    if (shared) experts += 3 * f[LAR_PLAN_HIDDEN] + 2 * shared; /* at the same time as the chosen ones */
    uint64_t row = 3 * f[LAR_PLAN_HIDDEN] + f[LAR_PLAN_RANK] + f[LAR_PLAN_ROPE] +
                   f[LAR_PLAN_HEADS] * (head + f[LAR_PLAN_VALUE_DIM]) + (dense > experts ? dense : experts);
    uint64_t latents = 2 * least(rows, 128) * f[LAR_PLAN_HEADS] * f[LAR_PLAN_RANK];
    return times(4, add(add(times(rows, row), latents), times(r->sequences, f[LAR_PLAN_VOCAB])));
}

uint64_t lar_plan_reserve(uint64_t memory) {
    const uint64_t gib = 1ull << 30;
    uint64_t share = memory / 20 * 3;
    return share < gib ? gib : share > 16 * gib ? 16 * gib : share;
}

static lar_plan_verdict judge(uint64_t total, uint64_t budget) {
    if (total > budget) return LAR_PLAN_OVER;
    if (total > budget - budget / 20) return LAR_PLAN_FULL;
    return total > budget - budget / 10 ? LAR_PLAN_TIGHT : LAR_PLAN_FITS;
}

lar_error lar_plan_compute(const lar_plan_model *m, const lar_plan_request *r, lar_plan *out, lar_diag *d) {
    *out = (lar_plan){0};
    if (r->reserve >= r->memory)
        return lar_fail(LAR_INVALID, d, "nothing is left of the memory: %llu bytes, of which %llu are to stay free",
                        (unsigned long long)r->memory, (unsigned long long)r->reserve);
    out->budget = r->memory - r->reserve;
    if (r->kv_layers && m->layers_windowed + m->layers_stateless > 0)
        return lar_fail(LAR_INVALID, d, "formats by layer need a model whose layers all keep every token");
    out->layer = r->kv_layers ? 0 : layer_bytes(m, lar_kv_info_of(r->kv));
    out->token = token_bytes(m, r);
    out->request = r->kv_layers ? times(out->token, pages(r->context)) : request_bytes(m, r, out->layer);
    out->all = r->cache ? r->cache : times(out->request, r->sequences);
    out->weights = weight_bytes(m, r);
    out->scratch = r->scratch ? r->scratch : scratch_bytes(m, r);
    out->total = add(add(out->all, out->weights), out->scratch);
    out->verdict = judge(out->total, out->budget);
    if (out->total >= top) return lar_fail(LAR_LIMIT, d, "the sizes together go beyond 4 EiB");
    return LAR_OK;
}
