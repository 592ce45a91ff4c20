/* One form of a JSON value, and the way back to the body (header: reprint.h).
 * Called by render.c. Pure; never blocks; memory from the given arena. The value's bytes are read once, from left to
 * right: outside strings only white space, ',' and ':' need a look; inside strings only escapes do.
 * Invariant: printing and looking for a place are the same walk, so that they cannot differ. */
#include "policies/reprint.h"

#include <string.h>

#include "policies/text.h"

typedef struct walk {
    const lar_json *j;
    char *out;      /* NULL: a place is looked for */
    size_t len;     /* printed so far */
    size_t wanted;  /* the place; SIZE_MAX if none */
    uint32_t found; /* byte of the body */
} walk;

/* `from`: the byte of the body where the text lies, or which it stands for. */
static void emit(walk *w, const char *text, size_t n, uint32_t from) {
    if (w->out) memcpy(w->out + w->len, text, n);
    else if (w->wanted >= w->len && w->wanted - w->len < n) {
        const char *body = w->j->body.ptr;
        bool own = text >= body && text < body + w->j->body.len;
        w->found = from + (own ? (uint32_t)(w->wanted - w->len) : 0);
    }
    w->len += n;
}

static size_t escape_bytes(const char *p, const char *end) {
    if (p[1] != 'u') return 2;
    char first[4];
    size_t n = lar_text_decode(lar_slice_of(p, 6), first);
    bool high =
        n == 3 && (unsigned char)first[0] == 0xED && (unsigned char)first[1] >= 0xA0 && (unsigned char)first[1] < 0xB0;
    if (!high || end - p < 12 || p[6] != '\\' || p[7] != 'u') return 6;
    char pair[8];
    return lar_text_decode(lar_slice_of(p, 12), pair) == 4 ? 12 : 6;
}

/* An escape is decoded, and written again only if it must be. */
static void emit_escape(walk *w, const char *p, size_t n, uint32_t from) {
    static const char hex[] = "0123456789abcdef";
    char text[8];
    size_t len = lar_text_decode(lar_slice_of(p, n), text);
    unsigned char c = (unsigned char)text[0];
    if (len == 1 && (c < 0x20 || c == '"' || c == '\\')) {
        const char *at = c ? strchr("\"\"\\\\\bb\ff\nn\rr\tt", c) : NULL;
        text[0] = '\\';
        if (at) text[1] = at[1];
        else {
            memcpy(text + 1, "u00", 3);
            text[4] = hex[c >> 4];
            text[5] = hex[c & 15];
        }
        len = at ? 2 : 6;
    }
    emit(w, text, len, from);
}

/* p is at the opening quote; returns the byte behind the closing one. */
static const char *emit_string(walk *w, const char *p, const char *end) {
    const char *body = w->j->body.ptr, *run = p++;
    while (p < end && *p != '"') {
        if (*p != '\\') {
            p++;
            continue;
        }
        emit(w, run, (size_t)(p - run), (uint32_t)(run - body));
        size_t n = escape_bytes(p, end);
        emit_escape(w, p, n, (uint32_t)(p - body));
        p += n;
        run = p;
    }
    p++;
    emit(w, run, (size_t)(p - run), (uint32_t)(run - body));
    return p;
}

static void emit_bytes(walk *w, uint32_t start, uint32_t stop) {
    const char *body = w->j->body.ptr, *p = body + start, *end = body + stop;
    while (p < end) {
        uint32_t at = (uint32_t)(p - body);
        if (*p == '"') {
            p = emit_string(w, p, end);
            continue;
        }
        if (*p == ',') emit(w, ", ", 2, at);
        else if (*p == ':') emit(w, ": ", 2, at);
        else if ((unsigned char)*p > ' ') emit(w, p, 1, at);
        p++;
    }
}

static void emit_value(walk *w, uint32_t node) {
    const lar_json *j = w->j;
    const lar_json_node *n = &j->nodes[node];
    if (lar_json_get(j, node, "cache_control") == LAR_JSON_NONE) {
        emit_bytes(w, n->start, n->end);
        return;
    }
    bool first = true;
    emit(w, "{", 1, n->start);
    for (uint32_t k = lar_json_first(j, node); k != LAR_JSON_NONE; k = lar_json_after(j, node, k)) {
        if (lar_json_eq(j, k, LAR_SLICE("cache_control"))) continue;
        if (!first) emit(w, ", ", 2, j->nodes[k].start);
        emit_bytes(w, j->nodes[k].start, j->nodes[k + 1].end);
        first = false;
    }
    emit(w, "}", 1, n->end - 1);
}

lar_error lar_reprint(const lar_json *j, uint32_t node, lar_arena *arena, lar_slice *out) {
    lar_slice raw = lar_json_raw(j, node);
    *out = (lar_slice){0};
    /* A ',' or ':' may gain a blank; nothing else grows. */
    char *text = lar_arena_alloc(arena, 2 * raw.len + 1);
    if (!text) return LAR_NO_MEMORY;
    walk w = {.j = j, .out = text, .wanted = SIZE_MAX};
    emit_value(&w, node);
    *out = lar_slice_of(text, w.len);
    return LAR_OK;
}

uint32_t lar_reprint_body_offset(const lar_json *j, uint32_t node, size_t at) {
    walk w = {.j = j, .wanted = at, .found = j->nodes[node].end};
    emit_value(&w, node);
    return w.found;
}
