/* See shared_fixture.h. One thread; blocks in the server's start only. */
#include "shared_fixture.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int connect_to(uint16_t port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0) return fd;
    close(fd);
    return -1;
}

static uint16_t free_port(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    close(fd);
    return ntohs(a.sin_port);
}

static void exec_server(const server *s) {
    char port[8];
    const char *program = getenv("REDIS_SERVER");
    int null = open("/dev/null", O_RDWR);
    dup2(null, 1);
    dup2(null, 2);
    snprintf(port, sizeof port, "%u", (unsigned)s->port);
    const char *const words[] = {program,   "--port",        port,        "--bind", "127.0.0.1", "--save",
                                 "",        "--appendonly",  "no",        "--dir",  s->folder,   "--unixsocket",
                                 s->socket, "--requirepass", s->password, NULL};
    execv(program, (char *const *)(uintptr_t)words);
    _exit(127);
}

void server_start(server *s) {
    if (!s->folder[0]) {
        snprintf(s->folder, sizeof s->folder, "/tmp/larder-shared-XXXXXX");
        assert_non_null(mkdtemp(s->folder));
        snprintf(s->socket, sizeof s->socket, "%s/s", s->folder);
        s->port = free_port();
    }
    assert_non_null(getenv("REDIS_SERVER"));
    s->pid = fork();
    assert_true(s->pid >= 0);
    if (s->pid == 0) exec_server(s);
    for (int i = 0; i < 500; i++) {
        int fd = connect_to(s->port);
        if (fd >= 0) {
            close(fd);
            return;
        }
        usleep(20000);
    }
    fail_msg("the server does not take connections");
}

void server_kill(server *s) {
    if (!s->pid) return;
    kill(s->pid, SIGKILL);
    waitpid(s->pid, NULL, 0);
    s->pid = 0;
}

void server_release(server *s) {
    server_kill(s);
    unlink(s->socket);
    rmdir(s->folder);
}

static void one_reply(int fd, lar_buf *out) {
    lar_resp *r = lar_resp_new();
    lar_resp_reply reply;
    lar_error e;
    while ((e = lar_resp_next(r, &reply)) == LAR_NOT_FOUND) {
        char bytes[4096];
        ssize_t n = read(fd, bytes, sizeof bytes);
        assert_true(n > 0);
        assert_int_equal(lar_resp_feed(r, lar_slice_of(bytes, (size_t)n)), LAR_OK);
    }
    assert_int_equal(e, LAR_OK);
    out->len = 0;
    assert_int_equal(lar_buf_add_slice(out, reply.text.ptr ? reply.text : LAR_SLICE("")), LAR_OK);
    lar_resp_free(r);
}

void server_call(const server *s, const lar_slice *words, uint32_t count, lar_buf *out) {
    int fd = connect_to(s->port);
    lar_buf b;
    assert_true(fd >= 0);
    lar_buf_init(&b, 1 << 20);
    lar_slice auth[] = {LAR_SLICE("AUTH"), lar_slice_cstr(s->password)};
    if (s->password[0]) {
        assert_int_equal(lar_resp_command(&b, auth, 2), LAR_OK);
        assert_int_equal(write(fd, b.ptr, b.len), (ssize_t)b.len);
        one_reply(fd, out);
        b.len = 0;
    }
    assert_int_equal(lar_resp_command(&b, words, count), LAR_OK);
    assert_int_equal(write(fd, b.ptr, b.len), (ssize_t)b.len);
    one_reply(fd, out);
    lar_buf_release(&b);
    close(fd);
}

/* -- a larder's end --------------------------------------------------------------------------------------------- */

static void on_done(void *owner, uint32_t changed) {
    end *e = owner;
    e->changed = changed;
    e->done++;
}

void end_open(end *e, uv_loop_t *loop, const server *s, end_options o) {
    *e = (end){.changed = 0};
    lar_diag d = {{0}, 0, 0};
    char url[128];
    snprintf(url, sizeof url, "redis://127.0.0.1:%u", (unsigned)s->port);
    lar_arena_init(&e->config.arena, 1 << 20);
    assert_int_equal(lar_shared_url_parse(lar_slice_cstr(o.url ? o.url : url), &e->config.arena, &e->config.shared, &d),
                     LAR_OK);
    e->config.shared_password = o.password ? o.password : s->password;
    e->config.shared_secret = o.secret ? o.secret : "";
    e->config.shared_prefix = o.prefix ? o.prefix : "larder:";
    e->config.shared_ca_file = "";
    e->config.shared_ttl_ms = 3600000;
    e->config.shared_wait_ms = 20;
    e->metrics = lar_metrics_new();
    e->memory = lar_volatile_memory_new(1 << 20);
    e->texts = lar_volatile_memory_new(1 << 20);
    e->local = lar_volatile_memory_ops(e->memory);
    e->scratch = malloc(sizeof *e->scratch);
    lar_shared_options so = {.config = &e->config,
                             .local = {e->local, lar_volatile_memory_ops(e->texts)},
                             .metrics = e->metrics};
    assert_int_equal(lar_shared_new(&so, &e->shared, &d), LAR_OK);
    e->link = lar_shared_link_new(e->shared, loop, e->scratch);
    assert_non_null(e->link);
    e->ops = lar_shared_link_memory(e->link, LAR_SHARED_FORMS);
    e->text_ops = lar_shared_link_memory(e->link, LAR_SHARED_TEXTS);
    lar_arena_init(&e->arena, 1 << 20);
}

void end_close(end *e, uv_loop_t *loop) {
    lar_shared_link_close(e->link);
    while (uv_run(loop, UV_RUN_NOWAIT)) run_a_little(loop);
    lar_shared_link_free(e->link);
    lar_shared_free(e->shared);
    lar_volatile_memory_free(e->memory);
    lar_volatile_memory_free(e->texts);
    lar_metrics_free(e->metrics);
    lar_arena_release(&e->arena);
    lar_arena_release(&e->config.arena);
    free(e->scratch);
}

int64_t end_count(const end *e, lar_metric m) { return lar_metrics_get(e->metrics, m); }

lar_hash key_of(const char *text) { return lar_hash_of(lar_slice_cstr(text)); }

void end_put(end *e, const char *key, const char *value) {
    lar_hash k = key_of(key);
    e->ops.put(e->ops.ctx, &k, lar_slice_cstr(value));
}

bool end_has(end *e, const char *key, const char *value) {
    lar_hash k = key_of(key);
    lar_buf b;
    lar_buf_init(&b, 1 << 20);
    bool found = e->local.get(e->local.ctx, &k, &b) == LAR_OK;
    bool same = value ? found && lar_slice_eq_cstr(lar_buf_slice(&b), value) : !found;
    lar_buf_release(&b);
    return same;
}

bool end_ask(end *e, const char *const *keys, uint32_t count) {
    e->ask = (lar_shared_ask){.link = e->link, .on_done = on_done, .owner = e};
    e->changed = e->done = 0;
    lar_shared_begin(&e->ask);
    lar_buf b;
    lar_buf_init(&b, 1 << 20);
    for (uint32_t i = 0; i < count; i++) {
        lar_hash k = key_of(keys[i]);
        b.len = 0;
        (void)e->ops.get(e->ops.ctx, &k, &b);
    }
    lar_buf_release(&b);
    return lar_shared_ask_start(&e->ask, &e->arena);
}

static void on_tick(uv_timer_t *t) { (void)t; }
static void on_tick_closed(uv_handle_t *h) { *(bool *)h->data = true; }

/* One turn of the loop that waits for an event, or 5 ms. */
void run_a_little(uv_loop_t *loop) {
    uv_timer_t tick;
    bool closed = false;
    assert_int_equal(uv_timer_init(loop, &tick), 0);
    tick.data = &closed;
    assert_int_equal(uv_timer_start(&tick, on_tick, 5, 0), 0);
    (void)uv_run(loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&tick, on_tick_closed);
    while (!closed) (void)uv_run(loop, UV_RUN_NOWAIT);
}
