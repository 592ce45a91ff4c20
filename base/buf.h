/* Growable bytes with a mandatory maximum. Embedded; owns its memory. */
#ifndef LARDER_BASE_BUF_H
#define LARDER_BASE_BUF_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/slice.h"

typedef struct lar_buf {
    char *ptr;
    size_t len, cap, max; /* bytes; len <= cap <= max */
} lar_buf;

void lar_buf_init(lar_buf *b, size_t max_bytes);
void lar_buf_release(lar_buf *b);
/* len = 0; memory over keep_bytes is given back. */
void lar_buf_reset(lar_buf *b, size_t keep_bytes);

/* Room for `more` bytes behind len. LAR_LIMIT over max, LAR_NO_MEMORY; the content stays either way. */
LAR_MUST_USE lar_error lar_buf_reserve(lar_buf *b, size_t more);
LAR_MUST_USE lar_error lar_buf_add(lar_buf *b, const void *bytes, size_t len);
LAR_MUST_USE lar_error lar_buf_add_slice(lar_buf *b, lar_slice s);
LAR_MUST_USE lar_error lar_buf_printf(lar_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Decimal, without a sign. */
LAR_MUST_USE lar_error lar_buf_add_u64(lar_buf *b, uint64_t v);
/* Drops the first n bytes (n <= len). */
void lar_buf_consume(lar_buf *b, size_t n);

static inline lar_slice lar_buf_slice(const lar_buf *b) { return lar_slice_of(b->ptr, b->len); }

#endif
