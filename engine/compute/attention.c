/* Multi-head latent attention, absorbed and expanded, over rows that an accessor gives.
 * Flow: engine/model/forward.c calls; vectors.c and the matrix products compute. Blocks while it computes.
 * Threads: a worker has fixed heads. Why running softmax: scratch does not grow with the context, and a tile of rows is
 * decoded once for all heads of a worker.
 * Memory: the caller's scratch.
 * Invariant: a query at position p reads rows 0 to p; its sums do not depend on the queries beside it. */
#include "engine/compute/attention.h"

#include <math.h>
#include <string.h>

#include "base/ensure.h"
#include "engine/compute/vectors.h"
#include "engine/compute/workers.h"

enum { GROUP = 16 }; /* queries whose scores are computed together */

/* Of one query and head: the largest score so far, and the sum of exp(score - largest). */
typedef struct running {
    float max, sum;
} running;

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* The scores of `seen` rows of a tile of `count` join the running softmax: they become weights, and what was summed
 * before shrinks by the answer. */
static float join(running *r, float *scores, uint32_t seen, uint32_t count, float scale) {
    float max = r->max;
    for (uint32_t i = seen; i < count; i++) scores[i] = -INFINITY;
    float sum = lar_vectors_best()->weigh(scores, count, scale, &max);
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
    float *rooms;        /* (workers): room for a tile of rows */
    float *keys;         /* expanded: (heads, tile, nope) */
    float *values;       /* expanded: (heads, tile, value) */
} places;

static uint64_t room_floats(const lar_attention_shape *s) { return (uint64_t)LAR_ATTENTION_TILE * (s->rank + s->rope); }

uint64_t lar_attention_scratch(const lar_attention_shape *s, uint32_t tokens, uint32_t workers) {
    uint64_t absorbed = (uint64_t)least(tokens, LAR_ATTENTION_ABSORB_TOKENS) * s->heads * s->rank * 2;
    uint64_t expanded = (uint64_t)LAR_ATTENTION_TILE * s->heads * (s->nope + s->value);
    return (uint64_t)tokens * s->heads * sizeof(running) +
           (absorbed + expanded + workers * room_floats(s)) * sizeof(float);
}

/* A call's, or where that is done in several goes, one of them. */
typedef struct job {
    const lar_attention *a;
    const lar_run *run;
    places p;
    uint32_t tokens, workers;
    const lar_attention_part *part; /* expanded: the sequence */
    uint32_t from, count;           /* expanded: the tile */
    const float *rows;              /* expanded: its rows, (count, rank + rope) */
} job;

static job job_of(const lar_attention *a, const lar_run *run) {
    const lar_attention_shape *s = &a->shape;
    job j = {.a = a, .run = run, .workers = run->workers ? lar_workers_count(run->workers) : 1};
    for (uint32_t i = 0; i < a->count; i++) j.tokens += a->parts[i].tokens;
    uint64_t absorbed = (uint64_t)least(j.tokens, LAR_ATTENTION_ABSORB_TOKENS) * s->heads * s->rank;
    j.p.state = (running *)(void *)a->scratch;
    j.p.latent = (float *)(void *)(j.p.state + (uint64_t)j.tokens * s->heads);
    j.p.sum = j.p.latent + absorbed;
    j.p.rooms = j.p.sum + absorbed;
    j.p.keys = j.p.rooms + j.workers * room_floats(s);
    j.p.values = j.p.keys + (uint64_t)LAR_ATTENTION_TILE * s->heads * s->nope;
    for (uint64_t i = 0; i < (uint64_t)j.tokens * s->heads; i++) j.p.state[i] = (running){-INFINITY, 0};
    return j;
}

static void run_parts(const lar_run *run, lar_workers_work work, job *j) {
    if (run->workers) lar_workers_run(run->workers, work, j);
    else work(j, 0, 1);
}

/* Up to GROUP queries against a tile of rows. */
typedef struct group {
    lar_dots dots; /* without out and keys */
    lar_mix mix;   /* without weight, queries and keys */
    running *state;
    uint64_t state_row;
    uint32_t seen, more; /* rows that the first query sees; each next one sees `more` more */
} group;

static void add_group(const group *g, uint32_t count, float scale) {
    const lar_vectors *v = lar_vectors_best();
    float scores[GROUP * LAR_ATTENTION_TILE];
    lar_dots dots = g->dots;
    lar_mix mix = g->mix;
    dots.out = scores, mix.weight = scores;
    dots.out_row = mix.weight_row = LAR_ATTENTION_TILE;
    dots.keys = mix.keys = least(count, g->seen + g->more * (dots.queries - 1));
    mix.queries = dots.queries;
    v->dots(&dots);
    for (uint32_t i = 0; i < dots.queries; i++) {
        float *row = scores + i * LAR_ATTENTION_TILE;
        float shrink = join(&g->state[i * g->state_row], row, least(count, g->seen + g->more * i), mix.keys, scale);
        scale_row(mix.out + i * mix.out_row, shrink, mix.n);
    }
    v->mix(&mix);
}

/* -- absorbed ---------------------------------------------------------------------------------------------------- */

/* One query, its heads from `h` to before `end`, one tile of rows. */
static void absorb_tile(const job *j, uint32_t token, uint32_t h, uint32_t end, const group *tile) {
    const lar_attention_shape *s = &j->a->shape;
    for (; h < end; h += GROUP) {
        uint64_t at = (uint64_t)token * s->heads + h, head = s->nope + s->rope;
        group g = *tile;
        g.dots.queries = least(end - h, GROUP);
        g.dots.parts[0].query = j->p.latent + at * s->rank, g.dots.parts[0].query_row = s->rank;
        g.dots.parts[1].query = j->a->query + at * head + s->nope, g.dots.parts[1].query_row = head;
        g.mix.out = j->p.sum + at * s->rank, g.mix.out_row = s->rank;
        g.state = j->p.state + at, g.state_row = 1;
        add_group(&g, tile->seen, s->scale);
    }
}

/* A tile of rows, as the absorbed form reads it. */
static group tile_of(const lar_attention_shape *s, const lar_latents *l, uint32_t from, uint32_t count, float *room) {
    bool kept = l->form == LAR_ROWS_BF16;
    uint64_t row = s->rank + s->rope, rank_bytes = s->rank * (kept ? sizeof(uint16_t) : sizeof(float));
    const void *rows = kept ? (const void *)l->kept(l, from) : l->rows(l, from, count, room);
    return (group){.dots.parts = {{.key = rows, .key_row = row, .n = s->rank},
                                  {.key = (const uint8_t *)rows + rank_bytes, .key_row = row, .n = s->rope}},
                   .dots.form = l->form,
                   .mix = {.value = rows, .value_row = row, .n = s->rank, .form = l->form}};
}

/* What one worker does: heads from `begin` to before `end`. It fetches `then` when so many rows of the last part are
 * left that it is done by the end: earlier it would be gone from the cache again. */
typedef struct own_heads {
    uint32_t begin, end;
    float *room;
    lar_ahead then;
    const lar_attention_part *last;
    uint64_t then_rows;
} own_heads;

/* All tiles of a part's rows; its first query is number `token`. The next tile is fetched while one is used. */
static void absorb_rows(const job *j, const lar_attention_part *part, uint32_t token, own_heads *h) {
    const lar_latents *l = &part->latents;
    uint32_t all = part->first + part->tokens;
    for (uint32_t from = 0; from < all; from += LAR_ATTENTION_TILE) {
        uint32_t count = least(all - from, LAR_ATTENTION_TILE), next = from + LAR_ATTENTION_TILE;
        lar_ahead ahead = {0};
        if (next < all) {
            ahead.at = l->kept(l, next);
            ahead.end = ahead.at + (uint64_t)least(all - next, LAR_ATTENTION_TILE) * l->row_bytes;
        }
        group g = tile_of(&j->a->shape, l, from, count, h->room);
        lar_ahead *then = part == h->last && all - from <= h->then_rows ? &h->then : &ahead;
        g.dots.ahead = ahead.at ? &ahead : then, g.mix.ahead = then;
        for (uint32_t t = from > part->first ? from - part->first : 0; t < part->tokens; t++) {
            g.seen = least(count, part->first + t + 1 - from);
            absorb_tile(j, token + t, h->begin, h->end, &g);
        }
    }
}

static lar_ahead share_of(const lar_ahead *all, uint32_t worker, uint32_t workers) {
    uint64_t begin, end;
    if (!all->at) return *all;
    lar_workers_share((uint64_t)(all->end - all->at), worker, workers, &begin, &end);
    return (lar_ahead){all->at + begin, all->at + end};
}

static own_heads own_heads_of(const job *j, uint32_t worker, uint32_t workers) {
    const lar_attention *a = j->a;
    uint64_t begin, end;
    lar_workers_share(a->shape.heads, worker, workers, &begin, &end);
    own_heads h = {(uint32_t)begin,
                   (uint32_t)end,
                   j->p.rooms + worker * room_floats(&a->shape),
                   share_of(&a->then, worker, workers),
                   a->parts + a->count - 1,
                   0};
    uint64_t row_products = (end - begin) * a->shape.rank; /* of a mix, which is when most of it is fetched */
    if (h.then.at && row_products)
        h.then_rows = (uint64_t)(h.then.end - h.then.at) / LAR_AHEAD_LINE * LAR_AHEAD_PRODUCTS / row_products +
                      LAR_ATTENTION_TILE;
    return h;
}

/* What one worker's products need. */
static uint64_t worker_workspace(const lar_attention *a, uint32_t tokens, uint32_t workers) {
    uint32_t heads = (a->shape.heads + workers - 1) / workers;
    uint64_t up = lar_matmul_workspace(a->key_absorb, heads, tokens);
    uint64_t down = lar_matmul_workspace(a->value_up, heads, tokens);
    return ((up > down ? up : down) + 63) / 64 * 64;
}

uint64_t lar_attention_workspace(const lar_attention *a, uint32_t tokens, uint32_t workers) {
    return worker_workspace(a, least(tokens, LAR_ATTENTION_ABSORB_TOKENS), workers) * workers;
}

/* A worker's heads from query to value: none of it needs another's, so nobody waits in between. */
static void absorb_heads(void *context, uint32_t worker, uint32_t workers) {
    const job *j = context;
    const lar_attention *a = j->a;
    const lar_attention_shape *s = &a->shape;
    own_heads h = own_heads_of(j, worker, workers);
    uint64_t begin = h.begin, end = h.end, head = s->nope + s->rope, rank = s->rank, all = s->heads;
    if (begin == end) return;
    uint32_t count = (uint32_t)(end - begin), token = 0;
    lar_run alone = {.workspace_bytes = worker_workspace(a, j->tokens, workers)};
    alone.workspace = (uint8_t *)j->run->workspace + worker * alone.workspace_bytes;
    float *latent = j->p.latent + begin * rank, *sum = j->p.sum + begin * rank;
    lar_matmul(&(lar_product){a->key_absorb + begin, count, j->tokens, a->query + begin * head, all * head, head,
                              latent, all * rank, rank},
               &alone);
    for (uint64_t t = 0; t < j->tokens; t++) memset(sum + t * all * rank, 0, count * rank * sizeof *sum);
    for (uint32_t i = 0; i < a->count; token += a->parts[i++].tokens) absorb_rows(j, &a->parts[i], token, &h);
    for (uint64_t t = 0; t < j->tokens; t++)
        for (uint64_t i = begin; i < end; i++)
            scale_row(j->p.sum + (t * all + i) * rank, 1.0f / j->p.state[t * all + i].sum, s->rank);
    lar_matmul(&(lar_product){a->value_up + begin, count, j->tokens, sum, all * rank, rank, a->out + begin * s->value,
                              all * s->value, s->value},
               &alone);
}

static void absorb(const lar_attention *a, const lar_run *run) {
    job j = job_of(a, run);
    LAR_ASSERT(run->workspace_bytes >= lar_attention_workspace(a, j.tokens, j.workers));
    run_parts(run, absorb_heads, &j);
}

/* -- expanded ---------------------------------------------------------------------------------------------------- */

/* All queries of one head that see the tile. */
static void expand_head(const job *j, uint32_t h) {
    const lar_attention *a = j->a;
    const lar_attention_shape *s = &a->shape;
    uint64_t head = s->nope + s->rope, heads = s->heads;
    group g = {.dots.parts = {{.key_row = s->nope, .n = s->nope, .query_row = heads * head},
                              {.key_row = s->rank + s->rope, .n = s->rope, .query_row = heads * head}},
               .mix = {.value_row = s->value, .n = s->value, .out_row = heads * s->value},
               .state_row = heads,
               .more = 1};
    g.dots.parts[0].key = j->p.keys + (uint64_t)h * LAR_ATTENTION_TILE * s->nope;
    g.dots.parts[1].key = j->rows + s->rank;
    g.mix.value = j->p.values + (uint64_t)h * LAR_ATTENTION_TILE * s->value;
    const lar_attention_part *part = j->part;
    for (uint32_t t = j->from > part->first ? j->from - part->first : 0; t < part->tokens; t += GROUP) {
        uint64_t at = t * heads + h;
        g.dots.queries = least(part->tokens - t, GROUP);
        g.seen = part->first + t + 1 - j->from;
        g.dots.parts[0].query = a->query + at * head, g.dots.parts[1].query = g.dots.parts[0].query + s->nope;
        g.mix.out = a->out + at * s->value;
        g.state = j->p.state + at;
        add_group(&g, j->count, s->scale);
    }
}

static void expand_heads(void *context, uint32_t worker, uint32_t workers) {
    const job *j = context;
    uint64_t begin, end;
    lar_workers_share(j->a->shape.heads, worker, workers, &begin, &end);
    for (uint64_t h = begin; h < end; h++) expand_head(j, (uint32_t)h);
}

/* The one part of `a`. */
static void expand(const lar_attention *a, const lar_run *run) {
    const lar_attention_shape *s = &a->shape;
    const lar_latents *l = &a->parts->latents;
    job j = job_of(a, run);
    uint32_t end = a->parts->first + j.tokens, row = s->rank + s->rope;
    j.part = a->parts;
    memset(a->out, 0, (uint64_t)j.tokens * s->heads * s->value * sizeof(float));
    for (j.from = 0; j.from < end; j.from += LAR_ATTENTION_TILE) {
        j.count = least(end - j.from, LAR_ATTENTION_TILE);
        j.rows = l->rows(l, j.from, j.count, j.p.rooms);
        lar_matmul(&(lar_product){a->key_expand, s->heads, j.count, j.rows, row, 0, j.p.keys, s->nope,
                                  (uint64_t)LAR_ATTENTION_TILE * s->nope},
                   run);
        lar_matmul(&(lar_product){a->value_up, s->heads, j.count, j.rows, row, 0, j.p.values, s->value,
                                  (uint64_t)LAR_ATTENTION_TILE * s->value},
                   run);
        run_parts(run, expand_heads, &j);
    }
    for (uint64_t i = 0; i < (uint64_t)j.tokens * s->heads; i++)
        scale_row(a->out + i * s->value, 1.0f / j.p.state[i].sum, s->value);
}

/* -- both -------------------------------------------------------------------------------------------------------- */

static bool expands(const lar_attention_part *part, lar_attention_form form) {
    return form == LAR_ATTENTION_EXPANDED ||
           (form == LAR_ATTENTION_BY_LENGTH && part->tokens >= LAR_ATTENTION_EXPAND_FROM);
}

/* What is done together: `a` with parts of its own. */
typedef struct go {
    lar_attention a;
    lar_attention_part parts[LAR_ATTENTION_PARTS];
    uint32_t tokens;
} go;

/* Queries from number `token` on. */
static void begin_go(go *g, const lar_attention *a, uint64_t token) {
    const lar_attention_shape *s = &a->shape;
    g->a = *a;
    g->a.parts = g->parts, g->a.then = (lar_ahead){0};
    g->a.count = g->tokens = 0;
    g->a.query += token * s->heads * (s->nope + s->rope);
    g->a.out += token * s->heads * s->value;
}

static void add_to_go(go *g, const lar_attention_part *part, uint32_t from, uint32_t tokens) {
    g->parts[g->a.count++] = (lar_attention_part){part->latents, part->first + from, tokens};
    g->tokens += tokens;
}

static void end_go(const go *g, const lar_run *run) {
    if (g->tokens) absorb(&g->a, run);
}

void lar_attend(const lar_attention *a, lar_attention_form form, const lar_run *run) {
    go g;
    uint64_t token = 0; /* those before it are done, or in `g` */
    LAR_ASSERT(a->count <= LAR_ATTENTION_PARTS);
    begin_go(&g, a, token);
    for (const lar_attention_part *part = a->parts; part < a->parts + a->count; part++) {
        if (part->tokens && expands(part, form)) {
            end_go(&g, run);
            begin_go(&g, a, token);
            add_to_go(&g, part, 0, part->tokens);
            expand(&g.a, run);
            begin_go(&g, a, token += part->tokens);
            continue;
        }
        for (uint32_t from = 0, some; from < part->tokens; from += some) {
            if (g.tokens == LAR_ATTENTION_ABSORB_TOKENS) end_go(&g, run), begin_go(&g, a, token);
            some = least(part->tokens - from, LAR_ATTENTION_ABSORB_TOKENS - g.tokens);
            add_to_go(&g, part, from, some);
            token += some;
        }
    }
    g.a.then = a->then;
    end_go(&g, run);
}
