/* What checks say about a request, for the linter and the explainer: one note a finding, in the given arena. */
#ifndef LARDER_POLICIES_NOTES_H
#define LARDER_POLICIES_NOTES_H

#include "base/arena.h"
#include "base/error.h"
#include "base/json.h"
#include "policies/canon.h"

typedef enum lar_severity { LAR_SEVERITY_INFO, LAR_SEVERITY_WARNING, LAR_SEVERITY_ERROR } lar_severity;

typedef struct lar_note {
    lar_rule rule;
    lar_severity severity;
    uint32_t node;       /* where: node of the tree */
    uint32_t start, end; /* which bytes of the body */
    lar_slice what;      /* one sentence: what varies or is wrong */
    lar_slice advice;    /* one sentence: what to do */
    lar_slice answer;    /* what the provider would answer, or empty */
} lar_note;

typedef struct lar_notes {
    lar_arena *arena; /* borrowed */
    lar_note *list;
    uint32_t count, cap;
} lar_notes;

/* The notes live in `arena`, which is borrowed; there is nothing to release. */
void lar_notes_init(lar_notes *n, lar_arena *arena);
/* Adds a copy; the slices must live as long as the arena. NO_MEMORY. */
LAR_MUST_USE lar_error lar_notes_add(lar_notes *n, const lar_note *note);

#endif
