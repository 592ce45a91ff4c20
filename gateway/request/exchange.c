/* The life of an exchange: taken, begun, fed, run, led by the events of its lease and its deadline.
 * Flow: client.c -> begin/body/run -> prepare.c -> lease -> relay.c -> finish.c. Loop thread only; never blocks.
 * Invariants: 1. every exchange that begins ends in exactly one journal record. 2. states change only through
 * lar_exchange_move. 3. after lar_exchange_fail, _finish or _answer the exchange may be free: callers return.
 * Memory: arena and buffers are kept for the next request, up to a limit. */
#include "gateway/request/exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/ensure.h"
#include "gateway/request/client.h"

enum {
    KEEP_BODY_BYTES = 1 << 20,
    KEEP_ARENA_BYTES = 256 << 10,
    KEEP_HELD_BYTES = 64 << 10,
    SSE_EVENT_BYTES_MAX = 8 << 20,
    ARENA_EXTRA_BYTES = 4 << 20,
    ROOM_BYTES_MIN = 32 << 10,
    AFTER_LAST_MS = 100
};

#define TO(state) (1u << EXCHANGE_##state)
static const uint16_t moves[EXCHANGE_STATE_COUNT] = {
    [EXCHANGE_BODY] = TO(RECALL) | TO(SHARE) | TO(REPLAY) | TO(WAIT_CONN) | TO(DONE),
    [EXCHANGE_RECALL] = TO(SHARE) | TO(REPLAY) | TO(WAIT_CONN) | TO(DONE),
    [EXCHANGE_SHARE] = TO(REPLAY) | TO(WAIT_CONN) | TO(DONE),
    [EXCHANGE_REPLAY] = TO(DONE),
    [EXCHANGE_WAIT_CONN] = TO(WAIT_HEAD) | TO(BACKOFF) | TO(DONE),
    [EXCHANGE_BACKOFF] = TO(WAIT_CONN) | TO(DONE),
    [EXCHANGE_WAIT_HEAD] = TO(RELAY) | TO(BACKOFF) | TO(DONE),
    [EXCHANGE_RELAY] = TO(DRAIN) | TO(BACKOFF) | TO(DONE),
    [EXCHANGE_DRAIN] = TO(DONE),
    [EXCHANGE_DONE] = TO(BODY),
};
#undef TO

void lar_exchange_move(lar_exchange *x, exchange_state to) {
    LAR_ASSERT(moves[x->state] & (1u << to));
    x->state = to;
}

static void on_lease(void *owner, const lar_lease_event *e);
static void on_due(void *owner);

lar_exchange *lar_exchange_take(lar_loop *l) {
    lar_exchange *x = l->spare;
    if (x) {
        l->spare = x->spare_next;
        l->spare_count--;
        x->spare_next = NULL;
        return x;
    }
    const lar_config *c = l->set->generation->config;
    x = calloc(1, sizeof *x);
    if (!x) return NULL;
    x->loop = l;
    x->state = EXCHANGE_DONE;
    lar_deadline_init(&x->deadline, &l->uv, on_due, x);
    /* nodes of a body are at most a fraction of it; the arena holds replacements and views */
    lar_arena_init(&x->arena, c->body_bytes_max * 4 + ARENA_EXTRA_BYTES);
    lar_buf_init(&x->body, c->body_bytes_max);
    lar_buf_init(&x->held, (size_t)SSE_EVENT_BYTES_MAX + (64u << 10));
    lar_buf_init(&x->copy, 8u << 20);
    lar_buf_init(&x->early, 16u << 20);
    lar_buf_init(&x->up_head, 256u << 10);
    lar_buf_init(&x->out_head, 256u << 10);
    lar_sse_init(&x->sse, SSE_EVENT_BYTES_MAX);
    lar_usage_init(&x->usage, LAR_USAGE_BY_SPELLING);
    lar_lease_init(&x->lease, on_lease, x);
    lar_exchange_answers_init(x);
    return x;
}

static void on_freed(uv_handle_t *h) {
    lar_exchange *x = (lar_exchange *)h;
    lar_arena_release(&x->arena);
    lar_buf_release(&x->body);
    lar_buf_release(&x->held);
    lar_buf_release(&x->copy);
    lar_buf_release(&x->early);
    lar_buf_release(&x->up_head);
    lar_buf_release(&x->out_head);
    lar_sse_release(&x->sse);
    lar_usage_release(&x->usage);
    lar_exchange_answers_release(x);
    free(x);
}

void lar_exchange_free(lar_exchange *x) { lar_deadline_close(&x->deadline, on_freed); }

void lar_exchange_free_spares(lar_loop *l) {
    while (l->spare) {
        lar_exchange *x = l->spare;
        l->spare = x->spare_next;
        lar_exchange_free(x);
    }
    l->spare_count = 0;
}

void lar_exchange_recycle(lar_exchange *x) {
    LAR_ASSERT(x->state == EXCHANGE_DONE && !x->lease.pool && !x->lease.held);
    lar_loop *l = x->loop;
    lar_deadline_clear(&x->deadline);
    if (l->pools_closed || l->spare_count >= LAR_SPARE_EXCHANGES_MAX) {
        lar_exchange_free(x);
        return;
    }
    lar_arena_reset(&x->arena, KEEP_ARENA_BYTES);
    lar_buf_reset(&x->body, KEEP_BODY_BYTES);
    lar_buf_reset(&x->held, KEEP_HELD_BYTES);
    lar_buf_reset(&x->copy, KEEP_HELD_BYTES);
    lar_buf_reset(&x->early, KEEP_HELD_BYTES);
    lar_buf_reset(&x->up_head, KEEP_HELD_BYTES);
    lar_buf_reset(&x->out_head, KEEP_HELD_BYTES);
    lar_sse_reset(&x->sse);
    lar_usage_reset(&x->usage, LAR_USAGE_BY_SPELLING);
    lar_exchange_answers_recycle(x);
    x->spare_next = l->spare;
    l->spare = x;
    l->spare_count++;
}

static void clear(lar_exchange *x) {
    x->route = (lar_route){0};
    x->cors = (lar_slice){NULL, 0};
    x->allow = "";
    x->budget_bytes = 0;
    x->understood = x->head_request = x->client_is_10 = x->keep_alive = false;
    x->upstream = NULL;
    x->rule = NULL;
    x->lease.fresh_only = x->lease.reused = false;
    x->ask = (lar_shared_ask){.link = x->loop->shared, .on_done = lar_exchange_on_recalled, .owner = x};
    x->recall_rounds = 0;
    x->mended = 0;
    x->queued = x->paused = x->copy_given_up = x->holding = false;
    x->target_count = x->target = x->tries = x->attempts = x->wait_ms = x->cold_tokens = 0;
    x->failure = LAR_FAILURE_NONE;
    x->leave_open = x->loaded = x->unsent = false;
    x->relay = RELAY_RAW;
    x->last_cr = x->head_sent = x->chunked_out = x->answer_whole = x->no_body = false;
    x->status = 0;
    x->first_byte_ns = x->due_ns = 0;
    x->error = LAR_OK;
}

static void begin_record(lar_exchange *x) {
    static const lar_tokens unknown = {LAR_TOKENS_UNKNOWN, LAR_TOKENS_UNKNOWN, LAR_TOKENS_UNKNOWN,
                                       LAR_TOKENS_UNKNOWN, LAR_TOKENS_UNKNOWN, LAR_TOKENS_UNKNOWN};
    x->record = (lar_journal_record){.time_ms = lar_clock_wall_ms(),
                                     .tokens = unknown,
                                     .raw = unknown,
                                     .predicted_hit = LAR_TOKENS_UNKNOWN,
                                     .begun_output = LAR_TOKENS_UNKNOWN,
                                     .ttft_us = LAR_TOKENS_UNKNOWN};
    x->start_ns = lar_clock_mono_ns();
}

/* CORS preflight (WHATWG Fetch 4.8), or plain OPTIONS: says what is allowed, enters no handler (H-42, H-43). */
static void answer_options(lar_exchange *x, const char *allow) {
    lar_slice fields = lar_arena_printf(&x->arena, "Allow: %s\r\n", allow);
    if (x->cors.len) {
        lar_slice want = lar_http1_get(x->head, "access-control-request-headers");
        fields = lar_arena_printf(&x->arena,
                                  "Allow: %s\r\nAccess-Control-Allow-Methods: %s\r\n"
                                  "Access-Control-Allow-Headers: %.*s\r\nAccess-Control-Max-Age: 600\r\n",
                                  allow, allow, want.len ? (int)want.len : 1, want.len ? want.ptr : "*");
    }
    lar_exchange_answer(x, 204, fields.ptr ? fields.ptr : "", (lar_slice){NULL, 0}, LAR_END_COMPLETE);
}

static void start(lar_exchange *x, lar_client *c, const lar_http1_head *h) {
    lar_exchange_move(x, EXCHANGE_BODY);
    clear(x);
    x->client = c;
    x->head = h;
    x->set = x->loop->set;
    x->set->users++;
    x->config = x->set->generation->config;
    lar_exchange_answers_clear(x);
    x->body.max = x->config->body_bytes_max;
    x->arena.limit = x->config->body_bytes_max * 4 + ARENA_EXTRA_BYTES;
    begin_record(x);
    uint64_t id[2] = {x->loop->id_state += 0x9e3779b97f4a7c15u, x->loop->index};
    uint64_t mixed = lar_hash_low(lar_hash_of(lar_slice_of((const char *)id, sizeof id)));
    x->record.request_id = mixed;
    memcpy(x->request_id, "lr-", 3);
    for (int i = 0; i < 16; i++) x->request_id[3 + i] = "0123456789abcdef"[mixed >> (60 - 4 * i) & 15];
    x->request_id[19] = 0;
    lar_metrics_add(x->loop->gateway->metrics, LAR_METRIC_REQUESTS_ACTIVE, 1);
}

void lar_exchange_begin_damaged(lar_exchange *x, lar_client *c, const lar_http1_head *h) {
    start(x, c, h);
    x->route.name = "damaged";
}

lar_error lar_exchange_begin(lar_exchange *x, lar_client *c, const lar_http1_head *h) {
    lar_gateway *g = x->loop->gateway;
    start(x, c, h);
    x->head_request = h->method_id == LAR_HTTP1_HEAD;
    x->client_is_10 = h->minor == 0;
    x->keep_alive = h->keep_alive;
    x->cors = lar_route_cors(x->config, h);
    const char *allow = "";
    lar_error e = lar_route_host(x->config, h, x->set->generation->loopback_only);
    if (!e) e = lar_route_find(x->config, h, &x->route, &allow);
    if (e == LAR_METHOD && h->method_id == LAR_HTTP1_OPTIONS) {
        answer_options(x, allow);
        return LAR_METHOD;
    }
    if (e == LAR_METHOD) {
        x->allow = allow;
        lar_slice f = lar_arena_printf(&x->arena, "allowed: %s", allow);
        lar_exchange_fail(x, e, f.ptr ? f.ptr : "");
        return e;
    }
    if (!e) e = lar_route_origin(h, x->set->generation->loopback_only && !x->cors.len);
    lar_tenant tenant = {0};
    if (!e) e = lar_route_tenant_memo(x->config, h, &g->process_salt, &x->set->tenants, &tenant);
    x->record.tenant = tenant.fingerprint;
    x->scope = tenant.scope;
    if (!e && g->stopping) e = LAR_SHUTDOWN;
    if (e == LAR_UNAUTHORIZED) lar_exchange_fail(x, e, "send a key of this gateway as 'Authorization: Bearer KEY'");
    else if (e == LAR_FORBIDDEN) lar_exchange_fail(x, e, "a web page of another host; list it in cors.origins");
    else if (e) lar_exchange_fail(x, e, "");
    return e;
}

struct iovec lar_exchange_body_room(lar_exchange *x) {
    struct iovec none = {NULL, 0};
    if (!x->head->has_length || x->head->length > x->body.cap || x->head->length <= x->body.len) return none;
    size_t left = (size_t)x->head->length - x->body.len;
    return left < ROOM_BYTES_MIN ? none : (struct iovec){x->body.ptr + x->body.len, left};
}

static lar_error add_body(lar_exchange *x, lar_slice part) {
    if (x->body.ptr && part.ptr == x->body.ptr + x->body.len) { /* read to where it belongs */
        x->body.len += part.len;
        return LAR_OK;
    }
    return lar_buf_add_slice(&x->body, part);
}

bool lar_exchange_budget(lar_exchange *x, size_t bytes) {
    lar_gateway *g = x->loop->gateway;
    long long held = atomic_fetch_add_explicit(&g->buffered_bytes, (long long)bytes, memory_order_relaxed);
    x->budget_bytes += bytes;
    return held + (long long)bytes <= (long long)x->config->buffer_bytes_max;
}

lar_error lar_exchange_body(lar_exchange *x, lar_slice part) {
    lar_error e = lar_exchange_budget(x, part.len) ? LAR_OK : LAR_NO_MEMORY;
    /* one allocation where the length is known; a client that only promises gets no more than it sends, at first */
    if (!e && !x->body.len && x->head->has_length && x->head->length <= KEEP_BODY_BYTES)
        e = lar_buf_reserve(&x->body, (size_t)x->head->length);
    if (!e) e = add_body(x, part);
    if (e == LAR_LIMIT) e = LAR_HTTP_BODY_LARGE;
    if (e) lar_exchange_fail(x, e, "");
    return e;
}

void lar_exchange_send(lar_exchange *x, lar_error e, const lar_diag *d) {
    if (!e) {
        lar_exchange_count_prepared(x);
        lar_exchange_note_prefix(x);
        if (!lar_exchange_answers_ask(x)) lar_exchange_attempt(x);
        return;
    }
    lar_slice text = lar_arena_copy(&x->arena, lar_slice_cstr(d->text));
    lar_exchange_fail(x, e, text.ptr ? text.ptr : "");
}

void lar_exchange_run(lar_exchange *x) {
    lar_diag d = {{0}, 0, 0};
    lar_error e = lar_exchange_prepare(x, &d);
    if (!e && lar_exchange_recall(x)) return;
    lar_exchange_send(x, e, &d);
}

void lar_exchange_refuse(lar_exchange *x, lar_error e, const lar_diag *d) { lar_exchange_fail(x, e, d ? d->text : ""); }

/* The shortest of `ms`, what is left of the whole, and, while events are held, what is left of that. */
void lar_exchange_wait(lar_exchange *x, uint32_t ms) {
    uint64_t now = lar_clock_mono_ns();
    uint32_t left = lar_exchange_left_ms(x);
    if (left < ms) ms = left ? left : 1;
    x->due_ns = now + (uint64_t)ms * 1000000u;
    if (x->holding) {
        uint64_t hold = x->hold_ns > now ? (x->hold_ns - now) / 1000000u + 1 : 1;
        if (hold < ms) ms = (uint32_t)hold;
    }
    lar_deadline_set(&x->deadline, ms);
}

/* Kept prefixes of a model in this process are apart where recall memory is. */
lar_digest lar_exchange_prefix_scope(const lar_exchange *x) {
    const char *field = x->config->scope_header;
    lar_digest both[2] = {x->scope, {{0}}};
    if (!*field) return x->scope;
    both[1] = lar_digest_of(lar_http1_get(x->head, field));
    return lar_digest_of(lar_slice_of((const char *)both, sizeof both));
}

static void send_request(lar_exchange *x) {
    bool unsent = true;
    lar_digest scope = lar_exchange_prefix_scope(x);
    if (x->lease.reused) x->record.flags |= LAR_JREC_REUSED;
    lar_lease_request r = {.iov = x->iov,
                           .count = x->iov_count,
                           .method = x->head->method,
                           .path = x->route.path,
                           .to_head_request = x->head_request,
                           .scope = &scope,
                           .tenant = x->record.tenant,
                           .id = x->record.request_id,
                           .begun = lar_exchange_begun(x)};
    lar_error e = lar_lease_send(&x->lease, &r, &unsent);
    lar_exchange_move(x, EXCHANGE_WAIT_HEAD);
    if (e && unsent && x->lease.reused) { /* it had died; nothing of the request can have been executed */
        lar_exchange_failed(x, e, "");
        return;
    }
    x->unsent = false;
    /* after a failed write an early answer may still be on its way in: a short look for it */
    lar_exchange_wait(x, e ? 1000 : x->upstream->first_byte_timeout_ms);
}

static bool idempotent(const lar_exchange *x) {
    uint8_t m = x->head->method_id;
    return m == LAR_HTTP1_GET || m == LAR_HTTP1_HEAD || m == LAR_HTTP1_OPTIONS || m == LAR_HTTP1_PUT ||
           m == LAR_HTTP1_DELETE;
}

static void on_broken(lar_exchange *x, const lar_lease_event *e) {
    switch (x->state) {
    case EXCHANGE_WAIT_HEAD:
        /* a pooled connection that died under an idempotent request; a POST may have been executed */
        x->unsent |= e->error == LAR_UPSTREAM_CLOSED && x->lease.reused && idempotent(x);
        lar_exchange_failed(x, e->error, e->detail);
        return;
    case EXCHANGE_RELAY: lar_exchange_on_cut(x, e->error, e->detail); return;
    case EXCHANGE_DRAIN: lar_exchange_drained(x); return;
    default: LAR_UNREACHABLE("a lease broke in a state without one");
    }
}

static void on_lease(void *owner, const lar_lease_event *e) {
    lar_exchange *x = owner;
    switch (e->kind) {
    case LAR_LEASE_READY: send_request(x); return;
    case LAR_LEASE_FAILED: lar_exchange_failed(x, e->error, e->detail); return;
    case LAR_LEASE_HEAD: lar_exchange_on_head(x); return;
    case LAR_LEASE_BODY: lar_exchange_on_body(x, e->data); return;
    case LAR_LEASE_END: lar_exchange_on_end(x); return;
    case LAR_LEASE_BROKEN: on_broken(x, e); return;
    }
}

/* Connections have their own limit for connecting; this one is for the look-up of the name, and then for the queue. */
static void on_conn_due(lar_exchange *x) {
    if (lar_pool_resolving(x->set->pools[x->upstream_index])) {
        lar_exchange_failed(x, LAR_UPSTREAM_CONNECT_TIMEOUT, "the look-up of its name takes too long");
    } else if (x->queued) {
        lar_exchange_failed(x, LAR_UPSTREAM_BUSY, "no connection became free");
    } else {
        x->queued = true;
        lar_exchange_wait(x, x->upstream->first_byte_timeout_ms);
    }
}

/* Held events have waited long enough, or what was waited for is late. Or neither: the loop's clock stands still during
 * a turn, so that its timers may be early, and a limit that is not quite over would leave time for another attempt. */
static void on_relay_due(lar_exchange *x) {
    uint64_t now = lar_clock_mono_ns();
    if (now >= x->due_ns || x->usage.done) {
        lar_exchange_on_cut(x, LAR_UPSTREAM_TIMEOUT, "");
        return;
    }
    uint32_t left = (uint32_t)((x->due_ns - now) / 1000000u) + 1;
    if (x->holding && now >= x->hold_ns) lar_exchange_let_go(x);
    if (x->state == EXCHANGE_RELAY) lar_exchange_wait(x, left);
}

/* The same of the head. */
static bool too_early(lar_exchange *x) {
    uint64_t now = lar_clock_mono_ns();
    if (x->state != EXCHANGE_WAIT_HEAD || now >= x->due_ns) return false;
    lar_deadline_set(&x->deadline, (x->due_ns - now) / 1000000u + 1);
    return true;
}

static void on_due(void *owner) {
    lar_exchange *x = owner;
    if (too_early(x)) return;
    switch (x->state) {
    case EXCHANGE_RECALL: lar_exchange_on_recall_due(x); return;
    case EXCHANGE_SHARE: lar_exchange_answers_due(x); return;
    case EXCHANGE_WAIT_CONN: on_conn_due(x); return;
    case EXCHANGE_BACKOFF: lar_exchange_attempt(x); return;
    case EXCHANGE_WAIT_HEAD: lar_exchange_failed(x, LAR_UPSTREAM_TIMEOUT, ""); return;
    case EXCHANGE_RELAY: on_relay_due(x); return;
    case EXCHANGE_DRAIN: lar_exchange_drained(x); return;
    default: return; /* an event of the same turn was first */
    }
}

void lar_exchange_client_drained(lar_exchange *x) {
    if (x->state == EXCHANGE_REPLAY) {
        lar_exchange_answers_replay(x);
        return;
    }
    if (!x->paused) return;
    x->paused = false;
    lar_lease_resume(&x->lease);
    if (x->state != EXCHANGE_RELAY) return;
    if (x->usage.done) lar_deadline_set(&x->deadline, AFTER_LAST_MS);
    else lar_exchange_wait(x, x->upstream->idle_timeout_ms);
}
