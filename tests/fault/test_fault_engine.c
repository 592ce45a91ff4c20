/* Every allocation fails once while an engine with pages and a page store is opened, and while a sequence is made,
 * takes over a prefix, computes, is kept and forked: the answer is NO_MEMORY; nothing leaks, no page is lost, and the
 * next try does it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "engine/engine.h"
#include "tests/fault/fail_alloc.h"
#include "tests/unit_engine/files/file_box.h"
#include "tests/unit_engine/files/model_maker.h"

enum { TOKENS = 2 * LAR_PAGE_TOKENS + 1, VOCAB = 300, TRIES_MAX = 100000 };

static uint32_t ids[TOKENS];
static float logits[VOCAB];

static bool has(void *context, const lar_page_key *key) { return (void)context, (void)key, false; }

static lar_error no_page(void *context, const lar_page_key *key, uint8_t *to, uint64_t bytes) {
    (void)context, (void)key, (void)to, (void)bytes;
    return LAR_NOT_FOUND;
}

static lar_error full(void *context, const lar_page_key *key, const uint8_t *from, uint64_t bytes) {
    (void)context, (void)key, (void)from, (void)bytes;
    return LAR_FULL;
}

static lar_page_store store = {NULL, has, no_page, full, NULL, NULL};

static lar_error open_engine(lar_engine **out) {
    char path[BOX_PATH_BYTES];
    lar_diag d = {0};
    lar_engine_options o = {.path = box_path(&test_box, "model", path),
                            .threads = 1,
                            .page_bytes = 1 << 20,
                            .page_store = &store,
                            .kv = "bf16"};
    return lar_engine_open(&o, out, &d);
}

/* A sequence with a kept prefix, and a fork of it. */
static lar_error converse(lar_engine *e, uint32_t *adopted) {
    lar_sequence *s = NULL, *fork = NULL;
    lar_diag d = {0};
    lar_error error = lar_sequence_new(e, TOKENS, &s, &d);
    *adopted = error ? 0 : lar_sequence_adopt(s, &(lar_digest){0}, ids, TOKENS);
    uint32_t left = TOKENS - *adopted, last = left - 1;
    if (!error) error = lar_engine_step(e, &(lar_engine_part){s, ids + *adopted, left, &last, 1}, 1, logits, &d);
    if (!error) lar_sequence_keep(s, ids, TOKENS);
    if (!error) error = lar_sequence_fork(s, &fork, &d);
    lar_sequence_free(s);
    lar_sequence_free(fork);
    return error;
}

static void every_allocation_of_a_conversation_fails_once(lar_engine *e) {
    uint32_t adopted;
    assert_int_equal(converse(e, &adopted), LAR_OK);
    assert_int_equal(adopted, 0);
    for (unsigned n = 1;; n++) {
        fail_alloc_at(n);
        lar_error error = converse(e, &adopted);
        long live = fail_alloc_live();
        bool failed = fail_alloc_end();
        assert_int_equal(live, 0);
        assert_int_equal(lar_engine_pages(e).held, 2);
        assert_int_equal(lar_engine_prefixes(e).idle, 2);
        if (!failed) break;
        assert_int_equal(error, LAR_NO_MEMORY);
    }
    assert_int_equal(adopted, 2 * LAR_PAGE_TOKENS);
}

static void every_allocation_fails_once(void **state) {
    (void)state;
    unsigned n = 1;
    for (;; n++) {
        lar_engine *e = NULL;
        fail_alloc_at(n);
        lar_error error = open_engine(&e);
        long live = fail_alloc_live();
        if (!fail_alloc_end()) {
            assert_int_equal(error, LAR_OK);
            every_allocation_of_a_conversation_fails_once(e);
            lar_engine_close(e);
            break;
        }
        if (error != LAR_NO_MEMORY) fail_msg("allocation %u: %s", n, lar_error_name(error));
        assert_null(e);
        if (live) fail_msg("allocation %u: %ld blocks are left", n, live);
        assert_true(n < TRIES_MAX);
    }
    print_message("%u allocations to open it\n", n - 1);
    assert_true(n > 50);
}

static int prepare(void **state) {
    char path[BOX_PATH_BYTES];
    model_shape s;
    if (box_setup(state) || !model_shape_named("tiny-lite", &s)) return 1;
    s.layers = 2, s.hidden = 24, s.heads = 2, s.kv_rank = 16, s.nope = 8, s.rope = 4, s.v_dim = 8, s.dense_ff = 16;
    s.expert_ff = 8, s.experts = 4, s.experts_used = 2, s.vocab = VOCAB, s.yarn_factor = 0;
    box_folder(&test_box, "model");
    model_write(&s, LAR_MODEL_FOLDER, box_path(&test_box, "model", path));
    for (uint32_t i = 0; i < TOKENS; i++) ids[i] = i;
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_fails_once)};
    return cmocka_run_group_tests(tests, prepare, box_teardown);
}
