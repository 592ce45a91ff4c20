/* Products of the fast kernels against the reference kernels with the same rounding of activations; and the same bits
 * however many tokens come at once and however many workers share the work. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka needs the three above first */
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/compute/panel_matmul.h"
#include "engine/compute/panels.h"
#include "engine/compute/workers.h"
#include "random_weights.h"

static void *must(void *p) {
    assert_non_null(p);
    return p;
}

static float *random_floats(size_t n, uint64_t seed) {
    float *x = must(malloc(n * sizeof *x));
    for (size_t i = 0; i < n; i++) x[i] = random_float(&seed);
    return x;
}

/* A run with `workers` workers and a workspace of `bytes` exactly. */
static lar_run run_of(uint32_t workers, uint64_t bytes) {
    lar_run r = {.workspace = must(aligned_alloc(64, (bytes + 64) / 64 * 64)), .workspace_bytes = bytes};
    lar_diag d = {0};
    if (workers > 1) assert_int_equal(lar_workers_start(workers, &r.workers, &d), LAR_OK);
    return r;
}

static void end_run(lar_run *r) {
    lar_workers_stop(r->workers);
    free(r->workspace);
}

/* Largest difference, by the root mean square of `want`. */
static double distance(const float *want, const float *got, size_t n) {
    double square = 0, most = 0;
    for (size_t i = 0; i < n; i++) {
        square += (double)want[i] * (double)want[i];
        if (!isfinite(got[i])) return INFINITY;
        most = fmax(most, fabs((double)want[i] - (double)got[i]));
    }
    return most / sqrt(square / (double)n + 1e-300);
}

/* -- one product ----------------------------------------------------------------------------------------------- */

typedef struct shape {
    uint32_t heads, out, in, tokens;
} shape;

/* y (tokens, heads, out + 3) of x (tokens, heads, in + 5): rows and steps are not what a plain matrix has. */
static void multiply(const shape *s, const random_weights *w, const lar_kernels *kernels, lar_activations activations,
                     const float *x, uint32_t workers, uint32_t at_once, float *y) {
    lar_matrix *m = must(calloc(s->heads, sizeof *m));
    lar_diag d = {0};
    for (uint32_t h = 0; h < s->heads; h++)
        assert_int_equal(lar_matrix_prepare(&m[h], &(lar_rows){&w->tensor, (uint64_t)h * s->out, s->out}, kernels,
                                            activations, &d),
                         LAR_OK);
    lar_run run = run_of(workers, lar_matmul_workspace(m, s->heads, at_once));
    uint64_t x_row = (uint64_t)s->heads * (s->in + 5), y_row = (uint64_t)s->heads * (s->out + 3);
    for (uint32_t t = 0; t < s->tokens; t += at_once) {
        uint32_t n = s->tokens - t < at_once ? s->tokens - t : at_once;
        lar_product p = {m, s->heads, n, x + t * x_row, x_row, s->in + 5, y + t * y_row, y_row, s->out + 3};
        lar_matmul(&p, &run);
    }
    end_run(&run);
    for (uint32_t h = 0; h < s->heads; h++) lar_matrix_release(&m[h]);
    free(m);
}

static void check_product(const shape *s, lar_dtype type, lar_activations activations) {
    random_weights w;
    random_weights_init(&w, type, s->heads * s->out, s->in, 77);
    size_t ny = (size_t)s->tokens * s->heads * (s->out + 3);
    float *x = random_floats((size_t)s->tokens * s->heads * (s->in + 5), 5);
    float *want = must(calloc(ny, sizeof *want)), *got = must(calloc(ny, sizeof *got)), *again = must(calloc(ny, 4));
    multiply(s, &w, lar_kernels_reference(), activations, x, 1, s->tokens, want);
    multiply(s, &w, lar_kernels_panels(lar_cpu_best()), activations, x, 1, s->tokens, got);
    assert_true(distance(want, got, ny) < 2e-5);
    static const uint32_t at_once[] = {1, 7, 16, 64};
    for (uint32_t i = 0; i < 4; i++) {
        memset(again, 0, ny * sizeof *again);
        multiply(s, &w, lar_kernels_panels(lar_cpu_best()), activations, x, 1 + i % 3, at_once[i], again);
        assert_memory_equal(again, got, ny * sizeof *got);
    }
    free(x), free(want), free(got), free(again);
    random_weights_release(&w);
}

static void products_agree_with_the_reference(void **state) {
    (void)state;
    for (int type = 0; type < LAR_DTYPE_COUNT; type++) {
        uint32_t whole = lar_dtype_info_of((lar_dtype)type)->block_elements;
        for (int a = 0; a <= LAR_ACTIVATIONS_INT8; a++) {
            check_product(&(shape){1, 83, whole == 1 ? 75 : 256, 21}, (lar_dtype)type, (lar_activations)a);
            check_product(&(shape){3, 20, whole == 1 ? 36 : whole, 5}, (lar_dtype)type, (lar_activations)a);
        }
    }
}

static void long_prompts_agree(void **state) {
    (void)state; /* many tiles */
    check_product(&(shape){1, 33, 64, 150}, LAR_DTYPE_Q8_0, LAR_ACTIVATIONS_INT8);
    check_product(&(shape){1, 33, 64, 150}, LAR_DTYPE_BF16, LAR_ACTIVATIONS_F32);
}

/* Products of different shapes and types in one go have the bits that each has alone. */
static void products_in_one_go_are_those_alone(void **state) {
    (void)state;
    enum { COUNT = 3, N = 5, IN = 256 };
    static const uint32_t outs[COUNT] = {200, 17, 64};
    static const lar_dtype types[COUNT] = {LAR_DTYPE_Q4_K, LAR_DTYPE_F32, LAR_DTYPE_Q8_0};
    float *x = random_floats(N * IN, 3), alone[COUNT][N * 200] = {{0}}, together[COUNT][N * 200] = {{0}};
    lar_product list[COUNT];
    lar_matrix m[COUNT];
    random_weights w[COUNT];
    lar_diag d = {0};
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        /* The last one has other kernels: it is done by itself. */
        const lar_kernels *k = i == 2 ? lar_kernels_reference() : lar_kernels_panels(lar_cpu_best());
        random_weights_init(&w[i], types[i], outs[i], IN, i + 1);
        lar_rows rows = {&w[i].tensor, 0, outs[i]};
        assert_int_equal(lar_matrix_prepare(&m[i], &rows, k, LAR_ACTIVATIONS_BY_TYPE, &d), LAR_OK);
        list[i] = (lar_product){&m[i], 1, N, x, IN, 0, together[i], outs[i], 0};
        bytes += lar_matmul_workspace(&m[i], 1, N);
    }
    for (uint32_t workers = 1; workers <= 3; workers++) {
        lar_run run = run_of(workers, bytes);
        memset(together, 0, sizeof together);
        lar_matmul_all(list, COUNT, &run);
        for (uint32_t i = 0; i < COUNT; i++) {
            lar_product one = list[i];
            one.y = alone[i];
            lar_matmul(&one, &run);
        }
        end_run(&run);
        assert_memory_equal(together, alone, sizeof alone);
    }
    for (uint32_t i = 0; i < COUNT; i++) lar_matrix_release(&m[i]), random_weights_release(&w[i]);
    free(x);
}

/* -- experts --------------------------------------------------------------------------------------------------- */

enum { EXPERTS = 5, WIDTH = 96, HIDDEN = 256, TOKENS = 40 };

typedef struct experts {
    random_weights gate, up, down; /* (EXPERTS * out, in) */
    lar_mlp mlps[EXPERTS];
} experts;

static void prepare_experts(experts *e, const lar_kernels *kernels, const lar_dtype types[3], lar_activations a) {
    random_weights_init(&e->gate, types[0], EXPERTS * WIDTH, HIDDEN, 1);
    random_weights_init(&e->up, types[1], EXPERTS * WIDTH, HIDDEN, 2);
    random_weights_init(&e->down, types[2], EXPERTS * HIDDEN, WIDTH, 3);
    lar_diag d = {0};
    for (uint32_t i = 0; i < EXPERTS; i++) {
        e->mlps[i] = (lar_mlp){lar_matrix_of(&(lar_rows){&e->gate.tensor, i * WIDTH, WIDTH}, kernels, a),
                               lar_matrix_of(&(lar_rows){&e->up.tensor, i * WIDTH, WIDTH}, kernels, a),
                               lar_matrix_of(&(lar_rows){&e->down.tensor, i * HIDDEN, HIDDEN}, kernels, a)};
        assert_int_equal(lar_mlp_prepare(&e->mlps[i], &d), LAR_OK);
    }
}

static void release_experts(experts *e) {
    for (uint32_t i = 0; i < EXPERTS; i++) lar_mlp_release(&e->mlps[i]);
    random_weights_release(&e->gate);
    random_weights_release(&e->up);
    random_weights_release(&e->down);
}

/* Which tokens of [first, first + n) go to which expert: expert 3 gets none, expert 1 all, the rest some. */
typedef struct picks {
    uint32_t starts[EXPERTS + 1], token[EXPERTS * TOKENS];
    float weight[EXPERTS * TOKENS];
} picks;

static void choose(picks *p, uint32_t first, uint32_t n) {
    uint32_t at = 0;
    for (uint32_t e = 0; e < EXPERTS; e++) {
        p->starts[e] = at;
        for (uint32_t t = first; t < first + n; t++) {
            uint64_t seed = e * 1000 + t;
            if (e == 3 || (e != 1 && random_next(&seed) % 3 == 0)) continue;
            p->token[at] = t - first;
            p->weight[at++] = 0.1f + (float)((t + e) % 7);
        }
    }
    p->starts[EXPERTS] = at;
}

static void run_experts(experts *e, const float *x, uint32_t workers, uint32_t at_once, float *y) {
    picks p;
    lar_run run = run_of(workers, lar_mlp_workspace(e->mlps, EXPERTS, EXPERTS * at_once));
    for (uint32_t t = 0; t < TOKENS; t += at_once) {
        uint32_t n = TOKENS - t < at_once ? TOKENS - t : at_once;
        choose(&p, t, n);
        lar_mlp_job job = {e->mlps, EXPERTS, p.starts, p.token, p.weight, x + t * HIDDEN, y + t * HIDDEN, NULL};
        lar_mlp_run(&job, &run);
    }
    end_run(&run);
}

static void check_experts(const lar_dtype types[3], lar_activations a, double most) {
    experts fast, reference;
    prepare_experts(&fast, lar_kernels_panels(lar_cpu_best()), types, a);
    prepare_experts(&reference, lar_kernels_reference(), types, a);
    float *x = random_floats(TOKENS * HIDDEN, 6), *start = random_floats(TOKENS * HIDDEN, 7);
    enum { BYTES = TOKENS * HIDDEN * sizeof(float) };
    float *want = must(malloc(BYTES)), *got = must(malloc(BYTES)), *again = must(malloc(BYTES));
    memcpy(want, start, BYTES), memcpy(got, start, BYTES);
    run_experts(&reference, x, 1, TOKENS, want);
    run_experts(&fast, x, 1, TOKENS, got);
    assert_true(distance(want, got, TOKENS * HIDDEN) < most);
    for (uint32_t i = 0; i < 3; i++) {
        memcpy(again, start, BYTES);
        run_experts(&fast, x, 3 - i, (uint32_t[]){1, 7, 33}[i], again);
        assert_memory_equal(again, got, BYTES);
    }
    free(x), free(start), free(want), free(got), free(again);
    release_experts(&fast);
    release_experts(&reference);
}

static void experts_agree_with_the_reference(void **state) {
    (void)state;
    static const lar_dtype mixed[3] = {LAR_DTYPE_Q4_K, LAR_DTYPE_BF16, LAR_DTYPE_Q5_0};
    static const lar_dtype whole[3] = {LAR_DTYPE_Q4_K, LAR_DTYPE_Q4_K, LAR_DTYPE_Q8_0};
    check_experts(whole, LAR_ACTIVATIONS_F32, 1e-5);
    check_experts(mixed, LAR_ACTIVATIONS_F32, 1e-5);
    /* A hidden value that lies between two integers may round either way: one step of one value is the bound. */
    check_experts(whole, LAR_ACTIVATIONS_INT8, 2e-3);
    check_experts(mixed, LAR_ACTIVATIONS_INT8, 2e-3);
    check_experts(mixed, LAR_ACTIVATIONS_BF16, 2e-3);
}

static void a_dense_mlp_has_every_token(void **state) {
    (void)state;
    static const lar_dtype types[3] = {LAR_DTYPE_F32, LAR_DTYPE_F32, LAR_DTYPE_F32};
    experts fast, reference;
    prepare_experts(&fast, lar_kernels_panels(lar_cpu_best()), types, LAR_ACTIVATIONS_F32);
    prepare_experts(&reference, lar_kernels_reference(), types, LAR_ACTIVATIONS_F32);
    float *x = random_floats(TOKENS * HIDDEN, 6), want[TOKENS * HIDDEN] = {0}, got[TOKENS * HIDDEN] = {0};
    uint32_t starts[2] = {0, TOKENS};
    lar_run run = run_of(2, lar_mlp_workspace(fast.mlps, 1, TOKENS));
    lar_mlp_run(&(lar_mlp_job){fast.mlps, 1, starts, NULL, NULL, x, got, NULL}, &run);
    end_run(&run);
    run = run_of(1, lar_mlp_workspace(reference.mlps, 1, TOKENS));
    lar_mlp_run(&(lar_mlp_job){reference.mlps, 1, starts, NULL, NULL, x, want, NULL}, &run);
    end_run(&run);
    assert_true(distance(want, got, TOKENS * HIDDEN) < 1e-5);
    free(x);
    release_experts(&fast);
    release_experts(&reference);
}

/* A job with another behind it adds what both add one after the other, bit for bit. */
static void a_job_and_the_next_are_one(void **state) {
    (void)state;
    static const lar_dtype types[3] = {LAR_DTYPE_Q4_K, LAR_DTYPE_Q4_K, LAR_DTYPE_Q8_0};
    experts many, dense;
    prepare_experts(&many, lar_kernels_panels(lar_cpu_best()), types, LAR_ACTIVATIONS_INT8);
    for (int same = 0; same < 2; same++) {
        const lar_kernels *k = same ? lar_kernels_panels(lar_cpu_best()) : lar_kernels_reference();
        prepare_experts(&dense, k, types, LAR_ACTIVATIONS_INT8);
        picks p;
        choose(&p, 0, 9);
        float *x = random_floats(9 * HIDDEN, 6), want[9 * HIDDEN] = {0}, got[9 * HIDDEN] = {0};
        const uint32_t all[2] = {0, 9};
        lar_mlp_job then = {dense.mlps, 1, all, NULL, NULL, x, want, NULL};
        lar_mlp_job first = {many.mlps, EXPERTS, p.starts, p.token, p.weight, x, want, NULL};
        lar_run run =
            run_of(2, lar_mlp_workspace(many.mlps, EXPERTS, p.starts[EXPERTS]) + lar_mlp_workspace(dense.mlps, 1, 9));
        lar_mlp_run(&first, &run);
        lar_mlp_run(&then, &run);
        first.y = then.y = got;
        first.then = &then;
        lar_mlp_run(&first, &run);
        assert_memory_equal(got, want, sizeof want);
        end_run(&run);
        free(x);
        release_experts(&dense);
    }
    release_experts(&many);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_agree_with_the_reference),  cmocka_unit_test(long_prompts_agree),
        cmocka_unit_test(products_in_one_go_are_those_alone), cmocka_unit_test(a_job_and_the_next_are_one),
        cmocka_unit_test(experts_agree_with_the_reference),   cmocka_unit_test(a_dense_mlp_has_every_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
