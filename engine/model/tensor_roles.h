/* Which tensors a model of a configuration consists of, what each is for, and what of it is missing. */
#ifndef LARDER_ENGINE_MODEL_TENSOR_ROLES_H
#define LARDER_ENGINE_MODEL_TENSOR_ROLES_H

#include "engine/files/model_files.h"
#include "engine/files/tensor_list.h"
#include "engine/model/model_config.h"

typedef enum lar_tensor_kind {
    LAR_KIND_EMBEDDING,
    LAR_KIND_ATTENTION,
    LAR_KIND_DENSE,   /* the MLPs of dense layers */
    LAR_KIND_ROUTER,  /* with its bias */
    LAR_KIND_EXPERTS, /* those that the router chooses from */
    LAR_KIND_SHARED,  /* those of every token */
    LAR_KIND_NORMS,
    LAR_KIND_OUTPUT,
    LAR_KIND_FURTHER, /* layers behind the last: they predict further tokens (MTP), and larder leaves them out */
    LAR_KIND_OTHER,   /* of no use to larder */
    LAR_KIND_COUNT
} lar_tensor_kind;

/* "experts" */
const char *lar_tensor_kind_name(lar_tensor_kind kind);
/* By its name alone. Scales of FP8 belong to their matrix. `layers`: how many the model has; 0: not known. */
lar_tensor_kind lar_tensor_kind_of(const char *name, lar_model_form form, uint32_t layers);

typedef enum lar_tensor_problem { LAR_TENSOR_MISSING, LAR_TENSOR_MISSHAPEN } lar_tensor_problem;
typedef struct lar_tensor_lack {
    const char *name; /* valid during the call */
    lar_tensor_problem problem;
    char expected[LAR_SHAPE_BYTES], found[LAR_SHAPE_BYTES]; /* "(64, 128)"; found: "" where it is missing */
} lar_tensor_lack;

/* Calls `lack` for each tensor that a model of `c` needs and `f` lacks or has in another shape; returns how many there
 * are. All of the model is looked at, whatever is found. */
uint32_t lar_tensors_check(const lar_model_config *c, const lar_model_files *f,
                           void (*lack)(void *context, const lar_tensor_lack *l), void *context);

#endif
