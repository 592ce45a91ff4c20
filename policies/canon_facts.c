/* Blocks of facts: which block goes with which user message, now and later.
 * Flow: canon_recall.c -> here, only while a clock is moved out of the head. Never blocks.
 * Remembered in the scope, by chain hash:
 *   F  of a user message that opened a turn -> the blocks it was sent with, newest first
 *   P  of what followed it -> the block that this conversation has: two conversations that begin alike, or
 *      a regenerated answer, keep their own
 * Invariants: 1. the message that opens the newest turn carries the values of now, unless the conversation's
 * last block says the same. 2. a message of an older turn keeps the block it was sent with, or none.
 * 3. blocks only ever go to the end of a user message; no message is added. */
#include "policies/canon_state.h"

enum { VERSION = 1, VARIANTS_MAX = 4, PINS_MAX = 1024, KIND_BARE = 0, KIND_BLOCK = 1 };

bool lar_canon_appendable(const lar_canon *c, uint32_t segment) {
    const lar_segment *s = &c->view->segments[segment];
    if (s->role != LAR_ROLE_USER) return false;
    if (lar_json_is(c->json, s->content, LAR_JSON_STRING)) return true;
    return lar_json_is(c->json, s->content, LAR_JSON_ARRAY) && c->json->nodes[s->content].count > 0 &&
           lar_json_is(c->json, lar_json_first(c->json, s->content), LAR_JSON_OBJECT);
}

/* Appends the block to a user message's content. */
static lar_error attach(lar_canon *c, uint32_t i) {
    const lar_segment *s = &c->view->segments[i];
    lar_slice block = c->segments[i].facts;
    if (block.len == 0) return LAR_OK;
    const lar_json_node *n = &c->json->nodes[s->content];
    if (n->kind == LAR_JSON_STRING) return lar_splices_add(&c->out->splices, n->end - 1, n->end - 1, block);
    uint32_t last = lar_json_first(c->json, s->content), next;
    while ((next = lar_json_after(c->json, s->content, last)) != LAR_JSON_NONE) last = next;
    uint32_t at = c->json->nodes[last].end;
    const char *type = c->view->protocol == LAR_PROTOCOL_RESPONSES ? "input_text" : "text";
    lar_slice part = lar_arena_printf(c->arena, ",{\"type\":\"%s\",\"text\":\"%.*s\"}", type, LAR_FMT(block));
    return part.ptr ? lar_splices_add(&c->out->splices, at, at, part) : LAR_NO_MEMORY;
}

/* The newest block that this user message was sent with. False if it never had one. */
static bool newest(lar_canon *c, uint32_t i, lar_slice *block) {
    if (!lar_canon_get(c, 'F', c->segments[i].chain) || c->value.len < 4 || c->value.ptr[0] != VERSION) return false;
    size_t n = (uint8_t)c->value.ptr[2] | (size_t)(uint8_t)c->value.ptr[3] << 8;
    if (c->value.ptr[1] < 1 || c->value.len < 4 + n) return false;
    *block = lar_arena_copy(c->arena, lar_slice_of(c->value.ptr + 4, n));
    return block->ptr != NULL;
}

/* The block pinned to this conversation. *bare: none was known when it was sent. */
static bool pinned(lar_canon *c, uint32_t i, lar_slice *block, bool *bare) {
    if (!lar_canon_get(c, 'P', c->segments[i + 1].chain) || c->value.len < 2 || c->value.ptr[0] != VERSION) return false;
    *bare = c->value.ptr[1] == KIND_BARE;
    *block = lar_arena_copy(c->arena, lar_slice_of(c->value.ptr + 2, c->value.len - 2));
    return block->ptr != NULL;
}

static lar_error pin(lar_canon *c, uint32_t i, lar_slice block, char kind) {
    char *v = lar_arena_alloc(c->arena, 2 + block.len);
    if (!v) return LAR_NO_MEMORY;
    v[0] = VERSION;
    v[1] = kind;
    if (block.len) memcpy(v + 2, block.ptr, block.len);
    return lar_canon_put_value(c, 'P', c->segments[i + 1].chain, lar_slice_of(v, 2 + block.len));
}

/* Puts the block in front of the variants of F. */
static lar_error remember(lar_canon *c, uint32_t i, lar_slice block) {
    lar_slice old = {NULL, 0};
    if (lar_canon_get(c, 'F', c->segments[i].chain) && c->value.len >= 2 && c->value.ptr[0] == VERSION) old = lar_buf_slice(&c->value);
    char *v = lar_arena_alloc(c->arena, 4 + block.len + old.len);
    if (!v) return LAR_NO_MEMORY;
    v[0] = VERSION;
    v[2] = (char)(block.len & 255);
    v[3] = (char)(block.len >> 8 & 255);
    if (block.len) memcpy(v + 4, block.ptr, block.len);
    size_t n = 4 + block.len, at = 2;
    uint8_t count = 1;
    while (at + 2 <= old.len && count < VARIANTS_MAX) {
        size_t len = (uint8_t)old.ptr[at] | (size_t)(uint8_t)old.ptr[at + 1] << 8;
        if (at + 2 + len > old.len) break;
        if (!lar_slice_eq(lar_slice_of(old.ptr + at + 2, len), block)) {
            memcpy(v + n, old.ptr + at, 2 + len);
            n += 2 + len;
            count++;
        }
        at += 2 + len;
    }
    v[1] = (char)count;
    if (old.len && n == old.len && memcmp(v, old.ptr, n) == 0) return LAR_OK;
    return lar_canon_put_value(c, 'F', c->segments[i].chain, lar_slice_of(v, n));
}

/* A user message of an older turn. */
static lar_error recall_one(lar_canon *c, uint32_t i, bool known) {
    lar_canon_segment *s = &c->segments[i];
    bool bare;
    if (known && pinned(c, i, &s->facts, &bare)) return LAR_OK;
    if (known && newest(c, i, &s->facts)) return pin(c, i, s->facts, KIND_BLOCK);
    s->facts = (lar_slice){NULL, 0};
    return pin(c, i, s->facts, KIND_BARE);
}

static bool opens(const lar_canon *c, uint32_t turn) {
    for (uint32_t i = turn + 1; i < c->view->segment_count; i++) {
        if (c->view->segments[i].role != LAR_ROLE_SYSTEM) return false;
    }
    return true;
}

/* The user message that opens the newest turn. `last`: the block of the turns before, if any. */
static lar_error newest_turn(lar_canon *c, uint32_t deepest, lar_slice last) {
    uint32_t t = c->view->turn_user, count = c->view->segment_count;
    lar_canon_segment *s = &c->segments[t];
    bool known = deepest != LAR_JSON_NONE && t <= deepest, bare = false;
    if (!opens(c, t) && known) {
        /* A tool round: the bytes stay. A request seen before as a whole is a replay; its turn was opened
         * anew before, so the newest block wins over the one pinned back then. */
        lar_slice pin_block = {NULL, 0}, new_block = {NULL, 0};
        bool has_pin = pinned(c, t, &pin_block, &bare) && !bare, has_new = newest(c, t, &new_block);
        bool replay = deepest == count - 1;
        if (has_pin || has_new) {
            s->facts = has_new && (!has_pin || replay) ? new_block : pin_block;
            if (s->facts.len || last.len) return has_pin && lar_slice_eq(s->facts, pin_block) ? LAR_OK : pin(c, t, s->facts, KIND_BLOCK);
        }
    }
    s->facts = lar_slice_eq(last, c->facts) ? (lar_slice){"", 0} : c->facts;
    lar_error e = remember(c, t, s->facts);
    return e || t + 1 == count ? e : pin(c, t, s->facts, KIND_BLOCK);
}

lar_error lar_canon_facts(lar_canon *c, uint32_t deepest) {
    uint32_t turn = c->view->turn_user;
    lar_slice last = {NULL, 0};
    lar_error e = LAR_OK;
    for (uint32_t i = c->head_count; i < turn && !e; i++) {
        if (!lar_canon_appendable(c, i)) continue;
        e = recall_one(c, i, deepest != LAR_JSON_NONE && i <= deepest);
        if (c->segments[i].facts.len) last = c->segments[i].facts;
    }
    if (!e) e = newest_turn(c, deepest, last);
    for (uint32_t i = c->head_count; i <= turn && !e; i++) e = attach(c, i);
    return e;
}
