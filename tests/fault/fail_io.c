/* The disk's calls as the linker's --wrap routes them: some of them fail on demand.
 * Flow: a fault test arms it, the code under test runs into it on any thread. Blocks only where it is told to hold.
 * Why: full disks, torn writes and failing syncs cannot be had on demand otherwise, and not at every place.
 * Memory: none. Not here: what must come of it. */
#include "tests/fault/fail_io.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>
#include <unistd.h>

ssize_t __real_pwrite(int fd, const void *bytes, size_t count, off_t at);
ssize_t __real_pread(int fd, void *bytes, size_t count, off_t at);
int __real_fdatasync(int fd);
int __real_fsync(int fd);
int __real_ftruncate(int fd, off_t length);
int __real_openat(int folder, const char *path, int flags, ...);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t count, off_t at);
ssize_t __wrap_pread(int fd, void *bytes, size_t count, off_t at);
int __wrap_fdatasync(int fd);
int __wrap_fsync(int fd);
int __wrap_ftruncate(int fd, off_t length);
int __wrap_openat(int folder, const char *path, int flags, ...);

typedef struct plan {
    unsigned good, bad, failed;
    int error;
} plan;

/* A test program's only state: the wrapped functions have no argument that could carry it. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t go;
    plan plans[FAIL_IO_CALLS];
    bool hold;
} io = {.lock = PTHREAD_MUTEX_INITIALIZER, .go = PTHREAD_COND_INITIALIZER};
static atomic_uint at_most, calls;

static bool must_fail(fail_io_call call) {
    (void)pthread_mutex_lock(&io.lock);
    while (io.hold && call == FAIL_IO_PWRITE) (void)pthread_cond_wait(&io.go, &io.lock);
    plan *p = &io.plans[call];
    bool fails = false;
    if (p->good) {
        p->good--;
    } else if (p->bad) {
        p->bad--;
        p->failed++;
        fails = true;
    }
    int error = p->error;
    (void)pthread_mutex_unlock(&io.lock);
    if (fails) errno = error;
    return fails;
}

/* How many bytes a call may take; 0: it is interrupted. */
static size_t allowed(size_t count) {
    unsigned most = atomic_load(&at_most);
    if (!most) return count;
    if (atomic_fetch_add(&calls, 1) % 3 == 2) {
        errno = EINTR;
        return 0;
    }
    return count < most ? count : most;
}

ssize_t __wrap_pwrite(int fd, const void *bytes, size_t count, off_t at) {
    if (must_fail(FAIL_IO_PWRITE)) return -1;
    size_t n = allowed(count);
    return n ? __real_pwrite(fd, bytes, n, at) : -1;
}

ssize_t __wrap_pread(int fd, void *bytes, size_t count, off_t at) {
    if (must_fail(FAIL_IO_PREAD)) return -1;
    size_t n = allowed(count);
    return n ? __real_pread(fd, bytes, n, at) : -1;
}

int __wrap_fdatasync(int fd) { return must_fail(FAIL_IO_FDATASYNC) ? -1 : __real_fdatasync(fd); }
int __wrap_fsync(int fd) { return must_fail(FAIL_IO_FSYNC) ? -1 : __real_fsync(fd); }
int __wrap_ftruncate(int fd, off_t length) { return must_fail(FAIL_IO_FTRUNCATE) ? -1 : __real_ftruncate(fd, length); }

int __wrap_openat(int folder, const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return must_fail(FAIL_IO_OPENAT) ? -1 : __real_openat(folder, path, flags, mode);
}

void fail_io_after(fail_io_call call, unsigned good, unsigned bad, int error) {
    (void)pthread_mutex_lock(&io.lock);
    io.plans[call] = (plan){good, bad, 0, error};
    (void)pthread_mutex_unlock(&io.lock);
}

void fail_io_short(unsigned bytes) { atomic_store(&at_most, bytes); }

void fail_io_hold(void) {
    (void)pthread_mutex_lock(&io.lock);
    io.hold = true;
    (void)pthread_mutex_unlock(&io.lock);
}

void fail_io_go(void) {
    (void)pthread_mutex_lock(&io.lock);
    io.hold = false;
    (void)pthread_cond_broadcast(&io.go);
    (void)pthread_mutex_unlock(&io.lock);
}

void fail_io_end(void) {
    fail_io_go();
    fail_io_short(0);
    for (int call = 0; call < FAIL_IO_CALLS; call++) fail_io_after((fail_io_call)call, 0, 0, 0);
}

unsigned fail_io_failed(fail_io_call call) {
    (void)pthread_mutex_lock(&io.lock);
    unsigned n = io.plans[call].failed;
    (void)pthread_mutex_unlock(&io.lock);
    return n;
}
