/* Inside engine/files: what model_files.c and the openers of the two forms share. */
#ifndef LARDER_ENGINE_MODEL_OPEN_H
#define LARDER_ENGINE_MODEL_OPEN_H

#include "engine/files/gguf.h"
#include "engine/files/model_files.h"
#include "engine/files/tensor_list.h"

enum { LAR_MODEL_PARTS_MAX = 4096, LAR_MODEL_PATH_BYTES_MAX = 1 << 16 };

struct lar_model_files {
    lar_model_form form;
    lar_slice path;       /* in list.names */
    lar_file_view *parts; /* [part_count], each mapped */
    const char **paths;   /* [part_count], in list.names */
    uint32_t part_count;
    lar_tensor_list list;
    const lar_tensor **by_name; /* [list.count], sorted, no two equal; made once the list is complete */
    lar_gguf metadata;          /* GGUF: of the first part */
};

/* Room for `count` parts; LIMIT over LAR_MODEL_PARTS_MAX, NO_MEMORY. */
LAR_MUST_USE lar_error lar_model_reserve_parts(lar_model_files *f, uint32_t count, lar_diag *d);
/* Maps the next part, which will be called `name` (copied). Errors as lar_mapped_file_open. */
LAR_MUST_USE lar_error lar_model_add_part(lar_model_files *f, const char *path, const char *name, lar_diag *d);
/* The list is complete: sorts it by name. INVALID if it is empty or two have one name; NO_MEMORY. */
LAR_MUST_USE lar_error lar_model_index(lar_model_files *f, lar_diag *d);

LAR_MUST_USE lar_error lar_model_open_folder(lar_model_files *f, lar_diag *d);
LAR_MUST_USE lar_error lar_model_open_gguf(lar_model_files *f, lar_diag *d);

#endif
