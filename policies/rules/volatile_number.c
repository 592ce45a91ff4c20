/* Counters, budgets, money and meters (header: volatile_value.h).
 * Called by rules/volatile_scan.c at a number, with the words in front of it; pure; no memory; never blocks.
 * Invariants: 1. a limit ("max 4096 tokens", 最多8000个令牌) is never a value. 2. a value never holds a line end.
 * 3. of "12 of 40" only the 12 is taken: the 40 stands still. */
#include "policies/rules/scan_text.h"
#include "policies/rules/volatile_value.h"

enum { DIGITS_MAX = 15, CLAUSE_MAX = 64, AFTER_MAX = 40 };

typedef enum unit { UNIT_NONE, UNIT_TOKENS, UNIT_TURNS, UNIT_CHARS, UNIT_MONEY, UNIT_PERCENT } unit;

/* One number with what belongs to it. */
typedef struct amount {
    size_t start, end; /* sign of money, digits, k, % */
    size_t behind;     /* behind its total and unit, where words may follow */
    int64_t value;     /* without k and fraction */
    unit unit;
    bool scaled, grouped, fraction;
    bool total; /* "/200k", "of 40" */
    int64_t total_value;
} amount;

/* -- words ------------------------------------------------------------------------------------------------ */

typedef struct unit_word {
    const char *text;
    unit unit;
} unit_word;

static const unit_word units[] = {
    {"tokens", UNIT_TOKENS},    {"token", UNIT_TOKENS},    {"toks", UNIT_TOKENS},    {"tok", UNIT_TOKENS},
    {"令牌", UNIT_TOKENS},      {"词元", UNIT_TOKENS},     {"權杖", UNIT_TOKENS},    {"tool calls", UNIT_TURNS},
    {"turns", UNIT_TURNS},      {"turn", UNIT_TURNS},      {"steps", UNIT_TURNS},    {"step", UNIT_TURNS},
    {"iterations", UNIT_TURNS}, {"iteration", UNIT_TURNS}, {"rounds", UNIT_TURNS},   {"round", UNIT_TURNS},
    {"attempts", UNIT_TURNS},   {"attempt", UNIT_TURNS},   {"messages", UNIT_TURNS}, {"message", UNIT_TURNS},
    {"calls", UNIT_TURNS},      {"call", UNIT_TURNS},      {"requests", UNIT_TURNS}, {"request", UNIT_TURNS},
    {"retries", UNIT_TURNS},    {"retry", UNIT_TURNS},     {"轮", UNIT_TURNS},       {"輪", UNIT_TURNS},
    {"步", UNIT_TURNS},         {"次", UNIT_TURNS},        {"回合", UNIT_TURNS},     {"chars", UNIT_CHARS},
    {"characters", UNIT_CHARS}, {"字符", UNIT_CHARS},      {"字", UNIT_CHARS},       {"bytes", UNIT_CHARS},
    {"words", UNIT_CHARS},      {"KB", UNIT_CHARS},        {"MB", UNIT_CHARS},       {"GB", UNIT_CHARS},
    {"entries", UNIT_CHARS},    {"KiB", UNIT_CHARS},       {"MiB", UNIT_CHARS},      {"GiB", UNIT_CHARS},
    {"元", UNIT_MONEY},         {"美元", UNIT_MONEY},      {"USD", UNIT_MONEY},      {"dollars", UNIT_MONEY},
    {"EUR", UNIT_MONEY},        {"CNY", UNIT_MONEY},       {"RMB", UNIT_MONEY},      {"人民币", UNIT_MONEY},
    {"cents", UNIT_MONEY},      {"credits", UNIT_MONEY},   {"euros", UNIT_MONEY},
};

/* A word at i, any case, no part of a longer one: the offset behind it; 0 if it is not there. */
static inline size_t word_at(lar_slice t, size_t i, const char *text) {
    if (i >= t.len || ((t.ptr[i] ^ text[0]) & ~0x20)) return 0; /* nearly always decided here */
    size_t n = strlen(text);
    if (t.len - i < n) return 0;
    if (lar_scan_is_wide(text[0])) return memcmp(t.ptr + i, text, n) == 0 ? i + n : 0;
    if (!lar_slice_ieq(lar_slice_of(t.ptr + i, n), lar_slice_of(text, n))) return 0;
    return i + n < t.len && (lar_scan_is_alnum(t.ptr[i + n]) || t.ptr[i + n] == '_') ? 0 : i + n;
}

static size_t any_word_at(lar_slice t, size_t i, const char *const *words, size_t count) {
    for (size_t k = 0; k < count; k++) {
        size_t e = word_at(t, i, words[k]);
        if (e) return e;
    }
    return 0;
}
#define ANY_WORD_AT(t, i, words) any_word_at((t), (i), (words), sizeof(words) / sizeof *(words))

static size_t skip_marks(lar_slice t, size_t i) {
    for (int n = 0; n < 4; n++) {
        size_t b = lar_clock_skip_blanks(t, i);
        if (lar_scan_at(t, b, '*') || lar_scan_at(t, b, '_')) b++;
        if (b == i) break;
        i = b;
    }
    return i;
}

/* "tokens left", "个令牌": the unit at i; i itself if there is none. */
static size_t read_unit(lar_slice t, size_t i, amount *a) {
    size_t b = skip_marks(t, i);
    static const char *const fill[] = {"个",   "個",   "input", "output", "prompt", "context",
                                       "tool", "more", "total", "條",     "条"};
    for (int turn = 0; turn < 2; turn++) {
        size_t e = ANY_WORD_AT(t, b, fill);
        if (!e) break;
        b = lar_clock_skip_blanks(t, e);
    }
    for (size_t k = 0; k < sizeof units / sizeof *units; k++) {
        size_t e = word_at(t, b, units[k].text);
        if (!e) continue;
        if (a->unit == UNIT_NONE || a->unit == UNIT_PERCENT) a->unit = units[k].unit;
        return e;
    }
    return i;
}

/* Whether a state is named at i: "left", "used so far", 已用. */
static size_t state_at(lar_slice t, size_t i) {
    static const char *const words[] = {"left",
                                        "remaining",
                                        "remain",
                                        "remains",
                                        "used",
                                        "consumed",
                                        "so far",
                                        "spent",
                                        "full",
                                        "in use",
                                        "elapsed",
                                        "available",
                                        "used up",
                                        "today",
                                        "completed",
                                        "taken",
                                        "until auto-compact",
                                        "已用",
                                        "剩余",
                                        "可用",
                                        "已使用",
                                        "剩餘",
                                        "已消耗"};
    size_t b = skip_marks(t, i);
    if (lar_scan_at(t, b, '(')) b++;
    static const char *const areas[] = {"of",      "the",    "your",   "my",    "available", "total",
                                        "context", "window", "memory", "token", "budget",    "tokens"};
    size_t e; /* "of the context window used" */
    for (int turn = 0; turn < 5 && (e = ANY_WORD_AT(t, b, areas)) != 0; turn++) {
        size_t more = skip_marks(t, e);
        if (word_at(t, b, "available") && !lar_scan_is_letter(more < t.len ? t.ptr[more] : ' ')) break;
        b = more;
    }
    static const char *const between[] = {"is", "are", "have been", "were", "has been", "still", "already", "have"};
    for (int turn = 0; turn < 2 && (e = ANY_WORD_AT(t, b, between)) != 0; turn++) b = skip_marks(t, e);
    return ANY_WORD_AT(t, b, words);
}

/* "3 attempts per quiz", "2 steps each": a rule. */
static bool rule_behind(lar_slice t, size_t i) {
    static const char *const words[] = {"per", "each", "every", "a", "an", "at", "long", "or", "to", "max", "maximum"};
    return ANY_WORD_AT(t, skip_marks(t, i), words) != 0;
}

/* Where the clause begins that the value stands in, and that in lower case. */
static void read_clause(lar_slice t, size_t value, lar_scan_low_text *low) {
    size_t b = lar_scan_sentence(t, lar_scan_line_before(t, value, CLAUSE_MAX, 0), value);
    for (size_t i = b; i < value; i++) {
        char c = t.ptr[i];
        if (c == ';' || c == '|' || (c == ',' && i + 1 < value && t.ptr[i + 1] == ' ')) b = i + 1;
        if (lar_scan_at_text(t, i, "，") || lar_scan_at_text(t, i, "、") || lar_scan_at_text(t, i, "；")) b = i;
    }
    lar_scan_lower(t, b, value, low);
}

/* A limit, a condition or a rule: "max", "up to", 最多, "if", "every". */
static bool speaks_of_limit(lar_slice t, size_t value) {
    static const char *const words[] = {"max",       "maximum",   "limit",  "limits",  "limited", "up to",    "at most",
                                        "at least",  "minimum",   "min",    "exceed",  "exceeds", "than",     "under",
                                        "within",    "below",     "above",  "when",    "if",      "once",     "unless",
                                        "every",     "per",       "each",   "allowed", "reserve", "keep",     "leave",
                                        "should",    "must",      "never",  "always",  "first",   "last",     "default",
                                        "over",      "threshold", "e.g",    "least",   "cap",     "capped",   "until",
                                        "after",     "before",    "target", "costs",   "aim",     "whenever", "any",
                                        "typically", "usually",   "最多",   "上限",    "不超过",  "至少",     "不得",
                                        "限制",      "如果",      "超过",   "低于",    "大于",    "小于",     "以内",
                                        "最大",      "最少",      "每",     "不少于",  "达到",    "例如",     "应",
                                        "若",        "之后",      "阈值",   "前",      "最后",    "须",       "必须"};
    lar_scan_low_text low;
    read_clause(t, value, &low);
    size_t zh = lar_scan_find(&low, "当前"); /* 前 alone is "before" */
    if (zh == SIZE_MAX) zh = lar_scan_find(&low, "目前");
    if (zh == SIZE_MAX) zh = lar_scan_find(&low, "當前");
    if (zh != SIZE_MAX) memcpy(low.bytes + zh, "      ", 6);
    size_t compact = lar_scan_find(&low, "until auto");
    if (compact != SIZE_MAX) memcpy(low.bytes + compact, "     ", 5);
    if (lar_scan_has_any(&low, words, sizeof words / sizeof *words)) return true;
    const char *less = memchr(low.bytes, '<', low.len); /* "< 5000", no tag */
    const char *end = low.bytes + low.len;
    return less && (less + 1 == end || less[1] == ' ' || less[1] == '=');
}

/* -- one amount -------------------------------------------------------------------------------------------- */

static size_t money_at(lar_slice t, size_t i) {
    static const char *const signs[] = {"US$", "$", "¥", "￥", "€", "£", "USD ", "CNY ", "RMB "};
    for (size_t k = 0; k < sizeof signs / sizeof *signs; k++) {
        if (lar_scan_at_text(t, i, signs[k])) return i + strlen(signs[k]);
    }
    return i;
}

/* Digits with thousands separators and a fraction. */
static size_t read_digits(lar_slice t, size_t i, amount *a) {
    size_t e = i, n;
    int d, count = 0;
    int64_t v = 0;
    while ((n = lar_clock_digit(t, e, &d)) != 0) {
        if (++count > DIGITS_MAX) return 0;
        v = v * 10 + d;
        e += n;
    }
    if (count == 0) return 0;
    while (count <= 3 + DIGITS_MAX && (lar_scan_at(t, e, ',') || lar_scan_at_text(t, e, "，"))) {
        size_t b = e + (t.ptr[e] == ',' ? 1 : 3), at = b;
        int64_t group = 0;
        int digits = 0;
        for (; digits < 4 && (n = lar_clock_digit(t, at, &d)) != 0; digits++) group = group * 10 + d, at += n;
        if (digits != 3 || v > INT64_C(100000000000)) break;
        v = v * 1000 + group;
        a->grouped = true;
        e = at;
    }
    if (lar_scan_at(t, e, '.') && lar_clock_digit(t, e + 1, &d)) {
        a->fraction = true;
        e++;
        while ((n = lar_clock_digit(t, e, &d)) != 0) e += n;
    }
    a->value = v;
    return e;
}

static size_t read_scale(lar_slice t, size_t e, amount *a) {
    if (e < t.len && lar_scan_among(t.ptr[e], "kKmM") && !(e + 1 < t.len && lar_scan_is_alnum(t.ptr[e + 1]))) {
        a->scaled = true;
        return e + 1;
    }
    if (lar_scan_at_text(t, e, "万") || lar_scan_at_text(t, e, "萬")) {
        a->scaled = true;
        return e + 3;
    }
    size_t p = lar_scan_at(t, e, '%') ? e + 1 : lar_scan_at_text(t, e, "％") ? e + 3 : 0;
    if (!p) return e;
    a->unit = UNIT_PERCENT;
    return p;
}

/* "/200k", " of 40", "（共40轮）": what stands still behind it. */
static size_t read_total(lar_slice t, size_t e, amount *a) {
    static const char *const words[] = {"out of", "of", "共", "/", "／"};
    size_t b = lar_clock_skip_blanks(t, e);
    if (lar_scan_at(t, b, '(')) b++;
    if (lar_scan_at_text(t, b, "（") || lar_scan_at_text(t, b, "，")) b += 3;
    size_t w = 0;
    for (size_t k = 0; k < sizeof words / sizeof *words && !w; k++) {
        if (lar_scan_is_letter(words[k][0])) w = word_at(t, b, words[k]);
        else if (lar_scan_at_text(t, b, words[k])) w = b + strlen(words[k]);
    }
    if (!w) return e;
    static const char *const fill[] = {"max", "maximum", "a", "total", "the", "of"};
    w = lar_clock_skip_blanks(t, w);
    for (size_t f; (f = ANY_WORD_AT(t, w, fill)) != 0;) w = lar_clock_skip_blanks(t, f);
    amount other = {0};
    size_t n = read_digits(t, money_at(t, w), &other);
    if (!n) return e;
    n = read_scale(t, n, &other);
    if (n < t.len &&
        (lar_scan_is_alnum(t.ptr[n]) || (t.ptr[n] == '/' && n + 1 < t.len && lar_scan_is_digit(t.ptr[n + 1]))))
        return e; /* a path, a date */
    a->total = true;
    a->total_value = other.value;
    return n;
}

static bool read_amount(lar_slice t, size_t i, amount *a) {
    *a = (amount){.start = i};
    size_t b = money_at(t, i);
    if (b != i) a->unit = UNIT_MONEY;
    size_t e = read_digits(t, b, a);
    if (!e) return false;
    e = read_scale(t, e, a);
    if (e < t.len && (lar_scan_is_alnum(t.ptr[e]) || t.ptr[e] == '_')) return false;
    if (e + 1 < t.len && lar_scan_among(t.ptr[e], ".-:") && lar_scan_is_alnum(t.ptr[e + 1])) return false;
    a->end = e;
    size_t u = read_unit(t, e, a);
    a->behind = read_total(t, u, a);
    if (a->behind != u) a->behind = read_unit(t, a->behind, a);
    return true;
}

/* -- what it counts ------------------------------------------------------------------------------------------ */

/* "41% used (82k/200k)": the bracket goes with it. */
static size_t with_bracket(lar_slice t, const amount *a) {
    if (a->unit != UNIT_PERCENT) return a->end;
    size_t s = state_at(t, a->end), b = lar_clock_skip_blanks(t, s ? s : a->end);
    bool wide = lar_scan_at_text(t, b, "（");
    if (!wide && !lar_scan_at(t, b, '(')) return a->end;
    amount in;
    if (!read_amount(t, b + (wide ? 3 : 1), &in) || !in.total) return a->end;
    size_t e = lar_clock_skip_blanks(t, in.behind), used = state_at(t, in.behind);
    if (used) e = used;
    if (wide ? lar_scan_at_text(t, e, "）") : lar_scan_at(t, e, ')')) return e + (wide ? 3 : 1);
    return a->end;
}

/* "82k/200k (41%)", "82,134 tokens (41% used)": the offset behind the share; a->end if there is none. */
static size_t with_share(lar_slice t, const amount *a) {
    if (!a->total && a->unit != UNIT_TOKENS) return a->end;
    size_t b = lar_clock_skip_blanks(t, a->behind);
    bool wide = lar_scan_at_text(t, b, "（");
    if (!wide && !lar_scan_at(t, b, '(')) return a->end;
    amount in = {0};
    size_t e = read_digits(t, b + (wide ? 3 : 1), &in);
    if (e) e = read_scale(t, e, &in);
    if (!e || in.unit != UNIT_PERCENT) return a->end;
    size_t used = state_at(t, e);
    if (used) e = used;
    if (wide ? lar_scan_at_text(t, e, "）") : lar_scan_at(t, e, ')')) return e + (wide ? 3 : 1);
    return a->end;
}

/* Where the whole value ends, with what varies with it. */
static size_t whole_end(lar_slice t, const amount *a) {
    return a->unit == UNIT_PERCENT ? with_bracket(t, a) : with_share(t, a);
}

/* Of what a share is: of a memory or of a context. */
static bool share_of(lar_slice t, size_t value, size_t behind, lar_volatile_class *class_id) {
    static const char *const memory[] = {"memory", "notes",   "记忆",     "笔记", "内存",       "存储",    "容量",
                                         "disk",   "storage", "capacity", "磁盘", "scratchpad", "profile", "記憶"};
    static const char *const context[] = {"context", "window", "token", "tokens", "budget",  "上下文", "令牌",
                                          "预算",    "quota",  "额度",  "配额",   "compact", "預算"};
    size_t e = behind + AFTER_MAX < t.len ? behind + AFTER_MAX : t.len;
    const char *nl = memchr(t.ptr + behind, '\n', e - behind);
    if (nl) e = (size_t)(nl - t.ptr);
    lar_scan_low_text low;
    lar_scan_lower(t, lar_scan_line_before(t, value, LAR_SCAN_LOW_MAX - AFTER_MAX, 0), e, &low);
    if (lar_scan_has_any(&low, memory, sizeof memory / sizeof *memory)) {
        *class_id = LAR_VOLATILE_METER;
        return true;
    }
    *class_id = LAR_VOLATILE_BUDGET;
    return lar_scan_has_any(&low, context, sizeof context / sizeof *context);
}

static bool take(lar_number *out, size_t start, size_t end, lar_volatile_class class_id) {
    *out = (lar_number){start, end, end, class_id};
    return true;
}

/* By its unit, once it is known to be a state. */
static bool take_state(lar_slice t, const amount *a, lar_number *out) {
    lar_volatile_class c = LAR_VOLATILE_BUDGET;
    if (rule_behind(t, a->behind)) return false;
    switch (a->unit) {
    case UNIT_TOKENS: break;
    case UNIT_TURNS: c = LAR_VOLATILE_COUNTER; break;
    case UNIT_CHARS: c = LAR_VOLATILE_METER; break;
    case UNIT_MONEY: c = LAR_VOLATILE_MONEY; break;
    case UNIT_PERCENT:
        if (!share_of(t, a->start, a->end, &c)) return false;
        break;
    case UNIT_NONE: return false;
    }
    return take(out, a->start, whole_end(t, a), c);
}

static bool read_state(lar_slice t, const lar_key_front *f, const amount *a, lar_number *out) {
    bool sign = f->sign || f->copula, behind = state_at(t, a->behind) != 0;
    if (a->unit == UNIT_MONEY && !sign && !behind && !a->total && !lar_scan_is_wide(f->low[LAR_KEY_BYTES_MAX - 1])) {
        size_t line = lar_scan_line_before(t, f->value, CLAUSE_MAX, 0);
        bool first = lar_scan_sentence(t, line, f->value) + f->len + 2 >= f->value; /* "Spent $3" as a line */
        if (!first) return false;
    }
    bool small = !a->grouped && !a->scaled && !a->total && a->value < 100;
    if (a->unit == UNIT_TOKENS && small && !sign && !behind) return false;
    bool wide = lar_scan_is_wide(f->low[LAR_KEY_BYTES_MAX - 1]); /* Chinese keys are verbs: 已用41% */
    size_t next = lar_clock_skip_blanks(t, a->end);
    if (a->unit == UNIT_PERCENT && !sign && !behind && !wide && !word_at(t, next, "of")) return false;
    if (a->unit == UNIT_NONE && f->sign && (a->grouped || a->value >= 1000 || a->total))
        return take(out, a->start, a->end, LAR_VOLATILE_BUDGET);
    lar_volatile_class of;
    if (a->unit == UNIT_NONE && (a->grouped || a->scaled) && share_of(t, a->start, a->end, &of))
        return take(out, a->start, a->end, of);
    return take_state(t, a, out);
}

static bool read_area(lar_slice t, const lar_key_front *f, const amount *a, lar_number *out) {
    bool sign = f->sign || f->copula, wide = lar_scan_is_wide(f->low[LAR_KEY_BYTES_MAX - 1]);
    bool state = state_at(t, a->behind) || a->total || whole_end(t, a) != a->end ||
                 (a->unit == UNIT_PERCENT && (sign || wide)) || (a->unit == UNIT_MONEY && (sign || wide));
    char before = f->value > 0 ? t.ptr[f->value - 1] : 0;
    if (before == '[' && a->unit == UNIT_PERCENT) state = true;
    bool tag = before == '>' && (a->grouped || a->scaled || a->value >= 1000);
    if (tag && a->unit == UNIT_NONE && share_of(t, a->start, a->end, &(lar_volatile_class){LAR_VOLATILE_BUDGET}))
        return take(out, a->start, a->end, LAR_VOLATILE_BUDGET);
    if (!state) return false;
    if (a->unit == UNIT_NONE) {
        bool large = a->grouped || a->scaled || a->total_value >= 1000;
        lar_volatile_class c;
        return large && a->total && share_of(t, a->start, a->end, &c) && take(out, a->start, whole_end(t, a), c);
    }
    return take_state(t, a, out);
}

static bool read_keyed_amount(lar_slice t, const lar_key_front *f, const lar_key *key, const amount *a,
                              lar_number *out) {
    bool sign = f->sign || f->copula;
    if (!sign && a->unit == UNIT_NONE && !a->grouped && !a->total && a->value < 1000) return false;
    if (a->unit == UNIT_NONE || (a->unit == UNIT_PERCENT)) {
        if (key->class_id == LAR_VOLATILE_METER && a->unit == UNIT_NONE && !sign) return false;
        return take(out, a->start, whole_end(t, a), (lar_volatile_class)key->class_id);
    }
    return take_state(t, a, out);
}

/* -- counters --------------------------------------------------------------------------------------------------- */

/* Whether a number ends its phrase: the line's end, a mark, or a word that goes with counters. */
static bool ends_phrase(lar_slice t, size_t e) {
    static const char *const words[] = {"of", "out", "left", "remaining", "used", "so", "in", "and", "now", "at"};
    size_t b = skip_marks(t, e);
    if (b >= t.len || !(lar_scan_is_alnum(t.ptr[b]) || t.ptr[b] == '%')) return !lar_scan_at(t, e, ':');
    return b != e && ANY_WORD_AT(t, b, words) != 0;
}

static bool is_qualified(const lar_key_front *f, size_t bytes) {
    static const char *const words[] = {"current",     "currently",   "thisis",     "youareon",    "youareat",
                                        "youarein",    "youareonthe", "nowon",      "nowat",       "nowin",
                                        "itis",        "itisnow",     "nowis",      "currentlyon", "currentlyat",
                                        "currentlyin", "当前",        "目前",       "现在是",      "正在",
                                        "正在进行",    "这是",        "處於",       "当前处于",    "目前處於",
                                        "weareon",     "weareat",     "weareatthe", "running",     "executing",
                                        "starting",    "beginning",   "agent",      "conversation"};
    for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
        if (lar_key_preceded(f, bytes, words[k])) return true;
    }
    return false;
}

/* Whether nothing but marks stands before the key on its line or in its sentence. */
static bool begins_sentence(lar_slice t, const lar_key_front *f, size_t bytes) {
    size_t k = lar_key_start(t, f, bytes, 0), b = lar_scan_line_before(t, k, CLAUSE_MAX, 0);
    size_t s = lar_scan_sentence(t, b, k);
    while (s < k && !lar_scan_is_alnum(t.ptr[s]) && !lar_scan_is_wide(t.ptr[s])) s++;
    if (s == k) return true;
    char before = k > 0 ? t.ptr[k - 1] : 0;
    return lar_scan_among(before, "[(<|,") || (k >= 2 && before == ' ' && lar_scan_among(t.ptr[k - 2], ",|;([-"));
}

static bool is_counter(lar_slice t, const lar_key_front *f, const lar_key *key, const amount *a) {
    bool step = key->shape == LAR_SHAPE_STEP;
    size_t behind = lar_clock_skip_blanks(t, a->behind);
    bool colon = lar_scan_at(t, behind, ':') || lar_scan_at_text(t, behind, "：") || lar_scan_at(t, a->end, ':');
    bool dash = lar_scan_at_text(t, behind, "—") || lar_scan_at_text(t, behind, "- ");
    if (is_qualified(f, key->len)) return ends_phrase(t, a->end) || colon;
    bool assigned = f->value > 0 && t.ptr[f->value - 1] == '='; /* turn=12 tokens_left=83211 */
    if (f->sign) return !f->copula && (assigned || ends_phrase(t, a->end)) && !colon;
    if (a->total) return !(step && (colon || dash));
    if (colon) return false;
    if (f->hash) return ends_phrase(t, a->end) && !step;
    return !step && ends_phrase(t, a->end) && begins_sentence(t, f, key->len);
}

/* "let turn = 0": code. */
static bool is_declared(const lar_key_front *f, size_t bytes) {
    static const char *const words[] = {"let", "const", "var", "int", "auto", "mut"};
    for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
        if (lar_key_preceded(f, bytes, words[k])) return true;
    }
    return false;
}

static bool read_counter(lar_slice t, const lar_key_front *f, const lar_key *key, const amount *a, lar_number *out) {
    if (a->unit == UNIT_PERCENT || a->unit == UNIT_MONEY || a->fraction || a->scaled) return false;
    if (a->unit == UNIT_CHARS || (a->unit == UNIT_TOKENS && !a->total)) return false;
    if (a->value > 100000000 || is_declared(f, key->len)) return false;
    bool is;
    if (key->shape == LAR_SHAPE_TOTAL) is = a->total && ends_phrase(t, a->end);
    else if (key->shape == LAR_SHAPE_COUNT) is = (f->sign || f->copula || f->hash || ends_phrase(t, a->end));
    else is = is_counter(t, f, key, a);
    return is && take(out, a->start, a->end, LAR_VOLATILE_COUNTER);
}

/* "[49% - 1,085/2,200 chars]", "(1,085/2,200 chars)". */
static bool meter(lar_slice t, size_t i, const amount *a, lar_number *out) {
    char before = i > 0 ? t.ptr[i - 1] : 0;
    bool open = lar_scan_among(before, "[(") || lar_scan_behind_text(t, i, "（") || lar_scan_behind_text(t, i, "【");
    if (a->unit == UNIT_PERCENT && open) {
        static const char *const dashes[] = {"-", "—", "–", "|", "/", ",", "·", "，", ":"};
        size_t b = lar_clock_skip_blanks(t, a->end);
        for (size_t k = 0; k < sizeof dashes / sizeof *dashes; k++) {
            if (!lar_scan_at_text(t, b, dashes[k])) continue;
            b += strlen(dashes[k]);
            if (lar_scan_at_text(t, b, "—")) b += 3;
            break;
        }
        amount in;
        b = lar_clock_skip_blanks(t, b);
        if (!read_amount(t, b, &in) || !in.total || in.unit == UNIT_MONEY) return false;
        lar_volatile_class c = in.unit == UNIT_TOKENS ? LAR_VOLATILE_BUDGET : LAR_VOLATILE_METER;
        return take(out, i, in.behind, c);
    }
    bool sized = a->total && a->unit == UNIT_CHARS && (a->grouped || a->total_value >= 100);
    return sized && take(out, i, a->end, LAR_VOLATILE_METER);
}

static bool read_by_shape(lar_slice t, const lar_key_front *f, const lar_key *key, const amount *amount_read,
                          lar_number *out) {
    amount a = *amount_read;
    if (a.unit == UNIT_PERCENT && meter(t, f->value, &a, out)) return true;
    switch ((lar_key_shape)key->shape) {
    case LAR_SHAPE_COUNT:
    case LAR_SHAPE_TOTAL:
    case LAR_SHAPE_TURN:
    case LAR_SHAPE_STEP: return read_counter(t, f, key, &a, out);
    case LAR_SHAPE_AMOUNT: return read_keyed_amount(t, f, key, &a, out);
    case LAR_SHAPE_LARGE:
        return (a.grouped || a.scaled || a.total || a.value >= 1000) && !a.fraction &&
               read_keyed_amount(t, f, key, &a, out);
    case LAR_SHAPE_STATE: return read_state(t, f, &a, out);
    case LAR_SHAPE_AREA: return read_area(t, f, &a, out);
    default: return false;
    }
}

bool lar_number_read(lar_slice t, const lar_key_front *f, const lar_key *key, lar_number *out) {
    amount a;
    if (!read_amount(t, f->value, &a) || !read_by_shape(t, f, key, &a, out)) return false;
    if (speaks_of_limit(t, f->value)) return false;
    if (a.behind > out->end) out->behind = a.behind;
    return true;
}

/* -- without a key ------------------------------------------------------------------------------------------------ */

/* 第12轮, 第7步（共20步）, 第3次迭代. */
static bool ordinal_zh(lar_slice t, size_t i, const amount *a, lar_number *out) {
    static const char *const turns[] = {"轮", "輪", "回合", "次迭代", "次调用", "次请求", "次尝试", "次循环", "次交互"};
    static const char *const now[] = {"当前", "目前", "现在", "正在", "这是", "处于", "本次", "當前", "現在", "正处"};
    size_t head = i;
    while (head > 0 && t.ptr[head - 1] == ' ') head--;
    if (!lar_scan_behind_text(t, head, "第")) return false;
    head -= 3;
    size_t at = lar_clock_skip_blanks(t, a->end);
    bool total_first = lar_scan_at(t, at, '/'); /* 第12/40轮 */
    for (at += total_first; total_first && at < t.len && lar_scan_is_digit(t.ptr[at]);) at++;
    size_t e = ANY_WORD_AT(t, at, turns);
    bool step = !e && (lar_scan_at_text(t, at, "步") || lar_scan_at_text(t, at, "条消息"));
    if (step) e = at + (lar_scan_at_text(t, at, "步") ? 3 : 9);
    if (!e) return false;
    lar_scan_low_text low;
    lar_scan_lower(t, lar_scan_sentence(t, lar_scan_line_before(t, head, 36, 0), head), head, &low);
    for (size_t k = 0; k < sizeof now / sizeof *now; k++) {
        if (lar_scan_find(&low, now[k]) != SIZE_MAX) return take(out, i, a->end, LAR_VOLATILE_COUNTER);
    }
    amount total = *a;
    total.total = false;
    if (read_total(t, e, &total) != e && total.total) return take(out, i, a->end, LAR_VOLATILE_COUNTER);
    if (step) return false;
    size_t b = lar_scan_sentence(t, lar_scan_line_before(t, head, 36, 0), head);
    bool first = b == head || lar_scan_behind_text(t, head, "，") || lar_scan_behind_text(t, head, "（") ||
                 lar_scan_behind_text(t, head, "【") || lar_scan_among(t.ptr[head - 1], "[(|*# ");
    static const char *const more[] = {"对话", "会话", "交互", "迭代", "，", "。", "（", "】", "）", "；"};
    bool ends = e >= t.len || !lar_scan_is_wide(t.ptr[e]) || ANY_WORD_AT(t, e, more);
    return first && ends && !lar_scan_at(t, e, ':') && take(out, i, a->end, LAR_VOLATILE_COUNTER);
}

static bool read_alone(lar_slice t, size_t i, amount a, lar_number *out) {
    bool wide = i > 0 && lar_scan_is_wide(t.ptr[i - 1]);
    if (i > 0 && !wide && lar_scan_is_alnum(t.ptr[i - 1])) return false;
    if (ordinal_zh(t, i, &a, out)) return !speaks_of_limit(t, i) || lar_scan_behind_text(t, i, "第");
    if (meter(t, i, &a, out)) return !speaks_of_limit(t, i);
    size_t s = state_at(t, a.behind);
    if (a.unit == UNIT_NONE && s && (a.grouped || a.scaled || a.value >= 1000)) {
        lar_volatile_class c;
        return share_of(t, a.start, a.end, &c) && !speaks_of_limit(t, i) && take(out, a.start, a.end, c);
    }
    if (a.unit == UNIT_NONE || a.unit == UNIT_CHARS) return false;
    bool state = s || (a.total && a.unit == UNIT_TOKENS && (a.scaled || a.grouped || a.total_value >= 1000));
    if (!state || speaks_of_limit(t, i)) return false;
    return take_state(t, &a, out);
}

/* Whether the words around a number can make it a state: most numbers are told by the byte behind them. */
static bool may_be_alone(lar_slice t, size_t i) {
    static const char *const han[] = {"令", "词", "權", "轮", "輪", "步", "次", "回", "字", "元", "美", "人", "个",
                                      "個", "条", "條", "已", "剩", "可", "共", "（", "，", "万", "萬", "％", "】"};
    if (!lar_scan_is_digit(t.ptr[i])) return true;
    size_t e = i;
    while (e < t.len && (lar_scan_is_digit(t.ptr[e]) || lar_scan_among(t.ptr[e], ",.%"))) e++;
    size_t b = skip_marks(t, e);
    if (b >= t.len) return lar_scan_behind_text(t, i, "第");
    char c = t.ptr[b];
    if (lar_scan_is_letter(c)) return true;
    if (c == '/' || c == '(' || c == '-' || c == '|') return true;
    if (!lar_scan_is_wide(c)) return t.ptr[e - 1] == ',' || lar_scan_behind_text(t, i, "$");
    if ((unsigned char)c == 0xE2) return true; /* a long dash */
    for (size_t k = 0; k < sizeof han / sizeof *han; k++) {
        if (lar_scan_at_text(t, b, han[k])) return true;
    }
    return lar_scan_behind_text(t, i, "第");
}

bool lar_number_alone(lar_slice t, size_t i, lar_number *out) {
    amount a;
    if (!may_be_alone(t, i) || lar_scan_behind_text(t, i, " of ")) return false; /* a total */
    if (!read_amount(t, i, &a) || !read_alone(t, i, a, out)) return false;
    if (a.behind > out->end) out->behind = a.behind;
    return true;
}
