/* One round of an HTTP fuzzer: the same bytes whole, byte by byte and in random pieces must give the same events. */
#ifndef LARDER_TESTS_FUZZ_HTTP_H
#define LARDER_TESTS_FUZZ_HTTP_H

#include "tests/unit_http1/http1_play.h"

static inline void fuzz_http_round(http1_play y, lar_slice in, uint64_t seed) {
    const cuts ways[] = {{.kind = CUT_NONE}, {.kind = CUT_BYTES}, {.kind = CUT_RANDOM, .seed = seed}};
    lar_buf first, other;
    y.full = true;
    lar_buf_init(&first, 64 << 20);
    play(&y, in, ways[0], &first);
    for (size_t i = 1; i < sizeof ways / sizeof *ways; i++) {
        lar_buf_init(&other, 64 << 20);
        play(&y, in, ways[i], &other);
        PLAY_CHECK(lar_slice_eq(lar_buf_slice(&first), lar_buf_slice(&other)));
        lar_buf_release(&other);
    }
    lar_buf_release(&first);
}

/* Chooses limits and cuts from the input itself, so that corpus files are plain HTTP. */
static inline void fuzz_http(lar_http1_type type, const uint8_t *data, size_t size) {
    uint64_t seed = 1469598103934665603u;
    for (size_t i = 0; i < size; i++) seed = (seed ^ data[i]) * 1099511628211u;
    http1_play y = {.type = type,
                    .limits = PLAY_LIMITS,
                    .close = true,
                    .to_head = type == LAR_HTTP1_RESPONSE && seed % 5 == 0};
    if (seed % 3 == 0) y.limits = (lar_http1_limits){.head_bytes_max = 100, .fields_max = 4, .body_bytes_max = 20};
    fuzz_http_round(y, lar_slice_of((const char *)data, size), seed);
}

#endif
