/* Splices: edits of a body as a list of (span, replacement), output by writev without rebuilding it.
 * Every byte outside an edited span is the client's own. Replacements are borrowed: they live in the
 * request's arena, in the body itself (a moved span) or in static text. */
#ifndef LARDER_BASE_SPLICE_H
#define LARDER_BASE_SPLICE_H

#include <stdint.h>
#include <sys/uio.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/slice.h"

typedef struct lar_splice {
    uint32_t start, end; /* bytes of the body that are replaced; start == end inserts */
    lar_slice with;      /* may be empty: the span is dropped */
} lar_splice;

/* Embedded; its array lives in `arena` (borrowed). */
typedef struct lar_splices {
    lar_arena *arena;
    lar_splice *list;
    uint32_t count, cap;
} lar_splices;

void lar_splices_init(lar_splices *s, lar_arena *arena);
LAR_MUST_USE lar_error lar_splices_add(lar_splices *s, uint32_t start, uint32_t end, lar_slice with);

/* Sorts by start (insertions at one place keep the order they were added in).
 * INVALID if two overlap or one ends behind body_len: the caller must then send the body untouched. */
LAR_MUST_USE lar_error lar_splices_finish(lar_splices *s, size_t body_len);

/* Of a finished list: the length of the edited body. */
size_t lar_splices_length(const lar_splices *s, size_t body_len);
/* Of a finished list: how many iovecs the output takes at most. */
uint32_t lar_splices_iov_max(const lar_splices *s);
/* Of a finished list: fills iov[] (room for lar_splices_iov_max) and returns how many were used;
 * empty pieces are left out. The iovecs borrow the body and the replacements. */
uint32_t lar_splices_iov(const lar_splices *s, lar_slice body, struct iovec *iov);
/* Of a finished list: where byte `offset` of the body comes to lie in the output; an offset inside a
 * replaced span maps to the end of its replacement. */
size_t lar_splices_map(const lar_splices *s, size_t offset);

#endif
