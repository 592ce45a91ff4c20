/* Clocks in text: the grammar of dates and times, and the search for candidates.
 *
 * Forms: ISO 8601 and its relatives (2031-04-09T15:15:42.118+08:00, 2031/04/09 15:15, 20310409T151542Z),
 * day or month first with slashes or dots, English long forms (Wednesday, April 9, 2031, 3:15 PM; Wed Apr
 * 09 2031 15:15:42 GMT+0800 (China Standard Time); Wed, 09 Apr 2031 15:15:42 +0800), Chinese ones
 * (2031年4月9日 星期三 下午3点15分), full-width digits and colons, a time alone behind a key word, a Unix time
 * behind a key name. A date alone is
 * reported as LAR_CLOCK_DATE, behind a key word only, and never edited. */
#ifndef LARDER_POLICIES_RULES_CLOCK_TEXT_H
#define LARDER_POLICIES_RULES_CLOCK_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/slice.h"

typedef enum lar_clock_class {
    LAR_CLOCK_NONE,
    LAR_CLOCK_DATETIME,
    LAR_CLOCK_TIME,
    LAR_CLOCK_EPOCH,
    LAR_CLOCK_DATE
} lar_clock_class;

typedef enum lar_clock_zone { LAR_ZONE_NONE, LAR_ZONE_NAMED, LAR_ZONE_OFFSET } lar_clock_zone;

/* What was read. Fields not written are 0; `day_or_month`: day and month may be the other way round. */
typedef struct lar_clock_stamp {
    int64_t year, month, day, hour, minute, second;
    int64_t epoch_ms;       /* EPOCH only */
    int32_t offset_minutes; /* LAR_ZONE_OFFSET only */
    lar_clock_zone zone;
    bool has_date, has_time, has_seconds, day_or_month;
    uint8_t half; /* 0 as written, 1 AM, 2 PM */
} lar_clock_stamp;

/* Each reads at byte i of t and returns the offset behind what it read, or 0 if nothing fits there. */
size_t lar_clock_read_date(lar_slice t, size_t i, lar_clock_stamp *s);
size_t lar_clock_read_time(lar_slice t, size_t i, lar_clock_stamp *s);
/* Zone behind a time (may be absent: returns i). */
size_t lar_clock_read_zone(lar_slice t, size_t i, lar_clock_stamp *s);
/* A digit, ASCII or full-width: its bytes, 0 if none. */
size_t lar_clock_digit(lar_slice t, size_t i, int *value);
/* Where a month's name, a weekday or a half of the day begins that ends right before i; i if none. */
size_t lar_clock_look_back(lar_slice t, size_t i);
/* Behind an optional weekday and the separators around it. */
size_t lar_clock_skip_weekday(lar_slice t, size_t i);
size_t lar_clock_skip_blanks(lar_slice t, size_t i);

/* True if the stamp may show `now_ms` (UTC): from 10 minutes before it to 2 after it where the zone is written; else
 * within 2 minutes at some quarter-hour offset from -12 to +14 hours. */
bool lar_clock_shows(const lar_clock_stamp *s, int64_t now_ms);

typedef struct lar_clock_span {
    uint32_t start, end;             /* of the value */
    uint32_t label_start, label_end; /* the words in front of it, on the same line; may be empty */
    lar_clock_class class_id;
    bool key_word; /* the label says that this is the present: "current time", 当前时间 */
    bool example;  /* in a code fence, behind "e.g.", a format or a cut-off: never edited */
    lar_clock_stamp stamp;
} lar_clock_span;

/* How much may still be read: what is looked at is taken off. One for all texts of a request, so that no text can hold
 * its thread for long. */
typedef struct lar_clock_budget {
    uint32_t bytes;   /* of text */
    uint32_t numbers; /* that could begin a clock */
} lar_clock_budget;

/* CUT_MARGIN: where a text is cut by the budget, no value begins in the last bytes before the cut. */
enum { LAR_CLOCK_BYTES_MAX = 1024 * 1024, LAR_CLOCK_NUMBERS_MAX = 16 * 1024, LAR_CLOCK_CUT_MARGIN = 256 };
#define LAR_CLOCK_BUDGET ((lar_clock_budget){LAR_CLOCK_BYTES_MAX, LAR_CLOCK_NUMBERS_MAX})

/* Candidates in order; at most `room`. Returns how many. Stops where the budget ends, and never takes what may go on
 * behind that place. */
uint32_t lar_clock_scan(lar_slice text, lar_clock_span *spans, uint32_t room, lar_clock_budget *budget);
/* The digits at i: the offset behind them; *may: a form can begin with them. */
size_t lar_clock_number_end(lar_slice t, size_t i, bool *may);
/* The clock that holds the number at i and begins at or behind floor, with its label; the offset behind it, or 0. */
size_t lar_clock_try(lar_slice t, size_t i, size_t floor, lar_clock_span *s);
/* A time or a date alone is content unless its label says otherwise. */
static inline bool lar_clock_counts(const lar_clock_span *s) {
    return s->key_word || (s->class_id != LAR_CLOCK_TIME && s->class_id != LAR_CLOCK_DATE);
}
/* Which slot a span fills: its class and its label, digits and case aside. */
lar_hash lar_clock_slot(lar_slice text, const lar_clock_span *span);

#endif
