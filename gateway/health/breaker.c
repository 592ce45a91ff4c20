/* A breaker with a sliding window, a probe, and a budget of repeated requests.
 * Called at the begin and end of each attempt by all loops, and for metrics. Time is passed in.
 * Threads: one lock, held for sums only; never blocks on anything else.
 * Invariants: 1. at most one probe is under way; who asks for leave and is given it tells how it ended. 2. an outcome
 * that was under way when the breaker opened, and ends well, does not close it: only the probe does.
 * Memory: one allocation. Not here: which failures count (failure.def). */
#include "gateway/health/breaker.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"

typedef struct slice {
    uint64_t number; /* of the slice of time that the counts belong to */
    uint32_t requests, failed, slow, retries;
} slice;

struct lar_breaker {
    pthread_mutex_t lock;
    lar_breaker_options o;
    slice slices[LAR_BREAKER_SLICES];
    uint64_t open_until_ms; /* 0: closed */
    uint32_t open_ms;       /* how long it opened last; 0: it was closed since */
    bool asked;             /* it is open because the upstream asked for it */
    bool probing;
    bool doubted;        /* an active probe was wrong: until a request has ended well they close nothing */
    uint64_t trusted_ms; /* since when it is closed on the word of an active probe; 0: it is not */
    uint64_t opened;
};

const char *lar_breaker_state_name(lar_breaker_state s) {
    static const char *const names[] = {"closed", "open", "half_open"};
    return names[s];
}

lar_breaker *lar_breaker_new(const lar_breaker_options *o) {
    lar_breaker *b = calloc(1, sizeof *b);
    if (!b) return NULL;
    if (pthread_mutex_init(&b->lock, NULL) != 0) {
        free(b);
        return NULL;
    }
    b->o = *o;
    for (int i = 0; i < LAR_BREAKER_SLICES; i++) b->slices[i].number = UINT64_MAX;
    return b;
}

void lar_breaker_free(lar_breaker *b) {
    if (!b) return;
    (void)pthread_mutex_destroy(&b->lock);
    free(b);
}

static void lock(lar_breaker *b) { LAR_ASSERT(pthread_mutex_lock(&b->lock) == 0); }
static void unlock(lar_breaker *b) { LAR_ASSERT(pthread_mutex_unlock(&b->lock) == 0); }

static uint64_t slice_ms(const lar_breaker *b) {
    uint32_t ms = b->o.window_ms / LAR_BREAKER_SLICES;
    return ms ? ms : 1;
}

void lar_breaker_set(lar_breaker *b, const lar_breaker_options *o) {
    lock(b);
    if (o->window_ms != b->o.window_ms) /* slices of another length are other numbers */
        for (int i = 0; i < LAR_BREAKER_SLICES; i++) b->slices[i].number = UINT64_MAX;
    b->o = *o;
    unlock(b);
}

/* The counts of now. */
static slice *present(lar_breaker *b, uint64_t now_ms) {
    uint64_t number = now_ms / slice_ms(b);
    slice *s = &b->slices[number % LAR_BREAKER_SLICES];
    if (s->number != number) *s = (slice){.number = number};
    return s;
}

static slice sum(const lar_breaker *b, uint64_t now_ms) {
    uint64_t number = now_ms / slice_ms(b);
    slice all = {0};
    for (int i = 0; i < LAR_BREAKER_SLICES; i++) {
        const slice *s = &b->slices[i];
        if (s->number > number || number - s->number >= LAR_BREAKER_SLICES) continue;
        all.requests += s->requests, all.failed += s->failed, all.slow += s->slow, all.retries += s->retries;
    }
    return all;
}

static void forget(lar_breaker *b) {
    for (int i = 0; i < LAR_BREAKER_SLICES; i++) b->slices[i].requests = b->slices[i].failed = b->slices[i].slow = 0;
}

static void open_for(lar_breaker *b, uint64_t now_ms, uint32_t ms) {
    if (!b->o.open_ms_max) return;
    if (ms > b->o.open_ms_max) ms = b->o.open_ms_max;
    if (!ms) ms = 1;
    if (!b->open_until_ms) b->opened++;
    if (b->open_until_ms < now_ms + ms) b->open_until_ms = now_ms + ms;
}

static void open_by_failure(lar_breaker *b, uint64_t now_ms) {
    uint32_t twice = b->open_ms > b->o.open_ms_max / 2 ? b->o.open_ms_max : b->open_ms * 2;
    b->open_ms = b->open_ms ? twice : b->o.open_ms;
    b->asked = false;
    b->trusted_ms = 0;
    open_for(b, now_ms, b->open_ms);
}

static lar_breaker_leave ask(lar_breaker *b, uint64_t now_ms, bool last, uint32_t *wait_ms) {
    if (!b->open_until_ms) return LAR_LEAVE_YES;
    bool over = now_ms >= b->open_until_ms || (last && !b->asked);
    if (over && !b->probing) {
        b->probing = true;
        return LAR_LEAVE_PROBE;
    }
    if (last && (over || !b->asked)) return LAR_LEAVE_YES;
    uint64_t left = now_ms >= b->open_until_ms ? b->o.open_ms : b->open_until_ms - now_ms;
    *wait_ms = left < 1 ? 1 : left > UINT32_MAX ? UINT32_MAX : (uint32_t)left;
    return LAR_LEAVE_NO;
}

lar_breaker_leave lar_breaker_ask(lar_breaker *b, uint64_t now_ms, uint32_t *wait_ms) {
    lock(b);
    lar_breaker_leave leave = ask(b, now_ms, false, wait_ms);
    unlock(b);
    return leave;
}

lar_breaker_leave lar_breaker_ask_last(lar_breaker *b, uint64_t now_ms, uint32_t *wait_ms) {
    lock(b);
    lar_breaker_leave leave = ask(b, now_ms, true, wait_ms);
    unlock(b);
    return leave;
}

static bool over(uint32_t part, uint32_t all, uint32_t percent) {
    return percent && (uint64_t)part * 100 >= (uint64_t)all * percent;
}

static void count(lar_breaker *b, uint64_t now_ms, const lar_breaker_end *end) {
    slice *s = present(b, now_ms);
    bool failed = end->outcome != LAR_OUTCOME_OK;
    bool slow = !failed && b->o.slow_ms && end->first_ms != UINT32_MAX && end->first_ms > b->o.slow_ms;
    s->requests++;
    s->failed += failed;
    s->slow += slow;
    slice all = sum(b, now_ms);
    if (b->open_until_ms || all.requests < b->o.requests_min) return;
    /* a good answer opens nothing, though older ones have just left the window that outnumbered the failures */
    if ((failed && over(all.failed, all.requests, b->o.failure_percent)) ||
        (slow && over(all.slow, all.requests, b->o.slow_percent)))
        open_by_failure(b, now_ms);
}

/* The word of an active probe, against what a request met that asked since. */
static void check_trust(lar_breaker *b, uint64_t now_ms, const lar_breaker_end *end) {
    if (end->outcome == LAR_OUTCOME_OK) b->doubted = false;
    if (!b->trusted_ms || end->asked_ms < b->trusted_ms) return;
    b->trusted_ms = 0;
    if (end->outcome == LAR_OUTCOME_OK) b->open_ms = 0;
    else b->doubted = true;
    if (end->outcome == LAR_OUTCOME_FAILED) open_by_failure(b, now_ms);
}

/* The probe's end decides. */
static void end_probe(lar_breaker *b, uint64_t now_ms, const lar_breaker_end *end) {
    b->probing = false;
    if (end->outcome == LAR_OUTCOME_OK) {
        b->open_until_ms = 0;
        b->open_ms = 0;
        b->asked = false;
        forget(b);
    } else if (end->outcome == LAR_OUTCOME_FAILED) {
        open_by_failure(b, now_ms);
    }
}

void lar_breaker_tell(lar_breaker *b, uint64_t now_ms, const lar_breaker_end *end) {
    lock(b);
    if (end->leave == LAR_LEAVE_PROBE) end_probe(b, now_ms, end);
    if (end->outcome != LAR_OUTCOME_NONE && end->leave != LAR_LEAVE_NO) {
        check_trust(b, now_ms, end);
        count(b, now_ms, end);
    }
    if (end->outcome == LAR_OUTCOME_REFUSED && end->leave != LAR_LEAVE_NO) {
        b->asked = true;
        open_for(b, now_ms, end->pause_ms);
    }
    unlock(b);
}

bool lar_breaker_ask_active(lar_breaker *b, uint64_t now_ms) {
    lock(b);
    bool may = b->open_until_ms && !b->probing && !(b->asked && now_ms < b->open_until_ms);
    if (may) b->probing = true;
    unlock(b);
    return may;
}

bool lar_breaker_tell_active(lar_breaker *b, uint64_t now_ms, lar_breaker_outcome outcome) {
    lock(b);
    b->probing = false;
    /* a request that was under way may have opened it for a pause meanwhile */
    bool closes =
        outcome == LAR_OUTCOME_OK && !b->doubted && b->open_until_ms && !(b->asked && now_ms < b->open_until_ms);
    if (closes) {
        b->open_until_ms = 0;
        b->asked = false;
        b->trusted_ms = now_ms ? now_ms : 1;
        forget(b);
    } else if (outcome == LAR_OUTCOME_FAILED && b->open_until_ms && !b->asked) {
        open_by_failure(b, now_ms);
    }
    unlock(b);
    return closes;
}

bool lar_breaker_retry(lar_breaker *b, uint64_t now_ms) {
    lock(b);
    slice all = sum(b, now_ms);
    bool allowed = (uint64_t)all.retries * 100 < (uint64_t)all.requests * b->o.retry_percent + b->o.retries_min * 100u;
    if (allowed) present(b, now_ms)->retries++;
    unlock(b);
    return allowed;
}

lar_breaker_look lar_breaker_look_at(lar_breaker *b, uint64_t now_ms) {
    lock(b);
    slice all = sum(b, now_ms);
    lar_breaker_look look = {
        .requests = all.requests, .failed = all.failed, .slow = all.slow, .retries = all.retries, .opened = b->opened};
    if (b->open_until_ms) {
        look.state = now_ms >= b->open_until_ms ? LAR_BREAKER_HALF_OPEN : LAR_BREAKER_OPEN;
        if (look.state == LAR_BREAKER_OPEN) look.wait_ms = (uint32_t)(b->open_until_ms - now_ms);
    }
    unlock(b);
    return look;
}
