/* Any bytes as a config.json, or as a GGUF file if they begin like one: refused with a message, or a configuration
 * whose numbers are all in range, whose rotation is finite and whose router chooses distinct experts whatever the
 * logits are. Memory: everything is freed before the return; a GGUF lies in a file without a name. */
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/model/model_config.h"
#include "tests/fuzz/fuzz.h"

static void check_router(const lar_router *r) {
    static const float odd[] = {0, -INFINITY, INFINITY, NAN, 1, -1, 3e38f};
    float logits[LAR_EXPERTS_MAX], weights[LAR_EXPERTS_MAX];
    uint32_t chosen[LAR_EXPERTS_MAX];
    for (uint32_t i = 0; i < r->experts; i++) logits[i] = odd[i * i % 7];
    lar_route(r, logits, chosen, weights);
    for (uint32_t k = 0; k < r->used; k++) {
        FUZZ_CHECK(chosen[k] < r->experts);
        for (uint32_t i = 0; i < k; i++) FUZZ_CHECK(chosen[i] != chosen[k]);
    }
}

static void check(const lar_model_config *c) {
    static double speeds[LAR_HEAD_DIM_MAX / 2];
    static float turn[LAR_HEAD_DIM_MAX];
    FUZZ_CHECK(c->layers && c->layers <= LAR_LAYERS_MAX && c->hidden && c->hidden <= LAR_WIDTH_MAX);
    FUZZ_CHECK(c->vocab && c->vocab <= LAR_VOCAB_MAX && c->context && c->context <= LAR_CONTEXT_MAX);
    FUZZ_CHECK(c->heads && c->heads <= LAR_HEADS_MAX && c->rank && c->rank <= LAR_RANK_MAX);
    FUZZ_CHECK(c->nope && c->nope <= LAR_HEAD_DIM_MAX && c->value && c->value <= LAR_HEAD_DIM_MAX);
    FUZZ_CHECK(c->rope.dims >= 2 && c->rope.dims <= LAR_HEAD_DIM_MAX && c->rope.dims % 2 == 0);
    FUZZ_CHECK(isfinite(c->softmax_scale) && isfinite(c->rope.amplitude) && c->eps > 0 && c->latent_eps > 0);
    FUZZ_CHECK(c->router.experts <= LAR_EXPERTS_MAX && c->shared_width <= LAR_WIDTH_MAX);
    lar_rope_speeds(&c->rope, speeds);
    lar_rope_turn(&c->rope, speeds, c->context, turn);
    for (uint32_t i = 0; i < c->rope.dims; i++) FUZZ_CHECK(isfinite(turn[i]));
    if (c->router.experts) check_router(&c->router);
}

static lar_error read_gguf(const uint8_t *data, size_t size, lar_model_config *c, lar_diag *d) {
    lar_model_files *files = NULL;
    char path[64];
    int fd = memfd_create("model", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    lar_error e = lar_model_files_open(path, &files, d);
    if (!e) e = lar_config_read(c, files, d);
    lar_model_files_close(files);
    close(fd);
    return e;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lar_model_config c;
    lar_diag d = {0};
    bool gguf = size >= 4 && memcmp(data, "GGUF", 4) == 0;
    lar_error e =
        gguf ? read_gguf(data, size, &c, &d) : lar_config_from_json(&c, lar_slice_of((const char *)data, size), &d);
    if (!e) check(&c);
    else FUZZ_CHECK(d.text[0] || e == LAR_NO_MEMORY);
    return 0;
}
