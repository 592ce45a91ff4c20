/* Where experts come from: a matrix of a model's file, read beside its mapping, checked and packed. */
#ifndef LARDER_ENGINE_EXPERT_SOURCE_H
#define LARDER_ENGINE_EXPERT_SOURCE_H

#include "engine/compute/matmul.h"
#include "engine/files/direct_file.h"
#include "engine/files/model_files.h"

/* Embedded. */
typedef struct lar_expert_source {
    const lar_model_files *files;
    lar_direct_file *parts; /* (count), those that hold no experts not open */
    uint32_t count;
} lar_expert_source;

LAR_MUST_USE lar_error lar_expert_source_init(lar_expert_source *s, const lar_model_files *files, lar_diag *d);
void lar_expert_source_release(lar_expert_source *s);
/* Opens the file that holds the tensor of `m` and lets go of the tensor's pages in memory. Before the first read of it.
 * NOT_FOUND, IO: as lar_direct_file_open. */
LAR_MUST_USE lar_error lar_expert_source_add(lar_expert_source *s, const lar_matrix *m, lar_diag *d);
/* Whether a file system takes no direct reads. */
bool lar_expert_source_buffered(const lar_expert_source *s);

/* Bytes of room for reading the rows of `m`, with their scales; bytes of the file that they are. */
uint64_t lar_expert_source_room(const lar_matrix *m);
uint64_t lar_expert_source_bytes(const lar_matrix *m);

/* One matrix on its way. */
typedef struct lar_expert_load {
    const lar_matrix *from; /* as lar_matrix_of() fills it */
    void *room;             /* lar_expert_source_room() bytes, aligned to LAR_DIRECT_ALIGN */
    void *memory;           /* lar_matrix_packed_size() bytes, aligned to 64 */
    lar_matrix *to;         /* becomes the packed matrix */
    uint64_t read_ns, pack_ns;
} lar_expert_load;

/* IO: it cannot be read; CORRUPT: a value is no number. Any thread, a room each. */
LAR_MUST_USE lar_error lar_expert_source_load(const lar_expert_source *s, lar_expert_load *l, lar_diag *d);

#endif
