/* The regular expressions by which tokenizers cut text into pieces: compiled to a table once, then matched in one pass.
 *
 * What is understood, in the meaning of Oniguruma (the reference's engine): literal characters, . [...] [^...] with
 * ranges, nested classes and && , \p{..} \P{..} \p{^..} (general categories, Han, White_Space), \s \S \d \D \n \r \t \f
 * \v \xHH \x{..} \uHHHH, groups (...) and (?:...), (?i:...) around letters of ASCII, |, the greedy ? * + {n} {n,}
 * {n,m}, and the look-ahead at one character: (?=X) (?!X) and $. All else is refused with its place in the pattern.
 * The first alternative that matches wins, as with a backtracking engine, but the time grows only with the text. */
#ifndef LARDER_ENGINE_TEXT_REGEX_H
#define LARDER_ENGINE_TEXT_REGEX_H

#include "engine/text/unicode_sets.h"

enum {
    LAR_REGEX_BYTES = 4096, /* of a pattern */
    LAR_REGEX_NODES = 2048,
    LAR_REGEX_SETS = 64,
    LAR_REGEX_STATES = 2048,
    LAR_REGEX_CELLS = 1 << 16 /* states x classes */
};

typedef struct lar_regex lar_regex;

/* INVALID with the reason and the place (counted in bytes) in `d`, also where the pattern matches the empty text;
 * LIMIT where it is too complicated; NO_MEMORY. The caller frees. */
LAR_MUST_USE lar_error lar_regex_new(lar_slice pattern, lar_regex **out, lar_diag *d);
void lar_regex_free(lar_regex *r);

/* Where the last run led nowhere, so that no run goes there again: without it a pattern like \s+$ would look at a long
 * run of blanks once from each of them. `state` 0 for each text. A search ends without a match once `work`, the bytes
 * looked at, is over work_max. */
typedef struct lar_regex_memo {
    uint32_t state; /* from `first` to `last` in this state no match ends any more; 0: nothing known */
    size_t first, last;
    uint64_t work, work_max;
} lar_regex_memo;

/* Bytes of a text: first up to end. */
typedef struct lar_regex_range {
    size_t first, end;
} lar_regex_range;

/* The first match within `in`: true with its bytes. A byte that is not part of valid UTF-8 is one character without any
 * property. */
bool lar_regex_find(const lar_regex *r, const char *text, lar_regex_range in, lar_regex_memo *memo,
                    lar_regex_range *found);

/* -- the parts of the compiler: regex_class.c, regex_parse.c, regex_table.c ---------------------------------------- */

typedef struct lar_regex_source {
    lar_slice text;
    size_t at;
    lar_diag *diag;
} lar_regex_source;

/* Fills the diagnosis with the place `at` and returns INVALID. */
lar_error lar_regex_refuse(const lar_regex_source *s, size_t at, const char *what);
/* The character at s->at (not at the end); moves behind it. */
LAR_MUST_USE lar_error lar_regex_char(lar_regex_source *s, uint32_t *code);
/* Adds what the escape at s->at (on its backslash) stands for to `set`; *single is its character, LAR_CODES where it
 * is a set. */
LAR_MUST_USE lar_error lar_regex_escape(lar_regex_source *s, lar_codeset *set, uint32_t *single);
/* Adds the class at s->at (on its '['). */
LAR_MUST_USE lar_error lar_regex_class(lar_regex_source *s, lar_codeset *set);

typedef enum lar_regex_kind {
    LAR_REGEX_SET,   /* one character of the set, then `next` */
    LAR_REGEX_SPLIT, /* `next`, and where that fails `other` */
    LAR_REGEX_PASS,  /* `next` */
    LAR_REGEX_LOOK,  /* the next character is of the set (at the end of the text: `at_end`), then `next` */
    LAR_REGEX_MATCH
} lar_regex_kind;

typedef struct lar_regex_node {
    uint8_t kind;
    bool at_end;
    uint16_t set, next, other;
} lar_regex_node;

/* A pattern as nodes; embedded, zero-initialised. */
typedef struct lar_regex_graph {
    lar_regex_node nodes[LAR_REGEX_NODES];
    uint32_t node_count;
    uint16_t start;
    lar_codeset sets[LAR_REGEX_SETS];
    uint32_t set_count;
} lar_regex_graph;

void lar_regex_graph_release(lar_regex_graph *g);
LAR_MUST_USE lar_error lar_regex_parse(lar_slice pattern, lar_regex_graph *g, lar_diag *d);

#endif
