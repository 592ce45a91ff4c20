/* What is known of each provider's prefix cache, one row a provider, with source and date: in which order a request
 * is printed in front of the model, what length a prefix must have, in what steps it counts, how long it lives, what it
 * costs. The linter, the explainer, the simulator and the profiles of the gateway all read these rows. */
#ifndef LARDER_POLICIES_PROVIDER_H
#define LARDER_POLICIES_PROVIDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

/* Where the tools stand in what the model reads. Messages come last with all of them. */
typedef enum lar_render_order { LAR_RENDER_TOOLS_FIRST, LAR_RENDER_SYSTEM_FIRST } lar_render_order;

/* How a provider finds a known prefix. */
typedef enum lar_cache_rule {
    LAR_CACHE_BLOCKS,     /* whole blocks of `step_tokens`, from the first token on */
    LAR_CACHE_STEPS,      /* the longest known prefix of at least `tokens_min`, in steps of `step_tokens` */
    LAR_CACHE_UNITS,      /* stored units, each must fit whole; counted in steps of `step_tokens` */
    LAR_CACHE_BREAKPOINTS /* up to marks that the client sets, or one at the end */
} lar_cache_rule;
/* "blocks", "steps", "units", "breakpoints"; static text. */
const char *lar_cache_rule_name(lar_cache_rule r);

typedef struct lar_provider {
    const char *name; /* "deepseek" */
    lar_cache_rule rule;
    lar_render_order order;
    uint32_t tokens_min;  /* shortest prefix that is cached; lar_provider_tokens_min knows it by model */
    uint32_t step_tokens; /* hits are multiples of it; 1: by token, or not known */
    uint32_t ttl_s;       /* an entry that is not used lives that long; 0 = nothing is promised */
    uint32_t ttl_max_s;   /* and is gone after that; 0 = not stated */
    uint32_t breakpoints_max, lookback_blocks; /* BREAKPOINTS: marks a request, content blocks looked back; else 0 */
    double hit_ratio, write_ratio; /* price of a token read from the cache, or written to it, against one of plain
                                      input; less than 0 = not known. A model's own row in policies/price.h wins. */
    const char *note;         /* what the numbers leave out */
    const char *source, *date; /* of the row; the date it gives or was read at */
} lar_provider;

/* By name, case aside; NULL if unknown. */
const lar_provider *lar_provider_find(lar_slice name);
/* All rows, for docs and reports. */
const lar_provider *lar_provider_rows(uint32_t *count);
/* The shortest prefix that is cached for that model: vendor names in front ("anthropic/", "us.anthropic.") and dots
 * for dashes are understood. An unknown model has the provider's own number. */
uint32_t lar_provider_tokens_min(const lar_provider *p, lar_slice model);

#endif
