/* What a model must have: tensor_roles.c finds whatever weights.c would stop at, and nothing else; tokenizer and
 * template are found where each form keeps them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "engine/model/model_text.h"
#include "engine/model/tensor_roles.h"
#include "engine/model/weights.h"
#include "engine/text/template.h"
#include "tests/unit_engine/files/file_box.h"
#include "tests/unit_engine/files/model_maker.h"

static model_shape tiny(const char *name) {
    model_shape s;
    assert_true(model_shape_named(name, &s));
    s.layers = 2, s.hidden = 32, s.heads = 2, s.kv_rank = 16, s.nope = 8, s.rope = 4, s.v_dim = 8, s.dense_ff = 24;
    s.q_rank = s.q_rank ? 16 : 0, s.expert_ff = 8, s.experts = 4, s.experts_used = 2, s.groups = s.groups_used = 1;
    s.vocab = 264, s.type = LAR_DTYPE_F32;
    return s;
}

static lar_model_files *open_box(const char *name) {
    char path[BOX_PATH_BYTES];
    lar_model_files *f = NULL;
    lar_diag d = {0};
    lar_error e = lar_model_files_open(box_path(&test_box, name, path), &f, &d);
    if (e) fail_msg("%s", d.text);
    return f;
}

/* -- tensors ------------------------------------------------------------------------------------------------------- */

typedef struct seen {
    uint32_t count;
    lar_tensor_problem problem;
    char name[LAR_TENSOR_NAME_MAX + 1];
} seen;

static void note(void *context, const lar_tensor_lack *l) {
    seen *s = context;
    s->count++;
    s->problem = l->problem;
    (void)snprintf(s->name, sizeof s->name, "%s", l->name);
}

static seen check(const lar_model_files *f) {
    lar_model_config c;
    lar_diag d = {0};
    seen s = {0};
    if (lar_config_read(&c, f, &d)) fail_msg("%s", d.text);
    uint32_t count = lar_tensors_check(&c, f, note, &s);
    assert_int_equal(count, s.count);
    return s;
}

static lar_error load(const lar_model_files *f, lar_diag *d) {
    lar_model_config c;
    lar_weights w;
    const lar_weights_options o = {.kernels = lar_kernels_reference()};
    assert_int_equal(lar_config_read(&c, f, d), LAR_OK);
    lar_error e = lar_weights_load(&w, &c, f, &o, d);
    if (!e) lar_weights_release(&w);
    return e;
}

/* The model with one name spoilt, its length kept. Before a name stands its length (GGUF), or a quote. */
static void spoil(lar_model_form form, const char *file, const char *name, lar_slice bytes) {
    lar_buf pattern;
    lar_buf_init(&pattern, 1000);
    if (form == LAR_MODEL_GGUF) put_number(&pattern, strlen(name), 8);
    else put_bytes(&pattern, "\"", 1);
    size_t before = pattern.len;
    put_bytes(&pattern, name, strlen(name));
    char *copy = malloc(bytes.len);
    assert_non_null(copy);
    memcpy(copy, bytes.ptr, bytes.len);
    char *at = memmem(copy, bytes.len, pattern.ptr, pattern.len);
    assert_non_null(at);
    at[before] = '#';
    lar_buf_release(&pattern);
    box_write(&test_box, file, lar_slice_of(copy, bytes.len));
    free(copy);
}

static void read_whole(const char *file, lar_buf *out) {
    char path[BOX_PATH_BYTES];
    lar_file_view v;
    lar_diag d = {0};
    lar_buf_init(out, 1 << 24);
    if (lar_mapped_file_open(box_path(&test_box, file, path), &v, &d)) fail_msg("%s", d.text);
    put_bytes(out, v.bytes, v.size);
    lar_mapped_file_close(&v);
}

/* GGUF's metadata do not say whether there is a bias of selection, nor whether the embedding serves as output. */
static bool may_be_missing(const char *name) { return strstr(name, "exp_probs_b") || !strcmp(name, "output.weight"); }

static void each_tensor_missing(lar_model_form form, const char *shape, const char *model, const char *file) {
    char path[BOX_PATH_BYTES];
    uint32_t count;
    model_shape s = tiny(shape);
    if (form == LAR_MODEL_FOLDER) box_folder(&test_box, model);
    model_write(&s, form, box_path(&test_box, model, path));
    lar_model_files *f = open_box(model);
    seen found = check(f);
    if (found.count) fail_msg("%s", found.name);
    lar_diag d = {0};
    if (load(f, &d)) fail_msg("%s", d.text);
    lar_model_files_close(f);
    lar_buf bytes;
    read_whole(file, &bytes);
    made_tensor *list = model_tensors(&s, form, &count);
    for (uint32_t i = 0; i < count; i++) {
        if (form == LAR_MODEL_GGUF && may_be_missing(list[i].name)) continue;
        spoil(form, file, list[i].name, lar_buf_slice(&bytes));
        f = open_box(model);
        found = check(f);
        if (found.count != 1 || found.problem != LAR_TENSOR_MISSING || strcmp(found.name, list[i].name))
            fail_msg("without %s: %u, %s", list[i].name, found.count, found.name);
        d = (lar_diag){0};
        lar_error e = load(f, &d);
        if (e != LAR_INVALID || !strstr(d.text, list[i].name)) fail_msg("%s: %s", list[i].name, d.text);
        lar_model_files_close(f);
    }
    free(list);
    lar_buf_release(&bytes);
}

static void missing_in_folders(void **state) {
    (void)state;
    each_tensor_missing(LAR_MODEL_FOLDER, "tiny-v3", "v3", "v3/model.safetensors");
}

static void missing_in_gguf(void **state) {
    (void)state;
    each_tensor_missing(LAR_MODEL_GGUF, "tiny-lite", "lite.gguf", "lite.gguf");
}

static void other_shapes(void **state) {
    (void)state;
    char path[BOX_PATH_BYTES];
    model_shape s = tiny("tiny-v3");
    box_folder(&test_box, "shapes");
    model_write(&s, LAR_MODEL_FOLDER, box_path(&test_box, "shapes", path));
    lar_buf config;
    read_whole("shapes/config.json", &config);
    char *at = memmem(config.ptr, config.len, "\"kv_lora_rank\": 16", 18);
    assert_non_null(at);
    at[17] = '7';
    box_write(&test_box, "shapes/config.json", lar_buf_slice(&config));
    lar_model_files *f = open_box("shapes");
    seen found = check(f);
    assert_int_equal(found.count, 3 * s.layers); /* what makes the latent, its norm, and what it becomes */
    assert_int_equal(found.problem, LAR_TENSOR_MISSHAPEN);
    lar_diag d = {0};
    assert_int_equal(load(f, &d), LAR_INVALID);
    lar_model_files_close(f);
    lar_buf_release(&config);
}

/* A scale of one block that is NaN must not become logits that are NaN. */
static void damaged_scale(void **state) {
    (void)state;
    char path[BOX_PATH_BYTES];
    model_shape s = tiny("tiny-v3");
    s.type = LAR_DTYPE_F8_E4M3;
    box_folder(&test_box, "nan");
    model_write(&s, LAR_MODEL_FOLDER, box_path(&test_box, "nan", path));
    lar_model_files *f = open_box("nan");
    static const char name[] = "model.layers.1.mlp.experts.2.down_proj.weight_scale_inv";
    const lar_tensor *t = lar_model_files_find(f, name);
    assert_non_null(t);
    lar_diag d = {0};
    assert_int_equal(load(f, &d), LAR_OK);
    lar_buf bytes;
    read_whole("nan/model.safetensors", &bytes);
    memcpy(bytes.ptr + (t->data - lar_model_files_part(f, 0)->bytes), "\0\0\xc0\xff", 4);
    lar_model_files_close(f);
    box_write(&test_box, "nan/model.safetensors", lar_buf_slice(&bytes));
    f = open_box("nan");
    assert_int_equal(load(f, &d), LAR_INVALID);
    if (!strstr(d.text, name)) fail_msg("%s", d.text);
    lar_model_files_close(f);
    lar_buf_release(&bytes);
}

static void kinds(void **state) {
    (void)state;
    static const struct {
        const char *name;
        lar_model_form form;
        lar_tensor_kind kind;
    } rows[] = {
        {"model.embed_tokens.weight", LAR_MODEL_FOLDER, LAR_KIND_EMBEDDING},
        {"model.layers.0.mlp.experts.15.up_proj.weight_scale_inv", LAR_MODEL_FOLDER, LAR_KIND_EXPERTS},
        {"model.layers.0.mlp.experts..up_proj.weight", LAR_MODEL_FOLDER, LAR_KIND_OTHER},
        {"model.layers.0.mlp.experts.1.up_proj.weights", LAR_MODEL_FOLDER, LAR_KIND_OTHER},
        {"model.layers.1.mlp.gate.e_score_correction_bias", LAR_MODEL_FOLDER, LAR_KIND_ROUTER},
        {"model.layers.2.mlp.gate.weight", LAR_MODEL_FOLDER, LAR_KIND_FURTHER},
        {"model.layers.x.mlp.gate.weight", LAR_MODEL_FOLDER, LAR_KIND_OTHER},
        {"model.layers.1.model.norm.weight", LAR_MODEL_FOLDER, LAR_KIND_OTHER},
        {"input_layernorm.weight", LAR_MODEL_FOLDER, LAR_KIND_OTHER},
        {"lm_head.weight", LAR_MODEL_FOLDER, LAR_KIND_OUTPUT},
        {"blk.1.attn_k_b.weight", LAR_MODEL_GGUF, LAR_KIND_ATTENTION},
        {"blk.1.ffn_down_shexp.weight", LAR_MODEL_GGUF, LAR_KIND_SHARED},
        {"blk.1.ffn_down.weight", LAR_MODEL_GGUF, LAR_KIND_DENSE},
        {"output_norm.weight", LAR_MODEL_GGUF, LAR_KIND_NORMS},
        {"model.norm.weight", LAR_MODEL_GGUF, LAR_KIND_OTHER},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (lar_tensor_kind_of(rows[i].name, rows[i].form, 2) != rows[i].kind) fail_msg("%s", rows[i].name);
    assert_int_equal(lar_tensor_kind_of("blk.99.ffn_norm.weight", LAR_MODEL_GGUF, 0), LAR_KIND_NORMS);
}

/* -- texts --------------------------------------------------------------------------------------------------------- */

static lar_error template_of(const char *model, lar_buf *out, lar_diag *d) {
    lar_model_files *f = open_box(model);
    lar_buf_init(out, LAR_TEMPLATE_SOURCE_BYTES_MAX);
    lar_error e = lar_model_template_source(f, out, d);
    lar_model_files_close(f);
    return e;
}

static void must_be(const char *model, lar_error expected, const char *text) {
    lar_buf out;
    lar_diag d = {0};
    lar_error e = template_of(model, &out, &d);
    if (e != expected) fail_msg("%s: %s", lar_error_name(e), d.text);
    if (!e) assert_true(lar_slice_eq_cstr(lar_buf_slice(&out), text));
    else if (!strstr(d.text, text)) fail_msg("'%s' does not hold '%s'", d.text, text);
    lar_buf_release(&out);
}

static void templates_of_folders(void **state) {
    (void)state;
    char path[BOX_PATH_BYTES];
    model_shape s = tiny("tiny-lite");
    box_folder(&test_box, "t");
    model_write(&s, LAR_MODEL_FOLDER, box_path(&test_box, "t", path));
    must_be("t", LAR_NOT_FOUND, "tokenizer_config.json");
    static const struct {
        const char *config;
        lar_error e;
        const char *text;
    } rows[] = {
        {"{", LAR_JSON_SYNTAX, "tokenizer_config.json: "},
        {"{}", LAR_NOT_FOUND, "it has no chat_template"},
        {"{\"chat_template\": null}", LAR_NOT_FOUND, "it has no chat_template"},
        {"{\"chat_template\": 5}", LAR_INVALID, "chat_template: a text is expected"},
        {"{\"chat_template\": \"{{ a }}\\n\"}", LAR_OK, "{{ a }}\n"},
        {"{\"chat_template\": [{\"name\": \"rag\", \"template\": \"r\"}]}", LAR_NOT_FOUND, "or none called default"},
        {"{\"chat_template\": [{\"name\": \"rag\", \"template\": \"r\"}, {\"name\": \"default\", \"template\": \"d\"}]}",
         LAR_OK, "d"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        box_write(&test_box, "t/tokenizer_config.json", lar_slice_cstr(rows[i].config));
        must_be("t", rows[i].e, rows[i].text);
    }
    box_write(&test_box, "t/chat_template.jinja", LAR_SLICE("file"));
    must_be("t", LAR_OK, "file");
    lar_tokenizer *t;
    lar_diag d = {0};
    lar_model_files *f = open_box("t");
    assert_int_equal(lar_model_tokenizer(f, &t, &d), LAR_NOT_FOUND);
    assert_null(t);
    assert_non_null(strstr(d.text, "tokenizer.json"));
    box_write(&test_box, "t/tokenizer.json", LAR_SLICE("{}"));
    assert_int_equal(lar_model_tokenizer(f, &t, &d), LAR_INVALID);
    assert_null(t);
    lar_model_files_close(f);
}

static void texts_of_gguf(void **state) {
    (void)state;
    char path[BOX_PATH_BYTES];
    model_shape s = tiny("tiny-lite");
    model_write(&s, LAR_MODEL_GGUF, box_path(&test_box, "texts.gguf", path));
    must_be("texts.gguf", LAR_NOT_FOUND, "tokenizer.chat_template");
    lar_model_files *f = open_box("texts.gguf");
    lar_tokenizer *t;
    lar_diag d = {0};
    if (lar_model_tokenizer(f, &t, &d)) fail_msg("%s", d.text);
    lar_model_files_close(f); /* it has copied what it needs */
    assert_int_equal(lar_tokenizer_size(t), s.vocab);
    assert_int_equal(lar_tokenizer_bos(t), 256);
    assert_int_equal(lar_tokenizer_eos(t), 257);
    lar_ids ids;
    lar_ids_init(&ids, 100);
    assert_int_equal(lar_tokenizer_encode_plain(t, LAR_SLICE("the"), &ids, &d), LAR_OK);
    assert_true(ids.count == 2 && ids.ids[0] == 258 && ids.ids[1] == 'e'); /* "th" is its one merge */
    lar_ids_release(&ids);
    lar_tokenizer_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_in_folders),   cmocka_unit_test(missing_in_gguf), cmocka_unit_test(other_shapes),
        cmocka_unit_test(damaged_scale),        cmocka_unit_test(kinds),           cmocka_unit_test(texts_of_gguf),
        cmocka_unit_test(templates_of_folders),
    };
    return cmocka_run_group_tests(tests, box_setup, box_teardown);
}
