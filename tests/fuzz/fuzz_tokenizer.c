/* Tokenizers from hostile files, on hostile texts. The first byte says what the input is:
 * 'J': a tokenizer.json up to a byte 0xFF (which JSON never holds), then a text; 'T': a tiktoken.model likewise;
 * others: a GGUF's arrays: that byte modulo the families; lines of tokens, an empty line, lines of merges, an empty
 *    line, and a text. All bytes are tokens already; the last two tokens are a user-defined and a control one.
 * 1. A file is opened or refused with a reason. 2. Ids give the text back byte by byte, unless a stray byte has no
 * token. 3. A plain text has no added token. 4. For arrays, the ids of each piece are those of merging pair by pair. */
#include "base/utf8.h"
#include "engine/text/pretoken.h"
#include "engine/text/tokenizer.h"
#include "tests/fuzz/fuzz.h"

enum { IDS_MAX = 1 << 20, TOKENS_MAX = 512, MERGES_MAX = 256, PIECE_MAX = 300, NAIVE_MERGES = 24 };

static void round_trip(const lar_tokenizer *t, lar_slice text, lar_ids *ids, size_t plain) {
    lar_buf back;
    lar_diag d = {0};
    lar_buf_init(&back, IDS_MAX);
    lar_text_span span = {plain, text.len};
    ids->count = 0;
    lar_error e = lar_tokenizer_encode(t, &(lar_marked_text){.text = text, .plain = &span, .plain_count = 1}, ids, &d);
    FUZZ_CHECK(e == LAR_OK || ((e == LAR_INVALID || e == LAR_LIMIT) && d.text[0] && ids->count == 0));
    if (!e) {
        FUZZ_CHECK(lar_tokenizer_decode(t, ids->ids, ids->count, LAR_DECODE_SPECIAL_KEPT, &back) == LAR_OK);
        FUZZ_CHECK(lar_slice_eq(lar_buf_slice(&back), text));
    }
    lar_buf_release(&back);
}

static void from_file(char kind, const uint8_t *data, size_t size) {
    static const char config[] = "{\"tokenizer_class\":\"TikTokenTokenizer\",\"added_tokens_decoder\":{}}";
    const uint8_t *mark = memchr(data, 0xFF, size);
    size_t len = mark ? (size_t)(mark - data) : size;
    lar_slice text = mark ? lar_slice_of((const char *)mark + 1, size - len - 1) : (lar_slice){"", 0};
    lar_diag d = {0};
    lar_tokenizer *t = NULL;
    lar_slice file = lar_slice_of((const char *)data, len);
    lar_error e = kind == 'J' ? lar_tokenizer_from_json(file, (lar_slice){0}, &t, &d)
                              : lar_tokenizer_from_tiktoken(file, LAR_SLICE(config), &t, &d);
    FUZZ_CHECK(e == LAR_OK || d.text[0]);
    if (e) return;
    lar_ids ids;
    lar_ids_init(&ids, IDS_MAX);
    round_trip(t, text, &ids, text.len);
    round_trip(t, text, &ids, 0);
    for (size_t i = 0; i < ids.count; i++) FUZZ_CHECK(!lar_tokenizer_is_special(t, ids.ids[i]));
    lar_ids_release(&ids);
    lar_tokenizer_free(t);
}

/* -- arrays -------------------------------------------------------------------------------------------------------- */

typedef struct arrays {
    char letters[256][4];
    lar_slice tokens[TOKENS_MAX];
    int32_t types[TOKENS_MAX];
    lar_slice merges[MERGES_MAX];
    lar_tokenizer_parts parts;
} arrays;

/* The next line; false at an empty one, which is consumed, or at the end. */
static bool next_line(lar_slice *rest, lar_slice *line) {
    const char *end = rest->len ? memchr(rest->ptr, '\n', rest->len) : NULL;
    size_t len = end ? (size_t)(end - rest->ptr) : rest->len;
    *line = lar_slice_of(rest->ptr, len);
    size_t taken = end ? len + 1 : len;
    *rest = lar_slice_of(rest->ptr + taken, rest->len - taken);
    return len > 0;
}

static lar_slice fill(arrays *a, lar_slice rest) {
    static const char *const families[] = {"deepseek-v3", "deepseek-llm", "deepseek-coder", "glm4", "kimi-k2", "none"};
    uint32_t others = 0, count = 256, merges = 0;
    for (uint32_t byte = 0; byte < 256; byte++) {
        bool itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
        uint32_t code = itself ? byte : 0x100 + others++;
        a->tokens[byte] = lar_slice_of(a->letters[byte], lar_utf8_write(code, a->letters[byte]));
        a->types[byte] = 1;
    }
    size_t family = (unsigned char)rest.ptr[0] % 6;
    rest = lar_slice_of(rest.ptr + 1, rest.len - 1);
    lar_slice line;
    while (next_line(&rest, &line))
        if (count < TOKENS_MAX) a->tokens[count] = line, a->types[count++] = 1;
    if (count > 258) a->types[count - 1] = 3, a->types[count - 2] = 4;
    while (next_line(&rest, &line))
        if (merges < MERGES_MAX) a->merges[merges++] = line;
    a->parts = (lar_tokenizer_parts){.model = LAR_SLICE("gpt2"),
                                     .pre = lar_slice_cstr(families[family]),
                                     .tokens = a->tokens,
                                     .token_count = count,
                                     .types = a->types,
                                     .merges = a->merges,
                                     .merge_count = merges,
                                     .bos = LAR_TOKEN_NONE,
                                     .eos = LAR_TOKEN_NONE};
    return rest;
}

/* The bytes of a text in the alphabet, by the letters themselves. */
static size_t to_bytes(const arrays *a, lar_slice text, char *out) {
    size_t len = 0;
    for (size_t at = 0; at < text.len;) {
        uint32_t byte = 0;
        while (byte < 255 && !lar_slice_starts(lar_slice_of(text.ptr + at, text.len - at), a->tokens[byte])) byte++;
        out[len++] = (char)byte;
        at += a->tokens[byte].len;
    }
    return len;
}

/* The merges as bytes, for the naive way. */
typedef struct naive {
    char bytes[NAIVE_MERGES][2][128];
    size_t len[NAIVE_MERGES][2];
    uint32_t count;
} naive;

static void decode_merges(const arrays *a, naive *n) {
    n->count = a->parts.merge_count;
    for (uint32_t i = 0; i < n->count; i++) {
        const char *blank = memchr(a->merges[i].ptr, ' ', a->merges[i].len);
        size_t left = (size_t)(blank - a->merges[i].ptr);
        n->len[i][0] = to_bytes(a, lar_slice_of(a->merges[i].ptr, left), n->bytes[i][0]);
        n->len[i][1] = to_bytes(a, lar_slice_of(blank + 1, a->merges[i].len - left - 1), n->bytes[i][1]);
    }
}

/* The rank of the last merge that joins the two; -1. */
static int naive_rank(const naive *n, lar_slice left, lar_slice right) {
    for (int i = (int)n->count - 1; i >= 0; i--)
        if (lar_slice_eq(lar_slice_of(n->bytes[i][0], n->len[i][0]), left) &&
            lar_slice_eq(lar_slice_of(n->bytes[i][1], n->len[i][1]), right))
            return i;
    return -1;
}

/* One piece, pair after pair; the ids follow at *at. */
static void check_piece(const naive *merges, const lar_tokenizer *t, lar_slice piece, const lar_ids *ids, size_t *at) {
    size_t begin[PIECE_MAX + 1], n = piece.len;
    for (size_t i = 0; i <= n; i++) begin[i] = i;
    for (;;) {
        int best = -1;
        size_t place = 0;
        for (size_t i = 0; i + 2 <= n; i++) {
            int rank = naive_rank(merges, lar_slice_of(piece.ptr + begin[i], begin[i + 1] - begin[i]),
                                  lar_slice_of(piece.ptr + begin[i + 1], begin[i + 2] - begin[i + 1]));
            if (rank >= 0 && (best < 0 || rank < best)) best = rank, place = i;
        }
        if (best < 0) break;
        memmove(&begin[place + 1], &begin[place + 2], (n - place - 1) * sizeof *begin);
        n--;
    }
    for (size_t i = 0; i < n; i++, (*at)++) {
        FUZZ_CHECK(*at < ids->count);
        lar_slice want = lar_slice_of(piece.ptr + begin[i], begin[i + 1] - begin[i]);
        FUZZ_CHECK(lar_slice_eq(lar_tokenizer_bytes(t, ids->ids[*at]), want));
    }
}

/* The naive merge tries all merges at all places: only small inputs are held against it. */
static bool small(const arrays *a, lar_slice text) {
    for (uint32_t i = 0; i < a->parts.merge_count; i++)
        if (a->merges[i].len > 100) return false;
    return text.len <= PIECE_MAX && a->parts.merge_count <= NAIVE_MERGES;
}

static void check_pieces(const arrays *a, const lar_tokenizer *t, lar_slice text, const lar_ids *ids) {
    lar_pretoken steps = {0};
    lar_pieces walk;
    lar_slice piece;
    bool more;
    size_t at = 0;
    naive *merges = calloc(1, sizeof *merges);
    if (!merges) abort();
    decode_merges(a, merges);
    FUZZ_CHECK(lar_pretoken_add_family(&steps, a->parts.pre, NULL) == LAR_OK);
    lar_pieces_init(&walk, &steps, text, 0, text.len);
    for (;;) {
        FUZZ_CHECK(lar_pieces_next(&walk, &piece, &more) == LAR_OK);
        if (!more) break;
        FUZZ_CHECK(piece.len > 0);
        check_piece(merges, t, piece, ids, &at);
    }
    FUZZ_CHECK(at == ids->count);
    free(merges);
    lar_pretoken_release(&steps);
}

static void from_arrays(const uint8_t *data, size_t size) {
    arrays *a = calloc(1, sizeof *a);
    if (!a) abort();
    lar_slice text = fill(a, lar_slice_of((const char *)data, size));
    lar_diag d = {0};
    lar_tokenizer *t = NULL;
    lar_error e = lar_tokenizer_from_parts(&a->parts, &t, &d);
    FUZZ_CHECK(e == LAR_OK || d.text[0]);
    if (!e) {
        lar_ids ids;
        lar_ids_init(&ids, IDS_MAX);
        round_trip(t, text, &ids, text.len / 2);
        round_trip(t, text, &ids, 0);
        for (size_t i = 0; i < ids.count; i++) FUZZ_CHECK(a->types[ids.ids[i]] == 1);
        if (small(a, text)) check_pieces(a, t, text, &ids);
        lar_ids_release(&ids);
        lar_tokenizer_free(t);
    }
    free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size && (data[0] == 'J' || data[0] == 'T')) from_file((char)data[0], data + 1, size - 1);
    else if (size) from_arrays(data, size);
    return 0;
}
