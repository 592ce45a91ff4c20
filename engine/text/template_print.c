/* Values as text: Python's str() and repr(), and json.dumps, with the origin of each byte.
 * Flow: printing expressions, ~, join, tojson call it; it appends to a string under construction.
 * Thread: that of the rendering. Never blocks.
 * Why one writer: both walk the same nesting and differ in words and marks only.
 * Invariants: 1. nesting is walked with a stack of LAR_TPL_NESTED_MAX levels; deeper is an error. 2. marks around a
 * value that came from outside are VALUE too: text of a user never turns into OWN by being printed.
 * Not here: reading JSON (template_json.c). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/text/template_value.h"

enum { NUMBER_BYTES = 32 };

typedef struct level {
    lar_tpl v;
    const lar_tpl *items; /* those of v, or a sorted copy */
    uint32_t at;          /* the next element */
} level;

typedef struct writer {
    lar_tpl_out *o;
    const lar_tpl_json_form *form; /* NULL: Python's own form */
    level stack[LAR_TPL_NESTED_MAX];
    uint32_t depth;
} writer;

/* Python's repr: the fewest digits that read back as the same number; an exponent below -4 or from 16 on. */
static size_t float_text(double f, char out[NUMBER_BYTES]) {
    if (isnan(f)) return (size_t)snprintf(out, NUMBER_BYTES, "nan");
    if (isinf(f)) return (size_t)snprintf(out, NUMBER_BYTES, f < 0 ? "-inf" : "inf");
    char digits[NUMBER_BYTES];
    for (int precision = 0; precision < 17; precision++) {
        (void)snprintf(digits, sizeof digits, "%.*e", precision, f);
        if (strtod(digits, NULL) == f) break;
    }
    char *mark = strchr(digits, 'e');
    int exponent = (int)strtol(mark + 1, NULL, 10);
    int decimals = (int)(mark - digits) - (digits[0] == '-') - 2; /* behind the point; -1 if there is none */
    if (decimals < 0) decimals = 0;
    if (exponent >= -4 && exponent < 16) {
        int places = decimals - exponent;
        return (size_t)snprintf(out, NUMBER_BYTES, "%.*f", places > 1 ? places : 1, f);
    }
    return (size_t)snprintf(out, NUMBER_BYTES, "%.*se%c%02d", (int)(mark - digits), digits, exponent < 0 ? '-' : '+',
                            abs(exponent));
}

static lar_error put(writer *w, const char *text, lar_template_origin origin) {
    return lar_tpl_out_add(w->o, text, strlen(text), origin);
}

static lar_error put_slice(writer *w, lar_slice s, lar_template_origin origin) {
    return lar_tpl_out_add(w->o, s.ptr, s.len, origin);
}

static lar_template_origin origin_of(lar_tpl v) {
    if (v.kind != LAR_TPL_STRING) return (lar_template_origin)v.origin;
    return v.as.string->run_count ? LAR_TEMPLATE_VALUE : v.as.string->origin;
}

static uint32_t code_point(const char *p, uint32_t len) {
    static const unsigned char lead[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t code = (unsigned char)p[0] & lead[len];
    for (uint32_t i = 1; i < len; i++) code = code << 6 | ((unsigned char)p[i] & 63);
    return code;
}

static uint32_t char_len(unsigned char c) { return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4; }

/* The escape of a character inside JSON's quotes; 0 if it stands for itself. */
static int json_escape(uint32_t code, bool ascii, char *out) {
    static const char plain[] = "\"\\\n\r\t\f\b", letter[] = "\"\\nrtfb";
    const char *at = code && code < 128 ? strchr(plain, (int)code) : NULL;
    if (at) return snprintf(out, 16, "\\%c", letter[at - plain]);
    if (code >= 0x10000 && ascii)
        return snprintf(out, 16, "\\u%04x\\u%04x", 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + (code & 0x3ff));
    if (code < 0x20 || (ascii && code > 0x7e)) return snprintf(out, 16, "\\u%04x", code);
    return 0;
}

/* What Python holds for unprintable: controls, separators but the blank, format characters, private use. Characters
 * that Unicode has not assigned are printed. */
static bool unprintable(uint32_t c) {
    if (c < 0x20 || (c >= 0x7f && c <= 0xa0) || c == 0xad || c == 0x61c || c == 0x1680 || c == 0x180e) return true;
    return (c >= 0x2000 && c <= 0x200f) || (c >= 0x2028 && c <= 0x202f) || (c >= 0x205f && c <= 0x206f) ||
           c == 0x3000 || (c >= 0xe000 && c <= 0xf8ff) || c == 0xfeff || (c >= 0xfff9 && c <= 0xfffb) ||
           (c >= 0xe0000 && c <= 0xe0fff) || c >= 0xf0000;
}

/* Likewise inside the quotes that Python's repr chose. */
static int python_escape(uint32_t code, char quote, char *out) {
    if (code == (unsigned char)quote || code == '\\') return snprintf(out, 16, "\\%c", (int)code);
    if (code == '\n') return snprintf(out, 16, "\\n");
    if (code == '\r') return snprintf(out, 16, "\\r");
    if (code == '\t') return snprintf(out, 16, "\\t");
    if (!unprintable(code)) return 0;
    return snprintf(out, 16, code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
}

static lar_error write_quoted(writer *w, lar_tpl v) {
    const lar_tpl_string *s = v.as.string;
    bool single = memchr(s->ptr, '\'', s->len) && !memchr(s->ptr, '"', s->len);
    char quote[2] = {w->form || single ? '"' : '\'', 0};
    lar_error e = put(w, quote, origin_of(v));
    uint32_t from = 0, len;
    for (uint32_t at = 0; !e && at < s->len; at += len) {
        char text[16];
        len = char_len((unsigned char)s->ptr[at]);
        uint32_t code = code_point(s->ptr + at, len);
        int n = w->form ? json_escape(code, w->form->ascii, text) : python_escape(code, quote[0], text);
        if (!n) continue;
        e = lar_tpl_out_cut(w->o, s, from, at);
        if (!e) e = lar_tpl_out_add(w->o, text, (size_t)n, origin_of(v));
        from = at + len;
    }
    if (!e) e = lar_tpl_out_cut(w->o, s, from, s->len);
    return e ? e : put(w, quote, origin_of(v));
}

static lar_error write_number(writer *w, lar_tpl v) {
    char text[NUMBER_BYTES];
    if (v.kind == LAR_TPL_BIG) return lar_tpl_out_string(w->o, v.as.string);
    if (v.kind == LAR_TPL_INT) {
        int n = snprintf(text, sizeof text, "%lld", (long long)v.as.integer);
        return lar_tpl_out_add(w->o, text, (size_t)n, (lar_template_origin)v.origin);
    }
    if (w->form && !isfinite(v.as.real))
        return put(w,
                   isnan(v.as.real) ? "NaN"
                   : v.as.real < 0  ? "-Infinity"
                                    : "Infinity",
                   (lar_template_origin)v.origin);
    size_t n = float_text(v.as.real, text);
    return lar_tpl_out_add(w->o, text, n, (lar_template_origin)v.origin);
}

/* A value without elements. `top`: it is what is printed, not inside a list. */
static lar_error write_flat(writer *w, lar_tpl v, bool top) {
    bool json = w->form != NULL;
    lar_template_origin origin = (lar_template_origin)v.origin;
    switch ((lar_tpl_kind)v.kind) {
    case LAR_TPL_UNDEFINED:
        if (json)
            return lar_tpl_fail(w->o->w, LAR_INVALID, "tojson of the undefined %s", v.as.name ? v.as.name : "value");
        return top ? LAR_OK : put(w, "Undefined", origin);
    case LAR_TPL_NONE: return put(w, json ? "null" : "None", origin);
    case LAR_TPL_BOOL:
        if (json) return put(w, v.as.truth ? "true" : "false", origin);
        return put(w, v.as.truth ? "True" : "False", origin);
    case LAR_TPL_INT:
    case LAR_TPL_BIG:
    case LAR_TPL_FLOAT: return write_number(w, v);
    case LAR_TPL_STRING: return top && !json ? lar_tpl_out_string(w->o, v.as.string) : write_quoted(w, v);
    default: return lar_tpl_fail(w->o->w, LAR_INVALID, "%s cannot be printed", lar_tpl_kind_name(v));
    }
}

static uint32_t count_of(lar_tpl v) { return lar_tpl_is_list(v) ? v.as.list->count : v.as.dict->count; }

/* Members ordered by key, which are all text; otherwise as they are. Insertion sort, paid by steps. */
static lar_error sorted_members(writer *w, lar_tpl v, const lar_tpl **items) {
    uint32_t n = v.as.dict->count;
    lar_tpl *copy = lar_tpl_alloc(w->o->w, 2 * (size_t)n * sizeof *copy);
    if (!copy) return lar_tpl_no_memory(w->o->w);
    *items = copy;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t j = i;
        for (; j > 0; j--) {
            int order = 0;
            lar_error e = lar_tpl_order(w->o->w, copy[2 * j - 2], v.as.dict->items[2 * i], &order);
            if (e) return e;
            if (order <= 0) break;
            memcpy(&copy[2 * j], &copy[2 * j - 2], 2 * sizeof *copy);
        }
        memcpy(&copy[2 * j], &v.as.dict->items[2 * i], 2 * sizeof *copy);
    }
    return LAR_OK;
}

static lar_error open_level(writer *w, lar_tpl v) {
    if (w->depth == LAR_TPL_NESTED_MAX)
        return lar_tpl_fail(w->o->w, LAR_LIMIT, "values are nested too deeply to print");
    level *l = &w->stack[w->depth++];
    *l = (level){.v = v, .items = lar_tpl_is_list(v) ? v.as.list->items : v.as.dict->items};
    if (!lar_tpl_is_list(v) && w->form && w->form->sorted) {
        lar_error e = sorted_members(w, v, &l->items);
        if (e) return e;
    }
    const char *mark = v.kind == LAR_TPL_DICT ? "{" : v.kind == LAR_TPL_TUPLE && !w->form ? "(" : "[";
    return put(w, mark, (lar_template_origin)v.origin);
}

static lar_error line_break(writer *w, uint32_t depth, lar_template_origin origin) {
    if (!w->form || w->form->indent < 0) return LAR_OK;
    lar_error e = put(w, "\n", origin);
    for (uint64_t i = 0; !e && i < depth * (uint64_t)w->form->indent; i++) e = put(w, " ", origin);
    return e;
}

static lar_error close_level(writer *w) {
    level *l = &w->stack[--w->depth];
    lar_template_origin origin = (lar_template_origin)l->v.origin;
    lar_error e = count_of(l->v) ? line_break(w, w->depth, origin) : LAR_OK;
    if (e) return e;
    if (l->v.kind == LAR_TPL_DICT) return put(w, "}", origin);
    if (w->form || l->v.kind == LAR_TPL_LIST) return put(w, "]", origin);
    return put(w, count_of(l->v) == 1 ? ",)" : ")", origin);
}

/* JSON's keys are text: other keys are printed as json.dumps does. */
static lar_error write_key(writer *w, lar_tpl key) {
    if (key.kind == LAR_TPL_STRING || !w->form) return write_flat(w, key, false);
    lar_error e = put(w, "\"", (lar_template_origin)key.origin);
    if (!e) e = write_flat(w, key, false);
    return e ? e : put(w, "\"", (lar_template_origin)key.origin);
}

/* What stands before the next element of the innermost level, and the element. */
static lar_error next_element(writer *w, lar_tpl *v) {
    level *l = &w->stack[w->depth - 1];
    lar_template_origin origin = (lar_template_origin)l->v.origin;
    lar_error e = lar_tpl_pay(w->o->w, 1);
    if (!e && l->at) e = put_slice(w, w->form ? w->form->item_separator : LAR_SLICE(", "), origin);
    if (!e) e = line_break(w, w->depth, origin);
    if (e) return e;
    uint32_t i = l->at++;
    if (lar_tpl_is_list(l->v)) {
        *v = l->items[i];
        return LAR_OK;
    }
    *v = l->items[2 * i + 1];
    e = write_key(w, l->items[2 * i]);
    return e ? e : put_slice(w, w->form ? w->form->key_separator : LAR_SLICE(": "), origin);
}

static lar_error write_all(writer *w, lar_tpl v) {
    for (bool top = true;; top = false) {
        lar_error e = lar_tpl_is_list(v) || v.kind == LAR_TPL_DICT ? open_level(w, v) : write_flat(w, v, top);
        while (!e && w->depth && w->stack[w->depth - 1].at == count_of(w->stack[w->depth - 1].v)) e = close_level(w);
        if (e || !w->depth) return e;
        e = next_element(w, &v);
        if (e) return e;
    }
}

lar_error lar_tpl_out_value(lar_tpl_out *o, lar_tpl v) {
    if (v.kind == LAR_TPL_STRING) return lar_tpl_out_string(o, v.as.string);
    writer w = {.o = o};
    return write_all(&w, v);
}

lar_error lar_tpl_to_json(lar_tpl_out *o, lar_tpl v, const lar_tpl_json_form *form) {
    writer w = {.o = o, .form = form};
    return write_all(&w, v);
}
