/* What is known of upstreams by their names and places: of which, and how long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "gateway/request/standing.h"

static lar_standings s;

static lar_upstream_config upstream(const char *name) {
    return (lar_upstream_config){.name = name, .breaker = {.window_ms = 1000, .open_ms = 10, .open_ms_max = 10}};
}

static bool is_known(const char *name) {
    lar_upstream_config u = upstream(name);
    lar_standing *t = lar_standings_find(&s, &u);
    lar_standings_put(&s, t);
    return t != NULL;
}

/* A reload takes the new standings before it puts the old ones. */
static void it_is_kept_while_somebody_uses_it(void **state) {
    lar_upstream_config a = upstream("a");
    (void)state;
    lar_standings_init(&s);
    lar_standing *first = lar_standings_get(&s, &a), *second = lar_standings_get(&s, &a);
    assert_non_null(first);
    assert_ptr_equal(first, second);
    lar_standings_put(&s, first);
    assert_true(is_known("a"));
    lar_standings_put(&s, lar_standings_get(&s, &a));
    assert_ptr_equal(lar_standings_find(&s, &a), second);
    lar_standings_put(&s, second);
    assert_true(is_known("a"));
    lar_standings_put(&s, second);
    assert_false(is_known("a"));
    lar_standings_put(&s, NULL);
    lar_standings_release(&s);
}

static void names_that_change_leave_nothing(void **state) {
    (void)state;
    lar_standings_init(&s);
    lar_upstream_config stays = upstream("stays");
    lar_standing *one = lar_standings_get(&s, &stays), *last = NULL;
    for (int i = 0; i < 100; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "up%d", i);
        lar_upstream_config u = upstream(name);
        lar_standing *next = lar_standings_get(&s, &u);
        lar_standings_put(&s, last);
        last = next;
    }
    assert_ptr_equal(s.first, last);
    assert_ptr_equal(s.first->next, one);
    assert_null(one->next);
    lar_standings_put(&s, one);
    lar_standings_put(&s, last);
    lar_standings_release(&s);
}

/* As replicas are when one before them is taken out: "b/2" is somebody else then. */
static void a_name_at_another_place_is_another_one(void **state) {
    (void)state;
    lar_standings_init(&s);
    lar_upstream_config here = upstream("b/2"), there = here, moved = upstream("b/3");
    here.url = (lar_url){.authority = "one:1", .path = "/v1"};
    there.url = moved.url = (lar_url){.authority = "two:1", .path = "/v1"};
    lar_standing *at_here = lar_standings_get(&s, &here), *at_there = lar_standings_get(&s, &there);
    lar_standing *as_moved = lar_standings_get(&s, &moved);
    assert_ptr_not_equal(at_here, at_there);
    assert_ptr_not_equal(at_there, as_moved);
    assert_int_not_equal(at_here->id, at_there->id);
    assert_int_equal(at_there->id, as_moved->id); /* whose conversations are its own, by whatever name */
    assert_int_not_equal(at_here->id & 0xffff, 0);
    const lar_upstream_config tls = {.name = "b/2", .url = {.tls = true, .authority = "one:1", .path = "/v1"}};
    assert_null(lar_standings_find(&s, &tls));
    lar_standings_put(&s, at_here);
    lar_standings_put(&s, at_there);
    lar_standings_put(&s, as_moved);
    lar_standings_release(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_kept_while_somebody_uses_it),
        cmocka_unit_test(names_that_change_leave_nothing),
        cmocka_unit_test(a_name_at_another_place_is_another_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
