/* What the tests of the linter share: requests in, findings as lines "RULE POINTER state". */
#ifndef LARDER_TESTS_LINT_HARNESS_H
#define LARDER_TESTS_LINT_HARNESS_H

#include "policies/lint.h"

typedef struct lint_harness {
    lar_lint *lint;
    lar_json json;
    lar_arena arena;
    lar_lint_finding *findings;
    uint32_t count;
    uint32_t line; /* of the next request */
} lint_harness;

void lint_harness_init(lint_harness *h);
void lint_harness_release(lint_harness *h);
/* One request in the next line of file 0; the error of reading or adding it. `fix` may be NULL. */
lar_error lint_harness_add(lint_harness *h, lar_protocol p, lar_slice body, lar_splices *fix);
/* Ends; the lines of all findings, malloc'ed. */
char *lint_harness_lines(lint_harness *h);

#endif
