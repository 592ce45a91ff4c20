/* Baselines: the hit rate of a stretch of traffic with its spread, and what it was measured under, as a JSON file.
 *
 * Spread: requests are taken in the journal's order and put into up to LAR_BATCHES_MAX blocks of neighbours, since
 * requests of one conversation, and of one hour, are alike. The rate is all hit tokens over all prompt tokens; its
 * standard error comes from how far each block's hits lie from rate x prompt (the linearised variance of a ratio:
 * W. G. Cochran, Sampling Techniques, 6.3). Fewer than LAR_BATCHES_MIN blocks say nothing. */
#ifndef LARDER_GATEWAY_COMMANDS_BASELINE_H
#define LARDER_GATEWAY_COMMANDS_BASELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "store/journal.h"

enum {
    LAR_BATCHES_MAX = 64,
    LAR_BATCHES_MIN = 16,
    LAR_BASELINE_TURNS = 6, /* 0, 1, 2, 3-5, 6-10, 11+ */
    LAR_BASELINE_MODELS = 64,
    LAR_BASELINE_PREFIXES = 512, /* in the file: those with the most requests */
    LAR_BASELINE_NAME_BYTES = 96
};

/* A rate while it is counted. */
typedef struct lar_rate {
    uint64_t requests, known; /* known: prompt and hit tokens were reported */
    uint64_t prompt, hit;     /* tokens of those */
    struct {
        double prompt, hit;
    } batches[LAR_BATCHES_MAX];
    uint32_t batch;           /* the one that fills */
    uint64_t in_batch, batch_requests;
} lar_rate;

/* What is left of it. */
typedef struct lar_rate_sum {
    uint64_t requests, known, prompt, hit;
    double rate, error; /* hit / prompt and its standard error; less than 0: unknown */
} lar_rate_sum;

void lar_rate_add(lar_rate *r, int64_t prompt, int64_t hit); /* LAR_TOKENS_UNKNOWN counts as not known */
lar_rate_sum lar_rate_finish(const lar_rate *r);

typedef struct lar_baseline_count {
    char name[LAR_BASELINE_NAME_BYTES];
    uint64_t count;
} lar_baseline_count;

typedef struct lar_baseline {
    char name[LAR_BASELINE_NAME_BYTES];
    char key[20]; /* which installation's fingerprints; "" = unknown */
    char canon[16], rules_off[512], pinned[24]; /* settings, from a configuration; canon "" = not given */
    int64_t made_ms, from_ms, to_ms;
    lar_rate_sum all, turns[LAR_BASELINE_TURNS];
    uint64_t edited, output, write; /* requests; tokens of requests with known hits */
    lar_baseline_count models[LAR_BASELINE_MODELS], editions[LAR_BASELINE_MODELS];
    uint32_t model_count, edition_count;
    struct {
        uint64_t hash, count;
    } prefixes[LAR_BASELINE_PREFIXES];
    uint32_t prefix_count;
    uint64_t prefix_requests; /* with a prefix, in the list or not */
} lar_baseline;

extern const char *const lar_baseline_turn_names[LAR_BASELINE_TURNS];

/* Counts records; heap, NULL when out of memory. */
typedef struct lar_baseline_maker lar_baseline_maker;
lar_baseline_maker *lar_baseline_maker_new(void);
void lar_baseline_maker_free(lar_baseline_maker *m);
/* Requests that never were a prompt are left out. */
void lar_baseline_add(lar_baseline_maker *m, const lar_journal_record *r);
/* Fills all but name, key, settings and made_ms. */
void lar_baseline_finish(lar_baseline_maker *m, lar_baseline *out);

/* JSON, indented. */
LAR_MUST_USE lar_error lar_baseline_write(const lar_baseline *b, lar_buf *out);
/* JSON_SYNTAX, JSON_SHAPE (no baseline, or impossible numbers: which, in `d`), VERSION. `text` need not end in NUL. */
LAR_MUST_USE lar_error lar_baseline_read(lar_slice text, lar_baseline *out, lar_diag *d);

/* -- comparison (baseline_compare.c) ---------------------------------------------------------------------------- */

typedef enum lar_change {
    LAR_CHANGE_NONE,           /* no difference beyond the spread */
    LAR_CHANGE_BETTER,
    LAR_CHANGE_WORSE,
    LAR_CHANGE_TOO_FEW,        /* too few requests for a spread */
    LAR_CHANGE_NOT_COMPARABLE, /* no model in common, or no prefix in common */
    LAR_CHANGE_COUNT
} lar_change;
const char *lar_change_name(lar_change c); /* "better" */

typedef struct lar_comparison {
    lar_change change;
    double difference, error; /* of the rates, b - a; error less than 0: unknown */
    bool by_turn;             /* rates of turns were compared and weighted, so that the mix of turns does not count */
    uint32_t models_common, models_only_a, models_only_b;
    double prefixes_common; /* share of the requests of `b` whose prefix `a` had; less than 0: cannot be told */
    bool same_edition, same_settings;
} lar_comparison;
lar_comparison lar_baseline_compare(const lar_baseline *a, const lar_baseline *b);

/* larder baseline. argv begins behind the command's name. Exit codes: 0 recorded; compared: not worse; 1 worse, or no
 * store; 2 usage, an unreadable file, or two that cannot be compared. */
int lar_command_baseline(int argc, char **argv);

#endif
