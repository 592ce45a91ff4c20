/* A tokenizer from the metadata of a GGUF file.
 * Flow: whoever opened the file hands over its arrays (tokenizer.h). Any thread; blocks on nothing but malloc.
 * Control and user-defined tokens are the added ones; GGUF does not say in which order the reference would look for
 * them, and llama.cpp takes the longest first. Unused and unknown ones stand for their text and are never made. */
#include "engine/text/tokenizer_core.h"

enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5 };

static lar_error add_token(lar_tokenizer *t, const lar_tokenizer_parts *p, uint32_t id, lar_buf *scratch, lar_diag *d) {
    switch (p->types ? p->types[id] : NORMAL) {
    case NORMAL: return lar_tokenizer_set(t, id, p->tokens[id], scratch, d);
    case CONTROL: t->special[id] = 1; return lar_tokenizer_add(t, id, p->tokens[id], LAR_ADDED_EXACT, d);
    case USER_DEFINED: return lar_tokenizer_add(t, id, p->tokens[id], LAR_ADDED_EXACT, d);
    case UNKNOWN:
    case UNUSED: return lar_bpe_set(&t->bpe, id, p->tokens[id], LAR_BPE_LITERAL, d);
    default:
        return lar_fail(LAR_INVALID, d, "tokenizer.ggml.token_type: token %u has type %d; 1 to 5 are supported", id,
                        (int)p->types[id]);
    }
}

static lar_error add_merges(lar_tokenizer *t, const lar_tokenizer_parts *p, lar_diag *d) {
    for (uint32_t i = 0; i < p->merge_count; i++) {
        lar_slice left, right;
        if (!lar_tokenizer_split_merge(p->merges[i], &left, &right))
            return lar_fail(LAR_INVALID, d, "tokenizer.ggml.merges: merge %u is not two tokens with a blank between",
                            i);
        lar_error e = lar_tokenizer_merge(t, left, right, i, d);
        if (e) return e;
    }
    return LAR_OK;
}

static lar_error special_ids(lar_tokenizer *t, const lar_tokenizer_parts *p, lar_diag *d) {
    const uint32_t ids[2] = {p->bos, p->eos};
    for (int i = 0; i < 2; i++)
        if (ids[i] != LAR_TOKEN_NONE && ids[i] >= p->token_count)
            return lar_fail(LAR_INVALID, d, "tokenizer.ggml.%s_token_id is %u, but there are %u tokens",
                            i ? "eos" : "bos", ids[i], p->token_count);
    t->bos = p->bos;
    t->eos = p->eos;
    if (p->add_bos && p->bos == LAR_TOKEN_NONE)
        return lar_fail(LAR_INVALID, d, "tokenizer.ggml.add_bos_token is set, but there is no bos_token_id");
    if (p->add_bos) t->prefix[t->prefix_count++] = p->bos;
    return LAR_OK;
}

lar_error lar_tokenizer_from_parts(const lar_tokenizer_parts *p, lar_tokenizer **out, lar_diag *d) {
    if (!lar_slice_eq_cstr(p->model, "gpt2"))
        return lar_fail(LAR_INVALID, d,
                        "tokenizer.ggml.model is \"%.*s\"; \"gpt2\" (byte-level BPE) alone is supported",
                        (int)(p->model.len < 40 ? p->model.len : 40), p->model.ptr);
    lar_tokenizer *t = NULL;
    lar_buf scratch;
    lar_buf_init(&scratch, LAR_TOKENIZER_FILE);
    lar_error e = lar_tokenizer_new(p->token_count, &t, d);
    if (!e) e = lar_pretoken_add_family(&t->steps, p->pre, d);
    for (uint32_t id = 0; id < p->token_count && !e; id++) e = add_token(t, p, id, &scratch, d);
    if (!e) e = lar_bpe_index(&t->bpe, d);
    if (!e) e = lar_bpe_reserve(&t->bpe, p->merge_count);
    if (!e) e = add_merges(t, p, d);
    if (!e) e = special_ids(t, p, d);
    if (!e) e = lar_tokenizer_seal(t, LAR_BPE_BY_MERGES, d);
    lar_buf_release(&scratch);
    if (!e) *out = t;
    else lar_tokenizer_free(t);
    return e;
}
