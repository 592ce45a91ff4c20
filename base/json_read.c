/* Reading a span tree: look-ups, decoded strings, numbers, pointers; and escaping text for output.
 * Flow: policies, request and usage call it with a tree that lar_json_parse filled.
 * Thread: any, the tree is only read. Never blocks.
 * Invariants: 1. strings were validated by the parser, so escapes are complete here.
 * 2. an error leaves the output buffer as it was.
 * Memory: the caller's buffers. Not here: parsing (json.c and json_*.c). */
#include <math.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/utf8.h"

lar_slice lar_json_raw(const lar_json *j, uint32_t node) {
    if (node >= j->count) return (lar_slice){0};
    const lar_json_node *n = &j->nodes[node];
    return lar_slice_of(j->body.ptr + n->start, n->end - n->start);
}

lar_slice lar_json_inner(const lar_json *j, uint32_t node) {
    if (!lar_json_is(j, node, LAR_JSON_STRING)) return (lar_slice){0};
    const lar_json_node *n = &j->nodes[node];
    return lar_slice_of(j->body.ptr + n->start + 1, n->end - n->start - 2);
}

static uint32_t hex4(const char *p) {
    uint32_t v = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t c = (unsigned char)p[i];
        v = v << 4 | (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return v;
}

/* Decodes the escape at the backslash p into out[4]; *used is the input length. */
static size_t decode_escape(const char *p, const char *end, char *out, size_t *used) {
    *used = 2;
    switch (p[1]) {
    case 'b': out[0] = '\b'; return 1;
    case 'f': out[0] = '\f'; return 1;
    case 'n': out[0] = '\n'; return 1;
    case 'r': out[0] = '\r'; return 1;
    case 't': out[0] = '\t'; return 1;
    case 'u': break;
    default: out[0] = p[1]; return 1;
    }
    *used = 6;
    uint32_t code = hex4(p + 2);
    if (code >= 0xD800 && code < 0xDC00 && end - p >= 12 && p[6] == '\\' && p[7] == 'u') {
        uint32_t low = hex4(p + 8);
        if (low >= 0xDC00 && low < 0xE000) {
            *used = 12;
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        }
    }
    return lar_utf8_write(code, out);
}

static bool eq_escaped(lar_slice raw, lar_slice text) {
    const char *p = raw.ptr, *end = raw.ptr + raw.len;
    size_t at = 0;
    while (p < end) {
        char piece[4];
        size_t used = 1, n = 1;
        if (*p == '\\') n = decode_escape(p, end, piece, &used);
        else piece[0] = *p;
        if (text.len - at < n || memcmp(text.ptr + at, piece, n) != 0) return false;
        at += n;
        p += used;
    }
    return at == text.len;
}

bool lar_json_eq(const lar_json *j, uint32_t node, lar_slice text) {
    if (!lar_json_is(j, node, LAR_JSON_STRING)) return false;
    lar_slice raw = lar_json_inner(j, node);
    if (!(j->nodes[node].flags & LAR_JSON_ESCAPED)) return lar_slice_eq(raw, text);
    return text.len < raw.len && eq_escaped(raw, text); /* every escape is longer than what it stands for */
}

/* The key behind `after` (NONE: from the start) that is named `name`; NONE if there is no more. */
static uint32_t find_key(const lar_json *j, uint32_t object, lar_slice name, uint32_t after) {
    if (!lar_json_is(j, object, LAR_JSON_OBJECT)) return LAR_JSON_NONE;
    uint32_t end = j->nodes[object].next;
    uint32_t k = after == LAR_JSON_NONE ? object + 1 : j->nodes[after + 1].next;
    for (; k < end; k = j->nodes[k + 1].next) { /* most keys differ in length already */
        const lar_json_node *n = &j->nodes[k];
        bool plain = !(n->flags & LAR_JSON_ESCAPED);
        if (plain && (n->end - n->start != name.len + 2 || memcmp(j->body.ptr + n->start + 1, name.ptr, name.len) != 0))
            continue;
        if (plain || lar_json_eq(j, k, name)) return k;
    }
    return LAR_JSON_NONE;
}

uint32_t lar_json_get(const lar_json *j, uint32_t object, const char *name) {
    uint32_t k = find_key(j, object, lar_slice_cstr(name), LAR_JSON_NONE);
    return k == LAR_JSON_NONE ? k : k + 1;
}

uint32_t lar_json_get_count(const lar_json *j, uint32_t object, const char *name) {
    lar_slice text = lar_slice_cstr(name);
    uint32_t n = 0;
    for (uint32_t k = find_key(j, object, text, LAR_JSON_NONE); k != LAR_JSON_NONE; k = find_key(j, object, text, k))
        n++;
    return n;
}

uint32_t lar_json_get_last(const lar_json *j, uint32_t object, const char *name) {
    lar_slice text = lar_slice_cstr(name);
    uint32_t last = LAR_JSON_NONE;
    for (uint32_t k = find_key(j, object, text, LAR_JSON_NONE); k != LAR_JSON_NONE; k = find_key(j, object, text, k))
        last = k + 1;
    return last;
}

uint32_t lar_json_at(const lar_json *j, uint32_t array, uint32_t i) {
    if (!lar_json_is(j, array, LAR_JSON_ARRAY) || i >= j->nodes[array].count) return LAR_JSON_NONE;
    uint32_t c = array + 1;
    while (i--) c = j->nodes[c].next;
    return c;
}

static size_t decoded_length(lar_slice raw) {
    const char *p = raw.ptr, *end = raw.ptr + raw.len;
    size_t n = 0;
    while (p < end) {
        char piece[4];
        size_t used = 1;
        n += *p == '\\' ? decode_escape(p, end, piece, &used) : 1;
        p += used;
    }
    return n;
}

/* Decodes into `out`, which has room; returns the length. */
static size_t decode_into(lar_slice raw, char *out) {
    const char *p = raw.ptr, *end = raw.ptr + raw.len;
    char *at = out;
    while (p < end) {
        const char *stop = memchr(p, '\\', (size_t)(end - p));
        size_t run = (size_t)((stop ? stop : end) - p);
        memcpy(at, p, run);
        at += run;
        p += run;
        while (p < end && *p == '\\') { /* escapes often stand in rows; piece: at has no room to spare */
            char piece[4];
            size_t used, n = decode_escape(p, end, piece, &used);
            memcpy(at, piece, n);
            at += n;
            p += used;
        }
    }
    return (size_t)(at - out);
}

lar_error lar_json_decode(const lar_json *j, uint32_t node, lar_buf *out) {
    if (!lar_json_is(j, node, LAR_JSON_STRING)) return LAR_INVALID;
    lar_slice raw = lar_json_inner(j, node);
    if (!(j->nodes[node].flags & LAR_JSON_ESCAPED)) return lar_buf_add_slice(out, raw);
    lar_error e = lar_buf_reserve(out, raw.len);
    if (e == LAR_LIMIT) e = lar_buf_reserve(out, decoded_length(raw)); /* shorter than what is written */
    if (e) return e;
    out->len += decode_into(raw, out->ptr + out->len);
    return LAR_OK;
}

/* The escape of a byte that must not stand raw in a string; its length. */
static size_t escape_byte(unsigned char c, char *out) {
    static const char hex[] = "0123456789abcdef";
    const char *at = c ? strchr("\"\"\\\\\bb\ff\nn\rr\tt", c) : NULL;
    out[0] = '\\';
    if (at) {
        out[1] = at[1];
        return 2;
    }
    memcpy(out + 1, "u00", 3);
    out[4] = hex[c >> 4];
    out[5] = hex[c & 15];
    return 6;
}

/* The three-byte form of a surrogate, which lar_json_decode makes of a lone one, as its escape. */
static size_t escape_surrogate(const unsigned char *p, const unsigned char *end, char *out) {
    static const char hex[] = "0123456789abcdef";
    if (end - p < 3 || p[0] != 0xED || (p[1] & 0xE0) != 0xA0 || (p[2] & 0xC0) != 0x80) return 0;
    memcpy(out, "\\ud", 3);
    out[3] = hex[8 | (p[1] >> 2 & 7)];
    out[4] = hex[(p[1] & 3) << 2 | (p[2] >> 4 & 3)];
    out[5] = hex[p[2] & 15];
    return 6;
}

lar_error lar_json_escape(lar_buf *out, lar_slice text) {
    const unsigned char *p = (const unsigned char *)(text.ptr ? text.ptr : ""), *end = p + text.len, *run = p;
    size_t before = out->len;
    lar_error e = LAR_OK;
    while (!e && p < end) {
        if (*p >= 0x20 && *p < 0x80 && *p != '"' && *p != '\\') {
            p++;
            continue;
        }
        size_t n = *p >= 0x80 ? lar_utf8_sequence(p, end) : 0;
        if (n) {
            p += n;
            continue;
        }
        char piece[6];
        n = *p >= 0x80 ? escape_surrogate(p, end, piece) : escape_byte(*p, piece);
        e = n ? lar_buf_add(out, run, (size_t)(p - run)) : LAR_INVALID;
        if (!e) e = lar_buf_add(out, piece, n);
        p += *p >= 0x80 ? 3 : 1;
        run = p;
    }
    if (!e && run < end) e = lar_buf_add(out, run, (size_t)(end - run));
    if (e) out->len = before;
    return e;
}

bool lar_json_u64(const lar_json *j, uint32_t node, uint64_t *out) {
    if (!lar_json_is(j, node, LAR_JSON_NUMBER)) return false;
    lar_slice s = lar_json_raw(j, node);
    uint64_t v = 0;
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] < '0' || s.ptr[i] > '9') return false;
        uint64_t digit = (uint64_t)(s.ptr[i] - '0');
        if (v > (UINT64_MAX - digit) / 10) return false;
        v = v * 10 + digit;
    }
    *out = v;
    return true;
}

bool lar_json_double(const lar_json *j, uint32_t node, double *out) {
    char text[512];
    lar_slice s = lar_json_raw(j, node);
    if (!lar_json_is(j, node, LAR_JSON_NUMBER) || s.len >= sizeof text) return false;
    memcpy(text, s.ptr, s.len);
    text[s.len] = 0;
    double v = strtod(text, NULL);
    if (!isfinite(v)) return false;
    *out = v;
    return true;
}

static lar_error add_pointer_name(const lar_json *j, uint32_t key, lar_buf *out) {
    lar_error e = lar_buf_add(out, "/", 1);
    size_t from = out->len;
    if (!e) e = lar_json_decode(j, key, out);
    size_t extra = 0;
    for (size_t i = from; !e && i < out->len; i++) extra += out->ptr[i] == '~' || out->ptr[i] == '/';
    if (!e) e = lar_buf_reserve(out, extra);
    if (e || !extra) return e;
    size_t at = out->len + extra; /* from behind, so that nothing is overwritten before it is read */
    for (size_t i = out->len; i-- > from;) {
        char c = out->ptr[i];
        if (c == '~' || c == '/') {
            out->ptr[--at] = c == '~' ? '0' : '1';
            c = '~';
        }
        out->ptr[--at] = c;
    }
    out->len += extra;
    return LAR_OK;
}

/* The child of `parent` whose subtree holds `node`; its place among the children in *index. */
static uint32_t child_towards(const lar_json *j, uint32_t parent, uint32_t node, uint32_t *index) {
    uint32_t c = parent + 1;
    *index = 0;
    while (node >= (j->nodes[c].flags & LAR_JSON_KEY ? j->nodes[c + 1].next : j->nodes[c].next)) {
        c = lar_json_after(j, parent, c);
        (*index)++;
    }
    return c;
}

lar_error lar_json_pointer(const lar_json *j, uint32_t node, lar_buf *out) {
    if (node >= j->count) return LAR_INVALID;
    size_t before = out->len;
    lar_error e = LAR_OK;
    uint32_t at = 0;
    while (!e && at != node) {
        uint32_t index, c = child_towards(j, at, node, &index);
        if (j->nodes[c].flags & LAR_JSON_KEY) {
            e = add_pointer_name(j, c, out);
            at = node == c ? node : c + 1;
        } else {
            e = lar_buf_printf(out, "/%u", index);
            at = c;
        }
    }
    if (e) out->len = before;
    return e;
}
