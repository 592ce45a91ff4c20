/* The parser's inside, shared by http1*.c only. */
#ifndef LARDER_GATEWAY_HTTP1_PARSER_H
#define LARDER_GATEWAY_HTTP1_PARSER_H

#include <llhttp.h>

#include "gateway/http1/http1.h"

typedef enum http1_state {
    HTTP1_IDLE,    /* between messages */
    HTTP1_INTERIM, /* responses: a 1xx head was handed out, the next head follows */
    HTTP1_IN_HEAD,
    HTTP1_LENGTH,    /* `left` body bytes to come */
    HTTP1_UNTIL_EOF, /* responses without length */
    HTTP1_CHUNKED,   /* in chunk lines and chunk data; `chunk` says where */
    HTTP1_TRAILER,
    HTTP1_COMPLETE, /* END is the next event */
    HTTP1_FAILED
} http1_state;

/* Where in chunked framing: RFC 9112 7.1. The EXT_* ones walk chunk-ext, 7.1.1. */
typedef enum http1_chunk {
    CHUNK_SIZE_FIRST,
    CHUNK_SIZE,
    CHUNK_SIZE_BLANK, /* blanks behind the size: only ';' may follow, or the line's end in a response */
    CHUNK_EXT_NAME_FIRST,
    CHUNK_EXT_NAME,
    CHUNK_EXT_NAME_BLANK,
    CHUNK_EXT_VALUE_FIRST,
    CHUNK_EXT_VALUE,
    CHUNK_EXT_QUOTED,
    CHUNK_EXT_ESCAPED,
    CHUNK_EXT_VALUE_END, /* behind the closing quote */
    CHUNK_EXT_VALUE_BLANK,
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF
} http1_chunk;

struct lar_http1 {
    lar_http1_type type;
    http1_state state;
    http1_chunk chunk;
    lar_http1_limits limits;
    lar_buf head;            /* the raw head; everything in `h` borrows it */
    lar_buf trailer;         /* raw trailer section, empty unless one is sent */
    lar_http1_field *fields; /* grows up to limits.fields_max */
    uint32_t fields_cap;
    uint32_t line_bytes;      /* of the line under way in head or trailer */
    uint32_t extension_bytes; /* of all chunk extensions of this message */
    uint32_t size_digits;
    uint32_t blank_lines; /* skipped before a request line */
    uint64_t left;        /* LENGTH: body bytes to come; CHUNKED: of this chunk */
    uint64_t body_bytes;  /* announced so far, over all chunks */
    bool to_head_request;
    bool blank_cr; /* the CR of an empty line before a request line was seen */
    lar_http1_head h;
    lar_error error;
    lar_diag diag;
    llhttp_t second; /* the second reader of every head */
    uint32_t second_fields;
    bool second_done;
};

extern const unsigned char lar_http1_token_table[256];
static inline bool is_token_char(char c) { return lar_http1_token_table[(unsigned char)c] != 0; }

/* Enters FAILED. A response parser turns every code into UPSTREAM_PROTOCOL unless it is an UPSTREAM_* already. */
lar_http1_event lar_http1_refuse(lar_http1 *p, lar_error e, uint64_t offset, const char *text);

/* Reads the complete head in p->head into p->h. False after lar_http1_refuse. */
bool lar_http1_read_head(lar_http1 *p);
/* Checks a complete trailer section. False after lar_http1_refuse. */
bool lar_http1_check_trailer(lar_http1 *p);

/* Walks chunk lines. Sets *used; returns BODY with *body, MORE, FAIL, or END when the last chunk's line is over and the
 * trailer section follows. */
lar_http1_event lar_http1_chunk_next(lar_http1 *p, const char *data, size_t len, size_t *used, lar_slice *body);

#endif
