/* Renders a parsed template: a stack machine over the instructions of template_run.h.
 * Flow: larder run -> lar_template_render -> filters, methods, operators (template_filter.c, template_string.c,
 * template_operate.c). Thread: any, one a rendering; the template is only read. Never blocks.
 * Why a machine: loops, macros and captures are on stacks of their own with limits, so a template can neither exhaust
 * the C stack nor run for ever: every instruction takes a step of the budget.
 * Invariants: 1. scopes are ranges of `vars`; a macro sees its own and the outermost (no macro is inside a scope).
 * 2. the values given are never changed. 3. after an error the output is empty.
 * Memory: one arena a rendering, freed at its end; the output is copied out. */
#include "engine/text/template_run.h"

#include <stdlib.h>

#include "base/ensure.h"

enum { STACK_MAX = 4096, VARIABLES_MAX = 4096, FRAMES_MAX = 256 };

typedef enum frame_kind { FRAME_LOOP, FRAME_SIFT, FRAME_MACRO } frame_kind;

typedef struct frame {
    frame_kind kind;
    uint32_t base;  /* of its variables */
    uint32_t floor; /* of the variables seen below it: those of the macro under way */
    lar_tpl list;   /* LOOP, SIFT: what it walks through */
    lar_tpl kept;   /* SIFT */
    uint32_t at;    /* elements taken */
    bool finished;  /* LOOP: a turn reached the end of the body; else, as in Jinja, the else block is next */
    uint32_t back;  /* MACRO: where to go on */
    uint32_t given; /* MACRO: parameters given, a bit each */
} frame;

typedef struct variable {
    uint32_t name;
    lar_tpl value;
} variable;

typedef struct machine {
    lar_tpl_work work;
    const lar_template *t;
    lar_tpl stack[STACK_MAX];
    variable vars[VARIABLES_MAX];
    frame frames[FRAMES_MAX];
    lar_tpl_out outs[FRAMES_MAX + 1]; /* [0]: the output; the rest: captures under way */
    uint32_t stack_count, var_count, frame_count, out_count, frames_max;
    uint32_t floor;     /* the first variable of the macro under way; 0: outside of macros */
    uint32_t global;    /* variables of the outermost scope */
    uint32_t loop_name; /* UINT32_MAX: the template never says `loop` */
} machine;

/* -- stack and variables ----------------------------------------------------------------------------------- */

static lar_error push(machine *m, lar_tpl v) {
    if (m->stack_count == STACK_MAX)
        return lar_tpl_fail(&m->work, LAR_LIMIT, "a list or call with more than %d values", STACK_MAX);
    m->stack[m->stack_count++] = v;
    return LAR_OK;
}

static lar_tpl pop(machine *m) {
    LAR_ASSERT(m->stack_count > 0);
    return m->stack[--m->stack_count];
}

/* The last `n` values, the first of them at [0]; they are dropped, and stay readable until the next push. */
static lar_tpl *pop_many(machine *m, uint32_t n) {
    LAR_ASSERT(m->stack_count >= n);
    m->stack_count -= n;
    return m->stack + m->stack_count;
}

static uint32_t scope_base(const machine *m) { return m->frame_count ? m->frames[m->frame_count - 1].base : 0; }

static lar_error set_variable(machine *m, uint32_t name, lar_tpl v) {
    uint32_t base = scope_base(m);
    lar_error e = lar_tpl_pay(&m->work, (m->var_count - base) / 64);
    if (e) return e;
    for (uint32_t i = m->var_count; i-- > base;) {
        if (m->vars[i].name != name) continue;
        m->vars[i].value = v;
        return LAR_OK;
    }
    if (m->var_count == VARIABLES_MAX)
        return lar_tpl_fail(&m->work, LAR_LIMIT, "more than %d variables", VARIABLES_MAX);
    m->vars[m->var_count++] = (variable){name, v};
    if (!m->frame_count) m->global = m->var_count;
    return LAR_OK;
}

/* NULL if nothing of that name is in sight. */
static lar_tpl *find_variable(machine *m, uint32_t name) {
    uint64_t cost = m->var_count / 64;
    m->work.steps = cost < m->work.steps ? m->work.steps - cost : 0;
    for (uint32_t i = m->var_count; i-- > m->floor;)
        if (m->vars[i].name == name) return &m->vars[i].value;
    for (uint32_t i = m->floor ? m->global : 0; i-- > 0;)
        if (m->vars[i].name == name) return &m->vars[i].value;
    return NULL;
}

static lar_error push_frame(machine *m, frame f) {
    if (m->frame_count >= m->frames_max)
        return lar_tpl_fail(&m->work, LAR_LIMIT, "more than %u loops and macros under way at once", m->frames_max);
    f.base = m->var_count;
    m->frames[m->frame_count++] = f;
    return LAR_OK;
}

static void pop_frame(machine *m) { m->var_count = m->frames[--m->frame_count].base; }

/* -- loops -------------------------------------------------------------------------------------------------- */

static lar_error begin_loop(machine *m, frame_kind kind) {
    frame f = {.kind = kind};
    lar_error e = lar_tpl_to_list(&m->work, pop(m), &f.list);
    if (!e && kind == FRAME_SIFT) e = lar_tpl_list_new(&m->work, LAR_TPL_LIST, 0, &f.kept);
    return e ? e : push_frame(m, f);
}

/* The names are looked up in the scope; `loop` is a variable of every turn. */
static lar_error next_turn(machine *m, int32_t jump, uint32_t *pc) {
    frame *f = &m->frames[m->frame_count - 1];
    m->var_count = f->base; /* what a turn sets is gone in the next */
    if (f->at == f->list.as.list->count) {
        lar_tpl left = f->kind == FRAME_SIFT ? f->kept : lar_tpl_bool(!f->finished);
        pop_frame(m);
        *pc = (uint32_t)((int64_t)*pc + jump);
        return push(m, left);
    }
    lar_tpl element = f->list.as.list->items[f->at++];
    if (f->kind == FRAME_LOOP && m->loop_name != UINT32_MAX) {
        lar_error e = set_variable(m, m->loop_name, (lar_tpl){.kind = LAR_TPL_LOOP, .as.index = m->frame_count - 1});
        if (e) return e;
    }
    return push(m, element);
}

static lar_error keep_element(machine *m) {
    frame *f = &m->frames[m->frame_count - 1];
    if (!lar_tpl_truth(pop(m))) return LAR_OK;
    return lar_tpl_list_add(&m->work, f->kept.as.list, f->list.as.list->items[f->at - 1]);
}

static const char *const loop_attributes[] = {"index",  "index0",   "revindex", "revindex0", "first", "last",
                                              "length", "previtem", "nextitem", "depth",     "depth0"};

bool lar_tpl_is_loop_attribute(lar_slice name) {
    for (size_t i = 0; i < sizeof loop_attributes / sizeof *loop_attributes; i++)
        if (lar_slice_eq_cstr(name, loop_attributes[i])) return true;
    return false;
}

/* `loop` may have been kept beyond its loop's end: it has no attributes then. */
static lar_tpl loop_attribute(const machine *m, uint32_t number, lar_slice name) {
    const frame *f = &m->frames[number];
    if (number >= m->frame_count || f->kind != FRAME_LOOP) return lar_tpl_undefined("loop that has ended");
    int64_t at = f->at, count = f->list.as.list->count;
    const lar_tpl *items = f->list.as.list->items;
    if (lar_slice_eq_cstr(name, "index")) return lar_tpl_int(at);
    if (lar_slice_eq_cstr(name, "index0")) return lar_tpl_int(at - 1);
    if (lar_slice_eq_cstr(name, "revindex")) return lar_tpl_int(count - at + 1);
    if (lar_slice_eq_cstr(name, "revindex0")) return lar_tpl_int(count - at);
    if (lar_slice_eq_cstr(name, "first")) return lar_tpl_bool(at == 1);
    if (lar_slice_eq_cstr(name, "last")) return lar_tpl_bool(at == count);
    if (lar_slice_eq_cstr(name, "length")) return lar_tpl_int(count);
    if (lar_slice_eq_cstr(name, "depth")) return lar_tpl_int(1); /* only recursive loops are deeper */
    if (lar_slice_eq_cstr(name, "depth0")) return lar_tpl_int(0);
    if (lar_slice_eq_cstr(name, "previtem")) return at > 1 ? items[at - 2] : lar_tpl_undefined("loop.previtem");
    if (lar_slice_eq_cstr(name, "nextitem")) return at < count ? items[at] : lar_tpl_undefined("loop.nextitem");
    return lar_tpl_undefined("attribute of loop");
}

/* -- macros and output ----------------------------------------------------------------------------------------- */

static lar_error capture(machine *m) {
    if (m->out_count > FRAMES_MAX)
        return lar_tpl_fail(&m->work, LAR_LIMIT, "more than %d captures under way", FRAMES_MAX);
    m->outs[m->out_count++] = (lar_tpl_out){.w = &m->work};
    return LAR_OK;
}

static lar_error captured(machine *m) {
    LAR_ASSERT(m->out_count > 1);
    lar_tpl text;
    lar_error e = lar_tpl_out_finish(&m->outs[--m->out_count], &text);
    return e ? e : push(m, text);
}

static lar_error bind_named(machine *m, const lar_tpl_macro *macro, lar_tpl name, lar_tpl value) {
    frame *f = &m->frames[m->frame_count - 1];
    for (uint32_t i = 0; i < macro->count; i++) {
        if (!lar_slice_eq(m->t->names[macro->parameters[i]], lar_tpl_slice(name))) continue;
        if (f->given >> i & 1)
            return lar_tpl_fail(&m->work, LAR_INVALID, "the argument '%.*s' is given twice",
                                LAR_FMT(lar_tpl_slice(name)));
        f->given |= 1u << i;
        return set_variable(m, macro->parameters[i], value);
    }
    return lar_tpl_fail(&m->work, LAR_INVALID, "the macro has no parameter '%.*s'", LAR_FMT(lar_tpl_slice(name)));
}

/* The arguments are copied first: binding does not push, but the frame's scope begins above them anyway. */
static lar_error call_macro(machine *m, lar_tpl_code c, uint32_t *pc) {
    const lar_tpl *arguments = pop_many(m, c.positional + 2u * c.named);
    const lar_tpl *found = find_variable(m, (uint32_t)c.a);
    lar_slice name = m->t->names[c.a];
    if (!found || found->kind != LAR_TPL_MACRO)
        return lar_tpl_fail(&m->work, LAR_INVALID, "'%.*s' is called before it is a macro", LAR_FMT(name));
    const lar_tpl_macro *macro = &m->t->macros[found->as.index];
    if (c.positional > macro->count)
        return lar_tpl_fail(&m->work, LAR_INVALID, "%u arguments for '%.*s', which takes %u", c.positional,
                            LAR_FMT(name), macro->count);
    lar_error e = push_frame(m, (frame){.kind = FRAME_MACRO, .back = *pc, .floor = m->floor});
    if (e) return e;
    m->floor = m->var_count;
    frame *f = &m->frames[m->frame_count - 1];
    for (uint32_t i = 0; !e && i < macro->count; i++) {
        bool given = i < c.positional;
        if (given) f->given |= 1u << i;
        e = set_variable(m, macro->parameters[i], given ? arguments[i] : lar_tpl_undefined("parameter"));
    }
    for (uint32_t i = 0; !e && i < c.named; i++)
        e = bind_named(m, macro, arguments[c.positional + 2 * i], arguments[c.positional + 2 * i + 1]);
    *pc = macro->begin;
    return e ? e : capture(m);
}

static lar_error end_macro(machine *m, uint32_t *pc) {
    const frame *f = &m->frames[m->frame_count - 1];
    LAR_ASSERT(f->kind == FRAME_MACRO);
    *pc = f->back;
    m->floor = f->floor;
    pop_frame(m);
    return captured(m);
}

/* -- single instructions --------------------------------------------------------------------------------------- */

static lar_error load(machine *m, uint32_t name) {
    const lar_tpl *found = find_variable(m, name);
    if (found) return push(m, *found);
    /* `strftime_now is defined` asks whether it may be called. */
    const lar_tpl_row *function = lar_tpl_find_function(m->t->names[name]);
    if (function && (function->id != LAR_TPL_FUNCTION_STRFTIME || m->work.has_now))
        return push(m, (lar_tpl){.kind = LAR_TPL_METHOD});
    lar_slice text = lar_arena_copy(m->work.arena, m->t->names[name]);
    return text.ptr ? push(m, lar_tpl_undefined(text.ptr)) : lar_tpl_no_memory(&m->work);
}

static lar_error store_attribute(machine *m, uint32_t name, uint32_t attribute) {
    lar_tpl value = pop(m), key;
    const lar_tpl *found = find_variable(m, name);
    if (!found || found->kind != LAR_TPL_NAMESPACE)
        return lar_tpl_fail(&m->work, LAR_INVALID, "'%.*s' is no namespace; its attributes cannot be set",
                            LAR_FMT(m->t->names[name]));
    lar_tpl_dict *space = found->as.dict;
    lar_error e = lar_tpl_string_of(&m->work, m->t->names[attribute], LAR_TEMPLATE_OWN, &key);
    return e ? e : lar_tpl_dict_set(&m->work, space, key, value);
}

static lar_error unpack(machine *m, uint32_t count) {
    lar_tpl list;
    lar_error e = lar_tpl_to_list(&m->work, pop(m), &list);
    if (e) return e;
    if (list.as.list->count != count)
        return lar_tpl_fail(&m->work, LAR_INVALID, "%u values for %u names", list.as.list->count, count);
    for (uint32_t i = count; !e && i-- > 0;) e = push(m, list.as.list->items[i]);
    return e;
}

static lar_error build_list(machine *m, lar_tpl_kind kind, uint32_t count) {
    const lar_tpl *items = pop_many(m, count);
    lar_tpl list;
    lar_error e = lar_tpl_list_new(&m->work, kind, count, &list);
    for (uint32_t i = 0; !e && i < count; i++) e = lar_tpl_list_add(&m->work, list.as.list, items[i]);
    return e ? e : push(m, list);
}

static lar_error build_dict(machine *m, uint32_t count) {
    const lar_tpl *items = pop_many(m, 2 * count);
    lar_tpl dict;
    lar_error e = lar_tpl_dict_new(&m->work, LAR_TPL_DICT, count, &dict);
    for (uint32_t i = 0; !e && i < count; i++) {
        lar_tpl_kind kind = (lar_tpl_kind)items[2 * i].kind;
        if (kind == LAR_TPL_LIST || kind == LAR_TPL_TUPLE || kind == LAR_TPL_DICT || kind == LAR_TPL_UNDEFINED)
            return lar_tpl_fail(&m->work, LAR_INVALID, "%s as a key", lar_tpl_kind_name(items[2 * i]));
        e = lar_tpl_dict_set(&m->work, dict.as.dict, items[2 * i], items[2 * i + 1]);
    }
    return e ? e : push(m, dict);
}

static lar_error attribute(machine *m, uint32_t name) {
    lar_tpl x = pop(m), out;
    if (x.kind == LAR_TPL_LOOP) return push(m, loop_attribute(m, x.as.index, m->t->names[name]));
    lar_error e = lar_tpl_attribute(&m->work, x, m->t->names[name], &out);
    return e ? e : push(m, out);
}

static lar_error call(machine *m, lar_tpl_code c) {
    bool has_subject = c.op != LAR_TPL_OP_FUNCTION, truth = false;
    const lar_tpl *values = pop_many(m, c.positional + 2u * c.named + has_subject);
    lar_tpl_call arguments = {.subject = has_subject ? values[0] : lar_tpl_none(),
                              .positional = values + has_subject,
                              .positional_count = c.positional,
                              .named = values + has_subject + c.positional,
                              .named_count = c.named};
    lar_tpl out;
    lar_error e;
    if (c.op == LAR_TPL_OP_FILTER) e = lar_tpl_filter_call(&m->work, (lar_tpl_filter)c.a, &arguments, &out);
    else if (c.op == LAR_TPL_OP_METHOD) e = lar_tpl_method_call(&m->work, (lar_tpl_method)c.a, &arguments, &out);
    else if (c.op == LAR_TPL_OP_FUNCTION) e = lar_tpl_function_call(&m->work, (lar_tpl_function)c.a, &arguments, &out);
    else e = lar_tpl_test_call(&m->work, (lar_tpl_test)c.a, &arguments, &truth), out = lar_tpl_bool(truth);
    return e ? e : push(m, out);
}

static lar_error number_sign(machine *m, lar_tpl_op op) {
    lar_tpl v = pop(m);
    if (v.kind == LAR_TPL_BOOL) v = lar_tpl_int(v.as.truth);
    if (v.kind == LAR_TPL_FLOAT && op == LAR_TPL_OP_NEGATE) v.as.real = -v.as.real;
    else if (v.kind == LAR_TPL_INT && op == LAR_TPL_OP_NEGATE && v.as.integer > INT64_MIN) v.as.integer = -v.as.integer;
    else if (op == LAR_TPL_OP_NEGATE || (v.kind != LAR_TPL_INT && v.kind != LAR_TPL_FLOAT))
        return lar_tpl_fail(&m->work, LAR_INVALID, "a sign before %s", lar_tpl_kind_name(v));
    return push(m, v);
}

static lar_error print_top(machine *m) {
    lar_tpl_out *o = &m->outs[m->out_count - 1];
    return lar_tpl_out_value(o, pop(m));
}

/* Values: reading, building, printing them. */
static lar_error run_value(machine *m, lar_tpl_code c) {
    lar_tpl a, b, out;
    lar_error e = LAR_OK;
    switch ((lar_tpl_op)c.op) {
    case LAR_TPL_OP_CONST: return push(m, m->t->constants[c.a]);
    case LAR_TPL_OP_LOAD: return load(m, (uint32_t)c.a);
    case LAR_TPL_OP_STORE: return set_variable(m, (uint32_t)c.a, pop(m));
    case LAR_TPL_OP_STORE_ATTR: return store_attribute(m, (uint32_t)c.a, (uint32_t)c.b);
    case LAR_TPL_OP_UNPACK: return unpack(m, (uint32_t)c.a);
    case LAR_TPL_OP_PRINT: return print_top(m);
    case LAR_TPL_OP_TEXT: return lar_tpl_out_string(&m->outs[m->out_count - 1], m->t->constants[c.a].as.string);
    case LAR_TPL_OP_POP: (void)pop(m); return LAR_OK;
    case LAR_TPL_OP_BINARY:
        b = pop(m), a = pop(m);
        e = lar_tpl_binary_op(&m->work, (lar_tpl_binary)c.a, a, b, &out);
        return e ? e : push(m, out);
    case LAR_TPL_OP_NOT: return push(m, lar_tpl_bool(!lar_tpl_truth(pop(m))));
    case LAR_TPL_OP_NEGATE:
    case LAR_TPL_OP_PLUS: return number_sign(m, (lar_tpl_op)c.op);
    case LAR_TPL_OP_ATTR: return attribute(m, (uint32_t)c.a);
    case LAR_TPL_OP_ITEM:
        b = pop(m), a = pop(m);
        if (a.kind == LAR_TPL_LOOP && b.kind == LAR_TPL_STRING)
            return push(m, loop_attribute(m, a.as.index, lar_tpl_slice(b)));
        e = lar_tpl_item(&m->work, a, b, &out);
        return e ? e : push(m, out);
    case LAR_TPL_OP_SLICE: {
        const lar_tpl *x = pop_many(m, 4);
        e = lar_tpl_cut(&m->work, x[0], x + 1, &out);
        return e ? e : push(m, out);
    }
    case LAR_TPL_OP_LIST: return build_list(m, LAR_TPL_LIST, (uint32_t)c.a);
    case LAR_TPL_OP_TUPLE: return build_list(m, LAR_TPL_TUPLE, (uint32_t)c.a);
    case LAR_TPL_OP_DICT: return build_dict(m, (uint32_t)c.a);
    case LAR_TPL_OP_CAPTURE: return capture(m);
    case LAR_TPL_OP_CAPTURED: return captured(m);
    default: return call(m, c);
    }
}

/* Instructions that may move `pc`; the others go to run_value. */
static lar_error run_one(machine *m, lar_tpl_code c, uint32_t *pc) {
    bool jump = false;
    switch ((lar_tpl_op)c.op) {
    case LAR_TPL_OP_JUMP: jump = true; break;
    case LAR_TPL_OP_AGAIN: jump = m->frames[m->frame_count - 1].finished = true; break;
    case LAR_TPL_OP_JUMP_FALSE: jump = !lar_tpl_truth(pop(m)); break;
    case LAR_TPL_OP_AND:
    case LAR_TPL_OP_OR:
        jump = lar_tpl_truth(m->stack[m->stack_count - 1]) == (c.op == LAR_TPL_OP_OR);
        if (!jump) (void)pop(m);
        break;
    case LAR_TPL_OP_CALL: return call_macro(m, c, pc);
    case LAR_TPL_OP_MACRO: {
        *pc = (uint32_t)((int64_t)*pc + c.a);
        return set_variable(m, m->t->macros[c.b].name, (lar_tpl){.kind = LAR_TPL_MACRO, .as.index = (uint32_t)c.b});
    }
    case LAR_TPL_OP_GIVEN: jump = m->frames[m->frame_count - 1].given >> c.b & 1; break;
    case LAR_TPL_OP_RETURN: return end_macro(m, pc);
    case LAR_TPL_OP_FOR: return begin_loop(m, FRAME_LOOP);
    case LAR_TPL_OP_SIFT: return begin_loop(m, FRAME_SIFT);
    case LAR_TPL_OP_NEXT:
    case LAR_TPL_OP_SIFT_NEXT: return next_turn(m, c.a, pc);
    case LAR_TPL_OP_SIFT_KEEP: return keep_element(m);
    case LAR_TPL_OP_LEAVE: pop_frame(m); return push(m, lar_tpl_bool(!m->frames[m->frame_count].finished));
    default: return run_value(m, c);
    }
    if (jump) *pc = (uint32_t)((int64_t)*pc + c.a);
    return LAR_OK;
}

static lar_error run_all(machine *m) {
    for (uint32_t pc = 0;;) {
        lar_tpl_code c = m->t->code[pc++];
        if (c.op == LAR_TPL_OP_END) return LAR_OK;
        m->work.at = c.at;
        lar_error e = lar_tpl_pay(&m->work, 1);
        if (!e) e = run_one(m, c, &pc);
        if (e) return e;
    }
}

/* -- the outside ----------------------------------------------------------------------------------------------- */

static lar_error load_values(machine *m, const lar_template_values *values) {
    m->loop_name = UINT32_MAX;
    for (uint32_t n = 0; n < m->t->name_count; n++)
        if (lar_slice_eq_cstr(m->t->names[n], "loop")) m->loop_name = n;
    for (uint32_t i = 0; i < values->count; i++) {
        for (uint32_t n = 0; n < m->t->name_count; n++) {
            if (!lar_slice_eq_cstr(m->t->names[n], values->names[i])) continue;
            lar_error e = set_variable(m, n, values->values[i]);
            if (e) return e;
        }
    }
    return LAR_OK;
}

static lar_error copy_out(machine *m, lar_template_text *out) {
    const lar_tpl_out *o = &m->outs[0];
    lar_error e = lar_buf_add(&out->bytes, o->ptr, o->len);
    if (e) return lar_fail(e, m->work.diag, "no memory for the rendered text");
    if (o->run_count > out->span_cap) {
        lar_template_span *spans = realloc(out->spans, o->run_count * sizeof *spans);
        if (!spans) return lar_fail(LAR_NO_MEMORY, m->work.diag, "no memory for the rendered text");
        out->spans = spans;
        out->span_cap = o->run_count;
    }
    if (o->run_count) memcpy(out->spans, o->runs, o->run_count * sizeof *out->spans);
    out->span_count = o->run_count;
    return LAR_OK;
}

lar_error lar_template_render(const lar_template *t, const lar_template_values *values,
                              const lar_template_limits *limits, lar_template_text *out, lar_diag *d) {
    const lar_template_limits usual = LAR_TEMPLATE_LIMITS_DEFAULT;
    if (!limits) limits = &usual;
    out->bytes.len = out->span_count = 0;
    out->bytes.max = limits->output_bytes_max;
    machine *m = calloc(1, sizeof *m);
    if (!m) return lar_fail(LAR_NO_MEMORY, d, "no memory to render the template");
    lar_arena arena;
    lar_arena_init(&arena, limits->memory_bytes_max);
    m->t = t;
    m->work = (lar_tpl_work){.arena = &arena,
                             .steps = limits->steps_max,
                             .diag = d,
                             .source = t->source,
                             .now = values->work.now,
                             .has_now = values->work.has_now,
                             .output_max =
                                 limits->output_bytes_max < UINT32_MAX / 4 ? limits->output_bytes_max : UINT32_MAX / 4};
    m->frames_max = limits->depth_max < FRAMES_MAX ? limits->depth_max : FRAMES_MAX;
    m->outs[0].w = &m->work;
    m->out_count = 1;
    lar_error e = load_values(m, values);
    if (!e) e = run_all(m);
    if (!e) e = copy_out(m, out);
    if (e) out->bytes.len = out->span_count = 0;
    lar_arena_release(&arena);
    free(m);
    return e;
}

void lar_template_text_release(lar_template_text *text) {
    lar_buf_release(&text->bytes);
    free(text->spans);
    *text = (lar_template_text){.span_count = 0};
}

size_t lar_template_text_plain(const lar_template_text *text, lar_text_span *out) {
    size_t n = 0;
    for (uint32_t i = 0; i < text->span_count; i++)
        if (text->spans[i].origin == LAR_TEMPLATE_VALUE)
            out[n++] = (lar_text_span){i ? text->spans[i - 1].end : 0, text->spans[i].end};
    return n;
}
