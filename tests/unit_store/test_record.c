/* Bytes of records: round trips, damage of every byte, cuts at every length, older and newer versions. */
#include <stdlib.h>
#include <string.h>

#include "store/bytes.h"
#include "store/record.h"
#include "store_fixture.h"

static lar_buf encoded(const lar_journal_record *r) {
    lar_buf b;
    lar_buf_init(&b, LAR_JREC_BYTES_MAX);
    assert_int_equal(lar_journal_encode(r, &b), LAR_OK);
    return b;
}

static void round_trip(void **state) {
    (void)state;
    for (uint64_t n = 0; n < 500; n++) {
        lar_journal_record in = record_of(n), out;
        lar_buf b = encoded(&in);
        assert_true(b.len <= LAR_JREC_BYTES_MAX);
        assert_int_equal(lar_journal_decode(lar_buf_slice(&b), &out), LAR_OK);
        assert_true(records_equal(&in, &out));
        lar_buf_release(&b);
    }
}

static void extremes_round_trip(void **state) {
    (void)state;
    lar_journal_record in, out;
    memset(&in, 0xff, sizeof in);
    in.ending = LAR_END_SHUTDOWN;
    in.spelling = LAR_SPELLING_PLAIN;
    in.error = LAR_CONFIG;
    memset(in.route, 'r', sizeof in.route); /* no NUL at all: cut, not run over */
    memset(in.upstream, 'u', sizeof in.upstream);
    memset(in.model, 'm', sizeof in.model);
    in.chain = record_of(LAR_JREC_CUTS_MAX).chain;
    lar_buf b = encoded(&in);
    assert_int_equal(lar_journal_decode(lar_buf_slice(&b), &out), LAR_OK);
    assert_int_equal(strlen(out.model), LAR_JREC_NAME_BYTES - 1);
    assert_int_equal(out.error, LAR_CONFIG);
    assert_true(out.tokens.prompt == -1 && out.time_ms == -1 && out.edits == UINT32_MAX);
    assert_true(out.recall_misses == UINT32_MAX && out.predicted_hit == -1 && lar_slice_eq(in.chain, out.chain));
    assert_int_equal(strlen(out.edition), LAR_JREC_SHORT_BYTES - 1);
    assert_true(out.attempts == 255 && out.target == 255 && out.cold_tokens == UINT32_MAX);
    assert_int_equal(strlen(out.failure), LAR_JREC_SHORT_BYTES - 1);
    assert_true(strlen(out.continued) == LAR_JREC_NAME_BYTES - 1 && out.begun_output == -1);
    lar_buf_release(&b);
    in.ending = LAR_END_COUNT;
    lar_buf_init(&b, LAR_JREC_BYTES_MAX);
    assert_int_equal(lar_journal_encode(&in, &b), LAR_INVALID);
    lar_buf_release(&b);
}

static void every_changed_bit_is_seen(void **state) {
    (void)state;
    lar_journal_record in = record_of(7), out;
    lar_buf b = encoded(&in);
    for (size_t i = 0; i < b.len; i++) {
        for (int bit = 0; bit < 8; bit++) {
            b.ptr[i] = (char)(b.ptr[i] ^ (1 << bit));
            assert_int_equal(lar_journal_decode(lar_buf_slice(&b), &out), LAR_CORRUPT);
            b.ptr[i] = (char)(b.ptr[i] ^ (1 << bit));
        }
    }
    assert_int_equal(lar_journal_decode(lar_buf_slice(&b), &out), LAR_OK);
    lar_buf_release(&b);
}

static void every_cut_is_seen(void **state) {
    (void)state;
    lar_journal_record in = record_of(8), out;
    lar_buf b = encoded(&in);
    for (size_t len = 0; len < b.len; len++) {
        char *exact = malloc(len ? len : 1); /* so that a sanitizer sees a read behind the end */
        memcpy(exact, b.ptr, len);
        assert_int_equal(lar_journal_decode(lar_slice_of(exact, len), &out), LAR_CORRUPT);
        free(exact);
    }
    char longer[LAR_JREC_BYTES_MAX + 1] = {0};
    memcpy(longer, b.ptr, b.len);
    assert_int_equal(lar_journal_decode(lar_slice_of(longer, b.len + 1), &out), LAR_CORRUPT);
    assert_int_equal(lar_journal_decode(lar_slice_of(longer, sizeof longer), &out), LAR_CORRUPT);
    lar_buf_release(&b);
}

/* Writes the checksum anew, as a program with other opinions would have. */
static void seal(uint8_t *p, size_t len) {
    lar_bytes_put_le(p + 2, len, 2);
    lar_record_checksum(lar_slice_of((const char *)p, len - 8), p + len - 8);
}

static void sealed_nonsense_is_refused(void **state) {
    (void)state;
    lar_journal_record in = record_of(9), out;
    lar_buf b = encoded(&in);
    uint8_t *p = (uint8_t *)b.ptr;
    p[4 + 8 + 8 + 2] = LAR_END_COUNT;
    seal(p, b.len);
    assert_int_equal(lar_journal_decode(lar_buf_slice(&b), &out), LAR_CORRUPT);
    p[4 + 8 + 8 + 2] = 0;
    p[4 + 8 + 8 + 3] = 255; /* spelling */
    seal(p, b.len);
    assert_int_equal(lar_journal_decode(lar_buf_slice(&b), &out), LAR_CORRUPT);
    p[4 + 8 + 8 + 3] = 0;
    p[b.len - 9 - strlen(in.model)] = 200; /* the model's length leads out of the record */
    seal(p, b.len);
    assert_int_equal(lar_journal_decode(lar_buf_slice(&b), &out), LAR_CORRUPT);
    lar_buf_release(&b);
}

static void a_newer_version_is_told_from_damage(void **state) {
    (void)state;
    lar_journal_record in = record_of(10), out;
    lar_buf b = encoded(&in);
    lar_bytes_put_le((uint8_t *)b.ptr, LAR_RECORD_VERSION + 1, 2);
    assert_int_equal(lar_journal_decode(lar_buf_slice(&b), &out), LAR_CORRUPT); /* the checksum does not fit */
    seal((uint8_t *)b.ptr, b.len);
    assert_int_equal(lar_journal_decode(lar_buf_slice(&b), &out), LAR_VERSION);
    lar_bytes_put_le((uint8_t *)b.ptr, 0, 2);
    seal((uint8_t *)b.ptr, b.len);
    assert_int_equal(lar_journal_decode(lar_buf_slice(&b), &out), LAR_CORRUPT);
    lar_buf_release(&b);
}

/* Byte by byte, as docs/store-format.md has version 1. */
static size_t write_version_1(uint8_t *p) {
    size_t at = 4;
    lar_bytes_put_le(p, 1, 2);
    const uint64_t eights[] = {1796000000123, 0xabcdef};
    for (int i = 0; i < 2; i++, at += 8) lar_bytes_put_le(p + at, eights[i], 8);
    lar_bytes_put_le(p + at, 200, 2), at += 2;
    p[at++] = LAR_END_COMPLETE;
    p[at++] = LAR_SPELLING_DEEPSEEK;
    lar_bytes_put_le(p + at, LAR_JREC_STREAMED, 2), at += 2;
    const uint64_t more[] = {
        1500, 9000, 1000, 900, 100, (uint64_t)LAR_TOKENS_UNKNOWN, 50, (uint64_t)LAR_TOKENS_UNKNOWN, 4000,
        3900, 700,  3500, 77,  5};
    for (unsigned i = 0; i < sizeof more / sizeof *more; i++, at += 8) lar_bytes_put_le(p + at, more[i], 8);
    lar_bytes_put_le(p + at, 3, 4), at += 4;
    const char *names[] = {"", "chat", "deepseek", "deepseek-chat"};
    for (int i = 0; i < 4; i++) {
        p[at++] = (uint8_t)strlen(names[i]);
        memcpy(p + at, names[i], strlen(names[i]));
        at += strlen(names[i]);
    }
    seal(p, at + 8);
    return at + 8;
}

/* Byte by byte, as docs/store-format.md has version 2: version 1 with raw counts, rules seen and edits. */
static void version_2_is_read(void **state) {
    (void)state;
    enum { COMMON = 4 + 8 + 8 + 2 + 1 + 1 + 2 + 16 + 48 + 48 + 4, ADDED = 60 };
    uint8_t v1[LAR_JREC_BYTES_MAX], p[LAR_JREC_BYTES_MAX];
    size_t len = write_version_1(v1);
    memcpy(p, v1, COMMON);
    for (int i = 0; i < 6; i++) lar_bytes_put_le(p + COMMON + 8 * i, (uint64_t)(1000 + i), 8);
    lar_bytes_put_le(p + COMMON + 48, 13, 8);
    lar_bytes_put_le(p + COMMON + 56, 2, 4);
    memcpy(p + COMMON + ADDED, v1 + COMMON, len - COMMON);
    lar_bytes_put_le(p, 2, 2);
    seal(p, len + ADDED);
    lar_journal_record r;
    memset(&r, 0xff, sizeof r);
    assert_int_equal(lar_journal_decode(lar_slice_of((const char *)p, len + ADDED), &r), LAR_OK);
    assert_string_equal(r.model, "deepseek-chat");
    assert_true(r.raw.hit == 1001 && r.rules_seen == 13 && r.edits == 2);
    assert_true(r.request_id == 0 && r.edition_hash == 0 && r.prompt_bytes == 0 && r.chain.len == 0);
    assert_true(r.predicted_hit == LAR_TOKENS_UNKNOWN && r.recall_hits == 0 && !r.edition[0] && !r.provider[0]);
    assert_true(r.attempts == 0 && r.target == 0 && r.cold_tokens == 0 && !r.failure[0]);
    assert_true(!r.continued[0] && r.begun_output == LAR_TOKENS_UNKNOWN);
}

/* Version 4 is version 5 without what lies between the failure and the error's name. */
static void version_4_is_read(void **state) {
    (void)state;
    lar_journal_record in = record_of(7), out;
    lar_buf b = encoded(&in);
    uint8_t *p = (uint8_t *)b.ptr;
    size_t added = 1 + strlen(in.continued) + 8, failure = 1 + 1 + 4 + 1 + strlen(in.failure);
    uint8_t *behind = (uint8_t *)memmem(p, b.len, in.chain.ptr, in.chain.len) + in.chain.len + failure;
    assert_true(in.continued[0] && in.begun_output > 0);
    memmove(behind, behind + added, (size_t)(p + b.len - behind) - added);
    lar_bytes_put_le(p, 4, 2);
    seal(p, b.len - added);
    memset(&out, 0xff, sizeof out);
    assert_int_equal(lar_journal_decode(lar_slice_of(b.ptr, b.len - added), &out), LAR_OK);
    in.continued[0] = 0;
    in.begun_output = LAR_TOKENS_UNKNOWN;
    assert_true(records_equal(&in, &out));
    lar_buf_release(&b);
}

/* Version 3 is version 5 without what lies between the chain and the error's name. */
static void version_3_is_read(void **state) {
    (void)state;
    lar_journal_record in = record_of(7), out;
    lar_buf b = encoded(&in);
    uint8_t *p = (uint8_t *)b.ptr;
    uint8_t *behind = (uint8_t *)memmem(p, b.len, in.chain.ptr, in.chain.len) + in.chain.len;
    size_t added = 1 + 1 + 4 + 1 + strlen(in.failure) + 1 + strlen(in.continued) + 8;
    assert_true(in.chain.len && in.attempts == 3 && in.cold_tokens && in.failure[0]);
    memmove(behind, behind + added, (size_t)(p + b.len - behind) - added);
    lar_bytes_put_le(p, 3, 2);
    seal(p, b.len - added);
    memset(&out, 0xff, sizeof out);
    assert_int_equal(lar_journal_decode(lar_slice_of(b.ptr, b.len - added), &out), LAR_OK);
    in.attempts = in.target = 0;
    in.cold_tokens = 0;
    in.failure[0] = in.continued[0] = 0;
    in.begun_output = LAR_TOKENS_UNKNOWN;
    assert_true(records_equal(&in, &out));
    lar_buf_release(&b);
}

/* A sealed record whose places are out of order, shrink, or are of no kind is damage. */
static void sealed_chains_are_looked_at(void **state) {
    (void)state;
    lar_journal_record in = record_of(LAR_JREC_CUTS_MAX), out;
    lar_journal_cut cuts[LAR_JREC_CUTS_MAX];
    assert_int_equal(lar_journal_cuts(&in, cuts), LAR_JREC_CUTS_MAX);
    assert_true(cuts[3].at == 3 && cuts[3].bytes == 4 && cuts[47].kind < LAR_JREC_CUT_KINDS && cuts[4].rule == 1);
    lar_buf b = encoded(&in);
    uint8_t *p = (uint8_t *)b.ptr, *chain = memmem(p, b.len, in.chain.ptr, in.chain.len);
    assert_non_null(chain);
    const struct {
        size_t at;
        uint8_t value;
    } wrong[] = {{3 * 20 + 16, 2}, {3 * 20 + 12, 1}, {3 * 20 + 18, LAR_JREC_CUT_KINDS}, {47 * 20 + 18, 255}};
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        uint8_t was = chain[wrong[i].at];
        chain[wrong[i].at] = wrong[i].value;
        seal(p, b.len);
        assert_int_equal(lar_journal_decode(lar_buf_slice(&b), &out), LAR_CORRUPT);
        chain[wrong[i].at] = was;
    }
    chain[-2]--; /* a length that is no whole number of places */
    seal(p, b.len);
    assert_int_equal(lar_journal_decode(lar_buf_slice(&b), &out), LAR_CORRUPT);
    chain[-2]++;
    chain[-1] = 0x7f; /* a length that leads out of the record */
    seal(p, b.len);
    assert_int_equal(lar_journal_decode(lar_buf_slice(&b), &out), LAR_CORRUPT);
    lar_buf_release(&b);
    in.chain.len--;
    lar_buf_init(&b, LAR_JREC_BYTES_MAX);
    assert_int_equal(lar_journal_encode(&in, &b), LAR_INVALID);
    lar_buf_release(&b);
}

static void version_1_is_read(void **state) {
    (void)state;
    uint8_t p[LAR_JREC_BYTES_MAX];
    size_t len = write_version_1(p);
    lar_journal_record r;
    assert_int_equal(lar_journal_decode(lar_slice_of((const char *)p, len), &r), LAR_OK);
    assert_string_equal(r.model, "deepseek-chat");
    assert_string_equal(r.upstream, "deepseek");
    assert_int_equal(r.tokens.hit, 900);
    assert_int_equal(r.turn, 3);
    assert_int_equal(r.rules_seen, 5);
    assert_true(r.raw.prompt == LAR_TOKENS_UNKNOWN && r.raw.hit == LAR_TOKENS_UNKNOWN);
    assert_int_equal(r.edits, 0);
}

static void memory_and_sums_see_damage(void **state) {
    (void)state;
    lar_hash key = key_of(1), other = key_of(2);
    uint8_t m[LAR_MEMORY_HEAD_BYTES + 5], head[LAR_MEMORY_HEAD_BYTES];
    uint32_t day;
    lar_slice value;
    lar_memory_encode_head(&key, 20786, LAR_SLICE("bytes"), head);
    memcpy(m, head, sizeof head);
    memcpy(m + sizeof head, "bytes", 5);
    lar_slice all = lar_slice_of((const char *)m, sizeof m);
    assert_int_equal(lar_memory_decode(&key, all, &day, &value), LAR_OK);
    assert_true(day == 20786 && lar_slice_eq_cstr(value, "bytes"));
    assert_int_equal(lar_memory_decode(&other, all, &day, &value), LAR_CORRUPT);
    for (size_t i = 0; i < sizeof m; i++) {
        m[i] ^= 0x10;
        assert_int_equal(lar_memory_decode(&key, all, &day, &value), LAR_CORRUPT);
        m[i] ^= 0x10;
        assert_int_equal(lar_memory_decode(&key, lar_slice_of(all.ptr, i), &day, &value), LAR_CORRUPT);
    }

    lar_rollup r = {.start_ms = 60000, .model = "m", .route = "r", .tenant = 3, .requests = 2, .edited = 9}, back;
    uint8_t k[LAR_ROLLUP_KEY_MAX], v[LAR_ROLLUP_BYTES];
    lar_slice ks = lar_slice_of((const char *)k, lar_rollup_encode_key(&r, k)),
              vs = lar_slice_of((const char *)v, sizeof v);
    lar_rollup_encode(&r, ks, v);
    assert_int_equal(lar_rollup_decode(ks, vs, &back), LAR_OK);
    assert_memory_equal(&r, &back, sizeof r);
    for (size_t i = 0; i < sizeof v; i++) {
        v[i] ^= 1;
        assert_int_not_equal(lar_rollup_decode(ks, vs, &back), LAR_OK);
        v[i] ^= 1;
    }
    k[9] ^= 1;
    assert_int_equal(lar_rollup_decode(ks, vs, &back), LAR_CORRUPT);
}

static void sums_saturate(void **state) {
    (void)state;
    lar_journal_record r = record_of(0);
    r.tokens = (lar_tokens){INT64_MAX, INT64_MAX, 0, -5, 1, 1};
    lar_rollup a = {0}, b = {.requests = UINT64_MAX};
    for (int i = 0; i < 3; i++) lar_rollup_count(&a, &r);
    assert_true(a.prompt == UINT64_MAX && a.write == 0 && a.requests == 3);
    lar_rollup_add(&a, &b);
    assert_true(a.requests == UINT64_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(extremes_round_trip),
        cmocka_unit_test(every_changed_bit_is_seen),
        cmocka_unit_test(every_cut_is_seen),
        cmocka_unit_test(sealed_nonsense_is_refused),
        cmocka_unit_test(a_newer_version_is_told_from_damage),
        cmocka_unit_test(version_1_is_read),
        cmocka_unit_test(version_2_is_read),
        cmocka_unit_test(version_3_is_read),
        cmocka_unit_test(version_4_is_read),
        cmocka_unit_test(sealed_chains_are_looked_at),
        cmocka_unit_test(memory_and_sums_see_damage),
        cmocka_unit_test(sums_saturate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
