/* proc_sample PID...: prints "cpu_ns rss_kb", both summed over the processes named.
 * Why: /proc/PID/stat counts in ticks of 10 ms; the process clock counts nanoseconds, ended threads included. */
#include "tests/bench/bench_net.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    uint64_t cpu_ns = 0, rss_kb = 0;
    for (int i = 1; i < argc; i++) {
        long pid = strtol(argv[i], NULL, 10);
        cpu_ns += bench_cpu_ns(pid);
        rss_kb += bench_rss_kb(pid);
    }
    (void)printf("%" PRIu64 " %" PRIu64 "\n", cpu_ns, rss_kb);
    return cpu_ns ? 0 : 1;
}
