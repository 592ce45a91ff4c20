/* Chat templates: the subset of Jinja that models' own templates use, with Hugging Face's conventions (trim_blocks and
 * lstrip_blocks on, their tojson, raise_exception and strftime_now). Semantics are those of Jinja2 3.1 on Python.
 *
 * In: if/elif/else, for (else, a filtering `if`, unpacking, break, continue, loop.*), set (names, several names,
 * namespace attributes, blocks), macro (defaults, names of arguments), filter blocks, comments, white space control;
 * generation blocks are plain text. Filters, tests and methods: template.def. Everything else (include, import,
 * extends, call, raw, with, do, chained comparisons, ...) is refused when it is parsed, with line, column and name.
 *
 * Rendered text says of each byte whether the template wrote it or a value carried it, through every operation on
 * strings. A tokenizer makes special tokens only of bytes that are the template's (tokenizer.h): so no user's text
 * can form one.
 *
 * Differences from Python: integers over 64 bits are printed and compared, but not reckoned with; upper, lower, title
 * and capitalize know Latin, Greek and Cyrillic letters, others stay; a lone surrogate in JSON becomes U+FFFD; NaN and
 * Infinity are no JSON. list.append works, as in llama.cpp. A variable named like a method of a dict is the method. */
#ifndef LARDER_ENGINE_TEXT_TEMPLATE_H
#define LARDER_ENGINE_TEXT_TEMPLATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/slice.h"
#include "engine/text/tokenizer.h"

/* -- the template --------------------------------------------------------------------------------- */

#define LAR_TEMPLATE_SOURCE_BYTES_MAX (1u << 20)

/* Parsed once, immutable: any number of threads may render it. */
typedef struct lar_template lar_template;

/* Copies what it needs of `source` (UTF-8, at most LAR_TEMPLATE_SOURCE_BYTES_MAX). Errors: INVALID with line, column
 * and the unknown name in `d`, LIMIT (too large, nested too deeply), NO_MEMORY; *out is NULL then. */
LAR_MUST_USE lar_error lar_template_parse(lar_slice source, lar_template **out, lar_diag *d);
void lar_template_free(lar_template *t); /* NULL is allowed */
/* True if the template reads a variable of that name: "tools", "enable_thinking", "thinking". */
bool lar_template_reads(const lar_template *t, const char *name);
/* True if calls in messages want their arguments as objects (GLM, Qwen, V3.2) and not as the text that OpenAI's API
 * carries (DeepSeek V3, V3.1): found by rendering two small conversations. See LAR_TEMPLATE_ARGUMENTS_OBJECT. */
bool lar_template_wants_objects(const lar_template *t);

/* -- values ----------------------------------------------------------------------------------------- */

/* Who wrote a byte. */
typedef enum lar_template_origin {
    LAR_TEMPLATE_OWN,  /* the template, or a value that the caller vouches for (bos_token) */
    LAR_TEMPLATE_VALUE /* messages, tools and other values: never a special token */
} lar_template_origin;

typedef enum lar_template_arguments {
    LAR_TEMPLATE_ARGUMENTS_AS_IS,
    LAR_TEMPLATE_ARGUMENTS_OBJECT /* tool_calls[].function.arguments: a string that holds a JSON object becomes it */
} lar_template_arguments;

/* The variables of one rendering; one thread. Names are copied; a name set twice has the later value. */
typedef struct lar_template_values lar_template_values;

/* At most memory_bytes_max are taken for values. NULL when out of memory. */
lar_template_values *lar_template_values_new(size_t memory_bytes_max);
void lar_template_values_free(lar_template_values *v); /* NULL is allowed */

/* Text, copied. Only bos_token, eos_token and the like are OWN. Errors: LIMIT, NO_MEMORY, INVALID (not UTF-8). */
LAR_MUST_USE lar_error lar_template_set_text(lar_template_values *v, const char *name, lar_slice text,
                                             lar_template_origin origin);
LAR_MUST_USE lar_error lar_template_set_bool(lar_template_values *v, const char *name, bool on);
/* Any JSON value, copied; its text is VALUE. Numbers keep their kind: 1 is an integer, 1.0 prints as 1.0. Nesting at
 * most 64. Errors: as lar_json_parse, LIMIT, NO_MEMORY. */
LAR_MUST_USE lar_error lar_template_set_json(lar_template_values *v, const char *name, lar_slice json, lar_diag *d);
/* The conversation: a JSON array of OpenAI's messages, as variable `messages`. As set_json, but a role out of system,
 * developer, user, assistant, tool, function and observation is OWN: some templates build their marks of it.
 * JSON_SHAPE if it is no array of objects with a role. */
LAR_MUST_USE lar_error lar_template_set_messages(lar_template_values *v, lar_slice json,
                                                 lar_template_arguments arguments, lar_diag *d);
/* What strftime_now shows: seconds since 1970, moved to the local zone. Without it strftime_now is
 * undefined, and a template that calls it anyway ends with an error. */
void lar_template_set_now(lar_template_values *v, int64_t local_seconds);

/* -- rendering ---------------------------------------------------------------------------------------- */

typedef struct lar_template_limits {
    size_t output_bytes_max;
    size_t memory_bytes_max; /* values made while rendering; freed before it returns */
    uint64_t steps_max;      /* instructions, and a step for every 64 bytes or 8 members that one of them visits */
    uint32_t depth_max;      /* macros and loops under way at once */
} lar_template_limits;

#define LAR_TEMPLATE_LIMITS_DEFAULT                                                                                    \
    ((lar_template_limits){                                                                                            \
        .output_bytes_max = 16u << 20, .memory_bytes_max = 256u << 20, .steps_max = 20000000, .depth_max = 64})

/* `end` is the offset behind the span; spans are in order, neighbours differ in origin, the last ends at the text's
 * end. */
typedef struct lar_template_span {
    uint32_t end;
    lar_template_origin origin;
} lar_template_span;

/* Embedded, zero-initialised; owns both. Kept from one rendering to the next. */
typedef struct lar_template_text {
    lar_buf bytes;
    lar_template_span *spans;
    uint32_t span_count, span_cap;
} lar_template_text;

void lar_template_text_release(lar_template_text *text);
/* Those spans that values wrote: lar_marked_text's `plain`. `out` has room for span_count; returns how many there
 * are. */
size_t lar_template_text_plain(const lar_template_text *text, lar_text_span *out);

/* Renders into `out` (what it held is replaced; empty after an error). limits NULL: the default. `values` is not
 * changed. Errors, with line and column in `d`: INVALID (what the template does is an error: raise_exception, an
 * undefined value's attribute; text of values is left out of the message), LIMIT (named), NO_MEMORY. */
LAR_MUST_USE lar_error lar_template_render(const lar_template *t, const lar_template_values *values,
                                           const lar_template_limits *limits, lar_template_text *out, lar_diag *d);

#endif
