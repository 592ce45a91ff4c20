/* What all links of a process have in common: settings, stamps, what the log was told.
 * Flow: serve.c makes and frees it; shared_ask.c weighs and keeps values, from every loop. Any thread; never blocks
 * but on a lock held for one look into the local memory. Invariants: 1. a local value is replaced only by one with a
 * later stamp (or the same stamp and greater bytes: all larders decide alike). 2. a value whose stamp is no longer
 * known here counts as oldest. Memory: 1 MiB of stamps. Not here: the connection (shared_link.c). */
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "gateway/shared/resp.h"
#include "gateway/shared/shared_core.h"

#define DAY_US UINT64_C(86400000000)
#define REFUSED_NS UINT64_C(60000000000)
enum { SAID_UP = 1, SAID_DOWN = 2 };

lar_error lar_shared_new(const lar_shared_options *o, lar_shared **out, lar_diag *d) {
    *out = NULL;
    if (!lar_resp_available())
        return lar_fail(LAR_CONFIG, d,
                        "shared.url: this larder was built without hiredis; install libhiredis-dev and build again");
    lar_shared *s = aligned_alloc(64, (sizeof *s + 63) / 64 * 64);
    if (!s) return lar_fail(LAR_NO_MEMORY, d, "shared memory");
    memset(s, 0, sizeof *s);
    s->o = *o;
    atomic_init(&s->clock, 0);
    atomic_init(&s->links_up, 0);
    atomic_init(&s->said, 0);
    atomic_init(&s->refused_ns, 0);
    if (o->config->shared_secret[0]) s->secret = lar_digest_of(lar_slice_cstr(o->config->shared_secret));
    for (int i = 0; i < LAR_SHARED_SHARDS; i++) (void)pthread_mutex_init(&s->shards[i].lock, NULL);
    const lar_shared_url *u = &o->config->shared;
    lar_diag why = {{0}, 0, 0};
    lar_error e =
        u->tls ? lar_tls_client_new(u->host, u->host_is_ip, o->config->shared_ca_file, &s->tls, &why) : LAR_OK;
    if (!e) {
        *out = s;
        return LAR_OK;
    }
    lar_shared_free(s);
    return lar_fail(e, d, "shared.url: %s", why.text);
}

void lar_shared_free(lar_shared *s) {
    if (!s) return;
    for (int i = 0; i < LAR_SHARED_SHARDS; i++) (void)pthread_mutex_destroy(&s->shards[i].lock);
    lar_tls_context_unref(s->tls);
    explicit_bzero(&s->secret, sizeof s->secret);
    free(s);
}

/* -- stamps ------------------------------------------------------------------------------------------------ */

static uint64_t wall_us(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static uint64_t stamp_now(lar_shared *s) {
    uint64_t now = wall_us(), last = atomic_load_explicit(&s->clock, memory_order_relaxed), next;
    do next = now > last ? now : last + 1;
    while (!atomic_compare_exchange_weak(&s->clock, &last, next));
    return next;
}

bool lar_shared_stamp_seen(lar_shared *s, uint64_t stamp) {
    if (stamp > wall_us() + DAY_US) return false;
    uint64_t last = atomic_load_explicit(&s->clock, memory_order_relaxed);
    while (stamp > last && !atomic_compare_exchange_weak(&s->clock, &last, stamp)) {}
    return true;
}

/* The keys are hashes already: one part picks the shard, another the slot. */
static lar_shared_shard *shard_of(lar_shared *s, const lar_hash *key) {
    return &s->shards[key->bytes[15] % LAR_SHARED_SHARDS];
}

static uint64_t key_bits(const lar_hash *key) {
    uint64_t v;
    memcpy(&v, key->bytes, 8);
    return v;
}

static lar_shared_stamp *slot_of(lar_shared_shard *h, const lar_hash *key) {
    return &h->slots[key_bits(key) % LAR_SHARED_SLOTS];
}

/* 0: not known. */
static uint64_t stamp_of(lar_shared_shard *h, const lar_hash *key) {
    const lar_shared_stamp *p = slot_of(h, key);
    return p->key == key_bits(key) ? p->stamp : 0;
}

static void set_stamp(lar_shared_shard *h, const lar_hash *key, uint64_t stamp) {
    *slot_of(h, key) = (lar_shared_stamp){key_bits(key), stamp};
}

static bool read_local(lar_shared *s, const lar_shared_place *at, lar_buf *local) {
    const lar_memory_ops *m = &s->o.local[at->kind];
    local->len = 0;
    return m->get(m->ctx, &at->key, local) == LAR_OK;
}

static void write_local(lar_shared *s, const lar_shared_place *at, lar_slice value) {
    const lar_memory_ops *m = &s->o.local[at->kind];
    m->put(m->ctx, &at->key, value);
}

uint64_t lar_shared_keep(lar_shared *s, const lar_shared_place *at, lar_slice value) {
    lar_shared_shard *h = shard_of(s, &at->key);
    (void)pthread_mutex_lock(&h->lock);
    uint64_t stamp = stamp_now(s);
    write_local(s, at, value);
    set_stamp(h, &at->key, stamp);
    (void)pthread_mutex_unlock(&h->lock);
    return stamp;
}

static int compare(lar_slice a, lar_slice b) {
    size_t n = a.len < b.len ? a.len : b.len;
    int c = n ? memcmp(a.ptr, b.ptr, n) : 0;
    return c ? c : a.len < b.len ? -1 : a.len > b.len;
}

lar_shared_verdict lar_shared_weigh(lar_shared *s, const lar_shared_place *at, lar_slice value, uint64_t *stamp,
                                    lar_buf *local) {
    lar_shared_shard *h = shard_of(s, &at->key);
    lar_shared_verdict v = LAR_SHARED_TAKEN;
    (void)pthread_mutex_lock(&h->lock);
    if (read_local(s, at, local)) {
        uint64_t own = stamp_of(h, &at->key);
        int c = compare(lar_buf_slice(local), value);
        if (c == 0) v = LAR_SHARED_SAME;
        else if (own > *stamp || (own == *stamp && c > 0)) v = LAR_SHARED_OLDER;
        if (v == LAR_SHARED_OLDER || own > *stamp) *stamp = own;
    }
    if (v == LAR_SHARED_TAKEN) write_local(s, at, value);
    if (v != LAR_SHARED_OLDER) set_stamp(h, &at->key, *stamp);
    (void)pthread_mutex_unlock(&h->lock);
    return v;
}

bool lar_shared_missing(lar_shared *s, const lar_shared_place *at, uint64_t *stamp, lar_buf *local) {
    lar_shared_shard *h = shard_of(s, &at->key);
    (void)pthread_mutex_lock(&h->lock);
    bool found = read_local(s, at, local);
    *stamp = stamp_of(h, &at->key);
    (void)pthread_mutex_unlock(&h->lock);
    if (*stamp == 0) *stamp = 1;
    return found;
}

/* -- the log ------------------------------------------------------------------------------------------------- */

void lar_shared_say_up(lar_shared *s) {
    if (atomic_exchange(&s->said, SAID_UP) == SAID_UP) return;
    LAR_LOG(s->o.log, LAR_LOG_INFO, "shared_up", LAR_F_CSTR("server", s->o.config->shared.text));
}

void lar_shared_say_down(lar_shared *s, const char *why) {
    if (atomic_load(&s->links_up) > 0 || atomic_exchange(&s->said, SAID_DOWN) == SAID_DOWN) return;
    LAR_LOG(s->o.log, LAR_LOG_WARN, "shared_down", LAR_F_CSTR("server", s->o.config->shared.text),
            LAR_F_CSTR("detail", why));
}

void lar_shared_say_refused(lar_shared *s, lar_slice error) {
    lar_metrics_add(s->o.metrics, LAR_METRIC_SHARED_ERRORS_TOTAL, 1);
    uint64_t now = lar_clock_mono_ns(), last = atomic_load(&s->refused_ns);
    if (last && now - last < REFUSED_NS) return;
    if (!atomic_compare_exchange_strong(&s->refused_ns, &last, now)) return;
    size_t n = 0; /* the first word is the kind of the error; what follows may repeat what was sent */
    while (n < error.len && n < 32 && ((error.ptr[n] >= 'A' && error.ptr[n] <= 'Z') || error.ptr[n] == '_')) n++;
    LAR_LOG(s->o.log, LAR_LOG_WARN, "shared_refused", LAR_F_CSTR("server", s->o.config->shared.text),
            LAR_F_TEXT("error", lar_slice_of(error.ptr, n)));
}
