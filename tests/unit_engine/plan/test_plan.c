/* The sums of a memory plan: the formulas against figures worked out elsewhere, what fits, and what is advised. */
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
// clang-format on
#include "engine/plan/plan.h"

static const uint64_t gib = 1ull << 30, mib = 1ull << 20;

static lar_plan_model heads(uint64_t layers, uint64_t kv_heads, uint64_t head_dim) {
    lar_plan_model m = {0};
    m.field[LAR_PLAN_LAYERS] = layers;
    m.field[LAR_PLAN_KV_HEADS] = kv_heads;
    m.field[LAR_PLAN_HEAD_DIM] = head_dim;
    lar_diag d = {0};
    assert_int_equal(lar_plan_model_finish(&m, &d), LAR_OK);
    return m;
}

static lar_plan_model latent(uint64_t layers, uint64_t rank, uint64_t rope) {
    lar_plan_model m = {0};
    m.field[LAR_PLAN_LAYERS] = layers;
    m.field[LAR_PLAN_RANK] = rank;
    m.field[LAR_PLAN_ROPE] = rope;
    lar_diag d = {0};
    assert_int_equal(lar_plan_model_finish(&m, &d), LAR_OK);
    return m;
}

static lar_plan_request ask(uint64_t context, uint64_t sequences, lar_kv kv) {
    return (lar_plan_request){.context = context,
                              .sequences = sequences,
                              .kv = kv,
                              .memory = 64 * gib,
                              .reserve = lar_plan_reserve(64 * gib)};
}

static lar_plan plan(const lar_plan_model *m, lar_plan_request r) {
    lar_plan p;
    lar_diag d = {0};
    assert_int_equal(lar_plan_compute(m, &r, &p, &d), LAR_OK);
    return p;
}

/* The figures of the issue that asked for the planner. */
static void known_sizes(void **state) {
    (void)state;
    lar_plan_model gqa = heads(32, 8, 128), mla = latent(48, 512, 64);
    lar_plan p = plan(&gqa, ask(8192, 1, LAR_KV_F16));
    assert_int_equal(p.token, 131072);
    assert_int_equal(p.request, gib);
    p = plan(&mla, ask(8192, 8, LAR_KV_F16));
    assert_int_equal(p.token, 55296);
    assert_int_equal(p.request, 432 * mib);
    assert_int_equal(p.all, 3456 * mib);
}

/* Bytes a token and layer of latent 512 + 64, by format: section 3 of the engine's report. */
static void formats(void **state) {
    (void)state;
    static const uint64_t want[] = {[LAR_KV_F32] = 2304, [LAR_KV_F16] = 1152, [LAR_KV_BF16] = 1152,
                                    [LAR_KV_FP8] = 656,  [LAR_KV_INT8] = 672, [LAR_KV_INT8_128] = 648};
    lar_plan_model m = latent(27, 512, 64);
    for (int kv = 0; kv < LAR_KV_COUNT; kv++) assert_int_equal(plan(&m, ask(64, 1, (lar_kv)kv)).layer, want[kv]);
    /* A page of V2-Lite is 1.13 MB; one token more than a page takes two. */
    assert_int_equal(plan(&m, ask(64, 1, LAR_KV_FP8)).request, 64 * 656 * 27);
    assert_int_equal(plan(&m, ask(65, 1, LAR_KV_FP8)).request, 2 * 64 * 656 * 27);
    assert_int_equal(plan(&m, ask(1, 1, LAR_KV_FP8)).request, 64 * 656 * 27);
    assert_int_equal(plan(&m, ask(65, 1, LAR_KV_F16)).request, 2 * 64 * 1152 * 27);
    /* By heads every head's row has its scales, an edge tile a whole one: 80 values, 3 scales of 2 bytes. */
    lar_plan_model odd = heads(1, 2, 80);
    assert_int_equal(plan(&odd, ask(64, 1, LAR_KV_INT8)).layer, 2 * 2 * (80 + 3 * 2));
}

/* Where layers differ, a smaller cache is one format for all; which layers have windows is not known. */
static void formats_by_layer(void **state) {
    (void)state;
    lar_plan_model m = latent(27, 512, 64);
    uint8_t kv[27] = {LAR_KV_F32};
    lar_plan_request r = ask(6400, 1, LAR_KV_F32);
    lar_plan_change c[LAR_PLAN_CHANGES_MAX];
    lar_diag d = {0};
    lar_plan p;
    memset(kv, LAR_KV_INT8, sizeof kv);
    kv[26] = LAR_KV_BF16;
    r.kv_layers = kv, r.reserve = 1;
    assert_int_equal(plan(&m, r).token, 26 * 672 + 1152);
    r.memory = plan(&m, r).total; /* a byte too little */
    uint32_t n = lar_plan_changes(&m, &r, c), i = 0;
    while (i < n && c[i].what != LAR_PLAN_CHANGE_KV) i++;
    assert_true(i < n && c[i].request.kv == LAR_KV_INT8 && !c[i].request.kv_layers);
    r.memory = 6400 * 27 * 600; /* less than any format takes */
    n = lar_plan_changes(&m, &r, c);
    for (i = 0; i < n; i++) assert_true(!(c[i].what & LAR_PLAN_CHANGE_KV) || !c[i].request.kv_layers);
    m.layers_windowed = 1, m.field[LAR_PLAN_WINDOW] = 10;
    assert_int_equal(lar_plan_compute(&m, &r, &p, &d), LAR_INVALID);
    assert_non_null(strstr(d.text, "every token"));
}

static void windows(void **state) {
    (void)state;
    lar_plan_model m = heads(6, 4, 64);
    m.layers_windowed = 4;
    m.layers_stateless = 1;
    m.field[LAR_PLAN_WINDOW] = 1024;
    lar_plan p = plan(&m, ask(8192, 1, LAR_KV_F16));
    assert_int_equal(p.request, 1024 * (8192 + 4 * 1024));
    assert_int_equal(p.token, 5 * 1024);
    p = plan(&m, ask(512, 1, LAR_KV_F16));
    assert_int_equal(p.request, 1024 * 5 * 512);
}

static void reserve(void **state) {
    (void)state;
    assert_int_equal(lar_plan_reserve(64 * gib), 64 * gib / 20 * 3);
    assert_true(lar_plan_reserve(64 * gib) >= 8 * gib && lar_plan_reserve(64 * gib) <= 16 * gib);
    assert_int_equal(lar_plan_reserve(2 * gib), gib);
    assert_int_equal(lar_plan_reserve(1024 * gib), 16 * gib);
}

static void verdicts(void **state) {
    (void)state;
    lar_plan_model m = heads(1, 1, 256); /* 1024 bytes a token */
    lar_plan_request r = ask(1024, 1, LAR_KV_F16);
    r.memory = 200 * mib;
    r.reserve = 100 * mib;
    static const struct {
        uint64_t sequences;
        lar_plan_verdict want;
    } rows[] = {{90, LAR_PLAN_FITS}, {91, LAR_PLAN_TIGHT}, {95, LAR_PLAN_TIGHT},
                {96, LAR_PLAN_FULL}, {100, LAR_PLAN_FULL}, {101, LAR_PLAN_OVER}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        r.sequences = rows[i].sequences;
        assert_int_equal(plan(&m, r).verdict, rows[i].want);
    }
    assert_int_equal(lar_plan_most_sequences(&m, &r), 100);
    r.sequences = 1;
    assert_int_equal(lar_plan_most_context(&m, &r), 100 * 1024);
    m.field[LAR_PLAN_CONTEXT] = 4096;
    assert_int_equal(lar_plan_most_context(&m, &r), 4096);
}

static const lar_plan_change *change_of(const lar_plan_change *c, uint32_t n, unsigned what) {
    for (uint32_t i = 0; i < n; i++)
        if (c[i].what == what) return &c[i];
    return NULL;
}

/* V2-Lite at BF16 for 16 agents does not fit into 64 GiB: each advice is at its limit, and holds. */
static void advice(void **state) {
    (void)state;
    lar_plan_model m = latent(27, 512, 64);
    m.parameters = 15700000000;
    m.stored = LAR_DTYPE_BF16;
    m.field[LAR_PLAN_CONTEXT] = 163840;
    lar_plan_request r = ask(65536, 16, LAR_KV_F16);
    lar_plan_change c[LAR_PLAN_CHANGES_MAX];
    uint32_t n = lar_plan_changes(&m, &r, c);
    const lar_plan_change *fewer = change_of(c, n, LAR_PLAN_CHANGE_SEQUENCES),
                          *shorter = change_of(c, n, LAR_PLAN_CHANGE_CONTEXT),
                          *kv = change_of(c, n, LAR_PLAN_CHANGE_KV),
                          *weights = change_of(c, n, LAR_PLAN_CHANGE_WEIGHTS);
    assert_true(fewer && shorter && kv && weights);
    assert_int_equal(c[n - 1].what, LAR_PLAN_CHANGE_MEMORY);
    assert_int_equal(c[n - 1].request.memory, 96 * gib);
    for (uint32_t i = 0; i < n; i++) {
        lar_plan p = plan(&m, c[i].request);
        assert_int_not_equal(p.verdict, LAR_PLAN_OVER);
        assert_int_equal(p.total, c[i].plan.total);
    }
    lar_plan_request more = fewer->request;
    more.sequences++;
    assert_int_equal(plan(&m, more).verdict, LAR_PLAN_OVER);
    more = shorter->request;
    more.context += 64;
    assert_int_equal(plan(&m, more).verdict, LAR_PLAN_OVER);
    /* The least loss that suffices. */
    assert_int_equal(kv->request.kv, LAR_KV_INT8);
    assert_int_equal(weights->request.weights, LAR_DTYPE_Q8_0);
    assert_int_equal(lar_plan_changes(&m, &fewer->request, c), 0);
}

/* Where no change alone is enough, all together may be; where nothing is, only a machine is named. */
static void last_resort(void **state) {
    (void)state;
    lar_plan_model m = latent(27, 512, 64);
    m.parameters = 60000000000;
    m.stored = LAR_DTYPE_BF16;
    lar_plan_request r = ask(131072, 16, LAR_KV_F16);
    lar_plan_change c[LAR_PLAN_CHANGES_MAX];
    assert_int_equal(lar_plan_changes(&m, &r, c), 2);
    assert_int_equal(c[0].what, LAR_PLAN_CHANGE_KV | LAR_PLAN_CHANGE_WEIGHTS | LAR_PLAN_CHANGE_SEQUENCES);
    assert_true(c[0].request.sequences >= 1 && c[0].request.sequences < 16);
    m.parameters = 671000000000;
    assert_int_equal(lar_plan_changes(&m, &r, c), 1);
    assert_int_equal(c[0].what, LAR_PLAN_CHANGE_MEMORY);
    m.parameters = 99000000000000;
    assert_int_equal(lar_plan_changes(&m, &r, c), 0);
}

static void beyond_all_memory(void **state) {
    (void)state;
    lar_plan_model m = heads(4096, 1 << 14, 1 << 14);
    lar_plan_request r = ask(1 << 30, 1 << 20, LAR_KV_F32);
    lar_plan p;
    lar_diag d = {0};
    assert_int_equal(lar_plan_compute(&m, &r, &p, &d), LAR_LIMIT);
    assert_int_equal(p.verdict, LAR_PLAN_OVER);
    assert_string_equal(d.text, "the sizes together go beyond 4 EiB");
    r = ask(64, 1, LAR_KV_F16);
    r.reserve = r.memory;
    assert_int_equal(lar_plan_compute(&m, &r, &p, &d), LAR_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_sizes), cmocka_unit_test(formats),     cmocka_unit_test(formats_by_layer),
        cmocka_unit_test(windows),     cmocka_unit_test(reserve),     cmocka_unit_test(verdicts),
        cmocka_unit_test(advice),      cmocka_unit_test(last_resort), cmocka_unit_test(beyond_all_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
