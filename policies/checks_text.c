/* Placeholders that nobody filled in, presigned addresses, values made up for a request (header: checks_text.h).
 * Flow: checks.c, checks_pair.c -> here. Pure; never blocks; no memory; one pass over the text a call.
 * A placeholder counts only if its name is that of a value that changes, since texts that teach templates, formats and
 * code are full of braces: what stands in code, in quotes, or on a line that speaks of formats or examples is left out.
 * Not here: clocks and ids that were filled in (volatile_text.h). */
#include "policies/checks_text.h"

#include <string.h>

#include "policies/rules/scan_text.h"

enum { NAME_MAX = 48, SIGNATURE_MIN = 16 };

/* `word` in any case of ASCII, anywhere in `text`. */
static bool holds(lar_slice text, const char *word) {
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= text.len; i++) {
        if (lar_slice_ieq(lar_slice_of(text.ptr + i, n), lar_slice_of(word, n))) return true;
    }
    return false;
}

static bool holds_any(lar_slice text, const char *const *words, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (holds(text, words[i])) return true;
    }
    return false;
}

/* Line by line, with the state of code fences. */
typedef struct lines {
    lar_slice text, line;
    size_t next;
    bool fenced;
} lines;

/* False behind the last line. Lines in code are empty. */
static bool next_line(lines *l) {
    if (l->next >= l->text.len) return false;
    const char *at = l->text.ptr + l->next, *nl = memchr(at, '\n', l->text.len - l->next);
    l->line = lar_slice_of(at, nl ? (size_t)(nl - at) : l->text.len - l->next);
    l->next += l->line.len + 1;
    lar_slice bare = lar_slice_trim(l->line);
    bool fence = lar_slice_starts(bare, LAR_SLICE("```")) || lar_slice_starts(bare, LAR_SLICE("~~~"));
    if (fence) l->fenced = !l->fenced;
    if (fence || l->fenced) l->line.len = 0;
    return true;
}

/* -- placeholders ------------------------------------------------------------------------------------------ */

static const char *const values[] = {"date",
                                     "time",
                                     "datetime",
                                     "now",
                                     "today",
                                     "timestamp",
                                     "currentdate",
                                     "currenttime",
                                     "currentdatetime",
                                     "currenttimestamp",
                                     "currentday",
                                     "currentweekday",
                                     "currentyear",
                                     "todaysdate",
                                     "todaydate",
                                     "datetoday",
                                     "nowutc",
                                     "utcnow",
                                     "datetimenow",
                                     "timenow",
                                     "localtime",
                                     "localdate",
                                     "systemtime",
                                     "systemdate",
                                     "isodate",
                                     "weekday",
                                     "username",
                                     "userid",
                                     "user",
                                     "useremail",
                                     "sessionid",
                                     "conversationid",
                                     "requestid",
                                     "threadid",
                                     "traceid",
                                     "cwd",
                                     "workingdirectory",
                                     "workdir",
                                     "workspace",
                                     "workspacepath",
                                     "workspaceroot",
                                     "hostname",
                                     "osname",
                                     "platform",
                                     "gitbranch",
                                     "userlocation",
                                     "usertimezone",
                                     "timezone",
                                     "modelname",
                                     "当前时间",
                                     "当前日期",
                                     "当前日期时间",
                                     "当前时刻",
                                     "今天日期",
                                     "今日日期",
                                     "今天",
                                     "日期",
                                     "时间",
                                     "现在时间",
                                     "系统时间",
                                     "用户名",
                                     "当前用户",
                                     "用户id",
                                     "会话id",
                                     "工作目录",
                                     "当前目录"};

/* What stands on a line that explains something instead of saying it. */
static const char *const teaching[] = {"format",     "template", "placeholder",  "example",    "e.g.",
                                       "such as",    "replace",  "like this",    "variable",   "f-string",
                                       "strftime",   "jinja",    "mustache",     "handlebars", "syntax",
                                       "interpolat", "output",   "respond with", "reply with", "filename",
                                       "file name",  "格式",     "模板",         "占位",       "例如",
                                       "示例",       "比如",     "替换",         "变量",       "输出",
                                       "语法"};

/* The name inside of braces: letters, digits and what joins words, without call, filter or format. Empty if it is
 * something else. Compact: in lower case and without what joins words. */
static lar_slice compact_name(lar_slice inside, char room[NAME_MAX]) {
    size_t n = 0, i = 0;
    inside = lar_slice_trim(inside);
    for (; i < inside.len; i++) {
        char c = inside.ptr[i];
        if (c == ':' || c == '|' || c == '(') break;
        if (c == '_' || c == '-' || c == '.' || c == ' ' || c == '$') continue;
        if (!lar_scan_is_alnum(c) && !((unsigned char)c & 0x80)) return LAR_SLICE("");
        if (n == NAME_MAX) return LAR_SLICE("");
        room[n++] = lar_scan_low(c);
    }
    return lar_slice_of(room, n);
}

static bool is_value(lar_slice name) {
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        if (lar_slice_eq_cstr(name, values[i])) return true;
    }
    return false;
}

typedef struct braces {
    size_t start, end, inner_start, inner_end; /* of the line */
} braces;

/* The next pair of braces on the line, the inner one of nested pairs taken together: {{x}}, ${x}, {x}. */
static bool next_braces(lar_slice line, size_t from, braces *b) {
    for (size_t i = from; i < line.len; i++) {
        if (line.ptr[i] != '{') continue;
        size_t depth = i + 1 < line.len && line.ptr[i + 1] == '{' ? 2 : 1, at = i + depth;
        while (at < line.len && line.ptr[at] != '{' && line.ptr[at] != '}') at++;
        if (at + depth > line.len || line.ptr[at] != '}' || (depth == 2 && line.ptr[at + 1] != '}')) continue;
        b->inner_start = i + depth;
        b->inner_end = at;
        b->end = at + depth;
        b->start = i > 0 && line.ptr[i - 1] == '$' ? i - 1 : i;
        return true;
    }
    return false;
}

/* In inline code, in quotes, as a value of JSON, or in a string of a program. */
static bool quoted(lar_slice line, const braces *b) {
    size_t ticks = 0;
    for (size_t i = 0; i < b->start; i++) ticks += line.ptr[i] == '`';
    if (ticks % 2) return true;
    char before = b->start ? line.ptr[b->start - 1] : ' ', after = b->end < line.len ? line.ptr[b->end] : ' ';
    if (before == '"' || before == '\'' || before == '\\' || before == '{') return true;
    return after == '"' || after == '\'' || after == '}';
}

/* Part of a path or an address with single braces: a route as programs write it, /users/{user_id}. */
static bool in_path(lar_slice line, const braces *b) {
    if (b->inner_start - b->start != 1) return false;
    size_t from = b->start, to = b->end;
    while (from > 0 && line.ptr[from - 1] != ' ') from--;
    while (to < line.len && line.ptr[to] != ' ') to++;
    return memchr(line.ptr + from, '/', to - from) != NULL;
}

/* All braces of the line hold such names: else it is a pattern for something to be written. */
static bool only_values(lar_slice line) {
    braces b;
    char room[NAME_MAX];
    for (size_t at = 0; next_braces(line, at, &b); at = b.end) {
        if (!is_value(compact_name(lar_slice_of(line.ptr + b.inner_start, b.inner_end - b.inner_start), room)))
            return false;
    }
    return true;
}

static bool teaches(lar_slice line) {
    if (line.len >= 4 && memcmp(line.ptr, "    ", 4) == 0) return true; /* indented: code */
    if (line.len && line.ptr[0] == '\t') return true;
    return holds(line, "\":") || holds_any(line, teaching, sizeof teaching / sizeof *teaching);
}

bool lar_check_placeholder(lar_slice text, uint32_t from, lar_check_span *out) {
    if (text.len == 0 || !memchr(text.ptr, '{', text.len) || holds(text, "{%")) return false;
    lines l = {.text = text};
    while (next_line(&l)) {
        size_t base = (size_t)(l.line.ptr - text.ptr);
        braces b;
        char room[NAME_MAX];
        if (base + l.line.len <= from || !memchr(l.line.ptr, '{', l.line.len)) continue;
        if (teaches(l.line) || !only_values(l.line)) continue;
        for (size_t at = 0; next_braces(l.line, at, &b); at = b.end) {
            lar_slice inside = lar_slice_of(l.line.ptr + b.inner_start, b.inner_end - b.inner_start);
            if (base + b.start < from || quoted(l.line, &b) || in_path(l.line, &b)) continue;
            if (!is_value(compact_name(inside, room))) continue;
            *out = (lar_check_span){(uint32_t)(base + b.start), (uint32_t)(base + b.end)};
            return true;
        }
    }
    return false;
}

/* -- addresses ---------------------------------------------------------------------------------------------- */

/* Value of a query's member, any case of the name; ptr is NULL if there is none. */
static lar_slice query_get(lar_slice url, const char *name) {
    const char *q = url.len ? memchr(url.ptr, '?', url.len) : NULL;
    size_t at = q ? (size_t)(q - url.ptr) + 1 : url.len, n = strlen(name);
    while (at < url.len) {
        const char *amp = memchr(url.ptr + at, '&', url.len - at);
        size_t end = amp ? (size_t)(amp - url.ptr) : url.len;
        if (end - at > n && url.ptr[at + n] == '=' &&
            lar_slice_ieq(lar_slice_of(url.ptr + at, n), lar_slice_of(name, n)))
            return lar_slice_of(url.ptr + at + n + 1, end - at - n - 1);
        at = end + 1;
    }
    return (lar_slice){NULL, 0};
}

/* A signature that somebody computed, and no "..." or "<signature>" of a manual. */
static bool is_signature(lar_slice v) {
    if (!v.ptr || v.len < SIGNATURE_MIN) return false;
    for (size_t i = 0; i < v.len; i++) {
        if (!lar_scan_is_alnum(v.ptr[i]) && !memchr("%+/=-_~.", v.ptr[i], 8)) return false;
    }
    return !holds(v, "...") && !holds(v, "signature");
}

bool lar_check_url_signed(lar_slice url) {
    static const struct {
        const char *signature, *with, *or_with;
    } forms[] = {{"X-Amz-Signature", "X-Amz-Date", "X-Amz-Expires"},
                 {"X-Goog-Signature", "X-Goog-Date", "X-Goog-Expires"},
                 {"X-Oss-Signature", "X-Oss-Date", "X-Oss-Expires"},
                 {"X-Tos-Signature", "X-Tos-Date", "X-Tos-Expires"},
                 {"sig", "se", "st"},
                 {"Signature", "Expires", "Key-Pair-Id"},
                 {"q-signature", "q-sign-time", "q-key-time"}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (!is_signature(query_get(url, forms[i].signature))) continue;
        if (query_get(url, forms[i].with).ptr || query_get(url, forms[i].or_with).ptr) return true;
    }
    return false;
}

bool lar_check_url_busted(lar_slice url) {
    static const char *const times[] = {"t", "ts", "time", "timestamp", "_", "v", "expires", "exp"};
    static const char *const random[] = {"cb", "cachebust", "cachebuster", "nonce", "rand", "random", "r", "token"};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        lar_slice v = query_get(url, times[i]);
        size_t digits = 0;
        while (digits < v.len && lar_scan_is_digit(v.ptr[digits])) digits++;
        if (digits >= 10 && digits == v.len) return true;
    }
    for (size_t i = 0; i < sizeof random / sizeof *random; i++) {
        lar_slice v = query_get(url, random[i]);
        if (v.ptr && v.len >= 6) return true;
    }
    return false;
}

bool lar_check_presigned(lar_slice text, uint32_t from, lar_check_span *out) {
    lines l = {.text = text};
    while (next_line(&l)) {
        size_t base = (size_t)(l.line.ptr - text.ptr);
        for (size_t i = 0; i + 8 < l.line.len; i++) {
            lar_slice rest = lar_slice_of(l.line.ptr + i, l.line.len - i);
            if (!lar_slice_starts_i(rest, LAR_SLICE("http://")) && !lar_slice_starts_i(rest, LAR_SLICE("https://")))
                continue;
            size_t n = 0;
            while (n < rest.len && (unsigned char)rest.ptr[n] > ' ' && !memchr("\"'<>()[]{}|\\`", rest.ptr[n], 13)) n++;
            if (base + i >= from && lar_check_url_signed(lar_slice_of(rest.ptr, n))) {
                *out = (lar_check_span){(uint32_t)(base + i), (uint32_t)(base + i + n)};
                return true;
            }
            i += n;
        }
    }
    return false;
}

/* -- values of fields --------------------------------------------------------------------------------------- */

/* 8-4-4-4-12 hexadecimal digits, anywhere. */
static bool holds_uuid(lar_slice v) {
    static const uint8_t groups[] = {8, 4, 4, 4, 12};
    for (size_t i = 0; i + 36 <= v.len; i++) {
        size_t at = i;
        bool fits = true;
        for (size_t g = 0; g < 5 && fits; g++) {
            for (uint8_t k = 0; k < groups[g]; k++) fits &= lar_scan_is_hex(v.ptr[at + k]);
            at += groups[g];
            if (g < 4) fits &= v.ptr[at++] == '-';
        }
        if (fits) return true;
    }
    return false;
}

bool lar_check_random(lar_slice v) {
    if (holds_uuid(v)) return true;
    size_t run = 0, digits = 0, letters = 0;
    for (size_t i = 0; i <= v.len; i++) {
        char c = i < v.len ? v.ptr[i] : ' ';
        if (lar_scan_is_alnum(c)) {
            run++;
            digits += lar_scan_is_digit(c);
            letters += !lar_scan_is_digit(c);
            continue;
        }
        if (run >= 20 && digits >= 4 && letters >= 4) return true;
        run = digits = letters = 0;
    }
    return false;
}

/* An epoch of this century in seconds to nanoseconds, or a date with a time. */
static bool holds_clock(lar_slice v) {
    size_t digits = 0;
    for (size_t i = 0; i <= v.len; i++) {
        if (i < v.len && lar_scan_is_digit(v.ptr[i])) {
            digits++;
            continue;
        }
        bool whole = i == v.len || !lar_scan_is_alnum(v.ptr[i]);
        bool front = digits == i || !lar_scan_is_alnum(v.ptr[i - digits - 1]);
        if (whole && front && (digits == 10 || digits == 13 || digits == 16 || digits == 19)) {
            if (v.ptr[i - digits] == '1' || v.ptr[i - digits] == '2') return true;
        }
        if (digits == 2 && i >= 13 && i < v.len && v.ptr[i] == ':' && (v.ptr[i - 3] == 'T' || v.ptr[i - 3] == ' '))
            return true;
        digits = 0;
    }
    return false;
}

bool lar_check_per_request(lar_slice v) {
    static const char *const words[] = {"req_", "req-", "request", "trace", "nonce"};
    if (holds_clock(v)) return true;
    return lar_check_random(v) && holds_any(v, words, sizeof words / sizeof *words);
}
