/* Event streams: every shape of the reports, cut at every byte, byte by byte and at random.
 * Transcripts: {type|data} an event, {:} a comment or bare field, {+} over the limit; nothing without a blank line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit_http1/sse_play.h"

static void compare(lar_slice in, size_t max, cuts c, const char *want) {
    lar_buf out;
    lar_buf_init(&out, 16 << 20);
    sse_play(in, max, c, &out);
    assert_false(lar_buf_add(&out, "", 1));
    if (strcmp(out.ptr, want) != 0)
        print_error("input: %.*s\ncut: kind %d at %zu seed %llu\n", LAR_FMT(in), c.kind, c.at,
                    (unsigned long long)c.seed);
    assert_string_equal(out.ptr, want);
    lar_buf_release(&out);
}

static void limited(lar_slice in, size_t max, const char *want) {
    compare(in, max, (cuts){.kind = CUT_NONE}, want);
    compare(in, max, (cuts){.kind = CUT_BYTES}, want);
    for (size_t at = 1; at < in.len; at++) compare(in, max, (cuts){.kind = CUT_AT, .at = at}, want);
    for (uint64_t seed = 1; seed <= 200; seed++) compare(in, max, (cuts){.kind = CUT_RANDOM, .seed = seed}, want);
}
#define EVENTS(bytes, want) limited(LAR_SLICE(bytes), 1 << 20, want)

static void s01_cut_inside_characters(void **s) {
    (void)s;
    EVENTS("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"你好🌍\"}}]}\n\n",
           "{|{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"你好🌍\"}}]}}");
}

static void s02_stream_ends_inside_a_character(void **s) {
    (void)s;
    EVENTS("data: a\xe2\x80\x9c\n\n", "{|a\xe2\x80\x9c}");
    EVENTS("data: a\n\ndata: \xe2\x80", "{|a}");
}

static void s03_crlf_split(void **s) {
    (void)s;
    EVENTS("data: A\r\ndata: B\r\ndata: C\r\n\n", "{|A\nB\nC}");
    EVENTS("data: A\r\ndata: B\rdata: C\r\n\n", "{|A\nB\nC}");
    EVENTS("data: A\r\n\r\ndata: B\r\n\r\n", "{|A}{|B}");
}

static void s04_line_ends(void **s) {
    (void)s;
    static const char want[] = "{|one}{t|two\nlines}{|three}";
    EVENTS("data: one\n\nevent: t\ndata: two\ndata: lines\n\ndata: three\n\n", want);
    EVENTS("data: one\r\n\r\nevent: t\r\ndata: two\r\ndata: lines\r\n\r\ndata: three\r\n\r\n", want);
    EVENTS("data: one\r\revent: t\rdata: two\rdata: lines\r\rdata: three\r\r", want);
    EVENTS("data: one\r\n\nevent: t\rdata: two\ndata: lines\r\n\rdata: three\n\r\n", want);
}

static void s05_trailing_cr(void **s) {
    (void)s;
    EVENTS("data: a\r\ndata: b\r\n\r\n", "{|a\nb}");
    EVENTS("data: a\r\r", "{|a}");
    EVENTS("data: a\r", "");
    EVENTS("data: a\r\n\r", "{|a}");
}

static void s06_spaces_and_bare_fields(void **s) {
    (void)s;
    EVENTS("data:{\"a\":1}\n\ndata:  two\n\ndata\n\ndata:\n\ndata:[DONE]\n\n", "{|{\"a\":1}}{| two}{|}{|}{|[DONE]}");
    EVENTS("data\ndata\n\n", "{|\n}");
    EVENTS("data:\n data: x\n\n", "{|}");
    EVENTS("data:\tx\n\n", "{|\tx}");
    EVENTS("event\ndata: x\n\n", "{|x}");
    EVENTS("event: a\nevent: b\ndata: x\n\ndata: y\n\n", "{b|x}{|y}");
}

static void s07_several_lines_and_escapes(void **s) {
    (void)s;
    EVENTS("data: one\ndata: two\ndata: three\n\n", "{|one\ntwo\nthree}");
    EVENTS("data: {\"x\":\"data: \\n\\n data: y\"}\n\n", "{|{\"x\":\"data: \\n\\n data: y\"}}");
    EVENTS("data: \ndata: \n\n", "{|\n}");
}

static void s10_bytes_after_done(void **s) {
    (void)s;
    EVENTS("data: [DONE]\n\n0123456789", "{|[DONE]}");
    EVENTS("data: [DONE]\n", "");
    EVENTS("data: [DONE]", "");
}

static void s14_unknown_fields(void **s) {
    (void)s;
    EVENTS("error: {\"code\":500}\n\n", "{:}");
    EVENTS("id: 7\nretry: 10\ndatum: x\ndatax\nDATA: x\ndata: y\neventual: z\n\n", "{|y}");
}

static void s16_comments(void **s) {
    (void)s;
    EVENTS(": PROCESSING\n\ndata: a\n\n: keep-alive\n\n:\n\ndata: b\n\n", "{:}{|a}{:}{:}{|b}");
    EVENTS(": glued\ndata: a\n: inside\ndata: b\n\n", "{|a\nb}");
    EVENTS(": data: x\n\n", "{:}");
}

static void s17_data_that_is_no_object(void **s) {
    (void)s;
    EVENTS("data: null\n\ndata: \"\"\n\ndata: 1\n\n", "{|null}{|\"\"}{|1}");
}

static void j18_bom(void **s) {
    (void)s;
    EVENTS("\xef\xbb\xbf"
           "data: a\n\n",
           "{|a}");
    EVENTS("\xef\xbb\xbf\n\ndata: a\n\n", "{|a}");
    EVENTS("\xef\xbb\xbf\xef\xbb\xbf"
           "data: a\n\n",
           "{:}");
    EVENTS("data: a\n\n\xef\xbb\xbf"
           "data: b\n\n",
           "{|a}{:}");
    EVENTS("\xef\xbb"
           "data: a\n\n",
           "{:}");
    EVENTS("\xef\n\n", "{:}");
    EVENTS("\xef\xbb\xbf", "");
}

static void blank_lines_make_no_events(void **s) {
    (void)s;
    EVENTS("\n\r\n\r\n\n\rdata: a\n\n\n\n\ndata: b\n\n\n", "{|a}{|b}");
    EVENTS("", "");
}

static void bytes_of_any_kind(void **s) {
    (void)s;
    lar_slice in = LAR_SLICE("data: a\0b\n\n");
    lar_sse x;
    lar_sse_event e;
    size_t used;
    lar_sse_init(&x, 100);
    assert_true(lar_sse_next(&x, in.ptr, in.len, &used, &e));
    assert_int_equal(e.data.len, 3);
    assert_memory_equal(e.data.ptr, "a\0b", 3);
    lar_sse_release(&x);
}

static void long_lines(void **s) {
    (void)s;
    lar_buf in, want;
    lar_buf_init(&in, 1 << 20);
    lar_buf_init(&want, 1 << 20);
    assert_false(lar_buf_printf(&in, "data: "));
    assert_false(lar_buf_printf(&want, "{|"));
    for (int i = 0; i < 1500; i++) {
        assert_false(lar_buf_printf(&in, "%d,", i));
        assert_false(lar_buf_printf(&want, "%d,", i));
    }
    assert_false(lar_buf_printf(&in, "\n\n"));
    assert_false(lar_buf_add(&want, "}", 2));
    compare(lar_buf_slice(&in), 1 << 20, (cuts){.kind = CUT_NONE}, want.ptr);
    compare(lar_buf_slice(&in), 1 << 20, (cuts){.kind = CUT_BYTES}, want.ptr);
    for (uint64_t seed = 1; seed <= 50; seed++)
        compare(lar_buf_slice(&in), 1 << 20, (cuts){.kind = CUT_RANDOM, .seed = seed}, want.ptr);
    lar_buf_release(&in);
    lar_buf_release(&want);
}

static void over_the_limit(void **s) {
    (void)s;
    limited(LAR_SLICE("event: x\ndata: 0123456789\n\ndata: ok\n\n"), 24, "{x|0123456789}{|ok}");
    limited(LAR_SLICE("event: x\ndata: 01234567890\n\ndata: ok\n\n"), 24, "{+}{|ok}");
    limited(LAR_SLICE("data: 0123\ndata: 4567\ndata: 89\n\ndata: ok\n\n: aaaaaaaaaaaaaaaaaaaaaaaaaaaa\n\ndata: ok\n\n"),
            24, "{+}{|ok}{+}{|ok}");
    limited(LAR_SLICE("data: 0123456789012345678901234567890123456789\r\n\r\ndata: ok\r\n\r\n"), 24, "{+}{|ok}");
    limited(LAR_SLICE("data: 0123456789012345678901234567890123456789"), 24, "");
    limited(LAR_SLICE("\xef\xbb"
                      "a\n\n"),
            2, "{+}");
    limited(LAR_SLICE("data: a\n\n"), 0, "{+}");
}

static void one_whole_line_is_not_copied(void **s) {
    (void)s;
    static const char in[] = "data: hello\n\n";
    lar_sse x;
    lar_sse_event e;
    size_t used;
    lar_sse_init(&x, 100);
    assert_true(lar_sse_next(&x, in, sizeof in - 1, &used, &e));
    assert_ptr_equal(e.data.ptr, in + 6);
    assert_null(x.data.ptr);
    assert_null(x.line.ptr);
    lar_sse_release(&x);
}

/* What the relay does with an event it withholds (S-20): its bytes go, all others stay. */
static void an_event_can_be_taken_out(void **s) {
    (void)s;
    lar_slice in = LAR_SLICE("data: a\r\n\r\n: c\n\ndata: b\r\rdata: c\n\n");
    static const char *const want[] = {"{:}{|b}{|c}", "{|a}{|b}{|c}", "{|a}{:}{|c}", "{|a}{:}{|b}"};
    for (int drop = 0; drop < 4; drop++) {
        char rest[64];
        size_t n = 0, pos = 0, used;
        lar_sse x;
        lar_sse_event e;
        lar_sse_init(&x, 100);
        for (int k = 0; pos < in.len; k++, pos += used) {
            assert_true(lar_sse_next(&x, in.ptr + pos, in.len - pos, &used, &e));
            if (k == drop) continue;
            memcpy(rest + n, in.ptr + e.wire_start, (size_t)(e.wire_end - e.wire_start));
            n += (size_t)(e.wire_end - e.wire_start);
        }
        lar_sse_release(&x);
        limited(lar_slice_of(rest, n), 100, want[drop]);
    }
}

static void reset_starts_a_new_stream(void **s) {
    (void)s;
    lar_sse x;
    lar_sse_event e;
    size_t used;
    lar_sse_init(&x, 100);
    assert_false(lar_sse_next(&x, "data: half", 10, &used, &e));
    lar_sse_reset(&x);
    assert_true(lar_sse_next(&x,
                             "\xef\xbb\xbf"
                             "data: b\n\n",
                             12, &used, &e));
    assert_int_equal(e.wire_start, 0);
    assert_int_equal(e.wire_end, 12);
    assert_true(lar_slice_eq_cstr(e.data, "b"));
    lar_sse_release(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(s01_cut_inside_characters),
        cmocka_unit_test(s02_stream_ends_inside_a_character),
        cmocka_unit_test(s03_crlf_split),
        cmocka_unit_test(s04_line_ends),
        cmocka_unit_test(s05_trailing_cr),
        cmocka_unit_test(s06_spaces_and_bare_fields),
        cmocka_unit_test(s07_several_lines_and_escapes),
        cmocka_unit_test(s10_bytes_after_done),
        cmocka_unit_test(s14_unknown_fields),
        cmocka_unit_test(s16_comments),
        cmocka_unit_test(s17_data_that_is_no_object),
        cmocka_unit_test(j18_bom),
        cmocka_unit_test(blank_lines_make_no_events),
        cmocka_unit_test(bytes_of_any_kind),
        cmocka_unit_test(long_lines),
        cmocka_unit_test(over_the_limit),
        cmocka_unit_test(one_whole_line_is_not_copied),
        cmocka_unit_test(an_event_can_be_taken_out),
        cmocka_unit_test(reset_starts_a_new_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
