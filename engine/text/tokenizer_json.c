/* A tokenizer from tokenizer.json; tokenizer_config.c reads the file beside it.
 * Flow: whoever opens a folder calls lar_tokenizer_from_json. Any thread; blocks on nothing but malloc.
 * Read through the span tree (base/json.h): it is strict, iterative, and keeps characters that cJSON's text would end
 * at. Whatever would change the ids and is not understood is refused by name; what concerns offsets, training or
 * batches (truncation, padding: transformers sets both anew for each call) is passed over.
 * Order: added tokens, vocabulary, merges, pre-tokenizer, the rest. */
#include "base/json.h"
#include "engine/text/tokenizer_core.h"

enum { NODES_MAX = 24 << 20, NESTED_MAX = 64, SHOWN = 60 };

typedef struct reader {
    lar_json json;
    lar_tokenizer *t;
    lar_buf text, other; /* decoded strings */
    lar_diag *diag;
} reader;

static lar_error refuse(const reader *r, const char *where, const char *what) {
    return lar_fail(LAR_INVALID, r->diag, "tokenizer.json: %s: %s", where, what);
}

/* Puts the file's name in front of what a deeper layer said. */
static lar_error located(const reader *r, lar_error e, const char *where) {
    if (!e || !r->diag || !r->diag->text[0]) return e;
    char said[LAR_DIAG_BYTES];
    memcpy(said, r->diag->text, sizeof said);
    return lar_fail(e, r->diag, "tokenizer.json: %s: %.250s", where, said);
}

static uint32_t get(const reader *r, uint32_t object, const char *name) {
    return lar_json_get_last(&r->json, object, name);
}

static bool absent(const reader *r, uint32_t node) {
    return node == LAR_JSON_NONE || lar_json_is(&r->json, node, LAR_JSON_NULL);
}

static bool is_text(const reader *r, uint32_t node, const char *text) {
    return lar_json_is(&r->json, node, LAR_JSON_STRING) && lar_json_eq(&r->json, node, lar_slice_cstr(text));
}

/* "what "..." is not supported", with the beginning of the value. */
static lar_error unsupported(const reader *r, const char *where, const char *what, uint32_t node) {
    lar_slice raw = lar_json_raw(&r->json, node);
    bool cut = raw.len > SHOWN;
    return lar_fail(LAR_INVALID, r->diag, "tokenizer.json: %s: %s %.*s%s is not supported", where, what,
                    cut ? SHOWN : (int)raw.len, raw.ptr, cut ? ".." : "");
}

/* True, false, or absent (then `value` stays); anything else is refused. */
static lar_error read_flag(const reader *r, uint32_t object, const char *name, bool *value) {
    uint32_t node = get(r, object, name);
    if (absent(r, node)) return LAR_OK;
    *value = lar_json_is(&r->json, node, LAR_JSON_TRUE);
    if (*value || lar_json_is(&r->json, node, LAR_JSON_FALSE)) return LAR_OK;
    return refuse(r, name, "it is neither true nor false");
}

static lar_error read_text(reader *r, uint32_t node, const char *where, lar_buf *out) {
    out->len = 0;
    if (!lar_json_is(&r->json, node, LAR_JSON_STRING)) return refuse(r, where, "a text is expected");
    return lar_json_decode(&r->json, node, out);
}

static lar_error read_id(const reader *r, uint32_t node, const char *where, uint64_t *id) {
    if (lar_json_u64(&r->json, node, id) && *id < LAR_BPE_IDS_MAX) return LAR_OK;
    return unsupported(r, where, "the id", node);
}

/* -- tokens -------------------------------------------------------------------------------------------------------- */

/* The vocabulary and the added tokens: one more than the largest id of both. */
static lar_error count_ids(const reader *r, uint32_t vocab, uint32_t added, uint64_t *ids) {
    *ids = 0;
    for (uint32_t key = lar_json_first(&r->json, vocab); key != LAR_JSON_NONE;
         key = lar_json_after(&r->json, vocab, key)) {
        uint64_t id;
        lar_error e = read_id(r, key + 1, "model.vocab", &id);
        if (e) return e;
        if (id >= *ids) *ids = id + 1;
    }
    for (uint32_t a = lar_json_first(&r->json, added); a != LAR_JSON_NONE; a = lar_json_after(&r->json, added, a)) {
        uint64_t id;
        lar_error e = read_id(r, get(r, a, "id"), "added_tokens", &id);
        if (e) return e;
        if (id >= *ids) *ids = id + 1;
    }
    return LAR_OK;
}

static lar_error add_added(reader *r, uint32_t node) {
    bool special = false, lstrip = false, rstrip = false, single = false;
    uint64_t id = 0;
    lar_error e = read_id(r, get(r, node, "id"), "added_tokens", &id);
    if (!e) e = read_text(r, get(r, node, "content"), "added_tokens.content", &r->text);
    if (!e) e = read_flag(r, node, "special", &special);
    if (!e) e = read_flag(r, node, "lstrip", &lstrip);
    if (!e) e = read_flag(r, node, "rstrip", &rstrip);
    if (!e) e = read_flag(r, node, "single_word", &single);
    bool normalized = !special;
    if (!e) e = read_flag(r, node, "normalized", &normalized);
    if (e) return e;
    if (lstrip || rstrip || single)
        return unsupported(r, "added_tokens", "lstrip, rstrip or single_word of", get(r, node, "content"));
    lar_added_list list = normalized ? LAR_ADDED_NORMALIZED : LAR_ADDED_EXACT;
    r->t->special[id] = special;
    return located(r, lar_tokenizer_add(r->t, (uint32_t)id, lar_buf_slice(&r->text), list, r->diag), "added_tokens");
}

static lar_error add_vocab(reader *r, uint32_t vocab) {
    for (uint32_t key = lar_json_first(&r->json, vocab); key != LAR_JSON_NONE;
         key = lar_json_after(&r->json, vocab, key)) {
        uint64_t id;
        lar_error e = read_id(r, key + 1, "model.vocab", &id);
        if (!e) e = read_text(r, key, "model.vocab", &r->text);
        if (e) return e;
        /* An added token may stand in the vocabulary too. */
        lar_slice known = lar_bpe_bytes(&r->t->bpe, (uint32_t)id);
        if (known.ptr && lar_slice_eq(known, lar_buf_slice(&r->text))) continue;
        e = lar_tokenizer_set(r->t, (uint32_t)id, lar_buf_slice(&r->text), &r->other, r->diag);
        if (e) return located(r, e, "model.vocab");
    }
    return LAR_OK;
}

static lar_error read_tokens(reader *r, uint32_t root, uint32_t model) {
    uint32_t vocab = get(r, model, "vocab"), added = get(r, root, "added_tokens");
    uint64_t ids = 0;
    if (!lar_json_is(&r->json, vocab, LAR_JSON_OBJECT)) return refuse(r, "model.vocab", "an object is expected");
    if (!absent(r, added) && !lar_json_is(&r->json, added, LAR_JSON_ARRAY))
        return refuse(r, "added_tokens", "an array is expected");
    lar_error e = count_ids(r, vocab, added, &ids);
    if (!e) e = located(r, lar_tokenizer_new(ids, &r->t, r->diag), "model.vocab");
    for (uint32_t a = lar_json_first(&r->json, added); !e && a != LAR_JSON_NONE; a = lar_json_after(&r->json, added, a))
        e = add_added(r, a);
    return e ? e : add_vocab(r, vocab);
}

static lar_error read_merge(reader *r, uint32_t node, uint32_t rank) {
    lar_slice left = {0}, right = {0};
    lar_error e;
    if (lar_json_is(&r->json, node, LAR_JSON_ARRAY)) {
        if (r->json.nodes[node].count != 2) return unsupported(r, "model.merges", "the merge", node);
        e = read_text(r, node + 1, "model.merges", &r->text);
        if (!e) e = read_text(r, r->json.nodes[node + 1].next, "model.merges", &r->other);
        left = lar_buf_slice(&r->text);
        right = lar_buf_slice(&r->other);
    } else {
        e = read_text(r, node, "model.merges", &r->text);
        if (!e && !lar_tokenizer_split_merge(lar_buf_slice(&r->text), &left, &right))
            return unsupported(r, "model.merges", "the merge", node);
    }
    return e ? e : located(r, lar_tokenizer_merge(r->t, left, right, rank, r->diag), "model.merges");
}

static lar_error read_merges(reader *r, uint32_t model) {
    uint32_t merges = get(r, model, "merges"), rank = 0;
    if (!lar_json_is(&r->json, merges, LAR_JSON_ARRAY)) return refuse(r, "model.merges", "an array is expected");
    lar_error e = located(r, lar_bpe_index(&r->t->bpe, r->diag), "model.vocab");
    if (!e) e = lar_bpe_reserve(&r->t->bpe, r->json.nodes[merges].count);
    for (uint32_t m = lar_json_first(&r->json, merges); !e && m != LAR_JSON_NONE;
         m = lar_json_after(&r->json, merges, m))
        e = read_merge(r, m, rank++);
    return e;
}

/* Members of "model" that must be off, each with what "off" is. */
static lar_error check_model(const reader *r, uint32_t model) {
    static const char *const off[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix"};
    uint32_t type = get(r, model, "type");
    if (!lar_json_is(&r->json, model, LAR_JSON_OBJECT)) return refuse(r, "model", "an object is expected");
    if (!is_text(r, type, "BPE")) return unsupported(r, "model", "the type", type);
    for (size_t i = 0; i < sizeof off / sizeof *off; i++) {
        uint32_t node = get(r, model, off[i]);
        double value = 1;
        if (lar_json_double(&r->json, node, &value) && value == 0) continue;
        if (!absent(r, node) && !is_text(r, node, "")) return unsupported(r, "model", off[i], node);
    }
    uint32_t fallback = get(r, model, "byte_fallback");
    bool on = lar_json_is(&r->json, fallback, LAR_JSON_TRUE);
    return on ? unsupported(r, "model", "byte_fallback", fallback) : LAR_OK;
}

/* -- the pre-tokenizer --------------------------------------------------------------------------------------------- */

/* Patterns that say what Digits and Punctuation do, after char::is_numeric and is_punctuation of the reference. */
static const char digits_each[] = "\\p{N}", digits_together[] = "\\p{N}+";
static const char punctuation_each[] = "[!-/:-@\\[-`{-~\\p{P}]", punctuation_together[] = "[!-/:-@\\[-`{-~\\p{P}]+";

static lar_error add_step(reader *r, lar_slice pattern) {
    return located(r, lar_pretoken_add(&r->t->steps, pattern, r->diag), "pre_tokenizer");
}

/* A literal text as a pattern: a backslash before each character of ASCII that is neither letter nor digit. */
static lar_error quote(lar_slice text, lar_buf *out) {
    out->len = 0;
    lar_error e = LAR_OK;
    for (size_t i = 0; i < text.len && !e; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        bool plain = c >= 0x80 || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        if (!plain) e = lar_buf_add(out, "\\", 1);
        if (!e) e = lar_buf_add(out, &text.ptr[i], 1);
    }
    return e;
}

static lar_error add_split(reader *r, uint32_t node) {
    uint32_t pattern = get(r, node, "pattern"), behavior = get(r, node, "behavior");
    uint32_t regex = get(r, pattern, "Regex"), string = get(r, pattern, "String");
    bool invert = false;
    lar_error e = read_flag(r, node, "invert", &invert);
    if (e) return e;
    if (invert || !is_text(r, behavior, "Isolated"))
        return unsupported(r, "pre_tokenizer: Split", invert ? "invert with" : "the behavior", behavior);
    if (!absent(r, regex)) {
        e = read_text(r, regex, "pre_tokenizer: Split.pattern", &r->text);
        return e ? e : add_step(r, lar_buf_slice(&r->text));
    }
    e = read_text(r, string, "pre_tokenizer: Split.pattern", &r->text);
    if (!e) e = quote(lar_buf_slice(&r->text), &r->other);
    return e ? e : add_step(r, lar_buf_slice(&r->other));
}

static lar_error add_byte_level(reader *r, uint32_t node) {
    bool prefix = true, regex = true; /* the reference's defaults */
    lar_error e = read_flag(r, node, "add_prefix_space", &prefix);
    if (!e) e = read_flag(r, node, "use_regex", &regex);
    if (e) return e;
    if (prefix) return refuse(r, "pre_tokenizer: ByteLevel", "add_prefix_space is not supported");
    return regex ? add_step(r, lar_slice_cstr(lar_pretoken_gpt2)) : LAR_OK;
}

static lar_error add_one(reader *r, uint32_t node, bool *byte_level) {
    uint32_t type = get(r, node, "type");
    if (*byte_level) return unsupported(r, "pre_tokenizer", "behind ByteLevel,", node);
    if (is_text(r, type, "Split")) return add_split(r, node);
    if (is_text(r, type, "ByteLevel")) {
        *byte_level = true;
        return add_byte_level(r, node);
    }
    if (is_text(r, type, "Digits")) {
        bool each = false;
        lar_error e = read_flag(r, node, "individual_digits", &each);
        return e ? e : add_step(r, lar_slice_cstr(each ? digits_each : digits_together));
    }
    if (is_text(r, type, "Punctuation")) {
        uint32_t behavior = get(r, node, "behavior");
        bool each = absent(r, behavior) || is_text(r, behavior, "Isolated");
        if (!each && !is_text(r, behavior, "Contiguous"))
            return unsupported(r, "pre_tokenizer: Punctuation", "the behavior", behavior);
        return add_step(r, lar_slice_cstr(each ? punctuation_each : punctuation_together));
    }
    return unsupported(r, "pre_tokenizer", "the type", type);
}

static lar_error read_pre_tokenizer(reader *r, uint32_t root) {
    uint32_t node = get(r, root, "pre_tokenizer");
    bool byte_level = false;
    lar_error e = LAR_OK;
    if (is_text(r, get(r, node, "type"), "Sequence")) {
        uint32_t list = get(r, node, "pretokenizers");
        if (!lar_json_is(&r->json, list, LAR_JSON_ARRAY))
            return refuse(r, "pre_tokenizer.pretokenizers", "an array is expected");
        for (uint32_t s = lar_json_first(&r->json, list); !e && s != LAR_JSON_NONE;
             s = lar_json_after(&r->json, list, s))
            e = add_one(r, s, &byte_level);
    } else if (!absent(r, node)) {
        e = add_one(r, node, &byte_level);
    }
    if (!e && !byte_level) e = refuse(r, "pre_tokenizer", "without ByteLevel the vocabulary is not one of bytes");
    return e;
}

/* -- the rest of the file ------------------------------------------------------------------------------------------ */

/* Null, the type itself, or a Sequence of nothing else. */
static lar_error only_type(const reader *r, uint32_t root, const char *member, const char *allowed, const char *list) {
    uint32_t node = get(r, root, member), type = get(r, node, "type");
    if (absent(r, node) || (allowed && is_text(r, type, allowed))) return LAR_OK;
    uint32_t parts = is_text(r, type, "Sequence") ? get(r, node, list) : LAR_JSON_NONE;
    if (!lar_json_is(&r->json, parts, LAR_JSON_ARRAY)) return unsupported(r, member, "the type", type);
    for (uint32_t p = lar_json_first(&r->json, parts); p != LAR_JSON_NONE; p = lar_json_after(&r->json, parts, p)) {
        type = get(r, p, "type");
        if (!allowed || !is_text(r, type, allowed)) return unsupported(r, member, "the type", type);
    }
    return LAR_OK;
}

/* The tokens that a TemplateProcessing puts in front of a single text. */
static lar_error read_template(reader *r, uint32_t node) {
    uint32_t single = get(r, node, "single");
    bool text_seen = false;
    r->t->prefix_count = 0;
    for (uint32_t s = lar_json_first(&r->json, single); s != LAR_JSON_NONE; s = lar_json_after(&r->json, single, s)) {
        uint32_t token = get(r, get(r, s, "SpecialToken"), "id");
        if (!absent(r, get(r, s, "Sequence"))) {
            text_seen = true;
            continue;
        }
        lar_error e = read_text(r, token, "post_processor.single", &r->text);
        if (e) return e;
        uint32_t id = lar_tokenizer_find(r->t, lar_buf_slice(&r->text));
        if (text_seen || id == LAR_TOKEN_NONE || r->t->prefix_count == LAR_TOKENIZER_PREFIX)
            return unsupported(r, "post_processor", "behind the text, unknown or too many: the token", token);
        r->t->prefix[r->t->prefix_count++] = id;
    }
    return text_seen ? LAR_OK : refuse(r, "post_processor", "the template has no place for the text");
}

static lar_error read_post_processor(reader *r, uint32_t root) {
    uint32_t node = get(r, root, "post_processor"), list[1] = {node};
    uint32_t parts = is_text(r, get(r, node, "type"), "Sequence") ? get(r, node, "processors") : LAR_JSON_NONE;
    uint32_t p = parts == LAR_JSON_NONE ? list[0] : lar_json_first(&r->json, parts);
    lar_error e = LAR_OK;
    while (p != LAR_JSON_NONE && !absent(r, p) && !e) {
        uint32_t type = get(r, p, "type");
        if (is_text(r, type, "TemplateProcessing")) e = read_template(r, p);
        else if (!is_text(r, type, "ByteLevel")) e = unsupported(r, "post_processor", "the type", type);
        p = parts == LAR_JSON_NONE ? LAR_JSON_NONE : lar_json_after(&r->json, parts, p);
    }
    return e;
}

static lar_error read_rest(reader *r, uint32_t root) {
    lar_error e = only_type(r, root, "normalizer", NULL, "normalizers");
    if (!e) e = only_type(r, root, "decoder", "ByteLevel", "decoders");
    return e ? e : read_post_processor(r, root);
}

static lar_error read_tokenizer(reader *r) {
    uint32_t model = get(r, 0, "model");
    bool ignore_merges = false;
    lar_error e = check_model(r, model);
    if (!e) e = read_flag(r, model, "ignore_merges", &ignore_merges);
    if (!e) e = read_tokens(r, 0, model);
    if (!e) e = read_merges(r, model);
    if (!e) e = read_pre_tokenizer(r, 0);
    if (e) return e;
    lar_bpe_whole whole = ignore_merges ? LAR_BPE_BY_VOCABULARY : LAR_BPE_BY_MERGES;
    e = located(r, lar_tokenizer_seal(r->t, whole, r->diag), "added_tokens");
    return e ? e : read_rest(r, 0);
}

lar_error lar_tokenizer_from_json(lar_slice json, lar_slice config, lar_tokenizer **out, lar_diag *d) {
    if (json.len > LAR_TOKENIZER_FILE)
        return lar_fail(LAR_LIMIT, d, "tokenizer.json has %zu bytes; %d at most", json.len, LAR_TOKENIZER_FILE);
    lar_json_limits limits = {.depth_max = NESTED_MAX, .nodes_max = NODES_MAX};
    reader r = {.diag = d};
    lar_json_init(&r.json);
    lar_buf_init(&r.text, LAR_TOKENIZER_FILE);
    lar_buf_init(&r.other, LAR_TOKENIZER_FILE);
    lar_error e = located(&r, lar_json_parse(&r.json, json, &limits, d), "the file");
    if (!e) e = read_tokenizer(&r);
    if (!e && config.len) e = lar_tokenizer_configure(r.t, config, d);
    lar_json_release(&r.json);
    lar_buf_release(&r.text);
    lar_buf_release(&r.other);
    if (!e) *out = r.t;
    else lar_tokenizer_free(r.t);
    return e;
}
