/* A plain blocking HTTP/1.1 client with one kept-alive connection, as a small program would have it. */
#ifndef LARDER_TESTS_DEMO_CLIENT_H
#define LARDER_TESTS_DEMO_CLIENT_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/slice.h"

/* Embedded. */
typedef struct demo_client {
    char host[128], port[8], path[256]; /* path: what stands before every request's own */
    char key[256];                      /* sent as a bearer token where not empty */
    int fd;                             /* -1 = not connected */
    bool reused;                        /* the connection has served an answer before */
    lar_buf in;                         /* bytes read and not yet used */
} demo_client;

/* Embedded. */
typedef struct demo_response {
    int status;
    lar_buf body; /* without chunk framing */
} demo_response;

/* False if the URL is not http://HOST[:PORT][/PATH]. */
bool demo_client_init(demo_client *c, const char *url);
void demo_client_release(demo_client *c);
void demo_response_init(demo_response *r);
void demo_response_release(demo_response *r);
/* One exchange; waits up to a minute for each read. False with a line on stderr if no whole answer came. */
bool demo_client_call(demo_client *c, const char *method, const char *path, lar_slice body, demo_response *out);

#endif
