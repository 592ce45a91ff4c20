/* A request's fields, checked one by one and then together.
 * Flow: lar_answer_new calls, on a thread that may take its time; ask_conversation.c and prompts.c read the nodes that
 * stay nodes here. Never blocks. Why a table: what is taken, ignored and refused is one row each (ask_field.def), and
 * docs/engine-api.md prints the rows.
 * Invariants: 1. null is as absent. 2. a known field that appears twice is refused, whatever its values. 3. a wrong
 * type, a value out of range and a field that larder knows and cannot do are a 400 that names it; unknown names are
 * ignored, as OpenAI's servers and vLLM do. Memory: the span tree, stop strings, biases; freed by release. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/text/output_utf8.h"
#include "gateway/serving/ask.h"

enum { STOP_BYTES_MAX = LAR_OUTPUT_STOPS_MAX * LAR_OUTPUT_STOP_BYTES_MAX, NODES_MAX = 1 << 20, FIELDS_MAX = 96 };
enum { CHAT = 1, COMPLETIONS = 2, TOKENIZE = 4, DETOKENIZE = 8 };
enum {
    BOTH = CHAT | COMPLETIONS,
    CHAT_TOKENIZE = CHAT | TOKENIZE,
    COMPLETIONS_TOKENIZE = COMPLETIONS | TOKENIZE,
    ALL = BOTH | TOKENIZE | DETOKENIZE
};

typedef struct reading {
    const lar_serving *serving;
    const lar_json *j;
    lar_ask *a;
    lar_refusal *no;
    const char *name; /* of the field */
    bool is_chat, any_model;
    uint32_t tool_choice; /* node */
} reading;

static lar_error wrong_type(const reading *r, const char *expected) {
    return lar_refuse(r->no, r->name, LAR_CODE_TYPE, "%s: %s is expected", r->name, expected);
}

static lar_error wrong_value(const reading *r, const char *expected) {
    return lar_refuse(r->no, r->name, LAR_CODE_VALUE, "%s: %s is expected", r->name, expected);
}

/* A whole number without dot or exponent. */
static bool whole_number(const lar_json *j, uint32_t node, int64_t *out) {
    char digits[24];
    lar_slice raw = lar_json_raw(j, node);
    if (!lar_json_is(j, node, LAR_JSON_NUMBER) || raw.len >= sizeof digits) return false;
    memcpy(digits, raw.ptr, raw.len);
    digits[raw.len] = '\0';
    if (strpbrk(digits, ".eE")) return false;
    errno = 0;
    *out = strtoll(digits, NULL, 10);
    return errno == 0;
}

static lar_error read_whole(const reading *r, uint32_t node, int64_t least, int64_t most, int64_t *out) {
    char range[64];
    *out = least;
    if (!whole_number(r->j, node, out)) return wrong_type(r, "a whole number");
    (void)snprintf(range, sizeof range, "a number from %" PRId64 " to %" PRId64, least, most);
    return *out < least || *out > most ? wrong_value(r, range) : LAR_OK;
}

static lar_error read_flag(const reading *r, uint32_t node, bool *out) {
    *out = lar_json_is(r->j, node, LAR_JSON_TRUE);
    return *out || lar_json_is(r->j, node, LAR_JSON_FALSE) ? LAR_OK : wrong_type(r, "true or false");
}

lar_error lar_ask_text(const lar_json *j, uint32_t node, lar_buf *out) {
    lar_output_utf8 whole = {.len = 0};
    lar_buf raw;
    lar_buf_init(&raw, lar_json_inner(j, node).len * 2 + 1);
    lar_error e = lar_json_decode(j, node, &raw);
    if (!e && raw.len) e = lar_output_utf8_push(&whole, lar_buf_slice(&raw), out);
    if (!e) e = lar_output_utf8_finish(&whole, out);
    lar_buf_release(&raw);
    return e;
}

/* -- fields with readers of their own, in the order of ask_field.def ----------------------------------------------- */

static lar_error read_model(reading *r, uint32_t node) {
    if (!lar_json_is(r->j, node, LAR_JSON_STRING)) return wrong_type(r, "a text");
    r->a->model = true;
    if (r->any_model || lar_json_eq(r->j, node, lar_slice_cstr(r->serving->model))) return LAR_OK;
    lar_error e = lar_refuse(r->no, "model", "model_not_found", "there is no such model here; it is called %s",
                             r->serving->model);
    r->no->status = 404;
    return e;
}

static lar_error read_messages(reading *r, uint32_t node) {
    r->a->messages = node;
    if (!lar_json_is(r->j, node, LAR_JSON_ARRAY)) return wrong_type(r, "a list of messages");
    return r->j->nodes[node].count ? LAR_OK : wrong_value(r, "at least one message");
}

static lar_error read_prompt(reading *r, uint32_t node) {
    r->a->prompt = node;
    return LAR_OK; /* prompts.c looks at its form */
}

static lar_error read_tokens(reading *r, uint32_t node) {
    r->a->tokens = node;
    return lar_json_is(r->j, node, LAR_JSON_ARRAY) ? LAR_OK : wrong_type(r, "a list of token ids");
}

static lar_error read_stream_options(reading *r, uint32_t node) {
    if (!lar_json_is(r->j, node, LAR_JSON_OBJECT)) return wrong_type(r, "an object");
    r->a->has_stream_options = true;
    uint32_t usage = lar_json_get_last(r->j, node, "include_usage");
    r->name = "stream_options.include_usage";
    return lar_json_kind_of(r->j, usage) == LAR_JSON_NULL ? LAR_OK : read_flag(r, usage, &r->a->include_usage);
}

static lar_error read_max_tokens(reading *r, uint32_t node) {
    int64_t n;
    lar_error e = read_whole(r, node, 1, UINT32_MAX, &n);
    if (!e && !r->a->has_completion_max) r->a->answer_max = (uint32_t)n;
    return e;
}

static lar_error read_max_completion_tokens(reading *r, uint32_t node) {
    int64_t n;
    lar_error e = read_whole(r, node, 1, UINT32_MAX, &n);
    if (!e) r->a->answer_max = (uint32_t)n, r->a->has_completion_max = true;
    return e;
}

static lar_error read_top_k(reading *r, uint32_t node) {
    int64_t n;
    lar_error e = read_whole(r, node, -1, UINT32_MAX, &n);
    if (!e) r->a->sampling.top_k = n < 0 ? 0 : n > r->serving->vocab ? r->serving->vocab : (uint32_t)n;
    return e;
}

static bool bias_of(const reading *r, uint32_t key, lar_logit_bias *out) {
    lar_slice digits = lar_json_inner(r->j, key);
    uint64_t id = 0;
    double bias;
    bool good = digits.len > 0 && digits.len < 10;
    for (size_t i = 0; good && i < digits.len; i++) {
        good = digits.ptr[i] >= '0' && digits.ptr[i] <= '9';
        id = id * 10 + (uint64_t)(digits.ptr[i] - '0');
    }
    if (!good || id >= r->serving->vocab) return false;
    if (!lar_json_double(r->j, key + 1, &bias) || !(bias >= -100 && bias <= 100)) return false;
    *out = (lar_logit_bias){.id = (uint32_t)id, .bias = (float)bias};
    return true;
}

/* At most LAR_LOGIT_BIAS_MAX of them: no need to sort. */
static bool is_biased(const lar_logit_bias *biases, uint32_t count, uint32_t id) {
    while (count--)
        if (biases[count].id == id) return true;
    return false;
}

static lar_error read_logit_bias(reading *r, uint32_t node) {
    if (!lar_json_is(r->j, node, LAR_JSON_OBJECT)) return wrong_type(r, "an object");
    uint32_t count = r->j->nodes[node].count, n = 0;
    if (count > LAR_LOGIT_BIAS_MAX) return wrong_value(r, "at most 1024 tokens");
    r->a->biases = calloc(count + !count, sizeof *r->a->biases);
    if (!r->a->biases) return LAR_NO_MEMORY;
    for (uint32_t k = lar_json_first(r->j, node); k != LAR_JSON_NONE; k = lar_json_after(r->j, node, k)) {
        if (!bias_of(r, k, &r->a->biases[n]))
            return wrong_value(r, "ids of the vocabulary with numbers of -100 to 100");
        if (is_biased(r->a->biases, n, r->a->biases[n].id))
            return wrong_value(r, "each id once, however it is written");
        n++;
    }
    r->a->sampling.biases = r->a->biases;
    r->a->sampling.bias_count = n;
    return LAR_OK;
}

static lar_error read_seed(reading *r, uint32_t node) {
    int64_t n;
    if (!whole_number(r->j, node, &n)) return wrong_type(r, "a whole number of 64 bits");
    r->a->has_seed = true;
    r->a->sampling.seed = (uint64_t)n;
    return LAR_OK;
}

static lar_error read_n(reading *r, uint32_t node) {
    int64_t n;
    lar_error e = read_whole(r, node, 1, r->serving->samples_max, &n);
    if (!e) r->a->samples = (uint32_t)n;
    return e;
}

static lar_error add_stop(reading *r, uint32_t node) {
    lar_ask *a = r->a;
    size_t before = a->stop_text.len;
    if (!lar_json_is(r->j, node, LAR_JSON_STRING)) return wrong_type(r, "a text or a list of texts");
    if (a->stop_count == LAR_OUTPUT_STOPS_MAX) return wrong_value(r, "at most 16 texts");
    lar_error e = lar_ask_text(r->j, node, &a->stop_text);
    size_t len = a->stop_text.len - before;
    if (e == LAR_LIMIT || len > LAR_OUTPUT_STOP_BYTES_MAX) return wrong_value(r, "a text of at most 1024 bytes");
    if (!e && !len) return wrong_value(r, "a text that is not empty");
    if (!e) a->stop_ends[a->stop_count++] = (uint32_t)a->stop_text.len;
    return e;
}

static lar_error read_stop(reading *r, uint32_t node) {
    if (!lar_json_is(r->j, node, LAR_JSON_ARRAY)) return add_stop(r, node);
    lar_error e = LAR_OK;
    for (uint32_t i = lar_json_first(r->j, node); !e && i != LAR_JSON_NONE; i = lar_json_after(r->j, node, i))
        e = add_stop(r, i);
    return e;
}

lar_slice lar_ask_stop(const lar_ask *a, uint32_t i) {
    uint32_t start = i ? a->stop_ends[i - 1] : 0;
    return lar_slice_of(a->stop_text.ptr + start, a->stop_ends[i] - start);
}

static lar_error read_logprobs(reading *r, uint32_t node) {
    int64_t n = 0;
    if (r->is_chat) return read_flag(r, node, &r->a->logprobs);
    if (lar_json_is(r->j, node, LAR_JSON_FALSE)) return LAR_OK; /* what clients of both endpoints send */
    lar_error e = read_whole(r, node, 0, LAR_LOGPROBS_MAX, &n);
    if (!e) r->a->logprobs = true, r->a->top_logprobs = (uint32_t)n;
    return e;
}

static lar_error read_top_logprobs(reading *r, uint32_t node) {
    int64_t n;
    lar_error e = read_whole(r, node, 0, LAR_LOGPROBS_MAX, &n);
    if (!e) r->a->top_logprobs = (uint32_t)n, r->a->has_top_logprobs = true;
    return e;
}

static lar_error read_tools(reading *r, uint32_t node) {
    if (!lar_json_is(r->j, node, LAR_JSON_ARRAY)) return wrong_type(r, "a list of tools");
    if (r->j->nodes[node].count) r->a->tools = node; /* an empty list is none */
    return LAR_OK;
}

static lar_error read_tool_choice(reading *r, uint32_t node) {
    r->tool_choice = node;
    bool text = lar_json_is(r->j, node, LAR_JSON_STRING);
    if (!text && !lar_json_is(r->j, node, LAR_JSON_OBJECT)) return wrong_type(r, "a text or an object");
    if (lar_json_eq(r->j, node, LAR_SLICE("auto")) || lar_json_eq(r->j, node, LAR_SLICE("none"))) return LAR_OK;
    if (!text || lar_json_eq(r->j, node, LAR_SLICE("required")))
        return lar_refuse(r->no, "tool_choice", LAR_CODE_UNSUPPORTED_VALUE,
                          "tool_choice: this engine cannot force a call; auto and none are supported");
    return wrong_value(r, "auto or none");
}

static lar_error read_response_format(reading *r, uint32_t node) {
    if (!lar_json_is(r->j, node, LAR_JSON_OBJECT)) return wrong_type(r, "an object");
    uint32_t type = lar_json_get_last(r->j, node, "type");
    if (lar_json_eq(r->j, type, LAR_SLICE("text"))) return LAR_OK;
    if (lar_json_eq(r->j, type, LAR_SLICE("json_object")) || lar_json_eq(r->j, type, LAR_SLICE("json_schema")))
        return lar_refuse(r->no, "response_format", LAR_CODE_UNSUPPORTED_VALUE,
                          "response_format: this engine cannot hold an answer to a form; text is supported");
    return wrong_value(r, "an object with the type text");
}

static lar_error read_thinking(reading *r, uint32_t node) {
    if (!lar_json_is(r->j, node, LAR_JSON_OBJECT)) return wrong_type(r, "an object");
    uint32_t type = lar_json_get_last(r->j, node, "type");
    bool on = lar_json_eq(r->j, type, LAR_SLICE("enabled"));
    if (!on && !lar_json_eq(r->j, type, LAR_SLICE("disabled"))) return wrong_value(r, "the type enabled or disabled");
    r->a->thinking = on ? LAR_THINKING_ON : LAR_THINKING_OFF;
    return LAR_OK;
}

static lar_error read_reasoning_effort(reading *r, uint32_t node) {
    static const char *const known[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
    if (!lar_json_is(r->j, node, LAR_JSON_STRING)) return wrong_type(r, "a text");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (lar_json_eq(r->j, node, lar_slice_cstr(known[i]))) {
            (void)snprintf(r->a->effort, sizeof r->a->effort, "%s", known[i]);
            return LAR_OK;
        }
    return wrong_value(r, "none, minimal, low, medium, high, xhigh or max");
}

static lar_error read_chat_template_kwargs(reading *r, uint32_t node) {
    r->a->kwargs = node;
    return lar_json_is(r->j, node, LAR_JSON_OBJECT) ? LAR_OK : wrong_type(r, "an object");
}

static lar_error read_modalities(reading *r, uint32_t node) {
    if (!lar_json_is(r->j, node, LAR_JSON_ARRAY)) return wrong_type(r, "a list");
    for (uint32_t i = lar_json_first(r->j, node); i != LAR_JSON_NONE; i = lar_json_after(r->j, node, i))
        if (!lar_json_eq(r->j, i, LAR_SLICE("text")))
            return lar_refuse(r->no, "modalities", LAR_CODE_UNSUPPORTED_VALUE, "modalities: text alone is supported");
    return LAR_OK;
}

static lar_error read_best_of(reading *r, uint32_t node) {
    int64_t n;
    lar_error e = read_whole(r, node, 1, LAR_JOB_SAMPLES_MAX, &n);
    if (!e) r->a->best_of = (uint32_t)n;
    return e;
}

/* -- the table ----------------------------------------------------------------------------------------------------- */

typedef enum kind { READ, NUMBER, FLAG, IGNORED, REFUSED } kind;

typedef struct field {
    const char *name;
    int where;
    kind kind;
    lar_error (*read)(reading *r, uint32_t node);
    size_t member; /* NUMBER: of lar_sampling; FLAG: of lar_ask */
    double least, most;
} field;

static const field fields[] = {
#define LAR_ASK_READ(name, where, note) {#name, where, READ, read_##name, 0, 0, 0},
#define LAR_ASK_NUMBER(name, where, member, least, most, note)                                                         \
    {#name, where, NUMBER, NULL, offsetof(lar_sampling, member), least, most},
#define LAR_ASK_FLAG(name, where, member, note) {#name, where, FLAG, NULL, offsetof(lar_ask, member), 0, 0},
#define LAR_ASK_IGNORED(name, where, note) {#name, where, IGNORED, NULL, 0, 0, 0},
#define LAR_ASK_REFUSED(name, where, note) {#name, where, REFUSED, NULL, 0, 0, 0},
#include "gateway/serving/ask_field.def"
#undef LAR_ASK_READ
#undef LAR_ASK_NUMBER
#undef LAR_ASK_FLAG
#undef LAR_ASK_IGNORED
#undef LAR_ASK_REFUSED
};

enum { FIELDS = sizeof fields / sizeof *fields };
_Static_assert(sizeof fields / sizeof *fields <= (size_t)FIELDS_MAX, "a bit of `seen` for each");

static lar_error read_number(const reading *r, const field *f, uint32_t node) {
    char range[64];
    double *out = (double *)((char *)&r->a->sampling + f->member), v;
    if (!lar_json_double(r->j, node, &v)) return wrong_type(r, "a number");
    (void)snprintf(range, sizeof range, "a number from %g to %g", f->least, f->most);
    if (!(v >= f->least && v <= f->most)) return wrong_value(r, range);
    *out = v;
    return LAR_OK;
}

static bool says_nothing(const lar_json *j, uint32_t node) {
    double v = 1;
    switch (lar_json_kind_of(j, node)) {
    case LAR_JSON_NULL:
    case LAR_JSON_FALSE: return true;
    case LAR_JSON_TRUE: return false;
    case LAR_JSON_NUMBER: return lar_json_double(j, node, &v) && v == 0;
    case LAR_JSON_STRING: return lar_json_inner(j, node).len == 0;
    default: return j->nodes[node].count == 0;
    }
}

static lar_error read_field(reading *r, const field *f, uint32_t node) {
    r->name = f->name;
    if (lar_json_is(r->j, node, LAR_JSON_NULL)) return LAR_OK;
    switch (f->kind) {
    case READ: return f->read(r, node);
    case NUMBER: return read_number(r, f, node);
    case FLAG: return read_flag(r, node, (bool *)((char *)r->a + f->member));
    case IGNORED: return LAR_OK;
    case REFUSED: break;
    }
    if (says_nothing(r->j, node)) return LAR_OK;
    return lar_refuse(r->no, f->name, LAR_CODE_UNSUPPORTED, "%s is not supported by this engine", f->name);
}

/* The row of a member's name at this endpoint; FIELDS: there is none. */
static uint32_t find_field(const lar_json *j, uint32_t key, int where) {
    for (uint32_t i = 0; i < FIELDS; i++)
        if ((fields[i].where & where) && lar_json_eq(j, key, lar_slice_cstr(fields[i].name))) return i;
    return FIELDS;
}

static lar_error read_fields(reading *r, int where) {
    bool seen[FIELDS_MAX] = {false};
    lar_error e = LAR_OK;
    if (!lar_json_is(r->j, 0, LAR_JSON_OBJECT))
        return lar_refuse(r->no, "", LAR_CODE_TYPE, "the body is no JSON object");
    for (uint32_t k = lar_json_first(r->j, 0); !e && k != LAR_JSON_NONE; k = lar_json_after(r->j, 0, k)) {
        uint32_t i = find_field(r->j, k, where);
        if (i == FIELDS) continue;
        if (seen[i]) return lar_refuse(r->no, fields[i].name, LAR_CODE_VALUE, "%s appears twice", fields[i].name);
        seen[i] = true;
        e = read_field(r, &fields[i], k + 1);
    }
    return e;
}

/* -- together ------------------------------------------------------------------------------------------------------ */

static lar_error missing(const reading *r, const char *name) {
    return lar_refuse(r->no, name, LAR_CODE_MISSING, "%s is missing", name);
}

static lar_error check_tools(const reading *r) {
    const lar_serving *s = r->serving;
    if (r->a->tools == LAR_JSON_NONE) return LAR_OK;
    if (!s->takes_tools)
        return lar_refuse(r->no, "tools", LAR_CODE_UNSUPPORTED, "tools: this model's template has no place for them");
    r->a->calls = r->is_chat && !lar_json_eq(r->j, r->tool_choice, LAR_SLICE("none"));
    if (r->a->calls && s->text.calls == LAR_OUTPUT_FORMAT_NONE)
        return lar_refuse(r->no, "tools", LAR_CODE_UNSUPPORTED,
                          "tools: calls in the form of this model are not read; tool_choice none is possible");
    return LAR_OK;
}

/* "none" is thinking disabled; where there is neither thinking nor a switch there is nothing to disable. */
static lar_error check_thinking(const reading *r) {
    const lar_serving *s = r->serving;
    bool is_none = strcmp(r->a->effort, "none") == 0;
    const char *name = r->a->thinking ? "thinking" : "reasoning_effort";
    if (is_none && r->a->thinking == LAR_THINKING_ON)
        return lar_refuse(r->no, "reasoning_effort", LAR_CODE_VALUE, "reasoning_effort none, but thinking enabled");
    if (is_none) r->a->thinking = LAR_THINKING_OFF;
    bool has_switch = s->text.chat && (lar_template_reads(s->text.chat, "thinking") ||
                                       lar_template_reads(s->text.chat, "enable_thinking"));
    bool off_anyway = r->a->thinking == LAR_THINKING_OFF && !s->thinks;
    if (r->a->thinking == LAR_THINKING_DEFAULT || has_switch || off_anyway) return LAR_OK;
    return lar_refuse(r->no, name, LAR_CODE_UNSUPPORTED, "%s: this model's template has no switch for it", name);
}

static lar_error check_answer(const reading *r) {
    const lar_ask *a = r->a;
    if (!a->model) return missing(r, "model");
    if (a->has_stream_options && !a->stream)
        return lar_refuse(r->no, "stream_options", LAR_CODE_VALUE, "stream_options is for streams");
    if (a->has_top_logprobs && !a->logprobs)
        return lar_refuse(r->no, "top_logprobs", LAR_CODE_VALUE, "top_logprobs is for logprobs: true");
    if (a->echo && a->logprobs)
        return lar_refuse(r->no, "echo", LAR_CODE_UNSUPPORTED_VALUE, "echo with logprobs is not supported");
    if (a->best_of && a->best_of != a->samples)
        return lar_refuse(r->no, "best_of", LAR_CODE_UNSUPPORTED_VALUE, "best_of other than n is not supported");
    return LAR_OK;
}

static lar_error check_together(const reading *r, lar_serving_endpoint endpoint) {
    const lar_ask *a = r->a;
    bool has_prompt = a->prompt != LAR_JSON_NONE, has_messages = a->messages != LAR_JSON_NONE;
    if (endpoint == LAR_SERVING_DETOKENIZE) return a->tokens == LAR_JSON_NONE ? missing(r, "tokens") : LAR_OK;
    if (endpoint == LAR_SERVING_CHAT && !has_messages) return missing(r, "messages");
    if (!has_messages && !has_prompt) return missing(r, "prompt");
    if (has_messages && has_prompt)
        return lar_refuse(r->no, "prompt", LAR_CODE_VALUE, "prompt and messages exclude each other");
    if (has_messages && !r->serving->text.chat)
        return lar_refuse(r->no, "messages", LAR_CODE_UNSUPPORTED,
                          "this model has no chat template; completions continue a text as it stands");
    lar_error e = endpoint == LAR_SERVING_TOKENIZE ? LAR_OK : check_answer(r);
    if (!e) e = check_tools(r);
    return e ? e : check_thinking(r);
}

static void set_defaults(const lar_serving *s, lar_serving_endpoint endpoint, lar_ask *a) {
    uint32_t none = LAR_JSON_NONE;
    *a = (lar_ask){.messages = none, .tools = none, .kwargs = none, .prompt = none, .tokens = none, .samples = 1};
    a->parallel = a->add_generation_prompt = a->add_special = true;
    a->answer_max = endpoint == LAR_SERVING_COMPLETIONS ? 16 : 0;
    a->sampling = s->text.generation.sampling;
    lar_json_init(&a->json);
    lar_buf_init(&a->stop_text, STOP_BYTES_MAX);
}

static int where_of(lar_serving_endpoint endpoint) {
    switch (endpoint) {
    case LAR_SERVING_CHAT: return CHAT;
    case LAR_SERVING_COMPLETIONS: return COMPLETIONS;
    case LAR_SERVING_TOKENIZE: return TOKENIZE;
    case LAR_SERVING_DETOKENIZE: return DETOKENIZE;
    default: return 0;
    }
}

lar_error lar_ask_read(const lar_serving *s, const lar_serving_ask *from, lar_ask *out, lar_refusal *no) {
    const lar_json_limits limits = {.depth_max = LAR_JSON_LIMITS_DEFAULT.depth_max, .nodes_max = NODES_MAX};
    reading r = {.serving = s, .j = &out->json, .a = out, .no = no, .tool_choice = LAR_JSON_NONE};
    lar_diag d = {.text = ""};
    set_defaults(s, from->endpoint, out);
    r.is_chat = from->endpoint == LAR_SERVING_CHAT;
    r.any_model = s->any_model || from->begun; /* what is begun was begun by the model that it names */
    lar_error e = lar_json_parse(&out->json, from->body, &limits, &d);
    if (e == LAR_NO_MEMORY) return e;
    if (e) return lar_refuse_error(no, e, d.text);
    e = read_fields(&r, where_of(from->endpoint));
    if (!e) e = check_together(&r, from->endpoint);
    out->sampling.logprobs = out->top_logprobs;
    if (!(out->sampling.top_p > 0)) out->sampling.top_p = 1e-9; /* one token always stays */
    return e;
}

void lar_ask_release(lar_ask *a) {
    lar_json_release(&a->json);
    lar_buf_release(&a->stop_text);
    free(a->biases);
    a->biases = NULL;
}
