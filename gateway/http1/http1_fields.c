/* Questions about a head's fields, and the names of statuses.
 * Called by everybody who has a head; calls nobody. Any thread; never blocks; no memory. Names are compared without
 * regard to ASCII case (RFC 9110 5.1). Not here: reading heads (http1_head.c). */
#include "gateway/http1/http1.h"

lar_slice lar_http1_get(const lar_http1_head *h, const char *name) {
    lar_slice want = lar_slice_cstr(name);
    for (uint32_t i = 0; i < h->field_count; i++)
        if (lar_slice_ieq(h->fields[i].name, want)) return h->fields[i].value;
    return lar_slice_of(NULL, 0);
}

static bool one_of(lar_slice name, const lar_slice *list, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (lar_slice_ieq(name, list[i])) return true;
    return false;
}

/* True if the comma-separated list names `name`. */
static bool list_names(lar_slice list, lar_slice name) {
    while (list.len) {
        const char *comma = memchr(list.ptr, ',', list.len);
        size_t n = comma ? (size_t)(comma - list.ptr) : list.len;
        if (lar_slice_ieq(lar_slice_trim(lar_slice_of(list.ptr, n)), name)) return true;
        n += comma != NULL;
        list = lar_slice_of(list.ptr + n, list.len - n);
    }
    return false;
}

bool lar_http1_names(const lar_http1_head *h, lar_slice field, lar_slice word) {
    for (uint32_t i = 0; i < h->field_count; i++)
        if (lar_slice_ieq(h->fields[i].name, field) && list_names(h->fields[i].value, word)) return true;
    return false;
}

bool lar_http1_hop_by_hop(const lar_http1_head *h, lar_slice name) {
    static const lar_slice fixed[] = {{"connection", 10},
                                      {"keep-alive", 10},
                                      {"proxy-connection", 16},
                                      {"proxy-authenticate", 18},
                                      {"proxy-authorization", 19},
                                      {"te", 2},
                                      {"trailer", 7},
                                      {"transfer-encoding", 17},
                                      {"upgrade", 7}};
    /* A client must not be able to take away what the request needs by naming it in Connection (H-22). */
    static const lar_slice kept[] = {
        {"authorization", 13}, {"content-length", 14}, {"content-type", 12}, {"host", 4}, {"x-api-key", 9}};
    if (one_of(name, fixed, sizeof fixed / sizeof *fixed)) return true;
    if (name.len == 0 || one_of(name, kept, sizeof kept / sizeof *kept)) return false;
    return lar_http1_names(h, fixed[0], name);
}

typedef struct reason_row {
    int status;
    const char *text;
} reason_row;

/* RFC 9110 15, and the ones that LLM providers are known to send. */
static const reason_row reasons[] = {{100, "Continue"},
                                     {101, "Switching Protocols"},
                                     {102, "Processing"},
                                     {103, "Early Hints"},
                                     {200, "OK"},
                                     {201, "Created"},
                                     {202, "Accepted"},
                                     {203, "Non-Authoritative Information"},
                                     {204, "No Content"},
                                     {205, "Reset Content"},
                                     {206, "Partial Content"},
                                     {300, "Multiple Choices"},
                                     {301, "Moved Permanently"},
                                     {302, "Found"},
                                     {303, "See Other"},
                                     {304, "Not Modified"},
                                     {307, "Temporary Redirect"},
                                     {308, "Permanent Redirect"},
                                     {400, "Bad Request"},
                                     {401, "Unauthorized"},
                                     {402, "Payment Required"},
                                     {403, "Forbidden"},
                                     {404, "Not Found"},
                                     {405, "Method Not Allowed"},
                                     {406, "Not Acceptable"},
                                     {407, "Proxy Authentication Required"},
                                     {408, "Request Timeout"},
                                     {409, "Conflict"},
                                     {410, "Gone"},
                                     {411, "Length Required"},
                                     {412, "Precondition Failed"},
                                     {413, "Content Too Large"},
                                     {414, "URI Too Long"},
                                     {415, "Unsupported Media Type"},
                                     {416, "Range Not Satisfiable"},
                                     {417, "Expectation Failed"},
                                     {421, "Misdirected Request"},
                                     {422, "Unprocessable Content"},
                                     {424, "Failed Dependency"},
                                     {425, "Too Early"},
                                     {426, "Upgrade Required"},
                                     {428, "Precondition Required"},
                                     {429, "Too Many Requests"},
                                     {431, "Request Header Fields Too Large"},
                                     {451, "Unavailable For Legal Reasons"},
                                     {499, "Client Closed Request"},
                                     {500, "Internal Server Error"},
                                     {501, "Not Implemented"},
                                     {502, "Bad Gateway"},
                                     {503, "Service Unavailable"},
                                     {504, "Gateway Timeout"},
                                     {505, "HTTP Version Not Supported"},
                                     {507, "Insufficient Storage"},
                                     {511, "Network Authentication Required"},
                                     {529, "Site Is Overloaded"}};

const char *lar_http1_reason(int status) {
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].status == status) return reasons[i].text;
    return "";
}
