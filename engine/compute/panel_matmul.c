/* Matrix products over repacked weights: gives the tiles of panels.h to the kernels of one path.
 * Flow: matmul.c calls; panels.c repacks; kernels_*.c compute; workers.c runs the shares. Blocks while it computes.
 * Threads: an item has CHUNK panels (rows of W) and so columns of y that nobody else writes, whoever does it. What all
 * read (rounded x) is complete before any of them starts: every phase is a work of its own. Products that do not need
 * each other are one work, and small phases are done by the caller alone: cheaper than waking anyone.
 * Why tiles: 16 tokens share the unpacking of a block, and lie so that a kernel reads them in one stream.
 * Memory: prepare allocates; products use the workspace: rounded x, and for experts their hidden values. */
#include "engine/compute/panel_matmul.h"

#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "engine/compute/panels.h"
#include "engine/compute/workers.h"

/* CHUNK panels are given to a kernel at once. ALONE: values that the caller rounds alone. */
enum { ROWS = LAR_PANEL_ROWS, TILE = LAR_TILE_TOKENS, CHUNK = 4, ALONE = 20480 };

typedef struct path {
    lar_tile_kernel int8, floats;
    void (*round_block)(const float x[LAR_BLOCK], lar_int8_block *out);
    void (*silu)(const float *gate, const float *up, float *out, uint32_t n);
} path;

static const path paths[LAR_CPU_COUNT] = {
    [LAR_CPU_SCALAR] = {lar_tile_int8_scalar, lar_tile_float_scalar, lar_int8_block_scalar, lar_silu_scalar},
#if defined(__x86_64__)
    [LAR_CPU_AVX2] = {lar_tile_int8_avx2, lar_tile_float_avx2, lar_int8_block_avx2, lar_silu_avx2},
    [LAR_CPU_AVX512] = {lar_tile_int8_avx512, lar_tile_float_avx512, lar_int8_block_avx512, lar_silu_avx512},
#endif
};

static const path *path_of(const lar_matrix *m) {
    for (int i = 0; i < LAR_CPU_COUNT; i++)
        if (m->kernels == lar_kernels_panels((lar_cpu)i)) return &paths[i];
    LAR_UNREACHABLE("a matrix of other kernels");
}

static void run_parts(const lar_run *run, lar_workers_work work, void *context) {
    if (run->workers) lar_workers_run(run->workers, work, context);
    else work(context, 0, 1);
}

static void run_items(const lar_run *run, uint64_t items, lar_workers_item work, void *context) {
    if (run->workers) lar_workers_each(run->workers, items, work, context);
    else
        for (uint64_t i = 0; i < items; i++) work(context, i);
}

static uint32_t parts_of(const lar_run *run) { return run->workers ? lar_workers_count(run->workers) : 1; }

static uint64_t round_64(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

/* -- preparing ------------------------------------------------------------------------------------------------- */

static lar_error prepare(lar_matrix *m, lar_diag *d) {
    lar_panels *p = NULL;
    lar_error e = lar_panels_new(m->rows.tensor, m->rows.first, m->out, &p, d);
    if (e) return e;
    m->packed = p;
    m->packed_bytes = lar_panels_bytes(p->type, p->rows, p->columns);
    return LAR_OK;
}

static void release(lar_matrix *m) { free(m->packed); }

static uint64_t packed_size(const lar_matrix *m) { return lar_panels_room(m->rows.tensor->type, m->out, m->in); }

static lar_error pack(lar_matrix *m, const lar_packing *how, lar_diag *d) {
    lar_panels *p = lar_panels_place(how->values->type, m->out, m->in, how->memory);
    lar_error e = lar_panels_fill(p, &(lar_rows_source){how->values, how->first, how->workers}, d);
    m->packed = e ? NULL : p;
    m->packed_bytes = e ? 0 : lar_panels_bytes(p->type, p->rows, p->columns);
    return e;
}

/* -- x in tiles ------------------------------------------------------------------------------------------------ */

static bool rounds_to_int8(const lar_matrix *m) {
    return m->activations == LAR_ACTIVATIONS_INT8 && lar_panel_is_integer(m->rows.tensor->type);
}

/* Bytes of one token's x in the form that m's kernel reads: a tile of n tokens is n times as much. */
static uint64_t x_bytes(const lar_matrix *m) {
    if (rounds_to_int8(m)) return (uint64_t)m->in / LAR_BLOCK * sizeof(lar_int8_block);
    return ((uint64_t)m->in + m->in % 2) * sizeof(float);
}

/* Where the rows of x come from: row i is x[(token ? token[i] : i) * row]. */
typedef struct source {
    const float *x;
    uint64_t row;
    const uint32_t *token;
} source;

static const float *row_at(const source *s, uint32_t i) { return s->x + (s->token ? s->token[i] : i) * s->row; }

/* Rows [first, first + n) as a tile of floats, rounded as m says. */
static void fill_floats(const lar_matrix *m, const source *s, uint32_t first, uint32_t n, float *tile) {
    float some[4 * LAR_BLOCK];
    for (uint32_t t = 0; t < n; t++) {
        const float *x = row_at(s, first + t);
        for (uint32_t at = 0; at < m->in; at += 4 * LAR_BLOCK) {
            uint32_t count = m->in - at < 4 * LAR_BLOCK ? m->in - at : 4 * LAR_BLOCK;
            memcpy(some, x + at, count * sizeof *some);
            lar_activations_round(m->activations, some, count);
            for (uint32_t i = 0; i < count; i++) tile[(uint64_t)(at + i) * n + t] = some[i];
        }
        if (m->in % 2) tile[(uint64_t)m->in * n + t] = 0;
    }
}

static void fill_tile(const lar_matrix *m, const source *s, uint32_t first, uint32_t n, void *tile) {
    if (!rounds_to_int8(m)) {
        fill_floats(m, s, first, n, tile);
        return;
    }
    lar_int8_block *blocks = tile;
    const path *p = path_of(m);
    for (uint32_t t = 0; t < n; t++) {
        const float *x = row_at(s, first + t);
        for (uint32_t b = 0; b < m->in / LAR_BLOCK; b++)
            p->round_block(x + (uint64_t)b * LAR_BLOCK, &blocks[(uint64_t)b * n + t]);
    }
}

/* -- one matrix over some of its panels ------------------------------------------------------------------------ */

/* Panels [begin, begin + count), count <= CHUNK, for one tile of n tokens: y (count, n, 16). */
static void multiply_tile(const lar_matrix *m, uint64_t begin, uint32_t count, const lar_tile *x, float *y) {
    const lar_panels *p = m->packed;
    lar_tile t = {.type = p->type,
                  .columns = p->columns,
                  .tokens = x->tokens,
                  .panels = count,
                  .data = p->data + begin * p->panel_step,
                  .panel_step = p->panel_step,
                  .x = x->x,
                  .y = y};
    const path *kernels = path_of(m);
    if (rounds_to_int8(m)) kernels->int8(&t);
    else kernels->floats(&t);
}

static uint32_t rows_of_panel(uint32_t out, uint64_t panel) {
    uint64_t left = out - panel * ROWS;
    return left < ROWS ? (uint32_t)left : ROWS;
}

static uint32_t tile_of(uint32_t first, uint32_t tokens) { return tokens - first < TILE ? tokens - first : TILE; }

/* -- products -------------------------------------------------------------------------------------------------- */

typedef struct product_job {
    const lar_product *p;
    uint8_t *x;                     /* (inputs, tokens, x_bytes) */
    uint64_t each;                  /* x_bytes */
    uint32_t inputs;                /* 1 where all matrices have one x, else as many as matrices */
    uint32_t panels, piece, pieces; /* of one matrix: panels of an item, items */
    uint64_t first_item;
} product_job;

typedef struct product_set {
    product_job jobs[LAR_PRODUCTS_MAX];
    uint32_t count;
} product_set;

static uint64_t workspace(const lar_matrix *m, uint32_t count, uint32_t tokens) {
    return round_64(x_bytes(m) * count * tokens);
}

static void fill_products(void *context, uint32_t part, uint32_t parts) {
    const product_set *s = context;
    uint32_t turn = 0;
    for (const product_job *j = s->jobs; j < s->jobs + s->count; j++)
        for (uint32_t i = 0; i < j->inputs; i++)
            for (uint32_t t = 0; t < j->p->tokens; t += TILE)
                if (turn++ % parts == part)
                    fill_tile(&j->p->matrices[i], &(source){j->p->x + i * j->p->x_step, j->p->x_row, NULL}, t,
                              tile_of(t, j->p->tokens), j->x + ((uint64_t)i * j->p->tokens + t) * j->each);
}

/* The tile of tokens from `t` on against `count` panels of matrix i, to their places in y. */
static void product_tile(const product_job *j, uint32_t i, uint64_t panel, uint32_t count, uint32_t t) {
    const lar_product *p = j->p;
    float sums[CHUNK * TILE * ROWS];
    lar_tile x = {.tokens = tile_of(t, p->tokens), .x = j->x + ((uint64_t)(i % j->inputs) * p->tokens + t) * j->each};
    multiply_tile(&p->matrices[i], panel, count, &x, sums);
    const float *from = sums;
    for (uint32_t k = 0; k < count; k++)
        for (uint32_t n = 0; n < x.tokens; n++, from += ROWS)
            memcpy(p->y + i * p->y_step + (t + n) * p->y_row + (panel + k) * ROWS, from,
                   rows_of_panel(p->matrices[i].out, panel + k) * sizeof *from);
}

static void product_item(void *context, uint64_t item) {
    const product_set *s = context;
    const product_job *j = s->jobs + s->count - 1;
    while (item < j->first_item) j--;
    item -= j->first_item;
    uint64_t panel = item % j->pieces * j->piece, end = panel + j->piece;
    if (end > j->panels) end = j->panels;
    for (uint32_t t = 0; t < j->p->tokens; t += TILE)
        product_tile(j, (uint32_t)(item / j->pieces), panel, (uint32_t)(end - panel), t);
}

static product_job product_job_of(const lar_product *p, uint32_t parts, void *x) {
    product_job j = {p, x, x_bytes(p->matrices), p->x_step ? p->count : 1, 0, CHUNK, 0, 0};
    j.panels = ((const lar_panels *)p->matrices->packed)->panels;
    uint64_t share = (uint64_t)j.panels * p->count / parts;
    if (share < CHUNK) j.piece = share ? (uint32_t)share : 1; /* a small one is still shared */
    j.pieces = (j.panels + j.piece - 1) / j.piece;
    return j;
}

static void products(const lar_product *p, uint32_t count, const lar_run *run) {
    product_set s = {.count = count};
    uint64_t used = 0, items = 0, values = 0;
    for (uint32_t i = 0; i < count; i++) {
        product_job *j = &s.jobs[i];
        *j = product_job_of(&p[i], parts_of(run), (uint8_t *)run->workspace + used);
        j->first_item = items;
        items += (uint64_t)j->pieces * p[i].count;
        used += workspace(p[i].matrices, p[i].count, p[i].tokens);
        values += (uint64_t)p[i].matrices->in * j->inputs * p[i].tokens;
    }
    LAR_ASSERT(run->workspace_bytes >= used);
    if (values <= ALONE) fill_products(&s, 0, 1);
    else run_parts(run, fill_products, &s);
    run_items(run, items, product_item, &s);
}

/* -- experts --------------------------------------------------------------------------------------------------- */

typedef struct mlp_run {
    const lar_mlp_job *job;
    const path *kernels;
    uint32_t hidden, width;
    /* (picks, bytes of one x). up_x is gate_x where both matrices read one form. */
    uint8_t *gate_x, *up_x, *down_x;
    uint64_t gate_each, up_each, down_each;
    float *inner; /* (picks, width): silu(gate) * up */
    uint64_t first_item;
    uint32_t pieces; /* of a gate */
} mlp_run;

/* A job, and what comes then. */
typedef struct mlp_set {
    mlp_run runs[2];
    uint32_t count;
} mlp_set;

static bool one_form(const lar_mlp *m) {
    return rounds_to_int8(&m->gate) == rounds_to_int8(&m->up) && m->gate.activations == m->up.activations;
}

static uint64_t mlp_workspace(const lar_mlp *m, uint32_t count, uint32_t picks) {
    (void)count;
    uint64_t each = x_bytes(&m->gate) + (one_form(m) ? 0 : x_bytes(&m->up)) + x_bytes(&m->down);
    return round_64(picks * (each + m->gate.out * sizeof(float)));
}

/* Does `fill` for every tile of every expert that is this part's turn. */
static void each_tile(const mlp_set *s, uint32_t part, uint32_t parts,
                      void (*fill)(const mlp_run *r, const lar_mlp *m, uint32_t pick, uint32_t n)) {
    uint32_t turn = 0;
    for (const mlp_run *r = s->runs; r < s->runs + s->count; r++)
        for (uint32_t e = 0; e < r->job->count; e++)
            for (uint32_t pick = r->job->starts[e]; pick < r->job->starts[e + 1]; pick += TILE)
                if (turn++ % parts == part) fill(r, &r->job->mlps[e], pick, tile_of(pick, r->job->starts[e + 1]));
}

static void fill_x(const mlp_run *r, const lar_mlp *m, uint32_t pick, uint32_t n) {
    source s = {r->job->x, r->hidden, r->job->token};
    fill_tile(&m->gate, &s, pick, n, r->gate_x + pick * r->gate_each);
    if (r->up_x != r->gate_x) fill_tile(&m->up, &s, pick, n, r->up_x + pick * r->up_each);
}

static void fill_inner(const mlp_run *r, const lar_mlp *m, uint32_t pick, uint32_t n) {
    fill_tile(&m->down, &(source){r->inner, r->width, NULL}, pick, n, r->down_x + pick * r->down_each);
}

static void fill_x_part(void *context, uint32_t part, uint32_t parts) { each_tile(context, part, parts, fill_x); }
static void fill_inner_part(void *context, uint32_t part, uint32_t parts) {
    each_tile(context, part, parts, fill_inner);
}

/* gate and up of the tile of picks from `pick` on, over `count` panels, to their places in `inner`. */
static void gate_up_tile(const mlp_run *r, const lar_mlp *m, uint64_t panel, uint32_t count, const uint32_t picks[2]) {
    float gate[CHUNK * TILE * ROWS], up[CHUNK * TILE * ROWS];
    uint32_t n = tile_of(picks[0], picks[1]);
    multiply_tile(&m->gate, panel, count, &(lar_tile){.tokens = n, .x = r->gate_x + picks[0] * r->gate_each}, gate);
    multiply_tile(&m->up, panel, count, &(lar_tile){.tokens = n, .x = r->up_x + picks[0] * r->up_each}, up);
    r->kernels->silu(gate, up, gate, count * n * ROWS);
    const float *from = gate;
    for (uint32_t k = 0; k < count; k++)
        for (uint32_t i = 0; i < n; i++, from += ROWS)
            memcpy(r->inner + (uint64_t)(picks[0] + i) * r->width + (panel + k) * ROWS, from,
                   rows_of_panel(r->width, panel + k) * sizeof *from);
}

static void down_tile(const mlp_run *r, const lar_mlp *m, uint64_t panel, uint32_t count, const uint32_t picks[2]) {
    const lar_mlp_job *job = r->job;
    float sums[CHUNK * TILE * ROWS];
    uint32_t n = tile_of(picks[0], picks[1]);
    multiply_tile(&m->down, panel, count, &(lar_tile){.tokens = n, .x = r->down_x + picks[0] * r->down_each}, sums);
    const float *from = sums;
    for (uint32_t k = 0; k < count; k++)
        for (uint32_t i = 0; i < n; i++, from += ROWS) {
            uint32_t pick = picks[0] + i, rows = rows_of_panel(r->hidden, panel + k);
            float weight = job->weight ? job->weight[pick] : 1.0f;
            float *y = job->y + (job->token ? job->token[pick] : pick) * (uint64_t)r->hidden + (panel + k) * ROWS;
            for (uint32_t row = 0; row < rows; row++) y[row] += weight * from[row];
        }
}

typedef void (*tile_work)(const mlp_run *r, const lar_mlp *m, uint64_t panel, uint32_t count, const uint32_t picks[2]);

/* CHUNK panels of one expert from `panel` on, for all its picks. */
static void expert_panels(const mlp_run *r, uint32_t e, uint64_t panel, uint64_t panels, tile_work work) {
    uint32_t last = r->job->starts[e + 1], count = panels - panel < CHUNK ? (uint32_t)(panels - panel) : CHUNK;
    for (uint32_t pick = r->job->starts[e]; pick < last; pick += TILE)
        work(r, &r->job->mlps[e], panel, count, (uint32_t[2]){pick, last});
}

/* The k-th expert that has picks. */
static uint32_t expert_of(const lar_mlp_job *job, uint64_t k) {
    uint32_t e = 0;
    for (;; e++)
        if (job->starts[e + 1] > job->starts[e] && k-- == 0) return e;
}

static uint64_t panels_of(const lar_matrix *m) { return ((const lar_panels *)m->packed)->panels; }

static void gate_up_item(void *context, uint64_t item) {
    const mlp_set *s = context;
    const mlp_run *r = s->count == 2 && item >= s->runs[1].first_item ? &s->runs[1] : &s->runs[0];
    item -= r->first_item;
    uint32_t e = expert_of(r->job, item / r->pieces);
    expert_panels(r, e, item % r->pieces * CHUNK, panels_of(&r->job->mlps[e].gate), gate_up_tile);
}

/* Some columns of y, for all experts in their order. */
static void down_item(void *context, uint64_t item) {
    const mlp_set *s = context;
    for (const mlp_run *r = s->runs; r < s->runs + s->count; r++)
        for (uint32_t e = 0; e < r->job->count; e++)
            if (r->job->starts[e + 1] > r->job->starts[e])
                expert_panels(r, e, item * CHUNK, panels_of(&r->job->mlps[e].down), down_tile);
}

static mlp_run mlp_run_of(const lar_mlp_job *job, void *memory) {
    const lar_mlp *m = job->mlps;
    uint32_t picks = job->starts[job->count];
    mlp_run r = {.job = job, .kernels = path_of(&m->gate), .hidden = m->gate.in, .width = m->gate.out};
    r.gate_each = x_bytes(&m->gate), r.up_each = x_bytes(&m->up), r.down_each = x_bytes(&m->down);
    r.inner = memory;
    r.gate_x = (uint8_t *)(r.inner + (uint64_t)picks * r.width);
    r.up_x = one_form(m) ? r.gate_x : r.gate_x + picks * r.gate_each;
    r.down_x = r.up_x + picks * r.up_each;
    r.pieces = (r.width + CHUNK * ROWS - 1) / (CHUNK * ROWS);
    return r;
}

static void mlp(const lar_mlp_job *job, const lar_run *run) {
    mlp_set s = {.count = 0};
    uint64_t used = 0, items = 0, values = 0;
    for (; job; job = job->then) {
        uint32_t picks = job->starts[job->count], experts = 0;
        mlp_run *r = &s.runs[s.count++];
        *r = mlp_run_of(job, (uint8_t *)run->workspace + used);
        r->first_item = items;
        for (uint32_t e = 0; e < job->count; e++) experts += job->starts[e + 1] > job->starts[e];
        items += (uint64_t)experts * r->pieces;
        used += mlp_workspace(job->mlps, job->count, picks);
        values += (uint64_t)picks * (r->hidden > r->width ? r->hidden : r->width);
    }
    LAR_ASSERT(run->workspace_bytes >= used);
    bool alone = values <= ALONE;
    if (alone) fill_x_part(&s, 0, 1);
    else run_parts(run, fill_x_part, &s);
    run_items(run, items, gate_up_item, &s);
    if (alone) fill_inner_part(&s, 0, 1);
    else run_parts(run, fill_inner_part, &s);
    run_items(run, (s.runs[0].hidden + CHUNK * ROWS - 1) / (CHUNK * ROWS), down_item, &s);
}

#define TABLE(text)                                                                                                    \
    {                                                                                                                  \
        .name = text, .prepare = prepare, .release = release, .packed_size = packed_size, .pack = pack,                \
        .workspace = workspace, .mlp_workspace = mlp_workspace, .products = products, .mlp = mlp                       \
    }

const lar_kernels *lar_kernels_panels(lar_cpu path_wanted) {
    static const lar_kernels tables[LAR_CPU_COUNT] = {
        [LAR_CPU_SCALAR] = TABLE("scalar"), [LAR_CPU_AVX2] = TABLE("avx2"), [LAR_CPU_AVX512] = TABLE("avx512")};
    return &tables[path_wanted];
}
