/* Building a tokenizer from what a file says: tokens in the byte-level alphabet, added tokens, merges.
 * Flow: tokenizer_json.c and tokenizer_parts.c call, in the order new, set and add, lar_bpe_index, merge, seal. Any
 * thread; blocks on nothing but malloc.
 * The byte-level alphabet (GPT-2's): printable bytes of Latin-1 are themselves, the other 68 are U+0100 and following,
 * in order. */
#include <stdlib.h>

#include "base/utf8.h"
#include "engine/text/tokenizer_core.h"

lar_error lar_tokenizer_new(uint64_t ids, lar_tokenizer **out, lar_diag *d) {
    if (ids > LAR_BPE_IDS_MAX)
        return lar_fail(LAR_LIMIT, d, "the vocabulary has an id of %llu; ids under %d are supported",
                        (unsigned long long)ids - 1, LAR_BPE_IDS_MAX);
    lar_tokenizer *t = calloc(1, sizeof *t);
    if (!t) return LAR_NO_MEMORY;
    t->bos = t->eos = LAR_TOKEN_NONE;
    t->special = calloc(ids ? ids : 1, 1);
    lar_error e = t->special ? lar_bpe_init(&t->bpe, (uint32_t)ids) : LAR_NO_MEMORY;
    if (e) lar_tokenizer_free(t);
    else *out = t;
    return e;
}

/* The byte of a character of the byte-level alphabet; -1 for others. */
static int byte_of(uint32_t code) {
    if ((code >= 0x21 && code <= 0x7E) || (code >= 0xA1 && code <= 0xAC) || (code >= 0xAE && code <= 0xFF))
        return (int)code;
    if (code < 0x100 || code > 0x143) return -1;
    uint32_t n = code - 0x100;
    return n <= 0x20 ? (int)n : n <= 0x42 ? (int)(n + 0x5E) : 0xAD;
}

/* The bytes that `text` stands for; false where a character is not of the alphabet. */
static lar_error to_bytes(lar_slice text, lar_buf *out, bool *whole) {
    const unsigned char *p = (const unsigned char *)text.ptr, *end = p + text.len;
    out->len = 0;
    *whole = true;
    while (p < end && *whole) {
        size_t n = lar_utf8_sequence(p, end);
        int byte = n == 1 ? byte_of(p[0]) : n == 2 ? byte_of((p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu)) : -1;
        *whole = byte >= 0;
        char c = (char)byte;
        lar_error e = lar_buf_add(out, &c, 1);
        if (e) return e;
        p += n;
    }
    return LAR_OK;
}

lar_error lar_tokenizer_set(lar_tokenizer *t, uint32_t id, lar_slice text, lar_buf *scratch, lar_diag *d) {
    bool whole;
    lar_error e = to_bytes(text, scratch, &whole);
    if (e) return e;
    if (!whole || text.len == 0) return lar_bpe_set(&t->bpe, id, text, LAR_BPE_LITERAL, d);
    return lar_bpe_set(&t->bpe, id, lar_buf_slice(scratch), LAR_BPE_MERGED, d);
}

lar_error lar_tokenizer_add(lar_tokenizer *t, uint32_t id, lar_slice text, lar_added_list list, lar_diag *d) {
    lar_added *a = &t->added[list];
    if (text.len == 0 || text.len > LAR_ADDED_BYTES)
        return lar_fail(LAR_INVALID, d, "the added token %u has %zu bytes; 1 to %d are supported", id, text.len,
                        LAR_ADDED_BYTES);
    if (a->count == a->cap) {
        uint32_t cap = a->cap ? a->cap * 2 : 64;
        uint32_t *grown = realloc(a->ids, cap * sizeof *grown);
        if (!grown) return LAR_NO_MEMORY;
        a->ids = grown;
        a->cap = cap;
    }
    a->ids[a->count++] = id;
    a->begins[(unsigned char)text.ptr[0]] = true;
    return lar_bpe_set(&t->bpe, id, text, LAR_BPE_LITERAL, d);
}

lar_error lar_tokenizer_merge(lar_tokenizer *t, lar_slice left, lar_slice right, uint32_t rank, lar_diag *d) {
    lar_buf bytes[2];
    bool whole[2] = {false, false};
    for (int i = 0; i < 2; i++) lar_buf_init(&bytes[i], left.len + right.len);
    lar_error e = to_bytes(left, &bytes[0], &whole[0]);
    if (!e) e = to_bytes(right, &bytes[1], &whole[1]);
    if (!e && !(whole[0] && whole[1] && left.len && right.len))
        e = lar_fail(LAR_INVALID, d, "merge %u is not written in the byte-level alphabet", rank);
    if (!e) e = lar_bpe_merge(&t->bpe, lar_buf_slice(&bytes[0]), lar_buf_slice(&bytes[1]), rank, d);
    for (int i = 0; i < 2; i++) lar_buf_release(&bytes[i]);
    return e;
}

bool lar_tokenizer_split_merge(lar_slice merge, lar_slice *left, lar_slice *right) {
    const char *blank = merge.len ? memchr(merge.ptr, ' ', merge.len) : NULL;
    if (!blank) return false;
    size_t len = (size_t)(blank - merge.ptr);
    *left = lar_slice_of(merge.ptr, len);
    *right = lar_slice_of(blank + 1, merge.len - len - 1);
    return left->len && right->len && !memchr(right->ptr, ' ', right->len);
}

static int by_bytes(const void *a, const void *b, void *tokenizer) {
    const lar_tokenizer *t = tokenizer;
    lar_slice x = lar_bpe_bytes(&t->bpe, *(const uint32_t *)a), y = lar_bpe_bytes(&t->bpe, *(const uint32_t *)b);
    int order = memcmp(x.ptr, y.ptr, x.len < y.len ? x.len : y.len);
    return order ? order : x.len < y.len ? -1 : x.len > y.len;
}

/* Two added tokens with one text, in one list or across both. */
static lar_error check_added(const lar_tokenizer *t, lar_diag *d) {
    for (int i = 0; i < LAR_ADDED_LISTS; i++) {
        for (uint32_t k = 0; k < t->added[i].count; k++) {
            uint32_t id = t->added[i].ids[k], found = lar_tokenizer_find(t, lar_bpe_bytes(&t->bpe, id));
            if (found != id) return lar_fail(LAR_INVALID, d, "the added tokens %u and %u are the same text", found, id);
        }
    }
    return LAR_OK;
}

lar_error lar_tokenizer_seal(lar_tokenizer *t, lar_bpe_whole whole, lar_diag *d) {
    for (int i = 0; i < LAR_ADDED_LISTS; i++)
        if (t->added[i].count) qsort_r(t->added[i].ids, t->added[i].count, sizeof(uint32_t), by_bytes, t);
    lar_error e = check_added(t, d);
    return e ? e : lar_bpe_finish(&t->bpe, whole);
}
