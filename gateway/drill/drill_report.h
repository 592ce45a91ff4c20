/* The report of a drill: a line a scene for people, one document for programs. */
#ifndef LARDER_GATEWAY_DRILL_REPORT_H
#define LARDER_GATEWAY_DRILL_REPORT_H

#include <stdio.h>

#include "gateway/drill/drill_judge.h"

/* How a scene went. */
typedef struct lar_drill_result {
    const lar_drill_scene *scene;
    lar_drill_verdict verdict;
    bool alone; /* nobody is behind the upstream that failed */
    uint16_t status;
    int64_t first_us, total_us; /* -1: there was no such thing */
    char failure[24];           /* x-larder-failure */
} lar_drill_result;

typedef struct lar_drill_tally {
    uint32_t held, failed, alone; /* alone: held, but the client was told of a failure that no fallback answers */
} lar_drill_tally;

/* Before the first scene: the chains, what is left out, the table's head. */
void lar_drill_print_head(const lar_drill_plan *p, FILE *out);
void lar_drill_print_line(const lar_drill_result *r, FILE *out);
void lar_drill_print_end(const lar_drill_result *results, const lar_drill_tally *t, FILE *out);
/* NO_MEMORY, IO. */
LAR_MUST_USE lar_error lar_drill_print_json(const lar_drill_plan *p, const lar_drill_result *results,
                                            const lar_drill_tally *t, FILE *out);

#endif
