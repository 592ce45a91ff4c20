/* The generated pages: every row is there, and the sample is a file that says what the defaults say. */
#include "tests/unit_config/config_fixture.h"

#include <stdio.h>

#include "gateway/config/option_rows.h"

static void has(const lar_buf *page, const char *text) {
    if (!memmem(page->ptr, page->len, text, strlen(text))) fail_msg("'%s' is not on the page", text);
}

static void every_row_is_on_every_page(void **state) {
    (void)state;
    lar_buf help, markdown, sample;
    lar_buf_init(&help, 1 << 20);
    lar_buf_init(&markdown, 1 << 20);
    lar_buf_init(&sample, 1 << 20);
    assert_int_equal(lar_config_help(&help), LAR_OK);
    assert_int_equal(lar_config_markdown(&markdown), LAR_OK);
    assert_int_equal(lar_config_sample(&sample), LAR_OK);
    const lar_option_table *t = lar_option_scalars();
    for (uint32_t i = 0; i < t->count; i++) {
        char flag[100] = "  --", quoted[100];
        size_t n = strlen(flag);
        for (const char *p = t->rows[i].path; *p && n + 2 < sizeof flag; p++)
            flag[n++] = *p == '.' || *p == '_' ? '-' : *p;
        flag[n++] = ' ';
        flag[n] = 0;
        has(&help, flag);
        (void)snprintf(quoted, sizeof quoted, "| `%s` |", t->rows[i].path);
        has(&markdown, quoted);
        has(&sample, t->rows[i].help);
    }
    const lar_option_table *lists[] = {lar_option_upstream(), lar_option_route(), lar_option_key()};
    for (int l = 0; l < 3; l++) {
        for (uint32_t i = 0; i < lists[l]->count; i++) has(&markdown, lists[l]->rows[i].help);
    }
    has(&markdown, "| `anthropic` | `x-api-key` | beside the prompt tokens | off |");
    has(&markdown, "| `deepseek` | `authorization` | inside the prompt tokens | on |");
    has(&markdown, "| `deepseek` | units | system text | 0 tokens | 128 | ");
    static const char *const flags[] = {"--listen ", "--upstream ", "--profile ",
                                        "--canon ",  "--store ",    "--config FILE"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) has(&help, flags[i]);
    lar_buf_release(&help);
    lar_buf_release(&markdown);
    lar_buf_release(&sample);
}

/* Deletes every '#' that has a name or an entry of a list right behind it. */
static void uncomment(lar_buf *text) {
    size_t to = 0;
    bool line_start = true;
    for (size_t i = 0; i < text->len; i++) {
        char c = text->ptr[i], next = i + 1 < text->len ? text->ptr[i + 1] : 0;
        bool option = line_start && c == '#' && ((next >= 'a' && next <= 'z') || next == '-');
        if (!option) text->ptr[to++] = c;
        line_start = c == '\n' || (line_start && c == ' ');
    }
    text->len = to;
}

static void same_as_defaults(const lar_config *c) {
    lar_config_flag flag = {"upstream", "https://api.deepseek.com"};
    lar_config *plain = NULL;
    assert_int_equal(lar_config_load(NULL, &flag, 1, &plain, NULL), LAR_OK);
    const lar_option_table *t = lar_option_scalars();
    for (uint32_t i = 0; i < t->count; i++) {
        if (!lar_option_equal(&t->rows[i], c, plain)) fail_msg("%s differs", t->rows[i].path);
    }
    assert_int_equal(c->upstream_count, 1);
    assert_string_equal(c->upstreams[0].url.host, plain->upstreams[0].url.host);
    assert_int_equal(c->upstreams[0].profile, LAR_PROFILE_DEEPSEEK);
    assert_int_equal(c->upstreams[0].connect_timeout_ms, plain->upstreams[0].connect_timeout_ms);
    assert_int_equal(c->upstreams[0].dns_ttl_ms, plain->upstreams[0].dns_ttl_ms);
    lar_config_free(plain);
}

static void the_sample_is_valid(void **state) {
    (void)state;
    lar_buf sample;
    lar_buf_init(&sample, 1 << 20);
    assert_int_equal(lar_config_sample(&sample), LAR_OK);
    fixture_write("sample.yaml", sample.ptr, sample.len);
    lar_config *c = NULL;
    lar_diag d = {0};
    if (lar_config_load("sample.yaml", NULL, 0, &c, &d)) fail_msg("%s", d.text);
    same_as_defaults(c);
    assert_int_equal(c->route_count, 0);
    lar_config_free(c);
    uncomment(&sample);
    fixture_write("full.yaml", sample.ptr, sample.len);
    if (lar_config_load("full.yaml", NULL, 0, &c, &d)) fail_msg("%s", d.text);
    same_as_defaults(c);
    assert_int_equal(c->route_count, 2);
    assert_int_equal(c->routes[0].canon, -1);
    assert_int_equal(c->routes[1].canon, LAR_CANON_REPORT);
    assert_int_equal(c->key_count, 1);
    assert_int_equal(c->alias_count, 1);
    lar_config_free(c);
    lar_buf_release(&sample);
}

static void a_full_buffer_is_an_error(void **state) {
    (void)state;
    lar_error (*pages[])(lar_buf *) = {lar_config_help, lar_config_markdown, lar_config_sample};
    for (int p = 0; p < 3; p++) {
        for (size_t max = 0; max < 3000; max += 500) {
            lar_buf out;
            lar_buf_init(&out, max);
            assert_int_equal(pages[p](&out), LAR_LIMIT);
            lar_buf_release(&out);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_on_every_page),
        cmocka_unit_test(the_sample_is_valid),
        cmocka_unit_test(a_full_buffer_is_an_error),
    };
    return cmocka_run_group_tests(tests, fixture_enter, fixture_leave);
}
