/* Answers that somebody else began: what the model is given to read, and what of its tokens a client sees. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit_serving/serving_box.h"

#define ASK(more) "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"stream\":true" more "}"
#define THINKING ",\"thinking\":{\"type\":\"enabled\"}"
#define HEAD "data: {\"id\":\"far\",\"created\":5,\"choices\":["
#define DELTA(delta) HEAD "{\"index\":0,\"delta\":{" delta "},\"logprobs\":null,\"finish_reason\":null}]"
#define FINISH(why) HEAD "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"" why "\"}]"

/* Starts an answer that goes on behind the two texts. */
static void go_on(const lar_serving *s, const char *body, const char *reasoning, const char *content, box_client *c) {
    const lar_serving_begun begun = {.reasoning = lar_slice_cstr(reasoning),
                                     .content = lar_slice_cstr(content),
                                     .members = LAR_SLICE("\"id\":\"far\",\"created\":5"),
                                     .from = LAR_SLICE("main"),
                                     .to = LAR_SLICE("local"),
                                     .prompt_tokens = -1};
    const lar_serving_ask ask = {.endpoint = LAR_SERVING_CHAT,
                                 .body = lar_slice_cstr(body),
                                 .random = 7,
                                 .now = 1700000000,
                                 .local_now = 1700000000,
                                 .begun = &begun};
    box_prepare(s, &ask, c);
    lar_answer_start(c->answer, (lar_scheduler *)&box_jobs);
}

static void read_ids(const uint32_t *want, uint32_t count) {
    const lar_job_request *r = &box_jobs.jobs[0].request;
    assert_int_equal(box_jobs.count, 1);
    assert_int_equal(r->count, count);
    assert_memory_equal(r->ids, want, count * sizeof *want);
}
#define READ(...)                                                                                                      \
    do {                                                                                                               \
        static const uint32_t ids_[] = {__VA_ARGS__};                                                                  \
        read_ids(ids_, sizeof ids_ / sizeof *ids_);                                                                    \
    } while (0)

/* May the token come where `at` bytes of the opening are there? */
static bool may_come(uint32_t at, uint32_t id) {
    const lar_job_opening *o = &box_jobs.jobs[0].request.opening;
    assert_true(at < o->bytes);
    for (uint32_t i = at ? o->ends[at - 1] : 0; i < o->ends[at]; i++)
        if (o->ids[i] == id) return true;
    return false;
}

static void stop_here(box_client *c) {
    box_begin(0, 0);
    box_sample_end(0, 0, LAR_JOB_STOP);
    box_end(0, LAR_OK);
    box_clear(c);
}

/* The word goes on: it is made again, its last letters by a longer token, and the client gets the rest of that. */
static void test_in_the_middle_of_a_word(void **state) {
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    box_client c;
    (void)state;
    go_on(s, ASK(""), "", "xH", &c);
    READ(BOX_BOS, BOX_USER, 'q', BOX_ASSISTANT);
    assert_int_equal(box_jobs.jobs[0].request.opening.bytes, 2);
    assert_true(may_come(0, 'x') && !may_come(0, 'H') && !may_come(0, BOX_EOS));
    assert_true(may_come(1, 'H') && may_come(1, BOX_WORDS + 2) && may_come(1, BOX_WORDS + 8)); /* HI, Hello */
    assert_int_equal(box_jobs.jobs[0].request.opening.ends[1], 4);
    box_play((const char *[]){"x", "Hello", " world", NULL}, LAR_JOB_STOP);
    assert_int_equal(c.head.begun_tokens, 2);
    assert_string_equal(
        box_body(&c),
        DELTA("") ",\"larder\":{\"continued_by\":\"local\",\"begun_by\":\"main\",\"after_tokens\":2}}\n\n" DELTA("\"content\":\"ello\"") "}\n\n" DELTA(
            "\"content\":\" world\"") "}\n\n" FINISH("stop") "}\n\n" HEAD
                                                             "],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":3,\"total_tokens\":7,"
                                                             "\"completion_tokens_details\":{\"reasoning_tokens\":0},"
                                                             "\"larder\":{\"continued\":{\"prompt_tokens\":4,\"cached_tokens\":0,\"completion_tokens\":1},"
                                                             "\"begun\":{\"completion_tokens\":2},\"begun_by\":\"main\",\"continued_by\":\"local\"}}}\n\n"
                                                             "data: [DONE]\n\n");
    box_clear(&c);
    lar_serving_free(s);
}

static void test_reasoning(void **state) {
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    lar_serving *plain = box_serving(&(box_options){.no_thinking = true});
    box_client c;
    (void)state;
    go_on(s, ASK(THINKING), "ab", "", &c); /* the template opens it */
    READ(BOX_BOS, BOX_USER, 'q', BOX_ASSISTANT, BOX_THINK);
    assert_true(may_come(1, 'b') && !may_come(1, BOX_THINK_END));
    box_play((const char *[]){"a", "b", "x", "</think>", "HI", NULL}, LAR_JOB_STOP);
    assert_non_null(strstr(box_body(&c), DELTA("\"reasoning_content\":\"x\"") "}\n\n" DELTA("\"content\":\"HI\"")));
    assert_non_null(strstr(box_body(&c), "\"completion_tokens\":5,"));
    assert_non_null(strstr(box_body(&c), "\"reasoning_tokens\":4}"));
    box_clear(&c);
    go_on(s, ASK(""), "ab", "", &c); /* the model opened it */
    READ(BOX_BOS, BOX_USER, 'q', BOX_ASSISTANT, BOX_THINK);
    stop_here(&c);
    go_on(s, ASK(THINKING), "a</think>", "cd", &c); /* a mark in a text is text */
    READ(BOX_BOS, BOX_USER, 'q', BOX_ASSISTANT, BOX_THINK, 'a', '<', '/', 't', 'h', 'i', 'n', 'k', '>', BOX_THINK_END);
    box_play((const char *[]){"c", "d", "</think>", "e", NULL}, LAR_JOB_STOP);
    assert_non_null(strstr(box_body(&c), "\"content\":\"e\""));
    assert_null(strstr(box_body(&c), "reasoning_content"));
    assert_non_null(strstr(box_body(&c), "\"reasoning_tokens\":10}"));
    box_clear(&c);
    go_on(s, ASK(THINKING), "", "ab", &c); /* the other side kept its reasoning to itself */
    READ(BOX_BOS, BOX_USER, 'q', BOX_ASSISTANT, BOX_THINK, BOX_THINK_END);
    stop_here(&c);
    go_on(plain, ASK(""), "ab", "c", &c);
    assert_int_equal(c.head.status, 400);
    assert_int_equal(box_jobs.count, 0);
    box_clear(&c);
    lar_serving_free(s);
    lar_serving_free(plain);
}

/* A stop string that begins before the seam is found, and what only began one comes out once. */
static void test_stops_across_the_seam(void **state) {
    static const struct {
        const char *begun, *tokens[8], *content, *finish;
    } rows[] = {
        {"one EN", {" ", "E", "N", "D", "x", NULL}, "", "stop"},
        {"one EN", {" ", "E", "N", "x", "E", NULL}, "xE", "length"},
        {"one END two E", {" ", "E", "N", "E", "N", "D", NULL}, "N", "stop"},
        {"E", {"E", NULL}, "", "length"},
        {"xEN", {"x", "E", "N", "E", "N", NULL}, "EN", "length"},
    };
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_NONE});
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        box_client c;
        lar_buf content;
        lar_buf_init(&content, 64);
        go_on(s, ASK(",\"stop\":\"END\""), "", rows[i].begun, &c);
        box_play(rows[i].tokens, LAR_JOB_LENGTH);
        for (const char *at = box_body(&c); (at = strstr(at, "\"content\":\"")) != NULL;) {
            at += strlen("\"content\":\"");
            assert_int_equal(lar_buf_add(&content, at, strcspn(at, "\"")), LAR_OK);
        }
        assert_int_equal(lar_buf_add(&content, "", 1), LAR_OK);
        char finish[64];
        (void)snprintf(finish, sizeof finish, "\"finish_reason\":\"%s\"", rows[i].finish);
        assert_string_equal(content.ptr, rows[i].content);
        lar_buf_release(&content);
        assert_non_null(strstr(box_body(&c), finish));
        box_clear(&c);
    }
    lar_serving_free(s);
}

/* max_tokens is of the whole answer: what is read of what was begun counts, the word that is made again counts once. */
static void test_tokens_that_are_left(void **state) {
    static const struct {
        const char *more;
        uint32_t max;
    } rows[] = {{"", 0}, {",\"max_tokens\":14", 10}, {",\"max_tokens\":5", 1}, {",\"max_completion_tokens\":4", 1}};
    lar_serving *s = box_serving(&(box_options){.context = 25});
    box_client c;
    char body[512];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        (void)snprintf(body, sizeof body, ASK("%s"), rows[i].more);
        go_on(s, body, "", "abcdefghijkl", &c);
        assert_int_equal(box_jobs.jobs[0].request.count, 8); /* 8 tokens of a text without blanks come again */
        assert_int_equal(box_jobs.jobs[0].request.answer_max, rows[i].max);
        stop_here(&c);
    }
    go_on(s, ASK(""), "", "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz", &c);
    assert_int_equal(c.head.status, 400);
    assert_non_null(strstr(box_body(&c), "context_length_exceeded"));
    box_clear(&c);
    lar_serving_free(s);
}

static void test_what_cannot_go_on(void **state) {
    static const char *const rows[] = {",\"n\":2", ",\"logprobs\":true", ",\"add_generation_prompt\":false",
                                       ",\"response_format\":{\"type\":\"json_object\"}"};
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    box_client c;
    char body[512];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        (void)snprintf(body, sizeof body, ASK("%s"), rows[i]);
        go_on(s, body, "", "abc", &c);
        assert_int_equal(c.head.status, 400);
        assert_int_equal(box_jobs.count, 0);
        box_clear(&c);
    }
    go_on(s, "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}", "", "abc", &c);
    assert_int_equal(c.head.status, 400);
    assert_non_null(strstr(box_body(&c), "stream: an answer that has begun"));
    box_clear(&c);
    lar_serving_free(s);
}

/* Usage as the client asked for it, and prompt tokens as the other side counted them. */
static void test_usage(void **state) {
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    const lar_serving_begun begun = {.reasoning = LAR_SLICE(""),
                                     .content = LAR_SLICE("abc"),
                                     .members = LAR_SLICE("\"id\":\"far\",\"created\":5"),
                                     .from = LAR_SLICE("main"),
                                     .to = LAR_SLICE("local"),
                                     .prompt_tokens = 90};
    /* the request names the other side's model */
    const lar_serving_ask ask = {.body =
                                     LAR_SLICE("{\"model\":\"far\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]"
                                               ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}"),
                                 .begun = &begun};
    box_client c;
    (void)state;
    box_prepare(s, &ask, &c);
    lar_answer_start(c.answer, (lar_scheduler *)&box_jobs);
    box_play((const char *[]){"a", "b", "c", "d", NULL}, LAR_JOB_STOP);
    assert_non_null(strstr(box_body(&c), DELTA("\"content\":\"d\"") ",\"usage\":null}"));
    assert_non_null(strstr(box_body(&c), "\"after_tokens\":3},\"usage\":null}\n\n"));
    assert_non_null(strstr(box_body(&c), "\"prompt_tokens\":90,\"completion_tokens\":4,\"total_tokens\":94,"));
    box_clear(&c);
    lar_serving_free(s);
}

/* -- beginnings that the client itself gives ----------------------------------------------------------------------- */

#define BEGUN(message, more)                                                                                           \
    "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\"," message         \
    "}]" more "}"
#define FINAL ",\"continue_final_message\":true"

static void test_a_clients_own_beginning(void **state) {
    static const char *const asks[] = {
        BEGUN("\"content\":\"one EN\"", FINAL ",\"add_generation_prompt\":false,\"stop\":\"END\",\"max_tokens\":4"),
        BEGUN("\"content\":\"one EN\",\"prefix\":true", ",\"stop\":\"END\",\"max_tokens\":4"),
        BEGUN("\"content\":[{\"type\":\"text\",\"text\":\"one EN\"}]", FINAL ",\"stop\":\"END\",\"max_tokens\":4"),
    };
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    box_client c;
    (void)state;
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        box_ask(s, LAR_SERVING_CHAT, asks[i], &c);
        READ(BOX_BOS, BOX_USER, 'q', BOX_ASSISTANT, 'o', 'n', 'e');
        assert_int_equal(box_jobs.jobs[0].request.answer_max, 7); /* " EN" comes again */
        box_play((const char *[]){" ", "E", "N", "x", "E", "N", "D", NULL}, LAR_JOB_LENGTH);
        assert_non_null(strstr(box_body(&c), "\"message\":{\"role\":\"assistant\",\"content\":\"x\","));
        assert_non_null(strstr(box_body(&c), "\"finish_reason\":\"stop\""));
        assert_non_null(strstr(box_body(&c), "\"prompt_tokens\":10,\"completion_tokens\":4,\"total_tokens\":14,"));
        assert_non_null(strstr(box_body(&c), "\"prompt_cache_hit_tokens\":0,\"prompt_cache_miss_tokens\":10}"));
        assert_null(strstr(box_body(&c), "larder"));
        box_clear(&c);
    }
    box_ask(s, LAR_SERVING_CHAT,
            BEGUN("\"content\":\"\",\"reasoning_content\":\"ab\",\"prefix\":true", ",\"n\":2,\"stream\":true"), &c);
    READ(BOX_BOS, BOX_USER, 'q', BOX_ASSISTANT, BOX_THINK);
    assert_int_equal(box_jobs.jobs[0].request.samples, 2);
    box_begin(0, 0);
    for (uint32_t i = 0; i < 2; i++) {
        static const char *const tokens[] = {"a", "b", "x", "</think>", "HI"};
        for (size_t n = 0; n < 5; n++) assert_true(box_tell(0, i, tokens[n]));
        box_sample_end(0, i, LAR_JOB_STOP);
    }
    box_end(0, LAR_OK);
    assert_non_null(strstr(box_body(&c), "{\"index\":1,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}"));
    assert_non_null(strstr(box_body(&c), "{\"index\":1,\"delta\":{\"reasoning_content\":\"x\"}"));
    assert_non_null(strstr(box_body(&c), "{\"index\":1,\"delta\":{\"content\":\"HI\"}"));
    assert_null(strstr(box_body(&c), "\"reasoning_content\":\"a"));
    box_clear(&c);
    box_ask(s, LAR_SERVING_CHAT, BEGUN("\"content\":\"\"", FINAL), &c); /* nothing is begun */
    READ(BOX_BOS, BOX_USER, 'q', BOX_ASSISTANT);
    assert_int_equal(box_jobs.jobs[0].request.opening.bytes, 0);
    stop_here(&c);
    box_ask(s, LAR_SERVING_TOKENIZE, BEGUN("\"content\":\" a\"", FINAL), &c); /* all of it */
    assert_non_null(strstr(box_body(&c), "\"tokens\":[256,258,113,259,32,97],"));
    box_clear(&c);
    lar_serving_free(s);
}

static void test_beginnings_that_are_none(void **state) {
    static const struct {
        const char *body, *why;
    } rows[] = {
        {"{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]" FINAL "}", "messages[0].role"},
        {"{\"model\":\"tiny\",\"messages\":[{\"role\":\"assistant\",\"content\":\"q\",\"prefix\":true},"
         "{\"role\":\"user\",\"content\":\"q\"}]}",
         "messages[0].prefix"},
        {BEGUN("\"content\":5", FINAL), "messages[1].content"},
        {BEGUN("\"content\":\"a\",\"reasoning\":5", FINAL), "messages[1].reasoning"},
        {BEGUN("\"content\":[{\"type\":\"image_url\"}]", FINAL), "messages[1].content[0].type"},
        {BEGUN("\"content\":\"a\",\"tool_calls\":[]", FINAL), "messages[1].tool_calls"},
        {BEGUN("\"content\":\"a\"", FINAL ",\"logprobs\":true"), "logprobs"},
        {BEGUN("\"content\":\"a\"", ",\"continue_final_message\":1"), "continue_final_message"},
    };
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        box_client c;
        box_ask(s, LAR_SERVING_CHAT, rows[i].body, &c);
        assert_int_equal(c.head.status, 400);
        char param[80];
        (void)snprintf(param, sizeof param, "\"param\":\"%s\"", rows[i].why);
        assert_non_null(strstr(box_body(&c), param));
        box_clear(&c);
    }
    box_client c; /* what is begun elsewhere does not go on behind a beginning of the client's own */
    go_on(s, BEGUN("\"content\":\"a\",\"prefix\":true", ",\"stream\":true"), "", "abc", &c);
    assert_int_equal(c.head.status, 400);
    box_clear(&c);
    lar_serving_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_the_middle_of_a_word), cmocka_unit_test(test_reasoning),
        cmocka_unit_test(test_stops_across_the_seam),   cmocka_unit_test(test_tokens_that_are_left),
        cmocka_unit_test(test_what_cannot_go_on),       cmocka_unit_test(test_usage),
        cmocka_unit_test(test_a_clients_own_beginning), cmocka_unit_test(test_beginnings_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
