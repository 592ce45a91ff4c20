/* Memory arithmetic: what a model's weights, the keys and values of its requests, and scratch take, whether it fits,
 * and what to change if not. Pure sums over a few numbers; nothing is loaded.
 *
 * Bytes a token: attention by heads (MHA, GQA) layers x (key + value) x KV heads x head dim x bytes of a value; latent
 * attention (MLA) layers x (rank + rotated part) x bytes, with the scales and pages of kv_format.def.
 * Order of use: a model from one of the three readers, or fields filled in by hand; lar_plan_model_finish;
 * lar_plan_compute; lar_plan_most_* and lar_plan_changes. */
#ifndef LARDER_ENGINE_PLAN_H
#define LARDER_ENGINE_PLAN_H

#include "base/slice.h"
#include "engine/files/kv_format.h"
#include "engine/files/model_files.h"

typedef enum lar_plan_field {
#define LAR_PLAN_FIELD(id, most, config, gguf) LAR_PLAN_##id,
#include "engine/plan/plan_field.def"
#undef LAR_PLAN_FIELD
    LAR_PLAN_FIELD_COUNT
} lar_plan_field;

typedef struct lar_plan_field_info {
    uint64_t most;
    const char *config, *gguf; /* config: names parted by '|' */
} lar_plan_field_info;
const lar_plan_field_info *lar_plan_field_info_of(lar_plan_field f);

enum { LAR_PLAN_NAME_BYTES = 64 };
/* Embedded; all zero before a reader. */
typedef struct lar_plan_model {
    char type[LAR_PLAN_NAME_BYTES]; /* model_type or GGUF's architecture; empty: by hand */
    uint64_t field[LAR_PLAN_FIELD_COUNT];
    uint64_t layers_windowed;  /* keep only the last WINDOW tokens */
    uint64_t layers_stateless; /* keep nothing that grows with tokens (linear attention) */
    bool window_unclear;       /* a window is named, but not for which layers: counted as if there were none */
    bool tied, plain_mlp;      /* the output matrix is the embedding; an MLP of two matrices, not three */
    bool latent;               /* set by finish: MLA */
    uint64_t parameters;       /* by finish, where the fields suffice, or of the files; 0: not known */
    lar_dtype stored;          /* as the weights are published */
    uint64_t file_bytes;       /* of all tensors; 0: no files */
    uint64_t type_bytes[LAR_DTYPE_COUNT];
    uint32_t parts;
} lar_plan_model;

/* Reads the text of any model's config.json; of one with several parts, that of its language model (text_config).
 * INVALID: a number that cannot be (its field, what was found and what is possible), or a kind of state that is not
 * counted, by name; JSON_* with the offset; NO_MEMORY. */
LAR_MUST_USE lar_error lar_plan_model_from_config(lar_plan_model *m, lar_slice text, lar_diag *d);
/* A folder's config.json or GGUF's metadata, and the sizes and types of the tensors that are really there. */
LAR_MUST_USE lar_error lar_plan_model_from_files(lar_plan_model *m, const lar_model_files *f, lar_diag *d);
/* Sets the type's name, cut, with '?' for all that could disturb a terminal. */
void lar_plan_model_name(lar_plan_model *m, lar_slice name);
/* Sets a field; INVALID with the name `called` if it is over what is possible. */
LAR_MUST_USE lar_error lar_plan_model_set(lar_plan_model *m, lar_plan_field f, uint64_t value, const char *called,
                                          lar_diag *d);
/* Derives what is not said (KV heads from heads, head dim from hidden) and counts parameters. INVALID: too little is
 * known to say what a token takes. */
LAR_MUST_USE lar_error lar_plan_model_finish(lar_plan_model *m, lar_diag *d);

typedef struct lar_plan_request {
    uint64_t context;   /* tokens of one request, prompt and answer; 1 to 2^30 */
    uint64_t sequences; /* at the same time; 1 to 2^20 */
    lar_kv kv;
    const uint8_t *kv_layers; /* (layers) of lar_kv, instead of kv; borrowed. NULL: all layers alike */
    bool requantised;         /* weights in the type `weights`, not as they are stored */
    lar_dtype weights;
    uint64_t memory, reserve; /* bytes of the machine, and how many of them to keep free */
    uint64_t cache;           /* reserved for all keys and values together; 0: what sequences and context take */
    uint64_t experts;         /* most bytes for experts' weights at once; 0: all are in memory */
    uint64_t held;    /* weights as the engine holds them, with that budget (lar_engine_measure); 0: as stored */
    uint64_t scratch; /* likewise; 0: estimated */
    uint64_t piece;   /* tokens of a prompt that are worked on at once; 0: LAR_PLAN_PIECE */
} lar_plan_request;

typedef enum lar_plan_verdict {
    LAR_PLAN_FITS,
    LAR_PLAN_TIGHT, /* over 90 % of what may be used */
    LAR_PLAN_FULL,  /* over 95 %: little else may grow, or the machine swaps */
    LAR_PLAN_OVER   /* more than there is */
} lar_plan_verdict;

/* Bytes, all of them. */
typedef struct lar_plan {
    uint64_t layer, token;  /* one token in one layer that keeps it, 0: layers differ; in all such layers */
    uint64_t request, all;  /* a request of `context` tokens, pages and windows counted; `sequences` of them */
    uint64_t weights;       /* 0: not known */
    uint64_t scratch;       /* an estimate, for prompts in pieces of `piece` tokens; 0: not known */
    uint64_t total, budget; /* budget: memory - reserve */
    lar_plan_verdict verdict;
} lar_plan;
enum { LAR_PLAN_PIECE = 512 };

/* LIMIT where a sum goes beyond 2^62 bytes; INVALID: `reserve` leaves nothing of `memory`, or kv_layers with a model
 * some of whose layers do not keep all tokens. */
LAR_MUST_USE lar_error lar_plan_compute(const lar_plan_model *m, const lar_plan_request *r, lar_plan *out, lar_diag *d);
/* What a machine of `memory` bytes should keep free: 15 % of it, from 1 to 16 GiB (9.6 of 64). */
uint64_t lar_plan_reserve(uint64_t memory);

/* The most that fits into the budget with all else as it is; 0: not even one. Context in steps of 64 tokens, and not
 * beyond what the model can. */
uint64_t lar_plan_most_sequences(const lar_plan_model *m, const lar_plan_request *r);
uint64_t lar_plan_most_context(const lar_plan_model *m, const lar_plan_request *r);

/* Changes that make a plan fit which does not: each alone, or in the last resort all together. */
enum {
    LAR_PLAN_CHANGE_SEQUENCES = 1,
    LAR_PLAN_CHANGE_CONTEXT = 2,
    LAR_PLAN_CHANGE_KV = 4,
    LAR_PLAN_CHANGE_WEIGHTS = 8,
    LAR_PLAN_CHANGE_MEMORY = 16
};
typedef struct lar_plan_change {
    unsigned what;            /* LAR_PLAN_CHANGE_*, or several */
    lar_plan_request request; /* as changed */
    lar_plan plan;            /* what comes of it */
} lar_plan_change;
enum { LAR_PLAN_CHANGES_MAX = 8 };
/* How many were found; 0 if `r` fits already. A bigger machine is always the last of them. */
uint32_t lar_plan_changes(const lar_plan_model *m, const lar_plan_request *r,
                          lar_plan_change out[LAR_PLAN_CHANGES_MAX]);

#endif
