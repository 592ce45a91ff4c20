/* The standing of upstreams, found by name and place, so that a reload forgets nothing, and mistakes no upstream for
 * another that has its name now: replicas are numbered, and the numbers move up where one is taken out.
 * Called when a loop takes over a generation, and at each choice among replicas. Any thread; the lock is held for a
 * walk over the names, never over I/O. Memory: an entry for each name and place that a loop's pools are for. */
#include "gateway/request/standing.h"

#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/hash.h"

void lar_standings_init(lar_standings *s) { LAR_ASSERT(pthread_mutex_init(&s->lock, NULL) == 0); }

static void standing_free(lar_standing *t) {
    lar_breaker_free(t->breaker);
    free((void *)(uintptr_t)t->name);
    free(t);
}

void lar_standings_release(lar_standings *s) {
    LAR_ASSERT(!s->first);
    (void)pthread_mutex_destroy(&s->lock);
}

/* Of where it is, so that prefixes and conversations stay there under whatever name; lower 16 bits are never 0. */
static uint64_t place_id(const lar_upstream_config *u) {
    const lar_url *url = &u->url;
    lar_hash h = lar_hash_of(url->tls ? LAR_SLICE("https") : LAR_SLICE("http"));
    h = lar_hash_chain(h, lar_slice_cstr(url->authority ? url->authority : ""));
    uint64_t id = lar_hash_low(lar_hash_chain(h, lar_slice_cstr(url->path ? url->path : "")));
    return id & 0xffff ? id : id | 1;
}

static lar_standing *standing_new(const lar_upstream_config *u) {
    lar_standing *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->name = strdup(u->name);
    t->breaker = lar_breaker_new(&u->breaker);
    t->id = place_id(u);
    if (t->name && t->breaker) return t;
    standing_free(t);
    return NULL;
}

/* The lock is held. */
static lar_standing *find(const lar_standings *s, const lar_upstream_config *u) {
    lar_standing *t = s->first;
    uint64_t id = place_id(u);
    while (t && (t->id != id || strcmp(t->name, u->name) != 0)) t = t->next;
    return t;
}

lar_standing *lar_standings_find(lar_standings *s, const lar_upstream_config *u) {
    LAR_ASSERT(pthread_mutex_lock(&s->lock) == 0);
    lar_standing *t = find(s, u);
    if (t) t->users++;
    LAR_ASSERT(pthread_mutex_unlock(&s->lock) == 0);
    return t;
}

lar_standing *lar_standings_get(lar_standings *s, const lar_upstream_config *u) {
    LAR_ASSERT(pthread_mutex_lock(&s->lock) == 0);
    lar_standing *t = find(s, u);
    if (t) {
        lar_breaker_set(t->breaker, &u->breaker);
    } else if ((t = standing_new(u))) {
        t->next = s->first;
        s->first = t;
    }
    if (t) t->users++;
    LAR_ASSERT(pthread_mutex_unlock(&s->lock) == 0);
    return t;
}

void lar_standings_put(lar_standings *s, lar_standing *t) {
    if (!t) return;
    LAR_ASSERT(pthread_mutex_lock(&s->lock) == 0);
    bool last = --t->users == 0;
    lar_standing **link = &s->first;
    while (last && *link != t) link = &(*link)->next;
    if (last) *link = t->next;
    LAR_ASSERT(pthread_mutex_unlock(&s->lock) == 0);
    if (last) standing_free(t);
}

/* -- conversations ------------------------------------------------------------------------------------------------ */

static atomic_ullong *slot(lar_standings *s, uint64_t conversation) {
    return &s->sticky[conversation % LAR_STICKY_SLOTS];
}

static uint64_t tag(uint64_t conversation) { return conversation & ~(uint64_t)0xffff; }

uint16_t lar_sticky_get(lar_standings *s, uint64_t conversation) {
    uint64_t v = atomic_load_explicit(slot(s, conversation), memory_order_relaxed);
    return (v & ~(uint64_t)0xffff) == tag(conversation) ? (uint16_t)v : 0;
}

void lar_sticky_set(lar_standings *s, uint64_t conversation, uint64_t id) {
    atomic_store_explicit(slot(s, conversation), tag(conversation) | (id & 0xffff), memory_order_relaxed);
}

void lar_sticky_forget(lar_standings *s, uint64_t conversation) {
    unsigned long long seen = atomic_load_explicit(slot(s, conversation), memory_order_relaxed);
    if ((seen & ~(uint64_t)0xffff) == tag(conversation))
        (void)atomic_compare_exchange_strong_explicit(slot(s, conversation), &seen, 0, memory_order_relaxed,
                                                      memory_order_relaxed);
}
