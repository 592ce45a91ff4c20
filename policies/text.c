/* Decoding with a way back, and the form of client text (header: text.h).
 * Called by canon and its rules; pure; memory from the request's arena only; never blocks.
 * Invariants: 1. a decoded text is never longer than it was written. 2. the spans of a form cover the
 * text: BOM, dropped line, content, blanks. 3. (norm hash, recipe) identify a text's decoded bytes. */
#include "policies/text.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/utf8.h"

enum {
    RUNS_MAX = 40,
    TRAIL_MAX = 64,
    BLANKS_MAX = 64 * 1024, /* at a text's end; more are content */
    LINES_MAX = 64 * 1024,  /* line ends of a text with CR; more are an odd form */
    EDITS_APART_MAX = 16,
    FEW_EDITS = 2, /* BOM and blanks at the end */
    MARK_BYTES = 256
};
enum { STYLE_LF, STYLE_CRLF, STYLE_CR, STYLE_MIXED, FLAG_BOM = 4 };

static const char bom[] = "\xEF\xBB\xBF";
static const char *const style_escaped[] = {"\\n", "\\r\\n", "\\r"};

static uint32_t hex4(const char *p) {
    uint32_t v = 0;
    for (int i = 0; i < 4; i++) {
        unsigned char c = (unsigned char)p[i];
        uint32_t d = c <= '9' ? (uint32_t)(c - '0') : (uint32_t)((c | 32) - 'a' + 10);
        v = v << 4 | (d & 15);
    }
    return v;
}

/* \uXXXX, and the second half of a pair. */
static size_t unicode_escape(const char *p, size_t left, char *out, size_t *taken) {
    if (left < 6) return 0;
    *taken = 6;
    uint32_t c = hex4(p + 2);
    if (c >= 0xD800 && c < 0xDC00 && left >= 12 && p[6] == '\\' && p[7] == 'u') {
        uint32_t low = hex4(p + 8);
        if (low >= 0xDC00 && low < 0xE000) {
            *taken = 12;
            c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
        }
    }
    return lar_utf8_write(c, out);
}

/* What a backslash and that byte stand for; 0: see there. */
static const char simple[128] = {
    ['"'] = '"', ['\\'] = '\\', ['/'] = '/', ['b'] = '\b', ['f'] = '\f', ['n'] = '\n', ['r'] = '\r', ['t'] = '\t'};

/* One escape at p (p[0] is the backslash): bytes written to `out`; *taken = bytes read. 0 if malformed,
 * which a parsed tree rules out. */
static inline size_t one_escape(const char *p, size_t left, char *out, size_t *taken) {
    if (left < 2) return 0;
    char c = simple[p[1] & 127];
    *taken = 2;
    out[0] = c;
    return c ? 1 : unicode_escape(p, left, out, taken);
}

/* Copies bytes of `from` up to the first `stop`; returns how many. `out` has room for all of `from`; what lies there
 * behind the copied bytes is of no value. Pieces are short: a call for each would cost more than it copies. */
static size_t copy_until(lar_slice from, char stop, char *out) {
    size_t n = 0;
#ifdef __SSE2__
    const __m128i stops = _mm_set1_epi8(stop);
    for (; from.len - n >= 16; n += 16) {
        __m128i block = _mm_loadu_si128((const __m128i *)(const void *)(from.ptr + n));
        _mm_storeu_si128((__m128i *)(void *)(out + n), block);
        unsigned found = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(block, stops));
        if (found) return n + (size_t)__builtin_ctz(found);
    }
#endif
    for (; n < from.len && from.ptr[n] != stop; n++) out[n] = from.ptr[n];
    return n;
}

/* Decodes; fills `marks` if not NULL (room for one every MARK_BYTES of raw, and one more). */
static size_t decode(lar_slice raw, char *out, lar_text_mark *marks, uint32_t *count) {
    size_t at = 0, i = 0, mark_at = MARK_BYTES;
    while (i < raw.len) {
        size_t plain = copy_until(lar_slice_of(raw.ptr + i, raw.len - i), '\\', out + at);
        at += plain;
        i += plain;
        while (i < raw.len && raw.ptr[i] == '\\') { /* escapes often stand in rows */
            if (marks && i >= mark_at) {
                marks[(*count)++] = (lar_text_mark){(uint32_t)at, (uint32_t)i};
                mark_at = i + MARK_BYTES;
            }
            size_t taken = 0, n = one_escape(raw.ptr + i, raw.len - i, out + at, &taken);
            if (!n) return at;
            at += n;
            i += taken;
        }
    }
    return at;
}

size_t lar_text_decode(lar_slice raw, char *out) { return decode(raw, out, NULL, NULL); }

lar_error lar_text_read(lar_text *t, const lar_json *j, uint32_t node, lar_arena *arena) {
    lar_slice raw = lar_json_inner(j, node);
    *t = (lar_text){.text = raw, .raw = raw, .body_at = j->nodes[node].start + 1};
    if (!(j->nodes[node].flags & LAR_JSON_ESCAPED)) return LAR_OK;
    char *out = lar_arena_alloc(arena, raw.len + 1);
    t->marks = lar_arena_alloc(arena, (raw.len / MARK_BYTES + 1) * sizeof *t->marks);
    if (!out || !t->marks) return LAR_NO_MEMORY;
    t->text = lar_slice_of(out, decode(raw, out, t->marks, &t->mark_count));
    return LAR_OK;
}

/* Moves a known place up to decoded offset `at`, or behind the escape that stands for it. */
static void walk(const lar_text *t, lar_text_mark *m, uint32_t at) {
    while (m->at < at) {
        const char *from = t->raw.ptr + m->raw, *p = memchr(from, '\\', at - m->at);
        uint32_t plain = p ? (uint32_t)(p - from) : at - m->at;
        m->at += plain;
        m->raw += plain;
        if (!p) return;
        char piece[4];
        size_t taken = 0, n = one_escape(p, t->raw.len - m->raw, piece, &taken);
        if (!n) return;
        m->at += (uint32_t)n;
        m->raw += (uint32_t)taken;
    }
}

uint32_t lar_text_body_offset(const lar_text *t, uint32_t at) {
    if (!t->marks) return t->body_at + at;
    uint32_t low = 0, high = t->mark_count; /* the first mark behind `at` */
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (t->marks[mid].at <= at) low = mid + 1;
        else high = mid;
    }
    lar_text_mark m = low ? t->marks[low - 1] : (lar_text_mark){0, 0};
    walk(t, &m, at);
    return t->body_at + m.raw;
}

/* -- form ---------------------------------------------------------------------------------------- */

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* The next line end at or behind `at`: its style; *len bytes. -1 if there is none before `end`. */
static int next_line_end(lar_slice text, uint32_t *at, uint32_t end, uint32_t *len) {
    for (uint32_t i = *at; i < end; i++) {
        char c = text.ptr[i];
        if (c != '\n' && c != '\r') continue;
        bool pair = c == '\r' && i + 1 < end && text.ptr[i + 1] == '\n';
        *at = i;
        *len = pair ? 2 : 1;
        return c == '\n' ? STYLE_LF : pair ? STYLE_CRLF : STYLE_CR;
    }
    return -1;
}

/* A CR can only be written as an escape. */
static bool has_cr(const lar_text *t, const lar_text_form *f) {
    return t->marks && f->end > f->begin && memchr(t->text.ptr + f->begin, '\r', f->end - f->begin) != NULL;
}

static void make_odd(lar_text_form *f, lar_slice text) {
    lar_hash h = lar_hash_of(text);
    f->recipe[0] = LAR_RECIPE_ODD;
    memcpy(f->recipe + 1, h.bytes, sizeof h.bytes);
    f->recipe_bytes = 1 + sizeof h.bytes;
}

/* Writes the runs of line ends behind the recipe's head; false if there are too many. */
static bool read_runs(lar_text_form *f, lar_slice text) {
    uint32_t at = f->begin, len = 0, runs = 0, count = 0, n = f->recipe_bytes, lines = 0;
    int style, last = -1;
    while ((style = next_line_end(text, &at, f->end, &len)) >= 0) {
        at += len;
        if (++lines > LINES_MAX) return false;
        if (style != last || count == 0xFFFF) {
            if (runs == RUNS_MAX) return false;
            f->recipe[n + 3 * runs] = (uint8_t)style;
            runs++;
            count = 0;
            last = style;
        }
        count++;
        f->recipe[n + 3 * runs - 2] = (uint8_t)count;
        f->recipe[n + 3 * runs - 1] = (uint8_t)(count >> 8);
    }
    bool uniform = true;
    for (uint32_t r = 1; r < runs; r++) uniform = uniform && f->recipe[n + 3 * r] == f->recipe[n];
    if (uniform) {
        f->recipe[0] |= runs ? f->recipe[n] : STYLE_LF;
        return true;
    }
    f->recipe[0] |= STYLE_MIXED;
    f->recipe_bytes = (uint16_t)(n + 3 * runs);
    return true;
}

void lar_text_form_read(lar_text_form *f, const lar_text *t, uint32_t drop_end) {
    lar_slice text = t->text;
    bool has_bom = text.len >= 3 && memcmp(text.ptr, bom, 3) == 0;
    f->begin = drop_end ? drop_end : has_bom ? 3 : 0;
    f->end = (uint32_t)text.len;
    while (f->end > f->begin && text.len - f->end <= BLANKS_MAX && is_blank(text.ptr[f->end - 1])) f->end--;
    if (text.len - f->end > BLANKS_MAX) f->end = (uint32_t)text.len;
    uint32_t trail = (uint32_t)text.len - f->end;
    if (trail > TRAIL_MAX) {
        make_odd(f, text);
        return;
    }
    f->recipe[0] = has_bom ? FLAG_BOM : 0;
    f->recipe[1] = (uint8_t)trail;
    if (trail) memcpy(f->recipe + 2, text.ptr + f->end, trail);
    f->recipe_bytes = (uint16_t)(2 + trail);
    if (!has_cr(t, f)) return;
    if (!read_runs(f, text)) make_odd(f, text);
}

/* A masked span counts as its class between raw control characters: the text itself may hold them, at the cost of
 * a miss. */
static size_t put_mask(char out[3], const lar_text_mask *m) {
    out[0] = out[2] = '\1';
    out[1] = (char)m->class_id;
    return 3;
}

/* Of a text without CR: no copy, it may be large. */
static lar_hash norm_in_place(const lar_text *t, const lar_text_form *f, const lar_text_masks *masks) {
    const char *p = t->text.ptr;
    if (!masks || masks->count == 0) return lar_hash_of(lar_slice_of(p + f->begin, f->end - f->begin));
    lar_hasher h;
    lar_hasher_init(&h);
    uint32_t i = f->begin;
    for (uint32_t m = 0; m < masks->count; m++) {
        char mark[3];
        lar_hasher_add(&h, p + i, masks->list[m].start - i);
        lar_hasher_add(&h, mark, put_mask(mark, &masks->list[m]));
        i = masks->list[m].end;
    }
    lar_hasher_add(&h, p + i, f->end - i);
    return lar_hasher_end(&h);
}

/* Copies text[i, stop) with every line end as LF. */
static size_t copy_lines(const lar_text *t, uint32_t i, uint32_t stop, char *copy) {
    const char *p = t->text.ptr;
    size_t k = 0;
    while (i < stop) {
        size_t plain = copy_until(lar_slice_of(p + i, stop - i), '\r', copy + k);
        k += plain;
        i += (uint32_t)plain;
        for (; i < stop && p[i] == '\r'; copy[k++] = '\n') i += i + 1 < stop && p[i + 1] == '\n' ? 2 : 1;
    }
    return k;
}

lar_error lar_text_norm(lar_hash *out, const lar_text *t, const lar_text_form *f, const lar_text_masks *masks,
                        lar_arena *arena) {
    if (!has_cr(t, f)) {
        *out = norm_in_place(t, f, masks);
        return LAR_OK;
    }
    uint32_t marks = masks ? masks->count : 0, i = f->begin;
    char *copy = lar_arena_alloc(arena, (size_t)(f->end - f->begin) + 4 + 4 * (size_t)marks);
    if (!copy) return LAR_NO_MEMORY;
    size_t k = 0;
    for (uint32_t m = 0; m < marks; m++) {
        k += copy_lines(t, i, masks->list[m].start, copy + k);
        k += put_mask(copy + k, &masks->list[m]);
        i = masks->list[m].end;
    }
    k += copy_lines(t, i, f->end, copy + k);
    *out = lar_hash_of(lar_slice_of(copy, k));
    return LAR_OK;
}

/* The i-th line end's style by a recipe; walks the runs with *run and *left. */
static int wanted_style(lar_slice want, size_t runs_at, uint32_t *run, uint32_t *left) {
    const uint8_t *w = (const uint8_t *)want.ptr;
    int style = w[0] & 3;
    if (style != STYLE_MIXED) return style;
    while (*left == 0) {
        size_t at = runs_at + 3 * (size_t)*run;
        if (at + 3 > want.len || w[at] > STYLE_CR) return -1;
        *left = (uint32_t)w[at + 1] | (uint32_t)w[at + 2] << 8;
        (*run)++;
    }
    (*left)--;
    return w[runs_at + 3 * (size_t)(*run - 1)];
}

static lar_error edit_lines(const lar_text *t, const lar_text_form *have, lar_slice want, lar_splices *edits,
                            uint32_t most) {
    size_t runs_at = 2 + (size_t)(uint8_t)want.ptr[1];
    uint32_t at = have->begin, len = 0, run = 0, left = 0;
    lar_text_mark m = {0, 0}; /* moves along with the lines */
    int style;
    while ((style = next_line_end(t->text, &at, have->end, &len)) >= 0) {
        int target = wanted_style(want, runs_at, &run, &left);
        if (target < 0) return LAR_INVALID;
        if (target != style) {
            if (edits->count >= most) return LAR_LIMIT;
            walk(t, &m, at);
            uint32_t start = t->body_at + m.raw;
            walk(t, &m, at + len);
            lar_error e = lar_splices_add(edits, start, t->body_at + m.raw, lar_slice_cstr(style_escaped[target]));
            if (e) return e;
        }
        at += len;
    }
    return LAR_OK;
}

static lar_error edit_trail(const lar_text *t, const lar_text_form *have, lar_slice want, lar_splices *edits) {
    size_t n = (uint8_t)want.ptr[1];
    lar_slice trail = lar_slice_of(want.ptr + 2, n);
    if (lar_slice_eq(trail, lar_slice_of(t->text.ptr + have->end, t->text.len - have->end))) return LAR_OK;
    char *out = lar_arena_alloc(edits->arena, 2 * n + 1);
    if (!out) return LAR_NO_MEMORY;
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        char c = trail.ptr[i];
        if (!is_blank(c)) return LAR_INVALID;
        if (c != ' ') out[k++] = '\\';
        out[k++] = c == '\n' ? 'n' : c == '\r' ? 'r' : c == '\t' ? 't' : ' ';
    }
    return lar_splices_add(edits, lar_text_body_offset(t, have->end), lar_text_body_offset(t, (uint32_t)t->text.len),
                           lar_slice_of(out, k));
}

lar_error lar_text_form_edit(const lar_text *t, const lar_text_form *have, lar_slice want, lar_splices *edits,
                             uint32_t most) {
    if (most < FEW_EDITS) return LAR_LIMIT;
    if (want.len < 2 || (uint8_t)want.ptr[0] >= LAR_RECIPE_ODD || have->recipe[0] >= LAR_RECIPE_ODD) return LAR_INVALID;
    if (2 + (size_t)(uint8_t)want.ptr[1] > want.len) return LAR_INVALID;
    bool has = have->recipe[0] & FLAG_BOM, wants = want.ptr[0] & FLAG_BOM;
    lar_error e = LAR_OK;
    if (has && !wants)
        e = lar_splices_add(edits, lar_text_body_offset(t, 0), lar_text_body_offset(t, 3), LAR_SLICE(""));
    if (!has && wants) e = lar_splices_add(edits, t->body_at, t->body_at, LAR_SLICE("\xEF\xBB\xBF"));
    if (!e) e = edit_lines(t, have, want, edits, most - FEW_EDITS);
    if (!e) e = edit_trail(t, have, want, edits);
    return e;
}

lar_error lar_text_edits_merge(lar_splices *edits, lar_slice body, lar_splices *to) {
    lar_error e = lar_splices_finish(edits, body.len);
    if (e || edits->count == 0) return e;
    if (edits->count <= EDITS_APART_MAX) {
        for (uint32_t i = 0; i < edits->count && !e; i++) {
            e = lar_splices_add(to, edits->list[i].start, edits->list[i].end, edits->list[i].with);
        }
        return e;
    }
    uint32_t start = edits->list[0].start, end = edits->list[edits->count - 1].end;
    size_t bytes = end - start;
    for (uint32_t i = 0; i < edits->count; i++) bytes += edits->list[i].with.len;
    char *out = lar_arena_alloc(to->arena, bytes + 1);
    if (!out) return LAR_NO_MEMORY;
    size_t k = 0;
    uint32_t at = start;
    for (uint32_t i = 0; i < edits->count; i++) {
        const lar_splice *s = &edits->list[i];
        memcpy(out + k, body.ptr + at, s->start - at);
        k += s->start - at;
        if (s->with.len) memcpy(out + k, s->with.ptr, s->with.len);
        k += s->with.len;
        at = s->end;
    }
    return lar_splices_add(to, start, end, lar_slice_of(out, k));
}
