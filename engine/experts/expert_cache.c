/* Runs MoE layers whose experts are partly on disk.
 * Flow: forward.c calls lar_expert_cache_run for a layer; missing experts go into the queue, matrix by matrix; reading
 * threads take from it, read and pack (expert_source.c); lar_mlp_run computes what is there, group after group.
 * Threads: the caller, and readers. One lock guards slots, queue and counts; it is never held while a matrix is read or
 * computed. Blocks: the caller, while the next expert in order is on its way.
 * Why in ascending order: each element of y is a sum over experts, and sums of floats depend on their order.
 * Invariants: 1. A slot is held while it is read into, and from the moment a visit counts on it until it has computed
 * it. 2. The next expert in order gets a slot before all later ones, so that one slot is enough. 3. The queue holds a
 * slot's matrix once at most, so that it has room for all.
 * Memory: all taken in lar_expert_cache_new. */
#include "engine/experts/expert_cache.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/ensure.h"
#include "engine/experts/expert_source.h"

enum { MATRICES = 3, ALIGN = LAR_DIRECT_ALIGN };

typedef enum slot_state { EMPTY, LOADING, READY, FAILED } slot_state;

typedef struct slot {
    slot_state state;
    uint32_t left;   /* LOADING: matrices that are not there yet */
    lar_error error; /* the first that failed, for FAILED */
    lar_diag why;
    uint8_t *memory;
    lar_mlp mlp; /* of its expert, packed, when READY */
} slot;

typedef struct layer {
    const lar_mlp *mlps;
    uint32_t number, pool;
    uint64_t hits, misses;
} layer;

/* Slots for the experts of all layers that take as much memory. */
typedef struct pool {
    lar_expert_pool range;
    uint64_t slot_bytes, experts;
} pool;

/* An expert that a visit needs. */
typedef struct need {
    uint32_t expert, slot; /* LAR_EXPERT_NONE: it has none */
    bool hit;              /* it was there when the visit began, and has not given way since */
} need;

typedef struct reader {
    lar_expert_cache *cache;
    pthread_t thread;
    uint8_t *room;
} reader;

struct lar_expert_cache {
    uint32_t layer_count, experts, pool_count;
    layer *layers; /* (layer_count) */
    pool *pools;   /* (layer_count) at most */
    lar_expert_source source;
    lar_expert_slots slots;
    slot *slot; /* (slots.count) */
    uint8_t *memory;
    uint64_t memory_bytes, all_bytes;
    /* Of a visit. */
    need *needs;      /* (experts) */
    lar_mlp *group;   /* (experts) */
    uint32_t *starts; /* (experts + 1) */
    /* Matrices to read: slot * MATRICES + matrix. */
    uint32_t *queue; /* (slots.count * MATRICES), a ring */
    uint32_t queue_first, queue_count;
    reader *readers; /* (reader_count) */
    uint32_t reader_count;
    bool locks, stopping;
    pthread_mutex_t lock;
    pthread_cond_t asked, arrived;
    lar_expert_counts counts;
    uint64_t run_ns, stall_ns, read_ns, pack_ns;
};

/* -- sizes -------------------------------------------------------------------------------------------------------- */

static const lar_matrix *matrix_at(const lar_mlp *m, uint32_t i) {
    return i == 0 ? &m->gate : i == 1 ? &m->up : &m->down;
}

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

static uint64_t round_up(uint64_t n) { return (n + ALIGN - 1) / ALIGN * ALIGN; }

static uint64_t packed_size(const lar_mlp *m) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < MATRICES; i++) bytes += lar_matrix_packed_size(matrix_at(m, i));
    return bytes;
}

/* A folder may have experts of several types in one layer. */
static uint64_t slot_bytes_of(const lar_expert_cache_options *o, uint32_t i) {
    uint64_t most = 0;
    for (uint32_t e = 0; e < o->experts; e++) most = larger(most, packed_size(&o->layers[i].mlps[e]));
    return round_up(most);
}

/* What one reader reads into. */
static uint64_t room_of(const lar_expert_cache_options *o) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < o->layer_count; i++)
        for (uint32_t e = 0; e < o->experts; e++)
            for (uint32_t k = 0; k < MATRICES; k++)
                most = larger(most, lar_expert_source_room(matrix_at(&o->layers[i].mlps[e], k)));
    return round_up(most);
}

/* Gives each layer its pool, as (layer_count) numbers; returns how many pools there are. */
static uint32_t sort_into_pools(const lar_expert_cache_options *o, pool *pools, uint32_t *pool_of) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < o->layer_count; i++) {
        uint64_t bytes = slot_bytes_of(o, i);
        uint32_t p = 0;
        while (p < count && pools[p].slot_bytes != bytes) p++;
        if (p == count) pools[count++] = (pool){.slot_bytes = bytes};
        pools[p].experts += o->experts;
        pool_of[i] = p;
    }
    return count;
}

lar_expert_sizes lar_expert_cache_sizes(const lar_expert_cache_options *o) {
    lar_expert_sizes s = {0, room_of(o)};
    for (uint32_t i = 0; i < o->layer_count; i++) {
        uint64_t bytes = slot_bytes_of(o, i);
        bool seen = false;
        for (uint32_t k = 0; k < i && !seen; k++) seen = slot_bytes_of(o, k) == bytes;
        s.all += bytes * o->experts;
        if (!seen) s.least += bytes;
    }
    return s;
}

/* -- reading threads ---------------------------------------------------------------------------------------------- */

static uint32_t take_from_queue(lar_expert_cache *c) {
    uint32_t job = c->queue[c->queue_first];
    c->queue_first = (c->queue_first + 1) % (c->slots.count * MATRICES);
    c->queue_count--;
    return job;
}

/* Asks for all matrices of the expert that the slot was taken for. */
static void load(lar_expert_cache *c, uint32_t s) {
    slot *to = &c->slot[s];
    to->state = LOADING, to->left = MATRICES, to->error = LAR_OK;
    c->slots.held[s]++;
    for (uint32_t i = 0; i < MATRICES; i++)
        c->queue[(c->queue_first + c->queue_count++) % (c->slots.count * MATRICES)] = s * MATRICES + i;
    (void)pthread_cond_broadcast(&c->asked);
}

/* The lock is held before and after, not in between. */
static void read_one(reader *r, uint32_t job) {
    lar_expert_cache *c = r->cache;
    slot *to = &c->slot[job / MATRICES];
    uint32_t key = c->slots.expert_in[job / MATRICES], which = job % MATRICES, expert = key % c->experts;
    const layer *l = &c->layers[key / c->experts];
    const lar_mlp *from = &l->mlps[expert];
    lar_matrix *matrices[MATRICES] = {&to->mlp.gate, &to->mlp.up, &to->mlp.down};
    lar_expert_load work = {.from = matrix_at(from, which), .room = r->room, .memory = to->memory};
    lar_diag why = {0};
    work.to = matrices[which];
    for (uint32_t i = 0; i < which; i++)
        work.memory = (uint8_t *)work.memory + lar_matrix_packed_size(matrix_at(from, i));
    (void)pthread_mutex_unlock(&c->lock);
    lar_error e = lar_expert_source_load(&c->source, &work, &why);
    (void)pthread_mutex_lock(&c->lock);
    c->read_ns += work.read_ns, c->pack_ns += work.pack_ns;
    if (!e) c->counts.reads++, c->counts.bytes_read += lar_expert_source_bytes(work.from);
    if (e && !to->error)
        to->error = lar_fail(e, &to->why, "layer %u, expert %u: %s", l->number, expert,
                             *why.text ? why.text : lar_error_text(e));
    if (--to->left) return;
    to->state = to->error ? FAILED : READY;
    if (to->error) c->counts.failures++;
    c->slots.held[job / MATRICES]--;
    (void)pthread_cond_broadcast(&c->arrived);
}

static void *reader_main(void *arg) {
    reader *r = arg;
    lar_expert_cache *c = r->cache;
    (void)pthread_mutex_lock(&c->lock);
    while (!c->stopping) {
        if (c->queue_count) read_one(r, take_from_queue(c));
        else (void)pthread_cond_wait(&c->asked, &c->lock);
    }
    (void)pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* -- a visit ------------------------------------------------------------------------------------------------------ */

/* Experts with picks, ascending; those that are in memory are held. A read that failed before is tried again. */
static uint32_t list_needs(lar_expert_cache *c, uint32_t l, const uint32_t *starts) {
    uint32_t n = 0;
    for (uint32_t e = 0; e < c->experts; e++) {
        if (starts[e] == starts[e + 1]) continue;
        uint32_t s = c->slots.slot_of[l * c->experts + e];
        if (s != LAR_EXPERT_NONE && c->slot[s].state == FAILED) {
            lar_expert_slots_drop(&c->slots, s);
            s = LAR_EXPERT_NONE;
        }
        bool hit = s != LAR_EXPERT_NONE;
        if (hit) c->slots.held[s]++, c->layers[l].hits++;
        else c->layers[l].misses++;
        c->needs[n++] = (need){e, s, hit};
    }
    return n;
}

/* Asks for missing experts of needs [next, n) as far as there are slots, in their order. */
static void ask(lar_expert_cache *c, uint32_t l, uint32_t next, uint32_t n) {
    const lar_expert_pool *range = &c->pools[c->layers[l].pool].range;
    for (uint32_t i = next; i < n; i++) {
        if (c->needs[i].slot != LAR_EXPERT_NONE) continue;
        uint32_t s = lar_expert_slots_take(&c->slots, range, l * c->experts + c->needs[i].expert);
        if (s == LAR_EXPERT_NONE) return;
        c->needs[i].slot = s;
        c->slots.held[s]++;
        load(c, s);
    }
}

/* All slots are held and the next expert has none: the last of the later ones that is there gives way, and will be read
 * again. false: all of them are still being read. */
static bool give_way(lar_expert_cache *c, uint32_t l, uint32_t next, uint32_t n) {
    for (uint32_t i = n - 1; i > next; i--) {
        need *later = &c->needs[i];
        if (later->slot == LAR_EXPERT_NONE || c->slot[later->slot].state == LOADING) continue;
        c->slots.held[later->slot]--;
        lar_expert_slots_drop(&c->slots, later->slot);
        if (later->hit) c->layers[l].hits--;
        c->layers[l].misses++;
        *later = (need){later->expert, LAR_EXPERT_NONE, false};
        return true;
    }
    return false;
}

static void wait_for_arrival(lar_expert_cache *c) {
    uint64_t begin = lar_clock_mono_ns();
    (void)pthread_cond_wait(&c->arrived, &c->lock);
    c->stall_ns += lar_clock_mono_ns() - begin;
}

/* Waits until the next expert is there; *ready: how many from it on are. */
static lar_error wait_for_next(lar_expert_cache *c, uint32_t l, uint32_t next, uint32_t n, uint32_t *ready) {
    for (;;) {
        ask(c, l, next, n);
        uint32_t s = c->needs[next].slot;
        if (s == LAR_EXPERT_NONE && give_way(c, l, next, n)) continue;
        if (s != LAR_EXPERT_NONE && c->slot[s].state == FAILED) return c->slot[s].error;
        if (s != LAR_EXPERT_NONE && c->slot[s].state == READY) break;
        wait_for_arrival(c);
    }
    *ready = 1;
    while (next + *ready < n) {
        uint32_t s = c->needs[next + *ready].slot;
        if (s == LAR_EXPERT_NONE || c->slot[s].state != READY) break;
        ++*ready;
    }
    return LAR_OK;
}

/* The lock is held before and after, not in between. */
static void compute(lar_expert_cache *c, const need *needs, uint32_t n, const lar_mlp_job *job, const lar_run *run) {
    uint32_t base = job->starts[needs[0].expert];
    lar_mlp_job some = *job;
    for (uint32_t i = 0; i < n; i++) {
        c->group[i] = c->slot[needs[i].slot].mlp;
        c->starts[i] = job->starts[needs[i].expert] - base;
    }
    c->starts[n] = job->starts[needs[n - 1].expert + 1] - base;
    some.mlps = c->group, some.count = n, some.starts = c->starts;
    some.token += base, some.weight += base;
    (void)pthread_mutex_unlock(&c->lock);
    lar_mlp_run(&some, run);
    (void)pthread_mutex_lock(&c->lock);
}

static void let_go(lar_expert_cache *c, uint32_t from, uint32_t n) {
    for (uint32_t i = from; i < n; i++)
        if (c->needs[i].slot != LAR_EXPERT_NONE) c->slots.held[c->needs[i].slot]--;
}

lar_error lar_expert_cache_run(lar_expert_cache *c, uint32_t l, const lar_mlp_job *job, const lar_run *run,
                               lar_diag *d) {
    LAR_ASSERT(l < c->layer_count && job->count == c->experts && job->token && job->weight);
    uint64_t begin = lar_clock_mono_ns();
    lar_error e = LAR_OK;
    (void)pthread_mutex_lock(&c->lock);
    lar_expert_slots_visit(&c->slots, l, job->starts);
    uint32_t n = list_needs(c, l, job->starts), next = 0;
    while (next < n) {
        uint32_t ready = 0;
        e = wait_for_next(c, l, next, n, &ready);
        if (e) break;
        lar_mlp_job some = *job;
        if (next + ready < n) some.then = NULL;
        compute(c, c->needs + next, ready, &some, run);
        let_go(c, next, next + ready);
        next += ready;
    }
    if (e && d) *d = c->slot[c->needs[next].slot].why;
    let_go(c, next, n);
    c->run_ns += lar_clock_mono_ns() - begin;
    (void)pthread_mutex_unlock(&c->lock);
    return e;
}

/* -- counts ------------------------------------------------------------------------------------------------------- */

lar_expert_counts lar_expert_cache_counts(lar_expert_cache *c) {
    const uint64_t us = 1000;
    (void)pthread_mutex_lock(&c->lock);
    lar_expert_counts out = c->counts;
    out.bytes = c->memory_bytes, out.all_bytes = c->all_bytes;
    out.slots = c->slots.count, out.experts = (uint64_t)c->layer_count * c->experts;
    for (uint32_t i = 0; i < c->layer_count; i++) out.hits += c->layers[i].hits, out.misses += c->layers[i].misses;
    out.run_us = c->run_ns / us, out.stall_us = c->stall_ns / us;
    out.read_us = c->read_ns / us, out.pack_us = c->pack_ns / us;
    (void)pthread_mutex_unlock(&c->lock);
    out.buffered = lar_expert_source_buffered(&c->source);
    return out;
}

uint32_t lar_expert_cache_layers(const lar_expert_cache *c) { return c->layer_count; }

lar_expert_layer_counts lar_expert_cache_layer(lar_expert_cache *c, uint32_t l) {
    LAR_ASSERT(l < c->layer_count);
    (void)pthread_mutex_lock(&c->lock);
    lar_expert_layer_counts out = {c->layers[l].number, c->layers[l].hits, c->layers[l].misses};
    (void)pthread_mutex_unlock(&c->lock);
    return out;
}

/* -- making and ending -------------------------------------------------------------------------------------------- */

/* value * share / whole, rounded down; share is at most whole. */
static uint64_t part_of(uint64_t value, uint64_t share, uint64_t whole) {
    return (uint64_t)((unsigned __int128)value * share / whole);
}

/* One slot for each pool, the rest of `bytes` by what its experts take. */
static void size_pools(lar_expert_cache *c, uint64_t bytes) {
    uint32_t first = 0;
    for (uint32_t i = 0; i < c->pool_count; i++) bytes -= c->pools[i].slot_bytes;
    for (uint32_t i = 0; i < c->pool_count; i++) {
        pool *p = &c->pools[i];
        uint64_t count = 1 + part_of(bytes, p->slot_bytes * p->experts, c->all_bytes) / p->slot_bytes;
        if (count > p->experts) count = p->experts;
        p->range = (lar_expert_pool){first, (uint32_t)count};
        c->memory_bytes += count * p->slot_bytes;
        first += (uint32_t)count;
    }
}

lar_error lar_expert_cache_check(const lar_expert_cache_options *o, lar_diag *d) {
    lar_expert_sizes s = lar_expert_cache_sizes(o);
    if (o->bytes >= s.least) return LAR_OK;
    return lar_fail(
        LAR_LIMIT, d,
        "%llu bytes for experts: at least %llu are needed, one expert of each size and room to read it; all "
        "of them are %llu",
        (unsigned long long)o->bytes, (unsigned long long)s.least, (unsigned long long)s.all);
}

/* Readers use an eighth of the bytes at most, and leave room for a slot of each size; but for the one that there must
 * be. */
static uint32_t readers_for(const lar_expert_cache_options *o, uint64_t least, uint64_t room) {
    uint64_t count = o->readers ? o->readers : LAR_EXPERT_READERS, most = 1 + (o->bytes - least) / room;
    if (most > o->bytes / 8 / room) most = o->bytes / 8 / room;
    if (most > LAR_EXPERT_READERS_MAX) most = LAR_EXPERT_READERS_MAX;
    if (count > most) count = most;
    return count ? (uint32_t)count : 1;
}

/* Slots and rooms from one reservation. */
static lar_error take_memory(lar_expert_cache *c, uint64_t room, lar_diag *d) {
    c->memory_bytes += c->reader_count * room;
    void *p = mmap(NULL, c->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return lar_fail(LAR_NO_MEMORY, d, "no memory for %llu bytes of experts", (unsigned long long)c->memory_bytes);
    (void)madvise(p, c->memory_bytes, MADV_HUGEPAGE); /* without it: only slower */
    c->memory = p;
    uint8_t *at = p;
    for (uint32_t i = 0; i < c->reader_count; i++, at += room) c->readers[i].room = at;
    for (uint32_t i = 0; i < c->pool_count; i++)
        for (uint32_t k = 0; k < c->pools[i].range.count; k++, at += c->pools[i].slot_bytes)
            c->slot[c->pools[i].range.first + k].memory = at;
    return LAR_OK;
}

static lar_error make_lists(lar_expert_cache *c, const lar_expert_cache_options *o, lar_diag *d) {
    uint32_t slots = 0;
    for (uint32_t i = 0; i < c->pool_count; i++) slots += c->pools[i].range.count;
    lar_expert_slots_options s = {o->policy, o->layer_count, o->experts, o->experts_used, slots};
    lar_error e = lar_expert_slots_init(&c->slots, &s, d);
    if (e) return e;
    c->slot = calloc(slots, sizeof *c->slot);
    c->queue = calloc((size_t)slots * MATRICES, sizeof *c->queue);
    c->needs = calloc(o->experts, sizeof *c->needs);
    c->group = calloc(o->experts, sizeof *c->group);
    c->starts = calloc((size_t)o->experts + 1, sizeof *c->starts);
    c->readers = calloc(c->reader_count, sizeof *c->readers);
    bool all = c->slot && c->queue && c->needs && c->group && c->starts && c->readers;
    return all ? LAR_OK : lar_fail(LAR_NO_MEMORY, d, "no memory for the lists of %u experts", slots);
}

static lar_error make_layers(lar_expert_cache *c, const lar_expert_cache_options *o, lar_diag *d) {
    c->layer_count = o->layer_count, c->experts = o->experts;
    c->layers = calloc(o->layer_count, sizeof *c->layers);
    c->pools = calloc(o->layer_count, sizeof *c->pools);
    uint32_t *pool_of = calloc(o->layer_count, sizeof *pool_of);
    if (!c->layers || !c->pools || !pool_of) {
        free(pool_of);
        return lar_fail(LAR_NO_MEMORY, d, "no memory for %u layers", o->layer_count);
    }
    c->pool_count = sort_into_pools(o, c->pools, pool_of);
    for (uint32_t i = 0; i < o->layer_count; i++)
        c->layers[i] = (layer){.mlps = o->layers[i].mlps, .number = o->layers[i].number, .pool = pool_of[i]};
    free(pool_of);
    return LAR_OK;
}

/* Every tensor once: experts that lie in one tensor follow each other. */
static lar_error open_source(lar_expert_cache *c, const lar_expert_cache_options *o, lar_diag *d) {
    lar_error e = lar_expert_source_init(&c->source, o->files, d);
    const lar_tensor *last[MATRICES] = {NULL};
    for (uint32_t i = 0; !e && i < o->layer_count; i++)
        for (uint32_t x = 0; !e && x < o->experts; x++)
            for (uint32_t k = 0; !e && k < MATRICES; k++) {
                const lar_matrix *m = matrix_at(&o->layers[i].mlps[x], k);
                if (m->rows.tensor != last[k]) e = lar_expert_source_add(&c->source, m, d);
                last[k] = m->rows.tensor;
            }
    return e;
}

static lar_error start_readers(lar_expert_cache *c, lar_diag *d) {
    if (pthread_mutex_init(&c->lock, NULL) || pthread_cond_init(&c->asked, NULL) ||
        pthread_cond_init(&c->arrived, NULL))
        return lar_fail(LAR_IO, d, "the system gave no lock");
    c->locks = true;
    uint32_t wanted = c->reader_count;
    for (c->reader_count = 0; c->reader_count < wanted; c->reader_count++) {
        reader *r = &c->readers[c->reader_count];
        r->cache = c;
        if (pthread_create(&r->thread, NULL, reader_main, r) != 0)
            return lar_fail(LAR_IO, d, "the system gave %u of %u threads that read experts", c->reader_count, wanted);
    }
    return LAR_OK;
}

lar_error lar_expert_cache_new(const lar_expert_cache_options *o, lar_expert_cache **out, lar_diag *d) {
    *out = NULL;
    lar_expert_sizes sizes = lar_expert_cache_sizes(o);
    lar_error e = lar_expert_cache_check(o, d);
    if (e) return e;
    lar_expert_cache *c = calloc(1, sizeof *c);
    if (!c) return lar_fail(LAR_NO_MEMORY, d, "no memory for a cache of experts");
    uint64_t room = room_of(o);
    c->all_bytes = sizes.all;
    c->reader_count = readers_for(o, sizes.least, room);
    e = make_layers(c, o, d);
    if (!e) {
        size_pools(c, o->bytes - c->reader_count * room);
        e = make_lists(c, o, d);
    }
    if (!e) e = take_memory(c, room, d);
    if (!e) e = open_source(c, o, d);
    if (e) c->reader_count = 0; /* none runs yet */
    else e = start_readers(c, d);
    if (e) lar_expert_cache_free(c);
    else *out = c;
    return e;
}

void lar_expert_cache_free(lar_expert_cache *c) {
    if (!c) return;
    if (c->locks) {
        (void)pthread_mutex_lock(&c->lock);
        c->stopping = true;
        (void)pthread_cond_broadcast(&c->asked);
        (void)pthread_mutex_unlock(&c->lock);
        for (uint32_t i = 0; i < c->reader_count; i++) (void)pthread_join(c->readers[i].thread, NULL);
        (void)pthread_cond_destroy(&c->asked);
        (void)pthread_cond_destroy(&c->arrived);
        (void)pthread_mutex_destroy(&c->lock);
    }
    if (c->memory) (void)munmap(c->memory, c->memory_bytes);
    lar_expert_source_release(&c->source);
    lar_expert_slots_release(&c->slots);
    free(c->layers), free(c->pools), free(c->slot), free(c->queue);
    free(c->needs), free(c->group), free(c->starts), free(c->readers);
    free(c);
}
