/* Pieces of an input: whole, byte by byte, one cut, or random lengths. Shared by tests and fuzzers, header only. */
#ifndef LARDER_TESTS_CUTS_H
#define LARDER_TESTS_CUTS_H

#include <stddef.h>
#include <stdint.h>

typedef struct cuts {
    enum { CUT_NONE, CUT_AT, CUT_BYTES, CUT_RANDOM } kind;
    size_t at;     /* CUT_AT */
    uint64_t seed; /* CUT_RANDOM */
} cuts;

/* Length of the next piece, `pos` bytes into an input of `len`. */
static inline size_t cuts_next(cuts *c, size_t pos, size_t len) {
    size_t left = len - pos, n = left;
    if (c->kind == CUT_AT && pos < c->at) n = c->at - pos;
    if (c->kind == CUT_BYTES) n = 1;
    if (c->kind == CUT_RANDOM) {
        c->seed = c->seed * 6364136223846793005u + 1442695040888963407u;
        uint64_t r = c->seed >> 33;
        n = 1 + (size_t)((r & 7) == 0 ? r >> 3 & 255 : r >> 3 & 7);
    }
    return n < left ? n : left;
}

#endif
