/* What a model wrote: watched in all protocols, whole and streamed, and put back when a client returns it in another
 * form (LR011); results of tools (LR012), reasoning (LR013). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "canon_harness.h"
#include "json_maker.h"

static void expect_in(harness *h, lar_protocol p, const char *body, const char *want) {
    size_t len;
    char *sent = harness_send(h, p, lar_slice_cstr(body), &len);
    assert_non_null(sent);
    assert_string_equal(sent, want);
    free(sent);
}

static void expect(harness *h, const char *body, const char *want) { expect_in(h, LAR_PROTOCOL_CHAT, body, want); }
static void same(harness *h, const char *body) { expect(h, body, body); }
static bool fired(const harness *h, lar_rule r) { return h->out.rules_fired >> r & 1; }
static void answer(harness *h, const char *body) { harness_answer(h, LAR_PROTOCOL_CHAT, lar_slice_cstr(body)); }
static void stream(harness *h, const char *lines) {
    harness_stream(h, LAR_PROTOCOL_CHAT, lar_slice_cstr(lines), HARNESS_DATA);
}

#define ASK "{\"role\":\"user\",\"content\":\"go\"}"
#define CALL(id, name, arguments)                                                                                      \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"arguments\":\"" arguments "\"}}"
#define CALLS(content, calls) "{\"role\":\"assistant\",\"content\":" content ",\"tool_calls\":[" calls "]}"
#define TEXT(content) "{\"role\":\"assistant\",\"content\":\"" content "\"}"
#define RESULT(id, content) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"" content "\"}"
#define CHAT(messages) "{\"model\":\"m\",\"messages\":[" messages "]}"
#define ANSWER(message) "{\"choices\":[{\"index\":0,\"message\":" message ",\"finish_reason\":\"stop\"}]}"
#define CHUNK(delta) "{\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":" delta ",\"finish_reason\":null}]}\n"
#define FINISH "{\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n"

/* As the model writes arguments, and as clients print them. */
#define MODEL "{\\\"b\\\": \\\"\xC3\xA9\\\", \\\"a\\\": [1, 2]}"
#define CLIENT "{\\\"a\\\":[1,2],\\\"b\\\":\\\"\\\\u00e9\\\"}"

static void test_whole_answer(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    same(&h, CHAT(ASK));
    answer(&h, ANSWER(CALLS("\"Wait. \"", CALL("c1", "f", MODEL) "," CALL("c2", "g", "{}"))));
    expect(&h,
           CHAT(ASK "," CALLS("\"Wait.\"", CALL("c1", "f", CLIENT) "," CALL("c2", "g", "{ }")) "," RESULT("c1", "r")),
           CHAT(ASK "," CALLS("\"Wait. \"", CALL("c1", "f", MODEL) "," CALL("c2", "g", "{}")) "," RESULT("c1", "r")));
    assert_true(fired(&h, LAR_RULE_LR011));
    /* as it is: nothing to do, and all of it is known */
    same(&h, CHAT(ASK "," CALLS("\"Wait. \"", CALL("c1", "f", MODEL) "," CALL("c2", "g", "{}")) "," RESULT("c1", "r")));
    assert_int_equal(h.out.segments_known, 3);
    /* the chain holds over any form */
    expect(&h,
           CHAT(ASK "," CALLS("\"Wait.\\n\"", CALL("c1", "f", CLIENT) "," CALL("c2", "g", "{}")) "," RESULT("c1", "r")),
           CHAT(ASK "," CALLS("\"Wait. \"", CALL("c1", "f", MODEL) "," CALL("c2", "g", "{}")) "," RESULT("c1", "r")));
    assert_int_equal(h.out.segments_known, 3);
    harness_release(&h);
}

/* A part that means something else leaves the whole message to the client. */
static void test_whole_or_nothing(void **state) {
    (void)state;
    static const char *const others[] = {
        CHAT(ASK "," CALLS("\"Wait!\"", CALL("c1", "f", CLIENT)) "," RESULT("c1", "r")),
        CHAT(ASK "," CALLS("null", CALL("c1", "f", CLIENT)) "," RESULT("c1", "r")),
        CHAT(ASK "," CALLS("\"Wait.\"", CALL("c1", "g", CLIENT)) "," RESULT("c1", "r")),
        CHAT(ASK "," CALLS("\"Wait.\"",
                           CALL("c1", "f", "{\\\"a\\\":[1,2.0],\\\"b\\\":\\\"\xC3\xA9\\\"}")) "," RESULT("c1", "r")),
        CHAT(ASK "," CALLS("\"Wait.\"",
                           CALL("c1", "f", "{\\\"a\\\":[2,1],\\\"b\\\":\\\"\xC3\xA9\\\"}")) "," RESULT("c1", "r")),
        CHAT(ASK "," CALLS("\"Wait.\"", CALL("c1", "f", CLIENT) "," CALL("c2", "f", CLIENT)) "," RESULT("c1", "r")),
        /* of two values of one name it is not clear which one counts */
        CHAT(ASK ",{\"role\":\"assistant\",\"content\":\"Wait.\",\"tool_calls\":[],\"tool_calls\":[" CALL(
            "c1", "f", CLIENT) "]}," ASK),
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        harness h;
        harness_init(&h);
        same(&h, CHAT(ASK));
        answer(&h, ANSWER(CALLS("\"Wait. \"", CALL("c1", "f", MODEL))));
        same(&h, others[i]);
        assert_false(h.out.rules_seen >> LAR_RULE_LR011 & 1);
        harness_release(&h);
    }
}

/* The last message is to be gone on with. */
static void test_prefill(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    same(&h, CHAT(ASK));
    answer(&h, ANSWER(TEXT("One \\n")));
    same(&h, CHAT(ASK "," TEXT("One")));
    same(&h, CHAT(ASK "," TEXT("One") "," TEXT("Two")));
    same(&h, CHAT(ASK "," TEXT("One") "," ASK)); /* it was sent that way, so it stays */
    harness_release(&h);
    harness_init(&h);
    same(&h, CHAT(ASK));
    answer(&h, ANSWER(TEXT("One \\n")));
    expect(&h, CHAT(ASK "," TEXT("One") "," ASK), CHAT(ASK "," TEXT("One \\n") "," ASK));
    harness_release(&h);
}

static void test_scopes_and_modes(void **state) {
    (void)state;
    const char *dirty = CHAT(ASK "," CALLS("null", CALL("c1", "f", CLIENT)) "," RESULT("c1", "r"));
    const char *clean = CHAT(ASK "," CALLS("null", CALL("c1", "f", MODEL)) "," RESULT("c1", "r"));
    harness h;
    harness_init(&h);
    same(&h, CHAT(ASK));
    answer(&h, ANSWER(CALLS("null", CALL("c1", "f", MODEL))));
    lar_hash scope = h.scope;
    h.scope = lar_hash_of(LAR_SLICE("another tenant"));
    same(&h, dirty);
    h.scope = scope;
    h.options.rules_off |= 1ull << LAR_RULE_LR011;
    same(&h, dirty);
    h.options.rules_off &= ~(1ull << LAR_RULE_LR011);
    h.options.mode = LAR_CANON_REPORT;
    same(&h, dirty);
    assert_int_equal(h.out.rules_fired, 0);
    harness_release(&h);

    harness_init(&h);
    h.options.mode = LAR_CANON_REPORT;
    same(&h, CHAT(ASK));
    answer(&h, ANSWER(CALLS("null", CALL("c1", "f", MODEL))));
    same(&h, dirty);
    assert_true(h.out.rules_seen >> LAR_RULE_LR011 & 1);
    harness_release(&h);

    harness_init(&h); /* another model, the same tenant */
    same(&h, CHAT(ASK));
    answer(&h, ANSWER(CALLS("null", CALL("c1", "f", MODEL))));
    same(&h, "{\"model\":\"other\",\"messages\":[" ASK
             "," CALLS("null", CALL("c1", "f", CLIENT)) "," RESULT("c1", "r") "]}");
    expect(&h, dirty, clean);
    harness_release(&h);
}

/* Texts alone say little: they count at their place in a conversation only, and what was sent once stays so. */
static void test_places(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    same(&h, CHAT(ASK));
    answer(&h, ANSWER(TEXT("Done\\n")));
    expect(&h, CHAT(ASK "," TEXT("Done") "," ASK), CHAT(ASK "," TEXT("Done\\n") "," ASK));
    answer(&h, ANSWER(TEXT("Done")));
    expect(&h, CHAT(ASK "," TEXT("Done") "," ASK "," TEXT("Done") "," ASK),
           CHAT(ASK "," TEXT("Done\\n") "," ASK "," TEXT("Done") "," ASK));
    same(&h, CHAT("{\"role\":\"user\",\"content\":\"other\"}," TEXT("Done") "," ASK));
    harness_release(&h);

    /* a call that is found without its id keeps what it was given, whatever another one is written like later */
    harness_init(&h);
    same(&h, CHAT(ASK));
    answer(&h, ANSWER(CALLS("null", CALL("c1", "f", MODEL))));
    expect(&h, CHAT(ASK "," CALLS("null", CALL("x1", "f", CLIENT)) "," RESULT("x1", "r")),
           CHAT(ASK "," CALLS("null", CALL("x1", "f", MODEL)) "," RESULT("x1", "r")));
    same(&h, CHAT("{\"role\":\"user\",\"content\":\"other\"}"));
    answer(&h, ANSWER(CALLS("null", CALL("c2", "f", "{\\\"a\\\": [1, 2], \\\"b\\\": \\\"\xC3\xA9\\\"}"))));
    expect(&h, CHAT(ASK "," CALLS("null", CALL("x1", "f", CLIENT)) "," RESULT("x1", "r") "," ASK),
           CHAT(ASK "," CALLS("null", CALL("x1", "f", MODEL)) "," RESULT("x1", "r") "," ASK));
    harness_release(&h);
}

/* A text of blanks beside calls: put back where there is a text to hold it, else the message stays. */
static void test_blanks_only(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    same(&h, CHAT(ASK));
    answer(&h, ANSWER(CALLS("\"\\n\\n\"", CALL("c1", "f", MODEL))));
    same(&h, CHAT(ASK "," CALLS("null", CALL("c1", "f", CLIENT)) "," RESULT("c1", "r")));
    expect(&h, CHAT(ASK "," CALLS("\"\"", CALL("c1", "f", CLIENT)) "," RESULT("c1", "r")),
           CHAT(ASK "," CALLS("\"\\n\\n\"", CALL("c1", "f", MODEL)) "," RESULT("c1", "r")));
    harness_release(&h);
    harness_init(&h);
    same(&h, CHAT(ASK));
    answer(&h, ANSWER(CALLS("\"\"", CALL("c1", "f", MODEL))));
    expect(&h, CHAT(ASK "," CALLS("null", CALL("c1", "f", CLIENT)) "," RESULT("c1", "r")),
           CHAT(ASK "," CALLS("null", CALL("c1", "f", MODEL)) "," RESULT("c1", "r")));
    same(&h, CHAT(ASK "," CALLS("\" \"", CALL("c1", "f", CLIENT)) "," RESULT("c1", "r")));
    harness_release(&h);
}

/* -- streams ------------------------------------------------------------------------------------------- */

static void test_chat_stream(void **state) {
    (void)state;
    const char *dirty =
        CHAT(ASK "," CALLS("\"A b\"", CALL("c1", "f", CLIENT) "," CALL("c2", "g", "{\\\"x\\\":1}")) "," ASK);
    const char *clean =
        CHAT(ASK "," CALLS("\"A b \\n\"", CALL("c1", "f", MODEL) "," CALL("c2", "g", "{\\\"x\\\": 1}")) "," ASK);
    static const char *const streams[] = {
        /* calls before the text, ids again in each chunk, keep-alives, usage at the end */
        CHUNK("{\"role\":\"assistant\",\"content\":\"\"}") CHUNK(
            "{\"tool_calls\":[{\"index\":0,\"id\":\"c1\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]}")
            CHUNK("{\"tool_calls\":[{\"index\":0,\"id\":\"c1\",\"function\":{\"arguments\":\"{\\\"b\\\": \"}}]}") CHUNK(
                "{\"tool_calls\":[{\"index\":0,\"id\":\"c1\",\"function\":{\"arguments\":\"\\\"\xC3\xA9\\\", \"}}]}")
                CHUNK(
                    "{\"tool_calls\":[{\"index\":0,\"id\":\"c1\",\"function\":{\"arguments\":\"\\\"a\\\": [1, 2]}\"}}]}")
                    CHUNK("{\"content\":\"A\"}") CHUNK("{\"content\":\" \"}") CHUNK("{\"content\":\"b\"}")
                        CHUNK("{\"content\":\" \\n\"}") "null\n" CHUNK(
                            "{\"tool_calls\":[{\"index\":1,\"id\":\"c2\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"{\\\"x\\\": 1}\"}}]}")
                            FINISH "{\"choices\":[],\"usage\":{}}\n[DONE]\n",
        /* calls without an index, told by their ids; everything in one chunk */
        CHUNK("{\"content\":\"A b \\n\",\"tool_calls\":[" CALL("c1", "f", MODEL) "," CALL("c2", "g",
                                                                                          "{\\\"x\\\": 1}") "]}")
            FINISH,
        /* two choices, this is the second's */
        "{\"choices\":[{\"index\":1,\"delta\":{\"content\":\"A b \"}},{\"index\":0,\"delta\":{\"content\":\"no\"}}]}\n"
        "{\"choices\":[{\"index\":1,\"delta\":{\"content\":\"\\n\",\"tool_calls\":[" CALL("c1", "f", MODEL) "," CALL(
            "c2", "g", "{\\\"x\\\": 1}") "]},\"finish_reason\":\"tool_calls\"}]}\n" FINISH,
    };
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        harness h;
        harness_init(&h);
        same(&h, CHAT(ASK));
        stream(&h, streams[i]);
        expect(&h, dirty, clean);
        harness_release(&h);
    }
}

/* Without its end, or too large, nothing is remembered. */
static void test_cut_and_large(void **state) {
    (void)state;
    const char *dirty = CHAT(ASK "," CALLS("null", CALL("c1", "f", CLIENT)) "," ASK);
    harness h;
    harness_init(&h);
    same(&h, CHAT(ASK));
    stream(&h, CHUNK("{\"tool_calls\":[" CALL("c1", "f", MODEL) "]}"));
    same(&h, dirty);
    lar_buf big;
    lar_buf_init(&big, 16u << 20);
    maker_add(&big, CHUNK("{\"tool_calls\":[" CALL("c1", "f", MODEL) "]}"));
    for (int i = 0; i < 1200; i++) {
        maker_add(&big, "{\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":1,\"id\":\"c2\","
                        "\"function\":{\"name\":\"f\",\"arguments\":\"");
        for (int k = 0; k < 32; k++) maker_add(&big, "0123456789abcdef0123456789abcdef");
        maker_add(&big, "\"}}]}}]}\n");
    }
    maker_add(&big, FINISH);
    harness_stream(&h, LAR_PROTOCOL_CHAT, lar_buf_slice(&big), HARNESS_DATA);
    same(&h, dirty);
    lar_buf_release(&big);
    harness_release(&h);
}

#define ANTHROPIC(messages) "{\"model\":\"m\",\"messages\":[" messages "]}"
#define BLOCKS(content) "{\"role\":\"assistant\",\"content\":[" content "]}"
#define USE(input) "{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"f\",\"input\":" input "}"
#define THINK "{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"s\"}"
#define SAYS(text) "{\"type\":\"text\",\"text\":\"" text "\"}"

static void test_messages(void **state) {
    (void)state;
#define WROTE "{\"b\": \"\xC3\xA9\", \"a\": [1, 2]}"
#define PRINTED "{\"a\":[1,2],\"b\":\"\\u00e9\"}"
    const char *dirty = ANTHROPIC(ASK "," BLOCKS(THINK "," SAYS("Look.") "," USE(PRINTED)) "," ASK);
    const char *clean = ANTHROPIC(ASK "," BLOCKS(THINK "," SAYS("Look. ") "," USE(WROTE)) "," ASK);
    static const char events[] =
        "message_start {\"type\":\"message_start\",\"message\":{\"role\":\"assistant\",\"content\":[]}}\n"
        "content_block_start {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\"}}\n"
        "content_block_delta {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"h\"}}\n"
        "content_block_delta {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"m\"}}\n"
        "content_block_delta {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"s\"}}\n"
        "content_block_start {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n"
        "ping {\"type\": \"ping\"}\n"
        "content_block_delta {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\"Lo\"}}\n"
        "content_block_delta {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\"ok.\"}}\n"
        "content_block_delta {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\" \"}}\n"
        "content_block_start {\"type\":\"content_block_start\",\"index\":2,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"f\",\"input\":{}}}\n"
        "content_block_delta {\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"\"}}\n"
        "content_block_delta {\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"b\\\": \\\"\xC3\xA9\"}}\n"
        "content_block_delta {\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"\\\", \\\"a\\\": [1, 2]}\"}}\n"
        "message_delta {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"}}\n"
        "message_stop {\"type\":\"message_stop\"}\n";
    harness h;
    harness_init(&h);
    expect_in(&h, LAR_PROTOCOL_MESSAGES, ANTHROPIC(ASK), ANTHROPIC(ASK));
    harness_stream(&h, LAR_PROTOCOL_MESSAGES, lar_slice_cstr(events), HARNESS_TYPES);
    expect_in(&h, LAR_PROTOCOL_MESSAGES, dirty, clean);
    harness_release(&h);

    harness_init(&h);
    expect_in(&h, LAR_PROTOCOL_MESSAGES, ANTHROPIC(ASK), ANTHROPIC(ASK));
    harness_answer(&h, LAR_PROTOCOL_MESSAGES, lar_slice_cstr(BLOCKS(THINK "," SAYS("Look. ") "," USE(WROTE))));
    expect_in(&h, LAR_PROTOCOL_MESSAGES, dirty, clean);
    /* a text alone, as a string */
    expect_in(&h, LAR_PROTOCOL_MESSAGES, ANTHROPIC(ASK), ANTHROPIC(ASK));
    harness_answer(&h, LAR_PROTOCOL_MESSAGES, lar_slice_cstr(BLOCKS(SAYS("Yes.\\n"))));
    expect_in(&h, LAR_PROTOCOL_MESSAGES, ANTHROPIC(ASK "," TEXT("Yes.") "," ASK),
              ANTHROPIC(ASK "," TEXT("Yes.\\n") "," ASK));
    harness_release(&h);

    /* a call without arguments: its block began with them */
    harness_init(&h);
    expect_in(&h, LAR_PROTOCOL_MESSAGES, ANTHROPIC(ASK), ANTHROPIC(ASK));
    harness_stream(
        &h, LAR_PROTOCOL_MESSAGES,
        lar_slice_cstr(
            "{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"f\",\"input\":{}}}\n"
            "{\"type\":\"message_stop\"}\n"),
        HARNESS_DATA);
    expect_in(&h, LAR_PROTOCOL_MESSAGES, ANTHROPIC(ASK "," BLOCKS(USE("{ }")) "," ASK),
              ANTHROPIC(ASK "," BLOCKS(USE("{}")) "," ASK));
    harness_release(&h);
}

#define INPUT(items) "{\"model\":\"m\",\"input\":[" items "]}"
#define FUNCTION(arguments)                                                                                            \
    "{\"type\":\"function_call\",\"id\":\"fc\",\"call_id\":\"c1\",\"name\":\"f\",\"arguments\":\"" arguments "\"}"
#define SAID(text)                                                                                                     \
    "{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"" text "\"}]}"

static void test_responses(void **state) {
    (void)state;
    const lar_protocol p = LAR_PROTOCOL_RESPONSES;
    const char *dirty =
        INPUT(ASK ",{\"type\":\"reasoning\",\"id\":\"r\",\"summary\":[]}," SAID("Look.") "," FUNCTION(CLIENT) "," ASK);
    const char *clean =
        INPUT(ASK ",{\"type\":\"reasoning\",\"id\":\"r\",\"summary\":[]}," SAID("Look. ") "," FUNCTION(MODEL) "," ASK);
    harness h;
    harness_init(&h);
    expect_in(&h, p, INPUT(ASK), INPUT(ASK));
    harness_stream(
        &h, p,
        lar_slice_cstr(
            "response.output_text.delta {\"type\":\"response.output_text.delta\",\"delta\":\"Look. \"}\n"
            "response.output_item.done {\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":" SAID(
                "Look. ") "}\n"
                          "response.output_item.done {\"type\":\"response.output_item.done\",\"output_index\":1,\"item\":" FUNCTION(
                              MODEL) "}\n"
                                     "response.completed {\"type\":\"response.completed\",\"response\":{\"output\":[]}}\n"),
        HARNESS_TYPES);
    expect_in(&h, p, dirty, clean);
    harness_release(&h);

    harness_init(&h); /* events without a type of their own */
    expect_in(&h, p, INPUT(ASK), INPUT(ASK));
    harness_stream(&h, p,
                   lar_slice_cstr("{\"type\":\"response.output_item.done\",\"item\":" SAID(
                       "Look. ") "}\n"
                                 "{\"type\":\"response.output_item.done\",\"item\":" FUNCTION(MODEL) "}\n"),
                   HARNESS_DATA);
    expect_in(&h, p, dirty, clean);
    harness_release(&h);

    harness_init(&h);
    expect_in(&h, p, INPUT(ASK), INPUT(ASK));
    harness_answer(&h, p,
                   lar_slice_cstr("{\"object\":\"response\",\"output\":[" SAID("Look. ") "," FUNCTION(MODEL) "]}"));
    expect_in(&h, p, dirty, clean);
    harness_release(&h);
}

/* -- any form, any cut ---------------------------------------------------------------------------------- */

static void put_escaped(lar_buf *out, lar_slice text) { assert_int_equal(lar_json_escape(out, text), LAR_OK); }

/* The answer as chunks, cut at random borders of characters. */
static void print_stream(lar_buf *out, lar_slice text, lar_slice arguments, rng *r) {
    for (int part = 0; part < 2; part++) {
        lar_slice rest = part ? arguments : text;
        while (rest.len) {
            size_t n = 1 + pick(r, 6);
            while (n < rest.len && ((unsigned char)rest.ptr[n] & 0xC0) == 0x80) n++;
            if (n > rest.len) n = rest.len;
            maker_add(out, "{\"choices\":[{\"index\":0,\"delta\":{");
            maker_add(out,
                      part ? "\"tool_calls\":[{\"index\":0,\"id\":\"c1\",\"function\":{\"name\":\"f\",\"arguments\":\""
                           : "\"content\":\"");
            put_escaped(out, lar_slice_of(rest.ptr, n));
            maker_add(out, part ? "\"}}]}}]}\n" : "\"}}]}\n");
            rest = lar_slice_of(rest.ptr + n, rest.len - n);
        }
    }
    maker_add(out, FINISH);
}

static void print_one(lar_buf *out, lar_slice text, lar_slice arguments) {
    maker_add(out, "{\"role\":\"assistant\",\"content\":\"");
    put_escaped(out, text);
    maker_add(out,
              "\",\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"");
    put_escaped(out, arguments);
    maker_add(out, "\"}}]}");
}

typedef struct message {
    lar_buf text, arguments;
} message;

enum { TURNS = 5, RUNS = 100 };

static void print_conversation(lar_buf *out, message *m, uint32_t turns) {
    maker_add(out, "{\"model\":\"m\",\"messages\":[" ASK);
    for (uint32_t i = 0; i < turns; i++) {
        maker_add(out, ",");
        print_one(out, lar_buf_slice(&m[i].text), lar_buf_slice(&m[i].arguments));
        maker_add(out, "," RESULT("c1", "ok"));
    }
    maker_add(out, "]}");
    assert_int_equal(lar_buf_add(out, "", 1), LAR_OK);
    out->len--;
}

static void one_conversation(uint64_t seed, bool odd) {
    static const char *const tails[] = {"", " ", "\n", "\n\n", " \t"};
    rng r = rng_of(seed);
    message model[TURNS], client[TURNS];
    harness h;
    harness_init(&h);
    for (uint32_t t = 0; t <= TURNS; t++) {
        lar_buf clean, dirty, events;
        lar_buf_init(&clean, 8u << 20);
        lar_buf_init(&dirty, 8u << 20);
        lar_buf_init(&events, 8u << 20);
        for (uint32_t i = 0; i < t; i++) { /* the client prints all of its history anew each time */
            maker_style s = maker_style_of(&r);
            lar_buf_init(&client[i].text, 1u << 16);
            lar_buf_init(&client[i].arguments, 1u << 16);
            assert_int_equal(lar_buf_printf(&client[i].text, "Answer %u%s", i, tails[pick(&r, 5)]), LAR_OK);
            maker_print(&client[i].arguments, rng_of(seed * 100 + i), 0, &s, &r);
        }
        print_conversation(&clean, model, t);
        print_conversation(&dirty, client, t);
        expect(&h, dirty.ptr, clean.ptr);
        if (t == TURNS) {
            assert_true(fired(&h, LAR_RULE_LR011));
        } else {
            maker_style s = maker_style_of(&r);
            s.odd = odd;
            lar_buf_init(&model[t].text, 1u << 16);
            lar_buf_init(&model[t].arguments, 1u << 16);
            assert_int_equal(lar_buf_printf(&model[t].text, "Answer %u%s", t, tails[pick(&r, 5)]), LAR_OK);
            maker_print(&model[t].arguments, rng_of(seed * 100 + t), 0, &s, &r);
            print_stream(&events, lar_buf_slice(&model[t].text), lar_buf_slice(&model[t].arguments), &r);
            harness_stream(&h, LAR_PROTOCOL_CHAT, lar_buf_slice(&events), HARNESS_DATA);
        }
        for (uint32_t i = 0; i < t; i++) {
            lar_buf_release(&client[i].text);
            lar_buf_release(&client[i].arguments);
        }
        lar_buf_release(&clean);
        lar_buf_release(&dirty);
        lar_buf_release(&events);
    }
    /* forms that can be described need no text */
    if (!odd) assert_int_equal(harness_memory_count(h.texts), 0);
    for (uint32_t i = 0; i < TURNS; i++) {
        lar_buf_release(&model[i].text);
        lar_buf_release(&model[i].arguments);
    }
    harness_release(&h);
}

static void test_any_form(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= RUNS; seed++) one_conversation(seed, false);
    for (uint64_t seed = 1; seed <= RUNS; seed++) one_conversation(seed, true);
}

/* Whatever a damaged store gives back, a message is the client's or the model's. */
static void test_damaged_memory(void **state) {
    (void)state;
    const char *dirty =
        CHAT(ASK "," CALLS("\"A\"", CALL("c1", "f", CLIENT)) "," RESULT("c1", "{\\\"a\\\":1,\\\"b\\\":2}"));
    const char *clean =
        CHAT(ASK "," CALLS("\"A \"", CALL("c1", "f", MODEL)) "," RESULT("c1", "{\\\"a\\\":1,\\\"b\\\":2}"));
    for (unsigned seed = 0; seed < 300; seed++) {
        harness h;
        harness_init(&h);
        same(&h, CHAT(ASK));
        answer(&h, ANSWER(CALLS("\"A \"", CALL("c1", "f", MODEL))));
        harness_memory_damage(h.memory, seed);
        size_t len;
        char *sent = harness_send(&h, LAR_PROTOCOL_CHAT, lar_slice_cstr(dirty), &len);
        assert_non_null(sent);
        assert_true(strcmp(sent, clean) == 0 || strcmp(sent, dirty) == 0);
        free(sent);
        harness_release(&h);
    }
}

/* -- results and reasoning ------------------------------------------------------------------------------ */

#define RESULT_A "{\\\"a\\\": 1, \\\"b\\\": [1.0, \\\"\xC3\xA9\\\"]}\\n"
#define RESULT_B "{\\\"b\\\":[1.0,\\\"\\\\u00e9\\\"],\\\"a\\\":1}"

static void test_results(void **state) {
    (void)state;
#define ROUND(id, content) CHAT(ASK "," CALLS("null", CALL(id, "f", "{}")) "," RESULT(id, content))
    harness h;
    harness_init(&h);
    same(&h, ROUND("c1", RESULT_A));
    expect(&h, ROUND("c1", RESULT_B), ROUND("c1", RESULT_A));
    assert_true(fired(&h, LAR_RULE_LR012));
    assert_int_equal(h.out.segments_known, 3);
    same(&h, ROUND("c2", RESULT_B)); /* another call */
    expect(&h, ROUND("c2", RESULT_A), ROUND("c2", RESULT_B));
    same(&h, ROUND("c1", "{\\\"b\\\":[1,\\\"\xC3\xA9\\\"],\\\"a\\\":1}")); /* another value */
    same(&h, ROUND("c3", "no JSON "));
    same(&h, ROUND("c3", "no JSON"));
    same(&h, ROUND("c4", "12 "));
    same(&h, ROUND("c4", "12"));
    h.options.rules_off |= 1ull << LAR_RULE_LR012;
    same(&h, ROUND("c1", RESULT_B));
    harness_release(&h);

    harness_init(&h);
#define OUTPUT(text)                                                                                                   \
    INPUT(ASK "," FUNCTION("{}") ",{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":\"" text "\"}")
    expect_in(&h, LAR_PROTOCOL_RESPONSES, OUTPUT(RESULT_A), OUTPUT(RESULT_A));
    expect_in(&h, LAR_PROTOCOL_RESPONSES, OUTPUT(RESULT_B), OUTPUT(RESULT_A));
    harness_release(&h);

    /* a form that cannot be described lies in the memory of texts, once the request was accepted */
    harness_init(&h);
    same(&h, ROUND("c1", "{\\\"\\\\u0061\\\":1}"));
    assert_int_equal(harness_memory_count(h.texts), 1);
    expect(&h, ROUND("c1", "{\\\"a\\\": 1}"), ROUND("c1", "{\\\"\\\\u0061\\\":1}"));
    harness_release(&h);
}

static void test_reasoning(void **state) {
    (void)state;
#define THOUGHT ",\"reasoning_content\":\"I \\\"think\\\"\""
#define WITH(calls, more) "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[" calls "]" more "}"
    const char *bare = CHAT(ASK "," WITH(CALL("c1", "f", CLIENT), "") "," RESULT("c1", "r"));
    const char *full = CHAT(ASK "," WITH(CALL("c1", "f", MODEL), THOUGHT) "," RESULT("c1", "r"));
    harness h;
    harness_init(&h);
    same(&h, CHAT(ASK));
    stream(&h, CHUNK("{\"reasoning_content\":\"I \"}") CHUNK("{\"reasoning_content\":\"\\\"think\\\"\"}")
                   CHUNK("{\"tool_calls\":[" CALL("c1", "f", MODEL) "]}") FINISH);
    assert_int_equal(harness_memory_count(h.texts), 0); /* off: nothing is kept */
    harness_release(&h);

    harness_init(&h);
    h.options.rules_off &= ~(1ull << LAR_RULE_LR013);
    same(&h, CHAT(ASK));
    stream(&h, CHUNK("{\"reasoning_content\":\"I \"}") CHUNK("{\"reasoning_content\":\"\\\"think\\\"\"}")
                   CHUNK("{\"tool_calls\":[" CALL("c1", "f", MODEL) "]}") FINISH);
    expect(&h, bare, full);
    assert_true(fired(&h, LAR_RULE_LR013));
    expect(&h, bare, full); /* again, and all is known */
    assert_int_equal(h.out.segments_known, 3);
    /* the last answer of that turn, too; and the turn before stays as it was sent */
    answer(&h, ANSWER("{\"role\":\"assistant\",\"content\":\"Done\",\"reasoning_content\":\"So\"}"));
    expect(&h, CHAT(ASK "," WITH(CALL("c1", "f", CLIENT), "") "," RESULT("c1", "r") "," TEXT("Done") "," ASK),
           CHAT(ASK "," WITH(CALL("c1", "f", MODEL), THOUGHT) "," RESULT(
               "c1", "r") ",{\"role\":\"assistant\",\"content\":\"Done\",\"reasoning_content\":\"So\"}," ASK));
    /* a message that has one keeps it, empty or not */
    const char *own = CHAT(ASK "," WITH(CALL("c1", "f", MODEL), ",\"reasoning_content\":\"\"") "," RESULT("c1", "r"));
    same(&h, own);
    harness_release(&h);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_whole_answer), cmocka_unit_test(test_whole_or_nothing),
                                       cmocka_unit_test(test_prefill),      cmocka_unit_test(test_scopes_and_modes),
                                       cmocka_unit_test(test_places),       cmocka_unit_test(test_blanks_only),
                                       cmocka_unit_test(test_chat_stream),  cmocka_unit_test(test_cut_and_large),
                                       cmocka_unit_test(test_messages),     cmocka_unit_test(test_responses),
                                       cmocka_unit_test(test_any_form),     cmocka_unit_test(test_damaged_memory),
                                       cmocka_unit_test(test_results),      cmocka_unit_test(test_reasoning)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
