/* Stop strings across token borders.
 * Flow: lar_output_stream_feed, behind output_utf8.c and before reasoning and calls are told apart.
 * Thread: one at a time. Never blocks.
 * Why an automaton for each string: every byte costs a step for each, whatever the strings repeat in themselves.
 * Invariants: 1. `held` is the longest end of the text that begins a stop string, and shorter than the longest of them.
 * 2. what is appended never has to be taken back.
 * Source: Knuth, Morris, Pratt 1977. Memory: one block; the held bytes are a stop string's own. */
#include "engine/text/output_stop.h"

#include <stdlib.h>

/* A string matches in full once only: the text ends there. */
typedef struct stop {
    uint32_t len;
    uint32_t matched; /* bytes of it that the text ends with */
    char bytes[LAR_OUTPUT_STOP_BYTES_MAX];
    uint16_t back[LAR_OUTPUT_STOP_BYTES_MAX]; /* [n]: the longest proper prefix that ends bytes[0..n] */
} stop;

struct lar_output_stop {
    uint32_t count;
    int hit;
    stop stops[];
};

static void prepare(stop *s, lar_slice text) {
    memcpy(s->bytes, text.ptr, text.len);
    s->len = (uint32_t)text.len;
    s->matched = 0;
    s->back[0] = 0;
    for (uint32_t i = 1, k = 0; i < s->len; i++) {
        while (k && s->bytes[k] != s->bytes[i]) k = s->back[k - 1];
        if (s->bytes[k] == s->bytes[i]) k++;
        s->back[i] = (uint16_t)k;
    }
}

lar_error lar_output_stop_new(const lar_slice *stops, uint32_t count, lar_output_stop **out, lar_diag *d) {
    *out = NULL;
    if (count > LAR_OUTPUT_STOPS_MAX)
        return lar_fail(LAR_LIMIT, d, "%u stop strings; at most %d are allowed", count, LAR_OUTPUT_STOPS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        if (!stops[i].len) return lar_fail(LAR_INVALID, d, "a stop string is empty");
        if (stops[i].len > LAR_OUTPUT_STOP_BYTES_MAX)
            return lar_fail(LAR_LIMIT, d, "a stop string of %zu bytes; at most %d are allowed", stops[i].len,
                            LAR_OUTPUT_STOP_BYTES_MAX);
    }
    lar_output_stop *s = malloc(sizeof *s + count * sizeof *s->stops);
    if (!s) return lar_fail(LAR_NO_MEMORY, d, "no memory for stop strings");
    s->count = count;
    s->hit = -1;
    for (uint32_t i = 0; i < count; i++) prepare(&s->stops[i], stops[i]);
    *out = s;
    return LAR_OK;
}

void lar_output_stop_free(lar_output_stop *s) { free(s); }

static void step(stop *s, char c) {
    while (s->matched && s->bytes[s->matched] != c) s->matched = s->back[s->matched - 1];
    if (s->bytes[s->matched] == c) s->matched++;
}

/* The string that the text ends with furthest; NULL when there is none. */
static const stop *longest(const lar_output_stop *s) {
    const stop *found = NULL;
    for (uint32_t i = 0; i < s->count; i++)
        if (s->stops[i].matched && (!found || s->stops[i].matched > found->matched)) found = &s->stops[i];
    return found;
}

/* One byte more: what was held before it and is no longer goes out, from the string that held it. */
static lar_error push_byte(lar_output_stop *s, char c, lar_buf *out) {
    const stop *before = longest(s);
    uint32_t held = before ? before->matched : 0;
    lar_error e = lar_buf_reserve(out, held + 1);
    if (e) return e;
    if (held) memcpy(out->ptr + out->len, before->bytes, held);
    out->ptr[out->len + held] = c;
    for (uint32_t i = 0; i < s->count; i++) {
        stop *x = &s->stops[i];
        step(x, c);
        if (x->matched == x->len && (s->hit < 0 || x->len > s->stops[s->hit].len)) s->hit = (int)i;
    }
    const stop *after = longest(s);
    uint32_t keep = s->hit >= 0 ? s->stops[s->hit].len : after ? after->matched : 0;
    out->len += held + 1 - (keep < held + 1 ? keep : held + 1);
    return LAR_OK;
}

lar_error lar_output_stop_push(lar_output_stop *s, lar_slice bytes, lar_buf *out, int *hit) {
    lar_error e = s->count ? LAR_OK : lar_buf_add_slice(out, bytes);
    for (size_t i = 0; !e && s->count && i < bytes.len && s->hit < 0; i++) e = push_byte(s, bytes.ptr[i], out);
    *hit = s->hit;
    return e;
}

size_t lar_output_stop_begin(lar_output_stop *s, lar_slice bytes) {
    for (size_t at = 0; at < bytes.len; at++)
        for (uint32_t i = 0; i < s->count; i++) {
            stop *x = &s->stops[i];
            step(x, bytes.ptr[at]);
            if (x->matched == x->len) x->matched = x->back[x->len - 1];
        }
    const stop *held = longest(s);
    return held ? held->matched : 0;
}

lar_error lar_output_stop_finish(lar_output_stop *s, lar_buf *out) {
    const stop *held = s->hit < 0 ? longest(s) : NULL;
    lar_error e = held ? lar_buf_add(out, held->bytes, held->matched) : LAR_OK;
    for (uint32_t i = 0; i < s->count; i++) s->stops[i].matched = 0;
    return e;
}
