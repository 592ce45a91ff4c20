/* How much memory this process may still take. */
#ifndef LARDER_GATEWAY_MEMORY_LEFT_H
#define LARDER_GATEWAY_MEMORY_LEFT_H

#include <stdint.h>

#include "base/error.h"

/* Bytes: what the system has available (MemAvailable), or what is left of the limit of this process's control group or
 * of one above it, if that is less. `root` is "" but in tests: a folder that stands for /. IO: nobody says how much. */
LAR_MUST_USE lar_error lar_memory_left(const char *root, uint64_t *out, lar_diag *d);

#endif
