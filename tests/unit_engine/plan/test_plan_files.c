/* Plans of models as they lie on disk: the same one as a folder and as GGUF in both layouts, and damaged metadata. */
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/plan/plan.h"
#include "tests/unit_engine/files/model_maker.h"
#include "tests/unit_engine/model/golden.h"

static char folder[] = "/tmp/larder-plan-XXXXXX";

static void in_folder(char out[256], const char *name) { (void)snprintf(out, 256, "%s/%s", folder, name); }

static lar_plan_model read_model(const char *path) {
    lar_model_files *f;
    lar_plan_model m = {0};
    lar_diag d = {0};
    assert_int_equal(lar_model_files_open(path, &f, &d), LAR_OK);
    assert_int_equal(lar_plan_model_from_files(&m, f, &d), LAR_OK);
    assert_int_equal(lar_plan_model_finish(&m, &d), LAR_OK);
    lar_model_files_close(f);
    return m;
}

static void check(const lar_plan_model *m, const model_shape *s) {
    assert_true(m->latent);
    assert_int_equal(m->field[LAR_PLAN_LAYERS], s->layers);
    assert_int_equal(m->field[LAR_PLAN_RANK], s->kv_rank);
    assert_int_equal(m->field[LAR_PLAN_ROPE], s->rope);
    assert_int_equal(m->field[LAR_PLAN_NOPE], s->nope);
    assert_int_equal(m->field[LAR_PLAN_VALUE_DIM], s->v_dim);
    uint64_t sum = 0;
    for (int t = 0; t < LAR_DTYPE_COUNT; t++) sum += m->type_bytes[t];
    assert_int_equal(sum, m->file_bytes);
}

/* What is counted from dimensions alone comes near to what the tensors say. */
static void forms(void **state) {
    (void)state;
    model_shape s;
    char path[256];
    assert_true(model_shape_named("tiny-v3", &s));
    in_folder(path, "new.gguf");
    s.type = LAR_DTYPE_Q8_0;
    model_write(&s, LAR_MODEL_GGUF, path);
    lar_plan_model gguf = read_model(path);
    check(&gguf, &s);
    assert_true(gguf.type_bytes[LAR_DTYPE_Q8_0] > 0 && gguf.type_bytes[LAR_DTYPE_F32] > 0);
    s.legacy = true;
    in_folder(path, "old.gguf");
    model_write(&s, LAR_MODEL_GGUF, path);
    lar_plan_model legacy = read_model(path);
    check(&legacy, &s);
    s.type = LAR_DTYPE_BF16;
    model_write(&s, LAR_MODEL_FOLDER, folder);
    lar_plan_model hf = read_model(folder);
    check(&hf, &s);
    uint64_t exact = hf.parameters;
    hf.parameters = 0;
    lar_diag d = {0};
    assert_int_equal(lar_plan_model_finish(&hf, &d), LAR_OK);
    assert_true(hf.parameters > exact / 100 * 98 && hf.parameters <= exact);
}

/* A file of metadata alone. */
static lar_error read_metadata(const char *key, uint32_t value, uint32_t predicting, lar_plan_model *m, lar_diag *d) {
    gguf_writer w;
    char path[256];
    uint64_t shape[] = {1, 32};
    in_folder(path, "made.gguf");
    gguf_writer_init(&w);
    gguf_put_string(&w, "general.architecture", "ll\x1b[2J");
    gguf_put_u32(&w, "ll?[2J.block_count", 5);
    gguf_put_u32(&w, "ll?[2J.attention.head_count", 8);
    gguf_put_u32(&w, "ll?[2J.embedding_length", 256);
    gguf_put_u32(&w, "ll?[2J.nextn_predict_layers", predicting);
    gguf_put_u32(&w, key, value);
    (void)gguf_put_tensor(&w, "t", LAR_DTYPE_F32, 2, shape);
    gguf_write_zeros(&w, path);
    gguf_writer_release(&w);
    lar_model_files *files;
    *m = (lar_plan_model){0};
    *d = (lar_diag){0};
    assert_int_equal(lar_model_files_open(path, &files, d), LAR_OK);
    lar_error e = lar_plan_model_from_files(m, files, d);
    lar_model_files_close(files);
    return e ? e : lar_plan_model_finish(m, d);
}

/* Another family's metadata; an architecture whose name would clear a terminal. */
static void metadata(void **state) {
    (void)state;
    lar_plan_model m;
    lar_diag d;
    assert_int_equal(read_metadata("ll?[2J.attention.head_count_kv", 2, 1, &m, &d), LAR_OK);
    assert_string_equal(m.type, "ll?[2J");
    assert_int_equal(m.field[LAR_PLAN_LAYERS], 4);
    assert_int_equal(m.field[LAR_PLAN_KV_HEADS], 2);
    assert_int_equal(m.field[LAR_PLAN_HEAD_DIM], 32);
    assert_int_equal(read_metadata("ll?[2J.attention.key_length", 1 << 30, 0, &m, &d), LAR_INVALID);
    assert_string_equal(d.text, "ll?[2J.attention.key_length: 1073741824; at most 16384 is possible");
    assert_int_equal(read_metadata("other", 0, 5, &m, &d), LAR_INVALID);
    assert_string_equal(d.text, "ll?[2J.nextn_predict_layers: as many as there are layers");
}

/* The engine's own scratch, planned from lifetimes, is at most what was estimated, and no small part of it. */
static void scratch(void **state) {
    (void)state;
    for (int i = 0; i < GOLDEN_MODELS; i++) {
        golden g;
        lar_forward *f;
        lar_plan_model m = {0};
        lar_plan p;
        lar_diag d = {0};
        golden_open(&g, golden_names[i], NULL, LAR_ACTIVATIONS_F32);
        lar_forward_options o = {.tokens_max = LAR_PLAN_PIECE, .logits_max = 1};
        assert_int_equal(lar_forward_new(&g.config, &g.weights, &o, &f, &d), LAR_OK);
        assert_int_equal(lar_plan_model_from_files(&m, g.files, &d), LAR_OK);
        assert_int_equal(lar_plan_model_finish(&m, &d), LAR_OK);
        lar_plan_request r = {.context = 4096, .sequences = 1, .memory = 1ull << 32};
        assert_int_equal(lar_plan_compute(&m, &r, &p, &d), LAR_OK);
        uint64_t real = lar_forward_scratch(f).bytes;
        if (real > p.scratch || real < p.scratch / 4)
            fail_msg("%s: %llu of %llu", g.name, (unsigned long long)real, (unsigned long long)p.scratch);
        lar_forward_free(f);
        golden_close(&g);
    }
}

static int clean(void **state) {
    (void)state;
    static const char *const names[] = {"new.gguf", "old.gguf", "made.gguf", "config.json", "model.safetensors"};
    char path[256];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        in_folder(path, names[i]);
        (void)unlink(path);
    }
    return rmdir(folder);
}

int main(void) {
    if (!mkdtemp(folder)) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(forms), cmocka_unit_test(metadata), cmocka_unit_test(scratch)};
    return cmocka_run_group_tests(tests, NULL, clean);
}
