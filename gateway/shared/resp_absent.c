/* In place of resp.c where larder is built without hiredis: says so, and speaks nothing. Called by shared.c, which then
 * refuses shared.url; the rest is never reached. Any thread; no memory; never blocks. */
#include "base/ensure.h"
#include "gateway/shared/resp.h"

bool lar_resp_available(void) { return false; }

lar_resp *lar_resp_new(void) { return NULL; }

void lar_resp_free(lar_resp *r) { LAR_ASSERT(!r); }

lar_error lar_resp_feed(lar_resp *r, lar_slice bytes) {
    (void)r;
    (void)bytes;
    return LAR_INVALID;
}

lar_error lar_resp_next(lar_resp *r, lar_resp_reply *out) {
    (void)r;
    (void)out;
    return LAR_INVALID;
}

lar_error lar_resp_command(lar_buf *to, const lar_slice *words, uint32_t count) {
    (void)to;
    (void)words;
    (void)count;
    return LAR_INVALID;
}
