/* A model of about 200 MB of experts in a budget of a fifth: what the process really has in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka needs the three above first */
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "tests/unit_engine/files/file_box.h"
#include "tests/unit_engine/files/model_maker.h"

enum { TOKENS = 48, MB = 1 << 20 };

static const model_shape shape = {.layers = 3,
                                  .dense_layers = 1,
                                  .hidden = 256,
                                  .heads = 2,
                                  .kv_rank = 32,
                                  .nope = 16,
                                  .rope = 8,
                                  .v_dim = 16,
                                  .dense_ff = 128,
                                  .expert_ff = 1024,
                                  .experts = 64,
                                  .experts_used = 6,
                                  .shared = 1,
                                  .groups = 1,
                                  .groups_used = 1,
                                  .expert_scale = 1,
                                  .vocab = 300,
                                  .context = 64,
                                  .eps = 1e-5,
                                  .rope_base = 10000,
                                  .type = LAR_DTYPE_BF16,
                                  .embedding = 1,
                                  .seed = 3};

/* Of /proc/self/status, in bytes: VmRSS, RssAnon, RssFile. */
static uint64_t status_of(const char *field) {
    char line[256];
    uint64_t kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (strncmp(line, field, strlen(field)) == 0) kib = strtoull(line + strlen(field) + 1, NULL, 10);
    assert_int_equal(fclose(f), 0);
    assert_true(kib > 0);
    return kib * 1024;
}

static uint64_t bytes_of_all_but_experts(const char *path) {
    lar_model_files *f;
    lar_diag d = {0};
    uint64_t bytes = 0;
    assert_int_equal(lar_model_files_open(path, &f, &d), LAR_OK);
    for (uint32_t i = 0; i < lar_model_files_count(f); i++)
        if (!strstr(lar_model_files_at(f, i)->name, "_exps")) bytes += lar_model_files_at(f, i)->bytes;
    lar_model_files_close(f);
    return bytes;
}

/* Single tokens, then prompts: every expert is used, several times over. */
static void use(lar_engine *e) {
    lar_sequence *s;
    lar_diag d = {0};
    uint32_t ids[TOKENS];
    float logits[300];
    assert_int_equal(lar_sequence_new(e, TOKENS, &s, &d), LAR_OK);
    for (uint32_t i = 0; i < TOKENS; i++) ids[i] = i * 71 % 300;
    for (uint32_t i = 0; i < 2 * TOKENS; i++) {
        uint32_t n = i < TOKENS ? 1 : TOKENS, last = n - 1;
        if (i % TOKENS == 0 || i > TOKENS) lar_sequence_cut(s, 0);
        if (i > TOKENS + 3) break;
        if (lar_engine_step(e, &(lar_engine_part){s, ids + i % TOKENS * (i < TOKENS), n, &last, 1}, 1, logits, &d))
            fail_msg("%s", d.text);
    }
    lar_sequence_free(s);
}

/* Beside the budget: what is packed of the rest, scratch, small lists, the stacks of threads. */
static void the_budget_is_what_is_in_memory(void **state) {
    char path[BOX_PATH_BYTES];
    const uint64_t budget = 40 * MB, slack = 24 * MB;
    model_write(&shape, LAR_MODEL_GGUF, box_path(*state, "large.gguf", path));
    uint64_t others = bytes_of_all_but_experts(path);
    uint64_t anonymous = status_of("RssAnon:"), files = status_of("RssFile:"), all = status_of("VmRSS:");
    lar_engine *e;
    lar_diag d = {0};
    if (lar_engine_open(&(lar_engine_options){.path = path, .threads = 2, .expert_bytes = budget}, &e, &d))
        fail_msg("%s", d.text);
    use(e);
    lar_expert_counts c = lar_engine_experts(e);
    lar_engine_info info = lar_engine_info_of(e);
    assert_true(c.all_bytes > 190 * (uint64_t)MB && c.bytes <= budget && c.bytes > budget - 3 * MB);
    assert_true(c.bytes_read > c.all_bytes); /* and so it would have been in memory */
    assert_true(info.packed_bytes < budget + 2 * others + MB);
    anonymous = status_of("RssAnon:") - anonymous, files = status_of("RssFile:") - files;
    all = status_of("VmRSS:") - all;
    print_message("%llu MB of experts, budget %llu: in memory %llu more, of them %llu of files\n",
                  (unsigned long long)c.all_bytes / MB, (unsigned long long)budget / MB, (unsigned long long)all / MB,
                  (unsigned long long)files / MB);
    assert_true(files < others + 4 * MB);
#ifndef LARDER_SANITIZED /* whose own memory grows, too */
    assert_true(anonymous < budget + slack);
    assert_true(all < budget + others + slack);
    assert_true(all > budget / 2); /* it is measured what is meant */
#endif
    (void)anonymous, (void)slack;
    lar_engine_close(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_budget_is_what_is_in_memory)};
    return cmocka_run_group_tests(tests, box_setup, box_teardown);
}
