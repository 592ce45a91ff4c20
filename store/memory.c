/* Recall memory: get and put for canon, on the loop threads.
 * Flow: get looks into the cache, then reads LMDB through a pooled read transaction; put goes to the cache and
 * queues its key for the writer. Any thread. A get may wait for a page of the mapped file, never for a write.
 * Invariants: 1. a put is seen by the next get in this process. 2. A last use is written at most once a
 * day a key. 3. A damaged value is as good as none. Memory: the cache's; a value read is copied out.
 * Not here: the writing (apply.c), the removal (retention.c). */
#include "store/bytes.h"
#include "store/store_core.h"

static void refuse(lar_store *s, const char *why) {
    lar_metrics_add(s->o.metrics, LAR_METRIC_MEMORY_DROPPED_TOTAL, 1);
    lar_store_gripe(s, LAR_GRIPE_MEMORY_FULL, 1, why);
}

void lar_store_memory_put(void *store, const lar_hash *key, lar_slice value) {
    lar_store *s = store;
    if (s->o.read_only) return;
    if (value.len > s->value_bytes_max) {
        refuse(s, "the value is too large");
        return;
    }
    lar_cache_put_result put =
        lar_cache_put(s->cache, key, value, atomic_load_explicit(&s->today, memory_order_relaxed));
    if (put == LAR_CACHE_REFUSED) refuse(s, "too much waits for the disk");
    if (put != LAR_CACHE_KEPT || lar_queue_key(&s->queue, key) == LAR_OK) return;
    refuse(s, "the queue is full");
    lar_value_unref(lar_cache_take(s->cache, key));
    lar_cache_written(s->cache, key);
}

/* Appends the value on disk. */
static lar_error read_disk(lar_store *s, const lar_hash *key, lar_buf *out, uint32_t *day) {
    lar_env_reader *r;
    MDB_val k = {sizeof key->bytes, (void *)key->bytes}, v;
    lar_slice value;
    if (lar_env_read_begin(&s->env, &r)) return LAR_NOT_FOUND;
    lar_error e = LAR_NOT_FOUND;
    if (mdb_get(r->txn, s->env.dbi[LAR_DB_MEMORY], &k, &v) == MDB_SUCCESS) {
        e = lar_memory_decode(key, lar_slice_of(v.mv_data, v.mv_size), day, &value);
        if (!e) e = lar_buf_add_slice(out, value);
    }
    lar_env_read_end(&s->env, r);
    if (e == LAR_CORRUPT || e == LAR_VERSION) {
        lar_store_gripe(s, LAR_GRIPE_DAMAGE, 1, "recall memory");
        e = LAR_NOT_FOUND;
    }
    return e;
}

lar_error lar_store_memory_get(void *store, const lar_hash *key, lar_buf *out) {
    lar_store *s = store;
    size_t before = out->len;
    uint32_t day = 0, today = atomic_load_explicit(&s->today, memory_order_relaxed);
    lar_error e = s->cache ? lar_cache_get(s->cache, key, out, &day) : LAR_NOT_FOUND;
    bool cached = e != LAR_NOT_FOUND;
    if (!cached) e = read_disk(s, key, out, &day);
    if (e || !s->cache) return e;
    lar_slice value = out->len > before ? lar_slice_of(out->ptr + before, out->len - before) : lar_slice_of("", 0);
    if (day < today) lar_store_memory_put(s, key, value); /* the same value with a newer day */
    else if (!cached) lar_cache_fill(s->cache, key, value, day);
    return LAR_OK;
}

lar_memory_size lar_store_memory_size(lar_store *s) {
    uint64_t pages = lar_env_pages_used_by(&s->env, LAR_DB_MEMORY) + lar_env_pages_used_by(&s->env, LAR_DB_MEMORY_AGE);
    return (lar_memory_size){.entries = lar_env_entries(&s->env, LAR_DB_MEMORY),
                             .bytes = pages * s->env.page_bytes,
                             .cache_bytes = s->cache ? lar_cache_bytes(s->cache) : 0};
}
