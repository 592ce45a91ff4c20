/* Keeps prefixes warm (header: warmth.h). Called by the gateway's loops with what goes by; a thread of its own looks
 * several times a second whether the model is idle, and computes one prefix after the other.
 * Flow: lar_warmth_note, lar_warmth_text -> the table; the thread -> lar_answer_new, _start -> the scheduler -> on_end.
 * A request that comes meanwhile stops it within a step of the model (lar_resident_asked in resident_gate.c).
 * Why a whole answer of one token: what is computed is then what requests read and render, and pages are kept by the
 * scheduler as ever. One that is warm already costs a step of a few tokens, and its pages count as used again.
 * Invariants: 1. one prefix at a time, and none while a request is under way. 2. a text is used in its own scope only.
 * 3. nothing of a text is logged. Memory: LAR_WARMTH_ALL_BYTES_MAX; the least recently used go first. */
#include "gateway/resident/warmth.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/ensure.h"

enum { TICK_MS = 100, IDLE_MS = 500, ENTRIES_EACH = 4, ENTRIES_MIN = 16, FADE_EVERY = 1024 };

typedef struct entry {
    lar_digest scope;
    uint64_t prefix, used; /* used: number of the note that named it last */
    uint64_t asked;        /* how many requests the model had had when it was warmed; UINT64_MAX: never */
    uint32_t uses;
    bool taken, unfit; /* unfit: no text, or the model refuses it */
    char *text;
    size_t len;
} entry;

struct lar_warmth {
    lar_resident *resident;
    uint32_t prefixes, cap;
    pthread_t thread;
    /* of the thread, under the resident's lock */
    bool stopping, ended;
    lar_answer_end end;
    pthread_mutex_t lock; /* guards from here */
    entry *entries;       /* (cap) */
    uint64_t notes;
    size_t bytes;
    lar_warmth_counts counts;
};

static void lock(lar_warmth *w) { LAR_ASSERT(pthread_mutex_lock(&w->lock) == 0); }
static void unlock(lar_warmth *w) { LAR_ASSERT(pthread_mutex_unlock(&w->lock) == 0); }

/* -- the table; with the lock ---------------------------------------------------------------------------------------*/

static entry *find(const lar_warmth *w, const lar_digest *scope, uint64_t prefix) {
    for (uint32_t i = 0; i < w->cap; i++) {
        entry *e = &w->entries[i];
        if (e->taken && e->prefix == prefix && lar_digest_eq(&e->scope, scope)) return e;
    }
    return NULL;
}

static void drop(lar_warmth *w, entry *e) {
    w->bytes -= e->len;
    w->counts.prefixes -= e->text != NULL;
    free(e->text);
    *e = (entry){.taken = false};
}

/* A free place, or that of the one which was used least recently. */
static entry *make_place(lar_warmth *w) {
    entry *oldest = NULL;
    for (uint32_t i = 0; i < w->cap; i++) {
        entry *e = &w->entries[i];
        if (!e->taken) return e;
        if (!oldest || e->used < oldest->used) oldest = e;
    }
    drop(w, oldest);
    return oldest;
}

/* So that what was used long ago does not stay in front for ever. */
static void fade(lar_warmth *w) {
    for (uint32_t i = 0; i < w->cap; i++) w->entries[i].uses -= w->entries[i].uses / 2;
}

bool lar_warmth_note(lar_warmth *w, const lar_digest *scope, uint64_t prefix, uint32_t seen) {
    lock(w);
    if (++w->notes % FADE_EVERY == 0) fade(w);
    entry *e = find(w, scope, prefix);
    if (!e) {
        e = make_place(w);
        *e = (entry){.taken = true, .scope = *scope, .prefix = prefix, .asked = UINT64_MAX, .uses = seen};
    }
    e->used = w->notes;
    if (e->uses < UINT32_MAX) e->uses++;
    bool wanted = !e->text && !e->unfit;
    unlock(w);
    return wanted;
}

static void make_room(lar_warmth *w, size_t bytes, const entry *keep) {
    while (w->bytes + bytes > LAR_WARMTH_ALL_BYTES_MAX) {
        entry *oldest = NULL;
        for (uint32_t i = 0; i < w->cap; i++) {
            entry *e = &w->entries[i];
            if (e->text && e != keep && (!oldest || e->used < oldest->used)) oldest = e;
        }
        LAR_ASSERT(oldest); /* one text is far smaller than all may be */
        drop(w, oldest);
    }
}

void lar_warmth_text(lar_warmth *w, const lar_digest *scope, uint64_t prefix, lar_slice body) {
    lock(w);
    entry *e = find(w, scope, prefix);
    bool fits = body.len && body.len <= LAR_WARMTH_TEXT_BYTES_MAX;
    if (e && !e->text && fits) {
        make_room(w, body.len, e);
        e->text = malloc(body.len);
        if (e->text) {
            memcpy(e->text, body.ptr, body.len);
            e->len = body.len;
            w->bytes += body.len;
            w->counts.prefixes++;
        }
    } else if (e && !e->text) {
        e->unfit = true;
    }
    unlock(w);
}

lar_warmth_counts lar_warmth_counts_of(lar_warmth *w) {
    lock(w);
    lar_warmth_counts c = w->counts;
    unlock(w);
    return c;
}

/* -- what is next ------------------------------------------------------------------------------------------------- */

static bool before(const entry *a, const entry *b) {
    return a->uses != b->uses ? a->uses > b->uses : a->used > b->used;
}

/* Is it of the most used ones? */
static bool is_kept(const lar_warmth *w, const entry *e) {
    uint32_t ahead = 0;
    for (uint32_t i = 0; i < w->cap; i++) {
        const entry *other = &w->entries[i];
        ahead += other->text && !other->unfit && other != e && before(other, e);
    }
    return ahead < w->prefixes;
}

/* The most used one that is not known to be warm: every request to the model since may have taken its pages. *text is
 * the caller's. False: there is none. */
static bool next(lar_warmth *w, uint64_t asked, entry *out) {
    const entry *best = NULL;
    bool found = false;
    lock(w);
    for (uint32_t i = 0; i < w->cap; i++) {
        const entry *e = &w->entries[i];
        if (!e->text || e->unfit || e->asked == asked || !is_kept(w, e)) continue;
        if (!best || before(e, best)) best = e;
    }
    if (best) {
        *out = *best;
        out->text = malloc(best->len);
        found = out->text != NULL;
        if (found) memcpy(out->text, best->text, best->len);
    }
    unlock(w);
    return found;
}

static void settle(lar_warmth *w, const entry *e, uint64_t asked, bool fit) {
    lock(w);
    entry *now = find(w, &e->scope, e->prefix);
    if (now) now->asked = asked;
    if (now && !fit) now->unfit = true;
    unlock(w);
}

/* -- the thread --------------------------------------------------------------------------------------------------- */

static void on_head(void *user, const lar_answer_head *h) { (void)user, (void)h; }
static void on_bytes(void *user, lar_slice bytes) { (void)user, (void)bytes; }

static void on_end(void *user, const lar_answer_end *e) {
    lar_warmth *w = user;
    lar_resident *r = w->resident;
    LAR_ASSERT(pthread_mutex_lock(&r->lock) == 0);
    w->end = *e;
    w->ended = true;
    (void)pthread_cond_broadcast(&r->news);
    LAR_ASSERT(pthread_mutex_unlock(&r->lock) == 0);
}

/* Waits until the answer has ended; sooner, where `patient` is false and a request has come. Returns whether it has. */
static bool wait_end(lar_warmth *w, uint64_t asked, bool patient) {
    lar_resident *r = w->resident;
    LAR_ASSERT(pthread_mutex_lock(&r->lock) == 0);
    while (!w->ended && (patient || (!w->stopping && atomic_load(&r->asked) == asked)))
        (void)pthread_cond_wait(&r->news, &r->lock);
    bool ended = w->ended;
    LAR_ASSERT(pthread_mutex_unlock(&r->lock) == 0);
    return ended;
}

static void count(lar_warmth *w, bool stopped) {
    uint32_t computed = w->end.prompt_tokens - w->end.cached_tokens;
    lock(w);
    w->counts.stopped += stopped;
    /* of one that was warm the last page is computed again: less than a page of tokens */
    if (!stopped && computed > LAR_PAGE_TOKENS) {
        w->counts.warmed++;
        w->counts.tokens += computed;
    }
    unlock(w);
}

static void play(lar_warmth *w, const entry *e, lar_answer *answer, uint64_t asked) {
    lar_resident *r = w->resident;
    w->ended = false;
    atomic_store(&r->warming, true);
    lar_answer_start(answer, r->scheduler);
    bool stopped = !wait_end(w, asked, false);
    if (stopped) lar_answer_cancel(answer);
    (void)wait_end(w, asked, true);
    atomic_store(&r->warming, false);
    stopped = stopped && w->end.error == LAR_CLIENT_GONE;
    count(w, stopped);
    if (!stopped) settle(w, e, asked, w->end.status == 200);
}

static void warm(lar_warmth *w, const entry *e, uint64_t asked) {
    lar_resident *r = w->resident;
    lar_answer_sink sink = {w, on_head, on_bytes, on_end};
    lar_answer *answer = NULL;
    int64_t now = lar_clock_wall_ms() / 1000;
    struct tm local = {0};
    time_t seconds = (time_t)now;
    lar_serving_ask ask = {.endpoint = LAR_SERVING_CHAT,
                           .body = lar_slice_of(e->text, e->len),
                           .scope = e->scope,
                           .now = now,
                           .local_now = now + (localtime_r(&seconds, &local) ? local.tm_gmtoff : 0)};
    if (lar_answer_new(r->serving, &ask, &sink, &answer)) return; /* no memory now */
    if (lar_answer_has_jobs(answer)) play(w, e, answer, asked);
    else settle(w, e, asked, false);
    lar_answer_free(answer);
}

static bool has_nothing_to_do(const lar_resident *r) {
    if (!lar_resident_is_ready(r) || atomic_load(&r->preparing)) return false;
    lar_scheduler_counts c = lar_scheduler_counts_of(r->scheduler);
    return !c.waiting && !c.prefilling && !c.decoding;
}

/* False: it is to end. */
static bool tick(lar_warmth *w) {
    lar_resident *r = w->resident;
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += TICK_MS * 1000000L;
    if (until.tv_nsec >= 1000000000L) until.tv_nsec -= 1000000000L, until.tv_sec++;
    LAR_ASSERT(pthread_mutex_lock(&r->lock) == 0);
    if (!w->stopping) (void)pthread_cond_timedwait(&r->news, &r->lock, &until);
    bool on = !w->stopping;
    LAR_ASSERT(pthread_mutex_unlock(&r->lock) == 0);
    return on;
}

static void *thread_main(void *arg) {
    lar_warmth *w = arg;
    lar_resident *r = w->resident;
    uint64_t since_ns = lar_clock_mono_ns(), seen = atomic_load(&r->asked);
    while (tick(w)) {
        entry e;
        uint64_t asked = atomic_load(&r->asked), now_ns = lar_clock_mono_ns();
        if (asked != seen || !has_nothing_to_do(r)) since_ns = now_ns;
        seen = asked;
        if (now_ns - since_ns < IDLE_MS * 1000000ull || !next(w, asked, &e)) continue;
        warm(w, &e, asked);
        free(e.text);
    }
    return NULL;
}

/* -- open and close ----------------------------------------------------------------------------------------------- */

lar_error lar_warmth_open(lar_resident *r, uint32_t prefixes, lar_warmth **out, lar_diag *d) {
    uint32_t cap = prefixes * ENTRIES_EACH < ENTRIES_MIN ? ENTRIES_MIN : prefixes * ENTRIES_EACH;
    lar_warmth *w = calloc(1, sizeof *w);
    *out = NULL;
    if (!w) return lar_fail(LAR_NO_MEMORY, d, "engine.keep_warm");
    *w = (lar_warmth){.resident = r, .prefixes = prefixes, .cap = cap};
    w->entries = calloc(cap, sizeof *w->entries);
    bool locked = w->entries && pthread_mutex_init(&w->lock, NULL) == 0;
    if (locked && pthread_create(&w->thread, NULL, thread_main, w) == 0) {
        *out = w;
        return LAR_OK;
    }
    if (locked) (void)pthread_mutex_destroy(&w->lock);
    free(w->entries);
    free(w);
    return lar_fail(LAR_NO_MEMORY, d, "engine.keep_warm");
}

void lar_warmth_close(lar_warmth *w) {
    if (!w) return;
    lar_resident *r = w->resident;
    LAR_ASSERT(pthread_mutex_lock(&r->lock) == 0);
    w->stopping = true;
    (void)pthread_cond_broadcast(&r->news);
    LAR_ASSERT(pthread_mutex_unlock(&r->lock) == 0);
    (void)pthread_join(w->thread, NULL);
    for (uint32_t i = 0; i < w->cap; i++) free(w->entries[i].text);
    free(w->entries);
    (void)pthread_mutex_destroy(&w->lock);
    free(w);
}
