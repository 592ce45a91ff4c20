/* Sums of money as the providers make them (reports U-07 to U-11), and the look-up of names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "policies/price.h"

static void close_to(double got, double want) {
    double d = got - want;
    if (d > 1e-12 || d < -1e-12) fail_msg("got %.12f, want %.12f", got, want);
}

/* U-07: cached tokens are not billed at the full price. */
static void u07_hits_at_their_own_price(void **state) {
    (void)state;
    lar_price p = {"m", 1.4, 0.26, 1.4, 4.4, "test", "test"};
    close_to(lar_price_cost(&p, 27147, 27146, 0, 351), 0.00860376);
}

/* U-08: cached tokens are a part of the prompt, not beside it. */
static void u08_hits_are_not_billed_twice(void **state) {
    (void)state;
    lar_price p = {"m", 2.5, 1.25, 2.5, 10, "test", "test"};
    close_to(lar_price_cost(&p, 2006, 1920, 0, 300), (86 * 2.5 + 1920 * 1.25 + 300 * 10) / 1e6);
    close_to(lar_price_saved(&p, 1920), 1920 * 1.25 / 1e6);
}

/* U-09: the same call in both shapes is one normalised record, hence one sum. */
static void u09_both_shapes_cost_the_same(void **state) {
    (void)state;
    lar_price p = {"m", 3, 0.3, 3.75, 15, "test", "test"};
    uint64_t openai_prompt = 1000, anthropic_prompt = 100 + 900 + 0;
    close_to(lar_price_cost(&p, openai_prompt, 900, 0, 10), lar_price_cost(&p, anthropic_prompt, 900, 0, 10));
    close_to(lar_price_cost(&p, 1000, 900, 0, 10), (100 * 3 + 900 * 0.3 + 10 * 15) / 1e6);
}

/* U-10: a cache write has its own price, not one on top of the input price. */
static void u10_writes_at_their_own_price(void **state) {
    (void)state;
    lar_price p = {"m", 3, 0.3, 3.75, 15, "test", "test"};
    close_to(lar_price_cost(&p, 1000, 0, 1000, 0), 0.00375);
}

/* U-11: parts larger than the whole never make a negative sum. */
static void u11_nothing_is_negative(void **state) {
    (void)state;
    lar_price p = {"m", 3, 0.3, 3.75, 15, "test", "test"};
    close_to(lar_price_cost(&p, 100, 150, 0, 0), 100 * 0.3 / 1e6);
    close_to(lar_price_cost(&p, 100, 60, 90, 0), (60 * 0.3 + 40 * 3.75) / 1e6);
    close_to(lar_price_cost(&p, 0, UINT64_MAX, UINT64_MAX, 0), 0);
    lar_price odd = {"m", 1, 2, 1, 1, "test", "test"};
    close_to(lar_price_saved(&odd, 1000), 0);
}

static const char *found(const char *model) {
    const lar_price *p = lar_price_find(lar_slice_cstr(model));
    return p ? p->model : "none";
}

static void the_best_row_is_found(void **state) {
    (void)state;
    assert_string_equal(found("deepseek-v4-flash"), "deepseek-v4-flash");
    assert_string_equal(found("claude-opus-4-1-20250805"), "claude-opus-4-1");
    assert_string_equal(found("claude-sonnet-4-20250514"), "claude-sonnet-4");
    assert_string_equal(found("claude-sonnet-4-5-20250929"), "claude-sonnet-4-5");
    assert_string_equal(found("claude-haiku-4-5-latest"), "claude-haiku-4-5");
    assert_string_equal(found("gpt-5.4-mini-2026-03-17"), "gpt-5.4-mini");
}

/* No price is better than another model's. */
static void an_unknown_model_has_no_price(void **state) {
    (void)state;
    const char *names[] = {"",
                           "gpt",
                           "gpt-5.4-micro",
                           "gpt-5.4-mini-2026",
                           "gpt-5.4-20x60101",
                           "deepseek",
                           "deepseek-v4-pro2",
                           "claude-sonnet-4-9",
                           "openai/gpt-5.4",
                           "GPT-5.4",
                           "claude-opus-5-202601011",
                           "*"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) assert_string_equal(found(names[i]), "none");
}

static void every_row_is_sane_and_sourced(void **state) {
    (void)state;
    uint32_t count;
    const lar_price *rows = lar_price_rows(&count);
    assert_true(count > 10);
    for (uint32_t i = 0; i < count; i++) {
        const lar_price *p = &rows[i];
        assert_true(p->input > 0 && p->hit > 0 && p->hit < p->input && p->write >= p->input && p->output > p->input);
        assert_true(strlen(p->source) > 5 && strncmp(p->date, "20", 2) == 0);
        assert_ptr_equal(lar_price_find(lar_slice_cstr(p->model)), p); /* no row hides another */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(u07_hits_at_their_own_price),   cmocka_unit_test(u08_hits_are_not_billed_twice),
        cmocka_unit_test(u09_both_shapes_cost_the_same), cmocka_unit_test(u10_writes_at_their_own_price),
        cmocka_unit_test(u11_nothing_is_negative),       cmocka_unit_test(the_best_row_is_found),
        cmocka_unit_test(an_unknown_model_has_no_price), cmocka_unit_test(every_row_is_sane_and_sourced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
