/* larder run --ids: the logits of cases of token ids, so that another implementation can be held against larder. */
#ifndef LARDER_LOCAL_RUN_CASES_H
#define LARDER_LOCAL_RUN_CASES_H

#include "base/buf.h"
#include "base/json.h"
#include "engine/engine.h"

/* {"cases": [{"name": "n2", "ids": [11, 228], "positions": [0, 1]}, ...]}. `positions`: the tokens whose logits are
 * wanted, ascending; absent: the last. `continuation`, a list: as many ids are added greedily as it holds. */
typedef struct lar_run_case {
    lar_slice name; /* as it stands in the JSON, escapes and all */
    uint32_t *ids, *positions;
    uint32_t count, position_count, greedy_count;
} lar_run_case;

typedef struct lar_run_cases {
    lar_run_case *items;
    uint32_t count;
    lar_buf text; /* what names point into */
} lar_run_cases;

/* NOT_FOUND, IO, JSON_*, INVALID (which case, and what is wrong with it), LIMIT, NO_MEMORY. Release it in any case. */
LAR_MUST_USE lar_error lar_run_cases_read(lar_run_cases *c, const char *path, lar_diag *d);
void lar_run_cases_release(lar_run_cases *c);

/* Runs every case and writes `path` as safetensors: <name>.logits, F32 (positions, vocab), and of a case with a
 * continuation <name>.continuation, I32, and <name>.margin, F32: between the two best logits of each step. The file is
 * written beside `path` and renamed when it is whole. */
LAR_MUST_USE lar_error lar_run_cases_run(const lar_run_cases *c, lar_engine *e, const char *path, lar_diag *d);

#endif
