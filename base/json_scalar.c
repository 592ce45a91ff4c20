/* The reference parser of the span tree: one byte at a time, every rule of RFC 8259 in its plainest form.
 * Flow: called by json.c, on machines without a vector parser and by the tests that compare the others.
 * Thread: any. Never blocks. No recursion: open containers are on the tree's own stack.
 * Why: a readable answer to "what should the fast ones say", errors and offsets included.
 * Memory: the tree's arrays only. */
#include "base/json_scan.h"

static const unsigned char *skip_blanks(const lar_json_run *run, const unsigned char *p) {
    while (p < run->end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
    return p;
}

static int is_digit(const lar_json_run *run, const unsigned char *p) { return p < run->end && *p >= '0' && *p <= '9'; }

static const unsigned char *skip_digits(const lar_json_run *run, const unsigned char *p) {
    while (is_digit(run, p)) p++;
    return p;
}

/* number = [ "-" ] ( "0" / 1-9 *digit ) [ "." 1*digit ] [ ("e" / "E") [ "+" / "-" ] 1*digit ]
 * A digit behind a leading 0 is left for the caller, who wants a comma or a bracket there. */
static lar_error scan_number(const lar_json_run *run, const unsigned char *p, const unsigned char **end) {
    if (*p == '-') p++;
    if (!is_digit(run, p)) return lar_json_unexpected(run, p, "a digit");
    p = *p == '0' ? p + 1 : skip_digits(run, p);
    if (p < run->end && *p == '.') {
        p++;
        if (!is_digit(run, p)) return lar_json_unexpected(run, p, "a digit");
        p = skip_digits(run, p);
    }
    if (p < run->end && (*p == 'e' || *p == 'E')) {
        p++;
        if (p < run->end && (*p == '+' || *p == '-')) p++;
        if (!is_digit(run, p)) return lar_json_unexpected(run, p, "a digit");
        p = skip_digits(run, p);
    }
    *end = p;
    return LAR_OK;
}

static lar_error scan_word(const lar_json_run *run, const unsigned char *p, const char *word,
                           const unsigned char **end) {
    for (; *word; word++, p++)
        if (p == run->end || *p != (unsigned char)*word) return lar_json_unexpected(run, p, "true, false or null");
    *end = p;
    return LAR_OK;
}

static lar_error add_string(lar_json_run *run, const unsigned char **p, uint8_t flags) {
    const unsigned char *start = *p;
    lar_error e = lar_json_grow_nodes(run, start);
    if (!e) e = lar_json_scan_string(run, start, p, &flags);
    if (!e) lar_json_push(run, LAR_JSON_STRING, start, *p)->flags = flags;
    return e;
}

static lar_error open_container(lar_json_run *run, const unsigned char **p, lar_json_kind kind) {
    lar_error e = lar_json_grow_stack(run, *p);
    if (!e) e = lar_json_grow_nodes(run, *p);
    if (e) return e;
    run->j->stack[run->depth] = run->count;
    lar_json_push(run, kind, *p, *p);
    run->depth++;
    (*p)++;
    return LAR_OK;
}

static void close_container(lar_json_run *run, const unsigned char **p) {
    run->depth--;
    lar_json_node *n = &run->j->nodes[run->j->stack[run->depth]];
    (*p)++;
    n->end = (uint32_t)(*p - run->base);
    n->next = run->count;
}

lar_error lar_json_scan_plain(const lar_json_run *run, const unsigned char *p, lar_json_kind *kind,
                              const unsigned char **end) {
    switch (*p) {
    case 't': *kind = LAR_JSON_TRUE; return scan_word(run, p, "true", end);
    case 'f': *kind = LAR_JSON_FALSE; return scan_word(run, p, "false", end);
    case 'n': *kind = LAR_JSON_NULL; return scan_word(run, p, "null", end);
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9': *kind = LAR_JSON_NUMBER; return scan_number(run, p, end);
    default: return lar_json_unexpected(run, p, "a value");
    }
}

static lar_error add_plain(lar_json_run *run, const unsigned char **p) {
    const unsigned char *start = *p;
    lar_json_kind kind;
    lar_error e = lar_json_grow_nodes(run, start);
    if (!e) e = lar_json_scan_plain(run, start, &kind, p);
    if (!e) lar_json_push(run, kind, start, *p);
    return e;
}

/* What the grammar allows next. FIRST: the container was just opened and may close at once. */
typedef enum want { WANT_VALUE, WANT_FIRST_VALUE, WANT_KEY, WANT_FIRST_KEY, WANT_COLON, WANT_NEXT } want;

static lar_error read_value(lar_json_run *run, const unsigned char **p, want *state) {
    *state = WANT_NEXT;
    if (*p == run->end) return lar_json_unexpected(run, *p, "a value");
    if (**p == '"') return add_string(run, p, 0);
    if (**p == '{') {
        *state = WANT_FIRST_KEY;
        return open_container(run, p, LAR_JSON_OBJECT);
    }
    if (**p == '[') {
        *state = WANT_FIRST_VALUE;
        return open_container(run, p, LAR_JSON_ARRAY);
    }
    return add_plain(run, p);
}

static lar_error read_next(lar_json_run *run, const unsigned char **p, want *state) {
    const lar_json_node *parent = &run->j->nodes[run->j->stack[run->depth - 1]];
    int object = parent->kind == LAR_JSON_OBJECT;
    if (*p < run->end && **p == (object ? '}' : ']')) {
        close_container(run, p);
        *state = WANT_NEXT;
        return LAR_OK;
    }
    if (*p == run->end || **p != ',') return lar_json_unexpected(run, *p, object ? "',' or '}'" : "',' or ']'");
    (*p)++;
    *state = object ? WANT_KEY : WANT_VALUE;
    return LAR_OK;
}

static lar_error step(lar_json_run *run, const unsigned char **p, want *state) {
    int at_end = *p == run->end;
    switch (*state) {
    case WANT_FIRST_VALUE:
        if (!at_end && **p == ']') return read_next(run, p, state);
        /* fall through */
    case WANT_VALUE:
        if (run->depth) run->j->nodes[run->j->stack[run->depth - 1]].count++;
        return read_value(run, p, state);
    case WANT_FIRST_KEY:
        if (!at_end && **p == '}') return read_next(run, p, state);
        /* fall through */
    case WANT_KEY:
        if (at_end || **p != '"') return lar_json_unexpected(run, *p, "a member's name");
        *state = WANT_COLON;
        return add_string(run, p, LAR_JSON_KEY);
    case WANT_COLON:
        if (at_end || **p != ':') return lar_json_unexpected(run, *p, "':'");
        (*p)++;
        *state = WANT_VALUE;
        return LAR_OK;
    case WANT_NEXT: break;
    }
    return read_next(run, p, state);
}

lar_error lar_json_run_scalar(lar_json_run *run, const unsigned char *p) {
    want state = WANT_VALUE;
    for (;;) {
        p = skip_blanks(run, p);
        if (state == WANT_NEXT && run->depth == 0) break;
        lar_error e = step(run, &p, &state);
        if (e) return e;
    }
    return p == run->end ? LAR_OK : lar_json_unexpected(run, p, "the end of the body");
}
