/* The options of all commands that run a model: how it computes. */
#ifndef LARDER_LOCAL_COMPUTE_OPTIONS_H
#define LARDER_LOCAL_COMPUTE_OPTIONS_H

#include "base/slice.h"
#include "engine/engine.h"
#include "gateway/local/local_options.h"

/* As given; NULL: the default. Borrowed. */
typedef struct lar_compute_options {
    const char *threads, *cpu, *activations, *expert_bytes, *kv;
} lar_compute_options;

/* Their rows, where a lar_compute_options lies `at` in the command's options; --kv, which not all have, beside them. */
#define LAR_COMPUTE_ROWS(at)                                                                                           \
    {"--threads", (at) + offsetof(lar_compute_options, threads), LAR_LOCAL_TEXT, 0},                                   \
        {"--cpu", (at) + offsetof(lar_compute_options, cpu), LAR_LOCAL_TEXT, 0},                                       \
        {"--activations", (at) + offsetof(lar_compute_options, activations), LAR_LOCAL_TEXT, 0}, {                     \
        "--expert-bytes", (at) + offsetof(lar_compute_options, expert_bytes), LAR_LOCAL_TEXT, 0                        \
    }

/* What --help says of them; each command prints it behind its own. */
#define LAR_COMPUTE_HELP                                                                                               \
    "  --threads N     that compute (all processors that this process may use)\n"                                      \
    "  --cpu PATH      kernels: auto, avx512, avx2, scalar; or reference, the readable and slow ones (auto)\n"         \
    "  --activations   f32, bf16, int8: rounded so before products; by-type: int8 with weights of a quantised type\n"  \
    "  --expert-bytes SIZE   most memory for experts, as 4G; the others are read from the file when a token needs\n"   \
    "                  them (all are in memory)\n"
#define LAR_COMPUTE_OPTIONS_HELP                                                                                       \
    LAR_COMPUTE_HELP                                                                                                   \
    "  --kv FORMATS    of what is kept of each token: f32, f16, bf16, int8, fp8, int8-128 (f32); by layer as\n"        \
    "                  fp8,0=bf16,24-26=bf16\n"

/* Into threads, cpu, activations, expert_bytes and kv of `engine`; `otherwise` is the default of activations. INVALID
 * with what to do. */
LAR_MUST_USE lar_error lar_compute_options_read(const lar_compute_options *o, lar_activations otherwise,
                                                lar_engine_options *engine, lar_diag *d);

#endif
