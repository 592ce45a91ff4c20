/* Client text inside a JSON string: decoded, with a way back to the body; and its form.
 *
 * The form is what may differ between two texts that mean the same: a leading BOM, the kind of each
 * line end, and the blanks at the end. A recipe is the form as bytes (at most LAR_RECIPE_MAX):
 *
 *     [flags][n][n bytes: the blanks at the end][runs of line ends, if mixed: style, count lo, count hi]
 *     [LAR_RECIPE_ODD][16 bytes: hash of the text]     a form too odd to describe, or of too many
 *                                                      lines with CR: only ever itself
 */
#ifndef LARDER_POLICIES_TEXT_H
#define LARDER_POLICIES_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/splice.h"

/* A place known in both: decoded offset, and offset behind the opening quote. */
typedef struct lar_text_mark {
    uint32_t at, raw;
} lar_text_mark;

typedef struct lar_text {
    lar_slice text;       /* decoded; in the body where nothing is escaped, else in the arena */
    lar_slice raw;        /* as written, without the quotes */
    uint32_t body_at;     /* body offset of the byte behind the opening quote */
    lar_text_mark *marks; /* one every few hundred bytes; NULL where nothing is escaped */
    uint32_t mark_count;
} lar_text;

/* `node` must be a string. NO_MEMORY. */
LAR_MUST_USE lar_error lar_text_read(lar_text *t, const lar_json *j, uint32_t node, lar_arena *arena);
/* Body offset of decoded offset `at` (a character's border, at most text.len). */
uint32_t lar_text_body_offset(const lar_text *t, uint32_t at);
/* Decodes the inside of a JSON string into `out` (room for raw.len bytes); returns the length.
 * A lone surrogate becomes its three-byte form. */
size_t lar_text_decode(lar_slice raw, char *out);

enum { LAR_RECIPE_MAX = 200, LAR_RECIPE_ODD = 0x80 };

typedef struct lar_text_form {
    uint32_t begin, end; /* decoded: behind BOM and dropped line; before the blanks at the end */
    uint16_t recipe_bytes;
    uint8_t recipe[LAR_RECIPE_MAX];
} lar_text_form;

/* `drop_end`: decoded offset behind a dropped first line, 0 if none. */
void lar_text_form_read(lar_text_form *f, const lar_text *t, uint32_t drop_end);

/* Spans of the text that count as their class only. Sorted, apart from each other. */
typedef struct lar_text_mask {
    uint32_t start, end;
    uint8_t class_id;
} lar_text_mask;
typedef struct lar_text_masks {
    const lar_text_mask *list;
    uint32_t count;
} lar_text_masks;

/* Hash of the text without its form, masks replaced by their class. NO_MEMORY. */
LAR_MUST_USE lar_error lar_text_norm(lar_hash *out, const lar_text *t, const lar_text_form *f,
                                     const lar_text_masks *masks, lar_arena *arena);

/* Adds the edits (body offsets) that give the text the wanted form. LAR_INVALID if the recipe does not fit this
 * text, LAR_LIMIT if it takes more than `most` edits: then throw them away and leave the text as it is. */
LAR_MUST_USE lar_error lar_text_form_edit(const lar_text *t, const lar_text_form *have, lar_slice want,
                                          lar_splices *edits, uint32_t most);

/* Moves the edits of one text into `to`; many small ones become one that copies the bytes between. */
LAR_MUST_USE lar_error lar_text_edits_merge(lar_splices *edits, lar_slice body, lar_splices *to);

#endif
