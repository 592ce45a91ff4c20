/* The fast kernels behind matmul.h. */
#ifndef LARDER_ENGINE_COMPUTE_PANEL_MATMUL_H
#define LARDER_ENGINE_COMPUTE_PANEL_MATMUL_H

#include "engine/compute/cpu.h"
#include "engine/compute/matmul.h"

/* Kernels over repacked weights, of one path; `path` must be one that this processor runs (lar_cpu_choose). They read
 * every type; prepare takes about the tensor's own size in memory, and the tensor is not read after it. All paths give
 * the same bits. */
const lar_kernels *lar_kernels_panels(lar_cpu path);

#endif
