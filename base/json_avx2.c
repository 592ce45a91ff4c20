/* The span tree's parser for processors with AVX2: 64 bytes are two registers.
 * Flow: called by json.c when the processor has it; the parser itself is json_machine.h.
 * Thread: any. Never blocks. UTF-8 as in json_avx512.c, by the same tables.
 * Invariant: the last bytes of a body are copied before they are loaded, so that no read passes its end.
 * Memory: none of its own. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "base/json_scan.h"
#include "base/json_utf8_tables.h"

#define MACHINE_TARGET __attribute__((target("avx2,bmi")))
#define MACHINE_RUN lar_json_run_avx2
#define CHUNK static inline MACHINE_TARGET __attribute__((always_inline))

typedef struct chunk {
    __m256i low, high;
} chunk;
typedef struct marks {
    uint64_t quote, backslash, control, high;
} marks;
typedef struct utf8_state {
    __m256i before;
} utf8_state;

CHUNK chunk chunk_load(const unsigned char *p, size_t n) {
    unsigned char copy[64];
    if (n < 64) {
        memset(copy, 0, sizeof copy);
        memcpy(copy, p, n);
        p = copy;
    }
    return (chunk){_mm256_loadu_si256((const __m256i *)(const void *)p),
                   _mm256_loadu_si256((const __m256i *)(const void *)(p + 32))};
}

CHUNK __m256i fill(int c) { return _mm256_set1_epi8((char)c); }
CHUNK uint64_t join(__m256i low, __m256i high) {
    return (uint32_t)_mm256_movemask_epi8(low) | (uint64_t)(uint32_t)_mm256_movemask_epi8(high) << 32;
}
CHUNK uint64_t equal(chunk c, int byte) {
    return join(_mm256_cmpeq_epi8(c.low, fill(byte)), _mm256_cmpeq_epi8(c.high, fill(byte)));
}
/* Unsigned bytes up to `most`. */
CHUNK __m256i up_to(__m256i v, int most) { return _mm256_cmpeq_epi8(_mm256_min_epu8(v, fill(most)), v); }

CHUNK marks chunk_marks(chunk c) {
    return (marks){.quote = equal(c, '"'),
                   .backslash = equal(c, '\\'),
                   .control = join(up_to(c.low, 0x1F), up_to(c.high, 0x1F)),
                   .high = join(c.low, c.high)};
}

CHUNK __m256i look_up(const uint8_t t[16], __m256i nibbles) {
    __m128i row = _mm_loadu_si128((const __m128i *)(const void *)t);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(row), nibbles);
}
CHUNK __m256i high_nibbles(__m256i v) { return _mm256_and_si256(_mm256_srli_epi16(v, 4), fill(15)); }
CHUNK __m256i low_nibbles(__m256i v) { return _mm256_and_si256(v, fill(15)); }

CHUNK __m256i no_escape(__m256i v) {
    __m256i both = _mm256_and_si256(look_up(escape_high, high_nibbles(v)), look_up(escape_low, low_nibbles(v)));
    return _mm256_cmpeq_epi8(both, _mm256_setzero_si256());
}
CHUNK uint64_t chunk_escapes(chunk c) { return ~join(no_escape(c.low), no_escape(c.high)); }
CHUNK uint64_t chunk_u(chunk c) { return equal(c, 'u'); }
CHUNK __m256i is_hex(__m256i v) {
    __m256i letter = _mm256_sub_epi8(_mm256_or_si256(v, fill(0x20)), fill('a'));
    return _mm256_or_si256(up_to(_mm256_sub_epi8(v, fill('0')), 9), up_to(letter, 5));
}
CHUNK uint64_t chunk_hex(chunk c) { return join(is_hex(c.low), is_hex(c.high)); }
CHUNK uint64_t chunk_blanks(chunk c) { return equal(c, ' ') | equal(c, '\n') | equal(c, '\r') | equal(c, '\t'); }

CHUNK utf8_state utf8_start(void) { return (utf8_state){_mm256_setzero_si256()}; }
CHUNK void utf8_skip(utf8_state *s, chunk c) { s->before = c.high; }

CHUNK __m256i right_bytes(__m256i before, __m256i v) {
    __m256i lanes_before = _mm256_permute2x128_si256(before, v, 0x21); /* each lane's left neighbour */
    __m256i one = _mm256_alignr_epi8(v, lanes_before, 15), two = _mm256_alignr_epi8(v, lanes_before, 14);
    __m256i three = _mm256_alignr_epi8(v, lanes_before, 13);
    __m256i pairs =
        _mm256_and_si256(look_up(utf8_first_high, high_nibbles(one)), look_up(utf8_first_low, low_nibbles(one)));
    pairs = _mm256_and_si256(pairs, look_up(utf8_second_high, high_nibbles(v)));
    __m256i third_or_fourth =
        _mm256_or_si256(_mm256_subs_epu8(two, fill(0xE0 - 0x80)), _mm256_subs_epu8(three, fill(0xF0 - 0x80)));
    return _mm256_cmpeq_epi8(pairs, _mm256_and_si256(third_or_fourth, fill(0x80)));
}

CHUNK uint64_t utf8_check(utf8_state *s, chunk c) {
    uint64_t right = join(right_bytes(s->before, c.low), right_bytes(c.low, c.high));
    s->before = c.high;
    return ~right;
}

#include "base/json_machine.h"
#endif
