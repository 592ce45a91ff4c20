/* write_model: a model with random weights, as GGUF or as a Hugging Face folder, to hold larder against other programs.
 * Run by hand and by scripts; see usage. Not a test. What the weights are: model_maker.c. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/unit_engine/files/model_maker.h"

static const char usage[] =
    "usage: write_model OUT [--folder] [--shape NAME] [--type TYPE] [--legacy] [--NAME N]...\n"
    "Writes a model with random weights: a GGUF file of architecture deepseek2, or with --folder a Hugging Face folder.\n"
    "The same shape and seed give the same weights in every form and type, but for the type's rounding.\n"
    "  --shape NAME   tiny-lite (default), tiny-v3, v2lite (V2-Lite's widths, 4 layers)\n"
    "  --type TYPE    of matrices: F32 F16 BF16 Q4_0 Q5_0 Q5_1 Q8_0 Q4_K Q5_K Q6_K IQ4_NL IQ4_XS, Q4_K_MIX;\n"
    "                 in folders F32 F16 BF16 F8_E4M3\n"
    "  --legacy       GGUF: attn_kv_b whole, as files had it before attn_k_b and attn_v_b\n"
    "  --no-yarn      plain rope\n"
    "  --NAME N       one number of the shape: layers dense-layers hidden heads q-rank kv-rank nope rope v-dim dense-ff\n"
    "                 expert-ff experts experts-used shared groups groups-used vocab context yarn-original seed\n"
    "                 embedding (its spread: 1; with 8, rounding inside the layers matters less)\n"
    "                 jitter (a seed: norms differ by 0.7 %, as much as rounding to eight bits changes activations)\n"
    "llama.cpp takes a model without q-rank only if it has 26 or 27 layers.\n";

static bool set_number(model_shape *s, const char *name, const char *text) {
    const struct {
        const char *name;
        uint64_t *at;
    } numbers[] = {{"layers", &s->layers},
                   {"dense-layers", &s->dense_layers},
                   {"hidden", &s->hidden},
                   {"heads", &s->heads},
                   {"q-rank", &s->q_rank},
                   {"kv-rank", &s->kv_rank},
                   {"nope", &s->nope},
                   {"rope", &s->rope},
                   {"v-dim", &s->v_dim},
                   {"dense-ff", &s->dense_ff},
                   {"expert-ff", &s->expert_ff},
                   {"experts", &s->experts},
                   {"experts-used", &s->experts_used},
                   {"shared", &s->shared},
                   {"groups", &s->groups},
                   {"groups-used", &s->groups_used},
                   {"vocab", &s->vocab},
                   {"context", &s->context},
                   {"yarn-original", &s->yarn_original},
                   {"seed", &s->seed},
                   {"embedding", &s->embedding},
                   {"jitter", &s->jitter}};
    char *end;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (strcmp(numbers[i].name, name)) continue;
        *numbers[i].at = strtoull(text, &end, 10);
        return *text && !*end;
    }
    return false;
}

static bool set_type(model_shape *s, const char *name) {
    s->mix = !strcmp(name, "Q4_K_MIX");
    if (s->mix) name = "Q4_K";
    for (int i = 0; i < LAR_DTYPE_COUNT; i++) {
        s->type = (lar_dtype)i;
        if (!strcmp(lar_dtype_info_of(s->type)->name, name)) return true;
    }
    return false;
}

typedef struct asked {
    model_shape shape;
    lar_model_form form;
} asked;

/* How many arguments it took; 0: it is not understood. */
static int one(asked *a, char **argv) {
    const char *name = argv[0], *value = argv[1];
    if (!strcmp(name, "--folder")) return a->form = LAR_MODEL_FOLDER, 1;
    if (!strcmp(name, "--legacy")) return a->shape.legacy = true, 1;
    if (!strcmp(name, "--no-yarn")) return a->shape.yarn_factor = 0, 1;
    if (strncmp(name, "--", 2) || !value) return 0;
    if (!strcmp(name, "--shape")) return model_shape_named(value, &a->shape) ? 2 : 0;
    if (!strcmp(name, "--type")) return set_type(&a->shape, value) ? 2 : 0;
    return set_number(&a->shape, name + 2, value) ? 2 : 0;
}

int main(int argc, char **argv) {
    asked a = {.form = LAR_MODEL_GGUF};
    (void)model_shape_named("tiny-lite", &a.shape);
    for (int i = 2, n; i < argc; i += n) {
        n = one(&a, argv + i);
        if (!n) return (void)fprintf(stderr, "write_model: %s\n%s", argv[i], usage), 2;
    }
    const lar_dtype_info *info = lar_dtype_info_of(a.shape.type);
    if (argc < 2 || argv[1][0] == '-' || (a.form == LAR_MODEL_FOLDER ? !info->safetensors : info->gguf < 0))
        return (void)fprintf(stderr, "%s", usage), 2;
    if (a.form == LAR_MODEL_FOLDER) (void)mkdir(argv[1], 0777);
    model_write(&a.shape, a.form, argv[1]);
    return 0;
}
