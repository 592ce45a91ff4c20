/* The engine's boundary: models of many shapes against a naive one, several sequences in one step, cutting, errors that
 * change nothing, steps that allocate nothing. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "tests/unit_engine/files/file_box.h"
#include "tests/unit_engine/model/naive_model.h"

enum { TOKENS = 24, CONTEXT = 64 };

static uint32_t ids[TOKENS];

static const model_shape shapes[] = {
    /* One head, odd widths, dense only. */
    {.layers = 2,
     .dense_layers = 2,
     .hidden = 20,
     .heads = 1,
     .kv_rank = 7,
     .nope = 5,
     .rope = 2,
     .v_dim = 3,
     .dense_ff = 11,
     .expert_ff = 8,
     .experts = 4,
     .experts_used = 2,
     .shared = 1,
     .groups = 1,
     .groups_used = 1,
     .expert_scale = 1},
    /* MoE from the first layer on, no shared experts, all experts used. */
    {.layers = 2,
     .dense_layers = 0,
     .hidden = 33,
     .heads = 3,
     .kv_rank = 16,
     .nope = 4,
     .rope = 6,
     .v_dim = 9,
     .dense_ff = 8,
     .expert_ff = 5,
     .experts = 3,
     .experts_used = 3,
     .shared = 0,
     .groups = 1,
     .groups_used = 1,
     .expert_scale = 0.5},
    /* V3's form: query latent, groups by two, three shared experts, YaRN whose original context is soon over. */
    {.layers = 3,
     .dense_layers = 1,
     .hidden = 40,
     .heads = 5,
     .q_rank = 13,
     .kv_rank = 24,
     .nope = 8,
     .rope = 8,
     .v_dim = 16,
     .dense_ff = 50,
     .expert_ff = 12,
     .experts = 12,
     .experts_used = 4,
     .shared = 3,
     .groups = 3,
     .groups_used = 2,
     .sigmoid = true,
     .expert_scale = 2.5,
     .yarn_factor = 40,
     .yarn_mscale = 1,
     .yarn_original = 8},
    /* V2's form: groups by their best, one expert of each token. */
    {.layers = 3,
     .dense_layers = 1,
     .hidden = 64,
     .heads = 2,
     .q_rank = 30,
     .kv_rank = 40,
     .nope = 32,
     .rope = 16,
     .v_dim = 8,
     .dense_ff = 17,
     .expert_ff = 33,
     .experts = 8,
     .experts_used = 1,
     .shared = 2,
     .groups = 4,
     .groups_used = 1,
     .expert_scale = 16,
     .yarn_factor = 4,
     .yarn_mscale = 0.707,
     .yarn_original = 16},
    /* Groups of one expert, as many heads as Kimi has few: sigmoid without groups. */
    {.layers = 2,
     .dense_layers = 1,
     .hidden = 48,
     .heads = 7,
     .kv_rank = 65,
     .nope = 3,
     .rope = 4,
     .v_dim = 5,
     .dense_ff = 9,
     .expert_ff = 100,
     .experts = 40,
     .experts_used = 6,
     .shared = 1,
     .groups = 1,
     .groups_used = 1,
     .sigmoid = true,
     .expert_scale = 2.446},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static model_shape whole(const model_shape *s, uint64_t seed) {
    model_shape out = *s;
    out.vocab = 300, out.context = CONTEXT, out.eps = 1e-5, out.rope_base = 10000;
    out.type = LAR_DTYPE_BF16, out.seed = seed, out.embedding = 1;
    return out;
}

static lar_engine *engine_of(const char *path, const char *cpu, uint32_t tokens_max, uint32_t threads) {
    lar_engine *e;
    lar_diag d = {0};
    lar_engine_options o = {.path = path, .cpu = cpu, .tokens_max = tokens_max, .threads = threads};
    if (lar_engine_open(&o, &e, &d)) fail_msg("%s: %s", path, d.text);
    return e;
}

static lar_sequence *sequence_of(const lar_engine *e, uint32_t capacity) {
    lar_sequence *s;
    lar_diag d = {0};
    if (lar_sequence_new(e, capacity, &s, &d)) fail_msg("%s", d.text);
    return s;
}

/* Logits of all tokens, fed `chunk` at a time. */
static float *all_logits(lar_engine *e, uint32_t chunk) {
    uint32_t vocab = lar_engine_info_of(e).vocab, wanted[TOKENS];
    float *logits = malloc((size_t)TOKENS * vocab * sizeof *logits);
    lar_sequence *s = sequence_of(e, TOKENS);
    lar_diag d = {0};
    for (uint32_t i = 0; i < TOKENS; i++) wanted[i] = i;
    for (uint32_t at = 0; at < TOKENS; at += chunk) {
        uint32_t n = chunk < TOKENS - at ? chunk : TOKENS - at;
        lar_engine_part p = {s, ids + at, n, wanted, n};
        if (lar_engine_step(e, &p, 1, logits + (size_t)at * vocab, &d)) fail_msg("%s", d.text);
    }
    assert_int_equal(lar_sequence_length(s), TOKENS);
    lar_sequence_free(s);
    return logits;
}

static double distance(const float *got, const double *wanted, size_t n) {
    double worst = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        double off = fabs((double)got[i] - wanted[i]);
        if (!(off <= worst)) worst = off == off ? off : INFINITY;
        squares += wanted[i] * wanted[i];
    }
    return worst / sqrt(squares / (double)n);
}

static void other_shapes_agree_with_the_naive_model(void **state) {
    file_box *box = *state;
    static const struct {
        const char *cpu;
        uint32_t chunk, tokens_max, threads;
    } ways[] = {{"reference", TOKENS, 0, 1}, {"auto", TOKENS, 0, 2}, {"auto", 5, 3, 1}, {"scalar", 1, 1, 2}};
    for (int i = 0; i < SHAPES; i++) {
        char name[16], path[BOX_PATH_BYTES];
        model_shape s = whole(&shapes[i], 100 + (uint64_t)i);
        (void)snprintf(name, sizeof name, "shape%d", i);
        box_folder(box, name);
        model_write(&s, LAR_MODEL_FOLDER, box_path(box, name, path));
        double *wanted = naive_logits(&s, path, ids, TOKENS);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            lar_engine *e = engine_of(path, ways[w].cpu, ways[w].tokens_max, ways[w].threads);
            float *got = all_logits(e, ways[w].chunk);
            double off = distance(got, wanted, TOKENS * s.vocab);
            if (!(off < 2e-4)) fail_msg("shape %d, %s by %u: off by %g", i, ways[w].cpu, ways[w].chunk, off);
            free(got);
            lar_engine_close(e);
        }
        free(wanted);
    }
}

/* Both layouts of GGUF's kv_b, in floats, are the folder's model. */
static void gguf_is_the_same_model(void **state) {
    file_box *box = *state;
    for (int legacy = 0; legacy < 2; legacy++) {
        char folder[BOX_PATH_BYTES], gguf[BOX_PATH_BYTES];
        model_shape s = whole(&shapes[2], 7);
        s.legacy = legacy;
        box_folder(box, legacy ? "old" : "new");
        model_write(&s, LAR_MODEL_FOLDER, box_path(box, legacy ? "old" : "new", folder));
        model_write(&s, LAR_MODEL_GGUF, box_path(box, legacy ? "old.gguf" : "new.gguf", gguf));
        double *wanted = naive_logits(&s, folder, ids, TOKENS);
        lar_engine *e = engine_of(gguf, "auto", 0, 1);
        float *got = all_logits(e, TOKENS);
        assert_true(distance(got, wanted, TOKENS * s.vocab) < 2e-4);
        free(got);
        free(wanted);
        lar_engine_close(e);
    }
}

/* -- steps ------------------------------------------------------------------------------------------------------- */

static lar_engine *small(file_box *box, uint32_t tokens_max) {
    char path[BOX_PATH_BYTES];
    return engine_of(box_path(box, "shape2", path), "auto", tokens_max, 2);
}

static void sequences_in_one_step_do_not_see_each_other(void **state) {
    for (uint32_t tokens_max = 4; tokens_max <= 64; tokens_max *= 4) {
        lar_engine *e = small(*state, tokens_max);
        uint32_t vocab = lar_engine_info_of(e).vocab;
        float *alone = all_logits(e, TOKENS), *together = calloc((size_t)4 * vocab, sizeof *together);
        lar_sequence *a = sequence_of(e, TOKENS), *b = sequence_of(e, TOKENS), *c = sequence_of(e, TOKENS);
        lar_diag d = {0};
        const uint32_t at9 = 9, at[] = {4, 9};
        /* a has 10 tokens and wants two logits; b none; c joins with what a began, and goes on in the next step. */
        lar_engine_part first[] = {{a, ids, 10, at, 2}, {b, ids, 0, NULL, 0}, {c, ids, 7, NULL, 0}};
        assert_int_equal(lar_engine_step(e, first, 3, together, &d), LAR_OK);
        assert_int_equal(lar_sequence_length(b), 0);
        const uint32_t last = 2, only = 0;
        lar_engine_part second[] = {{c, ids + 7, 3, &last, 1}, {b, ids, 10, &at9, 1}, {a, ids + 10, 1, &only, 1}};
        assert_memory_equal(together, alone + (size_t)4 * vocab, vocab * sizeof *alone);
        assert_memory_equal(together + vocab, alone + (size_t)9 * vocab, vocab * sizeof *alone);
        assert_int_equal(lar_engine_step(e, second, 3, together, &d), LAR_OK);
        assert_memory_equal(together, alone + (size_t)9 * vocab, vocab * sizeof *alone);
        assert_memory_equal(together + vocab, alone + (size_t)9 * vocab, vocab * sizeof *alone);
        assert_memory_equal(together + (size_t)2 * vocab, alone + (size_t)10 * vocab, vocab * sizeof *alone);
        lar_sequence_free(a), lar_sequence_free(b), lar_sequence_free(c);
        free(alone), free(together);
        lar_engine_close(e);
    }
}

static void a_sequence_can_be_cut_anywhere(void **state) {
    lar_engine *e = small(*state, 0);
    uint32_t vocab = lar_engine_info_of(e).vocab, other[TOKENS];
    float *alone = all_logits(e, TOKENS), *logits = calloc(vocab, sizeof *logits);
    lar_sequence *s = sequence_of(e, TOKENS);
    lar_diag d = {0};
    for (uint32_t i = 0; i < TOKENS; i++) other[i] = ids[TOKENS - 1 - i];
    for (uint32_t cut = 0; cut < TOKENS; cut++) {
        uint32_t rest = TOKENS - 1 - cut;
        lar_sequence_cut(s, 0);
        assert_int_equal(lar_engine_step(e, &(lar_engine_part){s, ids, cut, NULL, 0}, 1, logits, &d), LAR_OK);
        assert_int_equal(lar_engine_step(e, &(lar_engine_part){s, other, rest, NULL, 0}, 1, logits, &d), LAR_OK);
        lar_sequence_cut(s, cut);
        assert_int_equal(lar_engine_step(e, &(lar_engine_part){s, ids + cut, TOKENS - cut, &rest, 1}, 1, logits, &d),
                         LAR_OK);
        assert_memory_equal(logits, alone + (size_t)(TOKENS - 1) * vocab, vocab * sizeof *logits);
    }
    lar_sequence_free(s);
    free(alone), free(logits);
    lar_engine_close(e);
}

static void errors_leave_sequences_as_they_were(void **state) {
    lar_engine *e = small(*state, 4); /* several passes a step: those before the wrong one are taken back */
    uint32_t vocab = lar_engine_info_of(e).vocab, wrong[TOKENS];
    float *alone = all_logits(e, TOKENS), *logits = calloc((size_t)2 * vocab, sizeof *logits);
    lar_sequence *s = sequence_of(e, 12), *full = sequence_of(e, 4);
    lar_diag d = {0};
    const uint32_t back[] = {3, 1}, far = 99, last = 8;
    memcpy(wrong, ids, sizeof wrong);
    wrong[9] = vocab;
    const struct {
        lar_engine_part parts[2];
        lar_error error;
        const char *says;
    } rows[] = {
        {{{s, wrong, 10, NULL, 0}, {full, ids, 1, NULL, 0}}, LAR_INVALID, "token id 300; the vocabulary ends at 299"},
        {{{s, ids, 9, NULL, 0}, {full, ids, 5, NULL, 0}}, LAR_LIMIT, "the sequence has room for 4"},
        {{{s, ids, 13, NULL, 0}, {full, ids, 1, NULL, 0}}, LAR_LIMIT, "the sequence has room for 12"},
        {{{s, ids, 9, back, 2}, {full, ids, 1, NULL, 0}}, LAR_INVALID, "out of order"},
        {{{s, ids, 9, &far, 1}, {full, ids, 1, NULL, 0}}, LAR_INVALID, "token 99 of 9"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lar_error error = lar_engine_step(e, rows[i].parts, 2, logits, &d);
        if (error != rows[i].error || !strstr(d.text, rows[i].says)) fail_msg("row %zu: %s", i, d.text);
        assert_int_equal(lar_sequence_length(s), 0);
        assert_int_equal(lar_sequence_length(full), 0);
    }
    assert_int_equal(lar_engine_step(e, &(lar_engine_part){s, ids, 9, &last, 1}, 1, logits, &d), LAR_OK);
    assert_memory_equal(logits, alone + (size_t)8 * vocab, vocab * sizeof *logits);
    lar_sequence *no = NULL;
    assert_int_equal(lar_sequence_new(e, CONTEXT + 1, &no, &d), LAR_LIMIT);
    assert_null(no);
    lar_sequence_free(s), lar_sequence_free(full);
    free(alone), free(logits);
    lar_engine_close(e);
}

/* The allocator, counted (link option --wrap). */
static uint32_t allocations;
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t alignment, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t alignment, size_t n);
void *__wrap_malloc(size_t n) { return allocations++, __real_malloc(n); }
void *__wrap_calloc(size_t n, size_t size) { return allocations++, __real_calloc(n, size); }
void *__wrap_realloc(void *p, size_t n) { return allocations++, __real_realloc(p, n); }
void *__wrap_aligned_alloc(size_t alignment, size_t n) { return allocations++, __real_aligned_alloc(alignment, n); }

static void generate(lar_engine *e) {
    lar_sampling how = LAR_SAMPLING_DEFAULT;
    lar_sampler *p;
    lar_diag d = {0};
    how.top_p = 0.9, how.repetition = 1.1, how.logprobs = 5;
    uint32_t vocab = lar_engine_info_of(e).vocab, last = 9, only = 0;
    float *logits = malloc(vocab * sizeof *logits);
    lar_sequence *s = sequence_of(e, 40);
    assert_int_equal(lar_sampler_new(&how, vocab, &p, &d), LAR_OK);
    assert_true(allocations > 0);
    allocations = 0;
    lar_error error = lar_engine_step(e, &(lar_engine_part){s, ids, 10, &last, 1}, 1, logits, &d);
    for (int i = 0; !error && i < 30; i++) {
        lar_sampled next;
        error = lar_sampler_next(p, logits, &next, &d);
        if (!error) error = lar_engine_step(e, &(lar_engine_part){s, &next.id, 1, &only, 1}, 1, logits, &d);
    }
    assert_int_equal(error, LAR_OK);
    assert_int_equal(allocations, 0);
    lar_sampler_free(p);
    lar_sequence_free(s);
    free(logits);
}

static void generating_allocates_nothing(void **state) {
    char path[BOX_PATH_BYTES];
    lar_diag d = {0};
    lar_engine *e = small(*state, 4);
    generate(e);
    lar_engine_close(e);
    lar_engine_options o = {.path = box_path(*state, "shape2", path), .kv = "fp8", .page_bytes = 1 << 20};
    assert_int_equal(lar_engine_open(&o, &e, &d), LAR_OK);
    generate(e);
    lar_engine_close(e);
}

static void scratch_is_shared_and_reported(void **state) {
    lar_engine *e = small(*state, 0);
    lar_engine_info info = lar_engine_info_of(e);
    print_message("scratch: %llu bytes, at most %llu of them alive at once\n", (unsigned long long)info.scratch_bytes,
                  (unsigned long long)info.scratch_peak);
    assert_true(info.scratch_peak > 0 && info.scratch_bytes >= info.scratch_peak);
    assert_true(info.scratch_bytes <= info.scratch_peak + info.scratch_peak / 4);
    lar_engine_close(e);
}

/* DeepSeek-V3.2 is V3 as far as its sparse attention is dense. */
static void v32_ends_at_2048_tokens(void **state) {
    file_box *box = *state;
    char path[BOX_PATH_BYTES], text[BOX_PATH_BYTES];
    model_shape s = whole(&shapes[0], 1);
    s.context = 163840, s.sigmoid = true;
    box_folder(box, "v32");
    model_write(&s, LAR_MODEL_FOLDER, box_path(box, "v32", path));
    lar_buf config;
    lar_buf_init(&config, 1 << 16);
    FILE *f = fopen(box_path(box, "v32/config.json", text), "rb");
    assert_non_null(f);
    char bytes[8192];
    size_t n = fread(bytes, 1, sizeof bytes, f);
    assert_int_equal(fclose(f), 0);
    char *at = memmem(bytes, n, "\"deepseek_v3\"", 13);
    assert_non_null(at);
    put_bytes(&config, bytes, (size_t)(at - bytes));
    put_bytes(&config, "\"deepseek_v32\"", 14);
    put_bytes(&config, at + 13, n - (size_t)(at - bytes) - 13);
    box_write(box, "v32/config.json", lar_buf_slice(&config));
    lar_buf_release(&config);
    lar_engine *e = engine_of(path, "auto", 0, 1);
    lar_diag d = {0};
    lar_sequence *long_one;
    assert_int_equal(lar_engine_info_of(e).context, 2048);
    assert_int_equal(lar_sequence_new(e, 2049, &long_one, &d), LAR_LIMIT);
    assert_non_null(strstr(d.text, "2048"));
    lar_engine_close(e);
}

static int prepare(void **state) {
    for (uint32_t i = 0; i < TOKENS; i++) ids[i] = (i * 71 + 5) % 300;
    return box_setup(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_shapes_agree_with_the_naive_model),
        cmocka_unit_test(gguf_is_the_same_model),
        cmocka_unit_test(sequences_in_one_step_do_not_see_each_other),
        cmocka_unit_test(a_sequence_can_be_cut_anywhere),
        cmocka_unit_test(errors_leave_sequences_as_they_were),
        cmocka_unit_test(generating_allocates_nothing),
        cmocka_unit_test(scratch_is_shared_and_reported),
        cmocka_unit_test(v32_ends_at_2048_tokens),
    };
    return cmocka_run_group_tests(tests, prepare, box_teardown);
}
