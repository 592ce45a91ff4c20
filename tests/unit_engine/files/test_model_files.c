/* Opening models that are as they should be: every form, every type, every value where it belongs; metadata with types;
 * shards and parts. Models that are not: test_damaged_files.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "tests/unit_engine/files/file_box.h"
#include "tests/unit_engine/files/model_maker.h"

static lar_model_files *open_model(const char *name) {
    char path[BOX_PATH_BYTES];
    lar_model_files *f = NULL;
    lar_diag d = {0};
    lar_error e = lar_model_files_open(box_path(&test_box, name, path), &f, &d);
    if (e) fail_msg("%s: %s: %s", name, lar_error_name(e), d.text);
    return f;
}

/* A small model of one layer of each kind, wide enough for whole blocks of 256. */
static model_shape small_shape(const char *name) {
    model_shape s;
    assert_true(model_shape_named(name, &s));
    s.layers = 2, s.experts = 4, s.experts_used = 2, s.groups = s.groups_used = 1, s.vocab = 264, s.dense_ff = 256;
    return s;
}

/* Mean of squares of the differences, over that of the values: 0 where the type holds BF16 exactly. */
static double loss_of(const model_shape *s, const made_tensor *made, const lar_tensor *t) {
    uint64_t n = lar_tensor_row_elements(t), rows = lar_tensor_rows(t);
    float *want = malloc(n * sizeof *want), *got = malloc(n * sizeof *got);
    assert_true(want && got);
    double loss = 0, all = 0;
    for (uint64_t r = 0; r < rows; r += 1 + rows / 40) { /* a sample */
        made_row(s, made, r, want);
        lar_tensor_row(t, r, got);
        for (uint64_t i = 0; i < n; i++) {
            /* An FP8 value comes back with its scale; what was made is without. */
            float w = want[i];
            if (t->scale) {
                float scale[64];
                lar_tensor_row(t->scale, r / 128, scale);
                w *= scale[i / 128];
            }
            loss += pow((double)got[i] - (double)w, 2);
            all += pow((double)w, 2);
        }
    }
    free(want);
    free(got);
    return loss / all;
}

static void check_all(const model_shape *s, lar_model_form form, const lar_model_files *f, double loss_max) {
    uint32_t count;
    made_tensor *made = model_tensors(s, form, &count);
    assert_int_equal(lar_model_files_count(f), count);
    for (uint32_t i = 0; i < count; i++) {
        const lar_tensor *t = lar_model_files_find(f, made[i].name);
        assert_non_null(t);
        assert_ptr_equal(t, lar_model_files_at(f, i));
        assert_string_equal(t->name, made[i].name);
        assert_true(t->type == made[i].type && t->dims == made[i].dims);
        for (uint32_t k = 0; k < t->dims; k++) assert_true(t->shape[k] == made[i].shape[k]);
        double loss = loss_of(s, &made[i], t);
        if (loss > loss_max) fail_msg("%s loses %g", t->name, loss);
    }
    assert_null(lar_model_files_find(f, "no.such.tensor"));
    assert_null(lar_model_files_find(f, ""));
    free(made);
}

static void every_type(lar_model_form form, const char *shape, double (*loss_max)(lar_dtype)) {
    for (int type = 0; type < LAR_DTYPE_COUNT; type++) {
        const lar_dtype_info *info = lar_dtype_info_of((lar_dtype)type);
        char name[64], path[BOX_PATH_BYTES];
        if (form == LAR_MODEL_GGUF ? info->gguf < 0 : !info->safetensors) continue;
        model_shape s = small_shape(shape);
        s.type = (lar_dtype)type;
        (void)snprintf(name, sizeof name, "%s-%s", shape, info->name);
        if (form == LAR_MODEL_FOLDER) box_folder(&test_box, name);
        model_write(&s, form, box_path(&test_box, name, path));
        lar_model_files *f = open_model(name);
        assert_int_equal(lar_model_files_form(f), form);
        check_all(&s, form, f, loss_max((lar_dtype)type));
        lar_model_files_close(f);
    }
}

static double rounding(lar_dtype type) {
    switch (type) {
    case LAR_DTYPE_F32:
    case LAR_DTYPE_BF16: return 0; /* what was made are BF16 values */
    case LAR_DTYPE_F16: return 1e-7;
    case LAR_DTYPE_Q8_0: return 1e-4;
    default: return 0.02;
    }
}

static void gguf_in_every_type(void **state) {
    (void)state;
    every_type(LAR_MODEL_GGUF, "tiny-lite", rounding);
}

static void folder_in_every_type(void **state) {
    (void)state;
    every_type(LAR_MODEL_FOLDER, "tiny-v3", rounding);
}

/* attn_kv_b whole, and split with one half turned round: the same numbers. */
static void legacy_and_split(void **state) {
    (void)state;
    char path[BOX_PATH_BYTES];
    model_shape s = small_shape("tiny-v3");
    s.type = LAR_DTYPE_F32;
    model_write(&s, LAR_MODEL_GGUF, box_path(&test_box, "split.gguf", path));
    s.legacy = true;
    model_write(&s, LAR_MODEL_GGUF, box_path(&test_box, "legacy.gguf", path));
    lar_model_files *f = open_model("split.gguf"), *l = open_model("legacy.gguf");
    const lar_tensor *kv = lar_model_files_find(l, "blk.1.attn_kv_b.weight");
    const lar_tensor *k = lar_model_files_find(f, "blk.1.attn_k_b.weight");
    const lar_tensor *v = lar_model_files_find(f, "blk.1.attn_v_b.weight");
    assert_true(kv && k && v && !lar_model_files_find(f, "blk.1.attn_kv_b.weight"));
    float *whole = malloc(s.kv_rank * sizeof *whole), *part = malloc(s.kv_rank * sizeof *part);
    assert_true(whole && part);
    uint64_t head = s.heads - 1, rows = s.nope + s.v_dim;
    for (uint64_t r = 0; r < rows; r++) {
        lar_tensor_row(kv, head * rows + r, whole);
        for (uint64_t i = 0; r < s.nope && i < s.kv_rank; i++) {
            lar_tensor_row(k, head * s.kv_rank + i, part);
            assert_true(part[r] == whole[i]);
        }
        if (r < s.nope) continue;
        lar_tensor_row(v, head * s.v_dim + r - s.nope, part);
        assert_memory_equal(part, whole, s.kv_rank * sizeof *part);
    }
    free(whole);
    free(part);
    lar_model_files_close(f);
    lar_model_files_close(l);
}

/* -- metadata ------------------------------------------------------------------------------------------------------ */

static void put_metadata(gguf_writer *w) {
    static const char *const words[] = {"one", "", "three"};
    gguf_put_string(w, "text", "caf\xc3\xa9");
    gguf_put_u32(w, "u32", 4000000000u);
    gguf_put_raw(w, "i16", LAR_GGUF_I16, "\xfe\xff", 2);
    gguf_put_raw(w, "u64", LAR_GGUF_U64, "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
    gguf_put_raw(w, "i8", LAR_GGUF_I8, "\x07", 1);
    gguf_put_f32(w, "f32", 0.5f);
    gguf_put_raw(w, "f64", LAR_GGUF_F64, "\0\0\0\0\0\0\xf8\x3f", 8);
    gguf_put_bool(w, "yes", true);
    gguf_put_bool(w, "no", false);
    gguf_put_strings(w, "words", words, 3);
    gguf_put_list(w, "i32s", LAR_GGUF_I32, 2, lar_slice_of("\xff\xff\xff\xff\x05\0\0\0", 8));
    gguf_put_list(w, "f32s", LAR_GGUF_F32, 1, lar_slice_of("\0\0\x80\xbf", 4));
    gguf_put_list(w, "bools", LAR_GGUF_BOOL, 2, lar_slice_of("\0\1", 2));
    gguf_put_list(w, "none", LAR_GGUF_STRING, 0, lar_slice_of(NULL, 0));
}

static void read_numbers(const lar_gguf *g) {
    uint64_t u = 0;
    double x = 0;
    bool b = false;
    lar_diag d = {0};
    assert_int_equal(lar_gguf_u64(g, "u32", &u, &d), LAR_OK);
    assert_true(u == 4000000000u);
    assert_int_equal(lar_gguf_u64(g, "u64", &u, &d), LAR_OK);
    assert_true(u == UINT64_MAX);
    assert_int_equal(lar_gguf_u64(g, "i8", &u, &d), LAR_OK);
    assert_true(u == 7);
    assert_int_equal(lar_gguf_f64(g, "i16", &x, &d), LAR_OK);
    assert_true(x == -2);
    assert_int_equal(lar_gguf_f64(g, "f32", &x, &d), LAR_OK);
    assert_true(x == 0.5);
    assert_int_equal(lar_gguf_f64(g, "f64", &x, &d), LAR_OK);
    assert_true(x == 1.5);
    assert_int_equal(lar_gguf_bool(g, "yes", &b, &d), LAR_OK);
    assert_true(b);
    assert_int_equal(lar_gguf_bool(g, "no", &b, &d), LAR_OK);
    assert_false(b);
}

static void read_lists(const lar_gguf *g) {
    lar_diag d = {0};
    lar_slice s;
    assert_int_equal(lar_gguf_string(g, "text", &s, &d), LAR_OK);
    assert_true(lar_slice_eq_cstr(s, "caf\xc3\xa9"));
    lar_gguf_strings strings;
    assert_int_equal(lar_gguf_strings_of(g, "words", &strings, &d), LAR_OK);
    assert_true(lar_gguf_strings_next(&strings, &s) && lar_slice_eq_cstr(s, "one"));
    assert_true(lar_gguf_strings_next(&strings, &s) && s.len == 0);
    assert_true(lar_gguf_strings_next(&strings, &s) && lar_slice_eq_cstr(s, "three"));
    assert_false(lar_gguf_strings_next(&strings, &s));
    assert_int_equal(lar_gguf_strings_of(g, "none", &strings, &d), LAR_OK);
    assert_false(lar_gguf_strings_next(&strings, &s));
    const lar_gguf_value *v;
    assert_int_equal(lar_gguf_list(g, "i32s", LAR_GGUF_INTEGERS, &v, &d), LAR_OK);
    assert_true(v->count == 2 && lar_gguf_integer_at(v, 0) == -1 && lar_gguf_integer_at(v, 1) == 5);
    assert_int_equal(lar_gguf_list(g, "i32s", LAR_GGUF_FLOATS, &v, &d), LAR_OK);
    assert_true(lar_gguf_float_at(v, 0) == -1);
    assert_int_equal(lar_gguf_list(g, "f32s", LAR_GGUF_FLOATS, &v, &d), LAR_OK);
    assert_true(v->count == 1 && lar_gguf_float_at(v, 0) == -1);
    assert_int_equal(lar_gguf_list(g, "bools", LAR_GGUF_INTEGERS, &v, &d), LAR_OK);
    assert_true(lar_gguf_integer_at(v, 0) == 0 && lar_gguf_integer_at(v, 1) == 1);
}

/* A wrong kind is an error that names file, key, what was expected and what was found. */
static void wrong_kinds(const lar_gguf *g) {
    uint64_t u;
    double x;
    bool b;
    lar_slice s;
    lar_gguf_strings strings;
    const lar_gguf_value *v;
    lar_diag d = {0};
    assert_int_equal(lar_gguf_u64(g, "absent", &u, &d), LAR_NOT_FOUND);
    assert_string_equal(d.text, "meta.gguf: its metadata has no absent");
    assert_int_equal(lar_gguf_u64(g, "text", &u, &d), LAR_INVALID);
    assert_string_equal(d.text, "meta.gguf: metadata text: expected a whole number, found string");
    assert_int_equal(lar_gguf_u64(g, "i16", &u, &d), LAR_INVALID);
    assert_string_equal(d.text, "meta.gguf: metadata i16: -2 is negative");
    assert_int_equal(lar_gguf_u64(g, "f32", &u, &d), LAR_INVALID);
    assert_int_equal(lar_gguf_u64(g, "i32s", &u, &d), LAR_INVALID);
    assert_int_equal(lar_gguf_f64(g, "yes", &x, &d), LAR_INVALID);
    assert_int_equal(lar_gguf_bool(g, "u32", &b, &d), LAR_INVALID);
    assert_int_equal(lar_gguf_string(g, "words", &s, &d), LAR_INVALID);
    assert_string_equal(d.text, "meta.gguf: metadata words: expected a string, found a list of string");
    assert_int_equal(lar_gguf_strings_of(g, "text", &strings, &d), LAR_INVALID);
    assert_int_equal(lar_gguf_strings_of(g, "i32s", &strings, &d), LAR_INVALID);
    assert_int_equal(lar_gguf_list(g, "words", LAR_GGUF_FLOATS, &v, &d), LAR_INVALID);
    assert_int_equal(lar_gguf_list(g, "f32s", LAR_GGUF_INTEGERS, &v, &d), LAR_INVALID);
    assert_int_equal(lar_gguf_list(g, "u32", LAR_GGUF_INTEGERS, &v, &d), LAR_INVALID);
}

static void metadata(void **state) {
    (void)state;
    gguf_writer w;
    lar_buf out;
    gguf_writer_init(&w);
    lar_buf_init(&out, 1 << 20);
    put_metadata(&w);
    (void)gguf_put_tensor(&w, "t", LAR_DTYPE_F32, 1, (const uint64_t[]){4});
    gguf_header(&w, &out);
    put_zeros(&out, 16);
    box_write(&test_box, "meta.gguf", lar_buf_slice(&out));
    lar_model_files *f = open_model("meta.gguf");
    const lar_gguf *g = lar_model_files_metadata(f);
    assert_non_null(g);
    assert_int_equal(g->count, w.value_count);
    read_numbers(g);
    read_lists(g);
    wrong_kinds(g);
    lar_buf text;
    lar_buf_init(&text, 100);
    assert_int_equal(lar_model_files_text(f, "config.json", &text, NULL), LAR_NOT_FOUND);
    lar_model_files_close(f);
    gguf_writer_release(&w);
    lar_buf_release(&out);
}

/* -- several files ------------------------------------------------------------------------------------------------- */

/* `tensors` of one number each, called t<first>, t<first + 1>...; their values are their numbers. */
static void write_part(const char *name, uint32_t no, uint32_t count, uint32_t first, uint32_t tensors) {
    gguf_writer w;
    lar_buf out;
    gguf_writer_init(&w);
    lar_buf_init(&out, 1 << 20);
    if (!no) gguf_put_string(&w, "general.architecture", "deepseek2");
    gguf_put_raw(&w, "split.no", LAR_GGUF_U16, (const uint8_t[]){(uint8_t)no, 0}, 2);
    gguf_put_raw(&w, "split.count", LAR_GGUF_U16, (const uint8_t[]){(uint8_t)count, 0}, 2);
    gguf_put_raw(&w, "split.tensors.count", LAR_GGUF_I32, "\5\0\0\0", 4);
    for (uint32_t i = 0; i < tensors; i++) {
        char tensor[16];
        (void)snprintf(tensor, sizeof tensor, "t%u", first + i);
        (void)gguf_put_tensor(&w, tensor, LAR_DTYPE_F16, 1, (const uint64_t[]){1});
    }
    gguf_header(&w, &out);
    for (uint32_t i = 0; i < tensors; i++) {
        put_number(&out, first + i, 2);
        put_zeros(&out, 30);
    }
    box_write(&test_box, name, lar_buf_slice(&out));
    gguf_writer_release(&w);
    lar_buf_release(&out);
}

/* A part without tensors is allowed: gguf-split can put all metadata in a first part of its own. */
static void gguf_parts(void **state) {
    (void)state;
    write_part("m-00001-of-00003.gguf", 0, 3, 0, 0);
    write_part("m-00002-of-00003.gguf", 1, 3, 0, 3);
    write_part("m-00003-of-00003.gguf", 2, 3, 3, 2);
    static const char *const names[] = {"m-00001-of-00003.gguf", "m-00003-of-00003.gguf"};
    for (int k = 0; k < 2; k++) {
        lar_model_files *f = open_model(names[k]);
        assert_int_equal(lar_model_files_parts(f), 3);
        assert_string_equal(lar_model_files_part(f, 1)->name, "m-00002-of-00003.gguf");
        assert_int_equal(lar_model_files_count(f), 5);
        lar_slice arch;
        assert_int_equal(lar_gguf_string(lar_model_files_metadata(f), "general.architecture", &arch, NULL), LAR_OK);
        for (uint32_t i = 0; i < 5; i++) {
            char tensor[16];
            float y = 0;
            (void)snprintf(tensor, sizeof tensor, "t%u", i);
            const lar_tensor *t = lar_model_files_find(f, tensor);
            assert_non_null(t);
            lar_tensor_row(t, 0, &y);
            assert_true(y == (float)i * 0x1p-24f);
        }
        lar_model_files_close(f);
    }
}

static void write_safetensors(const char *name, const char *header, lar_slice data) {
    lar_buf out;
    lar_buf_init(&out, 1 << 20);
    put_number(&out, strlen(header), 8);
    put_bytes(&out, header, strlen(header));
    put_bytes(&out, data.ptr, data.len);
    box_write(&test_box, name, lar_buf_slice(&out));
    lar_buf_release(&out);
}

/* Shards found by the index; a scale in another shard than its matrix; a header with blanks behind it. */
static void folder_of_shards(void **state) {
    (void)state;
    box_folder(&test_box, "shards");
    box_write(&test_box, "shards/config.json", LAR_SLICE("{\"model_type\": \"x\"}"));
    box_write(&test_box, "shards/model.safetensors.index.json",
              LAR_SLICE(
                  "{\"metadata\": {}, \"weight_map\": {\"w\": \"b.safetensors\", \"w_scale_inv\": \"a.safetensors\","
                  "\"one\": \"a.safetensors\"}}"));
    write_safetensors("shards/a.safetensors",
                      "{\"w_scale_inv\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[2,6]},"
                      "\"one\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[0,2]}}   ",
                      lar_slice_of("\x80\x3f\0\0\0\x40", 6));
    write_safetensors("shards/b.safetensors",
                      "{\"__metadata__\":{\"format\":\"pt\"},"
                      "\"w\":{\"dtype\":\"F8_E4M3\",\"shape\":[1,2],\"data_offsets\":[0,2]}}",
                      lar_slice_of("\x38\xb8", 2));
    lar_model_files *f = open_model("shards");
    assert_int_equal(lar_model_files_parts(f), 2);
    assert_null(lar_model_files_metadata(f));
    const lar_tensor *w = lar_model_files_find(f, "w"), *one = lar_model_files_find(f, "one");
    assert_true(w && one && w->scale == lar_model_files_find(f, "w_scale_inv"));
    float y[2];
    lar_tensor_row(w, 0, y);
    assert_true(y[0] == 2 && y[1] == -2);
    assert_true(one->dims == 1 && one->shape[0] == 1);
    lar_tensor_row(one, 0, y);
    assert_true(y[0] == 1);
    lar_buf text;
    lar_buf_init(&text, 100);
    lar_diag d = {0};
    assert_int_equal(lar_model_files_text(f, "config.json", &text, &d), LAR_OK);
    assert_true(lar_slice_eq_cstr(lar_buf_slice(&text), "{\"model_type\": \"x\"}"));
    assert_int_equal(lar_model_files_text(f, "tokenizer.json", &text, &d), LAR_NOT_FOUND);
    assert_non_null(strstr(d.text, "tokenizer.json"));
    lar_buf_release(&text);
    lar_model_files_close(f);
    lar_model_files_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gguf_in_every_type), cmocka_unit_test(folder_in_every_type),
        cmocka_unit_test(legacy_and_split),   cmocka_unit_test(metadata),
        cmocka_unit_test(gguf_parts),         cmocka_unit_test(folder_of_shards),
    };
    return cmocka_run_group_tests(tests, box_setup, box_teardown);
}
