/* Responses: events equal for any cut, lengths kept, no crash. Finds: cut-dependent parsing, reads past a piece. */
#include "tests/fuzz/fuzz_http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_http(LAR_HTTP1_RESPONSE, data, size);
    return 0;
}
