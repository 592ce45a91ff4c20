/* Error bodies and events, written with cJSON (larder's own output). Called by the exchange when it fails.
 * Loop thread; allocates little; never blocks. What the detail may hold is the caller's care: no credentials. */
#include "gateway/request/reply.h"

#include <cjson/cJSON.h>
#include <stdio.h>

static const char *openai_type(lar_error e) {
    int status = lar_error_status(e);
    if (e == LAR_UNAUTHORIZED) return "authentication_error";
    if (e == LAR_FORBIDDEN) return "permission_error";
    if (status == 503) return "overloaded_error";
    if (lar_error_blame(e) == LAR_BLAME_UPSTREAM) return "upstream_error";
    return status >= 500 ? "server_error" : "invalid_request_error";
}

static const char *anthropic_type(lar_error e) {
    int status = lar_error_status(e);
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 503: return "overloaded_error";
    default: return status >= 500 ? "api_error" : "invalid_request_error";
    }
}

static void lower(const char *name, char *out, size_t cap) {
    size_t i = 0;
    for (; name[i] && i + 1 < cap; i++) out[i] = name[i] >= 'A' && name[i] <= 'Z' ? (char)(name[i] + 32) : name[i];
    out[i] = 0;
}

static void message_of(lar_error e, const char *detail, char *out, size_t cap) {
    if (detail && detail[0]) (void)snprintf(out, cap, "%s: %s", lar_error_text(e), detail);
    else (void)snprintf(out, cap, "%s", lar_error_text(e));
}

/* Both halves: an object that lacks a member for want of memory says less than none. */
static cJSON *whole_or_none(cJSON *root, bool whole) {
    if (whole) return root;
    cJSON_Delete(root);
    return NULL;
}

static cJSON *error_object(bool anthropic, lar_error e, const char *detail) {
    char message[LAR_DIAG_BYTES + 128], code[64];
    message_of(e, detail, message, sizeof message);
    lower(lar_error_name(e), code, sizeof code);
    cJSON *root = cJSON_CreateObject();
    bool whole = !anthropic || cJSON_AddStringToObject(root, "type", "error");
    cJSON *error = cJSON_AddObjectToObject(root, "error");
    if (anthropic) {
        whole = whole && cJSON_AddStringToObject(error, "type", anthropic_type(e));
        return whole_or_none(root, whole && cJSON_AddStringToObject(error, "message", message));
    }
    whole =
        cJSON_AddStringToObject(error, "message", message) && cJSON_AddStringToObject(error, "type", openai_type(e));
    whole = whole && cJSON_AddNullToObject(error, "param");
    return whole_or_none(root, whole && cJSON_AddStringToObject(error, "code", code));
}

static lar_error print(lar_buf *out, cJSON *root) {
    char *text = cJSON_PrintUnformatted(root);
    cJSON_Delete(root);
    if (!text) return LAR_NO_MEMORY;
    lar_error e = lar_buf_add_slice(out, lar_slice_cstr(text));
    cJSON_free(text);
    return e;
}

lar_error lar_reply_error_body(lar_buf *out, bool anthropic, lar_error e, const char *detail) {
    return print(out, error_object(anthropic, e, detail));
}

lar_error lar_reply_error_event(lar_buf *out, lar_protocol p, lar_error e, const char *detail) {
    bool anthropic = p == LAR_PROTOCOL_MESSAGES;
    lar_error r = LAR_OK;
    cJSON *root;
    if (p == LAR_PROTOCOL_RESPONSES) {
        char message[LAR_DIAG_BYTES + 128], code[64];
        message_of(e, detail, message, sizeof message);
        lower(lar_error_name(e), code, sizeof code);
        root = cJSON_CreateObject();
        bool whole = cJSON_AddStringToObject(root, "type", "error") && cJSON_AddStringToObject(root, "code", code);
        whole = whole && cJSON_AddStringToObject(root, "message", message);
        root = whole_or_none(root, whole && cJSON_AddNullToObject(root, "param"));
    } else {
        root = error_object(anthropic, e, detail);
    }
    if (anthropic || p == LAR_PROTOCOL_RESPONSES) r = lar_buf_add_slice(out, LAR_SLICE("event: error\n"));
    if (!r) r = lar_buf_add_slice(out, LAR_SLICE("data: "));
    if (r) {
        cJSON_Delete(root);
        return r;
    }
    r = print(out, root);
    return r ? r : lar_buf_add_slice(out, LAR_SLICE("\n\n"));
}
