/* larder kv-check: the measuring (header: kv_check.h).
 * Flow: kv_check_command.c calls; the engine computes. One thread and the engine's; blocks while it does.
 * Why one engine: weights take long to prepare, and a sequence can have formats of its own. Why several sequences in a
 * step: experts' weights are read once for all of them; what each computes does not depend on the others.
 * Memory: logits of GROUP sequences for PIECE tokens, and latents of a window for each format.
 * Not here: what is printed (kv_check_report.c). */
#include "gateway/local/kv_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cache/kv_layers.h"
#include "engine/model/model_config.h"

enum { PIECE = 64, GROUP = 4, IDS_MAX = 1 << 28 };

/* Sums over all scored tokens. */
typedef struct tally {
    double loss, more, squares; /* of this format; more than bf16's, and the squares of that */
    double divergence;
    uint64_t agreed;
} tally;

typedef struct variant {
    lar_kv_figures *figures;
    lar_sequence *sequence;
    tally t;
} variant;

typedef struct check {
    const lar_kv_check_request *r;
    lar_kv_check *out;
    uint32_t vocab, fixed; /* what stands before a text */
    lar_ids ids;           /* (fixed + count): with it */
    variant bf16;
    float *logits;        /* (GROUP, PIECE, vocab) */
    float *base;          /* (PIECE, vocab): of bf16 */
    double *probability;  /* (vocab): of bf16, of the token at hand */
    uint64_t done, total; /* tokens of all variants, for progress */
    lar_diag *d;
} check;

/* -- one token --------------------------------------------------------------------------------------------------- */

/* log of the sum of exp(logits). */
static double log_sum(const float *logits, uint32_t n) {
    double most = logits[0], sum = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > most) most = logits[i];
    for (uint32_t i = 0; i < n; i++) sum += exp(logits[i] - most);
    return log(sum) + most;
}

static uint32_t likeliest(const float *logits, uint32_t n) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* Of bf16, for the token whose logits these are. */
typedef struct base_token {
    const float *logits;
    double log_sum;
    uint32_t best, id; /* the likeliest; the text's next */
} base_token;

static void add_token(const check *c, const base_token *b, const float *logits, tally *t) {
    double sum = log_sum(logits, c->vocab), divergence = sum - b->log_sum;
    for (uint32_t i = 0; i < c->vocab; i++)
        divergence += c->probability[i] * ((double)b->logits[i] - (double)logits[i]);
    double loss = sum - (double)logits[b->id], more = loss - (b->log_sum - (double)b->logits[b->id]);
    t->loss += loss;
    t->more += more;
    t->squares += more * more;
    t->divergence += divergence;
    t->agreed += likeliest(logits, c->vocab) == b->best;
}

/* -- a window ---------------------------------------------------------------------------------------------------- */

/* `n` tokens and the ids behind each: (n + 1) ids. */
static lar_error base_piece(check *c, const uint32_t *ids, uint32_t n) {
    uint32_t wanted[PIECE];
    for (uint32_t i = 0; i < n; i++) wanted[i] = i;
    lar_engine_part part = {c->bf16.sequence, ids, n, wanted, n};
    return lar_engine_step(c->r->engine, &part, 1, c->base, c->d);
}

static lar_error group_piece(check *c, variant *v, uint32_t count, const uint32_t *ids, uint32_t n) {
    uint32_t wanted[PIECE];
    lar_engine_part parts[GROUP];
    for (uint32_t i = 0; i < n; i++) wanted[i] = i;
    for (uint32_t k = 0; k < count; k++) parts[k] = (lar_engine_part){v[k].sequence, ids, n, wanted, n};
    lar_error e = lar_engine_step(c->r->engine, parts, count, c->logits, c->d);
    for (uint32_t i = 0; !e && i < n; i++) {
        base_token b = {.logits = c->base + (size_t)i * c->vocab, .id = ids[i + 1]};
        b.log_sum = log_sum(b.logits, c->vocab);
        b.best = likeliest(b.logits, c->vocab);
        for (uint32_t k = 0; k < c->vocab; k++) c->probability[k] = exp(b.logits[k] - b.log_sum);
        for (uint32_t k = 0; k < count; k++) add_token(c, &b, c->logits + ((size_t)k * n + i) * c->vocab, &v[k].t);
    }
    return e;
}

/* ids[1..count), each by the logits of the token before it. */
static lar_error score_window(check *c, variant *v, uint32_t variants, const uint32_t *ids, uint32_t count) {
    lar_sequence_cut(c->bf16.sequence, 0);
    for (uint32_t k = 0; k < variants; k++) lar_sequence_cut(v[k].sequence, 0);
    for (uint32_t from = 0; from + 1 < count; from += PIECE) {
        uint32_t n = count - 1 - from < PIECE ? count - 1 - from : PIECE;
        lar_error e = base_piece(c, ids + from, n);
        for (uint32_t i = 0; !e && i < n; i++) {
            const float *logits = c->base + (size_t)i * c->vocab;
            c->bf16.t.loss += log_sum(logits, c->vocab) - (double)logits[ids[from + i + 1]];
        }
        for (uint32_t k = 0; !e && k < variants; k += GROUP) {
            e = group_piece(c, v + k, variants - k < GROUP ? variants - k : GROUP, ids + from, n);
            c->done += (uint64_t)n * (variants - k < GROUP ? variants - k : GROUP);
            if (c->r->progress) c->r->progress(c->r->context, c->done, c->total);
        }
        if (e) return e;
    }
    return LAR_OK;
}

/* -- all windows ------------------------------------------------------------------------------------------------- */

static lar_error finish(const check *c, const tally *t, lar_kv_figures *f, uint64_t tokens) {
    double n = (double)tokens, mean = t->more / n, spread = t->squares / n - mean * mean;
    if (!isfinite(t->loss) || !isfinite(t->divergence))
        return lar_fail(LAR_INVALID, c->d,
                        "latents in %s: logits are not finite: weights are damaged, or a value "
                        "overflowed",
                        f->kv);
    f->perplexity = exp(t->loss / n);
    f->change = expm1(mean);
    f->error = exp(mean) * sqrt(spread > 0 ? spread / n : 0);
    f->divergence = t->divergence > 0 ? t->divergence / n : 0; /* equal distributions, but for rounding */
    f->agreement = (double)t->agreed / n;
    return LAR_OK;
}

/* Reads the whole text in bf16 and in the variants, and fills their figures. */
static lar_error measure(check *c, variant *v, uint32_t variants) {
    uint32_t window = c->r->window, room = window - c->fixed, *in = malloc(window * sizeof *in);
    const uint32_t *text = c->ids.ids + c->fixed;
    uint64_t count = c->ids.count - c->fixed, tokens = 0;
    lar_error e = in ? LAR_OK : LAR_NO_MEMORY;
    c->bf16.t = (tally){0};
    for (uint64_t at = 0; !e && at < count; at += room) {
        uint32_t n = count - at < room ? (uint32_t)(count - at) : room;
        memcpy(in, c->ids.ids, c->fixed * sizeof *in);
        memcpy(in + c->fixed, text + at, n * sizeof *in);
        e = score_window(c, v, variants, in, c->fixed + n);
        tokens += c->fixed + n - 1;
    }
    free(in);
    c->out->tokens = tokens;
    c->bf16.t.agreed = tokens;
    if (!e) e = finish(c, &c->bf16.t, c->bf16.figures, tokens);
    for (uint32_t k = 0; !e && k < variants; k++) e = finish(c, &v[k].t, v[k].figures, tokens);
    return e;
}

static lar_error begin(check *c, variant *v, const char *kv, lar_kv_figures *f) {
    uint32_t most = c->fixed + LAR_KV_CHECK_PROMPT + LAR_KV_CHECK_ANSWER;
    uint32_t context = lar_engine_info_of(c->r->engine).context;
    uint32_t capacity = most < context ? most : context;
    if (capacity < c->r->window) capacity = c->r->window;
    *v = (variant){.figures = f};
    (void)snprintf(f->kv, sizeof f->kv, "%s", kv);
    lar_error e = lar_sequence_new_in(c->r->engine, kv, capacity, &v->sequence, c->d);
    if (!e) f->token_bytes = lar_sequence_token_bytes(v->sequence);
    return e;
}

static void end(variant *v, uint32_t count) {
    for (uint32_t k = 0; v && k < count; k++) lar_sequence_free(v[k].sequence);
    free(v);
}

/* -- greedy answers ---------------------------------------------------------------------------------------------- */

static bool is_end(const check *c, uint32_t id) {
    const lar_model_generation *g = &c->r->text->generation;
    for (uint32_t i = 0; i < g->end_count; i++)
        if (g->ends[i] == id) return true;
    return false;
}

/* The likeliest token behind `count` more. */
static lar_error next_of(check *c, const variant *v, const uint32_t *ids, uint32_t count, uint32_t *next) {
    uint32_t last = count - 1;
    lar_engine_part part = {v->sequence, ids, count, &last, 1};
    lar_error e = lar_engine_step(c->r->engine, &part, 1, c->logits, c->d);
    *next = likeliest(c->logits, c->vocab);
    return e;
}

static uint32_t prompt_of(const check *c) {
    uint64_t most = (uint64_t)c->fixed + LAR_KV_CHECK_PROMPT;
    return c->ids.count < most ? (uint32_t)c->ids.count : (uint32_t)most;
}

/* The greedy answer of bf16, up to its end or *length tokens. */
static lar_error answer(check *c, uint32_t *ids, uint32_t *length) {
    uint32_t most = *length, prompt = prompt_of(c), id = 0;
    lar_sequence_cut(c->bf16.sequence, 0);
    for (*length = 0; *length < most; ids[(*length)++] = id) {
        lar_error e =
            *length ? next_of(c, &c->bf16, &ids[*length - 1], 1, &id) : next_of(c, &c->bf16, c->ids.ids, prompt, &id);
        if (e || is_end(c, id)) return e;
    }
    return LAR_OK;
}

/* The first token of the variant's greedy answer that is not the one of `ids`. */
static lar_error differs_at(check *c, const variant *v, const uint32_t *ids, uint32_t length) {
    uint32_t *at = &v->figures->differs_at, id = 0;
    lar_sequence_cut(v->sequence, 0);
    for (*at = 0; *at < length; ++*at) {
        lar_error e = *at ? next_of(c, v, &ids[*at - 1], 1, &id) : next_of(c, v, c->ids.ids, prompt_of(c), &id);
        if (e || id != ids[*at]) return e;
    }
    return LAR_OK;
}

static lar_error answers(check *c, variant *v, uint32_t count) {
    uint32_t ids[LAR_KV_CHECK_ANSWER], length = LAR_KV_CHECK_ANSWER;
    uint32_t context = lar_engine_info_of(c->r->engine).context, prompt = prompt_of(c);
    if (prompt >= context) length = 0;
    else if (length > context - prompt) length = context - prompt;
    lar_error e = answer(c, ids, &length);
    c->out->answer = c->bf16.figures->differs_at = length;
    for (uint32_t k = 0; !e && k < count; k++) e = differs_at(c, &v[k], ids, length);
    return e;
}

/* -- advice ------------------------------------------------------------------------------------------------------ */

static void sort_layers(lar_kv_check *out) {
    for (uint32_t i = 0; i < out->layer_count; i++) {
        uint32_t at = i;
        for (; at && out->layers[out->order[at - 1]].divergence < out->layers[i].divergence; at--)
            out->order[at] = out->order[at - 1];
        out->order[at] = i;
    }
}

static lar_error text_of(const uint8_t *kv, uint32_t layers, char out[LAR_KV_CHECK_TEXT_BYTES], lar_diag *d) {
    char *text = lar_kv_layers_text(kv, layers);
    if (!text) return LAR_NO_MEMORY;
    bool fits = strlen(text) < LAR_KV_CHECK_TEXT_BYTES;
    (void)snprintf(out, LAR_KV_CHECK_TEXT_BYTES, "%s", text);
    free(text);
    return fits ? LAR_OK : lar_fail(LAR_LIMIT, d, "more formats by layer than fit into a line");
}

/* fp8, with the `kept` most sensitive layers in bf16. */
static lar_error begin_kept(check *c, variant *v, uint32_t kept, lar_kv_figures *f) {
    uint8_t kv[LAR_LAYERS_MAX];
    char text[LAR_KV_CHECK_TEXT_BYTES];
    memset(kv, LAR_KV_FP8, c->out->layer_count);
    for (uint32_t i = 0; i < kept; i++) kv[c->out->order[i]] = LAR_KV_BF16;
    lar_error e = text_of(kv, c->out->layer_count, text, c->d);
    return e ? e : begin(c, v, text, f);
}

/* The fewest layers that bring fp8 within the limit, the most sensitive first, tried by several at once. */
static lar_error advise(check *c) {
    lar_kv_check *out = c->out;
    out->advice = out->fp8;
    out->kept = 0;
    while (out->advice.change > c->r->limit && out->kept < out->layer_count) {
        lar_kv_figures figures[GROUP] = {{.kv = ""}};
        uint32_t first = out->kept + 1, n = out->layer_count - out->kept;
        if (n > GROUP) n = GROUP;
        variant *v = calloc(n, sizeof *v);
        lar_error e = v ? LAR_OK : LAR_NO_MEMORY;
        for (uint32_t k = 0; !e && k < n; k++) e = begin_kept(c, &v[k], first + k, &figures[k]);
        c->done = 0, c->total = out->tokens * n;
        if (!e) e = measure(c, v, n);
        end(v, n);
        if (e) return e;
        for (uint32_t k = 0; k < n && out->advice.change > c->r->limit; k++) {
            out->advice = figures[k];
            out->kept = first + k;
        }
    }
    return LAR_OK;
}

/* -- all of it --------------------------------------------------------------------------------------------------- */

/* The formats that were asked for, fp8, and each layer alone in fp8, in one reading. */
static lar_error compare(check *c) {
    lar_kv_check *out = c->out;
    uint8_t kv[LAR_LAYERS_MAX];
    uint32_t formats = c->r->kv_count, layers = out->layer_count, count = formats + 1 + layers;
    variant *v = calloc(count, sizeof *v);
    lar_error e = v ? LAR_OK : LAR_NO_MEMORY;
    for (uint32_t k = 0; !e && k < formats; k++) e = begin(c, &v[k], c->r->kv[k], &out->formats[k]);
    if (!e) e = begin(c, &v[formats], "fp8", &out->fp8);
    for (uint32_t i = 0; !e && i < layers; i++) {
        char text[LAR_KV_CHECK_TEXT_BYTES];
        memset(kv, LAR_KV_BF16, layers);
        kv[i] = LAR_KV_FP8;
        e = text_of(kv, layers, text, c->d);
        if (!e) e = begin(c, &v[formats + 1 + i], text, &out->layers[i]);
    }
    c->done = 0, c->total = (uint64_t)count * (c->ids.count - 1);
    if (!e) e = measure(c, v, count);
    if (!e) e = answers(c, v, formats);
    end(v, v ? count : 0);
    return e;
}

/* The beginning of text, and as many of the text's tokens as are to be scored. */
static lar_error read_ids(check *c) {
    const lar_tokenizer *t = c->r->text->tokenizer;
    const uint32_t *prefix = lar_tokenizer_prefix(t, &c->fixed);
    lar_ids_init(&c->ids, IDS_MAX);
    for (uint32_t i = 0; i < c->fixed; i++)
        if (lar_ids_add(&c->ids, prefix[i])) return LAR_NO_MEMORY;
    lar_error e = lar_tokenizer_encode_plain(t, c->r->source, &c->ids, c->d);
    if (e) return e;
    if (c->fixed + 2 > c->r->window)
        return lar_fail(LAR_LIMIT, c->d, "a window of %u tokens is too short", c->r->window);
    if (c->ids.count - c->fixed > c->r->tokens) c->ids.count = c->fixed + (size_t)c->r->tokens;
    if (c->ids.count < 2) return lar_fail(LAR_INVALID, c->d, "nothing to score: the text is too short");
    for (size_t i = 0; i < c->ids.count; i++)
        if (c->ids.ids[i] >= c->vocab)
            return lar_fail(LAR_INVALID, c->d, "the tokenizer makes id %u, the model has %u tokens", c->ids.ids[i],
                            c->vocab);
    return LAR_OK;
}

lar_error lar_kv_check_run(const lar_kv_check_request *r, lar_kv_check *out, lar_diag *d) {
    lar_engine_info info = lar_engine_info_of(r->engine);
    check c = {.r = r, .out = out, .vocab = info.vocab, .d = d};
    *out = (lar_kv_check){.window = r->window, .format_count = r->kv_count, .layer_count = info.layers};
    lar_error e = read_ids(&c);
    out->layers = calloc(info.layers, sizeof *out->layers);
    out->order = calloc(info.layers, sizeof *out->order);
    c.logits = malloc((size_t)GROUP * PIECE * c.vocab * sizeof *c.logits);
    c.base = malloc((size_t)PIECE * c.vocab * sizeof *c.base);
    c.probability = malloc(c.vocab * sizeof *c.probability);
    if (!e && (!out->layers || !out->order || !c.logits || !c.base || !c.probability)) e = LAR_NO_MEMORY;
    if (!e) e = begin(&c, &c.bf16, "bf16", &out->bf16);
    if (!e) e = compare(&c);
    if (!e) sort_layers(out);
    if (!e) e = advise(&c);
    lar_sequence_free(c.bf16.sequence);
    free(c.logits);
    free(c.base);
    free(c.probability);
    lar_ids_release(&c.ids);
    return e;
}

void lar_kv_check_release(lar_kv_check *c) {
    free(c->layers);
    free(c->order);
    *c = (lar_kv_check){0};
}
