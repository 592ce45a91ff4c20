/* A tokenizer: text to ids and back, byte-level BPE as Hugging Face's tokenizers and GGUF files describe it.
 *
 * What a tokenizer.json must have: "model" of type BPE with "vocab" (byte-level alphabet, all 256 bytes or all that
 * occur in UTF-8) and "merges" ("a b" or ["a", "b"]); "pre_tokenizer" ByteLevel, or a Sequence of Split (Regex or
 * String, behavior Isolated), Digits, Punctuation and, last, ByteLevel without add_prefix_space; "decoder" null or
 * ByteLevel; "normalizer" null or an empty Sequence; "post_processor" null, ByteLevel, or a TemplateProcessing that
 * only puts tokens in front; "added_tokens" without lstrip, rstrip and single_word. The ids need not be dense; an added
 * token may repeat an entry of the vocabulary. Truncation and padding are passed over. Anything else is refused by
 * name. For a vocabulary of one's own, DeepSeek-V3's pre_tokenizer is that of
 * tests/unit_engine/text/tiny_tokenizer.json.
 *
 * Text is bytes. What is not valid UTF-8 is tokenised byte by byte: each stray byte is one character without
 * properties, and decoding gives the same bytes back. Whoever wants an error checks before.
 * Immutable once open: any thread, any number at once. */
#ifndef LARDER_ENGINE_TEXT_TOKENIZER_H
#define LARDER_ENGINE_TEXT_TOKENIZER_H

#include "engine/text/bpe.h"

typedef struct lar_tokenizer lar_tokenizer;

#define LAR_TOKEN_NONE UINT32_MAX

/* From tokenizer.json and, where it is not empty, tokenizer_config.json (bos_token, eos_token, add_bos_token). Both are
 * borrowed for the call. INVALID and the errors of JSON say in `d` what is wrong and where; LIMIT over 256 MiB, over
 * 2,097,152 ids, or for an expression that is too complicated; NO_MEMORY. The caller frees *out. */
LAR_MUST_USE lar_error lar_tokenizer_from_json(lar_slice json, lar_slice config, lar_tokenizer **out, lar_diag *d);

/* From tiktoken.model and tokenizer_config.json, as the models of class TikTokenTokenizer (Moonlight, Kimi) have them
 * instead of tokenizer.json. Errors as above. */
LAR_MUST_USE lar_error lar_tokenizer_from_tiktoken(lar_slice model, lar_slice config, lar_tokenizer **out, lar_diag *d);

/* What a GGUF file's metadata hold, borrowed for the call. */
typedef struct lar_tokenizer_parts {
    lar_slice model;         /* tokenizer.ggml.model: "gpt2" alone is supported */
    lar_slice pre;           /* tokenizer.ggml.pre: a family of pretoken.c */
    const lar_slice *tokens; /* .tokens, by id */
    uint32_t token_count;
    /* .token_type, (token_count), or NULL: all normal. 1 normal, 3 control, 4 user-defined, 5 unused */
    const int32_t *types;
    const lar_slice *merges; /* .merges: "a b", by rank */
    uint32_t merge_count;
    uint32_t bos, eos; /* .bos_token_id, .eos_token_id; LAR_TOKEN_NONE where absent */
    bool add_bos;      /* .add_bos_token */
} lar_tokenizer_parts;
/* Errors as above. */
LAR_MUST_USE lar_error lar_tokenizer_from_parts(const lar_tokenizer_parts *parts, lar_tokenizer **out, lar_diag *d);
void lar_tokenizer_free(lar_tokenizer *t);

/* Bytes of a text: start up to end. */
typedef struct lar_text_span {
    size_t start, end;
} lar_text_span;

/* A text to encode. Inside `plain` (ascending, apart) nothing is a special or added token, and none reaches into it:
 * that is what came from outside, a message of a user, a document. Elsewhere (a template's own words) added tokens are
 * recognised, the longest first. Pieces and merges run across the borders of spans, as in the reference. */
typedef struct lar_marked_text {
    lar_slice text;
    const lar_text_span *plain;
    size_t plain_count;
    const atomic_bool *stop; /* once it is true, which any thread may do, the encoding ends; NULL: never */
} lar_marked_text;

/* Adds the ids of the text to `out`, no beginning-of-text of its own (see lar_tokenizer_prefix). LIMIT where out->max
 * would be exceeded; INVALID for spans that overlap or leave the text, and for a stray byte that no token has;
 * CLIENT_GONE where it was stopped. `out` is then as it was. */
LAR_MUST_USE lar_error lar_tokenizer_encode(const lar_tokenizer *t, const lar_marked_text *text, lar_ids *out,
                                            lar_diag *d);
/* The same with the whole text plain. */
LAR_MUST_USE lar_error lar_tokenizer_encode_plain(const lar_tokenizer *t, lar_slice text, lar_ids *out, lar_diag *d);

typedef enum lar_decode_special { LAR_DECODE_SPECIAL_KEPT, LAR_DECODE_SPECIAL_SKIPPED } lar_decode_special;
/* Appends the bytes of the ids. INVALID where an id has no token, LIMIT over out->max; `out` may then hold a part. */
LAR_MUST_USE lar_error lar_tokenizer_decode(const lar_tokenizer *t, const uint32_t *ids, size_t count,
                                            lar_decode_special special, lar_buf *out);

/* The bytes of one token, alive as long as the tokenizer; ptr is NULL where the id has none. */
lar_slice lar_tokenizer_bytes(const lar_tokenizer *t, uint32_t id);
/* A token that the file calls special (control tokens in GGUF): one that readers of an answer do not see. */
bool lar_tokenizer_is_special(const lar_tokenizer *t, uint32_t id);
/* The token with exactly this text: an added one first, "<think>". LAR_TOKEN_NONE where there is none. */
uint32_t lar_tokenizer_find(const lar_tokenizer *t, lar_slice text);
/* Bytes of the longest token: a text of n times as many has n tokens at least. */
size_t lar_tokenizer_longest(const lar_tokenizer *t);
/* One more than the largest id. A model's vocabulary may be larger. */
uint32_t lar_tokenizer_size(const lar_tokenizer *t);
uint32_t lar_tokenizer_bos(const lar_tokenizer *t); /* LAR_TOKEN_NONE where the files name none */
uint32_t lar_tokenizer_eos(const lar_tokenizer *t);
/* What the files put in front of a text that no template has prepared; *count may be 0. */
const uint32_t *lar_tokenizer_prefix(const lar_tokenizer *t, uint32_t *count);

#endif
