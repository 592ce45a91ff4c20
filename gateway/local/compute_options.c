/* Options of how a model computes, read alike for all commands that run one.
 * Called by run_command.c and bench_model.c. One thread; never blocks; borrows argv. Not here: whether this processor
 * can do what --cpu asks (engine/compute/cpu.c says so when the engine opens). */
#include "gateway/local/compute_options.h"

#include <stdio.h>
#include <string.h>

#include "engine/cache/kv_layers.h"
#include "engine/compute/workers.h"
#include "engine/model/model_config.h"
#include "gateway/config/option_value.h"

/* What can be wrong before a model is open: all but whether it has so many layers. */
static lar_error check_kv(const char *text, lar_diag *d) {
    uint8_t kv[LAR_LAYERS_MAX];
    lar_diag why = {0};
    lar_error e = lar_kv_layers_parse(text, LAR_LAYERS_MAX, kv, &why);
    return e ? lar_fail(e, d, "--kv %s", why.text) : LAR_OK;
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
    engine->kv = o->kv;
    if (o->expert_bytes && !lar_local_size(o->expert_bytes, &engine->expert_bytes))
        return lar_fail(LAR_INVALID, d, "--expert-bytes %.40s: expected a size as 4G or 512M", o->expert_bytes);
    if (o->kv && check_kv(o->kv, d)) return LAR_INVALID;
    if (!o->activations) return LAR_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], o->activations) != 0) continue;
        engine->activations = (lar_activations)i;
        return LAR_OK;
    }
    return lar_fail(LAR_INVALID, d, "--activations %.40s: expected f32, bf16, int8 or by-type", o->activations);
}
