/* Prefixes that are kept warm in a model of this process (engine.keep_warm): what many requests begin with is computed
 * while nobody asks the model, so that the first answer that it must give is quick.
 *
 * The gateway tells which prefixes go by, wherever they go to, and gives the text of one that is new: a request of that
 * beginning. Texts stay in memory, are bounded, belong to one scope each, and are forgotten with the process. */
#ifndef LARDER_GATEWAY_WARMTH_H
#define LARDER_GATEWAY_WARMTH_H

#include "gateway/resident/resident_parts.h"

enum { LAR_WARMTH_TEXT_BYTES_MAX = 512 << 10, LAR_WARMTH_ALL_BYTES_MAX = 32 << 20 };

/* Keeps the `prefixes` most used ones warm, once the model is loaded. NO_MEMORY. */
LAR_MUST_USE lar_error lar_warmth_open(lar_resident *r, uint32_t prefixes, lar_warmth **out, lar_diag *d);
/* Ends what is under way; before the resident's scheduler goes. NULL: nothing happens. */
void lar_warmth_close(lar_warmth *w);

/* A request with this prefix goes by, of which earlier runs of this process saw `seen`. True: its text is wanted. Any
 * thread. */
bool lar_warmth_note(lar_warmth *w, const lar_digest *scope, uint64_t prefix, uint32_t seen);
/* The text: the body of a chat request. Copied. Empty, or over LAR_WARMTH_TEXT_BYTES_MAX: it cannot be kept warm, and
 * is not asked for again soon. Any thread. */
void lar_warmth_text(lar_warmth *w, const lar_digest *scope, uint64_t prefix, lar_slice body);

typedef struct lar_warmth_counts {
    uint64_t warmed, tokens; /* prefixes of which something was computed, and how much that was */
    uint64_t stopped;        /* given up for a request */
    uint32_t prefixes;       /* whose texts are held */
} lar_warmth_counts;
/* Any thread. */
lar_warmth_counts lar_warmth_counts_of(lar_warmth *w);

#endif
