/* Finds clocks in text: candidates with their labels (header: clock_text.h).
 * Flow: rules/volatile_scan.c -> lar_clock_try at each number; canon_evidence.c decides which span moves.
 * Pure; no memory; never blocks. One pass that stops at digits only; each attempt is bounded, and the budget bounds
 * all of them.
 * Invariants: 1. spans are in order and apart from each other. 2. a span never holds a line end.
 * 3. borders are borders of characters. Why by hand: a regular expression over every prompt costs
 * more than the whole request otherwise does. */
#include "policies/rules/clock_text.h"
#include "policies/rules/scan_stop.h"
#include "policies/rules/scan_text.h"
#include "policies/rules/volatile_keys.h"

enum { LABEL_MAX = 64, DATE_LABEL_MAX = 24, DIGITS_RUN_MAX = 20 };

/* -- one candidate -------------------------------------------------------------------------------- */

/* Between a date and its time: T, blanks, commas, a weekday, "at", a dash. `e` itself if nothing stands there. */
static size_t to_time(lar_slice t, size_t e) {
    if (e + 1 < t.len && (t.ptr[e] == 'T' || t.ptr[e] == 't' || t.ptr[e] == '_') && t.ptr[e + 1] >= '0' &&
        t.ptr[e + 1] <= '9')
        return e + 1;
    size_t i = lar_clock_skip_weekday(t, e);
    for (int turn = 0; turn < 4; turn++) {
        i = lar_clock_skip_blanks(t, i);
        if (lar_scan_at_text(t, i, ",") || lar_scan_at_text(t, i, "-") || lar_scan_at_text(t, i, "|")) i += 1;
        else if (lar_scan_at_text(t, i, "at ")) i += 3;
        else if (lar_scan_at_text(t, i, "，") || lar_scan_at_text(t, i, "—") || lar_scan_at_text(t, i, "–")) i += 3;
        else break;
    }
    return i;
}

/* The year of "Wed Apr  9 15:15:42 CST 2031". */
static size_t year_at_end(lar_slice t, size_t e, lar_clock_stamp *s) {
    size_t b = lar_clock_skip_blanks(t, e);
    int64_t year = 0;
    for (size_t k = 0; k < 4; k++) {
        if (b + k >= t.len || t.ptr[b + k] < '0' || t.ptr[b + k] > '9') return e;
        year = year * 10 + (t.ptr[b + k] - '0');
    }
    if (b == e || year < 1970 || year > 2999) return e;
    s->year = year;
    return b + 4;
}

static size_t date_then_time(lar_slice t, size_t start, lar_clock_span *span) {
    lar_clock_stamp s = {0};
    size_t e = lar_clock_read_date(t, start, &s);
    if (!e) return 0;
    lar_clock_stamp with = s;
    size_t b = to_time(t, e), z = lar_clock_read_time(t, b, &with);
    if (z && (b != e || (unsigned char)t.ptr[e - 1] >= 0x80)) { /* 日 needs no blank before the time */
        span->class_id = LAR_CLOCK_DATETIME;
        span->stamp = with;
        z = lar_clock_read_zone(t, z, &span->stamp);
        return span->stamp.year ? z : year_at_end(t, z, &span->stamp);
    }
    if (!s.year) return 0;
    span->class_id = LAR_CLOCK_DATE;
    span->stamp = s;
    return e;
}

static size_t time_then_date(lar_slice t, size_t start, lar_clock_span *span) {
    lar_clock_stamp s = {0};
    size_t e = lar_clock_read_time(t, start, &s);
    if (!e) return 0;
    size_t z = lar_clock_read_zone(t, e, &s);
    span->class_id = LAR_CLOCK_TIME;
    span->stamp = s;
    size_t b = to_time(t, z);
    if (lar_scan_at_text(t, b, "on ")) b += 3;
    if (b == z) return z;
    size_t d = lar_clock_read_date(t, b, &s);
    if (!d || !s.year) return z;
    span->class_id = LAR_CLOCK_DATETIME;
    span->stamp = s;
    return d;
}

static bool digits(lar_slice t, size_t i, int count, int64_t *value) {
    *value = 0;
    for (int k = 0; k < count; k++) {
        if (i + (size_t)k >= t.len || t.ptr[i + (size_t)k] < '0' || t.ptr[i + (size_t)k] > '9') return false;
        *value = *value * 10 + (t.ptr[i + (size_t)k] - '0');
    }
    return true;
}

/* 20310409T151542Z */
static size_t basic_iso(lar_slice t, size_t i, lar_clock_span *span) {
    lar_clock_stamp s = {.has_date = true, .has_time = true, .has_seconds = true};
    if (!digits(t, i, 4, &s.year) || !digits(t, i + 4, 2, &s.month) || !digits(t, i + 6, 2, &s.day) ||
        !lar_scan_at_text(t, i + 8, "T"))
        return 0;
    if (!digits(t, i + 9, 2, &s.hour) || !digits(t, i + 11, 2, &s.minute) || !digits(t, i + 13, 2, &s.second)) return 0;
    if (s.year < 1970 || s.year > 2999 || s.month < 1 || s.month > 12 || s.day < 1 || s.day > 31 || s.hour > 24 ||
        s.minute > 59)
        return 0;
    span->class_id = LAR_CLOCK_DATETIME;
    span->stamp = s;
    return lar_clock_read_zone(t, i + 15, &span->stamp);
}

/* Behind a key name and a sign: ts=1933398942, "timestamp": 1933398942118, now_ms, 时间戳：1933398942. */
static bool epoch_key(lar_slice t, size_t i) {
    static const char *const names[] = {"ts",          "timestamp",   "time",   "epoch",     "now",
                                        "unix",        "时间戳",      "時間戳", "unixtime",  "millis",
                                        "generatedat", "requestedat", "sentat", "startedat", "updatedat"};
    static const char *const units[] = {"", "ms", "s", "us", "ns", "millis", "sec", "seconds", "milliseconds", "utc"};
    lar_key_front f;
    if (!lar_key_read(t, i, 0, &f) || !(f.sign || f.copula)) return false;
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        size_t n = strlen(units[u]);
        if (!lar_key_preceded(&f, 0, units[u])) continue;
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            if (lar_key_preceded(&f, n, names[k])) return true;
        }
    }
    return false;
}

static size_t epoch(lar_slice t, size_t i, lar_clock_span *span) {
    size_t n = 0;
    while (i + n < t.len && n < DIGITS_RUN_MAX && t.ptr[i + n] >= '0' && t.ptr[i + n] <= '9') n++;
    if ((n != 10 && n != 13 && n != 16) || !epoch_key(t, i)) return 0;
    int64_t v;
    (void)digits(t, i, (int)n, &v);
    int64_t ms = n == 10 ? v * 1000 : n == 13 ? v : v / 1000;
    if (ms < 1000000000000 || ms > 32503680000000) return 0;
    size_t e = i + n;
    if (e + 1 < t.len && t.ptr[e] == '.' && t.ptr[e + 1] >= '0' && t.ptr[e + 1] <= '9') {
        e++;
        while (e < t.len && t.ptr[e] >= '0' && t.ptr[e] <= '9') e++;
    }
    span->class_id = LAR_CLOCK_EPOCH;
    span->stamp = (lar_clock_stamp){.epoch_ms = ms};
    return e;
}

/* Part of a longer word: a model's name, a version, a path, a phone number. */
static bool glued_left(lar_slice t, size_t i) {
    if (i == 0) return false;
    char c = t.ptr[i - 1];
    if (lar_scan_is_alnum(c) || c == '_' || c == '/' || c == '\\' || c == '@' || c == '+' || c == '%' || c == '#')
        return true;
    return (c == '-' || c == '.' || c == ':') && i >= 2 &&
           (lar_scan_is_alnum(t.ptr[i - 2]) && (c != ':' || !lar_scan_is_letter(t.ptr[i - 2])));
}
static bool glued_right(lar_slice t, size_t e) {
    if (e >= t.len) return false;
    char c = t.ptr[e];
    if (lar_scan_is_alnum(c) || c == '_' || c == '%') return true;
    return (c == '-' || c == '.' || c == ':' || c == '/') && e + 1 < t.len && lar_scan_is_alnum(t.ptr[e + 1]);
}

/* Whether a number of that many digits, followed by byte `next`, can begin a form at all. */
static bool may_begin(size_t count, unsigned char next) {
    if (next >= 0x80 && count <= 4) return true; /* 年, 时, a full-width colon */
    if (count <= 2) return next != 0 && strchr(":-/. ,snrtapSNRTAP", next) != NULL;
    if (count == 4) return next == '-' || next == '/' || next == '.' || next == ' ';
    return count == 10 || count == 13 || count == 16 || (count == 8 && next == 'T');
}

/* Tries all forms that hold the number at i; returns the span's end, 0 if there is none. */
static size_t try_number(lar_slice t, size_t i, size_t floor, lar_clock_span *span) {
    size_t starts[2] = {lar_clock_look_back(t, i), i};
    for (int k = 0; k < 2; k++) {
        size_t start = starts[k];
        if (start < floor || (k == 1 && start == starts[0]) || glued_left(t, start)) continue;
        span->start = (uint32_t)start;
        size_t e = date_then_time(t, start, span);
        if (!e) e = time_then_date(t, start, span);
        if (!e && start == i) e = basic_iso(t, i, span);
        if (!e && start == i) e = epoch(t, i, span);
        if (e && !glued_right(t, e)) return e;
    }
    return 0;
}

/* -- label ---------------------------------------------------------------------------------------- */

/* Whether the label speaks of the present. *cut: where the slot's name begins: at a word that can only mean now,
 * so that "Setup. Current time" and "Rules: current time" are one slot; else the whole label counts, so that
 * "opening time" is not taken for "time". */
static bool key_word(const lar_scan_low_text *l, size_t *cut) {
    static const char *const strong[] = {"current", "today", "date and time", "当前", "當前", "现在",
                                         "現在",    "目前",  "今天",          "今日", "此刻"};
    static const char *const weak[] = {"time is", "date is", "时间", "時間", "日期", "时刻"};
    static const char *const last[] = {"it is", "it's", "time", "date", "datetime", "timestamp", "clock", "ts"};
    size_t best = SIZE_MAX;
    for (size_t k = 0; k < sizeof strong / sizeof *strong; k++) {
        size_t at = lar_scan_find(l, strong[k]);
        if (at < best) best = at;
    }
    size_t now = lar_scan_find(l, "now");
    if (now < best && (now == 0 || !lar_scan_is_alnum(l->bytes[now - 1])) &&
        (now + 3 == l->len || !lar_scan_is_alnum(l->bytes[now + 3])))
        best = now;
    *cut = best == SIZE_MAX ? 0 : best;
    if (best != SIZE_MAX) return true;
    for (size_t k = 0; k < sizeof weak / sizeof *weak; k++) {
        if (lar_scan_find(l, weak[k]) != SIZE_MAX) return true;
    }
    size_t e = l->len;
    while (e > 0 && !lar_scan_is_alnum(l->bytes[e - 1]) && (unsigned char)l->bytes[e - 1] < 0x80) e--;
    for (size_t k = 0; k < sizeof last / sizeof *last; k++) {
        size_t n = strlen(last[k]);
        if (e < n || memcmp(l->bytes + e - n, last[k], n) != 0) continue;
        if (e == n || (k >= 2 && !lar_scan_is_letter(l->bytes[e - n - 1]))) return true; /* "if it is 9:00" is none */
    }
    return false;
}

static void read_label(lar_slice t, lar_clock_span *s, size_t floor) {
    size_t reach = s->class_id == LAR_CLOCK_DATE ? DATE_LABEL_MAX : LABEL_MAX + 32; /* policies are full of dates */
    size_t b = lar_scan_sentence(t, lar_scan_line_before(t, s->start, reach, floor), s->start);
    lar_scan_low_text low;
    lar_scan_lower(t, b, s->start, &low);
    size_t cut;
    s->key_word = key_word(&low, &cut);
    size_t code = s->start - (s->start > b && t.ptr[s->start - 1] == '`' && s->key_word); /* **Time:** `15:15` */
    s->example = lar_scan_speaks_of_example(&low) || lar_scan_in_ticks(t, b, code) || lar_scan_in_address(t, s->start);
    b += cut;
    if (s->start - b > LABEL_MAX) b = s->start - LABEL_MAX;
    while (b < s->start && ((unsigned char)t.ptr[b] & 0xC0) == 0x80) b++;
    s->label_start = (uint32_t)b;
    s->label_end = s->start;
}

size_t lar_clock_number_end(lar_slice t, size_t i, bool *may) {
    size_t e = i, count = 0;
    int d;
    for (size_t b; (b = lar_clock_digit(t, e, &d)) != 0; e += b) count++;
    *may = count > 0 && may_begin(count, e < t.len ? (unsigned char)t.ptr[e] : 0);
    return e;
}

size_t lar_clock_try(lar_slice t, size_t i, size_t floor, lar_clock_span *s) {
    *s = (lar_clock_span){0};
    size_t e = try_number(t, i, floor, s);
    if (!e) return 0;
    s->end = (uint32_t)e;
    read_label(t, s, floor);
    return e;
}

uint32_t lar_clock_scan(lar_slice text, lar_clock_span *spans, uint32_t room, lar_clock_budget *budget) {
    lar_slice t = lar_slice_of(text.ptr, text.len < budget->bytes ? text.len : budget->bytes);
    size_t stop = t.len < text.len ? (t.len > LAR_CLOCK_CUT_MARGIN ? t.len - LAR_CLOCK_CUT_MARGIN : 0) : t.len;
    uint32_t n = 0;
    size_t i = 0, floor = 0;
    lar_stops stops;
    lar_scan_place place = {0};
    lar_stops_init(&stops, t);
    while (n < room && budget->numbers > 0 && (i = lar_stops_next(&stops, i)) < stop) {
        bool may;
        size_t end = lar_clock_number_end(t, i, &may);
        if (!may) {
            i = end > i ? end : i + 1;
            continue;
        }
        budget->numbers--;
        lar_clock_span *s = &spans[n];
        size_t e = lar_clock_try(t, i, floor, s);
        i = e ? e : end;
        if (!e) continue;
        if (lar_scan_in_example(t, s->start, &place)) s->example = true;
        bool cut = e >= t.len && t.len < text.len; /* it may go on */
        if (lar_clock_counts(s) && !cut) n++;
        floor = e;
    }
    budget->bytes -= (uint32_t)t.len;
    return n;
}

lar_hash lar_clock_slot(lar_slice text, const lar_clock_span *span) {
    char out[LABEL_MAX + 2];
    size_t k = 0;
    out[k++] = (char)span->class_id;
    for (size_t i = span->label_start; i < span->label_end && k < sizeof out; i++) {
        char c = text.ptr[i];
        if (c >= 'A' && c <= 'Z') c = (char)(c + 32);
        bool mark = c == ' ' || c == '\t' || c == '*' || c == '"' || c == '<' || c == '>' || c == '_' || c == '-' ||
                    c == ':' || c == '=';
        if (mark) c = ' ';
        if (c >= '0' && c <= '9') c = '0';
        if ((c == ' ' || c == '0') && k > 1 && out[k - 1] == c) continue;
        if (c == ' ' && k == 1) continue;
        out[k++] = c;
    }
    while (k > 1 && out[k - 1] == ' ') k--;
    return lar_hash_of(lar_slice_of(out, k));
}
