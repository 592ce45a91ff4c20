/* Inside of a tokenizer: what tokenizer_json.c and tokenizer_parts.c fill and tokenizer.c uses. */
#ifndef LARDER_ENGINE_TEXT_TOKENIZER_CORE_H
#define LARDER_ENGINE_TEXT_TOKENIZER_CORE_H

#include "engine/text/pretoken.h"
#include "engine/text/tokenizer.h"

enum { LAR_TOKENIZER_PREFIX = 8, LAR_ADDED_BYTES = 256, LAR_TOKENIZER_FILE = 256 << 20 };

/* The reference looks for the tokens of the first list in the whole text, then for those of the second in the rest. */
typedef enum lar_added_list { LAR_ADDED_EXACT, LAR_ADDED_NORMALIZED, LAR_ADDED_LISTS } lar_added_list;

/* Added tokens, sorted by their bytes. */
typedef struct lar_added {
    uint32_t *ids;
    uint32_t count, cap;
    bool begins[256]; /* some token begins with this byte */
} lar_added;

struct lar_tokenizer {
    lar_pretoken steps;
    lar_bpe bpe;
    lar_added added[LAR_ADDED_LISTS];
    uint8_t *special; /* (bpe.ids): 1 where the token is special */
    uint32_t bos, eos;
    uint32_t prefix[LAR_TOKENIZER_PREFIX];
    uint32_t prefix_count;
};

/* Room for `ids` ids. LIMIT over LAR_BPE_IDS_MAX. The caller frees *out. */
LAR_MUST_USE lar_error lar_tokenizer_new(uint64_t ids, lar_tokenizer **out, lar_diag *d);
/* One token that BPE makes, as files write it: in the byte-level alphabet. A text with other characters becomes a token
 * that stands for itself and is never made. `scratch` is emptied and used. */
LAR_MUST_USE lar_error lar_tokenizer_set(lar_tokenizer *t, uint32_t id, lar_slice text, lar_buf *scratch, lar_diag *d);
/* INVALID where it is empty, longer than LAR_ADDED_BYTES, or the id is taken. */
LAR_MUST_USE lar_error lar_tokenizer_add(lar_tokenizer *t, uint32_t id, lar_slice text, lar_added_list list,
                                         lar_diag *d);
/* The merge of rank `rank`; the two texts are in the byte-level alphabet. After lar_bpe_index. */
LAR_MUST_USE lar_error lar_tokenizer_merge(lar_tokenizer *t, lar_slice left, lar_slice right, uint32_t rank,
                                           lar_diag *d);
/* After everything: INVALID where two added tokens are the same text. */
LAR_MUST_USE lar_error lar_tokenizer_seal(lar_tokenizer *t, lar_bpe_whole whole, lar_diag *d);
/* Reads tokenizer_config.json once every token is there. INVALID, and the errors of JSON. */
LAR_MUST_USE lar_error lar_tokenizer_configure(lar_tokenizer *t, lar_slice config, lar_diag *d);
/* Splits "a b" at its blank; false where there is not exactly one, between two texts. */
bool lar_tokenizer_split_merge(lar_slice merge, lar_slice *left, lar_slice *right);

#endif
