/* Prefix caches on pseudo-tokens: tokens to a chain of hashes, and three rules over sets of hashes.
 *
 * Called by the demo upstream, once a completion. One thread; never blocks.
 * Why: whether larder helps can only be shown against an upstream that counts hits by published rules.
 * Invariants:
 *   1. hash[k] stands for the first k tokens; equal hashes mean equal prefixes (64 bits).
 *   2. A request never sees what it stores itself.
 *   3. The sets are bounded: when one is full, the whole cache is dropped, as a busy provider's would be.
 * Memory: the cache owns its sets and the work array, which keeps its largest size. */
#include "demo_cache.h"

#include <stdlib.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "demo_json.h"

enum { INTERVAL = 2048, STEP = 128, OPENAI_MIN = 1024, BLOCK = 16 };
#define SET_MAX ((size_t)1 << 24)

typedef struct set {
    uint64_t *slots; /* 0 = free */
    size_t cap, used;
} set;

struct demo_cache {
    demo_rule rule;
    set seen;  /* deepseek: every prefix of every earlier prompt; else the block or step borders */
    set units; /* deepseek only */
    uint64_t *hash;
    size_t hash_cap;
};

bool demo_rule_find(const char *name, demo_rule *out) {
    static const char *const names[] = {"none", "deepseek", "openai", "vllm16"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *out = (demo_rule)i;
        return true;
    }
    return false;
}

bool demo_rule_system_first(demo_rule rule) { return rule == DEMO_RULE_DEEPSEEK; }

static void *need(void *p) {
    if (!p) abort();
    return p;
}

/* The length goes into the key: a prefix of another length never matches. */
static uint64_t key_of(uint64_t hash, size_t k) {
    uint64_t v = hash ^ ((uint64_t)k * 0x9E3779B97F4A7C15u);
    return v ? v : 1;
}

static size_t slot_of(const set *s, uint64_t key) {
    size_t i = (size_t)(key ^ key >> 32) & (s->cap - 1);
    while (s->slots[i] && s->slots[i] != key) i = (i + 1) & (s->cap - 1);
    return i;
}

static bool set_has(const set *s, uint64_t key) { return s->cap && s->slots[slot_of(s, key)] == key; }

static void set_grow(set *s) {
    set bigger = {.cap = s->cap ? s->cap * 2 : 4096, .used = s->used};
    bigger.slots = need(calloc(bigger.cap, sizeof *bigger.slots));
    for (size_t i = 0; i < s->cap; i++)
        if (s->slots[i]) bigger.slots[slot_of(&bigger, s->slots[i])] = s->slots[i];
    free(s->slots);
    *s = bigger;
}

static void set_add(set *s, uint64_t key) {
    if (s->used * 2 >= s->cap) set_grow(s);
    size_t i = slot_of(s, key);
    if (s->slots[i]) return;
    s->slots[i] = key;
    s->used++;
}

static void set_clear(set *s) {
    free(s->slots);
    *s = (set){0};
}

demo_cache *demo_cache_new(demo_rule rule) {
    demo_cache *c = need(calloc(1, sizeof *c));
    c->rule = rule;
    return c;
}

void demo_cache_free(demo_cache *c) {
    if (!c) return;
    demo_cache_reset(c);
    free(c->hash);
    free(c);
}

void demo_cache_reset(demo_cache *c) {
    set_clear(&c->seen);
    set_clear(&c->units);
}

static bool is_letter(unsigned char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static bool is_digit(unsigned char c) { return c >= '0' && c <= '9'; }

/* Bytes of the white space character at p, 0 if it is none: ASCII's and Unicode's (property White_Space, and the
 * four separators U+001C to U+001F). */
static size_t space_len(const char *p, const char *end) {
    const unsigned char *s = (const unsigned char *)p;
    size_t left = (size_t)(end - p);
    if (left == 0) return 0;
    if (s[0] == ' ' || (s[0] >= 9 && s[0] <= 13) || (s[0] >= 0x1C && s[0] <= 0x1F)) return 1;
    if (left >= 2 && s[0] == 0xC2 && (s[1] == 0x85 || s[1] == 0xA0)) return 2;
    if (left < 3) return 0;
    if (s[0] == 0xE3 && s[1] == 0x80 && s[2] == 0x80) return 3;
    if (s[0] == 0xE1 && s[1] == 0x9A && s[2] == 0x80) return 3;
    if (s[0] != 0xE2) return 0;
    if (s[1] == 0x80 && (s[2] <= 0x8A || s[2] == 0xA8 || s[2] == 0xA9 || s[2] == 0xAF)) return 3;
    return s[1] == 0x81 && s[2] == 0x9F ? 3 : 0;
}

static const char *token_end(const char *p, const char *end) {
    const char *e = p;
    unsigned char c = (unsigned char)*p;
    size_t n;
    if (is_letter(c)) {
        while (e < end && e - p < 5 && is_letter((unsigned char)*e)) e++;
        return e;
    }
    if (is_digit(c)) {
        while (e < end && e - p < 3 && is_digit((unsigned char)*e)) e++;
        return e;
    }
    while ((n = space_len(e, end)) != 0) e += n;
    if (e > p) return e;
    uint32_t u = demo_utf8_len(p, end);
    return p + (u ? u : 1);
}

/* Chains text's tokens behind hash[from]; returns the number of the last. */
static size_t chain(demo_cache *c, size_t from, lar_slice text) {
    if (text.len == 0) text = lar_slice_of("", 0);
    const char *p = text.ptr, *end = text.ptr + text.len;
    size_t n = from;
    /* A token has at least one byte, so this is room enough. */
    if (c->hash_cap < n + text.len + 1) {
        c->hash_cap = n + text.len + 1;
        c->hash = need(realloc(c->hash, c->hash_cap * sizeof *c->hash));
    }
    if (n == 0) c->hash[0] = 0;
    while (p < end) {
        const char *e = token_end(p, end);
        c->hash[n + 1] = XXH3_64bits_withSeed(p, (size_t)(e - p), c->hash[n]);
        n++;
        p = e;
    }
    return n;
}

static uint64_t key_at(const demo_cache *c, size_t k) { return key_of(c->hash[k], k); }

static size_t longest(const demo_cache *c, const set *s, size_t n) {
    while (n > 0 && !set_has(s, key_at(c, n))) n--;
    return n;
}

static size_t request_deepseek(demo_cache *c, size_t n, lar_slice answer) {
    size_t hit = longest(c, &c->units, n), common = longest(c, &c->seen, n);
    if (common) set_add(&c->units, key_at(c, common));
    set_add(&c->units, key_at(c, n));
    for (size_t k = INTERVAL; k < n; k += INTERVAL) set_add(&c->units, key_at(c, k));
    for (size_t k = 1; k <= n; k++) set_add(&c->seen, key_at(c, k));
    size_t whole = chain(c, n, answer);
    if (whole > n) set_add(&c->units, key_at(c, whole));
    return hit / STEP * STEP;
}

static size_t request_openai(demo_cache *c, size_t n) {
    size_t hit = 0;
    for (size_t k = OPENAI_MIN; k < n && set_has(&c->seen, key_at(c, k)); k += STEP) hit = k;
    for (size_t k = OPENAI_MIN; k <= n; k += STEP) set_add(&c->seen, key_at(c, k));
    return hit;
}

/* A prompt is never served whole: its last token must be computed. */
static size_t request_vllm(demo_cache *c, size_t n) {
    size_t hit = 0;
    while (hit + BLOCK < n && set_has(&c->seen, key_at(c, hit + BLOCK))) hit += BLOCK;
    for (size_t k = BLOCK; k <= n; k += BLOCK) set_add(&c->seen, key_at(c, k));
    return hit;
}

demo_usage demo_cache_request(demo_cache *c, lar_slice prompt, lar_slice answer) {
    demo_usage u = {0};
    if (c->rule == DEMO_RULE_NONE) {
        u.prompt = prompt.len / 4 + 1;
        u.output = answer.len / 4 + 1;
        return u;
    }
    if (c->seen.used > SET_MAX || c->units.used > SET_MAX) demo_cache_reset(c);
    size_t n = chain(c, 0, prompt), hit = 0;
    if (c->rule == DEMO_RULE_DEEPSEEK) hit = request_deepseek(c, n, answer);
    else if (c->rule == DEMO_RULE_OPENAI) hit = request_openai(c, n);
    else hit = request_vllm(c, n);
    u.prompt = n;
    u.hit = hit;
    u.output = chain(c, n, answer) - n;
    return u;
}
