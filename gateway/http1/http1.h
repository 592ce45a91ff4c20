/* HTTP/1.1 framing as values: bytes in, events out. Knows no sockets and no chat.
 *
 * A pull parser around llhttp, with the checks that llhttp 8.1.0 leaves out (CR not followed by LF,
 * obs-fold, chunk ends, version, Host, smuggling forms: RFC 9112 2.2, 3.2, 5.2, 6.1, 6.3, 7.1). Any cut of the
 * input gives the same events. One parser serves one connection, message after message. */
#ifndef LARDER_GATEWAY_HTTP1_H
#define LARDER_GATEWAY_HTTP1_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/slice.h"

typedef struct lar_http1_field {
    lar_slice name, value; /* value without optional white space; both borrow the parser's head buffer */
} lar_http1_field;

/* A message head. Valid from the HEAD_END event until the next head's first byte is fed, reset or free. After FAIL it
 * holds what was read before the fault (all of it for HTTP_BODY_LARGE by Content-Length); the rest is zero. */
typedef struct lar_http1_head {
    lar_slice method, target; /* requests */
    uint8_t method_id;        /* requests: lar_http1_method */
    uint16_t status;          /* responses */
    lar_slice reason;         /* responses */
    uint8_t minor;            /* HTTP/1.minor: 0 or 1 */
    bool keep_alive;          /* what the version and Connection say (RFC 9112 9.3) */
    bool chunked;             /* a response may have both: chunked counts, and keep_alive is false (RFC 9112 6.3) */
    bool has_length;
    bool expect_continue; /* requests: Expect: 100-continue from a 1.1 client */
    bool upgrade;         /* Upgrade was asked; larder ignores it */
    bool has_body;        /* bytes will follow (requests: chunked or length > 0). False for answers to HEAD, 1xx,
                                 204 and 304 whatever chunked and length say */
    uint64_t length;      /* where has_length */
    const lar_http1_field *fields;
    uint32_t field_count;
    uint32_t head_bytes; /* size of the head on the wire */
} lar_http1_head;

typedef enum lar_http1_method {
    LAR_HTTP1_GET,
    LAR_HTTP1_HEAD,
    LAR_HTTP1_POST,
    LAR_HTTP1_PUT,
    LAR_HTTP1_DELETE,
    LAR_HTTP1_PATCH,
    LAR_HTTP1_OPTIONS,
    LAR_HTTP1_OTHER
} lar_http1_method;

typedef struct lar_http1_limits {
    uint32_t head_bytes_max; /* HTTP_HEAD_LARGE over it */
    uint32_t fields_max;
    uint64_t body_bytes_max; /* requests: HTTP_BODY_LARGE over it; UINT64_MAX = none */
} lar_http1_limits;

typedef enum lar_http1_type { LAR_HTTP1_REQUEST, LAR_HTTP1_RESPONSE } lar_http1_type;

typedef enum lar_http1_event {
    LAR_HTTP1_MORE,     /* all input consumed, nothing to report */
    LAR_HTTP1_HEAD_END, /* ->head is complete. A 1xx response is reported too, followed by no body and no END, but by
                           the next head of the same exchange */
    LAR_HTTP1_BODY,     /* *body borrows the input: decoded body bytes (chunk framing removed) */
    LAR_HTTP1_END,      /* the message is complete; the next byte belongs to the next message */
    LAR_HTTP1_FAIL      /* ->error and ->diag say why; the parser accepts nothing more */
} lar_http1_event;

typedef struct lar_http1 lar_http1;

/* Heap; NULL when out of memory. */
lar_http1 *lar_http1_new(lar_http1_type type, const lar_http1_limits *limits);
void lar_http1_free(lar_http1 *p);
/* Responses only, before the first byte of each answer: the answer belongs to a HEAD request (no body follows). */
void lar_http1_expect(lar_http1 *p, bool to_head_request);

/* Consumes a part of data[0..len) and says what happened; *used is how much was taken. Call again with the rest, even
 * if none is left, until MORE or FAIL: an END may need no byte. Bytes of the next message are not taken before END was
 * returned. Between END and the next message's first byte the parser is idle. Empty lines before a request line are
 * skipped. */
lar_http1_event lar_http1_next(lar_http1 *p, const char *data, size_t len, size_t *used, lar_slice *body);

/* The peer closed its side. END if that completes an answer without length; MORE if idle between messages;
 * FAIL if a message was under way (UPSTREAM_CUT / UPSTREAM_CLOSED for responses, HTTP_SYNTAX for requests). */
lar_http1_event lar_http1_eof(lar_http1 *p);

const lar_http1_head *lar_http1_head_of(const lar_http1 *p);
lar_error lar_http1_error(const lar_http1 *p);
const lar_diag *lar_http1_diag(const lar_http1 *p);
bool lar_http1_idle(const lar_http1 *p);    /* no byte of a new message seen */
bool lar_http1_in_head(const lar_http1 *p); /* some bytes of a head seen, head not complete */

/* First field of that name (ASCII case-insensitive); empty slice with ptr NULL if absent. */
lar_slice lar_http1_get(const lar_http1_head *h, const char *name);
/* True if one of the fields of that name, a comma-separated list each, has the word; letter case does not count. */
bool lar_http1_names(const lar_http1_head *h, lar_slice field, lar_slice word);
/* True for fields that must not be forwarded: the fixed hop-by-hop list of RFC 9110 7.6.1 and whatever Connection
 * names (but never Authorization, Content-Length, Content-Type, Host or x-api-key by such a naming, H-22). */
bool lar_http1_hop_by_hop(const lar_http1_head *h, lar_slice name);

/* "Not Found" for 404; "" if unknown. */
const char *lar_http1_reason(int status);

#endif
