/* Start, run and stop of the gateway: store, certificates, loops, admin listener, signals.
 * Called by the `serve` command; calls everything else of gateway/. The main thread has its own loop for signals, admin
 * and certificate reload; the traffic is on the loops' threads. Blocks until the end.
 * Start list and stop list are mirrored: what was opened last is closed first. Not here: requests. */
#include "gateway/request/serve.h"

#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/ensure.h"
#include "gateway/net/listener.h"
#include "gateway/recall/output_texts.h"
#include "gateway/recall/volatile_memory.h"
#include "gateway/request/admin.h"
#include "gateway/request/gateway.h"
#include "gateway/request/probe.h"
#include "policies/edition.h"
#include "store/page_segments.h"

enum { LOOPS_MAX = 256, CERT_LOOK_MS = 2000 };

/* How the files of a certificate were; all zero: not there. */
typedef struct cert_marks {
    struct stat cert, key;
} cert_marks;

typedef struct lar_serve {
    lar_gateway g;
    uv_loop_t main;
    const lar_serve_host *host; /* NULL: a program of its own */
    uv_async_t stop;            /* with a host: in place of the signals */
    uv_signal_t on_term, on_int, on_hup;
    uv_timer_t cert_timer;
    lar_generation *cert_from; /* whose tls.cert and tls.key are in force; NULL: plain HTTP, until the end */
    cert_marks cert_seen;      /* how these files were when they were read last */
    lar_volatile_memory *volatile_memory;
    lar_output_texts *output_texts;
    lar_page_segments *segments; /* of prefixes on disk; NULL: none are spilled */
    lar_page_store page_store;
    lar_admin *admin;
    lar_probes *probes;
    lar_loop *loops;
    uint32_t loops_open, loops_running;
    uv_work_t join;
    int stop_signals;
} serve;

/* Large bodies come and go: without this glibc gives their pages back and takes them again at each request. */
static void tune_malloc(void) {
    (void)mallopt(M_MMAP_THRESHOLD, 256 << 20);
    (void)mallopt(M_TRIM_THRESHOLD, 256 << 20);
    (void)mallopt(M_TOP_PAD, 1 << 20);
}

static void join_loops(serve *s) {
    for (uint32_t i = 0; i < s->loops_running; i++) lar_loop_join(&s->loops[i]);
    s->loops_running = 0;
}

/* -- certificates --------------------------------------------------------------------------------------------- */

/* *out is NULL for plain HTTP. */
static lar_error read_cert(const lar_config *c, lar_tls_context **out, lar_diag *d) {
    *out = NULL;
    return c->tls_cert[0] ? lar_tls_server_new(c->tls_cert, c->tls_key, out, d) : LAR_OK;
}

/* For connections that come from now on. */
static void put_cert(serve *s, lar_tls_context *fresh) {
    (void)pthread_mutex_lock(&s->g.lock);
    lar_tls_context *old = s->g.listener_tls;
    s->g.listener_tls = fresh;
    (void)pthread_mutex_unlock(&s->g.lock);
    lar_tls_context_unref(old);
}

static struct stat mark(const char *file) {
    struct stat st;
    if (stat(file, &st) != 0) memset(&st, 0, sizeof st);
    return st;
}

/* Taken before the files are read: a change while they are read is then seen at the next look. */
static cert_marks mark_cert(const lar_config *c) {
    return (cert_marks){.cert = mark(c->tls_cert), .key = mark(c->tls_key)};
}

static bool changed(const struct stat *a, const struct stat *b) {
    return a->st_dev != b->st_dev || a->st_ino != b->st_ino || a->st_size != b->st_size ||
           a->st_mtim.tv_sec != b->st_mtim.tv_sec || a->st_mtim.tv_nsec != b->st_mtim.tv_nsec;
}

static void look_at_cert(uv_timer_t *t) {
    serve *s = t->data;
    const lar_config *c = s->cert_from->config;
    cert_marks now = mark_cert(c);
    if (!changed(&now.cert, &s->cert_seen.cert) && !changed(&now.key, &s->cert_seen.key)) return;
    s->cert_seen = now;
    lar_diag d = {{0}, 0, 0};
    lar_tls_context *fresh = NULL;
    if (read_cert(c, &fresh, &d)) { /* half-written files are common in a renewal: the old certificate stays */
        LAR_LOG(s->g.log, LAR_LOG_WARN, "certificate_not_reloaded", LAR_F_CSTR("detail", d.text));
        return;
    }
    put_cert(s, fresh);
    LAR_LOG(s->g.log, LAR_LOG_INFO, "certificate_reloaded", LAR_F_CSTR("file", c->tls_cert));
}

/* -- models ------------------------------------------------------------------------------------------------------ */

/* One folder of spilled pages for all models: what a page's key is made of keeps them apart. */
static lar_error open_segments(serve *s, lar_diag *d) {
    const lar_config *c = s->g.boot;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < c->upstream_count; i++) bytes += c->upstreams[i].engine.spill_bytes;
    if (!bytes) return LAR_OK;
    s->page_store = (lar_page_store){.has = lar_page_segments_has,
                                     .read = lar_page_segments_read,
                                     .write = lar_page_segments_write,
                                     .flush = lar_page_segments_flush,
                                     .outcomes = lar_page_segments_outcomes};
    lar_error e = lar_page_segments_open(s->g.store, &(lar_page_segments_options){.bytes_max = bytes}, &s->segments, d);
    s->page_store.context = s->segments;
    return e;
}

/* Routes choose the model: then a request may name it as the route has it. */
static bool is_routed_to(const lar_config *c, uint32_t upstream) {
    for (uint32_t i = 0; i < c->route_count; i++) {
        const lar_route_config *r = &c->routes[i];
        if (r->upstream == upstream) return true;
        for (uint32_t k = 0; k < r->fallback_count; k++)
            if (r->fallbacks[k].upstream == upstream) return true;
    }
    return false;
}

static lar_error open_residents(serve *s, lar_diag *d) {
    const lar_config *c = s->g.boot;
    s->g.residents = calloc(c->upstream_count, sizeof *s->g.residents);
    lar_error e = s->g.residents ? open_segments(s, d) : lar_fail(LAR_NO_MEMORY, d, "engines");
    uint64_t promised = 0;
    uint32_t n = c->upstream_count;
    for (uint32_t k = 0; !e && k < 2 * n; k++) { /* those that take their memory now come first */
        const uint32_t i = k % n;
        const lar_upstream_config *u = &c->upstreams[i];
        if (u->kind != LAR_UPSTREAM_KIND_ENGINE || (u->engine.start == LAR_ENGINE_START_NEED) != (k >= n)) continue;
        lar_resident_options o = {.config = u,
                                  .any_model = is_routed_to(c, i),
                                  .promised_bytes = promised,
                                  .page_store = u->engine.spill_bytes ? &s->page_store : NULL,
                                  .log = s->g.log,
                                  .buffered_bytes = &s->g.buffered_bytes,
                                  .buffer_bytes_max = c->buffer_bytes_max};
        e = lar_resident_open(&o, &s->g.residents[s->g.resident_count], d);
        if (!e && k >= n) promised += lar_resident_planned(s->g.residents[s->g.resident_count]);
        if (!e) s->g.resident_count++;
    }
    return e;
}

/* Ranks prefixes that are to be kept warm from the first request on; without it they are ranked by what comes. */
static void read_prefix_counts(serve *s) {
    bool wanted = false;
    for (uint32_t i = 0; i < s->g.boot->upstream_count; i++) wanted |= s->g.boot->upstreams[i].engine.keep_warm > 0;
    if (!wanted || !s->g.store || !lar_prefix_counts_read(s->g.store, &s->g.prefixes_seen)) return;
    lar_prefix_counts_free(s->g.prefixes_seen);
    s->g.prefixes_seen = NULL;
}

static void close_residents(serve *s) {
    for (uint32_t i = 0; i < s->g.resident_count; i++) lar_resident_close(s->g.residents[i]);
    free(s->g.residents);
    lar_page_segments_close(s->segments);
}

/* Models are opened at start only: one that is not there cannot be routed to. */
static lar_error check_engines(const serve *s, const lar_config *next, lar_diag *d) {
    for (uint32_t i = 0; i < next->upstream_count; i++) {
        const lar_upstream_config *u = &next->upstreams[i];
        if (u->kind != LAR_UPSTREAM_KIND_ENGINE || lar_gateway_resident(&s->g, u->name)) continue;
        return lar_fail(LAR_CONFIG, d, "upstream %.64s: a model is opened at start only; restart larder", u->name);
    }
    return LAR_OK;
}

/* -- signals ---------------------------------------------------------------------------------------------------- */

static void close_handle(uv_handle_t *h) {
    if (h->loop && !uv_is_closing(h)) uv_close(h, NULL);
}

static void close_main_handles(serve *s) {
    lar_admin_close(s->admin);
    s->admin = NULL;
    lar_probes_close(s->probes);
    close_handle((uv_handle_t *)&s->stop);
    close_handle((uv_handle_t *)&s->on_term);
    close_handle((uv_handle_t *)&s->on_int);
    close_handle((uv_handle_t *)&s->on_hup);
    close_handle((uv_handle_t *)&s->cert_timer);
}

static void on_joined(uv_work_t *w, int status) {
    (void)status;
    serve *s = w->data;
    close_main_handles(s);
}

static void join_work(uv_work_t *w) { join_loops(w->data); }

/* The first signal asks for an orderly stop, the second cuts what is under way. */
static void stop(serve *s, int signum) {
    LAR_LOG(s->g.log, LAR_LOG_INFO, "stopping", LAR_F_INT("signal", signum));
    atomic_store(&s->g.stopping, true);
    for (uint32_t i = 0; i < s->loops_open; i++) lar_loop_stop(&s->loops[i]);
    if (s->stop_signals++) return;
    s->join.data = s;
    LAR_ASSERT(uv_queue_work(&s->main, &s->join, join_work, on_joined) == 0);
}

static void take_probes(serve *s) {
    if (lar_probes_take(s->probes))
        LAR_LOG(s->g.log, LAR_LOG_ERROR, "reload_failed", LAR_F_CSTR("detail", "out of memory for active probes"));
}

static void on_stop_signal(uv_signal_t *h, int signum) { stop(h->data, signum); }

static void on_stop_asked(uv_async_t *a) { stop(a->data, SIGTERM); }

void lar_serve_stop(lar_serve *s) { (void)uv_async_send(&s->stop); }

static void name_restart_options(serve *s, const lar_config *next) {
    lar_buf names;
    lar_buf_init(&names, 4096);
    if (lar_config_restart_names(s->g.boot, next, &names))
        LAR_LOG(s->g.log, LAR_LOG_WARN, "reload_needs_restart", LAR_F_TEXT("options", lar_buf_slice(&names)));
    lar_buf_release(&names);
}

/* Read, validate, swap at once: everything, or nothing (the old configuration stays in force). Whether the listener
 * speaks TLS is settled at start: one that is new is only looked at,
 * and one that is gone stays in force. */
static lar_error reload(serve *s, lar_diag *d) {
    lar_config *next = NULL;
    lar_generation *fresh = NULL;
    lar_tls_context *cert = NULL;
    lar_error e = lar_config_reload(s->g.generation->config, &next, d);
    cert_marks seen = e ? s->cert_seen : mark_cert(next);
    if (!e) e = read_cert(next, &cert, d);
    if (!e) e = check_engines(s, next, d);
    if (!e) e = lar_generation_new(next, s->g.boot, &fresh, d);
    if (e) {
        lar_tls_context_unref(cert);
        lar_config_free(next);
        return e;
    }
    if (cert && s->cert_from) {
        put_cert(s, cert);
        lar_generation_unref(s->cert_from);
        s->cert_from = lar_generation_ref(fresh);
        s->cert_seen = seen;
    } else {
        lar_tls_context_unref(cert);
    }
    atomic_store(&s->g.access_log, next->log_access);
    lar_log_set_level(s->g.log, (lar_log_level)next->log_level);
    lar_answers_limit(s->g.answers, next->answers_bytes_max);
    name_restart_options(s, next);
    (void)pthread_mutex_lock(&s->g.lock);
    lar_generation *old = s->g.generation;
    s->g.generation = fresh;
    (void)pthread_mutex_unlock(&s->g.lock);
    lar_generation_unref(old);
    for (uint32_t i = 0; i < s->loops_open; i++) lar_loop_reload(&s->loops[i]);
    take_probes(s);
    return LAR_OK;
}

static void on_reload_signal(uv_signal_t *h, int signum) {
    serve *s = h->data;
    lar_diag d = {{0}, 0, 0};
    if (atomic_load(&s->g.stopping)) return;
    lar_error e = reload(s, &d);
    if (e)
        LAR_LOG(s->g.log, LAR_LOG_ERROR, "reload_failed", LAR_F_CSTR("error", lar_error_name(e)),
                LAR_F_CSTR("detail", d.text));
    else LAR_LOG(s->g.log, LAR_LOG_INFO, "reloaded", LAR_F_INT("signal", signum));
}

static void watch_signal(serve *s, uv_signal_t *h, uv_signal_cb cb, int signum) {
    LAR_ASSERT(uv_signal_init(&s->main, h) == 0);
    h->data = s;
    LAR_ASSERT(uv_signal_start(h, cb, signum) == 0);
}

static void watch(serve *s) {
    if (s->host) {
        LAR_ASSERT(uv_async_init(&s->main, &s->stop, on_stop_asked) == 0);
        s->stop.data = s;
        return;
    }
    watch_signal(s, &s->on_term, on_stop_signal, SIGTERM);
    watch_signal(s, &s->on_int, on_stop_signal, SIGINT);
    watch_signal(s, &s->on_hup, on_reload_signal, SIGHUP);
    if (!s->g.listener_tls) return;
    s->cert_from = lar_generation_ref(s->g.generation);
    s->cert_timer.data = s;
    LAR_ASSERT(uv_timer_init(&s->main, &s->cert_timer) == 0);
    LAR_ASSERT(uv_timer_start(&s->cert_timer, look_at_cert, CERT_LOOK_MS, CERT_LOOK_MS) == 0);
}

/* -- start -------------------------------------------------------------------------------------------------------- */

static void log_edition(serve *s, lar_slice before, const lar_edition_change *changes, uint32_t count) {
    lar_buf b;
    lar_buf_init(&b, 4096);
    if (lar_edition_changes_text(changes, count, &b) == LAR_OK)
        LAR_LOG(s->g.log, LAR_LOG_WARN, "edition_changed", LAR_F_TEXT("from", before), LAR_F_CSTR("to", LAR_EDITION),
                LAR_F_TEXT("changed", lar_buf_slice(&b)),
                LAR_F_CSTR("detail", "prefixes that these touch miss once; larder fingerprint says which"));
    lar_buf_release(&b);
}

/* The store remembers which edition wrote it: after an upgrade or a step back the log says what will miss. */
static void compare_edition(serve *s) {
    lar_edition_change changes[LAR_EDITION_ROWS_MAX];
    lar_slice before = LAR_SLICE(LAR_EDITION_FIRST);
    uint32_t count = 0;
    lar_buf was, now;
    lar_buf_init(&was, 16384);
    lar_buf_init(&now, 16384);
    lar_error e = lar_store_note_read(s->g.store, "edition", &was);
    if (!e) e = lar_edition_diff_text(lar_buf_slice(&was), &before, changes, &count);
    else if (e == LAR_NOT_FOUND && lar_store_last_seq(s->g.store)) count = lar_edition_diff(before, changes);
    if (e == LAR_CORRUPT) before = LAR_SLICE("unknown");
    if (count || e == LAR_CORRUPT) log_edition(s, before, changes, count);
    e = lar_edition_write(&now);
    bool same = !e && lar_slice_eq(lar_buf_slice(&was), lar_buf_slice(&now));
    if (!e && !same) e = lar_store_note_write(s->g.store, "edition", lar_buf_slice(&now));
    if (e) LAR_LOG(s->g.log, LAR_LOG_WARN, "edition_unwritten", LAR_F_CSTR("error", lar_error_name(e)));
    lar_buf_release(&was);
    lar_buf_release(&now);
}

static lar_error open_store(serve *s, lar_diag *d) {
    const lar_config *c = s->g.boot;
    if (!c->store_dir[0]) {
        s->volatile_memory = lar_volatile_memory_new(64u << 20);
        if (!s->volatile_memory) return lar_fail(LAR_NO_MEMORY, d, "recall memory");
        s->g.memory = lar_volatile_memory_ops(s->volatile_memory);
        LAR_LOG(s->g.log, LAR_LOG_WARN, "no_store",
                LAR_F_CSTR("detail", "no journal is kept; set store.dir or --store"));
        return LAR_OK;
    }
    lar_store_options o = {.dir = c->store_dir,
                           .map_bytes_max = c->store_bytes_max,
                           .retention_ms = (uint64_t)c->store_days * 86400000u,
                           .memory_retention_ms = (uint64_t)c->store_memory_days * 86400000u,
                           .commit_ms = c->store_commit_ms,
                           .sync_ms = c->store_sync_ms,
                           .log = s->g.log,
                           .metrics = s->g.metrics};
    lar_error e = lar_store_open(&o, &s->g.store, d);
    if (e) return e;
    compare_edition(s);
    s->g.memory = (lar_memory_ops){.ctx = s->g.store, .get = lar_store_memory_get, .put = lar_store_memory_put};
    return LAR_OK;
}

/* Over the memory of this process, which answers while the server does not. */
static lar_error open_shared(serve *s, lar_diag *d) {
    if (!s->g.boot->shared_url[0]) return LAR_OK;
    lar_shared_options o = {.config = s->g.boot,
                            .local = {s->g.memory, s->g.texts},
                            .log = s->g.log,
                            .metrics = s->g.metrics};
    return lar_shared_new(&o, &s->g.shared, d);
}

static lar_error open_answers(serve *s, lar_diag *d) {
    s->g.answers = lar_answers_new(s->g.metrics, s->g.boot->answers_bytes_max);
    return s->g.answers ? LAR_OK : lar_fail(LAR_NO_MEMORY, d, "answers");
}

static lar_error open_texts(serve *s, lar_diag *d) {
    const lar_config *c = s->g.boot;
    if (c->output_bytes_max == 0) return LAR_OK;
    s->output_texts = lar_output_texts_new(c->output_bytes_max, c->output_on_disk ? &s->g.memory : NULL);
    if (!s->output_texts) return lar_fail(LAR_NO_MEMORY, d, "memory of answers");
    s->g.texts = lar_output_texts_ops(s->output_texts);
    return LAR_OK;
}

/* -- loops ------------------------------------------------------------------------------------------------------- */

static uint32_t loop_count(const lar_config *c) {
    if (c->threads) return c->threads;
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > LOOPS_MAX ? LOOPS_MAX : (uint32_t)n;
}

static lar_error open_loops(serve *s, lar_diag *d) {
    const lar_config *c = s->g.boot;
    uint32_t n = loop_count(c);
    uint16_t *ports = calloc(c->listen_count, sizeof *ports);
    s->loops = calloc(n, sizeof *s->loops);
    lar_error e = ports && s->loops ? LAR_OK : lar_fail(LAR_NO_MEMORY, d, "loops");
    for (uint32_t i = 0; !e && i < n; i++) {
        s->loops_open = i + 1;
        e = lar_loop_open(&s->loops[i], &s->g, i, i ? ports : NULL, d);
        for (uint32_t k = 0; !e && i == 0 && k < c->listen_count; k++) {
            char text[LAR_ADDRESS_TEXT_BYTES];
            ports[k] = lar_listener_address(&s->loops[0].listeners[k], text, sizeof text);
        }
    }
    for (uint32_t i = 0; !e && i < n; i++) {
        e = lar_loop_start(&s->loops[i], d);
        if (!e) s->loops_running++;
    }
    for (uint32_t k = 0; !e && k < c->listen_count; k++) {
        char text[LAR_ADDRESS_TEXT_BYTES];
        (void)lar_listener_address(&s->loops[0].listeners[k], text, sizeof text);
        LAR_LOG(s->g.log, LAR_LOG_INFO, "listening", LAR_F_CSTR("address", text), LAR_F_INT("loops", n));
    }
    free(ports);
    return e;
}

static uint16_t first_port(const serve *s) {
    char text[LAR_ADDRESS_TEXT_BYTES];
    return lar_listener_address(&s->loops[0].listeners[0], text, sizeof text);
}

/* The default admin address may be taken by another larder: that is no reason not to serve. */
static lar_error open_admin(serve *s, lar_diag *d) {
    lar_error e = lar_admin_open(&s->main, &s->g, &s->admin, d);
    if (!e || strcmp(s->g.boot->admin_listen, "127.0.0.1:8081") != 0) return e;
    LAR_LOG(s->g.log, LAR_LOG_WARN, "no_admin", LAR_F_CSTR("detail", d->text));
    return LAR_OK;
}

static void init_gateway(serve *s, lar_config *c) {
    lar_gateway *g = &s->g;
    g->boot = c;
    g->log = lar_log_new(&(lar_log_options){.level = (lar_log_level)c->log_level,
                                            .format = (lar_log_format)c->log_format,
                                            .fd = STDERR_FILENO});
    g->metrics = lar_metrics_new();
    for (uint32_t r = 0; r < LAR_RULE_COUNT; r++) {
        if (lar_rule_mode_of((lar_rule)r) != LAR_RULE_MODE_LINT)
            lar_metrics_label(g->metrics, "rule", r, lar_rule_id((lar_rule)r));
    }
    g->edition_hash = lar_edition_hash();
    g->process_salt = lar_digest_of(LAR_SLICE("larder scope 1")); /* constant: recall outlives the process */
    atomic_init(&g->access_log, c->log_access);
    LAR_ASSERT(pthread_mutex_init(&g->lock, NULL) == 0);
    lar_standings_init(&g->standings);
    LAR_ASSERT(uv_loop_init(&s->main) == 0);
}

static void release_all(serve *s) {
    lar_gateway *g = &s->g;
    for (uint32_t i = 0; i < s->loops_running; i++) lar_loop_stop(&s->loops[i]);
    join_loops(s);
    close_main_handles(s);
    (void)uv_run(&s->main, UV_RUN_DEFAULT);
    lar_probes_free(s->probes);
    for (uint32_t i = 0; i < s->loops_open; i++) lar_loop_release(&s->loops[i]);
    free(s->loops);
    LAR_ASSERT(uv_loop_close(&s->main) == 0);
    lar_generation_unref(s->cert_from);
    lar_generation_unref(g->generation);
    lar_tls_context_unref(g->listener_tls);
    lar_shared_free(g->shared);
    close_residents(s);
    lar_prefix_counts_free(g->prefixes_seen);
    if (g->store) lar_store_close(g->store);
    lar_answers_free(g->answers);
    lar_output_texts_free(s->output_texts);
    lar_volatile_memory_free(s->volatile_memory);
    lar_standings_release(&g->standings);
    (void)pthread_mutex_destroy(&g->lock);
    lar_metrics_free(g->metrics);
    LAR_LOG(g->log, LAR_LOG_INFO, "stopped", LAR_F_INT("signals", s->stop_signals));
    lar_log_free(g->log);
}

lar_error lar_serve_check(lar_config *c, lar_diag *d) {
    lar_generation *g = NULL;
    lar_tls_context *cert = NULL;
    lar_error e = lar_generation_new(c, c, &g, d);
    if (!e) e = read_cert(c, &cert, d);
    lar_shared *shared = NULL;
    if (!e && c->shared_url[0]) e = lar_shared_new(&(lar_shared_options){.config = c}, &shared, d);
    lar_shared_free(shared);
    for (uint32_t i = 0; !e && i < c->upstream_count; i++)
        if (c->upstreams[i].kind == LAR_UPSTREAM_KIND_ENGINE) e = lar_resident_check(&c->upstreams[i], d);
    lar_tls_context_unref(cert);
    lar_generation_unref(g);
    return e;
}

/* What works but should not be so: said at the start, since nothing else will say it. */
static void warn_of_open_doors(const lar_gateway *g) {
    const lar_config *c = g->boot;
    bool own_key = false;
    for (uint32_t i = 0; i < c->upstream_count; i++) own_key |= c->upstreams[i].key[0] != 0;
    if (own_key && !c->key_count && !g->generation->loopback_only)
        LAR_LOG(g->log, LAR_LOG_WARN, "open_gateway",
                LAR_F_CSTR("detail",
                           "listens beyond loopback with an upstream key and no client keys: whoever reaches it "
                           "spends that key; set keys"));
}

static lar_error run(lar_config *c, const lar_serve_host *host, lar_diag *d) {
    serve *s = calloc(1, sizeof *s);
    if (!s) return lar_fail(LAR_NO_MEMORY, d, "start");
    s->host = host;
    init_gateway(s, c);
    lar_error e = lar_generation_new(c, c, &s->g.generation, d);
    s->cert_seen = mark_cert(c);
    if (!e) e = read_cert(c, &s->g.listener_tls, d);
    if (!e) e = open_store(s, d);
    if (!e) e = open_texts(s, d);
    if (!e) e = open_answers(s, d);
    if (!e) e = open_shared(s, d);
    if (!e) e = open_residents(s, d);
    if (!e) read_prefix_counts(s);
    if (!e) e = open_admin(s, d);
    if (!e && !(s->probes = lar_probes_new(&s->main, &s->g))) e = lar_fail(LAR_NO_MEMORY, d, "active probes");
    if (!e) e = lar_probes_take(s->probes);
    if (!e) {
        warn_of_open_doors(&s->g);
        watch(s); /* before the loops say that they listen: who waits for that line may send a signal next */
        e = open_loops(s, d);
    }
    if (!e && host) host->on_listening(host->owner, s, first_port(s));
    if (!e) (void)uv_run(&s->main, UV_RUN_DEFAULT);
    release_all(s);
    free(s);
    return e;
}

lar_error lar_serve_run(lar_config *c, lar_diag *d) {
    tune_malloc();
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN); /* until watch(): a reload asked for too early must not end the process */
    return run(c, NULL, d);
}

lar_error lar_serve_run_inside(lar_config *c, const lar_serve_host *host, lar_diag *d) {
    (void)signal(SIGPIPE, SIG_IGN);
    return run(c, host, d);
}
