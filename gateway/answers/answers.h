/* The answers that a process keeps, and requests under way that others wait for. One for all loops; any thread.
 *
 * A request asks with its key. What it gets: a kept answer; or it goes upstream, alone or as the one that identical
 * requests wait for (it leads); or it waits for the one that leads. Who waits is called through the door of its own
 * loop, never from inside a call, once: with the answer, to lead in its turn, or to go alone. Nothing here blocks but
 * for a lock that is held for look-ups. */
#ifndef LARDER_GATEWAY_ANSWERS_H
#define LARDER_GATEWAY_ANSWERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/metrics.h"
#include "gateway/answers/answers_table.h"

typedef struct lar_answers lar_answers;
typedef struct lar_answers_flight lar_answers_flight;
typedef struct lar_answers_seat lar_answers_seat;

/* Where the waiting requests of one loop are called: `ring` must make that loop call lar_answers_called soon. It runs
 * on any thread, under the lock: it calls nothing of this header. Zero-initialised but for ring and bell. */
typedef struct lar_answers_door {
    void (*ring)(void *bell);
    void *bell;
    lar_answers_seat *first, *last; /* called, and not yet fetched */
} lar_answers_door;

typedef enum lar_answers_role {
    LAR_ANSWERS_NOBODY, /* neither waits nor is waited for */
    LAR_ANSWERS_LEADER, /* goes upstream; others may wait for it */
    LAR_ANSWERS_WAITER,
    LAR_ANSWERS_CALLED /* waited; on its way through the door */
} lar_answers_role;

/* A request's part in this. Embedded in it; zero-initialised, then door and owner are set. */
struct lar_answers_seat {
    lar_answers_door *door;
    void *owner;
    /* The rest is guarded by the lock; the owner reads role on its own loop while it is not a waiter. */
    lar_answers_role role;
    lar_answers_flight *flight;
    lar_answers_seat *prev, *next; /* among those that wait, or at the door */
    lar_kept *answer;              /* CALLED: what it gets; NULL: see leads */
    bool leads;                    /* CALLED: it leads now */
};

/* `metrics` may be NULL. NULL when out of memory. */
lar_answers *lar_answers_new(lar_metrics *metrics, uint64_t bytes_max);
/* No seat is in use any more. NULL is allowed. */
void lar_answers_free(lar_answers *a);
void lar_answers_limit(lar_answers *a, uint64_t bytes_max);

typedef enum lar_answers_said {
    LAR_ANSWERS_FOUND, /* *answer is a reference for the caller */
    LAR_ANSWERS_ALONE, /* to go upstream, by itself */
    LAR_ANSWERS_LEADS, /* likewise; lar_answers_end is owed */
    LAR_ANSWERS_WAITS  /* to be called, or lar_answers_leave is owed */
} lar_answers_said;

typedef struct lar_answers_question {
    const lar_digest *key; /* borrowed */
    uint64_t now_ms;       /* monotonic */
    bool share;            /* wait for an identical request that is under way, or be waited for */
} lar_answers_question;
/* `s` is nobody's yet. */
lar_answers_said lar_answers_ask(lar_answers *a, lar_answers_seat *s, const lar_answers_question *q, lar_kept **answer);
/* The answer is complete: kept if there is room, given to all who wait for it if `s` leads. Takes no reference. */
void lar_answers_keep(lar_answers *a, lar_answers_seat *s, lar_kept *answer);

typedef enum lar_answers_end_kind {
    LAR_ANSWERS_LEFT,   /* its client went away: the next one leads */
    LAR_ANSWERS_FAILED, /* no answer that could be kept: the next one leads, once; then all go alone */
    LAR_ANSWERS_UNFIT   /* nor will the next one's be: all go alone */
} lar_answers_end_kind;
/* There is no such answer. Without effect where `s` does not lead. */
void lar_answers_end(lar_answers *a, lar_answers_seat *s, lar_answers_end_kind kind);
/* Does anybody wait for `s`? If not, and it leads, it does not any longer: the next that comes leads. */
bool lar_answers_awaited(lar_answers *a, lar_answers_seat *s);
/* The request waits no longer. Without effect where it does not. */
void lar_answers_leave(lar_answers *a, lar_answers_seat *s);
/* The next seat that was called at this door, or NULL. Its role is NOBODY or LEADER now; *answer is a reference for the
 * caller, NULL: it goes upstream. Only on the door's own loop. */
lar_answers_seat *lar_answers_called(lar_answers *a, lar_answers_door *door, lar_kept **answer);

#endif
