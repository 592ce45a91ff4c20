/* The engine without a model (stub_engine.h). A page holds its tokens' ids, and is written by one holder only; what a
 * sequence reads it reads from its pages, so a page that was given to two shows in the logits.
 * Global: one engine and the clock, for one test at a time; counts are atomic because any thread may ask for them. */
#include "tests/unit_engine/schedule/stub_engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"

enum { TABLE = STUB_CONTEXT / LAR_PAGE_TOKENS + 1 };

typedef struct kept {
    uint64_t key; /* of scope and all tokens up to the page's end */
    int32_t page;
    uint64_t used;
    bool is;
} kept;

struct lar_engine {
    stub_options o;
    uint32_t holders[STUB_PAGES_MAX];
    uint32_t ids[STUB_PAGES_MAX][LAR_PAGE_TOKENS];
    kept kept[STUB_PAGES_MAX];
    atomic_uint held, kept_count, idle;
    uint64_t steps, tokens, uses;
    uint32_t sequences;
    lar_error fail;
    stub_step last;
};

struct lar_sequence {
    lar_engine *engine;
    int32_t pages[TABLE];
    uint32_t page_count, length, capacity;
    uint64_t step, scope; /* scope 0: not adopted */
};

static _Atomic uint64_t clock_us;

uint64_t stub_now_us(void *context) {
    (void)context;
    return atomic_load(&clock_us);
}

void stub_sleep(uint64_t us) { (void)atomic_fetch_add(&clock_us, us); }

/* -- pages ------------------------------------------------------------------------------------------------------- */

static void recount(lar_engine *e) {
    uint32_t held = 0, kept_pages = 0, idle = 0;
    for (uint32_t i = 0; i < e->o.pages; i++) {
        held += e->holders[i] > 0;
        kept_pages += e->kept[i].is;
        idle += e->kept[i].is && e->holders[e->kept[i].page] == 1;
    }
    atomic_store(&e->held, held + e->o.pinned);
    atomic_store(&e->kept_count, kept_pages);
    atomic_store(&e->idle, idle);
}

static bool let_go_of_one(lar_engine *e) {
    kept *oldest = NULL;
    for (uint32_t i = 0; i < e->o.pages; i++) {
        kept *k = &e->kept[i];
        if (k->is && e->holders[k->page] == 1 && (!oldest || k->used < oldest->used)) oldest = k;
    }
    if (!oldest) return false;
    oldest->is = false;
    e->holders[oldest->page] = 0;
    return true;
}

static int32_t take_page(lar_engine *e) {
    for (;;) {
        uint32_t held = 0;
        for (uint32_t i = 0; i < e->o.pages; i++) held += e->holders[i] > 0;
        for (uint32_t i = 0; i < e->o.pages && held + e->o.pinned < e->o.pages; i++)
            if (!e->holders[i]) return e->holders[i] = 1, (int32_t)i;
        if (!let_go_of_one(e)) return LAR_PAGE_NONE;
    }
}

lar_page_counts lar_engine_pages(const lar_engine *e) {
    return (lar_page_counts){.pages = e->o.pages, .held = atomic_load(&((lar_engine *)e)->held)};
}

lar_prefix_counts lar_engine_prefixes(const lar_engine *e) {
    lar_engine *m = (lar_engine *)e;
    return (
        lar_prefix_counts){.pages = atomic_load(&m->kept_count), .idle = atomic_load(&m->idle), .pinned = m->o.pinned};
}

/* -- sequences --------------------------------------------------------------------------------------------------- */

lar_error lar_sequence_new(const lar_engine *e, uint32_t capacity, lar_sequence **out, lar_diag *d) {
    *out = NULL;
    LAR_ASSERT(capacity <= STUB_CONTEXT);
    lar_sequence *s = calloc(1, sizeof *s);
    if (!s) return lar_fail(LAR_NO_MEMORY, d, "no memory for a sequence");
    s->engine = (lar_engine *)e;
    s->engine->sequences++;
    s->capacity = capacity;
    *out = s;
    return LAR_OK;
}

void lar_sequence_free(lar_sequence *s) {
    if (!s) return;
    for (uint32_t i = 0; i < s->page_count; i++) {
        LAR_ASSERT(s->engine->holders[s->pages[i]] > 0);
        s->engine->holders[s->pages[i]]--;
    }
    s->engine->sequences--;
    recount(s->engine);
    free(s);
}

uint32_t lar_sequence_length(const lar_sequence *s) { return s->length; }

lar_error lar_sequence_reserve(lar_sequence *s, uint32_t tokens, lar_diag *d) {
    uint32_t before = s->page_count;
    LAR_ASSERT(s->length + tokens <= s->capacity);
    while (s->page_count * LAR_PAGE_TOKENS < s->length + tokens) {
        int32_t page = take_page(s->engine);
        if (page == LAR_PAGE_NONE) {
            while (s->page_count > before) s->engine->holders[s->pages[--s->page_count]]--;
            recount(s->engine);
            return lar_fail(LAR_FULL, d, "no page");
        }
        s->pages[s->page_count++] = page;
    }
    recount(s->engine);
    return LAR_OK;
}

lar_error lar_sequence_fork(const lar_sequence *s, lar_sequence **out, lar_diag *d) {
    lar_engine *e = s->engine;
    lar_error error = lar_sequence_new(e, s->capacity, out, d);
    if (error) return error;
    lar_sequence *f = *out;
    uint32_t whole = s->length / LAR_PAGE_TOKENS, rest = s->length % LAR_PAGE_TOKENS;
    int32_t copy = rest ? take_page(e) : LAR_PAGE_NONE;
    if (rest && copy == LAR_PAGE_NONE) {
        lar_sequence_free(f);
        *out = NULL;
        return lar_fail(LAR_FULL, d, "no page");
    }
    for (uint32_t i = 0; i < whole; i++) e->holders[f->pages[f->page_count++] = s->pages[i]]++;
    if (rest) {
        memcpy(e->ids[copy], e->ids[s->pages[whole]], sizeof e->ids[copy]);
        f->pages[f->page_count++] = copy;
    }
    f->length = s->length;
    f->scope = s->scope;
    recount(e);
    return LAR_OK;
}

/* -- prefixes ---------------------------------------------------------------------------------------------------- */

static uint64_t mixed(uint64_t h, uint64_t value) {
    h = (h ^ value) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static kept *find(lar_engine *e, uint64_t key) {
    for (uint32_t i = 0; i < e->o.pages; i++)
        if (e->kept[i].is && e->kept[i].key == key) return &e->kept[i];
    return NULL;
}

static uint64_t key_of(uint64_t scope, const uint32_t *ids, uint32_t count) {
    uint64_t h = mixed(1, scope);
    for (uint32_t i = 0; i < count; i++) h = mixed(h, ids[i] + 1);
    return h;
}

uint32_t lar_sequence_adopt(lar_sequence *s, const lar_digest *scope, const uint32_t *ids, uint32_t count) {
    uint32_t taken = 0;
    LAR_ASSERT(count > s->length && (!s->scope || s->scope == (lar_digest_short(scope) | 1)));
    s->scope = lar_digest_short(scope) | 1;
    if (s->length % LAR_PAGE_TOKENS) return s->length;
    while (s->page_count * LAR_PAGE_TOKENS > s->length) s->engine->holders[s->pages[--s->page_count]]--;
    while (s->engine->o.keeps && taken++ < STUB_ADOPT_PAGES && s->length + LAR_PAGE_TOKENS < count) {
        kept *k = find(s->engine, key_of(s->scope, ids, s->length + LAR_PAGE_TOKENS));
        if (!k) break;
        k->used = ++s->engine->uses;
        s->engine->holders[k->page]++;
        s->pages[s->page_count++] = k->page;
        s->length += LAR_PAGE_TOKENS;
    }
    recount(s->engine);
    return s->length;
}

void lar_sequence_keep(lar_sequence *s, const uint32_t *ids, uint32_t count) {
    lar_engine *e = s->engine;
    LAR_ASSERT(s->scope && count == s->length);
    for (uint32_t i = 0; i < count; i++)
        LAR_ASSERT(e->ids[s->pages[i / LAR_PAGE_TOKENS]][i % LAR_PAGE_TOKENS] == ids[i]);
    for (uint32_t i = 1; e->o.keeps && i <= count / LAR_PAGE_TOKENS; i++) {
        uint64_t key = key_of(s->scope, ids, i * LAR_PAGE_TOKENS);
        if (find(e, key)) continue;
        kept *k = e->kept;
        while (k->is) k++;
        *k = (kept){key, s->pages[i - 1], ++e->uses, true};
        e->holders[k->page]++;
    }
    recount(e);
}

uint32_t lar_engine_pin(lar_engine *e, const lar_digest *scope, const uint32_t *ids, uint32_t count,
                        uint64_t until_ms) {
    (void)e, (void)scope, (void)ids, (void)until_ms;
    return count / LAR_PAGE_TOKENS;
}

void lar_engine_unpin(lar_engine *e) {
    e->o.pinned = 0;
    recount(e);
}

/* -- steps ------------------------------------------------------------------------------------------------------- */

static void logits_of(uint64_t h, uint32_t last, float *logits) {
    for (uint32_t i = 0; i < STUB_VOCAB; i++)
        logits[i] = last == STUB_BAD_ID ? NAN : (float)(mixed(h, 1000 + i) >> 40) / (float)(1 << 22);
    if (last != STUB_BAD_ID) logits[STUB_BAD_ID] = -100;
}

void stub_logits(const uint32_t *ids, uint32_t count, float *logits) {
    uint64_t h = 7;
    for (uint32_t i = 0; i < count; i++) h = mixed(h, ids[i] + 1);
    logits_of(h, ids[count - 1], logits);
}

static float *fill(lar_sequence *s, const lar_engine_part *p, float *logits) {
    lar_engine *e = s->engine;
    uint32_t before = s->length, wanted = 0;
    for (uint32_t i = 0; i < p->count; i++, s->length++) {
        int32_t page = s->pages[s->length / LAR_PAGE_TOKENS];
        LAR_ASSERT(e->holders[page] == 1);
        e->ids[page][s->length % LAR_PAGE_TOKENS] = p->ids[i];
    }
    uint64_t h = 7;
    for (uint32_t i = 0; i < s->length; i++) {
        uint32_t id = e->ids[s->pages[i / LAR_PAGE_TOKENS]][i % LAR_PAGE_TOKENS];
        h = mixed(h, id + 1);
        if (wanted == p->wanted_count || i != before + p->wanted[wanted]) continue;
        logits_of(h, id, logits);
        logits += STUB_VOCAB;
        wanted++;
    }
    LAR_ASSERT(wanted == p->wanted_count);
    return logits;
}

lar_error lar_engine_step(lar_engine *e, const lar_engine_part *parts, uint32_t count, float *logits, lar_diag *d) {
    double us = e->o.pass_us;
    e->steps++;
    e->last = (stub_step){.parts = count};
    if (e->fail) {
        lar_error error = e->fail;
        e->fail = LAR_OK;
        return lar_fail(error, d, "the stub was told to fail");
    }
    for (uint32_t i = 0; i < count; i++) {
        lar_sequence *s = parts[i].sequence;
        LAR_ASSERT(parts[i].count > 0 && s->step != e->steps);
        LAR_ASSERT(s->length + parts[i].count <= s->page_count * LAR_PAGE_TOKENS); /* the scheduler reserved it */
        us += parts[i].count * (e->o.token_us + e->o.row_us * (s->length + parts[i].count / 2.0));
        s->step = e->steps;
        logits = fill(s, &parts[i], logits);
        e->last.tokens += parts[i].count;
        if (parts[i].count > e->last.longest) e->last.longest = parts[i].count;
    }
    us *= 1 + e->o.noise * (double)(mixed(e->steps, 5) >> 40) / (double)(1 << 24);
    e->tokens += e->last.tokens;
    e->last.us = us;
    stub_sleep((uint64_t)us);
    return LAR_OK;
}

/* -- the engine -------------------------------------------------------------------------------------------------- */

static lar_engine stub;

lar_engine *stub_engine_open(const stub_options *o) {
    LAR_ASSERT(o->pages <= STUB_PAGES_MAX);
    memset(&stub, 0, sizeof stub);
    stub.o = *o;
    recount(&stub);
    return &stub;
}

void stub_engine_close(lar_engine *e) {
    LAR_ASSERT(!e->sequences);
    LAR_ASSERT(atomic_load(&e->held) == atomic_load(&e->kept_count) + e->o.pinned);
}

lar_engine_info lar_engine_info_of(const lar_engine *e) {
    return (lar_engine_info){.vocab = STUB_VOCAB, .context = STUB_CONTEXT, .pass_tokens = e->o.pass_tokens};
}

void lar_engine_nice(lar_engine *e, int niceness) { (void)e, (void)niceness; }

void lar_engine_share(lar_engine *e, uint32_t count, void (*work)(void *context, uint32_t i), void *context) {
    (void)e;
    for (uint32_t i = count; i-- > 0;) work(context, i); /* no order is promised */
}

const stub_step *stub_last_step(const lar_engine *e) { return &e->last; }
uint64_t stub_steps(const lar_engine *e) { return e->steps; }
uint64_t stub_tokens(const lar_engine *e) { return e->tokens; }
void stub_fail_next(lar_engine *e, lar_error error) { e->fail = error; }
