/* The variables of a rendering: JSON, text and switches as values.
 * Flow: larder run -> lar_template_set_* -> values that template_run.c reads; base/json.h parses.
 * Thread: one at a time. Never blocks.
 * Invariants: 1. text from JSON is VALUE, but a known role of a message. 2. everything is copied: the JSON may go.
 * 3. nesting is at most JSON_DEPTH_MAX and walked with a stack of that size.
 * Memory: one arena for all values, freed with them; the span tree of one call. */
#include <errno.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/utf8.h"
#include "engine/text/template_run.h"

enum { JSON_DEPTH_MAX = 64, JSON_NODES_MAX = 1 << 20 };

typedef struct reader {
    lar_tpl_work *w;
    lar_json tree;
    lar_buf text; /* of one decoded string */
    bool messages;
    lar_template_arguments arguments;
} reader;

typedef struct open_value {
    lar_tpl v;
    uint32_t node, child; /* the next child, NONE: done */
    lar_tpl key;
} open_value;

/* A lone surrogate was decoded to three bytes that are no UTF-8: U+FFFD has three, too. */
static void replace_surrogates(char *p, size_t len) {
    for (size_t i = 0; i + 2 < len; i++)
        if ((unsigned char)p[i] == 0xED && (unsigned char)p[i + 1] >= 0xA0) memcpy(p + i, "\xEF\xBF\xBD", 3);
}

static lar_error read_string(reader *r, uint32_t node, lar_template_origin origin, lar_tpl *out) {
    lar_slice s = lar_json_inner(&r->tree, node);
    if (r->tree.nodes[node].flags & LAR_JSON_ESCAPED) {
        r->text.len = 0;
        lar_error e = lar_json_decode(&r->tree, node, &r->text);
        if (e) return e;
        replace_surrogates(r->text.ptr, r->text.len);
        s = lar_buf_slice(&r->text);
    }
    lar_slice copy = lar_arena_copy(r->w->arena, s);
    return copy.ptr ? lar_tpl_string_of(r->w, copy, origin, out) : lar_tpl_no_memory(r->w);
}

static lar_error read_number(reader *r, uint32_t node, lar_tpl *out) {
    lar_slice raw = lar_json_raw(&r->tree, node);
    if (memchr(raw.ptr, '.', raw.len) || memchr(raw.ptr, 'e', raw.len) || memchr(raw.ptr, 'E', raw.len)) {
        lar_slice text = lar_arena_copy(r->w->arena, raw);
        if (!text.ptr) return lar_tpl_no_memory(r->w);
        *out = lar_tpl_float(strtod(text.ptr, NULL)); /* over the range it is infinite, as in Python */
        return LAR_OK;
    }
    char digits[24];
    if (raw.len < sizeof digits) {
        memcpy(digits, raw.ptr, raw.len);
        digits[raw.len] = 0;
        errno = 0;
        long long value = strtoll(digits, NULL, 10);
        if (!errno) {
            *out = lar_tpl_int(value);
            return LAR_OK;
        }
    }
    lar_slice text = lar_arena_copy(r->w->arena, raw);
    if (!text.ptr) return lar_tpl_no_memory(r->w);
    lar_error e = lar_tpl_string_of(r->w, text, LAR_TEMPLATE_VALUE, out);
    out->kind = LAR_TPL_BIG;
    return e;
}

static lar_error read_value(reader *r, uint32_t node, lar_tpl *out) {
    lar_error e = LAR_OK;
    switch (lar_json_kind_of(&r->tree, node)) {
    case LAR_JSON_NULL: *out = lar_tpl_none(); break;
    case LAR_JSON_TRUE: *out = lar_tpl_bool(true); break;
    case LAR_JSON_FALSE: *out = lar_tpl_bool(false); break;
    case LAR_JSON_NUMBER: e = read_number(r, node, out); break;
    case LAR_JSON_STRING: return read_string(r, node, LAR_TEMPLATE_VALUE, out);
    case LAR_JSON_ARRAY:
        e = lar_tpl_list_new(r->w, LAR_TPL_LIST, r->tree.nodes[node].count, out);
        if (!e) out->as.list->given = true;
        break;
    case LAR_JSON_OBJECT: e = lar_tpl_dict_new(r->w, LAR_TPL_DICT, r->tree.nodes[node].count, out); break;
    }
    out->origin = LAR_TEMPLATE_VALUE;
    return e;
}

static bool known_role(lar_slice role) {
    static const char *const names[] = {"system", "developer", "user", "assistant", "tool", "function", "observation"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (lar_slice_eq_cstr(role, names[i])) return true;
    return false;
}

/* Puts a finished value into the level around it. */
static lar_error place(reader *r, open_value *in, uint32_t depth, lar_tpl v) {
    if (lar_tpl_is_list(in->v)) return lar_tpl_list_add(r->w, in->v.as.list, v);
    if (r->messages && depth == 2 && v.kind == LAR_TPL_STRING && lar_slice_eq_cstr(lar_tpl_slice(in->key), "role") &&
        known_role(lar_tpl_slice(v))) {
        lar_error e = lar_tpl_string_of(r->w, lar_tpl_slice(v), LAR_TEMPLATE_OWN, &v);
        if (e) return e;
    }
    lar_error e = lar_tpl_dict_set(r->w, in->v.as.dict, in->key, v);
    if (!e && !r->w->steps) e = lar_tpl_fail(r->w, LAR_LIMIT, "a JSON object has too many members");
    return e;
}

static lar_error read_tree(reader *r, lar_tpl *out) {
    open_value stack[JSON_DEPTH_MAX + 1];
    uint32_t depth = 0, node = 0;
    for (;;) {
        lar_tpl v;
        lar_error e = read_value(r, node, &v);
        if (e) return e;
        bool open = v.kind == LAR_TPL_LIST || v.kind == LAR_TPL_DICT;
        if (open) stack[depth++] = (open_value){.v = v, .node = node, .child = lar_json_first(&r->tree, node)};
        while (!open || stack[depth - 1].child == LAR_JSON_NONE) {
            if (open) v = stack[--depth].v;
            open = true;
            if (!depth) {
                *out = v;
                return LAR_OK;
            }
            e = place(r, &stack[depth - 1], depth, v);
            if (e) return e;
        }
        open_value *in = &stack[depth - 1];
        node = in->child;
        in->child = lar_json_after(&r->tree, in->node, node);
        if (lar_tpl_is_list(in->v)) continue;
        e = read_string(r, node++, LAR_TEMPLATE_VALUE, &in->key);
        if (e) return e;
    }
}

static lar_error parse_json(reader *r, lar_slice json, lar_tpl *out) {
    const lar_json_limits limits = {.depth_max = JSON_DEPTH_MAX, .nodes_max = JSON_NODES_MAX};
    lar_json_init(&r->tree);
    lar_buf_init(&r->text, json.len + 1);
    lar_error e = lar_json_parse(&r->tree, json, &limits, r->w->diag);
    if (!e) e = read_tree(r, out);
    lar_json_release(&r->tree);
    lar_buf_release(&r->text);
    return e;
}

/* JSON text as a value whose strings are VALUE. */
static lar_error from_json(lar_tpl_work *w, lar_slice json, lar_tpl *out) {
    reader r = {.w = w};
    return parse_json(&r, json, out);
}

/* -- the variables -------------------------------------------------------------------------------------- */

lar_template_values *lar_template_values_new(size_t memory_bytes_max) {
    lar_template_values *v = calloc(1, sizeof *v);
    if (!v) return NULL;
    lar_arena_init(&v->arena, memory_bytes_max);
    v->work = (lar_tpl_work){.arena = &v->arena, .steps = UINT64_MAX, .output_max = UINT32_MAX / 2};
    return v;
}

void lar_template_values_free(lar_template_values *v) {
    if (!v) return;
    lar_arena_release(&v->arena);
    free(v);
}

/* The budget and the place for messages of one call. */
static lar_tpl_work *begin(lar_template_values *v, lar_diag *d) {
    v->work.steps = 100000000;
    v->work.diag = d;
    return &v->work;
}

static lar_error store(lar_template_values *v, const char *name, lar_tpl value) {
    for (uint32_t i = 0; i < v->count; i++) {
        if (strcmp(v->names[i], name) != 0) continue;
        v->values[i] = value;
        return LAR_OK;
    }
    if (v->count == LAR_TPL_VARIABLES_MAX)
        return lar_tpl_fail(&v->work, LAR_LIMIT, "more than %d variables for a template", LAR_TPL_VARIABLES_MAX);
    lar_slice copy = lar_arena_copy(&v->arena, lar_slice_cstr(name));
    if (!copy.ptr) return lar_tpl_no_memory(&v->work);
    v->names[v->count] = copy.ptr;
    v->values[v->count++] = value;
    return LAR_OK;
}

bool lar_tpl_is_utf8(lar_slice s) {
    const unsigned char *p = (const unsigned char *)s.ptr, *end = p + s.len;
    while (p < end) {
        size_t n = lar_utf8_sequence(p, end);
        if (!n) return false;
        p += n;
    }
    return true;
}

lar_error lar_template_set_text(lar_template_values *v, const char *name, lar_slice text, lar_template_origin origin) {
    lar_tpl_work *w = begin(v, NULL);
    if (text.len > UINT32_MAX / 2) return LAR_LIMIT;
    if (!lar_tpl_is_utf8(text)) return LAR_INVALID;
    lar_slice copy = lar_arena_copy(&v->arena, text);
    if (!copy.ptr) return lar_tpl_no_memory(w);
    lar_tpl value;
    lar_error e = lar_tpl_string_of(w, copy, origin, &value);
    return e ? e : store(v, name, value);
}

lar_error lar_template_set_bool(lar_template_values *v, const char *name, bool on) {
    (void)begin(v, NULL);
    return store(v, name, lar_tpl_bool(on));
}

lar_error lar_template_set_json(lar_template_values *v, const char *name, lar_slice json, lar_diag *d) {
    lar_tpl value;
    lar_error e = from_json(begin(v, d), json, &value);
    if (!e) e = store(v, name, value);
    v->work.diag = NULL;
    return e;
}

/* The text of arguments becomes the object it holds; what holds none stays text. */
static lar_error parse_arguments(lar_tpl_work *w, lar_tpl call) {
    lar_tpl *function = call.kind == LAR_TPL_DICT ? lar_tpl_dict_find(w, call.as.dict, LAR_SLICE("function")) : NULL;
    if (!function || function->kind != LAR_TPL_DICT) return LAR_OK;
    lar_tpl *arguments = lar_tpl_dict_find(w, function->as.dict, LAR_SLICE("arguments"));
    if (!arguments || arguments->kind != LAR_TPL_STRING) return LAR_OK;
    lar_diag *diag = w->diag;
    lar_tpl parsed;
    w->diag = NULL;
    lar_error e = from_json(w, lar_tpl_slice(*arguments), &parsed);
    w->diag = diag;
    if (!e && parsed.kind == LAR_TPL_DICT) *arguments = parsed;
    return e == LAR_LIMIT || e == LAR_NO_MEMORY ? e : LAR_OK;
}

static lar_error check_message(reader *r, lar_tpl message, uint32_t number) {
    lar_tpl *role = message.kind == LAR_TPL_DICT ? lar_tpl_dict_find(r->w, message.as.dict, LAR_SLICE("role")) : NULL;
    if (!role || role->kind != LAR_TPL_STRING)
        return lar_tpl_fail(r->w, LAR_JSON_SHAPE, "message %u is no object with a role", number);
    lar_tpl *calls = lar_tpl_dict_find(r->w, message.as.dict, LAR_SLICE("tool_calls"));
    if (r->arguments != LAR_TEMPLATE_ARGUMENTS_OBJECT || !calls || calls->kind != LAR_TPL_LIST) return LAR_OK;
    for (uint32_t i = 0; i < calls->as.list->count; i++) {
        lar_error e = parse_arguments(r->w, calls->as.list->items[i]);
        if (e) return e;
    }
    return LAR_OK;
}

lar_error lar_template_set_messages(lar_template_values *v, lar_slice json, lar_template_arguments arguments,
                                    lar_diag *d) {
    reader r = {.w = begin(v, d), .messages = true, .arguments = arguments};
    lar_tpl value;
    lar_error e = parse_json(&r, json, &value);
    if (!e && value.kind != LAR_TPL_LIST) e = lar_tpl_fail(r.w, LAR_JSON_SHAPE, "messages are no array");
    for (uint32_t i = 0; !e && i < value.as.list->count; i++) e = check_message(&r, value.as.list->items[i], i);
    if (!e) e = store(v, "messages", value);
    v->work.diag = NULL;
    return e;
}

void lar_template_set_now(lar_template_values *v, int64_t local_seconds) {
    v->work.now = local_seconds;
    v->work.has_now = true;
}
