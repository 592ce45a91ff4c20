/* Why a request has no answer: filled where it is found, written once.
 * Called by everything in gateway/serving; any thread; never blocks. Types are those that gateway/request/reply.c gives
 * for the same status. */
#include "gateway/serving/refusal.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/utf8.h"

/* What was cut at a limit ends with a whole character. */
static void end_whole(char *text) {
    const unsigned char *p = (const unsigned char *)text, *end = p + strlen(text);
    size_t n = 1;
    while (p < end && n) p += n = lar_utf8_sequence(p, end);
    text[p - (const unsigned char *)text] = '\0';
}

lar_error lar_refuse(lar_refusal *r, const char *param, const char *code, const char *fmt, ...) {
    va_list args;
    *r = (lar_refusal){.status = 400, .code = code};
    (void)snprintf(r->param, sizeof r->param, "%s", param);
    va_start(args, fmt);
    (void)vsnprintf(r->message, sizeof r->message, fmt, args);
    va_end(args);
    end_whole(r->message);
    return LAR_INVALID;
}

static const char *code_of(lar_error e) {
    switch (e) {
    case LAR_BUSY: return "busy";
    case LAR_SHUTDOWN: return "shutdown";
    case LAR_NO_MEMORY: return "no_memory";
    case LAR_JSON_SYNTAX: return "json_syntax";
    case LAR_JSON_UTF8: return "json_utf8";
    case LAR_JSON_DEPTH: return "json_depth";
    case LAR_JSON_SIZE: return "json_size";
    case LAR_LIMIT: return "limit";
    default: return lar_error_status(e) >= 500 ? "server_error" : LAR_CODE_VALUE;
    }
}

lar_error lar_refuse_error(lar_refusal *r, lar_error e, const char *detail) {
    *r = (lar_refusal){.status = lar_error_status(e), .code = code_of(e)};
    const char *colon = detail[0] ? ": " : "";
    (void)snprintf(r->message, sizeof r->message, "%s%s%s", lar_error_text(e), colon, detail);
    end_whole(r->message);
    return e;
}

static const char *type_of(int status) {
    if (status == 503) return "overloaded_error";
    return status >= 500 ? "server_error" : "invalid_request_error";
}

void lar_refusal_write(const lar_refusal *r, lar_json_writer *w) {
    lar_json_put(w, "{\"error\":{\"message\":");
    lar_json_put_text(w, lar_slice_cstr(r->message));
    lar_json_put(w, ",\"type\":");
    lar_json_put_text(w, lar_slice_cstr(type_of(r->status)));
    lar_json_put(w, ",\"param\":");
    if (r->param[0]) lar_json_put_text(w, lar_slice_cstr(r->param));
    else lar_json_put(w, "null");
    lar_json_put(w, ",\"code\":");
    lar_json_put_text(w, lar_slice_cstr(r->code));
    lar_json_put(w, "}}");
}
