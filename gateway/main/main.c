/* The command line: one table of subcommands.
 * Called by people, service managers and scripts. Messages go to stderr and say what to do; results go to stdout.
 * Exit status: 0 done, 1 failed, 2 usage, 3 the configuration is not valid.
 * Not here: what the commands do (gateway/request, gateway/commands, config_command.c). */
#include <signal.h>
#include <stdio.h>

#include "gateway/commands/query.h"
#include "gateway/config/nearest.h"
#include "gateway/main/config_command.h"
#include "gateway/request/serve.h"

typedef struct command {
    const char *name, *arguments, *help;
    int (*run)(int argc, char **argv);
} command;

static int serve(int argc, char **argv) {
    lar_config *c = NULL;
    lar_exit code = lar_command_load(argc, argv, 1, &c);
    if (!c) return (int)code;
    lar_diag d = {0};
    lar_error e = lar_serve_run(c, &d);
    if (e) {
        (void)fprintf(stderr, "larder: %s%s%s\n", lar_error_text(e), *d.text ? ": " : "", d.text);
        code = e == LAR_CONFIG ? LAR_EXIT_CONFIG : LAR_EXIT_FAILED;
    }
    lar_config_free(c);
    return (int)code;
}

/* The query commands count their arguments from behind the command's name. */
static int stats(int argc, char **argv) { return lar_command_stats(argc - 1, argv + 1); }
static int tail(int argc, char **argv) { return lar_command_tail(argc - 1, argv + 1); }
static int export(int argc, char **argv) { return lar_command_export(argc - 1, argv + 1); }

static int rules(int argc, char **argv) {
    (void)argv;
    if (argc > 1) return (void)fprintf(stderr, "larder: `larder rules` takes no arguments\n"), LAR_EXIT_USAGE;
#define LAR_RULE(id, name, on, text) (void)printf("%-6s  %-16s  %-3s  %s\n", #id, #name, #on, text);
#include "policies/rules.def"
#undef LAR_RULE
    return LAR_EXIT_OK;
}

static int version(int argc, char **argv) {
    (void)argc, (void)argv;
    (void)printf("larder %s\n", LARDER_VERSION);
    return LAR_EXIT_OK;
}

static int help(int argc, char **argv);

static const command commands[] = {
    {"serve", "-c FILE | --upstream URL [options]", "run the gateway; --help lists the options", serve},
    {"check", "-c FILE", "say whether a configuration is valid", lar_command_check},
    {"config", "check | docs", "the same, and the generated reference pages", lar_command_config},
    {"stats", "[options]", "hit rates and tokens from the journal", stats},
    {"tail", "[options]", "the journal's last records; -f follows", tail},
    {"export", "[options]", "journal records as JSON lines or CSV", export},
    {"rules", "", "the canonicalisation rules", rules},
    {"version", "", "the program's version", version},
    {"help", "", "this page", help},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *to) {
    (void)fprintf(to, "larder: a gateway that keeps the prefixes of LLM requests stable\n\n");
    for (int i = 0; i < COMMANDS; i++)
        (void)fprintf(to, "  larder %-8s%-36s%s\n", commands[i].name, commands[i].arguments, commands[i].help);
    (void)fprintf(to, "\nFirst try: larder serve --listen 127.0.0.1:8080 --upstream https://api.deepseek.com --store "
                      "./larder-data\n");
}

static int help(int argc, char **argv) {
    (void)argc, (void)argv;
    print_help(stdout);
    return LAR_EXIT_OK;
}

static int unknown(const char *name) {
    lar_nearest n;
    lar_nearest_init(&n, lar_slice_cstr(name));
    for (int i = 0; i < COMMANDS; i++) lar_nearest_offer(&n, lar_slice_cstr(commands[i].name));
    if (n.best.ptr) (void)fprintf(stderr, "larder: no command '%s'; did you mean '%.*s'?\n", name, LAR_FMT(n.best));
    else (void)fprintf(stderr, "larder: no command '%s'; `larder help` lists them\n", name);
    return LAR_EXIT_USAGE;
}

int main(int argc, char **argv) {
    /* `larder tail | head` must end with an error of write, not by a signal half-way through a store transaction. */
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* a file at its size limit is an error of the write, not the end */
    if (argc < 2) {
        print_help(stderr);
        return LAR_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "-h") == 0 || strcmp(name, "--help") == 0) name = "help";
    if (strcmp(name, "-V") == 0 || strcmp(name, "--version") == 0) name = "version";
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0) return commands[i].run(argc - 1, argv + 1);
    }
    return unknown(name);
}
