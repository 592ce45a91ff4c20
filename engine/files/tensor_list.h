/* The tensors of a model while its files are read: a growing list, each checked as it is added. */
#ifndef LARDER_ENGINE_TENSOR_LIST_H
#define LARDER_ENGINE_TENSOR_LIST_H

#include "base/arena.h"
#include "base/slice.h"
#include "engine/files/mapped_file.h"
#include "engine/files/tensor.h"

enum { LAR_TENSORS_MAX = 1 << 20, LAR_TENSOR_NAME_MAX = 255 /* bytes */ };

/* Embedded. Names live in `names`, and die with the list. */
typedef struct lar_tensor_list {
    lar_arena names;
    lar_tensor *items;
    uint32_t count, cap;
} lar_tensor_list;

/* What a file says of a tensor, not yet believed. */
typedef struct lar_tensor_claim {
    lar_slice name;
    lar_dtype type;
    uint32_t dims; /* 0: one number */
    uint64_t shape[LAR_TENSOR_DIMS];
    uint64_t start; /* bytes behind data_start */
    uint64_t bytes; /* 0: the file does not say */
} lar_tensor_claim;

/* INVALID unless a name can be printed and has at most LAR_TENSOR_NAME_MAX bytes; the message has `index` for it. */
LAR_MUST_USE lar_error lar_tensor_name_check(const lar_file_view *file, uint32_t index, lar_slice name, lar_diag *d);
/* Checks and adds one, whose name has been checked: no dimension of 0, no overflow, rows of whole blocks, all of it
 * inside the file, whose tensors begin at `data_start` (<= its size). INVALID, LIMIT, NO_MEMORY. */
LAR_MUST_USE lar_error lar_tensor_list_add(lar_tensor_list *l, const lar_file_view *file, uint64_t data_start,
                                           const lar_tensor_claim *c, lar_diag *d);
/* The tensors from `first` on, of one file, must fill it from data_start on without holes or overlaps, each beginning
 * at the next multiple of `alignment` (a power of two; 1: none) behind the one before. With `tail_allowed` more bytes
 * may follow the last. INVALID naming the tensor; NO_MEMORY. */
typedef struct lar_tensor_extents {
    uint64_t data_start, alignment;
    bool tail_allowed;
} lar_tensor_extents;
LAR_MUST_USE lar_error lar_tensor_list_check_extents(const lar_tensor_list *l, uint32_t first,
                                                     const lar_file_view *file, const lar_tensor_extents *x,
                                                     lar_diag *d);
void lar_tensor_list_init(lar_tensor_list *l);
void lar_tensor_list_release(lar_tensor_list *l);

/* "F32, F16, ...": the types that larder reads and that safetensors or GGUF has, for messages. */
typedef enum lar_dtype_family { LAR_DTYPE_SAFETENSORS, LAR_DTYPE_GGUF } lar_dtype_family;
enum { LAR_DTYPE_LIST_BYTES = 160 };
void lar_dtype_list(lar_dtype_family family, char out[LAR_DTYPE_LIST_BYTES]);

/* "(64, 128)" */
enum { LAR_SHAPE_BYTES = 100 };
void lar_tensor_shape_text(uint32_t dims, const uint64_t *shape, char out[LAR_SHAPE_BYTES]);

#endif
