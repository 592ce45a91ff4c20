/* cmocka with what it wants included before it, and two comparisons that print what they compare. */
#ifndef LARDER_TESTS_UNIT_BASE_CHECK_H
#define LARDER_TESTS_UNIT_BASE_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/slice.h"

#define assert_ok(expr) assert_string_equal(lar_error_name(expr), "OK")
#define assert_error(expr, name) assert_string_equal(lar_error_name(expr), #name)

/* The slice equals a text that may hold NULs (LAR_SLICE) or is a C string. */
#define assert_slice(got, want_slice)                                                                                  \
    do {                                                                                                               \
        lar_slice got_ = (got), want_ = (want_slice);                                                                  \
        if (!lar_slice_eq(got_, want_))                                                                                \
            fail_msg("got \"%.*s\" (%zu), want \"%.*s\" (%zu)", LAR_FMT(got_), got_.len, LAR_FMT(want_), want_.len);   \
    } while (0)

/* Numbers that repeat from run to run. */
static inline uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

#endif
