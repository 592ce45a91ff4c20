/* Metrics as a scraper reads them. */
#include <pthread.h>

#include "base/metrics.h"
#include "tests/unit_base/expect.h"

static char *text_of(const lar_metrics *m) {
    lar_buf b;
    lar_buf_init(&b, 1 << 20);
    assert_ok(lar_metrics_text(m, &b));
    assert_ok(lar_buf_add(&b, "", 1));
    char *copy = strdup(b.ptr);
    lar_buf_release(&b);
    return copy;
}

static void assert_has_line(const char *text, const char *line) {
    size_t n = strlen(line);
    for (const char *at = text; (at = strstr(at, line)); at++)
        if ((at == text || at[-1] == '\n') && at[n] == '\n') return;
    fail_msg("no line \"%s\" in:\n%s", line, text);
}

static void counters_and_gauges_are_exported(void **state) {
    (void)state;
    lar_metrics *m = lar_metrics_new();
    lar_metrics_add(m, LAR_METRIC_REQUESTS_TOTAL, 3);
    lar_metrics_add(m, LAR_METRIC_REQUESTS_TOTAL, 4);
    lar_metrics_add(m, LAR_METRIC_REQUESTS_ACTIVE, 2);
    lar_metrics_add(m, LAR_METRIC_REQUESTS_ACTIVE, -5);
    lar_metrics_set(m, LAR_METRIC_BUFFERED_BYTES, 99);
    assert_int_equal(lar_metrics_get(m, LAR_METRIC_REQUESTS_TOTAL), 7);
    assert_int_equal(lar_metrics_get(m, LAR_METRIC_REQUESTS_ACTIVE), -3);
    char *text = text_of(m);
    assert_has_line(text, "# HELP larder_requests_total Requests that ended, however they ended");
    assert_has_line(text, "# TYPE larder_requests_total counter");
    assert_has_line(text, "larder_requests_total 7");
    assert_has_line(text, "# TYPE larder_requests_active gauge");
    assert_has_line(text, "larder_requests_active -3");
    assert_has_line(text, "larder_buffered_bytes 99");
    assert_has_line(text, "larder_store_errors_total 0");
    free(text);
    lar_metrics_free(m);
}

static void histograms_are_cumulative_and_in_seconds(void **state) {
    (void)state;
    lar_metrics *m = lar_metrics_new();
    lar_metrics_observe(m, LAR_METRIC_REQUEST_SECONDS, 0);
    lar_metrics_observe(m, LAR_METRIC_REQUEST_SECONDS, 1000); /* a bound belongs to its own bucket */
    lar_metrics_observe(m, LAR_METRIC_REQUEST_SECONDS, 1001);
    lar_metrics_observe(m, LAR_METRIC_REQUEST_SECONDS, 2500000);
    lar_metrics_observe(m, LAR_METRIC_REQUEST_SECONDS, 7200000000);
    assert_int_equal(lar_metrics_get(m, LAR_METRIC_REQUEST_SECONDS), 5);
    char *text = text_of(m);
    assert_has_line(text, "# TYPE larder_request_seconds histogram");
    assert_has_line(text, "larder_request_seconds_bucket{le=\"0.00005\"} 1");
    assert_has_line(text, "larder_request_seconds_bucket{le=\"0.0005\"} 1");
    assert_has_line(text, "larder_request_seconds_bucket{le=\"0.001\"} 2");
    assert_has_line(text, "larder_request_seconds_bucket{le=\"0.0025\"} 3");
    assert_has_line(text, "larder_request_seconds_bucket{le=\"1\"} 3");
    assert_has_line(text, "larder_request_seconds_bucket{le=\"2.5\"} 4");
    assert_has_line(text, "larder_request_seconds_bucket{le=\"10\"} 4");
    assert_has_line(text, "larder_request_seconds_bucket{le=\"600\"} 4");
    assert_has_line(text, "larder_request_seconds_bucket{le=\"+Inf\"} 5");
    assert_has_line(text, "larder_request_seconds_sum 7202.502001");
    assert_has_line(text, "larder_request_seconds_count 5");
    assert_has_line(text, "larder_first_byte_seconds_bucket{le=\"+Inf\"} 0");
    assert_has_line(text, "larder_first_byte_seconds_sum 0");
    free(text);
    lar_metrics_free(m);
}

/* Every line of the format: a comment of HELP or TYPE, or a sample of the metric announced last. No help
 * text needs an escape, and every name keeps the conventions for its kind. */
static void the_whole_text_follows_the_format(void **state) {
    (void)state;
    static const struct {
        const char *name, *kind, *help;
    } rows[] = {
#define LAR_METRIC(name, kind, text) {#name, #kind, text},
#define LAR_METRIC_BY(name, label, text) {#name, "COUNTER", text},
#include "base/metrics.def"
#undef LAR_METRIC
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_null(strpbrk(rows[i].help, "\\\n\r"));
        assert_int_equal(strspn(rows[i].name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_"), strlen(rows[i].name));
        const char *tail = strrchr(rows[i].name, '_');
        assert_true(strcmp(rows[i].kind, "COUNTER") != 0 || (tail && strcmp(tail, "_TOTAL") == 0));
        assert_true(strcmp(rows[i].kind, "HISTOGRAM") != 0 || (tail && strcmp(tail, "_SECONDS") == 0));
    }
    lar_metrics *m = lar_metrics_new();
    for (uint32_t v = 0; v < 3; v++) lar_metrics_label(m, "rule", v, v ? "LR002" : "LR001");
    char *text = text_of(m), *at = text, current[100] = "";
    size_t announced = 0;
    assert_int_equal(text[strlen(text) - 1], '\n');
    for (char *line = strsep(&at, "\n"); line && *line; line = strsep(&at, "\n")) {
        if (strncmp(line, "# HELP ", 7) == 0) {
            (void)snprintf(current, sizeof current, "%.*s", (int)strcspn(line + 7, " "), line + 7);
            announced++;
        } else if (strncmp(line, "# TYPE ", 7) == 0) {
            assert_memory_equal(line + 7, current, strlen(current));
        } else {
            assert_memory_equal(line, current, strlen(current));
            char *end;
            (void)strtod(strrchr(line, ' '), &end);
            assert_int_equal(*end, 0);
        }
    }
    assert_int_equal(announced, LAR_METRIC_COUNT + LAR_METRIC_BY_COUNT);
    free(text);
    lar_metrics_free(m);
}

static void labels_part_a_counter(void **state) {
    (void)state;
    lar_metrics *m = lar_metrics_new();
    lar_metrics_label(m, "rule", 0, "LR001");
    lar_metrics_label(m, "rule", LAR_METRIC_LABELS_MAX - 1, "LR107");
    lar_metrics_label(m, "colour", 5, "red"); /* a label that no counter has */
    lar_metrics_add_by(m, LAR_METRIC_BY_RULE_EDITS_TOTAL, 0, 3);
    lar_metrics_add_by(m, LAR_METRIC_BY_RULE_EDITS_TOTAL, 0, 4);
    lar_metrics_add_by(m, LAR_METRIC_BY_RULE_EDITS_TOTAL, 5, 1);
    lar_metrics_add_by(NULL, LAR_METRIC_BY_RULE_EDITS_TOTAL, 0, 1);
    assert_int_equal(lar_metrics_get_by(m, LAR_METRIC_BY_RULE_EDITS_TOTAL, 0), 7);
    assert_int_equal(lar_metrics_get_by(m, LAR_METRIC_BY_RULE_FINDINGS_TOTAL, 0), 0);
    char *text = text_of(m);
    assert_has_line(text, "# TYPE larder_rule_edits_total counter");
    assert_has_line(text, "larder_rule_edits_total{rule=\"LR001\"} 7");
    assert_has_line(text, "larder_rule_edits_total{rule=\"LR107\"} 0");
    assert_null(strstr(text, "\"red\""));
    free(text);
    lar_metrics_free(m);
}

static void *add_many(void *m) {
    for (int i = 0; i < 10000; i++) {
        lar_metrics_add(m, LAR_METRIC_REQUESTS_TOTAL, 1);
        lar_metrics_observe(m, LAR_METRIC_CANON_SECONDS, (uint64_t)i);
    }
    return NULL;
}

static void threads_lose_nothing(void **state) {
    (void)state;
    lar_metrics *m = lar_metrics_new();
    pthread_t t[4];
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&t[i], NULL, add_many, m), 0);
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_join(t[i], NULL), 0);
    assert_int_equal(lar_metrics_get(m, LAR_METRIC_REQUESTS_TOTAL), 40000);
    assert_int_equal(lar_metrics_get(m, LAR_METRIC_CANON_SECONDS), 40000);
    lar_metrics_free(m);
}

static void no_metrics_is_fine(void **state) {
    (void)state;
    lar_buf b;
    lar_buf_init(&b, 100);
    lar_metrics_add(NULL, LAR_METRIC_REQUESTS_TOTAL, 1);
    lar_metrics_set(NULL, LAR_METRIC_REQUESTS_ACTIVE, 1);
    lar_metrics_observe(NULL, LAR_METRIC_CANON_SECONDS, 1);
    assert_int_equal(lar_metrics_get(NULL, LAR_METRIC_REQUESTS_TOTAL), 0);
    assert_ok(lar_metrics_text(NULL, &b));
    assert_int_equal(b.len, 0);
    lar_metrics *m = lar_metrics_new();
    assert_error(lar_metrics_text(m, &b), LIMIT);
    lar_metrics_free(m);
    lar_buf_release(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counters_and_gauges_are_exported),
        cmocka_unit_test(histograms_are_cumulative_and_in_seconds),
        cmocka_unit_test(the_whole_text_follows_the_format),
        cmocka_unit_test(labels_part_a_counter),
        cmocka_unit_test(threads_lose_nothing),
        cmocka_unit_test(no_metrics_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
