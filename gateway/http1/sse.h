/* Server-Sent Events, incremental (WHATWG HTML 9.2): finds event borders and hands out each event's data.
 * Works on a passing stream: it never holds bytes back from the relay except for an event's own data. */
#ifndef LARDER_GATEWAY_SSE_H
#define LARDER_GATEWAY_SSE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/slice.h"

typedef struct lar_sse_event {
    lar_slice type;    /* the `event:` field, empty if none; borrows the parser until the next call */
    lar_slice data;    /* `data:` lines joined with LF; borrows the parser or, for one line that came whole, the input:
                       valid until the next call and while the input is */
    bool comment_only; /* no data line: a comment or a bare field; type and data are empty */
    bool oversize;     /* over the limit: type and data are empty */
    /* The event's bytes on the wire, from the stream's start, its blank line included. Events tile the stream: each
     * starts where the one before ended. Only if a blank line's CR and LF come in different calls, the LF is counted
     * to the following event: the event is not held back to wait for it. */
    uint64_t wire_start, wire_end;
} lar_sse_event;

/* Embedded. */
typedef struct lar_sse {
    lar_buf data, type, line;
    lar_slice single;             /* the only data line so far, not copied yet */
    uint64_t offset, event_start; /* bytes from the stream's start */
    size_t event_bytes;           /* of the event's lines so far, line ends not counted */
    bool has_data, any_line, in_line, skip_lf, bom_done, oversize, handed;
    size_t event_bytes_max;
    uint8_t bom_seen;
} lar_sse;

void lar_sse_init(lar_sse *s, size_t event_bytes_max);
void lar_sse_release(lar_sse *s);
void lar_sse_reset(lar_sse *s);

/* Takes bytes from data until an event is complete. Returns true and fills *e when one is; *used says how much was
 * taken, and the call is repeated with the rest. False: all taken, no complete event. An event over the limit is
 * still framed, with `data` empty. A CR LF pair split between calls counts as one line end. An event without its blank
 * line when the stream ends is none (HTML 9.2.6). */
bool lar_sse_next(lar_sse *s, const char *data, size_t len, size_t *used, lar_sse_event *e);

#endif
