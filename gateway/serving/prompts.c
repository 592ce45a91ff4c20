/* Prompts as token ids: a conversation through the model's template, or texts and ids as they are.
 * Flow: lar_answer_new and the tokenize endpoint call; ask_conversation.c has checked the messages. Any thread; takes
 * its time for long ones. Why special tokens of a completions prompt are read as such and those of a message never
 * are: whoever sends a raw prompt writes the template's part of it (as vLLM and llama.cpp have it), whoever sends
 * messages does not (E-11).
 * Invariants: 1. a prompt begins with what the model wants there exactly once (E-12): a template's own, a text's own,
 * or what is put there. 2. no prompt is ever cut (E-13). Memory: the rendered text and its ids; limits below. */
#include <inttypes.h>
#include <stdlib.h>

#include "engine/text/output_utf8.h"
#include "gateway/serving/ask.h"

enum { VALUES_BYTES_MAX = 256 << 20, IDS_MAX = LAR_BPE_IDS_MAX * 8, NAME_BYTES_MAX = 64, ECHO_BYTES_MAX = 64 << 20 };

typedef struct making {
    const lar_serving *s;
    const lar_serving_ask *from;
    const lar_ask *a;
    lar_refusal *no;
    const char *param; /* "messages" or "prompt" */
    lar_diag d;
} making;

void lar_prompts_release(lar_prompts *p) {
    for (uint32_t i = 0; i < p->count; i++) {
        lar_ids_release(&p->list[i].ids);
        lar_buf_release(&p->list[i].echo);
        lar_buf_release(&p->list[i].begun_tail);
        lar_ids_release(&p->list[i].opening_ids);
        lar_ids_release(&p->list[i].opening_bytes);
    }
    p->count = 0;
}

static lar_prompt *add_prompt(lar_prompts *p) {
    lar_prompt *x = &p->list[p->count++];
    *x = (lar_prompt){.mark_count = 0};
    lar_ids_init(&x->ids, IDS_MAX);
    lar_buf_init(&x->echo, ECHO_BYTES_MAX);
    lar_buf_init(&x->begun_tail, LAR_OUTPUT_STOP_BYTES_MAX);
    lar_ids_init(&x->opening_ids, IDS_MAX);
    lar_ids_init(&x->opening_bytes, IDS_MAX);
    return x;
}

/* What the template or the tokenizer had to say about a client's text. */
static lar_error refuse_text(making *m, lar_error e) {
    if (e == LAR_OK || e == LAR_NO_MEMORY || e == LAR_CLIENT_GONE || m->no->status) return e;
    return lar_refuse(m->no, m->param, e == LAR_LIMIT ? "limit" : LAR_CODE_VALUE, "%s: %s", m->param,
                      m->d.text[0] ? m->d.text : lar_error_text(e));
}

/* A text that is too long whatever its tokens are is not made into any: it would take seconds for nothing. */
static lar_error check_bytes(const making *m, size_t bytes) {
    size_t least = m->s->token_bytes_max ? (bytes + m->s->token_bytes_max - 1) / m->s->token_bytes_max : 0;
    if (m->from->endpoint == LAR_SERVING_TOKENIZE || least < m->s->context) return LAR_OK;
    return lar_refuse(m->no, m->param, LAR_CODE_CONTEXT,
                      "the prompt has %zu bytes, which are %zu tokens at least; this model's context is %u tokens, "
                      "prompt and answer",
                      bytes, least, m->s->context);
}

static lar_error encode(making *m, lar_marked_text text, lar_ids *out) {
    lar_error e = check_bytes(m, text.text.len);
    text.stop = m->from->gone;
    return e ? e : lar_tokenizer_encode(m->s->text.tokenizer, &text, out, &m->d);
}

/* What the model wants at the beginning is put there unless it is there. Returns how many ids that took. */
static lar_error put_prefix(const lar_tokenizer *t, lar_ids *ids, uint32_t *added) {
    uint32_t count;
    const uint32_t *prefix = lar_tokenizer_prefix(t, &count);
    size_t before = ids->count;
    *added = 0;
    if (!count || (before >= count && memcmp(ids->ids, prefix, count * sizeof *prefix) == 0)) return LAR_OK;
    for (uint32_t i = 0; i < count; i++) {
        lar_error e = lar_ids_add(ids, prefix[i]);
        if (e) return e;
    }
    memmove(ids->ids + count, ids->ids, before * sizeof *ids->ids);
    memcpy(ids->ids, prefix, count * sizeof *prefix);
    *added = count;
    return LAR_OK;
}

/* -- conversations ------------------------------------------------------------------------------------------------- */

static lar_error set_token(lar_template_values *v, const char *name, const lar_tokenizer *t, uint32_t id) {
    lar_slice bytes = id == LAR_TOKEN_NONE ? LAR_SLICE("") : lar_tokenizer_bytes(t, id);
    return lar_template_set_text(v, name, bytes.ptr ? bytes : LAR_SLICE(""), LAR_TEMPLATE_OWN);
}

static bool is_reserved(lar_slice name) {
    static const char *const names[] = {"messages", "tools", "bos_token", "eos_token", "add_generation_prompt"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (lar_slice_eq_cstr(name, names[i])) return true;
    return false;
}

static lar_error set_variable(making *m, lar_template_values *v, uint32_t key) {
    const lar_json *j = &m->a->json;
    lar_buf name;
    lar_buf_init(&name, NAME_BYTES_MAX);
    lar_error e = lar_ask_text(j, key, &name);
    if (e == LAR_LIMIT || is_reserved(lar_buf_slice(&name)) || (!e && (!name.len || memchr(name.ptr, 0, name.len))))
        e = lar_refuse(m->no, "chat_template_kwargs", LAR_CODE_VALUE,
                       "chat_template_kwargs: a name that is none, is too long, or that the server sets");
    else if (!e) e = lar_buf_add(&name, "", 1);
    if (!e && (e = lar_template_set_json(v, name.ptr, lar_json_raw(j, key + 1), &m->d)) != LAR_OK) {
        m->param = "chat_template_kwargs";
        e = refuse_text(m, e);
    }
    lar_buf_release(&name);
    return e;
}

static lar_error set_switches(making *m, lar_template_values *v) {
    const lar_ask *a = m->a;
    lar_error e = LAR_OK;
    if (a->thinking != LAR_THINKING_DEFAULT) {
        bool on = a->thinking == LAR_THINKING_ON;
        e = lar_template_set_bool(v, "thinking", on);
        if (!e) e = lar_template_set_bool(v, "enable_thinking", on);
    }
    if (!e && a->effort[0] && strcmp(a->effort, "none") != 0)
        e = lar_template_set_text(v, "reasoning_effort", lar_slice_cstr(a->effort), LAR_TEMPLATE_VALUE);
    if (a->kwargs == LAR_JSON_NONE) return e;
    for (uint32_t k = lar_json_first(&a->json, a->kwargs); !e && k != LAR_JSON_NONE;
         k = lar_json_after(&a->json, a->kwargs, k))
        e = set_variable(m, v, k);
    return e;
}

/* All but the messages and add_generation_prompt. */
static lar_error set_values(making *m, const lar_conversation *c, lar_template_values *v) {
    const lar_tokenizer *t = m->s->text.tokenizer;
    lar_template_set_now(v, m->from->local_now);
    lar_error e = set_token(v, "bos_token", t, lar_tokenizer_bos(t));
    if (!e) e = set_token(v, "eos_token", t, lar_tokenizer_eos(t));
    if (e) return e;
    e = lar_template_set_json(v, "tools", c->tools.len ? lar_buf_slice(&c->tools) : LAR_SLICE("null"), &m->d);
    if (e) {
        m->param = "tools";
        return refuse_text(m, e);
    }
    return set_switches(m, v);
}

static lar_error render(making *m, lar_template_values *v, lar_slice messages, lar_template_text *out) {
    lar_error e = lar_template_set_messages(v, messages, m->s->arguments, &m->d);
    return e ? e : lar_template_render(m->s->text.chat, v, NULL, out, &m->d);
}

static lar_error encode_rendered(making *m, const lar_template_text *text, lar_ids *out) {
    lar_text_span *plain = calloc(text->span_count + 1u, sizeof *plain);
    if (!plain) return LAR_NO_MEMORY;
    lar_marked_text marked = {.text = lar_buf_slice(&text->bytes), .plain = plain};
    marked.plain_count = lar_template_text_plain(text, plain);
    lar_error e = encode(m, marked, out);
    free(plain);
    return e;
}

/* How many whole tokens lie in the first `bytes` bytes of a prompt's text. */
static uint32_t tokens_within(const making *m, const lar_ids *ids, uint32_t skip, size_t bytes) {
    size_t at = 0;
    uint32_t n = skip;
    for (; n < ids->count; n++) {
        at += lar_tokenizer_bytes(m->s->text.tokenizer, ids->ids[n]).len;
        if (at > bytes) break;
    }
    return n;
}

/* A mark's prefix is what the prompt has in common with the conversation that ends there: whatever the template does
 * with what follows. Where it cannot render such a conversation there is no prefix to keep. */
static lar_error find_mark(making *m, lar_template_values *v, lar_slice messages, size_t *common,
                           const lar_template_text *whole) {
    lar_template_text part = {.span_count = 0};
    lar_error e = render(m, v, messages, &part);
    lar_slice a = lar_buf_slice(&whole->bytes), b = lar_buf_slice(&part.bytes);
    size_t n = 0;
    while (!e && n < a.len && n < b.len && a.ptr[n] == b.ptr[n]) n++;
    *common = n;
    lar_template_text_release(&part);
    m->d = (lar_diag){.text = ""};
    return e == LAR_NO_MEMORY ? e : LAR_OK;
}

static lar_error find_marks(making *m, lar_template_values *v, const lar_conversation *c,
                            const lar_template_text *whole, lar_prompt *p) {
    lar_buf messages;
    lar_buf_init(&messages, c->messages.max + 8);
    lar_error e = c->mark_count ? lar_template_set_bool(v, "add_generation_prompt", false) : LAR_OK;
    for (uint32_t i = 0; !e && i < c->mark_count; i++) {
        size_t common = 0;
        messages.len = 0;
        e = lar_buf_add(&messages, c->messages.ptr, c->marks[i].bytes);
        if (!e) e = lar_buf_add_slice(&messages, lar_slice_cstr(c->marks[i].close));
        if (!e) e = find_mark(m, v, lar_buf_slice(&messages), &common, whole);
        p->marks[i] = (uint32_t)common; /* bytes, until the ids are there */
        p->mark_count = i + 1;
    }
    lar_buf_release(&messages);
    return e;
}

static void marks_in_tokens(const making *m, uint32_t added, lar_prompt *p) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < p->mark_count; i++) {
        uint32_t tokens = p->marks[i] ? tokens_within(m, &p->ids, added, p->marks[i]) : 0;
        if (tokens) p->marks[kept++] = tokens;
    }
    p->mark_count = kept;
}

static lar_error make_chat(making *m, lar_template_values *v, const lar_conversation *c, lar_prompts *out) {
    lar_template_text text = {.span_count = 0};
    lar_prompt *p = add_prompt(out);
    uint32_t added = 0;
    lar_error e = set_values(m, c, v);
    if (e) return e;
    e = lar_template_set_bool(v, "add_generation_prompt", m->a->add_generation_prompt || c->continues);
    if (!e) e = render(m, v, lar_buf_slice(&c->messages), &text);
    if (!e) e = encode_rendered(m, &text, &p->ids);
    if (!e) e = put_prefix(m->s->text.tokenizer, &p->ids, &added);
    if (!e)
        p->reasoning_open =
            m->s->thinks && lar_output_prompt_opens(lar_buf_slice(&text.bytes), LAR_SLICE(LAR_THINK_BEGIN));
    if (!e) e = find_marks(m, v, c, &text, p);
    if (!e) marks_in_tokens(m, added, p);
    p->reasoning_shut = lar_output_prompt_opens(lar_buf_slice(&text.bytes), LAR_SLICE(LAR_THINK_END));
    lar_template_text_release(&text);
    e = refuse_text(m, e);
    if (e || (!m->from->begun && !c->continues)) return e;
    const lar_serving_begun own = {.reasoning = c->reasoning.len ? lar_buf_slice(&c->reasoning) : LAR_SLICE(""),
                                   .content = c->content.len ? lar_buf_slice(&c->content) : LAR_SLICE("")};
    p->begun_by_client = !m->from->begun;
    if (m->from->begun && c->continues)
        return lar_refuse(m->no, "messages", LAR_CODE_UNSUPPORTED_VALUE,
                          "messages: an answer that has begun cannot go on behind two beginnings");
    return lar_begun_append(m->s, &(lar_begun_text){m->from, m->from->begun ? m->from->begun : &own}, p, m->no);
}

static lar_error make_conversation(making *m, lar_prompts *out) {
    lar_conversation c;
    lar_conversation_init(&c);
    lar_error e = lar_conversation_read(m->a, &c, m->no);
    lar_template_values *v = e ? NULL : lar_template_values_new(VALUES_BYTES_MAX);
    if (!e) e = v ? make_chat(m, v, &c, out) : LAR_NO_MEMORY;
    lar_template_values_free(v);
    lar_conversation_release(&c);
    return e;
}

/* -- texts and ids as they are ------------------------------------------------------------------------------------- */

static lar_error make_text(making *m, uint32_t node, lar_prompts *out) {
    lar_prompt *p = add_prompt(out);
    uint32_t added;
    lar_error e = lar_ask_text(&m->a->json, node, &p->echo);
    const lar_marked_text marked = {.text = p->echo.len ? lar_buf_slice(&p->echo) : LAR_SLICE("")};
    if (!e) e = encode(m, marked, &p->ids);
    if (!e && m->a->add_special) e = put_prefix(m->s->text.tokenizer, &p->ids, &added);
    if (!m->a->echo) lar_buf_release(&p->echo);
    return refuse_text(m, e);
}

static lar_error echo_of_ids(const making *m, lar_prompt *p) {
    lar_output_utf8 whole = {.len = 0};
    lar_buf raw;
    lar_buf_init(&raw, ECHO_BYTES_MAX);
    lar_error e = lar_tokenizer_decode(m->s->text.tokenizer, p->ids.ids, p->ids.count, LAR_DECODE_SPECIAL_KEPT, &raw);
    if (!e && raw.len) e = lar_output_utf8_push(&whole, lar_buf_slice(&raw), &p->echo);
    if (!e) e = lar_output_utf8_finish(&whole, &p->echo);
    lar_buf_release(&raw);
    return e;
}

static lar_error make_ids(making *m, uint32_t node, lar_prompts *out) {
    const lar_json *j = &m->a->json;
    lar_prompt *p = add_prompt(out);
    lar_error e = LAR_OK;
    for (uint32_t i = lar_json_first(j, node); !e && i != LAR_JSON_NONE; i = lar_json_after(j, node, i)) {
        uint64_t id;
        if (!lar_json_u64(j, i, &id) || id >= m->s->vocab)
            return lar_refuse(m->no, "prompt", LAR_CODE_VALUE, "prompt: ids are whole numbers below %u", m->s->vocab);
        e = lar_ids_add(&p->ids, (uint32_t)id);
    }
    if (!e && m->a->echo) e = echo_of_ids(m, p);
    return refuse_text(m, e);
}

static lar_error make_list(making *m, uint32_t node, lar_prompts *out) {
    const lar_json *j = &m->a->json;
    uint32_t first = lar_json_first(j, node);
    lar_json_kind kind = lar_json_kind_of(j, first);
    lar_error e = LAR_OK;
    if (first == LAR_JSON_NONE || (kind != LAR_JSON_NUMBER && kind != LAR_JSON_STRING && kind != LAR_JSON_ARRAY))
        return lar_refuse(m->no, "prompt", LAR_CODE_TYPE, "prompt: texts, ids or lists of ids are expected");
    if (kind == LAR_JSON_NUMBER) return make_ids(m, node, out);
    if (j->nodes[node].count > m->s->prompts_max)
        return lar_refuse(m->no, "prompt", LAR_CODE_VALUE, "prompt: at most %u in one request", m->s->prompts_max);
    for (uint32_t i = first; !e && i != LAR_JSON_NONE; i = lar_json_after(j, node, i)) {
        if (lar_json_kind_of(j, i) != kind)
            return lar_refuse(m->no, "prompt", LAR_CODE_TYPE, "prompt: texts and lists of ids do not mix");
        e = kind == LAR_JSON_STRING ? make_text(m, i, out) : make_ids(m, i, out);
    }
    return e;
}

uint32_t lar_prompt_answer_max(const lar_prompt *p, const lar_ask *a) {
    if (!a->answer_max) return 0;
    uint64_t made_again = (uint64_t)a->answer_max + p->begun_tokens - p->begun_ids;
    if (p->begun_by_client) return made_again < UINT32_MAX ? (uint32_t)made_again : UINT32_MAX;
    return a->answer_max > p->begun_ids ? a->answer_max - p->begun_ids : 1;
}

/* -- all ----------------------------------------------------------------------------------------------------------- */

/* At least one token must fit behind the prompt. */
static lar_error check_length(const making *m, const lar_prompt *p) {
    uint32_t context = m->s->context, most = lar_prompt_answer_max(p, m->a);
    if (!p->ids.count) return lar_refuse(m->no, m->param, LAR_CODE_VALUE, "%s: the prompt has no tokens", m->param);
    if (p->ids.count >= context)
        return lar_refuse(m->no, m->param, LAR_CODE_CONTEXT,
                          "the prompt has %zu tokens; this model's context is %u tokens, prompt and answer",
                          p->ids.count, context);
    if (most > context - p->ids.count)
        return lar_refuse(m->no, m->a->has_completion_max ? "max_completion_tokens" : "max_tokens", LAR_CODE_CONTEXT,
                          "the prompt has %zu tokens and the answer may have %u; this model's context is %u tokens",
                          p->ids.count, most, context);
    return LAR_OK;
}

lar_error lar_prompts_make(const lar_serving *s, const lar_serving_ask *from, const lar_ask *a, lar_prompts *out,
                           lar_refusal *no) {
    making m = {.s = s, .from = from, .a = a, .no = no, .param = "prompt"};
    lar_error e;
    if (a->messages != LAR_JSON_NONE) {
        m.param = "messages";
        e = make_conversation(&m, out);
    } else if (lar_json_is(&a->json, a->prompt, LAR_JSON_STRING)) {
        e = make_text(&m, a->prompt, out);
    } else if (lar_json_is(&a->json, a->prompt, LAR_JSON_ARRAY) && from->endpoint == LAR_SERVING_COMPLETIONS) {
        e = make_list(&m, a->prompt, out);
    } else {
        e = lar_refuse(no, "prompt", LAR_CODE_TYPE, "prompt: a text is expected");
    }
    for (uint32_t i = 0; !e && i < out->count && from->endpoint != LAR_SERVING_TOKENIZE; i++)
        e = check_length(&m, &out->list[i]);
    return e;
}
