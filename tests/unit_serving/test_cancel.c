/* A client that leaves while another thread tells tokens: at every moment, and never a byte behind it. For
 * ThreadSanitizer, too. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit_serving/serving_box.h"

enum { ROUNDS = 300, TOKENS = 40 };

static atomic_uint told; /* tokens of this round */

static void *play(void *unused) {
    (void)unused;
    bool more = true;
    box_begin(0, 0);
    for (int i = 0; i < TOKENS && more; i++) {
        more = box_tell(0, 0, "Hello");
        atomic_fetch_add(&told, 1);
    }
    box_sample_end(0, 0, more ? LAR_JOB_LENGTH : LAR_JOB_ENDED);
    box_end(0, more ? LAR_OK : LAR_CLIENT_GONE);
    return NULL;
}

static void test_cancel_at_every_moment(void **state) {
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    uint32_t cut = 0;
    (void)state;
    for (unsigned round = 0; round < ROUNDS; round++) {
        box_client c;
        pthread_t thread;
        box_ask(s, LAR_SERVING_CHAT,
                round % 2 ? "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}"
                          : "{\"model\":\"tiny\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}",
                &c);
        atomic_store(&told, 0);
        assert_int_equal(pthread_create(&thread, NULL, play, NULL), 0);
        while (atomic_load(&told) < round % TOKENS) (void)sched_yield();
        lar_answer_cancel(c.answer);
        lar_answer_cancel(c.answer);
        uint32_t events = c.events, heads = c.heads;
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(c.ends, 1);
        assert_int_equal(c.events, events);
        assert_int_equal(c.heads, heads);
        assert_true(c.end.error == LAR_CLIENT_GONE || (c.end.error == LAR_OK && box_jobs.jobs[0].told[0] == TOKENS));
        cut += c.end.error == LAR_CLIENT_GONE;
        box_clear(&c);
    }
    assert_true(cut > 0); /* the first rounds cancel before any token */
    lar_serving_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cancel_at_every_moment)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
