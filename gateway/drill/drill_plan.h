/* What a drill plays: for each route the chain that a request walks, and the scenes, each a failure in one form.
 *
 * A scene has upstreams of its own, with names, breakers and pools of their own, behind a prefix of its own: no scene
 * meets what another one left behind. */
#ifndef LARDER_GATEWAY_DRILL_PLAN_H
#define LARDER_GATEWAY_DRILL_PLAN_H

#include "gateway/config/config.h"
#include "gateway/drill/drill_scenario.h"
#include "policies/protocol.h"

enum { LAR_DRILL_TARGETS_MAX = 9, LAR_DRILL_WHY_BYTES = 512, LAR_DRILL_NONE = UINT32_MAX };
enum { LAR_DRILL_PROMPT_BYTES_MAX = 16 << 20 };

typedef struct lar_drill_options {
    const char *route;     /* index or prefix; NULL: all */
    const char *scenario;  /* name; NULL: all */
    const char *model;     /* that requests name; NULL: one that fits the route */
    uint32_t prompt_bytes; /* of a request's prompt, at least; to LAR_DRILL_PROMPT_BYTES_MAX */
    uint32_t protocols;    /* bit p: lar_protocol p; 0: what the route's provider speaks first */
    bool without_engine;   /* models of this process are left out of chains and not opened */
    bool require_fallback; /* a failure that nobody answers is a failed scene */
    bool json, verbose;
} lar_drill_options;

/* An upstream with its replicas: one place in a chain. */
typedef struct lar_drill_target {
    uint32_t upstream; /* index, in the operator's configuration */
    uint32_t members;  /* it and its replicas */
    const char *name, *model;
    bool engine;
    bool foreign_key;   /* it would get a client's credential that is another provider's */
    const char *cannot; /* NULL: it is in the chain; else why larder leaves it out */
} lar_drill_target;

/* A route and the protocol that it is asked in. */
typedef struct lar_drill_line {
    uint32_t route;    /* LAR_DRILL_NONE: there are none, everything goes to the first upstream */
    const char *label; /* "routes[0]" */
    lar_protocol protocol;
    const char *model; /* that requests name */
    lar_drill_target targets[LAR_DRILL_TARGETS_MAX];
    uint32_t continue_with;          /* index of the model that goes on with broken streams, or LAR_DRILL_NONE */
    uint32_t target_count, left_out; /* left_out: models of this process, by --without-engine */
} lar_drill_line;

/* A limit that a scene waits for, shortened; what of another limit is left behind it stays as configured. */
typedef struct lar_drill_wait {
    const char *option; /* NULL: the scene waits for none */
    uint32_t configured_ms, played_ms;
    uint32_t deadline_ms, total_ms, hold_ms; /* as played */
} lar_drill_wait;

typedef struct lar_drill_scene {
    const lar_drill_scenario *scenario;
    const lar_drill_line *line;
    bool streamed;
    uint32_t target; /* BEFORE: the fallback that is looked at */
    uint32_t rounds; /* requests, one behind the other */
    lar_drill_wait wait;
} lar_drill_scene;

typedef struct lar_drill_plan {
    lar_arena arena;
    const lar_upstream_config *upstreams; /* as the operator wrote them; borrowed */
    const lar_route_config *routes;
    lar_drill_line *lines;
    lar_drill_scene *scenes;
    uint32_t line_count, scene_count;
    lar_buf notes; /* lines for people: what is left out, and why */
} lar_drill_plan;

/* Embedded; released by the caller, also after an error. INVALID: no such route or scenario; NO_MEMORY. Borrows what
 * lists `c` has now. */
LAR_MUST_USE lar_error lar_drill_plan_make(lar_drill_plan *p, const lar_config *c, const lar_drill_options *o,
                                           lar_diag *d);
void lar_drill_plan_release(lar_drill_plan *p);

/* "/v1/chat/completions" */
const char *lar_drill_path(lar_protocol p);
/* The next target behind the first that larder asks; LAR_DRILL_NONE: there is none. */
uint32_t lar_drill_next(const lar_drill_line *l);
/* The last target that larder asks. */
uint32_t lar_drill_last(const lar_drill_line *l);
/* What target `t` does to its `nth` request (from 0) of this round. */
lar_drill_fault lar_drill_fault_of(const lar_drill_scene *s, uint32_t t, uint32_t round, uint32_t nth);
/* Has the provider of this profile keys of its own, and names of its own for models? */
bool lar_drill_is_hosted(lar_profile p);
/* Why the provider refuses this model's name: it is another's. NULL: it may have it. */
const char *lar_drill_foreign_model(lar_profile p, const char *model);
/* A wait of so long, played: longer ones stay longer, and none takes more than some seconds. */
uint32_t lar_drill_shorten(uint32_t ms);

#endif
