/* Parses expressions into instructions: Jinja's precedence, lowest first: if, or, and, not, comparisons and in, + -, ~,
 * * / // %, **, unary and postfix (. [] () | is).
 * Flow: template_parse.c calls lar_tpl_parse_expr for every expression of a statement. Thread: the parser's.
 * Why recursion: the grammar is nested. `depth` counts brackets, calls and unary signs and ends at
 * LAR_TPL_PARSE_DEPTH_MAX, so the C stack is bounded whatever the template holds; chains (a + b + ...) are loops.
 * Invariants: 1. an expression leaves exactly one value on the machine's stack. 2. jumps are relative and stay within
 * the expression's own code, so `a if c` may move a behind c.
 * Source: Jinja2 3.1, parser.py. */
#include <errno.h>
#include <stdlib.h>

#include "engine/text/template_parse.h"

static lar_error parse_or(lar_tpl_parser *p);
static lar_error parse_unary(lar_tpl_parser *p, bool with_filters);

static bool at_operator(const lar_tpl_parser *p, const char *text) {
    return lar_tpl_parse_at(p, LAR_TPL_TOKEN_OPERATOR, text);
}

static bool at_word(const lar_tpl_parser *p, const char *text) { return lar_tpl_parse_at(p, LAR_TPL_TOKEN_NAME, text); }

static lar_error deeper(lar_tpl_parser *p) {
    if (p->depth++ < LAR_TPL_PARSE_DEPTH_MAX) return LAR_OK;
    (void)lar_tpl_parse_fail(p, "an expression is nested more than %d levels deep", LAR_TPL_PARSE_DEPTH_MAX);
    return LAR_LIMIT;
}

/* -- literals ----------------------------------------------------------------------------------------- */

static lar_error parse_string(lar_tpl_parser *p) {
    lar_tpl_out all = {.w = &p->work};
    lar_tpl value;
    lar_error e = LAR_OK;
    while (!e && p->lexer.token.kind == LAR_TPL_TOKEN_STRING) { /* neighbours are one string */
        lar_slice text;
        e = lar_tpl_lex_string(&p->lexer, p->lexer.token.text, &text);
        if (!e) e = lar_tpl_out_add(&all, text.ptr, text.len, LAR_TEMPLATE_OWN);
        if (!e) e = lar_tpl_parse_next(p);
    }
    if (!e) e = lar_tpl_out_finish(&all, &value);
    return e ? e : lar_tpl_emit_constant(p, LAR_TPL_OP_CONST, value);
}

static lar_error parse_number(lar_tpl_parser *p) {
    lar_slice text = lar_arena_copy(&p->t->arena, p->lexer.token.text);
    if (!text.ptr) return lar_tpl_no_memory(&p->work);
    errno = 0;
    bool whole = p->lexer.token.kind == LAR_TPL_TOKEN_INTEGER;
    lar_tpl value = whole ? lar_tpl_int(strtoll(text.ptr, NULL, 10)) : lar_tpl_float(strtod(text.ptr, NULL));
    if (errno) return lar_tpl_parse_fail(p, "the number %.*s is too large", LAR_FMT(text));
    lar_error e = lar_tpl_parse_next(p);
    return e ? e : lar_tpl_emit_constant(p, LAR_TPL_OP_CONST, value);
}

/* Behind an opening bracket: values up to `close`, counted. */
static lar_error parse_values(lar_tpl_parser *p, const char *close, int32_t *count) {
    lar_error e = LAR_OK;
    for (*count = 0; !e && !at_operator(p, close);) {
        e = lar_tpl_parse_expr(p, LAR_TPL_EXPR_ONE);
        ++*count;
        if (!e && !at_operator(p, close)) e = lar_tpl_parse_expect(p, LAR_TPL_TOKEN_OPERATOR, ",");
    }
    return e ? e : lar_tpl_parse_next(p);
}

static lar_error parse_list(lar_tpl_parser *p) {
    int32_t count = 0;
    lar_error e = lar_tpl_parse_next(p);
    if (!e) e = parse_values(p, "]", &count);
    return e ? e : lar_tpl_emit(p, LAR_TPL_OP_LIST, count);
}

static lar_error parse_dict(lar_tpl_parser *p) {
    int32_t count = 0;
    lar_error e = lar_tpl_parse_next(p);
    while (!e && !at_operator(p, "}")) {
        e = lar_tpl_parse_expr(p, LAR_TPL_EXPR_ONE);
        if (!e) e = lar_tpl_parse_expect(p, LAR_TPL_TOKEN_OPERATOR, ":");
        if (!e) e = lar_tpl_parse_expr(p, LAR_TPL_EXPR_ONE);
        count++;
        if (!e && !at_operator(p, "}")) e = lar_tpl_parse_expect(p, LAR_TPL_TOKEN_OPERATOR, ",");
    }
    if (!e) e = lar_tpl_parse_next(p);
    return e ? e : lar_tpl_emit(p, LAR_TPL_OP_DICT, count);
}

/* ( ) is an empty tuple, ( a ) is a, ( a, ) and ( a, b ) are tuples. */
static lar_error parse_brackets(lar_tpl_parser *p) {
    lar_error e = lar_tpl_parse_next(p);
    if (!e && at_operator(p, ")")) {
        e = lar_tpl_parse_next(p);
        return e ? e : lar_tpl_emit(p, LAR_TPL_OP_TUPLE, 0);
    }
    if (!e) e = lar_tpl_parse_expr(p, LAR_TPL_EXPR_TUPLE);
    return e ? e : lar_tpl_parse_expect(p, LAR_TPL_TOKEN_OPERATOR, ")");
}

/* -- calls --------------------------------------------------------------------------------------------- */

typedef struct arguments {
    uint8_t positional, named;
} arguments;

/* Behind `(`: positional values, then name = value. */
static lar_error parse_arguments(lar_tpl_parser *p, arguments *a) {
    *a = (arguments){0, 0};
    lar_error e = lar_tpl_parse_expect(p, LAR_TPL_TOKEN_OPERATOR, "(");
    while (!e && !at_operator(p, ")")) {
        if (a->positional + a->named == LAR_TPL_PARAMETERS_MAX)
            return lar_tpl_parse_fail(p, "a call with more than %d arguments", LAR_TPL_PARAMETERS_MAX);
        if (at_operator(p, "*") || at_operator(p, "**"))
            return lar_tpl_parse_unknown(p, "arguments from a list:", LAR_SLICE("*"));
        lar_tpl_lexer before = p->lexer;
        lar_slice name = p->lexer.token.text;
        bool is_named = p->lexer.token.kind == LAR_TPL_TOKEN_NAME;
        if (is_named) e = lar_tpl_parse_next(p);
        is_named = !e && is_named && at_operator(p, "=");
        if (!is_named) p->lexer = before;
        if (!e && is_named) {
            lar_tpl text;
            e = lar_tpl_string_of(&p->work, name, LAR_TEMPLATE_OWN, &text);
            if (!e) e = lar_tpl_emit_constant(p, LAR_TPL_OP_CONST, text);
            if (!e) e = lar_tpl_parse_next(p);
            a->named++;
        } else if (!e && a->named) {
            return lar_tpl_parse_fail(p, "an argument without a name behind one with a name");
        } else {
            a->positional++;
        }
        if (!e) e = lar_tpl_parse_expr(p, LAR_TPL_EXPR_ONE);
        if (!e && !at_operator(p, ")")) e = lar_tpl_parse_expect(p, LAR_TPL_TOKEN_OPERATOR, ",");
    }
    return e ? e : lar_tpl_parse_next(p);
}

static lar_error emit_call(lar_tpl_parser *p, lar_tpl_op op, int32_t id, arguments a) {
    lar_error e = lar_tpl_emit(p, op, id);
    if (e) return e;
    p->t->code[p->t->code_count - 1].positional = a.positional;
    p->t->code[p->t->code_count - 1].named = a.named;
    return LAR_OK;
}

/* Filters may be given all they need by name, so that only positional arguments over `most` are refused here. */
static lar_error check_count(lar_tpl_parser *p, const char *what, const lar_tpl_row *row, arguments a) {
    if (a.positional > row->most || a.positional + a.named < row->least)
        return lar_tpl_parse_fail(p, "%s '%s' with %d arguments", what, row->name, a.positional + a.named);
    return LAR_OK;
}

lar_error lar_tpl_parse_filter(lar_tpl_parser *p) {
    if (p->lexer.token.kind != LAR_TPL_TOKEN_NAME) return lar_tpl_parse_fail(p, "the name of a filter is missing");
    const lar_tpl_row *row = lar_tpl_find_filter(p->lexer.token.text);
    if (!row) return lar_tpl_parse_unknown(p, "the filter", p->lexer.token.text);
    arguments a = {0, 0};
    uint32_t at = p->lexer.token.at;
    lar_error e = lar_tpl_parse_next(p);
    if (!e && at_operator(p, "(")) e = parse_arguments(p, &a);
    if (!e) e = check_count(p, "the filter", row, a);
    if (!e) e = emit_call(p, LAR_TPL_OP_FILTER, row->id, a);
    if (!e) p->t->code[p->t->code_count - 1].at = at;
    return e;
}

static lar_error parse_test(lar_tpl_parser *p) {
    bool negate = false;
    lar_error e = lar_tpl_parse_next(p);
    if (!e) e = lar_tpl_parse_skip(p, LAR_TPL_TOKEN_NAME, "not", &negate);
    if (e) return e;
    if (p->lexer.token.kind != LAR_TPL_TOKEN_NAME) return lar_tpl_parse_fail(p, "the name of a test is missing");
    const lar_tpl_row *row = lar_tpl_find_test(p->lexer.token.text);
    if (!row) return lar_tpl_parse_unknown(p, "the test", p->lexer.token.text);
    arguments a = {0, 0};
    e = lar_tpl_parse_next(p);
    if (!e && at_operator(p, "(")) {
        e = parse_arguments(p, &a);
    } else if (!e && row->most) { /* `is divisibleby 3` */
        a.positional = 1;
        e = deeper(p);
        if (!e) e = parse_unary(p, false);
        p->depth--;
    }
    if (!e) e = check_count(p, "the test", row, a);
    if (!e) e = emit_call(p, LAR_TPL_OP_TEST, row->id, a);
    return !e && negate ? lar_tpl_emit(p, LAR_TPL_OP_NOT, 0) : e;
}

/* name( : a function of ours or a macro of the template, which may come later; template_parse.c checks at the end. */
static lar_error parse_name_call(lar_tpl_parser *p, lar_slice name, uint32_t at) {
    const lar_tpl_row *row = lar_tpl_find_function(name);
    arguments a;
    uint32_t number = 0;
    lar_error e = parse_arguments(p, &a);
    if (!e && row) e = check_count(p, "the function", row, a);
    if (!e && !row) e = lar_tpl_intern(p, name, &number);
    if (!e && row) e = emit_call(p, LAR_TPL_OP_FUNCTION, row->id, a);
    else if (!e) e = emit_call(p, LAR_TPL_OP_CALL, (int32_t)number, a);
    if (!e) p->t->code[p->t->code_count - 1].at = at;
    return e;
}

static lar_error parse_name(lar_tpl_parser *p) {
    static const struct {
        const char *word;
        uint8_t kind;
        bool truth;
    } words[] = {{"true", LAR_TPL_BOOL, true},   {"True", LAR_TPL_BOOL, true},  {"false", LAR_TPL_BOOL, false},
                 {"False", LAR_TPL_BOOL, false}, {"none", LAR_TPL_NONE, false}, {"None", LAR_TPL_NONE, false}};
    lar_slice name = p->lexer.token.text;
    uint32_t at = p->lexer.token.at, number;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!lar_slice_eq_cstr(name, words[i].word)) continue;
        lar_error e = lar_tpl_parse_next(p);
        lar_tpl value = words[i].kind == LAR_TPL_BOOL ? lar_tpl_bool(words[i].truth) : lar_tpl_none();
        return e ? e : lar_tpl_emit_constant(p, LAR_TPL_OP_CONST, value);
    }
    lar_error e = lar_tpl_parse_name(p, &number);
    if (e) return e;
    if (at_operator(p, "(")) return parse_name_call(p, name, at);
    static const char *const refused[] = {"caller", "varargs", "kwargs"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (lar_slice_eq_cstr(name, refused[i]) && p->in_macro) return lar_tpl_parse_unknown(p, "the name", name);
    p->t->is_read[number] = true;
    e = lar_tpl_emit(p, LAR_TPL_OP_LOAD, (int32_t)number);
    if (!e) p->t->code[p->t->code_count - 1].at = at;
    return e;
}

static lar_error parse_primary(lar_tpl_parser *p) {
    switch (p->lexer.token.kind) {
    case LAR_TPL_TOKEN_STRING: return parse_string(p);
    case LAR_TPL_TOKEN_INTEGER:
    case LAR_TPL_TOKEN_FLOAT: return parse_number(p);
    case LAR_TPL_TOKEN_NAME: return parse_name(p);
    default: break;
    }
    lar_error e = deeper(p);
    if (e) return e;
    if (at_operator(p, "(")) e = parse_brackets(p);
    else if (at_operator(p, "[")) e = parse_list(p);
    else if (at_operator(p, "{")) e = parse_dict(p);
    else e = lar_tpl_parse_fail(p, "an expression is missing");
    p->depth--;
    return e;
}

/* -- what stands behind a value -------------------------------------------------------------------------- */

/* One bound of a slice; absent is none. */
static lar_error parse_bound(lar_tpl_parser *p) {
    if (at_operator(p, ":") || at_operator(p, "]")) return lar_tpl_emit_constant(p, LAR_TPL_OP_CONST, lar_tpl_none());
    return lar_tpl_parse_expr(p, LAR_TPL_EXPR_ONE);
}

static lar_error parse_subscript(lar_tpl_parser *p) {
    lar_error e = lar_tpl_parse_next(p);
    if (!e && at_operator(p, "]")) return lar_tpl_parse_fail(p, "an index is missing");
    if (!e) e = parse_bound(p);
    if (!e && !at_operator(p, ":")) {
        e = lar_tpl_parse_expect(p, LAR_TPL_TOKEN_OPERATOR, "]");
        return e ? e : lar_tpl_emit(p, LAR_TPL_OP_ITEM, 0);
    }
    for (int i = 0; !e && i < 2; i++) {
        bool more = false;
        e = lar_tpl_parse_skip(p, LAR_TPL_TOKEN_OPERATOR, ":", &more);
        if (!e && more) e = parse_bound(p);
        else if (!e) e = lar_tpl_emit_constant(p, LAR_TPL_OP_CONST, lar_tpl_none());
    }
    if (!e) e = lar_tpl_parse_expect(p, LAR_TPL_TOKEN_OPERATOR, "]");
    return e ? e : lar_tpl_emit(p, LAR_TPL_OP_SLICE, 0);
}

/* .name, .name(...), .0 */
static lar_error parse_dot(lar_tpl_parser *p) {
    bool is_loop = p->t->code_count && p->t->code[p->t->code_count - 1].op == LAR_TPL_OP_LOAD &&
                   lar_slice_eq_cstr(p->t->names[p->t->code[p->t->code_count - 1].a], "loop");
    lar_error e = lar_tpl_parse_next(p);
    if (e) return e;
    uint32_t at = p->lexer.token.at;
    if (p->lexer.token.kind == LAR_TPL_TOKEN_INTEGER) {
        e = parse_number(p);
        return e ? e : lar_tpl_emit(p, LAR_TPL_OP_ITEM, 0);
    }
    if (p->lexer.token.kind != LAR_TPL_TOKEN_NAME) return lar_tpl_parse_fail(p, "a name is missing behind the dot");
    lar_slice name = p->lexer.token.text;
    if (is_loop && p->loops && !lar_tpl_is_loop_attribute(name))
        return lar_tpl_parse_unknown(p, "the loop's attribute", name);
    uint32_t number;
    arguments a;
    e = lar_tpl_parse_next(p);
    if (!e && at_operator(p, "(")) {
        const lar_tpl_row *row = lar_tpl_find_method(name);
        if (!row) return lar_tpl_parse_unknown(p, "the method", name);
        e = parse_arguments(p, &a);
        if (!e) e = check_count(p, "the method", row, a);
        if (!e) e = emit_call(p, LAR_TPL_OP_METHOD, row->id, a);
    } else if (!e) {
        e = lar_tpl_intern(p, name, &number);
        if (!e) e = lar_tpl_emit(p, LAR_TPL_OP_ATTR, (int32_t)number);
    }
    if (!e) p->t->code[p->t->code_count - 1].at = at;
    return e;
}

static lar_error parse_postfix(lar_tpl_parser *p) {
    lar_error e = LAR_OK;
    while (!e) {
        if (at_operator(p, ".")) e = parse_dot(p);
        else if (at_operator(p, "[")) e = parse_subscript(p);
        else if (at_operator(p, "(")) return lar_tpl_parse_fail(p, "a call of a value that is no name");
        else break;
    }
    return e;
}

static lar_error parse_filters(lar_tpl_parser *p) {
    lar_error e = LAR_OK;
    while (!e) {
        bool pipe = false;
        e = lar_tpl_parse_skip(p, LAR_TPL_TOKEN_OPERATOR, "|", &pipe);
        if (!e && pipe) e = lar_tpl_parse_filter(p);
        else if (!e && at_word(p, "is")) e = parse_test(p);
        else break;
    }
    return e;
}

/* -- operators ------------------------------------------------------------------------------------------- */

static lar_error parse_unary(lar_tpl_parser *p, bool with_filters) {
    lar_error e = LAR_OK;
    if (at_operator(p, "-") || at_operator(p, "+")) {
        lar_tpl_op op = at_operator(p, "-") ? LAR_TPL_OP_NEGATE : LAR_TPL_OP_PLUS;
        e = deeper(p);
        if (!e) e = lar_tpl_parse_next(p);
        if (!e) e = parse_unary(p, false);
        if (!e) e = lar_tpl_emit(p, op, 0);
        p->depth--;
    } else {
        e = parse_primary(p);
    }
    if (!e) e = parse_postfix(p);
    return !e && with_filters ? parse_filters(p) : e;
}

typedef struct operator_row {
    const char *text;
    lar_tpl_binary op;
} operator_row;

static const operator_row power[] = {{"**", LAR_TPL_POW}};
static const operator_row products[] = {{"*", LAR_TPL_MUL},
                                        {"/", LAR_TPL_DIV},
                                        {"//", LAR_TPL_FLOORDIV},
                                        {"%", LAR_TPL_MOD}};
static const operator_row joins[] = {{"~", LAR_TPL_JOIN}};
static const operator_row sums[] = {{"+", LAR_TPL_ADD}, {"-", LAR_TPL_SUB}};
static const operator_row comparisons[] = {{"==", LAR_TPL_EQ}, {"!=", LAR_TPL_NE}, {"<=", LAR_TPL_LE},
                                           {">=", LAR_TPL_GE}, {"<", LAR_TPL_LT},  {">", LAR_TPL_GT}};

static const struct {
    const operator_row *rows;
    size_t count;
} levels[] = {{power, 1}, {products, 4}, {joins, 1}, {sums, 2}};

static const operator_row *find_operator(const lar_tpl_parser *p, const operator_row *rows, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (at_operator(p, rows[i].text)) return &rows[i];
    return NULL;
}

/* Operators of a level and those that bind tighter; every level is left-associative, ** too (as in Jinja). The levels
 * are few and fixed: this calls itself at most four times. */
static lar_error parse_level(lar_tpl_parser *p, size_t level) {
    lar_error e = level ? parse_level(p, level - 1) : parse_unary(p, true);
    const operator_row *row;
    while (!e && (row = find_operator(p, levels[level].rows, levels[level].count)) != NULL) {
        uint32_t at = p->lexer.token.at;
        e = lar_tpl_parse_next(p);
        if (!e) e = level ? parse_level(p, level - 1) : parse_unary(p, true);
        if (!e) e = lar_tpl_emit(p, LAR_TPL_OP_BINARY, (int32_t)row->op);
        if (!e) p->t->code[p->t->code_count - 1].at = at;
    }
    return e;
}

/* The comparison at the current token, taken; false if there is none. */
static lar_error take_comparison(lar_tpl_parser *p, lar_tpl_binary *op, bool *found) {
    const operator_row *row = find_operator(p, comparisons, sizeof comparisons / sizeof *comparisons);
    *found = true;
    if (row) {
        *op = row->op;
        return lar_tpl_parse_next(p);
    }
    if (at_word(p, "in")) {
        *op = LAR_TPL_IN;
        return lar_tpl_parse_next(p);
    }
    lar_tpl_lexer before = p->lexer;
    *found = at_word(p, "not");
    if (!*found) return LAR_OK;
    *op = LAR_TPL_NOT_IN;
    lar_error e = lar_tpl_parse_next(p);
    *found = !e && at_word(p, "in");
    if (*found) return lar_tpl_parse_next(p);
    p->lexer = before;
    return e;
}

static lar_error parse_comparison(lar_tpl_parser *p) {
    const size_t top = sizeof levels / sizeof *levels - 1;
    lar_tpl_binary op = LAR_TPL_EQ, second;
    bool found = false, again = false;
    lar_error e = parse_level(p, top);
    uint32_t at = p->lexer.token.at;
    if (!e) e = take_comparison(p, &op, &found);
    if (e || !found) return e;
    e = parse_level(p, top);
    if (!e) e = lar_tpl_emit(p, LAR_TPL_OP_BINARY, (int32_t)op);
    if (!e) p->t->code[p->t->code_count - 1].at = at;
    if (!e) e = take_comparison(p, &second, &again);
    if (!e && again) return lar_tpl_parse_fail(p, "a chain of comparisons is not supported; use `and`");
    return e;
}

static lar_error parse_not(lar_tpl_parser *p) {
    uint32_t count = 0;
    lar_error e = LAR_OK;
    for (; !e && at_word(p, "not"); count++) e = lar_tpl_parse_next(p);
    if (!e) e = parse_comparison(p);
    for (; !e && count; count--) e = lar_tpl_emit(p, LAR_TPL_OP_NOT, 0);
    return e;
}

static lar_error parse_and(lar_tpl_parser *p) {
    lar_error e = parse_not(p);
    while (!e && at_word(p, "and")) {
        uint32_t jump = p->t->code_count;
        e = lar_tpl_emit(p, LAR_TPL_OP_AND, 0);
        if (!e) e = lar_tpl_parse_next(p);
        if (!e) e = parse_not(p);
        if (!e) lar_tpl_emit_land(p, jump);
    }
    return e;
}

static lar_error parse_or(lar_tpl_parser *p) {
    lar_error e = parse_and(p);
    while (!e && at_word(p, "or")) {
        uint32_t jump = p->t->code_count;
        e = lar_tpl_emit(p, LAR_TPL_OP_OR, 0);
        if (!e) e = lar_tpl_parse_next(p);
        if (!e) e = parse_and(p);
        if (!e) lar_tpl_emit_land(p, jump);
    }
    return e;
}

/* The code [from, mid) and [mid, end) change places. */
static lar_error swap_code(lar_tpl_parser *p, uint32_t from, uint32_t mid) {
    uint32_t end = p->t->code_count, first = mid - from;
    lar_tpl_code *code = p->t->code, *copy = lar_tpl_alloc(&p->work, first * sizeof *copy);
    if (!copy) return lar_tpl_no_memory(&p->work);
    memcpy(copy, code + from, first * sizeof *copy);
    memmove(code + from, code + mid, (end - mid) * sizeof *copy);
    memcpy(code + end - first, copy, first * sizeof *copy);
    return LAR_OK;
}

/* `a if c else b` with a's code written already, from `from` on: c, jump over a when false, a, jump over b, b. */
static lar_error parse_if(lar_tpl_parser *p, uint32_t from) {
    uint32_t mid = p->t->code_count, length = mid - from;
    bool has_else = false;
    lar_error e = lar_tpl_parse_next(p);
    if (!e) e = parse_or(p);
    if (!e) e = lar_tpl_emit(p, LAR_TPL_OP_JUMP_FALSE, 0);
    if (!e) e = swap_code(p, from, mid);
    if (e) return e;
    uint32_t jump_false = p->t->code_count - length - 1, jump_end = p->t->code_count;
    e = lar_tpl_emit(p, LAR_TPL_OP_JUMP, 0);
    if (!e) lar_tpl_emit_land(p, jump_false);
    if (!e) e = lar_tpl_parse_skip(p, LAR_TPL_TOKEN_NAME, "else", &has_else);
    if (!e && has_else) e = lar_tpl_parse_expr(p, LAR_TPL_EXPR_ONE);
    else if (!e) e = lar_tpl_emit_constant(p, LAR_TPL_OP_CONST, lar_tpl_undefined(NULL));
    if (!e) lar_tpl_emit_land(p, jump_end);
    return e;
}

static lar_error parse_conditional(lar_tpl_parser *p, bool with_if) {
    uint32_t from = p->t->code_count;
    lar_error e = parse_or(p);
    while (!e && with_if && at_word(p, "if")) e = parse_if(p, from);
    return e;
}

lar_error lar_tpl_parse_expr(lar_tpl_parser *p, lar_tpl_expr_form form) {
    lar_error e = deeper(p);
    if (!e) e = parse_conditional(p, form != LAR_TPL_EXPR_NO_IF);
    int32_t count = 1;
    bool tuple = !e && form == LAR_TPL_EXPR_TUPLE && at_operator(p, ",");
    while (!e && tuple && at_operator(p, ",")) {
        e = lar_tpl_parse_next(p);
        if (e || at_operator(p, ")") || p->lexer.token.kind == LAR_TPL_TOKEN_TAG_END ||
            p->lexer.token.kind == LAR_TPL_TOKEN_PRINT_END)
            break;
        e = parse_conditional(p, true);
        count++;
    }
    if (!e && tuple) e = lar_tpl_emit(p, LAR_TPL_OP_TUPLE, count);
    p->depth--;
    return e;
}
