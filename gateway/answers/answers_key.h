/* Under what an answer is kept: a digest of everything that the answer may depend on. */
#ifndef LARDER_GATEWAY_ANSWERS_KEY_H
#define LARDER_GATEWAY_ANSWERS_KEY_H

#include <sys/uio.h>

#include "base/digest.h"
#include "gateway/config/config.h"
#include "gateway/http1/http1.h"
#include "policies/protocol.h"

/* All borrowed for the call. */
typedef struct lar_answers_key_in {
    const lar_digest *scope;  /* what only this tenant has */
    lar_slice apart;          /* value of canon.scope_header, where that is set */
    const lar_config *config; /* whose upstreams and client keys count */
    const lar_route_config *rule;
    uint32_t upstream;          /* index; replicas of a group are one upstream */
    const lar_http1_head *head; /* the client's */
    lar_slice path;             /* as it goes upstream, with the query */
    lar_protocol protocol;
    bool usage_withheld;      /* from the stream that the client gets */
    const struct iovec *body; /* as it goes upstream, in any number of pieces */
    uint32_t body_count;
} lar_answers_key_in;

/* Two requests have the same key only if nothing of the above differs: SHA-256 over fields that each say their length.
 * Of the client's head, fields that describe the connection or this one call do not count (answers_key.c has the list).
 * NO_MEMORY: there is no key. */
LAR_MUST_USE lar_error lar_answers_key(const lar_answers_key_in *in, lar_digest *out);

#endif
