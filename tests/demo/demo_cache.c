/* The demo upstream's cache: its rules by name, over the simulators that `larder replay` uses too.
 *
 * Called by the demo upstream, once a completion. One thread; never blocks.
 * Why one implementation: a replay that counts otherwise than the upstream of the tests would show nothing. What a
 * rule must count is held by test_demo_cache.c, by hand, and by the comparison with a reference in another language.
 * Memory: the cache owns its simulator and its prompt; out of memory ends the program, which a test tool may do. */
#include "demo_cache.h"

#include <stdlib.h>

#include "policies/cachesim.h"

struct demo_cache {
    demo_rule rule;
    lar_cachesim *sim; /* NULL: no cache */
    lar_prompt prompt;
};

static const struct {
    const char *name, *provider;
} rules[] = {{"none", NULL}, {"deepseek", "deepseek"}, {"openai", "openai"}, {"vllm16", "vllm"}};

bool demo_rule_find(const char *name, demo_rule *out) {
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (strcmp(name, rules[i].name) != 0) continue;
        *out = (demo_rule)i;
        return true;
    }
    return false;
}

static const lar_provider *provider_of(demo_rule rule) {
    return lar_provider_find(lar_slice_cstr(rules[rule].provider));
}

bool demo_rule_system_first(demo_rule rule) {
    return rule != DEMO_RULE_NONE && provider_of(rule)->order == LAR_RENDER_SYSTEM_FIRST;
}

demo_cache *demo_cache_new(demo_rule rule) {
    demo_cache *c = calloc(1, sizeof *c);
    if (!c) abort();
    c->rule = rule;
    lar_prompt_init(&c->prompt);
    if (rule == DEMO_RULE_NONE) return c;
    lar_cachesim_options o = {.provider = provider_of(rule), .no_ttl = true};
    c->sim = lar_cachesim_new(&o);
    if (!c->sim) abort();
    return c;
}

void demo_cache_free(demo_cache *c) {
    if (!c) return;
    lar_cachesim_free(c->sim);
    lar_prompt_release(&c->prompt);
    free(c);
}

void demo_cache_reset(demo_cache *c) {
    if (c->sim) lar_cachesim_reset(c->sim);
}

demo_usage demo_cache_request(demo_cache *c, lar_slice prompt, lar_slice answer) {
    if (!c->sim) return (demo_usage){.prompt = prompt.len / 4 + 1, .output = answer.len / 4 + 1};
    lar_cachesim_usage u;
    if (lar_prompt_set_text(&c->prompt, 0, prompt) || lar_prompt_add_text(&c->prompt, answer)) abort();
    if (lar_cachesim_request(c->sim, &c->prompt, provider_of(c->rule)->tokens_min, 0, &u)) abort();
    return (demo_usage){u.prompt, u.hit, c->prompt.whole - c->prompt.tokens};
}
