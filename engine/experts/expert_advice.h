/* What the counts of an expert cache say to whoever chose its budget. */
#ifndef LARDER_ENGINE_EXPERT_ADVICE_H
#define LARDER_ENGINE_EXPERT_ADVICE_H

#include "engine/experts/expert_cache.h"

enum { LAR_EXPERT_ADVICE_LINES = 6, LAR_EXPERT_ADVICE_BYTES = 240, LAR_EXPERT_ADVICE_LOOKUPS = 1000 };

/* Sentences where the cache costs more than it gives: a budget so near the whole that all could be in memory; hits that
 * are no more than the share of experts in memory; most of the time waiting for the disk; packing that takes longer
 * than reading; a file system without direct reads; a budget that leaves the system too little. `available`: bytes of
 * memory that are free for others now, 0: not known. Nothing is said of hits and times before LAR_EXPERT_ADVICE_LOOKUPS
 * experts were asked for. Returns how many lines there are; 0: nothing to say, or no cache. */
uint32_t lar_expert_advice(const lar_expert_counts *c, uint64_t available,
                           char lines[LAR_EXPERT_ADVICE_LINES][LAR_EXPERT_ADVICE_BYTES]);

#endif
