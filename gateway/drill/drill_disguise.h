/* The operator's configuration as the drill's gateway runs it: each scene's upstreams are stand-ins on this machine. */
#ifndef LARDER_GATEWAY_DRILL_DISGUISE_H
#define LARDER_GATEWAY_DRILL_DISGUISE_H

#include "gateway/drill/drill_plan.h"

/* What clients and larder have for credentials in a drill: no real one is ever sent. */
#define LAR_DRILL_CLIENT_KEY "drill-client-credential"
#define LAR_DRILL_UPSTREAM_KEY "drill-upstream-credential"

typedef struct lar_drill_places {
    uint16_t port;         /* of the stand-in */
    uint16_t closed_port;  /* nobody listens there */
    const char *store_dir; /* in place of store.dir; "" where that is not set */
} lar_drill_places;

/* Changes `c`, which stays the caller's: its lists and what would reach beyond this process are others, all else is as
 * it was. Scene i is asked under the prefix "/d<i>"; what it sends to target t arrives under "/s<i>.<t>". NO_MEMORY. */
LAR_MUST_USE lar_error lar_drill_disguise(lar_config *c, const lar_drill_plan *p, const lar_drill_places *places,
                                          bool verbose);

#endif
