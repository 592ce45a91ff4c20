/* The table of formats of keys and values (header: kv_format.h).
 * Called by engine/plan, engine/model and their commands; calls nobody. Any thread; never blocks; allocates nothing.
 * Why one table: what `larder plan` adds up is what a sequence of `larder run` takes. */
#include "engine/files/kv_format.h"

static const lar_kv_info infos[] = {
#define LAR_KV(id, name, value, group, scale, text) {name, value, group, scale, text},
#include "engine/files/kv_format.def"
#undef LAR_KV
};

const lar_kv_info *lar_kv_info_of(lar_kv kv) { return &infos[kv]; }
