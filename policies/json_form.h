/* The form of a JSON text: all that may differ between two texts of one value. Escapes in strings, blanks between
 * values and the order of members; not the text of numbers, which counts as what it means.
 *
 * As bytes it holds no text, so that it may lie where no prompt or answer may:
 *     [style][indent][order of members, json_order.h]                       blanks by a rule, as programs print
 *     [style][255][n n: bytes of blanks][blanks][order of members]          blanks as they stand, as models may write
 * The blanks are those before each token, and at the end: [how often][length][blanks].
 * What cannot be described (characters escaped without need, here and not there) is no form: then the text is kept. */
#ifndef LARDER_POLICIES_JSON_FORM_H
#define LARDER_POLICIES_JSON_FORM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"

enum {
    LAR_JSON_FORM_BYTES_MAX = 8 * 1024,     /* of a form */
    LAR_JSON_FORM_TEXT_MAX = 1024 * 1024,   /* of a text that is parsed or printed */
    LAR_JSON_FORM_NODES_MAX = 16 * 1024     /* values and names of one text */
};

/* Work space for one text after the other. Embedded; owns its memory but for what lies in the arena. */
typedef struct lar_json_forms {
    lar_arena *arena; /* borrowed */
    lar_json json;    /* of the text parsed last */
    lar_buf text;     /* printed last */
    lar_buf decoded;
    lar_hash *hashes;
    uint32_t hashes_cap;
} lar_json_forms;

/* `arena` is borrowed and must outlive it; the rest is given back by release. */
void lar_json_forms_init(lar_json_forms *f, lar_arena *arena);
void lar_json_forms_release(lar_json_forms *f);

/* Parses a JSON object or array that is a text of its own, borrowed, into f->json. False if it is none or beyond the
 * bounds. */
bool lar_json_forms_parse(lar_json_forms *f, lar_slice text);
/* What the value means, in any form: strings decoded, numbers by their text, members in any order. NO_MEMORY. */
LAR_MUST_USE lar_error lar_json_form_norm(lar_json_forms *f, const lar_json *j, uint32_t node, lar_hash *norm);
/* Appends the form of `text`, which is that of the value `node`. INVALID if it cannot be described or is too long;
 * `out` is then as it was. Overwrites f->text. */
LAR_MUST_USE lar_error lar_json_form_read(lar_json_forms *f, const lar_json *j, uint32_t node, lar_slice text,
                                          lar_buf *out);
/* Prints the value `node` in that form into f->text. INVALID if the form does not fit it; LIMIT. */
LAR_MUST_USE lar_error lar_json_form_print(lar_json_forms *f, const lar_json *j, uint32_t node, lar_slice form);

#endif
