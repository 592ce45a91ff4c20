/* What a format leaves of a row of the latent cache, computed in double and without its bytes: for tests. */
#ifndef LARDER_TESTS_ROUNDED_ROW_H
#define LARDER_TESTS_ROUNDED_ROW_H

#include "engine/files/kv_format.h"

/* The nearest number of `digits` binary digits behind the first, with exponents from `least` on and magnitude up to
 * `most`; of two as near the even one. */
double rounded_number(double x, int digits, int least, double most);
/* `row` (rank + rope) of finite values, rounded where it is. */
void rounded_row(lar_kv kv, uint32_t rank, uint32_t rope, float *row);

#endif
