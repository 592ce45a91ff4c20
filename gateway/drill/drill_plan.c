/* Lines and scenes of a drill, from the operator's configuration (header: drill_plan.h).
 * Called by drill.c before anything is started. Pure but for its memory; one thread.
 * Why times are shortened in this way: what a limit waits for is skipped, as if the clock had jumped, so that what
 * another limit leaves behind it is what the configuration leaves; and a limit that ends before it still does.
 * Memory: the plan's arena. Not here: what is expected (drill_judge.c), how it is played (drill_disguise.c,
 * drill_stand_in.c). */
#include "gateway/drill/drill_plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "gateway/request/route.h"
#include "gateway/resident/engine_pool.h"

enum { ARENA_BYTES_MAX = 64 << 20, NOTES_BYTES_MAX = 1 << 20, SCENES_MAX = 1 << 16, MODEL_BYTES = 256 };
_Static_assert(LAR_CONTINUE_NOBODY == LAR_DRILL_NONE, "nobody is nobody");
enum { AS_IT_IS_MS = 200, A_DOUBLING_MS = 100, OPEN_MS = 2000 };

const char *lar_drill_path(lar_protocol p) {
    switch (p) {
    case LAR_PROTOCOL_MESSAGES: return "/v1/messages";
    case LAR_PROTOCOL_RESPONSES: return "/v1/responses";
    default: return "/v1/chat/completions";
    }
}

uint32_t lar_drill_shorten(uint32_t ms) {
    if (ms <= AS_IT_IS_MS) return ms;
    return AS_IT_IS_MS + (uint32_t)(A_DOUBLING_MS * log2((double)ms / AS_IT_IS_MS));
}

/* -- providers ---------------------------------------------------------------------------------------------------- */

bool lar_drill_is_hosted(lar_profile p) {
    return p == LAR_PROFILE_DEEPSEEK || p == LAR_PROFILE_OPENAI || p == LAR_PROFILE_ANTHROPIC;
}

const char *lar_drill_foreign_model(lar_profile p, const char *model) {
    static const struct {
        const char *front, *why;
        lar_profile profile;
    } families[] = {{"deepseek-", "it is DeepSeek's", LAR_PROFILE_DEEPSEEK},
                    {"claude-", "it is Anthropic's", LAR_PROFILE_ANTHROPIC},
                    {"gpt-", "it is OpenAI's", LAR_PROFILE_OPENAI},
                    {"chatgpt-", "it is OpenAI's", LAR_PROFILE_OPENAI}};
    if (!lar_drill_is_hosted(p)) return NULL;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (families[i].profile != p && strncmp(model, families[i].front, strlen(families[i].front)) == 0)
            return families[i].why;
    return NULL;
}

static const char *usual_model(const lar_upstream_config *u) {
    if (u->kind == LAR_UPSTREAM_KIND_ENGINE) return u->engine.served_name;
    switch (u->profile) {
    case LAR_PROFILE_DEEPSEEK: return "deepseek-chat";
    case LAR_PROFILE_OPENAI: return "gpt-4o-mini";
    case LAR_PROFILE_ANTHROPIC: return "claude-sonnet-4-5";
    default: return "drill";
    }
}

static lar_protocol usual_protocol(const lar_upstream_config *u) {
    bool anthropic =
        u->kind == LAR_UPSTREAM_KIND_HTTP && (u->profile == LAR_PROFILE_ANTHROPIC || strstr(u->url.path, "anthropic"));
    return anthropic ? LAR_PROTOCOL_MESSAGES : LAR_PROTOCOL_CHAT;
}

/* -- chains ------------------------------------------------------------------------------------------------------- */

uint32_t lar_drill_next(const lar_drill_line *l) {
    for (uint32_t t = 1; t < l->target_count; t++)
        if (!l->targets[t].cannot) return t;
    return LAR_DRILL_NONE;
}

uint32_t lar_drill_last(const lar_drill_line *l) {
    uint32_t last = 0;
    for (uint32_t t = 1; t < l->target_count; t++)
        if (!l->targets[t].cannot) last = t;
    return last;
}

static uint32_t members_of(const lar_config *c, uint32_t first) {
    uint32_t n = 1;
    for (uint32_t i = first; c->upstreams[i].replica_next; i = c->upstreams[i].replica_next) n++;
    return n;
}

/* A client has one credential: without a key of its own a fallback gets the one that is for the first upstream. */
static bool gets_foreign_key(const lar_config *c, const lar_upstream_config *first, const lar_upstream_config *u) {
    if (!lar_drill_is_hosted(u->profile) || u->key[0]) return false;
    if (c->key_count) return true; /* larder's own keys go nowhere: it gets none */
    return u != first && !first->key[0] && lar_drill_is_hosted(first->profile) &&
           strcmp(u->url.host, first->url.host) != 0;
}

static lar_error add_target(lar_drill_plan *p, const lar_config *c, lar_drill_line *l, uint32_t upstream,
                            const char *model) {
    const lar_upstream_config *u = &c->upstreams[upstream];
    lar_drill_target *t = &l->targets[l->target_count];
    lar_diag d = {{0}, 0, 0};
    const char *alias = lar_route_alias(c, lar_slice_cstr(l->model));
    *t = (lar_drill_target){.upstream = upstream,
                            .members = members_of(c, upstream),
                            .name = u->name,
                            .model = *model  ? model
                                     : alias ? alias
                                             : l->model,
                            .engine = u->kind == LAR_UPSTREAM_KIND_ENGINE};
    LAR_ASSERT(l->target_count < LAR_DRILL_TARGETS_MAX);
    if (t->engine && lar_engine_pool_serves(LAR_SLICE("POST"), lar_slice_cstr(lar_drill_path(l->protocol)), &d)) {
        t->cannot = lar_arena_copy(&p->arena, lar_slice_cstr(d.text)).ptr;
        if (!t->cannot) return LAR_NO_MEMORY;
    }
    t->foreign_key = !t->engine && gets_foreign_key(c, &c->upstreams[l->targets[0].upstream], u);
    l->target_count++;
    return LAR_OK;
}

static lar_error fill_chain(lar_drill_plan *p, const lar_config *c, const lar_drill_options *o, lar_drill_line *l) {
    const lar_route_config *r = l->route == LAR_DRILL_NONE ? NULL : &c->routes[l->route];
    lar_error e = add_target(p, c, l, r ? r->upstream : 0, "");
    for (uint32_t i = 0; !e && r && i < r->fallback_count; i++) {
        const lar_upstream_config *u = &c->upstreams[r->fallbacks[i].upstream];
        if (o->without_engine && u->kind == LAR_UPSTREAM_KIND_ENGINE) l->left_out++;
        else e = add_target(p, c, l, r->fallbacks[i].upstream, r->fallbacks[i].model);
    }
    l->continue_with = r ? r->continue_with : LAR_CONTINUE_NOBODY;
    if (l->continue_with != LAR_CONTINUE_NOBODY && o->without_engine) {
        l->continue_with = LAR_DRILL_NONE;
        l->left_out++;
    }
    return e;
}

/* -- scenes ------------------------------------------------------------------------------------------------------- */

/* A limit beside one that is waited for: it ends before that one, or has as much left behind it as configured. */
static uint32_t beside(uint32_t limit_ms, const lar_drill_wait *w) {
    if (!limit_ms) return 0;
    if (limit_ms <= w->configured_ms) return lar_drill_shorten(limit_ms);
    return limit_ms - (w->configured_ms - w->played_ms);
}

static void set_wait(const lar_config *c, lar_drill_scene *s) {
    const lar_upstream_config *u = &c->upstreams[s->line->targets[0].upstream];
    const lar_route_config *r = s->line->route == LAR_DRILL_NONE ? NULL : &c->routes[s->line->route];
    lar_drill_wait *w = &s->wait;
    *w = (lar_drill_wait){.deadline_ms = r ? r->deadline_ms : 0,
                          .hold_ms = r ? r->hold_ms : 0,
                          .total_ms = u->total_timeout_ms};
    if (s->scenario->course == LAR_DRILL_REST) {
        w->option = "breaker.open";
        w->configured_ms = u->breaker.open_ms;
        w->played_ms = w->configured_ms < OPEN_MS ? w->configured_ms : OPEN_MS; /* a request fits into it in any case */
        return;
    }
    bool stalls = s->scenario->fault == LAR_DRILL_FAULT_STALL || s->scenario->fault == LAR_DRILL_FAULT_BODY_STALL;
    bool silent = s->scenario->fault == LAR_DRILL_FAULT_STALL && s->scenario->arg == LAR_DRILL_AT_HEAD;
    if (s->scenario->fault == LAR_DRILL_FAULT_HANG) {
        w->option = "timeouts.first_byte";
        w->configured_ms = u->first_byte_timeout_ms;
    } else if (stalls) {
        w->option = silent ? "timeouts.first_event" : "timeouts.idle";
        w->configured_ms = silent ? u->first_event_timeout_ms : u->idle_timeout_ms;
    } else return;
    w->played_ms = lar_drill_shorten(w->configured_ms);
    w->deadline_ms = beside(w->deadline_ms, w);
    w->total_ms = beside(w->total_ms, w);
    if (s->scenario->fault == LAR_DRILL_FAULT_STALL) w->hold_ms = beside(w->hold_ms, w);
}

static void add_scene(lar_drill_plan *p, const lar_config *c, const lar_drill_scene *scene) {
    LAR_ASSERT(p->scene_count < SCENES_MAX);
    lar_drill_scene *s = &p->scenes[p->scene_count++];
    const lar_breaker_options *b = &c->upstreams[scene->line->targets[0].upstream].breaker;
    *s = *scene;
    s->rounds = 1;
    if (s->scenario->course == LAR_DRILL_IDLE || s->scenario->course == LAR_DRILL_DIES) s->rounds = 2;
    if (s->scenario->course == LAR_DRILL_FLAP) s->rounds = LAR_DRILL_FLAPS;
    if (s->scenario->course == LAR_DRILL_REST) s->rounds = b->requests_min + 2;
    set_wait(c, s);
}

static void add_forms(lar_drill_plan *p, const lar_config *c, lar_drill_scene scene) {
    for (int streamed = 0; streamed < 2; streamed++) {
        if (scene.scenario->forms == (streamed ? LAR_DRILL_PLAIN : LAR_DRILL_STREAM)) continue;
        scene.streamed = streamed;
        add_scene(p, c, &scene);
    }
}

/* Does this scenario say anything about this chain? */
static bool is_played(const lar_config *c, const lar_drill_line *l, lar_drill_id id) {
    const lar_drill_scenario *s = lar_drill_scenario_of(id);
    if (l->targets[0].engine) return id == LAR_DRILL_ID_WELL; /* nothing can be played into a model of this process */
    if (s->where == LAR_DRILL_ALL) return l->target_count > 1;
    if (s->course == LAR_DRILL_REPLICA) return l->targets[0].members > 1;
    if (s->course != LAR_DRILL_REST) return true;
    return lar_drill_next(l) != LAR_DRILL_NONE &&
           c->upstreams[l->targets[0].upstream].breaker.requests_min <= LAR_DRILL_REST_MAX;
}

static void add_scenes(lar_drill_plan *p, const lar_config *c, const lar_drill_options *o, const lar_drill_line *l) {
    for (int id = 0; id < LAR_DRILL_ID_COUNT; id++) {
        lar_drill_scene scene = {.scenario = lar_drill_scenario_of((lar_drill_id)id), .line = l};
        if ((o->scenario && strcmp(o->scenario, scene.scenario->name) != 0) || !is_played(c, l, (lar_drill_id)id))
            continue;
        if (scene.scenario->where != LAR_DRILL_BEFORE) {
            add_forms(p, c, scene);
            continue;
        }
        for (scene.target = 1; scene.target < l->target_count; scene.target++) add_forms(p, c, scene);
    }
}

/* -- lines -------------------------------------------------------------------------------------------------------- */

/* A model's name that fits the pattern: "x" for each '*', or the provider's usual one where any fits. */
static const char *example_model(lar_drill_plan *p, const lar_config *c, const lar_route_config *r) {
    const lar_upstream_config *u = &c->upstreams[r ? r->upstream : 0];
    char text[MODEL_BYTES + 1];
    if (!r || !*r->model || strcmp(r->model, "*") == 0) return usual_model(u);
    (void)snprintf(text, sizeof text, "%s", r->model);
    for (char *at = text; *at; at++)
        if (*at == '*') *at = 'x';
    return lar_arena_copy(&p->arena, lar_slice_cstr(text)).ptr;
}

static lar_error note(lar_drill_plan *p, const char *label, const char *text) {
    return lar_buf_printf(&p->notes, "%s %s\n", label, text);
}

/* Would a request of this model come here? Another route may take it. */
static lar_error note_reach(lar_drill_plan *p, const lar_config *c, const lar_drill_line *l) {
    if (l->route == LAR_DRILL_NONE) return LAR_OK;
    const lar_route_config *r = &c->routes[l->route], *matched = NULL;
    lar_slice target = lar_arena_printf(&p->arena, "%s%s", r->prefix, lar_drill_path(l->protocol));
    lar_http1_field field = {lar_slice_cstr(r->header_name), lar_slice_cstr(r->header_value)};
    lar_http1_head h = {.method = LAR_SLICE("POST"),
                        .target = target,
                        .method_id = LAR_HTTP1_POST,
                        .minor = 1,
                        .fields = &field,
                        .field_count = *r->header_name ? 1 : 0};
    lar_route found;
    const char *allow;
    if (!target.ptr) return LAR_NO_MEMORY;
    if (lar_route_find(c, &h, &found, &allow)) return LAR_OK;
    (void)lar_route_upstream(c, &found, &h, lar_slice_cstr(l->model), &matched);
    if (matched == r) return LAR_OK;
    char text[LAR_DRILL_WHY_BYTES];
    (void)snprintf(text, sizeof text, "does not get a request for model '%.100s': routes[%u] takes it", l->model,
                   matched ? (unsigned)(matched - c->routes) : 0u);
    return note(p, l->label, text);
}

static lar_error note_chain(lar_drill_plan *p, const lar_config *c, const lar_drill_line *l) {
    lar_error e = LAR_OK;
    if (l->left_out) e = note(p, l->label, "without the models of this process in its chain (--without-engine)");
    if (!e && l->targets[0].engine)
        return note(p, l->label, "begins with a model of this process, into which no failure is played");
    if (!e && lar_drill_next(l) != LAR_DRILL_NONE &&
        c->upstreams[l->targets[0].upstream].breaker.requests_min > LAR_DRILL_REST_MAX)
        e = note(p, l->label,
                 "is not drilled as down-for-long: breaker.requests wants more requests than a drill sends");
    return e;
}

static lar_error add_line(lar_drill_plan *p, const lar_config *c, const lar_drill_options *o, uint32_t route,
                          lar_protocol protocol) {
    lar_drill_line *l = &p->lines[p->line_count];
    const lar_route_config *r = route == LAR_DRILL_NONE ? NULL : &c->routes[route];
    lar_slice label = r ? lar_arena_printf(&p->arena, "routes[%u]", (unsigned)route) : LAR_SLICE("all");
    *l = (lar_drill_line){.route = route, .label = label.ptr, .protocol = protocol};
    l->model = o->model ? o->model : example_model(p, c, r);
    if (!l->label || !l->model) return LAR_NO_MEMORY;
    lar_error e = fill_chain(p, c, o, l);
    if (e) return e;
    p->line_count++;
    e = note_reach(p, c, l);
    return e ? e : note_chain(p, c, l);
}

static bool is_asked_for(const lar_config *c, const lar_drill_options *o, uint32_t route) {
    char number[16];
    if (!o->route) return true;
    if (route == LAR_DRILL_NONE) return false;
    (void)snprintf(number, sizeof number, "%u", (unsigned)route);
    return strcmp(o->route, number) == 0 ||
           (*c->routes[route].prefix && strcmp(o->route, c->routes[route].prefix) == 0);
}

static lar_error add_route(lar_drill_plan *p, const lar_config *c, const lar_drill_options *o, uint32_t route) {
    const lar_upstream_config *u = &c->upstreams[route == LAR_DRILL_NONE ? 0 : c->routes[route].upstream];
    if (!is_asked_for(c, o, route)) return LAR_OK;
    if (o->without_engine && u->kind == LAR_UPSTREAM_KIND_ENGINE) {
        char label[32];
        (void)snprintf(label, sizeof label, "routes[%u]", (unsigned)route);
        return note(p, route == LAR_DRILL_NONE ? "all" : label,
                    "is not drilled: it begins with a model of this process (--without-engine)");
    }
    uint32_t protocols = o->protocols ? o->protocols : 1u << usual_protocol(u);
    lar_error e = LAR_OK;
    for (int i = 0; !e && i < LAR_PROTOCOL_COUNT; i++)
        if (protocols >> i & 1) e = add_line(p, c, o, route, (lar_protocol)i);
    return e;
}

static bool is_scenario(const char *name) {
    for (int id = 0; id < LAR_DRILL_ID_COUNT; id++)
        if (strcmp(name, lar_drill_scenario_of((lar_drill_id)id)->name) == 0) return true;
    return false;
}

lar_error lar_drill_plan_make(lar_drill_plan *p, const lar_config *c, const lar_drill_options *o, lar_diag *d) {
    *p = (lar_drill_plan){.upstreams = c->upstreams, .routes = c->routes};
    lar_arena_init(&p->arena, ARENA_BYTES_MAX);
    lar_buf_init(&p->notes, NOTES_BYTES_MAX);
    if (o->scenario && !is_scenario(o->scenario))
        return lar_fail(LAR_INVALID, d, "no scenario '%.60s'; `larder drill --help` lists them", o->scenario);
    p->lines = lar_arena_zalloc(&p->arena, ((size_t)c->route_count + 1) * LAR_PROTOCOL_COUNT * sizeof *p->lines);
    lar_error e = p->lines ? LAR_OK : LAR_NO_MEMORY;
    if (!e && !c->route_count) e = add_route(p, c, o, LAR_DRILL_NONE);
    for (uint32_t i = 0; !e && i < c->route_count; i++) e = add_route(p, c, o, i);
    if (!e && o->route && !p->line_count && !p->notes.len)
        return lar_fail(LAR_INVALID, d, "no route '%.60s': give its index or its prefix", o->route);
    size_t most = (size_t)p->line_count * LAR_DRILL_ID_COUNT * 2 * LAR_DRILL_TARGETS_MAX;
    if (most > SCENES_MAX) return lar_fail(LAR_LIMIT, d, "too many routes for one drill; choose with --route");
    if (!e) p->scenes = lar_arena_zalloc(&p->arena, (most + 1) * sizeof *p->scenes);
    if (!e && !p->scenes) e = LAR_NO_MEMORY;
    for (uint32_t i = 0; !e && i < p->line_count; i++) add_scenes(p, c, o, &p->lines[i]);
    return e ? lar_fail(e, d, "out of memory for the plan") : LAR_OK;
}

void lar_drill_plan_release(lar_drill_plan *p) {
    lar_arena_release(&p->arena);
    lar_buf_release(&p->notes);
}

/* -- what is played ----------------------------------------------------------------------------------------------- */

static bool fails_here(const lar_drill_scene *s, uint32_t t) {
    switch (s->scenario->where) {
    case LAR_DRILL_FIRST: return t == 0;
    case LAR_DRILL_ALL: return true;
    case LAR_DRILL_BEFORE: return t < s->target;
    }
    return false;
}

lar_drill_fault lar_drill_fault_of(const lar_drill_scene *s, uint32_t t, uint32_t round, uint32_t nth) {
    lar_drill_fault f = s->scenario->fault;
    if (!fails_here(s, t) || s->line->targets[t].engine) return LAR_DRILL_FAULT_NONE;
    if (f == LAR_DRILL_FAULT_RETRY_MS && nth) return LAR_DRILL_FAULT_NONE;
    switch (s->scenario->course) {
    case LAR_DRILL_IDLE:
    case LAR_DRILL_DIES: return round == 0 ? LAR_DRILL_FAULT_NONE : f;
    case LAR_DRILL_REPLICA: return nth ? LAR_DRILL_FAULT_NONE : f;
    case LAR_DRILL_FLAP: return round % 2 ? LAR_DRILL_FAULT_NONE : f;
    case LAR_DRILL_REST: return round + 1 < s->rounds ? f : LAR_DRILL_FAULT_NONE;
    default: return f;
    }
}
