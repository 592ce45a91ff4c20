/* A config.json for a memory plan: any bytes.
 * 1. what is refused has a message; 2. what is taken keeps every field in its range; 3. sums never wrap round: more
 * requests never take less; 4. every advice that is given fits. */
#include "engine/plan/plan.h"
#include "tests/fuzz/fuzz.h"

static void check_plan(const lar_plan_model *m, lar_kv kv) {
    lar_plan_request r = {.context = 5000, .sequences = 3, .kv = kv, .memory = 16ull << 30, .reserve = 2ull << 30};
    lar_plan p, more;
    lar_diag d = {0};
    lar_error e = lar_plan_compute(m, &r, &p, &d);
    FUZZ_CHECK(!e || *d.text);
    lar_plan_change c[LAR_PLAN_CHANGES_MAX];
    uint32_t n = lar_plan_changes(m, &r, c);
    FUZZ_CHECK(n <= LAR_PLAN_CHANGES_MAX);
    for (uint32_t i = 0; i < n; i++) {
        e = lar_plan_compute(m, &c[i].request, &more, &d);
        FUZZ_CHECK(!e && more.total <= more.budget && more.total == c[i].plan.total);
    }
    r.sequences = 1u << 20;
    e = lar_plan_compute(m, &r, &more, &d);
    FUZZ_CHECK(more.total >= p.total && (!e || more.total >= 1ull << 62));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lar_plan_model m = {0};
    lar_diag d = {0};
    lar_error e = lar_plan_model_from_config(&m, lar_slice_of((const char *)data, size), &d);
    if (!e) e = lar_plan_model_finish(&m, &d);
    FUZZ_CHECK(!e || *d.text);
    for (int f = 0; !e && f < LAR_PLAN_FIELD_COUNT; f++) {
        /* What is derived may pass its own maximum, never the product of two. */
        FUZZ_CHECK(m.field[f] <= 1ull << 33);
    }
    for (int kv = 0; !e && kv < LAR_KV_COUNT; kv++) check_plan(&m, (lar_kv)kv);
    return 0;
}
