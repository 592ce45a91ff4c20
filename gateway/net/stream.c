/* Byte streams over uv_tcp_t, with TLS as a filter. Called by the client side and by upstream connections.
 * Loop thread only; never blocks. Reads use the loop's scratch, so an idle stream holds no buffer.
 * Invariants: 1. after closing, no event but CLOSED. 2. queued_bytes is what uv_write holds.
 * 3. a failed stream is never read or written again. Not here: timeouts, HTTP. */
#include "gateway/net/stream.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/ensure.h"

enum { IOV_MAX_ONCE = 64, TLS_SLICE_BYTES = 64 << 10, TLS_TOGETHER_BYTES = 8 << 10 };

/* A queued write; COPY keeps the bytes behind it. */
typedef struct write_req {
    uv_write_t req;
    lar_stream *stream;
    size_t bytes;
    char data[];
} write_req;

static void emit(lar_stream *s, lar_stream_event_kind kind, lar_slice data) {
    s->on_event(s->owner, &(lar_stream_event){.kind = kind, .data = data});
}

static void emit_error(lar_stream *s, lar_error e, const lar_diag *d) {
    if (s->failed || s->closing) return;
    s->failed = true;
    if (s->reading) (void)uv_read_stop((uv_stream_t *)&s->tcp);
    s->reading = false;
    lar_stream_event ev = {.kind = LAR_STREAM_ERROR, .error = e};
    if (d) ev.diag = *d;
    s->on_event(s->owner, &ev);
}

void lar_stream_init(lar_stream *s, uv_loop_t *loop, lar_stream_scratch *scratch, lar_stream_cb on_event, void *owner) {
    *s = (lar_stream){.on_event = on_event, .owner = owner, .scratch = scratch};
    LAR_ASSERT(uv_tcp_init(loop, &s->tcp) == 0);
    s->tcp.data = s;
}

static void on_written(uv_write_t *req, int status) {
    write_req *w = (write_req *)req;
    lar_stream *s = w->stream;
    s->queued_bytes -= w->bytes;
    s->writes_active--;
    free(w);
    if (s->closing) return;
    if (status < 0) { /* an answer may still wait to be read: then the read side tells */
        s->write_failed = true;
        if (!s->reading) emit_error(s, LAR_UPSTREAM_CLOSED, NULL);
        return;
    }
    if (s->writes_active == 0 && s->opened) emit(s, LAR_STREAM_DRAINED, (lar_slice){NULL, 0});
}

/* Drops `skip` bytes from the front of iov; returns how many entries are left in `out`. */
static uint32_t rest_of(const struct iovec *iov, uint32_t count, size_t skip, uv_buf_t *out) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (skip >= iov[i].iov_len) {
            skip -= iov[i].iov_len;
            continue;
        }
        out[n++] = uv_buf_init((char *)iov[i].iov_base + skip, (unsigned int)(iov[i].iov_len - skip));
        skip = 0;
    }
    return n;
}

static lar_error queue_rest(lar_stream *s, uv_buf_t *bufs, uint32_t n, size_t bytes, lar_stream_write_mode mode) {
    write_req *w = malloc(sizeof *w + (mode == LAR_WRITE_COPY ? bytes : 0));
    if (!w) return LAR_NO_MEMORY;
    w->stream = s;
    w->bytes = bytes;
    uv_buf_t one;
    if (mode == LAR_WRITE_COPY) {
        size_t at = 0;
        for (uint32_t i = 0; i < n; i++) {
            memcpy(w->data + at, bufs[i].base, bufs[i].len);
            at += bufs[i].len;
        }
        one = uv_buf_init(w->data, (unsigned int)bytes);
        bufs = &one;
        n = 1;
    }
    if (uv_write(&w->req, (uv_stream_t *)&s->tcp, bufs, n, on_written) < 0) {
        free(w);
        return LAR_UPSTREAM_CLOSED;
    }
    s->queued_bytes += bytes;
    s->writes_active++;
    return LAR_OK;
}

static size_t total(const struct iovec *iov, uint32_t count) {
    size_t n = 0;
    for (uint32_t i = 0; i < count; i++) n += iov[i].iov_len;
    return n;
}

/* One batch of at most IOV_MAX_ONCE pieces: the socket first, then the queue. */
static lar_error write_batch(lar_stream *s, const struct iovec *iov, uint32_t count, lar_stream_write_mode mode,
                             bool *unsent) {
    uv_buf_t bufs[IOV_MAX_ONCE];
    size_t bytes = total(iov, count), done = 0;
    LAR_ASSERT(bytes <= UINT32_MAX);
    s->bytes_out += bytes;
    if (s->writes_active == 0) {
        uint32_t n = rest_of(iov, count, 0, bufs);
        int r = uv_try_write((uv_stream_t *)&s->tcp, bufs, n);
        if (r < 0 && r != UV_EAGAIN) return LAR_UPSTREAM_CLOSED;
        done = r > 0 ? (size_t)r : 0;
    }
    if (done && unsent) *unsent = false;
    if (done == bytes) return LAR_OK;
    uint32_t n = rest_of(iov, count, done, bufs);
    lar_error e = queue_rest(s, bufs, n, bytes - done, mode);
    if (!e && unsent) *unsent = false; /* the kernel may take it any time from now on */
    return e;
}

static lar_error flush_tls(lar_stream *s, bool *unsent) {
    lar_slice out = lar_tls_output(s->tls);
    if (!out.len) return LAR_OK;
    struct iovec one = {(void *)(uintptr_t)out.ptr, out.len};
    lar_error e = write_batch(s, &one, 1, LAR_WRITE_COPY, unsent);
    lar_tls_consume(s->tls);
    return e;
}

/* In slices: a memory BIO keeps, and clears at each flush, as much as it ever held. */
static lar_error put_tls(lar_stream *s, lar_slice plain, bool *unsent) {
    lar_error e = LAR_OK;
    while (plain.len && !e) {
        size_t n = plain.len < TLS_SLICE_BYTES ? plain.len : TLS_SLICE_BYTES;
        e = lar_tls_write(s->tls, lar_slice_of(plain.ptr, n));
        if (!e) e = flush_tls(s, unsent);
        plain.ptr += n;
        plain.len -= n;
    }
    return e;
}

/* Small pieces go together, so that an event of a stream is one record and not three. */
static lar_error write_tls(lar_stream *s, const struct iovec *iov, uint32_t count, bool *unsent) {
    char together[TLS_TOGETHER_BYTES];
    size_t held = 0;
    lar_error e = LAR_OK;
    for (uint32_t i = 0; i < count && !e; i++) {
        lar_slice piece = lar_slice_of(iov[i].iov_base, iov[i].iov_len);
        if (piece.len > sizeof together - held) {
            e = put_tls(s, lar_slice_of(together, held), unsent);
            held = 0;
        }
        if (e) break;
        if (piece.len > sizeof together) {
            e = put_tls(s, piece, unsent);
        } else if (piece.len) {
            memcpy(together + held, piece.ptr, piece.len);
            held += piece.len;
        }
    }
    return e ? e : put_tls(s, lar_slice_of(together, held), unsent);
}

lar_error lar_stream_write(lar_stream *s, const struct iovec *iov, uint32_t count, lar_stream_write_mode mode,
                           bool *unsent) {
    if (unsent) *unsent = true;
    if (s->failed || s->write_failed || s->closing) return LAR_UPSTREAM_CLOSED;
    LAR_ASSERT(s->opened);
    lar_error e = LAR_OK;
    if (s->tls) {
        e = write_tls(s, iov, count, unsent);
    } else {
        for (uint32_t at = 0; at < count && !e; at += IOV_MAX_ONCE) {
            uint32_t n = count - at < IOV_MAX_ONCE ? count - at : IOV_MAX_ONCE;
            e = write_batch(s, iov + at, n, mode, unsent);
        }
    }
    if (e) s->write_failed = true;
    return e;
}

static void finish_eof(lar_stream *s) {
    if (s->eof_seen) return;
    s->eof_seen = true;
    if (s->reading) (void)uv_read_stop((uv_stream_t *)&s->tcp);
    s->reading = false;
    if (!s->opened) emit_error(s, s->tls ? LAR_UPSTREAM_TLS : LAR_UPSTREAM_CLOSED, NULL);
    else emit(s, LAR_STREAM_EOF, (lar_slice){NULL, 0});
}

static void apply_reading(lar_stream *s);

/* Hands out everything that can be decrypted now, also after a stop: nothing would wake it later. */
static void pump_tls(lar_stream *s) {
    while (!s->closing && !s->failed) {
        size_t got;
        bool closed;
        lar_error e = lar_tls_read(s->tls, s->scratch->plain, sizeof s->scratch->plain, &got, &closed);
        if (e) {
            emit_error(s, e, NULL);
            return;
        }
        if (got) {
            emit(s, LAR_STREAM_DATA, lar_slice_of(s->scratch->plain, got));
            continue;
        }
        if (closed) finish_eof(s);
        return;
    }
}

static void on_cipher(lar_stream *s, lar_slice cipher) {
    lar_diag d = {{0}, 0, 0};
    lar_error e = lar_tls_feed(s->tls, cipher);
    bool was_open = s->opened;
    if (!e && !s->opened) e = lar_tls_handshake(s->tls, &d);
    lar_error sent = flush_tls(s, NULL);
    if (e || sent) {
        emit_error(s, e ? e : sent, &d);
        return;
    }
    if (!s->opened) {
        if (!lar_tls_ready(s->tls)) return;
        s->opened = true;
        if (!s->read_wanted) apply_reading(s);
        emit(s, LAR_STREAM_OPEN, (lar_slice){NULL, 0});
        if (s->closing || s->failed) return;
    }
    pump_tls(s);
    if (was_open && !s->closing && !s->failed && flush_tls(s, NULL) != LAR_OK) emit_error(s, LAR_UPSTREAM_CLOSED, NULL);
}

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf) {
    (void)suggested;
    lar_stream *s = h->data;
    struct iovec own = {NULL, 0};
    if (s->room && !s->tls) own = s->room(s->owner);
    if (own.iov_len > UINT32_MAX) own.iov_len = UINT32_MAX;
    *buf = own.iov_len ? uv_buf_init(own.iov_base, (unsigned)own.iov_len)
                       : uv_buf_init(s->scratch->cipher, sizeof s->scratch->cipher);
}

/* libuv calls a reset an end where it comes together with the last data: the socket still knows. */
static bool was_reset(const lar_stream *s) {
    uv_os_fd_t fd;
    char byte;
    if (uv_fileno((const uv_handle_t *)&s->tcp, &fd) != 0) return true;
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno != EAGAIN && errno != EINTR;
}

static void on_read(uv_stream_t *h, ssize_t n, const uv_buf_t *buf) {
    lar_stream *s = h->data;
    if (n == 0 || s->closing) return;
    if (n == UV_EOF && !was_reset(s)) {
        s->unclean_eof = s->tls != NULL; /* close_notify would have come first, and been seen by pump_tls */
        finish_eof(s);
        return;
    }
    if (n < 0) {
        emit_error(s, LAR_UPSTREAM_CLOSED, NULL);
        return;
    }
    lar_slice data = lar_slice_of(buf->base, (size_t)n);
    if (s->tls) on_cipher(s, data);
    else emit(s, LAR_STREAM_DATA, data);
}

/* Reading is on while the owner wants data, and during the TLS handshake. */
static void apply_reading(lar_stream *s) {
    bool want = !s->closing && !s->failed && !s->eof_seen && (s->read_wanted || (s->tls && !s->opened));
    if (want == s->reading) return;
    if (want) {
        if (uv_read_start((uv_stream_t *)&s->tcp, on_alloc, on_read) < 0) return; /* the write side will tell */
    } else {
        (void)uv_read_stop((uv_stream_t *)&s->tcp);
    }
    s->reading = want;
}

static lar_error begin_tls(lar_stream *s, lar_tls_context *tls) {
    s->tls = lar_tls_new(tls);
    return s->tls ? LAR_OK : LAR_NO_MEMORY;
}

static lar_error start_tls(lar_stream *s, lar_diag *d) {
    lar_error e = lar_tls_handshake(s->tls, d);
    if (!e) e = flush_tls(s, NULL);
    apply_reading(s);
    return e;
}

lar_error lar_stream_accept(lar_stream *s, uv_stream_t *listener, lar_tls_context *tls) {
    if (uv_accept(listener, (uv_stream_t *)&s->tcp) < 0) return LAR_IO;
    (void)uv_tcp_nodelay(&s->tcp, 1);
    if (!tls) {
        s->opened = true;
        return LAR_OK;
    }
    lar_error e = begin_tls(s, tls);
    return e ? e : start_tls(s, NULL);
}

static lar_error connect_error(int status) {
    return status == UV_ETIMEDOUT ? LAR_UPSTREAM_CONNECT_TIMEOUT : LAR_UPSTREAM_CONNECT;
}

static void on_connect(uv_connect_t *req, int status) {
    lar_stream *s = req->data;
    if (s->closing) return;
    lar_diag d = {{0}, 0, 0};
    if (status < 0) {
        (void)lar_fail(LAR_UPSTREAM_CONNECT, &d, "%s", uv_strerror(status));
        emit_error(s, connect_error(status), &d);
        return;
    }
    (void)uv_tcp_nodelay(&s->tcp, 1);
    if (s->tls) {
        lar_error e = start_tls(s, &d);
        if (e) emit_error(s, e, &d);
        return;
    }
    s->opened = true;
    apply_reading(s);
    emit(s, LAR_STREAM_OPEN, (lar_slice){NULL, 0});
}

lar_error lar_stream_connect(lar_stream *s, const struct sockaddr *to, lar_tls_context *tls) {
    if (tls) {
        lar_error e = begin_tls(s, tls);
        if (e) return e;
    }
    s->connect.data = s;
    return uv_tcp_connect(&s->connect, &s->tcp, to, on_connect) < 0 ? LAR_UPSTREAM_CONNECT : LAR_OK;
}

/* libuv's handle for TCP does nothing that only TCP can do until it is asked to. */
lar_error lar_stream_adopt(lar_stream *s, int fd) {
    if (uv_tcp_open(&s->tcp, fd) < 0) return LAR_IO;
    s->opened = true;
    return LAR_OK;
}

void lar_stream_read_start(lar_stream *s) {
    s->read_wanted = true;
    apply_reading(s);
}

void lar_stream_read_stop(lar_stream *s) {
    s->read_wanted = false;
    apply_reading(s);
}

static void on_shutdown(uv_shutdown_t *req, int status) {
    (void)status; /* a peer that is gone shows up on the read side */
    free(req);
}

void lar_stream_shutdown(lar_stream *s) {
    if (s->failed || s->write_failed || s->closing || !s->opened) return;
    if (s->tls) {
        lar_tls_shutdown(s->tls);
        if (flush_tls(s, NULL) != LAR_OK) return;
    }
    uv_shutdown_t *r = malloc(sizeof *r);
    if (!r) return;
    if (uv_shutdown(r, (uv_stream_t *)&s->tcp, on_shutdown) < 0) free(r);
}

static void on_closed(uv_handle_t *h) {
    lar_stream *s = h->data;
    lar_tls_free(s->tls);
    s->tls = NULL;
    emit(s, LAR_STREAM_CLOSED, (lar_slice){NULL, 0});
}

void lar_stream_close(lar_stream *s, lar_stream_close_mode mode) {
    if (s->closing) return;
    if (s->tls && s->opened && !s->failed && mode == LAR_CLOSE_NORMAL) {
        lar_tls_shutdown(s->tls);
        (void)flush_tls(s, NULL); /* best effort: the peer may be gone */
    }
    s->closing = true;
    s->reading = false;
    if (mode == LAR_CLOSE_RESET && uv_tcp_close_reset(&s->tcp, on_closed) == 0) return;
    uv_close((uv_handle_t *)&s->tcp, on_closed);
}

bool lar_stream_stale(const lar_stream *s) {
    if (s->failed || s->write_failed || s->closing || s->eof_seen) return true;
    uv_os_fd_t fd;
    if (uv_fileno((const uv_handle_t *)&s->tcp, &fd) != 0) return true;
    struct pollfd p = {.fd = fd, .events = POLLIN | POLLRDHUP};
    if (poll(&p, 1, 0) != 1) return false;
    if (p.revents & (POLLRDHUP | POLLERR | POLLHUP)) return true; /* seen behind unread bytes too */
    return !s->tls; /* TLS may have sent tickets (H-12); plain HTTP has nothing to say unasked */
}

uint64_t lar_stream_taken(const lar_stream *s) {
    uv_os_fd_t fd;
    int in_kernel = 0;
    if (uv_fileno((const uv_handle_t *)&s->tcp, &fd) != 0 || ioctl(fd, SIOCOUTQ, &in_kernel) != 0 || in_kernel < 0)
        in_kernel = 0;
    uint64_t waiting = (uint64_t)s->tcp.write_queue_size + (uint64_t)in_kernel;
    return s->bytes_out > waiting ? s->bytes_out - waiting : 0;
}

bool lar_stream_reset(const lar_stream *s) {
    uv_os_fd_t fd;
    if (uv_fileno((const uv_handle_t *)&s->tcp, &fd) != 0) return true;
    struct pollfd p = {.fd = fd, .events = 0};
    return poll(&p, 1, 0) == 1 && (p.revents & (POLLERR | POLLHUP));
}
