/* Recall values in memory: sharded table, least recently used first out, values that wait for the disk pinned. */
#ifndef LARDER_STORE_CACHE_H
#define LARDER_STORE_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/hash.h"

/* Immutable once made; counted references. */
typedef struct lar_value {
    atomic_uint refs;
    uint32_t day; /* of its last use, as it is or will be on disk */
    uint32_t len;
    char bytes[];
} lar_value;

lar_value *lar_value_new(lar_slice bytes, uint32_t day); /* NULL when out of memory */
void lar_value_unref(lar_value *v);

typedef struct lar_cache lar_cache;

lar_cache *lar_cache_new(uint64_t bytes_max); /* NULL when out of memory */
void lar_cache_free(lar_cache *c);

typedef enum lar_cache_put_result {
    LAR_CACHE_KEPT,   /* kept; the key must be queued for the disk */
    LAR_CACHE_QUEUED, /* kept; the key is in the queue already and the newer value will be taken */
    LAR_CACHE_REFUSED /* too much waits for the disk, or out of memory: nothing changed */
} lar_cache_put_result;

/* A value that must reach the disk: pinned until lar_cache_written. */
lar_cache_put_result lar_cache_put(lar_cache *c, const lar_hash *key, lar_slice value, uint32_t day);
/* A value read from the disk: may go at any time. Never replaces a value that is there. */
void lar_cache_fill(lar_cache *c, const lar_hash *key, lar_slice value, uint32_t day);
/* Appends the value; NOT_FOUND, or what lar_buf_add says. `day` is the day of its last use. */
LAR_MUST_USE lar_error lar_cache_get(lar_cache *c, const lar_hash *key, lar_buf *out, uint32_t *day);

/* -- writer thread ----------------------------------------------------------------------------------- */

/* The newest value of a queued key, with a reference; from here on a put queues it again. */
lar_value *lar_cache_take(lar_cache *c, const lar_hash *key);
/* What lar_cache_take gave is on disk, or given up. */
void lar_cache_written(lar_cache *c, const lar_hash *key);

/* Bytes in all, and those that wait for the disk. */
uint64_t lar_cache_bytes(const lar_cache *c);
uint64_t lar_cache_pinned_bytes(const lar_cache *c);

#endif
