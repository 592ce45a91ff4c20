/* Requests: framing, limits and every smuggling form of the reports, each with all cuts.
 * Transcripts: (METHOD target)[body]. for a message, !NAME for a refusal. */
#include "tests/unit_http1/http1_expect.h"

#define POST "POST /v1/chat/completions HTTP/1.1\r\nHost: gw.test\r\n"
#define HEAD "(POST /v1/chat/completions)"

static void request(lar_slice in, const char *want) {
    expect_play((http1_play){.type = LAR_HTTP1_REQUEST, .limits = PLAY_LIMITS}, in, want);
}
#define REQUEST(bytes, want) request(LAR_SLICE(bytes), want)
#define SYNTAX(bytes) request(LAR_SLICE(bytes), "!HTTP_SYNTAX")

static void h04_length_before_chunked(void **s) {
    (void)s;
    SYNTAX(
        POST
        "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n20\r\nGET /admin HTTP/1.1\r\nHost: x\r\n\r\n\r\n0\r\n\r\n");
    SYNTAX(POST "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n");
}

static void h05_removed_length(void **s) {
    (void)s;
    SYNTAX(
        POST
        "Content-Length: 50\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /admin HTTP/1.1\r\nX: 00000000000000000000");
}

static void h06_lengths(void **s) {
    (void)s;
    SYNTAX(POST "Content-Length: 46\r\nContent-Length: 0\r\n\r\n");
    SYNTAX(POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello");
    SYNTAX(POST "Content-Length: 5, 5\r\n\r\nhello");
    SYNTAX(POST "Content-Length: +5\r\n\r\nhello");
    SYNTAX(POST "Content-Length: -5\r\n\r\nhello");
    SYNTAX(POST "Content-Length: 5 5\r\n\r\nhello");
    SYNTAX(POST "Content-Length: 0x5\r\n\r\nhello");
    SYNTAX(POST "Content-Length: 5_0\r\n\r\nhello");
    SYNTAX(POST "Content-Length:\r\n\r\nhello");
    SYNTAX(POST "Content-Length: 5.0\r\n\r\nhello");
    SYNTAX(POST "Content-Length: \"5\"\r\n\r\nhello");
    SYNTAX(POST "Content-Length: 9223372036854775808\r\n\r\n");
    SYNTAX(POST "Content-Length: 18446744073709551621\r\n\r\nhello");
    SYNTAX(POST "Content-Length: 99999999999999999999999999\r\n\r\nhello");
    SYNTAX(POST "Content-Length: \xd9\xa5\r\n\r\nhello");
    REQUEST(POST "Content-Length: 5 \r\n\r\nhello", HEAD "[hello].");
    REQUEST(POST "Content-Length:5\r\n\r\nhello", HEAD "[hello].");
    REQUEST(POST "Content-Length: 9223372036854775807\r\n\r\nhello", HEAD "[hello]");
}

static void h07_bare_lf_in_chunk_lines(void **s) {
    (void)s;
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"
    REQUEST(CHUNKED "5\nhello\r\n0\r\n\r\n", HEAD "!HTTP_SYNTAX");
    REQUEST(CHUNKED "5;x\nhello\r\n0\r\n\r\n", HEAD "!HTTP_SYNTAX");
    REQUEST(CHUNKED "5\r\nhello\n0\r\n\r\n", HEAD "[hello]!HTTP_SYNTAX");
    REQUEST(CHUNKED "5\r\nhello\r\n0\n\r\n", HEAD "[hello]!HTTP_SYNTAX");
    REQUEST(CHUNKED "5\r\nhello\r\n0\r\n\n", HEAD "[hello]!HTTP_SYNTAX");
    REQUEST(CHUNKED "5\rhello\r\n0\r\n\r\n", HEAD "!HTTP_SYNTAX");
}

static void h08_chunk_extensions(void **s) {
    (void)s;
    REQUEST(CHUNKED "5;a\nb\r\nhello\r\n0\r\n\r\n", HEAD "!HTTP_SYNTAX");
    REQUEST(CHUNKED "5;a\rb\r\nhello\r\n0\r\n\r\n", HEAD "!HTTP_SYNTAX");
    REQUEST(CHUNKED "5;\0\r\nhello\r\n0\r\n\r\n", HEAD "!HTTP_SYNTAX");
    REQUEST(CHUNKED "5;a=\"\x01\"\r\nhello\r\n0\r\n\r\n", HEAD "!HTTP_SYNTAX");
    REQUEST(CHUNKED "5;a=\"b\r\nhello\r\n0\r\n\r\n", HEAD "!HTTP_SYNTAX");
    REQUEST(CHUNKED "5;\r\nhello\r\n0\r\n\r\n", HEAD "!HTTP_SYNTAX");
    REQUEST(CHUNKED "5;a=\r\nhello\r\n0\r\n\r\n", HEAD "!HTTP_SYNTAX");
    REQUEST(CHUNKED "5 \r\nhello\r\n0\r\n\r\n", HEAD "!HTTP_SYNTAX");
    REQUEST(CHUNKED "5 5\r\nhello\r\n0\r\n\r\n", HEAD "!HTTP_SYNTAX");
    REQUEST(CHUNKED "5;name=value\r\nhello\r\n0\r\n\r\n", HEAD "[hello].");
    REQUEST(CHUNKED "5;a;b=c;d=\"e;\\\"\r\"\r\nhello\r\n0\r\n\r\n", HEAD "!HTTP_SYNTAX");
    REQUEST(CHUNKED "5 ; a ; b = c;d=\"e;\\\" \"\r\nhello\r\n0;last\r\n\r\n", HEAD "[hello].");
}

static void h09_chunk_data_longer_than_its_size(void **s) {
    (void)s;
    REQUEST(CHUNKED "5\r\nhelloXYZ\r\n0\r\n\r\n", HEAD "[hello]!HTTP_SYNTAX");
    REQUEST(CHUNKED "5\r\nhelloX\n0\r\n\r\n", HEAD "[hello]!HTTP_SYNTAX");
    REQUEST(CHUNKED "5\r\nhello\rX0\r\n\r\n", HEAD "[hello]!HTTP_SYNTAX");
    REQUEST(CHUNKED "5\r\nhello5\r\nworld\r\n0\r\n\r\n", HEAD "[hello]!HTTP_SYNTAX");
}

static void chunk_sizes(void **s) {
    (void)s;
    REQUEST(CHUNKED "A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n", HEAD "[01234567890123456789].");
    REQUEST(CHUNKED "0005\r\nhello\r\n0000\r\n\r\n", HEAD "[hello].");
    REQUEST(CHUNKED "\r\n", HEAD "!HTTP_SYNTAX");
    REQUEST(CHUNKED ";a\r\n", HEAD "!HTTP_SYNTAX");
    REQUEST(CHUNKED "-5\r\nhello", HEAD "!HTTP_SYNTAX");
    REQUEST(CHUNKED "0x5\r\nhello", HEAD "!HTTP_SYNTAX");
    REQUEST(CHUNKED " 5\r\nhello", HEAD "!HTTP_SYNTAX");
    REQUEST(CHUNKED "5g\r\nhello", HEAD "!HTTP_SYNTAX");
    REQUEST(CHUNKED "10000000000000005\r\nhello", HEAD "!HTTP_SYNTAX");
    REQUEST(CHUNKED "ffffffffffffffff\r\nhello", HEAD "!HTTP_SYNTAX");
    REQUEST(CHUNKED "00000000000000005\r\nhello", HEAD "!HTTP_SYNTAX");
}

static void trailers_are_checked_and_dropped(void **s) {
    (void)s;
    REQUEST(CHUNKED
            "2\r\nhi\r\n0\r\nContent-Length: 7\r\nAuthorization: Bearer x\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            HEAD "[hi].(GET /).");
    REQUEST(CHUNKED "0\r\nX-A: 1\r\n folded\r\n\r\n", HEAD "!HTTP_SYNTAX");
    REQUEST(CHUNKED "0\r\nno colon\r\n\r\n", HEAD "!HTTP_SYNTAX");
    REQUEST(CHUNKED "0\r\nX : 1\r\n\r\n", HEAD "!HTTP_SYNTAX");
    REQUEST(CHUNKED "0\r\nX: a\rb\r\n\r\n", HEAD "!HTTP_SYNTAX");
    REQUEST(CHUNKED "0\r\nX: 1\n\r\n", HEAD "!HTTP_SYNTAX");
}

static void transfer_encodings(void **s) {
    (void)s;
    REQUEST(POST "tRANSFER-eNCODING: Chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", HEAD "[a].");
    SYNTAX(POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n");
    SYNTAX(POST "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n");
    SYNTAX(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    SYNTAX(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n");
    SYNTAX(POST "Transfer-Encoding: identity\r\n\r\n");
    SYNTAX(POST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n");
    SYNTAX(POST "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n");
    SYNTAX(POST "Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n");
    SYNTAX(POST "Transfer-Encoding:\r\n\r\n");
    SYNTAX(POST "Transfer-Encoding: \x0b"
                "chunked\r\n\r\n0\r\n\r\n");
    SYNTAX(POST "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n");
    SYNTAX(POST "Transfer-Encoding\r\n : chunked\r\n\r\n0\r\n\r\n");
    SYNTAX(POST "X: y\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    SYNTAX(POST "X-Abc:\rxTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    SYNTAX(POST "\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
}

static void h10_expect_is_told(void **s) {
    (void)s;
    static const char in[] = POST "Expect: 100-Continue\r\nContent-Length: 5\r\n\r\n";
    lar_http1_limits limits = PLAY_LIMITS;
    lar_http1 *p = lar_http1_new(LAR_HTTP1_REQUEST, &limits);
    size_t used;
    lar_slice body;
    assert_int_equal(lar_http1_next(p, in, sizeof in - 1, &used, &body), LAR_HTTP1_HEAD_END);
    assert_true(lar_http1_head_of(p)->expect_continue);
    assert_int_equal(lar_http1_next(p, in, 0, &used, &body), LAR_HTTP1_MORE);
    lar_http1_free(p);
}

/* What one head says. Whoever calls releases p. */
static const lar_http1_head *head_of(lar_http1 **p, lar_slice in) {
    lar_http1_limits limits = PLAY_LIMITS;
    size_t used;
    lar_slice body;
    *p = lar_http1_new(LAR_HTTP1_REQUEST, &limits);
    assert_int_equal(lar_http1_next(*p, in.ptr, in.len, &used, &body), LAR_HTTP1_HEAD_END);
    return lar_http1_head_of(*p);
}

static void other_expectations_and_old_clients(void **s) {
    (void)s;
    lar_http1 *p;
    assert_false(head_of(&p, LAR_SLICE(POST "Expect: 200-ok\r\nContent-Length: 5\r\n\r\n"))->expect_continue);
    lar_http1_free(p);
    assert_false(head_of(&p, LAR_SLICE("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"))
                     ->expect_continue);
    lar_http1_free(p);
}

static void keep_alive_follows_version_and_connection(void **s) {
    (void)s;
    static const struct {
        lar_slice in;
        bool want;
    } rows[] = {{LAR_SLICE("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), true},
                {LAR_SLICE("GET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n"), false},
                {LAR_SLICE("GET / HTTP/1.1\r\nHost: a\r\nConnection: x , close\r\n\r\n"), false},
                {LAR_SLICE("GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n"), false},
                {LAR_SLICE("GET / HTTP/1.1\r\nHost: a\r\nConnection: closed\r\n\r\n"), true},
                {LAR_SLICE("GET / HTTP/1.0\r\n\r\n"), false},
                {LAR_SLICE("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"), true},
                {LAR_SLICE("GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n"), false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lar_http1 *p;
        assert_int_equal(head_of(&p, rows[i].in)->keep_alive, rows[i].want);
        lar_http1_free(p);
    }
}

static void h19_h21_http_1_0(void **s) {
    (void)s;
    REQUEST("GET /v1/models HTTP/1.0\r\n\r\n", "(GET /v1/models).");
    SYNTAX("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nxxx\r\n0\r\n\r\n");
    SYNTAX("POST / HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"
           "3\r\nxxx\r\n0\r\n\r\nGET /admin HTTP/1.1\r\nHost: a\r\n\r\n");
}

static void h22_hop_by_hop(void **s) {
    (void)s;
    lar_http1 *p;
    const lar_http1_head *h = head_of(
        &p,
        LAR_SLICE(
            POST
            "Connection: close, X-Trace-Hop, Authorization,,Content-Length\r\n"
            "Connection: host , x-api-key,Content-Type\r\nX-Trace-Hop: 1\r\nKeep-Alive: timeout=9\r\nTE: trailers\r\n"
            "Proxy-Authorization: Basic eA==\r\nUpgrade: h2c\r\nProxy-Connection: keep-alive\r\nAuthorization: Bearer x\r\n"
            "Content-Length: 0\r\nX-Trace: 2\r\nTrailer: x\r\n\r\n"));
    static const char *const dropped[] = {"Connection", "X-Trace-Hop",       "x-trace-hop",         "KEEP-ALIVE",
                                          "TE",         "Upgrade",           "Proxy-Authorization", "Proxy-Connection",
                                          "Trailer",    "Transfer-Encoding", "Proxy-Authenticate",  "close"};
    static const char *const kept[] = {"Authorization", "content-length", "Host",       "X-Api-Key",
                                       "Content-Type",  "X-Trace",        "User-Agent", ""};
    for (size_t i = 0; i < sizeof dropped / sizeof *dropped; i++)
        assert_true(lar_http1_hop_by_hop(h, lar_slice_cstr(dropped[i])));
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        assert_false(lar_http1_hop_by_hop(h, lar_slice_cstr(kept[i])));
    assert_true(h->upgrade);
    assert_true(lar_slice_eq_cstr(lar_http1_get(h, "x-trace-hop"), "1"));
    assert_null(lar_http1_get(h, "absent").ptr);
    lar_http1_free(p);
}

/* SP and HTAB are optional white space on both sides of a value (RFC 9110 5.6.3), and nothing else is. */
static void white_space_around_framing_fields(void **s) {
    (void)s;
#define OF_LENGTH(l) "POST /v1 HTTP/1.1\r\nHost: a\r\nContent-Length:" l "\r\nX: y\r\n\r\nhello" THEN
#define THEN "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
#define OF_CODING(c) "POST /v1 HTTP/1.1\r\nTransfer-Encoding:" c "\r\nHost: a\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    REQUEST(OF_LENGTH(" 5\t"), "(POST /v1)[hello].(GET /).");
    REQUEST(OF_LENGTH("5 \t \t"), "(POST /v1)[hello].(GET /).");
    REQUEST(OF_LENGTH("\t5\t\t "), "(POST /v1)[hello].(GET /).");
    REQUEST(OF_CODING(" chunked\t"), "(POST /v1)[hello].");
    REQUEST(OF_CODING("\tCHUNKED \t"), "(POST /v1)[hello].");
    REQUEST("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\t\r\n\r\n", "(GET /).");
    SYNTAX(OF_LENGTH("5\t5"));
    SYNTAX(OF_LENGTH("\t"));
    SYNTAX(OF_LENGTH("5\t,\t5"));
    SYNTAX(OF_LENGTH("5\v"));
    SYNTAX(OF_LENGTH("5\f"));
    SYNTAX(OF_LENGTH("5\xc2\xa0"));
    SYNTAX(OF_CODING("chunked\tx"));
    SYNTAX(OF_CODING("chunked\v"));
    SYNTAX(OF_CODING("chunked\t,"));
    SYNTAX(OF_CODING("\t"));
    SYNTAX("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\t\r\n\t\r\n\r\nhello");
    SYNTAX("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\t\r\nContent-Length: 5\t\r\n\r\nhello");
    SYNTAX("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\t\r\nTransfer-Encoding: chunked\t\r\n\r\n0\r\n\r\n");
    SYNTAX("POST / HTTP/1.1\r\nHost: a\r\nContent-Length\t: 5\r\n\r\nhello");
#undef THEN
#undef OF_LENGTH
#undef OF_CODING
}

static void h40_lines_that_are_no_fields(void **s) {
    (void)s;
    SYNTAX("GET / HTTP/1.1\r\nHost: a\r\nX-Bad\r\n\r\n");
    SYNTAX("GET / HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\nhello");
    SYNTAX("GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\r\n folded\r\n\r\n");
    SYNTAX("GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\r\n\tfolded: 2\r\n\r\n");
    SYNTAX("GET / HTTP/1.1\r\n Host: a\r\n\r\n");
    SYNTAX("GET / HTTP/1.1\r\nHost: a\r\n: empty\r\n\r\n");
    SYNTAX("GET / HTTP/1.1\r\nHost: a\r\nX(y): 1\r\n\r\n");
    SYNTAX("GET / HTTP/1.1\r\nHost: a\r\nX\0: 1\r\n\r\n");
    SYNTAX("GET / HTTP/1.1\r\nHost: a\r\nX\xc3\xa4: 1\r\n\r\n");
    SYNTAX("GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n");
    SYNTAX("GET / HTTP/1.1\r\nHost: a\r\nX: 0123456789\x7f"
           "b\r\n\r\n");
    SYNTAX("GET / HTTP/1.1\r\nHost: a\r\nX: 01234567890123\x01"
           "b\r\n\r\n");
    SYNTAX("GET / HTTP/1.1\nHost: a\n\n");
    SYNTAX("GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n");
    SYNTAX("GET / HTTP/1.1\r\nHost: a\r\n\n");
    SYNTAX("GET / HTTP/1.1\r\nHost: a\r\r\n\r\n");
    REQUEST("GET / HTTP/1.1\r\nHost: a\r\nX: caf\xc3\xa9\ttab  \r\nEmpty:\r\nBlank:   \r\n\r\n", "(GET /).");
}

static void h41_body_limit(void **s) {
    (void)s;
    http1_play y = {.type = LAR_HTTP1_REQUEST,
                    .limits = {.head_bytes_max = 65536, .fields_max = 100, .body_bytes_max = 5}};
    expect_play(y, LAR_SLICE(POST "Content-Length: 5\r\n\r\nhello"), HEAD "[hello].");
    expect_play(y, LAR_SLICE(POST "Content-Length: 6\r\n\r\nhello!"), "!HTTP_BODY_LARGE");
    expect_play(y, LAR_SLICE(CHUNKED "3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"), HEAD "[hello].");
    expect_play(y, LAR_SLICE(CHUNKED "3\r\nhel\r\n3\r\nlo!\r\n0\r\n\r\n"), HEAD "[hel]!HTTP_BODY_LARGE");
    expect_play(y, LAR_SLICE(CHUNKED "7fffffffffffffff\r\n"), HEAD "!HTTP_BODY_LARGE");
}

static void head_is_readable_after_body_large(void **s) {
    (void)s;
    static const char in[] = POST "Content-Length: 6\r\n\r\n";
    lar_http1_limits limits = {.head_bytes_max = 1000, .fields_max = 10, .body_bytes_max = 5};
    lar_http1 *p = lar_http1_new(LAR_HTTP1_REQUEST, &limits);
    size_t used;
    lar_slice body;
    assert_int_equal(lar_http1_next(p, in, sizeof in - 1, &used, &body), LAR_HTTP1_FAIL);
    assert_true(lar_slice_eq_cstr(lar_http1_head_of(p)->target, "/v1/chat/completions"));
    assert_true(lar_slice_eq_cstr(lar_http1_get(lar_http1_head_of(p), "content-length"), "6"));
    lar_http1_free(p);
}

static void x03_hosts(void **s) {
    (void)s;
#define HOST(value) "GET / HTTP/1.1\r\nHost: " value "\r\n\r\n"
    REQUEST("GET / HTTP/1.1\r\n\r\n", "!HTTP_HOST");
    REQUEST("GET / HTTP/1.1\r\nHost: a\r\nhOST: b\r\n\r\n", "!HTTP_HOST");
    REQUEST("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "!HTTP_HOST");
    REQUEST("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", "!HTTP_HOST");
    REQUEST(HOST("a b"), "!HTTP_HOST");
    REQUEST(HOST("a/b"), "!HTTP_HOST");
    REQUEST(HOST("a,b"), "!HTTP_HOST");
    REQUEST(HOST("u@b"), "!HTTP_HOST");
    REQUEST(HOST("a:b"), "!HTTP_HOST");
    REQUEST(HOST("a:123456"), "!HTTP_HOST");
    REQUEST(HOST("[::1"), "!HTTP_HOST");
    REQUEST(HOST("[]"), "!HTTP_HOST");
    REQUEST(HOST("[::1]x"), "!HTTP_HOST");
    REQUEST(HOST("a\xff"), "!HTTP_HOST");
    REQUEST(HOST("a\\b"), "!HTTP_HOST");
    REQUEST(HOST("127.0.0.1:8080"), "(GET /).");
    REQUEST(HOST("localhost"), "(GET /).");
    REQUEST(HOST("[::1]:8080"), "(GET /).");
    REQUEST(HOST("[::ffff:10.0.0.1]"), "(GET /).");
    REQUEST(HOST("xn--e1afmkfd.test:"), "(GET /).");
    REQUEST(HOST(""), "(GET /).");
}

static void request_lines(void **s) {
    (void)s;
    SYNTAX("GET /\r\nHost: a\r\n\r\n");
    SYNTAX("GET\r\nHost: a\r\n\r\n");
    SYNTAX("GET  / HTTP/1.1\r\nHost: a\r\n\r\n");
    SYNTAX("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n");
    SYNTAX("GET / HTTP/1.1 \r\nHost: a\r\n\r\n");
    SYNTAX("GET / http/1.1\r\nHost: a\r\n\r\n");
    SYNTAX("GET / HTTP/1.10\r\nHost: a\r\n\r\n");
    SYNTAX("GET / HTTP/11\r\nHost: a\r\n\r\n");
    SYNTAX("GET / HTTPS/1.1\r\nHost: a\r\n\r\n");
    SYNTAX("GET /\t HTTP/1.1\r\nHost: a\r\n\r\n");
    SYNTAX("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n");
    SYNTAX("GET /\xc3\xa4 HTTP/1.1\r\nHost: a\r\n\r\n");
    SYNTAX("G@T / HTTP/1.1\r\nHost: a\r\n\r\n");
    SYNTAX(" GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    REQUEST("GET / HTTP/2.0\r\nHost: a\r\n\r\n", "!HTTP_VERSION");
    REQUEST("GET / HTTP/0.9\r\nHost: a\r\n\r\n", "!HTTP_VERSION");
    REQUEST("GET / HTTP/1.2\r\nHost: a\r\n\r\n", "!HTTP_VERSION");
    REQUEST("GET http://internal.test/v1?a=b HTTP/1.1\r\nHost: a\r\n\r\n", "(GET http://internal.test/v1?a=b).");
    REQUEST("CONNECT internal.test:443 HTTP/1.1\r\nHost: a\r\n\r\n", "(CONNECT internal.test:443).");
    REQUEST("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "(OPTIONS *).");
    REQUEST("BREW //pot HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", "(BREW //pot)[hi].");
    REQUEST("GET /v1/../admin HTTP/1.1\r\nHost: a\r\n\r\n", "(GET /v1/../admin).");
}

static void other_protocols_fail_at_once(void **s) {
    (void)s;
    REQUEST("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "!HTTP_VERSION");
    SYNTAX("\x16\x03\x01\x02\x00\x01");
    SYNTAX("\x16");
    SYNTAX("\x80");
    SYNTAX("{\"model\":");
}

static void empty_lines_before_a_request(void **s) {
    (void)s;
    REQUEST("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n\r\n", "(GET /).(GET /2).");
    SYNTAX("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    SYNTAX("\r\rGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    SYNTAX("\rGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    SYNTAX(
        "\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
}

static void pipelining(void **s) {
    (void)s;
    REQUEST(POST "Content-Length: 5\r\n\r\nhelloGET /a HTTP/1.1\r\nHost: a\r\n\r\n" CHUNKED
                 "2\r\nhi\r\n0\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
            HEAD "[hello].(GET /a)." HEAD "[hi].(GET /b).");
    REQUEST(POST "CONTENT-LENGTH: 0\r\n\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n", HEAD ".(GET /a).");
}

static void eof_inside_and_between(void **s) {
    (void)s;
    http1_play y = {.type = LAR_HTTP1_REQUEST, .limits = PLAY_LIMITS, .close = true};
    expect_play(y, LAR_SLICE(""), "");
    expect_play(y, LAR_SLICE("\r\n"), "");
    expect_play(y, LAR_SLICE("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), "(GET /).");
    expect_play(y, LAR_SLICE("GET / HTTP/1.1\r\nHost"), "!HTTP_SYNTAX");
    expect_play(y, LAR_SLICE(POST "Content-Length: 5\r\n\r\nhell"), HEAD "[hell]!HTTP_SYNTAX");
    expect_play(y, LAR_SLICE(CHUNKED "5\r\nhello\r\n"), HEAD "[hello]!HTTP_SYNTAX");
    expect_play(y, LAR_SLICE(CHUNKED "5\r\nhello\r\n0\r\n"), HEAD "[hello]!HTTP_SYNTAX");
}

/* A head of exactly `bytes`, one long field. */
static lar_slice long_head(lar_buf *b, size_t bytes) {
    static const char start[] = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
    lar_buf_init(b, bytes);
    assert_false(lar_buf_add(b, start, sizeof start - 1));
    while (b->len < bytes - 4) assert_false(lar_buf_add(b, "y", 1));
    assert_false(lar_buf_add(b, "\r\n\r\n", 4));
    return lar_buf_slice(b);
}

static void head_limit(void **s) {
    (void)s;
    static const size_t sizes[] = {8192, 16384, 65536};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        lar_buf fits, over;
        http1_play y = {.type = LAR_HTTP1_REQUEST,
                        .limits = {.head_bytes_max = (uint32_t)sizes[i], .fields_max = 10, .body_bytes_max = 0}};
        expect_play(y, long_head(&fits, sizes[i]), "(GET /).");
        expect_play(y, long_head(&over, sizes[i] + 1), "!HTTP_HEAD_LARGE");
        lar_buf_release(&fits);
        lar_buf_release(&over);
    }
}

static void field_count_limit(void **s) {
    (void)s;
    for (unsigned count = 199; count <= 201; count++) {
        lar_buf b;
        lar_buf_init(&b, 1 << 20);
        assert_false(lar_buf_printf(&b, "GET / HTTP/1.1\r\nHost: a\r\n"));
        for (unsigned i = 1; i < count; i++) assert_false(lar_buf_printf(&b, "X-%u: %u\r\n", i, i));
        assert_false(lar_buf_printf(&b, "\r\n"));
        http1_play y = {.type = LAR_HTTP1_REQUEST, .limits = {.head_bytes_max = 65536, .fields_max = 200}};
        expect_play(y, lar_buf_slice(&b), count <= 200 ? "(GET /)." : "!HTTP_HEAD_LARGE");
        lar_buf_release(&b);
    }
}

static void trailers_and_extensions_are_bounded(void **s) {
    (void)s;
    http1_play y = {.type = LAR_HTTP1_REQUEST,
                    .limits = {.head_bytes_max = 120, .fields_max = 3, .body_bytes_max = 100}};
    expect_play(y, LAR_SLICE(CHUNKED "0\r\nA: 1\r\nB: 2\r\nC: 3\r\n\r\n"), HEAD ".");
    expect_play(y, LAR_SLICE(CHUNKED "0\r\nA: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\n\r\n"), HEAD "!HTTP_HEAD_LARGE");
    expect_play(y,
                LAR_SLICE(CHUNKED "0\r\nA: 0123456789012345678901234567890123456789012345678901234567890123456789"
                                  "012345678901234567890123456789012345678901234567890\r\n\r\n"),
                HEAD "!HTTP_HEAD_LARGE");
    lar_buf b;
    lar_buf_init(&b, 1 << 20);
    assert_false(lar_buf_printf(&b, "%s", CHUNKED));
    for (int i = 0; i < 60; i++) assert_false(lar_buf_printf(&b, "1;ab\r\nx\r\n"));
    lar_buf want;
    lar_buf_init(&want, 1000);
    assert_false(lar_buf_printf(&want, "%s[%.*s]!HTTP_HEAD_LARGE", HEAD, 40,
                                "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"));
    assert_false(lar_buf_add(&want, "", 1));
    expect_play(y, lar_buf_slice(&b), want.ptr);
    lar_buf_release(&want);
    lar_buf_release(&b);
}

static void a_parser_says_where_it_is(void **s) {
    (void)s;
    lar_http1_limits limits = PLAY_LIMITS;
    lar_http1 *p = lar_http1_new(LAR_HTTP1_REQUEST, &limits);
    size_t used;
    lar_slice body;
    assert_true(lar_http1_idle(p));
    assert_int_equal(lar_http1_next(p, "GET", 3, &used, &body), LAR_HTTP1_MORE);
    assert_true(lar_http1_in_head(p));
    assert_false(lar_http1_idle(p));
    static const char rest[] = " / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_int_equal(lar_http1_next(p, rest, sizeof rest - 1, &used, &body), LAR_HTTP1_HEAD_END);
    assert_int_equal(used, sizeof rest - 1);
    assert_false(lar_http1_in_head(p));
    assert_int_equal(lar_http1_next(p, NULL, 0, &used, &body), LAR_HTTP1_END);
    assert_true(lar_http1_idle(p));
    assert_true(lar_slice_eq_cstr(lar_http1_head_of(p)->method, "GET"));
    lar_http1_free(p);
    lar_http1_free(NULL);
}

static void body_is_not_copied(void **s) {
    (void)s;
    static const char in[] = POST "Content-Length: 5\r\n\r\nhelloGET";
    lar_http1_limits limits = PLAY_LIMITS;
    lar_http1 *p = lar_http1_new(LAR_HTTP1_REQUEST, &limits);
    size_t used, more;
    lar_slice body;
    assert_int_equal(lar_http1_next(p, in, sizeof in - 1, &used, &body), LAR_HTTP1_HEAD_END);
    assert_int_equal(lar_http1_next(p, in + used, sizeof in - 1 - used, &more, &body), LAR_HTTP1_BODY);
    assert_ptr_equal(body.ptr, in + used);
    assert_int_equal(body.len, 5);
    assert_int_equal(more, 5); /* nothing of the next request is taken */
    lar_http1_free(p);
}

static void a_diag_quotes_nothing(void **s) {
    (void)s;
    static const char in[] = POST "Authorization: Bearer sk-secret\x01\r\n\r\n";
    lar_http1_limits limits = PLAY_LIMITS;
    lar_http1 *p = lar_http1_new(LAR_HTTP1_REQUEST, &limits);
    size_t used;
    lar_slice body;
    assert_int_equal(lar_http1_next(p, in, sizeof in - 1, &used, &body), LAR_HTTP1_FAIL);
    assert_null(strstr(lar_http1_diag(p)->text, "secret"));
    assert_true(lar_http1_diag(p)->has_offset);
    assert_int_equal(lar_http1_diag(p)->offset, strlen(POST));
    lar_http1_free(p);
}

static void reasons(void **s) {
    (void)s;
    assert_string_equal(lar_http1_reason(404), "Not Found");
    assert_string_equal(lar_http1_reason(431), "Request Header Fields Too Large");
    assert_string_equal(lar_http1_reason(799), "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(h04_length_before_chunked),
        cmocka_unit_test(h05_removed_length),
        cmocka_unit_test(h06_lengths),
        cmocka_unit_test(h07_bare_lf_in_chunk_lines),
        cmocka_unit_test(h08_chunk_extensions),
        cmocka_unit_test(h09_chunk_data_longer_than_its_size),
        cmocka_unit_test(chunk_sizes),
        cmocka_unit_test(trailers_are_checked_and_dropped),
        cmocka_unit_test(transfer_encodings),
        cmocka_unit_test(h10_expect_is_told),
        cmocka_unit_test(other_expectations_and_old_clients),
        cmocka_unit_test(keep_alive_follows_version_and_connection),
        cmocka_unit_test(h19_h21_http_1_0),
        cmocka_unit_test(h22_hop_by_hop),
        cmocka_unit_test(white_space_around_framing_fields),
        cmocka_unit_test(h40_lines_that_are_no_fields),
        cmocka_unit_test(h41_body_limit),
        cmocka_unit_test(head_is_readable_after_body_large),
        cmocka_unit_test(x03_hosts),
        cmocka_unit_test(request_lines),
        cmocka_unit_test(other_protocols_fail_at_once),
        cmocka_unit_test(empty_lines_before_a_request),
        cmocka_unit_test(pipelining),
        cmocka_unit_test(eof_inside_and_between),
        cmocka_unit_test(head_limit),
        cmocka_unit_test(field_count_limit),
        cmocka_unit_test(trailers_and_extensions_are_bounded),
        cmocka_unit_test(a_parser_says_where_it_is),
        cmocka_unit_test(body_is_not_copied),
        cmocka_unit_test(a_diag_quotes_nothing),
        cmocka_unit_test(reasons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
