/* Sets of code points as sorted bounds, and the sets that Unicode names. The data are of one fixed version of Unicode
 * (unicode_ranges.c says which), so that a text has the same tokens whatever the system's libraries know. */
#ifndef LARDER_ENGINE_TEXT_UNICODE_SETS_H
#define LARDER_ENGINE_TEXT_UNICODE_SETS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/slice.h"

#define LAR_CODES 0x110000u /* one behind the last code point */

/* Embedded; owns its memory. bounds[0] is the first code point inside, bounds[1] the first one behind, and so on: an
 * even number of ascending values up to LAR_CODES. All zero is the empty set. */
typedef struct lar_codeset {
    uint32_t *bounds;
    uint32_t count, cap;
} lar_codeset;

void lar_codeset_release(lar_codeset *s);
bool lar_codeset_has(const lar_codeset *s, uint32_t code);
bool lar_codeset_eq(const lar_codeset *a, const lar_codeset *b);

/* NO_MEMORY; the set is then as it was. */
LAR_MUST_USE lar_error lar_codeset_add(lar_codeset *s, uint32_t first, uint32_t last); /* first <= last < LAR_CODES */
LAR_MUST_USE lar_error lar_codeset_unite(lar_codeset *s, const lar_codeset *with);
LAR_MUST_USE lar_error lar_codeset_intersect(lar_codeset *s, const lar_codeset *with);
LAR_MUST_USE lar_error lar_codeset_negate(lar_codeset *s);
/* Adds the other case of every letter of ASCII, and the two characters outside ASCII that fold to one (U+017F to s,
 * U+212A to k). Unicode's simple case folding, for patterns whose letters are ASCII. */
LAR_MUST_USE lar_error lar_codeset_fold_ascii(lar_codeset *s);

/* Adds the set of \p{name}: a general category of one letter or two, White_Space, Han. NOT_FOUND for other names. */
LAR_MUST_USE lar_error lar_codeset_add_named(lar_codeset *s, lar_slice name);

/* unicode_ranges.c */
extern const uint32_t lar_unicode_categories[];
extern const uint32_t lar_unicode_category_rows;
extern const uint32_t lar_unicode_han[];
extern const uint32_t lar_unicode_han_bounds;

#endif
