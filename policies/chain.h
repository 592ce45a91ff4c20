/* Fingerprints of a request at places where two requests may part: a running hash of all that is sent up to there, in
 * the order in which a provider reads it (tools, system, messages). Two requests with equal `sent` at a place share
 * the prefix up to it. The hashes are keyed with a secret of the installation and say nothing about the text. */
#ifndef LARDER_POLICIES_CHAIN_H
#define LARDER_POLICIES_CHAIN_H

#include <stdint.h>

#include "base/hash.h"
#include "base/splice.h"
#include "policies/protocol.h"

/* What ends at a place. */
typedef enum lar_cut_kind {
    LAR_CUT_TOOLS,
    LAR_CUT_TOP, /* a system text or instructions beside the messages */
    LAR_CUT_SYSTEM,
    LAR_CUT_USER,
    LAR_CUT_ASSISTANT,
    LAR_CUT_TOOL,
    LAR_CUT_OTHER,
    LAR_CUT_KIND_COUNT
} lar_cut_kind;

typedef struct lar_cut {
    uint64_t sent;  /* fingerprint of what is sent up to here, cache_control apart */
    uint32_t raw;   /* the same of the client's own bytes */
    uint32_t bytes; /* sent up to here */
    uint16_t at;    /* segments up to here; 0: the tools alone */
    uint8_t kind;   /* lar_cut_kind of what ends here */
    uint8_t rule;   /* 1 + the first rule that found something since the cut before; 0: none */
} lar_cut;

enum {
    LAR_CUTS_FIRST = 8,
    LAR_CUTS_LAST = 24, /* between them where the count of segments is a power of two, and the head's end */
    LAR_CUTS_MAX = 48
};

/* Whether there is a cut behind `at` of `count` segments, `head` of which are the head. */
bool lar_cut_wanted(uint32_t at, uint32_t count, uint32_t head);
/* Bytes that the body's span [start, end) has once the finished splices are applied. *from is the first splice to look
 * at: 0 at first, carried from call to call; spans are asked for in the order of the body, mostly. */
uint64_t lar_cut_bytes(const lar_splices *s, uint32_t start, uint32_t end, uint32_t *from);

#endif
