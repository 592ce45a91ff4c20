/* larder inspect: what a model is, from its headers alone. */
#ifndef LARDER_GATEWAY_LOCAL_INSPECT_H
#define LARDER_GATEWAY_LOCAL_INSPECT_H

#include "engine/model/tensor_roles.h"

/* argv begins behind the command's name. 0: larder can run the model; 1: it cannot, or the model cannot be read; 2:
 * usage. */
int lar_command_inspect(int argc, char **argv);

/* -- shared by its files ---------------------------------------------------------------------------------------- */

typedef enum lar_inspect_field {
#define LAR_INSPECT(id, label, config, gguf) LAR_INSPECT_##id,
#include "gateway/local/inspect_fields.def"
#undef LAR_INSPECT
    LAR_INSPECT_FIELD_COUNT
} lar_inspect_field;

typedef struct lar_inspect_field_row {
    const char *label, *config, *gguf;
} lar_inspect_field_row;
const lar_inspect_field_row *lar_inspect_field_of(lar_inspect_field f);

typedef struct lar_inspect_sum {
    uint64_t tensors, values, bytes;
} lar_inspect_sum;

enum { LAR_INSPECT_LACKS_MAX = 20, LAR_INSPECT_TEXT_BYTES = 512 };

typedef struct lar_inspect_lack {
    char name[LAR_TENSOR_NAME_MAX + 1];
    lar_tensor_lack lack; /* its name is the one above */
} lar_inspect_lack;

/* A part that a model may have, and that larder may refuse. */
typedef enum lar_inspect_state { LAR_INSPECT_NONE, LAR_INSPECT_READ, LAR_INSPECT_REFUSED } lar_inspect_state;
typedef struct lar_inspect_part {
    lar_inspect_state state;
    char text[LAR_INSPECT_TEXT_BYTES]; /* what it is, or why it is refused */
} lar_inspect_part;

/* Text from the model is made harmless for a terminal, and is valid UTF-8. */
typedef struct lar_inspection {
    const lar_model_files *files;
    char architecture[LAR_INSPECT_TEXT_BYTES], name[LAR_INSPECT_TEXT_BYTES];
    uint64_t field[LAR_INSPECT_FIELD_COUNT];
    bool known[LAR_INSPECT_FIELD_COUNT];
    lar_inspect_sum all, by_kind[LAR_KIND_COUNT], by_type[LAR_DTYPE_COUNT];
    uint64_t file_bytes;
    lar_model_config config;
    lar_diag refused; /* why larder cannot run the architecture; empty: it can */
    uint32_t lack_count;
    lar_inspect_lack lacks[LAR_INSPECT_LACKS_MAX]; /* the first of them */
    lar_inspect_part tokenizer, chat_template;
} lar_inspection;

/* Everything that headers and small texts say. Only NO_MEMORY is an error: what cannot be read is said in its place. */
LAR_MUST_USE lar_error lar_inspect_read(const lar_model_files *f, lar_inspection *out);

/* The architecture is one that larder runs, and no tensor is missing or has another shape. */
static inline bool lar_inspect_runs(const lar_inspection *i) { return !*i->refused.text && !i->lack_count; }

typedef enum lar_inspect_detail { LAR_INSPECT_SUMS, LAR_INSPECT_TENSORS } lar_inspect_detail;
void lar_inspect_print(const lar_inspection *i, lar_inspect_detail detail);
/* NO_MEMORY: nothing is written. IO: main.c reports. */
LAR_MUST_USE lar_error lar_inspect_print_json(const lar_inspection *i, lar_inspect_detail detail);

#endif
