/* Arenas, buffers and slices: limits are exact, contents survive what fails. */
#include "base/arena.h"
#include "tests/unit_base/expect.h"

static void an_arena_hands_out_aligned_memory_up_to_its_limit(void **state) {
    (void)state;
    lar_arena a;
    lar_arena_init(&a, 64);
    char *p = lar_arena_alloc(&a, 1), *q = lar_arena_alloc(&a, 17);
    assert_non_null(p);
    assert_non_null(q);
    assert_int_equal((uintptr_t)p % 16, 0);
    assert_int_equal((uintptr_t)q % 16, 0);
    assert_int_equal(a.used, 48);
    assert_null(lar_arena_alloc(&a, 17));
    assert_null(lar_arena_alloc(&a, SIZE_MAX));
    assert_non_null(lar_arena_alloc(&a, 16));
    assert_null(lar_arena_alloc(&a, 1));
    lar_arena_release(&a);
    assert_non_null(lar_arena_alloc(&a, 64));
    lar_arena_release(&a);
}

static void an_arena_grows_and_is_reset(void **state) {
    (void)state;
    lar_arena a;
    lar_arena_init(&a, 1 << 20);
    char *list[100];
    for (int i = 0; i < 100; i++) {
        list[i] = lar_arena_alloc(&a, 1000);
        assert_non_null(list[i]);
        memset(list[i], i, 1000);
    }
    for (int i = 0; i < 100; i++)
        for (int k = 0; k < 1000; k++) assert_int_equal(list[i][k], i);
    char *large = lar_arena_zalloc(&a, 100000);
    assert_non_null(large);
    for (int i = 0; i < 100000; i++) assert_int_equal(large[i], 0);
    lar_arena_reset(&a, 16384);
    assert_int_equal(a.used, 0);
    char *again = lar_arena_zalloc(&a, 8000);
    assert_non_null(again);
    for (int i = 0; i < 8000; i++) assert_int_equal(again[i], 0);
    lar_arena_reset(&a, 0);
    assert_non_null(lar_arena_alloc(&a, 10));
    lar_arena_release(&a);
}

static void an_arena_copies_and_prints(void **state) {
    (void)state;
    lar_arena a;
    lar_arena_init(&a, 1000);
    lar_slice s = lar_arena_copy(&a, LAR_SLICE("a\0b"));
    assert_slice(s, LAR_SLICE("a\0b"));
    assert_int_equal(s.ptr[3], 0);
    assert_slice(lar_arena_copy(&a, (lar_slice){0}), LAR_SLICE(""));
    assert_slice(lar_arena_printf(&a, "%d-%s", 42, "x"), LAR_SLICE("42-x"));
    assert_null(lar_arena_printf(&a, "%2000d", 1).ptr);
    assert_null(lar_arena_copy(&a, lar_slice_of("x", 2000)).ptr);
    lar_arena_release(&a);
}

static void a_buffer_takes_decimal_numbers(void **state) {
    (void)state;
    lar_buf b;
    lar_buf_init(&b, 64);
    assert_ok(lar_buf_add_u64(&b, 0));
    assert_ok(lar_buf_add(&b, " ", 1));
    assert_ok(lar_buf_add_u64(&b, 10203));
    assert_ok(lar_buf_add(&b, " ", 1));
    assert_ok(lar_buf_add_u64(&b, UINT64_MAX));
    assert_slice(lar_buf_slice(&b), LAR_SLICE("0 10203 18446744073709551615"));
    lar_buf_release(&b);
}

static void a_buffer_stops_at_its_maximum(void **state) {
    (void)state;
    lar_buf b;
    lar_buf_init(&b, 10);
    assert_ok(lar_buf_add(&b, "12345678", 8));
    assert_error(lar_buf_add(&b, "abc", 3), LIMIT);
    assert_slice(lar_buf_slice(&b), LAR_SLICE("12345678"));
    assert_ok(lar_buf_add(&b, "ab", 2));
    assert_ok(lar_buf_add(&b, NULL, 0));
    assert_error(lar_buf_reserve(&b, 1), LIMIT);
    assert_error(lar_buf_reserve(&b, SIZE_MAX), LIMIT);
    assert_true(b.cap <= 10);
    lar_buf_consume(&b, 3);
    assert_slice(lar_buf_slice(&b), LAR_SLICE("45678ab"));
    lar_buf_consume(&b, 7);
    assert_int_equal(b.len, 0);
    lar_buf_release(&b);
    assert_null(b.ptr);
}

static void a_buffer_grows_and_keeps_what_it_may(void **state) {
    (void)state;
    lar_buf b;
    lar_buf_init(&b, 1 << 20);
    for (int i = 0; i < 5000; i++) assert_ok(lar_buf_printf(&b, "%05d", i));
    assert_int_equal(b.len, 25000);
    for (int i = 0; i < 5000; i++) {
        char want[16];
        (void)snprintf(want, sizeof want, "%05d", i);
        assert_memory_equal(b.ptr + 5 * i, want, 5);
    }
    char *ptr = b.ptr;
    lar_buf_reset(&b, 1 << 20);
    assert_ptr_equal(b.ptr, ptr);
    assert_int_equal(b.len, 0);
    lar_buf_reset(&b, 100);
    assert_null(b.ptr);
    assert_int_equal(b.max, 1 << 20);
    lar_buf_release(&b);
    lar_buf_init(&b, 3);
    assert_error(lar_buf_printf(&b, "%s", "abcdef"), LIMIT);
    assert_int_equal(b.len, 0);
    lar_buf_release(&b);
}

static void slices_are_compared_and_trimmed(void **state) {
    (void)state;
    assert_true(lar_slice_eq((lar_slice){0}, LAR_SLICE("")));
    assert_true(lar_slice_eq(LAR_SLICE("a\0b"), LAR_SLICE("a\0b")));
    assert_false(lar_slice_eq(LAR_SLICE("a\0b"), LAR_SLICE("a\0c")));
    assert_false(lar_slice_eq_cstr(LAR_SLICE("ab"), "a"));
    assert_true(lar_slice_ieq(LAR_SLICE("Content-TYPE"), LAR_SLICE("content-type")));
    assert_false(lar_slice_ieq(LAR_SLICE("a@"), LAR_SLICE("a`")));
    assert_false(lar_slice_ieq(LAR_SLICE("a["), LAR_SLICE("a{")));
    assert_false(lar_slice_ieq(LAR_SLICE("\xC4"), LAR_SLICE("\xE4")));
    assert_true(lar_slice_starts(LAR_SLICE("abc"), LAR_SLICE("ab")));
    assert_true(lar_slice_starts(LAR_SLICE("abc"), LAR_SLICE("")));
    assert_false(lar_slice_starts(LAR_SLICE("a"), LAR_SLICE("ab")));
    assert_slice(lar_slice_trim(LAR_SLICE(" \t a b\t ")), LAR_SLICE("a b"));
    assert_slice(lar_slice_trim(LAR_SLICE(" \t ")), LAR_SLICE(""));
    assert_slice(lar_slice_trim(LAR_SLICE("\na\r")), LAR_SLICE("\na\r"));
    assert_int_equal(lar_slice_cstr(NULL).len, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_arena_hands_out_aligned_memory_up_to_its_limit),
        cmocka_unit_test(an_arena_grows_and_is_reset),
        cmocka_unit_test(an_arena_copies_and_prints),
        cmocka_unit_test(a_buffer_takes_decimal_numbers),
        cmocka_unit_test(a_buffer_stops_at_its_maximum),
        cmocka_unit_test(a_buffer_grows_and_keeps_what_it_may),
        cmocka_unit_test(slices_are_compared_and_trimmed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
