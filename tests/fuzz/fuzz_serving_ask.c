/* Any body at any endpoint of a served model: a job that the scheduler may be asked for, or an error object of OpenAI's
 * form. Input: one byte for the endpoint and the model, then the body. */
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"
#include "tests/unit_serving/serving_box.h"

static lar_serving *models[3];

static void close_models(void) {
    for (int i = 0; i < 3; i++) lar_serving_free(models[i]);
}

static void check_error(const box_client *c) {
    lar_json j;
    lar_diag d;
    lar_json_init(&j);
    FUZZ_CHECK(lar_json_parse_scalar(&j, lar_buf_slice(&c->body), NULL, &d) == LAR_OK);
    uint32_t error = lar_json_get(&j, 0, "error");
    FUZZ_CHECK((c->head.status == 200) == (error == LAR_JSON_NONE));
    FUZZ_CHECK(c->head.status == 200 || lar_json_inner(&j, lar_json_get(&j, error, "message")).len > 0);
    lar_json_release(&j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!models[0]) {
        models[0] = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
        models[1] =
            box_serving(&(box_options){.chat = "{{ messages }}{{ tools }}{{ x }}", .no_bos = true, .context = 64});
        models[2] = box_serving(&(box_options){.chat = "", .any_model = true});
        (void)atexit(close_models);
    }
    if (!size) return 0;
    char *exact = malloc(size); /* so that a sanitizer sees a read behind it */
    FUZZ_CHECK(exact != NULL);
    memcpy(exact, data + 1, size - 1);
    const lar_serving_ask ask = {.endpoint = (lar_serving_endpoint)(data[0] % 6),
                                 .id = lar_slice_of(exact, size - 1),
                                 .body = lar_slice_of(exact, size - 1)};
    box_client c;
    box_prepare(models[data[0] / 6 % 3], &ask, &c);
    free(exact);
    lar_answer_start(c.answer, (lar_scheduler *)&box_jobs);
    FUZZ_CHECK((box_jobs.count > 0) == (c.answer->prompts.count > 0) && (box_jobs.count > 0) == (c.heads == 0));
    if (c.heads) check_error(&c);
    for (uint32_t i = 0; i < box_jobs.count; i++) {
        const lar_job_request *r = &box_jobs.jobs[i].request;
        FUZZ_CHECK(r->count && r->count < (data[0] / 6 % 3 == 1 ? 64 : 1000) && r->answer_max <= 1000);
        box_end(i, LAR_CLIENT_GONE);
    }
    box_clear(&c);
    return 0;
}
