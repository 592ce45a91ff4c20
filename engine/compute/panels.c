/* Repacks weights into panels of 16 interleaved rows (panels.h).
 * Flow: panel_matmul.c calls, once for each matrix when a model opens. Any thread; never blocks but on pages of the
 * mapped file. Source of the block layouts: ggml (ggml-common.h, ggml-quants.c of llama.cpp), read and
 * written anew, as in engine/files/dequant.c.
 * Why: with 8 to 16 rows interleaved an integer product needs no sums across lanes.
 * Invariants: 1. no value changes; 2. rows that fill up the last panel have scales of zero.
 * Memory: the caller's, or one allocation for each matrix, on large pages where it is as large as one. */
#include "engine/compute/panels.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/ensure.h"
#include "engine/compute/workers.h"
#include "engine/files/float_bits.h"

enum { ROWS = LAR_PANEL_ROWS, GROUP_COLUMNS = 256, LARGE_PAGE = 2 << 20, PAGE = 4096, GROUPS = 8 };

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

static size_t panel_step(lar_dtype type, uint32_t columns) {
    lar_panel_form f = lar_panel_form_of(type);
    size_t units = lar_panel_is_integer(type) ? round_up(columns, LAR_BLOCK) / LAR_BLOCK : round_up(columns, 2);
    return units ? round_up(lar_panel_values_at(&f, (uint32_t)units - 1) + f.block_bytes, 64) : 0;
}

static uint32_t panels_of(uint32_t rows) { return (uint32_t)(round_up(rows, ROWS) / ROWS); }

size_t lar_panels_bytes(lar_dtype type, uint32_t rows, uint32_t columns) {
    return sizeof(lar_panels) + 64 + panel_step(type, columns) * panels_of(rows);
}

/* -- values of one block of a row, biased ------------------------------------------------------------------- */

static void halves(const uint8_t *q, uint32_t n, uint8_t *v) {
    for (uint32_t j = 0; j < n; j++) {
        v[j] = q[j] & 15;
        v[j + n] = q[j] >> 4;
    }
}

static void add_fifths(const uint8_t *high, uint8_t *v) {
    uint32_t bits = lar_le32(high);
    for (int j = 0; j < 32; j++) v[j] = (uint8_t)(v[j] | (bits >> j & 1) << 4);
}

static void values_q4_0(const uint8_t *b, uint8_t *v) { halves(b + 2, 16, v); }

static void values_q5_0(const uint8_t *b, uint8_t *v) {
    halves(b + 6, 16, v);
    add_fifths(b + 2, v);
}

static void values_q5_1(const uint8_t *b, uint8_t *v) {
    halves(b + 8, 16, v);
    add_fifths(b + 4, v);
}

static void values_q8_0(const uint8_t *b, uint8_t *v) {
    for (int j = 0; j < 32; j++) v[j] = b[2 + j] ^ 0x80;
}

static void values_q4_k(const uint8_t *b, uint8_t *v) {
    for (int j = 0; j < 4; j++) halves(b + 16 + 32 * j, 32, v + 64 * j);
}

static void values_q5_k(const uint8_t *b, uint8_t *v) {
    const uint8_t *high = b + 16;
    for (int j = 0; j < 4; j++) halves(b + 48 + 32 * j, 32, v + 64 * j);
    for (int j = 0; j < 8; j++)
        for (int i = 0; i < 32; i++) v[32 * j + i] = (uint8_t)(v[32 * j + i] | (high[i] >> j & 1) << 4);
}

/* Two halves of 128 values; in each, byte i of the low bits holds value i and i + 64 (i below 64), and byte i of the
 * high bits two bits each of the values i, i + 32, i + 64 and i + 96. */
static void values_q6_k(const uint8_t *b, uint8_t *v) {
    for (int half = 0; half < 2; half++) {
        const uint8_t *low = b + 64 * half, *high = b + 128 + 32 * half;
        uint8_t *to = v + 128 * half;
        halves(low, 64, to);
        for (int j = 0; j < 4; j++)
            for (int i = 0; i < 32; i++) to[32 * j + i] = (uint8_t)(to[32 * j + i] | (high[i] >> 2 * j & 3) << 4);
    }
}

static void values_iq4_xs(const uint8_t *b, uint8_t *v) {
    for (int j = 0; j < 8; j++) halves(b + 8 + 16 * j, 16, v + 32 * j);
}

/* -- scales of one block of row `r`, into the group of scales `g` of its panel ------------------------------- */

static void put16(uint8_t *g, int r, const uint8_t *half) { memcpy(g + 2 * r, half, 2); }

static void scales_f16(const uint8_t *b, uint8_t *g, int r) { put16(g, r, b); }

static void scales_q5_1(const uint8_t *b, uint8_t *g, int r) {
    uint8_t minimum[2] = {b[2], b[3] ^ 0x80};
    put16(g, r, b);
    put16(g + 32, r, minimum);
}

/* Q4_K, Q5_K: twelve bytes; of the first four scales and minima the low six bits, of the last four the halves of the
 * bytes 8 to 11 with the two high bits above the first four. */
static void scales_k(const uint8_t *b, uint8_t *g, int r) {
    const uint8_t *s = b + 4;
    put16(g, r, b);
    put16(g + 32, r, b + 2);
    for (int j = 0; j < 4; j++) {
        g[64 + 16 * j + r] = s[j] & 63;
        g[192 + 16 * j + r] = s[j + 4] & 63;
        g[128 + 16 * j + r] = (uint8_t)((s[j + 8] & 15) | s[j] >> 6 << 4);
        g[256 + 16 * j + r] = (uint8_t)(s[j + 8] >> 4 | s[j + 4] >> 6 << 4);
    }
}

static void scales_q6_k(const uint8_t *b, uint8_t *g, int r) {
    put16(g, r, b + 208);
    for (int j = 0; j < 16; j++) g[32 + 16 * j + r] = b[192 + j];
}

static void scales_iq4_xs(const uint8_t *b, uint8_t *g, int r) {
    put16(g, r, b);
    uint32_t high = lar_le16(b + 2);
    for (int j = 0; j < 8; j++) {
        int low = b[4 + j / 2] >> 4 * (j % 2) & 15;
        g[32 + 16 * j + r] = (uint8_t)((low | (int)(high >> 2 * j & 3) << 4) - 32);
    }
}

typedef struct reader {
    void (*values)(const uint8_t *b, uint8_t *v);
    void (*scales)(const uint8_t *b, uint8_t *g, int r);
} reader;

static const reader readers[LAR_DTYPE_COUNT] = {
    [LAR_DTYPE_Q4_0] = {values_q4_0, scales_f16},        [LAR_DTYPE_Q5_0] = {values_q5_0, scales_f16},
    [LAR_DTYPE_Q5_1] = {values_q5_1, scales_q5_1},       [LAR_DTYPE_Q8_0] = {values_q8_0, scales_f16},
    [LAR_DTYPE_Q4_K] = {values_q4_k, scales_k},          [LAR_DTYPE_Q5_K] = {values_q5_k, scales_k},
    [LAR_DTYPE_Q6_K] = {values_q6_k, scales_q6_k},       [LAR_DTYPE_IQ4_NL] = {values_q4_0, scales_f16},
    [LAR_DTYPE_IQ4_XS] = {values_iq4_xs, scales_iq4_xs},
};

/* -- one block of 16 rows ------------------------------------------------------------------------------------ */

typedef uint8_t rows_of_bytes[ROWS][GROUP_COLUMNS];

/* Four bytes of row r: the columns of group g in the block that begins at `at`. */
static uint32_t four(const rows_of_bytes v, int r, uint32_t at, int g) {
    uint32_t w;
    memcpy(&w, v[r] + at + 4 * g, 4);
    return w;
}

static void put32(uint8_t *to, int r, uint32_t w) { memcpy(to + 4 * r, &w, 4); }

static void pack_high(lar_panel_values values, const rows_of_bytes v, uint32_t at, uint8_t *to) {
    for (int r = 0; r < ROWS; r++) {
        uint32_t fifth = 0, low = 0, high = 0;
        for (int g = 0; g < GROUPS; g++) fifth |= (four(v, r, at, g) >> 4 & 0x01010101u) << g;
        for (int g = 0; g < GROUPS / 2; g++) {
            low |= (four(v, r, at, g) >> 4 & 0x03030303u) << 2 * g;
            high |= (four(v, r, at, g + 4) >> 4 & 0x03030303u) << 2 * g;
        }
        put32(to, r, values == LAR_VALUES_5 ? fifth : low);
        if (values == LAR_VALUES_6) put32(to + 64, r, high);
    }
}

static void pack_block(lar_panel_values values, const rows_of_bytes v, uint32_t at, uint8_t *to) {
    if (values == LAR_VALUES_8) {
        for (int g = 0; g < GROUPS; g++)
            for (int r = 0; r < ROWS; r++) put32(to + 64 * g, r, four(v, r, at, g));
        return;
    }
    for (int g = 0; g < GROUPS / 2; g++)
        for (int r = 0; r < ROWS; r++)
            put32(to + 64 * g, r, (four(v, r, at, g) & 0x0f0f0f0fu) | (four(v, r, at, g + 4) & 0x0f0f0f0fu) << 4);
    if (values == LAR_VALUES_5 || values == LAR_VALUES_6) pack_high(values, v, at, to + 256);
}

/* `rows` rows (at most 16) of `t` from `first` on, into one panel of zeros. */
static void pack_integer(const lar_panels *p, const lar_tensor *t, uint64_t first, uint32_t rows, uint8_t *panel) {
    lar_panel_form f = lar_panel_form_of(p->type);
    const lar_dtype_info *info = lar_dtype_info_of(p->type);
    const reader *read = &readers[p->type];
    uint64_t row_bytes = (uint64_t)(p->columns / info->block_elements) * info->block_bytes;
    const uint32_t units = info->block_elements / LAR_BLOCK; /* as many as scales cover */
    rows_of_bytes v;
    memset(v, 0, sizeof v);
    for (uint32_t i = 0; i < p->columns / info->block_elements; i++) {
        for (uint32_t r = 0; r < rows; r++) {
            const uint8_t *b = t->data + (first + r) * row_bytes + (uint64_t)i * info->block_bytes;
            read->values(b, v[r]);
            read->scales(b, panel + lar_panel_scales_at(&f, i * units), (int)r);
        }
        uint8_t *to = panel + lar_panel_values_at(&f, i * units);
        for (uint32_t at = 0; at < info->block_elements; at += LAR_BLOCK, to += f.block_bytes)
            pack_block(f.values, (const uint8_t(*)[GROUP_COLUMNS])v, at, to);
    }
}

static bool holds_nan(const uint8_t *row, uint32_t n) {
    bool found = false;
    for (uint32_t i = 0; i < n; i++) found |= (row[i] & 0x7f) == 0x7f;
    return found;
}

static lar_error pack_float(const lar_panels *p, const lar_tensor *t, uint64_t first, uint32_t rows, uint8_t *panel) {
    lar_panel_form f = lar_panel_form_of(p->type);
    size_t each = f.block_bytes / ROWS;
    for (uint32_t r = 0; r < rows; r++) {
        const uint8_t *row = t->data + (first + r) * p->columns * each;
        if (p->type == LAR_DTYPE_F8_E4M3 && holds_nan(row, p->columns)) return LAR_INVALID;
        if (p->type == LAR_DTYPE_BF16) /* two columns of a row beside each other */
            for (uint32_t c = 0; c < p->columns; c++) memcpy(panel + (c / 2 * 32 + 2 * r + c % 2) * 2, row + 2 * c, 2);
        else
            for (uint32_t c = 0; c < p->columns; c++)
                memcpy(panel + lar_panel_values_at(&f, c) + r * each, row + c * each, each);
    }
    return LAR_OK;
}

static void pack_f8_scales(const lar_panels *p, const lar_tensor *t, uint64_t first, uint32_t rows, uint8_t *panel) {
    lar_panel_form f = lar_panel_form_of(p->type);
    uint32_t spans = (p->columns + LAR_F8_SPAN - 1) / LAR_F8_SPAN;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t s = 0; s < spans; s++) {
            float scale = 1.0f;
            uint64_t at = (first + r) / LAR_F8_SPAN * spans + s;
            if (t->scale) memcpy(&scale, t->scale->data + at * sizeof scale, sizeof scale);
            memcpy(panel + lar_panel_scales_at(&f, s * LAR_F8_SPAN) + r * sizeof scale, &scale, sizeof scale);
        }
}

static lar_error pack_panel(const lar_panels *p, const lar_tensor *t, uint64_t first, uint32_t rows, uint8_t *panel) {
    if (lar_panel_is_integer(p->type)) {
        pack_integer(p, t, first, rows, panel);
        return LAR_OK;
    }
    if (p->type == LAR_DTYPE_F8_E4M3) pack_f8_scales(p, t, first, rows, panel);
    return pack_float(p, t, first, rows, panel);
}

size_t lar_panels_room(lar_dtype type, uint32_t rows, uint32_t columns) {
    return round_up(lar_panels_bytes(type, rows, columns), 64);
}

/* The data lies behind the header. */
lar_panels *lar_panels_place(lar_dtype type, uint32_t rows, uint32_t columns, void *memory) {
    lar_panels *p = memory;
    *p = (lar_panels){.type = type, .rows = rows, .columns = columns, .panels = panels_of(rows)};
    p->panel_step = panel_step(type, columns);
    p->data = (uint8_t *)memory + round_up(sizeof *p, 64);
    return p;
}

static lar_panels *allocate(lar_dtype type, uint32_t rows, uint32_t columns) {
    size_t bytes = lar_panels_room(type, rows, columns);
    uint8_t *memory = aligned_alloc(64, bytes);
    if (!memory) return NULL;
    uintptr_t begin = round_up((uintptr_t)memory, PAGE), end = (uintptr_t)(memory + bytes) / PAGE * PAGE;
    if (bytes >= LARGE_PAGE) (void)madvise((uint8_t *)begin, end - begin, MADV_HUGEPAGE); /* without it: only slower */
    return lar_panels_place(type, rows, columns, memory);
}

typedef struct filling {
    const lar_panels *p;
    const lar_tensor *t;
    uint64_t first;
    atomic_uint bad; /* the first panel with a value that is no number; UINT_MAX: none */
} filling;

static void fill_panel(void *context, uint64_t i) {
    filling *f = context;
    uint32_t from = (uint32_t)i * ROWS, n = f->p->rows - from < ROWS ? f->p->rows - from : ROWS;
    uint8_t *panel = f->p->data + i * f->p->panel_step;
    memset(panel, 0, f->p->panel_step);
    if (!pack_panel(f->p, f->t, f->first + from, n, panel)) return;
    unsigned bad = atomic_load(&f->bad);
    while (i < bad && !atomic_compare_exchange_weak(&f->bad, &bad, (unsigned)i)) continue;
}

lar_error lar_panels_fill(lar_panels *p, const lar_rows_source *s, lar_diag *d) {
    const lar_tensor *t = s->tensor;
    LAR_ASSERT(t->type == p->type && lar_tensor_row_elements(t) == p->columns);
    LAR_ASSERT(s->first + p->rows <= lar_tensor_rows(t));
    filling f = {p, t, s->first, UINT_MAX};
    if (s->workers) lar_workers_each(s->workers, p->panels, fill_panel, &f);
    else
        for (uint32_t i = 0; i < p->panels; i++) fill_panel(&f, i);
    if (f.bad == UINT_MAX) return LAR_OK;
    return lar_fail(LAR_INVALID, d, "%s: a value of the rows from %llu on is not a number", t->name,
                    (unsigned long long)(s->first + (uint64_t)f.bad * ROWS));
}

lar_error lar_panels_new(const lar_tensor *t, uint64_t first, uint32_t rows, lar_panels **out, lar_diag *d) {
    uint32_t columns = (uint32_t)lar_tensor_row_elements(t);
    LAR_ASSERT(columns % lar_dtype_info_of(t->type)->block_elements == 0 && first + rows <= lar_tensor_rows(t));
    lar_panels *p = allocate(t->type, rows, columns);
    if (!p)
        return lar_fail(LAR_NO_MEMORY, d, "%s: no memory for %zu bytes of repacked weights", t->name,
                        lar_panels_bytes(t->type, rows, columns));
    lar_error e = lar_panels_fill(p, &(lar_rows_source){t, first, NULL}, d);
    if (e) free(p);
    else *out = p;
    return e;
}
