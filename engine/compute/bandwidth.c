/* Measures read bandwidth: every thread sums its share of a block, as a product reads its share of weights.
 * Called by larder bench-model and tests/bench/engine_bench.c, before and after what they measure: on shared
 * machines it moves within minutes. Blocks for about a second. Memory: one block, written once so that it has pages of
 * its own. */
#include "engine/compute/bandwidth.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"

#ifdef LARDER_SANITIZED
enum { BYTES = 8 << 20 }; /* every read is checked: no figure means anything, and tests need not wait for it */
#else
enum { BYTES = 512 << 20 };
#endif
enum { PASSES = 3, LANES = 32 };

typedef struct block {
    const uint64_t *words;
    uint64_t sums[LAR_WORKERS_MAX]; /* kept, so that no compiler drops the reading */
} block;

static void read_share(void *context, uint32_t part, uint32_t parts) {
    block *b = context;
    uint64_t begin, end, lanes[LANES] = {0};
    lar_workers_share(BYTES / sizeof lanes, part, parts, &begin, &end);
    for (uint64_t i = begin; i < end; i++)
        for (int k = 0; k < LANES; k++) lanes[k] += b->words[i * LANES + (uint64_t)k];
    for (int k = 1; k < LANES; k++) lanes[0] += lanes[k];
    b->sums[part] = lanes[0];
}

lar_error lar_bandwidth_measure(lar_workers *w, double *gb_s, lar_diag *d) {
    enum { LARGE_PAGE = 2 << 20 };
    void *memory = aligned_alloc(LARGE_PAGE, BYTES);
    block *b = calloc(1, sizeof *b);
    *gb_s = 0;
    if (!memory || !b) {
        free(memory), free(b);
        return lar_fail(LAR_NO_MEMORY, d, "no memory for %d MiB to read", BYTES >> 20);
    }
    (void)madvise(memory, BYTES, MADV_HUGEPAGE); /* as repacked weights lie */
    memset(memory, 1, BYTES);
    b->words = memory;
    for (int i = 0; i < PASSES; i++) {
        uint64_t start = lar_clock_mono_ns();
        lar_workers_run(w, read_share, b);
        double now = (double)BYTES / (double)(lar_clock_mono_ns() - start + 1);
        if (now > *gb_s) *gb_s = now;
    }
    free(memory), free(b);
    return LAR_OK;
}
