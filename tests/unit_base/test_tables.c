/* Hashes, digests, the error table and the clocks. */
#include "base/clock.h"
#include "base/digest.h"
#include "base/hash.h"
#include "base/hash_wide.h"
#include "tests/unit_base/expect.h"

static void a_hash_is_xxh3_in_canonical_order(void **state) {
    (void)state;
    /* XXH3-128 of nothing is 99aa06d3014798d86001c324468d497f, most significant byte first. */
    static const uint8_t empty[16] = {0x99, 0xaa, 0x06, 0xd3, 0x01, 0x47, 0x98, 0xd8,
                                      0x60, 0x01, 0xc3, 0x24, 0x46, 0x8d, 0x49, 0x7f};
    lar_hash h = lar_hash_of(LAR_SLICE(""));
    assert_memory_equal(h.bytes, empty, 16);
    assert_true(lar_hash_eq(h, lar_hash_of((lar_slice){0})));
    uint64_t low;
    memcpy(&low, h.bytes, 8);
    assert_true(lar_hash_low(h) == low);
}

static void chains_depend_on_order_and_borders(void **state) {
    (void)state;
    lar_hash a = lar_hash_of(LAR_SLICE("a")), b = lar_hash_of(LAR_SLICE("b"));
    assert_false(lar_hash_eq(lar_hash_join(a, b), lar_hash_join(b, a)));
    assert_false(lar_hash_eq(lar_hash_join(a, a), a));
    lar_hash one = lar_hash_chain(lar_hash_chain(a, LAR_SLICE("xy")), LAR_SLICE("z"));
    lar_hash two = lar_hash_chain(lar_hash_chain(a, LAR_SLICE("x")), LAR_SLICE("yz"));
    lar_hash three = lar_hash_chain(a, LAR_SLICE("xyz"));
    assert_false(lar_hash_eq(one, two));
    assert_false(lar_hash_eq(one, three));
    assert_false(lar_hash_eq(a, lar_hash_chain(a, LAR_SLICE(""))));
    assert_true(lar_hash_eq(one, lar_hash_chain(lar_hash_chain(a, LAR_SLICE("xy")), LAR_SLICE("z"))));
}

static void a_stream_hashes_like_the_whole(void **state) {
    (void)state;
    char text[5000];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)(i * 31 % 251);
    static const size_t steps[] = {1, 7, 64, 255, 1000, 5000};
    for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++) {
        lar_hasher h;
        lar_hasher_init(&h);
        for (size_t at = 0; at < sizeof text; at += steps[s]) {
            size_t n = sizeof text - at < steps[s] ? sizeof text - at : steps[s];
            lar_hasher_add(&h, text + at, n);
            lar_hasher_add(&h, NULL, 0);
        }
        assert_true(lar_hash_eq(lar_hasher_end(&h), lar_hash_of(lar_slice_of(text, sizeof text))));
    }
}

static void a_digest_is_sha_256(void **state) {
    (void)state;
    static const uint8_t abc[32] = {0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40,
                                    0xde, 0x5d, 0xae, 0x22, 0x23, 0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17,
                                    0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad};
    lar_digest d = lar_digest_of(LAR_SLICE("abc")), other = lar_digest_of(LAR_SLICE("abd"));
    assert_memory_equal(d.bytes, abc, 32);
    assert_true(lar_digest_short(&d) == 0xba7816bf8f01cfeau);
    assert_false(lar_digest_eq(&d, &other));
    other = d;
    assert_true(lar_digest_eq(&d, &other));
    other.bytes[31] ^= 1;
    assert_false(lar_digest_eq(&d, &other));
    other = lar_digest_of((lar_slice){0});
    assert_int_equal(other.bytes[0], 0xe3);
}

static void every_error_has_a_row(void **state) {
    (void)state;
    for (int i = 0; i < LAR_ERROR_COUNT; i++) {
        lar_error e = (lar_error)i;
        assert_true(strlen(lar_error_name(e)) > 1);
        assert_true(strlen(lar_error_text(e)) > 3);
        assert_in_range(lar_error_status(e), 200, 599);
        if (i) assert_in_range(lar_error_status(e), 400, 599);
        if (lar_error_blame(e) == LAR_BLAME_CLIENT) assert_true(lar_error_status(e) < 500 || e == LAR_HTTP_VERSION);
        for (int k = 0; k < i; k++) assert_string_not_equal(lar_error_name(e), lar_error_name((lar_error)k));
    }
    assert_string_equal(lar_error_name(LAR_UPSTREAM_TIMEOUT), "UPSTREAM_TIMEOUT");
    assert_int_equal(lar_error_status(LAR_UPSTREAM_TIMEOUT), 504);
    assert_int_equal(lar_error_retry(LAR_UPSTREAM_CONNECT), LAR_RETRY_UNSENT);
    assert_int_equal(lar_error_blame(LAR_JSON_SYNTAX), LAR_BLAME_CLIENT);
    assert_string_equal(lar_error_name((lar_error)9999), "INVALID");
}

static void a_diag_is_cut_and_replaced(void **state) {
    (void)state;
    lar_diag d = {0};
    char longer[LAR_DIAG_BYTES * 2];
    memset(longer, 'x', sizeof longer);
    assert_error(lar_fail_at(LAR_INVALID, &d, 77, "%.*s", (int)sizeof longer, longer), INVALID);
    assert_int_equal(strlen(d.text), LAR_DIAG_BYTES - 1);
    assert_true(d.has_offset && d.offset == 77);
    assert_error(lar_fail(LAR_BUSY, &d, "n=%d", 5), BUSY);
    assert_string_equal(d.text, "n=5");
    assert_false(d.has_offset);
    assert_error(lar_fail(LAR_BUSY, NULL, "x"), BUSY);
    assert_error(lar_fail_at(LAR_BUSY, NULL, 1, "x"), BUSY);
}

static void clocks_run_forward(void **state) {
    (void)state;
    uint64_t a = lar_clock_mono_ns(), b = lar_clock_mono_ns();
    assert_true(b >= a);
    assert_true(lar_clock_wall_ms() > 1600000000000);
}

/* Long inputs go through code of another vector width: the value must not depend on it. */
static void long_hashes_are_the_same_at_every_width(void **state) {
    (void)state;
    static char text[9000];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)(i * 131 + i / 7);
    for (size_t len = 0; len < sizeof text - 64; len += len < 1100 ? 1 : 97) {
        lar_hasher h;
        lar_hasher_init(&h);
        lar_hasher_add(&h, text + len % 64, len);
        lar_hash plain = lar_hasher_end(&h);
        assert_true(lar_hash_eq(plain, lar_hash_of(lar_slice_of(text + len % 64, len))));
#ifdef __x86_64__
        if (__builtin_cpu_supports("avx2")) assert_true(lar_hash_eq(plain, lar_hash_long_avx2(text + len % 64, len)));
        if (__builtin_cpu_supports("avx512f"))
            assert_true(lar_hash_eq(plain, lar_hash_long_avx512(text + len % 64, len)));
#endif
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_hashes_are_the_same_at_every_width),
        cmocka_unit_test(a_hash_is_xxh3_in_canonical_order),
        cmocka_unit_test(chains_depend_on_order_and_borders),
        cmocka_unit_test(a_stream_hashes_like_the_whole),
        cmocka_unit_test(a_digest_is_sha_256),
        cmocka_unit_test(every_error_has_a_row),
        cmocka_unit_test(a_diag_is_cut_and_replaced),
        cmocka_unit_test(clocks_run_forward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
