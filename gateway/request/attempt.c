/* Whom a request goes to, and what happens when that fails: targets, attempts, waits, the next target.
 * Flow: prepare.c asks for the targets; lar_exchange_attempt sends to the present one; every failure before content
 * comes to lar_exchange_recover, which goes on (a wait, or the next target) or leaves the answer to the caller. Loop
 * thread; never blocks.
 * Invariants: 1. a target is asked at most retry.attempts times, and another time only where failure.def allows it:
 * what may have been executed is never sent to the same upstream again. 2. nothing is sent again once a byte of an
 * answer went to the client. 3. every leave that a breaker gave is answered once. 4. the number of attempts is bounded
 * by targets and retry.attempts. Memory: the exchange's. Not here: which failure is which class (failure.def). */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/ensure.h"
#include "gateway/health/replica.h"
#include "gateway/request/exchange.h"
#include "gateway/resident/engine_pool.h"

enum { BACKOFF_MS_MAX = 60000, BYTES_A_TOKEN = 4, SWITCH_MS_PER_1000_TOKENS = 50 };

static lar_standing *standing(const lar_exchange *x) { return x->set->standings[x->upstream_index]; }

/* -- targets ------------------------------------------------------------------------------------------------------ */

/* The opening of a conversation: what all its requests have in common. */
static uint64_t conversation(const lar_exchange *x) {
    lar_hash h = lar_hash_of(lar_slice_of((const char *)x->scope.bytes, sizeof x->scope.bytes));
    uint64_t head = x->canon.prefix_hash;
    h = lar_hash_chain(h, lar_slice_of((const char *)&head, sizeof head));
    for (uint32_t i = 0; i < x->view.segment_count; i++) {
        if (x->view.segments[i].role == LAR_ROLE_SYSTEM) continue;
        h = lar_hash_chain(h, lar_json_raw(&x->loop->json, x->view.segments[i].node));
        break;
    }
    return lar_hash_low(h);
}

static void add_target(lar_exchange *x, const lar_target *t) {
    LAR_ASSERT(x->target_count < LAR_ROUTE_TARGETS_MAX); /* config_fallback.c counts them */
    x->targets[x->target_count++] = *t;
}

/* All replicas of the group that begins at `to`, the one that the conversation is at first. */
static void add_group(lar_exchange *x, lar_target to) {
    const uint32_t first = to.upstream;
    lar_replica replicas[LAR_REPLICAS_MAX];
    uint32_t index[LAR_REPLICAS_MAX], order[LAR_REPLICAS_MAX], count = 0;
    const lar_config *c = x->config;
    if (!c->upstreams[first].replica_next) {
        add_target(x, &to);
        return;
    }
    for (uint32_t i = first; count < LAR_REPLICAS_MAX; i = c->upstreams[i].replica_next) {
        lar_standing *s = x->set->standings[i];
        lar_breaker_look look = lar_breaker_look_at(s->breaker, lar_clock_mono_ms());
        replicas[count] = (lar_replica){.id = s->id,
                                        .load = atomic_load_explicit(&s->load, memory_order_relaxed),
                                        .weight = 1,
                                        .well = look.state != LAR_BREAKER_OPEN};
        index[count++] = i;
        if (!c->upstreams[i].replica_next) break;
    }
    uint64_t prefix = x->canon.prefix_hash ? x->canon.prefix_hash : x->record.request_id;
    lar_replica_order(prefix, replicas, count, c->upstreams[first].replica_slack_percent, order);
    uint16_t stays = x->understood ? lar_sticky_get(&x->loop->gateway->standings, x->conversation) : 0;
    uint32_t home = 0; /* in `order` */
    while (stays && home < count && ((uint16_t)replicas[order[home]].id != stays || !replicas[order[home]].well))
        home++;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = home == count ? i : i == 0 ? home : i <= home ? i - 1 : i;
        to.upstream = index[order[at]];
        add_target(x, &to);
    }
}

static bool can_answer(const lar_exchange *x, uint32_t upstream) {
    lar_diag d;
    return x->config->upstreams[upstream].kind != LAR_UPSTREAM_KIND_ENGINE ||
           lar_engine_pool_serves(x->head->method, x->route.path, &d) == LAR_OK;
}

void lar_exchange_choose(lar_exchange *x) {
    const lar_route_config *rule = x->rule;
    x->target_count = x->target = 0;
    x->conversation = x->understood ? conversation(x) : 0;
    add_group(x, (lar_target){.upstream = x->first_upstream, .model = ""});
    for (uint32_t i = 0; x->understood && rule && i < rule->fallback_count; i++)
        if (can_answer(x, rule->fallbacks[i].upstream))
            add_group(x, (lar_target){rule->fallbacks[i].upstream, i + 1, rule->fallbacks[i].model});
    lar_exchange_aim(x);
}

void lar_exchange_aim(lar_exchange *x) {
    x->upstream_index = x->targets[x->target].upstream;
    x->upstream = &x->config->upstreams[x->upstream_index];
}

/* -- accounts ------------------------------------------------------------------------------------------------------ */

static void close_leave(lar_exchange *x, lar_breaker_outcome outcome, uint32_t pause_ms) {
    if (!x->leave_open) return;
    uint64_t now = lar_clock_mono_ns();
    bool content = outcome == LAR_OUTCOME_OK;
    lar_breaker_end end = {.leave = x->leave,
                           .asked_ms = x->attempt_ns / 1000000u,
                           .outcome = outcome,
                           .first_ms = content ? (uint32_t)((now - x->attempt_ns) / 1000000u) : UINT32_MAX,
                           .pause_ms = pause_ms};
    x->leave_open = false;
    lar_breaker_tell(standing(x)->breaker, now / 1000000u, &end);
}

static void count_load(lar_exchange *x, bool on) {
    if (x->loaded == on) return;
    x->loaded = on;
    if (on) atomic_fetch_add_explicit(&standing(x)->load, 1, memory_order_relaxed);
    else atomic_fetch_sub_explicit(&standing(x)->load, 1, memory_order_relaxed);
}

void lar_exchange_attempt_well(lar_exchange *x) {
    if (!x->leave_open) return;
    close_leave(x, LAR_OUTCOME_OK, 0);
    bool replica = x->upstream->group != x->upstream->name || x->upstream->replica_next;
    if (x->understood && replica) lar_sticky_set(&x->loop->gateway->standings, x->conversation, standing(x)->id);
}

void lar_exchange_attempt_over(lar_exchange *x) {
    close_leave(x, LAR_OUTCOME_NONE, 0);
    count_load(x, false);
}

/* Twice as long each time, up to half of it less by chance. */
static uint32_t backoff_ms(const lar_exchange *x) {
    uint64_t ms = (uint64_t)x->upstream->retry_backoff_ms << (x->tries > 16 ? 16 : x->tries ? x->tries - 1 : 0);
    if (ms > BACKOFF_MS_MAX) ms = BACKOFF_MS_MAX;
    uint64_t seed[2] = {x->record.request_id, x->attempts};
    uint64_t chance = lar_hash_low(lar_hash_of(lar_slice_of((const char *)seed, sizeof seed)));
    return (uint32_t)(ms - chance % (ms / 2 + 1));
}

/* A 429 for the client's own credential says nothing of other clients; a model in this process has a queue of its own
 * that says so at each request. */
static bool concerns_others(const lar_exchange *x) {
    if (x->upstream->kind == LAR_UPSTREAM_KIND_ENGINE) return false;
    return x->status != 429 || x->upstream->key[0] || x->config->key_count;
}

static void tell_failure(lar_exchange *x, lar_failure f, uint32_t wait_ms) {
    lar_breaker_outcome outcome = LAR_OUTCOME_NONE;
    if (lar_failure_info_of(f)->counts && concerns_others(x))
        outcome = f == LAR_FAILURE_REFUSED && wait_ms ? LAR_OUTCOME_REFUSED : LAR_OUTCOME_FAILED;
    else if (f == LAR_FAILURE_CLIENT || f == LAR_FAILURE_TOO_LONG) outcome = LAR_OUTCOME_OK;
    if (f == LAR_FAILURE_BROKEN_LATE && !x->leave_open && x->attempts) { /* its content was told as good */
        x->leave = LAR_LEAVE_YES;
        x->leave_open = true;
    }
    close_leave(x, outcome, wait_ms);
    count_load(x, false);
    if (lar_failure_info_of(f)->counts && x->conversation)
        lar_sticky_forget(&x->loop->gateway->standings, x->conversation);
}

static void note_wait(lar_exchange *x, uint32_t ms) {
    if (ms && (!x->wait_ms || ms < x->wait_ms)) x->wait_ms = ms;
}

/* -- what now? ----------------------------------------------------------------------------------------------------*/

uint32_t lar_exchange_left_ms(const lar_exchange *x) {
    uint64_t gone = (lar_clock_mono_ns() - x->start_ns) / 1000000u, left = UINT32_MAX;
    uint32_t limits[3] = {x->rule && x->understood && !lar_exchange_has_begun(x) ? x->rule->deadline_ms : 0,
                          x->upstream->total_timeout_ms, lar_exchange_begun_total_ms(x)};
    for (int i = 0; i < 3; i++)
        if (limits[i] && (gone >= limits[i] ? 0 : limits[i] - gone) < left)
            left = gone >= limits[i] ? 0 : limits[i] - gone;
    return (uint32_t)left;
}

typedef struct decision {
    bool again, next; /* the same target after wait_ms; the next target */
    uint32_t wait_ms;
} decision;

/* How long waiting for this upstream is better than switching: what its cache holds of the prompt must be computed anew
 * elsewhere. */
static uint32_t patience_ms(const lar_exchange *x, bool next) {
    uint64_t warm = x->canon.known_bytes / BYTES_A_TOKEN * SWITCH_MS_PER_1000_TOKENS / 1000;
    uint32_t most = x->upstream->retry_wait_ms;
    return next && warm < most ? (uint32_t)warm : most;
}

static decision decide(const lar_exchange *x, lar_failure f, uint32_t wait_ms) {
    const lar_failure_info *info = lar_failure_info_of(f);
    decision d = {.next = info->other && x->target + 1 < x->target_count};
    uint32_t left = lar_exchange_left_ms(x);
    bool pooled = f == LAR_FAILURE_NOT_SENT && x->lease.reused;
    if (left == 0) return (decision){0};
    if (x->tries >= x->upstream->retry_attempts && !(pooled && x->tries == 1)) return d;
    d.wait_ms = pooled ? 0 : wait_ms ? wait_ms : backoff_ms(x);
    if (info->same == LAR_RESEND_YES) d.again = pooled || !d.next;
    /* a refusal that names no time is the client's to repeat, which most of them do by themselves */
    if (info->same == LAR_RESEND_LATER) d.again = wait_ms && wait_ms <= patience_ms(x, d.next);
    d.again = d.again && d.wait_ms < left && (pooled || lar_breaker_retry(standing(x)->breaker, lar_clock_mono_ms()));
    return d;
}

bool lar_exchange_may_recover(const lar_exchange *x) {
    return !x->head_sent && (x->target + 1 < x->target_count || x->tries < x->upstream->retry_attempts);
}

/* Nothing of the answer of the last attempt stays. */
static void forget_answer(lar_exchange *x) {
    if (lar_lease_at_end(&x->lease)) lar_lease_release(&x->lease); /* read to its end: the connection is still good */
    else lar_lease_cancel(&x->lease);
    lar_exchange_forget_output(x);
    x->held.len = x->copy.len = x->early.len = x->out_head.len = 0;
    lar_sse_reset(&x->sse);
    lar_usage_reset(&x->usage, lar_profile_get(x->upstream->profile)->usage_rule);
    x->relay = RELAY_RAW;
    x->last_cr = x->chunked_out = x->answer_whole = x->no_body = x->copy_given_up = x->paused = x->holding = false;
    x->lease.fresh_only = x->lease.reused = x->queued = false;
    x->keep_alive = x->head->keep_alive;
    x->status = x->record.status = 0;
}

/* Prepared for the next target that this can be done for; false: there is none. */
static bool take_next(lar_exchange *x) {
    uint64_t known = x->canon.known_bytes;
    while (x->target + 1 < x->target_count) {
        lar_diag d = {{0}, 0, 0};
        x->target++;
        x->tries = 0;
        lar_exchange_aim(x);
        if (lar_exchange_prepare(x, &d) != LAR_OK) continue;
        uint64_t kept = x->canon.known_bytes;
        if (known > kept) x->cold_tokens += (uint32_t)((known - kept) / BYTES_A_TOKEN);
        return true;
    }
    return false;
}

bool lar_exchange_recover(lar_exchange *x, lar_failure f, uint32_t wait_ms) {
    tell_failure(x, f, wait_ms);
    note_wait(x, wait_ms);
    if (f == LAR_FAILURE_NONE || x->state == EXCHANGE_DRAIN || x->loop->stopping) return false;
    atomic_fetch_add_explicit(&standing(x)->failures[f], 1, memory_order_relaxed);
    if (x->failure == LAR_FAILURE_NONE && f != LAR_FAILURE_CLIENT) x->failure = f;
    if (x->head_sent) return false;
    decision d = decide(x, f, wait_ms);
    if (!d.again && !d.next) return false;
    lar_gateway *g = x->loop->gateway;
    LAR_LOG(g->log, LAR_LOG_INFO, d.again ? "repeated" : "fallback", LAR_F_CSTR("request_id", x->request_id),
            LAR_F_CSTR("upstream", x->upstream->name), LAR_F_CSTR("failure", lar_failure_info_of(f)->name),
            LAR_F_INT("status", x->status), LAR_F_INT("wait_ms", d.again ? d.wait_ms : 0));
    lar_metrics_add(g->metrics, d.again ? LAR_METRIC_REPEATED_TOTAL : LAR_METRIC_FALLBACK_TOTAL, 1);
    atomic_fetch_add_explicit(d.again ? &standing(x)->repeated : &standing(x)->fallback, 1, memory_order_relaxed);
    bool pooled = d.again && x->lease.reused && f == LAR_FAILURE_NOT_SENT;
    forget_answer(x);
    lar_exchange_move(x, EXCHANGE_BACKOFF);
    if (!d.again && !take_next(x)) {
        lar_exchange_fail(x, LAR_UPSTREAM_RESTING, "no further upstream can take this request");
        return true;
    }
    x->lease.fresh_only = pooled;
    if (d.again && d.wait_ms) lar_deadline_set(&x->deadline, d.wait_ms);
    else lar_exchange_attempt(x);
    return true;
}

static lar_attempt_stage stage(const lar_exchange *x) {
    switch (x->state) {
    case EXCHANGE_WAIT_HEAD: return x->unsent ? LAR_ATTEMPT_UNSENT : LAR_ATTEMPT_SENT;
    case EXCHANGE_RELAY: return x->usage.content_seen || x->head_sent ? LAR_ATTEMPT_CONTENT : LAR_ATTEMPT_HEAD;
    default: return LAR_ATTEMPT_UNSENT;
    }
}

bool lar_exchange_recover_error(lar_exchange *x, lar_error e) {
    return lar_exchange_recover(x, lar_failure_of_error(e, stage(x)), 0);
}

void lar_exchange_failed(lar_exchange *x, lar_error e, const char *detail) {
    lar_slice why = lar_arena_copy(&x->arena, lar_slice_cstr(detail)); /* of a lease that recovering gives up */
    if (!lar_exchange_recover_error(x, e)) lar_exchange_fail(x, e, why.ptr ? why.ptr : "");
}

void lar_exchange_attempt(lar_exchange *x) {
    uint32_t wait_ms = 0;
    bool last = x->target + 1 == x->target_count;
    lar_breaker *b = standing(x)->breaker;
    lar_exchange_move(x, EXCHANGE_WAIT_CONN);
    x->unsent = true;
    x->attempt_ns = lar_clock_mono_ns();
    x->leave = last ? lar_breaker_ask_last(b, lar_clock_mono_ms(), &wait_ms)
                    : lar_breaker_ask(b, lar_clock_mono_ms(), &wait_ms);
    if (x->leave == LAR_LEAVE_NO) {
        x->tries = x->upstream->retry_attempts; /* not to be asked again */
        if (!lar_exchange_recover(x, LAR_FAILURE_CROWDED, wait_ms)) lar_exchange_fail(x, LAR_UPSTREAM_RESTING, "");
        return;
    }
    x->leave_open = true;
    x->attempts++;
    atomic_fetch_add_explicit(&standing(x)->attempts, 1, memory_order_relaxed);
    x->tries++;
    count_load(x, true);
    lar_exchange_wait(x, x->upstream->connect_timeout_ms);
    lar_error e = lar_lease_acquire(x->set->pools[x->upstream_index], &x->lease);
    if (e) lar_exchange_failed(x, e, "");
}

/* -- what the client reads of it ----------------------------------------------------------------------------------*/

lar_error lar_exchange_attempt_fields(const lar_exchange *x, lar_buf *out) {
    lar_error e = LAR_OK;
    if (x->target_count > 1 && x->attempts) e = lar_buf_printf(out, "x-larder-served-by: %s\r\n", x->upstream->name);
    if (!e && x->failure != LAR_FAILURE_NONE && x->attempts)
        e = lar_buf_printf(out, "x-larder-attempts: %u\r\nx-larder-failure: %s\r\n", (unsigned)x->attempts,
                           lar_failure_info_of(x->failure)->name);
    if (!e && x->cold_tokens) e = lar_buf_printf(out, "x-larder-cold-tokens: %u\r\n", (unsigned)x->cold_tokens);
    return e;
}
