/* Ids, names, paths and what git says (header: volatile_value.h).
 * Called by rules/volatile_scan.c once a key was found; forward only; pure; no memory; never blocks.
 * Invariants: 1. a value never holds a line end. 2. it ends at a border of characters. 3. at most VALUE_MAX bytes
 * are read. Not here: counters and amounts (volatile_number.c), clocks (clock_parse.c). */
#include "policies/rules/volatile_value.h"
#include "policies/rules/scan_text.h"

enum { VALUE_MAX = 256, NAME_MAX_BYTES = 100, REST_MAX = 160 };

/* What was counted of a word. */
typedef struct word_facts {
    uint32_t digits, letters, upper, lower, marks, turns; /* turns: from letter to digit, or from case to case */
} word_facts;

static word_facts count(lar_slice w) {
    word_facts f = {0};
    int before = 0;
    for (size_t i = 0; i < w.len; i++) {
        char c = w.ptr[i];
        int kind = lar_scan_is_digit(c) ? 1 : c >= 'A' && c <= 'Z' ? 2 : c >= 'a' && c <= 'z' ? 3 : 0;
        f.digits += kind == 1;
        f.upper += kind == 2;
        f.lower += kind == 3;
        f.marks += kind == 0;
        if (before && kind && kind != before) f.turns++;
        before = kind;
    }
    f.letters = f.upper + f.lower;
    return f;
}

static bool is_uuid(lar_slice w) {
    if (w.len < 36) return false;
    for (size_t i = 0; i < 36; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? w.ptr[i] != '-' : !lar_scan_is_hex(w.ptr[i])) return false;
    }
    return w.len == 36 || !lar_scan_is_alnum(w.ptr[36]);
}

/* What documentation shows in place of an id. */
static bool is_placeholder(lar_slice w) {
    static const char *const known[] = {"00000000-0000-0000-0000-000000000000",
                                        "123e4567-e89b-12d3-a456-426614174000",
                                        "123e4567-e89b-12d3-a456-426655440000",
                                        "550e8400-e29b-41d4-a716-446655440000",
                                        "abc123",
                                        "abc-123",
                                        "abc_123",
                                        "abcd1234",
                                        "xyz789",
                                        "xyz123",
                                        "foo123",
                                        "sha1",
                                        "sha256",
                                        "md5",
                                        "base64",
                                        "utf8",
                                        "uuid4",
                                        "uuidv4",
                                        "uuidv7",
                                        "uuid7",
                                        "int32",
                                        "int64",
                                        "uint32",
                                        "uint64",
                                        "string1",
                                        "oauth2",
                                        "64-bit",
                                        "32-bit",
                                        "128-bit"};
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        if (lar_slice_ieq(w, lar_slice_cstr(known[k]))) return true;
    }
    word_facts f = count(w);
    return f.digits == 0 && f.letters == 0;
}

/* -- where a value ends --------------------------------------------------------------------------------- */

/* Whether nothing of a sentence goes on behind e: the line's end, a quote, a comma, a bracket. */
static bool ends_there(lar_slice t, size_t e) {
    if (e >= t.len) return true;
    char c = t.ptr[e];
    if (lar_scan_among(c, "\n\r\t\"'`,;)]}<>|&\\*")) return true;
    if (c == '.' || c == ' ') {
        size_t n = e + 1;
        while (n < t.len && t.ptr[n] == ' ') n++;
        if (n >= t.len || lar_scan_among(t.ptr[n], "\n\r")) return true;
        return c == '.' ? n > e + 1 : !lar_scan_is_letter(t.ptr[n]) && !lar_scan_is_wide(t.ptr[n]);
    }
    return lar_scan_is_wide(c);
}

/* Whether a word may go on over e: a letter, a digit, or a mark with one behind it. */
static bool word_goes_on(lar_slice t, size_t e, const char *marks) {
    if (e >= t.len) return false;
    char c = t.ptr[e];
    if (lar_scan_is_alnum(c) || c == '_') return true;
    if (!lar_scan_among(c, marks)) return false;
    return e + 1 < t.len &&
           (lar_scan_is_alnum(t.ptr[e + 1]) || lar_scan_among(t.ptr[e + 1], "_+/") || t.ptr[e + 1] == c);
}

static size_t word_end(lar_slice t, size_t i, const char *marks) {
    size_t e = i;
    while (e - i < VALUE_MAX && word_goes_on(t, e, marks)) e++;
    return e - i < VALUE_MAX ? e : 0;
}

/* -- ids ------------------------------------------------------------------------------------------------- */

/* An id that can be nothing else: UUID, ULID, a prefix with a tail, a long mix of letters and digits. */
static bool is_strong(lar_slice w) {
    if (is_uuid(w)) return true;
    word_facts f = count(w);
    if (w.len >= 10 && f.digits >= 2 && f.letters >= 1 && (f.turns >= 3 || f.marks == 0)) return true;
    if (w.len >= 16 && f.upper >= 3 && f.lower >= 3 && f.turns >= 6) return true;
    if (memchr(w.ptr, '/', w.len)) return false; /* a path, a model's name */
    if (w.len >= 9 && f.digits == w.len) return true;
    size_t n = 0;
    while (n < w.len && n < 8 && lar_scan_is_letter(w.ptr[n])) n++;
    bool prefix = n > 0 && n + 2 < w.len && (w.ptr[n] == '_' || w.ptr[n] == '-');
    return prefix && f.digits >= 1 && count(lar_slice_of(w.ptr + n + 1, w.len - n - 1)).digits >= 1;
}

static size_t read_id(lar_slice t, const lar_key_front *f, const lar_key *key) {
    size_t i = f->value, e = word_end(t, i, "-.:+/@~|");
    if (!e || e == i) return 0;
    for (int pad = 0; pad < 2 && lar_scan_at(t, e, '='); pad++) e++;
    lar_slice w = lar_slice_of(t.ptr + i, e - i);
    if (lar_scan_at(t, e, '(') || lar_scan_at(t, e, '%') || is_placeholder(w)) return 0;
    if (lar_scan_is_wide(w.ptr[w.len - 1])) return 0;
    word_facts n = count(w);
    bool strong = is_strong(w), mixed = w.len >= 10 && n.upper >= 2 && n.lower >= 2 && n.turns >= 4;
    if (memmem(w.ptr, w.len, "://", 3)) return 0;
    if (key->shape == LAR_SHAPE_NOUN && f->hash) return n.digits >= 3 && n.digits == w.len && ends_there(t, e) ? e : 0;
    bool mail =
        f->sign && key->class_id == LAR_VOLATILE_USER_ID && memchr(w.ptr, '@', w.len) && memchr(w.ptr, '.', w.len);
    if (mail) return ends_there(t, e) ? e : 0;
    bool person = key->class_id == LAR_VOLATILE_SESSION_ID || key->class_id == LAR_VOLATILE_USER_ID;
    if (key->shape == LAR_SHAPE_NOUN && person) { /* Session: 4471-aa; user 8842113 */
        bool mixed_signed = f->sign && w.len >= 6 && n.digits >= 2 && n.letters >= 1;
        bool number = n.digits == w.len && w.len >= 6;
        if ((mixed_signed || number) && ends_there(t, e)) return e;
    }
    if (key->shape == LAR_SHAPE_NOUN) return strong && (f->sign || f->copula || !ends_there(t, e) || n.digits) ? e : 0;
    if (n.digits == 0 && !mixed) return 0;
    if (strong || mixed) return e;
    if (key->shape == LAR_SHAPE_RANDOM) {
        bool shuffled = w.len >= 6 && n.turns >= 3;
        if (w.len < 4 || !(f->sign || f->copula || f->hash || n.digits >= 5 || shuffled)) return 0;
        return ends_there(t, e) || n.digits >= 4 ? e : 0;
    }
    if (f->sign || f->copula || f->quote || f->hash) return ends_there(t, e) ? e : 0;
    return w.len >= 3 && n.digits >= 2 && ends_there(t, e) ? e : 0;
}

/* -- names ------------------------------------------------------------------------------------------------ */

static bool is_kind_word(lar_slice w) {
    static const char *const words[] = {"string",   "str",      "int",     "integer",   "number", "text",
                                        "required", "optional", "none",    "null",      "any",    "your",
                                        "the",      "name",     "unknown", "undefined", "object", "array",
                                        "bool",     "boolean",  "default", "example",   "a",      "an",
                                        "this",     "see",      "use",     "n/a",       "branch", "host",
                                        "hostname", "user",     "username"};
    for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
        if (lar_slice_ieq(w, lar_slice_cstr(words[k]))) return true;
    }
    return false;
}

static size_t read_name(lar_slice t, const lar_key_front *f, const lar_key *key) {
    bool anyhow = key->needs == LAR_KEY_ANY;
    if (!f->sign && !f->quote && !f->copula && !anyhow) return 0;
    size_t i = f->value, e = word_end(t, i, key->class_id == LAR_VOLATILE_PROCESS ? "-.:/@" : "-./@+");
    if (!e || e == i || e - i > NAME_MAX_BYTES || !ends_there(t, e)) return 0;
    if (f->quote && !lar_scan_at(t, e, f->quote) && f->quote != '\'') return 0;
    lar_slice w = lar_slice_of(t.ptr + i, e - i);
    bool prose = !f->sign && !f->quote; /* "the host is down" */
    if (prose && count(w).digits == 0) return 0;
    if (key->len == 4 && memcmp(key->text, "host", 4) == 0 && count(w).digits == 0)
        return 0; /* Host: api.example.com */
    return is_kind_word(w) ? 0 : e;
}

static size_t read_commit(lar_slice t, size_t i) {
    size_t e = i;
    uint32_t digits = 0, letters = 0;
    while (e < t.len && e - i < 65 && lar_scan_is_hex(t.ptr[e])) {
        if (lar_scan_is_digit(t.ptr[e])) digits++;
        else letters++;
        e++;
    }
    if (e - i < 7 || e - i > 64 || digits == 0 || (letters == 0 && e - i < 8)) return 0;
    if (word_goes_on(t, e, "-.")) return 0;
    if (!lar_scan_at_text(t, e, " (")) return e; /* the branch in brackets behind it goes with it */
    size_t n = word_end(t, e + 2, "-./");
    return n > e + 2 && lar_scan_at(t, n, ')') ? n + 1 : e;
}

static size_t read_digits(lar_slice t, const lar_key_front *f, const lar_key *key) {
    size_t i = f->value, e = i;
    int64_t v = 0;
    while (e < t.len && e - i < 10 && lar_scan_is_digit(t.ptr[e])) v = v * 10 + (t.ptr[e++] - '0');
    if (e - i < 2 || e - i > 9 || word_goes_on(t, e, ".-,%:/")) return 0;
    if (lar_scan_at(t, e, '%')) return 0;
    bool port = lar_scan_behind_text(lar_slice_of(key->text, key->len), key->len, "port") ||
                lar_scan_behind_text(lar_slice_of(key->text, key->len), key->len, "端口");
    if (port && (v > 65535 || (!f->sign && v < 10000))) return 0; /* ports that are known stay */
    return e;
}

/* What git status says in one line: counts, a word for clean or dirty, a list of files. */
static size_t read_rest(lar_slice t, const lar_key_front *f) {
    static const char *const starts[] = {"clean",      "dirty", "nothing", "none",      "modified", "no ", "up to date",
                                         "up-to-date", "ahead", "behind",  "on branch", "?? ",      "m ",  "a ",
                                         "d ",         "干净",  "无",      "有",        "已修改",   "未"};
    if (!f->sign) return 0;
    size_t i = f->value, e = i;
    while (e < t.len && e - i < REST_MAX && !lar_scan_among(t.ptr[e], "\n\r<\"`") && t.ptr[e] != 0) e++;
    if (e - i == REST_MAX) return 0;
    while (e > i && lar_scan_among(t.ptr[e - 1], " \t.")) e--;
    if (e == i) return 0;
    bool state = lar_scan_is_digit(t.ptr[i]);
    for (size_t k = 0; k < sizeof starts / sizeof *starts && !state; k++) {
        size_t n = strlen(starts[k]);
        state = e - i >= n && lar_slice_ieq(lar_slice_of(t.ptr + i, n), lar_slice_cstr(starts[k]));
    }
    size_t w = i;
    while (w < e && t.ptr[w] != ' ' && t.ptr[w] != ',') w++;
    const char *dot = w - i > 2 ? memchr(t.ptr + i + 1, '.', w - i - 2) : NULL;
    return state || dot || (w > i && memchr(t.ptr + i, '/', w - i)) ? e : 0;
}

/* -- paths ------------------------------------------------------------------------------------------------- */

/* Whether a name of a path goes on over e: letters of other languages only behind a separator, a mark or their like,
 * so that 在/tmp/a下 ends before 下. */
static size_t path_step(lar_slice t, size_t i, size_t e) {
    char c = t.ptr[e];
    if (lar_scan_is_alnum(c)) return 1;
    if (lar_scan_among(c, "/\\_-.~+@#%:$=,")) return 1;
    if (!lar_scan_is_wide(c)) return 0;
    unsigned char lead = (unsigned char)c;
    size_t n = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 0;
    if (n == 0 || t.len - e < n || e == i) return 0;
    bool mark = n == 3 && (lead == 0xE2 || (lead == 0xE3 && (unsigned char)t.ptr[e + 1] < 0x82) ||
                           (lead == 0xEF && (unsigned char)t.ptr[e + 1] >= 0xBC));
    if (mark) return 0;
    for (size_t k = 1; k < n; k++) {
        if (((unsigned char)t.ptr[e + k] & 0xC0) != 0x80) return 0;
    }
    return n == 2 || !lar_scan_is_alnum(t.ptr[e - 1]) ? n : 0;
}

/* The blanks of "C:\Users\Ann Lee\proj": the word behind them goes on with a separator. */
static bool blank_inside(lar_slice t, size_t e, char separator) {
    size_t n = e + 1;
    while (n < t.len && n - e < 40 && (lar_scan_is_alnum(t.ptr[n]) || lar_scan_among(t.ptr[n], "_-.()"))) n++;
    return n > e + 1 && lar_scan_at(t, n, separator);
}

/* Where the names of a path begin; SIZE_MAX if none does. */
static size_t path_start(lar_slice t, size_t i, char *separator) {
    *separator = '/';
    if (i >= t.len) return SIZE_MAX;
    if (lar_scan_at_text(t, i, "file:///")) return i + 7;
    if (lar_scan_at(t, i, '/') && !lar_scan_at(t, i + 1, '/') && !lar_scan_at(t, i + 1, '*')) return i;
    if (lar_scan_at_text(t, i, "~/") || lar_scan_at_text(t, i, "~\\")) return i + 1;
    if (i + 2 < t.len && lar_scan_is_letter(t.ptr[i]) && t.ptr[i + 1] == ':' && lar_scan_among(t.ptr[i + 2], "\\/")) {
        *separator = t.ptr[i + 2];
        return i + 2;
    }
    if (lar_scan_at_text(t, i, "\\\\") && i + 2 < t.len && lar_scan_is_alnum(t.ptr[i + 2])) {
        *separator = '\\';
        return i + 2;
    }
    return SIZE_MAX;
}

size_t lar_value_path(lar_slice t, size_t i, char quote) {
    char separator;
    size_t e = path_start(t, i, &separator), n;
    if (e == SIZE_MAX) return 0;
    if (quote) { /* up to its end; blanks belong to it */
        size_t q = e;
        while (q < t.len && q - i < VALUE_MAX && t.ptr[q] != quote && !lar_scan_among(t.ptr[q], "\n\r<>\"|") &&
               t.ptr[q])
            q++;
        if (lar_scan_at(t, q, quote) && q > i) return q - (t.ptr[q - 1] == '\\' && quote == '"' && separator == '/');
    }
    while (e < t.len && e - i < VALUE_MAX) {
        n = path_step(t, i, e);
        if (!n && t.ptr[e] == ' ' && blank_inside(t, e, separator)) n = 1;
        if (!n) break;
        e += n;
    }
    if (e - i >= VALUE_MAX) return 0;
    while (e > i + 1 && lar_scan_among(t.ptr[e - 1], ".,:$=#")) e--;
    return e;
}

/* A name that a program made up: tmp8f3kq2, job_3f9a1c, 83f2-11. */
static bool looks_random(lar_slice w) {
    static const char *const temps[] = {"tmp", "temp", "pytest-", "tmp.", "tmp_", "tmp-"};
    word_facts f = count(w);
    if (w.len >= 6 && f.digits >= 1 && f.letters >= 1 && f.turns >= 3) return true;
    if (w.len >= 6 && f.digits >= 6) return true;
    for (size_t k = 0; k < sizeof temps / sizeof *temps; k++) {
        size_t n = strlen(temps[k]);
        if (w.len >= n + 6 && w.len <= n + 12 && lar_slice_starts(w, lar_slice_cstr(temps[k]))) {
            if (k < 2 ? w.len == n + 8 : f.digits || f.upper) return true;
        }
    }
    return false;
}

bool lar_value_path_is_temporary(lar_slice path) {
    static const char *const roots[] = {"/tmp/", "/var/tmp/", "/private/tmp/", "/dev/shm/", "/run/user/"};
    static const char *const always[] = {"/var/folders/", "/private/var/folders/"};
    for (size_t k = 0; k < 2; k++) {
        if (lar_slice_starts(path, lar_slice_cstr(always[k])) && path.len > strlen(always[k]) + 6) return true;
    }
    const char *windows = path.len > 30 ? memmem(path.ptr, path.len, "\\Local\\Temp\\", 12) : NULL;
    size_t at = windows ? (size_t)(windows - path.ptr) + 12 : 0;
    for (size_t k = 0; k < sizeof roots / sizeof *roots && !at; k++) {
        if (lar_slice_starts(path, lar_slice_cstr(roots[k]))) at = strlen(roots[k]);
    }
    if (!at) return false;
    for (size_t b = at, e = at; b < path.len; b = e + 1) {
        for (e = b; e < path.len && path.ptr[e] != '/' && path.ptr[e] != '\\' && path.ptr[e] != '.';) e++;
        if (e > b && looks_random(lar_slice_of(path.ptr + b, e - b))) return true;
    }
    return false;
}

size_t lar_value_read(lar_slice t, const lar_key_front *f, const lar_key *key) {
    switch ((lar_key_shape)key->shape) {
    case LAR_SHAPE_ID:
    case LAR_SHAPE_NOUN:
    case LAR_SHAPE_RANDOM: return read_id(t, f, key);
    case LAR_SHAPE_NAME: return read_name(t, f, key);
    case LAR_SHAPE_NUMBER: return read_digits(t, f, key);
    case LAR_SHAPE_PATH: {
        size_t e = lar_value_path(t, f->value, f->quote);
        return e > f->value + 1 ? e : 0; /* the root itself is everybody's */
    }
    case LAR_SHAPE_COMMIT: return read_commit(t, f->value);
    case LAR_SHAPE_REST: return read_rest(t, f);
    default: return 0;
    }
}
