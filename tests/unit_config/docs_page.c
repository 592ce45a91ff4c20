/* Prints, writes or compares a page that is generated from a table: the options, the errors, the metrics, the journal's
 * fields, the engine's API.
 * Run by the tests fresh_<page> and by the target `docs`; blocks on files; one thread. */
#include <ctype.h>
#include <stdio.h>

#include "base/metrics.h"
#include "gateway/commands/fields.h"
#include "gateway/config/config.h"
#include "gateway/serving/ask_docs.h"

enum { PAGE_BYTES_MAX = 1 << 20 };

static lar_error errors_page(lar_buf *out) {
    static const char *const retries[] = {
        [LAR_RETRY_NEVER] = "no", [LAR_RETRY_UNSENT] = "if nothing was sent", [LAR_RETRY_LATER] = "later"};
    static const char *const blames[] = {[LAR_BLAME_CLIENT] = "client",
                                         [LAR_BLAME_UPSTREAM] = "upstream",
                                         [LAR_BLAME_LARDER] = "larder",
                                         [LAR_BLAME_NOBODY] = ""};
    lar_error e =
        lar_buf_printf(out, "# Errors\n\n<!-- Generated from base/error.def by the target `docs`; edit that. -->\n\n"
                            "Errors that larder makes itself carry these names; the status is what a client gets where "
                            "the error reaches one.\n"
                            "*Retry*: whether sending the request again can help. *Blame*: whose doing it is.\n\n"
                            "| name | status | retry | blame | meaning |\n|---|---|---|---|---|\n");
    for (int i = LAR_OK + 1; !e && i < LAR_ERROR_COUNT; i++) {
        lar_error x = (lar_error)i;
        e = lar_buf_printf(out, "| `%s` | %d | %s | %s | %s |\n", lar_error_name(x), lar_error_status(x),
                           retries[lar_error_retry(x)], blames[lar_error_blame(x)], lar_error_text(x));
    }
    return e;
}

static lar_error metrics_page(lar_buf *out) {
    static const struct {
        const char *name, *kind, *label, *help;
    } rows[] = {
#define LAR_METRIC(name, kind, text) {#name, #kind, NULL, text},
#define LAR_METRIC_BY(name, label, text) {#name, "COUNTER", #label, text},
#include "base/metrics.def"
#undef LAR_METRIC
#define LAR_UPSTREAM_METRIC(id, name, kind, labels, help) {"upstream_" name, kind, labels, help},
#include "gateway/request/upstream_metrics.def"
#undef LAR_UPSTREAM_METRIC
#define LAR_EXPERT_METRIC(field, name, kind, labels, help) {name, kind, labels, help},
#include "gateway/resident/expert_metrics.def"
#undef LAR_EXPERT_METRIC
    };
    lar_error e = lar_buf_printf(
        out,
        "# Metrics\n\n<!-- Generated from base/metrics.def, gateway/request/upstream_metrics.def and gateway/resident/expert_metrics.def by the target `docs`; edit those. -->\n\n"
        "Served at `/metrics` of the admin listener (`admin.listen`) in the Prometheus text "
        "format. Histograms are in seconds. Lines by upstream are of the upstreams of the configuration in "
        "force, replicas on lines of their own.\n\n"
        "| name | kind | meaning |\n|---|---|---|\n");
    for (unsigned i = 0; !e && i < sizeof rows / sizeof *rows; i++) {
        char name[64], kind[16];
        unsigned n = 0, k = 0;
        for (; rows[i].name[n] && n + 1 < sizeof name; n++) name[n] = (char)tolower((unsigned char)rows[i].name[n]);
        for (; rows[i].kind[k] && k + 1 < sizeof kind; k++) kind[k] = (char)tolower((unsigned char)rows[i].kind[k]);
        name[n] = kind[k] = 0;
        const char *l = rows[i].label;
        e = lar_buf_printf(out, "| `larder_%s%s%s%s` | %s | %s |\n", name, l ? "{" : "", l ? l : "", l ? "}" : "", kind,
                           rows[i].help);
    }
    return e;
}

static int compare(const lar_buf *page, const char *file) {
    lar_buf now;
    lar_buf_init(&now, PAGE_BYTES_MAX);
    FILE *f = fopen(file, "rb");
    if (f && !lar_buf_reserve(&now, PAGE_BYTES_MAX)) now.len = fread(now.ptr, 1, now.cap, f);
    if (f) (void)fclose(f);
    bool same = lar_slice_eq(lar_buf_slice(page), lar_buf_slice(&now));
    lar_buf_release(&now);
    if (!same)
        (void)fprintf(stderr, "%s is not what its table says; build the target `docs` and commit the result\n", file);
    return same ? 0 : 1;
}

static int put(const lar_buf *page, const char *file) {
    FILE *f = file ? fopen(file, "wb") : stdout;
    if (!f) return perror(file), 1;
    bool ok = fwrite(page->ptr, 1, page->len, f) == page->len;
    ok = fflush(f) == 0 && ok;
    if (file) ok = fclose(f) == 0 && ok;
    return ok ? 0 : 1;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        lar_error (*page)(lar_buf *out);
    } pages[] = {{"config", lar_config_markdown}, {"sample", lar_config_sample},    {"errors", errors_page},
                 {"metrics", metrics_page},       {"journal", lar_fields_markdown}, {"engine", lar_ask_markdown}};
    lar_buf text;
    lar_buf_init(&text, PAGE_BYTES_MAX);
    int code = 2;
    for (unsigned i = 0; argc > 1 && i < sizeof pages / sizeof *pages; i++) {
        if (strcmp(argv[1], pages[i].name) != 0) continue;
        if (pages[i].page(&text)) code = 1;
        else if (argc == 4 && strcmp(argv[2], "--compare") == 0) code = compare(&text, argv[3]);
        else code = put(&text, argc == 4 ? argv[3] : NULL);
    }
    if (code == 2)
        (void)fprintf(stderr,
                      "usage: docs_page config|sample|errors|metrics|journal|engine [--write FILE | --compare FILE]\n");
    lar_buf_release(&text);
    return code;
}
