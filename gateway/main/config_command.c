/* The command line's options to a configuration, and the commands that only look at one.
 * Called by main; blocks; one thread, before any loop runs.
 * Memory: the list of flags, freed before it returns. */
#include "gateway/main/config_command.h"

#include <stdio.h>
#include <stdlib.h>

#include "gateway/request/serve.h"

enum { PAGE_BYTES_MAX = 1 << 20 };

static lar_exit print_page(lar_error (*page)(lar_buf *out)) {
    lar_buf text;
    lar_buf_init(&text, PAGE_BYTES_MAX);
    lar_error e = page(&text);
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
        if (!is_file && (strncmp(arg, "--", 2) != 0 || !arg[2]))
            return usage("unexpected argument; options begin with --", arg);
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

lar_exit lar_command_load(int argc, char **argv, int first, lar_config **out) {
    *out = NULL;
    options o = {.flags = calloc((size_t)argc + 1, sizeof *o.flags)};
    if (!o.flags) {
        (void)fprintf(stderr, "larder: out of memory\n");
        return LAR_EXIT_FAILED;
    }
    lar_exit code = parse(argc, argv, first, &o);
    if (code == LAR_EXIT_OK) code = o.help ? print_page(lar_config_help) : load(&o, out);
    free(o.flags);
    return code;
}

static lar_exit check(int argc, char **argv, int first) {
    lar_config *c = NULL;
    lar_exit code = lar_command_load(argc, argv, first, &c);
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
        lar_error (*page)(lar_buf *out);
    } pages[] = {{"--help", lar_config_help}, {"--markdown", lar_config_markdown}, {"--sample", lar_config_sample}};
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "check") == 0) return (int)check(argc, argv, 2);
    for (unsigned i = 0; argc == 3 && strcmp(what, "docs") == 0 && i < sizeof pages / sizeof *pages; i++) {
        if (strcmp(argv[2], pages[i].flag) == 0) return (int)print_page(pages[i].page);
    }
    (void)fprintf(stderr,
                  "usage: larder config check -c FILE\n       larder config docs --help | --markdown | --sample\n");
    return LAR_EXIT_USAGE;
}
