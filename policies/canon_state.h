/* What one run of the rules carries from stage to stage. Private to policies/: canon.c drives the stages,
 * each stage is one file. All of it lives in the request's arena but for `value`, a reused buffer.
 *
 *   head      the leading system segments, as text units with volatile spans, billing line and form
 *   opening   client messages behind the head and before the first answer; read for volatile spans, too
 *   group     what evidence is kept for as one: the head, one tool, the opening
 *   chain     hash of what the conversation means up to a segment: scope, tools as a set, norms
 *   sent      the same over exact forms, as sent: equal `sent` = equal bytes for the model */
#ifndef LARDER_POLICIES_CANON_STATE_H
#define LARDER_POLICIES_CANON_STATE_H

#include "policies/canon.h"
#include "policies/output.h"
#include "policies/text.h"
#include "policies/volatile_text.h"

/* Bounds of one run, so that no request holds its thread for long (docs/design/0003). Work is about a nanosecond:
 * 32 for a value of the tree, 4 for an escape, 1 for four bytes of a string with escapes. */
enum {
    LAR_CANON_SPANS_MAX = 64, /* one bit each in a mask */
    LAR_CANON_UNITS_MAX = 64,
    LAR_CANON_GROUPS_MAX = LAR_CANON_UNITS_MAX,
    LAR_CANON_TOOLS_MAX = 1024,
    LAR_CANON_TOOLS_BYTES_MAX = 1024 * 1024,    /* more: their descriptions are not read */
    LAR_CANON_DESCRIPTION_MAX = 64 * 1024,      /* read of one description */
    LAR_CANON_OPENING_BYTES_MAX = 512 * 1024,   /* the opening ends before the message that goes beyond */
    LAR_CANON_OPENING_MAX = 16,                 /* messages of it */
    LAR_CANON_SEGMENTS_MAX = 16 * 1024,         /* more: the request goes as it is */
    LAR_CANON_WORK_MAX = 8 * 1024 * 1024,       /* in segments; those beyond count by their bytes alone */
    LAR_CANON_TOOLS_WORK_MAX = 4 * 1024 * 1024, /* the same for tools */
    LAR_CANON_FORM_EDITS_MAX = 64 * 1024,       /* of LR004 */
    LAR_CANON_HEAD_FORMS_MAX = 256              /* system texts that LR004 looks up */
};

/* One text of a client segment, a bare string or the text of one part; or the description of a tool. */
typedef struct lar_canon_unit {
    uint32_t segment, node, part;  /* segment: NONE of a tool; part: element of the content array, or NONE */
    uint32_t drop_start, drop_end; /* decoded: first line dropped or blanked by the billing rule; 0, 0 = none */
    uint32_t span_first, span_count;
    bool dropped;            /* the whole part goes */
    bool blanked;            /* the line stays, without its values */
    bool hashed;             /* masked and valued are there */
    lar_hash masked, valued; /* norm with all spans masked, with none */
    lar_splices form_edits;  /* that give it the form in which it is sent; none: as it is */
    lar_text text;
    lar_text_form form;
} lar_canon_unit;

typedef struct lar_canon_segment {
    lar_hash norm, exact; /* exact: norm and form as the client wrote it */
    lar_hash chain, sent;
    lar_hash known_sent; /* what memory says was sent up to here, where `known` */
    lar_slice recipe;    /* form of its only text; empty if it has none */
    lar_slice known_recipe;
    uint64_t known_opening, opening; /* of a last segment: which facts the turn was last opened with, then and now */
    lar_slice facts;                 /* block sent with it */
    uint32_t text_node;              /* its only text, or NONE */
    lar_hash key;                    /* of its bytes */
    uint32_t work;                   /* to hash it */
    lar_output_core core;            /* of what the model or a tool wrote */
    lar_clock_budget clocks;         /* what looking for clocks in it took */
    bool known, fetched;
} lar_canon_segment;

typedef enum lar_canon_place { LAR_PLACE_HEAD, LAR_PLACE_TOOL, LAR_PLACE_OPENING } lar_canon_place;

typedef struct lar_canon_group {
    lar_canon_place place;
    uint32_t unit_first, unit_count;
    uint32_t span_first, span_count; /* at least one */
    lar_hash shape;                  /* all of it with the spans masked */
} lar_canon_group;

typedef struct lar_canon_tool {
    uint32_t node;
    uint32_t unit_first, unit_count; /* descriptions with spans */
    uint64_t id;                     /* of the order-free hash with all spans masked */
    lar_hash norm, exact;            /* as it is sent */
    lar_splices edits;               /* of its descriptions, in order */
    lar_slice text; /* how it is sent: an object with members, without its marker; ptr NULL: the client's own bytes */
} lar_canon_tool;

/* What a node counts as in the hash of the tree around it. */
typedef struct lar_canon_fixed {
    uint32_t node;
    lar_hash norm, exact;
} lar_canon_fixed;

typedef struct lar_canon {
    const lar_canon_in *in;
    const lar_request_view *view;
    const lar_json *json;
    lar_arena *arena;
    lar_canon_out *out;
    lar_buf value;          /* the last value got from memory */
    lar_hash scope;         /* of the caller's conversations: with the session hints of the body */
    lar_hash wide;          /* of evidence and forms, which are hashes and orders alone: without them */
    lar_hash hash_template; /* the head with all spans masked */
    lar_hash tools_set;     /* the tools in any order, their spans masked */
    lar_hash tools_norm, tools_exact;
    lar_hash persons;     /* of the moved values that name one; zero: none */
    bool apply;           /* mode on: edits are made */
    bool crowded;         /* there may be spans for which there was no room */
    bool passed;          /* a gateway has moved values before: none is moved again */
    uint32_t head_count;  /* leading system segments */
    uint32_t opening_end; /* index behind the last segment of the opening */
    lar_canon_tool *tools;
    uint32_t tool_count; /* 0: they count by their bytes */
    lar_canon_segment *segments;
    lar_canon_unit *units; /* of the head, where something may be edited */
    uint32_t unit_count;
    uint32_t span_count, group_count;
    uint64_t opener;      /* what the conversation began with, spans masked */
    uint64_t confirmed;   /* bit i: evidence says that spans[i] varies */
    uint64_t moving;      /* bit i: and it moves where something can carry it */
    uint64_t edit_mask;   /* bit i: spans[i] is edited */
    lar_slice facts;      /* the block of this request's values, escaped; empty if nothing moved */
    lar_slice *constants; /* its lines that stand still in a conversation */
    uint32_t constant_count;
    uint32_t finding_cap, put_cap;
    lar_clock_budget clocks; /* what is left */
    uint32_t work_left, form_edits_left;
    void *scratch; /* of the tree hash */
    size_t scratch_nodes;
    char *decoded;
    size_t decoded_bytes;
    lar_output_part *parts; /* of the message that is being read */
    lar_canon_fixed *fixed; /* for lar_canon_hash_tree; sorted by node */
    uint32_t parts_room, fixed_count;
    lar_json_forms forms;
    lar_memory_ops texts;            /* gets at once, puts with the other puts */
    uint32_t swap_first, swap_count; /* units whose text counts with swap_mask in lar_canon_hash_tree */
    uint64_t swap_mask;
    uint32_t item;                                /* node whose own id says nothing to the model, or NONE */
    lar_canon_group groups[LAR_CANON_GROUPS_MAX]; /* from here on nothing is zeroed at the start */
    lar_volatile_span spans[LAR_CANON_SPANS_MAX];
} lar_canon;

static inline bool lar_canon_rule_on(const lar_canon *c, lar_rule r) { return !(c->in->options->rules_off >> r & 1); }

/* -- canon_hash.c: what a value means ------------------------------------------------------------- */

/* norm: members in any order; exact: in order. cache_control is left out of both (it moves by design). */
LAR_MUST_USE lar_error lar_canon_hash_tree(lar_canon *c, uint32_t node, lar_hash *norm, lar_hash *exact);
/* Norm and form of a segment, by memo if there is one. */
LAR_MUST_USE lar_error lar_canon_hash_segment(lar_canon *c, uint32_t i);
/* Work to hash the value `node`; UINT32_MAX if it is more than LAR_CANON_WORK_MAX. */
uint32_t lar_canon_work(const lar_json *j, uint32_t node);
/* Element of tools, by memo: order-free hash, and hash with the order of members, both without its cache_control. False
 * if it is not there: a tool in which something was found never is. */
bool lar_canon_tool_memo_get(lar_canon *c, uint32_t node, lar_hash *norm, lar_hash *exact);
void lar_canon_tool_memo_put(lar_canon *c, uint32_t node, lar_hash norm, lar_hash exact);
/* The same two, with the spans of `mask` masked. A tool with more than one cache_control, or with one deeper inside,
 * counts by its bytes. */
LAR_MUST_USE lar_error lar_canon_hash_tool(lar_canon *c, const lar_canon_tool *t, uint64_t mask, lar_hash *norm,
                                           lar_hash *exact);
/* The decoded text of a string: in the body, or in a buffer that holds it until the next call. */
LAR_MUST_USE lar_error lar_canon_decoded(lar_canon *c, uint32_t node, lar_slice *out);
/* The texts of a segment's content, in order. *count is 0 and *units NULL if there are none or too many. */
LAR_MUST_USE lar_error lar_canon_units_read(lar_canon *c, uint32_t segment, lar_canon_unit **units, uint32_t *count);
/* Norm, exact, recipe and text_node of a segment from its units. */
LAR_MUST_USE lar_error lar_canon_units_hash(lar_canon *c, uint32_t segment, lar_canon_unit *units, uint32_t count);
/* Fills masked and valued. */
LAR_MUST_USE lar_error lar_canon_unit_norms(lar_canon *c, lar_canon_unit *u);
/* Norm with the spans of `mask` masked. */
LAR_MUST_USE lar_error lar_canon_unit_norm(lar_canon *c, lar_canon_unit *u, uint64_t mask, lar_hash *out);
/* -- canon_output.c: what models and tools wrote --------------------------------------------------- */

/* As lar_canon_hash_segment, of such a segment: arguments and results count in any form. */
LAR_MUST_USE lar_error lar_canon_output_hash(lar_canon *c, uint32_t i);
/* The chain of the last segment before `i` that is not the model's: what it answered there. */
lar_hash lar_canon_context(const lar_canon *c, uint32_t i);
/* Where the rules of output.h remember, for this request. */
lar_output_memory lar_canon_output_memory(lar_canon *c);
/* Reads the segment's parts into `m`, whose texts live in the arena. */
LAR_MUST_USE lar_error lar_canon_output_read(lar_canon *c, uint32_t i, lar_output_message *m);
/* Sends the segment as the record says, if it fits it whole: a finding of `rule`. The record may lie in c->value. */
LAR_MUST_USE lar_error lar_canon_output_mend(lar_canon *c, uint32_t i, lar_slice record, lar_rule rule, bool *mended);
/* Where the model's last words begin, which nothing may change: they are to be continued. */
uint32_t lar_canon_output_end(const lar_canon *c);

/* True if the segment is hashed: by the memo, or by its bytes alone, being over the bound on work. To be called for
 * all segments in their order. */
bool lar_canon_memo_get(lar_canon *c, uint32_t segment);
void lar_canon_memo_put(lar_canon *c, uint32_t segment);

/* -- rules/tool_marker.c -------------------------------------------------------------------------- */

/* The cache_control members of a tool; spans only where there is exactly one. */
typedef struct lar_canon_marker {
    uint32_t count;
    uint32_t key;                /* node of the last one's name, or NONE */
    lar_slice member;            /* name and value */
    uint32_t cut_start, cut_end; /* what goes with it when it is taken out */
    uint32_t insert_at;          /* behind the last other member */
    bool lonely;                 /* there is no other member */
} lar_canon_marker;

/* Of a tool; count 0 if it has none. */
lar_canon_marker lar_canon_marker_read(const lar_json *j, uint32_t tool);
/* False if a tool has two, or one deeper inside, or if there are some and not every tool could hold one: then no tool
 * must change its place. */
bool lar_canon_markers_movable(const lar_json *j, uint32_t tools);
/* Puts `tool` where `place` stands, with the marker that `place` has and its own edits. */
LAR_MUST_USE lar_error lar_canon_tool_place(lar_canon *c, uint32_t place, const lar_canon_tool *tool);

/* -- canon_memory.c ------------------------------------------------------------------------------- */

/* True if found; the value lies in c->value until the next get. */
bool lar_canon_get(lar_canon *c, char kind, lar_hash what);
/* Notes it; the value lies in the arena. */
LAR_MUST_USE lar_error lar_canon_put_one(lar_canon *c, lar_canon_put put);
LAR_MUST_USE lar_error lar_canon_put_value(lar_canon *c, char kind, lar_hash what, lar_slice value);
LAR_MUST_USE lar_error lar_canon_find(lar_canon *c, lar_finding f);

/* -- canon_evidence.c ------------------------------------------------------------------------------ */

/* Which spans of the group vary (confirmed) and which of them move (moving); notes what was learnt. */
LAR_MUST_USE lar_error lar_canon_evidence(lar_canon *c, const lar_canon_group *g);
/* Whether a class differs from request to request; the others stand still in a conversation. */
bool lar_canon_ticks(lar_volatile_class class_id);
/* The rule that moves a class. */
lar_rule lar_canon_rule_of(lar_volatile_class class_id);
/* Whether the rules of this request may move it. */
bool lar_canon_class_on(const lar_canon *c, lar_volatile_class class_id);
const lar_canon_unit *lar_canon_unit_of_span(const lar_canon *c, uint32_t span);
lar_slice lar_canon_span_text(const lar_canon *c, uint32_t span);

/* -- stages ----------------------------------------------------------------------------------------- */

/* Looks for volatile spans in a unit and keeps those that could move: examples never, and `keyed`: only those whose
 * label says what they are. */
LAR_MUST_USE lar_error lar_canon_unit_scan(lar_canon *c, lar_canon_unit *u, bool keyed, lar_clock_budget *budget);
/* Keeps a segment's units, or one of a tool. False if there is no room. */
bool lar_canon_units_keep(lar_canon *c, const lar_canon_unit *units, uint32_t count);
/* A group of the units kept from unit_first on. False if there is no room. */
bool lar_canon_group_add(lar_canon *c, lar_canon_place place, uint32_t unit_first, lar_hash shape);

/* Reads the head: units with spans or a billing line; norms of all others. */
LAR_MUST_USE lar_error lar_canon_head_read(lar_canon *c);
/* Reads the tools: hashes, and descriptions with spans. */
LAR_MUST_USE lar_error lar_canon_tools_read(lar_canon *c);
/* Reads the opening: units with spans, norms of all others. */
LAR_MUST_USE lar_error lar_canon_opening_read(lar_canon *c);

/* Norms of the head's units once it is decided which spans move; the head's forms recalled; its splices. */
LAR_MUST_USE lar_error lar_canon_head_finish(lar_canon *c);
/* Hashes of tools with spans as they are sent. */
LAR_MUST_USE lar_error lar_canon_tools_finish(lar_canon *c);
/* Norms of the kept units of segments from..to-1. */
LAR_MUST_USE lar_error lar_canon_units_finish(lar_canon *c, uint32_t from, uint32_t to);
/* Norms of the opening's units; its splices come last, once forms were recalled. */
LAR_MUST_USE lar_error lar_canon_opening_finish(lar_canon *c);
LAR_MUST_USE lar_error lar_canon_opening_edit(lar_canon *c);
/* All edits of one unit: billing line, spans, form. */
LAR_MUST_USE lar_error lar_canon_unit_edit(lar_canon *c, const lar_canon_unit *u);
/* Only the edits of its spans. */
LAR_MUST_USE lar_error lar_canon_unit_edit_spans(const lar_canon *c, const lar_canon_unit *u, lar_splices *to);

/* LR002 on the first text of a head segment; `elements`: of its content. */
LAR_MUST_USE lar_error lar_rule_billing_nonce(lar_canon *c, lar_canon_unit *u, uint32_t elements);
/* LR001, LR005 to LR009: decides by evidence which spans move (edit_mask) and prints the block of their values
 * (facts). */
LAR_MUST_USE lar_error lar_rule_volatile(lar_canon *c);
/* LR003: sends a known set in its order. Needs hash_template. */
LAR_MUST_USE lar_error lar_rule_tool_order(lar_canon *c);
/* LR010: gives known tools the order of members in which they were first sent: fills `text`, corrects `exact`. */
LAR_MUST_USE lar_error lar_rule_tool_form(lar_canon *c, lar_canon_tool *tools, uint32_t count);
/* LR004: gives a segment with one text the remembered form `want`. */
LAR_MUST_USE lar_error lar_rule_text_form(lar_canon *c, uint32_t segment, lar_slice want);

/* LR011, LR012, LR013: what models and tools wrote. `from`: the segments before it are sent as they were. `deepest`:
 * last segment known, or NONE. */
LAR_MUST_USE lar_error lar_rule_model_output(lar_canon *c, uint32_t from, uint32_t deepest);
LAR_MUST_USE lar_error lar_rule_tool_result_form(lar_canon *c, uint32_t from);
LAR_MUST_USE lar_error lar_rule_reasoning_kept(lar_canon *c);
/* LR014: marks where the client of Anthropic's API has none; behind all other edits. */
LAR_MUST_USE lar_error lar_rule_cache_breakpoints(lar_canon *c);

/* Whether a block can be appended to that user segment. */
bool lar_canon_appendable(const lar_canon *c, uint32_t segment);
/* Blocks of facts for user segments: recalls, attaches, remembers. `deepest`: last segment known, or NONE. */
LAR_MUST_USE lar_error lar_canon_facts(lar_canon *c, uint32_t deepest);
/* Chains, recall of forms and facts, known prefix, what to remember. */
LAR_MUST_USE lar_error lar_canon_recall(lar_canon *c);
/* chain.c: lengths as sent and, with a key, the fingerprints. The splices are finished. */
LAR_MUST_USE lar_error lar_canon_cuts(lar_canon *c);

#endif
