/* The scheduler's parts that need no engine: turns of tenants, times of passes, pieces of prompts, checked requests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/schedule/job.h"
#include "engine/schedule/step_pieces.h"

/* -- turns ------------------------------------------------------------------------------------------------------- */

enum { ENTRIES = 400 };

static lar_fair_entry entries[ENTRIES];

static lar_fair_entry *join(lar_fair_queue *q, uint32_t i, uint64_t tenant) {
    entries[i] = (lar_fair_entry){.tenant = tenant, .order = i + 1};
    lar_fair_queue_join(q, &entries[i]);
    return &entries[i];
}

/* Takes the next, which must be of this tenant. */
static lar_fair_entry *turn_of(lar_fair_queue *q, uint64_t tenant, uint32_t tokens) {
    lar_fair_entry *e = lar_fair_queue_next(q);
    assert_non_null(e);
    assert_int_equal(e->tenant, tenant);
    lar_fair_queue_take(q, e, tokens);
    return e;
}

static void one_tenant_is_served_in_order(void **state) {
    (void)state;
    lar_fair_queue *q = lar_fair_queue_new(ENTRIES);
    for (uint32_t i = 0; i < 5; i++) join(q, i, 7);
    lar_fair_queue_leave(q, &entries[2]); /* cancelled while it waited */
    const uint32_t left[] = {0, 1, 3, 4};
    for (uint32_t i = 0; i < 4; i++) {
        lar_fair_entry *e = turn_of(q, 7, 10);
        assert_ptr_equal(e, &entries[left[i]]);
        lar_fair_queue_leave(q, e);
    }
    assert_null(lar_fair_queue_next(q));
    lar_fair_queue_free(q);
}

static void a_newcomer_is_next_whatever_others_have_queued(void **state) {
    (void)state;
    lar_fair_queue *q = lar_fair_queue_new(ENTRIES);
    for (uint32_t i = 0; i < 100; i++) join(q, i, 1);
    for (uint32_t i = 0; i < 10; i++) lar_fair_queue_count(q, turn_of(q, 1, 1000), 500);
    join(q, 100, 2);
    join(q, 101, 2);
    turn_of(q, 2, 1000);
    /* Both have been served as much since the second came, but for the answer of the first's last. */
    turn_of(q, 2, 1000);
    turn_of(q, 1, 1000);
    lar_fair_queue_free(q);
}

static void tokens_are_shared_not_turns(void **state) {
    (void)state;
    lar_fair_queue *q = lar_fair_queue_new(ENTRIES);
    uint32_t taken[3] = {0};
    for (uint32_t i = 0; i < 300; i++) join(q, i, i % 3);
    const uint32_t cost[] = {100, 200, 400};
    for (uint32_t i = 0; i < 140; i++) {
        lar_fair_entry *e = lar_fair_queue_next(q);
        lar_fair_queue_take(q, e, cost[e->tenant]);
        taken[e->tenant]++;
    }
    assert_in_range(taken[0], 78, 82);
    assert_in_range(taken[1], 38, 42);
    assert_in_range(taken[2], 18, 22);
    lar_fair_queue_free(q);
}

/* One that went and comes back has neither saved up turns nor become new. */
static void who_comes_back_is_known(void **state) {
    (void)state;
    lar_fair_queue *q = lar_fair_queue_new(ENTRIES);
    join(q, 0, 1);
    lar_fair_queue_leave(q, turn_of(q, 1, 100000)); /* much served, and gone */
    join(q, 1, 2);
    for (uint32_t i = 2; i < 12; i++) join(q, i, 2);
    turn_of(q, 2, 1000);
    join(q, 12, 1);
    for (uint32_t i = 0; i < 10; i++) turn_of(q, 2, 1000); /* still far from 100000 */
    turn_of(q, 1, 1);
    /* One that was away while much was served begins where the others are. */
    join(q, 13, 3);
    lar_fair_queue_leave(q, turn_of(q, 3, 1));
    for (uint32_t i = 14; i < 40; i++) join(q, i, 2 + 2 * (i % 2));
    for (uint32_t i = 0; i < 20; i++) lar_fair_queue_take(q, lar_fair_queue_next(q), 50000);
    for (uint32_t i = 40; i < 60; i++) join(q, i, 3);
    turn_of(q, 3, 50000);
    uint32_t third = 0;
    for (uint32_t i = 0; i < 6; i++) {
        lar_fair_entry *e = lar_fair_queue_next(q);
        third += e->tenant == 3;
        lar_fair_queue_take(q, e, 50000);
    }
    assert_in_range(third, 1, 3);
    lar_fair_queue_free(q);
}

static void what_was_not_computed_is_given_back(void **state) {
    (void)state;
    lar_fair_queue *q = lar_fair_queue_new(ENTRIES);
    for (uint32_t i = 0; i < 4; i++) join(q, i, 1 + i % 2);
    lar_fair_entry *e = turn_of(q, 1, 1000);
    turn_of(q, 2, 1000);
    lar_fair_queue_count(q, e, -900);
    lar_fair_queue_leave(q, e);
    turn_of(q, 1, 1000);
    lar_fair_queue_free(q);
}

/* More tenants than places for the remembered, one after the other. */
static void many_tenants_come_and_go(void **state) {
    (void)state;
    lar_fair_queue *q = lar_fair_queue_new(3);
    join(q, 0, 1000000);
    for (uint32_t i = 1; i < ENTRIES; i++) {
        join(q, i, i);
        lar_fair_queue_leave(q, &entries[i]);
    }
    turn_of(q, 1000000, 1);
    lar_fair_queue_free(q);
}

/* -- times ------------------------------------------------------------------------------------------------------- */

/* A machine: 20 ms for the weights, 2 ms a token, 0.5 us for each row before it. */
static uint64_t machine_us(lar_pass_load l) { return 20000 + 2000 * l.tokens + l.positions / 2; }

static lar_pass_load piece_at(uint32_t tokens, uint32_t position) {
    return (lar_pass_load){tokens, (uint64_t)tokens * position + (uint64_t)tokens * (tokens - 1) / 2};
}

static void learn(lar_pass_time *t, lar_pass_load l) { lar_pass_time_learn(t, l, machine_us(l)); }

static void nothing_is_known_at_first(void **state) {
    (void)state;
    lar_pass_time t = {0};
    assert_true(lar_pass_time_of(&t, piece_at(100, 5)) == 0);
    assert_int_equal(lar_pass_time_trusted(&t), LAR_PASS_FIRST_TOKENS);
    learn(&t, piece_at(16, 0));
    assert_int_equal(lar_pass_time_trusted(&t), 32);
    lar_pass_time_learn(&t, (lar_pass_load){0}, 77); /* no step at all */
    assert_true(lar_pass_time_of(&t, (lar_pass_load){0}) == 0);
    /* Beyond what was measured no more is supposed than in proportion. */
    assert_true(lar_pass_time_of(&t, piece_at(32, 0)) <= 2.0 * (double)machine_us(piece_at(16, 0)) + 1);
    assert_true(lar_pass_time_of(&t, piece_at(4, 0)) >= (double)machine_us(piece_at(4, 0)));
}

static void near(double got, double wanted, double share) {
    if (got < wanted * (1 - share) || got > wanted * (1 + share)) fail_msg("%g; %g +- %g", got, wanted, share);
}

static void sizes_and_positions_are_learned(void **state) {
    (void)state;
    lar_pass_time t = {0};
    for (uint32_t at = 0; at < 30000; at += 64) learn(&t, piece_at(64, at));
    for (uint32_t at = 0; at < 30000; at += 512) learn(&t, piece_at(512, at));
    for (uint32_t at = 0; at < 30000; at += 700) learn(&t, piece_at(4, at));
    const uint32_t tokens[] = {4, 64, 100, 300, 512}, at[] = {0, 5000, 29000};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        for (size_t k = 0; k < sizeof at / sizeof *at; k++)
            near(lar_pass_time_of(&t, piece_at(tokens[i], at[k])), (double)machine_us(piece_at(tokens[i], at[k])), 0.3);
}

/* Positions that hardly differ teach nothing of positions, however the machine trembles. */
static void noise_is_no_slope(void **state) {
    (void)state;
    lar_pass_time t = {0};
    uint64_t seed = 5;
    for (uint32_t i = 0; i < 3000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        lar_pass_load l = piece_at(8, 1000 + i / 8);
        lar_pass_time_learn(&t, l, machine_us(l) + (seed >> 33) % 8000);
    }
    near(lar_pass_time_of(&t, piece_at(8, 30000)), 40000 + 120000, 0.8);
}

static void one_hiccup_is_soon_forgotten(void **state) {
    (void)state;
    lar_pass_time t = {0};
    for (int i = 0; i < 20; i++) learn(&t, piece_at(32, 0)), learn(&t, piece_at(128, 0));
    double before = (double)machine_us(piece_at(128, 0));
    lar_pass_time_learn(&t, piece_at(128, 0), 60000000);
    assert_true(lar_pass_time_of(&t, piece_at(128, 0)) < 2 * before);
    for (int i = 0; i < 12; i++) learn(&t, piece_at(128, 0));
    near(lar_pass_time_of(&t, piece_at(128, 0)), before, 0.1);
    /* Also where only smaller passes are seen from then on: it cannot be more than in proportion to theirs. */
    for (int i = 0; i < 5; i++) lar_pass_time_learn(&t, piece_at(128, 0), 60000000);
    for (int i = 0; i < 100; i++) learn(&t, piece_at(32, 0));
    assert_true(lar_pass_time_of(&t, piece_at(128, 0)) < 4.1 * (double)machine_us(piece_at(32, 0)));
}

static void a_slower_machine_is_slower_for_all_sizes(void **state) {
    (void)state;
    lar_pass_time t = {0};
    for (int i = 0; i < 20; i++) learn(&t, piece_at(32, 0)), learn(&t, piece_at(128, 0)), learn(&t, piece_at(1, 0));
    for (int i = 0; i < 100; i++) lar_pass_time_learn(&t, piece_at(128, 0), 5 * machine_us(piece_at(128, 0)));
    assert_true(lar_pass_time_of(&t, piece_at(32, 0)) > 1.2 * (double)machine_us(piece_at(128, 0)));
    assert_true(lar_pass_time_of(&t, piece_at(256, 0)) > 4.9 * (double)machine_us(piece_at(128, 0)));
}

/* Whatever the noise: but for one in two hundred, passes stay within a limit; and where there is none, near to it. */
static void limits_are_kept_by_all_but_few(void **state) {
    (void)state;
    for (uint32_t noise = 0; noise <= 100; noise += 50) {
        lar_pass_time t = {0};
        uint64_t seed = noise + 1;
        uint32_t over = 0;
        double expected = 0;
        for (uint32_t i = 0; i < 6000; i++) {
            expected = lar_pass_time_within(&t, 100000);
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            double us = expected * (1 + noise / 100.0 * (double)(seed >> 33) / (double)(1u << 31));
            over += i >= 1000 && us > 100000;
            lar_pass_time_judge(&t, expected, (uint64_t)us);
        }
        assert_true(over <= 5000 * 2 / 100);
        assert_true(expected > 100000 / (1.26 + noise / 100.0)); /* and no lower than it must be */
    }
    lar_pass_time t = {0};
    double first = lar_pass_time_within(&t, 1000);
    lar_pass_time_judge(&t, 0, 5000); /* nothing was expected */
    assert_true(lar_pass_time_within(&t, 1000) == first);
    for (int i = 0; i < 1000; i++) lar_pass_time_judge(&t, 1, 1000000);
    assert_true(lar_pass_time_within(&t, 1000) > 300); /* work goes on */
}

/* -- pieces ------------------------------------------------------------------------------------------------------ */

static lar_pass_time known_machine(void) {
    lar_pass_time t = {0};
    for (uint32_t round = 0; round < 4; round++)
        for (uint32_t tokens = 1; tokens <= 512; tokens *= 2)
            for (uint32_t at = 0; at < 20000; at += 4000) learn(&t, piece_at(tokens, at));
    return t;
}

static uint32_t sum(const lar_piece *p, uint32_t n) {
    uint32_t tokens = 0;
    for (uint32_t i = 0; i < n; i++) {
        assert_true(p[i].count <= p[i].left);
        tokens += p[i].count;
    }
    return tokens;
}

static void pieces_keep_to_the_budget(void **state) {
    (void)state;
    lar_pass_time t = known_machine();
    for (uint32_t position = 0; position <= 20000; position += 5000) {
        lar_step_room room = {.decoding = {4, 4 * 500}, .tokens_max = 512, .budget_us = 200000};
        lar_piece p = {.position = position, .left = 10000};
        lar_step_pieces_cut(&t, &room, &p, 1);
        lar_pass_load with = {4 + p.count, 4 * 500 + piece_at(p.count, position).positions};
        double added = (double)(machine_us(with) - machine_us(room.decoding));
        if (added > 1.3 * 200000 || added < 0.5 * 200000) fail_msg("%u tokens at %u add %g", p.count, position, added);
    }
}

static void the_oldest_always_gets_a_token(void **state) {
    (void)state;
    lar_pass_time t = known_machine();
    lar_step_room room = {.decoding = {8, 8 * 20000}, .tokens_max = 4, .budget_us = 1};
    lar_piece p[] = {{20000, 5000, 0, 0}, {0, 1, 0, 0}};
    lar_step_pieces_cut(&t, &room, p, 2);
    assert_int_equal(p[0].count, 1);
    assert_int_equal(p[1].count, 0);
    lar_step_pieces_cut(&t, &room, p, 0);
}

static void passes_and_what_was_measured_are_limits(void **state) {
    (void)state;
    lar_pass_time t = {0};
    lar_step_room room = {.tokens_max = 512, .budget_us = UINT64_MAX};
    lar_piece p[] = {{0, 1000, 0, 0}, {0, 1000, 0, 0}};
    lar_step_pieces_cut(&t, &room, p, 2);
    assert_int_equal(sum(p, 2), LAR_PASS_FIRST_TOKENS);
    room.decoding = (lar_pass_load){5, 0};
    lar_step_pieces_cut(&t, &room, p, 2);
    assert_int_equal(sum(p, 2), LAR_PASS_FIRST_TOKENS - 5);
    t = known_machine();
    room = (lar_step_room){.decoding = {3, 0}, .tokens_max = 40, .budget_us = UINT64_MAX};
    lar_step_pieces_cut(&t, &room, p, 2);
    assert_int_equal(sum(p, 2), 37);
}

static void a_short_prompt_does_not_wait_for_a_long_one(void **state) {
    (void)state;
    lar_pass_time t = known_machine();
    lar_step_room room = {.tokens_max = 512, .budget_us = UINT64_MAX};
    lar_piece p[] = {{0, 30000, 0, 0}, {0, 400, 0, 0}, {0, 30, 0, 0}, {0, 300, 0, 0}};
    lar_step_pieces_cut(&t, &room, p, 4);
    assert_int_equal(p[0].count, 256);
    assert_int_equal(p[2].count, 30);
    assert_int_equal(p[3].count, 226);
    assert_int_equal(p[1].count, 0);
    /* What the others leave goes to the oldest. */
    lar_piece q[] = {{0, 30000, 0, 0}, {0, 7, 0, 0}};
    lar_step_pieces_cut(&t, &room, q, 2);
    assert_int_equal(q[0].count, 505);
    assert_int_equal(q[1].count, 7);
    lar_piece r[] = {{0, 3, 0, 0}, {0, 5, 0, 0}};
    lar_step_pieces_cut(&t, &room, r, 2);
    assert_int_equal(sum(r, 2), 8);
}

static void who_is_waited_for_is_as_short_as_who_waits(void **state) {
    (void)state;
    lar_pass_time t = known_machine();
    lar_step_room room = {.tokens_max = 512, .budget_us = UINT64_MAX};
    lar_piece p[] = {{0, 30000, 0, 0}, {0, 20000, 0, 50}, {0, 100, 0, 0}, {0, 30, 0, 0}};
    lar_step_pieces_cut(&t, &room, p, 4);
    assert_int_equal(p[3].count, 30);
    assert_int_equal(p[1].count, 226);
    assert_int_equal(p[2].count, 0);
    p[1].awaited = 25000; /* no longer than it is itself */
    lar_step_pieces_cut(&t, &room, p, 4);
    assert_int_equal(p[2].count, 100);
    assert_int_equal(p[1].count, 126);
}

/* -- requests ---------------------------------------------------------------------------------------------------- */

static const lar_job_limits limits = {.vocab = 100, .context = 1000, .pages = 10, .samples = 4};
static uint32_t prompt[1200];

static lar_job_request plain(uint32_t count) {
    return (lar_job_request){
        .ids = prompt, .count = count, .answer_max = 10, .samples = 1, .sampling = LAR_SAMPLING_DEFAULT};
}

static void expect(const lar_job_request *r, lar_error error, const char *says, uint32_t answer_max) {
    uint32_t most = 0;
    lar_diag d = {0};
    lar_error e = lar_job_check(r, &limits, &most, &d);
    if (e != error || (says && !strstr(d.text, says))) fail_msg("%s: %s", lar_error_name(e), d.text);
    if (!e) assert_int_equal(most, answer_max);
}

static void requests_are_checked(void **state) {
    (void)state;
    static const uint32_t wild[] = {5, 100};
    static const lar_logit_bias bias = {3, 101};
    lar_job_request r = plain(20);
    expect(&r, LAR_OK, NULL, 10);
    r = plain(0), expect(&r, LAR_INVALID, "empty prompt", 0);
    r = plain(20), r.samples = 0, expect(&r, LAR_INVALID, "0 answers; choose 1 to 16", 0);
    r = plain(20), r.samples = 17, expect(&r, LAR_INVALID, "17 answers; choose 1 to 16", 0);
    r = plain(20), r.samples = 5, expect(&r, LAR_INVALID, "5 answers; at most 4 sequences", 0);
    r = plain(2), r.ids = wild, expect(&r, LAR_INVALID, "token id 100; the vocabulary ends at 99", 0);
    r = plain(20), r.ends = wild, r.end_count = 2, expect(&r, LAR_INVALID, "token id 100", 0);
    r = plain(20), r.mark_count = 1, r.marks[0] = 21,
    expect(&r, LAR_INVALID, "a mark at token 21; the prompt has 20", 0);
    r = plain(20), r.mark_count = 5, expect(&r, LAR_INVALID, "5 marks", 0);
    r = plain(20), r.sampling.temperature = -1, expect(&r, LAR_INVALID, "temperature", 0);
    r = plain(20), r.sampling.biases = &bias, r.sampling.bias_count = 1, expect(&r, LAR_INVALID, "logit_bias", 0);
    r = plain(991), expect(&r, LAR_LIMIT, "991 tokens of prompt and 10 of answer; a sequence can have 1000", 0);
    r = plain(1000), r.answer_max = 0, expect(&r, LAR_LIMIT, "1000 tokens of prompt and 1", 0);
    r = plain(20), r.answer_max = UINT32_MAX, expect(&r, LAR_LIMIT, NULL, 0);
    /* Pages: 10 of 64. */
    r = plain(630), expect(&r, LAR_OK, NULL, 10);
    r = plain(631), expect(&r, LAR_FULL, "more pages than there are (10 of 64", 0);
    r = plain(64), r.samples = 4, r.answer_max = 128, expect(&r, LAR_OK, NULL, 128); /* 1 shared, 4 x 2 */
    r = plain(64), r.samples = 4, r.answer_max = 129, expect(&r, LAR_FULL, NULL, 0);
    r = plain(65), r.samples = 4, r.answer_max = 128, expect(&r, LAR_FULL, NULL, 0); /* each copies the last page */
    r = plain(100), r.answer_max = 0, expect(&r, LAR_OK, NULL, 540);
    r = plain(100), r.answer_max = 0, r.samples = 2, expect(&r, LAR_OK, NULL, 4 * 64 - 36);
}

static void a_job_owns_what_it_was_asked(void **state) {
    (void)state;
    uint32_t ids[] = {1, 2, 3}, ends[] = {9};
    lar_logit_bias biases[] = {{4, 1.5f}, {5, -2}};
    lar_job_request r = plain(3);
    lar_job_calls none = {0};
    lar_diag d = {0};
    r.ids = ids, r.ends = ends, r.end_count = 1, r.sampling.biases = biases, r.sampling.bias_count = 2, r.samples = 3;
    lar_job *j = lar_job_new(&r, &none, 50);
    assert_non_null(j);
    memset(ids, 0, sizeof ids), memset(ends, 0, sizeof ends), memset(biases, 0, sizeof biases);
    assert_int_equal(lar_job_prepare(j, 100, &d), LAR_OK);
    for (int i = 0; i < 3; i++) {
        const uint32_t wanted[] = {1, 2, 3};
        assert_int_equal(j->samples[i].count, 3);
        assert_memory_equal(j->samples[i].tokens, wanted, sizeof wanted);
    }
    assert_true(lar_job_ends_with(j, 9) && !lar_job_ends_with(j, 0));
    assert_int_equal(j->request.sampling.biases[1].id, 5);
    assert_int_equal(lar_job_live(j), 3);
    j->samples[0].ended = true;
    assert_ptr_equal(lar_job_first(j), &j->samples[1]);
    lar_job_move(j, LAR_JOB_PREFILL), lar_job_move(j, LAR_JOB_PREEMPTED), lar_job_move(j, LAR_JOB_PREFILL);
    lar_job_move(j, LAR_JOB_DECODE), lar_job_move(j, LAR_JOB_ENDING);
    lar_job_free(j);
    lar_job_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_tenant_is_served_in_order),
        cmocka_unit_test(a_newcomer_is_next_whatever_others_have_queued),
        cmocka_unit_test(tokens_are_shared_not_turns),
        cmocka_unit_test(who_comes_back_is_known),
        cmocka_unit_test(what_was_not_computed_is_given_back),
        cmocka_unit_test(many_tenants_come_and_go),
        cmocka_unit_test(nothing_is_known_at_first),
        cmocka_unit_test(sizes_and_positions_are_learned),
        cmocka_unit_test(noise_is_no_slope),
        cmocka_unit_test(one_hiccup_is_soon_forgotten),
        cmocka_unit_test(a_slower_machine_is_slower_for_all_sizes),
        cmocka_unit_test(limits_are_kept_by_all_but_few),
        cmocka_unit_test(pieces_keep_to_the_budget),
        cmocka_unit_test(the_oldest_always_gets_a_token),
        cmocka_unit_test(passes_and_what_was_measured_are_limits),
        cmocka_unit_test(a_short_prompt_does_not_wait_for_a_long_one),
        cmocka_unit_test(who_is_waited_for_is_as_short_as_who_waits),
        cmocka_unit_test(requests_are_checked),
        cmocka_unit_test(a_job_owns_what_it_was_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
