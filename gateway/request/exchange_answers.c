/* A request's part in the cache of answers: is there one, may this one be kept, who waits for it, giving it again.
 * Flow: prepare.c -> _prepared; exchange.c asks before anything goes upstream: a kept answer goes out from here
 * (REPLAY), a request that waits for an identical one does so in SHARE and is called through its loop's bell; relay.c
 * shows what goes to the client, and finish.c says how it ended. Loop thread; never blocks.
 * Invariants: 1. only the first target's own answer is kept, whole and without a fault (take()). 2. whatever fails
 * here, the request goes upstream as it would without a cache. 3. a request that leads lets go of those that wait at
 * its end, however it ends. 4. a kept answer's bytes wait for the client as an upstream's do. Memory: `gathered`,
 * counted in the process's budget, up to answers.answer_bytes. Not here: keys, what may be kept, the table
 * (gateway/answers). */
#include <stdio.h>

#include "base/clock.h"
#include "base/ensure.h"
#include "gateway/answers/answers_key.h"
#include "gateway/answers/answers_rules.h"
#include "gateway/request/client.h"
#include "gateway/request/exchange.h"

enum { HEAD_BYTES_MAX = 16 << 10, KEEP_GATHERED_BYTES = 64 << 10, PIECE_BYTES = 64 << 10 };

static lar_answers *cache(const lar_exchange *x) { return x->loop->gateway->answers; }

static void count(const lar_exchange *x, lar_metric m) { lar_metrics_add(x->loop->gateway->metrics, m, 1); }

static void count_waiting(const lar_exchange *x, int n) {
    lar_metrics_add(x->loop->gateway->metrics, LAR_METRIC_ANSWERS_WAITING, n);
}

void lar_exchange_answers_init(lar_exchange *x) { lar_buf_init(&x->answers.gathered, HEAD_BYTES_MAX); }

void lar_exchange_answers_clear(lar_exchange *x) {
    exchange_answers *c = &x->answers;
    c->say = ANSWERS_SAY_NOTHING;
    c->may_keep = c->keeping = false;
    c->gathered.max = HEAD_BYTES_MAX + (size_t)x->config->answer_bytes_max;
    c->head_bytes = c->replayed = 0;
    c->seat = (lar_answers_seat){.door = &x->loop->answers_door, .owner = x};
    c->replay = NULL;
}

void lar_exchange_answers_recycle(lar_exchange *x) { lar_buf_reset(&x->answers.gathered, KEEP_GATHERED_BYTES); }

void lar_exchange_answers_release(lar_exchange *x) { lar_buf_release(&x->answers.gathered); }

/* -- what is said of it ------------------------------------------------------------------------------------------ */

const char *lar_exchange_answers_word(const lar_exchange *x) {
    static const char *const words[] = {[ANSWERS_SAY_NOTHING] = "-",
                                        [ANSWERS_SAY_HIT] = "hit",
                                        [ANSWERS_SAY_MISS] = "miss",
                                        [ANSWERS_SAY_BYPASS] = "bypass"};
    return words[x->answers.say];
}

lar_error lar_exchange_answers_fields(const lar_exchange *x, lar_buf *out) {
    const exchange_answers *c = &x->answers;
    if (c->say == ANSWERS_SAY_NOTHING) return LAR_OK;
    lar_error e = lar_buf_printf(out, "x-larder-cache: %s\r\n", lar_exchange_answers_word(x));
    if (e || !c->replay) return e;
    e = lar_buf_add_slice(out, LAR_SLICE("Age: "));
    if (!e) e = lar_buf_add_u64(out, (lar_clock_mono_ms() - c->replay->kept_ms) / 1000);
    return e ? e : lar_buf_add_slice(out, LAR_SLICE("\r\n"));
}

/* -- giving a kept answer ---------------------------------------------------------------------------------------- */

/* The upstream was not asked: nothing of the prompt is at the provider, no token was paid for. */
static void note_kept(lar_exchange *x, const lar_kept *k) {
    lar_journal_record *r = &x->record;
    r->flags |= LAR_JREC_ANSWER_KEPT;
    r->raw = k->tokens;
    r->spelling = k->spelling;
    r->status = 200;
    r->sent_bytes = r->prefix_known_bytes = r->predicted_bytes = r->prompt_bytes = 0;
    r->chain = (lar_slice){NULL, 0};
}

/* Takes the reference. False, without memory for the head: it goes upstream. */
static bool begin_replay(lar_exchange *x, lar_kept *k) {
    exchange_answers *c = &x->answers;
    answers_say before = c->say;
    c->replay = k;
    c->say = ANSWERS_SAY_HIT;
    x->relay = RELAY_RAW;
    x->out_head.len = 0;
    lar_error e = lar_buf_add_slice(&x->out_head, k->head);
    if (!e) e = lar_exchange_own_fields(x, &x->out_head);
    if (!e) e = lar_exchange_end_head(x, k->streamed ? -1 : (int64_t)k->body.len);
    if (e) {
        lar_kept_unref(k);
        c->replay = NULL;
        c->say = before;
        x->chunked_out = false;
        x->keep_alive = x->head->keep_alive;
        return false;
    }
    note_kept(x, k);
    lar_exchange_move(x, EXCHANGE_REPLAY);
    lar_deadline_clear(&x->deadline); /* the client's write limit counts */
    return true;
}

/* The head, once, and the next piece. */
static lar_error write_piece(lar_exchange *x) {
    exchange_answers *c = &x->answers;
    lar_slice body = c->replay->body;
    size_t n = body.len - c->replayed < PIECE_BYTES ? body.len - c->replayed : PIECE_BYTES;
    bool last = c->replayed + n == body.len;
    struct iovec iov[4];
    char size_line[24];
    uint32_t count = 0;
    if (!x->head_sent) iov[count++] = (struct iovec){x->out_head.ptr, x->out_head.len};
    if (x->chunked_out && n)
        iov[count++] = (struct iovec){size_line, (size_t)snprintf(size_line, sizeof size_line, "%zx\r\n", n)};
    iov[count++] = (struct iovec){(void *)(uintptr_t)(body.ptr + c->replayed), n};
    if (x->chunked_out) {
        lar_slice end = !last ? LAR_SLICE("\r\n") : n ? LAR_SLICE("\r\n0\r\n\r\n") : LAR_SLICE("0\r\n\r\n");
        iov[count++] = (struct iovec){(void *)(uintptr_t)end.ptr, end.len};
    }
    x->head_sent = true;
    if (!x->first_byte_ns) x->first_byte_ns = lar_clock_mono_ns();
    c->replayed += n;
    x->record.response_bytes += n;
    return lar_client_write(x->client, iov, count);
}

void lar_exchange_answers_replay(lar_exchange *x) {
    const exchange_answers *c = &x->answers;
    do {
        if (write_piece(x) != LAR_OK) {
            lar_exchange_abandon(x, LAR_END_CLIENT_GONE);
            return;
        }
    } while (c->replayed < c->replay->body.len && lar_client_queued(x->client) <= x->config->stream_buffer_bytes);
    if (c->replayed == c->replay->body.len) lar_exchange_finish(x, LAR_END_COMPLETE, CLIENT_KEEP);
}

/* -- asking ------------------------------------------------------------------------------------------------------ */

void lar_exchange_answers_prepared(lar_exchange *x) {
    const lar_route_config *r = x->rule;
    if (x->target || x->failure != LAR_FAILURE_NONE) return; /* another target's body, whose answer is not kept */
    x->answers.may_keep =
        r && r->answers_ttl_ms && x->understood && x->head->method_id == LAR_HTTP1_POST &&
        lar_answers_may_keep(&x->view, r->answers_sampled ? LAR_ANSWERS_ANY_SAMPLING : LAR_ANSWERS_GREEDY_ONLY);
}

static bool make_key(lar_exchange *x) {
    const lar_config *c = x->config;
    lar_answers_key_in in = {.scope = &x->scope,
                             .apart = c->scope_header[0] ? lar_http1_get(x->head, c->scope_header) : LAR_SLICE(""),
                             .config = c,
                             .rule = x->rule,
                             .upstream = x->first_upstream,
                             .head = x->head,
                             .path = x->route.path,
                             .protocol = x->route.protocol,
                             .usage_withheld = x->usage_injected,
                             .body = x->iov + 1, /* behind the head */
                             .body_count = x->iov_count - 1};
    return lar_answers_key(&in, &x->answers.key) == LAR_OK;
}

static void go_upstream(lar_exchange *x) {
    x->answers.say = ANSWERS_SAY_MISS;
    x->answers.keeping = true;
    count(x, LAR_METRIC_ANSWERS_MISSES_TOTAL);
}

static void wait_for_other(lar_exchange *x) {
    x->answers.say = ANSWERS_SAY_MISS; /* should it end before it is called */
    lar_exchange_move(x, EXCHANGE_SHARE);
    count_waiting(x, 1);
    uint32_t left = lar_exchange_left_ms(x);
    if (left == UINT32_MAX) lar_deadline_clear(&x->deadline);
    else lar_deadline_set(&x->deadline, left ? left : 1);
}

bool lar_exchange_answers_ask(lar_exchange *x) {
    exchange_answers *c = &x->answers;
    if (!x->rule || !x->rule->answers_ttl_ms) return false;
    const lar_slice control = LAR_SLICE("cache-control");
    bool never = lar_http1_names(x->head, LAR_SLICE("x-larder-cache"), LAR_SLICE("bypass")) ||
                 lar_http1_names(x->head, control, LAR_SLICE("no-store"));
    if (!c->may_keep || never || !make_key(x)) {
        c->say = ANSWERS_SAY_BYPASS;
        count(x, LAR_METRIC_ANSWERS_BYPASSED_TOTAL);
        return false;
    }
    /* RFC 9111 5.2.1.4: a new answer takes the place of the old one. */
    if (lar_http1_names(x->head, control, LAR_SLICE("no-cache"))) {
        go_upstream(x);
        return false;
    }
    lar_kept *kept = NULL;
    lar_answers_question q = {.key = &c->key, .now_ms = lar_clock_mono_ms(), .share = x->rule->answers_coalesce};
    switch (lar_answers_ask(cache(x), &c->seat, &q, &kept)) {
    case LAR_ANSWERS_FOUND:
        if (begin_replay(x, kept)) {
            count(x, LAR_METRIC_ANSWERS_HITS_TOTAL);
            lar_exchange_answers_replay(x);
            return true;
        }
        break;
    case LAR_ANSWERS_WAITS: wait_for_other(x); return true;
    case LAR_ANSWERS_ALONE:
    case LAR_ANSWERS_LEADS: break;
    }
    go_upstream(x);
    return false;
}

/* -- waiting for an identical request ---------------------------------------------------------------------------- */

/* It waited, and was called: with an answer, or to go upstream itself. */
static void go_on(lar_exchange *x, lar_kept *answer) {
    LAR_ASSERT(x->state == EXCHANGE_SHARE);
    count_waiting(x, -1);
    if (answer && begin_replay(x, answer)) {
        count(x, LAR_METRIC_ANSWERS_SHARED_TOTAL);
        lar_exchange_answers_replay(x);
        return;
    }
    go_upstream(x);
    lar_exchange_attempt(x);
}

void lar_exchange_answers_called(lar_loop *l) {
    lar_kept *answer;
    lar_answers_seat *s;
    while ((s = lar_answers_called(l->gateway->answers, &l->answers_door, &answer))) go_on(s->owner, answer);
}

void lar_exchange_answers_due(lar_exchange *x) {
    lar_exchange_fail(x, LAR_UPSTREAM_TIMEOUT, "an identical request under way had no answer in time");
}

/* -- keeping ----------------------------------------------------------------------------------------------------- */

/* Of the upstream's fields, those that are about the answer and not about the call that brought it. */
static bool is_about_answer(lar_slice name) {
    static const char *const names[] = {"content-type", "content-language", "cache-control",
                                        "openai-model", "openai-version",   "x-accel-buffering"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (lar_slice_ieq(name, lar_slice_cstr(names[i]))) return true;
    return false;
}

/* The head as relay.c makes it, of these fields alone; a cache behind larder has nothing to keep (RFC 9111 5.2.2.5). */
static lar_error gather_head(lar_exchange *x) {
    const lar_http1_head *h = lar_lease_head(&x->lease);
    lar_buf *b = &x->answers.gathered;
    bool sse = x->relay == RELAY_SSE, has_cache_control = false;
    b->len = 0;
    lar_error e = lar_buf_add_slice(b, LAR_SLICE("HTTP/1.1 200 OK\r\n"));
    for (uint32_t i = 0; !e && i < h->field_count; i++) {
        const lar_http1_field *f = &h->fields[i];
        bool buffering = sse && lar_slice_ieq(f->name, LAR_SLICE("x-accel-buffering"));
        if (!is_about_answer(f->name) || buffering || lar_http1_hop_by_hop(h, f->name)) continue;
        has_cache_control |= lar_slice_ieq(f->name, LAR_SLICE("cache-control"));
        e = lar_buf_add_slice(b, f->name);
        if (!e) e = lar_buf_add_slice(b, LAR_SLICE(": "));
        if (!e) e = lar_buf_add_slice(b, f->value);
        if (!e) e = lar_buf_add_slice(b, LAR_SLICE("\r\n"));
    }
    if (!e && !has_cache_control) e = lar_buf_add_slice(b, LAR_SLICE("Cache-Control: no-store\r\n"));
    if (!e && sse) e = lar_buf_add_slice(b, LAR_SLICE("X-Accel-Buffering: no\r\n"));
    x->answers.head_bytes = b->len;
    return e ? e : b->len > HEAD_BYTES_MAX ? LAR_LIMIT : LAR_OK;
}

/* Too large, or without memory for it. */
static void spoilt(lar_exchange *x) {
    x->answers.keeping = false;
    lar_answers_end(cache(x), &x->answers.seat, LAR_ANSWERS_UNFIT);
}

bool lar_exchange_answers_awaited(lar_exchange *x) {
    return x->answers.keeping && lar_answers_awaited(cache(x), &x->answers.seat);
}

/* Said by the first target alone, and by nobody who went on with it. */
static bool may_still_be_kept(const lar_exchange *x) {
    bool read = x->relay == RELAY_HOLD || x->relay == RELAY_JSON || x->relay == RELAY_SSE;
    return read && x->status == 200 && x->target == 0 && !lar_exchange_continues(x) && !x->usage.error_seen;
}

void lar_exchange_answers_gather(lar_exchange *x, const struct iovec *iov, uint32_t count) {
    exchange_answers *c = &x->answers;
    if (!c->keeping) return;
    if (!may_still_be_kept(x)) { /* who waits for it need not wait for its end */
        c->keeping = false;
        lar_answers_end(cache(x), &c->seat, x->status == 200 && !x->target ? LAR_ANSWERS_UNFIT : LAR_ANSWERS_FAILED);
        return;
    }
    lar_error e = c->head_bytes ? LAR_OK : gather_head(x);
    for (uint32_t i = 0; !e && i < count; i++) {
        if (c->gathered.len - c->head_bytes + iov[i].iov_len > x->config->answer_bytes_max) e = LAR_LIMIT;
        else if (!lar_exchange_budget(x, iov[i].iov_len)) e = LAR_NO_MEMORY;
        else e = lar_buf_add(&c->gathered, iov[i].iov_base, iov[i].iov_len);
    }
    if (e) spoilt(x);
}

/* What the client got, if it may be given again. */
static lar_kept *take(lar_exchange *x) {
    const exchange_answers *c = &x->answers;
    const lar_usage *u = &x->usage;
    if (!c->keeping || !c->head_bytes || !may_still_be_kept(x) || !u->done || !u->content_seen || u->odd) return NULL;
    lar_slice all = lar_buf_slice(&c->gathered);
    lar_slice head = lar_slice_of(all.ptr, c->head_bytes);
    lar_slice body = lar_slice_of(all.ptr + head.len, all.len - head.len);
    bool sse = x->relay == RELAY_SSE;
    if (!lar_answers_is_whole(x->view.protocol, sse ? LAR_ANSWERS_STREAM : LAR_ANSWERS_JSON, body)) return NULL;
    lar_kept *k = lar_kept_new(head, body);
    if (!k) return NULL;
    k->key = c->key;
    k->streamed = sse;
    k->tokens = u->raw;
    k->spelling = (uint8_t)u->spelling;
    k->kept_ms = lar_clock_mono_ms();
    k->expires_ms = k->kept_ms + x->rule->answers_ttl_ms;
    return k;
}

static lar_answers_end_kind kind_of(lar_ending how) {
    if (how == LAR_END_CLIENT_GONE || how == LAR_END_SHUTDOWN) return LAR_ANSWERS_LEFT;
    return how == LAR_END_COMPLETE ? LAR_ANSWERS_UNFIT : LAR_ANSWERS_FAILED;
}

void lar_exchange_answers_over(lar_exchange *x, lar_ending how) {
    exchange_answers *c = &x->answers;
    if (x->state == EXCHANGE_SHARE) {
        count_waiting(x, -1);
        lar_answers_leave(cache(x), &c->seat);
        return;
    }
    lar_kept_unref(c->replay);
    c->replay = NULL;
    lar_kept *k = how == LAR_END_COMPLETE ? take(x) : NULL;
    if (k) lar_answers_keep(cache(x), &c->seat, k);
    else lar_answers_end(cache(x), &c->seat, kind_of(how));
    lar_kept_unref(k);
    c->keeping = false;
}
