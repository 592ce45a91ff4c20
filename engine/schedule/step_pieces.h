/* How much of which prompt goes into a step: pieces whose time stays within a budget.
 * The oldest prompt gets half, and what others leave; the other half goes to those with the fewest tokens left, so that
 * a short prompt does not wait for a long one and a long one never stops. A prompt whose pages another waits for counts
 * as short as that one. Pure. */
#ifndef LARDER_ENGINE_SCHEDULE_STEP_PIECES_H
#define LARDER_ENGINE_SCHEDULE_STEP_PIECES_H

#include "engine/schedule/pass_time.h"

typedef struct lar_piece {
    uint32_t position, left; /* tokens of the sequence so far; that are to come, at least 1 */
    uint32_t count;          /* out: into this step; 0: none */
    uint32_t awaited;        /* the fewest tokens left of those who wait for its pages; 0: nobody does */
} lar_piece;

typedef struct lar_step_room {
    lar_pass_load decoding; /* what the step computes anyway */
    uint32_t tokens_max;    /* of a pass, all together */
    uint64_t budget_us;     /* that pieces may add */
} lar_step_room;

/* Pieces in order of age, the oldest first, which always gets one token. */
void lar_step_pieces_cut(const lar_pass_time *t, const lar_step_room *room, lar_piece *pieces, uint32_t count);

#endif
