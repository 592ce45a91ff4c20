/* Whole files: what is taken, and what is refused with which place and words. */
#include "tests/unit_config/config_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* A valid upstream in front, so that a row shows one mistake only; its lines are 1 to 2. */
#define UP "upstreams:\n  - url: http://127.0.0.1:9\n"
#define UP2 "upstreams:\n  - {name: a, url: http://127.0.0.1:9}\n  - {name: b, url: http://127.0.0.1:8}\n"

static void refused(void **state) {
    (void)state;
    static const struct {
        const char *yaml, *parts;
    } rows[] = {
        {"", "no upstream"},
        {"# only a comment\n", "no upstream"},
        {"upstreams: []\n", "t.yaml:1:12: upstreams: no upstream"},
        {"- a\n- b\n", "t.yaml:1:1: must be a map"},
        {"text", "t.yaml:1:1: must be a map"},
        {UP "lisetn: 127.0.0.1:1\n", "t.yaml:3:1: unknown name 'lisetn'|did you mean 'listen'?"},
        {UP "limits:\n  feilds: 9\n", "t.yaml:4:3: limits: unknown name 'feilds'|'fields'?"},
        {UP "log_level: info\n", "t.yaml:3:1|did you mean 'log: {level: ...}'?"},
        {UP "canon.mode: off\n",
         "t.yaml:3:1: unknown name 'canon.mode': it is a map of its own; write 'canon: {mode: ...}'"},
        {UP "canon.mdoe: off\n", "t.yaml:3:1: unknown name 'canon.mdoe'; did you mean 'canon: {mode: ...}'?"},
        {UP "canon: {canon.mode: off}\n", "canon: unknown name 'canon.mode'; did you mean 'mode'?"},
        {UP "canon: {store.dir: a}\n", "canon: unknown name 'store.dir'; did you mean 'store: {dir: ...}'?"},
        {UP "    timeouts.connect: 10s\n",
         "t.yaml:3:5: upstreams[0]: unknown name 'timeouts.connect': it is a map of its own; write 'timeouts: {connect: ...}'"},
        {UP "    pool_idle: 10s\n", "upstreams[0]: unknown name 'pool_idle'; did you mean 'pool: {idle: ...}'?"},
        {UP2 "routes:\n  - {upstream: a, fallback: nowhere}\n", "routes[0].fallback: no upstream has this name"},
        {UP2 "routes:\n  - {upstream: a, fallback: a}\n", "names the route's own upstream"},
        {UP2 "routes:\n  - {upstream: a, fallback: b b=x}\n", "names an upstream twice"},
        {UP2 "routes:\n  - {upstream: a, fallback: b=}\n", "a model behind = must have 1 to 256 bytes"},
        {UP2 "routes:\n  - {upstream: a, fallback: bb}\n", "did you mean 'b'?"},
        {UP "    breaker: {open: 2m}\n", "upstreams[0].breaker.open: is more than breaker.open_max"},
        {UP "    probe: {path: health}\n", "upstreams[0].probe.path: must begin with /"},
        {UP "    probe: {path: '/a b'}\n", "upstreams[0].probe.path: must be printable ASCII without blanks and #"},
        {UP "    probe: {path: /health}\n    breaker: {open_max: 0, open: 10ms}\n",
         "upstreams[0].probe.path: does nothing while breaker.open_max is 0"},
        {UP "    probe: {every: 50ms}\n", "t.yaml:3:20: upstreams[0].probe.every: does nothing without probe.path"},
        {UP "    probe: {timeout: 50ms}\n", "upstreams[0].probe.timeout: does nothing without probe.path"},
        {UP "    retry: {attempts: 0}\n", "upstreams[0].retry.attempts: is out of range: 1 to 10 attempts"},
        {UP "    replicas: http://127.0.0.1:10 ftp://x\n", "t.yaml:3:15: upstreams.replicas: "},
        {UP "    replicas: http://127.0.0.1:9\n", "upstreams.replicas: names the same place twice"},
        {UP "zzzzzzzz: 1\n", "t.yaml:3:1: unknown name 'zzzzzzzz'"},
        {UP "limits:\n  fields: many\n", "t.yaml:4:11: limits.fields: is not a whole number"},
        {UP "limits: {fields: 7}\n", "t.yaml:3:18: limits.fields: is out of range: 8 to 1000 fields"},
        {UP "limits: {fields: 0x10}\n", "limits.fields: is not a whole number"},
        {UP "limits: {fields: 4294967297}\n", "limits.fields: is out of range"},
        {UP "limits: {fields: [9]}\n", "t.yaml:3:18: limits.fields: must be one value, not a list"},
        {UP "limits: {fields: {a: 9}}\n", "limits.fields: must be a value, not a map"},
        {UP "limits: {fields: null}\n", "limits.fields: null is no value"},
        {UP "limits: {fields: }\n", "limits.fields: a number is missing"},
        {UP "limits: 5\n", "t.yaml:3:9: limits: must be a map"},
        {UP "limits:\n\tfields: 9\n", "t.yaml:4:1: a tab cannot indent YAML; use blanks"},
        {UP "limits:\n  fields: 9\n  \thead_bytes: 2KiB\n", "a tab cannot indent YAML; use blanks"},
        {UP "aliases:\n  -\t\xc3\xa9: b\n", "a tab cannot indent YAML; use blanks"},
        {UP "\xc3\xa9: @a\t\n", "t.yaml:3:4: found character that cannot start any token"},
        {UP "key: {tenant: a}\n", "t.yaml:3:1: unknown name 'key'; did you mean 'keys'?"},
        {UP "limits: {body_bytes: 2GiB}\n", "limits.body_bytes: is out of range"},
        {UP "limits: {body_bytes: 512MiB, buffer_bytes: 256MiB}\n",
         "t.yaml:3:22: limits.body_bytes: is over limits.buffer_bytes"},
        {UP "timeouts: {head: 30}\n", "t.yaml:3:18: timeouts.head: needs a unit"},
        {UP "canon: {mode: maybe}\n", "t.yaml:3:15: canon.mode: must be off, report or on"},
        {UP "canon: {rules_off: [LR004, LR04]}\n", "t.yaml:3:20: canon.rules_off: unknown rule; did you mean LR004?"},
        {UP "canon: {rules_off: nonsense_rule_xyz}\n", "unknown rule; `larder rules`"},
        {UP "canon: {rules_on: LR101}\n", "canon.rules_on: a rule that only `larder lint` reports: it never edits"},
        {UP "canon: {rules_on: LR04}\n", "canon.rules_on: unknown rule; did you mean LR004?"},
        {UP "canon: {rules_off: [\"a b\"]}\n", "t.yaml:3:21: canon.rules_off: a blank"},
        {UP "canon: {scope_header: \"X Y\"}\n", "canon.scope_header: is not the name"},
        {UP "canon: {output_on_disk: true}\n", "t.yaml:3:25: canon.output_on_disk: store.dir is not set"},
        {UP "store: {dir: d}\ncanon: {output_on_disk: true, output_bytes: 0}\n",
         "t.yaml:4:25: canon.output_on_disk: canon.output_bytes is 0"},
        {UP "canon: {output_bytes: 1TB}\n", "canon.output_bytes: "},
        {UP "log: {access: maybe}\n", "log.access: must be true or false"},
        {UP "store: {dir: \"a\\0b\"}\n", "t.yaml:3:14: store.dir: holds a control character"},
        {UP "store: {dir: \"a\\nb\"}\n", "store.dir: holds a control character"},
        {UP "admin: {listen: 8081}\n", "t.yaml:3:17: admin.listen: must be an address"},
        {UP "listen: 127.0.0.1:7\nadmin: {listen: \"127.0.0.1:7\"}\n", "t.yaml:4:17: admin.listen: clients connect"},
        {UP "listen: [127.0.0.1:7, 127.0.0.1:7]\n", "t.yaml:3:23: listen: the same address twice"},
        {UP "listen: [127.0.0.1]\n", "t.yaml:3:10: listen: the port is missing"},
        {UP "listen: {a: b}\n", "t.yaml:3:9: listen: must be an address or a list"},
        {UP "listen: [[a]]\n", "listen: must be an address"},
        {UP "cors: {origins: http://a/path}\n", "cors.origins: an origin is"},
        {UP "cors: {origins: http://a/}\n", "cors.origins: an origin is"},
        {UP "cors: {origins: a.example}\n", "cors.origins: must begin with"},
        {UP "hosts: http://a\n", "hosts: must be host names"},
        {UP "hosts: a.example:80\n", "t.yaml:3:8: hosts: must be host names without scheme, port"},
        {UP "tls: {cert: c.pem}\n", "t.yaml:3:13: tls.cert: needs tls.key"},
        {UP "tls: {key: c.pem}\n", "tls.key: needs tls.cert"},
        {UP "tls: {cert: absent.pem, key: absent.pem}\n", "tls.cert: the file named here cannot be opened"},
        {UP "threads: 1\nthreads: 2\n", "t.yaml:4:1: this name stands here twice (before: line 3)"},
        {UP "log: {level: info, level: debug}\n", "t.yaml:3:20: this name stands here twice"},
        {UP "log: &a {level: info}\n", "t.yaml:3:6: anchors"},
        {UP "log: *a\n", "t.yaml:3:6: aliases"},
        {UP "log: !x {level: info}\n", "t.yaml:3:6: tags"},
        {UP "log: {level: !!str info}\n", "tags"},
        {UP "log: {<<: {level: info}}\n", "log: unknown name"},
        {UP "? [a]\n: b\n", "t.yaml:3:3: a name must be plain text"},
        {UP "---\nthreads: 1\n", "only one document"},
        {UP "log: {level: info\n", "t.yaml:"},
        {UP "\tthreads: 1\n", "t.yaml:"},
        {UP "threads: \"\xff\"\n", "t.yaml: byte "},
        {UP "threads: [[[[[[[[[[[[]]]]]]]]]]]]\n", "t.yaml:3:17: nested too deeply"},
        /* upstreams */
        {"upstreams: {a: b}\n", "t.yaml:1:12: upstreams: must be a list"},
        {"upstreams: [x]\n", "t.yaml:1:13: upstreams[0]: must be a map"},
        {"upstreams:\n  - name: a\n", "t.yaml:2:5: upstreams[0].url: is missing"},
        {"upstreams:\n  - url: ftp://a\n", "t.yaml:2:10: upstreams[0].url: must begin with"},
        {"upstreams:\n  - ulr: http://a\n", "t.yaml:2:5: upstreams[0]: unknown name 'ulr'; did you mean 'url'?"},
        {"upstreams:\n  - {url: http://a, timeouts: {conect: 1s}}\n",
         "upstreams[0].timeouts: unknown name 'conect'; did you mean 'connect'?"},
        {"upstreams:\n  - {url: http://a, timeouts: {connect: 1}}\n",
         "t.yaml:2:41: upstreams[0].timeouts.connect: needs a unit"},
        {"upstreams:\n  - {url: http://a, profile: opnai}\n", "upstreams[0].profile: must be auto, generic"},
        {"upstreams:\n  - {url: http://a, name: \"a b\"}\n", "upstreams[0].name: only letters"},
        {"upstreams:\n  - url: http://a\n  - url: https://A\n", "t.yaml:3:5: upstreams[1].name: another upstream"},
        {"upstreams:\n  - {name: x, url: http://a}\n  - {name: x, url: http://b}\n",
         "t.yaml:3:12: upstreams[1].name: another upstream"},
        {"upstreams:\n  - {url: http://a, pool: {max: 0}}\n", "upstreams[0].pool.max: is out of range"},
        {"upstreams:\n  - {url: http://a, ca_file: absent.pem}\n",
         "ca_file of upstream a: the file named here cannot be opened"},
        {"upstreams:\n  - {url: http://a, key_env: A, key_file: b}\n", "give key_env or key_file, not both"},
        /* kinds */
        {"upstreams:\n  - {kind: motor}\n", "upstreams[0].kind: must be http or engine"},
        {"upstreams:\n  - {kind: engine}\n", "t.yaml:2:5: upstreams[0].engine.model: is missing"},
        {"upstreams:\n  - {kind: engine, url: http://a, engine: {model: m}}\n",
         "t.yaml:2:25: upstreams[0].url: does nothing for an upstream of `kind: engine`"},
        {"upstreams:\n  - {kind: engine, key_env: A, engine: {model: m}}\n", "upstreams[0].key_env: does nothing"},
        {"upstreams:\n  - {kind: engine, pool: {max: 1}, engine: {model: m}}\n", "upstreams[0].pool.max: does nothing"},
        {"upstreams:\n  - {kind: engine, timeouts: {connect: 1s}, engine: {model: m}}\n",
         "upstreams[0].timeouts.connect: does nothing"},
        {"upstreams:\n  - {url: http://a, engine: {gap: 1s}}\n",
         "t.yaml:2:35: upstreams[0].engine.gap: is for upstreams of `kind: engine` only"},
        {"upstreams:\n  - {kind: engine, engine: {model: m, spill: 1GiB}}\n",
         "upstreams[0].engine.spill: needs store.dir"},
        {"upstreams:\n  - {kind: engine, engine: {model: m, spill: 1023KiB}}\nstore: {dir: s}\n",
         "upstreams[0].engine.spill: is out of range: 0, or 1MiB at least"},
        {"canon: {mode: off}\nupstreams:\n  - {name: a, kind: engine, engine: {model: m, keep_warm: 1}}\n",
         "engine.keep_warm of upstream a: does nothing while canon.mode is off"},
        {"upstreams:\n  - {kind: engine, engine: {model: m, threads: 257}}\n",
         "upstreams[0].engine.threads: is out of range: 0 to 256"},
        {"upstreams:\n  - {kind: engine, engine: {model: m, sequences: 0}}\n",
         "upstreams[0].engine.sequences: is out of range"},
        {"upstreams:\n  - {kind: engine, engine: {model: 'a b'}}\n", "upstreams[0].name: only letters"},
        {"upstreams:\n  - {kind: engine, engine: {mode: m}}\n", "upstreams[0].engine: unknown name 'mode'|'model'?"},
        /* routes */
        {UP "routes: {a: b}\n", "t.yaml:3:9: routes: must be a list"},
        {UP "routes:\n  - {prefix: /x}\n", "t.yaml:4:5: routes[0].upstream: is missing"},
        {"upstreams: [{name: openai, url: http://a}]\nroutes:\n  - {upstream: opanai}\n",
         "t.yaml:3:16: routes[0].upstream: no upstream has this name; did you mean 'openai'?"},
        {UP "routes:\n  - {prefix: x, upstream: 127.0.0.1}\n", "t.yaml:4:14: routes[0].prefix: must begin with /"},
        {UP "routes:\n  - {prefix: /a//b, upstream: 127.0.0.1}\n", "routes[0].prefix: must not hold //"},
        {UP "routes:\n  - {prefix: /a/../b, upstream: 127.0.0.1}\n", "routes[0].prefix: must not hold"},
        {UP "routes:\n  - {prefix: \"/a?b\", upstream: 127.0.0.1}\n", "routes[0].prefix: only letters"},
        {UP "routes:\n  - {pass_through: true, upstream: 127.0.0.1}\n",
         "t.yaml:4:20: routes[0].pass_through: needs a prefix"},
        {UP "routes:\n  - {header: {name: X-A}, upstream: 127.0.0.1}\n", "routes[0].header.name: header needs both"},
        {UP "routes:\n  - {header: {name: \"X A\", value: b}, upstream: 127.0.0.1}\n",
         "routes[0].header.name: is not the name"},
        {UP "routes:\n  - {canon: maybe, upstream: 127.0.0.1}\n",
         "t.yaml:4:13: routes[0].canon: must be inherit, off, report or on"},
        {UP "routes:\n  - {cannon: off, upstream: 127.0.0.1}\n", "routes[0]: unknown name 'cannon'|'canon'?"},
        {UP "routes:\n  - {header: X-A, upstream: 127.0.0.1}\n", "t.yaml:4:14: routes[0].header: must be a map"},
        /* keys and aliases */
        {UP "keys:\n  - {tenant: a}\n", "t.yaml:4:5: keys[0]: needs exactly one"},
        {UP "keys:\n  - {env: HOME, file: x, tenant: a}\n", "needs exactly one"},
        {UP "keys:\n  - {tenant: a, sha256: abc}\n", "t.yaml:4:25: keys[0].sha256: must be 64 hex digits"},
        {UP "keys:\n  - {tenant: \"\", sha256: abc}\n", "keys[0].tenant: must have 1 to"},
        {UP "keys: [{tenant: a, sha256: 00000000000000000000000000000000000000000000000000000000000000aa},\n"
            "  {tenant: b, sha256: 00000000000000000000000000000000000000000000000000000000000000AA}]\n",
         "t.yaml:4:23: keys[1].sha256: the same key"},
        {UP "aliases: [a]\n", "t.yaml:3:10: aliases: must be a map"},
        {UP "aliases: {a: [b]}\n", "aliases: must be a model name"},
        {UP "aliases: {a: \"\"}\n", "aliases: must be a model name"},
        {UP "aliases: {\"\": b}\n", "aliases: must be a model name"},
        {UP "aliases: {a: b, a: c}\n", "t.yaml:3:17: this name stands here twice"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) fixture_bad(rows[i].yaml, NULL, 0, rows[i].parts);
}

static void everything_at_once(void **state) {
    (void)state;
    (void)setenv("T_UP_KEY", "sk-up", 1);
    (void)setenv("T_TEAM_KEY", "team-secret", 1);
    fixture_write("up.key", "  sk-file\r\n", 11);
    lar_config *c = fixture_good(
        "listen: [127.0.0.1:0, '[::1]:0']\n"
        "upstreams:\n"
        "  - {name: deepseek, url: https://api.deepseek.com/v1/, key_env: T_UP_KEY, timeouts: {connect: 5s, total: 0}, "
        "pool: {idle: 0}}\n"
        "  - {name: other, url: 'http://[::1]:9/x', profile: vllm, key_file: up.key, inject_usage: off}\n"
        "  - url: https://api.anthropic.com\n"
        "routes:\n"
        "  - {prefix: /team-a/, model: 'gpt-*', header: {name: X-Env, value: test}, upstream: other, pass_through: "
        "true, canon: off}\n"
        "  - {prefix: /, pass_through: yes, upstream: api.anthropic.com}\n"
        "keys:\n"
        "  - {tenant: team-a, env: T_TEAM_KEY}\n"
        "  - {tenant: team-a, sha256: 'E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855'}\n"
        "aliases: {fast: deepseek-chat, 'a b': c}\n"
        "canon: {mode: report, rules_off: [LR001, tool_order]}\n"
        "limits:\n"
        "store:\n  dir: ''\n"
        "cors: {origins: ['http://a.example:3000', 'https://b.example']}\n"
        "hosts: [a.example, '[::1]']\n"
        "admin: {listen: off}\n"
        "threads: 3\n");
    assert_int_equal(c->listen_count, 2);
    assert_string_equal(c->listens[1].host, "::1");
    assert_int_equal(c->upstream_count, 3);
    const lar_upstream_config *u = c->upstreams;
    assert_string_equal(u[0].key, "sk-up");
    assert_int_equal(u[0].profile, LAR_PROFILE_DEEPSEEK);
    assert_string_equal(u[0].url.path, "/v1");
    assert_int_equal(u[0].connect_timeout_ms, 5000);
    assert_int_equal(u[0].first_byte_timeout_ms, 600000);
    assert_int_equal(u[0].idle_timeout_ms, 300000);
    assert_int_equal(u[0].total_timeout_ms, 0);
    assert_int_equal(u[0].pool_idle_ms, 0);
    assert_int_equal(u[0].inject_usage, -1);
    assert_string_equal(u[1].key, "sk-file");
    assert_int_equal(u[1].profile, LAR_PROFILE_VLLM);
    assert_int_equal(u[1].inject_usage, 0);
    assert_string_equal(u[2].name, "api.anthropic.com");
    assert_int_equal(u[2].profile, LAR_PROFILE_ANTHROPIC);
    assert_string_equal(u[2].key, "");
    assert_int_equal(c->route_count, 2);
    assert_string_equal(c->routes[0].prefix, "/team-a");
    assert_string_equal(c->routes[0].model, "gpt-*");
    assert_string_equal(c->routes[0].header_name, "X-Env");
    assert_string_equal(c->routes[0].header_value, "test");
    assert_int_equal(c->routes[0].upstream, 1);
    assert_true(c->routes[0].pass_through);
    assert_int_equal(c->routes[0].canon, LAR_CANON_OFF);
    assert_int_equal(c->routes[1].canon, -1);
    assert_string_equal(c->routes[1].prefix, "");
    assert_int_equal(c->routes[1].upstream, 2);
    lar_digest team = lar_digest_of(LAR_SLICE("team-secret")), empty = lar_digest_of(LAR_SLICE(""));
    assert_int_equal(c->key_count, 2);
    assert_string_equal(c->keys[0].tenant, "team-a");
    assert_true(lar_digest_eq(&c->keys[0].digest, &team));
    assert_true(lar_digest_eq(&c->keys[1].digest, &empty));
    assert_int_equal(c->alias_count, 2);
    assert_string_equal(c->aliases[1].from, "a b");
    assert_string_equal(c->aliases[1].to, "c");
    assert_int_equal(c->canon, LAR_CANON_REPORT);
    assert_true(c->rules_off_bits == (lar_rules_off_default() | (1ull << LAR_RULE_LR001) | (1ull << LAR_RULE_LR003)));
    assert_string_equal(c->cors_origins, "http://a.example:3000 https://b.example");
    assert_string_equal(c->hosts, "a.example [::1]");
    assert_int_equal(c->threads, 3);
    lar_config_free(c);
}

static void chains_and_replicas(void **state) {
    (void)state;
    lar_config *c =
        fixture_good("upstreams:\n"
                     "  - {name: a, url: http://127.0.0.1:1, replicas: ' http://127.0.0.1:2  http://127.0.0.1:3'}\n"
                     "  - {name: b, url: http://127.0.0.1:4, retry: {attempts: 3}, breaker: {open_max: 0}}\n"
                     "  - {name: c, url: http://127.0.0.1:5, replicas: http://127.0.0.1:6}\n"
                     "routes:\n"
                     "  - {upstream: c, fallback: 'b=small  a', deadline: 10s, hold: {time: 1s, bytes: 1KiB}}\n");
    assert_int_equal(c->upstream_count, 6);
    const lar_upstream_config *u = c->upstreams;
    assert_string_equal(u[3].name, "a/2");
    assert_string_equal(u[4].name, "a/3");
    assert_string_equal(u[5].name, "c/2");
    assert_string_equal(u[4].group, "a");
    assert_string_equal(u[4].url.authority, "127.0.0.1:3");
    assert_int_equal(u[0].replica_next, 3);
    assert_int_equal(u[3].replica_next, 4);
    assert_int_equal(u[4].replica_next, 0);
    assert_int_equal(u[2].replica_next, 5);
    assert_int_equal(u[1].replica_next, 0);
    assert_int_equal(u[1].retry_attempts, 3);
    const lar_route_config *r = c->routes;
    assert_int_equal(r->upstream, 2);
    assert_int_equal(r->fallback_count, 2);
    assert_int_equal(r->fallbacks[0].upstream, 1);
    assert_string_equal(r->fallbacks[0].model, "small");
    assert_int_equal(r->fallbacks[1].upstream, 0);
    assert_string_equal(r->fallbacks[1].model, "");
    assert_int_equal(r->deadline_ms, 10000);
    assert_int_equal(r->hold_bytes, 1024);
    lar_config_free(c);
}

/* A chain that a request could not go along to its end is refused, with all replicas counted. */
static void chains_have_an_end(void **state) {
    (void)state;
    for (uint32_t replicas = 30; replicas < 32; replicas++) { /* beside the first: 31 + 31 + 2, and two more */
        char text[8192];
        size_t n = (size_t)snprintf(text, sizeof text, "upstreams:\n");
        for (uint32_t u = 0; u < 2; u++) {
            n += (size_t)snprintf(text + n, sizeof text - n, "  - {name: %c, url: http://127.0.0.1:%u, replicas: '",
                                  'a' + (int)u, 1000 * (u + 1));
            for (uint32_t i = 1; i <= replicas; i++)
                n += (size_t)snprintf(text + n, sizeof text - n, " http://127.0.0.1:%u", 1000 * (u + 1) + i);
            n += (size_t)snprintf(text + n, sizeof text - n, "'}\n");
        }
        (void)snprintf(text + n, sizeof text - n,
                       "  - {name: c, url: http://127.0.0.1:1}\n  - {name: d, url: http://127.0.0.1:2}\n"
                       "routes: [{upstream: a, fallback: b c d}]\n");
        if (replicas == 30) lar_config_free(fixture_good(text));
        else
            fixture_bad(text, NULL, 0,
                        "routes[0].fallback: with all replicas these are 66 places to ask for one request; at most 64");
    }
}

static void an_engine_is_an_upstream(void **state) {
    (void)state;
    lar_config *c =
        fixture_good("upstreams:\n"
                     "  - {kind: engine, engine: {model: models/tiny-v3/}}\n"
                     "  - {kind: engine, name: big, timeouts: {idle: 1s}, inject_usage: off,\n"
                     "     engine: {model: /m/V2-Lite.gguf, kv: fp8, kv_bytes: 2GiB, sequences: 3, context: 4096,\n"
                     "       queue: 1, queue_wait: 0, gap: 50ms, pass_tokens: 64, threads: 2, nice: 0,\n"
                     "       expert_bytes: 1GiB, pin: 1m, spill: 4GiB}}\n"
                     "  - {kind: engine, name: named, engine: {model: ., served_name: 'org/own name'}}\n"
                     "store: {dir: x}\n");
    const lar_upstream_config *u = c->upstreams;
    assert_int_equal(u[0].kind, LAR_UPSTREAM_KIND_ENGINE);
    assert_string_equal(u[0].name, "tiny-v3");
    assert_string_equal(u[0].engine.model, "models/tiny-v3/");
    assert_string_equal(u[0].engine.served_name, "tiny-v3");
    assert_string_equal(u[0].engine.kv, "bf16");
    assert_int_equal(u[0].engine.sequences, 8);
    assert_int_equal(u[0].profile, LAR_PROFILE_LARDER);
    assert_string_equal(u[0].key, "");
    assert_string_equal(u[1].name, "big");
    assert_string_equal(u[1].engine.served_name, "V2-Lite");
    assert_true(u[1].engine.kv_bytes == 2ull << 30 && u[1].engine.expert_bytes == 1ull << 30);
    assert_true(u[1].engine.spill_bytes == 4ull << 30);
    assert_int_equal(u[1].engine.context, 4096);
    assert_int_equal(u[1].engine.queue, 1);
    assert_int_equal(u[1].engine.queue_wait_ms, 0);
    assert_int_equal(u[1].engine.pin_ms, 60000);
    assert_int_equal(u[1].idle_timeout_ms, 1000);
    assert_string_equal(u[2].engine.served_name, "org/own name");
    assert_ptr_equal(lar_config_engine(c, "big"), &u[1]);
    assert_null(lar_config_engine(c, "small"));
    lar_config_free(c);
}

static void secrets_are_checked_and_never_shown(void **state) {
    (void)state;
    static char big[8300], two[] = "s3cret-a\ns3cret-b\n", odd[] = "s3cret\x01";
    memset(big, 'x', sizeof big);
    fixture_write("big.key", big, sizeof big);
    fixture_write("two.key", two, sizeof two - 1);
    fixture_write("odd.key", odd, sizeof odd - 1);
    fixture_write("blank.key", " \n", 2);
    fixture_write("inner.key", "s3cret x", 8);
    assert_int_equal(mkfifo("pipe.key", 0600), 0);
    (void)setenv("T_EMPTY", "", 1);
    static const struct {
        const char *line, *parts;
    } rows[] = {
        {"key_file: big.key", "t.yaml:3:15: upstreams[0].key_file: the file named here is larger than"},
        {"key_file: two.key", "the file must hold the key on one line"},
        {"key_file: odd.key", "holds a byte (at 7)"},
        {"key_file: inner.key", "holds a byte (at 7)"},
        {"key_file: blank.key", "the file is empty"},
        {"key_file: absent.key", "cannot be opened (No such file"},
        {"key_file: s3cret", "cannot be opened"},
        {"key_file: .", "is a folder"},
        {"key_file: pipe.key", "is not a regular file"},
        {"key_file: \"two.key\\0x\"", "control character"},
        {"key_env: T_NOT_SET", "the environment variable T_NOT_SET is not set"},
        {"key_env: TOKEN", "the environment variable TOKEN is not set"},
        {"key_env: s3cret", "the environment variable named here is not set"},
        {"key_env: S3CRET", "the environment variable named here is not set"},
        {"key_env: t_s3cret", "the environment variable named here is not set"},
        {"key_env: T_EMPTY", "the environment variable is empty"},
        {"key_env: sk-s3cret", "must be the name of an environment variable"},
        {"key: s3cret", "secrets are not written into this file; use key_env or key_file"},
        {"api_key: s3cret", "secrets are not written into this file"},
        {"s3cret: x", "unknown name"},
        {"url: s3cret", "t.yaml:3:5: this name stands here twice"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char yaml[300];
        (void)snprintf(yaml, sizeof yaml, "upstreams:\n  - url: http://a\n    %s\n", rows[i].line);
        fixture_bad(yaml, NULL, 0, rows[i].parts);
        lar_config *c = NULL;
        lar_diag d = {0};
        assert_int_equal(fixture_load(yaml, NULL, 0, &c, &d), LAR_CONFIG);
        if (strcasestr(d.text, "s3cret")) fail_msg("a secret in '%s'", d.text);
    }
    fixture_bad(UP "keys: [{tenant: a, key: s3cret}]\n", NULL, 0,
                "secrets are not written into this file; use env, file or sha256");
}

static void limits_of_a_file(void **state) {
    (void)state;
    size_t len = (1 << 20) + 1;
    char *text = malloc(len + 1);
    assert_non_null(text);
    memset(text, '#', len);
    text[len] = 0;
    fixture_bad(text, NULL, 0, "t.yaml: the configuration file is larger than");
    text[len - 1] = 0;
    fixture_bad(text, NULL, 0, "no upstream"); /* 1 MiB of comment is still a file */
    memset(text, '[', len - 1);
    fixture_bad(text, NULL, 0, "nested too deeply");
    for (size_t i = 0; i + 2 < len; i += 2) memcpy(text + i, "- ", 2);
    fixture_bad(text, NULL, 0, "t.yaml:1:");
    for (size_t i = 0; i + 4 < len; i += 4) memcpy(text + i, "- a\n", 4);
    text[len / 4 * 4] = 0;
    fixture_bad(text, NULL, 0, "too many");
    free(text);
    lar_config *c = NULL;
    lar_diag d = {0};
    assert_int_equal(lar_config_load("absent.yaml", NULL, 0, &c, &d), LAR_CONFIG);
    assert_non_null(strstr(d.text, "absent.yaml: the configuration file cannot be opened (No such file"));
    assert_int_equal(lar_config_load(".", NULL, 0, &c, &d), LAR_CONFIG);
    assert_non_null(strstr(d.text, "is a folder"));
}

static void a_byte_order_mark_is_skipped(void **state) {
    (void)state;
    lar_config_free(fixture_good("\xef\xbb\xbf" UP));
    lar_config_free(fixture_good("upstreams:\r\n  - url: http://127.0.0.1:9\r\nthreads: 2\r\n"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused),
        cmocka_unit_test(everything_at_once),
        cmocka_unit_test(chains_and_replicas),
        cmocka_unit_test(chains_have_an_end),
        cmocka_unit_test(an_engine_is_an_upstream),
        cmocka_unit_test(secrets_are_checked_and_never_shown),
        cmocka_unit_test(limits_of_a_file),
        cmocka_unit_test(a_byte_order_mark_is_skipped),
    };
    return cmocka_run_group_tests(tests, fixture_enter, fixture_leave);
}
