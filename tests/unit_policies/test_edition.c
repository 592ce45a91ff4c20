/* Editions: what differs is told, whoever wrote it down; damage is not taken for an edition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "policies/canon.h"
#include "policies/edition.h"

static char *written(void) {
    lar_buf b;
    lar_buf_init(&b, 1 << 16);
    assert_int_equal(lar_edition_write(&b), LAR_OK);
    assert_int_equal(lar_buf_add(&b, "", 1), LAR_OK);
    char *text = strdup(b.ptr);
    lar_buf_release(&b);
    return text;
}

static lar_error diff(const char *text, lar_edition_change *c, uint32_t *n) {
    lar_slice name;
    return lar_edition_diff_text(lar_slice_cstr(text), &name, c, n);
}

static const lar_edition_change *find(const lar_edition_change *c, uint32_t n, const char *name) {
    for (uint32_t i = 0; i < n; i++)
        if (!strcmp(c[i].name, name)) return &c[i];
    return NULL;
}

static void the_own_edition_differs_in_nothing(void **state) {
    (void)state;
    lar_edition_change c[LAR_EDITION_ROWS_MAX];
    uint32_t n = 9;
    char *text = written();
    lar_slice name;
    assert_int_equal(lar_edition_diff_text(lar_slice_cstr(text), &name, c, &n), LAR_OK);
    assert_int_equal(n, 0);
    assert_true(lar_slice_eq_cstr(name, LAR_EDITION));
    assert_int_equal(lar_edition_diff(LAR_SLICE(LAR_EDITION), c), 0);
    assert_true(lar_edition_known(LAR_SLICE(LAR_EDITION)) && lar_edition_known(LAR_SLICE(LAR_EDITION_FIRST)));
    assert_false(lar_edition_known(LAR_SLICE("2031.01")) || lar_edition_known(LAR_SLICE("")));
    assert_true(lar_edition_hash() != 0 && lar_edition_hash() == lar_edition_hash());
    free(text);
}

static void every_rule_that_edits_has_a_row(void **state) {
    (void)state;
    lar_edition_row rows[LAR_EDITION_ROWS_MAX];
    uint32_t n = lar_edition_rows(LAR_SLICE(LAR_EDITION), rows), found = 0, wanted = 0;
    for (int r = 0; r < LAR_RULE_COUNT; r++) {
        bool lint = lar_rule_mode_of((lar_rule)r) == LAR_RULE_MODE_LINT;
        wanted += !lint;
        for (uint32_t i = 0; i < n; i++) found += !strcmp(rows[i].name, lar_rule_id((lar_rule)r));
    }
    assert_int_equal(found, wanted);
    for (uint32_t i = 0; i < n; i++) assert_true(rows[i].version > 0 && *rows[i].touches);
}

static void an_older_edition_lacks_what_is_new(void **state) {
    (void)state;
    lar_edition_change c[LAR_EDITION_ROWS_MAX];
    uint32_t n = lar_edition_diff(LAR_SLICE(LAR_EDITION_FIRST), c);
    const lar_edition_change *f = find(c, n, "fingerprint");
    assert_non_null(f);
    assert_true(f->was == 0 && f->is > 0 && *f->touches);
    assert_null(find(c, n, "LR002"));
}

/* As an older or a newer program would have written it. */
static void other_programs_texts_are_compared(void **state) {
    (void)state;
    lar_edition_change c[LAR_EDITION_ROWS_MAX];
    uint32_t n;
    char *text = written(), other[4096];
    char *row = strstr(text, "LR003 ");
    assert_non_null(row);
    size_t tail = strcspn(row, "\n") + 1;
    (void)snprintf(other, sizeof other, "%.*sLR003 77\nLR999 4\n%s", (int)(row - text), text, row + tail);
    assert_int_equal(diff(other, c, &n), LAR_OK);
    assert_int_equal(n, 2);
    assert_true(find(c, n, "LR003")->was == 77 && find(c, n, "LR003")->is > 0);
    assert_true(find(c, n, "LR999")->was == 4 && find(c, n, "LR999")->is == 0);
    lar_buf b;
    lar_buf_init(&b, 4096);
    assert_int_equal(lar_edition_changes_text(c, n, &b), LAR_OK);
    assert_int_equal(lar_buf_add(&b, "", 1), LAR_OK);
    assert_non_null(strstr(b.ptr, "LR003 77 > "));
    assert_non_null(strstr(b.ptr, ", LR999 gone"));
    lar_buf_release(&b);
    (void)snprintf(other, sizeof other, "%.*s%s", (int)(row - text), text, row + tail);
    assert_int_equal(diff(other, c, &n), LAR_OK);
    assert_true(n == 1 && c[0].was == 0);
    free(text);
}

static void nonsense_is_no_edition(void **state) {
    (void)state;
    static const char *const bad[] = {"",
                                      "edition",
                                      "edition 2026.12",
                                      "LR001 1\n",
                                      "edition 2026.12\nLR001\n",
                                      "edition 2026.12\nLR001 one\n",
                                      "edition 2026.12\nLR001 99999999999999999999\n",
                                      "edition 2026.12\n LR001 1\n",
                                      "edition 2026.12\nLR001 0\n",
                                      "edition 2026.12\nXY 0\n",
                                      "edition 2026.12\nLR001 1",
                                      "edition 2026.12\nanamethatislongerthananyrow 1\n"};
    lar_edition_change c[LAR_EDITION_ROWS_MAX];
    uint32_t n;
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) assert_int_equal(diff(bad[i], c, &n), LAR_CORRUPT);
    char *many = malloc(1 << 16);
    assert_non_null(many);
    int at = snprintf(many, 1 << 16, "edition 2026.12\n");
    for (int i = 0; i < 2 * LAR_EDITION_ROWS_MAX; i++) at += snprintf(many + at, 32, "X%d 1\n", i);
    assert_int_equal(diff(many, c, &n), LAR_CORRUPT);
    free(many);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_own_edition_differs_in_nothing),
        cmocka_unit_test(every_rule_that_edits_has_a_row),
        cmocka_unit_test(an_older_edition_lacks_what_is_new),
        cmocka_unit_test(other_programs_texts_are_compared),
        cmocka_unit_test(nonsense_is_no_edition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
