/* The scan for all classes of volatile text (header: volatile_text.h).
 * Flow: canon and the linter -> lar_volatile_scan -> rules/volatile_keys.c (the words in front), volatile_value.c and
 * volatile_number.c (the value), clock_scan.c (clocks).
 * Pure; no memory; never blocks. One pass that stops at digits, signs and slashes only; each stop is bounded, and the
 * budget bounds all of them.
 * Invariants: 1. spans are in order and apart from each other. 2. a span never holds a line end. 3. borders are borders
 * of characters. 4. what is found in a text does not depend on the lines behind it. */
#include "policies/rules/scan_stop.h"
#include "policies/rules/scan_text.h"
#include "policies/rules/volatile_value.h"

enum {
    ROOTS = 4,
    ROOT_BYTES = 8,
    AGAIN_MAX = 8,
    GAP_MAX = 16,
    MISSES_PER_NUMBER = 8,
    EXAMPLE_REACH = 96,
    TICKS_REACH = 768
};

typedef struct scan {
    lar_slice t;
    size_t floor;           /* end of the last value */
    size_t tried;           /* where a value was looked for last; SIZE_MAX at first */
    size_t word, word_upto; /* the word at the last digit: where it begins, and how far it was seen to go */
    uint32_t misses;
    uint32_t again;         /* paths that were found once more */
    lar_slice roots[ROOTS]; /* paths that were found, the newest first */
    lar_clock_budget *budget;
    lar_scan_place place;
} scan;

static lar_volatile_class class_of(lar_clock_class c) {
    switch (c) {
    case LAR_CLOCK_DATETIME: return LAR_VOLATILE_DATETIME;
    case LAR_CLOCK_TIME: return LAR_VOLATILE_TIME;
    case LAR_CLOCK_EPOCH: return LAR_VOLATILE_EPOCH;
    default: return LAR_VOLATILE_DATE;
    }
}

static void spend(scan *s) {
    if (s->budget->numbers > 0) s->budget->numbers--;
}

/* Work that leads to nothing is taken off the budget, too, but cheaper. */
static void missed(scan *s) {
    if (++s->misses % MISSES_PER_NUMBER == 0) spend(s);
}

/* -- what was found ------------------------------------------------------------------------------------------- */

static void finish(scan *s, lar_volatile_span *out, size_t label, size_t start, size_t end) {
    out->start = (uint32_t)start;
    out->end = (uint32_t)end;
    out->label_start = (uint32_t)label;
    out->label_end = (uint32_t)start;
    size_t line = lar_scan_line_before(s->t, start, EXAMPLE_REACH, s->floor);
    lar_scan_low_text low;
    lar_scan_lower(s->t, lar_scan_sentence(s->t, line, start), start, &low);
    bool address = out->class_id != LAR_VOLATILE_PROCESS && out->class_id != LAR_VOLATILE_PATH;
    size_t ticks = lar_scan_line_before(s->t, start, TICKS_REACH, s->floor);   /* they come in pairs */
    if (ticks == s->floor && ticks < label && s->t.ptr[ticks] == '`') ticks++; /* it closes the value before */
    out->example = lar_scan_speaks_of_example(&low) || lar_scan_in_ticks(s->t, ticks, label) ||
                   (address && lar_scan_in_address(s->t, start)) || lar_scan_in_example(s->t, start, &s->place);
    s->floor = end;
}

/* -- behind a key ------------------------------------------------------------------------------------------------ */

static bool may_follow(const lar_key_front *f, const lar_key *key) {
    if (key->needs == LAR_KEY_ANY) return true;
    if (key->needs == LAR_KEY_WHOLE && f->len != key->len) return false;
    return f->sign || f->copula || f->quote;
}

/* A clock behind the key of an id: the clock wins if it is longer. */
static bool clock_is_longer(lar_slice t, size_t value, size_t floor, size_t end) {
    lar_clock_span c;
    bool may;
    if (!lar_scan_is_digit(t.ptr[value])) return false;
    (void)lar_clock_number_end(t, value, &may);
    return may && lar_clock_try(t, value, floor, &c) >= end && c.class_id != LAR_CLOCK_DATE &&
           c.class_id != LAR_CLOCK_NONE;
}

static bool try_rows(scan *s, const lar_key_front *f, const lar_key_rows *rows, uint32_t n, lar_volatile_span *out) {
    for (uint32_t k = 0; k < n; k++) {
        const lar_key *key = rows->list[k];
        if (!may_follow(f, key)) continue;
        size_t label = lar_key_start(s->t, f, key->len, s->floor);
        *out = (lar_volatile_span){.class_id = (lar_volatile_class)key->class_id, .key_word = true};
        if (key->shape >= LAR_SHAPE_COUNT) {
            lar_number number;
            if (!lar_number_read(s->t, f, key, &number)) continue;
            out->class_id = number.class_id;
            finish(s, out, label, number.start, number.end);
            s->floor = number.behind;
            return true;
        }
        size_t e = lar_value_read(s->t, f, key);
        if (!e) continue;
        bool is_path = key->shape == LAR_SHAPE_PATH;
        if (!is_path && clock_is_longer(s->t, f->value, s->floor, e)) continue;
        finish(s, out, label, f->value, e);
        return true;
    }
    return false;
}

/* Looks for a value at i that its key stands in front of. */
static bool try_value(scan *s, size_t i, lar_volatile_span *out) {
    if (i == s->tried || i < s->floor || i >= s->t.len || s->budget->numbers == 0) return false;
    s->tried = i;
    lar_key_front f;
    lar_key_rows rows;
    uint32_t n = lar_key_find(s->t, i, s->floor, &f, &rows);
    if (n == 0) {
        missed(s);
        return false;
    }
    spend(s);
    return try_rows(s, &f, &rows, n, out);
}

/* -- stops ------------------------------------------------------------------------------------------------------- */

/* The value behind a sign at i: over blanks, quotes and marks; SIZE_MAX if nothing follows on the line. */
static size_t value_behind(lar_slice t, size_t i) {
    size_t stop = i + GAP_MAX < t.len ? i + GAP_MAX : t.len;
    while (i < stop && lar_scan_among(t.ptr[i], " \t*\"'`>(=[\\")) {
        if (t.ptr[i] == '\\' && i + 1 < t.len && t.ptr[i + 1] == '\\') break; /* of a share */
        i++;
    }
    for (size_t k = 0; k < 2 && i + 3 <= t.len && lar_scan_is_wide(t.ptr[i]); k++) {
        static const char *const open[] = {"“", "「", "‘", "（"};
        for (size_t o = 0; o < 4; o++) i += lar_scan_at_text(t, i, open[o]) ? 3 : 0;
    }
    if (i >= stop) return SIZE_MAX;
    char c = t.ptr[i];
    return lar_scan_is_alnum(c) || lar_scan_is_wide(c) || lar_scan_among(c, "/~$\\_#-?") ? i : SIZE_MAX;
}

/* What a key may end with, its marks included. */
static bool ends_key(char c) {
    switch (c) {
    case '"':
    case '\'':
    case '`':
    case '*':
    case ')':
    case ']':
    case ' ':
    case '_': return true;
    default: return lar_scan_is_letter(c) || lar_scan_is_wide(c);
    }
}

static bool at_sign(scan *s, size_t i, lar_volatile_span *out) {
    lar_slice t = s->t;
    size_t n = lar_scan_is_wide(t.ptr[i]) ? 3 : 1;
    if (i <= s->floor) return false;
    char before = t.ptr[i - 1];
    if (t.ptr[i] == '>' && before == ' ') return false;
    if (!ends_key(before) && !(t.ptr[i] == '>' && (lar_scan_is_digit(before) || before == '-'))) return false;
    if (t.ptr[i] == ':' && i + 1 < t.len && lar_scan_among(t.ptr[i + 1], "\\/") && lar_scan_is_letter(before) &&
        (i < 2 || !lar_scan_is_alnum(t.ptr[i - 2])))
        return try_value(s, i - 1, out); /* C:\ */
    size_t v = value_behind(t, i + n);
    if (v == SIZE_MAX) return false;
    if (lar_scan_at(t, v, '#')) v++;
    return try_value(s, v, out);
}

/* http://127.0.0.1:53211: the port of a program on this machine, out of the range that is given out by chance. */
static bool at_local_port(scan *s, size_t i, lar_volatile_span *out) {
    static const char *const hosts[] = {"127.0.0.1", "localhost", "0.0.0.0", "[::1]", "host.docker.internal"};
    lar_slice t = s->t;
    size_t e = i + 1;
    int64_t port = 0;
    while (e < t.len && e - i < 7 && lar_scan_is_digit(t.ptr[e])) port = port * 10 + (t.ptr[e++] - '0');
    if (port < 10000 || port > 65535 || (e < t.len && (lar_scan_is_alnum(t.ptr[e]) || t.ptr[e] == '.'))) return false;
    if (lar_scan_at(t, i + 1, '0')) return false;
    for (size_t k = 0; k < sizeof hosts / sizeof *hosts; k++) {
        size_t n = strlen(hosts[k]);
        if (i < s->floor + n || !lar_scan_behind_text(t, i, hosts[k])) continue;
        size_t b = i - n;
        if (b >= s->floor + 3 && lar_scan_behind_text(t, b, "://")) b -= 3;
        while (b > s->floor && i - b < 40 && lar_scan_is_letter(t.ptr[b - 1])) b--;
        *out = (lar_volatile_span){.class_id = LAR_VOLATILE_PROCESS, .key_word = true};
        finish(s, out, b, i + 1, e);
        return true;
    }
    return false;
}

static bool at_path(scan *s, size_t i, lar_volatile_span *out) {
    lar_slice t = s->t;
    size_t b = i > 0 && t.ptr[i - 1] == '~' ? i - 1 : i;
    if (b < s->floor) return false;
    char before = b > 0 ? t.ptr[b - 1] : '\n', next = i + 1 < t.len ? t.ptr[i + 1] : '\n'; /* a text may go on */
    if (!lar_scan_among(before, " \t\n\"'`([{=:>,|*") && !lar_scan_is_wide(before)) return false;
    if (!lar_scan_is_alnum(next) && !lar_scan_is_wide(next) && !lar_scan_among(next, "_.- \n\"'`")) return false;
    return try_value(s, b, out);
}

/* A path that is temporary by its form, whatever stands before it. */
static bool at_temporary(scan *s, size_t i, lar_volatile_span *out) {
    lar_slice t = s->t;
    size_t b = t.ptr[i] == ':' ? i - (i > 0) : i;
    if (b < s->floor || (t.ptr[i] == ':' && !(i + 1 < t.len && t.ptr[i + 1] == '\\'))) return false;
    char before = b > 0 ? t.ptr[b - 1] : ' ';
    if (lar_scan_is_alnum(before) || lar_scan_among(before, "/._-~\\%@")) return false;
    size_t e = lar_value_path(t, b, 0);
    if (e <= b + 6 || !lar_value_path_is_temporary(lar_slice_of(t.ptr + b, e - b))) return false;
    spend(s);
    size_t label = lar_scan_sentence(t, lar_scan_line_before(t, b, 40, s->floor), b);
    *out = (lar_volatile_span){.class_id = LAR_VOLATILE_PATH};
    finish(s, out, label, b, e);
    size_t line = lar_scan_line_before(t, b, EXAMPLE_REACH, 0);
    if (before != '`' && lar_scan_in_ticks(t, line, b)) out->example = true;
    return true;
}

static bool joins_word(char c) {
    switch (c) {
    case '_':
    case '-':
    case '.':
    case ',':
    case '/':
    case '@':
    case '+':
    case '$': return true;
    default: return false;
    }
}

static void remember_root(scan *s, const lar_volatile_span *span) {
    if (span->class_id != LAR_VOLATILE_PATH || !span->key_word) return;
    lar_slice path = lar_slice_of(s->t.ptr + span->start, span->end - span->start);
    while (path.len > 1 && (path.ptr[path.len - 1] == '/' || path.ptr[path.len - 1] == '\\')) path.len--;
    if (path.len < ROOT_BYTES || path.ptr[0] == '~') return;
    memmove(s->roots + 1, s->roots, (ROOTS - 1) * sizeof *s->roots);
    s->roots[0] = path;
}

/* A path that was found behind a key, again: the root of a tree of files, a file below it. */
static bool at_root_again(scan *s, size_t i, lar_volatile_span *out) {
    lar_slice t = s->t;
    size_t b = t.ptr[i] == ':' ? i - (i > 0) : i;
    if (b < s->floor || (b > 0 && lar_scan_is_alnum(t.ptr[b - 1]))) return false;
    for (size_t k = 0; k < ROOTS && s->roots[k].len && s->again < AGAIN_MAX; k++) {
        lar_slice root = s->roots[k];
        if (!lar_slice_starts(lar_slice_of(t.ptr + b, t.len - b), root)) continue;
        size_t e = lar_value_path(t, b, 0), n = b + root.len;
        if (e < n || (e > n && t.ptr[n] != '/' && t.ptr[n] != '\\')) continue;
        spend(s);
        size_t label = lar_scan_sentence(t, lar_scan_line_before(t, b, 40, s->floor), b);
        *out = (lar_volatile_span){.class_id = LAR_VOLATILE_PATH};
        finish(s, out, label, b, e);
        s->again++;
        return true;
    }
    return false;
}

/* Where the word begins that the digit at i belongs to. Goes back over each byte once. */
static size_t word_start(scan *s, size_t i) {
    size_t b = i, stop = s->floor > s->word_upto ? s->floor : s->word_upto;
    while (b > stop && (lar_scan_is_alnum(s->t.ptr[b - 1]) || joins_word(s->t.ptr[b - 1]))) b--;
    if (b == s->word_upto && b > s->floor && s->word != b) b = s->word; /* the word goes on */
    else s->word = b;
    s->word_upto = i;
    if (b < s->floor) b = s->floor;
    while (b < i && lar_scan_among(s->t.ptr[b], "-.,/@+")) b++;
    static const char *const money[] = {"¥", "￥", "€", "£"};
    bool wide = b == i && b > s->floor && lar_scan_is_wide(s->t.ptr[b - 1]);
    for (size_t k = 0; k < 4 && b == i && wide; k++) {
        if (lar_scan_behind_text(s->t, b, money[k]) && b - strlen(money[k]) >= s->floor) b -= strlen(money[k]);
    }
    return b;
}

static bool alone(scan *s, size_t b, lar_volatile_span *out) {
    lar_number n;
    if (b < s->floor || !lar_number_alone(s->t, b, &n)) return false;
    spend(s);
    size_t label = lar_scan_sentence(s->t, lar_scan_line_before(s->t, n.start, 40, s->floor), n.start);
    *out = (lar_volatile_span){.class_id = n.class_id, .key_word = true};
    finish(s, out, label, n.start, n.end);
    s->floor = n.behind;
    return true;
}

static bool at_number(scan *s, size_t i, size_t *next, lar_volatile_span *out) {
    bool may;
    *next = lar_clock_number_end(s->t, i, &may);
    size_t b = word_start(s, i);
    if (try_value(s, b, out)) return true;
    if ((b == i || !lar_scan_is_alnum(s->t.ptr[b])) && alone(s, b, out)) return true;
    if (!may || s->budget->numbers == 0) return false;
    spend(s);
    lar_clock_span c;
    size_t e = lar_clock_try(s->t, i, s->floor, &c);
    if (!e) return false;
    *next = e;
    s->floor = e;
    if (!lar_clock_counts(&c)) return false;
    *out = (lar_volatile_span){c.start,    c.end,     c.label_start, c.label_end, class_of(c.class_id),
                               c.key_word, c.example, c.stamp};
    if (lar_scan_in_example(s->t, c.start, &s->place)) out->example = true;
    return true;
}

static bool at_stop(scan *s, size_t i, size_t *next, lar_volatile_span *out) {
    char c = s->t.ptr[i];
    int d;
    *next = i + 1;
    if (lar_clock_digit(s->t, i, &d)) return at_number(s, i, next, out);
    if (c == '/') return at_path(s, i, out) || at_root_again(s, i, out) || at_temporary(s, i, out);
    if (at_sign(s, i, out)) return true;
    return c == ':' && (at_local_port(s, i, out) || at_root_again(s, i, out) || at_temporary(s, i, out));
}

uint32_t lar_volatile_scan(lar_slice text, lar_volatile_span *spans, uint32_t room, lar_clock_budget *budget) {
    lar_slice t = lar_slice_of(text.ptr, text.len < budget->bytes ? text.len : budget->bytes);
    size_t stop = t.len < text.len ? (t.len > LAR_CLOCK_CUT_MARGIN ? t.len - LAR_CLOCK_CUT_MARGIN : 0) : t.len;
    scan s = {.t = t, .tried = SIZE_MAX, .budget = budget};
    lar_stops stops;
    lar_stops_init(&stops, t);
    uint32_t n = 0;
    for (size_t i = 0; n < room && budget->numbers > 0 && (i = lar_stops_next(&stops, i)) < stop;) {
        size_t next;
        bool found = at_stop(&s, i, &next, &spans[n]);
        i = next > s.floor ? next : s.floor;
        if (!found || spans[n].example) continue; /* room is for what can matter */
        remember_root(&s, &spans[n]);
        bool cut = spans[n].end >= t.len && t.len < text.len; /* it may go on */
        if (!cut) n++;
    }
    budget->bytes -= (uint32_t)t.len;
    return n;
}
