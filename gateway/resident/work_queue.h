/* Threads that do one piece of work after the other, in the order in which it came: what takes too long for an event
 * loop and must not take its turn with the looking up of names. */
#ifndef LARDER_GATEWAY_WORK_QUEUE_H
#define LARDER_GATEWAY_WORK_QUEUE_H

#include <stdint.h>

#include "base/error.h"

typedef struct lar_work_queue lar_work_queue;

/* One piece of work; embedded by who has it done, and alone in the queue's hands from push until `run` is called. */
typedef struct lar_work {
    struct lar_work *next;
    void (*run)(struct lar_work *w); /* by one of the threads; may free it */
} lar_work;

/* Starts `threads` threads (1 to 16). NO_MEMORY. */
LAR_MUST_USE lar_error lar_work_queue_new(uint32_t threads, lar_work_queue **out, lar_diag *d);
/* Any thread. */
void lar_work_queue_push(lar_work_queue *q, lar_work *w);
/* Does what is in the queue, then ends the threads. NULL: nothing happens. */
void lar_work_queue_free(lar_work_queue *q);

#endif
