/* A lazy deadline on a uv_timer_t: moving it later costs one store, not a heap operation.
 * The timer fires at the earliest time it was ever armed for and re-arms itself if that was too early. */
#ifndef LARDER_GATEWAY_DEADLINE_H
#define LARDER_GATEWAY_DEADLINE_H

#include <stdint.h>
#include <uv.h>

typedef struct lar_deadline {
    uv_timer_t timer;
    uint64_t at_ms, armed_ms; /* uv_now() time; 0 = none */
    void (*on_due)(void *owner);
    void *owner;
} lar_deadline;

/* Embedded; the owner closes the timer with lar_deadline_close before its memory goes. */
void lar_deadline_init(lar_deadline *d, uv_loop_t *loop, void (*on_due)(void *owner), void *owner);
/* Due `after_ms` from now; replaces what was set. */
void lar_deadline_set(lar_deadline *d, uint64_t after_ms);
void lar_deadline_clear(lar_deadline *d);
/* `closed` runs once, later, with the handle whose data is the owner. */
void lar_deadline_close(lar_deadline *d, uv_close_cb closed);

#endif
