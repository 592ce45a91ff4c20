/* Byte-pair encoding. Flow: tokenizer_build.c builds, tokenizer.c encodes piece by piece. Any thread: immutable once
 * built.
 * 1. The lowest rank merges first, the leftmost of equal ranks first, as in the reference.
 * 2. Short pieces look for it among all neighbours; long ones keep a heap, so that a megabyte of one letter costs
 *    n log n. A heap entry whose rank is no longer that of its place is stale and dropped.
 * 3. Both tables probe at most PROBES places, also for a file made to collide: it is refused when it is opened.
 * 4. A token that merging its own bytes leads to is marked, and a piece equal to it needs no merging.
 * Memory: the caller's lar_bpe_work for long pieces, 32 bytes for each byte of the longest. */
#include "engine/text/bpe.h"

#include <stdlib.h>
#include <xxhash.h>

enum {
    PROBES = 512,
    SHORT = 24,
    TOKEN_BYTES = 1 << 20,
    ALL_BYTES = 1 << 30,
    PIECE_MAX = 1 << 30,
    FILTER_WORDS = 1 << 14,
    STOP_EVERY = 1 << 14 /* merges of one piece */
};

struct lar_bpe_string {
    uint32_t at, len;
    uint8_t role;
    bool whole; /* a piece with these bytes is this token */
};
struct lar_bpe_slot {
    uint32_t id; /* + 1; 0: free */
    uint32_t tag;
};
struct lar_bpe_pair {
    uint64_t key; /* left << 32 | right, + 1; 0: free */
    uint32_t rank, id;
};

void lar_ids_init(lar_ids *ids, size_t max) { *ids = (lar_ids){.max = max}; }

void lar_ids_release(lar_ids *ids) {
    free(ids->ids);
    *ids = (lar_ids){.max = ids->max};
}

lar_error lar_ids_add(lar_ids *ids, uint32_t id) {
    if (ids->count == ids->cap) {
        if (ids->count >= ids->max) return LAR_LIMIT;
        size_t cap = ids->cap ? ids->cap * 2 : 256;
        if (cap > ids->max) cap = ids->max;
        uint32_t *grown = realloc(ids->ids, cap * sizeof *grown);
        if (!grown) return LAR_NO_MEMORY;
        ids->ids = grown;
        ids->cap = cap;
    }
    ids->ids[ids->count++] = id;
    return LAR_OK;
}

/* -- building ------------------------------------------------------------------------------------------------------ */

/* A power of two with room for `entries` at half load. */
static uint32_t table_size(uint32_t entries) {
    uint32_t size = 64;
    while (size / 2 < entries) size *= 2;
    return size;
}

lar_error lar_bpe_init(lar_bpe *b, uint32_t ids) {
    *b = (lar_bpe){.ids = ids};
    lar_buf_init(&b->bytes, ALL_BYTES);
    b->strings = calloc(ids ? ids : 1, sizeof *b->strings);
    memset(b->byte_id, 0xFF, sizeof b->byte_id);
    return b->strings ? LAR_OK : LAR_NO_MEMORY;
}

void lar_bpe_release(lar_bpe *b) {
    free(b->strings);
    free(b->slots);
    free(b->pairs);
    free(b->filter);
    lar_buf_release(&b->bytes);
    *b = (lar_bpe){0};
}

lar_slice lar_bpe_bytes(const lar_bpe *b, uint32_t id) {
    if (id >= b->ids || b->strings[id].role == LAR_BPE_ABSENT) return (lar_slice){0};
    return lar_slice_of(b->bytes.ptr + b->strings[id].at, b->strings[id].len);
}

lar_error lar_bpe_set(lar_bpe *b, uint32_t id, lar_slice bytes, lar_bpe_role role, lar_diag *d) {
    lar_bpe_string *s = &b->strings[id];
    if (s->role != LAR_BPE_ABSENT) return lar_fail(LAR_INVALID, d, "two tokens of the vocabulary have the id %u", id);
    if (bytes.len > TOKEN_BYTES) return lar_fail(LAR_LIMIT, d, "token %u has %zu bytes", id, bytes.len);
    *s = (lar_bpe_string){.at = (uint32_t)b->bytes.len, .len = (uint32_t)bytes.len, .role = (uint8_t)role};
    if (role == LAR_BPE_MERGED && bytes.len == 1) b->byte_id[(unsigned char)bytes.ptr[0]] = id;
    return lar_buf_add_slice(&b->bytes, bytes);
}

static uint64_t hash_bytes(lar_slice s) { return XXH3_64bits(s.ptr, s.len); }

static uint32_t find_slot(const lar_bpe *b, lar_slice bytes, uint64_t hash, bool *found) {
    uint32_t tag = (uint32_t)(hash >> 32), at = (uint32_t)hash & b->slot_mask;
    for (uint32_t i = 0; i < PROBES; i++, at = (at + 1) & b->slot_mask) {
        const lar_bpe_slot *slot = &b->slots[at];
        *found = false;
        if (!slot->id) return at;
        *found = slot->tag == tag && lar_slice_eq(lar_bpe_bytes(b, slot->id - 1), bytes);
        if (*found) return at;
    }
    return LAR_BPE_NONE;
}

static lar_error index_token(lar_bpe *b, uint32_t id, lar_diag *d) {
    lar_slice bytes = lar_bpe_bytes(b, id);
    uint64_t hash = hash_bytes(bytes);
    bool found = false;
    uint32_t at = find_slot(b, bytes, hash, &found);
    if (at == LAR_BPE_NONE) return lar_fail(LAR_INVALID, d, "the tokens are made to collide (id %u)", id);
    if (found) return lar_fail(LAR_INVALID, d, "the tokens %u and %u are the same text", b->slots[at].id - 1, id);
    b->slots[at] = (lar_bpe_slot){.id = id + 1, .tag = (uint32_t)(hash >> 32)};
    return LAR_OK;
}

/* Bytes that no UTF-8 holds may be missing: text with one is refused when it comes. */
static bool occurs_in_utf8(uint32_t byte) { return byte != 0xC0 && byte != 0xC1 && byte < 0xF5; }

lar_error lar_bpe_reserve(lar_bpe *b, uint32_t merges) {
    uint32_t pairs = table_size(merges);
    b->pairs = calloc(pairs, sizeof *b->pairs);
    b->filter = calloc(FILTER_WORDS, sizeof *b->filter);
    b->pair_mask = pairs - 1;
    return b->pairs && b->filter ? LAR_OK : LAR_NO_MEMORY;
}

lar_error lar_bpe_index(lar_bpe *b, lar_diag *d) {
    uint32_t slots = table_size(b->ids);
    b->slots = calloc(slots, sizeof *b->slots);
    b->slot_mask = slots - 1;
    if (!b->slots) return LAR_NO_MEMORY;
    for (uint32_t byte = 0; byte < 256; byte++)
        if (b->byte_id[byte] == LAR_BPE_NONE && occurs_in_utf8(byte))
            return lar_fail(LAR_INVALID, d,
                            "the vocabulary has no token for the byte 0x%02X: text with it would be lost", byte);
    for (uint32_t id = 0; id < b->ids; id++) {
        if (b->strings[id].role != LAR_BPE_MERGED) continue;
        lar_error e = index_token(b, id, d);
        if (e) return e;
    }
    return LAR_OK;
}

uint32_t lar_bpe_find(const lar_bpe *b, lar_slice bytes) {
    bool found;
    uint32_t at = find_slot(b, bytes, hash_bytes(bytes), &found);
    return at != LAR_BPE_NONE && found ? b->slots[at].id - 1 : LAR_BPE_NONE;
}

static inline uint64_t hash_pair(uint64_t key) { return key * 0x9E3779B97F4A7C15u; }

/* The entry of two neighbours, or the free place for it; NULL where PROBES places are taken by others. */
static inline lar_bpe_pair *find_pair(const lar_bpe *b, uint32_t left, uint32_t right) {
    uint64_t key = ((uint64_t)left << 32 | right) + 1;
    uint32_t at = (uint32_t)(hash_pair(key) >> 32) & b->pair_mask;
    for (uint32_t i = 0; i < PROBES; i++, at = (at + 1) & b->pair_mask)
        if (b->pairs[at].key == key || !b->pairs[at].key) return &b->pairs[at];
    return NULL;
}

static lar_error merge_refused(lar_slice left, lar_slice right, uint32_t rank, lar_diag *d) {
    bool long_left = left.len > 40, long_right = right.len > 40;
    return lar_fail(LAR_INVALID, d, "merge %u joins or makes what is no token (%zu and %zu bytes: %.*s%s %.*s%s)", rank,
                    left.len, right.len, long_left ? 40 : (int)left.len, left.ptr, long_left ? ".." : "",
                    long_right ? 40 : (int)right.len, right.ptr, long_right ? ".." : "");
}

lar_error lar_bpe_join(lar_bpe *b, const uint32_t pair[2], uint32_t id, uint32_t rank, lar_diag *d) {
    lar_bpe_pair *p = find_pair(b, pair[0], pair[1]);
    if (!p) return lar_fail(LAR_INVALID, d, "the merges are made to collide (merge %u)", rank);
    uint64_t key = ((uint64_t)pair[0] << 32 | pair[1]) + 1, bit = hash_pair(key) >> 44;
    b->filter[bit / 64] |= 1ull << bit % 64;
    *p = (lar_bpe_pair){.key = key, .rank = rank, .id = id};
    return LAR_OK;
}

lar_error lar_bpe_merge(lar_bpe *b, lar_slice left, lar_slice right, uint32_t rank, lar_diag *d) {
    uint32_t l = lar_bpe_find(b, left), r = lar_bpe_find(b, right);
    lar_buf whole;
    lar_buf_init(&whole, 2 * TOKEN_BYTES);
    lar_error e = l == LAR_BPE_NONE || r == LAR_BPE_NONE ? merge_refused(left, right, rank, d) : LAR_OK;
    if (!e) e = lar_buf_add_slice(&whole, left);
    if (!e) e = lar_buf_add_slice(&whole, right);
    uint32_t id = e ? LAR_BPE_NONE : lar_bpe_find(b, lar_buf_slice(&whole));
    lar_buf_release(&whole);
    if (e) return e;
    if (id == LAR_BPE_NONE) return merge_refused(left, right, rank, d);
    return lar_bpe_join(b, (uint32_t[]){l, r}, id, rank, d);
}

/* -- merging ------------------------------------------------------------------------------------------------------- */

/* The rank of two neighbours, NONE where they do not merge. */
static inline uint32_t rank_of(const lar_bpe *b, uint32_t left, uint32_t right, uint32_t *id) {
    uint64_t bit = hash_pair(((uint64_t)left << 32 | right) + 1) >> 44;
    if (!(b->filter[bit / 64] >> bit % 64 & 1)) return LAR_BPE_NONE;
    const lar_bpe_pair *p = find_pair(b, left, right);
    if (!p || !p->key) return LAR_BPE_NONE;
    *id = p->id;
    return p->rank;
}

static lar_error byte_missing(uint32_t byte, lar_diag *d) {
    return lar_fail(LAR_INVALID, d, "the text is not UTF-8, and the vocabulary has no token for its byte 0x%02X", byte);
}

/* Merges up to SHORT bytes in place; *count becomes the number of tokens. */
static lar_error merge_short(const lar_bpe *b, lar_slice piece, uint32_t ids[SHORT], uint32_t *count, lar_diag *d) {
    uint32_t ranks[SHORT], merged[SHORT], n = (uint32_t)piece.len;
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = b->byte_id[(unsigned char)piece.ptr[i]];
        if (ids[i] == LAR_BPE_NONE) return byte_missing((unsigned char)piece.ptr[i], d);
        if (i) ranks[i - 1] = rank_of(b, ids[i - 1], ids[i], &merged[i - 1]);
    }
    while (n > 1) {
        uint32_t best = 0;
        for (uint32_t i = 1; i + 1 < n; i++)
            if (ranks[i] < ranks[best]) best = i;
        if (ranks[best] == LAR_BPE_NONE) break;
        ids[best] = merged[best];
        n--;
        memmove(&ids[best + 1], &ids[best + 2], (n - best - 1) * sizeof *ids);
        if (best + 1 < n) {
            memmove(&ranks[best], &ranks[best + 1], (n - best - 1) * sizeof *ranks);
            memmove(&merged[best], &merged[best + 1], (n - best - 1) * sizeof *merged);
            ranks[best] = rank_of(b, ids[best], ids[best + 1], &merged[best]);
        }
        if (best) ranks[best - 1] = rank_of(b, ids[best - 1], ids[best], &merged[best - 1]);
    }
    *count = n;
    return LAR_OK;
}

/* A piece as a list of tokens: token, neighbours and the rank with the one behind, by the place of the first byte. */
typedef struct chain {
    uint32_t *ids, *before, *behind, *ranks;
    uint64_t *heap; /* rank << 32 | place; the smallest first */
    size_t heaped;
} chain;

static void heap_push(chain *c, uint64_t entry) {
    size_t at = c->heaped++;
    for (; at && c->heap[(at - 1) / 2] > entry; at = (at - 1) / 2) c->heap[at] = c->heap[(at - 1) / 2];
    c->heap[at] = entry;
}

static uint64_t heap_pop(chain *c) {
    uint64_t top = c->heap[0], last = c->heap[--c->heaped];
    size_t at = 0;
    for (size_t child = 1; child < c->heaped; child = 2 * at + 1) {
        if (child + 1 < c->heaped && c->heap[child + 1] < c->heap[child]) child++;
        if (c->heap[child] >= last) break;
        c->heap[at] = c->heap[child];
        at = child;
    }
    c->heap[at] = last;
    return top;
}

/* The rank at `place` anew. The heap begins with n - 1 entries at most, and each of at most n - 1 merges takes one and
 * adds two: 2 n are enough. */
static void rank_place(const lar_bpe *b, chain *c, uint32_t place) {
    uint32_t next = c->behind[place], id;
    c->ranks[place] = next == LAR_BPE_NONE ? LAR_BPE_NONE : rank_of(b, c->ids[place], c->ids[next], &id);
    if (c->ranks[place] != LAR_BPE_NONE) heap_push(c, (uint64_t)c->ranks[place] << 32 | place);
}

static bool is_stopped(const lar_bpe_work *w) { return w->stop && atomic_load_explicit(w->stop, memory_order_relaxed); }

/* False: stopped. */
static bool merge_chain(const lar_bpe *b, chain *c, const lar_bpe_work *work) {
    for (uint32_t n = 1; c->heaped; n++) {
        if (n % STOP_EVERY == 0 && is_stopped(work)) return false;
        uint64_t entry = heap_pop(c);
        uint32_t place = (uint32_t)entry, id = LAR_BPE_NONE;
        if (c->ranks[place] != (uint32_t)(entry >> 32)) continue;
        uint32_t gone = c->behind[place];
        (void)rank_of(b, c->ids[place], c->ids[gone], &id);
        c->ids[place] = id;
        c->behind[place] = c->behind[gone];
        c->ranks[gone] = LAR_BPE_NONE;
        if (c->behind[place] != LAR_BPE_NONE) c->before[c->behind[place]] = place;
        rank_place(b, c, place);
        if (c->before[place] != LAR_BPE_NONE) rank_place(b, c, c->before[place]);
    }
    return true;
}

static lar_error work_room(lar_bpe_work *w, size_t n) {
    if (n <= w->cap) return LAR_OK;
    lar_bpe_work_release(w);
    w->links = malloc(4 * n * sizeof *w->links);
    w->heap = malloc(2 * n * sizeof *w->heap);
    if (!w->links || !w->heap) {
        lar_bpe_work_release(w);
        return LAR_NO_MEMORY;
    }
    w->cap = n;
    return LAR_OK;
}

void lar_bpe_work_release(lar_bpe_work *w) {
    free(w->links);
    free(w->heap);
    *w = (lar_bpe_work){.stop = w->stop};
}

static lar_error encode_long(const lar_bpe *b, lar_slice piece, lar_bpe_work *work, lar_ids *out, lar_diag *d) {
    lar_error e = work_room(work, piece.len);
    if (e) return e;
    size_t n = piece.len;
    chain c = {work->links, work->links + n, work->links + 2 * n, work->links + 3 * n, work->heap, 0};
    for (uint32_t i = 0; i < n; i++) {
        c.ids[i] = b->byte_id[(unsigned char)piece.ptr[i]];
        if (c.ids[i] == LAR_BPE_NONE) return byte_missing((unsigned char)piece.ptr[i], d);
        c.before[i] = i ? i - 1 : LAR_BPE_NONE;
        c.behind[i] = i + 1 < n ? i + 1 : LAR_BPE_NONE;
    }
    for (uint32_t i = 0; i < n; i++) rank_place(b, &c, i);
    if (!merge_chain(b, &c, work)) return LAR_CLIENT_GONE;
    for (uint32_t i = 0; i != LAR_BPE_NONE && !e; i = c.behind[i]) e = lar_ids_add(out, c.ids[i]);
    return e;
}

lar_error lar_bpe_encode(const lar_bpe *b, lar_slice piece, lar_bpe_work *work, lar_ids *out, lar_diag *d) {
    if (is_stopped(work)) return LAR_CLIENT_GONE;
    uint32_t whole = lar_bpe_find(b, piece);
    if (whole != LAR_BPE_NONE && b->strings[whole].whole) return lar_ids_add(out, whole);
    if (piece.len > PIECE_MAX) return lar_fail(LAR_LIMIT, d, "a piece of the text has %zu bytes", piece.len);
    if (piece.len > SHORT) return encode_long(b, piece, work, out, d);
    uint32_t ids[SHORT], count = 0;
    lar_error e = merge_short(b, piece, ids, &count, d);
    for (uint32_t i = 0; i < count && !e; i++) e = lar_ids_add(out, ids[i]);
    return e;
}

lar_error lar_bpe_finish(lar_bpe *b, lar_bpe_whole whole) {
    lar_bpe_work work = {0};
    lar_ids ids;
    lar_ids_init(&ids, SIZE_MAX);
    lar_error e = LAR_OK;
    for (uint32_t id = 0; id < b->ids && !e; id++) {
        if (b->strings[id].role != LAR_BPE_MERGED) continue;
        ids.count = 0;
        if (whole == LAR_BPE_BY_MERGES) e = lar_bpe_encode(b, lar_bpe_bytes(b, id), &work, &ids, NULL);
        if (e == LAR_INVALID) e = LAR_OK; /* it has a byte that no UTF-8 holds and no token stands for */
        b->strings[id].whole = whole == LAR_BPE_BY_VOCABULARY || (ids.count == 1 && ids.ids[0] == id);
    }
    lar_ids_release(&ids);
    lar_bpe_work_release(&work);
    return e;
}
