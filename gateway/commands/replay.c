/* larder replay: the options, and the passes over the files (header: replay.h).
 * Flow: main.c calls; one pass with all rules, then one without each rule that edited; replay_report.c prints.
 * One thread; blocks on files. Invariant: an option that is not understood ends the command.
 * Not here: what a pass does (replay_run.c), what a log is (request_log.h), how caches count (policies/cachesim.h). */
#include "gateway/commands/replay.h"

#include <stdlib.h>
#include <string.h>

#include "gateway/config/nearest.h"
#include "policies/price.h"

static const char usage[] =
    "usage: larder replay [options] FILE...\n"
    "What larder would save: sends nothing, and simulates providers' prefix caches with the requests of the files as\n"
    "they are and as larder would have sent them. - is standard input.\n"
    "Reads, as JSON lines or as one JSON document: request bodies; batch lines; {\"request\", \"response\"} pairs;\n"
    "LiteLLM and Langfuse records; messages arrays; conversations ({\"messages\": [...]} that hold the answers: each\n"
    "answer is a request). Of `larder export`, which holds no text, the recorded hit rate is summed up.\n"
    "  --provider NAME    simulate this provider's cache; may be repeated (deepseek, openai, vllm, and anthropic for\n"
    "                     requests to /v1/messages). --provider help lists them\n"
    "  --format FORMAT    text (default) or json\n"
    "  --as FORM          conversations or requests: what messages that end with an answer are\n"
    "  --protocol NAME    chat, messages, responses or completions, where a guess would be wrong\n"
    "  --ttl SECONDS      entries live that long after their last use (default: as the provider says; only where\n"
    "                     records have times)\n"
    "  --no-ttl           entries live for ever\n"
    "  --auto-marker      a request without cache_control counts as marked at its end (breakpoints)\n"
    "  --price-as MODEL   count money by this model's price (default: each request's model)\n"
    "  --rules-on LIST    turn rules on that are off by default: LR005,LR015\n"
    "  --rules-off LIST   turn rules off\n"
    "  --no-by-rule       do not read the files again to see what each rule contributes\n"
    "  --skip-bad         leave out records that cannot be read, instead of ending there\n"
    "  --help             this text\n";

static int refuse(const char *name, const char *value, const char *want) {
    (void)fprintf(stderr, "larder: %s '%.100s': %s\n", name, value, want);
    return 2;
}

static int list_providers(void) {
    uint32_t n;
    const lar_provider *rows = lar_provider_rows(&n);
    for (uint32_t i = 0; i < n; i++)
        (void)printf("%-11s %-11s %s first, from %u tokens in steps of %u; %s\n", rows[i].name,
                     lar_cache_rule_name(rows[i].rule),
                     rows[i].order == LAR_RENDER_TOOLS_FIRST ? "tools" : "system text", rows[i].tokens_min,
                     rows[i].step_tokens, rows[i].note);
    return 0;
}

static int take_provider(lar_replay_options *o, const char *value) {
    if (!strcmp(value, "help")) return list_providers();
    const lar_provider *p = lar_provider_find(lar_slice_cstr(value));
    if (!p) {
        lar_nearest n;
        uint32_t count;
        const lar_provider *rows = lar_provider_rows(&count);
        lar_nearest_init(&n, lar_slice_cstr(value));
        for (uint32_t i = 0; i < count; i++) lar_nearest_offer(&n, lar_slice_cstr(rows[i].name));
        (void)fprintf(stderr, "larder: no provider '%.100s'", value);
        if (n.best.ptr) (void)fprintf(stderr, "; did you mean '%.*s'?\n", LAR_FMT(n.best));
        else (void)fprintf(stderr, "; --provider help lists them\n");
        return 2;
    }
    if (o->provider_count == LAR_REPLAY_PROVIDERS_MAX) return refuse("--provider", value, "at most 8 at once");
    o->providers[o->provider_count++] = p;
    o->chosen = true;
    return -1;
}

static int take_rules(uint64_t *rules_off, const char *value, bool on) {
    lar_slice rest = lar_slice_cstr(value);
    while (rest.len) {
        const char *comma = memchr(rest.ptr, ',', rest.len);
        lar_slice name = lar_slice_trim(lar_slice_of(rest.ptr, comma ? (size_t)(comma - rest.ptr) : rest.len));
        rest = comma ? lar_slice_of(comma + 1, rest.len - (size_t)(comma + 1 - rest.ptr)) : (lar_slice){0};
        lar_rule r = lar_rule_find(name);
        if (r == LAR_RULE_COUNT || lar_rule_mode_of(r) == LAR_RULE_MODE_LINT)
            return refuse(on ? "--rules-on" : "--rules-off", value, "`larder rules` lists the rules that edit");
        if (on) *rules_off &= ~(1ull << r);
        else *rules_off |= 1ull << r;
    }
    return -1;
}

static int take_seconds(uint32_t *out, const char *value) {
    size_t len = strlen(value);
    if (!len || len > 9 || strspn(value, "0123456789") != len || !strtoul(value, NULL, 10))
        return refuse("--ttl", value, "a number of seconds over 0");
    *out = (uint32_t)strtoul(value, NULL, 10);
    return -1;
}

static int take_protocol(lar_protocol *out, const char *value) {
    for (int p = LAR_PROTOCOL_CHAT; p < LAR_PROTOCOL_EMBEDDINGS; p++) {
        if (strcmp(value, lar_protocol_name((lar_protocol)p)) != 0) continue;
        *out = (lar_protocol)p;
        return -1;
    }
    return refuse("--protocol", value, "chat, messages, responses or completions");
}

static int take_price(lar_replay_options *o, const char *value) {
    if (!lar_price_find(lar_slice_cstr(value))) return refuse("--price-as", value, "no price is known for it");
    o->price_as = value;
    return -1;
}

/* An option with a value: -1 taken, -2 there is none of this name, else the exit code. */
static int take_value(lar_replay_options *o, const char *name, const char *value) {
    if (!strcmp(name, "--provider")) return take_provider(o, value);
    if (!strcmp(name, "--ttl")) return take_seconds(&o->ttl_s, value);
    if (!strcmp(name, "--protocol")) return take_protocol(&o->log.protocol, value);
    if (!strcmp(name, "--price-as")) return take_price(o, value);
    if (!strcmp(name, "--rules-on")) return take_rules(&o->rules_off, value, true);
    if (!strcmp(name, "--rules-off")) return take_rules(&o->rules_off, value, false);
    if (!strcmp(name, "--format")) {
        o->json = !strcmp(value, "json");
        return o->json || !strcmp(value, "text") ? -1 : refuse(name, value, "text or json");
    }
    if (!strcmp(name, "--as")) {
        bool talks = !strcmp(value, "conversations");
        o->log.reading = talks ? LAR_LOG_CONVERSATIONS : LAR_LOG_REQUESTS;
        return talks || !strcmp(value, "requests") ? -1 : refuse(name, value, "conversations or requests");
    }
    return -2;
}

static bool has_value(const char *name) {
    static const char *const names[] = {"--provider", "--ttl",       "--protocol", "--price-as",
                                        "--rules-on", "--rules-off", "--format",   "--as"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) return true;
    return false;
}

static bool take_flag(lar_replay_options *o, const char *name) {
    if (!strcmp(name, "--no-ttl")) o->no_ttl = true;
    else if (!strcmp(name, "--auto-marker")) o->automatic_marker = true;
    else if (!strcmp(name, "--no-by-rule")) o->by_rule = false;
    else if (!strcmp(name, "--skip-bad")) o->skip_bad = true;
    else return false;
    return true;
}

static int unknown(const char *arg) {
    (void)fprintf(stderr, "larder: unknown option %.100s\n%s", arg, usage);
    return 2;
}

/* -1 to go on, or the exit code. Files are moved to the front of argv. */
static int parse(lar_replay_options *o, int argc, char **argv) {
    char name[32];
    bool options = true;
    for (int i = 0; i < argc; i++) {
        char *arg = argv[i];
        if (!options || arg[0] != '-' || !arg[1]) {
            argv[o->file_count++] = arg;
            continue;
        }
        const char *equals = strchr(arg, '=');
        size_t len = equals ? (size_t)(equals - arg) : strlen(arg);
        if (!strcmp(arg, "--help") || !strcmp(arg, "-h")) return (void)fputs(usage, stdout), 0;
        if (!strcmp(arg, "--")) options = false;
        if (!options || (!equals && take_flag(o, arg))) continue;
        if (len >= sizeof name) return unknown(arg);
        (void)snprintf(name, sizeof name, "%.*s", (int)len, arg);
        if (!has_value(name)) return unknown(arg);
        const char *value = equals ? equals + 1 : i + 1 < argc ? argv[++i] : NULL;
        if (!value) return (void)fprintf(stderr, "larder: %s needs a value\n", name), 2;
        int rc = take_value(o, name, value);
        if (rc != -1) return rc;
    }
    return -1;
}

static bool reads_standard_input(const lar_replay_options *o) {
    for (int i = 0; i < o->file_count; i++)
        if (!strcmp(o->files[i], "-")) return true;
    return false;
}

static int finish(lar_replay_options *o) {
    static const char *const usual[] = {"deepseek", "openai", "vllm", "anthropic"};
    if (!o->file_count) return (void)fprintf(stderr, "larder: which files? - is standard input\n%s", usage), 2;
    for (size_t i = 0; i < sizeof usual / sizeof *usual && !o->chosen; i++)
        o->providers[o->provider_count++] = lar_provider_find(lar_slice_cstr(usual[i]));
    if (reads_standard_input(o)) o->by_rule = false;
    return -1;
}

/* What each rule contributes: the same again without it, for those that edited something. */
static int without_rules(const lar_replay_options *o, const lar_replay_sums *s, lar_replay_sums *without) {
    int rc = 0;
    for (int i = 0; i < LAR_RULE_COUNT && !rc; i++)
        if (s->rule_requests[i]) rc = lar_replay_run(o, LAR_REPLAY_SENT, o->rules_off | 1ull << i, &without[i]);
    return rc;
}

static int report(const lar_replay_options *o, const lar_replay_sums *s, const lar_replay_sums *without) {
    if (!s->requests && !s->exported.requests && !s->exported_unknown) {
        (void)fprintf(stderr, "larder: no request was found in %d file(s)\n", o->file_count);
        return 1;
    }
    if (!o->json) lar_replay_print(o, s, without, stdout);
    lar_error e = o->json ? lar_replay_print_json(o, s, without, stdout) : LAR_OK;
    if (e == LAR_NO_MEMORY) return (void)fprintf(stderr, "larder: %s\n", lar_error_text(e)), 1;
    return e || fflush(stdout) ? 1 : 0;
}

int lar_command_replay(int argc, char **argv) {
    lar_replay_options o = {.files = argv, .rules_off = lar_rules_off_default(), .by_rule = true};
    int rc = parse(&o, argc, argv);
    if (rc < 0) rc = finish(&o);
    if (rc >= 0) return rc;
    lar_replay_sums *sums = calloc(1 + LAR_RULE_COUNT, sizeof *sums);
    if (!sums) return (void)fprintf(stderr, "larder: %s\n", lar_error_text(LAR_NO_MEMORY)), 1;
    rc = lar_replay_run(&o, LAR_REPLAY_BOTH, o.rules_off, &sums[0]);
    if (!rc && o.by_rule) rc = without_rules(&o, &sums[0], sums + 1);
    if (!rc) rc = report(&o, &sums[0], sums + 1);
    free(sums);
    return rc;
}
