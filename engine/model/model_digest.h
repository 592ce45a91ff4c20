/* A name for everything that decides what a model computes: two models of one name compute the same latents. Pages of a
 * store that outlives the program are found by it. */
#ifndef LARDER_ENGINE_MODEL_MODEL_DIGEST_H
#define LARDER_ENGINE_MODEL_MODEL_DIGEST_H

#include "base/digest.h"
#include "engine/compute/attention.h"
#include "engine/files/model_files.h"

/* WHOLE: every byte of the model's files is read, by all workers at once; where they are in memory anyway because they
 * are being loaded, it costs what reading memory does. SAMPLED: of each file all that stands before its tensors, and
 * LAR_DIGEST_SAMPLES pieces of LAR_DIGEST_SAMPLE_BYTES evenly spread; for files that are larger than memory. Whatever
 * trains, merges or quantises a model anew changes it everywhere, and is seen; a change of a few bytes between the
 * pieces is not. */
typedef enum lar_digest_reach { LAR_DIGEST_WHOLE, LAR_DIGEST_SAMPLED } lar_digest_reach;
enum { LAR_DIGEST_SAMPLES = 256, LAR_DIGEST_SAMPLE_BYTES = 64 << 10 };

typedef struct lar_model_digest_options {
    const struct lar_kernels *kernels; /* all but the reference give the same bits, and the same name */
    lar_activations activations;
    lar_attention_form attention;
    lar_digest_reach reach;
    struct lar_workers *workers;
} lar_model_digest_options;

/* Of the files' bytes and sizes, config.json where there is one, the options, and this version of larder: what another
 * one computes may differ in its last bits. Where the files lie and how they are called does not count. IO, LIMIT
 * (config.json); NO_MEMORY. */
LAR_MUST_USE lar_error lar_model_digest_of(const lar_model_files *f, const lar_model_digest_options *o, lar_digest *out,
                                           lar_diag *d);

#endif
