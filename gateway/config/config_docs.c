/* The generated pages: --help, docs/config.md and the sample file, from the rows that the parser itself uses.
 * Called by the command line and by the test that compares the pages in the tree; never blocks.
 * In the sample a "#" with a name right behind it is an option, set by deleting the "#"; with a blank behind it is
 * prose. A test deletes every "#" of the first kind and loads the result. */
#include <inttypes.h>
#include <stdio.h>

#include "gateway/config/config_parts.h"

/* Every call below appends; the first error ends the page. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        lar_error e_ = (call);                                                                                         \
        if (e_) return e_;                                                                                             \
    } while (0)

enum { NUMBER_BYTES = 40, NAME_BYTES = 80 };

static const char *scaled(uint64_t v, const char *const *units, const uint64_t *factors, int count, char *out) {
    int u = 0;
    for (int i = 1; i < count && v && v % factors[i] == 0; i++) u = i;
    (void)snprintf(out, NUMBER_BYTES, "%" PRIu64 "%s", v / factors[u], units[u]);
    return out;
}

static const char *number(const lar_option_row *row, uint64_t v, char *out) {
    static const char *const ms_units[] = {"ms", "s", "m", "h", "d"};
    static const uint64_t ms_factors[] = {1, 1000, 60000, 3600000, 86400000};
    static const char *const byte_units[] = {"", "KiB", "MiB", "GiB", "TiB"};
    static const uint64_t byte_factors[] = {1, 1ull << 10, 1ull << 20, 1ull << 30, 1ull << 40};
    if (row->type == LAR_OPTION_MS && v) return scaled(v, ms_units, ms_factors, 5, out);
    if (row->type == LAR_OPTION_BYTES) return scaled(v, byte_units, byte_factors, 5, out);
    (void)snprintf(out, NUMBER_BYTES, "%" PRIu64, v);
    return out;
}

static bool has_range(const lar_option_row *row) {
    return row->type != LAR_OPTION_BOOL && row->type != LAR_OPTION_TEXT && row->type != LAR_OPTION_ENUM;
}

/* "1 to 256 loops", "off|report|on", "file", "true|false" */
static lar_error add_values(lar_buf *out, const lar_option_row *row, const char *or_sign) {
    char least[NUMBER_BYTES], most[NUMBER_BYTES];
    if (row->type == LAR_OPTION_BOOL) return lar_buf_printf(out, "true%sfalse", or_sign);
    if (has_range(row)) {
        bool counted = row->type == LAR_OPTION_U32 || row->type == LAR_OPTION_U64;
        return lar_buf_printf(out, "%s to %s%s%s", number(row, row->min, least), number(row, row->max, most),
                              counted ? " " : "", counted ? row->unit : "");
    }
    if (row->type == LAR_OPTION_TEXT) return lar_buf_printf(out, "%s", row->unit);
    for (int i = 0; row->names[i]; i++) TRY(lar_buf_printf(out, "%s%s", i ? or_sign : "", row->names[i]));
    return LAR_OK;
}

/* The path in another form: "limits.head_bytes" as limits-head-bytes or LIMITS_HEAD_BYTES. */
static const char *spelled(const char *path, char sign, bool capitals, char *out) {
    size_t n = 0;
    for (; path[n] && n + 1 < NAME_BYTES; n++) {
        char c = path[n] == '.' || path[n] == '_' ? sign : path[n];
        out[n] = capitals && c >= 'a' && c <= 'z' ? (char)(c - 32) : c;
    }
    out[n] = 0;
    return out;
}

static lar_error help_row(lar_buf *out, const lar_option_row *row) {
    static const char *const kinds[] = {[LAR_OPTION_U32] = "number",
                                        [LAR_OPTION_U64] = "number",
                                        [LAR_OPTION_MS] = "duration",
                                        [LAR_OPTION_BYTES] = "size"};
    char name[NAME_BYTES];
    TRY(lar_buf_printf(out, "  --%s ", spelled(row->path, '-', false, name)));
    if (has_range(row)) TRY(lar_buf_printf(out, "%s", kinds[row->type]));
    else TRY(add_values(out, row, "|"));
    TRY(lar_buf_printf(out, "\n      %s", row->help));
    if (*row->def) TRY(lar_buf_printf(out, " Default %s", row->def));
    if (has_range(row)) {
        TRY(lar_buf_printf(out, ", "));
        TRY(add_values(out, row, ""));
    }
    return lar_buf_printf(out, "%s\n", *row->def ? "." : "");
}

lar_error lar_config_help(lar_buf *out) {
    uint32_t given_count = 0;
    const lar_given_row *given = lar_given_rows(&given_count);
    const lar_option_table *t = lar_option_scalars();
    TRY(lar_buf_printf(
        out, "usage: larder serve -c FILE [options]\n       larder serve --upstream URL [options]\n"
             "       larder serve --model PATH [options]\n\n"
             "Every option takes a value, as --name VALUE or --name=VALUE; given twice, the last one counts.\n"
             "Later sources win: defaults, the file, LARDER_* variables, flags.\n"
             "Durations need a unit (250ms, 30s, 5m); sizes are bytes or KiB, MiB, GiB.\n\n"
             "  -c, --config FILE\n      The configuration file (YAML).\n"));
    for (uint32_t i = 0; i < given_count; i++)
        TRY(lar_buf_printf(out, "  --%s %s\n      %s\n", given[i].name, given[i].unit, given[i].help));
    for (uint32_t i = 0; i < t->count; i++) TRY(help_row(out, &t->rows[i]));
    return LAR_OK;
}

/* -- docs/config.md -------------------------------------------------------------------------------- */

static lar_error markdown_row(lar_buf *out, const lar_option_row *row, bool with_reload) {
    static const char *const kinds[] = {
        [LAR_OPTION_KINDS_ANY] = "", [LAR_OPTION_KINDS_HTTP] = " *http*", [LAR_OPTION_KINDS_ENGINE] = " *engine*"};
    TRY(lar_buf_printf(out, "| `%s`%s | ", row->path, kinds[row->kinds]));
    if (*row->def) TRY(lar_buf_printf(out, "`%s`", row->def));
    TRY(lar_buf_printf(out, " | "));
    TRY(add_values(out, row, ", "));
    if (with_reload) TRY(lar_buf_printf(out, " | %s", row->reload == LAR_OPTION_LIVE ? "reload" : "restart"));
    return lar_buf_printf(out, " | %s |\n", row->help);
}

static lar_error markdown_list(lar_buf *out, const char *title, const char *text, const lar_option_table *t) {
    TRY(lar_buf_printf(out, "\n## %s\n\n%s\n\n| name | default | values | meaning |\n|---|---|---|---|\n", title,
                       text));
    for (uint32_t i = 0; i < t->count; i++) TRY(markdown_row(out, &t->rows[i], false));
    return LAR_OK;
}

static const char markdown_head[] =
    "# Configuration\n"
    "\n"
    "<!-- Generated from gateway/config/config.def and lists.def by `larder config docs --markdown`; edit those. -->\n"
    "\n"
    "`larder serve -c larder.yaml`. A file with every option is\n"
    "[deploy/larder.example.yaml](../deploy/larder.example.yaml); `larder check -c larder.yaml` says whether\n"
    "a file is valid without starting anything.\n"
    "\n"
    "**Sources.** Later ones win: defaults, the file, `LARDER_*` environment variables, flags. The variable\n"
    "of `limits.head_bytes` is `LARDER_LIMITS_HEAD_BYTES`, its flag `--limits-head-bytes`. A flag or a\n"
    "variable that is not known is an error, as an unknown name in the file is. Those that Kubernetes sets\n"
    "for a service called larder (`LARDER_PORT`, `LARDER_SERVICE_HOST`, ...), those that the configuration\n"
    "names as holding a key, and `LARDER_TEST...`, `LARDER_FUZZ...`, `LARDER_BENCH...`, `LARDER_BIN...` and\n"
    "`LARDER_OPTIONS` of the scripts around larder are left alone.\n"
    "\n"
    "**Values.** Durations are a whole number and a unit: `ms`, `s`, `m`, `h`, `d`; only `0` needs none.\n"
    "Sizes are bytes, or a whole number and `KiB`, `MiB`, `GiB`, `TiB`. Truth is `true`, `yes`, `on`,\n"
    "`false`, `no`, `off`. Options whose values are a list take `[a, b]` in the file and `\"a b\"` elsewhere.\n"
    "The file is UTF-8 YAML of at most 1 MiB, one document, without anchors, aliases and tags; a name that\n"
    "stands twice is an error.\n"
    "\n"
    "**Secrets** never stand in the file, in a flag or in a URL: they come from an environment variable or a\n"
    "file (one line, at most 8 KiB, printable ASCII without blanks). Messages about a configuration never\n"
    "repeat a value.\n"
    "\n"
    "**Reload.** On SIGHUP the file, and every file that it names, is read again and swapped in as a whole. A\n"
    "configuration with a mistake changes nothing; the log says why, with file and line. Everything is taken\n"
    "over but `listen` and the options marked *restart*: they keep their value until larder is started again,\n"
    "and the log names those that differ (`reload_needs_restart`). Requests that had begun end with the\n"
    "upstreams, keys and limits they began with, and `limits.*` of the head and the body hold for connections\n"
    "accepted from then on. The environment of a running process does not change: a key that is to be\n"
    "replaced without a restart comes from a file. A certificate is also read again within seconds after its\n"
    "file was changed, without SIGHUP.\n"
    "\n"
    "**Exit status** of `larder`: 0 done, 1 failed, 2 wrong usage, 3 invalid configuration.\n"
    "\n"
    "## Options\n"
    "\n"
    "| name | default | values | takes effect on | meaning |\n"
    "|---|---|---|---|---|\n";

static const char markdown_lists[] =
    "\n"
    "## listen\n"
    "\n"
    "An address or a list of addresses, each with its port: `127.0.0.1:8080` (the default), `0.0.0.0:8080`\n"
    "for all of IPv4, `[::]:8080` for all. Names other than `localhost` are not looked up. Port 0 takes a\n"
    "free one. Variable `LARDER_LISTEN` (separated by blanks), flag `--listen` (may be repeated).\n";

static const char upstream_text[] =
    "A list; at least one. Without a file, `--upstream URL` (`LARDER_UPSTREAM`) makes one, with `--profile`,\n"
    "`--key-env`, `--key-file` and `--ca-file` beside it (`LARDER_PROFILE`, ...); it takes the place of the\n"
    "file's whole list. A URL may end in `/v1` or not: requests reach the same place either way.\n"
    "`inject_usage: auto` asks for usage on streams with every profile but anthropic, whose streams always\n"
    "carry it; a server that refuses the field `stream_options` needs `inject_usage: off`, and the usage of\n"
    "its streams is then unknown.\n\n"
    "An upstream of `kind: engine` is a model that larder runs itself; without a file, `--model PATH`\n"
    "(`LARDER_MODEL`) makes one. Its memory is planned at start, and larder refuses to start where it cannot\n"
    "fit ([serve a model](howto/serve-a-model.md)). `engine.*` is for this kind only, what is marked *http*\n"
    "for the other: elsewhere they are errors. `kind` and `engine.*` take effect on restart.";

static const char route_text[] =
    "A list. The longest prefix that fits the path counts first; among the routes with that prefix (or, where\n"
    "none fits, among those without one) the first in order whose model and header fit too. If the prefix fits\n"
    "and no other condition does, the first route with that prefix is taken; without a prefix, the first\n"
    "upstream, with `canon.mode` as it is.\n"
    "Without any routes everything goes to the first upstream, and other paths under `/v1/` are passed through.";

static const char key_text[] =
    "A list of larder's own client keys. With at least one, a request without a known key is answered 401.\n"
    "Only the SHA-256 of a key is kept in memory. Each entry has `tenant` and exactly one of `env`, `file`,\n"
    "`sha256`.";

static const char markdown_tail[] =
    "\n"
    "## aliases\n"
    "\n"
    "A map of model names: what clients write, and what goes upstream. `aliases: {fast: deepseek-chat}`\n";

/* "300 s", "300 to 1800 s"; what is not stated is said so. */
static lar_error markdown_life(lar_buf *out, const lar_provider *p) {
    if (!p->ttl_s) return lar_buf_add_slice(out, LAR_SLICE("not stated"));
    if (p->ttl_max_s == p->ttl_s) return lar_buf_printf(out, "%u s", p->ttl_s);
    if (p->ttl_max_s) return lar_buf_printf(out, "%u to %u s", p->ttl_s, p->ttl_max_s);
    return lar_buf_printf(out, "%u s or longer", p->ttl_s);
}

/* What is known of each profile's prefix cache. */
static lar_error markdown_caches(lar_buf *out) {
    TRY(lar_buf_printf(out,
                       "\nWhat is known of their prefix caches:\n\n| profile | rule | read first | shortest prefix "
                       "| step | unused entries live | source |\n|---|---|---|---|---|---|---|\n"));
    for (int i = 0; i < LAR_PROFILE_COUNT; i++) {
        const lar_provider *p = lar_profile_provider((lar_profile)i);
        TRY(lar_buf_printf(out, "| `%s` | %s | %s | %u tokens | %u | ", p->name, lar_cache_rule_name(p->rule),
                           p->order == LAR_RENDER_TOOLS_FIRST ? "tools" : "system text", p->tokens_min,
                           p->step_tokens));
        TRY(markdown_life(out, p));
        TRY(lar_buf_printf(out, " | %s, %s |\n", p->source, p->date));
    }
    return LAR_OK;
}

/* What a profile decides. */
static lar_error markdown_profiles(lar_buf *out) {
    static const char *const counts[] = {[LAR_USAGE_BY_SPELLING] = "by the spelling of the answer's usage",
                                         [LAR_USAGE_INCLUDED] = "inside the prompt tokens",
                                         [LAR_USAGE_BESIDE] = "beside the prompt tokens"};
    TRY(lar_buf_printf(
        out, "\n`profile: auto` knows `api.deepseek.com`, `api.openai.com` and `api.anthropic.com`; all else is "
             "generic.\n\n| profile | larder's key goes in | cached tokens are counted | "
             "`inject_usage: auto` |\n|---|---|---|---|\n"));
    for (int i = 0; i < LAR_PROFILE_COUNT; i++) {
        const lar_profile_row *p = lar_profile_get((lar_profile)i);
        TRY(lar_buf_printf(out, "| `%s` | `%s` | %s | %s |\n", p->name, p->auth_field, counts[p->usage_rule],
                           p->inject_usage ? "on" : "off"));
    }
    return markdown_caches(out);
}

lar_error lar_config_markdown(lar_buf *out) {
    const lar_option_table *t = lar_option_scalars();
    TRY(lar_buf_add_slice(out, LAR_SLICE(markdown_head)));
    for (uint32_t i = 0; i < t->count; i++) TRY(markdown_row(out, &t->rows[i], true));
    TRY(lar_buf_add_slice(out, LAR_SLICE(markdown_lists)));
    TRY(markdown_list(out, "upstreams", upstream_text, lar_option_upstream()));
    TRY(markdown_profiles(out));
    TRY(markdown_list(out, "routes", route_text, lar_option_route()));
    TRY(markdown_list(out, "keys", key_text, lar_option_key()));
    return lar_buf_add_slice(out, LAR_SLICE(markdown_tail));
}

/* -- deploy/larder.example.yaml -------------------------------------------------------------------- */

static lar_error sample_comment(lar_buf *out, const char *indent, const lar_option_row *row) {
    TRY(lar_buf_printf(out, "%s# %s (", indent, row->help));
    TRY(add_values(out, row, ", "));
    return lar_buf_printf(out, ")\n");
}

static lar_error sample_value(lar_buf *out, const char *indent, const char *name, const lar_option_row *row) {
    size_t len = strlen(row->def);
    bool quoted = len == 0 || row->def[len - 1] == ':'; /* else YAML would take it for the name of a map */
    return lar_buf_printf(out, "%s#%s: %s%s%s\n", indent, name, quoted ? "\"" : "", row->def, quoted ? "\"" : "");
}

/* Rows of one table as commented lines; a section's name stands before its first member. */
static lar_error sample_rows(lar_buf *out, const lar_option_table *t, const char *indent, const char *const *skip) {
    char section[NAME_BYTES] = "";
    for (uint32_t i = 0; i < t->count; i++) {
        const lar_option_row *row = &t->rows[i];
        bool left_out = false;
        for (const char *const *s = skip; *s; s++) left_out = left_out || strcmp(*s, row->path) == 0;
        left_out = left_out || row->kinds == LAR_OPTION_KINDS_ENGINE;
        if (left_out) continue;
        const char *dot = strchr(row->path, '.');
        size_t len = dot ? (size_t)(dot - row->path) : 0;
        if (dot && (strlen(section) != len || strncmp(section, row->path, len) != 0)) {
            (void)snprintf(section, sizeof section, "%.*s", (int)len, row->path);
            TRY(lar_buf_printf(out, "%s%s#%s:\n", *indent ? "" : "\n", indent, section));
        } else if (!dot && !*indent) {
            TRY(lar_buf_printf(out, "\n"));
        }
        char deeper[16];
        (void)snprintf(deeper, sizeof deeper, "%s%s", indent, dot ? "  " : "");
        TRY(sample_comment(out, deeper, row));
        TRY(sample_value(out, deeper, dot ? dot + 1 : row->path, row));
    }
    return LAR_OK;
}

static const char sample_head[] =
    "# larder's configuration, every option with its default.\n"
    "# Generated from gateway/config/config.def and lists.def by `larder config docs --sample`; edit those.\n"
    "# A \"#\" with a name right behind it is an option: delete the \"#\" to set it (and the one of its section's name).\n"
    "# `larder check -c FILE` says whether a file is valid. The reference is docs/config.md.\n"
    "\n"
    "# Where clients connect: an address, or a list of addresses. Port 0 takes a free one.\n"
    "listen: 127.0.0.1:8080\n"
    "\n"
    "# The provider. More upstreams follow as more entries of the list.\n"
    "upstreams:\n"
    "  - name: deepseek\n"
    "    url: https://api.deepseek.com\n";

static const char sample_lists[] =
    "\n"
    "# Which requests go where: the longest prefix that fits, then the first route whose other conditions all hold.\n"
    "# Without routes: the first upstream.\n"
    "#routes:\n"
    "  #- {prefix: /team-a, model: \"*\", upstream: deepseek, pass_through: false, canon: inherit}\n"
    "  #- {header: {name: X-Env, value: test}, upstream: deepseek, canon: report}\n"
    "\n"
    "# larder's own client keys; with one or more, other requests are answered 401. One of env, file and sha256 each.\n"
    "#keys:\n"
    "  #- {tenant: team-a, sha256: \"0000000000000000000000000000000000000000000000000000000000000000\"}\n"
    "\n"
    "# Model names: what clients write, what goes upstream.\n"
    "#aliases: {fast: deepseek-chat}\n";

/* A model takes memory at start: its entry is prose, and no line of it an option that deleting a "#" would set. */
static lar_error sample_engine(lar_buf *out) {
    const lar_option_table *t = lar_option_upstream();
    TRY(lar_buf_printf(out, "  # A model that larder runs itself is an upstream too:\n"
                            "  # - name: local\n  #   kind: engine\n  #   engine:\n"));
    for (uint32_t i = 0; i < t->count; i++) {
        const lar_option_row *row = &t->rows[i];
        if (row->kinds != LAR_OPTION_KINDS_ENGINE) continue;
        const char *name = strchr(row->path, '.') + 1, *def = *row->def ? row->def : "\"\"";
        TRY(lar_buf_printf(out, "  #     %s: %s  # %s (", name, def, row->help));
        TRY(add_values(out, row, ", "));
        TRY(lar_buf_printf(out, ")\n"));
    }
    return LAR_OK;
}

lar_error lar_config_sample(lar_buf *out) {
    static const char *const written[] = {"name", "url", "kind", NULL}, *const none[] = {NULL};
    TRY(lar_buf_add_slice(out, LAR_SLICE(sample_head)));
    TRY(sample_rows(out, lar_option_upstream(), "    ", written));
    TRY(sample_engine(out));
    TRY(lar_buf_add_slice(out, LAR_SLICE(sample_lists)));
    return sample_rows(out, lar_option_scalars(), "", none);
}
