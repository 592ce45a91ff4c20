/* RESP replies: whole, cut anywhere, too large, damaged; commands as bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "gateway/shared/resp.h"

static void feed(lar_resp *r, const char *text) { assert_int_equal(lar_resp_feed(r, lar_slice_cstr(text)), LAR_OK); }

static void expect_text(lar_resp *r, lar_resp_kind kind, const char *text) {
    lar_resp_reply out;
    assert_int_equal(lar_resp_next(r, &out), LAR_OK);
    assert_int_equal(out.kind, kind);
    assert_true(lar_slice_eq_cstr(out.text, text));
}

static void expect_more(lar_resp *r) {
    lar_resp_reply out;
    assert_int_equal(lar_resp_next(r, &out), LAR_NOT_FOUND);
}

static void expect_damage(const char *text) {
    lar_resp *r = lar_resp_new();
    lar_resp_reply out;
    lar_error e = lar_resp_feed(r, lar_slice_cstr(text));
    while (!e) e = lar_resp_next(r, &out);
    assert_int_equal(e, LAR_INVALID);
    lar_resp_free(r);
}

static void simple_replies(void **state) {
    (void)state;
    lar_resp *r = lar_resp_new();
    feed(r, "+OK\r\n-ERR no such thing\r\n:12\r\n$-1\r\n$0\r\n\r\n$5\r\na\r\nbc\r\n");
    expect_text(r, LAR_RESP_STATUS, "OK");
    expect_text(r, LAR_RESP_ERROR, "ERR no such thing");
    lar_resp_reply out;
    assert_int_equal(lar_resp_next(r, &out), LAR_OK);
    assert_int_equal(out.kind, LAR_RESP_INTEGER);
    assert_int_equal(lar_resp_next(r, &out), LAR_OK);
    assert_int_equal(out.kind, LAR_RESP_NIL);
    expect_text(r, LAR_RESP_TEXT, "");
    expect_text(r, LAR_RESP_TEXT, "a\r\nbc");
    expect_more(r);
    lar_resp_free(r);
}

/* Every element keeps its bytes, wherever the reply is cut. */
static void arrays_cut_anywhere(void **state) {
    (void)state;
    static const char whole[] = "*4\r\n$3\r\none\r\n$-1\r\n$4\r\nfour\r\n$0\r\n\r\n+NEXT\r\n";
    for (size_t cut = 0; cut < sizeof whole; cut++) {
        lar_resp *r = lar_resp_new();
        lar_resp_reply out;
        assert_int_equal(lar_resp_feed(r, lar_slice_of(whole, cut)), LAR_OK);
        lar_error e = lar_resp_next(r, &out);
        assert_int_equal(lar_resp_feed(r, lar_slice_of(whole + cut, sizeof whole - 1 - cut)), LAR_OK);
        if (e == LAR_NOT_FOUND) e = lar_resp_next(r, &out);
        assert_int_equal(e, LAR_OK);
        if (out.kind == LAR_RESP_ARRAY) {
            assert_int_equal(out.count, 4);
            if (cut < sizeof whole - 8) { /* else more was fed since it was handed out */
                assert_true(lar_slice_eq_cstr(out.items[0], "one"));
                assert_null(out.items[1].ptr);
                assert_true(lar_slice_eq_cstr(out.items[2], "four"));
                assert_non_null(out.items[3].ptr);
                assert_int_equal(out.items[3].len, 0);
            }
        }
        expect_text(r, LAR_RESP_STATUS, "NEXT");
        lar_resp_free(r);
    }
}

/* Elements that are no texts, and arrays in arrays, are read over. */
static void odd_elements(void **state) {
    (void)state;
    lar_resp *r = lar_resp_new();
    lar_resp_reply out;
    feed(r, "*5\r\n:7\r\n*2\r\n$1\r\nx\r\n$1\r\ny\r\n-ERR\r\n*-1\r\n$1\r\nz\r\n*0\r\n");
    assert_int_equal(lar_resp_next(r, &out), LAR_OK);
    assert_int_equal(out.count, 5);
    for (int i = 0; i < 4; i++) assert_null(out.items[i].ptr);
    assert_true(lar_slice_eq_cstr(out.items[4], "z"));
    assert_int_equal(lar_resp_next(r, &out), LAR_OK);
    assert_int_equal(out.kind, LAR_RESP_ARRAY);
    assert_int_equal(out.count, 0);
    lar_resp_free(r);
}

static void damage(void **state) {
    (void)state;
    expect_damage("HTTP/1.1 400 Bad Request\r\n\r\n");
    expect_damage("*1000000000\r\n");
    expect_damage("*1025\r\n");
    expect_damage("\r\n");
    expect_damage("*1\r\n\x01\r\n");
}

/* A server that never ends its reply is not followed for ever. */
static void endless(void **state) {
    (void)state;
    lar_resp *r = lar_resp_new();
    static char block[1 << 20];
    memset(block, 'x', sizeof block);
    feed(r, "$33554432\r\n");
    lar_error e = LAR_OK;
    int fed = 0;
    for (; !e && fed < 64; fed++) {
        lar_resp_reply out;
        e = lar_resp_feed(r, lar_slice_of(block, sizeof block));
        if (!e) assert_int_equal(lar_resp_next(r, &out), LAR_NOT_FOUND);
    }
    assert_int_equal(e, LAR_LIMIT);
    assert_in_range(fed, 8, 17);
    lar_resp_free(r);
}

static void commands(void **state) {
    (void)state;
    lar_buf b;
    lar_buf_init(&b, 64);
    lar_slice words[] = {LAR_SLICE("SET"), LAR_SLICE("k"), lar_slice_of("\0\r\n", 3)};
    assert_int_equal(lar_resp_command(&b, words, 3), LAR_OK);
    static const char want[] = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\n\0\r\n\r\n";
    assert_int_equal(b.len, sizeof want - 1);
    assert_memory_equal(b.ptr, want, sizeof want - 1);
    assert_int_equal(lar_resp_command(&b, words, 3), LAR_OK);
    size_t before = b.len;
    assert_int_equal(lar_resp_command(&b, words, 3), LAR_LIMIT);
    assert_int_equal(b.len, before);
    lar_buf_release(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simple_replies), cmocka_unit_test(arrays_cut_anywhere),
        cmocka_unit_test(odd_elements),   cmocka_unit_test(damage),
        cmocka_unit_test(endless),        cmocka_unit_test(commands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
