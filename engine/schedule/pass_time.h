/* How long a pass takes, learned from passes: what the size of prompts' pieces follows from.
 *
 * us = f(tokens) + slope * (sum of the tokens' positions). f is kept by powers of two of the tokens: with few of them a
 * pass waits for weights, and each token of a mixture of experts brings others; with many it computes. So f grows, and
 * by less than its tokens do: between and beyond what was measured no more is supposed, and what was measured long ago
 * is drawn into those bounds by what is measured now. The slope is what attention adds for each row before a token; it
 * is found from how passes of one size differ as their positions do. Recent passes count most: clocks, neighbours on
 * the machine and the routing change. How far passes miss what was expected is learned as well, so that a limit is kept
 * by all but few of them, and no further below it than this machine needs. Pure; all numbers in microseconds. */
#ifndef LARDER_ENGINE_SCHEDULE_PASS_TIME_H
#define LARDER_ENGINE_SCHEDULE_PASS_TIME_H

#include <stdint.h>

enum { LAR_PASS_SIZES = 32, LAR_PASS_FIRST_TOKENS = 16 };

typedef struct lar_pass_size {
    double tokens, us, position; /* means of its passes; position: of a token */
} lar_pass_size;

/* Embedded; all zero: nothing is known yet. */
typedef struct lar_pass_time {
    lar_pass_size sizes[LAR_PASS_SIZES];  /* of 2^i to 2^(i + 1) - 1 tokens; tokens 0: none was measured */
    lar_pass_size longer[LAR_PASS_SIZES]; /* the same over more passes, for the slope: */
    double spread, together;              /* of positions; of positions and microseconds, a token */
    double late; /* 199 of 200 passes take at most so many times what was expected; 0: not known */
} lar_pass_time;

/* Tokens of a pass and the sum of their positions. */
typedef struct lar_pass_load {
    uint32_t tokens;
    uint64_t positions;
} lar_pass_load;

void lar_pass_time_learn(lar_pass_time *t, lar_pass_load load, uint64_t us);
/* 0 for no tokens, and as long as nothing is known. */
double lar_pass_time_of(const lar_pass_time *t, lar_pass_load load);
/* Of a pass that was to take `expected` and took `us`. */
void lar_pass_time_judge(lar_pass_time *t, double expected, uint64_t us);
/* What to expect at most of a pass so that it takes `us` or less, but for one in two hundred. */
double lar_pass_time_within(const lar_pass_time *t, uint64_t us);
/* The most tokens that a pass should have for what is known so far: twice the most that were measured, and
 * LAR_PASS_FIRST_TOKENS at least, so that the first pieces of a prompt are small. */
uint32_t lar_pass_time_trusted(const lar_pass_time *t);

#endif
