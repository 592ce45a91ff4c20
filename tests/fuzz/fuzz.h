/* What every fuzzer defines: one input, any bytes, no state kept between calls. A finding is an abort. */
#ifndef LARDER_TESTS_FUZZ_H
#define LARDER_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_CHECK(cond)                                                                                               \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            (void)fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #cond);                             \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
