/* The pool of pages: layouts, memory that is there from the start, and random operations against a plain count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/cache/page_pool.h"

static const uint8_t fp8_layers[61] = {[0] = LAR_KV_FP8};

static lar_page_layout v3(uint8_t kv[61], lar_kv first, lar_kv rest) {
    for (int i = 0; i < 61; i++) kv[i] = (uint8_t)(i ? rest : first);
    return (lar_page_layout){61, 512, 64, kv};
}

static lar_page_pool *pool_of(const lar_page_layout *l, uint64_t pages) {
    lar_page_pool *p;
    lar_diag d = {0};
    if (lar_page_pool_new(l, pages * lar_page_layout_page_bytes(l), &p, &d)) fail_msg("%s", d.text);
    return p;
}

/* 656 bytes a row and 41,984 a page and layer, as FlashMLA's kernels read them; a mix has a stride for each layer. */
static void sizes_are_flashmla_s(void **state) {
    (void)state;
    uint8_t kv[61];
    lar_page_layout l = v3(kv, LAR_KV_FP8, LAR_KV_FP8);
    assert_int_equal(lar_page_layout_row_bytes(&l, 60), 656);
    assert_int_equal(lar_page_layout_token_bytes(&l), 656 * 61);
    assert_int_equal(lar_page_layout_page_bytes(&l), 41984 * 61);
    lar_page_pool *p = pool_of(&l, 3);
    for (int32_t page = 0; page < 3; page++)
        for (uint32_t i = 0; i < 61; i++)
            assert_ptr_equal(lar_page_rows(p, page, i), lar_page_bytes(p, 0) + (uint32_t)page * 61 * 41984 + i * 41984);
    lar_page_pool_free(p);
    l = v3(kv, LAR_KV_BF16, LAR_KV_FP8);
    assert_int_equal(lar_page_layout_page_bytes(&l), 64 * 1152 + 60 * 41984);
    p = pool_of(&l, 2);
    kv[0] = LAR_KV_F32; /* the pool has its own copy */
    assert_ptr_equal(lar_page_rows(p, 1, 0), lar_page_bytes(p, 1));
    assert_ptr_equal(lar_page_rows(p, 1, 2), lar_page_bytes(p, 1) + 64 * 1152 + 41984);
    assert_int_equal(lar_page_pool_layout(p)->kv[0], LAR_KV_BF16);
    lar_page_pool_free(p);
}

static void as_many_pages_as_fit(void **state) {
    (void)state;
    uint8_t kv[61];
    lar_page_layout l = v3(kv, LAR_KV_FP8, LAR_KV_FP8);
    lar_page_pool *p;
    lar_diag d = {0};
    uint64_t page = lar_page_layout_page_bytes(&l);
    assert_int_equal(lar_page_pool_new(&l, page - 1, &p, &d), LAR_INVALID);
    assert_null(p);
    assert_non_null(strstr(d.text, "2561023 bytes for pages; one page of 64 tokens takes 2561024"));
    assert_int_equal(lar_page_pool_new(&l, 4 * page - 1, &p, &d), LAR_OK);
    lar_page_counts c = lar_page_pool_counts(p);
    assert_int_equal(c.pages, 3);
    assert_int_equal(c.held, 0);
    assert_int_equal(c.page_bytes, page);
    assert_true(c.bytes >= 3 * page && c.bytes < 3 * page + 1000);
    lar_page_pool_free(p);
    lar_page_pool_free(NULL);
    assert_int_equal(lar_page_pool_new(&l, UINT64_MAX / 2, &p, &d), LAR_NO_MEMORY);
    assert_null(p);
    assert_non_null(strstr(d.text, "no memory for"));
}

/* What is not in memory when the pool is made could be missing later, when nobody can say so any more. */
static void all_memory_is_there_from_the_start(void **state) {
    (void)state;
    uint8_t kv[61];
    lar_page_layout l = v3(kv, LAR_KV_FP8, LAR_KV_FP8);
    lar_page_pool *p = pool_of(&l, 5);
    uint64_t bytes = 5 * lar_page_layout_page_bytes(&l), step = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t count = (bytes + step - 1) / step;
    unsigned char *resident = calloc(count, 1);
    assert_int_equal(mincore(lar_page_bytes(p, 0), bytes, resident), 0);
    for (uint64_t i = 0; i < count; i++) assert_true(resident[i] & 1);
    free(resident);
    lar_page_pool_free(p);
}

/* -- random operations --------------------------------------------------------------------------------------------- */

enum { PAGES = 37, OPERATIONS = 100000 };

/* The plain model: how many hold each page, of which the hoard is one that lets go when it is asked. */
typedef struct plain {
    lar_page_pool *pool;
    uint32_t holders[PAGES];
    bool hoarded[PAGES]; /* one of the holders */
    uint32_t asked, wanted;
    uint32_t bits;
} plain;

static uint32_t throw(plain * m, uint32_t sides) {
    m->bits = m->bits * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)m->bits * sides >> 32);
}

static uint32_t free_of(const plain *m) {
    uint32_t n = 0;
    for (int i = 0; i < PAGES; i++) n += m->holders[i] == 0;
    return n;
}

static uint32_t idle_of(const plain *m) {
    uint32_t n = 0;
    for (int i = 0; i < PAGES; i++) n += m->hoarded[i] && m->holders[i] == 1;
    return n;
}

static uint32_t let_go(void *context, uint32_t wanted) {
    plain *m = context;
    uint32_t done = 0;
    m->asked++;
    m->wanted = wanted;
    for (int i = 0; i < PAGES && done < wanted; i++) {
        if (!m->hoarded[i] || m->holders[i] != 1) continue;
        lar_page_drop(m->pool, i);
        m->hoarded[i] = false;
        m->holders[i] = 0;
        done++;
    }
    return done;
}

static void take_one(plain *m) {
    uint32_t asked = m->asked, there = free_of(m), idle = idle_of(m);
    int32_t page = lar_page_take(m->pool);
    assert_int_equal(m->asked - asked, there == 0);
    assert_true((page != LAR_PAGE_NONE) == (there + idle > 0));
    if (page == LAR_PAGE_NONE) return;
    assert_int_equal(m->holders[page], 0);
    m->holders[page] = 1;
}

static void ensure_some(plain *m, uint32_t count) {
    uint32_t asked = m->asked, there = free_of(m), idle = idle_of(m);
    bool ensured = lar_page_ensure(m->pool, count);
    assert_true(ensured == (there + idle >= count));
    assert_int_equal(m->asked - asked, there < count);
    if (there < count) assert_int_equal(m->wanted, count - there);
    for (uint32_t i = 0; ensured && i < count; i++) {
        int32_t page = lar_page_take(m->pool);
        assert_true(page >= 0 && m->holders[page] == 0);
        m->holders[page] = 1;
        if (throw(m, 2)) continue;
        lar_page_share(m->pool, page), m->holders[page]++, m->hoarded[page] = true;
    }
}

static void operate(plain *m) {
    uint32_t page = throw(m, PAGES);
    switch (throw(m, 6)) {
    case 0: take_one(m); break;
    case 1: ensure_some(m, throw(m, 6)); break;
    case 2:
        if (!m->holders[page]) break;
        lar_page_share(m->pool, (int32_t)page), m->holders[page]++;
        break;
    case 3:
        if (!m->holders[page] || m->hoarded[page]) break;
        lar_page_share(m->pool, (int32_t)page), m->holders[page]++, m->hoarded[page] = true;
        break;
    default: /* more drops than shares, or all pages are soon held for good */
        if (m->holders[page] <= (m->hoarded[page] ? 1u : 0u)) break;
        lar_page_drop(m->pool, (int32_t)page), m->holders[page]--;
    }
}

static void no_page_is_lost_and_none_is_held_twice(void **state) {
    (void)state;
    const lar_page_layout l = {1, 4, 4, fp8_layers};
    plain m = {.pool = pool_of(&l, PAGES), .bits = 3};
    bool full = false;
    lar_page_pool_on_empty(m.pool, let_go, &m);
    for (int i = 0; i < OPERATIONS; i++) {
        operate(&m);
        uint32_t held = lar_page_pool_counts(m.pool).held;
        assert_int_equal(held, PAGES - free_of(&m));
        full |= held == PAGES;
        for (int k = 0; k < PAGES; k++)
            if (lar_page_holders(m.pool, k) != m.holders[k]) fail_msg("operation %d, page %d", i, k);
    }
    print_message("%u times pages were asked back\n", m.asked);
    assert_true(full && m.asked > 1000);
    for (int i = 0; i < PAGES; i++)
        while (m.holders[i]) lar_page_drop(m.pool, i), m.holders[i]--;
    lar_page_pool_free(m.pool); /* aborts if it counts a holder still */
}

/* Each page is memory of its own, and keeps what is in it as long as it is held. */
static void pages_do_not_overlap(void **state) {
    (void)state;
    const uint8_t kv[3] = {LAR_KV_F32, LAR_KV_INT8, LAR_KV_FP8};
    const lar_page_layout l = {3, 5, 3, kv};
    lar_page_pool *p = pool_of(&l, 4);
    for (int i = 0; i < 4; i++) {
        int32_t page = lar_page_take(p);
        assert_int_equal(page, i);
        for (uint32_t k = 0; k < 3; k++)
            memset(lar_page_rows(p, page, k), i * 3 + (int)k + 1, 64 * lar_page_layout_row_bytes(&l, k));
    }
    assert_int_equal(lar_page_take(p), LAR_PAGE_NONE);
    for (int i = 0; i < 4; i++) {
        for (uint32_t k = 0; k < 3; k++)
            for (uint64_t b = 0; b < 64 * lar_page_layout_row_bytes(&l, k); b++)
                assert_int_equal(lar_page_rows(p, i, k)[b], i * 3 + (int)k + 1);
        lar_page_drop(p, i);
    }
    lar_page_pool_free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_flashmla_s),
        cmocka_unit_test(as_many_pages_as_fit),
        cmocka_unit_test(all_memory_is_there_from_the_start),
        cmocka_unit_test(no_page_is_lost_and_none_is_held_twice),
        cmocka_unit_test(pages_do_not_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
