/* GGUF, version 3: one file that holds metadata (names and typed values) and tensors. */
#ifndef LARDER_ENGINE_GGUF_H
#define LARDER_ENGINE_GGUF_H

#include "engine/files/tensor_list.h"

/* The numbers that the format gives to types of values. */
typedef enum lar_gguf_type {
    LAR_GGUF_U8,
    LAR_GGUF_I8,
    LAR_GGUF_U16,
    LAR_GGUF_I16,
    LAR_GGUF_U32,
    LAR_GGUF_I32,
    LAR_GGUF_F32,
    LAR_GGUF_BOOL,
    LAR_GGUF_STRING,
    LAR_GGUF_ARRAY,
    LAR_GGUF_U64,
    LAR_GGUF_I64,
    LAR_GGUF_F64,
    LAR_GGUF_TYPE_COUNT
} lar_gguf_type;

/* Bytes of one value; 0: strings and lists, which say their own length. */
unsigned lar_gguf_width(lar_gguf_type type);

/* One value; of a list `type` is that of its elements. Borrows the mapping. */
typedef struct lar_gguf_value {
    lar_slice key;
    lar_gguf_type type; /* never ARRAY */
    bool list;
    uint64_t count; /* 1, or the list's elements */
    const uint8_t *data;
} lar_gguf_value;

typedef struct lar_gguf {
    const char *name;       /* of the file, for messages */
    lar_gguf_value *values; /* [count], sorted by key */
    uint32_t count;
} lar_gguf;

/* Reads a whole header: metadata to *out (embedded; released also after an error), tensors added to `l`, their
 * dimensions turned round to row-major. Everything borrows `file`. INVALID: no GGUF, another version or byte order,
 * damaged, cut short, lists in lists, a key or tensor type that larder does not know; LIMIT; NO_MEMORY. */
LAR_MUST_USE lar_error lar_gguf_read(const lar_file_view *file, lar_gguf *out, lar_tensor_list *l, lar_diag *d);
void lar_gguf_release(lar_gguf *g);

/* -- metadata: NOT_FOUND if the key is not there, INVALID if its value is of another kind; `d` says which -------- */

/* NULL: there is none. */
const lar_gguf_value *lar_gguf_find(const lar_gguf *g, const char *key);
LAR_MUST_USE lar_error lar_gguf_string(const lar_gguf *g, const char *key, lar_slice *out, lar_diag *d);
/* An integer of any width that is not negative. */
LAR_MUST_USE lar_error lar_gguf_u64(const lar_gguf *g, const char *key, uint64_t *out, lar_diag *d);
/* A float or an integer of any width; may be NaN or infinite. */
LAR_MUST_USE lar_error lar_gguf_f64(const lar_gguf *g, const char *key, double *out, lar_diag *d);
LAR_MUST_USE lar_error lar_gguf_bool(const lar_gguf *g, const char *key, bool *out, lar_diag *d);

/* A list of strings, walked from its beginning: they have no index of their own in the file. */
typedef struct lar_gguf_strings {
    uint64_t left;
    const uint8_t *at;
} lar_gguf_strings;
LAR_MUST_USE lar_error lar_gguf_strings_of(const lar_gguf *g, const char *key, lar_gguf_strings *out, lar_diag *d);
/* False behind the last. */
bool lar_gguf_strings_next(lar_gguf_strings *s, lar_slice *out);

/* A list of numbers: integers (booleans count as 0 and 1), or floats and integers. */
typedef enum lar_gguf_numbers { LAR_GGUF_INTEGERS, LAR_GGUF_FLOATS } lar_gguf_numbers;
LAR_MUST_USE lar_error lar_gguf_list(const lar_gguf *g, const char *key, lar_gguf_numbers kind,
                                     const lar_gguf_value **out, lar_diag *d);
/* Element i of a value that lar_gguf_list gave. An unsigned one over INT64_MAX is INT64_MAX. */
int64_t lar_gguf_integer_at(const lar_gguf_value *v, uint64_t i);
double lar_gguf_float_at(const lar_gguf_value *v, uint64_t i);

#endif
