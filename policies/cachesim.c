/* Four rules over sets of prefix hashes (header: cachesim.h).
 * Flow: a rendering becomes a chain of hashes (lar_prompt), and a rule asks its sets which of them it knows.
 * Called by `larder replay` and the demo upstream. One thread; never blocks.
 * Invariants: 1. hash[k] stands for the first k tokens; equal hashes mean equal prefixes (64 bits). 2. A request never
 * sees what it stores itself. 3. A set never holds more than two generations of entries_max.
 * Memory: a simulator owns its sets, a prompt its arrays; both grow as needed and are kept. */
#include "policies/cachesim.h"

#include <stdlib.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "base/ensure.h"
#include "policies/tokens.h"

enum { UNIT_INTERVAL = 2048, ENTRIES_DEFAULT = 4 << 20, SLOTS_FIRST = 1024 };

/* -- prompts ------------------------------------------------------------------------------------------ */

void lar_prompt_init(lar_prompt *p) {
    *p = (lar_prompt){0};
    lar_buf_init(&p->text, UINT32_MAX);
}

void lar_prompt_release(lar_prompt *p) {
    free(p->hash);
    free(p->blocks);
    lar_buf_release(&p->text);
    *p = (lar_prompt){0};
}

static lar_error reserve(lar_prompt *p, size_t hashes, size_t blocks) {
    if (p->hash_cap < hashes) {
        uint64_t *more = realloc(p->hash, hashes * sizeof *more);
        if (!more) return LAR_NO_MEMORY;
        p->hash = more;
        p->hash_cap = hashes;
    }
    if (p->block_cap < blocks) {
        lar_prompt_block *more = realloc(p->blocks, blocks * sizeof *more);
        if (!more) return LAR_NO_MEMORY;
        p->blocks = more;
        p->block_cap = blocks;
    }
    return LAR_OK;
}

/* Chains a text's tokens behind hash[from]; returns the number of the last. There is room for one a byte. */
static uint32_t chain(lar_prompt *p, uint32_t from, lar_slice text) {
    uint32_t n = from;
    while (text.len) {
        size_t len = lar_token_length(text);
        p->hash[n + 1] = XXH3_64bits_withSeed(text.ptr, len, p->hash[n]);
        n++;
        text = lar_slice_of(text.ptr + len, text.len - len);
    }
    return n;
}

/* Tokens up to each block's end. In Anthropic's messages no token crosses one, as blocks are apart there; else the text
 * is one, and a block ends with its last whole token. */
static void chain_blocks(lar_prompt *p, const lar_rendering *r) {
    lar_slice text = lar_buf_slice(&p->text);
    bool apart = r->protocol == LAR_PROTOCOL_MESSAGES;
    uint32_t b = 0, n = 0;
    size_t at = 0;
    while (at < text.len) {
        size_t stop = apart && b < r->block_count ? r->blocks[b].end : text.len;
        if (stop > at) {
            size_t len = lar_token_length(lar_slice_of(text.ptr + at, stop - at));
            for (; b < r->block_count && r->blocks[b].end < at + len; b++)
                p->blocks[b] = (lar_prompt_block){n, r->blocks[b].ttl_s};
            p->hash[n + 1] = XXH3_64bits_withSeed(text.ptr + at, len, p->hash[n]);
            n++;
            at += len;
        }
        for (; b < r->block_count && r->blocks[b].end <= at; b++)
            p->blocks[b] = (lar_prompt_block){n, r->blocks[b].ttl_s};
    }
    for (; b < r->block_count; b++) p->blocks[b] = (lar_prompt_block){n, r->blocks[b].ttl_s};
    p->tokens = p->whole = n;
}

lar_error lar_prompt_set(lar_prompt *p, uint64_t seed, const lar_rendering *r) {
    lar_buf_reset(&p->text, 16u << 20);
    lar_error e = lar_render_text(r, &p->text);
    if (!e) e = reserve(p, r->bytes + 1, r->block_count);
    if (e) return e;
    p->hash[0] = seed;
    p->block_count = r->block_count;
    p->automatic_ttl_s = r->automatic_ttl_s;
    chain_blocks(p, r);
    return LAR_OK;
}

lar_error lar_prompt_set_text(lar_prompt *p, uint64_t seed, lar_slice text) {
    if (text.len >= UINT32_MAX) return LAR_LIMIT;
    lar_error e = reserve(p, text.len + 1, 1);
    if (e) return e;
    p->hash[0] = seed;
    p->tokens = p->whole = chain(p, 0, text);
    p->blocks[0] = (lar_prompt_block){p->tokens, 0};
    p->block_count = 1;
    p->automatic_ttl_s = 0;
    return LAR_OK;
}

lar_error lar_prompt_add_text(lar_prompt *p, lar_slice answer) {
    if (answer.len >= UINT32_MAX - p->tokens) return LAR_LIMIT;
    lar_error e = reserve(p, (size_t)p->tokens + answer.len + 1, 0);
    if (!e) p->whole = chain(p, p->tokens, answer);
    return e;
}

lar_error lar_prompt_add_answer(lar_prompt *p, const lar_rendering *answer) {
    lar_buf_reset(&p->text, 16u << 20);
    lar_error e = lar_render_text(answer, &p->text);
    return e ? e : lar_prompt_add_text(p, lar_buf_slice(&p->text));
}

uint32_t lar_prompt_common(const lar_prompt *a, const lar_prompt *b) {
    uint32_t low = 0, high = a->tokens < b->tokens ? a->tokens : b->tokens;
    if (a->hash[0] != b->hash[0]) return 0;
    while (low < high) { /* equal at k means equal before k */
        uint32_t mid = low + (high - low + 1) / 2;
        if (a->hash[mid] == b->hash[mid]) low = mid;
        else high = mid - 1;
    }
    return low;
}

/* -- sets of prefixes, with the time of their last use -------------------------------------------------- */

typedef struct table {
    uint64_t *keys;    /* 0 = free */
    uint32_t *until_s; /* the entry is gone behind it; UINT32_MAX = never */
    size_t slots, used;
} table;

typedef struct set {
    table young, old;
    size_t entries_max;
} set;

struct lar_cachesim {
    lar_cachesim_options o;
    set seen;  /* UNITS: every prefix of every prompt; else borders of blocks or steps, or marks */
    set units; /* UNITS only */
    uint32_t now_s;
    bool failed;
};

/* The length goes into the key: a prefix of another length never matches. */
static uint64_t key_of(const lar_prompt *p, uint32_t k) {
    uint64_t v = p->hash[k] ^ ((uint64_t)k * 0x9E3779B97F4A7C15u);
    return v ? v : 1;
}

static size_t slot_of(const table *t, uint64_t key) {
    size_t i = (size_t)(key ^ key >> 32) & (t->slots - 1);
    while (t->keys[i] && t->keys[i] != key) i = (i + 1) & (t->slots - 1);
    return i;
}

static void table_release(table *t) {
    free(t->keys);
    free(t->until_s);
    *t = (table){0};
}

static bool table_grow(table *t) {
    table bigger = {.slots = t->slots ? t->slots * 2 : SLOTS_FIRST, .used = t->used};
    bigger.keys = calloc(bigger.slots, sizeof *bigger.keys);
    bigger.until_s = calloc(bigger.slots, sizeof *bigger.until_s);
    if (!bigger.keys || !bigger.until_s) {
        table_release(&bigger);
        return false;
    }
    for (size_t i = 0; i < t->slots; i++) {
        if (!t->keys[i]) continue;
        size_t to = slot_of(&bigger, t->keys[i]);
        bigger.keys[to] = t->keys[i];
        bigger.until_s[to] = t->until_s[i];
    }
    table_release(t);
    *t = bigger;
    return true;
}

static bool table_has(const table *t, uint64_t key, uint32_t now_s) {
    if (!t->slots) return false;
    size_t i = slot_of(t, key);
    return t->keys[i] && t->until_s[i] >= now_s;
}

static bool set_has(const set *s, uint64_t key, uint32_t now_s) {
    return table_has(&s->young, key, now_s) || table_has(&s->old, key, now_s);
}

static void set_add(lar_cachesim *sim, set *s, uint64_t key, uint32_t until_s) {
    if (s->young.used >= s->entries_max) {
        table_release(&s->old);
        s->old = s->young;
        s->young = (table){0};
    }
    if (s->young.used * 2 >= s->young.slots && !table_grow(&s->young)) {
        sim->failed = true;
        return;
    }
    size_t i = slot_of(&s->young, key);
    if (!s->young.keys[i]) s->young.used++;
    s->young.keys[i] = key;
    s->young.until_s[i] = until_s;
}

static void set_release(set *s) {
    table_release(&s->young);
    table_release(&s->old);
}

/* -- the rules -------------------------------------------------------------------------------------------- */

static uint32_t until(const lar_cachesim *s, uint32_t row_ttl_s) {
    uint32_t ttl = s->o.ttl_s ? s->o.ttl_s : row_ttl_s;
    if (s->o.no_ttl || !ttl || !s->now_s || ttl >= UINT32_MAX - s->now_s) return UINT32_MAX;
    return s->now_s + ttl;
}

static uint32_t longest(const lar_cachesim *s, const set *of, const lar_prompt *p) {
    uint32_t k = p->tokens;
    while (k > 0 && !set_has(of, key_of(p, k), s->now_s)) k--;
    return k;
}

static uint32_t request_units(lar_cachesim *s, const lar_prompt *p) {
    uint32_t n = p->tokens, step = s->o.provider->step_tokens, gone = until(s, s->o.provider->ttl_max_s);
    uint32_t hit = longest(s, &s->units, p), common = longest(s, &s->seen, p);
    if (hit) set_add(s, &s->units, key_of(p, hit), gone);
    if (common) set_add(s, &s->units, key_of(p, common), gone);
    if (n) set_add(s, &s->units, key_of(p, n), gone);
    for (uint32_t k = UNIT_INTERVAL; k < n; k += UNIT_INTERVAL) set_add(s, &s->units, key_of(p, k), gone);
    for (uint32_t k = 1; k <= n; k++) set_add(s, &s->seen, key_of(p, k), gone);
    if (p->whole > n) set_add(s, &s->units, key_of(p, p->whole), gone);
    return hit / step * step;
}

/* Blocks and steps: the last token must be computed, so a prompt is never served whole. */
static uint32_t request_steps(lar_cachesim *s, const lar_prompt *p, uint32_t tokens_min) {
    uint32_t step = s->o.provider->step_tokens, first = tokens_min > step ? tokens_min : step, hit = 0;
    uint32_t gone = until(s, s->o.provider->ttl_max_s);
    for (uint32_t k = first; k < p->tokens && set_has(&s->seen, key_of(p, k), s->now_s); k += step) hit = k;
    for (uint32_t k = first; k <= p->tokens; k += step) set_add(s, &s->seen, key_of(p, k), gone);
    return hit;
}

/* The life of what block b stores: its own mark's, or that of the automatic one. Only the last breakpoints_max marks
 * count, as more would be refused. */
static uint32_t mark_of(const lar_cachesim *s, const lar_prompt *p, uint32_t b, bool automatic) {
    if (p->blocks[b].ttl_s) return p->blocks[b].ttl_s;
    if (b + 1 < p->block_count || !automatic) return 0;
    return p->automatic_ttl_s ? p->automatic_ttl_s : s->o.provider->ttl_s;
}

static uint32_t look_back(const lar_cachesim *s, const lar_prompt *p, uint32_t b, uint32_t tokens_min) {
    for (uint32_t back = 0; back < s->o.provider->lookback_blocks && back <= b; back++) {
        uint32_t k = p->blocks[b - back].tokens;
        if (k < tokens_min || k == 0) return 0;
        if (set_has(&s->seen, key_of(p, k), s->now_s)) return k;
    }
    return 0;
}

static void request_marks(lar_cachesim *s, const lar_prompt *p, uint32_t tokens_min, lar_cachesim_usage *out) {
    enum { MARKS_MAX = 16 };
    uint32_t marks[MARKS_MAX], lives[MARKS_MAX], count = 0, most = s->o.provider->breakpoints_max, last = 0;
    bool any = false;
    LAR_ASSERT(most <= MARKS_MAX);
    for (uint32_t b = 0; b < p->block_count; b++) any |= p->blocks[b].ttl_s != 0;
    bool automatic = p->automatic_ttl_s || (!any && s->o.automatic_marker);
    for (uint32_t b = p->block_count; b > 0 && count < most; b--) {
        uint32_t life = mark_of(s, p, b - 1, automatic);
        if (!life) continue;
        marks[count] = b - 1;
        lives[count++] = life;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t k = look_back(s, p, marks[i], tokens_min), end = p->blocks[marks[i]].tokens;
        if (k > out->hit) {
            out->hit = k;
            set_add(s, &s->seen, key_of(p, k), until(s, lives[i])); /* a read refreshes */
        }
        if (end >= tokens_min && end > last) last = end;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t end = p->blocks[marks[i]].tokens;
        if (end && end >= tokens_min) set_add(s, &s->seen, key_of(p, end), until(s, lives[i]));
    }
    out->write = last > out->hit ? last - out->hit : 0;
}

lar_error lar_cachesim_request(lar_cachesim *s, const lar_prompt *p, uint32_t tokens_min, int64_t time_ms,
                               lar_cachesim_usage *out) {
    *out = (lar_cachesim_usage){.prompt = p->tokens};
    s->now_s = time_ms > 0 && time_ms / 1000 < UINT32_MAX ? (uint32_t)(time_ms / 1000) : 0;
    s->failed = false;
    switch (s->o.provider->rule) {
    case LAR_CACHE_BLOCKS:
    case LAR_CACHE_STEPS: out->hit = request_steps(s, p, tokens_min); break;
    case LAR_CACHE_UNITS: out->hit = request_units(s, p); break;
    case LAR_CACHE_BREAKPOINTS: request_marks(s, p, tokens_min, out); break;
    }
    return s->failed ? LAR_NO_MEMORY : LAR_OK;
}

lar_cachesim *lar_cachesim_new(const lar_cachesim_options *o) {
    lar_cachesim *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->o = *o;
    s->seen.entries_max = s->units.entries_max = o->entries_max ? o->entries_max : ENTRIES_DEFAULT;
    return s;
}

void lar_cachesim_reset(lar_cachesim *s) {
    set_release(&s->seen);
    set_release(&s->units);
}

void lar_cachesim_free(lar_cachesim *s) {
    if (!s) return;
    lar_cachesim_reset(s);
    free(s);
}
