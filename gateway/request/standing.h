/* How each upstream stands: its breaker and how much it is asked, one for all loops and generations, by name
 * and place. */
#ifndef LARDER_GATEWAY_STANDING_H
#define LARDER_GATEWAY_STANDING_H

#include <pthread.h>
#include <stdatomic.h>

#include "gateway/config/config.h"
#include "gateway/health/breaker.h"
#include "gateway/health/failure.h"

typedef struct lar_standing {
    const char *name; /* owned */
    lar_breaker *breaker;
    atomic_uint load; /* requests under way */
    uint64_t id;      /* a hash of its URL: the same in every process */
    /* In all, for operators (standing_report.c): what went to it, what of that failed, was repeated, went elsewhere. */
    atomic_ullong attempts, failures[LAR_FAILURE_COUNT], repeated, fallback, continued;
    atomic_ullong probes, probes_failed; /* active ones (probe.c) */
    uint32_t users;            /* guarded by the list's lock */
    struct lar_standing *next; /* likewise */
} lar_standing;

enum { LAR_STICKY_SLOTS = 1 << 14 };

/* Zero-initialised; released once no loop runs. */
typedef struct lar_standings {
    pthread_mutex_t lock;
    lar_standing *first; /* guarded by lock */
    /* Which replica a conversation went to, by its hash: 48 bits of it, and 16 of the replica's id. */
    atomic_ullong sticky[LAR_STICKY_SLOTS];
} lar_standings;

/* All of these: any thread. A standing that was got or found stays until it is put; an upstream that no loop and no
 * generation names any more is forgotten then, so that reloads leave nothing behind. */

/* Of this upstream; its options are what `u` says from now on. NULL when out of memory. */
lar_standing *lar_standings_get(lar_standings *s, const lar_upstream_config *u);
/* Of this upstream, or NULL if no loop has taken it up. */
lar_standing *lar_standings_find(lar_standings *s, const lar_upstream_config *u);
/* NULL is allowed. */
void lar_standings_put(lar_standings *s, lar_standing *t);
void lar_standings_init(lar_standings *s);
/* All are put. */
void lar_standings_release(lar_standings *s);

/* The id of the replica that the conversation went to last (its lower 16 bits), or 0. */
uint16_t lar_sticky_get(lar_standings *s, uint64_t conversation);
void lar_sticky_set(lar_standings *s, uint64_t conversation, uint64_t id);
/* It failed there. */
void lar_sticky_forget(lar_standings *s, uint64_t conversation);

#endif
