/* The memory that a model of the configuration will take, before any of it is taken. */
#ifndef LARDER_GATEWAY_RESIDENT_PLAN_H
#define LARDER_GATEWAY_RESIDENT_PLAN_H

#include "gateway/config/config.h"
#include "gateway/local/plan_report.h"

enum { LAR_RESIDENT_LAYERS_MAX = 4096 /* of plan_field.def */ };

typedef struct lar_resident_plan {
    lar_plan_story story;                /* as `larder plan` tells it, of what is left of the machine's memory */
    uint8_t kv[LAR_RESIDENT_LAYERS_MAX]; /* (layers) of lar_kv */
    uint64_t kv_bytes;                   /* to reserve for keys and values */
    uint32_t context;                    /* tokens of one request */
    uint32_t vocab;
} lar_resident_plan;

/* Reads the model's headers; `memory` bytes are left. INVALID: options that the model does not allow (`d` names them);
 * NOT_FOUND, IO and others of lar_model_files_open. The plan borrows `c`. */
LAR_MUST_USE lar_error lar_resident_plan_make(lar_resident_plan *p, const lar_engine_config *c, uint64_t memory,
                                              lar_diag *d);
/* LIMIT where it does not fit: `d` has the sums, and the table goes to `to`, unless that is NULL. */
LAR_MUST_USE lar_error lar_resident_plan_fits(const lar_resident_plan *p, FILE *to, lar_diag *d);

#endif
