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

#endif
