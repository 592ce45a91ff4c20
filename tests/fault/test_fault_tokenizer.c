/* Every allocation of opening a tokenizer and encoding a text fails in turn: the error is NO_MEMORY, nothing is left
 * behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine/text/tokenizer.h"
#include "tests/fault/fail_alloc.h"

enum { LONG = 300, CALLS_MAX = 20000 };

static char json[1 << 16];
static size_t json_len;

static int read_tiny(void **state) {
    (void)state;
    FILE *f = fopen(TINY_TOKENIZER, "rb");
    assert_non_null(f);
    json_len = fread(json, 1, sizeof json, f);
    (void)fclose(f);
    return 0;
}

/* Opens the file, encodes a text with a long piece, and gives all back. */
static lar_error use(void) {
    char text[LONG];
    lar_ids ids;
    lar_tokenizer *t = NULL;
    memset(text, 'a', sizeof text);
    lar_ids_init(&ids, LONG);
    lar_error e =
        lar_tokenizer_from_json(lar_slice_of(json, json_len), LAR_SLICE("{\"bos_token\":\"<|begin|>\"}"), &t, NULL);
    if (e) return e;
    e = lar_tokenizer_encode_plain(t, lar_slice_of(text, sizeof text), &ids, NULL);
    if (!e) assert_int_equal(ids.count, LONG / 8 + 1);
    if (e) assert_int_equal(ids.count, 0);
    lar_ids_release(&ids);
    lar_tokenizer_free(t);
    return e;
}

/* The first allocations one by one, the many like ones behind them in steps. */
static void each_allocation_fails_once(void **state) {
    (void)state;
    unsigned calls = 1;
    for (;; calls += 1 + calls / 60) {
        assert_true(calls < CALLS_MAX);
        fail_alloc_at(calls);
        lar_error e = use();
        long left = fail_alloc_live();
        bool failed = fail_alloc_end();
        assert_int_equal(left, 0);
        assert_int_equal(e, failed ? LAR_NO_MEMORY : LAR_OK);
        if (!failed) break;
    }
    assert_true(calls > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_allocation_fails_once)};
    return cmocka_run_group_tests(tests, read_tiny, NULL);
}
