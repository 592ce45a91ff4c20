/* Answers that are held to a beginning: which tokens may come, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit_engine/schedule/stage.h"

static stage_request request;
static job_ear ear;

/* Two bytes to begin with: one token of both, or one of the first and then one of those that begin with the second. */
static const uint32_t opening_ends[] = {2, 5}, opening_ids[] = {3, 7, 5, 9, 11}, opening_bytes[] = {2, 1, 1, 4, 1};

static void answers_begin_as_they_should(void **state) {
    (void)state;
    stage g = {0};
    lar_diag d = {.text = ""};
    uint32_t row[2] = {0};
    stage_open(&g);
    for (uint32_t i = 0; i < 40; i++) {
        memset(&ear, 0, sizeof ear);
        stage_request_make(&request, i, 40, 6);
        request.r.samples = 3;
        request.r.opening = (lar_job_opening){2, opening_ends, opening_ids, opening_bytes};
        stage_submit(&g, &request, &ear);
        request.r.opening.ids = NULL; /* they were copied */
        stage_play(&g);
        stage_check_end(&ear, LAR_OK);
        for (uint32_t n = 0; n < 3; n++) {
            const uint32_t *ids = ear.ids[n];
            assert_int_equal(ear.counts[n], 6);
            assert_true(ids[0] == 3 || ids[0] == 7);
            row[ids[0] == 7]++;
            if (ids[0] == 7) assert_true(ids[1] == 5 || ids[1] == 9 || ids[1] == 11);
        }
    }
    assert_true(row[0] && row[1]);
    lar_job_request *r = &request.r;
    r->opening = (lar_job_opening){2, opening_ends, opening_ids, opening_bytes};
    r->ends = opening_ids + 3, r->end_count = 1;
    assert_int_equal(stage_try(&g, &request, &ear, &d), LAR_INVALID);
    static const uint32_t gap[] = {2, 2}, far_away[] = {UINT32_MAX - 1}, one[] = {1};
    r->end_count = 0;
    r->opening.ends = gap;
    assert_int_equal(stage_try(&g, &request, &ear, &d), LAR_INVALID);
    assert_non_null(strstr(d.text, "without a token at byte 1"));
    r->opening = (lar_job_opening){1, one, far_away, one};
    assert_int_equal(stage_try(&g, &request, &ear, &d), LAR_INVALID);
    r->opening = (lar_job_opening){LAR_JOB_OPENING_BYTES_MAX + 1, one, one, one};
    assert_int_equal(stage_try(&g, &request, &ear, &d), LAR_INVALID);
    stage_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers_begin_as_they_should)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
