/* The parsing cases of JSONTestSuite (data/jsontestsuite.cases) through every parser of this machine:
 * y_ is accepted, n_ is refused with an offset inside the body, i_ does not matter but must not crash
 * and must be the same for all. Each input is a block of its exact size. */
#include "base/json_scan.h"
#include "tests/unit_base/expect.h"

enum { INPUT_MAX = 1 << 20 };

/* Appends a column with its \xHH escapes resolved, `repeats` times. */
static void add_column(lar_buf *out, const char *text, long repeats) {
    for (long n = 0; n < repeats; n++) {
        for (const char *p = text; *p; p++) {
            char c = *p;
            if (c == '\\') {
                char hex[3] = {p[2], p[3], 0};
                c = (char)strtol(hex, NULL, 16);
                p += 3;
            }
            assert_ok(lar_buf_add(out, &c, 1));
        }
    }
}

static void run_case(const char *name, lar_slice input) {
    char *block = malloc(input.len ? input.len : 1);
    assert_non_null(block);
    if (input.len) memcpy(block, input.ptr, input.len);
    lar_error first = LAR_OK;
    lar_json j;
    lar_json_init(&j);
    for (int isa = 0; isa <= (int)lar_json_isa_best(); isa++) {
        lar_diag d = {0};
        lar_error e = lar_json_parse_isa((lar_json_isa)isa, &j, lar_slice_of(block, input.len), NULL, &d);
        if (name[0] == 'y' && e) fail_msg("%s is refused: %s", name, d.text);
        if (name[0] == 'n' && !e) fail_msg("%s is accepted", name);
        if (e && (!d.has_offset || d.offset > input.len)) fail_msg("%s has no offset", name);
        if (isa == 0) first = e;
        assert_int_equal(e, first);
    }
    lar_json_release(&j);
    free(block);
}

static void all_cases_hold(void **state) {
    (void)state;
    FILE *f = fopen(LARDER_TEST_DATA "/jsontestsuite.cases", "r");
    assert_non_null(f);
    lar_buf input;
    lar_buf_init(&input, INPUT_MAX);
    int count[3] = {0};
    char line[4096];
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (line[0] == '#') continue;
        char *at = line, *name = strsep(&at, "\t"), *repeats = strsep(&at, "\t"), *unit = strsep(&at, "\t");
        assert_non_null(repeats);
        lar_buf_reset(&input, INPUT_MAX);
        add_column(&input, unit ? unit : "", strtol(repeats, NULL, 10));
        add_column(&input, at ? at : "", 1);
        run_case(name, lar_buf_slice(&input));
        count[name[0] == 'y' ? 0 : name[0] == 'n' ? 1 : 2]++;
    }
    (void)fclose(f);
    lar_buf_release(&input);
    assert_int_equal(count[0], 95);
    assert_int_equal(count[1], 188);
    assert_int_equal(count[2], 35);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_cases_hold)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
