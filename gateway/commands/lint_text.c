/* Findings for people, and as GitHub workflow commands.
 * Flow: lint_main.c -> here. One thread; blocks on the output. Invariants: 1. what comes from a prompt is cut and
 * holds no control characters. 2. a workflow command is one line, whatever a value holds. Memory: one line. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/commands/lint_command.h"
#include "gateway/commands/present.h"

enum { LINE_BYTES_MAX = 16384 };

void lar_lint_show(lar_slice value, char out[LAR_LINT_SHOWN_ROOM]) {
    size_t n = value.len;
    if (n > LAR_LINT_SHOWN_BYTES) {
        n = LAR_LINT_SHOWN_BYTES;
        while (n > 0 && ((unsigned char)value.ptr[n] & 0xC0) == 0x80) n--;
    }
    if (n == 0) {
        out[0] = 0;
        return;
    }
    _Static_assert((int)LAR_LINT_SHOWN_ROOM == (int)LAR_SHOWN_BYTES, "one room for both");
    lar_present_name(lar_slice_of(value.ptr, n), out);
    size_t len = strlen(out);
    if (n < value.len && len + 4 < LAR_LINT_SHOWN_ROOM) memcpy(out + len, "...", 4);
}

/* 12,345 */
static void print_count(uint64_t n, char out[32]) {
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%" PRIu64, n), at = 0;
    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0) out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = 0;
}

static lar_error add_before(const lar_lint_report *r, const lar_lint_finding *f, lar_buf *b) {
    char shown[LAR_LINT_SHOWN_ROOM];
    lar_lint_show(f->before.value, shown);
    if (f->before.file == f->place.file)
        return lar_buf_printf(b, ", in line %u \"%s\"", (unsigned)f->before.line, shown);
    char file[LAR_SHOWN_BYTES];
    lar_present_name(lar_slice_cstr(r->files[f->before.file].name), file);
    return lar_buf_printf(b, ", in %s:%u \"%s\"", file, (unsigned)f->before.line, shown);
}

lar_error lar_lint_sentence(const lar_lint_report *r, const lar_lint_finding *f, lar_buf *b) {
    char shown[LAR_LINT_SHOWN_ROOM], count[32];
    lar_error e = lar_buf_add_slice(b, f->what);
    lar_lint_show(f->place.value, shown);
    if (!e && *shown) e = lar_buf_printf(b, ": \"%s\"", shown);
    if (!e && f->before.request) e = add_before(r, f, b);
    if (e || !f->tokens_known || f->tokens == 0) return e;
    print_count(f->tokens, count);
    return lar_buf_printf(b,
                          f->state == LAR_LINT_CONFIRMED ? "; about %s tokens are read again"
                                                         : "; should it vary, about %s tokens are read again",
                          count);
}

/* -- for people ---------------------------------------------------------------------------------------- */

typedef enum paint { PAINT_NAME, PAINT_INFO, PAINT_WARNING, PAINT_ERROR, PAINT_DIM, PAINT_OFF } paint;

static const char *painted(const lar_lint_report *r, paint p) {
    static const char *const codes[] = {"\033[1m", "\033[36m", "\033[33m", "\033[31m", "\033[2m", "\033[0m"};
    return r->args->color ? codes[p] : "";
}

static lar_error print_finding(const lar_lint_report *r, const lar_lint_finding *f, lar_buf *b) {
    char file[LAR_LINT_SHOWN_ROOM], pointer[LAR_LINT_SHOWN_ROOM], answer[LAR_LINT_SHOWN_ROOM];
    const char *off = painted(r, PAINT_OFF), *state = f->state == LAR_LINT_CONFIRMED ? "confirmed" : "suspect";
    lar_present_name(lar_slice_cstr(r->files[f->place.file].name), file);
    lar_error e = lar_buf_printf(b, "%s%s%s:", painted(r, PAINT_NAME), file, off);
    if (!e && f->place.line) e = lar_buf_printf(b, "%u:%u:", (unsigned)f->place.line, (unsigned)f->place.column);
    if (!e)
        e = lar_buf_printf(b, " %s%s%s %s %s (%s)", painted(r, (paint)(PAINT_INFO + f->severity)),
                           lar_lint_severity_name(f->severity), off, lar_rule_id(f->rule), lar_rule_name(f->rule),
                           state);
    if (!e && f->place.pointer.len) {
        lar_present_name(f->place.pointer, pointer);
        e = lar_buf_printf(b, " %s%s%s", painted(r, PAINT_DIM), pointer, off);
    }
    if (!e) e = lar_buf_printf(b, "\n    ");
    if (!e) e = lar_lint_sentence(r, f, b);
    if (!e && f->requests > 1) e = lar_buf_printf(b, " (seen in %u requests)", (unsigned)f->requests);
    if (!e && f->answer.len) {
        lar_present_name(f->answer, answer);
        e = lar_buf_printf(b, "\n    the provider answers: %s", answer);
    }
    if (!e && f->advice.len) e = lar_buf_printf(b, "\n    %s%.*s%s", painted(r, PAINT_DIM), LAR_FMT(f->advice), off);
    return e ? e : lar_buf_printf(b, "\n");
}

static const char *plural(uint32_t n) { return n == 1 ? "" : "s"; }

static lar_error print_sum(const lar_lint_report *r, lar_buf *b) {
    uint32_t confirmed = 0;
    for (uint32_t i = 0; i < r->count; i++) confirmed += r->findings[i].state == LAR_LINT_CONFIRMED;
    lar_error e = lar_buf_printf(b, "%u finding%s", (unsigned)r->count, plural(r->count));
    if (!e && r->count)
        e = lar_buf_printf(b, " (%u confirmed, %u suspect)", (unsigned)confirmed, (unsigned)(r->count - confirmed));
    if (!e) e = lar_buf_printf(b, " in %u request%s", (unsigned)r->requests, plural(r->requests));
    if (!e && r->records) e = lar_buf_printf(b, " and %u record%s", (unsigned)r->records, plural(r->records));
    if (!e) e = lar_buf_printf(b, " of %u file%s", (unsigned)r->file_count, plural(r->file_count));
    if (!e && r->ignored) e = lar_buf_printf(b, "; %u ignored", (unsigned)r->ignored);
    if (!e && r->baselined) e = lar_buf_printf(b, "; %u in the baseline", (unsigned)r->baselined);
    if (!e && r->gone)
        e = lar_buf_printf(b, "; %u of the baseline gone: write it anew with --write-baseline", (unsigned)r->gone);
    if (!e && r->dropped) e = lar_buf_printf(b, "; some places were left out: too many of them");
    return e ? e : lar_buf_printf(b, "\n");
}

static lar_error write_out(lar_buf *b, FILE *out) {
    bool written = fwrite(b->ptr, 1, b->len, out) == b->len;
    b->len = 0;
    return written ? LAR_OK : LAR_IO;
}

lar_error lar_lint_print_text(const lar_lint_report *r, FILE *out) {
    lar_buf b;
    lar_buf_init(&b, LINE_BYTES_MAX);
    lar_error e = LAR_OK;
    for (uint32_t i = 0; i < r->count && !e; i++) {
        e = print_finding(r, &r->findings[i], &b);
        if (!e) e = write_out(&b, out);
    }
    if (!e) e = print_sum(r, &b);
    if (!e) e = write_out(&b, out);
    lar_buf_release(&b);
    return e;
}

/* -- for GitHub ---------------------------------------------------------------------------------------- */

/* Data of a workflow command; in a property, colons and commas too. */
static lar_error add_escaped(lar_buf *b, lar_slice s, bool property) {
    lar_error e = LAR_OK;
    for (size_t i = 0; i < s.len && !e; i++) {
        char c = s.ptr[i];
        bool special = c == '%' || c == '\r' || c == '\n' || (property && (c == ':' || c == ','));
        e = special ? lar_buf_printf(b, "%%%02X", (unsigned)(unsigned char)c) : lar_buf_add(b, &c, 1);
    }
    return e;
}

/* A name that a terminal would obey is shown as for people; others must stay what they are, to be found. */
static lar_error add_file(lar_buf *b, const char *name) {
    char shown[LAR_LINT_SHOWN_ROOM];
    lar_slice s = lar_slice_cstr(name);
    lar_present_name(s, shown);
    bool whole = s.len + 16 > sizeof shown || lar_slice_eq(lar_slice_cstr(shown), s);
    return add_escaped(b, whole ? s : lar_slice_cstr(shown), true);
}

static lar_error github_finding(const lar_lint_report *r, const lar_lint_finding *f, lar_buf *b, lar_buf *text) {
    static const char *const commands[] = {"notice", "warning", "error"};
    lar_error e = lar_buf_printf(b, "::%s file=", commands[f->severity]);
    if (!e) e = add_file(b, r->files[f->place.file].name);
    if (!e && f->place.line)
        e = lar_buf_printf(b, ",line=%u,col=%u", (unsigned)f->place.line, (unsigned)f->place.column);
    if (!e)
        e = lar_buf_printf(b, ",title=%s %s (%s)::", lar_rule_id(f->rule), lar_rule_name(f->rule),
                           f->state == LAR_LINT_CONFIRMED ? "confirmed" : "suspect");
    text->len = 0;
    if (!e) e = lar_lint_sentence(r, f, text);
    if (!e) e = lar_buf_printf(text, ". ");
    if (!e) e = lar_buf_add_slice(text, f->advice);
    if (!e) e = add_escaped(b, lar_buf_slice(text), false);
    return e ? e : lar_buf_printf(b, "\n");
}

lar_error lar_lint_print_github(const lar_lint_report *r, FILE *out) {
    lar_buf b, text;
    lar_buf_init(&b, 4 * LINE_BYTES_MAX);
    lar_buf_init(&text, LINE_BYTES_MAX);
    lar_error e = LAR_OK;
    for (uint32_t i = 0; i < r->count && !e; i++) {
        e = github_finding(r, &r->findings[i], &b, &text);
        if (!e) e = write_out(&b, out);
    }
    lar_buf_release(&b);
    lar_buf_release(&text);
    return e;
}
