/* Opens a model: which form it has, the index of its tensors by name, reading of texts beside them.
 * Called by engine/model and by `larder inspect | plan`; blocks on the disk. Flow: the path says the form;
 * model_folder.c or model_gguf.c maps each file and reads its header; then names are sorted, which also finds those
 * that appear twice. Invariants: 1. `by_name` is sorted and has no equals. 2. items never move once it is made, so that
 * tensors may point at one another. Memory: one object, the list, the index, a mapping for each file. */
#include "engine/files/model_files.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/ensure.h"
#include "base/file.h"
#include "engine/files/model_open.h"

lar_model_form lar_model_files_form(const lar_model_files *f) { return f->form; }
uint32_t lar_model_files_count(const lar_model_files *f) { return f->list.count; }
uint32_t lar_model_files_parts(const lar_model_files *f) { return f->part_count; }

const lar_gguf *lar_model_files_metadata(const lar_model_files *f) {
    return f->form == LAR_MODEL_GGUF ? &f->metadata : NULL;
}

const lar_tensor *lar_model_files_at(const lar_model_files *f, uint32_t i) {
    LAR_ASSERT(i < f->list.count);
    return &f->list.items[i];
}

const lar_file_view *lar_model_files_part(const lar_model_files *f, uint32_t i) {
    LAR_ASSERT(i < f->part_count);
    return &f->parts[i];
}

const char *lar_model_files_path(const lar_model_files *f, uint32_t i) {
    LAR_ASSERT(i < f->part_count);
    return f->paths[i];
}

uint32_t lar_model_files_part_of(const lar_model_files *f, const lar_tensor *t) {
    uintptr_t data = (uintptr_t)t->data;
    for (uint32_t i = 0; i < f->part_count; i++) {
        uintptr_t begin = (uintptr_t)f->parts[i].bytes;
        if (data >= begin && data - begin < f->parts[i].size) return i;
    }
    LAR_UNREACHABLE("a tensor of another model");
}

static int compare_names(const void *a, const void *b) {
    return strcmp((*(const lar_tensor *const *)a)->name, (*(const lar_tensor *const *)b)->name);
}

const lar_tensor *lar_model_files_find(const lar_model_files *f, const char *name) {
    const lar_tensor wanted = {.name = name}, *key = &wanted;
    const lar_tensor **found =
        f->list.count ? bsearch(&key, f->by_name, f->list.count, sizeof *f->by_name, compare_names) : NULL;
    return found ? *found : NULL;
}

lar_error lar_model_index(lar_model_files *f, lar_diag *d) {
    uint32_t n = f->list.count;
    if (!n) return lar_fail(LAR_INVALID, d, "there are no tensors in it");
    f->by_name = malloc(n * sizeof *f->by_name);
    if (!f->by_name) return lar_fail(LAR_NO_MEMORY, d, "an index of %u tensors", n);
    for (uint32_t i = 0; i < n; i++) f->by_name[i] = &f->list.items[i];
    qsort(f->by_name, n, sizeof *f->by_name, compare_names);
    for (uint32_t i = 0; i + 1 < n; i++)
        if (strcmp(f->by_name[i]->name, f->by_name[i + 1]->name) == 0)
            return lar_fail(LAR_INVALID, d, "tensor %s is there twice", f->by_name[i]->name);
    return LAR_OK;
}

/* -- texts beside the tensors ------------------------------------------------------------------------------------- */

lar_error lar_model_files_text(const lar_model_files *f, const char *name, lar_buf *out, lar_diag *d) {
    if (f->form != LAR_MODEL_FOLDER) return lar_fail(LAR_NOT_FOUND, d, "%.100s: a GGUF model has no such file", name);
    lar_buf path;
    lar_buf_init(&path, LAR_MODEL_PATH_BYTES_MAX);
    lar_error e = lar_buf_printf(&path, "%s/%s", f->path.ptr, name);
    if (e) e = lar_fail(e, d, "the path of %.100s", name);
    lar_diag why = {0};
    if (!e && (e = lar_file_read(path.ptr, LAR_FILE_REGULAR, out, &why)) != LAR_OK)
        e = lar_fail(e, d, "%.100s: %s", name, *why.text ? why.text : lar_error_text(e));
    lar_buf_release(&path);
    return e;
}

/* -- parts -------------------------------------------------------------------------------------------------------- */

lar_error lar_model_reserve_parts(lar_model_files *f, uint32_t count, lar_diag *d) {
    if (count > LAR_MODEL_PARTS_MAX)
        return lar_fail(LAR_LIMIT, d, "the model has %u files; at most %d", count, LAR_MODEL_PARTS_MAX);
    f->parts = calloc(count, sizeof *f->parts);
    f->paths = calloc(count, sizeof *f->paths);
    return f->parts && f->paths ? LAR_OK : lar_fail(LAR_NO_MEMORY, d, "a list of %u files", count);
}

/* The mapping stays when its header is refused later: close releases it. */
lar_error lar_model_add_part(lar_model_files *f, const char *path, const char *name, lar_diag *d) {
    lar_file_view *part = &f->parts[f->part_count];
    lar_error e = lar_mapped_file_open(path, part, d);
    if (e) return e;
    f->part_count++;
    part->name = lar_arena_copy(&f->list.names, lar_slice_cstr(name)).ptr;
    f->paths[f->part_count - 1] = lar_arena_copy(&f->list.names, lar_slice_cstr(path)).ptr;
    return part->name && f->paths[f->part_count - 1] ? LAR_OK : lar_fail(LAR_NO_MEMORY, d, "the name of a file");
}

/* -- opening ------------------------------------------------------------------------------------------------------ */

static lar_error open_path(lar_model_files *f, const char *path, lar_diag *d) {
    struct stat st;
    f->path = lar_arena_copy(&f->list.names, lar_slice_cstr(path));
    if (!f->path.ptr) return lar_fail(LAR_NO_MEMORY, d, "a path");
    if (stat(path, &st) != 0) return lar_fail(LAR_NOT_FOUND, d, "there is no such file or folder: %.160s", path);
    if (S_ISDIR(st.st_mode)) return lar_model_open_folder(f, d);
    return lar_model_open_gguf(f, d);
}

lar_error lar_model_files_open(const char *path, lar_model_files **out, lar_diag *d) {
    *out = NULL;
    lar_model_files *f = calloc(1, sizeof *f);
    if (!f) return lar_fail(LAR_NO_MEMORY, d, "a model's files");
    lar_tensor_list_init(&f->list);
    lar_error e = open_path(f, path, d);
    if (e) lar_model_files_close(f);
    else *out = f;
    return e;
}

void lar_model_files_close(lar_model_files *f) {
    if (!f) return;
    for (uint32_t i = 0; i < f->part_count; i++) lar_mapped_file_close(&f->parts[i]);
    free(f->parts);
    free(f->paths);
    free(f->by_name);
    lar_gguf_release(&f->metadata);
    lar_tensor_list_release(&f->list);
    free(f);
}
