/* The name of a model: equal for equal files wherever they lie and whoever reads them, another for every changed byte,
 * and what a sample of a large file sees and does not see. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "engine/compute/panel_matmul.h"
#include "engine/compute/workers.h"
#include "engine/model/model_digest.h"
#include "tests/unit_engine/files/file_box.h"
#include "tests/unit_engine/files/model_maker.h"

static const lar_model_digest_options plain = {.reach = LAR_DIGEST_WHOLE, .attention = LAR_ATTENTION_ABSORBED};

static lar_digest digest_by(const char *name, lar_model_digest_options o, uint32_t workers) {
    char path[BOX_PATH_BYTES];
    lar_model_files *f;
    lar_digest out;
    lar_diag d = {0};
    if (!o.kernels) o.kernels = lar_kernels_panels(lar_cpu_best());
    if (lar_model_files_open(box_path(&test_box, name, path), &f, &d)) fail_msg("%s", d.text);
    assert_int_equal(lar_workers_start(workers, &o.workers, &d), LAR_OK);
    if (lar_model_digest_of(f, &o, &out, &d)) fail_msg("%s", d.text);
    lar_workers_stop(o.workers);
    lar_model_files_close(f);
    return out;
}

static lar_digest digest(const char *name) { return digest_by(name, plain, 1); }

static bool same(lar_digest a, lar_digest b) { return lar_digest_eq(&a, &b); }

static void make(const char *name, lar_model_form form, const model_shape *s) {
    char path[BOX_PATH_BYTES];
    if (form == LAR_MODEL_FOLDER) box_folder(&test_box, name);
    model_write(s, form, box_path(&test_box, name, path));
}

static model_shape tiny(void) {
    model_shape s;
    assert_true(model_shape_named("tiny-lite", &s));
    s.hidden = 64, s.kv_rank = 32, s.dense_ff = 64, s.expert_ff = 32, s.vocab = 300;
    return s;
}

static uint64_t size_of(const char *name) {
    char path[BOX_PATH_BYTES];
    int fd = open(box_path(&test_box, name, path), O_RDONLY);
    off_t size = lseek(fd, 0, SEEK_END);
    assert_true(size > 0);
    (void)close(fd);
    return (uint64_t)size;
}

/* Changes one byte by `with`; again, and it is as it was. */
static void flip(const char *name, uint64_t at, uint8_t with) {
    char path[BOX_PATH_BYTES];
    uint8_t byte;
    int fd = open(box_path(&test_box, name, path), O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    byte ^= with;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    (void)close(fd);
}

static void equal_files_have_one_name(void **state) {
    (void)state;
    model_shape s = tiny(), other = s;
    make("one", LAR_MODEL_FOLDER, &s);
    make("two", LAR_MODEL_FOLDER, &s);
    other.seed++;
    make("three", LAR_MODEL_FOLDER, &other);
    lar_digest one = digest("one");
    assert_true(same(one, digest("two")));
    assert_true(same(one, digest_by("one", plain, 3)));
    assert_false(same(one, digest("three")));
    make("one.gguf", LAR_MODEL_GGUF, &s);
    assert_false(same(one, digest("one.gguf")));
    s.type = LAR_DTYPE_F16;
    make("f16.gguf", LAR_MODEL_GGUF, &s);
    assert_false(same(digest("one.gguf"), digest("f16.gguf")));
}

static void what_is_computed_otherwise_has_another_name(void **state) {
    (void)state;
    lar_digest one = digest("one");
    lar_model_digest_options o = plain;
    o.kernels = lar_kernels_panels(LAR_CPU_SCALAR);
    assert_true(same(one, digest_by("one", o, 1))); /* the same bits */
    o.kernels = lar_kernels_reference();
    assert_false(same(one, digest_by("one", o, 1)));
    lar_digest seen[LAR_ACTIVATIONS_BY_TYPE + 1];
    for (int i = 0; i <= (int)LAR_ACTIVATIONS_BY_TYPE; i++) {
        o = plain;
        o.activations = (lar_activations)i;
        seen[i] = digest_by("one", o, 1);
        for (int k = 0; k < i; k++) assert_false(same(seen[k], seen[i]));
    }
    o = plain;
    o.attention = LAR_ATTENTION_BY_LENGTH;
    assert_false(same(one, digest_by("one", o, 1)));
}

static void every_changed_byte_changes_the_name(void **state) {
    (void)state;
    static const char weights[] = "one/model.safetensors";
    lar_digest one = digest("one");
    uint64_t size = size_of(weights);
    char path[BOX_PATH_BYTES];
    lar_model_files *f;
    lar_diag d = {0};
    assert_int_equal(lar_model_files_open(box_path(&test_box, "one", path), &f, &d), LAR_OK);
    const lar_file_view *part = lar_model_files_part(f, 0);
    const uint8_t *name = memmem(part->bytes, part->size, "q_proj", 6);
    assert_non_null(name);
    uint64_t in_header = (uint64_t)(name - part->bytes);
    lar_model_files_close(f);
    flip(weights, in_header, 1); /* "p_proj": another tensor's name */
    assert_false(same(one, digest("one")));
    flip(weights, in_header, 1);
    for (uint64_t at = size - 1; at > size / 3; at -= size / 50 + 1) {
        flip(weights, at, 1);
        assert_false(same(one, digest("one")));
        flip(weights, at, 1);
    }
    assert_true(same(one, digest("one")));
    flip("one/config.json", size_of("one/config.json") - 2, '\n' ^ ' ');
    assert_false(same(one, digest("one")));
}

/* Large files by samples: the header, any change of size, and whatever changes weights everywhere. */
static void samples_see_what_they_say(void **state) {
    (void)state;
    lar_model_digest_options sampled = plain;
    sampled.reach = LAR_DIGEST_SAMPLED;
    lar_digest small = digest_by("two", sampled, 1), whole = digest("two");
    assert_false(same(small, whole));
    flip("two/model.safetensors", size_of("two/model.safetensors") / 2, 1);
    assert_false(same(small, digest_by("two", sampled, 1))); /* small enough to be read whole */

    model_shape s = tiny();
    s.vocab = 70000, s.type = LAR_DTYPE_F32;
    make("large", LAR_MODEL_FOLDER, &s);
    static const char weights[] = "large/model.safetensors";
    uint64_t size = size_of(weights), room = (uint64_t)LAR_DIGEST_SAMPLES * LAR_DIGEST_SAMPLE_BYTES;
    assert_true(size > 2 * room);
    lar_digest large = digest_by("large", sampled, 2);
    assert_true(same(large, digest_by("large", sampled, 1)));
    flip(weights, size - 1, 1);
    assert_false(same(large, digest_by("large", sampled, 1)));
    flip(weights, size - 1, 1);
    uint32_t seen = 0, tries = 60;
    for (uint32_t i = 1; i <= tries; i++) {
        uint64_t at = size / (tries + 2) * i + i;
        flip(weights, at, 1);
        seen += !same(large, digest_by("large", sampled, 1));
        flip(weights, at, 1);
    }
    double share = (double)room / (double)size;
    print_message("of %u changed bytes %u were seen; the samples are %.0f %% of the file\n", tries, seen, share * 100);
    assert_true(seen > tries * share / 2 && seen < tries); /* spread over the file, and a sample indeed */
    s.seed++;
    make("trained anew", LAR_MODEL_FOLDER, &s);
    assert_int_equal(size_of("trained anew/model.safetensors"), size);
    assert_false(same(large, digest_by("trained anew", sampled, 1)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_files_have_one_name),
        cmocka_unit_test(what_is_computed_otherwise_has_another_name),
        cmocka_unit_test(every_changed_byte_changes_the_name),
        cmocka_unit_test(samples_see_what_they_say),
    };
    return cmocka_run_group_tests(tests, box_setup, box_teardown);
}
