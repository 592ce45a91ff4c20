/* Requests out of logs: every form, its protocol, time, answer and place; bad records; documents and lines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/commands/request_log.h"

static lar_request_log *open_text(const char *text, lar_log_reading reading) {
    lar_request_log *l;
    lar_diag d;
    lar_request_log_options o = {.reading = reading};
    assert_int_equal(lar_request_log_open_text("log", lar_slice_cstr(text), &o, &l, &d), LAR_OK);
    return l;
}

static void body_is(const lar_log_request *r, const char *body) {
    lar_json j;
    lar_diag d;
    assert_int_equal(r->body.len, strlen(body));
    assert_memory_equal(r->body.ptr, body, r->body.len);
    lar_json_init(&j);
    assert_int_equal(lar_json_parse(&j, r->body, NULL, &d), LAR_OK);
    lar_json_release(&j);
}

typedef struct form_case {
    const char *record, *body;
    lar_log_form form;
    lar_protocol protocol;
    int64_t time_ms;
    const char *answer; /* the answer's bytes; NULL: none */
} form_case;

#define U "{\"role\":\"user\",\"content\":\"u\"}"
#define A "{\"role\":\"assistant\",\"content\":\"a\"}"

static const form_case forms[] = {
    {"{\"model\":\"m\",\"messages\":[" U "]}", "{\"model\":\"m\",\"messages\":[" U "]}", LAR_LOG_BODY,
     LAR_PROTOCOL_CHAT, 0, NULL},
    {"{\"model\":\"claude-opus-5\",\"messages\":[" U "]}", "{\"model\":\"claude-opus-5\",\"messages\":[" U "]}",
     LAR_LOG_BODY, LAR_PROTOCOL_MESSAGES, 0, NULL},
    {"{\"system\":\"s\",\"messages\":[" U "]}", "{\"system\":\"s\",\"messages\":[" U "]}", LAR_LOG_BODY,
     LAR_PROTOCOL_MESSAGES, 0, NULL},
    {"{\"model\":\"m\",\"input\":\"hi\"}", "{\"model\":\"m\",\"input\":\"hi\"}", LAR_LOG_BODY, LAR_PROTOCOL_RESPONSES,
     0, NULL},
    {"{\"model\":\"m\",\"prompt\":\"hi\"}", "{\"model\":\"m\",\"prompt\":\"hi\"}", LAR_LOG_BODY,
     LAR_PROTOCOL_COMPLETIONS, 0, NULL},
    {"[" U "]", "{\"messages\":[" U "]}", LAR_LOG_ARRAY, LAR_PROTOCOL_CHAT, 0, NULL},
    {"{\"custom_id\":\"r-1\",\"method\":\"POST\",\"url\":\"/v1/responses\",\"body\":{\"input\":\"x\"}}",
     "{\"input\":\"x\"}", LAR_LOG_BATCH, LAR_PROTOCOL_RESPONSES, 0, NULL},
    {"{\"request\":{\"messages\":[" U "]},\"response\":{\"choices\":[{\"message\":" A "}]},\"timestamp\":1933485342}",
     "{\"messages\":[" U "]}", LAR_LOG_PAIR, LAR_PROTOCOL_CHAT, 1933485342000, A},
    {"{\"request\":{\"url\":\"https://h/v1/messages\",\"body\":{\"messages\":[" U "]}},\"response\":{\"status\":200,"
     "\"body\":" A "}}",
     "{\"messages\":[" U "]}", LAR_LOG_PAIR, LAR_PROTOCOL_MESSAGES, 0, A},
    {"{\"request\":{\"input\":\"q\",\"model\":\"m\"},\"response\":{\"output\":[1]}}",
     "{\"input\":\"q\",\"model\":\"m\"}", LAR_LOG_PAIR, LAR_PROTOCOL_RESPONSES, 0, "[1]"},
    {"{\"id\":\"x\",\"call_type\":\"acompletion\",\"model\":\"m\",\"startTime\":1933485342.5,\"messages\":[" U
     "],\"response\":{\"choices\":[{\"message\":" A "}]},\"model_parameters\":{\"tools\":[],\"user\":null,\"n\":1}}",
     "{\"model\":\"m\",\"messages\":[" U "],\"tools\":[],\"n\":1}", LAR_LOG_LITELLM, LAR_PROTOCOL_CHAT, 1933485342500,
     A},
    {"{\"standard_logging_object\":{\"call_type\":\"anthropic_messages\",\"model\":\"c\",\"messages\":[" U
     "],\"model_parameters\":{\"system\":\"s\"}}}",
     "{\"model\":\"c\",\"system\":\"s\",\"messages\":[" U "]}", LAR_LOG_LITELLM, LAR_PROTOCOL_MESSAGES, 0, NULL},
    {"{\"type\":\"GENERATION\",\"startTime\":\"2031-04-09T07:15:42.118Z\",\"model\":\"m\",\"input\":[" U
     "],\"output\":" A ",\"modelParameters\":{\"temperature\":1}}",
     "{\"model\":\"m\",\"messages\":[" U "],\"temperature\":1}", LAR_LOG_LANGFUSE, LAR_PROTOCOL_CHAT, 1933485342118, A},
    {"{\"type\":\"GENERATION\",\"start_time\":\"2031-04-09 07:15:42.118000\",\"provided_model_name\":\"m\",\"input\":"
     "\"{\\\"messages\\\":[{\\\"role\\\":\\\"user\\\",\\\"content\\\":\\\"u\\\"}],\\\"tools\\\":[{\\\"a\\\":1}]}\","
     "\"output\":\"{\\\"role\\\":\\\"assistant\\\",\\\"content\\\":\\\"a\\\"}\"}",
     "{\"model\":\"m\",\"tools\":[{\"a\":1}],\"messages\":[" U "]}", LAR_LOG_LANGFUSE, LAR_PROTOCOL_CHAT, 1933485342118,
     A},
    {"{\"traceId\":\"t\",\"input\":\"just text\",\"output\":\"more\"}", "{\"input\":\"just text\"}", LAR_LOG_LANGFUSE,
     LAR_PROTOCOL_RESPONSES, 0, NULL},
    {"{\"traceId\":\"t\",\"input\":{\"question\":\"q\"}}", NULL, LAR_LOG_LANGFUSE, LAR_PROTOCOL_NONE, 0, NULL},
    {"{\"seq\":1,\"prefix_hash\":\"0\",\"hit_tokens\":5,\"prompt_tokens\":9}", "", LAR_LOG_EXPORT, LAR_PROTOCOL_NONE, 0,
     NULL},
};

static void test_forms(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const form_case *c = &forms[i];
        lar_log_request r;
        lar_diag d;
        lar_request_log *l = open_text(c->record, LAR_LOG_AUTO);
        lar_error e = lar_request_log_next(l, &r, &d);
        assert_int_equal(r.line, 1);
        if (!c->body) {
            assert_int_equal(e, LAR_INVALID);
            assert_true(d.text[0]);
        } else {
            assert_int_equal(e, LAR_OK);
            assert_int_equal(r.form, c->form);
            assert_int_equal(r.protocol, c->protocol);
            assert_int_equal(r.time_ms, c->time_ms);
            if (*c->body) body_is(&r, c->body);
            assert_int_equal(r.answer != LAR_JSON_NONE, c->answer != NULL);
            if (c->answer) {
                lar_slice a = lar_json_raw(r.answer_json, r.answer);
                assert_int_equal(a.len, strlen(c->answer));
                assert_memory_equal(a.ptr, c->answer, a.len);
            }
        }
        assert_int_equal(lar_request_log_next(l, &r, &d), LAR_NOT_FOUND);
        assert_int_equal(lar_request_log_next(l, &r, &d), LAR_NOT_FOUND);
        lar_request_log_close(l);
    }
}

#define SYS "{\"role\":\"system\",\"content\":\"s\"}"
#define TALK SYS "," A "," U "," A "," U ", " A

static void test_conversation(void **state) {
    (void)state;
    static const char *const records[] = {"{\"id\":\"c\",\"tools\":[1],\"messages\":[" TALK "]}",
                                          "{\"id\":\"c\",\"model\":\"m\",\"messages\":[" TALK "]}", "[" TALK "]"};
    static const char *const heads[] = {"{\"tools\":[1],", "{\"model\":\"m\",", "{"};
    for (size_t i = 0; i < 3; i++) {
        lar_log_request r;
        lar_diag d;
        char want[512];
        lar_request_log *l = open_text(records[i], LAR_LOG_AUTO);
        assert_int_equal(lar_request_log_next(l, &r, &d), LAR_OK);
        assert_int_equal(r.form, LAR_LOG_CONVERSATION);
        assert_int_equal(r.call, 0);
        (void)snprintf(want, sizeof want, "%s\"messages\":[" SYS "," A "," U "]}", heads[i]);
        body_is(&r, want);
        assert_int_equal(lar_request_log_next(l, &r, &d), LAR_OK);
        assert_int_equal(r.call, 1);
        (void)snprintf(want, sizeof want, "%s\"messages\":[" SYS "," A "," U "," A "," U "]}", heads[i]);
        body_is(&r, want);
        assert_int_equal(lar_json_raw(r.answer_json, r.answer).len, strlen(A));
        assert_int_equal(lar_request_log_next(l, &r, &d), LAR_NOT_FOUND);
        lar_request_log_close(l);
    }
}

static void test_reading_can_be_chosen(void **state) {
    (void)state;
    lar_log_request r;
    lar_diag d;
    lar_request_log *l = open_text("{\"messages\":[" TALK "]}", LAR_LOG_REQUESTS);
    assert_int_equal(lar_request_log_next(l, &r, &d), LAR_OK);
    body_is(&r, "{\"messages\":[" TALK "]}");
    assert_int_equal(lar_request_log_next(l, &r, &d), LAR_NOT_FOUND);
    lar_request_log_close(l);
    /* a request in the middle of a conversation, whose model is named */
    const char *middle = "{\"model\":\"m\",\"messages\":[" U "," A "," U "]}";
    l = open_text(middle, LAR_LOG_AUTO);
    assert_int_equal(lar_request_log_next(l, &r, &d), LAR_OK);
    body_is(&r, middle);
    lar_request_log_close(l);
    l = open_text(middle, LAR_LOG_CONVERSATIONS);
    assert_int_equal(lar_request_log_next(l, &r, &d), LAR_OK);
    body_is(&r, "{\"model\":\"m\",\"messages\":[" U "]}");
    lar_request_log_close(l);
    lar_request_log_options o = {.protocol = LAR_PROTOCOL_MESSAGES};
    assert_int_equal(lar_request_log_open_text("log", lar_slice_cstr(middle), &o, &l, &d), LAR_OK);
    assert_int_equal(lar_request_log_next(l, &r, &d), LAR_OK);
    assert_int_equal(r.protocol, LAR_PROTOCOL_MESSAGES);
    lar_request_log_close(l);
}

typedef struct step {
    lar_error error; /* LAR_OK: a request */
    uint64_t line, column;
} step;

static void walk(const char *text, const step *steps, size_t count) {
    lar_request_log *l = open_text(text, LAR_LOG_AUTO);
    lar_log_request r;
    lar_diag d;
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(lar_request_log_next(l, &r, &d), steps[i].error);
        assert_int_equal(r.line, steps[i].line);
        if (steps[i].column) assert_int_equal(r.column, steps[i].column);
        assert_int_equal(steps[i].error == LAR_OK || steps[i].error == LAR_NOT_FOUND, d.text[0] == 0);
    }
    assert_int_equal(lar_request_log_next(l, &r, &d), LAR_NOT_FOUND);
    lar_request_log_close(l);
}
#define WALK(text, ...) walk(text, (const step[]){__VA_ARGS__}, sizeof((const step[]){__VA_ARGS__}) / sizeof(step))

#define R "{\"messages\":[" U "]}"

static void test_lines_and_bad_records(void **state) {
    (void)state;
    WALK(R "\n\n \r\n" R "\r\n" R, {LAR_OK, 1, 0}, {LAR_OK, 4, 0}, {LAR_OK, 5, 0});
    WALK("\xEF\xBB\xBF" R "\n" R "\n", {LAR_OK, 1, 0}, {LAR_OK, 2, 0});
    /* the first line, a later one, one that is JSON and no request */
    WALK("{\"a\":\n" R "\n", {LAR_JSON_SYNTAX, 1, 6}, {LAR_OK, 2, 0});
    WALK("{\"messages\":[{\"ro\n" R "\n", {LAR_JSON_SYNTAX, 1, 0}, {LAR_OK, 2, 0});
    WALK(R "\n{\"messages\":[1}\n" R "\n", {LAR_OK, 1, 0}, {LAR_JSON_SYNTAX, 2, 15}, {LAR_OK, 3, 0});
    WALK(R "\n{\"hello\":1}\n7\n\"x\"\n" R "\n", {LAR_OK, 1, 0}, {LAR_INVALID, 2, 0}, {LAR_INVALID, 3, 0},
         {LAR_INVALID, 4, 0}, {LAR_OK, 5, 0});
    WALK("not json at all\n", {LAR_JSON_SYNTAX, 1, 2});
    WALK("", {LAR_NOT_FOUND, 0, 0});
    WALK("\n\n", {LAR_NOT_FOUND, 2, 0});
    WALK("[]", {LAR_NOT_FOUND, 1, 0});
}

static void test_documents(void **state) {
    (void)state;
    WALK("\n{\n \"messages\": [\n  " U "\n ]\n}\n", {LAR_OK, 2, 0});
    WALK("[\n" R ",\n{\"x\":1},\n\n" R "]\n", {LAR_OK, 2, 0}, {LAR_INVALID, 3, 0}, {LAR_OK, 5, 0});
    WALK("[" R "," R "]", {LAR_OK, 1, 0}, {LAR_OK, 1, 0});
    WALK("[\n" U "\n]", {LAR_OK, 1, 0});
    WALK("{\n \"messages\": [\n  " U "\n }\n}\n", {LAR_JSON_SYNTAX, 4, 2}); /* an error is where it is */
}

static void test_what_is_no_prompt_is_passed_over(void **state) {
    (void)state;
    lar_request_log *l = open_text("{\"type\":\"SPAN\",\"traceId\":\"t\",\"input\":{\"q\":1}}\n"
                                   "{\"call_type\":\"aembedding\",\"messages\":[\"x\"],\"model\":\"e\"}\n"
                                   "{\"model\":\"text-embedding-3\",\"input\":\"x\"}\n" R "\n",
                                   LAR_LOG_AUTO);
    lar_log_request r;
    lar_diag d;
    assert_int_equal(lar_request_log_next(l, &r, &d), LAR_OK);
    assert_int_equal(r.line, 4);
    assert_int_equal(lar_request_log_passed(l), 3);
    lar_request_log_close(l);
}

/* The place of `needle` in the body is that of `needle` in the file. */
static void place_is(const char *text, const char *needle, uint64_t line, uint64_t column) {
    lar_request_log *l = open_text(text, LAR_LOG_AUTO);
    lar_log_request r;
    lar_diag d;
    uint64_t got_line, got_column;
    assert_int_equal(lar_request_log_next(l, &r, &d), LAR_OK);
    const char *at = memmem(r.body.ptr, r.body.len, needle, strlen(needle));
    assert_non_null(at);
    lar_request_log_place(l, (uint32_t)(at - r.body.ptr), &got_line, &got_column);
    assert_int_equal(got_line, line);
    assert_int_equal(got_column, column);
    lar_request_log_close(l);
}

static void test_places(void **state) {
    (void)state;
    place_is("{\"messages\":[" U "]}", "\"u\"", 1, 39);
    place_is("{\n\"messages\":[\n" U "]}", "\"u\"", 3, 26);
    place_is("[\n" U "]", "\"u\"", 2, 26);
    place_is("[\n" R "]", "\"u\"", 2, 39);
    place_is("{\"id\":1,\"messages\":[" U ",\n" A "]}", "\"u\"", 1, 46);
    place_is("{\"call_type\":\"x\",\"model_parameters\":{\"top_p\":1},\n\"messages\":[" U "]}", "\"u\"", 2, 38);
    place_is("{\"call_type\":\"x\",\"model_parameters\":{\"top_p\":1},\n\"messages\":[" U "]}", "top_p", 1, 39);
    place_is("{\"traceId\":1,\n\"input\":[" U "]}", "\"u\"", 2, 35);
}

static void test_files(void **state) {
    (void)state;
    lar_request_log *l;
    lar_diag d;
    lar_log_request r;
    char path[] = "/tmp/larder-log-XXXXXX";
    assert_int_equal(lar_request_log_open("/nowhere/at/all", NULL, &l, &d), LAR_IO);
    assert_non_null(strstr(d.text, "No such file"));
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *f = fdopen(fd, "wb");
    assert_non_null(f);
    for (int i = 0; i < 3000; i++) (void)fprintf(f, "{\"model\":\"m%d\",\"messages\":[" U "]}\n", i);
    (void)fclose(f);
    assert_int_equal(lar_request_log_open(path, NULL, &l, &d), LAR_OK);
    for (int i = 0; i < 3000; i++) {
        char want[64];
        assert_int_equal(lar_request_log_next(l, &r, &d), LAR_OK);
        assert_int_equal(r.line, i + 1);
        (void)snprintf(want, sizeof want, "{\"model\":\"m%d\",", i);
        assert_memory_equal(r.body.ptr, want, strlen(want));
    }
    assert_int_equal(lar_request_log_next(l, &r, &d), LAR_NOT_FOUND);
    lar_request_log_close(l);
    assert_int_equal(lar_request_log_open("/tmp", NULL, &l, &d), LAR_OK);
    assert_int_equal(lar_request_log_next(l, &r, &d), LAR_IO); /* a folder */
    lar_request_log_close(l);
    (void)unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_conversation),
        cmocka_unit_test(test_reading_can_be_chosen),
        cmocka_unit_test(test_lines_and_bad_records),
        cmocka_unit_test(test_documents),
        cmocka_unit_test(test_what_is_no_prompt_is_passed_over),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
