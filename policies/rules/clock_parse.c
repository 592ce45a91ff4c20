/* The grammar of dates and times (header: clock_text.h). Forward only, no backtracking beyond one form.
 * Called by clock_scan.c; pure; no memory; never blocks.
 * Invariants: 1. nothing is read behind t.len. 2. a reader that returns 0 leaves a stamp that the caller
 * throws away. Not here: which of the clocks found may be edited. */
#include "policies/rules/clock_text.h"
#include "policies/rules/scan_text.h"

/* What may stand between the parts of one clock, so that each attempt costs little whatever the text. */
enum { BLANKS_MAX = 32, SEPARATORS_MAX = 8 };

typedef struct word {
    const char *text;
    int value;
} word;

static const word months[] = {{"january", 1},   {"february", 2},  {"march", 3},  {"april", 4},     {"may", 5},
                              {"june", 6},      {"july", 7},      {"august", 8}, {"september", 9}, {"october", 10},
                              {"november", 11}, {"december", 12}, {"jan", 1},    {"feb", 2},       {"mar", 3},
                              {"apr", 4},       {"jun", 6},       {"jul", 7},    {"aug", 8},       {"sept", 9},
                              {"sep", 9},       {"oct", 10},      {"nov", 11},   {"dec", 12}};
static const word weekdays[] = {{"monday", 1},   {"tuesday", 2}, {"wednesday", 3}, {"thursday", 4}, {"friday", 5},
                                {"saturday", 6}, {"sunday", 7},  {"mon", 1},       {"tues", 2},     {"tue", 2},
                                {"wed", 3},      {"thurs", 4},   {"thur", 4},      {"thu", 4},      {"fri", 5},
                                {"sat", 6},      {"sun", 7}};
static const char *const zone_names[] = {"UTC", "GMT", "EST",  "EDT", "CST",  "CDT",  "MST",  "MDT", "PST",
                                         "PDT", "CET", "CEST", "BST", "IST",  "JST",  "KST",  "HKT", "SGT",
                                         "MSK", "EET", "EEST", "WET", "AEST", "AEDT", "NZST", "NZDT"};
static const word halves_zh[] = {{"上午", 1}, {"早上", 1}, {"凌晨", 1}, {"中午", 2},
                                 {"下午", 2}, {"晚上", 2}, {"傍晚", 2}};

size_t lar_clock_skip_blanks(lar_slice t, size_t i) {
    for (int n = 0; n < BLANKS_MAX && i < t.len; n++) {
        if (t.ptr[i] == ' ' || t.ptr[i] == '\t') i++;
        else if (lar_scan_at_text(t, i, "\xC2\xA0")) i += 2;     /* no-break space */
        else if (lar_scan_at_text(t, i, "\xE2\x80\xAF")) i += 3; /* narrow no-break space, before PM in newer locales */
        else if (lar_scan_at_text(t, i, "\xE3\x80\x80")) i += 3; /* ideographic space */
        else break;
    }
    return i;
}

size_t lar_clock_digit(lar_slice t, size_t i, int *value) {
    if (i >= t.len) return 0;
    unsigned char c = (unsigned char)t.ptr[i];
    if (c >= '0' && c <= '9') {
        *value = c - '0';
        return 1;
    }
    if (c != 0xEF || t.len - i < 3 || (unsigned char)t.ptr[i + 1] != 0xBC) return 0;
    unsigned char d = (unsigned char)t.ptr[i + 2];
    if (d < 0x90 || d > 0x99) return 0;
    *value = d - 0x90;
    return 3;
}

/* At most `most` digits, then no further digit; *digits says how many. Returns the end, 0 if it does not fit. */
static size_t number(lar_slice t, size_t i, int most, int64_t *value, int *digits) {
    int d;
    size_t n;
    *value = 0;
    *digits = 0;
    while ((n = lar_clock_digit(t, i, &d)) != 0) {
        if (*digits == most) return 0;
        *value = *value * 10 + d;
        (*digits)++;
        i += n;
    }
    return *digits ? i : 0;
}

static size_t two_digits(lar_slice t, size_t i, int64_t *value, int64_t max) {
    int digits;
    size_t e = number(t, i, 2, value, &digits);
    return e && digits == 2 && *value <= max ? e : 0;
}

/* A name from a table, any case, not a part of a longer word. */
static size_t name(lar_slice t, size_t i, const word *words, size_t count, int *value) {
    size_t n = 0;
    while (i + n < t.len && n < 12 && lar_scan_is_letter(t.ptr[i + n])) n++;
    if (n < 3) return 0;
    char first = t.ptr[i] | 32;
    for (size_t w = 0; w < count; w++) {
        if (words[w].text[0] != first || !lar_slice_ieq(lar_slice_of(t.ptr + i, n), lar_slice_cstr(words[w].text)))
            continue;
        *value = words[w].value;
        return i + n;
    }
    return 0;
}
#define NAME(t, i, table, value) name((t), (i), (table), sizeof(table) / sizeof *(table), (value))

/* 星期三, 周三, 礼拜三 at i. */
static size_t weekday_zh(lar_slice t, size_t i) {
    static const char *const heads[] = {"星期", "礼拜", "周", "週"};
    static const char *const days[] = {"一", "二", "三", "四", "五", "六", "日", "天"};
    for (size_t h = 0; h < 4; h++) {
        if (!lar_scan_at_text(t, i, heads[h])) continue;
        for (size_t d = 0; d < 8; d++) {
            if (lar_scan_at_text(t, i + strlen(heads[h]), days[d])) return i + strlen(heads[h]) + 3;
        }
    }
    return 0;
}

static size_t skip_separators(lar_slice t, size_t i) {
    for (int n = 0; n < SEPARATORS_MAX; n++) {
        size_t b = lar_clock_skip_blanks(t, i);
        if (lar_scan_at(t, b, ',')) b++;
        else if (lar_scan_at_text(t, b, "，")) b += 3;
        if (b == i) break;
        i = b;
    }
    return i;
}

size_t lar_clock_skip_weekday(lar_slice t, size_t i) {
    size_t b = skip_separators(t, i), e;
    bool ascii = lar_scan_at(t, b, '('), wide = lar_scan_at_text(t, b, "（");
    size_t w = b + (ascii ? 1 : wide ? 3 : 0);
    int v;
    e = weekday_zh(t, w);
    if (!e) e = NAME(t, w, weekdays, &v);
    if (!e) return i;
    if (ascii) return lar_scan_at(t, e, ')') ? e + 1 : i;
    if (wide) return lar_scan_at_text(t, e, "）") ? e + 3 : i;
    return lar_scan_at(t, e, '.') ? e + 1 : e;
}

static bool date_ok(lar_clock_stamp *s) {
    s->has_date = true;
    return s->year >= 1970 && s->year <= 2999 && s->month >= 1 && s->month <= 12 && s->day >= 1 && s->day <= 31;
}

static size_t date_zh(lar_slice t, size_t i, lar_clock_stamp *s) {
    int digits;
    i = lar_clock_skip_blanks(t, i);
    if (!lar_scan_at_text(t, i, "年")) return 0;
    i = number(t, lar_clock_skip_blanks(t, i + 3), 2, &s->month, &digits);
    if (!i) return 0;
    i = lar_clock_skip_blanks(t, i);
    if (!lar_scan_at_text(t, i, "月")) return 0;
    i = number(t, lar_clock_skip_blanks(t, i + 3), 2, &s->day, &digits);
    if (!i) return 0;
    i = lar_clock_skip_blanks(t, i);
    if (!lar_scan_at_text(t, i, "日") && !lar_scan_at_text(t, i, "号") && !lar_scan_at_text(t, i, "號")) return 0;
    return date_ok(s) ? i + 3 : 0;
}

static size_t date_year_first(lar_slice t, size_t i, lar_clock_stamp *s) {
    int digits;
    if (i < t.len && (t.ptr[i] == '-' || t.ptr[i] == '/' || t.ptr[i] == '.')) {
        char sep = t.ptr[i];
        i = number(t, i + 1, 2, &s->month, &digits);
        if (!i || !lar_scan_at(t, i, sep)) return 0;
        i = number(t, i + 1, 2, &s->day, &digits);
        return i && date_ok(s) ? i : 0;
    }
    return date_zh(t, i, s);
}

/* Year behind day and month; absent is allowed if `optional` (the form of date(1) has it at the end). */
static size_t year_behind(lar_slice t, size_t i, lar_clock_stamp *s) {
    int digits;
    size_t b = skip_separators(t, i);
    if (lar_scan_at(t, i, '-') || lar_scan_at(t, i, '/')) b = i + 1;
    size_t e = number(t, b, 4, &s->year, &digits);
    return e && digits == 4 && date_ok(s) ? e : 0;
}

static size_t ordinal(lar_slice t, size_t i) {
    static const char *const tails[] = {"st", "nd", "rd", "th"};
    for (size_t k = 0; k < 4; k++) {
        if (lar_scan_at_text(t, i, tails[k]) && !(i + 2 < t.len && lar_scan_is_letter(t.ptr[i + 2]))) return i + 2;
    }
    return i;
}

/* 9 April 2031, 09-Apr-2031, 9th of April 2031; 4/9/2031, 9.4.2031. i is behind the first number. */
static size_t date_day_first(lar_slice t, size_t i, lar_clock_stamp *s) {
    int digits, month;
    if (i < t.len && (t.ptr[i] == '/' || t.ptr[i] == '.' || t.ptr[i] == '-')) {
        char sep = t.ptr[i];
        size_t e = number(t, i + 1, 2, &s->month, &digits);
        if (e) {
            if (!lar_scan_at(t, e, sep)) return 0;
            e = number(t, e + 1, 4, &s->year, &digits);
            if (!e || digits != 4) return 0;
            s->day_or_month = true;
            if (s->month > 12) {
                int64_t m = s->day;
                s->day = s->month;
                s->month = m;
            }
            return date_ok(s) ? e : 0;
        }
        if (sep != '-') return 0;
        e = NAME(t, i + 1, months, &month);
        if (!e) return 0;
        s->month = month;
        return year_behind(t, e, s);
    }
    i = lar_clock_skip_blanks(t, ordinal(t, i));
    if (lar_scan_at_text(t, i, "of ")) i += 3;
    size_t e = NAME(t, i, months, &month);
    if (!e) return 0;
    s->month = month;
    if (lar_scan_at(t, e, '.')) e++;
    return year_behind(t, e, s);
}

/* April 9, 2031; Apr 09 2031; Apr  9 15:15:42 2031 (then without has_date's year: the year is 0). */
static size_t date_month_first(lar_slice t, size_t i, lar_clock_stamp *s) {
    int month, digits;
    size_t e = NAME(t, i, months, &month);
    if (!e) return 0;
    s->month = month;
    if (lar_scan_at(t, e, '.')) e++;
    size_t b = lar_clock_skip_blanks(t, e);
    if (b == e) return 0;
    e = number(t, b, 2, &s->day, &digits);
    if (!e) return 0;
    e = ordinal(t, e);
    size_t y = year_behind(t, e, s);
    if (y) return y;
    s->year = 0;
    s->has_date = true;
    return s->day >= 1 && s->day <= 31 ? e : 0;
}

size_t lar_clock_read_date(lar_slice t, size_t i, lar_clock_stamp *s) {
    size_t w = lar_clock_skip_weekday(t, i);
    if (w != i) i = skip_separators(t, w);
    int digits;
    int64_t first;
    if (i < t.len && lar_scan_is_letter(t.ptr[i])) return date_month_first(t, i, s);
    size_t e = number(t, i, 4, &first, &digits);
    if (!e) return 0;
    if (digits == 4) {
        s->year = first;
        return date_year_first(t, e, s);
    }
    if (digits > 2) return 0;
    s->day = first;
    return date_day_first(t, e, s);
}

static size_t read_half(lar_slice t, size_t i, lar_clock_stamp *s) {
    size_t b = lar_clock_skip_blanks(t, i);
    if (t.len - b < 2 || b >= t.len) return i;
    char c = t.ptr[b] | 32;
    if (c != 'a' && c != 'p') return i;
    size_t e = 0;
    if ((t.ptr[b + 1] | 32) == 'm') e = b + 2;
    else if (t.len - b >= 4 && t.ptr[b + 1] == '.' && (t.ptr[b + 2] | 32) == 'm' && t.ptr[b + 3] == '.') e = b + 4;
    if (!e || (e < t.len && lar_scan_is_alnum(t.ptr[e]))) return i;
    s->half = c == 'a' ? 1 : 2;
    return e;
}

static size_t skip_fraction(lar_slice t, size_t i) {
    int d;
    if (i + 1 >= t.len || (t.ptr[i] != '.' && t.ptr[i] != ',') || !lar_clock_digit(t, i + 1, &d)) return i;
    size_t e = i + 1, n;
    int count = 0;
    while ((n = lar_clock_digit(t, e, &d)) != 0) e += n, count++;
    return count <= 9 ? e : i;
}

static size_t time_zh(lar_slice t, size_t i, lar_clock_stamp *s) {
    int digits;
    size_t e = i, b = lar_clock_skip_blanks(t, i);
    if (lar_scan_at_text(t, b, "半")) {
        s->minute = 30;
        return b + 3;
    }
    int64_t v;
    size_t m = number(t, b, 2, &v, &digits);
    if (!m || v > 59 || !lar_scan_at_text(t, lar_clock_skip_blanks(t, m), "分")) return e;
    s->minute = v;
    e = lar_clock_skip_blanks(t, m) + 3;
    b = lar_clock_skip_blanks(t, e);
    m = number(t, b, 2, &v, &digits);
    if (!m || v > 60) return e;
    m = skip_fraction(t, m);
    if (!lar_scan_at_text(t, lar_clock_skip_blanks(t, m), "秒")) return e;
    s->second = v;
    s->has_seconds = true;
    return lar_clock_skip_blanks(t, m) + 3;
}

static size_t colon(lar_slice t, size_t i) {
    return lar_scan_at(t, i, ':') ? i + 1 : lar_scan_at_text(t, i, "：") ? i + 3 : 0;
}

size_t lar_clock_read_time(lar_slice t, size_t i, lar_clock_stamp *s) {
    for (size_t h = 0; h < sizeof halves_zh / sizeof *halves_zh; h++) {
        if (!lar_scan_at_text(t, i, halves_zh[h].text)) continue;
        s->half = (uint8_t)halves_zh[h].value;
        i = lar_clock_skip_blanks(t, i + 6);
        break;
    }
    int digits;
    size_t e = number(t, i, 2, &s->hour, &digits);
    if (!e || s->hour > 24) return 0;
    s->has_time = true;
    size_t c = colon(t, e);
    if (!c) {
        size_t b = lar_clock_skip_blanks(t, e);
        bool hour = lar_scan_at_text(t, b, "时") || lar_scan_at_text(t, b, "時") || lar_scan_at_text(t, b, "点") ||
                    lar_scan_at_text(t, b, "點");
        if (hour) return time_zh(t, b + 3, s);
        size_t half = read_half(t, e, s); /* "3 PM" */
        return half != e ? half : 0;
    }
    e = two_digits(t, c, &s->minute, 59);
    if (!e) return 0;
    c = colon(t, e);
    if (c) {
        e = two_digits(t, c, &s->second, 60);
        if (!e) return 0;
        s->has_seconds = true;
        e = skip_fraction(t, e);
    }
    return read_half(t, e, s);
}

/* +08:00, +0800, +8 at i. */
static size_t offset(lar_slice t, size_t i, lar_clock_stamp *s) {
    if (i >= t.len) return 0;
    bool minus = t.ptr[i] == '-' || lar_scan_at_text(t, i, "\xE2\x88\x92");
    if (!minus && t.ptr[i] != '+') return 0;
    size_t b = i + (t.ptr[i] == '-' || t.ptr[i] == '+' ? 1 : 3);
    int digits, more;
    int64_t v, m = 0;
    size_t e = number(t, b, 4, &v, &digits);
    if (!e || digits == 3) return 0;
    if (digits == 4) {
        m = v % 100;
        v /= 100;
    } else if (lar_scan_at(t, e, ':')) {
        e = number(t, e + 1, 2, &m, &more);
        if (!e || more != 2) return 0;
    }
    if (v > 14 || m > 59) return 0;
    s->offset_minutes = (int32_t)(minus ? -(v * 60 + m) : v * 60 + m);
    s->zone = LAR_ZONE_OFFSET;
    return e;
}

/* " (China Standard Time)" behind an offset. */
static size_t zone_comment(lar_slice t, size_t i) {
    size_t b = lar_clock_skip_blanks(t, i);
    if (b == i || !lar_scan_at(t, b, '(')) return i;
    for (size_t e = b + 1; e < t.len && e - b < 64; e++) {
        char c = t.ptr[e];
        if (c == ')') return e + 1;
        if (!lar_scan_is_letter(c) && c != ' ' && (unsigned char)c < 0x80 && c != '.' && c != '\'' && c != '-') break;
    }
    return i;
}

/* A zone by the name of its place behind what was read: Asia/Shanghai, [Europe/Berlin], (北京时间), Pacific Time. */
static size_t zone_place(lar_slice t, size_t i, lar_clock_stamp *s) {
    static const char *const regions[] = {"Africa/", "America/", "Asia/",    "Atlantic/", "Australia/",
                                          "Europe/", "Indian/",  "Pacific/", "Etc/",      "US/"};
    static const char *const names[] = {"北京时间",     "北京時間",     "中国标准时间", "东八区",
                                        "台北时间",     "台北時間",     "上海时间",     "Beijing Time",
                                        "Pacific Time", "Eastern Time", "Central Time", "Mountain Time",
                                        "Beijing time", "local time",   "当地时间",     "China Standard Time"};
    size_t b = lar_clock_skip_blanks(t, i), e = 0;
    char open = lar_scan_at(t, b, '(') ? ')' : lar_scan_at(t, b, '[') ? ']' : 0;
    bool wide = lar_scan_at_text(t, b, "（");
    b += wide ? 3 : open ? 1 : 0;
    for (size_t k = 0; k < sizeof regions / sizeof *regions && !e; k++) {
        if (!lar_scan_at_text(t, b, regions[k])) continue;
        size_t n = b + strlen(regions[k]);
        e = n;
        while (e < t.len && e - n < 40 && (lar_scan_is_letter(t.ptr[e]) || lar_scan_among(t.ptr[e], "_/-+"))) e++;
        if (e == n) return i;
    }
    for (size_t k = 0; k < sizeof names / sizeof *names && !e; k++) {
        if (lar_scan_at_text(t, b, names[k])) e = b + strlen(names[k]);
    }
    if (!e || (wide && !lar_scan_at_text(t, e, "）")) || (open && !lar_scan_at(t, e, open))) return i;
    if (s->zone == LAR_ZONE_NONE) s->zone = LAR_ZONE_NAMED;
    return e + (wide ? 3 : open ? 1 : 0);
}

static size_t read_zone_code(lar_slice t, size_t i, lar_clock_stamp *s) {
    size_t b = lar_clock_skip_blanks(t, i);
    bool letter_ends = b + 1 >= t.len || !lar_scan_is_alnum(t.ptr[b + 1]);
    if (lar_scan_at(t, b, 'Z') && letter_ends) {
        s->zone = LAR_ZONE_OFFSET;
        return b + 1;
    }
    size_t e = offset(t, b, s);
    if (e && !(b > i && e - b < 5)) return zone_comment(t, e);
    s->zone = LAR_ZONE_NONE;
    for (size_t z = 0; z < sizeof zone_names / sizeof *zone_names; z++) {
        size_t n = strlen(zone_names[z]);
        if (!lar_scan_at_text(t, b, zone_names[z]) || (b + n < t.len && lar_scan_is_alnum(t.ptr[b + n]))) continue;
        if (z > 1) {
            s->zone = LAR_ZONE_NAMED;
            return b + n;
        }
        s->zone = LAR_ZONE_OFFSET; /* UTC, GMT, with or without an offset */
        e = offset(t, b + n, s);
        return zone_comment(t, e ? e : b + n);
    }
    return i;
}

size_t lar_clock_read_zone(lar_slice t, size_t i, lar_clock_stamp *s) {
    return zone_place(t, read_zone_code(t, i, s), s);
}

static size_t separators_before(lar_slice t, size_t i) {
    for (int n = 0; n < SEPARATORS_MAX && i > 0; n++) {
        char c = t.ptr[i - 1];
        if (c == ' ' || c == ',') i--;
        else if (i >= 3 && memcmp(t.ptr + i - 3, "，", 3) == 0) i -= 3;
        else break;
    }
    return i;
}

static size_t name_before(lar_slice t, size_t e, const word *words, size_t count) {
    size_t b = e, v = e;
    if (b > 0 && t.ptr[b - 1] == '.') b--, v--;
    while (b > 0 && v - b < 12 && lar_scan_is_letter(t.ptr[b - 1])) b--;
    int value;
    return v >= b + 3 && name(t, b, words, count, &value) == v && (b == 0 || !lar_scan_is_alnum(t.ptr[b - 1])) ? b : e;
}

size_t lar_clock_look_back(lar_slice t, size_t i) {
    for (size_t h = 0; h < sizeof halves_zh / sizeof *halves_zh; h++) {
        if (i >= 6 && lar_scan_at_text(t, i - 6, halves_zh[h].text)) return i - 6;
    }
    size_t at = i, e = separators_before(t, i);
    if (i - e > 4) return i;
    size_t b = name_before(t, e, months, sizeof months / sizeof *months);
    if (b != e && e != i) {
        at = b;
        e = separators_before(t, b);
    }
    b = name_before(t, e, weekdays, sizeof weekdays / sizeof *weekdays);
    if (b != e && e != at) return b;
    for (size_t n = 6; n <= 9 && n <= e; n += 3) {
        if (weekday_zh(t, e - n) == e) return e - n;
    }
    return at;
}

/* -- the present ---------------------------------------------------------------------------------- */

/* Days since 1970-01-01 of a date of the proleptic Gregorian calendar (Howard Hinnant's days_from_civil). */
static int64_t days_of(int64_t y, int64_t m, int64_t d) {
    y -= m <= 2;
    int64_t era = y / 400, yoe = y - era * 400;
    int64_t doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

/* A clock is written before its request comes in, and may be kept for minutes; only the skew of two clocks puts it
 * ahead. What lies further ahead is a time to come: of a meeting, of an expiry. */
static bool is_now(int64_t written, int64_t now) { return written >= now - 600 && written <= now + 120; }

static bool shows_seconds(const lar_clock_stamp *s, int64_t written, int64_t now) {
    if (s->zone == LAR_ZONE_OFFSET) return is_now(written - (int64_t)s->offset_minutes * 60, now);
    int64_t diff = written - now;
    if (diff < -12 * 3600 - 150 || diff > 14 * 3600 + 150) return false;
    int64_t rest = ((diff % 900) + 900) % 900;
    return rest <= 120 || rest >= 900 - (s->has_seconds ? 120 : 150);
}

bool lar_clock_shows(const lar_clock_stamp *s, int64_t now_ms) {
    int64_t now = now_ms / 1000;
    if (s->epoch_ms) return is_now(s->epoch_ms / 1000, now);
    if (!s->has_date || !s->has_time || s->year == 0) return false;
    int64_t hour = s->hour % 24;
    if (s->half == 1 && hour == 12) hour = 0;
    if (s->half == 2 && hour < 12) hour += 12;
    int64_t clock = hour * 3600 + s->minute * 60 + s->second;
    if (shows_seconds(s, days_of(s->year, s->month, s->day) * 86400 + clock, now)) return true;
    return s->day_or_month && s->day <= 12 && shows_seconds(s, days_of(s->year, s->day, s->month) * 86400 + clock, now);
}
