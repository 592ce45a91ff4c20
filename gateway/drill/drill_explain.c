/* Which option explains a scene that failed (header: drill_judge.h). Called by drill.c. Pure; any thread.
 * Why apart from the verdict: it only reads the configuration, and whatever it says, the scene has failed. */
#include <stdio.h>
#include <string.h>

#include "gateway/drill/drill_judge.h"

const char *lar_drill_time(uint32_t ms, char out[LAR_DRILL_TIME_BYTES]) {
    if (ms % 1000) (void)snprintf(out, LAR_DRILL_TIME_BYTES, "%ums", (unsigned)ms);
    else (void)snprintf(out, LAR_DRILL_TIME_BYTES, "%us", (unsigned)(ms / 1000));
    return out;
}

/* A limit that ends before the one that the scene waits for: no time is left for anyone else. */
static bool ends_before(const lar_drill_scene *s, const char *option, uint32_t ms, char why[LAR_DRILL_WHY_BYTES]) {
    char a[LAR_DRILL_TIME_BYTES], b[LAR_DRILL_TIME_BYTES];
    if (!s->wait.option || s->scenario->course == LAR_DRILL_REST || !ms || ms > s->wait.configured_ms) return false;
    (void)snprintf(
        why, LAR_DRILL_WHY_BYTES,
        "%s (%s) ends before %s of %.95s (%s), so that nobody else is asked: lengthen the one or shorten the other",
        option, lar_drill_time(ms, a), s->wait.option, s->line->targets[0].name,
        lar_drill_time(s->wait.configured_ms, b));
    return true;
}

static bool explain_breaker(const lar_drill_scene *s, const lar_upstream_config *u, char why[LAR_DRILL_WHY_BYTES]) {
    bool never = u->breaker.open_ms_max == 0, blind = u->breaker.failure_percent == 0;
    if (s->scenario->course != LAR_DRILL_REST || !(never || blind)) return false;
    (void)snprintf(why, LAR_DRILL_WHY_BYTES, "%s of %.95s is 0: every request asks it first, however long it is down",
                   never ? "breaker.open_max" : "breaker.failures", u->name);
    return true;
}

static bool explain_hold(const lar_drill_scene *s, const lar_route_config *r, char why[LAR_DRILL_WHY_BYTES]) {
    bool early = s->scenario->failure == LAR_FAILURE_BROKEN && s->streamed;
    if (!early) return false;
    if (s->scenario->fault == LAR_DRILL_FAULT_STALL && ends_before(s, "hold.time", r->hold_ms, why)) return true;
    if (r->hold_ms && r->hold_bytes) return false;
    (void)snprintf(why, LAR_DRILL_WHY_BYTES,
                   "%s is 0: the head of a stream goes out at once, and nobody can answer in its place",
                   r->hold_ms ? "hold.bytes" : "hold.time");
    return true;
}

void lar_drill_explain(const lar_drill_scene *s, const lar_drill_plan *p, char why[LAR_DRILL_WHY_BYTES]) {
    const lar_drill_line *l = s->line;
    const lar_upstream_config *u = &p->upstreams[l->targets[0].upstream];
    const lar_route_config *r = l->route == LAR_DRILL_NONE ? NULL : &p->routes[l->route];
    char a[LAR_DRILL_TIME_BYTES];
    why[0] = 0;
    if (s->scenario->where == LAR_DRILL_BEFORE && l->targets[s->target].cannot) {
        (void)snprintf(why, LAR_DRILL_WHY_BYTES, "%.95s never answers %s: %.160s", l->targets[s->target].name,
                       lar_drill_path(l->protocol), l->targets[s->target].cannot);
        return;
    }
    if (explain_breaker(s, u, why) || !r) return;
    if (ends_before(s, "deadline", r->deadline_ms, why) || ends_before(s, "timeouts.total", u->total_timeout_ms, why))
        return;
    if (explain_hold(s, r, why) || !r->deadline_ms) return;
    if (s->scenario->fault == LAR_DRILL_FAULT_RETRY_MS && r->deadline_ms <= LAR_DRILL_RETRY_MS)
        (void)snprintf(why, LAR_DRILL_WHY_BYTES, "deadline (%s) is over before the upstream may be asked again",
                       lar_drill_time(r->deadline_ms, a));
}
