/* Finds in a text what was meant to be filled in, and addresses that expire. Pure; no memory. Private to the checks. */
#ifndef LARDER_POLICIES_CHECKS_TEXT_H
#define LARDER_POLICIES_CHECKS_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

typedef struct lar_check_span {
    uint32_t start, end; /* bytes of the text */
} lar_check_span;

/* The first placeholder at or behind `from` that names a time, a person, a session or a place and that nobody filled
 * in: {{CURRENT_DATETIME}}, {date}, ${NOW}. Not in code, quotes, examples, or where the text speaks of templates. */
bool lar_check_placeholder(lar_slice text, uint32_t from, lar_check_span *out);
/* The first presigned http address at or behind `from`; not in code fences. */
bool lar_check_presigned(lar_slice text, uint32_t from, lar_check_span *out);

/* A whole address: its query holds a signature with an expiry. */
bool lar_check_url_signed(lar_slice url);
/* A whole address: its query holds a time, a nonce or a number that only keeps it from being cached. */
bool lar_check_url_busted(lar_slice url);
/* A value that looks as if it were made up for one request: a clock, an epoch, an id that names a request. */
bool lar_check_per_request(lar_slice value);
/* A UUID, ULID or a long run of random letters and digits. */
bool lar_check_random(lar_slice value);

#endif
