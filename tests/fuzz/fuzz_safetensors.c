/* Any bytes as a safetensors file: it is refused, with a message that names it, or every tensor lies inside the file
 * and can be read. Memory: exactly the input's bytes, so that one too far shows; everything is freed before the return.
 * */
#include <string.h>

#include "engine/files/safetensors.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_tensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *exact = fuzz_exact(data, size);
    lar_file_view v = {.name = "f", .bytes = exact, .size = size};
    lar_tensor_list l;
    lar_diag d = {0};
    lar_tensor_list_init(&l);
    lar_error e = lar_safetensors_read(&v, &l, &d);
    if (e) FUZZ_CHECK(!strncmp(d.text, "f: ", 3));
    else fuzz_tensors(&l, &v);
    lar_tensor_list_release(&l);
    free(exact);
    return 0;
}
