/* The lazy deadline: see deadline.h. Loop thread only; never blocks; no memory of its own.
 * Invariant: if at_ms is set, the timer is active and armed_ms <= at_ms. */
#include "gateway/net/deadline.h"

#include "base/ensure.h"

void lar_deadline_init(lar_deadline *d, uv_loop_t *loop, void (*on_due)(void *owner), void *owner) {
    *d = (lar_deadline){.on_due = on_due, .owner = owner};
    LAR_ASSERT(uv_timer_init(loop, &d->timer) == 0);
    d->timer.data = owner;
}

static void fire(uv_timer_t *t) {
    lar_deadline *d = (lar_deadline *)t; /* the timer is the first member */
    uint64_t now = uv_now(t->loop);
    d->armed_ms = 0;
    if (!d->at_ms) return;
    if (now < d->at_ms) {
        d->armed_ms = d->at_ms;
        LAR_ASSERT(uv_timer_start(t, fire, d->at_ms - now, 0) == 0);
        return;
    }
    d->at_ms = 0;
    d->on_due(d->owner);
}

void lar_deadline_set(lar_deadline *d, uint64_t after_ms) {
    uint64_t now = uv_now(d->timer.loop);
    d->at_ms = now + (after_ms ? after_ms : 1);
    if (d->armed_ms && d->armed_ms <= d->at_ms) return;
    d->armed_ms = d->at_ms;
    LAR_ASSERT(uv_timer_start(&d->timer, fire, d->at_ms - now, 0) == 0);
}

void lar_deadline_clear(lar_deadline *d) { d->at_ms = 0; }

void lar_deadline_close(lar_deadline *d, uv_close_cb closed) {
    d->at_ms = 0;
    uv_close((uv_handle_t *)&d->timer, closed);
}
