/* Between request_log.c, which finds records, and request_log_forms.c, which makes requests of them. */
#ifndef LARDER_GATEWAY_REQUEST_LOG_PARTS_H
#define LARDER_GATEWAY_REQUEST_LOG_PARTS_H

#include <stdio.h>

#include "base/buf.h"
#include "gateway/commands/request_log.h"

/* Bytes of a built body from `at` on come from the record's byte `source` on. */
typedef struct lar_log_origin {
    size_t at, source;
    bool copied; /* byte by byte; else all of it stands for one place */
} lar_log_origin;

struct lar_request_log {
    const char *name;
    lar_request_log_options o;
    FILE *file; /* NULL: `text` is all there is */
    bool close_file, ended, probed;
    lar_buf text;         /* read ahead, consumed from the front by text_at */
    size_t text_at;
    uint64_t line, lines; /* the record's first; read so far */
    uint64_t passed;

    lar_slice record; /* its text */
    size_t counted_at, counted_begin; /* of the element at hand; of its line */
    uint64_t counted_line, counted_characters; /* of the file; of the line in front of the element */
    lar_json json;
    bool open;           /* the record has more to give */
    uint32_t element;    /* of an array of records, or its root */
    uint32_t call, message; /* of a conversation: calls given, message to go on at */

    lar_buf body, decoded, decoded_answer; /* built bodies; strings that hold JSON */
    lar_json inner, inner_answer;
    lar_log_origin *origins;
    uint32_t origin_count, origin_cap;
};

/* The next request of the record at l->element. NOT_FOUND when it has no more; INVALID when it is none. */
LAR_MUST_USE lar_error lar_log_form_next(lar_request_log *l, lar_log_request *out, lar_diag *d);
/* An array whose elements are messages: objects with a role. */
bool lar_log_is_messages(const lar_json *j, uint32_t node);

#endif
