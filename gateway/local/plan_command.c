/* larder plan: options, where the model's numbers come from, and what is asked of the sums (header: plan_command.h).
 * Flow: main.c calls; engine/plan reads and computes; plan_report.c prints; --config is plan_serve.c's. One thread;
 * blocks on the model's headers.
 * Why exit code 1 where it does not fit: a script that starts a model asks this first.
 * Not here: the arithmetic (engine/plan), the table (plan_report.c). */
#include "gateway/local/plan_command.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "engine/cache/kv_layers.h"
#include "engine/engine.h"
#include "gateway/local/local_options.h"
#include "gateway/local/plan_report.h"
#include "gateway/local/plan_serve.h"

static const char usage[] =
    "usage: larder plan --model PATH [options]\n"
    "       larder plan --layers N (--kv-heads N --head-dim N | --rank N --rope N) [options]\n"
    "       larder plan --config FILE [--memory SIZE] [--json]\n"
    "The memory that a model and its requests take, whether it fits, and what to change if not. Reads a Hugging Face\n"
    "folder, a config.json alone (of any model with attention), or GGUF; no weights are loaded. Exit code 0: it fits, 1: "
    "it does not.\n"
    "  --config FILE      what larder serve -c FILE will take for its models (kind: engine), of the memory that is left\n"
    "                     on this machine; exit code 3: the configuration is not valid\n"
    "  --model PATH       folder, config.json or FILE.gguf\n"
    "  --preset NAME      long (one conversation of 131072 tokens), short (32 requests of 4096), agents (8 of 65536)\n"
    "  --context N        tokens of a request, prompt and answer (default 8192; 128K is 131072)\n"
    "  --sequences N      requests at the same time (default 1)\n"
    "  --kv FORMATS       how keys and values are kept: f32, f16 (default), bf16, int8, fp8, int8-128; by layer as\n"
    "                     fp8,0=bf16,24-26=bf16\n"
    "  --expert-bytes SIZE   most memory for experts; the others stay on disk (default: all are in memory)\n"
    "  --weights TYPE     count the weights as bf16, fp8, q8_0, q6_k, q5_k, q4_k, ... (default: as they are stored)\n"
    "  --memory SIZE      of the machine, as 64G (default: this machine's)\n"
    "  --reserve SIZE     of it, to stay free for the system (default: 15 %, from 1G to 16G)\n"
    "  --json             for programs\n"
    "  --help             this text\n"
    "Numbers instead of a model, or over those of its config.json:\n"
    "  --layers N         layers with attention\n"
    "  --kv-heads N       heads of keys and values, with --head-dim N and, where it differs, --value-dim N\n"
    "  --rank N           of the latent (MLA), with --rope N, the values of its rotated part\n"
    "  --parameters N     as 15.7B\n";

typedef struct preset {
    const char *name;
    uint64_t sequences, context;
} preset;
static const preset presets[] = {{"long", 1, 131072}, {"short", 32, 4096}, {"agents", 8, 65536}};

typedef struct options {
    const char *model, *config;
    uint64_t field[LAR_PLAN_FIELD_COUNT]; /* given by hand; 0: not */
    uint64_t parameters, context, sequences, memory, reserve, experts;
    const preset *preset;
    const char *kv;
    bool requantised, json;
    lar_dtype weights;
} options;

enum { LAYERS_MAX = 4096 /* of plan_field.def */ };

typedef struct plan_command {
    lar_plan_story story;
    uint8_t kv[LAYERS_MAX]; /* (layers) of lar_kv */
    char *kv_text;
} plan_command;

static const struct {
    const char *name;
    lar_plan_field field;
} field_options[] = {{"--layers", LAR_PLAN_LAYERS},       {"--kv-heads", LAR_PLAN_KV_HEADS},
                     {"--head-dim", LAR_PLAN_HEAD_DIM},   {"--rank", LAR_PLAN_RANK},
                     {"--value-dim", LAR_PLAN_VALUE_DIM}, {"--rope", LAR_PLAN_ROPE}};

/* As written; the index is the row's. */
typedef struct given {
    const char *value[17];
    bool json;
} given;

#define ROW(name, i)                                                                                                   \
    { name, offsetof(given, value) + (i) * sizeof(const char *), LAR_LOCAL_TEXT, 0 }
static const lar_local_option rows[] = {ROW("--layers", 0),      ROW("--kv-heads", 1),
                                        ROW("--head-dim", 2),    ROW("--rank", 3),
                                        ROW("--value-dim", 4),   ROW("--rope", 5),
                                        ROW("--model", 6),       ROW("--preset", 7),
                                        ROW("--context", 8),     ROW("--sequences", 9),
                                        ROW("--kv", 10),         ROW("--weights", 11),
                                        ROW("--memory", 12),     ROW("--reserve", 13),
                                        ROW("--parameters", 14), ROW("--expert-bytes", 15),
                                        ROW("--config", 16),     {"--json", offsetof(given, json), LAR_LOCAL_FLAG, 0}};
#undef ROW
enum { VALUES = sizeof rows / sizeof *rows - 1 };
_Static_assert((int)VALUES == (int)(sizeof(((given *)0)->value) / sizeof(const char *)), "a place for each value");

static int refuse(const char *name, const char *value, const char *want) {
    (void)fprintf(stderr, "larder: %s '%.100s': %s\n", name, value, want);
    return 2;
}

/* Bytes: 64G, 64GB and 64GiB are the same, as memory is sold. */
static int take_size(const char *name, const char *value, uint64_t *out) {
    return lar_local_size(value, out) ? -1 : refuse(name, value, "a size as 64G or 512M");
}

static int take_count(const char *name, const char *value, uint64_t most, uint64_t *out) {
    char want[64];
    (void)snprintf(want, sizeof want, "a whole number from 1 to %" PRIu64, most);
    return lar_local_number(value, 1024, "?KM", out) && *out <= most ? -1 : refuse(name, value, want);
}

static int take_kv(options *o, const char *value) {
    uint8_t kv[LAYERS_MAX];
    lar_diag d = {0};
    o->kv = value;
    if (!lar_kv_layers_parse(value, LAYERS_MAX, kv, &d)) return -1; /* the model may have fewer */
    (void)fprintf(stderr, "larder: --kv %s\n", d.text);
    return 2;
}

static int take_weights(options *o, const char *value) {
    char name[LAR_PLAN_TYPE_BYTES], list[200] = "";
    size_t n = 0;
    for (int i = 0; i < LAR_DTYPE_COUNT; i++) {
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "",
                              lar_plan_weights_name((lar_dtype)i, name));
        if (strcasecmp(value, name) != 0) continue;
        o->requantised = true;
        o->weights = (lar_dtype)i;
        return -1;
    }
    return refuse("--weights", value, list);
}

static int take_preset(options *o, const char *value) {
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (!strcmp(value, presets[i].name)) o->preset = &presets[i];
    return o->preset ? -1 : refuse("--preset", value, "long, short or agents");
}

/* -1 taken, else the exit code. */
static int take_value(options *o, const char *name, const char *value) {
    for (size_t i = 0; i < sizeof field_options / sizeof *field_options; i++)
        if (!strcmp(name, field_options[i].name))
            return take_count(name, value, lar_plan_field_info_of(field_options[i].field)->most,
                              &o->field[field_options[i].field]);
    if (!strcmp(name, "--model")) return o->model = value, -1;
    if (!strcmp(name, "--config")) return o->config = value, -1;
    if (!strcmp(name, "--preset")) return take_preset(o, value);
    if (!strcmp(name, "--kv")) return take_kv(o, value);
    if (!strcmp(name, "--weights")) return take_weights(o, value);
    if (!strcmp(name, "--context")) return take_count(name, value, 1u << 30, &o->context);
    if (!strcmp(name, "--sequences")) return take_count(name, value, 1u << 20, &o->sequences);
    if (!strcmp(name, "--memory")) return take_size(name, value, &o->memory);
    if (!strcmp(name, "--reserve")) return take_size(name, value, &o->reserve);
    if (!strcmp(name, "--expert-bytes")) return take_size(name, value, &o->experts);
    /* --parameters */
    bool ok = lar_local_number(value, 1000, "?KMBT", &o->parameters) && o->parameters <= 100000000000000000u;
    return ok ? -1 : refuse(name, value, "a number as 15.7B or 600M");
}

/* Options that go with neither kind of attention, or not with the other one, by name; NULL: none. */
static const char *given_in_vain(const options *o, bool latent) {
    for (size_t i = 0; i < sizeof field_options / sizeof *field_options; i++) {
        lar_plan_field f = field_options[i].field;
        bool of_latent = f == LAR_PLAN_RANK || f == LAR_PLAN_ROPE;
        if (o->field[f] && f != LAR_PLAN_LAYERS && of_latent != latent) return field_options[i].name;
    }
    return NULL;
}

/* What cannot stand together. -1, or the exit code. */
static int check_together(const options *o) {
    const char *heads = given_in_vain(o, true), *latent = given_in_vain(o, false);
    if (heads && latent) {
        (void)fprintf(stderr, "larder: %s is of attention by heads, %s of latent attention; a model has one of them\n",
                      heads, latent);
        return 2;
    }
    if (!o->config) return -1;
    bool more = o->model || o->field[LAR_PLAN_LAYERS] || heads || latent || o->parameters || o->context ||
                o->sequences || o->reserve || o->experts || o->preset || o->requantised || o->kv;
    if (!more) return -1;
    (void)fprintf(stderr, "larder: with --config only --memory and --json; the rest is what the file says\n");
    return 2;
}

/* -1 to go on, or the exit code. */
static int parse(options *o, int argc, char **argv) {
    const lar_local_options all = {"plan", usage, rows, sizeof rows / sizeof *rows};
    given g = {.json = false};
    int rc = lar_local_options_take(&all, argc, argv, &g);
    for (int i = 0; rc == -1 && i < VALUES; i++)
        if (g.value[i]) rc = take_value(o, rows[i].name, g.value[i]);
    if (rc == -1) rc = check_together(o);
    if (rc != -1) return rc;
    o->json = g.json;
    if (o->config || o->model || o->field[LAR_PLAN_LAYERS]) return -1;
    (void)fprintf(stderr, "larder: which model? --model PATH, or its numbers from --layers on\n%s", usage);
    return LAR_LOCAL_USAGE;
}

static void note(lar_plan_story *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void note(lar_plan_story *s, const char *format, ...) {
    if (s->note_count == LAR_PLAN_NOTES_MAX) return;
    va_list list;
    va_start(list, format);
    (void)vsnprintf(s->notes[s->note_count++], LAR_PLAN_NOTE_BYTES, format, list);
    va_end(list);
}

static lar_error read_config(lar_plan_model *m, const char *path, lar_file_kinds kinds, lar_diag *d) {
    lar_buf text;
    lar_buf_init(&text, 16u << 20);
    lar_error e = lar_file_read(path, kinds, &text, d);
    if (!e) e = lar_plan_model_from_config(m, lar_buf_slice(&text), d);
    lar_buf_release(&text);
    return e;
}

/* A folder whose weights are not there, or are of a type that larder does not read, still has its config.json. */
static lar_error read_folder(lar_plan_story *s, const char *path, lar_diag *d) {
    char config[4096];
    int n = snprintf(config, sizeof config, "%s/config.json", path);
    if (n < 0 || (size_t)n >= sizeof config) return lar_fail(LAR_LIMIT, d, "the path is too long");
    lar_diag why = *d;
    s->model = (lar_plan_model){0};
    lar_error e = read_config(&s->model, config, LAR_FILE_REGULAR, d);
    if (!e) note(s, "the weights are estimated from config.json: %.160s", why.text);
    return e;
}

static lar_error read_model(lar_plan_story *s, const char *path, lar_diag *d) {
    struct stat found;
    size_t len = strlen(path);
    bool folder = stat(path, &found) == 0 && S_ISDIR(found.st_mode);
    if (!folder && (len < 5 || strcmp(path + len - 5, ".gguf") != 0))
        return read_config(&s->model, path, LAR_FILE_OR_STREAM, d);
    lar_model_files *f = NULL;
    lar_error e = lar_model_files_open(path, &f, d);
    if (!e) e = lar_plan_model_from_files(&s->model, f, d);
    lar_model_files_close(f);
    return e && folder && !f ? read_folder(s, path, d) : e;
}

/* What was given by hand wins. A kind of attention given by hand replaces the model's other kind. */
static lar_error settle_model(lar_plan_story *s, const options *o, lar_diag *d) {
    lar_plan_model *m = &s->model;
    lar_error e = o->model ? read_model(s, o->model, d) : LAR_OK;
    if (e) return e;
    if (o->field[LAR_PLAN_KV_HEADS]) m->field[LAR_PLAN_RANK] = 0;
    for (int i = 0; i < LAR_PLAN_FIELD_COUNT; i++)
        if (o->field[i]) m->field[i] = o->field[i];
    if (o->parameters) m->parameters = o->parameters;
    if (!o->model) m->stored = LAR_DTYPE_BF16;
    e = lar_plan_model_finish(m, d);
    const char *vain = e ? NULL : given_in_vain(o, m->latent);
    if (vain)
        e = lar_fail(LAR_INVALID, d, "%s changes nothing: the model has %s", vain,
                     m->latent ? "latent attention (--rank, --rope)" : "attention by heads (--kv-heads, --head-dim)");
    return e;
}

/* The formats of as many layers as the model has. */
static lar_error settle_kv(plan_command *c, const options *o, lar_diag *d) {
    lar_plan_request *r = &c->story.request;
    uint32_t layers = (uint32_t)c->story.model.field[LAR_PLAN_LAYERS];
    lar_diag why = {0};
    lar_error e = lar_kv_layers_parse(o->kv, layers, c->kv, &why);
    if (e) return lar_fail(e, d, "--kv %s", why.text);
    r->kv = (lar_kv)c->kv[0];
    if (layers == 1 || memcmp(c->kv, c->kv + 1, layers - 1) == 0) return LAR_OK;
    r->kv_layers = c->kv;
    c->story.kv = c->kv_text = lar_kv_layers_text(c->kv, layers);
    return c->kv_text ? LAR_OK : LAR_NO_MEMORY;
}

static void settle_request(lar_plan_story *s, const options *o) {
    lar_plan_request *r = &s->request;
    uint64_t most = s->model.field[LAR_PLAN_CONTEXT];
    *r = (lar_plan_request){.requantised = o->requantised, .weights = o->weights, .experts = o->experts};
    r->context = o->preset ? o->preset->context : 8192;
    if (most && r->context > most) r->context = most;
    if (o->context) r->context = o->context;
    r->sequences = o->sequences ? o->sequences : o->preset ? o->preset->sequences : 1;
    r->memory = o->memory;
    if (!r->memory) r->memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    r->reserve = o->reserve ? o->reserve : lar_plan_reserve(r->memory);
    if (!o->memory) note(s, "the memory is this machine's; --memory plans for another");
    if (most && r->context > most)
        note(s, "the model was made for %" PRIu64 " tokens; beyond them its answers decay", most);
}

static void add_notes(lar_plan_story *s) {
    const lar_plan_model *m = &s->model;
    if (m->layers_windowed)
        note(s, "%" PRIu64 " of the layers keep only the last %" PRIu64 " tokens", m->layers_windowed,
             m->field[LAR_PLAN_WINDOW]);
    if (s->request.experts && !m->field[LAR_PLAN_EXPERTS])
        note(s, "the model has no experts: --expert-bytes changes nothing");
    if (m->layers_stateless)
        note(s, "%" PRIu64 " layers of linear attention keep a state of fixed size, not counted", m->layers_stateless);
    if (m->window_unclear)
        note(s, "a window of %" PRIu64 " tokens is named, but not for which layers: all are counted whole",
             m->field[LAR_PLAN_WINDOW]);
    if (!strcmp(m->type, "deepseek_v32"))
        note(
            s,
            "other servers add 132 bytes a token and layer, the index of its sparse attention; larder runs it without, "
            "up to 2048 tokens");
}

/* A model that larder runs, as it is: what its engine would take on this machine, instead of estimates. */
static void measure(lar_plan_story *s, const options *o) {
    lar_engine_sizes sizes;
    lar_diag why = {0};
    lar_engine_options e = {.path = o->model, .activations = LAR_ACTIVATIONS_BY_TYPE, .page_bytes = 1};
    e.expert_bytes = o->experts;
    for (int i = 0; i < LAR_PLAN_FIELD_COUNT; i++)
        if (o->field[i]) return;
    if (!o->model || o->requantised || o->parameters || !s->model.file_bytes) return;
    lar_error error = lar_engine_measure(&e, &sizes, &why);
    if (error == LAR_LIMIT && o->experts) note(s, "larder would not run it: %.200s", why.text);
    if (error) return;
    s->request.held = sizes.packed_bytes + sizes.mapped_bytes;
    if (!o->memory) s->request.scratch = sizes.scratch_bytes; /* another machine has other threads */
}

static lar_error tell(plan_command *c, const options *o, lar_diag *d) {
    lar_plan_story *s = &c->story;
    s->name = o->model ? o->model : "";
    lar_error e = settle_model(s, o, d);
    if (e) return e;
    settle_request(s, o);
    e = settle_kv(c, o, d);
    if (e) return e;
    measure(s, o);
    e = lar_plan_compute(&s->model, &s->request, &s->plan, d);
    if (e) return e;
    s->most_sequences = lar_plan_most_sequences(&s->model, &s->request);
    s->most_context = lar_plan_most_context(&s->model, &s->request);
    s->change_count = lar_plan_changes(&s->model, &s->request, s->changes);
    add_notes(s);
    return LAR_OK;
}

int lar_command_plan(int argc, char **argv) {
    options o = {0};
    int rc = parse(&o, argc, argv);
    if (rc >= 0) return rc;
    if (o.config) return lar_plan_serve(o.config, o.memory, o.json);
    if (!o.kv) o.kv = "f16";
    plan_command *c = calloc(1, sizeof *c);
    if (!c) return (void)fprintf(stderr, "larder: %s\n", lar_error_text(LAR_NO_MEMORY)), 1;
    lar_diag d = {0};
    lar_error e = tell(c, &o, &d);
    if (!e && o.json) e = lar_plan_print_json(&c->story, stdout);
    else if (!e) lar_plan_print(&c->story, stdout);
    if (e)
        (void)fprintf(stderr, "larder: %.200s%s%s\n", o.model ? o.model : "plan", *d.text ? ": " : ": ",
                      *d.text ? d.text : lar_error_text(e));
    rc = e || c->story.plan.verdict == LAR_PLAN_OVER;
    free(c->kv_text);
    free(c);
    return rc;
}
