/* Time as a value that is passed in. */
#ifndef LARDER_BASE_CLOCK_H
#define LARDER_BASE_CLOCK_H

#include <stdint.h>

uint64_t lar_clock_mono_ns(void);    /* monotonic; for durations and deadlines */
uint64_t lar_clock_mono_ms(void);    /* the same in milliseconds */
uint64_t lar_clock_process_ns(void); /* what all threads of this process have computed; for benchmarks */
int64_t lar_clock_wall_ms(void);     /* milliseconds since 1970-01-01 UTC; for records and headers */

#endif
