/* Requests of the demo upstream: completions, control endpoints, failures on demand.
 *
 * Flow: demo_wire -> on_request -> (demo_prompt, demo_cache, demo_reply) -> demo_wire_send, finish.
 * Thread: the wire's loop. Nothing blocks.
 * Why: an upstream whose every token and every failure is known, so that a test can say what must come of it.
 * Invariants:
 *   1. Usage comes from the cache rule and the prompt that arrived, never from what a test expects.
 *   2. A session lives from its request to demo_wire_finish or `gone`, whichever is first.
 * Memory: one session per slow or streamed answer; plain answers use the server's two scratch buffers. */
#include "demo_server.h"

#include <stdlib.h>
#include <time.h>

#include "demo_json.h"

enum { GATHER_BYTES = 64 << 10, RESET_DELAY_MS = 20, HANG_S = 30, PLANS_MAX = 1024 };
#define SCRATCH_MAX ((size_t)3 << 30)

typedef enum wake { WAKE_PUMP, WAKE_BEGIN, WAKE_RESET, WAKE_CLOSE } wake;

typedef struct session {
    demo_reply reply;
    demo_plan plan;
    uint64_t entry, event_ms;
    bool stream, http_1_0, waiting_write;
    wake wake;
} session;

struct demo_server {
    demo_server_options options;
    demo_cache *cache;
    demo_log log;
    const demo_wire *wire;
    lar_buf body, out, prompt, answer; /* scratch */
    lar_buf *next;                     /* planned messages, printed */
    size_t next_count, next_at, next_cap;
    demo_plan plans[PLANS_MAX];
    size_t plan_count;
    uint64_t number;
};

static const char *reason(int status) {
    switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 404: return "Not Found";
    case 429: return "Too Many Requests";
    case 500: return "Internal Server Error";
    case 502: return "Bad Gateway";
    case 503: return "Service Unavailable";
    case 529: return "Overloaded";
    default: return "Planned";
    }
}

/* -- sending ---------------------------------------------------------------------------------------------- */

static void put_common(demo_server *s, lar_buf *out) {
    demo_putf(out, "x-request-id: req_demo_%llu\r\n", (unsigned long long)s->number);
    unsigned long long seconds = s->options.keepalive_timeout_s;
    if (seconds) demo_putf(out, "Keep-Alive: timeout=%llu\r\n", seconds);
}

/* Head and s->body as one plain answer in s->out. */
static void frame_plain(demo_server *s, int status, const char *more_fields) {
    lar_buf_reset(&s->out, 16u << 20);
    demo_putf(&s->out, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n%s", status, reason(status),
              s->body.len, more_fields);
    put_common(s, &s->out);
    DEMO_PUT(&s->out, "\r\n");
    demo_put(&s->out, lar_buf_slice(&s->body));
}

static void answer_body(demo_server *s, demo_conn *c, int status, const char *more_fields) {
    frame_plain(s, status, more_fields);
    demo_wire_send(c, lar_buf_slice(&s->out));
    demo_wire_finish(c, DEMO_END_KEEP);
}

static void answer_error(demo_server *s, demo_conn *c, demo_proto proto, int status) {
    lar_buf_reset(&s->body, 16u << 20);
    demo_reply_error(proto, status, reason(status), &s->body);
    answer_body(s, c, status, status == 429 ? "Retry-After: 1\r\n" : "");
}

static void entry_end(demo_server *s, uint64_t number, bool aborted) {
    demo_entry *e = demo_log_at(&s->log, number);
    if (aborted) s->log.aborted++;
    if (!e) return;
    e->aborted = aborted;
    e->done = !aborted;
}

static void session_end(demo_server *s, demo_conn *c, demo_end end) {
    session *x = demo_wire_user(c);
    demo_wire_set_user(c, NULL);
    entry_end(s, x->entry, false);
    demo_reply_release(&x->reply);
    free(x);
    demo_wire_finish(c, end);
}

static void wake_later(demo_conn *c, session *x, wake w, uint64_t ms) {
    x->wake = w;
    demo_wire_after(c, ms);
}

/* -- streams ---------------------------------------------------------------------------------------------- */

static void frame_chunk(demo_server *s, const session *x) {
    if (x->http_1_0) {
        demo_put(&s->out, lar_buf_slice(&s->body));
        return;
    }
    demo_putf(&s->out, "%zx\r\n", s->body.len);
    demo_put(&s->out, lar_buf_slice(&s->body));
    DEMO_PUT(&s->out, "\r\n");
}

/* True if the plan ends the stream here. */
static bool plan_strikes(demo_conn *c, session *x) {
    if (x->plan.failure < DEMO_FAIL_CUT || x->plan.failure > DEMO_FAIL_STALL) return false;
    if (x->reply.pieces < x->plan.n) return false;
    if (x->plan.failure == DEMO_FAIL_STALL) wake_later(c, x, WAKE_RESET, HANG_S * 1000);
    else wake_later(c, x, x->plan.failure == DEMO_FAIL_CUT ? WAKE_RESET : WAKE_CLOSE, RESET_DELAY_MS);
    return true;
}

/* Makes events until the socket is full, a delay is due, or the stream has ended. */
static void pump(demo_server *s, demo_conn *c) {
    session *x = demo_wire_user(c);
    bool more = true, struck = false, delay = false;
    while (more && !struck && !delay) {
        if (demo_wire_busy(c)) {
            x->waiting_write = true;
            return;
        }
        lar_buf_reset(&s->out, 16u << 20);
        while (s->out.len < GATHER_BYTES && !delay) {
            struck = plan_strikes(c, x);
            if (struck) break;
            uint32_t before = x->reply.pieces;
            lar_buf_reset(&s->body, 16u << 20);
            more = demo_reply_step(&x->reply, &s->body);
            if (!more) break;
            frame_chunk(s, x);
            delay = x->event_ms && x->reply.pieces > before;
        }
        if (!more && !x->http_1_0) DEMO_PUT(&s->out, "0\r\n\r\n");
        demo_wire_send(c, lar_buf_slice(&s->out));
        if (demo_wire_user(c) != x) return; /* the connection broke: `gone` has taken the session */
    }
    if (!more) session_end(s, c, x->http_1_0 ? DEMO_END_CLOSE : DEMO_END_KEEP);
    else if (!struck) wake_later(c, x, WAKE_PUMP, x->event_ms);
}

static void begin_stream(demo_server *s, demo_conn *c, session *x) {
    lar_buf_reset(&s->out, 16u << 20);
    DEMO_PUT(&s->out, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n");
    put_common(s, &s->out);
    if (x->http_1_0) DEMO_PUT(&s->out, "Connection: close\r\n\r\n");
    else DEMO_PUT(&s->out, "Transfer-Encoding: chunked\r\n\r\n");
    demo_wire_send(c, lar_buf_slice(&s->out));
    if (demo_wire_user(c) == x) pump(s, c);
}

/* -- plain answers ---------------------------------------------------------------------------------------- */

static void begin_plain(demo_server *s, demo_conn *c, session *x) {
    lar_buf_reset(&s->body, 16u << 20);
    demo_reply_plain(&x->reply, &s->body);
    frame_plain(s, 200, "");
    bool broken = x->plan.failure >= DEMO_FAIL_CUT && x->plan.failure <= DEMO_FAIL_STALL;
    lar_slice all = lar_buf_slice(&s->out);
    if (broken) all.len -= s->body.len / 2;
    demo_wire_send(c, all);
    if (demo_wire_user(c) != x) return;
    if (broken) {
        x->plan.n = 0;
        plan_strikes(c, x);
        return;
    }
    session_end(s, c, DEMO_END_KEEP);
}

static void begin(demo_server *s, demo_conn *c) {
    session *x = demo_wire_user(c);
    if (x->plan.failure == DEMO_FAIL_HINTS)
        demo_wire_send(c, LAR_SLICE("HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n"));
    if (demo_wire_user(c) != x) return;
    if (x->stream) begin_stream(s, c, x);
    else begin_plain(s, c, x);
}

/* -- failures --------------------------------------------------------------------------------------------- */

demo_plan demo_plan_of(lar_slice name) {
    static const struct { const char *name; demo_failure failure; uint64_t n; } table[] = {
        {"status", DEMO_FAIL_STATUS, 500}, {"error-200", DEMO_FAIL_ERROR_200, 0}, {"reset", DEMO_FAIL_RESET, 0},
        {"close", DEMO_FAIL_CLOSE, 0}, {"hang", DEMO_FAIL_HANG, HANG_S}, {"garbage", DEMO_FAIL_GARBAGE, 0},
        {"cut-after", DEMO_FAIL_CUT, 2}, {"cut", DEMO_FAIL_CUT, 2}, {"end-after", DEMO_FAIL_END, 2},
        {"end", DEMO_FAIL_END, 2}, {"stall-after", DEMO_FAIL_STALL, 2}, {"slow", DEMO_FAIL_SLOW, 1000},
        {"drip", DEMO_FAIL_DRIP, 100}, {"no-done", DEMO_FAIL_NO_DONE, 0}, {"early-hints", DEMO_FAIL_HINTS, 0}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        size_t n = strlen(table[i].name);
        if (name.len < n || memcmp(name.ptr, table[i].name, n) != 0) continue;
        demo_plan p = {table[i].failure, table[i].n, 1};
        if (name.len == n) return p;
        if (name.ptr[n] != '-' && name.ptr[n] != ':') continue;
        uint64_t number = demo_json_u64(lar_slice_of(name.ptr + n + 1, name.len - n - 1), UINT64_MAX);
        if (number == UINT64_MAX) continue;
        p.n = number;
        return p;
    }
    return (demo_plan){0};
}

static demo_plan take_plan(demo_server *s, lar_slice model) {
    if (!s->plan_count && !demo_json_is_string(model)) return (demo_plan){0};
    if (!s->plan_count) return demo_plan_of(lar_slice_of(model.ptr + 1, model.len - 2));
    demo_plan p = s->plans[0];
    if (--s->plans[0].times == 0) {
        s->plan_count--;
        memmove(&s->plans[0], &s->plans[1], s->plan_count * sizeof s->plans[0]);
    }
    return p;
}

/* True if the plan leaves nothing to answer; the session is then over or waits for its end. */
static bool fail_first(demo_server *s, demo_conn *c, session *x) {
    demo_proto proto = x->reply.proto;
    switch (x->plan.failure) {
    case DEMO_FAIL_STATUS:
    case DEMO_FAIL_ERROR_200: {
        bool is_status = x->plan.failure == DEMO_FAIL_STATUS;
        int status = is_status && x->plan.n >= 200 && x->plan.n <= 999 ? (int)x->plan.n : 500;
        lar_buf_reset(&s->body, 16u << 20);
        demo_reply_error(proto, status, "a planned failure", &s->body);
        frame_plain(s, is_status ? status : 200, status == 429 ? "Retry-After: 1\r\n" : "");
        demo_wire_send(c, lar_buf_slice(&s->out));
        if (demo_wire_user(c) == x) session_end(s, c, DEMO_END_KEEP);
        return true;
    }
    case DEMO_FAIL_RESET: demo_wire_reset(c); return true;
    case DEMO_FAIL_CLOSE: session_end(s, c, DEMO_END_CLOSE); return true;
    case DEMO_FAIL_HANG: wake_later(c, x, WAKE_RESET, x->plan.n * 1000); return true;
    case DEMO_FAIL_GARBAGE:
        demo_wire_send(c, lar_slice_of("\x00\x01 not http at all\r\n\r\n", 22));
        if (demo_wire_user(c) == x) session_end(s, c, DEMO_END_CLOSE);
        return true;
    case DEMO_FAIL_SLOW: wake_later(c, x, WAKE_BEGIN, x->plan.n); return true;
    case DEMO_FAIL_DRIP: x->event_ms = x->plan.n; return false;
    case DEMO_FAIL_NO_DONE: x->reply.no_done = true; return false;
    default: return false;
    }
}

/* -- completions ------------------------------------------------------------------------------------------ */

static void choose_answer(demo_server *s, demo_answer *a, const demo_ask *ask) {
    if (s->next_at < s->next_count) {
        lar_buf *planned = &s->next[s->next_at++];
        demo_answer_from_message(a, lar_buf_slice(planned));
        lar_buf_release(planned);
        if (s->next_at == s->next_count) s->next_at = s->next_count = 0;
        return;
    }
    if (ask->proto != DEMO_COMPLETIONS && demo_ask_wants_call(ask) && demo_answer_call(a, ask)) return;
    demo_put(&a->text, s->options.answer);
}

static uint32_t piece_chars(const demo_server *s, lar_slice text) {
    if (!s->options.events) return 12;
    uint64_t chars = 0;
    for (size_t i = 0; i < text.len; i++) chars += ((unsigned char)text.ptr[i] & 0xC0) != 0x80;
    chars = (chars + s->options.events - 1) / s->options.events;
    return chars ? (uint32_t)chars : 1;
}

static void count_usage(demo_server *s, session *x, const demo_ask *ask, size_t body_bytes) {
    if (s->options.rule == DEMO_RULE_NONE) {
        x->reply.usage = (demo_usage){.prompt = body_bytes / 4 + 1, .output = x->reply.answer.text.len / 4 + 1};
        return;
    }
    lar_buf_reset(&s->prompt, 16u << 20);
    lar_buf_reset(&s->answer, 16u << 20);
    demo_prompt_render(ask, demo_rule_system_first(s->options.rule) ? DEMO_SYSTEM_FIRST : DEMO_TOOLS_FIRST, &s->prompt);
    demo_answer_render(&x->reply.answer, &s->answer);
    x->reply.usage = demo_cache_request(s->cache, lar_buf_slice(&s->prompt), lar_buf_slice(&s->answer));
}

static void note(demo_server *s, session *x) {
    static const char *const names[] = {"", "status", "error-200", "reset", "close", "hang", "garbage", "cut",
                                        "end", "stall", "slow", "drip", "no-done", "early-hints"};
    demo_entry *e = demo_log_at(&s->log, x->entry);
    if (!e) return;
    demo_reply_usage(&x->reply, &e->usage);
    snprintf(e->failed, sizeof e->failed, "%s", names[x->plan.failure]);
}

static void complete(demo_server *s, demo_conn *c, const demo_request *r, demo_proto proto) {
    uint64_t number = demo_log_add(&s->log, r);
    const demo_entry *kept = demo_log_at(&s->log, number);
    lar_slice body = kept ? lar_buf_slice(&kept->body) : lar_buf_slice(r->body);
    demo_ask ask;
    if (!demo_ask_read(&ask, proto, body)) {
        answer_error(s, c, proto, 400);
        entry_end(s, number, false);
        return;
    }
    session *x = calloc(1, sizeof *x);
    if (!x) abort();
    demo_reply_init(&x->reply);
    x->entry = number;
    x->reply.proto = proto;
    x->reply.rule = s->options.rule;
    x->reply.number = ++s->number;
    x->reply.created = (uint64_t)time(NULL);
    x->reply.include_usage = ask.include_usage;
    if (demo_json_is_string(ask.model)) demo_put(&x->reply.model, ask.model);
    else DEMO_PUT(&x->reply.model, "\"demo\"");
    choose_answer(s, &x->reply.answer, &ask);
    x->reply.piece_chars = piece_chars(s, lar_buf_slice(&x->reply.answer.text));
    count_usage(s, x, &ask, body.len);
    x->event_ms = s->options.event_ms;
    x->plan = take_plan(s, ask.model);
    x->stream = ask.stream && proto != DEMO_EMBEDDINGS;
    x->http_1_0 = r->http_1_0;
    if (s->options.event_clock && x->stream && !x->reply.answer.call_count) {
        x->reply.clock_text = true;
        x->reply.pieces_left = (uint32_t)(s->options.events ? s->options.events : 1);
        lar_buf_reset(&x->reply.answer.text, 0);
    }
    note(s, x);
    demo_wire_set_user(c, x);
    if (fail_first(s, c, x)) return;
    if (proto == DEMO_EMBEDDINGS) {
        lar_buf_reset(&s->body, 16u << 20);
        demo_reply_embeddings(&x->reply, &ask, &s->body);
        frame_plain(s, 200, "");
        demo_wire_send(c, lar_buf_slice(&s->out));
        if (demo_wire_user(c) == x) session_end(s, c, DEMO_END_KEEP);
        return;
    }
    begin(s, c);
}

/* -- control ---------------------------------------------------------------------------------------------- */

static void plan_next(demo_server *s, lar_slice body) {
    lar_slice m = demo_json_get(body, "message");
    if (!m.len) return;
    if (s->next_count == s->next_cap) {
        s->next_cap = s->next_cap ? s->next_cap * 2 : 64;
        s->next = realloc(s->next, s->next_cap * sizeof *s->next);
        if (!s->next) abort();
    }
    lar_buf *b = &s->next[s->next_count++];
    lar_buf_init(b, SCRATCH_MAX);
    demo_put(b, m);
}

static bool plan_failure(demo_server *s, lar_slice body) {
    lar_slice mode = demo_json_get(body, "mode");
    if (!demo_json_is_string(mode) || s->plan_count == PLANS_MAX) return false;
    demo_plan p = demo_plan_of(lar_slice_of(mode.ptr + 1, mode.len - 2));
    if (p.failure == DEMO_FAIL_NONE) return false;
    p.times = demo_json_u64(demo_json_get(body, "times"), 1);
    p.n = demo_json_u64(demo_json_get(body, "after"), p.n);
    p.n = demo_json_u64(demo_json_get(body, "seconds"), p.n);
    if (p.times) s->plans[s->plan_count++] = p;
    return true;
}

static void reset(demo_server *s) {
    demo_cache_reset(s->cache);
    demo_log_reset(&s->log);
    for (; s->next_at < s->next_count; s->next_at++) lar_buf_release(&s->next[s->next_at]);
    s->next_at = s->next_count = s->plan_count = 0;
}

static void control(demo_server *s, demo_conn *c, const demo_request *r, lar_slice path) {
    lar_slice body = lar_buf_slice(r->body);
    int status = 200;
    lar_buf_reset(&s->body, 16u << 20);
    if (lar_slice_eq_cstr(path, "/__log")) {
        const char *at = memmem(r->target.ptr, r->target.len, "from=", 5);
        lar_slice n = at ? lar_slice_of(at + 5, (size_t)(r->target.ptr + r->target.len - at - 5)) : lar_slice_of("", 0);
        demo_log_print(&s->log, demo_json_u64(n, 0), &s->body);
    } else if (lar_slice_eq_cstr(path, "/__stats")) {
        demo_putf(&s->body, "{\"requests\":%llu,\"aborted\":%llu,\"connections_open\":%llu,\"connections_accepted\":%llu}",
                  (unsigned long long)s->log.count, (unsigned long long)s->log.aborted,
                  (unsigned long long)demo_wire_open(s->wire), (unsigned long long)demo_wire_accepted(s->wire));
    } else {
        bool ok = true;
        if (lar_slice_eq_cstr(path, "/__next")) plan_next(s, body);
        else if (lar_slice_eq_cstr(path, "/__fail")) ok = plan_failure(s, body);
        else if (lar_slice_eq_cstr(path, "/__reset")) reset(s);
        else ok = false;
        demo_put(&s->body, ok ? LAR_SLICE("{\"ok\": true}") : LAR_SLICE("{\"ok\": false}"));
        status = ok ? 200 : 400;
    }
    answer_body(s, c, status, "");
}

static void other(demo_server *s, demo_conn *c, const demo_request *r, lar_slice path) {
    uint64_t number = demo_log_add(&s->log, r);
    bool models = path.len >= 7 && memcmp(path.ptr + path.len - 7, "/models", 7) == 0;
    bool head = lar_slice_eq_cstr(r->method, "HEAD");
    int status = models && (head || lar_slice_eq_cstr(r->method, "GET")) ? 200 : 404;
    lar_buf_reset(&s->body, 16u << 20);
    if (status == 200)
        DEMO_PUT(&s->body, "{\"object\":\"list\",\"data\":[{\"id\":\"demo\",\"object\":\"model\",\"created\":1700000000,\"owned_by\":\"demo\"},"
                           "{\"id\":\"deepseek-chat\",\"object\":\"model\",\"created\":1700000000,\"owned_by\":\"demo\"}]}");
    else demo_reply_error(DEMO_CHAT, 404, "no such path", &s->body);
    frame_plain(s, status, "");
    lar_slice all = lar_buf_slice(&s->out);
    if (head) all.len -= s->body.len;
    demo_wire_send(c, all);
    entry_end(s, number, false);
    demo_wire_finish(c, DEMO_END_KEEP);
}

static void on_request(void *ctx, demo_conn *c, const demo_request *r) {
    demo_server *s = ctx;
    const char *query = memchr(r->target.ptr, '?', r->target.len);
    lar_slice path = lar_slice_of(r->target.ptr, query ? (size_t)(query - r->target.ptr) : r->target.len);
    demo_wire_set_user(c, NULL);
    if (lar_slice_starts(path, LAR_SLICE("/__"))) {
        control(s, c, r, path);
        return;
    }
    demo_proto proto = lar_slice_eq_cstr(r->method, "POST") ? demo_proto_of(path) : DEMO_NO_PROTO;
    if (proto == DEMO_NO_PROTO) other(s, c, r, path);
    else complete(s, c, r, proto);
}

static void on_wrote(void *ctx, demo_conn *c) {
    session *x = demo_wire_user(c);
    if (!x || !x->waiting_write) return;
    x->waiting_write = false;
    pump(ctx, c);
}

static void on_tick(void *ctx, demo_conn *c) {
    session *x = demo_wire_user(c);
    if (!x) return;
    switch (x->wake) {
    case WAKE_PUMP: pump(ctx, c); break;
    case WAKE_BEGIN: begin(ctx, c); break;
    case WAKE_RESET: demo_wire_reset(c); break;
    case WAKE_CLOSE: session_end(ctx, c, DEMO_END_CLOSE); break;
    }
}

static void on_gone(void *ctx, demo_conn *c) {
    session *x = demo_wire_user(c);
    if (!x) return;
    demo_wire_set_user(c, NULL);
    entry_end(ctx, x->entry, true);
    demo_reply_release(&x->reply);
    free(x);
}

demo_wire_ops demo_server_ops(demo_server *s) { return (demo_wire_ops){s, on_request, on_wrote, on_tick, on_gone}; }
void demo_server_set_wire(demo_server *s, const demo_wire *wire) { s->wire = wire; }

demo_server *demo_server_new(const demo_server_options *o) {
    demo_server *s = calloc(1, sizeof *s);
    if (!s) abort();
    s->options = *o;
    s->cache = demo_cache_new(o->rule);
    demo_log_init(&s->log, o->log_entries);
    lar_buf_init(&s->body, SCRATCH_MAX);
    lar_buf_init(&s->out, SCRATCH_MAX);
    lar_buf_init(&s->prompt, SCRATCH_MAX);
    lar_buf_init(&s->answer, SCRATCH_MAX);
    return s;
}

void demo_server_free(demo_server *s) {
    reset(s);
    demo_cache_free(s->cache);
    demo_log_release(&s->log);
    lar_buf_release(&s->body);
    lar_buf_release(&s->out);
    lar_buf_release(&s->prompt);
    lar_buf_release(&s->answer);
    free(s->next);
    free(s);
}
