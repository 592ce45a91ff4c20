/* Any bytes as a model's output: the same events for every cut, whole characters only, and content that was not read as
 * calls or marks is all there. Input: one byte of options, then the output. */
#include "engine/text/output_stream.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit_engine/text/output_play.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    static const lar_slice stops[] = {{"STOP", 4}, {"\n\nUser:", 7}, {"<｜", 4}};
    const lar_output_options options = {
        .format = (lar_output_format)(data[0] & 3),
        .arguments = data[0] & 4 ? LAR_OUTPUT_CALLS_STREAM : LAR_OUTPUT_CALLS_WHOLE,
        .reasoning_begin = data[0] & 8 ? LAR_SLICE("<think>") : (lar_slice){0},
        .reasoning_end = data[0] & 8 ? LAR_SLICE("</think>") : (lar_slice){0},
        .reasoning_open = data[0] & 16,
        .stops = stops,
        .stop_count = data[0] >> 5 & 3,
    };
    lar_slice text = lar_slice_of((const char *)data + 1, size - 1);
    uint64_t seed = 1469598103934665603u;
    for (size_t i = 0; i < size; i++) seed = (seed ^ data[i]) * 1099511628211u;
    const output_cuts ways[] = {{.at = SIZE_MAX}, {.seed = seed | 1}, {.at = text.len ? (size_t)(seed % text.len) : 0}};
    lar_buf whole = output_play_text(text, &options, (output_cuts){.at = 0});
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        lar_buf cut = output_play_text(text, &options, ways[i]);
        FUZZ_CHECK(lar_slice_eq(lar_buf_slice(&whole), lar_buf_slice(&cut)));
        lar_buf_release(&cut);
    }
    lar_buf_release(&whole);
    return 0;
}
