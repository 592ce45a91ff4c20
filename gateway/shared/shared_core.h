/* What shared.c and shared_link.c share. */
#ifndef LARDER_GATEWAY_SHARED_CORE_H
#define LARDER_GATEWAY_SHARED_CORE_H

#include <pthread.h>
#include <stdatomic.h>

#include "gateway/shared/shared.h"
#include "gateway/shared/shared_value.h"

enum { LAR_SHARED_SHARDS = 16, LAR_SHARED_SLOTS = 4096 };

/* When the local value of a key was put, by the larder that put it. A slot holds one key; a newer one takes it. */
typedef struct lar_shared_stamp {
    uint64_t key, stamp;
} lar_shared_stamp;

typedef struct lar_shared_shard {
    _Alignas(64) pthread_mutex_t lock; /* also held while a value is replaced, so that the older never wins */
    lar_shared_stamp slots[LAR_SHARED_SLOTS];
} lar_shared_shard;

struct lar_shared {
    lar_shared_options o;
    lar_tls_context *tls; /* NULL: plain */
    lar_digest secret;    /* of shared_secret; all zero: none */
    atomic_uint_fast64_t clock;
    atomic_int links_up;
    atomic_int said; /* what was logged last: 0 nothing, 1 up, 2 down */
    atomic_uint_fast64_t refused_ns;
    lar_shared_shard shards[LAR_SHARED_SHARDS];
};

/* Stamps are microseconds since 1970, and each is later than every stamp seen before it (a hybrid logical clock,
 * Kulkarni et al. 2014): what is put after another value was read never looks older than it, however far clocks are
 * apart. False: this one lies more than a day ahead, which no clock does that can be trusted. */
LAR_MUST_USE bool lar_shared_stamp_seen(lar_shared *s, uint64_t stamp);

/* A key, and which of the memories it is of. */
typedef struct lar_shared_place {
    lar_hash key;
    lar_shared_kind kind;
} lar_shared_place;

/* Keeps a value that was put here; returns the stamp it got. */
uint64_t lar_shared_keep(lar_shared *s, const lar_shared_place *at, lar_slice value);

typedef enum lar_shared_verdict {
    LAR_SHARED_SAME,  /* nothing to do */
    LAR_SHARED_TAKEN, /* the local value was older, or there was none: it is now this one */
    LAR_SHARED_OLDER  /* the local value is newer: `local` and `stamp` say what it is */
} lar_shared_verdict;
/* Compares a value of the server with the local one. `local` is filled with what is there. */
lar_shared_verdict lar_shared_weigh(lar_shared *s, const lar_shared_place *at, lar_slice value, uint64_t *stamp,
                                    lar_buf *local);
/* The server has none. True if there is a local one: `local` and `stamp` (1: not known) say what it is. */
bool lar_shared_missing(lar_shared *s, const lar_shared_place *at, uint64_t *stamp, lar_buf *local);

/* Once for each change of the whole, not for each link. `why` for DOWN. */
void lar_shared_say_up(lar_shared *s);
void lar_shared_say_down(lar_shared *s, const char *why);
/* The server refused a command: counted, logged at most once a minute with the error's first word. */
void lar_shared_say_refused(lar_shared *s, lar_slice error);

#endif
