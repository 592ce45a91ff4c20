/* A team of worker threads that does one thing at a time: each thread a fixed share of it, or items as they come. */
#ifndef LARDER_ENGINE_COMPUTE_WORKERS_H
#define LARDER_ENGINE_COMPUTE_WORKERS_H

#include <stdint.h>

#include "base/error.h"

enum { LAR_WORKERS_MAX = 256 };

typedef struct lar_workers lar_workers;
/* Share `part` of `parts`, 0 to parts - 1. Runs at the same time as the other shares, so it writes only what no other
 * share touches. */
typedef void (*lar_workers_work)(void *context, uint32_t part, uint32_t parts);

/* A team of `count` (1 to LAR_WORKERS_MAX): the caller and count - 1 threads. One needs no thread at all.
 * Owned by the caller, who ends it with lar_workers_stop. LAR_INVALID: a wrong count; LAR_NO_MEMORY; LAR_IO: the system
 * gave no thread. */
LAR_MUST_USE lar_error lar_workers_start(uint32_t count, lar_workers **out, lar_diag *d);
/* Ends the threads and frees the team; NULL is allowed. Not while work runs. */
void lar_workers_stop(lar_workers *t);
uint32_t lar_workers_count(const lar_workers *t);

/* Does `work` once for each part and returns when all are done: what the parts wrote can be read then. The caller does
 * part 0. Allocates nothing. One caller at a time. */
void lar_workers_run(lar_workers *t, lar_workers_work work, void *context);

/* One item of a work; runs at the same time as others, so it writes only what no other item touches. */
typedef void (*lar_workers_item)(void *context, uint64_t item);
/* Does `work` once for each item from 0 to total - 1 and returns when all are done. Every part begins with a share of
 * neighbours, in ascending order, and then does what others have not begun: whoever is held up holds up nobody. */
void lar_workers_each(lar_workers *t, uint64_t total, lar_workers_item work, void *context);

/* The share of `total` items that belongs to `part`: from *begin to before *end. Shares differ by at most one. */
void lar_workers_share(uint64_t total, uint32_t part, uint32_t parts, uint64_t *begin, uint64_t *end);

#endif
