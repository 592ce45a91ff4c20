/* What a model wrote, remembered so that it can be sent again byte for byte.
 *
 * A message of the model, and the result of a tool, has parts: texts, and JSON texts whose form may change between two
 * programs that mean the same (arguments of calls). A client parses and prints them again, and the provider's cache no
 * longer knows the message. So the form in which each part came is remembered under what the message means:
 *
 *     lar_output_event / lar_output_remember           an answer goes by, and is remembered once it is whole
 *     lar_output_read, lar_output_hash, lar_output_core   a message of a request: its parts, what they mean
 *     lar_output_restore                               the parts as they were remembered, or nothing
 *
 * A form holds no text (json_form.h). Only where it cannot be described, and for reasoning, bytes of the answer are
 * kept, in a memory of their own (`texts`). */
#ifndef LARDER_POLICIES_OUTPUT_H
#define LARDER_POLICIES_OUTPUT_H

#include "policies/canon.h"
#include "policies/json_form.h"

typedef enum lar_output_kind {
    LAR_OUTPUT_TEXT,  /* a string; blanks at its end are form */
    LAR_OUTPUT_CALL,  /* a string that holds the arguments of a call */
    LAR_OUTPUT_INPUT, /* the arguments of a call as a value of the body itself */
    LAR_OUTPUT_RESULT /* a string that holds a tool's result, where that is a JSON object or array */
} lar_output_kind;

enum {
    LAR_OUTPUT_PARTS_MAX = 128,           /* of one message; of more, none is read */
    LAR_OUTPUT_TAIL_MAX = 64,             /* blanks at the end of a text that can be put back */
    LAR_OUTPUT_ANSWER_MAX = 1024 * 1024,  /* bytes kept of one answer while it goes by; over it nothing is remembered */
    LAR_OUTPUT_RECORD_MAX = 16 * 1024,    /* of one remembered message without texts */
    LAR_OUTPUT_MESSAGES_MAX = 64          /* of one answer */
};

typedef struct lar_output_part {
    lar_output_kind kind;
    uint32_t node;      /* the string or value in its tree, or NONE */
    lar_slice id, name; /* of a call, or the call that a result answers; decoded */
    lar_slice text;     /* of a CALL, INPUT or RESULT, as it is written; borrowed */
    lar_slice tail;     /* of a TEXT: the blanks at its end, decoded */
    lar_hash norm;      /* what it means: a TEXT without blanks at its end, JSON in any form, other bytes as they are */
    lar_hash exact;     /* of its decoded bytes */
    bool json;          /* it has a form: JSON that is not too large */
    bool empty;         /* a TEXT of nothing but blanks */
    lar_slice want;     /* how it is to be sent: of a TEXT the tail, else the decoded text; ptr NULL: as it is */
} lar_output_part;

/* A message of the model or of a tool. */
typedef struct lar_output_message {
    const lar_json *json; /* borrowed; NULL where it was gathered from a stream */
    lar_protocol protocol;
    lar_role role;
    lar_arena *arena;       /* ids and names are decoded into it where they hold escapes */
    lar_output_part *parts;
    uint32_t count, room; /* of parts: room for LAR_OUTPUT_PARTS_MAX, or for as many as the message has values */
} lar_output_message;

/* What a message means, whatever else stands in it: two that are the same but for form have the same. */
typedef struct lar_output_core {
    lar_hash keyed; /* with the ids of calls; all zero: nothing to remember */
    lar_hash free;  /* without them: some clients give calls new ids */
    lar_hash exact; /* of the decoded bytes of all parts */
} lar_output_core;
static inline bool lar_output_core_some(const lar_output_core *c) {
    static const lar_hash none = {{0}};
    return !lar_hash_eq(c->keyed, none);
}

/* -- reading messages (output_parts.c) ------------------------------------------------------------------ */

/* Finds the parts of the message or item `node`, in their order. `count` is 0 if there are none, too many, or where it
 * is not clear which value counts. */
void lar_output_read(lar_output_message *m, uint32_t node);
/* Fills norm, exact, tail, json, empty from the decoded text (of an INPUT: its bytes, and `j` has its value). `*work`
 * grows by what that took (canon_state.h). Keeps `text` as part->text. NO_MEMORY. */
LAR_MUST_USE lar_error lar_output_hash(lar_json_forms *f, const lar_json *j, lar_output_part *part, lar_slice text,
                                       uint32_t *work);
/* A TEXT by its hash: that of all but the tail. */
void lar_output_text(lar_output_part *part, lar_hash before_tail, bool empty, lar_slice tail);
lar_output_core lar_output_core_of(const lar_output_part *parts, uint32_t count);

/* -- remembering and putting back (output_record.c) --------------------------------------------------- */

/* Where and in which scope. */
typedef struct lar_output_memory {
    lar_hash scope;                /* lar_canon_out.scope */
    lar_hash context;              /* lar_canon_out.context: what the model answered */
    const lar_memory_ops *forms;   /* the memory of the rules */
    const lar_memory_ops *texts;   /* bytes of answers; NULL: none are kept */
    lar_arena *arena;
    bool reasoning;                /* texts of reasoning are kept, too */
} lar_output_memory;

/* Keys of remembered messages. */
typedef enum lar_output_key {
    LAR_OUTPUT_HERE,     /* in the memory of forms: core.keyed in its context */
    LAR_OUTPUT_KEYED,    /* there: core.keyed, where there are calls, whose ids tell messages apart */
    LAR_OUTPUT_FREE,     /* there: core.free, likewise */
    LAR_OUTPUT_RESULTS,  /* there: core.keyed of results */
    LAR_OUTPUT_REASONING /* in the memory of texts: core.keyed */
} lar_output_key;
lar_hash lar_output_key_of(lar_hash scope, lar_output_key kind, lar_hash core);

/* Appends the record of a message: its exact hash and the form of each part. INVALID if it cannot be kept. Bytes that
 * have no form go to m->texts. */
LAR_MUST_USE lar_error lar_output_record(lar_json_forms *f, const lar_output_message *message,
                                         const lar_output_memory *m, lar_buf *out);
/* True if a record says that the message was written with just these bytes, or is no record. */
bool lar_output_same(lar_slice record, lar_hash scope, const lar_output_core *core);
/* Fills `want` of each part, in m->arena, and `exact` as it is then. False: the record does not fit; all stays, and
 * what the parts say now is of no use. */
LAR_MUST_USE lar_error lar_output_restore(lar_json_forms *f, lar_output_message *message, lar_slice record,
                                          const lar_output_memory *m, bool *fits);

/* -- watching an answer (output.c) -------------------------------------------------------------------- */

typedef struct lar_output lar_output;

typedef struct lar_output_options {
    lar_protocol protocol;
    bool reasoning; /* its text is gathered, too */
    lar_json *work; /* a tree that is free while an event is read: one for all answers of a thread; borrowed */
} lar_output_options;

/* NULL when out of memory. */
lar_output *lar_output_new(const lar_output_options *options);
void lar_output_free(lar_output *o);
/* One event of a stream. Never fails: what cannot be read or is too large is not remembered. */
void lar_output_event(lar_output *o, lar_slice type, lar_slice data);
/* Bytes that it holds. */
size_t lar_output_bytes(const lar_output *o);
/* The stream is whole: remembers its messages. Call once. */
void lar_output_remember(lar_output *o, const lar_output_memory *m);
/* The same for an answer in one piece, parsed. */
void lar_output_remember_body(const lar_json *j, lar_protocol p, const lar_output_memory *m);

#endif
