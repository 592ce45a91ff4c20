/* larder inspect: opens a model's files, has them read and printed.
 * Flow: main.c calls; engine/files opens, inspect_read.c collects, inspect_print.c or inspect_json.c prints. One
 * thread; blocks on the disk and on stdout. Why: before a model of many gigabytes is loaded, or downloaded again,
 * somebody wants to know what it is, and what of it is missing. Memory: one inspection.
 * Not here: loading weights. */
#include "gateway/local/inspect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/commands/present.h"

static const char usage[] =
    "usage: larder inspect [--tensors] [--json] FOLDER|FILE.gguf\n"
    "What a model is: architecture, dimensions, tensors by kind and type, tokenizer, template, and what of it is\n"
    "missing or not supported. Reads a Hugging Face folder or a GGUF file (of a split one, any part); no weights are\n"
    "loaded. Exit code 0: larder can run it, 1: it cannot, or the files cannot be read.\n"
    "  --tensors    also list every tensor\n"
    "  --json       for programs\n"
    "  --help       this text\n";

typedef struct asked {
    const char *path;
    lar_inspect_detail detail;
    bool json;
} asked;

/* -1 to go on, or the exit code. */
static int parse(asked *a, int argc, char **argv) {
    for (int i = 0; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return (void)printf("%s", usage), 0;
        if (!strcmp(argv[i], "--tensors")) a->detail = LAR_INSPECT_TENSORS;
        else if (!strcmp(argv[i], "--json")) a->json = true;
        else if (argv[i][0] == '-')
            return (void)fprintf(stderr, "larder: unknown option %.100s\n%s", argv[i], usage), 2;
        else if (a->path) return (void)fprintf(stderr, "larder: one model at a time\n%s", usage), 2;
        else a->path = argv[i];
    }
    return a->path ? -1 : ((void)fprintf(stderr, "%s", usage), 2);
}

static int report(const asked *a, const lar_model_files *f) {
    lar_inspection *i = malloc(sizeof *i);
    lar_error e = i ? lar_inspect_read(f, i) : LAR_NO_MEMORY;
    if (!e && a->json) e = lar_inspect_print_json(i, a->detail);
    else if (!e) lar_inspect_print(i, a->detail);
    if (e == LAR_NO_MEMORY) (void)fprintf(stderr, "larder: %s\n", lar_error_text(e));
    int code = !e && lar_inspect_runs(i) ? 0 : 1;
    free(i);
    return code;
}

int lar_command_inspect(int argc, char **argv) {
    asked a = {0};
    int code = parse(&a, argc, argv);
    if (code >= 0) return code;
    lar_model_files *f;
    lar_diag d = {0};
    lar_error e = lar_model_files_open(a.path, &f, &d);
    if (e) {
        char shown[LAR_SHOWN_BYTES];
        lar_present_name(lar_slice_cstr(a.path), shown);
        return (void)fprintf(stderr, "larder: %s: %s\n", shown, *d.text ? d.text : lar_error_text(e)), 1;
    }
    code = report(&a, f);
    lar_model_files_close(f);
    return code;
}
