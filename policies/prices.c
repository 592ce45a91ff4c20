/* What providers ask for a million tokens, and the sums made from it. Pure; any thread; no memory.
 * Flow: gateway/commands looks a model up and adds; nobody else. Why here: a price without its source and its date is
 * a rumour, so every row carries both; a model without a row has no price, never a price of 0.
 * Invariants: 1. longest name wins; a dated snapshot ("-2026-04-01", "-20260401") or "-latest" has its model's price.
 * 2. Parts never exceed the whole: hits are clamped to the prompt, writes to what is left of it.
 * Rows are standard on-demand prices at the lowest tier of prompt length and time of day: sums are estimates. */
#include "policies/price.h"

#define DEEPSEEK "api-docs.deepseek.com/quick_start/pricing, off-peak (peak hours cost twice as much)"
#define ANTHROPIC "platform.claude.com/docs/en/about-claude/pricing, writes for 5 minutes"
#define ANTHROPIC_QUOTED                                                                                               \
    "platform.claude.com/docs/en/about-claude/pricing as price lists quote it, writes for 5 minutes"
#define OPENAI "developers.openai.com/api/docs/pricing as price lists quote it, standard, short context"
#define COPILOT "docs.github.com copilot models-and-pricing (provider list prices)"
#define MOONSHOT "platform.kimi.ai/docs/pricing/chat"

static const lar_price rows[] = {
    /* model, input, hit, write, output, source, the date it gives or was read at */
    {"deepseek-flash", 0.15, 0.003, 0.15, 0.60, DEEPSEEK, "2026-10-27"},
    {"deepseek-v4-flash", 0.15, 0.003, 0.15, 0.60, DEEPSEEK, "2026-10-27"},
    {"deepseek-v4-flash-vision-exp", 0.15, 0.003, 0.15, 0.60, DEEPSEEK, "2026-10-27"},
    {"deepseek-v4-pro", 0.66, 0.022, 0.66, 1.98, DEEPSEEK, "2026-10-27"},
    /* Names that were served by V4 Flash until they were retired on 2026-07-24; the price of that time. */
    {"deepseek-chat", 0.14, 0.0028, 0.14, 0.28, "api-docs.deepseek.com/quick_start/pricing, V4 Flash before 2026-08-16",
     "2026-08-13"},
    {"deepseek-reasoner", 0.14, 0.0028, 0.14, 0.28,
     "api-docs.deepseek.com/quick_start/pricing, V4 Flash before 2026-08-16", "2026-08-13"},

    {"gpt-6-sol", 2.00, 0.20, 2.50, 10.00, OPENAI, "2026-09-22"},
    {"gpt-6-luna", 0.10, 0.01, 0.125, 0.50, OPENAI, "2026-09-22"},
    {"gpt-6.1-terra", 1.00, 0.05, 1.25, 5.00, OPENAI, "2026-10-26"},
    {"gpt-5.6", 5.00, 0.50, 6.25, 30.00, OPENAI, "2026-08-19"},
    {"gpt-5.6-sol", 5.00, 0.50, 6.25, 30.00, OPENAI, "2026-08-19"},
    {"gpt-5.6-terra", 2.00, 0.20, 2.50, 12.00, COPILOT, "2026-11 (read)"},
    {"gpt-5.6-luna", 0.20, 0.02, 0.25, 1.20, COPILOT, "2026-11 (read)"},
    {"gpt-5.5", 5.00, 0.50, 5.00, 30.00, COPILOT, "2026-11 (read)"},
    {"gpt-5.4", 2.50, 0.25, 2.50, 15.00, COPILOT, "2026-11 (read)"},
    {"gpt-5.4-mini", 0.75, 0.075, 0.75, 4.50, COPILOT, "2026-11 (read)"},
    {"gpt-5.4-nano", 0.20, 0.02, 0.20, 1.25, COPILOT, "2026-11 (read)"},
    {"gpt-5.3-codex", 1.75, 0.175, 1.75, 14.00, COPILOT, "2026-11 (read)"},
    {"gpt-5-mini", 0.25, 0.025, 0.25, 2.00, COPILOT, "2026-11 (read)"},

    {"claude-fable-5-1", 10.00, 0.25, 12.50, 50.00, ANTHROPIC, "2026-11 (read)"},
    {"claude-mythos-5-1", 10.00, 0.25, 12.50, 50.00, ANTHROPIC, "2026-11 (read)"},
    {"claude-fable-5", 10.00, 1.00, 12.50, 50.00, ANTHROPIC, "2026-11 (read)"},
    {"claude-mythos-5", 10.00, 1.00, 12.50, 50.00, ANTHROPIC, "2026-11 (read)"},
    {"claude-opus-5", 5.00, 0.50, 6.25, 25.00, ANTHROPIC, "2026-11 (read)"},
    {"claude-opus-4-8", 5.00, 0.50, 6.25, 25.00, ANTHROPIC, "2026-11 (read)"},
    {"claude-opus-4-7", 5.00, 0.50, 6.25, 25.00, ANTHROPIC, "2026-11 (read)"},
    {"claude-opus-4-6", 5.00, 0.50, 6.25, 25.00, ANTHROPIC, "2026-11 (read)"},
    {"claude-opus-4-5", 5.00, 0.50, 6.25, 25.00, ANTHROPIC, "2026-11 (read)"},
    {"claude-opus-4-1", 15.00, 1.50, 18.75, 75.00, ANTHROPIC, "2026-11 (read)"},
    {"claude-sonnet-5-5", 2.00, 0.10, 2.50, 10.00, ANTHROPIC_QUOTED, "2026-10-24"},
    {"claude-sonnet-5", 2.00, 0.20, 2.50, 10.00, ANTHROPIC, "2026-11 (read)"},
    {"claude-sonnet-4-6", 3.00, 0.30, 3.75, 15.00, COPILOT, "2026-11 (read)"},
    {"claude-sonnet-4-5", 3.00, 0.30, 3.75, 15.00, COPILOT, "2026-11 (read)"},
    {"claude-sonnet-4", 3.00, 0.30, 3.75, 15.00, COPILOT, "2026-11 (read)"},
    {"claude-haiku-5-5", 0.10, 0.01, 0.125, 0.50, ANTHROPIC_QUOTED, "2026-10-24"},
    {"claude-haiku-4-5", 1.00, 0.10, 1.25, 5.00, COPILOT, "2026-11 (read)"},

    {"kimi-k3", 3.00, 0.30, 3.00, 15.00, MOONSHOT "-k3", "2026-07-18"},
    {"kimi-k2.7-code", 0.95, 0.19, 0.95, 4.00, COPILOT, "2026-11 (read)"},
    {"kimi-k2-thinking", 0.60, 0.15, 0.60, 2.50, "lava.so/docs/reference/providers/moonshot", "2026-11 (read)"},
    {"kimi-k2-turbo-preview", 1.15, 0.15, 1.15, 8.00, "lava.so/docs/reference/providers/moonshot", "2026-11 (read)"},
};

enum { ROWS = sizeof rows / sizeof *rows, DATE_DIGITS = 8 };

/* "-latest", or a date: eight digits, with or without dashes between, beginning with 20. */
static bool is_snapshot(lar_slice tail) {
    if (lar_slice_eq_cstr(tail, "-latest")) return true;
    if (!lar_slice_starts(tail, LAR_SLICE("-20"))) return false;
    int digits = 0;
    for (size_t i = 1; i < tail.len; i++) {
        if (tail.ptr[i] >= '0' && tail.ptr[i] <= '9') digits++;
        else if (tail.ptr[i] != '-' || (i != 5 && i != 8)) return false;
    }
    return digits == DATE_DIGITS;
}

static bool row_matches(lar_slice name, lar_slice model) {
    if (name.len && name.ptr[name.len - 1] == '*') return lar_slice_starts(model, lar_slice_of(name.ptr, name.len - 1));
    return lar_slice_starts(model, name) &&
           (model.len == name.len || is_snapshot(lar_slice_of(model.ptr + name.len, model.len - name.len)));
}

const lar_price *lar_price_find(lar_slice model) {
    const lar_price *best = NULL;
    size_t best_len = 0;
    for (unsigned i = 0; i < ROWS; i++) {
        lar_slice name = lar_slice_cstr(rows[i].model);
        if (name.len < best_len || !row_matches(name, model)) continue;
        best = &rows[i];
        best_len = name.len;
    }
    return best;
}

double lar_price_cost(const lar_price *p, uint64_t prompt, uint64_t hit, uint64_t write, uint64_t output) {
    if (hit > prompt) hit = prompt;
    if (write > prompt - hit) write = prompt - hit;
    uint64_t plain = prompt - hit - write;
    return ((double)plain * p->input + (double)hit * p->hit + (double)write * p->write + (double)output * p->output) /
           1e6;
}

double lar_price_saved(const lar_price *p, uint64_t hit) {
    return p->input > p->hit ? (double)hit * (p->input - p->hit) / 1e6 : 0;
}

const lar_price *lar_price_rows(uint32_t *count) {
    *count = ROWS;
    return rows;
}
