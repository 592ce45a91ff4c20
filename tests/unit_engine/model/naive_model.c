/* A model as papers write it: DeepSeek-V2 (arXiv 2405.04434) 2.1 and 2.2, DeepSeek-V3 (arXiv 2412.19437) 2.1, YaRN
 * (arXiv 2309.00071). Errors end the program: a test without its reference has nothing to say. */
#include "tests/unit_engine/model/naive_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct naive {
    const model_shape *s;
    lar_model_files *files;
    uint64_t layer;
    uint32_t count; /* tokens */
} naive;

static double *doubles(uint64_t n) {
    double *x = calloc(n ? n : 1, sizeof *x);
    if (!x) abort();
    return x;
}

/* A tensor of the layer ("mlp.gate.weight"), or of the model if the name begins with '/'. */
static double *load(const naive *m, const char *name, uint64_t *columns) {
    char full[160];
    if (*name == '/') (void)snprintf(full, sizeof full, "%s", name + 1);
    else (void)snprintf(full, sizeof full, "model.layers.%llu.%s", (unsigned long long)m->layer, name);
    const lar_tensor *t = lar_model_files_find(m->files, full);
    if (!t) abort();
    uint64_t n = lar_tensor_row_elements(t), rows = lar_tensor_rows(t);
    double *out = doubles(rows * n);
    float *row = malloc(n * sizeof *row);
    for (uint64_t r = 0; row && r < rows; r++) {
        lar_tensor_row(t, r, row);
        for (uint64_t i = 0; i < n; i++) out[r * n + i] = (double)row[i];
    }
    free(row);
    if (columns) *columns = n;
    return out;
}

/* (out) = W x */
static void times(double *out, const double *w, const double *x, uint64_t rows, uint64_t n) {
    for (uint64_t r = 0; r < rows; r++) {
        out[r] = 0;
        for (uint64_t i = 0; i < n; i++) out[r] += w[r * n + i] * x[i];
    }
}

static void product(const naive *m, double *out, const char *name, const double *x, uint64_t rows) {
    uint64_t n;
    double *w = load(m, name, &n);
    times(out, w, x, rows, n);
    free(w);
}

static void norm(const naive *m, double *out, const char *name, const double *x, double eps) {
    uint64_t n;
    double *w = load(m, name, &n), sum = 0;
    for (uint64_t i = 0; i < n; i++) sum += x[i] * x[i];
    for (uint64_t i = 0; i < n; i++) out[i] = x[i] / sqrt(sum / (double)n + eps) * w[i];
    free(w);
}

static double mscale(const model_shape *s) {
    return s->yarn_factor > 1 ? 0.1 * s->yarn_mscale * log(s->yarn_factor) + 1 : 1;
}

static void rotate(const model_shape *s, double *x, double position) {
    double d = (double)s->rope, low = 0, high = 0;
    if (s->yarn_factor != 0) {
        low = fmax(floor(d * log((double)s->yarn_original / (32 * 2 * M_PI)) / (2 * log(s->rope_base))), 0);
        high = fmin(ceil(d * log((double)s->yarn_original / (2 * M_PI)) / (2 * log(s->rope_base))), d - 1);
        if (low == high) high += 0.001;
    }
    for (uint64_t i = 0; i < s->rope / 2; i++) {
        double speed = pow(s->rope_base, -2.0 * (double)i / d);
        double ramp = s->yarn_factor != 0 ? fmin(fmax(((double)i - low) / (high - low), 0), 1) : 0;
        if (s->yarn_factor != 0) speed = speed / s->yarn_factor * ramp + speed * (1 - ramp);
        double c = cos(position * speed), n = sin(position * speed), a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * c - b * n;
        x[2 * i + 1] = a * n + b * c;
    }
}

/* h (tokens, hidden) += attention */
static void attention(const naive *m, double *h) {
    const model_shape *s = m->s;
    uint64_t head = s->nope + s->rope, kv = s->nope + s->v_dim;
    double *x = doubles(s->hidden), *q = doubles(m->count * s->heads * head), *c = doubles(s->kv_rank + s->rope);
    double *k = doubles(m->count * s->heads * kv), *pe = doubles(m->count * s->rope), *down = doubles(s->q_rank);
    double *out = doubles(s->heads * s->v_dim), *p = doubles(m->count), *y = doubles(s->hidden);
    for (uint64_t t = 0; t < m->count; t++) {
        double *query = q + t * s->heads * head;
        norm(m, x, "input_layernorm.weight", h + t * s->hidden, s->eps);
        if (s->q_rank) {
            product(m, down, "self_attn.q_a_proj.weight", x, s->q_rank);
            norm(m, down, "self_attn.q_a_layernorm.weight", down, 1e-6);
            product(m, query, "self_attn.q_b_proj.weight", down, s->heads * head);
        } else {
            product(m, query, "self_attn.q_proj.weight", x, s->heads * head);
        }
        product(m, c, "self_attn.kv_a_proj_with_mqa.weight", x, s->kv_rank + s->rope);
        memcpy(pe + t * s->rope, c + s->kv_rank, s->rope * sizeof *pe);
        norm(m, c, "self_attn.kv_a_layernorm.weight", c, 1e-6);
        product(m, k + t * s->heads * kv, "self_attn.kv_b_proj.weight", c, s->heads * kv);
        rotate(s, pe + t * s->rope, (double)t);
        for (uint64_t n = 0; n < s->heads; n++) rotate(s, query + n * head + s->nope, (double)t);
    }
    for (uint64_t t = 0; t < m->count; t++) {
        memset(out, 0, s->heads * s->v_dim * sizeof *out);
        for (uint64_t n = 0; n < s->heads; n++) {
            double max = -INFINITY, sum = 0;
            const double *query = q + (t * s->heads + n) * head;
            for (uint64_t j = 0; j <= t; j++) {
                const double *key = k + (j * s->heads + n) * kv;
                p[j] = 0;
                for (uint64_t i = 0; i < s->nope; i++) p[j] += query[i] * key[i];
                for (uint64_t i = 0; i < s->rope; i++) p[j] += query[s->nope + i] * pe[j * s->rope + i];
                p[j] *= mscale(s) * mscale(s) / sqrt((double)head);
                max = fmax(max, p[j]);
            }
            for (uint64_t j = 0; j <= t; j++) sum += p[j] = exp(p[j] - max);
            for (uint64_t j = 0; j <= t; j++)
                for (uint64_t i = 0; i < s->v_dim; i++)
                    out[n * s->v_dim + i] += p[j] / sum * k[(j * s->heads + n) * kv + s->nope + i];
        }
        product(m, y, "self_attn.o_proj.weight", out, s->hidden);
        for (uint64_t i = 0; i < s->hidden; i++) h[t * s->hidden + i] += y[i];
    }
    free(x), free(q), free(c), free(k), free(pe), free(down), free(out), free(p), free(y);
}

/* y (hidden) += weight * mlp; `prefix` "mlp.experts.3". */
static void mlp(const naive *m, const char *prefix, uint64_t width, const double *x, double weight, double *y) {
    char name[96];
    double *gate = doubles(width), *up = doubles(width), *out = doubles(m->s->hidden);
    (void)snprintf(name, sizeof name, "%s.gate_proj.weight", prefix);
    product(m, gate, name, x, width);
    (void)snprintf(name, sizeof name, "%s.up_proj.weight", prefix);
    product(m, up, name, x, width);
    for (uint64_t i = 0; i < width; i++) gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
    (void)snprintf(name, sizeof name, "%s.down_proj.weight", prefix);
    product(m, out, name, gate, m->s->hidden);
    for (uint64_t i = 0; i < m->s->hidden; i++) y[i] += weight * out[i];
    free(gate), free(up), free(out);
}

static double group_score(const model_shape *s, const double *biased, uint64_t size) {
    double first = -INFINITY, second = -INFINITY;
    for (uint64_t i = 0; i < size; i++) {
        if (biased[i] > first) second = first, first = biased[i];
        else if (biased[i] > second) second = biased[i];
    }
    return s->sigmoid ? first + second : first;
}

/* weights (experts): 0 for those that are not chosen. */
static void route(const naive *m, const double *x, double *weights) {
    const model_shape *s = m->s;
    double *score = doubles(s->experts), *biased = doubles(s->experts), *groups = doubles(s->groups), sum = 0;
    product(m, score, "mlp.gate.weight", x, s->experts);
    for (uint64_t i = 0; i < s->experts; i++) sum += exp(score[i]);
    for (uint64_t i = 0; i < s->experts; i++) score[i] = s->sigmoid ? 1 / (1 + exp(-score[i])) : exp(score[i]) / sum;
    double *bias = s->sigmoid ? load(m, "mlp.gate.e_score_correction_bias", NULL) : doubles(s->experts);
    for (uint64_t i = 0; i < s->experts; i++) biased[i] = score[i] + bias[i];
    uint64_t size = s->experts / s->groups;
    for (uint64_t g = 0; g < s->groups; g++) groups[g] = group_score(s, biased + g * size, size);
    for (uint64_t left = s->groups - s->groups_used; left; left--) { /* the worst group goes */
        uint64_t worst = 0;
        for (uint64_t g = 1; g < s->groups; g++)
            if (groups[g] < groups[worst]) worst = g;
        groups[worst] = INFINITY;
        for (uint64_t i = 0; i < size; i++) biased[worst * size + i] = -INFINITY;
    }
    sum = 0;
    for (uint64_t k = 0; k < s->experts_used; k++) {
        uint64_t best = 0;
        for (uint64_t i = 1; i < s->experts; i++)
            if (biased[i] > biased[best]) best = i;
        biased[best] = -INFINITY;
        weights[best] = score[best];
        sum += score[best];
    }
    for (uint64_t i = 0; i < s->experts; i++) weights[i] *= s->expert_scale / (s->sigmoid ? sum : 1);
    free(score), free(biased), free(groups), free(bias);
}

/* h (tokens, hidden) += feed-forward */
static void feed_forward(const naive *m, double *h) {
    const model_shape *s = m->s;
    double *x = doubles(s->hidden), *y = doubles(s->hidden), *weights = doubles(s->experts);
    for (uint64_t t = 0; t < m->count; t++) {
        norm(m, x, "post_attention_layernorm.weight", h + t * s->hidden, s->eps);
        memset(y, 0, s->hidden * sizeof *y);
        memset(weights, 0, s->experts * sizeof *weights);
        if (m->layer < s->dense_layers) {
            mlp(m, "mlp", s->dense_ff, x, 1, y);
        } else {
            route(m, x, weights);
            for (uint64_t e = 0; e < s->experts; e++) {
                char name[48];
                (void)snprintf(name, sizeof name, "mlp.experts.%llu", (unsigned long long)e);
                if (weights[e] != 0) mlp(m, name, s->expert_ff, x, weights[e], y);
            }
            if (s->shared) mlp(m, "mlp.shared_experts", s->shared * s->expert_ff, x, 1, y);
        }
        for (uint64_t i = 0; i < s->hidden; i++) h[t * s->hidden + i] += y[i];
    }
    free(x), free(y), free(weights);
}

double *naive_logits(const model_shape *s, const char *folder, const uint32_t *ids, uint32_t count) {
    naive m = {.s = s, .count = count};
    if (lar_model_files_open(folder, &m.files, NULL)) abort();
    double *h = doubles(count * s->hidden), *x = doubles(s->hidden), *logits = doubles(count * s->vocab);
    double *embedding = load(&m, "/model.embed_tokens.weight", NULL);
    for (uint64_t t = 0; t < count; t++)
        memcpy(h + t * s->hidden, embedding + ids[t] * s->hidden, s->hidden * sizeof *h);
    for (m.layer = 0; m.layer < s->layers; m.layer++) {
        attention(&m, h);
        feed_forward(&m, h);
    }
    for (uint64_t t = 0; t < count; t++) {
        norm(&m, x, "/model.norm.weight", h + t * s->hidden, s->eps);
        product(&m, logits + t * s->vocab, "/lm_head.weight", x, s->vocab);
    }
    free(h), free(x), free(embedding);
    lar_model_files_close(m.files);
    return logits;
}
