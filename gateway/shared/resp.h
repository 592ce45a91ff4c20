/* RESP 2, as far as larder speaks it: commands out, replies in. Bytes only; no sockets. Replies are read by hiredis,
 * with bounds of larder's own: what comes from a server is not trusted. */
#ifndef LARDER_GATEWAY_RESP_H
#define LARDER_GATEWAY_RESP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/slice.h"

/* Of one reply: elements of an array, and bytes in all. */
enum { LAR_RESP_ITEMS_MAX = 1024, LAR_RESP_BYTES_MAX = 16 << 20 };

/* False: this larder was built without hiredis; lar_resp_new gives NULL. */
bool lar_resp_available(void);

typedef enum lar_resp_kind {
    LAR_RESP_STATUS,
    LAR_RESP_ERROR,
    LAR_RESP_INTEGER,
    LAR_RESP_NIL,
    LAR_RESP_TEXT,
    LAR_RESP_ARRAY
} lar_resp_kind;

/* Valid until the next lar_resp_feed or lar_resp_next. */
typedef struct lar_resp_reply {
    lar_resp_kind kind;
    lar_slice text;         /* STATUS, ERROR, TEXT */
    const lar_slice *items; /* ARRAY: ptr NULL where the element is not a text */
    uint32_t count;
} lar_resp_reply;

typedef struct lar_resp lar_resp;

lar_resp *lar_resp_new(void); /* NULL when out of memory */
void lar_resp_free(lar_resp *r);
/* Copies the bytes. LIMIT: more than LAR_RESP_BYTES_MAX wait for the end of a reply. NO_MEMORY. */
LAR_MUST_USE lar_error lar_resp_feed(lar_resp *r, lar_slice bytes);
/* The next whole reply. NOT_FOUND: more bytes are needed. INVALID: that is no RESP, or over a bound; nothing more can
 * be read. */
LAR_MUST_USE lar_error lar_resp_next(lar_resp *r, lar_resp_reply *out);

/* Appends a command: an array of texts. LIMIT, NO_MEMORY; `to` is then as it was. */
LAR_MUST_USE lar_error lar_resp_command(lar_buf *to, const lar_slice *words, uint32_t count);

#endif
