/* The parsed template: instructions of a stack machine, inside engine/text. The parser writes them, template_run.c
 * executes them. Expressions leave their value on the stack; jumps are relative, so that code can be moved. */
#ifndef LARDER_ENGINE_TEXT_TEMPLATE_RUN_H
#define LARDER_ENGINE_TEXT_TEMPLATE_RUN_H

#include "engine/text/template_value.h"

typedef enum lar_tpl_op {
    LAR_TPL_OP_CONST,      /* push constant a */
    LAR_TPL_OP_LOAD,       /* push variable named a */
    LAR_TPL_OP_STORE,      /* pop into variable a of the innermost scope */
    LAR_TPL_OP_STORE_ATTR, /* pop into attribute b of namespace a */
    LAR_TPL_OP_UNPACK,     /* pop a list of exactly a, push its elements, the first on top */
    LAR_TPL_OP_PRINT,      /* pop, append to the output */
    LAR_TPL_OP_TEXT,       /* append constant a */
    LAR_TPL_OP_POP,
    LAR_TPL_OP_BINARY, /* a: lar_tpl_binary; pop two, push one */
    LAR_TPL_OP_NOT,
    LAR_TPL_OP_NEGATE,
    LAR_TPL_OP_PLUS,
    LAR_TPL_OP_JUMP,       /* a: signed distance, from the next instruction */
    LAR_TPL_OP_JUMP_FALSE, /* pop; jump if it is false */
    LAR_TPL_OP_AND,        /* keep and jump if the top is false, else pop */
    LAR_TPL_OP_OR,         /* keep and jump if the top is true, else pop */
    LAR_TPL_OP_ATTR,       /* pop x, push x.a */
    LAR_TPL_OP_ITEM,       /* pop i, x; push x[i] */
    LAR_TPL_OP_SLICE,      /* pop step, stop, start, x (none: absent) */
    LAR_TPL_OP_LIST,       /* pop a values */
    LAR_TPL_OP_TUPLE,
    LAR_TPL_OP_DICT,      /* pop a pairs */
    LAR_TPL_OP_FILTER,    /* a: lar_tpl_filter; arguments as below */
    LAR_TPL_OP_TEST,      /* a: lar_tpl_test */
    LAR_TPL_OP_METHOD,    /* a: lar_tpl_method */
    LAR_TPL_OP_FUNCTION,  /* a: lar_tpl_function */
    LAR_TPL_OP_CALL,      /* a: name of a macro */
    LAR_TPL_OP_MACRO,     /* define macro b; jump a over its body */
    LAR_TPL_OP_GIVEN,     /* jump a if parameter b was given */
    LAR_TPL_OP_RETURN,    /* the end of a macro's body */
    LAR_TPL_OP_CAPTURE,   /* output goes to a new string */
    LAR_TPL_OP_CAPTURED,  /* and that string to the stack */
    LAR_TPL_OP_FOR,       /* pop what to walk through, begin a loop */
    LAR_TPL_OP_NEXT,      /* push the next element; at the end drop the loop, push "no turn was finished", jump a */
    LAR_TPL_OP_AGAIN,     /* a turn was finished; jump a */
    LAR_TPL_OP_LEAVE,     /* drop the loop, push "no turn was finished" (break) */
    LAR_TPL_OP_SIFT,      /* pop what to walk through, begin the walk of a loop's `if` */
    LAR_TPL_OP_SIFT_NEXT, /* push the next element; at the end push the list of kept ones, jump a */
    LAR_TPL_OP_SIFT_KEEP, /* pop; keep the element if it is true */
    LAR_TPL_OP_END,
} lar_tpl_op;

typedef enum lar_tpl_binary {
    LAR_TPL_ADD,
    LAR_TPL_SUB,
    LAR_TPL_MUL,
    LAR_TPL_DIV,
    LAR_TPL_FLOORDIV,
    LAR_TPL_MOD,
    LAR_TPL_POW,
    LAR_TPL_JOIN, /* ~ */
    LAR_TPL_EQ,
    LAR_TPL_NE,
    LAR_TPL_LT,
    LAR_TPL_LE,
    LAR_TPL_GT,
    LAR_TPL_GE,
    LAR_TPL_IN,
    LAR_TPL_NOT_IN,
} lar_tpl_binary;

/* A row of template.def; two names may share an id. */
typedef struct lar_tpl_row {
    const char *name;
    uint8_t id, least, most;
} lar_tpl_row;

typedef enum lar_tpl_filter {
#define TPL_FILTER(name, id, least, most) LAR_TPL_FILTER_##id,
#include "engine/text/template.def"
} lar_tpl_filter;

typedef enum lar_tpl_test {
#define TPL_TEST(name, id, least, most) LAR_TPL_TEST_##id,
#include "engine/text/template.def"
} lar_tpl_test;

typedef enum lar_tpl_method {
#define TPL_METHOD(name, id, least, most) LAR_TPL_METHOD_##id,
#include "engine/text/template.def"
} lar_tpl_method;

typedef enum lar_tpl_function {
#define TPL_FUNCTION(name, id, least, most) LAR_TPL_FUNCTION_##id,
#include "engine/text/template.def"
} lar_tpl_function;

/* NULL if the name is unknown. */
const lar_tpl_row *lar_tpl_find_filter(lar_slice name);
const lar_tpl_row *lar_tpl_find_test(lar_slice name);
const lar_tpl_row *lar_tpl_find_method(lar_slice name);
const lar_tpl_row *lar_tpl_find_function(lar_slice name);
/* True for the attributes of `loop`. */
bool lar_tpl_is_loop_attribute(lar_slice name);

/* Of FILTER, TEST, METHOD, FUNCTION, CALL: on the stack lie the subject (filter, test, method), `positional` values and
 * `named` pairs of name and value. */
typedef struct lar_tpl_code {
    uint8_t op;
    uint8_t positional, named;
    int32_t a, b;
    uint32_t at; /* offset in the source */
} lar_tpl_code;

#define LAR_TPL_PARAMETERS_MAX 16

typedef struct lar_tpl_macro {
    uint32_t name;
    uint32_t begin; /* its first instruction */
    uint32_t count;
    uint32_t parameters[LAR_TPL_PARAMETERS_MAX]; /* names */
} lar_tpl_macro;

struct lar_template {
    lar_arena arena; /* everything below */
    lar_slice source;
    lar_tpl_code *code;
    lar_tpl *constants;
    lar_slice *names;
    bool *is_read; /* by name: read before anything else could have set it */
    lar_tpl_macro *macros;
    uint32_t code_count, constant_count, name_count, macro_count;
    uint32_t code_cap, constant_cap, name_cap, macro_cap;
};

#define LAR_TPL_VARIABLES_MAX 64

struct lar_template_values {
    lar_arena arena;
    lar_tpl_work work;
    const char *names[LAR_TPL_VARIABLES_MAX];
    lar_tpl values[LAR_TPL_VARIABLES_MAX];
    uint32_t count;
};

/* Arguments of one call. */
typedef struct lar_tpl_call {
    lar_tpl subject;
    const lar_tpl *positional;
    uint32_t positional_count;
    const lar_tpl *named; /* name, value, name, value */
    uint32_t named_count;
} lar_tpl_call;

/* The argument at `position` or named `name`; NULL if it was not given. */
const lar_tpl *lar_tpl_argument(const lar_tpl_call *c, uint32_t position, const char *name);
/* INVALID if a name was given that is none of `names` (ended by NULL). */
LAR_MUST_USE lar_error lar_tpl_check_names(lar_tpl_work *w, const lar_tpl_call *c, const char *const *names);

LAR_MUST_USE lar_error lar_tpl_filter_call(lar_tpl_work *w, lar_tpl_filter id, const lar_tpl_call *c, lar_tpl *out);
LAR_MUST_USE lar_error lar_tpl_test_call(lar_tpl_work *w, lar_tpl_test id, const lar_tpl_call *c, bool *out);
LAR_MUST_USE lar_error lar_tpl_method_call(lar_tpl_work *w, lar_tpl_method id, const lar_tpl_call *c, lar_tpl *out);
LAR_MUST_USE lar_error lar_tpl_function_call(lar_tpl_work *w, lar_tpl_function id, const lar_tpl_call *c, lar_tpl *out);
LAR_MUST_USE lar_error lar_tpl_binary_op(lar_tpl_work *w, lar_tpl_binary op, lar_tpl a, lar_tpl b, lar_tpl *out);
/* x.name and x[name] of everything but `loop`: undefined if there is none. */
LAR_MUST_USE lar_error lar_tpl_attribute(lar_tpl_work *w, lar_tpl x, lar_slice name, lar_tpl *out);
LAR_MUST_USE lar_error lar_tpl_item(lar_tpl_work *w, lar_tpl x, lar_tpl i, lar_tpl *out);
/* bounds: start, stop, step; NONE is absent. */
LAR_MUST_USE lar_error lar_tpl_cut(lar_tpl_work *w, lar_tpl x, const lar_tpl bounds[3], lar_tpl *out);

/* Shared by filters and methods of one name. */
typedef enum lar_tpl_case { LAR_TPL_UPPER, LAR_TPL_LOWER, LAR_TPL_CAPITALIZE, LAR_TPL_TITLE } lar_tpl_case;
typedef enum lar_tpl_side { LAR_TPL_LEFT = 1, LAR_TPL_RIGHT = 2, LAR_TPL_BOTH = 3 } lar_tpl_side;
LAR_MUST_USE lar_error lar_tpl_recase(lar_tpl_work *w, const lar_tpl_string *s, lar_tpl_case how, lar_tpl *out);
/* chars NULL: white space. */
LAR_MUST_USE lar_error lar_tpl_strip(lar_tpl_work *w, const lar_tpl_string *s, const lar_tpl *chars, lar_tpl_side side,
                                     lar_tpl *out);
/* what[0] by what[1], at most `most` times; -1: all. */
LAR_MUST_USE lar_error lar_tpl_replace(lar_tpl_work *w, const lar_tpl_string *s, const lar_tpl what[2], int64_t most,
                                       lar_tpl *out);
LAR_MUST_USE lar_error lar_tpl_join(lar_tpl_work *w, lar_tpl list, const lar_tpl *separator, lar_tpl *out);

bool lar_tpl_is_utf8(lar_slice s);

#endif
