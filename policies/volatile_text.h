/* Volatile text: spans that may differ from request to request without meaning another prompt, with their labels.
 *
 * The scan only finds and classes candidates; whether one moves is decided by evidence (canon). The grammar of
 * clocks is rules/clock_text.h; all other classes need a key: a name in front of the value that says what it is. */
#ifndef LARDER_POLICIES_VOLATILE_TEXT_H
#define LARDER_POLICIES_VOLATILE_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/slice.h"
#include "policies/rules/clock_text.h"

typedef enum lar_volatile_class {
#define LAR_CLASS(name, rule, evidence, owner, text) LAR_VOLATILE_##name,
#include "policies/classes.def"
#undef LAR_CLASS
    LAR_VOLATILE_COUNT
} lar_volatile_class;

typedef enum lar_volatile_evidence { LAR_EVIDENCE_NOW, LAR_EVIDENCE_CHANGED, LAR_EVIDENCE_NEVER } lar_volatile_evidence;

typedef enum lar_volatile_owner { LAR_OWNER_ANYONE, LAR_OWNER_PERSON } lar_volatile_owner;

typedef struct lar_volatile_row {
    const char *name; /* "datetime", lower case */
    const char *rule; /* id of the rule that moves it: "LR001" */
    const char *text;
    lar_volatile_evidence evidence;
    lar_volatile_owner owner;
} lar_volatile_row;
const lar_volatile_row *lar_volatile_row_of(lar_volatile_class c);

typedef struct lar_volatile_span {
    uint32_t start, end;             /* of the value */
    uint32_t label_start, label_end; /* the words in front of it, on the same line; may be empty */
    lar_volatile_class class_id;
    bool key_word;         /* the label names the value for what it is: "current time", request_id, 工作目录 */
    bool example;          /* in a code fence, behind "e.g.", a format, a cut-off: the scan does not return these */
    lar_clock_stamp stamp; /* of clocks; else zero */
} lar_volatile_span;

/* Candidates in order, apart from each other; at most `room`. Returns how many. Never holds a line end; borders are
 * borders of characters. Stops where the budget ends. Pure; no memory. */
uint32_t lar_volatile_scan(lar_slice text, lar_volatile_span *spans, uint32_t room, lar_clock_budget *budget);

/* Which slot a span fills: its class and its label, digits and case aside. Equal for other prompts that have the same
 * label. */
lar_hash lar_volatile_slot(lar_slice text, const lar_volatile_span *span);

#endif
