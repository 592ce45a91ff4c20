/* The key of a kept answer: two requests that differ in anything have two keys, whichever protocol they speak, and two
 * tenants never have one in common. Bodies are made by a generator with a seed; every value, name and member of each is
 * changed, taken out and doubled in turn, and all the keys of all of them are compared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "gateway/answers/answers_key.h"

enum { BODIES = 40, BODY_BYTES_MAX = 64 << 10 };

/* -- a request --------------------------------------------------------------------------------------------------- */

typedef struct request {
    lar_config config;
    lar_upstream_config upstream;
    lar_route_config rule;
    lar_http1_field fields[8];
    lar_http1_head head;
    lar_digest scope;
    struct iovec body;
    lar_answers_key_in in;
} request;

static void begin(request *r, lar_protocol p, lar_slice body) {
    memset(r, 0, sizeof *r);
    r->upstream = (lar_upstream_config){.name = "up", .group = "up", .key = ""};
    r->upstream.url.authority = "api.example";
    r->upstream.url.path = "/v1";
    r->upstream.url.tls = true;
    r->config.upstreams = &r->upstream;
    r->config.upstream_count = 1;
    r->rule =
        (lar_route_config){.prefix = "", .model = "", .header_name = "", .header_value = "", .answers_ttl_ms = 60000};
    r->fields[0] = (lar_http1_field){LAR_SLICE("Content-Type"), LAR_SLICE("application/json")};
    r->fields[1] = (lar_http1_field){LAR_SLICE("anthropic-version"), LAR_SLICE("2023-06-01")};
    r->fields[2] = (lar_http1_field){LAR_SLICE("User-Agent"), LAR_SLICE("test")};
    r->fields[3] = (lar_http1_field){LAR_SLICE("Authorization"), LAR_SLICE("Bearer key")};
    r->head = (lar_http1_head){.method = LAR_SLICE("POST"),
                               .method_id = LAR_HTTP1_POST,
                               .fields = r->fields,
                               .field_count = 4};
    r->scope = lar_digest_of(LAR_SLICE("tenant"));
    r->body = (struct iovec){(void *)(uintptr_t)body.ptr, body.len};
    r->in = (lar_answers_key_in){.scope = &r->scope,
                                 .apart = {"", 0},
                                 .config = &r->config,
                                 .rule = &r->rule,
                                 .head = &r->head,
                                 .path = LAR_SLICE("/v1/chat/completions"),
                                 .protocol = p,
                                 .body = &r->body,
                                 .body_count = 1};
}

static lar_digest key_of(const request *r) {
    lar_digest d;
    assert_int_equal(lar_answers_key(&r->in, &d), LAR_OK);
    return d;
}

/* -- keys that were seen ----------------------------------------------------------------------------------------- */

typedef struct seen {
    lar_digest *keys;
    char **texts;
    size_t count, cap;
} seen;

static void see(seen *s, lar_digest key, lar_slice text) {
    for (size_t i = 0; i < s->count; i++) {
        bool same_text = lar_slice_eq_cstr(text, s->texts[i]);
        if (lar_digest_eq(&key, &s->keys[i]) != same_text)
            fail_msg("%s of %.*s and %s", same_text ? "two keys" : "one key", LAR_FMT(text), s->texts[i]);
        if (same_text) return;
    }
    if (s->count == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 256;
        s->keys = realloc(s->keys, s->cap * sizeof *s->keys);
        s->texts = realloc(s->texts, s->cap * sizeof *s->texts);
        assert_true(s->keys && s->texts);
    }
    s->keys[s->count] = key;
    s->texts[s->count++] = strndup(text.ptr, text.len);
}

static void forget(seen *s) {
    for (size_t i = 0; i < s->count; i++) free(s->texts[i]);
    free(s->keys);
    free(s->texts);
    *s = (seen){0};
}

/* -- bodies ------------------------------------------------------------------------------------------------------ */

static uint64_t next(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static void add(lar_buf *b, const char *text) { assert_int_equal(lar_buf_add_slice(b, lar_slice_cstr(text)), LAR_OK); }

static const char *const words[] = {"a", "b", "", "0", "true", "caf\\u00e9", "\\n", "x\\\"y", "null", "user"};

/* A value of any kind, three levels deep at most. */
static void add_value(lar_buf *b, uint64_t *state, int depth) {
    uint64_t kind = next(state) % (depth < 3 ? 7 : 5), count = next(state) % 4;
    switch (kind) {
    case 0: add(b, "null"); return;
    case 1: add(b, next(state) % 2 ? "true" : "false"); return;
    case 2: assert_int_equal(lar_buf_printf(b, "%u", (unsigned)(next(state) % 3)), LAR_OK); return;
    case 3: assert_int_equal(lar_buf_printf(b, "%u.5e1", (unsigned)(next(state) % 3)), LAR_OK); return;
    case 4: assert_int_equal(lar_buf_printf(b, "\"%s\"", words[next(state) % 10]), LAR_OK); return;
    default: break;
    }
    add(b, kind == 5 ? "[" : "{");
    for (uint64_t i = 0; i < count; i++) {
        if (i) add(b, ",");
        if (kind == 6) assert_int_equal(lar_buf_printf(b, "\"%s\":", words[next(state) % 10]), LAR_OK);
        add_value(b, state, depth + 1);
    }
    add(b, kind == 5 ? "]" : "}");
}

static const char *const openings[LAR_PROTOCOL_COUNT] = {
    [LAR_PROTOCOL_CHAT] = "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\","
                          "\"content\":[{\"type\":\"text\",\"text\":\"t\"}]}],\"temperature\":0,\"stream\":true,"
                          "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}],\"n\":1",
    [LAR_PROTOCOL_RESPONSES] =
        "{\"model\":\"m\",\"instructions\":\"i\",\"input\":[{\"role\":\"user\",\"content\":\"c\"}],"
        "\"store\":false,\"temperature\":0.0,\"reasoning\":{\"effort\":\"low\"}",
    [LAR_PROTOCOL_MESSAGES] =
        "{\"model\":\"m\",\"max_tokens\":5,\"system\":[{\"type\":\"text\",\"text\":\"s\","
        "\"cache_control\":{\"type\":\"ephemeral\"}}],\"messages\":[{\"role\":\"user\",\"content\":"
        "\"c\"}],\"temperature\":0,\"stop_sequences\":[\"a\",\"b\"]"};

static void make_body(lar_buf *b, lar_protocol p, uint64_t seed) {
    uint64_t state = seed;
    b->len = 0;
    add(b, openings[p]);
    for (uint64_t i = 0; i < 1 + seed % 4; i++) {
        assert_int_equal(lar_buf_printf(b, ",\"x%u\":", (unsigned)i), LAR_OK);
        add_value(b, &state, 0);
    }
    add(b, "}");
}

static void put(seen *s, request *r, lar_slice text) {
    r->body = (struct iovec){(void *)(uintptr_t)text.ptr, text.len};
    see(s, key_of(r), text);
}

/* With [from, to) replaced. */
static void put_spliced(seen *s, request *r, lar_slice body, uint32_t from, uint32_t to, const char *with) {
    lar_buf b;
    lar_buf_init(&b, BODY_BYTES_MAX);
    assert_int_equal(lar_buf_add(&b, body.ptr, from), LAR_OK);
    add(&b, with);
    assert_int_equal(lar_buf_add(&b, body.ptr + to, body.len - to), LAR_OK);
    put(s, r, lar_buf_slice(&b));
    lar_buf_release(&b);
}

/* Every node in turn: another value, another name, one more in front, the member not there. */
static void change_all(seen *s, request *r, const lar_json *j) {
    static const char *const others[] = {"null", "true", "0", "1", "\"\"", "\"other\"", "[]", "{}", "[null]"};
    for (uint32_t i = 0; i < j->count; i++) {
        const lar_json_node *n = &j->nodes[i];
        if (n->flags & LAR_JSON_KEY) {
            put_spliced(s, r, j->body, n->start, n->end, "\"renamed\"");
            put_spliced(s, r, j->body, n->start, n->start, "\"added\":1,");
            put_spliced(s, r, j->body, n->start, j->nodes[i + 1].end, "\"gone\":null");
            continue;
        }
        for (size_t o = 0; o < sizeof others / sizeof *others; o++)
            put_spliced(s, r, j->body, n->start, n->end, others[o]);
        if (n->kind == LAR_JSON_STRING) put_spliced(s, r, j->body, n->start + 1, n->start + 1, "z");
        if (n->kind == LAR_JSON_NUMBER) put_spliced(s, r, j->body, n->end, n->end, "7");
        if (n->kind == LAR_JSON_ARRAY) put_spliced(s, r, j->body, n->start + 1, n->start + 1, n->count ? "0," : "0");
    }
}

static void no_two_bodies_share_a_key(void **state) {
    (void)state;
    static const lar_protocol protocols[] = {LAR_PROTOCOL_CHAT, LAR_PROTOCOL_RESPONSES, LAR_PROTOCOL_MESSAGES};
    lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
    for (size_t p = 0; p < 3; p++) {
        size_t keys = 0;
        for (uint64_t seed = 1; seed <= BODIES; seed++) {
            lar_buf b;
            lar_json j;
            request r;
            seen s = {0};
            lar_buf_init(&b, BODY_BYTES_MAX);
            lar_json_init(&j);
            make_body(&b, protocols[p], seed);
            begin(&r, protocols[p], lar_buf_slice(&b));
            put(&s, &r, lar_buf_slice(&b));
            assert_int_equal(lar_json_parse(&j, lar_buf_slice(&b), &limits, NULL), LAR_OK);
            change_all(&s, &r, &j);
            keys += s.count;
            forget(&s);
            lar_json_release(&j);
            lar_buf_release(&b);
        }
        assert_true(keys > BODIES * 150);
    }
}

/* However a body lies in memory, it is the same one. */
static void pieces_do_not_count(void **state) {
    (void)state;
    const lar_slice body = LAR_SLICE("{\"model\":\"m\",\"messages\":[]}");
    request r;
    begin(&r, LAR_PROTOCOL_CHAT, body);
    lar_digest whole = key_of(&r);
    for (size_t cut = 0; cut <= body.len; cut++) {
        struct iovec iov[3] = {{(void *)(uintptr_t)body.ptr, cut},
                               {NULL, 0},
                               {(void *)(uintptr_t)(body.ptr + cut), body.len - cut}};
        r.in.body = iov;
        r.in.body_count = 3;
        lar_digest cut_key = key_of(&r);
        assert_true(lar_digest_eq(&whole, &cut_key));
    }
}

/* -- everything but the body ------------------------------------------------------------------------------------- */

typedef void (*change)(request *r);

#define CHANGES(X)                                                                                                     \
    X(scope, r->scope = lar_digest_of(LAR_SLICE("another tenant")))                                                    \
    X(apart, r->in.apart = LAR_SLICE("session"))                                                                       \
    X(method, r->head.method = LAR_SLICE("PUT"))                                                                       \
    X(path, r->in.path = LAR_SLICE("/v1/chat/completions?a=1"))                                                        \
    X(protocol, r->in.protocol = LAR_PROTOCOL_COMPLETIONS)                                                             \
    X(withheld, r->in.usage_withheld = true)                                                                           \
    X(field_value, r->fields[1].value = LAR_SLICE("2023-06-02"))                                                       \
    X(field_name, r->fields[1].name = LAR_SLICE("anthropic-beta"))                                                     \
    X(field_gone, r->head.field_count = 1)                                                                             \
    X(field_border, (r->fields[1] = (lar_http1_field){LAR_SLICE("anthropic-version2"), LAR_SLICE("023-06-01")}))       \
    X(field_more,                                                                                                      \
      (r->fields[4] = (lar_http1_field){LAR_SLICE("X-Anything"), LAR_SLICE("1")}, r->head.field_count = 5))            \
    X(field_empty,                                                                                                     \
      (r->fields[4] = (lar_http1_field){LAR_SLICE("X-Anything"), LAR_SLICE("")}, r->head.field_count = 5))             \
    X(accept, (r->fields[4] = (lar_http1_field){LAR_SLICE("Accept"), LAR_SLICE("a/b")}, r->head.field_count = 5))      \
    X(beta, (r->fields[4] = (lar_http1_field){LAR_SLICE("OpenAI-Beta"), LAR_SLICE("b")}, r->head.field_count = 5))     \
    X(proxy_user,                                                                                                      \
      (r->fields[4] = (lar_http1_field){LAR_SLICE("X-Forwarded-User"), LAR_SLICE("u")}, r->head.field_count = 5))      \
    X(proxy_token, (r->fields[4] = (lar_http1_field){LAR_SLICE("X-Forwarded-Access-Token"), LAR_SLICE("t")},           \
                    r->head.field_count = 5))                                                                          \
    X(proxy_certificate, (r->fields[4] = (lar_http1_field){LAR_SLICE("X-Forwarded-Client-Cert"), LAR_SLICE("c")},      \
                          r->head.field_count = 5))                                                                    \
    X(organization,                                                                                                    \
      (r->fields[4] = (lar_http1_field){LAR_SLICE("OpenAI-Organization"), LAR_SLICE("o")}, r->head.field_count = 5))   \
    X(credential, r->fields[3].value = LAR_SLICE("Bearer another"))                                                    \
    X(rule_prefix, r->rule.prefix = "/a")                                                                              \
    X(rule_model, r->rule.model = "/a")                                                                                \
    X(rule_header, r->rule.header_name = "a")                                                                          \
    X(rule_value, r->rule.header_value = "a")                                                                          \
    X(rule_ttl, r->rule.answers_ttl_ms = 1)                                                                            \
    X(rule_sampled, r->rule.answers_sampled = true)                                                                    \
    X(group, r->upstream.group = "other")                                                                              \
    X(kind, (r->upstream.kind = LAR_UPSTREAM_KIND_ENGINE,                                                              \
             r->upstream.engine.model = r->upstream.engine.served_name = r->upstream.engine.kv = ""))                  \
    X(profile, r->upstream.profile = LAR_PROFILE_OPENAI)                                                               \
    X(tls, r->upstream.url.tls = false)                                                                                \
    X(authority, r->upstream.url.authority = "api.other")                                                              \
    X(url_path, r->upstream.url.path = "")                                                                             \
    X(key, r->upstream.key = "larder's own")

#define X(name, what)                                                                                                  \
    static void change_##name(request *r) { what; }
CHANGES(X)
#undef X

static void everything_counts(void **state) {
    (void)state;
    static const struct {
        const char *name;
        change change;
    } rows[] = {
#define X(name, what) {#name, change_##name},
        CHANGES(X)
#undef X
    };
    enum { ROWS = sizeof rows / sizeof *rows };
    lar_digest keys[ROWS + 1];
    request r;
    begin(&r, LAR_PROTOCOL_CHAT, LAR_SLICE("{}"));
    keys[ROWS] = key_of(&r);
    for (size_t i = 0; i < ROWS; i++) {
        begin(&r, LAR_PROTOCOL_CHAT, LAR_SLICE("{}"));
        rows[i].change(&r);
        keys[i] = key_of(&r);
        for (size_t k = 0; k < i; k++)
            if (lar_digest_eq(&keys[i], &keys[k])) fail_msg("%s and %s have one key", rows[i].name, rows[k].name);
        if (lar_digest_eq(&keys[i], &keys[ROWS])) fail_msg("%s does not count", rows[i].name);
    }
}

/* What differs in every call of one client, and what a credential of its own would make two of. */
static void what_a_call_is_made_of_does_not_count(void **state) {
    (void)state;
    static const char *const names[] = {
        "user-agent",     "X-Stainless-Retry-Count", "Idempotency-Key", "traceparent",      "x-request-id",
        "Host",           "Content-Length",          "Accept-Encoding", "Connection",       "Keep-Alive",
        "x-larder-cache", "Cache-Control",           "X-Forwarded-For", "X-Forwarded-Proto"};
    request r;
    begin(&r, LAR_PROTOCOL_CHAT, LAR_SLICE("{}"));
    lar_digest without = key_of(&r);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        r.fields[4] = (lar_http1_field){lar_slice_cstr(names[i]), LAR_SLICE("anything")};
        r.head.field_count = 5;
        lar_digest with = key_of(&r);
        if (!lar_digest_eq(&with, &without)) fail_msg("%s counts", names[i]);
    }
    begin(&r, LAR_PROTOCOL_CHAT, LAR_SLICE("{}"));
    r.config.key_count = 1; /* the tenant's name is in the scope, whichever of his keys he used */
    lar_digest one = key_of(&r);
    r.fields[3].value = LAR_SLICE("Bearer his other key");
    lar_digest other = key_of(&r);
    assert_true(lar_digest_eq(&one, &other));
}

static void tenants_never_share(void **state) {
    (void)state;
    seen s = {0};
    for (uint64_t seed = 1; seed <= BODIES; seed++) {
        lar_buf b;
        request r;
        lar_buf_init(&b, BODY_BYTES_MAX);
        make_body(&b, LAR_PROTOCOL_CHAT, seed);
        begin(&r, LAR_PROTOCOL_CHAT, lar_buf_slice(&b));
        for (unsigned tenant = 0; tenant < 20; tenant++) {
            char name[96];
            int n = snprintf(name, sizeof name, "tenant %u seed %u", tenant, (unsigned)seed);
            r.scope = lar_digest_of(lar_slice_of(name, (size_t)n));
            see(&s, key_of(&r), lar_slice_of(name, (size_t)n));
        }
        lar_buf_release(&b);
    }
    forget(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_two_bodies_share_a_key), cmocka_unit_test(pieces_do_not_count),
        cmocka_unit_test(everything_counts),         cmocka_unit_test(what_a_call_is_made_of_does_not_count),
        cmocka_unit_test(tenants_never_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
