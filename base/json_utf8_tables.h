/* The look-up tables of the vector parsers, by nibble. Private to json_avx2.c and json_avx512.c.
 *
 * UTF-8: two neighbouring bytes are wrong together exactly when a bit survives the AND of three look-ups:
 * the first byte's high and low nibble and the second byte's high nibble. Bit 7 says "two continuation
 * bytes in a row", which is right when a three- or four-byte lead stands two or three bytes before: the
 * caller flips it there. */
#ifndef LARDER_BASE_JSON_UTF8_TABLES_H
#define LARDER_BASE_JSON_UTF8_TABLES_H

#include <stdint.h>

enum {
    SHORT = 1 << 0,                    /* a lead without continuation */
    STRAY = 1 << 1,                    /* ASCII, then a continuation */
    OVERLONG3 = 1 << 2,                /* E0 80..9F */
    OVER_F4 = 1 << 3,                  /* F4 90..BF, F5..FF 90..BF */
    SURROGATE = 1 << 4,                /* ED A0..BF */
    OVERLONG2 = 1 << 5,                /* C0 and C1 */
    OVERLONG4 = 1 << 6,                /* F0 80..8F; with F5..FF 80..8F, which are over U+10FFFF */
    TWO_CONT = 1 << 7,                 /* two continuations */
    ANY_LOW = SHORT | STRAY | TWO_CONT /* these do not depend on the first byte's low nibble */
};

static const uint8_t utf8_first_high[16] = {
    STRAY,
    STRAY,
    STRAY,
    STRAY,
    STRAY,
    STRAY,
    STRAY,
    STRAY,
    TWO_CONT,
    TWO_CONT,
    TWO_CONT,
    TWO_CONT,
    SHORT | OVERLONG2,
    SHORT,
    SHORT | OVERLONG3 | SURROGATE,
    SHORT | OVER_F4 | OVERLONG4,
};
static const uint8_t utf8_first_low[16] = {
    ANY_LOW | OVERLONG2 | OVERLONG3 | OVERLONG4,
    ANY_LOW | OVERLONG2,
    ANY_LOW,
    ANY_LOW,
    ANY_LOW | OVER_F4,
    ANY_LOW | OVER_F4 | OVERLONG4,
    ANY_LOW | OVER_F4 | OVERLONG4,
    ANY_LOW | OVER_F4 | OVERLONG4,
    ANY_LOW | OVER_F4 | OVERLONG4,
    ANY_LOW | OVER_F4 | OVERLONG4,
    ANY_LOW | OVER_F4 | OVERLONG4,
    ANY_LOW | OVER_F4 | OVERLONG4,
    ANY_LOW | OVER_F4 | OVERLONG4,
    ANY_LOW | OVER_F4 | OVERLONG4 | SURROGATE,
    ANY_LOW | OVER_F4 | OVERLONG4,
    ANY_LOW | OVER_F4 | OVERLONG4,
};
static const uint8_t utf8_second_high[16] = {
    SHORT,
    SHORT,
    SHORT,
    SHORT,
    SHORT,
    SHORT,
    SHORT,
    SHORT,
    STRAY | TWO_CONT | OVERLONG2 | OVERLONG3 | OVERLONG4,
    STRAY | TWO_CONT | OVERLONG2 | OVERLONG3 | OVER_F4,
    STRAY | TWO_CONT | OVERLONG2 | SURROGATE | OVER_F4,
    STRAY | TWO_CONT | OVERLONG2 | SURROGATE | OVER_F4,
    SHORT,
    SHORT,
    SHORT,
    SHORT,
};

/* Bytes that may follow a backslash: one bit for each high nibble in use (2, 5, 6, 7). */
static const uint8_t escape_high[16] = {[2] = 1, [5] = 2, [6] = 4, [7] = 8};
static const uint8_t escape_low[16] = {
    [0x2] = 1 | 4 | 8, /* " b r */
    [0x4] = 8,         /* t */
    [0x5] = 8,         /* u */
    [0x6] = 4,         /* f */
    [0xC] = 2,         /* backslash */
    [0xE] = 4,         /* n */
    [0xF] = 1,         /* slash */
};

#endif
