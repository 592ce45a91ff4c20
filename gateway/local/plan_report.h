/* How a memory plan is told: a table for people, JSON for programs. */
#ifndef LARDER_GATEWAY_PLAN_REPORT_H
#define LARDER_GATEWAY_PLAN_REPORT_H

#include <stdio.h>

#include "engine/plan/plan.h"

enum { LAR_PLAN_NOTES_MAX = 8, LAR_PLAN_NOTE_BYTES = 240 };
/* All that a report tells; borrowed. */
typedef struct lar_plan_story {
    const char *name; /* of the model, as asked for; "" if its numbers were */
    lar_plan_model model;
    lar_plan_request request;
    const char *kv; /* the formats by layer, for people; NULL: all layers are alike */
    lar_plan plan;
    uint64_t most_sequences, most_context;
    lar_plan_change changes[LAR_PLAN_CHANGES_MAX];
    uint32_t change_count, note_count;
    char notes[LAR_PLAN_NOTES_MAX][LAR_PLAN_NOTE_BYTES];
} lar_plan_story;

void lar_plan_print(const lar_plan_story *s, FILE *to);
LAR_MUST_USE lar_error lar_plan_print_json(const lar_plan_story *s, FILE *to);

/* The name of a type of weights as options have it ("q4_k"); a change as options ("--sequences 3 --kv int8"). */
enum { LAR_PLAN_TYPE_BYTES = 32 };
const char *lar_plan_weights_name(lar_dtype type, char out[LAR_PLAN_TYPE_BYTES]);
enum { LAR_PLAN_OPTIONS_BYTES = 120 };
const char *lar_plan_change_options(const lar_plan_change *c, char out[LAR_PLAN_OPTIONS_BYTES]);

#endif
