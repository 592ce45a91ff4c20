/* Calls of tools in a model's output, inside engine/text: the part of lar_output_stream that reads a block of calls. */
#ifndef LARDER_ENGINE_TEXT_OUTPUT_CALLS_H
#define LARDER_ENGINE_TEXT_OUTPUT_CALLS_H

#include "engine/text/output_stream.h"

#define LAR_OUTPUT_NAME_BYTES_MAX 128

/* Where a reader is in a block of calls. */
typedef enum lar_output_place {
    LAR_OUTPUT_OUTSIDE,
    LAR_OUTPUT_BETWEEN,   /* a call or the end of the block is next */
    LAR_OUTPUT_TYPE,      /* V3: up to the separator */
    LAR_OUTPUT_NAME,      /* up to what ends the name */
    LAR_OUTPUT_RAW,       /* V3, V3.1: arguments as they are, up to the end of the call */
    LAR_OUTPUT_PARAMETER, /* DSML: a parameter or the end of the call is next */
    LAR_OUTPUT_KEY,       /* DSML: its name, up to the quote */
    LAR_OUTPUT_TEXT_VALUE,
    LAR_OUTPUT_JSON_VALUE,
} lar_output_place;

typedef struct lar_output_calls {
    const lar_output_sink *sink;
    lar_output_format format;
    lar_output_arguments mode;
    lar_output_place place;
    lar_buf raw;       /* the block from where the current call began: what comes out when it cannot be read */
    lar_buf arguments; /* of the current call, as JSON text */
    char name[LAR_OUTPUT_NAME_BYTES_MAX + 1];
    uint32_t index;      /* of the current call */
    uint32_t block;      /* calls told in the current block */
    uint32_t value;      /* where in `arguments` the current value begins */
    uint32_t parameters; /* of the current call */
    uint32_t told;       /* bytes of `arguments` that were told */
    bool is_told;        /* the current call was told */
    uint32_t complete, invalid;
} lar_output_calls;

void lar_output_calls_init(lar_output_calls *c, const lar_output_options *options, const lar_output_sink *sink);
void lar_output_calls_release(lar_output_calls *c);
/* What begins a block, the most likely last; ended by NULL. */
const char *const *lar_output_calls_begin(const lar_output_calls *c);
/* A block begins with these bytes. */
LAR_MUST_USE lar_error lar_output_calls_open(lar_output_calls *c, lar_slice mark);

typedef enum lar_output_verdict {
    LAR_OUTPUT_WAIT,  /* more text is needed */
    LAR_OUTPUT_TOOK,  /* *used bytes are done, there may be more to do */
    LAR_OUTPUT_AFTER, /* likewise, and the block is over */
    LAR_OUTPUT_NO     /* this is no block of calls: `raw`, then what was not used, are content */
} lar_output_verdict;

/* One step on `text`, whole characters that were not used before. LIMIT: the call is too large. */
LAR_MUST_USE lar_error lar_output_calls_step(lar_output_calls *c, lar_slice text, size_t *used,
                                             lar_output_verdict *verdict);
/* The text ended inside the block: `raw` is content. False if nothing is missing but the block's own end. */
bool lar_output_calls_cut(lar_output_calls *c);

/* Where in `text` one of the marks (ended by NULL) begins: the first, the longest of those at one place; *which is its
 * number. Otherwise *which is -1 and the place from which on the text could begin a mark. */
size_t lar_output_find(lar_slice text, const char *const *marks, int *which);

#endif
