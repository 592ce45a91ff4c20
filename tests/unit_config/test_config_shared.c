/* The options of the shared memory: its URL, its secrets, and what does not go together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config_fixture.h"

#define UP "upstreams:\n  - url: http://127.0.0.1:9\n"

static void good_urls(void **state) {
    (void)state;
    static const struct {
        const char *text, *host, *user, *socket, *shown;
        uint16_t port;
        uint32_t db;
        bool tls, ip;
    } rows[] = {
        {"redis://localhost", "localhost", "", "", "localhost:6379", 6379, 0, false, false},
        {"redis://Cache.Internal:7000/", "cache.internal", "", "", "cache.internal:7000", 7000, 0, false, false},
        {"REDIS://10.0.0.1/15", "10.0.0.1", "", "", "10.0.0.1:6379", 6379, 15, false, true},
        {"redis://[::1]:1/2", "::1", "", "", "[::1]:1", 1, 2, false, true},
        {"rediss://larder@cache:6380/0", "cache", "larder", "", "cache:6380", 6380, 0, true, false},
        {"unix:///run/redis.sock", "", "", "/run/redis.sock", "/run/redis.sock", 6379, 0, false, false},
        {"unix:///a b?db=3", "", "", "/a b", "/a b", 6379, 3, false, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lar_arena a;
        lar_shared_url u;
        lar_diag d = {0};
        lar_arena_init(&a, 1 << 16);
        if (lar_shared_url_parse(lar_slice_cstr(rows[i].text), &a, &u, &d)) fail_msg("%s: %s", rows[i].text, d.text);
        assert_string_equal(u.host, rows[i].host);
        assert_string_equal(u.user, rows[i].user);
        assert_string_equal(u.socket, rows[i].socket);
        assert_string_equal(u.text, rows[i].shown);
        assert_int_equal(u.port, rows[i].port);
        assert_int_equal(u.db, rows[i].db);
        assert_int_equal(u.tls, rows[i].tls);
        assert_int_equal(u.host_is_ip, rows[i].ip);
        lar_arena_release(&a);
    }
}

/* What is wrong is said, with the place, and never what was written: it may hold a password. */
static void refused(void **state) {
    (void)state;
    (void)setenv("T_SHORT", "s3cret-short", 1);
    (void)setenv("T_LONG", "s3cret-long-enough", 1);
    static const struct {
        const char *shared, *why;
    } rows[] = {
        {"url: http://s3cret", "t.yaml:3:15: shared.url: must begin with redis://"},
        {"url: s3cret", "must begin with redis://"},
        {"url: redis://", "the host is missing"},
        {"url: redis:///0", "the host is missing"},
        {"url: redis://:s3cret@host", "must not hold a password"},
        {"url: redis://user:s3cret@host", "must not hold a password"},
        {"url: redis://user@s3cret@host", "must not hold a password"},
        {"url: redis://@host", "the user in front of @"},
        {"url: redis://user@host", "names a user; give the password"},
        {"url: redis://host:0", "the port must be"},
        {"url: redis://host:6379/x", "the database must be a number"},
        {"url: redis://host:6379/70000", "the database must be a number"},
        {"url: redis://host:6379/0/1", "the database must be a number"},
        {"url: redis://host?db=1", "not allowed"},
        {"url: \"unix://s3cret\"", "needs the whole path"},
        {"url: \"unix:///\"", "needs the whole path"},
        {"url: \"unix:///a?x=1\"", "only ?db=N"},
        {"url: redis://h, password_env: T_ABSENT", "shared.password_env: the environment variable T_ABSENT is not set"},
        {"url: redis://h, password_file: s3cret.absent", "shared.password_file: the file named here cannot be opened"},
        {"url: redis://h, password_env: T_LONG, password_file: x", "only one of them"},
        {"url: redis://h, secret_env: T_SHORT", "shared.secret_env: the secret has fewer than 16"},
        {"url: redis://h, ca_file: t.yaml", "shared.ca_file: is only for"},
        {"url: rediss://h, ca_file: absent.pem", "shared.ca_file: the file named here cannot be opened"},
        {"url: redis://h, password: s3cret", "use password_env or password_file"},
        {"url: redis://h, secret: s3cret", "secret_env or secret_file"},
        {"url: redis://h, prefix: \"a b\"", "shared.prefix: must be printable"},
        {"url: redis://h, ttl: 59s", "shared.ttl: is out of range"},
        {"url: redis://h, wait: 2s", "shared.wait: is out of range"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char yaml[300];
        (void)snprintf(yaml, sizeof yaml, UP "shared: {%s}\n", rows[i].shared);
        fixture_bad(yaml, NULL, 0, rows[i].why);
        lar_config *c = NULL;
        lar_diag d = {0};
        assert_int_equal(fixture_load(yaml, NULL, 0, &c, &d), LAR_CONFIG);
        if (strcasestr(d.text, "s3cret")) fail_msg("a secret in '%s'", d.text);
    }
}

/* The variables that hold them may be called LARDER_something, wherever they are named. */
static void secrets_are_read(void **state) {
    (void)state;
    (void)setenv("LARDER_REDIS_PASSWORD", "the password", 1);
    (void)setenv("LARDER_REDIS_SECRET", "a-secret-of-twenty-b", 1);
    fixture_bad(UP "shared: {url: 'redis://h', password_env: LARDER_REDIS_PASSWORD}\n", NULL, 0, "no such option");
    (void)unsetenv("LARDER_REDIS_SECRET");
    fixture_bad(UP "shared: {url: 'redis://h', password_env: LARDER_REDIS_PASSWORD}\n", NULL, 0, "no key has");
    (void)setenv("LARDER_REDIS_PASSWORD", "password", 1);
    lar_config *c = fixture_good(UP "shared: {url: 'redis://h', password_env: LARDER_REDIS_PASSWORD}\n");
    assert_string_equal(c->shared_password, "password");
    assert_string_equal(c->shared_secret, "");
    lar_config_free(c);
    (void)setenv("LARDER_REDIS_SECRET", "a-secret-of-twenty-b", 1);
    (void)setenv("LARDER_SHARED_PASSWORD_ENV", "LARDER_REDIS_PASSWORD", 1);
    const lar_config_flag flags[] = {{"shared-url", "redis://h"}, {"shared-secret-env", "LARDER_REDIS_SECRET"}};
    lar_diag d = {0};
    if (fixture_load(UP, flags, 2, &c, &d)) fail_msg("%s", d.text);
    assert_string_equal(c->shared_password, "password");
    assert_string_equal(c->shared_secret, "a-secret-of-twenty-b");
    lar_config_free(c);
    (void)unsetenv("LARDER_REDIS_PASSWORD");
    (void)unsetenv("LARDER_REDIS_SECRET");
    (void)unsetenv("LARDER_SHARED_PASSWORD_ENV");
}

static void off_by_default(void **state) {
    (void)state;
    lar_config *c = fixture_good(UP "shared: {secret_env: T_NOWHERE}\n"); /* nothing is read for what is not used */
    assert_string_equal(c->shared_url, "");
    assert_string_equal(c->shared.text, "");
    assert_string_equal(c->shared_prefix, "larder:");
    lar_config_free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_urls),
        cmocka_unit_test(refused),
        cmocka_unit_test(secrets_are_read),
        cmocka_unit_test(off_by_default),
    };
    return cmocka_run_group_tests(tests, fixture_enter, fixture_leave);
}
