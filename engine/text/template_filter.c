/* Filters: what stands behind a `|`.
 * Flow: the machine calls lar_tpl_filter_call; strings are done in template_string.c, printing in template_print.c.
 * Thread: that of the rendering. Never blocks.
 * Invariants: 1. lists are never changed, a filter makes a new one. 2. every element visited is paid for, so that
 * sorting a large list ends in the limit of steps.
 * Source: Jinja2 3.1, filters.py; tojson as transformers defines it (ensure_ascii False, json.dumps). */
#include <math.h>
#include <stdlib.h>

#include "engine/text/template_run.h"

static lar_error list_of(lar_tpl_work *w, const lar_tpl_call *c, lar_tpl *list) {
    lar_error e = lar_tpl_to_list(w, c->subject, list);
    return e ? e : lar_tpl_pay(w, list->as.list->count);
}

static lar_error bad_argument(lar_tpl_work *w, const char *what, lar_tpl v) {
    return lar_tpl_fail(w, LAR_INVALID, "%s is %s", what, lar_tpl_kind_name(v));
}

static bool flag(const lar_tpl *v) { return v && lar_tpl_truth(*v); }

/* -- scalars ---------------------------------------------------------------------------------------------------- */

static lar_error use_default(const lar_tpl_call *c, lar_tpl *out) {
    const lar_tpl *value = lar_tpl_argument(c, 0, "default_value");
    bool missing =
        c->subject.kind == LAR_TPL_UNDEFINED || (flag(lar_tpl_argument(c, 1, "boolean")) && !lar_tpl_truth(c->subject));
    static const lar_tpl_string nothing = {.ptr = ""};
    const lar_tpl empty = {.kind = LAR_TPL_STRING, .as.string = &nothing};
    *out = !missing ? c->subject : value ? *value : empty;
    return LAR_OK;
}

static lar_error make_abs(lar_tpl_work *w, lar_tpl v, lar_tpl *out) {
    *out = v;
    if (v.kind == LAR_TPL_FLOAT) out->as.real = fabs(v.as.real);
    else if (v.kind == LAR_TPL_INT && v.as.integer != INT64_MIN) out->as.integer = llabs(v.as.integer);
    else return bad_argument(w, "the value of abs", v);
    return LAR_OK;
}

/* Text as a number: strtod and strtoll, where all of it but white space around is one. */
static bool read_number(lar_tpl v, bool whole, lar_tpl *out) {
    char text[64], *end;
    lar_slice s = lar_tpl_slice(v);
    while (s.len && lar_tpl_space(s.ptr, s.ptr + s.len) == s.ptr + 1) s.ptr++, s.len--;
    while (s.len && (unsigned char)s.ptr[s.len - 1] <= ' ') s.len--;
    if (!s.len || s.len >= sizeof text || memchr(s.ptr, 'x', s.len) || memchr(s.ptr, 'X', s.len)) return false;
    memcpy(text, s.ptr, s.len);
    text[s.len] = 0;
    if (whole) {
        long long i = strtoll(text, &end, 10);
        *out = lar_tpl_int(i);
        if (*end == 0) return i != INT64_MAX && i != INT64_MIN;
    }
    double d = strtod(text, &end);
    if (*end || !isfinite(d) || (whole && fabs(d) >= 9e18)) return false;
    *out = whole ? lar_tpl_int((int64_t)d) : lar_tpl_float(d);
    return true;
}

static lar_error to_number(const lar_tpl_call *c, bool whole, lar_tpl *out) {
    const lar_tpl *fallback = lar_tpl_argument(c, 0, "default");
    lar_tpl v = c->subject;
    bool good = true;
    if (v.kind == LAR_TPL_BOOL) v = lar_tpl_int(v.as.truth);
    if (v.kind == LAR_TPL_INT) *out = whole ? v : lar_tpl_float((double)v.as.integer);
    else if (v.kind == LAR_TPL_FLOAT && !whole) *out = v;
    else if (v.kind == LAR_TPL_FLOAT && fabs(v.as.real) < 9e18) *out = lar_tpl_int((int64_t)v.as.real);
    else good = v.kind == LAR_TPL_STRING && read_number(v, whole, out);
    if (!good) *out = fallback ? *fallback : whole ? lar_tpl_int(0) : lar_tpl_float(0);
    return LAR_OK;
}

static lar_error to_json(lar_tpl_work *w, const lar_tpl_call *c, lar_tpl *out) {
    static const char *const names[] = {"ensure_ascii", "indent", "separators", "sort_keys", NULL};
    const lar_tpl *indent = lar_tpl_argument(c, 1, "indent"), *marks = lar_tpl_argument(c, 2, "separators");
    lar_tpl_json_form form = {.indent = -1,
                              .ascii = flag(lar_tpl_argument(c, 0, "ensure_ascii")),
                              .sorted = flag(lar_tpl_argument(c, 3, "sort_keys")),
                              .item_separator = LAR_SLICE(", "),
                              .key_separator = LAR_SLICE(": ")};
    lar_error e = lar_tpl_check_names(w, c, names);
    if (e) return e;
    if (indent && indent->kind != LAR_TPL_NONE) {
        if (indent->kind != LAR_TPL_INT || indent->as.integer > 64) return bad_argument(w, "tojson's indent", *indent);
        form.indent = indent->as.integer < 0 ? 0 : indent->as.integer;
        form.item_separator = LAR_SLICE(",");
    }
    if (marks && marks->kind != LAR_TPL_NONE) {
        const lar_tpl *two = lar_tpl_is_list(*marks) && marks->as.list->count == 2 ? marks->as.list->items : NULL;
        if (!two || two[0].kind != LAR_TPL_STRING || two[1].kind != LAR_TPL_STRING)
            return bad_argument(w, "tojson's separators", *marks);
        form.item_separator = lar_tpl_slice(two[0]);
        form.key_separator = lar_tpl_slice(two[1]);
    }
    lar_tpl_out o = {.w = w};
    e = lar_tpl_to_json(&o, c->subject, &form);
    return e ? e : lar_tpl_out_finish(&o, out);
}

/* Lines behind the first get `width` blanks; empty ones only when asked. */
static lar_error indent_text(lar_tpl_work *w, const lar_tpl_call *c, lar_tpl *out) {
    const lar_tpl *width = lar_tpl_argument(c, 0, "width");
    bool first = flag(lar_tpl_argument(c, 1, "first")), blank = flag(lar_tpl_argument(c, 2, "blank"));
    lar_tpl text;
    lar_tpl_out o = {.w = w};
    if (width && width->kind != LAR_TPL_INT) return bad_argument(w, "indent's width", *width);
    int64_t n = width ? width->as.integer : 4;
    lar_error e = lar_tpl_to_string(w, c->subject, &text);
    if (e) return e;
    const lar_tpl_string *s = text.as.string;
    for (uint32_t from = 0, to; !e && from <= s->len; from = to + 1) {
        for (to = from; to < s->len && s->ptr[to] != '\n';) to++;
        bool wanted = from ? blank || to > from : first;
        for (int64_t i = 0; !e && wanted && i < n; i++) e = lar_tpl_out_add(&o, " ", 1, LAR_TEMPLATE_OWN);
        if (!e) e = lar_tpl_out_cut(&o, s, from, to < s->len ? to + 1 : to);
        if (to == s->len) break;
    }
    return e ? e : lar_tpl_out_finish(&o, out);
}

/* -- attributes of elements --------------------------------------------------------------------------------- */

/* "a.b.0" of an element, or its item when the attribute is a number. */
static lar_error attribute_of(lar_tpl_work *w, lar_tpl x, lar_tpl path, lar_tpl *out) {
    if (path.kind == LAR_TPL_INT) return lar_tpl_item(w, x, path, out);
    if (path.kind != LAR_TPL_STRING) return bad_argument(w, "an attribute's name", path);
    lar_slice s = lar_tpl_slice(path);
    *out = x;
    for (size_t from = 0, to; from <= s.len; from = to + 1) {
        for (to = from; to < s.len && s.ptr[to] != '.';) to++;
        lar_slice name = lar_slice_of(s.ptr + from, to - from);
        lar_tpl number, text;
        lar_error e = lar_tpl_string_of(w, name, LAR_TEMPLATE_OWN, &text);
        if (e) return e;
        bool digits = name.len > 0 && name.ptr[0] >= '0' && name.ptr[0] <= '9' && read_number(text, true, &number);
        e = lar_tpl_item(w, *out, digits ? number : text, out);
        if (e) return e;
    }
    return LAR_OK;
}

static lar_error map(lar_tpl_work *w, const lar_tpl_call *c, lar_tpl *out) {
    const lar_tpl *attribute = lar_tpl_argument(c, UINT32_MAX, "attribute"),
                  *fallback = lar_tpl_argument(c, UINT32_MAX, "default");
    const lar_tpl_row *row = NULL;
    lar_tpl list;
    lar_error e = list_of(w, c, &list);
    if (!e) e = lar_tpl_list_new(w, LAR_TPL_LIST, 0, out);
    if (e) return e;
    if (!attribute) {
        bool named = c->positional_count && c->positional[0].kind == LAR_TPL_STRING;
        row = named ? lar_tpl_find_filter(lar_tpl_slice(c->positional[0])) : NULL;
        if (!row || row->id == LAR_TPL_FILTER_MAP || row->id == LAR_TPL_FILTER_SELECT ||
            row->id == LAR_TPL_FILTER_REJECT || row->id == LAR_TPL_FILTER_SELECTATTR ||
            row->id == LAR_TPL_FILTER_REJECTATTR)
            return lar_tpl_fail(w, LAR_INVALID, "map with a filter that is not supported there");
    }
    for (uint32_t i = 0; !e && i < list.as.list->count; i++) {
        lar_tpl v = list.as.list->items[i];
        if (attribute) {
            e = attribute_of(w, v, *attribute, &v);
            if (!e && v.kind == LAR_TPL_UNDEFINED && fallback) v = *fallback;
        } else {
            lar_tpl_call one = {.subject = v,
                                .positional = c->positional + 1,
                                .positional_count = c->positional_count - 1,
                                .named = c->named,
                                .named_count = c->named_count};
            if (one.positional_count < row->least || one.positional_count > row->most)
                return lar_tpl_fail(w, LAR_INVALID, "map with %u arguments for '%s'", one.positional_count, row->name);
            e = lar_tpl_filter_call(w, (lar_tpl_filter)row->id, &one,
                                    &v); /* no deeper: row is none of those that call */
        }
        if (!e) e = lar_tpl_list_add(w, out->as.list, v);
    }
    return e;
}

/* select, reject and their forms with an attribute: elements that pass a test, or are true. */
static lar_error choose(lar_tpl_work *w, const lar_tpl_call *c, bool keep, bool attribute, lar_tpl *out) {
    uint32_t skip = attribute ? 1 : 0;
    const lar_tpl *test = lar_tpl_argument(c, skip, "");
    const lar_tpl_row *row = test && test->kind == LAR_TPL_STRING ? lar_tpl_find_test(lar_tpl_slice(*test)) : NULL;
    lar_tpl list;
    if (test && !row) {
        lar_slice name =
            test->kind == LAR_TPL_STRING && test->as.string->len < 40 ? lar_tpl_slice(*test) : LAR_SLICE("?");
        if (lar_slice_eq_cstr(name, "==")) row = lar_tpl_find_test(LAR_SLICE("eq"));
        else return lar_tpl_fail(w, LAR_INVALID, "the test '%.*s' is not supported", LAR_FMT(name));
    }
    uint32_t given = c->positional_count > skip + 1 ? c->positional_count - skip - 1 : 0;
    if (row && given != row->least)
        return lar_tpl_fail(w, LAR_INVALID, "the test '%s' with %u arguments", row->name, given);
    if (attribute && !c->positional_count) return lar_tpl_fail(w, LAR_INVALID, "the attribute's name is missing");
    lar_error e = list_of(w, c, &list);
    if (!e) e = lar_tpl_list_new(w, LAR_TPL_LIST, 0, out);
    for (uint32_t i = 0; !e && i < list.as.list->count; i++) {
        lar_tpl_call one = {.subject = list.as.list->items[i],
                            .positional = c->positional + skip + 1,
                            .positional_count = given};
        bool truth = false;
        if (attribute) e = attribute_of(w, one.subject, c->positional[0], &one.subject);
        if (!e && row) e = lar_tpl_test_call(w, (lar_tpl_test)row->id, &one, &truth);
        else if (!e) truth = lar_tpl_truth(one.subject);
        if (!e && truth == keep) e = lar_tpl_list_add(w, out->as.list, list.as.list->items[i]);
    }
    return e;
}

/* -- order -------------------------------------------------------------------------------------------------- */

typedef struct ordering {
    const lar_tpl *attribute; /* NULL: the element itself */
    bool reverse, case_sensitive;
} ordering;

static lar_error sort_key(lar_tpl_work *w, lar_tpl v, const ordering *o, lar_tpl *key) {
    lar_error e = LAR_OK;
    *key = v;
    if (o->attribute) e = attribute_of(w, v, *o->attribute, key);
    if (!e && key->kind == LAR_TPL_STRING && !o->case_sensitive)
        e = lar_tpl_recase(w, key->as.string, LAR_TPL_LOWER, key);
    return e;
}

/* Merge sort from runs of one upwards: stable, as Python's, also backwards. Pairs of key and element. */
static lar_error merge(lar_tpl_work *w, lar_tpl (*from)[2], lar_tpl (*to)[2], const uint32_t bounds[3], bool reverse) {
    uint32_t a = bounds[0], b = bounds[1], at = bounds[0];
    while (a < bounds[1] || b < bounds[2]) {
        bool first = b == bounds[2];
        if (!first && a < bounds[1]) {
            int order = 0;
            lar_error e = lar_tpl_order(w, from[a][0], from[b][0], &order);
            if (e) return e;
            first = reverse ? order >= 0 : order <= 0;
        }
        memcpy(to[at++], from[first ? a++ : b++], sizeof *to);
    }
    return LAR_OK;
}

static lar_error sort_list(lar_tpl_work *w, lar_tpl list, const ordering *o, lar_tpl *out) {
    uint32_t n = list.as.list->count;
    lar_tpl(*a)[2] = lar_tpl_alloc(w, n * sizeof *a), (*b)[2] = lar_tpl_alloc(w, n * sizeof *b);
    lar_error e = a && b ? lar_tpl_list_new(w, LAR_TPL_LIST, n, out) : lar_tpl_no_memory(w);
    for (uint32_t i = 0; !e && i < n; i++) {
        a[i][1] = list.as.list->items[i];
        e = sort_key(w, a[i][1], o, &a[i][0]);
    }
    for (uint32_t width = 1; !e && width < n; width *= 2) {
        for (uint32_t i = 0; !e && i < n; i += 2 * width) {
            const uint32_t bounds[3] = {i, i + width < n ? i + width : n, i + 2 * width < n ? i + 2 * width : n};
            e = merge(w, a, b, bounds, o->reverse);
        }
        lar_tpl(*t)[2] = a;
        a = b;
        b = t;
    }
    for (uint32_t i = 0; !e && i < n; i++) e = lar_tpl_list_add(w, out->as.list, a[i][1]);
    return e;
}

static lar_error sort(lar_tpl_work *w, const lar_tpl_call *c, lar_tpl *out) {
    lar_tpl list;
    ordering o = {.reverse = flag(lar_tpl_argument(c, 0, "reverse")),
                  .case_sensitive = flag(lar_tpl_argument(c, 1, "case_sensitive")),
                  .attribute = lar_tpl_argument(c, 2, "attribute")};
    lar_error e = list_of(w, c, &list);
    return e ? e : sort_list(w, list, &o, out);
}

static lar_error sort_dict(lar_tpl_work *w, const lar_tpl_call *c, lar_tpl *out) {
    lar_tpl items, part = lar_tpl_int(0);
    const lar_tpl *by = lar_tpl_argument(c, 1, "by");
    ordering o = {.case_sensitive = flag(lar_tpl_argument(c, 0, "case_sensitive")),
                  .reverse = flag(lar_tpl_argument(c, 2, "reverse")),
                  .attribute = &part};
    if (by && by->kind == LAR_TPL_STRING && lar_slice_eq_cstr(lar_tpl_slice(*by), "value")) part.as.integer = 1;
    lar_error e = lar_tpl_items(w, c->subject, &items);
    return e ? e : sort_list(w, items, &o, out);
}

static lar_error extreme(lar_tpl_work *w, const lar_tpl_call *c, int sign, lar_tpl *out) {
    lar_tpl list, best_key = lar_tpl_none();
    const ordering o = {.case_sensitive = false};
    lar_error e = list_of(w, c, &list);
    *out = lar_tpl_undefined("the largest or smallest of nothing");
    for (uint32_t i = 0; !e && i < list.as.list->count; i++) {
        lar_tpl key;
        int order = 1;
        e = sort_key(w, list.as.list->items[i], &o, &key);
        if (!e && i) e = lar_tpl_order(w, key, best_key, &order);
        if (e || (i && order * sign <= 0)) continue;
        best_key = key;
        *out = list.as.list->items[i];
    }
    return e;
}

static lar_error unique(lar_tpl_work *w, const lar_tpl_call *c, lar_tpl *out) {
    lar_tpl list, keys;
    ordering o = {.case_sensitive = flag(lar_tpl_argument(c, 0, "case_sensitive")),
                  .attribute = lar_tpl_argument(c, 1, "attribute")};
    lar_error e = list_of(w, c, &list);
    if (!e) e = lar_tpl_list_new(w, LAR_TPL_LIST, 0, out);
    if (!e) e = lar_tpl_list_new(w, LAR_TPL_LIST, 0, &keys);
    for (uint32_t i = 0; !e && i < list.as.list->count; i++) {
        lar_tpl key;
        bool found = false;
        e = sort_key(w, list.as.list->items[i], &o, &key);
        if (!e) e = lar_tpl_contains(w, keys, key, &found);
        if (e || found) continue;
        e = lar_tpl_list_add(w, keys.as.list, key);
        if (!e) e = lar_tpl_list_add(w, out->as.list, list.as.list->items[i]);
    }
    return e;
}

static lar_error reverse(lar_tpl_work *w, const lar_tpl_call *c, lar_tpl *out) {
    lar_tpl list;
    lar_error e = list_of(w, c, &list);
    if (!e) e = lar_tpl_list_new(w, LAR_TPL_LIST, list.as.list->count, out);
    for (uint32_t i = e ? 0 : list.as.list->count; !e && i-- > 0;)
        e = lar_tpl_list_add(w, out->as.list, list.as.list->items[i]);
    return !e && c->subject.kind == LAR_TPL_STRING ? lar_tpl_join(w, *out, NULL, out) : e;
}

static lar_error at_end(lar_tpl_work *w, const lar_tpl_call *c, bool last, lar_tpl *out) {
    lar_tpl list;
    lar_error e = lar_tpl_to_list(w, c->subject, &list);
    if (e) return e;
    uint32_t n = list.as.list->count;
    *out = n ? list.as.list->items[last ? n - 1 : 0] : lar_tpl_undefined("the first or last of nothing");
    return LAR_OK;
}

static lar_error sum(lar_tpl_work *w, const lar_tpl_call *c, lar_tpl *out) {
    lar_tpl list;
    const lar_tpl *attribute = lar_tpl_argument(c, 0, "attribute"), *start = lar_tpl_argument(c, 1, "start");
    lar_error e = list_of(w, c, &list);
    *out = start ? *start : lar_tpl_int(0);
    for (uint32_t i = 0; !e && i < list.as.list->count; i++) {
        lar_tpl v = list.as.list->items[i];
        if (attribute && attribute->kind != LAR_TPL_NONE) e = attribute_of(w, v, *attribute, &v);
        if (!e) e = lar_tpl_binary_op(w, LAR_TPL_ADD, *out, v, out);
    }
    return e;
}

static lar_error join(lar_tpl_work *w, const lar_tpl_call *c, lar_tpl *out) {
    lar_tpl list;
    const lar_tpl *attribute = lar_tpl_argument(c, 1, "attribute");
    lar_error e = list_of(w, c, &list);
    if (!e && attribute) {
        const lar_tpl named[2] = {{.kind = LAR_TPL_STRING,
                                   .as.string = &(lar_tpl_string){.ptr = "attribute", .len = 9}},
                                  *attribute};
        const lar_tpl_call mapping = {.subject = list, .named = named, .named_count = 1};
        e = map(w, &mapping, &list);
    }
    return e ? e : lar_tpl_join(w, list, lar_tpl_argument(c, 0, "d"), out);
}

/* -- text --------------------------------------------------------------------------------------------------- */

static lar_error text_filter(lar_tpl_work *w, lar_tpl_filter id, const lar_tpl_call *c, lar_tpl *out) {
    lar_tpl text;
    lar_error e = lar_tpl_to_string(w, c->subject, &text);
    if (e) return e;
    const lar_tpl_string *s = text.as.string;
    const lar_tpl *count;
    switch (id) {
    case LAR_TPL_FILTER_UPPER: return lar_tpl_recase(w, s, LAR_TPL_UPPER, out);
    case LAR_TPL_FILTER_LOWER: return lar_tpl_recase(w, s, LAR_TPL_LOWER, out);
    case LAR_TPL_FILTER_TITLE: return lar_tpl_recase(w, s, LAR_TPL_TITLE, out);
    case LAR_TPL_FILTER_CAPITALIZE: return lar_tpl_recase(w, s, LAR_TPL_CAPITALIZE, out);
    case LAR_TPL_FILTER_TRIM: return lar_tpl_strip(w, s, lar_tpl_argument(c, 0, "chars"), LAR_TPL_BOTH, out);
    case LAR_TPL_FILTER_REPLACE:
        if (c->positional_count < 2) return lar_tpl_fail(w, LAR_INVALID, "replace needs two arguments");
        count = lar_tpl_argument(c, 2, "count");
        return lar_tpl_replace(w, s, c->positional, count && count->kind == LAR_TPL_INT ? count->as.integer : -1, out);
    default: *out = text; return LAR_OK; /* string, safe */
    }
}

lar_error lar_tpl_filter_call(lar_tpl_work *w, lar_tpl_filter id, const lar_tpl_call *c, lar_tpl *out) {
    uint64_t n = 0;
    lar_error e;
    switch (id) {
    case LAR_TPL_FILTER_ABS: return make_abs(w, c->subject, out);
    case LAR_TPL_FILTER_DEFAULT: return use_default(c, out);
    case LAR_TPL_FILTER_INT: return to_number(c, true, out);
    case LAR_TPL_FILTER_FLOAT: return to_number(c, false, out);
    case LAR_TPL_FILTER_LENGTH:
        e = lar_tpl_length(w, c->subject, &n);
        *out = lar_tpl_int((int64_t)n);
        return e;
    case LAR_TPL_FILTER_TOJSON: return to_json(w, c, out);
    case LAR_TPL_FILTER_INDENT: return indent_text(w, c, out);
    case LAR_TPL_FILTER_ITEMS: return lar_tpl_items(w, c->subject, out);
    case LAR_TPL_FILTER_LIST: { /* a copy, which may be appended to */
        const lar_tpl bounds[3] = {lar_tpl_none(), lar_tpl_none(), lar_tpl_none()};
        lar_tpl list;
        e = list_of(w, c, &list);
        list.kind = LAR_TPL_LIST;
        return e ? e : lar_tpl_cut(w, list, bounds, out);
    }
    case LAR_TPL_FILTER_FIRST: return at_end(w, c, false, out);
    case LAR_TPL_FILTER_LAST: return at_end(w, c, true, out);
    case LAR_TPL_FILTER_JOIN: return join(w, c, out);
    case LAR_TPL_FILTER_MAP: return map(w, c, out);
    case LAR_TPL_FILTER_SELECT: return choose(w, c, true, false, out);
    case LAR_TPL_FILTER_REJECT: return choose(w, c, false, false, out);
    case LAR_TPL_FILTER_SELECTATTR: return choose(w, c, true, true, out);
    case LAR_TPL_FILTER_REJECTATTR: return choose(w, c, false, true, out);
    case LAR_TPL_FILTER_SORT: return sort(w, c, out);
    case LAR_TPL_FILTER_DICTSORT: return sort_dict(w, c, out);
    case LAR_TPL_FILTER_MAX: return extreme(w, c, 1, out);
    case LAR_TPL_FILTER_MIN: return extreme(w, c, -1, out);
    case LAR_TPL_FILTER_UNIQUE: return unique(w, c, out);
    case LAR_TPL_FILTER_REVERSE: return reverse(w, c, out);
    case LAR_TPL_FILTER_SUM: return sum(w, c, out);
    default: return text_filter(w, id, c, out);
    }
}
