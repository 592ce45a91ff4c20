/* Text to pseudo-tokens (header: tokens.h). Called by the cache simulators and whoever estimates what a break costs.
 * Pure; any thread; no memory. Invariant: tokens lie end to end and cover the text; borders are borders of characters.
 * Not here: any model's own tokenizer; a count is an estimate and is to be called one. */
#include "policies/tokens.h"

#include <stdbool.h>

#include "base/utf8.h"

static bool is_letter(unsigned char c) { return (unsigned char)((c | 0x20) - 'a') < 26; }

/* Bytes of the digit at s: ASCII's, or U+FF10 to U+FF19; 0 if it is none. */
static size_t digit_bytes(const unsigned char *s, size_t left) {
    if ((unsigned char)(s[0] - '0') < 10) return 1;
    return left >= 3 && s[0] == 0xEF && s[1] == 0xBC && s[2] >= 0x90 && s[2] <= 0x99 ? 3 : 0;
}

/* Bytes of the white space character at s, 0 if it is none: ASCII's and Unicode's (property White_Space, and the four
 * separators U+001C to U+001F). */
static size_t space_bytes(const unsigned char *s, size_t left) {
    if (s[0] == ' ' || (s[0] >= 9 && s[0] <= 13) || (s[0] >= 0x1C && s[0] <= 0x1F)) return 1;
    if (left >= 2 && s[0] == 0xC2 && (s[1] == 0x85 || s[1] == 0xA0)) return 2;
    if (left < 3) return 0;
    if (s[0] == 0xE3 && s[1] == 0x80 && s[2] == 0x80) return 3;
    if (s[0] == 0xE1 && s[1] == 0x9A && s[2] == 0x80) return 3;
    if (s[0] != 0xE2) return 0;
    if (s[1] == 0x80 && (s[2] <= 0x8A || s[2] == 0xA8 || s[2] == 0xA9 || s[2] == 0xAF)) return 3;
    return s[1] == 0x81 && s[2] == 0x9F ? 3 : 0;
}

static size_t digits_bytes(const unsigned char *s, size_t left) {
    size_t n = 0;
    for (int i = 0; i < 3 && n < left; i++) {
        size_t d = digit_bytes(s + n, left - n);
        if (d == 0) break;
        n += d;
    }
    return n;
}

size_t lar_token_length(lar_slice text) {
    const unsigned char *s = (const unsigned char *)text.ptr;
    size_t left = text.len, n = 0;
    if (is_letter(s[0])) {
        while (n < left && n < 5 && is_letter(s[n])) n++;
        return n;
    }
    n = digits_bytes(s, left);
    if (n) return n;
    for (size_t w; n < left && (w = space_bytes(s + n, left - n)) != 0;) n += w;
    if (n) return n;
    n = lar_utf8_sequence(s, s + left);
    if (n) return n;
    /* A lone surrogate, in the form in which one is decoded. */
    return left >= 3 && s[0] == 0xED && s[1] >= 0xA0 && (s[2] & 0xC0) == 0x80 ? 3 : 1;
}

uint64_t lar_token_count(lar_slice text) {
    uint64_t n = 0;
    while (text.len) {
        size_t len = lar_token_length(text);
        text = lar_slice_of(text.ptr + len, text.len - len);
        n++;
    }
    return n;
}
