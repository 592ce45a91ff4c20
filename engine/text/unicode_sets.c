/* Sets of code points: union, intersection, complement, and the sets of \p{...}.
 * Flow: the compiler of regular expressions (regex_parse.c) builds one set for each class of a pattern.
 * Any thread; blocks on nothing but malloc. A set's bounds alternate inside and outside, so that every operation is one
 * walk over two sorted lists. */
#include "engine/text/unicode_sets.h"

#include <stdlib.h>

/* In the order of unicode_ranges.mjs. */
static const char category_names[][3] = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                                         "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
                                         "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};
enum { CATEGORIES = sizeof category_names / sizeof *category_names };

/* White_Space of PropList.txt; it has not changed since Unicode 6.3. */
static const uint32_t white_space[] = {0x09,   0x0E,   0x20,   0x21,   0x85,   0x86,   0xA0,   0xA1,   0x1680, 0x1681,
                                       0x2000, 0x200B, 0x2028, 0x202A, 0x202F, 0x2030, 0x205F, 0x2060, 0x3000, 0x3001};

typedef enum joining { UNITE, INTERSECT } joining;

void lar_codeset_release(lar_codeset *s) {
    free(s->bounds);
    *s = (lar_codeset){0};
}

bool lar_codeset_has(const lar_codeset *s, uint32_t code) {
    uint32_t low = 0, high = s->count; /* how many bounds are <= code: odd is inside */
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (s->bounds[middle] <= code) low = middle + 1;
        else high = middle;
    }
    return low % 2 == 1;
}

bool lar_codeset_eq(const lar_codeset *a, const lar_codeset *b) {
    return a->count == b->count && (a->count == 0 || memcmp(a->bounds, b->bounds, a->count * sizeof *a->bounds) == 0);
}

static lar_error make_room(lar_codeset *s, uint32_t bounds) {
    if (bounds <= s->cap) return LAR_OK;
    uint32_t cap = bounds + bounds / 2 + 8;
    uint32_t *grown = realloc(s->bounds, cap * sizeof *grown);
    if (!grown) return LAR_NO_MEMORY;
    s->bounds = grown;
    s->cap = cap;
    return LAR_OK;
}

static lar_error join(lar_codeset *s, const uint32_t *with, uint32_t count, joining how) {
    lar_codeset out = {0};
    if (make_room(&out, s->count + count)) return LAR_NO_MEMORY;
    uint32_t i = 0, k = 0;
    bool inside = false;
    while (i < s->count || k < count) {
        uint32_t at = i < s->count && (k == count || s->bounds[i] <= with[k]) ? s->bounds[i] : with[k];
        if (i < s->count && s->bounds[i] == at) i++;
        if (k < count && with[k] == at) k++;
        bool now = how == UNITE ? i % 2 == 1 || k % 2 == 1 : i % 2 == 1 && k % 2 == 1;
        if (now != inside) out.bounds[out.count++] = at;
        inside = now;
    }
    free(s->bounds);
    *s = out;
    return LAR_OK;
}

lar_error lar_codeset_add(lar_codeset *s, uint32_t first, uint32_t last) {
    return join(s, (uint32_t[]){first, last + 1}, 2, UNITE);
}

lar_error lar_codeset_unite(lar_codeset *s, const lar_codeset *with) {
    return join(s, with->bounds, with->count, UNITE);
}

lar_error lar_codeset_intersect(lar_codeset *s, const lar_codeset *with) {
    return join(s, with->bounds, with->count, INTERSECT);
}

lar_error lar_codeset_negate(lar_codeset *s) {
    if (make_room(s, s->count + 2)) return LAR_NO_MEMORY;
    if (s->count && s->bounds[0] == 0) {
        s->count--;
        memmove(s->bounds, s->bounds + 1, s->count * sizeof *s->bounds);
    } else {
        memmove(s->bounds + 1, s->bounds, s->count * sizeof *s->bounds);
        s->bounds[0] = 0;
        s->count++;
    }
    if (s->bounds[s->count - 1] == LAR_CODES) s->count--;
    else s->bounds[s->count++] = LAR_CODES;
    return LAR_OK;
}

lar_error lar_codeset_fold_ascii(lar_codeset *s) {
    for (uint32_t lower = 'a'; lower <= 'z'; lower++) {
        uint32_t upper = lower - 32, far = lower == 's' ? 0x17F : lower == 'k' ? 0x212A : upper;
        if (!lar_codeset_has(s, lower) && !lar_codeset_has(s, upper) && !lar_codeset_has(s, far)) continue;
        lar_error e = lar_codeset_add(s, lower, lower);
        if (!e) e = lar_codeset_add(s, upper, upper);
        if (!e) e = lar_codeset_add(s, far, far);
        if (e) return e;
    }
    return LAR_OK;
}

/* Which categories a name stands for, one bit each; 0 for none. */
static uint32_t categories_named(lar_slice name) {
    uint32_t bits = 0;
    if (name.len != 1 && name.len != 2) return 0;
    for (uint32_t i = 0; i < CATEGORIES; i++)
        if (memcmp(category_names[i], name.ptr, name.len) == 0) bits |= 1u << i;
    return bits;
}

static lar_error add_categories(lar_codeset *s, uint32_t bits) {
    lar_codeset found = {0};
    lar_error e = make_room(&found, lar_unicode_category_rows + 1);
    bool inside = false;
    for (uint32_t i = 0; !e && i < lar_unicode_category_rows; i++) {
        bool now = bits >> (lar_unicode_categories[i] % 32) & 1;
        if (now != inside) found.bounds[found.count++] = lar_unicode_categories[i] / 32;
        inside = now;
    }
    if (!e && inside) found.bounds[found.count++] = LAR_CODES;
    if (!e) e = lar_codeset_unite(s, &found);
    lar_codeset_release(&found);
    return e;
}

lar_error lar_codeset_add_named(lar_codeset *s, lar_slice name) {
    if (lar_slice_eq_cstr(name, "Han")) return join(s, lar_unicode_han, lar_unicode_han_bounds, UNITE);
    if (lar_slice_eq_cstr(name, "White_Space"))
        return join(s, white_space, sizeof white_space / sizeof *white_space, UNITE);
    uint32_t bits = categories_named(name);
    return bits ? add_categories(s, bits) : LAR_NOT_FOUND;
}
