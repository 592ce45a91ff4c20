/* What resident.c shares with engine_pool.c. */
#ifndef LARDER_GATEWAY_RESIDENT_PARTS_H
#define LARDER_GATEWAY_RESIDENT_PARTS_H

#include "engine/schedule/scheduler.h"
#include "gateway/resident/resident.h"
#include "gateway/resident/work_queue.h"
#include "gateway/serving/serving.h"

struct lar_resident {
    lar_resident_options o;
    lar_engine *engine;
    lar_serving *serving;
    lar_scheduler *scheduler;
    lar_work_queue *work;
    atomic_uint preparing; /* requests that are read and made tokens of, or wait for it */
};

#endif
