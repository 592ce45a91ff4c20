/* Regular expressions: a pattern becomes a graph of nodes (Thompson's construction), group by group on an own stack.
 * Flow: regex_table.c calls, and makes the table from the graph. Any thread; blocks on nothing but malloc.
 * 1. A fragment is a contiguous range of nodes with one way in and one way out (a PASS node whose `next` is open), so
 *    that {n,m} copies it by adding an offset.
 * 2. Of a SPLIT's two ways `next` is preferred: greedy repetitions enter their body first, alternatives keep their
 * order. */
#include "engine/text/regex.h"

typedef enum letter_case { EXACT, FOLDED } letter_case;
enum { GROUP_DEPTH = 16, REPEAT_MAX = 256, OPEN = UINT16_MAX };

typedef struct fragment {
    uint16_t first, behind; /* its nodes */
    uint16_t entry, exit;
    bool nullable; /* it can match without a character */
} fragment;

typedef struct group {
    fragment branches; /* the alternatives before the present one, where has_branches */
    fragment sequence; /* the present one without its last atom */
    fragment atom;     /* that a quantifier would repeat, where has_atom */
    bool has_branches, has_atom;
    letter_case fold;
    uint16_t first;
    size_t at; /* of its "(" */
} group;

typedef struct parser {
    lar_regex_source s;
    lar_regex_graph *g;
    group stack[GROUP_DEPTH];
    uint32_t depth;
} parser;

void lar_regex_graph_release(lar_regex_graph *g) {
    for (uint32_t i = 0; i < g->set_count; i++) lar_codeset_release(&g->sets[i]);
    g->set_count = 0;
}

static lar_error add_node(parser *p, lar_regex_node node, uint16_t *index) {
    if (p->g->node_count == LAR_REGEX_NODES)
        return lar_fail_at(LAR_LIMIT, p->s.diag, p->s.at, "the regular expression has more than %d nodes",
                           LAR_REGEX_NODES);
    *index = (uint16_t)p->g->node_count++;
    p->g->nodes[*index] = node;
    return LAR_OK;
}

/* Takes the set: it belongs to the graph, or is released. */
static lar_error add_set(parser *p, lar_codeset *set, uint16_t *index) {
    for (uint32_t i = 0; i < p->g->set_count; i++) {
        if (!lar_codeset_eq(&p->g->sets[i], set)) continue;
        lar_codeset_release(set);
        *index = (uint16_t)i;
        return LAR_OK;
    }
    if (p->g->set_count == LAR_REGEX_SETS) {
        lar_codeset_release(set);
        return lar_fail_at(LAR_LIMIT, p->s.diag, p->s.at, "the regular expression has more than %d different classes",
                           LAR_REGEX_SETS);
    }
    *index = (uint16_t)p->g->set_count;
    p->g->sets[p->g->set_count++] = *set;
    return LAR_OK;
}

static lar_error new_fragment(parser *p, lar_regex_node node, bool nullable, fragment *out) {
    uint16_t exit = 0, entry = 0;
    lar_error e = add_node(p, node, &entry);
    if (!e) e = add_node(p, (lar_regex_node){.kind = LAR_REGEX_PASS, .next = OPEN}, &exit);
    if (e) return e;
    p->g->nodes[entry].next = exit;
    *out = (fragment){entry, (uint16_t)(exit + 1), entry, exit, nullable};
    return LAR_OK;
}

static lar_error empty_fragment(parser *p, fragment *out) {
    return new_fragment(p, (lar_regex_node){.kind = LAR_REGEX_PASS}, true, out);
}

static fragment follow(parser *p, fragment a, fragment b) {
    p->g->nodes[a.exit].next = b.entry;
    return (fragment){a.first, b.behind, a.entry, b.exit, a.nullable && b.nullable};
}

/* A SPLIT into `f` or past it, and the node where both meet. */
static lar_error optional(parser *p, fragment f, fragment *out) {
    uint16_t split = 0, meet = 0;
    lar_error e = add_node(p, (lar_regex_node){.kind = LAR_REGEX_SPLIT, .next = f.entry}, &split);
    if (!e) e = add_node(p, (lar_regex_node){.kind = LAR_REGEX_PASS, .next = OPEN}, &meet);
    if (e) return e;
    p->g->nodes[split].other = meet;
    p->g->nodes[f.exit].next = meet;
    *out = (fragment){f.first, (uint16_t)(meet + 1), split, meet, true};
    return LAR_OK;
}

/* The same, with a way back from the end of `f` to the SPLIT: once or more, entered at `f`; at the SPLIT, any. */
static lar_error repeated(parser *p, fragment f, bool at_least_once, fragment *out) {
    lar_error e = optional(p, f, out);
    if (e) return e;
    uint16_t split = out->entry;
    p->g->nodes[f.exit].next = split;
    if (at_least_once) out->entry = f.entry;
    out->nullable = !at_least_once || f.nullable;
    return LAR_OK;
}

static lar_error alternative(parser *p, fragment a, fragment b, fragment *out) {
    uint16_t split = 0, meet = 0;
    lar_error e = add_node(p, (lar_regex_node){.kind = LAR_REGEX_SPLIT, .next = a.entry, .other = b.entry}, &split);
    if (!e) e = add_node(p, (lar_regex_node){.kind = LAR_REGEX_PASS, .next = OPEN}, &meet);
    if (e) return e;
    p->g->nodes[a.exit].next = meet;
    p->g->nodes[b.exit].next = meet;
    *out = (fragment){a.first, (uint16_t)(meet + 1), split, meet, a.nullable || b.nullable};
    return LAR_OK;
}

/* A copy of `f`, which nothing follows yet. */
static lar_error copy(parser *p, fragment f, fragment *out) {
    uint16_t shift = (uint16_t)(p->g->node_count - f.first);
    for (uint32_t i = f.first; i < f.behind; i++) {
        lar_regex_node n = p->g->nodes[i];
        if (n.next != OPEN) n.next = (uint16_t)(n.next + shift);
        n.other = (uint16_t)(n.other + shift);
        uint16_t index;
        lar_error e = add_node(p, n, &index);
        if (e) return e;
    }
    *out = (fragment){(uint16_t)(f.first + shift), (uint16_t)(f.behind + shift), (uint16_t)(f.entry + shift),
                      (uint16_t)(f.exit + shift), f.nullable};
    return LAR_OK;
}

/* -- sequences and groups ------------------------------------------------------------------------------------------ */

static lar_error open_group(parser *p, letter_case fold, size_t at) {
    if (p->depth == GROUP_DEPTH) return lar_regex_refuse(&p->s, at, "groups are nested too deeply");
    group *g = &p->stack[p->depth++];
    *g = (group){.fold = fold, .at = at, .first = (uint16_t)p->g->node_count};
    return empty_fragment(p, &g->sequence);
}

/* The last atom is complete: no quantifier follows it any more. */
static void settle(parser *p, group *g) {
    if (g->has_atom) g->sequence = follow(p, g->sequence, g->atom);
    g->has_atom = false;
}

static void put_atom(parser *p, group *g, fragment atom) {
    settle(p, g);
    g->atom = atom;
    g->has_atom = true;
}

static lar_error end_branch(parser *p, group *g) {
    settle(p, g);
    lar_error e = LAR_OK;
    if (g->has_branches) e = alternative(p, g->branches, g->sequence, &g->branches);
    else g->branches = g->sequence;
    g->has_branches = true;
    return e;
}

static lar_error close_group(parser *p) {
    group *g = &p->stack[p->depth - 1];
    if (p->depth == 1) return lar_regex_refuse(&p->s, p->s.at, "a ) without its (");
    lar_error e = end_branch(p, g);
    if (e) return e;
    fragment whole = g->branches;
    whole.first = g->first;
    whole.behind = (uint16_t)p->g->node_count;
    p->depth--;
    p->s.at++;
    put_atom(p, &p->stack[p->depth - 1], whole);
    return LAR_OK;
}

/* -- atoms --------------------------------------------------------------------------------------------------------- */

static bool next_is(const parser *p, const char *what) {
    return lar_slice_starts(lar_slice_of(p->s.text.ptr + p->s.at, p->s.text.len - p->s.at), lar_slice_cstr(what));
}

/* One character of text, one escape, a class or a dot. */
static lar_error read_exact(parser *p, lar_codeset *set) {
    uint32_t code = LAR_CODES;
    if (next_is(p, "[")) return lar_regex_class(&p->s, set);
    if (next_is(p, "\\")) return lar_regex_escape(&p->s, set, &code);
    bool dot = next_is(p, ".");
    lar_error e = lar_regex_char(&p->s, &code);
    if (dot) code = '\n';
    if (!e) e = lar_codeset_add(set, code, code);
    return !e && dot ? lar_codeset_negate(set) : e;
}

static lar_error read_set(parser *p, letter_case fold, lar_codeset *set) {
    size_t at = p->s.at;
    lar_error e = read_exact(p, set);
    if (e || fold == EXACT) return e;
    if (set->count && set->bounds[set->count - 1] > 0x80)
        return lar_regex_refuse(&p->s, at, "in (?i:..) only characters of ASCII are supported");
    return lar_codeset_fold_ascii(set);
}

static lar_error set_atom(parser *p, group *g) {
    lar_codeset set = {0};
    fragment atom;
    uint16_t index = 0;
    lar_error e = read_set(p, g->fold, &set);
    if (e) {
        lar_codeset_release(&set);
        return e;
    }
    e = add_set(p, &set, &index);
    if (!e) e = new_fragment(p, (lar_regex_node){.kind = LAR_REGEX_SET, .set = index}, false, &atom);
    if (!e) put_atom(p, g, atom);
    return e;
}

/* A look at the next character, which is of `set` (taken). */
static lar_error look_atom(parser *p, group *g, lar_codeset *set, bool at_end) {
    fragment atom;
    uint16_t index = 0;
    lar_error e = add_set(p, set, &index);
    lar_regex_node node = {.kind = LAR_REGEX_LOOK, .set = index, .at_end = at_end};
    if (!e) e = new_fragment(p, node, true, &atom);
    if (!e) put_atom(p, g, atom);
    return e;
}

/* (?=X) and (?!X) with one character as X. */
static lar_error look_ahead(parser *p, group *g) {
    size_t at = p->s.at;
    bool negative = next_is(p, "(?!");
    p->s.at += 3;
    lar_codeset set = {0};
    lar_error e = LAR_OK;
    bool special = p->s.at < p->s.text.len && strchr("()|*+?{^$", p->s.text.ptr[p->s.at]);
    if (special || p->s.at == p->s.text.len)
        e = lar_regex_refuse(&p->s, at, "a look-ahead holds one character or class");
    if (!e) e = read_set(p, g->fold, &set);
    if (!e && !next_is(p, ")")) e = lar_regex_refuse(&p->s, at, "a look-ahead holds one character or class");
    if (!e && negative) e = lar_codeset_negate(&set);
    if (e) {
        lar_codeset_release(&set);
        return e;
    }
    p->s.at++;
    return look_atom(p, g, &set, negative);
}

/* The end of the text or of a line, as $ is in Oniguruma's Ruby syntax. */
static lar_error line_end(parser *p, group *g) {
    lar_codeset set = {0};
    p->s.at++;
    lar_error e = lar_codeset_add(&set, '\n', '\n');
    return e ? e : look_atom(p, g, &set, true);
}

static lar_error parenthesis(parser *p, group *g) {
    size_t at = p->s.at;
    if (next_is(p, "(?=") || next_is(p, "(?!")) return look_ahead(p, g);
    letter_case fold = g->fold;
    if (next_is(p, "(?i:")) {
        fold = FOLDED;
        p->s.at += 4;
    } else if (next_is(p, "(?:")) {
        p->s.at += 3;
    } else if (next_is(p, "(?")) {
        return lar_regex_refuse(&p->s, at, "this kind of group is not supported (look-behind, atomic, named, options)");
    } else {
        p->s.at++;
    }
    return open_group(p, fold, at);
}

/* -- quantifiers --------------------------------------------------------------------------------------------------- */

static uint32_t number(parser *p) {
    uint32_t value = 0;
    for (; p->s.at < p->s.text.len && p->s.text.ptr[p->s.at] >= '0' && p->s.text.ptr[p->s.at] <= '9'; p->s.at++)
        if (value <= REPEAT_MAX) value = value * 10 + (uint32_t)(p->s.text.ptr[p->s.at] - '0');
    return value;
}

/* ? * + {n} {n,} {n,m} at p->s.at; *most is UINT32_MAX without a bound. */
static lar_error read_quantifier(parser *p, uint32_t *least, uint32_t *most) {
    size_t at = p->s.at;
    char c = p->s.text.ptr[p->s.at++];
    *least = c == '+';
    *most = c == '?' ? 1 : UINT32_MAX;
    if (c == '{') {
        size_t digits = p->s.at;
        *least = *most = number(p);
        bool whole = p->s.at > digits;
        if (next_is(p, ",")) {
            p->s.at++;
            digits = p->s.at;
            *most = number(p);
            if (p->s.at == digits) *most = UINT32_MAX;
        }
        if (!whole || !next_is(p, "}")) return lar_regex_refuse(&p->s, at, "{ is not followed by n}, n,} or n,m}");
        p->s.at++;
        bool fits = *least <= REPEAT_MAX && (*most == UINT32_MAX || *most <= REPEAT_MAX);
        if (!fits || *most == 0 || *most < *least) return lar_regex_refuse(&p->s, at, "a repetition's bounds");
    }
    if (p->s.at < p->s.text.len && strchr("?*+{", p->s.text.ptr[p->s.at]))
        return lar_regex_refuse(&p->s, p->s.at, "lazy and possessive quantifiers are not supported");
    return LAR_OK;
}

static lar_error quantify(parser *p, group *g) {
    uint32_t least, most;
    size_t at = p->s.at;
    if (!g->has_atom) return lar_regex_refuse(&p->s, at, "a quantifier without something to repeat");
    lar_error e = read_quantifier(p, &least, &most);
    if (e) return e;
    if (g->atom.nullable) return lar_regex_refuse(&p->s, at, "what it repeats can match nothing");
    /* Every repetition is a copy of the pristine atom; the last may loop. */
    fragment pristine = g->atom, whole = {0};
    uint32_t copies = most == UINT32_MAX ? (least ? least : 1) : most;
    for (uint32_t i = 0; i < copies && !e; i++) {
        fragment one = pristine;
        if (i + 1 < copies) e = copy(p, pristine, &one);
        if (!e && most == UINT32_MAX && i + 1 == copies) e = repeated(p, one, least > 0, &one);
        else if (!e && i >= least) e = optional(p, one, &one);
        if (!e) whole = i ? follow(p, whole, one) : one;
    }
    if (e) return e;
    whole.first = pristine.first;
    whole.behind = (uint16_t)p->g->node_count;
    g->atom = whole;
    settle(p, g);
    return LAR_OK;
}

static lar_error step(parser *p) {
    group *g = &p->stack[p->depth - 1];
    switch (p->s.text.ptr[p->s.at]) {
    case '(': return parenthesis(p, g);
    case ')': return close_group(p);
    case '?':
    case '*':
    case '+':
    case '{': return quantify(p, g);
    case '^': return lar_regex_refuse(&p->s, p->s.at, "^ is not supported");
    case '$': return line_end(p, g);
    case '|': {
        lar_error e = end_branch(p, g);
        p->s.at++;
        return e ? e : empty_fragment(p, &g->sequence);
    }
    default: return set_atom(p, g);
    }
}

lar_error lar_regex_parse(lar_slice pattern, lar_regex_graph *g, lar_diag *d) {
    parser p = {.s = {pattern, 0, d}, .g = g};
    if (pattern.len > LAR_REGEX_BYTES)
        return lar_fail(LAR_LIMIT, d, "the regular expression has %zu bytes; %d at most", pattern.len, LAR_REGEX_BYTES);
    lar_error e = open_group(&p, EXACT, 0);
    while (!e && p.s.at < pattern.len) e = step(&p);
    if (!e && p.depth > 1) e = lar_regex_refuse(&p.s, p.stack[p.depth - 1].at, "a ( without its )");
    if (!e) e = end_branch(&p, &p.stack[0]);
    if (e) return e;
    fragment whole = p.stack[0].branches;
    if (whole.nullable) return lar_regex_refuse(&p.s, 0, "it can match nothing, and so cuts nowhere");
    uint16_t match = 0;
    e = add_node(&p, (lar_regex_node){.kind = LAR_REGEX_MATCH}, &match);
    if (e) return e;
    g->nodes[whole.exit].next = match;
    g->start = whole.entry;
    return LAR_OK;
}
