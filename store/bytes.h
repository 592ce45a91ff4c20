/* Fixed-width integers in given byte orders, and a bounds-checked reader. Values on disk are little-endian;
 * keys are big-endian, so that LMDB's byte order of keys is their numeric order. */
#ifndef LARDER_STORE_BYTES_H
#define LARDER_STORE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline void lar_bytes_put_le(uint8_t *p, uint64_t v, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i++) p[i] = (uint8_t)(v >> (8 * i));
}

static inline uint64_t lar_bytes_get_le(const uint8_t *p, unsigned bytes) {
    uint64_t v = 0;
    for (unsigned i = 0; i < bytes; i++) v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static inline void lar_bytes_put_be64(uint8_t *p, uint64_t v) {
    for (unsigned i = 0; i < 8; i++) p[i] = (uint8_t)(v >> (56 - 8 * i));
}

static inline uint64_t lar_bytes_get_be64(const uint8_t *p) {
    uint64_t v = 0;
    for (unsigned i = 0; i < 8; i++) v = v << 8 | p[i];
    return v;
}

static inline void lar_bytes_put_be32(uint8_t *p, uint32_t v) {
    for (unsigned i = 0; i < 4; i++) p[i] = (uint8_t)(v >> (24 - 8 * i));
}

static inline uint32_t lar_bytes_get_be32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Reads forward; once it runs out of bytes it is `bad` and gives zeros. */
typedef struct lar_bytes_reader {
    const uint8_t *at, *end;
    bool bad;
} lar_bytes_reader;

static inline uint64_t lar_bytes_read_le(lar_bytes_reader *r, unsigned bytes) {
    if (r->bad || (size_t)(r->end - r->at) < bytes) {
        r->bad = true;
        return 0;
    }
    uint64_t v = lar_bytes_get_le(r->at, bytes);
    r->at += bytes;
    return v;
}

#endif
