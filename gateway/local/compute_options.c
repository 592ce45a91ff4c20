/* Options of how a model computes, read alike for all commands that run one.
 * Called by run_command.c and bench_model.c. One thread; never blocks; borrows argv. Not here: whether this processor
 * can do what --cpu asks (engine/compute/cpu.c says so when the engine opens). */
#include "gateway/local/compute_options.h"

#include <stdio.h>
#include <string.h>

#include "engine/compute/workers.h"
#include "gateway/config/option_value.h"

const char **lar_compute_options_find(lar_compute_options *o, lar_slice name) {
    if (lar_slice_eq_cstr(name, "--threads")) return &o->threads;
    if (lar_slice_eq_cstr(name, "--cpu")) return &o->cpu;
    if (lar_slice_eq_cstr(name, "--activations")) return &o->activations;
    if (lar_slice_eq_cstr(name, "--kv")) return &o->kv;
    return NULL;
}

/* The names of kv_format.def, for people. */
static lar_error no_such_kv(const char *name, lar_diag *d) {
    char names[128];
    size_t n = 0;
    for (int i = 0; i < LAR_KV_COUNT && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", lar_kv_info_of((lar_kv)i)->name);
    return lar_fail(LAR_INVALID, d, "--kv %.40s: expected one of %s", name, names);
}

lar_error lar_compute_options_read(const lar_compute_options *o, lar_activations otherwise, lar_engine_options *engine,
                                   lar_diag *d) {
    static const char *const names[] = {[LAR_ACTIVATIONS_F32] = "f32",
                                        [LAR_ACTIVATIONS_BF16] = "bf16",
                                        [LAR_ACTIVATIONS_INT8] = "int8",
                                        [LAR_ACTIVATIONS_BY_TYPE] = "by-type"};
    uint64_t threads = 0;
    lar_diag why = {0};
    if (o->threads &&
        (lar_value_number(lar_slice_cstr(o->threads), &threads, &why) || threads < 1 || threads > LAR_WORKERS_MAX))
        return lar_fail(LAR_INVALID, d, "--threads %.40s: expected 1 to %d", o->threads, LAR_WORKERS_MAX);
    engine->threads = (uint32_t)threads;
    engine->cpu = o->cpu;
    engine->activations = otherwise;
    if (o->kv && !lar_kv_named(o->kv, &engine->kv)) return no_such_kv(o->kv, d);
    if (!o->activations) return LAR_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], o->activations) != 0) continue;
        engine->activations = (lar_activations)i;
        return LAR_OK;
    }
    return lar_fail(LAR_INVALID, d, "--activations %.40s: expected f32, bf16, int8 or by-type", o->activations);
}
