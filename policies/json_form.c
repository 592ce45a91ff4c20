/* Reading and printing the form of a JSON text (header: json_form.h).
 * Called by output*.c and their rules, on a loop thread; never blocks; pure but for its work space.
 * Invariants: 1. a form that was read prints the very text it was read from: that is tried before it is given out.
 * 2. no recursion: what is being printed lies on a stack of DEPTH_MAX. 3. all work is linear in the text, sorting
 * members aside.
 * Not here: whose texts these are, and whether they may be changed. */
#include "policies/json_form.h"

#include "policies/json_order.h"
#include "policies/text.h"

enum { DEPTH_MAX = 64, INDENT_MAX = 8, INDENT_TAB = 9, INDENT_GAPS = 255, HEAD_BYTES = 2, GAP_MAX = 255 };
enum {
    STYLE_COMMA_BLANK = 1,
    STYLE_COLON_BLANK = 2,
    STYLE_ASCII = 4, /* what is not ASCII is escaped */
    STYLE_SLASH = 8, /* "\/" */
    STYLE_HTML = 16, /* <, > and & are escaped */
    STYLE_UPPER = 32,
    STYLE_LINE_END = 64, /* the text ends in LF */
    STYLE_KNOWN = 127
};

void lar_json_forms_init(lar_json_forms *f, lar_arena *arena) {
    *f = (lar_json_forms){.arena = arena};
    lar_json_init(&f->json);
    lar_buf_init(&f->text, LAR_JSON_FORM_TEXT_MAX);
    lar_buf_init(&f->decoded, LAR_JSON_FORM_TEXT_MAX);
}

void lar_json_forms_release(lar_json_forms *f) {
    lar_json_release(&f->json);
    lar_buf_release(&f->text);
    lar_buf_release(&f->decoded);
}

bool lar_json_forms_parse(lar_json_forms *f, lar_slice text) {
    static const lar_json_limits limits = {.depth_max = DEPTH_MAX, .nodes_max = LAR_JSON_FORM_NODES_MAX};
    size_t at = 0;
    while (at < text.len &&
           (text.ptr[at] == ' ' || text.ptr[at] == '\n' || text.ptr[at] == '\r' || text.ptr[at] == '\t'))
        at++;
    if (text.len > LAR_JSON_FORM_TEXT_MAX || at == text.len || (text.ptr[at] != '{' && text.ptr[at] != '['))
        return false;
    return lar_json_parse(&f->json, text, &limits, NULL) == LAR_OK;
}

/* The decoded text of a string, until the next call. */
static lar_error decoded(lar_json_forms *f, const lar_json *j, uint32_t node, lar_slice *out) {
    *out = lar_json_inner(j, node);
    if (!(j->nodes[node].flags & LAR_JSON_ESCAPED)) return LAR_OK;
    f->decoded.len = 0;
    lar_error e = lar_buf_reserve(&f->decoded, out->len);
    if (!e) *out = lar_slice_of(f->decoded.ptr, lar_text_decode(*out, f->decoded.ptr));
    return e;
}

/* -- norm ------------------------------------------------------------------------------------------- */

static lar_hash tagged(lar_hash h, char tag) {
    h.bytes[0] ^= (uint8_t)tag;
    return h;
}

static lar_hash object_norm(const lar_json *j, uint32_t node, const lar_hash *of, uint32_t base) {
    uint64_t sum[2] = {0, 0}; /* of the members, in any order */
    for (uint32_t k = lar_json_first(j, node); k != LAR_JSON_NONE; k = lar_json_after(j, node, k)) {
        uint64_t v[2];
        lar_hash member = lar_hash_join(of[k - base], of[k + 1 - base]);
        memcpy(v, member.bytes, sizeof v);
        sum[0] += v[0];
        sum[1] += v[1];
    }
    return tagged(lar_hash_of(lar_slice_of((const char *)sum, sizeof sum)), 'o');
}

static lar_hash array_norm(const lar_json *j, uint32_t node, const lar_hash *of, uint32_t base) {
    lar_hash h = tagged((lar_hash){{0}}, 'a');
    for (uint32_t k = lar_json_first(j, node); k != LAR_JSON_NONE; k = lar_json_after(j, node, k))
        h = lar_hash_join(h, of[k - base]);
    return h;
}

lar_error lar_json_form_norm(lar_json_forms *f, const lar_json *j, uint32_t node, lar_hash *norm) {
    uint32_t end = j->nodes[node].next, n = end - node;
    if (n > f->hashes_cap) {
        f->hashes = lar_arena_alloc(f->arena, n * sizeof *f->hashes);
        f->hashes_cap = f->hashes ? n : 0;
        if (!f->hashes) return LAR_NO_MEMORY;
    }
    for (uint32_t i = end; i-- > node;) { /* children come before their parents */
        lar_slice text;
        lar_hash *h = &f->hashes[i - node];
        switch (lar_json_kind_of(j, i)) {
        case LAR_JSON_OBJECT: *h = object_norm(j, i, f->hashes, node); break;
        case LAR_JSON_ARRAY: *h = array_norm(j, i, f->hashes, node); break;
        case LAR_JSON_STRING: {
            lar_error e = decoded(f, j, i, &text);
            if (e) return e;
            *h = tagged(lar_hash_of(text), 's');
            break;
        }
        case LAR_JSON_NULL:
        case LAR_JSON_FALSE:
        case LAR_JSON_TRUE:
        case LAR_JSON_NUMBER: *h = tagged(lar_hash_of(lar_json_raw(j, i)), 'v'); break;
        }
    }
    *norm = f->hashes[0];
    return LAR_OK;
}

/* -- printing --------------------------------------------------------------------------------------- */

static lar_error put(lar_json_forms *f, const char *bytes, size_t len) { return lar_buf_add(&f->text, bytes, len); }

static lar_error put_unit(lar_json_forms *f, uint32_t unit, uint8_t style) {
    const char *digits = style & STYLE_UPPER ? "0123456789ABCDEF" : "0123456789abcdef";
    char out[6] = {
        '\\', 'u', digits[unit >> 12 & 15], digits[unit >> 8 & 15], digits[unit >> 4 & 15], digits[unit & 15]};
    return put(f, out, sizeof out);
}

/* One character that is not ASCII; *len: its bytes. The text is UTF-8, or a lone surrogate in three bytes. */
static lar_error put_wide(lar_json_forms *f, lar_slice s, uint8_t style, size_t *len) {
    const uint8_t *p = (const uint8_t *)s.ptr;
    uint32_t c;
    *len = p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
    if (*len > s.len) *len = s.len;
    if (*len == 2) c = (p[0] & 31u) << 6 | (p[1] & 63u);
    else if (*len == 3) c = (p[0] & 15u) << 12 | (p[1] & 63u) << 6 | (p[2] & 63u);
    else if (*len == 4) c = (p[0] & 7u) << 18 | (p[1] & 63u) << 12 | (p[2] & 63u) << 6 | (p[3] & 63u);
    else return LAR_INVALID;
    bool surrogate = c >= 0xD800 && c < 0xE000;
    if (!surrogate && !(style & STYLE_ASCII)) return put(f, s.ptr, *len);
    if (c < 0x10000) return put_unit(f, c, style);
    lar_error e = put_unit(f, 0xD800 + ((c - 0x10000) >> 10), style);
    return e ? e : put_unit(f, 0xDC00 + ((c - 0x10000) & 0x3FF), style);
}

/* What follows the backslash where one letter does; 0: none. */
static char short_escape(char c) {
    switch (c) {
    case '"':
    case '\\': return c;
    case '\b': return 'b';
    case '\f': return 'f';
    case '\n': return 'n';
    case '\r': return 'r';
    case '\t': return 't';
    default: return 0;
    }
}

static bool is_plain(char c, uint8_t style) {
    uint8_t b = (uint8_t)c;
    if (b < ' ' || b == '"' || b == '\\') return false;
    if (b >= 0x80) return !(style & STYLE_ASCII) && b != 0xED; /* 0xED may begin a surrogate */
    if (b == '/') return !(style & STYLE_SLASH);
    return !(style & STYLE_HTML) || (b != '<' && b != '>' && b != '&');
}

static lar_error put_text(lar_json_forms *f, lar_slice s, uint8_t style) {
    lar_error e = put(f, "\"", 1);
    while (s.len && !e) {
        size_t n = 0;
        while (n < s.len && is_plain(s.ptr[n], style)) n++;
        if (n) e = put(f, s.ptr, n);
        if (!e && n < s.len) {
            char c = s.ptr[n], escape[2] = {'\\', short_escape(c)};
            size_t taken = 1;
            if (c == '/') escape[1] = '/';
            if ((uint8_t)c >= 0x80) e = put_wide(f, lar_slice_of(s.ptr + n, s.len - n), style, &taken);
            else if (escape[1]) e = put(f, escape, 2);
            else e = put_unit(f, (uint8_t)c, style);
            n += taken;
        }
        s = lar_slice_of(s.ptr + n, s.len - n);
    }
    return e ? e : put(f, "\"", 1);
}

static lar_error put_scalar(lar_json_forms *f, const lar_json *j, uint32_t node, uint8_t style) {
    lar_slice text = lar_json_raw(j, node);
    if (!lar_json_is(j, node, LAR_JSON_STRING)) return put(f, text.ptr, text.len);
    lar_error e = decoded(f, j, node, &text);
    return e ? e : put_text(f, text, style);
}

/* A container that is being printed. */
typedef struct frame {
    uint32_t node, child, place; /* child: of an array, the next element */
} frame;

/* How blanks are printed. */
typedef struct manner {
    uint8_t style, indent;
    lar_slice gaps; /* where `indent` is INDENT_GAPS */
} manner;

typedef struct printer {
    lar_json_forms *f;
    const lar_json *json;
    const lar_json_order *order;
    uint8_t style, indent; /* indent 0 where gaps are given */
    lar_slice gaps;
    uint32_t repeat; /* how often the gap in front was used */
    bool given;
    uint32_t depth;
    frame stack[DEPTH_MAX + 1];
} printer;

static lar_error new_line(const printer *p, uint32_t level) {
    static const char blanks[] = "        ", tab[] = "\t";
    lar_error e = put(p->f, "\n", 1);
    uint32_t n = p->indent == INDENT_TAB ? 1 : p->indent;
    for (uint32_t i = 0; i < level && !e; i++) e = put(p->f, p->indent == INDENT_TAB ? tab : blanks, n);
    return e;
}

/* The given blanks before the next token. */
static lar_error gap(printer *p) {
    if (!p->given) return LAR_OK;
    const uint8_t *g = (const uint8_t *)p->gaps.ptr;
    if (p->gaps.len < 2 || p->gaps.len < 2u + g[1] || g[0] == 0) return LAR_INVALID;
    for (uint32_t i = 0; i < g[1]; i++)
        if (g[2 + i] != ' ' && g[2 + i] != '\n' && g[2 + i] != '\r' && g[2 + i] != '\t') return LAR_INVALID;
    lar_error e = put(p->f, p->gaps.ptr + 2, g[1]);
    if (++p->repeat < g[0]) return e;
    p->repeat = 0;
    p->gaps = lar_slice_of(p->gaps.ptr + 2 + g[1], p->gaps.len - 2 - g[1]);
    return e;
}

static lar_error token(printer *p, char c) {
    lar_error e = gap(p);
    return e ? e : put(p->f, &c, 1);
}

static lar_error put_value(printer *p, uint32_t node) {
    const lar_json_node *n = &p->json->nodes[node];
    if (n->kind < LAR_JSON_ARRAY) {
        lar_error e = gap(p);
        return e ? e : put_scalar(p->f, p->json, node, p->style);
    }
    bool object = n->kind == LAR_JSON_OBJECT;
    if (p->depth > DEPTH_MAX) return LAR_LIMIT;
    lar_error e = token(p, object ? '{' : '[');
    if (n->count == 0) return e ? e : token(p, object ? '}' : ']');
    p->stack[p->depth++] = (frame){.node = node, .child = object ? LAR_JSON_NONE : node + 1};
    return e;
}

/* The next child of the innermost container, or its end. */
static lar_error step(printer *p) {
    frame *at = &p->stack[p->depth - 1];
    const lar_json *j = p->json;
    bool object = lar_json_is(j, at->node, LAR_JSON_OBJECT);
    lar_error e = LAR_OK;
    if (at->place == j->nodes[at->node].count) {
        p->depth--;
        if (p->indent) e = new_line(p, p->depth);
        return e ? e : token(p, object ? '}' : ']');
    }
    if (at->place) e = token(p, ',');
    if (!e && at->place && !p->indent && p->style & STYLE_COMMA_BLANK) e = put(p->f, " ", 1);
    if (!e && p->indent) e = new_line(p, p->depth);
    uint32_t value = at->child;
    if (object) {
        uint32_t key = p->order->want[p->order->first[at->node - p->order->root] + at->place];
        value = key + 1;
        if (!e) e = gap(p);
        if (!e) e = put_scalar(p->f, j, key, p->style);
        if (!e) e = token(p, ':');
        if (!e && p->style & STYLE_COLON_BLANK) e = put(p->f, " ", 1);
    } else {
        at->child = lar_json_after(j, at->node, at->child);
    }
    at->place++;
    return e ? e : put_value(p, value);
}

static lar_error print(lar_json_forms *f, const lar_json_order *o, const manner *m) {
    bool given = m->indent == INDENT_GAPS;
    printer p = {.f = f,
                 .json = o->json,
                 .order = o,
                 .style = m->style,
                 .indent = given ? 0 : m->indent,
                 .gaps = m->gaps,
                 .given = given};
    f->text.len = 0;
    lar_error e = put_value(&p, o->root);
    while (p.depth && !e) e = step(&p);
    if (!e) e = gap(&p);
    if (!e && p.gaps.len) e = LAR_INVALID;
    return e || !(m->style & STYLE_LINE_END) ? e : put(f, "\n", 1);
}

lar_error lar_json_form_print(lar_json_forms *f, const lar_json *j, uint32_t node, lar_slice form) {
    lar_json_order o = {.json = j, .root = node, .skip = LAR_JSON_NONE};
    bool fits;
    if (form.len < HEAD_BYTES) return LAR_INVALID;
    manner m = {.style = (uint8_t)form.ptr[0], .indent = (uint8_t)form.ptr[1]};
    bool given = m.indent == INDENT_GAPS;
    form = lar_slice_of(form.ptr + HEAD_BYTES, form.len - HEAD_BYTES);
    if (m.style > STYLE_KNOWN || (m.indent > INDENT_TAB && !given) || (given && form.len < 2)) return LAR_INVALID;
    if (given) {
        size_t n = (uint8_t)form.ptr[0] | (size_t)(uint8_t)form.ptr[1] << 8;
        if (form.len < 2 + n) return LAR_INVALID;
        m.gaps = lar_slice_of(form.ptr + 2, n);
        form = lar_slice_of(form.ptr + 2 + n, form.len - 2 - n);
    }
    lar_error e = lar_json_order_read(&o, f->arena, &fits);
    if (e) return e;
    if (!fits || !lar_json_order_apply(&o, form)) return LAR_INVALID;
    return print(f, &o, &m);
}

/* -- reading ---------------------------------------------------------------------------------------- */

static uint8_t string_style(lar_slice raw) {
    uint8_t style = 0;
    for (size_t i = 0; i + 1 < raw.len; i++) {
        if (raw.ptr[i] != '\\') continue;
        char c = raw.ptr[++i];
        if (c == '/') style |= STYLE_SLASH;
        if (c != 'u' || i + 4 >= raw.len) continue;
        const char *hex = raw.ptr + i + 1;
        bool low = hex[0] == '0' && hex[1] == '0';
        if (!low || hex[2] >= '8') style |= STYLE_ASCII;
        if (low && (hex[2] == '3' || hex[2] == '2')) style |= STYLE_HTML;
        for (int k = 0; k < 4; k++) style |= hex[k] >= 'A' && hex[k] <= 'F' ? STYLE_UPPER : 0;
    }
    return style;
}

/* The blanks in front of the first child of a container that spans lines. */
static uint8_t read_indent(const lar_json *j, uint32_t node) {
    if (j->nodes[node].kind < LAR_JSON_ARRAY || j->nodes[node].count == 0) return 0;
    const char *p = j->body.ptr + j->nodes[node].start + 1;
    uint32_t n = j->nodes[node + 1].start - j->nodes[node].start - 1;
    if (n < 2 || p[0] != '\n') return 0;
    if (n == 2 && p[1] == '\t') return INDENT_TAB;
    return n - 1 <= INDENT_MAX ? (uint8_t)(n - 1) : 0;
}

static uint8_t read_style(const lar_json *j, uint32_t node, lar_slice text) {
    uint8_t style = text.len && text.ptr[text.len - 1] == '\n' ? STYLE_LINE_END : 0;
    for (uint32_t i = node; i < j->nodes[node].next; i++) {
        const lar_json_node *n = &j->nodes[i];
        if (n->flags & LAR_JSON_KEY && j->body.ptr[j->nodes[i + 1].start - 1] == ' ') style |= STYLE_COLON_BLANK;
        if (n->flags & LAR_JSON_ESCAPED) style |= string_style(lar_json_raw(j, i));
        if (n->kind < LAR_JSON_ARRAY || n->count < 2 || style & STYLE_COMMA_BLANK) continue;
        uint32_t second = lar_json_after(j, i, i + 1);
        if (j->body.ptr[j->nodes[second].start - 1] == ' ') style |= STYLE_COMMA_BLANK;
    }
    return style;
}

static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/* Where the token at `at` ends; the text is JSON. */
static size_t token_end(lar_slice s, size_t at) {
    static const char marks[] = "{}[],:";
    char c = s.ptr[at++];
    if (c != '"' && memchr(marks, c, sizeof marks - 1)) return at;
    if (c == '"') {
        while (at < s.len && s.ptr[at] != '"') at += s.ptr[at] == '\\' ? 2 : 1;
        return at < s.len ? at + 1 : s.len;
    }
    while (at < s.len && !is_blank(s.ptr[at]) && !memchr(marks, s.ptr[at], sizeof marks - 1)) at++;
    return at;
}

/* Appends the blanks before each token, and behind the last; LIMIT where they are too many. */
static lar_error read_gaps(lar_slice text, lar_buf *out) {
    size_t last = SIZE_MAX; /* where the entry of the gap before stands */
    for (size_t at = 0; at <= text.len;) {
        size_t from = at;
        while (at < text.len && is_blank(text.ptr[at])) at++;
        size_t n = at - from;
        if (n > GAP_MAX) return LAR_LIMIT;
        uint8_t *e = last == SIZE_MAX ? NULL : (uint8_t *)out->ptr + last;
        if (e && e[0] < 255 && e[1] == n && memcmp(e + 2, text.ptr + from, n) == 0) {
            e[0]++;
        } else {
            char head[2] = {1, (char)n};
            last = out->len;
            lar_error err = lar_buf_add(out, head, sizeof head);
            if (!err && n) err = lar_buf_add(out, text.ptr + from, n);
            if (err) return err;
        }
        if (at == text.len) return LAR_OK;
        at = token_end(text, at);
    }
    return LAR_OK;
}

/* The head of a form, if it prints the text: blanks by a rule, else as they stand. */
static lar_error find_manner(lar_json_forms *f, const lar_json_order *o, lar_slice text, lar_buf *out) {
    manner m = {.style = read_style(o->json, o->root, text), .indent = read_indent(o->json, o->root)};
    if (m.indent) m.style &= (uint8_t)~STYLE_COMMA_BLANK;
    char head[HEAD_BYTES + 2] = {(char)m.style, (char)m.indent};
    lar_error e = print(f, o, &m);
    if (e == LAR_LIMIT) return LAR_INVALID;
    if (e) return e;
    if (lar_slice_eq(lar_buf_slice(&f->text), text)) return lar_buf_add(out, head, HEAD_BYTES);
    m.style &= (uint8_t) ~(STYLE_COMMA_BLANK | STYLE_COLON_BLANK | STYLE_LINE_END);
    m.indent = INDENT_GAPS;
    size_t at = out->len;
    e = lar_buf_add(out, head, sizeof head);
    if (!e) e = read_gaps(text, out);
    if (e) return e == LAR_LIMIT ? LAR_INVALID : e;
    size_t n = out->len - at - sizeof head;
    if (n > UINT16_MAX) return LAR_INVALID;
    out->ptr[at] = (char)m.style;
    out->ptr[at + 1] = (char)m.indent;
    out->ptr[at + 2] = (char)(n & 255);
    out->ptr[at + 3] = (char)(n >> 8);
    m.gaps = lar_slice_of(out->ptr + at + sizeof head, n);
    e = print(f, o, &m);
    if (!e && !lar_slice_eq(lar_buf_slice(&f->text), text)) e = LAR_INVALID;
    return e == LAR_LIMIT ? LAR_INVALID : e;
}

lar_error lar_json_form_read(lar_json_forms *f, const lar_json *j, uint32_t node, lar_slice text, lar_buf *out) {
    lar_json_order o = {.json = j, .root = node, .skip = LAR_JSON_NONE};
    bool fits;
    size_t before = out->len;
    lar_error e = lar_json_order_read(&o, f->arena, &fits);
    if (e || !fits) return e ? e : LAR_INVALID;
    e = find_manner(f, &o, text, out);
    if (!e) e = lar_json_order_write(&o, f->arena, out);
    bool long_one = out->len - before > LAR_JSON_FORM_BYTES_MAX;
    if (e || long_one) out->len = before;
    return e == LAR_LIMIT || (!e && long_one) ? LAR_INVALID : e;
}
