/* The recall memory of a gateway without a store: in this process only, bounded, least recently used first out. */
#ifndef LARDER_GATEWAY_VOLATILE_MEMORY_H
#define LARDER_GATEWAY_VOLATILE_MEMORY_H

#include "policies/canon.h"

typedef struct lar_volatile_memory lar_volatile_memory;

lar_volatile_memory *lar_volatile_memory_new(uint64_t bytes_max); /* NULL when out of memory */
void lar_volatile_memory_free(lar_volatile_memory *m);
lar_memory_ops lar_volatile_memory_ops(lar_volatile_memory *m);

#endif
