/* A memory plan as a value of JSON. */
#ifndef LARDER_LOCAL_PLAN_REPORT_JSON_H
#define LARDER_LOCAL_PLAN_REPORT_JSON_H

#include <cjson/cJSON.h>

#include "gateway/local/plan_report.h"

/* NULL: no memory. The caller deletes it. */
cJSON *lar_plan_json(const lar_plan_story *s);

#endif
