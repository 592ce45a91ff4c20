/* Leases on a model in this process, with answers that come when the test says so: events in order, and a lease that
 * ends at every moment (E-01, E-02, E-03). What stands for the engine runs on the test's own thread, between two turns
 * of the loop; the request is read on the pool's thread, as ever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "gateway/resident/engine_pool.h"
#include "gateway/resident/resident_parts.h"

/* -- the engine: one answer at a time ------------------------------------------------------------------------------ */

struct lar_answer {
    lar_answer_sink sink;
    char body[64], begun[80]; /* begun: the texts of an answer that goes on, parted by | */
    bool started, cancelled;
};

typedef struct stage {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    lar_answer *answer; /* the last one that was made */
    int made, freed, cancelled, started;
    bool hold_reading, reading, at_once, behind; /* at_once: answered inside of lar_answer_start;
                                                * behind: the pool's thread has nothing left to do */
    lar_error refuse;
    int loads;
    bool no_jobs; /* of what is asked for, no token is the model's */
} stage;
static stage s = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void change(void) { (void)pthread_cond_broadcast(&s.changed); }

lar_error lar_serving_find(lar_slice method, lar_slice path, lar_serving_endpoint *out, lar_slice *id) {
    *id = LAR_SLICE("");
    *out = LAR_SERVING_CHAT;
    if (!lar_slice_eq_cstr(path, "/v1/chat/completions")) return LAR_NO_ROUTE;
    return lar_slice_eq_cstr(method, "POST") || lar_slice_eq_cstr(method, "GET") ? LAR_OK : LAR_METHOD;
}

lar_error lar_answer_new(const lar_serving *serving, const lar_serving_ask *ask, const lar_answer_sink *sink,
                         lar_answer **out) {
    (void)serving;
    *out = NULL;
    (void)pthread_mutex_lock(&s.lock);
    s.reading = true;
    change();
    while (s.hold_reading) (void)pthread_cond_wait(&s.changed, &s.lock);
    s.reading = false;
    lar_error e = s.refuse;
    if (!e) {
        lar_answer *a = calloc(1, sizeof *a);
        assert_non_null(a);
        a->sink = *sink;
        const lar_serving_begun *b = ask->begun;
        if (b)
            (void)snprintf(a->begun, sizeof a->begun, "%.*s|%.*s|%.*s|%.*s|%.*s|%d", LAR_FMT(b->reasoning),
                           LAR_FMT(b->content), LAR_FMT(b->members), LAR_FMT(b->from), LAR_FMT(b->to),
                           (int)b->prompt_tokens);
        memcpy(a->body, ask->body.ptr, ask->body.len < sizeof a->body ? ask->body.len : sizeof a->body - 1);
        s.answer = *out = a;
        s.made++;
    }
    (void)pthread_mutex_unlock(&s.lock);
    return e;
}

static void say_head(lar_answer *a, int status, uint32_t retry_ms) {
    lar_answer_head h = {.status = status,
                         .content_type = "text/event-stream",
                         .begun_tokens = a->begun[0] ? 7 : 0,
                         .retry_ms = retry_ms};
    a->sink.head(a->sink.user, &h);
}
static void say(lar_answer *a, const char *text) { a->sink.bytes(a->sink.user, lar_slice_cstr(text)); }
static void say_end(lar_answer *a, lar_error e) { a->sink.end(a->sink.user, &(lar_answer_end){.error = e}); }

bool lar_answer_has_jobs(const lar_answer *a) { return a && !s.no_jobs; }

void lar_answer_start(lar_answer *a, lar_scheduler *scheduler) {
    (void)scheduler;
    (void)pthread_mutex_lock(&s.lock);
    a->started = true;
    bool at_once = s.at_once;
    (void)pthread_mutex_unlock(&s.lock);
    if (at_once) {
        say_head(a, 200, 0);
        say(a, "at once");
        say_end(a, LAR_OK);
    }
    (void)pthread_mutex_lock(&s.lock);
    s.started++;
    change();
    (void)pthread_mutex_unlock(&s.lock);
}

void lar_answer_cancel(lar_answer *a) {
    (void)pthread_mutex_lock(&s.lock);
    a->cancelled = true;
    s.cancelled++;
    (void)pthread_mutex_unlock(&s.lock);
}

void lar_answer_free(lar_answer *a) {
    if (!a) return;
    (void)pthread_mutex_lock(&s.lock);
    s.freed++;
    (void)pthread_mutex_unlock(&s.lock);
    free(a);
}

/* -- the client ---------------------------------------------------------------------------------------------------- */

typedef struct client {
    lar_lease lease;
    lar_pool *pool;
    char told[400]; /* events as words, bodies as they are */
    lar_error error;
    int status;
    char retry[16], begun_tokens[16];
    const lar_serving_begun *begun; /* of the request */
    const char *leave_at;           /* the event in which the lease is given up */
    const char *pause_at;           /* or paused */
    const char *to_method;          /* of the request */
} client;

static void send_now(client *c) {
    struct iovec iov[] = {{(void *)(uintptr_t) "", 0},
                          {(void *)(uintptr_t) "two ", 4},
                          {(void *)(uintptr_t) "parts", 5}};
    lar_digest scope = {{1}};
    lar_lease_request r = {.iov = iov,
                           .count = 3,
                           .method = lar_slice_cstr(c->to_method ? c->to_method : "POST"),
                           .path = LAR_SLICE("/v1/chat/completions?a=b"),
                           .to_head_request = c->to_method && strcmp(c->to_method, "HEAD") == 0,
                           .scope = &scope,
                           .begun = c->begun};
    bool unsent = true;
    assert_int_equal(lar_lease_send(&c->lease, &r, &unsent), LAR_OK);
    assert_false(unsent);
}

static void on_event(void *owner, const lar_lease_event *e) {
    static const char *const names[] = {"ready", "failed", "head", "body", "end", "broken"};
    client *c = owner;
    const char *name = names[e->kind];
    size_t n = strlen(c->told);
    (void)snprintf(c->told + n, sizeof c->told - n, "%s%s%s%.*s", n ? " " : "", name, e->data.len ? ":" : "",
                   LAR_FMT(e->data));
    c->error = e->error;
    if (e->kind == LAR_LEASE_HEAD) {
        const lar_http1_head *h = lar_lease_head(&c->lease);
        c->status = h->status;
        lar_slice retry = lar_http1_get(h, "retry-after");
        (void)snprintf(c->retry, sizeof c->retry, "%.*s", LAR_FMT(retry));
        lar_slice begun = lar_http1_get(h, LAR_BEGUN_TOKENS_FIELD);
        (void)snprintf(c->begun_tokens, sizeof c->begun_tokens, "%.*s", LAR_FMT(begun));
    }
    if (c->leave_at && strcmp(c->leave_at, name) == 0) {
        lar_lease_cancel(&c->lease);
        return;
    }
    if (c->pause_at && strcmp(c->pause_at, name) == 0) lar_lease_pause(&c->lease);
    if (e->kind == LAR_LEASE_READY) send_now(c);
}

/* -- the fixture --------------------------------------------------------------------------------------------------- */

typedef struct rig {
    uv_loop_t loop;
    lar_upstream_config config;
    atomic_llong buffered;
    lar_resident resident;
    lar_pool *pool;
    client c;
} rig;

static void rig_open(rig *r) {
    memset(r, 0, sizeof *r);
    s.answer = NULL;
    s.made = s.freed = s.cancelled = s.started = 0;
    s.hold_reading = s.reading = s.at_once = false;
    s.refuse = LAR_OK;
    lar_diag d = {0};
    assert_int_equal(uv_loop_init(&r->loop), 0);
    r->config = (lar_upstream_config){.name = "m", .kind = LAR_UPSTREAM_KIND_ENGINE, .engine = {.queue = 1}};
    r->resident.o =
        (lar_resident_options){.config = &r->config, .buffered_bytes = &r->buffered, .buffer_bytes_max = 64};
    assert_int_equal(lar_work_queue_new(1, &r->resident.work, &d), LAR_OK);
    r->pool = lar_engine_pool_new(&r->loop, &r->resident);
    assert_non_null(r->pool);
    lar_lease_init(&r->c.lease, on_event, &r->c);
}

static void turn(rig *r) {
    for (int i = 0; i < 3; i++) (void)uv_run(&r->loop, UV_RUN_NOWAIT);
}

static void on_alarm(uv_timer_t *t) { *(bool *)t->data = true; }

/* With nothing to do: a loop that polled would find an event at each turn. */
static bool sleeps(rig *r) {
    uv_timer_t alarm;
    bool woken = false;
    assert_int_equal(uv_timer_init(&r->loop, &alarm), 0);
    alarm.data = &woken;
    assert_int_equal(uv_timer_start(&alarm, on_alarm, 20, 0), 0);
    (void)uv_run(&r->loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&alarm, NULL);
    (void)uv_run(&r->loop, UV_RUN_NOWAIT);
    return woken;
}

/* Every job has ended: the pool closes, nothing of it is left, and nothing is counted as held. */
static void rig_close(rig *r) {
    lar_work_queue_free(r->resident.work);
    turn(r);
    lar_pool_close(r->pool);
    turn(r);
    assert_true(lar_pool_quiet(r->pool));
    lar_pool_free(r->pool);
    assert_int_equal(uv_loop_close(&r->loop), 0);
    assert_int_equal(atomic_load(&r->buffered), 0);
    assert_int_equal(atomic_load(&r->resident.preparing), 0);
    assert_int_equal(s.made, s.freed);
}

static void begin(rig *r) {
    assert_int_equal(lar_lease_acquire(r->pool, &r->c.lease), LAR_OK);
    assert_int_equal(strncmp(r->c.told, "ready", 5), 0);
}

static void on_behind(lar_work *w) {
    (void)w;
    (void)pthread_mutex_lock(&s.lock);
    s.behind = true;
    change();
    (void)pthread_mutex_unlock(&s.lock);
}

/* The pool's one thread is done with what it was given. */
static lar_answer *started(const rig *r) {
    lar_work last = {.run = on_behind};
    s.behind = false;
    lar_work_queue_push(r->resident.work, &last);
    (void)pthread_mutex_lock(&s.lock);
    while (!s.behind) (void)pthread_cond_wait(&s.changed, &s.lock);
    lar_answer *a = s.answer;
    (void)pthread_mutex_unlock(&s.lock);
    return a;
}

static void wait_reading(void) {
    (void)pthread_mutex_lock(&s.lock);
    while (!s.reading) (void)pthread_cond_wait(&s.changed, &s.lock);
    (void)pthread_mutex_unlock(&s.lock);
}

static void let_read(void) {
    (void)pthread_mutex_lock(&s.lock);
    s.hold_reading = false;
    change();
    (void)pthread_mutex_unlock(&s.lock);
}

/* -- tests --------------------------------------------------------------------------------------------------------- */

static void an_answer_comes_in_events(void **state) {
    (void)state;
    rig r;
    rig_open(&r);
    begin(&r);
    lar_answer *a = started(&r);
    assert_string_equal(a->body, "two parts");
    turn(&r);
    assert_string_equal(r.c.told, "ready"); /* nothing was said yet */
    say_head(a, 200, 0);
    turn(&r);
    assert_string_equal(r.c.told, "ready head");
    say(a, "one ");
    say(a, "two ");
    turn(&r);
    say(a, "three");
    assert_false(lar_lease_at_end(&r.c.lease));
    say_end(a, LAR_OK);
    turn(&r);
    assert_string_equal(r.c.told, "ready head body:one two  body:three end");
    assert_int_equal(r.c.status, 200);
    assert_true(lar_lease_at_end(&r.c.lease));
    lar_lease_release(&r.c.lease);
    lar_lease_release(&r.c.lease); /* once more is nothing */
    assert_int_equal(s.cancelled, 0);
    rig_close(&r);
}

/* What was begun is copied, and counted, until it was read. */
static void an_answer_goes_on(void **state) {
    (void)state;
    rig r;
    char content[] = "cc", large[64] = "";
    const lar_serving_begun begun = {.reasoning = LAR_SLICE("r"),
                                     .content = lar_slice_cstr(content),
                                     .members = LAR_SLICE("\"id\":1"),
                                     .from = LAR_SLICE("far"),
                                     .to = LAR_SLICE("near"),
                                     .prompt_tokens = 4};
    rig_open(&r);
    r.c.begun = &begun;
    s.hold_reading = true;
    begin(&r);
    wait_reading();
    content[0] = 'x';
    assert_int_equal(atomic_load(&r.buffered), (long long)strlen("two parts"
                                                                 "r"
                                                                 "cc"
                                                                 "\"id\":1"
                                                                 "far"
                                                                 "near"));
    let_read();
    lar_answer *a = started(&r);
    assert_string_equal(a->begun, "r|cc|\"id\":1|far|near|4");
    assert_int_equal(atomic_load(&r.buffered), 0);
    say_head(a, 200, 0);
    say(a, "on");
    say_end(a, LAR_OK);
    turn(&r);
    assert_string_equal(r.c.told, "ready head body:on end");
    assert_string_equal(r.c.begun_tokens, "7");
    lar_lease_release(&r.c.lease);
    const lar_serving_begun much = {.content = lar_slice_of(large, sizeof large)};
    r.c.begun = &much;
    r.c.told[0] = '\0';
    begin(&r);
    turn(&r);
    assert_string_equal(r.c.told, "ready broken");
    assert_int_equal(r.c.error, LAR_NO_MEMORY);
    lar_lease_cancel(&r.c.lease);
    rig_close(&r);
}

static void an_answer_may_come_before_its_start_returns(void **state) {
    (void)state;
    rig r;
    rig_open(&r);
    s.at_once = true;
    begin(&r);
    (void)started(&r);
    while (!lar_lease_at_end(&r.c.lease)) (void)uv_run(&r.loop, UV_RUN_ONCE);
    assert_string_equal(r.c.told, "ready head body:at once end");
    lar_lease_release(&r.c.lease);
    rig_close(&r);
}

static void a_refusal_says_when_to_come_back(void **state) {
    (void)state;
    rig r;
    rig_open(&r);
    begin(&r);
    lar_answer *a = started(&r);
    say_head(a, 503, 1500);
    say_end(a, LAR_OK);
    turn(&r);
    assert_string_equal(r.c.told, "ready head end");
    assert_int_equal(r.c.status, 503);
    assert_string_equal(r.c.retry, "2");
    lar_lease_release(&r.c.lease);
    rig_close(&r);
}

static void without_a_head_the_lease_breaks(void **state) {
    (void)state;
    static const struct {
        lar_error end, told;
    } rows[] = {{LAR_SHUTDOWN, LAR_SHUTDOWN}, {LAR_NO_MEMORY, LAR_NO_MEMORY}, {LAR_OK, LAR_UPSTREAM_ERROR}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rig r;
        rig_open(&r);
        begin(&r);
        say_end(started(&r), rows[i].end);
        turn(&r);
        assert_string_equal(r.c.told, "ready broken");
        assert_int_equal(r.c.error, rows[i].told);
        lar_lease_cancel(&r.c.lease);
        rig_close(&r);
    }
    rig r;
    rig_open(&r);
    s.refuse = LAR_NO_MEMORY;
    begin(&r);
    while (!strstr(r.c.told, "broken")) (void)uv_run(&r.loop, UV_RUN_ONCE);
    assert_int_equal(r.c.error, LAR_NO_MEMORY);
    lar_lease_cancel(&r.c.lease);
    rig_close(&r);
}

static void an_answer_to_head_has_no_body(void **state) {
    (void)state;
    rig r;
    rig_open(&r);
    r.c.to_method = "HEAD";
    begin(&r);
    lar_answer *a = started(&r);
    say_head(a, 200, 0);
    say(a, "not for you");
    say_end(a, LAR_OK);
    turn(&r);
    assert_string_equal(r.c.told, "ready head end");
    lar_lease_release(&r.c.lease);
    rig_close(&r);
}

static void a_paused_lease_is_told_later(void **state) {
    (void)state;
    static const char *const at[] = {"head", "body"};
    for (int i = 0; i < 2; i++) {
        rig r;
        rig_open(&r);
        r.c.pause_at = at[i];
        begin(&r);
        lar_answer *a = started(&r);
        say_head(a, 200, 0);
        say(a, "a");
        turn(&r);
        say(a, "b");
        turn(&r);
        say(a, "c"); /* behind bytes that are held */
        turn(&r);
        say_end(a, LAR_OK);
        turn(&r);
        assert_string_equal(r.c.told, i ? "ready head body:a" : "ready head");
        assert_true(sleeps(&r));
        r.c.pause_at = NULL;
        lar_lease_resume(&r.c.lease);
        assert_string_equal(r.c.told, i ? "ready head body:a" : "ready head"); /* not from inside of the call */
        turn(&r);
        assert_string_equal(r.c.told, i ? "ready head body:a body:b body:c end" : "ready head body:a body:bc end");
        lar_lease_release(&r.c.lease);
        rig_close(&r);
    }
}

static void more_than_may_be_held_breaks_the_answer(void **state) {
    (void)state;
    rig r;
    rig_open(&r);
    r.c.pause_at = "head";
    begin(&r);
    lar_answer *a = started(&r);
    say_head(a, 200, 0);
    turn(&r);
    for (int i = 0; i < 20; i++) say(a, "0123456789");
    assert_in_range((uintmax_t)atomic_load(&r.buffered), 64, 84);
    r.c.pause_at = NULL;
    lar_lease_resume(&r.c.lease);
    turn(&r);
    assert_non_null(strstr(r.c.told, " broken"));
    assert_int_equal(r.c.error, LAR_NO_MEMORY);
    lar_lease_cancel(&r.c.lease);
    assert_int_equal(s.cancelled, 1);
    say_end(a, LAR_CLIENT_GONE);
    rig_close(&r);
}

/* The client leaves while its request is read, before anything else happened (E-02). */
static void e02_gone_while_the_request_is_read(void **state) {
    (void)state;
    rig r;
    rig_open(&r);
    s.hold_reading = true;
    begin(&r);
    wait_reading();
    assert_true(atomic_load(&r.buffered) > 0);
    lar_lease_cancel(&r.c.lease);
    turn(&r);
    let_read();
    rig_close(&r);
    assert_int_equal(s.started, 0); /* the engine never heard of it */
    assert_string_equal(r.c.told, "ready");
}

/* ... and behind another one that is being read: it is not even read (E-03). */
static void e03_gone_while_it_waits_to_be_read(void **state) {
    (void)state;
    rig r;
    rig_open(&r);
    s.hold_reading = true;
    begin(&r);
    wait_reading();
    client second = {.pool = r.pool};
    lar_lease_init(&second.lease, on_event, &second);
    assert_int_equal(lar_lease_acquire(r.pool, &second.lease), LAR_OK);
    lar_lease_cancel(&second.lease);
    let_read();
    lar_answer *a = started(&r);
    say_head(a, 200, 0);
    say_end(a, LAR_OK);
    turn(&r);
    assert_string_equal(r.c.told, "ready head end");
    lar_lease_release(&r.c.lease);
    rig_close(&r);
    assert_int_equal(s.made, 1);
}

/* The client leaves once the engine has it: at each event, and between events (E-01). */
static void e01_gone_at_every_moment(void **state) {
    (void)state;
    static const char *const events[] = {"ready", "head", "body", "end", NULL};
    for (int i = 0; events[i]; i++) {
        rig r;
        rig_open(&r);
        r.c.leave_at = events[i];
        assert_int_equal(lar_lease_acquire(r.pool, &r.c.lease), LAR_OK);
        if (i) {
            lar_answer *a = started(&r);
            say_head(a, 200, 0);
            say(a, "x");
            if (i == 3) say_end(a, LAR_OK);
            turn(&r);
            assert_int_equal(s.cancelled, i < 3);
            if (i < 3) assert_int_equal(s.freed, 0); /* its end is still to come */
            if (i < 3) say_end(a, LAR_CLIENT_GONE);
        }
        rig_close(&r);
    }
    for (int said = 0; said < 4; said++) {
        rig r;
        rig_open(&r);
        begin(&r);
        lar_answer *a = started(&r);
        if (said > 0) say_head(a, 200, 0);
        if (said > 1) say(a, "x");
        if (said > 2) say_end(a, LAR_OK);
        lar_lease_cancel(&r.c.lease); /* before the loop heard of any of it */
        assert_int_equal(s.cancelled, said < 3);
        if (said < 3) say_end(a, LAR_CLIENT_GONE);
        turn(&r);
        assert_string_equal(r.c.told, "ready");
        rig_close(&r);
    }
}

static void a_closed_pool_waits_for_its_jobs(void **state) {
    (void)state;
    rig r;
    rig_open(&r);
    begin(&r);
    lar_answer *a = started(&r);
    lar_pool_close(r.pool);
    turn(&r);
    assert_false(lar_pool_quiet(r.pool));
    client late = {.pool = r.pool};
    lar_lease_init(&late.lease, on_event, &late);
    assert_int_equal(lar_lease_acquire(r.pool, &late.lease), LAR_SHUTDOWN);
    lar_lease_cancel(&r.c.lease);
    turn(&r);
    assert_false(lar_pool_quiet(r.pool));
    say_end(a, LAR_CLIENT_GONE);
    turn(&r);
    assert_true(lar_pool_quiet(r.pool));
    rig_close(&r);
}

static void too_many_to_read_are_refused(void **state) {
    (void)state;
    rig r;
    rig_open(&r);
    s.hold_reading = true;
    client many[17];
    memset(many, 0, sizeof many);
    r.resident.o.buffer_bytes_max = 1 << 20;
    for (int i = 0; i < 17; i++) {
        lar_lease_init(&many[i].lease, on_event, &many[i]);
        assert_int_equal(lar_lease_acquire(r.pool, &many[i].lease), i < 16 ? LAR_OK : LAR_UPSTREAM_BUSY);
    }
    for (int i = 0; i < 16; i++) lar_lease_cancel(&many[i].lease);
    let_read();
    rig_close(&r);
}

/* -- a model that is loaded on first need -------------------------------------------------------------------------- */

static void on_loads(lar_work *w) {
    (void)w;
    (void)pthread_mutex_lock(&s.lock);
    s.loads++;
    change();
    (void)pthread_mutex_unlock(&s.lock);
}

static void cold_open(rig *r) {
    lar_diag d = {0};
    rig_open(r);
    s.loads = 0;
    r->resident.o.buffer_bytes_max = 1 << 20;
    r->resident.load.run = on_loads;
    atomic_store(&r->resident.state, LAR_RESIDENT_COLD);
    assert_int_equal(pthread_mutex_init(&r->resident.lock, NULL), 0);
    assert_int_equal(lar_work_queue_new(1, &r->resident.loader, &d), LAR_OK);
}

static void cold_close(rig *r) {
    lar_work_queue_free(r->resident.loader);
    assert_null(r->resident.parked_first);
    rig_close(r);
    (void)pthread_mutex_destroy(&r->resident.lock);
}

static void wait_loads(int loads) {
    (void)pthread_mutex_lock(&s.lock);
    while (s.loads < loads) (void)pthread_cond_wait(&s.changed, &s.lock);
    (void)pthread_mutex_unlock(&s.lock);
}

static lar_resident_state state_of(rig *r) {
    uint32_t wait_ms;
    return lar_resident_look(&r->resident, &wait_ms);
}

static void requests_wait_for_a_cold_model(void **state) {
    (void)state;
    rig r;
    cold_open(&r);
    assert_int_equal(state_of(&r), LAR_RESIDENT_COLD);
    begin(&r);
    lar_answer *first = started(&r);
    client second = {.pool = r.pool};
    lar_lease_init(&second.lease, on_event, &second);
    assert_int_equal(lar_lease_acquire(r.pool, &second.lease), LAR_OK);
    lar_answer *last = started(&r);
    wait_loads(1);
    assert_int_equal(state_of(&r), LAR_RESIDENT_LOADING);
    assert_int_equal(s.started, 0);
    assert_int_equal(atomic_load(&r.resident.preparing), 2);
    turn(&r);
    assert_string_equal(r.c.told, "ready");
    lar_resident_settle(&r.resident, LAR_OK);
    (void)started(&r);
    assert_int_equal(state_of(&r), LAR_RESIDENT_READY);
    assert_int_equal(s.started, 2);
    assert_int_equal(s.loads, 1);
    say_head(last, 200, 0);
    say_end(last, LAR_OK);
    turn(&r);
    assert_string_equal(second.told, "ready head end");
    lar_lease_release(&second.lease);
    say_head(first, 200, 0);
    say_end(first, LAR_OK);
    turn(&r);
    assert_string_equal(r.c.told, "ready head end");
    lar_lease_release(&r.c.lease);
    cold_close(&r);
}

/* Who waits is told, who comes before the pause is over at once, and who comes behind it makes it load again. */
static void a_load_that_fails_is_told(void **state) {
    (void)state;
    rig r;
    cold_open(&r);
    begin(&r);
    wait_loads(1);
    lar_resident_settle(&r.resident, LAR_IO);
    (void)started(&r);
    turn(&r);
    assert_non_null(strstr(r.c.told, "ready head body:"));
    assert_non_null(strstr(r.c.told, "\"code\":\"model_failed\""));
    assert_int_equal(r.c.status, 503);
    assert_string_equal(r.c.retry, "5");
    assert_true(lar_lease_at_end(&r.c.lease));
    lar_lease_release(&r.c.lease);
    assert_int_equal(state_of(&r), LAR_RESIDENT_FAILED);
    client late = {.pool = r.pool};
    lar_lease_init(&late.lease, on_event, &late);
    assert_int_equal(lar_lease_acquire(r.pool, &late.lease), LAR_OK);
    (void)started(&r);
    turn(&r);
    assert_int_equal(late.status, 503);
    assert_int_equal(s.loads, 1);
    lar_lease_release(&late.lease);
    r.resident.retry_at_ms = 0;
    late = (client){.pool = r.pool};
    lar_lease_init(&late.lease, on_event, &late);
    assert_int_equal(lar_lease_acquire(r.pool, &late.lease), LAR_OK);
    wait_loads(2);
    lar_resident_settle(&r.resident, LAR_IO);
    (void)started(&r);
    turn(&r);
    assert_int_equal(late.status, 503);
    assert_string_equal(late.retry, "10"); /* longer each time */
    lar_lease_release(&late.lease);
    assert_int_equal(s.started, 0);
    cold_close(&r);
}

/* ... is forgotten at once, and the others wait on. */
static void e02_gone_while_the_model_is_loaded(void **state) {
    (void)state;
    rig r;
    cold_open(&r);
    client many[3];
    memset(many, 0, sizeof many);
    for (int gone = 0; gone < 3; gone++) {
        int before = s.freed;
        for (int i = 0; i < 3; i++) {
            many[i] = (client){.pool = r.pool};
            lar_lease_init(&many[i].lease, on_event, &many[i]);
            assert_int_equal(lar_lease_acquire(r.pool, &many[i].lease), LAR_OK);
        }
        (void)started(&r);
        for (int i = 0; i < 3; i++) {
            lar_lease_cancel(&many[(gone + i) % 3].lease);
            assert_int_equal(s.freed, before + i + 1);
            assert_int_equal(atomic_load(&r.resident.preparing), 2 - i);
        }
    }
    lar_resident_settle(&r.resident, LAR_OK);
    (void)started(&r);
    assert_int_equal(s.started, 0);
    cold_close(&r);
}

static void patience_with_a_load_ends(void **state) {
    (void)state;
    rig r;
    cold_open(&r);
    r.config.engine.queue_wait_ms = 1;
    begin(&r);
    (void)started(&r);
    while (!lar_lease_at_end(&r.c.lease)) (void)uv_run(&r.loop, UV_RUN_ONCE);
    assert_int_equal(r.c.status, 503);
    assert_non_null(strstr(r.c.told, "\"code\":\"model_loading\""));
    assert_string_equal(r.c.retry, "1");
    lar_lease_release(&r.c.lease);
    wait_loads(1);
    lar_resident_settle(&r.resident, LAR_OK);
    (void)started(&r);
    assert_int_equal(s.started, 0);
    cold_close(&r);
}

/* Lists of models and the like need no weights. */
static void what_needs_no_model_does_not_load_it(void **state) {
    (void)state;
    rig r;
    cold_open(&r);
    s.no_jobs = true;
    begin(&r);
    lar_answer *a = started(&r);
    s.no_jobs = false;
    assert_int_equal(s.started, 1);
    assert_int_equal(state_of(&r), LAR_RESIDENT_COLD);
    say_head(a, 200, 0);
    say_end(a, LAR_OK);
    turn(&r);
    assert_string_equal(r.c.told, "ready head end");
    lar_lease_release(&r.c.lease);
    assert_int_equal(s.loads, 0);
    cold_close(&r);
}

static void it_says_what_it_serves(void **state) {
    (void)state;
    lar_diag d = {0};
    assert_int_equal(lar_engine_pool_serves(LAR_SLICE("POST"), LAR_SLICE("/v1/chat/completions?x"), &d), LAR_OK);
    assert_int_equal(lar_engine_pool_serves(LAR_SLICE("HEAD"), LAR_SLICE("/v1/chat/completions"), &d), LAR_OK);
    assert_int_equal(lar_engine_pool_serves(LAR_SLICE("POST"), LAR_SLICE("/v1/messages"), &d), LAR_NO_ROUTE);
    assert_non_null(strstr(d.text, "/v1/chat/completions"));
    assert_int_equal(lar_engine_pool_serves(LAR_SLICE("PUT"), LAR_SLICE("/v1/chat/completions"), &d), LAR_METHOD);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_comes_in_events),
        cmocka_unit_test(an_answer_goes_on),
        cmocka_unit_test(an_answer_may_come_before_its_start_returns),
        cmocka_unit_test(a_refusal_says_when_to_come_back),
        cmocka_unit_test(without_a_head_the_lease_breaks),
        cmocka_unit_test(an_answer_to_head_has_no_body),
        cmocka_unit_test(a_paused_lease_is_told_later),
        cmocka_unit_test(more_than_may_be_held_breaks_the_answer),
        cmocka_unit_test(e02_gone_while_the_request_is_read),
        cmocka_unit_test(e03_gone_while_it_waits_to_be_read),
        cmocka_unit_test(e01_gone_at_every_moment),
        cmocka_unit_test(a_closed_pool_waits_for_its_jobs),
        cmocka_unit_test(too_many_to_read_are_refused),
        cmocka_unit_test(requests_wait_for_a_cold_model),
        cmocka_unit_test(a_load_that_fails_is_told),
        cmocka_unit_test(e02_gone_while_the_model_is_loaded),
        cmocka_unit_test(patience_with_a_load_ends),
        cmocka_unit_test(what_needs_no_model_does_not_load_it),
        cmocka_unit_test(it_says_what_it_serves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
