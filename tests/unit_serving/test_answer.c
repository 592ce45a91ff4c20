/* Answers in one body: their bytes, and what becomes of tokens that are cut anywhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit_serving/serving_box.h"

#define CHAT LAR_SERVING_CHAT
#define TEXT LAR_SERVING_COMPLETIONS
#define ASK(more) "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]" more "}"
#define TOOLS ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"

/* The members of the first choice that vary, as text: content, finish_reason. */
static void expect(box_client *c, const char *part) {
    if (c->head.status != 200 || !strstr(box_body(c), part))
        fail_msg("%s\nis not in %d %s", part, c->head.status, box_body(c));
}

static void play(const lar_serving *s, const char *body, const char *const *texts, lar_job_reason why,
                 const char *part) {
    box_client c;
    box_ask(s, CHAT, body, &c);
    if (c.heads) fail_msg("%s\n%s", body, box_body(&c));
    box_play(texts, why);
    assert_int_equal(c.ends, 1);
    expect(&c, part);
    box_clear(&c);
}

#define CONTENT(text, finish)                                                                                          \
    "\"message\":{\"role\":\"assistant\",\"content\":\"" text "\",\"refusal\":null},\"logprobs\":null,"                \
    "\"finish_reason\":\"" finish "\"}"

static void test_chat_body(void **state) {
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    box_client c;
    (void)state;
    box_ask(s, CHAT, ASK(",\"n\":2"), &c);
    box_begin(0, 2);
    assert_true(box_tell(0, 0, "Hello"));
    assert_true(box_tell(0, 1, "\"\n"));
    assert_true(box_tell(0, 0, " world"));
    box_sample_end(0, 0, LAR_JOB_STOP);
    box_sample_end(0, 1, LAR_JOB_LENGTH);
    assert_int_equal(c.heads, 0);
    box_end(0, LAR_OK);
    assert_int_equal(c.head.status, 200);
    assert_string_equal(c.head.content_type, "application/json");
    assert_int_equal(c.events, 1);
    assert_string_equal(
        box_body(&c),
        "{\"id\":\"chatcmpl-63cbe1e459320dd7044c3cd7\",\"object\":\"chat.completion\",\"created\":1700000000,"
        "\"model\":\"tiny\",\"system_fingerprint\":\"fp_1\",\"choices\":["
        "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Hello world\",\"refusal\":null},"
        "\"logprobs\":null,\"finish_reason\":\"stop\"},"
        "{\"index\":1,\"message\":{\"role\":\"assistant\",\"content\":\"\\\"\\n\",\"refusal\":null},"
        "\"logprobs\":null,\"finish_reason\":\"length\"}],"
        "\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":4,\"total_tokens\":8,"
        "\"prompt_tokens_details\":{\"cached_tokens\":2},\"completion_tokens_details\":{\"reasoning_tokens\":0},"
        "\"prompt_cache_hit_tokens\":2,\"prompt_cache_miss_tokens\":2}}");
    assert_int_equal(c.end.prompt_tokens, 4);
    assert_int_equal(c.end.answer_tokens, 4);
    assert_int_equal(c.end.cached_tokens, 2);
    box_clear(&c);
    lar_serving_free(s);
}

/* E-05: the limit in the middle of a character. */
static void test_e05_limit_inside_a_character(void **state) {
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    (void)state;
    play(s, ASK(""), (const char *[]){"\xE6\xAD\xAA", "\xE6\xAD", NULL}, LAR_JOB_LENGTH, CONTENT("歪\uFFFD", "length"));
    play(s, ASK(""), (const char *[]){"\xF0\x9F", NULL}, LAR_JOB_LENGTH, CONTENT("\uFFFD", "length"));
    lar_serving_free(s);
}

/* E-06: a complete emoji and then a lone byte; at the start, in the middle, at the end. */
static void test_e06_lone_byte(void **state) {
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    (void)state;
    play(s, ASK(""), (const char *[]){"\xE2\x9C\x85\x85", "ab", NULL}, LAR_JOB_STOP, CONTENT("✅\uFFFDab", "stop"));
    play(s, ASK(""), (const char *[]){"\x85", "ab", NULL}, LAR_JOB_STOP, CONTENT("\uFFFDab", "stop"));
    play(s, ASK(""), (const char *[]){"ab", "\xE2\x9C\x85", "\x85", NULL}, LAR_JOB_STOP, CONTENT("ab✅\uFFFD", "stop"));
    lar_serving_free(s);
}

/* E-07: forms that a decoder must not take, as a model's output. */
static void test_e07_output_that_is_no_utf8(void **state) {
    static const char *const bytes[] = {"\xC0\x80",     "\xE0\x80\xAF",     "\xF0\x80\x80\xAF",
                                        "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF7\xBF\xBF\xBF"};
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    (void)state;
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        box_client c;
        lar_json j;
        lar_diag d;
        box_ask(s, CHAT, ASK(""), &c);
        box_play((const char *[]){"ab", bytes[i], "ab", NULL}, LAR_JOB_STOP);
        expect(&c, "\"content\":\"ab\uFFFD");
        expect(&c, "\uFFFDab\",\"refusal\"");
        lar_json_init(&j);
        assert_int_equal(lar_json_parse(&j, lar_buf_slice(&c.body), NULL, &d), LAR_OK);
        lar_json_release(&j);
        box_clear(&c);
    }
    lar_serving_free(s);
}

/* E-08: a stop string over several tokens; and one that never comes to its end. */
static void test_e08_stop_over_tokens(void **state) {
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    (void)state;
    play(s, ASK(",\"stop\":\"DEFGHIJ\""), (const char *[]){"ABC", "DEF", "G", "HI", "J", "ab", NULL}, LAR_JOB_STOP,
         CONTENT("ABC", "stop"));
    play(s, ASK(",\"stop\":[\"DEFGHIJ\"]"), (const char *[]){"ABC", "DEF", "G", "X", NULL}, LAR_JOB_STOP,
         CONTENT("ABCDEFGX", "stop"));
    play(s, ASK(",\"stop\":[\"DEFGHIJ\"]"), (const char *[]){"ABC", "DEF", "G", NULL}, LAR_JOB_LENGTH,
         CONTENT("ABCDEFG", "length"));
    lar_serving_free(s);
}

/* E-09: a stop string inside a token. */
static void test_e09_stop_inside_a_token(void **state) {
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    (void)state;
    play(s, ASK(",\"stop\":\"ari\""), (const char *[]){"Paris", "ab", NULL}, LAR_JOB_STOP, CONTENT("P", "stop"));
    play(s, ASK(",\"stop\":\"Pari\""), (const char *[]){"Paris", NULL}, LAR_JOB_STOP, CONTENT("", "stop"));
    play(s, ASK(",\"stop\":\"gamma\""), (const char *[]){"beta", " gamma!", NULL}, LAR_JOB_STOP,
         CONTENT("beta ", "stop"));
    play(s, ASK(",\"stop\":[\"x\",\"beta gamma\"]"), (const char *[]){"ab", "beta", " gamma", NULL}, LAR_JOB_STOP,
         CONTENT("ab", "stop"));
    play(s, ASK(",\"stop\":[\"x\\ud800\"]"), (const char *[]){"ax", NULL}, LAR_JOB_STOP, CONTENT("ax", "stop"));
    lar_serving_free(s);
}

#define BEGIN "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"
#define NEXT "<｜tool▁call▁end｜>", "<｜tool▁call▁begin｜>"
#define SEP "<｜tool▁sep｜>"
#define END "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"

static void test_calls(void **state) {
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31, .call_tokens_max = 12});
    box_client c;
    (void)state;
    const char *two[] = {"ab", BEGIN, "f", SEP, "{}", NEXT, "g", SEP, "{\"a\":1}", END, NULL};
    lar_serving *wide = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    box_ask(wide, CHAT, ASK(TOOLS), &c);
    box_play(two, LAR_JOB_STOP);
    expect(&c, "\"content\":\"ab\",\"refusal\":null,\"tool_calls\":[{\"id\":\"call_");
    expect(&c, "\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}},{\"id\":\"call_");
    expect(&c, "\"function\":{\"name\":\"g\",\"arguments\":\"{\\\"a\\\":1}\"}}]},\"logprobs\":null,"
               "\"finish_reason\":\"tool_calls\"}");
    box_clear(&c);
    /* One call alone: no content; and with parallel_tool_calls false the second is not told, and ends the answer. */
    box_ask(wide, CHAT, ASK(TOOLS ",\"parallel_tool_calls\":false"), &c);
    box_play(two + 1, LAR_JOB_STOP);
    expect(&c, "\"content\":null,\"refusal\":null,\"tool_calls\":[{\"id\":\"call_");
    expect(&c,
           "\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},\"logprobs\":null,\"finish_reason\":\"tool_calls\"}");
    box_clear(&c);
    /* tool_choice none: calls are not looked for, and what the model wrote is there to be seen. */
    play(wide, ASK(TOOLS ",\"tool_choice\":\"none\""), two, LAR_JOB_STOP,
         CONTENT("ab<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
                 "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{\\\"a\\\":1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
                 "stop"));
    /* A block over its limit of tokens, one that ends in the middle, arguments that are no JSON. */
    const char *stuck[] = {BEGIN, "f", SEP, "{\"aaaaaaaaaaaaaaaaaaaaaaaa", NULL};
    play(s, ASK(TOOLS), stuck, LAR_JOB_STOP, "\"finish_reason\":\"length\"");
    play(wide, ASK(TOOLS), stuck, LAR_JOB_LENGTH, "\"finish_reason\":\"length\"");
    play(wide, ASK(TOOLS), stuck, LAR_JOB_STOP,
         CONTENT("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\\\"aaaaaaaaaaaaaaaaaaaaaaaa", "stop"));
    lar_serving_free(wide);
    lar_serving_free(s);
}

/* E-10: reasoning ends at a mark that is cut anywhere; stop strings hold in calls, too; special tokens are no text. */
static void test_e10_marks_and_stops_together(void **state) {
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    (void)state;
    play(
        s,
        ASK(",\"thinking\":{\"type\":\"enabled\"},\"stop\":[\"\\nUser:\",\"a string of forty characters, or longer\"]"),
        (const char *[]){"ab", "</thi", "nk>", "Hello", "\nUser", "!", NULL}, LAR_JOB_STOP,
        "\"content\":\"Hello\\nUser!\",\"refusal\":null,\"reasoning_content\":\"ab\"},\"logprobs\":null,"
        "\"finish_reason\":\"stop\"}");
    play(s, ASK(""), (const char *[]){"<think>", "ab", "X</think>Y", "<U>", "Hello", NULL}, LAR_JOB_STOP,
         "\"content\":\"YHello\",\"refusal\":null,\"reasoning_content\":\"abX\"}");
    play(s, ASK(TOOLS ",\"stop\":\"lo\""), (const char *[]){BEGIN, "f", SEP, "{\"x\":\"", "Hello", NULL}, LAR_JOB_STOP,
         "\"finish_reason\":\"stop\"");
    lar_serving_free(s);
    s = box_serving(&(box_options){.no_thinking = true});
    play(s, ASK(""), (const char *[]){"<", "think>", "ab", NULL}, LAR_JOB_STOP, CONTENT("<think>ab", "stop"));
    lar_serving_free(s);
}

static void test_reasoning_tokens(void **state) {
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    (void)state;
    play(s, ASK(",\"thinking\":{\"type\":\"enabled\"}"), (const char *[]){"ab", "Hello", "</think>", "Hello", NULL},
         LAR_JOB_STOP,
         "\"completion_tokens\":4,\"total_tokens\":9,\"prompt_tokens_details\":{\"cached_tokens\":0},"
         "\"completion_tokens_details\":{\"reasoning_tokens\":3}");
    lar_serving_free(s);
}

/* Logprobs are of the tokens that are told: what a stop string cuts off is not there, what is held back and told is. */
static void test_logprobs(void **state) {
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    (void)state;
    play(s, ASK(",\"logprobs\":true,\"stop\":\"DEFG\""), (const char *[]){"\xE6\xAD\xAA", "DEF", "G", NULL},
         LAR_JOB_STOP,
         "\"logprobs\":{\"content\":["
         "{\"token\":\"\\\\xe6\",\"logprob\":-0.5,\"bytes\":[230],\"top_logprobs\":[]},"
         "{\"token\":\"\\\\xad\",\"logprob\":-0.5,\"bytes\":[173],\"top_logprobs\":[]},"
         "{\"token\":\"\\\\xaa\",\"logprob\":-0.5,\"bytes\":[170],\"top_logprobs\":[]}],\"refusal\":null},"
         "\"finish_reason\":\"stop\"}");
    play(
        s, ASK(",\"logprobs\":true,\"top_logprobs\":2,\"stop\":\"DEFG\""), (const char *[]){"DEF", "X", NULL},
        LAR_JOB_STOP,
        "\"logprobs\":{\"content\":["
        "{\"token\":\"DEF\",\"logprob\":-0.5,\"bytes\":[68,69,70],\"top_logprobs\":["
        "{\"token\":\"DEF\",\"logprob\":-0.5,\"bytes\":[68,69,70]},{\"token\":\"b\",\"logprob\":-1.5,\"bytes\":[98]}]},"
        "{\"token\":\"X\",\"logprob\":-0.5,\"bytes\":[88],\"top_logprobs\":["
        "{\"token\":\"X\",\"logprob\":-0.5,\"bytes\":[88]},{\"token\":\"b\",\"logprob\":-1.5,\"bytes\":[98]}]}],"
        "\"refusal\":null}");
    play(s, ASK(",\"logprobs\":true,\"thinking\":{\"type\":\"enabled\"}"),
         (const char *[]){"ab", "</think>", "HI", NULL}, LAR_JOB_STOP,
         "\"logprobs\":{\"content\":[{\"token\":\"HI\",\"logprob\":-0.5,\"bytes\":[72,73],\"top_logprobs\":[]}],"
         "\"refusal\":null,\"reasoning_content\":["
         "{\"token\":\"ab\",\"logprob\":-0.5,\"bytes\":[97,98],\"top_logprobs\":[]}]}");
    /* Calls have none; text that looked like one has. */
    play(s, ASK(TOOLS ",\"logprobs\":true"), (const char *[]){BEGIN, "f", SEP, "{}", END, NULL}, LAR_JOB_STOP,
         "\"logprobs\":{\"content\":[],\"refusal\":null}");
    play(
        s, ASK(TOOLS ",\"logprobs\":true"), (const char *[]){"<｜tool▁calls▁begin｜>", "HI", NULL}, LAR_JOB_STOP,
        ",\"top_logprobs\":[]},{\"token\":\"HI\",\"logprob\":-0.5,\"bytes\":[72,73],\"top_logprobs\":[]}],\"refusal\":null}");
    lar_serving_free(s);
}

static void test_completions_body(void **state) {
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    box_client c;
    (void)state;
    box_ask(s, TEXT,
            "{\"model\":\"tiny\",\"prompt\":[\"a\",\"bc\"],\"n\":2,\"echo\":true,\"max_tokens\":3,\"stop\":\"X\"}", &c);
    assert_int_equal(box_jobs.count, 2);
    for (uint32_t job = 0; job < 2; job++) {
        box_begin(job, job);
        for (uint32_t sample = 0; sample < 2; sample++) {
            assert_true(box_tell(job, sample, sample ? "HI" : "<think>"));
            if (job) assert_false(box_tell(job, sample, "X"));
            box_sample_end(job, sample, job ? LAR_JOB_ENDED : LAR_JOB_LENGTH);
        }
        assert_int_equal(c.heads, 0);
        box_end(job, LAR_OK);
    }
    assert_string_equal(
        box_body(&c),
        "{\"id\":\"cmpl-63cbe1e459320dd7044c3cd7\",\"object\":\"text_completion\",\"created\":1700000000,"
        "\"model\":\"tiny\",\"system_fingerprint\":\"fp_1\",\"choices\":["
        "{\"text\":\"a\",\"index\":0,\"logprobs\":null,\"finish_reason\":\"length\"},"
        "{\"text\":\"aHI\",\"index\":1,\"logprobs\":null,\"finish_reason\":\"length\"},"
        "{\"text\":\"bc\",\"index\":2,\"logprobs\":null,\"finish_reason\":\"stop\"},"
        "{\"text\":\"bcHI\",\"index\":3,\"logprobs\":null,\"finish_reason\":\"stop\"}],"
        "\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":6,\"total_tokens\":11,"
        "\"prompt_tokens_details\":{\"cached_tokens\":1},\"completion_tokens_details\":{\"reasoning_tokens\":0},"
        "\"prompt_cache_hit_tokens\":1,\"prompt_cache_miss_tokens\":4}}");
    box_clear(&c);
    box_ask(s, TEXT, "{\"model\":\"tiny\",\"prompt\":[97,195],\"echo\":true}", &c);
    box_play((const char *[]){"HI", NULL}, LAR_JOB_STOP);
    expect(&c, "{\"text\":\"a\uFFFDHI\",\"index\":0,\"logprobs\":null,\"finish_reason\":\"stop\"}");
    box_clear(&c);
    box_ask(s, TEXT, "{\"model\":\"tiny\",\"prompt\":\"\",\"logprobs\":1}", &c);
    box_play((const char *[]){"HI", "\xC3\xA9", "ab", NULL}, LAR_JOB_STOP);
    expect(&c,
           "{\"text\":\"HIéab\",\"index\":0,\"logprobs\":{\"text_offset\":[0,2,3,3],"
           "\"token_logprobs\":[-0.5,-0.5,-0.5,-0.5],\"tokens\":[\"HI\",\"bytes:\\\\xc3\",\"bytes:\\\\xa9\",\"ab\"],"
           "\"top_logprobs\":[{\"HI\":-0.5},{\"bytes:\\\\xc3\":-0.5},{\"bytes:\\\\xa9\":-0.5},{\"ab\":-0.5}]},"
           "\"finish_reason\":\"stop\"}");
    box_clear(&c);
    box_ask(s, TEXT, "{\"model\":\"tiny\",\"prompt\":\"\",\"logprobs\":0}", &c);
    box_play((const char *[]){"HI", NULL}, LAR_JOB_STOP);
    expect(&c, "\"top_logprobs\":[{\"HI\":-0.5}]}");
    box_clear(&c);
    lar_serving_free(s);
}

static void expect_error(const lar_serving *s, lar_error submit, lar_error job, int status, const char *part) {
    box_client c;
    box_jobs.refuses = submit;
    box_jobs.why = "7 pages of 5";
    box_jobs.retry_ms = 1500;
    box_ask(s, CHAT, ASK(""), &c);
    if (!submit) {
        box_begin(0, 0);
        assert_true(box_tell(0, 0, "secret"));
        box_end(0, job);
    }
    assert_int_equal(c.head.status, status);
    assert_string_equal(c.head.content_type, "application/json");
    assert_int_equal(c.ends, 1);
    assert_null(strstr(box_body(&c), "secret"));
    if (!strstr(box_body(&c), part)) fail_msg("%s", box_body(&c));
    assert_int_equal(c.head.retry_ms, submit ? 1500 : 0);
    box_clear(&c);
}

static void test_errors_of_the_scheduler(void **state) {
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    (void)state;
    expect_error(s, LAR_BUSY, LAR_OK, 503, "\"type\":\"overloaded_error\",\"param\":null,\"code\":\"busy\"");
    expect_error(s, LAR_SHUTDOWN, LAR_OK, 503, "\"code\":\"shutdown\"");
    expect_error(s, LAR_LIMIT, LAR_OK, 400,
                 "\"message\":\"7 pages of 5\",\"type\":\"invalid_request_error\","
                 "\"param\":\"messages\",\"code\":\"context_length_exceeded\"");
    expect_error(s, LAR_FULL, LAR_OK, 400, "\"code\":\"context_length_exceeded\"");
    expect_error(s, LAR_INVALID, LAR_OK, 400, "\"code\":\"invalid_value\"");
    expect_error(s, LAR_OK, LAR_BUSY, 503, "\"message\":\"larder is busy: as planned\"");
    expect_error(s, LAR_OK, LAR_INVALID, 500, "\"type\":\"server_error\"");
    expect_error(s, LAR_OK, LAR_SHUTDOWN, 503, "\"code\":\"shutdown\"");
    lar_serving_free(s);
}

/* The second of three prompts is refused: the first is cancelled, and the client is told once, when it has ended. */
static void test_a_later_job_is_refused(void **state) {
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    box_client c;
    (void)state;
    box_jobs = (box_scheduler){.refuses = LAR_BUSY, .refuses_at = 1, .why = "the queue is full", .retry_ms = 9};
    box_ask(s, TEXT, "{\"model\":\"tiny\",\"prompt\":[\"a\",\"b\",\"c\"]}", &c);
    assert_int_equal(box_jobs.count, 1);
    assert_true(box_jobs.jobs[0].cancelled);
    assert_int_equal(c.heads + c.ends, 0);
    assert_false(box_tell(0, 0, "HI"));
    box_end(0, LAR_CLIENT_GONE);
    assert_int_equal(c.ends, 1);
    assert_int_equal(c.end.error, LAR_BUSY);
    assert_int_equal(c.head.status, 503);
    assert_int_equal(c.head.retry_ms, 9);
    if (!strstr(box_body(&c), "the queue is full")) fail_msg("%s", box_body(&c));
    box_clear(&c);
    lar_serving_free(s);
}

static void test_cancel(void **state) {
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    box_client c;
    (void)state;
    for (int when = 0; when < 4; when++) { /* before the start, queued, under way, when all was told */
        const lar_serving_ask ask = {.endpoint = CHAT, .body = LAR_SLICE(ASK(""))};
        box_prepare(s, &ask, &c);
        if (when == 0) lar_answer_cancel(c.answer);
        lar_answer_start(c.answer, (lar_scheduler *)&box_jobs);
        assert_int_equal(box_jobs.count, when > 0);
        if (when == 1) lar_answer_cancel(c.answer);
        if (when > 1) {
            box_begin(0, 0);
            assert_true(box_tell(0, 0, "HI"));
        }
        if (when == 2) {
            lar_answer_cancel(c.answer);
            lar_answer_cancel(c.answer);
            assert_false(box_tell(0, 0, "HI"));
        }
        if (when == 1 || when == 2) assert_true(box_jobs.jobs[0].cancelled);
        if (when == 3) box_sample_end(0, 0, LAR_JOB_STOP);
        if (when) box_end(0, when == 3 ? LAR_OK : LAR_CLIENT_GONE);
        if (when == 3) lar_answer_cancel(c.answer); /* too late: nothing happens */
        assert_int_equal(c.ends, 1);
        assert_int_equal(c.end.error, when == 3 ? LAR_OK : LAR_CLIENT_GONE);
        assert_int_equal(c.heads, when == 3);
        box_clear(&c);
    }
    lar_serving_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat_body),
        cmocka_unit_test(test_e05_limit_inside_a_character),
        cmocka_unit_test(test_e06_lone_byte),
        cmocka_unit_test(test_e07_output_that_is_no_utf8),
        cmocka_unit_test(test_e08_stop_over_tokens),
        cmocka_unit_test(test_e09_stop_inside_a_token),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_e10_marks_and_stops_together),
        cmocka_unit_test(test_reasoning_tokens),
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_completions_body),
        cmocka_unit_test(test_errors_of_the_scheduler),
        cmocka_unit_test(test_a_later_job_is_refused),
        cmocka_unit_test(test_cancel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
