/* When an upstream wants to be asked again. */
#ifndef LARDER_GATEWAY_RETRY_AFTER_H
#define LARDER_GATEWAY_RETRY_AFTER_H

#include <stdbool.h>
#include <stdint.h>

#include "gateway/http1/http1.h"

/* Milliseconds from now, to `ms_max` (a longer wish is cut to it, R-03). In this order: retry-after-ms (OpenAI's
 * clients' convention); Retry-After as seconds, also a fraction, or as any of the dates of RFC 9110 5.6.7 (a past one
 * is 0); retry_after in a JSON body, at its top or in `error`, in seconds. False: none of them is there, or none can be
 * read (garbage, negative, several that differ): then *ms is as it was. `now_ms`: wall clock. */
bool lar_retry_after(const lar_http1_head *h, lar_slice body, int64_t now_ms, uint32_t ms_max, uint32_t *ms);

#endif
