/* Active probes: GET requests of larder's own that ask an upstream whose breaker is open whether it is back (options
 * probe.*), so that no client's request has to. One at a time for each upstream, for all loops. Main loop only. */
#ifndef LARDER_GATEWAY_PROBE_H
#define LARDER_GATEWAY_PROBE_H

#include "gateway/request/gateway.h"

typedef struct lar_probes lar_probes;

/* Heap; NULL when out of memory. */
lar_probes *lar_probes_new(uv_loop_t *loop, lar_gateway *g);
/* From now on those upstreams are probed that the newest generation says. NO_MEMORY: some of them are not. */
LAR_MUST_USE lar_error lar_probes_take(lar_probes *p);
/* Ends what is under way. NULL: nothing happens. */
void lar_probes_close(lar_probes *p);
/* After the close, once the loop has run until no handle was left. NULL: nothing happens. */
void lar_probes_free(lar_probes *p);

#endif
