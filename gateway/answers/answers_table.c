/* A hash table with a list by use. Called by answers.c under its lock; no call blocks, each is short but for growing.
 * Why answers are counted: one that is being sent to a client outlives its place here.
 * Invariants: 1. bytes is the sum of what is in the table, and never above bytes_max after a call. 2. newest to
 * oldest is the order of use. 3. an answer that ran out of time is never given. 4. without memory to grow, chains are
 * longer. Memory: the answers and the buckets; answers are given back outside of it when others still hold them. */
#include "gateway/answers/answers_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"

enum { BUCKETS_MIN = 1024, BUCKETS_MAX = 1 << 22, BUCKET_BYTES = 1024 };

/* -- an answer --------------------------------------------------------------------------------------------------- */

lar_kept *lar_kept_new(lar_slice head, lar_slice body) {
    lar_kept *k = malloc(sizeof *k + head.len + body.len);
    if (!k) return NULL;
    memset(k, 0, sizeof *k);
    char *at = (char *)(k + 1);
    if (head.len) memcpy(at, head.ptr, head.len);
    if (body.len) memcpy(at + head.len, body.ptr, body.len);
    k->head = lar_slice_of(at, head.len);
    k->body = lar_slice_of(at + head.len, body.len);
    atomic_init(&k->refs, 1);
    return k;
}

lar_kept *lar_kept_ref(lar_kept *k) {
    atomic_fetch_add_explicit(&k->refs, 1, memory_order_relaxed);
    return k;
}

void lar_kept_unref(lar_kept *k) {
    if (!k || atomic_fetch_sub_explicit(&k->refs, 1, memory_order_acq_rel) != 1) return;
    free(k);
}

uint64_t lar_kept_bytes(const lar_kept *k) { return sizeof *k + k->head.len + k->body.len; }

/* -- the list ---------------------------------------------------------------------------------------------------- */

static void list_remove(lar_answers_table *t, lar_kept *k) {
    if (k->newer) k->newer->older = k->older;
    else t->newest = k->older;
    if (k->older) k->older->newer = k->newer;
    else t->oldest = k->newer;
    k->newer = k->older = NULL;
}

static void list_add(lar_answers_table *t, lar_kept *k) {
    k->older = t->newest;
    k->newer = NULL;
    if (t->newest) t->newest->newer = k;
    else t->oldest = k;
    t->newest = k;
}

/* -- the table --------------------------------------------------------------------------------------------------- */

/* The key is a digest: any bytes of it are as good as a hash. */
static uint32_t bucket_of(const lar_answers_table *t, const lar_digest *key) {
    uint32_t low;
    memcpy(&low, key->bytes, sizeof low);
    return low & (t->bucket_count - 1);
}

static void drop(lar_answers_table *t, lar_kept *k) {
    lar_kept **at = &t->buckets[bucket_of(t, &k->key)];
    while (*at != k) at = &(*at)->chain;
    *at = k->chain;
    k->chain = NULL;
    list_remove(t, k);
    t->bytes -= lar_kept_bytes(k);
    t->count--;
    lar_kept_unref(k);
}

static lar_kept *look(const lar_answers_table *t, const lar_digest *key) {
    lar_kept *k = t->buckets ? t->buckets[bucket_of(t, key)] : NULL;
    while (k && !lar_digest_eq(&k->key, key)) k = k->chain;
    return k;
}

/* A bucket for each answer of a usual size that there is room for, so that it seldom grows under the lock. */
static uint32_t first_count(const lar_answers_table *t) {
    uint32_t count = BUCKETS_MIN;
    while (count < BUCKETS_MAX && (uint64_t)count * BUCKET_BYTES < t->bytes_max) count *= 2;
    return count;
}

static bool grow(lar_answers_table *t) {
    uint32_t count = t->bucket_count ? t->bucket_count * 2 : first_count(t);
    lar_kept **buckets = count <= BUCKETS_MAX ? calloc(count, sizeof(lar_kept *)) : NULL;
    if (!buckets) return t->buckets != NULL;
    free(t->buckets);
    t->buckets = buckets;
    t->bucket_count = count;
    for (lar_kept *k = t->newest; k; k = k->older) {
        lar_kept **at = &t->buckets[bucket_of(t, &k->key)];
        k->chain = *at;
        *at = k;
    }
    return true;
}

void lar_answers_table_init(lar_answers_table *t, uint64_t bytes_max) {
    *t = (lar_answers_table){.bytes_max = bytes_max};
}

void lar_answers_table_release(lar_answers_table *t) {
    while (t->oldest) drop(t, t->oldest);
    LAR_ASSERT(t->bytes == 0 && t->count == 0);
    free(t->buckets);
    t->buckets = NULL;
}

lar_kept *lar_answers_table_find(lar_answers_table *t, const lar_digest *key, uint64_t now_ms) {
    lar_kept *k = look(t, key);
    if (!k) return NULL;
    if (now_ms >= k->expires_ms) {
        drop(t, k);
        return NULL;
    }
    list_remove(t, k);
    list_add(t, k);
    return k;
}

static void make_room(lar_answers_table *t, uint64_t bytes) {
    while (t->oldest && t->bytes + bytes > t->bytes_max) {
        drop(t, t->oldest);
        t->evicted++;
    }
}

lar_error lar_answers_table_put(lar_answers_table *t, lar_kept *k) {
    uint64_t bytes = lar_kept_bytes(k);
    lar_kept *before = look(t, &k->key);
    LAR_ASSERT(k != before);
    if (before) drop(t, before);
    if (bytes > t->bytes_max) return LAR_LIMIT;
    if (t->count >= t->bucket_count && !grow(t)) return LAR_NO_MEMORY;
    make_room(t, bytes);
    lar_kept **at = &t->buckets[bucket_of(t, &k->key)];
    k->chain = *at;
    *at = lar_kept_ref(k);
    list_add(t, k);
    t->bytes += bytes;
    t->count++;
    return LAR_OK;
}

void lar_answers_table_limit(lar_answers_table *t, uint64_t bytes_max) {
    t->bytes_max = bytes_max;
    make_room(t, 0);
}
