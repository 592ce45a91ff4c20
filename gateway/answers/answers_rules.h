/* Which requests' answers may be kept, and which answers are whole enough to be. Pure look-ups in JSON. */
#ifndef LARDER_GATEWAY_ANSWERS_RULES_H
#define LARDER_GATEWAY_ANSWERS_RULES_H

#include "policies/protocol.h"

typedef enum lar_answers_sampling {
    LAR_ANSWERS_GREEDY_ONLY, /* the request sets temperature 0 itself: the default of every provider is above it */
    LAR_ANSWERS_ANY_SAMPLING
} lar_answers_sampling;

/* May the same answer be given twice? False where the request asks for something to be done besides answering (`store`,
 * `background`, tools that the provider runs), or refers to what the provider keeps (`previous_response_id`...). */
bool lar_answers_may_keep(const lar_request_view *v, lar_answers_sampling sampling);

typedef enum lar_answers_form { LAR_ANSWERS_JSON, LAR_ANSWERS_STREAM } lar_answers_form;
/* Of an answer whose transfer and protocol ended well: did the model end by itself, or by a limit of the request? Every
 * finish_reason and stop_reason is a known one, a response is `completed`. */
bool lar_answers_is_whole(lar_protocol p, lar_answers_form form, lar_slice body);

#endif
