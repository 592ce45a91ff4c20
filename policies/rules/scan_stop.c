/* Stops in text, 64 bytes at a time (header: scan_stop.h).
 * Called by the scans of volatile text; pure; never blocks. Why: nearly all bytes of a prompt are passed over, so
 * this loop is the scan's speed.
 * Invariants: 1. nothing is read behind the text. 2. both ways to read a block give the same bits. */
#include "policies/rules/scan_stop.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { BLOCK = 64 };

static int is_stop(const unsigned char *p, size_t left) {
    if ((p[0] >= '/' && p[0] <= ':') || p[0] == '=' || p[0] == '>') return 1;
    return p[0] == 0xEF && left >= 3 && p[1] == 0xBC && p[2] >= 0x90 && p[2] <= 0x9A; /* ０ to ９, ： */
}

uint64_t lar_stops_block_scalar(lar_slice text, size_t base) {
    const unsigned char *p = (const unsigned char *)text.ptr;
    size_t n = text.len - base < BLOCK ? text.len - base : BLOCK;
    uint64_t bits = 0;
    for (size_t k = 0; k < n; k++) bits |= (uint64_t)is_stop(p + base + k, text.len - base - k) << k;
    return bits;
}

#if defined(__SSE2__)
/* Of 16 bytes: stops in the low half, bytes that may begin a wide stop in the high one. */
static inline uint32_t sixteen(const char *p) {
    __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
    __m128i off = _mm_sub_epi8(v, _mm_set1_epi8('/'));
    __m128i run = _mm_cmpeq_epi8(_mm_min_epu8(off, _mm_set1_epi8(':' - '/')), off);
    off = _mm_sub_epi8(v, _mm_set1_epi8('='));
    __m128i sign = _mm_cmpeq_epi8(_mm_min_epu8(off, _mm_set1_epi8('>' - '=')), off);
    __m128i wide = _mm_cmpeq_epi8(v, _mm_set1_epi8((char)0xEF));
    return (uint32_t)_mm_movemask_epi8(_mm_or_si128(run, sign)) | (uint32_t)_mm_movemask_epi8(wide) << 16;
}

uint64_t lar_stops_block(lar_slice text, size_t base) {
    if (text.len - base < BLOCK) return lar_stops_block_scalar(text, base);
    const char *p = text.ptr + base;
    uint64_t bits = 0, wide = 0;
    for (int k = 0; k < 4; k++) {
        uint32_t m = sixteen(p + 16 * k);
        bits |= (uint64_t)(m & 0xFFFF) << (16 * k);
        wide |= (uint64_t)(m >> 16) << (16 * k);
    }
    for (; wide; wide &= wide - 1) {
        size_t k = (size_t)__builtin_ctzll(wide);
        if (is_stop((const unsigned char *)p + k, text.len - base - k)) bits |= UINT64_C(1) << k;
    }
    return bits;
}
#else
uint64_t lar_stops_block(lar_slice text, size_t base) { return lar_stops_block_scalar(text, base); }
#endif

void lar_stops_init(lar_stops *s, lar_slice text) {
    s->text = text;
    s->base = 0;
    s->bits = text.len ? lar_stops_block(text, 0) : 0;
}

size_t lar_stops_next(lar_stops *s, size_t i) {
    if (i >= s->text.len) return s->text.len;
    if (i - s->base >= BLOCK) {
        s->base = i - i % BLOCK;
        s->bits = lar_stops_block(s->text, s->base);
    }
    s->bits &= ~UINT64_C(0) << (i - s->base);
    while (!s->bits) {
        s->base += BLOCK;
        if (s->base >= s->text.len) return s->text.len;
        s->bits = lar_stops_block(s->text, s->base);
    }
    return s->base + (size_t)__builtin_ctzll(s->bits);
}
