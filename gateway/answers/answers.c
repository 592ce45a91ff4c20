/* One lock around the table of answers and the requests under way that others wait for ("flights").
 * Called by exchange_answers.c on every loop. Any thread; the lock is held for look-ups and list moves only.
 * Why one lock and not one a shard: a look-up and the joining of a flight must be one step, else two identical requests
 * both go upstream; and the table is exact about what was used last. It is held for less than a read from a socket
 * takes. Invariants: 1. a flight has a leader from its first request to its end, and is freed with it. 2. a seat is
 * at one place: leading, waiting in a flight, called at its door, or nowhere. 3. doors are rung under the lock, so
 * that no bell rings after its last seat has left. Memory: flights on the heap; without memory for one a request goes
 * alone. */
#include "gateway/answers/answers.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"

enum { FLIGHT_BUCKETS = 1024, FAILURES_MAX = 2 };

struct lar_answers_flight {
    lar_digest key;
    lar_answers_seat *first, *last; /* who wait, in the order in which they came */
    uint32_t failures;
    lar_answers_flight *chain;
};

struct lar_answers {
    pthread_mutex_t lock;
    lar_metrics *metrics;
    lar_answers_table table;
    lar_answers_flight *flights[FLIGHT_BUCKETS];
    uint64_t evicted_told;
};

lar_answers *lar_answers_new(lar_metrics *metrics, uint64_t bytes_max) {
    lar_answers *a = calloc(1, sizeof *a);
    if (!a) return NULL;
    LAR_ASSERT(pthread_mutex_init(&a->lock, NULL) == 0);
    a->metrics = metrics;
    lar_answers_table_init(&a->table, bytes_max);
    return a;
}

void lar_answers_free(lar_answers *a) {
    if (!a) return;
    for (uint32_t i = 0; i < FLIGHT_BUCKETS; i++) LAR_ASSERT(!a->flights[i]);
    lar_answers_table_release(&a->table);
    (void)pthread_mutex_destroy(&a->lock);
    free(a);
}

/* Under the lock, and unlocks. */
static void tell_metrics_and_unlock(lar_answers *a) {
    uint64_t bytes = a->table.bytes, count = a->table.count, evicted = a->table.evicted - a->evicted_told;
    a->evicted_told = a->table.evicted;
    lar_metrics_set(a->metrics, LAR_METRIC_ANSWERS_BYTES, (int64_t)bytes);
    lar_metrics_set(a->metrics, LAR_METRIC_ANSWERS_KEPT, (int64_t)count);
    if (evicted) lar_metrics_add(a->metrics, LAR_METRIC_ANSWERS_EVICTED_TOTAL, (int64_t)evicted);
    (void)pthread_mutex_unlock(&a->lock);
}

void lar_answers_limit(lar_answers *a, uint64_t bytes_max) {
    (void)pthread_mutex_lock(&a->lock);
    lar_answers_table_limit(&a->table, bytes_max);
    tell_metrics_and_unlock(a);
}

/* -- seats ------------------------------------------------------------------------------------------------------- */

static void append(lar_answers_seat **first, lar_answers_seat **last, lar_answers_seat *s) {
    s->prev = *last;
    s->next = NULL;
    if (*last) (*last)->next = s;
    else *first = s;
    *last = s;
}

static void take_out(lar_answers_seat **first, lar_answers_seat **last, lar_answers_seat *s) {
    if (s->prev) s->prev->next = s->next;
    else *first = s->next;
    if (s->next) s->next->prev = s->prev;
    else *last = s->prev;
    s->prev = s->next = NULL;
}

/* Out of the flight and to the door. `answer` NULL and not `leads`: to go alone. */
static void call(lar_answers_flight *f, lar_answers_seat *s, lar_kept *answer, bool leads) {
    take_out(&f->first, &f->last, s);
    s->role = LAR_ANSWERS_CALLED;
    s->answer = answer ? lar_kept_ref(answer) : NULL;
    s->leads = leads;
    s->flight = leads ? f : NULL;
    append(&s->door->first, &s->door->last, s);
    s->door->ring(s->door->bell);
}

/* -- flights ----------------------------------------------------------------------------------------------------- */

static lar_answers_flight **bucket_of(lar_answers *a, const lar_digest *key) {
    uint32_t low;
    memcpy(&low, key->bytes + 8, sizeof low);
    return &a->flights[low % FLIGHT_BUCKETS];
}

static lar_answers_flight *find_flight(lar_answers *a, const lar_digest *key) {
    lar_answers_flight *f = *bucket_of(a, key);
    while (f && !lar_digest_eq(&f->key, key)) f = f->chain;
    return f;
}

/* All who wait are called with the answer, or to go alone; the flight is over. */
static void land(lar_answers *a, lar_answers_flight *f, lar_kept *answer) {
    while (f->first) call(f, f->first, answer, false);
    lar_answers_flight **at = bucket_of(a, &f->key);
    while (*at != f) at = &(*at)->chain;
    *at = f->chain;
    free(f);
}

/* Whoever waits longest leads. */
static void pass_on(lar_answers *a, lar_answers_flight *f) {
    if (f->first) call(f, f->first, NULL, true);
    else land(a, f, NULL);
}

static lar_answers_said join_or_lead(lar_answers *a, lar_answers_seat *s, const lar_digest *key) {
    lar_answers_flight *f = find_flight(a, key);
    if (f) {
        append(&f->first, &f->last, s);
        s->flight = f;
        s->role = LAR_ANSWERS_WAITER;
        return LAR_ANSWERS_WAITS;
    }
    f = calloc(1, sizeof *f);
    if (!f) return LAR_ANSWERS_ALONE;
    f->key = *key;
    f->chain = *bucket_of(a, key);
    *bucket_of(a, key) = f;
    s->flight = f;
    s->role = LAR_ANSWERS_LEADER;
    return LAR_ANSWERS_LEADS;
}

/* -- what requests do -------------------------------------------------------------------------------------------- */

lar_answers_said lar_answers_ask(lar_answers *a, lar_answers_seat *s, const lar_answers_question *q,
                                 lar_kept **answer) {
    lar_answers_said said = LAR_ANSWERS_ALONE;
    LAR_ASSERT(s->role == LAR_ANSWERS_NOBODY);
    (void)pthread_mutex_lock(&a->lock);
    lar_kept *k = lar_answers_table_find(&a->table, q->key, q->now_ms);
    *answer = k ? lar_kept_ref(k) : NULL;
    if (k) said = LAR_ANSWERS_FOUND;
    else if (q->share) said = join_or_lead(a, s, q->key);
    tell_metrics_and_unlock(a);
    return said;
}

void lar_answers_keep(lar_answers *a, lar_answers_seat *s, lar_kept *answer) {
    (void)pthread_mutex_lock(&a->lock);
    bool kept = lar_answers_table_put(&a->table, answer) == LAR_OK;
    if (s->role == LAR_ANSWERS_LEADER) {
        lar_answers_flight *f = s->flight;
        s->role = LAR_ANSWERS_NOBODY;
        s->flight = NULL;
        land(a, f, answer);
    }
    tell_metrics_and_unlock(a);
    if (kept) lar_metrics_add(a->metrics, LAR_METRIC_ANSWERS_STORED_TOTAL, 1);
}

/* Under the lock. */
static void end_lead(lar_answers *a, lar_answers_seat *s, lar_answers_end_kind kind) {
    lar_answers_flight *f = s->flight;
    s->role = LAR_ANSWERS_NOBODY;
    s->flight = NULL;
    if (kind == LAR_ANSWERS_FAILED) f->failures++;
    if (kind == LAR_ANSWERS_UNFIT || f->failures >= FAILURES_MAX) land(a, f, NULL);
    else pass_on(a, f);
}

void lar_answers_end(lar_answers *a, lar_answers_seat *s, lar_answers_end_kind kind) {
    if (s->role != LAR_ANSWERS_LEADER) return;
    (void)pthread_mutex_lock(&a->lock);
    end_lead(a, s, kind);
    (void)pthread_mutex_unlock(&a->lock);
}

bool lar_answers_awaited(lar_answers *a, lar_answers_seat *s) {
    if (s->role != LAR_ANSWERS_LEADER) return false;
    (void)pthread_mutex_lock(&a->lock);
    bool awaited = s->flight->first != NULL;
    if (!awaited) end_lead(a, s, LAR_ANSWERS_LEFT);
    (void)pthread_mutex_unlock(&a->lock);
    return awaited;
}

void lar_answers_leave(lar_answers *a, lar_answers_seat *s) {
    (void)pthread_mutex_lock(&a->lock);
    if (s->role == LAR_ANSWERS_WAITER) {
        take_out(&s->flight->first, &s->flight->last, s);
        s->role = LAR_ANSWERS_NOBODY;
        s->flight = NULL;
    } else if (s->role == LAR_ANSWERS_CALLED) {
        take_out(&s->door->first, &s->door->last, s);
        lar_kept_unref(s->answer);
        s->answer = NULL;
        s->role = LAR_ANSWERS_NOBODY;
        if (s->leads) end_lead(a, s, LAR_ANSWERS_LEFT);
    }
    (void)pthread_mutex_unlock(&a->lock);
}

lar_answers_seat *lar_answers_called(lar_answers *a, lar_answers_door *door, lar_kept **answer) {
    (void)pthread_mutex_lock(&a->lock);
    lar_answers_seat *s = door->first;
    *answer = NULL;
    if (s) {
        take_out(&door->first, &door->last, s);
        *answer = s->answer;
        s->answer = NULL;
        s->role = s->leads ? LAR_ANSWERS_LEADER : LAR_ANSWERS_NOBODY;
    }
    (void)pthread_mutex_unlock(&a->lock);
    return s;
}
