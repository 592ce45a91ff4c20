/* A hash table of recall values in 16 shards, each with a lock, a chain table and a list by last use.
 * Flow: memory.c puts and gets from any thread; writer.c takes what is queued and reports it written. Locks are
 * held for a look-up, never over a copy of a value or over I/O.
 * Why: LMDB sees a value only after the next commit; canon must see it at once, and again without a page fault.
 * Invariants: 1. an entry with pins > 0 is never evicted: its value is nowhere else yet. 2. queued means the
 * key lies in the writer's list exactly once. 3. Values are immutable; a replaced one lives while referenced.
 * Memory: heap, bounded by bytes_max; what waits for the disk is bounded by the same number.
 * Not here: the disk (memory.c, writer.c). */
#include "store/cache.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"

enum { SHARDS = 16, BUCKETS_FIRST = 256, ENTRY_OVERHEAD = 128 };

typedef struct entry {
    lar_hash key;
    struct entry *chain;         /* next in the bucket */
    struct entry *newer, *older; /* by last use */
    lar_value *value;
    uint32_t pins; /* writes under way or queued */
    bool queued;
} entry;

typedef struct shard {
    _Alignas(64) pthread_mutex_t lock;
    entry **buckets;
    uint32_t bucket_count, count; /* bucket_count is a power of two */
    entry *newest, *oldest;
    uint64_t bytes;
} shard;

struct lar_cache {
    shard shards[SHARDS];
    uint64_t bytes_max;
    atomic_uint_fast64_t pinned_bytes;
};

lar_value *lar_value_new(lar_slice bytes, uint32_t day) {
    lar_value *v = malloc(sizeof *v + bytes.len);
    if (!v) return NULL;
    atomic_init(&v->refs, 1);
    v->day = day;
    v->len = (uint32_t)bytes.len;
    if (bytes.len) memcpy(v->bytes, bytes.ptr, bytes.len);
    return v;
}

void lar_value_unref(lar_value *v) {
    if (atomic_fetch_sub_explicit(&v->refs, 1, memory_order_acq_rel) == 1) free(v);
}

static lar_value *ref(lar_value *v) {
    (void)atomic_fetch_add_explicit(&v->refs, 1, memory_order_relaxed);
    return v;
}

/* The keys are hashes already: one part picks the shard, another the bucket. */
static uint64_t key_bits(const lar_hash *key, unsigned half) {
    uint64_t v;
    memcpy(&v, key->bytes + 8 * half, 8);
    return v;
}

static shard *shard_of(lar_cache *c, const lar_hash *key) { return &c->shards[key_bits(key, 0) % SHARDS]; }

static entry **bucket_of(shard *s, const lar_hash *key) {
    return &s->buckets[key_bits(key, 1) & (s->bucket_count - 1)];
}

static uint64_t cost(const lar_value *v) { return ENTRY_OVERHEAD + v->len; }

lar_cache *lar_cache_new(uint64_t bytes_max) {
    lar_cache *c = aligned_alloc(64, sizeof *c);
    if (!c) return NULL;
    memset(c, 0, sizeof *c);
    c->bytes_max = bytes_max;
    atomic_init(&c->pinned_bytes, 0);
    for (int i = 0; i < SHARDS; i++) {
        shard *s = &c->shards[i];
        (void)pthread_mutex_init(&s->lock, NULL);
        s->bucket_count = BUCKETS_FIRST;
        s->buckets = calloc(BUCKETS_FIRST, sizeof *s->buckets);
        if (!s->buckets) {
            lar_cache_free(c);
            return NULL;
        }
    }
    return c;
}

void lar_cache_free(lar_cache *c) {
    if (!c) return;
    for (int i = 0; i < SHARDS; i++) {
        shard *s = &c->shards[i];
        while (s->newest) {
            entry *e = s->newest;
            s->newest = e->older;
            lar_value_unref(e->value);
            free(e);
        }
        free(s->buckets);
        (void)pthread_mutex_destroy(&s->lock);
    }
    free(c);
}

/* -- inside a shard, its lock held ------------------------------------------------------------------------- */

static entry *find(shard *s, const lar_hash *key) {
    entry *e = *bucket_of(s, key);
    while (e && !lar_hash_eq(e->key, *key)) e = e->chain;
    return e;
}

static void unlink_use(shard *s, entry *e) {
    if (e->newer) e->newer->older = e->older;
    else s->newest = e->older;
    if (e->older) e->older->newer = e->newer;
    else s->oldest = e->newer;
}

static void link_newest(shard *s, entry *e) {
    e->newer = NULL;
    e->older = s->newest;
    if (s->newest) s->newest->newer = e;
    else s->oldest = e;
    s->newest = e;
}

static void used_now(shard *s, entry *e) {
    if (s->newest == e) return;
    unlink_use(s, e);
    link_newest(s, e);
}

static void remove_entry(shard *s, entry *e) {
    entry **at = bucket_of(s, &e->key);
    while (*at != e) at = &(*at)->chain;
    *at = e->chain;
    unlink_use(s, e);
    s->count--;
    s->bytes -= cost(e->value);
    lar_value_unref(e->value);
    free(e);
}

static void grow_buckets(shard *s) {
    uint32_t count = s->bucket_count * 2;
    entry **fresh = s->count < s->bucket_count || s->bucket_count >= 1u << 24 ? NULL : calloc(count, sizeof *fresh);
    if (!fresh) return; /* longer chains are slower, not wrong */
    free(s->buckets);
    s->buckets = fresh;
    s->bucket_count = count;
    for (entry *e = s->oldest; e; e = e->newer) {
        entry **at = bucket_of(s, &e->key);
        e->chain = *at;
        *at = e;
    }
}

/* Takes over the reference to `v`. NULL when out of memory. */
static entry *insert(shard *s, const lar_hash *key, lar_value *v) {
    entry *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    grow_buckets(s);
    e->key = *key;
    e->value = v;
    entry **at = bucket_of(s, key);
    e->chain = *at;
    *at = e;
    link_newest(s, e);
    s->count++;
    s->bytes += cost(v);
    return e;
}

/* Pinned entries are passed over, a bounded number of them: they leave by being written. */
static void evict(lar_cache *c, shard *s) {
    entry *e = s->oldest;
    for (int passed = 0; e && s->bytes > c->bytes_max / SHARDS && passed < 64;) {
        entry *next = e->newer;
        if (e->pins) passed++;
        else remove_entry(s, e);
        e = next;
    }
}

/* -- exported ------------------------------------------------------------------------------------------------ */

lar_cache_put_result lar_cache_put(lar_cache *c, const lar_hash *key, lar_slice value, uint32_t day) {
    lar_value *v = lar_value_new(value, day);
    if (!v) return LAR_CACHE_REFUSED;
    uint64_t need = cost(v);
    if (atomic_fetch_add(&c->pinned_bytes, need) + need > c->bytes_max) {
        (void)atomic_fetch_sub(&c->pinned_bytes, need);
        lar_value_unref(v);
        return LAR_CACHE_REFUSED;
    }
    shard *s = shard_of(c, key);
    lar_value *old = NULL;
    lar_cache_put_result result = LAR_CACHE_KEPT;
    (void)pthread_mutex_lock(&s->lock);
    entry *e = find(s, key);
    if (e) {
        old = e->value;
        s->bytes = s->bytes - cost(old) + need;
        if (e->pins) (void)atomic_fetch_sub(&c->pinned_bytes, cost(old));
        e->value = v;
        used_now(s, e);
    } else {
        e = insert(s, key, v);
    }
    if (!e) {
        (void)atomic_fetch_sub(&c->pinned_bytes, need);
        old = v;
        result = LAR_CACHE_REFUSED;
    } else if (e->queued) {
        result = LAR_CACHE_QUEUED;
    } else {
        e->queued = true;
        e->pins++;
    }
    evict(c, s);
    (void)pthread_mutex_unlock(&s->lock);
    if (old) lar_value_unref(old);
    return result;
}

void lar_cache_fill(lar_cache *c, const lar_hash *key, lar_slice value, uint32_t day) {
    if (value.len + ENTRY_OVERHEAD > c->bytes_max / SHARDS) return;
    lar_value *v = lar_value_new(value, day);
    if (!v) return;
    shard *s = shard_of(c, key);
    (void)pthread_mutex_lock(&s->lock);
    bool kept = !find(s, key) && insert(s, key, v);
    evict(c, s);
    (void)pthread_mutex_unlock(&s->lock);
    if (!kept) lar_value_unref(v);
}

lar_error lar_cache_get(lar_cache *c, const lar_hash *key, lar_buf *out, uint32_t *day) {
    shard *s = shard_of(c, key);
    lar_value *v = NULL;
    (void)pthread_mutex_lock(&s->lock);
    entry *e = find(s, key);
    if (e) {
        v = ref(e->value);
        used_now(s, e);
    }
    (void)pthread_mutex_unlock(&s->lock);
    if (!v) return LAR_NOT_FOUND;
    lar_error err = lar_buf_add(out, v->bytes, v->len);
    *day = v->day;
    lar_value_unref(v);
    return err;
}

lar_value *lar_cache_take(lar_cache *c, const lar_hash *key) {
    shard *s = shard_of(c, key);
    (void)pthread_mutex_lock(&s->lock);
    entry *e = find(s, key);
    LAR_ASSERT(e && e->pins);
    e->queued = false;
    lar_value *v = ref(e->value);
    (void)pthread_mutex_unlock(&s->lock);
    return v;
}

void lar_cache_written(lar_cache *c, const lar_hash *key) {
    shard *s = shard_of(c, key);
    (void)pthread_mutex_lock(&s->lock);
    entry *e = find(s, key);
    LAR_ASSERT(e && e->pins);
    if (--e->pins == 0) (void)atomic_fetch_sub(&c->pinned_bytes, cost(e->value));
    evict(c, s);
    (void)pthread_mutex_unlock(&s->lock);
}

uint64_t lar_cache_bytes(const lar_cache *c) {
    uint64_t bytes = 0;
    for (int i = 0; i < SHARDS; i++) {
        shard *s = (shard *)&c->shards[i];
        (void)pthread_mutex_lock(&s->lock);
        bytes += s->bytes;
        (void)pthread_mutex_unlock(&s->lock);
    }
    return bytes;
}

uint64_t lar_cache_pinned_bytes(const lar_cache *c) { return atomic_load(&c->pinned_bytes); }
