/* The stand-in for every upstream of a drill: one listener on this machine, one thread. Which scene and which target a
 * request is for stands in its path ("/s3.1/v1/messages"); what is done to it, in the scene. */
#ifndef LARDER_GATEWAY_DRILL_STAND_IN_H
#define LARDER_GATEWAY_DRILL_STAND_IN_H

#include "gateway/drill/drill_plan.h"
#include "gateway/drill/drill_script.h"

/* What one target of the scene under way was asked, and what it said. */
typedef struct lar_drill_seen {
    uint32_t requests; /* read to their end, or as far as the scene lets them come */
    bool named_model;  /* the last one's body said the model that was expected */
    uint16_t status;   /* of its last answer; 0: none */
    bool refused;      /* by the stand-in itself: a provider would not take this request */
    lar_buf said;      /* body of its last answer, without framing */
    uint32_t whole;    /* bytes of it to the end of its last whole event; all of a whole answer */
    uint32_t pieces;   /* tokens in it */
    uint32_t piece_ends[LAR_DRILL_PIECES];
} lar_drill_seen;

typedef struct lar_stand_in lar_stand_in;

/* Opens the listener and starts the thread. `plan` is borrowed, and not changed by anyone while it runs. IO, NO_MEMORY
 * with detail. */
LAR_MUST_USE lar_error lar_stand_in_open(const lar_drill_plan *plan, lar_stand_in **out, lar_diag *d);
/* NULL is allowed. */
void lar_stand_in_close(lar_stand_in *s);
uint16_t lar_stand_in_port(const lar_stand_in *s);
uint16_t lar_stand_in_closed_port(const lar_stand_in *s); /* bound, so that it stays free, and refused */

/* A request of this scene comes next: what was seen is forgotten. */
void lar_stand_in_begin(lar_stand_in *s, uint32_t scene, uint32_t round);
/* What was seen since then, by target, lent until the next begin: `done` ends the look. Nothing is counted meanwhile.
 * *strays: requests that belonged to no scene under way. */
const lar_drill_seen *lar_stand_in_look(lar_stand_in *s, uint32_t *strays);
void lar_stand_in_done(lar_stand_in *s);

#endif
