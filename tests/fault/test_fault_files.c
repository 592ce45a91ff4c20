/* Every allocation fails once while a model is opened, as a folder of shards, as GGUF in parts: the answer is NO_MEMORY
 * with a message, nothing leaks, and the next try opens it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "engine/files/model_files.h"
#include "tests/fault/fail_alloc.h"
#include "tests/unit_engine/files/file_box.h"
#include "tests/unit_engine/files/gguf_writer.h"

static lar_error open_and_read(const char *path) {
    lar_model_files *f = NULL;
    lar_diag d = {0};
    lar_error e = lar_model_files_open(path, &f, &d);
    if (e) return *d.text && !f ? e : LAR_CORRUPT;
    float y[32];
    lar_tensor_row(lar_model_files_at(f, 0), 0, y);
    lar_buf text;
    lar_buf_init(&text, 1000);
    if (lar_model_files_form(f) == LAR_MODEL_FOLDER) e = lar_model_files_text(f, "config.json", &text, &d);
    lar_buf_release(&text);
    lar_model_files_close(f);
    return e;
}

static void fail_each(const char *name, unsigned at_least) {
    char path[BOX_PATH_BYTES];
    box_path(&test_box, name, path);
    for (unsigned n = 1;; n++) {
        fail_alloc_at(n);
        lar_error e = open_and_read(path);
        long live = fail_alloc_live();
        bool failed = fail_alloc_end();
        assert_int_equal(live, 0);
        if (!failed) {
            assert_int_equal(e, LAR_OK);
            assert_in_range(n, at_least, 200);
            return;
        }
        assert_int_equal(e, LAR_NO_MEMORY);
    }
}

static void write_part(const char *name, uint8_t no) {
    gguf_writer w;
    lar_buf out;
    gguf_writer_init(&w);
    lar_buf_init(&out, 1 << 20);
    gguf_put_raw(&w, "split.no", 2, (const uint8_t[]){no, 0}, 2);
    gguf_put_u32(&w, "split.count", 2);
    gguf_put_u32(&w, "split.tensors.count", 1400);
    for (unsigned i = 0; i < 700; i++) { /* the list grows several times */
        char tensor[64];
        (void)snprintf(tensor, sizeof tensor, "a.name.that.takes.some.room.%u.%u", no, i);
        (void)gguf_put_tensor(&w, tensor, LAR_DTYPE_F32, 1, (const uint64_t[]){8});
    }
    gguf_header(&w, &out);
    put_zeros(&out, 700 * 32);
    box_write(&test_box, name, lar_buf_slice(&out));
    gguf_writer_release(&w);
    lar_buf_release(&out);
}

static void parts(void **state) {
    (void)state;
    write_part("m-00001-of-00002.gguf", 0);
    write_part("m-00002-of-00002.gguf", 1);
    fail_each("m-00002-of-00002.gguf", 15);
}

static void write_shard(const char *name, const char *header, size_t data) {
    lar_buf out;
    lar_buf_init(&out, 1 << 20);
    put_number(&out, strlen(header), 8);
    put_bytes(&out, header, strlen(header));
    put_zeros(&out, data);
    box_write(&test_box, name, lar_buf_slice(&out));
    lar_buf_release(&out);
}

static void shards(void **state) {
    (void)state;
    box_folder(&test_box, "f");
    box_write(&test_box, "f/config.json", LAR_SLICE("{}"));
    box_write(&test_box, "f/model.safetensors.index.json",
              LAR_SLICE("{\"weight_map\":{\"a\":\"1.st\",\"b\":\"2.st\"}}"));
    write_shard("f/1.st", "{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,2],\"data_offsets\":[0,4]}}", 4);
    write_shard("f/2.st",
                "{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                "\"a_scale_inv\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[4,8]}}",
                8);
    fail_each("f", 15);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts), cmocka_unit_test(shards)};
    return cmocka_run_group_tests(tests, box_setup, box_teardown);
}
