/* A model's output as content, reasoning and calls: what comes out, and that it is the same for every cut of the bytes.
 * Every row is played whole, cut at every place, byte by byte and at random places. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/json.h"
#include "engine/text/output_utf8.h"
#include "tests/unit_engine/text/output_play.h"

typedef struct row {
    const char *text, *want;
} row;

static void check_row(const row *r, const lar_output_options *options) {
    lar_slice text = lar_slice_cstr(r->text);
    for (size_t cut = 0; cut <= text.len + 6; cut++) {
        output_cuts cuts = {.at = cut};
        if (cut == text.len + 1) cuts.at = SIZE_MAX;
        if (cut > text.len + 1) cuts.seed = cut * 977;
        lar_buf got = output_play_text(text, options, cuts);
        if (!lar_slice_eq_cstr(lar_buf_slice(&got), r->want))
            fail_msg("%s\n cut at %zu gave %.*s\n not %s", r->text, cut, LAR_FMT(lar_buf_slice(&got)), r->want);
        lar_buf_release(&got);
    }
}

static void check_rows(const row *rows, size_t count, const lar_output_options *options) {
    for (size_t i = 0; i < count; i++) check_row(&rows[i], options);
}

#define CHECK(rows, options) check_rows(rows, sizeof(rows) / sizeof *(rows), options)

static void test_characters(void **state) {
    (void)state;
    static const row rows[] = {
        {"a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z", "C0[a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z](text -1 0 0)"},
        {"a\xff\x80z", "C0[a\xef\xbf\xbd\xef\xbf\xbdz](text -1 0 0)"},
        {"\xe2\x82"
         "A\xf0\x9f\x98"
         "B",
         "C0[\xef\xbf\xbd"
         "A\xef\xbf\xbd"
         "B](text -1 0 0)"},
        {"x\xe2\x82", "C0[x\xef\xbf\xbd](text -1 0 0)"},
        {"\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80",
         "C0[\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd](text -1 0 0)"},
        {"\xf0\x9f\xf0\x9f\x98\x80", "C0[\xef\xbf\xbd\xf0\x9f\x98\x80](text -1 0 0)"},
        {"", "(text -1 0 0)"},
    };
    CHECK(rows, &(lar_output_options){.stop_count = 0});
}

static void test_stops(void **state) {
    (void)state;
    static const lar_slice stops[] = {{"END", 3}, {"\n\nUser:", 7}, {"ababc", 5}, {"bab", 3}, {"\xc3\xa9\xc3\xa9", 4}};
    const lar_output_options options = {.stops = stops, .stop_count = 5};
    static const row rows[] = {
        {"one END two", "C0[one ](stop 0 0 0)"},
        {"one EN", "C0[one EN](text -1 0 0)"},
        {"one ENEND", "C0[one EN](stop 0 0 0)"},
        {"a\n\n\nUser: b", "C0[a\n](stop 1 0 0)"},
        {"a\n\nUsers", "C0[a\n\nUsers](text -1 0 0)"},
        {"xababc", "C0[xa](stop 3 0 0)"}, /* "bab" is complete first */
        {"xabc", "C0[xabc](text -1 0 0)"},
        {"\xc3\xa9\xc3\xa8\xc3\xa9", "C0[\xc3\xa9\xc3\xa8\xc3\xa9](text -1 0 0)"},
        {"\xc3\xa8\xc3\xa9\xc3\xa9", "C0[\xc3\xa8](stop 4 0 0)"},
        {"END", "(stop 0 0 0)"},
    };
    CHECK(rows, &options);
    static const lar_slice two[] = {{"bc", 2}, {"abc", 3}}, repeats[] = {{"aab", 3}};
    static const row longer[] = {{"xabcd", "C0[x](stop 1 0 0)"}};
    CHECK(longer, (&(lar_output_options){.stops = two, .stop_count = 2}));
    static const row self[] = {{"aaaab", "C0[aa](stop 0 0 0)"}, {"aaaa", "C0[aaaa](text -1 0 0)"}};
    CHECK(self, (&(lar_output_options){.stops = repeats, .stop_count = 1}));
    lar_output_stop *s;
    lar_diag d = {.text = ""};
    static const lar_slice empty[] = {{"", 0}}, many[LAR_OUTPUT_STOPS_MAX + 1] = {{"", 0}};
    static char long_one[LAR_OUTPUT_STOP_BYTES_MAX + 1];
    const lar_slice large[] = {{long_one, sizeof long_one}};
    assert_int_equal(lar_output_stop_new(empty, 1, &s, &d), LAR_INVALID);
    assert_int_equal(lar_output_stop_new(many, LAR_OUTPUT_STOPS_MAX + 1, &s, &d), LAR_LIMIT);
    assert_int_equal(lar_output_stop_new(large, 1, &s, &d), LAR_LIMIT);
}

#define BLANKS "                                        " /* forty */
#define THINK .reasoning_begin = {"<think>", 7}, .reasoning_end = {"</think>", 8}

static void test_reasoning(void **state) {
    (void)state;
    static const row closed[] = {
        {"<think>\nwhy</think>\n\nso", "R0[\nwhy]C0[\n\nso](text -1 0 0)"},
        {" \n<think>why</think>so", "R0[why]C0[so](text -1 0 0)"},
        {"so <think>why</think>", "C0[so <think>why</think>](text -1 0 0)"},
        {"<think>why", "R0[why](text -1 0 0)"},
        {"<think>why</thin", "R0[why</thin](text -1 0 0)"},
        {"<think></think>so</think>", "C0[so</think>](text -1 0 0)"},
        {"<thin", "C0[<thin](text -1 0 0)"},
        {"  \n ", "C0[  \n ](text -1 0 0)"},
        {"<<think>", "C0[<<think>](text -1 0 0)"},
        {"</think>so", "C0[</think>so](text -1 0 0)"},
        {BLANKS BLANKS "<think>a</think>", "C0[" BLANKS BLANKS "<think>a</think>](text -1 0 0)"},
    };
    CHECK(closed, (&(lar_output_options){THINK}));
    static const row open[] = {
        {"why</think>so", "R0[why]C0[so](text -1 0 0)"},
        {"a<b</</think>c", "R0[a<b</]C0[c](text -1 0 0)"},
        {"never closed", "R0[never closed](text -1 0 0)"},
        {"</think>so", "C0[so](text -1 0 0)"},
        {"<think>why</think>so", "R0[<think>why]C0[so](text -1 0 0)"},
    };
    CHECK(open, (&(lar_output_options){THINK, .reasoning_open = true}));
    static const row calls[] = {
        {"why<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>x",
         "R0[why]call 0 id0 f;A0[{}]C0[x](calls -1 1 0)"},
    };
    CHECK(calls, (&(lar_output_options){THINK, .reasoning_open = true, .format = LAR_OUTPUT_FORMAT_V31}));
    static const lar_slice stop[] = {{"</think>s", 9}};
    static const row stopped[] = {{"why</think>so", "R0[why](stop 0 0 0)"}};
    CHECK(stopped, (&(lar_output_options){THINK, .reasoning_open = true, .stops = stop, .stop_count = 1}));
}

#define V3_CALL(name, arguments)                                                                                       \
    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>" name "\n```json\n" arguments "\n```<｜tool▁call▁end｜>"
#define V31_CALL(name, arguments) "<｜tool▁call▁begin｜>" name "<｜tool▁sep｜>" arguments "<｜tool▁call▁end｜>"
#define BLOCK(calls) "<｜tool▁calls▁begin｜>" calls "<｜tool▁calls▁end｜>"

static void test_v3(void **state) {
    (void)state;
    static const row rows[] = {
        {"Hi" BLOCK(V3_CALL("f", "{\"a\": 1}")), "C0[Hi]call 0 id0 f;A0[{\"a\": 1}](calls -1 1 0)"},
        {BLOCK(V3_CALL("f", "{}") "\n" V3_CALL("g", "{\"b\":\"```\\n\"}")),
         "call 0 id0 f;A0[{}]call 1 id1 g;A1[{\"b\":\"```\\n\"}](calls -1 2 0)"},
        {BLOCK("<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}<｜tool▁call▁end｜>"),
         "call 0 id0 f;A0[{}](calls -1 1 0)"},
        {BLOCK(V3_CALL("f", "{a}")) "z", "C0[" BLOCK(V3_CALL("f", "{a}")) "z](text -1 0 1)"},
        {"<｜tool▁calls▁begin｜>" V3_CALL("f", "{}"),
         "call 0 id0 f;A0[{}](calls -1 1 0)"}, /* the block's own end may be missing */
        {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\"",
         "C0[<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\"](unfinished -1 0 1)"},
        {BLOCK(""), "C0[" BLOCK("") "](text -1 0 1)"},
        {BLOCK("text"), "C0[" BLOCK("text") "](text -1 0 1)"},
        {BLOCK(V3_CALL("two words", "{}")), "C0[" BLOCK(V3_CALL("two words", "{}")) "](text -1 0 1)"},
        {BLOCK(V3_CALL("f", "{}") "and " V3_CALL("g", "{}")),
         "call 0 id0 f;A0[{}]C0[and " V3_CALL("g", "{}") "<｜tool▁calls▁end｜>](calls -1 1 0)"},
        {"<｜tool▁calls▁begi", "C0[<｜tool▁calls▁begi](text -1 0 0)"},
        {"<｜tool▁calls▁begin｜>", "C0[<｜tool▁calls▁begin｜>](unfinished -1 0 1)"},
    };
    CHECK(rows, (&(lar_output_options){.format = LAR_OUTPUT_FORMAT_V3}));
    static const row none[] = {{BLOCK("x"), "C0[" BLOCK("x") "](text -1 0 0)"}};
    CHECK(none, (&(lar_output_options){.format = LAR_OUTPUT_FORMAT_NONE}));
}

static void test_v31(void **state) {
    (void)state;
    static const row rows[] = {
        {BLOCK(V31_CALL("f", "{\"a\": [1, 2]}") V31_CALL("g", "")) "\n",
         "call 0 id0 f;A0[{\"a\": [1, 2]}]call 1 id1 g;A1[{}]C0[\n](calls -1 2 0)"},
        {BLOCK(V31_CALL(" f\n", "{}")), "call 0 id0 f;A0[{}](calls -1 1 0)"},
        {BLOCK(V31_CALL("f", "[1]")), "C0[" BLOCK(V31_CALL("f", "[1]")) "](text -1 0 1)"},
        {"a" BLOCK(V31_CALL("f", "{}")) "b" BLOCK(V31_CALL("g", "{}")),
         "C0[a]call 0 id0 f;A0[{}]C0[b]call 1 id1 g;A1[{}](calls -1 2 0)"},
        {BLOCK(V31_CALL("f", "{}") V31_CALL("g", "{") V31_CALL("h", "{}")),
         "call 0 id0 f;A0[{}]C0[" V31_CALL("g", "{") V31_CALL("h", "{}") "<｜tool▁calls▁end｜>](text -1 1 1)"},
    };
    CHECK(rows, (&(lar_output_options){.format = LAR_OUTPUT_FORMAT_V31}));
    static const row streamed[] = {
        {BLOCK(V31_CALL("f", "{\"a\": 1}")), "call 0 id0 f;A0[{\"a\": 1}](calls -1 1 0)"},
        {BLOCK(V31_CALL("f", "{\"a\": ")), "call 0 id0 f;A0[{\"a\": ](text -1 0 1)"},
        {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\"<｜tool▁cal",
         "call 0 id0 f;A0[{\"a\"](unfinished -1 0 1)"},
        {BLOCK(V31_CALL("f", "x") V31_CALL("g", "{}")), "call 0 id0 f;A0[x]call 1 id1 g;A1[{}](text -1 1 1)"},
        {BLOCK("<｜tool▁call▁begin｜><｜tool▁sep｜>"),
         "C0[" BLOCK("<｜tool▁call▁begin｜><｜tool▁sep｜>") "](text -1 0 1)"},
    };
    CHECK(streamed, (&(lar_output_options){.format = LAR_OUTPUT_FORMAT_V31, .arguments = LAR_OUTPUT_CALLS_STREAM}));
}

#define D "｜DSML｜"
#define DSML(calls) "\n\n<" D "function_calls>\n" calls "</" D "function_calls>"
#define INVOKE(name, parameters) "<" D "invoke name=\"" name "\">\n" parameters "</" D "invoke>\n"
#define PARAMETER(name, text, value)                                                                                   \
    "<" D "parameter name=\"" name "\" string=\"" text "\">" value "</" D "parameter>\n"

static const row dsml_good[] = {
    {"Look." DSML(
         INVOKE("f", PARAMETER("k", "true", "a \"b\"\n\xc3\xa9\\") PARAMETER("n", "false", "[1, {\"x\": null}]"))),
     "C0[Look.]call 0 id0 f;A0[{\"k\": \"a \\\"b\\\"\\n\xc3\xa9\\\\\", \"n\": [1, {\"x\": null}]}](calls -1 1 0)"},
    {DSML(INVOKE("f", "") INVOKE("g.h", PARAMETER("k", "true", ""))),
     "call 0 id0 f;A0[{}]call 1 id1 g.h;A1[{\"k\": \"\"}](calls -1 2 0)"},
    {DSML(INVOKE("f", PARAMETER("k", "true", "</" D "param <" D "invoke name=\"g\">"))),
     "call 0 id0 f;A0[{\"k\": \"</" D "param <" D "invoke name=\\\"g\\\">\"}](calls -1 1 0)"},
    {DSML(INVOKE("f", PARAMETER("k", "false", "not json"))), "call 0 id0 f;A0[{\"k\": \"not json\"}](calls -1 1 0)"},
    {DSML(INVOKE("f", PARAMETER("k \xe6\x97\xa5\"", "false", " 1.50 "))),
     "call 0 id0 f;A0[{\"k \xe6\x97\xa5\\\"\":  1.50 }](calls -1 1 0)"},
    {"<" D "function_calls>" INVOKE("f", "") "</" D "function_calls>", "call 0 id0 f;A0[{}](calls -1 1 0)"},
    {"a\n\n\n<" D "x", "C0[a\n\n\n<" D "x](text -1 0 0)"},
};

static void test_dsml(void **state) {
    (void)state;
    CHECK(dsml_good, (&(lar_output_options){.format = LAR_OUTPUT_FORMAT_DSML}));
    CHECK(dsml_good, (&(lar_output_options){.format = LAR_OUTPUT_FORMAT_DSML, .arguments = LAR_OUTPUT_CALLS_STREAM}));
    static const row bad[] = {
        {DSML(INVOKE("f", PARAMETER("k", "maybe", "1"))),
         "C0[" DSML(INVOKE("f", PARAMETER("k", "maybe", "1"))) "](text -1 0 1)"},
        {DSML(INVOKE("f", "<" D "parameter name=\"k\">1</" D "parameter>")),
         "C0[" DSML(INVOKE("f", "<" D "parameter name=\"k\">1</" D "parameter>")) "](text -1 0 1)"},
        {DSML(INVOKE("f", "loose")), "C0[" DSML(INVOKE("f", "loose")) "](text -1 0 1)"},
        {DSML(BLANKS BLANKS BLANKS BLANKS BLANKS BLANKS BLANKS INVOKE("f", "")),
         "C0[" DSML(BLANKS BLANKS BLANKS BLANKS BLANKS BLANKS BLANKS INVOKE("f", "")) "](text -1 0 1)"},
        {"\n\n<" D "function_calls>\n" DSML(INVOKE("f", "")),
         "C0[\n\n<" D "function_calls>\n]call 0 id0 f;A0[{}](text -1 1 1)"},
        {DSML("\n\n<" D "function_calls>"), "C0[" DSML("\n\n<" D "function_calls>") "](text -1 0 2)"},
        {"\n\n<" D "function_calls>\n<" D "invoke name=\"f\">\n<" D "parameter name=\"k\" string=\"true\">rm -rf",
         "C0[\n\n<" D "function_calls>\n<" D "invoke name=\"f\">\n<" D
         "parameter name=\"k\" string=\"true\">rm -rf](unfinished -1 0 1)"},
    };
    CHECK(bad, (&(lar_output_options){.format = LAR_OUTPUT_FORMAT_DSML}));
    static const row streamed[] = {
        {DSML(INVOKE("f", PARAMETER("k", "true", "v") "loose")),
         "call 0 id0 f;A0[{\"k\": \"v\"]C0[\nloose</" D "invoke>\n</" D "function_calls>](text -1 0 1)"},
        {"\n\n<" D "function_calls>\n<" D "invoke name=\"f\">\n<" D
         "parameter name=\"k\" string=\"true\">rm -rf /tmp/x",
         "call 0 id0 f;A0[{\"k\": \"rm -rf /tmp/x](unfinished -1 0 1)"},
    };
    CHECK(streamed, (&(lar_output_options){.format = LAR_OUTPUT_FORMAT_DSML, .arguments = LAR_OUTPUT_CALLS_STREAM}));
}

/* A parser that waits for ever holds a client for ever: ds4's issue 997 had 30,000 tokens in one open block. */
static void test_limit(void **state) {
    (void)state;
    lar_output_options options = {.format = LAR_OUTPUT_FORMAT_V31, .call_tokens_max = 10};
    lar_slice text = LAR_SLICE(
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
    lar_buf got = output_play_text(text, &options, (output_cuts){.at = SIZE_MAX});
    /* ten bytes, each a token, behind the one that completes the mark; the last two begin a character */
    assert_true(lar_slice_eq(lar_buf_slice(&got), LAR_SLICE("C0[<｜tool▁calls▁begin｜><｜tool](limit -1 0 1)")));
    lar_buf_release(&got);

    /* Without a limit of tokens the bytes of a call have one; nothing of it is lost. */
    options.call_tokens_max = 0;
    lar_buf large;
    lar_buf_init(&large, 4 << 20);
    assert_int_equal(lar_buf_add_slice(&large, LAR_SLICE("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>")),
                     LAR_OK);
    while (large.len < LAR_OUTPUT_CALL_BYTES_MAX + 1000)
        assert_int_equal(lar_buf_add(&large, "0123456789", 10), LAR_OK);
    got = output_play_text(lar_buf_slice(&large), &options, (output_cuts){.at = 1 << 19});
    assert_memory_equal(got.ptr, "C0[", 3);
    assert_memory_equal(got.ptr + 3, large.ptr, LAR_OUTPUT_CALL_BYTES_MAX - 2000);
    assert_memory_equal(got.ptr + got.len - 15, "](limit -1 0 1)", 15);
    lar_buf_release(&got);
    lar_buf_release(&large);

    /* Starts of marks that are none, byte by byte. */
    lar_buf long_text;
    lar_buf_init(&long_text, 4 << 20);
    for (int i = 0; i < 20000; i++) assert_int_equal(lar_buf_add(&long_text, "\n\n<", 3), LAR_OK);
    options.format = LAR_OUTPUT_FORMAT_DSML;
    got = output_play_text(lar_buf_slice(&long_text), &options, (output_cuts){.at = SIZE_MAX});
    assert_int_equal(got.len, 3 + long_text.len + strlen("](text -1 0 0)"));
    lar_buf_release(&got);
    lar_buf_release(&long_text);
}

static lar_error refuse(void *user, const lar_output_event *event) {
    (void)user;
    (void)event;
    return LAR_CLIENT_GONE;
}

static void test_errors(void **state) {
    (void)state;
    lar_output_stream *o;
    lar_diag d = {.text = ""};
    const lar_output_sink sink = {.emit = refuse, .make_id = play_id};
    lar_output_options options = {.reasoning_begin = {"<think>", 7}};
    assert_int_equal(lar_output_stream_new(&options, &sink, &o, &d), LAR_INVALID);
    assert_null(o);
    static const char long_mark[LAR_OUTPUT_MARK_BYTES_MAX + 1] = "x";
    options.reasoning_end = lar_slice_of(long_mark, sizeof long_mark);
    assert_int_equal(lar_output_stream_new(&options, &sink, &o, &d), LAR_LIMIT);
    options = (lar_output_options){.stop_count = 0};
    assert_int_equal(lar_output_stream_new(&options, &sink, &o, &d), LAR_OK);
    bool more;
    assert_int_equal(lar_output_stream_feed(o, LAR_SLICE("x"), 1, &more), LAR_CLIENT_GONE);
    lar_output_stream_free(o);
    lar_output_stream_free(NULL);
}

static void test_formats(void **state) {
    (void)state;
    assert_true(lar_output_prompt_opens(LAR_SLICE("<｜Assistant｜><think>\n"), LAR_SLICE("<think>")));
    assert_false(lar_output_prompt_opens(LAR_SLICE("<｜Assistant｜></think>"), LAR_SLICE("<think>")));
    assert_false(lar_output_prompt_opens(LAR_SLICE("think>"), LAR_SLICE("<think>")));
    assert_false(lar_output_prompt_opens(LAR_SLICE("x"), LAR_SLICE("")));
    assert_int_equal(lar_output_format_of(LAR_SLICE("{{ '<｜tool▁sep｜>' + name + '\n' + '```json' }}")),
                     LAR_OUTPUT_FORMAT_V3);
    assert_int_equal(lar_output_format_of(LAR_SLICE("{{ name + '<｜tool▁sep｜>' }}")), LAR_OUTPUT_FORMAT_V31);
    assert_int_equal(lar_output_format_of(LAR_SLICE("{% set t = '｜DSML｜' %}")), LAR_OUTPUT_FORMAT_DSML);
    assert_int_equal(lar_output_format_of(LAR_SLICE("<tool_call>")), LAR_OUTPUT_FORMAT_NONE);
    assert_true(lar_output_format_marks(LAR_OUTPUT_FORMAT_V31, LAR_SLICE("<｜tool▁sep｜>")));
    assert_true(lar_output_format_marks(LAR_OUTPUT_FORMAT_DSML, LAR_SLICE("｜DSML｜")));
    assert_false(lar_output_format_marks(LAR_OUTPUT_FORMAT_V3, LAR_SLICE("<｜User｜>")));
    assert_false(lar_output_format_marks(LAR_OUTPUT_FORMAT_NONE, LAR_SLICE("<｜tool▁sep｜>")));
}

static lar_error ignore(void *user, const lar_output_event *event) {
    (void)user;
    (void)event;
    return LAR_OK;
}

/* What came in and what of it is out: behind a held start of a mark, a stop string, a character. */
static void test_progress(void **state) {
    static const struct {
        const char *bytes;
        uint64_t read, done;
        bool reasoning;
    } steps[] = {
        {"<thi", 4, 0, false},  {"nk>", 7, 7, true},  {"ab\xC3", 9, 9, true},
        {"\xA9", 11, 11, true}, {"</", 13, 11, true}, {"think>S", 20, 19, false},
        {"T", 21, 19, false},   {"x", 22, 22, false}, {"STOP", 26, 22, false},
    };
    const lar_slice stop = LAR_SLICE("STOP");
    const lar_output_options options = {.reasoning_begin = LAR_SLICE("<think>"),
                                        .reasoning_end = LAR_SLICE("</think>"),
                                        .stops = &stop,
                                        .stop_count = 1};
    lar_output_stream *o;
    (void)state;
    assert_int_equal(lar_output_stream_new(&options, &(lar_output_sink){.emit = ignore}, &o, NULL), LAR_OK);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        bool more;
        assert_int_equal(lar_output_stream_feed(o, lar_slice_cstr(steps[i].bytes), 1, &more), LAR_OK);
        lar_output_progress at = lar_output_stream_progress(o);
        assert_int_equal(at.read, steps[i].read);
        assert_int_equal(at.done, steps[i].done);
        assert_int_equal(at.reasoning, steps[i].reasoning);
        assert_int_equal(more, i + 1 < sizeof steps / sizeof *steps);
    }
    lar_output_stream_free(o);
}

typedef struct told {
    char text[64];
    lar_output_kind kind;
} told;

static lar_error keep(void *user, const lar_output_event *event) {
    told *t = user;
    (void)snprintf(t->text + strlen(t->text), sizeof t->text - strlen(t->text), "%.*s", LAR_FMT(event->text));
    t->kind = event->kind;
    return LAR_OK;
}

/* What is told of `text` in one go behind `begun`; false: a stop string ended it. */
static bool tell_behind(const lar_output_options *options, lar_slice reasoning, lar_slice content, lar_slice text,
                        told *out) {
    lar_output_stream *o;
    lar_output_summary s;
    bool more = true;
    *out = (told){.text = ""};
    assert_int_equal(lar_output_stream_new(options, &(lar_output_sink){.user = out, .emit = keep}, &o, NULL), LAR_OK);
    lar_output_stream_resume(o, reasoning, content);
    for (size_t i = 0; i < text.len && more; i++)
        assert_int_equal(lar_output_stream_feed(o, lar_slice_of(text.ptr + i, 1), 1, &more), LAR_OK);
    assert_int_equal(lar_output_stream_finish(o, &s), LAR_OK);
    lar_output_stream_free(o);
    return s.stop < 0;
}

/* Wherever it was cut, what a client has and what it gets then is the whole text up to the stop string, or what it has
 * where that reaches into it. */
static void test_resume_behind_any_cut(void **state) {
    static const lar_slice stops[] = {{"END", 3}, {"ababc", 5}, {"aab", 3}};
    const lar_output_options options = {.stops = stops, .stop_count = 3};
    static const char *const rows[] = {"one END two", "one ENEND", "xababc",  "aaaab",
                                       "ababab",      "EEN",       "no stop", "aabx"};
    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        told whole, rest;
        lar_slice text = lar_slice_cstr(rows[r]), none = LAR_SLICE("");
        bool open = tell_behind(&options, none, none, text, &whole);
        size_t len = strlen(whole.text), end = text.len;
        for (size_t cut = 1; cut < end; cut++) {
            lar_slice begun = lar_slice_of(text.ptr, cut);
            told before;
            if (!tell_behind(&options, none, none, begun, &before)) break; /* no answer goes on behind its end */
            assert_int_equal(tell_behind(&options, none, begun, lar_slice_of(text.ptr + cut, text.len - cut), &rest),
                             open);
            char want[64] = "";
            if (len > cut) (void)snprintf(want, sizeof want, "%s", whole.text + cut);
            assert_string_equal(rest.text, want);
        }
    }
}

static void test_resume_reasoning(void **state) {
    const lar_output_options options = {.reasoning_begin = LAR_SLICE("<think>"),
                                        .reasoning_end = LAR_SLICE("</think>")};
    const lar_slice none = LAR_SLICE(""), some = LAR_SLICE("ab");
    told t;
    (void)state;
    assert_true(tell_behind(&options, some, none, LAR_SLICE("c"), &t));
    assert_true(t.kind == LAR_OUTPUT_REASONING && strcmp(t.text, "c") == 0);
    assert_true(tell_behind(&options, some, none, LAR_SLICE("</think>c"), &t));
    assert_true(t.kind == LAR_OUTPUT_CONTENT && strcmp(t.text, "c") == 0);
    assert_true(tell_behind(&options, some, some, LAR_SLICE("<think>c"), &t));
    assert_true(t.kind == LAR_OUTPUT_CONTENT && strcmp(t.text, "<think>c") == 0);
    assert_true(tell_behind(&options, none, none, LAR_SLICE("<think>c"), &t));
    assert_int_equal(t.kind, LAR_OUTPUT_REASONING);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_characters),
        cmocka_unit_test(test_stops),
        cmocka_unit_test(test_reasoning),
        cmocka_unit_test(test_v3),
        cmocka_unit_test(test_v31),
        cmocka_unit_test(test_dsml),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_resume_behind_any_cut),
        cmocka_unit_test(test_resume_reasoning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
