/* A byte stream over TCP or a local socket, plain or TLS: the only place that calls uv_read_start, uv_write and
 * uv_close on sockets.
 *
 * The owner embeds it and gets events; it frees its memory only on CLOSED, which comes once, last, and never from
 * inside a call of the owner's. No event comes from inside lar_stream_write. Loop thread only. */
#ifndef LARDER_GATEWAY_STREAM_H
#define LARDER_GATEWAY_STREAM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>
#include <uv.h>

#include "base/error.h"
#include "base/slice.h"
#include "gateway/net/tls.h"

typedef struct lar_stream lar_stream;

typedef enum lar_stream_event_kind {
    LAR_STREAM_OPEN,    /* connected, TLS handshake done; none for a plain accepted connection */
    LAR_STREAM_DATA,    /* data borrows the read buffer until the callback returns */
    LAR_STREAM_EOF,     /* the peer shut its side down; writing may go on */
    LAR_STREAM_ERROR,   /* broken (error says how): nothing more will come but CLOSED, after lar_stream_close */
    LAR_STREAM_DRAINED, /* the write queue, which was not empty, is */
    LAR_STREAM_CLOSED
} lar_stream_event_kind;

typedef struct lar_stream_event {
    lar_stream_event_kind kind;
    lar_slice data;
    lar_error error;
    lar_diag diag; /* for ERROR */
} lar_stream_event;

typedef void (*lar_stream_cb)(void *owner, const lar_stream_event *e);

/* Buffers that every stream of a loop shares: a read is handed on before the next one begins. */
enum { LAR_STREAM_SCRATCH_BYTES = 256 << 10 };
typedef struct lar_stream_scratch {
    char cipher[LAR_STREAM_SCRATCH_BYTES];
    char plain[LAR_STREAM_SCRATCH_BYTES];
} lar_stream_scratch;

/* Where the next plain bytes may be read to, to spare a copy; len 0: into the scratch. Asked before each read; what was
 * read comes as DATA that points there. */
typedef struct iovec (*lar_stream_room_cb)(void *owner);

struct lar_stream {
    uv_tcp_t tcp; /* first member */
    uv_connect_t connect;
    lar_stream_cb on_event;
    lar_stream_room_cb room; /* NULL: always the scratch; set by the owner after init */
    void *owner;
    lar_stream_scratch *scratch;
    lar_tls *tls;
    uint64_t bytes_out;  /* taken by the socket or queued, since the start */
    size_t queued_bytes; /* given to uv_write and not done yet */
    uint32_t writes_active;
    bool opened, reading, failed, write_failed, closing, read_wanted, eof_seen;
    bool unclean_eof; /* TLS ended without close_notify: what has no length may be cut (RFC 9112 9.8) */
};

typedef enum lar_stream_write_mode {
    LAR_WRITE_COPY,  /* what the socket does not take at once is copied */
    LAR_WRITE_BORROW /* it is not: the bytes must stay until DRAINED or CLOSED */
} lar_stream_write_mode;

/* `scratch` is shared by all streams of the loop, borrowed. */
void lar_stream_init(lar_stream *s, uv_loop_t *loop, lar_stream_scratch *scratch, lar_stream_cb on_event, void *owner);
/* Takes the next connection of a listening handle. `tls` NULL = plain. OPEN follows (for TLS after the handshake).
 * On error the stream must still be closed. */
LAR_MUST_USE lar_error lar_stream_accept(lar_stream *s, uv_stream_t *listener, lar_tls_context *tls);
LAR_MUST_USE lar_error lar_stream_connect(lar_stream *s, const struct sockaddr *to, lar_tls_context *tls);
/* Takes a connected, non-blocking stream socket of any family, plain; without an OPEN. IO: the socket stays the
 * caller's. */
LAR_MUST_USE lar_error lar_stream_adopt(lar_stream *s, int fd);

/* DATA comes only between start and stop; what was read before a stop is still delivered in the same callback. */
void lar_stream_read_start(lar_stream *s);
void lar_stream_read_stop(lar_stream *s);

/* Writes or queues all of it. After an error (UPSTREAM_CLOSED: the peer is gone; NO_MEMORY) nothing more can be
 * written; what the peer had sent before is still delivered, then EOF or ERROR. *unsent (may be NULL):
 * not one byte reached the socket. */
LAR_MUST_USE lar_error lar_stream_write(lar_stream *s, const struct iovec *iov, uint32_t count,
                                        lar_stream_write_mode mode, bool *unsent);
static inline size_t lar_stream_queued(const lar_stream *s) { return s->queued_bytes; }
/* How many bytes the peer's machine has acknowledged since the start: grows while the peer reads, however slowly. */
uint64_t lar_stream_taken(const lar_stream *s);
/* True if the peer answered something with a reset (seen without reading). */
bool lar_stream_reset(const lar_stream *s);
/* Sends FIN (and close_notify) behind what is queued. */
void lar_stream_shutdown(lar_stream *s);
/* Idempotent. RESET: the peer gets RST. CLOSED follows. */
typedef enum lar_stream_close_mode { LAR_CLOSE_NORMAL, LAR_CLOSE_RESET } lar_stream_close_mode;
void lar_stream_close(lar_stream *s, lar_stream_close_mode mode);

/* Looks at the socket without waiting: true if the peer closed it or sent something unasked (H-02). */
bool lar_stream_stale(const lar_stream *s);

#endif
