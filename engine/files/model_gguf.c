/* Opens a GGUF model: one file, or all the parts that gguf-split made of one.
 * Called by model_files.c; blocks on the disk. Source: llama.cpp's gguf-split: parts are called
 * NAME-00001-of-0000N.gguf and hold split.no (from 0), split.count and split.tensors.count; the first part has the
 * model's metadata. Why every part's claims are checked: a part of another model, or one too few, gives a model that
 * runs and is wrong. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/files/model_open.h"

enum { SUFFIX_BYTES = sizeof "-00001-of-00001.gguf" - 1, DIGITS = 5 };

static bool read_digits(const char *p, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < DIGITS; i++) {
        if (p[i] < '0' || p[i] > '9') return false;
        *out = *out * 10 + (uint32_t)(p[i] - '0');
    }
    return true;
}

/* Whether a path is that of a part; then how many there are, and the length of what stands before "-0000". */
static bool is_part(lar_slice path, size_t *stem, uint32_t *count) {
    if (path.len <= SUFFIX_BYTES) return false;
    const char *p = path.ptr + path.len - SUFFIX_BYTES;
    uint32_t number;
    *stem = path.len - SUFFIX_BYTES;
    return p[0] == '-' && read_digits(p + 1, &number) && !memcmp(p + 6, "-of-", 4) && read_digits(p + 10, count) &&
           !memcmp(p + 15, ".gguf", 5) && number >= 1 && number <= *count;
}

static lar_error split_value(const lar_gguf *g, const char *key, uint64_t *out, lar_diag *d) {
    *out = 0;
    lar_error e = lar_gguf_u64(g, key, out, d);
    return e == LAR_NOT_FOUND ? LAR_OK : e;
}

/* Part `number` (from 0) of `count` must say so itself; a file that was never split says nothing. */
static lar_error check_part(const lar_gguf *g, uint32_t number, uint32_t count, lar_diag *d) {
    uint64_t no, of;
    lar_error e = split_value(g, "split.no", &no, d);
    if (!e) e = split_value(g, "split.count", &of, d);
    if (e || (no == number && (of == count || (count == 1 && of == 0)))) return e;
    if (count == 1)
        return lar_fail(LAR_INVALID, d,
                        "%.100s: it is part %" PRIu64 " of %" PRIu64
                        ", but not called NAME-%05u-of-%05u.gguf, so the others "
                        "cannot be found",
                        g->name, no + 1, of, (unsigned)(no + 1) % 100000, (unsigned)of % 100000);
    return lar_fail(LAR_INVALID, d, "%.100s: expected part %u of %u, found part %" PRIu64 " of %" PRIu64, g->name,
                    number + 1, count, no + 1, of);
}

static lar_error read_part(lar_model_files *f, const char *path, uint32_t number, uint32_t count, lar_diag *d) {
    lar_error e = lar_model_add_part(f, path, lar_file_name(path), d);
    if (e) return e;
    lar_gguf rest = {0}, *g = number ? &rest : &f->metadata;
    e = lar_gguf_read(&f->parts[number], g, &f->list, d);
    if (!e) e = check_part(g, number, count, d);
    lar_gguf_release(&rest);
    return e;
}

static lar_error read_parts(lar_model_files *f, size_t stem, uint32_t count, lar_diag *d) {
    lar_buf path;
    lar_buf_init(&path, LAR_MODEL_PATH_BYTES_MAX);
    lar_error e = lar_model_reserve_parts(f, count, d);
    for (uint32_t i = 0; !e && i < count; i++) {
        lar_buf_reset(&path, 4096);
        e = lar_buf_printf(&path, "%.*s-%05u-of-%05u.gguf", (int)stem, f->path.ptr, i + 1, count);
        if (e) e = lar_fail(e, d, "the path of part %u", i + 1);
        else e = read_part(f, path.ptr, i, count, d);
        if (e == LAR_NOT_FOUND)
            e = lar_fail(e, d, "%.150s: this part is not there; all %u parts must lie in one folder",
                         lar_file_name(path.ptr), count);
    }
    lar_buf_release(&path);
    return e;
}

static lar_error check_total(const lar_model_files *f, lar_diag *d) {
    uint64_t total;
    lar_error e = lar_gguf_u64(&f->metadata, "split.tensors.count", &total, d);
    if (e || total == f->list.count) return e;
    return lar_fail(LAR_INVALID, d, "split.tensors.count: expected %" PRIu64 " tensors in all parts, found %u", total,
                    f->list.count);
}

lar_error lar_model_open_gguf(lar_model_files *f, lar_diag *d) {
    size_t stem = 0;
    uint32_t count = 1;
    f->form = LAR_MODEL_GGUF;
    bool split = is_part(f->path, &stem, &count) && count > 1;
    lar_error e = split ? read_parts(f, stem, count, d) : lar_model_reserve_parts(f, 1, d);
    if (!e && !split) e = read_part(f, f->path.ptr, 0, 1, d);
    if (!e && split) e = check_total(f, d);
    return e ? e : lar_model_index(f, d);
}
