/* Rounding as the formats are defined, in double precision; nothing of the engine's code is used. */
#include "tests/unit_engine/model/rounded_row.h"

#include <float.h>
#include <math.h>

double rounded_number(double x, int digits, int least, double most) {
    int exponent = x == 0 || ilogb(x) < least ? least : ilogb(x);
    double unit = ldexp(1, exponent - digits), r = nearbyint(x / unit) * unit;
    return r > most ? most : r < -most ? -most : r;
}

static double f16(double x) { return rounded_number(x, 10, -14, 65504); }
static double bf16(double x) { return rounded_number(x, 7, -126, ldexp(255, 120)); }

static double largest(const float *x, uint32_t n) {
    double most = 0;
    for (uint32_t i = 0; i < n; i++) most = fmax(most, fabs((double)x[i]));
    return most;
}

static void fp8(float *x, uint32_t n) {
    double scale = exp2(ceil(log2(fmax(largest(x, n), (double)1e-4f) / 448)));
    for (uint32_t i = 0; i < n; i++) x[i] = (float)(rounded_number(x[i] / scale, 3, -6, 448) * scale);
}

static void int8(float *x, uint32_t n) {
    double scale = f16((double)(float)(largest(x, n) / 127)); /* the quotients are those of float32 */
    for (uint32_t i = 0; i < n; i++) {
        double q = scale > 0 ? nearbyint((double)(float)(x[i] / scale)) : 0;
        x[i] = (float)(fmax(-127, fmin(127, q)) * scale);
    }
}

void rounded_row(lar_kv kv, uint32_t rank, uint32_t rope, float *row) {
    uint32_t group = kv == LAR_KV_INT8 ? 32 : 128, all = rank + rope;
    if (kv == LAR_KV_F32) return;
    if (kv == LAR_KV_F16 || kv == LAR_KV_BF16) {
        for (uint32_t i = 0; i < all; i++) row[i] = (float)(kv == LAR_KV_F16 ? f16(row[i]) : bf16(row[i]));
        return;
    }
    for (uint32_t at = 0; at < rank; at += group) {
        uint32_t n = rank - at < group ? rank - at : group;
        if (kv == LAR_KV_FP8) fp8(row + at, n);
        else int8(row + at, n);
    }
    for (uint32_t i = rank; i < all; i++) row[i] = (float)bf16(row[i]);
}
