/* The prefix cache of the demo upstream: one of three hosted APIs', as policies/cachesim.h simulates them on
 * pseudo-tokens (policies/tokens.h), or none. */
#ifndef LARDER_TESTS_DEMO_CACHE_H
#define LARDER_TESTS_DEMO_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

typedef enum demo_rule { DEMO_RULE_NONE, DEMO_RULE_DEEPSEEK, DEMO_RULE_OPENAI, DEMO_RULE_VLLM16 } demo_rule;

typedef struct demo_usage {
    uint64_t prompt, hit, output; /* tokens; hit <= prompt */
} demo_usage;

/* False if the name is unknown. */
bool demo_rule_find(const char *name, demo_rule *out);
/* DeepSeek's template prints the system text before the tools; the others print the tools first. */
bool demo_rule_system_first(demo_rule rule);

typedef struct demo_cache demo_cache;
demo_cache *demo_cache_new(demo_rule rule);
void demo_cache_free(demo_cache *c);
/* Forgets all. */
void demo_cache_reset(demo_cache *c);
/* One request: what the cache served of `prompt`, and what it keeps of prompt and answer. Both are borrowed. */
demo_usage demo_cache_request(demo_cache *c, lar_slice prompt, lar_slice answer);

#endif
