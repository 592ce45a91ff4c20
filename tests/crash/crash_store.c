/* Kills a process that writes through the store, again and again, and looks at what is left.
 *
 *     crash_store RUNS [DIR]
 *
 * A child journals at full speed and puts recall values, and notes in shared memory what it has queued and when. At a
 * random moment it is killed with SIGKILL. Then, by this process: the store opens; every record is whole and is the
 * one that its number says; none is missing before the last; everything that lar_store_flush had answered for, and
 * everything queued longer ago than the commit interval and a margin for a busy machine, is there; recall values are
 * those that were put; the sums fit the journal. The next child goes on in the same store. Exit code 0 if all held. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/store.h"

/* For a busy machine. Under ThreadSanitizer a child journals faster than the writer writes, so that age says nothing
 * there; what a flush has answered for is still looked for, and the plain build looks at age. */
#ifdef __SANITIZE_THREAD__
enum { MARGIN_MS = 10000 };
#else
enum { MARGIN_MS = 400 };
#endif
enum { COMMIT_MS = 10, KEYS = 500, VALUE_BYTES = 3000, RING = 4096 };

/* What the child has done so far; it outlives the child. */
typedef struct shared {
    atomic_uint_fast64_t queued;        /* records, over all runs */
    atomic_uint_fast64_t flushed;       /* records that a flush has answered for */
    atomic_uint_fast64_t time_ns[RING]; /* [n % RING]: when the n-th group of 16 records had been queued */
    atomic_uint_fast64_t put[KEYS], put_flushed[KEYS]; /* generation of each recall value: put, and on disk for sure */
} shared;

static void fail(const char *what, uint64_t a, uint64_t b) {
    (void)fprintf(stderr, "crash_store: %s (%" PRIu64 ", %" PRIu64 ")\n", what, a, b);
    exit(1);
}

static lar_store *open_store(const char *dir) {
    lar_store *s;
    lar_diag d = {0};
    lar_store_options o = {.dir = dir, .commit_ms = COMMIT_MS, .sync_ms = 100, .queue_records_max = 1 << 14};
    lar_error e = lar_store_open(&o, &s, &d);
    if (e) {
        (void)fprintf(stderr, "crash_store: %s: %s\n", lar_error_name(e), d.text);
        exit(1);
    }
    return s;
}

/* The n-th record: its number is in its fields, so that a mixed-up or torn one is seen. */
static lar_journal_record record_of(uint64_t n) {
    lar_journal_record r = {.time_ms = lar_clock_wall_ms(),
                            .tenant = n,
                            .status = (uint16_t)(n % 600),
                            .prefix_hash = n * 0x9E3779B97F4A7C15u,
                            .request_bytes = ~n,
                            .turn = (uint32_t)n,
                            .tokens = {(int64_t)n, (int64_t)n / 2, (int64_t)(n - n / 2), 0, 1, LAR_TOKENS_UNKNOWN}};
    (void)snprintf(r.model, sizeof r.model, "model-%" PRIu64, n % 7);
    (void)snprintf(r.upstream, sizeof r.upstream, "%0*" PRIu64, (int)(1 + n % 90), n);
    return r;
}

static size_t value_of(uint64_t key, uint64_t generation, char out[VALUE_BYTES]) {
    size_t len = 16 + (size_t)((key * 7919 + generation * 104729) % (VALUE_BYTES - 16));
    memset(out, 'a' + (int)((key + generation) % 26), len);
    memcpy(out, &key, 8);
    memcpy(out + 8, &generation, 8);
    return len;
}

static lar_hash key_of(uint64_t key) { return lar_hash_of(lar_slice_of((const char *)&key, sizeof key)); }

/* -- the child ------------------------------------------------------------------------------------------ */

static _Noreturn void write_until_killed(const char *dir, shared *sh, unsigned seed) {
    lar_store *s = open_store(dir);
    char value[VALUE_BYTES];
    for (uint64_t n = atomic_load(&sh->queued);;) {
        for (int i = 0; i < 16; i++, n++) {
            lar_journal_record r = record_of(n);
            lar_store_journal(s, &r);
        }
        atomic_store(&sh->time_ns[n / 16 % RING], lar_clock_mono_ns());
        atomic_store(&sh->queued, n);
        seed = seed * 1103515245u + 12345u;
        uint64_t key = (seed >> 8) % KEYS, generation = atomic_load(&sh->put[key]) + 1;
        lar_hash h = key_of(key);
        lar_store_memory_put(s, &h, lar_slice_of(value, value_of(key, generation, value)));
        atomic_store(&sh->put[key], generation);
        if (n % 2048 == 0) {
            lar_store_flush(s);
            atomic_store(&sh->flushed, n);
            for (int k = 0; k < KEYS; k++) atomic_store(&sh->put_flushed[k], atomic_load(&sh->put[k]));
        }
        struct timespec pause = {.tv_nsec = (long)(seed >> 16 & 3) * 300000};
        (void)nanosleep(&pause, NULL);
    }
}

/* -- afterwards -------------------------------------------------------------------------------------------- */

typedef struct check {
    uint64_t next; /* the number that must come */
} check;

static bool check_one(void *ctx, uint64_t seq, const lar_journal_record *r) {
    check *c = ctx;
    (void)seq;
    lar_journal_record want = record_of(c->next);
    if (r->tenant != c->next) fail("a record is missing or in another's place", r->tenant, c->next);
    if (r->request_bytes != want.request_bytes || r->prefix_hash != want.prefix_hash ||
        strcmp(r->upstream, want.upstream) || strcmp(r->model, want.model) ||
        memcmp(&r->tokens, &want.tokens, sizeof want.tokens))
        fail("a record is torn", r->tenant, c->next);
    c->next++;
    return true;
}

/* Records that had been queued for longer than the commit interval and the margin. */
static uint64_t must_be_there(const shared *sh, uint64_t killed_ns) {
    uint64_t queued = atomic_load(&sh->queued), old = killed_ns - (uint64_t)(COMMIT_MS + MARGIN_MS) * 1000000u;
    for (uint64_t n = queued; n >= 16 && queued - n < 16 * (RING - 2); n -= 16) {
        uint64_t t = atomic_load(&sh->time_ns[n / 16 % RING]);
        if (t && t < old) return n;
    }
    return 0;
}

static bool sum_requests(void *ctx, const lar_rollup *r) {
    *(uint64_t *)ctx += r->requests;
    return true;
}

static void check_memory(lar_store *s, shared *sh) {
    char want[VALUE_BYTES];
    lar_buf b;
    lar_buf_init(&b, VALUE_BYTES);
    for (uint64_t key = 0; key < KEYS; key++) {
        lar_hash h = key_of(key);
        b.len = 0;
        uint64_t generation = 0, put = atomic_load(&sh->put[key]) + 1, sure = atomic_load(&sh->put_flushed[key]);
        lar_error e = lar_store_memory_get(s, &h, &b);
        if (e && e != LAR_NOT_FOUND) fail("a recall value cannot be read", key, (uint64_t)e);
        if (!e) memcpy(&generation, b.ptr + 8, 8);
        if (generation < sure || generation > put) fail("a recall value is lost or was never put", generation, sure);
        if (!e && (b.len != value_of(key, generation, want) || memcmp(b.ptr, want, b.len)))
            fail("a recall value is torn", key, generation);
        atomic_store(&sh->put[key], generation);
        atomic_store(&sh->put_flushed[key], generation);
    }
    lar_buf_release(&b);
}

static uint64_t check_store(const char *dir, shared *sh, uint64_t killed_ns) {
    lar_store *s = open_store(dir);
    lar_journal_filter all = {0};
    check c = {0};
    uint64_t damaged = 0, requests = 0, must = must_be_there(sh, killed_ns), flushed = atomic_load(&sh->flushed);
    if (lar_store_scan(s, &all, 0, check_one, &c, &damaged) != LAR_OK) fail("the journal cannot be read", 0, 0);
    if (damaged) fail("records are damaged", damaged, 0);
    if (c.next < flushed) fail("a record is lost that a flush had answered for", c.next, flushed);
    if (c.next < must) fail("a record older than the commit interval is lost", c.next, must);
    if (c.next > atomic_load(&sh->queued) + 16) fail("a record was never queued", c.next, atomic_load(&sh->queued));
    if (lar_store_rollups(s, LAR_ROLLUP_DAY, &all, sum_requests, &requests) != LAR_OK || requests != c.next)
        fail("the sums do not fit the journal", requests, c.next);
    check_memory(s, sh);
    lar_store_close(s);
    uint64_t lost = atomic_load(&sh->queued) > c.next ? atomic_load(&sh->queued) - c.next : 0;
    atomic_store(&sh->queued, c.next);
    atomic_store(&sh->flushed, c.next);
    return lost;
}

static void pause_ms(unsigned ms) {
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {}
}

int main(int argc, char **argv) {
    char own[] = "/tmp/larder-crash-XXXXXX";
    int runs = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0;
    const char *dir = argc > 2 ? argv[2] : mkdtemp(own);
    if (runs < 1 || !dir) {
        (void)fprintf(stderr, "usage: crash_store RUNS [DIR]\n");
        return 2;
    }
    shared *sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sh == MAP_FAILED) return 2;
    memset(sh, 0, sizeof *sh);
    unsigned seed = (unsigned)lar_clock_mono_ns();
    uint64_t lost_most = 0;
    (void)printf("seed %u, commit interval %d ms, margin %d ms\n", seed, COMMIT_MS, MARGIN_MS);
    for (int run = 0; run < runs; run++) {
        (void)fflush(NULL);
        pid_t child = fork();
        if (child < 0) return 2;
        if (child == 0) write_until_killed(dir, sh, seed + (unsigned)run);
        seed = seed * 1103515245u + 12345u;
        pause_ms(20 + (seed >> 8) % 500);
        uint64_t killed_ns = lar_clock_mono_ns();
        (void)kill(child, SIGKILL);
        int status;
        if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status))
            fail("the writer ended by itself", (uint64_t)run, 0);
        uint64_t lost = check_store(dir, sh, killed_ns);
        lost_most = lost > lost_most ? lost : lost_most;
    }
    (void)printf("%d kills, %" PRIu64 " records, none lost that had to be there; at most %" PRIu64
                 " younger than the interval\n",
                 runs, atomic_load(&sh->queued), lost_most);
    if (argc <= 2) {
        const char *files[] = {"data.mdb", "lock.mdb", "writer.lock"};
        char path[64];
        for (int i = 0; i < 3; i++) {
            (void)snprintf(path, sizeof path, "%s/%s", dir, files[i]);
            (void)unlink(path);
        }
        (void)rmdir(dir);
    }
    return 0;
}
