/* The command line of larder lint.
 * Called by lint_main.c; messages to stderr; one thread. Memory: borrows argv. Not here: what the options do. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gateway/commands/lint_command.h"
#include "gateway/config/nearest.h"

static const char usage[] =
    "usage: larder lint [options] FILE|FOLDER|PATTERN|-...\n"
    "       larder lint --explain RULE | --list-rules\n\n"
    "Finds what keeps a provider's prefix cache from hitting. Reads requests as JSON, arrays of messages, JSON lines,\n"
    "conversations, logs of LiteLLM and Langfuse, prompts in .md and .txt files, larder's own exports and stores;\n"
    "- is standard input. One request gives \"suspect\", several of one template \"confirmed\", with both values.\n\n"
    "  --format text|json|sarif|github   default text\n"
    "  --color auto|always|never         of text; default auto: on a terminal, unless NO_COLOR is set\n"
    "  --select LIST, --ignore LIST      rules by id, name or beginning (LR1), with commas; ignore wins\n"
    "  --severity info|warning|error     report nothing below it; default info\n"
    "  --provider NAME                   whose rules say what a change costs; default by model, else deepseek\n"
    "  --fix[=print]                     write what larder would send: into the files, or to standard output\n"
    "  --diff                            show what --fix would change, and change nothing\n"
    "  --baseline FILE                   leave out the findings it holds\n"
    "  --write-baseline FILE             write the findings there; exit status 0\n"
    "  --config FILE, --no-config        instead of the nearest .larder-lint.yaml upwards from each file\n"
    "  --stdin-name NAME                 what standard input is called in reports and for patterns\n"
    "  --explain RULE, --list-rules      a rule's page in short; all rules\n\n"
    "Exit status: 0 nothing found, 1 findings, 2 usage or input that cannot be read.\n";

static int bad(const char *format, const char *a, const char *b) {
    (void)fprintf(stderr, "larder lint: ");
    (void)fprintf(stderr, format, a, b);
    (void)fprintf(stderr, "\n");
    return LAR_LINT_USAGE;
}

bool lar_lint_rules_named(lar_slice text, uint64_t *rules) {
    lar_rule r = lar_rule_find(text);
    if (r < LAR_RULE_COUNT) {
        *rules |= 1ull << r;
        return true;
    }
    bool any = false;
    for (int i = 0; i < LAR_RULE_COUNT && text.len >= 2; i++) {
        if (!lar_slice_starts_i(lar_slice_cstr(lar_rule_id((lar_rule)i)), text)) continue;
        *rules |= 1ull << i;
        any = true;
    }
    return any;
}

static const char *const severities[] = {"info", "warning", "error"};

const char *lar_lint_severity_name(lar_severity s) { return severities[s]; }

bool lar_lint_severity_named(lar_slice text, lar_severity *out) {
    for (unsigned i = 0; i < sizeof severities / sizeof *severities; i++) {
        if (!lar_slice_eq_cstr(text, severities[i])) continue;
        *out = (lar_severity)i;
        return true;
    }
    return false;
}

static int take_rules(const char *option, const char *list, uint64_t *rules) {
    for (const char *p = list;;) {
        size_t n = strcspn(p, ",");
        if (!lar_lint_rules_named(lar_slice_trim(lar_slice_of(p, n)), rules)) {
            char name[64];
            (void)snprintf(name, sizeof name, "%.*s", (int)(n < 60 ? n : 60), p);
            return bad("%s: no rule '%s'; `larder lint --list-rules` lists them", option, name);
        }
        if (!p[n]) return -1;
        p += n + 1;
    }
}

typedef enum option {
    OPT_FORMAT,
    OPT_COLOR,
    OPT_SELECT,
    OPT_IGNORE,
    OPT_SEVERITY,
    OPT_PROVIDER,
    OPT_FIX,
    OPT_DIFF,
    OPT_BASELINE,
    OPT_WRITE_BASELINE,
    OPT_CONFIG,
    OPT_NO_CONFIG,
    OPT_STDIN_NAME,
    OPT_EXPLAIN,
    OPT_LIST_RULES,
    OPT_HELP,
    OPT_COUNT
} option;

static const struct {
    const char *name;
    bool value; /* it takes one */
} options[OPT_COUNT] = {
    [OPT_FORMAT] = {"--format", true},
    [OPT_COLOR] = {"--color", true},
    [OPT_SELECT] = {"--select", true},
    [OPT_IGNORE] = {"--ignore", true},
    [OPT_SEVERITY] = {"--severity", true},
    [OPT_PROVIDER] = {"--provider", true},
    [OPT_FIX] = {"--fix", false},
    [OPT_DIFF] = {"--diff", false},
    [OPT_BASELINE] = {"--baseline", true},
    [OPT_WRITE_BASELINE] = {"--write-baseline", true},
    [OPT_CONFIG] = {"--config", true},
    [OPT_NO_CONFIG] = {"--no-config", false},
    [OPT_STDIN_NAME] = {"--stdin-name", true},
    [OPT_EXPLAIN] = {"--explain", true},
    [OPT_LIST_RULES] = {"--list-rules", false},
    [OPT_HELP] = {"--help", false},
};

typedef enum color { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER } color;

static int choice(const char *value, const char *const *names, int count) {
    for (int i = 0; i < count; i++) {
        if (strcmp(value, names[i]) == 0) return i;
    }
    return -1;
}

static int take_format(lar_lint_args *a, const char *value) {
    static const char *const names[] = {"text", "json", "sarif", "github"};
    int i = choice(value, names, 4);
    if (i < 0) return bad("--format %s: text, json, sarif or github%s", value, "");
    a->format = (lar_lint_format)i;
    return -1;
}

static int take_color(lar_lint_args *a, const char *value) {
    static const char *const names[] = {"auto", "always", "never"};
    int i = choice(value, names, 3);
    if (i < 0) return bad("--color %s: auto, always or never%s", value, "");
    const char *no_color = getenv("NO_COLOR");
    bool terminal = isatty(STDOUT_FILENO) && !(no_color && *no_color);
    a->color = i == COLOR_ALWAYS || (i == COLOR_AUTO && terminal);
    return -1;
}

static int take_provider(lar_lint_args *a, const char *value) {
    a->provider = lar_provider_find(lar_slice_cstr(value));
    if (a->provider) return -1;
    lar_nearest n;
    uint32_t count;
    const lar_provider *rows = lar_provider_rows(&count);
    lar_nearest_init(&n, lar_slice_cstr(value));
    for (uint32_t i = 0; i < count; i++) lar_nearest_offer(&n, lar_slice_cstr(rows[i].name));
    if (n.best.ptr) return bad("--provider %s: not known; did you mean %s?", value, n.best.ptr);
    (void)fprintf(stderr, "larder lint: --provider %.60s: not known; there are", value);
    for (uint32_t i = 0; i < count; i++) (void)fprintf(stderr, " %s", rows[i].name);
    (void)fprintf(stderr, "\n");
    return LAR_LINT_USAGE;
}

static int take_fix(lar_lint_args *a, const char *value) {
    if (value && strcmp(value, "print") != 0) return bad("--fix=%s: --fix or --fix=print%s", value, "");
    if (a->fix != LAR_LINT_FIX_DIFF) a->fix = value ? LAR_LINT_FIX_PRINT : LAR_LINT_FIX_FILE;
    return -1;
}

static int take(lar_lint_args *a, option o, const char *value) {
    switch (o) {
    case OPT_FORMAT: return take_format(a, value);
    case OPT_COLOR: return take_color(a, value);
    case OPT_SELECT: a->rules.has_selected = true; return take_rules("--select", value, &a->rules.selected);
    case OPT_IGNORE: return take_rules("--ignore", value, &a->rules.ignored);
    case OPT_SEVERITY:
        a->rules.has_least = true;
        return lar_lint_severity_named(lar_slice_cstr(value), &a->rules.least)
                   ? -1
                   : bad("--severity %s: info, warning or error%s", value, "");
    case OPT_PROVIDER: return take_provider(a, value);
    case OPT_FIX: return take_fix(a, value);
    case OPT_DIFF: a->fix = LAR_LINT_FIX_DIFF; return -1;
    case OPT_BASELINE: a->baseline = value; return -1;
    case OPT_WRITE_BASELINE: a->write_baseline = value; return -1;
    case OPT_CONFIG: a->config = value; return -1;
    case OPT_NO_CONFIG: a->no_config = true; return -1;
    case OPT_STDIN_NAME: a->stdin_name = value; return -1;
    case OPT_EXPLAIN: return lar_lint_explain(value, stdout);
    case OPT_LIST_RULES: return lar_lint_list_rules(stdout);
    case OPT_HELP: return fputs(usage, stdout) < 0 ? LAR_LINT_USAGE : LAR_LINT_OK;
    case OPT_COUNT: break;
    }
    return LAR_LINT_USAGE;
}

static int unknown(const char *name) {
    lar_nearest n;
    lar_nearest_init(&n, lar_slice_cstr(name));
    for (int i = 0; i < OPT_COUNT; i++) lar_nearest_offer(&n, lar_slice_cstr(options[i].name));
    return n.best.ptr ? bad("no option %s; did you mean %s?", name, n.best.ptr)
                      : bad("no option %s; larder lint --help lists them%s", name, "");
}

static int one_option(lar_lint_args *a, int argc, char **argv, int *i) {
    char *arg = strcmp(argv[*i], "-h") == 0 ? "--help" : argv[*i];
    size_t len = strcspn(arg, "=");
    for (int o = 0; o < OPT_COUNT; o++) {
        if (strlen(options[o].name) != len || strncmp(arg, options[o].name, len) != 0) continue;
        const char *value = arg[len] ? arg + len + 1 : NULL;
        if (!options[o].value && value && o != OPT_FIX) return bad("%s takes no value%s", options[o].name, "");
        if (options[o].value && !value) {
            if (*i + 1 == argc) return bad("a value is missing behind %s%s", options[o].name, "");
            value = argv[++*i];
        }
        return take(a, (option)o, value);
    }
    char name[64];
    (void)snprintf(name, sizeof name, "%.*s", (int)(len < 60 ? len : 60), arg);
    return unknown(name);
}

int lar_lint_args_parse(lar_lint_args *a, int argc, char **argv) {
    *a = (lar_lint_args){.stdin_name = "-"};
    (void)take_color(a, "auto");
    a->paths = argv; /* paths move to the front as they are met */
    bool only_paths = false;
    for (int i = 0; i < argc; i++) {
        bool is_option = !only_paths && argv[i][0] == '-' && argv[i][1];
        if (!is_option) {
            a->paths[a->path_count++] = argv[i];
            continue;
        }
        if (strcmp(argv[i], "--") == 0) {
            only_paths = true;
            continue;
        }
        int rc = one_option(a, argc, argv, &i);
        if (rc >= 0) return rc;
    }
    if (a->path_count == 0) return bad("what shall be read? FILE, FOLDER, PATTERN or - for standard input%s%s", "", "");
    if (a->config && a->no_config) return bad("--config and --no-config exclude each other%s%s", "", "");
    return -1;
}
