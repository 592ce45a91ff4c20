/* larder lint: reads requests, says what keeps a prefix cache from hitting, and mends what is safe.
 * Flow: main.c -> arguments -> files -> lint_input.c -> the engine (policies/lint.h) -> what the configuration,
 * comments and the baseline leave -> one of the outputs. One thread; blocks on files.
 * Invariants: 1. exit 2 whatever was found, if something could not be read. 2. standard output holds the report, or
 * with --fix=print the new bytes, and nothing else. Memory: the engine's, bounded; one file's to mend it. */
#include "gateway/commands/lint_main.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/commands/lint_command.h"

#define FIXED_BYTES_MAX ((size_t)512 << 20)

typedef struct linting {
    lar_lint_args args;
    lar_lint_files names;
    lar_lint_file *files;
    lar_lint_config *config;
    lar_lint *lint;
    lar_lint_records *records;
    lar_lint_baseline *baseline;
    lar_lint_finding *kept; /* what is reported */
    lar_lint_report report;
} linting;

static int fail(const lar_diag *d, lar_error e) {
    (void)fprintf(stderr, "larder lint: %s\n", *d->text ? d->text : lar_error_text(e));
    return LAR_LINT_USAGE;
}

/* -- what is reported ---------------------------------------------------------------------------------- */

static bool is_wanted(const lar_lint_rules *r, const lar_lint_finding *f) {
    if (r->has_selected && !(r->selected >> f->rule & 1)) return false;
    return !(r->ignored >> f->rule & 1) && f->severity >= r->least;
}

static void choose(linting *x, const lar_lint_finding *f, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const lar_lint_file *file = &x->files[f[i].place.file];
        if (!is_wanted(&file->rules, &f[i])) continue;
        if (lar_lint_ignores(file, &f[i])) x->report.ignored++;
        else if (lar_lint_baseline_take(x->baseline, &f[i], file->name)) x->report.baselined++;
        else x->kept[x->report.count++] = f[i];
    }
}

static int collect(linting *x) {
    lar_lint_finding *found, *recorded;
    uint32_t n, m;
    lar_diag d = {0};
    lar_error e = lar_lint_end(x->lint, &found, &n);
    if (!e) e = lar_lint_records_end(x->records, &recorded, &m);
    if (!e) x->kept = calloc((size_t)n + m + 1, sizeof *x->kept);
    if (!e && !x->kept) e = LAR_NO_MEMORY;
    if (e) return fail(&d, e);
    choose(x, found, n);
    choose(x, recorded, m);
    lar_lint_report *r = &x->report;
    r->args = &x->args;
    r->files = x->files;
    r->file_count = x->names.count;
    r->findings = x->kept;
    r->records = lar_lint_records_count(x->records);
    r->dropped = lar_lint_dropped(x->lint);
    for (uint32_t i = 0; i < x->names.count; i++) {
        r->requests += x->files[i].requests;
        r->gone += lar_lint_baseline_left(x->baseline, x->files[i].name);
    }
    return -1;
}

static int report(linting *x) {
    static lar_error (*const print[])(const lar_lint_report *r, FILE *out) = {
        [LAR_LINT_AS_TEXT] = lar_lint_print_text,
        [LAR_LINT_AS_JSON] = lar_lint_print_json,
        [LAR_LINT_AS_SARIF] = lar_lint_print_sarif,
        [LAR_LINT_AS_GITHUB] = lar_lint_print_github,
    };
    lar_diag d = {0};
    if (x->args.write_baseline) {
        lar_error e = lar_lint_baseline_write(x->args.write_baseline, &x->report, &d);
        if (e) return fail(&d, e);
        (void)fprintf(stderr, "larder lint: %u findings written to %s\n", (unsigned)x->report.count,
                      x->args.write_baseline);
        return x->report.failed ? LAR_LINT_USAGE : LAR_LINT_OK;
    }
    bool bytes = x->args.fix == LAR_LINT_FIX_PRINT || x->args.fix == LAR_LINT_FIX_DIFF;
    FILE *out = bytes ? stderr : stdout;
    lar_error e = print[x->args.format](&x->report, out);
    if (!e && fflush(out)) e = LAR_IO;
    if (e) return fail(&d, e);
    return x->report.failed ? LAR_LINT_USAGE : x->report.count ? LAR_LINT_FOUND : LAR_LINT_OK;
}

/* -- files --------------------------------------------------------------------------------------------- */

static lar_error put_fixed(const linting *x, const char *name, const lar_lint_reading *r, lar_diag *d) {
    lar_slice fixed = lar_buf_slice(r->fixed);
    if (x->args.fix == LAR_LINT_FIX_PRINT)
        return (!fixed.len || fwrite(fixed.ptr, 1, fixed.len, stdout) == fixed.len) && !fflush(stdout) ? LAR_OK
                                                                                                       : LAR_IO;
    if (!r->fixes) return LAR_OK;
    if (x->args.fix == LAR_LINT_FIX_DIFF) return lar_lint_diff(name, r->original, fixed, stdout);
    lar_error e = lar_lint_replace_file(name, fixed, &r->original, d);
    if (!e) (void)fprintf(stderr, "larder lint: %s: %u requests mended\n", name, (unsigned)r->fixes);
    return e;
}

/* A folder that is a store of larder's. */
static bool take_store(linting *x, uint32_t i) {
    lar_diag d = {0};
    lar_error e = lar_lint_records_store(x->records, x->names.names[i], i, &d);
    if (e == LAR_NOT_FOUND) return false;
    if (e) {
        (void)fail(&d, e);
        x->report.failed = true;
    }
    return true;
}

static int read_one(linting *x, uint32_t i) {
    lar_lint_file *f = &x->files[i];
    lar_diag d = {0};
    bool standard = strcmp(x->names.names[i], "-") == 0;
    f->name = standard ? x->args.stdin_name : x->names.names[i];
    lar_error e = lar_lint_config_rules(x->config, f->name, &f->rules, &d);
    if (e) return fail(&d, e);
    if (!standard && take_store(x, i)) return -1;
    lar_buf fixed;
    lar_buf_init(&fixed, FIXED_BYTES_MAX);
    lar_lint_reading r = {.lint = x->lint,
                          .records = x->records,
                          .file = f,
                          .number = i,
                          .fix = x->args.fix != LAR_LINT_NO_FIX,
                          .fixed = &fixed};
    e = lar_lint_input_read(&r, standard, &d);
    x->report.failed = x->report.failed || r.failed;
    bool ends = e == LAR_NO_MEMORY;
    if (!e && r.fix) {
        bool print = standard && x->args.fix == LAR_LINT_FIX_FILE; /* there is no file to write into */
        if (print) x->args.fix = LAR_LINT_FIX_PRINT;
        e = put_fixed(x, f->name, &r, &d);
        if (e) {
            (void)fail(&d, e);
            x->report.failed = true;
        }
    }
    free(r.text);
    lar_buf_release(&fixed);
    return ends ? LAR_LINT_USAGE : -1;
}

static int list_files(linting *x) {
    for (uint32_t i = 0; i < x->args.path_count; i++) {
        lar_diag d = {0};
        lar_error e = lar_lint_files_add(&x->names, x->args.paths[i], &d);
        if (e) return fail(&d, e);
    }
    x->files = calloc((size_t)x->names.count + 1, sizeof *x->files);
    return x->files ? -1 : LAR_LINT_USAGE;
}

/* What the first file's configuration says holds for the run: provider and baseline. */
static int prepare(linting *x) {
    lar_diag d = {0};
    const char *baseline = NULL;
    const lar_provider *provider = NULL;
    const char *first = x->names.count ? x->names.names[0] : ".";
    if (strcmp(first, "-") == 0) first = x->args.stdin_name;
    x->config = lar_lint_config_new(&x->args);
    lar_error e = x->config ? lar_lint_config_top(x->config, first, &baseline, &provider, &d) : LAR_NO_MEMORY;
    if (e) return fail(&d, e);
    if (x->args.baseline) baseline = x->args.baseline;
    if (x->args.provider) provider = x->args.provider;
    if (baseline && !x->args.write_baseline) e = lar_lint_baseline_read(baseline, &x->baseline, &d);
    if (e) return fail(&d, e);
    uint64_t off = lar_rules_off_default();
    if (x->args.rules.has_selected) off |= ~x->args.rules.selected;
    off |= x->args.rules.ignored;
    const lar_lint_options o = {.provider = provider, .rules_off = x->args.fix ? off : lar_rules_off_default()};
    x->lint = lar_lint_new(&o);
    x->records = lar_lint_records_new();
    return x->lint && x->records ? -1 : fail(&d, LAR_NO_MEMORY);
}

static int run(linting *x, int argc, char **argv) {
    int rc = lar_lint_args_parse(&x->args, argc, argv);
    if (rc < 0) rc = list_files(x);
    if (rc < 0) rc = prepare(x);
    for (uint32_t i = 0; i < x->names.count && rc < 0; i++) rc = read_one(x, i);
    if (rc < 0) rc = collect(x);
    return rc < 0 ? report(x) : rc;
}

int lar_command_lint(int argc, char **argv) {
    linting *x = calloc(1, sizeof *x);
    if (!x) return LAR_LINT_USAGE;
    (void)signal(SIGPIPE, SIG_IGN);
    int rc = run(x, argc, argv);
    for (uint32_t i = 0; x->files && i < x->names.count; i++) free(x->files[i].ignores);
    lar_lint_free(x->lint);
    lar_lint_records_free(x->records);
    lar_lint_baseline_free(x->baseline);
    lar_lint_config_free(x->config);
    lar_lint_files_release(&x->names);
    free(x->files);
    free(x->kept);
    free(x);
    return rc;
}
