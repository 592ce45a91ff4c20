/* Preloaded into larder: its sockets read and write few bytes at a time, or none (EAGAIN, EINTR), at random.
 * Flow: short_larder.py loads it and plays the wire tests. Thread: any. Blocks: as the call would.
 * Why: a fast machine's loopback takes and brings everything at once, so that the code for the rest of a write, and for
 * a beginning of anything, hardly runs. Only stream sockets are touched; a call is never made to fail for good.
 * Invariant: nothing happens that Linux would not do. A read after which the peer has hung up is not shortened: libuv
 * rightly takes a short read for the last one then.
 * Memory: none. Not here: which bytes must arrive (the wire tests). */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/hash.h"

enum { AGAIN_ONE_IN = 6, INTERRUPT_ONE_IN = 12 };

static uint64_t next_random(void) {
    static _Atomic uint64_t count;
    static _Atomic uint64_t seed;
    uint64_t s = atomic_load_explicit(&seed, memory_order_relaxed);
    if (!s) {
        const char *text = getenv("FAULT_SEED");
        s = text ? strtoull(text, NULL, 10) + 1 : 1;
        atomic_store_explicit(&seed, s, memory_order_relaxed);
    }
    return lar_mix64((atomic_fetch_add_explicit(&count, 1, memory_order_relaxed) + s) * LAR_MIX64_STEP);
}

static void *next(const char *name) {
    void *f = dlsym(RTLD_NEXT, name);
    if (!f) abort();
    return f;
}

static bool is_stream(int fd) {
    int type = 0, before = errno;
    socklen_t len = sizeof type;
    bool is = getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_STREAM;
    errno = before;
    return is;
}

/* True: the call fails in passing; errno is set. */
static bool passes_by(int fd) {
    if (!is_stream(fd)) return false;
    uint64_t r = next_random();
    if (r % AGAIN_ONE_IN == 0) {
        errno = EAGAIN;
        return true;
    }
    if (r % INTERRUPT_ONE_IN == 1) {
        errno = EINTR;
        return true;
    }
    return false;
}

/* How much of `len` bytes is taken this time: often few, sometimes all. */
static size_t share(int fd, size_t len) {
    static const size_t most[] = {1, 7, 100, 3000, 70000};
    if (len < 2 || !is_stream(fd)) return len;
    uint64_t r = next_random();
    size_t n = 1 + (size_t)(r >> 16) % most[r % (sizeof most / sizeof *most)];
    return n < len ? n : len;
}

static bool hung_up(int fd) {
    struct pollfd p = {.fd = fd};
    int before = errno;
    bool is = poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLERR));
    errno = before;
    return is;
}

static size_t share_in(int fd, size_t len) { return hung_up(fd) ? len : share(fd, len); }

/* Cuts the vector to a share of its bytes; the copy is `out`, of `count` entries at most. */
static int cut(int fd, const struct iovec *iov, int count, struct iovec *out) {
    size_t total = 0;
    for (int i = 0; i < count; i++) total += iov[i].iov_len;
    size_t left = share(fd, total);
    int n = 0;
    for (; n < count && left; n++) {
        out[n] = iov[n];
        if (out[n].iov_len > left) out[n].iov_len = left;
        left -= out[n].iov_len;
    }
    return n;
}

ssize_t read(int fd, void *buf, size_t len) {
    static _Atomic(ssize_t(*)(int, void *, size_t)) real;
    if (!real) real = (ssize_t(*)(int, void *, size_t))next("read");
    if (passes_by(fd)) return -1;
    return real(fd, buf, share_in(fd, len));
}

ssize_t write(int fd, const void *buf, size_t len) {
    static _Atomic(ssize_t(*)(int, const void *, size_t)) real;
    if (!real) real = (ssize_t(*)(int, const void *, size_t))next("write");
    if (passes_by(fd)) return -1;
    return real(fd, buf, share(fd, len));
}

ssize_t writev(int fd, const struct iovec *iov, int count) {
    static _Atomic(ssize_t(*)(int, const struct iovec *, int)) real;
    if (!real) real = (ssize_t(*)(int, const struct iovec *, int))next("writev");
    if (passes_by(fd)) return -1;
    struct iovec some[1024];
    if (count < 1 || count > 1024) return real(fd, iov, count);
    return real(fd, some, cut(fd, iov, count, some));
}

ssize_t recv(int fd, void *buf, size_t len, int flags) {
    static _Atomic(ssize_t(*)(int, void *, size_t, int)) real;
    if (!real) real = (ssize_t(*)(int, void *, size_t, int))next("recv");
    if (flags & MSG_PEEK) return real(fd, buf, len, flags);
    if (passes_by(fd)) return -1;
    return real(fd, buf, share_in(fd, len), flags);
}

ssize_t send(int fd, const void *buf, size_t len, int flags) {
    static _Atomic(ssize_t(*)(int, const void *, size_t, int)) real;
    if (!real) real = (ssize_t(*)(int, const void *, size_t, int))next("send");
    if (passes_by(fd)) return -1;
    return real(fd, buf, share(fd, len), flags);
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags) {
    static _Atomic(ssize_t(*)(int, const struct msghdr *, int)) real;
    if (!real) real = (ssize_t(*)(int, const struct msghdr *, int))next("sendmsg");
    if (passes_by(fd)) return -1;
    struct iovec some[1024];
    struct msghdr part = *m;
    if (m->msg_iovlen < 1 || m->msg_iovlen > 1024) return real(fd, m, flags);
    part.msg_iovlen = (size_t)cut(fd, m->msg_iov, (int)m->msg_iovlen, some);
    part.msg_iov = some;
    return real(fd, &part, flags);
}
