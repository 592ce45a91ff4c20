/* A small JSON skimmer: finds values, decodes strings, prints in one fixed form.
 *
 * Called by the demo upstream and the demo player. Any thread; never blocks.
 * Why: the test programs need an opinion of their own about JSON, one that does not share larder's span tree.
 * Invariants:
 *   1. No read behind the given slice, whatever the bytes are.
 *   2. Iterative: nesting never uses the C stack.
 * Memory: only the caller's buffers grow. Full validation is not here. */
#include "demo_json.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static void need(lar_error e) {
    if (e == LAR_OK) return;
    fprintf(stderr, "demo: %s\n", lar_error_text(e));
    exit(70);
}

void demo_put(lar_buf *b, lar_slice s) {
    if (s.len) need(lar_buf_add(b, s.ptr, s.len));
}

void demo_putf(lar_buf *b, const char *fmt, ...) {
    char small[512];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    if (n < 0) need(LAR_INVALID);
    if ((size_t)n < sizeof small) {
        demo_put(b, lar_slice_of(small, (size_t)n));
        return;
    }
    need(lar_buf_reserve(b, (size_t)n + 1));
    va_start(ap, fmt);
    vsnprintf(b->ptr + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
}

uint32_t demo_utf8_len(const char *p, const char *end) {
    const unsigned char *s = (const unsigned char *)p;
    size_t left = (size_t)(end - p);
    if (left == 0) return 0;
    if (s[0] < 0x80) return 1;
    if (s[0] < 0xC2 || s[0] > 0xF4) return 0;
    uint32_t n = s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
    if (left < n) return 0;
    for (uint32_t i = 1; i < n; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    /* Overlong forms, surrogates and code points over U+10FFFF (RFC 3629 section 4). */
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F)) return 0;
    if ((s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F)) return 0;
    return n;
}

bool demo_utf8_valid(lar_slice s) {
    if (s.len == 0) return true;
    const char *p = s.ptr, *end = s.ptr + s.len;
    while (p < end) {
        uint32_t n = demo_utf8_len(p, end);
        if (n == 0) return false;
        p += n;
    }
    return true;
}

static void quote_char(lar_buf *b, unsigned char c) {
    switch (c) {
    case '"': DEMO_PUT(b, "\\\""); break;
    case '\\': DEMO_PUT(b, "\\\\"); break;
    case '\b': DEMO_PUT(b, "\\b"); break;
    case '\f': DEMO_PUT(b, "\\f"); break;
    case '\n': DEMO_PUT(b, "\\n"); break;
    case '\r': DEMO_PUT(b, "\\r"); break;
    case '\t': DEMO_PUT(b, "\\t"); break;
    default: demo_putf(b, "\\u%04x", c); break;
    }
}

void demo_json_quote(lar_buf *b, lar_slice text) {
    if (text.len == 0) {
        DEMO_PUT(b, "\"\"");
        return;
    }
    const char *p = text.ptr, *end = text.ptr + text.len;
    DEMO_PUT(b, "\"");
    while (p < end) {
        const char *run = p;
        uint32_t n = 1;
        while (p < end && (unsigned char)*p >= 0x20 && *p != '"' && *p != '\\' && (n = demo_utf8_len(p, end)) != 0)
            p += n;
        demo_put(b, lar_slice_of(run, (size_t)(p - run)));
        if (p == end) break;
        if (n == 0) DEMO_PUT(b, "\xEF\xBF\xBD");
        else quote_char(b, (unsigned char)*p);
        n = 1;
        p++;
    }
    DEMO_PUT(b, "\"");
}

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static void skip_space(lar_slice *s) {
    while (s->len && is_space(s->ptr[0])) s->ptr++, s->len--;
}

/* p is behind an opening quote; returns the byte behind the closing one, or NULL. */
static const char *string_end(const char *p, const char *end) {
    const char *from = p;
    while (p < end) {
        const char *q = memchr(p, '"', (size_t)(end - p));
        if (!q) return NULL;
        size_t backslashes = 0;
        while (q - backslashes > from && q[-1 - (ptrdiff_t)backslashes] == '\\') backslashes++;
        p = q + 1;
        if (backslashes % 2 == 0) return p;
    }
    return NULL;
}

static const char *container_end(const char *p, const char *end) {
    uint32_t depth = 0;
    while (p < end) {
        char c = *p++;
        if (c == '"') {
            p = string_end(p, end);
            if (!p) return NULL;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if ((c == '}' || c == ']') && --depth == 0) {
            return p;
        }
    }
    return NULL;
}

bool demo_json_value(lar_slice *rest, lar_slice *value) {
    skip_space(rest);
    if (rest->len == 0) return false;
    const char *p = rest->ptr, *end = p + rest->len, *e = p;
    if (*p == '"') {
        e = string_end(p + 1, end);
    } else if (*p == '{' || *p == '[') {
        e = container_end(p, end);
    } else {
        while (e < end && !is_space(*e) && !memchr(",:]}[{\"", *e, 7)) e++;
        if (e == p) return false;
    }
    if (!e) return false;
    *value = lar_slice_of(p, (size_t)(e - p));
    *rest = lar_slice_of(e, (size_t)(end - e));
    return true;
}

bool demo_json_is_object(lar_slice text) {
    lar_slice rest = text, v;
    if (!demo_json_value(&rest, &v) || v.ptr[0] != '{') return false;
    skip_space(&rest);
    if (rest.len) return false;
    demo_json_iter it = demo_json_open(v);
    while (demo_json_next(&it, NULL, &v)) continue;
    return !it.bad;
}

demo_json_iter demo_json_open(lar_slice c) {
    demo_json_iter it = {.first = true};
    if (c.len >= 2 && (c.ptr[0] == '{' || c.ptr[0] == '[')) {
        it.object = c.ptr[0] == '{';
        it.rest = lar_slice_of(c.ptr + 1, c.len - 2);
    }
    return it;
}

bool demo_json_next(demo_json_iter *it, lar_slice *key, lar_slice *value) {
    lar_slice k = {0};
    skip_space(&it->rest);
    if (it->rest.len == 0 || it->bad) return false;
    if (!it->first) {
        if (it->rest.ptr[0] != ',') goto bad;
        it->rest = lar_slice_of(it->rest.ptr + 1, it->rest.len - 1);
    }
    it->first = false;
    if (it->object) {
        if (!demo_json_value(&it->rest, &k) || !demo_json_is_string(k)) goto bad;
        skip_space(&it->rest);
        if (it->rest.len == 0 || it->rest.ptr[0] != ':') goto bad;
        it->rest = lar_slice_of(it->rest.ptr + 1, it->rest.len - 1);
        if (key) *key = lar_slice_of(k.ptr + 1, k.len - 2);
    }
    if (demo_json_value(&it->rest, value)) return true;
bad:
    it->bad = true;
    return false;
}

lar_slice demo_json_get(lar_slice object, const char *name) {
    demo_json_iter it = demo_json_open(object);
    lar_slice key = {0}, v, found = {0};
    if (!it.object) return found;
    while (demo_json_next(&it, &key, &v))
        if (lar_slice_eq_cstr(key, name)) found = v;
    return found;
}

static void put_code_point(lar_buf *out, uint32_t c) {
    char u[4];
    size_t n = 0;
    if (c < 0x80) {
        u[n++] = (char)c;
    } else if (c < 0x800) {
        u[n++] = (char)(0xC0 | c >> 6);
        u[n++] = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        u[n++] = (char)(0xE0 | c >> 12);
        u[n++] = (char)(0x80 | (c >> 6 & 63));
        u[n++] = (char)(0x80 | (c & 63));
    } else {
        u[n++] = (char)(0xF0 | c >> 18);
        u[n++] = (char)(0x80 | (c >> 12 & 63));
        u[n++] = (char)(0x80 | (c >> 6 & 63));
        u[n++] = (char)(0x80 | (c & 63));
    }
    demo_put(out, lar_slice_of(u, n));
}

static bool hex4(const char *p, const char *end, uint32_t *out) {
    if (end - p < 4) return false;
    uint32_t v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        uint32_t d = c >= '0' && c <= '9' ? (uint32_t)(c - '0')
                   : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                   : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10) : 16;
        if (d == 16) return false;
        v = v << 4 | d;
    }
    *out = v;
    return true;
}

/* p is behind a backslash; returns the byte behind the escape. */
static const char *decode_escape(const char *p, const char *end, lar_buf *out) {
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    if (p >= end) return p;
    char c = *p++;
    uint32_t hi, lo;
    if (c != 'u' || !hex4(p, end, &hi)) {
        const char *at = c ? strchr(from, c) : NULL;
        demo_put(out, lar_slice_of(at ? &to[at - from] : &c, 1));
        return p;
    }
    p += 4;
    if (hi >= 0xD800 && hi < 0xDC00 && end - p >= 6 && p[0] == '\\' && p[1] == 'u' && hex4(p + 2, end, &lo)
        && lo >= 0xDC00 && lo < 0xE000) {
        hi = 0x10000 + ((hi - 0xD800) << 10) + (lo - 0xDC00);
        p += 6;
    }
    put_code_point(out, hi);
    return p;
}

void demo_json_text(lar_slice string, lar_buf *out) {
    if (!demo_json_is_string(string)) return;
    const char *p = string.ptr + 1, *end = string.ptr + string.len - 1;
    while (p < end) {
        const char *q = memchr(p, '\\', (size_t)(end - p));
        if (!q) q = end;
        demo_put(out, lar_slice_of(p, (size_t)(q - p)));
        p = q < end ? decode_escape(q + 1, end, out) : end;
    }
}

uint64_t demo_json_u64(lar_slice n, uint64_t otherwise) {
    uint64_t v = 0;
    if (n.len == 0 || n.len > 18) return otherwise;
    for (size_t i = 0; i < n.len; i++) {
        if (n.ptr[i] < '0' || n.ptr[i] > '9') return otherwise;
        v = v * 10 + (uint64_t)(n.ptr[i] - '0');
    }
    return v;
}

void demo_json_reprint(lar_slice value, lar_buf *out) {
    const char *p = value.ptr, *end = value.ptr + value.len;
    lar_buf text;
    lar_buf_init(&text, out->max);
    while (p < end) {
        char c = *p;
        const char *e = c == '"' ? string_end(p + 1, end) : NULL;
        if (e) {
            lar_buf_reset(&text, 1u << 16);
            demo_json_text(lar_slice_of(p, (size_t)(e - p)), &text);
            demo_json_quote(out, lar_buf_slice(&text));
            p = e;
            continue;
        }
        p++;
        if (is_space(c)) continue;
        demo_put(out, lar_slice_of(&c, 1));
        if (c == ',' || c == ':') DEMO_PUT(out, " ");
    }
    lar_buf_release(&text);
}
