/* A chat stream that breaks behind its first content goes on at a model of this process (route option `continue`).
 * Flow: relay.c -> watch at the head, event for each event that goes to the client; where the stream breaks relay.c
 * asks lar_exchange_continue: the failure is told, the engine becomes the present target, and attempt.c sends it the
 * same request with what the client has. Its events go the way of any others. Loop thread; never blocks.
 * Invariants: 1. what is kept is exactly what the client has: whole events only, in order. 2. an answer goes on once at
 * most. 3. of a stream whose text alone does not say what the answer is (calls of tools, several choices, logprobs)
 * nothing is kept. 4. until the engine's head is there the client knows of nothing, and reads why the stream broke if
 * that fails.
 * Memory: the answer's text, bounded, counted in the budget; none where the option is off.
 * Not here: how a model goes on with a text (gateway/serving/begun.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/ensure.h"
#include "gateway/request/exchange.h"
#include "gateway/serving/begun.h"

enum { TEXT_BYTES_MAX = 1 << 20, MEMBERS_BYTES_MAX = 4096, NODES_MAX = 1 << 16 };

typedef enum phase {
    WATCHING,
    LOST,    /* what there is does not say what the answer is */
    ASKED,   /* the stream broke, and the engine was asked */
    GOING_ON /* the engine answers */
} phase;

struct lar_continuation {
    phase phase;
    lar_buf reasoning, content, members;
    /* from ASKED on */
    lar_serving_begun begun;
    uint32_t from, target_before; /* upstream that broke; place in the chain */
    lar_error error;              /* of the stream that broke */
    const char *detail;
    int64_t begun_tokens; /* GOING_ON: as the engine counts them */
};
typedef struct lar_continuation continuation;

static bool asked(const continuation *c) { return c && (c->phase == ASKED || c->phase == GOING_ON); }

bool lar_exchange_continues(const lar_exchange *x) { return asked(x->continuation); }

/* -- what the client has ------------------------------------------------------------------------------------------ */

void lar_exchange_continuation_watch(lar_exchange *x) {
    bool wanted = x->rule && x->rule->continue_with != LAR_CONTINUE_NOBODY && !x->continuation;
    if (!wanted || x->relay != RELAY_SSE || x->view.protocol != LAR_PROTOCOL_CHAT || !x->view.streamed) return;
    if (x->upstream->kind == LAR_UPSTREAM_KIND_ENGINE) return;
    continuation *c = calloc(1, sizeof *c); /* without memory for it the stream ends as it does without the option */
    if (!c) return;
    lar_buf_init(&c->reasoning, TEXT_BYTES_MAX);
    lar_buf_init(&c->content, TEXT_BYTES_MAX);
    lar_buf_init(&c->members, MEMBERS_BYTES_MAX);
    x->continuation = c;
}

void lar_exchange_forget_continuation(lar_exchange *x) {
    continuation *c = x->continuation;
    if (!c) return;
    lar_buf_release(&c->reasoning);
    lar_buf_release(&c->content);
    lar_buf_release(&c->members);
    free(c);
    x->continuation = NULL;
}

static bool says_nothing(const lar_json *j, uint32_t node) {
    lar_json_kind kind = lar_json_kind_of(j, node);
    if (node == LAR_JSON_NONE || kind == LAR_JSON_NULL) return true;
    if (kind == LAR_JSON_STRING) return lar_json_inner(j, node).len == 0;
    return (kind == LAR_JSON_ARRAY || kind == LAR_JSON_OBJECT) && j->nodes[node].count == 0;
}

static bool add_text(const lar_json *j, uint32_t node, lar_buf *out) {
    if (says_nothing(j, node)) return true;
    return lar_json_is(j, node, LAR_JSON_STRING) && lar_json_decode(j, node, out) == LAR_OK;
}

/* One spelling of reasoning or the other: some send both. */
static uint32_t reasoning_of(const lar_json *j, uint32_t delta) {
    uint32_t node = lar_json_get_last(j, delta, "reasoning_content");
    return says_nothing(j, node) ? lar_json_get_last(j, delta, "reasoning") : node;
}

/* False: more than text, or text in an order that a prompt does not have. */
static bool add_delta(continuation *c, const lar_json *j, uint32_t delta) {
    static const char *const others[] = {"tool_calls", "function_call", "refusal", "audio"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!says_nothing(j, lar_json_get_last(j, delta, others[i]))) return false;
    uint32_t reasoning = reasoning_of(j, delta);
    if (!says_nothing(j, reasoning) && c->content.len) return false;
    return add_text(j, reasoning, &c->reasoning) && add_text(j, lar_json_get_last(j, delta, "content"), &c->content);
}

static lar_error add_member(continuation *c, const char *name, lar_slice value) {
    lar_error e = c->members.len ? lar_buf_add_slice(&c->members, LAR_SLICE(",")) : LAR_OK;
    return e ? e : lar_buf_printf(&c->members, "\"%s\":%.*s", name, LAR_FMT(value));
}

/* Of the first chunk: what all of them have. */
static bool add_members(continuation *c, const lar_json *j) {
    static const char *const names[] = {"id", "created", "model", "system_fingerprint", "service_tier"};
    if (c->members.len) return true;
    lar_error e = add_member(c, "object", LAR_SLICE("\"chat.completion.chunk\""));
    for (size_t i = 0; !e && i < sizeof names / sizeof *names; i++) {
        uint32_t node = lar_json_get_last(j, 0, names[i]);
        if (node != LAR_JSON_NONE) e = add_member(c, names[i], lar_json_raw(j, node));
    }
    return !e;
}

/* False: the answer is lost for a continuation. */
static bool add_chunk(continuation *c, const lar_json *j) {
    uint32_t choices = lar_json_get_last(j, 0, "choices"), choice = lar_json_first(j, choices);
    uint64_t index = 0;
    if (!lar_json_is(j, choices, LAR_JSON_ARRAY)) return false;
    if (!j->nodes[choices].count) return true;
    uint32_t index_node = lar_json_get_last(j, choice, "index");
    bool one = j->nodes[choices].count == 1 && lar_json_is(j, choice, LAR_JSON_OBJECT);
    if (!one || (index_node != LAR_JSON_NONE && !(lar_json_u64(j, index_node, &index) && index == 0))) return false;
    if (!says_nothing(j, lar_json_get_last(j, choice, "logprobs"))) return false;
    return add_members(c, j) && add_delta(c, j, lar_json_get_last(j, choice, "delta"));
}

static bool add_event(lar_exchange *x, const lar_sse_event *e) {
    const lar_json_limits limits = {.depth_max = LAR_JSON_LIMITS_DEFAULT.depth_max, .nodes_max = NODES_MAX};
    continuation *c = x->continuation;
    lar_json *j = &x->loop->json; /* free between requests' preparations */
    if (e->oversize) return false;
    if (e->comment_only || !e->data.len || lar_slice_eq_cstr(e->data, "null")) return true;
    if (lar_json_parse(j, e->data, &limits, NULL) != LAR_OK || !lar_json_is(j, 0, LAR_JSON_OBJECT)) return false;
    size_t before = c->reasoning.len + c->content.len;
    bool good = add_chunk(c, j);
    size_t after = c->reasoning.len + c->content.len;
    return lar_exchange_budget(x, after - before) && good;
}

void lar_exchange_continuation_event(lar_exchange *x, const lar_sse_event *e) {
    continuation *c = x->continuation;
    if (!c || c->phase != WATCHING || add_event(x, e)) return;
    c->phase = LOST;
    lar_buf_release(&c->reasoning);
    lar_buf_release(&c->content);
}

/* -- the stream broke --------------------------------------------------------------------------------------------- */

bool lar_exchange_can_continue(const lar_exchange *x, lar_error e) {
    const continuation *c = x->continuation;
    if (!c || c->phase != WATCHING || !(c->content.len || c->reasoning.len) || x->loop->stopping) return false;
    if (x->state != EXCHANGE_RELAY || x->usage.finished || x->usage.done) return false;
    if (!x->set->pools[x->rule->continue_with]) return false;
    return lar_failure_of_error(e, LAR_ATTEMPT_CONTENT) == LAR_FAILURE_BROKEN_LATE && lar_exchange_left_ms(x) > 0;
}

/* In the chain already, or behind it. */
static uint32_t engine_target(lar_exchange *x) {
    for (uint32_t i = x->target; i < x->target_count; i++)
        if (x->targets[i].upstream == x->rule->continue_with) return i;
    LAR_ASSERT(x->target_count <= LAR_ROUTE_TARGETS_MAX);
    x->targets[x->target_count] = (lar_target){.upstream = x->rule->continue_with, .model = ""};
    return x->target_count++;
}

static void note_begun(lar_exchange *x, lar_error e, const char *detail) {
    continuation *c = x->continuation;
    lar_tokens told;
    lar_slice why = lar_arena_copy(&x->arena, lar_slice_cstr(detail)); /* of a lease that ends here */
    (void)!lar_usage_tokens(&x->usage, &told);
    c->phase = ASKED;
    c->error = e;
    c->detail = why.ptr ? why.ptr : "";
    c->from = x->upstream_index;
    c->target_before = x->target;
    c->begun = (lar_serving_begun){.reasoning = c->reasoning.len ? lar_buf_slice(&c->reasoning) : LAR_SLICE(""),
                                   .content = c->content.len ? lar_buf_slice(&c->content) : LAR_SLICE(""),
                                   .members = lar_buf_slice(&c->members),
                                   .from = lar_slice_cstr(x->upstream->name),
                                   .to = lar_slice_cstr(x->config->upstreams[x->rule->continue_with].name),
                                   .prompt_tokens = told.prompt};
}

/* Half an event is worth nothing, and the usage is the engine's from here on. */
static void forget_stream(lar_exchange *x) {
    lar_lease_cancel(&x->lease);
    lar_exchange_forget_output(x);
    x->held.len = 0;
    lar_sse_reset(&x->sse);
    lar_usage_reset(&x->usage, lar_profile_get(x->config->upstreams[x->rule->continue_with].profile)->usage_rule);
    x->usage.content_seen = true;
    x->usage_injected = !x->view.wants_usage; /* an engine that goes on tells it always */
    x->last_cr = x->answer_whole = x->paused = x->queued = false;
    x->lease.fresh_only = x->lease.reused = false;
}

bool lar_exchange_continue(lar_exchange *x, lar_error e, const char *detail) {
    if (!x->head_sent || !lar_exchange_can_continue(x, e)) return false;
    note_begun(x, e, detail);
    bool recovered = lar_exchange_recover(x, LAR_FAILURE_BROKEN_LATE, 0);
    LAR_ASSERT(!recovered);
    forget_stream(x);
    x->target = engine_target(x);
    x->tries = 0;
    lar_exchange_aim(x);
    lar_exchange_move(x, EXCHANGE_BACKOFF);
    lar_exchange_attempt(x);
    return true;
}

const lar_serving_begun *lar_exchange_begun(const lar_exchange *x) {
    return asked(x->continuation) ? &x->continuation->begun : NULL;
}

uint32_t lar_exchange_begun_total_ms(const lar_exchange *x) {
    return asked(x->continuation) ? x->config->upstreams[x->continuation->from].total_timeout_ms : 0;
}

/* -- the engine's answer ------------------------------------------------------------------------------------------ */

static int64_t begun_tokens_of(const lar_http1_head *h) {
    lar_slice digits = lar_http1_get(h, LAR_BEGUN_TOKENS_FIELD);
    int64_t n = 0;
    for (size_t i = 0; i < digits.len; i++) n = n * 10 + (digits.ptr[i] - '0');
    return n;
}

void lar_exchange_continued(lar_exchange *x) {
    const lar_http1_head *h = lar_lease_head(&x->lease);
    continuation *c = x->continuation;
    lar_gateway *g = x->loop->gateway;
    lar_exchange_move(x, EXCHANGE_RELAY);
    if (h->status != 200) { /* what it cannot do; its reasons are about a request that the client did not make */
        LAR_LOG(g->log, LAR_LOG_INFO, "not_continued", LAR_F_CSTR("request_id", x->request_id),
                LAR_F_CSTR("upstream", x->upstream->name), LAR_F_INT("status", h->status));
        lar_exchange_fail(x, c->error, c->detail);
        return;
    }
    c->phase = GOING_ON;
    c->begun_tokens = begun_tokens_of(h);
    LAR_LOG(g->log, LAR_LOG_INFO, "continued", LAR_F_CSTR("request_id", x->request_id),
            LAR_F_CSTR("upstream", x->config->upstreams[c->from].name), LAR_F_CSTR("by", x->upstream->name),
            LAR_F_CSTR("error", lar_error_name(c->error)), LAR_F_INT("begun_tokens", c->begun_tokens));
    lar_metrics_add(g->metrics, LAR_METRIC_CONTINUED_TOTAL, 1);
    atomic_fetch_add_explicit(&x->set->standings[c->from]->continued, 1, memory_order_relaxed);
    lar_exchange_wait(x, x->upstream->first_event_timeout_ms);
}

void lar_exchange_not_continued(lar_exchange *x, lar_error *e, const char **detail) {
    const continuation *c = x->continuation;
    if (!c || c->phase != ASKED) return;
    lar_exchange_attempt_over(x);
    x->target = c->target_before;
    lar_exchange_aim(x);
    *e = c->error;
    *detail = c->detail;
}

/* The upstream is the one that the request went to; what it took from its cache is not known. */
void lar_exchange_continuation_record(lar_exchange *x) {
    const continuation *c = x->continuation;
    lar_journal_record *r = &x->record;
    if (!asked(c)) return;
    x->target = c->target_before;
    if (c->phase != GOING_ON) return;
    (void)snprintf(r->continued, sizeof r->continued, "%.*s", LAR_FMT(c->begun.to));
    r->begun_output = c->begun_tokens;
    r->tokens.hit = r->tokens.miss = r->tokens.write = LAR_TOKENS_UNKNOWN;
}
