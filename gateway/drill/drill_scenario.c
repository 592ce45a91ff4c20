/* The rows of drill_scenario.def. Called by all of the drill. Pure; any thread. */
#include "gateway/drill/drill_scenario.h"

static const lar_drill_scenario rows[LAR_DRILL_ID_COUNT] = {
#define LAR_DRILL(id, name, moment, forms, where, course, fault, arg, failure, text)                                   \
    {name,                                                                                                             \
     moment,                                                                                                           \
     text,                                                                                                             \
     LAR_DRILL_##forms,                                                                                                \
     LAR_DRILL_##where,                                                                                                \
     LAR_DRILL_##course,                                                                                               \
     LAR_DRILL_FAULT_##fault,                                                                                          \
     arg,                                                                                                              \
     LAR_FAILURE_##failure},
#include "gateway/drill/drill_scenario.def"
#undef LAR_DRILL
};

const lar_drill_scenario *lar_drill_scenario_of(lar_drill_id id) { return &rows[id]; }
