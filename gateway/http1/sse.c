/* The reader of event streams: line ends found 16 bytes at a time, events handed out in place.
 *
 * Flow: the relay feeds every piece it forwards; usage reads each event's data. Loop thread; never blocks.
 * Why: framing by a search for LF LF breaks on CR, CRLF and cut pairs (S-03 to S-05), and copying every byte would
 * cost more than the rest of the relay.
 * Invariants: 1. Any cut of the stream gives the same events. 2. `single` points into the input only while a call runs
 * or its event is being looked at. 3. Stored bytes of one event never exceed event_bytes_max.
 * Memory: three capped buffers, empty as long as events arrive whole; out of memory counts as oversize.
 * Not here: what the data means, dispatching rules for ids and retry. */
#include "gateway/http1/sse.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { KEEP_BYTES = 4096 };

static const char bom[3] = {'\xef', '\xbb', '\xbf'};

void lar_sse_init(lar_sse *s, size_t event_bytes_max) {
    *s = (lar_sse){.event_bytes_max = event_bytes_max};
    lar_buf_init(&s->data, event_bytes_max);
    lar_buf_init(&s->type, event_bytes_max);
    lar_buf_init(&s->line, event_bytes_max);
}

void lar_sse_release(lar_sse *s) {
    lar_buf_release(&s->data);
    lar_buf_release(&s->type);
    lar_buf_release(&s->line);
}

static void event_begin(lar_sse *s) {
    lar_buf_reset(&s->data, KEEP_BYTES);
    lar_buf_reset(&s->type, KEEP_BYTES);
    s->single = lar_slice_of(NULL, 0);
    s->event_bytes = 0;
    s->has_data = s->any_line = s->in_line = s->oversize = s->handed = false;
}

void lar_sse_reset(lar_sse *s) {
    event_begin(s);
    lar_buf_reset(&s->line, KEEP_BYTES);
    s->offset = s->event_start = 0;
    s->skip_lf = s->bom_done = false;
    s->bom_seen = 0;
}

/* First CR or LF in [at, end), or end. */
static const char *line_end(const char *at, const char *end) {
#ifdef __SSE2__
    const __m128i cr = _mm_set1_epi8('\r'), lf = _mm_set1_epi8('\n');
    for (; end - at >= 16; at += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)at);
        int hits = _mm_movemask_epi8(_mm_or_si128(_mm_cmpeq_epi8(v, cr), _mm_cmpeq_epi8(v, lf)));
        if (hits) return at + __builtin_ctz((unsigned)hits);
    }
#endif
    while (at < end && *at != '\r' && *at != '\n') at++;
    return at;
}

/* The event is too large to keep: it is framed to its end, its text is let go. */
static void give_up(lar_sse *s) {
    s->oversize = true;
    s->single = lar_slice_of(NULL, 0);
    lar_buf_reset(&s->data, 0);
    lar_buf_reset(&s->type, 0);
    lar_buf_reset(&s->line, 0);
}

/* Counts bytes of a line before they are kept. False: the event is oversize. */
static bool count_bytes(lar_sse *s, size_t n) {
    if (!s->oversize && n > s->event_bytes_max - s->event_bytes) give_up(s);
    if (s->oversize) return false;
    s->event_bytes += n;
    return true;
}

static bool is_field(lar_slice line, lar_slice name, lar_slice *value) {
    if (!lar_slice_starts(line, name)) return false;
    size_t n = name.len;
    if (line.len > n && line.ptr[n] != ':') return false;
    if (line.len > n) n++;
    if (line.len > n && line.ptr[n] == ' ') n++;
    *value = lar_slice_of(line.ptr + n, line.len - n);
    return true;
}

/* Moves the single line into the buffer, because a second one follows or its bytes are about to go. */
static void keep_single(lar_sse *s) {
    if (s->single.ptr && lar_buf_add_slice(&s->data, s->single)) give_up(s);
    s->single = lar_slice_of(NULL, 0);
}

/* One complete, non-empty line (HTML 9.2.6). A line that begins with ':' matches no field. */
static void take_line(lar_sse *s, lar_slice line) {
    lar_slice value;
    s->any_line = true;
    if (s->oversize) return;
    if (is_field(line, LAR_SLICE("data"), &value)) {
        if (s->has_data) {
            keep_single(s);
            if (!s->oversize && (lar_buf_add(&s->data, "\n", 1) || lar_buf_add_slice(&s->data, value))) give_up(s);
        } else {
            s->has_data = true;
            s->single = value;
        }
    } else if (is_field(line, LAR_SLICE("event"), &value)) {
        s->type.len = 0;
        if (lar_buf_add_slice(&s->type, value)) give_up(s);
    }
}

/* Fills *e from the lines taken so far. What it points to stays until the next call. */
static void hand_out(lar_sse *s, lar_sse_event *e) {
    *e = (lar_sse_event){.oversize = s->oversize,
                         .comment_only = !s->oversize && !s->has_data,
                         .wire_start = s->event_start,
                         .wire_end = s->offset};
    if (s->has_data && !s->oversize) {
        e->data = s->single.ptr ? s->single : lar_buf_slice(&s->data);
        e->type = lar_buf_slice(&s->type);
    }
    s->event_start = s->offset;
    s->any_line = s->oversize = false;
    s->handed = true;
}

/* A leading BOM is no part of the first line (HTML 9.2.5). Returns how many bytes were looked at. */
static size_t skip_bom(lar_sse *s, const char *data, size_t len) {
    size_t i = 0;
    while (i < len && s->bom_seen < 3 && data[i] == bom[s->bom_seen]) s->bom_seen++, i++;
    if (s->bom_seen == 3) {
        s->bom_done = true;
    } else if (i < len) {
        s->bom_done = true;
        s->in_line = s->bom_seen > 0;
        if (count_bytes(s, s->bom_seen) && lar_buf_add(&s->line, bom, s->bom_seen)) give_up(s);
    }
    return i;
}

/* The rest of a piece, which ends inside a line: everything that points into the input is copied now. */
static void keep_rest(lar_sse *s, const char *at, const char *end) {
    size_t n = (size_t)(end - at);
    keep_single(s);
    if (n) s->in_line = true;
    if (n && count_bytes(s, n) && lar_buf_add(&s->line, at, n)) give_up(s);
}

/* A whole line in [at, eol), with what earlier calls kept of it in front. True if it was the blank line of an event. */
static bool line_done(lar_sse *s, const char *at, const char *eol) {
    lar_slice line = lar_slice_of(at, (size_t)(eol - at));
    if (!s->in_line && line.len == 0) return s->any_line;
    s->in_line = false;
    (void)count_bytes(s, line.len);
    if (s->line.len) {
        if (lar_buf_add_slice(&s->line, line)) give_up(s);
        line = lar_buf_slice(&s->line);
        s->line.len = 0; /* its bytes stay where they are until the next piece ends inside a line */
    }
    take_line(s, line);
    return false;
}

bool lar_sse_next(lar_sse *s, const char *data, size_t len, size_t *used, lar_sse_event *e) {
    const char *at = data, *end = data + len;
    if (s->handed) event_begin(s);
    if (!s->bom_done) at += skip_bom(s, at, len);
    while (at < end) {
        if (s->skip_lf) {
            s->skip_lf = false;
            if (*at == '\n') {
                at++;
                continue;
            }
        }
        const char *eol = line_end(at, end);
        if (eol == end) break;
        bool event = line_done(s, at, eol);
        at = eol + 1;
        if (*eol == '\r' && at < end && *at == '\n') at++;
        else s->skip_lf = *eol == '\r';
        if (!event) continue;
        *used = (size_t)(at - data);
        s->offset += *used;
        hand_out(s, e);
        return true;
    }
    keep_rest(s, at, end);
    *used = len;
    s->offset += len;
    return false;
}
