/* larder run --perplexity: scores a text, window after window (header: run_perplexity.h).
 * Flow: run_command.c calls; the engine computes. One thread; blocks while it does.
 * Why windows without overlap: each token is scored once, with what its window holds before it, so that the figure is
 * that of any other program that cuts alike (tests/train/reference.py does).
 * Memory: the ids of the text, and the logits of PIECE tokens. */
#include "gateway/local/run_perplexity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 64, IDS_MAX = 1 << 28 };

typedef struct scoring {
    lar_engine *engine;
    lar_sequence *sequence;
    uint32_t vocab;
    float *logits; /* (PIECE, vocab) */
    double loss;
    uint64_t tokens;
} scoring;

/* What the logits give away on `id`: the negative logarithm of its probability. */
static double loss_of(const float *logits, uint32_t vocab, uint32_t id) {
    double most = logits[0], sum = 0;
    for (uint32_t i = 1; i < vocab; i++)
        if (logits[i] > most) most = logits[i];
    for (uint32_t i = 0; i < vocab; i++) sum += exp(logits[i] - most);
    return log(sum) + most - logits[id];
}

/* Scores ids[1..count) of one window, each by the logits of the token before it. */
static lar_error score_window(scoring *s, const uint32_t *ids, uint32_t count, lar_diag *d) {
    uint32_t wanted[PIECE];
    for (uint32_t i = 0; i < PIECE; i++) wanted[i] = i;
    lar_sequence_cut(s->sequence, 0);
    for (uint32_t from = 0; from + 1 < count; from += PIECE) {
        uint32_t n = count - 1 - from < PIECE ? count - 1 - from : PIECE;
        lar_engine_part part = {s->sequence, ids + from, n, wanted, n};
        lar_error e = lar_engine_step(s->engine, &part, 1, s->logits, d);
        if (e) return e;
        for (uint32_t i = 0; i < n; i++)
            s->loss += loss_of(s->logits + (size_t)i * s->vocab, s->vocab, ids[from + i + 1]);
        s->tokens += n;
    }
    return LAR_OK;
}

/* Each window is the prefix, if there is one, and the next tokens of the text. */
static lar_error score_text(scoring *s, const lar_tokenizer *t, const lar_ids *ids, uint32_t window, lar_diag *d) {
    uint32_t fixed, in[LAR_PERPLEXITY_WINDOW];
    const uint32_t *prefix = lar_tokenizer_prefix(t, &fixed);
    if (fixed + 2 > window) return lar_fail(LAR_LIMIT, d, "the model's context is too short for a text");
    if (fixed) memcpy(in, prefix, fixed * sizeof *in);
    for (size_t at = 0; at < ids->count;) {
        size_t n = ids->count - at < window - fixed ? ids->count - at : window - fixed;
        memcpy(in + fixed, ids->ids + at, n * sizeof *in);
        for (uint32_t i = 0; i < fixed + n; i++)
            if (in[i] >= s->vocab)
                return lar_fail(LAR_INVALID, d, "the tokenizer makes id %u, the model has %u tokens", in[i], s->vocab);
        lar_error e = score_window(s, in, fixed + (uint32_t)n, d);
        if (e) return e;
        at += n;
    }
    return LAR_OK;
}

lar_error lar_run_perplexity(lar_engine *engine, const lar_tokenizer *t, lar_slice text, lar_perplexity *out,
                             lar_diag *d) {
    lar_engine_info info = lar_engine_info_of(engine);
    scoring s = {.engine = engine, .vocab = info.vocab};
    lar_ids ids;
    lar_ids_init(&ids, IDS_MAX);
    *out = (lar_perplexity){.window = info.context < LAR_PERPLEXITY_WINDOW ? info.context : LAR_PERPLEXITY_WINDOW};
    lar_error e = lar_tokenizer_encode_plain(t, text, &ids, d);
    if (!e) e = lar_sequence_new(engine, out->window, &s.sequence, d);
    if (!e && !(s.logits = malloc((size_t)PIECE * s.vocab * sizeof *s.logits))) e = LAR_NO_MEMORY;
    if (!e) e = score_text(&s, t, &ids, out->window, d);
    if (!e && !s.tokens) e = lar_fail(LAR_INVALID, d, "nothing to score: the text is too short");
    if (!e && !isfinite(s.loss))
        e = lar_fail(LAR_INVALID, d,
                     "the model's logits are not finite: its weights are damaged, or an activation overflowed");
    if (!e) out->tokens = s.tokens, out->value = exp(s.loss / (double)s.tokens);
    free(s.logits);
    lar_sequence_free(s.sequence);
    lar_ids_release(&ids);
    return e;
}
