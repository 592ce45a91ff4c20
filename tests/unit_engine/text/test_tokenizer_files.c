/* Opening a tokenizer: what is refused, and how it says so; GGUF's arrays. Each case of a file is tiny_tokenizer.json
 * with one text replaced by another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/utf8.h"
#include "engine/text/tokenizer.h"

static lar_buf tiny;

static int read_tiny(void **state) {
    (void)state;
    lar_buf_init(&tiny, 1 << 20);
    FILE *file = fopen(TINY_TOKENIZER, "rb");
    assert_non_null(file);
    assert_int_equal(lar_buf_reserve(&tiny, 1 << 16), LAR_OK);
    tiny.len = fread(tiny.ptr, 1, 1 << 16, file);
    (void)fclose(file);
    return 0;
}

static int release_tiny(void **state) {
    (void)state;
    lar_buf_release(&tiny);
    return 0;
}

/* tiny with the first `from` replaced; the caller releases. */
static lar_buf changed(const char *from, const char *to) {
    lar_buf out;
    lar_buf_init(&out, 1 << 22);
    const char *at = from[0] ? memmem(tiny.ptr, tiny.len, from, strlen(from)) : tiny.ptr + tiny.len;
    assert_non_null(at);
    size_t before = (size_t)(at - tiny.ptr);
    assert_int_equal(lar_buf_add(&out, tiny.ptr, before), LAR_OK);
    assert_int_equal(lar_buf_add(&out, to, strlen(to)), LAR_OK);
    assert_int_equal(lar_buf_add(&out, at + strlen(from), tiny.len - before - strlen(from)), LAR_OK);
    return out;
}

#define SPLIT3                                                                                                         \
    "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"\\\\p{N}{1,3}\"}, \"behavior\": \"Isolated\", \"invert\": false}"
#define POST "\"post_processor\": {\"type\": \"ByteLevel\""

static const struct {
    const char *from, *to, *says;
} refused[] = {
    {"", "x", "tokenizer.json: the file: "},
    {"{", "[", "tokenizer.json: the file: "},
    {"\"behavior\": \"Isolated\", \"invert\": false", "\"behavior\": \"Removed\", \"invert\": true",
     "Split: invert with \"Removed\" is not supported"},
    {"\"normalizers\": []", "\"normalizers\": [{\"type\": \"NFC\"}]", "normalizer: the type \"NFC\" is not supported"},
    {"{\"type\": \"Sequence\", \"normalizers\": []}", "{\"type\": \"Lowercase\"}",
     "normalizer: the type \"Lowercase\""},
    {"\"decoder\": {\"type\": \"ByteLevel\"", "\"decoder\": {\"type\": \"Metaspace\"",
     "decoder: the type \"Metaspace\""},
    {POST, "\"post_processor\": {\"type\": \"BertProcessing\"", "post_processor: the type \"BertProcessing\""},
    {"\"type\": \"BPE\"", "\"type\": \"Unigram\"", "model: the type \"Unigram\" is not supported"},
    {"\"type\": \"BPE\"", "\"typ\": \"BPE\"", "model: the type  is not supported"},
    {"\"model\": {", "\"model\": 3, \"x\": {", "model: an object is expected"},
    {"\"dropout\": null", "\"dropout\": 0.1", "model: dropout 0.1 is not supported"},
    {"\"byte_fallback\": false", "\"byte_fallback\": true", "model: byte_fallback true is not supported"},
    {"\"end_of_word_suffix\": null", "\"end_of_word_suffix\": \"</w>\"",
     "end_of_word_suffix \"</w>\" is not supported"},
    {"\"fuse_unk\": false", "\"ignore_merges\": 1", "ignore_merges: it is neither true nor false"},
    /* tokens */
    {"\"vocab\": {", "\"vocab\": [], \"x\": {", "model.vocab: an object is expected"},
    {"\"#\": 37", "\"#\": 38", "two tokens of the vocabulary have the id 38"},
    {"\"#\": 37", "\"#\": 99999999", "model.vocab: the id 99999999 is not supported"},
    {"\"#\": 37", "\"#\": -1", "model.vocab: the id -1 is not supported"},
    {"\"#\": 37", "\"#\": \"37\"", "model.vocab: the id \"37\" is not supported"},
    {"\"#\": 37", "\"#\": 3.5", "model.vocab: the id 3.5 is not supported"},
    {"\"#\": 37", "\"##\": 37", "the vocabulary has no token for the byte 0x23"},
    {"\"abc\": 280", "\"bc\": 280", "the tokens 278 and 280 are the same text"},
    {"\"<|begin|>\": 0", "\"<|beg|>\": 0", "two tokens of the vocabulary have the id 0"},
    {"\"added_tokens\": [", "\"added_tokens\": 4, \"x\": [", "added_tokens: an array is expected"},
    {"{\"id\": 0, ", "{\"id\": 1, ", "two tokens of the vocabulary have the id 1"},
    {"{\"id\": 290, ", "{", "added_tokens: the id  is not supported"},
    {"\"content\": \"<think>\"", "\"content\": \"<think>x\"", "are the same text"},
    {"\"content\": \"<think>\"", "\"content\": \"\"", "the added token 291 has 0 bytes"},
    {"\"content\": \"<think>\"", "\"content\": 5", "added_tokens.content: a text is expected"},
    {"\"lstrip\": false", "\"lstrip\": true", "lstrip, rstrip or single_word of \"<|begin|>\" is not supported"},
    {"\"rstrip\": false", "\"rstrip\": true", "lstrip, rstrip or single_word of"},
    {"\"single_word\": false", "\"single_word\": true", "lstrip, rstrip or single_word of"},
    {"\"special\": true", "\"special\": 1", "special: it is neither true nor false"},
    /* merges */
    {"\"h e\"", "\"h q q\"", "model.merges: the merge \"h q q\" is not supported"},
    {"\"h e\"", "\"he\"", "the merge \"he\" is not supported"},
    {"\"h e\"", "[\"h\"]", "the merge [\"h\"] is not supported"},
    {"\"h e\"", "[\"h\", 3]", "model.merges: a text is expected"},
    {"\"h e\"", "\"h z\"", "merge 0 joins or makes what is no token (1 and 1 bytes: h z)"},
    {"\"h e\"", "\"hello world\"", "merge 0 joins or makes what is no token"},
    {"\"h e\"", "\"\xE4\xB8\xAD e\"", "merge 0 is not written in the byte-level alphabet"},
    {"\"merges\": [", "\"merges\": {}, \"x\": [", "model.merges: an array is expected"},
    /* pre-tokenizers */
    {SPLIT3, "{\"type\": \"Metaspace\"}", "pre_tokenizer: the type \"Metaspace\" is not supported"},
    {SPLIT3, "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}", "behind ByteLevel, {\"type\": \"Split\""},
    {"\"pretokenizers\": [", "\"pretokenizers\": 1, \"x\": [", "pre_tokenizer.pretokenizers: an array is expected"},
    {"\"add_prefix_space\": false", "\"add_prefix_space\": true", "ByteLevel: add_prefix_space is not supported"},
    {"\"behavior\": \"Isolated\"", "\"behavior\": \"MergedWithNext\"", "Split: the behavior \"MergedWithNext\" is not"},
    {"\"invert\": false", "\"invert\": true", "Split: invert with \"Isolated\" is not supported"},
    {"{\"Regex\": \"\\\\p{N}{1,3}\"}", "7", "Split.pattern: a text is expected"},
    {"\\\\p{N}{1,3}", "(?<=a)b", "pre_tokenizer: the regular expression, at byte 0: this kind of group"},
    {"\\\\p{N}{1,3}", "a*", "it can match nothing"},
    {SPLIT3, "{\"type\": \"Punctuation\", \"behavior\": \"Removed\"}",
     "Punctuation: the behavior \"Removed\" is not supported"},
    {"\"type\": \"ByteLevel\", \"add_prefix_space\": false", "\"type\": \"Digits\"",
     "without ByteLevel the vocabulary"},
    /* templates behind the model */
    {POST, "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": []",
     "the template has no place for the text"},
    {POST,
     "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {}}, {\"SpecialToken\": {\"id\": \"<|end|>\"}}]",
     "behind the text, unknown or too many: the token \"<|end|>\" is not supported"},
    {POST, "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}]",
     "the token \"<s>\" is not supported"},
};

static void says(const lar_diag *d, const char *text, const char *change) {
    if (strstr(d->text, text)) return;
    print_error("with %s it says: %s\n", change, d->text);
    fail();
}

static void unsupported_files_are_refused_by_name(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        lar_buf file = changed(refused[i].from, refused[i].to);
        lar_diag d = {0};
        lar_tokenizer *t = NULL;
        lar_error e = lar_tokenizer_from_json(lar_buf_slice(&file), (lar_slice){0}, &t, &d);
        if (!e) print_error("%s is accepted\n", refused[i].to);
        assert_int_not_equal(e, LAR_OK);
        says(&d, refused[i].says, refused[i].to);
        lar_buf_release(&file);
    }
}

static void every_cut_file_is_refused(void **state) {
    (void)state;
    for (size_t len = 0; len + 1 < tiny.len; len += 1 + len / 64) {
        lar_tokenizer *t = NULL;
        assert_int_not_equal(lar_tokenizer_from_json(lar_slice_of(tiny.ptr, len), (lar_slice){0}, &t, NULL), LAR_OK);
    }
}

static const struct {
    const char *from, *to;
    uint32_t prefix, count;
} accepted[] = {
    {"\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": []}", "\"normalizer\": null", 0, 0},
    {"\"dropout\": null", "\"dropout\": 0.0", 0, 0},
    {"\"truncation\": null", "\"truncation\": {\"max_length\": 9}", 0, 0},
    {"\"padding\": null", "\"padding\": {\"strategy\": \"BatchLongest\"}", 0, 0},
    {"\"continuing_subword_prefix\": null", "\"continuing_subword_prefix\": \"\"", 0, 0},
    {"\"h e\"", "[\"h\", \"e\"]", 0, 0},
    {"\"fuse_unk\": false", "\"ignore_merges\": true", 0, 0},
    {"{\"Regex\": \"\\\\p{N}{1,3}\"}", "{\"String\": \"1.2\"}", 0, 0},
    {POST,
     "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<|begin|>\"}}, {\"Sequence\": {\"id\": \"A\"}}]",
     0, 1},
    {POST,
     "\"post_processor\": {\"type\": \"Sequence\", \"processors\": [{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<think>\"}}, {\"Sequence\": {}}]}]",
     291, 1},
};

static void other_forms_are_read(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
        lar_buf file = changed(accepted[i].from, accepted[i].to);
        lar_diag d = {0};
        lar_tokenizer *t = NULL;
        lar_error e = lar_tokenizer_from_json(lar_buf_slice(&file), (lar_slice){0}, &t, &d);
        if (e) print_error("%s: %s\n", accepted[i].to, d.text);
        assert_int_equal(e, LAR_OK);
        uint32_t count;
        const uint32_t *prefix = lar_tokenizer_prefix(t, &count);
        assert_int_equal(count, accepted[i].count);
        if (count) assert_int_equal(prefix[0], accepted[i].prefix);
        assert_int_equal(lar_tokenizer_bos(t), LAR_TOKEN_NONE);
        lar_tokenizer_free(t);
        lar_buf_release(&file);
    }
}

static const struct {
    const char *config, *says;
} configs[] = {
    {"{\"bos_token\":\"<s>\"}", "tokenizer_config.json: bos_token: there is no such token"},
    {"{\"eos_token\":3}", "tokenizer_config.json: eos_token: a text is expected"},
    {"{\"add_bos_token\":true}", "add_bos_token is set, but there is no bos_token"},
    {"{\"bos_token\":", "tokenizer_config.json: "},
    {"{\"bos_token\":null,\"eos_token\":\"<think>\",\"add_bos_token\":false}", NULL},
    {"{\"bos_token\":\"<|begin|>\",\"add_bos_token\":true}", NULL},
};

static void configurations(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        lar_diag d = {0};
        lar_tokenizer *t = NULL;
        lar_error e = lar_tokenizer_from_json(lar_buf_slice(&tiny), lar_slice_cstr(configs[i].config), &t, &d);
        assert_int_equal(e == LAR_OK, configs[i].says == NULL);
        if (configs[i].says) says(&d, configs[i].says, configs[i].config);
        uint32_t count = 9;
        if (!e) (void)lar_tokenizer_prefix(t, &count);
        if (!e) assert_int_equal(count, strstr(configs[i].config, ":true") ? 1 : 0);
        lar_tokenizer_free(t);
    }
}

/* -- tiktoken.model ------------------------------------------------------------------------------------------------ */

/* All bytes, in the order of their values, then "ab", "bc", "abc" and " a". */
static lar_buf tiktoken_file(void) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    lar_buf out;
    lar_buf_init(&out, 1 << 14);
    for (unsigned b = 0; b < 256; b++)
        assert_int_equal(lar_buf_printf(&out, "%c%c== %u\n", digits[b >> 2], digits[(b & 3) << 4], b), LAR_OK);
    assert_int_equal(lar_buf_printf(&out, "YWI= 256\nYmM= 257\nYWJj 258\nIGE= 259\n"), LAR_OK);
    return out;
}

#define TIKTOKEN_CONFIG(more)                                                                                          \
    "{\"tokenizer_class\":\"TikTokenTokenizer\",\"bos_token\":\"[BOS]\",\"added_tokens_decoder\":{"                    \
    "\"260\":{\"content\":\"[BOS]\",\"special\":true},\"262\":{\"content\":\"<|im_end|>\",\"special\":false" more      \
    "}}}"

static void tiktoken_files(void **state) {
    (void)state;
    lar_buf file = tiktoken_file();
    lar_tokenizer *t = NULL;
    lar_diag d = {0};
    lar_error e = lar_tokenizer_from_tiktoken(lar_buf_slice(&file), LAR_SLICE(TIKTOKEN_CONFIG("")), &t, &d);
    if (e) print_error("%s\n", d.text);
    assert_int_equal(e, LAR_OK);
    assert_int_equal(lar_tokenizer_size(t), 516);
    assert_int_equal(lar_tokenizer_bos(t), 260);
    assert_int_equal(lar_tokenizer_find(t, LAR_SLICE("<|im_end|>")), 262);
    assert_int_equal(lar_tokenizer_find(t, LAR_SLICE("<|reserved_token_261|>")), 261);
    assert_false(lar_tokenizer_is_special(t, 262));
    static const struct {
        const char *text;
        uint32_t count, ids[4];
    } texts[] = {{"abc", 1, {258}},
                 {" abc", 2, {' ', 258}},
                 {"abca", 2, {258, 'a'}},
                 {"abcabc", 2, {258, 258}},
                 {"[BOS]a", 2, {260, 'a'}}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        lar_ids ids;
        lar_ids_init(&ids, 16);
        lar_marked_text text = {.text = lar_slice_cstr(texts[i].text)};
        assert_int_equal(lar_tokenizer_encode(t, &text, &ids, NULL), LAR_OK);
        assert_int_equal(ids.count, texts[i].count);
        assert_memory_equal(ids.ids, texts[i].ids, ids.count * sizeof *ids.ids);
        lar_ids_release(&ids);
    }
    lar_tokenizer_free(t);
    lar_buf_release(&file);
}

static void refuse_tiktoken(const char *more, const char *config, const char *text) {
    lar_buf file = tiktoken_file();
    lar_tokenizer *t = NULL;
    lar_diag d = {0};
    assert_int_equal(lar_buf_add(&file, more, strlen(more)), LAR_OK);
    assert_int_not_equal(lar_tokenizer_from_tiktoken(lar_buf_slice(&file), lar_slice_cstr(config), &t, &d), LAR_OK);
    says(&d, text, more[0] ? more : config);
    lar_buf_release(&file);
}

static void wrong_tiktoken_files(void **state) {
    (void)state;
    static const char good[] = TIKTOKEN_CONFIG("");
    refuse_tiktoken("abc", good, "tiktoken.model: line 261: it is not a token and a rank");
    refuse_tiktoken("YWFh 4294967296", good, "line 261: the rank is too large");
    refuse_tiktoken("YWFh 26x", good, "line 261: the rank is not a number");
    refuse_tiktoken("YWFh ", good, "line 261: the rank is missing");
    refuse_tiktoken("YW*h 260", good, "line 261: the token is not base64");
    refuse_tiktoken("= 260", good, "line 261: the token is empty");
    refuse_tiktoken("YWFh 3\n", good, "two tokens of the vocabulary have the id 3");
    refuse_tiktoken("YWI= 260\n", good, "the id 260 is not one of the 256 behind rank 260");
    refuse_tiktoken("YWI= 259\n", good, "two tokens of the vocabulary have the id 259");
    refuse_tiktoken("", "{}", "TikTokenTokenizer alone (Moonlight, Kimi) is supported");
    refuse_tiktoken("", "{\"tokenizer_class\":\"QWenTokenizer\"}", "TikTokenTokenizer alone");
    refuse_tiktoken("", "{\"tokenizer_class\":\"TikTokenTokenizer\"}", "added_tokens_decoder: an object is expected");
    refuse_tiktoken("", TIKTOKEN_CONFIG(",\"lstrip\":true"), "token 262: lstrip is not supported");
    refuse_tiktoken("", TIKTOKEN_CONFIG(",\"content\":3"), "token 262 has no content");
    refuse_tiktoken("", TIKTOKEN_CONFIG("},\"9x\":{"), "the id 9x is not one of the 256 behind rank 259");
    refuse_tiktoken("", TIKTOKEN_CONFIG("},\"9\":{"), "the id 9 is not one of the 256");
    refuse_tiktoken("", TIKTOKEN_CONFIG("},\"300\":{\"content\":\"[BOS]\""), "are the same text");
    refuse_tiktoken("", TIKTOKEN_CONFIG("},\"260\":{\"content\":\"x\""),
                    "two tokens of the vocabulary have the id 260");
}

/* -- GGUF ---------------------------------------------------------------------------------------------------------- */

enum { TOKENS = 263 };

typedef struct arrays {
    char letters[256][4]; /* each byte in the byte-level alphabet */
    lar_slice tokens[TOKENS];
    int32_t types[TOKENS];
    lar_slice merges[3];
    lar_tokenizer_parts parts;
} arrays;

static void fill(arrays *a) {
    uint32_t others = 0;
    for (uint32_t byte = 0; byte < 256; byte++) {
        bool itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
        uint32_t code = itself ? byte : 0x100 + others++;
        a->tokens[byte] = lar_slice_of(a->letters[byte], lar_utf8_write(code, a->letters[byte]));
        a->types[byte] = 1;
    }
    static const char *const more[TOKENS - 256] = {"ab",
                                                   ("\xC4\xA0"
                                                    "ab"),
                                                   "<|end|>",
                                                   "<tool>",
                                                   "[PAD260]",
                                                   "",
                                                   "abc"};
    static const int32_t types[TOKENS - 256] = {1, 1, 3, 4, 5, 5, 1};
    for (uint32_t i = 256; i < TOKENS; i++) {
        a->tokens[i] = lar_slice_cstr(more[i - 256]);
        a->types[i] = types[i - 256];
    }
    a->merges[0] = LAR_SLICE("a b");
    a->merges[1] = LAR_SLICE("\xC4\xA0 ab");
    a->merges[2] = LAR_SLICE("ab c");
    a->parts = (lar_tokenizer_parts){.model = LAR_SLICE("gpt2"),
                                     .pre = LAR_SLICE("deepseek-v3"),
                                     .tokens = a->tokens,
                                     .token_count = TOKENS,
                                     .types = a->types,
                                     .merges = a->merges,
                                     .merge_count = 3,
                                     .bos = LAR_TOKEN_NONE,
                                     .eos = 258};
}

static void gguf_arrays(void **state) {
    (void)state;
    arrays *a = calloc(1, sizeof *a);
    assert_non_null(a);
    static const char *const families[] = {"deepseek-v3", "joyai-llm",   "deepseek-llm", "deepseek-coder",
                                           "glm4",        "chatglm-bpe", "kimi-k2"};
    static const uint32_t want[] = {257, 262, 259, 258};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        fill(a);
        a->parts.pre = lar_slice_cstr(families[i]);
        lar_diag d = {0};
        lar_tokenizer *t = NULL;
        lar_error e = lar_tokenizer_from_parts(&a->parts, &t, &d);
        if (e) print_error("%s: %s\n", families[i], d.text);
        assert_int_equal(e, LAR_OK);
        lar_ids ids;
        lar_ids_init(&ids, 64);
        lar_marked_text text = {.text = LAR_SLICE(" ab\nabc<tool><|end|>")};
        assert_int_equal(lar_tokenizer_encode(t, &text, &ids, NULL), LAR_OK);
        assert_int_equal(ids.count, 5);
        assert_int_equal(ids.ids[0], want[0]);
        assert_int_equal(ids.ids[1], '\n');
        assert_memory_equal(ids.ids + 2, want + 1, 3 * sizeof *want);
        assert_int_equal(lar_tokenizer_eos(t), 258);
        assert_true(lar_tokenizer_is_special(t, 258));
        assert_false(lar_tokenizer_is_special(t, 259));
        assert_true(lar_slice_eq_cstr(lar_tokenizer_bytes(t, 260), "[PAD260]"));
        lar_ids_release(&ids);
        lar_tokenizer_free(t);
    }
    free(a);
}

static void refuse_parts(arrays *a, const char *text) {
    lar_diag d = {0};
    lar_tokenizer *t = NULL;
    assert_int_not_equal(lar_tokenizer_from_parts(&a->parts, &t, &d), LAR_OK);
    says(&d, text, "these arrays");
    fill(a);
}

static void wrong_gguf_arrays(void **state) {
    (void)state;
    arrays *a = calloc(1, sizeof *a);
    assert_non_null(a);
    fill(a);
    a->parts.model = LAR_SLICE("llama");
    refuse_parts(a, "tokenizer.ggml.model is \"llama\"; \"gpt2\" (byte-level BPE) alone is supported");
    a->parts.pre = LAR_SLICE("falcon");
    refuse_parts(a, "the pre-tokenizer \"falcon\" is not supported");
    a->parts.pre = (lar_slice){0};
    refuse_parts(a, "the pre-tokenizer \"\" is not supported");
    a->types[9] = 6;
    refuse_parts(a, "token 9 has type 6");
    a->parts.token_count = 256;
    refuse_parts(a, "merge 0 joins or makes what is no token");
    a->parts.token_count = 200;
    refuse_parts(a, "the vocabulary has no token for the byte 0xC8");
    a->parts.eos = TOKENS;
    refuse_parts(a, "tokenizer.ggml.eos_token_id is 263, but there are 263 tokens");
    a->parts.add_bos = true;
    refuse_parts(a, "add_bos_token is set, but there is no bos_token_id");
    a->merges[1] = LAR_SLICE("ab");
    refuse_parts(a, "merge 1 is not two tokens with a blank between");
    a->tokens[256] = LAR_SLICE("abc");
    refuse_parts(a, "the tokens 256 and 262 are the same text");
    a->parts.token_count = (1u << 21) + 1;
    refuse_parts(a, "ids under 2097152 are supported");
    free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unsupported_files_are_refused_by_name),
        cmocka_unit_test(every_cut_file_is_refused),
        cmocka_unit_test(other_forms_are_read),
        cmocka_unit_test(configurations),
        cmocka_unit_test(tiktoken_files),
        cmocka_unit_test(wrong_tiktoken_files),
        cmocka_unit_test(gguf_arrays),
        cmocka_unit_test(wrong_gguf_arrays),
    };
    return cmocka_run_group_tests(tests, read_tiny, release_tiny);
}
