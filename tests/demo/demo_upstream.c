/* demo_upstream: a stand-in for hosted LLM APIs with an honest prefix cache. Options and start.
 *
 * Flow: options -> demo_server (answers) + demo_wire (sockets) -> the loop, until SIGINT or SIGTERM.
 * Thread: one loop. Nothing blocks.
 * Why: quickstart, tests and the bench need an upstream that runs without a network and counts hits by rule.
 * It listens on loopback only. Prints "listening on HOST:PORT" on stdout once it does. */
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "demo_json.h"
#include "demo_server.h"

static const char usage_text[] =
    "demo_upstream: a stand-in for hosted LLM APIs, on loopback only\n"
    "  --listen HOST:PORT       default 127.0.0.1:0 (a free port); the address is printed on stdout\n"
    "  --rule RULE              none, deepseek, openai, vllm16: how the prefix cache counts hits (default deepseek)\n"
    "  --tls CERT KEY           PEM files: serve TLS\n"
    "  --answer TEXT            the fixed answer; --answer-bytes N makes one of N bytes\n"
    "  --events N               a stream has N events with text; --event-ms MS one every MS\n"
    "  --event-clock            each event's text is the monotonic clock in ns when it was made\n"
    "  --keepalive-timeout S    close idle connections after S seconds, and say so in Keep-Alive\n"
    "  --log N                  requests kept for /__log (default 20000; 0 with --rule none)\n"
    "POST /v1/chat/completions, /v1/completions, /v1/responses, /v1/messages, /v1/embeddings; GET /v1/models.\n"
    "A model named status-503, error-200, reset, close, hang, garbage, cut-after-3, end-after-3, stall-after-3,\n"
    "slow-500, drip-100, no-done or early-hints fails in that way. A last user message with the word TOOLCALL is\n"
    "answered with a call of the first tool.\n"
    "POST /__next {\"message\":{..}}  the next completion's answer\n"
    "POST /__fail {\"mode\":\"status:503\",\"times\":1,\"after\":2}   the next completions fail; modes as the models above\n"
    "POST /__reset   GET /__log?from=N   GET /__stats\n";

typedef struct settings {
    demo_wire_options wire;
    demo_server_options server;
    char host[64];
    lar_buf answer;
    bool log_given;
} settings;

static void die(const char *what, const char *value) {
    fprintf(stderr, "demo_upstream: %s: %s\n%s", what, value, usage_text);
    exit(64);
}

static uint64_t number(const char *option, const char *text) {
    uint64_t n = demo_json_u64(lar_slice_cstr(text), UINT64_MAX);
    if (n == UINT64_MAX) die(option, text);
    return n;
}

static void set_listen(settings *s, const char *text) {
    const char *colon = strrchr(text, ':');
    if (!colon || (size_t)(colon - text) >= sizeof s->host) die("--listen", text);
    memcpy(s->host, text, (size_t)(colon - text));
    s->host[colon - text] = 0;
    uint64_t port = number("--listen", colon + 1);
    if (port > 65535 || strncmp(s->host, "127.", 4) != 0) die("--listen wants a loopback address", text);
    s->wire.host = s->host;
    s->wire.port = (int)port;
}

static void fill_answer(settings *s, uint64_t bytes) {
    static const char words[] = "larder keeps what was baked before ";
    if (bytes > (64u << 20)) die("--answer-bytes", "over 64 MiB");
    lar_buf_reset(&s->answer, 0);
    for (uint64_t i = 0; i < bytes; i++) demo_put(&s->answer, lar_slice_of(&words[i % (sizeof words - 1)], 1));
}

/* Takes one option; returns how many arguments it used. */
static int take(settings *s, const char *name, const char *a, const char *b) {
    if (strcmp(name, "--event-clock") == 0) {
        s->server.event_clock = true;
        return 1;
    }
    if (strcmp(name, "--help") == 0) {
        fputs(usage_text, stdout);
        exit(0);
    }
    if (!a) die("missing value", name);
    if (strcmp(name, "--listen") == 0) {
        set_listen(s, a);
    } else if (strcmp(name, "--rule") == 0) {
        if (!demo_rule_find(a, &s->server.rule)) die("--rule", a);
    } else if (strcmp(name, "--answer") == 0) {
        lar_buf_reset(&s->answer, 0);
        demo_put(&s->answer, lar_slice_cstr(a));
    } else if (strcmp(name, "--answer-bytes") == 0) {
        fill_answer(s, number(name, a));
    } else if (strcmp(name, "--events") == 0) {
        s->server.events = number(name, a);
        if (s->server.events > 10000000) die(name, a);
    } else if (strcmp(name, "--event-ms") == 0) {
        s->server.event_ms = number(name, a);
    } else if (strcmp(name, "--keepalive-timeout") == 0) {
        s->server.keepalive_timeout_s = number(name, a);
        s->wire.keepalive_timeout_ms = s->server.keepalive_timeout_s * 1000;
    } else if (strcmp(name, "--log") == 0) {
        s->server.log_entries = number(name, a);
        if (s->server.log_entries > 10000000) die(name, a);
        s->log_given = true;
    } else if (strcmp(name, "--tls") == 0) {
        if (!b) die("missing value", name);
        s->wire.tls_cert = a;
        s->wire.tls_key = b;
        return 3;
    } else {
        die("unknown option", name);
    }
    return 2;
}

/* A stream of N events needs a text with N characters at least. */
static void finish_answer(settings *s) {
    if (!s->answer.len) {
        if (s->server.events) fill_answer(s, s->server.events * 6);
        else DEMO_PUT(&s->answer, "A short fixed answer.");
    }
    s->server.answer = lar_buf_slice(&s->answer);
    if (!s->log_given) s->server.log_entries = s->server.rule == DEMO_RULE_NONE ? 0 : 20000;
}

typedef struct program {
    demo_wire *wire;
    uv_signal_t signals[2];
} program;

static void on_signal(uv_signal_t *h, int number_of_signal) {
    program *p = h->data;
    (void)number_of_signal;
    demo_wire_stop(p->wire);
    for (int i = 0; i < 2; i++) uv_close((uv_handle_t *)&p->signals[i], NULL);
}

static int serve(const settings *s) {
    uv_loop_t loop;
    program p = {0};
    static const int which[] = {SIGINT, SIGTERM};
    if (uv_loop_init(&loop) != 0) return 70;
    demo_server *server = demo_server_new(&s->server);
    demo_wire_ops ops = demo_server_ops(server);
    p.wire = demo_wire_new(&loop, &s->wire, &ops);
    if (p.wire) {
        demo_server_set_wire(server, p.wire);
        for (int i = 0; i < 2; i++) {
            uv_signal_init(&loop, &p.signals[i]);
            p.signals[i].data = &p;
            uv_signal_start(&p.signals[i], on_signal, which[i]);
        }
        printf("listening on %s:%d\n", s->host, demo_wire_port(p.wire));
        fflush(stdout);
        uv_run(&loop, UV_RUN_DEFAULT);
        demo_wire_free(p.wire);
    }
    demo_server_free(server);
    uv_loop_close(&loop);
    return p.wire ? 0 : 1;
}

int main(int argc, char **argv) {
    settings s = {.server = {.rule = DEMO_RULE_DEEPSEEK}};
    lar_buf_init(&s.answer, 1u << 30);
    /* A page fault costs more than a copy on many virtual machines: keep what was once allocated. */
    mallopt(M_MMAP_THRESHOLD, 256 << 20);
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
    mallopt(M_TOP_PAD, 16 << 20);
    signal(SIGPIPE, SIG_IGN);
    set_listen(&s, "127.0.0.1:0");
    for (int i = 1; i < argc;)
        i += take(&s, argv[i], i + 1 < argc ? argv[i + 1] : NULL, i + 2 < argc ? argv[i + 2] : NULL);
    finish_answer(&s);
    int rc = serve(&s);
    lar_buf_release(&s.answer);
    return rc;
}
