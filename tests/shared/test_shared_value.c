/* Values as they lie on the shared server: what was written is read; anything else counts as absent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "gateway/shared/shared_value.h"

static lar_hash key_of(const char *text) { return lar_hash_of(lar_slice_cstr(text)); }

static lar_shared_seal *seal_of(const char *secret, const char *scope) {
    lar_digest a = lar_digest_of(lar_slice_cstr(secret)), b = lar_digest_of(lar_slice_cstr(scope));
    lar_digest key = lar_shared_seal_key(&a, &b);
    lar_shared_seal *s = lar_shared_seal_new();
    lar_shared_seal_use(s, &key);
    return s;
}

static lar_error decode(lar_shared_seal *s, const char *key, lar_slice bytes, uint64_t *stamp, lar_buf *out) {
    lar_hash k = key_of(key);
    out->len = 0;
    return lar_shared_value_decode(s, &k, bytes, stamp, out);
}

static void encode(lar_shared_seal *s, const char *key, lar_slice value, lar_buf *to) {
    lar_hash k = key_of(key);
    to->len = 0;
    assert_int_equal(lar_shared_value_encode(s, &k, 1234567890123456u, value, to), LAR_OK);
    assert_true(to->len <= value.len + LAR_SHARED_HEAD_BYTES_MAX);
}

static void check(lar_shared_seal *s, lar_shared_seal *other) {
    lar_buf bytes, value;
    uint64_t stamp = 0;
    lar_buf_init(&bytes, 1 << 20);
    lar_buf_init(&value, 1 << 20);
    lar_slice text = LAR_SLICE("Current time: 10:15. And a tail.");
    encode(s, "a", text, &bytes);
    assert_int_equal(decode(s, "a", lar_buf_slice(&bytes), &stamp, &value), LAR_OK);
    assert_int_equal(stamp, 1234567890123456u);
    assert_true(lar_slice_eq(lar_buf_slice(&value), text));
    assert_int_equal(decode(s, "b", lar_buf_slice(&bytes), &stamp, &value), LAR_CORRUPT);
    assert_int_equal(decode(other, "a", lar_buf_slice(&bytes), &stamp, &value), LAR_CORRUPT);
    for (size_t i = 0; i < bytes.len; i++) {
        bytes.ptr[i] ^= 1;
        assert_int_not_equal(decode(s, "a", lar_buf_slice(&bytes), &stamp, &value), LAR_OK);
        bytes.ptr[i] ^= 1;
        assert_int_not_equal(decode(s, "a", lar_slice_of(bytes.ptr, i), &stamp, &value), LAR_OK);
    }
    bytes.ptr[0] = 3;
    assert_int_equal(decode(s, "a", lar_buf_slice(&bytes), &stamp, &value), LAR_VERSION);
    encode(s, "a", LAR_SLICE(""), &bytes);
    assert_int_equal(decode(s, "a", lar_buf_slice(&bytes), &stamp, &value), LAR_OK);
    assert_int_equal(value.len, 0);
    lar_buf_release(&bytes);
    lar_buf_release(&value);
}

static void plain(void **state) {
    (void)state;
    lar_shared_seal *s = seal_of("a secret of sixteen", "");
    check(NULL, s);
    lar_shared_seal_free(s);
}

static void sealed(void **state) {
    (void)state;
    lar_shared_seal *s = seal_of("a secret of sixteen", "");
    lar_shared_seal *other = seal_of("a secret of sixteem", "");
    lar_shared_seal *scoped = seal_of("a secret of sixteen", "a scope");
    check(s, other);
    check(s, scoped);
    check(scoped, s);
    check(s, NULL);
    lar_buf one, two;
    lar_buf_init(&one, 1 << 20);
    lar_buf_init(&two, 1 << 20);
    encode(s, "a", LAR_SLICE("Current time"), &one);
    encode(s, "a", LAR_SLICE("Current time"), &two);
    assert_null(memmem(one.ptr, one.len, "Current", 7));
    assert_false(lar_slice_eq(lar_buf_slice(&one), lar_buf_slice(&two))); /* never the same nonce */
    lar_buf_release(&one);
    lar_buf_release(&two);
    lar_shared_seal_free(s);
    lar_shared_seal_free(other);
    lar_shared_seal_free(scoped);
}

static void too_large(void **state) {
    (void)state;
    lar_buf bytes, value;
    lar_buf_init(&bytes, 1 << 20);
    lar_buf_init(&value, 1 << 20);
    static char text[LAR_SHARED_VALUE_BYTES_MAX + 1];
    lar_hash k = key_of("a");
    uint64_t stamp;
    assert_int_equal(lar_shared_value_encode(NULL, &k, 1, lar_slice_of(text, sizeof text), &bytes), LAR_LIMIT);
    assert_int_equal(bytes.len, 0);
    encode(NULL, "a", lar_slice_of(text, sizeof text - 1), &bytes);
    assert_int_equal(decode(NULL, "a", lar_buf_slice(&bytes), &stamp, &value), LAR_OK);
    assert_int_equal(lar_buf_add(&bytes, "x", 1), LAR_OK);
    assert_int_equal(decode(NULL, "a", lar_buf_slice(&bytes), &stamp, &value), LAR_CORRUPT);
    lar_buf_release(&bytes);
    lar_buf_release(&value);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain),
        cmocka_unit_test(sealed),
        cmocka_unit_test(too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
