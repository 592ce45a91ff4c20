/* larder baseline record and compare: writes what the journal says about a stretch of traffic, and holds two such
 * files, or a file and the journal, against each other.
 * Flow: main.c calls; query.c opens; baseline.c counts and reads; baseline_compare.c judges. One thread; blocks on
 * files and stdout. Invariants: 1. a file is replaced whole or not at all. 2. exit code 1 means worse, beyond the
 * spread, or a store that cannot be read, and nothing else. Memory: two baselines. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/file.h"
#include "gateway/commands/baseline.h"
#include "gateway/commands/present.h"
#include "gateway/commands/query.h"
#include "gateway/config/config.h"
#include "policies/canon.h"

enum { ARGS_MAX = 32, FILE_BYTES_MAX = 4 << 20, PATH_BYTES = 4096 };

static const char usage[] =
    "usage: larder baseline record NAME --store DIR [-o FILE] [-c FILE] [options]\n"
    "       larder baseline compare A.json B.json\n"
    "       larder baseline compare A.json --store DIR [options]\n"
    "record: the hit rate of the journal with its spread, in all and by turn; models, editions, settings, and a sample\n"
    "of prefix fingerprints, as JSON. compare: whether B (or the journal now) is better, worse or the same beyond that\n"
    "spread, and whether the two can be compared at all. Exit status: 0 same or better, 1 worse, 2 not comparable, too\n"
    "few requests, or wrong use.\n"
    "  -o, --output FILE  where to write; without it to stdout\n"
    "  -c, --config FILE  the configuration in force, whose canonicalisation settings are noted\n";

typedef struct asked {
    const char *verb, *names[2]; /* NAME, or the files */
    uint32_t name_count;
    const char *output, *config;
    char *rest[ARGS_MAX]; /* for query.c */
    int rest_count;
    bool help;
} asked;

static const char *value_of(int argc, char **argv, int *i, const char *shorter, const char *longer) {
    if (strcmp(argv[*i], shorter) != 0 && strcmp(argv[*i], longer) != 0) return NULL;
    return *i + 1 < argc ? argv[++*i] : "";
}

/* -1 to go on, or the exit code. Options of other commands go on to query.c with their values. */
static int parse(asked *a, int argc, char **argv) {
    if (argc) a->verb = argv[0];
    for (int i = 1; i < argc; i++) {
        const char *v;
        if ((v = value_of(argc, argv, &i, "-o", "--output"))) a->output = v;
        else if ((v = value_of(argc, argv, &i, "-c", "--config"))) a->config = v;
        else if (argv[i][0] != '-' && a->name_count < 2) a->names[a->name_count++] = argv[i];
        else {
            bool help = !strcmp(argv[i], "--help") || !strcmp(argv[i], "-h");
            bool pair = argv[i][0] == '-' && !strchr(argv[i], '=') && !help && i + 1 < argc;
            if (a->rest_count + 2 > ARGS_MAX) return (void)fprintf(stderr, "larder: too many options\n"), 2;
            a->help = a->help || help;
            a->rest[a->rest_count++] = argv[i];
            if (pair) a->rest[a->rest_count++] = argv[++i];
        }
        if (v && !*v) return (void)fprintf(stderr, "larder: %s needs a value\n", argv[i]), 2;
    }
    bool help = a->verb && (!strcmp(a->verb, "--help") || !strcmp(a->verb, "-h"));
    if (help || a->help) return (void)printf("%s", usage), 0;
    bool record = a->verb && !strcmp(a->verb, "record"), compare = a->verb && !strcmp(a->verb, "compare");
    if ((record && a->name_count == 1) || (compare && a->name_count)) return -1;
    (void)fprintf(stderr, "larder: %s\n%s",
                  record    ? "record wants one name"
                  : compare ? "compare wants a file"
                            : "baseline record or baseline compare?",
                  usage);
    return 2;
}

/* -- from the journal ---------------------------------------------------------------------------------------- */

static bool add(void *ctx, uint64_t seq, const lar_journal_record *r) {
    (void)seq;
    lar_baseline_add(ctx, r);
    return true;
}

/* Tells installations apart, not their key. */
static void name_key(lar_store *s, lar_baseline *b) {
    lar_buf key;
    lar_buf_init(&key, 64);
    if (lar_store_note_read(s, "fingerprint.key", &key) == LAR_OK && key.len) {
        lar_digest d = lar_digest_of(lar_buf_slice(&key));
        (void)snprintf(b->key, sizeof b->key, "%016" PRIx64, lar_digest_short(&d));
    }
    lar_buf_release(&key);
}

static int from_store(const asked *a, lar_baseline *out) {
    lar_query q = {.now_ms = lar_clock_wall_ms()};
    lar_store *s;
    uint64_t damaged = 0;
    int rc = lar_query_parse(&q, usage, 0, a->rest_count, (char **)a->rest);
    if (rc >= 0) return rc ? rc : 2;
    rc = lar_query_open(&q, &s);
    if (rc) return rc;
    lar_baseline_maker *m = lar_baseline_maker_new();
    lar_error e = m ? lar_store_scan(s, &q.filter, 0, add, m, &damaged) : LAR_NO_MEMORY;
    if (!e) lar_baseline_finish(m, out);
    if (!e) name_key(s, out);
    out->made_ms = q.now_ms;
    lar_baseline_maker_free(m);
    lar_store_close(s);
    if (damaged) (void)fprintf(stderr, "larder: %" PRIu64 " damaged records were left out\n", damaged);
    if (e) (void)fprintf(stderr, "larder: %s\n", lar_error_text(e));
    return e ? 1 : 0;
}

static int note_settings(const char *file, lar_baseline *b) {
    static const char *const modes[] = {[LAR_CANON_OFF] = "off", [LAR_CANON_REPORT] = "report", [LAR_CANON_ON] = "on"};
    lar_config *c;
    lar_diag d = {0};
    lar_error e = lar_config_load(file, NULL, 0, &c, &d);
    if (e) return (void)fprintf(stderr, "larder: %s\n", d.text[0] ? d.text : lar_error_text(e)), 2;
    (void)snprintf(b->canon, sizeof b->canon, "%s", modes[c->canon]);
    (void)snprintf(b->pinned, sizeof b->pinned, "%s", c->edition);
    size_t at = 0;
    for (int r = 0; r < LAR_RULE_COUNT; r++) {
        if (lar_rule_mode_of((lar_rule)r) == LAR_RULE_MODE_LINT || !(c->rules_off_bits >> r & 1)) continue;
        int n = snprintf(b->rules_off + at, sizeof b->rules_off - at, "%s%s", at ? " " : "", lar_rule_id((lar_rule)r));
        if (n > 0 && at + (size_t)n < sizeof b->rules_off) at += (size_t)n;
    }
    lar_config_free(c);
    return 0;
}

/* -- files --------------------------------------------------------------------------------------------------- */

static int write_file(const char *file, lar_slice text) {
    char fresh[PATH_BYTES];
    if (!file) return fwrite(text.ptr, 1, text.len, stdout) == text.len && fflush(stdout) == 0 ? 0 : 1;
    struct stat st;
    if (stat(file, &st) == 0 && !S_ISREG(st.st_mode))
        return (void)fprintf(stderr, "larder: %.200s is no regular file; without -o it goes to stdout\n", file), 2;
    int n = snprintf(fresh, sizeof fresh, "%s.new", file);
    FILE *f = n > 0 && n < PATH_BYTES ? fopen(fresh, "wb") : NULL;
    bool ok = f && fwrite(text.ptr, 1, text.len, f) == text.len;
    if (f) ok = fclose(f) == 0 && ok;
    if (ok && rename(fresh, file) == 0) return 0;
    (void)fprintf(stderr, "larder: cannot write %.200s: %s\n", file, strerror(errno));
    if (f) (void)remove(fresh);
    return 2;
}

static int read_file(const char *file, lar_baseline *out) {
    lar_diag d = {0};
    lar_buf text;
    lar_buf_init(&text, FILE_BYTES_MAX);
    lar_error e = lar_file_read(file, LAR_FILE_OR_STREAM, &text, &d);
    if (!e) e = lar_baseline_read(lar_buf_slice(&text), out, &d);
    lar_buf_release(&text);
    if (e) (void)fprintf(stderr, "larder: %.200s: %s\n", file, d.text[0] ? d.text : lar_error_text(e));
    return e ? 2 : 0;
}

/* -- the answer ---------------------------------------------------------------------------------------------- */

static void print_rate(lar_table *t, const lar_rate_sum *s) {
    lar_table_cell(t, "%" PRIu64, s->known);
    if (s->rate < 0) lar_table_cell(t, "-");
    else if (s->error < 0) lar_table_cell(t, "%.1f%%", 100 * s->rate);
    else lar_table_cell(t, "%.1f%% +- %.1f", 100 * s->rate, 100 * s->error);
}

static void print_rates(const lar_baseline *a, const lar_baseline *b) {
    lar_table *t = lar_table_new(5);
    static const char *const heads[] = {"turn", "A known", "A hit rate", "B known", "B hit rate"};
    for (int i = 0; i < 5; i++) lar_table_cell(t, "%s", heads[i]);
    for (int i = -1; i < LAR_BASELINE_TURNS; i++) {
        const lar_rate_sum *x = i < 0 ? &a->all : &a->turns[i], *y = i < 0 ? &b->all : &b->turns[i];
        if (i >= 0 && !x->requests && !y->requests) continue;
        lar_table_cell(t, "%s", i < 0 ? "all" : lar_baseline_turn_names[i]);
        print_rate(t, x);
        print_rate(t, y);
    }
    lar_table_print(t, stdout);
    lar_table_free(t);
}

static void print_header(const char *label, const lar_baseline *b) {
    char name[LAR_SHOWN_BYTES], from[LAR_TIME_BYTES], to[LAR_TIME_BYTES];
    lar_present_name(lar_slice_cstr(b->name), name);
    lar_present_time(b->from_ms, from);
    lar_present_time(b->to_ms, to);
    (void)printf("%s  %s: %" PRIu64 " requests", label, name, b->all.requests);
    if (b->all.requests) (void)printf(", %s to %s", from, to);
    if (b->editions[0].name[0]) (void)printf(", edition %s%s", b->editions[0].name, b->edition_count > 1 ? "..." : "");
    if (b->canon[0]) (void)printf(", canon %s", b->canon);
    (void)putchar('\n');
}

static void print_why(const lar_comparison *c) {
    if (!c->models_common) (void)printf("no model is in both: their rates say nothing about each other\n");
    else if (c->models_only_a || c->models_only_b)
        (void)printf("models: %" PRIu32 " in both, %" PRIu32 " only in A, %" PRIu32
                     " only in B; --model compares one\n",
                     c->models_common, c->models_only_a, c->models_only_b);
    if (c->prefixes_common < 0)
        (void)printf("prefixes cannot be compared: another store made one of the two, or it has none\n");
    else
        (void)printf("prefixes: %.0f%% of B's requests begin with one that A had%s\n", 100 * c->prefixes_common,
                     c->prefixes_common < 0.5 ? "; the traffic is another, and so may the rate be" : "");
    if (!c->same_edition) (void)printf("editions differ (larder fingerprint says what that touches)\n");
    if (!c->same_settings) (void)printf("settings of canonicalisation differ\n");
}

static int answer(const lar_baseline *a, const lar_baseline *b) {
    lar_comparison c = lar_baseline_compare(a, b);
    print_header("A", a);
    print_header("B", b);
    print_rates(a, b);
    print_why(&c);
    (void)printf("%s", lar_change_name(c.change));
    if (c.error >= 0)
        (void)printf(": hit rate %+.2f points, standard error %.2f%s", 100 * c.difference, 100 * c.error,
                     c.by_turn ? ", turn by turn" : "");
    if (c.change == LAR_CHANGE_NONE) (void)printf("; that is within the spread");
    if (c.change == LAR_CHANGE_TOO_FEW)
        (void)printf(": a spread wants %d requests with known hits at least in both", LAR_BATCHES_MIN);
    (void)putchar('\n');
    if (c.change == LAR_CHANGE_NOT_COMPARABLE || c.change == LAR_CHANGE_TOO_FEW) return 2;
    return c.change == LAR_CHANGE_WORSE ? 1 : 0;
}

static int record(const asked *a, lar_baseline *b) {
    lar_buf text;
    int rc = from_store(a, b);
    if (rc) return rc;
    (void)snprintf(b->name, sizeof b->name, "%s", a->names[0]);
    if (a->config) rc = note_settings(a->config, b);
    if (rc) return rc;
    lar_buf_init(&text, FILE_BYTES_MAX);
    lar_error e = lar_baseline_write(b, &text);
    if (e) (void)fprintf(stderr, "larder: %s\n", lar_error_text(e));
    rc = e ? 1 : write_file(a->output, lar_buf_slice(&text));
    lar_buf_release(&text);
    return rc;
}

static int compare(const asked *a, lar_baseline *pair) {
    int rc = read_file(a->names[0], &pair[0]);
    if (rc) return rc;
    if (a->name_count == 2 && !a->rest_count) {
        rc = read_file(a->names[1], &pair[1]);
    } else if (a->name_count == 1) {
        rc = from_store(a, &pair[1]);
        (void)snprintf(pair[1].name, sizeof pair[1].name, "the journal");
        if (!rc && a->config) rc = note_settings(a->config, &pair[1]);
        if (!rc && !a->config) { /* not asked for: no difference to report */
            memcpy(pair[1].canon, pair[0].canon, sizeof pair[1].canon);
            memcpy(pair[1].rules_off, pair[0].rules_off, sizeof pair[1].rules_off);
        }
    } else {
        (void)fprintf(stderr, "larder: compare wants two files, or one and --store\n");
        rc = 2;
    }
    return rc ? rc : answer(&pair[0], &pair[1]);
}

int lar_command_baseline(int argc, char **argv) {
    asked a = {0};
    int rc = parse(&a, argc, argv);
    if (rc >= 0) return rc;
    lar_baseline *pair = calloc(2, sizeof *pair);
    if (!pair) return 1;
    rc = strcmp(a.verb, "record") == 0 ? record(&a, pair) : compare(&a, pair);
    free(pair);
    return rc;
}
