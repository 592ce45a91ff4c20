/* What the store costs: CSV lines "what,value,unit". Numbers only compare within one run on a quiet machine.
 *     bench_store [DIR] */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/store.h"

static double cpu_us(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static lar_store *open_store(const char *dir, uint32_t queue) {
    lar_store *s;
    lar_diag d = {0};
    lar_store_options o = {.dir = dir, .queue_records_max = queue, .map_bytes_max = UINT64_C(4) << 30};
    if (lar_store_open(&o, &s, &d) == LAR_OK) return s;
    (void)fprintf(stderr, "%s\n", d.text);
    exit(1);
}

/* Fingerprints of a conversation of 22 messages; none where `places` is 0. */
static lar_slice chain_of(uint32_t places) {
    static uint8_t bytes[22 * LAR_JREC_CUT_BYTES];
    for (uint32_t i = 0; i < 22; i++) {
        uint8_t *p = bytes + i * LAR_JREC_CUT_BYTES;
        for (unsigned k = 0; k < 12; k++) p[k] = (uint8_t)(i * 31 + k * 7);
        p[13] = (uint8_t)(i + 1);
        p[16] = (uint8_t)(i + 1);
    }
    return lar_slice_of((const char *)bytes, places * (size_t)LAR_JREC_CUT_BYTES);
}

static lar_journal_record record_of(uint64_t n, uint32_t places) {
    lar_journal_record r = {.time_ms = lar_clock_wall_ms(),
                            .tenant = n % 5,
                            .status = 200,
                            .spelling = LAR_SPELLING_DEEPSEEK,
                            .ttft_us = 400000,
                            .total_us = 2000000,
                            .tokens = {20000, 19000, 1000, 0, 400, 100},
                            .raw = {20000, 19000, 1000, 0, 400, 100},
                            .turn = (uint32_t)(n % 30)};
    memcpy(r.model, "deepseek-v4-flash", 18);
    memcpy(r.route, "chat", 5);
    memcpy(r.upstream, "deepseek", 9);
    r.chain = chain_of(places);
    return r;
}

static void steady(const char *dir, uint64_t per_second, uint32_t places) {
    lar_store *s = open_store(dir, 0);
    double cpu = cpu_us();
    uint64_t start = lar_clock_mono_ns(), sent = 0, total = per_second * 5, callers_ns = 0;
    while (sent < total) {
        uint64_t due = (lar_clock_mono_ns() - start) * per_second / 1000000000u;
        uint64_t before = lar_clock_mono_ns();
        for (; sent < due && sent < total; sent++) {
            lar_journal_record r = record_of(sent, places);
            lar_store_journal(s, &r);
        }
        callers_ns += lar_clock_mono_ns() - before;
        struct timespec pause = {.tv_nsec = 5000000};
        (void)nanosleep(&pause, NULL);
    }
    lar_store_flush(s);
    (void)printf("journal at %" PRIu64 "/s of %" PRIu32 " places,%.2f,CPU us a record\n", per_second, places,
                 (cpu_us() - cpu) / (double)total);
    (void)printf("journal at %" PRIu64 "/s of %" PRIu32 " places,%.0f,ns a record for the caller\n", per_second, places,
                 (double)callers_ns / (double)total);
    lar_store_close(s);
}

static void saturated(const char *dir, uint32_t places) {
    enum { TOTAL = 1000000, GROUP = 50000 };
    lar_store *s = open_store(dir, 1 << 16);
    double cpu = cpu_us();
    uint64_t start = lar_clock_mono_ns();
    for (uint64_t n = 0; n < TOTAL; n++) {
        lar_journal_record r = record_of(n, places);
        lar_store_journal(s, &r);
        if (n % GROUP == GROUP - 1) lar_store_flush(s);
    }
    lar_store_flush(s);
    double seconds = (double)(lar_clock_mono_ns() - start) / 1e9;
    (void)printf("journal of %" PRIu32 " places saturated,%.0f,records a second\n", places, TOTAL / seconds);
    (void)printf("journal of %" PRIu32 " places saturated,%.2f,CPU us a record\n", places, (cpu_us() - cpu) / TOTAL);
    (void)printf("journal of %" PRIu32 " places saturated,%" PRIu64 ",records on disk\n", places,
                 lar_store_last_seq(s));
    lar_store_close(s);
}

static void get_all(lar_store *s, const char *what, uint64_t from, uint64_t keys, uint64_t rounds) {
    lar_buf b;
    uint64_t found = 0;
    lar_buf_init(&b, 65536);
    double start = cpu_us(); /* of the process: the writer sleeps meanwhile */
    for (uint64_t i = 0; i < rounds; i++) {
        uint64_t n = from + i * 7919 % keys;
        lar_hash k = lar_hash_of(lar_slice_of((const char *)&n, sizeof n));
        b.len = 0;
        found += lar_store_memory_get(s, &k, &b) == LAR_OK;
    }
    (void)printf("memory_get %s,%.0f,ns of CPU (%" PRIu64 " found)\n", what, (cpu_us() - start) * 1000 / (double)rounds,
                 found);
    lar_buf_release(&b);
}

static void memory(const char *dir) {
    enum { KEYS = 20000 };
    char value[400] = {0};
    lar_store *s = open_store(dir, 0);
    double start = cpu_us();
    for (uint64_t n = 0; n < KEYS; n++) {
        lar_hash k = lar_hash_of(lar_slice_of((const char *)&n, sizeof n));
        lar_store_memory_put(s, &k, lar_slice_of(value, sizeof value));
    }
    lar_store_flush(s);
    (void)printf("memory_put 400 bytes,%.2f,CPU us with its way to disk\n", (cpu_us() - start) / KEYS);
    get_all(s, "in memory, 20000 values", 0, KEYS, 1000000);
    get_all(s, "in memory, 500 values", 0, 500, 1000000);
    lar_store_close(s);
    s = open_store(dir, 0);
    get_all(s, "from the map the first time", 0, KEYS, KEYS);
    get_all(s, "the second time", 0, KEYS, 200000);
    get_all(s, "absent", 1u << 30, KEYS, 200000);
    lar_store_close(s);
}

int main(int argc, char **argv) {
    char own[] = "/tmp/larder-bench-XXXXXX";
    const char *dir = argc > 1 ? argv[1] : mkdtemp(own);
    if (!dir) return 2;
    (void)printf("what,value,unit\n");
    for (uint32_t places = 0; places <= 22; places += 22) {
        steady(dir, 5000, places);
        saturated(dir, places);
        struct rusage now;
        (void)getrusage(RUSAGE_SELF, &now);
        (void)printf("peak resident with %" PRIu32 " places,%ld,KiB\n", places, now.ru_maxrss);
    }
    memory(dir);
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    (void)printf("peak resident,%ld,KiB\n", u.ru_maxrss);
    if (argc > 1) return 0;
    const char *files[] = {"data.mdb", "lock.mdb", "writer.lock", "fingerprint.key"};
    char path[64];
    for (int i = 0; i < 4; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        (void)unlink(path);
    }
    (void)rmdir(dir);
    return 0;
}
