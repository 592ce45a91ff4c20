/* The commands that ask the store: larder stats, tail and export. Each opens the store for reading only, beside a
 * running larder. argv begins behind the command's name. Exit codes: 0 done, 1 no store or a damaged one, 2 usage. */
#ifndef LARDER_GATEWAY_COMMANDS_QUERY_H
#define LARDER_GATEWAY_COMMANDS_QUERY_H

#include <stdbool.h>
#include <stdint.h>

#include "store/store.h"

int lar_command_stats(int argc, char **argv);
int lar_command_tail(int argc, char **argv);
int lar_command_export(int argc, char **argv);

/* -- shared by the three ------------------------------------------------------------------------------ */

enum { LAR_QUERY_JSON = 1, LAR_QUERY_FOLLOW = 2, LAR_QUERY_FORMAT = 4, LAR_QUERY_REPORT = 8, LAR_QUERY_ADMIN = 16 };

typedef struct lar_query {
    int64_t now_ms;            /* given: what "1h" counts back from */
    const char *store;         /* folder; borrowed from argv or the environment */
    lar_journal_filter filter; /* its slices borrow argv */
    const char *tenant_name;   /* as given, if the tenant was chosen by name; else NULL */
    bool json, follow;
    uint64_t lines;     /* tail: 10 */
    const char *admin;  /* ADMIN: of a running larder that is asked, too; NULL: none */
    const char *format; /* FORMAT: "jsonl"; REPORT (text or json) sets `json` */
} lar_query;

/* Options that all three know, and of the others those in `takes`; q->now_ms is set before. Returns -1 to go on, or the
 * exit code: a message has been printed. */
int lar_query_parse(lar_query *q, const char *usage, unsigned takes, int argc, char **argv);
/* 0 and the store, or exit code 1 after a message. */
int lar_query_open(const lar_query *q, lar_store **out);

/* "90s", "30m", "1h", "2d", "1w", "1h30m" back from now; "now"; "2026-11-29", "2026-11-29T10:00", with seconds, a
 * fraction, "Z" or "+08:00" (without: UTC). False if it is none of these. */
bool lar_query_time(const char *text, int64_t now_ms, int64_t *out);

#endif
