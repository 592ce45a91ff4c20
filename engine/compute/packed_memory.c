/* Memory for repacked weights (header: packed_memory.h).
 * Flow: engine/model/weights.c takes while a model is opened. One thread; blocks on nothing but the kernel's mmap.
 * Why not malloc: a matrix of an expert is smaller than a large page, and alone never gets one. A decoded token reads
 * a few of many such matrices, a gigabyte and more in all, and looks up addresses of small pages meanwhile. Side by
 * side in one mapping all of them lie on large pages.
 * Memory: mappings of BLOCK bytes, or as large as what is asked for; of the last only what is used is backed. */
#include "engine/compute/packed_memory.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { LARGE_PAGE = 2 << 20, BLOCK = 256 << 20, ALIGN = 64 };

typedef struct lar_packed_block {
    struct lar_packed_block *older;
    void *map;
    uint64_t map_bytes;
} lar_packed_block;

static uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

/* A block with room for `bytes`, which begins at a large page. */
static lar_packed_block *map_block(uint64_t bytes) {
    lar_packed_block *b = calloc(1, sizeof *b);
    if (!b) return NULL;
    b->map_bytes = round_up(bytes < BLOCK ? BLOCK : bytes, LARGE_PAGE) + LARGE_PAGE;
    b->map = mmap(NULL, b->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->map == MAP_FAILED) {
        free(b);
        return NULL;
    }
    (void)madvise(b->map, b->map_bytes, MADV_HUGEPAGE); /* without it: only slower */
    return b;
}

void *lar_packed_memory_take(lar_packed_memory *m, uint64_t bytes) {
    if (bytes > UINT64_MAX / 2) return NULL;
    bytes = round_up(bytes, ALIGN);
    if (bytes > m->left) {
        lar_packed_block *b = map_block(bytes);
        if (!b) return NULL;
        b->older = m->blocks;
        m->blocks = b;
        m->next = (uint8_t *)round_up((uintptr_t)b->map, LARGE_PAGE);
        m->left = b->map_bytes - (uint64_t)(m->next - (uint8_t *)b->map);
    }
    void *taken = m->next;
    m->next += bytes;
    m->left -= bytes;
    return taken;
}

void lar_packed_memory_release(lar_packed_memory *m) {
    while (m->blocks) {
        lar_packed_block *b = m->blocks;
        m->blocks = b->older;
        (void)munmap(b->map, b->map_bytes);
        free(b);
    }
    *m = (lar_packed_memory){0};
}
