/* Plans of scratch memory: buffers that live at the same time lie apart, others share, and little is wasted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "engine/compute/scratch.h"

static bool overlap(const lar_scratch_buffer *a, const lar_scratch_buffer *b) {
    bool in_time = a->first <= b->last && b->first <= a->last;
    return in_time && a->bytes && b->bytes && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static void neighbours_share(void **state) {
    (void)state;
    lar_scratch_buffer b[] = {{"through", 100, 0, 9, 0},
                              {"early", 1000, 0, 2, 0},
                              {"late", 900, 3, 9, 0},
                              {"later", 64, 5, 6, 0},
                              {"none", 0, 0, 9, 0}};
    lar_scratch_report r;
    assert_int_equal(lar_scratch_plan(b, 5, &r, NULL), LAR_OK);
    assert_int_equal(r.peak, 1024 + 128);
    assert_int_equal(r.bytes, r.peak);
    assert_int_equal(r.sum, 1024 + 128 + 960 + 64);
    assert_int_equal(b[1].offset, b[2].offset);
}

static uint64_t next(uint64_t *x) {
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return *x >> 33;
}

static void what_lives_together_lies_apart(void **state) {
    (void)state;
    uint64_t seed = 1, bytes = 0, peak = 0;
    for (int round = 0; round < 2000; round++) {
        lar_scratch_buffer b[LAR_SCRATCH_BUFFERS_MAX];
        uint32_t count = 1 + (uint32_t)(next(&seed) % LAR_SCRATCH_BUFFERS_MAX);
        lar_scratch_report r;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t first = (uint32_t)(next(&seed) % 12);
            b[i] = (lar_scratch_buffer){"b", next(&seed) % 10000, first, first + (uint32_t)(next(&seed) % 6), 0};
        }
        assert_int_equal(lar_scratch_plan(b, count, &r, NULL), LAR_OK);
        assert_true(r.peak <= r.bytes && r.bytes <= r.sum);
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(b[i].offset % LAR_SCRATCH_ALIGN, 0);
            assert_true(b[i].offset + b[i].bytes <= r.bytes);
            for (uint32_t k = 0; k < i; k++) assert_false(overlap(&b[i], &b[k]));
        }
        bytes += r.bytes, peak += r.peak;
    }
    print_message("%.1f %% over the peak, in the mean\n", 100.0 * (double)(bytes - peak) / (double)peak);
    assert_true(bytes < peak + peak / 8);
}

static void too_much_is_refused(void **state) {
    (void)state;
    lar_scratch_buffer b[LAR_SCRATCH_BUFFERS_MAX + 1] = {{"large", UINT64_MAX, 0, 0, 0}};
    lar_scratch_report r;
    lar_diag d = {0};
    assert_int_equal(lar_scratch_plan(b, LAR_SCRATCH_BUFFERS_MAX + 1, &r, &d), LAR_LIMIT);
    assert_int_equal(lar_scratch_plan(b, 1, &r, &d), LAR_LIMIT);
    assert_non_null(strstr(d.text, "large"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_share),
        cmocka_unit_test(what_lives_together_lies_apart),
        cmocka_unit_test(too_much_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
