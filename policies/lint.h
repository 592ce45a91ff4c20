/* The linter's engine: requests go in, findings about what breaks their prefix come out at the end.
 *
 * One request by itself gives "suspect": its text holds what usually varies. Several of the same template give
 * "confirmed", with both values; a value that stood still in them is no finding. Whatever larder itself would
 * edit (lar_canon_run over the same requests) is confirmed.
 *
 *     l = lar_lint_new(&options)
 *     lar_lint_add(l, &request, arena, fix)      in the order in which they were sent
 *     lar_lint_end(l, &findings, &count)
 *     lar_lint_free(l)
 *
 * Pure but for the heap; one thread. What it keeps is bounded: places and values, and the last requests, up to
 * LAR_LINT_KEPT_BYTES_MAX of their bodies. */
#ifndef LARDER_POLICIES_LINT_H
#define LARDER_POLICIES_LINT_H

#include "policies/canon.h"
#include "policies/notes.h"
#include "policies/provider.h"
#include "policies/volatile_text.h"

#define LAR_LINT_KEPT_BYTES_MAX (64u << 20)
enum { LAR_LINT_KEPT_MAX = 1024, LAR_LINT_SIGHTS_MAX = 65536, LAR_LINT_VALUE_BYTES = 160 };

typedef struct lar_lint lar_lint;

/* How the body lies in its file. */
typedef enum lar_lint_origin {
    LAR_LINT_VERBATIM, /* byte for byte, from the given line and column on */
    LAR_LINT_ENCLOSED, /* made of parts of it: `locate` says where each byte comes from */
    LAR_LINT_TEXT      /* the file is the only text of the body */
} lar_lint_origin;

typedef struct lar_lint_request {
    const lar_request_view *view; /* borrowed until the call returns */
    uint32_t file;                /* the caller's number */
    uint32_t line, column;        /* of the body's first byte, from 1; columns are characters */
    lar_lint_origin origin;
    /* ENCLOSED: line and column of a byte of the body; NULL: all are at the given ones. Called before add returns. */
    void (*locate)(void *ctx, uint32_t offset, uint32_t *line, uint32_t *column);
    void *locate_ctx;
    lar_slice pointer_front; /* what stands in front of a pointer into the body: where the body lies in its record */
    uint32_t pointer_skip;   /* bytes of a pointer that only the body has: 9 for /messages around a bare array */
    int64_t sent_ms;         /* when it was sent; 0 if unknown */
} lar_lint_request;

typedef enum lar_lint_state { LAR_LINT_SUSPECT, LAR_LINT_CONFIRMED } lar_lint_state;

typedef struct lar_lint_place {
    uint32_t file, line, column;
    uint32_t end_line, end_column; /* behind the last character */
    uint32_t request;              /* number of the request, from 1; 0: there is no such place */
    lar_slice pointer;             /* RFC 6901; empty for the file's own text */
    lar_slice value;               /* its first LAR_LINT_VALUE_BYTES, as the client wrote it, decoded */
} lar_lint_place;

typedef struct lar_lint_finding {
    lar_rule rule;
    lar_severity severity;
    lar_lint_state state;
    lar_lint_place place, before; /* before: the other value; request 0 if there is none */
    lar_slice label;              /* words in front of the value; may be empty */
    lar_slice what, advice;       /* one sentence each */
    lar_slice answer;             /* what the provider would answer, or empty */
    uint64_t tokens;              /* read again behind that place, where tokens_known */
    bool tokens_known;
    uint32_t requests; /* in which it was seen */
    lar_hash key;      /* rule, pointer without its numbers, label: the same for the same finding in another file */
} lar_lint_finding;

typedef struct lar_lint_options {
    const lar_provider *provider; /* whose rules say what a change costs; NULL: by the model, else deepseek */
    uint64_t rules_off; /* bit r: what larder itself would not edit; lar_rules_off_default() as larder starts */
} lar_lint_options;

/* Heap; NULL when out of memory. */
lar_lint *lar_lint_new(const lar_lint_options *options);
void lar_lint_free(lar_lint *l);

/* Reads one request. `fix` may be NULL; else it gets the finished splices (in `arena`) that make the body what
 * larder would send: empty if that is the body itself. NO_MEMORY, LIMIT: the request was left out. */
LAR_MUST_USE lar_error lar_lint_add(lar_lint *l, const lar_lint_request *r, lar_arena *arena, lar_splices *fix);

/* The findings in order of file, line, column and rule; they live until free. To be called once, at the end. */
LAR_MUST_USE lar_error lar_lint_end(lar_lint *l, lar_lint_finding **findings, uint32_t *count);
/* Places that no longer found room in memory: then findings may be missing. */
uint64_t lar_lint_dropped(const lar_lint *l);

#endif
