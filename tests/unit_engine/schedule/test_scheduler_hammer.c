/* Threads that submit and cancel on a model, as small as models go: two threads compute, four hammer, and what was not
 * cancelled has the bits of the same request alone. For ThreadSanitizer as much as for itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <pthread.h>

#include "base/ensure.h"
#include "tests/unit_engine/files/file_box.h"
#include "tests/unit_engine/files/model_maker.h"
#include "tests/unit_engine/schedule/job_ear.h"

enum { HANDS = 4, HELD = 5, ROUNDS = 2, PROMPT_MOST = 150, VOCAB = 60 };

static const model_shape shape = {.layers = 2,
                                  .dense_layers = 1,
                                  .hidden = 24,
                                  .heads = 2,
                                  .kv_rank = 16,
                                  .nope = 8,
                                  .rope = 4,
                                  .v_dim = 8,
                                  .dense_ff = 20,
                                  .expert_ff = 8,
                                  .experts = 4,
                                  .experts_used = 2,
                                  .shared = 1,
                                  .groups = 1,
                                  .groups_used = 1,
                                  .vocab = VOCAB,
                                  .context = 512,
                                  .expert_scale = 1,
                                  .eps = 1e-5,
                                  .rope_base = 10000,
                                  .type = LAR_DTYPE_BF16,
                                  .seed = 3,
                                  .embedding = 1};

typedef struct blow {
    uint32_t ids[PROMPT_MOST];
    lar_job_request r;
    job_ear ear;
    uint32_t alone[LAR_JOB_SAMPLES_MAX][EAR_TOKENS_MAX];
} blow;

typedef struct hand {
    lar_scheduler *s;
    pthread_t thread;
    uint32_t seed;
    blow held[HELD];
} hand;

static hand hands[HANDS];

static lar_engine *open_engine(uint64_t page_bytes) {
    char path[BOX_PATH_BYTES];
    lar_engine *e;
    lar_diag d = {0};
    lar_engine_options o = {.path = box_path(&test_box, "model", path), .threads = 2, .page_bytes = page_bytes};
    o.attention = LAR_ATTENTION_ABSORBED;
    if (lar_engine_open(&o, &e, &d)) fail_msg("%s", d.text);
    return e;
}

static void make_blow(blow *b, uint32_t i) {
    uint32_t count = 1 + i * 37 % PROMPT_MOST;
    for (uint32_t k = 0; k < count; k++)
        b->ids[k] = k < 64 && i % 2 ? k * 7 % VOCAB : (i * 31 + k * (3 + i % 5)) % VOCAB;
    b->r = (lar_job_request){.ids = b->ids,
                             .count = count,
                             .answer_max = 3 + i * 11 % 90,
                             .samples = i % 7 ? 1 : 3,
                             .tenant = i % 3,
                             .sampling = LAR_SAMPLING_DEFAULT};
    b->r.sampling.seed = i;
}

static void answer_alone(lar_engine *e, blow *b) {
    float logits[VOCAB];
    lar_diag d = {0};
    for (uint32_t i = 0; i < b->r.samples; i++) {
        lar_sequence *s;
        lar_sampler *p;
        lar_sampling how = b->r.sampling;
        uint32_t last = b->r.count - 1, first = 0;
        how.seed += i;
        assert_int_equal(lar_sequence_new(e, b->r.count + b->r.answer_max, &s, &d), LAR_OK);
        assert_int_equal(lar_sampler_new(&how, VOCAB, &p, &d), LAR_OK);
        lar_engine_part part = {s, b->ids, b->r.count, &last, 1};
        for (uint32_t k = 0; k < b->r.answer_max; k++) {
            lar_sampled drawn;
            assert_int_equal(lar_engine_step(e, &part, 1, logits, &d), LAR_OK);
            assert_int_equal(lar_sampler_next(p, logits, &drawn, &d), LAR_OK);
            b->alone[i][k] = drawn.id;
            part = (lar_engine_part){s, &b->alone[i][k], 1, &first, 1};
        }
        lar_sampler_free(p);
        lar_sequence_free(s);
    }
}

static void nap(uint32_t us) { (void)nanosleep(&(struct timespec){0, (long)us * 1000}, NULL); }

static void strike(lar_scheduler *s, blow *b) {
    lar_diag d = {0};
    lar_job_calls calls = job_ear_of(&b->ear);
    memset(&b->ear, 0, sizeof b->ear);
    lar_error e = lar_scheduler_submit(s, &b->r, &calls, &b->ear.ticket, &d);
    LAR_ASSERT(!e);
}

static void check_blow(const blow *b) {
    LAR_ASSERT(!b->ear.end.error || b->ear.end.error == LAR_CLIENT_GONE);
    for (uint32_t i = 0; i < b->r.samples; i++) {
        LAR_ASSERT(b->ear.end.error || b->ear.counts[i] == b->r.answer_max);
        LAR_ASSERT(!memcmp(b->ear.ids[i], b->alone[i], b->ear.counts[i] * sizeof **b->alone));
    }
}

static void *hand_main(void *arg) {
    hand *h = arg;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < HELD; i++) {
            h->seed = h->seed * 1664525 + 1013904223;
            strike(h->s, &h->held[i]);
            nap(h->seed >> 8 & 2047);
            if (h->seed >> 20 & 1) lar_scheduler_cancel(h->s, h->held[h->seed >> 21 & 3].ear.ticket.id);
            (void)lar_scheduler_counts_of(h->s);
        }
        for (uint32_t i = 0; i < HELD; i++) {
            while (!atomic_load(&h->held[i].ear.ends)) nap(200);
            check_blow(&h->held[i]);
        }
    }
    return NULL;
}

static void many_threads_submit_and_cancel(void **state) {
    lar_scheduler *s;
    lar_diag d = {0};
    (void)state;
    lar_engine *alone = open_engine(0);
    uint64_t page_bytes = lar_engine_info_of(alone).page_bytes;
    for (uint32_t i = 0; i < HANDS * HELD; i++) {
        make_blow(&hands[i / HELD].held[i % HELD], i);
        answer_alone(alone, &hands[i / HELD].held[i % HELD]);
    }
    lar_engine_close(alone);
    lar_engine *e = open_engine(13 * page_bytes);
    lar_scheduler_options o = {.engine = e, .sequences_max = 6, .queue_max = 100, .gap_ms = 5, .niceness = 1};
    assert_int_equal(lar_scheduler_open(&o, &s, &d), LAR_OK);
    for (uint32_t i = 0; i < HANDS; i++) {
        hands[i].s = s, hands[i].seed = i + 1;
        assert_int_equal(pthread_create(&hands[i].thread, NULL, hand_main, &hands[i]), 0);
    }
    for (uint32_t i = 0; i < HANDS; i++) assert_int_equal(pthread_join(hands[i].thread, NULL), 0);
    lar_scheduler_close(s);
    assert_int_equal(lar_engine_pages(e).held, lar_engine_prefixes(e).pages); /* no page is lost */
    lar_engine_close(e);
}

static int write_model(void **state) {
    char path[BOX_PATH_BYTES];
    if (box_setup(state)) return -1;
    box_folder(&test_box, "model");
    model_write(&shape, LAR_MODEL_FOLDER, box_path(&test_box, "model", path));
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(many_threads_submit_and_cancel)};
    return cmocka_run_group_tests(tests, write_model, box_teardown);
}
