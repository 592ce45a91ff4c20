/* What the tests of canon share: a memory in process, and one request through the whole of canon. */
#ifndef LARDER_TESTS_CANON_HARNESS_H
#define LARDER_TESTS_CANON_HARNESS_H

#include "policies/canon.h"
#include "policies/output.h"

typedef struct harness_memory harness_memory;

harness_memory *harness_memory_new(void);
void harness_memory_free(harness_memory *m);
const lar_memory_ops *harness_memory_ops(harness_memory *m);
size_t harness_memory_count(const harness_memory *m);
/* Flips, cuts or grows every value: what a damaged store would give back. */
void harness_memory_damage(harness_memory *m, unsigned seed);

/* One gateway's worth of state. */
typedef struct harness {
    harness_memory *memory, *texts;
    lar_norm_cache *cache;
    lar_json json;
    lar_arena arena;
    lar_canon_options options;
    lar_hash scope;
    const lar_hash_key *key; /* NULL: no fingerprints */
    int64_t now_ms;
    lar_canon_out out; /* of the last request; its parts live until the next */
    lar_error error;
} harness;

void harness_init(harness *h);
void harness_release(harness *h);
/* The body as it goes upstream; malloc'ed, NUL-terminated, the caller frees it. NULL if it is no JSON. */
char *harness_send(harness *h, lar_protocol p, lar_slice body, size_t *len);
/* The same, but nothing is remembered: as if the upstream had refused it. */
char *harness_try(harness *h, lar_protocol p, lar_slice body, size_t *len);

/* The model's answer to the last request goes by, in one piece, and is remembered. */
void harness_answer(harness *h, lar_protocol p, lar_slice body);
/* The same as a stream: the data of events, one a line; `types`: each is "type data". */
typedef enum harness_lines { HARNESS_DATA, HARNESS_TYPES } harness_lines;
void harness_stream(harness *h, lar_protocol p, lar_slice lines, harness_lines kind);

#endif
