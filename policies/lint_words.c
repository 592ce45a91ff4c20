/* LR108 and LR109: ids that no key names, and values that only the linter looks for.
 * Called by lint_units.c behind the scan for classes; pure; no memory; never blocks.
 * Why apart from the classes: such a form is content as often as not, so no rule may ever edit it.
 * Invariants: 1. spans are sorted and apart. 2. nothing in a code fence is taken. 3. each line is read once. */
#include "policies/lint_state.h"
#include "policies/rules/scan_text.h"

enum { VALUE_MAX = 80, UUID_BYTES = 36, ULID_BYTES = 26 };

typedef struct word {
    const char *key, *text;
    bool digit;   /* the value must hold one */
    bool suspect; /* one sighting says enough */
} word;

static const word words[] = {
    {"battery", "how full a battery is", true, true},
    {"电量", "how full a battery is", true, true},
    {"weather", "the weather", false, true},
    {"天气", "the weather", false, true},
    {"active users", "who is there", false, true},
    {"online users", "who is there", false, true},
    {"users online", "who is there", false, true},
    {"在线用户", "who is there", false, true},
    {"在线", "who is there", false, true},
    {"uptime", "how long a machine has run", true, true},
    {"运行时间", "how long a machine has run", true, true},
    {"location", "a place", false, false},
    {"位置", "a place", false, false},
    {"农历", "a date of the lunar calendar", false, true},
};

static bool is_word(char c) { return lar_scan_is_alnum(c) || lar_scan_is_wide(c) || c == '_'; }

/* RFC 9562, versions 4 and 7: random or of a time; not the constant examples of manuals. */
static bool is_uuid(lar_slice t, size_t i) {
    if (t.len - i < UUID_BYTES) return false;
    for (size_t k = 0; k < UUID_BYTES; k++) {
        bool dash = k == 8 || k == 13 || k == 18 || k == 23;
        if (dash ? t.ptr[i + k] != '-' : !lar_scan_is_hex(t.ptr[i + k])) return false;
    }
    char version = t.ptr[i + 14], variant = (char)(t.ptr[i + 19] | 32);
    return (version == '4' || version == '7') && (variant == '8' || variant == '9' || variant == 'a' || variant == 'b');
}

static bool is_ulid(lar_slice t, size_t i) {
    if (t.len - i < ULID_BYTES || t.ptr[i] < '0' || t.ptr[i] > '7') return false;
    unsigned digits = 0, letters = 0;
    for (size_t k = 0; k < ULID_BYTES; k++) {
        char c = t.ptr[i + k];
        if (c >= '0' && c <= '9') digits++;
        else if (c >= 'A' && c <= 'Z' && c != 'I' && c != 'L' && c != 'O' && c != 'U') letters++;
        else return false;
    }
    return digits >= 6 && letters >= 6;
}

static size_t id_at(lar_slice t, size_t i) {
    size_t n = is_uuid(t, i) ? UUID_BYTES : is_ulid(t, i) ? ULID_BYTES : 0;
    return n && (i + n == t.len || (!is_word(t.ptr[i + n]) && t.ptr[i + n] != '-')) ? n : 0;
}

static bool is_mark(char c) {
    return c == ' ' || c == '\t' || c == '-' || c == '*' || c == '#' || c == '>' || c == '<' || c == '"' || c == '[' ||
           c == '_' || c == '(';
}

/* Behind the key: marks of Markdown, a colon, an equals sign, "is", a tag's end; 0 if the key goes on as a word. */
static size_t skip_separator(lar_slice t, size_t i, bool *strong) {
    size_t from = i;
    *strong = false;
    for (;;) {
        if (i < t.len && (is_mark(t.ptr[i]) || t.ptr[i] == ']' || t.ptr[i] == ')')) i++;
        else if (i < t.len && (t.ptr[i] == ':' || t.ptr[i] == '=')) i++, *strong = true;
        else if (t.len - i >= 3 && memcmp(t.ptr + i, "：", 3) == 0) i += 3, *strong = true;
        else if (i > from && t.len - i >= 3 && memcmp(t.ptr + i, "is ", 3) == 0) i += 3;
        else break;
    }
    return i;
}

static size_t value_end(lar_slice t, size_t i, const char *key) {
    bool lunar = strcmp(key, "农历") == 0;
    size_t end = i;
    while (end < t.len && end - i < VALUE_MAX && t.ptr[end] != '<' && t.ptr[end] != '"') {
        if (t.len - end >= 3 && (memcmp(t.ptr + end, "。", 3) == 0 || (lunar && memcmp(t.ptr + end, "，", 3) == 0)))
            break;
        if (t.ptr[end] == '.' && (end + 1 == t.len || t.ptr[end + 1] == ' ')) break;
        end++;
    }
    while (end < t.len && end > i && (t.ptr[end] & 0xC0) == 0x80) end--; /* the border of a character */
    while (end > i && (t.ptr[end - 1] == ' ' || t.ptr[end - 1] == '*' || t.ptr[end - 1] == ']')) end--;
    return end;
}

/* A value of the table at the beginning of a line; false if there is none. Offsets are those of `line`. */
static bool read_word(lar_slice line, lar_lint_span *s) {
    size_t at = 0;
    while (at < line.len && is_mark(line.ptr[at])) at++;
    lar_slice rest = lar_slice_of(line.ptr + at, line.len - at);
    for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
        lar_slice key = lar_slice_cstr(words[w].key);
        if (!lar_slice_starts_i(rest, key)) continue;
        bool strong, digits = false;
        size_t from = skip_separator(line, at + key.len, &strong), end = value_end(line, from, words[w].key);
        bool ascii = !(key.ptr[0] & 0x80);
        if (end <= from || (ascii && from == at + key.len)) return false;
        for (size_t i = from; i < end; i++) digits = digits || (line.ptr[i] >= '0' && line.ptr[i] <= '9');
        bool lunar = !strong && strcmp(words[w].key, "农历") == 0;
        if (words[w].digit ? !digits : !(strong || lunar)) return false;
        *s = (lar_lint_span){.start = (uint32_t)from,
                             .end = (uint32_t)end,
                             .label_start = (uint32_t)at,
                             .label_end = (uint32_t)(at + key.len),
                             .rule = LAR_RULE_LR109,
                             .mask = (uint8_t)(LAR_LINT_ONLY_CLASS + 1 + w),
                             .key_word = words[w].suspect,
                             .text = words[w].text};
        s->slot = lar_hash_chain(lar_hash_of(LAR_SLICE("LR109")), key);
        return true;
    }
    return false;
}

typedef struct adding {
    lar_lint_span *spans;
    uint32_t known, count, room; /* the first `known` were there before */
    uint32_t next;               /* of those: the first that does not lie before the place read */
} adding;

static bool is_taken(adding *a, uint32_t start, uint32_t end) {
    while (a->next < a->known && a->spans[a->next].end <= start) a->next++;
    return a->next < a->known && a->spans[a->next].start < end;
}

static void add(adding *a, lar_lint_span s) {
    if (a->count < a->room && !is_taken(a, s.start, s.end)) a->spans[a->count++] = s;
}

static void read_line(adding *a, lar_slice text, size_t from, size_t end) {
    lar_slice line = lar_slice_of(text.ptr + from, end - from);
    lar_lint_span s;
    uint32_t at = (uint32_t)from;
    if (read_word(line, &s)) {
        s.start += at, s.end += at, s.label_start += at, s.label_end += at;
        add(a, s);
        return;
    }
    for (size_t i = 0; i < line.len;) {
        size_t n = i == 0 || !(is_word(line.ptr[i - 1]) || line.ptr[i - 1] == '-') ? id_at(line, i) : 0;
        if (n) {
            uint32_t label = at + (uint32_t)(i > 40 ? i - 40 : 0);
            while (label < at + i && (text.ptr[label] & 0xC0) == 0x80) label++;
            s = (lar_lint_span){.start = at + (uint32_t)i,
                                .end = at + (uint32_t)(i + n),
                                .label_start = label,
                                .label_end = at + (uint32_t)i,
                                .rule = LAR_RULE_LR108,
                                .mask = LAR_LINT_ONLY_CLASS,
                                .key_word = true,
                                .text = "an id that no key names"};
            s.slot = lar_hash_chain(lar_hash_of(LAR_SLICE("LR108")), lar_slice_of(text.ptr + label, s.start - label));
            add(a, s);
        }
        i += n ? n : 1;
    }
}

uint32_t lar_lint_words(lar_slice text, lar_lint_span *spans, uint32_t count, uint32_t room) {
    adding a = {.spans = spans, .known = count, .count = count, .room = room};
    bool fence = false;
    for (size_t i = 0; i < text.len;) {
        const char *nl = memchr(text.ptr + i, '\n', text.len - i);
        size_t end = nl ? (size_t)(nl - text.ptr) : text.len, behind = nl ? end + 1 : end;
        if (end > i && text.ptr[end - 1] == '\r') end--;
        lar_slice line = lar_slice_trim(lar_slice_of(text.ptr + i, end - i));
        if (lar_slice_starts(line, LAR_SLICE("```")) || lar_slice_starts(line, LAR_SLICE("~~~"))) fence = !fence;
        else if (!fence) read_line(&a, text, i, end);
        i = behind;
    }
    /* Both parts are sorted: the new ones go where they belong. */
    for (uint32_t i = a.known; i < a.count; i++) {
        lar_lint_span s = spans[i];
        uint32_t k = i;
        for (; k > 0 && spans[k - 1].start > s.start; k--) spans[k] = spans[k - 1];
        spans[k] = s;
    }
    return a.count;
}
