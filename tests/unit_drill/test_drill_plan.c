/* Plan, disguise and script of a drill: nothing of the operator's places is left, times keep their order, and what a
 * stand-in says reads as content, errors and ends in each protocol. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gateway/drill/drill_disguise.h"
#include "gateway/drill/drill_plan.h"
#include "gateway/drill/drill_script.h"
#include "gateway/http1/sse.h"

#define CONFIG                                                                                                         \
    "listen: 192.0.2.1:80\nadmin: {listen: 192.0.2.1:81}\nstore: {dir: /nowhere/store}\n"                              \
    "shared: {url: 'redis://192.0.2.2'}\nkeys: [{tenant: t, env: DRILL_TEST_KEY}]\n"                                   \
    "upstreams:\n"                                                                                                     \
    "  - {name: a, url: 'https://api.deepseek.com/v1', key_env: DRILL_TEST_KEY, replicas: 'https://two.example/v1'}\n" \
    "  - {name: b, url: 'https://api.openai.com'}\n"                                                                   \
    "  - {name: c, kind: engine, engine: {model: /nowhere/model}}\n"                                                   \
    "routes:\n"                                                                                                        \
    "  - {prefix: /x, upstream: a, fallback: 'b=gpt-4o c', deadline: 700s, hold: {time: 10s}}\n"                       \
    "  - {model: 'other-*', upstream: b}\n"                                                                            \
    "  - {model: 'other-*', upstream: c}\n"

static lar_config *load(void) {
    char file[] = "drill_plan_XXXXXX";
    lar_config *c = NULL;
    lar_diag d = {{0}, 0, 0};
    int fd = mkstemp(file);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, CONFIG, sizeof CONFIG - 1), (ssize_t)sizeof CONFIG - 1);
    (void)close(fd);
    assert_int_equal(setenv("DRILL_TEST_KEY", "the-operators-own-key", 1), 0);
    lar_error e = lar_config_load(file, NULL, 0, &c, &d);
    (void)unlink(file);
    if (e) fail_msg("%s", d.text);
    return c;
}

static const lar_drill_scene *find(const lar_drill_plan *p, uint32_t line, lar_drill_id id) {
    for (uint32_t i = 0; i < p->scene_count; i++)
        if (p->scenes[i].line == &p->lines[line] && p->scenes[i].scenario == lar_drill_scenario_of(id))
            return &p->scenes[i];
    return NULL;
}

static void test_chain(void **state) {
    (void)state;
    lar_config *c = load();
    lar_drill_plan p;
    lar_diag d = {{0}, 0, 0};
    assert_int_equal(lar_drill_plan_make(&p, c, &(lar_drill_options){0}, &d), LAR_OK);
    assert_int_equal(p.line_count, 3);
    const lar_drill_line *l = &p.lines[0];
    assert_int_equal(l->protocol, LAR_PROTOCOL_CHAT);
    assert_int_equal(l->target_count, 3);
    assert_int_equal(l->targets[0].members, 2);
    assert_string_equal(l->model, "deepseek-chat");
    assert_string_equal(l->targets[1].model, "gpt-4o");
    assert_true(l->targets[1].foreign_key); /* without a key of its own, behind client keys of larder's own */
    assert_false(l->targets[0].foreign_key);
    assert_string_equal(p.lines[1].model, "other-x");
    assert_non_null(strstr(p.notes.ptr, "routes[2] does not get a request for model 'other-x': routes[1] takes it"));
    assert_null(find(&p, 1, LAR_DRILL_ID_REST)); /* nobody is behind it */
    assert_non_null(find(&p, 0, LAR_DRILL_ID_REST));
    lar_drill_plan_release(&p);
    assert_int_equal(lar_drill_plan_make(&p, c, &(lar_drill_options){.protocols = 1u << LAR_PROTOCOL_MESSAGES}, &d),
                     LAR_OK);
    assert_non_null(p.lines[0].targets[2].cannot);
    assert_int_equal(lar_drill_next(&p.lines[0]), 1);
    assert_int_equal(lar_drill_last(&p.lines[0]), 1);
    lar_drill_plan_release(&p);
    assert_int_equal(lar_drill_plan_make(&p, c, &(lar_drill_options){.without_engine = true}, &d), LAR_OK);
    assert_int_equal(p.line_count, 2);
    assert_int_equal(p.lines[0].target_count, 2);
    lar_drill_plan_release(&p);
    assert_int_equal(lar_drill_plan_make(&p, c, &(lar_drill_options){.scenario = "hangs"}, &d), LAR_INVALID);
    lar_drill_plan_release(&p);
    assert_int_equal(lar_drill_plan_make(&p, c, &(lar_drill_options){.route = "/y"}, &d), LAR_INVALID);
    lar_drill_plan_release(&p);
    lar_config_free(c);
}

static void test_waits(void **state) {
    (void)state;
    for (uint32_t ms = 1; ms < 90000000; ms = ms * 5 / 4 + 1) {
        assert_true(lar_drill_shorten(ms) <= ms);
        assert_true(lar_drill_shorten(ms) <= lar_drill_shorten(ms + ms / 4 + 1));
        assert_true(lar_drill_shorten(ms) < 2500);
    }
    lar_config *c = load();
    lar_drill_plan p;
    lar_diag d = {{0}, 0, 0};
    assert_int_equal(lar_drill_plan_make(&p, c, &(lar_drill_options){0}, &d), LAR_OK);
    const lar_drill_wait *hang = &find(&p, 0, LAR_DRILL_ID_HANG)->wait,
                         *idle = &find(&p, 0, LAR_DRILL_ID_STALL_ROLE)->wait;
    assert_string_equal(hang->option, "timeouts.first_byte");
    assert_int_equal(hang->configured_ms, 600000);
    assert_int_equal(hang->deadline_ms - hang->played_ms, 100000); /* as much is left as the operator left */
    assert_int_equal(hang->hold_ms, 10000);
    assert_true(idle->hold_ms < idle->played_ms); /* and what ends too early does so here too */
    assert_int_equal(find(&p, 0, LAR_DRILL_ID_CLOSE)->wait.deadline_ms, 700000);
    lar_drill_plan_release(&p);
    lar_config_free(c);
}

static void test_disguise(void **state) {
    (void)state;
    lar_config *c = load();
    lar_drill_plan p;
    lar_diag d = {{0}, 0, 0};
    assert_int_equal(lar_drill_plan_make(&p, c, &(lar_drill_options){0}, &d), LAR_OK);
    uint32_t engines = 0;
    lar_drill_places places = {.port = 1, .closed_port = 2, .store_dir = "/tmp/x"};
    assert_int_equal(lar_drill_disguise(c, &p, &places, false), LAR_OK);
    assert_int_equal(c->route_count, p.scene_count);
    for (uint32_t i = 0; i < c->upstream_count; i++) {
        const lar_upstream_config *u = &c->upstreams[i];
        engines += u->kind == LAR_UPSTREAM_KIND_ENGINE;
        if (u->kind == LAR_UPSTREAM_KIND_ENGINE) continue;
        bool here = strcmp(u->url.host, "127.0.0.1") == 0;
        assert_true(here || strlen(u->url.host) > 63); /* or a name that cannot be looked up */
        assert_true(u->url.port == 1 || u->url.port == 2);
        assert_null(strstr(u->key, "operator"));
        for (uint32_t k = 0; k < i; k++) assert_string_not_equal(u->name, c->upstreams[k].name);
        if (u->replica_next) assert_string_equal(c->upstreams[u->replica_next].group, u->name);
    }
    assert_int_equal(engines, 1);
    for (uint32_t i = 0; i < c->route_count; i++) assert_true(c->routes[i].upstream < c->upstream_count);
    assert_string_equal(p.upstreams[0].key, ""); /* wiped */
    assert_string_equal(c->listens[0].host, "127.0.0.1");
    assert_string_equal(c->admin_listen, "off");
    assert_string_equal(c->shared_url, "");
    assert_string_equal(c->store_dir, "/tmp/x");
    assert_int_equal(c->key_count, 1);
    lar_digest drills = lar_digest_of(LAR_SLICE(LAR_DRILL_CLIENT_KEY));
    assert_true(lar_digest_eq(&c->keys[0].digest, &drills));
    lar_drill_plan_release(&p);
    lar_config_free(c);
}

/* What larder's reader of streams takes from all events of these phases. */
static lar_usage read_stream(const lar_drill_voice *v, lar_drill_phase from, lar_drill_phase to) {
    lar_buf b;
    lar_sse sse;
    lar_usage u;
    lar_buf_init(&b, 1 << 16);
    lar_sse_init(&sse, 1 << 16);
    lar_usage_init(&u, LAR_USAGE_BY_SPELLING);
    for (int phase = (int)from; phase <= (int)to; phase++)
        for (uint32_t i = 0; i < (phase == LAR_DRILL_PIECE ? LAR_DRILL_PIECES : 1); i++)
            assert_int_equal(lar_drill_say(v, (lar_drill_phase)phase, i, &b), LAR_OK);
    for (size_t at = 0, used = 0; at < b.len; at += used) {
        lar_sse_event e;
        if (!lar_sse_next(&sse, b.ptr + at, b.len - at, &used, &e)) break;
        (void)lar_usage_event(&u, v->protocol, e.type, e.data);
    }
    assert_false(u.odd);
    lar_buf_release(&b);
    lar_sse_release(&sse);
    lar_usage_release(&u);
    return u;
}

static void test_script(void **state) {
    (void)state;
    static const lar_protocol protocols[] = {LAR_PROTOCOL_CHAT, LAR_PROTOCOL_MESSAGES, LAR_PROTOCOL_RESPONSES};
    for (size_t i = 0; i < 6; i++) {
        lar_drill_voice v = {.protocol = protocols[i / 2], .name = "one", .tool = i % 2};
        assert_false(read_stream(&v, LAR_DRILL_EARLY, LAR_DRILL_EARLY).content_seen);
        if (!v.tool) assert_false(read_stream(&v, LAR_DRILL_EARLY, LAR_DRILL_OPEN).content_seen);
        lar_usage cut = read_stream(&v, LAR_DRILL_EARLY, LAR_DRILL_PIECE);
        assert_true(cut.content_seen && !cut.finished && !cut.error_seen);
        lar_usage all = read_stream(&v, LAR_DRILL_EARLY, LAR_DRILL_LAST);
        assert_true(all.content_seen && all.done && !all.error_seen);
        lar_tokens tokens;
        (void)lar_usage_tokens(&all, &tokens);
        assert_int_equal(tokens.output, LAR_DRILL_PIECES);
        lar_buf b;
        lar_usage u;
        lar_buf_init(&b, 1 << 16);
        lar_usage_init(&u, LAR_USAGE_BY_SPELLING);
        assert_int_equal(lar_drill_say_whole(&v, &b), LAR_OK);
        lar_usage_body(&u, v.protocol, lar_buf_slice(&b));
        assert_true(u.content_seen && u.done && !u.error_seen && !u.odd);
        lar_usage_reset(&u, LAR_USAGE_BY_SPELLING);
        b.len = 0;
        assert_int_equal(lar_drill_say_error(v.protocol, "c", "m", &b), LAR_OK);
        lar_usage_body(&u, v.protocol, lar_buf_slice(&b));
        assert_true(u.error_seen && !u.odd);
        lar_usage_release(&u);
        lar_buf_release(&b);
    }
}

static void test_names(void **state) {
    (void)state;
    assert_non_null(lar_drill_foreign_model(LAR_PROFILE_OPENAI, "deepseek-chat"));
    assert_non_null(lar_drill_foreign_model(LAR_PROFILE_ANTHROPIC, "gpt-4o"));
    assert_null(lar_drill_foreign_model(LAR_PROFILE_OPENAI, "gpt-4o"));
    assert_null(lar_drill_foreign_model(LAR_PROFILE_OPENAI, "ft-of-mine"));
    assert_null(lar_drill_foreign_model(LAR_PROFILE_GENERIC, "claude-x"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chain), cmocka_unit_test(test_waits),
                                       cmocka_unit_test(test_disguise), cmocka_unit_test(test_script),
                                       cmocka_unit_test(test_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
