/* Made-up JSON values for tests, printed in any form: one seed is one value. Header only; for tests of one thread. */
#ifndef LARDER_TESTS_JSON_MAKER_H
#define LARDER_TESTS_JSON_MAKER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "tests/unit_policies/rng.h"

static inline rng rng_of(uint64_t seed) {
    rng r = {seed * 0x9E3779B97F4A7C15u + 1};
    for (int i = 0; i < 8; i++) (void)pick(&r, 2);
    return r;
}

static inline void maker_add(lar_buf *b, const char *text) {
    if (lar_buf_add(b, text, strlen(text)) != LAR_OK) abort();
}

/* How a program or a model prints: what json_form.h can describe, and what it cannot. */
typedef struct maker_style {
    bool comma, colon, ascii;
    bool gaps; /* blanks here and there */
    bool odd;  /* a letter escaped without need: no form */
    uint32_t indent;
} maker_style;

static inline maker_style maker_style_of(rng *r) {
    maker_style s = {.comma = pick(r, 2), .colon = pick(r, 2), .ascii = pick(r, 2), .odd = false};
    s.indent = pick(r, 4) == 0 ? 1 + pick(r, 4) : 0;
    s.gaps = pick(r, 4) == 0;
    return s;
}

enum { MAKER_DEPTH_MAX = 4, MAKER_WIDTH_MAX = 5 };

static inline void maker_line(lar_buf *out, const maker_style *s, uint32_t level) {
    if (!s->indent) return;
    maker_add(out, "\n");
    for (uint32_t i = 0; i < level * s->indent; i++) maker_add(out, " ");
}

/* The value `what`, its members in the order of `order`, or of their names where that is NULL. */
static inline void maker_print(lar_buf *out, rng what, uint32_t depth, const maker_style *s, rng *order) {
    static const char *const names[2][MAKER_WIDTH_MAX] = {{"city", "n", "a\\\"b", "été", "天"},
                                                          {"city", "n", "a\\\"b", "\\u00e9t\\u00e9", "\\u5929"}};
    static const char *const scalars[2][8] = {{"1.50", "null", "\"x\\ny\"", "true", "{}", "[]", "\"tab\\t/ é😀 </b>\"",
                                               "-0"},
                                              {"1.50", "null", "\"x\\ny\"", "true", "{}", "[]",
                                               "\"tab\\t/ \\u00e9\\ud83d\\ude00 </b>\"", "-0"}};
    uint32_t width = 1 + pick(&what, MAKER_WIDTH_MAX), at[MAKER_WIDTH_MAX];
    bool array = pick(&what, 4) == 0 && depth;
    if (depth == MAKER_DEPTH_MAX || (depth && pick(&what, 2))) {
        maker_add(out, scalars[s->ascii][pick(&what, 8)]);
        return;
    }
    for (uint32_t i = 0; i < width; i++) at[i] = i;
    for (uint32_t i = width; order && !array && i > 1; i--) {
        uint32_t o = pick(order, i), swap = at[i - 1];
        at[i - 1] = at[o];
        at[o] = swap;
    }
    maker_add(out, array ? "[" : "{");
    for (uint32_t i = 0; i < width; i++) {
        if (i) maker_add(out, s->comma && !s->indent ? ", " : ",");
        if (s->gaps && pick(order, 3) == 0) maker_add(out, " \n");
        maker_line(out, s, depth + 1);
        if (!array) {
            maker_add(out, "\"");
            maker_add(out, s->odd && at[i] == 0 ? "\\u0063ity" : names[s->ascii][at[i]]);
            maker_add(out, s->colon ? "\": " : "\":");
        }
        maker_print(out, rng_of(what.s * 31 + at[i] + 1), depth + 1, s, order);
    }
    maker_line(out, s, depth);
    maker_add(out, array ? "]" : "}");
}

#endif
