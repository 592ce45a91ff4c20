/* Formats of latents by layer: any text.
 * 1. what is refused has a message; 2. what is taken fills every layer with a format; 3. what is printed of it is read
 * back to the same, and is not longer than what was given. */
#include <stdlib.h>
#include <string.h>

#include "engine/cache/kv_layers.h"
#include "tests/fuzz/fuzz.h"

enum { LAYERS_MAX = 300 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    uint32_t layers = 1 + data[0];
    uint8_t kv[LAYERS_MAX], back[LAYERS_MAX];
    lar_diag d = {0};
    char *text = calloc(size, 1);
    memcpy(text, data + 1, size - 1);
    if (lar_kv_layers_parse(text, layers, kv, &d)) {
        FUZZ_CHECK(*d.text);
        free(text);
        return 0;
    }
    for (uint32_t i = 0; i < layers; i++) FUZZ_CHECK(kv[i] < LAR_KV_COUNT);
    char *shortest = lar_kv_layers_text(kv, layers);
    FUZZ_CHECK(shortest && strlen(shortest) <= strlen(text));
    FUZZ_CHECK(!lar_kv_layers_parse(shortest, layers, back, &d) && memcmp(kv, back, layers) == 0);
    free(shortest);
    free(text);
    return 0;
}
