/* Reads the header of a GGUF file: metadata and tensors.
 * Called by model_gguf.c for each part; one thread; blocks on pages of the mapped file. Why an own reader: the header
 * is outside input, and lengths and offsets in it decide where pointers go. Source: the GGUF specification (ggml,
 * docs/gguf.md): header, keys of at most 65535 bytes, tensor names of at most 64, dimensions innermost first, data from
 * the next multiple of general.alignment on. Invariants: 1. nothing is read that `take` has not bounded. 2. counts are
 * compared with the bytes that so many would take at least before memory is taken for them.
 * Memory: the list of values; they borrow the file.
 * Not here: reading metadata (gguf_values.c), parts (model_gguf.c), what a model needs (engine/model). */
#include "engine/files/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/files/float_bits.h"

enum {
    KEY_BYTES_MAX = 65535,
    VALUES_MAX = 1 << 16,
    NAME_BYTES_MAX = 64,
    ALIGNMENT_DEFAULT = 32,
    ALIGNMENT_MAX = 1 << 20,
    VALUE_BYTES_MIN = 8 + 4 + 1,          /* an empty key, a type, a byte */
    TENSOR_BYTES_MIN = 8 + 4 + 8 + 4 + 8, /* an empty name, one dimension */
    IK_LLAMA_TYPES = 97                   /* from here on, numbers that only ik_llama.cpp gives */
};

typedef struct cursor {
    const lar_file_view *file;
    uint64_t at; /* <= file->size */
    lar_diag *d;
} cursor;

/* The next n bytes; NULL, with a message, if the file ends before. */
static const uint8_t *take(cursor *c, uint64_t n, const char *what) {
    if (n > c->file->size - c->at) {
        (void)lar_fail(LAR_INVALID, c->d,
                       "%.100s: %s would take %" PRIu64 " bytes from byte %" PRIu64 " on, but the file ends at %" PRIu64
                       ": it was cut short, or is damaged",
                       c->file->name, what, n, c->at, c->file->size);
        return NULL;
    }
    const uint8_t *p = c->file->bytes + c->at;
    c->at += n;
    return p;
}

static lar_error take_u32(cursor *c, uint32_t *out, const char *what) {
    const uint8_t *p = take(c, 4, what);
    if (p) *out = lar_le32(p);
    return p ? LAR_OK : LAR_INVALID;
}

static lar_error take_u64(cursor *c, uint64_t *out, const char *what) {
    const uint8_t *p = take(c, 8, what);
    if (p) *out = lar_le64(p);
    return p ? LAR_OK : LAR_INVALID;
}

static lar_error take_string(cursor *c, lar_slice *out, const char *what) {
    uint64_t len;
    lar_error e = take_u64(c, &len, what);
    if (e) return e;
    const uint8_t *p = take(c, len, what);
    if (!p) return LAR_INVALID;
    *out = lar_slice_of((const char *)p, len);
    return LAR_OK;
}

/* -- metadata ----------------------------------------------------------------------------------------------------- */

static lar_error check_key(cursor *c, uint32_t index, lar_slice key) {
    bool good = key.len && key.len <= KEY_BYTES_MAX;
    for (size_t i = 0; good && i < key.len; i++) good = key.ptr[i] > ' ' && key.ptr[i] <= '~';
    return good ? LAR_OK
                : lar_fail(LAR_INVALID, c->d,
                           "%.100s: metadata entry %u: its key is empty, too long or cannot be printed", c->file->name,
                           index);
}

static lar_error bad_type(cursor *c, lar_slice key, uint32_t type) {
    if (type == LAR_GGUF_ARRAY)
        return lar_fail(LAR_INVALID, c->d, "%.100s: metadata %.*s: a list in a list", c->file->name, LAR_FMT(key));
    return lar_fail(LAR_INVALID, c->d, "%.100s: metadata %.*s: there is no type of value %" PRIu32, c->file->name,
                    LAR_FMT(key), type);
}

static lar_error take_elements(cursor *c, lar_gguf_value *v) {
    unsigned width = lar_gguf_width(v->type);
    uint64_t bytes;
    v->data = c->file->bytes + c->at;
    if (width) {
        if (__builtin_mul_overflow(v->count, (uint64_t)width, &bytes)) bytes = UINT64_MAX;
        return take(c, bytes, "a value in the metadata") ? LAR_OK : LAR_INVALID;
    }
    lar_error e = LAR_OK;
    lar_slice text;
    for (uint64_t i = 0; !e && i < v->count; i++) e = take_string(c, &text, "a string in the metadata");
    return e;
}

static lar_error take_value(cursor *c, uint32_t index, lar_gguf_value *v) {
    uint32_t type;
    lar_error e = take_string(c, &v->key, "a key of the metadata");
    if (!e) e = check_key(c, index, v->key);
    if (!e) e = take_u32(c, &type, "the type of a value");
    if (e) return e;
    lar_slice shown = v->key.len > 100 ? lar_slice_of(v->key.ptr, 100) : v->key;
    v->count = 1;
    v->list = type == LAR_GGUF_ARRAY;
    if (v->list) {
        e = take_u32(c, &type, "the type of a list");
        if (!e) e = take_u64(c, &v->count, "the length of a list");
        if (e) return e;
    }
    if (type >= LAR_GGUF_TYPE_COUNT || type == LAR_GGUF_ARRAY) return bad_type(c, shown, type);
    v->type = (lar_gguf_type)type;
    e = take_elements(c, v);
    if (!e && v->type == LAR_GGUF_BOOL)
        for (uint64_t i = 0; !e && i < v->count; i++)
            if (v->data[i] > 1)
                e = lar_fail(LAR_INVALID, c->d, "%.100s: metadata %.*s: %u is neither true nor false", c->file->name,
                             LAR_FMT(shown), v->data[i]);
    return e;
}

static int by_key(const void *a, const void *b) {
    lar_slice x = ((const lar_gguf_value *)a)->key, y = ((const lar_gguf_value *)b)->key;
    int order = memcmp(x.ptr, y.ptr, x.len < y.len ? x.len : y.len);
    return order ? order : (x.len > y.len) - (x.len < y.len);
}

static lar_error take_values(cursor *c, uint64_t count, lar_gguf *g) {
    if (count > VALUES_MAX || count > (c->file->size - c->at) / VALUE_BYTES_MIN)
        return lar_fail(LAR_INVALID, c->d,
                        "%.100s: %" PRIu64 " entries of metadata: more than the file or larder can hold", c->file->name,
                        count);
    g->values = count ? calloc(count, sizeof *g->values) : NULL;
    if (count && !g->values) return lar_fail(LAR_NO_MEMORY, c->d, "%.100s: its metadata", c->file->name);
    for (uint32_t i = 0; i < count; i++) {
        lar_error e = take_value(c, i, &g->values[i]);
        if (e) return e;
    }
    g->count = (uint32_t)count;
    if (count) qsort(g->values, count, sizeof *g->values, by_key);
    for (uint32_t i = 1; i < count; i++)
        if (lar_slice_eq(g->values[i - 1].key, g->values[i].key)) {
            lar_slice key = g->values[i].key;
            if (key.len > 100) key.len = 100;
            return lar_fail(LAR_INVALID, c->d, "%.100s: metadata %.*s is there twice", c->file->name, LAR_FMT(key));
        }
    return LAR_OK;
}

/* -- tensors ------------------------------------------------------------------------------------------------------ */

/* Types that exist and that larder does not read, so that a message can name them. Source: enum ggml_type. */
typedef struct foreign_type {
    uint32_t number;
    const char *name;
} foreign_type;
static const foreign_type foreign_types[] = {
    {3, "Q4_1"},    {9, "Q8_1"},     {10, "Q2_K"},  {11, "Q3_K"},  {15, "Q8_K"},  {16, "IQ2_XXS"},
    {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"}, {21, "IQ3_S"}, {22, "IQ2_S"}, {24, "I8"},
    {25, "I16"},    {26, "I32"},     {27, "I64"},   {28, "F64"},   {29, "IQ1_M"}, {34, "TQ1_0"},
    {35, "TQ2_0"},  {39, "MXFP4"},   {40, "NVFP4"}, {41, "Q1_0"},  {42, "Q2_0"},
};

static lar_error refuse_type(cursor *c, lar_slice name, uint32_t number) {
    char known[LAR_DTYPE_LIST_BYTES], text[32];
    lar_dtype_list(LAR_DTYPE_GGUF, known);
    (void)snprintf(text, sizeof text, "unknown (%" PRIu32 ")", number);
    for (size_t i = 0; i < sizeof foreign_types / sizeof *foreign_types; i++)
        if (foreign_types[i].number == number) (void)snprintf(text, sizeof text, "%s", foreign_types[i].name);
    if (number >= IK_LLAMA_TYPES)
        return lar_fail(LAR_INVALID, c->d,
                        "%.80s: tensor %.*s is of type %" PRIu32 ", which only ik_llama.cpp writes; larder reads %s",
                        c->file->name, LAR_FMT(name), number, known);
    return lar_fail(LAR_INVALID, c->d, "%.80s: tensor %.*s is of type %s; larder reads %s", c->file->name,
                    LAR_FMT(name), text, known);
}

static lar_error take_type(cursor *c, lar_slice name, lar_dtype *type) {
    uint32_t number;
    lar_error e = take_u32(c, &number, "the type of a tensor");
    if (e) return e;
    for (int i = 0; i < LAR_DTYPE_COUNT; i++) {
        int own = lar_dtype_info_of((lar_dtype)i)->gguf;
        *type = (lar_dtype)i;
        if (own >= 0 && (uint32_t)own == number) return LAR_OK;
    }
    return refuse_type(c, name, number);
}

static lar_error take_tensor(cursor *c, uint32_t index, lar_tensor_claim *claim) {
    lar_error e = take_string(c, &claim->name, "the name of a tensor");
    if (!e && claim->name.len > NAME_BYTES_MAX)
        e = lar_fail(LAR_INVALID, c->d, "%.100s: tensor %u has a name of %zu bytes; at most %d are allowed",
                     c->file->name, index, claim->name.len, NAME_BYTES_MAX);
    if (!e) e = lar_tensor_name_check(c->file, index, claim->name, c->d);
    if (!e) e = take_u32(c, &claim->dims, "the dimensions of a tensor");
    if (e) return e;
    if (!claim->dims || claim->dims > LAR_TENSOR_DIMS)
        return lar_fail(LAR_INVALID, c->d, "%.100s: tensor %.*s has %" PRIu32 " dimensions; 1 to %d are read",
                        c->file->name, LAR_FMT(claim->name), claim->dims, LAR_TENSOR_DIMS);
    for (uint32_t i = claim->dims; !e && i-- > 0;) e = take_u64(c, &claim->shape[i], "the shape of a tensor");
    if (!e) e = take_type(c, claim->name, &claim->type);
    return e ? e : take_u64(c, &claim->start, "the place of a tensor");
}

/* Twice over the same bytes: first to find where the header ends, for all places count from there. */
static lar_error walk_tensors(cursor *c, uint32_t count, uint64_t data_start, lar_tensor_list *l) {
    for (uint32_t i = 0; i < count; i++) {
        lar_tensor_claim claim = {0};
        lar_error e = take_tensor(c, i, &claim);
        if (!e && data_start) e = lar_tensor_list_add(l, c->file, data_start, &claim, c->d);
        if (e) return e;
    }
    return LAR_OK;
}

static lar_error take_tensors(cursor *c, uint64_t count, const lar_gguf *g, lar_tensor_list *l) {
    if (count > LAR_TENSORS_MAX || count > (c->file->size - c->at) / TENSOR_BYTES_MIN)
        return lar_fail(LAR_INVALID, c->d, "%.100s: %" PRIu64 " tensors: more than the file or larder can hold",
                        c->file->name, count);
    uint64_t alignment = ALIGNMENT_DEFAULT;
    lar_error e = lar_gguf_u64(g, "general.alignment", &alignment, c->d);
    if (e && e != LAR_NOT_FOUND) return e;
    if (alignment < 8 || alignment > ALIGNMENT_MAX || (alignment & (alignment - 1)))
        return lar_fail(LAR_INVALID, c->d,
                        "%.100s: general.alignment is %" PRIu64 "; it must be a power of two from 8 to %d",
                        c->file->name, alignment, ALIGNMENT_MAX);
    uint64_t infos = c->at;
    e = walk_tensors(c, (uint32_t)count, 0, l);
    if (e || !count) return e;
    uint64_t data_start = (c->at + alignment - 1) & ~(alignment - 1);
    if (data_start > c->file->size)
        return lar_fail(LAR_INVALID, c->d,
                        "%.100s: the file ends at byte %" PRIu64 ", before its tensors: it was cut short",
                        c->file->name, c->file->size);
    uint32_t first = l->count;
    c->at = infos;
    e = walk_tensors(c, (uint32_t)count, data_start, l);
    const lar_tensor_extents x = {.data_start = data_start, .alignment = alignment, .tail_allowed = true};
    return e ? e : lar_tensor_list_check_extents(l, first, c->file, &x, c->d);
}

/* -- the whole ---------------------------------------------------------------------------------------------------- */

static lar_error take_start(cursor *c) {
    const char *name = c->file->name;
    if (c->file->size < 4 || memcmp(c->file->bytes, "GGUF", 4) != 0)
        return lar_fail(LAR_INVALID, c->d, "%.100s: not a GGUF file: it does not begin with GGUF", name);
    c->at = 4;
    uint32_t version;
    lar_error e = take_u32(c, &version, "the version");
    if (e || version == 3) return e;
    if (version == 3u << 24)
        return lar_fail(LAR_INVALID, c->d, "%.100s: its numbers are big-endian; larder reads little-endian files",
                        name);
    return lar_fail(LAR_INVALID, c->d,
                    "%.100s: GGUF version %" PRIu32 "; larder reads version 3: convert the model anew", name, version);
}

lar_error lar_gguf_read(const lar_file_view *file, lar_gguf *out, lar_tensor_list *l, lar_diag *d) {
    *out = (lar_gguf){.name = file->name};
    cursor c = {.file = file, .d = d};
    uint64_t tensors, values;
    lar_error e = take_start(&c);
    if (!e) e = take_u64(&c, &tensors, "the number of tensors");
    if (!e) e = take_u64(&c, &values, "the number of entries");
    if (!e) e = take_values(&c, values, out);
    return e ? e : take_tensors(&c, tensors, out, l);
}

void lar_gguf_release(lar_gguf *g) {
    free(g->values);
    *g = (lar_gguf){0};
}
