/* Vector operations: the same bits on every path and for any grouping, and close to sums in double. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka needs the three above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "engine/compute/cpu.h"
#include "engine/compute/vectors.h"
#include "engine/files/float_bits.h"
#include "random_weights.h"

enum { QUERIES = 11, KEYS = 13, WIDE = 200 };

typedef struct rows {
    float query[QUERIES][WIDE + 3], key[KEYS][WIDE + 5], out[QUERIES][WIDE];
} rows;

static void fill(rows *r) {
    uint64_t seed = 4;
    float *all = (float *)r;
    for (size_t i = 0; i < sizeof *r / sizeof *all; i++) all[i] = random_float(&seed);
}

/* Paths that this processor runs. */
static int paths(const lar_vectors *out[3]) {
    int n = 0;
    out[n++] = &lar_vectors_plain;
#if defined(__x86_64__)
    if (lar_cpu_best() >= LAR_CPU_AVX2) out[n++] = &lar_vectors_avx2;
    if (lar_cpu_best() >= LAR_CPU_AVX512) out[n++] = &lar_vectors_avx512;
#endif
    return n;
}

/* Queries [at[0], at[0] + at[1]) with keys [at[2], at[2] + at[3]): n columns, and after a gap of 3 half as many. */
static void dots(const lar_vectors *v, rows *r, const uint32_t at[4], uint32_t n) {
    const float *query = &r->query[at[0]][1], *key = &r->key[at[2]][2];
    v->dots(&(lar_dots){.parts = {{query, WIDE + 3, key, WIDE + 5, n},
                                  {query + n + 3, WIDE + 3, key + n + 3, WIDE + 5, n / 2}},
                        .out = &r->out[at[0]][at[2]],
                        .out_row = WIDE,
                        .queries = at[1],
                        .keys = at[3]});
}

static void dots_do_not_depend_on_grouping(void **state) {
    (void)state;
    static const uint32_t widths[] = {1, 15, 16, 64, 100, 128};
    const lar_vectors *v[3];
    int count = paths(v);
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        uint32_t n = widths[w];
        rows want, got;
        fill(&want);
        rows start = want;
        dots(v[0], &want, (uint32_t[]){0, QUERIES, 0, KEYS}, n);
        for (int q = 0; q < QUERIES; q++)
            for (int k = 0; k < KEYS; k++) {
                double sum = 0;
                for (uint32_t i = 0; i < n + 3 + n / 2; i++)
                    if (i < n || i >= n + 3) sum += (double)start.query[q][1 + i] * (double)start.key[k][2 + i];
                assert_true(fabs((double)want.out[q][k] - sum) < 1e-5);
            }
        for (int i = 0; i < count; i++) {
            got = start;
            dots(v[i], &got, (uint32_t[]){0, QUERIES, 0, KEYS}, n);
            assert_memory_equal(&got, &want, sizeof got);
            got = start;
            for (uint32_t q = 0; q < QUERIES; q++)
                for (uint32_t k = 0; k < KEYS; k++) dots(v[i], &got, (uint32_t[]){q, 1, k, 1}, n);
            assert_memory_equal(&got, &want, sizeof got);
        }
    }
}

static void mix(const lar_vectors *v, rows *r, uint32_t q, uint32_t queries, uint32_t n) {
    v->mix(&(lar_mix){.weight = &r->query[q][0],
                      .weight_row = WIDE + 3,
                      .value = &r->key[0][1],
                      .value_row = WIDE + 5,
                      .out = &r->out[q][0],
                      .out_row = WIDE,
                      .queries = queries,
                      .keys = KEYS,
                      .n = n});
}

static void mixes_do_not_depend_on_grouping(void **state) {
    (void)state;
    static const uint32_t widths[] = {3, 16, 33, 48, 128, 200};
    const lar_vectors *v[3];
    int count = paths(v);
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        rows want, got;
        fill(&want);
        rows start = want;
        mix(v[0], &want, 0, QUERIES, widths[w]);
        for (uint32_t q = 0; q < QUERIES; q++)
            for (uint32_t c = 0; c < widths[w]; c++) {
                double sum = (double)start.out[q][c];
                for (int k = 0; k < KEYS; k++) sum += (double)start.query[q][k] * (double)start.key[k][1 + c];
                assert_true(fabs((double)want.out[q][c] - sum) < 1e-5);
            }
        for (int i = 0; i < count; i++) {
            got = start;
            mix(v[i], &got, 0, QUERIES, widths[w]);
            assert_memory_equal(&got, &want, sizeof got);
            got = start;
            for (uint32_t q = 0; q < QUERIES; q++) mix(v[i], &got, q, 1, widths[w]);
            assert_memory_equal(&got, &want, sizeof got);
        }
    }
}

/* n floats, rounded, and the same as bfloat16. */
static void round_rows(float *floats, uint16_t *halves, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        halves[i] = lar_float_bf16(floats[i]);
        floats[i] = lar_bf16_float(halves[i]);
    }
}

static void rows_of_bf16_are_rows_of_their_values(void **state) {
    (void)state;
    enum { ROW = WIDE + 5 };
    static const uint32_t widths[] = {3, 16, 33, 100, 128};
    static uint16_t halves[KEYS * ROW + 1]; /* dots read from an odd value on: at no multiple of four bytes */
    const lar_vectors *v[3];
    int count = paths(v);
    rows r;
    fill(&r);
    round_rows(&r.key[0][0], halves + 1, KEYS * ROW);
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
        for (int i = 0; i < count; i++) {
            uint32_t n = widths[w];
            rows want = r, got = r;
            dots(v[i], &want, (uint32_t[]){0, QUERIES, 0, KEYS}, n);
            v[i]->dots(&(lar_dots){.parts = {{&r.query[0][1], WIDE + 3, halves + 1 + 2, ROW, n},
                                             {&r.query[0][1 + n + 3], WIDE + 3, halves + 1 + 2 + n + 3, ROW, n / 2}},
                                   .form = LAR_ROWS_BF16,
                                   .out = &got.out[0][0],
                                   .out_row = WIDE,
                                   .queries = QUERIES,
                                   .keys = KEYS});
            assert_memory_equal(&got, &want, sizeof got);
            want = got = r;
            mix(v[i], &want, 0, QUERIES, n);
            v[i]->mix(&(lar_mix){.weight = &r.query[0][0],
                                 .weight_row = WIDE + 3,
                                 .value = halves + 1 + 1,
                                 .value_row = ROW,
                                 .form = LAR_ROWS_BF16,
                                 .out = &got.out[0][0],
                                 .out_row = WIDE,
                                 .queries = QUERIES,
                                 .keys = KEYS,
                                 .n = n});
            assert_memory_equal(&got, &want, sizeof got);
        }
}

/* Fetching changes no sum, goes on at the pace of the work however many queries there are, and ends at the end. */
static void ahead_is_fetched_as_work_goes_on(void **state) {
    (void)state;
    enum { LINE = LAR_AHEAD_LINE, N = 64 };
    static uint8_t memory[1 << 16];
    static const uint32_t queries[] = {1, 3, 4, 5, 8, 11};
    const lar_vectors *v[3];
    int count = paths(v);
    for (int i = 0; i < count * 6; i++) {
        const lar_vectors *path = v[i / 6];
        rows start, want, got;
        fill(&start);
        got = start;
        lar_ahead much = {memory, memory + sizeof memory}, little = {memory, memory + LINE};
        lar_mix m = {.weight = &got.query[0][0],
                     .weight_row = WIDE + 3,
                     .value = &got.key[0][1],
                     .value_row = WIDE + 5,
                     .out = &got.out[0][0],
                     .out_row = WIDE,
                     .queries = queries[i % 6],
                     .keys = KEYS,
                     .n = N,
                     .ahead = &much};
        lar_dots d = {.parts = {{&got.query[0][0], WIDE + 3, &got.key[0][0], WIDE + 5, N}},
                      .out = &got.out[0][0],
                      .out_row = WIDE,
                      .queries = queries[i % 6],
                      .keys = KEYS,
                      .ahead = &much};
        ptrdiff_t share = queries[i % 6] * KEYS * N / LAR_AHEAD_PRODUCTS * LINE;
        path->mix(&m);
        want = got, got = start;
        ptrdiff_t fetched = much.at - memory;
        assert_true(fetched > share / 2 && fetched <= share * 2);
        m.ahead = NULL;
        path->mix(&m);
        assert_memory_equal(&got, &want, sizeof got);
        much.at = memory;
        path->dots(&d);
        want = got;
        fetched = much.at - memory;
        assert_true(fetched > share / 2 && fetched <= share * 2);
        d.ahead = NULL;
        path->dots(&d);
        assert_memory_equal(&got, &want, sizeof got);
        m.ahead = d.ahead = &little;
        path->mix(&m);
        const uint8_t *after = little.at;
        path->dots(&d);
        assert_true(after >= little.end && after <= little.end + 2 * LINE && little.at == after);
    }
}

static void same_floats(const float *got, const float *want, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        assert_true(isnan(want[i]) ? isnan(got[i]) : lar_float_bits(got[i]) == lar_float_bits(want[i]));
}

static void values_of_fewer_bits_are_exact(void **state) {
    (void)state;
    enum { ALL = 65536, BYTES = 256 };
    static uint8_t halves[2 * ALL + 1], bytes[BYTES + 1];
    static float want[ALL], got[ALL];
    const lar_vectors *v[3];
    int count = paths(v);
    for (uint32_t i = 0; i < ALL; i++) halves[1 + 2 * i] = (uint8_t)i, halves[2 + 2 * i] = (uint8_t)(i >> 8);
    for (uint32_t i = 0; i < BYTES; i++) bytes[1 + i] = (uint8_t)i;
    for (int k = 0; k < count; k++) {
        for (uint32_t i = 0; i < ALL; i++) want[i] = lar_f16_float((uint16_t)i);
        v[k]->from_f16(halves + 1, ALL, got);
        same_floats(got, want, ALL);
        for (uint32_t i = 0; i < ALL; i++) want[i] = lar_bf16_float((uint16_t)i);
        v[k]->from_bf16(halves + 1, ALL, got);
        same_floats(got, want, ALL);
        for (uint32_t n = 1; n <= BYTES; n += 51) {
            for (uint32_t i = 0; i < n; i++) want[i] = lar_e4m3_float((uint8_t)i) * 0.37f;
            v[k]->from_e4m3(bytes + 1, n, 0.37f, got);
            same_floats(got, want, n);
            for (uint32_t i = 0; i < n; i++) want[i] = (float)(int8_t)i * 0.37f;
            v[k]->from_int8(bytes + 1, n, 0.37f, got);
            same_floats(got, want, n);
        }
    }
}

static void weights_are_exponentials(void **state) {
    (void)state;
    const lar_vectors *v[3];
    int count = paths(v);
    for (uint32_t n = 1; n <= 70; n += 23) {
        float start[70], want[70], got[70], max = -INFINITY;
        uint64_t seed = n;
        for (uint32_t i = 0; i < n; i++) start[i] = random_float(&seed) * 40;
        if (n > 3) start[2] = -INFINITY, start[3] = -600;
        for (uint32_t i = 0; i < n; i++) max = fmaxf(max, start[i] * 0.5f);
        float top = n > 50 ? max + 1 : max, low = n > 50 ? top : -INFINITY; /* what came before was more, or nothing */
        memcpy(want, start, sizeof want);
        float seen = low, sum = v[0]->weigh(want, n, 0.5f, &seen);
        assert_true(seen == top);
        max = top;
        double exact = 0;
        for (uint32_t i = 0; i < n; i++) {
            double e = exp((double)start[i] * 0.5 - (double)max);
            exact += e;
            assert_true(fabs((double)want[i] - e) <= 3e-6 * e + 1e-37);
        }
        assert_true(fabs((double)sum - exact) <= 1e-5 * exact);
        if (n > 3) assert_true(want[2] == 0 && want[3] == 0);
        for (int i = 1; i < count; i++) {
            memcpy(got, start, sizeof got);
            seen = low;
            assert_true(v[i]->weigh(got, n, 0.5f, &seen) == sum && seen == top);
            assert_memory_equal(got, want, n * sizeof *got);
        }
    }
    float bad[2] = {0, NAN}, most = -INFINITY;
    assert_true(isnan(v[count - 1]->weigh(bad, 2, 1, &most)) && isnan(bad[1]) && most == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dots_do_not_depend_on_grouping),        cmocka_unit_test(mixes_do_not_depend_on_grouping),
        cmocka_unit_test(rows_of_bf16_are_rows_of_their_values), cmocka_unit_test(ahead_is_fetched_as_work_goes_on),
        cmocka_unit_test(values_of_fewer_bits_are_exact),        cmocka_unit_test(weights_are_exponentials),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
