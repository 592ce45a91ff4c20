/* Any bytes as a GGUF file: it is refused, with a message that names it, or every tensor lies inside the file and can
 * be read, and so can every value of the metadata, by the reader of its kind and by all others, which must refuse it.
 * Memory: exactly the input's bytes, so that one too far shows; everything is freed before the return. */
#include <string.h>

#include "engine/files/gguf.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_tensors.h"

static bool inside(const lar_file_view *v, const void *p, uint64_t n) {
    const uint8_t *at = p;
    return n == 0 || (at >= v->bytes && at <= v->bytes + v->size && n <= (uint64_t)(v->bytes + v->size - at));
}

/* Exactly one of the kinds takes it; an integer is read as a float too, and a list of integers as one of floats. */
static void read_value(const lar_gguf *g, const lar_file_view *v, const char *key, const lar_gguf_value *value) {
    uint64_t u;
    double x;
    bool b;
    lar_slice s;
    lar_gguf_strings strings;
    const lar_gguf_value *list;
    int taken = 0;
    if (!lar_gguf_string(g, key, &s, NULL)) {
        taken += 1;
        FUZZ_CHECK(inside(v, s.ptr, s.len));
    }
    if (!lar_gguf_u64(g, key, &u, NULL)) FUZZ_CHECK(!lar_gguf_f64(g, key, &x, NULL));
    if (!lar_gguf_f64(g, key, &x, NULL)) taken += 1;
    if (!lar_gguf_bool(g, key, &b, NULL)) taken += 1;
    if (!lar_gguf_strings_of(g, key, &strings, NULL)) {
        taken += 1;
        uint64_t n = 0;
        for (; lar_gguf_strings_next(&strings, &s); n++) FUZZ_CHECK(inside(v, s.ptr, s.len));
        FUZZ_CHECK(n == value->count);
    }
    if (!lar_gguf_list(g, key, LAR_GGUF_INTEGERS, &list, NULL))
        for (uint64_t i = 0; i < list->count; i++) (void)lar_gguf_integer_at(list, i);
    if (!lar_gguf_list(g, key, LAR_GGUF_FLOATS, &list, NULL)) {
        taken += 1;
        for (uint64_t i = 0; i < list->count; i++) (void)lar_gguf_float_at(list, i);
    }
    FUZZ_CHECK(taken == 1);
}

static void read_values(const lar_gguf *g, const lar_file_view *v) {
    for (uint32_t i = 0; i < g->count && i < 1000; i++) {
        lar_slice key = g->values[i].key;
        char *name = malloc(key.len + 1);
        if (!name) abort();
        memcpy(name, key.ptr, key.len);
        name[key.len] = 0;
        FUZZ_CHECK(lar_gguf_find(g, name) == &g->values[i]);
        read_value(g, v, name, &g->values[i]);
        free(name);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *exact = fuzz_exact(data, size);
    lar_file_view v = {.name = "f", .bytes = exact, .size = size};
    lar_tensor_list l;
    lar_gguf g;
    lar_diag d = {0};
    lar_tensor_list_init(&l);
    lar_error e = lar_gguf_read(&v, &g, &l, &d);
    if (e) FUZZ_CHECK(!strncmp(d.text, "f: ", 3));
    else {
        fuzz_tensors(&l, &v);
        read_values(&g, &v);
    }
    lar_gguf_release(&g);
    lar_tensor_list_release(&l);
    free(exact);
    return 0;
}
