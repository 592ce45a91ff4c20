/* What must hold of every list of tensors that a reader accepted. */
#ifndef LARDER_TESTS_FUZZ_TENSORS_H
#define LARDER_TESTS_FUZZ_TENSORS_H

#include <stdlib.h>
#include <string.h>

#include "engine/files/tensor_list.h"
#include "tests/fuzz/fuzz.h"

static inline uint8_t *fuzz_exact(const uint8_t *data, size_t size) {
    uint8_t *exact = malloc(size ? size : 1);
    if (!exact) abort();
    if (size) memcpy(exact, data, size);
    return exact;
}

/* Tensors lie in the file, one behind the other; the first and the last row of each can be read. */
static inline void fuzz_tensors(const lar_tensor_list *l, const lar_file_view *v) {
    uint64_t all = 0;
    for (uint32_t i = 0; i < l->count; i++) {
        const lar_tensor *t = &l->items[i];
        FUZZ_CHECK(t->dims >= 1 && t->dims <= LAR_TENSOR_DIMS && strlen(t->name) >= 1);
        FUZZ_CHECK(t->data >= v->bytes && t->bytes <= v->size - (uint64_t)(t->data - v->bytes));
        all += t->bytes;
        float *row = malloc(lar_tensor_row_elements(t) * sizeof *row);
        if (!row) abort();
        lar_tensor_row(t, 0, row);
        lar_tensor_row(t, lar_tensor_rows(t) - 1, row);
        free(row);
    }
    FUZZ_CHECK(all <= v->size);
}

#endif
