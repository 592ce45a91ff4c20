/* The simulated caches on prompts whose hits can be counted by hand: marks, life, separation, bounds. The rules of
 * blocks, steps and units stand in tests/demo/test_demo_cache.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "policies/cachesim.h"

enum { BODY_MAX = 1 << 16 };

typedef struct bench {
    lar_cachesim *sim;
    lar_prompt prompt;
    uint32_t tokens_min;
} bench;

static bench open_with(const char *provider, lar_cachesim_options o) {
    o.provider = lar_provider_find(lar_slice_cstr(provider));
    assert_non_null(o.provider);
    bench b = {.sim = lar_cachesim_new(&o), .tokens_min = o.provider->tokens_min};
    assert_non_null(b.sim);
    lar_prompt_init(&b.prompt);
    return b;
}

static void close_it(bench *b) {
    lar_cachesim_free(b->sim);
    lar_prompt_release(&b->prompt);
}

/* One message of `blocks` text blocks of `each` tokens; bit i of `marks` marks block i; the last one ends in `tail`. */
static lar_cachesim_usage ask(bench *b, int blocks, int each, uint64_t marks, const char *tail) {
    static char body[BODY_MAX];
    size_t n = (size_t)snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":[");
    for (int i = 0; i < blocks; i++) {
        n += (size_t)snprintf(body + n, sizeof body - n, "%s{\"type\":\"text\",%s\"text\":\"", i ? "," : "",
                              marks >> i & 1 ? "\"cache_control\":{\"type\":\"ephemeral\"}," : "");
        for (int t = 0; t < each; t++) body[n++] = '.';
        n += (size_t)snprintf(body + n, sizeof body - n, "%s\"}", i == blocks - 1 ? tail : "");
        assert_true(n < sizeof body - 200);
    }
    n += (size_t)snprintf(body + n, sizeof body - n, "]}]}");
    lar_json j;
    lar_diag d;
    lar_arena a;
    lar_request_view v;
    lar_rendering r;
    lar_cachesim_usage u;
    lar_json_init(&j);
    lar_arena_init(&a, 1u << 22);
    assert_int_equal(lar_json_parse(&j, lar_slice_of(body, n), NULL, &d), LAR_OK);
    assert_int_equal(lar_request_view_read(&v, &j, LAR_PROTOCOL_MESSAGES, &a, &d), LAR_OK);
    assert_int_equal(lar_render_request(&r, &v, LAR_RENDER_TOOLS_FIRST, &a), LAR_OK);
    assert_int_equal(lar_prompt_set(&b->prompt, 0, &r), LAR_OK);
    assert_int_equal(lar_cachesim_request(b->sim, &b->prompt, b->tokens_min, 0, &u), LAR_OK);
    lar_arena_release(&a);
    lar_json_release(&j);
    return u;
}

enum { TAG = 5 }; /* <|user|> */

static void test_marks(void **state) {
    (void)state;
    bench b = open_with("anthropic", (lar_cachesim_options){0});
    lar_cachesim_usage u = ask(&b, 4, 600, 2, "");
    assert_int_equal(u.prompt, TAG + 2400 + 5);
    assert_int_equal(u.hit, 0);
    assert_int_equal(u.write, TAG + 1200);
    u = ask(&b, 4, 600, 2, "x"); /* what changes behind the mark does not matter */
    assert_int_equal(u.hit, TAG + 1200);
    assert_int_equal(u.write, 0);
    u = ask(&b, 4, 600, 4, ""); /* the mark moved on: what lies before it is found looking back */
    assert_int_equal(u.hit, TAG + 1200);
    assert_int_equal(u.write, 600);
    u = ask(&b, 4, 600, 1, ""); /* below the minimum of 1024: neither read nor written */
    assert_int_equal(u.hit + u.write, 0);
    u = ask(&b, 4, 600, 0, "");
    assert_int_equal(u.hit + u.write, 0);
    close_it(&b);
}

static void test_looks_back_20_blocks(void **state) {
    (void)state;
    for (int blocks = 21; blocks <= 22; blocks++) {
        bench b = open_with("anthropic", (lar_cachesim_options){0});
        (void)ask(&b, 2, 600, 2, "");
        lar_cachesim_usage u = ask(&b, blocks, 600, 1ull << (blocks - 1), "");
        assert_int_equal(u.hit, blocks == 21 ? TAG + 1200 : 0);
        close_it(&b);
    }
}

static void test_automatic_mark(void **state) {
    (void)state;
    bench b = open_with("anthropic", (lar_cachesim_options){.automatic_marker = true});
    (void)ask(&b, 3, 600, 0, "");
    assert_int_equal(ask(&b, 4, 600, 0, "").hit, TAG + 1800);
    close_it(&b);
}

static void test_only_the_last_four_marks(void **state) {
    (void)state;
    bench b = open_with("anthropic", (lar_cachesim_options){0});
    (void)ask(&b, 8, 1100, 0x1F, "");
    assert_int_equal(ask(&b, 1, 1100, 1, "").hit, 0); /* the first of five marks stored nothing */
    (void)ask(&b, 8, 1100, 0x1F, "");
    assert_int_equal(ask(&b, 2, 1100, 2, "").hit, TAG + 2200);
    close_it(&b);
}

static lar_cachesim_usage at(bench *b, const char *text, uint64_t seed, int64_t time_ms) {
    lar_cachesim_usage u;
    assert_int_equal(lar_prompt_set_text(&b->prompt, seed, lar_slice_cstr(text)), LAR_OK);
    assert_int_equal(lar_cachesim_request(b->sim, &b->prompt, b->tokens_min, time_ms, &u), LAR_OK);
    return u;
}

#define DOTS_32 "................................"
#define T0 1933485342000

static void test_life(void **state) {
    (void)state;
    bench b = open_with("vllm", (lar_cachesim_options){.ttl_s = 60});
    assert_int_equal(at(&b, DOTS_32 "x", 0, T0).hit, 0);
    assert_int_equal(at(&b, DOTS_32 "x", 0, T0 + 60000).hit, 32); /* used again: lives on */
    assert_int_equal(at(&b, DOTS_32 "x", 0, T0 + 120000).hit, 32);
    assert_int_equal(at(&b, DOTS_32 "x", 0, T0 + 181000).hit, 0);
    assert_int_equal(at(&b, DOTS_32 "x", 0, 0).hit, 32); /* no time: nothing expires */
    close_it(&b);
    b = open_with("vllm", (lar_cachesim_options){.ttl_s = 60, .no_ttl = true});
    (void)at(&b, DOTS_32 "x", 0, T0);
    assert_int_equal(at(&b, DOTS_32 "x", 0, T0 + 86400000).hit, 32);
    close_it(&b);
}

static void test_seeds_are_apart(void **state) {
    (void)state;
    bench b = open_with("vllm", (lar_cachesim_options){0});
    (void)at(&b, DOTS_32 "x", 1, 0);
    assert_int_equal(at(&b, DOTS_32 "x", 2, 0).hit, 0);
    assert_int_equal(at(&b, DOTS_32 "x", 1, 0).hit, 32);
    lar_cachesim_reset(b.sim);
    assert_int_equal(at(&b, DOTS_32 "x", 1, 0).hit, 0);
    close_it(&b);
}

static void test_memory_is_bounded(void **state) {
    (void)state;
    bench b = open_with("vllm", (lar_cachesim_options){.entries_max = 100});
    char text[64];
    (void)at(&b, DOTS_32 "x", 0, 0);
    for (int i = 0; i < 1000; i++) {
        (void)snprintf(text, sizeof text, "%03d" DOTS_32, i);
        (void)at(&b, text, 0, 0);
        if (i % 40 == 0) assert_int_equal(at(&b, DOTS_32 "x", 0, 0).hit, 32); /* what is used stays */
        else if (i % 40 == 1) assert_int_equal(at(&b, text, 0, 0).hit, 32);
    }
    assert_int_equal(at(&b, "000" DOTS_32, 0, 0).hit, 0); /* what is not used goes */
    close_it(&b);
}

static void test_common(void **state) {
    (void)state;
    lar_prompt a, b;
    lar_prompt_init(&a);
    lar_prompt_init(&b);
    assert_int_equal(lar_prompt_set_text(&a, 0, LAR_SLICE("one two three")), LAR_OK);
    assert_int_equal(lar_prompt_set_text(&b, 0, LAR_SLICE("one two four")), LAR_OK);
    assert_int_equal(lar_prompt_common(&a, &b), 4);
    assert_int_equal(lar_prompt_common(&a, &a), 5);
    assert_int_equal(lar_prompt_set_text(&b, 1, LAR_SLICE("one two three")), LAR_OK);
    assert_int_equal(lar_prompt_common(&a, &b), 0);
    lar_prompt_release(&a);
    lar_prompt_release(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_looks_back_20_blocks),
        cmocka_unit_test(test_automatic_mark),
        cmocka_unit_test(test_only_the_last_four_marks),
        cmocka_unit_test(test_life),
        cmocka_unit_test(test_seeds_are_apart),
        cmocka_unit_test(test_memory_is_bounded),
        cmocka_unit_test(test_common),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
