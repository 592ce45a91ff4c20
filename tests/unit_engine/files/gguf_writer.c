/* The test writer of GGUF. Called by tests and by write_model. Source: the GGUF specification (ggml, docs/gguf.md).
 * Not here: what a model's metadata must be (model_maker.c). */
#include "tests/unit_engine/files/gguf_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/files/gguf.h"
#include "engine/files/tensor_list.h"

enum { BYTES_MAX = 1 << 28 };

void put_bytes(lar_buf *b, const void *bytes, size_t len) {
    if (lar_buf_add(b, bytes, len)) abort();
}

void put_number(lar_buf *b, uint64_t v, unsigned width) {
    uint8_t le[8];
    for (unsigned i = 0; i < 8; i++) le[i] = (uint8_t)(v >> (8 * i));
    put_bytes(b, le, width);
}

void put_zeros(lar_buf *b, uint64_t n) {
    if (lar_buf_reserve(b, n)) abort();
    memset(b->ptr + b->len, 0, n);
    b->len += n;
}

static void put_text(lar_buf *b, lar_slice s) {
    put_number(b, s.len, 8);
    put_bytes(b, s.ptr, s.len);
}

void gguf_writer_init(gguf_writer *w) {
    *w = (gguf_writer){.version = 3, .alignment = 32};
    lar_buf_init(&w->values, BYTES_MAX);
    lar_buf_init(&w->infos, BYTES_MAX);
}

void gguf_writer_release(gguf_writer *w) {
    lar_buf_release(&w->values);
    lar_buf_release(&w->infos);
}

void gguf_put_raw(gguf_writer *w, const char *key, uint32_t type, const void *bytes, size_t len) {
    put_text(&w->values, lar_slice_cstr(key));
    put_number(&w->values, type, 4);
    put_bytes(&w->values, bytes, len);
    w->value_count++;
}

void gguf_put_u32(gguf_writer *w, const char *key, uint32_t v) {
    gguf_put_raw(w, key, LAR_GGUF_U32, NULL, 0);
    put_number(&w->values, v, 4);
}

void gguf_put_f32(gguf_writer *w, const char *key, float v) {
    uint32_t bits;
    memcpy(&bits, &v, 4);
    gguf_put_raw(w, key, LAR_GGUF_F32, NULL, 0);
    put_number(&w->values, bits, 4);
}

void gguf_put_bool(gguf_writer *w, const char *key, bool v) { gguf_put_raw(w, key, LAR_GGUF_BOOL, v ? "\1" : "\0", 1); }

void gguf_put_string(gguf_writer *w, const char *key, const char *v) {
    gguf_put_raw(w, key, LAR_GGUF_STRING, NULL, 0);
    put_text(&w->values, lar_slice_cstr(v));
}

void gguf_put_list(gguf_writer *w, const char *key, uint32_t element_type, uint64_t n, lar_slice bytes) {
    gguf_put_raw(w, key, LAR_GGUF_ARRAY, NULL, 0);
    put_number(&w->values, element_type, 4);
    put_number(&w->values, n, 8);
    put_bytes(&w->values, bytes.ptr, bytes.len);
}

void gguf_put_strings(gguf_writer *w, const char *key, const char *const *v, uint64_t n) {
    gguf_put_list(w, key, LAR_GGUF_STRING, n, lar_slice_of(NULL, 0));
    for (uint64_t i = 0; i < n; i++) put_text(&w->values, lar_slice_cstr(v[i]));
}

void gguf_put_claim(gguf_writer *w, lar_slice name, uint32_t type, uint32_t dims, const uint64_t *ne, uint64_t offset) {
    put_text(&w->infos, name);
    put_number(&w->infos, dims, 4);
    for (uint32_t i = 0; i < dims; i++) put_number(&w->infos, ne[i], 8);
    put_number(&w->infos, type, 4);
    put_number(&w->infos, offset, 8);
    w->tensor_count++;
}

uint64_t gguf_put_tensor(gguf_writer *w, const char *name, lar_dtype type, uint32_t dims, const uint64_t *shape) {
    const lar_dtype_info *info = lar_dtype_info_of(type);
    uint64_t ne[LAR_TENSOR_DIMS], elements = 1;
    for (uint32_t i = 0; i < dims; i++) {
        ne[i] = shape[dims - 1 - i];
        elements *= ne[i];
    }
    gguf_put_claim(w, lar_slice_cstr(name), (uint32_t)info->gguf, dims, ne, w->data_bytes);
    uint64_t bytes = elements / info->block_elements * info->block_bytes;
    w->data_bytes += (bytes + w->alignment - 1) / w->alignment * w->alignment;
    return bytes;
}

void gguf_header(const gguf_writer *w, lar_buf *out) {
    size_t start = out->len;
    put_bytes(out, "GGUF", 4);
    put_number(out, w->version, 4);
    put_number(out, w->tensor_count, 8);
    put_number(out, w->value_count, 8);
    put_bytes(out, w->values.ptr, w->values.len);
    put_bytes(out, w->infos.ptr, w->infos.len);
    put_zeros(out, (w->alignment - (out->len - start) % w->alignment) % w->alignment);
}

void gguf_write_zeros(const gguf_writer *w, const char *path) {
    lar_buf out;
    lar_buf_init(&out, BYTES_MAX);
    gguf_header(w, &out);
    put_zeros(&out, w->data_bytes);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(out.ptr, 1, out.len, f) != out.len || fclose(f)) abort();
    lar_buf_release(&out);
}
