/* What goes over a link: puts, questions and their answers, and which keys a request has looked at.
 * Flow: the rules get and put through lar_shared_link_memory; exchange_recall.c asks; shared_link.c brings the replies.
 * Loop thread only; never blocks. Invariants: 1. the local memory answers every get; the server is asked later, about
 * the same keys. 2. a reply is read to its end even if nobody waits for it any more, and its values are kept.
 * 3. what the server has lost or has older than this larder is sent again when its key is next asked for.
 * Memory: a question holds its own keys; bounded by LAR_SHARED_KEYS_MAX keys each and by the room of the link. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/ensure.h"
#include "gateway/shared/shared_link.h"

enum { KEY_TEXT_BYTES = 128, QUIET_MS_MIN = 100, QUIET_MS_MAX = 10000 };

static lar_metrics *metrics_of(const lar_shared_link *l) { return l->shared->o.metrics; }

/* prefix and 32 hex digits */
static lar_slice name_of(const lar_shared_link *l, const lar_hash *key, char text[KEY_TEXT_BYTES]) {
    size_t n = l->prefix.len;
    LAR_ASSERT(n + 32 <= KEY_TEXT_BYTES);
    if (n) memcpy(text, l->prefix.ptr, n);
    for (int i = 0; i < 16; i++) {
        text[n++] = "0123456789abcdef"[key->bytes[i] >> 4];
        text[n++] = "0123456789abcdef"[key->bytes[i] & 15];
    }
    return lar_slice_of(text, n);
}

/* -- questions ----------------------------------------------------------------------------------------------- */

static lar_shared_question *add_question(lar_shared_link *l, uint32_t keys) {
    lar_shared_question *q = calloc(1, sizeof *q + keys * sizeof *q->places);
    if (!q) return NULL;
    q->asked_ns = lar_clock_mono_ns();
    if (l->last) l->last->next = q;
    else l->first = q;
    l->last = q;
    return q;
}

static lar_shared_question *take_first(lar_shared_link *l) {
    lar_shared_question *q = l->first;
    l->first = q->next;
    if (!l->first) l->last = NULL;
    return q;
}

/* Tells who waits. The question is out of the list already: the callback may ask anew. */
static void end_question(lar_shared_question *q, uint32_t changed) {
    lar_shared_ask *a = q->ask;
    free(q);
    if (!a) return;
    a->waiting = NULL;
    a->on_done(a->owner, changed);
}

void lar_shared_questions_fail(lar_shared_link *l) {
    while (l->first) end_question(take_first(l), 0);
}

/* -- puts ------------------------------------------------------------------------------------------------------ */

typedef enum put_mode { PUT_ALWAYS, PUT_IF_MISSING } put_mode;

/* NULL: plain. */
static lar_shared_seal *seal_of(lar_shared_link *l) {
    if (!l->cover.sealed) return NULL;
    lar_shared_seal_use(l->seal, &l->cover.key);
    return l->seal;
}

static bool send_put(lar_shared_link *l, const lar_hash *key, uint64_t stamp, lar_slice value, put_mode mode) {
    if (!lar_shared_link_room(l)) return false;
    char name[KEY_TEXT_BYTES], seconds[16];
    int n = snprintf(seconds, sizeof seconds, "%u", (unsigned)((l->shared->o.config->shared_ttl_ms + 999u) / 1000u));
    l->envelope.len = 0;
    if (lar_shared_value_encode(seal_of(l), key, stamp, value, &l->envelope) != LAR_OK) return false;
    lar_slice words[] = {LAR_SLICE("SET"),
                         name_of(l, key, name),
                         lar_buf_slice(&l->envelope),
                         LAR_SLICE("EX"),
                         lar_slice_of(seconds, (size_t)n),
                         LAR_SLICE("NX")};
    size_t before = l->out.len;
    if (lar_resp_command(&l->out, words, mode == PUT_IF_MISSING ? 6 : 5) != LAR_OK) return false;
    lar_shared_question *q = l->last && l->last->puts ? l->last : add_question(l, 0);
    if (!q) {
        l->out.len = before;
        return false;
    }
    q->puts++;
    lar_shared_link_later(l);
    return true;
}

void lar_shared_link_scope(lar_shared_link *l, const lar_digest *scope) {
    static const lar_digest none = {{0}};
    const lar_digest *secret = &l->shared->secret;
    l->cover = (lar_shared_cover){.key = lar_shared_seal_key(secret, scope ? scope : &none),
                                  .sealed = scope || !lar_digest_eq(secret, &none)};
}

/* What models wrote goes to no server that could read it. */
static bool is_shared(const lar_shared_link *l, lar_shared_kind kind) {
    return kind == LAR_SHARED_FORMS || l->cover.sealed;
}

static void put(void *ctx, const lar_hash *key, lar_slice value) {
    const struct lar_shared_view *v = ctx;
    lar_shared_link *l = v->link;
    lar_shared_place at = {*key, v->kind};
    uint64_t stamp = lar_shared_keep(l->shared, &at, value);
    if (!is_shared(l, v->kind)) return;
    bool sent = send_put(l, key, stamp, value, PUT_ALWAYS);
    lar_metrics_add(metrics_of(l), sent ? LAR_METRIC_SHARED_PUTS_TOTAL : LAR_METRIC_SHARED_DROPPED_TOTAL, 1);
}

void lar_shared_link_flush(lar_shared_link *l) {
    if (l->out.len) (void)lar_shared_link_send(l);
}

/* -- notes ------------------------------------------------------------------------------------------------------- */

/* The slot of a key of this round, or the free one where it goes; NULL: no room. */
static lar_shared_note *find_note(lar_shared_link *l, const lar_hash *key) {
    if (l->note_count >= LAR_SHARED_NOTE_SLOTS / 2) return NULL;
    uint32_t at = (uint32_t)lar_hash_low(*key) % LAR_SHARED_NOTE_SLOTS;
    while (l->notes[at].round == l->round && !lar_hash_eq(l->notes[at].key, *key))
        at = (at + 1) % LAR_SHARED_NOTE_SLOTS;
    return &l->notes[at];
}

/* True if the key was not there. */
static bool note(lar_shared_link *l, const lar_hash *key) {
    lar_shared_note *n = find_note(l, key);
    if (!n || n->round == l->round) return false;
    *n = (lar_shared_note){*key, l->round};
    l->note_count++;
    return true;
}

static lar_error get(void *ctx, const lar_hash *key, lar_buf *out) {
    const struct lar_shared_view *v = ctx;
    lar_shared_link *l = v->link;
    if (l->new_count < LAR_SHARED_KEYS_MAX && is_shared(l, v->kind) && note(l, key))
        l->fresh[l->new_count++] = (lar_shared_place){*key, v->kind};
    const lar_memory_ops *local = &l->shared->o.local[v->kind];
    return local->get(local->ctx, key, out);
}

lar_memory_ops lar_shared_link_memory(lar_shared_link *l, lar_shared_kind kind) {
    return (lar_memory_ops){.ctx = &l->views[kind], .get = get, .put = put};
}

void lar_shared_begin(lar_shared_ask *a) {
    lar_shared_link *l = a->link;
    if (++l->round == 0) { /* the marks of four thousand million rounds ago */
        memset(l->notes, 0, sizeof l->notes);
        l->round = 1;
    }
    l->note_count = l->new_count = 0;
    for (uint32_t i = 0; i < a->count; i++) (void)note(l, &a->keys[i]);
}

/* -- asking ------------------------------------------------------------------------------------------------------ */

/* "MGET" and the names, word by word: as many texts as keys would be a large array for what is only passed on. */
static lar_error add_mget(lar_shared_link *l, const lar_shared_place *places, uint32_t count) {
    char name[KEY_TEXT_BYTES];
    size_t before = l->out.len;
    lar_error e = lar_buf_printf(&l->out, "*%u\r\n$4\r\nMGET\r\n", (unsigned)count + 1);
    for (uint32_t i = 0; i < count && !e; i++) {
        lar_slice text = name_of(l, &places[i].key, name);
        e = lar_buf_printf(&l->out, "$%u\r\n", (unsigned)text.len);
        if (!e) e = lar_buf_add_slice(&l->out, text);
        if (!e) e = lar_buf_add(&l->out, "\r\n", 2);
    }
    if (e) l->out.len = before;
    return e;
}

static bool remember_asked(lar_shared_ask *a, lar_arena *arena) {
    const lar_shared_link *l = a->link;
    lar_hash *all = lar_arena_alloc(arena, (a->count + l->new_count) * sizeof *all);
    if (!all) return false;
    if (a->count) memcpy(all, a->keys, a->count * sizeof *all);
    for (uint32_t i = 0; i < l->new_count; i++) all[a->count + i] = l->fresh[i].key;
    a->keys = all;
    a->count += l->new_count;
    return true;
}

bool lar_shared_ask_start(lar_shared_ask *a, lar_arena *arena) {
    lar_shared_link *l = a->link;
    LAR_ASSERT(!a->waiting);
    if (l->new_count == 0 || !lar_shared_link_room(l) || uv_now(l->loop) < l->quiet_until_ms) return false;
    if (a->count + l->new_count > LAR_SHARED_REQUEST_KEYS_MAX || !remember_asked(a, arena)) return false;
    size_t before = l->out.len;
    if (add_mget(l, l->fresh, l->new_count) != LAR_OK) return false;
    lar_shared_question *q = add_question(l, l->new_count);
    if (!q) { /* the command must not go out without a question that takes its reply */
        l->out.len = before;
        return false;
    }
    q->count = l->new_count;
    q->cover = l->cover;
    memcpy(q->places, l->fresh, q->count * sizeof *q->places);
    if (!lar_shared_link_send(l)) return false;
    q->ask = a;
    a->waiting = q;
    lar_metrics_add(metrics_of(l), LAR_METRIC_SHARED_ASKS_TOTAL, 1);
    lar_metrics_add(metrics_of(l), LAR_METRIC_SHARED_GETS_TOTAL, q->count);
    return true;
}

void lar_shared_ask_cancel(lar_shared_ask *a) {
    if (!a->waiting) return;
    a->waiting->ask = NULL;
    a->waiting = NULL;
}

void lar_shared_ask_late(lar_shared_ask *a) {
    lar_shared_link *l = a->link;
    if (!a->waiting) return;
    lar_shared_ask_cancel(a);
    lar_metrics_add(metrics_of(l), LAR_METRIC_SHARED_LATE_TOTAL, 1);
    uint64_t now = uv_now(l->loop);
    if (now < l->quiet_until_ms) return; /* of several that waited together one counts */
    if (l->late_count++ == 0) return;    /* one may be the machine's doing */
    uint32_t quiet = (uint32_t)QUIET_MS_MIN << (l->late_count < 8 ? l->late_count - 2 : 7);
    l->quiet_until_ms = now + (quiet < QUIET_MS_MAX ? quiet : QUIET_MS_MAX);
}

/* -- answers ------------------------------------------------------------------------------------------------------- */

/* One value of the server. True if the local one changed. */
static bool take_value(lar_shared_link *l, const lar_shared_place *at, lar_slice bytes) {
    lar_shared *s = l->shared;
    uint64_t stamp = 0;
    l->value.len = 0;
    bool there = bytes.ptr != NULL;
    bool sound = there && lar_shared_value_decode(seal_of(l), &at->key, bytes, &stamp, &l->value) == LAR_OK &&
                 lar_shared_stamp_seen(s, stamp);
    if (there && !sound) lar_metrics_add(metrics_of(l), LAR_METRIC_SHARED_DAMAGED_TOTAL, 1);
    if (!there) lar_metrics_add(metrics_of(l), LAR_METRIC_SHARED_MISSES_TOTAL, 1);
    bool again = false;
    if (!sound) {
        again = lar_shared_missing(s, at, &stamp, &l->local);
    } else {
        lar_shared_verdict v = lar_shared_weigh(s, at, lar_buf_slice(&l->value), &stamp, &l->local);
        if (v == LAR_SHARED_TAKEN) {
            lar_metrics_add(metrics_of(l), LAR_METRIC_SHARED_HITS_TOTAL, 1);
            return true;
        }
        again = v == LAR_SHARED_OLDER;
    }
    /* a missing one only if it is still missing: another larder may have put a newer one since */
    if (again && send_put(l, &at->key, stamp, lar_buf_slice(&l->local), there ? PUT_ALWAYS : PUT_IF_MISSING))
        lar_metrics_add(metrics_of(l), LAR_METRIC_SHARED_REPAIRS_TOTAL, 1);
    return false;
}

static void take_values(lar_shared_link *l, lar_shared_question *q, const lar_resp_reply *r) {
    uint32_t changed = 0;
    l->late_count = 0;
    lar_metrics_observe(metrics_of(l), LAR_METRIC_SHARED_SECONDS, (lar_clock_mono_ns() - q->asked_ns) / 1000);
    l->cover = q->cover; /* whoever works next says whose request it is */
    for (uint32_t i = 0; i < q->count; i++) changed += take_value(l, &q->places[i], r->items[i]);
    end_question(q, changed);
}

void lar_shared_answered(lar_shared_link *l, const lar_resp_reply *r) {
    lar_shared_question *q = l->first;
    if (!q) {
        lar_shared_link_broken(l, "it answers what was not asked");
        return;
    }
    if (r->kind == LAR_RESP_ERROR) lar_shared_say_refused(l->shared, r->text);
    if (q->puts) {
        if (--q->puts == 0) free(take_first(l));
        return;
    }
    if (r->kind == LAR_RESP_ARRAY && r->count == q->count) {
        take_values(l, take_first(l), r);
    } else if (r->kind == LAR_RESP_ERROR) {
        end_question(take_first(l), 0);
    } else {
        lar_shared_link_broken(l, "it does not speak RESP as Redis does");
    }
}
