/* Whole characters out of bytes that tokens cut anywhere.
 * Flow: lar_output_stream_feed pushes each token's bytes through it first, so that all behind sees whole characters.
 * Thread: one at a time. Never blocks.
 * Invariants: 1. `held` is the start of a valid character and never a whole one. 2. what is appended is valid UTF-8.
 * Source: Unicode 15, 3.9, "U+FFFD Substitution of Maximal Subparts". Memory: the caller's buffer. */
#include "engine/text/output_utf8.h"

#include "base/utf8.h"

/* Bytes at p that could begin a character, at least 1; *open: more may follow at `end`. */
static size_t start_length(const unsigned char *p, const unsigned char *end, bool *open) {
    unsigned c = p[0];
    *open = false;
    if (c < 0xC2 || c > 0xF4) return 1;
    size_t want = c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4, n = 1;
    unsigned low = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80, high = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    while (n < want && p + n < end && p[n] >= (n == 1 ? low : 0x80) && p[n] <= (n == 1 ? high : 0xBF)) n++;
    *open = n < want && p + n == end;
    return n;
}

/* Takes what it can from [p, end); the rest, an open start, is behind the place it returns. */
static lar_error take(const unsigned char **p, const unsigned char *end, lar_buf *out) {
    const unsigned char *good = *p;
    lar_error e = LAR_OK;
    bool open = false;
    while (!e && *p < end && !open) {
        size_t n = lar_utf8_sequence(*p, end);
        if (n) {
            *p += n;
            continue;
        }
        n = start_length(*p, end, &open);
        e = lar_buf_add(out, good, (size_t)(*p - good));
        if (!e && !open) e = lar_buf_add(out, "\xEF\xBF\xBD", 3);
        if (!open) *p += n;
        good = *p;
    }
    return e ? e : lar_buf_add(out, good, open ? 0 : (size_t)(*p - good));
}

lar_error lar_output_utf8_push(lar_output_utf8 *u, lar_slice bytes, lar_buf *out) {
    const unsigned char *p = (const unsigned char *)bytes.ptr, *end = p + bytes.len;
    lar_error e = LAR_OK;
    while (!e && u->len && p < end) { /* byte by byte until the held start is a character or none */
        u->held[u->len++] = (char)*p++;
        const unsigned char *h = (const unsigned char *)u->held, *h_end = h + u->len;
        e = take(&h, h_end, out);
        size_t left = (size_t)(h_end - h);
        memmove(u->held, h, left);
        u->len = (uint8_t)left;
    }
    if (!e) e = take(&p, end, out);
    if (!e && p < end) {
        u->len = (uint8_t)(end - p);
        memcpy(u->held, p, u->len);
    }
    return e;
}

lar_error lar_output_utf8_finish(lar_output_utf8 *u, lar_buf *out) {
    if (!u->len) return LAR_OK;
    u->len = 0;
    return lar_buf_add(out, "\xEF\xBF\xBD", 3);
}
