/* Damaged and hostile model files: each ends in an error that says the file, the place, and what was expected and
 * found. Tables of damages; then every cut of a good file, and every byte of it changed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "engine/files/safetensors.h"
#include "tests/unit_engine/files/file_box.h"
#include "tests/unit_engine/files/gguf_writer.h"
#include "tests/unit_engine/files/model_maker.h"

/* -- safetensors --------------------------------------------------------------------------------------------------- */

/* A header and how many bytes follow it; what the message must hold. */
typedef struct st_damage {
    const char *header;
    uint32_t data_bytes;
    const char *expected;
} st_damage;

#define ENTRY(name, dtype, shape, from, to)                                                                            \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"
#define LONG_64 "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijkl"

static const st_damage st_damages[] = {
    {"[1]", 0, "x.safetensors: not a safetensors file: its header does not begin with {"},
    {"{ ", 0, "its header is not valid JSON"},
    {"{} {}", 0, "its header is not valid JSON"},
    {"{\"a\":[[[[[[[[[[1]]]]]]]]]]}", 0, "its header is not valid JSON"},
    {"{\"a\":1}", 0, "tensor a: its entry is not an object"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "tensor a: its dtype is not there exactly once"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "tensor a: its shape is not there exactly once"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "tensor a: its data_offsets is not there exactly once"},
    {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
     "dtype is not there exactly"},
    {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "tensor a: its dtype is not a string"},
    {"{" ENTRY("a", "I64", "[1]", 0, 8) "}", 8, "tensor a is of type I64; larder reads F32, F16, BF16, F8_E4M3"},
    {"{" ENTRY("a", "\\u0046\\u0033\\u0032X", "[1]", 0, 4) "}", 4, "tensor a is of type"},
    {"{" ENTRY("a", "F32", "7", 0, 4) "}", 4, "tensor a: its shape is not a list"},
    {"{" ENTRY("a", "F32", "[1.5]", 0, 4) "}", 4, "tensor a: its shape is not a list of whole numbers"},
    {"{" ENTRY("a", "F32", "[-1]", 0, 4) "}", 4, "tensor a: its shape is not a list of whole numbers"},
    {"{" ENTRY("a", "F32", "[18446744073709551616]", 0, 4) "}", 4, "not a list of whole numbers"},
    {"{" ENTRY("a", "F32", "[1,1,1,1,1]", 0, 4) "}", 4, "tensor a has 5 dimensions; larder reads up to 4"},
    {"{" ENTRY("a", "F32", "[0,4]", 0, 4) "}", 4, "tensor a: its shape (0, 4) has a dimension of 0"},
    {"{" ENTRY("a", "F32", "[4294967296,4294967296]", 0, 4) "}", 4, "its shape (4294967296, 4294967296) is too large"},
    {"{" ENTRY("a", "F32", "[4611686018427387904]", 0, 4) "}", 4, "its shape (4611686018427387904) is too large"},
    {"{" ENTRY("a", "F32", "[2]", 0, 4) "}", 4, "tensor a: F32 (2) takes 8 bytes, but its offsets span 4"},
    {"{" ENTRY("a", "F32", "[1]", 4, 0) "}", 4,
     "tensor a: its data_offsets is not two whole numbers, the second larger"},
    {"{" ENTRY("a", "F32", "[1]", 0, -4) "}", 4, "tensor a: its data_offsets is not two whole numbers"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,2,4]}}", 4,
     "its data_offsets is not two whole numbers"},
    {"{" ENTRY("a", "F32", "[8]", 0, 32) "}", 31,
     "tensor a: it takes 32 bytes from byte 63 on, but the file ends at 94"},
    {"{" ENTRY("a", "F32", "[1]", 18446744073709551608, 18446744073709551612) "}", 8,
     "tensor a: it takes 4 bytes from"},
    {"{" ENTRY("a", "F32", "[1]", 4, 8) "}", 8, "tensor a begins at byte"},
    {"{" ENTRY("a", "F32", "[2]", 0, 8) "," ENTRY("b", "F32", "[1]", 4, 8) "}", 8, "inside tensor a, which ends at"},
    {"{" ENTRY("a", "F32", "[1]", 0, 4) "," ENTRY("b", "F32", "[1]", 8, 12) "}", 12, "tensor b begins at byte"},
    {"{" ENTRY("a", "F32", "[1]", 0, 4) "}", 5, "its tensors end at byte"},
    {"{" ENTRY("", "F32", "[1]", 0, 4) "}", 4, "tensor 0 has a name of 0 bytes"},
    {"{" ENTRY(LONG_64 LONG_64 LONG_64 LONG_64, "F32", "[1]", 0, 4) "}", 4, "tensor 0 has a name of 256 bytes"},
    {"{" ENTRY("a\\u0000", "F32", "[1]", 0, 4) "}", 4, "tensor 0 has a name with byte 0x00 in it"},
    {"{" ENTRY("a\\u001b[1m", "F32", "[1]", 0, 4) "}", 4, "tensor 0 has a name with byte 0x1b in it"},
};

static void safetensors_bytes(const char *header, uint32_t data_bytes, lar_buf *out) {
    lar_buf_reset(out, 1 << 16);
    put_number(out, strlen(header), 8);
    put_bytes(out, header, strlen(header));
    put_zeros(out, data_bytes);
}

/* From memory that ends where the bytes end, so that a sanitizer sees a byte too far. */
static lar_error read_safetensors(lar_slice bytes, lar_diag *d) {
    uint8_t *exact = malloc(bytes.len + !bytes.len);
    assert_non_null(exact);
    if (bytes.len) memcpy(exact, bytes.ptr, bytes.len);
    lar_file_view v = {.name = "x.safetensors", .bytes = exact, .size = bytes.len};
    lar_tensor_list l;
    lar_tensor_list_init(&l);
    lar_error e = lar_safetensors_read(&v, &l, d);
    lar_tensor_list_release(&l);
    free(exact);
    return e;
}

static void must_hold(const lar_diag *d, const char *expected) {
    if (!strstr(d->text, expected)) fail_msg("'%s' does not hold '%s'", d->text, expected);
}

static void safetensors_damages(void **state) {
    (void)state;
    lar_buf b;
    lar_buf_init(&b, 1 << 20);
    for (size_t i = 0; i < sizeof st_damages / sizeof *st_damages; i++) {
        lar_diag d = {0};
        safetensors_bytes(st_damages[i].header, st_damages[i].data_bytes, &b);
        lar_error e = read_safetensors(lar_buf_slice(&b), &d);
        if (e != LAR_INVALID) fail_msg("%s: %s", st_damages[i].header, lar_error_name(e));
        must_hold(&d, "x.safetensors: ");
        must_hold(&d, st_damages[i].expected);
    }
    lar_buf_release(&b);
}

static void safetensors_starts(void **state) {
    (void)state;
    static const struct {
        lar_slice bytes;
        const char *expected;
    } starts[] = {
        {{"", 0}, "0 bytes are too few"},
        {{"\2\0\0\0\0\0\0\0{", 9}, "9 bytes are too few"},
        {{"\3\0\0\0\0\0\0\0{}", 10}, "its header has 3 bytes, but the file ends at byte 10"},
        {{"\0\0\0\0\0\0\0\0{}", 10}, "its header does not begin with {"},
        {{"\xff\xff\xff\xff\xff\xff\xff\xff{}", 10}, "its header would have 18446744073709551615 bytes; at most"},
        {{"version https://git-lfs.github.com/spec/v1\n", 43}, "this is a Git LFS pointer"},
    };
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        lar_diag d = {0};
        assert_int_equal(read_safetensors(starts[i].bytes, &d), LAR_INVALID);
        must_hold(&d, starts[i].expected);
    }
}

/* -- GGUF ---------------------------------------------------------------------------------------------------------- */

/* A small good file: 3 values, 2 tensors, 96 bytes of data. */
static void good_values(gguf_writer *w) {
    static const char *const words[] = {"a", "bc"};
    gguf_put_string(w, "general.architecture", "deepseek2");
    gguf_put_strings(w, "words", words, 2);
    gguf_put_bool(w, "yes", true);
}

static void good_tensors(gguf_writer *w) {
    (void)gguf_put_tensor(w, "first", LAR_DTYPE_Q8_0, 2, (const uint64_t[]){1, 32});
    (void)gguf_put_tensor(w, "second", LAR_DTYPE_F32, 2, (const uint64_t[]){2, 4});
}

typedef void (*gguf_damage)(gguf_writer *w);

static void claim(gguf_writer *w, uint32_t type, uint32_t dims, const uint64_t *ne, uint64_t offset) {
    gguf_put_claim(w, LAR_SLICE("bad"), type, dims, ne, offset);
}

static void version_2(gguf_writer *w) { w->version = 2; }
static void version_1(gguf_writer *w) { w->version = 1; }
static void big_endian(gguf_writer *w) { w->version = 3u << 24; }
static void many_values(gguf_writer *w) { w->value_count = 1u << 20; }
static void all_values(gguf_writer *w) { w->value_count = UINT64_MAX; }
static void one_value_more(gguf_writer *w) { w->value_count++; }
static void many_tensors(gguf_writer *w) { w->tensor_count = 1u << 21; }
static void all_tensors(gguf_writer *w) { w->tensor_count = UINT64_MAX; }
static void empty_key(gguf_writer *w) { gguf_put_u32(w, "", 1); }
static void odd_key(gguf_writer *w) { gguf_put_u32(w, "a\x1b[1m", 1); }
static void same_key(gguf_writer *w) { gguf_put_u32(w, "yes", 1); }
static void type_13(gguf_writer *w) { gguf_put_raw(w, "odd", 13, "\0\0\0\0", 4); }
static void list_in_list(gguf_writer *w) {
    gguf_put_list(w, "odd", 9, 1, lar_slice_of("\4\0\0\0\0\0\0\0\0\0\0\0", 12));
}
static void list_of_13(gguf_writer *w) { gguf_put_list(w, "odd", 13, 1, lar_slice_of("\0\0\0\0", 4)); }
static void long_list(gguf_writer *w) { gguf_put_list(w, "odd", 4, UINT64_MAX / 2, lar_slice_of("\0\0\0\0", 4)); }
static void long_strings(gguf_writer *w) { gguf_put_list(w, "odd", 8, UINT64_MAX, lar_slice_of(NULL, 0)); }
static void long_string(gguf_writer *w) { gguf_put_raw(w, "odd", 8, "\xff\xff\xff\xff\xff\xff\xff\x7f", 8); }
static void odd_bool(gguf_writer *w) { gguf_put_raw(w, "odd", 7, "\2", 1); }
static void alignment_0(gguf_writer *w) { gguf_put_u32(w, "general.alignment", 0); }
static void alignment_24(gguf_writer *w) { gguf_put_u32(w, "general.alignment", 24); }
static void alignment_large(gguf_writer *w) { gguf_put_u32(w, "general.alignment", 1u << 30); }
static void alignment_text(gguf_writer *w) { gguf_put_string(w, "general.alignment", "32"); }
static void alignment_64(gguf_writer *w) { gguf_put_u32(w, "general.alignment", 64); }
static void no_dims(gguf_writer *w) { claim(w, 0, 0, NULL, 96); }
static void five_dims(gguf_writer *w) { claim(w, 0, 5, (const uint64_t[]){1, 1, 1, 1, 1}, 96); }
static void dim_0(gguf_writer *w) { claim(w, 0, 2, (const uint64_t[]){4, 0}, 96); }
static void overflow(gguf_writer *w) { claim(w, 0, 2, (const uint64_t[]){1ull << 40, 1ull << 40}, 96); }
static void half_block(gguf_writer *w) { claim(w, 12, 2, (const uint64_t[]){1408, 2}, 96); }
static void type_q3(gguf_writer *w) { claim(w, 11, 1, (const uint64_t[]){256}, 96); }
static void type_removed(gguf_writer *w) { claim(w, 31, 1, (const uint64_t[]){256}, 96); }
static void type_ik(gguf_writer *w) { claim(w, 137, 1, (const uint64_t[]){256}, 96); }
static void type_huge(gguf_writer *w) { claim(w, UINT32_MAX, 1, (const uint64_t[]){256}, 96); }
static void beyond(gguf_writer *w) { claim(w, 0, 1, (const uint64_t[]){1}, 96); }
static void offset_wraps(gguf_writer *w) { claim(w, 0, 1, (const uint64_t[]){1}, UINT64_MAX - 31); }
static void inside(gguf_writer *w) { claim(w, 0, 1, (const uint64_t[]){1}, 32); }
static void unaligned(gguf_writer *w) { claim(w, 0, 1, (const uint64_t[]){1}, 36); }
static void long_name(gguf_writer *w) { gguf_put_claim(w, LAR_SLICE(LONG_64 "m"), 0, 1, (const uint64_t[]){1}, 96); }
static void odd_name(gguf_writer *w) { gguf_put_claim(w, LAR_SLICE("a\nb"), 0, 1, (const uint64_t[]){1}, 96); }
static void no_name(gguf_writer *w) { gguf_put_claim(w, LAR_SLICE(""), 0, 1, (const uint64_t[]){1}, 96); }

static const struct {
    gguf_damage make;
    const char *expected;
} gguf_damages[] = {
    {version_2, "x.gguf: GGUF version 2; larder reads version 3"},
    {version_1, "x.gguf: GGUF version 1; larder reads version 3"},
    {big_endian, "x.gguf: its numbers are big-endian"},
    {many_values, "x.gguf: 1048576 entries of metadata: more than"},
    {all_values, "x.gguf: 18446744073709551615 entries of metadata: more than"},
    {one_value_more, "x.gguf: "},
    {many_tensors, "x.gguf: 2097152 tensors: more than"},
    {all_tensors, "x.gguf: 18446744073709551615 tensors: more than"},
    {empty_key, "x.gguf: metadata entry 3: its key is empty"},
    {odd_key, "x.gguf: metadata entry 3: its key is empty, too long or cannot be printed"},
    {same_key, "x.gguf: metadata yes is there twice"},
    {type_13, "x.gguf: metadata odd: there is no type of value 13"},
    {list_in_list, "x.gguf: metadata odd: a list in a list"},
    {list_of_13, "x.gguf: metadata odd: there is no type of value 13"},
    {long_list, "x.gguf: a value in the metadata would take 18446744073709551615 bytes"},
    {long_strings, "x.gguf: a string in the metadata would take"},
    {long_string, "x.gguf: a string in the metadata would take 9223372036854775807 bytes"},
    {odd_bool, "x.gguf: metadata odd: 2 is neither true nor false"},
    {alignment_0, "x.gguf: general.alignment is 0; it must be a power of two"},
    {alignment_24, "x.gguf: general.alignment is 24; it must be a power of two"},
    {alignment_large, "x.gguf: general.alignment is 1073741824; it must be"},
    {alignment_text, "x.gguf: metadata general.alignment: expected a whole number, found string"},
    {alignment_64, "x.gguf: tensor second"},
    {no_dims, "x.gguf: tensor bad has 0 dimensions; 1 to 4 are read"},
    {five_dims, "x.gguf: tensor bad has 5 dimensions; 1 to 4 are read"},
    {dim_0, "x.gguf: tensor bad: its shape (0, 4) has a dimension of 0"},
    {overflow, "x.gguf: tensor bad: its shape (1099511627776, 1099511627776) is too large"},
    {half_block, "x.gguf: tensor bad: rows of 1408 values are no whole blocks of Q4_K (256)"},
    {type_q3, "x.gguf: tensor bad is of type Q3_K; larder reads F32, F16, BF16, Q4_0, Q5_0, Q5_1, Q8_0, Q4_K"},
    {type_removed, "x.gguf: tensor bad is of type unknown (31); larder reads"},
    {type_ik, "x.gguf: tensor bad is of type 137, which only ik_llama.cpp writes"},
    {type_huge, "x.gguf: tensor bad is of type 4294967295, which only ik_llama.cpp writes"},
    {beyond, "x.gguf: tensor bad: it takes 4 bytes from byte"},
    {offset_wraps, "x.gguf: tensor bad: it takes 4 bytes from byte"},
    {inside, "inside tensor first, which ends at"},
    {unaligned, "x.gguf: tensor bad: it begins 4 bytes behind a multiple of 32"},
    {long_name, "x.gguf: tensor 2 has a name of 65 bytes; at most 64 are allowed"},
    {odd_name, "x.gguf: tensor 2 has a name with byte 0x0a in it"},
    {no_name, "x.gguf: tensor 2 has a name of 0 bytes"},
};

static lar_error read_gguf(lar_slice bytes, lar_diag *d) {
    uint8_t *exact = malloc(bytes.len + !bytes.len);
    assert_non_null(exact);
    if (bytes.len) memcpy(exact, bytes.ptr, bytes.len);
    lar_file_view v = {.name = "x.gguf", .bytes = exact, .size = bytes.len};
    lar_tensor_list l;
    lar_gguf g;
    lar_tensor_list_init(&l);
    lar_error e = lar_gguf_read(&v, &g, &l, d);
    lar_gguf_release(&g);
    lar_tensor_list_release(&l);
    free(exact);
    return e;
}

static void gguf_bytes(gguf_damage make, lar_buf *out) {
    gguf_writer w;
    gguf_writer_init(&w);
    lar_buf_reset(out, 1 << 16);
    good_values(&w);
    good_tensors(&w);
    if (make) make(&w);
    gguf_header(&w, out);
    put_zeros(out, 96);
    gguf_writer_release(&w);
}

static void gguf_damaged(void **state) {
    (void)state;
    lar_buf b;
    lar_buf_init(&b, 1 << 20);
    gguf_bytes(NULL, &b);
    lar_diag d = {0};
    if (read_gguf(lar_buf_slice(&b), &d)) fail_msg("%s", d.text);
    for (size_t i = 0; i < sizeof gguf_damages / sizeof *gguf_damages; i++) {
        gguf_bytes(gguf_damages[i].make, &b);
        d = (lar_diag){0};
        lar_error e = read_gguf(lar_buf_slice(&b), &d);
        if (e != LAR_INVALID) fail_msg("%s: %s", gguf_damages[i].expected, lar_error_name(e));
        must_hold(&d, gguf_damages[i].expected);
    }
    assert_int_equal(read_gguf(LAR_SLICE("GGML\3\0\0\0"), &d), LAR_INVALID);
    must_hold(&d, "not a GGUF file");
    lar_buf_release(&b);
}

/* -- every cut, every byte ----------------------------------------------------------------------------------------- */

typedef lar_error (*reader)(lar_slice bytes, lar_diag *d);

/* A cut must be an error that names the file. A changed byte may be harmless; it must not be fatal. */
static void cuts_and_changes(reader read, lar_buf *b, const char *name) {
    for (size_t n = 0; n < b->len; n++) {
        lar_diag d = {0};
        lar_error e = read(lar_slice_of(b->ptr, n), &d);
        if (e != LAR_INVALID) fail_msg("cut at %zu: %s", n, lar_error_name(e));
        must_hold(&d, name);
    }
    for (size_t i = 0; i < b->len; i++) {
        for (int k = 0; k < 10; k++) {
            char was = b->ptr[i];
            lar_diag d = {0};
            b->ptr[i] = (char)(k < 8 ? was ^ (1 << k) : k == 8 ? 0 : 0xff);
            lar_error e = read(lar_buf_slice(b), &d);
            if (e) must_hold(&d, name);
            b->ptr[i] = was;
        }
    }
}

static void cut_and_changed(void **state) {
    (void)state;
    lar_buf b;
    lar_buf_init(&b, 1 << 20);
    gguf_bytes(NULL, &b);
    b.len -= 32; /* padding behind the last tensor may be missing */
    put_zeros(&b, 0);
    cuts_and_changes(read_gguf, &b, "x.gguf: ");
    safetensors_bytes("{" ENTRY("a", "F32", "[2,3]", 0, 24) "," ENTRY("b", "BF16", "[4]", 24, 32) "}", 32, &b);
    cuts_and_changes(read_safetensors, &b, "x.safetensors: ");
    lar_buf_release(&b);
}

/* -- folders and parts --------------------------------------------------------------------------------------------- */

static void must_refuse(const char *name, lar_error expected, const char *message) {
    char path[BOX_PATH_BYTES];
    lar_model_files *f = NULL;
    lar_diag d = {0};
    lar_error e = lar_model_files_open(box_path(&test_box, name, path), &f, &d);
    assert_null(f);
    if (e != expected) fail_msg("%s: %s, not %s (%s)", name, lar_error_name(e), lar_error_name(expected), d.text);
    must_hold(&d, message);
}

/* One folder after another, each with an index or a file that is wrong. */
typedef struct folder_damage {
    const char *index; /* NULL: none */
    const char *a, *b; /* headers of a.safetensors and b.safetensors; each with `data` zeros behind */
    uint32_t data;
    lar_error expected;
    const char *message;
} folder_damage;

#define MAP(pairs) "{\"weight_map\": {" pairs "}}"
#define A4 "{" ENTRY("a", "F32", "[1]", 0, 4) "}"
#define B4 "{" ENTRY("b", "F32", "[1]", 0, 4) "}"
#define BOTH MAP("\"a\": \"a.safetensors\", \"b\": \"b.safetensors\"")
static const folder_damage folder_damages[] = {
    {NULL, NULL, NULL, 0, LAR_NOT_FOUND, "neither model.safetensors nor model.safetensors.index.json"},
    {"{", NULL, NULL, 0, LAR_INVALID, "model.safetensors.index.json: "},
    {"[]", NULL, NULL, 0, LAR_INVALID, "model.safetensors.index.json: it has no weight_map"},
    {"{\"weight_map\": {}}", NULL, NULL, 0, LAR_INVALID, "it has no weight_map"},
    {MAP("\"a\": 5"), NULL, NULL, 0, LAR_INVALID, "byte 21: not the name of a file in this folder"},
    {MAP("\"a\": \"../a.safetensors\""), NULL, NULL, 0, LAR_INVALID, "not the name of a file in this folder"},
    {MAP("\"a\": \"/etc/passwd\""), NULL, NULL, 0, LAR_INVALID, "not the name of a file in this folder"},
    {MAP("\"a\": \"\""), NULL, NULL, 0, LAR_INVALID, "not the name of a file in this folder"},
    {BOTH, A4, NULL, 4, LAR_NOT_FOUND, "b.safetensors: this shard is not in the folder"},
    {BOTH, A4, A4, 4, LAR_INVALID, "tensor a is there twice"},
    {MAP("\"a\": \"a.safetensors\", \"c\": \"b.safetensors\""), A4, B4, 4, LAR_INVALID,
     "b.safetensors: tensor c is not in it"},
    {MAP("\"a\": \"a.safetensors\""), "{" ENTRY("a", "F32", "[1]", 0, 4) "," ENTRY("a", "F32", "[1]", 4, 8) "}", NULL,
     8, LAR_INVALID, "tensor a is there twice"},
    {MAP("\"a\": \"a.safetensors\""), "{}", NULL, 0, LAR_INVALID, "there are no tensors in it"},
    {MAP("\"a\": \"a.safetensors\""), "{" ENTRY("a", "F8_E4M3", "[2,2]", 0, 4) "}", NULL, 4, LAR_INVALID,
     "tensor a: it is F8_E4M3, so its scales are expected in a_scale_inv, which is not there"},
    {MAP("\"a\": \"a.safetensors\""), "{" ENTRY("a", "F8_E4M3", "[4]", 0, 4) "}", NULL, 4, LAR_INVALID,
     "tensor a: F8_E4M3 is read for matrices; this one has 1 dimensions"},
    {MAP("\"a\": \"a.safetensors\""),
     "{" ENTRY("a", "F8_E4M3", "[129,2]", 0, 258) "," ENTRY("a_scale_inv", "F32", "[1,1]", 258, 262) "}", NULL, 262,
     LAR_INVALID, "tensor a_scale_inv: expected F32 (2, 1), one scale for each 128 x 128, found F32 (1, 1)"},
    {MAP("\"a\": \"a.safetensors\""),
     "{" ENTRY("a", "F8_E4M3", "[1,2]", 0, 2) "," ENTRY("a_scale_inv", "BF16", "[1,1]", 2, 4) "}", NULL, 4, LAR_INVALID,
     "expected F32 (1, 1), one scale for each 128 x 128, found BF16 (1, 1)"},
};

static void put_file(const char *folder, const char *name, const char *header, uint32_t data) {
    char path[BOX_PATH_BYTES];
    lar_buf b;
    lar_buf_init(&b, 1 << 20);
    safetensors_bytes(header, data, &b);
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    box_write(&test_box, path, lar_buf_slice(&b));
    lar_buf_release(&b);
}

static void folders(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof folder_damages / sizeof *folder_damages; i++) {
        const folder_damage *x = &folder_damages[i];
        char folder[32], path[64];
        (void)snprintf(folder, sizeof folder, "f%zu", i);
        box_folder(&test_box, folder);
        must_refuse(folder, LAR_NOT_FOUND, "the folder has no config.json");
        (void)snprintf(path, sizeof path, "%s/config.json", folder);
        box_write(&test_box, path, LAR_SLICE("{}"));
        (void)snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
        if (x->index) box_write(&test_box, path, lar_slice_cstr(x->index));
        if (x->a) put_file(folder, "a.safetensors", x->a, x->data);
        if (x->b) put_file(folder, "b.safetensors", x->b, x->data);
        must_refuse(folder, x->expected, x->message);
    }
}

static void write_part(const char *name, const char *tensor, uint8_t no, uint8_t count, uint32_t total) {
    gguf_writer w;
    lar_buf out;
    gguf_writer_init(&w);
    lar_buf_init(&out, 1 << 20);
    if (count) gguf_put_raw(&w, "split.no", LAR_GGUF_U16, (const uint8_t[]){no, 0}, 2);
    if (count) gguf_put_raw(&w, "split.count", LAR_GGUF_U16, (const uint8_t[]){count, 0}, 2);
    if (total) gguf_put_u32(&w, "split.tensors.count", total);
    (void)gguf_put_tensor(&w, tensor, LAR_DTYPE_F32, 1, (const uint64_t[]){8});
    gguf_header(&w, &out);
    put_zeros(&out, 32);
    box_write(&test_box, name, lar_buf_slice(&out));
    gguf_writer_release(&w);
    lar_buf_release(&out);
}

static void parts(void **state) {
    (void)state;
    write_part("a-00001-of-00002.gguf", "t", 0, 2, 2);
    must_refuse("a-00001-of-00002.gguf", LAR_NOT_FOUND, "a-00002-of-00002.gguf: this part is not there; all 2 parts");
    write_part("a-00002-of-00002.gguf", "t", 1, 2, 2);
    must_refuse("a-00001-of-00002.gguf", LAR_INVALID, "tensor t is there twice");
    write_part("a-00002-of-00002.gguf", "u", 0, 2, 2);
    must_refuse("a-00001-of-00002.gguf", LAR_INVALID, "a-00002-of-00002.gguf: expected part 2 of 2, found part 1 of 2");
    write_part("a-00002-of-00002.gguf", "u", 1, 3, 2);
    must_refuse("a-00002-of-00002.gguf", LAR_INVALID, "expected part 2 of 2, found part 2 of 3");
    write_part("a-00002-of-00002.gguf", "u", 1, 2, 2);
    write_part("a-00001-of-00002.gguf", "t", 0, 2, 3);
    must_refuse("a-00001-of-00002.gguf", LAR_INVALID, "split.tensors.count: expected 3 tensors in all parts, found 2");
    write_part("a-00001-of-00002.gguf", "t", 0, 2, 0);
    must_refuse("a-00001-of-00002.gguf", LAR_NOT_FOUND, "its metadata has no split.tensors.count");
    write_part("renamed.gguf", "t", 1, 4, 2);
    must_refuse("renamed.gguf", LAR_INVALID,
                "renamed.gguf: it is part 2 of 4, but not called NAME-00002-of-00004.gguf");
    write_part("a-00001-of-99999.gguf", "t", 0, 2, 0);
    must_refuse("a-00001-of-99999.gguf", LAR_LIMIT, "the model has 99999 files; at most 4096");
    must_refuse("b-00003-of-00002.gguf", LAR_NOT_FOUND, "there is no such file or folder");
    char path[BOX_PATH_BYTES];
    assert_int_equal(mkfifo(box_path(&test_box, "pipe.gguf", path), 0600), 0);
    must_refuse("pipe.gguf", LAR_IO, "pipe.gguf: not a regular file");
    box_write(&test_box, "empty.gguf", LAR_SLICE(""));
    must_refuse("empty.gguf", LAR_INVALID, "empty.gguf: not a GGUF file");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(safetensors_damages),
        cmocka_unit_test(safetensors_starts),
        cmocka_unit_test(gguf_damaged),
        cmocka_unit_test(cut_and_changed),
        cmocka_unit_test(folders),
        cmocka_unit_test(parts),
    };
    return cmocka_run_group_tests(tests, box_setup, box_teardown);
}
