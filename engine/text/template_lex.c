/* Splits a template into text and tokens, with Jinja's white space control: trim_blocks, lstrip_blocks, `-` and `+`.
 * Flow: the parser pulls tokens. Thread: the parser's. Never blocks.
 * Why white space is done here: what is stripped depends on the marks on both sides of a text, which only the lexer
 * sees. Invariants: 1. `at` never passes the source's end. 2. line ends of the source are LF already.
 * Source: Jinja2 3.1, lexer.py's rules for `root` and the signs behind `{%`. */
#include "engine/text/template_lex.h"

#include "base/utf8.h"

static lar_slice source_of(const lar_tpl_lexer *l) { return l->w->source; }

static bool starts_at(const lar_tpl_lexer *l, uint32_t at, const char *text) {
    lar_slice s = source_of(l);
    size_t n = strlen(text);
    return s.len - at >= n && memcmp(s.ptr + at, text, n) == 0;
}

static lar_error bad(lar_tpl_lexer *l, uint32_t at, const char *what) {
    l->w->at = at;
    return lar_tpl_fail(l->w, LAR_INVALID, "%s", what);
}

static uint32_t skip_space(const lar_tpl_lexer *l, uint32_t at) {
    lar_slice s = source_of(l);
    const char *p;
    while (at < s.len && (p = lar_tpl_space(s.ptr + at, s.ptr + s.len)) != NULL) at = (uint32_t)(p - s.ptr);
    return at;
}

/* `end` without the white space before it, down to `from`. Space characters end a sequence, so that looking at every
 * character from the front finds them. */
static uint32_t without_space(const lar_tpl_lexer *l, uint32_t from, uint32_t end) {
    uint32_t keep = from;
    for (uint32_t at = from; at < end;) {
        uint32_t next = skip_space(l, at);
        if (next >= end) return keep;
        keep = at = next + 1;
    }
    return keep;
}

/* The start of the last line of [from, end) if there is nothing but white space on it before `end`; else `end`. */
static uint32_t without_indent(const lar_tpl_lexer *l, uint32_t from, uint32_t end) {
    const char *p = source_of(l).ptr;
    uint32_t line = end;
    while (line > from && p[line - 1] != '\n') line--;
    if (line == from && from > 0 && p[from - 1] != '\n') return end;
    return skip_space(l, line) >= end ? line : end;
}

/* Offset of the next `{%`, `{{` or `{#`; the length if there is none. */
static uint32_t find_mark(const lar_tpl_lexer *l, uint32_t at) {
    lar_slice s = source_of(l);
    for (; at + 1 < s.len; at++)
        if (s.ptr[at] == '{' && (s.ptr[at + 1] == '%' || s.ptr[at + 1] == '{' || s.ptr[at + 1] == '#')) return at;
    return (uint32_t)s.len;
}

/* Behind a closing mark of two bytes at `at`, with its sign: what of the next text is dropped. */
static void close_mark(lar_tpl_lexer *l, uint32_t at, char sign, bool drop_line) {
    l->at = at + 2;
    l->trim = sign == '-';
    l->trim_line = drop_line && sign == 0;
}

static lar_error skip_comment(lar_tpl_lexer *l) {
    lar_slice s = source_of(l);
    const char *end = memmem(s.ptr + l->at + 2, s.len - l->at - 2, "#}", 2);
    if (!end) return bad(l, l->at, "a comment without its end #}");
    uint32_t at = (uint32_t)(end - s.ptr);
    char sign = at > l->at + 2 && (end[-1] == '-' || end[-1] == '+') ? end[-1] : 0;
    close_mark(l, at, sign, true);
    return LAR_OK;
}

/* Text up to the next mark, stripped on both sides; TEXT only if something is left. */
static lar_error lex_text(lar_tpl_lexer *l, bool *found) {
    uint32_t from = l->at, mark = find_mark(l, l->at), end = mark;
    lar_slice s = source_of(l);
    if (l->trim) from = skip_space(l, from);
    else if (l->trim_line && from < s.len && s.ptr[from] == '\n') from++;
    if (from > end) from = end;
    char sign = mark + 2 < s.len ? s.ptr[mark + 2] : 0;
    if (mark < s.len && sign == '-') end = without_space(l, from, end);
    else if (mark < s.len && sign != '+' && s.ptr[mark + 1] != '{') end = without_indent(l, from, end);
    l->trim = l->trim_line = false;
    *found = end > from;
    l->token = (lar_tpl_token){LAR_TPL_TOKEN_TEXT, lar_slice_of(s.ptr + from, end - from), from};
    l->at = mark;
    return LAR_OK;
}

static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c >= '0' && c <= '9');
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static lar_error lex_number(lar_tpl_lexer *l) {
    lar_slice s = source_of(l);
    uint32_t at = l->at;
    l->token.kind = LAR_TPL_TOKEN_INTEGER;
    while (at < s.len && is_digit(s.ptr[at])) at++;
    if (at + 1 < s.len && s.ptr[at] == '.' && is_digit(s.ptr[at + 1])) {
        l->token.kind = LAR_TPL_TOKEN_FLOAT;
        for (at++; at < s.len && is_digit(s.ptr[at]);) at++;
    }
    if (at < s.len && (s.ptr[at] == 'e' || s.ptr[at] == 'E')) {
        uint32_t digits = at + 1 < s.len && (s.ptr[at + 1] == '-' || s.ptr[at + 1] == '+') ? at + 2 : at + 1;
        if (digits < s.len && is_digit(s.ptr[digits])) {
            l->token.kind = LAR_TPL_TOKEN_FLOAT;
            for (at = digits; at < s.len && is_digit(s.ptr[at]);) at++;
        }
    }
    if (at < s.len && is_name(s.ptr[at])) return bad(l, l->at, "a number that is not decimal");
    l->token.text = lar_slice_of(s.ptr + l->at, at - l->at);
    l->at = at;
    return LAR_OK;
}

static lar_error lex_quoted(lar_tpl_lexer *l) {
    lar_slice s = source_of(l);
    char quote = s.ptr[l->at];
    uint32_t at = l->at + 1;
    while (at < s.len && s.ptr[at] != quote) at += s.ptr[at] == '\\' ? 2 : 1;
    if (at >= s.len) return bad(l, l->at, "text without its closing quote");
    l->token.kind = LAR_TPL_TOKEN_STRING;
    l->token.text = lar_slice_of(s.ptr + l->at + 1, at - l->at - 1);
    l->at = at + 1;
    return LAR_OK;
}

static lar_error lex_operator(lar_tpl_lexer *l) {
    static const char *const operators[] = {"**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<",
                                            ">",  "=",  "(",  ")",  "[",  "]",  "{", "}", ",", ".", ":", "|"};
    lar_slice s = source_of(l);
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (!starts_at(l, l->at, operators[i])) continue;
        size_t n = strlen(operators[i]);
        char c = operators[i][0];
        if (n == 1 && (c == '(' || c == '[' || c == '{')) l->open++;
        if (n == 1 && (c == ')' || c == ']' || c == '}') && l->open) l->open--;
        l->token.kind = LAR_TPL_TOKEN_OPERATOR;
        l->token.text = lar_slice_of(s.ptr + l->at, n);
        l->at += (uint32_t)n;
        return LAR_OK;
    }
    char text[40] = "a character that means nothing here: ", *end = text + strlen(text);
    *end = s.ptr[l->at] > ' ' && s.ptr[l->at] < 127 ? s.ptr[l->at] : '?';
    return bad(l, l->at, text);
}

/* Inside a tag or an expression. */
static lar_error lex_inside(lar_tpl_lexer *l) {
    lar_slice s = source_of(l);
    l->at = skip_space(l, l->at);
    l->token = (lar_tpl_token){.at = l->at};
    if (l->at >= s.len)
        return bad(l, (uint32_t)s.len, l->is_tag ? "a tag without its end %}" : "an expression without its end }}");
    const char *close = l->is_tag ? "%}" : "}}";
    char c = s.ptr[l->at], sign = c == '-' || (c == '+' && l->is_tag) ? c : 0;
    if (!l->open && starts_at(l, l->at + (sign ? 1 : 0), close)) {
        l->token.kind = l->is_tag ? LAR_TPL_TOKEN_TAG_END : LAR_TPL_TOKEN_PRINT_END;
        l->inside = false;
        close_mark(l, l->at + (sign ? 1 : 0), sign, l->is_tag);
        return LAR_OK;
    }
    if (is_digit(c)) return lex_number(l);
    if (c == '\'' || c == '"') return lex_quoted(l);
    if (!is_name(c)) return lex_operator(l);
    uint32_t from = l->at;
    while (l->at < s.len && is_name(s.ptr[l->at])) l->at++;
    l->token.kind = LAR_TPL_TOKEN_NAME;
    l->token.text = lar_slice_of(s.ptr + from, l->at - from);
    return LAR_OK;
}

lar_error lar_tpl_lex(lar_tpl_lexer *l) {
    if (l->inside) return lex_inside(l);
    lar_slice s = source_of(l);
    for (;;) {
        bool found = false;
        lar_error e = lex_text(l, &found);
        if (e || found) return e;
        l->token = (lar_tpl_token){.kind = LAR_TPL_TOKEN_END, .at = l->at};
        if (l->at >= s.len) return LAR_OK;
        if (s.ptr[l->at + 1] != '#') break;
        e = skip_comment(l);
        if (e) return e;
    }
    l->is_tag = s.ptr[l->at + 1] == '%';
    l->token.kind = l->is_tag ? LAR_TPL_TOKEN_TAG : LAR_TPL_TOKEN_PRINT;
    l->at += 2;
    if (l->at < s.len && (s.ptr[l->at] == '-' || (s.ptr[l->at] == '+' && l->is_tag))) l->at++;
    l->inside = true;
    l->open = 0;
    return LAR_OK;
}

static bool read_hex(lar_slice raw, size_t at, size_t digits, uint32_t *code) {
    *code = 0;
    for (size_t i = at; i < at + digits; i++) {
        if (i >= raw.len) return false;
        char c = raw.ptr[i], low = (char)(c | 0x20);
        if (is_digit(c)) *code = *code * 16 + (uint32_t)(c - '0');
        else if (low >= 'a' && low <= 'f') *code = *code * 16 + (uint32_t)(low - 'a' + 10);
        else return false;
    }
    return true;
}

/* The escape at raw[*at], a backslash: its character, and *at moves behind. What Python does not know stays. */
static bool read_escape(lar_slice raw, size_t *at, uint32_t *code) {
    static const char letters[] = "abfnrtv\\'\"", values[] = "\a\b\f\n\r\t\v\\'\"";
    char c = raw.ptr[*at + 1];
    const char *found = strchr(letters, c);
    size_t hex = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (hex) {
        if (!read_hex(raw, *at + 2, hex, code)) return false;
        *at += 2 + hex;
        return *code < 0x110000 && (*code < 0xD800 || *code > 0xDFFF);
    }
    if (c >= '0' && c <= '7') {
        *code = 0;
        size_t i = *at + 1;
        for (size_t n = 0; n < 3 && i < raw.len && raw.ptr[i] >= '0' && raw.ptr[i] <= '7'; n++, i++)
            *code = *code * 8 + (uint32_t)(raw.ptr[i] - '0');
        *at = i;
        return true;
    }
    if (!found || !c || c == 'N') {
        *code = '\\';
        *at += 1;
        return c != 'N';
    }
    *code = (unsigned char)values[found - letters];
    *at += 2;
    return true;
}

lar_error lar_tpl_lex_string(lar_tpl_lexer *l, lar_slice raw, lar_slice *out) {
    char *p = lar_tpl_alloc(l->w, raw.len + 4);
    if (!p) return lar_tpl_no_memory(l->w);
    size_t n = 0;
    for (size_t at = 0; at < raw.len;) {
        if (raw.ptr[at] == '\\' && at + 1 < raw.len && raw.ptr[at + 1] == '\n') {
            at += 2; /* a line that goes on */
            continue;
        }
        if (raw.ptr[at] != '\\' || at + 1 == raw.len) {
            p[n++] = raw.ptr[at++];
            continue;
        }
        uint32_t code = 0;
        if (!read_escape(raw, &at, &code)) return bad(l, l->token.at, "an escape in text that is no character");
        n += lar_utf8_write(code, p + n);
    }
    *out = lar_slice_of(p, n);
    return LAR_OK;
}
