/* Values of a template's run, inside engine/text: what kinds there are, strings that know who wrote each byte, and
 * making and comparing them. All memory is an arena's; a value is 16 bytes and is passed by copy. */
#ifndef LARDER_ENGINE_TEXT_TEMPLATE_VALUE_H
#define LARDER_ENGINE_TEXT_TEMPLATE_VALUE_H

#include "base/arena.h"
#include "engine/text/template.h"

typedef enum lar_tpl_kind {
    LAR_TPL_UNDEFINED, /* as.name: what was undefined, for messages; may be NULL */
    LAR_TPL_NONE,
    LAR_TPL_BOOL,
    LAR_TPL_INT,
    LAR_TPL_BIG, /* an integer outside 64 bits: as.string is its text */
    LAR_TPL_FLOAT,
    LAR_TPL_STRING,
    LAR_TPL_LIST,
    LAR_TPL_TUPLE,
    LAR_TPL_DICT,
    LAR_TPL_NAMESPACE,
    LAR_TPL_LOOP,   /* the variable `loop`: as.index is the frame's number */
    LAR_TPL_MACRO,  /* as.index is the macro's number */
    LAR_TPL_METHOD, /* a method that was not called */
} lar_tpl_kind;

typedef struct lar_tpl_string lar_tpl_string;
typedef struct lar_tpl_list lar_tpl_list;
typedef struct lar_tpl_dict lar_tpl_dict;

typedef struct lar_tpl {
    uint8_t kind;
    uint8_t origin; /* of scalars, lists and dicts; strings have their own */
    union {
        bool truth;
        int64_t integer;
        double real;
        uint32_t index;
        const char *name;
        const lar_tpl_string *string;
        lar_tpl_list *list; /* LIST and TUPLE */
        lar_tpl_dict *dict; /* DICT and NAMESPACE */
    } as;
} lar_tpl;

/* Bytes from the end of the run before, up to `end`, have one origin. */
typedef lar_template_span lar_tpl_run;

/* Immutable. A string of one origin has run_count 0 and `origin`. UTF-8 always. */
struct lar_tpl_string {
    const char *ptr;
    uint32_t len;
    uint32_t run_count;
    const lar_tpl_run *runs;
    lar_template_origin origin;
};

struct lar_tpl_list {
    lar_tpl *items;
    uint32_t count, cap;
    bool given; /* part of the values: never changed */
};

/* In order of insertion; items are key, value, key, value. */
struct lar_tpl_dict {
    lar_tpl *items;
    uint32_t count, cap; /* members */
};

/* What works on values needs: memory, a budget of steps, where to say what went wrong. */
typedef struct lar_tpl_work {
    lar_arena *arena;
    uint64_t steps;   /* left */
    lar_diag *diag;   /* may be NULL */
    lar_slice source; /* of the template, for lines and columns; empty: none are told */
    uint32_t at;      /* offset in `source` of what is under way */
    int64_t now;
    bool has_now;
    size_t output_max; /* of any string that is built */
} lar_tpl_work;

#define LAR_TPL_NESTED_MAX 80 /* levels that printing and comparing visit; JSON has at most 64 */

/* Says where and what; returns `e`. */
lar_error lar_tpl_fail(lar_tpl_work *w, lar_error e, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Takes steps for `bytes` visited bytes. LIMIT when there are none left. */
LAR_MUST_USE lar_error lar_tpl_pay(lar_tpl_work *w, uint64_t steps);
/* NULL after lar_tpl_no_memory's error should be returned. */
void *lar_tpl_alloc(lar_tpl_work *w, size_t bytes);
lar_error lar_tpl_no_memory(lar_tpl_work *w);

static inline lar_tpl lar_tpl_none(void) { return (lar_tpl){.kind = LAR_TPL_NONE}; }
static inline lar_tpl lar_tpl_undefined(const char *name) {
    return (lar_tpl){.kind = LAR_TPL_UNDEFINED, .as.name = name};
}
static inline lar_tpl lar_tpl_bool(bool b) { return (lar_tpl){.kind = LAR_TPL_BOOL, .as.truth = b}; }
static inline lar_tpl lar_tpl_int(int64_t i) { return (lar_tpl){.kind = LAR_TPL_INT, .as.integer = i}; }
static inline lar_tpl lar_tpl_float(double f) { return (lar_tpl){.kind = LAR_TPL_FLOAT, .as.real = f}; }
static inline bool lar_tpl_is_list(lar_tpl v) { return v.kind == LAR_TPL_LIST || v.kind == LAR_TPL_TUPLE; }
static inline lar_slice lar_tpl_slice(lar_tpl v) { return lar_slice_of(v.as.string->ptr, v.as.string->len); }

/* "list", "undefined": for messages. */
const char *lar_tpl_kind_name(lar_tpl v);
bool lar_tpl_truth(lar_tpl v);

/* -- strings ------------------------------------------------------------------------------------------ */

/* A string of one origin over bytes that live as long as the arena (or are static); not copied. */
LAR_MUST_USE lar_error lar_tpl_string_of(lar_tpl_work *w, lar_slice bytes, lar_template_origin origin, lar_tpl *out);
/* Bytes [from, to) of a string, sharing them. */
LAR_MUST_USE lar_error lar_tpl_string_cut(lar_tpl_work *w, const lar_tpl_string *s, uint32_t from, uint32_t to,
                                          lar_tpl *out);
/* Code points in the string. */
uint64_t lar_tpl_string_points(const lar_tpl_string *s);
/* Offset of code point number `n`; the length when there are fewer. */
uint32_t lar_tpl_string_offset(const lar_tpl_string *s, uint64_t n);

/* A string under construction. Zero-initialised but for `w`. */
typedef struct lar_tpl_out {
    lar_tpl_work *w;
    char *ptr;
    uint32_t len, cap;
    lar_tpl_run *runs;
    uint32_t run_count, run_cap;
} lar_tpl_out;

LAR_MUST_USE lar_error lar_tpl_out_add(lar_tpl_out *o, const char *bytes, size_t len, lar_template_origin origin);
/* Bytes [from, to) of a string, with their origins. */
LAR_MUST_USE lar_error lar_tpl_out_cut(lar_tpl_out *o, const lar_tpl_string *s, uint32_t from, uint32_t to);
LAR_MUST_USE lar_error lar_tpl_out_string(lar_tpl_out *o, const lar_tpl_string *s);
/* The value as Python's str() gives it; undefined is nothing. */
LAR_MUST_USE lar_error lar_tpl_out_value(lar_tpl_out *o, lar_tpl v);
LAR_MUST_USE lar_error lar_tpl_out_finish(lar_tpl_out *o, lar_tpl *string);
/* The value as a string: itself if it is one. */
LAR_MUST_USE lar_error lar_tpl_to_string(lar_tpl_work *w, lar_tpl v, lar_tpl *string);

/* -- lists and dicts ----------------------------------------------------------------------------------- */

/* An empty list or tuple with room for `cap`. */
LAR_MUST_USE lar_error lar_tpl_list_new(lar_tpl_work *w, lar_tpl_kind kind, uint32_t cap, lar_tpl *out);
LAR_MUST_USE lar_error lar_tpl_list_add(lar_tpl_work *w, lar_tpl_list *l, lar_tpl v);
LAR_MUST_USE lar_error lar_tpl_dict_new(lar_tpl_work *w, lar_tpl_kind kind, uint32_t cap, lar_tpl *out);
/* Adds or replaces. */
LAR_MUST_USE lar_error lar_tpl_dict_set(lar_tpl_work *w, lar_tpl_dict *d, lar_tpl key, lar_tpl v);
/* NULL if absent. */
lar_tpl *lar_tpl_dict_find(lar_tpl_work *w, const lar_tpl_dict *d, lar_slice key);
lar_tpl *lar_tpl_dict_find_key(lar_tpl_work *w, const lar_tpl_dict *d, lar_tpl key);
/* What `for` visits: elements, keys, characters; undefined is empty. *list is LIST or TUPLE. INVALID for the rest. */
LAR_MUST_USE lar_error lar_tpl_to_list(lar_tpl_work *w, lar_tpl v, lar_tpl *list);
/* Elements of a list, members of a dict, code points of a string; 0 for undefined. INVALID for the rest. */
LAR_MUST_USE lar_error lar_tpl_length(lar_tpl_work *w, lar_tpl v, uint64_t *n);
/* A dict as a list of (key, value). */
LAR_MUST_USE lar_error lar_tpl_items(lar_tpl_work *w, lar_tpl dict, lar_tpl *list);

/* -- comparing (template_compare.c) --------------------------------------------------------------------- */

LAR_MUST_USE lar_error lar_tpl_equal(lar_tpl_work *w, lar_tpl a, lar_tpl b, bool *equal);
/* < 0, 0, > 0. INVALID if Python would not compare them. */
LAR_MUST_USE lar_error lar_tpl_order(lar_tpl_work *w, lar_tpl a, lar_tpl b, int *order);
/* `needle in hay`. */
LAR_MUST_USE lar_error lar_tpl_contains(lar_tpl_work *w, lar_tpl hay, lar_tpl needle, bool *found);

/* -- JSON (template_print.c) ------------------------------------------------------------------------------ */

typedef struct lar_tpl_json_form {
    int64_t indent; /* -1: one line */
    bool ascii, sorted;
    lar_slice item_separator, key_separator;
} lar_tpl_json_form;

/* As Python's json.dumps. */
LAR_MUST_USE lar_error lar_tpl_to_json(lar_tpl_out *o, lar_tpl v, const lar_tpl_json_form *form);

/* The end of the string that begins at `p`, when that is white space to Python; NULL otherwise. */
static inline const char *lar_tpl_space(const char *p, const char *end) {
    unsigned char c = (unsigned char)*p;
    if (c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f)) return p + 1;
    if (c < 0x80 || end - p < 2) return NULL;
    unsigned char d = (unsigned char)p[1];
    if (c == 0xC2) return d == 0x85 || d == 0xA0 ? p + 2 : NULL;
    if (end - p < 3) return NULL;
    unsigned code = (unsigned)(c & 15) << 12 | (unsigned)(d & 63) << 6 | ((unsigned char)p[2] & 63);
    if (c < 0xE1 || c > 0xE3) return NULL;
    bool space = code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
                 code == 0x202f || code == 0x205f || code == 0x3000;
    return space ? p + 3 : NULL;
}

#endif
