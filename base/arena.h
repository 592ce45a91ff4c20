/* Capped bump allocator: a request's memory, freed in one go.
 * Blocks come from malloc and are kept on reset, so a steady load allocates nothing. */
#ifndef LARDER_BASE_ARENA_H
#define LARDER_BASE_ARENA_H

#include <stddef.h>

#include "base/error.h"
#include "base/slice.h"

typedef struct lar_arena_block lar_arena_block;

typedef struct lar_arena {
    lar_arena_block *first, *current;
    size_t used;  /* bytes handed out since the last reset, padding included */
    size_t limit; /* bytes; an allocation over it returns NULL */
} lar_arena;

/* Embedded. No memory is taken before the first allocation. */
void lar_arena_init(lar_arena *a, size_t limit_bytes);
/* Frees every block; the arena may be initialised again. */
void lar_arena_release(lar_arena *a);
/* Everything allocated so far is invalid; keeps at most `keep_bytes` of blocks for reuse. */
void lar_arena_reset(lar_arena *a, size_t keep_bytes);

/* Uninitialised memory aligned to 16, owned by the arena; NULL over the limit or when out of memory. */
void *lar_arena_alloc(lar_arena *a, size_t bytes);
/* Zeroed; NULL likewise. */
void *lar_arena_zalloc(lar_arena *a, size_t bytes);
/* A copy with a NUL behind it; ptr is NULL when out of memory. */
lar_slice lar_arena_copy(lar_arena *a, lar_slice s);
/* Formatted text, NUL-terminated; ptr is NULL when out of memory. */
lar_slice lar_arena_printf(lar_arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
