/* The history of tool calls: what is found in it, what each provider would answer, and how it is repaired. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "policies/history.h"

#define CHAT LAR_PROTOCOL_CHAT
#define MESSAGES LAR_PROTOCOL_MESSAGES
#define RESPONSES LAR_PROTOCOL_RESPONSES

typedef struct bench {
    lar_json j;
    lar_arena arena;
    lar_request_view v;
} bench;

static void bench_init(bench *b) {
    lar_json_init(&b->j);
    lar_arena_init(&b->arena, 64u << 20);
}
static void bench_release(bench *b) {
    lar_json_release(&b->j);
    lar_arena_release(&b->arena);
}

static void read_body(bench *b, lar_protocol p, const char *body) {
    lar_diag d = {{0}, 0, 0};
    lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
    lar_arena_reset(&b->arena, 1u << 20);
    lar_error e = lar_json_parse(&b->j, lar_slice_cstr(body), &limits, &d);
    if (e) print_error("%s\n", body);
    assert_int_equal(e, LAR_OK);
    assert_int_equal(lar_request_view_read(&b->v, &b->j, p, &b->arena, &d), LAR_OK);
}

/* The repaired body, malloc'ed; NULL if nothing is to be done. */
static char *mend(bench *b, lar_protocol p, const char *body) {
    lar_splices edits;
    bool found;
    read_body(b, p, body);
    assert_int_equal(lar_rule_tool_history(&b->v, &b->arena, &edits, &found), LAR_OK);
    assert_int_equal(found, edits.count > 0);
    if (edits.count == 0) return NULL;
    struct iovec *iov = calloc(lar_splices_iov_max(&edits), sizeof *iov);
    uint32_t n = lar_splices_iov(&edits, b->j.body, iov);
    char *out = malloc(lar_splices_length(&edits, b->j.body.len) + 1);
    size_t at = 0;
    for (uint32_t i = 0; i < n; at += iov[i++].iov_len) memcpy(out + at, iov[i].iov_base, iov[i].iov_len);
    out[at] = 0;
    free(iov);
    return out;
}

/* -- repair: a body and what is sent in its place, or NULL for itself ------------------------------------ */

#define U "{\"role\":\"user\",\"content\":\"u\"}"
#define A "{\"role\":\"assistant\",\"content\":\"a\"}"
#define CALL(id) "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"" id "\",\"type\":\"function\"}]}"
#define CALLS(x, y) "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"" x "\"},{\"id\":\"" y "\"}]}"
#define T(id) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"r\"}"
#define STUB(id)                                                                                                       \
    "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"No result is available for this tool call.\"}"
#define M(list) "{\"messages\":[" list "]}"

#define USE(id) "{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"" id "\"}]}"
#define USES(x, y)                                                                                                     \
    "{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"" x "\"},{\"type\":\"tool_use\",\"id\":\"" y \
    "\"}]}"
#define R(id) "{\"type\":\"tool_result\",\"tool_use_id\":\"" id "\",\"content\":\"r\"}"
#define RSTUB(id)                                                                                                      \
    "{\"type\":\"tool_result\",\"tool_use_id\":\"" id                                                                  \
    "\",\"content\":\"No result is available for this tool call.\",\"is_error\":true}"
#define X "{\"type\":\"text\",\"text\":\"x\"}"
#define UR(list) "{\"role\":\"user\",\"content\":[" list "]}"

#define FC(id) "{\"type\":\"function_call\",\"call_id\":\"" id "\",\"name\":\"f\",\"arguments\":\"{}\"}"
#define FO(id) "{\"type\":\"function_call_output\",\"call_id\":\"" id "\",\"output\":\"r\"}"
#define FSTUB(id)                                                                                                      \
    "{\"type\":\"function_call_output\",\"call_id\":\"" id                                                             \
    "\",\"output\":\"No result is available for this tool call.\"}"
#define I(list) "{\"input\":[" list "]}"

typedef struct repair {
    lar_protocol protocol;
    const char *body, *sent;
} repair;

static const repair repairs[] = {
    {CHAT, M(U "," CALL("a") "," T("a") "," A), NULL},
    {CHAT, M(U "," CALLS("a", "b") "," T("b") "," T("a")), NULL}, /* in any order */
    {CHAT, M(U "," CALL("a") "," T("a") "," CALL("a") "," T("a")), NULL},
    {CHAT, M(CALL("a") "," U), M(CALL("a") "," STUB("a") "," U)},
    {CHAT, M(CALL("a")), M(CALL("a") "," STUB("a"))},
    {CHAT, M(CALLS("a", "b") ", " T("b") " ," U), M(CALLS("a", "b") ", " T("b") "," STUB("a") " ," U)},
    {CHAT, M(T("z") " , " U "," CALL("a") "," T("a")), M(U "," CALL("a") "," T("a"))},
    {CHAT, M(U "," T("z") "," A), M(U "," A)},
    {CHAT, M(T("z")), M("")},
    {CHAT, M(CALL("a") "," U "," T("a") "," A), M(CALL("a") "," T("a") "," U "," A)},
    {CHAT, M(U "," T("a") "," CALL("a")), M(U "," CALL("a") "," T("a"))},
    {CHAT, M(CALL("a") "," T("a") "," T("a") "," U), M(CALL("a") "," T("a") "," U)},
    {CHAT, M(CALL("a") "," T("a") "," U "," T("a")), M(CALL("a") "," T("a") "," U)},
    {CHAT, M(CALL("a") "," CALL("b") "," T("a") "," T("b")), M(CALL("a") "," T("a") "," CALL("b") "," T("b"))},
    {CHAT, M(CALL("a") "," T("z") "," U), M(CALL("a") "," STUB("a") "," U)},
    {CHAT, M(CALL("\\u0061") "," T("a")), NULL}, /* ids are compared as they are read */
    {CHAT, M(CALL("q\\\"") "," U), M(CALL("q\\\"") "," STUB("q\\\"") "," U)},
    {CHAT, M("{\"role\":\"assistant\",\"tool_calls\":[{}]}," U), NULL}, /* without an id nothing can be said */
    {CHAT, M("{\"role\":\"tool\",\"content\":\"r\"}"), NULL},
    {CHAT, M("{\"role\":\"assistant\",\"function_call\":{}},{\"role\":\"function\",\"content\":\"r\"}"), NULL},
    {CHAT, M(CALLS("a", "a") "," T("a") "," T("a")), NULL}, /* two calls of one id have a result each */

    {MESSAGES, M(U "," USE("a") "," UR(R("a") "," X)), NULL},
    {MESSAGES, M(USES("a", "b") "," UR(R("a")) "," UR(R("b"))), NULL}, /* neighbours count as one message */
    {MESSAGES, M(USE("a") "," USE("b") "," UR(R("b") "," R("a"))), NULL},
    {MESSAGES, M(USE("a")), M(USE("a") "," UR(RSTUB("a")))},
    {MESSAGES, M(USE("a") "," A "," U),
     M(USE("a") "," A ",{\"role\":\"user\",\"content\":[" RSTUB("a") ",{\"type\":\"text\",\"text\":\"u\"}]}")},
    {MESSAGES, M(USE("a") ",{\"role\":\"user\",\"content\":\"\"}"), M(USE("a") "," UR(RSTUB("a")))},
    {MESSAGES, M(USE("a") ",{\"role\":\"user\",\"content\":[]}"), M(USE("a") "," UR(RSTUB("a")))},
    {MESSAGES, M(USES("a", "b") "," UR(R("b") " , " X)), M(USES("a", "b") "," UR(R("b") "," RSTUB("a") " , " X))},
    {MESSAGES, M(USE("a") "," UR(X ", " R("a"))), M(USE("a") "," UR(R("a") "," X))},
    {MESSAGES, M(USE("a") "," U "," UR(R("a")) "," A),
     M(USE("a") ",{\"role\":\"user\",\"content\":[" R("a") ",{\"type\":\"text\",\"text\":\"u\"}]}," A)},
    {MESSAGES, M(U "," UR(R("z")) "," A), M(U "," A)},
    {MESSAGES, M(UR(R("z")) "," A),
     M("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"[A tool result was left out: its call is not part of this conversation.]\"}]}," A)},
    {MESSAGES, M(U "," A "," UR(X "," R("z") "," X)), M(U "," A "," UR(X "," X))},
    {MESSAGES, M(USE("a") "," UR(R("a") "," R("a") "," X)), M(USE("a") "," UR(R("a") "," X))},
    {MESSAGES,
     "{\"system\":\"s\","
     "\"messages\":[" USE("a") ",{\"role\":\"system\",\"content\":\"s\"}]}",
     "{\"system\":\"s\","
     "\"messages\":[" USE("a") "," UR(RSTUB("a")) ",{\"role\":\"system\",\"content\":\"s\"}]}"},
    /* a moved block keeps its mark, the mark of a dropped one goes to its neighbour */
    {MESSAGES,
     M(USE("a") "," UR(X
                       ",{\"type\":\"tool_result\",\"tool_use_id\":\"a\",\"cache_control\":{\"type\":\"ephemeral\"}}")),
     M(USE("a") "," UR(
         "{\"type\":\"tool_result\",\"tool_use_id\":\"a\",\"cache_control\":{\"type\":\"ephemeral\"}}," X))},
    {MESSAGES,
     M(U "," A
         "," UR(X ",{\"type\":\"tool_result\",\"tool_use_id\":\"z\",\"cache_control\":{\"type\":\"ephemeral\"}}")),
     M(U "," A "," UR("{\"type\":\"text\",\"text\":\"x\",\"cache_control\":{\"type\":\"ephemeral\"}}"))},
    {MESSAGES,
     M(U
       ",{\"role\":\"assistant\",\"content\":[{\"type\":\"server_tool_use\",\"id\":\"s\"},{\"type\":\"web_search_tool_result\",\"tool_use_id\":\"s\"}]}"),
     NULL},

    {RESPONSES, I(U "," FC("a") "," FO("a") "," A), NULL},
    {RESPONSES, I(FC("a") "," FC("b") "," FO("a") "," FO("b")), NULL},
    {RESPONSES, I(FC("a") "," A "," FO("a")), NULL},
    {RESPONSES, I(FC("a") "," FC("b") "," FO("b") "," U), I(FC("a") "," FC("b") "," FSTUB("a") "," FO("b") "," U)},
    {RESPONSES, I(FC("a") "," U "," FO("a")), I(FC("a") "," FO("a") "," U)},
    {RESPONSES, I(FO("a") "," FC("a")), I(FC("a") "," FO("a"))},
    {RESPONSES, I(FC("a") "," FO("a") "," FO("a")), I(FC("a") "," FO("a"))},
    {RESPONSES, I(U "," FO("z")), I(U)},
    {RESPONSES, "{\"previous_response_id\":\"resp_1\",\"input\":[" FO("z") "]}",
     NULL}, /* its call lies with the provider */
    {RESPONSES, I("{\"type\":\"item_reference\",\"id\":\"x\"}," FO("z")), NULL},
    {RESPONSES, I(FC("a") ",{\"type\":\"item_reference\",\"id\":\"x\"}," U), NULL}, /* it may be the result */
    {RESPONSES, "{\"previous_response_id\":null,\"input\":[" U "," FO("z") "]}",
     "{\"previous_response_id\":null,\"input\":[" U "]}"},
    {RESPONSES, I("{\"type\":\"custom_tool_call\",\"call_id\":\"a\"}," U),
     I("{\"type\":\"custom_tool_call\",\"call_id\":\"a\"},{\"type\":\"custom_tool_call_output\",\"call_id\":\"a\",\"output\":\"No result is available for this tool call.\"}," U)},
    {RESPONSES, I("{\"type\":\"web_search_call\",\"id\":\"w\"}," U), NULL},
    /* a result that says it is the model's, a call that says it is a tool's: nobody knows what is meant */
    {RESPONSES, I("{\"type\":\"function_call_output\",\"call_id\":\"z\",\"output\":\"r\",\"role\":\"assistant\"}"),
     NULL},
    {RESPONSES,
     I("{\"type\":\"function_call\",\"call_id\":\"z\",\"name\":\"f\",\"arguments\":\"{}\",\"role\":\"tool\"}," U),
     NULL},
    {RESPONSES, "{\"input\":\"hello\"}", NULL},
    {LAR_PROTOCOL_COMPLETIONS, "{\"prompt\":\"x\"}", NULL},
};

static void test_repairs(void **state) {
    (void)state;
    bench b;
    bench_init(&b);
    for (size_t i = 0; i < sizeof repairs / sizeof *repairs; i++) {
        const repair *r = &repairs[i];
        char *sent = mend(&b, r->protocol, r->body);
        if (!sent != !r->sent || (sent && strcmp(sent, r->sent) != 0)) print_error("%s\n", r->body);
        if (!r->sent) assert_null(sent);
        else {
            assert_non_null(sent);
            assert_string_equal(sent, r->sent);
            char *again = mend(&b, r->protocol, sent);
            if (again) print_error("%s\n", r->body);
            assert_null(again);
        }
        free(sent);
    }
    bench_release(&b);
}

/* -- notes ------------------------------------------------------------------------------------------------ */

typedef struct finding {
    lar_protocol protocol;
    const char *provider, *body, *pointer, *answer; /* of the first note; pointer NULL: there is none */
    uint32_t count;
    lar_severity severity;
} finding;

#define MUST                                                                                                           \
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "

static const finding findings[] = {
    {CHAT, "openai", M(CALL("a") "," T("a")), NULL, NULL, 0, 0},
    {CHAT, "openai", M(U "," CALL("call_1") "," U), "/messages/1/tool_calls/0",
     MUST "The following tool_call_ids did not have response messages: call_1", 1, LAR_SEVERITY_ERROR},
    {CHAT, "deepseek", M(U "," CALL("call_1") "," U), "/messages/1/tool_calls/0",
     MUST "(insufficient tool messages following tool_calls message)", 1, LAR_SEVERITY_ERROR},
    {CHAT, "vllm", M(U "," CALL("call_1") "," U), "/messages/1/tool_calls/0", "", 1, LAR_SEVERITY_ERROR},
    {CHAT, "", M(T("z") "," U), "/messages/0",
     "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.", 1,
     LAR_SEVERITY_ERROR},
    {CHAT, "deepseek", M(T("z") "," U), "/messages/0",
     "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'", 1, LAR_SEVERITY_ERROR},
    {CHAT, "openai", M(CALL("a") "," T("a") "," T("a")), "/messages/2",
     "Invalid parameter: Duplicate value for 'tool_call_id' of 'a', in messages[1] and messages[2].", 1,
     LAR_SEVERITY_ERROR},
    {CHAT, "openai", M(CALL("a") "," U "," T("a")), "/messages/2",
     MUST "The following tool_call_ids did not have response messages: a", 1, LAR_SEVERITY_ERROR},
    {CHAT, "openai", M(CALL("a") "," T("a") "," CALL("a") "," T("a")), "/messages/2/tool_calls/0", "", 1,
     LAR_SEVERITY_WARNING},
    {CHAT, "openai", M("{\"role\":\"tool\",\"content\":\"r\"}"), "/messages/0", "", 1, LAR_SEVERITY_WARNING},
    {MESSAGES, "anthropic", "{\"system\":\"s\",\"messages\":[" U "," USE("toolu_1") "," U "]}", "/messages/1/content/0",
     "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1. Each `tool_use` block "
     "must have a corresponding `tool_result` block in the next message.",
     1, LAR_SEVERITY_ERROR},
    {MESSAGES, "", M(U "," A "," UR(X "," R("z"))), "/messages/2/content/1",
     "messages.2.content.1: unexpected `tool_use_id` found in `tool_result` blocks: z. Each `tool_result` block must have a "
     "corresponding `tool_use` block in the previous message.",
     1, LAR_SEVERITY_ERROR},
    {MESSAGES, "deepseek", M(USE("a") "," UR(R("a") "," R("a"))), "/messages/1/content/1",
     "messages.1.content.1: each tool_use must have a single result. Found multiple `tool_result` blocks with id: a", 1,
     LAR_SEVERITY_ERROR},
    {MESSAGES, "anthropic", M(USE("a") "," UR(R("a")) "," USE("a") "," UR(R("a"))), "/messages/2/content/0",
     "messages.2.content.0: `tool_use` ids must be unique", 1, LAR_SEVERITY_ERROR},
    {MESSAGES, "anthropic", M(USE("a") "," UR(X "," R("a"))), "/messages/1/content/1",
     "messages.0: `tool_use` ids were found without `tool_result` blocks immediately after: a. Each `tool_use` block must "
     "have a corresponding `tool_result` block in the next message.",
     1, LAR_SEVERITY_ERROR},
    {RESPONSES, "openai", I(FC("call_7") "," U), "/input/0", "No tool output found for function call call_7.", 1,
     LAR_SEVERITY_ERROR},
    {RESPONSES, "openai", I(U "," FO("call_7")), "/input/1",
     "No tool call found for function call output with call_id call_7.", 1, LAR_SEVERITY_ERROR},
    {RESPONSES, "openai", I(FC("a") "," U "," FO("a")), "/input/2", "", 1, LAR_SEVERITY_WARNING},
    /* pasted into what the user says */
    {CHAT, "openai", M(CALL("a") "," T("a") ",{\"role\":\"user\",\"content\":\"Here:\\n<tool_response>\\n12\"}"),
     "/messages/2/content", "", 1, LAR_SEVERITY_WARNING},
    {CHAT, "openai", M(CALL("call_99") ",{\"role\":\"user\",\"content\":\"call_99 gave 12\"}"),
     "/messages/0/tool_calls/0", MUST "The following tool_call_ids did not have response messages: call_99", 2,
     LAR_SEVERITY_ERROR},
    {CHAT, "openai",
     "{\"tools\":[{}],\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"工具结果：12\"}]}]}",
     "/messages/0/content/0/text", "", 1, LAR_SEVERITY_WARNING},
    {CHAT, "openai", M("{\"role\":\"user\",\"content\":\"Tool result: 12\"}"), NULL, NULL, 0,
     0}, /* who has no tools may write so */
    {CHAT, "openai",
     "{\"tools\":[{}],\"messages\":[{\"role\":\"user\",\"content\":\"Explain:\\n```\\n<tool_response>\\n```\"}]}", NULL,
     NULL, 0, 0},
    {CHAT, "openai", "{\"tools\":[{}],\"messages\":[{\"role\":\"user\",\"content\":\"What does Tool result: mean?\"}]}",
     NULL, NULL, 0, 0},
};

static void test_findings(void **state) {
    (void)state;
    bench b;
    lar_buf pointer;
    bench_init(&b);
    lar_buf_init(&pointer, 4096);
    for (size_t i = 0; i < sizeof findings / sizeof *findings; i++) {
        const finding *f = &findings[i];
        lar_notes notes;
        read_body(&b, f->protocol, f->body);
        lar_notes_init(&notes, &b.arena);
        assert_int_equal(lar_history_check(&b.v, lar_slice_cstr(f->provider), &notes), LAR_OK);
        if (notes.count != f->count) print_error("%s: %u\n", f->body, notes.count);
        assert_int_equal(notes.count, f->count);
        if (!f->pointer) continue;
        const lar_note *n = &notes.list[0];
        pointer.len = 0;
        assert_int_equal(lar_json_pointer(&b.j, n->node, &pointer), LAR_OK);
        assert_int_equal(lar_buf_add(&pointer, "", 1), LAR_OK);
        assert_string_equal(pointer.ptr, f->pointer);
        char answer[1024];
        assert_true(snprintf(answer, sizeof answer, "%.*s", LAR_FMT(n->answer)) < (int)sizeof answer);
        assert_string_equal(answer, f->answer);
        assert_int_equal(n->severity, f->severity);
        assert_int_equal(n->rule, LAR_RULE_LR015);
        assert_true(n->what.len > 10 && n->advice.len > 10 && n->start < n->end && n->end <= b.j.body.len);
    }
    lar_buf_release(&pointer);
    bench_release(&b);
}

/* -- generated histories ----------------------------------------------------------------------------------- */

static uint32_t draw(uint32_t *seed, uint32_t n) {
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % n;
}

/* One element: kind and id decide it. */
static void element(char *out, size_t room, lar_protocol p, uint32_t kind, unsigned id) {
    static const char *const chat[] = {
        U,
        A,
        "{\"role\":\"tool\",\"tool_call_id\":\"c%u\",\"content\":\"r\"}",
        "{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c%u\"}]}",
        "{\"role\":\"assistant\",\"content\":\"x\",\"tool_calls\":[{\"id\":\"c%u\"},{\"id\":\"d\"}]}",
        "{\"role\":\"system\",\"content\":\"s\"}"};
    static const char *const messages[] = {
        U,
        A,
        "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"c%u\"}]}",
        "{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"c%u\"}]}",
        ("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"t\"},{\"type\":\"tool_result\",\"tool_use_id\":\"c%u\",\"cache_control\":{\"type\":\"ephemeral\"}},"
         "{\"type\":\"tool_result\",\"tool_use_id\":\"d\"}]}"),
        "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"t\"},{\"type\":\"tool_use\",\"id\":\"c%u\"},{\"type\":\"tool_use\",\"id\":\"d\"}]}"};
    static const char *const responses[] = {U,
                                            A,
                                            "{\"type\":\"function_call_output\",\"call_id\":\"c%u\",\"output\":\"r\"}",
                                            "{\"type\":\"function_call\",\"call_id\":\"c%u\"}",
                                            "{\"type\":\"reasoning\",\"summary\":[]}",
                                            "{\"type\":\"custom_tool_call\",\"call_id\":\"c%u\"}"};
    const char *form = (p == CHAT ? chat : p == MESSAGES ? messages : responses)[kind];
    const char *hole = strstr(form, "%u");
    if (!hole) (void)snprintf(out, room, "%s", form);
    else (void)snprintf(out, room, "%.*s%u%s", (int)(hole - form), form, id, hole + 2);
}

/* How often `needle` is in `text`. */
static uint32_t times(const char *text, const char *needle) {
    uint32_t n = 0;
    for (const char *at = text; (at = strstr(at, needle)) != NULL; at += strlen(needle)) n++;
    return n;
}

static void check_mended(bench *b, lar_protocol p, const char *body, const char *sent) {
    char *again = mend(b, p, sent);
    if (again) print_error("%s\n%s\n%s\n", body, sent, again);
    assert_null(again);
    lar_history h;
    assert_int_equal(lar_history_read(&b->v, &b->arena, &h), LAR_OK);
    assert_false(h.broken);
    /* what the model said is all there, in its order */
    bench was;
    bench_init(&was);
    read_body(&was, p, body);
    uint32_t k = 0;
    for (uint32_t i = 0; i < was.v.segment_count; i++) {
        if (was.v.segments[i].role != LAR_ROLE_ASSISTANT) continue;
        while (k < b->v.segment_count && b->v.segments[k].role != LAR_ROLE_ASSISTANT) k++;
        assert_true(k < b->v.segment_count);
        assert_true(
            lar_slice_eq(lar_json_raw(&was.j, was.v.segments[i].node), lar_json_raw(&b->j, b->v.segments[k].node)));
        k++;
    }
    bench_release(&was);
    assert_true(times(sent, "\"text\":\"t\"") == times(body, "\"text\":\"t\""));
    assert_true(times(sent, "cache_control") <= times(body, "cache_control"));
}

static void test_generated(void **state) {
    (void)state;
    static const lar_protocol protocols[] = {CHAT, MESSAGES, RESPONSES};
    bench b;
    bench_init(&b);
    uint32_t broken = 0;
    for (uint32_t round = 0; round < 12000; round++) {
        uint32_t seed = round * 2654435761u + 1, n = draw(&seed, 12);
        lar_protocol p = protocols[round % 3];
        char body[8192], one[512];
        size_t at = (size_t)snprintf(body, sizeof body, p == RESPONSES ? "{\"input\":[" : "{\"messages\":[");
        for (uint32_t i = 0; i < n; i++) {
            element(one, sizeof one, p, draw(&seed, 6), draw(&seed, 3));
            at += (size_t)snprintf(body + at, sizeof body - at, "%s%s", i ? "," : "", one);
        }
        (void)snprintf(body + at, sizeof body - at, "]}");
        char *sent = mend(&b, p, body);
        if (!sent) continue;
        broken++;
        check_mended(&b, p, body, sent);
        free(sent);
    }
    assert_true(broken > 4000);
    bench_release(&b);
}

/* Valid conversations of many rounds, calls in parallel, are left alone. */
static void test_valid(void **state) {
    (void)state;
    bench b;
    bench_init(&b);
    for (uint32_t round = 0; round < 3000; round++) {
        uint32_t seed = round * 40503u + 7, n = draw(&seed, 8);
        lar_protocol p = round % 2 ? CHAT : MESSAGES;
        char body[16384];
        size_t at = (size_t)snprintf(body, sizeof body, "{\"messages\":[" U);
        for (uint32_t i = 0; i < n; i++) {
            unsigned calls = draw(&seed, 4);
            char uses[1024] = "", results[1024] = "";
            for (unsigned c = 0; c < calls; c++) {
                unsigned r = c + 1 == calls ? 0 : c + 1; /* in another order */
                size_t u = strlen(uses), w = strlen(results);
                if (p == CHAT) {
                    (void)snprintf(uses + u, sizeof uses - u, "%s{\"id\":\"c%u.%u\"}", c ? "," : "", i, c);
                    (void)snprintf(results + w, sizeof results - w,
                                   ",{\"role\":\"tool\",\"tool_call_id\":\"c%u.%u\",\"content\":\"r\"}", i, r);
                } else {
                    (void)snprintf(uses + u, sizeof uses - u, ",{\"type\":\"tool_use\",\"id\":\"c%u.%u\"}", i, c);
                    (void)snprintf(results + w, sizeof results - w,
                                   "{\"type\":\"tool_result\",\"tool_use_id\":\"c%u.%u\"},", i, r);
                }
            }
            if (p == CHAT && calls)
                at += (size_t)snprintf(body + at, sizeof body - at, ",{\"role\":\"assistant\",\"tool_calls\":[%s]}%s",
                                       uses, results);
            else if (p == CHAT) at += (size_t)snprintf(body + at, sizeof body - at, "," A "," U);
            else
                at += (size_t)snprintf(body + at, sizeof body - at,
                                       ",{\"role\":\"assistant\",\"content\":[" X
                                       "%s]},{\"role\":\"user\",\"content\":[%s" X "]}",
                                       uses, results);
        }
        (void)snprintf(body + at, sizeof body - at, "]}");
        char *sent = mend(&b, p, body);
        if (sent) print_error("%s\n", body);
        assert_null(sent);
    }
    bench_release(&b);
}

/* A history over a bound goes as it is; one just under it, and ids that are used in every turn, are no trouble. */
static void test_bounds(void **state) {
    (void)state;
    bench b;
    bench_init(&b);
    for (int over = 0; over < 2; over++) {
        uint32_t n = over ? 70000 : 30000;
        lar_buf text;
        lar_buf_init(&text, 64u << 20);
        assert_int_equal(lar_buf_add_slice(&text, LAR_SLICE("{\"messages\":[")), LAR_OK);
        for (uint32_t i = 0; i < n; i++) {
            const char *call = "{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"call_0\"}]}";
            assert_int_equal(lar_buf_printf(&text, "%s%s%s", i ? "," : "", call, over ? "" : "," T("call_0")), LAR_OK);
        }
        assert_int_equal(lar_buf_add(&text, "]}", 3), LAR_OK);
        lar_splices edits;
        bool found;
        read_body(&b, CHAT, text.ptr);
        lar_error e = lar_rule_tool_history(&b.v, &b.arena, &edits, &found);
        assert_int_equal(e, over ? LAR_LIMIT : LAR_OK);
        assert_int_equal(edits.count, 0);
        lar_buf_release(&text);
    }
    bench_release(&b);
}

/* Whenever memory ends, there is an error and nothing to edit. */
static void test_out_of_memory(void **state) {
    (void)state;
    bench b;
    bench_init(&b);
    uint32_t refused = 0, done = 0;
    for (size_t limit = 0; limit < 6000; limit += 16) {
        for (size_t i = 0; i < sizeof repairs / sizeof *repairs; i += 5) {
            lar_arena small;
            lar_splices edits;
            bool found;
            read_body(&b, repairs[i].protocol, repairs[i].body);
            lar_arena_init(&small, limit);
            lar_error e = lar_rule_tool_history(&b.v, &small, &edits, &found);
            assert_true(e == LAR_OK || (e == LAR_NO_MEMORY && edits.count == 0));
            if (e) refused++;
            else done += edits.count > 0;
            lar_arena_release(&small);
        }
    }
    assert_true(refused > 100 && done > 100);
    bench_release(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_repairs),   cmocka_unit_test(test_findings),
                                       cmocka_unit_test(test_generated), cmocka_unit_test(test_valid),
                                       cmocka_unit_test(test_bounds),    cmocka_unit_test(test_out_of_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
