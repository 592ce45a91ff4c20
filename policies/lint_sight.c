/* What was seen where, and the findings that follow from it.
 * Flow: the linter's stages -> lar_lint_see for each place -> lar_lint_findings at the end.
 * One thread; never blocks. Invariants: 1. a place seen twice with one value is no finding, unless it stands as one.
 * 2. a place costs memory at its first sighting and at its first change, never again. 3. findings of one group and
 * file become one. Memory: sights on the heap, what they say in l->strings; LAR_LINT_SIGHTS_MAX of them. */
#include <stdlib.h>

#include "base/ensure.h"
#include "policies/lint_state.h"

enum { POINTER_BYTES_MAX = 4096 };

/* -- places ------------------------------------------------------------------------------------------ */

typedef struct position {
    uint32_t line, column;
} position;

/* Moves on by the characters of `text`. */
static position advance(position p, lar_slice text) {
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if (c == '\n') p.line++, p.column = 1;
        else if ((c & 0xC0) != 0x80) p.column++;
    }
    return p;
}

/* The decoded text in front of body offset `at`; the only text of the body is the file. */
static position in_text(const lar_lint_spot *s, uint32_t at, position p) {
    lar_slice body = s->request->body;
    const lar_json_node *n = &s->json->nodes[s->node];
    uint32_t from = n->start + 1 < at ? n->start + 1 : at;
    char *text = malloc(at - from + 1);
    if (!text) return p;
    size_t len = lar_text_decode(lar_slice_of(body.ptr + from, at - from), text);
    p = advance(p, lar_slice_of(text, len));
    free(text);
    return p;
}

/* From where the last place of this request was, if that lies in front. */
static position in_body(lar_lint *l, const lar_lint_kept *r, uint32_t at) {
    struct lar_lint_cursor *c = &l->cursor;
    if (c->request != r || c->at > at) *c = (struct lar_lint_cursor){r, 0, r->line, r->column};
    if (at - c->at > l->walk_left) {
        l->walk_left = 0; /* from here on none is counted */
        return (position){r->line, r->column};
    }
    l->walk_left -= at - c->at;
    return advance((position){c->line, c->column}, lar_slice_of(r->body.ptr + c->at, at - c->at));
}

static position position_of(lar_lint *l, const lar_lint_spot *s, uint32_t at) {
    const lar_lint_kept *r = s->request;
    position p = {r->line, r->column};
    if (r->origin == LAR_LINT_VERBATIM) return in_body(l, r, at);
    bool locate = r->origin == LAR_LINT_ENCLOSED && r->asked && r->asked->locate;
    if (at > l->walk_left || (r->origin == LAR_LINT_ENCLOSED && !locate)) return p;
    l->walk_left -= at;
    if (r->origin == LAR_LINT_TEXT) return in_text(s, at, p);
    r->asked->locate(r->asked->locate_ctx, at, &p.line, &p.column);
    return p;
}

static size_t cut(lar_slice s, size_t most) {
    if (s.len <= most) return s.len;
    size_t n = most;
    while (n > 0 && (s.ptr[n] & 0xC0) == 0x80) n--;
    return n;
}

static lar_slice copy(lar_lint *l, lar_slice s) { return s.len ? lar_arena_copy(&l->strings, s) : (lar_slice){"", 0}; }

static lar_error pointer_of(lar_lint *l, const lar_lint_spot *s, lar_slice *out) {
    *out = (lar_slice){"", 0};
    if (s->request->origin == LAR_LINT_TEXT) return LAR_OK;
    lar_buf b;
    lar_buf_init(&b, POINTER_BYTES_MAX);
    lar_error e = lar_buf_add_slice(&b, s->request->pointer_front);
    size_t front = b.len, skip = s->request->pointer_skip;
    if (!e) e = lar_json_pointer(s->json, s->node, &b);
    if (!e && skip && b.len - front >= skip) {
        memmove(b.ptr + front, b.ptr + front + skip, b.len - front - skip);
        b.len -= skip;
    }
    if (e == LAR_LIMIT) { /* a name longer than any pointer: what fits says enough */
        *out = copy(l, LAR_SLICE("/..."));
    } else if (!e) *out = copy(l, lar_buf_slice(&b));
    lar_buf_release(&b);
    if (e == LAR_LIMIT) e = LAR_OK;
    return !e && !out->ptr ? LAR_NO_MEMORY : e;
}

lar_error lar_lint_place_of(lar_lint *l, const lar_lint_spot *s, lar_lint_place *p) {
    *p = (lar_lint_place){.file = s->request->file, .request = s->request->request};
    position from = position_of(l, s, s->start);
    if (l->walk_left && l->cursor.request == s->request) /* twins and the end come next */
        l->cursor = (struct lar_lint_cursor){s->request, s->start, from.line, from.column};
    position to = position_of(l, s, s->end);
    p->line = from.line, p->column = from.column;
    p->end_line = to.line, p->end_column = to.column;
    lar_error e = pointer_of(l, s, &p->pointer);
    if (e) return e;
    p->value = copy(l, lar_slice_of(s->value.ptr, cut(s->value, LAR_LINT_VALUE_BYTES)));
    return p->value.ptr ? LAR_OK : LAR_NO_MEMORY;
}

/* With its numbers left out. */
static lar_hash pointer_hash(lar_slice pointer) {
    char kept[POINTER_BYTES_MAX];
    size_t n = 0;
    for (size_t i = 0; i < pointer.len && n < sizeof kept; i++) {
        bool digit = pointer.ptr[i] >= '0' && pointer.ptr[i] <= '9';
        bool after = n > 0 && kept[n - 1] == '*';
        if (!digit) kept[n++] = pointer.ptr[i];
        else if (!after) kept[n++] = '*';
    }
    return lar_hash_of(lar_slice_of(kept, n));
}

/* -- sights ------------------------------------------------------------------------------------------ */

static lar_error list_add(lar_lint *l, lar_lint_sight *s) {
    if (l->list_count == l->list_cap) {
        uint32_t cap = l->list_cap ? l->list_cap * 2 : 64;
        lar_lint_sight **more = realloc(l->list, cap * sizeof(lar_lint_sight *));
        if (!more) return LAR_NO_MEMORY;
        l->list = more;
        l->list_cap = cap;
    }
    l->list[l->list_count++] = s;
    return LAR_OK;
}

static lar_error new_sight(lar_lint_run *run, const lar_lint_seen *seen, lar_lint_sight **out) {
    lar_lint *l = run->l;
    lar_lint_sight *s = lar_arena_zalloc(&l->strings, sizeof *s);
    if (!s) return LAR_NO_MEMORY;
    s->key = seen->key, s->group = seen->group;
    s->rule = seen->rule, s->severity = seen->severity;
    s->suspect = seen->suspect, s->standing = seen->standing, s->twin = seen->twin;
    s->value = lar_hash_low(lar_hash_of(seen->value));
    s->label = copy(l, lar_slice_of(seen->label.ptr, cut(seen->label, LAR_LINT_VALUE_BYTES)));
    s->what = copy(l, seen->what), s->advice = copy(l, seen->advice), s->answer = copy(l, seen->answer);
    if (!s->label.ptr || !s->what.ptr || !s->advice.ptr || !s->answer.ptr) return LAR_NO_MEMORY;
    lar_lint_spot spot = {run->json, run->now, seen->node, seen->start, seen->end, seen->value};
    lar_error e = lar_lint_place_of(l, &spot, &s->first);
    if (!e) s->tokens_known = lar_lint_cost_of(run, seen->node, seen->start, &s->tokens);
    if (!e) e = lar_lint_map_put(&l->sights, seen->key, s);
    if (!e) e = list_add(l, s);
    *out = s;
    return e;
}

static lar_error change(lar_lint_run *run, const lar_lint_seen *seen, lar_lint_sight *s) {
    s->confirmed = true;
    lar_lint_spot spot = {run->json, run->now, seen->node, seen->start, seen->end, seen->value};
    s->tokens_known = lar_lint_cost_of(run, seen->node, seen->start, &s->tokens);
    return lar_lint_place_of(run->l, &spot, &s->change);
}

static lar_error see(lar_lint_run *run, const lar_lint_seen *seen) {
    LAR_ASSERT(seen->end >= seen->start);
    lar_lint *l = run->l;
    lar_lint_sight *s = lar_lint_map_get(&l->sights, seen->key);
    uint64_t value = lar_hash_low(lar_hash_of(seen->value));
    bool known = s != NULL;
    if (!known && l->list_count >= LAR_LINT_SIGHTS_MAX) {
        l->dropped++;
        return LAR_OK;
    }
    lar_error e = known ? LAR_OK : new_sight(run, seen, &s);
    if (e) return e;
    s->seen += s->last != run->number;
    s->last = run->number;
    if (seen->before && !s->change.request) {
        s->change = s->first;
        if (known) e = change(run, seen, s);
        s->first = *seen->before;
        s->confirmed = true;
    } else if (known && value != s->value && !s->change.request) e = change(run, seen, s);
    s->value = value;
    s->confirmed = s->confirmed || seen->edited;
    return e;
}

lar_error lar_lint_see(lar_lint_run *run, const lar_lint_seen *seen) {
    if (seen->rule >= LAR_RULE_COUNT) return LAR_OK; /* a class whose rule this build does not have */
    lar_lint_seen here = *seen;
    uint32_t file = run->now->file;
    if (!seen->across) here.key = lar_hash_chain(seen->key, lar_slice_of((const char *)&file, sizeof file));
    lar_error e = see(run, &here);
    if (e != LAR_NO_MEMORY || run->l->strings.used + LAR_LINT_VALUE_BYTES < run->l->strings.limit / 2) return e;
    run->l->dropped++; /* l->strings is full, not the machine */
    return LAR_OK;
}

/* -- findings ---------------------------------------------------------------------------------------- */

static bool is_finding(const lar_lint_sight *s) { return s->confirmed || s->standing || (s->suspect && s->seen == 1); }

static lar_lint_finding finding_of(const lar_lint_sight *s) {
    lar_lint_finding f = {.rule = s->rule,
                          .severity = s->severity,
                          .label = s->label,
                          .what = s->what,
                          .advice = s->advice,
                          .answer = s->answer,
                          .requests = s->twin ? 0 : s->seen,
                          .tokens = s->tokens,
                          .tokens_known = s->tokens_known};
    f.state = s->confirmed ? LAR_LINT_CONFIRMED : LAR_LINT_SUSPECT;
    f.place = s->change.request ? s->change : s->first;
    if (s->change.request) f.before = s->first;
    f.key = lar_hash_join(s->group, pointer_hash(f.place.pointer));
    return f;
}

static int compare_u32(uint32_t a, uint32_t b) { return a < b ? -1 : a > b; }

/* By group and file; what is confirmed before what is not. */
static int by_group(const void *a, const void *b) {
    const lar_lint_finding *x = a, *y = b;
    int c = memcmp(x->key.bytes, y->key.bytes, sizeof x->key.bytes);
    if (!c) c = compare_u32(x->place.file, y->place.file);
    if (!c) c = compare_u32(y->state, x->state);
    if (!c) c = compare_u32(y->before.request != 0, x->before.request != 0);
    return c ? c : compare_u32(x->place.request, y->place.request);
}

static int by_place(const void *a, const void *b) {
    const lar_lint_finding *x = a, *y = b;
    int c = compare_u32(x->place.file, y->place.file);
    if (!c) c = compare_u32(x->place.line, y->place.line);
    if (!c) c = compare_u32(x->place.column, y->place.column);
    if (!c) c = compare_u32(x->rule, y->rule);
    return c ? c : memcmp(x->key.bytes, y->key.bytes, sizeof x->key.bytes);
}

/* What is confirmed in one file is confirmed for the same label in the others too. */
static uint32_t fold(lar_lint_finding *f, uint32_t n) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        lar_lint_finding *last = kept ? &f[kept - 1] : NULL;
        bool same = last && lar_hash_eq(last->key, f[i].key);
        if (same && last->place.file == f[i].place.file) {
            last->requests += f[i].requests;
            continue;
        }
        if (same && last->state == LAR_LINT_CONFIRMED && f[i].state == LAR_LINT_SUSPECT) {
            f[i].state = LAR_LINT_CONFIRMED;
            f[i].severity = last->severity;
            f[i].before = last->place;
        }
        f[kept++] = f[i];
    }
    return kept;
}

lar_error lar_lint_findings(lar_lint *l, lar_lint_finding **list, uint32_t *count) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->list_count; i++) n += is_finding(l->list[i]);
    *count = 0;
    *list = NULL;
    if (!n) return LAR_OK;
    lar_lint_finding *f = calloc(n, sizeof *f);
    if (!f) return LAR_NO_MEMORY;
    n = 0;
    for (uint32_t i = 0; i < l->list_count; i++) {
        if (is_finding(l->list[i])) f[n++] = finding_of(l->list[i]);
    }
    qsort(f, n, sizeof *f, by_group);
    n = fold(f, n);
    for (uint32_t i = 0; i < n; i++) {
        if (f[i].requests > l->requests) f[i].requests = l->requests; /* several places of one request */
        if (!f[i].requests) f[i].requests = 2;                        /* only its twin was confirmed, by two at least */
        if (f[i].state == LAR_LINT_SUSPECT && f[i].severity == LAR_SEVERITY_WARNING) f[i].severity = LAR_SEVERITY_INFO;
    }
    qsort(f, n, sizeof *f, by_place);
    *list = f;
    *count = n;
    return LAR_OK;
}
