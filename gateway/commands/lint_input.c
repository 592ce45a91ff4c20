/* A file's requests into the linter, and, where it is to be mended, its new bytes.
 * Flow: lint_main.c -> here -> request_log.c (JSON of all kinds) or a prompt's text -> lar_lint_add -> edits of the
 * file.
 * One thread; blocks in reads. Invariants: 1. a bad record costs that record; it is named on stderr. 2. bytes outside
 * an edit are the file's own. 3. a log of answers or a conversation is read, never edited.
 * Memory: that of the longest record; to mend a file, all of it. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "gateway/commands/lint_command.h"
#include "gateway/commands/present.h"
#include "gateway/commands/request_log.h"

enum { ARENA_KEEP = 4 << 20, TEXT_BYTES_MAX = 16 << 20, POINTER_BYTES = 4096 };
#define ARENA_BYTES_MAX ((size_t)3 << 30)
#define FILE_BYTES_MAX ((size_t)256 << 20)

typedef struct input {
    lar_lint_reading *r;
    lar_request_log *log;
    lar_json json;
    lar_arena arena; /* of one request */
    lar_arena kept;  /* of the edits */
    lar_splices edits;
    char *text; /* of the whole file, where it is mended */
    size_t text_len;
    size_t *lines; /* where each begins */
    uint64_t line_count;
    bool failed;
} input;

static void complain(const input *in, uint64_t line, uint64_t column, const char *what) {
    char name[LAR_SHOWN_BYTES]; /* a folder may hold any */
    lar_present_name(lar_slice_cstr(in->r->file->name), name);
    (void)fprintf(stderr, "larder lint: %s:%" PRIu64, name, line);
    if (column) (void)fprintf(stderr, ":%" PRIu64, column);
    (void)fprintf(stderr, ": %s\n", what);
}

static void locate(void *ctx, uint32_t offset, uint32_t *line, uint32_t *column) {
    const input *in = ctx;
    uint64_t at;
    *column = (uint32_t)lar_request_log_characters(in->log, offset, &at) + 1;
    *line = (uint32_t)at;
}

static void comment(void *ctx, uint64_t line, lar_slice text) {
    input *in = ctx;
    if (lar_lint_ignore_read(in->r->file, text, (uint32_t)line)) in->failed = true;
}

/* -- edits --------------------------------------------------------------------------------------------- */

static bool may_edit(lar_log_form f) {
    return f == LAR_LOG_BODY || f == LAR_LOG_ARRAY || f == LAR_LOG_BATCH || f == LAR_LOG_PAIR;
}

static size_t file_offset(const input *in, uint32_t offset) {
    uint64_t line, column;
    lar_request_log_place(in->log, offset, &line, &column);
    size_t at = line - 1 < in->line_count ? in->lines[line - 1] + (size_t)column - 1 : in->text_len;
    return at < in->text_len ? at : in->text_len;
}

static lar_error keep_edits(input *in, const lar_splices *fix) {
    for (uint32_t i = 0; i < fix->count; i++) {
        const lar_splice *s = &fix->list[i];
        lar_slice with = lar_arena_copy(&in->kept, s->with);
        if (!with.ptr) return LAR_NO_MEMORY;
        size_t start = file_offset(in, s->start), end = s->end > s->start ? file_offset(in, s->end - 1) + 1 : start;
        lar_error e = lar_splices_add(&in->edits, (uint32_t)start, (uint32_t)end, with);
        if (e) return e;
    }
    in->r->fixes += fix->count > 0;
    return LAR_OK;
}

static lar_error apply(input *in, lar_slice text) {
    lar_error e = lar_splices_finish(&in->edits, text.len);
    size_t at = 0;
    for (uint32_t i = 0; i < in->edits.count && !e; i++) {
        const lar_splice *s = &in->edits.list[i];
        e = lar_buf_add(in->r->fixed, text.ptr + at, s->start - at);
        if (!e) e = lar_buf_add_slice(in->r->fixed, s->with);
        at = s->end;
    }
    return e ? e : lar_buf_add(in->r->fixed, text.ptr + at, text.len - at);
}

/* -- requests ------------------------------------------------------------------------------------------ */

/* Where the body stands in its record, as a pointer's beginning. */
static lar_error read_front(input *in, const lar_log_request *q, lar_lint_request *to) {
    uint32_t node = q->record_node;
    const lar_json *j = q->record;
    bool verbatim = q->body.ptr >= j->body.ptr && q->body.ptr < j->body.ptr + j->body.len;
    if (verbatim) {
        uint32_t low = q->record_node, high = j->count, at = (uint32_t)(q->body.ptr - j->body.ptr);
        while (low + 1 < high) { /* nodes are in the order of their first bytes */
            uint32_t mid = low + (high - low) / 2;
            if (j->nodes[mid].start <= at) low = mid;
            else high = mid;
        }
        node = low;
    }
    to->pointer_skip = q->form == LAR_LOG_ARRAY ? 9 : 0;
    to->origin = verbatim ? LAR_LINT_VERBATIM : LAR_LINT_ENCLOSED;
    lar_buf b;
    lar_buf_init(&b, POINTER_BYTES);
    lar_error e = lar_json_pointer(j, node, &b);
    if (!e && b.len) {
        to->pointer_front = lar_arena_copy(&in->arena, lar_buf_slice(&b));
        if (!to->pointer_front.ptr) e = LAR_NO_MEMORY;
    }
    lar_buf_release(&b);
    return e == LAR_LIMIT ? LAR_OK : e;
}

static lar_error one_request(input *in, const lar_log_request *q, lar_diag *d) {
    lar_request_view view;
    lar_arena_reset(&in->arena, ARENA_KEEP);
    static const lar_json_limits limits = {.depth_max = 512, .nodes_max = 64u << 20};
    lar_error e = lar_json_parse(&in->json, q->body, &limits, d);
    if (!e) e = lar_request_view_read(&view, &in->json, q->protocol, &in->arena, d);
    if (e) return e;
    lar_lint_request to = {
        .view = &view, .file = in->r->number, .sent_ms = q->time_ms, .locate = locate, .locate_ctx = in};
    locate(in, 0, &to.line, &to.column);
    e = read_front(in, q, &to);
    lar_splices fix;
    if (!e) e = lar_lint_add(in->r->lint, &to, &in->arena, &fix);
    if (e) return e;
    in->r->file->requests++;
    return in->r->fix && may_edit(q->form) ? keep_edits(in, &fix) : LAR_OK;
}

static lar_error read_log(input *in, lar_diag *d) {
    for (;;) {
        lar_log_request q;
        lar_error e = lar_request_log_next(in->log, &q, d);
        if (e == LAR_NOT_FOUND) return LAR_OK;
        if (!e && q.form == LAR_LOG_EXPORT) e = lar_lint_records_add(in->r->records, &q, in->r->number);
        else if (!e) e = one_request(in, &q, d);
        if (e == LAR_NO_MEMORY || e == LAR_IO) return e;
        if (!e) continue;
        complain(in, q.line, q.column, *d->text ? d->text : lar_error_text(e));
        in->failed = true;
    }
}

/* -- prompts in files of their own ---------------------------------------------------------------------- */

static bool is_prompt(const char *name) {
    static const char *const ends[] = {".md", ".markdown", ".txt", ".prompt", ".tmpl", ".j2", ".jinja"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t len = strlen(ends[i]);
        if (n > len && strcmp(name + n - len, ends[i]) == 0) return true;
    }
    return false;
}

static lar_error read_comments(input *in) {
    lar_error e = LAR_OK;
    size_t at = 0;
    for (uint32_t line = 1; at < in->text_len && !e; line++) {
        const char *nl = memchr(in->text + at, '\n', in->text_len - at);
        size_t end = nl ? (size_t)(nl - in->text) : in->text_len;
        e = lar_lint_ignore_read(in->r->file, lar_slice_of(in->text + at, end - at), line);
        at = end + 1;
    }
    return e;
}

/* The prompt as larder would send it: the text of the edited body. */
static lar_error mend_prompt(input *in, lar_slice body, const lar_splices *fix, lar_diag *d) {
    size_t len = lar_splices_length(fix, body.len), at = 0;
    struct iovec *iov = lar_arena_alloc(&in->arena, (lar_splices_iov_max(fix) + 1) * sizeof *iov);
    char *sent = lar_arena_alloc(&in->arena, len + 1);
    if (!iov || !sent) return LAR_NO_MEMORY;
    uint32_t n = lar_splices_iov(fix, body, iov);
    for (uint32_t i = 0; i < n; at += iov[i++].iov_len) memcpy(sent + at, iov[i].iov_base, iov[i].iov_len);
    static const lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
    lar_error e = lar_json_parse(&in->json, lar_slice_of(sent, at), &limits, d);
    if (e) return e;
    uint32_t message = lar_json_at(&in->json, lar_json_get(&in->json, 0, "messages"), 0);
    in->r->fixes += fix->count > 0;
    return lar_json_decode(&in->json, lar_json_get(&in->json, message, "content"), in->r->fixed);
}

static lar_error read_prompt(input *in, lar_diag *d) {
    lar_buf body;
    lar_request_view view;
    static const lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
    if (in->text_len > TEXT_BYTES_MAX)
        return lar_fail(LAR_LIMIT, d, "a prompt of more than %d MiB", TEXT_BYTES_MAX >> 20);
    lar_buf_init(&body, 6u * TEXT_BYTES_MAX + 128);
    lar_error e = lar_buf_printf(&body, "{\"messages\":[{\"role\":\"system\",\"content\":\"");
    if (!e) e = lar_json_escape(&body, lar_slice_of(in->text, in->text_len));
    if (e == LAR_INVALID) e = lar_fail(LAR_JSON_UTF8, d, "the text is not valid UTF-8");
    if (!e) e = lar_buf_printf(&body, "\"}]}");
    if (!e) e = lar_json_parse(&in->json, lar_buf_slice(&body), &limits, d);
    if (!e) e = lar_request_view_read(&view, &in->json, LAR_PROTOCOL_CHAT, &in->arena, d);
    if (!e) e = read_comments(in);
    lar_lint_request to = {.view = &view, .file = in->r->number, .line = 1, .column = 1, .origin = LAR_LINT_TEXT};
    lar_splices fix;
    if (!e) e = lar_lint_add(in->r->lint, &to, &in->arena, &fix);
    if (!e) in->r->file->requests++;
    if (!e && in->r->fix) e = mend_prompt(in, lar_buf_slice(&body), &fix, d);
    lar_buf_release(&body);
    return e;
}

/* -- files --------------------------------------------------------------------------------------------- */

static lar_error read_whole(input *in, FILE *f, size_t most, lar_diag *d) {
    size_t cap = 0;
    for (;;) {
        if (in->text_len == cap) {
            size_t more = cap ? cap * 2 : 1 << 16;
            char *text = more <= 2 * most ? realloc(in->text, more) : NULL;
            if (!text) return more > 2 * most ? lar_fail(LAR_LIMIT, d, "more than %zu MiB", most >> 20) : LAR_NO_MEMORY;
            in->text = text;
            cap = more;
        }
        size_t n = fread(in->text + in->text_len, 1, cap - in->text_len, f);
        in->text_len += n;
        if (n == 0) return ferror(f) ? lar_fail(LAR_IO, d, "cannot be read: %s", strerror(errno)) : LAR_OK;
        if (in->text_len > most) return lar_fail(LAR_LIMIT, d, "more than %zu MiB", most >> 20);
    }
}

static lar_error load(input *in, bool standard, const char *path, lar_diag *d) {
    FILE *f = standard ? stdin : fopen(path, "rb");
    if (!f) return lar_fail(LAR_IO, d, "cannot be opened: %s", strerror(errno));
    lar_error e = read_whole(in, f, FILE_BYTES_MAX, d);
    if (!standard) (void)fclose(f);
    return e;
}

static lar_error index_lines(input *in) {
    for (size_t i = 0; i < in->text_len; i++) in->line_count += in->text[i] == '\n';
    in->lines = malloc((++in->line_count) * sizeof *in->lines);
    if (!in->lines) return LAR_NO_MEMORY;
    uint64_t n = 0;
    in->lines[n++] = 0;
    for (size_t i = 0; i < in->text_len; i++) {
        if (in->text[i] == '\n') in->lines[n++] = i + 1;
    }
    return LAR_OK;
}

static lar_error read_input(input *in, bool standard, lar_diag *d) {
    const char *name = in->r->file->name;
    struct stat st;
    if (!standard && stat(name, &st) == 0 && S_ISDIR(st.st_mode)) return lar_fail(LAR_IO, d, "it is a folder");
    bool prompt = is_prompt(name);
    lar_request_log_options o = {.comment = comment, .comment_ctx = in};
    lar_error e = LAR_OK;
    if (prompt || in->r->fix) e = load(in, standard, name, d);
    if (e) return e;
    if (prompt) return read_prompt(in, d);
    if (in->r->fix) e = index_lines(in);
    if (!e && in->r->fix) e = lar_request_log_open_text(name, lar_slice_of(in->text, in->text_len), &o, &in->log, d);
    else if (!e) e = lar_request_log_open(standard ? "-" : name, &o, &in->log, d);
    if (!e) e = read_log(in, d);
    if (!e && in->r->fix) e = apply(in, lar_slice_of(in->text, in->text_len));
    return e;
}

lar_error lar_lint_input_read(lar_lint_reading *r, bool standard, lar_diag *d) {
    input in = {.r = r};
    lar_json_init(&in.json);
    lar_arena_init(&in.arena, ARENA_BYTES_MAX);
    lar_arena_init(&in.kept, ARENA_BYTES_MAX);
    lar_splices_init(&in.edits, &in.kept);
    lar_error e = read_input(&in, standard, d);
    if (e) complain(&in, 1, 0, *d->text ? d->text : lar_error_text(e));
    r->failed = e || in.failed;
    lar_request_log_close(in.log);
    lar_json_release(&in.json);
    lar_arena_release(&in.arena);
    lar_arena_release(&in.kept);
    r->text = in.text;
    r->original = lar_slice_of(in.text, in.text_len);
    free(in.lines);
    return e;
}
