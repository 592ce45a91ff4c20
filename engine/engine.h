/* The embedded engine: a model from its files, sequences of token ids, logits, the choice of the next token.
 *
 * It knows no HTTP, no request bodies and no store. Whoever serves opens a model, makes a sequence for each
 * conversation, and calls lar_engine_step with the next tokens of one or of many: long prompts are worked on in passes
 * of at most tokens_max tokens, and the caller decides how much of which prompt goes into a step.
 *
 *     lar_engine *e;  lar_sequence *s;  lar_sampler *p;
 *     lar_engine_open(&(lar_engine_options){.path = "model"}, &e, &d);
 *     lar_sequence_new(e, 4096, &s, &d);
 *     lar_engine_step(e, &(lar_engine_part){s, ids, count, &last, 1}, 1, logits, &d);      last = count - 1
 *     lar_sampler_next(p, logits, &sampled, &d);                                           and so on with sampled.id
 *
 * One step at a time; sequences may be made and freed between steps by the same thread. */
#ifndef LARDER_ENGINE_ENGINE_H
#define LARDER_ENGINE_ENGINE_H

#include <stdatomic.h>

#include "engine/cache/prefix_cache.h"
#include "engine/compute/attention.h"
#include "engine/experts/expert_cache.h"
#include "engine/files/kv_format.h"
#include "engine/model/model_generation.h"
#include "engine/text/output_stream.h"
#include "engine/text/template.h"

typedef struct lar_engine lar_engine;
typedef struct lar_sequence lar_sequence;

enum { LAR_ENGINE_PASS_TOKENS = 512 };

typedef struct lar_engine_options {
    const char *path;    /* a Hugging Face folder, a GGUF file, or any part of a split one */
    uint32_t tokens_max; /* in one pass; 0: LAR_ENGINE_PASS_TOKENS */
    uint32_t threads;    /* that compute, the caller among them; 0: as many as this process may use */
    /* "auto" or NULL: the fastest kernels of this processor; "avx512", "avx2", "scalar": those; "reference": the
     * readable ones. All but the reference give the same bits. */
    const char *cpu;
    lar_activations activations; /* how x is rounded before products; the router's never is */
    const char *kv;              /* how sequences keep latents between passes, by layer (kv_layers.h); NULL: "f32" */
    /* Of all sequences' pages together, reserved when the engine is opened. 0: each sequence takes pages for its whole
     * capacity when it is made. */
    uint64_t page_bytes;
    /* Borrowed until the engine is closed; where kept prefixes go that memory has no room for, and all of them at the
     * end. With page_bytes only. Costs reading the model's files once more (model_digest.h), and a few tokens. NULL:
     * nowhere. */
    lar_page_store *page_store;
    uint64_t (*now_ms)(void *context); /* for lar_engine_pin; NULL: lar_clock_mono_ns in milliseconds */
    /* ABSORBED: what is computed does not depend on how a prompt is cut into steps, so that a sequence with a kept
     * prefix, or in company, has the bits of one alone; implied by page_bytes. 0: BY_LENGTH, which is faster. */
    lar_attention_form attention;
    /* Of experts' weights, at most so many bytes in memory at once, the others are read when a token needs them
     * (expert_cache.h); the logits are the same. 0, or more than all of them take: all are in memory. */
    uint64_t expert_bytes;
    void (*progress)(void *context, uint32_t done, uint32_t total); /* while weights are prepared; NULL: none */
    void *context;                                                  /* of progress and now_ms */
    const atomic_bool *stop; /* borrowed for the call; once it is true the opening ends early; NULL: never */
} lar_engine_options;

/* NOT_FOUND, IO: the files; INVALID: a model that larder does not read, or damaged files (`d` says what was expected
 * and what was found), or threads or kernels that are not to be had; NO_MEMORY; LIMIT: also expert_bytes below the
 * least that can work, which is said; SHUTDOWN: it was stopped. After an error *out is NULL. */
LAR_MUST_USE lar_error lar_engine_open(const lar_engine_options *o, lar_engine **out, lar_diag *d);
/* After all of its sequences are freed. NULL: nothing happens. */
void lar_engine_close(lar_engine *e);

typedef struct lar_engine_info {
    const char *family; /* "deepseek_v3" */
    uint32_t layers, vocab, context, experts, experts_used;
    const char *kernels; /* "avx512" */
    uint32_t threads;
    uint32_t pass_tokens;    /* at most in one pass; longer steps are cut */
    uint64_t packed_bytes;   /* of weights beside the mapped files */
    uint64_t mapped_bytes;   /* of weights that are read where they lie in them: rows of the embedding */
    uint64_t active_bytes;   /* of weights that one token reads: all products, of a layer's experts those it uses */
    uint64_t scratch_bytes;  /* of a pass */
    uint64_t scratch_peak;   /* what no plan could go below */
    uint64_t token_bytes;    /* that a sequence keeps for one token */
    uint64_t page_bytes;     /* of LAR_PAGE_TOKENS of them, which it takes at a time */
    uint64_t reserved_bytes; /* of all pages; 0: each sequence has its own */
    const char *kv;          /* how latents are kept, in the shortest form; as long as the engine */
} lar_engine_info;
lar_engine_info lar_engine_info_of(const lar_engine *e);

/* What an engine would take. */
typedef struct lar_engine_sizes {
    uint64_t packed_bytes, mapped_bytes, scratch_bytes; /* as in lar_engine_info */
    uint32_t vocab;                                     /* likewise */
} lar_engine_sizes;
/* By the model's headers alone: no weight is read, and nothing stays. Looks at path, tokens_max, threads, cpu,
 * activations, page_bytes (whether there are any) and attention. Errors of lar_engine_open. */
LAR_MUST_USE lar_error lar_engine_measure(const lar_engine_options *o, lar_engine_sizes *out, lar_diag *d);

/* Gives the calling thread and those that compute with it a nice value of `niceness` (0 to 19), or leaves a higher one.
 * For the thread that calls lar_engine_step, so that others of the process go first. */
void lar_engine_nice(lar_engine *e, int niceness);

/* Does work(context, i) once for each i of [0, count), on all threads that compute, and returns when all are done: for
 * what is to be done with the logits of many. By the thread of the steps, between them. Allocates nothing. */
void lar_engine_share(lar_engine *e, uint32_t count, void (*work)(void *context, uint32_t i), void *context);

/* What turns text into ids and back. */
typedef struct lar_engine_text {
    lar_tokenizer *tokenizer;
    lar_template *chat;      /* NULL: the model has none; with a place for tools where template_tools.h knows one */
    lar_output_format calls; /* in which it writes calls of tools */
    lar_model_generation generation;
} lar_engine_text;

/* Reads them from the model's files; embedded, released by the caller, and independent of the engine from then on.
 * NOT_FOUND: the model has no tokenizer; INVALID: one that larder does not read, or a template with something that it
 * does not interpret (`d` says what and where). */
LAR_MUST_USE lar_error lar_engine_text_read(const lar_engine *e, lar_engine_text *out, lar_diag *d);
void lar_engine_text_release(lar_engine_text *t);
/* The same of a model that is not open; also the errors of opening files. */
LAR_MUST_USE lar_error lar_engine_text_open(const char *path, lar_engine_text *out, lar_diag *d);

/* Of at most `capacity` tokens, which are at most the model's context. Without options.page_bytes pages for all of them
 * are taken now. NO_MEMORY; LIMIT: over the context. */
LAR_MUST_USE lar_error lar_sequence_new(const lar_engine *e, uint32_t capacity, lar_sequence **out, lar_diag *d);
/* One with formats of its own, as the engine's options have them, and pages of its own in any case: to compare formats
 * with one loaded model. INVALID: the formats. */
LAR_MUST_USE lar_error lar_sequence_new_in(const lar_engine *e, const char *kv, uint32_t capacity, lar_sequence **out,
                                           lar_diag *d);
void lar_sequence_free(lar_sequence *s);                  /* NULL: nothing happens */
uint64_t lar_sequence_token_bytes(const lar_sequence *s); /* that it keeps for one token */
uint32_t lar_sequence_length(const lar_sequence *s);
/* Forgets the tokens from `length` on; a sequence can be cut at any token, and goes on from there exactly as if they
 * had never been. `length` is at most what it has. */
void lar_sequence_cut(lar_sequence *s, uint32_t length);

/* -- sequences in a fixed number of pages: engines with options.page_bytes --------------------------------------- */

/* Room for `tokens` more, now or by letting go of kept prefixes. FULL: there are not so many pages; nothing changed. A
 * step reserves by itself; its FULL leaves all sequences as they were. */
LAR_MUST_USE lar_error lar_sequence_reserve(lar_sequence *s, uint32_t tokens, lar_diag *d);
/* A sequence with the same tokens and capacity: whole pages are shared, the last one is copied; without page_bytes all
 * are copied. FULL, NO_MEMORY. */
LAR_MUST_USE lar_error lar_sequence_fork(const lar_sequence *s, lar_sequence **out, lar_diag *d);
/* An empty sequence takes over the longest prefix of the ids that is kept for this scope, as far as its capacity goes,
 * and all of it but the last token at most, so that there is something to compute logits from. Returns its length, a
 * multiple of LAR_PAGE_TOKENS; 0 without page_bytes. From then on whole pages of the sequence, and of its forks, are
 * kept for the scope when lar_sequence_keep tells what their tokens were.
 *
 * Of the page store about LAR_ENGINE_ADOPT_BYTES are read in one call, so that others wait no longer for it. The same
 * call can be made again, with the same scope and ids, as long as all tokens of the sequence are in kept pages, and
 * goes on from there: with what is left in the store, and with what another sequence computed meanwhile. Elsewhere it
 * does nothing. What was reserved is given back: as many tokens less those taken over can be reserved again. */
enum { LAR_ENGINE_ADOPT_BYTES = 16 << 20 };
uint32_t lar_sequence_adopt(lar_sequence *s, const lar_digest *scope, const uint32_t *ids, uint32_t count);
/* The sequence's tokens [0, count) are `ids`, all of them: `count` is its length. Its whole pages that are not kept yet
 * are from now on; where another sequence's page with the same tokens is, that one takes the place of its own. Costs a
 * hash of each new page, and after a cut below a kept page once of all. A sequence that never adopted keeps nothing. */
void lar_sequence_keep(lar_sequence *s, const uint32_t *ids, uint32_t count);
/* The pages of a prefix that are kept in memory stay until `until_ms` of the engine's clock at least, as far as half of
 * all pages go; returns how many of the prefix's do (lar_prefix_pin). */
uint32_t lar_engine_pin(lar_engine *e, const lar_digest *scope, const uint32_t *ids, uint32_t count, uint64_t until_ms);
void lar_engine_unpin(lar_engine *e); /* lar_prefix_unpin */
/* Any thread; all zero without page_bytes. */
lar_page_counts lar_engine_pages(const lar_engine *e);
lar_prefix_counts lar_engine_prefixes(const lar_engine *e);

/* -- experts in a budget: engines with options.expert_bytes ------------------------------------------------------- */

/* Any thread; all zero where all experts are in memory. */
lar_expert_counts lar_engine_experts(const lar_engine *e);
/* How many MoE layers have counts of their own (0 where all experts are in memory), and those of one. Any thread. */
uint32_t lar_engine_expert_layers(const lar_engine *e);
lar_expert_layer_counts lar_engine_expert_layer(const lar_engine *e, uint32_t i);

/* The next tokens of one sequence. */
typedef struct lar_engine_part {
    lar_sequence *sequence;
    const uint32_t *ids;
    uint32_t count;
    const uint32_t *wanted; /* indices into ids whose logits are wanted, ascending */
    uint32_t wanted_count;
} lar_engine_part;

/* Adds tokens to sequences and writes the wanted logits, (wanted tokens, vocab), in the order of the parts; NULL where
 * none are wanted. INVALID: an id outside the vocabulary, a sequence twice in one step; LIMIT: a sequence or the
 * context is full; FULL: not enough pages; IO, CORRUPT: an expert that is not in memory cannot be read, or is damaged,
 * and `d` says which. After an error all sequences are as they were, and so is what was reserved for them. Allocates
 * nothing. */
LAR_MUST_USE lar_error lar_engine_step(lar_engine *e, const lar_engine_part *parts, uint32_t count, float *logits,
                                       lar_diag *d);

#endif
