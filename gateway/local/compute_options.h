/* The options of all commands that run a model: how it computes. */
#ifndef LARDER_LOCAL_COMPUTE_OPTIONS_H
#define LARDER_LOCAL_COMPUTE_OPTIONS_H

#include "base/slice.h"
#include "engine/engine.h"

/* As given; NULL: the default. Borrowed. */
typedef struct lar_compute_options {
    const char *threads, *cpu, *activations, *kv;
} lar_compute_options;

/* What --help says of them; each command prints it behind its own. */
#define LAR_COMPUTE_OPTIONS_HELP                                                                                       \
    "  --threads N     that compute (all processors that this process may use)\n"                                      \
    "  --cpu PATH      kernels: auto, avx512, avx2, scalar; or reference, the readable and slow ones (auto)\n"         \
    "  --activations   f32, bf16, int8: rounded so before products; by-type: int8 with weights of a quantised type\n"  \
    "  --kv FORMATS    of what is kept of each token: f32, f16, bf16, int8, fp8, int8-128 (f32); by layer as\n"        \
    "                  fp8,0=bf16,24-26=bf16\n"

/* Where the value of `--NAME` belongs; NULL: not one of these options. */
const char **lar_compute_options_find(lar_compute_options *o, lar_slice name);
/* Into threads, cpu, activations and kv of `engine`; `otherwise` is the default of activations. INVALID with what to
 * do. */
LAR_MUST_USE lar_error lar_compute_options_read(const lar_compute_options *o, lar_activations otherwise,
                                                lar_engine_options *engine, lar_diag *d);

#endif
