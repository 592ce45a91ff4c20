/* Opens a Hugging Face folder: its safetensors, by the index or as one file, and the scales of FP8.
 * Called by model_files.c; blocks on the disk. Source: the layout as transformers' from_pretrained reads it
 * (model.safetensors before the index); DeepSeek-V3's README_WEIGHTS for weight_scale_inv. Why the index is checked
 * against the files: a shard that failed to download, or is another model's, must be named before a layer misses it.
 * Memory: the index as a span tree while the folder is opened. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "engine/files/model_open.h"
#include "engine/files/safetensors.h"

#define INDEX_NAME "model.safetensors.index.json"
enum { INDEX_BYTES_MAX = 256 << 20, SCALE_SPAN = 128 };

/* -- the scales of FP8 -------------------------------------------------------------------------------------------- */

static lar_error link_scale(lar_model_files *f, lar_tensor *t, lar_diag *d) {
    char name[LAR_TENSOR_NAME_MAX + 16], found[LAR_SHAPE_BYTES];
    if (t->dims != 2)
        return lar_fail(LAR_INVALID, d, "tensor %s: F8_E4M3 is read for matrices; this one has %u dimensions", t->name,
                        t->dims);
    (void)snprintf(name, sizeof name, "%s_scale_inv", t->name);
    const lar_tensor *s = lar_model_files_find(f, name);
    if (!s)
        return lar_fail(LAR_INVALID, d,
                        "tensor %s: it is F8_E4M3, so its scales are expected in %s, which is not there", t->name,
                        name);
    uint64_t rows = (t->shape[0] - 1) / SCALE_SPAN + 1, columns = (t->shape[1] - 1) / SCALE_SPAN + 1;
    lar_tensor_shape_text(s->dims, s->shape, found);
    if (s->type != LAR_DTYPE_F32 || s->dims != 2 || s->shape[0] != rows || s->shape[1] != columns)
        return lar_fail(LAR_INVALID, d,
                        "tensor %s: expected F32 (%" PRIu64 ", %" PRIu64 "), one scale for each 128 x 128, found %s %s",
                        name, rows, columns, lar_dtype_info_of(s->type)->name, found);
    t->scale = s;
    return LAR_OK;
}

static lar_error link_scales(lar_model_files *f, lar_diag *d) {
    lar_error e = LAR_OK;
    for (uint32_t i = 0; !e && i < f->list.count; i++)
        if (f->list.items[i].type == LAR_DTYPE_F8_E4M3) e = link_scale(f, &f->list.items[i], d);
    return e;
}

/* -- a folder ----------------------------------------------------------------------------------------------------- */

static lar_error join(const char *folder, const char *name, lar_buf *out, lar_diag *d) {
    lar_buf_reset(out, 4096);
    lar_error e = lar_buf_printf(out, "%s/%s", folder, name);
    if (!e) e = lar_buf_add(out, "", 1);
    return e ? lar_fail(e, d, "the path of %.100s", name) : LAR_OK;
}

static lar_error add_shard(lar_model_files *f, const char *path, const char *name, lar_diag *d) {
    lar_error e = lar_model_add_part(f, path, name, d);
    return e ? e : lar_safetensors_read(&f->parts[f->part_count - 1], &f->list, d);
}

static bool is_plain_name(const lar_json *j, uint32_t node) {
    lar_slice s = lar_json_inner(j, node);
    if (!lar_json_is(j, node, LAR_JSON_STRING) || !s.len || s.len > 255 || s.ptr[0] == '.') return false;
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] <= ' ' || s.ptr[i] > '~' || s.ptr[i] == '/' || s.ptr[i] == '\\') return false;
    return true;
}

typedef struct shards {
    lar_json json;
    uint32_t map;     /* node of weight_map */
    lar_slice *names; /* [count], of the shards */
    uint32_t count;
} shards;

static int compare_slices(const void *a, const void *b) {
    const lar_slice *x = a, *y = b;
    int c = memcmp(x->ptr, y->ptr, x->len < y->len ? x->len : y->len);
    return c ? c : (x->len > y->len) - (x->len < y->len);
}

/* The files that the index names, each once, sorted. */
static lar_error list_shards(shards *s, lar_diag *d) {
    const lar_json *j = &s->json;
    s->map = lar_json_get(j, 0, "weight_map");
    if (!lar_json_is(j, s->map, LAR_JSON_OBJECT) || !j->nodes[s->map].count)
        return lar_fail(LAR_INVALID, d, INDEX_NAME ": it has no weight_map that names files");
    s->names = malloc(j->nodes[s->map].count * sizeof *s->names);
    if (!s->names) return lar_fail(LAR_NO_MEMORY, d, "the names of files");
    uint32_t n = 0;
    for (uint32_t k = lar_json_first(j, s->map); k != LAR_JSON_NONE; k = lar_json_after(j, s->map, k)) {
        if (!is_plain_name(j, k + 1))
            return lar_fail_at(LAR_INVALID, d, j->nodes[k + 1].start,
                               INDEX_NAME ": byte %u: not the name of a file in this folder", j->nodes[k + 1].start);
        s->names[n++] = lar_json_inner(j, k + 1);
    }
    qsort(s->names, n, sizeof *s->names, compare_slices);
    for (uint32_t i = 0; i < n; i++)
        if (!s->count || !lar_slice_eq(s->names[i], s->names[s->count - 1])) s->names[s->count++] = s->names[i];
    return LAR_OK;
}

/* Every tensor that the index promises must be there; which of the files holds it does not matter. */
static lar_error check_promised(const lar_model_files *f, const shards *s, lar_diag *d) {
    const lar_json *j = &s->json;
    lar_buf name;
    lar_buf_init(&name, 1 << 16);
    lar_error e = LAR_OK;
    for (uint32_t k = lar_json_first(j, s->map); !e && k != LAR_JSON_NONE; k = lar_json_after(j, s->map, k)) {
        lar_buf_reset(&name, 4096);
        e = lar_json_decode(j, k, &name);
        if (!e) e = lar_buf_add(&name, "", 1);
        if (e) e = lar_fail(e, d, INDEX_NAME ": the name of a tensor");
        else if (!lar_model_files_find(f, name.ptr))
            e = lar_fail(LAR_INVALID, d,
                         "%.*s: tensor %.255s is not in it, though model.safetensors.index.json says so",
                         LAR_FMT(lar_json_inner(j, k + 1)), name.ptr);
    }
    lar_buf_release(&name);
    return e;
}

static lar_error open_shards(lar_model_files *f, const shards *s, lar_diag *d) {
    lar_buf path;
    lar_buf_init(&path, LAR_MODEL_PATH_BYTES_MAX);
    lar_error e = lar_model_reserve_parts(f, s->count, d);
    for (uint32_t i = 0; !e && i < s->count; i++) {
        char name[256] = {0};
        memcpy(name, s->names[i].ptr, s->names[i].len); /* at most 255: is_plain_name */
        e = join(f->path.ptr, name, &path, d);
        if (!e) e = add_shard(f, path.ptr, name, d);
        if (e == LAR_NOT_FOUND)
            e = lar_fail(e, d, "%s: this shard is not in the folder, though model.safetensors.index.json names it",
                         name);
    }
    lar_buf_release(&path);
    if (!e) e = lar_model_index(f, d);
    return e ? e : check_promised(f, s, d);
}

static lar_error open_by_index(lar_model_files *f, lar_diag *d) {
    lar_buf text;
    lar_buf_init(&text, INDEX_BYTES_MAX);
    shards s = {.map = LAR_JSON_NONE};
    lar_json_init(&s.json);
    lar_error e = lar_model_files_text(f, INDEX_NAME, &text, d);
    if (e == LAR_NOT_FOUND)
        e = lar_fail(e, d, "neither model.safetensors nor model.safetensors.index.json is in the folder");
    lar_diag why = {0};
    const lar_json_limits limits = {.depth_max = 16, .nodes_max = 4u * LAR_TENSORS_MAX};
    if (!e && (e = lar_json_parse(&s.json, lar_buf_slice(&text), &limits, &why)) != LAR_OK)
        e = lar_fail(e == LAR_NO_MEMORY ? e : LAR_INVALID, d, INDEX_NAME ": %s (byte %" PRIu64 ")",
                     *why.text ? why.text : lar_error_text(e), why.offset);
    if (!e) e = list_shards(&s, d);
    if (!e) e = open_shards(f, &s, d);
    free(s.names);
    lar_json_release(&s.json);
    lar_buf_release(&text);
    return e;
}

static lar_error open_single(lar_model_files *f, const char *path, lar_diag *d) {
    lar_error e = lar_model_reserve_parts(f, 1, d);
    if (!e) e = add_shard(f, path, "model.safetensors", d);
    return e ? e : lar_model_index(f, d);
}

static bool is_file(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

lar_error lar_model_open_folder(lar_model_files *f, lar_diag *d) {
    lar_buf path;
    lar_buf_init(&path, LAR_MODEL_PATH_BYTES_MAX);
    f->form = LAR_MODEL_FOLDER;
    lar_error e = join(f->path.ptr, "config.json", &path, d);
    if (!e && !is_file(path.ptr))
        e = lar_fail(LAR_NOT_FOUND, d, "the folder has no config.json; a model in GGUF is named by its file");
    if (!e) e = join(f->path.ptr, "model.safetensors", &path, d);
    if (!e) e = is_file(path.ptr) ? open_single(f, path.ptr, d) : open_by_index(f, d);
    lar_buf_release(&path);
    return e ? e : link_scales(f, d);
}
