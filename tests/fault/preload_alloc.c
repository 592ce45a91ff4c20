/* Preloaded into larder: malloc, calloc and realloc fail now and then, where the caller is larder itself.
 * Flow: alloc_larder.py loads it and sets the odds in a shared file while larder runs. Thread: any.
 * Why by caller: libuv, OpenSSL and libc end the process, or promise nothing, when their own memory runs out; larder's
 * own code, and cJSON which it calls, must answer, refuse or close instead.
 * Invariants: 1. with the odds at 0 nothing fails. 2. Which calls fail depends on the seed and their order alone.
 * Memory: one shared page. Not here: what larder must do then (alloc_larder.py). */
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/hash.h"

/* The shared file; the test writes one_in, and reads the rest. */
typedef struct control {
    _Atomic uint32_t one_in; /* 0: nothing fails */
    uint32_t seed;
    _Atomic uint64_t calls, failed;
} control;

typedef struct range {
    uintptr_t from, to;
} range;

/* The functions below have no argument that could carry this. */
static control *shared;
static range watched[8];
static int watched_count;

void *malloc(size_t size);
void *calloc(size_t count, size_t size);
void *realloc(void *p, size_t size);

typedef void *(*malloc_fn)(size_t);
typedef void *(*calloc_fn)(size_t, size_t);
typedef void *(*realloc_fn)(void *, size_t);

static void *next(const char *name) {
    void *f = dlsym(RTLD_NEXT, name);
    if (!f) abort();
    return f;
}

static bool is_watched(const void *caller) {
    uintptr_t at = (uintptr_t)caller;
    for (int i = 0; i < watched_count; i++) {
        if (at >= watched[i].from && at < watched[i].to) return true;
    }
    return false;
}

static bool must_fail(const void *caller) {
    if (!shared || !is_watched(caller)) return false;
    uint32_t one_in = atomic_load_explicit(&shared->one_in, memory_order_relaxed);
    if (!one_in) return false;
    uint64_t n = atomic_fetch_add_explicit(&shared->calls, 1, memory_order_relaxed) + 1;
    if (lar_mix64((n + shared->seed) * LAR_MIX64_STEP) % one_in) return false;
    atomic_fetch_add_explicit(&shared->failed, 1, memory_order_relaxed);
    return true;
}

void *malloc(size_t size) {
    static _Atomic(malloc_fn) real;
    if (must_fail(__builtin_return_address(0))) return NULL;
    malloc_fn f = atomic_load_explicit(&real, memory_order_relaxed);
    if (!f) {
        f = (malloc_fn)next("malloc");
        atomic_store_explicit(&real, f, memory_order_relaxed);
    }
    return f(size);
}

void *calloc(size_t count, size_t size) {
    static _Atomic(calloc_fn) real;
    if (must_fail(__builtin_return_address(0))) return NULL;
    calloc_fn f = atomic_load_explicit(&real, memory_order_relaxed);
    if (!f) {
        f = (calloc_fn)next("calloc");
        atomic_store_explicit(&real, f, memory_order_relaxed);
    }
    return f(count, size);
}

void *realloc(void *p, size_t size) {
    static _Atomic(realloc_fn) real;
    if (must_fail(__builtin_return_address(0))) return NULL;
    realloc_fn f = atomic_load_explicit(&real, memory_order_relaxed);
    if (!f) {
        f = (realloc_fn)next("realloc");
        atomic_store_explicit(&real, f, memory_order_relaxed);
    }
    return f(p, size);
}

/* The program itself is the object without a name. */
static int watch_object(struct dl_phdr_info *info, size_t bytes, void *unused) {
    (void)bytes, (void)unused;
    if (info->dlpi_name[0] && !strstr(info->dlpi_name, "libcjson")) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        if (h->p_type != PT_LOAD || !(h->p_flags & PF_X) || watched_count == sizeof watched / sizeof *watched) continue;
        watched[watched_count++] = (range){info->dlpi_addr + h->p_vaddr, info->dlpi_addr + h->p_vaddr + h->p_memsz};
    }
    return 0;
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAULT_CONTROL");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    (void)dl_iterate_phdr(watch_object, NULL);
    void *p = mmap(NULL, sizeof(control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    if (p != MAP_FAILED) shared = p;
}
