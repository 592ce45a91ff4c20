/* The engine's kernels one by one: products of each type of weights, of every path that this processor runs, beside the
 * scalar twin and the bandwidth that the same threads read memory with.
 *   engine_bench [--threads N] [--rounds N] [--rows N] [--columns N] [TYPE...]     CSV to stdout
 * Default: all types, one thread, 5 rounds, (32768, 2048): weights beyond most caches. Of each the best round, so that
 * what else the machine does counts least; read_gb_s is measured once a type. The scalar twin does a few rows only.
 * int8: activations rounded; float: as they are. Not a test, and nothing here fails by time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/compute/bandwidth.h"
#include "engine/compute/panel_matmul.h"
#include "engine/compute/workers.h"
#include "random_weights.h"

enum { SCALAR_ROWS = 32, TOKENS_MOST = 64 };

typedef struct options {
    uint32_t threads, rounds, rows, columns;
} options;

static void must(lar_error e, const lar_diag *d) {
    if (!e) return;
    (void)fprintf(stderr, "engine_bench: %s\n", *d->text ? d->text : lar_error_text(e));
    exit(1);
}

static void *memory(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!p) abort();
    return p;
}

typedef struct measured {
    double seconds; /* of the best round */
    uint64_t bytes; /* of repacked weights */
} measured;

static measured measure(const options *o, const lar_rows *rows, const lar_kernels *kernels, lar_activations a,
                        uint32_t tokens) {
    lar_matrix m;
    lar_diag d = {0};
    lar_run run = {0};
    measured best = {.seconds = 1e9};
    must(lar_matrix_prepare(&m, rows, kernels, a, &d), &d);
    must(lar_workers_start(o->threads, &run.workers, &d), &d);
    run.workspace_bytes = lar_matmul_workspace(&m, 1, tokens);
    run.workspace = memory(run.workspace_bytes);
    float *x = memory((size_t)tokens * m.in * sizeof *x), *y = memory((size_t)tokens * m.out * sizeof *y);
    uint64_t seed = 1;
    for (size_t i = 0; i < (size_t)tokens * m.in; i++) x[i] = random_float(&seed);
    for (uint32_t i = 0; i < o->rounds; i++) {
        uint64_t start = lar_clock_mono_ns();
        lar_matmul(&(lar_product){&m, 1, tokens, x, m.in, 0, y, m.out, 0}, &run);
        double s = (double)(lar_clock_mono_ns() - start) / 1e9;
        if (s < best.seconds) best.seconds = s;
    }
    best.bytes = m.packed_bytes;
    free(x), free(y), free(run.workspace);
    lar_workers_stop(run.workers);
    lar_matrix_release(&m);
    return best;
}

static void bench_type(const options *o, lar_dtype type) {
    static const uint32_t tokens[] = {1, 4, 16, TOKENS_MOST};
    random_weights w;
    lar_workers *readers;
    lar_diag d = {0};
    double read = 0;
    bool integer = lar_dtype_info_of(type)->block_elements > 1;
    random_weights_init(&w, type, o->rows, o->columns, 1);
    must(lar_workers_start(o->threads, &readers, &d), &d);
    must(lar_bandwidth_measure(readers, &read, &d), &d);
    lar_workers_stop(readers);
    for (int cpu = (int)lar_cpu_best(); cpu >= 0; cpu--)
        for (int a = integer ? LAR_ACTIVATIONS_INT8 : LAR_ACTIVATIONS_F32; a >= 0; a -= LAR_ACTIVATIONS_INT8)
            for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
                lar_rows rows = {&w.tensor, 0, o->rows};
                if (cpu == LAR_CPU_SCALAR) rows.out = o->rows < SCALAR_ROWS ? o->rows : SCALAR_ROWS;
                measured m = measure(o, &rows, lar_kernels_panels((lar_cpu)cpu), (lar_activations)a, tokens[i]);
                double macs = (double)rows.out * o->columns * tokens[i];
                (void)printf("%s,%s,%s,%u,%u,%u,%u,%.2f,%.2f,%.2f\n", lar_dtype_info_of(type)->name,
                             lar_cpu_name((lar_cpu)cpu), a ? "int8" : "float", o->threads, rows.out, o->columns,
                             tokens[i], (double)m.bytes / m.seconds / 1e9, macs / m.seconds / 1e9, read);
                (void)fflush(stdout);
            }
    random_weights_release(&w);
}

static bool is_chosen(int argc, char **argv, int first, lar_dtype type) {
    for (int i = first; i < argc; i++)
        if (strcmp(argv[i], lar_dtype_info_of(type)->name) == 0) return true;
    return first == argc;
}

int main(int argc, char **argv) {
    options o = {1, 5, 32768, 2048};
    int i = 1;
    for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        uint32_t value = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--threads") == 0) o.threads = value;
        else if (strcmp(argv[i], "--rounds") == 0) o.rounds = value;
        else if (strcmp(argv[i], "--rows") == 0) o.rows = value;
        else if (strcmp(argv[i], "--columns") == 0) o.columns = value;
        else break;
    }
    if ((i < argc && argv[i][0] == '-') || !o.rounds || !o.rows || !o.columns || o.columns % 256) {
        (void)fprintf(stderr, "usage: engine_bench [--threads N] [--rounds N] [--rows N] [--columns N] [TYPE...]\n"
                              "columns is a multiple of 256\n");
        return 2;
    }
    (void)printf("type,cpu,activations,threads,rows,columns,tokens,weights_gb_s,gmac_s,read_gb_s\n");
    for (int type = 0; type < LAR_DTYPE_COUNT; type++)
        if (is_chosen(argc, argv, i, (lar_dtype)type)) bench_type(&o, (lar_dtype)type);
    return 0;
}
