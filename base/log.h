/* Structured log lines with fixed field names, logfmt or JSON, to stderr (or a given descriptor).
 * Never a prompt, an answer or a credential: lengths and fingerprints instead. Thread-safe: one
 * write(2) a line. A line that cannot be written (EAGAIN, closed pipe) is dropped and counted. */
#ifndef LARDER_BASE_LOG_H
#define LARDER_BASE_LOG_H

#include <stdint.h>

#include "base/slice.h"

typedef enum lar_log_level { LAR_LOG_ERROR, LAR_LOG_WARN, LAR_LOG_INFO, LAR_LOG_DEBUG } lar_log_level;
typedef enum lar_log_format { LAR_LOG_LOGFMT, LAR_LOG_JSON } lar_log_format;

typedef struct lar_log lar_log;

typedef struct lar_log_options {
    lar_log_level level;
    lar_log_format format;
    int fd;
} lar_log_options;

/* Heap; aborts when out of memory (start-up only). */
lar_log *lar_log_new(const lar_log_options *o);
void lar_log_free(lar_log *l);
/* From now on; any thread. */
void lar_log_set_level(lar_log *l, lar_log_level level);
uint64_t lar_log_dropped(const lar_log *l);

/* One field of a line: text (escaped as the format needs, cut at 512 bytes), integer or milliseconds. */
typedef struct lar_log_field {
    const char *name;
    enum { LAR_FIELD_TEXT, LAR_FIELD_INT, LAR_FIELD_MS } kind;
    lar_slice text;
    int64_t number; /* LAR_FIELD_MS: microseconds, printed as milliseconds with three decimals */
} lar_log_field;

#define LAR_F_TEXT(n, s) ((lar_log_field){.name = (n), .kind = LAR_FIELD_TEXT, .text = (s)})
#define LAR_F_CSTR(n, s) ((lar_log_field){.name = (n), .kind = LAR_FIELD_TEXT, .text = lar_slice_cstr(s)})
#define LAR_F_INT(n, v) ((lar_log_field){.name = (n), .kind = LAR_FIELD_INT, .number = (int64_t)(v)})
#define LAR_F_MS(n, us) ((lar_log_field){.name = (n), .kind = LAR_FIELD_MS, .number = (int64_t)(us)})

/* time=... level=... event=<event> then the fields in order. `l` may be NULL (no log). */
void lar_log_write(lar_log *l, lar_log_level level, const char *event, const lar_log_field *fields, int count);
#define LAR_LOG(l, level, event, ...)                                                                                  \
    lar_log_write((l), (level), (event), (const lar_log_field[]){__VA_ARGS__},                                         \
                  (int)(sizeof((const lar_log_field[]){__VA_ARGS__}) / sizeof(lar_log_field)))

/* Copies a URL into `out` with user info and query removed, for messages. Always terminated. */
void lar_log_redact_url(lar_slice url, char *out, size_t cap);

#endif
