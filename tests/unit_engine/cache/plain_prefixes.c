/* The plain model of a prefix cache.
 * Flow: test_prefix_cache.c does each operation with the cache and says it here, and compares. One thread. Memory: its
 * own, fixed. Not here: bytes of pages, and who holds which, which the test knows. */
#include "tests/unit_engine/cache/plain_prefixes.h"

#include <stddef.h>
#include <string.h>

#include "base/ensure.h"

static bool begins_with(const plain_prefix *p, uint32_t scope, const uint32_t *ids, uint32_t length) {
    return p->scope == scope && p->length >= length && memcmp(p->ids, ids, length * sizeof *ids) == 0;
}

plain_page *plain_find(plain_prefixes *p, uint32_t scope, const uint32_t *ids, uint32_t length) {
    for (uint32_t i = 0; i < p->count; i++)
        if (p->kept[i].prefix.length == length && begins_with(&p->kept[i].prefix, scope, ids, length))
            return &p->kept[i];
    return NULL;
}

plain_prefix *plain_stored(plain_prefixes *p, uint32_t scope, const uint32_t *ids, uint32_t length) {
    for (uint32_t i = 0; i < p->stored_count; i++)
        if (p->stored[i].length == length && begins_with(&p->stored[i], scope, ids, length)) return &p->stored[i];
    return NULL;
}

plain_page *plain_of_page(plain_prefixes *p, int32_t page) {
    for (uint32_t i = 0; i < p->count; i++)
        if (p->kept[i].page == page) return &p->kept[i];
    return NULL;
}

static bool has_children(const plain_prefixes *p, const plain_page *of) {
    const plain_prefix *o = &of->prefix;
    for (uint32_t i = 0; i < p->count; i++)
        if (p->kept[i].prefix.length > o->length && begins_with(&p->kept[i].prefix, o->scope, o->ids, o->length))
            return true;
    return false;
}

static void store(plain_prefixes *p, const plain_prefix *what) {
    if (!p->has_store) return;
    bool there = plain_stored(p, what->scope, what->ids, what->length) != NULL;
    if (p->store_fails_writes || (!there && p->stored_count == p->store_room)) {
        p->counts.spill_failed++;
    } else if (!there) {
        p->stored[p->stored_count++] = *what;
        p->counts.spilled++;
    }
}

void plain_unstore(plain_prefixes *p, plain_prefix *s) { *s = p->stored[--p->stored_count]; }

static void let_go(plain_prefixes *p, plain_page *page) {
    if (page->idle) p->free++;
    p->counts.idle -= page->idle && !page->pin;
    p->counts.pinned -= page->pin != 0;
    p->counts.pages--;
    *page = p->kept[--p->count];
}

void plain_end_pins(plain_prefixes *p, uint64_t now) {
    for (uint32_t i = 0; i < p->count; i++) {
        plain_page *k = &p->kept[i];
        if (!k->pin || k->pin > now) continue;
        k->pin = 0;
        p->counts.pinned--;
        p->counts.idle += k->idle;
    }
}

/* The least recently given back page that nobody needs. */
static plain_page *oldest(plain_prefixes *p) {
    plain_page *found = NULL;
    for (uint32_t i = 0; i < p->count; i++) {
        plain_page *k = &p->kept[i];
        if (k->idle && !k->pin && !has_children(p, k) && (!found || k->since < found->since)) found = k;
    }
    return found;
}

bool plain_take(plain_prefixes *p) {
    if (!p->free) {
        plain_end_pins(p, p->now);
        plain_page *victim = oldest(p);
        if (!victim) return false;
        store(p, &victim->prefix);
        let_go(p, victim);
        p->counts.evicted++;
    }
    p->free--;
    return true;
}

void plain_held(plain_prefixes *p, int32_t page) {
    plain_page *k = plain_of_page(p, page);
    if (!k || !k->idle) return;
    k->idle = false;
    p->counts.idle -= k->pin == 0;
}

void plain_given_back(plain_prefixes *p, int32_t page) {
    plain_page *k = plain_of_page(p, page);
    if (!k) {
        p->free++;
        return;
    }
    k->idle = true;
    k->since = ++p->moments;
    p->counts.idle += k->pin == 0;
}

bool plain_keep(plain_prefixes *p, uint32_t scope, const uint32_t *ids, uint32_t length, int32_t page) {
    if (length > LAR_PAGE_TOKENS && !plain_find(p, scope, ids, length - LAR_PAGE_TOKENS)) return false;
    LAR_ASSERT(p->count < PLAIN_PAGES_MAX);
    plain_page *k = &p->kept[p->count++];
    *k = (plain_page){.prefix = {scope, length, {0}}, .page = page};
    memcpy(k->prefix.ids, ids, length * sizeof *ids);
    p->counts.pages++;
    return true;
}

uint32_t plain_pin(plain_prefixes *p, uint32_t scope, const uint32_t *ids, uint32_t length, uint64_t until) {
    plain_end_pins(p, p->now);
    uint32_t pinned = 0;
    for (; pinned < length / LAR_PAGE_TOKENS; pinned++) {
        plain_page *k = plain_find(p, scope, ids, (pinned + 1) * LAR_PAGE_TOKENS);
        if (!k) break;
        if (k->pin) {
            k->pin = k->pin > until ? k->pin : until;
            continue;
        }
        if (until <= p->now || p->counts.pinned == p->pages / 2) break;
        k->pin = until;
        p->counts.pinned++;
        p->counts.idle -= k->idle;
    }
    return pinned;
}

void plain_forget(plain_prefixes *p, uint32_t scope) {
    for (uint32_t i = 0; i < p->count;)
        if (scope == UINT32_MAX || p->kept[i].prefix.scope == scope) let_go(p, &p->kept[i]);
        else i++;
}

void plain_end(plain_prefixes *p) {
    plain_end_pins(p, UINT64_MAX);
    for (plain_page *k; (k = oldest(p)) != NULL;) {
        store(p, &k->prefix);
        let_go(p, k);
    }
    for (int32_t page = 0; page < (int32_t)p->pages; page++) /* what sequences hold: by page, and up from there */
        for (plain_page *k = plain_of_page(p, page); k && !has_children(p, k);) {
            plain_prefix gone = k->prefix;
            store(p, &gone);
            let_go(p, k);
            k = gone.length > LAR_PAGE_TOKENS ? plain_find(p, gone.scope, gone.ids, gone.length - LAR_PAGE_TOKENS)
                                              : NULL;
        }
    LAR_ASSERT(p->count == 0);
}
