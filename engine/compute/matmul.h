/* Products of weights with rows of activations, y = x W^T: where an answer's time goes.
 *
 * A lar_kernels is one way to compute them (the readable reference, or code for one instruction set). A model prepares
 * each of its matrices once (kernels may repack them) and then only multiplies; nothing is allocated after that.
 * What a product needs beside its output is a workspace whose size is asked beforehand, so that a model can plan it.
 *
 * All kernels with the same lar_activations compute the same sums, in an order of their own; the tests compare them. An
 * element of y depends only on its own row of x and its own row of W: not on how many tokens are given at once, nor on
 * the number of workers, so that a prompt in one piece and in chunks gives the same answer bit by bit. */
#ifndef LARDER_ENGINE_COMPUTE_MATMUL_H
#define LARDER_ENGINE_COMPUTE_MATMUL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "engine/compute/vectors.h"
#include "engine/files/tensor.h"

/* How x is rounded before it is multiplied. Sums are float32 or wider always. */
typedef enum lar_activations {
    LAR_ACTIVATIONS_F32,    /* as it is */
    LAR_ACTIVATIONS_BF16,   /* to the nearest, ties to even */
    LAR_ACTIVATIONS_INT8,   /* blocks of 32 along a row: scale = max|x| / 127, the nearest integer of x / scale */
    LAR_ACTIVATIONS_BY_TYPE /* only asked for: INT8 with weights that are integers in blocks, F32 with floats */
} lar_activations;
enum { LAR_INT8_BLOCK = 32, LAR_PRODUCTS_MAX = 4 };

/* Rows [first, first + out) of a tensor, as the (out, in) matrix that they are. A whole matrix has first 0; expert e of
 * an (experts, out, in) tensor begins at e * out. The tensor and its bytes must live as long as the matrix. */
typedef struct lar_rows {
    const lar_tensor *tensor;
    uint64_t first;
    uint32_t out;
} lar_rows;

typedef struct lar_matrix {
    const struct lar_kernels *kernels; /* who prepared it and can multiply it */
    lar_rows rows;
    uint32_t out, in;
    lar_activations activations;
    void *packed; /* the kernels' own form; NULL: rows are read where they lie */
    uint64_t packed_bytes;
    bool borrowed; /* packed lies in memory of the caller's; else it is owned */
} lar_matrix;

/* down( silu(gate(x)) * up(x) ): gate and up are (width, hidden), down is (hidden, width). Kernels may keep the packed
 * form of gate and up together in gate.packed. */
typedef struct lar_mlp {
    lar_matrix gate, up, down;
} lar_mlp;

/* What a product runs with. */
typedef struct lar_run {
    struct lar_workers *workers; /* NULL: the calling thread alone */
    void *workspace;             /* aligned to 64 */
    uint64_t workspace_bytes;    /* at least what lar_..._workspace said */
} lar_run;

/* `count` matrices of one shape beside each other in memory, each with its own x and y: one product, or one for each
 * head of an attention layer. Row t of matrix m's x begins at x[m * x_step + t * x_row], and likewise y; y is
 * overwritten. x and y do not overlap. */
typedef struct lar_product {
    const lar_matrix *matrices; /* (count) */
    uint32_t count, tokens;
    const float *x;         /* (tokens, in) */
    uint64_t x_row, x_step; /* floats */
    float *y;               /* (tokens, out) */
    uint64_t y_row, y_step; /* floats */
} lar_product;

/* Experts by group of tokens: pick p of expert e, starts[e] <= p < starts[e + 1], is token token[p] with weight[p], and
 *     y[token[p]] += weight[p] * mlps[e](x[token[p]])
 * in ascending order of e for each token. No token twice in one expert. Dense layers and shared experts are one mlp
 * with every token: token NULL (pick p is token p) and weight NULL (1). */
typedef struct lar_mlp_job {
    const lar_mlp *mlps; /* (count), of one shape */
    uint32_t count;
    const uint32_t *starts; /* (count + 1), starts[count] picks in all */
    const uint32_t *token;  /* (picks) */
    const float *weight;    /* (picks) */
    const float *x;         /* (tokens, hidden) */
    float *y;               /* (tokens, hidden), added to */
    const struct lar_mlp_job
        *then; /* one more, with the same y, added after this one; NULL: none. It has none itself */
} lar_mlp_job;

/* Where a matrix's form comes from and goes to. */
typedef struct lar_packing {
    const lar_tensor *values; /* its rows begin at row `first` */
    uint64_t first;
    void *memory;
    struct lar_workers *workers; /* share the work; NULL: the calling thread alone */
} lar_packing;

typedef struct lar_kernels {
    const char *name; /* "reference", "avx2" */
    /* `m` comes from lar_matrix_of. INVALID for a type or a width that these kernels do not read (the caller may then
     * prepare with the reference), NO_MEMORY. */
    lar_error (*prepare)(lar_matrix *m, lar_diag *d);
    lar_error (*prepare_mlp)(lar_mlp *m, lar_diag *d); /* NULL: the three by prepare */
    void (*release)(lar_matrix *m);
    /* The same form in memory of the caller's. */
    uint64_t (*packed_size)(const lar_matrix *m);
    lar_error (*pack)(lar_matrix *m, const lar_packing *how, lar_diag *d);
    uint64_t (*workspace)(const lar_matrix *m, uint32_t count, uint32_t tokens); /* bytes for one lar_product */
    uint64_t (*mlp_workspace)(const lar_mlp *mlps, uint32_t count, uint32_t picks);
    void (*products)(const lar_product *p, uint32_t count, const lar_run *run);
    void (*mlp)(const lar_mlp_job *job, const lar_run *run);
} lar_kernels;

/* The readable ones: any type, a row at a time, each sum in double in ascending order. */
const lar_kernels *lar_kernels_reference(void);

/* Prepares `m` from `rows` with `kernels`. `m` is overwritten; after an error it needs no release.
 * Errors: INVALID, NO_MEMORY. */
LAR_MUST_USE lar_error lar_matrix_prepare(lar_matrix *m, const lar_rows *rows, const lar_kernels *kernels,
                                          lar_activations activations, lar_diag *d);
/* The caller has filled gate, up and down as lar_matrix_of() does; after an error nothing needs a release. */
LAR_MUST_USE lar_error lar_mlp_prepare(lar_mlp *m, lar_diag *d);
/* A matrix that is not prepared yet; `activations` BY_TYPE is decided here. */
lar_matrix lar_matrix_of(const lar_rows *rows, const lar_kernels *kernels, lar_activations activations);
/* For weights that come and go: bytes that the packed form of a matrix as lar_matrix_of() gives it takes, a multiple of
 * 64; and that form, made in `memory` (so many bytes, aligned to 64) from the rows of `values`, which are those of the
 * matrix alone, (out, in) of its type, and are not read after. `m` can multiply as long as the memory stays as it is,
 * and is never released. The tensor of `m` itself need not be in memory. INVALID as prepare says; then the memory's
 * contents are undefined. */
uint64_t lar_matrix_packed_size(const lar_matrix *m);
LAR_MUST_USE lar_error lar_matrix_pack(lar_matrix *m, const lar_tensor *values, void *memory, lar_diag *d);
/* For weights that stay: `m` as lar_matrix_of() gives it gets its form from its own rows, in memory of the caller's of
 * lar_matrix_place_size() bytes, aligned to 64; 0: rows are read where they lie, and `memory` is not looked at. The
 * memory must live as long as the matrix and is not given back with it. `workers` share the work (NULL: the calling
 * thread alone). INVALID as prepare says. */
uint64_t lar_matrix_place_size(const lar_matrix *m);
LAR_MUST_USE lar_error lar_matrix_place(lar_matrix *m, void *memory, struct lar_workers *workers, lar_diag *d);
/* The bytes that a product with `m` reads, of its packed form; none where rows are read where they lie. */
lar_ahead lar_matrix_ahead(const lar_matrix *m);
/* Zeroed matrices are fine. */
void lar_matrix_release(lar_matrix *m);
void lar_mlp_release(lar_mlp *m);

uint64_t lar_matmul_workspace(const lar_matrix *matrices, uint32_t count, uint32_t tokens);
/* For a job with another behind it: the sum of both. */
uint64_t lar_mlp_workspace(const lar_mlp *mlps, uint32_t count, uint32_t picks);
void lar_matmul(const lar_product *p, const lar_run *run);
/* `count` (at most LAR_PRODUCTS_MAX) products that do not need each other, in one go where their kernels are the same:
 * the workers wait for each other once. The workspace is the sum of theirs. */
void lar_matmul_all(const lar_product *p, uint32_t count, const lar_run *run);
void lar_mlp_run(const lar_mlp_job *job, const lar_run *run);

/* Rounds n values in place as `activations` says: what the reference does before it multiplies. */
void lar_activations_round(lar_activations activations, float *x, uint64_t n);

#endif
