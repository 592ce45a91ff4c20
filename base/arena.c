/* Capped bump allocator over a list of malloc'ed blocks.
 * Called by the request path; one thread at a time owns an arena; never blocks.
 * Invariants: 1. `used` never exceeds `limit`. 2. `current` is in the list that starts at `first`.
 * 3. blocks behind `current` are empty. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { ALIGN = 16, BLOCK_BYTES = 8192 };

struct lar_arena_block {
    lar_arena_block *next;
    size_t size, used; /* of data */
    _Alignas(16) char data[];
};

void lar_arena_init(lar_arena *a, size_t limit_bytes) { *a = (lar_arena){.limit = limit_bytes}; }

void lar_arena_release(lar_arena *a) {
    for (lar_arena_block *b = a->first, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    *a = (lar_arena){.limit = a->limit};
}

void lar_arena_reset(lar_arena *a, size_t keep_bytes) {
    size_t kept = 0;
    lar_arena_block **link = &a->first;
    while (*link) {
        lar_arena_block *b = *link;
        if (kept + b->size > keep_bytes) {
            *link = b->next;
            free(b);
            continue;
        }
        kept += b->size;
        b->used = 0;
        link = &b->next;
    }
    a->current = a->first;
    a->used = 0;
}

static lar_arena_block *grow(lar_arena *a, size_t bytes) {
    for (lar_arena_block *b = a->current ? a->current->next : a->first; b; b = b->next) {
        if (b->size >= bytes) {
            a->current = b;
            return b;
        }
    }
    size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
    lar_arena_block *b = malloc(sizeof *b + size);
    if (!b) return NULL;
    *b = (lar_arena_block){.size = size};
    if (a->current) {
        b->next = a->current->next;
        a->current->next = b;
    } else {
        b->next = a->first;
        a->first = b;
    }
    a->current = b;
    return b;
}

void *lar_arena_alloc(lar_arena *a, size_t bytes) {
    if (bytes > a->limit) return NULL;
    size_t need = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (need > a->limit - a->used) return NULL;
    lar_arena_block *b = a->current;
    if (!b || b->size - b->used < need) b = grow(a, need);
    if (!b) return NULL;
    void *p = b->data + b->used;
    b->used += need;
    a->used += need;
    return p;
}

void *lar_arena_zalloc(lar_arena *a, size_t bytes) {
    void *p = lar_arena_alloc(a, bytes);
    return p ? memset(p, 0, bytes) : NULL;
}

lar_slice lar_arena_copy(lar_arena *a, lar_slice s) {
    char *p = lar_arena_alloc(a, s.len + 1);
    if (!p) return (lar_slice){NULL, 0};
    if (s.len) memcpy(p, s.ptr, s.len);
    p[s.len] = 0;
    return lar_slice_of(p, s.len);
}

lar_slice lar_arena_printf(lar_arena *a, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = n < 0 ? NULL : lar_arena_alloc(a, (size_t)n + 1);
    if (!p) return (lar_slice){NULL, 0};
    va_start(ap, fmt);
    (void)vsnprintf(p, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return lar_slice_of(p, (size_t)n);
}
