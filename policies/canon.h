/* Canonicalisation and recall: from a request's view to splices that keep its prefix stable.
 *
 * Pure but for the memory it is given: no I/O, no clock of its own. One call per request:
 *
 *     lar_canon_run(&in, &out)      findings, splices, what to remember
 *     ... the edited body is sent ...
 *     lar_canon_commit(&out, mem)   only once the upstream has accepted it (2xx)
 *
 * Promises (docs/design): a body that no rule edits has no splice; every edit rests on evidence; a value
 * that moves is still read by the model in the newest user turn; model output is never edited. */
#ifndef LARDER_POLICIES_CANON_H
#define LARDER_POLICIES_CANON_H

#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/splice.h"
#include "policies/chain.h"
#include "policies/protocol.h"
#include "policies/volatile_text.h"

typedef enum lar_canon_mode {
    LAR_CANON_OFF,    /* nothing is read, nothing remembered */
    LAR_CANON_REPORT, /* findings only; the body goes on untouched */
    LAR_CANON_ON
} lar_canon_mode;

/* Rules, one row each in rules.def: LAR_RULE(ID, name, mode, text). */
typedef enum lar_rule {
#define LAR_RULE(id, name, mode, text) LAR_RULE_##id,
#include "policies/rules.def"
#undef LAR_RULE
    LAR_RULE_COUNT
} lar_rule;

typedef enum lar_rule_mode {
    LAR_RULE_MODE_OFF, /* edits once it is turned on by name */
    LAR_RULE_MODE_ON,
    LAR_RULE_MODE_LINT /* never edits: the linter reports it */
} lar_rule_mode;
lar_rule_mode lar_rule_mode_of(lar_rule r);
const char *lar_rule_id(lar_rule r);   /* "LR001" */
const char *lar_rule_name(lar_rule r); /* "volatile-clock" */
const char *lar_rule_text(lar_rule r);
/* Bit r: rule r is off unless it is turned on by name, or never edits. */
uint64_t lar_rules_off_default(void);
/* By id or name; LAR_RULE_COUNT if unknown. */
lar_rule lar_rule_find(lar_slice text);

/* What the rules may remember. Values are small (under 64 KiB). Both calls return at once: get reads
 * memory or a mapped file, put queues. Thread-safe. A value put is seen by a later get in this process
 * even before it is on disk. */
typedef struct lar_memory_ops {
    void *ctx;
    /* Appends the value to `out` (its max bounds the size). NOT_FOUND if there is none. */
    lar_error (*get)(void *ctx, const lar_hash *key, lar_buf *out);
    /* Stores or replaces. Never fails: a put that cannot be queued is dropped and counted. */
    void (*put)(void *ctx, const lar_hash *key, lar_slice value);
} lar_memory_ops;

/* Values end in a sum, so that a damaged one is as good as none. Put: a copy of the value with it, nothing if there is
 * no memory for that. Get: appends the value; false if it is not there or damaged. */
void lar_memory_put(const lar_memory_ops *m, const lar_hash *key, lar_slice value, lar_arena *arena);
bool lar_memory_get(const lar_memory_ops *m, const lar_hash *key, lar_buf *out);

typedef struct lar_finding {
    lar_rule rule;
    uint32_t node;               /* where: node of the tree */
    uint32_t start, end;         /* which bytes of the body */
    bool edited;                 /* false: reported only (no evidence yet, or the mode is report) */
    bool confirmed;              /* of a volatile span: it was seen to vary, or it shows now */
    lar_volatile_class class_id; /* of a volatile span; LAR_VOLATILE_COUNT: it is none */
} lar_finding;

typedef struct lar_canon_options {
    lar_canon_mode mode;
    uint64_t rules_off;       /* bit r set: rule r is off */
    uint32_t facts_bytes_max; /* 0 = default 4096: bytes of one block of facts */
    uint64_t
        facts_refresh_ms; /* 0: a block stands during the tool rounds of its turn; else it is told anew after this */
} lar_canon_options;

/* A memo of "these raw bytes normalise to that hash", one per loop thread; bounded. */
typedef struct lar_norm_cache lar_norm_cache;
lar_norm_cache *lar_norm_cache_new(uint32_t entries); /* heap; NULL when out of memory */
void lar_norm_cache_free(lar_norm_cache *c);

typedef struct lar_canon_in {
    const lar_request_view *view;
    const lar_canon_options *options;
    const lar_memory_ops *memory; /* NULL: nothing is remembered, only rules that need no memory run */
    const lar_memory_ops *texts;  /* bytes of answers and results (output.h); NULL: none are kept */
    lar_norm_cache *cache;        /* may be NULL */
    lar_hash scope;               /* tenant, upstream group; canon adds model and the body's session hints */
    const lar_hash_key *key;      /* of the installation, for fingerprints; NULL: none are made */
    int64_t now_ms;               /* wall clock */
} lar_canon_in;

typedef struct lar_canon_put {
    lar_hash key;
    lar_slice value; /* in the arena */
    bool text;       /* it goes to `texts` */
} lar_canon_put;

/* Everything in it lives in the arena given to lar_canon_run. */
typedef struct lar_canon_out {
    lar_splices splices; /* finished; empty = send the body as it is */
    lar_finding *findings;
    uint32_t finding_count;
    uint64_t rules_fired;              /* bit r: rule r edited */
    uint64_t rules_seen;               /* bit r: rule r found something */
    uint64_t prefix_known_bytes;       /* predicted: bytes of the sent body up to the end of the last segment that was
                                     sent before with the same bytes in front */
    uint32_t turn;                     /* as in the view */
    uint32_t segments_known, segments; /* how deep the chain was known */
    uint64_t prefix_hash;              /* fingerprint of the stable head (tools and system), for affinity and reports */
    lar_cut *cuts;                     /* fingerprints of what is sent, at most LAR_CUTS_MAX; none without a key */
    uint32_t cut_count;
    uint64_t prompt_bytes, known_bytes;  /* of tools, system and messages as sent: all of it, and the part known */
    uint32_t recall_hits, recall_misses; /* look-ups in memory that found something, and that did not */
    lar_hash scope;              /* of conversations: that of `in`, the model, the body's session hints */
    lar_hash context;            /* what the conversation means up to the last message that is not the model's */
    const lar_memory_ops *texts; /* as it was in `in` */
    lar_canon_put *puts;         /* what lar_canon_commit stores */
    uint32_t put_count;
} lar_canon_out;

/* Runs all rules. On any error (NO_MEMORY, LIMIT) `out` holds no splices and the body must go on
 * untouched: canonicalisation never refuses a request. */
LAR_MUST_USE lar_error lar_canon_run(const lar_canon_in *in, lar_arena *arena, lar_canon_out *out);

/* Stores what was learnt; call once, when the upstream accepted the request. */
void lar_canon_commit(const lar_canon_out *out, const lar_memory_ops *memory);

#endif
