/* The memory of texts of answers (policies/output.h): in this process, bounded, least recently used first out; and on
 * disk only if it is given a memory that is. */
#ifndef LARDER_GATEWAY_OUTPUT_TEXTS_H
#define LARDER_GATEWAY_OUTPUT_TEXTS_H

#include "policies/canon.h"

typedef struct lar_output_texts lar_output_texts;

enum { LAR_OUTPUT_DISK_MAX = 64 * 1024 }; /* bytes of a text that goes to disk; longer ones stay in memory only */

/* `bytes_max`: over 0. `disk` (borrowed, must outlive it) or NULL. NULL when out of memory. */
lar_output_texts *lar_output_texts_new(uint64_t bytes_max, const lar_memory_ops *disk);
void lar_output_texts_free(lar_output_texts *t);
lar_memory_ops lar_output_texts_ops(lar_output_texts *t);

#endif
