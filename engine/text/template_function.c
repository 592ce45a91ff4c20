/* The functions that templates call by name: range, namespace, raise_exception, strftime_now; the tests behind `is`;
 * and the tables of all names.
 * Flow: the parser looks names up, the machine calls. Thread: any. Never blocks.
 * Why strftime is written here: the C library's depends on the process's locale and zone; a prompt must not. */
#include <stdio.h>
#include <time.h>

#include "engine/text/template_run.h"

#define TPL_FILTER(name, id, least, most) {name, LAR_TPL_FILTER_##id, least, most},
#define TPL_FILTER_AS(name, id, least, most) {name, LAR_TPL_FILTER_##id, least, most},
static const lar_tpl_row filters[] = {
#include "engine/text/template.def"
};
#define TPL_TEST(name, id, least, most) {name, LAR_TPL_TEST_##id, least, most},
#define TPL_TEST_AS(name, id, least, most) {name, LAR_TPL_TEST_##id, least, most},
static const lar_tpl_row tests[] = {
#include "engine/text/template.def"
};
#define TPL_METHOD(name, id, least, most) {name, LAR_TPL_METHOD_##id, least, most},
static const lar_tpl_row methods[] = {
#include "engine/text/template.def"
};
#define TPL_FUNCTION(name, id, least, most) {name, LAR_TPL_FUNCTION_##id, least, most},
static const lar_tpl_row functions[] = {
#include "engine/text/template.def"
};

static const lar_tpl_row *find(const lar_tpl_row *rows, size_t bytes, lar_slice name) {
    for (size_t i = 0; i < bytes / sizeof *rows; i++)
        if (lar_slice_eq_cstr(name, rows[i].name)) return &rows[i];
    return NULL;
}

const lar_tpl_row *lar_tpl_find_filter(lar_slice name) { return find(filters, sizeof filters, name); }
const lar_tpl_row *lar_tpl_find_test(lar_slice name) { return find(tests, sizeof tests, name); }
const lar_tpl_row *lar_tpl_find_method(lar_slice name) { return find(methods, sizeof methods, name); }
const lar_tpl_row *lar_tpl_find_function(lar_slice name) { return find(functions, sizeof functions, name); }

const lar_tpl *lar_tpl_argument(const lar_tpl_call *c, uint32_t position, const char *name) {
    if (position < c->positional_count) return &c->positional[position];
    for (uint32_t i = 0; i < c->named_count; i++)
        if (lar_slice_eq_cstr(lar_tpl_slice(c->named[2 * i]), name)) return &c->named[2 * i + 1];
    return NULL;
}

lar_error lar_tpl_check_names(lar_tpl_work *w, const lar_tpl_call *c, const char *const *names) {
    for (uint32_t i = 0; i < c->named_count; i++) {
        lar_slice name = lar_tpl_slice(c->named[2 * i]);
        const char *const *n = names;
        while (*n && !lar_slice_eq_cstr(name, *n)) n++;
        if (!*n) return lar_tpl_fail(w, LAR_INVALID, "the argument '%.*s' is not supported here", LAR_FMT(name));
    }
    return LAR_OK;
}

/* -- functions ------------------------------------------------------------------------------------------- */

static lar_error make_range(lar_tpl_work *w, const lar_tpl_call *c, lar_tpl *out) {
    int64_t v[3] = {0, 0, 1};
    for (uint32_t i = 0; i < c->positional_count; i++) {
        if (c->positional[i].kind != LAR_TPL_INT)
            return lar_tpl_fail(w, LAR_INVALID, "range of %s", lar_tpl_kind_name(c->positional[i]));
        v[i] = c->positional[i].as.integer;
    }
    if (c->positional_count == 1) v[1] = v[0], v[0] = 0;
    if (v[2] == 0) return lar_tpl_fail(w, LAR_INVALID, "range with step 0");
    lar_error e = lar_tpl_list_new(w, LAR_TPL_LIST, 0, out);
    for (int64_t i = v[0]; !e && (v[2] > 0 ? i < v[1] : i > v[1]);) {
        e = lar_tpl_list_add(w, out->as.list, lar_tpl_int(i));
        if (!e) e = lar_tpl_pay(w, 1);
        if (__builtin_add_overflow(i, v[2], &i)) break;
    }
    return e;
}

static lar_error make_namespace(lar_tpl_work *w, const lar_tpl_call *c, lar_tpl *out) {
    lar_error e = lar_tpl_dict_new(w, LAR_TPL_NAMESPACE, c->named_count, out);
    for (uint32_t i = 0; !e && i < c->named_count; i++)
        e = lar_tpl_dict_set(w, out->as.dict, c->named[2 * i], c->named[2 * i + 1]);
    return e;
}

/* The template's own words; what came from a conversation is left out, since messages are logged. */
static lar_error raise_exception(lar_tpl_work *w, lar_tpl text) {
    char words[200];
    size_t n = 0;
    if (text.kind != LAR_TPL_STRING) return lar_tpl_fail(w, LAR_INVALID, "the template refuses this conversation");
    const lar_tpl_string *s = text.as.string;
    const lar_tpl_run one = {s->len, s->origin}, *runs = s->run_count ? s->runs : &one;
    uint32_t count = s->run_count ? s->run_count : 1;
    for (uint32_t i = 0, from = 0; i < count; from = runs[i++].end) {
        size_t len = runs[i].end - from;
        lar_slice piece = runs[i].origin == LAR_TEMPLATE_OWN ? lar_slice_of(s->ptr + from, len) : LAR_SLICE("...");
        if (piece.len > sizeof words - 1 - n) break;
        memcpy(words + n, piece.ptr, piece.len);
        n += piece.len;
    }
    return lar_tpl_fail(w, LAR_INVALID, "the template refuses this conversation: %.*s", (int)n, words);
}

static const char *const days[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
static const char *const months[] = {"January", "February", "March",     "April",   "May",      "June",
                                     "July",    "August",   "September", "October", "November", "December"};

/* One conversion; -1 if it is none of those known. */
static int time_piece(char c, const struct tm *t, char out[16]) {
    int hour = t->tm_hour % 12 ? t->tm_hour % 12 : 12;
    switch (c) {
    case 'Y': return snprintf(out, 16, "%d", t->tm_year + 1900);
    case 'y': return snprintf(out, 16, "%02d", t->tm_year % 100);
    case 'm': return snprintf(out, 16, "%02d", t->tm_mon + 1);
    case 'd': return snprintf(out, 16, "%02d", t->tm_mday);
    case 'H': return snprintf(out, 16, "%02d", t->tm_hour);
    case 'I': return snprintf(out, 16, "%02d", hour);
    case 'M': return snprintf(out, 16, "%02d", t->tm_min);
    case 'S': return snprintf(out, 16, "%02d", t->tm_sec);
    case 'j': return snprintf(out, 16, "%03d", t->tm_yday + 1);
    case 'p': return snprintf(out, 16, "%s", t->tm_hour < 12 ? "AM" : "PM");
    case 'A': return snprintf(out, 16, "%s", days[t->tm_wday]);
    case 'a': return snprintf(out, 16, "%.3s", days[t->tm_wday]);
    case 'B': return snprintf(out, 16, "%s", months[t->tm_mon]);
    case 'b': return snprintf(out, 16, "%.3s", months[t->tm_mon]);
    case '%': return snprintf(out, 16, "%%");
    default: return -1;
    }
}

static lar_error strftime_now(lar_tpl_work *w, lar_tpl form, lar_tpl *out) {
    if (!w->has_now) return lar_tpl_fail(w, LAR_INVALID, "strftime_now: no time was given");
    if (form.kind != LAR_TPL_STRING) return lar_tpl_fail(w, LAR_INVALID, "strftime_now of %s", lar_tpl_kind_name(form));
    time_t seconds = (time_t)w->now;
    struct tm t;
    if (!gmtime_r(&seconds, &t)) return lar_tpl_fail(w, LAR_INVALID, "strftime_now: the time is out of range");
    lar_slice f = lar_tpl_slice(form);
    lar_tpl_out o = {.w = w};
    lar_error e = LAR_OK;
    for (size_t i = 0; !e && i < f.len; i++) {
        char piece[16];
        if (f.ptr[i] != '%') {
            e = lar_tpl_out_add(&o, f.ptr + i, 1, LAR_TEMPLATE_OWN);
            continue;
        }
        int n = i + 1 < f.len ? time_piece(f.ptr[++i], &t, piece) : -1;
        if (n < 0) return lar_tpl_fail(w, LAR_INVALID, "strftime_now: %%%c is not supported", f.ptr[i]);
        e = lar_tpl_out_add(&o, piece, (size_t)n, LAR_TEMPLATE_OWN);
    }
    return e ? e : lar_tpl_out_finish(&o, out);
}

lar_error lar_tpl_function_call(lar_tpl_work *w, lar_tpl_function id, const lar_tpl_call *c, lar_tpl *out) {
    static const char *const none[] = {NULL};
    lar_error e = id == LAR_TPL_FUNCTION_NAMESPACE ? LAR_OK : lar_tpl_check_names(w, c, none);
    if (e) return e;
    switch (id) {
    case LAR_TPL_FUNCTION_NAMESPACE: return make_namespace(w, c, out);
    case LAR_TPL_FUNCTION_RANGE: return make_range(w, c, out);
    case LAR_TPL_FUNCTION_RAISE: return raise_exception(w, c->positional[0]);
    case LAR_TPL_FUNCTION_STRFTIME: return strftime_now(w, c->positional[0], out);
    }
    return LAR_INVALID;
}

/* -- tests ------------------------------------------------------------------------------------------------ */

static lar_error number_test(lar_tpl_work *w, lar_tpl_test id, const lar_tpl_call *c, bool *out) {
    lar_tpl by = id == LAR_TPL_TEST_DIVISIBLEBY ? c->positional[0] : lar_tpl_int(2), rest;
    lar_error e = lar_tpl_binary_op(w, LAR_TPL_MOD, c->subject, by, &rest);
    if (e) return e;
    *out = lar_tpl_truth(rest) == (id == LAR_TPL_TEST_ODD);
    return LAR_OK;
}

static lar_error compare_test(lar_tpl_work *w, lar_tpl_binary op, const lar_tpl_call *c, bool *out) {
    lar_tpl result;
    lar_error e = lar_tpl_binary_op(w, op, c->subject, c->positional[0], &result);
    *out = !e && result.as.truth;
    return e;
}

static lar_error same(lar_tpl_work *w, const lar_tpl_call *c, bool *out) {
    lar_tpl a = c->subject, b = c->positional[0];
    *out = false;
    if (a.kind != b.kind) return LAR_OK;
    if (lar_tpl_is_list(a) || a.kind == LAR_TPL_DICT) {
        *out = a.as.list == b.as.list;
        return LAR_OK;
    }
    return lar_tpl_equal(w, a, b, out);
}

lar_error lar_tpl_test_call(lar_tpl_work *w, lar_tpl_test id, const lar_tpl_call *c, bool *out) {
    static const char *const none[] = {NULL};
    lar_tpl_kind kind = (lar_tpl_kind)c->subject.kind;
    bool whole = kind == LAR_TPL_INT || kind == LAR_TPL_BIG, list = lar_tpl_is_list(c->subject);
    lar_error e = lar_tpl_check_names(w, c, none);
    if (e) return e;
    switch (id) {
    case LAR_TPL_TEST_BOOLEAN: *out = kind == LAR_TPL_BOOL; break;
    case LAR_TPL_TEST_DEFINED: *out = kind != LAR_TPL_UNDEFINED; break;
    case LAR_TPL_TEST_UNDEFINED: *out = kind == LAR_TPL_UNDEFINED; break;
    case LAR_TPL_TEST_FALSE: *out = kind == LAR_TPL_BOOL && !c->subject.as.truth; break;
    case LAR_TPL_TEST_TRUE: *out = kind == LAR_TPL_BOOL && c->subject.as.truth; break;
    case LAR_TPL_TEST_FLOAT: *out = kind == LAR_TPL_FLOAT; break;
    case LAR_TPL_TEST_INTEGER: *out = whole; break;
    case LAR_TPL_TEST_NUMBER: *out = whole || kind == LAR_TPL_FLOAT || kind == LAR_TPL_BOOL; break;
    case LAR_TPL_TEST_ITERABLE:
    case LAR_TPL_TEST_SEQUENCE: /* to Jinja, what has a length and items; undefined has both */
        *out = list || kind == LAR_TPL_STRING || kind == LAR_TPL_DICT || kind == LAR_TPL_UNDEFINED;
        break;
    case LAR_TPL_TEST_MAPPING: *out = kind == LAR_TPL_DICT; break;
    case LAR_TPL_TEST_NONE: *out = kind == LAR_TPL_NONE; break;
    case LAR_TPL_TEST_STRING: *out = kind == LAR_TPL_STRING; break;
    case LAR_TPL_TEST_SAMEAS: return same(w, c, out);
    case LAR_TPL_TEST_DIVISIBLEBY:
    case LAR_TPL_TEST_EVEN:
    case LAR_TPL_TEST_ODD: return number_test(w, id, c, out);
    case LAR_TPL_TEST_EQ: return compare_test(w, LAR_TPL_EQ, c, out);
    case LAR_TPL_TEST_NE: return compare_test(w, LAR_TPL_NE, c, out);
    case LAR_TPL_TEST_LT: return compare_test(w, LAR_TPL_LT, c, out);
    case LAR_TPL_TEST_LE: return compare_test(w, LAR_TPL_LE, c, out);
    case LAR_TPL_TEST_GT: return compare_test(w, LAR_TPL_GT, c, out);
    case LAR_TPL_TEST_GE: return compare_test(w, LAR_TPL_GE, c, out);
    case LAR_TPL_TEST_IN: return compare_test(w, LAR_TPL_IN, c, out);
    }
    return LAR_OK;
}
