/* Blocks of facts: which block goes with which user message, now and later.
 * Flow: canon_recall.c -> here, only while a span moves. Never blocks.
 * Remembered in the scope, by chain hash:
 *   F  of a user message that opened a turn -> the facts it was opened with, newest first
 *   P  of what followed it -> the facts that this conversation has there: two conversations that begin alike,
 *      or a regenerated answer, keep their own
 * Invariants: 1. the message that opens the newest turn carries the values of now, unless the conversation's
 * last block says the same. 2. a message of an older turn keeps the facts it was sent with, or none;
 * facts that say the same as the ones before them in the conversation are remembered, but not printed again.
 * 3. blocks only ever go to the end of a user message; no message is added. */
#include "policies/canon_state.h"

enum { VERSION = 2, VARIANTS_MAX = 4, HEAD_BYTES = 10 };

bool lar_canon_appendable(const lar_canon *c, uint32_t segment) {
    const lar_segment *s = &c->view->segments[segment];
    if (s->role != LAR_ROLE_USER || c->view->protocol == LAR_PROTOCOL_COMPLETIONS) return false;
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

/* A list of blocks in memory: [version][count][8 bytes: when the newest came, ms] then [length lo][hi][bytes], newest
 * first. Length 0: sent bare. */
typedef struct choice {
    lar_slice block; /* in the arena */
    uint64_t newest; /* hash of the first of the list */
    int64_t time_ms; /* when that came */
    bool found, now; /* now: it says what is true now */
    bool agrees;     /* it says the constants of this conversation */
} choice;

/* Whether a block says what stands still in this conversation: directory, branch, session. */
static bool agrees(const lar_canon *c, lar_slice block) {
    for (uint32_t i = 0; i < c->constant_count; i++) {
        if (!memmem(block.ptr, block.len, c->constants[i].ptr, c->constants[i].len)) return false;
    }
    return true;
}

/* Of the blocks remembered there: the one that says what is true now, else the newest one of a conversation with the
 * same constants, else the newest. But where more conversations began alike than there is room for, one with other
 * constants is not this one's: the model would read the directory of another. */
static choice recalled(lar_canon *c, char kind, lar_hash chain) {
    choice best = {{NULL, 0}, 0, 0, false, false, false};
    if (!lar_canon_get(c, kind, chain) || c->value.len < HEAD_BYTES + 2 || c->value.ptr[0] != VERSION) return best;
    lar_slice v = lar_buf_slice(&c->value);
    memcpy(&best.time_ms, v.ptr + 2, 8);
    for (size_t at = HEAD_BYTES; at + 2 <= v.len && !best.now;) {
        size_t n = (uint8_t)v.ptr[at] | (size_t)(uint8_t)v.ptr[at + 1] << 8;
        if (at + 2 + n > v.len) break;
        lar_slice one = lar_slice_of(v.ptr + at + 2, n);
        best.now = lar_slice_eq(one, c->facts);
        bool better = !best.agrees && agrees(c, one);
        if (!best.found || best.now || better) best.block = one;
        best.agrees = best.agrees || better;
        if (!best.found) best.newest = lar_hash_low(lar_hash_of(one));
        best.found = true;
        at += 2 + n;
    }
    bool full = kind == 'F' && (uint8_t)v.ptr[1] == VARIANTS_MAX;
    if (best.found) best.block = lar_arena_copy(c->arena, best.block);
    if (!best.block.ptr || (full && !best.agrees)) best.found = best.now = false;
    return best;
}

/* Puts the block in front of that list. `time_ms`: when it was told. */
static lar_error remember(lar_canon *c, char kind, lar_hash chain, lar_slice block, int64_t time_ms) {
    lar_slice old = {NULL, 0};
    if (lar_canon_get(c, kind, chain) && c->value.len >= HEAD_BYTES && c->value.ptr[0] == VERSION)
        old = lar_buf_slice(&c->value);
    char *v = lar_arena_alloc(c->arena, HEAD_BYTES + 2 + block.len + old.len);
    if (!v) return LAR_NO_MEMORY;
    v[0] = VERSION;
    memcpy(v + 2, &time_ms, 8);
    v[HEAD_BYTES] = (char)(block.len & 255);
    v[HEAD_BYTES + 1] = (char)(block.len >> 8 & 255);
    if (block.len) memcpy(v + HEAD_BYTES + 2, block.ptr, block.len);
    size_t n = HEAD_BYTES + 2 + block.len, at = HEAD_BYTES;
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
    if (n == old.len && memcmp(v + HEAD_BYTES, old.ptr + HEAD_BYTES, n - HEAD_BYTES) == 0) return LAR_OK;
    return lar_canon_put_value(c, kind, chain, lar_slice_of(v, n));
}

/* The facts of a user message of an older turn. A block that was pinned by a conversation that is alike, up to the same
 * answer, gives way to the one that this conversation's turn was opened with. */
static lar_error recall_one(lar_canon *c, uint32_t i, bool known) {
    lar_canon_segment *s = &c->segments[i];
    lar_hash after = c->segments[i + 1].chain;
    choice pin = known ? recalled(c, 'P', after) : (choice){{NULL, 0}, 0, 0, false, false, false};
    s->facts = pin.block;
    bool others = pin.found && pin.block.len && !pin.agrees;
    if (pin.found && !others) return LAR_OK;
    choice first = known ? recalled(c, 'F', s->chain) : pin;
    if (others && !first.agrees) return LAR_OK;
    s->facts = first.found ? first.block : (lar_slice){"", 0};
    return remember(c, 'P', after, s->facts, first.found ? first.time_ms : c->in->now_ms);
}

static bool opens(const lar_canon *c, uint32_t turn) {
    for (uint32_t i = turn + 1; i < c->view->segment_count; i++) {
        if (c->view->segments[i].role != LAR_ROLE_SYSTEM) return false;
    }
    return true;
}

/* Whether the block of a long tool loop is to be told anew, at the price of all that stands behind it. */
static bool stale(const lar_canon *c, const choice *pin) {
    int64_t most = (int64_t)c->in->options->facts_refresh_ms;
    return most && !pin->now && c->in->now_ms - pin->time_ms >= most;
}

/* The facts of the user message that opens the newest turn. */
static lar_error newest_turn(lar_canon *c, uint32_t deepest) {
    uint32_t t = c->view->turn_user, count = c->view->segment_count;
    lar_canon_segment *s = &c->segments[t];
    lar_hash after = t + 1 < count ? c->segments[t + 1].chain : s->chain;
    lar_canon_segment *end = &c->segments[count - 1];
    if (!opens(c, t) && deepest != LAR_JSON_NONE && t <= deepest) {
        /* A tool round: the bytes stay. What is true now wins; else what this conversation has. But if this very
         * request was sent before and its turn has been opened anew since, it is a replay: the newest block wins. */
        choice pin = recalled(c, 'P', after), opened = recalled(c, 'F', s->chain);
        bool has_pin = pin.found && pin.block.len, has_opened = opened.found && opened.block.len;
        end->opening = opened.newest;
        bool replay = deepest == count - 1 && end->known_opening != end->opening;
        bool others = opened.agrees && !pin.agrees; /* the pinned one is that of a conversation that is alike */
        bool keeps = has_pin && (pin.now || !has_opened || !(replay || opened.now || others));
        if (keeps && !stale(c, &pin)) {
            s->facts = pin.block;
            return LAR_OK;
        }
        if (!keeps && has_opened) {
            s->facts = opened.block;
            return remember(c, 'P', after, s->facts, opened.time_ms);
        }
    }
    s->facts = c->facts;
    end->opening = lar_hash_low(lar_hash_of(s->facts));
    lar_error e = remember(c, 'F', s->chain, s->facts, c->in->now_ms);
    return e || t + 1 == count ? e : remember(c, 'P', after, s->facts, c->in->now_ms);
}

lar_error lar_canon_facts(lar_canon *c, uint32_t deepest) {
    uint32_t turn = c->view->turn_user;
    lar_error e = LAR_OK;
    for (uint32_t i = c->head_count; i < turn && !e; i++) {
        if (lar_canon_appendable(c, i)) e = recall_one(c, i, deepest != LAR_JSON_NONE && i <= deepest);
    }
    if (!e) e = newest_turn(c, deepest);
    lar_slice last = {NULL, 0};
    for (uint32_t i = c->head_count; i <= turn && !e; i++) {
        lar_canon_segment *s = &c->segments[i];
        if (s->facts.len == 0) continue;
        bool same = lar_slice_eq(s->facts, last); /* said before in this conversation: no block */
        last = s->facts;
        if (same) s->facts = (lar_slice){NULL, 0};
        else e = attach(c, i);
    }
    return e;
}
