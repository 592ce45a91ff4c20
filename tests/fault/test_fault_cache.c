/* Every allocation fails once while a prefix cache is made: the answer is NO_MEMORY with a message, nothing leaks, and
 * the pool works as before. Once it is made nothing is allocated: with no memory at all it keeps, finds and lets go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/cache/prefix_cache.h"
#include "tests/fault/fail_alloc.h"

enum { PAGES = 8 };

static const uint8_t kv[] = {LAR_KV_F32, LAR_KV_FP8};
static const lar_page_layout layout = {2, 8, 2, kv};
static uint64_t clock_ms(void *context) { return *(const uint64_t *)context; }

static void use(lar_page_pool *pool, lar_prefix_cache *c, uint64_t *now) {
    uint32_t ids[3 * LAR_PAGE_TOKENS] = {0};
    for (ids[0] = 0; ids[0] < 20; ids[0]++) { /* more than there are pages for */
        lar_prefix_end end = lar_prefix_root(c, &(lar_digest){0});
        *now = ids[0];
        int32_t pages[3];
        assert_int_equal(lar_prefix_find(c, &end, ids, sizeof ids / sizeof *ids, pages).pages, 0);
        for (int i = 0; i < 3; i++) {
            pages[i] = lar_page_take(pool);
            assert_int_equal(lar_prefix_publish(c, &end, ids + (ptrdiff_t)i * LAR_PAGE_TOKENS, pages[i]), pages[i]);
        }
        assert_int_equal(lar_prefix_pin(c, &(lar_digest){0}, ids, LAR_PAGE_TOKENS, ids[0] + 1), 1);
        for (int i = 0; i < 3; i++) lar_page_drop(pool, pages[i]);
    }
    lar_prefix_forget(c, NULL);
}

static void every_allocation_fails_once(void **state) {
    (void)state;
    uint64_t now = 0;
    lar_page_pool *pool;
    lar_diag d = {0};
    assert_int_equal(lar_page_pool_new(&layout, PAGES * lar_page_layout_page_bytes(&layout), &pool, &d), LAR_OK);
    lar_prefix_options o = {.pool = pool, .now_ms = clock_ms, .now_context = &now};
    unsigned n = 1;
    for (;; n++) {
        lar_prefix_cache *c;
        d.text[0] = 0;
        fail_alloc_at(n);
        lar_error e = lar_prefix_cache_new(&o, &c, &d);
        long live = fail_alloc_live();
        if (!fail_alloc_end()) {
            assert_int_equal(e, LAR_OK);
            fail_alloc_at(1);
            use(pool, c, &now);
            assert_false(fail_alloc_end());
            lar_prefix_cache_free(c);
            break;
        }
        assert_int_equal(e, LAR_NO_MEMORY);
        assert_null(c);
        assert_true(*d.text);
        assert_int_equal(live, 0);
        lar_page_drop(pool, lar_page_take(pool));
    }
    assert_true(n > 6);
    assert_int_equal(lar_page_pool_counts(pool).held, 0);
    lar_page_pool_free(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_fails_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
