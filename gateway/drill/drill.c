/* The run of a drill (header: drill.h).
 * Flow: plan -> stand-in -> disguised configuration -> gateway (a thread; the code that `larder serve` runs) -> each
 * scene: what comes is told to the stand-in, asked, looked at from both sides, judged, printed. Blocks; this thread,
 * one of the stand-in, those of the gateway.
 * Invariants: 1. one request at a time. 2. whatever happens, gateway and stand-in end and the store's folder goes.
 * 3. signals are a descriptor here, so that an interrupted drill cleans up. Memory: plan and results. */
#include "gateway/drill/drill.h"

#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/ensure.h"
#include "gateway/drill/drill_disguise.h"
#include "gateway/request/serve.h"

enum { TOKENS = 8, TOKENS_OF_TWO = 64 }; /* of an answer that another begins there is more */
enum { AFTER_OPEN_MS = 50, FOLDER_BYTES = 256, FILES_AT_ONCE = 16 };

typedef enum gateway_state { GATEWAY_STARTING, GATEWAY_LISTENING, GATEWAY_ENDED } gateway_state;

typedef struct gateway {
    lar_config *config;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    gateway_state state; /* guarded by lock, as all below */
    lar_serve *serve;
    uint16_t port;
    lar_error error;
    lar_diag diag;
} gateway;

typedef struct drill {
    lar_drill_plan plan;
    const lar_drill_options *options;
    lar_stand_in *stand_in;
    gateway gateway;
    bool started;
    lar_drill_result *results;
    lar_drill_tally *tally;
    char folder[FOLDER_BYTES]; /* of the store; "" : none */
    int interrupted;
    sigset_t mask_before;
} drill;

/* -- the gateway -------------------------------------------------------------------------------------------------- */

static void on_listening(void *owner, lar_serve *serve, uint16_t port) {
    gateway *g = owner;
    (void)pthread_mutex_lock(&g->lock);
    g->serve = serve;
    g->port = port;
    g->state = GATEWAY_LISTENING;
    (void)pthread_cond_signal(&g->changed);
    (void)pthread_mutex_unlock(&g->lock);
}

static void *run_gateway(void *arg) {
    gateway *g = arg;
    const lar_serve_host host = {.on_listening = on_listening, .owner = g};
    lar_diag d = {{0}, 0, 0};
    lar_error e = lar_serve_run_inside(g->config, &host, &d);
    (void)pthread_mutex_lock(&g->lock);
    g->error = e;
    g->diag = d;
    g->state = GATEWAY_ENDED;
    (void)pthread_cond_signal(&g->changed);
    (void)pthread_mutex_unlock(&g->lock);
    return NULL;
}

static lar_error start_gateway(drill *x, lar_config *c, lar_diag *d) {
    gateway *g = &x->gateway;
    g->config = c;
    LAR_ASSERT(pthread_mutex_init(&g->lock, NULL) == 0 && pthread_cond_init(&g->changed, NULL) == 0);
    if (pthread_create(&g->thread, NULL, run_gateway, g) != 0)
        return lar_fail(LAR_NO_MEMORY, d, "the gateway's thread");
    x->started = true;
    (void)pthread_mutex_lock(&g->lock);
    while (g->state == GATEWAY_STARTING) (void)pthread_cond_wait(&g->changed, &g->lock);
    lar_error e = g->state == GATEWAY_ENDED ? g->error : LAR_OK;
    if (e) *d = g->diag;
    (void)pthread_mutex_unlock(&g->lock);
    return e;
}

static void stop_gateway(drill *x) {
    gateway *g = &x->gateway;
    if (!x->started) return;
    (void)pthread_mutex_lock(&g->lock);
    bool listening = g->state == GATEWAY_LISTENING;
    (void)pthread_mutex_unlock(&g->lock);
    if (listening) lar_serve_stop(g->serve);
    (void)pthread_join(g->thread, NULL);
    (void)pthread_cond_destroy(&g->changed);
    (void)pthread_mutex_destroy(&g->lock);
}

/* -- signals and the store's folder -------------------------------------------------------------------------------- */

static lar_error catch_signals(drill *x, lar_diag *d) {
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGHUP);
    x->interrupted = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (x->interrupted < 0) return lar_fail(LAR_IO, d, "signals: %s", strerror(errno));
    LAR_ASSERT(pthread_sigmask(SIG_BLOCK, &set, &x->mask_before) == 0); /* threads that are started inherit it */
    return LAR_OK;
}

static void let_signals_go(drill *x) {
    struct signalfd_siginfo seen;
    if (x->interrupted < 0) return;
    while (read(x->interrupted, &seen, sizeof seen) > 0) {} /* or it would act now */
    (void)close(x->interrupted);
    (void)pthread_sigmask(SIG_SETMASK, &x->mask_before, NULL);
}

static lar_error make_folder(drill *x, lar_diag *d) {
    const char *base = getenv("TMPDIR");
    int n = snprintf(x->folder, sizeof x->folder, "%s/larder-drill-XXXXXX", base && *base ? base : "/tmp");
    if (n < (int)sizeof x->folder && mkdtemp(x->folder)) return LAR_OK;
    x->folder[0] = 0;
    return lar_fail(LAR_IO, d, "a folder for the drill's store: %s", strerror(errno));
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st, (void)type, (void)at;
    return remove(path);
}

static void remove_folder(const drill *x) {
    if (!x->folder[0]) return;
    if (nftw(x->folder, remove_one, FILES_AT_ONCE, FTW_DEPTH | FTW_PHYS) != 0)
        (void)fprintf(stderr, "larder: %s could not be removed: %s\n", x->folder, strerror(errno));
}

/* -- scenes ------------------------------------------------------------------------------------------------------- */

/* False: the drill is to stop. */
static bool pause_ms(const drill *x, uint32_t ms) {
    struct pollfd fd = {.fd = x->interrupted, .events = POLLIN};
    return poll(&fd, 1, (int)ms) == 0;
}

/* One request, judged. */
static lar_error play_round(drill *x, uint32_t scene, uint32_t round, lar_drill_result *r) {
    const lar_drill_scene *s = &x->plan.scenes[scene];
    lar_drill_question q = {.port = x->gateway.port,
                            .scene = scene,
                            .protocol = s->line->protocol,
                            .model = s->line->model,
                            .streamed = s->streamed,
                            .prompt_bytes = x->options->prompt_bytes,
                            .tool = s->scenario->fault == LAR_DRILL_FAULT_CUT && s->scenario->arg == LAR_DRILL_AT_TOOL,
                            .interrupted = x->interrupted};
    lar_drill_expect expect = lar_drill_expect_of(s, &x->plan, round);
    q.tokens_max = expect.must == LAR_DRILL_MUST_CONTINUE ? TOKENS_OF_TWO : TOKENS;
    lar_drill_saw saw;
    uint32_t strays;
    lar_drill_saw_init(&saw);
    lar_stand_in_begin(x->stand_in, scene, round);
    lar_error e = lar_drill_ask(&q, &saw);
    const lar_drill_seen *seen = lar_stand_in_look(x->stand_in, &strays);
    if (!e) r->verdict = lar_drill_judge(s, &expect, &saw, seen);
    lar_stand_in_done(x->stand_in);
    r->alone = expect.alone;
    r->status = saw.status;
    r->first_us = saw.first_us;
    r->total_us = saw.total_us;
    memcpy(r->failure, saw.failure, sizeof r->failure);
    if (!e && strays && r->verdict.held) {
        r->verdict.held = false;
        (void)snprintf(r->verdict.why, sizeof r->verdict.why, "a request of an earlier scene was sent again");
    }
    lar_drill_saw_release(&saw);
    return e;
}

/* The request of several that a scene is about. */
static uint32_t shown_round(const lar_drill_scene *s) {
    bool before_last = s->scenario->course == LAR_DRILL_FLAP || s->scenario->course == LAR_DRILL_REST;
    return before_last ? s->rounds - 2 : s->rounds - 1;
}

static void settle(const drill *x, lar_drill_result *r) {
    char why[LAR_DRILL_WHY_BYTES];
    if (r->verdict.held && r->alone && x->options->require_fallback) r->verdict.held = false;
    if (r->verdict.held || r->alone) return;
    lar_drill_explain(r->scene, &x->plan, why);
    if (!*why) return;
    char seen[LAR_DRILL_WHY_BYTES];
    memcpy(seen, r->verdict.why, sizeof seen);
    (void)snprintf(r->verdict.why, sizeof r->verdict.why, "%.300s (%.200s)", why, seen);
}

static lar_error play(drill *x, uint32_t scene, lar_drill_result *r) {
    const lar_drill_scene *s = &x->plan.scenes[scene];
    uint32_t lost = 0;
    lar_error e = LAR_OK;
    *r = (lar_drill_result){.scene = s, .verdict.held = true};
    for (uint32_t round = 0; !e && r->verdict.held && round < s->rounds; round++) {
        lar_drill_result one = {.scene = s};
        bool recovers = s->scenario->course == LAR_DRILL_REST && round + 1 == s->rounds;
        if (recovers && !pause_ms(x, s->wait.played_ms + AFTER_OPEN_MS)) return LAR_BUSY;
        e = play_round(x, scene, round, &one);
        lost += one.verdict.lost;
        if (!one.verdict.held || round == shown_round(s)) *r = one;
    }
    r->verdict.lost = lost;
    settle(x, r);
    return e;
}

static lar_error play_all(drill *x) {
    lar_error e = LAR_OK;
    if (!x->options->json) lar_drill_print_head(&x->plan, stdout);
    for (uint32_t i = 0; !e && i < x->plan.scene_count; i++) {
        lar_drill_result *r = &x->results[i];
        e = play(x, i, r);
        if (e) break;
        if (r->verdict.held) x->tally->held++;
        else x->tally->failed++;
        x->tally->alone += r->verdict.held && r->alone;
        if (!x->options->json) lar_drill_print_line(r, stdout);
    }
    if (e) return e;
    if (x->options->json) return lar_drill_print_json(&x->plan, x->results, x->tally, stdout);
    lar_drill_print_end(x->results, x->tally, stdout);
    return LAR_OK;
}

static lar_error prepare(drill *x, lar_config *c, lar_diag *d) {
    lar_error e = lar_drill_plan_make(&x->plan, c, x->options, d);
    if (e) return e;
    if (!x->plan.scene_count) {
        (void)fwrite(x->plan.notes.ptr ? x->plan.notes.ptr : "", 1, x->plan.notes.len, stderr);
        return lar_fail(LAR_INVALID, d, "there is nothing to play");
    }
    x->results = calloc(x->plan.scene_count, sizeof *x->results);
    if (!x->results) return lar_fail(LAR_NO_MEMORY, d, "results");
    if (*c->store_dir) e = make_folder(x, d);
    if (!e) e = lar_stand_in_open(&x->plan, &x->stand_in, d);
    if (e) return e;
    lar_drill_places places = {.port = lar_stand_in_port(x->stand_in),
                               .closed_port = lar_stand_in_closed_port(x->stand_in),
                               .store_dir = x->folder};
    e = lar_drill_disguise(c, &x->plan, &places, x->options->verbose);
    return e ? lar_fail(e, d, "the drill's configuration") : LAR_OK;
}

lar_error lar_drill_run(lar_config *c, const lar_drill_options *o, lar_drill_tally *t, lar_diag *d) {
    *t = (lar_drill_tally){0};
    drill x = {.options = o, .tally = t, .interrupted = -1};
    lar_error e = catch_signals(&x, d);
    if (e) return e;
    e = prepare(&x, c, d);
    if (!e) e = start_gateway(&x, c, d);
    if (!e) {
        e = play_all(&x);
        if (e) (void)lar_fail(e, d, "%s", e == LAR_BUSY ? "interrupted" : "the drill could not go on");
    }
    stop_gateway(&x);
    lar_stand_in_close(x.stand_in);
    remove_folder(&x);
    free(x.results);
    lar_drill_plan_release(&x.plan);
    let_signals_go(&x);
    return e;
}
