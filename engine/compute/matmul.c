/* Products of weights with activations: hands each to the kernels that prepared its matrix.
 * Flow: engine/model calls; the kernels (reference.c, kernels_*.c) compute. Any thread; blocks while it computes.
 * Why: a model may mix kernels, as the fast ones do not read every type.
 * Memory: prepare allocates, if the kernels repack; products allocate nothing. */
#include "engine/compute/matmul.h"

#include <string.h>

#include "base/ensure.h"

static lar_activations by_type(lar_activations wanted, lar_dtype type) {
    if (wanted != LAR_ACTIVATIONS_BY_TYPE) return wanted;
    return lar_dtype_info_of(type)->block_elements > 1 ? LAR_ACTIVATIONS_INT8 : LAR_ACTIVATIONS_F32;
}

lar_matrix lar_matrix_of(const lar_rows *rows, const lar_kernels *kernels, lar_activations activations) {
    return (lar_matrix){.kernels = kernels,
                        .rows = *rows,
                        .out = rows->out,
                        .in = (uint32_t)lar_tensor_row_elements(rows->tensor),
                        .activations = by_type(activations, rows->tensor->type)};
}

lar_error lar_matrix_prepare(lar_matrix *m, const lar_rows *rows, const lar_kernels *kernels,
                             lar_activations activations, lar_diag *d) {
    *m = lar_matrix_of(rows, kernels, activations);
    lar_error e = kernels->prepare(m, d);
    if (e) memset(m, 0, sizeof *m);
    return e;
}

static lar_error prepare_each(lar_mlp *m, lar_diag *d) {
    lar_error e = m->gate.kernels->prepare(&m->gate, d);
    if (!e) e = m->up.kernels->prepare(&m->up, d);
    if (!e) e = m->down.kernels->prepare(&m->down, d);
    return e;
}

lar_error lar_mlp_prepare(lar_mlp *m, lar_diag *d) {
    LAR_ASSERT(m->gate.kernels == m->up.kernels && m->gate.kernels == m->down.kernels);
    lar_error e = m->gate.kernels->prepare_mlp ? m->gate.kernels->prepare_mlp(m, d) : prepare_each(m, d);
    if (e) lar_mlp_release(m);
    return e;
}

static lar_error pack(lar_matrix *m, const lar_packing *how, lar_diag *d) {
    LAR_ASSERT((uintptr_t)how->memory % 64 == 0);
    m->borrowed = true;
    return m->kernels->pack(m, how, d);
}

uint64_t lar_matrix_packed_size(const lar_matrix *m) { return m->kernels->packed_size(m); }

lar_error lar_matrix_pack(lar_matrix *m, const lar_tensor *values, void *memory, lar_diag *d) {
    LAR_ASSERT(lar_tensor_rows(values) == m->out && lar_tensor_row_elements(values) == m->in);
    return pack(m, &(lar_packing){values, 0, memory, NULL}, d);
}

uint64_t lar_matrix_place_size(const lar_matrix *m) {
    return m->kernels == lar_kernels_reference() ? 0 : m->kernels->packed_size(m);
}

lar_error lar_matrix_place(lar_matrix *m, void *memory, struct lar_workers *workers, lar_diag *d) {
    if (m->kernels == lar_kernels_reference()) return LAR_OK;
    return pack(m, &(lar_packing){m->rows.tensor, m->rows.first, memory, workers}, d);
}

lar_ahead lar_matrix_ahead(const lar_matrix *m) {
    return (lar_ahead){m->packed, m->packed ? (const uint8_t *)m->packed + m->packed_bytes : NULL};
}

void lar_matrix_release(lar_matrix *m) {
    if (m->packed && !m->borrowed) m->kernels->release(m);
    memset(m, 0, sizeof *m);
}

void lar_mlp_release(lar_mlp *m) {
    lar_matrix_release(&m->gate);
    lar_matrix_release(&m->up);
    lar_matrix_release(&m->down);
}

uint64_t lar_matmul_workspace(const lar_matrix *matrices, uint32_t count, uint32_t tokens) {
    return matrices->kernels->workspace(matrices, count, tokens);
}

uint64_t lar_mlp_workspace(const lar_mlp *mlps, uint32_t count, uint32_t picks) {
    return mlps->gate.kernels->mlp_workspace(mlps, count, picks);
}

void lar_matmul(const lar_product *p, const lar_run *run) { p->matrices->kernels->products(p, 1, run); }

void lar_matmul_all(const lar_product *p, uint32_t count, const lar_run *run) {
    LAR_ASSERT(count <= LAR_PRODUCTS_MAX);
    for (uint32_t done = 0, some; done < count; done += some) {
        const lar_kernels *k = p[done].matrices->kernels;
        for (some = 1; done + some < count && p[done + some].matrices->kernels == k; some++) continue;
        k->products(p + done, some, run);
    }
}

void lar_mlp_run(const lar_mlp_job *job, const lar_run *run) {
    const lar_kernels *k = job->mlps->gate.kernels;
    if (!job->then || job->then->mlps->gate.kernels == k) {
        k->mlp(job, run);
        return;
    }
    lar_mlp_job first = *job;
    first.then = NULL;
    k->mlp(&first, run);
    lar_mlp_run(job->then, run);
}
