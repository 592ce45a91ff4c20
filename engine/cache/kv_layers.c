/* Formats by layer: text to table and back (header: kv_layers.h).
 * Flow: engine.c and larder's plan and commands parse what a user wrote; what is printed is parsed again to the same
 * table. Any thread; never blocks.
 * Why one format first: a text then says every layer's format by itself, whatever the model's number of layers is.
 * Not here: the formats (kv_format.def). */
#include "engine/cache/kv_layers.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/slice.h"

enum { UNSET = 0xff /* a layer that no part has named yet */ };

/* What is quoted in an error: a part of the text, cut, and without what could disturb a terminal. */
typedef struct quote {
    char text[40];
} quote;

static quote quoted(lar_slice part) {
    quote q = {""};
    for (size_t i = 0; i < part.len && i + 1 < sizeof q.text; i++)
        q.text[i] = isprint((unsigned char)part.ptr[i]) ? part.ptr[i] : '?';
    return q;
}

/* -- formats ----------------------------------------------------------------------------------------------------- */

static unsigned digit(char c) { return isdigit((unsigned char)c) ? (unsigned)(c - '0') : 0; }

/* Of the first number in a name, or of e4m3 and its kind: 1 + exponent + mantissa. 0: a name that says no bits. */
static unsigned bits_named(lar_slice name) {
    size_t at = 0;
    while (at < name.len && !isdigit((unsigned char)name.ptr[at])) at++;
    if (at && at + 2 < name.len && tolower((unsigned char)name.ptr[at - 1]) == 'e' &&
        tolower((unsigned char)name.ptr[at + 1]) == 'm')
        return 1 + digit(name.ptr[at]) + digit(name.ptr[at + 2]);
    unsigned bits = 0;
    for (; at < name.len && isdigit((unsigned char)name.ptr[at]) && bits < 100; at++)
        bits = bits * 10 + digit(name.ptr[at]);
    return bits;
}

static lar_error no_such_format(lar_slice part, lar_slice name, lar_diag *d) {
    char names[128];
    size_t n = 0;
    unsigned bits = bits_named(name);
    if (bits && bits < 8)
        return lar_fail(
            LAR_INVALID, d,
            "'%s': no latent is kept in fewer than 8 bits: it is key and value of all heads at once, so that "
            "its rounding falls on scores and on sums alike; the smallest formats are fp8 and int8-128",
            quoted(part).text);
    for (int i = 0; i < LAR_KV_COUNT && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", lar_kv_info_of((lar_kv)i)->name);
    return lar_fail(LAR_INVALID, d, "'%s': '%s' is no format; expected one of %s", quoted(part).text, quoted(name).text,
                    names);
}

static lar_error read_format(lar_slice part, lar_slice name, uint8_t *out, lar_diag *d) {
    for (int i = 0; i < LAR_KV_COUNT; i++) {
        if (!lar_slice_eq_cstr(name, lar_kv_info_of((lar_kv)i)->name)) continue;
        *out = (uint8_t)i;
        return LAR_OK;
    }
    return no_such_format(part, name, d);
}

/* -- layers ------------------------------------------------------------------------------------------------------ */

/* Digits at *at, which moves behind them. False: none, or more than any number of layers has. */
static bool read_number(const char **at, const char *end, uint32_t *out) {
    const char *begin = *at;
    *out = 0;
    while (*at < end && isdigit((unsigned char)**at) && *at - begin < 9) *out = *out * 10 + digit(*(*at)++);
    return *at > begin;
}

/* "24-26" or "0". */
static lar_error read_range(lar_slice part, lar_slice range, uint32_t layers, uint32_t ends[2], lar_diag *d) {
    const char *at = range.ptr, *end = range.ptr + range.len;
    bool good = read_number(&at, end, &ends[0]);
    ends[1] = ends[0];
    if (good && at < end && *at == '-') {
        at++;
        good = read_number(&at, end, &ends[1]);
    }
    if (!good || at != end || ends[1] < ends[0])
        return lar_fail(LAR_INVALID, d, "'%s': expected LAYER=FORMAT or FIRST-LAST=FORMAT", quoted(part).text);
    if (ends[1] >= layers)
        return lar_fail(LAR_INVALID, d, "'%s': there is no layer %u; the model has the layers 0 to %u",
                        quoted(part).text, ends[1], layers - 1);
    return LAR_OK;
}

/* A part behind the first, into kv (layers), where what no part has named is UNSET. */
static lar_error read_part(lar_slice part, uint32_t layers, uint8_t *kv, lar_diag *d) {
    const char *equals = part.len ? memchr(part.ptr, '=', part.len) : NULL;
    uint32_t ends[2];
    uint8_t format = 0;
    if (!equals)
        return lar_fail(LAR_INVALID, d,
                        "'%s': behind the first format, which is for all other layers, expected "
                        "LAYER=FORMAT or FIRST-LAST=FORMAT",
                        quoted(part).text);
    lar_slice range = lar_slice_of(part.ptr, (size_t)(equals - part.ptr));
    lar_error e = read_range(part, range, layers, ends, d);
    if (!e) e = read_format(part, lar_slice_of(equals + 1, part.len - range.len - 1), &format, d);
    for (uint32_t i = ends[0]; !e && i <= ends[1]; i++) {
        if (kv[i] != UNSET) return lar_fail(LAR_INVALID, d, "'%s': layer %u was named before", quoted(part).text, i);
        kv[i] = format;
    }
    return e;
}

lar_error lar_kv_layers_parse(const char *text, uint32_t layers, uint8_t *kv, lar_diag *d) {
    const char *comma = strchr(text, ',');
    lar_slice first = lar_slice_of(text, comma ? (size_t)(comma - text) : strlen(text));
    uint8_t otherwise = 0;
    lar_error e = read_format(first, first, &otherwise, d);
    memset(kv, UNSET, layers);
    while (!e && comma) {
        const char *begin = comma + 1;
        comma = strchr(begin, ',');
        e = read_part(lar_slice_of(begin, comma ? (size_t)(comma - begin) : strlen(begin)), layers, kv, d);
    }
    for (uint32_t i = 0; i < layers; i++)
        if (kv[i] == UNSET) kv[i] = otherwise;
    return e;
}

/* -- printing ---------------------------------------------------------------------------------------------------- */

/* With `otherwise` first; returns its length, without a NUL. */
static size_t print(const uint8_t *kv, uint32_t layers, uint8_t otherwise, char *to, size_t room) {
    size_t n = (size_t)snprintf(to, room, "%s", lar_kv_info_of((lar_kv)otherwise)->name);
    for (uint32_t first = 0, last; first < layers; first = last + 1) {
        last = first;
        while (last + 1 < layers && kv[last + 1] == kv[first]) last++;
        if (kv[first] == otherwise) continue;
        const char *name = lar_kv_info_of((lar_kv)kv[first])->name;
        if (last == first) n += (size_t)snprintf(to + n, room - n, ",%u=%s", first, name);
        else n += (size_t)snprintf(to + n, room - n, ",%u-%u=%s", first, last, name);
    }
    return n;
}

char *lar_kv_layers_text(const uint8_t *kv, uint32_t layers) {
    enum { PART_BYTES = 40 /* two numbers and a name */ };
    size_t room = ((size_t)layers + 1) * PART_BYTES, least = room;
    char *best = malloc(room), *tried = malloc(room);
    for (int i = 0; best && tried && i < LAR_KV_COUNT; i++) {
        size_t n = print(kv, layers, (uint8_t)i, tried, room);
        if (n >= least) continue;
        least = n;
        memcpy(best, tried, n + 1);
    }
    if (!tried) {
        free(best);
        return NULL;
    }
    free(tried);
    return best;
}
