/* Keys of volatile values (header: volatile_keys.h).
 * Flow: rules/volatile_scan.c at each sign, number or path -> lar_key_find; rules/clock_scan.c -> lar_key_read.
 * Pure; no memory; never blocks. Each look in front of a value reads at most MARKS_MAX + WORDS_MAX bytes.
 * Invariant: nothing before `floor` and nothing of another line is read. */
#include "policies/rules/volatile_keys.h"
#include "policies/rules/scan_text.h"

#include <uchar.h>

enum { MARKS_MAX = 32, WORDS_MAX = 64, TAG_MAX = 80, BRACKET_MAX = 40, PHRASE_MAX = 16 };

static const lar_key keys[] = {
#define LAR_KEY(text, class_id, shape, needs)                                                                          \
    {text, sizeof(text) - 1, LAR_VOLATILE_##class_id, LAR_SHAPE_##shape, LAR_KEY_##needs},
#include "policies/rules/volatile_keys.def"
#undef LAR_KEY
};
enum { KEYS = sizeof keys / sizeof *keys };

const lar_key *lar_key_table(uint32_t *count) {
    *count = KEYS;
    return keys;
}

/* -- marks between key and value --------------------------------------------------------------------- */

/* Behind the key's name in "<name attributes>": e is behind '>'. 0 if it is no opening tag. */
static size_t tag_name_end(lar_slice t, size_t e, size_t floor) {
    size_t most = e - floor > TAG_MAX ? e - TAG_MAX : floor;
    if (e >= floor + 2 && t.ptr[e - 2] == ' ') return 0; /* "a > b" */
    for (size_t i = e - 1; i-- > most;) {
        char c = t.ptr[i];
        if (c == '\n' || c == '>' || c == '/') return 0;
        if (c != '<') continue;
        size_t n = i + 1;
        while (n + 1 < e &&
               (lar_scan_is_alnum(t.ptr[n]) || lar_scan_among(t.ptr[n], "_-.:") || lar_scan_is_wide(t.ptr[n])))
            n++;
        return n > i + 1 ? n : 0;
    }
    return 0;
}

typedef struct wide_mark {
    const char *text;
    bool sign, copula;
} wide_mark;
static const wide_mark wide_marks[] = {{"：", true, false},  {"（", false, false}, {"【", false, false},
                                       {"「", false, false}, {"“", false, false},  {"‘", false, false},
                                       {"→", true, false},   {"是", false, true},  {"为", false, true},
                                       {"為", false, true},  {"约", false, false}, {"在", false, true},
                                       {"】", true, false},  {"”", false, false},  {"’", false, false},
                                       {"」", false, false}, {"—", false, false},  {"–", false, false},
                                       {"＃", false, false}, {"＝", true, false},  {"┃", true, false}};

/* One mark right before e: its bytes; 0 if there is none. */
static size_t mark_before(lar_slice t, size_t e, size_t floor, lar_key_front *f) {
    if (e <= floor) return 0;
    char c = t.ptr[e - 1];
    switch (c) {
    case ' ':
    case '\t':
    case '*':
    case '(':
    case '[':
    case '{':
    case '~':
    case '\\': return 1;
    case '"':
    case '\'':
    case '`':
        if (e == f->value) f->quote = c;
        return 1;
    case ':':
    case '=': f->sign = true; return 1;
    case '|': /* a cell; twice it is code */
        if (e - 1 > floor && t.ptr[e - 2] == '|') return 0;
        f->sign = true;
        return 1;
    case '#': /* project#418 is a link */
        if (e - 1 > floor && (lar_scan_is_alnum(t.ptr[e - 2]) || t.ptr[e - 2] == '/')) return 0;
        f->hash = true;
        return 1;
    case '>':
        if (e - 1 <= floor || (t.ptr[e - 2] != '-' && t.ptr[e - 2] != '=')) return 0;
        f->sign = true;
        return 2;
    default: break;
    }
    if (!lar_scan_is_wide(c) || e < floor + 3) return 0;
    for (size_t k = 0; k < sizeof wide_marks / sizeof *wide_marks; k++) {
        if (memcmp(t.ptr + e - 3, wide_marks[k].text, 3) != 0) continue;
        f->sign |= wide_marks[k].sign;
        f->copula |= wide_marks[k].copula;
        return 3;
    }
    return 0;
}

static size_t skip_marks(lar_slice t, size_t e, size_t floor, lar_key_front *f) {
    size_t stop = e - floor > MARKS_MAX ? e - MARKS_MAX : floor;
    for (size_t n; e > stop && (n = mark_before(t, e, floor, f)) != 0;) e -= n;
    return e;
}

/* "is", "are now", "is about": words between key and value that add nothing. */
static size_t skip_filler(lar_slice t, size_t e, size_t floor, lar_key_front *f) {
    static const char *const words[] = {" is",   " are",   " was",    " now",           " about",
                                        " only", " still", " approx", " approximately", " roughly"};
    for (int turn = 0; turn < 2; turn++) {
        if (e <= floor || !lar_scan_among(t.ptr[e - 1], "sewtylx")) break; /* nearly always decided here */
        size_t k = 0, n = 0;
        for (; k < sizeof words / sizeof *words; k++) {
            n = strlen(words[k]);
            if (e > floor + n && t.ptr[e - n] == ' ' &&
                lar_slice_ieq(lar_slice_of(t.ptr + e - n, n), lar_slice_cstr(words[k])))
                break;
        }
        if (k == sizeof words / sizeof *words) break;
        if (k < 3) f->copula = true;
        e = skip_marks(t, e - n, floor, f);
    }
    return e;
}

/* "(cwd)", "（毫秒）" behind a key: e itself if there is none. */
static size_t skip_bracket(lar_slice t, size_t e, size_t floor, lar_key_front *f) {
    bool wide = e >= floor + 3 && lar_scan_behind_text(t, e, "）");
    if (!wide && !(e > floor && (t.ptr[e - 1] == ')' || t.ptr[e - 1] == ']'))) return e;
    size_t i = e - (wide ? 3 : 1), stop = e - floor > BRACKET_MAX ? e - BRACKET_MAX : floor;
    for (; i > stop && t.ptr[i - 1] != '\n'; i--) {
        char c = t.ptr[i - 1];
        if (!wide && (c == '(' || c == '[')) return skip_marks(t, i - 1, floor, f);
        if (wide && i >= floor + 3 && lar_scan_behind_text(t, i, "（")) return skip_marks(t, i - 3, floor, f);
    }
    return e;
}

/* "for this run", "in this conversation" behind a key. */
static size_t skip_phrase(lar_slice t, size_t e, size_t floor) {
    static const char *const phrases[] = {" for this ", " in this ", " of this ", " for the ", " of the ", " on this "};
    size_t b = e, stop = e - floor > PHRASE_MAX ? e - PHRASE_MAX : floor;
    while (b > stop && lar_scan_is_letter(t.ptr[b - 1])) b--;
    if (b == e || b < floor + 2 || t.ptr[b - 1] != ' ' || !lar_scan_among(t.ptr[b - 2], "se")) return e;
    for (size_t k = 0; k < sizeof phrases / sizeof *phrases; k++) {
        size_t n = strlen(phrases[k]);
        if (b > floor + n && lar_scan_behind_text(t, b, phrases[k])) return b - n;
    }
    return e;
}

/* -- the words ---------------------------------------------------------------------------------------- */

static bool word_begins(lar_slice t, size_t i, size_t floor) {
    if (i == floor) return true;
    char c = t.ptr[i], before = t.ptr[i - 1];
    if (!lar_scan_is_letter(before)) return true;
    bool upper = c >= 'A' && c <= 'Z', upper_before = before >= 'A' && before <= 'Z';
    if (upper && !upper_before) return true;
    return upper && i + 1 < t.len && t.ptr[i + 1] >= 'a' && t.ptr[i + 1] <= 'z';
}

/* A letter of Chinese that ends at e, no mark of punctuation. */
static bool han_before(lar_slice t, size_t e, size_t floor) {
    if (e < floor + 3) return false;
    unsigned char lead = (unsigned char)t.ptr[e - 3], second = (unsigned char)t.ptr[e - 2];
    return lead >= 0xE3 && lead <= 0xE9 && !(lead == 0xE3 && second < 0x90) &&
           ((unsigned char)t.ptr[e - 1] & 0xC0) == 0x80;
}

static void put(lar_key_front *f, char c, size_t i) {
    f->len++;
    f->low[LAR_KEY_BYTES_MAX - f->len] = lar_scan_low(c);
    f->back[LAR_KEY_BYTES_MAX - f->len] = (uint8_t)(f->key_end - 1 - i);
}

/* A mark inside of a key: "x-request-id", "app.session", "user's home". e is behind it. */
static bool joins(lar_slice t, size_t e, size_t floor) {
    char c = t.ptr[e - 1];
    if (c == ' ' || c == '_' || c == '*') return true;
    if (e >= t.len || !lar_scan_is_letter(t.ptr[e])) return false;
    bool left = e > floor + 1 && (lar_scan_is_alnum(t.ptr[e - 2]) || lar_scan_is_wide(t.ptr[e - 2]));
    return left && (c == '-' || c == '.' || c == '\'' || c == '/');
}

/* One more character of the words, read backwards. False if they end there. */
static bool read_more(lar_slice t, size_t floor, lar_key_front *f) {
    size_t stop = f->key_end - floor > WORDS_MAX ? f->key_end - WORDS_MAX : floor;
    while (f->at > stop && f->len + 3 <= LAR_KEY_BYTES_MAX) {
        size_t e = f->at;
        char c = t.ptr[e - 1];
        if (c == 's' && e > stop + 2 && (t.ptr[e - 2] == '\'' || lar_scan_behind_text(t, e - 1, "’"))) {
            f->at -= t.ptr[e - 2] == '\'' ? 2 : 4; /* user's ID */
            continue;
        }
        if (lar_scan_is_letter(c)) {
            put(f, c, e - 1);
            if (word_begins(t, e - 1, floor)) f->words |= UINT64_C(1) << (f->len - 1);
            f->at--;
            return true;
        }
        if (lar_scan_is_wide(c)) {
            if (!han_before(t, e, floor)) return false;
            if (e != f->key_end && lar_scan_behind_text(t, e, "的")) { /* 请求的ID */
                f->at -= 3;
                continue;
            }
            for (size_t k = 1; k <= 3; k++) put(f, t.ptr[e - k], e - k);
            f->words |= UINT64_C(1) << (f->len - 1);
            f->at -= 3;
            return true;
        }
        if (!joins(t, e, floor)) return false;
        f->at--;
    }
    return false;
}

/* -- what keys end with ---------------------------------------------------------------------------------- */

/* Which letters stand before the last one of a key, by the last one; the last characters of Chinese keys. Most words
 * are told apart from keys by these alone; a test holds both against the table. */
static const char *const before_last[26] = {"cht",  "o",    "",      "aeinosw",     "bcdeghlmnrstuvz",
                                            "e",    "nos",  "cst",   "mr",          "",
                                            "cs",   "ailr", "ov",    "adeioru",     "npt",
                                            "eimo", "ei",   "aeios", "adeklnprstu", "acefilnoprsux",
                                            "",     "en",   "o",     "eo",          "aceprt",
                                            ""};
static const char16_t last_han[] =
    u"下串了于交代件余例值储元出剩区口号合名器址埠夹子存希库度录径忆态憶成戶户支改数數文有本机杖樹次步点牌率用盐码称程稱符算箱者耗號行話識计记识试话費费轮量錄钥间額额餘驟骤";

static bool han_ends_key(const char *p) {
    uint32_t c = (((uint32_t)p[0] & 0x0F) << 12) | (((uint32_t)p[1] & 0x3F) << 6) | ((uint32_t)p[2] & 0x3F);
    size_t low = 0, high = sizeof last_han / sizeof *last_han - 1;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (last_han[mid] < c) low = mid + 1;
        else high = mid;
    }
    return last_han[low] == c; /* the last one is 0 */
}

static bool may_end_key(lar_slice t, size_t e, size_t floor) {
    if (e <= floor) return false;
    char c = t.ptr[e - 1];
    if (lar_scan_is_wide(c)) return han_before(t, e, floor) && han_ends_key(t.ptr + e - 3);
    if (!lar_scan_is_letter(c)) return lar_scan_among(c, "_*-.' "); /* words are read behind it */
    if (e < floor + 2 || !lar_scan_is_letter(t.ptr[e - 2])) return false;
    char b = lar_scan_low(t.ptr[e - 2]);
    for (const char *p = before_last[lar_scan_low(c) - 'a']; *p; p++) {
        if (*p == b) return true;
    }
    return false;
}

/* Everything but the words: where the key ends; false if there is none. */
static bool read_marks(lar_slice t, size_t value, size_t floor, lar_key_front *f) {
    f->value = value;
    f->sign = f->copula = f->hash = false;
    f->quote = 0;
    f->len = 0;
    f->words = 0;
    size_t e = skip_marks(t, value, floor, f);
    if (e > floor && t.ptr[e - 1] == '>') {
        size_t n = tag_name_end(t, e, floor);
        if (!n) return false;
        e = n;
        f->sign = true;
    } else {
        e = skip_filler(t, e, floor, f);
        e = skip_bracket(t, e, floor, f);
    }
    if (e <= floor) return false;
    if (e == value && !lar_scan_is_wide(t.ptr[e - 1])) return false; /* glued */
    f->key_end = f->at = e;
    return true;
}

bool lar_key_read(lar_slice t, size_t value, size_t floor, lar_key_front *f) {
    if (!read_marks(t, value, floor, f)) return false;
    while (read_more(t, floor, f)) {}
    return f->len > 0;
}

/* -- the table ------------------------------------------------------------------------------------------ */

/* Byte k of a key, counted from its end; -1 in front of it. */
static int from_end(const lar_key *key, uint32_t k) {
    return k < key->len ? (unsigned char)key->text[key->len - 1 - k] : -1;
}

/* The first of [low, high) whose byte k from the end is at least c. */
static uint32_t halve(uint32_t low, uint32_t high, uint32_t k, int c) {
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (from_end(&keys[mid], k) < c) low = mid + 1;
        else high = mid;
    }
    return low;
}

/* Puts the rows [at, at + n) in front of those found: the longest come first. */
static uint32_t put_first(const lar_key **rows, uint32_t count, uint32_t room, uint32_t at, uint32_t n) {
    if (n > room) n = room;
    uint32_t kept = count + n <= room ? count : room - n;
    memmove(rows + n, rows, kept * sizeof *rows);
    for (uint32_t i = 0; i < n; i++) rows[i] = &keys[at + i];
    return kept + n;
}

static uint32_t find_rows(lar_slice t, size_t floor, lar_key_front *f, lar_key_rows *rows) {
    uint32_t low = 0, high = KEYS, count = 0;
    if (!may_end_key(t, f->key_end, floor)) return 0;
    for (uint32_t k = 0; low < high && (k < f->len || read_more(t, floor, f)); k++) {
        int c = (unsigned char)f->low[LAR_KEY_BYTES_MAX - 1 - k];
        low = halve(low, high, k, c);
        high = halve(low, high, k, c + 1);
        if (!(f->words >> k & 1)) continue;
        uint32_t n = 0;
        while (low + n < high && keys[low + n].len == k + 1) n++;
        if (n) count = put_first(rows->list, count, LAR_KEY_ROWS_MAX, low, n);
    }
    while (count && read_more(t, floor, f)) {}
    return count;
}

uint32_t lar_key_find(lar_slice t, size_t value, size_t floor, lar_key_front *f, lar_key_rows *rows) {
    if (!read_marks(t, value, floor, f)) return 0;
    size_t whole = f->key_end;
    if (f->sign || f->copula) f->key_end = f->at = skip_phrase(t, whole, floor);
    uint32_t count = find_rows(t, floor, f, rows);
    if (count > 0 || f->key_end == whole) return count;
    f->key_end = f->at = whole; /* "the id of this request" */
    f->len = 0;
    f->words = 0;
    return find_rows(t, floor, f, rows);
}

size_t lar_key_start(lar_slice t, const lar_key_front *f, size_t bytes, size_t floor) {
    size_t i = f->key_end - 1 - f->back[LAR_KEY_BYTES_MAX - bytes];
    size_t stop = i - floor > WORDS_MAX ? i - WORDS_MAX : floor;
    while (i > stop && (lar_scan_is_alnum(t.ptr[i - 1]) || lar_scan_among(t.ptr[i - 1], "_-.")) &&
           !(lar_scan_is_wide(t.ptr[i])))
        i--;
    while (i < f->key_end && (t.ptr[i] == '-' || t.ptr[i] == '.')) i++;
    return i;
}

bool lar_key_preceded(const lar_key_front *f, size_t bytes, const char *text) {
    size_t n = strlen(text);
    if (n == 0) return true;
    if (f->len < bytes + n) return false;
    size_t at = LAR_KEY_BYTES_MAX - bytes - n;
    return memcmp(f->low + at, text, n) == 0 && (f->words >> (bytes + n - 1) & 1);
}
