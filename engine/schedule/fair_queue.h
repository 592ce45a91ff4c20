/* Who is next: of the tenants with something waiting, the one served least; within a tenant in order.
 *
 * Start-time fair queueing (Goyal, Vin, Chen 1996) with tokens as what is served, as in "Fairness in Serving Large
 * Language Models" (Sheng et al., OSDI 2024): each tenant has a count of the tokens computed for it, and the smallest
 * count is next. One that comes back begins at the count of whoever was taken last, so that nobody saves up turns. So a
 * newcomer waits for no more than what is already under way. One thread. */
#ifndef LARDER_ENGINE_SCHEDULE_FAIR_QUEUE_H
#define LARDER_ENGINE_SCHEDULE_FAIR_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct lar_fair_queue lar_fair_queue;

/* Embedded in what waits. */
typedef struct lar_fair_entry {
    uint64_t tenant;
    uint64_t order; /* by which equals are ordered, and those of one tenant */
    uint32_t place; /* the queue's own, from join to leave */
    bool waiting;   /* in the queue */
    struct lar_fair_entry *next;
} lar_fair_entry;

/* For at most `entries_max` between join and leave. NULL: no memory. */
lar_fair_queue *lar_fair_queue_new(uint32_t entries_max);
void lar_fair_queue_free(lar_fair_queue *q); /* NULL: nothing happens */

/* Waits behind those of its tenant; entries join in ascending order. */
void lar_fair_queue_join(lar_fair_queue *q, lar_fair_entry *e);
/* Whose turn it is; stays in the queue. NULL: nobody waits. */
lar_fair_entry *lar_fair_queue_next(const lar_fair_queue *q);
/* No longer waits; its turn has come where `tokens` are what is to be computed for it, counted now, so that the next is
 * chosen with it in mind. */
void lar_fair_queue_take(lar_fair_queue *q, lar_fair_entry *e, uint32_t tokens);
/* So many tokens more (or less, where they were not computed after all) for the entry's tenant. */
void lar_fair_queue_count(lar_fair_queue *q, const lar_fair_entry *e, int64_t tokens);
/* Gone, from the queue or from work. */
void lar_fair_queue_leave(lar_fair_queue *q, lar_fair_entry *e);

#endif
