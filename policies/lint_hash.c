/* What a value means and what the model reads of it, as two hashes (header: lint_state.h).
 * Called once a message and a tool; memory from the request's arena; never blocks.
 * Invariants: 1. no recursion: nodes are visited last to first, children before parents. 2. JSON inside a string is
 * looked into once, never deeper. 3. cache_control is in no hash. */
#include "policies/lint_state.h"

enum { TAG_TEXT = 1, TAG_OTHER, TAG_ARRAY, TAG_OBJECT, NESTED_BYTES_MAX = 4 << 20 };

typedef struct hashing {
    const lar_json *j;
    lar_arena *arena;
    lar_lint_order order;
    uint32_t first; /* node of the value */
    lar_lint_same *same;
    bool *ordered; /* the order of its members is read by the model */
    char *text;    /* room for the longest string */
} hashing;

static uint64_t mix(uint64_t a, uint64_t b) {
    uint64_t pair[2] = {a, b};
    return lar_hash_low(lar_hash_of(lar_slice_of((const char *)pair, sizeof pair)));
}

static uint64_t tagged(lar_slice s, uint64_t tag) { return mix(lar_hash_low(lar_hash_of(s)), tag); }

static bool is_named(const lar_json *j, uint32_t key, const char *name) {
    return lar_json_eq(j, key, lar_slice_cstr(name));
}

static bool is_arguments(const lar_json *j, uint32_t key) {
    return is_named(j, key, "arguments") || is_named(j, key, "input");
}

/* Which objects keep their order: all, or those inside arguments. */
static void mark_ordered(hashing *h) {
    const lar_json_node *n = h->j->nodes;
    uint32_t end = n[h->first].next, until = 0;
    for (uint32_t i = h->first; i < end; i++) {
        if ((n[i].flags & LAR_JSON_KEY) && is_arguments(h->j, i) && n[i + 1].next > until) until = n[i + 1].next;
        h->ordered[i - h->first] = h->order == LAR_LINT_ORDER_ALL || i < until;
    }
}

/* Text without BOM, blanks at its end and CR. */
static lar_slice plain_form(char *text, size_t len) {
    size_t from = len >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0, out = 0;
    while (len > from &&
           (text[len - 1] == ' ' || text[len - 1] == '\t' || text[len - 1] == '\n' || text[len - 1] == '\r'))
        len--;
    for (size_t i = from; i < len; i++) {
        if (text[i] == '\r' && i + 1 < len && text[i + 1] == '\n') continue;
        text[out++] = text[i] == '\r' ? '\n' : text[i];
    }
    return lar_slice_of(text, out);
}

/* JSON in a string: its meaning; 0 if it is none. */
static uint64_t nested(hashing *h, lar_slice text) {
    size_t i = 0;
    while (i < text.len && (text.ptr[i] == ' ' || text.ptr[i] == '\n' || text.ptr[i] == '\t' || text.ptr[i] == '\r'))
        i++;
    if (i == text.len || (text.ptr[i] != '{' && text.ptr[i] != '[') || text.len > NESTED_BYTES_MAX) return 0;
    lar_json inner;
    lar_lint_same same = {0, 0};
    lar_json_init(&inner);
    lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
    bool read = lar_json_parse(&inner, text, &limits, NULL) == LAR_OK &&
                lar_lint_hash(&inner, 0, LAR_LINT_ORDER_ARGUMENTS, h->arena, &same) == LAR_OK;
    lar_json_release(&inner);
    return read ? same.loose : 0;
}

static lar_lint_same hash_string(hashing *h, uint32_t node, bool outermost) {
    size_t len = lar_text_decode(lar_json_inner(h->j, node), h->text);
    lar_lint_same s;
    s.strict = tagged(lar_slice_of(h->text, len), TAG_TEXT);
    uint64_t inner = outermost ? nested(h, lar_slice_of(h->text, len)) : 0;
    s.loose = inner ? inner : tagged(plain_form(h->text, len), TAG_TEXT);
    return s;
}

static lar_lint_same hash_array(const hashing *h, uint32_t node) {
    lar_lint_same s = {TAG_ARRAY, TAG_ARRAY};
    for (uint32_t c = lar_json_first(h->j, node); c != LAR_JSON_NONE; c = lar_json_after(h->j, node, c)) {
        s.loose = mix(s.loose, h->same[c - h->first].loose);
        s.strict = mix(s.strict, h->same[c - h->first].strict);
    }
    return s;
}

static lar_lint_same hash_object(const hashing *h, uint32_t node) {
    lar_lint_same s = {TAG_OBJECT, TAG_OBJECT};
    bool ordered = h->ordered[node - h->first];
    for (uint32_t k = lar_json_first(h->j, node); k != LAR_JSON_NONE; k = lar_json_after(h->j, node, k)) {
        if (is_named(h->j, k, "cache_control")) continue;
        lar_lint_same name = h->same[k - h->first], value = h->same[k + 1 - h->first];
        bool apart = h->order == LAR_LINT_ORDER_ALL && lar_json_is(h->j, k + 1, LAR_JSON_STRING) &&
                     is_named(h->j, k, "description");
        s.loose += mix(name.strict, apart ? 0 : value.loose);
        uint64_t member = mix(name.strict, apart ? 0 : value.strict);
        s.strict = ordered ? mix(s.strict, member) : s.strict + member;
    }
    return s;
}

static size_t longest_string(const lar_json *j, uint32_t first) {
    size_t most = 0;
    for (uint32_t i = first; i < j->nodes[first].next; i++) {
        size_t len = j->nodes[i].end - j->nodes[i].start;
        if (j->nodes[i].kind == LAR_JSON_STRING && len > most) most = len;
    }
    return most;
}

lar_error lar_lint_hash(const lar_json *j, uint32_t node, lar_lint_order order, lar_arena *arena, lar_lint_same *out) {
    uint32_t count = j->nodes[node].next - node;
    hashing h = {.j = j, .arena = arena, .order = order, .first = node};
    h.same = lar_arena_alloc(arena, count * sizeof *h.same);
    h.ordered = lar_arena_alloc(arena, count * sizeof *h.ordered);
    h.text = lar_arena_alloc(arena, longest_string(j, node) + 1);
    if (!h.same || !h.ordered || !h.text) return LAR_NO_MEMORY;
    mark_ordered(&h);
    bool outermost = node != 0 || order == LAR_LINT_ORDER_ALL; /* a nested tree is one value from its root on */
    for (uint32_t i = count; i-- > 0;) {
        uint32_t n = node + i;
        switch (lar_json_kind_of(j, n)) {
        case LAR_JSON_STRING: h.same[i] = hash_string(&h, n, outermost && !(j->nodes[n].flags & LAR_JSON_KEY)); break;
        case LAR_JSON_ARRAY: h.same[i] = hash_array(&h, n); break;
        case LAR_JSON_OBJECT: h.same[i] = hash_object(&h, n); break;
        default: h.same[i].loose = h.same[i].strict = tagged(lar_json_raw(j, n), TAG_OTHER); break;
        }
    }
    *out = h.same[0];
    return LAR_OK;
}
