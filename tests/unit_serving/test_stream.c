/* Streamed answers: the bytes of their events, and that they say the same as one body does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit_serving/reply_reader.h"

#define CHAT LAR_SERVING_CHAT
#define TEXT LAR_SERVING_COMPLETIONS
#define ASK(more) "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"stream\":true" more "}"
#define TOOLS ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"
#define HEAD                                                                                                           \
    "data: {\"id\":\"chatcmpl-63cbe1e459320dd7044c3cd7\",\"object\":\"chat.completion.chunk\",\"created\":1700000000," \
    "\"model\":\"tiny\",\"system_fingerprint\":\"fp_1\",\"choices\":["
#define DELTA(index, delta) HEAD "{\"index\":" index ",\"delta\":{" delta "},\"logprobs\":null,\"finish_reason\":null}"
#define FINISH(index, why) HEAD "{\"index\":" index ",\"delta\":{},\"logprobs\":null,\"finish_reason\":\"" why "\"}"
#define ROLE(index) DELTA(index, "\"role\":\"assistant\",\"content\":\"\"")

static void expect_stream(box_client *c, const char *want) {
    assert_int_equal(c->head.status, 200);
    assert_string_equal(c->head.content_type, "text/event-stream");
    assert_false(c->head.has_length);
    assert_int_equal(c->ends, 1);
    assert_string_equal(box_body(c), want);
}

static void test_chat_stream(void **state) {
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    box_client c;
    (void)state;
    box_ask(s, CHAT, ASK(",\"n\":2,\"stream_options\":{\"include_usage\":true}"), &c);
    assert_int_equal(c.heads, 0);
    box_begin(0, 3);
    assert_int_equal(c.events, 2); /* the roles, at once */
    assert_true(box_tell(0, 1, "Hello"));
    assert_int_equal(c.events, 3);
    assert_true(box_tell(0, 0, "HI"));
    assert_true(box_tell(0, 1, "\""));
    box_sample_end(0, 1, LAR_JOB_STOP);
    box_sample_end(0, 0, LAR_JOB_LENGTH);
    box_end(0, LAR_OK);
#define NO_USAGE "],\"usage\":null}\n\n"
    expect_stream(&c, ROLE("0") NO_USAGE ROLE("1") NO_USAGE DELTA("1", "\"content\":\"Hello\"")
                          NO_USAGE DELTA("0", "\"content\":\"HI\"") NO_USAGE DELTA("1", "\"content\":\"\\\"\"")
                              NO_USAGE FINISH("1", "stop") NO_USAGE FINISH("0", "length") NO_USAGE HEAD
                  "],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":3,\"total_tokens\":7,"
                  "\"prompt_tokens_details\":{\"cached_tokens\":3},"
                  "\"completion_tokens_details\":{\"reasoning_tokens\":0},"
                  "\"prompt_cache_hit_tokens\":3,\"prompt_cache_miss_tokens\":1}}\n\ndata: [DONE]\n\n");
    box_clear(&c);
    lar_serving_free(s);
}

/* Reasoning, then text, then a call; no usage unless it is asked for. */
static void test_reasoning_and_calls(void **state) {
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    box_client c;
    (void)state;
    box_ask(s, CHAT, ASK(TOOLS ",\"thinking\":{\"type\":\"enabled\"}"), &c);
    box_play((const char *[]){"ab", "</think>", "HI", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "f",
                              "<｜tool▁sep｜>", "{\"", "}", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>", NULL},
             LAR_JOB_STOP);
    /* The first random numbers went to the answer's id and the seed. */
    const char *id = strstr(box_body(&c), "call_");
    assert_non_null(id);
    char want[4096], call[64];
    (void)snprintf(call, sizeof call, "%.29s", id);
    (void)snprintf(
        want, sizeof want, "%s]}\n\n%s]}\n\n%s]}\n\n%s%s%s]}\n\n%s]}\n\n%s]}\n\n%s]}\n\n%s]}\n\ndata: [DONE]\n\n",
        ROLE("0"), DELTA("0", "\"reasoning_content\":\"ab\""), DELTA("0", "\"content\":\"HI\""),
        HEAD "{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"", call,
        "\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]},\"logprobs\":null,\"finish_reason\":null}",
        DELTA("0", "\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\"}}]"),
        DELTA("0", "\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"\\\"\"}}]"),
        DELTA("0", "\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"}\"}}]"), FINISH("0", "stop"));
    expect_stream(&c, want); /* "stop": the arguments {"} are no JSON, and nobody should run such a call */
    box_clear(&c);
    lar_serving_free(s);
}

static void test_completions_stream(void **state) {
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    box_client c;
    (void)state;
    box_ask(s, TEXT, "{\"model\":\"tiny\",\"prompt\":\"a\",\"echo\":true,\"stream\":true}", &c);
    box_play((const char *[]){"HI", NULL}, LAR_JOB_LENGTH);
#define TEXT_HEAD                                                                                                      \
    "data: {\"id\":\"cmpl-63cbe1e459320dd7044c3cd7\",\"object\":\"text_completion\",\"created\":1700000000,"           \
    "\"model\":\"tiny\",\"system_fingerprint\":\"fp_1\",\"choices\":[{\"text\":\""
    expect_stream(&c, TEXT_HEAD "a\",\"index\":0,\"logprobs\":null,\"finish_reason\":null}]}\n\n" TEXT_HEAD
                                "HI\",\"index\":0,\"logprobs\":null,\"finish_reason\":null}]}\n\n" TEXT_HEAD
                                "\",\"index\":0,\"logprobs\":null,\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n");
    box_clear(&c);
    box_ask(s, TEXT, "{\"model\":\"tiny\",\"prompt\":\"a\",\"logprobs\":1,\"stream\":true}", &c);
    box_play((const char *[]){"\xC3", "\xA9", "HI", NULL}, LAR_JOB_LENGTH);
    assert_non_null(strstr(box_body(&c),
                           "{\"text\":\"é\",\"index\":0,\"logprobs\":{\"text_offset\":[0,1],\"token_logprobs\":"
                           "[-0.5,-0.5],\"tokens\":[\"bytes:\\\\xc3\",\"bytes:\\\\xa9\"],"));
    assert_non_null(strstr(box_body(&c), "{\"text\":\"HI\",\"index\":0,\"logprobs\":{\"text_offset\":[1],"));
    box_clear(&c);
    lar_serving_free(s);
}

/* T-06 and E-10: an event when characters are whole and no stop string can come of them, and no later. */
static void test_t06_e10_held_no_longer_than_needed(void **state) {
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    box_client c;
    static const struct {
        uint32_t id, events; /* that this token brings */
    } tokens[] = {{0xE6, 0}, {0xAD, 0}, {0xAA, 1}, {0xF0, 0}, {0x9F, 0},          {0x91, 0}, {0xA8, 1},
                  {0xE2, 0}, {0x80, 0}, {0x8D, 1}, {'x', 1},  {'\n', 0},          {'U', 0},  {'s', 0},
                  {'x', 1},  {'a', 0},  {'\n', 1}, {'\n', 1}, {BOX_ASSISTANT, 0}, {'U', 0},  {'!', 1}};
    (void)state;
    box_ask(s, CHAT, ASK(",\"stop\":[\"\\nUser:\",\"a text of more than forty characters, which never comes\"]"), &c);
    box_begin(0, 0);
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        uint32_t before = c.events;
        assert_true(box_tell_id(0, 0, tokens[i].id));
        assert_int_equal(c.events - before, tokens[i].events); /* "a" could begin the long one */
    }
    box_sample_end(0, 0, LAR_JOB_STOP);
    box_end(0, LAR_OK);
    reply r;
    reply_read_stream(lar_buf_slice(&c.body), &r);
    assert_true(lar_slice_eq_cstr(lar_buf_slice(&r.choices[0].content), "歪👨\u200Dx\nUsxa\n\nU!"));
    reply_release(&r);
    box_clear(&c);
    lar_serving_free(s);
}

static void test_errors_in_mid_stream(void **state) {
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    box_client c;
    (void)state;
    for (int told = 0; told < 2; told++) {
        box_ask(s, CHAT, ASK(""), &c);
        if (told) box_begin(0, 0);
        if (told) assert_true(box_tell(0, 0, "HI"));
        box_end(0, LAR_SHUTDOWN);
        assert_int_equal(c.head.status, told ? 200 : 503);
        assert_int_equal(c.end.error, LAR_SHUTDOWN);
        assert_null(strstr(box_body(&c), "[DONE]"));
        const char *error =
            "{\"error\":{\"message\":\"larder is shutting down: as planned\",\"type\":\"overloaded_error\","
            "\"param\":null,\"code\":\"shutdown\"}}";
        char want[2048];
        (void)snprintf(want, sizeof want, "%s%s%s%s", told ? ROLE("0") "]}\n\n" : "",
                       told ? DELTA("0", "\"content\":\"HI\"") "]}\n\ndata: " : "", error, told ? "\n\n" : "");
        assert_string_equal(box_body(&c), want);
        box_clear(&c);
    }
    box_ask(s, CHAT, ASK(""), &c);
    box_begin(0, 0);
    assert_true(box_tell(0, 0, "HI"));
    uint32_t events = c.events;
    lar_answer_cancel(c.answer);
    assert_false(box_tell(0, 0, "HI"));
    box_sample_end(0, 0, LAR_JOB_ENDED);
    box_end(0, LAR_CLIENT_GONE);
    assert_int_equal(c.events, events);
    box_clear(&c);
    lar_serving_free(s);
}

/* -- random tokens ------------------------------------------------------------------------------------------------- */

static uint64_t next(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

/* The same tokens, streamed or in one body. */
static void play_random(const lar_serving *s, bool stream, bool tools, uint64_t seed, reply *out) {
    static const char *const more[] = {
        "", ",\"logprobs\":true,\"top_logprobs\":3", ",\"stop\":[\"ab\",\"Hello w\",\"é\"]",
        ",\"logprobs\":true,\"stop\":[\"abc\",\"<\"],\"thinking\":{\"type\":\"enabled\"}"};
    char body[512];
    box_client c;
    (void)snprintf(body, sizeof body, "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]%s%s%s}",
                   more[next(&seed) % 4], tools ? TOOLS : "",
                   stream ? ",\"stream\":true,\"stream_options\":{\"include_usage\":true}" : "");
    box_ask(s, CHAT, body, &c);
    if (c.heads) fail_msg("%s", box_body(&c));
    box_begin(0, 1);
    bool more_tokens = true;
    uint64_t count = next(&seed) % 40;
    for (uint64_t i = 0; i < count && more_tokens; i++) {
        /* mostly letters of the stops, marks, parts of characters */
        static const uint32_t likely[] = {'a', 'b', 'c', '<', 0xC3, 0xA9, 0xE2, 0x80, 0xF0, '{', '}', '"'};
        uint64_t pick = next(&seed);
        uint32_t id = pick % 3 == 0   ? likely[next(&seed) % 12]
                      : pick % 3 == 1 ? BOX_BOS + (uint32_t)(next(&seed) % 64)
                                      : (uint32_t)(next(&seed) % BOX_VOCAB);
        more_tokens = box_tell_id(0, 0, id);
    }
    box_sample_end(0, 0, more_tokens ? LAR_JOB_LENGTH : LAR_JOB_ENDED);
    box_end(0, LAR_OK);
    assert_int_equal(c.head.status, 200);
    if (stream) reply_read_stream(lar_buf_slice(&c.body), out);
    else reply_read_body(lar_buf_slice(&c.body), out);
    assert_true(out->has_usage && out->done);
    assert_int_equal(out->completion, box_jobs.jobs[0].told[0]);
    box_clear(&c);
}

static void test_random_tokens(void **state) {
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31, .call_tokens_max = 30});
    (void)state;
    for (uint64_t seed = 1; seed <= 1000; seed++) {
        reply a, b;
        bool tools = seed % 2 == 0;
        play_random(s, true, tools, seed, &a);
        play_random(s, false, tools, seed, &b);
        const reply_choice *x = &a.choices[0], *y = &b.choices[0];
        const lar_buf *pairs[][2] = {{&x->content, &y->content},
                                     {&x->reasoning, &y->reasoning},
                                     {&x->probs, &y->probs},
                                     {&x->reasoning_probs, &y->reasoning_probs}};
        /* With tools a stream tells calls before they are whole; one that has no end is text in a body. */
        for (size_t i = 0; i < 4 && !tools; i++)
            if (!lar_slice_eq(lar_buf_slice(pairs[i][0]), lar_buf_slice(pairs[i][1])))
                fail_msg("seed %llu, %zu: %.*s\nor %.*s", (unsigned long long)seed, i,
                         LAR_FMT(lar_buf_slice(pairs[i][0])), LAR_FMT(lar_buf_slice(pairs[i][1])));
        if (!tools) assert_string_equal(x->finish, y->finish);
        assert_int_equal(a.completion, b.completion);
        assert_int_equal(a.reasoning, b.reasoning);
        reply_release(&a);
        reply_release(&b);
    }
    lar_serving_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat_stream),          cmocka_unit_test(test_reasoning_and_calls),
        cmocka_unit_test(test_completions_stream),   cmocka_unit_test(test_t06_e10_held_no_longer_than_needed),
        cmocka_unit_test(test_errors_in_mid_stream), cmocka_unit_test(test_random_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
