/* What operators see of the upstreams' standing: metrics, JSON, readiness. For the admin listener. */
#ifndef LARDER_GATEWAY_STANDING_REPORT_H
#define LARDER_GATEWAY_STANDING_REPORT_H

#include "base/buf.h"
#include "gateway/request/gateway.h"

/* All of them look at the upstreams of the newest generation, in the configuration's order; any thread. One that no
 * loop has taken up yet stands as closed, with nothing counted. */

/* Appends larder_upstream_<name of a row in upstream_metrics.def> in the Prometheus text format. */
LAR_MUST_USE lar_error lar_standing_metrics(lar_gateway *g, lar_buf *out);
/* Appends {"upstreams": [...]}, the body of GET /upstreams. */
LAR_MUST_USE lar_error lar_standing_json(lar_gateway *g, lar_buf *out);
/* Ready unless the breakers of all upstreams that a request could go to (the first one's, routes' and their fallbacks',
 * with replicas) are open, or they are models that could not be loaded. If not: appends {"ready": false, "reason": ...,
 * "upstreams": [...]} that names them. */
LAR_MUST_USE lar_error lar_standing_ready(lar_gateway *g, bool *ready, lar_buf *out);
/* Appends a line "name: state" for each model of this process that is not loaded. */
LAR_MUST_USE lar_error lar_standing_models(lar_gateway *g, lar_buf *out);

#endif
