/* Answers that larder writes itself: errors in the form that the client's protocol has, and small heads. */
#ifndef LARDER_GATEWAY_REPLY_H
#define LARDER_GATEWAY_REPLY_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/error.h"
#include "policies/protocol.h"

/* Appends the JSON body of an error: OpenAI's {"error":{message,type,param,code}} or Anthropic's
 * {"type":"error","error":{type,message}}. `detail` may be "". */
LAR_MUST_USE lar_error lar_reply_error_body(lar_buf *out, bool anthropic, lar_error e, const char *detail);
/* Appends an SSE event that tells of an error in mid-stream, in the protocol's form. */
LAR_MUST_USE lar_error lar_reply_error_event(lar_buf *out, lar_protocol p, lar_error e, const char *detail);

#endif
