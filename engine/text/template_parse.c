/* Parses a template into instructions: text, tags and what blocks they open and close.
 * Flow: larder run, inspect -> lar_template_parse -> lexer, template_expr.c. Thread: any, one a template. Never blocks.
 * Why instructions: a template is parsed once and rendered for every request; a flat program needs no C stack.
 * Invariants: 1. open blocks are on an explicit stack of LAR_TPL_PARSE_DEPTH_MAX. 2. everything that could be unknown
 * is refused here, not when a conversation happens to reach it. 3. after lar_template_parse the template never changes.
 * Memory: one arena, freed with the template. Not here: rendering (template_run.c). */
#include "engine/text/template_parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"

typedef enum block_kind {
    BLOCK_IF,
    BLOCK_ELSE,
    BLOCK_FOR,
    BLOCK_FOR_ELSE,
    BLOCK_SET,
    BLOCK_FILTER,
    BLOCK_MACRO,
    BLOCK_PLAIN
} block_kind;

#define ARENA_BYTES_MAX (64u << 20)
#define NAMES_MAX 1024u /* they are found by looking at all */
#define NO_JUMP UINT32_MAX

typedef struct block {
    block_kind kind;
    uint32_t at;      /* of its tag, for "never closed" */
    uint32_t start;   /* FOR: its NEXT instruction */
    uint32_t pending; /* the jump that leads to the next branch, or to the end of the block; NO_JUMP if there is none */
    uint32_t ends;    /* the last of the jumps to the end, which are linked through their `a`; NO_JUMP */
    uint32_t name, attribute;
    bool has_attribute;
    uint32_t loops;       /* of the block around it */
    lar_tpl_lexer filter; /* FILTER: where its name is */
} block;

typedef struct statements {
    lar_tpl_parser *p;
    block stack[LAR_TPL_PARSE_DEPTH_MAX];
    uint32_t depth;
} statements;

/* -- what expressions use, too ----------------------------------------------------------------------------- */

lar_error lar_tpl_parse_fail(lar_tpl_parser *p, const char *fmt, ...) {
    char text[LAR_DIAG_BYTES];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    p->work.at = p->lexer.token.at;
    return lar_tpl_fail(&p->work, LAR_INVALID, "%s", text);
}

lar_error lar_tpl_parse_unknown(lar_tpl_parser *p, const char *what, lar_slice name) {
    lar_slice source = p->work.source;
    bool inside = name.ptr >= source.ptr && name.ptr < source.ptr + source.len;
    if (inside) p->lexer.token.at = (uint32_t)(name.ptr - source.ptr);
    if (name.len > 60) name.len = 60;
    return lar_tpl_parse_fail(p, "%s '%.*s' is not supported", what, LAR_FMT(name));
}

lar_error lar_tpl_parse_next(lar_tpl_parser *p) { return lar_tpl_lex(&p->lexer); }

bool lar_tpl_parse_at(const lar_tpl_parser *p, lar_tpl_token_kind kind, const char *text) {
    return p->lexer.token.kind == kind && (!text || lar_slice_eq_cstr(p->lexer.token.text, text));
}

lar_error lar_tpl_parse_skip(lar_tpl_parser *p, lar_tpl_token_kind kind, const char *text, bool *found) {
    *found = lar_tpl_parse_at(p, kind, text);
    return *found ? lar_tpl_parse_next(p) : LAR_OK;
}

lar_error lar_tpl_parse_expect(lar_tpl_parser *p, lar_tpl_token_kind kind, const char *text) {
    if (lar_tpl_parse_at(p, kind, text)) return lar_tpl_parse_next(p);
    const char *want = text ? text : kind == LAR_TPL_TOKEN_TAG_END ? "%}" : "}}";
    lar_slice found = p->lexer.token.text;
    if (found.len > 60) found.len = 60;
    if (!found.len) return lar_tpl_parse_fail(p, "%s is missing", want);
    return lar_tpl_parse_fail(p, "%s is missing before '%.*s'", want, LAR_FMT(found));
}

lar_error lar_tpl_parse_name(lar_tpl_parser *p, uint32_t *name) {
    static const char *const words[] = {"and", "or", "not", "in", "is", "if", "else", "elif", "for", "recursive"};
    lar_slice text = p->lexer.token.text;
    if (p->lexer.token.kind != LAR_TPL_TOKEN_NAME) return lar_tpl_parse_fail(p, "a name is missing");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (lar_slice_eq_cstr(text, words[i])) return lar_tpl_parse_fail(p, "a name is missing before '%s'", words[i]);
    lar_error e = lar_tpl_intern(p, text, name);
    return e ? e : lar_tpl_parse_next(p);
}

/* A bigger copy of an array of `count` things of `size` bytes when there is no room for one more. */
static lar_error grow(lar_tpl_parser *p, void **items, uint32_t count, uint32_t *cap, size_t size) {
    if (count < *cap) return LAR_OK;
    uint32_t bigger = *cap ? *cap * 2 : 32;
    void *copy = lar_tpl_alloc(&p->work, bigger * size);
    if (!copy) return lar_tpl_no_memory(&p->work);
    if (count) memcpy(copy, *items, count * size);
    *items = copy;
    *cap = bigger;
    return LAR_OK;
}

lar_error lar_tpl_emit(lar_tpl_parser *p, lar_tpl_op op, int32_t a) {
    lar_template *t = p->t;
    void *items = t->code;
    lar_error e = grow(p, &items, t->code_count, &t->code_cap, sizeof *t->code);
    if (e) return e;
    t->code = items;
    t->code[t->code_count++] = (lar_tpl_code){.op = (uint8_t)op, .a = a, .at = p->lexer.token.at};
    return LAR_OK;
}

lar_error lar_tpl_emit_constant(lar_tpl_parser *p, lar_tpl_op op, lar_tpl value) {
    lar_template *t = p->t;
    void *items = t->constants;
    lar_error e = grow(p, &items, t->constant_count, &t->constant_cap, sizeof *t->constants);
    if (e) return e;
    t->constants = items;
    t->constants[t->constant_count++] = value;
    return lar_tpl_emit(p, op, (int32_t)t->constant_count - 1);
}

void lar_tpl_emit_land(lar_tpl_parser *p, uint32_t from) {
    p->t->code[from].a = (int32_t)(p->t->code_count - from - 1);
}

lar_error lar_tpl_intern(lar_tpl_parser *p, lar_slice name, uint32_t *number) {
    lar_template *t = p->t;
    for (*number = 0; *number < t->name_count; ++*number)
        if (lar_slice_eq(t->names[*number], name)) return LAR_OK;
    if (t->name_count == NAMES_MAX) {
        (void)lar_tpl_parse_fail(p, "more than %u different names", NAMES_MAX);
        return LAR_LIMIT;
    }
    uint32_t cap = t->name_cap;
    void *items = t->names, *read = t->is_read;
    lar_error e = grow(p, &items, t->name_count, &t->name_cap, sizeof *t->names);
    if (!e) e = grow(p, &read, t->name_count, &cap, sizeof *t->is_read);
    if (e) return e;
    t->names = items;
    t->is_read = read;
    t->is_read[t->name_count] = false;
    t->names[t->name_count++] = name;
    return LAR_OK;
}

/* -- blocks -------------------------------------------------------------------------------------------------- */

static lar_error open_block(statements *s, block_kind kind, block **out) {
    if (s->depth == LAR_TPL_PARSE_DEPTH_MAX) {
        (void)lar_tpl_parse_fail(s->p, "blocks are nested more than %d levels deep", LAR_TPL_PARSE_DEPTH_MAX);
        return LAR_LIMIT;
    }
    *out = &s->stack[s->depth++];
    **out =
        (block){.kind = kind, .at = s->p->lexer.token.at, .pending = NO_JUMP, .ends = NO_JUMP, .loops = s->p->loops};
    return LAR_OK;
}

static block *innermost(statements *s) { return s->depth ? &s->stack[s->depth - 1] : NULL; }

static void close_block(statements *s) { s->p->loops = s->stack[--s->depth].loops; }

/* A jump to the end of the block, which is not known yet. */
static lar_error emit_to_end(statements *s, block *b) {
    uint32_t at = s->p->t->code_count;
    lar_error e = lar_tpl_emit(s->p, LAR_TPL_OP_JUMP, (int32_t)b->ends);
    b->ends = at;
    return e;
}

static void land_ends(statements *s, block *b) {
    for (uint32_t at = b->ends, before; at != NO_JUMP; at = before) {
        before = (uint32_t)s->p->t->code[at].a;
        lar_tpl_emit_land(s->p, at);
    }
}

static lar_error tag_end(statements *s) { return lar_tpl_parse_expect(s->p, LAR_TPL_TOKEN_TAG_END, NULL); }

/* -- if -------------------------------------------------------------------------------------------------------- */

static lar_error condition(statements *s, block *b) {
    lar_error e = lar_tpl_parse_expr(s->p, LAR_TPL_EXPR_TUPLE);
    b->pending = s->p->t->code_count;
    if (!e) e = lar_tpl_emit(s->p, LAR_TPL_OP_JUMP_FALSE, 0);
    return e ? e : tag_end(s);
}

static lar_error tag_if(statements *s) {
    block *b;
    lar_error e = open_block(s, BLOCK_IF, &b);
    return e ? e : condition(s, b);
}

static lar_error tag_elif(statements *s) {
    block *b = innermost(s);
    if (!b || b->kind != BLOCK_IF) return lar_tpl_parse_fail(s->p, "elif without an if");
    lar_error e = emit_to_end(s, b);
    if (!e) lar_tpl_emit_land(s->p, b->pending);
    return e ? e : condition(s, b);
}

/* The end of a loop's body: the next turn. Behind it, where NEXT and break lead, "no turn was finished" is on the
 * stack. */
static lar_error end_body(statements *s, block *b) {
    lar_tpl_parser *p = s->p;
    lar_error e = lar_tpl_emit(p, LAR_TPL_OP_AGAIN, 0);
    if (e) return e;
    p->t->code[p->t->code_count - 1].a = (int32_t)b->start - (int32_t)p->t->code_count;
    lar_tpl_emit_land(p, b->start);
    land_ends(s, b);
    return LAR_OK;
}

static lar_error begin_for_else(statements *s, block *b) {
    lar_tpl_parser *p = s->p;
    lar_error e = end_body(s, b);
    if (e) return e;
    b->kind = BLOCK_FOR_ELSE;
    b->pending = p->t->code_count;
    p->loops = b->loops;
    e = lar_tpl_emit(p, LAR_TPL_OP_JUMP_FALSE, 0);
    return e ? e : tag_end(s);
}

static lar_error tag_else(statements *s) {
    block *b = innermost(s);
    if (b && b->kind == BLOCK_FOR) return begin_for_else(s, b);
    if (!b || b->kind != BLOCK_IF) return lar_tpl_parse_fail(s->p, "else without an if or a for");
    lar_error e = emit_to_end(s, b);
    if (!e) lar_tpl_emit_land(s->p, b->pending);
    b->kind = BLOCK_ELSE;
    b->pending = NO_JUMP;
    return e ? e : tag_end(s);
}

static lar_error tag_endif(statements *s) {
    block *b = innermost(s);
    if (!b || (b->kind != BLOCK_IF && b->kind != BLOCK_ELSE)) return lar_tpl_parse_fail(s->p, "endif without an if");
    if (b->pending != NO_JUMP) lar_tpl_emit_land(s->p, b->pending);
    land_ends(s, b);
    close_block(s);
    return tag_end(s);
}

/* -- for ------------------------------------------------------------------------------------------------------- */

#define TARGETS_MAX 8

typedef struct targets {
    uint32_t names[TARGETS_MAX];
    uint32_t count;
    bool unpack; /* a, b or (a, b) or a, */
} targets;

static lar_error parse_targets(lar_tpl_parser *p, targets *t) {
    bool bracket = false, comma = true, closed = false;
    *t = (targets){.count = 0};
    lar_error e = lar_tpl_parse_skip(p, LAR_TPL_TOKEN_OPERATOR, "(", &bracket);
    while (!e && comma && p->lexer.token.kind == LAR_TPL_TOKEN_NAME && !lar_tpl_parse_at(p, LAR_TPL_TOKEN_NAME, "in")) {
        if (t->count == TARGETS_MAX) return lar_tpl_parse_fail(p, "more than %d names to set at once", TARGETS_MAX);
        e = lar_tpl_parse_name(p, &t->names[t->count++]);
        if (!e) e = lar_tpl_parse_skip(p, LAR_TPL_TOKEN_OPERATOR, ",", &comma);
        t->unpack = t->unpack || comma;
    }
    if (!e && !t->count) return lar_tpl_parse_fail(p, "a name is missing");
    if (!e && bracket) e = lar_tpl_parse_skip(p, LAR_TPL_TOKEN_OPERATOR, ")", &closed);
    if (!e && bracket && !closed) return lar_tpl_parse_fail(p, ") is missing");
    return e;
}

/* The value on the stack goes into the names. */
static lar_error emit_targets(lar_tpl_parser *p, const targets *t) {
    lar_error e = t->unpack ? lar_tpl_emit(p, LAR_TPL_OP_UNPACK, (int32_t)t->count) : LAR_OK;
    for (uint32_t i = 0; !e && i < t->count; i++) e = lar_tpl_emit(p, LAR_TPL_OP_STORE, (int32_t)t->names[i]);
    return e;
}

/* `for x in xs if c`: a walk of its own makes the list of what the loop sees, so that loop.last is right. */
static lar_error emit_sift(lar_tpl_parser *p, const targets *t) {
    lar_error e = lar_tpl_parse_next(p);
    if (!e) e = lar_tpl_emit(p, LAR_TPL_OP_SIFT, 0);
    uint32_t next = p->t->code_count;
    if (!e) e = lar_tpl_emit(p, LAR_TPL_OP_SIFT_NEXT, 0);
    if (!e) e = emit_targets(p, t);
    if (!e) e = lar_tpl_parse_expr(p, LAR_TPL_EXPR_ONE);
    if (!e) e = lar_tpl_emit(p, LAR_TPL_OP_SIFT_KEEP, 0);
    if (!e) e = lar_tpl_emit(p, LAR_TPL_OP_JUMP, 0);
    if (e) return e;
    p->t->code[p->t->code_count - 1].a = (int32_t)next - (int32_t)p->t->code_count;
    lar_tpl_emit_land(p, next);
    return LAR_OK;
}

static lar_error tag_for(statements *s) {
    lar_tpl_parser *p = s->p;
    block *b;
    targets t = {.count = 0};
    lar_error e = open_block(s, BLOCK_FOR, &b);
    if (!e) e = parse_targets(p, &t);
    if (!e) e = lar_tpl_parse_expect(p, LAR_TPL_TOKEN_NAME, "in");
    if (!e) e = lar_tpl_parse_expr(p, LAR_TPL_EXPR_NO_IF);
    if (!e && lar_tpl_parse_at(p, LAR_TPL_TOKEN_NAME, "if")) e = emit_sift(p, &t);
    if (!e && lar_tpl_parse_at(p, LAR_TPL_TOKEN_NAME, "recursive"))
        return lar_tpl_parse_unknown(p, "the word", p->lexer.token.text);
    if (!e) e = lar_tpl_emit(p, LAR_TPL_OP_FOR, 0);
    if (e) return e;
    b->start = p->t->code_count;
    p->loops++;
    e = lar_tpl_emit(p, LAR_TPL_OP_NEXT, 0);
    if (!e) e = emit_targets(p, &t);
    return e ? e : tag_end(s);
}

static lar_error tag_endfor(statements *s) {
    lar_tpl_parser *p = s->p;
    block *b = innermost(s);
    if (!b || (b->kind != BLOCK_FOR && b->kind != BLOCK_FOR_ELSE)) return lar_tpl_parse_fail(p, "endfor without a for");
    lar_error e = LAR_OK;
    if (b->kind == BLOCK_FOR) e = end_body(s, b);
    if (!e && b->kind == BLOCK_FOR) e = lar_tpl_emit(p, LAR_TPL_OP_POP, 0);
    if (b->kind == BLOCK_FOR_ELSE) lar_tpl_emit_land(p, b->pending);
    close_block(s);
    return e ? e : tag_end(s);
}

static block *innermost_loop(statements *s) {
    for (uint32_t i = s->depth; i-- > 0;)
        if (s->stack[i].kind == BLOCK_FOR) return &s->stack[i];
    return NULL;
}

/* What captures output would be left open by a jump out of it. */
static bool captures_inside(statements *s, const block *loop) {
    for (const block *b = loop + 1; b < s->stack + s->depth; b++)
        if (b->kind == BLOCK_SET || b->kind == BLOCK_FILTER || b->kind == BLOCK_MACRO) return true;
    return false;
}

static lar_error tag_break_continue(statements *s, bool is_break) {
    block *loop = s->p->loops ? innermost_loop(s) : NULL;
    if (!loop) return lar_tpl_parse_fail(s->p, "break or continue outside of a loop");
    if (captures_inside(s, loop))
        return lar_tpl_parse_fail(s->p, "break or continue out of a set or filter block is not supported");
    lar_error e;
    if (is_break) {
        e = lar_tpl_emit(s->p, LAR_TPL_OP_LEAVE, 0);
        if (!e) e = emit_to_end(s, loop);
    } else {
        e = lar_tpl_emit(s->p, LAR_TPL_OP_JUMP, 0);
        if (!e) s->p->t->code[s->p->t->code_count - 1].a = (int32_t)loop->start - (int32_t)s->p->t->code_count;
    }
    return e ? e : tag_end(s);
}

static lar_error tag_break(statements *s) { return tag_break_continue(s, true); }
static lar_error tag_continue(statements *s) { return tag_break_continue(s, false); }

/* -- set, filter, macro, generation ------------------------------------------------------------------------------ */

static lar_error emit_store_attribute(lar_tpl_parser *p, uint32_t name, uint32_t attribute) {
    lar_error e = lar_tpl_emit(p, LAR_TPL_OP_STORE_ATTR, (int32_t)name);
    if (!e) p->t->code[p->t->code_count - 1].b = (int32_t)attribute;
    return e;
}

static lar_error open_set_block(statements *s, const targets *t, bool has_attribute, uint32_t attribute) {
    block *b;
    if (t->unpack) return lar_tpl_parse_fail(s->p, "= is missing");
    if (!lar_tpl_parse_at(s->p, LAR_TPL_TOKEN_TAG_END, NULL))
        return lar_tpl_parse_expect(s->p, LAR_TPL_TOKEN_OPERATOR, "=");
    lar_error e = open_block(s, BLOCK_SET, &b);
    if (e) return e;
    b->name = t->names[0];
    b->has_attribute = has_attribute;
    b->attribute = attribute;
    e = lar_tpl_emit(s->p, LAR_TPL_OP_CAPTURE, 0);
    return e ? e : tag_end(s);
}

static lar_error tag_set(statements *s) {
    lar_tpl_parser *p = s->p;
    targets t;
    bool dot = false, equals = false;
    uint32_t attribute = 0;
    lar_error e = parse_targets(p, &t);
    if (!e && !t.unpack) e = lar_tpl_parse_skip(p, LAR_TPL_TOKEN_OPERATOR, ".", &dot);
    if (!e && dot) e = lar_tpl_parse_name(p, &attribute);
    if (!e) e = lar_tpl_parse_skip(p, LAR_TPL_TOKEN_OPERATOR, "=", &equals);
    if (e) return e;
    if (!equals) return open_set_block(s, &t, dot, attribute);
    e = lar_tpl_parse_expr(p, LAR_TPL_EXPR_TUPLE);
    if (!e) e = dot ? emit_store_attribute(p, t.names[0], attribute) : emit_targets(p, &t);
    return e ? e : tag_end(s);
}

static lar_error tag_endset(statements *s) {
    block *b = innermost(s);
    if (!b || b->kind != BLOCK_SET) return lar_tpl_parse_fail(s->p, "endset without a set block");
    lar_error e = lar_tpl_emit(s->p, LAR_TPL_OP_CAPTURED, 0);
    if (!e && b->has_attribute) e = emit_store_attribute(s->p, b->name, b->attribute);
    else if (!e) e = lar_tpl_emit(s->p, LAR_TPL_OP_STORE, (int32_t)b->name);
    close_block(s);
    return e ? e : tag_end(s);
}

/* The filter's arguments are parsed where the block ends, since they are wanted on the stack there. */
static lar_error tag_filter(statements *s) {
    block *b;
    lar_tpl_parser *p = s->p;
    lar_error e = open_block(s, BLOCK_FILTER, &b);
    if (e) return e;
    b->filter = p->lexer;
    uint32_t code = p->t->code_count, constants = p->t->constant_count;
    e = lar_tpl_parse_filter(p); /* for its errors and its length */
    p->t->code_count = code;
    p->t->constant_count = constants;
    if (!e) e = lar_tpl_emit(p, LAR_TPL_OP_CAPTURE, 0);
    return e ? e : tag_end(s);
}

static lar_error tag_endfilter(statements *s) {
    lar_tpl_parser *p = s->p;
    block *b = innermost(s);
    if (!b || b->kind != BLOCK_FILTER) return lar_tpl_parse_fail(p, "endfilter without a filter");
    lar_error e = lar_tpl_emit(p, LAR_TPL_OP_CAPTURED, 0);
    lar_tpl_lexer here = p->lexer;
    p->lexer = b->filter;
    if (!e) e = lar_tpl_parse_filter(p);
    p->lexer = here;
    if (!e) e = lar_tpl_emit(p, LAR_TPL_OP_PRINT, 0);
    close_block(s);
    return e ? e : tag_end(s);
}

/* Default values are expressions of the macro's own scope: code at its begin, for parameters that were not given. */
static lar_error parse_parameters(lar_tpl_parser *p, lar_tpl_macro *m) {
    lar_error e = lar_tpl_parse_expect(p, LAR_TPL_TOKEN_OPERATOR, "(");
    while (!e && !lar_tpl_parse_at(p, LAR_TPL_TOKEN_OPERATOR, ")")) {
        if (m->count == LAR_TPL_PARAMETERS_MAX)
            return lar_tpl_parse_fail(p, "a macro with more than %d parameters", LAR_TPL_PARAMETERS_MAX);
        bool has_default = false;
        e = lar_tpl_parse_name(p, &m->parameters[m->count]);
        if (!e) e = lar_tpl_parse_skip(p, LAR_TPL_TOKEN_OPERATOR, "=", &has_default);
        if (!e && has_default) {
            uint32_t given = p->t->code_count;
            e = lar_tpl_emit(p, LAR_TPL_OP_GIVEN, 0);
            if (e) return e;
            p->t->code[given].b = (int32_t)m->count;
            e = lar_tpl_parse_expr(p, LAR_TPL_EXPR_ONE);
            if (!e) e = lar_tpl_emit(p, LAR_TPL_OP_STORE, (int32_t)m->parameters[m->count]);
            if (!e) lar_tpl_emit_land(p, given);
        }
        m->count++;
        if (!e && !lar_tpl_parse_at(p, LAR_TPL_TOKEN_OPERATOR, ")"))
            e = lar_tpl_parse_expect(p, LAR_TPL_TOKEN_OPERATOR, ",");
    }
    return e ? e : lar_tpl_parse_next(p);
}

static lar_error tag_macro(statements *s) {
    lar_tpl_parser *p = s->p;
    lar_template *t = p->t;
    block *b;
    void *items = t->macros;
    for (uint32_t i = 0; i < s->depth; i++)
        if (s->stack[i].kind != BLOCK_IF && s->stack[i].kind != BLOCK_ELSE && s->stack[i].kind != BLOCK_PLAIN)
            return lar_tpl_parse_fail(p, "a macro inside a loop, a macro or a set block is not supported");
    lar_error e = open_block(s, BLOCK_MACRO, &b);
    if (!e) e = grow(p, &items, t->macro_count, &t->macro_cap, sizeof *t->macros);
    if (e) return e;
    t->macros = items;
    lar_tpl_macro *m = &t->macros[t->macro_count];
    *m = (lar_tpl_macro){.count = 0};
    b->pending = t->code_count;
    e = lar_tpl_parse_name(p, &m->name);
    if (!e) e = lar_tpl_emit(p, LAR_TPL_OP_MACRO, 0);
    if (e) return e;
    t->code[b->pending].b = (int32_t)t->macro_count++;
    m->begin = t->code_count;
    p->in_macro = true;
    p->loops = 0;
    e = parse_parameters(p, m);
    return e ? e : tag_end(s);
}

static lar_error tag_endmacro(statements *s) {
    block *b = innermost(s);
    if (!b || b->kind != BLOCK_MACRO) return lar_tpl_parse_fail(s->p, "endmacro without a macro");
    lar_error e = lar_tpl_emit(s->p, LAR_TPL_OP_RETURN, 0);
    if (!e) lar_tpl_emit_land(s->p, b->pending);
    s->p->in_macro = false;
    close_block(s);
    return e ? e : tag_end(s);
}

/* Marks what an assistant wrote, for training; it prints what is in it. */
static lar_error tag_generation(statements *s) {
    block *b;
    lar_error e = open_block(s, BLOCK_PLAIN, &b);
    return e ? e : tag_end(s);
}

static lar_error tag_endgeneration(statements *s) {
    block *b = innermost(s);
    if (!b || b->kind != BLOCK_PLAIN) return lar_tpl_parse_fail(s->p, "endgeneration without generation");
    close_block(s);
    return tag_end(s);
}

/* -- the whole -------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    lar_error (*parse)(statements *s);
} tags[] = {
    {"if", tag_if},
    {"elif", tag_elif},
    {"else", tag_else},
    {"endif", tag_endif},
    {"for", tag_for},
    {"endfor", tag_endfor},
    {"break", tag_break},
    {"continue", tag_continue},
    {"set", tag_set},
    {"endset", tag_endset},
    {"filter", tag_filter},
    {"endfilter", tag_endfilter},
    {"macro", tag_macro},
    {"endmacro", tag_endmacro},
    {"generation", tag_generation},
    {"endgeneration", tag_endgeneration},
};

static lar_error parse_tag(statements *s) {
    lar_error e = lar_tpl_parse_next(s->p);
    if (e) return e;
    lar_slice name = s->p->lexer.token.text;
    if (s->p->lexer.token.kind != LAR_TPL_TOKEN_NAME) return lar_tpl_parse_fail(s->p, "the name of a tag is missing");
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (!lar_slice_eq_cstr(name, tags[i].name)) continue;
        e = lar_tpl_parse_next(s->p);
        return e ? e : tags[i].parse(s);
    }
    return lar_tpl_parse_unknown(s->p, "the tag", name);
}

static lar_error parse_all(statements *s) {
    lar_tpl_parser *p = s->p;
    lar_error e = lar_tpl_parse_next(p);
    while (!e && p->lexer.token.kind != LAR_TPL_TOKEN_END) {
        if (p->lexer.token.kind == LAR_TPL_TOKEN_TEXT) {
            lar_tpl text;
            e = lar_tpl_string_of(&p->work, p->lexer.token.text, LAR_TEMPLATE_OWN, &text);
            if (!e) e = lar_tpl_emit_constant(p, LAR_TPL_OP_TEXT, text);
            if (!e) e = lar_tpl_parse_next(p);
        } else if (p->lexer.token.kind == LAR_TPL_TOKEN_PRINT) {
            e = lar_tpl_parse_next(p);
            if (!e) e = lar_tpl_parse_expr(p, LAR_TPL_EXPR_TUPLE);
            if (!e) e = lar_tpl_emit(p, LAR_TPL_OP_PRINT, 0);
            if (!e) e = lar_tpl_parse_expect(p, LAR_TPL_TOKEN_PRINT_END, NULL);
        } else {
            e = parse_tag(s);
        }
    }
    if (!e && s->depth) {
        p->lexer.token.at = s->stack[s->depth - 1].at;
        return lar_tpl_parse_fail(p, "this block is never closed");
    }
    return e ? e : lar_tpl_emit(p, LAR_TPL_OP_END, 0);
}

/* Whatever is called is a macro of this template. */
static lar_error check_calls(lar_tpl_parser *p) {
    for (uint32_t i = 0; i < p->t->code_count; i++) {
        lar_tpl_code c = p->t->code[i];
        bool found = c.op != LAR_TPL_OP_CALL;
        for (uint32_t m = 0; m < p->t->macro_count && !found; m++) found = p->t->macros[m].name == (uint32_t)c.a;
        if (found) continue;
        p->lexer.token.at = c.at;
        return lar_tpl_parse_unknown(p, "the function", p->t->names[c.a]);
    }
    return LAR_OK;
}

/* A copy with LF at the end of every line and without the last one's, as Jinja reads it. */
static lar_error copy_source(lar_template *t, lar_slice source, lar_diag *d) {
    if (source.len > LAR_TEMPLATE_SOURCE_BYTES_MAX)
        return lar_fail(LAR_LIMIT, d, "a template of %zu bytes; at most %u are read", source.len,
                        LAR_TEMPLATE_SOURCE_BYTES_MAX);
    if (!lar_tpl_is_utf8(source)) return lar_fail(LAR_INVALID, d, "the template is not UTF-8");
    char *p = lar_arena_alloc(&t->arena, source.len + 1);
    if (!p) return lar_fail(LAR_NO_MEMORY, d, "no memory for the template");
    size_t n = 0;
    for (size_t i = 0; i < source.len; i++) {
        if (source.ptr[i] == '\r' && i + 1 < source.len && source.ptr[i + 1] == '\n') continue;
        p[n++] = source.ptr[i] == '\r' ? '\n' : source.ptr[i];
    }
    if (n && p[n - 1] == '\n') n--;
    t->source = lar_slice_of(p, n);
    return LAR_OK;
}

lar_error lar_template_parse(lar_slice source, lar_template **out, lar_diag *d) {
    *out = NULL;
    lar_template *t = calloc(1, sizeof *t);
    if (!t) return lar_fail(LAR_NO_MEMORY, d, "no memory for the template");
    lar_arena_init(&t->arena, ARENA_BYTES_MAX);
    lar_error e = copy_source(t, source, d);
    if (!e) {
        lar_tpl_parser p = {.t = t};
        p.work = (lar_tpl_work){
            .arena = &t->arena, .steps = UINT64_MAX, .diag = d, .source = t->source, .output_max = UINT32_MAX / 2};
        p.lexer.w = &p.work;
        statements s = {.p = &p};
        e = parse_all(&s);
        if (!e) e = check_calls(&p);
    }
    if (!e) *out = t;
    else lar_template_free(t);
    return e;
}

void lar_template_free(lar_template *t) {
    if (!t) return;
    lar_arena_release(&t->arena);
    free(t);
}

bool lar_template_reads(const lar_template *t, const char *name) {
    for (uint32_t i = 0; i < t->name_count; i++)
        if (lar_slice_eq_cstr(t->names[i], name)) return t->is_read[i];
    return false;
}
