/* Sequences over a pool of pages: FlashMLA's bytes in their place; random extending, forking, cutting, sharing and
 * taking back against sequences that are plain lists, in a pool that is often full. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/cache/latent_cache.h"

/* -- FlashMLA's page ----------------------------------------------------------------------------------------------- */

/* FlashMLA's README on its FP8 format: a token's 656 bytes are 512 of E4M3, four float32 scales, one for each 128 of
 * them, and 64 bfloat16 of the rope part, which is not rounded further; a page is 64 such rows. Encoded here from that
 * text, with a table of all codes and nothing of the engine's. */
static double e4m3(uint32_t code) {
    int exponent = (int)(code >> 3 & 15), mantissa = (int)(code & 7);
    double most = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
    return code & 0x80 ? -most : most;
}

static uint8_t nearest_e4m3(double x) {
    uint32_t sign = signbit(x) ? 0x80 : 0, best = 0;
    for (uint32_t code = 1; code < 0x7f; code++) { /* 0x7f is NaN */
        double off = fabs(e4m3(code) - fabs(x)), least = fabs(e4m3(best) - fabs(x));
        if (off < least || (off == least && code % 2 == 0)) best = code;
    }
    return (uint8_t)(sign | best);
}

static void put_le(uint8_t *to, uint32_t bits, int bytes) {
    for (int i = 0; i < bytes; i++) to[i] = (uint8_t)(bits >> 8 * i);
}

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void flashmla_row(const float *row, uint8_t *to) {
    for (int tile = 0; tile < 4; tile++) {
        double most = 1e-4f;
        for (int i = 0; i < 128; i++) most = fmax(most, fabs((double)row[tile * 128 + i]));
        double scale = exp2(ceil(log2(most / 448)));
        for (int i = 0; i < 128; i++) to[tile * 128 + i] = nearest_e4m3(row[tile * 128 + i] / scale);
        put_le(to + 512 + 4 * tile, bits_of((float)scale), 4);
    }
    for (int i = 0; i < 64; i++) {
        uint32_t bits = bits_of(row[512 + i]); /* to the nearest, ties to even */
        put_le(to + 528 + 2 * i, (bits + 0x7fff + (bits >> 16 & 1)) >> 16, 2);
    }
}

static void a_page_is_flashmla_s_byte_by_byte(void **state) {
    (void)state;
    enum { LAYERS = 3, TOKENS = 130 };
    const uint8_t kv[LAYERS] = {LAR_KV_FP8, LAR_KV_F32, LAR_KV_FP8};
    const lar_page_layout l = {LAYERS, 512, 64, kv};
    lar_page_pool *pool;
    lar_latent_cache *k;
    lar_diag d = {0};
    float row[576];
    uint8_t want[656];
    uint32_t bits = 9;
    assert_int_equal(lar_page_pool_new(&l, 4 * lar_page_layout_page_bytes(&l), &pool, &d), LAR_OK);
    int32_t first = lar_page_take(pool); /* so that the sequence does not begin at the pool's first page */
    assert_int_equal(lar_latent_cache_new(pool, TOKENS, &k, &d), LAR_OK);
    assert_int_equal(lar_latent_cache_reserve(k, TOKENS, &d), LAR_OK);
    lar_latent_cache_begin(k);
    for (uint32_t t = 0; t < TOKENS; t++)
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            for (int i = 0; i < 576; i++) {
                bits = bits * 1664525u + 1013904223u;
                row[i] = (float)(int32_t)bits * ldexpf(1, -31 + (int)(t % 24) - 14);
            }
            lar_latent_cache_put(k, layer, t, row);
            if (layer == 1) continue;
            flashmla_row(row, want);
            assert_memory_equal(lar_page_rows(pool, (int32_t)(t / 64) + 1, layer) + t % 64 * 656, want, 656);
        }
    lar_latent_cache_grow(k, TOKENS);
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(lar_latent_cache_page(k, i), i + 1);
    assert_int_equal(lar_page_rows(pool, 1, 1) - lar_page_rows(pool, 1, 0), 41984);
    lar_latent_cache_free(k);
    lar_page_drop(pool, first);
    lar_page_pool_free(pool);
}

/* -- random operations --------------------------------------------------------------------------------------------- */

enum { PAGES = 22, SEQUENCES = 7, CAPACITY = 400, RANK = 3, ROPE = 2, LAYERS = 2, OPERATIONS = 40000 };

typedef struct plain {
    lar_latent_cache *cache; /* NULL: none at present */
    uint32_t length;
    uint16_t value[CAPACITY]; /* of each token: all rows follow from it */
} plain;

typedef struct world {
    lar_page_pool *pool;
    plain sequences[SEQUENCES];
    uint32_t bits;
    uint16_t next;
    uint32_t full, copies;
} world;

static uint32_t throw(world * w, uint32_t sides) {
    w->bits = w->bits * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)w->bits * sides >> 32);
}

/* Whole numbers that bfloat16 holds. */
static float value_of(uint16_t token, uint32_t layer, uint32_t i) { return (float)((token + layer * 7 + i * 3) % 251); }

static void check_rows(const plain *s) {
    float room[64 * (RANK + ROPE)];
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        lar_latents l = lar_latent_cache_rows(s->cache, layer);
        for (uint32_t first = 0; first < s->length; first += 64) {
            uint32_t n = s->length - first < 64 ? s->length - first : 64;
            const float *rows = l.rows(&l, first, n, room);
            for (uint32_t i = 0; i < n * (RANK + ROPE); i++) {
                uint16_t token = s->value[first + i / (RANK + ROPE)];
                if (rows[i] != value_of(token, layer, i % (RANK + ROPE)))
                    fail_msg("layer %u, token %u", layer, first + i / (RANK + ROPE));
            }
        }
    }
}

static void check_sizes(const world *w) {
    bool seen[PAGES] = {false};
    uint32_t held = 0;
    for (int i = 0; i < SEQUENCES; i++) {
        const plain *s = &w->sequences[i];
        if (!s->cache) continue;
        assert_int_equal(lar_latent_cache_length(s->cache), s->length);
        uint32_t with_rows = (s->length + 63) / 64;
        held += lar_latent_cache_pages(s->cache) - with_rows; /* reserved: nobody else's */
        for (uint32_t k = 0; k < with_rows; k++) {
            int32_t page = lar_latent_cache_page(s->cache, k);
            held += !seen[page];
            seen[page] = true;
        }
    }
    assert_int_equal(lar_page_pool_counts(w->pool).held, held);
}

/* Reserves if it can, and says whether it could; checks that it could exactly where there are pages. */
static bool reserve(world *w, plain *s, uint32_t tokens) {
    lar_diag d = {0};
    lar_page_counts before = lar_page_pool_counts(w->pool);
    uint32_t lacks = lar_latent_cache_lacks(s->cache, tokens), pages = lar_latent_cache_pages(s->cache);
    lar_error e = lar_latent_cache_reserve(s->cache, tokens, &d);
    if (s->length + tokens > CAPACITY) {
        assert_int_equal(e, LAR_LIMIT);
    } else {
        assert_int_equal(e, lacks > before.pages - before.held ? LAR_FULL : LAR_OK);
    }
    assert_int_equal(lar_latent_cache_pages(s->cache), pages + (e ? 0 : lacks));
    assert_int_equal(lar_page_pool_counts(w->pool).held, before.held + (e ? 0 : lacks));
    w->full += e == LAR_FULL;
    return !e;
}

static void put_tokens(world *w, plain *s, uint32_t tokens) {
    float row[RANK + ROPE];
    uint32_t last = s->length / 64;
    bool begun = s->length % 64;
    int32_t page = begun ? lar_latent_cache_page(s->cache, last) : LAR_PAGE_NONE;
    lar_latent_cache_begin(s->cache);
    w->copies += begun && page != lar_latent_cache_page(s->cache, last);
    for (uint32_t t = s->length; t < s->length + tokens; t++) {
        s->value[t] = w->next++;
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            for (uint32_t i = 0; i < RANK + ROPE; i++) row[i] = value_of(s->value[t], layer, i);
            lar_latent_cache_put(s->cache, layer, t, row);
        }
    }
}

static void extend(world *w, plain *s) {
    uint32_t tokens = throw(w, 4) ? throw(w, 150) : 1;
    if (!tokens || !reserve(w, s, tokens)) return;
    put_tokens(w, s, tokens);
    lar_latent_cache_grow(s->cache, tokens);
    s->length += tokens;
}

/* A step that fails half way: nothing is left of it. */
static void fail_half_way(world *w, plain *s) {
    uint32_t tokens = 1 + throw(w, 90);
    if (throw(w, 3) == 0 && !reserve(w, s, throw(w, 70))) return;
    uint32_t pages = lar_latent_cache_pages(s->cache);
    lar_latent_cache_mark(s->cache);
    if (reserve(w, s, tokens)) {
        uint32_t some = throw(w, tokens + 1);
        bool copied = false;
        if (some) {
            uint32_t copies = w->copies;
            put_tokens(w, s, some);
            copied = w->copies != copies;
            lar_latent_cache_grow(s->cache, some);
        }
        lar_latent_cache_back(s->cache);
        if (!copied) assert_true(lar_latent_cache_pages(s->cache) <= pages); /* less a page that was not needed */
    }
}

static void fork_one(world *w, const plain *from, plain *to) {
    lar_diag d = {0};
    lar_page_counts before = lar_page_pool_counts(w->pool);
    lar_error e = lar_latent_cache_fork(from->cache, &to->cache, &d);
    bool room = from->length % 64 == 0 || before.held < before.pages;
    assert_int_equal(e, room ? LAR_OK : LAR_FULL);
    assert_int_equal(lar_page_pool_counts(w->pool).held, before.held + (!e && from->length % 64));
    if (e) {
        assert_null(to->cache);
        return;
    }
    to->length = from->length;
    memcpy(to->value, from->value, sizeof to->value);
    check_rows(to);
}

/* As a prefix cache does: whole pages of one sequence go to an empty one; an equal page takes the place of another. */
static void share_pages(world *w, const plain *from, plain *to) {
    int32_t pages[CAPACITY / 64];
    lar_diag d = {0};
    uint32_t count = throw(w, from->length / 64 + 1);
    assert_int_equal(lar_latent_cache_new(w->pool, CAPACITY, &to->cache, &d), LAR_OK);
    for (uint32_t i = 0; i < count; i++) {
        pages[i] = lar_latent_cache_page(from->cache, i);
        lar_page_share(w->pool, pages[i]);
    }
    lar_latent_cache_append(to->cache, pages, count);
    to->length = count * 64;
    memcpy(to->value, from->value, sizeof to->value);
}

static void replace_page(world *w, plain *s) {
    if (s->length < 64) return;
    uint32_t index = throw(w, s->length / 64);
    int32_t old = lar_latent_cache_page(s->cache, index), page = lar_page_take(w->pool);
    if (page == LAR_PAGE_NONE) return;
    memcpy(lar_page_bytes(w->pool, page), lar_page_bytes(w->pool, old), lar_page_pool_counts(w->pool).page_bytes);
    lar_latent_cache_replace(s->cache, index, page);
}

static void operate(world *w) {
    plain *s = &w->sequences[throw(w, SEQUENCES)], *other = &w->sequences[throw(w, SEQUENCES)];
    lar_diag d = {0};
    if (!s->cache) {
        assert_int_equal(lar_latent_cache_new(w->pool, CAPACITY, &s->cache, &d), LAR_OK);
        s->length = 0;
        return;
    }
    switch (throw(w, 14)) {
    case 0: s->length -= throw(w, s->length / 2 + 1), lar_latent_cache_cut(s->cache, s->length); break;
    case 7: /* often into pages that others hold */
        s->length -= throw(w, s->length < 100 ? s->length + 1 : 100);
        lar_latent_cache_cut(s->cache, s->length);
        extend(w, s);
        break;
    case 1: fail_half_way(w, s); break;
    case 2: (void)reserve(w, s, throw(w, 70)); break;
    case 3: lar_latent_cache_free(s->cache), s->cache = NULL; break;
    case 4:
    case 5:
        if (other == s) break;
        lar_latent_cache_free(other->cache), other->cache = NULL;
        if (throw(w, 2)) fork_one(w, s, other);
        else share_pages(w, s, other);
        break;
    case 6: replace_page(w, s); break;
    default: extend(w, s); break;
    }
    if (s->cache) check_rows(s);
    if (other->cache) check_rows(other);
}

static void sequences_are_lists_that_share_pages(void **state) {
    (void)state;
    const uint8_t kv[LAYERS] = {LAR_KV_F32, LAR_KV_BF16};
    const lar_page_layout l = {LAYERS, RANK, ROPE, kv};
    world *w = calloc(1, sizeof *w);
    lar_diag d = {0};
    w->bits = 5;
    assert_int_equal(lar_page_pool_new(&l, PAGES * lar_page_layout_page_bytes(&l), &w->pool, &d), LAR_OK);
    for (int i = 0; i < OPERATIONS; i++) {
        operate(w);
        check_sizes(w);
    }
    print_message("pages ran out %u times; %u shared ones were copied before they were written\n", w->full, w->copies);
    assert_true(w->full > 100 && w->copies > 100);
    for (int i = 0; i < SEQUENCES; i++) lar_latent_cache_free(w->sequences[i].cache);
    assert_int_equal(lar_page_pool_counts(w->pool).held, 0);
    lar_page_pool_free(w->pool);
    free(w);
}

/* Alone, all room is there from the start, stays after a cut, and a fork has pages of its own too. */
static void a_sequence_alone_has_all_its_room(void **state) {
    (void)state;
    const uint8_t kv[LAYERS] = {LAR_KV_BF16, LAR_KV_F32};
    const lar_page_layout l = {LAYERS, RANK, ROPE, kv};
    world w = {.next = 1};
    plain a = {0}, b = {0};
    lar_diag d = {0};
    assert_int_equal(lar_latent_cache_new_alone(&l, 100, &a.cache, &d), LAR_OK);
    assert_int_equal(lar_latent_cache_room(a.cache), 100);
    assert_int_equal(lar_latent_cache_pages(a.cache), 2);
    assert_int_equal(lar_latent_cache_lacks(a.cache, 100), 0);
    put_tokens(&w, &a, 90);
    lar_latent_cache_grow(a.cache, 90), a.length = 90;
    assert_int_equal(lar_latent_cache_reserve(a.cache, 11, &d), LAR_LIMIT);
    assert_non_null(strstr(d.text, "101 tokens; the sequence has room for 100"));
    assert_int_equal(lar_latent_cache_fork(a.cache, &b.cache, &d), LAR_OK);
    b = (plain){b.cache, a.length, {0}};
    memcpy(b.value, a.value, sizeof b.value);
    lar_latent_cache_cut(a.cache, 3), a.length = 3;
    assert_int_equal(lar_latent_cache_room(a.cache), 100);
    put_tokens(&w, &a, 97);
    lar_latent_cache_grow(a.cache, 97), a.length = 100;
    check_rows(&a);
    check_rows(&b);
    lar_latent_cache_free(a.cache);
    check_rows(&b);
    lar_latent_cache_free(b.cache);
    lar_latent_cache_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_is_flashmla_s_byte_by_byte),
        cmocka_unit_test(sequences_are_lists_that_share_pages),
        cmocka_unit_test(a_sequence_alone_has_all_its_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
