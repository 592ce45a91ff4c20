/* A model's output, token by token, as what a chat API answers with: content, reasoning, calls of tools.
 *
 * Bytes pass four stages, in this order: whole characters (output_utf8.h), stop strings (output_stop.h), reasoning by
 * its marks, calls by their format. What comes out is the same however the bytes were cut into tokens; only the
 * number of events differs. Everything is kept byte for byte: content is all that is outside of marks, reasoning and
 * calls, with its white space, so that a later request can carry it back unchanged.
 *
 * Reasoning begins where the template opened it (options.reasoning_open) or where the model's first text is the opening
 * mark; it ends with the closing mark, or where a block of calls begins. Marks elsewhere are text.
 *
 * Calls: DeepSeek's three formats. A block that cannot be read comes out as content, from where the unreadable call
 * began; calls before it stand. So does one that the text ends in (LAR_OUTPUT_CALLS_WHOLE). */
#ifndef LARDER_ENGINE_TEXT_OUTPUT_STREAM_H
#define LARDER_ENGINE_TEXT_OUTPUT_STREAM_H

#include "engine/text/output_stop.h"

#define LAR_OUTPUT_ID_BYTES 64
#define LAR_OUTPUT_MARK_BYTES_MAX 64
/* Of one call; also the most that one token may hold. */
#define LAR_OUTPUT_CALL_BYTES_MAX (1u << 20)

typedef enum lar_output_format {
    LAR_OUTPUT_FORMAT_NONE, /* no calls: all of it is text */
    LAR_OUTPUT_FORMAT_V3,   /* also R1: type, name, arguments between fences */
    LAR_OUTPUT_FORMAT_V31,  /* name, arguments */
    LAR_OUTPUT_FORMAT_DSML  /* V3.2: parameters one by one; they become a JSON object */
} lar_output_format;

/* The format that a template's source speaks of; NONE if it is none of these. */
lar_output_format lar_output_format_of(lar_slice template_source);

typedef enum lar_output_arguments {
    LAR_OUTPUT_CALLS_WHOLE,  /* a call is told when it is complete and its arguments are a JSON object */
    LAR_OUTPUT_CALLS_STREAM, /* a call is told as soon as its name is known; arguments follow piece by piece as the
                                model writes them, and may turn out to be no JSON or to end in the middle */
} lar_output_arguments;

typedef enum lar_output_kind {
    LAR_OUTPUT_CONTENT,   /* text */
    LAR_OUTPUT_REASONING, /* text */
    LAR_OUTPUT_CALL,      /* a call begins: index, id, text is the name */
    LAR_OUTPUT_ARGUMENTS, /* index, text: a piece of the arguments' JSON text */
} lar_output_kind;

/* Never empty text. All is valid during the callback only. */
typedef struct lar_output_event {
    lar_output_kind kind;
    uint32_t index; /* of the call, from 0 */
    lar_slice text; /* whole characters */
    const char *id; /* CALL only */
} lar_output_event;

typedef struct lar_output_sink {
    void *user;
    /* An error ends the call of lar_output_* with it. */
    lar_error (*emit)(void *user, const lar_output_event *event);
    /* Writes an id for a new call, NUL-terminated, at most LAR_OUTPUT_ID_BYTES. */
    void (*make_id)(void *user, char *id);
} lar_output_sink;

typedef struct lar_output_options {
    const lar_slice *stops; /* copied; they end the text inside calls, too */
    uint32_t stop_count;
    lar_slice reasoning_begin, reasoning_end; /* "<think>", "</think>"; copied; both empty: no reasoning */
    bool reasoning_open;                      /* the template has written reasoning_begin */
    lar_output_format format;
    lar_output_arguments arguments;
    uint32_t call_tokens_max; /* of one block of calls, 0: no limit but LAR_OUTPUT_CALL_BYTES_MAX */
} lar_output_options;

typedef enum lar_output_end {
    LAR_OUTPUT_END_TEXT,        /* nothing special; the caller knows why the model stopped */
    LAR_OUTPUT_END_CALLS,       /* there were calls, all of them complete: "tool_calls" */
    LAR_OUTPUT_END_STOP_STRING, /* "stop" */
    LAR_OUTPUT_END_UNFINISHED,  /* the text ended inside of a call */
    LAR_OUTPUT_END_CALL_LIMIT,  /* a block of calls went over call_tokens_max or LAR_OUTPUT_CALL_BYTES_MAX */
} lar_output_end;

typedef struct lar_output_summary {
    lar_output_end end;
    int stop;               /* number of the stop string, or -1 */
    uint32_t calls;         /* told and complete */
    uint32_t calls_invalid; /* that came out as text, or (STREAM) whose arguments are no JSON object or have no end */
} lar_output_summary;

/* True if the token's text is one of the format's marks: a special token that the stream must be fed all the same. */
bool lar_output_format_marks(lar_output_format format, lar_slice token);

/* True if a rendered prompt ends with the mark, but for white space: options.reasoning_open. */
bool lar_output_prompt_opens(lar_slice prompt, lar_slice reasoning_begin);

/* One answer; one thread. */
typedef struct lar_output_stream lar_output_stream;

/* Errors: those of lar_output_stop_new; INVALID for one mark without the other, LIMIT for a long one. */
LAR_MUST_USE lar_error lar_output_stream_new(const lar_output_options *options, const lar_output_sink *sink,
                                             lar_output_stream **out, lar_diag *d);
void lar_output_stream_free(lar_output_stream *o); /* NULL is allowed */

/* The answer goes on behind a text whose client has it: all that is fed comes behind it, inside of its reasoning where
 * there is no content yet. A stop string may begin in it. Before the first feed; two empty texts change nothing. */
void lar_output_stream_resume(lar_output_stream *o, lar_slice reasoning, lar_slice content);

/* The bytes of `tokens` tokens (1, but a test may cut them), special ones with their text (LAR_DECODE_SPECIAL_KEPT) but
 * for the one that ended the text. *more is false once a stop string or the limit of a call was met: the caller stops
 * generating and calls finish. Errors: the sink's, NO_MEMORY, LIMIT (a token too large). */
LAR_MUST_USE lar_error lar_output_stream_feed(lar_output_stream *o, lar_slice bytes, uint32_t tokens, bool *more);
/* How far it is, in bytes of whole characters: what came in, and what of it was told or has become a mark or a call.
 * The rest is held back, or lies behind a stop string. */
typedef struct lar_output_progress {
    uint64_t read, done;
    bool reasoning; /* the next text would be reasoning */
} lar_output_progress;
lar_output_progress lar_output_stream_progress(const lar_output_stream *o);
/* The end: tells what was held back. Once. */
LAR_MUST_USE lar_error lar_output_stream_finish(lar_output_stream *o, lar_output_summary *summary);

#endif
