/* larder export: every field of the matching records, as JSON lines or CSV, to stdout.
 * Flow: main.c calls; query.c opens; fields.c writes. One thread; blocks on stdout, never inside a read transaction.
 * Invariants: 1. a reader that goes away ends it quietly. 2. Damaged records are counted on stderr.
 * Memory: one line. Not here: which fields there are (fields.c). */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "gateway/commands/fields.h"
#include "gateway/commands/query.h"

enum { LINE_BYTES_MAX = 32768 };

static const char usage[] =
    "usage: larder export --store DIR [options]\n"
    "Prints journal records with all their fields. What is not known is null (jsonl) or empty (csv).\n"
    "  --format jsonl|csv one JSON object a line (default), or CSV with a head (RFC 4180). In CSV, control\n"
    "                     characters in names are written as \\x1b or \\u202e, and a name that a spreadsheet would\n"
    "                     take for a formula (it begins with = + - @) has a ' in front.\n";

typedef struct exporting {
    bool csv, failed;
    lar_buf line;
} exporting;

static bool write_line(exporting *x, const char *end) {
    if (lar_buf_add(&x->line, end, strlen(end)) || fwrite(x->line.ptr, 1, x->line.len, stdout) != x->line.len)
        x->failed = true;
    x->line.len = 0;
    return !x->failed;
}

static bool one(void *ctx, uint64_t seq, const lar_journal_record *r) {
    exporting *x = ctx;
    lar_error e = x->csv ? lar_fields_csv(&x->line, seq, r) : lar_fields_json(&x->line, seq, r);
    if (e) x->failed = true;
    return !e && write_line(x, x->csv ? "\r\n" : "\n");
}

int lar_command_export(int argc, char **argv) {
    lar_query q = {.now_ms = lar_clock_wall_ms()};
    lar_store *s;
    exporting x = {0};
    uint64_t damaged = 0;
    int rc = lar_query_parse(&q, usage, LAR_QUERY_FORMAT, argc, argv);
    if (rc >= 0) return rc;
    rc = lar_query_open(&q, &s);
    if (rc) return rc;
    (void)signal(SIGPIPE, SIG_IGN); /* "larder export | head" is no failure */
    lar_buf_init(&x.line, LINE_BYTES_MAX);
    x.csv = !strcmp(q.format, "csv");
    lar_error e = LAR_OK;
    if (x.csv && !lar_fields_csv_head(&x.line)) (void)write_line(&x, "\r\n");
    if (!x.failed) e = lar_store_scan(s, &q.filter, 0, one, &x, &damaged);
    (void)fflush(stdout);
    if (e) (void)fprintf(stderr, "larder: %s\n", lar_error_text(e));
    if (damaged) (void)fprintf(stderr, "larder: %" PRIu64 " damaged records were left out\n", damaged);
    lar_buf_release(&x.line);
    lar_store_close(s);
    return e ? 1 : 0;
}
