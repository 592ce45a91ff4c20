/* A real server on a free port, and larders' ends of shared memory on one event loop. */
#ifndef LARDER_TESTS_SHARED_FIXTURE_H
#define LARDER_TESTS_SHARED_FIXTURE_H

#include <sys/types.h>

#include "gateway/recall/volatile_memory.h"
#include "gateway/shared/resp.h"
#include "gateway/shared/shared.h"
#include "gateway/shared/shared_value.h"

typedef struct server {
    pid_t pid; /* 0: not running */
    uint16_t port;
    char folder[64], socket[96];
    char password[32]; /* "" = none */
} server;

/* Starts REDIS_SERVER; waits until it takes connections. The same port again after server_kill. */
void server_start(server *s);
void server_kill(server *s);
void server_release(server *s);
/* One command on a connection of its own; the reply's text ("" if it has none) is in `out`. */
void server_call(const server *s, const lar_slice *words, uint32_t count, lar_buf *out);

/* One larder's end: its own memory, its own settings. */
typedef struct end {
    lar_config config;
    lar_metrics *metrics;
    lar_volatile_memory *memory, *texts;
    lar_memory_ops local, ops, text_ops; /* ops: through the link */
    lar_shared *shared;
    lar_shared_link *link;
    lar_stream_scratch *scratch;
    lar_arena arena;
    lar_shared_ask ask;
    uint32_t changed, done;
} end;

typedef struct end_options {
    const char *url; /* NULL: the server's TCP port */
    const char *password, *secret, *prefix;
} end_options;

void end_open(end *e, uv_loop_t *loop, const server *s, end_options o);
void end_close(end *e, uv_loop_t *loop);
int64_t end_count(const end *e, lar_metric m);
void end_put(end *e, const char *key, const char *value);
/* The local value of `key` is `value`; NULL: there is none. */
bool end_has(end *e, const char *key, const char *value);
/* Looks the keys up as one request would, and asks. False: nothing was asked. */
bool end_ask(end *e, const char *const *keys, uint32_t count);
lar_hash key_of(const char *text);

/* Runs the loop until it is so; fails the test after ten seconds. */
#define RUN_UNTIL(loop, condition)                                                                                     \
    do {                                                                                                               \
        uint64_t begin_ = uv_hrtime();                                                                                 \
        while (!(condition)) {                                                                                         \
            assert_true(uv_hrtime() - begin_ < UINT64_C(10000000000));                                                 \
            run_a_little(loop);                                                                                        \
        }                                                                                                              \
    } while (0)
void run_a_little(uv_loop_t *loop);

#endif
