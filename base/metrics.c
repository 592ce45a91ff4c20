/* The numbers behind metrics.def and their Prometheus text.
 * Flow: everybody adds; admin asks for the text. Thread: any, at once; relaxed atomics, so that a
 * scrape may see a request's counters a moment apart. Never blocks.
 * Invariants: 1. a histogram's _count is its +Inf bucket, both from the same reading. 2. each counter
 * has a cache line of its own: loops on different cores do not slow each other down.
 * Memory: one block for the life of the process. */
#include "base/metrics.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"

typedef enum kind { COUNTER, GAUGE, HISTOGRAM } kind;

typedef struct row {
    const char *name; /* upper case, as in metrics.def */
    kind kind;
    const char *help; /* no backslash, no line break: the text format would need escapes */
} row;

static const row rows[LAR_METRIC_COUNT] = {
#define LAR_METRIC(name, kind, text) {#name, kind, text},
#include "base/metrics.def"
#undef LAR_METRIC
};

static const struct {
    const char *name, *label, *help;
} by_rows[LAR_METRIC_BY_COUNT] = {
#define LAR_METRIC(name, kind, text)
#define LAR_METRIC_BY(name, label, text) {#name, #label, text},
#include "base/metrics.def"
#undef LAR_METRIC
};

/* Upper bounds in microseconds, inclusive; from a canonicalised body to a long answer. */
static const uint64_t bounds_us[] = {50,       100,      250,      500,       1000,      2500,     5000,    10000,
                                     25000,    50000,    100000,   250000,    500000,    1000000,  2500000, 5000000,
                                     10000000, 30000000, 60000000, 120000000, 300000000, 600000000};
enum { BOUNDS = sizeof bounds_us / sizeof bounds_us[0] };

typedef struct cell {
    _Alignas(64) _Atomic int64_t value;   /* HISTOGRAM: the sum, in microseconds */
    _Atomic uint64_t buckets[BOUNDS + 1]; /* HISTOGRAM: observations in (bound before, bound]; last: above all */
} cell;

/* Values of a label are counted a few times a request at most: they share cache lines. */
typedef struct by_cells {
    _Alignas(64) _Atomic int64_t values[LAR_METRIC_LABELS_MAX];
    const char *names[LAR_METRIC_LABELS_MAX]; /* NULL: not exported */
} by_cells;

struct lar_metrics {
    cell cells[LAR_METRIC_COUNT];
    by_cells by[LAR_METRIC_BY_COUNT];
};

lar_metrics *lar_metrics_new(void) {
    lar_metrics *m = aligned_alloc(_Alignof(lar_metrics), sizeof *m);
    LAR_ASSERT(m != NULL);
    for (int i = 0; i < LAR_METRIC_COUNT; i++) {
        atomic_init(&m->cells[i].value, 0);
        for (int b = 0; b <= BOUNDS; b++) atomic_init(&m->cells[i].buckets[b], 0);
    }
    for (int i = 0; i < LAR_METRIC_BY_COUNT; i++) {
        for (int v = 0; v < LAR_METRIC_LABELS_MAX; v++) {
            atomic_init(&m->by[i].values[v], 0);
            m->by[i].names[v] = NULL;
        }
    }
    return m;
}

void lar_metrics_free(lar_metrics *m) { free(m); }

void lar_metrics_add(lar_metrics *m, lar_metric which, int64_t n) {
    if (m) atomic_fetch_add_explicit(&m->cells[which].value, n, memory_order_relaxed);
}

void lar_metrics_set(lar_metrics *m, lar_metric which, int64_t v) {
    if (m) atomic_store_explicit(&m->cells[which].value, v, memory_order_relaxed);
}

void lar_metrics_observe(lar_metrics *m, lar_metric which, uint64_t us) {
    if (!m) return;
    int b = 0;
    while (b < BOUNDS && us > bounds_us[b]) b++;
    atomic_fetch_add_explicit(&m->cells[which].buckets[b], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&m->cells[which].value, (int64_t)us, memory_order_relaxed);
}

int64_t lar_metrics_get(const lar_metrics *m, lar_metric which) {
    if (!m) return 0;
    const cell *c = &m->cells[which];
    if (rows[which].kind != HISTOGRAM) return atomic_load_explicit(&c->value, memory_order_relaxed);
    uint64_t n = 0;
    for (int b = 0; b <= BOUNDS; b++) n += atomic_load_explicit(&c->buckets[b], memory_order_relaxed);
    return (int64_t)n;
}

void lar_metrics_label(lar_metrics *m, const char *label, uint32_t value, const char *name) {
    LAR_ASSERT(value < LAR_METRIC_LABELS_MAX);
    for (int i = 0; i < LAR_METRIC_BY_COUNT; i++) {
        if (strcmp(by_rows[i].label, label) == 0) m->by[i].names[value] = name;
    }
}

void lar_metrics_add_by(lar_metrics *m, lar_metric_by which, uint32_t value, int64_t n) {
    LAR_ASSERT(value < LAR_METRIC_LABELS_MAX);
    if (m) atomic_fetch_add_explicit(&m->by[which].values[value], n, memory_order_relaxed);
}

int64_t lar_metrics_get_by(const lar_metrics *m, lar_metric_by which, uint32_t value) {
    LAR_ASSERT(value < LAR_METRIC_LABELS_MAX);
    return m ? atomic_load_explicit(&m->by[which].values[value], memory_order_relaxed) : 0;
}

static void exported_name(const char *name, char out[64]) {
    size_t n = 0;
    for (; name[n] && n < 63; n++) {
        char c = name[n];
        out[n] = c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
    }
    out[n] = 0;
}

/* A count of microseconds as seconds, without the zeros at its end. */
static void seconds_text(uint64_t us, char out[32]) {
    int n = snprintf(out, 32, "%llu.%06llu", (unsigned long long)(us / 1000000), (unsigned long long)(us % 1000000));
    while (out[n - 1] == '0') out[--n] = 0;
    if (out[n - 1] == '.') out[--n] = 0;
}

static lar_error histogram_text(const cell *c, const char *name, lar_buf *out) {
    char seconds[32];
    uint64_t n = 0;
    lar_error e = LAR_OK;
    for (int b = 0; !e && b <= BOUNDS; b++) {
        n += atomic_load_explicit(&c->buckets[b], memory_order_relaxed);
        if (b < BOUNDS) seconds_text(bounds_us[b], seconds);
        e = lar_buf_printf(out, "larder_%s_bucket{le=\"%s\"} %llu\n", name, b < BOUNDS ? seconds : "+Inf",
                           (unsigned long long)n);
    }
    if (e) return e;
    seconds_text((uint64_t)atomic_load_explicit(&c->value, memory_order_relaxed), seconds);
    return lar_buf_printf(out, "larder_%s_sum %s\nlarder_%s_count %llu\n", name, seconds, name, (unsigned long long)n);
}

static lar_error by_text(const lar_metrics *m, int i, lar_buf *out) {
    char name[64];
    exported_name(by_rows[i].name, name);
    lar_error e = lar_buf_printf(out, "# HELP larder_%s %s\n# TYPE larder_%s counter\n", name, by_rows[i].help, name);
    for (int v = 0; !e && v < LAR_METRIC_LABELS_MAX; v++) {
        if (!m->by[i].names[v]) continue;
        e = lar_buf_printf(out, "larder_%s{%s=\"%s\"} %lld\n", name, by_rows[i].label, m->by[i].names[v],
                           (long long)atomic_load_explicit(&m->by[i].values[v], memory_order_relaxed));
    }
    return e;
}

lar_error lar_metrics_text(const lar_metrics *m, lar_buf *out) {
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    lar_error e = LAR_OK;
    for (int i = 0; m && !e && i < LAR_METRIC_COUNT; i++) {
        char name[64];
        exported_name(rows[i].name, name);
        e = lar_buf_printf(out, "# HELP larder_%s %s\n# TYPE larder_%s %s\n", name, rows[i].help, name,
                           kinds[rows[i].kind]);
        if (e) break;
        if (rows[i].kind == HISTOGRAM) e = histogram_text(&m->cells[i], name, out);
        else
            e = lar_buf_printf(out, "larder_%s %lld\n", name,
                               (long long)atomic_load_explicit(&m->cells[i].value, memory_order_relaxed));
    }
    for (int i = 0; m && !e && i < LAR_METRIC_BY_COUNT; i++) e = by_text(m, i, out);
    return e;
}
