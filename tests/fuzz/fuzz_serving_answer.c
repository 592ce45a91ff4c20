/* Any tokens as a model's output: what a client reads is well-formed, streamed or not, and says the same where no calls
 * are looked for. Input: one byte of options, then two bytes a token: a sample and the upper bit of an id, its rest. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"
#include "tests/unit_serving/reply_reader.h"

static lar_serving *models[2];

static void close_models(void) {
    for (int i = 0; i < 2; i++) lar_serving_free(models[i]);
}

static const char *const wishes[] = {
    "",
    ",\"logprobs\":true,\"top_logprobs\":2,\"n\":3",
    ",\"stop\":[\"ab\",\"<\",\"\\nUser:\"],\"logprobs\":true",
    ",\"parallel_tool_calls\":false,\"thinking\":{\"type\":\"enabled\"}",
};

static void play(lar_slice in, uint8_t options, bool stream, reply *out) {
    char body[512];
    box_client c;
    bool done[LAR_JOB_SAMPLES_MAX] = {false};
    bool chat = !(options & 16);
    int n =
        snprintf(body, sizeof body, "{\"model\":\"tiny\",%s%s%s%s}",
                 chat ? "\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]" : "\"prompt\":\"q\",\"max_tokens\":500",
                 chat          ? wishes[options & 3]
                 : options & 1 ? ",\"logprobs\":1,\"n\":3,\"stop\":\"ab\""
                               : "",
                 chat && options & 4 ? ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]" : "",
                 stream ? ",\"stream\":true,\"stream_options\":{\"include_usage\":true}" : "");
    FUZZ_CHECK(n > 0 && (size_t)n < sizeof body);
    box_ask(models[options >> 3 & 1], chat ? LAR_SERVING_CHAT : LAR_SERVING_COMPLETIONS, body, &c);
    FUZZ_CHECK(box_jobs.count == 1);
    uint32_t samples = box_jobs.jobs[0].request.samples;
    box_begin(0, 1);
    for (size_t i = 0; i + 1 < in.len; i += 2) {
        uint32_t sample = (uint8_t)in.ptr[i] / 2 % samples;
        uint32_t id = ((uint8_t)in.ptr[i] % 2 * 256u + (uint8_t)in.ptr[i + 1]) % BOX_VOCAB;
        if (done[sample]) continue;
        done[sample] = !box_tell_id(0, sample, id);
        if (done[sample]) box_sample_end(0, sample, LAR_JOB_ENDED);
    }
    for (uint32_t i = 0; i < samples; i++)
        if (!done[i]) box_sample_end(0, i, options & 32 ? LAR_JOB_STOP : LAR_JOB_LENGTH);
    box_end(0, LAR_OK);
    FUZZ_CHECK(c.ends == 1 && c.head.status == 200);
    if (stream) reply_read_stream(lar_buf_slice(&c.body), out);
    else reply_read_body(lar_buf_slice(&c.body), out);
    FUZZ_CHECK(out->done && out->has_usage && out->completion == c.end.answer_tokens);
    box_clear(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!models[0]) {
        models[0] = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31, .call_tokens_max = 40});
        models[1] = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_DSML});
        (void)atexit(close_models);
    }
    if (!size || size > 600) return 0; /* each token is two events to read */
    lar_slice tokens = lar_slice_of((const char *)data + 1, size - 1);
    reply streamed, whole;
    play(tokens, data[0], true, &streamed);
    play(tokens, data[0], false, &whole);
    for (int i = 0; i < LAR_JOB_SAMPLES_MAX && !(data[0] & 4); i++) {
        const reply_choice *a = &streamed.choices[i], *b = &whole.choices[i];
        FUZZ_CHECK(lar_slice_eq(lar_buf_slice(&a->content), lar_buf_slice(&b->content)));
        FUZZ_CHECK(lar_slice_eq(lar_buf_slice(&a->reasoning), lar_buf_slice(&b->reasoning)));
        FUZZ_CHECK(lar_slice_eq(lar_buf_slice(&a->probs), lar_buf_slice(&b->probs)));
        FUZZ_CHECK(strcmp(a->finish, b->finish) == 0);
    }
    if (!(data[0] & 4)) FUZZ_CHECK(streamed.completion == whole.completion && streamed.reasoning == whole.reasoning);
    reply_release(&streamed);
    reply_release(&whole);
    return 0;
}
