/* The rows of providers: whole, findable, and right where a number decides what is told to people. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "policies/provider.h"

static const lar_provider *find(const char *name) { return lar_provider_find(lar_slice_cstr(name)); }

static void test_rows_are_whole(void **state) {
    (void)state;
    uint32_t n;
    const lar_provider *rows = lar_provider_rows(&n);
    assert_true(n >= 17);
    for (uint32_t i = 0; i < n; i++) {
        const lar_provider *p = &rows[i];
        assert_ptr_equal(find(p->name), p); /* names are unique */
        assert_true(*p->source && *p->date && *p->note);
        assert_true(p->step_tokens > 0);
        assert_true(p->ttl_max_s == 0 || p->ttl_max_s >= p->ttl_s);
        assert_true((p->rule == LAR_CACHE_BREAKPOINTS) == (p->breakpoints_max > 0));
        assert_true((p->breakpoints_max > 0) == (p->lookback_blocks > 0));
        assert_true(p->hit_ratio <= 1 && *lar_cache_rule_name(p->rule));
    }
}

static void test_find(void **state) {
    (void)state;
    assert_string_equal(find("DeepSeek")->name, "deepseek");
    assert_int_equal(find("deepseek")->order, LAR_RENDER_SYSTEM_FIRST);
    assert_int_equal(find("openai")->order, LAR_RENDER_TOOLS_FIRST);
    assert_int_equal(find("openai")->tokens_min, 1024);
    assert_int_equal(find("vllm")->step_tokens, 16);
    assert_int_equal(find("anthropic")->lookback_blocks, 20);
    assert_null(find("nobody"));
    assert_null(find(""));
    assert_null(lar_provider_find((lar_slice){0}));
}

static void test_minimum_by_model(void **state) {
    (void)state;
    static const struct {
        const char *provider, *model;
        uint32_t tokens;
    } rows[] = {
        {"anthropic", "claude-opus-5", 512},
        {"anthropic", "claude-opus-4-7", 2048},
        {"anthropic", "claude-opus-4-20250514", 1024}, /* not the longer name */
        {"anthropic", "claude-haiku-4-5-20251001", 4096},
        {"anthropic", "claude-3-5-haiku-latest", 2048},
        {"anthropic", "something-new", 1024},
        {"anthropic", "", 1024},
        {"bedrock", "us.anthropic.claude-opus-4-5-20251101-v1:0", 4096},
        {"anthropic", "anthropic/claude-opus-4.7", 2048},
        {"gemini", "models/gemini-2.5-pro", 4096},
        {"openai", "claude-opus-4-7", 1024}, /* another provider's rule */
        {"deepseek", "deepseek-chat", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(lar_provider_tokens_min(find(rows[i].provider), lar_slice_cstr(rows[i].model)),
                         rows[i].tokens);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_whole),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_minimum_by_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
