/* A model that this process serves: planned at start as the configuration says, loaded then or with the first request
 * that needs it (engine.start), used by all loops, closed at the end.
 * The loops of all generations share it: a reload makes new pools (engine_pool.h) and leaves the model as it is. */
#ifndef LARDER_GATEWAY_RESIDENT_H
#define LARDER_GATEWAY_RESIDENT_H

#include <stdatomic.h>

#include "base/log.h"
#include "base/metrics.h"
#include "engine/cache/page_store.h"
#include "gateway/config/config.h"

typedef struct lar_resident lar_resident;

typedef struct lar_resident_options {
    const lar_upstream_config *config; /* of kind engine; borrowed until the close */
    bool any_model;                    /* routes choose it, whatever model a request names */
    uint64_t promised_bytes;           /* of memory, to others that are loaded later */
    lar_page_store *page_store;        /* borrowed; where prefixes go that memory has no room for; NULL: nowhere */
    lar_log *log;
    atomic_llong *buffered_bytes; /* of the process: what is held for requests and answers is counted there */
    uint64_t buffer_bytes_max;
} lar_resident_options;

/* Reads the model, reserves its memory, starts its threads; blocks for as long as that takes and logs how far it is.
 * With engine.start: need only its headers and its text side are read, so that requests can be read, and whatever needs
 * no weight be answered.
 * CONFIG: the model cannot be read, the options do not suit it, or it does not fit into the memory that there is (its
 * plan is printed on standard error then); `d` names the upstream. NO_MEMORY, IO. */
LAR_MUST_USE lar_error lar_resident_open(const lar_resident_options *o, lar_resident **out, lar_diag *d);
/* When no pool uses it any more. NULL: nothing happens. */
void lar_resident_close(lar_resident *r);

/* What an open would say of the options, model's files and memory, without loading a weight. */
LAR_MUST_USE lar_error lar_resident_check(const lar_upstream_config *config, lar_diag *d);

/* The name of its upstream. */
const char *lar_resident_name(const lar_resident *r);
/* Bytes of memory that it takes, or will take, by its plan. */
uint64_t lar_resident_planned(const lar_resident *r);

typedef enum lar_resident_state {
    LAR_RESIDENT_READY,
    LAR_RESIDENT_COLD, /* nobody needed it yet */
    LAR_RESIDENT_LOADING,
    LAR_RESIDENT_FAILED
} lar_resident_state;
const char *lar_resident_state_name(lar_resident_state s);
/* LOADING: *wait_ms is how long that takes yet, by how far it has come; FAILED: until a request makes it load again.
 * Any thread. */
lar_resident_state lar_resident_look(lar_resident *r, uint32_t *wait_ms);
/* A chat request whose chain has this model begins with `prefix` (tools and system texts, by their hash), as `seen` did
 * in earlier runs. True: its text is wanted: engine.keep_warm. Any thread. */
bool lar_resident_prefix_seen(lar_resident *r, const lar_digest *scope, uint64_t prefix, uint32_t seen);
/* The text: a chat request's body that has this beginning, and nothing else of it. Empty: there is none. Copied. */
void lar_resident_prefix_text(lar_resident *r, const lar_digest *scope, uint64_t prefix, lar_slice body);

/* What all of them together count, into the metrics that begin with ENGINE_. Any thread. */
void lar_resident_metrics(lar_resident *const *residents, uint32_t count, lar_metrics *m);
/* Appends hits and misses of each MoE layer (expert_metrics.def), of models whose experts are in a budget. Any thread.
 * */
LAR_MUST_USE lar_error lar_resident_expert_metrics(lar_resident *const *residents, uint32_t count, lar_buf *out);
/* Appends {"engines": [...]}, the body of GET /experts: of each model with a budget for experts what was counted since
 * its start, in all and by layer, and what that advises. Any thread. */
LAR_MUST_USE lar_error lar_resident_experts_json(lar_resident *const *residents, uint32_t count, lar_buf *out);

#endif
