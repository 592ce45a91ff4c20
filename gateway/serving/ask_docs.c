/* Prints docs/engine-api.md: the page's text, and ask_field.def as tables.
 * Called by the target `docs` and the test that compares. Any thread; never blocks. */
#include "gateway/serving/ask_docs.h"

static const char page_head[] =
    "# The engine's API\n"
    "\n"
    "<!-- Generated from gateway/serving/ask_field.def by the target `docs`; edit that. -->\n"
    "\n"
    "What a model on this machine answers to, in the form of OpenAI's API: [howto/serve-a-model.md](howto/serve-a-model.md)\n"
    "says how to start one.\n"
    "\n"
    "| request | answer |\n"
    "|---|---|\n"
    "| `POST /v1/chat/completions` | `chat.completion`, or events of `chat.completion.chunk`; `reasoning_content` as in "
    "DeepSeek's API |\n"
    "| `POST /v1/completions` | `text_completion`; a choice for each prompt and each of `n` |\n"
    "| `GET /v1/models`, `GET /v1/models/{id}` | the one model, with `max_model_len` |\n"
    "| `POST /tokenize` | as vLLM: `count`, `max_model_len`, `tokens`, `token_strs`; of a `prompt` or of `messages` |\n"
    "| `POST /detokenize` | as vLLM: `prompt` of `tokens` |\n"
    "\n"
    "A field that larder knows and cannot do, a wrong type and a value out of range are a 400 whose `param` names it; `null`\n"
    "is as absent; a known field that appears twice is refused. Fields that are in none of these tables are ignored, as\n"
    "OpenAI's servers and vLLM do.\n"
    "\n"
    "- **Prompts are never cut.** One that leaves no room for an answer, or less than `max_tokens`, is a 400\n"
    "  `context_length_exceeded` with both numbers; one with more bytes than so many tokens can have is refused by its\n"
    "  bytes, before it is made tokens of.\n"
    "- **Text of a message, a tool or a variable never becomes a special token.** A completions prompt is the caller's own,\n"
    "  and its special tokens are read.\n"
    "- **`usage`** adds up over all choices; a prompt counts once whatever `n` is. Tokens of the prompt that were kept from\n"
    "  earlier requests are `prompt_tokens_details.cached_tokens` and `prompt_cache_hit_tokens`, the rest is\n"
    "  `prompt_cache_miss_tokens`.\n"
    "- **`cache_control`** on a part, a message or a tool, in Anthropic's form, at most four: the prefix up to there stays\n"
    "  for the time that the server is set to (`ttl` is read and changes nothing).\n"
    "- **`logprobs`** are those of the model's own distribution, before sampling changes it, and of the tokens whose text is\n"
    "  told: what a stop string cuts off has none. A token that is no whole character is written as `\\xe2\\x9c`; `bytes` has\n"
    "  its bytes.\n"
    "- **`finish_reason`** is `tool_calls` where the answer has whole calls and ended by itself. In a stream arguments come as\n"
    "  the model writes them; in one body a call that is not whole, or whose arguments are no JSON object, is text.\n"
    "- **Too many requests** are a 503 with `Retry-After`. An error in the middle of a stream is an event with `error`, and no\n"
    "  `[DONE]` follows.\n"
    "\n"
    "In the tables, *c* is chat completions, *t* (text) completions, *k* tokenize, *d* detokenize.\n";

typedef struct row {
    const char *treatment, *name, *where, *note;
} row;

static const row rows[] = {
#define LAR_ASK_READ(name, where, note) {"taken", #name, #where, note},
#define LAR_ASK_NUMBER(name, where, member, least, most, note) {"taken", #name, #where, #least " to " #most ". " note},
#define LAR_ASK_FLAG(name, where, member, note) {"taken", #name, #where, note},
#define LAR_ASK_IGNORED(name, where, note) {"ignored", #name, #where, note},
#define LAR_ASK_REFUSED(name, where, note) {"refused", #name, #where, note},
#include "gateway/serving/ask_field.def"
#undef LAR_ASK_READ
#undef LAR_ASK_NUMBER
#undef LAR_ASK_FLAG
#undef LAR_ASK_IGNORED
#undef LAR_ASK_REFUSED
};

static const char *letters_of(lar_slice where) {
    static const char *const names[][2] = {
        {"CHAT", "c"},      {"COMPLETIONS", "t"}, {"BOTH", "c t"},          {"TOKENIZE", "k"},
        {"ALL", "c t k d"}, {"DETOKENIZE", "d"},  {"CHAT_TOKENIZE", "c k"}, {"COMPLETIONS_TOKENIZE", "t k"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (lar_slice_eq_cstr(where, names[i][0])) return names[i][1];
    return "";
}

static lar_error table(lar_buf *out, const char *treatment, const char *head) {
    lar_error e = lar_buf_printf(out, "\n## %s\n\n| field | at | |\n|---|---|---|\n", head);
    for (size_t i = 0; !e && i < sizeof rows / sizeof *rows; i++)
        if (lar_slice_eq_cstr(lar_slice_cstr(treatment), rows[i].treatment))
            e = lar_buf_printf(out, "| `%s` | %s | %s |\n", rows[i].name, letters_of(lar_slice_cstr(rows[i].where)),
                               rows[i].note);
    return e;
}

lar_error lar_ask_markdown(lar_buf *out) {
    lar_error e = lar_buf_add_slice(out, lar_slice_cstr(page_head));
    if (!e) e = table(out, "taken", "Taken");
    if (!e) e = table(out, "ignored", "Read and without effect");
    return e ? e : table(out, "refused", "Refused, unless null, false, 0 or empty");
}
