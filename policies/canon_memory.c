/* Keys and small values of the rules' memory; lists of findings and puts that grow in the arena.
 * Called by every stage of canon; one request at a time; get returns at once, put is only noted here and
 * done by lar_canon_commit. Invariants: 1. every key holds a scope, so no tenant reads another's, and no session what
 * another one said. 2. every value's first byte is its version, its last eight are a sum: what was damaged is not
 * there. Not here: what the values mean. */
#include "policies/canon_state.h"

enum { SUM_BYTES = 8 };

/* The value with its sum; ptr NULL: no memory. */
static lar_slice seal(lar_slice value, lar_arena *arena) {
    char *kept = lar_arena_alloc(arena, value.len + SUM_BYTES);
    if (!kept) return (lar_slice){NULL, 0};
    uint64_t sum = lar_hash_low(lar_hash_of(value));
    if (value.len) memcpy(kept, value.ptr, value.len);
    memcpy(kept + value.len, &sum, SUM_BYTES);
    return lar_slice_of(kept, value.len + SUM_BYTES);
}

void lar_memory_put(const lar_memory_ops *m, const lar_hash *key, lar_slice value, lar_arena *arena) {
    lar_slice kept = seal(value, arena);
    if (kept.ptr) m->put(m->ctx, key, kept);
}

bool lar_memory_get(const lar_memory_ops *m, const lar_hash *key, lar_buf *out) {
    size_t before = out->len;
    if (m->get(m->ctx, key, out) != LAR_OK || out->len < before + SUM_BYTES) return false;
    out->len -= SUM_BYTES;
    uint64_t sum = lar_hash_low(lar_hash_of(lar_slice_of(out->ptr + before, out->len - before)));
    return memcmp(out->ptr + out->len, &sum, SUM_BYTES) == 0;
}

/* Evidence, forms of heads, orders of tools: hashes and orders, for all sessions. The rest is a conversation's. */
static bool is_wide(char kind) {
    static const char kinds[] = {'T', 'L', 'K', 'R', 'B', 'O', 'Q', 'k'};
    return memchr(kinds, kind, sizeof kinds) != NULL;
}

static lar_hash key_of(const lar_canon *c, char kind, lar_hash what) {
    char bytes[33];
    bytes[0] = kind;
    memcpy(bytes + 1, is_wide(kind) ? c->wide.bytes : c->scope.bytes, 16);
    memcpy(bytes + 17, what.bytes, 16);
    return lar_hash_of(lar_slice_of(bytes, sizeof bytes));
}

bool lar_canon_get(lar_canon *c, char kind, lar_hash what) {
    const lar_memory_ops *m = c->in->memory;
    if (!m) return false;
    lar_hash key = key_of(c, kind, what);
    c->value.len = 0;
    bool found = lar_memory_get(m, &key, &c->value) && c->value.len > 0;
    if (found) c->out->recall_hits++;
    else c->out->recall_misses++;
    return found;
}

lar_error lar_canon_put_one(lar_canon *c, lar_canon_put put) {
    lar_canon_out *o = c->out;
    if (o->put_count == c->put_cap) {
        uint32_t cap = c->put_cap ? c->put_cap * 2 : 16;
        lar_canon_put *more = lar_arena_alloc(c->arena, cap * sizeof *more);
        if (!more) return LAR_NO_MEMORY;
        if (o->put_count) memcpy(more, o->puts, o->put_count * sizeof *more);
        o->puts = more;
        c->put_cap = cap;
    }
    o->puts[o->put_count++] = put;
    return LAR_OK;
}

lar_error lar_canon_put_value(lar_canon *c, char kind, lar_hash what, lar_slice value) {
    if (!c->in->memory) return LAR_OK;
    lar_slice kept = seal(value, c->arena);
    if (!kept.ptr) return LAR_NO_MEMORY;
    return lar_canon_put_one(c, (lar_canon_put){.key = key_of(c, kind, what), .value = kept});
}

lar_error lar_canon_find(lar_canon *c, lar_finding f) {
    lar_canon_out *o = c->out;
    if (o->finding_count == c->finding_cap) {
        uint32_t cap = c->finding_cap ? c->finding_cap * 2 : 8;
        lar_finding *more = lar_arena_alloc(c->arena, cap * sizeof *more);
        if (!more) return LAR_NO_MEMORY;
        if (o->finding_count) memcpy(more, o->findings, o->finding_count * sizeof *more);
        o->findings = more;
        c->finding_cap = cap;
    }
    if (lar_canon_rule_of(f.class_id) != f.rule) f.class_id = LAR_VOLATILE_COUNT;
    o->findings[o->finding_count++] = f;
    o->rules_seen |= 1ull << f.rule;
    if (f.edited) o->rules_fired |= 1ull << f.rule;
    return LAR_OK;
}

void lar_canon_commit(const lar_canon_out *out, const lar_memory_ops *memory) {
    for (uint32_t i = 0; i < out->put_count; i++) {
        const lar_canon_put *p = &out->puts[i];
        const lar_memory_ops *to = p->text ? out->texts : memory;
        if (to) to->put(to->ctx, &p->key, p->value);
    }
}
