/* Pre-tokenisation: a text is cut into pieces, and only within a piece are tokens merged. */
#ifndef LARDER_ENGINE_TEXT_PRETOKEN_H
#define LARDER_ENGINE_TEXT_PRETOKEN_H

#include "engine/text/regex.h"

enum { LAR_PRETOKEN_STEPS = 12 };

/* Embedded, zero-initialised; owns its expressions. Immutable once every step is added. Each step cuts the pieces of
 * the one before it: a match is a piece, and so is what lies between two matches. No step: the text is one piece. */
typedef struct lar_pretoken {
    lar_regex *steps[LAR_PRETOKEN_STEPS];
    uint32_t count;
} lar_pretoken;

void lar_pretoken_release(lar_pretoken *p);
/* As lar_regex_new; LIMIT also where there are too many steps. */
LAR_MUST_USE lar_error lar_pretoken_add(lar_pretoken *p, lar_slice pattern, lar_diag *d);
/* The steps that llama.cpp's name of a family stands for ("deepseek-v3"); INVALID names the supported ones. */
LAR_MUST_USE lar_error lar_pretoken_add_family(lar_pretoken *p, lar_slice name, lar_diag *d);
/* GPT-2's own expression, which ByteLevel applies where it is told use_regex. */
extern const char lar_pretoken_gpt2[];

/* A walk over the pieces of one text. Embedded; borrows the steps and the text. */
typedef struct lar_pieces {
    const lar_pretoken *steps;
    const char *text;
    struct {
        size_t at, end;          /* what is left of the piece that this step cuts */
        size_t match, match_end; /* found behind a gap and not yet given out, where match < match_end */
        lar_regex_memo memo;
    } level[LAR_PRETOKEN_STEPS + 1];
    uint32_t depth; /* the step that gives out next; steps->count: the piece itself */
} lar_pieces;

/* The pieces of text[from, end). */
void lar_pieces_init(lar_pieces *w, const lar_pretoken *steps, lar_slice text, size_t from, size_t end);
/* The next piece, never empty; *more false at the end. LIMIT where a pattern looks at the text far too often: only one
 * that no known tokenizer has does. */
LAR_MUST_USE lar_error lar_pieces_next(lar_pieces *w, lar_slice *piece, bool *more);

#endif
