/* Options of the commands that run or plan a model, as rows: read alike, refused alike. */
#ifndef LARDER_LOCAL_OPTIONS_H
#define LARDER_LOCAL_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"

typedef enum lar_local_option_kind { LAR_LOCAL_TEXT, LAR_LOCAL_FLAG } lar_local_option_kind;

typedef struct lar_local_option {
    const char *name; /* "--model" */
    size_t at;        /* of a const char * or, of a flag, of a bool in the command's options */
    lar_local_option_kind kind;
    unsigned uses; /* the ways to run, as bits of the command's own, in which it does something; 0: all */
} lar_local_option;

typedef struct lar_local_options {
    const char *command, *usage; /* "run"; what --help prints */
    const lar_local_option *rows;
    size_t count;
} lar_local_options;

enum { LAR_LOCAL_OK, LAR_LOCAL_FAILED, LAR_LOCAL_USAGE }; /* exit codes */

/* Sets what argv names, --NAME VALUE or --NAME=VALUE; texts are borrowed from argv, the last of several counts. Returns
 * -1, or the exit code with which to end: after --help, or with what is wrong on stderr. */
int lar_local_options_take(const lar_local_options *o, int argc, char **argv, void *into);
/* Whether the row's option was given. */
bool lar_local_option_given(const lar_local_option *row, const void *options);
/* Says what is wrong, with one %s for `what`, and where help is; returns LAR_LOCAL_USAGE. */
int lar_local_options_bad(const lar_local_options *o, const char *format, const char *what)
    __attribute__((format(printf, 2, 0)));

/* A whole number of at least 1, with a unit: the letter's place in `units` is the power of `step` ("?KM" and 1000: 5K
 * is 5000); where `step` is 1024, "B" or "iB" may follow it. false: it is none. */
bool lar_local_number(const char *text, double step, const char *units, uint64_t *out);
/* Bytes: 64G, 64GB and 64GiB are the same, as memory is sold. */
bool lar_local_size(const char *text, uint64_t *out);

#endif
