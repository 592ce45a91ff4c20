/* What values mean, as hashes: trees, texts, segments; and the memo that saves doing it again.
 * Called by canon's stages; one request at a time (a memo belongs to one loop thread); memory from the
 * arena, the memo on the heap; never blocks.
 * Invariants: 1. equal `exact` = the model reads the same bytes. 2. `norm` ignores only member order,
 * cache_control, and the form of client text. 3. no recursion: nodes are visited last to first, so that
 * children come before their parents. 4. the memo is a pure function's: it can leak nothing. 5. whether a
 * segment is hashed by its bytes alone depends on it and those before it only: a conversation that grows keeps
 * its hashes. */
#include <stdlib.h>

#include "policies/canon_state.h"

typedef struct pair {
    lar_hash norm, exact;
} pair;

enum { MEMO_RECIPE_MAX = 27, NODE_WORK = 32, ESCAPE_WORK = 4 };
enum { TAG_STRING = 's', TAG_OTHER = 'v', TAG_ARRAY = 'a', TAG_OBJECT = 'o' };

typedef struct memo_entry {
    lar_hash key, norm, exact;
    lar_output_core core;
    uint32_t work;
    lar_clock_budget clocks; /* of a head segment: what it took to find that there is none */
    uint32_t text_node;      /* counted from the segment's node; NONE if it has no single text */
    uint8_t recipe_bytes;
    uint8_t recipe[MEMO_RECIPE_MAX];
} memo_entry;

struct lar_norm_cache {
    uint32_t mask; /* entries - 1, a power of two, at least 2 */
    uint32_t turn;
    memo_entry entries[];
};

lar_norm_cache *lar_norm_cache_new(uint32_t entries) {
    uint32_t n = 2;
    while (n < entries && n < 1u << 24) n *= 2;
    lar_norm_cache *c = calloc(1, sizeof *c + (size_t)n * sizeof *c->entries);
    if (c) c->mask = n - 1;
    return c;
}

void lar_norm_cache_free(lar_norm_cache *c) { free(c); }

static memo_entry *memo_find(lar_norm_cache *m, const lar_hash *key) {
    uint32_t at = (uint32_t)lar_hash_low(*key) & m->mask & ~1u;
    for (uint32_t k = 0; k < 2; k++) {
        if (lar_hash_eq(m->entries[at + k].key, *key)) return &m->entries[at + k];
    }
    return NULL;
}

static void memo_add(lar_norm_cache *m, const memo_entry *e) {
    uint32_t at = (uint32_t)lar_hash_low(e->key) & m->mask & ~1u;
    m->entries[at + (m->turn++ & 1)] = *e;
}

static lar_hash raw_key(const lar_canon *c, uint32_t node, char kind) {
    lar_hash h = lar_hash_of(lar_json_raw(c->json, node));
    h.bytes[15] ^= (uint8_t)kind;
    return h;
}

/* -- trees ---------------------------------------------------------------------------------------- */

static lar_hash tagged(lar_hash h, char tag) {
    h.bytes[0] ^= (uint8_t)tag;
    return h;
}

lar_error lar_canon_decoded(lar_canon *c, uint32_t node, lar_slice *out) {
    lar_slice raw = lar_json_inner(c->json, node);
    *out = raw;
    if (!(c->json->nodes[node].flags & LAR_JSON_ESCAPED)) return LAR_OK;
    if (raw.len > c->decoded_bytes) {
        c->decoded = lar_arena_alloc(c->arena, raw.len);
        c->decoded_bytes = c->decoded ? raw.len : 0;
        if (!c->decoded) return LAR_NO_MEMORY;
    }
    *out = lar_slice_of(c->decoded, lar_text_decode(raw, c->decoded));
    return LAR_OK;
}

static void add128(uint64_t sum[2], lar_hash h) {
    uint64_t v[2];
    memcpy(v, h.bytes, 16);
    sum[0] += v[0];
    sum[1] += v[1];
}

/* An object from its members: a sum for norm (any order), a chain for exact. `item`: its own id counts for nothing. */
static pair object_pair(const lar_canon *c, uint32_t node, const pair *of, uint32_t base) {
    const lar_json *j = c->json;
    bool item = node == c->item;
    uint64_t sum[2] = {0, 0};
    lar_hash exact = tagged((lar_hash){{0}}, TAG_OBJECT);
    for (uint32_t k = lar_json_first(j, node); k != LAR_JSON_NONE; k = lar_json_after(j, node, k)) {
        if (lar_json_eq(j, k, LAR_SLICE("cache_control")) || (item && lar_json_eq(j, k, LAR_SLICE("id")))) continue;
        add128(sum, lar_hash_join(of[k - base].norm, of[k + 1 - base].norm));
        exact = lar_hash_join(exact, lar_hash_join(of[k - base].exact, of[k + 1 - base].exact));
    }
    lar_hash norm = tagged(lar_hash_of(lar_slice_of((const char *)sum, sizeof sum)), TAG_OBJECT);
    return (pair){norm, exact};
}

static pair array_pair(const lar_json *j, uint32_t node, const pair *of, uint32_t base) {
    pair p = {tagged((lar_hash){{0}}, TAG_ARRAY), tagged((lar_hash){{0}}, TAG_ARRAY)};
    for (uint32_t k = lar_json_first(j, node); k != LAR_JSON_NONE; k = lar_json_after(j, node, k)) {
        p.norm = lar_hash_join(p.norm, of[k - base].norm);
        p.exact = lar_hash_join(p.exact, of[k - base].exact);
    }
    return p;
}

/* A string; or the text of a unit that counts with its spans masked. */
static lar_error string_pair(lar_canon *c, uint32_t node, pair *p) {
    for (uint32_t k = c->swap_first; k < c->swap_first + c->swap_count; k++) {
        lar_canon_unit *u = &c->units[k];
        uint64_t own = (u->span_count < 64 ? (1ull << u->span_count) - 1 : UINT64_MAX) << u->span_first;
        if (u->node != node || !(own & c->swap_mask)) continue;
        lar_error e = lar_canon_unit_norm(c, u, c->swap_mask, &p->norm);
        p->exact = p->norm;
        return e;
    }
    lar_slice text;
    lar_error e = lar_canon_decoded(c, node, &text);
    if (!e) p->norm = p->exact = tagged(lar_hash_of(text), TAG_STRING);
    return e;
}

lar_error lar_canon_hash_tree(lar_canon *c, uint32_t node, lar_hash *norm, lar_hash *exact) {
    const lar_json *j = c->json;
    uint32_t end = j->nodes[node].next;
    size_t n = end - node;
    if (n > c->scratch_nodes) {
        c->scratch = lar_arena_alloc(c->arena, n * sizeof(pair));
        c->scratch_nodes = c->scratch ? n : 0;
        if (!c->scratch) return LAR_NO_MEMORY;
    }
    pair *of = c->scratch;
    uint32_t fixed = c->fixed_count;
    for (uint32_t i = end; i-- > node;) {
        pair *p = &of[i - node];
        if (fixed && c->fixed[fixed - 1].node == i) {
            *p = (pair){c->fixed[fixed - 1].norm, c->fixed[fixed - 1].exact};
            fixed--;
            continue;
        }
        switch (lar_json_kind_of(j, i)) {
        case LAR_JSON_OBJECT: *p = object_pair(c, i, of, node); break;
        case LAR_JSON_ARRAY: *p = array_pair(j, i, of, node); break;
        case LAR_JSON_STRING: {
            lar_error e = string_pair(c, i, p);
            if (e) return e;
            break;
        }
        case LAR_JSON_NULL:
        case LAR_JSON_FALSE:
        case LAR_JSON_TRUE:
        case LAR_JSON_NUMBER: p->norm = p->exact = tagged(lar_hash_of(lar_json_raw(j, i)), TAG_OTHER); break;
        }
    }
    *norm = of[0].norm;
    *exact = of[0].exact;
    return LAR_OK;
}

/* True if the tool has a marker that is in no hash of its tree and may be none: a parameter can have that name. */
static bool has_odd_marker(const lar_json *j, uint32_t tool) {
    uint32_t own = 0;
    for (uint32_t i = tool; i < j->nodes[tool].next; i++) {
        if (!(j->nodes[i].flags & LAR_JSON_KEY) || !lar_json_eq(j, i, LAR_SLICE("cache_control"))) continue;
        if (++own > 1 || j->nodes[i].depth != j->nodes[tool].depth + 1) return true;
    }
    return false;
}

lar_error lar_canon_hash_tool(lar_canon *c, const lar_canon_tool *t, uint64_t mask, lar_hash *norm, lar_hash *exact) {
    c->swap_first = t->unit_first;
    c->swap_count = t->unit_count;
    c->swap_mask = mask;
    lar_error e = lar_canon_hash_tree(c, t->node, norm, exact);
    c->swap_count = 0;
    if (has_odd_marker(c->json, t->node)) *exact = raw_key(c, t->node, 'T');
    return e;
}

bool lar_canon_tool_memo_get(lar_canon *c, uint32_t node, lar_hash *norm, lar_hash *exact) {
    lar_hash key = raw_key(c, node, 'T');
    const memo_entry *m = c->in->cache ? memo_find(c->in->cache, &key) : NULL;
    if (!m) return false;
    *norm = m->norm;
    *exact = m->exact;
    return true;
}

void lar_canon_tool_memo_put(lar_canon *c, uint32_t node, lar_hash norm, lar_hash exact) {
    if (!c->in->cache) return;
    lar_hash key = raw_key(c, node, 'T');
    memo_add(c->in->cache, &(memo_entry){.key = key, .norm = norm, .exact = exact, .text_node = LAR_JSON_NONE});
}

/* -- texts ---------------------------------------------------------------------------------------- */

/* The text of a content part, NONE if it is no plain text part. */
static uint32_t part_text(const lar_json *j, uint32_t part) {
    uint32_t type = lar_json_get(j, part, "type"), text = lar_json_get(j, part, "text");
    if (!lar_json_is(j, type, LAR_JSON_STRING) || !lar_json_is(j, text, LAR_JSON_STRING)) return LAR_JSON_NONE;
    if (!lar_json_eq(j, type, LAR_SLICE("text")) && !lar_json_eq(j, type, LAR_SLICE("input_text")))
        return LAR_JSON_NONE;
    return lar_json_get_count(j, part, "text") == 1 ? text : LAR_JSON_NONE;
}

lar_error lar_canon_units_read(lar_canon *c, uint32_t segment, lar_canon_unit **units, uint32_t *count) {
    const lar_json *j = c->json;
    uint32_t content = c->view->segments[segment].content;
    *units = NULL;
    *count = 0;
    bool array = lar_json_is(j, content, LAR_JSON_ARRAY);
    if (!array && !lar_json_is(j, content, LAR_JSON_STRING)) return LAR_OK;
    uint32_t room = array ? j->nodes[content].count : 1;
    if (room == 0 || room > LAR_CANON_UNITS_MAX) return LAR_OK;
    lar_canon_unit *u = lar_arena_zalloc(c->arena, room * sizeof *u);
    if (!u) return LAR_NO_MEMORY;
    uint32_t n = 0;
    if (!array) {
        u[n++] = (lar_canon_unit){.node = content, .part = LAR_JSON_NONE};
    } else {
        for (uint32_t p = lar_json_first(j, content); p != LAR_JSON_NONE; p = lar_json_after(j, content, p)) {
            uint32_t text = part_text(j, p);
            if (text != LAR_JSON_NONE) u[n++] = (lar_canon_unit){.node = text, .part = p};
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        u[i].segment = segment;
        lar_error e = lar_text_read(&u[i].text, j, u[i].node, c->arena);
        if (e) return e;
        lar_text_form_read(&u[i].form, &u[i].text, 0);
    }
    *units = u;
    *count = n;
    return LAR_OK;
}

lar_error lar_canon_unit_norm(lar_canon *c, lar_canon_unit *u, uint64_t mask, lar_hash *out) {
    lar_text_mask list[LAR_CANON_SPANS_MAX];
    lar_text_masks masks = {list, 0};
    for (uint32_t i = u->span_first; i < u->span_first + u->span_count; i++) {
        const lar_volatile_span *s = &c->spans[i];
        if (mask >> i & 1) list[masks.count++] = (lar_text_mask){s->start, s->end, (uint8_t)(s->class_id + 1)};
    }
    if (u->hashed && masks.count == 0) *out = u->valued;
    else if (u->hashed && masks.count == u->span_count) *out = u->masked;
    else return lar_text_norm(out, &u->text, &u->form, &masks, c->arena);
    return LAR_OK;
}

lar_error lar_canon_unit_norms(lar_canon *c, lar_canon_unit *u) {
    if (u->hashed) return LAR_OK;
    lar_error e = lar_canon_unit_norm(c, u, 0, &u->valued);
    u->masked = u->valued;
    if (!e && u->span_count) e = lar_canon_unit_norm(c, u, UINT64_MAX, &u->masked);
    u->hashed = !e;
    return e;
}

/* The norm with those spans masked that move. */
static lar_error sent_norm(lar_canon *c, lar_canon_unit *u, lar_hash *out) {
    lar_error e = lar_canon_unit_norms(c, u);
    return e ? e : lar_canon_unit_norm(c, u, c->edit_mask, out);
}

/* The content as a list of texts and other parts: a string and an array with that one text are the same. */
static lar_error content_norm(lar_canon *c, uint32_t segment, lar_canon_unit *units, uint32_t count) {
    const lar_json *j = c->json;
    lar_canon_segment *s = &c->segments[segment];
    uint32_t content = c->view->segments[segment].content, next = 0, kept = 0;
    s->norm = s->exact = (lar_hash){{0}};
    bool array = lar_json_is(j, content, LAR_JSON_ARRAY);
    lar_hash forms = {{0}};
    for (uint32_t p = array ? lar_json_first(j, content) : content; p != LAR_JSON_NONE;
         p = array ? lar_json_after(j, content, p) : LAR_JSON_NONE) {
        lar_hash norm, exact;
        if (next < count && (!array || units[next].part == p)) {
            lar_canon_unit *u = &units[next++];
            if (u->dropped) continue;
            lar_error e = sent_norm(c, u, &norm);
            if (e) return e;
            lar_slice recipe = lar_slice_of((const char *)u->form.recipe, u->form.recipe_bytes);
            forms = count == 1 ? lar_hash_of(recipe) : lar_hash_chain(forms, recipe);
        } else {
            lar_error e = lar_canon_hash_tree(c, p, &norm, &exact);
            if (e) return e;
            forms = lar_hash_join(forms, exact);
        }
        s->norm = lar_hash_join(s->norm, norm);
        kept++;
    }
    s->exact = lar_hash_join(s->norm, forms);
    if (count == 1 && kept == 1 && !units[0].dropped) {
        s->text_node = units[0].node;
        s->recipe =
            lar_arena_copy(c->arena, lar_slice_of((const char *)units[0].form.recipe, units[0].form.recipe_bytes));
        if (!s->recipe.ptr) return LAR_NO_MEMORY;
    }
    return LAR_OK;
}

lar_error lar_canon_units_hash(lar_canon *c, uint32_t segment, lar_canon_unit *units, uint32_t count) {
    const lar_segment *seg = &c->view->segments[segment];
    lar_canon_segment *s = &c->segments[segment];
    s->text_node = LAR_JSON_NONE;
    s->recipe = (lar_slice){NULL, 0};
    if (count == 0) {
        /* A client may number its items anew with every request; of an item of unknown kind the id may be all. */
        bool item = c->view->protocol == LAR_PROTOCOL_RESPONSES && seg->role != LAR_ROLE_OTHER;
        c->item = item ? seg->node : LAR_JSON_NONE;
        lar_error e = lar_canon_hash_tree(c, seg->node, &s->norm, &s->exact);
        c->item = LAR_JSON_NONE;
        return e;
    }
    return content_norm(c, segment, units, count);
}

/* -- segments -------------------------------------------------------------------------------------- */

/* A text in the head or in the opening was looked through, one behind them was not. */
static char memo_kind(const lar_canon *c, uint32_t segment) {
    if (segment < c->head_count) return 'S';
    if (segment < c->opening_end) return 'O';
    lar_role role = c->view->segments[segment].role;
    if (role == LAR_ROLE_ASSISTANT) return (char)('a' + c->view->protocol); /* what its parts are depends on it */
    if (role == LAR_ROLE_TOOL) return (char)('k' + c->view->protocol);
    return role == LAR_ROLE_USER || role == LAR_ROLE_SYSTEM ? 'U' : 'M';
}

static uint32_t escapes_in(lar_slice s) {
    uint32_t n = 0;
    size_t i = 0;
    for (; i + 64 <= s.len; i += 64) {
        uint8_t some = 0; /* blocks of a fixed size are counted by vectors */
        for (size_t k = 0; k < 64; k++) some = (uint8_t)(some + (s.ptr[i + k] == '\\'));
        n += some;
    }
    for (; i < s.len; i++) n += s.ptr[i] == '\\';
    return n;
}

uint32_t lar_canon_work(const lar_json *j, uint32_t node) {
    uint32_t end = j->nodes[node].next;
    uint64_t work = (uint64_t)(end - node) * NODE_WORK;
    for (uint32_t i = node; i < end && work <= LAR_CANON_WORK_MAX; i++) {
        if (!(j->nodes[i].flags & LAR_JSON_ESCAPED)) continue;
        lar_slice raw = lar_json_raw(j, i);
        work += raw.len / 4;
        if (work <= LAR_CANON_WORK_MAX) work += (uint64_t)escapes_in(raw) * ESCAPE_WORK;
    }
    return work <= LAR_CANON_WORK_MAX ? (uint32_t)work : UINT32_MAX;
}

bool lar_canon_memo_get(lar_canon *c, uint32_t segment) {
    const lar_segment *seg = &c->view->segments[segment];
    lar_canon_segment *s = &c->segments[segment];
    s->key = raw_key(c, seg->node, memo_kind(c, segment));
    const memo_entry *m = c->in->cache ? memo_find(c->in->cache, &s->key) : NULL;
    s->work = m ? m->work : lar_canon_work(c->json, seg->node);
    if (s->work > c->work_left) {
        s->norm = s->exact = s->key;
        return true;
    }
    c->work_left -= s->work;
    if (!m || m->clocks.bytes > c->clocks.bytes || m->clocks.numbers > c->clocks.numbers) return false;
    c->clocks.bytes -= m->clocks.bytes;
    c->clocks.numbers -= m->clocks.numbers;
    s->norm = m->norm;
    s->exact = m->exact;
    s->core = m->core;
    s->text_node = m->text_node == LAR_JSON_NONE ? LAR_JSON_NONE : seg->node + m->text_node;
    s->recipe = lar_arena_copy(c->arena, lar_slice_of((const char *)m->recipe, m->recipe_bytes));
    return s->recipe.ptr != NULL;
}

void lar_canon_memo_put(lar_canon *c, uint32_t segment) {
    const lar_segment *seg = &c->view->segments[segment];
    const lar_canon_segment *s = &c->segments[segment];
    if (!c->in->cache || s->recipe.len > MEMO_RECIPE_MAX) return;
    memo_entry e = {.key = s->key,
                    .norm = s->norm,
                    .exact = s->exact,
                    .core = s->core,
                    .work = s->work,
                    .clocks = s->clocks,
                    .recipe_bytes = (uint8_t)s->recipe.len};
    e.text_node = s->text_node == LAR_JSON_NONE ? LAR_JSON_NONE : s->text_node - seg->node;
    if (s->recipe.len) memcpy(e.recipe, s->recipe.ptr, s->recipe.len);
    memo_add(c->in->cache, &e);
}

lar_error lar_canon_hash_segment(lar_canon *c, uint32_t i) {
    lar_role role = c->view->segments[i].role;
    if (role == LAR_ROLE_ASSISTANT || role == LAR_ROLE_TOOL) return lar_canon_output_hash(c, i);
    if (lar_canon_memo_get(c, i)) return LAR_OK;
    lar_canon_unit *units = NULL;
    uint32_t count = 0;
    lar_error e = LAR_OK;
    if (role == LAR_ROLE_USER || role == LAR_ROLE_SYSTEM) e = lar_canon_units_read(c, i, &units, &count);
    if (!e) e = lar_canon_units_hash(c, i, units, count);
    if (!e) lar_canon_memo_put(c, i);
    return e;
}
