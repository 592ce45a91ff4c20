/* A drill: a gateway with the operator's configuration, in this process, asked while its upstreams fail. */
#ifndef LARDER_GATEWAY_DRILL_H
#define LARDER_GATEWAY_DRILL_H

#include "gateway/drill/drill_plan.h"
#include "gateway/drill/drill_report.h"

/* Plays every scene and prints the report to standard output. Blocks for seconds to minutes; ends early on SIGINT,
 * SIGTERM or SIGHUP (BUSY). `c` is changed and of no other use afterwards; it stays the caller's. Of the tally,
 * `failed` says whether the configuration holds. INVALID: options that name nothing; errors of lar_serve_run; IO,
 * NO_MEMORY. */
LAR_MUST_USE lar_error lar_drill_run(lar_config *c, const lar_drill_options *o, lar_drill_tally *t, lar_diag *d);

#endif
