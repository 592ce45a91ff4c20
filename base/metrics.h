/* Counters, gauges and histograms, one row each in metrics.def; Prometheus text on demand.
 * Adding is one relaxed atomic operation; any thread. */
#ifndef LARDER_BASE_METRICS_H
#define LARDER_BASE_METRICS_H

#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

typedef enum lar_metric {
#define LAR_METRIC(name, kind, text) LAR_METRIC_##name,
#include "base/metrics.def"
#undef LAR_METRIC
    LAR_METRIC_COUNT
} lar_metric;

typedef struct lar_metrics lar_metrics;

lar_metrics *lar_metrics_new(void); /* heap; aborts when out of memory (start-up only) */
void lar_metrics_free(lar_metrics *m);

/* `m` may be NULL everywhere below (nothing is counted). */
void lar_metrics_add(lar_metrics *m, lar_metric which, int64_t n);       /* COUNTER n >= 0, GAUGE any */
void lar_metrics_set(lar_metrics *m, lar_metric which, int64_t v);       /* GAUGE */
void lar_metrics_observe(lar_metrics *m, lar_metric which, uint64_t us); /* HISTOGRAM of microseconds */
int64_t lar_metrics_get(const lar_metrics *m, lar_metric which);         /* COUNTER, GAUGE; HISTOGRAM: count */

/* Appends the Prometheus text exposition format, version 0.0.4: larder_<name in lower case>. */
LAR_MUST_USE lar_error lar_metrics_text(const lar_metrics *m, lar_buf *out);

#endif
