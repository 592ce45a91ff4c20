/* malloc, calloc, realloc, aligned_alloc and free as the linker's --wrap routes them: one of them fails on demand.
 * Flow: a fault test arms it, runs the code under test, ends the watch. Any thread.
 * Why: out-of-memory paths are never taken otherwise, and they must neither leak nor break.
 * Memory: none. Not here: failures of anything but memory. */
#include "tests/fault/fail_alloc.h"

#include <stdatomic.h>
#include <stddef.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void __real_free(void *p);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void __wrap_free(void *p);

/* A test program's only state: the wrapped functions have no argument that could carry it. */
static struct {
    atomic_bool watching, failed;
    atomic_uint fail_at, count;
    atomic_long live;
} watch;

static bool must_fail(void) {
    if (!watch.watching || atomic_fetch_add(&watch.count, 1) + 1 != watch.fail_at) return false;
    watch.failed = true;
    return true;
}

static void *taken(void *p) {
    if (watch.watching && p) watch.live++;
    return p;
}

void *__wrap_malloc(size_t size) { return must_fail() ? NULL : taken(__real_malloc(size)); }
void *__wrap_calloc(size_t count, size_t size) { return must_fail() ? NULL : taken(__real_calloc(count, size)); }
void *__wrap_realloc(void *p, size_t size) {
    if (must_fail()) return NULL;
    return p ? __real_realloc(p, size) : taken(__real_realloc(p, size));
}
void *__wrap_aligned_alloc(size_t alignment, size_t size) {
    return must_fail() ? NULL : taken(__real_aligned_alloc(alignment, size));
}
void __wrap_free(void *p) {
    if (watch.watching && p) watch.live--;
    __real_free(p);
}

void fail_alloc_at(unsigned n) {
    watch.failed = false;
    watch.fail_at = n;
    watch.count = 0;
    watch.live = 0;
    watch.watching = true;
}

bool fail_alloc_end(void) {
    watch.watching = false;
    return watch.failed;
}

long fail_alloc_live(void) { return watch.live; }
