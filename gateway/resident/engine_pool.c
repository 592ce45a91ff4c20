/* Leases on answers of a model in this process (header: engine_pool.h).
 * Flow: lar_lease_send -> a thread of the resident's work queue reads the request (it may have to wait for the model:
 * resident_gate.c) -> scheduler -> bytes, on its thread, into the job -> the pool's uv_async_t -> lease events. All but
 * job_read(), job_start() and the sink's functions runs on the loop.
 * Invariants: 1. a job is freed on the loop, once nobody holds its lease and no other thread knows of it: it was never
 * sent, or its end is in and lar_answer_start has returned. 2. uv_async_send is called under the pool's lock, so that
 * the pool outlives the call. 3. the lock is not held where lar_answer_cancel is called. 4. an event's handler may end
 * the lease: it is looked at again after each.
 * Memory: bytes that a slow client has not taken are kept, and counted in the process's buffered bytes; over that
 * budget the answer breaks. A sequence of a batch cannot wait for its reader; answers are bounded by the context. */
#include "gateway/resident/engine_pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/ensure.h"
#include "gateway/resident/resident_parts.h"
#include "gateway/serving/refusal.h"
#include "gateway/upstream/pool_ops.h"

enum {
    BODY_BYTES_MAX = 1 << 30,
    ANSWER_BYTES_MAX = 256 << 20,
    ID_BYTES_MAX = 64 << 10,
    KEEP_BYTES = 64 << 10,
    REFUSAL_BYTES_MAX = 4096,
    LOOK_AGAIN_MS = 500,
    PREPARING_MIN = 16
};

typedef struct engine_job engine_job;

typedef struct engine_pool {
    lar_pool base; /* first */
    lar_resident *resident;
    uv_async_t async;
    uv_timer_t patience;                /* of jobs that wait for the model */
    engine_job *wait_first, *wait_last; /* by their time, which is the same for all */
    uint32_t jobs;
    uint8_t open_handles;
    bool closing;
    pthread_mutex_t lock;
    engine_job *mail_first, *mail_last; /* guarded by lock: jobs with something new for the loop */
    uint32_t mail_count;
} engine_pool;

struct engine_job {
    lar_work work; /* first */
    engine_pool *pool;
    /* the loop's */
    lar_lease *lease; /* NULL: nobody waits for it any more */
    lar_buf out;      /* being told, or held while the lease is paused */
    lar_http1_head head;
    lar_http1_field fields[3];
    char retry[16], begun_tokens[16];
    bool sent, telling, paused, head_told, at_end, over, to_head_request; /* over: END or BROKEN was told */
    engine_job *wait_prev, *wait_next;
    uint64_t patient_until_ms; /* 0: not in the list */
    /* of the thread that reads the request, from lar_lease_send on */
    lar_serving_ask ask;
    lar_buf body, id;
    atomic_bool gone;        /* as `cancelled`, for who reads without the lock */
    lar_serving_begun begun; /* its texts lie in begun_text */
    lar_buf begun_text;
    /* guarded by the pool's lock */
    engine_job *mail_prev, *mail_next;
    lar_buf in;
    lar_answer *answer;
    lar_answer_head answer_head;
    lar_error failed; /* what ends the answer from this side */
    bool mailed, has_head, starting, ended, cancelled;
};

static void lock(engine_pool *p) { (void)pthread_mutex_lock(&p->lock); }
static void unlock(engine_pool *p) { (void)pthread_mutex_unlock(&p->lock); }

/* -- mail to the loop; the lock is held ---------------------------------------------------------------------------- */

static void mail(engine_job *j) {
    engine_pool *p = j->pool;
    if (j->mailed) return;
    j->mailed = true;
    j->mail_next = NULL;
    j->mail_prev = p->mail_last;
    if (p->mail_last) p->mail_last->mail_next = j;
    else p->mail_first = j;
    p->mail_last = j;
    p->mail_count++;
    (void)uv_async_send(&p->async);
}

static void unmail(engine_job *j) {
    engine_pool *p = j->pool;
    if (!j->mailed) return;
    j->mailed = false;
    if (j->mail_prev) j->mail_prev->mail_next = j->mail_next;
    else p->mail_first = j->mail_next;
    if (j->mail_next) j->mail_next->mail_prev = j->mail_prev;
    else p->mail_last = j->mail_prev;
    p->mail_count--;
}

/* -- jobs ---------------------------------------------------------------------------------------------------------- */

static void count(const engine_job *j, long long bytes) {
    atomic_fetch_add_explicit(j->pool->resident->o.buffered_bytes, bytes, memory_order_relaxed);
}

static bool count_within(const engine_job *j, size_t bytes) {
    const lar_resident_options *o = &j->pool->resident->o;
    long long held = atomic_fetch_add_explicit(o->buffered_bytes, (long long)bytes, memory_order_relaxed);
    return held + (long long)bytes <= (long long)o->buffer_bytes_max;
}

static void on_handle_closed(uv_handle_t *h) {
    engine_pool *p = h->data;
    p->open_handles--;
}

static void close_if_idle(engine_pool *p) {
    if (!p->closing || p->jobs || uv_is_closing((uv_handle_t *)&p->async)) return;
    uv_close((uv_handle_t *)&p->async, on_handle_closed);
    uv_close((uv_handle_t *)&p->patience, on_handle_closed);
}

static void wait_add(engine_job *j, uint64_t until_ms) {
    engine_pool *p = j->pool;
    j->patient_until_ms = until_ms;
    j->wait_next = NULL;
    j->wait_prev = p->wait_last;
    if (p->wait_last) p->wait_last->wait_next = j;
    else p->wait_first = j;
    p->wait_last = j;
}

/* In front of all: looked at again soon. */
static void wait_again(engine_job *j, uint64_t until_ms) {
    engine_pool *p = j->pool;
    j->patient_until_ms = until_ms;
    j->wait_prev = NULL;
    j->wait_next = p->wait_first;
    if (p->wait_first) p->wait_first->wait_prev = j;
    else p->wait_last = j;
    p->wait_first = j;
}

static void wait_remove(engine_job *j) {
    engine_pool *p = j->pool;
    if (!j->patient_until_ms) return;
    j->patient_until_ms = 0;
    if (j->wait_prev) j->wait_prev->wait_next = j->wait_next;
    else p->wait_first = j->wait_next;
    if (j->wait_next) j->wait_next->wait_prev = j->wait_prev;
    else p->wait_last = j->wait_prev;
}

static void job_free(engine_job *j) {
    engine_pool *p = j->pool;
    lock(p);
    unmail(j);
    unlock(p);
    wait_remove(j);
    count(j, -(long long)(j->in.len + j->out.len + j->body.len + j->begun_text.len));
    lar_answer_free(j->answer);
    lar_buf_release(&j->in);
    lar_buf_release(&j->out);
    lar_buf_release(&j->body);
    lar_buf_release(&j->id);
    lar_buf_release(&j->begun_text);
    free(j);
    p->jobs--;
    close_if_idle(p);
}

/* -- other threads: the request is read, the answer comes ---------------------------------------------------------- */

static void on_head(void *user, const lar_answer_head *h) {
    engine_job *j = user;
    lock(j->pool);
    j->answer_head = *h;
    j->has_head = true;
    mail(j);
    unlock(j->pool);
}

static void on_bytes(void *user, lar_slice bytes) {
    engine_job *j = user;
    lock(j->pool);
    if (!j->failed) {
        bool within = count_within(j, bytes.len);
        if (lar_buf_add_slice(&j->in, bytes)) count(j, -(long long)bytes.len), within = false;
        if (!within) j->failed = LAR_NO_MEMORY;
        mail(j);
    }
    unlock(j->pool);
}

static void on_end(void *user, const lar_answer_end *e) {
    engine_job *j = user;
    lock(j->pool);
    j->ended = true;
    /* an answer that nobody was told of */
    if (!j->failed && !j->has_head) j->failed = e->error ? e->error : LAR_UPSTREAM_ERROR;
    mail(j);
    unlock(j->pool);
}

static lar_error read_request(engine_job *j, lar_answer **out) {
    lar_answer_sink sink = {j, on_head, on_bytes, on_end};
    time_t now = (time_t)(lar_clock_wall_ms() / 1000);
    struct tm local = {0};
    j->ask.now = j->ask.local_now = (int64_t)now;
    if (localtime_r(&now, &local)) j->ask.local_now += local.tm_gmtoff;
    j->ask.body = lar_buf_slice(&j->body);
    j->ask.id = lar_buf_slice(&j->id);
    j->ask.gone = &j->gone;
    return lar_answer_new(j->pool->resident->serving, &j->ask, &sink, out);
}

static void is_prepared(lar_resident *r) { atomic_fetch_sub_explicit(&r->preparing, 1, memory_order_relaxed); }

/* The model cannot be had: a 503 in the form that its own have. Nobody else has the job. */
static void refuse(engine_job *j, const char *code, const char *message, uint32_t retry_ms) {
    lar_refusal no = {.status = 503, .code = code, .param = ""};
    lar_buf body;
    lar_json_writer w = {.out = &body};
    lar_buf_init(&body, REFUSAL_BYTES_MAX);
    (void)snprintf(no.message, sizeof no.message, "%s", message);
    lar_refusal_write(&no, &w);
    lock(j->pool);
    if (w.error || !count_within(j, body.len) || lar_buf_add_slice(&j->in, lar_buf_slice(&body))) {
        j->failed = LAR_NO_MEMORY;
    } else {
        j->answer_head = (lar_answer_head){.status = 503,
                                           .content_type = "application/json",
                                           .has_length = true,
                                           .length = body.len,
                                           .retry_ms = retry_ms};
        j->has_head = true;
    }
    j->ended = true;
    j->starting = false;
    mail(j);
    unlock(j->pool);
    lar_buf_release(&body);
}

/* By a thread of the work queue, once the request is read; again where it had to wait for the model. */
static void job_start(lar_work *w) {
    engine_job *j = (engine_job *)w;
    engine_pool *p = j->pool;
    lar_resident *r = p->resident;
    uint32_t retry_ms = 0;
    bool needs = lar_answer_has_jobs(j->answer);
    j->work.run = job_start;
    lar_claim claim = needs ? lar_resident_claim(r, &j->work, &retry_ms) : LAR_CLAIM_READY;
    if (claim == LAR_CLAIM_PARKED) return; /* in other hands */
    is_prepared(r);
    if (claim == LAR_CLAIM_FAILED) {
        refuse(j, "model_failed", "the model could not be loaded, as this server's log says; it will be tried again",
               retry_ms);
        return;
    }
    lar_answer_start(j->answer, needs ? r->scheduler : NULL);
    lock(p);
    j->starting = false;
    if (j->ended) mail(j);
    unlock(p);
}

/* By a thread of the work queue. Behind an unlock that leaves `ended` without `starting` the job may be gone. */
static void job_read(lar_work *w) {
    engine_job *j = (engine_job *)w;
    engine_pool *p = j->pool;
    lar_resident *r = p->resident;
    lar_answer *answer = NULL;
    lock(p);
    bool cancelled = j->cancelled;
    unlock(p);
    lar_error e = cancelled ? LAR_CLIENT_GONE : read_request(j, &answer);
    count(j, -(long long)(j->body.len + j->begun_text.len));
    lar_buf_release(&j->body);
    lar_buf_release(&j->begun_text);
    lock(p);
    j->answer = answer;
    if (!e && j->cancelled) e = LAR_CLIENT_GONE;
    j->failed = e;
    j->ended = e != LAR_OK;
    j->starting = !e;
    if (e) mail(j);
    unlock(p);
    if (e) is_prepared(r);
    else job_start(&j->work);
}

/* -- the loop: events of leases ------------------------------------------------------------------------------------ */

static void tell(const engine_job *j, lar_lease_event_kind kind, lar_slice data, lar_error e) {
    static const char busy[] = "too much is held for clients that are slow to read";
    lar_lease_event event = {.kind = kind, .data = data, .error = e, .detail = e == LAR_NO_MEMORY ? busy : ""};
    j->lease->on_event(j->lease->owner, &event);
}

static void make_head(engine_job *j, const lar_answer_head *from) {
    lar_http1_head *h = &j->head;
    *h = (lar_http1_head){.status = (uint16_t)from->status,
                          .reason = lar_slice_cstr(lar_http1_reason(from->status)),
                          .minor = 1,
                          .keep_alive = true,
                          .has_length = from->has_length,
                          .length = from->length,
                          .has_body = !j->to_head_request,
                          .fields = j->fields,
                          .field_count = 1};
    j->fields[0] = (lar_http1_field){LAR_SLICE("Content-Type"), lar_slice_cstr(from->content_type)};
    if (from->begun_tokens) {
        (void)snprintf(j->begun_tokens, sizeof j->begun_tokens, "%u", (unsigned)from->begun_tokens);
        j->fields[h->field_count++] =
            (lar_http1_field){LAR_SLICE(LAR_BEGUN_TOKENS_FIELD), lar_slice_cstr(j->begun_tokens)};
    }
    if (!from->retry_ms) return;
    (void)snprintf(j->retry, sizeof j->retry, "%u", (from->retry_ms + 999) / 1000);
    j->fields[h->field_count++] = (lar_http1_field){LAR_SLICE("Retry-After"), lar_slice_cstr(j->retry)};
}

/* What other threads have brought so far. */
typedef struct news {
    lar_error failed;
    bool ended;
    bool more; /* bytes behind those in `out`, which were held */
} news;

static bool may_tell(const engine_job *j) { return j->lease && !j->paused && !j->over; }

/* Of a job that is paused nothing is mailed here: it would come back at each turn of the loop. */
static news take_news(engine_job *j) {
    engine_pool *p = j->pool;
    lock(p);
    if (!j->out.len) {
        lar_buf empty = j->out;
        j->out = j->in;
        j->in = empty;
    }
    news n = {j->failed, j->ended && !j->starting, j->in.len > 0};
    bool fresh = j->has_head && !j->head.status;
    lar_answer_head h = j->answer_head;
    if (n.more && may_tell(j)) mail(j);
    unlock(p);
    if (fresh) make_head(j, &h);
    return n;
}

static void tell_bytes(engine_job *j) {
    if (!j->head_told || !j->out.len || !may_tell(j)) return;
    if (!j->to_head_request) tell(j, LAR_LEASE_BODY, lar_buf_slice(&j->out), LAR_OK);
    count(j, -(long long)j->out.len);
    lar_buf_reset(&j->out, KEEP_BYTES);
}

static void deliver(engine_job *j) {
    news n = take_news(j);
    j->telling = true;
    if (j->head.status && !j->head_told && may_tell(j)) {
        j->head_told = true;
        tell(j, LAR_LEASE_HEAD, LAR_SLICE(""), LAR_OK);
    }
    tell_bytes(j);
    if (!n.more && (n.failed || n.ended) && may_tell(j)) {
        j->over = true;
        j->at_end = !n.failed;
        tell(j, n.failed ? LAR_LEASE_BROKEN : LAR_LEASE_END, LAR_SLICE(""), n.failed);
    }
    j->telling = false;
    if (!j->lease && n.ended) job_free(j);
}

static void on_mail(uv_async_t *a) {
    engine_pool *p = a->data;
    lock(p);
    uint32_t n = p->mail_count; /* what comes meanwhile waits for the next turn of the loop */
    unlock(p);
    while (n--) {
        lock(p);
        engine_job *j = p->mail_first;
        if (j) unmail(j);
        unlock(p);
        if (!j) return;
        deliver(j);
    }
    lock(p);
    if (p->mail_first) (void)uv_async_send(&p->async);
    unlock(p);
}

/* -- the loop: who waits for the model too long ------------------------------------------------------------------- */

static void on_patience(uv_timer_t *t);

static void set_patience(engine_pool *p) {
    uint64_t now = uv_now(p->patience.loop);
    if (!p->wait_first || uv_is_active((uv_handle_t *)&p->patience)) return;
    uint64_t left = p->wait_first->patient_until_ms > now ? p->wait_first->patient_until_ms - now : 1;
    LAR_ASSERT(uv_timer_start(&p->patience, on_patience, left, 0) == 0);
}

/* One that is still being read is looked at again. */
static void on_patience(uv_timer_t *t) {
    engine_pool *p = t->data;
    uint64_t now = uv_now(t->loop);
    uint32_t retry_ms = 0;
    bool there = lar_resident_look(p->resident, &retry_ms) == LAR_RESIDENT_READY;
    while (p->wait_first && (there || p->wait_first->patient_until_ms <= now)) {
        engine_job *j = p->wait_first;
        wait_remove(j);
        if (there) continue;
        if (lar_resident_unpark(p->resident, &j->work)) {
            is_prepared(p->resident);
            refuse(j, "model_loading", "the model is still being loaded", retry_ms);
        } else {
            wait_again(j, now + LOOK_AGAIN_MS);
        }
    }
    set_patience(p);
}

static void be_patient(engine_job *j) {
    engine_pool *p = j->pool;
    uint32_t ms = p->resident->o.config->engine.queue_wait_ms, wait_ms;
    if (!ms || lar_resident_look(p->resident, &wait_ms) == LAR_RESIDENT_READY) return;
    wait_add(j, uv_now(p->patience.loop) + ms);
    set_patience(p);
}

/* -- the loop: what a lease does ----------------------------------------------------------------------------------- */

static lar_error acquire(lar_pool *pool, lar_lease *l) {
    engine_pool *p = (engine_pool *)pool;
    const lar_engine_config *c = &p->resident->o.config->engine;
    if (p->closing) return LAR_SHUTDOWN;
    uint32_t most = c->queue + c->sequences;
    if (atomic_load(&p->resident->preparing) >= (most < PREPARING_MIN ? PREPARING_MIN : most)) return LAR_UPSTREAM_BUSY;
    engine_job *j = calloc(1, sizeof *j);
    if (!j) return LAR_NO_MEMORY;
    j->work.run = job_read;
    j->pool = p;
    lar_buf_init(&j->in, ANSWER_BYTES_MAX);
    lar_buf_init(&j->out, ANSWER_BYTES_MAX);
    lar_buf_init(&j->body, BODY_BYTES_MAX);
    lar_buf_init(&j->id, ID_BYTES_MAX);
    lar_buf_init(&j->begun_text, BODY_BYTES_MAX);
    p->jobs++;
    j->lease = l;
    l->pool = pool;
    l->held = j;
    l->reused = false;
    tell(j, LAR_LEASE_READY, LAR_SLICE(""), LAR_OK);
    return LAR_OK;
}

static lar_slice without_query(lar_slice path) {
    const char *query = memchr(path.ptr, '?', path.len);
    return query ? lar_slice_of(path.ptr, (size_t)(query - path.ptr)) : path;
}

/* A HEAD request is a GET whose answer has no body (RFC 9110 9.3.2). */
static lar_error find(lar_slice method, lar_slice path, lar_serving_endpoint *endpoint, lar_slice *id) {
    if (lar_slice_eq_cstr(method, "HEAD")) method = LAR_SLICE("GET");
    return lar_serving_find(method, without_query(path), endpoint, id);
}

/* What was begun stays where it is only as long as the lease, too. */
static lar_error copy_begun(engine_job *j, const lar_serving_begun *from) {
    lar_slice *parts[] = {&j->begun.reasoning, &j->begun.content, &j->begun.members, &j->begun.from, &j->begun.to};
    size_t bytes = 0, count_of = sizeof parts / sizeof *parts;
    j->begun = *from;
    for (size_t i = 0; i < count_of; i++) bytes += parts[i]->len;
    lar_error e = count_within(j, bytes) ? lar_buf_reserve(&j->begun_text, bytes) : LAR_NO_MEMORY;
    for (size_t i = 0; !e && i < count_of; i++) {
        const char *at = j->begun_text.ptr + j->begun_text.len; /* there is room: it stays there */
        e = lar_buf_add_slice(&j->begun_text, *parts[i]);
        *parts[i] = lar_slice_of(at, parts[i]->len);
    }
    count(j, (long long)j->begun_text.len - (long long)bytes);
    j->ask.begun = &j->begun;
    return e;
}

/* The request's bytes stay where they are only as long as the lease: the thread that reads them has its own. */
static lar_error copy_request(engine_job *j, const lar_lease_request *r) {
    lar_slice id = {NULL, 0};
    size_t bytes = 0;
    lar_error e = find(r->method, r->path, &j->ask.endpoint, &id);
    for (uint32_t i = 1; i < r->count; i++) bytes += r->iov[i].iov_len;
    bool within = count_within(j, bytes);
    if (!e) e = within ? lar_buf_reserve(&j->body, bytes) : LAR_NO_MEMORY;
    for (uint32_t i = 1; !e && i < r->count; i++) e = lar_buf_add(&j->body, r->iov[i].iov_base, r->iov[i].iov_len);
    if (!e) e = lar_buf_add_slice(&j->id, id);
    count(j, (long long)j->body.len - (long long)bytes);
    return e;
}

static lar_error send_request(lar_lease *l, const lar_lease_request *r, bool *unsent) {
    engine_job *j = l->held;
    engine_pool *p = j->pool;
    *unsent = false;
    j->sent = true;
    j->to_head_request = r->to_head_request;
    j->ask.scope = *r->scope;
    j->ask.tenant = r->tenant;
    j->ask.random = r->id;
    lar_error e = copy_request(j, r);
    if (!e && r->begun) e = copy_begun(j, r->begun);
    if (!e) {
        atomic_fetch_add_explicit(&p->resident->preparing, 1, memory_order_relaxed);
        be_patient(j);
        lar_resident_asked(p->resident);
        lar_work_queue_push(p->resident->work, &j->work);
        return LAR_OK;
    }
    lock(p);
    j->failed = e; /* told as an event, as everything is that becomes of a request */
    j->ended = true;
    mail(j);
    unlock(p);
    return LAR_OK;
}

static const lar_http1_head *head_of(const lar_lease *l) {
    const engine_job *j = l->held;
    return &j->head;
}

static bool is_at_end(const lar_lease *l) {
    const engine_job *j = l->held;
    return j->at_end;
}

static void pause_telling(lar_lease *l) {
    engine_job *j = l->held;
    j->paused = true;
}

static void resume_telling(lar_lease *l) {
    engine_job *j = l->held;
    if (!j->paused) return;
    j->paused = false;
    lock(j->pool);
    mail(j);
    unlock(j->pool);
}

/* After its end or before it: what still goes on for this request stops within a step of the model. */
static void let_go(lar_lease *l) {
    engine_job *j = l->held;
    engine_pool *p = j->pool;
    l->held = NULL;
    l->pool = NULL;
    j->lease = NULL;
    atomic_store_explicit(&j->gone, true, memory_order_relaxed);
    wait_remove(j);
    bool parked = lar_resident_unpark(p->resident, &j->work);
    if (parked) is_prepared(p->resident);
    lock(p);
    j->cancelled = true;
    lar_answer *running = j->ended || parked ? NULL : j->answer;
    bool done = !j->sent || parked || (j->ended && !j->starting);
    unlock(p);
    if (running) lar_answer_cancel(running);
    if (done && !j->telling) job_free(j);
}

/* -- the pool ------------------------------------------------------------------------------------------------------ */

static void close_pool(lar_pool *pool) {
    engine_pool *p = (engine_pool *)pool;
    p->closing = true;
    close_if_idle(p);
}

static bool is_resolving(const lar_pool *p) {
    (void)p;
    return false;
}

static bool is_quiet(const lar_pool *pool) { return ((const engine_pool *)pool)->open_handles == 0; }

static void free_pool(lar_pool *pool) {
    engine_pool *p = (engine_pool *)pool;
    LAR_ASSERT(!p->open_handles && !p->jobs);
    (void)pthread_mutex_destroy(&p->lock);
    free(p);
}

static const lar_pool_ops ops = {.close = close_pool,
                                 .resolving = is_resolving,
                                 .quiet = is_quiet,
                                 .free = free_pool,
                                 .acquire = acquire,
                                 .send = send_request,
                                 .head = head_of,
                                 .at_end = is_at_end,
                                 .pause = pause_telling,
                                 .resume = resume_telling,
                                 .release = let_go,
                                 .cancel = let_go};

lar_pool *lar_engine_pool_new(uv_loop_t *loop, lar_resident *r) {
    engine_pool *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->base.ops = &ops;
    p->resident = r;
    LAR_ASSERT(pthread_mutex_init(&p->lock, NULL) == 0);
    if (uv_async_init(loop, &p->async, on_mail) != 0) {
        (void)pthread_mutex_destroy(&p->lock);
        free(p);
        return NULL;
    }
    LAR_ASSERT(uv_timer_init(loop, &p->patience) == 0);
    p->async.data = p->patience.data = p;
    p->open_handles = 2;
    return &p->base;
}

lar_error lar_engine_pool_serves(lar_slice method, lar_slice path, lar_diag *d) {
    static const char served[] =
        "a model of this process answers POST /v1/chat/completions, /v1/completions, /tokenize and "
        "/detokenize, GET /v1/models and /v1/models/{id}";
    lar_serving_endpoint endpoint;
    lar_slice id;
    lar_error e = find(method, path, &endpoint, &id);
    return e ? lar_fail(e, d, "%s", served) : LAR_OK;
}
