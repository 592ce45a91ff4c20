/* Runs what the pages in docs/rules say that the linter finds:
 *   ```json find [protocol]     one request
 *   ```jsonl find [protocol]    one request a line
 * followed by ```text found, whose lines are "RULE POINTER state", in order, all of them. Argument: the folder. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lint_harness.h"

static const char *folder;

static lar_protocol protocol_of(const char *line) {
    for (int p = LAR_PROTOCOL_COUNT - 1; p > LAR_PROTOCOL_NONE; p--) {
        if (strstr(line, lar_protocol_name((lar_protocol)p))) return (lar_protocol)p;
    }
    return LAR_PROTOCOL_CHAT;
}

static void read_block(FILE *f, lar_buf *b) {
    char *line = NULL;
    size_t cap = 0;
    b->len = 0;
    while (getline(&line, &cap, f) > 0 && strncmp(line, "```", 3) != 0)
        assert_int_equal(lar_buf_add(b, line, strlen(line)), LAR_OK);
    assert_int_equal(lar_buf_add(b, "", 1), LAR_OK);
    b->len--;
    free(line);
}

static void add_lines(lint_harness *h, lar_protocol p, const char *text) {
    for (size_t n; *text; text += n) {
        n = strcspn(text, "\n");
        assert_int_equal(lint_harness_add(h, p, lar_slice_of(text, n), NULL), LAR_OK);
        n += text[n] == '\n';
    }
}

/* How many blocks it has; *own: findings of its own rule. */
static int run_page(FILE *f, const char *name, int *own) {
    lint_harness h;
    bool open = false;
    char *line = NULL;
    size_t cap = 0;
    int blocks = 0;
    lar_buf b;
    lar_buf_init(&b, 1 << 20);
    *own = 0;
    while (getline(&line, &cap, f) > 0) {
        bool json = strncmp(line, "```json find", 12) == 0, lines = strncmp(line, "```jsonl find", 13) == 0;
        if (json || lines) {
            assert_false(open); /* the block before has its findings */
            open = true;
            read_block(f, &b);
            lint_harness_init(&h);
            if (lines) add_lines(&h, protocol_of(line + 13), b.ptr);
            else assert_int_equal(lint_harness_add(&h, protocol_of(line + 12), lar_buf_slice(&b), NULL), LAR_OK);
        } else if (strncmp(line, "```text found", 13) == 0) {
            assert_true(open);
            open = false;
            read_block(f, &b);
            char *found = lint_harness_lines(&h);
            print_message("%s: block %d\n", name, ++blocks);
            assert_string_equal(found, b.ptr);
            for (uint32_t i = 0; i < h.count; i++) *own += strncmp(lar_rule_id(h.findings[i].rule), name, 5) == 0;
            free(found);
            lint_harness_release(&h);
        }
    }
    assert_false(open);
    free(line);
    lar_buf_release(&b);
    return blocks;
}

static void test_pages(void **state) {
    (void)state;
    int blocks = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (strncmp(e->d_name, "LR", 2) != 0) continue;
        char path[4096];
        assert_true(snprintf(path, sizeof path, "%s/%s", folder, e->d_name) < (int)sizeof path);
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        int own, n = run_page(f, e->d_name, &own);
        (void)fclose(f);
        lar_rule r = lar_rule_find(lar_slice_of(e->d_name, 5));
        if (n || lar_rule_mode_of(r) == LAR_RULE_MODE_LINT) assert_true(own > 0); /* each page shows its rule at work */
        blocks += n;
    }
    (void)closedir(d);
    assert_true(blocks >= 10);
}

int main(int argc, char **argv) {
    folder = argc > 1 ? argv[1] : "docs/rules";
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
