/* Routing as its callers see it: which target means what, who asks, and what never chooses an upstream. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/request/route.h"

static const lar_http1_limits limits = {.head_bytes_max = 16384, .fields_max = 64, .body_bytes_max = 1 << 20};

typedef struct fixture {
    lar_config *config;
    lar_http1 *parser;
} fixture;

static lar_config *load(const char *yaml) {
    char path[] = "/tmp/larder-route-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, yaml, strlen(yaml)), (ssize_t)strlen(yaml));
    (void)close(fd);
    lar_config *c = NULL;
    lar_diag d = {0};
    lar_error e = lar_config_load(path, NULL, 0, &c, &d);
    (void)unlink(path);
    if (e) fail_msg("%s", d.text);
    return c;
}

static const lar_http1_head *parse(lar_http1 *p, const char *text) {
    size_t used = 0;
    lar_slice body;
    assert_int_equal(lar_http1_next(p, text, strlen(text), &used, &body), LAR_HTTP1_HEAD_END);
    assert_int_equal(lar_http1_next(p, NULL, 0, &used, &body), LAR_HTTP1_END); /* the head stays until the next one */
    return lar_http1_head_of(p);
}

static const lar_http1_head *ask(lar_http1 *p, const char *method, const char *target, const char *fields) {
    char text[2048];
    (void)snprintf(text, sizeof text, "%s %s HTTP/1.1\r\nHost: gw.test\r\n%s\r\n", method, target, fields);
    return parse(p, text);
}

static int set_up(void **state) {
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->config = load("upstreams:\n"
                     "  - {name: a, url: 'http://127.0.0.1:1/v1'}\n"
                     "  - {name: b, url: 'http://127.0.0.1:2'}\n"
                     "  - {name: c, url: 'http://127.0.0.1:3'}\n"
                     "routes:\n"
                     "  - {prefix: /team, upstream: b, pass_through: true}\n"
                     "  - {prefix: /team/deep, upstream: c}\n"
                     "  - {model: 'gpt-*', upstream: b}\n"
                     "  - {header: {name: X-Env, value: test}, upstream: c}\n"
                     "aliases: {fast: gpt-mini}\n"
                     "cors: {origins: 'https://a.test https://b.test'}\n");
    f->parser = lar_http1_new(LAR_HTTP1_REQUEST, &limits);
    assert_non_null(f->parser);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    fixture *f = *state;
    lar_http1_free(f->parser);
    lar_config_free(f->config);
    free(f);
    return 0;
}

static void endpoints_are_found_with_and_without_v1(void **state) {
    fixture *f = *state;
    static const struct {
        const char *method, *target, *name;
        lar_protocol protocol;
        lar_error error;
    } rows[] = {
        {"POST", "/v1/chat/completions", "chat", LAR_PROTOCOL_CHAT, LAR_OK},
        {"POST", "/chat/completions?a=b", "chat", LAR_PROTOCOL_CHAT, LAR_OK},
        {"POST", "http://evil.test/v1/messages", "messages", LAR_PROTOCOL_MESSAGES, LAR_OK},
        {"POST", "/team/v1/responses", "responses", LAR_PROTOCOL_RESPONSES, LAR_OK},
        {"POST", "/v1/embeddings", "embeddings", LAR_PROTOCOL_EMBEDDINGS, LAR_OK},
        {"GET", "/v1/models", "models", LAR_PROTOCOL_NONE, LAR_OK},
        {"HEAD", "/v1/models", "models", LAR_PROTOCOL_NONE, LAR_OK},
        {"GET", "/v1/chat/completions", "chat", LAR_PROTOCOL_NONE, LAR_METHOD},
        {"GET", "/team/anything", "other", LAR_PROTOCOL_NONE, LAR_OK},
        {"GET", "/team/deep/anything", "other", LAR_PROTOCOL_NONE, LAR_NO_ROUTE},
        {"GET", "/teamwork/v1/models", "other", LAR_PROTOCOL_NONE, LAR_NO_ROUTE},
        {"GET", "/team", "other", LAR_PROTOCOL_NONE, LAR_NO_ROUTE},
        {"GET", "/unknown", "other", LAR_PROTOCOL_NONE, LAR_NO_ROUTE},
        {"GET", "/", "other", LAR_PROTOCOL_NONE, LAR_NO_ROUTE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lar_route r;
        const char *allow;
        lar_error e = lar_route_find(f->config, ask(f->parser, rows[i].method, rows[i].target, ""), &r, &allow);
        if (e != rows[i].error) fail_msg("%s: %s", rows[i].target, lar_error_name(e));
        if (e) continue;
        assert_string_equal(r.name, rows[i].name);
        assert_int_equal(r.protocol, rows[i].protocol);
    }
}

static void hidden_and_climbing_paths_are_refused(void **state) {
    fixture *f = *state;
    static const char *const targets[] = {"/v1/../admin",  "/v1/%2e%2e/admin", "//internal/v1/models",
                                          "/v1/%2fmodels", "/v1/models/.",     "/v1/./models",
                                          "/v1/%00",       "/v1/%zz",          "/v1\\models",
                                          "/v1/%5cmodels", "/v1/%252e",        "/v1/models%"};
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        lar_route r;
        const char *allow;
        lar_error e = lar_route_find(f->config, ask(f->parser, "GET", targets[i], ""), &r, &allow);
        if (e != LAR_HTTP_SYNTAX) fail_msg("%s: %s", targets[i], lar_error_name(e));
    }
}

static uint32_t upstream_of(fixture *f, const char *target, const char *fields, const char *model) {
    lar_route r;
    const char *allow;
    const lar_route_config *matched;
    const lar_http1_head *h = ask(f->parser, "POST", target, fields);
    assert_int_equal(lar_route_find(f->config, h, &r, &allow), LAR_OK);
    return lar_route_upstream(f->config, &r, h, lar_slice_cstr(model), &matched);
}

static void an_upstream_is_chosen_by_prefix_model_and_field(void **state) {
    fixture *f = *state;
    assert_int_equal(upstream_of(f, "/v1/chat/completions", "", "deepseek-chat"), 0);
    assert_int_equal(upstream_of(f, "/v1/chat/completions", "", "gpt-5"), 1);
    assert_int_equal(upstream_of(f, "/v1/chat/completions", "x-env: test\r\n", "m"), 2);
    assert_int_equal(upstream_of(f, "/v1/chat/completions", "x-env: tes\r\n", "m"), 0);
    assert_int_equal(upstream_of(f, "/team/v1/chat/completions", "x-env: test\r\n", "m"), 1);
    assert_int_equal(upstream_of(f, "/team/deep/v1/chat/completions", "", "gpt-5"), 2);
    assert_string_equal(lar_route_alias(f->config, LAR_SLICE("fast")), "gpt-mini");
    assert_null(lar_route_alias(f->config, LAR_SLICE("faster")));
}

static void tenants_differ_by_credential_and_keep_no_key(void **state) {
    fixture *f = *state;
    lar_digest salt = lar_digest_of(LAR_SLICE("salt"));
    static lar_tenant_memo memo;
    lar_tenant a, again, b, none;
    lar_error e =
        lar_route_tenant_memo(f->config, ask(f->parser, "POST", "/v1/messages", "x-api-key: k1\r\n"), &salt, &memo, &a);
    if (!e)
        e = lar_route_tenant_memo(f->config, ask(f->parser, "POST", "/v1/messages", "Authorization: bearer k1\r\n"),
                                  &salt, &memo, &again);
    if (!e)
        e = lar_route_tenant_memo(f->config, ask(f->parser, "POST", "/v1/messages", "x-api-key: k2\r\n"), &salt, &memo,
                                  &b);
    if (!e) e = lar_route_tenant_memo(f->config, ask(f->parser, "POST", "/v1/messages", ""), &salt, &memo, &none);
    assert_int_equal(e, LAR_OK);
    assert_true(a.fingerprint == again.fingerprint && lar_digest_eq(&a.scope, &again.scope));
    assert_true(a.fingerprint != b.fingerprint && !lar_digest_eq(&a.scope, &b.scope));
    assert_true(none.fingerprint == 0 && a.fingerprint != 0);
}

/* An upstream may bill by any of these fields, so none of them may be left out of what keeps tenants apart. */
static void every_credential_that_goes_upstream_counts(void **state) {
    fixture *f = *state;
    lar_digest salt = lar_digest_of(LAR_SLICE("salt"));
    static lar_tenant_memo memo;
    static const char *const rows[] = {"",
                                       "x-goog-api-key: a\r\n",
                                       "x-goog-api-key: b\r\n",
                                       "Cookie: a=b\r\n",
                                       "Cookie: a=c\r\n",
                                       "x-auth-token: a\r\n",
                                       "OpenAI-Project: a\r\n",
                                       "OpenAI-Project: b\r\n",
                                       "Authorization: Bearer dummy\r\n",
                                       "Authorization: Bearer dummy\r\nx-api-key: a\r\n",
                                       "Authorization: Bearer dummy\r\nx-api-key: b\r\n",
                                       "Authorization: Bearer dummy\r\nAuthorization: Bearer b\r\n",
                                       "Authorization: Bearer dummy\r\nx-goog-api-key: a\r\n",
                                       "Authorization: Bearer dummy\r\nCookie: a=b\r\n",
                                       "Authorization: Bearer dummy\r\nOpenAI-Organization: o1\r\n",
                                       "Authorization: Bearer dummy\r\nOpenAI-Organization: o2\r\n"};
    enum { ROWS = sizeof rows / sizeof *rows };
    lar_tenant t[ROWS];
    for (size_t i = 0; i < ROWS; i++) {
        const lar_http1_head *h = ask(f->parser, "POST", "/v1/messages", rows[i]);
        assert_int_equal(lar_route_tenant_memo(f->config, h, &salt, &memo, &t[i]), LAR_OK);
        for (size_t k = 0; k < i; k++) {
            assert_false(lar_digest_eq(&t[i].scope, &t[k].scope));
            assert_true(t[i].fingerprint != t[k].fingerprint);
        }
    }
}

static void configured_keys_are_the_only_ones(void **state) {
    fixture *f = *state;
    assert_int_equal(setenv("ROUTE_TEST_KEY", "sk-right", 1), 0);
    lar_config *c =
        load("upstreams: [{url: 'http://127.0.0.1:1'}]\nkeys:\n  - {tenant: team-a, env: ROUTE_TEST_KEY}\n");
    lar_digest salt = lar_digest_of(LAR_SLICE("salt"));
    static lar_tenant_memo memo;
    lar_tenant t;
    static const struct {
        const char *fields;
        lar_error error;
    } rows[] = {{"Authorization: Bearer sk-right\r\n", LAR_OK},
                {"x-api-key: sk-right\r\n", LAR_OK},
                {"Authorization: Bearer sk-right\r\n", LAR_OK},
                {"Authorization: Bearer sk-righ\r\n", LAR_UNAUTHORIZED},
                {"Authorization: Bearer\r\n", LAR_UNAUTHORIZED},
                {"", LAR_UNAUTHORIZED},
                {"x-api-key: SK-RIGHT\r\n", LAR_UNAUTHORIZED}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const lar_http1_head *h = ask(f->parser, "POST", "/v1/messages", rows[i].fields);
        assert_int_equal(lar_route_tenant_memo(c, h, &salt, &memo, &t), rows[i].error);
        assert_int_equal(lar_route_tenant(c, h, &salt, &t), rows[i].error);
    }
    lar_config_free(c);
}

static void a_loopback_listener_answers_loopback_names_only(void **state) {
    fixture *f = *state;
    static const struct {
        const char *host;
        lar_error loopback_only, open;
    } rows[] = {{"localhost:8080", LAR_OK, LAR_OK},
                {"127.0.0.1", LAR_OK, LAR_OK},
                {"127.8.9.1:1", LAR_OK, LAR_OK},
                {"[::1]:8080", LAR_OK, LAR_OK},
                {"LOCALHOST", LAR_OK, LAR_OK},
                {"evil.test", LAR_HTTP_HOST, LAR_OK},
                {"127.0.0.1.evil", LAR_HTTP_HOST, LAR_OK},
                {"localhost.evil.test", LAR_HTTP_HOST, LAR_OK}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[256];
        (void)snprintf(text, sizeof text, "GET /v1/models HTTP/1.1\r\nHost: %s\r\n\r\n", rows[i].host);
        const lar_http1_head *h = parse(f->parser, text);
        if (lar_route_host(f->config, h, true) != rows[i].loopback_only) fail_msg("%s", rows[i].host);
        if (lar_route_host(f->config, h, false) != rows[i].open) fail_msg("%s", rows[i].host);
    }
}

static void cors_allows_only_the_listed_origins(void **state) {
    fixture *f = *state;
    const lar_http1_head *h = ask(f->parser, "POST", "/v1/messages", "Origin: https://b.test\r\n");
    assert_true(lar_slice_eq_cstr(lar_route_cors(f->config, h), "https://b.test"));
    h = ask(f->parser, "POST", "/v1/messages", "Origin: https://b.test.evil\r\n");
    assert_int_equal(lar_route_cors(f->config, h).len, 0);
    h = ask(f->parser, "POST", "/v1/messages", "");
    assert_int_equal(lar_route_cors(f->config, h).len, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(endpoints_are_found_with_and_without_v1),
        cmocka_unit_test(hidden_and_climbing_paths_are_refused),
        cmocka_unit_test(an_upstream_is_chosen_by_prefix_model_and_field),
        cmocka_unit_test(tenants_differ_by_credential_and_keep_no_key),
        cmocka_unit_test(every_credential_that_goes_upstream_counts),
        cmocka_unit_test(configured_keys_are_the_only_ones),
        cmocka_unit_test(a_loopback_listener_answers_loopback_names_only),
        cmocka_unit_test(cors_allows_only_the_listed_origins),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
