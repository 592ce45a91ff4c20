/* The part of `larder stats` that a running larder has to be asked for: experts in a budget of bytes. */
#ifndef LARDER_GATEWAY_COMMANDS_STATS_EXPERTS_H
#define LARDER_GATEWAY_COMMANDS_STATS_EXPERTS_H

#include <cjson/cJSON.h>
#include <stdio.h>

/* Embedded; NULL: nobody was asked. */
typedef struct lar_stats_experts {
    cJSON *engines; /* a list */
} lar_stats_experts;

/* Asks the admin listener for /experts. 0, or the exit code after a message: 2 the address is none, 1 no answer. */
int lar_stats_experts_ask(lar_stats_experts *s, const char *admin);
void lar_stats_experts_release(lar_stats_experts *s);
/* Nothing where nobody was asked. */
void lar_stats_experts_print(const lar_stats_experts *s, FILE *to);
/* Adds "expert_engines", as they came. */
void lar_stats_experts_json(const lar_stats_experts *s, cJSON *to);

#endif
