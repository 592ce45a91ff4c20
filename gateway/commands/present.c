/* Names, numbers, times and tables as text.
 * Flow: the commands call. One thread; never blocks. Why escapes: a model name is whatever a client
 * sent; on the way to somebody's terminal it must not move the cursor or turn the line round.
 * Invariants: 1. what is printed is valid UTF-8 without control characters. 2. JSON is valid whatever the
 * bytes are. Memory: the table's cells on the heap, bounded by what is shown. */
#include "gateway/commands/present.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CELLS_MAX = 1 << 16, CELL_BYTES = 600 };

/* Decodes one character; its length, or 0 if the bytes are not UTF-8 (RFC 3629). */
static size_t decode(lar_slice s, uint32_t *code) {
    const unsigned char *p = (const unsigned char *)s.ptr;
    if (p[0] < 0x80) {
        *code = p[0];
        return 1;
    }
    size_t len = p[0] >= 0xc2 && p[0] <= 0xdf ? 2 : (p[0] & 0xf0) == 0xe0 ? 3 : p[0] >= 0xf0 && p[0] <= 0xf4 ? 4 : 0;
    if (!len || s.len < len) return 0;
    uint32_t c = p[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
        c = c << 6 | (p[i] & 0x3f);
    }
    if ((len == 3 && (c < 0x800 || (c >= 0xd800 && c <= 0xdfff))) || (len == 4 && (c < 0x10000 || c > 0x10ffff)))
        return 0;
    *code = c;
    return len;
}

/* Moves the cursor, turns the direction of writing, or cannot be seen. */
static bool is_unsafe(uint32_t c) {
    return c < 0x20 || (c >= 0x7f && c <= 0x9f) || c == 0xad || (c >= 0x200b && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff ||
           (c >= 0xfff9 && c <= 0xfffb) || (c >= 0xe0000 && c <= 0xe0fff);
}

void lar_present_name(lar_slice name, char out[LAR_SHOWN_BYTES]) {
    size_t at = 0;
    for (size_t i = 0, len; i < name.len && at + 12 < LAR_SHOWN_BYTES; i += len ? len : 1) {
        uint32_t c = 0;
        len = decode(lar_slice_of(name.ptr + i, name.len - i), &c);
        if (len && !is_unsafe(c)) {
            memcpy(out + at, name.ptr + i, len);
            at += len;
        } else if (!len || c < 0x80) {
            at += (size_t)snprintf(out + at, LAR_SHOWN_BYTES - at, "\\x%02x", (unsigned char)name.ptr[i]);
        } else {
            at += (size_t)snprintf(out + at, LAR_SHOWN_BYTES - at, "\\u%04" PRIx32, c);
        }
    }
    if (!at) out[at++] = '-';
    out[at] = 0;
}

static lar_error json_escape(lar_buf *out, uint32_t c) {
    if (c == '"' || c == '\\') return lar_buf_printf(out, "\\%c", (int)c);
    if (c > 0xffff)
        return lar_buf_printf(out, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10), 0xdc00 + ((c - 0x10000) & 0x3ff));
    return lar_buf_printf(out, "\\u%04" PRIx32, c);
}

lar_error lar_present_json(lar_buf *out, lar_slice text) {
    lar_error e = lar_buf_add(out, "\"", 1);
    for (size_t i = 0, len; !e && i < text.len; i += len ? len : 1) {
        uint32_t c = 0;
        len = decode(lar_slice_of(text.ptr + i, text.len - i), &c);
        if (!len) e = lar_buf_add(out, "\\ufffd", 6);
        else if (c == '"' || c == '\\' || is_unsafe(c)) e = json_escape(out, c);
        else e = lar_buf_add(out, text.ptr + i, len);
    }
    return e ? e : lar_buf_add(out, "\"", 1);
}

lar_error lar_present_document(cJSON *taken, FILE *out) {
    char *text = taken ? cJSON_Print(taken) : NULL;
    cJSON_Delete(taken);
    if (!text) return LAR_NO_MEMORY;
    bool written = fputs(text, out) >= 0 && fputc('\n', out) != EOF;
    cJSON_free(text);
    return written ? LAR_OK : LAR_IO;
}

void lar_present_time(int64_t ms, char out[LAR_TIME_BYTES]) {
    struct tm t;
    int64_t rest = ms % 1000 < 0 ? ms % 1000 + 1000 : ms % 1000;
    time_t seconds = (time_t)(ms / 1000 - (ms % 1000 < 0));
    char day[24];
    if (seconds < -62135596800 || seconds > 253402300799 || !gmtime_r(&seconds, &t) ||
        !strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &t)) {
        (void)snprintf(out, LAR_TIME_BYTES, "%" PRId64 "ms", ms);
        return;
    }
    (void)snprintf(out, LAR_TIME_BYTES, "%s.%03dZ", day, (int)rest);
}

void lar_present_duration(int64_t us, char out[LAR_DURATION_BYTES]) {
    if (us < 0) (void)snprintf(out, LAR_DURATION_BYTES, "-");
    else if (us < 9950) (void)snprintf(out, LAR_DURATION_BYTES, "%.1fms", (double)us / 1e3);
    else if (us < 999500) (void)snprintf(out, LAR_DURATION_BYTES, "%.0fms", (double)us / 1e3);
    else (void)snprintf(out, LAR_DURATION_BYTES, "%.3fs", (double)us / 1e6);
}

/* Wide in East Asian fonts, by the main blocks of Unicode's table; combining marks take no column. */
static uint32_t columns_of(uint32_t c) {
    if ((c >= 0x300 && c <= 0x36f) || (c >= 0xfe00 && c <= 0xfe0f) || (c >= 0x20d0 && c <= 0x20ff)) return 0;
    if ((c >= 0x1100 && c <= 0x115f) || (c >= 0x2e80 && c <= 0xa4cf && c != 0x303f) || (c >= 0xac00 && c <= 0xd7a3) ||
        (c >= 0xf900 && c <= 0xfaff) || (c >= 0xfe30 && c <= 0xfe6f) || (c >= 0xff00 && c <= 0xff60) ||
        (c >= 0xffe0 && c <= 0xffe6) || (c >= 0x1f300 && c <= 0x1faff) || (c >= 0x20000 && c <= 0x3fffd))
        return 2;
    return 1;
}

uint32_t lar_present_width(const char *text) {
    lar_slice s = lar_slice_cstr(text);
    uint32_t width = 0;
    while (s.len) {
        uint32_t c = 0;
        size_t len = decode(s, &c);
        width += len ? columns_of(c) : 1;
        len = len ? len : 1;
        s = lar_slice_of(s.ptr + len, s.len - len);
    }
    return width;
}

struct lar_table {
    uint32_t columns, count, cap;
    char **cells;
    bool cut;
};

lar_table *lar_table_new(uint32_t columns) {
    lar_table *t = calloc(1, sizeof *t);
    if (t) t->columns = columns;
    return t;
}

static bool grow(lar_table *t) {
    uint32_t cap = t->cap ? t->cap * 2 : 256;
    char **cells = cap > CELLS_MAX ? NULL : realloc(t->cells, cap * sizeof *cells);
    if (!cells) return false;
    t->cells = cells;
    t->cap = cap;
    return true;
}

void lar_table_cell(lar_table *t, const char *fmt, ...) {
    char text[CELL_BYTES];
    va_list ap;
    if (!t || t->cut) return;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    char *cell = t->count < t->cap || grow(t) ? strdup(text) : NULL;
    if (cell) t->cells[t->count++] = cell;
    else t->cut = true;
}

static uint32_t column_width(const lar_table *t, uint32_t column, uint32_t rows) {
    uint32_t width = 0;
    for (uint32_t i = column; i < rows * t->columns; i += t->columns) {
        uint32_t w = lar_present_width(t->cells[i]);
        width = w > width ? w : width;
    }
    return width;
}

void lar_table_print(const lar_table *t, FILE *out) {
    enum { COLUMNS_MAX = 32 };
    uint32_t widths[COLUMNS_MAX];
    if (!t || t->columns > COLUMNS_MAX) return;
    uint32_t rows = t->count / t->columns;
    for (uint32_t c = 0; c < t->columns; c++) widths[c] = column_width(t, c, rows);
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t c = 0; c < t->columns; c++) {
            const char *cell = t->cells[r * t->columns + c];
            int pad = (int)(widths[c] - lar_present_width(cell));
            if (!c) (void)fprintf(out, "%s%*s", cell, pad, "");
            else (void)fprintf(out, "  %*s%s", pad, "", cell);
        }
        (void)fputc('\n', out);
    }
    if (t->cut) (void)fputs("(more rows than memory)\n", out);
}

void lar_table_free(lar_table *t) {
    if (!t) return;
    for (uint32_t i = 0; i < t->count; i++) free(t->cells[i]);
    free(t->cells);
    free(t);
}
