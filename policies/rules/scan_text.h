/* Reading text by hand: letters, words and their surroundings, for the scans of volatile text.
 * All are pure, read nothing outside the slice, and cost no more than a bounded look around. */
#ifndef LARDER_POLICIES_RULES_SCAN_TEXT_H
#define LARDER_POLICIES_RULES_SCAN_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/slice.h"

/* ASCII only; wide: any byte of a longer character. */
static inline bool lar_scan_is_digit(char c) { return c >= '0' && c <= '9'; }
static inline bool lar_scan_is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static inline bool lar_scan_is_alnum(char c) { return lar_scan_is_letter(c) || lar_scan_is_digit(c); }
static inline bool lar_scan_is_hex(char c) {
    return lar_scan_is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
static inline bool lar_scan_is_wide(char c) { return (unsigned char)c >= 0x80; }
static inline char lar_scan_low(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

/* Whether c is one of the bytes of `set`. */
static inline bool lar_scan_among(char c, const char *set) {
    for (; *set; set++) {
        if (*set == c) return true;
    }
    return false;
}

/* Whether the byte at i is c, whether the bytes from i on are `text`. */
static inline bool lar_scan_at(lar_slice t, size_t i, char c) { return i < t.len && t.ptr[i] == c; }
static inline bool lar_scan_at_text(lar_slice t, size_t i, const char *text) {
    if (i >= t.len || t.ptr[i] != text[0]) return false; /* nearly always decided here */
    size_t n = strlen(text);
    return t.len - i >= n && memcmp(t.ptr + i, text, n) == 0;
}
/* Whether `text` stands right before e. */
static inline bool lar_scan_behind_text(lar_slice t, size_t e, const char *text) {
    size_t n = strlen(text);
    return e >= n && memcmp(t.ptr + e - n, text, n) == 0;
}

/* -- the words in front of a value ------------------------------------------------------------------ */

enum { LAR_SCAN_LOW_MAX = 100 };

/* A piece of text in lower case, so that words can be looked for. */
typedef struct lar_scan_low_text {
    char bytes[LAR_SCAN_LOW_MAX];
    size_t len;
} lar_scan_low_text;

/* [b, e) in lower case; at most LAR_SCAN_LOW_MAX bytes, the last ones. */
void lar_scan_lower(lar_slice t, size_t b, size_t e, lar_scan_low_text *out);
/* Where the word stands; SIZE_MAX if nowhere. */
size_t lar_scan_find(const lar_scan_low_text *l, const char *word);
/* Whether one of the words stands there, not inside a longer one. In one pass. */
bool lar_scan_has_any(const lar_scan_low_text *l, const char *const *words, size_t count);
/* The last sentence end in [b, e): the offset behind it and its blanks; b if there is none. */
size_t lar_scan_sentence(lar_slice t, size_t b, size_t e);
/* Where the last `reach` bytes before e begin that lie on e's line and not before floor, at a character's border. */
size_t lar_scan_line_before(lar_slice t, size_t e, size_t reach, size_t floor);
/* Whether e lies in `code` of its line, which is read from b on: an odd number of ticks stands before it. */
bool lar_scan_in_ticks(lar_slice t, size_t b, size_t e);
/* Whether e lies in a web address, behind its "://" or in a query ("/events?ts=", also without a host): a part of it
 * cannot be moved without breaking it. */
bool lar_scan_in_address(lar_slice t, size_t e);
/* "e.g.", a format, a default, a cut-off date: what follows shows a form, not a state. */
bool lar_scan_speaks_of_example(const lar_scan_low_text *l);

/* -- where nothing is a state ------------------------------------------------------------------------ */

/* Reads a text line by line, only as far as it is asked. */
typedef struct lar_scan_place {
    size_t at;       /* the line that is read next */
    uint32_t depth;  /* of <example> tags */
    bool fence;      /* in a ``` or ~~~ fence */
    char fence_mark; /* what it was opened with */
    bool diff;       /* in a hunk behind @@ */
    bool section;    /* under a heading "Examples" */
    bool paragraph;  /* behind a line "Example:" */
    bool began;      /* the paragraph has a line */
} lar_scan_place;

/* Whether `upto` lies in a code fence, a diff, or among examples. To be asked in order. */
bool lar_scan_in_example(lar_slice t, size_t upto, lar_scan_place *p);

#endif
