/* The Responses and the Messages protocol of the demo upstream: bodies and stream events. */
#ifndef LARDER_TESTS_DEMO_REPLY_EVENTS_H
#define LARDER_TESTS_DEMO_REPLY_EVENTS_H

#include "demo_reply.h"

typedef enum demo_response_state { DEMO_RESPONSE_IN_PROGRESS, DEMO_RESPONSE_COMPLETED } demo_response_state;

/* The response object; with its output and usage once it is completed. */
void demo_events_response(const demo_reply *r, demo_response_state state, lar_buf *out);
void demo_events_response_open(demo_reply *r, lar_buf *out);
/* One piece of text; the first opens the item, the last closes it. */
void demo_events_response_text(demo_reply *r, bool first, bool last, lar_slice piece, lar_buf *out);
/* One piece of the arguments of call r->call. */
void demo_events_response_call(demo_reply *r, bool open, bool last, lar_slice piece, lar_buf *out);
void demo_events_response_close(demo_reply *r, lar_buf *out);

void demo_events_message(const demo_reply *r, lar_buf *out);
void demo_events_message_open(demo_reply *r, lar_buf *out);
void demo_events_message_text(demo_reply *r, bool first, bool last, lar_slice piece, lar_buf *out);
void demo_events_message_call(demo_reply *r, bool open, bool last, lar_slice piece, lar_buf *out);
void demo_events_message_close(demo_reply *r, lar_buf *out);

#endif
