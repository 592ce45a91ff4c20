/* Any tokens as a model's output: what a client reads is well-formed, streamed or not, and says the same where no calls
 * are looked for. Input: one byte of options, then two bytes a token: a sample and the upper bit of an id, its rest.
 * With bit 64 the same bytes are also what another side began of the answer, which goes on with the tokens. */
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

/* Every event is one JSON object, and the last one says that it is. */
static void check_events(lar_slice body) {
    const char *at = body.ptr, *end = body.ptr + body.len, *border;
    lar_json j;
    lar_json_init(&j);
    bool done = false;
    for (; at < end; at = border + 2) {
        border = memmem(at, (size_t)(end - at), "\n\n", 2);
        FUZZ_CHECK(border && !done && memcmp(at, "data: ", 6) == 0);
        lar_slice data = lar_slice_of(at + 6, (size_t)(border - at) - 6);
        done = lar_slice_eq_cstr(data, "[DONE]");
        FUZZ_CHECK(done || lar_json_parse(&j, data, &LAR_JSON_LIMITS_DEFAULT, NULL) == LAR_OK);
    }
    FUZZ_CHECK(done);
    lar_json_release(&j);
}

/* Of `in` the first part is reasoning, the second one content, by the upper bits of the first byte. */
static void go_on(lar_slice in, uint8_t options) {
    size_t part = in.len ? (uint8_t)in.ptr[0] % (in.len + 1) : 0;
    const lar_serving_begun begun = {.reasoning = lar_slice_of(in.ptr, options & 8 ? part : 0),
                                     .content = lar_slice_of(in.ptr + part, in.len - part),
                                     .members = LAR_SLICE("\"id\":\"far\""),
                                     .from = LAR_SLICE("far"),
                                     .to = LAR_SLICE("near"),
                                     .prompt_tokens = -1};
    char body[512];
    box_client c;
    (void)snprintf(body, sizeof body,
                   "{\"model\":\"far\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]%s}",
                   options & 1 ? ",\"stop\":[\"ab\",\"<\",\"\\nUser:\"],\"thinking\":{\"type\":\"enabled\"}" : "");
    const lar_serving_ask ask = {.body = lar_slice_cstr(body), .random = 7, .begun = &begun};
    box_prepare(models[options >> 3 & 1], &ask, &c);
    lar_answer_start(c.answer, (lar_scheduler *)&box_jobs);
    if (!box_jobs.count) {
        FUZZ_CHECK(c.ends == 1 && c.head.status == 400);
        box_clear(&c);
        return;
    }
    const lar_job_opening *o = &box_jobs.jobs[0].request.opening;
    for (uint32_t row = 0, i = 0; row < o->bytes; i = o->ends[row++]) FUZZ_CHECK(o->ends[row] > i);
    bool more = true;
    box_begin(0, 0);
    for (uint32_t at = 0; more && at < o->bytes;) { /* the last that may come, which are the longest words */
        uint32_t i = o->ends[at] - 1;
        more = box_tell_id(0, 0, o->ids[i]);
        at += o->id_bytes[i];
    }
    for (size_t i = 0; more && i + 1 < in.len; i += 2)
        more = box_tell_id(0, 0, ((uint8_t)in.ptr[i] % 2 * 256u + (uint8_t)in.ptr[i + 1]) % BOX_VOCAB);
    box_sample_end(0, 0, more ? LAR_JOB_STOP : LAR_JOB_ENDED);
    box_end(0, LAR_OK);
    FUZZ_CHECK(c.ends == 1 && c.head.status == 200);
    check_events(lar_buf_slice(&c.body));
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
    if (data[0] & 64 && tokens.len) go_on(tokens, data[0]);
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
