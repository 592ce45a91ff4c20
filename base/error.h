/* The error type of all of larder: one enum, one table (error.def).
 * Fallible functions return lar_error and are LAR_MUST_USE; detail for people goes to a lar_diag. */
#ifndef LARDER_BASE_ERROR_H
#define LARDER_BASE_ERROR_H

#include <stdint.h>

#define LAR_MUST_USE __attribute__((warn_unused_result))

typedef enum lar_error {
#define LAR_ERR(name, status, retry, blame, text) LAR_##name,
#include "base/error.def"
#undef LAR_ERR
    LAR_ERROR_COUNT
} lar_error;

typedef enum lar_retry { LAR_RETRY_NEVER, LAR_RETRY_UNSENT, LAR_RETRY_LATER } lar_retry;
typedef enum lar_blame { LAR_BLAME_CLIENT, LAR_BLAME_UPSTREAM, LAR_BLAME_LARDER, LAR_BLAME_NOBODY } lar_blame;

/* Never NULL; static text. "UPSTREAM_TIMEOUT" and "the upstream did not answer in time". */
const char *lar_error_name(lar_error e);
const char *lar_error_text(lar_error e);
int lar_error_status(lar_error e); /* HTTP status for a client */
lar_retry lar_error_retry(lar_error e);
lar_blame lar_error_blame(lar_error e);

/* Bounded detail for a person: what was wrong, where, what to do. Never holds a credential,
 * a prompt or an answer. Embedded by the caller; zero-initialised means "nothing to add". */
#define LAR_DIAG_BYTES 320
typedef struct lar_diag {
    char text[LAR_DIAG_BYTES]; /* NUL-terminated, cut at the limit */
    uint64_t offset;           /* byte offset in the input, where has_offset */
    int has_offset;
} lar_diag;

/* Fills `d` (may be NULL) and returns `e`, so that "return lar_fail(...)" reads well. */
lar_error lar_fail(lar_error e, lar_diag *d, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
lar_error lar_fail_at(lar_error e, lar_diag *d, uint64_t offset, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
