/* Reads blocks of calls in DeepSeek's formats, as they arrive, into names and arguments.
 * Flow: output_stream.c hands over text behind a block's opening mark; this tells calls to the sink.
 * Thread: one at a time. Never blocks.
 * Invariants: 1. what is used is in `raw` until its call is told or given up, so that nothing is lost. 2. nothing is
 * used that could be the start of a mark. 3. arguments that are told are never taken back.
 * Formats: V3 and R1, V3.1 by their templates; DSML by V3.2's encoding. Memory: two buffers with maxima. */
#include "engine/text/output_calls.h"

#include "base/ensure.h"
#include "base/json.h"

#define BEGIN "<｜tool▁calls▁begin｜>"
#define END "<｜tool▁calls▁end｜>"
#define CALL_BEGIN "<｜tool▁call▁begin｜>"
#define CALL_END "<｜tool▁call▁end｜>"
#define SEPARATOR "<｜tool▁sep｜>"
#define FENCE "```"
#define DSML "｜DSML｜"

enum { KEY_BYTES_MAX = 4096, SPACE_BYTES_MAX = 256 };

/* The block's own blank lines before it belong to it: the template writes them again. */
static const char *const begin_none[] = {NULL};
static const char *const begin_tokens[] = {BEGIN, NULL};
static const char *const begin_dsml[] = {"\n\n<" DSML "function_calls>", "<" DSML "function_calls>", NULL};
/* A call or the block's end; a parameter or the call's end: the end is the second. */
static const char *const next_token[] = {CALL_BEGIN, END, NULL};
static const char *const next_dsml[] = {"<" DSML "invoke name=\"", "</" DSML "function_calls>", NULL};
static const char *const next_parameter[] = {"<" DSML "parameter name=\"", "</" DSML "invoke>", NULL};
static const char *const type_end[] = {SEPARATOR, NULL};
static const char *const name_end_v3[] = {"\n" FENCE "json\n", NULL};
static const char *const quote_end[] = {"\">", NULL};
static const char *const raw_end_v3[] = {"\n" FENCE CALL_END, FENCE CALL_END, CALL_END, NULL};
static const char *const raw_end_v31[] = {CALL_END, NULL};
static const char *const value_end[] = {"</" DSML "parameter>", NULL};

lar_output_format lar_output_format_of(lar_slice s) {
    if (memmem(s.ptr, s.len, DSML, sizeof DSML - 1)) return LAR_OUTPUT_FORMAT_DSML;
    if (!memmem(s.ptr, s.len, SEPARATOR, sizeof SEPARATOR - 1)) return LAR_OUTPUT_FORMAT_NONE;
    return memmem(s.ptr, s.len, FENCE "json", 7) ? LAR_OUTPUT_FORMAT_V3 : LAR_OUTPUT_FORMAT_V31;
}

bool lar_output_format_marks(lar_output_format format, lar_slice token) {
    static const char *const marks[] = {BEGIN, END, CALL_BEGIN, CALL_END, SEPARATOR};
    if (format == LAR_OUTPUT_FORMAT_DSML) return memmem(token.ptr, token.len, DSML, sizeof DSML - 1) != NULL;
    for (size_t i = 0; format != LAR_OUTPUT_FORMAT_NONE && i < sizeof marks / sizeof *marks; i++)
        if (lar_slice_eq_cstr(token, marks[i])) return true;
    return false;
}

void lar_output_calls_init(lar_output_calls *c, const lar_output_options *options, const lar_output_sink *sink) {
    *c = (lar_output_calls){.sink = sink, .format = options->format, .mode = options->arguments};
    lar_buf_init(&c->raw, LAR_OUTPUT_CALL_BYTES_MAX + 256);
    lar_buf_init(&c->arguments, 8 * (size_t)LAR_OUTPUT_CALL_BYTES_MAX); /* an escaped byte has up to six */
}

void lar_output_calls_release(lar_output_calls *c) {
    lar_buf_release(&c->raw);
    lar_buf_release(&c->arguments);
}

const char *const *lar_output_calls_begin(const lar_output_calls *c) {
    if (c->format == LAR_OUTPUT_FORMAT_NONE) return begin_none;
    return c->format == LAR_OUTPUT_FORMAT_DSML ? begin_dsml : begin_tokens;
}

lar_error lar_output_calls_open(lar_output_calls *c, lar_slice mark) {
    LAR_ASSERT(c->place == LAR_OUTPUT_OUTSIDE);
    c->place = LAR_OUTPUT_BETWEEN;
    c->raw.len = 0;
    c->block = 0;
    return lar_buf_add_slice(&c->raw, mark);
}

/* -- looking for marks -------------------------------------------------------------------------------------- */

size_t lar_output_find(lar_slice text, const char *const *marks, int *which) {
    size_t at = text.len, hold = text.len;
    *which = -1;
    for (int i = 0; marks[i]; i++) {
        size_t len = strlen(marks[i]);
        const char *found = memmem(text.ptr, text.len, marks[i], len);
        size_t place = found ? (size_t)(found - text.ptr) : text.len;
        if (found && (*which < 0 || place < at)) at = place, *which = i;
        /* an end of the text that begins the mark */
        for (size_t n = len - 1 < text.len ? len - 1 : text.len; n > text.len - hold; n--)
            if (memcmp(text.ptr + text.len - n, marks[i], n) == 0) hold = text.len - n;
    }
    return *which >= 0 ? at : hold;
}

/* What `text` begins with: a mark (its number), -1: nothing of them, -2: perhaps one, with more text. */
static int starts_with(lar_slice text, const char *const *marks) {
    int found = -1;
    for (int i = 0; marks[i]; i++) {
        size_t len = strlen(marks[i]), n = len < text.len ? len : text.len;
        if (n && memcmp(text.ptr, marks[i], n) != 0) continue;
        if (n == len) return i;
        found = -2;
    }
    return found;
}

static size_t leading_space(lar_slice s) {
    size_t n = 0;
    while (n < s.len && (s.ptr[n] == ' ' || s.ptr[n] == '\n' || s.ptr[n] == '\r' || s.ptr[n] == '\t')) n++;
    return n;
}

/* -- telling --------------------------------------------------------------------------------------------------- */

static lar_error tell_call(lar_output_calls *c) {
    char id[LAR_OUTPUT_ID_BYTES + 1] = "";
    c->sink->make_id(c->sink->user, id);
    const lar_output_event event = {.kind = LAR_OUTPUT_CALL,
                                    .index = c->index,
                                    .text = lar_slice_cstr(c->name),
                                    .id = id};
    c->is_told = true;
    return c->sink->emit(c->sink->user, &event);
}

/* What of the arguments was not told yet, if the call itself was. */
static lar_error tell_arguments(lar_output_calls *c) {
    if (!c->is_told || c->told == c->arguments.len) return LAR_OK;
    const lar_output_event event = {.kind = LAR_OUTPUT_ARGUMENTS,
                                    .index = c->index,
                                    .text = lar_slice_of(c->arguments.ptr + c->told, c->arguments.len - c->told)};
    c->told = (uint32_t)c->arguments.len;
    return c->sink->emit(c->sink->user, &event);
}

static lar_error parse_kind(lar_slice json, lar_json_kind *kind) {
    const lar_json_limits limits = {.depth_max = 64, .nodes_max = 1 << 20};
    lar_json j;
    lar_json_init(&j);
    lar_error e = lar_json_parse(&j, json, &limits, NULL);
    *kind = e ? LAR_JSON_NULL : lar_json_kind_of(&j, 0);
    lar_json_release(&j);
    return e;
}

/* A JSON object? NO_MEMORY is the only error. */
static lar_error is_object(lar_slice json, bool *good) {
    lar_json_kind kind;
    lar_error e = parse_kind(json, &kind);
    *good = !e && kind == LAR_JSON_OBJECT;
    return e == LAR_NO_MEMORY ? e : LAR_OK;
}

static lar_error begin_call(lar_output_calls *c) {
    c->arguments.len = 0;
    c->told = c->parameters = 0;
    c->is_told = false;
    return c->mode == LAR_OUTPUT_CALLS_STREAM ? tell_call(c) : LAR_OK;
}

static lar_error end_call(lar_output_calls *c, lar_output_verdict *verdict) {
    bool good = false;
    lar_error e = LAR_OK;
    if (leading_space(lar_buf_slice(&c->arguments)) == c->arguments.len) e = lar_buf_add(&c->arguments, "{}", 2);
    if (!e) e = is_object(lar_buf_slice(&c->arguments), &good);
    if (e) return e;
    c->place = LAR_OUTPUT_BETWEEN;
    *verdict = LAR_OUTPUT_TOOK;
    if (!good && !c->is_told) {
        *verdict = LAR_OUTPUT_NO;
        return LAR_OK;
    }
    if (!c->is_told) e = tell_call(c);
    if (!e) e = tell_arguments(c);
    c->is_told = false;
    c->raw.len = 0;
    c->complete += good;
    c->invalid += !good;
    c->index++;
    c->block++;
    return e;
}

/* The current call cannot be read: what was told of it stays, else `raw` holds all of it. */
static void give_up(lar_output_calls *c) {
    if (c->is_told || c->raw.len) c->invalid++;
    if (c->is_told) {
        c->raw.len = 0;
        c->index++;
    }
    c->is_told = false;
    c->place = LAR_OUTPUT_OUTSIDE;
}

bool lar_output_calls_cut(lar_output_calls *c) {
    bool complete = c->place == LAR_OUTPUT_BETWEEN && c->block;
    if (!complete) give_up(c);
    c->place = LAR_OUTPUT_OUTSIDE;
    return !complete;
}

/* -- the places ---------------------------------------------------------------------------------------------------- */

static lar_error use(lar_output_calls *c, lar_slice text, size_t n, size_t *used) {
    if (n > LAR_OUTPUT_CALL_BYTES_MAX || c->raw.len > LAR_OUTPUT_CALL_BYTES_MAX - n) return LAR_LIMIT;
    lar_error e = lar_buf_add(&c->raw, text.ptr, n);
    if (!e) *used += n;
    return e;
}

/* White space, then one of two marks. */
static lar_error next_of_two(lar_output_calls *c, lar_slice text, const char *const *marks, size_t *used,
                             lar_output_verdict *verdict) {
    size_t space = leading_space(text);
    int found = starts_with(lar_slice_of(text.ptr + space, text.len - space), marks);
    if (space > SPACE_BYTES_MAX) found = -1;
    *verdict = found >= 0 ? LAR_OUTPUT_TOOK : found == -2 ? LAR_OUTPUT_WAIT : LAR_OUTPUT_NO;
    if (found < 0) return LAR_OK; /* the white space is not used either: it may belong to the next block */
    lar_error e = use(c, text, space + strlen(marks[found]), used);
    if (e) return e;
    bool in_block = c->place == LAR_OUTPUT_BETWEEN;
    if (found == 0) {
        c->place = !in_block ? LAR_OUTPUT_KEY : c->format == LAR_OUTPUT_FORMAT_V3 ? LAR_OUTPUT_TYPE : LAR_OUTPUT_NAME;
    } else if (in_block) {
        *verdict = c->block ? LAR_OUTPUT_AFTER : LAR_OUTPUT_NO; /* a block without calls is text */
    } else {
        e = lar_buf_add(&c->arguments, c->parameters ? "}" : "{}", c->parameters ? 1 : 2);
        if (!e) e = end_call(c, verdict);
    }
    return e;
}

/* Text up to a mark, which is used with it. TOOK, WAIT until the mark is there, NO when the text grows over `most`. */
typedef struct piece {
    lar_slice text;
    size_t used;
    lar_output_verdict verdict;
} piece;

static lar_error up_to(lar_output_calls *c, lar_slice text, const char *const *end, size_t most, piece *p) {
    int which;
    size_t at = lar_output_find(text, end, &which);
    *p = (piece){.verdict = at > most ? LAR_OUTPUT_NO : which < 0 ? LAR_OUTPUT_WAIT : LAR_OUTPUT_TOOK};
    if (p->verdict != LAR_OUTPUT_TOOK) return LAR_OK;
    p->text = lar_slice_of(text.ptr, at);
    return use(c, text, at + strlen(end[which]), &p->used);
}

/* Names without blanks and marks inside; white space around is the model's. */
static bool take_name(lar_output_calls *c, lar_slice s) {
    size_t space = leading_space(s);
    s = lar_slice_of(s.ptr + space, s.len - space);
    while (s.len && leading_space(lar_slice_of(s.ptr + s.len - 1, 1))) s.len--;
    if (!s.len || s.len > LAR_OUTPUT_NAME_BYTES_MAX) return false;
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.ptr[i] <= ' ' || s.ptr[i] == '"' || s.ptr[i] == '<' || s.ptr[i] == '>') return false;
    memcpy(c->name, s.ptr, s.len);
    c->name[s.len] = 0;
    return true;
}

static lar_error read_type(lar_output_calls *c, lar_slice text, size_t *used, lar_output_verdict *verdict) {
    piece type;
    lar_error e = up_to(c, text, type_end, LAR_OUTPUT_NAME_BYTES_MAX, &type);
    *used = type.used;
    *verdict = type.verdict;
    if (*verdict == LAR_OUTPUT_TOOK) c->place = LAR_OUTPUT_NAME;
    return e;
}

static lar_error read_name(lar_output_calls *c, lar_slice text, size_t *used, lar_output_verdict *verdict) {
    const char *const *end = c->format == LAR_OUTPUT_FORMAT_V3    ? name_end_v3
                             : c->format == LAR_OUTPUT_FORMAT_V31 ? type_end
                                                                  : quote_end;
    piece name;
    lar_error e = up_to(c, text, end, LAR_OUTPUT_NAME_BYTES_MAX + 2, &name);
    *used = name.used;
    *verdict = name.verdict;
    if (e || *verdict != LAR_OUTPUT_TOOK) return e;
    if (!take_name(c, name.text)) {
        *verdict = LAR_OUTPUT_NO;
        return LAR_OK;
    }
    c->place = c->format == LAR_OUTPUT_FORMAT_DSML ? LAR_OUTPUT_PARAMETER : LAR_OUTPUT_RAW;
    return begin_call(c);
}

static lar_error read_raw(lar_output_calls *c, lar_slice text, size_t *used, lar_output_verdict *verdict) {
    const char *const *end = c->format == LAR_OUTPUT_FORMAT_V3 ? raw_end_v3 : raw_end_v31;
    int which;
    size_t at = lar_output_find(text, end, &which);
    *verdict = which >= 0 ? LAR_OUTPUT_TOOK : LAR_OUTPUT_WAIT;
    lar_error e = use(c, text, at + (which >= 0 ? strlen(end[which]) : 0), used);
    if (!e) e = lar_buf_add(&c->arguments, text.ptr, at);
    if (!e) e = tell_arguments(c);
    return e || which < 0 ? e : end_call(c, verdict);
}

/* KEY" string="true"> */
static lar_error read_key(lar_output_calls *c, lar_slice text, size_t *used, lar_output_verdict *verdict) {
    static const char middle[] = "\" string=\"";
    piece head;
    lar_error e = up_to(c, text, quote_end, KEY_BYTES_MAX, &head);
    *used = head.used;
    *verdict = head.verdict;
    if (e || *verdict != LAR_OUTPUT_TOOK) return e;
    lar_slice all = head.text;
    const char *mark = memmem(all.ptr, all.len, middle, sizeof middle - 1);
    *verdict = LAR_OUTPUT_NO;
    if (!mark) return LAR_OK;
    lar_slice key = lar_slice_of(all.ptr, (size_t)(mark - all.ptr));
    lar_slice flag = lar_slice_of(mark + sizeof middle - 1, all.len - key.len - (sizeof middle - 1));
    bool is_text = lar_slice_eq_cstr(flag, "true");
    if (!is_text && !lar_slice_eq_cstr(flag, "false")) return LAR_OK;
    *verdict = LAR_OUTPUT_TOOK;
    e = lar_buf_add_slice(&c->arguments, c->parameters++ ? LAR_SLICE(", \"") : LAR_SLICE("{\""));
    if (!e) e = lar_json_escape(&c->arguments, key);
    if (!e) e = lar_buf_add_slice(&c->arguments, is_text ? LAR_SLICE("\": \"") : LAR_SLICE("\": "));
    c->place = is_text ? LAR_OUTPUT_TEXT_VALUE : LAR_OUTPUT_JSON_VALUE;
    if (!e) e = tell_arguments(c);
    c->value = (uint32_t)c->arguments.len;
    return e;
}

/* A value that says it is JSON and is none becomes text. */
static lar_error end_json_value(lar_output_calls *c) {
    lar_json_kind kind;
    lar_slice value = lar_slice_of(c->arguments.ptr + c->value, c->arguments.len - c->value);
    lar_error e = parse_kind(value, &kind);
    if (!e || e == LAR_NO_MEMORY) return e;
    lar_buf copy;
    lar_buf_init(&copy, 8 * (size_t)LAR_OUTPUT_CALL_BYTES_MAX);
    e = lar_buf_add_slice(&copy, value);
    c->arguments.len = c->value;
    if (!e) e = lar_buf_add(&c->arguments, "\"", 1);
    if (!e) e = lar_json_escape(&c->arguments, lar_buf_slice(&copy));
    if (!e) e = lar_buf_add(&c->arguments, "\"", 1);
    lar_buf_release(&copy);
    return e;
}

static lar_error read_value(lar_output_calls *c, lar_slice text, size_t *used, lar_output_verdict *verdict) {
    int which;
    bool is_text = c->place == LAR_OUTPUT_TEXT_VALUE;
    size_t at = lar_output_find(text, value_end, &which);
    *verdict = which >= 0 ? LAR_OUTPUT_TOOK : LAR_OUTPUT_WAIT;
    lar_error e = use(c, text, at + (which >= 0 ? strlen(value_end[which]) : 0), used);
    if (!e && is_text) e = lar_json_escape(&c->arguments, lar_slice_of(text.ptr, at));
    else if (!e) e = lar_buf_add(&c->arguments, text.ptr, at);
    if (!e && which >= 0) {
        c->place = LAR_OUTPUT_PARAMETER;
        e = is_text ? lar_buf_add(&c->arguments, "\"", 1) : end_json_value(c);
    }
    return e || (!is_text && which < 0) ? e : tell_arguments(c);
}

lar_error lar_output_calls_step(lar_output_calls *c, lar_slice text, size_t *used, lar_output_verdict *verdict) {
    bool dsml = c->format == LAR_OUTPUT_FORMAT_DSML;
    lar_error e = LAR_OK;
    *used = 0;
    *verdict = LAR_OUTPUT_WAIT;
    switch (c->place) {
    case LAR_OUTPUT_OUTSIDE: LAR_UNREACHABLE("a step outside of a block");
    case LAR_OUTPUT_BETWEEN: e = next_of_two(c, text, dsml ? next_dsml : next_token, used, verdict); break;
    case LAR_OUTPUT_PARAMETER: e = next_of_two(c, text, next_parameter, used, verdict); break;
    case LAR_OUTPUT_TYPE: e = read_type(c, text, used, verdict); break;
    case LAR_OUTPUT_NAME: e = read_name(c, text, used, verdict); break;
    case LAR_OUTPUT_RAW: e = read_raw(c, text, used, verdict); break;
    case LAR_OUTPUT_KEY: e = read_key(c, text, used, verdict); break;
    case LAR_OUTPUT_TEXT_VALUE:
    case LAR_OUTPUT_JSON_VALUE: e = read_value(c, text, used, verdict); break;
    }
    if (e || *verdict == LAR_OUTPUT_WAIT || *verdict == LAR_OUTPUT_TOOK) return e;
    if (*verdict == LAR_OUTPUT_NO) give_up(c);
    else c->raw.len = 0;
    c->place = LAR_OUTPUT_OUTSIDE;
    return LAR_OK;
}
