/* Defaults, file, environment, flags: who wins, and what is said about names that are not known. */
#include "tests/unit_config/config_fixture.h"

#include <stdlib.h>

#define UP "upstreams:\n  - url: http://127.0.0.1:9\n"

static lar_config *load(const char *yaml, const lar_config_flag *flags, uint32_t count) {
    lar_config *c = NULL;
    lar_diag d = {0};
    if (fixture_load(yaml, flags, count, &c, &d)) fail_msg("refused: %s", d.text);
    return c;
}

static void one_flag_is_enough(void **state) {
    (void)state;
    static const struct {
        const char *url, *name;
        lar_profile profile;
    } rows[] = {
        {"https://api.deepseek.com", "api.deepseek.com", LAR_PROFILE_DEEPSEEK},
        {"https://API.OPENAI.COM/v1", "api.openai.com", LAR_PROFILE_OPENAI},
        {"https://api.anthropic.com", "api.anthropic.com", LAR_PROFILE_ANTHROPIC},
        {"http://127.0.0.1:11434", "127.0.0.1", LAR_PROFILE_GENERIC},
        {"https://api.deepseek.com.evil.test", "api.deepseek.com.evil.test", LAR_PROFILE_GENERIC},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lar_config_flag flag = {"upstream", rows[i].url};
        lar_config *c = load(NULL, &flag, 1);
        assert_int_equal(c->upstream_count, 1);
        assert_string_equal(c->upstreams[0].name, rows[i].name);
        assert_int_equal(c->upstreams[0].profile, rows[i].profile);
        assert_int_equal(c->upstreams[0].queue_max, 1024);
        assert_string_equal(c->upstreams[0].ca_file, "");
        assert_int_equal(c->listen_count, 1);
        assert_string_equal(c->listens[0].text, "127.0.0.1:8080");
        assert_int_equal(c->canon, LAR_CANON_ON);
        assert_int_equal(c->body_bytes_max, 64 << 20);
        lar_config_free(c);
    }
    lar_config_flag more[] = {{"upstream", "http://x"}, {"profile", "vllm"},       {"canon", "report"},
                              {"store", "/tmp/s"},      {"listen", "127.0.0.1:0"}, {"listen", "[::1]:0"},
                              {"log-level", "debug"},   {"log.level", "warn"}};
    lar_config *c = load(NULL, more, 8);
    assert_int_equal(c->upstreams[0].profile, LAR_PROFILE_VLLM);
    assert_int_equal(c->canon, LAR_CANON_REPORT);
    assert_string_equal(c->store_dir, "/tmp/s");
    assert_int_equal(c->listen_count, 2);
    assert_int_equal(c->log_level, LAR_LOG_WARN); /* given twice: the last one counts */
    lar_config_free(c);
}

static void later_sources_win(void **state) {
    (void)state;
    const char *yaml = UP "listen: 127.0.0.1:1\nlimits: {fields: 10}\nstore: {dir: /file}\n";
    lar_config *c = load(yaml, NULL, 0);
    assert_int_equal(c->fields_max, 10);
    assert_int_equal(c->listens[0].port, 1);
    lar_config_free(c);

    assert_int_equal(setenv("LARDER_LIMITS_FIELDS", "20", 1), 0);
    assert_int_equal(setenv("LARDER_STORE_DIR", "", 1), 0);
    assert_int_equal(setenv("LARDER_LISTEN", "127.0.0.1:2 127.0.0.1:3", 1), 0);
    c = load(yaml, NULL, 0);
    assert_int_equal(c->fields_max, 20);
    assert_string_equal(c->store_dir, "");
    assert_int_equal(c->listen_count, 2);
    assert_int_equal(c->listens[1].port, 3);
    lar_config_free(c);

    lar_config_flag flags[] = {{"limits-fields", "30"}, {"listen", "127.0.0.1:4"}};
    c = load(yaml, flags, 2);
    assert_int_equal(c->fields_max, 30);
    assert_int_equal(c->listen_count, 1);
    assert_int_equal(c->listens[0].port, 4);
    lar_config_free(c);

    assert_int_equal(setenv("LARDER_LIMITS_FIELDS", "lots", 1), 0);
    fixture_bad(yaml, NULL, 0, "environment variable LARDER_LIMITS_FIELDS: is not a whole number");
    (void)unsetenv("LARDER_LIMITS_FIELDS");
    (void)unsetenv("LARDER_STORE_DIR");
    (void)unsetenv("LARDER_LISTEN");
}

static void environment_makes_an_upstream(void **state) {
    (void)state;
    (void)setenv("LARDER_UPSTREAM", "http://10.0.0.1:8000/v1", 1);
    (void)setenv("LARDER_PROFILE", "vllm", 1);
    (void)setenv("LARDER_KEY_ENV", "LARDER_MY_OWN_KEY", 1);
    (void)setenv("LARDER_MY_OWN_KEY", "sk-1", 1);
    lar_config *c = load(NULL, NULL, 0);
    assert_string_equal(c->upstreams[0].key, "sk-1");
    assert_string_equal(c->upstreams[0].url.path, "/v1");
    assert_int_equal(c->upstreams[0].profile, LAR_PROFILE_VLLM);
    lar_config_free(c);
    /* A flag's upstream, the environment's profile: each value by its own source. */
    lar_config_flag flag = {"upstream", "http://10.0.0.2"};
    c = load(NULL, &flag, 1);
    assert_string_equal(c->upstreams[0].url.host, "10.0.0.2");
    assert_int_equal(c->upstreams[0].profile, LAR_PROFILE_VLLM);
    lar_config_free(c);
    (void)unsetenv("LARDER_UPSTREAM");
    (void)unsetenv("LARDER_PROFILE");
    (void)unsetenv("LARDER_KEY_ENV");
    (void)unsetenv("LARDER_MY_OWN_KEY");
}

static void unknown_names_are_errors(void **state) {
    (void)state;
    lar_config_flag flag = {"upstrem", "http://x"};
    fixture_bad(NULL, &flag, 1, "--upstrem: no such option; did you mean --upstream?");
    lar_diag d = {0};
    assert_int_equal(lar_config_check_flag("upstrem", &d), LAR_CONFIG);
    assert_string_equal(d.text, "--upstrem: no such option; did you mean --upstream?");
    assert_int_equal(lar_config_check_flag("confg", &d), LAR_CONFIG);
    assert_non_null(strstr(d.text, "did you mean --config?"));
    assert_int_equal(lar_config_check_flag("zzzzzzzzzz", &d), LAR_CONFIG);
    assert_non_null(strstr(d.text, "no such option; `larder serve --help` lists them"));
    assert_int_equal(lar_config_check_flag("upstream", &d), LAR_OK);
    assert_int_equal(lar_config_check_flag("limits-head-bytes", &d), LAR_OK);
    flag = (lar_config_flag){"limits-head-byte", "1"};
    fixture_bad(UP, &flag, 1, "did you mean --limits-head-bytes?");
    flag = (lar_config_flag){"qqqqqqqqqqqq", "1"};
    fixture_bad(UP, &flag, 1, "--qqqqqqqqqqqq: no such option; `larder serve --help` lists them");
    flag = (lar_config_flag){"limits-fields", NULL};
    fixture_bad(UP, &flag, 1, "--limits-fields: has no value");
    flag = (lar_config_flag){"upstream", ""};
    fixture_bad(NULL, &flag, 1, "--upstream: has no value");
    flag = (lar_config_flag){"profile", "vllm"};
    fixture_bad(UP, &flag, 1, "--profile: only goes with an upstream given in the same way");
    flag = (lar_config_flag){"upstream", "http://u:s3cret@x"};
    fixture_bad(NULL, &flag, 1, "--upstream: must not hold a user or password");
    lar_config_flag two[] = {{"upstream", "http://x"}, {"profile", "nobody"}};
    fixture_bad(NULL, two, 2, "--profile: must be auto, generic");
    fixture_bad("upstreams: [{name: a, url: http://a}]\nroutes: [{upstream: a}]\n", two, 1,
                "--upstream: takes the place of the file's upstreams");

    (void)setenv("LARDER_CANNON_MODE", "on", 1);
    fixture_bad(UP, NULL, 0,
                "environment variable LARDER_CANNON_MODE: no such option; did you mean LARDER_CANON_MODE?");
    (void)unsetenv("LARDER_CANNON_MODE");
    (void)setenv("LARDER_CANON", "on", 1);
    fixture_bad(UP, NULL, 0, "environment variable LARDER_CANON: no such option; did you mean LARDER_CANON_MODE?");
    (void)unsetenv("LARDER_CANON");
}

static void foreign_variables_are_left_alone(void **state) {
    (void)state;
    static const char *const names[] = {"LARDER_PORT",
                                        "LARDER_SERVICE_HOST",
                                        "LARDER_SERVICE_PORT",
                                        "LARDER_PORT_8080_TCP_ADDR",
                                        "LARDER_ADMIN_SERVICE_PORT_HTTP",
                                        "LARDER_TEST_ANYTHING",
                                        "LARDER_BIN",
                                        "LARDER_FUZZ_SECONDS",
                                        "LARDER_OPTIONS",
                                        "LARDER_UP_KEY",
                                        "LARDER_TEAM_KEY"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) (void)setenv(names[i], "x1", 1);
    (void)setenv("LARDER_TEAM_KEY", "x2", 1);
    lar_config_free(
        load("upstreams: [{url: http://a, key_env: LARDER_UP_KEY}]\nkeys: [{tenant: t, env: LARDER_TEAM_KEY}]\n", NULL,
             0));
    fixture_bad(UP, NULL, 0, "no such option"); /* no key is called that here */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) (void)unsetenv(names[i]);
}

static void a_reload_reads_the_same_sources(void **state) {
    (void)state;
    char name[] = "log-level", value[] = "debug";
    lar_config_flag flag = {name, value};
    lar_config *c = load(UP "limits: {fields: 10}\nstore: {days: 5}\n", &flag, 1), *next = NULL;
    memset(value, 'x', sizeof value - 1); /* the config keeps copies */
    const char *changed = UP "limits: {fields: 11}\nstore: {days: 5, bytes: 2MiB}\nlog: {access: false}\n";
    fixture_write("t.yaml", changed, strlen(changed));
    lar_diag d = {0};
    assert_int_equal(lar_config_reload(c, &next, &d), LAR_OK);
    assert_int_equal(next->fields_max, 11);
    assert_int_equal(next->log_level, LAR_LOG_DEBUG);
    assert_false(next->log_access);
    lar_buf names;
    lar_buf_init(&names, 1000);
    assert_int_equal(lar_config_restart_names(c, next, &names), 1);
    assert_true(lar_slice_eq_cstr(lar_buf_slice(&names), "store.bytes"));
    lar_buf_release(&names);
    lar_config_free(c);
    fixture_write("t.yaml", "]", 1);
    lar_config *bad = NULL;
    assert_int_equal(lar_config_reload(next, &bad, &d), LAR_CONFIG);
    assert_null(bad);
    assert_int_equal(next->fields_max, 11);
    lar_config_free(next);
}

static void only_what_acts_at_start_needs_a_restart(void **state) {
    (void)state;
    static const struct {
        const char *yaml, *names;
    } rows[] = {
        {UP, ""},
        {UP "listen: 127.0.0.1:81\n", "listen"},
        {UP "listen: [127.0.0.1:8080, 127.0.0.1:81]\n", "listen"},
        {UP "threads: 2\nadmin: {listen: 'off'}\nlog: {format: json}\n", "threads admin.listen log.format"},
        {UP "store: {dir: /x, bytes: 2MiB, days: 1, memory_days: 1, commit: 20ms, sync: 2s}\n",
         "store.dir store.bytes store.days store.memory_days store.commit store.sync"},
        {UP "tls: {cert: t.yaml, key: t.yaml}\n", "tls.cert"},
        {UP "limits: {connections: 3, head_bytes: 2KiB, fields: 9, body_bytes: 1MiB, buffer_bytes: 2MiB,\n"
            "  stream_buffer_bytes: 32KiB, json_depth: 9}\n",
         ""},
        {UP "timeouts: {head: 1s, body: 1s, client_idle: 1s, write: 1s, shutdown: 1s}\n", ""},
        {UP "cors: {origins: '*'}\nhosts: '*'\ncanon: {mode: off, rules_off: LR001, scope_header: X-A}\n", ""},
        {UP "log: {level: debug, access: false}\n", ""},
        {UP "    pool: {queue: 3}\n", ""},
        {"upstreams:\n  - url: https://127.0.0.1:9\n", ""},
        {UP "routes: [{upstream: 127.0.0.1, prefix: /x}]\naliases: {a: b}\n", ""},
        {UP "keys: [{tenant: a, sha256: 00000000000000000000000000000000000000000000000000000000000000aa}]\n", ""},
    };
    lar_config *plain = load(UP, NULL, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lar_config *next = load(rows[i].yaml, NULL, 0);
        lar_buf names;
        lar_buf_init(&names, 1000);
        uint32_t count = lar_config_restart_names(plain, next, &names);
        if (!lar_slice_eq_cstr(lar_buf_slice(&names), rows[i].names))
            fail_msg("row %zu: '%.*s'", i, LAR_FMT(lar_buf_slice(&names)));
        assert_int_equal(count == 0, !*rows[i].names);
        lar_buf_release(&names);
        lar_config_free(next);
    }
    lar_config_free(plain);
}

#define ENGINE(rest) "upstreams:\n  - {kind: engine, name: a, engine: {model: m, sequences: 3}}\n" rest

static void engines_need_a_restart(void **state) {
    (void)state;
    static const struct {
        const char *yaml;
        int count;
    } rows[] = {
        {ENGINE(""), 0},
        {ENGINE("  - {url: http://b}\n"), 0},
        {"upstreams:\n  - {url: http://b}\n  - {kind: engine, name: a, timeouts: {idle: 1s}, engine: {model: m, "
         "sequences: 3}}\n",
         0},
        {"upstreams:\n  - {kind: engine, name: b, engine: {model: m, sequences: 3}}\n", 1},
        {"upstreams:\n  - {kind: engine, name: a, engine: {model: n, sequences: 3}}\n", 1},
        {"upstreams:\n  - {kind: engine, name: a, engine: {model: m}}\n", 1},
        {ENGINE("  - {kind: engine, name: b, engine: {model: m}}\n"), 1},
        {UP, 1},
    };
    lar_config *plain = load(ENGINE(""), NULL, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lar_config *next = load(rows[i].yaml, NULL, 0);
        lar_buf names;
        lar_buf_init(&names, 1000);
        int count = (int)lar_config_restart_names(plain, next, &names);
        if (count != rows[i].count || !lar_slice_eq_cstr(lar_buf_slice(&names), count ? "upstreams.engine" : ""))
            fail_msg("row %zu: '%.*s'", i, LAR_FMT(lar_buf_slice(&names)));
        lar_buf_release(&names);
        lar_config_free(next);
    }
    lar_config_free(plain);
}

static void a_model_makes_an_upstream(void **state) {
    (void)state;
    lar_config_flag flags[] = {{"model", "models/tiny-v3"}, {"upstream", "http://x"}};
    lar_config *c = load(UP, flags, 1);
    assert_int_equal(c->upstream_count, 1);
    assert_int_equal(c->upstreams[0].kind, LAR_UPSTREAM_KIND_ENGINE);
    assert_string_equal(c->upstreams[0].engine.model, "models/tiny-v3");
    assert_string_equal(c->upstreams[0].name, "tiny-v3");
    assert_int_equal(c->upstreams[0].engine.queue, 64);
    lar_config_free(c);
    fixture_bad(NULL, flags, 2, "--model: goes without --upstream");
    fixture_bad(UP "routes: [{upstream: 127.0.0.1}]\n", flags, 1, "--model: takes the place of the file's upstreams");
    flags[1] = (lar_config_flag){"key-env", "HOME"};
    fixture_bad(NULL, flags, 2, "--key-env: only goes with an upstream given in the same way");
    flags[0].value = "models/a b";
    fixture_bad(NULL, flags, 1, "--model: only letters");
}

static void other_certificate_files_need_no_restart(void **state) {
    (void)state;
    fixture_write("a.pem", "a", 1);
    fixture_write("b.pem", "b", 1);
    lar_config *now = load(UP "tls: {cert: a.pem, key: a.pem}\n", NULL, 0);
    lar_config *next = load(UP "tls: {cert: b.pem, key: b.pem}\n", NULL, 0), *plain = load(UP, NULL, 0);
    lar_buf names;
    lar_buf_init(&names, 1000);
    assert_int_equal(lar_config_restart_names(now, next, &names), 0);
    assert_int_equal(names.len, 0);
    assert_int_equal(lar_config_restart_names(now, plain, &names), 1); /* TLS would be gone */
    assert_true(lar_slice_eq_cstr(lar_buf_slice(&names), "tls.cert"));
    lar_buf_release(&names);
    lar_config_free(now);
    lar_config_free(next);
    lar_config_free(plain);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_flag_is_enough),
        cmocka_unit_test(later_sources_win),
        cmocka_unit_test(environment_makes_an_upstream),
        cmocka_unit_test(unknown_names_are_errors),
        cmocka_unit_test(foreign_variables_are_left_alone),
        cmocka_unit_test(a_reload_reads_the_same_sources),
        cmocka_unit_test(only_what_acts_at_start_needs_a_restart),
        cmocka_unit_test(engines_need_a_restart),
        cmocka_unit_test(a_model_makes_an_upstream),
        cmocka_unit_test(other_certificate_files_need_no_restart),
    };
    return cmocka_run_group_tests(tests, fixture_enter, fixture_leave);
}
