/* Chooses among the paths of the kernels. Called once when an engine opens; reads CPUID, keeps nothing.
 * The feature lists must hold what the compiler flags in CMakeLists.txt allow it to use, no less. */
#include "engine/compute/cpu.h"

#include <stdbool.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const char *const names[LAR_CPU_COUNT] = {
    [LAR_CPU_SCALAR] = "scalar", [LAR_CPU_AVX2] = "avx2", [LAR_CPU_AVX512] = "avx512"};

const char *lar_cpu_name(lar_cpu path) { return names[path]; }

#if defined(__x86_64__)
/* clang 14's __builtin_cpu_supports does not know f16c. */
static bool has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

lar_cpu lar_cpu_best(void) {
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c()) return LAR_CPU_SCALAR;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
        __builtin_cpu_supports("avx512vnni"))
        return LAR_CPU_AVX512;
    return LAR_CPU_AVX2;
#else
    return LAR_CPU_SCALAR;
#endif
}

lar_error lar_cpu_choose(const char *name, lar_cpu *path, lar_diag *d) {
    lar_cpu best = lar_cpu_best();
    if (!name || !*name || strcmp(name, "auto") == 0) {
        *path = best;
        return LAR_OK;
    }
    for (int i = 0; i < LAR_CPU_COUNT; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        if ((lar_cpu)i > best)
            return lar_fail(LAR_INVALID, d, "this processor cannot run the path '%s'; it can run '%s'", names[i],
                            names[best]);
        *path = (lar_cpu)i;
        return LAR_OK;
    }
    return lar_fail(LAR_INVALID, d, "no path '%.40s'; choose auto, scalar, avx2, avx512 or reference", name);
}
