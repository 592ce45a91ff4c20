/* What reports as JSON have in common. */
#ifndef LARDER_LOCAL_REPORT_JSON_H
#define LARDER_LOCAL_REPORT_JSON_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

/* A whole number, exact also beyond 2^53. False: no memory. */
bool lar_report_put(cJSON *to, const char *name, uint64_t value);

typedef enum lar_report_state { LAR_REPORT_WHOLE, LAR_REPORT_LACKS } lar_report_state;
/* Prints it with a line end, unless something is missing from it for want of memory, and deletes it in any case (NULL
 * is allowed). NO_MEMORY, IO. */
LAR_MUST_USE lar_error lar_report_print(cJSON *root, lar_report_state state, FILE *to);

#endif
