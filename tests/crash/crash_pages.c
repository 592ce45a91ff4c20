/* Kills a process that writes pages of the prefix cache, again and again, and looks at what is left.
 *
 *     crash_pages RUNS [DIR]
 *
 * A child writes pages, reads old ones now and then, and notes in shared memory how many a flush has answered for. At a
 * random moment it is killed with SIGKILL. Then, by this process: it opens; no page is anything but what was written
 * under its key; the newest of those that a flush had answered for are there; the folder is within its limit. The next
 * child goes on in the same folder. Exit code 0 if all held. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/page_segments.h"

enum { BYTES_MAX = 24 << 20, PAGE_BYTES_MOST = 120000, MUST_STAY = 40, LOOK_BACK = 2000 };

/* What the child has done so far; it outlives the child. */
typedef struct shared {
    atomic_uint_fast64_t written, flushed; /* pages, over all runs: number 0 and up */
} shared;

static void fail(const char *what, uint64_t a, uint64_t b) {
    (void)fprintf(stderr, "crash_pages: %s (%" PRIu64 ", %" PRIu64 ")\n", what, a, b);
    exit(1);
}

typedef struct opened {
    lar_store *store;
    lar_page_segments *pages;
} opened;

static opened open_pages(const char *dir) {
    opened o;
    lar_diag d = {0};
    lar_store_options so = {.dir = dir, .sync_ms = 100};
    lar_page_segments_options po = {.bytes_max = BYTES_MAX,
                                    .segment_bytes = 2 << 20,
                                    .ring_bytes = 4 << 20,
                                    .sync_ms = 30};
    lar_error e = lar_store_open(&so, &o.store, &d);
    if (!e) e = lar_page_segments_open(o.store, &po, &o.pages, &d);
    if (!e) return o;
    (void)fprintf(stderr, "crash_pages: %s: %s\n", lar_error_name(e), d.text);
    exit(1);
}

static lar_digest key_of(uint64_t n) { return lar_digest_of(lar_slice_of((const char *)&n, sizeof n)); }

/* The n-th page: its number is in every word. */
static uint64_t page_of(uint64_t n, uint8_t out[PAGE_BYTES_MOST]) {
    uint64_t bytes = 8 + n * 104729 % (PAGE_BYTES_MOST - 8);
    for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t word = (n << 20 | i) * 0x9E3779B97F4A7C15u;
        memcpy(out + i, &word, 8);
    }
    memset(out + bytes / 8 * 8, (int)(n & 0xff), bytes % 8);
    return bytes;
}

static _Noreturn void write_until_killed(const char *dir, shared *sh, unsigned seed) {
    static uint8_t page[PAGE_BYTES_MOST];
    opened o = open_pages(dir);
    for (uint64_t n = atomic_load(&sh->written);; n++) {
        lar_digest key = key_of(n);
        uint64_t bytes = page_of(n, page);
        while (lar_page_segments_write(o.pages, &key, page, bytes)) lar_page_segments_flush(o.pages);
        atomic_store(&sh->written, n + 1);
        seed = seed * 1103515245u + 12345u;
        if (seed >> 16 & 7) continue;
        uint64_t back = (seed >> 8) % 400, old = n > back ? n - back : 0;
        key = key_of(old);
        (void)lar_page_segments_read(o.pages, &key, page, page_of(old, page));
        if (seed >> 20 & 3) continue;
        lar_page_segments_flush(o.pages);
        atomic_store(&sh->flushed, n + 1);
    }
}

static void check_folder(const char *dir) {
    char path[512];
    uint64_t bytes = 0;
    (void)snprintf(path, sizeof path, "%s/pages", dir);
    DIR *d = opendir(path);
    if (!d) return; /* the first child was killed before there was one */
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        struct stat st;
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            bytes += (uint64_t)st.st_blocks * 512;
    }
    (void)closedir(d);
    if (bytes > BYTES_MAX) fail("the folder is over its limit", bytes, BYTES_MAX);
}

/* Returns how many pages are there. */
static uint64_t check_pages(const char *dir, shared *sh) {
    static uint8_t want[PAGE_BYTES_MOST], got[PAGE_BYTES_MOST];
    uint64_t written = atomic_load(&sh->written) + 1, flushed = atomic_load(&sh->flushed), found = 0;
    check_folder(dir);
    opened o = open_pages(dir);
    for (uint64_t n = written > LOOK_BACK ? written - LOOK_BACK : 0; n < written; n++) {
        lar_digest key = key_of(n);
        uint64_t bytes = page_of(n, want);
        lar_error e = lar_page_segments_read(o.pages, &key, got, bytes);
        if (e && e != LAR_NOT_FOUND) fail("a page cannot be read", n, (uint64_t)e);
        if (!e && memcmp(got, want, bytes) != 0) fail("a page is torn or another's", n, bytes);
        if (e && n < flushed && n + MUST_STAY >= flushed)
            fail("a page is lost that a flush had answered for", n, flushed);
        found += !e;
    }
    lar_page_segments_close(o.pages);
    lar_store_close(o.store);
    atomic_store(&sh->written, flushed); /* the next child writes again what may be lost */
    return found;
}

static void pause_ms(unsigned ms) {
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {}
}

static void remove_all(const char *dir) {
    char path[512];
    (void)snprintf(path, sizeof path, "%s/pages", dir);
    for (int i = 0; i < 2; i++) {
        DIR *d = opendir(i ? dir : path);
        for (struct dirent *e; d && (e = readdir(d)) != NULL;) (void)unlinkat(dirfd(d), e->d_name, 0);
        if (d) (void)closedir(d);
        (void)rmdir(i ? dir : path);
    }
}

int main(int argc, char **argv) {
    char own[] = "/tmp/larder-crash-XXXXXX";
    int runs = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0;
    const char *dir = argc > 2 ? argv[2] : mkdtemp(own);
    if (runs < 1 || !dir) {
        (void)fprintf(stderr, "usage: crash_pages RUNS [DIR]\n");
        return 2;
    }
    shared *sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sh == MAP_FAILED) return 2;
    unsigned seed = (unsigned)lar_clock_mono_ns();
    uint64_t found = 0;
    (void)printf("seed %u\n", seed);
    for (int run = 0; run < runs; run++) {
        (void)fflush(NULL);
        pid_t child = fork();
        if (child < 0) return 2;
        if (child == 0) write_until_killed(dir, sh, seed + (unsigned)run);
        seed = seed * 1103515245u + 12345u;
        pause_ms(20 + (seed >> 8) % 500);
        (void)kill(child, SIGKILL);
        int status;
        if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status))
            fail("the writer ended by itself", (uint64_t)run, 0);
        found = check_pages(dir, sh);
    }
    (void)printf("%d kills, %" PRIu64 " pages written, %" PRIu64 " answered for; %" PRIu64 " there at the end\n", runs,
                 atomic_load(&sh->written), atomic_load(&sh->flushed), found);
    if (argc <= 2) remove_all(dir);
    return 0;
}
