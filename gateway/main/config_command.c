/* The command line's options to a configuration, and the commands that only look at one.
 * Called by main; blocks; one thread, before any loop runs.
 * Memory: the list of flags, freed before it returns. */
#include "gateway/main/config_command.h"

#include <stdio.h>
#include <stdlib.h>

#include "gateway/request/serve.h"

enum { PAGE_BYTES_MAX = 1 << 20 };

typedef lar_error page(lar_buf *out);

static lar_exit print_page(page *write) {
    lar_buf text;
    lar_buf_init(&text, PAGE_BYTES_MAX);
    lar_error e = write(&text);
    bool written = !e && fwrite(text.ptr, 1, text.len, stdout) == text.len && fflush(stdout) == 0;
    lar_buf_release(&text);
    if (!written) (void)fprintf(stderr, "larder: the page could not be written: %s\n", lar_error_text(e ? e : LAR_IO));
    return written ? LAR_EXIT_OK : LAR_EXIT_FAILED;
}

/* What one run of the command line asks for. */
typedef struct options {
    const char *file;
    lar_config_flag *flags;
    uint32_t flag_count;
    bool help;
} options;

static lar_exit usage(const char *what, const char *arg) {
    (void)fprintf(stderr, "larder: %s: %s\n", what, arg);
    return LAR_EXIT_USAGE;
}

static lar_exit parse(int argc, char **argv, int first, options *o) {
    for (int i = first; i < argc; i++) {
        char *arg = argv[i];
        if (strcmp(arg, "-h") == 0 || strcmp(arg, "--help") == 0) {
            o->help = true;
            return LAR_EXIT_OK;
        }
        bool is_file = strcmp(arg, "-c") == 0;
        if (!is_file && (strncmp(arg, "--", 2) != 0 || !arg[2])) {
            if (arg[0] == '-') return usage("unexpected argument; options begin with --", arg);
            (void)fprintf(stderr, "larder: unexpected argument '%.200s'; a configuration file is given as -c %.200s\n",
                          arg, arg);
            return LAR_EXIT_USAGE;
        }
        char *equals = is_file ? NULL : strchr(arg, '=');
        if (equals) *equals = 0;
        const char *name = is_file ? "config" : arg + 2;
        lar_diag d = {0};
        if (strcmp(name, "config") != 0 && lar_config_check_flag(name, &d)) {
            (void)fprintf(stderr, "larder: %s\n", d.text);
            return LAR_EXIT_USAGE;
        }
        if (!equals && i + 1 == argc) return usage("a value is missing behind", arg);
        const char *value = equals ? equals + 1 : argv[++i];
        if (strcmp(name, "config") == 0) o->file = value;
        else o->flags[o->flag_count++] = (lar_config_flag){name, value};
    }
    return LAR_EXIT_OK;
}

static lar_exit load(const options *o, lar_config **out) {
    lar_diag d = {0};
    lar_error e = lar_config_load(o->file, o->flags, o->flag_count, out, &d);
    if (!e) return LAR_EXIT_OK;
    (void)fprintf(stderr, "larder: %s\n", *d.text ? d.text : lar_error_text(e));
    return e == LAR_CONFIG ? LAR_EXIT_CONFIG : LAR_EXIT_FAILED;
}

static lar_exit load_or_help(int argc, char **argv, int first, page *help, lar_config **out) {
    *out = NULL;
    options o = {.flags = calloc((size_t)argc + 1, sizeof *o.flags)};
    if (!o.flags) {
        (void)fprintf(stderr, "larder: out of memory\n");
        return LAR_EXIT_FAILED;
    }
    lar_exit code = parse(argc, argv, first, &o);
    if (code == LAR_EXIT_OK) code = o.help ? print_page(help) : load(&o, out);
    free(o.flags);
    return code;
}

lar_exit lar_command_load(int argc, char **argv, int first, lar_config **out) {
    return load_or_help(argc, argv, first, lar_config_help, out);
}

static lar_error check_help(lar_buf *out) {
    return lar_buf_printf(out,
                          "usage: larder check -c FILE [options]\n\n"
                          "Says whether a configuration is valid, without starting anything. The file, LARDER_* "
                          "variables and\nflags are read as `larder serve` reads them (its --help lists the options), "
                          "and the certificates and\nkey files that they name. Exit status: 0 valid, 3 not valid "
                          "(the message says file, line and column).\n");
}

static lar_error config_help(lar_buf *out) {
    return lar_buf_printf(out,
                          "usage: larder config check -c FILE [options]  the same as larder check\n"
                          "       larder config docs --markdown          docs/config.md: every option\n"
                          "       larder config docs --sample            a file with every option and its default\n"
                          "The options of the command line are listed by `larder serve --help`.\n");
}

static lar_exit check(int argc, char **argv, int first) {
    lar_config *c = NULL;
    lar_exit code = load_or_help(argc, argv, first, check_help, &c);
    lar_diag d = {0};
    lar_error e = c ? lar_serve_check(c, &d) : LAR_OK;
    if (e) {
        (void)fprintf(stderr, "larder: %s\n", *d.text ? d.text : lar_error_text(e));
        code = e == LAR_CONFIG ? LAR_EXIT_CONFIG : LAR_EXIT_FAILED;
    } else if (c)
        (void)printf("the configuration is valid: %u listener(s), %u upstream(s), %u route(s), %u key(s)\n",
                     (unsigned)c->listen_count, (unsigned)c->upstream_count, (unsigned)c->route_count,
                     (unsigned)c->key_count);
    lar_config_free(c);
    return code;
}

int lar_command_check(int argc, char **argv) { return (int)check(argc, argv, 1); }

int lar_command_config(int argc, char **argv) {
    static const struct {
        const char *flag;
        page *text;
    } pages[] = {{"--help", config_help},
                 {"-h", config_help},
                 {"--markdown", lar_config_markdown},
                 {"--sample", lar_config_sample}};
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "check") == 0) return (int)check(argc, argv, 2);
    bool docs = argc == 3 && strcmp(what, "docs") == 0;
    for (unsigned i = 0; i < sizeof pages / sizeof *pages; i++) {
        bool help = pages[i].text == config_help && strcmp(what, pages[i].flag) == 0;
        if (help || (docs && strcmp(argv[2], pages[i].flag) == 0)) return (int)print_page(pages[i].text);
    }
    (void)fprintf(stderr, "usage: larder config check -c FILE\n       larder config docs --markdown | --sample\n");
    return LAR_EXIT_USAGE;
}
