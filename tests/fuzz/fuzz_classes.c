/* The scan for volatile text on any bytes. Checks that
 * 1. spans are in order, apart, inside the text, without a line end, on borders of characters, behind their labels;
 * 2. a second scan gives the same, and so does a slot;
 * 3. less room gives the first of them; a budget gives no others, and is taken off by all of the text that was read;
 * 4. lines without candidates behind the text change nothing. */
#include "policies/volatile_text.h"
#include "tests/fuzz/fuzz.h"

enum { SPANS = 64, TEXT_MAX = 64 * 1024 };

static bool begins_character(lar_slice t, size_t i) {
    return i >= t.len || ((unsigned char)t.ptr[i] & 0xC0) != 0x80 || i == 0;
}

/* Whether all of the text is UTF-8: then borders are borders of characters. */
static bool is_utf8(lar_slice t) {
    for (size_t i = 0; i < t.len;) {
        unsigned char c = (unsigned char)t.ptr[i];
        size_t n = c < 0x80 ? 1 : c >= 0xC2 && c < 0xE0 ? 2 : c >= 0xE0 && c < 0xF0 ? 3 : c >= 0xF0 && c < 0xF5 ? 4 : 0;
        if (n == 0 || t.len - i < n) return false;
        for (size_t k = 1; k < n; k++) {
            if (((unsigned char)t.ptr[i + k] & 0xC0) != 0x80) return false;
        }
        i += n;
    }
    return true;
}

static void check_spans(lar_slice t, const lar_volatile_span *s, uint32_t n) {
    bool utf8 = is_utf8(t);
    for (uint32_t i = 0; i < n; i++) {
        FUZZ_CHECK(s[i].label_start <= s[i].label_end && s[i].label_end <= s[i].start);
        FUZZ_CHECK(s[i].start < s[i].end && s[i].end <= t.len);
        FUZZ_CHECK(i == 0 || s[i].start >= s[i - 1].end);
        FUZZ_CHECK(s[i].class_id < LAR_VOLATILE_COUNT);
        size_t from = s[i].label_start;
        FUZZ_CHECK(!memchr(t.ptr + from, '\n', s[i].end - from) && !memchr(t.ptr + from, '\r', s[i].end - from));
        if (!utf8) continue;
        FUZZ_CHECK(begins_character(t, s[i].start) && begins_character(t, s[i].end));
        FUZZ_CHECK(begins_character(t, s[i].label_start));
    }
}

static bool same(const lar_volatile_span *a, const lar_volatile_span *b) {
    return a->start == b->start && a->end == b->end && a->label_start == b->label_start &&
           a->label_end == b->label_end && a->class_id == b->class_id && a->key_word == b->key_word &&
           a->example == b->example;
}

static uint32_t scan(lar_slice t, lar_volatile_span *s, uint32_t room) {
    lar_clock_budget all = {UINT32_MAX, UINT32_MAX};
    return lar_volatile_scan(t, s, room, &all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char more[] = "\n\nBe kind and brief.\n\n";
    lar_volatile_span a[SPANS], b[SPANS];
    if (size > TEXT_MAX) return 0;
    lar_slice t = lar_slice_of((const char *)data, size);
    uint32_t n = scan(t, a, SPANS);
    check_spans(t, a, n);
    for (uint32_t i = 0; i < n; i++) {
        lar_hash slot = lar_volatile_slot(t, &a[i]);
        FUZZ_CHECK(lar_hash_eq(slot, lar_volatile_slot(t, &a[i])));
    }
    FUZZ_CHECK(scan(t, b, n / 2) == n / 2);
    for (uint32_t i = 0; i < n / 2; i++) FUZZ_CHECK(same(&a[i], &b[i]));
    uint32_t bytes = (uint32_t)(size / 2), numbers = (uint32_t)(size % 7);
    lar_clock_budget some = {bytes, numbers};
    uint32_t few = lar_volatile_scan(t, b, SPANS, &some);
    FUZZ_CHECK(some.bytes == 0 && some.numbers <= numbers && few <= n);
    check_spans(t, b, few);
    for (uint32_t i = 0; i < few; i++) FUZZ_CHECK(same(&a[i], &b[i]));
    char *longer = malloc(size + sizeof more);
    if (!longer) abort();
    if (size) memcpy(longer, data, size);
    memcpy(longer + size, more, sizeof more - 1);
    FUZZ_CHECK(scan(lar_slice_of(longer, size + sizeof more - 1), b, SPANS) == n);
    for (uint32_t i = 0; i < n; i++) FUZZ_CHECK(same(&a[i], &b[i]));
    free(longer);
    return 0;
}
