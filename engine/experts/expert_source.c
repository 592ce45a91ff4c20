/* Reads one matrix of one expert and packs it.
 * Called by the reading threads of expert_cache.c; calls engine/files and the kernels' pack. Any thread; blocks on the
 * disk. Why values are checked at each read: opening a model must not read what it will not keep, and a number that is
 * none would reach every logit. Invariant: no byte of the mapping is read here.
 * Memory: what the caller gives. */
#include "engine/experts/expert_source.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/ensure.h"

lar_error lar_expert_source_init(lar_expert_source *s, const lar_model_files *files, lar_diag *d) {
    *s = (lar_expert_source){.files = files, .count = lar_model_files_parts(files)};
    s->parts = calloc(s->count, sizeof *s->parts);
    if (!s->parts) return lar_fail(LAR_NO_MEMORY, d, "a list of %u files", s->count);
    for (uint32_t i = 0; i < s->count; i++) s->parts[i].fd = -1;
    return LAR_OK;
}

void lar_expert_source_release(lar_expert_source *s) {
    for (uint32_t i = 0; s->parts && i < s->count; i++) lar_direct_file_close(&s->parts[i]);
    free(s->parts);
    *s = (lar_expert_source){0};
}

bool lar_expert_source_buffered(const lar_expert_source *s) {
    for (uint32_t i = 0; i < s->count; i++)
        if (s->parts[i].fd >= 0 && atomic_load(&s->parts[i].buffered)) return true;
    return false;
}

static uint64_t row_bytes(const lar_tensor *t) { return t->bytes / lar_tensor_rows(t); }

static uint64_t offset_in(const lar_file_view *file, const lar_tensor *t) {
    return (uint64_t)((uintptr_t)t->data - (uintptr_t)file->bytes);
}

static lar_error add_tensor(lar_expert_source *s, const lar_tensor *t, lar_diag *d) {
    uint32_t part = lar_model_files_part_of(s->files, t);
    const lar_file_view *file = lar_model_files_part(s->files, part);
    lar_error e = LAR_OK;
    if (s->parts[part].fd < 0) e = lar_direct_file_open(lar_model_files_path(s->files, part), file, &s->parts[part], d);
    if (!e) lar_direct_file_forget(&s->parts[part], file, &(lar_direct_range){offset_in(file, t), t->bytes});
    return e;
}

lar_error lar_expert_source_add(lar_expert_source *s, const lar_matrix *m, lar_diag *d) {
    lar_error e = add_tensor(s, m->rows.tensor, d);
    return e || !m->rows.tensor->scale ? e : add_tensor(s, m->rows.tensor->scale, d);
}

uint64_t lar_expert_source_bytes(const lar_matrix *m) {
    const lar_tensor *t = m->rows.tensor;
    return m->out * row_bytes(t) + (t->scale ? t->scale->bytes : 0);
}

uint64_t lar_expert_source_room(const lar_matrix *m) {
    const lar_tensor *t = m->rows.tensor;
    return lar_direct_room(m->out * row_bytes(t)) + (t->scale ? lar_direct_room(t->scale->bytes) : 0);
}

/* Rows [first, first + rows) of `t` into `room`; `out` becomes the tensor of these rows. */
static lar_error read_rows(const lar_expert_source *s, const lar_rows *rows, void *room, lar_tensor *out, lar_diag *d) {
    const lar_tensor *t = rows->tensor;
    uint32_t part = lar_model_files_part_of(s->files, t);
    uint64_t each = row_bytes(t), offset = offset_in(lar_model_files_part(s->files, part), t);
    lar_direct_range range = {offset + rows->first * each, rows->out * each};
    *out = (lar_tensor){.name = t->name, .type = t->type, .dims = 2, .bytes = range.bytes};
    out->shape[0] = rows->out, out->shape[1] = lar_tensor_row_elements(t);
    return lar_direct_file_read(&s->parts[part], &range, room, &out->data, d);
}

lar_error lar_expert_source_load(const lar_expert_source *s, lar_expert_load *l, lar_diag *d) {
    const lar_tensor *scale_in_file = l->from->rows.tensor->scale;
    lar_tensor values, scale;
    uint64_t begin = lar_clock_mono_ns();
    lar_error e = read_rows(s, &l->from->rows, l->room, &values, d);
    if (!e && scale_in_file) { /* of a whole matrix: stacked experts have no scales */
        LAR_ASSERT(l->from->rows.first == 0);
        lar_rows all = {scale_in_file, 0, (uint32_t)lar_tensor_rows(scale_in_file)};
        e = read_rows(s, &all, (uint8_t *)l->room + lar_direct_room(values.bytes), &scale, d);
        values.scale = &scale;
    }
    uint64_t middle = lar_clock_mono_ns();
    l->read_ns = middle - begin;
    if (e) return e;
    *l->to = *l->from;
    e = lar_tensor_check_finite(&values, d);
    if (!e) e = lar_matrix_pack(l->to, &values, l->memory, d);
    l->pack_ns = lar_clock_mono_ns() - middle;
    return e == LAR_INVALID ? LAR_CORRUPT : e;
}
