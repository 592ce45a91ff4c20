/* One pass of larder replay (header: replay.h): log -> body -> rendering -> prompt -> every simulator, twice.
 * Flow: for each request the raw body, then what the rules make of it; the answer of the log stands behind both.
 * One thread; blocks in reads. Invariants: 1. requests of other models, salts or users of DeepSeek share nothing, as
 * with their providers. 2. A body that is not edited is rendered once. 3. Nothing is sent anywhere.
 * Memory: simulators, bounded (cachesim.h); recall memory, bounded (rehearsal.h); the longest record. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "gateway/commands/replay.h"
#include "gateway/recall/rehearsal.h"
#include "gateway/usage/usage.h"
#include "policies/price.h"

enum { ORDERS = 2, ARENA_MAX = 1 << 30, ARENA_KEEP = 8 << 20 };

typedef enum traffic { RAW, SENT, SIDES } traffic;

typedef struct run {
    const lar_replay_options *o;
    lar_replay_pass pass;
    lar_replay_sums *s;
    lar_cachesim *sims[SIDES][LAR_REPLAY_PROVIDERS_MAX];
    bool order_used[ORDERS];
    lar_rehearsal *rehearsal;
    lar_prompt prompts[SIDES][ORDERS];
    lar_json json;
    lar_arena arena;
    lar_usage usage;
    int64_t started_ms;
} run;

const char *const lar_replay_turn_names[LAR_REPLAY_TURNS] = {"0", "1", "2", "3-5", "6-10", "11+"};

static uint32_t turn_of(uint32_t turn) { return turn < 3 ? turn : turn <= 5 ? 3 : turn <= 10 ? 4 : 5; }

/* -- setting up ------------------------------------------------------------------------------------------- */

static void release(run *r) {
    for (int side = 0; side < SIDES; side++) {
        for (uint32_t i = 0; i < r->o->provider_count; i++) lar_cachesim_free(r->sims[side][i]);
        for (int order = 0; order < ORDERS; order++) lar_prompt_release(&r->prompts[side][order]);
    }
    lar_rehearsal_free(r->rehearsal);
    lar_json_release(&r->json);
    lar_arena_release(&r->arena);
    lar_usage_release(&r->usage);
}

static bool set_up(run *r, uint64_t rules_off) {
    lar_json_init(&r->json);
    lar_arena_init(&r->arena, ARENA_MAX);
    lar_usage_init(&r->usage, LAR_USAGE_BY_SPELLING);
    for (int side = 0; side < SIDES; side++)
        for (int order = 0; order < ORDERS; order++) lar_prompt_init(&r->prompts[side][order]);
    r->started_ms = lar_clock_wall_ms();
    r->rehearsal = lar_rehearsal_new(rules_off, 0);
    bool good = r->rehearsal != NULL;
    for (uint32_t i = 0; i < r->o->provider_count; i++) {
        lar_cachesim_options o = {.provider = r->o->providers[i],
                                  .ttl_s = r->o->ttl_s,
                                  .no_ttl = r->o->no_ttl,
                                  .automatic_marker = r->o->automatic_marker};
        r->order_used[o.provider->order] = true;
        for (int side = r->pass == LAR_REPLAY_BOTH ? RAW : SENT; side < SIDES; side++) {
            r->sims[side][i] = lar_cachesim_new(&o);
            good &= r->sims[side][i] != NULL;
        }
    }
    return good;
}

/* -- one request ------------------------------------------------------------------------------------------ */

typedef struct asked {
    const lar_log_request *q;
    lar_protocol protocol;
    char model[128];
    uint32_t turn, output;
    const lar_price *price;
} asked;

static uint64_t seed_of(const lar_request_view *v) {
    const lar_json *j = v->json;
    lar_hash h = lar_hash_of(lar_json_raw(j, v->model));
    h = lar_hash_chain(h, lar_json_raw(j, v->members[LAR_MEMBER_CACHE_SALT]));
    return lar_hash_low(lar_hash_chain(h, lar_json_raw(j, lar_json_get(j, 0, "user_id"))));
}

/* Reads the body and fills one side's prompts. */
static lar_error render(run *r, traffic side, lar_slice body, asked *a, lar_diag *d) {
    lar_request_view v;
    lar_rendering text, answer;
    lar_arena_reset(&r->arena, ARENA_KEEP);
    lar_error e = lar_json_parse(&r->json, body, NULL, d);
    if (!e) e = lar_request_view_read(&v, &r->json, a->protocol, &r->arena, d);
    if (e) return e;
    a->turn = turn_of(v.turn);
    lar_slice model = lar_json_inner(&r->json, v.model);
    (void)snprintf(a->model, sizeof a->model, "%.*s", (int)(model.len < sizeof a->model ? model.len : 0), model.ptr);
    for (int order = 0; order < ORDERS && !e; order++) {
        if (!r->order_used[order]) continue;
        lar_prompt *p = &r->prompts[side][order];
        e = lar_render_request(&text, &v, (lar_render_order)order, &r->arena);
        if (!e) e = lar_prompt_set(p, seed_of(&v), &text);
        if (!e && a->q->answer != LAR_JSON_NONE) {
            e = lar_render_message(&answer, a->q->answer_json, a->q->answer, a->protocol, &r->arena);
            if (!e) e = lar_prompt_add_answer(p, &answer);
        }
        a->output = p->whole - p->tokens;
    }
    return e;
}

/* Vendors stand in front of models' names in some logs. */
static const lar_price *price_of(const lar_replay_options *o, const char *model) {
    if (o->price_as) return lar_price_find(lar_slice_cstr(o->price_as));
    const lar_price *p = lar_price_find(lar_slice_cstr(model));
    const char *slash = strrchr(model, '/');
    return p || !slash ? p : lar_price_find(lar_slice_cstr(slash + 1));
}

static void count(lar_replay_count *c, const lar_cachesim_usage *u) {
    c->requests++;
    c->prompt += u->prompt;
    c->hit += u->hit;
    c->write += u->write;
}

static lar_error simulate(run *r, traffic side, traffic from, const asked *a) {
    lar_cachesim_usage u;
    for (uint32_t i = 0; i < r->o->provider_count; i++) {
        const lar_provider *p = r->o->providers[i];
        bool marks = p->rule == LAR_CACHE_BREAKPOINTS;
        if (marks && !r->o->chosen && a->protocol != LAR_PROTOCOL_MESSAGES) continue;
        lar_replay_side *sum = side == RAW ? &r->s->raw[i] : &r->s->sent[i];
        uint32_t least = lar_provider_tokens_min(p, lar_slice_cstr(a->model));
        lar_error e = lar_cachesim_request(r->sims[side][i], &r->prompts[from][p->order], least, a->q->time_ms, &u);
        if (e) return e;
        count(&sum->all, &u);
        count(&sum->turns[a->turn], &u);
        if (a->price) sum->cost += lar_price_cost(a->price, u.prompt, u.hit, u.write, a->output);
    }
    return LAR_OK;
}

static void count_rules(lar_replay_sums *s, const lar_rehearsed *sent) {
    s->edited += sent->edited;
    s->edits += sent->edits;
    for (int i = 0; i < LAR_RULE_COUNT; i++) {
        s->rule_requests[i] += sent->rules_fired >> i & 1;
        s->rule_edits[i] += sent->rule_edits[i];
    }
}

static void count_reported(run *r, const lar_log_request *q) {
    lar_tokens t;
    if (!lar_json_is(q->record, q->response, LAR_JSON_OBJECT)) return;
    uint32_t body = lar_json_get(q->record, q->response, "body");
    if (!lar_json_is(q->record, body, LAR_JSON_OBJECT)) body = q->response;
    lar_usage_reset(&r->usage, LAR_USAGE_BY_SPELLING);
    lar_usage_body(&r->usage, q->protocol, lar_json_raw(q->record, body));
    (void)lar_usage_tokens(&r->usage, &t);
    if (t.prompt < 0 || t.hit < 0) return;
    r->s->reported.requests++;
    r->s->reported.prompt += (uint64_t)t.prompt;
    r->s->reported.hit += (uint64_t)t.hit;
}

static void count_exported(run *r, const lar_log_request *q) {
    uint64_t prompt, hit;
    const lar_json *j = q->record;
    bool known = lar_json_u64(j, lar_json_get(j, q->record_node, "prompt_tokens"), &prompt) &&
                 lar_json_u64(j, lar_json_get(j, q->record_node, "hit_tokens"), &hit);
    if (!known) {
        r->s->exported_unknown++;
        return;
    }
    r->s->exported.requests++;
    r->s->exported.prompt += prompt;
    r->s->exported.hit += hit;
}

static lar_error one(run *r, const lar_log_request *q, lar_diag *d) {
    asked a = {.q = q, .protocol = q->protocol};
    lar_rehearsed sent;
    lar_rehearsal_request request = {q->body, q->protocol, q->time_ms ? q->time_ms : r->started_ms};
    lar_error e = render(r, RAW, q->body, &a, d);
    if (e) return e;
    a.price = price_of(r->o, a.model);
    if (r->pass == LAR_REPLAY_BOTH) e = simulate(r, RAW, RAW, &a);
    if (!e) e = lar_rehearsal_send(r->rehearsal, &request, &sent, d);
    if (!e && sent.edited) e = render(r, SENT, sent.body, &a, d);
    if (!e) e = simulate(r, SENT, sent.edited ? SENT : RAW, &a);
    if (e) return e;
    if (q->answer != LAR_JSON_NONE) lar_rehearsal_answer(r->rehearsal, q->answer_json, q->answer);
    r->s->requests++;
    r->s->answers += q->answer != LAR_JSON_NONE;
    r->s->timed += q->time_ms != 0;
    count_rules(r->s, &sent);
    count_reported(r, q);
    if (a.price) {
        r->s->priced++;
        r->s->prices_mixed |= r->s->price && r->s->price != a.price;
        r->s->price = a.price;
    }
    return LAR_OK;
}

/* -- files ------------------------------------------------------------------------------------------------ */

static void complain(const lar_log_request *q, lar_error e, const lar_diag *d) {
    const char *text = d->text[0] ? d->text : lar_error_text(e);
    (void)fprintf(stderr, "larder: %s:", q->file);
    if (q->line) (void)fprintf(stderr, "%" PRIu64 ":", q->line);
    if (q->column) (void)fprintf(stderr, "%" PRIu64 ":", q->column);
    (void)fprintf(stderr, " %s\n", text);
}

/* Errors of one record; all others end the command. */
static bool is_bad_record(lar_error e) { return e != LAR_IO && e != LAR_NO_MEMORY; }

static int read_log(run *r, lar_request_log *l) {
    lar_log_request q;
    lar_diag d;
    lar_error e;
    while ((e = lar_request_log_next(l, &q, &d)) != LAR_NOT_FOUND) {
        if (!e && q.form == LAR_LOG_EXPORT) count_exported(r, &q);
        else if (!e) e = one(r, &q, &d);
        if (!e) continue;
        bool bad = is_bad_record(e);
        if (r->pass == LAR_REPLAY_BOTH || !bad) complain(&q, e, &d);
        if (!bad) return e == LAR_IO ? 2 : 1;
        r->s->bad++;
        if (r->o->skip_bad) continue;
        (void)fprintf(stderr, "larder: --skip-bad leaves such records out\n");
        return 1;
    }
    r->s->passed += lar_request_log_passed(l);
    return 0;
}

static int read_file(run *r, const char *path) {
    lar_request_log *l;
    lar_diag d = {0};
    lar_error e = lar_request_log_open(path, &r->o->log, &l, &d);
    if (e) {
        (void)fprintf(stderr, "larder: %s: %s\n", path, d.text[0] ? d.text : lar_error_text(e));
        return 2;
    }
    int rc = read_log(r, l);
    lar_request_log_close(l);
    return rc;
}

int lar_replay_run(const lar_replay_options *o, lar_replay_pass pass, uint64_t rules_off, lar_replay_sums *out) {
    run r = {.o = o, .pass = pass, .s = out};
    *out = (lar_replay_sums){0};
    int rc = 0;
    if (!set_up(&r, rules_off)) {
        (void)fprintf(stderr, "larder: %s\n", lar_error_text(LAR_NO_MEMORY));
        rc = 1;
    }
    for (int i = 0; i < o->file_count && !rc; i++) rc = read_file(&r, o->files[i]);
    release(&r);
    return rc;
}
