/* Regular expressions of tokenizers against a slower witness: the input is a pattern, a line end, and a text.
 * 1. Any pattern is compiled or refused with a reason.
 * 2. The table finds what a backtracking walk over the pattern's graph finds, at every place of the text, also with the
 *    memo of earlier runs: matches from left to right are the same.
 * Texts are kept short: the witness looks at every node at every place. */
#include "base/utf8.h"
#include "engine/text/regex.h"
#include "tests/fuzz/fuzz.h"

enum { TEXT_MAX = 2048 };

typedef struct visit {
    uint16_t node;
    uint32_t at;
} visit;

typedef struct walker {
    const lar_regex_graph *g;
    const unsigned char *text;
    size_t end;
    uint8_t *seen; /* (end + 1, nodes) */
    visit *stack;
} walker;

static uint32_t code_at(const walker *w, size_t at, size_t *len) {
    size_t n = lar_utf8_sequence(w->text + at, w->text + w->end);
    *len = n ? n : 1;
    if (n == 0) return LAR_CODES - 1; /* a stray byte: no property, as U+10FFFF */
    if (n == 1) return w->text[at];
    uint32_t code = w->text[at] & (0xFFu >> (n + 1));
    for (size_t i = 1; i < n; i++) code = code << 6 | (w->text[at + i] & 0x3F);
    return code;
}

/* The end of the preferred match that begins at `from`; SIZE_MAX for none. */
static size_t walk(walker *w, size_t from) {
    uint32_t depth = 0;
    memset(w->seen, 0, (w->end + 1) * w->g->node_count);
    w->stack[depth++] = (visit){w->g->start, (uint32_t)from};
    while (depth) {
        visit v = w->stack[--depth];
        uint8_t *seen = &w->seen[(size_t)v.at * w->g->node_count + v.node];
        if (*seen) continue;
        *seen = 1;
        const lar_regex_node *n = &w->g->nodes[v.node];
        size_t len = 0;
        uint32_t code = v.at < w->end ? code_at(w, v.at, &len) : 0;
        bool in_set = len && (n->kind == LAR_REGEX_SET || n->kind == LAR_REGEX_LOOK) &&
                      lar_codeset_has(&w->g->sets[n->set], code);
        switch ((lar_regex_kind)n->kind) {
        case LAR_REGEX_MATCH: return v.at;
        case LAR_REGEX_SPLIT: w->stack[depth++] = (visit){n->other, v.at}; /* fallthrough */
        case LAR_REGEX_PASS: w->stack[depth++] = (visit){n->next, v.at}; break;
        case LAR_REGEX_LOOK:
            if (len ? in_set : n->at_end) w->stack[depth++] = (visit){n->next, v.at};
            break;
        case LAR_REGEX_SET:
            if (in_set) w->stack[depth++] = (visit){n->next, v.at + (uint32_t)len};
            break;
        }
    }
    return SIZE_MAX;
}

static void compare(const lar_regex *r, const lar_regex_graph *g, lar_slice text) {
    walker w = {.g = g, .text = (const unsigned char *)text.ptr, .end = text.len};
    w.seen = malloc((text.len + 1) * g->node_count);
    w.stack = malloc((2 * (text.len + 1) * g->node_count + 2) * sizeof *w.stack);
    if (!w.seen || !w.stack) abort();
    lar_regex_memo memo = {.work_max = UINT64_MAX};
    size_t at = 0;
    while (at < text.len) {
        lar_regex_range found = {text.len, text.len};
        bool any = lar_regex_find(r, text.ptr, (lar_regex_range){at, text.len}, &memo, &found);
        size_t stop = SIZE_MAX, len = 0;
        for (; at < text.len && stop == SIZE_MAX; at += len) {
            stop = walk(&w, at);
            (void)code_at(&w, at, &len);
            if (stop != SIZE_MAX) len = 0;
        }
        FUZZ_CHECK(any == (stop != SIZE_MAX));
        if (!any) break;
        FUZZ_CHECK(found.first == at && found.end == stop && stop > at);
        at = stop;
    }
    free(w.seen);
    free(w.stack);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *line = size ? memchr(data, '\n', size) : NULL;
    size_t len = line ? (size_t)(line - data) : size;
    lar_slice pattern = lar_slice_of((const char *)data, len);
    lar_slice text = line ? lar_slice_of((const char *)line + 1, size - len - 1) : (lar_slice){"", 0};
    lar_diag d = {0};
    lar_regex *r = NULL;
    lar_error e = lar_regex_new(pattern, &r, &d);
    FUZZ_CHECK(e == LAR_OK || ((e == LAR_INVALID || e == LAR_LIMIT) && d.text[0]));
    if (e) return 0;
    lar_regex_graph *g = calloc(1, sizeof *g);
    if (!g) abort();
    FUZZ_CHECK(lar_regex_parse(pattern, g, NULL) == LAR_OK);
    size_t most = TEXT_MAX * 16 / g->node_count;
    if (text.len > most) text.len = most;
    compare(r, g, text);
    lar_regex_graph_release(g);
    free(g);
    lar_regex_free(r);
    return 0;
}
