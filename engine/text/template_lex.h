/* Tokens of a template, inside engine/text. White space control happens here: what the parser gets as text is what is
 * printed. */
#ifndef LARDER_ENGINE_TEXT_TEMPLATE_LEX_H
#define LARDER_ENGINE_TEXT_TEMPLATE_LEX_H

#include "engine/text/template_value.h"

typedef enum lar_tpl_token_kind {
    LAR_TPL_TOKEN_END,
    LAR_TPL_TOKEN_TEXT,      /* text: what is printed */
    LAR_TPL_TOKEN_TAG,       /* {% */
    LAR_TPL_TOKEN_TAG_END,   /* %} */
    LAR_TPL_TOKEN_PRINT,     /* {{ */
    LAR_TPL_TOKEN_PRINT_END, /* }} */
    LAR_TPL_TOKEN_NAME,
    LAR_TPL_TOKEN_STRING, /* text: without quotes, escapes as written */
    LAR_TPL_TOKEN_INTEGER,
    LAR_TPL_TOKEN_FLOAT,
    LAR_TPL_TOKEN_OPERATOR, /* text: the longest of those there are */
} lar_tpl_token_kind;

typedef struct lar_tpl_token {
    lar_tpl_token_kind kind;
    lar_slice text; /* in the source */
    uint32_t at;
} lar_tpl_token;

/* Zero-initialised but for `w`, whose source it reads (one line end is CR LF, CR or LF no more: LF). */
typedef struct lar_tpl_lexer {
    lar_tpl_work *w;
    uint32_t at;
    bool inside;         /* a tag or an expression */
    bool is_tag;         /* which */
    uint32_t open;       /* brackets */
    bool trim;           /* the next text loses its leading white space */
    bool trim_line;      /* or one line end */
    lar_tpl_token token; /* the current one */
} lar_tpl_lexer;

/* Moves to the next token. INVALID for what begins none. */
LAR_MUST_USE lar_error lar_tpl_lex(lar_tpl_lexer *l);
/* A string token's value, allocated. INVALID for an escape that Python does not know how to read. */
LAR_MUST_USE lar_error lar_tpl_lex_string(lar_tpl_lexer *l, lar_slice raw, lar_slice *out);

#endif
