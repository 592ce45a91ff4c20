/* The demo upstream's cache rules on prompts whose hits can be counted by hand.
 * Why: every comparison of hit tokens rests on these rules. Calls demo_cache only; one thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "demo_cache.h"
#include "demo_json.h"

/* Appends n tokens: single CJK characters, which are one token each. */
static void add(lar_buf *b, uint32_t n, char last_byte) {
    char c[3] = {(char)0xE4, (char)0xB8, last_byte};
    for (uint32_t i = 0; i < n; i++) demo_put(b, lar_slice_of(c, 3));
}

typedef struct fixture {
    demo_cache *cache;
    lar_buf prompt;
} fixture;

static fixture open_with(demo_rule rule) {
    fixture f = {.cache = demo_cache_new(rule)};
    lar_buf_init(&f.prompt, 1u << 24);
    return f;
}

static void close_it(fixture *f) {
    demo_cache_free(f->cache);
    lar_buf_release(&f->prompt);
}

/* Sends `head` tokens of one kind and `tail` of another; returns the usage. */
static demo_usage ask(fixture *f, uint32_t head, uint32_t tail, char tail_byte) {
    lar_buf_reset(&f->prompt, 1u << 20);
    add(&f->prompt, head, (char)0x80);
    add(&f->prompt, tail, tail_byte);
    return demo_cache_request(f->cache, lar_buf_slice(&f->prompt), LAR_SLICE("ok"));
}

static void test_tokens(void **state) {
    (void)state;
    fixture f = open_with(DEMO_RULE_VLLM16);
    /* larde r | space run | 123 45 | comma | CJK | emoji */
    demo_usage u = demo_cache_request(
        f.cache, LAR_SLICE("larder \n\t12345,\xE4\xB8\x80\xF0\x9F\x98\x80"), LAR_SLICE("a b"));
    assert_int_equal(u.prompt, 8);
    assert_int_equal(u.output, 3);
    assert_int_equal(u.hit, 0);
    close_it(&f);
}

static void test_vllm_serves_whole_blocks(void **state) {
    (void)state;
    fixture f = open_with(DEMO_RULE_VLLM16);
    assert_int_equal(ask(&f, 40, 0, 0).hit, 0);
    assert_int_equal(ask(&f, 40, 0, 0).hit, 32);
    assert_int_equal(ask(&f, 32, 0, 0).hit, 16); /* the last block is computed anew */
    assert_int_equal(ask(&f, 20, 20, (char)0x90).hit, 16);
    demo_cache_reset(f.cache);
    assert_int_equal(ask(&f, 40, 0, 0).hit, 0);
    close_it(&f);
}

static void test_openai_needs_1024_and_steps_by_128(void **state) {
    (void)state;
    fixture f = open_with(DEMO_RULE_OPENAI);
    assert_int_equal(ask(&f, 1023, 0, 0).hit, 0);
    assert_int_equal(ask(&f, 1023, 0, 0).hit, 0);
    assert_int_equal(ask(&f, 1300, 0, 0).hit, 0);
    assert_int_equal(ask(&f, 1300, 0, 0).hit, 1280);
    assert_int_equal(ask(&f, 1200, 300, (char)0x90).hit, 1152);
    close_it(&f);
}

static void test_deepseek_serves_stored_units_only(void **state) {
    (void)state;
    fixture f = open_with(DEMO_RULE_DEEPSEEK);
    assert_int_equal(ask(&f, 512, 256, (char)0x90).hit, 0);
    /* the common prefix is only stored once it was found, so the second of two does not profit */
    assert_int_equal(ask(&f, 512, 256, (char)0x91).hit, 0);
    assert_int_equal(ask(&f, 512, 256, (char)0x92).hit, 512);
    /* a prompt that goes on behind an earlier one */
    assert_int_equal(ask(&f, 512, 512, (char)0x90).hit, 768);
    close_it(&f);
}

static void test_deepseek_stores_every_2048_and_rounds_down(void **state) {
    (void)state;
    fixture f = open_with(DEMO_RULE_DEEPSEEK);
    ask(&f, 3000, 0, 0);
    assert_int_equal(ask(&f, 2500, 100, (char)0x90).hit, 2048);
    assert_int_equal(ask(&f, 3000, 100, (char)0x91).hit, 2944); /* 3000 in steps of 128 */
    close_it(&f);
}

static void test_no_rule_serves_nothing(void **state) {
    (void)state;
    fixture f = open_with(DEMO_RULE_NONE);
    ask(&f, 3000, 0, 0);
    assert_int_equal(ask(&f, 3000, 0, 0).hit, 0);
    close_it(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_vllm_serves_whole_blocks),
        cmocka_unit_test(test_openai_needs_1024_and_steps_by_128),
        cmocka_unit_test(test_deepseek_serves_stored_units_only),
        cmocka_unit_test(test_deepseek_stores_every_2048_and_rounds_down),
        cmocka_unit_test(test_no_rule_serves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
