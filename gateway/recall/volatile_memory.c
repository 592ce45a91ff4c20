/* Recall without a disk, over the store's own cache. Called through lar_memory_ops; any thread; never blocks on I/O.
 * Why: larder must keep prefixes stable from the first try on, before anybody has chosen a folder. */
#include "gateway/recall/volatile_memory.h"

#include <stdlib.h>

#include "store/cache.h"

struct lar_volatile_memory {
    lar_cache *cache;
};

lar_volatile_memory *lar_volatile_memory_new(uint64_t bytes_max) {
    lar_volatile_memory *m = malloc(sizeof *m);
    if (!m) return NULL;
    m->cache = lar_cache_new(bytes_max);
    if (m->cache) return m;
    free(m);
    return NULL;
}

void lar_volatile_memory_free(lar_volatile_memory *m) {
    if (!m) return;
    lar_cache_free(m->cache);
    free(m);
}

static lar_error get(void *ctx, const lar_hash *key, lar_buf *out) {
    uint32_t day;
    return lar_cache_get(((lar_volatile_memory *)ctx)->cache, key, out, &day);
}

/* The cache pins a value until it is written; here that is at once. */
static void put(void *ctx, const lar_hash *key, lar_slice value) {
    lar_cache *c = ((lar_volatile_memory *)ctx)->cache;
    if (lar_cache_put(c, key, value, 0) != LAR_CACHE_KEPT) return;
    lar_value_unref(lar_cache_take(c, key));
    lar_cache_written(c, key);
}

lar_memory_ops lar_volatile_memory_ops(lar_volatile_memory *m) {
    return (lar_memory_ops){.ctx = m, .get = get, .put = put};
}
