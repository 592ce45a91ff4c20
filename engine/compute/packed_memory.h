/* Memory for repacked weights: taken piece by piece, given back all at once; on large pages, if the system has any. */
#ifndef LARDER_ENGINE_COMPUTE_PACKED_MEMORY_H
#define LARDER_ENGINE_COMPUTE_PACKED_MEMORY_H

#include <stdint.h>

typedef struct lar_packed_memory {
    struct lar_packed_block *blocks; /* the newest first */
    uint8_t *next;                   /* free from here on, in the newest block */
    uint64_t left;                   /* bytes of it */
} lar_packed_memory;

/* All zero is an empty one. `bytes` of zeros, aligned to 64; NULL: there is no memory. Pages that nobody writes to are
 * not backed. */
void *lar_packed_memory_take(lar_packed_memory *m, uint64_t bytes);
void lar_packed_memory_release(lar_packed_memory *m); /* an empty one: nothing happens */

#endif
