/* The pull parser: one event a call, from the bytes of one connection.
 *
 * Flow: net feeds lar_http1_next; heads go to http1_head.c, chunk lines to http1_chunk.c. Loop thread; never blocks.
 * Why pull: the caller stops between any two events (pipelining, back-pressure) without llhttp's pause states.
 * Invariants: 1. Events and errors depend on the bytes only, never on how they were cut. 2. No byte behind a
 * message's last one is taken before END. 3. FAILED is final until reset. 4. The head stays in its buffer, unmoved,
 * until the next message's first byte.
 * Memory: one object and two capped buffers a connection, kept from message to message; body bytes are not copied.
 * Not here: sockets, deadlines, what to answer. */
#include "gateway/http1/http1.h"

#include <stdlib.h>

#include "base/ensure.h"
#include "gateway/http1/http1_parser.h"

enum {
    HEAD_KEEP_BYTES = 4096, /* of buffer memory that a connection keeps between messages */
    BLANK_LINES_MAX = 16    /* empty lines before a request line; some clients send one too many after a body */
};

lar_http1 *lar_http1_new(lar_http1_type type, const lar_http1_limits *limits) {
    lar_http1 *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->type = type;
    p->limits = *limits;
    lar_buf_init(&p->head, limits->head_bytes_max);
    lar_buf_init(&p->trailer, limits->head_bytes_max);
    return p;
}

void lar_http1_free(lar_http1 *p) {
    if (!p) return;
    lar_buf_release(&p->head);
    lar_buf_release(&p->trailer);
    free(p->fields);
    free(p);
}

static void message_begin(lar_http1 *p) {
    lar_buf_reset(&p->head, HEAD_KEEP_BYTES);
    p->h = (lar_http1_head){0};
    p->line_bytes = 0;
    p->extension_bytes = 0;
    p->body_bytes = 0;
    p->left = 0;
    p->blank_lines = 0;
    p->blank_cr = false;
}

void lar_http1_expect(lar_http1 *p, bool to_head_request) {
    LAR_ASSERT(p->type == LAR_HTTP1_RESPONSE);
    p->to_head_request = to_head_request;
}

lar_http1_event lar_http1_refuse(lar_http1 *p, lar_error e, uint64_t offset, const char *text) {
    if (p->type == LAR_HTTP1_RESPONSE && e != LAR_NO_MEMORY && lar_error_blame(e) != LAR_BLAME_UPSTREAM)
        e = LAR_UPSTREAM_PROTOCOL;
    p->state = HTTP1_FAILED;
    p->error = lar_fail_at(e, &p->diag, offset, "%s", text);
    return LAR_HTTP1_FAIL;
}

/* Takes bytes of a header section (head or trailer) into `b` up to its empty line. Only CR LF ends a line here, so a
 * bare LF is refused on the spot instead of leaving the peer to wait for the rest of a head that is over for it. */
static lar_http1_event section_next(lar_http1 *p, lar_buf *b, const char *data, size_t len, size_t *used) {
    size_t room = b->max - b->len, n = len < room ? len : room, from = 0;
    bool ended = false;
    while (from < n && !ended) {
        const char *lf = memchr(data + from, '\n', n - from);
        if (!lf) {
            p->line_bytes += (uint32_t)(n - from);
            break;
        }
        size_t at = (size_t)(lf - data);
        char before = at ? data[at - 1] : b->len ? b->ptr[b->len - 1] : '\0';
        if (before != '\r') return lar_http1_refuse(p, LAR_HTTP_SYNTAX, b->len + at, "a line ends in LF without CR");
        ended = p->line_bytes + (at - from) == 1;
        p->line_bytes = 0;
        from = at + 1;
    }
    if (ended) n = from;
    if (!ended && len > n)
        return lar_http1_refuse(p, LAR_HTTP_HEAD_LARGE, b->max, "the header section is larger than the limit");
    if (lar_buf_add(b, data, n)) return lar_http1_refuse(p, LAR_NO_MEMORY, b->len, "no memory for the head");
    *used += n;
    return ended ? LAR_HTTP1_END : LAR_HTTP1_MORE;
}

/* Empty lines before a request line (RFC 9112 2.2), then the first byte of a message. END: a message begins. */
static lar_http1_event idle_next(lar_http1 *p, const char *data, size_t len, size_t *used) {
    size_t i = 0;
    for (; p->type == LAR_HTTP1_REQUEST && i < len; i++) {
        if (data[i] == '\r' && !p->blank_cr) {
            p->blank_cr = true;
        } else if (data[i] == '\n' && p->blank_cr) {
            p->blank_cr = false;
            if (++p->blank_lines > BLANK_LINES_MAX)
                return lar_http1_refuse(p, LAR_HTTP_SYNTAX, 0, "too many empty lines before the request");
        } else {
            break;
        }
    }
    *used = i;
    if (i == len) return LAR_HTTP1_MORE;
    bool lone_cr = p->blank_cr;
    message_begin(p);
    if (lone_cr) return lar_http1_refuse(p, LAR_HTTP_SYNTAX, 0, "a CR without LF before the request");
    if (p->type == LAR_HTTP1_RESPONSE) {
        if (data[i] != 'H') return lar_http1_refuse(p, LAR_HTTP_SYNTAX, 0, "the answer does not begin with HTTP/");
    } else if (data[i] == 0x16) {
        return lar_http1_refuse(p, LAR_HTTP_SYNTAX, 0, "a TLS handshake on a plain HTTP port");
    } else if (!is_token_char(data[i])) {
        return lar_http1_refuse(p, LAR_HTTP_SYNTAX, 0, "the request does not begin with a method");
    }
    p->state = HTTP1_IN_HEAD;
    return LAR_HTTP1_END;
}

/* The head is complete and read: decides what follows it (RFC 9112 6.3). */
static void body_begin(lar_http1 *p) {
    const lar_http1_head *h = &p->h;
    if (p->type == LAR_HTTP1_RESPONSE && h->status < 200) {
        p->state = HTTP1_INTERIM;
    } else if (!h->has_body) {
        p->state = HTTP1_COMPLETE;
    } else if (h->chunked) {
        p->state = HTTP1_CHUNKED;
        p->chunk = CHUNK_SIZE_FIRST;
    } else if (h->has_length) {
        p->state = HTTP1_LENGTH;
        p->left = h->length;
    } else {
        p->state = HTTP1_UNTIL_EOF;
    }
}

static lar_http1_event head_next(lar_http1 *p, const char *data, size_t len, size_t *used) {
    lar_http1_event e = section_next(p, &p->head, data + *used, len - *used, used);
    if (e != LAR_HTTP1_END) return e;
    if (!lar_http1_read_head(p)) return LAR_HTTP1_FAIL;
    body_begin(p);
    return LAR_HTTP1_HEAD_END;
}

static lar_http1_event length_next(lar_http1 *p, const char *data, size_t len, size_t *used, lar_slice *body) {
    if (len == 0) return LAR_HTTP1_MORE;
    size_t n = p->left < len ? (size_t)p->left : len;
    *body = lar_slice_of(data, n);
    *used = n;
    p->left -= n;
    if (p->left == 0) p->state = HTTP1_COMPLETE;
    return LAR_HTTP1_BODY;
}

static lar_http1_event trailer_next(lar_http1 *p, const char *data, size_t len, size_t *used) {
    lar_http1_event e = section_next(p, &p->trailer, data + *used, len - *used, used);
    if (e != LAR_HTTP1_END) return e;
    if (!lar_http1_check_trailer(p)) return LAR_HTTP1_FAIL;
    lar_buf_reset(&p->trailer, 0);
    p->state = HTTP1_COMPLETE;
    return LAR_HTTP1_END;
}

/* What END leaves behind: ready for the next message, this one's head still readable. */
static lar_http1_event complete(lar_http1 *p) {
    p->state = HTTP1_IDLE;
    p->to_head_request = false;
    return LAR_HTTP1_END;
}

lar_http1_event lar_http1_next(lar_http1 *p, const char *data, size_t len, size_t *used, lar_slice *body) {
    *used = 0;
    *body = lar_slice_of(NULL, 0);
    lar_http1_event e;
    switch (p->state) {
    case HTTP1_IDLE:
    case HTTP1_INTERIM:
        e = idle_next(p, data, len, used);
        return e == LAR_HTTP1_END ? head_next(p, data, len, used) : e;
    case HTTP1_IN_HEAD: return head_next(p, data, len, used);
    case HTTP1_LENGTH: return length_next(p, data, len, used, body);
    case HTTP1_UNTIL_EOF:
        if (len == 0) return LAR_HTTP1_MORE;
        *body = lar_slice_of(data, len);
        *used = len;
        return LAR_HTTP1_BODY;
    case HTTP1_CHUNKED:
        e = lar_http1_chunk_next(p, data, len, used, body);
        if (e != LAR_HTTP1_END) return e;
        p->state = HTTP1_TRAILER;
        p->line_bytes = 0;
        /* fall through */
    case HTTP1_TRAILER: e = trailer_next(p, data, len, used); return e == LAR_HTTP1_END ? complete(p) : e;
    case HTTP1_COMPLETE: return complete(p);
    case HTTP1_FAILED: return LAR_HTTP1_FAIL;
    }
    LAR_UNREACHABLE("http1 state");
}

lar_http1_event lar_http1_eof(lar_http1 *p) {
    bool request = p->type == LAR_HTTP1_REQUEST;
    switch (p->state) {
    case HTTP1_IDLE: return LAR_HTTP1_MORE;
    case HTTP1_UNTIL_EOF:
    case HTTP1_COMPLETE: return complete(p);
    case HTTP1_INTERIM:
    case HTTP1_IN_HEAD:
        return lar_http1_refuse(p, request ? LAR_HTTP_SYNTAX : LAR_UPSTREAM_CLOSED, p->head.len,
                                "the connection ended inside the head");
    case HTTP1_LENGTH:
    case HTTP1_CHUNKED:
    case HTTP1_TRAILER:
        return lar_http1_refuse(p, request ? LAR_HTTP_SYNTAX : LAR_UPSTREAM_CUT, p->body_bytes,
                                "the connection ended inside the body");
    case HTTP1_FAILED: return LAR_HTTP1_FAIL;
    }
    LAR_UNREACHABLE("http1 state");
}

const lar_http1_head *lar_http1_head_of(const lar_http1 *p) { return &p->h; }
lar_error lar_http1_error(const lar_http1 *p) { return p->error; }
const lar_diag *lar_http1_diag(const lar_http1 *p) { return &p->diag; }
bool lar_http1_idle(const lar_http1 *p) { return p->state == HTTP1_IDLE; }
bool lar_http1_in_head(const lar_http1 *p) { return p->state == HTTP1_IN_HEAD; }
