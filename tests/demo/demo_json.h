/* A small JSON skimmer for the demo programs: values are slices of the text they stand in.
 *
 * It is apart from base/json.h on purpose: what the demo upstream counts and logs must not depend on the code
 * that it is used to test. It checks brackets and strings, not every rule of RFC 8259. */
#ifndef LARDER_TESTS_DEMO_JSON_H
#define LARDER_TESTS_DEMO_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/slice.h"

/* -- output; these end the program when memory is out, which a test tool may do --------------------------- */
void demo_put(lar_buf *b, lar_slice s);
void demo_putf(lar_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define DEMO_PUT(b, literal) demo_put((b), LAR_SLICE(literal))
/* `text` as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD. */
void demo_json_quote(lar_buf *b, lar_slice text);
/* Length of the well-formed UTF-8 sequence at p (1 to 4), or 0. */
uint32_t demo_utf8_len(const char *p, const char *end);
bool demo_utf8_valid(lar_slice s);

/* -- input ------------------------------------------------------------------------------------------------ */
typedef struct demo_json_iter {
    lar_slice rest;
    bool object, first, bad;
} demo_json_iter;

/* One value from the front of *rest, white space skipped; false if there is none. */
bool demo_json_value(lar_slice *rest, lar_slice *value);
/* True if the text is one object and nothing else. */
bool demo_json_is_object(lar_slice text);
/* Walks an object's members or an array's elements. `key` (may be NULL) gets a member's name without quotes,
 * escapes as written. A value that is no container has no children. */
demo_json_iter demo_json_open(lar_slice container);
bool demo_json_next(demo_json_iter *it, lar_slice *key, lar_slice *value);
/* The last member of that name, as most readers take it; empty slice if absent or no object. */
lar_slice demo_json_get(lar_slice object, const char *name);

static inline bool demo_json_is_string(lar_slice v) { return v.len >= 2 && v.ptr[0] == '"'; }
static inline bool demo_json_is_array(lar_slice v) { return v.len >= 2 && v.ptr[0] == '['; }
static inline bool demo_json_is_true(lar_slice v) { return lar_slice_eq_cstr(v, "true"); }
/* Appends the string's text with escapes decoded; nothing if it is no string. */
void demo_json_text(lar_slice string, lar_buf *out);
/* A non-negative integer, or `otherwise`. */
uint64_t demo_json_u64(lar_slice number, uint64_t otherwise);
/* Appends the value printed in one fixed form: ", " and ": " between, no other white space, only the necessary
 * escapes. Key order and number text stay. */
void demo_json_reprint(lar_slice value, lar_buf *out);

#endif
