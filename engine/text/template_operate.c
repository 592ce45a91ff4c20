/* Operators on values, attributes, items and slices, as Python computes them.
 * Flow: the machine (template_run.c) calls it. Thread: that of the rendering. Never blocks.
 * Invariants: 1. integers stay within 64 bits: what would leave them is an error, not a wrong number. 2. a string
 * made of strings keeps the origin of every byte. 3. what takes long pays steps.
 * Source: Python's operators; Jinja2 3.1's getattr and getitem. */
#include <math.h>

#include "engine/text/template_run.h"

static lar_error operands(lar_tpl_work *w, const char *op, lar_tpl a, lar_tpl b) {
    lar_tpl u = a.kind == LAR_TPL_UNDEFINED ? a : b;
    if (u.kind == LAR_TPL_UNDEFINED)
        return lar_tpl_fail(w, LAR_INVALID, "'%s' is undefined and is an operand of %s",
                            u.as.name ? u.as.name : "a value", op);
    return lar_tpl_fail(w, LAR_INVALID, "%s %s %s", lar_tpl_kind_name(a), op, lar_tpl_kind_name(b));
}

static bool is_whole(lar_tpl v) { return v.kind == LAR_TPL_INT || v.kind == LAR_TPL_BOOL; }
static int64_t whole(lar_tpl v) { return v.kind == LAR_TPL_BOOL ? v.as.truth : v.as.integer; }
static bool is_real(lar_tpl v) { return is_whole(v) || v.kind == LAR_TPL_FLOAT; }
static double real(lar_tpl v) { return v.kind == LAR_TPL_FLOAT ? v.as.real : (double)whole(v); }

static uint8_t merged(lar_tpl a, lar_tpl b) { return a.origin == LAR_TEMPLATE_VALUE ? a.origin : b.origin; }

/* Floor division and its remainder, whose sign is the divisor's. */
static int64_t floor_div(int64_t a, int64_t b) {
    int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

/* By squaring: the exponent has at most 63 bits, and a result over 64 bits ends it. */
static bool int_power(int64_t base, int64_t exponent, int64_t *out) {
    *out = 1;
    while (exponent > 0) {
        if ((exponent & 1) && __builtin_mul_overflow(*out, base, out)) return false;
        exponent >>= 1;
        if (exponent && __builtin_mul_overflow(base, base, &base)) return false;
    }
    return true;
}

static lar_error whole_op(lar_tpl_work *w, lar_tpl_binary op, const int64_t v[2], lar_tpl *out) {
    int64_t r = 0;
    bool fits = true;
    if ((op == LAR_TPL_FLOORDIV || op == LAR_TPL_MOD) && v[1] == 0)
        return lar_tpl_fail(w, LAR_INVALID, "division by zero");
    switch (op) {
    case LAR_TPL_ADD: fits = !__builtin_add_overflow(v[0], v[1], &r); break;
    case LAR_TPL_SUB: fits = !__builtin_sub_overflow(v[0], v[1], &r); break;
    case LAR_TPL_MUL: fits = !__builtin_mul_overflow(v[0], v[1], &r); break;
    case LAR_TPL_POW: fits = int_power(v[0], v[1], &r); break;
    default:
        fits = v[1] != -1 || v[0] != INT64_MIN;
        if (!fits) break;
        r = floor_div(v[0], v[1]);
        if (op == LAR_TPL_MOD) r = v[0] - r * v[1];
        break;
    }
    if (!fits) return lar_tpl_fail(w, LAR_INVALID, "an integer outside 64 bits");
    *out = lar_tpl_int(r);
    return LAR_OK;
}

static lar_error real_op(lar_tpl_work *w, lar_tpl_binary op, const double v[2], lar_tpl *out) {
    double r = 0;
    bool divides = op == LAR_TPL_DIV || op == LAR_TPL_FLOORDIV || op == LAR_TPL_MOD;
    if (divides && v[1] == 0) return lar_tpl_fail(w, LAR_INVALID, "division by zero");
    switch (op) {
    case LAR_TPL_ADD: r = v[0] + v[1]; break;
    case LAR_TPL_SUB: r = v[0] - v[1]; break;
    case LAR_TPL_MUL: r = v[0] * v[1]; break;
    case LAR_TPL_DIV: r = v[0] / v[1]; break;
    case LAR_TPL_FLOORDIV: r = floor(v[0] / v[1]); break;
    case LAR_TPL_MOD:
        r = fmod(v[0], v[1]);
        if (r != 0 && (r < 0) != (v[1] < 0)) r += v[1];
        break;
    default: r = pow(v[0], v[1]); break;
    }
    *out = lar_tpl_float(r);
    return LAR_OK;
}

static lar_error concat(lar_tpl_work *w, lar_tpl a, lar_tpl b, lar_tpl *out) {
    lar_tpl_out o = {.w = w};
    lar_error e = lar_tpl_out_value(&o, a);
    if (!e) e = lar_tpl_out_value(&o, b);
    return e ? e : lar_tpl_out_finish(&o, out);
}

static lar_error concat_lists(lar_tpl_work *w, lar_tpl a, lar_tpl b, lar_tpl *out) {
    uint32_t n = a.as.list->count, m = b.as.list->count;
    lar_error e = lar_tpl_list_new(w, (lar_tpl_kind)a.kind, n + m, out);
    if (e) return e;
    if (n) memcpy(out->as.list->items, a.as.list->items, n * sizeof a);
    if (m) memcpy(out->as.list->items + n, b.as.list->items, m * sizeof a);
    out->as.list->count = n + m;
    out->origin = merged(a, b);
    return lar_tpl_pay(w, (n + m) / 8);
}

/* Text or a list, several times. */
static lar_error repeat(lar_tpl_work *w, lar_tpl v, int64_t times, lar_tpl *out) {
    lar_tpl_out o = {.w = w};
    lar_error e = LAR_OK;
    if (v.kind == LAR_TPL_STRING) {
        for (int64_t i = 0; !e && i < times && v.as.string->len; i++) {
            e = lar_tpl_out_string(&o, v.as.string);
            if (!e) e = lar_tpl_pay(w, 1);
        }
        return e ? e : lar_tpl_out_finish(&o, out);
    }
    e = lar_tpl_list_new(w, (lar_tpl_kind)v.kind, 0, out);
    for (int64_t i = 0; !e && i < times && v.as.list->count; i++) {
        for (uint32_t k = 0; !e && k < v.as.list->count; k++) {
            e = lar_tpl_list_add(w, out->as.list, v.as.list->items[k]);
            if (!e) e = lar_tpl_pay(w, 1);
        }
    }
    return e;
}

static const char *const signs[] = {"+",  "-",  "*", "/",  "//", "%",  "**", "~",
                                    "==", "!=", "<", "<=", ">",  ">=", "in", "not in"};

static lar_error arithmetic(lar_tpl_work *w, lar_tpl_binary op, lar_tpl a, lar_tpl b, lar_tpl *out) {
    if (op == LAR_TPL_ADD && a.kind == LAR_TPL_STRING && b.kind == LAR_TPL_STRING) return concat(w, a, b, out);
    if (op == LAR_TPL_ADD && lar_tpl_is_list(a) && a.kind == b.kind) return concat_lists(w, a, b, out);
    if (op == LAR_TPL_MUL && is_whole(b) && (a.kind == LAR_TPL_STRING || lar_tpl_is_list(a)))
        return repeat(w, a, whole(b), out);
    if (op == LAR_TPL_MUL && is_whole(a) && (b.kind == LAR_TPL_STRING || lar_tpl_is_list(b)))
        return repeat(w, b, whole(a), out);
    if (!is_real(a) || !is_real(b)) return operands(w, signs[op], a, b);
    lar_error e;
    if (is_whole(a) && is_whole(b) && op != LAR_TPL_DIV && !(op == LAR_TPL_POW && whole(b) < 0)) {
        const int64_t v[2] = {whole(a), whole(b)};
        e = whole_op(w, op, v, out);
    } else {
        const double v[2] = {real(a), real(b)};
        e = real_op(w, op, v, out);
    }
    if (!e) out->origin = merged(a, b);
    return e;
}

lar_error lar_tpl_binary_op(lar_tpl_work *w, lar_tpl_binary op, lar_tpl a, lar_tpl b, lar_tpl *out) {
    bool truth = false;
    int order = 0;
    lar_error e;
    switch (op) {
    case LAR_TPL_JOIN: return concat(w, a, b, out);
    case LAR_TPL_EQ:
    case LAR_TPL_NE:
        e = lar_tpl_equal(w, a, b, &truth);
        *out = lar_tpl_bool(truth == (op == LAR_TPL_EQ));
        return e;
    case LAR_TPL_IN:
    case LAR_TPL_NOT_IN:
        e = lar_tpl_contains(w, b, a, &truth);
        *out = lar_tpl_bool(truth == (op == LAR_TPL_IN));
        return e;
    case LAR_TPL_LT:
    case LAR_TPL_LE:
    case LAR_TPL_GT:
    case LAR_TPL_GE:
        if (a.kind == LAR_TPL_UNDEFINED || b.kind == LAR_TPL_UNDEFINED) return operands(w, signs[op], a, b);
        e = lar_tpl_order(w, a, b, &order);
        *out = lar_tpl_bool(op == LAR_TPL_LT   ? order < 0
                            : op == LAR_TPL_LE ? order <= 0
                            : op == LAR_TPL_GT ? order > 0
                                               : order >= 0);
        return e;
    default: return arithmetic(w, op, a, b, out);
    }
}

/* -- attributes, items, slices ---------------------------------------------------------------------------- */

/* Methods that are not called are values in Python; a template can only ask whether they are there. */
static bool is_dict_method(lar_slice name) {
    static const char *const names[] = {"clear", "copy",    "fromkeys",   "get",    "items", "keys",
                                        "pop",   "popitem", "setdefault", "update", "values"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (lar_slice_eq_cstr(name, names[i])) return true;
    return false;
}

static lar_error undefined_of(lar_tpl_work *w, lar_slice name, lar_tpl *out) {
    lar_slice text = lar_arena_copy(w->arena, name.len > 80 ? lar_slice_of(name.ptr, 0) : name);
    if (!text.ptr) return lar_tpl_no_memory(w);
    *out = lar_tpl_undefined(text.ptr);
    return LAR_OK;
}

lar_error lar_tpl_attribute(lar_tpl_work *w, lar_tpl x, lar_slice name, lar_tpl *out) {
    if (x.kind == LAR_TPL_UNDEFINED)
        return lar_tpl_fail(w, LAR_INVALID, "'%s' is undefined and has no '%.*s'", x.as.name ? x.as.name : "a value",
                            LAR_FMT(name));
    if (x.kind == LAR_TPL_DICT && is_dict_method(name)) {
        *out = (lar_tpl){.kind = LAR_TPL_METHOD};
        return LAR_OK;
    }
    if (x.kind == LAR_TPL_DICT || x.kind == LAR_TPL_NAMESPACE) {
        const lar_tpl *found = lar_tpl_dict_find(w, x.as.dict, name);
        if (found) {
            *out = *found;
            return LAR_OK;
        }
    } else if ((x.kind == LAR_TPL_STRING || lar_tpl_is_list(x)) && lar_tpl_find_method(name)) {
        *out = (lar_tpl){.kind = LAR_TPL_METHOD};
        return LAR_OK;
    }
    return undefined_of(w, name, out);
}

lar_error lar_tpl_item(lar_tpl_work *w, lar_tpl x, lar_tpl i, lar_tpl *out) {
    if (x.kind == LAR_TPL_UNDEFINED)
        return lar_tpl_fail(w, LAR_INVALID, "'%s' is undefined and has no items", x.as.name ? x.as.name : "a value");
    if (x.kind == LAR_TPL_DICT) {
        const lar_tpl *found = lar_tpl_dict_find_key(w, x.as.dict, i);
        if (found) {
            *out = *found;
            return LAR_OK;
        }
    }
    if (i.kind == LAR_TPL_STRING)
        return x.kind == LAR_TPL_DICT ? undefined_of(w, lar_tpl_slice(i), out)
                                      : lar_tpl_attribute(w, x, lar_tpl_slice(i), out);
    *out = lar_tpl_undefined("item");
    if (!is_whole(i) || (x.kind != LAR_TPL_STRING && !lar_tpl_is_list(x))) return LAR_OK;
    uint64_t length = 0;
    lar_error e = lar_tpl_length(w, x, &length);
    int64_t at = whole(i) < 0 ? whole(i) + (int64_t)length : whole(i);
    if (e || at < 0 || at >= (int64_t)length) return e;
    if (lar_tpl_is_list(x)) {
        *out = x.as.list->items[at];
        return LAR_OK;
    }
    uint32_t from = lar_tpl_string_offset(x.as.string, (uint64_t)at);
    return lar_tpl_string_cut(w, x.as.string, from, lar_tpl_string_offset(x.as.string, (uint64_t)at + 1), out);
}

typedef struct bounds {
    int64_t start, stop, step;
} bounds;

/* Python's slice.indices(). */
static lar_error find_bounds(lar_tpl_work *w, const lar_tpl given[3], int64_t length, bounds *b) {
    int64_t v[3] = {0, 0, 1};
    for (int i = 0; i < 3; i++) {
        if (given[i].kind != LAR_TPL_NONE && !is_whole(given[i]))
            return lar_tpl_fail(w, LAR_INVALID, "%s as a bound of a slice", lar_tpl_kind_name(given[i]));
        if (given[i].kind != LAR_TPL_NONE) v[i] = whole(given[i]);
    }
    if (v[2] == 0) return lar_tpl_fail(w, LAR_INVALID, "a slice with step 0");
    int64_t low = v[2] > 0 ? 0 : -1, high = v[2] > 0 ? length : length - 1;
    for (int i = 0; i < 2; i++) {
        if (given[i].kind == LAR_TPL_NONE) v[i] = (i == 0) == (v[2] > 0) ? low : high;
        else if (v[i] < 0) v[i] = v[i] + length < low ? low : v[i] + length;
        else if (v[i] > high) v[i] = high;
    }
    if (v[2] > length) v[2] = length + 1; /* further than that is all the same, and cannot overflow */
    if (v[2] < -length) v[2] = -length - 1;
    *b = (bounds){v[0], v[1], v[2]};
    return LAR_OK;
}

static lar_error cut_string(lar_tpl_work *w, const lar_tpl_string *s, bounds b, lar_tpl *out) {
    if (b.step == 1) {
        if (b.start >= b.stop) return lar_tpl_string_cut(w, s, 0, 0, out);
        uint32_t from = lar_tpl_string_offset(s, (uint64_t)b.start);
        return lar_tpl_string_cut(w, s, from, lar_tpl_string_offset(s, (uint64_t)b.stop), out);
    }
    lar_tpl_out o = {.w = w};
    lar_tpl characters, whole_string = {.kind = LAR_TPL_STRING, .as.string = s};
    lar_error e = lar_tpl_to_list(w, whole_string, &characters);
    for (int64_t i = b.start; !e && (b.step > 0 ? i < b.stop : i > b.stop); i += b.step)
        e = lar_tpl_out_string(&o, characters.as.list->items[i].as.string);
    return e ? e : lar_tpl_out_finish(&o, out);
}

lar_error lar_tpl_cut(lar_tpl_work *w, lar_tpl x, const lar_tpl given[3], lar_tpl *out) {
    uint64_t length = 0;
    bounds b = {0};
    if (x.kind == LAR_TPL_UNDEFINED) {
        *out = lar_tpl_undefined(x.as.name);
        return LAR_OK;
    }
    if (x.kind != LAR_TPL_STRING && !lar_tpl_is_list(x))
        return lar_tpl_fail(w, LAR_INVALID, "a slice of %s", lar_tpl_kind_name(x));
    lar_error e = lar_tpl_length(w, x, &length);
    if (!e) e = find_bounds(w, given, (int64_t)length, &b);
    if (!e) e = lar_tpl_pay(w, length / 64);
    if (e) return e;
    if (x.kind == LAR_TPL_STRING) return cut_string(w, x.as.string, b, out);
    e = lar_tpl_list_new(w, (lar_tpl_kind)x.kind, 0, out);
    out->origin = x.origin;
    for (int64_t i = b.start; !e && (b.step > 0 ? i < b.stop : i > b.stop); i += b.step)
        e = lar_tpl_list_add(w, out->as.list, x.as.list->items[i]);
    return e;
}
