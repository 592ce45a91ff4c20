/* The answer's way from the upstream to the client: head, framing, event by event or as bytes, usage on the side.
 * Flow: lease events -> here -> lar_client_write. Loop thread; never blocks.
 * Invariants: 1. an SSE stream goes on in whole events, so an error event always stands at a border (S-18).
 * 2. an answer without its end is never given an end (H-45). 3. after fail/finish the exchange may be free.
 * Memory: held (one event, or a small JSON answer) and copy are bounded. Back-pressure: the upstream is not read while
 * the client's queue is over limits.stream_buffer_bytes (H-28). */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/ensure.h"
#include "gateway/health/retry_after.h"
#include "gateway/request/client.h"
#include "gateway/request/exchange.h"

enum {
    HOLD_BYTES_MAX = 256 << 10,
    ERROR_BYTES_MAX = 64 << 10,
    WAIT_MS_MAX = 86400000,
    PIECES_MAX = 4,
    AFTER_LAST_MS = 100
};

/* -- writing ------------------------------------------------------------------------------------------ */

static bool is_type(lar_slice value, lar_slice type) {
    return value.len >= type.len && lar_slice_ieq(lar_slice_of(value.ptr, type.len), type) &&
           (value.len == type.len || value.ptr[type.len] == ';' || value.ptr[type.len] == ' ');
}

/* Those that only some answers have, where the upstream is a larder, too. */
static bool is_own_field(lar_slice name) {
    return lar_slice_ieq(name, LAR_SLICE("x-larder-served-by")) ||
           lar_slice_ieq(name, LAR_SLICE("x-larder-attempts")) || lar_slice_ieq(name, LAR_SLICE("x-larder-failure")) ||
           lar_slice_ieq(name, LAR_SLICE("x-larder-cold-tokens")) || lar_slice_ieq(name, LAR_SLICE("x-larder-cache"));
}

lar_error lar_exchange_copy_head(lar_exchange *x, int status) {
    const lar_http1_head *h = lar_lease_head(&x->lease);
    lar_buf *b = &x->out_head;
    b->len = 0;
    bool sse = x->relay == RELAY_SSE, has_cache_control = false;
    char code[4] = {(char)('0' + status / 100 % 10), (char)('0' + status / 10 % 10), (char)('0' + status % 10), ' '};
    lar_error e = lar_buf_add_slice(b, LAR_SLICE("HTTP/1.1 "));
    if (!e) e = lar_buf_add(b, code, sizeof code);
    lar_slice reason = status == h->status ? h->reason : lar_slice_cstr(lar_http1_reason(status));
    if (!e) e = lar_buf_add_slice(b, reason);
    if (!e) e = lar_buf_add_slice(b, LAR_SLICE("\r\n"));
    for (uint32_t i = 0; !e && i < h->field_count; i++) {
        const lar_http1_field *f = &h->fields[i];
        if (lar_http1_hop_by_hop(h, f->name) || lar_slice_ieq(f->name, LAR_SLICE("content-length"))) continue;
        /* alternatives of the upstream are not alternatives of this gateway (RFC 7838) */
        if (lar_slice_ieq(f->name, LAR_SLICE("alt-svc"))) continue;
        if (lar_slice_ieq(f->name, LAR_SLICE("x-larder-request-id")) ||
            lar_slice_ieq(f->name, LAR_SLICE("x-larder-edits")) || is_own_field(f->name))
            continue;
        if (sse && lar_slice_ieq(f->name, LAR_SLICE("x-accel-buffering"))) continue;
        /* who may read answers from a web page is this gateway's configuration, not the upstream's */
        if (lar_slice_starts_i(f->name, LAR_SLICE("access-control-"))) continue;
        if (lar_slice_ieq(f->name, LAR_SLICE("cache-control"))) has_cache_control = true;
        e = lar_buf_reserve(b, f->name.len + f->value.len + 4);
        if (!e) e = lar_buf_add_slice(b, f->name);
        if (!e) e = lar_buf_add_slice(b, LAR_SLICE(": "));
        if (!e) e = lar_buf_add_slice(b, f->value);
        if (!e) e = lar_buf_add_slice(b, LAR_SLICE("\r\n"));
    }
    if (!e && sse && !has_cache_control) e = lar_buf_add_slice(b, LAR_SLICE("Cache-Control: no-store\r\n"));
    if (!e && sse) e = lar_buf_add_slice(b, LAR_SLICE("X-Accel-Buffering: no\r\n"));
    return e ? e : lar_exchange_own_fields(x, b);
}

/* Adds framing and Connection. `length` < 0: not known. */
static lar_error end_head(lar_exchange *x, int64_t length) {
    lar_buf *b = &x->out_head;
    if (lar_client_at_last(x->client)) x->keep_alive = false;
    lar_error e = LAR_OK;
    bool framed = length >= 0;
    if (!x->no_body && !framed) {
        x->chunked_out = !x->client_is_10;
        if (x->client_is_10) x->keep_alive = false; /* the body ends with the connection (RFC 9112 6.3) */
        if (x->chunked_out) e = lar_buf_add_slice(b, LAR_SLICE("Transfer-Encoding: chunked\r\n"));
    } else if (framed) {
        e = lar_buf_add_slice(b, LAR_SLICE("Content-Length: "));
        if (!e) e = lar_buf_add_u64(b, (uint64_t)length);
        if (!e) e = lar_buf_add_slice(b, LAR_SLICE("\r\n"));
    }
    if (!e && !x->keep_alive) e = lar_buf_add_slice(b, LAR_SLICE("Connection: close\r\n"));
    if (!e && x->keep_alive && x->client_is_10) e = lar_buf_add_slice(b, LAR_SLICE("Connection: keep-alive\r\n"));
    return e ? e : lar_buf_add_slice(b, LAR_SLICE("\r\n"));
}

lar_error lar_exchange_end_head(lar_exchange *x, int64_t length) { return end_head(x, length); }

typedef struct pieces {
    struct iovec iov[PIECES_MAX + 4];
    uint32_t count;
    size_t bytes;
} pieces;

static void piece(pieces *p, const char *ptr, size_t len) {
    if (!len) return;
    LAR_ASSERT(p->count < PIECES_MAX);
    p->iov[p->count++] = (struct iovec){(void *)(uintptr_t)ptr, len};
    p->bytes += len;
}

typedef enum put_last { PUT_MORE, PUT_END } put_last;

/* There is no content yet, and another target if none comes: false once that is over. */
static bool hold_early(lar_exchange *x, const pieces *body, put_last last) {
    if (!x->holding) return false;
    bool room = x->early.len + body->bytes <= x->rule->hold_bytes && lar_clock_mono_ns() < x->hold_ns;
    if (x->usage.content_seen || last == PUT_END || !room) {
        x->holding = false;
        return false;
    }
    lar_error e = lar_exchange_budget(x, body->bytes) ? lar_buf_reserve(&x->early, body->bytes) : LAR_NO_MEMORY;
    for (uint32_t i = 0; !e && i < body->count; i++)
        e = lar_buf_add_slice(&x->early, lar_slice_of(body->iov[i].iov_base, body->iov[i].iov_len));
    x->holding = !e; /* without memory they go out */
    return !e;
}

/* What was held goes in front. */
static pieces with_early(const lar_exchange *x, const pieces *body) {
    pieces all = {.count = 0};
    piece(&all, x->early.ptr, x->early.len);
    for (uint32_t i = 0; i < body->count; i++) piece(&all, body->iov[i].iov_base, body->iov[i].iov_len);
    return all;
}

/* Sends head (once), body pieces and, with END, what ends the answer. False: the client is gone, x may be free. */
static bool put(lar_exchange *x, const pieces *some, put_last last) {
    if (hold_early(x, some, last)) return true;
    pieces with = with_early(x, some), *body = &with;
    x->early.len = 0; /* its bytes stay until it is added to */
    struct iovec iov[PIECES_MAX + 4];
    char size_line[24];
    uint32_t n = 0;
    bool first = !x->head_sent;
    if (first) iov[n++] = (struct iovec){x->out_head.ptr, x->out_head.len};
    x->head_sent = true;
    if (first && last == PUT_MORE)
        lar_exchange_wait(x, x->upstream->idle_timeout_ms); /* with content the route's deadline is over */
    if (body->bytes) {
        if (!x->first_byte_ns) x->first_byte_ns = lar_clock_mono_ns();
        if (x->chunked_out)
            iov[n++] = (struct iovec){size_line, (size_t)snprintf(size_line, sizeof size_line, "%zx\r\n", body->bytes)};
        for (uint32_t i = 0; i < body->count; i++) iov[n++] = body->iov[i];
        if (x->chunked_out && last == PUT_MORE) iov[n++] = (struct iovec){(void *)(uintptr_t) "\r\n", 2};
        if (x->chunked_out && last == PUT_END) iov[n++] = (struct iovec){(void *)(uintptr_t) "\r\n0\r\n\r\n", 7};
    } else if (x->chunked_out && last == PUT_END) {
        iov[n++] = (struct iovec){(void *)(uintptr_t) "0\r\n\r\n", 5};
    }
    x->record.response_bytes += body->bytes;
    lar_exchange_answers_gather(x, body->iov, body->count);
    if (n && lar_client_write(x->client, iov, n) != LAR_OK) {
        lar_exchange_abandon(x, LAR_END_CLIENT_GONE);
        return false;
    }
    if (last == PUT_MORE && lar_client_queued(x->client) > x->config->stream_buffer_bytes &&
        !lar_exchange_answers_awaited(x)) {
        x->paused = true;
        lar_lease_pause(&x->lease);
        /* the client's write limit counts now, and what is left of the whole */
        if (x->upstream->total_timeout_ms) lar_exchange_wait(x, UINT32_MAX);
        else lar_deadline_clear(&x->deadline);
    }
    return true;
}

void lar_exchange_let_go(lar_exchange *x) {
    pieces none = {.count = 0};
    x->holding = false;
    (void)put(x, &none, PUT_MORE);
}

/* -- the head -------------------------------------------------------------------------------------------- */

static relay_mode choose(const lar_exchange *x, const lar_http1_head *h) {
    bool coded = lar_http1_get(h, "content-encoding").len &&
                 !lar_slice_ieq(lar_http1_get(h, "content-encoding"), LAR_SLICE("identity"));
    if (!x->understood || coded || h->status < 200 || h->status > 299) return RELAY_RAW;
    lar_slice type = lar_http1_get(h, "content-type");
    if (is_type(type, LAR_SLICE("text/event-stream"))) return RELAY_SSE;
    if (is_type(type, LAR_SLICE("application/json"))) return RELAY_HOLD;
    if (type.len) return RELAY_RAW;
    return x->view.streamed ? RELAY_SSE : RELAY_HOLD;
}

/* An answer of failure: what it is, by its status, fields and what there is of its body. */
static lar_failure failure_of(const lar_exchange *x, lar_slice body, uint32_t *wait_ms) {
    *wait_ms = 0;
    bool asks = lar_retry_after(lar_lease_head(&x->lease), body, lar_clock_wall_ms(), WAIT_MS_MAX, wait_ms);
    return lar_failure_of_status(x->status, asks, body);
}

/* True: the answer is held, since another attempt may take its place. */
static bool hold_failure(lar_exchange *x) {
    uint32_t wait_ms;
    lar_failure f = failure_of(x, LAR_SLICE(""), &wait_ms);
    bool maybe_too_long = x->understood && (x->status == 400 || x->status == 413);
    if (lar_exchange_may_recover(x) && (f != LAR_FAILURE_CLIENT || maybe_too_long)) {
        x->relay = RELAY_ERROR;
        lar_exchange_wait(x, x->upstream->idle_timeout_ms);
        return true;
    }
    bool recovered = lar_exchange_recover(x, f, wait_ms);
    LAR_ASSERT(!recovered);
    return false;
}

void lar_exchange_on_head(lar_exchange *x) {
    const lar_http1_head *h = lar_lease_head(&x->lease);
    if (h->status < 200) return; /* interim answers end here; ours to the client are our own (RFC 9110 15.2) */
    if (lar_exchange_continues(x)) {
        lar_exchange_continued(x);
        return;
    }
    lar_exchange_move(x, EXCHANGE_RELAY);
    x->status = h->status;
    x->record.status = h->status;
    x->no_body = x->head_request || h->status == 204 || h->status == 304;
    if (h->status >= 400 && hold_failure(x)) return;
    x->relay = x->no_body ? RELAY_RAW : choose(x, h);
    if (x->relay == RELAY_RAW) lar_exchange_attempt_well(x);
    x->holding = x->relay == RELAY_SSE && x->target + 1 < x->target_count && x->rule && x->rule->hold_ms;
    if (x->holding) x->hold_ns = lar_clock_mono_ns() + (uint64_t)x->rule->hold_ms * 1000000u;
    if (x->canon_ran && h->status < 300 && x->loop->memory.put) {
        lar_exchange_share_as(x);
        lar_canon_commit(&x->canon, &x->loop->memory);
        /* before the client hears of the answer: its next request may go to another larder */
        if (x->loop->shared) lar_shared_link_flush(x->loop->shared);
    }
    lar_exchange_watch_output(x);
    lar_exchange_continuation_watch(x);
    lar_exchange_wait(x, x->relay == RELAY_SSE ? x->upstream->first_event_timeout_ms : x->upstream->idle_timeout_ms);
    lar_error e = lar_exchange_copy_head(x, h->status);
    /* an event stream may lose an event on the way: its length is not the upstream's */
    if (!e && x->relay != RELAY_HOLD)
        e = end_head(x, h->has_length && !h->chunked && h->status != 204 && x->relay == RELAY_RAW ? (int64_t)h->length
                                                                                                  : -1);
    if (e) {
        if (e == LAR_LIMIT) lar_exchange_fail(x, LAR_UPSTREAM_PROTOCOL, "its head is too large to pass on");
        else lar_exchange_fail(x, e, "");
        return;
    }
    if (x->relay == RELAY_RAW && h->has_body) {
        pieces none = {.count = 0};
        (void)put(x, &none, PUT_MORE);
    }
}

/* -- JSON answers ------------------------------------------------------------------------------------------ */

static bool blank(lar_slice s) {
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] != ' ' && s.ptr[i] != '\n' && s.ptr[i] != '\r' && s.ptr[i] != '\t') return false;
    }
    return true;
}

/* Blank lines in front of a JSON answer, and events without content, are no answer yet. */
bool lar_exchange_has_begun(const lar_exchange *x) {
    if (x->relay == RELAY_JSON && !x->copy_given_up && blank(lar_buf_slice(&x->copy))) return false;
    return x->head_sent && (x->relay != RELAY_SSE || x->usage.content_seen);
}

/* Held no longer: the head goes out, and what was held with it. */
static bool let_go(lar_exchange *x) {
    const lar_http1_head *h = lar_lease_head(&x->lease);
    x->relay = RELAY_JSON;
    if (end_head(x, h->has_length && !h->chunked ? (int64_t)h->length : -1) != LAR_OK ||
        lar_buf_add_slice(&x->copy, lar_buf_slice(&x->held)) != LAR_OK) {
        lar_exchange_fail(x, LAR_NO_MEMORY, "");
        return false;
    }
    pieces p = {.count = 0};
    piece(&p, x->held.ptr, x->held.len);
    bool alive = put(x, &p, PUT_MORE);
    if (alive) x->held.len = 0;
    return alive;
}

static void hold(lar_exchange *x, lar_slice data) {
    if (!lar_exchange_budget(x, data.len) || lar_buf_add_slice(&x->held, data) != LAR_OK) {
        lar_exchange_fail(x, LAR_NO_MEMORY, "");
        return;
    }
    /* blank lines keep a queued request alive at DeepSeek: they must reach the client */
    if (x->held.len > HOLD_BYTES_MAX || blank(lar_buf_slice(&x->held))) (void)let_go(x);
}

/* The status that stands for an error in a 200: its own numeric code, else 502 (H-47). */
static int error_status(lar_exchange *x, lar_slice body) {
    lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
    uint64_t code = 0;
    if (lar_json_parse(&x->usage.json, body, &limits, NULL) != LAR_OK) return 502;
    uint32_t error = lar_json_get(&x->usage.json, 0, "error");
    uint32_t node =
        lar_json_get(&x->usage.json, lar_json_is(&x->usage.json, error, LAR_JSON_OBJECT) ? error : 0, "code");
    bool usable = lar_json_u64(&x->usage.json, node, &code) && code >= 400 && code <= 599;
    return usable ? (int)code : 502;
}

static void answer_as_error(lar_exchange *x, lar_slice body) {
    if (lar_exchange_recover(x, LAR_FAILURE_BROKEN, 0)) return;
    x->error = LAR_UPSTREAM_ERROR;
    int status = error_status(x, body);
    lar_lease_cancel(&x->lease);
    lar_exchange_answer(x, status, "", body, LAR_END_UPSTREAM_ERROR);
}

static void end_held(lar_exchange *x) {
    lar_slice body = lar_buf_slice(&x->held);
    lar_usage_body(&x->usage, x->view.protocol, body);
    if (x->usage.error_seen) {
        answer_as_error(x, body);
        return;
    }
    lar_exchange_attempt_well(x);
    lar_exchange_output_body(x);
    if (end_head(x, (int64_t)body.len) != LAR_OK) {
        lar_exchange_fail(x, LAR_NO_MEMORY, "");
        return;
    }
    pieces p = {.count = 0};
    piece(&p, body.ptr, body.len);
    if (put(x, &p, PUT_END)) lar_exchange_finish(x, LAR_END_COMPLETE, CLIENT_KEEP);
}

/* -- answers of failure ------------------------------------------------------------------------------------- */

static bool add_failure(lar_exchange *x, lar_slice data) {
    return x->held.len + data.len <= ERROR_BYTES_MAX && lar_exchange_budget(x, data.len) &&
           lar_buf_add_slice(&x->held, data) == LAR_OK;
}

/* Nobody else answers: it is the client's. `length` < 0: not known. False: x is done. */
static bool pass_failure_on(lar_exchange *x, int64_t length, put_last last) {
    pieces p = {.count = 0};
    x->relay = RELAY_RAW;
    lar_error e = lar_exchange_copy_head(x, x->status);
    if (!e) e = end_head(x, length);
    if (e) {
        lar_exchange_fail(x, e, "");
        return false;
    }
    if (!x->no_body) piece(&p, x->held.ptr, x->held.len);
    return put(x, &p, last);
}

static void end_failure(lar_exchange *x) {
    uint32_t wait_ms;
    lar_failure f = failure_of(x, lar_buf_slice(&x->held), &wait_ms);
    const lar_http1_head *h = lar_lease_head(&x->lease);
    if (lar_exchange_recover(x, f, wait_ms)) return;
    x->error = LAR_UPSTREAM_ERROR;
    int64_t length = x->no_body ? (h->has_length ? (int64_t)h->length : -1) : (int64_t)x->held.len;
    if (pass_failure_on(x, length, PUT_END)) lar_exchange_finish(x, LAR_END_UPSTREAM_ERROR, CLIENT_KEEP);
}

/* An answer of failure that is too large to hold is judged by what came of it. */
static void hold_more_failure(lar_exchange *x, lar_slice data) {
    uint32_t wait_ms;
    if (add_failure(x, data)) return;
    lar_failure f = failure_of(x, lar_buf_slice(&x->held), &wait_ms);
    const lar_http1_head *h = lar_lease_head(&x->lease);
    if (lar_exchange_recover(x, f, wait_ms)) return;
    if (!pass_failure_on(x, h->has_length && !h->chunked ? (int64_t)h->length : -1, PUT_MORE)) return;
    pieces p = {.count = 0};
    piece(&p, data.ptr, data.len);
    (void)put(x, &p, PUT_MORE);
}

/* An answer of failure that broke or stood still: its status says all that counts. Half a body is worth nothing, so
 * where nobody else answers the client reads the status with a body of larder's own. */
static void cut_failure(lar_exchange *x, lar_error e, const char *detail) {
    uint32_t wait_ms;
    lar_failure f = failure_of(x, lar_buf_slice(&x->held), &wait_ms);
    lar_slice why = lar_arena_copy(&x->arena, lar_slice_cstr(detail)); /* of a lease that recovering gives up */
    if (lar_exchange_recover(x, f, wait_ms)) return;
    if (lar_exchange_left_ms(x)) lar_exchange_fail_as(x, x->status, e, why.ptr ? why.ptr : "");
    else lar_exchange_fail(x, e, why.ptr ? why.ptr : "");
}

/* -- event streams ------------------------------------------------------------------------------------------ */

typedef enum verdict { VERDICT_FORWARD, VERDICT_DROP, VERDICT_LAST, VERDICT_ANSWERED, VERDICT_BROKEN } verdict;

/* The client has read a part of the answer, and now reads the upstream's error: nobody else can answer, but it is known
 * who failed. */
static void note_error(lar_exchange *x) {
    x->error = LAR_UPSTREAM_ERROR;
    (void)lar_exchange_recover_error(x, LAR_UPSTREAM_ERROR); /* false: the head was sent */
}

static verdict judge(lar_exchange *x, const lar_sse_event *e) {
    if (e->comment_only) return VERDICT_FORWARD;
    bool failed_before = x->usage.error_seen, content_before = x->usage.content_seen;
    lar_usage_kind kind = lar_usage_event(&x->usage, x->view.protocol, e->type, e->data);
    if (x->usage.content_seen) lar_exchange_attempt_well(x);
    lar_exchange_output_event(x, e);
    if (x->usage.done) lar_exchange_output_whole(x);
    if (x->state == EXCHANGE_DRAIN) return VERDICT_DROP;
    if (x->head_sent && x->usage.content_seen && !content_before) /* behind signs of life */
        lar_exchange_wait(x, x->upstream->idle_timeout_ms);
    if (!x->head_sent && x->usage.error_seen && !x->usage.content_seen && e->data.len && e->data.ptr[0] == '{') {
        answer_as_error(x, e->data);
        return VERDICT_ANSWERED;
    }
    if (x->usage.error_seen && lar_exchange_can_continue(x, LAR_UPSTREAM_ERROR)) return VERDICT_BROKEN;
    if (x->head_sent && x->usage.error_seen && !failed_before) note_error(x);
    if (kind == LAR_USAGE_ONLY_CHUNK && x->usage_injected) return VERDICT_DROP;
    return x->usage.done ? VERDICT_LAST : VERDICT_FORWARD;
}

/* Sends data[from..to) with the held beginning of its first event in front. */
static bool flush_events(lar_exchange *x, lar_slice part, put_last last) {
    pieces p = {.count = 0};
    piece(&p, x->held.ptr, x->held.len);
    piece(&p, part.ptr, part.len);
    bool alive = !p.bytes && last == PUT_MORE ? true : put(x, &p, last);
    if (alive) x->held.len = 0;
    return alive;
}

/* [DONE], or what the protocol has for it: the client gets it at once. The end of the body normally stands right behind
 * it; an upstream that keeps the connection open instead is given a moment, then left (S-10). Of what follows only the
 * LF of a CR LF cut in two goes on. */
static void end_at_last(lar_exchange *x, lar_slice data, size_t from, size_t at) {
    bool cr = at && data.ptr[at - 1] == '\r';
    if (cr && at < data.len && data.ptr[at] == '\n') {
        at++;
        cr = false;
    }
    x->last_cr = cr;
    if (flush_events(x, lar_slice_of(data.ptr + from, at - from), PUT_MORE) && x->state == EXCHANGE_RELAY)
        lar_deadline_set(&x->deadline, AFTER_LAST_MS);
}

static void after_last(lar_exchange *x, lar_slice data) {
    pieces p = {.count = 0};
    bool lf = x->last_cr && data.len && data.ptr[0] == '\n';
    x->last_cr = false;
    if (!lf) return;
    piece(&p, "\n", 1);
    (void)put(x, &p, PUT_MORE);
}

/* An error event behind content, where another upstream can go on: what came before it goes out, and it does not. */
static void go_on(lar_exchange *x, lar_slice before) {
    if (!before.len) x->held.len = 0; /* the event began there */
    if (!flush_events(x, before, PUT_MORE) || x->state != EXCHANGE_RELAY) return;
    if (!lar_exchange_continue(x, LAR_UPSTREAM_ERROR, "")) lar_exchange_fail(x, LAR_UPSTREAM_ERROR, "");
}

static void relay_events(lar_exchange *x, lar_slice data) {
    if (x->usage.done) {
        after_last(x, data);
        return;
    }

    size_t at = 0, from = 0, event = 0; /* read so far; first byte not sent; where the event under way begins */
    while (at < data.len) {
        size_t used = 0;
        lar_sse_event e;
        bool whole = lar_sse_next(&x->sse, data.ptr + at, data.len - at, &used, &e);
        at += used;
        if (!whole) break;
        verdict v = judge(x, &e);
        if (v == VERDICT_ANSWERED) return;
        if (v == VERDICT_BROKEN) {
            go_on(x, lar_slice_of(data.ptr + from, event - from));
            return;
        }
        if (v == VERDICT_FORWARD) lar_exchange_continuation_event(x, &e);
        if (v == VERDICT_DROP) {
            if (event == 0) x->held.len = 0;
            else if (!flush_events(x, lar_slice_of(data.ptr + from, event - from), PUT_MORE)) return;
            from = at;
        }
        event = at;
        if (v == VERDICT_LAST) {
            end_at_last(x, lar_slice_of(data.ptr, data.len), from, at);
            return;
        }
    }
    if (event > from && !flush_events(x, lar_slice_of(data.ptr + from, event - from), PUT_MORE)) return;
    if (x->state != EXCHANGE_RELAY) return;
    lar_slice rest = lar_slice_of(data.ptr + event, data.len - event);
    if (lar_buf_add_slice(&x->held, rest) != LAR_OK)
        lar_exchange_on_cut(x, LAR_UPSTREAM_PROTOCOL, "an event is too large");
}

static lar_ending ending(const lar_exchange *x) {
    return x->usage.error_seen ? LAR_END_UPSTREAM_ERROR : LAR_END_COMPLETE;
}

/* The stream ended; some servers leave out the last blank line. */
static void end_events(lar_exchange *x) {
    size_t used = 0;
    lar_sse_event e;
    bool tail = x->held.len && !x->usage.done && lar_sse_next(&x->sse, "\n\n", 2, &used, &e);
    verdict v = tail ? judge(x, &e) : VERDICT_FORWARD;
    if (v == VERDICT_ANSWERED) return;
    if (v == VERDICT_BROKEN) {
        go_on(x, LAR_SLICE(""));
        return;
    }
    lar_usage *u = &x->usage;
    bool ended = u->done || u->finished || u->error_seen;
    if (!ended) {
        lar_exchange_on_cut(x, LAR_UPSTREAM_CUT, "the stream had no end");
        return;
    }
    if (v == VERDICT_DROP) x->held.len = 0;
    if (!u->error_seen) lar_exchange_attempt_well(x);
    lar_exchange_output_whole(x);
    if (flush_events(x, LAR_SLICE(""), PUT_END)) lar_exchange_finish(x, ending(x), CLIENT_KEEP);
}

/* -- events of the lease ----------------------------------------------------------------------------------- */

void lar_exchange_on_body(lar_exchange *x, lar_slice data) {
    if (x->state == EXCHANGE_DRAIN) {
        size_t used = 0;
        lar_sse_event e;
        for (size_t at = 0; x->relay == RELAY_SSE && at < data.len; at += used) {
            if (!lar_sse_next(&x->sse, data.ptr + at, data.len - at, &used, &e)) return;
            (void)judge(x, &e);
        }
        return;
    }
    if (!x->paused && !x->usage.done) lar_exchange_wait(x, x->upstream->idle_timeout_ms);
    pieces p = {.count = 0};
    switch (x->relay) {
    case RELAY_SSE: relay_events(x, data); return;
    case RELAY_HOLD: hold(x, data); return;
    case RELAY_ERROR: hold_more_failure(x, data); return;
    case RELAY_JSON:
        /* too large a copy, or no room for one: its usage stays unknown */
        if (!x->copy_given_up && (!lar_exchange_budget(x, data.len) || lar_buf_add_slice(&x->copy, data) != LAR_OK)) {
            x->copy.len = 0;
            x->copy_given_up = true;
        }
        if (!x->paused) lar_exchange_wait(x, x->upstream->idle_timeout_ms); /* it may have begun with this */
        break;
    case RELAY_RAW: break;
    }
    piece(&p, data.ptr, data.len);
    (void)put(x, &p, PUT_MORE);
}

void lar_exchange_on_end(lar_exchange *x) {
    pieces none = {.count = 0};
    if (x->state == EXCHANGE_DRAIN) {
        lar_exchange_drained(x);
        return;
    }
    x->answer_whole = true;
    switch (x->relay) {
    case RELAY_HOLD: end_held(x); return;
    case RELAY_ERROR: end_failure(x); return;
    case RELAY_SSE: end_events(x); return;
    case RELAY_JSON:
        if (x->copy.len) {
            lar_usage_body(&x->usage, x->view.protocol, lar_buf_slice(&x->copy));
            lar_exchange_output_body(x);
        }
        break;
    case RELAY_RAW: break;
    }
    bool failed = x->status >= 400;
    if (failed) x->error = LAR_UPSTREAM_ERROR;
    if (put(x, &none, PUT_END)) lar_exchange_finish(x, failed ? LAR_END_UPSTREAM_ERROR : LAR_END_COMPLETE, CLIENT_KEEP);
}

void lar_exchange_on_cut(lar_exchange *x, lar_error e, const char *detail) {
    lar_usage *u = &x->usage;
    if (x->relay == RELAY_SSE && (u->finished || u->done || u->error_seen) &&
        x->head_sent) { /* all there was to say was said (S-11 c) */
        lar_exchange_output_whole(x);
        x->held.len = 0;
        if (flush_events(x, LAR_SLICE(""), PUT_END)) lar_exchange_finish(x, ending(x), CLIENT_KEEP);
        return;
    }
    if (e == LAR_UPSTREAM_CLOSED) e = LAR_UPSTREAM_CUT;
    if (x->relay == RELAY_ERROR) cut_failure(x, e, detail);
    else if (!lar_exchange_continue(x, e, detail)) lar_exchange_failed(x, e, detail);
}

bool lar_exchange_probe(lar_exchange *x) {
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n", comment[] = ":\n\n", chunk[] = "3\r\n:\n\n\r\n";
    struct iovec iov = {(void *)(uintptr_t)interim, sizeof interim - 1};
    if (x->head_sent) {
        if (x->relay != RELAY_SSE) return false;
        iov = (struct iovec){(void *)(uintptr_t)(x->chunked_out ? chunk : comment), x->chunked_out ? 8 : 3};
    } else if (x->client_is_10) {
        return false;
    }
    /* a failed write is a finding too: the caller looks at the socket next */
    return lar_client_write(x->client, &iov, 1) == LAR_OK || x->client != NULL;
}
