/* What the parsers of base/json.h share: the state of one run, its growth and its error texts.
 * Private to base/json*.c and to the tests that compare the instruction sets. */
#ifndef LARDER_BASE_JSON_SCAN_H
#define LARDER_BASE_JSON_SCAN_H

#include <stdint.h>

#include "base/json.h"

/* The parsers, slowest first. SCALAR is the reference; the others differ by the blocks they read. */
typedef enum lar_json_isa { LAR_JSON_SCALAR, LAR_JSON_SSE2, LAR_JSON_AVX2, LAR_JSON_AVX512 } lar_json_isa;

/* The fastest one that this build and this processor have. */
lar_json_isa lar_json_isa_best(void);
/* lar_json_parse by one of them; `isa` is at most lar_json_isa_best(). */
LAR_MUST_USE lar_error lar_json_parse_isa(lar_json_isa isa, lar_json *j, lar_slice body, const lar_json_limits *limits,
                                          lar_diag *d);

/* One parse. `count` nodes are filled, `depth` containers are open (their nodes are on j->stack).
 * Below `room` nodes and `deep` containers neither a limit nor the memory is reached. */
typedef struct lar_json_run {
    lar_json *j;
    lar_diag *d;
    const unsigned char *base, *end;
    uint32_t count, depth, room, deep;
    lar_json_limits limits;
} lar_json_run;

/* A parser: fills the tree from the first byte behind a BOM; sets run->count. */
lar_error lar_json_run_scalar(lar_json_run *run, const unsigned char *p);
lar_error lar_json_run_sse2(lar_json_run *run, const unsigned char *p);
lar_error lar_json_run_avx2(lar_json_run *run, const unsigned char *p);
lar_error lar_json_run_avx512(lar_json_run *run, const unsigned char *p);

/* Room for one more node or one more open container; `at` is the byte that asks for it. */
LAR_MUST_USE lar_error lar_json_grow_nodes(lar_json_run *run, const unsigned char *at);
LAR_MUST_USE lar_error lar_json_grow_stack(lar_json_run *run, const unsigned char *at);

/* The byte at `at` (or the end of the body) is not what the grammar wants there. */
lar_error lar_json_unexpected(const lar_json_run *run, const unsigned char *at, const char *wanted);

/* Reads a string whose opening quote is at p, byte by byte. Sets *end behind the closing quote and
 * adds LAR_JSON_ESCAPED to *flags. JSON_SYNTAX or JSON_UTF8 at the first byte that is wrong. */
LAR_MUST_USE lar_error lar_json_scan_string(const lar_json_run *run, const unsigned char *p, const unsigned char **end,
                                            uint8_t *flags);

/* Reads a number or true, false, null at p (p < run->end), byte by byte; likewise. */
LAR_MUST_USE lar_error lar_json_scan_plain(const lar_json_run *run, const unsigned char *p, lar_json_kind *kind,
                                           const unsigned char **end);

/* A fresh node at index run->count. The caller has made room. */
static inline lar_json_node *lar_json_push(lar_json_run *run, lar_json_kind kind, const unsigned char *start,
                                           const unsigned char *end) {
    uint32_t i = run->count++;
    lar_json_node *n = &run->j->nodes[i];
    *n = (lar_json_node){.start = (uint32_t)(start - run->base),
                         .end = (uint32_t)(end - run->base),
                         .next = i + 1,
                         .depth = (uint16_t)run->depth,
                         .kind = (uint8_t)kind};
    return n;
}

#endif
