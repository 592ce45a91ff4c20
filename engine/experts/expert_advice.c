/* Advice on a budget for experts (header: expert_advice.h).
 * Called by the commands that run a model; calls nobody. Any thread; never blocks; pure.
 * Why from counts and not from the plan: what routing does, and what a disk delivers, only a run shows. */
#include "engine/experts/expert_advice.h"

#include <stdarg.h>
#include <stdio.h>

typedef struct page {
    char (*lines)[LAR_EXPERT_ADVICE_BYTES];
    uint32_t count;
} page;

static void say(page *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(page *p, const char *format, ...) {
    va_list list;
    va_start(list, format);
    (void)vsnprintf(p->lines[p->count++], LAR_EXPERT_ADVICE_BYTES, format, list);
    va_end(list);
}

static double mib(uint64_t bytes) { return (double)bytes / (1 << 20); }

static double percent(uint64_t part, uint64_t whole) { return whole ? 100 * (double)part / (double)whole : 0; }

static void of_hits_and_times(page *p, const lar_expert_counts *c) {
    double hits = percent(c->hits, c->hits + c->misses), share = percent(c->slots, c->experts);
    double stall = percent(c->stall_us, c->run_us);
    if (hits < share + 5)
        say(p,
            "%.0f %% of the experts that were used were in memory, where %.0f %% of all experts are: this routing has no "
            "favourites, and more bytes help only in proportion",
            hits, share);
    if (stall > 50)
        say(p,
            "%.0f %% of the time of layers with experts was waiting for them: more bytes, a faster disk or a smaller "
            "type of weights help, more threads do not",
            stall);
    if (c->pack_us > c->read_us)
        say(p,
            "packing experts took longer than reading them (%.0f and %.0f MiB/s a thread): the processor is the limit, "
            "not the disk",
            mib(c->bytes_read) * 1e6 / (double)(c->pack_us + 1), mib(c->bytes_read) * 1e6 / (double)(c->read_us + 1));
}

uint32_t lar_expert_advice(const lar_expert_counts *c, uint64_t available,
                           char lines[LAR_EXPERT_ADVICE_LINES][LAR_EXPERT_ADVICE_BYTES]) {
    page p = {lines, 0};
    if (!c->bytes) return 0;
    uint64_t lacks = c->all_bytes > c->bytes ? c->all_bytes - c->bytes : 0;
    if (lacks < c->all_bytes / 10 && (!available || lacks < available / 2))
        say(&p, "%.0f MiB more hold all experts: without a budget nothing is read after the start", mib(lacks));
    if (c->hits + c->misses >= LAR_EXPERT_ADVICE_LOOKUPS) of_hits_and_times(&p, c);
    if (c->buffered)
        say(&p, "the file system takes no direct reads: experts pass through the page cache, which costs a copy");
    if (available && available < c->bytes / 8)
        say(&p,
            "the budget of %.0f MiB leaves %.0f MiB for all else: the system may take back pages that are needed; a "
            "smaller budget can be faster",
            mib(c->bytes), mib(available));
    return p.count;
}
