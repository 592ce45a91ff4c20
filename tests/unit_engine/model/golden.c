/* The golden models: reads cases.json and expected.safetensors, runs the model under test, measures the distance. */
#include "tests/unit_engine/model/golden.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "engine/files/safetensors.h"

const char *const golden_names[] = {"v2lite-bf16", "v2-groups-bf16", "v3-fp8", "moonlight-f32", "glm-flash-bf16"};

enum { TEXT_MAX = 1 << 20 };

static void must(lar_error e, const lar_diag *d) {
    if (e) fail_msg("%s: %s", lar_error_name(e), d->text);
}

static uint32_t *numbers(const lar_json *j, uint32_t list, uint32_t *count) {
    *count = list == LAR_JSON_NONE ? 0 : j->nodes[list].count;
    uint32_t *out = calloc(*count + 1u, sizeof *out), i = 0;
    for (uint32_t n = lar_json_first(j, list); n != LAR_JSON_NONE; n = lar_json_after(j, list, n)) {
        uint64_t v;
        assert_true(lar_json_u64(j, n, &v));
        out[i++] = (uint32_t)v;
    }
    return out;
}

static void read_case(golden_case *c, const lar_json *j, uint32_t node) {
    lar_slice name = lar_json_inner(j, lar_json_get(j, node, "name"));
    uint32_t margins = lar_json_get(j, node, "margin"), i = 0;
    (void)snprintf(c->name, sizeof c->name, "%.*s", LAR_FMT(name));
    c->ids = numbers(j, lar_json_get(j, node, "ids"), &c->count);
    c->positions = numbers(j, lar_json_get(j, node, "positions"), &c->position_count);
    c->continuation = numbers(j, lar_json_get(j, node, "continuation"), &c->continuation_count);
    c->margin = calloc(c->continuation_count + 1u, sizeof *c->margin);
    for (uint32_t n = lar_json_first(j, margins); n != LAR_JSON_NONE; n = lar_json_after(j, margins, n))
        assert_true(i < c->continuation_count && lar_json_double(j, n, &c->margin[i++]));
}

static void read_cases(golden *g, const char *folder) {
    char path[512];
    lar_buf text;
    lar_json j;
    lar_diag d = {0};
    (void)snprintf(path, sizeof path, "%s/cases.json", folder);
    lar_buf_init(&text, TEXT_MAX);
    lar_json_init(&j);
    must(lar_file_read(path, LAR_FILE_REGULAR, &text, &d), &d);
    must(lar_json_parse(&j, lar_buf_slice(&text), &LAR_JSON_LIMITS_DEFAULT, &d), &d);
    uint32_t list = lar_json_get(&j, 0, "cases");
    for (uint32_t n = lar_json_first(&j, list); n != LAR_JSON_NONE; n = lar_json_after(&j, list, n)) {
        assert_true(g->case_count < GOLDEN_CASES_MAX);
        read_case(&g->cases[g->case_count++], &j, n);
    }
    lar_json_release(&j);
    lar_buf_release(&text);
}

static void read_expected(golden *g, const char *folder) {
    char path[512];
    lar_diag d = {0};
    lar_file_view file;
    lar_tensor_list l;
    (void)snprintf(path, sizeof path, "%s/expected.safetensors", folder);
    must(lar_mapped_file_open(path, &file, &d), &d);
    lar_tensor_list_init(&l);
    must(lar_safetensors_read(&file, &l, &d), &d);
    for (uint32_t i = 0; i < l.count; i++)
        for (uint32_t k = 0; k < g->case_count; k++) {
            golden_case *c = &g->cases[k];
            size_t n = strlen(c->name);
            if (strncmp(l.items[i].name, c->name, n) != 0 || strcmp(l.items[i].name + n, ".logits") != 0) continue;
            assert_int_equal(lar_tensor_rows(&l.items[i]), c->position_count);
            assert_int_equal(lar_tensor_row_elements(&l.items[i]), g->config.vocab);
            c->expected = malloc((size_t)c->position_count * g->config.vocab * sizeof *c->expected);
            for (uint32_t r = 0; r < c->position_count; r++)
                lar_tensor_row(&l.items[i], r, c->expected + (size_t)r * g->config.vocab);
        }
    lar_tensor_list_release(&l);
    lar_mapped_file_close(&file);
}

void golden_open(golden *g, const char *name, const lar_kernels *kernels, lar_activations activations) {
    char folder[400];
    lar_diag d = {0};
    memset(g, 0, sizeof *g);
    g->name = name;
    g->kv = "f32";
    (void)snprintf(folder, sizeof folder, "%s/%s", GOLDEN_MODELS_DIR, name);
    must(lar_model_files_open(folder, &g->files, &d), &d);
    must(lar_config_read(&g->config, g->files, &d), &d);
    lar_weights_options o = {.kernels = kernels ? kernels : lar_kernels_reference(), .activations = activations};
    must(lar_weights_load(&g->weights, &g->config, g->files, &o, &d), &d);
    read_cases(g, folder);
    read_expected(g, folder);
}

void golden_close(golden *g) {
    for (uint32_t i = 0; i < g->case_count; i++) {
        golden_case *c = &g->cases[i];
        free(c->ids), free(c->positions), free(c->continuation), free(c->margin), free(c->expected);
    }
    lar_weights_release(&g->weights);
    lar_model_files_close(g->files);
}

const golden_case *golden_find(const golden *g, const char *name) {
    for (uint32_t i = 0; i < g->case_count; i++)
        if (strcmp(g->cases[i].name, name) == 0) return &g->cases[i];
    fail_msg("%s has no case %s", g->name, name);
    return NULL;
}

lar_latent_cache *golden_cache(const lar_model_config *c, const char *kv, uint32_t capacity) {
    uint8_t formats[LAR_LAYERS_MAX];
    lar_diag d = {0};
    lar_latent_cache *k;
    must(lar_kv_layers_parse(kv, c->layers, formats, &d), &d);
    lar_page_layout layout = lar_forward_layout(c, formats);
    must(lar_latent_cache_new_alone(&layout, capacity, &k, &d), &d);
    return k;
}

float *golden_logits(const golden *g, const golden_case *c, golden_run how) {
    lar_diag d = {0};
    lar_forward *f;
    lar_latent_cache *k = golden_cache(&g->config, g->kv, c->count);
    uint32_t chunk = how.chunk < c->count ? how.chunk : c->count, next = 0;
    lar_forward_options o = {.tokens_max = chunk, .logits_max = chunk, .form = how.form};
    float *logits = malloc((size_t)c->position_count * g->config.vocab * sizeof *logits);
    must(lar_forward_new(&g->config, &g->weights, &o, &f, &d), &d);
    for (uint32_t from = 0; from < c->count; from += chunk) {
        uint32_t wanted[8];
        lar_forward_part p = {k, c->ids + from, chunk < c->count - from ? chunk : c->count - from, wanted, 0, 0};
        float *out = logits + (size_t)next * g->config.vocab;
        while (next < c->position_count && c->positions[next] < from + p.count)
            wanted[p.wanted_count++] = c->positions[next++] - from;
        must(lar_forward_run(f, &p, 1, out, &d), &d);
    }
    assert_int_equal(next, c->position_count);
    lar_latent_cache_free(k);
    lar_forward_free(f);
    return logits;
}

double golden_deviation(const golden *g, const golden_case *c) {
    double sum = 0, squares = 0, n = (double)c->position_count * g->config.vocab;
    for (size_t i = 0; i < (size_t)n; i++) sum += (double)c->expected[i], squares += pow((double)c->expected[i], 2);
    return sqrt(squares / n - pow(sum / n, 2));
}

double golden_distance(const golden *g, const golden_case *c, const float *logits) {
    double worst = 0;
    for (size_t i = 0; i < (size_t)c->position_count * g->config.vocab; i++) {
        double off = fabs((double)logits[i] - (double)c->expected[i]);
        if (!(off <= worst)) worst = off == off ? off : INFINITY;
    }
    return worst / golden_deviation(g, c);
}

double golden_worst(const golden *g, golden_run how) {
    double worst = 0;
    for (uint32_t i = 0; i < g->case_count; i++) {
        if (!g->cases[i].expected) continue;
        float *logits = golden_logits(g, &g->cases[i], how);
        worst = fmax(worst, golden_distance(g, &g->cases[i], logits));
        free(logits);
    }
    return worst;
}

void golden_feed(lar_forward *f, lar_latent_cache *k, const uint32_t *ids, uint32_t count, float *logits) {
    lar_diag d = {0};
    uint32_t last = count - 1;
    must(lar_forward_run(f, &(lar_forward_part){k, ids, count, &last, 1, 0}, 1, logits, &d), &d);
}
