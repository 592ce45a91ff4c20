/* What the parts of `larder lint` share. Private to gateway/commands/lint*.c: lint_main.c drives, each other file does
 * one thing. One thread; everything may block on files. */
#ifndef LARDER_GATEWAY_COMMANDS_LINT_COMMAND_H
#define LARDER_GATEWAY_COMMANDS_LINT_COMMAND_H

#include <stdio.h>

#include "base/arena.h"
#include "base/buf.h"
#include "policies/lint.h"

enum { LAR_LINT_OK = 0, LAR_LINT_FOUND = 1, LAR_LINT_USAGE = 2 };

typedef enum lar_lint_format {
    LAR_LINT_AS_TEXT,
    LAR_LINT_AS_JSON,
    LAR_LINT_AS_SARIF,
    LAR_LINT_AS_GITHUB
} lar_lint_format;
typedef enum lar_lint_fix { LAR_LINT_NO_FIX, LAR_LINT_FIX_FILE, LAR_LINT_FIX_PRINT, LAR_LINT_FIX_DIFF } lar_lint_fix;

/* Which rules count: bit r. */
typedef struct lar_lint_rules {
    uint64_t selected, ignored;
    bool has_selected;
    lar_severity least;
    bool has_least;
} lar_lint_rules;

typedef struct lar_lint_args {
    lar_lint_format format;
    lar_lint_fix fix;
    bool color;
    lar_lint_rules rules;
    const lar_provider *provider;
    const char *baseline, *write_baseline, *config, *stdin_name;
    bool no_config;
    char **paths; /* borrowed from argv */
    uint32_t path_count;
} lar_lint_args;

/* lint_args.c: -1 to go on, else the exit status; a message, or what was asked for, has been printed. */
int lar_lint_args_parse(lar_lint_args *a, int argc, char **argv);
/* Adds the rules that an id, a name, or the beginning of ids ("LR1") stands for; false if there is none. */
bool lar_lint_rules_named(lar_slice text, uint64_t *rules);
bool lar_lint_severity_named(lar_slice text, lar_severity *out);
const char *lar_lint_severity_name(lar_severity s);

/* lint_explain.c: a rule's page in short. */
int lar_lint_explain(const char *name, FILE *out);
int lar_lint_list_rules(FILE *out);

/* lint_files.c: paths, folders and patterns as a sorted list of files. */
typedef struct lar_lint_files {
    char **names; /* heap */
    uint32_t count, cap;
} lar_lint_files;
/* True if `path` matches: * and ? within a part, ** across parts, [abc] and [!a-z]. No recursion. */
bool lar_lint_glob_match(const char *pattern, const char *path);
/* IO or NOT_FOUND with a message in `d` for a path that is not there, or a pattern that nothing matches. */
LAR_MUST_USE lar_error lar_lint_files_add(lar_lint_files *f, const char *path, lar_diag *d);
void lar_lint_files_release(lar_lint_files *f);

/* lint_config.c: .larder-lint.yaml, the nearest one upwards from a file. */
typedef struct lar_lint_config lar_lint_config;
lar_lint_config *lar_lint_config_new(const lar_lint_args *a); /* heap; NULL when out of memory */
void lar_lint_config_free(lar_lint_config *c);
/* The rules for a file: the command line's, else those of its configuration. CONFIG with the place in `d`. */
LAR_MUST_USE lar_error lar_lint_config_rules(lar_lint_config *c, const char *file, lar_lint_rules *out, lar_diag *d);
/* What the nearest configuration names, or NULL; lives as long as `c`. */
LAR_MUST_USE lar_error lar_lint_config_top(lar_lint_config *c, const char *file, const char **baseline,
                                           const lar_provider **provider, lar_diag *d);

/* A file that was read: its ignore comments, what was fixed. */
typedef struct lar_lint_ignore {
    uint32_t line;  /* of what it speaks of; 0: the whole file */
    uint64_t rules; /* bit r; all bits: any rule */
} lar_lint_ignore;

typedef struct lar_lint_file {
    const char *name;
    lar_lint_rules rules;
    lar_lint_ignore *ignores; /* heap */
    uint32_t ignore_count, ignore_cap;
    uint32_t requests, records; /* records: of larder's own export, without text */
} lar_lint_file;

/* lint_ignore.c: reads a comment ("# larder-ignore LR001", "<!-- larder-ignore-file -->"); `line`: its own. Another
 * text adds nothing. */
LAR_MUST_USE lar_error lar_lint_ignore_read(lar_lint_file *f, lar_slice text, uint32_t line);
bool lar_lint_ignores(const lar_lint_file *f, const lar_lint_finding *x);

/* lint_baseline.c */
typedef struct lar_lint_baseline lar_lint_baseline;
LAR_MUST_USE lar_error lar_lint_baseline_read(const char *path, lar_lint_baseline **out, lar_diag *d);
/* Takes one of what it holds for that key and file; false if none is left. */
bool lar_lint_baseline_take(lar_lint_baseline *b, const lar_lint_finding *f, const char *file);
/* How many of its findings in that file were not taken: they are gone. */
uint32_t lar_lint_baseline_left(const lar_lint_baseline *b, const char *file);
void lar_lint_baseline_free(lar_lint_baseline *b);

/* What is reported. */
typedef struct lar_lint_report {
    const lar_lint_args *args;
    const lar_lint_file *files;
    uint32_t file_count;
    const lar_lint_finding *findings;
    uint32_t count;
    uint32_t requests, ignored, baselined, gone, records;
    uint64_t dropped;
    bool failed; /* some input could not be read */
} lar_lint_report;

LAR_MUST_USE lar_error lar_lint_baseline_write(const char *path, const lar_lint_report *r, lar_diag *d);
/* A finding's key as hexadecimal digits, with a NUL. */
enum { LAR_LINT_KEY_BYTES = 33 };
void lar_lint_key_hex(lar_hash key, char out[LAR_LINT_KEY_BYTES]);
/* lint_text.c, lint_json.c. IO when the output is gone. */
LAR_MUST_USE lar_error lar_lint_print_text(const lar_lint_report *r, FILE *out);
LAR_MUST_USE lar_error lar_lint_print_github(const lar_lint_report *r, FILE *out);
LAR_MUST_USE lar_error lar_lint_print_json(const lar_lint_report *r, FILE *out);
LAR_MUST_USE lar_error lar_lint_print_sarif(const lar_lint_report *r, FILE *out);
/* A value to show, cut and harmless: at most LAR_LINT_SHOWN_BYTES of the text. */
enum { LAR_LINT_SHOWN_BYTES = 80, LAR_LINT_SHOWN_ROOM = 512 };
void lar_lint_show(lar_slice value, char out[LAR_LINT_SHOWN_ROOM]);
/* The sentence of a finding: what varies, both values, what it costs. Heap text in `b`. */
LAR_MUST_USE lar_error lar_lint_sentence(const lar_lint_report *r, const lar_lint_finding *f, lar_buf *b);

/* lint_fix.c */

/* Writes `text` to `path` by way of a file beside it that takes its place: all of it or nothing. A link stays one.
 * `read` (borrowed; NULL: whatever it holds): what the file held when it was read. IO, and the file stays, if it holds
 * something else by now. */
LAR_MUST_USE lar_error lar_lint_replace_file(const char *path, lar_slice text, const lar_slice *read, lar_diag *d);
/* What differs, line by line, as a unified diff without context. */
LAR_MUST_USE lar_error lar_lint_diff(const char *path, lar_slice before, lar_slice after, FILE *out);

/* lint_journal.c: records of larder, which hold no text: which rules were seen, by model, and what it cost. */
typedef struct lar_lint_records lar_lint_records;
struct lar_log_request;
lar_lint_records *lar_lint_records_new(void); /* heap; NULL when out of memory */
void lar_lint_records_free(lar_lint_records *r);
/* A line of an export. */
LAR_MUST_USE lar_error lar_lint_records_add(lar_lint_records *r, const struct lar_log_request *q, uint32_t file);
/* A store's folder. NOT_FOUND if it is none. */
LAR_MUST_USE lar_error lar_lint_records_store(lar_lint_records *r, const char *folder, uint32_t file, lar_diag *d);
/* Findings, one a rule, model and file; they live as long as `r`. */
LAR_MUST_USE lar_error lar_lint_records_end(lar_lint_records *r, lar_lint_finding **findings, uint32_t *count);
uint32_t lar_lint_records_count(const lar_lint_records *r);

/* lint_input.c: all requests of a file into `lint`. */
typedef struct lar_lint_reading {
    lar_lint *lint;
    lar_lint_records *records;
    lar_lint_file *file;
    uint32_t number; /* of the file */
    bool fix;
    lar_buf *fixed;     /* where `fix`: the file's new bytes */
    uint32_t fixes;     /* requests that changed */
    char *text;         /* where `fix`, or a prompt: the file as it is; the caller frees it */
    lar_slice original; /* the same */
    bool failed;        /* something could not be read: it was named on stderr */
} lar_lint_reading;
/* Goes on behind what is bad. NO_MEMORY, IO, LIMIT end it; in any case `failed` says so. */
LAR_MUST_USE lar_error lar_lint_input_read(lar_lint_reading *r, bool standard_input, lar_diag *d);

#endif
