/* Growable bytes with a maximum: doubling, never past max. Any thread that owns the buffer. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"

void lar_buf_init(lar_buf *b, size_t max_bytes) { *b = (lar_buf){.max = max_bytes}; }

void lar_buf_release(lar_buf *b) {
    free(b->ptr);
    *b = (lar_buf){.max = b->max};
}

void lar_buf_reset(lar_buf *b, size_t keep_bytes) {
    b->len = 0;
    if (b->cap > keep_bytes) lar_buf_release(b);
}

lar_error lar_buf_reserve(lar_buf *b, size_t more) {
    if (more <= b->cap - b->len) return LAR_OK;
    if (more > b->max - b->len) return LAR_LIMIT;
    size_t want = b->cap ? b->cap : 256;
    while (want < b->len + more) want = want > b->max / 2 ? b->max : want * 2;
    if (want > b->max) want = b->max;
    char *p = realloc(b->ptr, want);
    if (!p) return LAR_NO_MEMORY;
    b->ptr = p;
    b->cap = want;
    return LAR_OK;
}

lar_error lar_buf_add(lar_buf *b, const void *bytes, size_t len) {
    lar_error e = lar_buf_reserve(b, len);
    if (e) return e;
    if (len) memcpy(b->ptr + b->len, bytes, len);
    b->len += len;
    return LAR_OK;
}

lar_error lar_buf_add_slice(lar_buf *b, lar_slice s) { return lar_buf_add(b, s.ptr, s.len); }

lar_error lar_buf_printf(lar_buf *b, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) return LAR_INVALID;
    lar_error e = lar_buf_reserve(b, (size_t)n + 1);
    if (e) return e;
    va_start(ap, fmt);
    (void)vsnprintf(b->ptr + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
    return LAR_OK;
}

lar_error lar_buf_add_u64(lar_buf *b, uint64_t v) {
    char text[20]; /* UINT64_MAX has 20 digits */
    size_t at = sizeof text;
    do text[--at] = (char)('0' + v % 10);
    while (v /= 10);
    return lar_buf_add(b, text + at, sizeof text - at);
}

void lar_buf_consume(lar_buf *b, size_t n) {
    LAR_ASSERT(n <= b->len);
    if (n < b->len) memmove(b->ptr, b->ptr + n, b->len - n);
    b->len -= n;
}
