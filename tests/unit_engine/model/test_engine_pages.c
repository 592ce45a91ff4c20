/* Sequences in the pages of one pool: bit for bit what they are alone, however a prompt is cut into steps, whoever else
 * is in them, forked or not; and what happens when pages run out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "tests/unit_engine/files/file_box.h"
#include "tests/unit_engine/files/model_maker.h"

enum { VOCAB = 300, TOKENS = 230, CONTEXT = 512, LAYERS = 3 };

static uint32_t ids[TOKENS];
static char path[BOX_PATH_BYTES];
enum { FORMATS = 3 };
static const char *const formats[FORMATS] = {"f32", "fp8,0=bf16,2=int8", "bf16"};

static int prepare(void **state) {
    const model_shape s = {.layers = LAYERS,
                           .dense_layers = 1,
                           .hidden = 40,
                           .heads = 5,
                           .q_rank = 13,
                           .kv_rank = 24,
                           .nope = 8,
                           .rope = 8,
                           .v_dim = 16,
                           .dense_ff = 50,
                           .expert_ff = 12,
                           .experts = 12,
                           .experts_used = 4,
                           .shared = 3,
                           .groups = 3,
                           .groups_used = 2,
                           .sigmoid = true,
                           .expert_scale = 2.5,
                           .vocab = VOCAB,
                           .context = CONTEXT,
                           .eps = 1e-5,
                           .rope_base = 10000,
                           .type = LAR_DTYPE_BF16,
                           .seed = 11,
                           .embedding = 1};
    if (box_setup(state)) return -1;
    box_folder(*state, "model");
    model_write(&s, LAR_MODEL_FOLDER, box_path(*state, "model", path));
    for (uint32_t i = 0; i < TOKENS; i++) ids[i] = (i * 71 + i / 7 + 5) % VOCAB;
    return 0;
}

static lar_engine *engine_of(const char *kv, uint32_t pages, uint32_t tokens_max) {
    lar_engine *e;
    lar_diag d = {0};
    lar_engine_options o = {.path = path,
                            .kv = kv,
                            .tokens_max = tokens_max,
                            .threads = 2,
                            .attention = LAR_ATTENTION_ABSORBED,
                            .page_bytes = 1};
    if (pages) { /* a page's bytes are those that the engine says it takes */
        assert_int_equal(lar_engine_open(&o, &e, &d), LAR_INVALID);
        const char *takes = strstr(d.text, "takes ");
        assert_non_null(takes);
        o.page_bytes = pages * strtoull(takes + 6, NULL, 10);
    } else {
        o.page_bytes = 0;
    }
    if (lar_engine_open(&o, &e, &d)) fail_msg("%s", d.text);
    assert_int_equal(lar_engine_pages(e).pages, pages);
    return e;
}

static lar_sequence *sequence_of(const lar_engine *e, uint32_t capacity) {
    lar_sequence *s;
    lar_diag d = {0};
    if (lar_sequence_new(e, capacity, &s, &d)) fail_msg("%s", d.text);
    return s;
}

static void step(lar_engine *e, const lar_engine_part *parts, uint32_t count, float *logits) {
    lar_diag d = {0};
    if (lar_engine_step(e, parts, count, logits, &d)) fail_msg("%s", d.text);
}

/* Logits of all `count` tokens of `from`, fed `chunk` at a time, (count, VOCAB). */
static float *all_logits(lar_engine *e, const uint32_t *from, uint32_t count, uint32_t chunk) {
    float *logits = malloc((size_t)count * VOCAB * sizeof *logits);
    uint32_t wanted[TOKENS];
    lar_sequence *s = sequence_of(e, count);
    for (uint32_t i = 0; i < count; i++) wanted[i] = i;
    for (uint32_t at = 0; at < count; at += chunk) {
        uint32_t n = chunk < count - at ? chunk : count - at;
        step(e, &(lar_engine_part){s, from + at, n, wanted, n}, 1, logits + (size_t)at * VOCAB);
    }
    lar_sequence_free(s);
    return logits;
}

/* What a sequence alone, with pages of its own and in one step, computes. */
static float *alone(const char *kv, const uint32_t *from, uint32_t count) {
    lar_engine *e = engine_of(kv, 0, 0);
    float *logits = all_logits(e, from, count, count);
    lar_engine_close(e);
    return logits;
}

static void same_bits(const float *got, const float *want, uint32_t token, const char *where) {
    if (memcmp(got, want + (size_t)token * VOCAB, VOCAB * sizeof *got) != 0) fail_msg("%s: token %u", where, token);
}

static void pages_and_chunks_give_the_same_bits(void **state) {
    (void)state;
    static const uint32_t chunks[] = {1, 7, 64, 100, TOKENS};
    for (int f = 0; f < FORMATS; f++) {
        float *want = alone(formats[f], ids, TOKENS);
        for (uint32_t tokens_max = 0; tokens_max <= 13; tokens_max += 13) {
            lar_engine *e = engine_of(formats[f], 4, tokens_max);
            for (int c = 0; c < 5; c++) {
                float *got = all_logits(e, ids, TOKENS, chunks[c]);
                for (uint32_t t = 0; t < TOKENS; t++) same_bits(got + (size_t)t * VOCAB, want, t, formats[f]);
                free(got);
                assert_int_equal(lar_engine_pages(e).held, 0);
            }
            lar_engine_close(e);
        }
        free(want);
    }
}

/* Sequences whose prompts begin at different ids, in steps of different sizes each. */
static void company_changes_no_bits(void **state) {
    (void)state;
    enum { MANY = 5, LENGTH = 150 };
    for (int f = 0; f < FORMATS; f++) {
        lar_engine *e = engine_of(formats[f], MANY * 3, 50);
        float *want[MANY], *logits = malloc((size_t)MANY * VOCAB * sizeof *logits);
        lar_sequence *s[MANY];
        uint32_t done[MANY] = {0}, bits = 77;
        for (uint32_t i = 0; i < MANY; i++) {
            want[i] = alone(formats[f], ids + i * 13, LENGTH);
            s[i] = sequence_of(e, LENGTH);
        }
        for (bool more = true; more;) {
            lar_engine_part parts[MANY];
            uint32_t count = 0, last[MANY], who[MANY];
            for (uint32_t i = 0; i < MANY; i++) {
                bits = bits * 1664525u + 1013904223u;
                uint32_t n = (bits >> 16) % (i ? 40 : 2); /* the first decodes, or is left out */
                if (n > LENGTH - done[i]) n = LENGTH - done[i];
                if (!n) continue;
                last[count] = n - 1;
                parts[count] = (lar_engine_part){s[i], ids + i * 13 + done[i], n, &last[count], 1};
                who[count++] = i;
                done[i] += n;
            }
            step(e, parts, count, logits);
            for (uint32_t k = 0; k < count; k++)
                same_bits(logits + k * VOCAB, want[who[k]], done[who[k]] - 1, "company");
            more = false;
            for (uint32_t i = 0; i < MANY; i++) more |= done[i] < LENGTH;
        }
        for (uint32_t i = 0; i < MANY; i++) lar_sequence_free(s[i]), free(want[i]);
        free(logits);
        lar_engine_close(e);
    }
}

/* More sequences than one pass takes, one token each. */
static void hundreds_can_be_in_one_step(void **state) {
    (void)state;
    enum { MANY = 300 };
    static lar_sequence *s[MANY];
    static lar_engine_part parts[MANY];
    static uint32_t id[MANY];
    const uint32_t first = 0;
    lar_engine *e = engine_of("fp8", MANY, 0);
    float *logits = malloc((size_t)MANY * VOCAB * sizeof *logits), *one = malloc(VOCAB * sizeof *one);
    for (uint32_t i = 0; i < MANY; i++) {
        id[i] = i;
        s[i] = sequence_of(e, 1);
        parts[i] = (lar_engine_part){s[i], &id[i], 1, &first, 1};
    }
    step(e, parts, MANY, logits);
    assert_int_equal(lar_engine_pages(e).held, MANY);
    for (uint32_t i = 0; i < MANY; i++) {
        lar_sequence_cut(s[i], 0);
        step(e, &parts[i], 1, one);
        same_bits(one, logits, i, "hundreds");
        lar_sequence_free(s[i]);
    }
    free(logits), free(one);
    lar_engine_close(e);
}

/* A fork and what it was forked from go on apart, also where one of them is cut into what they share. */
/* Parts long enough for the expanded form, between shorter ones in the absorbed form, and more of these than are done
 * at once: each as if it were alone. */
static void both_forms_share_a_step(void **state) {
    (void)state;
    enum { MANY = 6 };
    static const uint32_t counts[MANY] = {3, LAR_ATTENTION_EXPAND_FROM, 1, 127, 30, LAR_ATTENTION_EXPAND_FROM + 40};
    for (int f = 0; f < FORMATS; f++) {
        lar_engine *e;
        lar_diag d = {0};
        lar_engine_options o = {.path = path, .kv = formats[f], .threads = 2, .attention = LAR_ATTENTION_BY_LENGTH};
        if (lar_engine_open(&o, &e, &d)) fail_msg("%s", d.text);
        lar_sequence *s[MANY];
        lar_engine_part parts[MANY];
        uint32_t last[MANY];
        float logits[MANY * VOCAB];
        for (uint32_t i = 0; i < MANY; i++) {
            s[i] = sequence_of(e, counts[i]);
            last[i] = counts[i] - 1;
            parts[i] = (lar_engine_part){s[i], ids + i, counts[i], &last[i], 1};
        }
        step(e, parts, MANY, logits);
        for (uint32_t i = 0; i < MANY; i++) {
            float *want = all_logits(e, ids + i, counts[i], counts[i]);
            same_bits(logits + i * VOCAB, want, last[i], formats[f]);
            free(want);
            lar_sequence_free(s[i]);
        }
        lar_engine_close(e);
    }
}

static void forks_go_on_apart(void **state) {
    (void)state;
    static const uint32_t at[] = {0, 1, 63, 64, 65, 128, 140};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        for (uint32_t pages = 0; pages <= 8; pages += 8) { /* 0: each has a pool of its own */
            uint32_t n = at[i], cut = n / 2, other[TOKENS];
            const uint32_t left = 9;
            float *logits = malloc((size_t)2 * VOCAB * sizeof *logits);
            lar_engine *e = engine_of("fp8", pages, 0);
            lar_sequence *a = sequence_of(e, TOKENS), *b;
            lar_diag d = {0};
            step(e, &(lar_engine_part){a, ids, n, NULL, 0}, 1, NULL);
            assert_int_equal(lar_sequence_fork(a, &b, &d), LAR_OK);
            assert_int_equal(lar_sequence_length(b), n);
            if (pages) assert_int_equal(lar_engine_pages(e).held, n / 64 + (n % 64 ? 2 : 0));
            memcpy(other, ids, sizeof other);
            for (uint32_t k = cut; k < TOKENS; k++) other[k] = ids[TOKENS - 1 - k];
            lar_sequence_cut(b, cut);
            float *want_a = alone("fp8", ids, n + 10), *want_b = alone("fp8", other, cut + 10);
            const lar_engine_part parts[] = {{a, ids + n, 10, &left, 1}, {b, other + cut, 10, &left, 1}};
            step(e, parts, 2, logits);
            same_bits(logits, want_a, n + 9, "forked from");
            same_bits(logits + VOCAB, want_b, cut + 9, "fork");
            free(want_a), free(want_b), free(logits);
            lar_sequence_free(a), lar_sequence_free(b);
            assert_int_equal(lar_engine_pages(e).held, 0);
            lar_engine_close(e);
        }
    }
}

/* -- out of pages -------------------------------------------------------------------------------------------------- */

/* Three sequences grow in common steps until pages run out, in pools of every size: the step that fails changes
 * nothing, and once one of the three is gone, the others go on to the bits that they have alone. */
static void full_leaves_all_as_they_were(void **state) {
    (void)state;
    enum { MANY = 3, GROW = 45 };
    float *want[MANY], *logits = malloc((size_t)MANY * VOCAB * sizeof *logits);
    const uint32_t last = GROW - 1;
    for (uint32_t i = 0; i < MANY; i++) want[i] = alone("fp8", ids + i, 4 * GROW);
    for (uint32_t pages = 1; pages <= 8; pages++) {
        lar_engine *e = engine_of("fp8", pages, 32);
        lar_sequence *s[MANY];
        lar_engine_part parts[MANY];
        lar_diag d = {0};
        for (uint32_t i = 0; i < MANY; i++) s[i] = sequence_of(e, TOKENS);
        uint32_t done = 0;
        lar_error error = LAR_OK;
        while (!error && done < 4 * GROW) {
            lar_page_counts before = lar_engine_pages(e);
            for (uint32_t i = 0; i < MANY; i++) parts[i] = (lar_engine_part){s[i], ids + i + done, GROW, &last, 1};
            error = lar_engine_step(e, parts, MANY, logits, &d);
            if (!error) done += GROW;
            else assert_int_equal(lar_engine_pages(e).held, before.held);
            for (uint32_t i = 0; i < MANY; i++) assert_int_equal(lar_sequence_length(s[i]), done);
        }
        assert_int_equal(error, LAR_FULL);
        assert_int_equal(done / GROW, pages < 3 ? 0 : pages < 6 ? 1 : 2);
        assert_non_null(strstr(d.text, "pages of 64 tokens more; of "));
        for (uint32_t i = MANY; i-- > 1 && done < 4 * GROW;) { /* one after the other makes room */
            lar_sequence_free(s[i]), s[i] = NULL;
            while (!lar_engine_step(e, parts, i, logits, &d)) {
                done += GROW;
                for (uint32_t k = 0; k < i; k++) same_bits(logits + k * VOCAB, want[k], done - 1, "after FULL");
                if (done == 4 * GROW) break;
                for (uint32_t k = 0; k < i; k++) parts[k].ids += GROW;
            }
        }
        if (pages >= 3) assert_int_equal(done, 4 * GROW);
        for (uint32_t i = 0; i < MANY; i++) lar_sequence_free(s[i]);
        assert_int_equal(lar_engine_pages(e).held, 0);
        lar_engine_close(e);
    }
    for (uint32_t i = 0; i < MANY; i++) free(want[i]);
    free(logits);
}

static void what_is_reserved_stays_reserved(void **state) {
    (void)state;
    lar_engine *e = engine_of("f32", 5, 16);
    lar_sequence *a = sequence_of(e, 200), *b = sequence_of(e, 200), *none = NULL;
    float *logits = malloc(VOCAB * sizeof *logits);
    uint32_t wrong[40];
    const uint32_t last = 39;
    lar_diag d = {0};
    memcpy(wrong, ids, sizeof wrong);
    wrong[39] = VOCAB;
    assert_int_equal(lar_sequence_reserve(a, 201, &d), LAR_LIMIT);
    assert_int_equal(lar_sequence_reserve(a, 129, &d), LAR_OK);
    assert_int_equal(lar_engine_pages(e).held, 3);
    assert_int_equal(lar_sequence_reserve(b, 129, &d), LAR_FULL);
    assert_non_null(strstr(d.text, "3 pages of 64 tokens are needed; of 5 in all 2 are free"));
    assert_int_equal(lar_engine_pages(e).held, 3);
    /* Errors of every kind: neither what was reserved nor what the step would have taken moves. */
    const lar_engine_part bad_id[] = {{a, ids, 40, NULL, 0}, {b, wrong, 40, &last, 1}};
    const lar_engine_part full[] = {{a, ids, 40, NULL, 0}, {b, ids, 130, &last, 1}};
    const lar_engine_part over[] = {{b, ids, 70, NULL, 0}, {a, ids, 201, NULL, 0}};
    const lar_engine_part twice[] = {{b, ids, 10, NULL, 0}, {a, ids, 1, NULL, 0}, {b, ids + 10, 10, &last, 0}};
    assert_int_equal(lar_engine_step(e, bad_id, 2, logits, &d), LAR_INVALID);
    assert_int_equal(lar_engine_step(e, full, 2, logits, &d), LAR_FULL);
    assert_int_equal(lar_engine_step(e, over, 2, logits, &d), LAR_LIMIT);
    assert_int_equal(lar_engine_step(e, twice, 3, logits, &d), LAR_INVALID);
    assert_non_null(strstr(d.text, "twice"));
    assert_int_equal(lar_engine_pages(e).held, 3);
    assert_int_equal(lar_sequence_length(a) + lar_sequence_length(b), 0);
    /* Reserved pages are used before others are taken; a cut lets go of all that it leaves behind. */
    step(e, &(lar_engine_part){a, ids, 129, NULL, 0}, 1, NULL);
    assert_int_equal(lar_engine_pages(e).held, 3);
    lar_sequence_cut(a, 64);
    assert_int_equal(lar_engine_pages(e).held, 1);
    /* A fork needs a page only where one is begun. */
    assert_int_equal(lar_sequence_reserve(b, 200, &d), LAR_OK);
    assert_int_equal(lar_sequence_fork(a, &none, &d), LAR_OK);
    lar_sequence_free(none);
    lar_sequence_cut(a, 63);
    assert_int_equal(lar_sequence_fork(a, &none, &d), LAR_FULL);
    assert_null(none);
    assert_int_equal(lar_engine_pages(e).held, 5);
    lar_sequence_free(a), lar_sequence_free(b);
    free(logits);
    lar_engine_close(e);
}

/* Formats of its own beside those of the engine, in one step: the bits of an engine with these formats. */
static void a_sequence_can_have_formats_of_its_own(void **state) {
    (void)state;
    lar_engine *e = engine_of("f32", 4, 0);
    float *logits = malloc((size_t)2 * VOCAB * sizeof *logits), *f32 = alone("f32", ids, 80);
    float *mix = alone(formats[1], ids, 80);
    lar_sequence *a = sequence_of(e, 80), *b;
    lar_diag d = {0};
    const uint32_t last = 79;
    assert_int_equal(lar_sequence_new_in(e, "fp8,9=f32", 80, &b, &d), LAR_INVALID);
    assert_null(b);
    assert_int_equal(lar_sequence_new_in(e, formats[1], CONTEXT + 1, &b, &d), LAR_LIMIT);
    assert_int_equal(lar_sequence_new_in(e, formats[1], 80, &b, &d), LAR_OK);
    assert_int_equal(lar_sequence_token_bytes(a), lar_engine_info_of(e).token_bytes);
    assert_int_equal(lar_sequence_token_bytes(b), (24 + 4 + 16) + 2 * 32 + (24 + 2 + 16));
    const lar_engine_part parts[] = {{a, ids, 80, &last, 1}, {b, ids, 80, &last, 1}};
    step(e, parts, 2, logits);
    assert_int_equal(lar_engine_pages(e).held, 2);
    same_bits(logits, f32, last, "the engine's formats");
    same_bits(logits + VOCAB, mix, last, "formats of its own");
    lar_sequence_free(a), lar_sequence_free(b);
    free(logits), free(f32), free(mix);
    lar_engine_close(e);
}

static void options_that_contradict_are_refused(void **state) {
    (void)state;
    lar_engine *e = engine_of("fp8,0=bf16", 2, 0);
    lar_engine_info i = lar_engine_info_of(e);
    lar_diag d = {0};
    uint64_t fp8 = 24 + 4 + 16, bf16 = 2 * 32;
    assert_int_equal(i.token_bytes, bf16 + 2 * fp8);
    assert_int_equal(i.page_bytes, 64 * i.token_bytes);
    assert_int_equal(i.reserved_bytes, lar_engine_pages(e).bytes);
    assert_true(i.reserved_bytes >= 2 * i.page_bytes && i.reserved_bytes < 2 * i.page_bytes + 64);
    assert_string_equal(i.kv, "fp8,0=bf16");
    lar_engine_close(e);
    lar_engine_options o = {.path = path, .page_bytes = 1 << 20, .attention = LAR_ATTENTION_EXPANDED};
    assert_int_equal(lar_engine_open(&o, &e, &d), LAR_INVALID);
    assert_non_null(strstr(d.text, "absorbed form only"));
    o = (lar_engine_options){.path = path, .kv = "fp8,3=bf16"};
    assert_int_equal(lar_engine_open(&o, &e, &d), LAR_INVALID);
    assert_non_null(strstr(d.text, "formats of latents: '3=bf16': there is no layer 3"));
    o = (lar_engine_options){.path = path, .page_bytes = 100};
    assert_int_equal(lar_engine_open(&o, &e, &d), LAR_INVALID);
    assert_non_null(strstr(d.text, "100 bytes for pages; one page of 64 tokens takes 24576"));
    assert_null(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_and_chunks_give_the_same_bits),
        cmocka_unit_test(company_changes_no_bits),
        cmocka_unit_test(hundreds_can_be_in_one_step),
        cmocka_unit_test(both_forms_share_a_step),
        cmocka_unit_test(forks_go_on_apart),
        cmocka_unit_test(full_leaves_all_as_they_were),
        cmocka_unit_test(what_is_reserved_stays_reserved),
        cmocka_unit_test(a_sequence_can_have_formats_of_its_own),
        cmocka_unit_test(options_that_contradict_are_refused),
    };
    return cmocka_run_group_tests(tests, prepare, box_teardown);
}
