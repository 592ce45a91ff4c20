/* The parser's state, inside engine/text: statements (template_parse.c) and expressions (template_expr.c) share it. */
#ifndef LARDER_ENGINE_TEXT_TEMPLATE_PARSE_H
#define LARDER_ENGINE_TEXT_TEMPLATE_PARSE_H

#include "engine/text/template_lex.h"
#include "engine/text/template_run.h"

/* Blocks within blocks, and brackets within brackets of one expression. The parser of expressions calls itself, no
 * deeper than this: about 15 frames of some hundred bytes each for every level. */
#define LAR_TPL_PARSE_DEPTH_MAX 64

typedef struct lar_tpl_parser {
    lar_tpl_work work; /* memory, the source, where an error is told */
    lar_tpl_lexer lexer;
    lar_template *t;
    uint32_t depth; /* of the expression */
    uint32_t loops; /* of the block, for break and continue */
    bool in_macro;
} lar_tpl_parser;

lar_error lar_tpl_parse_fail(lar_tpl_parser *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "the filter 'x'": what is unknown, at the current token. */
lar_error lar_tpl_parse_unknown(lar_tpl_parser *p, const char *what, lar_slice name);
LAR_MUST_USE lar_error lar_tpl_parse_next(lar_tpl_parser *p);
bool lar_tpl_parse_at(const lar_tpl_parser *p, lar_tpl_token_kind kind, const char *text);
/* Takes the token if it is that one. */
LAR_MUST_USE lar_error lar_tpl_parse_skip(lar_tpl_parser *p, lar_tpl_token_kind kind, const char *text, bool *found);
/* Likewise; INVALID if it is another. */
LAR_MUST_USE lar_error lar_tpl_parse_expect(lar_tpl_parser *p, lar_tpl_token_kind kind, const char *text);
/* A name that is no word of the language. */
LAR_MUST_USE lar_error lar_tpl_parse_name(lar_tpl_parser *p, uint32_t *name);

LAR_MUST_USE lar_error lar_tpl_emit(lar_tpl_parser *p, lar_tpl_op op, int32_t a);
LAR_MUST_USE lar_error lar_tpl_emit_constant(lar_tpl_parser *p, lar_tpl_op op, lar_tpl value);
/* Lets the jump at instruction `from` lead to the next instruction that is emitted. */
void lar_tpl_emit_land(lar_tpl_parser *p, uint32_t from);
LAR_MUST_USE lar_error lar_tpl_intern(lar_tpl_parser *p, lar_slice name, uint32_t *number);

/* An expression; its value is on the stack. A tuple without brackets: LAR_TPL_EXPR_TUPLE. Without `if`: it ends
 * there. */
typedef enum lar_tpl_expr_form { LAR_TPL_EXPR_ONE, LAR_TPL_EXPR_TUPLE, LAR_TPL_EXPR_NO_IF } lar_tpl_expr_form;
LAR_MUST_USE lar_error lar_tpl_parse_expr(lar_tpl_parser *p, lar_tpl_expr_form form);
/* What stands behind a `|`: a filter with its arguments, applied to the top of the stack. */
LAR_MUST_USE lar_error lar_tpl_parse_filter(lar_tpl_parser *p);

#endif
