/* Splices: what the output is, where bytes come to lie, what is refused. */
#include "base/splice.h"
#include "tests/unit_base/expect.h"

typedef struct fixture {
    lar_arena arena;
    lar_splices s;
} fixture;

static void begin(fixture *f) {
    lar_arena_init(&f->arena, 1 << 20);
    lar_splices_init(&f->s, &f->arena);
}

static void add(fixture *f, uint32_t start, uint32_t end, const char *with) {
    assert_ok(lar_splices_add(&f->s, start, end, lar_slice_cstr(with)));
}

static void assert_output(fixture *f, const char *body, const char *want) {
    lar_slice b = lar_slice_cstr(body);
    assert_ok(lar_splices_finish(&f->s, b.len));
    struct iovec iov[64];
    assert_true(lar_splices_iov_max(&f->s) <= 64);
    uint32_t n = lar_splices_iov(&f->s, b, iov);
    assert_true(n <= lar_splices_iov_max(&f->s));
    char out[256] = "";
    size_t len = 0;
    for (uint32_t i = 0; i < n; i++) {
        assert_true(iov[i].iov_len > 0);
        memcpy(out + len, iov[i].iov_base, iov[i].iov_len);
        len += iov[i].iov_len;
    }
    assert_slice(lar_slice_of(out, len), lar_slice_cstr(want));
    assert_int_equal(lar_splices_length(&f->s, b.len), len);
    lar_arena_release(&f->arena);
}

static void spans_are_replaced_dropped_and_inserted(void **state) {
    (void)state;
    fixture f;
    begin(&f);
    assert_output(&f, "abcdef", "abcdef");
    begin(&f);
    add(&f, 2, 4, "XYZ");
    assert_output(&f, "abcdef", "abXYZef");
    begin(&f);
    add(&f, 4, 6, "");
    add(&f, 0, 1, "");
    add(&f, 2, 2, "+");
    assert_output(&f, "abcdef", "b+cd");
    begin(&f);
    add(&f, 0, 6, "");
    assert_output(&f, "abcdef", "");
    begin(&f);
    add(&f, 6, 6, "end");
    add(&f, 0, 0, "begin");
    assert_output(&f, "abcdef", "beginabcdefend");
    begin(&f);
    add(&f, 0, 0, "only");
    assert_output(&f, "", "only");
}

static void insertions_at_one_place_keep_their_order(void **state) {
    (void)state;
    fixture f;
    begin(&f);
    add(&f, 5, 5, "z");
    for (int i = 0; i < 26; i++)
        assert_ok(lar_splices_add(&f.s, 2, 2, lar_slice_of(&"ABCDEFGHIJKLMNOPQRSTUVWXYZ"[i], 1)));
    add(&f, 1, 1, "y");
    assert_output(&f, "abcdef", "aybABCDEFGHIJKLMNOPQRSTUVWXYZcdezf");
    begin(&f);
    add(&f, 2, 4, "R"); /* an insertion where a replaced span begins comes before it, whenever it was added */
    add(&f, 2, 2, "1");
    add(&f, 4, 4, "3");
    add(&f, 2, 2, "2");
    assert_output(&f, "abcdef", "ab12R3ef");
}

static void neighbours_are_no_overlap(void **state) {
    (void)state;
    fixture f;
    begin(&f);
    add(&f, 3, 6, "Y");
    add(&f, 0, 3, "X");
    assert_output(&f, "abcdef", "XY");
}

static void overlaps_and_ends_behind_the_body_are_refused(void **state) {
    (void)state;
    static const uint32_t rows[][4] = {
        {0, 3, 2, 4}, {2, 4, 0, 3}, {0, 6, 2, 3}, {2, 3, 0, 6}, {1, 3, 1, 3},
        {1, 3, 1, 4}, {0, 4, 2, 2}, {0, 1, 5, 7}, {0, 1, 7, 7},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fixture f;
        begin(&f);
        add(&f, rows[i][0], rows[i][1], "x");
        add(&f, rows[i][2], rows[i][3], "y");
        assert_error(lar_splices_finish(&f.s, 6), INVALID);
        lar_arena_release(&f.arena);
    }
    fixture f;
    begin(&f);
    assert_error(lar_splices_add(&f.s, 3, 2, LAR_SLICE("")), INVALID);
    lar_arena_release(&f.arena);
}

static void an_arena_at_its_limit_is_no_memory(void **state) {
    (void)state;
    lar_arena arena;
    lar_splices s;
    lar_arena_init(&arena, 4096);
    lar_splices_init(&s, &arena);
    lar_error e = LAR_OK;
    uint32_t n = 0;
    for (; n < 1000 && !e; n++) e = lar_splices_add(&s, 1000 - n, 1000 - n, LAR_SLICE("x"));
    assert_string_equal(lar_error_name(e), "NO_MEMORY");
    assert_error(lar_splices_finish(&s, 2000), NO_MEMORY);
    lar_arena_release(&arena);
}

static void offsets_are_mapped(void **state) {
    (void)state;
    fixture f;
    begin(&f);
    add(&f, 2, 4, "XYZ");
    add(&f, 5, 5, "++");
    add(&f, 6, 8, "");
    assert_ok(lar_splices_finish(&f.s, 10));
    /*                             0  1  2  3  4  5  6   7   8   9   10
     * body      abcdefghij    ->  a  b [X  Y  Z]    e  + +  f  [ ]  i  j
     * output                      0  1  2  3  4     5  6 7  8       9  10 */
    static const size_t want[] = {0, 1, 5, 5, 5, 8, 9, 9, 9, 10, 11};
    for (size_t i = 0; i <= 10; i++) assert_int_equal(lar_splices_map(&f.s, i), want[i]);
    assert_int_equal(lar_splices_length(&f.s, 10), 11);
    lar_arena_release(&f.arena);
    begin(&f);
    add(&f, 2, 4, "X");
    add(&f, 4, 4, "++");
    add(&f, 4, 5, "Y");
    assert_ok(lar_splices_finish(&f.s, 10));
    assert_int_equal(lar_splices_map(&f.s, 3), 3);
    assert_int_equal(lar_splices_map(&f.s, 4), 6);
    assert_int_equal(lar_splices_map(&f.s, 5), 6);
    lar_arena_release(&f.arena);
}

static void many_splices_in_any_order(void **state) {
    (void)state;
    enum { COUNT = 5000 };
    fixture f;
    begin(&f);
    uint64_t seed = 42;
    static uint32_t order[COUNT];
    static char body[COUNT * 2], want[COUNT * 3];
    static struct iovec iov[COUNT * 2 + 1];
    for (uint32_t i = 0; i < COUNT; i++) order[i] = i;
    for (uint32_t i = COUNT - 1; i > 0; i--) {
        uint32_t k = (uint32_t)(next_random(&seed) % (i + 1)), t = order[i];
        order[i] = order[k];
        order[k] = t;
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        memcpy(body + 2 * i, "ab", 2);
        memcpy(want + 3 * i, "xyb", 3);
        assert_ok(lar_splices_add(&f.s, 2 * order[i], 2 * order[i] + 1, LAR_SLICE("xy")));
    }
    assert_ok(lar_splices_finish(&f.s, sizeof body));
    assert_int_equal(lar_splices_length(&f.s, sizeof body), sizeof want);
    uint32_t n = lar_splices_iov(&f.s, lar_slice_of(body, sizeof body), iov);
    size_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        assert_memory_equal(iov[i].iov_base, want + at, iov[i].iov_len);
        at += iov[i].iov_len;
    }
    assert_int_equal(at, sizeof want);
    lar_arena_release(&f.arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_are_replaced_dropped_and_inserted),
        cmocka_unit_test(insertions_at_one_place_keep_their_order),
        cmocka_unit_test(neighbours_are_no_overlap),
        cmocka_unit_test(overlaps_and_ends_behind_the_body_are_refused),
        cmocka_unit_test(an_arena_at_its_limit_is_no_memory),
        cmocka_unit_test(offsets_are_mapped),
        cmocka_unit_test(many_splices_in_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
