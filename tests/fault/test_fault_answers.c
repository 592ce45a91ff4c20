/* Every allocation fails once while answers are kept and shared: what cannot be kept is a miss, a request that cannot
 * lead goes alone, nobody waits for ever, nothing leaks, and with memory again answers are kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gateway/answers/answers.h"
#include "tests/fault/fail_alloc.h"

static void ring(void *bell) { ++*(unsigned *)bell; }

/* One request leads, one waits, the answer is kept; then the table grows past its first size. True: all of it worked.
 * */
static bool use(lar_answers *a, unsigned first) {
    unsigned rung = 0;
    bool all = true;
    lar_answers_door door = {.ring = ring, .bell = &rung};
    for (unsigned n = first; n < first + 1100; n++) {
        lar_answers_seat leads = {.door = &door}, waits = {.door = &door};
        lar_digest key = lar_digest_of(lar_slice_of((const char *)&n, sizeof n));
        lar_answers_question q = {.key = &key, .share = true};
        lar_kept *k = NULL;
        lar_answers_said said = lar_answers_ask(a, &leads, &q, &k);
        assert_true(!k && (said == LAR_ANSWERS_LEADS || said == LAR_ANSWERS_ALONE));
        lar_answers_said then = lar_answers_ask(a, &waits, &q, &k);
        all = all && said == LAR_ANSWERS_LEADS && then == LAR_ANSWERS_WAITS;
        lar_kept *mine = lar_kept_new(LAR_SLICE("head"), LAR_SLICE("body"));
        if (mine) {
            mine->key = key;
            mine->expires_ms = UINT64_MAX;
            lar_answers_keep(a, &leads, mine);
        } else {
            lar_answers_end(a, &leads, LAR_ANSWERS_UNFIT);
        }
        if (then == LAR_ANSWERS_WAITS) {
            assert_ptr_equal(lar_answers_called(a, &door, &k), &waits);
            assert_ptr_equal(k, mine);
            lar_kept_unref(k);
        } else if (then == LAR_ANSWERS_LEADS) {
            lar_answers_end(a, &waits, LAR_ANSWERS_LEFT);
        }
        lar_kept_unref(mine);
        k = NULL;
        said = lar_answers_ask(a, &leads, &q, &k);
        all = all && mine && k == mine;
        if (said == LAR_ANSWERS_LEADS) lar_answers_end(a, &leads, LAR_ANSWERS_LEFT);
        lar_kept_unref(k);
    }
    return all;
}

static void every_allocation_fails_once(void **state) {
    (void)state;
    unsigned n = 1, failed = 0;
    for (;; n = n < 20 ? n + 1 : n + 97) { /* the first ones each, then one of a round in turn */
        fail_alloc_at(n);
        lar_answers *a = lar_answers_new(NULL, 1 << 20);
        if (a) {
            (void)use(a, 0);
            lar_answers_free(a);
        }
        long live = fail_alloc_live();
        bool did = fail_alloc_end();
        assert_int_equal(live, 0);
        failed += did;
        if (!did) break;
    }
    assert_true(failed > 30);
    lar_answers *a = lar_answers_new(NULL, 1 << 20);
    fail_alloc_at(2);
    assert_false(use(a, 0));
    assert_true(fail_alloc_end());
    assert_true(use(a, 5000));
    lar_answers_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_fails_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
