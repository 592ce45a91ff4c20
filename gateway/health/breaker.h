/* The health of one upstream, for all loops: a breaker on failures and on slow answers over a window, the pause that
 * the upstream asked for, and a budget of repeated requests.
 *
 * CLOSED: requests go. OPEN: none goes until a time. HALF_OPEN: that time is over; one request goes as a probe, its end
 * decides. Who is refused learns when to come back; a refusal is no failure. The window is LAR_BREAKER_SLICES
 * slices of time, so old failures fall out of it bit by bit.
 *
 * An active probe (a GET of larder's own) may decide instead: while failures hold the breaker open, or once a pause is
 * over that was asked for. What it says is believed until the first request from then on ends: if that fails, the
 * breaker opens again, for twice as long, and active probes close it no more before a request ended well. */
#ifndef LARDER_GATEWAY_BREAKER_H
#define LARDER_GATEWAY_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

enum { LAR_BREAKER_SLICES = 10 };

typedef struct lar_breaker_options {
    uint32_t window_ms;
    uint32_t requests_min;    /* with fewer ended in the window, only a pause that was asked for opens it */
    uint32_t failure_percent; /* 1 to 100: of them failed, at least: opens it; 0: failures never do */
    uint32_t slow_ms;         /* until the first content; over it an answer is slow; 0: none is */
    uint32_t slow_percent;    /* 1 to 100: of them slow, at least: opens it; 0: never */
    uint32_t open_ms;         /* how long it stays open at first; twice as long after each failed probe, */
    uint32_t open_ms_max;     /* to this; also the longest pause that an upstream can ask for. 0: it never opens */
    uint32_t retry_percent;   /* repeated requests to this many of a hundred, */
    uint32_t retries_min;     /* and beyond them so many in a window */
} lar_breaker_options;

typedef enum lar_breaker_state { LAR_BREAKER_CLOSED, LAR_BREAKER_OPEN, LAR_BREAKER_HALF_OPEN } lar_breaker_state;
const char *lar_breaker_state_name(lar_breaker_state s);

typedef struct lar_breaker lar_breaker;

/* Heap; NULL when out of memory. Any thread may use it; the calls take a lock for some dozen instructions. */
lar_breaker *lar_breaker_new(const lar_breaker_options *o);
void lar_breaker_free(lar_breaker *b); /* NULL is allowed */
/* A reload's new values; what is known stays. */
void lar_breaker_set(lar_breaker *b, const lar_breaker_options *o);

typedef enum lar_breaker_leave { LAR_LEAVE_YES, LAR_LEAVE_PROBE, LAR_LEAVE_NO } lar_breaker_leave;
/* May a request go now? Every YES and PROBE is answered by one lar_breaker_tell. NO: *wait_ms, at least 1, is when to
 * ask again. `now_ms`: monotonic, everywhere here. */
lar_breaker_leave lar_breaker_ask(lar_breaker *b, uint64_t now_ms, uint32_t *wait_ms);
/* The same for the last target there is: failures alone never shut the only door, since there is nothing better
 * to be had behind it; while one request is the probe the others go as well. NO remains where the upstream asked to be
 * left alone. */
lar_breaker_leave lar_breaker_ask_last(lar_breaker *b, uint64_t now_ms, uint32_t *wait_ms);

typedef enum lar_breaker_outcome {
    LAR_OUTCOME_OK,
    LAR_OUTCOME_FAILED,
    LAR_OUTCOME_REFUSED, /* it asked for a pause; one that names no time FAILED */
    LAR_OUTCOME_NONE     /* nothing can be said: the client left, the request's own fault */
} lar_breaker_outcome;

typedef struct lar_breaker_end {
    lar_breaker_leave leave; /* what ask had said, */
    uint64_t asked_ms;       /* and when */
    lar_breaker_outcome outcome;
    uint32_t first_ms; /* until the first content; UINT32_MAX: there was none */
    uint32_t pause_ms; /* REFUSED: what it asked for */
} lar_breaker_end;
void lar_breaker_tell(lar_breaker *b, uint64_t now_ms, const lar_breaker_end *end);

/* May an active probe go now? True is answered by one lar_breaker_tell_active: OK, FAILED, or NONE where nothing can be
 * said. Meanwhile no request goes as a probe. */
bool lar_breaker_ask_active(lar_breaker *b, uint64_t now_ms);
/* Whether that closed it. */
bool lar_breaker_tell_active(lar_breaker *b, uint64_t now_ms, lar_breaker_outcome outcome);

/* Takes one repeated request out of the budget. False: it is empty. */
bool lar_breaker_retry(lar_breaker *b, uint64_t now_ms);

typedef struct lar_breaker_look {
    lar_breaker_state state;
    uint32_t wait_ms;                         /* OPEN: until it is half open */
    uint32_t requests, failed, slow, retries; /* in the window */
    uint64_t opened;                          /* times, in all */
} lar_breaker_look;
/* For metrics and people; changes nothing. */
lar_breaker_look lar_breaker_look_at(lar_breaker *b, uint64_t now_ms);

#endif
