/* Decoding with a way back, and the form of client text (header: text.h).
 * Called by canon and its rules; pure; memory from the request's arena only; never blocks.
 * Invariants: 1. a decoded text is never longer than it was written. 2. the spans of a form cover the
 * text: BOM, dropped line, content, blanks. 3. (norm hash, recipe) identify a text's decoded bytes. */
#include "policies/text.h"

#include <string.h>

enum { RUNS_MAX = 40, TRAIL_MAX = 64, EDITS_APART_MAX = 16 };
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

static size_t put_utf8(uint32_t c, char *out) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6);
        out[1] = (char)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 63));
        out[2] = (char)(0x80 | (c & 63));
        return 3;
    }
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 63));
    out[2] = (char)(0x80 | (c >> 6 & 63));
    out[3] = (char)(0x80 | (c & 63));
    return 4;
}

/* One escape at p (p[0] is the backslash): bytes written to `out`; *taken = bytes read. 0 if malformed,
 * which a parsed tree rules out. */
static size_t one_escape(const char *p, size_t left, char *out, size_t *taken) {
    if (left < 2) return 0;
    *taken = 2;
    switch (p[1]) {
    case 'n': out[0] = '\n'; return 1;
    case 'r': out[0] = '\r'; return 1;
    case 't': out[0] = '\t'; return 1;
    case 'b': out[0] = '\b'; return 1;
    case 'f': out[0] = '\f'; return 1;
    case 'u': break;
    default: out[0] = p[1]; return 1;
    }
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
    return put_utf8(c, out);
}

/* Decodes; fills `escapes` if not NULL (room for one per backslash). */
static size_t decode(lar_slice raw, char *out, lar_text_escape *escapes, uint32_t *count) {
    size_t at = 0, i = 0;
    while (i < raw.len) {
        const char *p = memchr(raw.ptr + i, '\\', raw.len - i);
        size_t plain = p ? (size_t)(p - raw.ptr) - i : raw.len - i;
        if (plain) memcpy(out + at, raw.ptr + i, plain);
        at += plain;
        i += plain;
        if (!p) break;
        size_t taken = 0, n = one_escape(p, raw.len - i, out + at, &taken);
        if (!n) break;
        if (escapes) {
            escapes[(*count)++] = (lar_text_escape){.at = (uint32_t)at,
                                                    .raw = (uint32_t)i,
                                                    .bytes = (uint8_t)n,
                                                    .raw_bytes = (uint8_t)taken};
        }
        at += n;
        i += taken;
    }
    return at;
}

size_t lar_text_decode(lar_slice raw, char *out) { return decode(raw, out, NULL, NULL); }

lar_error lar_text_read(lar_text *t, const lar_json *j, uint32_t node, lar_arena *arena) {
    lar_slice raw = lar_json_inner(j, node);
    *t = (lar_text){.text = raw, .body_at = j->nodes[node].start + 1};
    if (!(j->nodes[node].flags & LAR_JSON_ESCAPED)) return LAR_OK;
    size_t backslashes = 0;
    for (size_t i = 0; i < raw.len; i++) backslashes += raw.ptr[i] == '\\';
    char *out = lar_arena_alloc(arena, raw.len + 1);
    t->escapes = lar_arena_alloc(arena, (backslashes + 1) * sizeof *t->escapes);
    if (!out || !t->escapes) return LAR_NO_MEMORY;
    t->text = lar_slice_of(out, decode(raw, out, t->escapes, &t->escape_count));
    return LAR_OK;
}

uint32_t lar_text_body_offset(const lar_text *t, uint32_t at) {
    uint32_t low = 0, high = t->escape_count; /* the first escape that begins at or behind `at` */
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (t->escapes[mid].at < at) low = mid + 1;
        else high = mid;
    }
    if (low == 0) return t->body_at + at;
    const lar_text_escape *e = &t->escapes[low - 1];
    uint32_t behind = e->at + e->bytes;
    return t->body_at + e->raw + e->raw_bytes + (at > behind ? at - behind : 0);
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

static void make_odd(lar_text_form *f, lar_slice text) {
    lar_hash h = lar_hash_of(text);
    f->recipe[0] = LAR_RECIPE_ODD;
    memcpy(f->recipe + 1, h.bytes, sizeof h.bytes);
    f->recipe_bytes = 1 + sizeof h.bytes;
}

/* Writes the runs of line ends behind the recipe's head; false if there are too many. */
static bool read_runs(lar_text_form *f, lar_slice text) {
    uint32_t at = f->begin, len = 0, runs = 0, count = 0, n = f->recipe_bytes;
    int style, last = -1;
    while ((style = next_line_end(text, &at, f->end, &len)) >= 0) {
        at += len;
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

void lar_text_form_read(lar_text_form *f, lar_slice text, uint32_t drop_end) {
    bool has_bom = text.len >= 3 && memcmp(text.ptr, bom, 3) == 0;
    f->begin = drop_end ? drop_end : has_bom ? 3 : 0;
    f->end = (uint32_t)text.len;
    while (f->end > f->begin && is_blank(text.ptr[f->end - 1])) f->end--;
    uint32_t trail = (uint32_t)text.len - f->end;
    if (trail > TRAIL_MAX) {
        make_odd(f, text);
        return;
    }
    f->recipe[0] = has_bom ? FLAG_BOM : 0;
    f->recipe[1] = (uint8_t)trail;
    if (trail) memcpy(f->recipe + 2, text.ptr + f->end, trail);
    f->recipe_bytes = (uint16_t)(2 + trail);
    if (f->end == f->begin || !memchr(text.ptr + f->begin, '\r', f->end - f->begin)) return;
    if (!read_runs(f, text)) make_odd(f, text);
}

lar_error lar_text_norm(lar_hash *out, const lar_text *t, const lar_text_form *f, const lar_text_masks *masks,
                        lar_arena *arena) {
    const char *p = t->text.ptr;
    uint32_t n = f->end - f->begin;
    bool has_cr = n && memchr(p + f->begin, '\r', n);
    if (!has_cr && (!masks || masks->count == 0)) {
        *out = lar_hash_of(lar_slice_of(p + f->begin, n));
        return LAR_OK;
    }
    char *copy = lar_arena_alloc(arena, (size_t)n + 4 + (masks ? 4 * (size_t)masks->count : 0));
    if (!copy) return LAR_NO_MEMORY;
    size_t k = 0;
    uint32_t m = 0, marks = masks ? masks->count : 0;
    for (uint32_t i = f->begin; i < f->end;) {
        uint32_t stop = m < marks ? masks->list[m].start : f->end;
        const char *cr = has_cr ? memchr(p + i, '\r', stop - i) : NULL;
        uint32_t upto = cr ? (uint32_t)(cr - p) : stop;
        memcpy(copy + k, p + i, upto - i);
        k += upto - i;
        i = upto;
        if (cr) {
            copy[k++] = '\n';
            i += i + 1 < f->end && p[i + 1] == '\n' ? 2 : 1;
        } else if (m < marks) {
            copy[k++] = '\1'; /* a raw control character: the text itself may hold it, at the cost of a miss */
            copy[k++] = (char)masks->list[m].class_id;
            copy[k++] = '\1';
            i = masks->list[m++].end;
        }
    }
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

static lar_error edit_lines(const lar_text *t, const lar_text_form *have, lar_slice want, lar_splices *edits) {
    size_t runs_at = 2 + (size_t)(uint8_t)want.ptr[1];
    uint32_t at = have->begin, len = 0, run = 0, left = 0;
    int style;
    while ((style = next_line_end(t->text, &at, have->end, &len)) >= 0) {
        int target = wanted_style(want, runs_at, &run, &left);
        if (target < 0) return LAR_INVALID;
        if (target != style) {
            lar_error e = lar_splices_add(edits, lar_text_body_offset(t, at), lar_text_body_offset(t, at + len),
                                          lar_slice_cstr(style_escaped[target]));
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

lar_error lar_text_form_edit(const lar_text *t, const lar_text_form *have, lar_slice want, lar_splices *edits) {
    if (want.len < 2 || (uint8_t)want.ptr[0] >= LAR_RECIPE_ODD || have->recipe[0] >= LAR_RECIPE_ODD) return LAR_INVALID;
    if (2 + (size_t)(uint8_t)want.ptr[1] > want.len) return LAR_INVALID;
    bool has = have->recipe[0] & FLAG_BOM, wants = want.ptr[0] & FLAG_BOM;
    lar_error e = LAR_OK;
    if (has && !wants)
        e = lar_splices_add(edits, lar_text_body_offset(t, 0), lar_text_body_offset(t, 3), LAR_SLICE(""));
    if (!has && wants) e = lar_splices_add(edits, t->body_at, t->body_at, LAR_SLICE("\xEF\xBB\xBF"));
    if (!e) e = edit_lines(t, have, want, edits);
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
