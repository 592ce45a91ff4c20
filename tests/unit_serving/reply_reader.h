/* Reads replies as a client does, streamed or not, and aborts where one is malformed: for tests and the fuzzer. */
#ifndef LARDER_TESTS_REPLY_READER_H
#define LARDER_TESTS_REPLY_READER_H

#include "tests/unit_serving/serving_box.h"

typedef struct reply_choice {
    lar_buf content, reasoning, calls; /* calls: "id name(arguments);" */
    lar_buf probs;                     /* the tokens of logprobs, as JSON texts, one behind the other */
    lar_buf reasoning_probs;
    char finish[16];
    bool role;
} reply_choice;

typedef struct reply {
    reply_choice choices[LAR_JOB_SAMPLES_MAX * 2];
    uint64_t prompt, completion, hit, miss, reasoning; /* usage */
    bool has_usage, done, error;
    uint32_t chunks;
} reply;

/* Embedded; reply_release frees. A stream: every event one JSON object in OpenAI's form, the role first, one finish for
 * each choice, [DONE] last or an error instead. */
void reply_read_stream(lar_slice body, reply *out);
void reply_read_body(lar_slice body, reply *out);
void reply_release(reply *r);

#endif
