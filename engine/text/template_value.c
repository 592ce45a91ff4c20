/* Values of a template's run: making them, strings with the origin of each byte, lists and dicts.
 * Flow: the parser, the machine (template_run.c), filters and methods call it; it calls the arena.
 * Thread: that of the rendering. Never blocks.
 * Why: a string must know after any operation which of its bytes came from a user (tokenizers ask).
 * Invariants: 1. strings are immutable and valid UTF-8; cuts fall between characters. 2. runs end at ascending offsets,
 * the last at the string's length, neighbours differ. 3. lists of the values given are never changed.
 * Memory: the arena of the run; what is outgrown stays there until the run ends. */
#include "engine/text/template_value.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/ensure.h"

lar_error lar_tpl_fail(lar_tpl_work *w, lar_error e, const char *fmt, ...) {
    if (!w->diag) return e;
    char text[LAR_DIAG_BYTES];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!w->source.ptr) return lar_fail(e, w->diag, "%s", text);
    uint32_t line = 1, column = 1;
    for (uint32_t i = 0; i < w->at && i < w->source.len; i++) {
        unsigned char c = (unsigned char)w->source.ptr[i];
        if (c == '\n') line++, column = 1;
        else if ((c & 0xC0) != 0x80) column++;
    }
    return lar_fail_at(e, w->diag, w->at, "line %u, column %u of the template: %s", line, column, text);
}

lar_error lar_tpl_pay(lar_tpl_work *w, uint64_t steps) {
    if (steps > w->steps) {
        w->steps = 0;
        return lar_tpl_fail(w, LAR_LIMIT, "the template takes more steps than are allowed");
    }
    w->steps -= steps;
    return LAR_OK;
}

void *lar_tpl_alloc(lar_tpl_work *w, size_t bytes) { return lar_arena_alloc(w->arena, bytes ? bytes : 1); }

lar_error lar_tpl_no_memory(lar_tpl_work *w) {
    return lar_tpl_fail(w, LAR_LIMIT, "the template needs more memory than the %zu bytes it is allowed",
                        w->arena->limit);
}

const char *lar_tpl_kind_name(lar_tpl v) {
    static const char *const names[] = {"undefined",   "none", "a boolean", "an integer", "an integer",
                                        "a float",     "text", "a list",    "a tuple",    "a mapping",
                                        "a namespace", "loop", "a macro",   "a method"};
    return names[v.kind];
}

bool lar_tpl_truth(lar_tpl v) {
    switch ((lar_tpl_kind)v.kind) {
    case LAR_TPL_UNDEFINED:
    case LAR_TPL_NONE: return false;
    case LAR_TPL_BOOL: return v.as.truth;
    case LAR_TPL_INT: return v.as.integer != 0;
    case LAR_TPL_FLOAT: return v.as.real != 0;
    case LAR_TPL_STRING: return v.as.string->len != 0;
    case LAR_TPL_LIST:
    case LAR_TPL_TUPLE: return v.as.list->count != 0;
    case LAR_TPL_DICT: return v.as.dict->count != 0;
    default: return true; /* a big integer is not 0 */
    }
}

/* -- strings ------------------------------------------------------------------------------------------ */

static lar_error make_string(lar_tpl_work *w, lar_tpl_string s, lar_tpl *out) {
    lar_tpl_string *p = lar_tpl_alloc(w, sizeof *p);
    if (!p) return lar_tpl_no_memory(w);
    *p = s;
    *out = (lar_tpl){.kind = LAR_TPL_STRING, .as.string = p};
    return LAR_OK;
}

lar_error lar_tpl_string_of(lar_tpl_work *w, lar_slice bytes, lar_template_origin origin, lar_tpl *out) {
    return make_string(w, (lar_tpl_string){.ptr = bytes.ptr, .len = (uint32_t)bytes.len, .origin = origin}, out);
}

/* Number of the first run that ends behind `at`. */
static uint32_t run_at(const lar_tpl_string *s, uint32_t at) {
    uint32_t low = 0, high = s->run_count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (s->runs[mid].end > at) high = mid;
        else low = mid + 1;
    }
    return low;
}

lar_error lar_tpl_string_cut(lar_tpl_work *w, const lar_tpl_string *s, uint32_t from, uint32_t to, lar_tpl *out) {
    LAR_ASSERT(from <= to && to <= s->len);
    lar_slice bytes = lar_slice_of(s->ptr + from, to - from);
    if (!s->run_count) return lar_tpl_string_of(w, bytes, s->origin, out);
    if (from == to) return lar_tpl_string_of(w, bytes, LAR_TEMPLATE_OWN, out);
    uint32_t first = run_at(s, from), last = run_at(s, to - 1);
    if (first == last) return lar_tpl_string_of(w, bytes, s->runs[first].origin, out);
    uint32_t count = last - first + 1;
    lar_tpl_run *runs = lar_tpl_alloc(w, count * sizeof *runs);
    if (!runs) return lar_tpl_no_memory(w);
    for (uint32_t i = 0; i < count; i++) {
        runs[i] = s->runs[first + i];
        runs[i].end = (runs[i].end < to ? runs[i].end : to) - from;
    }
    return make_string(w, (lar_tpl_string){.ptr = bytes.ptr, .len = to - from, .run_count = count, .runs = runs}, out);
}

uint64_t lar_tpl_string_points(const lar_tpl_string *s) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->len; i++) n += ((unsigned char)s->ptr[i] & 0xC0) != 0x80;
    return n;
}

uint32_t lar_tpl_string_offset(const lar_tpl_string *s, uint64_t n) {
    for (uint32_t i = 0; i < s->len; i++) {
        if (((unsigned char)s->ptr[i] & 0xC0) == 0x80) continue;
        if (n-- == 0) return i;
    }
    return s->len;
}

/* Room for `more` bytes and a run. */
static lar_error out_room(lar_tpl_out *o, size_t more) {
    if (more > o->w->output_max - o->len)
        return lar_tpl_fail(o->w, LAR_LIMIT, "the text grows over %zu bytes", o->w->output_max);
    if (o->len + more > o->cap) {
        size_t cap = o->cap ? o->cap : 64;
        while (cap < o->len + more) cap *= 2;
        char *p = lar_tpl_alloc(o->w, cap);
        if (!p) return lar_tpl_no_memory(o->w);
        if (o->len) memcpy(p, o->ptr, o->len);
        o->ptr = p;
        o->cap = (uint32_t)cap;
    }
    if (o->run_count == o->run_cap) {
        uint32_t cap = o->run_cap ? o->run_cap * 2 : 4;
        lar_tpl_run *runs = lar_tpl_alloc(o->w, cap * sizeof *runs);
        if (!runs) return lar_tpl_no_memory(o->w);
        if (o->run_count) memcpy(runs, o->runs, o->run_count * sizeof *runs);
        o->runs = runs;
        o->run_cap = cap;
    }
    return LAR_OK;
}

lar_error lar_tpl_out_add(lar_tpl_out *o, const char *bytes, size_t len, lar_template_origin origin) {
    if (!len) return LAR_OK;
    lar_error e = out_room(o, len);
    if (!e) e = lar_tpl_pay(o->w, len / 64);
    if (e) return e;
    memcpy(o->ptr + o->len, bytes, len);
    o->len += (uint32_t)len;
    if (o->run_count && o->runs[o->run_count - 1].origin == origin) o->runs[o->run_count - 1].end = o->len;
    else o->runs[o->run_count++] = (lar_tpl_run){o->len, origin};
    return LAR_OK;
}

lar_error lar_tpl_out_cut(lar_tpl_out *o, const lar_tpl_string *s, uint32_t from, uint32_t to) {
    if (!s->run_count) return lar_tpl_out_add(o, s->ptr + from, to - from, s->origin);
    for (uint32_t i = from < to ? run_at(s, from) : s->run_count; from < to && i < s->run_count; i++) {
        uint32_t end = s->runs[i].end < to ? s->runs[i].end : to;
        lar_error e = lar_tpl_out_add(o, s->ptr + from, end - from, s->runs[i].origin);
        if (e) return e;
        from = end;
    }
    return LAR_OK;
}

lar_error lar_tpl_out_string(lar_tpl_out *o, const lar_tpl_string *s) { return lar_tpl_out_cut(o, s, 0, s->len); }

lar_error lar_tpl_out_finish(lar_tpl_out *o, lar_tpl *string) {
    lar_tpl_string s = {.ptr = o->len ? o->ptr : "", .len = o->len};
    if (o->run_count == 1) {
        s.origin = o->runs[0].origin;
    } else {
        s.runs = o->runs;
        s.run_count = o->run_count;
    }
    return make_string(o->w, s, string);
}

lar_error lar_tpl_to_string(lar_tpl_work *w, lar_tpl v, lar_tpl *string) {
    if (v.kind == LAR_TPL_STRING) {
        *string = v;
        return LAR_OK;
    }
    lar_tpl_out o = {.w = w};
    lar_error e = lar_tpl_out_value(&o, v);
    return e ? e : lar_tpl_out_finish(&o, string);
}

/* -- lists and dicts ----------------------------------------------------------------------------------- */

lar_error lar_tpl_list_new(lar_tpl_work *w, lar_tpl_kind kind, uint32_t cap, lar_tpl *out) {
    lar_tpl_list *l = lar_tpl_alloc(w, sizeof *l);
    if (!l) return lar_tpl_no_memory(w);
    *l = (lar_tpl_list){.cap = cap};
    if (cap && !(l->items = lar_tpl_alloc(w, cap * sizeof *l->items))) return lar_tpl_no_memory(w);
    *out = (lar_tpl){.kind = (uint8_t)kind, .as.list = l};
    return LAR_OK;
}

lar_error lar_tpl_list_add(lar_tpl_work *w, lar_tpl_list *l, lar_tpl v) {
    if (l->count == l->cap) {
        uint32_t cap = l->cap ? l->cap * 2 : 4;
        lar_tpl *items = lar_tpl_alloc(w, cap * sizeof *items);
        if (!items) return lar_tpl_no_memory(w);
        if (l->count) memcpy(items, l->items, l->count * sizeof *items);
        l->items = items;
        l->cap = cap;
    }
    l->items[l->count++] = v;
    return LAR_OK;
}

lar_error lar_tpl_dict_new(lar_tpl_work *w, lar_tpl_kind kind, uint32_t cap, lar_tpl *out) {
    lar_tpl_dict *d = lar_tpl_alloc(w, sizeof *d);
    if (!d) return lar_tpl_no_memory(w);
    *d = (lar_tpl_dict){.cap = cap};
    if (cap && !(d->items = lar_tpl_alloc(w, 2 * (size_t)cap * sizeof *d->items))) return lar_tpl_no_memory(w);
    *out = (lar_tpl){.kind = (uint8_t)kind, .as.dict = d};
    return LAR_OK;
}

lar_tpl *lar_tpl_dict_find(lar_tpl_work *w, const lar_tpl_dict *d, lar_slice key) {
    /* Dicts of messages are small. A large one costs steps, which end the run; the look-up itself cannot fail. */
    uint64_t cost = d->count / 8;
    w->steps = cost < w->steps ? w->steps - cost : 0;
    for (uint32_t i = 0; i < d->count; i++) {
        lar_tpl k = d->items[2 * i];
        if (k.kind == LAR_TPL_STRING && lar_slice_eq(lar_tpl_slice(k), key)) return &d->items[2 * i + 1];
    }
    return NULL;
}

lar_tpl *lar_tpl_dict_find_key(lar_tpl_work *w, const lar_tpl_dict *d, lar_tpl key) {
    if (key.kind == LAR_TPL_STRING) return lar_tpl_dict_find(w, d, lar_tpl_slice(key));
    for (uint32_t i = 0; i < d->count; i++) {
        bool equal = false;
        lar_tpl k = d->items[2 * i];
        if (k.kind == LAR_TPL_STRING || lar_tpl_is_list(k)) continue;
        if (!lar_tpl_equal(w, k, key, &equal) && equal) return &d->items[2 * i + 1];
    }
    return NULL;
}

lar_error lar_tpl_dict_set(lar_tpl_work *w, lar_tpl_dict *d, lar_tpl key, lar_tpl v) {
    lar_tpl *found = lar_tpl_dict_find_key(w, d, key);
    if (found) {
        *found = v;
        return LAR_OK;
    }
    if (d->count == d->cap) {
        uint32_t cap = d->cap ? d->cap * 2 : 4;
        lar_tpl *items = lar_tpl_alloc(w, 2 * (size_t)cap * sizeof *items);
        if (!items) return lar_tpl_no_memory(w);
        if (d->count) memcpy(items, d->items, 2 * (size_t)d->count * sizeof *items);
        d->items = items;
        d->cap = cap;
    }
    d->items[2 * d->count] = key;
    d->items[2 * d->count++ + 1] = v;
    return LAR_OK;
}

static lar_error characters(lar_tpl_work *w, const lar_tpl_string *s, lar_tpl *list) {
    lar_error e = lar_tpl_list_new(w, LAR_TPL_LIST, s->len, list);
    for (uint32_t at = 0, end; !e && at < s->len; at = end) {
        lar_tpl c;
        for (end = at + 1; end < s->len && ((unsigned char)s->ptr[end] & 0xC0) == 0x80;) end++;
        e = lar_tpl_string_cut(w, s, at, end, &c);
        if (!e) e = lar_tpl_list_add(w, list->as.list, c);
    }
    return e;
}

lar_error lar_tpl_to_list(lar_tpl_work *w, lar_tpl v, lar_tpl *list) {
    if (lar_tpl_is_list(v)) {
        *list = v;
        return LAR_OK;
    }
    if (v.kind == LAR_TPL_STRING) return characters(w, v.as.string, list);
    if (v.kind == LAR_TPL_UNDEFINED) return lar_tpl_list_new(w, LAR_TPL_LIST, 0, list);
    if (v.kind != LAR_TPL_DICT)
        return lar_tpl_fail(w, LAR_INVALID, "%s cannot be walked through", lar_tpl_kind_name(v));
    lar_error e = lar_tpl_list_new(w, LAR_TPL_LIST, v.as.dict->count, list);
    for (uint32_t i = 0; !e && i < v.as.dict->count; i++)
        e = lar_tpl_list_add(w, list->as.list, v.as.dict->items[2 * i]);
    list->origin = v.origin;
    return e;
}

lar_error lar_tpl_length(lar_tpl_work *w, lar_tpl v, uint64_t *n) {
    *n = 0;
    if (lar_tpl_is_list(v)) *n = v.as.list->count;
    else if (v.kind == LAR_TPL_DICT) *n = v.as.dict->count;
    else if (v.kind == LAR_TPL_STRING) *n = lar_tpl_string_points(v.as.string);
    else if (v.kind != LAR_TPL_UNDEFINED) return lar_tpl_fail(w, LAR_INVALID, "%s has no length", lar_tpl_kind_name(v));
    return lar_tpl_pay(w, v.kind == LAR_TPL_STRING ? v.as.string->len / 64 : 0);
}

lar_error lar_tpl_items(lar_tpl_work *w, lar_tpl dict, lar_tpl *list) {
    if (dict.kind == LAR_TPL_UNDEFINED) return lar_tpl_list_new(w, LAR_TPL_LIST, 0, list);
    if (dict.kind != LAR_TPL_DICT)
        return lar_tpl_fail(w, LAR_INVALID, "items of %s; only a mapping has any", lar_tpl_kind_name(dict));
    const lar_tpl_dict *d = dict.as.dict;
    lar_error e = lar_tpl_list_new(w, LAR_TPL_LIST, d->count, list);
    for (uint32_t i = 0; !e && i < d->count; i++) {
        lar_tpl pair;
        e = lar_tpl_list_new(w, LAR_TPL_TUPLE, 2, &pair);
        if (e) break;
        pair.origin = dict.origin;
        pair.as.list->items[0] = d->items[2 * i];
        pair.as.list->items[1] = d->items[2 * i + 1];
        pair.as.list->count = 2;
        e = lar_tpl_list_add(w, list->as.list, pair);
    }
    list->origin = dict.origin;
    return e ? e : lar_tpl_pay(w, d->count / 8);
}
