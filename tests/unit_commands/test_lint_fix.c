/* How `larder lint --fix` puts new bytes into a file: what somebody else wrote meanwhile stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/commands/lint_command.h"

enum { BIG = 200 * 1024 }; /* more than is compared at a time */

static char folder[64], path[96];

static int make_folder(void **state) {
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/lint-fix-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    (void)snprintf(path, sizeof path, "%s/a.jsonl", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    (void)unlink(path);
    return rmdir(folder); /* fails if a file was left beside it */
}

static void put(lar_slice text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text.ptr, 1, text.len, f), text.len);
    assert_int_equal(fclose(f), 0);
}

static void expect_text(lar_slice text) {
    char *got = malloc(text.len + 2);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fread(got, 1, text.len + 2, f), text.len);
    assert_memory_equal(got, text.ptr, text.len);
    assert_int_equal(fclose(f), 0);
    free(got);
}

static void test_unchanged_is_written(void **state) {
    (void)state;
    lar_diag d = {0};
    lar_slice was = LAR_SLICE("one\ntwo\n"), is = LAR_SLICE("one\n2\n");
    put(was);
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(lar_lint_replace_file(path, is, &was, &d), LAR_OK);
    expect_text(is);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    put(LAR_SLICE(""));
    lar_slice empty = LAR_SLICE("");
    assert_int_equal(lar_lint_replace_file(path, is, &empty, &d), LAR_OK);
    expect_text(is);
    /* nothing was read: whatever it holds */
    assert_int_equal(lar_lint_replace_file(path, was, NULL, &d), LAR_OK);
    expect_text(was);
}

/* Longer, shorter, empty, of the same size; at any place of it. */
static void test_changed_is_left_alone(void **state) {
    (void)state;
    static const char *const others[] = {"one\ntwo\nthree\n", "one\n", "", "one\ntwO\n", "One\ntwo\n"};
    lar_slice was = LAR_SLICE("one\ntwo\n"), is = LAR_SLICE("one\n2\n");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        lar_diag d = {0};
        put(lar_slice_cstr(others[i]));
        assert_int_equal(lar_lint_replace_file(path, is, &was, &d), LAR_IO);
        assert_non_null(strstr(d.text, "a.jsonl: not written: it changed"));
        expect_text(lar_slice_cstr(others[i]));
    }
    lar_diag d = {0};
    assert_int_equal(unlink(path), 0); /* somebody removed it */
    assert_int_equal(lar_lint_replace_file(path, is, &was, &d), LAR_IO);
    assert_int_equal(access(path, F_OK), -1);
}

static void test_large_files(void **state) {
    (void)state;
    char *big = malloc(BIG);
    assert_non_null(big);
    memset(big, 'x', BIG);
    lar_slice was = lar_slice_of(big, BIG), is = LAR_SLICE("y\n");
    lar_diag d = {0};
    put(was);
    assert_int_equal(lar_lint_replace_file(path, is, &was, &d), LAR_OK);
    expect_text(is);
    big[BIG - 1] = 'z';
    put(was);
    big[BIG - 1] = 'x';
    assert_int_equal(lar_lint_replace_file(path, is, &was, &d), LAR_IO);
    free(big);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_unchanged_is_written, make_folder,
                                                                       remove_folder),
                                       cmocka_unit_test_setup_teardown(test_changed_is_left_alone, make_folder,
                                                                       remove_folder),
                                       cmocka_unit_test_setup_teardown(test_large_files, make_folder, remove_folder)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
