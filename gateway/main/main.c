/* The command line: one table of subcommands.
 * Called by people, service managers and scripts. Messages go to stderr and say what to do; results go to stdout.
 * Exit status: 0 done, 1 failed, 2 usage, 3 the configuration is not valid, 4 a drill's scene did not hold.
 * Not here: what the commands do (gateway/request, gateway/commands, config_command.c). */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "gateway/commands/baseline.h"
#include "gateway/commands/diff.h"
#include "gateway/commands/explain.h"
#include "gateway/commands/fingerprint.h"
#include "gateway/commands/lint_main.h"
#include "gateway/commands/query.h"
#include "gateway/commands/replay.h"
#include "gateway/commands/upstreams.h"
#include "gateway/config/nearest.h"
#include "gateway/local/bench_model.h"
#include "gateway/local/inspect.h"
#include "gateway/local/kv_check_command.h"
#include "gateway/local/plan_command.h"
#include "gateway/local/run_command.h"
#include "gateway/main/config_command.h"
#include "gateway/main/drill_command.h"
#include "gateway/request/serve.h"
#include "policies/canon.h"

typedef enum help_by { HELP_BY_TABLE, HELP_BY_COMMAND } help_by;

typedef struct command {
    const char *name, *arguments, *help;
    int (*run)(int argc, char **argv);
    help_by help_by; /* who answers --help */
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
static int lint(int argc, char **argv) { return lar_command_lint(argc - 1, argv + 1); }
static int export(int argc, char **argv) { return lar_command_export(argc - 1, argv + 1); }
static int diff(int argc, char **argv) { return lar_command_diff(argc - 1, argv + 1); }
static int replay(int argc, char **argv) { return lar_command_replay(argc - 1, argv + 1); }
static int baseline(int argc, char **argv) { return lar_command_baseline(argc - 1, argv + 1); }
static int upstreams(int argc, char **argv) { return lar_command_upstreams(argc - 1, argv + 1); }
static int explain(int argc, char **argv) { return lar_command_explain(argc - 1, argv + 1); }
static int inspect(int argc, char **argv) { return lar_command_inspect(argc - 1, argv + 1); }
static int fingerprint(int argc, char **argv) { return lar_command_fingerprint(argc - 1, argv + 1); }

static const char *const mode_names[] = {
    [LAR_RULE_MODE_OFF] = "OFF", [LAR_RULE_MODE_ON] = "ON", [LAR_RULE_MODE_LINT] = "LINT"};

static int one_rule(const char *name) {
    lar_rule r = lar_rule_find(lar_slice_cstr(name));
    if (r == LAR_RULE_COUNT) {
        lar_nearest n;
        lar_nearest_init(&n, lar_slice_cstr(name));
        lar_nearest_offer_rules(&n);
        if (n.best.ptr)
            (void)fprintf(stderr, "larder: no rule '%.100s'; did you mean '%.*s'?\n", name, LAR_FMT(n.best));
        else (void)fprintf(stderr, "larder: no rule '%.100s'; `larder rules` lists them\n", name);
        return LAR_EXIT_USAGE;
    }
    const char *id = lar_rule_id(r);
    bool on = lar_rule_mode_of(r) == LAR_RULE_MODE_ON;
    if (lar_rule_mode_of(r) == LAR_RULE_MODE_LINT)
        (void)printf("%s %s, reported by larder lint, never edited\n%s.\n", id, lar_rule_name(r), lar_rule_text(r));
    else
        (void)printf("%s %s, %s by default (canon: {%s: [%s]} turns it %s)\n%s.\n", id, lar_rule_name(r),
                     on ? "on" : "off", on ? "rules_off" : "rules_on", id, on ? "off" : "on", lar_rule_text(r));
    (void)printf("What it finds, before and after, and why it is safe: docs/rules/%s.md\n", id);
    return LAR_EXIT_OK;
}

static int rules(int argc, char **argv) {
    if (argc > 2) return (void)fprintf(stderr, "usage: larder rules [RULE]\n"), LAR_EXIT_USAGE;
    if (argc == 2) return one_rule(argv[1]);
    for (int i = 0; i < LAR_RULE_COUNT; i++)
        (void)printf("%-6s  %-20s  %-4s  %s\n", lar_rule_id((lar_rule)i), lar_rule_name((lar_rule)i),
                     mode_names[lar_rule_mode_of((lar_rule)i)], lar_rule_text((lar_rule)i));
    return LAR_EXIT_OK;
}

static int version(int argc, char **argv) {
    (void)argc, (void)argv;
    (void)printf("larder %s\n", LARDER_VERSION);
    return LAR_EXIT_OK;
}

static int help(int argc, char **argv);

static const command commands[] = {
    {"serve", "-c FILE | --upstream URL [options]", "run the gateway; --help lists the options", serve,
     HELP_BY_COMMAND},
    {"check", "-c FILE", "say whether a configuration is valid", lar_command_check, HELP_BY_COMMAND},
    {"config", "check | docs", "the same, and the generated reference pages", lar_command_config, HELP_BY_COMMAND},
    {"stats", "[options]", "hit rates and tokens from the journal", stats, HELP_BY_COMMAND},
    {"tail", "[options]", "the journal's last records; -f follows", tail, HELP_BY_COMMAND},
    {"export", "[options]", "journal records as JSON lines or CSV", export, HELP_BY_COMMAND},
    {"upstreams", "[--admin ADDRESS]", "how each upstream of a running larder stands", upstreams, HELP_BY_COMMAND},
    {"drill", "-c FILE [options]", "play each failure against a configuration, and see who answers", lar_command_drill,
     HELP_BY_COMMAND},
    {"diff", "[options] A B", "where two requests part, and which rule would mend it", diff, HELP_BY_COMMAND},
    {"replay", "[options] FILE...", "what larder would save, from logged requests; sends nothing", replay,
     HELP_BY_COMMAND},
    {"baseline", "record | compare", "hit rates with their spread, kept and compared", baseline, HELP_BY_COMMAND},
    {"explain", "REQUEST [options]", "why a request hit or missed the provider's cache", explain, HELP_BY_COMMAND},
    {"fingerprint", "[options]", "the edition: versions of all that decides what is sent", fingerprint,
     HELP_BY_COMMAND},
    {"lint", "[options] FILE...", "find what breaks a prefix cache in requests and prompts", lint, HELP_BY_COMMAND},
    {"inspect", "[options] FOLDER|FILE.gguf", "what a model is, and what of it is missing or not supported", inspect,
     HELP_BY_COMMAND},
    {"plan", "--model PATH | --config FILE", "the memory that a model and its requests take", lar_command_plan,
     HELP_BY_COMMAND},
    {"rules", "[RULE]", "the canonicalisation rules, or one of them", rules, HELP_BY_TABLE},
    {"run", "--model PATH [options]", "run a model on this machine", lar_command_run, HELP_BY_COMMAND},
    {"bench-model", "--model PATH [options]", "tokens a second of a model, beside what memory can deliver",
     lar_command_bench_model, HELP_BY_COMMAND},
    {"kv-check", "--model PATH --text FILE [options]", "what a format of latents costs a model in quality",
     lar_command_kv_check, HELP_BY_COMMAND},
    {"version", "", "the program's version", version, HELP_BY_TABLE},
    {"help", "[COMMAND]", "this page, or what a command takes", help, HELP_BY_TABLE},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *to) {
    (void)fprintf(to, "larder: a gateway that keeps the prefixes of LLM requests stable\n\n");
    for (int i = 0; i < COMMANDS; i++)
        (void)fprintf(to, "  larder %-12s%-36s%s\n", commands[i].name, commands[i].arguments, commands[i].help);
    (void)fprintf(to, "\nFirst try: larder serve --listen 127.0.0.1:8080 --upstream https://api.deepseek.com --store "
                      "./larder-data\n");
}

static int unknown(const char *name) {
    lar_nearest n;
    lar_nearest_init(&n, lar_slice_cstr(name));
    for (int i = 0; i < COMMANDS; i++) lar_nearest_offer(&n, lar_slice_cstr(commands[i].name));
    if (n.best.ptr) (void)fprintf(stderr, "larder: no command '%s'; did you mean '%.*s'?\n", name, LAR_FMT(n.best));
    else (void)fprintf(stderr, "larder: no command '%s'; `larder help` lists them\n", name);
    return LAR_EXIT_USAGE;
}

static bool is_help(const char *text) { return strcmp(text, "--help") == 0 || strcmp(text, "-h") == 0; }

static int run(const char *name, int argc, char **argv) {
    for (int i = 0; i < COMMANDS; i++) {
        const command *c = &commands[i];
        if (strcmp(name, c->name) != 0) continue;
        if (c->help_by == HELP_BY_COMMAND || argc < 2 || !is_help(argv[1])) return c->run(argc, argv);
        (void)printf("usage: larder %s%s%s\n%s\n", c->name, *c->arguments ? " " : "", c->arguments, c->help);
        return LAR_EXIT_OK;
    }
    return unknown(name);
}

static int help(int argc, char **argv) {
    if (argc > 2) return (void)fprintf(stderr, "usage: larder help [COMMAND]\n"), LAR_EXIT_USAGE;
    if (argc < 2) {
        print_help(stdout);
        return LAR_EXIT_OK;
    }
    char flag[] = "--help", *asked[] = {argv[1], flag, NULL};
    return run(argv[1], 2, asked);
}

/* A result that a full disk cut off must not pass for a whole one. Who closed the pipe, as head does, knows. */
static int finish(int code) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return code;
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    bool gone = poll(&out, 1, 0) > 0 && (out.revents & POLLERR);
    if (!gone) (void)fprintf(stderr, "larder: standard output could not be written whole; is the disk full?\n");
    return code == LAR_EXIT_OK ? LAR_EXIT_FAILED : code;
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
    if (is_help(name)) name = "help";
    if (strcmp(name, "-V") == 0 || strcmp(name, "--version") == 0) name = "version";
    return finish(run(name, argc - 1, argv + 1));
}
