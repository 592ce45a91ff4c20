/* Regular expressions: the graph of a pattern becomes a table of states, and matching is one look-up a character.
 * Flow: lar_regex_new once for each pattern of a tokenizer; lar_regex_find from pretoken.c, any thread, blocks on
 * nothing.
 * 1. A state is an ordered list of nodes, the preferred way first; what stands behind a MATCH is dropped. So the table
 *    finds what a backtracking engine finds (subset construction with priorities, as in R. Cox's articles on RE2).
 * 2. A look at the next character is decided when that character is read: a cell says whether a match ended before it.
 * 3. Code points that every class of the pattern treats alike share one column; the last column is the end of the text.
 * Memory: one block a table, immutable once made. */
#include "engine/text/regex.h"

#include <stdlib.h>

#include "base/utf8.h"

enum { BLOCK = 128, BLOCKS = LAR_CODES / BLOCK, CLASSES_MAX = 200, NOT_A_CODE = 0x10FFFF };

struct lar_regex {
    uint32_t *cells; /* (states, width): index of the next state's row * 2, + 1 where a match ends before this one */
    uint32_t width;  /* classes + 1 */
    uint32_t states;
    uint32_t start;     /* index of the first state's row */
    uint8_t ascii[128]; /* class of a code point below 128 */
    uint8_t other;      /* class of a byte outside UTF-8 */
    uint8_t *blocks;    /* (distinct blocks, BLOCK): class of a code point */
    uint16_t block_of[BLOCKS];
};

typedef struct state_list {
    uint16_t *nodes; /* of all states, one after the other */
    uint32_t count, cap;
    uint32_t first[LAR_REGEX_STATES + 1]; /* of each state in `nodes` */
} state_list;

typedef struct builder {
    lar_regex_graph *g;
    lar_regex *r;
    lar_diag *diag;
    uint64_t members[CLASSES_MAX]; /* which sets hold the code points of a class */
    uint32_t classes;
    state_list states;
    uint16_t present[LAR_REGEX_NODES]; /* the state that is being made */
    uint32_t present_count;
    uint32_t seen[LAR_REGEX_NODES], stamp; /* whether a node is in it already */
    uint16_t waiting[LAR_REGEX_NODES + 2];
} builder;

/* -- classes ------------------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static lar_error class_of(builder *b, uint64_t members, uint8_t *class_found) {
    uint32_t i = 0;
    while (i < b->classes && b->members[i] != members) i++;
    if (i == CLASSES_MAX)
        return lar_fail(LAR_LIMIT, b->diag, "the regular expression tells more than %d kinds of characters apart",
                        CLASSES_MAX);
    if (i == b->classes) b->members[b->classes++] = members;
    *class_found = (uint8_t)i;
    return LAR_OK;
}

/* Neighbouring code points of one class: from `first` up to the next one's. */
typedef struct stretch {
    uint32_t first;
    uint8_t class_index;
} stretch;

/* Every bound of every set, sorted; the caller frees. */
static lar_error all_bounds(const lar_regex_graph *g, uint32_t **out, uint32_t *count) {
    uint32_t total = 2, n = 0;
    for (uint32_t i = 0; i < g->set_count; i++) total += g->sets[i].count;
    uint32_t *bounds = malloc(total * sizeof *bounds);
    if (!bounds) return LAR_NO_MEMORY;
    bounds[n++] = 0;
    bounds[n++] = LAR_CODES;
    for (uint32_t i = 0; i < g->set_count; i++) {
        if (g->sets[i].count) memcpy(bounds + n, g->sets[i].bounds, g->sets[i].count * sizeof *bounds);
        n += g->sets[i].count;
    }
    qsort(bounds, n, sizeof *bounds, by_value);
    *out = bounds;
    *count = n;
    return LAR_OK;
}

/* The stretches of all code points, one behind the last included; the caller frees. */
static lar_error classify(builder *b, stretch **out) {
    const lar_regex_graph *g = b->g;
    uint32_t *bounds = NULL, count = 0, n = 0, at[LAR_REGEX_SETS] = {0};
    lar_error e = all_bounds(g, &bounds, &count);
    if (e) return e;
    stretch *found = malloc(count * sizeof *found);
    if (!found) e = LAR_NO_MEMORY;
    for (uint32_t i = 0; i + 1 < count && !e; i++) {
        if (bounds[i] == bounds[i + 1]) continue;
        uint64_t members = 0;
        for (uint32_t s = 0; s < g->set_count; s++) {
            while (at[s] < g->sets[s].count && g->sets[s].bounds[at[s]] <= bounds[i]) at[s]++;
            members |= (uint64_t)(at[s] % 2) << s;
        }
        found[n].first = bounds[i];
        e = class_of(b, members, &found[n++].class_index);
    }
    if (!e) found[n].first = LAR_CODES;
    free(bounds);
    *out = found;
    return e;
}

/* The distinct blocks so far, and a chain for each hash of a block's bytes. */
enum { CHAINS = 1024 };
typedef struct block_set {
    uint8_t *blocks;
    uint32_t count, cap;
    uint16_t chain[CHAINS], next[BLOCKS];
    uint16_t uniform[CLASSES_MAX]; /* the block that is all of one class */
} block_set;

/* The number of the block with these classes, added where it is new. */
static lar_error intern_block(block_set *s, const uint8_t *block, uint16_t *index) {
    uint32_t hash = 0;
    for (uint32_t k = 0; k < BLOCK; k++) hash = hash * 31 + block[k];
    uint16_t *link = &s->chain[hash % CHAINS];
    while (*link != UINT16_MAX && memcmp(s->blocks + (size_t)*link * BLOCK, block, BLOCK) != 0) link = &s->next[*link];
    if (*link == UINT16_MAX) {
        if (s->count == s->cap) {
            uint32_t cap = s->cap ? s->cap * 2 : 64;
            uint8_t *grown = realloc(s->blocks, (size_t)cap * BLOCK);
            if (!grown) return LAR_NO_MEMORY;
            s->blocks = grown;
            s->cap = cap;
        }
        memcpy(s->blocks + (size_t)s->count * BLOCK, block, BLOCK);
        s->next[s->count] = UINT16_MAX;
        *link = (uint16_t)s->count++;
    }
    *index = *link;
    return LAR_OK;
}

/* The block of code points from `first`, whose stretch is *at, or a later one where the block goes beyond it. */
static lar_error make_block(block_set *s, const stretch **at, uint32_t first, uint16_t *index) {
    uint8_t block[BLOCK];
    uint8_t only = (*at)->class_index;
    if ((*at)[1].first >= first + BLOCK) { /* nearly all blocks are of one class */
        if (s->uniform[only] == UINT16_MAX) {
            memset(block, only, BLOCK);
            lar_error e = intern_block(s, block, &s->uniform[only]);
            if (e) return e;
        }
        *index = s->uniform[only];
        return LAR_OK;
    }
    for (uint32_t k = 0; k < BLOCK; k++) {
        while ((*at)[1].first <= first + k) (*at)++;
        block[k] = (*at)->class_index;
    }
    return intern_block(s, block, index);
}

static lar_error compress(lar_regex *r, const stretch *at) {
    block_set *s = calloc(1, sizeof *s);
    if (!s) return LAR_NO_MEMORY;
    memset(s->chain, 0xFF, sizeof s->chain);
    memset(s->uniform, 0xFF, sizeof s->uniform);
    lar_error e = LAR_OK;
    for (uint32_t i = 0; i < BLOCKS && !e; i++) {
        while (at[1].first <= i * BLOCK) at++;
        e = make_block(s, &at, i * BLOCK, &r->block_of[i]);
    }
    r->blocks = s->blocks;
    free(s);
    if (e) return e;
    memcpy(r->ascii, r->blocks + (size_t)r->block_of[0] * BLOCK, sizeof r->ascii);
    r->other = r->blocks[(size_t)r->block_of[NOT_A_CODE / BLOCK] * BLOCK + NOT_A_CODE % BLOCK];
    return LAR_OK;
}

/* -- states -------------------------------------------------------------------------------------------------------- */

/* Adds the node and what is reached from it without a character, in order of preference. `column` is the next
 * character's, or UINT32_MAX where it is not known yet: a LOOK then stays in the list. */
static void add_reached(builder *b, uint16_t node, uint32_t column) {
    uint32_t waiting = 0;
    b->waiting[waiting++] = node;
    while (waiting) {
        uint16_t at = b->waiting[--waiting];
        const lar_regex_node *n = &b->g->nodes[at];
        if (b->seen[at] == b->stamp) continue;
        b->seen[at] = b->stamp;
        bool known = column != UINT32_MAX;
        switch ((lar_regex_kind)n->kind) {
        case LAR_REGEX_PASS: b->waiting[waiting++] = n->next; break;
        case LAR_REGEX_SPLIT:
            b->waiting[waiting++] = n->other;
            b->waiting[waiting++] = n->next;
            break;
        case LAR_REGEX_LOOK:
            if (!known) b->present[b->present_count++] = at;
            else if (column == b->classes ? n->at_end : b->members[column] >> n->set & 1)
                b->waiting[waiting++] = n->next;
            break;
        case LAR_REGEX_SET:
        case LAR_REGEX_MATCH: b->present[b->present_count++] = at; break;
        }
    }
}

static void begin_state(builder *b) {
    b->present_count = 0;
    b->stamp++;
}

/* The number of the state that b->present is, a new one where there was none like it. State 0 is the empty list. */
static lar_error intern(builder *b, uint32_t *state) {
    state_list *s = &b->states;
    uint32_t count = b->r->states;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t len = s->first[i + 1] - s->first[i];
        *state = i;
        bool same = len == b->present_count;
        if (same && (len == 0 || memcmp(s->nodes + s->first[i], b->present, len * sizeof *s->nodes) == 0))
            return LAR_OK;
    }
    if (count == LAR_REGEX_STATES || (count + 1) * b->r->width > LAR_REGEX_CELLS)
        return lar_fail(LAR_LIMIT, b->diag, "the regular expression is too complicated: its table has over %u states",
                        count);
    if (s->count + b->present_count > s->cap) {
        uint32_t cap = (s->count + b->present_count) * 2;
        uint16_t *grown = realloc(s->nodes, cap * sizeof *grown);
        if (!grown) return LAR_NO_MEMORY;
        s->nodes = grown;
        s->cap = cap;
    }
    if (b->present_count) memcpy(s->nodes + s->count, b->present, b->present_count * sizeof *s->nodes);
    s->count += b->present_count;
    s->first[count + 1] = s->count;
    *state = b->r->states++;
    return LAR_OK;
}

/* The list of `state` once the next character is known: looks are decided, and what stands behind a MATCH is gone. */
static uint32_t decide(builder *b, uint32_t state, uint32_t column, uint16_t *decided, bool *matched) {
    begin_state(b);
    for (uint32_t i = b->states.first[state]; i < b->states.first[state + 1]; i++)
        add_reached(b, b->states.nodes[i], column);
    uint32_t count = 0;
    *matched = false;
    while (count < b->present_count && !*matched) {
        *matched = b->g->nodes[b->present[count]].kind == LAR_REGEX_MATCH;
        if (!*matched) decided[count] = b->present[count], count++;
    }
    return count;
}

static lar_error fill_cell(builder *b, uint32_t state, uint32_t column, uint16_t *decided) {
    bool matched;
    uint32_t next, count = decide(b, state, column, decided, &matched);
    begin_state(b);
    for (uint32_t i = 0; i < count && column < b->classes; i++) {
        const lar_regex_node *n = &b->g->nodes[decided[i]];
        if (b->members[column] >> n->set & 1) add_reached(b, n->next, UINT32_MAX);
    }
    lar_error e = intern(b, &next);
    if (e) return e;
    b->r->cells[(size_t)state * b->r->width + column] = next * b->r->width * 2 + matched;
    return LAR_OK;
}

static lar_error build_states(builder *b) {
    uint32_t first;
    uint16_t *decided = malloc(LAR_REGEX_NODES * sizeof *decided);
    lar_error e = decided ? LAR_OK : LAR_NO_MEMORY;
    begin_state(b);
    if (!e) e = intern(b, &first); /* the empty list: nothing matches any more */
    begin_state(b);
    add_reached(b, b->g->start, UINT32_MAX);
    if (!e) e = intern(b, &first);
    for (uint32_t state = 0; !e && state < b->r->states; state++) {
        uint32_t *grown = realloc(b->r->cells, (size_t)(state + 1) * b->r->width * sizeof *grown);
        if (!grown) e = LAR_NO_MEMORY;
        else b->r->cells = grown;
        for (uint32_t column = 0; !e && column < b->r->width; column++) e = fill_cell(b, state, column, decided);
    }
    free(decided);
    if (!e) b->r->start = first * b->r->width;
    return e;
}

static lar_error build(builder *b) {
    stretch *stretches = NULL;
    lar_error e = classify(b, &stretches);
    if (!e) e = compress(b->r, stretches);
    free(stretches);
    if (e) return e;
    b->r->width = b->classes + 1;
    return build_states(b);
}

lar_error lar_regex_new(lar_slice pattern, lar_regex **out, lar_diag *d) {
    lar_regex_graph *g = calloc(1, sizeof *g);
    builder *b = calloc(1, sizeof *b);
    lar_regex *r = calloc(1, sizeof *r);
    lar_error e = g && b && r ? LAR_OK : LAR_NO_MEMORY;
    if (!e) {
        b->g = g;
        b->r = r;
        b->diag = d;
        e = lar_regex_parse(pattern, g, d);
    }
    if (!e) e = build(b);
    if (g) lar_regex_graph_release(g);
    if (b) free(b->states.nodes);
    free(b);
    free(g);
    if (!e) *out = r;
    else lar_regex_free(r);
    return e;
}

void lar_regex_free(lar_regex *r) {
    if (!r) return;
    free(r->cells);
    free(r->blocks);
    free(r);
}

/* -- matching ------------------------------------------------------------------------------------------------------ */

/* The class of the character at p (before end) and its bytes. */
static inline uint32_t read_class(const lar_regex *r, const unsigned char *p, const unsigned char *end, size_t *len) {
    if (*p < 0x80) {
        *len = 1;
        return r->ascii[*p];
    }
    size_t n = lar_utf8_sequence(p, end);
    *len = n ? n : 1;
    if (n == 0) return r->other;
    uint32_t code = p[0] & (0xFFu >> (n + 1));
    for (size_t i = 1; i < n; i++) code = code << 6 | (p[i] & 0x3F);
    return r->blocks[(size_t)r->block_of[code / BLOCK] * BLOCK + code % BLOCK];
}

/* Remembers the longest stretch in one state behind the last match (or the start) of a run that ended at `stop`: text
 * that a later run need not look at again. Runs that look far ahead in vain are rare, so this one walks once more. */
static void remember(const lar_regex *r, const unsigned char *text, const size_t run[3], uint32_t state,
                     lar_regex_memo *memo) {
    size_t at = run[0], stop = run[1], end = run[2], since = at;
    memo->state = 0;
    memo->first = memo->last = 0;
    while (at < stop) {
        size_t len;
        uint32_t next = r->cells[state + read_class(r, text + at, text + end, &len)] / 2;
        at += len;
        if (next != state || since == run[0]) since = at; /* at run[0] itself a match ends */
        state = next;
        if (!state || at - since <= memo->last - memo->first) continue;
        memo->state = state;
        memo->first = since;
        memo->last = at;
    }
}

enum { FAR = 64 }; /* bytes looked at in vain, from which on it is worth remembering them */

/* The end of the match that begins where `in` does; SIZE_MAX for none. */
static size_t match_at(const lar_regex *r, const unsigned char *text, lar_regex_range in, lar_regex_memo *memo) {
    uint32_t state = r->start, matched_state = state;
    size_t at = in.first, end = in.end, matched = SIZE_MAX;
    while (at < end) {
        size_t len;
        uint32_t cell = r->cells[state + read_class(r, text + at, text + end, &len)];
        if (cell & 1) {
            matched = at;
            matched_state = state;
        }
        state = cell / 2;
        if (!state) break;
        at += len;
        if (state == memo->state && at >= memo->first && at <= memo->last) break;
    }
    memo->work += at - in.first;
    if (state && at == end && r->cells[state + r->width - 1] & 1) return end;
    size_t vain = matched == SIZE_MAX ? in.first : matched;
    if (at - vain > FAR && !(state && state == memo->state))
        remember(r, text, (size_t[3]){vain, at, end}, matched == SIZE_MAX ? r->start : matched_state, memo);
    return matched;
}

bool lar_regex_find(const lar_regex *r, const char *text, lar_regex_range in, lar_regex_memo *memo,
                    lar_regex_range *found) {
    const unsigned char *bytes = (const unsigned char *)text;
    for (size_t at = in.first, len; at < in.end && memo->work <= memo->work_max; at += len) {
        uint32_t cell = r->cells[r->start + read_class(r, bytes + at, bytes + in.end, &len)];
        if (cell < 2) continue; /* no match begins with this character */
        size_t stop = match_at(r, bytes, (lar_regex_range){at, in.end}, memo);
        if (stop == SIZE_MAX) continue;
        *found = (lar_regex_range){at, stop};
        return true;
    }
    return false;
}
