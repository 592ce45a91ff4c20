/* Regular expressions: single characters, escapes and bracketed classes become sets of code points.
 * Flow: regex_parse.c calls for every class of a pattern. Any thread; blocks on nothing but malloc.
 * Nested classes are kept on a stack of their own, so that a hostile pattern cannot exhaust that of C. */
#include "engine/text/regex.h"

#include "base/utf8.h"

enum { CLASS_DEPTH = 8 };

lar_error lar_regex_refuse(const lar_regex_source *s, size_t at, const char *what) {
    return lar_fail_at(LAR_INVALID, s->diag, at, "the regular expression, at byte %zu: %s", at, what);
}

/* The valid sequence at p as its code point. */
static uint32_t decode(const char *p, size_t len) {
    const unsigned char *c = (const unsigned char *)p;
    if (len == 1) return c[0];
    uint32_t code = c[0] & (0xFFu >> (len + 1));
    for (size_t i = 1; i < len; i++) code = code << 6 | (c[i] & 0x3F);
    return code;
}

lar_error lar_regex_char(lar_regex_source *s, uint32_t *code) {
    const unsigned char *p = (const unsigned char *)s->text.ptr;
    size_t len = lar_utf8_sequence(p + s->at, p + s->text.len);
    if (len == 0) return lar_regex_refuse(s, s->at, "it is not valid UTF-8");
    *code = decode(s->text.ptr + s->at, len);
    s->at += len;
    return LAR_OK;
}

static bool next_is(const lar_regex_source *s, const char *what) {
    return lar_slice_starts(lar_slice_of(s->text.ptr + s->at, s->text.len - s->at), lar_slice_cstr(what));
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* `most` hexadecimal digits or fewer, behind s->at. */
static uint32_t hex(lar_regex_source *s, uint32_t most) {
    uint32_t value = 0;
    for (uint32_t i = 0; i < most && s->at < s->text.len && hex_digit(s->text.ptr[s->at]) >= 0; i++)
        value = value << 4 | (uint32_t)hex_digit(s->text.ptr[s->at++]);
    return value;
}

/* Behind \x or \u. */
static lar_error numbered(lar_regex_source *s, char kind, uint32_t *code) {
    size_t at = s->at - 2;
    bool braced = kind == 'x' && next_is(s, "{");
    s->at += braced;
    size_t digits = s->at;
    *code = hex(s, braced ? 6 : kind == 'x' ? 2 : 4);
    digits = s->at - digits;
    bool whole = braced ? digits > 0 && next_is(s, "}") : digits == (kind == 'x' ? 2 : 4);
    s->at += braced;
    if (!whole || *code >= LAR_CODES) return lar_regex_refuse(s, at, "a character's number is written wrongly");
    return LAR_OK;
}

/* Behind \p or \P: {Name} or {^Name}. */
static lar_error property(lar_regex_source *s, bool negated, lar_codeset *set) {
    size_t at = s->at - 2;
    if (!next_is(s, "{")) return lar_regex_refuse(s, at, "\\p stands without {name}");
    s->at++;
    if (next_is(s, "^")) {
        negated = !negated;
        s->at++;
    }
    const char *name = s->text.ptr + s->at, *end = memchr(name, '}', s->text.len - s->at);
    if (!end) return lar_regex_refuse(s, at, "\\p{ is not closed");
    s->at += (size_t)(end - name) + 1;
    lar_codeset named = {0};
    lar_error e = lar_codeset_add_named(&named, lar_slice_of(name, (size_t)(end - name)));
    if (e == LAR_NOT_FOUND)
        e = lar_regex_refuse(s, at, "this property is not supported (general categories, Han and White_Space are)");
    if (!e && negated) e = lar_codeset_negate(&named);
    if (!e) e = lar_codeset_unite(set, &named);
    lar_codeset_release(&named);
    return e;
}

static lar_error add_named(lar_codeset *set, const char *name, bool negated) {
    lar_codeset named = {0};
    lar_error e = lar_codeset_add_named(&named, lar_slice_cstr(name));
    if (!e && negated) e = lar_codeset_negate(&named);
    if (!e) e = lar_codeset_unite(set, &named);
    lar_codeset_release(&named);
    return e;
}

/* The character of an escape that stands for one, LAR_CODES for others. */
static uint32_t plain_escape(uint32_t c) {
    static const char letters[] = "nrtfvae", values[] = "\n\r\t\f\v\a\x1B";
    const char *known = c < 0x80 ? strchr(letters, (int)c) : NULL;
    if (known && c) return (uint32_t)values[known - letters];
    bool alphanumeric = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    return alphanumeric ? LAR_CODES : c;
}

lar_error lar_regex_escape(lar_regex_source *s, lar_codeset *set, uint32_t *single) {
    size_t at = s->at++;
    uint32_t c;
    if (s->at == s->text.len) return lar_regex_refuse(s, at, "it ends in a backslash");
    lar_error e = lar_regex_char(s, &c);
    if (e) return e;
    *single = LAR_CODES;
    switch (c) {
    case 'p': return property(s, false, set);
    case 'P': return property(s, true, set);
    case 's': return add_named(set, "White_Space", false);
    case 'S': return add_named(set, "White_Space", true);
    case 'd': return add_named(set, "Nd", false);
    case 'D': return add_named(set, "Nd", true);
    case 'x':
    case 'u': e = numbered(s, (char)c, single); break;
    default: *single = plain_escape(c);
    }
    if (e) return e;
    if (*single == LAR_CODES) return lar_regex_refuse(s, at, "this escape is not supported");
    return lar_codeset_add(set, *single, *single);
}

/* One bracketed class that is being read. */
typedef struct open_class {
    lar_codeset all;     /* of the operands of && before the present one */
    lar_codeset present; /* the present operand */
    bool joined;         /* there was a && */
    bool negated;
    bool empty; /* nothing stands in the present operand yet */
} open_class;

static lar_error close_operand(open_class *c) {
    lar_error e = c->joined ? lar_codeset_intersect(&c->all, &c->present) : lar_codeset_unite(&c->all, &c->present);
    lar_codeset_release(&c->present);
    c->joined = true;
    c->empty = true;
    return e;
}

/* Whether the '-' at s->at makes a range: between two characters, not before ']' or &&. */
static bool range_follows(const lar_regex_source *s) {
    lar_regex_source behind = *s;
    behind.at++;
    return next_is(s, "-") && behind.at < s->text.len && !next_is(&behind, "]") && !next_is(&behind, "&&");
}

/* One character, escape or range of a class. */
static lar_error member(lar_regex_source *s, open_class *c) {
    uint32_t first, last;
    size_t at = s->at;
    lar_error e;
    if (next_is(s, "\\")) {
        e = lar_regex_escape(s, &c->present, &first);
    } else {
        e = lar_regex_char(s, &first);
        if (!e) e = lar_codeset_add(&c->present, first, first);
    }
    c->empty = false;
    if (e || !range_follows(s)) return e;
    if (first == LAR_CODES) return lar_regex_refuse(s, at, "a range begins with a set");
    s->at++;
    lar_codeset ignored = {0};
    if (next_is(s, "\\")) e = lar_regex_escape(s, &ignored, &last);
    else if (next_is(s, "[")) e = lar_regex_refuse(s, at, "a range ends in a class");
    else e = lar_regex_char(s, &last);
    lar_codeset_release(&ignored);
    if (e) return e;
    if (last == LAR_CODES || last < first) return lar_regex_refuse(s, at, "a range ends before it begins, or in a set");
    return lar_codeset_add(&c->present, first, last);
}

static lar_error open_bracket(lar_regex_source *s, open_class *c) {
    *c = (open_class){.empty = true};
    if (next_is(s, "[:") || next_is(s, "[.") || next_is(s, "[="))
        return lar_regex_refuse(s, s->at, "a class of POSIX is not supported; write \\p{..}");
    s->at++;
    if (next_is(s, "^")) {
        c->negated = true;
        s->at++;
    }
    if (!next_is(s, "]")) return LAR_OK;
    /* "]" in front is a character, as in "[]a]" */
    s->at++;
    c->empty = false;
    return lar_codeset_add(&c->present, ']', ']');
}

/* The whole of a class that ends at the ']' at s->at, into `to`. */
static lar_error close_bracket(lar_regex_source *s, open_class *c, lar_codeset *to) {
    lar_error e = c->empty ? lar_regex_refuse(s, s->at, "a class or an operand of && is empty") : close_operand(c);
    s->at++;
    if (!e && c->negated) e = lar_codeset_negate(&c->all);
    if (!e) e = lar_codeset_unite(to, &c->all);
    lar_codeset_release(&c->all);
    lar_codeset_release(&c->present);
    return e;
}

static lar_error class_step(lar_regex_source *s, open_class *stack, uint32_t *depth, lar_codeset *set) {
    open_class *c = &stack[*depth - 1];
    if (next_is(s, "]")) {
        (*depth)--;
        if (*depth) stack[*depth - 1].empty = false;
        return close_bracket(s, c, *depth ? &stack[*depth - 1].present : set);
    }
    if (next_is(s, "[")) {
        if (*depth == CLASS_DEPTH) return lar_regex_refuse(s, s->at, "classes are nested too deeply");
        return open_bracket(s, &stack[(*depth)++]);
    }
    if (!next_is(s, "&&")) return member(s, c);
    if (c->empty) return lar_regex_refuse(s, s->at, "an operand of && is empty");
    s->at += 2;
    return close_operand(c);
}

lar_error lar_regex_class(lar_regex_source *s, lar_codeset *set) {
    open_class stack[CLASS_DEPTH];
    uint32_t depth = 1;
    size_t at = s->at;
    lar_error e = open_bracket(s, &stack[0]);
    while (!e && depth) {
        if (s->at == s->text.len) e = lar_regex_refuse(s, at, "a class is not closed");
        else e = class_step(s, stack, &depth, set);
    }
    while (depth) {
        lar_codeset_release(&stack[--depth].all);
        lar_codeset_release(&stack[depth].present);
    }
    return e;
}
