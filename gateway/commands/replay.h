/* larder replay: logged requests through simulated prefix caches, as they are and as larder would have sent them.
 * Sends nothing. One pass reads the log from front to back; each rule's share is another pass without that rule. */
#ifndef LARDER_GATEWAY_REPLAY_H
#define LARDER_GATEWAY_REPLAY_H

#include <stdio.h>

#include "gateway/commands/request_log.h"
#include "policies/cachesim.h"
#include "policies/canon.h"
#include "policies/price.h"

/* argv begins behind the command's name. Exit codes: 0 done; 1 a record could not be read, or there was no request;
 * 2 usage, or a file that cannot be opened. */
int lar_command_replay(int argc, char **argv);

enum { LAR_REPLAY_PROVIDERS_MAX = 8, LAR_REPLAY_TURNS = 6 };

typedef struct lar_replay_options {
    const lar_provider *providers[LAR_REPLAY_PROVIDERS_MAX];
    uint32_t provider_count;
    bool chosen; /* providers were named: each counts every request; else breakpoints count Anthropic's messages only */
    lar_request_log_options log;
    uint64_t rules_off;
    uint32_t ttl_s;
    bool no_ttl, automatic_marker, skip_bad, by_rule, json;
    const char *price_as; /* model whose price counts for all; NULL: each request's own */
    char **files;
    int file_count;
} lar_replay_options;

typedef struct lar_replay_count {
    uint64_t requests, prompt, hit, write;
} lar_replay_count;

/* One provider's caches, with the traffic as it is or as larder sends it. */
typedef struct lar_replay_side {
    lar_replay_count all, turns[LAR_REPLAY_TURNS];
    double cost; /* USD, of requests whose model has a price */
} lar_replay_side;

typedef struct lar_replay_sums {
    lar_replay_side raw[LAR_REPLAY_PROVIDERS_MAX], sent[LAR_REPLAY_PROVIDERS_MAX];
    uint64_t requests, answers, timed, bad, passed, priced;
    uint64_t edited, edits;                                  /* requests, places */
    uint64_t rule_requests[LAR_RULE_COUNT], rule_edits[LAR_RULE_COUNT];
    lar_replay_count reported; /* by the providers, in logged responses that say how much they read from the cache */
    lar_replay_count exported; /* by lines of `larder export`, hits known */
    uint64_t exported_unknown; /* hits not known */
    const lar_price *price; /* the last one that was used; NULL: none */
    bool prices_mixed;      /* others were, too */
} lar_replay_sums;

extern const char *const lar_replay_turn_names[LAR_REPLAY_TURNS];

typedef enum lar_replay_pass { LAR_REPLAY_BOTH, LAR_REPLAY_SENT } lar_replay_pass;

/* Reads all files once. `rules_off` in place of the options'. SENT leaves out the raw traffic, and says nothing about
 * bad records again. Returns an exit code; messages went to stderr. */
int lar_replay_run(const lar_replay_options *o, lar_replay_pass pass, uint64_t rules_off, lar_replay_sums *out);

/* `without[r]`: sums of the pass without rule r; only where sums->rule_requests[r] is not 0 and by_rule is set. */
void lar_replay_print(const lar_replay_options *o, const lar_replay_sums *s, const lar_replay_sums *without, FILE *to);
/* The same as one JSON document. NO_MEMORY, IO. */
LAR_MUST_USE lar_error lar_replay_print_json(const lar_replay_options *o, const lar_replay_sums *s,
                                             const lar_replay_sums *without, FILE *to);

/* Hit tokens of prompt tokens, 0 to 1; 0 where there was no prompt. */
static inline double lar_replay_rate(const lar_replay_count *c) {
    return c->prompt ? (double)c->hit / (double)c->prompt : 0.0;
}

#endif
