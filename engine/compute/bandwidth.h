/* How fast memory can be read, to hold a benchmark against. */
#ifndef LARDER_ENGINE_COMPUTE_BANDWIDTH_H
#define LARDER_ENGINE_COMPUTE_BANDWIDTH_H

#include "base/error.h"
#include "engine/compute/workers.h"

/* Gigabytes (10^9) a second that the team reads together from memory far larger than caches: the best of three passes
 * over 512 MiB, taken and given back here. NO_MEMORY. */
LAR_MUST_USE lar_error lar_bandwidth_measure(lar_workers *w, double *gb_s, lar_diag *d);

#endif
