/* Writes GGUF headers in memory, good ones and, field by field, bad ones. Out of memory: the program ends. */
#ifndef LARDER_TESTS_GGUF_WRITER_H
#define LARDER_TESTS_GGUF_WRITER_H

#include "base/buf.h"
#include "engine/files/tensor.h"

typedef struct gguf_writer {
    lar_buf values, infos;
    uint64_t value_count, tensor_count, data_bytes; /* counts may be changed before the end */
    uint32_t version;                               /* 3 */
    uint32_t alignment;                             /* 32; general.alignment is up to the caller */
} gguf_writer;

void gguf_writer_init(gguf_writer *w);
void gguf_writer_release(gguf_writer *w);
void gguf_put_u32(gguf_writer *w, const char *key, uint32_t v);
void gguf_put_f32(gguf_writer *w, const char *key, float v);
void gguf_put_bool(gguf_writer *w, const char *key, bool v);
void gguf_put_string(gguf_writer *w, const char *key, const char *v);
void gguf_put_strings(gguf_writer *w, const char *key, const char *const *v, uint64_t n);
/* A value of any type, its bytes given; a list: with the type of its elements (LAR_GGUF_...) and their number. */
void gguf_put_raw(gguf_writer *w, const char *key, uint32_t type, const void *bytes, size_t len);
void gguf_put_list(gguf_writer *w, const char *key, uint32_t element_type, uint64_t n, lar_slice bytes);
/* `shape` row-major; the place is the next free one. Returns its bytes, which follow padded to the alignment. */
uint64_t gguf_put_tensor(gguf_writer *w, const char *name, lar_dtype type, uint32_t dims, const uint64_t *shape);
/* Any claim at all: `ne` as GGUF has it, innermost first. */
void gguf_put_claim(gguf_writer *w, lar_slice name, uint32_t type, uint32_t dims, const uint64_t *ne, uint64_t offset);
/* The header with its padding, added to `out`. */
void gguf_header(const gguf_writer *w, lar_buf *out);
/* The header and then zeros for all tensors, as the file `path`. */
void gguf_write_zeros(const gguf_writer *w, const char *path);

/* Any bytes to a buffer of a test, little-endian numbers too; ends the program when memory is short. */
void put_bytes(lar_buf *b, const void *bytes, size_t len);
void put_number(lar_buf *b, uint64_t v, unsigned width);
void put_zeros(lar_buf *b, uint64_t n);

#endif
