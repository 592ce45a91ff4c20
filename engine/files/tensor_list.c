/* The list of a model's tensors, and the checks that safetensors and GGUF share.
 * Called by safetensors.c and gguf.c while a model is opened; one thread; never blocks. Why: both formats make the same
 * claims (type, shape, place), and hostile ones fail in the same ways. Invariants: every tensor in the list has 1 to 4
 * dimensions, none 0, a size that fits 64 bits, rows of whole blocks, and bytes that lie inside its file.
 * Memory: names in an arena, items in one growing block; limits in the header. */
#include "engine/files/tensor_list.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { NAMES_BYTES_MAX = 512 << 20 };

void lar_tensor_list_init(lar_tensor_list *l) {
    *l = (lar_tensor_list){0};
    lar_arena_init(&l->names, NAMES_BYTES_MAX);
}

void lar_tensor_list_release(lar_tensor_list *l) {
    free(l->items);
    lar_arena_release(&l->names);
    *l = (lar_tensor_list){0};
}

void lar_dtype_list(lar_dtype_family family, char out[LAR_DTYPE_LIST_BYTES]) {
    size_t len = 0;
    out[0] = 0;
    for (int i = 0; i < LAR_DTYPE_COUNT && len < LAR_DTYPE_LIST_BYTES; i++) {
        const lar_dtype_info *info = lar_dtype_info_of((lar_dtype)i);
        if (family == LAR_DTYPE_GGUF ? info->gguf < 0 : !info->safetensors) continue;
        int n = snprintf(out + len, LAR_DTYPE_LIST_BYTES - len, "%s%s", len ? ", " : "", info->name);
        len += n > 0 ? (size_t)n : 0;
    }
}

void lar_tensor_shape_text(uint32_t dims, const uint64_t *shape, char out[LAR_SHAPE_BYTES]) {
    size_t len = 0;
    for (uint32_t i = 0; i < dims && len < LAR_SHAPE_BYTES; i++) {
        int n = snprintf(out + len, LAR_SHAPE_BYTES - len, "%s%" PRIu64, i ? ", " : "(", shape[i]);
        len += n > 0 ? (size_t)n : 0;
    }
    if (len < LAR_SHAPE_BYTES) (void)snprintf(out + len, LAR_SHAPE_BYTES - len, dims ? ")" : "()");
}

lar_error lar_tensor_name_check(const lar_file_view *file, uint32_t index, lar_slice name, lar_diag *d) {
    if (!name.len || name.len > LAR_TENSOR_NAME_MAX)
        return lar_fail(LAR_INVALID, d, "%.100s: tensor %u has a name of %zu bytes; 1 to %d are allowed", file->name,
                        index, name.len, LAR_TENSOR_NAME_MAX);
    for (size_t i = 0; i < name.len; i++)
        if (name.ptr[i] <= ' ' || name.ptr[i] > '~')
            return lar_fail(LAR_INVALID, d, "%.100s: tensor %u has a name with byte 0x%02x in it", file->name, index,
                            (unsigned char)name.ptr[i]);
    return LAR_OK;
}

/* Bytes of the whole, from shape and type. */
static lar_error size_of(const lar_file_view *file, lar_tensor *t, lar_diag *d) {
    const lar_dtype_info *info = lar_dtype_info_of(t->type);
    char shape[LAR_SHAPE_BYTES];
    lar_tensor_shape_text(t->dims, t->shape, shape);
    uint64_t elements = 1;
    for (uint32_t i = 0; i < t->dims; i++) {
        if (t->shape[i] == 0)
            return lar_fail(LAR_INVALID, d, "%.100s: tensor %s: its shape %s has a dimension of 0", file->name, t->name,
                            shape);
        if (__builtin_mul_overflow(elements, t->shape[i], &elements) || elements > INT64_MAX)
            return lar_fail(LAR_INVALID, d, "%.100s: tensor %s: its shape %s is too large", file->name, t->name, shape);
    }
    uint64_t row = lar_tensor_row_elements(t);
    if (row % info->block_elements)
        return lar_fail(LAR_INVALID, d, "%.100s: tensor %s: rows of %" PRIu64 " values are no whole blocks of %s (%u)",
                        file->name, t->name, row, info->name, info->block_elements);
    if (__builtin_mul_overflow(elements / info->block_elements, (uint64_t)info->block_bytes, &t->bytes))
        return lar_fail(LAR_INVALID, d, "%.100s: tensor %s: its shape %s is too large", file->name, t->name, shape);
    return LAR_OK;
}

static lar_error place(const lar_file_view *file, uint64_t data_start, const lar_tensor_claim *c, lar_tensor *t,
                       lar_diag *d) {
    if (c->bytes && c->bytes != t->bytes) {
        char shape[LAR_SHAPE_BYTES];
        lar_tensor_shape_text(t->dims, t->shape, shape);
        return lar_fail(LAR_INVALID, d,
                        "%.100s: tensor %s: %s %s takes %" PRIu64 " bytes, but its offsets span %" PRIu64, file->name,
                        t->name, lar_dtype_info_of(t->type)->name, shape, t->bytes, c->bytes);
    }
    uint64_t room = file->size - data_start, end;
    if (__builtin_add_overflow(c->start, t->bytes, &end) || end > room)
        return lar_fail(LAR_INVALID, d,
                        "%.100s: tensor %s: it takes %" PRIu64 " bytes from byte %" PRIu64
                        " on, but the file ends at %" PRIu64 ": it was cut short, or is still being copied",
                        file->name, t->name, t->bytes, data_start + c->start, file->size);
    t->data = file->bytes + data_start + c->start;
    return LAR_OK;
}

static lar_error grow(lar_tensor_list *l, const lar_file_view *file, lar_diag *d) {
    if (l->count < l->cap) return LAR_OK;
    if (l->count >= LAR_TENSORS_MAX)
        return lar_fail(LAR_LIMIT, d, "%.100s: more than %d tensors", file->name, LAR_TENSORS_MAX);
    uint32_t cap = l->cap ? l->cap * 2 : 512;
    lar_tensor *p = realloc(l->items, cap * sizeof *p);
    if (!p) return lar_fail(LAR_NO_MEMORY, d, "%.100s: a list of %u tensors", file->name, cap);
    l->items = p;
    l->cap = cap;
    return LAR_OK;
}

lar_error lar_tensor_list_add(lar_tensor_list *l, const lar_file_view *file, uint64_t data_start,
                              const lar_tensor_claim *c, lar_diag *d) {
    lar_error e = grow(l, file, d);
    if (e) return e;
    lar_tensor t = {.type = c->type, .dims = c->dims ? c->dims : 1, .shape = {1}};
    t.name = lar_arena_copy(&l->names, c->name).ptr;
    if (!t.name) return lar_fail(LAR_NO_MEMORY, d, "%.100s: the names of %u tensors", file->name, l->count);
    for (uint32_t i = 0; i < c->dims; i++) t.shape[i] = c->shape[i];
    e = size_of(file, &t, d);
    if (!e) e = place(file, data_start, c, &t, d);
    if (!e) l->items[l->count++] = t;
    return e;
}

static int by_place(const void *a, const void *b) {
    const lar_tensor *x = *(const lar_tensor *const *)a, *y = *(const lar_tensor *const *)b;
    return x->data < y->data ? -1 : x->data > y->data;
}

static lar_error check_sorted(const lar_tensor *const *sorted, uint32_t n, const lar_file_view *file,
                              const lar_tensor_extents *x, lar_diag *d) {
    uint64_t at = x->data_start;
    for (uint32_t i = 0; i < n; i++) {
        const lar_tensor *t = sorted[i];
        uint64_t start = (uint64_t)(t->data - file->bytes), behind = (start - x->data_start) % x->alignment;
        if (behind)
            return lar_fail(LAR_INVALID, d,
                            "%.100s: tensor %s: it begins %" PRIu64 " bytes behind a multiple of %" PRIu64, file->name,
                            t->name, behind, x->alignment);
        if (start < at && i)
            return lar_fail(LAR_INVALID, d,
                            "%.100s: tensor %s begins at byte %" PRIu64 ", inside tensor %s, which ends at %" PRIu64,
                            file->name, t->name, start, sorted[i - 1]->name, at);
        uint64_t expected = x->data_start + ((at - x->data_start + x->alignment - 1) & ~(x->alignment - 1));
        if (start != expected)
            return lar_fail(LAR_INVALID, d,
                            "%.100s: tensor %s begins at byte %" PRIu64 ", but the one before it ends at %" PRIu64,
                            file->name, t->name, start, at);
        at = start + t->bytes;
    }
    if (!x->tail_allowed && at != file->size)
        return lar_fail(LAR_INVALID, d, "%.100s: its tensors end at byte %" PRIu64 ", the file at %" PRIu64, file->name,
                        at, file->size);
    return LAR_OK;
}

lar_error lar_tensor_list_check_extents(const lar_tensor_list *l, uint32_t first, const lar_file_view *file,
                                        const lar_tensor_extents *x, lar_diag *d) {
    uint32_t n = l->count - first;
    const lar_tensor **sorted = n ? malloc(n * sizeof *sorted) : NULL;
    if (n && !sorted) return lar_fail(LAR_NO_MEMORY, d, "%.100s: sorting %u tensors", file->name, n);
    for (uint32_t i = 0; i < n; i++) sorted[i] = &l->items[first + i];
    if (n) qsort(sorted, n, sizeof *sorted, by_place);
    lar_error e = check_sorted(sorted, n, file, x, d);
    free(sorted);
    return e;
}
