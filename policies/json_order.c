/* The order of members as bytes (header: json_order.h).
 * Called by tool_form.c for tools and by json_form.c for JSON texts; pure; memory from the arena; never blocks.
 * Invariants: 1. the walk depends on names and values only, never on where members stand. 2. no recursion: the nodes
 * still to be visited lie on a stack. 3. bytes that are no order of all members are refused.
 * Why by the hash of names: long names that begin alike would make a sorting by bytes slow. */
#include "policies/json_order.h"

#include <stdlib.h>

#include "base/hash.h"
#include "policies/text.h"

enum { ONE_BYTE_MAX = 256, NAME_ROOM = 256 };

static int by_name(const void *a, const void *b) {
    const lar_json_member *x = a, *y = b;
    return x->name < y->name ? -1 : x->name > y->name;
}

static int by_key(const void *a, const void *b) {
    const lar_json_member *x = a, *y = b;
    return x->key < y->key ? -1 : x->key > y->key;
}

/* False: a name stands twice. */
static bool rank_members(lar_json_member *m, uint32_t count) {
    if (count < 2) return true;
    qsort(m, count, sizeof *m, by_name);
    for (uint32_t i = 0; i < count; i++) {
        if (i && m[i].name == m[i - 1].name) return false;
        m[i].rank = i;
    }
    return true;
}

static lar_error name_hash(const lar_json *j, uint32_t key, lar_arena *arena, uint64_t *out) {
    char room[NAME_ROOM], *to = room;
    lar_slice raw = lar_json_inner(j, key);
    if (j->nodes[key].flags & LAR_JSON_ESCAPED) {
        if (raw.len > sizeof room) to = lar_arena_alloc(arena, raw.len);
        if (!to) return LAR_NO_MEMORY;
        raw = lar_slice_of(to, lar_text_decode(raw, to));
    }
    *out = lar_hash_low(lar_hash_of(raw));
    return LAR_OK;
}

lar_error lar_json_order_read(lar_json_order *o, lar_arena *arena, bool *fits) {
    const lar_json *j = o->json;
    uint32_t root = o->root, n = j->nodes[root].next - root, used = 0;
    *fits = false;
    o->first = lar_arena_alloc(arena, n * sizeof *o->first);
    o->sorted = lar_arena_alloc(arena, n * sizeof *o->sorted);
    o->want = lar_arena_alloc(arena, n * sizeof *o->want);
    o->stack = lar_arena_alloc(arena, n * sizeof *o->stack);
    if (!o->first || !o->sorted || !o->want || !o->stack) return LAR_NO_MEMORY;
    for (uint32_t i = root; i < root + n; i++) {
        if (!lar_json_is(j, i, LAR_JSON_OBJECT)) continue;
        uint32_t first = o->first[i - root] = used;
        for (uint32_t k = lar_json_first(j, i); k != LAR_JSON_NONE; k = lar_json_after(j, i, k)) {
            if (k == o->skip) continue;
            uint64_t name;
            lar_error e = name_hash(j, k, arena, &name);
            if (e) return e;
            o->want[used] = k;
            o->sorted[used++] = (lar_json_member){.name = name, .key = k};
        }
        if (!rank_members(o->sorted + first, used - first)) return LAR_OK;
    }
    *fits = true;
    return LAR_OK;
}

/* Puts what lies in `node` on the stack, so that it is taken off in order: elements, or values by their names. */
static uint32_t push_inside(const lar_json_order *o, uint32_t node, uint32_t depth) {
    const lar_json *j = o->json;
    uint32_t from = depth;
    if (lar_json_is(j, node, LAR_JSON_ARRAY)) {
        for (uint32_t k = lar_json_first(j, node); k != LAR_JSON_NONE; k = lar_json_after(j, node, k))
            o->stack[depth++] = k;
    } else if (lar_json_is(j, node, LAR_JSON_OBJECT)) {
        const lar_json_member *m = o->sorted + o->first[node - o->root];
        for (uint32_t i = 0; i < lar_json_order_count(o, node); i++) o->stack[depth++] = m[i].key + 1;
    }
    for (uint32_t a = from, b = depth; a + 1 < b; a++, b--) {
        uint32_t swap = o->stack[a];
        o->stack[a] = o->stack[b - 1];
        o->stack[b - 1] = swap;
    }
    return depth;
}

/* The next object with two members or more, its members in `*m`; 0 at the end. */
static uint32_t next_object(const lar_json_order *o, uint32_t *depth, lar_json_member **m, uint32_t *first) {
    while (*depth) {
        uint32_t node = o->stack[--*depth];
        *depth = push_inside(o, node, *depth);
        if (!lar_json_is(o->json, node, LAR_JSON_OBJECT)) continue;
        uint32_t count = lar_json_order_count(o, node);
        *first = o->first[node - o->root];
        *m = o->sorted + *first;
        if (count >= 2) return count;
    }
    return 0;
}

lar_error lar_json_order_write(const lar_json_order *o, lar_arena *arena, lar_buf *out) {
    uint32_t depth = 1, count, first;
    lar_json_member *m;
    o->stack[0] = o->root;
    while ((count = next_object(o, &depth, &m, &first)) != 0) {
        lar_json_member *standing = lar_arena_alloc(arena, count * sizeof *standing);
        if (!standing) return LAR_NO_MEMORY;
        memcpy(standing, m, count * sizeof *standing);
        qsort(standing, count, sizeof *standing, by_key);
        for (uint32_t i = 0; i < count; i++) {
            uint8_t rank[2] = {(uint8_t)(standing[i].rank & 255), (uint8_t)(standing[i].rank >> 8)};
            lar_error e = lar_buf_add(out, rank, count > ONE_BYTE_MAX ? 2 : 1);
            if (e) return e;
        }
    }
    return LAR_OK;
}

bool lar_json_order_apply(lar_json_order *o, lar_slice order) {
    uint32_t depth = 1, count, first;
    lar_json_member *m;
    size_t at = 0;
    o->stack[0] = o->root;
    while ((count = next_object(o, &depth, &m, &first)) != 0) {
        uint32_t bytes = count > ONE_BYTE_MAX ? 2 : 1;
        if (order.len - at < (size_t)count * bytes) return false;
        for (uint32_t i = 0; i < count; i++, at += bytes) {
            uint32_t rank = (uint8_t)order.ptr[at];
            if (bytes == 2) rank |= (uint32_t)(uint8_t)order.ptr[at + 1] << 8;
            if (rank >= count || m[rank].rank == LAR_JSON_NONE) return false;
            m[rank].rank = LAR_JSON_NONE;
            o->want[first + i] = m[rank].key;
        }
    }
    return at == order.len;
}
