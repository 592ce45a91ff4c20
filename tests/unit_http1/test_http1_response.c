/* Responses: bodies with and without length, 1xx, answers that never have a body, faults; each with all cuts.
 * Transcripts: (status)[body]. for a message, !NAME for a failure. */
#include "tests/unit_http1/http1_expect.h"

static void answer(lar_slice in, const char *want) {
    expect_play((http1_play){.type = LAR_HTTP1_RESPONSE, .limits = PLAY_LIMITS}, in, want);
}
#define ANSWER(bytes, want) answer(LAR_SLICE(bytes), want)
#define MALFORMED(bytes) answer(LAR_SLICE(bytes), "!UPSTREAM_PROTOCOL")

static void then_closed(lar_slice in, const char *want) {
    expect_play((http1_play){.type = LAR_HTTP1_RESPONSE, .limits = PLAY_LIMITS, .close = true}, in, want);
}
#define CLOSED(bytes, want) then_closed(LAR_SLICE(bytes), want)

static void to_head(lar_slice in, const char *want) {
    expect_play((http1_play){.type = LAR_HTTP1_RESPONSE, .limits = PLAY_LIMITS, .to_head = true}, in, want);
}
#define TO_HEAD(bytes, want) to_head(LAR_SLICE(bytes), want)

static bool keeps_alive(lar_slice in, bool head_request) {
    lar_http1_limits limits = PLAY_LIMITS;
    lar_http1 *p = lar_http1_new(LAR_HTTP1_RESPONSE, &limits);
    size_t used;
    lar_slice body;
    lar_http1_expect(p, head_request);
    assert_int_equal(lar_http1_next(p, in.ptr, in.len, &used, &body), LAR_HTTP1_HEAD_END);
    bool keep = lar_http1_head_of(p)->keep_alive;
    lar_http1_free(p);
    return keep;
}

static void ordinary_answers(void **s) {
    (void)s;
    ANSWER("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "(200)[hello].");
    ANSWER("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "(200).");
    ANSWER("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "(200).");
    ANSWER("HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", "(200).");
    ANSWER("HTTP/1.1 529 \xc3\xbc"
           "berlastet (50% \"full\")\r\nRETRY-AFTER: 7\r\ncontent-length: 2\r\n\r\n{}",
           "(529)[{}].");
    ANSWER("HTTP/1.1 200 OK\r\nTransfer-Encoding: CHUNKED\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", "(200)[abcde].");
    ANSWER("HTTP/1.1 200 OK\r\nContent-Length:\t5 \t\r\n\r\nhello", "(200)[hello].");
    ANSWER("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\t\r\nContent-Length: 9\t\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
           "(200)[abc].");
    ANSWER("HTTP/1.1 200 OK\r\nContent-Length: 9\t\r\nTransfer-Encoding: chunked \t\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
           "(200)[abc].");
    ANSWER("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3  \r\nabc\r\n0 \r\nX-T: 1\r\n\r\n", "(200)[abc].");
}

static void until_closed(void **s) {
    (void)s;
    CLOSED("HTTP/1.1 200 OK\r\n\r\nhello", "(200)[hello].");
    CLOSED("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n", "(200).");
    CLOSED("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "(200)[hello].");
    CLOSED("", "");
}

static void s12_cut_answers(void **s) {
    (void)s;
    CLOSED("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", "(200)[hell]!UPSTREAM_CUT");
    CLOSED("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "(200)!UPSTREAM_CUT");
    CLOSED("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "(200)[hello]!UPSTREAM_CUT");
    CLOSED("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", "(200)[hel]!UPSTREAM_CUT");
    CLOSED("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", "(200)[hello]!UPSTREAM_CUT");
    CLOSED("HTTP/1.1 200 OK\r\nConte", "!UPSTREAM_CLOSED");
    CLOSED("HTTP/1.1 100 Continue\r\n\r\n", "(100)!UPSTREAM_CLOSED");
}

static void h13_h14_interim_answers(void **s) {
    (void)s;
    ANSWER("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nhello, world",
           "(103)(200)[hello, world].");
    ANSWER("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
           "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
           "(103)(103)(100)(200)[hi].");
    ANSWER("HTTP/1.1 102 Processing\r\nContent-Length: 5\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", "(102)(204).");
    TO_HEAD("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "(100)(200).");
    MALFORMED("HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n");
}

static void h17_h18_answers_without_body(void **s) {
    (void)s;
    TO_HEAD("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "(200).");
    TO_HEAD("HTTP/1.1 200 OK\r\nContent-Length: 1192\r\n\r\n", "(200).");
    TO_HEAD("HTTP/1.1 200 OK\r\n\r\n", "(200).");
    ANSWER("HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", "(304).");
    ANSWER("HTTP/1.1 304 Not Modified\r\nContent-Length: 1192\r\n\r\n", "(304).");
    ANSWER("HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\n", "(204).(204).");
    ANSWER("HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n", "(205).");
    assert_true(keeps_alive(LAR_SLICE("HTTP/1.1 200 OK\r\n\r\n"), true));
    assert_true(keeps_alive(LAR_SLICE("HTTP/1.1 204 No Content\r\n\r\n"), false));
}

static void the_head_request_is_forgotten_after_its_answer(void **s) {
    (void)s;
    static const char in[] =
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
    lar_http1_limits limits = PLAY_LIMITS;
    lar_http1 *p = lar_http1_new(LAR_HTTP1_RESPONSE, &limits);
    static const lar_http1_event want[] = {LAR_HTTP1_HEAD_END, LAR_HTTP1_END, LAR_HTTP1_HEAD_END,
                                           LAR_HTTP1_BODY,     LAR_HTTP1_END, LAR_HTTP1_MORE};
    size_t pos = 0, used;
    lar_slice body;
    lar_http1_expect(p, true);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++, pos += used)
        assert_int_equal(lar_http1_next(p, in + pos, sizeof in - 1 - pos, &used, &body), want[i]);
    lar_http1_free(p);
}

static void when_the_connection_may_be_used_again(void **s) {
    (void)s;
    assert_true(keeps_alive(LAR_SLICE("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"), false));
    assert_false(keeps_alive(LAR_SLICE("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n"), false));
    assert_false(keeps_alive(LAR_SLICE("HTTP/1.1 200 OK\r\n\r\n"), false));
    assert_false(keeps_alive(LAR_SLICE("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n"), false));
    assert_true(
        keeps_alive(LAR_SLICE("HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\n"), false));
    assert_false(
        keeps_alive(LAR_SLICE("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"), false));
    assert_false(
        keeps_alive(LAR_SLICE("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n"),
                    false));
}

static void length_and_chunked_together(void **s) {
    (void)s;
    ANSWER("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
           "(200)[hello].");
    ANSWER("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
           "(200)[hello].");
}

static void malformed_answers(void **s) {
    (void)s;
    MALFORMED("HTTP/2.0 200 OK\r\n\r\n");
    MALFORMED("HTTP/1.1 20 OK\r\n\r\n");
    MALFORMED("HTTP/1.1 2000 OK\r\n\r\n");
    MALFORMED("HTTP/1.1 099 OK\r\n\r\n");
    MALFORMED("HTTP/1.1  200 OK\r\n\r\n");
    MALFORMED("HTTP/1.1 200 a\x01"
              "b\r\n\r\n");
    MALFORMED("ICY 200 OK\r\n\r\n");
    MALFORMED("<html>");
    MALFORMED("\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    MALFORMED("HTTP/1.1 200 OK\nContent-Length: 0\n\n");
    MALFORMED("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n");
    MALFORMED("HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\n");
    MALFORMED("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n");
    MALFORMED("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n");
    MALFORMED("HTTP/1.1 200 OK\r\nX: 1\r\n folded\r\n\r\n");
    MALFORMED("HTTP/1.1 200 OK\r\nX : 1\r\n\r\n");
    MALFORMED("HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n");
    MALFORMED("HTTP/1.1 200 OK\r\nX-Abc:\rxContent-Length: 0\r\n\r\n");
    ANSWER("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX", "(200)[hello]!UPSTREAM_PROTOCOL");
    ANSWER("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello", "(200)!UPSTREAM_PROTOCOL");
    ANSWER("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTPX", "(200).");
    ANSWER("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\njunk", "(200).!UPSTREAM_PROTOCOL");
}

static void limits_of_answers(void **s) {
    (void)s;
    http1_play y = {.type = LAR_HTTP1_RESPONSE, .limits = {.head_bytes_max = 39, .fields_max = 1, .body_bytes_max = 1}};
    expect_play(y, LAR_SLICE("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), "(200)[hello].");
    expect_play(y, LAR_SLICE("HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nhello"), "!UPSTREAM_PROTOCOL");
    expect_play(y, LAR_SLICE("HTTP/1.1 200 OK\r\nA: 1\r\nB: 2\r\n\r\n"), "!UPSTREAM_PROTOCOL");
}

static void h23_hop_by_hop_of_answers(void **s) {
    (void)s;
    static const char in[] =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n"
        "Keep-Alive: timeout=60\r\nContent-Type: text/event-stream\r\nContent-Encoding: br\r\n\r\n";
    lar_http1_limits limits = PLAY_LIMITS;
    lar_http1 *p = lar_http1_new(LAR_HTTP1_RESPONSE, &limits);
    size_t used;
    lar_slice body;
    assert_int_equal(lar_http1_next(p, in, sizeof in - 1, &used, &body), LAR_HTTP1_HEAD_END);
    const lar_http1_head *h = lar_http1_head_of(p);
    static const bool want[] = {true, true, true, false, false};
    for (uint32_t i = 0; i < h->field_count; i++) assert_int_equal(lar_http1_hop_by_hop(h, h->fields[i].name), want[i]);
    lar_http1_free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ordinary_answers),
        cmocka_unit_test(until_closed),
        cmocka_unit_test(s12_cut_answers),
        cmocka_unit_test(h13_h14_interim_answers),
        cmocka_unit_test(h17_h18_answers_without_body),
        cmocka_unit_test(the_head_request_is_forgotten_after_its_answer),
        cmocka_unit_test(when_the_connection_may_be_used_again),
        cmocka_unit_test(length_and_chunked_together),
        cmocka_unit_test(malformed_answers),
        cmocka_unit_test(limits_of_answers),
        cmocka_unit_test(h23_hop_by_hop_of_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
