/* Plans the scratch memory of a forward pass once: buffers with known lifetimes share one block. */
#ifndef LARDER_ENGINE_COMPUTE_SCRATCH_H
#define LARDER_ENGINE_COMPUTE_SCRATCH_H

#include <stdint.h>

#include "base/error.h"

enum { LAR_SCRATCH_ALIGN = 64, LAR_SCRATCH_BUFFERS_MAX = 64 };

/* Lives from step `first` to step `last`, both included; steps are the caller's own count. */
typedef struct lar_scratch_buffer {
    const char *name;
    uint64_t bytes; /* 0: not needed */
    uint32_t first, last;
    uint64_t offset; /* the plan's answer, a multiple of LAR_SCRATCH_ALIGN */
} lar_scratch_buffer;

typedef struct lar_scratch_report {
    uint64_t bytes; /* of the block */
    uint64_t peak;  /* most bytes alive in one step: no plan needs less */
    uint64_t sum;   /* of all buffers: what it would be without sharing */
} lar_scratch_report;

/* Fills every offset: two buffers that live in one step never overlap. LIMIT over LAR_SCRATCH_BUFFERS_MAX buffers or
 * where the sum does not fit into 2^62 bytes. */
LAR_MUST_USE lar_error lar_scratch_plan(lar_scratch_buffer *buffers, uint32_t count, lar_scratch_report *report,
                                        lar_diag *d);

#endif
