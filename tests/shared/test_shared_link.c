/* Shared memory against a real server: what one larder puts another finds; the newer value wins on both; whatever
 * happens to the server, the local memory stays as good as it was. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "shared_fixture.h"

typedef struct world {
    uv_loop_t loop;
    server s;
    end a, b;
    lar_buf out;
} world;

static const char *const one[] = {"k"};

#define UP(e) (end_count((e), LAR_METRIC_SHARED_UP) == 1)
/* Asks for `key` and waits for the answer. */
#define ASK(w, e, key)                                                                                                 \
    do {                                                                                                               \
        assert_true(end_ask((e), &(const char *){key}, 1));                                                            \
        RUN_UNTIL(&(w)->loop, (e)->done == 1);                                                                         \
    } while (0)

/* What this end has put is on the server: replies come in the order of the commands. */
#define SETTLE(w, e)                                                                                                   \
    do {                                                                                                               \
        lar_shared_link_flush((e)->link);                                                                              \
        ASK(w, e, "settled");                                                                                          \
    } while (0)

static void begin_server(world *w, const char *password) {
    *w = (world){.s = {.pid = 0}};
    snprintf(w->s.password, sizeof w->s.password, "%s", password);
    server_start(&w->s);
    assert_int_equal(uv_loop_init(&w->loop), 0);
    lar_buf_init(&w->out, 1 << 20);
}

static void begin(world *w, end_options a, end_options b) {
    begin_server(w, "");
    end_open(&w->a, &w->loop, &w->s, a);
    end_open(&w->b, &w->loop, &w->s, b);
    RUN_UNTIL(&w->loop, UP(&w->a) && UP(&w->b));
}

static void finish(world *w) {
    lar_shared_link_close(w->b.link);
    end_close(&w->a, &w->loop);
    end_close(&w->b, &w->loop);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    server_release(&w->s);
    lar_buf_release(&w->out);
}

static lar_slice name_of(const char *prefix, const char *key, char out[64]) {
    lar_hash k = key_of(key);
    int n = snprintf(out, 64, "%s", prefix);
    for (int i = 0; i < 16; i++) n += snprintf(out + n, (size_t)(64 - n), "%02x", k.bytes[i]);
    return lar_slice_of(out, (size_t)n);
}

static void set_raw(world *w, const char *key, lar_slice bytes) {
    char name[64];
    lar_slice words[] = {LAR_SLICE("SET"), name_of("larder:", key, name), bytes};
    server_call(&w->s, words, 3, &w->out);
    assert_true(lar_slice_eq_cstr(lar_buf_slice(&w->out), "OK"));
}

static void set_value(world *w, const char *key, uint64_t stamp, const char *value) {
    lar_buf b;
    lar_hash k = key_of(key);
    lar_buf_init(&b, 1 << 20);
    assert_int_equal(lar_shared_value_encode(NULL, &k, stamp, lar_slice_cstr(value), &b), LAR_OK);
    set_raw(w, key, lar_buf_slice(&b));
    lar_buf_release(&b);
}

static void get_raw(world *w, const char *key) {
    char name[64];
    lar_slice words[] = {LAR_SLICE("GET"), name_of("larder:", key, name)};
    server_call(&w->s, words, 2, &w->out);
}

static void told_by_another(void **state) {
    world w;
    (void)state;
    begin(&w, (end_options){0}, (end_options){0});
    end_put(&w.a, "k", "first");
    SETTLE(&w, &w.a);
    ASK(&w, &w.b, "k");
    assert_int_equal(w.b.changed, 1);
    assert_true(end_has(&w.b, "k", "first"));
    ASK(&w, &w.b, "k");
    assert_int_equal(w.b.changed, 0); /* it knows by now */
    assert_int_equal(end_count(&w.b, LAR_METRIC_SHARED_HITS_TOTAL), 1);
    finish(&w);
}

static void leaves_without_a_flush(void **state) {
    world w;
    uint64_t start = uv_hrtime();
    (void)state;
    begin(&w, (end_options){0}, (end_options){0});
    end_put(&w.a, "k", "first");
    do {
        run_a_little(&w.loop);
        get_raw(&w, "k");
    } while (w.out.len == 0 && uv_hrtime() - start < UINT64_C(10000000000));
    assert_int_not_equal(w.out.len, 0);
    finish(&w);
}

static void newer_wins_both_ways(void **state) {
    world w;
    (void)state;
    begin(&w, (end_options){0}, (end_options){0});
    end_put(&w.a, "k", "1");
    SETTLE(&w, &w.a);
    ASK(&w, &w.b, "k");
    end_put(&w.b, "k", "2");
    SETTLE(&w, &w.b);
    ASK(&w, &w.a, "k");
    assert_int_equal(w.a.changed, 1);
    assert_true(end_has(&w.a, "k", "2"));
    finish(&w);
}

/* A value that is older on the server than here: a snapshot was restored, or another larder was cut off. */
static void older_never_replaces(void **state) {
    world w;
    (void)state;
    begin(&w, (end_options){0}, (end_options){0});
    end_put(&w.a, "k", "mine");
    SETTLE(&w, &w.a);
    ASK(&w, &w.a, "k");
    set_value(&w, "k", 5, "an old one");
    ASK(&w, &w.a, "k");
    assert_int_equal(w.a.changed, 0);
    assert_true(end_has(&w.a, "k", "mine"));
    assert_int_equal(end_count(&w.a, LAR_METRIC_SHARED_REPAIRS_TOTAL), 1);
    SETTLE(&w, &w.a);
    ASK(&w, &w.b, "k"); /* it was put right there too */
    assert_true(end_has(&w.b, "k", "mine"));
    finish(&w);
}

/* Two values with one stamp: every larder decides alike. */
static void ties_end_alike(void **state) {
    world w;
    (void)state;
    begin(&w, (end_options){0}, (end_options){0});
    set_value(&w, "k", 77, "bbb");
    ASK(&w, &w.a, "k");
    set_value(&w, "k", 77, "aaa");
    ASK(&w, &w.b, "k");
    ASK(&w, &w.a, "k");
    SETTLE(&w, &w.a);
    ASK(&w, &w.b, "k");
    assert_true(end_has(&w.a, "k", "bbb"));
    assert_true(end_has(&w.b, "k", "bbb"));
    finish(&w);
}

static void lost_values_come_back(void **state) {
    world w;
    (void)state;
    begin(&w, (end_options){0}, (end_options){0});
    end_put(&w.a, "k", "kept");
    SETTLE(&w, &w.a);
    ASK(&w, &w.a, "k");
    server_call(&w.s, &(lar_slice){"FLUSHALL", 8}, 1, &w.out);
    ASK(&w, &w.b, "k");
    assert_true(end_has(&w.b, "k", NULL));
    ASK(&w, &w.a, "k");
    SETTLE(&w, &w.a);
    ASK(&w, &w.b, "k");
    assert_true(end_has(&w.b, "k", "kept"));
    finish(&w);
}

static void damage_counts_as_absent(void **state) {
    world w;
    (void)state;
    begin(&w, (end_options){0}, (end_options){0});
    end_put(&w.a, "k", "good");
    SETTLE(&w, &w.a);
    ASK(&w, &w.a, "k");
    set_raw(&w, "k", LAR_SLICE("\x01garbage that was never a value of larder's"));
    set_value(&w, "future", UINT64_MAX, "from a clock that cannot be trusted");
    ASK(&w, &w.b, "k");
    ASK(&w, &w.b, "future");
    assert_true(end_has(&w.b, "k", NULL));
    assert_true(end_has(&w.b, "future", NULL));
    assert_int_equal(end_count(&w.b, LAR_METRIC_SHARED_DAMAGED_TOTAL), 2);
    ASK(&w, &w.a, "k");
    assert_true(end_has(&w.a, "k", "good"));
    SETTLE(&w, &w.a);
    ASK(&w, &w.b, "k");
    assert_true(end_has(&w.b, "k", "good"));
    finish(&w);
}

static void values_expire(void **state) {
    world w;
    char name[64];
    (void)state;
    begin(&w, (end_options){0}, (end_options){0});
    end_put(&w.a, "k", "x");
    SETTLE(&w, &w.a);
    ASK(&w, &w.a, "k");
    lar_slice ttl[] = {LAR_SLICE("EVAL"),
                       LAR_SLICE("local t = redis.call('TTL', KEYS[1]) "
                                 "return (t > 3500 and t <= 3600) and 'yes' or 'no'"),
                       LAR_SLICE("1"), name_of("larder:", "k", name)};
    server_call(&w.s, ttl, 4, &w.out);
    assert_true(lar_slice_eq_cstr(lar_buf_slice(&w.out), "yes"));
    finish(&w);
}

static void prefixes_keep_apart(void **state) {
    world w;
    (void)state;
    begin(&w, (end_options){.prefix = "one:"}, (end_options){.prefix = "two:"});
    end_put(&w.a, "k", "x");
    SETTLE(&w, &w.a);
    ASK(&w, &w.b, "k");
    assert_true(end_has(&w.b, "k", NULL));
    finish(&w);
}

static void sealed_values(void **state) {
    world w;
    (void)state;
    begin(&w, (end_options){.secret = "the secret of both"}, (end_options){.secret = "the secret of both"});
    end_put(&w.a, "k", "Current time");
    SETTLE(&w, &w.a);
    ASK(&w, &w.b, "k");
    assert_true(end_has(&w.b, "k", "Current time"));
    get_raw(&w, "k");
    assert_true(w.out.len > 12);
    assert_null(memmem(w.out.ptr, w.out.len, "Current", 7));
    set_value(&w, "k", 99999, "forged by somebody without the secret");
    ASK(&w, &w.b, "k");
    assert_true(end_has(&w.b, "k", "Current time"));
    finish(&w);
}

/* Puts a text of a model at one end, as whoever has this scope; true if the other finds it as whoever has that one. */
static bool text_reaches(world *w, const char *key, const lar_digest *scope, const lar_digest *other) {
    lar_hash k = key_of(key);
    lar_shared_link_scope(w->a.link, scope);
    w->a.text_ops.put(w->a.text_ops.ctx, &k, LAR_SLICE("what a model wrote"));
    SETTLE(w, &w->a);
    lar_shared_link_scope(w->b.link, other);
    w->out.len = 0;
    (void)end_ask(&w->b, one, 1); /* sets the ask up; its own key is of no interest */
    RUN_UNTIL(&w->loop, w->b.done == 1);
    lar_shared_link_scope(w->b.link, other);
    w->b.changed = w->b.done = 0;
    lar_shared_begin(&w->b.ask);
    (void)w->b.text_ops.get(w->b.text_ops.ctx, &k, &w->out);
    if (lar_shared_ask_start(&w->b.ask, &w->b.arena)) RUN_UNTIL(&w->loop, w->b.done == 1);
    w->out.len = 0;
    lar_error e = w->b.text_ops.get(w->b.text_ops.ctx, &k, &w->out);
    get_raw(w, key);
    assert_true(w->out.len == 0 || !memmem(w->out.ptr, w->out.len, "model", 5));
    return e == LAR_OK;
}

/* What models wrote is shared by those who have the same credential, sealed with it, and else by nobody. */
static void texts_only_where_sealed(void **state) {
    world w;
    lar_digest mine = lar_digest_of(LAR_SLICE("one key")), other = lar_digest_of(LAR_SLICE("another key"));
    (void)state;
    begin(&w, (end_options){0}, (end_options){0});
    assert_false(text_reaches(&w, "t1", NULL, NULL));
    assert_true(text_reaches(&w, "t2", &mine, &mine));
    assert_false(text_reaches(&w, "t3", &mine, &other));
    assert_false(text_reaches(&w, "t4", &mine, NULL));
    finish(&w);
    begin(&w, (end_options){.secret = "the secret of both"}, (end_options){.secret = "the secret of both"});
    assert_true(text_reaches(&w, "t1", NULL, NULL));
    assert_true(text_reaches(&w, "t2", &mine, &mine));
    assert_false(text_reaches(&w, "t3", &mine, &other));
    finish(&w);
    begin(&w, (end_options){.secret = "the secret of one"}, (end_options){.secret = "the secret of another"});
    assert_false(text_reaches(&w, "t2", &mine, &mine));
    finish(&w);
}

static void by_socket_with_password_and_database(void **state) {
    world w;
    char url[160];
    (void)state;
    begin_server(&w, "swordfish");
    snprintf(url, sizeof url, "unix://%s?db=3", w.s.socket);
    end_open(&w.a, &w.loop, &w.s, (end_options){.url = url});
    snprintf(url, sizeof url, "redis://default@127.0.0.1:%u/3", (unsigned)w.s.port);
    end_open(&w.b, &w.loop, &w.s, (end_options){.url = url});
    RUN_UNTIL(&w.loop, UP(&w.a) && UP(&w.b));
    end_put(&w.a, "k", "x");
    SETTLE(&w, &w.a);
    ASK(&w, &w.b, "k");
    assert_true(end_has(&w.b, "k", "x"));
    get_raw(&w, "k"); /* of database 0 */
    assert_int_equal(w.out.len, 0);
    finish(&w);
}

/* Nothing is asked, nothing is lost that was here. */
static void expect_alone(end *e) {
    assert_false(end_ask(e, one, 1));
    end_put(e, "k", "alone");
    assert_true(end_has(e, "k", "alone"));
    assert_true(end_count(e, LAR_METRIC_SHARED_DROPPED_TOTAL) > 0);
}

static void wrong_password(void **state) {
    world w;
    (void)state;
    begin_server(&w, "swordfish");
    end_open(&w.a, &w.loop, &w.s, (end_options){.password = "mackerel"});
    end_open(&w.b, &w.loop, &w.s, (end_options){.password = ""});
    for (int i = 0; i < 40; i++) run_a_little(&w.loop);
    assert_false(UP(&w.a));
    assert_false(UP(&w.b));
    expect_alone(&w.a);
    expect_alone(&w.b);
    finish(&w);
}

static void server_dies_and_comes_back(void **state) {
    world w;
    (void)state;
    begin(&w, (end_options){0}, (end_options){0});
    end_put(&w.a, "k", "x");
    SETTLE(&w, &w.a);
    ASK(&w, &w.a, "k");
    assert_int_equal(kill(w.s.pid, SIGSTOP), 0); /* so that the question is under way when it dies */
    assert_true(end_ask(&w.a, one, 1));
    server_kill(&w.s);
    RUN_UNTIL(&w.loop, w.a.done == 1);
    assert_int_equal(w.a.changed, 0);
    RUN_UNTIL(&w.loop, !UP(&w.a) && !UP(&w.b));
    expect_alone(&w.a);
    server_start(&w.s);
    RUN_UNTIL(&w.loop, UP(&w.a) && UP(&w.b));
    ASK(&w, &w.a, "k"); /* the new one has nothing: it gets what was put meanwhile */
    SETTLE(&w, &w.a);
    ASK(&w, &w.b, "k");
    assert_true(end_has(&w.b, "k", "alone"));
    finish(&w);
}

static void stopped_server(void **state) {
    world w;
    (void)state;
    begin(&w, (end_options){0}, (end_options){0});
    end_put(&w.a, "k", "x");
    SETTLE(&w, &w.a);
    ASK(&w, &w.a, "k");
    assert_int_equal(kill(w.s.pid, SIGSTOP), 0);
    assert_true(end_ask(&w.b, one, 1));
    for (int i = 0; i < 5; i++) run_a_little(&w.loop);
    assert_int_equal(w.b.done, 0);
    lar_shared_ask_late(&w.b.ask); /* the request goes on */
    assert_true(end_ask(&w.b, one, 1));
    lar_shared_ask_late(&w.b.ask);
    assert_false(end_ask(&w.b, one, 1)); /* and the next one does not wait at all */
    assert_int_equal(kill(w.s.pid, SIGCONT), 0);
    RUN_UNTIL(&w.loop, end_has(&w.b, "k", "x")); /* the late answer is of use all the same */
    assert_int_equal(w.b.done, 0);
    RUN_UNTIL(&w.loop, end_ask(&w.b, one, 1)); /* after a while it is asked again */
    RUN_UNTIL(&w.loop, w.b.done == 1);
    finish(&w);
}

/* It stands still for longer than any server that is of use: the connection is given up, and what was asked ends. */
static void stalled_server(void **state) {
    world w;
    (void)state;
    begin(&w, (end_options){0}, (end_options){0});
    assert_int_equal(kill(w.s.pid, SIGSTOP), 0);
    assert_true(end_ask(&w.a, one, 1));
    RUN_UNTIL(&w.loop, w.a.done == 1 && !UP(&w.a));
    expect_alone(&w.a);
    assert_int_equal(kill(w.s.pid, SIGCONT), 0);
    RUN_UNTIL(&w.loop, UP(&w.a));
    finish(&w);
}

static void full_server(void **state) {
    world w;
    (void)state;
    begin(&w, (end_options){0}, (end_options){0});
    lar_slice words[] = {LAR_SLICE("CONFIG"), LAR_SLICE("SET"), LAR_SLICE("maxmemory"), LAR_SLICE("1")};
    server_call(&w.s, words, 4, &w.out);
    end_put(&w.a, "k", "x");
    SETTLE(&w, &w.a);
    ASK(&w, &w.a, "k");
    assert_true(end_has(&w.a, "k", "x"));
    assert_true(end_count(&w.a, LAR_METRIC_SHARED_ERRORS_TOTAL) >= 1);
    assert_true(UP(&w.a)); /* it still answers questions */
    finish(&w);
}

static void many_keys(void **state) {
    world w;
    (void)state;
    begin(&w, (end_options){0}, (end_options){0});
    static char names[3000][16];
    const char *keys[3000];
    for (int i = 0; i < 3000; i++) {
        snprintf(names[i], sizeof names[i], "key %d", i);
        keys[i] = names[i];
        end_put(&w.a, names[i], names[i]);
    }
    SETTLE(&w, &w.a);
    assert_true(end_ask(&w.b, keys, 3000)); /* a question holds a bounded number of them */
    RUN_UNTIL(&w.loop, w.b.done == 1);
    assert_int_equal(w.b.changed, 1024);
    assert_true(end_has(&w.b, "key 1023", "key 1023"));
    assert_true(end_has(&w.b, "key 1024", NULL));
    finish(&w);
}

static void cancelled_ask_is_silent(void **state) {
    world w;
    (void)state;
    begin(&w, (end_options){0}, (end_options){0});
    end_put(&w.a, "k", "x");
    SETTLE(&w, &w.a);
    ASK(&w, &w.a, "k");
    assert_true(end_ask(&w.b, one, 1));
    lar_shared_ask_cancel(&w.b.ask);
    RUN_UNTIL(&w.loop, end_has(&w.b, "k", "x"));
    assert_int_equal(w.b.done, 0);
    finish(&w);
}

/* -- several loops of one larder -------------------------------------------------------------------------------- */

enum { ROUNDS = 200, KEYS = 8 };

typedef struct worker {
    pthread_t thread;
    end *of;
    uint32_t seed, answered;
    pthread_barrier_t *all; /* none gives its descriptors back while another takes new ones */
} worker;

static void count_answer(void *owner, uint32_t changed) {
    (void)changed;
    ((worker *)owner)->answered++;
}

/* Puts and asks through a link of its own, on a loop of its own; no assertion of cmocka outside the main thread. */
static void *work(void *arg) {
    worker *w = arg;
    uv_loop_t loop;
    lar_arena arena;
    lar_buf out;
    uv_loop_init(&loop);
    lar_arena_init(&arena, 1 << 20);
    lar_buf_init(&out, 1 << 20);
    lar_stream_scratch *scratch = malloc(sizeof *scratch);
    lar_shared_link *link = lar_shared_link_new(w->of->shared, &loop, scratch);
    lar_memory_ops ops = lar_shared_link_memory(link, LAR_SHARED_FORMS);
    for (uint32_t i = 0; i < ROUNDS;) {
        char name[16], value[16];
        snprintf(name, sizeof name, "k%u", (w->seed + i) % KEYS);
        snprintf(value, sizeof value, "%u.%u", w->seed, i);
        lar_hash k = key_of(name);
        lar_shared_ask ask = {.link = link, .on_done = count_answer, .owner = w};
        lar_shared_begin(&ask);
        out.len = 0;
        (void)ops.get(ops.ctx, &k, &out);
        ops.put(ops.ctx, &k, lar_slice_cstr(value));
        uint32_t before = w->answered;
        if (lar_shared_ask_start(&ask, &arena)) {
            while (w->answered == before) (void)uv_run(&loop, UV_RUN_ONCE);
            i++;
        } else {
            (void)uv_run(&loop, UV_RUN_NOWAIT); /* not connected yet */
        }
        lar_arena_reset(&arena, 4096);
    }
    (void)pthread_barrier_wait(w->all);
    lar_shared_link_close(link);
    while (uv_run(&loop, UV_RUN_DEFAULT)) {}
    lar_shared_link_free(link);
    uv_loop_close(&loop);
    lar_arena_release(&arena);
    lar_buf_release(&out);
    free(scratch);
    return NULL;
}

static void loops_of_one_larder(void **state) {
    world w;
    worker workers[3];
    pthread_barrier_t all;
    (void)state;
    begin(&w, (end_options){0}, (end_options){0});
    assert_int_equal(pthread_barrier_init(&all, NULL, 3), 0);
    for (uint32_t i = 0; i < 3; i++) {
        workers[i] = (worker){.of = &w.a, .seed = i, .all = &all};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        assert_int_equal(workers[i].answered, ROUNDS);
    }
    (void)pthread_barrier_destroy(&all);
    /* whoever was last, all have the same in the end */
    for (uint32_t k = 0; k < KEYS; k++) {
        char name[16];
        snprintf(name, sizeof name, "k%u", k);
        ASK(&w, &w.a, name);
        SETTLE(&w, &w.a);
        ASK(&w, &w.b, name);
        lar_hash key = key_of(name);
        lar_buf mine, other;
        lar_buf_init(&mine, 64);
        lar_buf_init(&other, 64);
        assert_int_equal(w.a.local.get(w.a.local.ctx, &key, &mine), LAR_OK);
        assert_int_equal(w.b.local.get(w.b.local.ctx, &key, &other), LAR_OK);
        assert_true(lar_slice_eq(lar_buf_slice(&mine), lar_buf_slice(&other)));
        lar_buf_release(&mine);
        lar_buf_release(&other);
    }
    finish(&w);
}

/* -- servers that are none ------------------------------------------------------------------------------------- */

typedef struct liar {
    uv_tcp_t listener, peer;
    bool taken;
    lar_slice first, later; /* said to the first bytes, and to all that follow */
    uint32_t heard;
} liar;

static void on_said(uv_write_t *req, int status) {
    (void)status;
    free(req);
}

static void on_heard(uv_stream_t *h, ssize_t n, const uv_buf_t *buf) {
    liar *l = h->data;
    (void)buf;
    if (n < 0) {
        if (!uv_is_closing((uv_handle_t *)h)) uv_close((uv_handle_t *)h, NULL);
        l->taken = false;
        return;
    }
    lar_slice say = l->heard++ ? l->later : l->first;
    uv_buf_t out = uv_buf_init((char *)(uintptr_t)say.ptr, (unsigned)say.len);
    uv_write_t *req = malloc(sizeof *req);
    assert_int_equal(uv_write(req, h, &out, 1, on_said), 0);
}

static void on_room(uv_handle_t *h, size_t suggested, uv_buf_t *buf) {
    static char bytes[65536];
    (void)h;
    (void)suggested;
    *buf = uv_buf_init(bytes, sizeof bytes);
}

static void on_peer(uv_stream_t *h, int status) {
    liar *l = h->data;
    if (status < 0 || l->taken) return;
    assert_int_equal(uv_tcp_init(h->loop, &l->peer), 0);
    l->peer.data = l;
    l->taken = true;
    l->heard = 0;
    assert_int_equal(uv_accept(h, (uv_stream_t *)&l->peer), 0);
    assert_int_equal(uv_read_start((uv_stream_t *)&l->peer, on_room, on_heard), 0);
}

static void liar_open(liar *l, uv_loop_t *loop, char url[64]) {
    struct sockaddr_in at;
    int len = sizeof at;
    assert_int_equal(uv_ip4_addr("127.0.0.1", 0, &at), 0);
    assert_int_equal(uv_tcp_init(loop, &l->listener), 0);
    l->listener.data = l;
    assert_int_equal(uv_tcp_bind(&l->listener, (struct sockaddr *)&at, 0), 0);
    assert_int_equal(uv_listen((uv_stream_t *)&l->listener, 8, on_peer), 0);
    assert_int_equal(uv_tcp_getsockname(&l->listener, (struct sockaddr *)&at, &len), 0);
    snprintf(url, 64, "redis://127.0.0.1:%u", (unsigned)ntohs(at.sin_port));
}

static void with_liar(lar_slice first, lar_slice later, bool gets_up) {
    uv_loop_t loop;
    server none = {.pid = 0};
    end e;
    char url[64];
    liar l = {.first = first, .later = later};
    assert_int_equal(uv_loop_init(&loop), 0);
    liar_open(&l, &loop, url);
    end_open(&e, &loop, &none, (end_options){.url = url});
    if (gets_up) {
        RUN_UNTIL(&loop, UP(&e));
        assert_true(end_ask(&e, one, 1));
        RUN_UNTIL(&loop, e.done == 1);
        assert_int_equal(e.changed, 0);
        RUN_UNTIL(&loop, end_count(&e, LAR_METRIC_SHARED_ERRORS_TOTAL) > 0);
    } else {
        RUN_UNTIL(&loop, l.heard > 0);
        for (int i = 0; i < 20; i++) run_a_little(&loop);
        assert_false(UP(&e));
        expect_alone(&e);
    }
    end_put(&e, "k", "still here");
    assert_true(end_has(&e, "k", "still here"));
    uv_close((uv_handle_t *)&l.listener, NULL);
    end_close(&e, &loop);
    if (l.taken && !uv_is_closing((uv_handle_t *)&l.peer)) uv_close((uv_handle_t *)&l.peer, NULL);
    while (uv_run(&loop, UV_RUN_NOWAIT)) {}
    assert_int_equal(uv_loop_close(&loop), 0);
}

static void liars(void **state) {
    (void)state;
    with_liar(LAR_SLICE("HTTP/1.1 400 Bad Request\r\n\r\n"), LAR_SLICE(""), false);
    with_liar(LAR_SLICE("-NOAUTH Authentication required.\r\n"), LAR_SLICE(""), false);
    with_liar(LAR_SLICE("*1000000000\r\n"), LAR_SLICE(""), false);
    with_liar(LAR_SLICE(":1\r\n"), LAR_SLICE(""), false);
    with_liar(LAR_SLICE("+PONG\r\n"), LAR_SLICE("*0\r\n"), true);
    with_liar(LAR_SLICE("+PONG\r\n"), LAR_SLICE("*2\r\n$1\r\na\r\n$1\r\nb\r\n"), true);
    with_liar(LAR_SLICE("+PONG\r\n"), LAR_SLICE("+OK\r\n"), true);
    with_liar(LAR_SLICE("+PONG\r\n"), LAR_SLICE("\x16\x03\x01"), true);
    with_liar(LAR_SLICE("+PONG\r\n"), LAR_SLICE("-LOADING it is not ready\r\n"), true);
    with_liar(LAR_SLICE("+PONG\r\n"), LAR_SLICE("*1\r\n$-1\r\n+AGAIN\r\n"), true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(told_by_another),
        cmocka_unit_test(leaves_without_a_flush),
        cmocka_unit_test(newer_wins_both_ways),
        cmocka_unit_test(older_never_replaces),
        cmocka_unit_test(ties_end_alike),
        cmocka_unit_test(lost_values_come_back),
        cmocka_unit_test(damage_counts_as_absent),
        cmocka_unit_test(values_expire),
        cmocka_unit_test(prefixes_keep_apart),
        cmocka_unit_test(sealed_values),
        cmocka_unit_test(texts_only_where_sealed),
        cmocka_unit_test(by_socket_with_password_and_database),
        cmocka_unit_test(wrong_password),
        cmocka_unit_test(server_dies_and_comes_back),
        cmocka_unit_test(stopped_server),
        cmocka_unit_test(stalled_server),
        cmocka_unit_test(full_server),
        cmocka_unit_test(many_keys),
        cmocka_unit_test(cancelled_ask_is_silent),
        cmocka_unit_test(loops_of_one_larder),
        cmocka_unit_test(liars),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
