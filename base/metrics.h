/* Counters (some by the values of one label), gauges and histograms, one row each in metrics.def; Prometheus text on
 * demand.
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

/* Counters with a label; the values of a label are numbers below LAR_METRIC_LABELS_MAX. */
typedef enum lar_metric_by {
#define LAR_METRIC(name, kind, text)
#define LAR_METRIC_BY(name, label, text) LAR_METRIC_BY_##name,
#include "base/metrics.def"
#undef LAR_METRIC
    LAR_METRIC_BY_COUNT
} lar_metric_by;
enum { LAR_METRIC_LABELS_MAX = 64 };

typedef struct lar_metrics lar_metrics;

lar_metrics *lar_metrics_new(void); /* heap; aborts when out of memory (start-up only) */
void lar_metrics_free(lar_metrics *m);

/* `m` may be NULL everywhere below (nothing is counted). */
void lar_metrics_add(lar_metrics *m, lar_metric which, int64_t n);       /* COUNTER n >= 0, GAUGE any */
void lar_metrics_set(lar_metrics *m, lar_metric which, int64_t v);       /* GAUGE; COUNTER that is counted elsewhere */
void lar_metrics_observe(lar_metrics *m, lar_metric which, uint64_t us); /* HISTOGRAM of microseconds */
int64_t lar_metrics_get(const lar_metrics *m, lar_metric which);         /* COUNTER, GAUGE; HISTOGRAM: count */

/* Names one value of a label, for every counter that has it: static text of letters, digits, - and _. At start, before
 * other threads know of `m`; a value without a name is not exported. */
void lar_metrics_label(lar_metrics *m, const char *label, uint32_t value, const char *name);
void lar_metrics_add_by(lar_metrics *m, lar_metric_by which, uint32_t value, int64_t n); /* n >= 0 */
int64_t lar_metrics_get_by(const lar_metrics *m, lar_metric_by which, uint32_t value);

/* Appends the Prometheus text exposition format, version 0.0.4: larder_<name in lower case>. */
LAR_MUST_USE lar_error lar_metrics_text(const lar_metrics *m, lar_buf *out);

#endif
