/* A complete head, read twice: here, strictly, and by llhttp; both must find the same framing.
 *
 * Flow: http1.c calls with the raw head in one buffer. This reader splits lines, refuses what RFC 9112 refuses and
 * llhttp 8.1.0 lets through (bare CR, obs-fold, version, Host, list or doubled lengths), and records slices. Then
 * llhttp runs over the same bytes; a head that the two read differently is refused: smuggling lives on such a
 * difference.
 * Loop thread; never blocks. Memory: the field array, grown up to fields_max and kept.
 * Invariants: 1. Every LF in the buffer follows a CR (http1.c saw to it) and the last line is empty. 2. A request with
 * any doubt about its length is refused; a response with one is closed after use. 3. A diag never quotes a value.
 * Not here: finding the head's end (http1.c), chunk lines (http1_chunk.c). */
#include <stdlib.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/ensure.h"
#include "gateway/http1/http1_parser.h"

/* tchar of RFC 9110 5.6.2 */
const unsigned char lar_http1_token_table[256] = {
    ['!'] = 1, ['#'] = 1, ['$'] = 1, ['%'] = 1, ['&'] = 1, ['\''] = 1, ['*'] = 1, ['+'] = 1, ['-'] = 1, ['.'] = 1,
    ['^'] = 1, ['_'] = 1, ['`'] = 1, ['|'] = 1, ['~'] = 1, ['0'] = 1,  ['1'] = 1, ['2'] = 1, ['3'] = 1, ['4'] = 1,
    ['5'] = 1, ['6'] = 1, ['7'] = 1, ['8'] = 1, ['9'] = 1, ['A'] = 1,  ['B'] = 1, ['C'] = 1, ['D'] = 1, ['E'] = 1,
    ['F'] = 1, ['G'] = 1, ['H'] = 1, ['I'] = 1, ['J'] = 1, ['K'] = 1,  ['L'] = 1, ['M'] = 1, ['N'] = 1, ['O'] = 1,
    ['P'] = 1, ['Q'] = 1, ['R'] = 1, ['S'] = 1, ['T'] = 1, ['U'] = 1,  ['V'] = 1, ['W'] = 1, ['X'] = 1, ['Y'] = 1,
    ['Z'] = 1, ['a'] = 1, ['b'] = 1, ['c'] = 1, ['d'] = 1, ['e'] = 1,  ['f'] = 1, ['g'] = 1, ['h'] = 1, ['i'] = 1,
    ['j'] = 1, ['k'] = 1, ['l'] = 1, ['m'] = 1, ['n'] = 1, ['o'] = 1,  ['p'] = 1, ['q'] = 1, ['r'] = 1, ['s'] = 1,
    ['t'] = 1, ['u'] = 1, ['v'] = 1, ['w'] = 1, ['x'] = 1, ['y'] = 1,  ['z'] = 1};

/* What the fields say about framing and the connection. */
typedef struct head_facts {
    lar_slice host, length, coding;
    uint32_t hosts, lengths, codings;
    bool close, keep_alive, expect_continue;
} head_facts;

static bool refuse(lar_http1 *p, lar_error e, size_t offset, const char *text) {
    (void)lar_http1_refuse(p, e, offset, text);
    return false;
}

static bool all_token(lar_slice s) {
    for (size_t i = 0; i < s.len; i++)
        if (!is_token_char(s.ptr[i])) return false;
    return s.len > 0;
}

/* True if no byte is a control character other than HTAB (RFC 9110 5.5). */
static bool value_clean(lar_slice s) {
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f) return false;
    }
    return true;
}

/* True if a whole section holds no control characters but HTAB and the CR LF of its lines: then no value need be
 * looked at again. A CR at bit i must have its LF at bit i + 1 and no LF stands alone: one mask, moved on, equals the
 * other. */
static bool section_clean(const lar_buf *b) {
    size_t i = 0;
    unsigned carry = 0;
#ifdef __SSE2__
    const __m128i space = _mm_set1_epi8(0x20), top = _mm_set1_epi8(0x7f), high = _mm_set1_epi8(-0x80);
    const __m128i tab = _mm_set1_epi8('\t'), cr = _mm_set1_epi8('\r'), lf = _mm_set1_epi8('\n');
    for (; i + 16 <= b->len; i += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(b->ptr + i));
        __m128i low = _mm_cmplt_epi8(_mm_xor_si128(v, high), _mm_xor_si128(space, high)); /* unsigned v < 0x20 */
        __m128i is_cr = _mm_cmpeq_epi8(v, cr), is_lf = _mm_cmpeq_epi8(v, lf);
        __m128i fine = _mm_or_si128(_mm_or_si128(is_cr, is_lf), _mm_cmpeq_epi8(v, tab));
        if (_mm_movemask_epi8(_mm_or_si128(_mm_andnot_si128(fine, low), _mm_cmpeq_epi8(v, top)))) return false;
        carry |= (unsigned)_mm_movemask_epi8(is_cr) << 1;
        if ((carry & 0xffff) != (unsigned)_mm_movemask_epi8(is_lf)) return false;
        carry >>= 16;
    }
#endif
    for (; i < b->len; i++) {
        unsigned char c = (unsigned char)b->ptr[i];
        if ((c < 0x20 && c != '\t' && c != '\r' && c != '\n') || c == 0x7f) return false;
        if (carry != (c == '\n')) return false;
        carry = c == '\r';
    }
    return carry == 0;
}

/* "HTTP/1.x". Sets minor. */
static bool read_version(lar_http1 *p, lar_slice v, size_t offset) {
    if (v.len != 8 || memcmp(v.ptr, "HTTP/", 5) != 0 || v.ptr[5] < '0' || v.ptr[5] > '9' || v.ptr[6] != '.' ||
        v.ptr[7] < '0' || v.ptr[7] > '9')
        return refuse(p, LAR_HTTP_SYNTAX, offset, "the first line has no HTTP version");
    if (v.ptr[5] != '1' || v.ptr[7] > '1') return refuse(p, LAR_HTTP_VERSION, offset, "not HTTP/1.0 or HTTP/1.1");
    p->h.minor = (uint8_t)(v.ptr[7] - '0');
    return true;
}

static uint8_t method_id(lar_slice m) {
    static const lar_slice names[LAR_HTTP1_OTHER] = {
        [LAR_HTTP1_GET] = {"GET", 3},        [LAR_HTTP1_HEAD] = {"HEAD", 4},     [LAR_HTTP1_POST] = {"POST", 4},
        [LAR_HTTP1_PUT] = {"PUT", 3},        [LAR_HTTP1_DELETE] = {"DELETE", 6}, [LAR_HTTP1_PATCH] = {"PATCH", 5},
        [LAR_HTTP1_OPTIONS] = {"OPTIONS", 7}};
    for (uint8_t i = 0; i < LAR_HTTP1_OTHER; i++)
        if (lar_slice_eq(m, names[i])) return i;
    return LAR_HTTP1_OTHER;
}

/* method SP request-target SP HTTP-version (RFC 9112 3) */
static bool read_request_line(lar_http1 *p, lar_slice line) {
    const char *sp = memchr(line.ptr, ' ', line.len);
    size_t n = sp ? (size_t)(sp - line.ptr) : line.len;
    lar_slice method = lar_slice_of(line.ptr, n);
    if (!sp || !all_token(method)) return refuse(p, LAR_HTTP_SYNTAX, 0, "the request line is malformed");
    const char *at = sp + 1, *end = line.ptr + line.len;
    const char *target = at;
    while (at < end && (unsigned char)*at > 0x20 && (unsigned char)*at < 0x7f) at++;
    size_t offset = (size_t)(at - line.ptr);
    if (at == target || (at < end && *at != ' '))
        return refuse(p, LAR_HTTP_SYNTAX, offset, "the request target is empty or holds a byte that must be encoded");
    if (at == end) return refuse(p, LAR_HTTP_SYNTAX, offset, "the request line has no HTTP version");
    if (!read_version(p, lar_slice_of(at + 1, (size_t)(end - at - 1)), offset + 1)) return false;
    p->h.method = method;
    p->h.method_id = method_id(method);
    p->h.target = lar_slice_of(target, (size_t)(at - target));
    return true;
}

/* HTTP-version SP status-code SP [reason-phrase] (RFC 9112 4); the second SP may be missing, as many leave it. */
static bool read_status_line(lar_http1 *p, lar_slice line) {
    if (line.len < 12 || line.ptr[8] != ' ') return refuse(p, LAR_HTTP_SYNTAX, 0, "the status line is malformed");
    if (!read_version(p, lar_slice_of(line.ptr, 8), 0)) return false;
    unsigned status = 0;
    for (size_t i = 9; i < 12; i++) {
        if (line.ptr[i] < '0' || line.ptr[i] > '9') return refuse(p, LAR_HTTP_SYNTAX, i, "the status is no number");
        status = status * 10 + (unsigned)(line.ptr[i] - '0');
    }
    if (status < 100) return refuse(p, LAR_HTTP_SYNTAX, 9, "the status is below 100");
    if (line.len > 12 && line.ptr[12] != ' ') return refuse(p, LAR_HTTP_SYNTAX, 12, "the status line is malformed");
    p->h.status = (uint16_t)status;
    if (line.len > 13) p->h.reason = lar_slice_of(line.ptr + 13, line.len - 13);
    if (!value_clean(p->h.reason)) return refuse(p, LAR_HTTP_SYNTAX, 13, "a control character in the reason phrase");
    return true;
}

/* field-name ":" OWS field-value OWS (RFC 9112 5). The caller checks the value's bytes. */
static bool read_field(lar_http1 *p, lar_slice line, size_t offset, lar_http1_field *f) {
    const char *colon = memchr(line.ptr, ':', line.len);
    if (line.ptr[0] == ' ' || line.ptr[0] == '\t') return refuse(p, LAR_HTTP_SYNTAX, offset, "a folded field line");
    if (!colon) return refuse(p, LAR_HTTP_SYNTAX, offset, "a field line without colon");
    size_t n = (size_t)(colon - line.ptr);
    f->name = lar_slice_of(line.ptr, n);
    f->value = lar_slice_trim(lar_slice_of(colon + 1, line.len - n - 1));
    if (!all_token(f->name))
        return refuse(p, LAR_HTTP_SYNTAX, offset,
                      "a field name is empty, ends in a blank or holds a forbidden character");
    return true;
}

static bool add_field(lar_http1 *p, const lar_http1_field *f, size_t offset) {
    if (p->h.field_count == p->fields_cap) {
        uint32_t cap = p->fields_cap ? p->fields_cap * 2 : 24;
        if (cap > p->limits.fields_max) cap = p->limits.fields_max;
        if (cap == p->fields_cap) return refuse(p, LAR_HTTP_HEAD_LARGE, offset, "too many fields");
        lar_http1_field *fields = realloc(p->fields, cap * sizeof *fields);
        if (!fields) return refuse(p, LAR_NO_MEMORY, offset, "no memory for the fields");
        p->fields = fields;
        p->fields_cap = cap;
    }
    p->fields[p->h.field_count++] = *f;
    p->h.fields = p->fields;
    return true;
}

static void note_connection(head_facts *facts, lar_slice list) {
    while (list.len) {
        const char *comma = memchr(list.ptr, ',', list.len);
        size_t n = comma ? (size_t)(comma - list.ptr) : list.len;
        lar_slice option = lar_slice_trim(lar_slice_of(list.ptr, n));
        if (lar_slice_ieq(option, LAR_SLICE("close"))) facts->close = true;
        if (lar_slice_ieq(option, LAR_SLICE("keep-alive"))) facts->keep_alive = true;
        n += comma != NULL;
        list = lar_slice_of(list.ptr + n, list.len - n);
    }
}

/* The length tells nearly all names apart, so an ordinary field costs one comparison at most. */
static void note_field(lar_http1 *p, head_facts *facts, const lar_http1_field *f) {
    switch (f->name.len) {
    case 4:
        if (lar_slice_ieq(f->name, LAR_SLICE("host"))) facts->hosts++, facts->host = f->value;
        break;
    case 6:
        if (lar_slice_ieq(f->name, LAR_SLICE("expect")) && lar_slice_ieq(f->value, LAR_SLICE("100-continue")))
            facts->expect_continue = true;
        break;
    case 7:
        if (lar_slice_ieq(f->name, LAR_SLICE("upgrade"))) p->h.upgrade = true;
        break;
    case 10:
        if (lar_slice_ieq(f->name, LAR_SLICE("connection"))) note_connection(facts, f->value);
        break;
    case 14:
        if (lar_slice_ieq(f->name, LAR_SLICE("content-length"))) facts->lengths++, facts->length = f->value;
        break;
    case 17:
        if (lar_slice_ieq(f->name, LAR_SLICE("transfer-encoding"))) facts->codings++, facts->coding = f->value;
        break;
    default: break;
    }
}

/* Lines of a header section from `at` to its empty line. `facts` NULL: a trailer, checked and dropped. */
static bool read_fields(lar_http1 *p, const lar_buf *b, size_t at, head_facts *facts) {
    uint32_t count = 0;
    bool clean = section_clean(b);
    for (;;) {
        const char *lf = memchr(b->ptr + at, '\n', b->len - at);
        LAR_ASSERT(lf && lf > b->ptr && lf[-1] == '\r');
        lar_slice line = lar_slice_of(b->ptr + at, (size_t)(lf - 1 - (b->ptr + at)));
        if (line.len == 0) return true;
        lar_http1_field f;
        if (!read_field(p, line, at, &f)) return false;
        if (!clean && !value_clean(f.value))
            return refuse(p, LAR_HTTP_SYNTAX, at, "a control character in a field value");
        if (facts) {
            if (!add_field(p, &f, at)) return false;
            note_field(p, facts, &f);
        } else if (++count > p->limits.fields_max) {
            return refuse(p, LAR_HTTP_HEAD_LARGE, at, "too many fields");
        }
        at = (size_t)(lf + 1 - b->ptr);
    }
}

bool lar_http1_check_trailer(lar_http1 *p) { return read_fields(p, &p->trailer, 0, NULL); }

/* 1*DIGIT up to 2^63 - 1, nothing else (RFC 9112 6.3 item 5). */
static bool read_length(lar_http1 *p, const head_facts *facts) {
    uint64_t v = 0;
    if (facts->lengths > 1) return refuse(p, LAR_HTTP_SYNTAX, 0, "Content-Length is given twice");
    if (facts->length.len == 0) return refuse(p, LAR_HTTP_SYNTAX, 0, "Content-Length is empty");
    for (size_t i = 0; i < facts->length.len; i++) {
        unsigned digit = (unsigned char)facts->length.ptr[i] - (unsigned)'0';
        if (digit > 9) return refuse(p, LAR_HTTP_SYNTAX, 0, "Content-Length is no plain number");
        if (v > (uint64_t)INT64_MAX / 10 || (v *= 10) > (uint64_t)INT64_MAX - digit)
            return refuse(p, LAR_HTTP_SYNTAX, 0, "Content-Length is too large");
        v += digit;
    }
    p->h.has_length = true;
    p->h.length = v;
    return true;
}

/* Content-Length and Transfer-Encoding, alone and together. */
static bool read_framing(lar_http1 *p, const head_facts *facts) {
    if (facts->codings > 1) return refuse(p, LAR_HTTP_SYNTAX, 0, "Transfer-Encoding is given twice");
    if (facts->codings && !lar_slice_ieq(facts->coding, LAR_SLICE("chunked")))
        return refuse(p, LAR_HTTP_SYNTAX, 0, "a Transfer-Encoding other than chunked");
    p->h.chunked = facts->codings == 1;
    if (facts->lengths && p->h.chunked && p->type == LAR_HTTP1_REQUEST)
        return refuse(p, LAR_HTTP_SYNTAX, 0, "Content-Length together with Transfer-Encoding");
    if (p->h.chunked && p->h.minor == 0 && p->type == LAR_HTTP1_REQUEST)
        return refuse(p, LAR_HTTP_SYNTAX, 0, "Transfer-Encoding in an HTTP/1.0 request");
    return facts->lengths == 0 || read_length(p, facts);
}

/* uri-host [ ":" port ], without the characters that only lists and user info use (RFC 9110 7.2). */
static bool host_valid(lar_slice host) {
    static const char others[] = "-._~%!$&'()*+;=";
    if (host.len == 0) return true; /* a target without authority (RFC 9110 7.2) */
    const char *at = host.ptr, *end = at + host.len;
    if (*at == '[') {
        const char *close = memchr(at, ']', host.len);
        if (!close || close == at + 1) return false;
        for (at++; at < close; at++)
            if (!((*at >= '0' && *at <= '9') || (*at >= 'a' && *at <= 'f') || (*at >= 'A' && *at <= 'F') ||
                  *at == ':' || *at == '.'))
                return false;
        at++;
    } else {
        while (at < end && ((*at >= '0' && *at <= '9') || (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
                            (*at && memchr(others, *at, sizeof others - 1))))
            at++;
    }
    if (at == end) return true;
    if (*at++ != ':') return false;
    if (end - at > 5) return false;
    while (at < end && *at >= '0' && *at <= '9') at++;
    return at == end;
}

static bool judge_request(lar_http1 *p, const head_facts *facts) {
    lar_http1_head *h = &p->h;
    if (facts->hosts > 1) return refuse(p, LAR_HTTP_HOST, 0, "Host is given twice");
    if (facts->hosts == 0 && h->minor == 1) return refuse(p, LAR_HTTP_HOST, 0, "Host is missing");
    if (!host_valid(facts->host)) return refuse(p, LAR_HTTP_HOST, 0, "Host holds a forbidden character");
    h->has_body = h->chunked || h->length > 0;
    h->expect_continue = facts->expect_continue && h->minor == 1 && h->has_body;
    return true;
}

static bool judge_response(lar_http1 *p) {
    lar_http1_head *h = &p->h;
    if (h->status == 101) return refuse(p, LAR_UPSTREAM_PROTOCOL, 0, "the upstream switched protocols unasked");
    bool never = p->to_head_request || h->status < 200 || h->status == 204 || h->status == 304;
    h->has_body = !never && (h->chunked || !h->has_length || h->length > 0);
    /* Faulty but readable framing (RFC 9112 6.1, 6.3 item 3): the answer counts, the connection ends with it. So does
     * an answer that only the connection's end completes. */
    if ((h->chunked && (h->has_length || h->minor == 0)) || (h->has_body && !h->chunked && !h->has_length))
        h->keep_alive = false;
    return true;
}

static int on_field_end(llhttp_t *ll) {
    ((lar_http1 *)ll->data)->second_fields++;
    return 0;
}

static int on_head_end(llhttp_t *ll) {
    ((lar_http1 *)ll->data)->second_done = true;
    return HPE_PAUSED;
}

static const llhttp_settings_t second_settings = {.on_header_value_complete = on_field_end,
                                                  .on_headers_complete = on_head_end};

/* llhttp over the head from `at`, without the white space behind a framing field's value: it may be SP or HTAB (RFC
 * 9110 5.6.3), and llhttp 8.1.0 takes a tab there for a part of the value. */
static llhttp_errno_t second_reads(lar_http1 *p, const char *at, const head_facts *facts) {
    const char *end = p->head.ptr + p->head.len;
    llhttp_errno_t err = HPE_OK;
    while (err == HPE_OK && at < end) {
        lar_slice next = {0}; /* the framing value that comes first from here and has a blank behind it */
        for (int i = 0; i < 2; i++) {
            lar_slice v = i ? facts->coding : facts->length;
            if (v.len == 0 || v.ptr < at || v.ptr[v.len] == '\r') continue;
            if (!next.ptr || v.ptr < next.ptr) next = v;
        }
        const char *stop = next.ptr ? next.ptr + next.len : end;
        err = llhttp_execute(&p->second, at, (size_t)(stop - at));
        at = stop;
        while (at < end && (*at == ' ' || *at == '\t')) at++;
    }
    return err;
}

/* llhttp over the same bytes. It knows a fixed list of methods, so another one is shown to it as GET. */
static bool second_reader_agrees(lar_http1 *p, const head_facts *facts) {
    llhttp_t *ll = &p->second;
    const char *at = p->head.ptr;
    llhttp_errno_t err = HPE_OK;
    llhttp_init(ll, p->type == LAR_HTTP1_REQUEST ? HTTP_REQUEST : HTTP_RESPONSE, &second_settings);
    if (p->type == LAR_HTTP1_RESPONSE) llhttp_set_lenient_chunked_length(ll, 1);
    ll->data = p;
    p->second_fields = 0;
    p->second_done = false;
    if (p->type == LAR_HTTP1_REQUEST && p->h.method_id == LAR_HTTP1_OTHER &&
        !lar_slice_eq(p->h.method, LAR_SLICE("CONNECT"))) {
        err = llhttp_execute(ll, "GET", 3);
        at += p->h.method.len;
    }
    if (err == HPE_OK) err = second_reads(p, at, facts);
    if (err != HPE_PAUSED || !p->second_done) return refuse(p, LAR_HTTP_SYNTAX, 0, "the head is malformed");
    bool chunked = (ll->flags & F_CHUNKED) != 0, length = (ll->flags & F_CONTENT_LENGTH) != 0;
    if (p->second_fields != p->h.field_count || chunked != p->h.chunked || length != p->h.has_length ||
        (length && ll->content_length != p->h.length))
        return refuse(p, LAR_HTTP_SYNTAX, 0, "the head can be read in two ways");
    return true;
}

bool lar_http1_read_head(lar_http1 *p) {
    lar_http1_head *h = &p->h;
    head_facts facts = {0};
    const char *lf = memchr(p->head.ptr, '\n', p->head.len);
    LAR_ASSERT(lf && lf > p->head.ptr);
    lar_slice line = lar_slice_of(p->head.ptr, (size_t)(lf - 1 - p->head.ptr));
    bool request = p->type == LAR_HTTP1_REQUEST;
    h->head_bytes = (uint32_t)p->head.len;
    if (!(request ? read_request_line(p, line) : read_status_line(p, line))) return false;
    if (!read_fields(p, &p->head, (size_t)(lf + 1 - p->head.ptr), &facts)) return false;
    h->keep_alive = !facts.close && (h->minor == 1 || facts.keep_alive);
    if (!read_framing(p, &facts)) return false;
    if (!(request ? judge_request(p, &facts) : judge_response(p))) return false;
    if (!second_reader_agrees(p, &facts)) return false;
    if (request && h->length > p->limits.body_bytes_max)
        return refuse(p, LAR_HTTP_BODY_LARGE, 0, "Content-Length is over the limit");
    return true;
}
