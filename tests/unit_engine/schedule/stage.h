/* A scheduler on the engine without a model, whose rounds a test does itself. */
#ifndef LARDER_TESTS_STAGE_H
#define LARDER_TESTS_STAGE_H

#include "engine/schedule/scheduler_core.h"
#include "tests/unit_engine/schedule/job_ear.h"
#include "tests/unit_engine/schedule/stub_engine.h"

typedef struct stage {
    stub_options engine_options;   /* pages 0: 64; pass_tokens 0: 512 */
    lar_scheduler_options options; /* sequences_max 0: 4; queue_max 0: 64; gap_ms 0: 100 */
    lar_engine *engine;
    lar_scheduler *scheduler;
} stage;

void stage_open(stage *g);
/* Ends all jobs with SHUTDOWN; aborts if a page or a sequence is lost. */
void stage_close(stage *g);
/* Rounds until nobody has anything to do. */
void stage_play(stage *g);
/* At most so many rounds; stops earlier where nobody has anything to do. */
void stage_rounds(stage *g, uint32_t rounds);

/* A request whose prompt is `count` ids made from `seed`; ids lie in the static memory of the one call. */
typedef struct stage_request {
    uint32_t ids[4096];
    lar_job_request r;
} stage_request;
void stage_request_make(stage_request *q, uint32_t seed, uint32_t count, uint32_t answer_max);
lar_error stage_try(stage *g, const stage_request *q, job_ear *ear, lar_diag *d);
/* Fails the test if it is refused. */
void stage_submit(stage *g, const stage_request *q, job_ear *ear);

/* Fails unless the job ended well, with the answers that the same request has alone, and for the reasons. */
void stage_check_answers(const stage_request *q, const job_ear *ear);
/* That what it was told so far is a beginning of them. */
void stage_check_begun(const stage_request *q, const job_ear *ear);
void stage_check_end(const job_ear *ear, lar_error error);

#endif
