/* Comparing values as Python does: ==, <, in.
 * Flow: the machine's operators, tests, sort, unique, dict look-ups call it.
 * Thread: that of the rendering. Never blocks.
 * Invariants: 1. nesting is walked with a stack of LAR_TPL_NESTED_MAX pairs, never with the C stack; deeper values are
 * an error, as a list that was appended to itself would be. 2. every visited value costs a step.
 * Memory: the stack of pairs, here. */
#include "engine/text/template_value.h"

typedef struct pair {
    lar_tpl a, b;
    uint32_t at; /* the next element */
} pair;

static bool is_number(lar_tpl v) {
    return v.kind == LAR_TPL_BOOL || v.kind == LAR_TPL_INT || v.kind == LAR_TPL_FLOAT || v.kind == LAR_TPL_BIG;
}

static double as_double(lar_tpl v) {
    if (v.kind == LAR_TPL_BOOL) return v.as.truth;
    if (v.kind == LAR_TPL_INT) return (double)v.as.integer;
    return v.as.real;
}

/* A big integer is outside what 64 bits hold: its sign alone places it beside integers. */
static int order_numbers(lar_tpl a, lar_tpl b) {
    if (a.kind == LAR_TPL_BIG || b.kind == LAR_TPL_BIG) {
        bool minus_a = a.kind == LAR_TPL_BIG && a.as.string->ptr[0] == '-';
        bool minus_b = b.kind == LAR_TPL_BIG && b.as.string->ptr[0] == '-';
        if (a.kind != LAR_TPL_BIG) return minus_b ? 1 : -1;
        if (b.kind != LAR_TPL_BIG) return minus_a ? -1 : 1;
        if (minus_a != minus_b) return minus_a ? -1 : 1;
        uint32_t n = a.as.string->len, m = b.as.string->len;
        int order = n != m ? (n < m ? -1 : 1) : memcmp(a.as.string->ptr, b.as.string->ptr, n);
        return minus_a ? -order : order;
    }
    if (a.kind != LAR_TPL_FLOAT && b.kind != LAR_TPL_FLOAT) {
        int64_t x = a.kind == LAR_TPL_BOOL ? a.as.truth : a.as.integer;
        int64_t y = b.kind == LAR_TPL_BOOL ? b.as.truth : b.as.integer;
        return x < y ? -1 : x > y;
    }
    double x = as_double(a), y = as_double(b);
    return x < y ? -1 : x > y;
}

static int order_strings(lar_slice a, lar_slice b) {
    size_t n = a.len < b.len ? a.len : b.len;
    int order = n ? memcmp(a.ptr, b.ptr, n) : 0;
    if (order) return order;
    return a.len < b.len ? -1 : a.len > b.len;
}

/* Values without elements, and values whose kinds differ. */
static bool equal_flat(lar_tpl a, lar_tpl b) {
    if (is_number(a) && is_number(b)) return order_numbers(a, b) == 0;
    if (a.kind != b.kind) return false;
    switch ((lar_tpl_kind)a.kind) {
    case LAR_TPL_UNDEFINED:
    case LAR_TPL_NONE: return true;
    case LAR_TPL_STRING: return lar_slice_eq(lar_tpl_slice(a), lar_tpl_slice(b));
    case LAR_TPL_NAMESPACE: return a.as.dict == b.as.dict;
    default: return a.as.index == b.as.index;
    }
}

static bool has_elements(lar_tpl v) { return lar_tpl_is_list(v) || v.kind == LAR_TPL_DICT; }

static uint32_t element_count(lar_tpl v) { return lar_tpl_is_list(v) ? v.as.list->count : v.as.dict->count; }

/* The next two elements to compare; false if b has none that belongs to a's. */
static bool next_elements(lar_tpl_work *w, pair *p, lar_tpl *a, lar_tpl *b) {
    uint32_t i = p->at++;
    if (lar_tpl_is_list(p->a)) {
        *a = p->a.as.list->items[i];
        *b = p->b.as.list->items[i];
        return true;
    }
    lar_tpl *found = lar_tpl_dict_find_key(w, p->b.as.dict, p->a.as.dict->items[2 * i]);
    *a = p->a.as.dict->items[2 * i + 1];
    if (found) *b = *found;
    return found != NULL;
}

lar_error lar_tpl_equal(lar_tpl_work *w, lar_tpl a, lar_tpl b, bool *equal) {
    pair stack[LAR_TPL_NESTED_MAX];
    uint32_t depth = 0;
    *equal = false;
    for (;;) {
        lar_error e = lar_tpl_pay(w, a.kind == LAR_TPL_STRING ? 1 + a.as.string->len / 64 : 1);
        if (e) return e;
        if (has_elements(a) && a.kind == b.kind) {
            if (element_count(a) != element_count(b)) return LAR_OK;
            if (depth == LAR_TPL_NESTED_MAX)
                return lar_tpl_fail(w, LAR_LIMIT, "values are nested too deeply to compare");
            stack[depth++] = (pair){a, b, 0};
        } else if (!equal_flat(a, b)) {
            return LAR_OK;
        }
        while (depth && stack[depth - 1].at == element_count(stack[depth - 1].a)) depth--;
        if (!depth) break;
        if (!next_elements(w, &stack[depth - 1], &a, &b)) return LAR_OK;
    }
    *equal = true;
    return LAR_OK;
}

static lar_error not_comparable(lar_tpl_work *w, lar_tpl a, lar_tpl b) {
    return lar_tpl_fail(w, LAR_INVALID, "%s and %s cannot be ordered", lar_tpl_kind_name(a), lar_tpl_kind_name(b));
}

lar_error lar_tpl_order(lar_tpl_work *w, lar_tpl a, lar_tpl b, int *order) {
    lar_error e = lar_tpl_pay(w, a.kind == LAR_TPL_STRING ? 1 + a.as.string->len / 64 : 1);
    *order = 0;
    if (e) return e;
    if (is_number(a) && is_number(b)) {
        *order = order_numbers(a, b);
        return LAR_OK;
    }
    if (a.kind == LAR_TPL_STRING && b.kind == LAR_TPL_STRING) {
        *order = order_strings(lar_tpl_slice(a), lar_tpl_slice(b));
        return LAR_OK;
    }
    /* Lists of strings and numbers, as (key, value); lists in lists are left to Python. */
    if (!lar_tpl_is_list(a) || a.kind != b.kind) return not_comparable(w, a, b);
    for (uint32_t i = 0; i < a.as.list->count && i < b.as.list->count; i++) {
        lar_tpl x = a.as.list->items[i], y = b.as.list->items[i];
        if (x.kind == LAR_TPL_STRING && y.kind == LAR_TPL_STRING)
            *order = order_strings(lar_tpl_slice(x), lar_tpl_slice(y));
        else if (is_number(x) && is_number(y)) *order = order_numbers(x, y);
        else return not_comparable(w, x, y);
        if (*order) return LAR_OK;
    }
    *order = a.as.list->count < b.as.list->count ? -1 : a.as.list->count > b.as.list->count;
    return LAR_OK;
}

lar_error lar_tpl_contains(lar_tpl_work *w, lar_tpl hay, lar_tpl needle, bool *found) {
    *found = false;
    if (hay.kind == LAR_TPL_STRING) {
        if (needle.kind != LAR_TPL_STRING)
            return lar_tpl_fail(w, LAR_INVALID, "`in` text needs text, not %s", lar_tpl_kind_name(needle));
        lar_slice h = lar_tpl_slice(hay), n = lar_tpl_slice(needle);
        *found = n.len == 0 || memmem(h.ptr, h.len, n.ptr, n.len) != NULL;
        return lar_tpl_pay(w, h.len / 64);
    }
    if (hay.kind == LAR_TPL_DICT) {
        if (has_elements(needle)) return lar_tpl_fail(w, LAR_INVALID, "%s is no key", lar_tpl_kind_name(needle));
        *found = lar_tpl_dict_find_key(w, hay.as.dict, needle) != NULL;
        return LAR_OK;
    }
    if (hay.kind == LAR_TPL_UNDEFINED) return LAR_OK;
    if (!lar_tpl_is_list(hay))
        return lar_tpl_fail(w, LAR_INVALID, "`in` %s; it needs text, a list or a mapping", lar_tpl_kind_name(hay));
    for (uint32_t i = 0; i < hay.as.list->count && !*found; i++) {
        lar_error e = lar_tpl_equal(w, hay.as.list->items[i], needle, found);
        if (e) return e;
    }
    return LAR_OK;
}
