/* Methods of strings, lists and dicts: x.split(), x.strip(), x.get() and so on, and what filters share with them.
 * Flow: the machine and template_filter.c call it. Thread: that of the rendering. Never blocks.
 * Invariants: 1. results share or copy the subject's bytes with their origins. 2. every byte looked at is paid for.
 * Source: Python's str, dict and list. Not here: slices and + (template_operate.c). */
#include "base/utf8.h"
#include "engine/text/template_run.h"

static lar_error need_text(lar_tpl_work *w, lar_tpl v, const char *what) {
    if (v.kind == LAR_TPL_STRING) return LAR_OK;
    return lar_tpl_fail(w, LAR_INVALID, "%s of %s; it needs text", what, lar_tpl_kind_name(v));
}

/* -- upper and lower case ----------------------------------------------------------------------------------- */

static uint32_t to_lower(uint32_t c) {
    if (c >= 'A' && c <= 'Z') return c + 32;
    if ((c >= 0xC0 && c <= 0xDE && c != 0xD7) || (c >= 0x391 && c <= 0x3A9) || (c >= 0x410 && c <= 0x42F))
        return c + 32;
    if (c >= 0x400 && c <= 0x40F) return c + 80;
    bool even = (c >= 0x100 && c <= 0x137 && c != 0x130) || (c >= 0x14A && c <= 0x177) || (c >= 0x460 && c <= 0x481) ||
                (c >= 0x48A && c <= 0x4BF) || (c >= 0x1E00 && c <= 0x1E95) || (c >= 0x1EA0 && c <= 0x1EFF);
    bool odd = (c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17E);
    return even ? c | 1 : odd ? c + (c & 1) : c;
}

static uint32_t to_upper(uint32_t c) {
    if (c >= 'a' && c <= 'z') return c - 32;
    if ((c >= 0xE0 && c <= 0xFE && c != 0xF7) || (c >= 0x3B1 && c <= 0x3C9 && c != 0x3C2) || (c >= 0x430 && c <= 0x44F))
        return c - 32;
    if (c >= 0x450 && c <= 0x45F) return c - 80;
    if (c == 0x3C2) return 0x3A3;
    bool even = (c >= 0x100 && c <= 0x137 && c != 0x131) || (c >= 0x14A && c <= 0x177) || (c >= 0x460 && c <= 0x481) ||
                (c >= 0x48A && c <= 0x4BF) || (c >= 0x1E00 && c <= 0x1E95) || (c >= 0x1EA0 && c <= 0x1EFF);
    bool odd = (c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17E);
    return even ? c & ~1u : odd ? c - !(c & 1) : c;
}

static bool is_letter(uint32_t c) {
    return to_lower(c) != c || to_upper(c) != c || (c >= 0x80 && c != 0xD7 && c != 0xF7 && c > 0xBF);
}

static uint32_t decode(const char *p, size_t len) {
    static const unsigned char lead[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t code = (unsigned char)p[0] & lead[len];
    for (size_t i = 1; i < len; i++) code = code << 6 | ((unsigned char)p[i] & 63);
    return code;
}

static size_t char_len(const char *p) {
    unsigned char c = (unsigned char)*p;
    return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

lar_error lar_tpl_recase(lar_tpl_work *w, const lar_tpl_string *s, lar_tpl_case how, lar_tpl *out) {
    lar_tpl_out o = {.w = w};
    lar_error e = lar_tpl_pay(w, s->len / 16);
    bool first = true;
    for (uint32_t at = 0, n; !e && at < s->len; at += n) {
        n = (uint32_t)char_len(s->ptr + at);
        uint32_t code = decode(s->ptr + at, n);
        bool upper = how == LAR_TPL_UPPER || (first && how != LAR_TPL_LOWER);
        uint32_t changed = upper ? to_upper(code) : to_lower(code);
        first = how == LAR_TPL_TITLE && !is_letter(code);
        char text[4];
        lar_tpl piece; /* through a cut, for the origin of the character */
        if (changed == code) {
            e = lar_tpl_out_cut(&o, s, at, at + n);
            continue;
        }
        size_t len = lar_utf8_write(changed, text);
        e = lar_tpl_string_cut(w, s, at, at + n, &piece);
        if (!e) e = lar_tpl_out_add(&o, text, len, piece.as.string->origin);
    }
    return e ? e : lar_tpl_out_finish(&o, out);
}

/* -- strip, split, replace, join -------------------------------------------------------------------------------- */

static bool strips(const char *p, size_t len, const lar_tpl *chars) {
    if (!chars) {
        const char *end = lar_tpl_space(p, p + len);
        return end == p + len;
    }
    lar_slice set = lar_tpl_slice(*chars);
    return memmem(set.ptr, set.len, p, len) != NULL; /* UTF-8: a character is found only where one begins */
}

lar_error lar_tpl_strip(lar_tpl_work *w, const lar_tpl_string *s, const lar_tpl *chars, lar_tpl_side side,
                        lar_tpl *out) {
    uint32_t from = 0, to = s->len;
    if (chars && chars->kind == LAR_TPL_NONE) chars = NULL;
    lar_error e = chars ? need_text(w, *chars, "strip") : LAR_OK;
    if (e) return e;
    while ((side & LAR_TPL_LEFT) && from < to && strips(s->ptr + from, char_len(s->ptr + from), chars))
        from += (uint32_t)char_len(s->ptr + from);
    while ((side & LAR_TPL_RIGHT) && from < to) {
        uint32_t last = to - 1;
        while (((unsigned char)s->ptr[last] & 0xC0) == 0x80) last--;
        if (!strips(s->ptr + last, to - last, chars)) break;
        to = last;
    }
    e = lar_tpl_pay(w, (s->len - (to - from)) / 16 * (chars ? 1 + chars->as.string->len / 16 : 1));
    return e ? e : lar_tpl_string_cut(w, s, from, to, out);
}

static lar_error add_piece(lar_tpl_work *w, const lar_tpl_string *s, uint32_t from, uint32_t to, lar_tpl_list *l) {
    lar_tpl piece;
    lar_error e = lar_tpl_string_cut(w, s, from, to, &piece);
    if (!e) e = lar_tpl_pay(w, 1);
    return e ? e : lar_tpl_list_add(w, l, piece);
}

static uint32_t skip_space(const lar_tpl_string *s, uint32_t at, bool space) {
    while (at < s->len && strips(s->ptr + at, char_len(s->ptr + at), NULL) == space)
        at += (uint32_t)char_len(s->ptr + at);
    return at;
}

/* At white space, as often as `most` says; what is left keeps its own inside and at its end. */
static lar_error split_space(lar_tpl_work *w, const lar_tpl_string *s, int64_t most, lar_tpl_list *l) {
    lar_error e = LAR_OK;
    uint32_t at = skip_space(s, 0, true);
    while (!e && at < s->len) {
        uint32_t end = most >= 0 && l->count >= most ? s->len : skip_space(s, at, false);
        e = add_piece(w, s, at, end, l);
        at = skip_space(s, end, true);
    }
    return e;
}

static lar_error split_text(lar_tpl_work *w, const lar_tpl_string *s, lar_slice by, int64_t most, lar_tpl_list *l) {
    uint32_t from = 0;
    lar_error e = LAR_OK;
    while (!e && (most < 0 || l->count < most)) {
        const char *found = memmem(s->ptr + from, s->len - from, by.ptr, by.len);
        if (!found) break;
        uint32_t at = (uint32_t)(found - s->ptr);
        e = add_piece(w, s, from, at, l);
        from = at + (uint32_t)by.len;
    }
    return e ? e : add_piece(w, s, from, s->len, l);
}

/* From the end: pieces are gathered backwards and turned round. */
static lar_error rsplit_text(lar_tpl_work *w, const lar_tpl_string *s, lar_slice by, int64_t most, lar_tpl_list *l) {
    uint32_t to = s->len, at = s->len;
    lar_error e = LAR_OK;
    while (!e && (most < 0 || l->count < most) && at >= by.len) {
        at -= (uint32_t)by.len;
        while (at > 0 && memcmp(s->ptr + at, by.ptr, by.len) != 0) at--;
        if (memcmp(s->ptr + at, by.ptr, by.len) != 0) break;
        e = add_piece(w, s, at + (uint32_t)by.len, to, l);
        to = at;
    }
    if (!e) e = add_piece(w, s, 0, to, l);
    for (uint32_t i = 0; !e && i < l->count / 2; i++) {
        lar_tpl t = l->items[i];
        l->items[i] = l->items[l->count - 1 - i];
        l->items[l->count - 1 - i] = t;
    }
    return e;
}

static lar_error split(lar_tpl_work *w, const lar_tpl_string *s, const lar_tpl_call *c, bool from_end, lar_tpl *out) {
    const lar_tpl *by = lar_tpl_argument(c, 0, "sep"), *count = lar_tpl_argument(c, 1, "maxsplit");
    int64_t most = count && count->kind == LAR_TPL_INT ? count->as.integer : -1;
    lar_error e = lar_tpl_list_new(w, LAR_TPL_LIST, 0, out);
    if (!e) e = lar_tpl_pay(w, s->len / 16);
    if (e) return e;
    if (count && count->kind != LAR_TPL_INT)
        return lar_tpl_fail(w, LAR_INVALID, "split at most %s times", lar_tpl_kind_name(*count));
    if (!by || by->kind == LAR_TPL_NONE) {
        if (from_end) return lar_tpl_fail(w, LAR_INVALID, "rsplit at white space is not supported");
        return split_space(w, s, most, out->as.list);
    }
    e = need_text(w, *by, "split");
    if (e) return e;
    if (!by->as.string->len) return lar_tpl_fail(w, LAR_INVALID, "split by nothing");
    if (from_end) return rsplit_text(w, s, lar_tpl_slice(*by), most, out->as.list);
    return split_text(w, s, lar_tpl_slice(*by), most, out->as.list);
}

static lar_error split_lines(lar_tpl_work *w, const lar_tpl_string *s, lar_tpl *out) {
    uint32_t from = 0;
    lar_error e = lar_tpl_list_new(w, LAR_TPL_LIST, 0, out);
    for (uint32_t i = 0; !e && i < s->len; i++) {
        if (s->ptr[i] != '\n' && s->ptr[i] != '\r') continue;
        e = add_piece(w, s, from, i, out->as.list);
        if (s->ptr[i] == '\r' && i + 1 < s->len && s->ptr[i + 1] == '\n') i++;
        from = i + 1;
    }
    return e || from == s->len ? e : add_piece(w, s, from, s->len, out->as.list);
}

lar_error lar_tpl_replace(lar_tpl_work *w, const lar_tpl_string *s, const lar_tpl what[2], int64_t most, lar_tpl *out) {
    lar_tpl_out o = {.w = w};
    uint32_t from = 0;
    lar_error e = need_text(w, what[0], "replace");
    if (!e) e = need_text(w, what[1], "replace");
    if (!e) e = lar_tpl_pay(w, s->len / 16);
    if (e) return e;
    lar_slice old = lar_tpl_slice(what[0]);
    for (int64_t n = 0; !e && (most < 0 || n < most); n++) {
        const char *found = memmem(s->ptr + from, s->len - from, old.ptr, old.len);
        uint32_t at = found ? (uint32_t)(found - s->ptr) : s->len;
        if (!old.len) { /* nothing is before every character and at the end */
            at = from;
            e = lar_tpl_out_string(&o, what[1].as.string);
            if (at == s->len) break;
            at += (uint32_t)char_len(s->ptr + at);
        } else if (!found) {
            break;
        }
        if (!e) e = lar_tpl_out_cut(&o, s, from, at);
        if (!e && old.len) e = lar_tpl_out_string(&o, what[1].as.string);
        if (!e) e = lar_tpl_pay(w, 1);
        from = at + (uint32_t)old.len;
    }
    if (!e) e = lar_tpl_out_cut(&o, s, from, s->len);
    return e ? e : lar_tpl_out_finish(&o, out);
}

lar_error lar_tpl_join(lar_tpl_work *w, lar_tpl list, const lar_tpl *separator, lar_tpl *out) {
    lar_tpl_out o = {.w = w};
    lar_error e = LAR_OK;
    for (uint32_t i = 0; !e && i < list.as.list->count; i++) {
        if (i && separator) e = lar_tpl_out_value(&o, *separator);
        if (!e) e = lar_tpl_out_value(&o, list.as.list->items[i]);
        if (!e) e = lar_tpl_pay(w, 1);
    }
    return e ? e : lar_tpl_out_finish(&o, out);
}

/* -- questions ----------------------------------------------------------------------------------------------------- */

/* startswith and endswith take a text or a tuple of them. */
static lar_error has_end(lar_tpl_work *w, lar_slice s, lar_tpl what, lar_tpl_side side, lar_tpl *out) {
    bool found = false;
    uint32_t count = lar_tpl_is_list(what) ? what.as.list->count : 1;
    for (uint32_t i = 0; i < count && !found; i++) {
        lar_tpl one = lar_tpl_is_list(what) ? what.as.list->items[i] : what;
        lar_error e = need_text(w, one, side == LAR_TPL_LEFT ? "startswith" : "endswith");
        if (e) return e;
        lar_slice x = lar_tpl_slice(one);
        if (x.len > s.len) continue;
        found = memcmp(side == LAR_TPL_LEFT ? s.ptr : s.ptr + s.len - x.len, x.ptr, x.len) == 0;
    }
    *out = lar_tpl_bool(found);
    return lar_tpl_pay(w, count);
}

static lar_error remove_end(lar_tpl_work *w, const lar_tpl_string *s, lar_tpl what, lar_tpl_side side, lar_tpl *out) {
    lar_tpl found;
    lar_error e = need_text(w, what, "removeprefix or removesuffix");
    if (!e) e = has_end(w, lar_slice_of(s->ptr, s->len), what, side, &found);
    if (e) return e;
    uint32_t n = found.as.truth ? what.as.string->len : 0;
    return lar_tpl_string_cut(w, s, side == LAR_TPL_LEFT ? n : 0, side == LAR_TPL_LEFT ? s->len : s->len - n, out);
}

/* find: in characters; -1 if it is not there. count: how many, side by side. */
static lar_error search(lar_tpl_work *w, const lar_tpl_string *s, lar_tpl what, bool count, lar_tpl *out) {
    lar_error e = need_text(w, what, count ? "count" : "find");
    if (!e) e = lar_tpl_pay(w, s->len / 16);
    if (e) return e;
    lar_slice x = lar_tpl_slice(what);
    const char *p = s->ptr, *end = s->ptr + s->len;
    int64_t n = 0;
    if (!x.len) n = count ? (int64_t)lar_tpl_string_points(s) + 1 : 0;
    for (; count && x.len && (p = memmem(p, (size_t)(end - p), x.ptr, x.len)) != NULL; p += x.len) n++;
    if (!count && x.len) {
        p = memmem(s->ptr, s->len, x.ptr, x.len);
        lar_tpl_string before = {.ptr = s->ptr, .len = p ? (uint32_t)(p - s->ptr) : 0};
        n = p ? (int64_t)lar_tpl_string_points(&before) : -1;
    }
    *out = lar_tpl_int(n);
    return LAR_OK;
}

/* -- methods ------------------------------------------------------------------------------------------------------- */

static lar_error string_method(lar_tpl_work *w, lar_tpl_method id, const lar_tpl_call *c, lar_tpl *out) {
    const lar_tpl_string *s = c->subject.as.string;
    const lar_tpl *first = lar_tpl_argument(c, 0, "chars"), *most = lar_tpl_argument(c, 2, "count");
    lar_tpl list;
    lar_error e;
    switch (id) {
    case LAR_TPL_METHOD_UPPER: return lar_tpl_recase(w, s, LAR_TPL_UPPER, out);
    case LAR_TPL_METHOD_LOWER: return lar_tpl_recase(w, s, LAR_TPL_LOWER, out);
    case LAR_TPL_METHOD_TITLE: return lar_tpl_recase(w, s, LAR_TPL_TITLE, out);
    case LAR_TPL_METHOD_CAPITALIZE: return lar_tpl_recase(w, s, LAR_TPL_CAPITALIZE, out);
    case LAR_TPL_METHOD_STRIP: return lar_tpl_strip(w, s, first, LAR_TPL_BOTH, out);
    case LAR_TPL_METHOD_LSTRIP: return lar_tpl_strip(w, s, first, LAR_TPL_LEFT, out);
    case LAR_TPL_METHOD_RSTRIP: return lar_tpl_strip(w, s, first, LAR_TPL_RIGHT, out);
    case LAR_TPL_METHOD_SPLIT: return split(w, s, c, false, out);
    case LAR_TPL_METHOD_RSPLIT: return split(w, s, c, true, out);
    case LAR_TPL_METHOD_SPLITLINES: return split_lines(w, s, out);
    default: break;
    }
    if (!first || (id == LAR_TPL_METHOD_REPLACE && c->positional_count < 2))
        return lar_tpl_fail(w, LAR_INVALID, "an argument is missing");
    switch (id) {
    case LAR_TPL_METHOD_STARTSWITH: return has_end(w, lar_tpl_slice(c->subject), *first, LAR_TPL_LEFT, out);
    case LAR_TPL_METHOD_ENDSWITH: return has_end(w, lar_tpl_slice(c->subject), *first, LAR_TPL_RIGHT, out);
    case LAR_TPL_METHOD_REMOVEPREFIX: return remove_end(w, s, *first, LAR_TPL_LEFT, out);
    case LAR_TPL_METHOD_REMOVESUFFIX: return remove_end(w, s, *first, LAR_TPL_RIGHT, out);
    case LAR_TPL_METHOD_FIND: return search(w, s, *first, false, out);
    case LAR_TPL_METHOD_COUNT: return search(w, s, *first, true, out);
    case LAR_TPL_METHOD_REPLACE:
        return lar_tpl_replace(w, s, c->positional, most && most->kind == LAR_TPL_INT ? most->as.integer : -1, out);
    case LAR_TPL_METHOD_JOIN:
        e = lar_tpl_to_list(w, *first, &list);
        for (uint32_t i = 0; !e && i < list.as.list->count; i++) e = need_text(w, list.as.list->items[i], "join");
        return e ? e : lar_tpl_join(w, list, &c->subject, out);
    default: return lar_tpl_fail(w, LAR_INVALID, "text has no such method");
    }
}

static lar_error dict_part(lar_tpl_work *w, lar_tpl dict, uint32_t part, lar_tpl *out) {
    const lar_tpl_dict *d = dict.as.dict;
    lar_error e = lar_tpl_list_new(w, LAR_TPL_LIST, d->count, out);
    for (uint32_t i = 0; !e && i < d->count; i++) e = lar_tpl_list_add(w, out->as.list, d->items[2 * i + part]);
    out->origin = dict.origin;
    return e ? e : lar_tpl_pay(w, d->count / 8);
}

static lar_error dict_method(lar_tpl_work *w, lar_tpl_method id, const lar_tpl_call *c, lar_tpl *out) {
    const lar_tpl *found;
    switch (id) {
    case LAR_TPL_METHOD_ITEMS: return lar_tpl_items(w, c->subject, out);
    case LAR_TPL_METHOD_KEYS: return dict_part(w, c->subject, 0, out);
    case LAR_TPL_METHOD_VALUES: return dict_part(w, c->subject, 1, out);
    case LAR_TPL_METHOD_GET:
        if (!c->positional_count) return lar_tpl_fail(w, LAR_INVALID, "get without a key");
        found = lar_tpl_dict_find_key(w, c->subject.as.dict, c->positional[0]);
        *out = found ? *found : c->positional_count > 1 ? c->positional[1] : lar_tpl_none();
        return LAR_OK;
    default: return lar_tpl_fail(w, LAR_INVALID, "a mapping has no such method");
    }
}

static lar_error list_method(lar_tpl_work *w, lar_tpl_method id, const lar_tpl_call *c, lar_tpl *out) {
    lar_tpl_list *l = c->subject.as.list;
    *out = lar_tpl_none();
    if (id == LAR_TPL_METHOD_APPEND && c->subject.kind == LAR_TPL_LIST && c->positional_count == 1) {
        if (l->given) return lar_tpl_fail(w, LAR_INVALID, "append to a list that was given to the template");
        return lar_tpl_list_add(w, l, c->positional[0]);
    }
    if (id != LAR_TPL_METHOD_COUNT || c->positional_count != 1)
        return lar_tpl_fail(w, LAR_INVALID, "a list has no such method");
    int64_t n = 0;
    for (uint32_t i = 0; i < l->count; i++) {
        bool equal = false;
        lar_error e = lar_tpl_equal(w, l->items[i], c->positional[0], &equal);
        if (e) return e;
        n += equal;
    }
    *out = lar_tpl_int(n);
    return LAR_OK;
}

lar_error lar_tpl_method_call(lar_tpl_work *w, lar_tpl_method id, const lar_tpl_call *c, lar_tpl *out) {
    static const char *const names[] = {"sep", "maxsplit", "chars", "count", NULL};
    lar_error e = lar_tpl_check_names(w, c, names);
    if (e) return e;
    if (c->subject.kind == LAR_TPL_STRING) return string_method(w, id, c, out);
    if (c->subject.kind == LAR_TPL_DICT) return dict_method(w, id, c, out);
    if (lar_tpl_is_list(c->subject)) return list_method(w, id, c, out);
    if (c->subject.kind == LAR_TPL_UNDEFINED && c->subject.as.name)
        return lar_tpl_fail(w, LAR_INVALID, "'%s' is undefined and has no methods", c->subject.as.name);
    return lar_tpl_fail(w, LAR_INVALID, "%s has no such method", lar_tpl_kind_name(c->subject));
}
