/* Expectations on the HTTP parser that hold for every way of cutting the bytes. */
#ifndef LARDER_TESTS_HTTP1_EXPECT_H
#define LARDER_TESTS_HTTP1_EXPECT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit_http1/http1_play.h"

static inline void compare(http1_play y, lar_slice in, cuts c, const char *want) {
    lar_buf out;
    lar_buf_init(&out, 64 << 20);
    play(&y, in, c, &out);
    assert_false(lar_buf_add(&out, "", 1));
    if (strcmp(out.ptr, want) != 0) {
        print_error("input: %.*s\ncut: kind %d at %zu seed %llu\n", LAR_FMT(in), c.kind, c.at,
                    (unsigned long long)c.seed);
        assert_string_equal(out.ptr, want);
    }
    lar_buf_release(&out);
}

/* The short transcript is `want`, and all cuts agree with the whole input on everything. */
static inline void expect_play(http1_play y, lar_slice in, const char *want) {
    lar_buf full;
    compare(y, in, (cuts){.kind = CUT_NONE}, want);
    lar_buf_init(&full, 64 << 20);
    y.full = true;
    play(&y, in, (cuts){.kind = CUT_NONE}, &full);
    assert_false(lar_buf_add(&full, "", 1));
    compare(y, in, (cuts){.kind = CUT_BYTES}, full.ptr);
    for (size_t at = 1; at < in.len && at < 2000; at++) compare(y, in, (cuts){.kind = CUT_AT, .at = at}, full.ptr);
    for (uint64_t seed = 1; seed <= 40; seed++) compare(y, in, (cuts){.kind = CUT_RANDOM, .seed = seed}, full.ptr);
    lar_buf_release(&full);
}

#endif
