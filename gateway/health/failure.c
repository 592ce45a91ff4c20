/* Which class a failure belongs to.
 * Called by the request's attempts and by the health of upstreams. Pure; any thread. */
#include "gateway/health/failure.h"

#include <string.h>

enum { SPARES, COUNTS, BODY_BYTES_MAX = 65536 };
#define NO LAR_RESEND_NO
#define YES LAR_RESEND_YES
#define LATER LAR_RESEND_LATER

static const lar_failure_info rows[LAR_FAILURE_COUNT] = {
#define LAR_FAILURE(id, name, same, other, counts, text) {name, text, same, other != NO, counts != SPARES},
#include "gateway/health/failure.def"
#undef LAR_FAILURE
#undef NO
#undef YES
#undef LATER
};

const lar_failure_info *lar_failure_info_of(lar_failure f) { return &rows[f]; }

static lar_failure by_stage(lar_attempt_stage stage) {
    switch (stage) {
    case LAR_ATTEMPT_UNSENT: return LAR_FAILURE_NOT_SENT;
    case LAR_ATTEMPT_SENT: return LAR_FAILURE_FAILED;
    case LAR_ATTEMPT_HEAD: return LAR_FAILURE_BROKEN;
    case LAR_ATTEMPT_CONTENT: return LAR_FAILURE_BROKEN_LATE;
    }
    return LAR_FAILURE_BROKEN_LATE;
}

lar_failure lar_failure_of_error(lar_error e, lar_attempt_stage stage) {
    switch (e) {
    case LAR_UPSTREAM_DNS:
    case LAR_UPSTREAM_CONNECT:
    case LAR_UPSTREAM_CONNECT_TIMEOUT:
    case LAR_UPSTREAM_TLS: return LAR_FAILURE_NOT_SENT;
    case LAR_UPSTREAM_BUSY: return LAR_FAILURE_CROWDED;
    case LAR_UPSTREAM_CLOSED:
    case LAR_UPSTREAM_TIMEOUT:
    case LAR_UPSTREAM_CUT:
    case LAR_UPSTREAM_PROTOCOL:
    case LAR_UPSTREAM_ERROR: return by_stage(stage);
    default: return LAR_FAILURE_NONE;
    }
}

static bool holds(lar_slice text, const char *what) {
    size_t n = strlen(what);
    for (size_t i = 0; i + n <= text.len; i++)
        if (lar_slice_ieq(lar_slice_of(text.ptr + i, n), lar_slice_of(what, n))) return true;
    return false;
}

/* OpenAI's code first; then what DeepSeek, vLLM, SGLang, Anthropic and llama.cpp say. */
static bool too_long(lar_slice body) {
    static const char *const words[] = {"context_length_exceeded", "maximum context length",
                                        "exceed_context_size",     "prompt is too long",
                                        "exceeds the context",     "longer than the model's context"};
    if (body.len > BODY_BYTES_MAX) body.len = BODY_BYTES_MAX;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (holds(body, words[i])) return true;
    return false;
}

lar_failure lar_failure_of_status(int status, bool asks_to_wait, lar_slice body) {
    if (status < 400) return LAR_FAILURE_NONE;
    if (status == 429 || status == 503 || status == 529) return LAR_FAILURE_REFUSED;
    if (status >= 500 || status == 408) return asks_to_wait ? LAR_FAILURE_REFUSED : LAR_FAILURE_FAILED;
    return (status == 400 || status == 413) && too_long(body) ? LAR_FAILURE_TOO_LONG : LAR_FAILURE_CLIENT;
}
