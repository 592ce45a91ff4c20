/* Records out of a file: lines, or one document (header: request_log.h).
 * Flow: text read ahead -> a record is parsed -> request_log_forms.c makes requests of it. One thread; blocks in reads.
 * The first record decides: if the first line is a whole JSON value the file is lines; else all of it is read, and if
 * it is one value it is a document; else it is lines, the first of which is bad.
 * Invariants: 1. a bad record costs that record only. 2. Memory is that of the longest record, or of one document,
 * each at most RECORD_MAX. Not here: what a record means. */
#include "gateway/commands/request_log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/commands/request_log_parts.h"

enum { READ_BYTES = 1 << 16, RECORD_MAX = 256 << 20, KEEP_BYTES = 1 << 20 };

/* -- opening ---------------------------------------------------------------------------------------------- */

static lar_request_log *make(const char *name, const lar_request_log_options *o) {
    lar_request_log *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    l->name = name;
    if (o) l->o = *o;
    /* One more record and one more read than a record may have. */
    lar_buf_init(&l->text, 2u * RECORD_MAX + 2u * READ_BYTES);
    lar_buf_init(&l->body, 2u * RECORD_MAX);
    lar_buf_init(&l->decoded, RECORD_MAX);
    lar_buf_init(&l->decoded_answer, RECORD_MAX);
    lar_json_init(&l->json);
    lar_json_init(&l->inner);
    lar_json_init(&l->inner_answer);
    return l;
}

lar_error lar_request_log_open(const char *path, const lar_request_log_options *o, lar_request_log **out, lar_diag *d) {
    *out = NULL;
    bool standard = strcmp(path, "-") == 0;
    FILE *f = standard ? stdin : fopen(path, "rb");
    if (!f) return lar_fail(LAR_IO, d, "cannot be opened: %s", strerror(errno));
    lar_request_log *l = make(standard ? "standard input" : path, o);
    if (!l) {
        if (!standard) (void)fclose(f);
        return LAR_NO_MEMORY;
    }
    l->file = f;
    l->close_file = !standard;
    *out = l;
    return LAR_OK;
}

lar_error lar_request_log_open_text(const char *name, lar_slice text, const lar_request_log_options *o,
                                    lar_request_log **out, lar_diag *d) {
    *out = NULL;
    lar_request_log *l = make(name, o);
    if (!l) return LAR_NO_MEMORY;
    lar_error e = lar_buf_add_slice(&l->text, text);
    if (e) {
        lar_request_log_close(l);
        return lar_fail(e, d, "%s is too large", name);
    }
    *out = l;
    return LAR_OK;
}

void lar_request_log_close(lar_request_log *l) {
    if (!l) return;
    if (l->close_file) (void)fclose(l->file);
    lar_buf_release(&l->text);
    lar_buf_release(&l->body);
    lar_buf_release(&l->decoded);
    lar_buf_release(&l->decoded_answer);
    lar_json_release(&l->json);
    lar_json_release(&l->inner);
    lar_json_release(&l->inner_answer);
    free(l->origins);
    free(l);
}

uint64_t lar_request_log_passed(const lar_request_log *l) { return l->passed; }

/* -- text --------------------------------------------------------------------------------------------------- */

/* Reads on; l->ended once there is no more. */
static lar_error read_more(lar_request_log *l, lar_diag *d) {
    if (!l->file) {
        l->ended = true;
        return LAR_OK;
    }
    lar_error e = lar_buf_reserve(&l->text, READ_BYTES);
    if (e) return lar_fail(e, d, "a record is longer than %d MiB", RECORD_MAX >> 20);
    size_t n = fread(l->text.ptr + l->text.len, 1, READ_BYTES, l->file);
    l->text.len += n;
    if (n == 0 && ferror(l->file)) return lar_fail(LAR_IO, d, "reading failed: %s", strerror(errno));
    l->ended = n == 0;
    return LAR_OK;
}

static void drop_read(lar_request_log *l) {
    if (l->text_at < l->text.len && (l->text_at < KEEP_BYTES || l->text_at < l->text.len / 2)) return;
    lar_buf_consume(&l->text, l->text_at);
    l->text_at = 0;
}

/* A line over RECORD_MAX is read to its end, which lies at `lf` if that is read already, and thrown away. */
static lar_error skip_line(lar_request_log *l, const char *lf, lar_diag *d) {
    if (!lf) l->text_at = l->text.len;
    while (!lf && !l->ended) {
        l->text.len = l->text_at = 0;
        lar_error e = read_more(l, d);
        if (e) return e;
        lf = l->text.len ? memchr(l->text.ptr, '\n', l->text.len) : NULL;
    }
    if (lf) l->text_at = (size_t)(lf - l->text.ptr) + 1;
    return lar_fail(LAR_LIMIT, d, "the line is longer than %d MiB", RECORD_MAX >> 20);
}

/* The next line, without its end, still in l->text; NOT_FOUND at the end. */
static lar_error next_line(lar_request_log *l, lar_slice *line, lar_diag *d) {
    drop_read(l);
    size_t from = l->text_at;
    for (;;) {
        size_t left = l->text.len - from;
        const char *lf = left ? memchr(l->text.ptr + from, '\n', left) : NULL;
        size_t len = (lf ? (size_t)(lf - l->text.ptr) : l->text.len) - l->text_at;
        if (!lf && l->ended && len == 0) return LAR_NOT_FOUND;
        if (lf || l->ended || len > RECORD_MAX) {
            l->line = ++l->lines;
            if (len > RECORD_MAX) return skip_line(l, lf, d);
            *line = lar_slice_of(l->text.ptr + l->text_at, len);
            l->text_at += len + (lf ? 1 : 0);
            return LAR_OK;
        }
        from = l->text.len;
        lar_error e = read_more(l, d);
        if (e) return e;
    }
}

static bool is_blank(lar_slice s) {
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] != ' ' && s.ptr[i] != '\t' && s.ptr[i] != '\r' && s.ptr[i] != '\n') return false;
    return true;
}

/* -- records ---------------------------------------------------------------------------------------------- */

static lar_error parse(lar_request_log *l, lar_slice text, lar_diag *d) {
    static const lar_json_limits limits = {.depth_max = 512, .nodes_max = 64u << 20};
    l->record = text;
    return lar_json_parse(&l->json, text, &limits, d);
}

static lar_error read_all(lar_request_log *l, size_t from, lar_slice *all, lar_diag *d) {
    while (!l->ended && l->text.len - from <= RECORD_MAX) {
        lar_error e = read_more(l, d);
        if (e) return e;
    }
    *all = lar_slice_of(l->text.ptr + from, l->text.len - from);
    return LAR_OK;
}

/* Is the next line an object by itself? Then the one before it was meant to be one too, unless it opens a list. */
static bool line_is_object(lar_request_log *l, lar_slice text, bool in_list) {
    lar_diag ignored;
    const char *lf = text.len ? memchr(text.ptr, '\n', text.len) : NULL;
    lar_slice line = lar_slice_of(text.ptr, lf ? (size_t)(lf - text.ptr) : text.len);
    return !in_list && line.len && parse(l, line, &ignored) == LAR_OK && lar_json_is(&l->json, 0, LAR_JSON_OBJECT);
}

/* The first line is no JSON value by itself: perhaps the whole file is one. If it is none either, it was meant to be
 * one if the error lies farther in than the first line, and the second is no record. */
static lar_error probe_document(lar_request_log *l, size_t line_len, lar_diag *d) {
    size_t from = l->text_at - line_len;
    if (l->text.ptr[l->text_at - 1] == '\n') from--;
    lar_slice all;
    lar_diag whole = {0};
    lar_error e = read_all(l, from, &all, d);
    if (e) return e;
    if (l->ended) {
        e = parse(l, all, &whole);
        size_t second = line_len;
        while (second < all.len && is_blank(lar_slice_of(all.ptr + second, 1))) second++;
        bool farther = e && whole.has_offset && whole.offset > second;
        bool in_list = lar_slice_eq(lar_slice_trim(lar_slice_of(all.ptr, line_len)), LAR_SLICE("["));
        if (farther) farther = !line_is_object(l, lar_slice_of(all.ptr + second, all.len - second), in_list);
        l->record = all;
        if (!e || farther) {
            l->text_at = l->text.len;
            *d = whole;
            return e;
        }
    }
    return parse(l, lar_slice_of(all.ptr, line_len), d); /* lines after all */
}

/* A line that the caller wants for itself. */
static bool is_comment(lar_request_log *l, lar_slice line) {
    if (!l->o.comment) return false;
    lar_slice text = lar_slice_trim(line);
    if (!lar_slice_starts(text, LAR_SLICE("#")) && !lar_slice_starts(text, LAR_SLICE("//"))) return false;
    l->o.comment(l->o.comment_ctx, l->lines, text);
    return true;
}

static lar_error next_record(lar_request_log *l, lar_diag *d) {
    lar_slice line = {0};
    lar_error e;
    l->open = false;
    do {
        e = next_line(l, &line, d);
        if (e) return e;
    } while (is_blank(line) || is_comment(l, line));
    e = parse(l, line, d);
    if (e && !l->probed) e = probe_document(l, line.len, d);
    l->probed = true;
    l->counted_at = l->counted_begin = 0;
    l->counted_line = l->line;
    l->counted_characters = 0;
    if (e) return e;
    bool list = lar_json_is(&l->json, 0, LAR_JSON_ARRAY) && !lar_log_is_messages(&l->json, 0);
    l->element = list ? lar_json_first(&l->json, 0) : 0;
    l->open = l->element != LAR_JSON_NONE;
    l->call = l->message = 0;
    return LAR_OK;
}

/* A place in the record: its line, the line's first byte, the line's characters in front of the place. */
typedef struct spot {
    size_t begin;
    uint64_t line, characters;
} spot;

/* Counted from the element at hand on, not from the record's start: a long list costs its length once. */
static spot find_spot(const lar_request_log *l, size_t at) {
    bool behind = at >= l->counted_at;
    spot s = {behind ? l->counted_begin : 0, behind ? l->counted_line : l->line, behind ? l->counted_characters : 0};
    for (size_t i = behind ? l->counted_at : 0; i < at && i < l->record.len; i++) {
        s.characters += ((unsigned char)l->record.ptr[i] & 0xC0) != 0x80;
        if (l->record.ptr[i] == '\n') s = (spot){i + 1, s.line + 1, 0};
    }
    return s;
}

/* Where byte `at` of the record lies. */
static void position_of(const lar_request_log *l, size_t at, uint64_t *line, uint64_t *column) {
    spot s = find_spot(l, at);
    *line = s.line;
    *column = at - s.begin + 1;
}

/* The byte of the record that a byte of the body comes from. */
static size_t source_of(const lar_request_log *l, uint32_t offset) {
    uint32_t low = 0, high = l->origin_count;
    if (high == 0) return 0;
    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        if (l->origins[mid].at <= offset) low = mid;
        else high = mid;
    }
    const lar_log_origin *o = &l->origins[low];
    return o->source + (o->copied && offset > o->at ? offset - o->at : 0);
}

void lar_request_log_place(const lar_request_log *l, uint32_t offset, uint64_t *line, uint64_t *column) {
    *line = l->line;
    *column = 1;
    if (l->origin_count) position_of(l, source_of(l, offset), line, column);
}

uint64_t lar_request_log_characters(const lar_request_log *l, uint32_t offset, uint64_t *line) {
    if (!l->origin_count) return *line = l->line, 0;
    spot s = find_spot(l, source_of(l, offset));
    *line = s.line;
    return s.characters;
}

static void close_element(lar_request_log *l) {
    uint32_t next = l->element ? lar_json_after(&l->json, 0, l->element) : LAR_JSON_NONE;
    l->element = next;
    l->open = next != LAR_JSON_NONE;
    l->call = l->message = 0;
}

/* The line of the record at hand; records come in order, so each line end is counted once. */
static uint64_t line_of(lar_request_log *l) {
    size_t at = l->json.nodes[l->element].start;
    spot s = find_spot(l, at);
    l->counted_at = at;
    l->counted_begin = s.begin;
    l->counted_characters = s.characters;
    return l->counted_line = s.line;
}

lar_error lar_request_log_next(lar_request_log *l, lar_log_request *out, lar_diag *d) {
    *d = (lar_diag){0};
    for (;;) {
        *out = (lar_log_request){
            .file = l->name, .line = l->line, .record = &l->json, .answer = LAR_JSON_NONE, .response = LAR_JSON_NONE};
        l->origin_count = 0;
        if (!l->open) {
            lar_error e = next_record(l, d);
            out->line = l->line;
            if (e && d->has_offset) position_of(l, d->offset, &out->line, &out->column);
            if (e) return e;
            if (!l->open) continue;
        }
        out->line = line_of(l);
        out->record_node = l->element;
        lar_error e = lar_log_form_next(l, out, d);
        if (e) close_element(l);
        if (e != LAR_NOT_FOUND) return e;
    }
}
