/* Usage that cannot be: contradictions, and numbers that are no counts. */
#include "tests/unit_http1/usage_expect.h"

static void expect_odd(const char *usage, want w, bool clamped) {
    char text[512];
    lar_usage u;
    assert_true(snprintf(text, sizeof text, "{\"usage\":%s}", usage) < (int)sizeof text);
    body(&u, CHAT, text);
    expect_tokens(&u, w, clamped);
    assert_true(u.odd || clamped);
    lar_usage_release(&u);
}

static void u11_impossible_numbers(void **s) {
    (void)s;
    expect_odd("{\"prompt_tokens\":100,\"cached_tokens\":150}", (want){100, 100, 0, N, N, N}, true);
    expect_odd("{\"prompt_tokens\":100,\"cached_tokens\":-1}", (want){100, N, N, N, N, N}, true);
    expect_odd("{\"prompt_tokens\":-100,\"cached_tokens\":5}", (want){N, 5, N, N, N, N}, true);
    expect_odd("{\"prompt_tokens\":100,\"cached_tokens\":\"90\"}", (want){100, N, N, N, N, N}, false);
    expect_odd("{\"prompt_tokens\":100,\"cached_tokens\":{}}", (want){100, N, N, N, N, N}, false);
    expect_odd("{\"prompt_tokens\":100,\"cached_tokens\":1e30}", (want){100, N, N, N, N, N}, true);
    expect_odd("{\"prompt_tokens\":100,\"cached_tokens\":1e999}", (want){100, N, N, N, N, N}, true);
    expect_odd("{\"prompt_tokens\":100,\"cached_tokens\":-1e999}", (want){100, N, N, N, N, N}, true);
    expect_odd("{\"prompt_tokens\":100,\"cached_tokens\":99999999999999999999999}", (want){100, N, N, N, N, N}, true);
    expect_odd("{\"prompt_tokens\":1e30,\"cached_tokens\":5}", (want){N, 5, N, N, N, N}, true);
    expect_odd("{\"prompt_tokens\":100,\"completion_tokens\":1e30}", (want){100, N, N, N, N, N}, true);
    expect_odd("{\"prompt_tokens\":100,\"completion_tokens\":-3}", (want){100, N, N, N, N, N}, true);
    expect_odd("{\"prompt_tokens\":9223372036854775807,\"completion_tokens\":1}", (want){N, N, N, N, 1, N}, true);
    expect_odd("{\"prompt_tokens\":18446744073709551615,\"completion_tokens\":1}", (want){N, N, N, N, 1, N}, true);
    expect_odd("{\"prompt_tokens\":100.5,\"completion_tokens\":1}", (want){N, N, N, N, 1, N}, false);
    expect_odd("{\"prompt_tokens\":100,\"cached_tokens\":50,\"cache_write_tokens\":80}", (want){100, 50, 50, 50, N, N},
               true);
    expect_odd("{\"input_tokens\":100,\"cache_read_input_tokens\":1e30}", (want){N, N, N, N, N, N}, true);
    expect_odd("{\"input_tokens\":-1,\"cache_read_input_tokens\":-1,\"cache_creation_input_tokens\":-1}",
               (want){N, N, N, N, N, N}, true);
}

/* What cannot be a count is unknown and odd, wherever it stands, and so is a sum that it is a part of. */
static void nonsense_is_unknown(void **s) {
    (void)s;
    static const char *const numbers[] = {"-5",
                                          "-1",
                                          "-0.5",
                                          "0.5",
                                          "12.25",
                                          "1e-400",
                                          "-1e-400",
                                          "1e400",
                                          "1e13",
                                          "true",
                                          "\"5\"",
                                          "\"\"",
                                          "[]",
                                          "[5]",
                                          "{\"n\":5}",
                                          "9223372036854775808",
                                          "-9223372036854775808",
                                          "1099511627777"};
    static const struct {
        const char *before, *behind;
        want w;
    } places[] = {
        {"{\"prompt_tokens\":", ",\"completion_tokens\":7}", {N, N, N, N, 7, N}},
        {"{\"input_tokens\":", ",\"output_tokens\":7}", {N, N, N, N, 7, N}},
        {"{\"prompt_tokens\":100,\"completion_tokens\":", "}", {100, N, N, N, N, N}},
        {"{\"prompt_tokens\":100,\"cached_tokens\":", "}", {100, N, N, N, N, N}},
        {"{\"prompt_tokens\":100,\"prompt_tokens_details\":{\"cached_tokens\":", "}}", {100, N, N, N, N, N}},
        {"{\"prompt_tokens\":100,\"prompt_cache_hit_tokens\":", "}", {100, N, N, N, N, N}},
        {"{\"prompt_tokens\":100,\"prompt_cache_miss_tokens\":", "}", {100, N, N, N, N, N}},
        {"{\"prompt_tokens\":100,\"cache_write_tokens\":", "}", {100, N, N, N, N, N}},
        {"{\"prompt_tokens\":100,\"reasoning_tokens\":", "}", {100, N, N, N, N, N}},
        {"{\"input_tokens\":100,\"cache_read_input_tokens\":", "}", {N, N, N, N, N, N}},
        {"{\"input_tokens\":100,\"cache_creation_input_tokens\":", "}", {N, N, N, N, N, N}},
        {"{\"input_tokens\":100,\"cache_creation\":{\"ephemeral_5m_input_tokens\":9,\"ephemeral_1h_input_tokens\":",
         "}}",
         {N, N, N, N, N, N}},
        {"{\"promptTokenCount\":100,\"candidatesTokenCount\":7,\"thoughtsTokenCount\":", "}", {100, N, N, N, N, N}}};
    for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
            char text[512];
            lar_usage u;
            lar_tokens t;
            (void)snprintf(text, sizeof text, "{\"usage\":%s%s%s}", places[p].before, numbers[i], places[p].behind);
            body(&u, CHAT, text);
            bool odd = lar_usage_tokens(&u, &t);
            if (!odd && !u.odd) fail_msg("not odd: %s", text);
            if (memcmp(&(want){t.prompt, t.hit, t.miss, t.write, t.output, t.reasoning}, &places[p].w, sizeof(want)))
                fail_msg("counted: %s", text);
            lar_usage_release(&u);
        }
    }
}

/* A later event's good number takes the place of a broken one. */
static void a_good_number_mends_a_broken_one(void **s) {
    (void)s;
    lar_usage u;
    stream(&u, MESSAGES,
           DATA("{\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,"
                "\"cache_read_input_tokens\":\"x\",\"output_tokens\":-1}}}")
               DATA("{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":"
                    "{\"cache_read_input_tokens\":75,\"output_tokens\":15}}"),
           "ff");
    expect_tokens(&u, (want){100, 75, 25, N, 15, N}, false);
    assert_true(u.odd);
    lar_usage_release(&u);
}

static void whole_numbers_in_other_forms(void **s) {
    (void)s;
    expect_body(CHAT, "{\"usage\":{\"prompt_tokens\":100.0,\"completion_tokens\":1e2,\"cached_tokens\":-0}}",
                LAR_SPELLING_TOP_CACHED, (want){100, 0, 100, N, 100, N});
}

static void spellings_that_differ(void **s) {
    (void)s;
    expect_odd("{\"prompt_tokens\":1000,\"prompt_cache_hit_tokens\":896,\"prompt_cache_miss_tokens\":104,"
               "\"prompt_tokens_details\":{\"cached_tokens\":512}}",
               (want){1000, 896, 104, N, N, N}, false);
    expect_odd("{\"prompt_tokens\":1000,\"prompt_cache_hit_tokens\":896,\"prompt_cache_miss_tokens\":50}",
               (want){1000, 896, 104, N, N, N}, true);
    expect_odd("{\"prompt_tokens\":1000,\"prompt_cache_hit_tokens\":896,\"prompt_cache_miss_tokens\":500}",
               (want){1000, 896, 104, N, N, N}, true);
}

static void raw_numbers_are_kept(void **s) {
    (void)s;
    lar_usage u;
    body(&u, CHAT, "{\"usage\":{\"prompt_tokens\":100,\"cached_tokens\":150,\"completion_tokens\":-7}}");
    assert_int_equal(u.raw.prompt, 100);
    assert_int_equal(u.raw.hit, 150);
    assert_int_equal(u.raw.output, -7);
    assert_int_equal(u.raw.miss, N);
    lar_usage_release(&u);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(u11_impossible_numbers),
        cmocka_unit_test(nonsense_is_unknown),
        cmocka_unit_test(a_good_number_mends_a_broken_one),
        cmocka_unit_test(whole_numbers_in_other_forms),
        cmocka_unit_test(spellings_that_differ),
        cmocka_unit_test(raw_numbers_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
