/* larder run: options, and which way to run.
 * Called by main.c; run_cases.c does the work. Messages go to stderr and say what to do. One thread; blocks.
 * Memory: borrows argv. Not here: what a model is (engine/engine.h). */
#include "gateway/local/run_command.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gateway/config/nearest.h"
#include "gateway/local/compute_options.h"
#include "gateway/local/run_cases.h"

enum { OK, FAILED, USAGE };

static const char usage[] =
    "usage: larder run --model PATH --ids CASES.json --logits OUT.safetensors\n"
    "Runs a model of the DeepSeek family on this machine. PATH is a Hugging Face folder or FILE.gguf.\n"
    "  --model PATH    config.json with safetensors, or GGUF\n"
    "  --ids FILE      {\"cases\": [{\"name\": \"a\", \"ids\": [1, 2], \"positions\": [1]}]}; - is standard input.\n"
    "                  positions: tokens whose logits are wanted (absent: the last); continuation: a list, as many ids\n"
    "                  as it holds are added greedily\n"
    "  --logits FILE   written as safetensors: NAME.logits, and NAME.continuation and NAME.margin of greedy cases\n" LAR_COMPUTE_OPTIONS_HELP
    "Activations are f32 unless something else is asked for.\n";

typedef struct options {
    const char *model, *ids, *logits;
    lar_compute_options compute;
} options;

static int bad(const char *format, const char *what) {
    (void)fprintf(stderr, "larder run: ");
    (void)fprintf(stderr, format, what);
    (void)fprintf(stderr, "; larder run --help lists the options\n");
    return USAGE;
}

static int unknown(const char *name) {
    static const char *const all[] = {"--model", "--ids", "--logits", "--threads", "--cpu", "--activations", "--help"};
    lar_nearest n;
    lar_nearest_init(&n, lar_slice_cstr(name));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) lar_nearest_offer(&n, lar_slice_cstr(all[i]));
    if (!n.best.ptr) return bad("there is no option '%.100s'", name);
    (void)fprintf(stderr, "larder run: there is no option '%.100s'; did you mean %.*s?\n", name, LAR_FMT(n.best));
    return USAGE;
}

/* -1: go on. */
static int take(int argc, char **argv, options *o) {
    for (int i = 1; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        size_t n = equals ? (size_t)(equals - argv[i]) : strlen(argv[i]);
        lar_slice name = {argv[i], n};
        const char **to = lar_compute_options_find(&o->compute, name);
        if (lar_slice_eq_cstr(name, "--help") || lar_slice_eq_cstr(name, "-h")) {
            (void)fputs(usage, stdout);
            return OK;
        }
        if (lar_slice_eq_cstr(name, "--model")) to = &o->model;
        if (lar_slice_eq_cstr(name, "--ids")) to = &o->ids;
        if (lar_slice_eq_cstr(name, "--logits")) to = &o->logits;
        if (!to) return unknown(argv[i]);
        if (!equals && i + 1 == argc) return bad("%s needs a value", argv[i]);
        *to = equals ? equals + 1 : argv[++i];
    }
    if (!o->model) return bad("%s is missing", "--model");
    if (!o->ids) return bad("%s is missing", "--ids");
    return o->logits ? -1 : bad("%s is missing", "--logits");
}

static int failed(const char *path, lar_error e, const lar_diag *d) {
    (void)fprintf(stderr, "larder run: %s: %s", path, *d->text ? d->text : lar_error_text(e));
    if (d->has_offset) (void)fprintf(stderr, " (at byte %llu)", (unsigned long long)d->offset);
    (void)fprintf(stderr, "\n");
    return FAILED;
}

static void show_progress(void *context, uint32_t done, uint32_t total) {
    enum { WIDTH = 40 };
    (void)context;
    uint32_t filled = WIDTH * done / total;
    (void)fprintf(stderr, "\rloading [%.*s%*s] %u of %u layers", (int)filled,
                  "########################################", (int)(WIDTH - filled), "", done, total);
    if (done == total) (void)fprintf(stderr, "\r%*s\r", WIDTH + 36, "");
}

int lar_command_run(int argc, char **argv) {
    options o = {0};
    lar_run_cases cases;
    lar_engine *engine = NULL;
    lar_diag d = {0};
    int code = take(argc, argv, &o);
    if (code >= 0) return code;
    lar_engine_options how = {.path = o.model, .progress = isatty(STDERR_FILENO) ? show_progress : NULL};
    if (lar_compute_options_read(&o.compute, LAR_ACTIVATIONS_F32, &how, &d)) return bad("%s", d.text);
    const char *ids = strcmp(o.ids, "-") == 0 ? "/dev/stdin" : o.ids;
    lar_error e = lar_run_cases_read(&cases, ids, &d);
    code = e ? failed(ids, e, &d) : OK;
    if (!e) {
        e = lar_engine_open(&how, &engine, &d);
        if (e) code = failed(o.model, e, &d);
    }
    if (!e) {
        e = lar_run_cases_run(&cases, engine, o.logits, &d);
        if (e) code = failed(o.ids, e, &d);
    }
    lar_engine_close(engine);
    lar_run_cases_release(&cases);
    return code;
}
