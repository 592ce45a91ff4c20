/* The key of a kept answer: what the answer may depend on, each part with its length in front, through SHA-256.
 * Called by exchange_answers.c before a request goes out. Any thread; pure; never blocks.
 * Why SHA-256: clients choose the bytes, and nobody may be able to make two requests with one key.
 * Invariants: 1. a part is a kind, a length and bytes, so that no two different lists of parts are the same bytes.
 * 2. a request field counts unless it is known not to: an unknown one may change the answer. 3. credentials are only
 * ever digested. Memory: a digester for the call. Not here: whether an answer may be kept at all (answers_rules.c). */
#include "gateway/answers/answers_key.h"

#include <string.h>

typedef enum part {
    PART_FORM,
    PART_SCOPE,
    PART_APART,
    PART_ROUTE,
    PART_UPSTREAM,
    PART_MODEL,
    PART_KEY,
    PART_METHOD,
    PART_PATH,
    PART_PROTOCOL,
    PART_FIELD,
    PART_BODY
} part;

/* What only says over which connection, with which program, and which of the client's calls this is. Everything else
 * counts: also other X-Forwarded-*, in which proxies that sign users in say who the user is (-User, -Email,
 * -Access-Token, -Client-Cert). */
static const char *const ignored[] = {"accept-encoding",
                                      "cache-control",
                                      "content-length",
                                      "correlation-id",
                                      "date",
                                      "expect",
                                      "forwarded",
                                      "host",
                                      "idempotency-key",
                                      "origin",
                                      "pragma",
                                      "priority",
                                      "referer",
                                      "request-id",
                                      "tracestate",
                                      "traceparent",
                                      "transfer-encoding",
                                      "user-agent",
                                      "via",
                                      "x-client-request-id",
                                      "x-correlation-id",
                                      "x-forwarded-for",
                                      "x-forwarded-host",
                                      "x-forwarded-port",
                                      "x-forwarded-prefix",
                                      "x-forwarded-proto",
                                      "x-forwarded-scheme",
                                      "x-forwarded-server",
                                      "x-forwarded-ssl",
                                      "x-larder-cache",
                                      "x-real-ip",
                                      "x-request-id"};
static const char *const ignored_beginnings[] = {"sec-ch-", "sec-fetch-", "x-b3-", "x-stainless-"};

static bool counts(lar_slice name) {
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        if (lar_slice_ieq(name, lar_slice_cstr(ignored[i]))) return false;
    for (size_t i = 0; i < sizeof ignored_beginnings / sizeof *ignored_beginnings; i++)
        if (lar_slice_starts_i(name, lar_slice_cstr(ignored_beginnings[i]))) return false;
    return true;
}

static void put_head(lar_digester *d, part kind, uint64_t len) {
    uint8_t head[9] = {(uint8_t)kind};
    for (int i = 0; i < 8; i++) head[1 + i] = (uint8_t)(len >> (56 - 8 * i));
    lar_digester_add(d, head, sizeof head);
}

static void put(lar_digester *d, part kind, lar_slice s) {
    put_head(d, kind, s.len);
    lar_digester_add(d, s.ptr, s.len);
}

static void put_text(lar_digester *d, part kind, const char *text) { put(d, kind, lar_slice_cstr(text)); }

static void put_number(lar_digester *d, part kind, uint64_t n) { put_head(d, kind, n); }

/* A route is what it says, so that a reload which changes it leaves what was kept before to nobody. */
static void put_route(lar_digester *d, const lar_route_config *r) {
    put_text(d, PART_ROUTE, r->prefix);
    put_text(d, PART_ROUTE, r->model);
    put_text(d, PART_ROUTE, r->header_name);
    put_text(d, PART_ROUTE, r->header_value);
    put_number(d, PART_ROUTE, r->answers_ttl_ms);
    put_number(d, PART_ROUTE, r->answers_sampled);
}

static void put_upstream(lar_digester *d, const lar_upstream_config *u) {
    put_text(d, PART_UPSTREAM, u->group);
    put_number(d, PART_UPSTREAM, u->kind);
    put_number(d, PART_UPSTREAM, u->profile);
    if (u->kind == LAR_UPSTREAM_KIND_ENGINE) {
        put_text(d, PART_MODEL, u->engine.model);
        put_text(d, PART_MODEL, u->engine.served_name);
        put_text(d, PART_MODEL, u->engine.kv);
        return;
    }
    put_number(d, PART_UPSTREAM, u->url.tls);
    put_text(d, PART_UPSTREAM, u->url.authority);
    put_text(d, PART_UPSTREAM, u->url.path);
    lar_digest key = lar_digest_of(lar_slice_cstr(u->key));
    put(d, PART_KEY, lar_slice_of((const char *)key.bytes, sizeof key.bytes));
}

/* With client keys of larder's own, or a key for the upstream, the client's credential does not go on: the scope says
 * who the client is. */
static bool is_replaced_credential(const lar_answers_key_in *in, lar_slice name) {
    bool replaced = in->config->upstreams[in->upstream].key[0] || in->config->key_count;
    return replaced && (lar_slice_ieq(name, LAR_SLICE("authorization")) ||
                        lar_slice_ieq(name, LAR_SLICE("x-api-key")) || lar_slice_ieq(name, LAR_SLICE("api-key")));
}

static void put_lower(lar_digester *d, lar_slice name) {
    put_head(d, PART_FIELD, name.len);
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];
        if (c >= 'A' && c <= 'Z') c = (char)(c + 32);
        lar_digester_add(d, &c, 1);
    }
}

static void put_fields(lar_digester *d, const lar_answers_key_in *in) {
    for (uint32_t i = 0; i < in->head->field_count; i++) {
        const lar_http1_field *f = &in->head->fields[i];
        if (!counts(f->name) || is_replaced_credential(in, f->name) || lar_http1_hop_by_hop(in->head, f->name))
            continue;
        put_lower(d, f->name);
        put(d, PART_FIELD, f->value);
    }
}

static void put_body(lar_digester *d, const lar_answers_key_in *in) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < in->body_count; i++) bytes += in->body[i].iov_len;
    put_head(d, PART_BODY, bytes);
    for (uint32_t i = 0; i < in->body_count; i++) lar_digester_add(d, in->body[i].iov_base, in->body[i].iov_len);
}

lar_error lar_answers_key(const lar_answers_key_in *in, lar_digest *out) {
    lar_digester *d = lar_digester_new();
    if (!d) return LAR_NO_MEMORY;
    put_text(d, PART_FORM, "larder answers 1");
    put(d, PART_SCOPE, lar_slice_of((const char *)in->scope->bytes, sizeof in->scope->bytes));
    put(d, PART_APART, in->apart);
    put_route(d, in->rule);
    put_upstream(d, &in->config->upstreams[in->upstream]);
    put(d, PART_METHOD, in->head->method);
    put(d, PART_PATH, in->path);
    put_number(d, PART_PROTOCOL, in->protocol);
    put_number(d, PART_PROTOCOL, in->usage_withheld);
    put_fields(d, in);
    put_body(d, in);
    return lar_digester_end(d, out);
}
