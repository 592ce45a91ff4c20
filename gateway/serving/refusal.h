/* Why a request has no answer, in the form of OpenAI's API. */
#ifndef LARDER_GATEWAY_REFUSAL_H
#define LARDER_GATEWAY_REFUSAL_H

#include "gateway/serving/json_writer.h"

enum { LAR_REFUSAL_PARAM_BYTES = 96, LAR_REFUSAL_MESSAGE_BYTES = 512 };

/* Embedded; status 0: nothing is refused. Texts are UTF-8 and hold nothing of a request but numbers. */
typedef struct lar_refusal {
    int status;
    const char *code;                    /* static */
    char param[LAR_REFUSAL_PARAM_BYTES]; /* "messages[2].content"; empty: null */
    char message[LAR_REFUSAL_MESSAGE_BYTES];
    uint32_t retry_ms;
} lar_refusal;

/* Codes that several places give. */
#define LAR_CODE_TYPE "invalid_type"
#define LAR_CODE_VALUE "invalid_value"
#define LAR_CODE_UNSUPPORTED "unsupported_parameter"
#define LAR_CODE_UNSUPPORTED_VALUE "unsupported_value"
#define LAR_CODE_MISSING "missing_required_parameter"
#define LAR_CODE_CONTEXT "context_length_exceeded"

/* A 400 about `param` ("" for none); returns INVALID. */
lar_error lar_refuse(lar_refusal *r, const char *param, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* What an error of larder's table means for a client; `detail` may be "". Returns `e`. */
lar_error lar_refuse_error(lar_refusal *r, lar_error e, const char *detail);
/* {"error":{"message","type","param","code"}}. */
void lar_refusal_write(const lar_refusal *r, lar_json_writer *w);

#endif
