/* A tokenizer once it is open: text to ids, ids to bytes.
 * Flow: the engine calls; added tokens are found first, the text between them goes through pretoken.c piece by piece,
 * and each piece through bpe.c. Any thread, blocks on nothing but malloc: a tokenizer is immutable.
 * Added tokens are sorted by their bytes, and a match is a range of the list that narrows byte by byte; none is longer
 * than LAR_ADDED_BYTES, so that a hostile list costs a constant for each byte of text.
 * Not here: opening (tokenizer_build.c, tokenizer_json.c, tokenizer_parts.c), whole characters of a stream. */
#include <stdlib.h>

#include "engine/text/tokenizer_core.h"

void lar_tokenizer_free(lar_tokenizer *t) {
    if (!t) return;
    lar_pretoken_release(&t->steps);
    lar_bpe_release(&t->bpe);
    for (int i = 0; i < LAR_ADDED_LISTS; i++) free(t->added[i].ids);
    free(t->special);
    free(t);
}

/* -- added tokens -------------------------------------------------------------------------------------------------- */

/* The first index of [low, high) whose byte at `depth` is at least c; all of them are longer than depth. */
static uint32_t first_at_least(const lar_tokenizer *t, const lar_added *a, uint32_t range[2], size_t depth,
                               unsigned c) {
    uint32_t low = range[0], high = range[1];
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if ((unsigned char)lar_bpe_bytes(&t->bpe, a->ids[middle]).ptr[depth] < c) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* The longest token of the list at the front of `text`; NONE. */
static uint32_t longest(const lar_tokenizer *t, const lar_added *a, lar_slice text) {
    uint32_t range[2] = {0, a->count}, found = LAR_TOKEN_NONE;
    for (size_t depth = 0; range[0] < range[1]; depth++) {
        if (lar_bpe_bytes(&t->bpe, a->ids[range[0]]).len == depth) found = a->ids[range[0]++];
        if (depth == text.len || range[0] == range[1]) break;
        unsigned c = (unsigned char)text.ptr[depth];
        uint32_t low = first_at_least(t, a, range, depth, c);
        uint32_t high = first_at_least(t, a, range, depth, c + 1);
        range[0] = low;
        range[1] = high;
    }
    return found;
}

/* One text on its way through: what is read and where the ids go. */
typedef struct encoding {
    const lar_tokenizer *t;
    const lar_marked_text *in;
    size_t span[LAR_ADDED_LISTS]; /* the first plain span that ends behind where the search of a list stands */
    lar_bpe_work work;
    lar_ids *out;
    lar_diag *diag;
} encoding;

typedef struct range {
    size_t at, end;
} range;

/* The next added token of the list in `r` outside the plain spans: its id, and its place in *found. NONE: none. */
static uint32_t next_added(encoding *c, lar_added_list list, range r, range *found) {
    const lar_added *a = &c->t->added[list];
    const lar_text_span *plain = c->in->plain;
    if (a->count == 0) return LAR_TOKEN_NONE;
    size_t span = c->span[list];
    for (size_t at = r.at; at < r.end; at++) {
        if (!a->begins[(unsigned char)c->in->text.ptr[at]]) continue;
        while (span < c->in->plain_count && (plain[span].end <= at || plain[span].start == plain[span].end)) span++;
        c->span[list] = span;
        size_t stop = r.end;
        if (span < c->in->plain_count) {
            if (plain[span].start <= at) {
                at = plain[span].end - 1;
                continue;
            }
            if (plain[span].start < stop) stop = plain[span].start;
        }
        uint32_t id = longest(c->t, a, lar_slice_of(c->in->text.ptr + at, stop - at));
        if (id == LAR_TOKEN_NONE) continue;
        *found = (range){at, at + lar_bpe_bytes(&c->t->bpe, id).len};
        return id;
    }
    return LAR_TOKEN_NONE;
}

/* -- encoding ------------------------------------------------------------------------------------------------------ */

static lar_error encode_pieces(encoding *c, range r) {
    lar_pieces pieces;
    lar_slice piece;
    bool more = false;
    lar_pieces_init(&pieces, &c->t->steps, c->in->text, r.at, r.end);
    for (;;) {
        if (lar_pieces_next(&pieces, &piece, &more))
            return lar_fail(LAR_LIMIT, c->diag, "the tokenizer's expressions look at this text too often");
        if (!more) return LAR_OK;
        lar_error e = lar_bpe_encode(&c->t->bpe, piece, &c->work, c->out, c->diag);
        if (e) return e;
    }
}

/* Between two tokens of the first list: those of the second, and what lies between. */
static lar_error encode_between(encoding *c, range r) {
    range found;
    lar_error e = LAR_OK;
    while (r.at < r.end && !e) {
        uint32_t id = next_added(c, LAR_ADDED_NORMALIZED, r, &found);
        if (id == LAR_TOKEN_NONE) return encode_pieces(c, r);
        if (found.at > r.at) e = encode_pieces(c, (range){r.at, found.at});
        if (!e) e = lar_ids_add(c->out, id);
        r.at = found.end;
    }
    return e;
}

static lar_error check_spans(const lar_marked_text *in, lar_diag *d) {
    size_t at = 0;
    for (size_t i = 0; i < in->plain_count; i++) {
        if (in->plain[i].start < at || in->plain[i].end < in->plain[i].start || in->plain[i].end > in->text.len)
            return lar_fail(LAR_INVALID, d, "the plain spans of the text overlap or leave it (span %zu)", i);
        at = in->plain[i].end;
    }
    return LAR_OK;
}

lar_error lar_tokenizer_encode(const lar_tokenizer *t, const lar_marked_text *text, lar_ids *out, lar_diag *d) {
    encoding c = {.t = t, .in = text, .work = {.stop = text->stop}, .out = out, .diag = d};
    size_t before = out->count;
    range r = {0, text->text.len}, found;
    lar_error e = check_spans(text, d);
    while (r.at < r.end && !e) {
        uint32_t id = next_added(&c, LAR_ADDED_EXACT, r, &found);
        if (id == LAR_TOKEN_NONE) found = (range){r.end, r.end};
        if (found.at > r.at) e = encode_between(&c, (range){r.at, found.at});
        if (!e && id != LAR_TOKEN_NONE) e = lar_ids_add(out, id);
        r.at = found.end;
    }
    lar_bpe_work_release(&c.work);
    if (!e) return LAR_OK;
    out->count = before;
    if (e == LAR_LIMIT && d && !d->text[0]) return lar_fail(e, d, "the text has more than %zu tokens", out->max);
    return e;
}

lar_error lar_tokenizer_encode_plain(const lar_tokenizer *t, lar_slice text, lar_ids *out, lar_diag *d) {
    lar_text_span all = {0, text.len};
    return lar_tokenizer_encode(t, &(lar_marked_text){.text = text, .plain = &all, .plain_count = 1}, out, d);
}

/* -- reading ------------------------------------------------------------------------------------------------------- */

lar_error lar_tokenizer_decode(const lar_tokenizer *t, const uint32_t *ids, size_t count, lar_decode_special special,
                               lar_buf *out) {
    for (size_t i = 0; i < count; i++) {
        lar_slice bytes = lar_bpe_bytes(&t->bpe, ids[i]);
        if (!bytes.ptr) return LAR_INVALID;
        if (special == LAR_DECODE_SPECIAL_SKIPPED && t->special[ids[i]]) continue;
        lar_error e = lar_buf_add_slice(out, bytes);
        if (e) return e;
    }
    return LAR_OK;
}

lar_slice lar_tokenizer_bytes(const lar_tokenizer *t, uint32_t id) { return lar_bpe_bytes(&t->bpe, id); }

bool lar_tokenizer_is_special(const lar_tokenizer *t, uint32_t id) { return id < t->bpe.ids && t->special[id]; }

uint32_t lar_tokenizer_find(const lar_tokenizer *t, lar_slice text) {
    for (int i = 0; i < LAR_ADDED_LISTS; i++) {
        uint32_t id = longest(t, &t->added[i], text);
        if (id != LAR_TOKEN_NONE && lar_bpe_bytes(&t->bpe, id).len == text.len) return id;
    }
    return lar_bpe_find(&t->bpe, text);
}

size_t lar_tokenizer_longest(const lar_tokenizer *t) {
    size_t longest_len = 0;
    for (uint32_t id = 0; id < t->bpe.ids; id++) {
        size_t len = lar_bpe_bytes(&t->bpe, id).len;
        if (len > longest_len) longest_len = len;
    }
    return longest_len;
}

uint32_t lar_tokenizer_size(const lar_tokenizer *t) { return t->bpe.ids; }
uint32_t lar_tokenizer_bos(const lar_tokenizer *t) { return t->bos; }
uint32_t lar_tokenizer_eos(const lar_tokenizer *t) { return t->eos; }

const uint32_t *lar_tokenizer_prefix(const lar_tokenizer *t, uint32_t *count) {
    *count = t->prefix_count;
    return t->prefix;
}
