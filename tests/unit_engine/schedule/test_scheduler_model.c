/* The scheduler on the trained model: what is answered has the bits of the same request alone on a fresh engine, which
 * computes it token by token with no scheduler. Company, forced evictions, warm prefixes, aborts, samples, formats; and
 * the nice values of the threads. E-17, E-20, E-23, E-24: docs/reports.md. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <dirent.h>

#include "tests/unit_engine/schedule/job_ear.h"

enum { JOBS = 16, PROMPT_MAX = 260 };

typedef struct model_job {
    uint32_t ids[PROMPT_MAX];
    lar_job_request r;
    job_ear ear, alone;
} model_job;

static model_job jobs[JOBS];

/* One thread computes but where threads are tested: two on a busy machine wait for each other at each product. */
static lar_engine *open_engine(uint32_t pages, const char *kv, uint32_t threads) {
    lar_engine *e;
    lar_diag d = {0};
    lar_engine_options o = {.path = TRAINED_MODEL, .threads = threads, .kv = kv, .tokens_max = 48};
    o.attention = LAR_ATTENTION_ABSORBED;
    if (lar_engine_open(&o, &e, &d)) fail_msg("%s", d.text);
    if (!pages) return e;
    o.page_bytes = pages * lar_engine_info_of(e).page_bytes;
    lar_engine_close(e);
    if (lar_engine_open(&o, &e, &d)) fail_msg("%s", d.text);
    assert_int_equal(lar_engine_pages(e).pages, pages);
    return e;
}

static lar_scheduler *open_scheduler(lar_engine *e, uint32_t sequences) {
    lar_scheduler *s;
    lar_diag d = {0};
    lar_scheduler_options o = {.engine = e, .sequences_max = sequences, .queue_max = 100, .gap_ms = 5};
    if (lar_scheduler_open(&o, &s, &d)) fail_msg("%s", d.text);
    return s;
}

static void close_both(lar_scheduler *s, lar_engine *e) {
    lar_scheduler_close(s);
    assert_int_equal(lar_engine_pages(e).held, lar_engine_prefixes(e).pages); /* no page is lost */
    lar_engine_close(e);
}

/* Each prompt has marks of its own, and a beginning in common with some others. */
static void make_job(model_job *j, uint32_t i, uint32_t count, uint32_t answer_max) {
    memset(j, 0, sizeof *j);
    for (uint32_t k = 0; k < count; k++)
        j->ids[k] = k < 70 && i % 3 ? 300 + k * 5 % 400 : 200 + (i * 97 + k * (3 + i % 5)) % 1500;
    j->r = (lar_job_request){
        .ids = j->ids, .count = count, .answer_max = answer_max, .samples = 1, .sampling = LAR_SAMPLING_DEFAULT};
    j->r.sampling.seed = 1000 + i;
    j->r.sampling.temperature = i % 4 ? 0.8 : 0;
    j->r.tenant = i % 3;
}

static void feed(lar_engine *e, const lar_engine_part *p, float *logits) {
    lar_diag d = {0};
    if (lar_engine_step(e, p, 1, logits, &d)) fail_msg("%s", d.text);
}

/* Into j->alone: a sequence of its own, the prompt at once, then a token a step. */
static void answer_alone(lar_engine *e, model_job *j) {
    const lar_job_request *r = &j->r;
    float *logits = calloc(lar_engine_info_of(e).vocab, sizeof *logits);
    memset(&j->alone, 0, sizeof j->alone);
    for (uint32_t i = 0; i < r->samples; i++) {
        lar_sequence *s;
        lar_sampler *p;
        lar_sampling how = r->sampling;
        lar_diag d = {0};
        uint32_t last = r->count - 1, first = 0;
        how.seed += i;
        assert_int_equal(lar_sequence_new(e, r->count + r->answer_max, &s, &d), LAR_OK);
        assert_int_equal(lar_sampler_new(&how, lar_engine_info_of(e).vocab, &p, &d), LAR_OK);
        lar_sampler_see(p, r->ids, r->count);
        feed(e, &(lar_engine_part){s, r->ids, r->count, &last, 1}, logits);
        for (uint32_t k = 0; k < r->answer_max; k++) {
            lar_sampled drawn;
            assert_int_equal(lar_sampler_next(p, logits, &drawn, &d), LAR_OK);
            j->alone.ids[i][k] = drawn.id;
            j->alone.logprobs[i][k] = drawn.logprob;
            j->alone.counts[i]++;
            if (k + 1 < r->answer_max) feed(e, &(lar_engine_part){s, &drawn.id, 1, &first, 1}, logits);
        }
        lar_sampler_free(p);
        lar_sequence_free(s);
    }
    free(logits);
}

static void all_alone(const char *kv, uint32_t count) {
    lar_engine *e = open_engine(0, kv, 1);
    for (uint32_t i = 0; i < count; i++) answer_alone(e, &jobs[i]);
    lar_engine_close(e);
}

static void submit(lar_scheduler *s, model_job *j) {
    lar_diag d = {0};
    lar_job_calls calls = job_ear_of(&j->ear);
    memset(&j->ear, 0, sizeof j->ear);
    if (lar_scheduler_submit(s, &j->r, &calls, &j->ear.ticket, &d)) fail_msg("%s", d.text);
}

static void nap(long us) { (void)nanosleep(&(struct timespec){0, us * 1000}, NULL); }

static void await(const model_job *j) {
    while (!atomic_load(&j->ear.ends)) nap(200);
}

/* The bits: ids, and log-probabilities as the floats that they are. */
static void check(const model_job *j) {
    await(j);
    if (j->ear.end.error) fail_msg("%s: %s", lar_error_name(j->ear.end.error), j->ear.detail);
    assert_memory_equal(j->ear.counts, j->alone.counts, sizeof j->ear.counts);
    assert_memory_equal(j->ear.ids, j->alone.ids, sizeof j->ear.ids);
    assert_memory_equal(j->ear.logprobs, j->alone.logprobs, sizeof j->ear.logprobs);
}

/* E-17, E-23: 16 at once, 5 sequences, pages for two or three, cold; then all of it again, warm. */
static void company_changes_no_bit(const char *kv, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        make_job(&jobs[i], i, 20 + i * 43 % 150, 12 + i * 7 % 29);
        jobs[i].r.samples = i % 6 == 5 ? 3 : 1;
    }
    all_alone(kv, count);
    lar_engine *e = open_engine(10, kv, 1);
    lar_scheduler *s = open_scheduler(e, 5);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < count; i++) submit(s, &jobs[i]);
        for (uint32_t i = 0; i < count; i++) check(&jobs[i]);
    }
    lar_scheduler_counts c = lar_scheduler_counts_of(s);
    print_message("%s: %llu preempted, %llu of %llu prompt tokens cached\n", kv ? kv : "f32",
                  (unsigned long long)c.preempted, (unsigned long long)c.cached_tokens,
                  (unsigned long long)c.prompt_tokens);
    assert_true(c.prefixes.evicted > 0 && c.cached_tokens > 0);
    close_both(s, e);
}

static void in_floats(void **state) {
    (void)state;
    company_changes_no_bit(NULL, JOBS);
}

static void in_fewer_bits(void **state) {
    (void)state;
    company_changes_no_bit("fp8,1=bf16", 7);
}

/* The same prompt from all at once, each with a seed of its own: one computes it, the others take its pages over, and
 * no bit is another. */
static void a_prompt_of_many_is_computed_once(void **state) {
    (void)state;
    const uint32_t count = 230, whole = 192;
    for (uint32_t i = 0; i < 6; i++) {
        make_job(&jobs[i], i, count, 10);
        memcpy(jobs[i].ids, jobs[0].ids, sizeof jobs[i].ids);
    }
    all_alone(NULL, 6);
    lar_engine *e = open_engine(40, NULL, 1);
    lar_scheduler *s = open_scheduler(e, 6);
    for (uint32_t i = 0; i < 6; i++) submit(s, &jobs[i]);
    for (uint32_t i = 0; i < 6; i++) {
        check(&jobs[i]);
        assert_int_equal(jobs[i].ear.end.cached_tokens, i ? whole : 0);
    }
    close_both(s, e);
}

/* E-20: pages for one and a half, all at once; each is taken back and computed again, and no bit is another. */
static void preempted_answers_have_the_same_bits(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 4; i++) make_job(&jobs[i], i, 30, 40);
    all_alone(NULL, 4);
    lar_engine *e = open_engine(5, NULL, 1);
    lar_scheduler *s = open_scheduler(e, 4);
    uint32_t preempted = 0;
    for (uint32_t i = 0; i < 4; i++) submit(s, &jobs[i]);
    for (uint32_t i = 0; i < 4; i++) {
        check(&jobs[i]);
        preempted += jobs[i].ear.end.preempted;
        assert_true(jobs[i].ear.end.preempted <= 4);
    }
    assert_true(preempted > 0);
    close_both(s, e);
}

/* E-24: one is aborted at some moment, the next must not notice. */
static void what_was_aborted_leaves_nothing(void **state) {
    (void)state;
    make_job(&jobs[0], 1, 200, 40);
    make_job(&jobs[1], 2, 140, 12); /* with a beginning in common */
    all_alone(NULL, 2);
    lar_engine *e = open_engine(9, NULL, 1);
    lar_scheduler *s = open_scheduler(e, 1);
    for (uint32_t i = 0; i < 15; i++) {
        submit(s, &jobs[0]);
        if (i) nap(i * 800);
        lar_scheduler_cancel(s, jobs[0].ear.ticket.id);
        submit(s, &jobs[1]);
        check(&jobs[1]);
        await(&jobs[0]);
        assert_memory_equal(jobs[0].ear.ids[0], jobs[0].alone.ids[0], jobs[0].ear.counts[0] * sizeof(uint32_t));
    }
    close_both(s, e);
}

static void marked_prefixes_are_pinned(void **state) {
    (void)state;
    lar_engine *e = open_engine(12, NULL, 1);
    lar_scheduler *s;
    lar_diag d = {0};
    lar_scheduler_options o = {.engine = e, .sequences_max = 2, .queue_max = 100, .gap_ms = 50, .pin_ms = 3600000};
    assert_int_equal(lar_scheduler_open(&o, &s, &d), LAR_OK);
    make_job(&jobs[0], 0, 200, 5);
    jobs[0].r.mark_count = 1, jobs[0].r.marks[0] = 130;
    submit(s, &jobs[0]);
    await(&jobs[0]);
    assert_int_equal(lar_scheduler_counts_of(s).prefixes.pinned, 2);
    for (uint32_t i = 1; i < 8; i++) { /* enough to push everything else out */
        make_job(&jobs[i], 3 * i, 250, 5);
        submit(s, &jobs[i]);
        await(&jobs[i]);
    }
    submit(s, &jobs[0]);
    await(&jobs[0]);
    assert_int_equal(jobs[0].ear.end.cached_tokens, 128);
    close_both(s, e);
}

/* The nice values of all threads of this process, counted. */
static void count_nice(uint32_t counts[40]) {
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    memset(counts, 0, 40 * sizeof *counts);
    for (struct dirent *t; (t = readdir(tasks));) {
        char path[300], text[1024] = {0};
        (void)snprintf(path, sizeof path, "/proc/self/task/%s/stat", t->d_name);
        FILE *f = *t->d_name == '.' ? NULL : fopen(path, "r");
        if (!f) continue;
        size_t n = fread(text, 1, sizeof text - 1, f);
        (void)fclose(f);
        const char *at = n ? strrchr(text, ')') : NULL; /* field 2; the nice value is field 19 */
        for (int i = 2; at && i < 19; i++) at = strchr(at + 1, ' ');
        assert_non_null(at);
        long nice = strtol(at, NULL, 10);
        assert_in_range(nice + 20, 0, 39);
        counts[nice + 20]++;
    }
    (void)closedir(tasks);
}

static void threads_that_compute_are_nice(void **state) {
    (void)state;
    uint32_t before[40], after[40];
    count_nice(before);
    lar_engine *e = open_engine(8, NULL, 2);
    lar_scheduler *s;
    lar_diag d = {0};
    lar_scheduler_options o = {.engine = e, .sequences_max = 1, .queue_max = 1, .gap_ms = 50, .niceness = 17};
    assert_int_equal(lar_scheduler_open(&o, &s, &d), LAR_OK);
    make_job(&jobs[0], 0, 20, 2);
    submit(s, &jobs[0]);
    await(&jobs[0]);
    count_nice(after);
    assert_int_equal(after[20 + 17], before[20 + 17] + 2); /* the scheduler's thread and the second worker */
    close_both(s, e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_floats),
        cmocka_unit_test(in_fewer_bits),
        cmocka_unit_test(a_prompt_of_many_is_computed_once),
        cmocka_unit_test(preempted_answers_have_the_same_bits),
        cmocka_unit_test(what_was_aborted_leaves_nothing),
        cmocka_unit_test(marked_prefixes_are_pinned),
        cmocka_unit_test(threads_that_compute_are_nice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
