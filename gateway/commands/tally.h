/* Sums over journal records, in all and by group. */
#ifndef LARDER_GATEWAY_COMMANDS_TALLY_H
#define LARDER_GATEWAY_COMMANDS_TALLY_H

#include <stdbool.h>
#include <stdint.h>

#include "policies/price.h"
#include "store/journal.h"

/* Values for percentiles: all of them up to a bound, then every 2nd, 4th ... in order of arrival. */
typedef struct lar_samples {
    uint32_t *values; /* microseconds, at most 4294 s */
    uint32_t count, cap;
    uint64_t offered, stride; /* stride 0 = not begun */
    bool sorted;
} lar_samples;

void lar_samples_add(lar_samples *s, int64_t us);
/* Nearest rank; -1 when there are none. `part` is 0.50, 0.95. */
int64_t lar_samples_at(lar_samples *s, double part);

typedef struct lar_tally {
    char name[2 * LAR_JREC_NAME_BYTES + 8];
    uint64_t requests, known;                  /* known: hit and miss tokens were reported */
    uint64_t promptless;                       /* of the requests: see lar_tally_has_prompt */
    uint64_t kept, kept_prompt, kept_output;   /* of these, answered with a kept answer; tokens not asked for again */
    uint64_t prompt, hit, miss, write, output; /* of those known */
    uint64_t partial, odd, edited;
    uint64_t priced; /* requests whose cost could be computed */
    double cost, saved;
    lar_samples ttft;
} lar_tally;

/* False for what never was a prompt to the upstream: refused by larder, answered with a kept answer, or without a model
 * (a list of models) and without reported tokens. Its tokens are not unknown, there are none. */
bool lar_tally_has_prompt(const lar_journal_record *r);
/* Requests with a prompt whose hits are not known. */
uint64_t lar_tally_unknown(const lar_tally *t);
/* Adds a record; `price` is its model's, or NULL. */
void lar_tally_add(lar_tally *t, const lar_journal_record *r, const lar_price *price);
void lar_tally_release(lar_tally *t);
/* hit / (hit + miss), or -1. */
double lar_tally_rate(const lar_tally *t);

/* Tallies by name. Over `LAR_GROUPS_MAX` names the rest is one group, "(others)". */
enum { LAR_GROUPS_MAX = 1024 };
typedef struct lar_groups lar_groups;
lar_groups *lar_groups_new(void); /* NULL when out of memory */
lar_tally *lar_groups_get(lar_groups *g, const char *name);
/* Most requests first; ends the adding. */
lar_tally *lar_groups_sorted(lar_groups *g, uint32_t *count);
void lar_groups_free(lar_groups *g);

#endif
