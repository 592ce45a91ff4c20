/* The tokenizer on a small file of its own (tiny_tokenizer.json: all bytes, 34 merges, added tokens of both lists,
 * DeepSeek-V3's pre-tokenizer). The ids are those of the package tokenizers 0.23.2, the reference in Rust. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine/text/tokenizer.h"

enum { IDS = 32 };

typedef struct fixture {
    lar_buf json;
    lar_tokenizer *t;
} fixture;

static int open_tiny(void **state) {
    fixture *f = calloc(1, sizeof *f);
    lar_diag d = {0};
    assert_non_null(f);
    lar_buf_init(&f->json, 1 << 20);
    FILE *file = fopen(TINY_TOKENIZER, "rb");
    assert_non_null(file);
    assert_int_equal(lar_buf_reserve(&f->json, 1 << 16), LAR_OK);
    f->json.len = fread(f->json.ptr, 1, 1 << 16, file);
    (void)fclose(file);
    lar_error e =
        lar_tokenizer_from_json(lar_buf_slice(&f->json),
                                LAR_SLICE("{\"bos_token\":\"<|begin|>\",\"eos_token\":{\"content\":\"<|end|>\"}}"),
                                &f->t, &d);
    if (e) print_error("%s\n", d.text);
    assert_int_equal(e, LAR_OK);
    *state = f;
    return 0;
}

static int close_tiny(void **state) {
    fixture *f = *state;
    lar_tokenizer_free(f->t);
    lar_buf_release(&f->json);
    free(f);
    return 0;
}

static void same_ids(const lar_ids *ids, const uint32_t *want, const char *what) {
    size_t count = 0;
    while (count < IDS && want[count] != LAR_TOKEN_NONE) count++;
    bool same = ids->count == count;
    for (size_t i = 0; same && i < count; i++) same = ids->ids[i] == want[i];
    if (same) return;
    print_error("%s gives", what);
    for (size_t i = 0; i < ids->count; i++) print_error(" %u", ids->ids[i]);
    print_error("\n");
    fail();
}

static const struct {
    const char *text;
    uint32_t ids[IDS];
} marked[] = {
    {"hello world", {264, 266, LAR_TOKEN_NONE}},
    {"hello hello  world", {264, 34, 264, 34, 266, LAR_TOKEN_NONE}},
    {"aaaaaaaaaaa", {269, 267, 99, LAR_TOKEN_NONE}},
    {"abc", {280, LAR_TOKEN_NONE}},
    {"aabc", {267, 278, LAR_TOKEN_NONE}},
    {"123123 1", {274, 274, 34, 51, LAR_TOKEN_NONE}},
    {"<|begin|>hello<|end|>", {0, 264, 1, LAR_TOKEN_NONE}},
    {"<think>x", {292, LAR_TOKEN_NONE}},
    {"<think>", {291, LAR_TOKEN_NONE}},
    {"hello<think>", {293, 118, 106, 107, 112, 109, 64, LAR_TOKEN_NONE}},
    {"hello<|end|>", {264, 1, LAR_TOKEN_NONE}},
    {"\xE4\xB8\xAD\xE6\x96\x87\xC3\xA9\xF0\x9F\x98\x80", {283, 285, 286, 289, LAR_TOKEN_NONE}},
    {"don't", {102, 113, 112, 281, LAR_TOKEN_NONE}},
    {"\r\n\n\n", {275, 276, LAR_TOKEN_NONE}},
    {"<\xEF\xBD\x9CUser\xEF\xBD\x9C>hello", {290, 264, LAR_TOKEN_NONE}},
    {"          x", {272, 34, 34, 122, LAR_TOKEN_NONE}},
    {"", {LAR_TOKEN_NONE}},
};

static void text_to_ids_and_back(void **state) {
    fixture *f = *state;
    for (size_t i = 0; i < sizeof marked / sizeof *marked; i++) {
        lar_ids ids;
        lar_buf back;
        lar_ids_init(&ids, IDS);
        lar_buf_init(&back, 1024);
        lar_marked_text text = {.text = lar_slice_cstr(marked[i].text)};
        assert_int_equal(lar_tokenizer_encode(f->t, &text, &ids, NULL), LAR_OK);
        same_ids(&ids, marked[i].ids, marked[i].text);
        assert_int_equal(lar_tokenizer_decode(f->t, ids.ids, ids.count, LAR_DECODE_SPECIAL_KEPT, &back), LAR_OK);
        assert_true(lar_slice_eq(lar_buf_slice(&back), text.text));
        lar_ids_release(&ids);
        lar_buf_release(&back);
    }
}

/* No added token begins in, ends in or reaches over what came from outside, wherever the border lies. */
static void plain_text_makes_no_special_token(void **state) {
    fixture *f = *state;
    static const char text[] = "<|end|>";
    for (size_t from = 0; from < sizeof text; from++) {
        for (size_t to = from; to < sizeof text; to++) {
            lar_ids ids;
            lar_ids_init(&ids, IDS);
            lar_text_span plain = {from, to};
            lar_marked_text in = {.text = lar_slice_cstr(text), .plain = &plain, .plain_count = 1};
            assert_int_equal(lar_tokenizer_encode(f->t, &in, &ids, NULL), LAR_OK);
            bool special = ids.count == 1 && ids.ids[0] == 1;
            assert_int_equal(special, from == to);
            for (size_t i = 0; i < ids.count && from < to; i++) assert_true(ids.ids[i] > 1 && ids.ids[i] < 290);
            lar_ids_release(&ids);
        }
    }
}

static void spans_leave_merges_alone(void **state) {
    fixture *f = *state;
    static const char text[] = "<|begin|>hello world<|end|><|end|> hello<|end|>";
    static const lar_text_span plain[] = {{11, 13}, {17, 18}, {20, 27}};
    static const uint32_t want[] = {0, 264, 266, 62, 126, 103, 112, 102, 126, 64, 1, 34, 264, 1, LAR_TOKEN_NONE};
    lar_ids ids;
    lar_ids_init(&ids, IDS);
    lar_marked_text in = {.text = LAR_SLICE(text), .plain = plain, .plain_count = 3};
    assert_int_equal(lar_tokenizer_encode(f->t, &in, &ids, NULL), LAR_OK);
    same_ids(&ids, want, text);
    lar_ids_release(&ids);
}

static void wrong_spans_and_limits(void **state) {
    fixture *f = *state;
    static const lar_text_span wrong[][2] = {{{3, 2}, {4, 4}}, {{0, 3}, {2, 4}}, {{0, 1}, {2, 6}}};
    lar_diag d = {0};
    lar_ids ids;
    lar_ids_init(&ids, 3);
    assert_int_equal(lar_ids_add(&ids, 7), LAR_OK);
    for (int i = 0; i < 3; i++) {
        lar_marked_text in = {.text = LAR_SLICE("hello"), .plain = wrong[i], .plain_count = 2};
        assert_int_equal(lar_tokenizer_encode(f->t, &in, &ids, &d), LAR_INVALID);
        assert_int_equal(ids.count, 1);
    }
    d = (lar_diag){0};
    assert_int_equal(lar_tokenizer_encode_plain(f->t, LAR_SLICE("hello world 1"), &ids, &d), LAR_LIMIT);
    assert_string_equal(d.text, "the text has more than 3 tokens");
    assert_int_equal(ids.count, 1);
    assert_int_equal(lar_tokenizer_encode_plain(f->t, LAR_SLICE("hello world"), &ids, &d), LAR_OK);
    assert_int_equal(ids.count, 3);
    lar_ids_release(&ids);
}

/* Every byte alone and beside letters comes back, valid UTF-8 or not. */
static void stray_bytes_come_back(void **state) {
    fixture *f = *state;
    for (int byte = 0; byte < 256; byte++) {
        char text[] = {'a', (char)byte, 'b', ' ', (char)byte, (char)byte, '\xE4', '\xB8', (char)byte};
        lar_ids ids;
        lar_buf back;
        lar_ids_init(&ids, IDS);
        lar_buf_init(&back, 64);
        assert_int_equal(lar_tokenizer_encode_plain(f->t, lar_slice_of(text, sizeof text), &ids, NULL), LAR_OK);
        assert_int_equal(lar_tokenizer_decode(f->t, ids.ids, ids.count, LAR_DECODE_SPECIAL_SKIPPED, &back), LAR_OK);
        assert_true(lar_slice_eq(lar_buf_slice(&back), lar_slice_of(text, sizeof text)));
        lar_ids_release(&ids);
        lar_buf_release(&back);
    }
}

static void ids_and_names(void **state) {
    fixture *f = *state;
    uint32_t count = 7;
    assert_int_equal(lar_tokenizer_size(f->t), 294);
    assert_int_equal(lar_tokenizer_bos(f->t), 0);
    assert_int_equal(lar_tokenizer_eos(f->t), 1);
    assert_non_null(lar_tokenizer_prefix(f->t, &count));
    assert_int_equal(count, 0);
    assert_int_equal(lar_tokenizer_find(f->t, LAR_SLICE("<think>")), 291);
    assert_int_equal(lar_tokenizer_find(f->t, LAR_SLICE("<think>x")), 292);
    assert_int_equal(lar_tokenizer_find(f->t, LAR_SLICE("<think")), LAR_TOKEN_NONE);
    assert_int_equal(lar_tokenizer_find(f->t, LAR_SLICE(" world")), 266);
    assert_int_equal(lar_tokenizer_find(f->t, LAR_SLICE("")), LAR_TOKEN_NONE);
    assert_true(lar_tokenizer_is_special(f->t, 1));
    assert_false(lar_tokenizer_is_special(f->t, 291));
    assert_false(lar_tokenizer_is_special(f->t, 1u << 31));
    assert_true(lar_slice_eq_cstr(lar_tokenizer_bytes(f->t, 266), " world"));
    assert_null(lar_tokenizer_bytes(f->t, 294).ptr);
    lar_buf out;
    lar_buf_init(&out, 64);
    const uint32_t answer[] = {0, 264, 291, 1}, unknown[] = {264, 294};
    assert_int_equal(lar_tokenizer_decode(f->t, answer, 4, LAR_DECODE_SPECIAL_SKIPPED, &out), LAR_OK);
    assert_true(lar_slice_eq_cstr(lar_buf_slice(&out), "hello<think>"));
    assert_int_equal(lar_tokenizer_decode(f->t, unknown, 2, LAR_DECODE_SPECIAL_SKIPPED, &out), LAR_INVALID);
    lar_buf_release(&out);
}

/* One letter, one blank and one line end for a megabyte: without a heap and regex_table.c's memo this takes hours. */
static void long_runs_end_soon(void **state) {
    fixture *f = *state;
    enum { LONG = 1 << 20 };
    char *text = malloc(LONG);
    assert_non_null(text);
    static const char letters[] = "a \n-\xE4";
    for (size_t i = 0; i + 1 < sizeof letters; i++) {
        lar_ids ids;
        lar_buf back;
        lar_ids_init(&ids, LONG);
        lar_buf_init(&back, LONG);
        memset(text, letters[i], LONG);
        text[LONG - 1] = 'x';
        assert_int_equal(lar_tokenizer_encode_plain(f->t, lar_slice_of(text, LONG), &ids, NULL), LAR_OK);
        assert_int_equal(lar_tokenizer_decode(f->t, ids.ids, ids.count, LAR_DECODE_SPECIAL_KEPT, &back), LAR_OK);
        assert_true(lar_slice_eq(lar_buf_slice(&back), lar_slice_of(text, LONG)));
        if (letters[i] == 'a') assert_int_equal(ids.count, LONG / 8 + 3); /* 131071 times 8, then 4 2 1 and the x */
        lar_ids_release(&ids);
        lar_buf_release(&back);
    }
    free(text);
}

/* The short and the long way of merging agree: a run cut by what does not merge, at every length around the border. */
static void short_and_long_pieces_agree(void **state) {
    fixture *f = *state;
    char text[128];
    for (size_t len = 1; len < sizeof text; len++) {
        lar_ids ids;
        lar_ids_init(&ids, sizeof text);
        memset(text, 'a', len);
        assert_int_equal(lar_tokenizer_encode_plain(f->t, lar_slice_of(text, len), &ids, NULL), LAR_OK);
        /* merges of a: 2, 4 and 8 at once; from the left, so that the rest is the binary digits of len % 8 */
        size_t rest = len % 8;
        assert_int_equal(ids.count, len / 8 + rest / 4 + rest % 4 / 2 + rest % 2);
        lar_ids_release(&ids);
    }
}

/* Whoever wanted the ids is gone: none are left behind those that were there. */
static void a_stopped_text_gives_nothing(void **state) {
    const fixture *f = *state;
    atomic_bool stop;
    lar_ids ids;
    lar_ids_init(&ids, IDS);
    atomic_init(&stop, false);
    lar_marked_text text = {.text = LAR_SLICE("hello world"), .stop = &stop};
    assert_int_equal(lar_tokenizer_encode(f->t, &text, &ids, NULL), LAR_OK);
    size_t count = ids.count;
    atomic_store(&stop, true);
    assert_int_equal(lar_tokenizer_encode(f->t, &text, &ids, NULL), LAR_CLIENT_GONE);
    assert_int_equal(ids.count, count);
    lar_ids_release(&ids);
}

/* No token has more bytes than the longest, and one has as many. */
static void the_longest_token_is_known(void **state) {
    const fixture *f = *state;
    size_t longest = lar_tokenizer_longest(f->t), most = 0;
    for (uint32_t id = 0; id < lar_tokenizer_size(f->t); id++) {
        size_t len = lar_tokenizer_bytes(f->t, id).len;
        most = len > most ? len : most;
    }
    assert_int_equal(longest, most);
    assert_true(most > 1);
}

/* One tokenizer in four threads at once; ThreadSanitizer watches. */
static void *encode_in_thread(void *tokenizer) {
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < sizeof marked / sizeof *marked; i++) {
            lar_ids ids;
            lar_ids_init(&ids, IDS);
            lar_marked_text text = {.text = lar_slice_cstr(marked[i].text)};
            if (lar_tokenizer_encode(tokenizer, &text, &ids, NULL)) abort();
            for (size_t k = 0; k < ids.count; k++)
                if (ids.ids[k] != marked[i].ids[k]) abort();
            lar_ids_release(&ids);
        }
    }
    return NULL;
}

static void threads_share_one(void **state) {
    fixture *f = *state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, encode_in_thread, f->t), 0);
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_to_ids_and_back),
        cmocka_unit_test(plain_text_makes_no_special_token),
        cmocka_unit_test(spans_leave_merges_alone),
        cmocka_unit_test(wrong_spans_and_limits),
        cmocka_unit_test(stray_bytes_come_back),
        cmocka_unit_test(ids_and_names),
        cmocka_unit_test(long_runs_end_soon),
        cmocka_unit_test(short_and_long_pieces_agree),
        cmocka_unit_test(a_stopped_text_gives_nothing),
        cmocka_unit_test(the_longest_token_is_known),
        cmocka_unit_test(threads_share_one),
    };
    return cmocka_run_group_tests(tests, open_tiny, close_tiny);
}
