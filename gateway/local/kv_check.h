/* larder kv-check: what a format of latents costs a model in quality, measured on a text.
 *
 * Each format is held against bf16 token by token: both read the text itself, window after window (teacher forcing), so
 * that only the rounding differs. Perplexities are compared token by token too: what a text's own difficulty scatters
 * is the same in both and cancels. */
#ifndef LARDER_LOCAL_KV_CHECK_H
#define LARDER_LOCAL_KV_CHECK_H

#include "engine/engine.h"

enum {
    LAR_KV_CHECK_FORMATS_MAX = 32,
    LAR_KV_CHECK_TEXT_BYTES = 512, /* of formats by layer */
    LAR_KV_CHECK_PROMPT = 32,      /* tokens of the text that greedy answers begin with */
    LAR_KV_CHECK_ANSWER = 128      /* greedy tokens at most */
};

typedef struct lar_kv_check_request {
    lar_engine *engine; /* without page_bytes: pages are taken for each format */
    const lar_engine_text *text;
    lar_slice source;                         /* the text to read */
    const char *kv[LAR_KV_CHECK_FORMATS_MAX]; /* by layer (kv_layers.h) */
    uint32_t kv_count;
    uint64_t tokens; /* to score at most */
    uint32_t window; /* tokens of one, at least 2, at most the context */
    double limit;    /* how much worse a perplexity may be, as a share: 0.01 */
    void (*progress)(void *context, uint64_t done, uint64_t total); /* tokens; NULL: none */
    void *context;
} lar_kv_check_request;

typedef struct lar_kv_figures {
    char kv[LAR_KV_CHECK_TEXT_BYTES];
    uint64_t token_bytes; /* kept for a token */
    double perplexity;
    double change, error; /* of the perplexity against bf16's, as a share, and its standard error */
    double divergence;    /* Kullback-Leibler, of bf16's next-token distribution from this one; nats, mean */
    double agreement;     /* share of tokens with the same likeliest next one */
    uint32_t differs_at;  /* the first token of the greedy answer that differs; the answer's length: none does */
} lar_kv_figures;

typedef struct lar_kv_check {
    uint64_t tokens;         /* scored */
    uint32_t window, answer; /* tokens of the greedy answer in bf16 */
    lar_kv_figures bf16;
    lar_kv_figures formats[LAR_KV_CHECK_FORMATS_MAX];
    uint32_t format_count, layer_count;
    lar_kv_figures *layers; /* (layer_count): this layer alone in fp8, all others in bf16; without differs_at */
    uint32_t *order;        /* (layer_count): the layers, by divergence, the most sensitive first */
    lar_kv_figures fp8;     /* all layers; without differs_at */
    lar_kv_figures advice;  /* fp8 but for the first `kept` of `order`, within the limit; without differs_at */
    uint32_t kept;
} lar_kv_check;

/* Embedded; release it in any case. INVALID: less than two tokens, not UTF-8, logits that are not finite; LIMIT: the
 * context is too short; NO_MEMORY. */
LAR_MUST_USE lar_error lar_kv_check_run(const lar_kv_check_request *r, lar_kv_check *out, lar_diag *d);
void lar_kv_check_release(lar_kv_check *c);

#endif
