/* Offsets of scratch buffers from their lifetimes: the largest first, each into the tightest gap that holds it.
 * Flow: engine/model/forward.c calls once for a model. Any thread; never blocks; no memory but the stack.
 * Why: neighbours in time share memory, so that what is touched stays in the cache; nothing is allocated later.
 * Source: Pisarchyk and Lee 2020, "Efficient Memory Management for Deep Neural Net Inference", greedy by size.
 * Invariant: two buffers that live in one step do not overlap. */
#include "engine/compute/scratch.h"

#include <stdbool.h>

static uint64_t padded(uint64_t bytes) {
    return (bytes + LAR_SCRATCH_ALIGN - 1) / LAR_SCRATCH_ALIGN * LAR_SCRATCH_ALIGN;
}

static bool meet(const lar_scratch_buffer *a, const lar_scratch_buffer *b) {
    return a->first <= b->last && b->first <= a->last;
}

/* The tightest gap between the placed buffers that live at the same time as b; else behind the last of them.
 * `placed` is in order of offset. */
static uint64_t find_gap(const lar_scratch_buffer *b, lar_scratch_buffer *const *placed, uint32_t count) {
    uint64_t end = 0, best = UINT64_MAX, best_room = UINT64_MAX, need = padded(b->bytes);
    for (uint32_t i = 0; i < count; i++) {
        const lar_scratch_buffer *p = placed[i];
        if (!meet(b, p)) continue;
        if (p->offset > end && p->offset - end >= need && p->offset - end < best_room)
            best = end, best_room = p->offset - end;
        if (p->offset + padded(p->bytes) > end) end = p->offset + padded(p->bytes);
    }
    return best == UINT64_MAX ? end : best;
}

static void place(lar_scratch_buffer *b, lar_scratch_buffer **placed, uint32_t count) {
    b->offset = find_gap(b, placed, count);
    uint32_t at = count;
    for (; at && placed[at - 1]->offset > b->offset; at--) placed[at] = placed[at - 1];
    placed[at] = b;
}

static uint64_t alive_at(const lar_scratch_buffer *buffers, uint32_t count, uint32_t step) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        if (buffers[i].first <= step && step <= buffers[i].last) sum += padded(buffers[i].bytes);
    return sum;
}

lar_error lar_scratch_plan(lar_scratch_buffer *buffers, uint32_t count, lar_scratch_report *report, lar_diag *d) {
    lar_scratch_buffer *placed[LAR_SCRATCH_BUFFERS_MAX];
    bool done[LAR_SCRATCH_BUFFERS_MAX] = {0};
    if (count > LAR_SCRATCH_BUFFERS_MAX) return lar_fail(LAR_LIMIT, d, "%u scratch buffers are too many", count);
    *report = (lar_scratch_report){0};
    for (uint32_t i = 0; i < count; i++) {
        if (buffers[i].bytes > UINT64_C(1) << 55)
            return lar_fail(LAR_LIMIT, d, "scratch buffer '%s' is too large", buffers[i].name);
        report->sum += padded(buffers[i].bytes);
    }
    for (uint32_t n = 0; n < count; n++) {
        uint32_t largest = count;
        for (uint32_t i = 0; i < count; i++)
            if (!done[i] && (largest == count || buffers[i].bytes > buffers[largest].bytes)) largest = i;
        done[largest] = true;
        place(&buffers[largest], placed, n);
        uint64_t end = buffers[largest].offset + padded(buffers[largest].bytes);
        if (end > report->bytes) report->bytes = end;
        uint64_t alive = alive_at(buffers, count, buffers[largest].first);
        if (alive > report->peak) report->peak = alive;
    }
    return LAR_OK;
}
