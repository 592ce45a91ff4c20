/* Pages of the prefix cache on disk: how fast they are written and read, and what a page costs in processor time,
 * beside plain files (one file, no index, no check) and beside LMDB with pages as values.
 *   page_bench [--pages N] [--bytes N] [--rounds N] [DIR]     CSV to stdout
 * Default: 256 pages of 1,133,568 bytes (64 tokens of DeepSeek-V2-Lite in fp8), 3 rounds, in the working folder. The
 * three take turns in each round; every number is the median of the rounds. write: until all is synced, in groups of
 * 32 MiB for all three. cold: out of the kernel's cache; warm: in it; both in random order. churn: as many pages again
 * with room for only so many (LMDB: the oldest are deleted). longest_ms: that the caller waited for one page. Not a
 * test, and nothing here fails by time. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <lmdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/page_segments.h"

enum { ROUNDS_MOST = 31, PATH_BYTES = 512, GROUP_BYTES = 32 << 20 };

typedef struct setup {
    uint64_t pages, bytes;
    char dir[PATH_BYTES]; /* of the one that is measured; empty at its start */
    uint8_t *page, *to;
    uint64_t unsynced;
    /* plain */
    int fd;
    /* LMDB */
    MDB_env *env;
    MDB_dbi dbi;
    /* segments */
    lar_store *store;
    lar_page_segments *segments;
} setup;

typedef struct way {
    const char *name;
    void (*open)(setup *s);
    void (*write)(setup *s, uint64_t n);
    void (*sync)(setup *s);
    void (*read)(setup *s, uint64_t n);
    void (*drop)(setup *s, uint64_t n); /* before one more is written in churn; NULL: by itself */
    void (*close)(setup *s);
} way;

static void must(bool ok, const char *what) {
    if (ok) return;
    (void)fprintf(stderr, "page_bench: %s\n", what);
    exit(1);
}

static lar_digest key_of(uint64_t n) { return lar_digest_of(lar_slice_of((const char *)&n, sizeof n)); }

/* -- plain: one file, pages side by side --------------------------------------------- */

static void plain_open(setup *s) {
    char path[PATH_BYTES + 16];
    (void)snprintf(path, sizeof path, "%s/plain", s->dir);
    s->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    must(s->fd >= 0, "cannot make a file");
}

/* Churn writes over what is there, as a file of fixed places would. */
static void plain_write(setup *s, uint64_t n) {
    off_t at = (off_t)(n % s->pages * s->bytes);
    must(pwrite(s->fd, s->page, s->bytes, at) == (ssize_t)s->bytes, "cannot write");
    s->unsynced += s->bytes;
    if (s->unsynced < GROUP_BYTES) return;
    must(fdatasync(s->fd) == 0, "cannot sync");
    s->unsynced = 0;
}

static void plain_sync(setup *s) {
    must(fdatasync(s->fd) == 0, "cannot sync");
    s->unsynced = 0;
}

static void plain_read(setup *s, uint64_t n) {
    must(pread(s->fd, s->to, s->bytes, (off_t)(n % s->pages * s->bytes)) == (ssize_t)s->bytes, "cannot read");
}

static void plain_close(setup *s) { (void)close(s->fd); }

/* -- LMDB: pages as values ----------------------------------------------------------- */

static void lmdb_open(setup *s) {
    MDB_txn *txn;
    must(mdb_env_create(&s->env) == 0 && mdb_env_set_mapsize(s->env, (s->pages + 64) * (s->bytes + 8192) * 2) == 0 &&
             mdb_env_open(s->env, s->dir, MDB_NOSYNC, 0600) == 0,
         "cannot open LMDB");
    must(mdb_txn_begin(s->env, NULL, 0, &txn) == 0 && mdb_dbi_open(txn, NULL, 0, &s->dbi) == 0 &&
             mdb_txn_commit(txn) == 0,
         "cannot open LMDB's table");
}

static void lmdb_write(setup *s, uint64_t n) {
    MDB_txn *txn;
    lar_digest key = key_of(n);
    MDB_val k = {sizeof key, key.bytes}, v = {s->bytes, s->page};
    must(mdb_txn_begin(s->env, NULL, 0, &txn) == 0 && mdb_put(txn, s->dbi, &k, &v, 0) == 0 && mdb_txn_commit(txn) == 0,
         "LMDB cannot write");
    s->unsynced += s->bytes;
    if (s->unsynced < GROUP_BYTES) return;
    must(mdb_env_sync(s->env, 1) == 0, "LMDB cannot sync");
    s->unsynced = 0;
}

static void lmdb_sync(setup *s) {
    must(mdb_env_sync(s->env, 1) == 0, "LMDB cannot sync");
    s->unsynced = 0;
}

static void lmdb_read(setup *s, uint64_t n) {
    MDB_txn *txn;
    lar_digest key = key_of(n);
    MDB_val k = {sizeof key, key.bytes}, v;
    must(mdb_txn_begin(s->env, NULL, MDB_RDONLY, &txn) == 0 && mdb_get(txn, s->dbi, &k, &v) == 0, "LMDB cannot read");
    memcpy(s->to, v.mv_data, v.mv_size);
    mdb_txn_abort(txn);
}

static void lmdb_drop(setup *s, uint64_t n) {
    MDB_txn *txn;
    lar_digest key = key_of(n);
    MDB_val k = {sizeof key, key.bytes};
    must(mdb_txn_begin(s->env, NULL, 0, &txn) == 0 && mdb_del(txn, s->dbi, &k, NULL) == 0 && mdb_txn_commit(txn) == 0,
         "LMDB cannot delete");
}

static void lmdb_close(setup *s) { mdb_env_close(s->env); }

/* -- segments ------------------------------------------------------------------------ */

static void segments_open(setup *s) {
    lar_diag d = {0};
    lar_store_options so = {.dir = s->dir};
    /* room for what lies beside the pages that count: records' heads, one file that is being emptied */
    uint64_t all = s->pages * (s->bytes + 8192);
    lar_page_segments_options po = {.bytes_max = all + all / 4, .segment_bytes = all / 8};
    must(lar_store_open(&so, &s->store, &d) == LAR_OK, d.text);
    must(lar_page_segments_open(s->store, &po, &s->segments, &d) == LAR_OK, d.text);
}

/* The ring takes 64 MiB faster than any disk: whoever writes more waits, here as in a shutdown. */
static void segments_write(setup *s, uint64_t n) {
    lar_digest key = key_of(n);
    struct timespec pause = {.tv_nsec = 200000};
    while (lar_page_segments_write(s->segments, &key, s->page, s->bytes)) (void)nanosleep(&pause, NULL);
}

static void segments_sync(setup *s) { lar_page_segments_flush(s->segments); }

static void segments_read(setup *s, uint64_t n) {
    lar_digest key = key_of(n);
    must(lar_page_segments_read(s->segments, &key, s->to, s->bytes) == LAR_OK, "a page is not there");
}

static void segments_close(setup *s) {
    lar_page_segments_close(s->segments);
    lar_store_close(s->store);
}

/* -- measuring ----------------------------------------------------------------------- */

typedef enum phase { WRITE, COLD, WARM, CHURN, PHASES } phase;
static const char *const phase_names[PHASES] = {"write", "read cold", "read warm", "churn"};

typedef struct figures {
    double mb_s, cpu_ms, longest_ms;
} figures;

static double cpu_now(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Every file out of the kernel's cache. */
static void forget_cache(const char *dir) {
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        char path[2 * PATH_BYTES];
        struct stat st;
        if (e->d_name[0] == '.') continue;
        (void)snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode)) forget_cache(path);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) continue;
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        (void)close(fd);
    }
    if (d) (void)closedir(d);
}

static void remove_all(const char *dir) {
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        char path[2 * PATH_BYTES];
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        (void)snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (unlink(path) != 0) remove_all(path);
    }
    if (d) (void)closedir(d);
    (void)rmdir(dir);
}

static figures run_phase(setup *s, const way *w, phase what, uint64_t round) {
    figures f = {0};
    uint64_t x = round * 77 + 5;
    double cpu = cpu_now();
    uint64_t start = lar_clock_mono_ns();
    for (uint64_t i = 0; i < s->pages; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        uint64_t n = what == CHURN ? s->pages + i : i, before = lar_clock_mono_ns();
        memcpy(s->page, &n, sizeof n);
        if (what == CHURN && w->drop) w->drop(s, i);
        if (what == WRITE || what == CHURN) w->write(s, n);
        else w->read(s, n = (x >> 33) % s->pages);
        if (what == COLD || what == WARM) must(memcmp(s->to, &n, sizeof n) == 0, "a page is another's");
        double ms = (double)(lar_clock_mono_ns() - before) / 1e6;
        if (ms > f.longest_ms) f.longest_ms = ms;
    }
    if (what == WRITE || what == CHURN) w->sync(s);
    f.mb_s = (double)(s->pages * s->bytes) / ((double)(lar_clock_mono_ns() - start) / 1e9) / 1e6;
    f.cpu_ms = (cpu_now() - cpu) / (double)s->pages;
    return f;
}

static void run_way(setup *s, const way *w, const char *base, uint64_t round, figures out[PHASES]) {
    (void)snprintf(s->dir, sizeof s->dir, "%.400s/page-bench-%s", base, w->name);
    remove_all(s->dir);
    must(mkdir(s->dir, 0700) == 0, "cannot make a folder");
    s->unsynced = 0;
    w->open(s);
    out[WRITE] = run_phase(s, w, WRITE, round);
    w->close(s); /* a mapped file stays in the cache */
    forget_cache(s->dir);
    w->open(s);
    out[COLD] = run_phase(s, w, COLD, round);
    out[WARM] = run_phase(s, w, WARM, round);
    out[CHURN] = run_phase(s, w, CHURN, round);
    w->close(s);
    remove_all(s->dir);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *list, uint64_t count) {
    qsort(list, count, sizeof *list, ascending);
    return list[count / 2];
}

static const way ways[] = {
    {"plain", plain_open, plain_write, plain_sync, plain_read, NULL, plain_close},
    {"lmdb", lmdb_open, lmdb_write, lmdb_sync, lmdb_read, lmdb_drop, lmdb_close},
    {"segments", segments_open, segments_write, segments_sync, segments_read, NULL, segments_close},
};
enum { WAYS = sizeof ways / sizeof *ways };

static void print_all(figures all[][WAYS][PHASES], uint64_t rounds) {
    (void)printf("phase,way,MB_s,cpu_ms_page,longest_ms\n");
    for (int p = 0; p < PHASES; p++) {
        for (int w = 0; w < WAYS; w++) {
            double mb[ROUNDS_MOST], cpu[ROUNDS_MOST], longest[ROUNDS_MOST];
            for (uint64_t r = 0; r < rounds; r++) {
                mb[r] = all[r][w][p].mb_s;
                cpu[r] = all[r][w][p].cpu_ms;
                longest[r] = all[r][w][p].longest_ms;
            }
            (void)printf("%s,%s,%.0f,%.3f,%.1f\n", phase_names[p], ways[w].name, median(mb, rounds),
                         median(cpu, rounds), median(longest, rounds));
        }
    }
}

int main(int argc, char **argv) {
    static figures all[ROUNDS_MOST][WAYS][PHASES];
    setup s = {.pages = 256, .bytes = 1133568};
    uint64_t rounds = 3;
    const char *base = ".";
    for (int i = 1; i < argc; i++) {
        uint64_t *number = !strcmp(argv[i], "--pages")    ? &s.pages
                           : !strcmp(argv[i], "--bytes")  ? &s.bytes
                           : !strcmp(argv[i], "--rounds") ? &rounds
                                                          : NULL;
        if (number && i + 1 < argc) *number = strtoull(argv[++i], NULL, 10);
        else base = argv[i];
    }
    must(s.pages >= 32 && s.bytes >= 4096 && rounds && rounds <= ROUNDS_MOST, "32 pages of 4096 bytes at least");
    s.page = malloc(s.bytes);
    s.to = malloc(s.bytes);
    must(s.page && s.to, "out of memory");
    uint64_t x = 1;
    for (uint64_t i = 0; i < s.bytes; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        s.page[i] = (uint8_t)(x >> 56);
    }
    for (uint64_t r = 0; r < rounds; r++) {
        for (uint64_t w = 0; w < WAYS; w++) run_way(&s, &ways[(w + r) % WAYS], base, r, all[r][(w + r) % WAYS]);
    }
    print_all(all, rounds);
    free(s.page);
    free(s.to);
    return 0;
}
