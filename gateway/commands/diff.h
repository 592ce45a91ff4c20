/* larder diff: where two requests part, as the provider prints them in front of the model, and what would mend it. */
#ifndef LARDER_GATEWAY_DIFF_H
#define LARDER_GATEWAY_DIFF_H

#include <stdio.h>

#include "gateway/commands/request_log.h"
#include "policies/cachesim.h"
#include "policies/canon.h"
#include "policies/volatile_text.h"

/* argv begins behind the command's name. Exit codes: 0 the same prompt; 1 they differ; 2 usage or unreadable. */
int lar_command_diff(int argc, char **argv);

typedef enum lar_diff_kind {
    LAR_DIFF_NONE,
    LAR_DIFF_APART, /* another model, salt or user: no cache is shared, whatever the texts are */
    LAR_DIFF_GROWN, /* one begins with the whole of the other */
    LAR_DIFF_TEXT
} lar_diff_kind;

/* One of the two requests. */
typedef struct lar_diff_end {
    const char *file;
    lar_request_log *log; /* open while its body is needed */
    lar_log_request q;
    lar_json json;
    lar_arena arena;
    lar_request_view view;
    lar_rendering rendering;
    lar_buf text;
    lar_prompt prompt;
    /* of the difference; node is NONE where the text ends before it */
    uint32_t node, segment; /* segment: NONE in the tools */
    uint64_t line, column;  /* in the file */
} lar_diff_end;

typedef struct lar_diff {
    const lar_provider *provider;
    lar_diff_end a, b;
    lar_diff_kind kind;
    const char *member;  /* APART: the field that differs */
    size_t offset;       /* byte of both renderings */
    uint32_t shared;     /* tokens in front of it */
    uint32_t hit;        /* of b's, read from the cache behind a, by the provider's rule */
    bool classed;        /* a volatile value of class_id stands there in both */
    lar_volatile_class class_id;
    uint64_t mended_by;      /* bit r: without rule r less would be shared */
    uint32_t mended_shared;  /* tokens of b as larder sends it that are shared, once both were seen */
    uint32_t mended_tokens;  /* of that prompt */
} lar_diff;

/* Both ends have text and prompt; fills the rest. NO_MEMORY. */
LAR_MUST_USE lar_error lar_diff_find(lar_diff *d);

/* For people. */
void lar_diff_print(const lar_diff *d, FILE *to);
/* One JSON document. NO_MEMORY, IO. */
LAR_MUST_USE lar_error lar_diff_print_json(const lar_diff *d, FILE *to);

#endif
