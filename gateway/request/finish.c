/* How an exchange ends: larder's own answers and errors, the journal record, metrics, the access line.
 * Called from every part of the exchange. Loop thread; never blocks (records are queued).
 * Invariant: exactly one record an exchange; no credential, prompt or answer in it or in the log. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/ensure.h"
#include "gateway/request/client.h"
#include "gateway/request/exchange.h"
#include "gateway/request/reply.h"
#include "policies/predict.h"

enum { DRAIN_MS = 500 };

/* -- accounts ---------------------------------------------------------------------------------------------- */

static void fill_usage(lar_exchange *x, lar_ending how) {
    lar_journal_record *r = &x->record;
    if (!x->understood || x->status < 200 || x->status > 299) return;
    if (lar_usage_tokens(&x->usage, &r->tokens) || x->usage.odd) r->flags |= LAR_JREC_USAGE_ODD;
    r->raw = x->usage.raw;
    r->spelling = (uint8_t)x->usage.spelling;
    if (how != LAR_END_COMPLETE) r->flags |= LAR_JREC_USAGE_PARTIAL;
}

/* What the provider could have read from its cache, had it kept all that was sent before (policies/predict.h). */
static void fill_prediction(lar_exchange *x) {
    lar_journal_record *r = &x->record;
    if (!x->canon_ran || r->continued[0] || r->tokens.prompt == LAR_TOKENS_UNKNOWN) return;
    const lar_provider *p = lar_profile_provider(x->upstream->profile);
    lar_prediction_in in = {.known_bytes = r->predicted_bytes,
                            .prompt_bytes = r->prompt_bytes,
                            .prompt_tokens = r->tokens.prompt,
                            .step_tokens = p ? p->step_tokens : 1,
                            .tokens_min = p ? lar_provider_tokens_min(p, lar_slice_cstr(r->model)) : 0};
    r->predicted_hit = lar_predict_hit(&in);
}

static void fill_attempts(lar_exchange *x) {
    lar_journal_record *r = &x->record;
    r->attempts = (uint8_t)(x->attempts < UINT8_MAX ? x->attempts : UINT8_MAX);
    r->target = x->target < x->target_count ? (uint8_t)x->targets[x->target].place : 0;
    r->cold_tokens = x->cold_tokens;
    if (x->failure != LAR_FAILURE_NONE)
        (void)snprintf(r->failure, sizeof r->failure, "%s", lar_failure_info_of(x->failure)->name);
}

static int64_t known(int64_t tokens) { return tokens == LAR_TOKENS_UNKNOWN ? 0 : tokens; }

static void count_prediction(lar_metrics *m, const lar_journal_record *r) {
    lar_metrics_add(m, LAR_METRIC_RECALL_HITS_TOTAL, r->recall_hits);
    lar_metrics_add(m, LAR_METRIC_RECALL_MISSES_TOTAL, r->recall_misses);
    lar_metrics_add(m, LAR_METRIC_PREDICTED_HIT_TOKENS_TOTAL, known(r->predicted_hit));
    if (r->predicted_hit == LAR_TOKENS_UNKNOWN || r->tokens.hit == LAR_TOKENS_UNKNOWN) return;
    int64_t drift = r->predicted_hit - r->tokens.hit;
    if (drift > 0) lar_metrics_add(m, LAR_METRIC_DRIFT_OVER_TOKENS_TOTAL, drift);
    else lar_metrics_add(m, LAR_METRIC_DRIFT_UNDER_TOKENS_TOTAL, -drift);
}

static void count(lar_exchange *x, lar_ending how) {
    lar_metrics *m = x->loop->gateway->metrics;
    const lar_journal_record *r = &x->record;
    lar_metrics_add(m, LAR_METRIC_REQUESTS_TOTAL, 1);
    lar_metrics_add(m, LAR_METRIC_REQUESTS_ACTIVE, -1);
    /* what the upstream refused as the client's fault is no failure of the upstream (RFC 9110 15.5) */
    bool clients_fault =
        how == LAR_END_UPSTREAM_ERROR && r->status >= 400 && r->status < 500 && r->status != 429 && r->status != 408;
    if (how == LAR_END_REFUSED || clients_fault) lar_metrics_add(m, LAR_METRIC_REQUESTS_CLIENT_ERROR_TOTAL, 1);
    if ((how == LAR_END_UPSTREAM_ERROR && !clients_fault) || how == LAR_END_UPSTREAM_FAILED)
        lar_metrics_add(m, LAR_METRIC_REQUESTS_UPSTREAM_ERROR_TOTAL, 1);
    if (how == LAR_END_CLIENT_GONE) lar_metrics_add(m, LAR_METRIC_REQUESTS_CANCELLED_TOTAL, 1);
    lar_metrics_add(m, LAR_METRIC_BYTES_OUT_TOTAL, (int64_t)r->response_bytes);
    lar_metrics_add(m, LAR_METRIC_PROMPT_TOKENS_TOTAL, known(r->tokens.prompt));
    lar_metrics_add(m, LAR_METRIC_HIT_TOKENS_TOTAL, known(r->tokens.hit));
    lar_metrics_add(m, LAR_METRIC_MISS_TOKENS_TOTAL, known(r->tokens.miss));
    lar_metrics_add(m, LAR_METRIC_OUTPUT_TOKENS_TOTAL, known(r->tokens.output));
    bool asked = !(r->flags & LAR_JREC_ANSWER_KEPT);
    if (x->understood && asked && how == LAR_END_COMPLETE && r->tokens.prompt == LAR_TOKENS_UNKNOWN)
        lar_metrics_add(m, LAR_METRIC_USAGE_UNKNOWN_TOTAL, 1);
    count_prediction(m, r);
    lar_metrics_observe(m, LAR_METRIC_REQUEST_SECONDS, (uint64_t)r->total_us);
    if (r->ttft_us >= 0) lar_metrics_observe(m, LAR_METRIC_FIRST_BYTE_SECONDS, (uint64_t)r->ttft_us);
}

static void access_line(const lar_exchange *x, lar_ending how) {
    const lar_gateway *g = x->loop->gateway;
    const lar_journal_record *r = &x->record;
    char tenant[20];
    (void)snprintf(tenant, sizeof tenant, "%016llx", (unsigned long long)r->tenant);
    LAR_LOG(g->log, LAR_LOG_INFO, "request", LAR_F_CSTR("request_id", x->request_id), LAR_F_CSTR("route", r->route),
            LAR_F_CSTR("upstream", r->upstream), LAR_F_CSTR("model", r->model),
            LAR_F_CSTR("tenant", r->tenant ? tenant : "-"), LAR_F_INT("status", r->status),
            LAR_F_CSTR("ending", lar_ending_name(how)),
            LAR_F_CSTR("error", r->error ? lar_error_name((lar_error)r->error) : "-"), LAR_F_INT("turn", r->turn),
            LAR_F_INT("prompt_tokens", r->tokens.prompt == LAR_TOKENS_UNKNOWN ? -1 : r->tokens.prompt),
            LAR_F_INT("hit_tokens", r->tokens.hit == LAR_TOKENS_UNKNOWN ? -1 : r->tokens.hit),
            LAR_F_INT("output_tokens", r->tokens.output == LAR_TOKENS_UNKNOWN ? -1 : r->tokens.output),
            LAR_F_INT("edits", r->edits), LAR_F_CSTR("cache", lar_exchange_answers_word(x)),
            LAR_F_INT("request_bytes", r->request_bytes), LAR_F_INT("response_bytes", r->response_bytes),
            LAR_F_MS("ttft_ms", r->ttft_us < 0 ? 0 : r->ttft_us), LAR_F_MS("total_ms", r->total_us));
}

/* Records and frees. The lease goes back if the answer was read to its end, else its connection is closed. */
static void settle(lar_exchange *x, lar_ending how) {
    lar_gateway *g = x->loop->gateway;
    lar_journal_record *r = &x->record;
    lar_shared_ask_cancel(&x->ask);
    r->ending = (uint8_t)how;
    r->error = (uint16_t)x->error;
    r->total_us = (int64_t)((lar_clock_mono_ns() - x->start_ns) / 1000);
    if (x->first_byte_ns) r->ttft_us = (int64_t)((x->first_byte_ns - x->start_ns) / 1000);
    if (!r->route[0]) (void)snprintf(r->route, sizeof r->route, "%s", x->route.name ? x->route.name : "none");
    fill_usage(x, how);
    lar_exchange_continuation_record(x);
    fill_prediction(x);
    fill_attempts(x);
    count(x, how);
    if (g->store) lar_store_journal(g->store, r);
    if (atomic_load_explicit(&g->access_log, memory_order_relaxed)) access_line(x, how);
    atomic_fetch_sub_explicit(&g->buffered_bytes, (long long)x->budget_bytes, memory_order_relaxed);
    if (x->answer_whole) lar_lease_release(&x->lease);
    else lar_lease_cancel(&x->lease);
    lar_exchange_attempt_over(x);
    lar_exchange_forget_output(x);
    lar_exchange_forget_continuation(x);
    x->set->users--;
    x->set = NULL;
    lar_exchange_move(x, EXCHANGE_DONE);
    lar_exchange_recycle(x);
}

static void leave_client(lar_exchange *x, client_next next) {
    lar_client *c = x->client;
    x->client = NULL;
    x->head = NULL;
    if (c) lar_client_exchange_done(c, next);
}

/* The client has what it gets; the upstream may still say how many tokens that was. */
static bool worth_draining(const lar_exchange *x) {
    return x->state == EXCHANGE_RELAY && x->relay == RELAY_SSE && !x->answer_whole && x->lease.held &&
           (x->usage.finished || x->usage.done) && !x->loop->stopping;
}

void lar_exchange_finish(lar_exchange *x, lar_ending how, client_next next) {
    lar_client *c = x->client;
    if (next == CLIENT_KEEP && !x->keep_alive) next = CLIENT_CLOSE;
    lar_exchange_answers_over(x, how);
    if (worth_draining(x)) {
        x->record.ending = (uint8_t)how;
        lar_exchange_move(x, EXCHANGE_DRAIN);
        if (x->paused) {
            x->paused = false;
            lar_lease_resume(&x->lease);
        }
        lar_deadline_set(&x->deadline, DRAIN_MS);
        leave_client(x, next);
        return;
    }
    x->client = NULL;
    x->head = NULL;
    settle(x, how);
    if (c) lar_client_exchange_done(c, next);
}

/* The end of a drained stream lets its connection be used again. */
void lar_exchange_drained(lar_exchange *x) {
    x->answer_whole = lar_lease_at_end(&x->lease);
    settle(x, (lar_ending)x->record.ending);
}

void lar_exchange_abandon(lar_exchange *x, lar_ending why) {
    if (x->error == LAR_OK) x->error = why == LAR_END_SHUTDOWN ? LAR_SHUTDOWN : LAR_CLIENT_GONE;
    lar_exchange_finish(x, why, CLIENT_ABORT);
}

/* -- larder's own answers ----------------------------------------------------------------------------------- */

lar_error lar_exchange_own_fields(const lar_exchange *x, lar_buf *out) {
    lar_error e = lar_buf_add_slice(out, LAR_SLICE("x-larder-request-id: "));
    if (!e) e = lar_buf_add_slice(out, lar_slice_cstr(x->request_id));
    if (!e) e = lar_buf_add_slice(out, LAR_SLICE("\r\n"));
    const char *before = "x-larder-edits: ";
    for (int r = 0; !e && x->record.edits && r < LAR_RULE_COUNT; r++) {
        if (!(x->canon.rules_fired >> r & 1)) continue;
        e = lar_buf_printf(out, "%s%s", before, lar_rule_id((lar_rule)r));
        before = ", ";
    }
    if (!e && before[0] == ',') e = lar_buf_add_slice(out, LAR_SLICE("\r\n"));
    if (!e) e = lar_exchange_answers_fields(x, out);
    if (!e) e = lar_exchange_attempt_fields(x, out);
    if (!e && x->cors.len)
        e = lar_buf_printf(out, "Access-Control-Allow-Origin: %.*s\r\nVary: Origin\r\n", LAR_FMT(x->cors));
    return e;
}

void lar_exchange_answer(lar_exchange *x, int status, const char *fields, lar_slice body, lar_ending how) {
    lar_buf *b = &x->out_head;
    b->len = 0;
    if (lar_client_at_last(x->client)) x->keep_alive = false;
    /* a body that was not read to its end cannot be followed by another request (RFC 9112 9.6) */
    if (x->state == EXCHANGE_BODY && x->head->has_body && !lar_client_body_read(x->client)) x->keep_alive = false;
    lar_error e = lar_buf_printf(b, "HTTP/1.1 %d %s\r\n%s", status, lar_http1_reason(status), fields);
    if (!e && body.len) e = lar_buf_add_slice(b, LAR_SLICE("Content-Type: application/json\r\n"));
    if (!e && status != 204) e = lar_buf_printf(b, "Content-Length: %zu\r\n", body.len);
    if (!e) e = lar_exchange_own_fields(x, b);
    if (!e)
        e = lar_buf_add_slice(b, x->keep_alive ? (x->client_is_10 ? LAR_SLICE("Connection: keep-alive\r\n\r\n")
                                                                  : LAR_SLICE("\r\n"))
                                               : LAR_SLICE("Connection: close\r\n\r\n"));
    struct iovec iov[2] = {{b->ptr, b->len}, {(void *)(uintptr_t)body.ptr, body.len}};
    x->record.status = (uint16_t)status;
    x->record.response_bytes += body.len;
    bool with_body = body.len && !x->head_request;
    if (e || lar_client_write(x->client, iov, with_body ? 2 : 1) != LAR_OK) {
        lar_exchange_abandon(x, LAR_END_CLIENT_GONE);
        return;
    }
    x->head_sent = true;
    lar_exchange_finish(x, how, CLIENT_KEEP);
}

static lar_ending ending_of(lar_error e) {
    if (e == LAR_SHUTDOWN) return LAR_END_SHUTDOWN;
    if (e == LAR_CLIENT_GONE) return LAR_END_CLIENT_GONE;
    return lar_error_blame(e) == LAR_BLAME_UPSTREAM ? LAR_END_UPSTREAM_FAILED : LAR_END_REFUSED;
}

/* The stream broke after its head: an event in the protocol's form, and no clean end (S-12, H-45). */
static void fail_in_stream(lar_exchange *x, lar_error e, const char *detail) {
    lar_buf *b = &x->held;
    b->len = 0; /* half an event is worth nothing */
    lar_ending how = ending_of(e);
    bool told = x->relay == RELAY_SSE && lar_reply_error_event(b, x->view.protocol, e, detail) == LAR_OK;
    if (told) {
        char size_line[24];
        int n = snprintf(size_line, sizeof size_line, "%zx\r\n", b->len);
        struct iovec iov[3] = {{size_line, (size_t)n}, {b->ptr, b->len}, {(void *)(uintptr_t) "\r\n", 2}};
        bool chunked = x->chunked_out;
        if (lar_client_write(x->client, chunked ? iov : iov + 1, chunked ? 3 : 1) != LAR_OK) {
            lar_exchange_abandon(x, LAR_END_CLIENT_GONE);
            return;
        }
        x->record.response_bytes += b->len;
    }
    /* where the answer ends with the connection only a reset says that it is cut */
    lar_exchange_finish(x, how, x->client_is_10 && !told ? CLIENT_ABORT : CLIENT_CLOSE);
}

static void log_failed(lar_exchange *x, lar_error e, const char *detail) {
    x->error = e;
    LAR_LOG(x->loop->gateway->log, lar_error_blame(e) == LAR_BLAME_CLIENT ? LAR_LOG_DEBUG : LAR_LOG_WARN, "failed",
            LAR_F_CSTR("request_id", x->request_id), LAR_F_CSTR("error", lar_error_name(e)),
            LAR_F_CSTR("detail", detail ? detail : ""), LAR_F_CSTR("upstream", x->upstream ? x->upstream->name : "-"));
}

/* An upstream's own status has the time that it named. */
static const char *fields_of(lar_exchange *x, int status, lar_error e) {
    uint32_t wait_s = (x->wait_ms + 999) / 1000;
    bool waits = status == 503 || (wait_s && status != lar_error_status(e));
    if (e == LAR_UNAUTHORIZED) return "WWW-Authenticate: Bearer\r\n";
    if (e != LAR_METHOD && !waits) return "";
    lar_slice f = waits ? lar_arena_printf(&x->arena, "Retry-After: %u\r\n", (unsigned)(wait_s ? wait_s : 1))
                        : lar_arena_printf(&x->arena, "Allow: %s\r\n", x->allow);
    return f.ptr ? f.ptr : waits ? "Retry-After: 1\r\n" : "";
}

static void answer_failed(lar_exchange *x, int status, lar_error e, const char *detail) {
    lar_lease_cancel(&x->lease);
    lar_buf body;
    lar_buf_init(&body, 4096);
    if (lar_error_status(e) == 408) x->keep_alive = false;
    lar_slice text = {NULL, 0};
    if (lar_reply_error_body(&body, x->route.anthropic, e, detail) == LAR_OK)
        text = lar_arena_copy(&x->arena, lar_buf_slice(&body));
    lar_buf_release(&body);
    lar_exchange_answer(x, status, fields_of(x, status, e), text.ptr ? text : LAR_SLICE(""), ending_of(e));
}

void lar_exchange_fail(lar_exchange *x, lar_error e, const char *detail) {
    lar_exchange_not_continued(x, &e, &detail);
    log_failed(x, e, detail);
    if (x->head_sent) fail_in_stream(x, e, detail);
    else answer_failed(x, lar_error_status(e), e, detail);
}

void lar_exchange_fail_as(lar_exchange *x, int status, lar_error e, const char *detail) {
    LAR_ASSERT(!x->head_sent);
    log_failed(x, e, detail);
    answer_failed(x, status, e, detail);
}
