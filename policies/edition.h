/* Editions: the version of all that decides which bytes are sent. A provider's cache keeps bytes, so a change of any of
 * it makes the prefixes that it touches miss once; an edition gives all versions one name that configurations can pin
 * and records can carry. Rows are the rules that may edit, and the parts of edition.def. */
#ifndef LARDER_POLICIES_EDITION_H
#define LARDER_POLICIES_EDITION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/slice.h"

/* The edition that this program acts as; and the one of programs that knew no editions. */
#define LAR_EDITION "2026.12"
#define LAR_EDITION_FIRST "2026.11"
/* 1 until the release of that edition: what it is may still change (tests/unit_policies/edition_golden.c). */
#define LAR_EDITION_OPEN 1

enum { LAR_EDITION_ROWS_MAX = 80, LAR_EDITION_NAME_BYTES = 24 };

typedef struct lar_edition_row {
    const char *name;    /* "LR001", "norm" */
    uint32_t version;    /* 0: not there in that edition */
    const char *touches; /* what misses once when it changes */
    const char *text;    /* what it is: a rule's text, or why it last changed */
} lar_edition_row;

/* The rows as they were in an edition; returns how many. All rows of the program are there, in the same order. */
uint32_t lar_edition_rows(lar_slice edition, lar_edition_row out[LAR_EDITION_ROWS_MAX]);
/* Whether that edition's rows are known: a past one, or the program's own. */
bool lar_edition_known(lar_slice edition);
/* Hash of the name and all versions of the program's own edition; never 0. */
uint64_t lar_edition_hash(void);

/* The program's edition as lines of text, for a store. */
LAR_MUST_USE lar_error lar_edition_write(lar_buf *out);

/* What differs between an edition and the program's own. */
typedef struct lar_edition_change {
    char name[LAR_EDITION_NAME_BYTES];
    uint32_t was, is;    /* versions; 0: not there */
    const char *touches; /* static text; "" if this program has no such row */
} lar_edition_change;
/* Of a known edition, by its name; returns how many. */
uint32_t lar_edition_diff(lar_slice edition, lar_edition_change out[LAR_EDITION_ROWS_MAX]);
/* Of what lar_edition_write wrote, maybe by another program; *name gets its edition (borrows `text`). CORRUPT if it is
 * no such text. */
LAR_MUST_USE lar_error lar_edition_diff_text(lar_slice text, lar_slice *name,
                                             lar_edition_change out[LAR_EDITION_ROWS_MAX], uint32_t *count);
/* "LR001 1 > 2, norm 2 > 3": a line for people. */
LAR_MUST_USE lar_error lar_edition_changes_text(const lar_edition_change *changes, uint32_t count, lar_buf *out);

#endif
