/* The options of `larder drill`. Called by main; blocks while the drill runs.
 * What is no option of its own is one of a configuration, as `larder serve` takes it. Memory: a list of arguments. */
#include "gateway/main/drill_command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/drill/drill.h"
#include "gateway/main/config_command.h"
#include "gateway/request/serve.h"

static const char usage[] =
    "usage: larder drill -c FILE [options]\n"
    "Plays each failure of docs/failures.md against the gateway that FILE describes, and says who answered, after how\n"
    "long, how many tokens were lost and how many bytes were wrong. The gateway runs in this process; its upstreams are\n"
    "stand-ins on 127.0.0.1, models of this process are real. No provider is asked, no key is sent, store and listeners\n"
    "of FILE are left alone. LARDER_* variables and flags are read as `larder serve` reads them.\n"
    "  --route N|PREFIX       only this route, by its index or its prefix\n"
    "  --endpoint LIST        chat, messages, responses, with commas between; else what the route's provider speaks\n"
    "  --request-model NAME   the model that requests name; else one that fits the route\n"
    "  --prompt-bytes N       a prompt of so many bytes at least, as clients send: does the fallback's context take it?\n"
    "  --scenario NAME        only this one\n"
    "  --without-engine       leave models of this process out, and do not open them\n"
    "  --require-fallback     a failure that nobody answers in place of the upstream is a scene that fails\n"
    "  --json                 one document, for programs\n"
    "  --verbose              the gateway's log on standard error\n"
    "  --help                 this text\n"
    "Exit status: 0 every scene held, 1 the drill could not be run, 2 usage, 3 the configuration is not valid, 4 a scene\n"
    "did not hold. Scenarios:\n";

static void help(void) {
    (void)fputs(usage, stdout);
    for (int id = 0; id < LAR_DRILL_ID_COUNT; id++) {
        const lar_drill_scenario *s = lar_drill_scenario_of((lar_drill_id)id);
        (void)printf("  %-22s %s\n", s->name, s->text);
    }
}

static lar_exit complain(const char *what, const char *text) {
    (void)fprintf(stderr, "larder: drill: %s '%.100s'; `larder drill --help` lists the options\n", what, text);
    return LAR_EXIT_USAGE;
}

static bool take_endpoints(const char *list, lar_drill_options *o) {
    static const lar_protocol drilled[] = {LAR_PROTOCOL_CHAT, LAR_PROTOCOL_MESSAGES, LAR_PROTOCOL_RESPONSES};
    while (*list) {
        size_t n = strcspn(list, ",");
        bool found = false;
        for (size_t i = 0; i < sizeof drilled / sizeof *drilled; i++) {
            if (!lar_slice_eq_cstr(lar_slice_of(list, n), lar_protocol_name(drilled[i]))) continue;
            o->protocols |= 1u << drilled[i];
            found = true;
        }
        if (!found) return false;
        list += n;
        list += *list == ',';
    }
    return o->protocols != 0;
}

static bool take_bytes(const char *text, lar_drill_options *o) {
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    o->prompt_bytes = (uint32_t)n;
    return *text >= '0' && *text <= '9' && !*end && n <= LAR_DRILL_PROMPT_BYTES_MAX;
}

typedef struct arguments {
    char **rest; /* for the configuration; rest[0] is the command's name */
    int count;
    lar_drill_options options;
    bool help;
} arguments;

/* The value of --name VALUE or --name=VALUE; NULL if `arg` is another option. *missing: there is none. */
static const char *value_of(const char *name, int argc, char **argv, int *i) {
    size_t n = strlen(name);
    const char *arg = argv[*i];
    if (strncmp(arg, name, n) != 0) return NULL;
    if (arg[n] == '=') return arg + n + 1;
    if (arg[n]) return NULL;
    return *i + 1 < argc ? argv[++*i] : "";
}

static bool take_flag(const char *arg, arguments *a) {
    if (strcmp(arg, "--without-engine") == 0) a->options.without_engine = true;
    else if (strcmp(arg, "--require-fallback") == 0) a->options.require_fallback = true;
    else if (strcmp(arg, "--json") == 0) a->options.json = true;
    else if (strcmp(arg, "--verbose") == 0) a->options.verbose = true;
    else if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) a->help = true;
    else return false;
    return true;
}

static lar_exit parse(int argc, char **argv, arguments *a) {
    lar_drill_options *o = &a->options;
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *endpoints = NULL, *bytes = NULL, *value;
        if (take_flag(name, a)) continue;
        if ((value = value_of("--route", argc, argv, &i))) o->route = value;
        else if ((value = value_of("--request-model", argc, argv, &i))) o->model = value;
        else if ((value = value_of("--scenario", argc, argv, &i))) o->scenario = value;
        else if ((value = endpoints = value_of("--endpoint", argc, argv, &i))) o->protocols = 0;
        else if ((value = bytes = value_of("--prompt-bytes", argc, argv, &i))) o->prompt_bytes = 0;
        if (!value) a->rest[a->count++] = argv[i];
        else if (!*value) return complain("a value is missing behind", name);
        if (endpoints && !take_endpoints(endpoints, o)) return complain("no endpoint to drill", endpoints);
        if (bytes && !take_bytes(bytes, o)) return complain("not a number of bytes up to 16777216", bytes);
    }
    return LAR_EXIT_OK;
}

static lar_exit say(lar_error e, const lar_diag *d) {
    (void)fprintf(stderr, "larder: %s\n", *d->text ? d->text : lar_error_text(e));
    return e == LAR_CONFIG ? LAR_EXIT_CONFIG : e == LAR_INVALID ? LAR_EXIT_USAGE : LAR_EXIT_FAILED;
}

/* What `larder check` would refuse is refused here; models only where they are opened. */
static lar_error check(lar_config *c, const lar_drill_options *o, lar_diag *d) {
    lar_config without = *c;
    without.upstream_count = 0; /* certificate, CA files, shared memory */
    if (!o->without_engine) return lar_serve_check(c, d);
    lar_upstream_config *http = calloc(c->upstream_count, sizeof *http);
    if (!http) return lar_fail(LAR_NO_MEMORY, d, "the configuration");
    for (uint32_t i = 0; i < c->upstream_count; i++)
        if (c->upstreams[i].kind == LAR_UPSTREAM_KIND_HTTP) http[without.upstream_count++] = c->upstreams[i];
    without.upstreams = http;
    lar_error e = lar_serve_check(&without, d);
    free(http);
    return e;
}

static lar_exit drill(arguments *a) {
    lar_config *c = NULL;
    lar_drill_tally tally;
    lar_diag d = {{0}, 0, 0};
    lar_exit code = lar_command_load(a->count, a->rest, 1, &c);
    if (!c) return code;
    lar_error e = check(c, &a->options, &d);
    if (!e) e = lar_drill_run(c, &a->options, &tally, &d);
    if (e) code = say(e, &d);
    else if (tally.failed) code = LAR_EXIT_DRILL;
    lar_config_free(c);
    return code;
}

int lar_command_drill(int argc, char **argv) {
    arguments a = {.rest = calloc((size_t)argc + 1, sizeof *a.rest), .count = 1};
    if (!a.rest) return (void)fprintf(stderr, "larder: out of memory\n"), LAR_EXIT_FAILED;
    a.rest[0] = argv[0];
    lar_exit code = parse(argc, argv, &a);
    if (code == LAR_EXIT_OK && a.help) help();
    else if (code == LAR_EXIT_OK) code = drill(&a);
    free(a.rest);
    return (int)code;
}
