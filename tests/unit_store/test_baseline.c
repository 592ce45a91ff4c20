/* larder baseline: rates and their spread, verdicts on made-up traffic, files that were written, edited or damaged. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gateway/commands/baseline.h"
#include "store_fixture.h"

/* Small, seeded: the same on every run. */
static uint32_t next(uint32_t *x) {
    *x = *x * 1664525u + 1013904223u;
    return *x >> 8;
}

static lar_journal_record request(uint32_t turn, int64_t prompt, int64_t hit) {
    lar_journal_record r = {.time_ms = 1796000000000, .status = 200, .ending = LAR_END_COMPLETE, .turn = turn};
    r.tokens = (lar_tokens){prompt, hit, hit == LAR_TOKENS_UNKNOWN ? hit : prompt - hit, 0, 10, 0};
    r.raw = r.tokens;
    r.ttft_us = 1000;
    r.prefix_hash = 0xabc;
    (void)snprintf(r.model, sizeof r.model, "deepseek-chat");
    (void)snprintf(r.edition, sizeof r.edition, "2026.12");
    return r;
}

static int64_t noisy(uint32_t *x, int64_t mean) { return mean + next(x) % 201 - 100; }

/* n requests of two turns, whose mean hits of 1000 tokens are given. */
static lar_baseline *made(uint32_t n, int64_t first_hit, int64_t later_hit, uint32_t firsts_of_ten, uint32_t seed) {
    lar_baseline_maker *m = lar_baseline_maker_new();
    lar_baseline *b = calloc(1, sizeof *b);
    assert_true(m && b);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t turn = i % 10 < firsts_of_ten ? 0 : 1;
        lar_journal_record r = request(turn, 1000, noisy(&seed, turn ? later_hit : first_hit));
        lar_baseline_add(m, &r);
    }
    lar_baseline_finish(m, b);
    lar_baseline_maker_free(m);
    (void)snprintf(b->key, sizeof b->key, "00000000000000aa");
    return b;
}

static void check(lar_baseline *a, lar_baseline *b, lar_change want) {
    lar_comparison c = lar_baseline_compare(a, b);
    if (c.change != want) fail_msg("%s, not %s", lar_change_name(c.change), lar_change_name(want));
    free(a);
    free(b);
}

static void a_rate_has_its_spread(void **state) {
    (void)state;
    lar_rate *r = calloc(1, sizeof *r);
    assert_non_null(r);
    assert_true(lar_rate_finish(r).rate < 0);
    for (int i = 0; i < LAR_BATCHES_MIN - 1; i++) lar_rate_add(r, 1000, 500);
    assert_true(lar_rate_finish(r).error < 0); /* too few blocks */
    lar_rate_add(r, LAR_TOKENS_UNKNOWN, LAR_TOKENS_UNKNOWN);
    lar_rate_add(r, 1000, LAR_TOKENS_UNKNOWN);
    assert_true(lar_rate_finish(r).error < 0);
    lar_rate_add(r, 1000, 500);
    lar_rate_sum s = lar_rate_finish(r);
    assert_true(s.rate == 0.5 && s.error == 0 && s.known == LAR_BATCHES_MIN && s.requests == LAR_BATCHES_MIN + 2);
    free(r);

    /* Independent halves: the error of a mean of 10000 coin flips is 0.005. */
    uint32_t seed = 7;
    r = calloc(1, sizeof *r);
    assert_non_null(r);
    for (int i = 0; i < 10000; i++) lar_rate_add(r, 100, next(&seed) & 1024 ? 100 : 0);
    s = lar_rate_finish(r);
    assert_true(s.error > 0.003 && s.error < 0.008 && fabs(s.rate - 0.5) < 0.02);
    free(r);

    /* The same flips, but each comes a hundred times in a row: a hundred of them are worth one. */
    r = calloc(1, sizeof *r);
    assert_non_null(r);
    bool heads = false;
    for (int i = 0; i < 100000; i++) {
        if (i % 100 == 0) heads = next(&seed) & 1024;
        lar_rate_add(r, 100, heads ? 100 : 0);
    }
    s = lar_rate_finish(r);
    assert_true(s.error > 0.01); /* 0.0016 if they were taken for independent */
    free(r);
}

static void changes_are_seen_beyond_the_spread_only(void **state) {
    (void)state;
    check(made(2000, 200, 900, 3, 1), made(2000, 200, 900, 3, 2), LAR_CHANGE_NONE);
    check(made(2000, 200, 900, 3, 1), made(2000, 200, 800, 3, 2), LAR_CHANGE_WORSE);
    check(made(2000, 200, 800, 3, 1), made(2000, 200, 900, 3, 2), LAR_CHANGE_BETTER);
    check(made(10, 200, 900, 3, 1), made(2000, 200, 900, 3, 2), LAR_CHANGE_TOO_FEW);
    check(made(0, 0, 0, 3, 1), made(2000, 200, 900, 3, 2), LAR_CHANGE_NOT_COMPARABLE);
    /* more first turns lower the rate as a whole, and change nothing turn by turn */
    lar_baseline *a = made(2000, 200, 900, 2, 1), *b = made(2000, 200, 900, 6, 2);
    assert_true(b->all.rate < a->all.rate - 0.2);
    check(a, b, LAR_CHANGE_NONE);
}

static void what_cannot_be_compared_is_not(void **state) {
    (void)state;
    lar_baseline *a = made(500, 200, 900, 3, 1), *b = made(500, 200, 900, 3, 2);
    (void)snprintf(b->models[0].name, sizeof b->models[0].name, "another");
    check(a, b, LAR_CHANGE_NOT_COMPARABLE);
    a = made(500, 200, 900, 3, 1), b = made(500, 200, 900, 3, 2);
    b->prefixes[0].hash++; /* the same store, and not one prefix in common */
    check(a, b, LAR_CHANGE_NOT_COMPARABLE);
    a = made(500, 200, 900, 3, 1), b = made(500, 200, 900, 3, 2);
    b->prefixes[0].hash++;
    (void)snprintf(b->key, sizeof b->key, "00000000000000bb"); /* another store: nothing can be told */
    assert_true(lar_baseline_compare(a, b).prefixes_common < 0);
    check(a, b, LAR_CHANGE_NONE);
}

static void the_commonest_prefixes_are_kept(void **state) {
    (void)state;
    lar_baseline_maker *m = lar_baseline_maker_new();
    lar_baseline *b = calloc(1, sizeof *b);
    assert_true(m && b);
    for (uint64_t i = 1; i <= 20000; i++) {
        lar_journal_record r = request(0, 10, 5);
        r.prefix_hash = i % 2 ? 77 : i % 50 == 0 ? 1000 : i * 0x9E3779B97F4A7C15u;
        lar_baseline_add(m, &r);
    }
    lar_baseline_finish(m, b);
    assert_int_equal(b->prefix_requests, 20000);
    assert_int_equal(b->prefix_count, LAR_BASELINE_PREFIXES);
    assert_true(b->prefixes[0].hash == 77 && b->prefixes[0].count == 10000);
    assert_true(b->prefixes[1].hash == 1000 && b->prefixes[1].count == 400 && b->prefixes[2].count == 1);
    lar_baseline_maker_free(m);
    free(b);
}

/* -- files --------------------------------------------------------------------------------------------------- */

static lar_error read_text(const char *text, lar_baseline *b) {
    lar_diag d = {0};
    lar_error e = lar_baseline_read(lar_slice_cstr(text), b, &d);
    if (e) assert_true(d.text[0]);
    return e;
}

static void a_file_says_all_again(void **state) {
    (void)state;
    lar_baseline *a = made(3000, 200, 900, 3, 1), *b = calloc(1, sizeof *b);
    lar_buf text;
    lar_diag d = {0};
    assert_non_null(b);
    (void)snprintf(a->name, sizeof a->name, "before \"the\" change");
    (void)snprintf(a->canon, sizeof a->canon, "on");
    (void)snprintf(a->rules_off, sizeof a->rules_off, "LR005 LR013");
    lar_buf_init(&text, 1 << 20);
    assert_int_equal(lar_baseline_write(a, &text), LAR_OK);
    assert_int_equal(lar_baseline_read(lar_buf_slice(&text), b, &d), LAR_OK);
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->rules_off, b->rules_off);
    assert_true(fabs(a->all.rate - b->all.rate) < 1e-12 && fabs(a->turns[1].error - b->turns[1].error) < 1e-12);
    assert_true(b->turns[5].rate < 0 && b->turns[5].error < 0);
    assert_memory_equal(a->prefixes, b->prefixes, sizeof a->prefixes);
    assert_memory_equal(a->models, b->models, sizeof a->models);
    lar_buf_release(&text);
    free(a);
    free(b);
}

static void other_files_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"",
                                      "nonsense",
                                      "[]",
                                      "{}",
                                      "{\"larder_baseline\":\"1\"}",
                                      "{\"larder_baseline\":1}",
                                      "null",
                                      "\"text\"",
                                      "{\"larder_baseline\":1,\"name\":7}"};
    lar_baseline *b = calloc(1, sizeof *b), *a = made(100, 200, 900, 3, 1);
    assert_non_null(b);
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) assert_int_not_equal(read_text(bad[i], b), LAR_OK);
    assert_int_equal(read_text("{\"larder_baseline\":2}", b), LAR_VERSION);
    lar_buf text;
    lar_buf_init(&text, 1 << 20);
    assert_int_equal(lar_baseline_write(a, &text), LAR_OK);
    for (size_t len = 0; len + 2 < text.len; len += 7) {
        lar_diag d = {0};
        assert_int_not_equal(lar_baseline_read(lar_slice_of(text.ptr, len), b, &d), LAR_OK);
    }
    /* any one digit made a minus sign or a quote: refused, or read as a number that is possible */
    for (size_t i = 0; i < text.len; i++) {
        lar_diag d = {0};
        char was = text.ptr[i];
        if (was < '0' || was > '9') continue;
        text.ptr[i] = i & 1 ? '-' : '"';
        if (lar_baseline_read(lar_buf_slice(&text), b, &d) == LAR_OK) (void)lar_baseline_compare(a, b);
        text.ptr[i] = was;
    }
    lar_buf_release(&text);
    free(a);
    free(b);
}

/* -- the command --------------------------------------------------------------------------------------------- */

typedef struct outcome {
    int rc;
    char out[20000], err[8000];
} outcome;

static outcome run(const fixture *f, const char *const *args) {
    static outcome o;
    char copies[12][160], *argv[13], path[2][128];
    int argc = 0, saved[2];
    for (; args[argc]; argc++) {
        (void)snprintf(copies[argc], sizeof copies[argc], "%s", args[argc]);
        argv[argc] = copies[argc];
    }
    argv[argc] = NULL;
    (void)fflush(NULL);
    for (int i = 0; i < 2; i++) {
        fixture_path(f, i ? "err.txt" : "out.txt", path[i]);
        int fd = open(path[i], O_RDWR | O_CREAT | O_TRUNC, 0600);
        saved[i] = dup(1 + i);
        assert_true(fd >= 0 && dup2(fd, 1 + i) >= 0);
        close(fd);
    }
    o.rc = lar_command_baseline(argc, argv);
    (void)fflush(NULL);
    for (int i = 0; i < 2; i++) {
        char *to = i ? o.err : o.out;
        size_t cap = i ? sizeof o.err : sizeof o.out;
        ssize_t n = pread(1 + i, to, cap - 1, 0);
        to[n > 0 ? n : 0] = 0;
        (void)dup2(saved[i], 1 + i);
        close(saved[i]);
    }
    return o;
}
#define RUN(...) run(f, (const char *const[]){__VA_ARGS__, NULL})

static void put(fixture *f, uint32_t n, int64_t hit, uint32_t seed) {
    fixture_open(f);
    for (uint32_t i = 0; i < n; i++) {
        lar_journal_record r = request(i % 5, 1000, noisy(&seed, hit));
        lar_store_journal(f->store, &r);
    }
    lar_store_flush(f->store);
    fixture_close(f);
}

static void recorded_and_compared(void **state) {
    fixture *f = *state;
    char a[128], b[128];
    fixture_path(f, "a.json", a);
    fixture_path(f, "b.json", b);
    put(f, 1000, 800, 1);
    assert_int_equal(RUN("record", "before", "--store", f->dir, "-o", a).rc, 0);
    outcome o = RUN("compare", a, "--store", f->dir);
    assert_int_equal(o.rc, 0);
    assert_non_null(strstr(o.out, "same: hit rate +0.00 points"));
    assert_non_null(strstr(o.out, "100% of B's requests"));
    fixture_wipe(f);
    put(f, 1000, 600, 2);
    fixture_open(f);
    fixture_close(f);
    assert_int_equal(RUN("record", "after", "--store", f->dir, "-o", b).rc, 0);
    /* the folder was wiped, and with it the key and file a: write both sides anew from here */
    put(f, 3000, 800, 3);
    assert_int_equal(RUN("record", "later", "--store", f->dir, "-o", a).rc, 0);
    o = RUN("compare", a, b);
    assert_int_equal(o.rc, 1);
    assert_non_null(strstr(o.out, "worse: hit rate -"));
    assert_int_equal(RUN("compare", b, a).rc, 0);
    assert_non_null(strstr(RUN("record", "x", "--store", f->dir).out, "\"larder_baseline\""));
}

static void wrong_use_is_told_from_worse(void **state) {
    fixture *f = *state;
    char none[128], a[128];
    fixture_path(f, "none.json", none);
    fixture_path(f, "a.json", a);
    put(f, 5, 800, 1);
    assert_int_equal(RUN("record", "few", "--store", f->dir, "-o", a).rc, 0);
    outcome o = RUN("compare", a, a);
    assert_int_equal(o.rc, 2);
    assert_non_null(strstr(o.out, "too few requests"));
    assert_int_equal(RUN("compare", none, a).rc, 2);
    assert_int_equal(RUN("compare").rc, 2);
    assert_int_equal(RUN("record").rc, 2);
    assert_int_equal(RUN("record", "a", "b", "--store", f->dir).rc, 2);
    assert_int_equal(RUN("compare", a).rc, 2);
    assert_int_equal(RUN("compare", a, a, "--store", f->dir).rc, 2);
    assert_int_equal(RUN("measure", "x").rc, 2);
    assert_int_equal(RUN("record", "x", "--store", f->dir, "-o").rc, 2);
    assert_int_equal(RUN("record", "x", "--store", f->dir, "--since", "whenever").rc, 2);
    assert_int_equal(RUN("record", "x", "--store", f->dir, "-o", "/nowhere/at/all.json").rc, 2);
    assert_int_equal(RUN("record", "x", "--store", f->dir, "-c", none).rc, 2);
    assert_int_equal(RUN("record", "x", "--store", "/nowhere/at/all").rc, 1);
    assert_int_equal(RUN("--help").rc, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rate_has_its_spread),
        cmocka_unit_test(changes_are_seen_beyond_the_spread_only),
        cmocka_unit_test(what_cannot_be_compared_is_not),
        cmocka_unit_test(the_commonest_prefixes_are_kept),
        cmocka_unit_test(a_file_says_all_again),
        cmocka_unit_test(other_files_are_refused),
        TEST(recorded_and_compared),
        TEST(wrong_use_is_told_from_worse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
