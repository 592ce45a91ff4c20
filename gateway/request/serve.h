/* `larder serve`: opens the store, starts the loops, runs until SIGTERM or SIGINT, ends requests under way, closes. */
#ifndef LARDER_GATEWAY_SERVE_H
#define LARDER_GATEWAY_SERVE_H

#include "base/error.h"
#include "gateway/config/config.h"

/* Reads what lar_serve_run and a reload would read before they change anything: certificate, key, CA files. CONFIG with
 * detail in `d`. `c` is borrowed. */
LAR_MUST_USE lar_error lar_serve_check(lar_config *c, lar_diag *d);
/* Blocks. `c` is borrowed. Errors at start (address in use, bad certificate, store) with detail in `d`;
 * LAR_OK after an orderly stop. */
LAR_MUST_USE lar_error lar_serve_run(lar_config *c, lar_diag *d);

/* A gateway inside another command of this program, which asks it itself. */
typedef struct lar_serve lar_serve;
typedef struct lar_serve_host {
    /* Once, on the thread that runs it, when connections are taken: the port of the first listener. */
    void (*on_listening)(void *owner, lar_serve *s, uint16_t port);
    void *owner;
} lar_serve_host;
/* lar_serve_run, but signals stay the caller's: it ends by lar_serve_stop alone, and nothing reloads it. After an error
 * on_listening was not called. */
LAR_MUST_USE lar_error lar_serve_run_inside(lar_config *c, const lar_serve_host *host, lar_diag *d);
/* Any thread, between on_listening and the end of the run: as the first SIGTERM. */
void lar_serve_stop(lar_serve *s);

#endif
