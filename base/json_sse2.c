/* The span tree's parser for any x86-64: 64 bytes are four registers, SSE2 only.
 * Flow: called by json.c; the parser itself is json_machine.h.
 * Thread: any. Never blocks. SSE2 has no byte shuffle, so UTF-8 and escapes go byte by byte inside a chunk.
 * Invariant: the last bytes of a body are copied before they are loaded, so that no read passes its end.
 * Memory: none of its own. */
#if defined(__x86_64__)
#include <emmintrin.h>

#include "base/json_scan.h"
#include "base/utf8.h"

#define MACHINE_TARGET
#define MACHINE_RUN lar_json_run_sse2
#define CHUNK static inline __attribute__((always_inline))

typedef struct chunk {
    __m128i part[4];
} chunk;
typedef struct marks {
    uint64_t quote, backslash, control, high;
} marks;
/* What is still to come of a sequence that the chunk before began: its bytes so far. */
typedef struct utf8_state {
    unsigned char cut[4];
    size_t len;
} utf8_state;

CHUNK chunk chunk_load(const unsigned char *p, size_t n) {
    unsigned char copy[64];
    if (n < 64) {
        memset(copy, 0, sizeof copy);
        memcpy(copy, p, n);
        p = copy;
    }
    chunk c;
    for (int i = 0; i < 4; i++) c.part[i] = _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i));
    return c;
}

CHUNK __m128i fill(int c) { return _mm_set1_epi8((char)c); }
CHUNK uint64_t join(const __m128i v[4]) {
    uint64_t bits = 0;
    for (int i = 0; i < 4; i++) bits |= (uint64_t)(uint32_t)_mm_movemask_epi8(v[i]) << (16 * i);
    return bits;
}
CHUNK uint64_t equal(const chunk *c, int byte) {
    __m128i v[4];
    for (int i = 0; i < 4; i++) v[i] = _mm_cmpeq_epi8(c->part[i], fill(byte));
    return join(v);
}
/* Unsigned bytes up to `most`, after | with `with` and minus `less`. */
CHUNK uint64_t within(const chunk *c, int with, int less, int most) {
    __m128i v[4];
    for (int i = 0; i < 4; i++) {
        __m128i b = _mm_sub_epi8(_mm_or_si128(c->part[i], fill(with)), fill(less));
        v[i] = _mm_cmpeq_epi8(_mm_min_epu8(b, fill(most)), b);
    }
    return join(v);
}

CHUNK marks chunk_marks(chunk c) {
    return (marks){.quote = equal(&c, '"'),
                   .backslash = equal(&c, '\\'),
                   .control = within(&c, 0, 0, 0x1F),
                   .high = join(c.part)};
}
CHUNK uint64_t chunk_escapes(chunk c) {
    return equal(&c, '"') | equal(&c, '\\') | equal(&c, '/') | equal(&c, 'b') | equal(&c, 'f') | equal(&c, 'n') |
           equal(&c, 'r') | equal(&c, 't') | equal(&c, 'u');
}
CHUNK uint64_t chunk_u(chunk c) { return equal(&c, 'u'); }
CHUNK uint64_t chunk_hex(chunk c) { return within(&c, 0, '0', 9) | within(&c, 0x20, 'a', 5); }
CHUNK uint64_t chunk_blanks(chunk c) { return equal(&c, ' ') | equal(&c, '\n') | equal(&c, '\r') | equal(&c, '\t'); }

CHUNK utf8_state utf8_start(void) { return (utf8_state){.len = 0}; }
CHUNK void utf8_skip(utf8_state *s, chunk c) {
    (void)s;
    (void)c;
}

/* How long the sequence that begins with this byte is meant to be. */
static inline size_t meant_length(unsigned char lead) { return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4; }

/* True if the `len` bytes at p may be the beginning of a longer sequence: what follows decides. */
static inline bool may_be_cut(const unsigned char *p, size_t len) {
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xC0) != 0x80) return false;
    return p[0] >= 0xC2 && meant_length(p[0]) > len;
}

/* The parser looks only at bits up to the closing quote, so a wrong sequence is marked where it begins,
 * and one that the chunk before began is marked at bit 0. */
static uint64_t check_bytes(utf8_state *s, const unsigned char *p) {
    unsigned char piece[4];
    uint64_t wrong = 0;
    size_t i = 0;
    if (s->len) {
        size_t len = meant_length(s->cut[0]);
        memcpy(piece, s->cut, s->len);
        memcpy(piece + s->len, p, len - s->len);
        if (lar_utf8_sequence(piece, piece + len) != len) return 1;
        i = len - s->len;
        s->len = 0;
    }
    while (i < 64) {
        if (p[i] < 0x80) {
            i++;
            continue;
        }
        size_t n = lar_utf8_sequence(p + i, p + 64);
        if (!n && may_be_cut(p + i, 64 - i)) {
            s->len = 64 - i;
            memcpy(s->cut, p + i, s->len);
            return wrong;
        }
        if (!n) wrong |= (uint64_t)1 << i;
        i += n ? n : 1;
    }
    return wrong;
}

static inline uint64_t utf8_check(utf8_state *s, chunk c) {
    unsigned char bytes[64];
    for (int i = 0; i < 4; i++) _mm_storeu_si128((__m128i *)(void *)(bytes + 16 * i), c.part[i]);
    return check_bytes(s, bytes);
}

#include "base/json_machine.h"
#endif
