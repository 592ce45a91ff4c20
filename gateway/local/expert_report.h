/* What a run with a budget for experts did, for people. */
#ifndef LARDER_LOCAL_EXPERT_REPORT_H
#define LARDER_LOCAL_EXPERT_REPORT_H

#include <stdio.h>

#include "engine/engine.h"

/* A line of counts and the lines of advice that follow from them (expert_advice.h); nothing where all experts are in
 * memory. */
void lar_expert_report(const lar_engine *e, FILE *to);

#endif
