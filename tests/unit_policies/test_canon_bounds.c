/* Bounds of canon: what a request may cost, whatever it holds, and that nothing is edited wrongly at a bound.
 * No time is taken. How much was read shows in what is found, in how much memory a run took and in how often it asked
 * or wrote the rules' memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "canon_harness.h"

enum { MIB = 1 << 20 };

static void add(lar_buf *b, const char *text) { assert_int_equal(lar_buf_add(b, text, strlen(text)), LAR_OK); }

static void repeat(lar_buf *b, const char *text, size_t bytes) {
    size_t n = strlen(text);
    assert_int_equal(lar_buf_reserve(b, bytes), LAR_OK);
    for (size_t k = 0; k + n <= bytes; k += n) assert_int_equal(lar_buf_add(b, text, n), LAR_OK);
}

static void begin(lar_buf *b, const char *text) {
    lar_buf_init(b, 96u << 20);
    add(b, text);
}

/* Sends it; true if it went byte for byte. Releases the buffer. */
static bool goes_as_it_is(harness *h, lar_buf *b) {
    size_t len;
    char *sent = harness_send(h, LAR_PROTOCOL_CHAT, lar_buf_slice(b), &len);
    assert_non_null(sent);
    bool same = len == b->len && memcmp(sent, b->ptr, len) == 0;
    free(sent);
    lar_buf_release(b);
    return same;
}

static bool fired(const harness *h, lar_rule r) { return h->out.rules_fired >> r & 1; }
static bool seen(const harness *h, lar_rule r) { return h->out.rules_seen >> r & 1; }

#define SYSTEM "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\""
#define END "\"},{\"role\":\"user\",\"content\":\"hi\"}]}"

/* A head with `bytes` of `filler` before a clock and behind it. */
static void clock_after(lar_buf *b, const char *filler, size_t bytes, int second) {
    char clock[128];
    (void)snprintf(clock, sizeof clock, "\\nCurrent time: 2031-04-09T07:15:%02dZ\\n", second);
    begin(b, SYSTEM);
    repeat(b, filler, bytes);
    add(b, clock);
    repeat(b, filler, bytes);
    add(b, END);
}

static void test_clocks_are_sought_in_the_first_mebibyte(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    lar_buf b;
    for (int k = 0; k < 3; k++) {
        clock_after(&b, "The quick brown fox. ", MIB - 1000, 10 + k);
        assert_int_equal(goes_as_it_is(&h, &b), k == 0);
        assert_int_equal(fired(&h, LAR_RULE_LR001), k > 0);
        clock_after(&b, "The quick brown fox. ", MIB + 1000, 10 + k);
        assert_true(goes_as_it_is(&h, &b));
        assert_int_equal(h.error, LAR_OK);
        assert_false(seen(&h, LAR_RULE_LR001));
    }
    harness_release(&h);
}

/* Numbers that could begin a clock are counted, too; dates that are none of it cost as much as clocks. */
static void test_clocks_are_sought_among_so_many_numbers(void **state) {
    (void)state;
    static const char *const fillers[] = {"now 1:1 ", "2024-01-02 ", "12:34:56 ", "12 ", "1\xE5\xB9\xB4"};
    for (size_t f = 0; f < sizeof fillers / sizeof *fillers; f++) {
        harness h;
        harness_init(&h);
        lar_buf b;
        size_t n = strlen(fillers[f]);
        for (int k = 0; k < 2; k++) {
            clock_after(&b, fillers[f], 5000 * n, 10 + k);
            assert_int_equal(goes_as_it_is(&h, &b), k == 0);
            assert_true(seen(&h, LAR_RULE_LR001));
            clock_after(&b, fillers[f], 50000 * n, 10 + k);
            assert_true(goes_as_it_is(&h, &b));
            assert_false(seen(&h, LAR_RULE_LR001));
        }
        harness_release(&h);
    }
}

/* Whether a text is looked through depends on the request, not on what the memo has seen. */
static void test_memo_and_bounds(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    lar_buf b;
    char text[256];
    for (int k = 0; k < 3; k++) {
        (void)snprintf(text, sizeof text, "\"},{\"role\":\"system\",\"content\":\"Current time: 2031-04-09T07:15:%02dZ",
                       10 + k);
        begin(&b, SYSTEM); /* behind a text that uses all there is */
        repeat(&b, "The quick brown fox. ", 2 * MIB);
        add(&b, text);
        add(&b, END);
        assert_true(goes_as_it_is(&h, &b));
        assert_false(seen(&h, LAR_RULE_LR001));
        begin(&b, SYSTEM "Short."); /* the same system message behind a short one, and no head message before */
        add(&b, text);
        add(&b, END);
        assert_int_equal(goes_as_it_is(&h, &b), k == 0);
        assert_true(seen(&h, LAR_RULE_LR001));
    }
    harness_release(&h);
    harness_init(&h);
    for (int k = 0; k < 2; k++) {
        (void)snprintf(text, sizeof text, "{\"role\":\"system\",\"content\":\"Current time: 2031-04-09T07:15:%02dZ\"}",
                       10 + k);
        /* behind the first answer it is not a clock */
        begin(&b, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":\"a\"},");
        add(&b, text);
        add(&b, "]}");
        assert_true(goes_as_it_is(&h, &b));
        begin(&b, "{\"messages\":[");
        add(&b, text);
        add(&b, ",{\"role\":\"user\",\"content\":\"hi\"}]}");
        assert_int_equal(goes_as_it_is(&h, &b), k == 0);
        assert_true(seen(&h, LAR_RULE_LR001));
    }
    harness_release(&h);
}

/* A long text without escapes is never copied. */
static void test_long_texts_take_no_memory(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    for (int k = 0; k < 3; k++) {
        char clock[128];
        (void)snprintf(clock, sizeof clock, "Current time: 2031-04-09T07:15:%02dZ. ", 10 + k);
        lar_buf b;
        begin(&b, SYSTEM);
        add(&b, clock);
        repeat(&b, "The quick brown fox. ", 16 * MIB);
        add(&b, END);
        assert_int_equal(goes_as_it_is(&h, &b), k == 0);
        assert_int_equal(h.error, LAR_OK);
        assert_true(h.arena.used < MIB);
    }
    harness_release(&h);
}

/* Too many escapes or values: such a message counts by its bytes, those around it as ever. */
static void test_messages_beyond_the_bound(void **state) {
    (void)state;
    static const char *const pieces[] = {"\\u0041", "\\n", "\\r\\nx", "\\\"", "\\u4f60\\u597d"};
    for (size_t f = 0; f < sizeof pieces / sizeof *pieces; f++) {
        harness h;
        harness_init(&h);
        for (int k = 0; k < 3; k++) {
            lar_buf b;
            begin(&b, SYSTEM "You.\"},{\"role\":\"user\",\"content\":\"");
            repeat(&b, pieces[f], 24 * MIB);
            add(&b, "\"},{\"role\":\"user\",\"content\":\"next");
            add(&b, k == 2 ? "\\n\"}]}" : "\"}]}");
            bool same = goes_as_it_is(&h, &b);
            assert_int_equal(h.error, LAR_OK);
            assert_int_equal(same, k < 2);
            assert_int_equal(h.out.segments_known, k ? 3 : 0);
            assert_true(h.arena.used < MIB);
        }
        harness_release(&h);
    }
    harness h;
    harness_init(&h);
    for (int k = 0; k < 2; k++) {
        lar_buf b;
        begin(&b, SYSTEM "You.\"},{\"role\":\"user\",\"content\":[");
        repeat(&b, "{\"type\":\"text\",\"text\":\"x\"},", 4 * MIB);
        add(&b, "{\"type\":\"text\",\"text\":\"x\"}]}]}");
        assert_true(goes_as_it_is(&h, &b));
        assert_int_equal(h.out.segments_known, k ? 2 : 0);
        assert_true(h.arena.used < MIB);
    }
    harness_release(&h);
}

static void test_tools_beyond_the_bound(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    for (int k = 0; k < 2; k++) {
        lar_buf b;
        begin(&b, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[");
        for (int i = 0; i < 1000; i++) {
            char head[64];
            (void)snprintf(head, sizeof head, "%s{\"name\":\"t%d\",\"p\":[", i ? "," : "", k ? 999 - i : i);
            add(&b, head);
            repeat(&b, "1,", 400);
            add(&b, "1]}");
        }
        add(&b, "]}");
        assert_true(goes_as_it_is(&h, &b));
        assert_int_equal(h.error, LAR_OK);
        assert_true(h.arena.used < MIB);
    }
    harness_release(&h);
}

static void test_too_many_messages(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    for (int k = 0; k < 2; k++) {
        lar_buf b;
        char clock[128];
        (void)snprintf(clock, sizeof clock, SYSTEM "Current time: 2031-04-09T07:15:%02dZ\"}", 10 + k);
        begin(&b, clock);
        repeat(&b, ",{\"role\":\"user\",\"content\":\"a\"}", 600000);
        add(&b, "]}");
        assert_true(goes_as_it_is(&h, &b));
        assert_int_equal(h.error, LAR_LIMIT);
        assert_int_equal(h.out.put_count, 0);
    }
    /* system messages: each is hashed, a form is remembered of the first ones */
    lar_buf b;
    begin(&b, SYSTEM "You.\"}");
    for (int i = 0; i < 10000; i++) {
        char one[64];
        (void)snprintf(one, sizeof one, ",{\"role\":\"system\",\"content\":\"Rule %d\"}", i);
        add(&b, one);
    }
    add(&b, ",{\"role\":\"user\",\"content\":\"a\"}]}");
    assert_true(goes_as_it_is(&h, &b));
    assert_int_equal(h.error, LAR_OK);
    assert_true(h.out.put_count < 1000);
    harness_release(&h);
}

/* `count` user texts of `lines` lines. */
static void many_lines(lar_buf *b, int count, int lines, const char *line_end) {
    begin(b, SYSTEM "You.\"}");
    for (int i = 0; i < count; i++) {
        char head[64];
        (void)snprintf(head, sizeof head, ",{\"role\":\"user\",\"content\":\"Text %d", i);
        add(b, head);
        for (int k = 0; k < lines; k++) {
            add(b, line_end);
            add(b, "x");
        }
        add(b, "\"}");
    }
    add(b, "]}");
}

/* Line ends are edited up to a bound: a text whole or not at all. */
static void test_many_line_ends(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    lar_buf b;
    many_lines(&b, 1, 70000, "\\n");
    assert_true(goes_as_it_is(&h, &b));
    many_lines(&b, 1, 70000, "\\r\\n");
    assert_true(goes_as_it_is(&h, &b));
    harness_release(&h);

    harness_init(&h);
    lar_buf lf, crlf;
    many_lines(&lf, 100, 1000, "\\n");
    size_t lf_len = lf.len;
    assert_true(goes_as_it_is(&h, &lf));
    many_lines(&crlf, 100, 1000, "\\r\\n");
    size_t len, pairs = 0;
    char *sent = harness_send(&h, LAR_PROTOCOL_CHAT, lar_buf_slice(&crlf), &len);
    assert_int_equal(h.error, LAR_OK);
    for (const char *p = sent; (p = strstr(p, "\\r\\n")) != NULL; p++) pairs++;
    assert_int_equal(pairs % 1000, 0);
    assert_int_equal(len, lf_len + 2 * pairs);
    assert_true(pairs >= 30000 && pairs <= 50000);
    free(sent);
    lar_buf_release(&crlf);
    harness_release(&h);
}

static void test_long_billing_lines(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    lar_buf b;
    begin(&b, SYSTEM "x-acme-billing-header: ");
    repeat(&b, "abcdefgh", 8 * MIB);
    add(&b, "\\nYou." END);
    assert_true(goes_as_it_is(&h, &b));
    begin(&b, SYSTEM);
    repeat(&b, "x-acme-billing-header: 1\\n", 1 * MIB);
    add(&b, "You." END);
    assert_false(goes_as_it_is(&h, &b));
    assert_int_equal(h.out.splices.count, 1);
    assert_true(h.out.splices.list[0].end - h.out.splices.list[0].start < 4096);
    harness_release(&h);
}

/* Blanks without end behind a text, or between the parts of a clock. */
static void test_blanks_without_end(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    lar_buf b;
    for (int k = 0; k < 2; k++) {
        begin(&b, SYSTEM "You.");
        repeat(&b, k ? "\\t" : " ", k ? 200 : 4 * MIB);
        add(&b, END);
        assert_true(goes_as_it_is(&h, &b));
        assert_int_equal(h.error, LAR_OK);
    }
    for (int k = 0; k < 2; k++) {
        begin(&b, SYSTEM "Current time: 2031-04-09");
        repeat(&b, " ", 1000);
        add(&b, k ? "07:15:10Z" END : "07:15:20Z" END);
        assert_true(goes_as_it_is(&h, &b));
    }
    harness_release(&h);
}

/* Names that are written with escapes are the same names, however many others there are. */
static void test_many_members(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    for (int k = 0; k < 2; k++) {
        lar_buf b;
        char clock[128];
        begin(&b, "{\"model\":\"m\"");
        for (int i = 0; i < 100000; i++) {
            char one[48];
            (void)snprintf(one, sizeof one, i % 2 ? ",\"\\u006b%d\":1" : ",\"key %d\":1", i);
            add(&b, one);
        }
        add(&b, k ? ",\"\\u0075ser\":\"one\"" : ",\"user\":\"one\"");
        (void)snprintf(
            clock, sizeof clock,
            ",\"m\\u0065ssages\":[{\"role\":\"system\",\"content\":\"Current time: 2031-04-09T07:15:%02dZ\"}", 10 + k);
        add(&b, clock);
        add(&b, ",{\"\\u0072ole\":\"us\\u0065r\",\"content\":\"a\"}]}");
        assert_int_equal(goes_as_it_is(&h, &b), k == 0); /* the same scope */
        assert_true(seen(&h, LAR_RULE_LR001));
    }
    harness_release(&h);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_clocks_are_sought_in_the_first_mebibyte),
                                       cmocka_unit_test(test_clocks_are_sought_among_so_many_numbers),
                                       cmocka_unit_test(test_memo_and_bounds),
                                       cmocka_unit_test(test_long_texts_take_no_memory),
                                       cmocka_unit_test(test_messages_beyond_the_bound),
                                       cmocka_unit_test(test_tools_beyond_the_bound),
                                       cmocka_unit_test(test_too_many_messages),
                                       cmocka_unit_test(test_many_line_ends),
                                       cmocka_unit_test(test_long_billing_lines),
                                       cmocka_unit_test(test_blanks_without_end),
                                       cmocka_unit_test(test_many_members)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
