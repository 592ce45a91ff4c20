/* The prefix cache against a plain model of what must be cached (plain_prefixes.h): 100,000 random operations of two
 * tenants on few pages, a page store that fails now and then and restarts, every page's bytes, holders and counts
 * looked at; then what the random ones do not say by name. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit_engine/cache/memory_store.h"
#include "tests/unit_engine/cache/plain_prefixes.h"

enum {
    SCOPES = 2,
    SEQUENCES = 6,
    LETTERS = 3,
    OPERATIONS = 100000,
    SEQUENCE_PAGES = 6,
    POOL_PAGES = 24,
    READS_MAX = 2
};
_Static_assert((int)SEQUENCE_PAGES *(int)LAR_PAGE_TOKENS == (int)PLAIN_TOKENS_MAX, "sequences as long as the model's");

static const uint8_t kv[] = {LAR_KV_BF16};
static const lar_page_layout layout = {1, 3, 1, kv};

static lar_digest digest_of(const char *text) { return lar_digest_of(lar_slice_cstr(text)); }
static lar_digest scope_of(uint32_t scope) { return digest_of(scope ? "tenant b" : "tenant a"); }
static uint64_t now_of(void *context) { return *(const uint64_t *)context; }

static lar_page_pool *pool_of(uint32_t pages) {
    lar_page_pool *p = NULL;
    lar_diag d = {0};
    for (uint64_t bytes = pages * lar_page_layout_page_bytes(&layout);; bytes += 16) { /* what counts them needs room */
        if (lar_page_pool_new(&layout, bytes, &p, &d) == LAR_OK && lar_page_pool_counts(p).pages == pages) return p;
        lar_page_pool_free(p);
        p = NULL;
        assert_true(bytes < 1 << 24);
    }
}

/* -- the world of the random operations ---------------------------------------------------------------------------- */

typedef struct sequence {
    bool alive;
    uint32_t scope, length;
    uint32_t ids[PLAIN_TOKENS_MAX];
    int32_t pages[SEQUENCE_PAGES];
    lar_prefix_end end;
} sequence;

typedef struct world {
    lar_page_pool *pool;
    lar_prefix_cache *cache;
    memory_store store;
    plain_prefixes plain;
    sequence sequences[SEQUENCES];
    uint64_t dice;
    uint32_t row; /* bytes of a token in a page */
} world;

static uint32_t throw(world * w, uint32_t sides) {
    w->dice = w->dice * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(w->dice >> 33) % sides;
}

static uint32_t pages_of(const sequence *s) { return (s->length + LAR_PAGE_TOKENS - 1) / LAR_PAGE_TOKENS; }

static uint32_t holders(const world *w, int32_t page) {
    uint32_t n = 0;
    for (int i = 0; i < SEQUENCES; i++)
        for (uint32_t k = 0; w->sequences[i].alive && k < pages_of(&w->sequences[i]); k++)
            n += w->sequences[i].pages[k] == page;
    return n;
}

static void open_cache(world *w) {
    lar_diag d = {0};
    w->plain.has_store = throw(w, 5) != 0;
    lar_prefix_options o = {w->pool, digest_of("model"), w->plain.has_store ? &w->store.store : NULL, READS_MAX,
                            now_of,  &w->plain.now};
    assert_int_equal(lar_prefix_cache_new(&o, &w->cache, &d), LAR_OK);
    w->plain.counts = (lar_prefix_counts){0};
}

/* -- pages ------------------------------------------------------------------------------------------------------- */

static int32_t take(world *w) {
    bool expected = plain_take(&w->plain);
    int32_t page = lar_page_take(w->pool);
    assert_int_equal(page != LAR_PAGE_NONE, expected);
    if (expected) assert_true(holders(w, page) == 0 && !plain_of_page(&w->plain, page));
    return page;
}

/* A sequence, which has it no more in its list, gives it back. */
static void drop(world *w, int32_t page) {
    lar_page_drop(w->pool, page);
    if (!holders(w, page)) plain_given_back(&w->plain, page);
}

/* What a model would keep of a token: it depends on every token before, and here on the tenant. */
static uint64_t latent(uint64_t before, uint32_t id) { return (before ^ id) * 0x100000001b3u; }
static uint64_t first_latent(const sequence *s) { return latent(0xcbf29ce484222325u, s->scope); }

static uint8_t *row_of(const world *w, const sequence *s, uint32_t t) {
    return lar_page_bytes(w->pool, s->pages[t / LAR_PAGE_TOKENS]) + (size_t)(t % LAR_PAGE_TOKENS) * w->row;
}

static void verify(const world *w, const sequence *s) {
    uint64_t l = first_latent(s);
    for (uint32_t t = 0; t < s->length; t++) {
        l = latent(l, s->ids[t]);
        const uint8_t *row = row_of(w, s, t);
        if (row[0] != (uint8_t)(l >> 32) || row[w->row - 1] != (uint8_t)(l >> 40))
            fail_msg("token %u of %u has another's latent", t, s->length);
    }
}

/* -- sequences --------------------------------------------------------------------------------------------------- */

/* As an engine does: whole pages that are not kept yet. */
static void keep(world *w, sequence *s) {
    for (uint32_t i = s->end.pages; i < s->length / LAR_PAGE_TOKENS; i++) {
        uint32_t length = (i + 1) * LAR_PAGE_TOKENS;
        plain_page *there = plain_find(&w->plain, s->scope, s->ids, length);
        int32_t own = s->pages[i], expected = there ? there->page : own;
        int32_t page = lar_prefix_publish(w->cache, &s->end, s->ids + (size_t)i * LAR_PAGE_TOKENS, own);
        assert_int_equal(page, expected);
        assert_int_equal(s->end.pages, i + 1);
        if (!there) w->plain.counts.misses += plain_keep(&w->plain, s->scope, s->ids, length, own);
        if (page == own) continue;
        s->pages[i] = page;
        plain_held(&w->plain, page);
        drop(w, own);
    }
}

/* The last page is the sequence's alone; false: there are no pages. */
static bool own_page(world *w, sequence *s) {
    uint32_t last = s->length / LAR_PAGE_TOKENS;
    bool new_page = s->length % LAR_PAGE_TOKENS == 0;
    if (!new_page && lar_page_holders(w->pool, s->pages[last]) == 1) return true;
    int32_t page = take(w);
    if (page == LAR_PAGE_NONE) return false;
    int32_t old = s->pages[last];
    s->pages[last] = page;
    if (new_page) return true;
    memcpy(lar_page_bytes(w->pool, page), lar_page_bytes(w->pool, old), (size_t)LAR_PAGE_TOKENS * w->row);
    drop(w, old);
    return true;
}

static void extend(world *w, sequence *s) {
    uint32_t count = 1 + throw(w, 2 * LAR_PAGE_TOKENS), letter = throw(w, LETTERS);
    if (throw(w, 2)) count = LAR_PAGE_TOKENS - s->length % LAR_PAGE_TOKENS; /* to the end of a page */
    uint64_t l = first_latent(s);
    keep(w, s);
    for (uint32_t t = 0; t < s->length; t++) l = latent(l, s->ids[t]);
    for (; count && s->length < PLAIN_TOKENS_MAX && own_page(w, s); count--) {
        l = latent(l, s->ids[s->length] = letter * LAR_PAGE_TOKENS + s->length % LAR_PAGE_TOKENS);
        uint8_t *row = row_of(w, s, s->length++);
        row[0] = (uint8_t)(l >> 32), row[w->row - 1] = (uint8_t)(l >> 40);
        if (s->length % LAR_PAGE_TOKENS) continue;
        keep(w, s);
        letter = throw(w, LETTERS);
    }
}

static void cut(world *w, sequence *s, uint32_t length) {
    while (pages_of(s) > (length + LAR_PAGE_TOKENS - 1) / LAR_PAGE_TOKENS) {
        int32_t page = s->pages[pages_of(s) - 1];
        s->length = (pages_of(s) - 1) * LAR_PAGE_TOKENS;
        drop(w, page);
    }
    s->length = length;
    lar_digest scope = scope_of(s->scope);
    if (s->end.pages * LAR_PAGE_TOKENS > length) s->end = lar_prefix_root(w->cache, &scope);
}

static sequence *some(world *w) { return &w->sequences[throw(w, SEQUENCES)]; }

/* A page that is not in memory: read from the store if it can be. */
static bool plain_reload(world *w, const sequence *s, uint32_t length) {
    plain_prefixes *p = &w->plain;
    plain_prefix *stored = plain_stored(p, s->scope, s->ids, length);
    bool forgotten = length > LAR_PAGE_TOKENS && !plain_find(p, s->scope, s->ids, length - LAR_PAGE_TOKENS);
    if (!p->has_store || !stored || forgotten || !plain_take(p)) return false;
    if (w->store.fault == STORE_READS_FAIL || w->store.fault == STORE_DAMAGES) {
        if (w->store.fault == STORE_DAMAGES) plain_unstore(p, stored);
        p->counts.reload_failed++;
        p->free++;
        return false;
    }
    assert_true(plain_keep(p, s->scope, s->ids, length, LAR_PAGE_NONE));
    p->counts.reloaded++;
    return true;
}

/* A sequence that ends at a kept page takes over what is known of a random prompt that goes on there. */
static void find_more(world *w, sequence *s) {
    int32_t expected[SEQUENCE_PAGES], pages[SEQUENCE_PAGES];
    uint32_t count = s->length + throw(w, PLAIN_TOKENS_MAX - s->length + 1), n = 0, reloaded = 0, length = s->length;
    for (uint32_t t = s->length, letter = 0; t < count; t++) {
        if (t % LAR_PAGE_TOKENS == 0) letter = throw(w, LETTERS);
        s->ids[t] = letter * LAR_PAGE_TOKENS + t % LAR_PAGE_TOKENS;
    }
    plain_end_pins(&w->plain, w->plain.now);
    for (; (length += LAR_PAGE_TOKENS) <= count; n++) {
        plain_page *k = plain_find(&w->plain, s->scope, s->ids, length);
        expected[n] = k ? k->page : LAR_PAGE_NONE;
        if (k) plain_held(&w->plain, k->page);
        else if (reloaded < READS_MAX && plain_reload(w, s, length)) reloaded++;
        else break;
    }
    w->plain.counts.hits += n;
    uint32_t before = s->end.pages;
    lar_prefix_found found = lar_prefix_find(w->cache, &s->end, s->ids + s->length, count - s->length, pages);
    assert_int_equal(found.pages, n);
    assert_int_equal(found.from_store, reloaded);
    assert_int_equal(s->end.pages, before + n);
    for (uint32_t i = 0; i < n; i++, s->length += LAR_PAGE_TOKENS) {
        if (expected[i] == LAR_PAGE_NONE) /* a page of its own choice */
            plain_find(&w->plain, s->scope, s->ids, s->length + LAR_PAGE_TOKENS)->page = pages[i];
        else assert_int_equal(pages[i], expected[i]);
        s->pages[before + i] = pages[i];
    }
}

static void begin(world *w, sequence *s) {
    s->scope = throw(w, SCOPES), s->length = 0;
    lar_digest scope = scope_of(s->scope);
    s->end = lar_prefix_root(w->cache, &scope);
    s->alive = true;
    find_more(w, s);
}

static void end(world *w, sequence *s) {
    cut(w, s, 0);
    s->alive = false;
}

/* A sequence with the same tokens: whole pages are shared, the last one is copied. */
static void fork(world *w, sequence *from) {
    sequence *to = some(w);
    if (to == from) return;
    if (to->alive) end(w, to);
    bool part = from->length % LAR_PAGE_TOKENS != 0;
    int32_t last = part ? take(w) : LAR_PAGE_NONE;
    if (part && last == LAR_PAGE_NONE) return;
    *to = *from;
    for (uint32_t i = 0; i < from->length / LAR_PAGE_TOKENS; i++) lar_page_share(w->pool, to->pages[i]);
    if (!part) return;
    uint32_t i = pages_of(to) - 1;
    memcpy(lar_page_bytes(w->pool, last), lar_page_bytes(w->pool, to->pages[i]), (size_t)LAR_PAGE_TOKENS * w->row);
    to->pages[i] = last;
}

/* -- all else ---------------------------------------------------------------------------------------------------- */

static void pin(world *w, const sequence *s) {
    lar_digest scope = scope_of(s->scope);
    uint32_t length = throw(w, s->length + 1);
    uint64_t until = w->plain.now + throw(w, 300);
    uint32_t expected = plain_pin(&w->plain, s->scope, s->ids, length, until);
    assert_int_equal(lar_prefix_pin(w->cache, &scope, s->ids, length, until), expected);
}

static void forget(world *w) {
    uint32_t scope = throw(w, SCOPES + 1);
    lar_digest digest = scope_of(scope);
    plain_forget(&w->plain, scope == SCOPES ? UINT32_MAX : scope);
    lar_prefix_forget(w->cache, scope == SCOPES ? NULL : &digest);
}

static void restart(world *w) {
    for (int i = 0; i < SEQUENCES; i++)
        if (w->sequences[i].alive && throw(w, 4)) end(w, &w->sequences[i]);
    plain_end(&w->plain);
    lar_prefix_cache_free(w->cache);
    open_cache(w);
}

static void set_fault(world *w) {
    static const memory_fault faults[] = {STORE_WORKS,       STORE_WORKS,      STORE_WORKS,
                                          STORE_WRITES_FAIL, STORE_READS_FAIL, STORE_DAMAGES};
    w->store.fault = faults[throw(w, sizeof faults / sizeof *faults)];
    w->plain.store_fails_writes = w->store.fault == STORE_WRITES_FAIL;
}

/* Somebody else needs many pages for a moment. */
static void press(world *w) {
    int32_t taken[POOL_PAGES];
    uint32_t n = 0, wanted = 1 + throw(w, POOL_PAGES);
    while (n < wanted && (taken[n] = take(w)) != LAR_PAGE_NONE) n++;
    while (n) drop(w, taken[--n]);
}

static void step(world *w) {
    sequence *s = some(w);
    uint32_t what = throw(w, 1000);
    if (what < 5) restart(w);
    else if (what < 10) forget(w);
    else if (what < 15) memory_store_clear(&w->store), w->plain.stored_count = 0;
    else if (what < 40) set_fault(w);
    else if (what < 60) press(w);
    else if (what < 100) w->plain.now += throw(w, 50);
    else if (!s->alive) begin(w, s);
    else if (what < 200 && s->length == s->end.pages * LAR_PAGE_TOKENS) find_more(w, s);
    else if (what < 550) extend(w, s);
    else if (what < 650) fork(w, s);
    else if (what < 750) cut(w, s, throw(w, s->length + 1));
    else if (what < 800) pin(w, s);
    else end(w, s);
    if (s->alive) verify(w, s);
}

static void same_counts(const lar_prefix_counts *a, const lar_prefix_counts *b) {
    assert_int_equal(a->pages, b->pages);
    assert_int_equal(a->idle, b->idle);
    assert_int_equal(a->pinned, b->pinned);
    assert_int_equal(a->hits, b->hits);
    assert_int_equal(a->misses, b->misses);
    assert_int_equal(a->evicted, b->evicted);
    assert_int_equal(a->spilled, b->spilled);
    assert_int_equal(a->reloaded, b->reloaded);
    assert_int_equal(a->spill_failed, b->spill_failed);
    assert_int_equal(a->reload_failed, b->reload_failed);
}

/* No page is lost and none is shared by tenants; all counts are the plain model's. */
static void check(world *w) {
    const plain_prefixes *p = &w->plain;
    lar_prefix_counts n = lar_prefix_cache_counts(w->cache);
    uint32_t held = 0, scope[POOL_PAGES];
    memset(scope, 0xff, sizeof scope);
    for (int32_t page = 0; page < POOL_PAGES; page++) {
        bool kept = plain_of_page(&w->plain, page) != NULL;
        assert_int_equal(lar_page_holders(w->pool, page), holders(w, page) + kept);
        held += kept || holders(w, page);
    }
    assert_int_equal(held, lar_page_pool_counts(w->pool).held);
    assert_int_equal(held, POOL_PAGES - p->free);
    for (int i = 0; i < SEQUENCES; i++)
        for (uint32_t k = 0; w->sequences[i].alive && k < pages_of(&w->sequences[i]); k++) {
            uint32_t *of = &scope[w->sequences[i].pages[k]];
            assert_true(*of == UINT32_MAX || *of == w->sequences[i].scope);
            *of = w->sequences[i].scope;
        }
    same_counts(&n, &p->counts);
    assert_true(n.pinned <= POOL_PAGES / 2);
    assert_int_equal(w->store.count, p->stored_count);
}

static void random_operations_are_the_plain_model_s(void **state) {
    (void)state;
    world *w = calloc(1, sizeof *w);
    lar_prefix_counts sum = {0};
    w->dice = 5;
    w->pool = pool_of(POOL_PAGES);
    w->row = (uint32_t)(lar_page_pool_counts(w->pool).page_bytes / LAR_PAGE_TOKENS);
    w->plain = (plain_prefixes){.pages = POOL_PAGES, .free = POOL_PAGES, .store_room = PLAIN_STORE_MAX};
    memory_store_init(&w->store, PLAIN_STORE_MAX);
    open_cache(w);
    for (uint32_t i = 0; i < OPERATIONS; i++) {
        lar_prefix_counts before = w->plain.counts;
        step(w);
        check(w);
        if (w->plain.counts.hits + w->plain.counts.misses < before.hits + before.misses)
            before = (lar_prefix_counts){0};
        sum.hits += w->plain.counts.hits - before.hits;
        sum.evicted += w->plain.counts.evicted - before.evicted;
        sum.reloaded += w->plain.counts.reloaded - before.reloaded;
        for (int k = 0; i % 64 == 0 && k < SEQUENCES; k++)
            if (w->sequences[k].alive) verify(w, &w->sequences[k]);
    }
    print_message("%llu pages found, %llu of them in the store, %llu let go\n", (unsigned long long)sum.hits,
                  (unsigned long long)sum.reloaded, (unsigned long long)sum.evicted);
    assert_true(sum.hits > 10000 && sum.reloaded > 1000 && sum.evicted > 10000); /* it is about these indeed */
    for (int k = 0; k < SEQUENCES; k++)
        if (w->sequences[k].alive) end(w, &w->sequences[k]);
    lar_prefix_cache_free(w->cache);
    assert_int_equal(lar_page_pool_counts(w->pool).held, 0);
    lar_page_pool_free(w->pool);
    memory_store_release(&w->store);
    free(w);
}

/* -- by name ------------------------------------------------------------------------------------------------------- */

enum { SMALL_PAGES = 8 };

typedef struct small_world {
    lar_page_pool *pool;
    lar_prefix_cache *cache;
    memory_store store;
    uint64_t now;
    uint32_t ids[SMALL_PAGES * LAR_PAGE_TOKENS];
} small_world;

static lar_prefix_cache *cache_of(small_world *w, const char *model) {
    lar_prefix_options o = {w->pool, digest_of(model), &w->store.store, 0, now_of, &w->now};
    lar_prefix_cache *c;
    lar_diag d = {0};
    assert_int_equal(lar_prefix_cache_new(&o, &c, &d), LAR_OK);
    return c;
}

static small_world *small(uint32_t pages) {
    small_world *w = calloc(1, sizeof *w);
    w->pool = pool_of(pages);
    memory_store_init(&w->store, PLAIN_STORE_MAX);
    w->cache = cache_of(w, "model");
    for (uint32_t i = 0; i < SMALL_PAGES * LAR_PAGE_TOKENS; i++) w->ids[i] = i;
    return w;
}

static void small_end(small_world *w) {
    lar_prefix_cache_free(w->cache);
    assert_int_equal(lar_page_pool_counts(w->pool).held, 0);
    lar_page_pool_free(w->pool);
    memory_store_release(&w->store);
    free(w);
}

/* Keeps `count` pages of the ids for the scope, each with its number in its first byte, held by nobody. */
static void fill(small_world *w, uint32_t scope, uint32_t count) {
    lar_digest digest = scope_of(scope);
    lar_prefix_end end = lar_prefix_root(w->cache, &digest);
    int32_t pages[SMALL_PAGES];
    assert_true(count <= SMALL_PAGES);
    for (uint32_t i = 0; i < count; i++) {
        pages[i] = lar_page_take(w->pool);
        lar_page_bytes(w->pool, pages[i])[0] = (uint8_t)i;
        assert_int_equal(lar_prefix_publish(w->cache, &end, w->ids + (size_t)i * LAR_PAGE_TOKENS, pages[i]), pages[i]);
    }
    for (uint32_t i = 0; i < count; i++) lar_page_drop(w->pool, pages[i]);
}

/* How many pages of the ids are found; *from_store of them there. Nobody holds them then. */
static uint32_t found(small_world *w, uint32_t scope, uint32_t *from_store) {
    lar_digest digest = scope_of(scope);
    lar_prefix_end end = lar_prefix_root(w->cache, &digest);
    int32_t pages[SEQUENCE_PAGES];
    lar_prefix_found f = lar_prefix_find(w->cache, &end, w->ids, PLAIN_TOKENS_MAX, pages);
    uint32_t n = f.pages;
    *from_store = f.from_store;
    for (uint32_t i = 0; i < n; i++) assert_int_equal(lar_page_bytes(w->pool, pages[i])[0], i);
    for (uint32_t i = 0; i < n; i++) lar_page_drop(w->pool, pages[i]);
    return n;
}

/* Takes and gives back `count` pages. */
static void need(small_world *w, uint32_t count) {
    int32_t pages[POOL_PAGES];
    for (uint32_t i = 0; i < count; i++) assert_true((pages[i] = lar_page_take(w->pool)) != LAR_PAGE_NONE);
    for (uint32_t i = 0; i < count; i++) lar_page_drop(w->pool, pages[i]);
}

/* Everything that decides what is in a page decides its name: model, formats of all layers, dimensions, scope. */
static void roots_differ_by_all_that_decides_a_page(void **state) {
    (void)state;
    static const uint8_t two[][2] = {{LAR_KV_F32, LAR_KV_FP8}, {LAR_KV_FP8, LAR_KV_F32}, {LAR_KV_F32, LAR_KV_F32}};
    const lar_page_layout layouts[] = {{2, 8, 4, two[0]}, {2, 8, 4, two[1]}, {2, 8, 4, two[2]},
                                       {1, 8, 4, two[2]}, {2, 9, 4, two[2]}, {2, 8, 2, two[2]}};
    lar_page_key keys[4 * sizeof layouts / sizeof *layouts];
    uint32_t count = 0;
    for (size_t i = 0; i < 4 * sizeof layouts / sizeof *layouts; i++) {
        uint64_t now = 0;
        lar_page_pool *pool;
        lar_prefix_cache *c;
        lar_diag d = {0};
        assert_int_equal(lar_page_pool_new(&layouts[i / 4], 1 << 16, &pool, &d), LAR_OK);
        lar_prefix_options o = {pool, digest_of(i & 1 ? "one" : "other"), NULL, 0, now_of, &now};
        assert_int_equal(lar_prefix_cache_new(&o, &c, &d), LAR_OK);
        lar_digest scope = scope_of(i >> 1 & 1);
        keys[count] = lar_prefix_root(c, &scope).key;
        for (uint32_t k = 0; k < count; k++) assert_false(lar_digest_eq(&keys[k], &keys[count]));
        count++;
        lar_prefix_cache_free(c);
        lar_page_pool_free(pool);
    }
}

static void a_restart_finds_what_the_store_has_for_this_model_and_scope(void **state) {
    (void)state;
    small_world *w = small(8);
    uint32_t from_store;
    fill(w, 0, 5);
    lar_prefix_cache_free(w->cache);
    assert_int_equal(w->store.count, 5);
    w->cache = cache_of(w, "another model");
    assert_int_equal(found(w, 0, &from_store), 0);
    lar_prefix_cache_free(w->cache);
    w->cache = cache_of(w, "model");
    assert_int_equal(found(w, 1, &from_store), 0);
    assert_int_equal(found(w, 0, &from_store), 5);
    assert_int_equal(from_store, 5);
    assert_int_equal(found(w, 0, &from_store), 5);
    assert_int_equal(from_store, 0);
    small_end(w);
}

/* A store that takes two pages at a time: under way what it does not take is lost, at the end nothing is. */
static void at_the_end_a_slow_store_gets_all_pages(void **state) {
    (void)state;
    small_world *w = small(8);
    w->store.ring = 2;
    fill(w, 0, 8);
    need(w, 3);
    assert_int_equal(w->store.count, 2);
    assert_int_equal(lar_prefix_cache_counts(w->cache).spill_failed, 1);
    lar_prefix_cache_free(w->cache);
    assert_int_equal(w->store.count, 7);
    w->cache = cache_of(w, "model");
    small_end(w);
}

/* What was found is not let go for what is found behind it. */
static void a_prefix_longer_than_memory_is_found_as_far_as_it_fits(void **state) {
    (void)state;
    small_world *w = small(6);
    uint32_t from_store;
    fill(w, 0, 6);
    lar_prefix_cache_free(w->cache);
    w->cache = cache_of(w, "model");
    int32_t mine[2] = {lar_page_take(w->pool), lar_page_take(w->pool)};
    assert_int_equal(found(w, 0, &from_store), 4);
    lar_page_drop(w->pool, mine[0]);
    assert_int_equal(found(w, 0, &from_store), 5);
    assert_int_equal(from_store, 1);
    lar_page_drop(w->pool, mine[1]);
    small_end(w);
}

/* A sequence goes on behind pages that were forgotten: nobody would ever find what it adds. */
static void nothing_is_kept_behind_a_page_that_is_gone(void **state) {
    (void)state;
    small_world *w = small(4);
    fill(w, 0, 2);
    need(w, 4); /* both are in the store now */
    lar_digest scope = scope_of(0);
    lar_prefix_end end = lar_prefix_root(w->cache, &scope);
    int32_t pages[SEQUENCE_PAGES], own = lar_page_take(w->pool);
    assert_int_equal(lar_prefix_find(w->cache, &end, w->ids, LAR_PAGE_TOKENS, pages).pages, 1);
    lar_prefix_forget(w->cache, &scope);
    lar_prefix_end at_first = end;
    assert_int_equal(lar_prefix_find(w->cache, &end, w->ids + LAR_PAGE_TOKENS, LAR_PAGE_TOKENS, pages + 1).pages, 0);
    assert_int_equal(lar_prefix_publish(w->cache, &at_first, w->ids + LAR_PAGE_TOKENS, own), own);
    assert_int_equal(at_first.pages, 2);
    assert_int_equal(lar_prefix_cache_counts(w->cache).pages, 0);
    lar_page_drop(w->pool, pages[0]), lar_page_drop(w->pool, own);
    assert_int_equal(lar_page_pool_counts(w->pool).held, 0);
    small_end(w);
}

static void pinned_pages_survive_pressure_until_their_time(void **state) {
    (void)state;
    small_world *w = small(8);
    lar_digest scope = scope_of(0);
    uint32_t from_store;
    w->store.room = 0; /* nothing comes back */
    fill(w, 0, 6);
    assert_int_equal(lar_prefix_pin(w->cache, &scope, w->ids, 3 * LAR_PAGE_TOKENS - 1, 1000), 2);
    assert_int_equal(lar_prefix_pin(w->cache, &scope, w->ids, PLAIN_TOKENS_MAX, 500), 4); /* half of the pool */
    assert_int_equal(lar_prefix_cache_counts(w->cache).pinned, 4);
    need(w, 4);
    assert_int_equal(found(w, 0, &from_store), 4);
    w->now = 500;
    need(w, 6);
    assert_int_equal(found(w, 0, &from_store), 2); /* the second pin left the longer one of the first two */
    w->now = 999;
    need(w, 6);
    assert_int_equal(found(w, 0, &from_store), 2);
    w->now = 1000;
    need(w, 8);
    assert_int_equal(found(w, 0, &from_store), 0);
    assert_int_equal(lar_prefix_cache_counts(w->cache).pinned, 0);
    small_end(w);
}

/* The conversation that was given back longest ago goes first, from its end; what it shares with another stays. */
static void stale_conversations_go_first_from_their_end(void **state) {
    (void)state;
    small_world *w = small(8);
    uint32_t from_store;
    w->store.room = 0;
    fill(w, 0, 4);
    fill(w, 1, 4);
    assert_int_equal(found(w, 0, &from_store), 4); /* now scope 1 is the older one */
    need(w, 3);
    assert_int_equal(found(w, 0, &from_store), 4);
    assert_int_equal(found(w, 1, &from_store), 1);
    small_end(w);
}

typedef struct reader {
    const lar_prefix_cache *cache;
    _Atomic bool end;
    uint64_t seen;
} reader;

static void *read_counts(void *context) {
    reader *r = context;
    while (!atomic_load(&r->end)) {
        lar_prefix_counts n = lar_prefix_cache_counts(r->cache);
        r->seen += n.pages + n.idle + n.hits;
    }
    return NULL;
}

static void counts_are_read_by_another_thread(void **state) {
    (void)state;
    small_world *w = small(8);
    reader r = {.cache = w->cache};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, read_counts, &r), 0);
    for (int i = 0; i < 2000; i++) {
        uint32_t from_store;
        fill(w, i & 1, 4);
        assert_int_equal(found(w, i & 1, &from_store), 4);
        need(w, 6);
    }
    atomic_store(&r.end, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    small_end(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations_are_the_plain_model_s),
        cmocka_unit_test(roots_differ_by_all_that_decides_a_page),
        cmocka_unit_test(a_restart_finds_what_the_store_has_for_this_model_and_scope),
        cmocka_unit_test(at_the_end_a_slow_store_gets_all_pages),
        cmocka_unit_test(a_prefix_longer_than_memory_is_found_as_far_as_it_fits),
        cmocka_unit_test(nothing_is_kept_behind_a_page_that_is_gone),
        cmocka_unit_test(pinned_pages_survive_pressure_until_their_time),
        cmocka_unit_test(stale_conversations_go_first_from_their_end),
        cmocka_unit_test(counts_are_read_by_another_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
