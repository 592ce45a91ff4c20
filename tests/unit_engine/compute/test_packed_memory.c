/* Memory for repacked weights: pieces are zeros, aligned and apart, also beyond a block; a matrix that is placed there
 * is the one that is prepared alone, whoever repacks it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/compute/packed_memory.h"
#include "engine/compute/panel_matmul.h"
#include "engine/compute/panels.h"
#include "engine/compute/workers.h"
#include "random_weights.h"

static void pieces_are_apart(void **state) {
    (void)state;
    static const uint64_t bytes[] = {1, 64, 65, 4096, 200 << 20, 100 << 20, 7, 300 << 20, 1};
    enum { COUNT = sizeof bytes / sizeof *bytes };
    uint8_t *at[COUNT];
    lar_packed_memory m = {0};
    for (int i = 0; i < COUNT; i++) {
        at[i] = lar_packed_memory_take(&m, bytes[i]);
        assert_non_null(at[i]);
        assert_int_equal((uintptr_t)at[i] % 64, 0);
        assert_int_equal(at[i][0], 0);
        assert_int_equal(at[i][bytes[i] - 1], 0);
        at[i][0] = at[i][bytes[i] - 1] = (uint8_t)(i + 1);
    }
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(at[i][0], i + 1);
        assert_int_equal(at[i][bytes[i] - 1], i + 1);
        for (int k = 0; k < i; k++) assert_true(at[k] + bytes[k] <= at[i] || at[i] + bytes[i] <= at[k]);
    }
    assert_null(lar_packed_memory_take(&m, UINT64_MAX));
    assert_null(lar_packed_memory_take(&m, UINT64_C(1) << 60));
    lar_packed_memory_release(&m);
    assert_null(m.blocks);
    lar_packed_memory_release(&m);
}

static const uint8_t *data_of(const lar_matrix *m) { return ((const lar_panels *)m->packed)->data; }

static void placed_is_prepared(void **state) {
    (void)state;
    lar_workers *team;
    lar_diag d = {0};
    lar_packed_memory memory = {0};
    assert_int_equal(lar_workers_start(3, &team, &d), LAR_OK);
    for (int type = 0; type < LAR_DTYPE_COUNT; type++) {
        random_weights w;
        random_weights_init(&w, (lar_dtype)type, 300, 512, 4);
        lar_rows rows = {&w.tensor, 16, 270};
        const lar_kernels *k = lar_kernels_panels(LAR_CPU_SCALAR);
        lar_matrix alone, placed[2];
        assert_int_equal(lar_matrix_prepare(&alone, &rows, k, LAR_ACTIVATIONS_BY_TYPE, &d), LAR_OK);
        const lar_panels *p = alone.packed;
        for (int i = 0; i < 2; i++) {
            placed[i] = lar_matrix_of(&rows, k, LAR_ACTIVATIONS_BY_TYPE);
            uint64_t bytes = lar_matrix_place_size(&placed[i]);
            uint8_t *at = lar_packed_memory_take(&memory, bytes);
            memset(at, 0xaa, bytes); /* whatever was there is gone */
            assert_int_equal(lar_matrix_place(&placed[i], at, i ? team : NULL, &d), LAR_OK);
            assert_int_equal(placed[i].packed_bytes, alone.packed_bytes);
            assert_memory_equal(data_of(&placed[i]), p->data, p->panels * p->panel_step);
            lar_matrix_release(&placed[i]); /* leaves the memory alone */
        }
        lar_matrix_release(&alone);
        random_weights_release(&w);
    }
    lar_packed_memory_release(&memory);
    lar_workers_stop(team);
}

static void the_reference_takes_nothing(void **state) {
    (void)state;
    random_weights w;
    lar_diag d = {0};
    random_weights_init(&w, LAR_DTYPE_Q4_K, 32, 256, 4);
    lar_matrix m = lar_matrix_of(&(lar_rows){&w.tensor, 8, 16}, lar_kernels_reference(), LAR_ACTIVATIONS_F32);
    assert_int_equal(lar_matrix_place_size(&m), 0);
    assert_int_equal(lar_matrix_place(&m, NULL, NULL, &d), LAR_OK);
    assert_null(m.packed);
    assert_ptr_equal(m.rows.tensor, &w.tensor);
    random_weights_release(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_apart),
        cmocka_unit_test(placed_is_prepared),
        cmocka_unit_test(the_reference_takes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
