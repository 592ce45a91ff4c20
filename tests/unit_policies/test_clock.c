/* The clock detector: what it finds, under which label, and what it leaves alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "policies/rules/clock_text.h"

static uint32_t scan(lar_slice text, lar_clock_span *spans, uint32_t room) {
    lar_clock_budget budget = LAR_CLOCK_BUDGET;
    return lar_clock_scan(text, spans, room, &budget);
}

typedef struct expected {
    const char *text, *value;
    lar_clock_class class_id;
} expected;

static const expected clocks[] = {
    {"Current time: 2031-04-09T07:15:42.118Z\n\nYou are", "2031-04-09T07:15:42.118Z", LAR_CLOCK_DATETIME},
    {"Current time: 2031-04-09T15:15:42+08:00.", "2031-04-09T15:15:42+08:00", LAR_CLOCK_DATETIME},
    {"Current time: 2031-04-09T15:15:42,118+0800", "2031-04-09T15:15:42,118+0800", LAR_CLOCK_DATETIME},
    {"now=2031-04-09 15:15:42", "2031-04-09 15:15:42", LAR_CLOCK_DATETIME},
    {"now: 2031/04/09 15:15", "2031/04/09 15:15", LAR_CLOCK_DATETIME},
    {"Timestamp: 2026-07-20 10:11:12 UTC", "2026-07-20 10:11:12 UTC", LAR_CLOCK_DATETIME},
    {"The current time is 2024-05-15 15:00:00 EST.", "2024-05-15 15:00:00 EST", LAR_CLOCK_DATETIME},
    {"run at 20310409T151542Z ok", "20310409T151542Z", LAR_CLOCK_DATETIME},
    {"The current date and time is Wednesday, April 09, 2031, 03:15:42 PM.\nMore",
     "Wednesday, April 09, 2031, 03:15:42 PM", LAR_CLOCK_DATETIME},
    {"Today is Wednesday, April 9, 2031, 3:15 PM", "Wednesday, April 9, 2031, 3:15 PM", LAR_CLOCK_DATETIME},
    {"Conversation started: Sunday, May 17, 2026 03:42 PM", "Sunday, May 17, 2026 03:42 PM", LAR_CLOCK_DATETIME},
    {"It is April 9th, 2031 at 3:15 p.m. here", "April 9th, 2031 at 3:15 p.m.", LAR_CLOCK_DATETIME},
    {"Now: Wed Apr 09 2031 15:15:42 GMT+0800 (China Standard Time)",
     "Wed Apr 09 2031 15:15:42 GMT+0800 (China Standard Time)", LAR_CLOCK_DATETIME},
    {"Now: Wed Apr 09 2031 15:15:42 GMT+0800 (中国标准时间)", "Wed Apr 09 2031 15:15:42 GMT+0800 (中国标准时间)",
     LAR_CLOCK_DATETIME},
    {"Date: Wed, 09 Apr 2031 15:15:42 +0800", "Wed, 09 Apr 2031 15:15:42 +0800", LAR_CLOCK_DATETIME},
    {"Date: Wed, 09 Apr 2031 07:15:42 GMT", "Wed, 09 Apr 2031 07:15:42 GMT", LAR_CLOCK_DATETIME},
    {"today: 9 April 2031 15:15", "9 April 2031 15:15", LAR_CLOCK_DATETIME},
    {"now Wed Apr  9 15:15:42 CST 2031", "Wed Apr  9 15:15:42 CST 2031", LAR_CLOCK_DATETIME},
    {"Local time: 4/9/2031, 3:15:42 PM", "4/9/2031, 3:15:42 PM", LAR_CLOCK_DATETIME},
    {"Local time: 9.4.2031, 15:15:42", "9.4.2031, 15:15:42", LAR_CLOCK_DATETIME},
    {"It is now 3:15 PM on April 9, 2031.", "3:15 PM on April 9, 2031", LAR_CLOCK_DATETIME},
    {"clock 15:15:42 2031-04-09", "15:15:42 2031-04-09", LAR_CLOCK_DATETIME},
    {"当前时间：2031年4月9日 15时15分42秒", "2031年4月9日 15时15分42秒", LAR_CLOCK_DATETIME},
    {"系统时间：2031-04-09 15:15:42", "2031-04-09 15:15:42", LAR_CLOCK_DATETIME},
    {"今天是2031年4月9日下午3点15分。", "2031年4月9日下午3点15分", LAR_CLOCK_DATETIME},
    {"今天是星期三，2031年4月9日 下午3点15分", "星期三，2031年4月9日 下午3点15分", LAR_CLOCK_DATETIME},
    {"现在：2031年4月9日 星期三 15时15分42秒", "2031年4月9日 星期三 15时15分42秒", LAR_CLOCK_DATETIME},
    {"现在：2031年04月09日（周三）15:15", "2031年04月09日（周三）15:15", LAR_CLOCK_DATETIME},
    {"当前时间：２０３１年４月９日 １５：１５：４２", "２０３１年４月９日 １５：１５：４２", LAR_CLOCK_DATETIME},
    {"It is now 15:15:42", "15:15:42", LAR_CLOCK_TIME},
    {"Current time is 15:09:20. Today", "15:09:20", LAR_CLOCK_TIME},
    {"现在是15:15", "15:15", LAR_CLOCK_TIME},
    {"当前时刻 15时15分", "15时15分", LAR_CLOCK_TIME},
    {"现在是下午3点半", "下午3点半", LAR_CLOCK_TIME},
    {"ts=1933398942", "1933398942", LAR_CLOCK_EPOCH},
    {"{\"now\": 1933398942118}", "1933398942118", LAR_CLOCK_EPOCH},
    {"时间戳：1933398942118", "1933398942118", LAR_CLOCK_EPOCH},
    {"timestamp: 1933398942.118", "1933398942.118", LAR_CLOCK_EPOCH},
    {"<current_datetime>2031-04-09T07:15:42Z</current_datetime>", "2031-04-09T07:15:42Z", LAR_CLOCK_DATETIME},
    {"**Current time:** 2031-04-09 07:15", "2031-04-09 07:15", LAR_CLOCK_DATETIME},
    {"\"now\":\"2031-04-09T07:15:42Z\"", "2031-04-09T07:15:42Z", LAR_CLOCK_DATETIME},
    {"Today's date is 2031-04-09.", "2031-04-09", LAR_CLOCK_DATE},
    {"今天是2031年4月9日", "2031年4月9日", LAR_CLOCK_DATE},
};

static void test_found(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++) {
        lar_clock_span s[8];
        lar_slice t = lar_slice_cstr(clocks[i].text);
        uint32_t n = scan(t, s, 8);
        if (n != 1 || !lar_slice_eq_cstr(lar_slice_of(t.ptr + s[0].start, s[0].end - s[0].start), clocks[i].value) ||
            s[0].class_id != clocks[i].class_id) {
            print_error("%s: %u found, first \"%.*s\" class %d\n", clocks[i].text, n,
                        n ? (int)(s[0].end - s[0].start) : 0, n ? t.ptr + s[0].start : "", n ? (int)s[0].class_id : 0);
            fail();
        }
        assert_false(s[0].example);
    }
}

/* No clock at all, or one that is marked as an example. */
static const char *const others[] = {
    "gpt-4o-2024-08-06",
    "claude-3-5-sonnet-20241022",
    "API version 2023-06-01",
    "v2024.10.1",
    "the treaty of 1648-10-24",
    "Knowledge cutoff: 2025-06",
    "Knowledge cutoff: 2025-06-01 00:00",
    "valid until 2031-12-31",
    "policy effective 2024-05-15",
    "10.2.2031 is a version",
    "4.9.2031",
    "call +1 555 123 4567",
    "ISBN 978-3-16-148410-0",
    "127.0.0.1:5321",
    "http://127.0.0.1:53211/x",
    "ratio 16:9",
    "John 3:16",
    "score 10:30",
    "lines 12:34-56:78",
    "00000000-0000-0000-0000-000000000000",
    "123e4567-e89b-12d3-a456-426614174000",
    "Use YYYY-MM-DD",
    "日期格式用 YYYY-MM-DD，例如 2024-01-01。",
    "e.g. 2031-04-09 15:15:42",
    "for example 2031-04-09T15:15:42Z",
    "Format: 2031-04-09 15:15",
    "strftime(\"%Y-%m-%d %H:%M:%S\")",
    "2008年北京奥运会",
    "一九四九年",
    "第3章",
    "1937.7.7",
    "三月春分",
    "```\n2031-04-09 15:15:42 INFO started\n```",
    "Opening hours 9:00 to 17:30",
    "店铺9点开门",
    "max 4096 tokens",
    "order 1933398942118",
    "sha 1933398942",
    "2031-13-09 15:15",
    "2031-04-32 15:15",
    "2031-04-09 25:15",
    "2031-04-09 15:61",
    "a2031-04-09 15:15:42",
    "2031-04-09 15:15:42x",
    "/logs/2031-04-09 15:15:42.txt",
    "`2031-04-09 15:15:42`",
    "@@ -1,7 +1,7 @@",
    "12345678901234567890",
    "mask 255:255",
    "::1",
    "15:",
    ":15",
    "2031-",
    "2031年",
    "2031年4月",
    "年4月9日",
    "May 2031",
    "may 12 people",
    "on Monday",
    "",
    "1",
    "99:99",
};

static void test_left_alone(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        lar_clock_span s[8];
        uint32_t n = scan(lar_slice_cstr(others[i]), s, 8);
        for (uint32_t k = 0; k < n; k++) {
            if (!s[k].example) {
                print_error("%s: \"%.*s\" class %d\n", others[i], (int)(s[k].end - s[k].start), others[i] + s[k].start,
                            (int)s[k].class_id);
                fail();
            }
        }
    }
}

static void test_labels(void **state) {
    (void)state;
    static const struct {
        const char *a, *b;
        bool same, key;
    } pairs[] = {
        {"Current time: 2031-04-09 15:15", "You are X.\nCurrent  Time: 2031-04-09T15:15:42Z", true, true},
        {"You are X. The current date and time is Wednesday, April 9, 2031, 3:15 PM",
         "Z! The current date and time is 2031-04-09 15:15", true, true},
        {"Setup current time: 2031-04-09 15:15", "Other current time: 2031-04-09 15:15", true, true},
        {"Current time: 2031-04-09 15:15", "Deadline: 2031-04-09 15:15", false, true},
        {"时间：15:15:42", "营业时间：9:00", false, true},
        {"Time: 15:15:42", "Opening time: 9:00", false, true},
        {"Deadline 1: 2031-04-09 15:15", "Deadline 2: 2031-04-09 15:15", true, false},
        {"当前时间：2031年4月9日 15时15分42秒", "你好。当前时间：2031-04-09 15:15", true, true},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        lar_clock_span a, b;
        assert_int_equal(scan(lar_slice_cstr(pairs[i].a), &a, 1), 1);
        assert_int_equal(scan(lar_slice_cstr(pairs[i].b), &b, 1), 1);
        assert_int_equal(lar_hash_eq(lar_clock_slot(lar_slice_cstr(pairs[i].a), &a),
                                     lar_clock_slot(lar_slice_cstr(pairs[i].b), &b)),
                         pairs[i].same);
        assert_int_equal(a.key_word, pairs[i].key);
    }
}

static void test_shows_now(void **state) {
    (void)state;
    const int64_t now = 1933485342000; /* 2031-04-09T07:15:42Z */
    static const struct {
        const char *text;
        bool shows;
    } rows[] = {
        {"now 2031-04-09T07:15:42Z", true},
        {"now 2031-04-09T07:05:44Z", true}, /* kept for minutes */
        {"now 2031-04-09T07:05:40Z", false},
        {"now 2031-04-09T07:17:41Z", true}, /* a clock that is fast */
        {"now 2031-04-09T07:17:44Z", false},
        {"now 2031-04-09T07:25:40Z", false}, /* a time to come */
        {"now 2031-04-09T15:25:40+08:00", false},
        {"now 2031-04-09T15:15:42+08:00", true},
        {"now 2031-04-09T15:15:42Z", false},
        {"now 2031-04-09 15:15:40", true},
        {"now 2031-04-09 12:45", true},
        {"now 2031-04-09 12:52", false},
        {"now 2031-04-11 07:15:42", false},
        {"now 2031-04-08 23:15:00", true},
        {"now 2024-05-15 15:00:00 EST", false},
        {"Today is Wednesday, April 9, 2031, 3:15 PM", true},
        {"当前时间：2031年4月9日 15时15分", true},
        {"今天 2031年4月9日下午3点15分", true},
        {"now: 4/9/2031, 3:15:42 PM", true},
        {"now: 9/4/2031, 15:15:42", true},
        {"ts=1933485342", true},
        {"ts=1933485342118", true},
        {"ts=1933398942", false},
        {"ts=1933484750", true},
        {"ts=1933485460", true},
        {"ts=1933485642", false},
        {"ts=1933485642118", false},
        {"now Wed Apr  9 15:15:42 CST 2031", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lar_clock_span s;
        assert_int_equal(scan(lar_slice_cstr(rows[i].text), &s, 1), 1);
        if (lar_clock_shows(&s.stamp, now) != rows[i].shows) {
            print_error("%s\n", rows[i].text);
            fail();
        }
    }
}

/* Any cut of any text, from a buffer without a byte behind it: nothing is read past the end. */
static void test_cuts(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++) {
        size_t n = strlen(clocks[i].text);
        for (size_t cut = 0; cut <= n; cut++) {
            char *copy = malloc(cut ? cut : 1);
            memcpy(copy, clocks[i].text, cut);
            lar_clock_span s[4];
            uint32_t found = scan(lar_slice_of(copy, cut), s, 4);
            for (uint32_t k = 0; k < found; k++) {
                assert_true(s[k].start < s[k].end && s[k].end <= cut && s[k].label_end <= s[k].start);
                (void)lar_clock_slot(lar_slice_of(copy, cut), &s[k]);
            }
            free(copy);
        }
    }
}

/* Where the budget ends inside a clock, it is found whole or not at all. */
static void test_cut_by_the_budget(void **state) {
    (void)state;
    static char text[4096];
    for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++) {
        size_t n = strlen(clocks[i].text), value = (size_t)(strstr(clocks[i].text, clocks[i].value) - clocks[i].text);
        memset(text, 'x', sizeof text);
        text[0] = '\n';
        memcpy(text + 1, clocks[i].text, n);
        text[1 + n] = '\n';
        lar_slice t = lar_slice_of(text, sizeof text);
        uint32_t found = 0;
        for (uint32_t bytes = 0; bytes < sizeof text; bytes += bytes < 400 ? 1 : 400) {
            lar_clock_budget budget = {bytes, LAR_CLOCK_NUMBERS_MAX};
            lar_clock_span s;
            uint32_t k = lar_clock_scan(t, &s, 1, &budget);
            assert_int_equal(budget.bytes, 0);
            found += k;
            if (!k) continue;
            assert_int_equal(s.start, 1 + value);
            assert_int_equal(s.end, 1 + value + strlen(clocks[i].value));
        }
        assert_true(found > 5);
        lar_clock_budget none = {sizeof text, 0};
        lar_clock_span s;
        assert_int_equal(lar_clock_scan(t, &s, 1, &none), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_found),  cmocka_unit_test(test_left_alone),
                                       cmocka_unit_test(test_labels), cmocka_unit_test(test_shows_now),
                                       cmocka_unit_test(test_cuts),   cmocka_unit_test(test_cut_by_the_budget)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
