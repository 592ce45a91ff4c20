/* `larder plan --config`: the memory that `larder serve` will take for the models of a configuration. */
#ifndef LARDER_LOCAL_PLAN_SERVE_H
#define LARDER_LOCAL_PLAN_SERVE_H

#include <stdbool.h>
#include <stdint.h>

enum { LAR_PLAN_SERVE_INVALID = 3 /* exit code: the configuration is not valid, as of `larder check` */ };

/* Prints the plan of each upstream of kind engine, and what all take together, as a table or as JSON. `memory`: bytes
 * to plan for; 0: what is left on this machine now. Returns the exit code: 0 all fit, 1 one does not or cannot be
 * planned, LAR_PLAN_SERVE_INVALID. */
int lar_plan_serve(const char *config, uint64_t memory, bool json);

#endif
