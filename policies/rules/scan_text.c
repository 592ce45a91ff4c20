/* Words in front of a value, and places where nothing is a state (header: scan_text.h).
 * Called by the scans of clocks and of the other classes; pure; no memory; never blocks.
 * Invariants: 1. what is kept lies on borders of characters. 2. lar_scan_in_example reads each line once a text,
 * and only up to the last candidate. */
#include "policies/rules/scan_text.h"

void lar_scan_lower(lar_slice t, size_t b, size_t e, lar_scan_low_text *out) {
    if (e - b > LAR_SCAN_LOW_MAX) b = e - LAR_SCAN_LOW_MAX;
    out->len = e - b;
    for (size_t i = 0; i < out->len; i++) out->bytes[i] = lar_scan_low(t.ptr[b + i]);
}

size_t lar_scan_find(const lar_scan_low_text *l, const char *word) {
    size_t n = strlen(word), i = 0;
    while (i + n <= l->len) {
        const char *p = memchr(l->bytes + i, word[0], l->len - n + 1 - i);
        if (!p) break;
        i = (size_t)(p - l->bytes);
        if (memcmp(p, word, n) == 0) return i;
        i++;
    }
    return SIZE_MAX;
}

static bool word_stands_at(const lar_scan_low_text *l, size_t i, const char *word) {
    if (l->bytes[i] != word[0]) return false; /* nearly always decided here */
    size_t n = strlen(word);
    if (l->len - i < n || memcmp(l->bytes + i, word, n) != 0) return false;
    return lar_scan_is_wide(word[0]) || i + n == l->len || !lar_scan_is_letter(l->bytes[i + n]);
}

bool lar_scan_has_any(const lar_scan_low_text *l, const char *const *words, size_t count) {
    for (size_t i = 0; i < l->len; i++) {
        bool letter = lar_scan_is_letter(l->bytes[i]);
        if (!letter && ((unsigned char)l->bytes[i] & 0xC0) != 0xC0) continue;
        if (letter && i > 0 && lar_scan_is_letter(l->bytes[i - 1])) continue;
        for (size_t k = 0; k < count; k++) {
            if (word_stands_at(l, i, words[k])) return true;
        }
    }
    return false;
}

size_t lar_scan_sentence(lar_slice t, size_t b, size_t e) {
    static const char *const wide[] = {"。", "！", "？", "；"};
    size_t at = b;
    for (size_t i = b; i < e; i++) {
        char c = t.ptr[i];
        if ((c == '.' || c == '!' || c == '?' || c == ';') && i + 1 < e && t.ptr[i + 1] == ' ') {
            bool eg = c == '.' && i >= 2 && (t.ptr[i - 1] == 'g' || t.ptr[i - 1] == 'e') && t.ptr[i - 2] == '.';
            if (!eg) at = i + 2;
            continue;
        }
        if ((unsigned char)c != 0xE3 && (unsigned char)c != 0xEF) continue;
        for (size_t w = 0; w < 4; w++) {
            if (lar_scan_at_text(t, i, wide[w]) && i + 3 <= e) at = i + 3;
        }
    }
    while (at < e && t.ptr[at] == ' ') at++;
    return at;
}

size_t lar_scan_line_before(lar_slice t, size_t e, size_t reach, size_t floor) {
    size_t b = e, most = e > reach ? e - reach : 0;
    if (most < floor) most = floor;
    while (b > most && t.ptr[b - 1] != '\n' && t.ptr[b - 1] != '\r') b--;
    while (b < e && ((unsigned char)t.ptr[b] & 0xC0) == 0x80) b++;
    return b;
}

bool lar_scan_in_ticks(lar_slice t, size_t b, size_t e) {
    bool inside = false;
    for (size_t i = b; i < e; i++) inside ^= t.ptr[i] == '`';
    return inside;
}

/* "name=" in front of e: what a query begins with. */
static bool query_begins(lar_slice t, size_t b, size_t e) {
    size_t i = b;
    while (i < e && (lar_scan_is_alnum(t.ptr[i]) || lar_scan_among(t.ptr[i], "_-.[]%"))) i++;
    return i > b && i < e && t.ptr[i] == '=';
}

bool lar_scan_in_address(lar_slice t, size_t e) {
    enum { ADDRESS_REACH = 512 };
    size_t most = e > ADDRESS_REACH ? e - ADDRESS_REACH : 0;
    for (size_t b = e; b > most; b--) {
        char c = t.ptr[b - 1];
        if ((unsigned char)c <= ' ' || c == '"' || c == '\'' || c == '<' || c == '>' || c == '`') return false;
        if (c == '/' && lar_scan_behind_text(t, b, "://")) return true;
        if (c == '?' && query_begins(t, b, e)) return true;
    }
    return false;
}

bool lar_scan_speaks_of_example(const lar_scan_low_text *l) {
    static const char *const words[] = {"e.g",      "example", "such as", "format", "cutoff", "cut-off", "sample",
                                        "strftime", "例如",    "比如",    "格式",   "示例",   "截止",    "样例"};
    for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
        if (lar_scan_find(l, words[k]) != SIZE_MAX) return true;
    }
    static const char *const whole[] = {"default", "for instance"};
    return lar_scan_has_any(l, whole, 2);
}

/* -- where nothing is a state ------------------------------------------------------------------------ */

enum { HEAD_MAX = 60 };

/* The line [b, e) without what may stand around a heading. */
static lar_slice bare_line(lar_slice t, size_t b, size_t e) {
    while (b < e && (t.ptr[b] == ' ' || t.ptr[b] == '\t' || t.ptr[b] == '#' || t.ptr[b] == '*' || t.ptr[b] == '-')) b++;
    while (e > b && (t.ptr[e - 1] == ' ' || t.ptr[e - 1] == '*' || t.ptr[e - 1] == '\r' || t.ptr[e - 1] == '#')) e--;
    return lar_slice_of(t.ptr + b, e - b);
}

static bool names_examples(lar_slice line) {
    static const char *const words[] = {"example", "sample", "few-shot", "示例", "样例", "例子", "范例"};
    if (line.len == 0 || line.len > HEAD_MAX) return false;
    lar_scan_low_text low;
    lar_scan_lower(line, 0, line.len, &low);
    for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
        if (lar_scan_find(&low, words[k]) != SIZE_MAX) return true;
    }
    return false;
}

static bool ends_with_colon(lar_slice line) {
    return line.len && (line.ptr[line.len - 1] == ':' || lar_scan_behind_text(line, line.len, "："));
}

/* <example>, <examples>, <example_output ...>, and their ends, at the beginning of a line. */
static int tag_step(lar_slice t, size_t b, size_t e) {
    bool close = b + 1 < e && t.ptr[b + 1] == '/';
    size_t n = b + (close ? 2 : 1);
    if (e - b < 9 || !lar_slice_starts_i(lar_slice_of(t.ptr + n, e - n), LAR_SLICE("example"))) return 0;
    if (close) return -1;
    return memmem(t.ptr + b, e - b, "</", 2) ? 0 : 1;
}

static void read_fence(lar_slice t, size_t b, lar_scan_place *p) {
    if (p->fence && p->fence_mark != t.ptr[b]) return;
    p->fence = !p->fence;
    p->fence_mark = t.ptr[b];
}

static void read_line(lar_slice t, size_t b, size_t e, lar_scan_place *p) {
    size_t i = b;
    while (i < e && (t.ptr[i] == ' ' || t.ptr[i] == '\t')) i++;
    bool blank = i == e || (t.ptr[i] == '\r' && i + 1 == e);
    if (blank) {
        if (p->began) p->paragraph = p->began = false;
        p->diff = false;
        return;
    }
    p->began = p->paragraph;
    char c = t.ptr[i];
    if (c == '`' || c == '~') {
        if (lar_scan_at_text(t, i, "```") || lar_scan_at_text(t, i, "~~~")) read_fence(t, i, p);
        return;
    }
    if (p->fence) return;
    if (c == '@' && lar_scan_at_text(t, i, "@@ -")) p->diff = true;
    else if (p->diff && i == b && c != '+' && c != '-' && c != '\\') p->diff = false;
    if (c == '<') {
        int step = tag_step(t, i, e);
        if (step > 0) p->depth++;
        else if (step < 0 && p->depth > 0) p->depth--;
        else if (step == 0) p->section = false;
    }
    if (lar_scan_at_text(t, i, "---")) p->section = false;
    bool heading = c == '#';
    if (!heading && e - i > HEAD_MAX) return;
    lar_slice line = bare_line(t, i, e);
    if (heading) p->section = names_examples(line);
    else if (ends_with_colon(line) && names_examples(line)) p->paragraph = true, p->began = false;
}

bool lar_scan_in_example(lar_slice t, size_t upto, lar_scan_place *p) {
    while (p->at < upto) {
        const char *nl = memchr(t.ptr + p->at, '\n', t.len - p->at);
        size_t e = nl ? (size_t)(nl - t.ptr) : t.len;
        if (e >= upto) break; /* the line of upto itself says nothing about it */
        read_line(t, p->at, e, p);
        p->at = e + 1;
    }
    if (p->diff && p->at < t.len && p->at <= upto) {
        char c = t.ptr[p->at];
        if (c == '+' || c == '-' || c == ' ' || c == '@') return true;
    }
    return p->fence || p->depth > 0 || p->section || p->paragraph;
}
