/* A tokenizer from tiktoken.model and tokenizer_config.json, as Moonlight and Kimi come.
 * Flow: whoever opens a folder without tokenizer.json calls lar_tokenizer_from_tiktoken. Any thread; blocks on nothing
 * but malloc. A line is a token in base64, a blank, and its rank, which is its id.
 * tiktoken merges what makes the token of the lowest rank: each token is a merge of every two tokens that it consists
 * of, and its rank is its id. A piece that is a token is that token.
 * Source: tokenization_moonshot.py and tokenization_kimi.py, whose class TikTokenTokenizer has one pattern, and keeps
 * 256 ids behind the last rank for special tokens; those without a name are <|reserved_token_ID|>. */
#include "base/json.h"
#include "engine/text/tokenizer_core.h"

enum { RESERVED = 256, TOKEN_MAX = 1024 };

typedef struct reader {
    lar_slice rest; /* of tiktoken.model */
    uint32_t line;
    lar_buf bytes; /* of the token that is read */
    lar_tokenizer *t;
    lar_diag *diag;
} reader;

static lar_error wrong_line(const reader *r, const char *what) {
    return lar_fail(LAR_INVALID, r->diag, "tiktoken.model: line %u: %s", r->line, what);
}

static int base64_value(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static lar_error decode_base64(reader *r, lar_slice text) {
    uint32_t held = 0, bits = 0;
    r->bytes.len = 0;
    while (text.len && text.ptr[text.len - 1] == '=') text.len--;
    for (size_t i = 0; i < text.len; i++) {
        int value = base64_value(text.ptr[i]);
        if (value < 0) return wrong_line(r, "the token is not base64");
        held = held << 6 | (uint32_t)value;
        bits += 6;
        if (bits < 8) continue;
        bits -= 8;
        char byte = (char)(held >> bits);
        lar_error e = lar_buf_add(&r->bytes, &byte, 1);
        if (e) return e;
    }
    return r->bytes.len ? LAR_OK : wrong_line(r, "the token is empty");
}

/* The next line's token into r->bytes, its rank into *rank; *more false behind the last line. */
static lar_error next_line(reader *r, uint32_t *rank, bool *more) {
    while (r->rest.len && r->rest.ptr[0] == '\n') r->rest = lar_slice_of(r->rest.ptr + 1, r->rest.len - 1), r->line++;
    *more = r->rest.len > 0;
    if (!*more) return LAR_OK;
    const char *end = memchr(r->rest.ptr, '\n', r->rest.len);
    lar_slice line = lar_slice_of(r->rest.ptr, end ? (size_t)(end - r->rest.ptr) : r->rest.len);
    r->rest = lar_slice_of(line.ptr + line.len, r->rest.len - line.len);
    const char *blank = memchr(line.ptr, ' ', line.len);
    if (!blank || line.len > TOKEN_MAX) return wrong_line(r, "it is not a token and a rank of at most 1024 bytes");
    uint64_t value = 0;
    const char *digit = blank + 1, *stop = line.ptr + line.len;
    if (digit == stop) return wrong_line(r, "the rank is missing");
    for (; digit < stop; digit++) {
        if (*digit < '0' || *digit > '9') return wrong_line(r, "the rank is not a number");
        value = value * 10 + (uint64_t)(*digit - '0');
        if (value >= LAR_BPE_IDS_MAX) return wrong_line(r, "the rank is too large");
    }
    *rank = (uint32_t)value;
    return decode_base64(r, lar_slice_of(line.ptr, (size_t)(blank - line.ptr)));
}

/* One more than the largest rank; the reader stands at the first line again. */
static lar_error count_ranks(reader *r, uint32_t *count) {
    lar_slice all = r->rest;
    bool more = true;
    *count = 0;
    for (;;) {
        uint32_t rank;
        lar_error e = next_line(r, &rank, &more);
        if (e) return e;
        if (!more) break;
        if (rank >= *count) *count = rank + 1;
    }
    r->rest = all;
    r->line = 1;
    return LAR_OK;
}

static lar_error read_ranks(reader *r) {
    bool more = true;
    for (;;) {
        uint32_t rank;
        lar_error e = next_line(r, &rank, &more);
        if (e || !more) return e;
        e = lar_bpe_set(&r->t->bpe, rank, lar_buf_slice(&r->bytes), LAR_BPE_MERGED, r->diag);
        if (e) return e;
    }
}

/* The two tokens that the first `left` bytes of a token and the rest are; false where one of them is none. */
static bool splits(const lar_bpe *b, lar_slice token, size_t left, uint32_t pair[2]) {
    pair[0] = lar_bpe_find(b, lar_slice_of(token.ptr, left));
    if (pair[0] == LAR_BPE_NONE) return false;
    pair[1] = lar_bpe_find(b, lar_slice_of(token.ptr + left, token.len - left));
    return pair[1] != LAR_BPE_NONE;
}

static lar_error add_merges(lar_bpe *b, uint32_t ranks, lar_diag *d) {
    uint32_t pair[2], count = 0;
    lar_error e = LAR_OK;
    for (uint32_t id = 0; id < ranks; id++)
        for (size_t left = 1; left < lar_bpe_bytes(b, id).len; left++)
            count += splits(b, lar_bpe_bytes(b, id), left, pair);
    e = lar_bpe_reserve(b, count);
    for (uint32_t id = 0; id < ranks && !e; id++)
        for (size_t left = 1; left < lar_bpe_bytes(b, id).len && !e; left++)
            if (splits(b, lar_bpe_bytes(b, id), left, pair)) e = lar_bpe_join(b, pair, id, id, d);
    return e;
}

/* -- special tokens ------------------------------------------------------------------------------------------------ */

static lar_error add_named(reader *r, const lar_json *j, uint32_t key, uint32_t ranks) {
    static const char *const flags[] = {"lstrip", "rstrip", "single_word"};
    lar_slice digits = lar_json_inner(j, key);
    uint32_t id = 0;
    for (size_t i = 0; i < digits.len && id < LAR_BPE_IDS_MAX; i++)
        id = digits.ptr[i] >= '0' && digits.ptr[i] <= '9' ? id * 10 + (uint32_t)(digits.ptr[i] - '0') : LAR_BPE_IDS_MAX;
    if (digits.len == 0 || id < ranks || id >= ranks + RESERVED)
        return lar_fail(LAR_INVALID, r->diag,
                        "tokenizer_config.json: added_tokens_decoder: the id %.*s is not one of the %d behind rank %u",
                        (int)(digits.len < 20 ? digits.len : 20), digits.ptr, RESERVED, ranks - 1);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (lar_json_is(j, lar_json_get_last(j, key + 1, flags[i]), LAR_JSON_TRUE))
            return lar_fail(LAR_INVALID, r->diag, "tokenizer_config.json: token %u: %s is not supported", id, flags[i]);
    uint32_t content = lar_json_get_last(j, key + 1, "content");
    r->bytes.len = 0;
    if (!lar_json_is(j, content, LAR_JSON_STRING))
        return lar_fail(LAR_INVALID, r->diag, "tokenizer_config.json: token %u has no content", id);
    lar_error e = lar_json_decode(j, content, &r->bytes);
    r->t->special[id] = lar_json_is(j, lar_json_get_last(j, key + 1, "special"), LAR_JSON_TRUE);
    return e ? e : lar_tokenizer_add(r->t, id, lar_buf_slice(&r->bytes), LAR_ADDED_EXACT, r->diag);
}

static lar_error add_reserved(reader *r, uint32_t ranks) {
    lar_error e = LAR_OK;
    for (uint32_t id = ranks; id < ranks + RESERVED && !e; id++) {
        if (lar_bpe_bytes(&r->t->bpe, id).ptr) continue;
        r->bytes.len = 0;
        e = lar_buf_printf(&r->bytes, "<|reserved_token_%u|>", id);
        r->t->special[id] = 1;
        if (!e) e = lar_tokenizer_add(r->t, id, lar_buf_slice(&r->bytes), LAR_ADDED_EXACT, r->diag);
    }
    return e;
}

static lar_error read_special(reader *r, const lar_json *j, uint32_t ranks) {
    uint32_t named = lar_json_get_last(j, 0, "added_tokens_decoder");
    if (!lar_json_is(j, lar_json_get_last(j, 0, "tokenizer_class"), LAR_JSON_STRING) ||
        !lar_json_eq(j, lar_json_get_last(j, 0, "tokenizer_class"), LAR_SLICE("TikTokenTokenizer")))
        return lar_fail(
            LAR_INVALID, r->diag,
            "tokenizer_config.json: with tiktoken.model the tokenizer_class TikTokenTokenizer alone (Moonlight, "
            "Kimi) is supported");
    if (!lar_json_is(j, named, LAR_JSON_OBJECT))
        return lar_fail(LAR_INVALID, r->diag, "tokenizer_config.json: added_tokens_decoder: an object is expected");
    for (uint32_t key = lar_json_first(j, named); key != LAR_JSON_NONE; key = lar_json_after(j, named, key)) {
        lar_error e = add_named(r, j, key, ranks);
        if (e) return e;
    }
    return add_reserved(r, ranks);
}

static lar_error read_all(reader *r, lar_slice config) {
    uint32_t ranks = 0;
    lar_json j;
    lar_json_init(&j);
    lar_error e = count_ranks(r, &ranks);
    if (!e) e = lar_json_parse(&j, config, NULL, r->diag);
    if (!e) e = lar_tokenizer_new((uint64_t)ranks + RESERVED, &r->t, r->diag);
    if (!e) e = lar_pretoken_add_family(&r->t->steps, LAR_SLICE("kimi-k2"), r->diag);
    if (!e) e = read_ranks(r);
    if (!e) e = read_special(r, &j, ranks);
    if (!e) e = lar_bpe_index(&r->t->bpe, r->diag);
    if (!e) e = add_merges(&r->t->bpe, ranks, r->diag);
    if (!e) e = lar_tokenizer_seal(r->t, LAR_BPE_BY_VOCABULARY, r->diag);
    if (!e) e = lar_tokenizer_configure(r->t, config, r->diag);
    lar_json_release(&j);
    return e;
}

lar_error lar_tokenizer_from_tiktoken(lar_slice model, lar_slice config, lar_tokenizer **out, lar_diag *d) {
    if (model.len > LAR_TOKENIZER_FILE)
        return lar_fail(LAR_LIMIT, d, "tiktoken.model has %zu bytes; %d at most", model.len, LAR_TOKENIZER_FILE);
    reader r = {.rest = model, .line = 1, .diag = d};
    lar_buf_init(&r.bytes, LAR_TOKENIZER_FILE);
    lar_error e = read_all(&r, config);
    lar_buf_release(&r.bytes);
    if (!e) *out = r.t;
    else lar_tokenizer_free(r.t);
    return e;
}
