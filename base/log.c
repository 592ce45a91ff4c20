/* One log line: fields into a bounded buffer on the stack, then one write(2).
 * Flow: called by everybody, calls write. Thread: any, at once. Blocks: only as the descriptor does
 * (a non-blocking one never; then the line is dropped and counted).
 * Invariants: 1. a line is at most PIPE_BUF bytes, so that a pipe takes it whole or not at all.
 * 2. nothing that ends a line or steers a terminal leaves unescaped. 3. a JSON line is valid JSON:
 * bytes that are not UTF-8 become U+FFFD. 4. a field that does not fit is left out whole, and the
 * line says truncated=true.
 * Memory: the lar_log only. A closed pipe is counted only where the process ignores SIGPIPE. */
#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/ensure.h"
#include "base/utf8.h"

enum { LINE_BYTES = PIPE_BUF < 4096 ? PIPE_BUF : 4096, TAIL_BYTES = 32, TEXT_BYTES_MAX = 512 };

struct lar_log {
    lar_log_options options;
    atomic_int level;
    _Atomic uint64_t dropped;
};

/* The line so far. `full` says that something did not fit since it was last cleared. */
typedef struct line {
    char text[LINE_BYTES];
    size_t len, max;
    bool full;
} line;

lar_log *lar_log_new(const lar_log_options *o) {
    lar_log *l = malloc(sizeof *l);
    LAR_ASSERT(l != NULL);
    l->options = *o;
    atomic_init(&l->level, (int)o->level);
    atomic_init(&l->dropped, 0);
    return l;
}

void lar_log_set_level(lar_log *l, lar_log_level level) {
    atomic_store_explicit(&l->level, (int)level, memory_order_relaxed);
}

void lar_log_free(lar_log *l) { free(l); }

uint64_t lar_log_dropped(const lar_log *l) { return l ? atomic_load_explicit(&l->dropped, memory_order_relaxed) : 0; }

static void add_bytes(line *n, const char *bytes, size_t len) {
    if (len > n->max - n->len) {
        n->full = true;
        return;
    }
    memcpy(n->text + n->len, bytes, len);
    n->len += len;
}

static void add_cstr(line *n, const char *text) { add_bytes(n, text, strlen(text)); }

static void add_format(line *n, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add_format(line *n, const char *fmt, ...) {
    char piece[64];
    va_list ap;
    va_start(ap, fmt);
    int len = vsnprintf(piece, sizeof piece, fmt, ap);
    va_end(ap);
    LAR_ASSERT(len >= 0 && (size_t)len < sizeof piece);
    add_bytes(n, piece, (size_t)len);
}

/* One character of a quoted text: raw, or escaped in the way that both JSON and logfmt readers take. */
static void add_character(line *n, const unsigned char *p, size_t len) {
    uint32_t c = *p;
    if (len == 2) c = (c & 0x1Fu) << 6 | (p[1] & 0x3Fu);
    if (len == 3) c = (c & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
    bool control = c < 0x20 || (c >= 0x7F && c < 0xA0);
    bool line_break_or_direction = (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
    if (c == '"' || c == '\\') add_format(n, "\\%c", (int)c);
    else if (c == '\n' || c == '\r' || c == '\t') add_format(n, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    else if (len < 4 && (control || line_break_or_direction)) add_format(n, "\\u%04x", c);
    else add_bytes(n, (const char *)p, len);
}

static void add_quoted(line *n, lar_slice s) {
    const unsigned char *p = (const unsigned char *)(s.ptr ? s.ptr : ""), *end = p + s.len;
    const unsigned char *stop = s.len > TEXT_BYTES_MAX ? p + TEXT_BYTES_MAX : end;
    add_bytes(n, "\"", 1);
    while (p < stop) {
        size_t len = lar_utf8_sequence(p, end);
        if (len && (size_t)(stop - p) < len) break; /* the cut would fall into a character */
        if (len) add_character(n, p, len);
        else add_cstr(n, "\\ufffd");
        p += len ? len : 1;
    }
    if (stop < end) add_cstr(n, "...");
    add_bytes(n, "\"", 1);
}

static bool is_bare(lar_slice s) {
    if (!s.len || s.len > TEXT_BYTES_MAX) return false;
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] <= ' ' || s.ptr[i] > '~' || s.ptr[i] == '"' || s.ptr[i] == '=' || s.ptr[i] == '\\') return false;
    return true;
}

static void add_name(line *n, lar_log_format format, const char *name) {
    bool first = n->len == (format == LAR_LOG_JSON ? 1u : 0u);
    if (format == LAR_LOG_JSON) {
        add_cstr(n, first ? "" : ",");
        add_quoted(n, lar_slice_cstr(name));
        add_cstr(n, ":");
    } else {
        add_cstr(n, first ? "" : " ");
        add_cstr(n, name);
        add_cstr(n, "=");
    }
}

static void add_field(line *n, lar_log_format format, const lar_log_field *f) {
    size_t before = n->len;
    n->full = false;
    add_name(n, format, f->name);
    if (f->kind == LAR_FIELD_INT) {
        add_format(n, "%lld", (long long)f->number);
    } else if (f->kind == LAR_FIELD_MS) {
        uint64_t us = f->number < 0 ? 0 - (uint64_t)f->number : (uint64_t)f->number;
        add_format(n, "%s%llu.%03llu", f->number < 0 ? "-" : "", (unsigned long long)(us / 1000),
                   (unsigned long long)(us % 1000));
    } else if (format == LAR_LOG_LOGFMT && is_bare(f->text)) {
        add_bytes(n, f->text.ptr, f->text.len);
    } else {
        add_quoted(n, f->text);
    }
    if (n->full) n->len = before;
}

static void add_time(line *n, lar_log_format format) {
    int64_t ms = lar_clock_wall_ms();
    time_t seconds = (time_t)(ms / 1000);
    struct tm t;
    char text[40];
    (void)gmtime_r(&seconds, &t);
    size_t len = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &t);
    int more = snprintf(text + len, sizeof text - len, ".%03dZ", (int)(ms % 1000));
    add_field(n, format, &LAR_F_TEXT("time", lar_slice_of(text, len + (size_t)(more > 0 ? more : 0))));
}

static void send_line(lar_log *l, const line *n) {
    size_t at = 0;
    while (at < n->len) {
        ssize_t sent = write(l->options.fd, n->text + at, n->len - at);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) {
            atomic_fetch_add_explicit(&l->dropped, 1, memory_order_relaxed);
            return;
        }
        at += (size_t)sent;
    }
}

void lar_log_write(lar_log *l, lar_log_level level, const char *event, const lar_log_field *fields, int count) {
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    if (!l || (int)level > atomic_load_explicit(&l->level, memory_order_relaxed)) return;
    lar_log_format format = l->options.format;
    line n = {.max = LINE_BYTES - TAIL_BYTES};
    if (format == LAR_LOG_JSON) add_cstr(&n, "{");
    add_time(&n, format);
    add_field(&n, format, &LAR_F_CSTR("level", levels[level]));
    add_field(&n, format, &LAR_F_CSTR("event", event));
    bool cut = false;
    for (int i = 0; i < count; i++) {
        add_field(&n, format, &fields[i]);
        cut |= n.full;
    }
    n.max = LINE_BYTES;
    if (cut) add_cstr(&n, format == LAR_LOG_JSON ? ",\"truncated\":true" : " truncated=true");
    add_cstr(&n, format == LAR_LOG_JSON ? "}\n" : "\n");
    send_line(l, &n);
}

static size_t find_any(lar_slice s, size_t from, const char *set) {
    while (from < s.len && !(s.ptr[from] && strchr(set, s.ptr[from]))) from++;
    return from;
}

/* True if the text behind the last colon of an authority is no port: then it may be a password
 * with a slash or a question mark in it, written without its percent signs. */
static bool has_odd_port(lar_slice authority) {
    size_t i = authority.len;
    while (i && authority.ptr[i - 1] >= '0' && authority.ptr[i - 1] <= '9') i--;
    if (i && authority.ptr[i - 1] == ':') return i == authority.len;
    return memchr(authority.ptr, ':', authority.len) && authority.ptr[0] != '[';
}

static bool is_scheme_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' || c == '-' ||
           c == '.';
}

/* Where the authority begins: behind "scheme://" or "//"; 0 where there is neither. */
static size_t authority_start(lar_slice url) {
    size_t i = 0;
    while (i < url.len && is_scheme_char(url.ptr[i])) i++;
    if (url.len - i >= 3 && memcmp(url.ptr + i, "://", 3) == 0) return i + 3;
    return url.len >= 2 && memcmp(url.ptr, "//", 2) == 0 ? 2 : 0;
}

static size_t behind_last_at(lar_slice url, size_t from, size_t to) {
    while (to > from && url.ptr[to - 1] != '@') to--;
    return to;
}

void lar_log_redact_url(lar_slice url, char *out, size_t cap) {
    LAR_ASSERT(cap > 0);
    size_t scheme = authority_start(url), path = find_any(url, scheme, "/?#\\");
    size_t host = behind_last_at(url, scheme, path);
    if (path > host && has_odd_port(lar_slice_of(url.ptr + host, path - host)))
        host = behind_last_at(url, host, url.len);
    size_t end = find_any(url, host, "?#"), n = 0;
    for (size_t i = scheme ? 0 : host; i < end && n + 1 < cap; i = i + 1 == scheme ? host : i + 1)
        out[n++] = url.ptr[i] <= ' ' || url.ptr[i] > '~' ? '?' : url.ptr[i];
    out[n] = 0;
}
