/* The linter's engine: what one request makes a suspicion of, what more of them confirm or clear, where it says it is,
 * and that it agrees with what larder itself would edit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "canon_harness.h"
#include "lint_harness.h"

#define SYSTEM(text) "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"" text "\"},"
#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define ASSISTANT(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define END "]}"

/* The findings of these requests, one a line. */
static char *lint(const char *const *bodies, int n) {
    lint_harness h;
    lint_harness_init(&h);
    for (int i = 0; i < n; i++)
        assert_int_equal(lint_harness_add(&h, LAR_PROTOCOL_CHAT, lar_slice_cstr(bodies[i]), NULL), LAR_OK);
    char *lines = lint_harness_lines(&h);
    lint_harness_release(&h);
    return lines;
}

static void expect(const char *const *bodies, int n, const char *lines) {
    char *found = lint(bodies, n);
    assert_string_equal(found, lines);
    free(found);
}

static const char clock_a[] = SYSTEM("Be careful.\\nCurrent time: 2031-04-09T15:15:42Z\\n") USER("Hello") END;
static const char clock_b[] = SYSTEM("Be careful.\\nCurrent time: 2031-04-09T15:16:40Z\\n") USER("Hello") END;
static const char clock_c[] = SYSTEM("Be careful.\\nCurrent time: 2031-04-09T15:17:02Z\\n") USER("Other words") END;

static void test_states(void **state) {
    (void)state;
    const char *one[] = {clock_a}, *same[] = {clock_a, clock_a}, *two[] = {clock_a, clock_b},
               *other[] = {clock_a, clock_c};
    expect(one, 1, "LR001 /messages/0/content suspect\n");
    expect(same, 2, "");
    expect(two, 2, "LR001 /messages/0/content confirmed\n");
    expect(other, 2, "LR001 /messages/0/content confirmed\n"); /* another conversation, the same template */
}

/* A value that stood still and then changed is confirmed, however long it stood. */
static void test_late_change(void **state) {
    (void)state;
    const char *late[] = {clock_a, clock_a, clock_a, clock_b};
    expect(late, 4, "LR001 /messages/0/content confirmed\n");
}

/* A label that varies in one prompt is no mere suspicion in another. */
static void test_label(void **state) {
    (void)state;
    const char *bodies[] = {clock_a, clock_b,
                            SYSTEM("Quite another prompt.\\nCurrent time: 2031-04-09T18:00:00Z\\n") USER("Go") END};
    expect(bodies, 3, "LR001 /messages/0/content confirmed\n");
}

static void test_values_and_places(void **state) {
    (void)state;
    lint_harness h;
    lint_harness_init(&h);
    static const char pretty[] =
        "{\n  \"messages\": [\n    {\"role\": \"system\", \"content\": \"Zeit ä\\n"
        "Current time: 2031-04-09T15:1%d:42Z\"},\n    {\"role\": \"user\", \"content\": \"x\"}]}";
    char a[256], b[256];
    (void)snprintf(a, sizeof a, pretty, 5);
    (void)snprintf(b, sizeof b, pretty, 6);
    assert_int_equal(lint_harness_add(&h, LAR_PROTOCOL_CHAT, lar_slice_cstr(a), NULL), LAR_OK);
    h.line = 11;
    assert_int_equal(lint_harness_add(&h, LAR_PROTOCOL_CHAT, lar_slice_cstr(b), NULL), LAR_OK);
    free(lint_harness_lines(&h));
    assert_int_equal(h.count, 1);
    const lar_lint_finding *f = &h.findings[0];
    assert_int_equal(f->place.line, 13);
    assert_int_equal(f->place.column, 58); /* characters, not bytes */
    assert_int_equal(f->place.end_column, 78);
    assert_int_equal(f->before.line, 3);
    assert_int_equal(f->before.column, 58);
    assert_true(lar_slice_eq_cstr(f->place.value, "2031-04-09T15:16:42Z"));
    assert_true(lar_slice_eq_cstr(f->before.value, "2031-04-09T15:15:42Z"));
    assert_int_equal(f->requests, 2);
    assert_int_equal(f->severity, LAR_SEVERITY_WARNING);
    assert_true(f->tokens_known && f->tokens > 0);
    lint_harness_release(&h);
}

/* What stands behind a change costs; what stands in front of it does not, once it is long enough to be cached. */
static void test_tokens(void **state) {
    (void)state;
    char head[5001], body[12000];
    memset(head, 0, sizeof head);
    for (int i = 0; i < 1000; i++) memcpy(head + 5 * i, "word ", 5);
    uint64_t tokens[2];
    for (int front = 0; front < 2; front++) {
        lint_harness h;
        lint_harness_init(&h);
        for (int i = 0; i < 2; i++) {
            (void)snprintf(body, sizeof body, SYSTEM("%s\\nCurrent time: 2031-04-09T15:1%d:42Z\\n%s") USER("x") END,
                           front ? "" : head, i, front ? head : "");
            assert_int_equal(lint_harness_add(&h, LAR_PROTOCOL_CHAT, lar_slice_cstr(body), NULL), LAR_OK);
        }
        free(lint_harness_lines(&h));
        assert_int_equal(h.count, 1);
        assert_true(h.findings[0].tokens_known);
        tokens[front] = h.findings[0].tokens;
        lint_harness_release(&h);
    }
    assert_true(tokens[0] < 400);
    assert_true(tokens[1] > 2000);
}

static void test_tools(void **state) {
    (void)state;
#define TOOL(name, rest) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"," rest "}}"
#define TOOLS(list) "{\"model\":\"m\",\"tools\":[" list "],\"messages\":[" USER("Hello") "]}"
    static const char a[] = TOOL("a", "\"description\":\"x\",\"parameters\":{}"),
                      b[] = TOOL("b", "\"description\":\"y\",\"parameters\":{}");
    (void)a, (void)b;
    const char *order[] = {
        TOOLS(TOOL("a", "\"description\":\"x\",\"parameters\":{}") "," TOOL("b", "\"parameters\":{}")),
        TOOLS(TOOL("b", "\"parameters\":{}") "," TOOL("a", "\"description\":\"x\",\"parameters\":{}"))};
    expect(order, 2, "LR003 /tools confirmed\n");
    const char *change[] = {TOOLS(TOOL("a", "\"description\":\"x\"")), TOOLS(TOOL("a", "\"description\":\"y\""))};
    expect(change, 2, "LR107 /tools/0 confirmed\n");
    const char *clock[] = {TOOLS(TOOL("a", "\"description\":\"Current time: 2031-04-09T15:15:42Z\"")),
                           TOOLS(TOOL("a", "\"description\":\"Current time: 2031-04-09T15:16:42Z\""))};
    expect(clock, 2, "LR001 /tools/0/function/description confirmed\n");
    const char *marked[] = {
        "{\"model\":\"m\",\"tools\":[{\"name\":\"a\",\"cache_control\":{\"type\":\"ephemeral\"}}],\"messages\":[" USER(
            "x") "]}",
        "{\"model\":\"m\",\"tools\":[{\"name\":\"a\"}],\"messages\":[" USER("x") "]}"};
    expect(marked, 2, "");
}

static void test_form(void **state) {
    (void)state;
    const char *bom[] = {SYSTEM("\\ufeffBe careful.\\r\\nBe brief.") USER("Hello") END};
    expect(bom, 1, "LR004 /messages/0/content suspect\n");
    const char *two[] = {SYSTEM("Be careful.\\nBe brief.\\n") USER("Hello") END,
                         SYSTEM("Be careful.\\nBe brief.\\n\\n") USER("Hello") END};
    expect(two, 2, "LR004 /messages/0/content confirmed\n");
    const char *trimmed[] = {SYSTEM("Be careful.") USER("A") "," ASSISTANT("B") "," USER("C ") END,
                             SYSTEM("Be careful.")
                                 USER("A") "," ASSISTANT("B") "," USER("C") "," ASSISTANT("D") "," USER("E") END};
    expect(trimmed, 2, "LR004 /messages/3/content confirmed\n");
}

static void test_billing(void **state) {
    (void)state;
    const char *bodies[] = {SYSTEM("x-acme-billing-header: cch=0f3c9;\\nBe careful.") USER("Hello") END,
                            SYSTEM("x-acme-billing-header: cch=aa3c9;\\nBe careful.") USER("Hello") END};
    expect(bodies, 1, "LR002 /messages/0/content confirmed\n");
    expect(bodies, 2, "LR002 /messages/0/content confirmed\n");
}

/* Conversations that begin alike and go on otherwise are two conversations. */
static void test_branches(void **state) {
    (void)state;
    const char *bodies[] = {SYSTEM("Be careful.") USER("Hello") "," ASSISTANT("Good day") "," USER("A") END,
                            SYSTEM("Be careful.") USER("Hello") "," ASSISTANT("Hi") "," USER("A") END,
                            SYSTEM("Be careful.")
                                USER("Hello") "," ASSISTANT("Good day") "," USER("A") "," ASSISTANT("1") "," USER("B")
                                    END,
                            SYSTEM("Be careful.")
                                USER("Hello") "," ASSISTANT("Hi") "," USER("A") "," ASSISTANT("2") "," USER("B") END,
                            SYSTEM("Be careful.") USER("Hello") "," ASSISTANT("Hi") "," USER("Another question") END};
    expect(bodies, 5, "");
}

/* -- agreement with larder itself ------------------------------------------------------------------------- */

static unsigned next(unsigned *seed) { return *seed = *seed * 1103515245u + 12345u, *seed >> 16; }

static void random_body(unsigned *seed, char *out, size_t size) {
    static const char *const labels[] = {"Current time: ", "Now: ", "Today is ", "The time is ", ""};
    unsigned s = next(seed) % 3, minute = next(seed) % 4;
    const char *tools =
        next(seed) % 2 ? "{\"name\":\"a\",\"x\":1},{\"name\":\"b\"}" : "{\"name\":\"b\"},{\"x\":1,\"name\":\"a\"}";
    (void)snprintf(out, size,
                   "{\"model\":\"m\",\"tools\":[%s],\"messages\":[{\"role\":\"system\",\"content\":"
                   "\"%sPrompt %u.%s%s2031-04-09T15:1%u:42Z\\nSeed%s\"},{\"role\":\"user\",\"content\":\"Q%u\"}]}",
                   tools, next(seed) % 9 ? "" : "x-a-billing-header: cch=12;\\n", s, next(seed) % 2 ? "\\n" : "\\r\\n",
                   labels[s], minute, next(seed) % 2 ? "" : "\\n", next(seed) % 3);
}

/* The rules with which larder itself edits these requests are confirmed; findings are in order. */
static void test_what_is_edited_is_confirmed(void **state) {
    (void)state;
    unsigned seed = 7;
    uint64_t ever = 0;
    for (int round = 0; round < 200; round++) {
        lint_harness h;
        harness c;
        lint_harness_init(&h);
        harness_init(&c);
        c.now_ms = 0;
        c.options.rules_off = lar_rules_off_default();
        uint64_t fired = 0, confirmed = 0;
        for (int i = 0; i < 12; i++) {
            char body[1024];
            size_t len;
            random_body(&seed, body, sizeof body);
            assert_int_equal(lint_harness_add(&h, LAR_PROTOCOL_CHAT, lar_slice_cstr(body), NULL), LAR_OK);
            free(harness_send(&c, LAR_PROTOCOL_CHAT, lar_slice_cstr(body), &len));
            fired |= c.out.rules_fired;
        }
        free(lint_harness_lines(&h));
        for (uint32_t i = 0; i < h.count; i++) {
            if (h.findings[i].state == LAR_LINT_CONFIRMED) confirmed |= 1ull << h.findings[i].rule;
        }
        assert_int_equal(fired & ~confirmed, 0);
        for (uint32_t i = 1; i < h.count; i++) {
            const lar_lint_place *a = &h.findings[i - 1].place, *b = &h.findings[i].place;
            assert_true(a->line < b->line || (a->line == b->line && a->column <= b->column));
        }
        ever |= fired;
        lint_harness_release(&h);
        harness_release(&c);
    }
    assert_true(ever >> LAR_RULE_LR001 & ever >> LAR_RULE_LR002 & ever >> LAR_RULE_LR003 & ever >> LAR_RULE_LR004 & 1);
}

/* More conversations than are kept: nothing breaks, and what is known of templates stays. */
static void test_many(void **state) {
    (void)state;
    lint_harness h;
    lint_harness_init(&h);
    for (int i = 0; i < LAR_LINT_KEPT_MAX + 50; i++) {
        char body[256];
        (void)snprintf(body, sizeof body, SYSTEM("Be careful.\\nCurrent time: 2031-04-09T15:%02d:42Z") USER("Q%d") END,
                       i % 60, i);
        assert_int_equal(lint_harness_add(&h, LAR_PROTOCOL_CHAT, lar_slice_cstr(body), NULL), LAR_OK);
    }
    char *lines = lint_harness_lines(&h);
    assert_string_equal(lines, "LR001 /messages/0/content confirmed\n");
    assert_int_equal(h.findings[0].requests, LAR_LINT_KEPT_MAX + 50);
    assert_int_equal(lar_lint_dropped(h.lint), 0);
    free(lines);
    lint_harness_release(&h);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states),   cmocka_unit_test(test_late_change),
        cmocka_unit_test(test_label),    cmocka_unit_test(test_values_and_places),
        cmocka_unit_test(test_tokens),   cmocka_unit_test(test_tools),
        cmocka_unit_test(test_form),     cmocka_unit_test(test_billing),
        cmocka_unit_test(test_branches), cmocka_unit_test(test_what_is_edited_is_confirmed),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
