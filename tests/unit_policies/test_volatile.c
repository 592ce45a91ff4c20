/* The scan for volatile text: corpora of what must be found and of what must be left alone, and its promises.
 *
 * corpus/volatile.txt: [[CLASS|value]] where something is to be found. corpus/content.txt: nothing is, or it is marked
 * as an example. corpus/ambiguous.txt: text, tab, reason: found, and only evidence tells it from content.
 * In all, \n stands for a line end; empty lines and lines that begin with "## " are for the reader. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "policies/rules/scan_stop.h"
#include "policies/rules/volatile_keys.h"
#include "policies/volatile_text.h"

enum { LINE_MAX_BYTES = 8192, SPANS = 32, EXPECTED_MAX = 8 };

static const char *folder;

typedef struct sample {
    char text[LINE_MAX_BYTES];
    size_t len;
    struct {
        size_t start, end;
        char class_name[24];
    } want[EXPECTED_MAX];
    uint32_t count;
} sample;

static uint32_t scan(lar_slice text, lar_volatile_span *spans, uint32_t room) {
    lar_clock_budget budget = LAR_CLOCK_BUDGET;
    return lar_volatile_scan(text, spans, room, &budget);
}

static void read_sample(const char *line, sample *s) {
    s->len = 0;
    s->count = 0;
    for (const char *p = line; *p && *p != '\n';) {
        if (p[0] == '\\' && p[1] == 'n') {
            s->text[s->len++] = '\n';
            p += 2;
        } else if (p[0] == '[' && p[1] == '[' && p[2] != '[') {
            const char *bar = strchr(p, '|'), *end = strstr(p, "]]");
            assert_true(bar && end && bar < end && s->count < EXPECTED_MAX && bar - p - 2 < 24);
            memcpy(s->want[s->count].class_name, p + 2, (size_t)(bar - p - 2));
            s->want[s->count].class_name[bar - p - 2] = 0;
            s->want[s->count].start = s->len;
            if (end[2] == ']' && memchr(bar, '[', (size_t)(end - bar)) && !memchr(bar, ']', (size_t)(end - bar))) end++;
            memcpy(s->text + s->len, bar + 1, (size_t)(end - bar - 1));
            s->len += (size_t)(end - bar - 1);
            s->want[s->count++].end = s->len;
            p = end + 2;
        } else {
            s->text[s->len++] = *p++;
        }
    }
}

/* Calls `check` for every line; returns how many failed. */
typedef bool (*check_fn)(sample *s, const char *line);
static uint32_t each_line(const char *file, uint32_t least, check_fn check) {
    char path[1024];
    static char line[LINE_MAX_BYTES];
    static sample s;
    (void)snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    uint32_t lines = 0, failed = 0;
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '\n' || strncmp(line, "## ", 3) == 0) continue;
        read_sample(line, &s);
        lines++;
        if (!check(&s, line)) failed++;
    }
    (void)fclose(f);
    assert_true(lines >= least);
    return failed;
}

static void print_spans(const sample *s, const lar_volatile_span *spans, uint32_t n, const char *line) {
    print_error("%s", line);
    for (uint32_t i = 0; i < n; i++) {
        print_error("    %s%s [%.*s]\n", lar_volatile_row_of(spans[i].class_id)->name,
                    spans[i].example ? " example" : "", (int)(spans[i].end - spans[i].start), s->text + spans[i].start);
    }
}

static bool as_expected(sample *s, const char *line) {
    lar_volatile_span spans[SPANS];
    uint32_t n = scan(lar_slice_of(s->text, s->len), spans, SPANS);
    bool good = n == s->count;
    for (uint32_t i = 0; i < n && good; i++) {
        good = spans[i].start == s->want[i].start && spans[i].end == s->want[i].end && !spans[i].example &&
               strcasecmp(lar_volatile_row_of(spans[i].class_id)->name, s->want[i].class_name) == 0;
    }
    if (!good) print_spans(s, spans, n, line);
    return good;
}

static void test_found(void **state) {
    (void)state;
    assert_int_equal(each_line("volatile.txt", 300, as_expected), 0);
}

static bool left_alone(sample *s, const char *line) {
    lar_volatile_span spans[SPANS];
    uint32_t n = scan(lar_slice_of(s->text, s->len), spans, SPANS), bad = 0;
    for (uint32_t i = 0; i < n; i++) bad += !spans[i].example;
    if (bad) print_spans(s, spans, n, line);
    return bad == 0;
}

static void test_content(void **state) {
    (void)state;
    assert_int_equal(each_line("content.txt", 120, left_alone), 0);
}

static bool found_with_reason(sample *s, const char *line) {
    char *tab = memchr(s->text, '\t', s->len);
    assert_non_null(tab);
    lar_volatile_span spans[SPANS];
    uint32_t n = scan(lar_slice_of(s->text, (size_t)(tab - s->text)), spans, SPANS);
    if (n == 0) print_error("nothing found any more; belongs into content.txt: %s", line);
    return n > 0;
}

static void test_ambiguous(void **state) {
    (void)state;
    assert_int_equal(each_line("ambiguous.txt", 5, found_with_reason), 0);
}

/* -- promises ------------------------------------------------------------------------------------------------ */

static bool same(const lar_volatile_span *a, const lar_volatile_span *b) {
    return a->start == b->start && a->end == b->end && a->label_start == b->label_start && a->class_id == b->class_id &&
           a->key_word == b->key_word && a->example == b->example;
}

/* Every cut, from a buffer without a byte behind it. */
static bool sound_when_cut(sample *s, const char *line) {
    (void)line;
    for (size_t cut = 0; cut <= s->len; cut++) {
        char *copy = malloc(cut ? cut : 1);
        memcpy(copy, s->text, cut);
        lar_volatile_span v[SPANS];
        uint32_t n = scan(lar_slice_of(copy, cut), v, SPANS);
        for (uint32_t k = 0; k < n; k++) {
            assert_true(v[k].start < v[k].end && v[k].end <= cut);
            assert_true(v[k].label_start <= v[k].label_end && v[k].label_end <= v[k].start);
            assert_true(k == 0 || v[k].start >= v[k - 1].end);
            assert_null(memchr(copy + v[k].start, '\n', v[k].end - v[k].start));
            assert_true(v[k].end == cut || ((unsigned char)copy[v[k].end] & 0xC0) != 0x80);
            assert_true(((unsigned char)copy[v[k].start] & 0xC0) != 0x80);
            (void)lar_volatile_slot(lar_slice_of(copy, cut), &v[k]);
        }
        free(copy);
    }
    return true;
}

static void test_cuts(void **state) {
    (void)state;
    assert_int_equal(each_line("volatile.txt", 300, sound_when_cut), 0);
    assert_int_equal(each_line("content.txt", 120, sound_when_cut), 0);
}

/* Lines that follow change nothing; less room finds the first ones; no budget finds none. */
static bool stands_alone(sample *s, const char *line) {
    lar_volatile_span a[SPANS], b[SPANS];
    lar_slice t = lar_slice_of(s->text, s->len);
    uint32_t n = scan(t, a, SPANS);
    static const char more[] = "\n\nBe kind, and answer in the language of the question.\n\n谢谢你。\n";
    assert_true(s->len + sizeof more < sizeof s->text);
    memcpy(s->text + s->len, more, sizeof more - 1);
    uint32_t m = scan(lar_slice_of(s->text, s->len + sizeof more - 1), b, SPANS);
    bool good = n == m;
    for (uint32_t k = 0; k < n && good; k++) good = same(&a[k], &b[k]);
    if (!good) print_spans(s, b, m, line);
    for (uint32_t room = 0; room < n; room++) {
        assert_int_equal(scan(t, b, room), room);
        for (uint32_t k = 0; k < room; k++) assert_true(same(&a[k], &b[k]));
    }
    lar_clock_budget none = {LAR_CLOCK_BYTES_MAX, 0};
    assert_int_equal(lar_volatile_scan(t, b, SPANS, &none), 0);
    return good;
}

static void test_promises(void **state) {
    (void)state;
    assert_int_equal(each_line("volatile.txt", 300, stands_alone), 0);
    assert_int_equal(each_line("content.txt", 120, stands_alone), 0);
}

/* Where the budget ends inside a value, it is found whole or not at all. */
static bool whole_or_not(sample *s, const char *line) {
    lar_volatile_span a[SPANS], b[SPANS];
    static char text[LINE_MAX_BYTES * 2];
    uint32_t n = scan(lar_slice_of(s->text, s->len), a, SPANS);
    memcpy(text, s->text, s->len);
    memset(text + s->len, 'x', sizeof text - s->len);
    text[s->len] = '\n';
    for (uint32_t bytes = 0; bytes < s->len + 300; bytes += bytes < 16 ? 1 : 7) {
        lar_clock_budget budget = {bytes, LAR_CLOCK_NUMBERS_MAX};
        uint32_t m = lar_volatile_scan(lar_slice_of(text, sizeof text), b, SPANS, &budget);
        assert_int_equal(budget.bytes, 0);
        if (m > n) print_spans(s, b, m, line);
        assert_true(m <= n);
        for (uint32_t k = 0; k < m; k++) assert_true(same(&a[k], &b[k]));
    }
    return true;
}

static void test_budget(void **state) {
    (void)state;
    assert_int_equal(each_line("volatile.txt", 300, whole_or_not), 0);
}

/* Where values have moved, a pointer stands: it is no value, so that twice is as good as once. */
static bool pointer_is_none(sample *s, const char *line) {
    static const char pointer[] = "(see the latest <runtime-context>)";
    static char text[LINE_MAX_BYTES * 2];
    size_t n = 0, at = 0;
    for (uint32_t k = 0; k <= s->count; k++) {
        size_t upto = k < s->count ? s->want[k].start : s->len;
        memcpy(text + n, s->text + at, upto - at);
        n += upto - at;
        if (k == s->count) break;
        memcpy(text + n, pointer, sizeof pointer - 1);
        n += sizeof pointer - 1;
        at = s->want[k].end;
    }
    lar_volatile_span found[SPANS];
    uint32_t m = scan(lar_slice_of(text, n), found, SPANS);
    for (uint32_t k = 0; k < m; k++)
        print_error("[%.*s] in %.*s\n    of %s", (int)(found[k].end - found[k].start), text + found[k].start, (int)n,
                    text, line);
    return m == 0;
}

static void test_pointers(void **state) {
    (void)state;
    assert_int_equal(each_line("volatile.txt", 300, pointer_is_none), 0);
}

static void test_slots(void **state) {
    (void)state;
    static const struct {
        const char *a, *b;
        bool same;
    } pairs[] = {
        {"request_id: a1b2c3d4e5f6", "You are X. Be kind.\n**Request ID:** 99ffee00aa11", true},
        {"{\"requestId\": \"a1b2c3d4e5f6\"}", "<request_id>99ffee00aa11</request_id>", true},
        {"request_id: a1b2c3d4e5f6", "parent_request_id: a1b2c3d4e5f6", false},
        {"request_id: a1b2c3d4e5f6", "session_id: a1b2c3d4e5f6", false},
        {"Working directory: /tmp/a1", "- working_directory = /srv/x/y", true},
        {"Turn 12 of 40", "Turn 7 of 80", true},
        {"请求编号：7f0c2f5e", "你好。请求编号: 7f0c2f5f", true},
        {"tokens_left: 81,000", "Tokens left: 3", true},
        {"Current time: 2031-04-09 15:15", "current_time=2031-04-09 15:16:00", true},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        lar_volatile_span a, b;
        lar_slice x = lar_slice_cstr(pairs[i].a), y = lar_slice_cstr(pairs[i].b);
        assert_int_equal(scan(x, &a, 1), 1);
        assert_int_equal(scan(y, &b, 1), 1);
        bool is = lar_hash_eq(lar_volatile_slot(x, &a), lar_volatile_slot(y, &b));
        if (is != pairs[i].same) print_error("%s | %s\n", pairs[i].a, pairs[i].b);
        assert_int_equal(is, pairs[i].same);
    }
}

/* In order of the texts read backwards, or halving would miss some. */
static void test_keys_in_order(void **state) {
    (void)state;
    uint32_t n;
    const lar_key *keys = lar_key_table(&n);
    for (uint32_t i = 0; i < n; i++) {
        assert_true(keys[i].len > 0 && keys[i].len < LAR_KEY_BYTES_MAX);
        char text[LAR_KEY_BYTES_MAX + 4];
        int len = snprintf(text, sizeof text, "%s: 1", keys[i].text);
        lar_key_front f;
        lar_key_rows rows;
        uint32_t found = lar_key_find(lar_slice_of(text, (size_t)len), keys[i].len + 2u, 0, &f, &rows);
        if (found == 0 || rows.list[0]->len != keys[i].len) print_error("%s is not found: what keys end with\n", text);
        assert_true(found > 0 && rows.list[0]->len == keys[i].len);
        if (i == 0) continue;
        const lar_key *a = &keys[i - 1], *b = &keys[i];
        size_t k = 0;
        while (k < a->len && k < b->len && a->text[a->len - 1 - k] == b->text[b->len - 1 - k]) k++;
        bool before = k == a->len ||
                      (k < b->len && (unsigned char)a->text[a->len - 1 - k] < (unsigned char)b->text[b->len - 1 - k]);
        if (!before) print_error("%s stands before %s\n", a->text, b->text);
        assert_true(before);
    }
}

/* Both ways to read a block give the same stops, at every place of it. */
static void test_stops(void **state) {
    (void)state;
    static const char *const bits[] = {"/", "0",  "9",  ":",  ";",  "<",    "=",    ">", "?",
                                       ".", "０", "９", "：", "，", "\xEF", "\xBC", "a", "文"};
    unsigned x = 12345;
    for (unsigned turn = 0; turn < 20000; turn++) {
        char text[200];
        size_t n = 0, want = turn % 190;
        while (n + 3 < want) {
            x = x * 1103515245 + 12345;
            const char *b = bits[(x >> 16) % (sizeof bits / sizeof *bits)];
            memcpy(text + n, b, strlen(b));
            n += strlen(b);
        }
        lar_slice t = lar_slice_of(text, n);
        for (size_t base = 0; base < n; base += 64)
            assert_true(lar_stops_block(t, base) == lar_stops_block_scalar(t, base));
    }
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    folder = argv[1];
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_found),         cmocka_unit_test(test_content),
                                       cmocka_unit_test(test_ambiguous),     cmocka_unit_test(test_cuts),
                                       cmocka_unit_test(test_promises),      cmocka_unit_test(test_budget),
                                       cmocka_unit_test(test_pointers),      cmocka_unit_test(test_slots),
                                       cmocka_unit_test(test_keys_in_order), cmocka_unit_test(test_stops)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
