/* The span tree's parser for processors with AVX-512BW: 64 bytes are one register, masks are its own kind.
 * Flow: called by json.c when the processor has it; the parser itself is json_machine.h.
 * Thread: any. Never blocks.
 * Why: prompts are long strings; most bytes are only looked at for what they are not.
 * UTF-8 by table look-ups on nibbles (Keiser and Lemire, "Validating UTF-8 in less than one instruction
 * per byte", 2021).
 * Memory: none of its own. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "base/json_scan.h"
#include "base/json_utf8_tables.h"

#define MACHINE_TARGET __attribute__((target("avx512f,avx512bw,bmi")))
#define MACHINE_RUN lar_json_run_avx512
#define CHUNK static inline MACHINE_TARGET __attribute__((always_inline))

typedef __m512i chunk;
typedef struct marks {
    uint64_t quote, backslash, control, high;
} marks;
typedef struct utf8_state {
    chunk before;
} utf8_state;

CHUNK chunk chunk_load(const unsigned char *p, size_t n) {
    if (n >= 64) return _mm512_loadu_si512(p);
    return _mm512_maskz_loadu_epi8(((uint64_t)1 << n) - 1, p); /* bytes that are masked out are not touched */
}

CHUNK chunk fill(int c) { return _mm512_set1_epi8((char)c); }

CHUNK marks chunk_marks(chunk c) {
    return (marks){.quote = _mm512_cmpeq_epi8_mask(c, fill('"')),
                   .backslash = _mm512_cmpeq_epi8_mask(c, fill('\\')),
                   .control = _mm512_cmplt_epu8_mask(c, fill(0x20)),
                   .high = _mm512_movepi8_mask(c)};
}

CHUNK chunk table(const uint8_t t[16]) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)t));
}
CHUNK chunk high_nibbles(chunk c) { return _mm512_and_si512(_mm512_srli_epi16(c, 4), fill(15)); }
CHUNK chunk low_nibbles(chunk c) { return _mm512_and_si512(c, fill(15)); }

CHUNK uint64_t chunk_escapes(chunk c) {
    return _mm512_test_epi8_mask(_mm512_shuffle_epi8(table(escape_high), high_nibbles(c)),
                                 _mm512_shuffle_epi8(table(escape_low), low_nibbles(c)));
}
CHUNK uint64_t chunk_u(chunk c) { return _mm512_cmpeq_epi8_mask(c, fill('u')); }
CHUNK uint64_t chunk_hex(chunk c) {
    chunk letter = _mm512_sub_epi8(_mm512_or_si512(c, fill(0x20)), fill('a'));
    return _mm512_cmplt_epu8_mask(_mm512_sub_epi8(c, fill('0')), fill(10)) | _mm512_cmplt_epu8_mask(letter, fill(6));
}
CHUNK uint64_t chunk_blanks(chunk c) {
    return _mm512_cmpeq_epi8_mask(c, fill(' ')) | _mm512_cmpeq_epi8_mask(c, fill('\n')) |
           _mm512_cmpeq_epi8_mask(c, fill('\r')) | _mm512_cmpeq_epi8_mask(c, fill('\t'));
}

CHUNK utf8_state utf8_start(void) { return (utf8_state){_mm512_setzero_si512()}; }
CHUNK void utf8_skip(utf8_state *s, chunk c) { s->before = c; }

CHUNK uint64_t utf8_check(utf8_state *s, chunk c) {
    chunk lanes_before = _mm512_alignr_epi32(c, s->before, 12); /* each 16-byte lane's left neighbour */
    chunk one = _mm512_alignr_epi8(c, lanes_before, 15), two = _mm512_alignr_epi8(c, lanes_before, 14);
    chunk three = _mm512_alignr_epi8(c, lanes_before, 13);
    s->before = c;
    chunk pairs = _mm512_and_si512(_mm512_shuffle_epi8(table(utf8_first_high), high_nibbles(one)),
                                   _mm512_shuffle_epi8(table(utf8_first_low), low_nibbles(one)));
    pairs = _mm512_and_si512(pairs, _mm512_shuffle_epi8(table(utf8_second_high), high_nibbles(c)));
    chunk third_or_fourth =
        _mm512_or_si512(_mm512_subs_epu8(two, fill(0xE0 - 0x80)), _mm512_subs_epu8(three, fill(0xF0 - 0x80)));
    third_or_fourth = _mm512_and_si512(third_or_fourth, fill(0x80));
    chunk wrong = _mm512_xor_si512(pairs, third_or_fourth);
    return _mm512_test_epi8_mask(wrong, wrong);
}

#include "base/json_machine.h"
#endif
