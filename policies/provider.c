/* The rows of providers and their caches (header: provider.h). Pure; any thread; no memory.
 * Flow: the gateway's profiles, the linter, the explainer and the simulator look a row up by name.
 * Why here: a rule of a cache without its source and its date is a rumour, so every row carries both.
 * Invariants: 1. names are unique and lower case. 2. What nobody states is 0 (or below 0 for a price), never a guess.
 * Not here: prices by model (prices.c), how usage is spelled (gateway/usage), the simulation (cachesim.c). */
#include "policies/provider.h"

#include <string.h>

#include "base/ensure.h"

#define READ "2026-11 (read)"

static const lar_provider rows[] = {
    {.name = "generic",
     .rule = LAR_CACHE_STEPS,
     .order = LAR_RENDER_TOOLS_FIRST,
     .step_tokens = 1,
     .hit_ratio = -1,
     .write_ratio = -1,
     .note = "nothing is known: any common prefix counts",
     .source = "none",
     .date = READ},
    {.name = "deepseek",
     .rule = LAR_CACHE_UNITS,
     .order = LAR_RENDER_SYSTEM_FIRST,
     .step_tokens = 128,
     .ttl_s = 3600,
     .hit_ratio = 0.02,
     .write_ratio = 1,
     .note = "units end with the input, with the answer, at a prefix found common to two requests and at intervals; "
             "unused ones go after hours to days; built within seconds; user_id separates caches",
     .source = "api-docs.deepseek.com/guides/kv_cache; order and step as measured in public threads",
     .date = READ},
    {.name = "openai",
     .rule = LAR_CACHE_STEPS,
     .order = LAR_RENDER_TOOLS_FIRST,
     .tokens_min = 1024,
     .step_tokens = 128,
     .ttl_s = 300,
     .ttl_max_s = 3600,
     .hit_ratio = 0.1,
     .write_ratio = 1,
     .note = "idle entries go after 5 to 10 minutes, all within an hour; prompt_cache_retention keeps them for 24 h; "
             "from GPT-5.6 on writes cost 1.25 and entries live 30 minutes at least",
     .source = "developers.openai.com/api/docs/guides/prompt-caching",
     .date = READ},
    {.name = "azure",
     .rule = LAR_CACHE_STEPS,
     .order = LAR_RENDER_TOOLS_FIRST,
     .tokens_min = 1024,
     .step_tokens = 128,
     .ttl_s = 300,
     .ttl_max_s = 3600,
     .hit_ratio = 0.1,
     .write_ratio = 1,
     .note = "as OpenAI; provisioned deployments may read for free",
     .source = "learn.microsoft.com/azure/ai-foundry prompt caching",
     .date = READ},
    {.name = "anthropic",
     .rule = LAR_CACHE_BREAKPOINTS,
     .order = LAR_RENDER_TOOLS_FIRST,
     .tokens_min = 1024,
     .step_tokens = 1,
     .ttl_s = 300,
     .ttl_max_s = 300,
     .breakpoints_max = 4,
     .lookback_blocks = 20,
     .hit_ratio = 0.1,
     .write_ratio = 1.25,
     .note =
         "refreshed by each read, from the start of the request; with ttl 1h an hour at a write price of 2; readable "
         "once the first answer begins",
     .source = "platform.claude.com/docs/en/build-with-claude/prompt-caching",
     .date = READ},
    {.name = "bedrock",
     .rule = LAR_CACHE_BREAKPOINTS,
     .order = LAR_RENDER_TOOLS_FIRST,
     .tokens_min = 1024,
     .step_tokens = 1,
     .ttl_s = 300,
     .ttl_max_s = 300,
     .breakpoints_max = 4,
     .lookback_blocks = 20,
     .hit_ratio = 0.1,
     .write_ratio = 1.25,
     .note = "cachePoint in Converse, cache_control for Claude",
     .source = "docs.aws.amazon.com/bedrock prompt-caching",
     .date = READ},
    {.name = "gemini",
     .rule = LAR_CACHE_STEPS,
     .order = LAR_RENDER_TOOLS_FIRST,
     .tokens_min = 1024,
     .step_tokens = 1,
     .hit_ratio = 0.1,
     .write_ratio = 1,
     .note = "the implicit cache, whose steps and life are not stated; 2.0 models read at 0.25",
     .source = "ai.google.dev/gemini-api/docs/caching",
     .date = READ},
    {.name = "qwen",
     .rule = LAR_CACHE_STEPS,
     .order = LAR_RENDER_TOOLS_FIRST,
     .tokens_min = 1024,
     .step_tokens = 1,
     .hit_ratio = 0.2,
     .write_ratio = 1,
     .note =
         "the implicit cache, which promises nothing; with cache_control: 4 marks, 20 blocks looked back, 5 minutes, "
         "read at 0.1, written at 1.25; where tools stand is not stated",
     .source = "help.aliyun.com/model-studio context cache",
     .date = READ},
    {.name = "moonshot",
     .rule = LAR_CACHE_STEPS,
     .order = LAR_RENDER_SYSTEM_FIRST,
     .tokens_min = 256,
     .step_tokens = 256,
     .ttl_s = 300,
     .ttl_max_s = 1800,
     .hit_ratio = 0.25,
     .write_ratio = 1,
     .note = "an exact repetition hits at any length; where tools stand is not stated",
     .source = "platform.kimi.ai/docs/pricing/chat; steps and life as measured in public notes",
     .date = READ},
    {.name = "zhipu",
     .rule = LAR_CACHE_STEPS,
     .order = LAR_RENDER_TOOLS_FIRST,
     .step_tokens = 1,
     .hit_ratio = -1,
     .write_ratio = 1,
     .note = "implicit; length, steps, life and order are not stated",
     .source = "docs.bigmodel.cn context cache",
     .date = READ},
    {.name = "xai",
     .rule = LAR_CACHE_STEPS,
     .order = LAR_RENDER_TOOLS_FIRST,
     .tokens_min = 128,
     .step_tokens = 128,
     .hit_ratio = 0.25,
     .write_ratio = 1,
     .note = "may be dropped at any time; x-grok-conv-id or prompt_cache_key keep a conversation on one machine; "
             "where tools stand is not stated",
     .source = "docs.x.ai prompt caching; steps as measured in public notes",
     .date = READ},
    {.name = "minimax",
     .rule = LAR_CACHE_STEPS,
     .order = LAR_RENDER_SYSTEM_FIRST,
     .tokens_min = 512,
     .step_tokens = 1,
     .hit_ratio = -1,
     .write_ratio = 1,
     .note = "its page lists system, tools, messages; steps and life are not stated",
     .source = "platform.minimax.io prompt caching",
     .date = READ},
    {.name = "mistral",
     .rule = LAR_CACHE_STEPS,
     .order = LAR_RENDER_TOOLS_FIRST,
     .step_tokens = 1,
     .hit_ratio = 0.1,
     .write_ratio = 1,
     .note = "prompt_cache_key keeps a conversation together; length, steps, life and order are not stated",
     .source = "docs.mistral.ai prompt caching",
     .date = READ},
    {.name = "openrouter",
     .rule = LAR_CACHE_STEPS,
     .order = LAR_RENDER_TOOLS_FIRST,
     .step_tokens = 1,
     .ttl_s = 600,
     .hit_ratio = -1,
     .write_ratio = -1,
     .note =
         "the rules are those of the provider behind it; a conversation stays with one endpoint for 10 idle minutes",
     .source = "openrouter.ai/docs prompt caching",
     .date = READ},
    {.name = "vllm",
     .rule = LAR_CACHE_BLOCKS,
     .order = LAR_RENDER_TOOLS_FIRST,
     .tokens_min = 16,
     .step_tokens = 16,
     .hit_ratio = -1,
     .write_ratio = -1,
     .note = "least recently used blocks go first; the chat template decides the order; cache_salt separates caches",
     .source = "docs.vllm.ai/en/latest/design/prefix_caching",
     .date = READ},
    {.name = "sglang",
     .rule = LAR_CACHE_STEPS,
     .order = LAR_RENDER_TOOLS_FIRST,
     .tokens_min = 1,
     .step_tokens = 1,
     .hit_ratio = -1,
     .write_ratio = -1,
     .note = "a tree of tokens; least recently used first out; the chat template decides the order",
     .source = "docs.sglang.ai radix attention",
     .date = READ},
    {.name = "larder",
     .rule = LAR_CACHE_BLOCKS,
     .order = LAR_RENDER_TOOLS_FIRST,
     .tokens_min = 64,
     .step_tokens = 64,
     .hit_ratio = -1,
     .write_ratio = -1,
     .note = "the embedded engine: whole pages of 64 tokens, never the whole prompt; the least recently used go first, "
             "those that cache_control marks last; the chat template decides the order; each tenant has its own",
     .source = "engine/cache/prefix_cache.h",
     .date = READ},
    {.name = "llamacpp",
     .rule = LAR_CACHE_STEPS,
     .order = LAR_RENDER_TOOLS_FIRST,
     .tokens_min = 1,
     .step_tokens = 1,
     .hit_ratio = -1,
     .write_ratio = -1,
     .note = "the longest common prefix of a slot; more conversations than slots push each other out",
     .source = "github.com/ggml-org/llama.cpp server README",
     .date = READ},
};

enum { ROWS = sizeof rows / sizeof *rows };

/* Minimum lengths that go by model. The longest name that begins the model's counts. */
static const struct {
    const char *provider, *model;
    uint32_t tokens_min;
} minimums[] = {
    {"anthropic", "claude-opus-5", 512},     {"anthropic", "claude-fable-5-1", 512},
    {"anthropic", "claude-mythos-5-1", 512}, {"anthropic", "claude-opus-4-8", 1024},
    {"anthropic", "claude-opus-4-7", 2048},  {"anthropic", "claude-opus-4-6", 4096},
    {"anthropic", "claude-opus-4-5", 4096},  {"anthropic", "claude-opus-4-1", 1024},
    {"anthropic", "claude-opus-4", 1024},    {"anthropic", "claude-sonnet-5", 1024},
    {"anthropic", "claude-sonnet-4", 1024},  {"anthropic", "claude-haiku-4-5", 4096},
    {"anthropic", "claude-3-5-haiku", 2048}, {"anthropic", "claude-haiku-3-5", 2048},
    {"gemini", "gemini-2-5-flash", 1024},    {"gemini", "gemini-3-flash", 1024},
    {"gemini", "gemini-2-5-pro", 4096},      {"gemini", "gemini-3-pro", 4096},
};

enum { MINIMUMS = sizeof minimums / sizeof *minimums };

static const char *const rule_names[] = {
    [LAR_CACHE_BLOCKS] = "blocks",
    [LAR_CACHE_STEPS] = "steps",
    [LAR_CACHE_UNITS] = "units",
    [LAR_CACHE_BREAKPOINTS] = "breakpoints",
};

const char *lar_cache_rule_name(lar_cache_rule r) {
    LAR_ASSERT((unsigned)r < sizeof rule_names / sizeof *rule_names);
    return rule_names[r];
}

const lar_provider *lar_provider_find(lar_slice name) {
    for (unsigned i = 0; i < ROWS; i++)
        if (lar_slice_ieq(name, lar_slice_cstr(rows[i].name))) return &rows[i];
    return NULL;
}

const lar_provider *lar_provider_rows(uint32_t *count) {
    *count = ROWS;
    return rows;
}

static bool same_provider(const lar_provider *p, const char *name) {
    /* Bedrock serves Anthropic's models under Anthropic's rules. */
    return strcmp(p->name, name) == 0 || (strcmp(p->name, "bedrock") == 0 && strcmp(name, "anthropic") == 0);
}

/* "claude-opus-4.5" begins with "claude-opus-4-5". */
static bool begins(lar_slice model, const char *with) {
    size_t n = strlen(with);
    if (model.len < n) return false;
    for (size_t i = 0; i < n; i++)
        if ((model.ptr[i] == '.' ? '-' : model.ptr[i]) != with[i]) return false;
    return true;
}

/* Without what stands in front of the model's own name. */
static lar_slice own_name(lar_slice model) {
    for (size_t i = model.len; i > 0; i--)
        if (model.ptr[i - 1] == '/') return lar_slice_of(model.ptr + i, model.len - i);
    const char *at = model.len ? memmem(model.ptr, model.len, "anthropic.", 10) : NULL;
    if (!at) return model;
    return lar_slice_of(at + 10, model.len - (size_t)(at + 10 - model.ptr));
}

uint32_t lar_provider_tokens_min(const lar_provider *p, lar_slice model) {
    uint32_t best = p->tokens_min;
    size_t best_len = 0;
    model = own_name(model);
    for (unsigned i = 0; i < MINIMUMS; i++) {
        size_t n = strlen(minimums[i].model);
        if (n <= best_len || !same_provider(p, minimums[i].provider) || !begins(model, minimums[i].model)) continue;
        best = minimums[i].tokens_min;
        best_len = n;
    }
    return best;
}
