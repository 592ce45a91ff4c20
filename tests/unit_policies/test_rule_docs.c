/* Runs the examples in docs/rules: each page's blocks are requests, in order, with the bodies to be sent.
 *   ```json same [protocol]     goes upstream byte for byte
 *   ```json before [protocol]   followed by ```json after
 *   ```json answer [protocol]   what the model answered to the request before it
 * A word on=LR000 turns on a rule that is off by default, for that request.
 * A heading (###) starts with an empty memory. Argument: the folder. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "canon_harness.h"

static const char *folder;

static lar_protocol protocol_of(const char *line) {
    for (int p = LAR_PROTOCOL_COUNT - 1; p > LAR_PROTOCOL_NONE; p--) {
        if (strstr(line, lar_protocol_name((lar_protocol)p))) return (lar_protocol)p;
    }
    return LAR_PROTOCOL_CHAT;
}

/* Rules that are off: all that are so by default, but the one that the fence turns on. */
static uint64_t rules_off_of(const char *line) {
    uint64_t off = lar_rules_off_default();
    const char *on = strstr(line, "on=");
    if (!on) return off;
    lar_rule r = lar_rule_find(lar_slice_of(on + 3, strcspn(on + 3, " \n")));
    assert_true(r < LAR_RULE_COUNT);
    return off & ~(1ull << r);
}

/* Text up to the closing fence, without its last line end. */
static lar_buf read_block(FILE *f) {
    lar_buf b;
    char *line = NULL;
    size_t cap = 0;
    lar_buf_init(&b, 1 << 20);
    while (getline(&line, &cap, f) > 0 && strncmp(line, "```", 3) != 0)
        assert_int_equal(lar_buf_add(&b, line, strlen(line)), LAR_OK);
    assert_true(b.len > 0);
    b.len--;
    assert_int_equal(lar_buf_add(&b, "", 1), LAR_OK);
    b.len--;
    free(line);
    return b;
}

static int run_page(FILE *f, const char *name) {
    harness h;
    harness_init(&h);
    char *line = NULL, *sent = NULL;
    size_t cap = 0, len;
    int checks = 0;
    while (getline(&line, &cap, f) > 0) {
        if (strncmp(line, "###", 3) == 0) {
            harness_release(&h);
            harness_init(&h);
        }
        if (strncmp(line, "```json ", 8) != 0) continue;
        lar_buf b = read_block(f);
        if (strncmp(line + 8, "after", 5) == 0) {
            print_message("%s: example %d\n", name, ++checks);
            assert_non_null(sent);
            assert_string_equal(sent, b.ptr);
            assert_true(h.out.rules_fired >> lar_rule_find(lar_slice_of(name, 5)) & 1);
        } else if (strncmp(line + 8, "answer", 6) == 0) {
            assert_non_null(sent);
            harness_answer(&h, protocol_of(line), lar_buf_slice(&b));
        } else {
            free(sent);
            h.options.rules_off = rules_off_of(line);
            sent = harness_send(&h, protocol_of(line), lar_buf_slice(&b), &len);
            assert_non_null(sent);
            bool same = strncmp(line + 8, "same", 4) == 0;
            assert_true(same || strncmp(line + 8, "before", 6) == 0);
            if (same) {
                print_message("%s: example %d\n", name, ++checks);
                assert_string_equal(sent, b.ptr);
            }
        }
        lar_buf_release(&b);
    }
    free(line);
    free(sent);
    harness_release(&h);
    return checks;
}

static void test_examples(void **state) {
    (void)state;
    bool done[LAR_RULE_COUNT] = {false};
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (strncmp(e->d_name, "LR", 2) != 0) continue;
        char path[4096];
        assert_true(snprintf(path, sizeof path, "%s/%s", folder, e->d_name) < (int)sizeof path);
        lar_rule r = lar_rule_find(lar_slice_of(e->d_name, 5));
        assert_true(r < LAR_RULE_COUNT);
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        char title[256];
        assert_non_null(fgets(title, sizeof title, f));
        assert_non_null(strstr(title, lar_rule_name(r)));
        bool lint = lar_rule_mode_of(r) == LAR_RULE_MODE_LINT; /* test_lint_docs runs those */
        done[r] = lint || run_page(f, e->d_name) >= 2;
        (void)fclose(f);
    }
    (void)closedir(d);
    for (int r = 0; r < LAR_RULE_COUNT; r++) assert_true(done[r]); /* each rule has a page with examples */
}

int main(int argc, char **argv) {
    folder = argc > 1 ? argv[1] : "docs/rules";
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_examples)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
