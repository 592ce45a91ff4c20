/* What the linter carries from stage to stage. Private to policies/lint*.c.
 *
 *   unit    a text that the stable head consists of: system text, description of a tool, opening user message
 *   sight   a place of a template: the values that were seen there
 *   kept    an earlier request, to compare the next one of its conversation or template with */
#ifndef LARDER_POLICIES_LINT_STATE_H
#define LARDER_POLICIES_LINT_STATE_H

#include "policies/lint.h"
#include "policies/render.h"
#include "policies/text.h"

enum { LAR_LINT_UNITS_MAX = 4096, LAR_LINT_SPANS_MAX = 128, LAR_LINT_ONLY_CLASS = 0x80 };

/* -- lint_map.c: a table from hashes to heap pointers --------------------------------------------- */

typedef struct lar_lint_map {
    struct lar_lint_entry {
        lar_hash key;
        void *value;
    } * entries;
    uint32_t cap, count;
} lar_lint_map;

/* NULL if there is none. */
void *lar_lint_map_get(const lar_lint_map *m, lar_hash key);
/* Adds or replaces; the table takes nothing: the caller frees values. NO_MEMORY. */
LAR_MUST_USE lar_error lar_lint_map_put(lar_lint_map *m, lar_hash key, void *value);
void lar_lint_map_release(lar_lint_map *m);

/* -- texts ------------------------------------------------------------------------------------------- */

typedef struct lar_lint_span {
    uint32_t start, end, label_start, label_end; /* decoded */
    lar_rule rule;
    uint8_t mask;     /* what it counts as in a template */
    bool key_word;    /* one sighting is a suspicion */
    lar_hash slot;    /* class and label */
    const char *text; /* what it is */
} lar_lint_span;

/* LR108 and LR109: ids without a key, and what only the linter knows. Adds to `spans` behind the `count` that are
 * there (sorted), apart from them; returns the new count, sorted. */
uint32_t lar_lint_words(lar_slice text, lar_lint_span *spans, uint32_t count, uint32_t room);

typedef enum lar_lint_kind { LAR_LINT_SYSTEM, LAR_LINT_TOOL, LAR_LINT_OPENING } lar_lint_kind;

typedef struct lar_lint_unit {
    lar_lint_kind kind;
    uint32_t node;
    uint32_t segment; /* NONE for tools */
    lar_text text;
    lar_text_form form;
    lar_lint_span *spans;
    uint32_t span_count;
    lar_hash norm; /* of its text, spans masked, form aside */
} lar_lint_unit;

/* -- hashes of values ------------------------------------------------------------------------------ */

typedef struct lar_lint_same {
    uint64_t loose;  /* what it means: members in any order, JSON in strings too, forms of text aside */
    uint64_t strict; /* what the model reads; of tools the order of all members, else of arguments only */
} lar_lint_same;

typedef enum lar_lint_order { LAR_LINT_ORDER_ARGUMENTS, LAR_LINT_ORDER_ALL } lar_lint_order;
/* With ORDER_ALL, what strings named "description" say is left out: they have norms. NO_MEMORY. */
LAR_MUST_USE lar_error lar_lint_hash(const lar_json *j, uint32_t node, lar_lint_order order, lar_arena *arena,
                                     lar_lint_same *out);

/* -- requests ---------------------------------------------------------------------------------------- */

typedef struct lar_lint_tool {
    uint64_t name;
    uint64_t described; /* its descriptions' norms, in any order */
    lar_lint_same same;
    uint32_t node, next; /* its subtree */
} lar_lint_tool;

typedef struct lar_lint_message {
    lar_role role;
    lar_lint_same same;
    uint32_t node;
} lar_lint_message;

typedef struct lar_lint_text {
    lar_lint_kind kind;
    lar_hash norm;
    uint64_t form;             /* hash of its form */
    uint32_t node, start, end; /* of the string in the body, without quotes */
} lar_lint_text;

/* What is kept of a request; heap. `body` is its own copy. */
typedef struct lar_lint_kept {
    lar_slice body;
    lar_protocol protocol;
    uint32_t file, line, column, request;
    lar_lint_origin origin;
    lar_slice pointer_front;
    uint32_t pointer_skip;
    const lar_lint_request *asked; /* while it is being read; NULL once it is kept */
    uint64_t opening;              /* of its first user message; 0 if there is none */
    uint64_t used;                 /* when it was last compared with */
    lar_lint_text *texts;
    lar_lint_tool *tools;
    lar_lint_message *messages; /* behind the head */
    uint32_t text_count, tool_count, message_count;
} lar_lint_kept;

typedef struct lar_lint_sight {
    lar_hash key, group; /* findings of one group become one */
    lar_rule rule;
    lar_severity severity;
    bool suspect;          /* one sighting is worth a finding */
    bool standing;         /* it is a finding however often it stands still */
    bool twin;             /* of another sight of the same place: it counts no requests */
    bool confirmed;        /* a change was seen, or larder would edit it */
    uint32_t seen;         /* requests */
    uint32_t last;         /* the newest of them */
    uint64_t value;        /* hash of the last value */
    lar_lint_place first;  /* where it was seen first */
    lar_lint_place change; /* the first place with another value; request 0 if there is none */
    lar_slice label, what, advice, answer;
    uint64_t tokens;
    bool tokens_known;
} lar_lint_sight;

struct lar_lint {
    lar_lint_options options;
    lar_arena strings; /* what findings need; lives until free */
    lar_lint_map sights, memory;
    lar_memory_ops memory_ops;
    lar_lint_sight **list; /* all sights in the order of their first sighting */
    uint32_t list_count, list_cap;
    lar_lint_kept *kept[LAR_LINT_KEPT_MAX];
    uint32_t kept_count;
    size_t kept_bytes, memory_bytes;
    uint64_t uses, dropped;
    uint32_t requests;
    lar_lint_finding *findings; /* of the last end */
    /* Where lines and columns were counted up to, and how many bytes may still be walked for them. */
    struct lar_lint_cursor {
        const lar_lint_kept *request;
        uint32_t at, line, column;
    } cursor;
    uint64_t walk_left;
};

/* The request as its provider reads it, for what a place costs. */
typedef struct lar_lint_cost {
    const lar_provider *provider;
    lar_rendering rendering;
    uint64_t *tokens; /* in front of each piece, and in all */
    uint32_t *piece;  /* of each node; NONE if none shows it */
    bool read, usable;
} lar_lint_cost;

/* One request on its way through the stages. */
typedef struct lar_lint_run {
    lar_lint *l;
    const lar_lint_request *in;
    const lar_request_view *view;
    const lar_json *json;
    lar_arena *arena;
    uint32_t number; /* from 1 */
    lar_lint_unit *units;
    uint32_t unit_count;
    lar_canon_out canon;
    lar_lint_cost cost;
    lar_lint_kept *now;          /* this request, as it will be kept; owned until stored */
    const lar_lint_kept *before; /* the one to compare it with, or NULL */
    lar_json before_json;        /* parsed once it is needed */
    lar_request_view before_view;
    bool before_read;
    bool continues; /* before is of the same conversation, and this one holds all of its messages */
} lar_lint_run;

/* lint_units.c: a value to show: the decoded text of a string, in the body or the run's arena; else its bytes.
 * NO_MEMORY. */
LAR_MUST_USE lar_error lar_lint_value_of(lar_lint_run *run, const lar_json *j, uint32_t node, lar_slice *out);

/* -- lint_sight.c: what was seen where ------------------------------------------------------------ */

typedef struct lar_lint_seen {
    lar_rule rule;
    lar_severity severity;
    lar_hash key, group;
    lar_slice value;           /* decoded; what is compared is its hash */
    uint32_t node, start, end; /* in the body */
    lar_slice label;
    lar_slice what, advice, answer; /* copied */
    bool suspect, standing, twin;
    bool across;                  /* the same place in other files is this one; else each file has its own */
    const lar_lint_place *before; /* the other value, where a pair of requests shows both: then it is confirmed */
    bool edited;                  /* larder would edit it: confirmed */
} lar_lint_seen;
/* Never fails for want of room: what no longer fits is counted. NO_MEMORY. */
LAR_MUST_USE lar_error lar_lint_see(lar_lint_run *run, const lar_lint_seen *seen);
/* Fills `p` with copies in l->strings. */
typedef struct lar_lint_spot {
    const lar_json *json;
    const lar_lint_kept *request;
    uint32_t node, start, end;
    lar_slice value;
} lar_lint_spot;
LAR_MUST_USE lar_error lar_lint_place_of(lar_lint *l, const lar_lint_spot *spot, lar_lint_place *p);
/* The findings of all sights. */
LAR_MUST_USE lar_error lar_lint_findings(lar_lint *l, lar_lint_finding **list, uint32_t *count);

/* -- lint_cost.c ------------------------------------------------------------------------------------- */

/* The provider that was chosen, or that the model's name speaks of. */
const lar_provider *lar_lint_provider(const lar_lint *l, const lar_request_view *v);
/* Tokens that are read again when the value changes at body offset `start`; false if that is not known. */
bool lar_lint_cost_of(lar_lint_run *run, uint32_t node, uint32_t start, uint64_t *tokens);

/* -- stages of one request, in this order ------------------------------------------------------------- */

/* lint_units.c: the texts of the head and the opening, their spans and norms. */
LAR_MUST_USE lar_error lar_lint_units_read(lar_lint_run *run);
/* lint_kept.c: fills run->now, and run->before with the best of those kept. */
LAR_MUST_USE lar_error lar_lint_kept_read(lar_lint_run *run);
/* Parses run->before once. */
LAR_MUST_USE lar_error lar_lint_before_read(lar_lint_run *run);
/* Keeps run->now in place of what it continues; lets the oldest go. */
LAR_MUST_USE lar_error lar_lint_kept_store(lar_lint_run *run);
void lar_lint_kept_free(lar_lint_kept *k);
/* lint_values.c: volatile spans and forms of texts. */
LAR_MUST_USE lar_error lar_lint_values(lar_lint_run *run);
/* Key and group of what is said of a text's form. */
lar_hash lar_lint_form_key(lar_hash norm, lar_lint_kind kind, lar_hash *group);
/* "no BOM, LF, at its end \n"; in the arena. */
lar_slice lar_lint_form_text(const lar_text *t, const lar_text_form *f, lar_arena *arena);
/* lint_head.c: tools and system texts against those before. */
LAR_MUST_USE lar_error lar_lint_head(lar_lint_run *run);
/* lint_notes.c: what the checks say. */
LAR_MUST_USE lar_error lar_lint_notes(lar_lint_run *run);
/* lint_history.c: messages against those before. */
LAR_MUST_USE lar_error lar_lint_history(lar_lint_run *run);
/* Two texts that differ: where, and a stretch of each around it; all at borders of characters. */
size_t lar_lint_stretch(lar_slice a, lar_slice b, lar_slice *of_a, lar_slice *of_b);

#endif
