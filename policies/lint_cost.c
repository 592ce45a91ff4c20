/* What a changed place costs: the tokens behind it that the provider reads again.
 * Flow: lint_sight.c asks for the first sighting and the first change of a place; the request is rendered once.
 * Never blocks; memory from the request's arena. Invariant: an estimate (policies/tokens.h), the same for each run. */
#include <stdlib.h>

#include "policies/lint_state.h"
#include "policies/tokens.h"

/* By the name of a model where no provider was chosen: the first row that begins like it. */
static const struct {
    const char *model, *provider;
} models[] = {
    {"deepseek", "deepseek"}, {"gpt-", "openai"},    {"o1", "openai"},       {"o3", "openai"},
    {"o4", "openai"},         {"chatgpt", "openai"}, {"codex", "openai"},    {"claude", "anthropic"},
    {"gemini", "gemini"},     {"qwen", "qwen"},      {"kimi", "moonshot"},   {"moonshot", "moonshot"},
    {"glm", "zhipu"},         {"grok", "xai"},       {"minimax", "minimax"}, {"mistral", "mistral"},
};

const lar_provider *lar_lint_provider(const lar_lint *l, const lar_request_view *v) {
    if (l->options.provider) return l->options.provider;
    lar_slice model = lar_json_inner(v->json, v->model);
    const char *vendor = model.len ? memchr(model.ptr, '/', model.len) : NULL; /* "anthropic/claude-..." */
    if (vendor) model = lar_slice_of(vendor + 1, model.len - (size_t)(vendor + 1 - model.ptr));
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        if (lar_slice_starts_i(model, lar_slice_cstr(models[i].model)))
            return lar_provider_find(lar_slice_cstr(models[i].provider));
    }
    bool anthropic = v->protocol == LAR_PROTOCOL_MESSAGES && v->model == LAR_JSON_NONE;
    return lar_provider_find(anthropic ? LAR_SLICE("anthropic") : LAR_SLICE("deepseek"));
}

/* Tokens in front of each piece, and which piece shows which value first. */
static lar_error read_rendering(lar_lint_run *run) {
    lar_lint_cost *c = &run->cost;
    c->read = true;
    lar_error e = lar_render_request(&c->rendering, run->view, c->provider->order, run->arena);
    if (e) return e;
    c->tokens = lar_arena_alloc(run->arena, (c->rendering.count + 1) * sizeof *c->tokens);
    c->piece = lar_arena_alloc(run->arena, run->json->count * sizeof *c->piece);
    if (!c->tokens || !c->piece) return LAR_NO_MEMORY;
    memset(c->piece, 0xff, run->json->count * sizeof *c->piece);
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < c->rendering.count; i++) {
        const lar_render_piece *p = &c->rendering.pieces[i];
        c->tokens[i] = tokens;
        tokens += lar_token_count(p->text);
        if (p->node < run->json->count && p->kind != LAR_PIECE_TEMPLATE && c->piece[p->node] == LAR_JSON_NONE)
            c->piece[p->node] = i;
    }
    c->tokens[c->rendering.count] = tokens;
    c->usable = true;
    return LAR_OK;
}

/* The first piece that shows `node` or something inside it; NONE if nothing does. */
static uint32_t piece_of(const lar_lint_run *run, uint32_t node) {
    uint32_t first = LAR_JSON_NONE;
    for (uint32_t i = node; i < run->json->nodes[node].next; i++) {
        if (run->cost.piece[i] < first) first = run->cost.piece[i];
    }
    return first;
}

/* Tokens of the value in front of body offset `start`. */
static bool tokens_inside(const lar_lint_run *run, uint32_t node, uint32_t start, uint64_t *tokens) {
    uint32_t from = run->json->nodes[node].start + 1;
    size_t raw = lar_json_inner(run->json, node).len;
    *tokens = 0;
    if (start <= from) return true;
    size_t len = start - from < raw ? start - from : raw;
    char *text = malloc(len + 1);
    if (!text) return false;
    size_t decoded = lar_text_decode(lar_slice_of(run->json->body.ptr + from, len), text);
    *tokens = lar_token_count(lar_slice_of(text, decoded));
    free(text);
    return true;
}

bool lar_lint_cost_of(lar_lint_run *run, uint32_t node, uint32_t start, uint64_t *tokens) {
    lar_lint_cost *c = &run->cost;
    if ((!c->read && read_rendering(run)) || !c->usable) return false;
    uint32_t i = piece_of(run, node);
    if (i == LAR_JSON_NONE) return false; /* a field beside the prompt */
    const lar_render_piece *p = &c->rendering.pieces[i];
    uint64_t before = c->tokens[i], inside = 0, all = c->tokens[c->rendering.count];
    if (p->node == node && p->kind == LAR_PIECE_STRING && !tokens_inside(run, node, start, &inside)) return false;
    before += inside;
    uint32_t least = lar_provider_tokens_min(c->provider, lar_json_inner(run->json, run->view->model));
    uint64_t step = c->provider->step_tokens ? c->provider->step_tokens : 1;
    uint64_t cached = before < least ? 0 : before - before % step;
    *tokens = all > cached ? all - cached : 0;
    return true;
}
