/* One loop's connection to the shared server: connecting and greeting, with growing pauses between tries.
 * Flow: loop.c makes and closes it; the stream's events -> here -> shared_ask.c, which knows what was asked.
 * Loop thread only; never blocks: names are looked up off the loop, writes are taken by the socket or queued.
 * Invariants: 1. commands are sent in UP only (and the greeting before). 2. a reply belongs to the first question that
 * waits; one that fits none breaks the connection. 3. whatever breaks, every question ends. Memory: the link; the
 * stream is made anew in place once the last one is closed. Not here: values (shared.c, shared_value.c). */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/ensure.h"
#include "gateway/shared/shared_link.h"

enum { CONNECT_MS = 2000, STALL_MS = 1000, PAUSE_MS_MIN = 50, PAUSE_MS_MAX = 5000, OUT_BYTES_MAX = 8 << 20 };

static void on_stream(void *owner, const lar_stream_event *e);
static void connect_now(lar_shared_link *l);

/* -- ending a connection ---------------------------------------------------------------------------------- */

/* Half of the pause is fixed, half random: larders that lost the same server do not come back all at once. */
static void pause_then_try(lar_shared_link *l) {
    l->state = LAR_SHARED_PAUSED;
    uint32_t noise = 0;
    (void)getrandom(&noise, sizeof noise, GRND_NONBLOCK);
    l->pause_ms = l->pause_ms ? l->pause_ms * 2 : PAUSE_MS_MIN;
    if (l->pause_ms > PAUSE_MS_MAX) l->pause_ms = PAUSE_MS_MAX;
    lar_deadline_set(&l->deadline, l->pause_ms / 2 + noise % (l->pause_ms / 2 + 1));
}

void lar_shared_link_broken(lar_shared_link *l, const char *why) {
    if (l->state == LAR_SHARED_CLOSING || l->state == LAR_SHARED_PAUSED || l->state == LAR_SHARED_ENDED) return;
    bool was_up = l->state == LAR_SHARED_UP;
    if (was_up) {
        atomic_fetch_sub(&l->shared->links_up, 1);
        lar_metrics_add(l->shared->o.metrics, LAR_METRIC_SHARED_UP, -1);
        lar_metrics_add(l->shared->o.metrics, LAR_METRIC_SHARED_ERRORS_TOTAL, 1);
    }
    lar_shared_say_down(l->shared, why);
    lar_deadline_clear(&l->deadline);
    l->out.len = 0;
    if (l->stream_open) {
        l->state = LAR_SHARED_CLOSING;
        lar_stream_close(&l->stream, LAR_CLOSE_RESET);
    } else {
        pause_then_try(l);
    }
    lar_shared_questions_fail(l);
}

/* The last handle but the stream's may be closed already. */
static void on_stream_closed(lar_shared_link *l) {
    l->stream_open = false;
    lar_resp_free(l->resp);
    l->resp = NULL;
    if (l->state == LAR_SHARED_CLOSING) pause_then_try(l);
}

/* -- connecting --------------------------------------------------------------------------------------------- */

static bool greet(lar_shared_link *l) {
    const lar_config *c = l->shared->o.config;
    lar_slice user = lar_slice_cstr(c->shared.user), password = lar_slice_cstr(c->shared_password);
    lar_error e = LAR_OK;
    l->greetings = 1;
    if (password.len) {
        lar_slice words[] = {LAR_SLICE("AUTH"), user, password};
        lar_slice old[] = {LAR_SLICE("AUTH"), password};
        e = user.len ? lar_resp_command(&l->out, words, 3) : lar_resp_command(&l->out, old, 2);
        l->greetings++;
    }
    if (!e && c->shared.db) {
        char number[12];
        int n = snprintf(number, sizeof number, "%u", (unsigned)c->shared.db);
        lar_slice words[] = {LAR_SLICE("SELECT"), lar_slice_of(number, (size_t)n)};
        e = lar_resp_command(&l->out, words, 2);
        l->greetings++;
    }
    lar_slice ping[] = {LAR_SLICE("PING")};
    if (!e) e = lar_resp_command(&l->out, ping, 1);
    bool sent = !e && lar_shared_link_send(l);
    lar_secret_wipe(lar_slice_of(l->out.ptr, l->out.cap)); /* the password stood there */
    return sent;
}

static void on_open(lar_shared_link *l) {
    l->state = LAR_SHARED_GREETING;
    lar_stream_read_start(&l->stream);
    if (!greet(l)) lar_shared_link_broken(l, "the greeting could not be sent");
}

static void on_greeted(lar_shared_link *l, const lar_resp_reply *r) {
    if (r->kind != LAR_RESP_STATUS) {
        char why[64] = "it does not speak RESP as Redis does";
        size_t n = 0;
        if (r->kind == LAR_RESP_ERROR) { /* only its first word: the rest may repeat what was sent */
            while (n < r->text.len && n < 32 && r->text.ptr[n] >= 'A' && r->text.ptr[n] <= 'Z') n++;
            (void)snprintf(why, sizeof why, "it refuses: %.*s", (int)n, r->text.ptr);
        }
        l->pause_ms = PAUSE_MS_MAX; /* a wrong password does not get right by asking often */
        lar_shared_link_broken(l, why);
        return;
    }
    if (--l->greetings) return;
    l->state = LAR_SHARED_UP;
    l->pause_ms = 0;
    l->late_count = 0;
    l->quiet_until_ms = 0;
    lar_deadline_clear(&l->deadline);
    atomic_fetch_add(&l->shared->links_up, 1);
    lar_metrics_add(l->shared->o.metrics, LAR_METRIC_SHARED_UP, 1);
    lar_shared_say_up(l->shared);
}

static lar_error open_socket(lar_shared_link *l) {
    const char *path = l->shared->o.config->shared.socket;
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t len = strlen(path);
    LAR_ASSERT(len < sizeof to.sun_path);
    memcpy(to.sun_path, path, len);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return LAR_IO;
    /* a local socket is connected at once or not at all */
    if (connect(fd, (const struct sockaddr *)&to, sizeof to) != 0) {
        (void)close(fd);
        return LAR_IO;
    }
    lar_error e = lar_stream_adopt(&l->stream, fd);
    if (e) (void)close(fd);
    return e;
}

static void connect_now(lar_shared_link *l) {
    l->state = LAR_SHARED_CONNECTING;
    lar_deadline_set(&l->deadline, CONNECT_MS);
    l->resp = lar_resp_new();
    lar_stream_init(&l->stream, l->loop, l->scratch, on_stream, l);
    l->stream_open = true;
    const lar_resolver *r = &l->resolver;
    bool local = l->shared->o.config->shared.socket[0] != 0;
    lar_error e = l->resp ? LAR_OK : LAR_NO_MEMORY;
    if (!e && local) e = open_socket(l);
    if (!e && !local) {
        l->peer = r->addresses[l->address_index++ % r->count];
        e = lar_stream_connect(&l->stream, (const struct sockaddr *)&l->peer, l->shared->tls);
    }
    if (e) lar_shared_link_broken(l, "cannot connect");
    else if (local) on_open(l);
}

static void on_resolved(void *owner, lar_error e) {
    lar_shared_link *l = owner;
    if (l->state != LAR_SHARED_RESOLVING) return;
    if (e) lar_shared_link_broken(l, "its name could not be resolved");
    else connect_now(l);
}

static void try_now(lar_shared_link *l) {
    l->state = LAR_SHARED_RESOLVING;
    if (l->shared->o.config->shared.socket[0] || lar_resolver_fresh(&l->resolver)) connect_now(l);
    else lar_resolver_start(&l->resolver);
}

/* -- events ---------------------------------------------------------------------------------------------------- */

static void on_due(void *owner) {
    lar_shared_link *l = owner;
    switch (l->state) {
    case LAR_SHARED_PAUSED: try_now(l); return;
    case LAR_SHARED_CONNECTING:
    case LAR_SHARED_GREETING: lar_shared_link_broken(l, "connecting takes too long"); return;
    case LAR_SHARED_UP: lar_shared_link_broken(l, "it does not answer"); return;
    case LAR_SHARED_RESOLVING:
    case LAR_SHARED_CLOSING:
    case LAR_SHARED_ENDED: return;
    }
}

static void on_data(lar_shared_link *l, lar_slice data) {
    if (lar_resp_feed(l->resp, data) != LAR_OK) {
        lar_shared_link_broken(l, "an answer is too large");
        return;
    }
    while (l->state == LAR_SHARED_GREETING || l->state == LAR_SHARED_UP) {
        lar_resp_reply r;
        lar_error e = lar_resp_next(l->resp, &r);
        if (e == LAR_NOT_FOUND) break;
        if (e) lar_shared_link_broken(l, "it does not speak RESP as Redis does");
        else if (l->state == LAR_SHARED_GREETING) on_greeted(l, &r);
        else lar_shared_answered(l, &r);
    }
    if (l->state != LAR_SHARED_UP) return;
    if (l->first) lar_deadline_set(&l->deadline, STALL_MS);
    else lar_deadline_clear(&l->deadline);
}

static void on_stream(void *owner, const lar_stream_event *e) {
    lar_shared_link *l = owner;
    if (e->kind == LAR_STREAM_CLOSED) {
        on_stream_closed(l);
        return;
    }
    if (l->state == LAR_SHARED_CLOSING || l->state == LAR_SHARED_ENDED) return;
    switch (e->kind) {
    case LAR_STREAM_OPEN: on_open(l); return;
    case LAR_STREAM_DATA: on_data(l, e->data); return;
    case LAR_STREAM_EOF: lar_shared_link_broken(l, "it closed the connection"); return;
    case LAR_STREAM_ERROR: lar_shared_link_broken(l, e->diag.text[0] ? e->diag.text : "the connection broke"); return;
    case LAR_STREAM_DRAINED:
    case LAR_STREAM_CLOSED: return;
    }
}

bool lar_shared_link_send(lar_shared_link *l) {
    (void)uv_prepare_stop(&l->prepare);
    if (l->out.len == 0) return true;
    struct iovec iov = {l->out.ptr, l->out.len};
    lar_error e = lar_stream_write(&l->stream, &iov, 1, LAR_WRITE_COPY, NULL);
    l->out.len = 0;
    if (!e) {
        if (!l->deadline.at_ms && l->state == LAR_SHARED_UP) lar_deadline_set(&l->deadline, STALL_MS);
        return true;
    }
    /* the caller is in the middle of something: the connection ends in the loop's next turn */
    if (l->state == LAR_SHARED_UP) lar_deadline_set(&l->deadline, 0);
    return false;
}

static void on_prepare(uv_prepare_t *p) { (void)lar_shared_link_send(p->data); }

void lar_shared_link_later(lar_shared_link *l) {
    if (!uv_is_active((uv_handle_t *)&l->prepare)) LAR_ASSERT(uv_prepare_start(&l->prepare, on_prepare) == 0);
}

bool lar_shared_link_room(const lar_shared_link *l) {
    return l->state == LAR_SHARED_UP && l->out.len + lar_stream_queued(&l->stream) < OUT_BYTES_MAX / 2;
}

/* -- lifetime ---------------------------------------------------------------------------------------------------- */

lar_shared_link *lar_shared_link_new(lar_shared *s, uv_loop_t *loop, lar_stream_scratch *scratch) {
    lar_shared_link *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    const lar_config *c = s->o.config;
    l->seal = lar_shared_seal_new();
    if (!l->seal) {
        free(l);
        return NULL;
    }
    l->shared = s;
    for (int k = 0; k < LAR_SHARED_KIND_COUNT; k++)
        l->views[k] = (struct lar_shared_view){.link = l, .kind = (lar_shared_kind)k};
    lar_shared_link_scope(l, NULL);
    l->loop = loop;
    l->scratch = scratch;
    l->prefix = lar_slice_cstr(c->shared_prefix);
    lar_buf_init(&l->out, OUT_BYTES_MAX);
    lar_buf_init(&l->value, 2 * LAR_SHARED_VALUE_BYTES_MAX);
    lar_buf_init(&l->local, 2 * LAR_SHARED_VALUE_BYTES_MAX);
    lar_buf_init(&l->envelope, 2 * LAR_SHARED_VALUE_BYTES_MAX);
    lar_deadline_init(&l->deadline, loop, on_due, l);
    LAR_ASSERT(uv_prepare_init(loop, &l->prepare) == 0);
    l->prepare.data = l;
    if (!c->shared.socket[0]) lar_resolver_init(&l->resolver, loop, c->shared.host, c->shared.port, 30000);
    l->resolver.owner = l;
    l->resolver.on_done = on_resolved;
    l->state = LAR_SHARED_PAUSED;
    lar_deadline_set(&l->deadline, 0);
    return l;
}

void lar_shared_link_close(lar_shared_link *l) {
    if (l->state == LAR_SHARED_ENDED) return;
    if (l->state == LAR_SHARED_UP) {
        (void)lar_shared_link_send(l);
        atomic_fetch_sub(&l->shared->links_up, 1);
        lar_metrics_add(l->shared->o.metrics, LAR_METRIC_SHARED_UP, -1);
    }
    l->state = LAR_SHARED_ENDED;
    for (lar_shared_question *q = l->first; q; q = q->next) {
        if (q->ask) q->ask->waiting = NULL;
        q->ask = NULL;
    }
    lar_resolver_close(&l->resolver);
    lar_deadline_close(&l->deadline, NULL);
    uv_close((uv_handle_t *)&l->prepare, NULL);
    if (l->stream_open) lar_stream_close(&l->stream, LAR_CLOSE_NORMAL);
}

void lar_shared_link_free(lar_shared_link *l) {
    if (!l) return;
    LAR_ASSERT(l->state == LAR_SHARED_ENDED && !l->stream_open);
    lar_shared_questions_fail(l);
    lar_resp_free(l->resp);
    lar_shared_seal_free(l->seal);
    lar_buf_release(&l->out);
    lar_buf_release(&l->value);
    lar_buf_release(&l->local);
    lar_buf_release(&l->envelope);
    free(l);
}
