/* larder run: a conversation with a model, by its own template, streamed as it comes.
 * Flow: run_command.c calls; the template renders, the tokenizer encodes, the engine steps, the sampler chooses,
 * lar_output_stream cuts the stream. One thread; blocks on standard input and while the model computes.
 * Why the whole conversation is rendered each time: a template may change what was said before (drop reasoning).
 * What has the same ids from the start is not computed again.
 * Memory: the conversation, its ids, one sequence. Invariant: text of the user never becomes a special token. */
#include "gateway/local/run_chat.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"

enum { MESSAGES_BYTES_MAX = 64 << 20, VALUES_BYTES_MAX = 256 << 20, ANSWER_BYTES_MAX = 16 << 20 };

typedef struct talk {
    const lar_run_chat *c;
    lar_engine *engine;
    const lar_engine_text *text;
    lar_sequence *sequence;
    lar_ids ids;      /* what the sequence holds */
    lar_ids next;     /* what it shall hold: the rendered conversation */
    lar_buf messages; /* JSON without its closing bracket */
    lar_buf answer;   /* what the model said last, without reasoning */
    lar_template_text rendered;
    float *logits; /* (vocab) */
    int64_t begun; /* local seconds: what a template shows as now, the same in all turns */
    lar_diag *d;
    bool is_person; /* standard error is a terminal */
} talk;

/* -- the prompt -------------------------------------------------------------------------------------------------- */

static lar_error add_message(talk *t, const char *role, lar_slice text) {
    size_t before = t->messages.len;
    lar_error e = lar_buf_printf(&t->messages, "%s{\"role\": \"%s\", \"content\": \"", before > 1 ? ", " : "", role);
    if (!e) e = lar_json_escape(&t->messages, text);
    if (!e) e = lar_buf_printf(&t->messages, "\"}");
    if (e) t->messages.len = before;
    return e == LAR_INVALID ? lar_fail(e, t->d, "what was said is not UTF-8") : e;
}

static lar_error set_token(lar_template_values *v, const char *name, const talk *t, uint32_t id) {
    lar_slice bytes = id == LAR_TOKEN_NONE ? LAR_SLICE("") : lar_tokenizer_bytes(t->text->tokenizer, id);
    return lar_template_set_text(v, name, bytes.ptr ? bytes : LAR_SLICE(""), LAR_TEMPLATE_OWN);
}

static lar_error set_values(talk *t, lar_template_values *v) {
    const lar_tokenizer *k = t->text->tokenizer;
    size_t open = t->messages.len;
    lar_error e = lar_buf_add(&t->messages, "]", 1);
    if (!e) e = lar_template_set_messages(v, lar_buf_slice(&t->messages), LAR_TEMPLATE_ARGUMENTS_AS_IS, t->d);
    t->messages.len = open;
    lar_template_set_now(v, t->begun);
    if (!e) e = lar_template_set_bool(v, "add_generation_prompt", true);
    if (!e) e = set_token(v, "bos_token", t, lar_tokenizer_bos(k));
    if (!e) e = set_token(v, "eos_token", t, lar_tokenizer_eos(k));
    return e;
}

static lar_error render(talk *t) {
    lar_template_values *v = lar_template_values_new(VALUES_BYTES_MAX);
    lar_text_span *plain = NULL;
    lar_error e = v ? set_values(t, v) : LAR_NO_MEMORY;
    if (!e) e = lar_template_render(t->text->chat, v, NULL, &t->rendered, t->d);
    if (!e && !(plain = calloc(t->rendered.span_count + 1u, sizeof *plain))) e = LAR_NO_MEMORY;
    if (!e) {
        lar_marked_text marked = {.text = lar_buf_slice(&t->rendered.bytes), .plain = plain};
        marked.plain_count = lar_template_text_plain(&t->rendered, plain);
        e = lar_tokenizer_encode(t->text->tokenizer, &marked, &t->next, t->d);
    }
    free(plain);
    lar_template_values_free(v);
    return e;
}

static lar_error encode_raw(talk *t, lar_slice text) {
    uint32_t count;
    const uint32_t *prefix = lar_tokenizer_prefix(t->text->tokenizer, &count);
    lar_error e = LAR_OK;
    for (uint32_t i = 0; !e && i < count; i++) e = lar_ids_add(&t->next, prefix[i]);
    return e ? e : lar_tokenizer_encode_plain(t->text->tokenizer, text, &t->next, t->d);
}

/* Feeds t->next, but for what the sequence begins with already; leaves the logits of its last token. */
static lar_error prefill(talk *t, uint32_t *reused) {
    uint32_t count = (uint32_t)t->next.count, same = 0, held = lar_sequence_length(t->sequence);
    if (!count) return lar_fail(LAR_INVALID, t->d, "there is nothing to answer: the prompt has no tokens");
    if (count >= t->c->context)
        return lar_fail(LAR_LIMIT, t->d, "the conversation has %u tokens; the context is %u (--context)", count,
                        t->c->context);
    while (same < held && same + 1 < count && t->ids.ids[same] == t->next.ids[same]) same++;
    lar_sequence_cut(t->sequence, same);
    t->ids.count = same;
    uint32_t last = count - same - 1;
    lar_engine_part part = {t->sequence, t->next.ids + same, count - same, &last, 1};
    lar_error e = lar_engine_step(t->engine, &part, 1, t->logits, t->d);
    for (uint32_t i = same; !e && i < count; i++) e = lar_ids_add(&t->ids, t->next.ids[i]);
    *reused = same;
    return e;
}

/* -- the answer -------------------------------------------------------------------------------------------------- */

static lar_error show(void *user, const lar_output_event *event) {
    talk *t = user;
    FILE *to = event->kind == LAR_OUTPUT_REASONING ? stderr : stdout;
    (void)fwrite(event->text.ptr, 1, event->text.len, to);
    (void)fflush(to);
    if (ferror(stdout)) return lar_fail(LAR_IO, t->d, "the answer could not be written to standard output");
    return event->kind == LAR_OUTPUT_CONTENT ? lar_buf_add_slice(&t->answer, event->text) : LAR_OK;
}

/* No tools are offered, so that no call is looked for. */
static void no_id(void *user, char *id) {
    (void)user;
    *id = '\0';
}

static bool is_end(const lar_model_generation *g, const lar_tokenizer *k, uint32_t id) {
    for (uint32_t i = 0; i < g->end_count; i++)
        if (g->ends[i] == id) return true;
    return id == lar_tokenizer_eos(k);
}

static lar_error begin_output(talk *t, lar_output_stream **out) {
    lar_output_options o = {.format = LAR_OUTPUT_FORMAT_NONE};
    lar_output_sink sink = {t, show, no_id};
    lar_slice begin = LAR_SLICE("<think>"), end = LAR_SLICE("</think>");
    if (t->c->form == LAR_RUN_TEMPLATE && lar_tokenizer_find(t->text->tokenizer, end) != LAR_TOKEN_NONE) {
        o.reasoning_begin = begin, o.reasoning_end = end;
        o.reasoning_open = lar_output_prompt_opens(lar_buf_slice(&t->rendered.bytes), begin);
    }
    return lar_output_stream_new(&o, &sink, out, t->d);
}

/* Tokens until the model ends, or the limit is there. */
static lar_error generate(talk *t, lar_sampler *sampler, lar_output_stream *out, uint32_t *made) {
    uint32_t limit = t->c->tokens_max ? t->c->tokens_max : t->c->context, first = 0;
    for (*made = 0; *made < limit;) {
        lar_sampled next;
        bool more = true;
        lar_error e = lar_sampler_next(sampler, t->logits, &next, t->d);
        if (e || is_end(&t->text->generation, t->text->tokenizer, next.id)) return e;
        lar_slice bytes = lar_tokenizer_bytes(t->text->tokenizer, next.id);
        ++*made;
        if (bytes.len) e = lar_output_stream_feed(out, bytes, 1, &more); /* a model may have more ids than text */
        if (e || !more || lar_sequence_length(t->sequence) + 1 >= t->c->context) return e;
        e = lar_engine_step(t->engine, &(lar_engine_part){t->sequence, &next.id, 1, &first, 1}, 1, t->logits, t->d);
        if (!e) e = lar_ids_add(&t->ids, next.id);
        if (e) return e;
    }
    return LAR_OK;
}

static lar_error answer(talk *t) {
    lar_sampler *sampler = NULL;
    lar_output_stream *out = NULL;
    lar_output_summary summary;
    uint32_t reused = 0, made = 0, vocab = lar_engine_info_of(t->engine).vocab;
    uint64_t begin = lar_clock_mono_ns();
    lar_error e = prefill(t, &reused);
    uint64_t middle = lar_clock_mono_ns();
    lar_buf_reset(&t->answer, ANSWER_BYTES_MAX);
    if (!e) e = lar_sampler_new(&t->c->sampling, vocab, &sampler, t->d);
    if (!e) lar_sampler_see(sampler, t->next.ids, (uint32_t)t->next.count);
    if (!e) e = begin_output(t, &out);
    if (!e) e = generate(t, sampler, out, &made);
    if (!e) e = lar_output_stream_finish(out, &summary);
    lar_output_stream_free(out);
    lar_sampler_free(sampler);
    if (e) return e;
    (void)printf("\n");
    (void)fflush(stdout);
    double read = (double)(middle - begin) / 1e9, wrote = (double)(lar_clock_mono_ns() - middle) / 1e9;
    if (t->is_person)
        (void)fprintf(stderr, "[%zu tokens read, %u of them held already, in %.1f s; %u written, %.1f a second]\n",
                      t->next.count, reused, read, made, wrote > 0 ? made / wrote : 0);
    return LAR_OK;
}

/* -- turns ------------------------------------------------------------------------------------------------------- */

static lar_error turn(talk *t, lar_slice said) {
    t->next.count = 0;
    if (t->c->form == LAR_RUN_RAW) {
        lar_error e = encode_raw(t, said);
        return e ? e : answer(t);
    }
    lar_error e = add_message(t, "user", said);
    if (!e) e = render(t);
    if (!e) e = answer(t);
    return e ? e : add_message(t, "assistant", lar_buf_slice(&t->answer));
}

static lar_error turns(talk *t) {
    char *line = NULL;
    size_t room = 0;
    lar_error e = LAR_OK;
    while (!e) {
        if (t->is_person) (void)fprintf(stderr, "> ");
        ssize_t n = getline(&line, &room, stdin);
        if (n < 0) break;
        while (n && (line[n - 1] == '\n' || line[n - 1] == '\r')) n--;
        if (n) e = turn(t, lar_slice_of(line, (size_t)n));
    }
    free(line);
    if (!e && ferror(stdin)) e = lar_fail(LAR_IO, t->d, "standard input could not be read");
    return e;
}

lar_error lar_run_chat_run(const lar_run_chat *c, lar_engine *e, const lar_engine_text *text, lar_diag *d) {
    talk t = {.c = c, .engine = e, .text = text, .d = d, .is_person = isatty(STDERR_FILENO)};
    if (c->form == LAR_RUN_TEMPLATE && !text->chat)
        return lar_fail(LAR_INVALID, d, "the model has no chat template; --raw continues a text as it stands");
    time_t now = time(NULL);
    struct tm local = {0};
    if (localtime_r(&now, &local)) t.begun = (int64_t)now + local.tm_gmtoff;
    lar_ids_init(&t.ids, c->context);
    lar_ids_init(&t.next, (size_t)LAR_BPE_IDS_MAX * 8);
    lar_buf_init(&t.messages, MESSAGES_BYTES_MAX);
    lar_buf_init(&t.answer, ANSWER_BYTES_MAX);
    t.logits = malloc(lar_engine_info_of(e).vocab * sizeof *t.logits);
    lar_error error = t.logits ? lar_sequence_new(e, c->context, &t.sequence, d) : LAR_NO_MEMORY;
    if (!error) error = lar_buf_add(&t.messages, "[", 1);
    if (!error && c->system) error = add_message(&t, "system", lar_slice_cstr(c->system));
    if (!error) error = c->prompt ? turn(&t, lar_slice_cstr(c->prompt)) : turns(&t);
    lar_sequence_free(t.sequence);
    free(t.logits);
    lar_template_text_release(&t.rendered);
    lar_buf_release(&t.answer);
    lar_buf_release(&t.messages);
    lar_ids_release(&t.next);
    lar_ids_release(&t.ids);
    return error;
}
