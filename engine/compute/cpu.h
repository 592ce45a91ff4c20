/* Which kernels this processor can run, and which were asked for. */
#ifndef LARDER_ENGINE_COMPUTE_CPU_H
#define LARDER_ENGINE_COMPUTE_CPU_H

#include "base/error.h"

/* In order of speed. AVX2 means AVX2, FMA and F16C; AVX512 means F, BW, DQ, VL, VBMI and VNNI. */
typedef enum lar_cpu { LAR_CPU_SCALAR, LAR_CPU_AVX2, LAR_CPU_AVX512, LAR_CPU_COUNT } lar_cpu;

/* "scalar", "avx2", "avx512". */
const char *lar_cpu_name(lar_cpu path);
/* The fastest path that this processor runs, by CPUID. */
lar_cpu lar_cpu_best(void);
/* `name` as given by a person; NULL, "" and "auto" mean the best. Another word, or a path that this processor cannot
 * run, is LAR_INVALID with the choices in `d`. */
LAR_MUST_USE lar_error lar_cpu_choose(const char *name, lar_cpu *path, lar_diag *d);

#endif
