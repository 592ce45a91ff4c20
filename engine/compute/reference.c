/* The readable kernels: any type of weight, a row at a time, sums in double in ascending order.
 * Flow: matmul.c calls; lar_tensor_row reads the weights. Any thread; blocks while it computes; runs on that thread.
 * Why: what the fast kernels are held against, and what computes the types that they do not read.
 * Memory: the workspace: x rounded, one row of W, and an mlp's values between its products.
 * Not here: norms, rotation, softmax, the router (operations.c), attention (attention.c). */
#include <math.h>
#include <string.h>

#include "base/ensure.h"
#include "engine/compute/matmul.h"
#include "engine/compute/operations.h"

static void round_int8(float *x, uint64_t n) {
    float max = 0;
    for (uint64_t i = 0; i < n; i++) max = fmaxf(max, fabsf(x[i]));
    float scale = max / 127.0f, inverse = scale > 0 ? 1.0f / scale : 0;
    for (uint64_t i = 0; i < n; i++) x[i] = rintf(x[i] * inverse) * scale;
}

void lar_activations_round(lar_activations activations, float *x, uint64_t n) {
    if (activations == LAR_ACTIVATIONS_BF16)
        for (uint64_t i = 0; i < n; i++) x[i] = lar_round_bf16(x[i]);
    if (activations == LAR_ACTIVATIONS_INT8)
        for (uint64_t i = 0; i < n; i += LAR_INT8_BLOCK)
            round_int8(x + i, n - i < LAR_INT8_BLOCK ? n - i : LAR_INT8_BLOCK);
}

static lar_error prepare(lar_matrix *m, lar_diag *d) {
    (void)m, (void)d; /* rows are read where they lie */
    return LAR_OK;
}

static void release(lar_matrix *m) { (void)m; }

static uint64_t round_up(uint64_t n) { return (n + 63) / 64 * 64; }

static uint64_t row_bytes(const lar_tensor *t) { return t->bytes / lar_tensor_rows(t); }

/* Two tensors, of the rows and of their scales, before the bytes of both. */
enum { TENSORS_BYTES = (2 * sizeof(lar_tensor) + 63) / 64 * 64 };

static uint64_t packed_size(const lar_matrix *m) {
    const lar_tensor *t = m->rows.tensor;
    return TENSORS_BYTES + round_up(m->out * row_bytes(t)) + (t->scale ? round_up(t->scale->bytes) : 0);
}

static lar_error pack(lar_matrix *m, const lar_packing *how, lar_diag *d) {
    (void)d;
    const lar_tensor *values = how->values;
    LAR_ASSERT(how->first == 0 && m->out == lar_tensor_rows(values)); /* others are read where they lie */
    lar_tensor *rows = how->memory, *scale = rows + 1;
    uint8_t *to = (uint8_t *)how->memory + TENSORS_BYTES;
    *rows = *values;
    rows->data = memcpy(to, values->data, values->bytes);
    if (values->scale) {
        *scale = *values->scale;
        scale->data = memcpy(to + round_up(values->bytes), values->scale->data, values->scale->bytes);
        rows->scale = scale;
    }
    m->rows = (lar_rows){rows, 0, m->out};
    return LAR_OK;
}

static uint64_t workspace(const lar_matrix *m, uint32_t count, uint32_t tokens) {
    (void)count;
    return ((uint64_t)tokens + 1) * m->in * sizeof(float);
}

static float dot(const float *a, const float *b, uint32_t n) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return (float)sum;
}

/* One matrix: y (tokens, out) from rounded x (tokens, in); `row` takes one row of W. */
static void multiply(const lar_matrix *m, const lar_product *p, const float *x, float *row) {
    for (uint32_t o = 0; o < m->out; o++) {
        lar_tensor_row(m->rows.tensor, m->rows.first + o, row);
        for (uint32_t t = 0; t < p->tokens; t++) p->y[t * p->y_row + o] = dot(x + (uint64_t)t * m->in, row, m->in);
    }
}

static void product(const lar_product *p, const lar_run *run) {
    uint32_t in = p->matrices->in;
    LAR_ASSERT(run->workspace_bytes >= workspace(p->matrices, p->count, p->tokens));
    float *row = run->workspace, *x = row + in;
    for (uint32_t i = 0; i < p->count; i++) {
        const lar_matrix *m = &p->matrices[i];
        for (uint32_t t = 0; t < p->tokens; t++) {
            memcpy(x + (uint64_t)t * in, p->x + i * p->x_step + t * p->x_row, in * sizeof *x);
            lar_activations_round(m->activations, x + (uint64_t)t * in, in);
        }
        lar_product one = *p;
        one.y += i * p->y_step;
        multiply(m, &one, x, row);
    }
}

/* x of the picks, gate, up and the answer, and the workspace of the wider of the products. */
static uint64_t mlp_workspace(const lar_mlp *mlps, uint32_t count, uint32_t picks) {
    (void)count;
    uint64_t hidden = mlps->gate.in, width = mlps->gate.out, wide = hidden > width ? hidden : width;
    return (picks * (2 * hidden + 2 * width) + ((uint64_t)picks + 1) * wide) * sizeof(float);
}

static float silu(float x) { return x / (1.0f + expf(-x)); }

static void mlp_one(const lar_mlp *m, const lar_mlp_job *job, const uint32_t picks[2], const lar_run *run) {
    uint32_t n = picks[1] - picks[0], hidden = m->gate.in, width = m->gate.out;
    float *x = run->workspace, *gate = x + (uint64_t)n * hidden, *up = gate + (uint64_t)n * width;
    float *out = up + (uint64_t)n * width;
    lar_run inner = {.workspace = out + (uint64_t)n * hidden, .workspace_bytes = run->workspace_bytes};
    inner.workspace_bytes -= (uint64_t)((uint8_t *)inner.workspace - (uint8_t *)run->workspace);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t t = job->token ? job->token[picks[0] + i] : picks[0] + i;
        memcpy(x + (uint64_t)i * hidden, job->x + (uint64_t)t * hidden, hidden * sizeof *x);
    }
    lar_product p = {&m->gate, 1, n, x, hidden, 0, gate, width, 0};
    product(&p, &inner);
    p.matrices = &m->up, p.y = up;
    product(&p, &inner);
    for (uint64_t i = 0; i < (uint64_t)n * width; i++) gate[i] = silu(gate[i]) * up[i];
    product(&(lar_product){&m->down, 1, n, gate, width, 0, out, hidden, 0}, &inner);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t t = job->token ? job->token[picks[0] + i] : picks[0] + i;
        float w = job->weight ? job->weight[picks[0] + i] : 1.0f;
        for (uint32_t j = 0; j < hidden; j++) job->y[(uint64_t)t * hidden + j] += w * out[(uint64_t)i * hidden + j];
    }
}

static void mlp(const lar_mlp_job *job, const lar_run *run) {
    for (; job; job = job->then)
        for (uint32_t e = 0; e < job->count; e++)
            if (job->starts[e + 1] > job->starts[e]) mlp_one(&job->mlps[e], job, job->starts + e, run);
}

static void products(const lar_product *p, uint32_t count, const lar_run *run) {
    for (uint32_t i = 0; i < count; i++) product(&p[i], run);
}

const lar_kernels *lar_kernels_reference(void) {
    static const lar_kernels table = {.name = "reference",
                                      .prepare = prepare,
                                      .release = release,
                                      .packed_size = packed_size,
                                      .pack = pack,
                                      .workspace = workspace,
                                      .mlp_workspace = mlp_workspace,
                                      .products = products,
                                      .mlp = mlp};
    return &table;
}
