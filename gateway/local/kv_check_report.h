/* How a check of formats of latents is told: tables for people, JSON for programs. */
#ifndef LARDER_LOCAL_KV_CHECK_REPORT_H
#define LARDER_LOCAL_KV_CHECK_REPORT_H

#include <stdio.h>

#include "gateway/local/kv_check.h"

/* All that a report tells; borrowed. */
typedef struct lar_kv_check_story {
    const char *model, *text; /* as asked for */
    lar_engine_info info;
    const lar_kv_check *check;
    double limit; /* a share */
} lar_kv_check_story;

void lar_kv_check_print(const lar_kv_check_story *s, FILE *to);
/* NO_MEMORY, IO. */
LAR_MUST_USE lar_error lar_kv_check_print_json(const lar_kv_check_story *s, FILE *to);

#endif
