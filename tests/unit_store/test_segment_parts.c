/* The parts of pages on disk that are plain data: table and ring against plain models, bytes of heads and values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "store/segment_record.h"
#include "store/segment_ring.h"
#include "store/segment_table.h"

static uint64_t next(uint64_t *x) {
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return *x >> 33;
}

/* Keys whose first bytes meet often, so that rows of neighbours form and wrap round. */
static lar_digest key_of(uint64_t n) {
    lar_digest k = {{0}};
    uint32_t h = (uint32_t)(n % 7) - 3;
    memcpy(k.bytes, &h, sizeof h);
    memcpy(k.bytes + 8, &n, sizeof n);
    return k;
}

enum { KEYS = 200, STEPS = 20000 };

static void the_table_has_what_was_added_and_not_removed(void **state) {
    (void)state;
    lar_segment_table t = {0};
    bool there[KEYS] = {false};
    uint32_t count = 0;
    uint64_t x = 1;
    lar_digest absent = key_of(KEYS);
    assert_null(lar_segment_table_find(&t, &absent));
    for (int step = 0; step < STEPS; step++) {
        uint64_t n = next(&x) % KEYS;
        lar_digest key = key_of(n);
        lar_page_entry *e = lar_segment_table_find(&t, &key);
        assert_int_equal(e != NULL, there[n]);
        if (e) {
            assert_int_equal(e->use.last, n);
            lar_segment_table_remove(&t, e);
        } else {
            e = lar_segment_table_add(&t, &key);
            assert_non_null(e);
            assert_true(e->place.segment == 0 && !e->use.again && !e->dirty);
            e->state = LAR_PAGE_SYNCED;
            e->use.last = n;
        }
        there[n] = !there[n];
        count += there[n] ? 1 : UINT32_MAX;
        assert_int_equal(t.count, count);
    }
    /* A loop that removes half of it sees all of it. */
    for (uint32_t i = 0; i < t.cap;) {
        if (t.slots[i].state && t.slots[i].use.last % 2) lar_segment_table_remove(&t, &t.slots[i]);
        else i++;
    }
    for (uint64_t n = 0; n < KEYS; n++) {
        lar_digest key = key_of(n);
        assert_int_equal(lar_segment_table_find(&t, &key) != NULL, there[n] && n % 2 == 0);
    }
    lar_segment_table_release(&t);
}

static void the_ring_keeps_records_whole_and_in_order(void **state) {
    (void)state;
    enum { ROOM = 64 * 1024, WAITING = 64 };
    lar_segment_ring r;
    struct {
        uint64_t n, bytes;
        uint8_t *at;
    } model[WAITING];
    uint64_t x = 7, first = 0, last = 0, refused = 0;
    assert_int_equal(lar_segment_ring_init(&r, ROOM - 5), LAR_OK);
    assert_int_equal(r.bytes, ROOM);
    for (int step = 0; step < STEPS; step++) {
        uint64_t bytes = 1 + next(&x) % 20000, used = 0;
        for (uint64_t i = first; i < last; i++) used += lar_segment_record_size(model[i % WAITING].bytes);
        assert_int_equal(r.used, used);
        if (next(&x) % 2) {
            lar_digest key = key_of(last);
            uint8_t *at = lar_segment_ring_put(&r, &key, bytes);
            refused += !at;
            assert_true(at || used > 0); /* an empty ring takes what fits into it */
            if (!at) continue;
            assert_true(at >= r.memory && at + lar_segment_record_size(bytes) <= r.memory + ROOM);
            assert_int_equal((uintptr_t)at % LAR_SEGMENT_ALIGN, 0);
            memset(at, (int)(last % 251), LAR_SEGMENT_ALIGN + bytes);
            model[last % WAITING].n = last;
            model[last % WAITING].bytes = bytes;
            model[last++ % WAITING].at = at;
        } else if (first < last) {
            const lar_segment_item *item = lar_segment_ring_first(&r);
            lar_digest key = key_of(first);
            uint8_t *at = model[first % WAITING].at;
            bytes = model[first % WAITING].bytes;
            assert_memory_equal(&item->key, &key, sizeof key);
            assert_true(item->bytes == bytes && r.memory + item->at == at);
            for (uint64_t i = 0; i < lar_segment_record_size(bytes); i++)
                assert_int_equal(at[i], i < LAR_SEGMENT_ALIGN + bytes ? first % 251 : 0);
            lar_segment_ring_drop_first(&r);
            first++;
        } else {
            assert_null(lar_segment_ring_first(&r));
        }
    }
    assert_true(refused > 100 && first > 1000);
    lar_digest key = key_of(0);
    assert_null(lar_segment_ring_put(&r, &key, ROOM));
    assert_null(lar_segment_ring_put(&r, &key, UINT64_MAX));
    lar_segment_ring_release(&r);
}

/* Whatever bit is turned, and whatever else is asked for, it is not taken for what it was. */
static void a_head_is_good_for_its_own_place_only(void **state) {
    (void)state;
    lar_digest key = key_of(1), other = key_of(2);
    lar_segment_place place = {3, 8192, 1000, 77}, wrong = place;
    uint8_t record[LAR_SEGMENT_RECORD_BYTES], head[LAR_SEGMENT_HEAD_BYTES];
    lar_segment_record_encode(&key, &place, record);
    lar_segment_head_encode(9, head);
    assert_int_equal(lar_segment_record_check(record, &key, &place), LAR_OK);
    assert_int_equal(lar_segment_head_check(head, 9), LAR_OK);
    assert_int_equal(lar_segment_record_check(record, &other, &place), LAR_CORRUPT);
    assert_int_equal(lar_segment_head_check(head, 10), LAR_CORRUPT);
    wrong.bytes++;
    assert_int_equal(lar_segment_record_check(record, &key, &wrong), LAR_CORRUPT);
    wrong = place, wrong.offset += 4096;
    assert_int_equal(lar_segment_record_check(record, &key, &wrong), LAR_CORRUPT);
    wrong = place, wrong.segment++;
    assert_int_equal(lar_segment_record_check(record, &key, &wrong), LAR_CORRUPT);
    for (unsigned bit = 0; bit < 8 * sizeof record; bit++) {
        record[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(lar_segment_record_check(record, &key, &place), LAR_CORRUPT);
        record[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (unsigned bit = 0; bit < 8 * sizeof head; bit++) {
        head[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(lar_segment_head_check(head, 9), LAR_CORRUPT);
        head[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

static void a_value_is_good_for_its_own_key_only(void **state) {
    (void)state;
    lar_digest key = key_of(1), other = key_of(2);
    lar_segment_place place = {3, 8192, 1000, 77}, got;
    uint8_t value[LAR_SEGMENT_VALUE_BYTES];
    lar_segment_use use = {1234, true}, back;
    lar_slice bytes = lar_slice_of((const char *)value, sizeof value);
    lar_segment_value_encode(&key, &place, &use, value);
    assert_int_equal(lar_segment_value_decode(&key, bytes, &got, &back), LAR_OK);
    assert_true(got.segment == 3 && got.offset == 8192 && got.bytes == 1000 && got.sum == 77 && back.last == 1234 &&
                back.again);
    assert_int_equal(lar_segment_value_decode(&other, bytes, &got, &back), LAR_CORRUPT);
    bytes.len--;
    assert_int_equal(lar_segment_value_decode(&key, bytes, &got, &back), LAR_CORRUPT);
    bytes.len++;
    for (unsigned bit = 0; bit < 8 * sizeof value; bit++) {
        value[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(lar_segment_value_decode(&key, bytes, &got, &back), LAR_CORRUPT);
        value[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    /* Well sealed, and yet no place that can be. */
    const lar_segment_place nowhere[] = {{0, 4096, 1, 0},          {1, 0, 1, 0},
                                         {1, 4097, 1, 0},          {1, 4096, 0, 0},
                                         {UINT64_MAX, 4096, 1, 0}, {1, UINT64_MAX - 4095, 1, 0},
                                         {1, 4096, UINT64_MAX, 0}};
    for (unsigned i = 0; i < sizeof nowhere / sizeof *nowhere; i++) {
        lar_segment_value_encode(&key, &nowhere[i], &use, value);
        assert_int_equal(lar_segment_value_decode(&key, bytes, &got, &back), LAR_CORRUPT);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_has_what_was_added_and_not_removed),
        cmocka_unit_test(the_ring_keeps_records_whole_and_in_order),
        cmocka_unit_test(a_head_is_good_for_its_own_place_only),
        cmocka_unit_test(a_value_is_good_for_its_own_key_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
