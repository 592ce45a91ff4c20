/* Kept prefixes: a tree of pages by parent, a table by key, and an order in which pages are let go.
 * Flow: engine.c finds, publishes and pins; the pool asks for pages and tells when sequences give pages back. The
 * engine's thread; blocks on the page store alone. Why one node a page: a page is kept under one key at most, so that
 * nothing needs memory once the cache is made.
 * Invariants: 1. A kept page has one holder more, the cache. 2. A node's parent is kept, or it is behind the root.
 * 3. `leaves` holds the kept pages without children, other holders or a pin, and no others. 4. A page's parent is
 * pinned as long as the page or longer: pins are given from the root on.
 * Memory: arrays of the pool's size. Not here: the bytes of pages; what is in the store, which the store knows. */
#include "engine/cache/prefix_cache.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "engine/cache/page_heap.h"

typedef struct node {
    lar_page_key key;
    lar_page_key root; /* of the scope */
    int32_t parent;    /* LAR_PAGE_NONE: the root */
    uint32_t children;
    uint64_t idle_since; /* by the cache's own count of such moments */
    bool kept, idle;
} node;

/* Written by the engine's thread alone. */
typedef struct counts {
    _Atomic uint32_t pages, idle, pinned;
    _Atomic uint64_t hits, misses, evicted, spilled, reloaded, spill_failed, reload_failed;
} counts;

struct lar_prefix_cache {
    lar_page_pool *pool;
    lar_page_store *store;
    uint64_t (*now_ms)(void *context);
    void *now_context;
    lar_digest base; /* of the model and the layout */
    node *nodes;     /* (pages), by page */
    int32_t *table;  /* (mask + 1): pages by key, open addressing, no holes between a page and where it would be best */
    uint32_t mask, pages, pinned_max, reads_max;
    lar_page_heap leaves; /* by idle_since */
    lar_page_heap pins;   /* by until_ms */
    uint64_t moments;
    bool ending; /* all pages are written, and nobody waits for the engine any more */
    counts counts;
};

static void add32(_Atomic uint32_t *c, int n) {
    atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + (uint32_t)n, memory_order_relaxed);
}

static void add64(_Atomic uint64_t *c, uint64_t n) {
    atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n, memory_order_relaxed);
}

/* -- keys -------------------------------------------------------------------------------------------------------- */

static lar_digest join(const lar_digest *a, const void *more, size_t len) {
    uint8_t both[sizeof *a + LAR_PAGE_TOKENS * sizeof(uint32_t)];
    LAR_ASSERT(len <= sizeof both - sizeof *a);
    memcpy(both, a, sizeof *a);
    memcpy(both + sizeof *a, more, len);
    return lar_digest_of(lar_slice_of((const char *)both, sizeof *a + len));
}

static lar_page_key key_behind(const lar_page_key *parent, const uint32_t *ids) {
    return join(parent, ids, LAR_PAGE_TOKENS * sizeof *ids);
}

/* The model, what a page is, and how each layer is kept. */
static lar_digest base_of(const lar_page_layout *l, const lar_digest *model) {
    static const char edition[] = "larder pages 1";
    const uint32_t numbers[] = {LAR_PAGE_TOKENS, l->layers, l->rank, l->rope};
    lar_digest base = join(model, edition, sizeof edition);
    base = join(&base, numbers, sizeof numbers);
    for (uint32_t i = 0; i < l->layers; i++) {
        const char *name = lar_kv_info_of((lar_kv)l->kv[i])->name;
        base = join(&base, name, strlen(name));
    }
    return base;
}

lar_prefix_end lar_prefix_root(const lar_prefix_cache *c, const lar_digest *scope) {
    return (lar_prefix_end){join(&c->base, scope, sizeof *scope), 0};
}

/* -- the table --------------------------------------------------------------------------------------------------- */

static uint32_t best_slot(const lar_prefix_cache *c, const lar_page_key *key) {
    return (uint32_t)lar_digest_short(key) & c->mask;
}

/* The slot of the key, or the free one where it belongs. */
static uint32_t slot_of(const lar_prefix_cache *c, const lar_page_key *key) {
    uint32_t i = best_slot(c, key);
    while (c->table[i] != LAR_PAGE_NONE && memcmp(&c->nodes[c->table[i]].key, key, sizeof *key) != 0)
        i = (i + 1) & c->mask;
    return i;
}

static int32_t look_up(const lar_prefix_cache *c, const lar_page_key *key) { return c->table[slot_of(c, key)]; }

/* What was moved on by the one that goes moves back. */
static void clear_slot(lar_prefix_cache *c, uint32_t hole) {
    c->table[hole] = LAR_PAGE_NONE;
    for (uint32_t i = (hole + 1) & c->mask; c->table[i] != LAR_PAGE_NONE; i = (i + 1) & c->mask) {
        uint32_t best = best_slot(c, &c->nodes[c->table[i]].key);
        if (((i - best) & c->mask) < ((i - hole) & c->mask)) continue; /* its best slot is behind the hole */
        c->table[hole] = c->table[i];
        c->table[i] = LAR_PAGE_NONE;
        hole = i;
    }
}

/* -- the tree ---------------------------------------------------------------------------------------------------- */

/* Into the leaves or out of them, as the page is now. */
static void settle(lar_prefix_cache *c, int32_t page) {
    const node *n = &c->nodes[page];
    if (n->kept && n->idle && !n->children && !lar_page_heap_has(&c->pins, page))
        lar_page_heap_put(&c->leaves, page, n->idle_since);
    else lar_page_heap_remove(&c->leaves, page);
}

static void set_idle(lar_prefix_cache *c, int32_t page, bool idle) {
    node *n = &c->nodes[page];
    if (n->idle == idle) return;
    n->idle = idle;
    if (idle) n->idle_since = ++c->moments;
    if (!lar_page_heap_has(&c->pins, page)) add32(&c->counts.idle, idle ? 1 : -1);
    settle(c, page);
}

static void on_holders(void *context, int32_t page, uint32_t holders) {
    lar_prefix_cache *c = context;
    if (c->nodes[page].kept) set_idle(c, page, holders == 1);
}

static void keep(lar_prefix_cache *c, const lar_prefix_end *behind, const lar_page_key *key, int32_t page) {
    node *n = &c->nodes[page];
    int32_t parent = behind->pages ? look_up(c, &behind->key) : LAR_PAGE_NONE;
    *n = (node){.key = *key, .root = behind->key, .parent = parent, .kept = true};
    if (parent != LAR_PAGE_NONE) {
        n->root = c->nodes[parent].root;
        c->nodes[parent].children++;
        settle(c, parent);
    }
    c->table[slot_of(c, key)] = page;
    add32(&c->counts.pages, 1);
    lar_page_share(c->pool, page);
}

static void unpin(lar_prefix_cache *c, int32_t page) {
    if (!lar_page_heap_has(&c->pins, page)) return;
    lar_page_heap_remove(&c->pins, page);
    add32(&c->counts.pinned, -1);
    if (c->nodes[page].idle) add32(&c->counts.idle, 1);
    settle(c, page);
}

/* Gives the cache's hold of a leaf back; returns its parent. */
static int32_t let_go(lar_prefix_cache *c, int32_t page) {
    node *n = &c->nodes[page];
    int32_t parent = n->parent;
    LAR_ASSERT(n->kept && !n->children);
    unpin(c, page);
    set_idle(c, page, false);
    n->kept = false;
    clear_slot(c, slot_of(c, &n->key));
    if (parent != LAR_PAGE_NONE) {
        c->nodes[parent].children--;
        settle(c, parent);
    }
    add32(&c->counts.pages, -1);
    lar_page_drop(c->pool, page);
    return parent;
}

/* -- the store --------------------------------------------------------------------------------------------------- */

static void spill(lar_prefix_cache *c, int32_t page) {
    const lar_page_store *s = c->store;
    const lar_page_key *key = &c->nodes[page].key;
    const uint8_t *bytes = lar_page_bytes(c->pool, page);
    uint64_t count = lar_page_pool_counts(c->pool).page_bytes;
    if (!s) return;
    bool there = s->has(s->context, key);
    lar_error e = s->write(s->context, key, bytes, count);
    if (e == LAR_FULL && c->ending && s->flush) {
        s->flush(s->context);
        e = s->write(s->context, key, bytes, count);
    }
    if (e) add64(&c->counts.spill_failed, 1);
    else if (!there) add64(&c->counts.spilled, 1);
}

/* A page for the key from the store, kept, with a holder more; LAR_PAGE_NONE: none. What the caller holds stays. */
static int32_t reload(lar_prefix_cache *c, const lar_prefix_end *behind, const lar_page_key *key) {
    const lar_page_store *s = c->store;
    bool can = !behind->pages || look_up(c, &behind->key) != LAR_PAGE_NONE; /* it may have been forgotten */
    if (!s || !can || !s->has(s->context, key)) return LAR_PAGE_NONE;
    int32_t page = lar_page_take(c->pool);
    if (page == LAR_PAGE_NONE) return page;
    uint64_t bytes = lar_page_pool_counts(c->pool).page_bytes;
    lar_error e = s->read(s->context, key, lar_page_bytes(c->pool, page), bytes);
    if (e) {
        add64(&c->counts.reload_failed, 1);
        lar_page_drop(c->pool, page);
        return LAR_PAGE_NONE;
    }
    keep(c, behind, key, page);
    add64(&c->counts.reloaded, 1);
    return page;
}

/* -- letting go -------------------------------------------------------------------------------------------------- */

static void end_pins(lar_prefix_cache *c, uint64_t now) {
    for (int32_t page; (page = lar_page_heap_first(&c->pins)) != LAR_PAGE_NONE;) {
        if (lar_page_heap_order(&c->pins, page) > now) return;
        unpin(c, page);
    }
}

static uint32_t reclaim(void *context, uint32_t wanted) {
    lar_prefix_cache *c = context;
    uint32_t freed = 0;
    end_pins(c, c->now_ms(c->now_context));
    for (; freed < wanted; freed++) {
        int32_t page = lar_page_heap_first(&c->leaves);
        if (page == LAR_PAGE_NONE) break;
        spill(c, page);
        (void)let_go(c, page);
        add64(&c->counts.evicted, 1);
    }
    return freed;
}

typedef enum on_the_way { DROP, SPILL } on_the_way;

/* Everything of one scope, or of all, leaves first. */
static void clear(lar_prefix_cache *c, const lar_page_key *root, on_the_way what) {
    for (uint32_t i = 0; i < c->pages; i++)
        for (int32_t page = (int32_t)i; page != LAR_PAGE_NONE && c->nodes[page].kept && !c->nodes[page].children;) {
            if (root && memcmp(&c->nodes[page].root, root, sizeof *root) != 0) break;
            if (what == SPILL) spill(c, page);
            page = let_go(c, page);
        }
}

void lar_prefix_forget(lar_prefix_cache *c, const lar_digest *scope) {
    lar_prefix_end root = {0};
    if (scope) root = lar_prefix_root(c, scope);
    clear(c, scope ? &root.key : NULL, DROP);
}

/* -- making and freeing ------------------------------------------------------------------------------------------ */

static lar_error take_memory(lar_prefix_cache *c) {
    uint64_t slots = 2;
    while (slots < 2 * (uint64_t)c->pages) slots *= 2;
    c->mask = (uint32_t)(slots - 1);
    c->nodes = calloc(c->pages, sizeof *c->nodes);
    c->table = malloc(slots * sizeof *c->table);
    lar_error e = lar_page_heap_init(&c->leaves, c->pages);
    lar_error p = lar_page_heap_init(&c->pins, c->pages);
    if (e || p || !c->nodes || !c->table) return LAR_NO_MEMORY;
    for (uint64_t i = 0; i < slots; i++) c->table[i] = LAR_PAGE_NONE;
    return LAR_OK;
}

static void release(lar_prefix_cache *c) {
    free(c->nodes);
    free(c->table);
    lar_page_heap_release(&c->leaves);
    lar_page_heap_release(&c->pins);
    free(c);
}

lar_error lar_prefix_cache_new(const lar_prefix_options *o, lar_prefix_cache **out, lar_diag *d) {
    uint32_t pages = lar_page_pool_counts(o->pool).pages;
    lar_prefix_cache *c = *out = calloc(1, sizeof *c);
    if (c) c->pages = pages;
    if (!c || take_memory(c)) {
        if (c) release(c);
        *out = NULL;
        return lar_fail(LAR_NO_MEMORY, d, "no memory to keep account of %u pages", pages);
    }
    c->pool = o->pool;
    c->store = o->store;
    c->reads_max = o->reads_max ? o->reads_max : UINT32_MAX;
    c->now_ms = o->now_ms;
    c->now_context = o->now_context;
    c->base = base_of(lar_page_pool_layout(o->pool), &o->model);
    c->pinned_max = pages / 2;
    lar_page_pool_on_empty(o->pool, reclaim, c);
    lar_page_pool_on_holders(o->pool, on_holders, c);
    return LAR_OK;
}

void lar_prefix_cache_free(lar_prefix_cache *c) {
    if (!c) return;
    c->ending = true;
    end_pins(c, UINT64_MAX);
    for (int32_t page; (page = lar_page_heap_first(&c->leaves)) != LAR_PAGE_NONE;) {
        spill(c, page);
        (void)let_go(c, page);
    }
    clear(c, NULL, SPILL); /* what sequences hold */
    lar_page_pool_on_empty(c->pool, NULL, NULL);
    lar_page_pool_on_holders(c->pool, NULL, NULL);
    release(c);
}

/* -- prefixes ---------------------------------------------------------------------------------------------------- */

lar_prefix_found lar_prefix_find(lar_prefix_cache *c, lar_prefix_end *end, const uint32_t *ids, uint32_t count,
                                 int32_t *pages) {
    uint32_t whole = count / LAR_PAGE_TOKENS;
    lar_prefix_found found = {0};
    end_pins(c, c->now_ms(c->now_context));
    for (; found.pages < whole; found.pages++) {
        lar_page_key key = key_behind(&end->key, ids + (size_t)found.pages * LAR_PAGE_TOKENS);
        int32_t page = look_up(c, &key);
        if (page != LAR_PAGE_NONE) {
            lar_page_share(c->pool, page);
        } else {
            page = found.from_store < c->reads_max ? reload(c, end, &key) : LAR_PAGE_NONE;
            if (page == LAR_PAGE_NONE) break;
            found.from_store++;
        }
        pages[found.pages] = page;
        *end = (lar_prefix_end){key, end->pages + 1};
    }
    add64(&c->counts.hits, found.pages);
    return found;
}

int32_t lar_prefix_publish(lar_prefix_cache *c, lar_prefix_end *end, const uint32_t *ids, int32_t page) {
    lar_prefix_end behind = *end;
    *end = (lar_prefix_end){key_behind(&behind.key, ids), behind.pages + 1};
    int32_t there = look_up(c, &end->key);
    if (there == page) return page;
    if (there != LAR_PAGE_NONE) {
        lar_page_share(c->pool, there);
        return there;
    }
    LAR_ASSERT(!c->nodes[page].kept);
    if (behind.pages && look_up(c, &behind.key) == LAR_PAGE_NONE) return page;
    keep(c, &behind, &end->key, page);
    add64(&c->counts.misses, 1);
    return page;
}

void lar_prefix_unpin(lar_prefix_cache *c) { end_pins(c, UINT64_MAX); }

uint32_t lar_prefix_pin(lar_prefix_cache *c, const lar_digest *scope, const uint32_t *ids, uint32_t count,
                        uint64_t until_ms) {
    uint64_t now = c->now_ms(c->now_context);
    lar_page_key key = lar_prefix_root(c, scope).key;
    uint32_t whole = count / LAR_PAGE_TOKENS, pinned = 0;
    end_pins(c, now);
    for (; pinned < whole; pinned++) {
        key = key_behind(&key, ids + (size_t)pinned * LAR_PAGE_TOKENS);
        int32_t page = look_up(c, &key);
        if (page == LAR_PAGE_NONE) break;
        bool is = lar_page_heap_has(&c->pins, page);
        if (is && lar_page_heap_order(&c->pins, page) >= until_ms) continue;
        if (!is && (until_ms <= now || c->pins.count == c->pinned_max)) break;
        lar_page_heap_put(&c->pins, page, until_ms);
        if (!is) add32(&c->counts.pinned, 1);
        if (!is && c->nodes[page].idle) add32(&c->counts.idle, -1);
        settle(c, page);
    }
    return pinned;
}

lar_prefix_counts lar_prefix_cache_counts(const lar_prefix_cache *c) {
    const counts *n = &c->counts;
    return (lar_prefix_counts){.pages = atomic_load_explicit(&n->pages, memory_order_relaxed),
                               .idle = atomic_load_explicit(&n->idle, memory_order_relaxed),
                               .pinned = atomic_load_explicit(&n->pinned, memory_order_relaxed),
                               .hits = atomic_load_explicit(&n->hits, memory_order_relaxed),
                               .misses = atomic_load_explicit(&n->misses, memory_order_relaxed),
                               .evicted = atomic_load_explicit(&n->evicted, memory_order_relaxed),
                               .spilled = atomic_load_explicit(&n->spilled, memory_order_relaxed),
                               .reloaded = atomic_load_explicit(&n->reloaded, memory_order_relaxed),
                               .spill_failed = atomic_load_explicit(&n->spill_failed, memory_order_relaxed),
                               .reload_failed = atomic_load_explicit(&n->reload_failed, memory_order_relaxed)};
}
