/* Chunked framing, read strictly (RFC 9112 7.1): lines end in CR LF only, data is followed by exactly CR LF, extensions
 * are well-formed and free of control characters, sizes fit.
 *
 * Called by http1.c. Why not llhttp's: 8.1.0 accepts a bare LF behind a size and anything behind the data, and a guard
 * beside it would be this same machine once more. One machine decides, so that two cannot disagree.
 * Loop thread; never blocks; no memory: chunk data is handed out in place.
 * Invariants: a byte is looked at once; all extensions of a message together stay under head_bytes_max.
 * Not here: the trailer section (a header section, http1.c). */
#include "gateway/http1/http1_parser.h"

enum { SIZE_DIGITS_MAX = 16 };

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

/* qdtext or a quoted pair's second half: no control characters but HTAB. */
static bool is_text(char c) { return (unsigned char)c >= 0x20 ? c != 0x7f : c == '\t'; }

static const char *size_digit(lar_http1 *p, int digit) {
    if (p->chunk == CHUNK_SIZE_FIRST) p->left = 0, p->size_digits = 0;
    if (++p->size_digits > SIZE_DIGITS_MAX || p->left >> 59) return "a chunk size is too large";
    p->left = p->left << 4 | (uint64_t)digit;
    p->chunk = CHUNK_SIZE;
    return NULL;
}

/* Behind a size, a name or a value: blanks, ';', the line's end. */
static const char *behind(lar_http1 *p, char c, http1_chunk blank) {
    if (c == ';') p->chunk = CHUNK_EXT_NAME_FIRST;
    else if (is_blank(c)) p->chunk = blank;
    /* Blanks before the line's end are outside the grammar but cannot be read in two ways; old servers pad sizes. */
    else if (c == '\r' && (p->chunk != blank || p->type == LAR_HTTP1_RESPONSE)) p->chunk = CHUNK_SIZE_LF;
    else return "a chunk size line is malformed";
    return NULL;
}

static const char *extension_byte(lar_http1 *p, char c) {
    static const char bad[] = "a chunk extension is malformed";
    switch (p->chunk) {
    case CHUNK_EXT_NAME_FIRST:
        if (is_blank(c)) return NULL;
        p->chunk = CHUNK_EXT_NAME;
        return is_token_char(c) ? NULL : bad;
    case CHUNK_EXT_NAME:
        if (is_token_char(c)) return NULL;
        if (c == '=') return p->chunk = CHUNK_EXT_VALUE_FIRST, NULL;
        return behind(p, c, CHUNK_EXT_NAME_BLANK);
    case CHUNK_EXT_NAME_BLANK:
        if (c == '=') return p->chunk = CHUNK_EXT_VALUE_FIRST, NULL;
        return behind(p, c, CHUNK_EXT_NAME_BLANK);
    case CHUNK_EXT_VALUE_FIRST:
        if (is_blank(c)) return NULL;
        if (c == '"') return p->chunk = CHUNK_EXT_QUOTED, NULL;
        p->chunk = CHUNK_EXT_VALUE;
        return is_token_char(c) ? NULL : bad;
    case CHUNK_EXT_VALUE:
        if (is_token_char(c)) return NULL;
        return behind(p, c, CHUNK_EXT_VALUE_BLANK);
    case CHUNK_EXT_QUOTED:
        if (c == '"') p->chunk = CHUNK_EXT_VALUE_END;
        else if (c == '\\') p->chunk = CHUNK_EXT_ESCAPED;
        return is_text(c) ? NULL : bad;
    case CHUNK_EXT_ESCAPED: p->chunk = CHUNK_EXT_QUOTED; return is_text(c) ? NULL : bad;
    case CHUNK_EXT_VALUE_END:
    case CHUNK_EXT_VALUE_BLANK: return behind(p, c, CHUNK_EXT_VALUE_BLANK);
    default: return bad;
    }
}

/* One byte of framing. Returns what is wrong with it, or NULL. */
static const char *framing_byte(lar_http1 *p, char c) {
    int digit;
    switch (p->chunk) {
    case CHUNK_SIZE_FIRST:
        digit = hex_digit(c);
        return digit < 0 ? "a chunk does not begin with its size" : size_digit(p, digit);
    case CHUNK_SIZE: digit = hex_digit(c); return digit < 0 ? behind(p, c, CHUNK_SIZE_BLANK) : size_digit(p, digit);
    case CHUNK_SIZE_BLANK: return behind(p, c, CHUNK_SIZE_BLANK);
    case CHUNK_SIZE_LF: p->chunk = CHUNK_DATA; return c == '\n' ? NULL : "a CR without LF in a chunk size line";
    case CHUNK_DATA_CR: p->chunk = CHUNK_DATA_LF; return c == '\r' ? NULL : "chunk data is not followed by CR LF";
    case CHUNK_DATA_LF: p->chunk = CHUNK_SIZE_FIRST; return c == '\n' ? NULL : "chunk data is not followed by CR LF";
    default: p->extension_bytes++; return extension_byte(p, c);
    }
}

/* A size line is over: END for the last chunk, MORE to go on with the data. */
static lar_http1_event size_known(lar_http1 *p) {
    if (p->left == 0) return LAR_HTTP1_END;
    if (p->left > p->limits.body_bytes_max - p->body_bytes && p->type == LAR_HTTP1_REQUEST)
        return lar_http1_refuse(p, LAR_HTTP_BODY_LARGE, p->body_bytes, "the chunked body is larger than the limit");
    p->body_bytes += p->left;
    return LAR_HTTP1_MORE;
}

lar_http1_event lar_http1_chunk_next(lar_http1 *p, const char *data, size_t len, size_t *used, lar_slice *body) {
    for (size_t i = 0; i < len; i++) {
        if (p->chunk == CHUNK_DATA) {
            size_t n = p->left < len - i ? (size_t)p->left : len - i;
            *body = lar_slice_of(data + i, n);
            *used = i + n;
            p->left -= n;
            if (p->left == 0) p->chunk = CHUNK_DATA_CR;
            return LAR_HTTP1_BODY;
        }
        const char *wrong = framing_byte(p, data[i]);
        if (wrong) return lar_http1_refuse(p, LAR_HTTP_SYNTAX, p->body_bytes, wrong);
        if (p->extension_bytes > p->limits.head_bytes_max)
            return lar_http1_refuse(p, LAR_HTTP_HEAD_LARGE, p->body_bytes,
                                    "the chunk extensions are larger than the limit");
        if (p->chunk != CHUNK_DATA) continue;
        lar_http1_event e = size_known(p);
        if (e == LAR_HTTP1_MORE) continue;
        *used = i + 1;
        return e;
    }
    *used = len;
    return LAR_HTTP1_MORE;
}
