/* Reads the header of a safetensors file.
 * Called by model_files.c for each shard; one thread; blocks on pages of the mapped file. Why an own reader: the header
 * is outside input, and every claim in it decides where a pointer goes. Source: the format's own description
 * (safetensors README, "Format"): header at most 100 MB, begins with '{', offsets tile the buffer.
 * Memory: the span tree of the header while it is read; names go to the list.
 * Not here: names that two files have (model_files.c finds them), what tensors a model needs (engine/model). */
#include "engine/files/safetensors.h"

#include <inttypes.h>

#include "base/json.h"
#include "engine/files/float_bits.h"

enum { HEADER_BYTES_MAX = 100000000, LENGTH_BYTES = 8, MEMBERS_MAX = LAR_TENSORS_MAX };

typedef struct reader {
    const lar_file_view *file;
    lar_tensor_list *list;
    lar_json json;
    lar_buf text; /* a name, decoded */
    uint64_t data_start;
    lar_diag *d;
} reader;

/* What downloads leave behind in place of a file. */
static bool starts_with(const lar_file_view *f, const char *text) {
    size_t n = strlen(text);
    return f->size >= n && memcmp(f->bytes, text, n) == 0;
}

static lar_error find_header(reader *r, lar_slice *header) {
    const lar_file_view *f = r->file;
    if (starts_with(f, "version https://git-lfs"))
        return lar_fail(LAR_INVALID, r->d,
                        "%.100s: this is a Git LFS pointer, not the file: fetch it with git lfs pull", f->name);
    if (f->size < LENGTH_BYTES + 2)
        return lar_fail(LAR_INVALID, r->d, "%.100s: %" PRIu64 " bytes are too few for a safetensors file", f->name,
                        f->size);
    uint64_t length = lar_le64(f->bytes);
    if (length > HEADER_BYTES_MAX)
        return lar_fail(LAR_INVALID, r->d,
                        "%.100s: not a safetensors file: its header would have %" PRIu64 " bytes; at most %d", f->name,
                        length, HEADER_BYTES_MAX);
    if (length > f->size - LENGTH_BYTES)
        return lar_fail(LAR_INVALID, r->d,
                        "%.100s: its header has %" PRIu64 " bytes, but the file ends at byte %" PRIu64, f->name, length,
                        f->size);
    *header = lar_slice_of((const char *)f->bytes + LENGTH_BYTES, length);
    r->data_start = LENGTH_BYTES + length;
    if (!length || header->ptr[0] != '{')
        return lar_fail(LAR_INVALID, r->d, "%.100s: not a safetensors file: its header does not begin with {", f->name);
    return LAR_OK;
}

static lar_error bad_field(reader *r, const char *field, const char *expected) {
    return lar_fail(LAR_INVALID, r->d, "%.100s: tensor %.*s: its %s is not %s", r->file->name,
                    LAR_FMT(lar_buf_slice(&r->text)), field, expected);
}

static lar_error read_type(reader *r, uint32_t node, lar_dtype *type) {
    if (!lar_json_is(&r->json, node, LAR_JSON_STRING)) return bad_field(r, "dtype", "a string");
    for (int i = 0; i < LAR_DTYPE_COUNT; i++) {
        const char *name = lar_dtype_info_of((lar_dtype)i)->safetensors;
        *type = (lar_dtype)i;
        if (name && lar_json_eq(&r->json, node, lar_slice_cstr(name))) return LAR_OK;
    }
    char known[LAR_DTYPE_LIST_BYTES];
    lar_dtype_list(LAR_DTYPE_SAFETENSORS, known);
    lar_slice found = lar_json_inner(&r->json, node);
    if (found.len > 16) found.len = 16;
    return lar_fail(LAR_INVALID, r->d, "%.100s: tensor %.*s is of type %.*s; larder reads %s", r->file->name,
                    LAR_FMT(lar_buf_slice(&r->text)), LAR_FMT(found), known);
}

static lar_error read_shape(reader *r, uint32_t node, lar_tensor_claim *c) {
    const lar_json *j = &r->json;
    if (!lar_json_is(j, node, LAR_JSON_ARRAY)) return bad_field(r, "shape", "a list");
    if (j->nodes[node].count > LAR_TENSOR_DIMS)
        return lar_fail(LAR_INVALID, r->d, "%.100s: tensor %.*s has %u dimensions; larder reads up to %d",
                        r->file->name, LAR_FMT(lar_buf_slice(&r->text)), j->nodes[node].count, LAR_TENSOR_DIMS);
    for (uint32_t i = lar_json_first(j, node); i != LAR_JSON_NONE; i = lar_json_after(j, node, i))
        if (!lar_json_u64(j, i, &c->shape[c->dims++])) return bad_field(r, "shape", "a list of whole numbers");
    return LAR_OK;
}

static lar_error read_offsets(reader *r, uint32_t node, lar_tensor_claim *c) {
    uint64_t end;
    const lar_json *j = &r->json;
    bool pair = lar_json_is(j, node, LAR_JSON_ARRAY) && j->nodes[node].count == 2;
    if (!pair || !lar_json_u64(j, node + 1, &c->start) || !lar_json_u64(j, node + 2, &end) || end <= c->start)
        return bad_field(r, "data_offsets", "two whole numbers, the second larger");
    c->bytes = end - c->start;
    return LAR_OK;
}

static lar_error read_tensor(reader *r, uint32_t key) {
    const lar_json *j = &r->json;
    uint32_t body = key + 1;
    lar_tensor_claim c = {0};
    c.name = lar_buf_slice(&r->text);
    lar_error e = lar_tensor_name_check(r->file, r->list->count, c.name, r->d);
    if (e) return e;
    if (!lar_json_is(j, body, LAR_JSON_OBJECT)) return bad_field(r, "entry", "an object");
    static const char *const fields[] = {"dtype", "shape", "data_offsets"};
    for (int i = 0; i < 3; i++)
        if (lar_json_get_count(j, body, fields[i]) != 1) return bad_field(r, fields[i], "there exactly once");
    e = read_type(r, lar_json_get(j, body, "dtype"), &c.type);
    if (!e) e = read_shape(r, lar_json_get(j, body, "shape"), &c);
    if (!e) e = read_offsets(r, lar_json_get(j, body, "data_offsets"), &c);
    return e ? e : lar_tensor_list_add(r->list, r->file, r->data_start, &c, r->d);
}

static lar_error read_members(reader *r) {
    const lar_json *j = &r->json;
    for (uint32_t key = lar_json_first(j, 0); key != LAR_JSON_NONE; key = lar_json_after(j, 0, key)) {
        if (lar_json_eq(j, key, LAR_SLICE("__metadata__"))) continue; /* remarks of the program that wrote it */
        lar_buf_reset(&r->text, 4096);
        lar_error e = lar_json_decode(j, key, &r->text);
        if (e) return lar_fail(e, r->d, "%.100s: the name of tensor %u", r->file->name, r->list->count);
        e = read_tensor(r, key);
        if (e) return e;
    }
    return LAR_OK;
}

lar_error lar_safetensors_read(const lar_file_view *file, lar_tensor_list *l, lar_diag *d) {
    reader r = {.file = file, .list = l, .d = d};
    lar_slice header;
    lar_error e = find_header(&r, &header);
    if (e) return e;
    uint32_t first = l->count;
    lar_json_init(&r.json);
    lar_buf_init(&r.text, 1 << 16);
    /* A tensor is a key, an object of three members, and at least two numbers. */
    const lar_json_limits limits = {.depth_max = 8, .nodes_max = 16u * MEMBERS_MAX};
    lar_diag why = {0};
    e = lar_json_parse(&r.json, header, &limits, &why);
    if (e == LAR_NO_MEMORY) e = lar_fail(e, d, "%.100s: reading its header", file->name);
    else if (e)
        e = lar_fail(LAR_INVALID, d, "%.100s: its header is not valid JSON: %s (byte %" PRIu64 " of the file)",
                     file->name, *why.text ? why.text : lar_error_text(e), why.offset + LENGTH_BYTES);
    if (!e) e = read_members(&r);
    const lar_tensor_extents whole = {.data_start = r.data_start, .alignment = 1};
    if (!e) e = lar_tensor_list_check_extents(l, first, file, &whole, d);
    lar_buf_release(&r.text);
    lar_json_release(&r.json);
    return e;
}
