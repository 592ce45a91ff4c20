/* Multi-head latent attention, absorbed and expanded, over rows that an accessor gives.
 * Flow: engine/model/forward.c calls; vectors.c and the matrix products compute. Any thread; blocks while it computes.
 * Why running softmax: scratch does not grow with the context, and a tile of rows is decoded once for all heads.
 * Memory: the caller's scratch.
 * Invariant: a query at position p reads rows 0 to p. */
#include "engine/compute/attention.h"

#include <math.h>
#include <string.h>

#include "engine/compute/vectors.h"

/* Of one query and head: the largest score so far, and the sum of exp(score - largest). */
typedef struct running {
    float max, sum;
} running;

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* The scores of `count` rows join the running softmax: they become weights, and what was summed before shrinks. */
static float join(running *r, float *scores, uint32_t count) {
    float max = r->max, sum = 0;
    for (uint32_t i = 0; i < count; i++) max = fmaxf(max, scores[i]);
    for (uint32_t i = 0; i < count; i++) sum += scores[i] = expf(scores[i] - max);
    float shrink = r->max == -INFINITY ? 0 : expf(r->max - max);
    r->sum = r->sum * shrink + sum;
    r->max = max;
    return shrink;
}

static void scale_row(float *x, float by, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) x[i] *= by;
}

/* One call's memory in the scratch: what does not depend on the form comes first. */
typedef struct places {
    running *state;      /* (tokens, heads) */
    float *latent, *sum; /* absorbed: (tokens, heads, rank) each */
    float *tiles;        /* for each part of the work: a tile of rows, of keys and of values */
} places;

static uint64_t tile_floats(const lar_attention_shape *s) {
    return (uint64_t)LAR_ATTENTION_TILE * (s->rank + s->rope + s->nope + s->value);
}

uint64_t lar_attention_scratch(const lar_attention_shape *s, uint32_t tokens) {
    uint64_t absorbed = least(tokens, LAR_ATTENTION_ABSORB_TOKENS);
    return (uint64_t)tokens * s->heads * sizeof(running) + absorbed * s->heads * s->rank * 2 * sizeof(float) +
           tile_floats(s) * sizeof(float);
}

static places place(const lar_attention *a) {
    const lar_attention_shape *s = &a->shape;
    places p = {.state = (running *)(void *)a->scratch};
    p.latent = (float *)(void *)(p.state + (uint64_t)a->tokens * s->heads);
    uint64_t absorbed = (uint64_t)least(a->tokens, LAR_ATTENTION_ABSORB_TOKENS) * s->heads * s->rank;
    p.sum = p.latent + absorbed;
    p.tiles = p.sum + absorbed;
    for (uint64_t i = 0; i < (uint64_t)a->tokens * s->heads; i++) p.state[i] = (running){-INFINITY, 0};
    return p;
}

/* -- absorbed ---------------------------------------------------------------------------------------------------- */

/* One query, all its heads, one tile of rows. */
static void absorb_tile(const lar_attention *a, const places *p, uint32_t token, const float *rows, uint32_t count) {
    const lar_attention_shape *s = &a->shape;
    const lar_vectors *v = lar_vectors_best();
    uint32_t row = s->rank + s->rope, head = s->nope + s->rope;
    float scores[LAR_ATTENTION_TILE];
    for (uint32_t h = 0; h < s->heads; h++) {
        uint64_t at = (uint64_t)token * s->heads + h;
        const float *latent = p->latent + at * s->rank, *rotated = a->query + at * head + s->nope;
        float *sum = p->sum + at * s->rank;
        for (uint32_t i = 0; i < count; i++) {
            const float *x = rows + (uint64_t)i * row;
            scores[i] = s->scale * (v->dot(latent, x, s->rank) + v->dot(rotated, x + s->rank, s->rope));
        }
        scale_row(sum, join(&p->state[at], scores, count), s->rank);
        for (uint32_t i = 0; i < count; i++) v->add_scaled(sum, rows + (uint64_t)i * row, scores[i], s->rank);
    }
}

static void absorb(const lar_attention *a, const lar_run *run) {
    const lar_attention_shape *s = &a->shape;
    places p = place(a);
    uint64_t head = s->nope + s->rope;
    lar_product up = {a->key_absorb,   s->heads, a->tokens, a->query,
                      s->heads * head, head,     p.latent,  (uint64_t)s->heads * s->rank,
                      s->rank};
    lar_matmul(&up, run);
    memset(p.sum, 0, (uint64_t)a->tokens * s->heads * s->rank * sizeof(float));
    uint32_t end = a->first + a->tokens;
    for (uint32_t from = 0; from < end; from += LAR_ATTENTION_TILE) {
        uint32_t count = least(end - from, LAR_ATTENTION_TILE);
        const float *rows = a->latents.rows(&a->latents, from, count, p.tiles);
        for (uint32_t t = from > a->first ? from - a->first : 0; t < a->tokens; t++)
            absorb_tile(a, &p, t, rows, least(count, a->first + t + 1 - from));
    }
    for (uint64_t i = 0; i < (uint64_t)a->tokens * s->heads; i++)
        scale_row(p.sum + i * s->rank, 1.0f / p.state[i].sum, s->rank);
    lar_product down = {a->value_up,
                        s->heads,
                        a->tokens,
                        p.sum,
                        (uint64_t)s->heads * s->rank,
                        s->rank,
                        a->out,
                        (uint64_t)s->heads * s->value,
                        s->value};
    lar_matmul(&down, run);
}

/* -- expanded ---------------------------------------------------------------------------------------------------- */

typedef struct tile {
    const float *rows, *keys, *values; /* (count, rank + rope), (count, nope), (count, value) */
    uint32_t from, count;
} tile;

/* All queries of one head that see the tile. */
static void expand_tile(const lar_attention *a, const places *p, uint32_t h, const tile *k) {
    const lar_attention_shape *s = &a->shape;
    const lar_vectors *v = lar_vectors_best();
    uint32_t row = s->rank + s->rope;
    float scores[LAR_ATTENTION_TILE];
    for (uint32_t t = k->from > a->first ? k->from - a->first : 0; t < a->tokens; t++) {
        uint32_t seen = least(k->count, a->first + t + 1 - k->from);
        uint64_t at = (uint64_t)t * s->heads + h;
        const float *q = a->query + at * (s->nope + s->rope);
        float *out = a->out + at * s->value;
        for (uint32_t i = 0; i < seen; i++)
            scores[i] = s->scale * (v->dot(q, k->keys + (uint64_t)i * s->nope, s->nope) +
                                    v->dot(q + s->nope, k->rows + (uint64_t)i * row + s->rank, s->rope));
        scale_row(out, join(&p->state[at], scores, seen), s->value);
        for (uint32_t i = 0; i < seen; i++) v->add_scaled(out, k->values + (uint64_t)i * s->value, scores[i], s->value);
    }
}

static void expand(const lar_attention *a, const lar_run *run) {
    const lar_attention_shape *s = &a->shape;
    places p = place(a);
    uint32_t end = a->first + a->tokens, row = s->rank + s->rope;
    float *keys = p.tiles + (uint64_t)LAR_ATTENTION_TILE * row, *values = keys + (uint64_t)LAR_ATTENTION_TILE * s->nope;
    memset(a->out, 0, (uint64_t)a->tokens * s->heads * s->value * sizeof(float));
    for (uint32_t from = 0; from < end; from += LAR_ATTENTION_TILE) {
        tile k = {.from = from, .count = least(end - from, LAR_ATTENTION_TILE), .keys = keys, .values = values};
        k.rows = a->latents.rows(&a->latents, from, k.count, p.tiles);
        for (uint32_t h = 0; h < s->heads; h++) {
            lar_matmul(&(lar_product){&a->key_expand[h], 1, k.count, k.rows, row, 0, keys, s->nope, 0}, run);
            lar_matmul(&(lar_product){&a->value_up[h], 1, k.count, k.rows, row, 0, values, s->value, 0}, run);
            expand_tile(a, &p, h, &k);
        }
    }
    for (uint64_t i = 0; i < (uint64_t)a->tokens * s->heads; i++)
        scale_row(a->out + i * s->value, 1.0f / p.state[i].sum, s->value);
}

void lar_attend(const lar_attention *a, lar_attention_form form, const lar_run *run) {
    if (form == LAR_ATTENTION_BY_LENGTH)
        form = a->tokens >= LAR_ATTENTION_EXPAND_FROM ? LAR_ATTENTION_EXPANDED : LAR_ATTENTION_ABSORBED;
    if (form == LAR_ATTENTION_EXPANDED) {
        expand(a, run);
        return;
    }
    uint64_t query = (uint64_t)a->shape.heads * (a->shape.nope + a->shape.rope);
    for (uint32_t done = 0; done < a->tokens; done += LAR_ATTENTION_ABSORB_TOKENS) {
        lar_attention some = *a;
        some.first += done;
        some.tokens = least(a->tokens - done, LAR_ATTENTION_ABSORB_TOKENS);
        some.query += done * query;
        some.out += (uint64_t)done * a->shape.heads * a->shape.value;
        absorb(&some, run);
    }
}
