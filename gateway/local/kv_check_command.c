/* larder kv-check: options (header: kv_check_command.h).
 * Called by main.c; kv_check.c measures, kv_check_report.c prints. One thread; blocks. Memory: argv, and the text.
 * Why float32 activations unless asked otherwise: what is measured is then the rounding of latents alone. */
#include "gateway/local/kv_check_command.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "engine/cache/kv_layers.h"
#include "engine/model/model_config.h"
#include "gateway/config/option_value.h"
#include "gateway/local/compute_options.h"
#include "gateway/local/kv_check_report.h"

enum { TOKENS = 4096, TOKENS_MAX = 1 << 28, WINDOW = 512, TEXT_BYTES_MAX = 1 << 28, KV_BYTES_MAX = 1 << 12 };

static const char usage[] =
    "usage: larder kv-check --model PATH --text FILE [options]\n"
    "How much quality each format of latents costs a model, against bf16 on a text: perplexity, KL divergence of the\n"
    "next token's distribution, the share of tokens with the same likeliest next one, and where a greedy answer first\n"
    "differs; then the same for each layer alone in fp8, and which layers to keep at 16 bits.\n"
    "  --model PATH    a Hugging Face folder or FILE.gguf\n"
    "  --text FILE     what the model reads; - is standard input. Use what it will be used for, some pages of it\n"
    "  --kv LIST       formats to compare (all): f32,fp8,int8; by layer too: fp8,0=bf16,24-26=bf16,int8 are two\n"
    "  --tokens N      of the text, at most (4096)\n"
    "  --window N      tokens that are read in one piece (512, or the model's context): longer ones show what\n"
    "                  rounding does to long conversations\n"
    "  --limit N       per cent by which a perplexity may grow (1)\n"
    "  --json          for programs\n" LAR_COMPUTE_HELP "Activations are f32 unless something else is asked for.\n";

typedef struct options {
    const char *model, *text, *kv, *tokens, *window, *limit;
    lar_compute_options compute;
    bool json;
} options;

#define AT(member) offsetof(options, member)
static const lar_local_option all[] = {
    {"--model", AT(model), LAR_LOCAL_TEXT, 0},   {"--text", AT(text), LAR_LOCAL_TEXT, 0},
    {"--kv", AT(kv), LAR_LOCAL_TEXT, 0},         {"--tokens", AT(tokens), LAR_LOCAL_TEXT, 0},
    {"--window", AT(window), LAR_LOCAL_TEXT, 0}, {"--limit", AT(limit), LAR_LOCAL_TEXT, 0},
    {"--json", AT(json), LAR_LOCAL_FLAG, 0},     LAR_COMPUTE_ROWS(AT(compute)),
};
static const lar_local_options table = {"kv-check", usage, all, sizeof all / sizeof *all};

static int bad(const char *format, const char *what) { return lar_local_options_bad(&table, format, what); }

static int failed(const char *path, lar_error e, const lar_diag *d) {
    (void)fprintf(stderr, "larder kv-check: %s: %s", path, *d->text ? d->text : lar_error_text(e));
    if (d->has_offset) (void)fprintf(stderr, " (at byte %llu)", (unsigned long long)d->offset);
    (void)fprintf(stderr, "\n");
    return LAR_LOCAL_FAILED;
}

static bool read_number(const char *text, uint64_t otherwise, uint64_t least, uint64_t most, uint64_t *out) {
    *out = otherwise;
    return !text || (!lar_value_number(lar_slice_cstr(text), out, NULL) && *out >= least && *out <= most);
}

/* Cuts the list, where it lies, into formats: a part with '=' belongs to the format before it. */
static lar_error read_formats(char *list, lar_kv_check_request *r, lar_diag *d) {
    uint8_t kv[LAR_LAYERS_MAX];
    lar_diag why = {0};
    for (char *next = list; next;) {
        char *comma = strchr(next, ',');
        while (comma && strcspn(comma + 1, ",") > strcspn(comma + 1, "=")) comma = strchr(comma + 1, ',');
        if (comma) *comma = 0;
        if (r->kv_count == LAR_KV_CHECK_FORMATS_MAX)
            return lar_fail(LAR_LIMIT, d, "--kv: more than %d formats", LAR_KV_CHECK_FORMATS_MAX);
        if (lar_kv_layers_parse(next, LAR_LAYERS_MAX, kv, &why)) return lar_fail(LAR_INVALID, d, "--kv %s", why.text);
        r->kv[r->kv_count++] = next;
        next = comma ? comma + 1 : NULL;
    }
    return LAR_OK;
}

/* All that can be wrong before the model is open. -1: go on. */
static int read_options(const options *o, char kv[KV_BYTES_MAX], lar_kv_check_request *r, lar_engine_options *how) {
    lar_diag d = {0};
    uint64_t window;
    char *end = NULL;
    if (!o->model) return bad("%s is missing", "--model");
    if (!o->text) return bad("%s is missing", "--text");
    if (!read_number(o->tokens, TOKENS, 2, TOKENS_MAX, &r->tokens))
        return bad("--tokens %.40s: expected 2 or more", o->tokens);
    if (!read_number(o->window, 0, 2, LAR_CONTEXT_MAX, &window))
        return bad("--window %.40s: expected 2 or more", o->window);
    r->window = (uint32_t)window;
    r->limit = o->limit ? strtod(o->limit, &end) / 100 : 0.01;
    if (o->limit && (end == o->limit || *end || !(r->limit >= 0) || !isfinite(r->limit)))
        return bad("--limit %.40s: expected per cent, 0 or more", o->limit);
    if (o->kv && strlen(o->kv) >= KV_BYTES_MAX) return bad("%s: too long", "--kv");
    for (int i = 0; !o->kv && i < LAR_KV_COUNT; i++) r->kv[r->kv_count++] = lar_kv_info_of((lar_kv)i)->name;
    if (o->kv) memcpy(kv, o->kv, strlen(o->kv) + 1);
    if (o->kv && read_formats(kv, r, &d)) return bad("%s", d.text);
    if (lar_compute_options_read(&o->compute, LAR_ACTIVATIONS_F32, how, &d)) return bad("%s", d.text);
    return -1;
}

static void show_progress(void *context, uint64_t done, uint64_t total) {
    (void)context;
    (void)fprintf(stderr, "\rreading: %.0f %%  ", 100 * (double)done / (double)total);
    if (done >= total) (void)fprintf(stderr, "\r%*s\r", 20, "");
}

static int check(const options *o, lar_kv_check_request *r, lar_diag *d) {
    lar_kv_check c = {0};
    lar_kv_check_story s = {o->model, o->text, lar_engine_info_of(r->engine), &c, r->limit};
    if (!r->window) r->window = s.info.context < WINDOW ? s.info.context : WINDOW;
    int code = LAR_LOCAL_OK;
    lar_error e = LAR_OK;
    if (r->window > s.info.context)
        e = lar_fail(LAR_LIMIT, d, "--window %u: the model's context is %u", r->window, s.info.context);
    if (!e) e = lar_kv_check_run(r, &c, d);
    if (!e && o->json) e = lar_kv_check_print_json(&s, stdout);
    else if (!e) lar_kv_check_print(&s, stdout);
    if (e) code = failed(o->model, e, d);
    lar_kv_check_release(&c);
    return code;
}

int lar_command_kv_check(int argc, char **argv) {
    options o = {0};
    char kv[KV_BYTES_MAX];
    lar_kv_check_request r = {.progress = isatty(STDERR_FILENO) ? show_progress : NULL};
    lar_engine_options how = {.attention = LAR_ATTENTION_ABSORBED};
    lar_engine_text beside = {0};
    lar_diag d = {0};
    lar_buf text;
    int code = lar_local_options_take(&table, argc, argv, &o);
    if (code < 0) code = read_options(&o, kv, &r, &how);
    if (code >= 0) return code;
    const char *path = strcmp(o.text, "-") == 0 ? "/dev/stdin" : o.text;
    how.path = o.model;
    lar_buf_init(&text, TEXT_BYTES_MAX);
    lar_error e = lar_file_read(path, LAR_FILE_OR_STREAM, &text, &d);
    if (e) code = failed(path, e, &d);
    if (!e) {
        e = lar_engine_open(&how, &r.engine, &d);
        if (!e) e = lar_engine_text_read(r.engine, &beside, &d);
        if (e) code = failed(o.model, e, &d);
    }
    r.text = &beside;
    r.source = lar_buf_slice(&text);
    if (!e) code = check(&o, &r, &d);
    lar_engine_text_release(&beside);
    lar_engine_close(r.engine);
    lar_buf_release(&text);
    return code;
}
