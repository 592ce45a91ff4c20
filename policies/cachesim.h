/* Prefix caches simulated by their providers' published rules: how many tokens of a prompt would have been read from
 * the cache, given the prompts before it.
 *
 *   BLOCKS       whole blocks of `step_tokens` of the longest prefix seen before; the last token is always computed
 *   STEPS        the longest prefix seen before of at least the minimum, in steps; the last token is always computed
 *   UNITS        a hit must hold a stored unit whole. Units end at the end of a prompt, at the end of an answer, at a
 *                prefix found common to two earlier prompts, and every 2048 tokens; counted in steps
 *   BREAKPOINTS  prefixes are stored where a block carries a mark, and read back from a mark over at most
 *                `lookback_blocks` blocks
 *
 * On pseudo-tokens (policies/tokens.h). Memory is bounded: a set of prefixes keeps two generations; when the younger is
 * full, the older is forgotten. A prefix that is used again counts as young. So the last entries_max prefixes at least
 * are known, however long the log. */
#ifndef LARDER_POLICIES_CACHESIM_H
#define LARDER_POLICIES_CACHESIM_H

#include "base/buf.h"
#include "policies/provider.h"
#include "policies/render.h"

/* A prompt as hashes of its prefixes. Embedded; its arrays are kept for the next prompt. */
typedef struct lar_prompt_block {
    uint32_t tokens; /* of the prompt up to its end */
    uint32_t ttl_s;  /* 0: not marked */
} lar_prompt_block;

typedef struct lar_prompt {
    uint64_t *hash;         /* hash[k] stands for the first k tokens; [0] is the seed */
    uint32_t tokens, whole; /* of the prompt; of prompt and answer: hash has whole + 1 entries */
    lar_prompt_block *blocks;
    uint32_t block_count;
    uint32_t automatic_ttl_s;
    size_t hash_cap, block_cap;
    lar_buf text;
} lar_prompt;

/* Embedded; reused from one prompt to the next. */
void lar_prompt_init(lar_prompt *p);
void lar_prompt_release(lar_prompt *p);
/* `seed`: prompts with another one share nothing (another model, another cache_salt). NO_MEMORY, LIMIT (4 GiB). */
LAR_MUST_USE lar_error lar_prompt_set(lar_prompt *p, uint64_t seed, const lar_rendering *r);
/* The same of a text, as one block. */
LAR_MUST_USE lar_error lar_prompt_set_text(lar_prompt *p, uint64_t seed, lar_slice text);
/* What the model answered, as it will stand in the next prompt; behind lar_prompt_set. */
LAR_MUST_USE lar_error lar_prompt_add_answer(lar_prompt *p, const lar_rendering *answer);
LAR_MUST_USE lar_error lar_prompt_add_text(lar_prompt *p, lar_slice answer);
/* How many tokens two prompts have in common. */
uint32_t lar_prompt_common(const lar_prompt *a, const lar_prompt *b);

typedef struct lar_cachesim_options {
    const lar_provider *provider;
    uint32_t ttl_s;        /* entries live that long after their last use, where requests have times; 0 = as the row
                              says when they are surely gone (ttl_max_s; marks: their own) */
    bool no_ttl;           /* they live for ever */
    bool automatic_marker; /* BREAKPOINTS: a request without any mark counts as marked at its end */
    uint32_t entries_max;  /* prefixes a generation of a set; 0 = default 4 Mi: 200 MB a set at most */
} lar_cachesim_options;

typedef struct lar_cachesim lar_cachesim;
lar_cachesim *lar_cachesim_new(const lar_cachesim_options *o); /* heap; NULL when out of memory */
void lar_cachesim_free(lar_cachesim *s);
/* Forgets all. */
void lar_cachesim_reset(lar_cachesim *s);

typedef struct lar_cachesim_usage {
    uint32_t prompt, hit, write; /* tokens; hit + write <= prompt; write only where writes are counted: BREAKPOINTS */
} lar_cachesim_usage;

/* One request, in order. `tokens_min`: lar_provider_tokens_min of its model. `time_ms`: when it was sent, 0 = not
 * known: nothing expires. NO_MEMORY: it is as if the request had not been. */
LAR_MUST_USE lar_error lar_cachesim_request(lar_cachesim *s, const lar_prompt *p, uint32_t tokens_min, int64_t time_ms,
                                            lar_cachesim_usage *out);

#endif
