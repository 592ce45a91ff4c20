/* Reads Retry-After in all its forms (RFC 9110 10.2.3).
 * Called when an answer refuses or fails. Pure; any thread. Why by hand: strptime and timegm follow the locale or are
 * no standard, and a date from outside must not become a number by accident.
 * Not here: what is made of it (breaker.c). */
#include "gateway/health/retry_after.h"

#include <string.h>

#include "base/json.h"

enum { BODY_BYTES_MAX = 65536 };
#define WHOLE_MAX (INT64_MAX / 1000000) /* of seconds, so that nothing made of them overflows */

typedef struct reader {
    const char *at, *end;
} reader;

static bool digit(char c) { return c >= '0' && c <= '9'; }

/* Between `least` and `most` digits. */
static bool number(reader *r, uint32_t least, uint32_t most, int64_t *out) {
    uint32_t n = 0;
    *out = 0;
    for (; n < most && r->at < r->end && digit(*r->at); n++) *out = *out * 10 + (*r->at++ - '0');
    return n >= least;
}

static bool text(reader *r, const char *what) {
    size_t n = strlen(what);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, what, n) != 0) return false;
    r->at += n;
    return true;
}

/* Seconds, with an optional fraction, as milliseconds; what is beyond any sense is the largest that can be. */
static bool seconds(lar_slice s, int64_t unit_ms, int64_t *ms) {
    reader r = {s.ptr, s.ptr + s.len};
    int64_t whole = 0, scale = unit_ms;
    if (r.at == r.end || !digit(*r.at)) return false;
    for (; r.at < r.end && digit(*r.at); r.at++) {
        whole = whole * 10 + (*r.at - '0');
        if (whole > WHOLE_MAX) whole = WHOLE_MAX;
    }
    *ms = whole * unit_ms;
    if (r.at < r.end && *r.at == '.') {
        r.at++;
        for (; r.at < r.end && digit(*r.at); r.at++) {
            scale /= 10;
            *ms += (*r.at - '0') * scale;
        }
    }
    return r.at == r.end;
}

/* -- dates ------------------------------------------------------------------------------------------------------- */

typedef struct date {
    int64_t year, month, day, hour, minute, second;
} date;

static bool month(reader *r, date *d) {
    static const char names[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    for (d->month = 1; d->month <= 12; d->month++)
        if (r->end - r->at >= 3 && memcmp(r->at, names + 3 * (d->month - 1), 3) == 0) {
            r->at += 3;
            return true;
        }
    return false;
}

static bool clock_time(reader *r, date *d) {
    return number(r, 2, 2, &d->hour) && text(r, ":") && number(r, 2, 2, &d->minute) && text(r, ":") &&
           number(r, 2, 2, &d->second) && d->hour < 24 && d->minute < 60 && d->second <= 60;
}

static bool weekday(reader *r) {
    static const char names[] = "SunMonTueWedThuFriSat";
    for (size_t i = 0; i + 3 <= sizeof names; i += 3)
        if (r->end - r->at >= 3 && memcmp(r->at, names + i, 3) == 0) {
            while (r->at < r->end && *r->at != ',' && *r->at != ' ') r->at++;
            return true;
        }
    return false;
}

/* Sun, 06 Nov 1994 08:49:37 GMT | Sunday, 06-Nov-94 08:49:37 GMT | Sun Nov  6 08:49:37 1994 */
static bool read_date(lar_slice s, int64_t now_year, date *d) {
    reader r = {s.ptr, s.ptr + s.len};
    if (!weekday(&r)) return false;
    if (text(&r, ", ")) {
        if (!number(&r, 2, 2, &d->day)) return false;
        bool two = text(&r, "-");
        if ((!two && !text(&r, " ")) || !month(&r, d) || !text(&r, two ? "-" : " ")) return false;
        if (!number(&r, two ? 2 : 4, two ? 2 : 4, &d->year) || !text(&r, " ") || !clock_time(&r, d)) return false;
        /* more than 50 years ahead is the century before (RFC 9110 5.6.7) */
        if (two) d->year += now_year / 100 * 100;
        if (two && d->year > now_year + 50) d->year -= 100;
        if (!text(&r, " GMT")) return false;
    } else {
        if (!text(&r, " ") || !month(&r, d) || !text(&r, " ")) return false;
        (void)text(&r, " ");
        if (!number(&r, 1, 2, &d->day) || !text(&r, " ") || !clock_time(&r, d)) return false;
        if (!text(&r, " ") || !number(&r, 4, 4, &d->year)) return false;
    }
    return r.at == r.end && d->day >= 1 && d->day <= 31;
}

/* Days since 1970-01-01 of the proleptic Gregorian calendar: years begin in March, so that the leap day is the last. */
static int64_t days(int64_t year, int64_t month_number, int64_t day) {
    int64_t y = month_number <= 2 ? year - 1 : year, m = (month_number + 9) % 12;
    return y * 365 + y / 4 - y / 100 + y / 400 + (m * 153 + 2) / 5 + day - 1 - 719468;
}

static int64_t date_ms(const date *d) {
    return ((days(d->year, d->month, d->day) * 24 + d->hour) * 60 + d->minute) * 60000 + d->second * 1000;
}

static bool wait_of(lar_slice value, int64_t now_ms, int64_t *ms) {
    date d;
    if (seconds(value, 1000, ms)) return true;
    if (!read_date(value, 1970 + now_ms / 31556952000, &d)) return false;
    *ms = date_ms(&d) - now_ms;
    if (*ms < 0) *ms = 0;
    return true;
}

/* -- where it stands ----------------------------------------------------------------------------------------------- */

typedef enum form { FORM_MS, FORM_SECONDS_OR_DATE } form;

/* The field, if it is there once, or several times with one value. */
static bool from_field(const lar_http1_head *h, const char *name, form f, int64_t now_ms, int64_t *ms) {
    lar_slice value = lar_http1_get(h, name);
    for (uint32_t i = 0; i < h->field_count; i++)
        if (lar_slice_ieq(h->fields[i].name, lar_slice_cstr(name)) && !lar_slice_eq(h->fields[i].value, value))
            return false;
    return value.len && (f == FORM_MS ? seconds(value, 1, ms) : wait_of(value, now_ms, ms));
}

static bool from_body(lar_slice body, int64_t now_ms, int64_t *ms) {
    lar_json json;
    lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
    bool found = false;
    if (!body.len || body.len > BODY_BYTES_MAX) return false;
    lar_json_init(&json);
    if (lar_json_parse(&json, body, &limits, NULL) == LAR_OK && lar_json_is(&json, 0, LAR_JSON_OBJECT)) {
        uint32_t error = lar_json_get(&json, 0, "error");
        uint32_t node = lar_json_get(&json, 0, "retry_after");
        if (lar_json_is(&json, error, LAR_JSON_OBJECT) && !lar_json_is(&json, node, LAR_JSON_NUMBER))
            node = lar_json_get(&json, error, "retry_after");
        if (lar_json_is(&json, node, LAR_JSON_NUMBER)) found = wait_of(lar_json_raw(&json, node), now_ms, ms);
    }
    lar_json_release(&json);
    return found;
}

bool lar_retry_after(const lar_http1_head *h, lar_slice body, int64_t now_ms, uint32_t ms_max, uint32_t *ms) {
    int64_t wait = 0;
    bool found = from_field(h, "retry-after-ms", FORM_MS, now_ms, &wait) ||
                 from_field(h, "retry-after", FORM_SECONDS_OR_DATE, now_ms, &wait) || from_body(body, now_ms, &wait);
    if (found) *ms = wait > ms_max ? ms_max : (uint32_t)wait;
    return found;
}
