/* The run of all rules over one request (header: canon.h).
 * Flow: head, tools, opening and segments are hashed -> spans judged -> all of it edited, forms and facts
 * recalled -> splices.
 * Called by the gateway on a loop thread; pure but for the given memory; never blocks; all memory from the
 * request's arena but for one reused buffer. Invariants: 1. on any error `out` holds nothing and the body
 * goes on untouched. 2. assistant and tool segments keep what they mean; only their form may change. 3. in report
 * mode the findings are the same, nothing is edited, and what is learnt is what was really sent. */
#include "policies/canon_state.h"

enum { VALUE_BYTES_MAX = 64 * 1024 };

static lar_hash add_hint(const lar_canon *c, lar_hash h, const char *name, uint32_t node) {
    if (node == LAR_JSON_NONE) return h;
    return lar_hash_chain(lar_hash_chain(h, lar_slice_cstr(name)), lar_json_raw(c->json, node));
}

/* The scopes (docs/design/0009). Wide: what the caller says, the model, and a salt, by which a client asks for a cache
 * of its own. Narrow: the body's session hints as well. */
static void read_scopes(lar_canon *c) {
    static const lar_member hints[] = {LAR_MEMBER_PROMPT_CACHE_KEY, LAR_MEMBER_USER, LAR_MEMBER_SAFETY_IDENTIFIER};
    const uint32_t *members = c->view->members;
    lar_hash h = lar_hash_chain(c->in->scope, lar_json_raw(c->json, c->view->model));
    c->wide = h = add_hint(c, h, lar_member_name(LAR_MEMBER_CACHE_SALT), members[LAR_MEMBER_CACHE_SALT]);
    for (uint32_t i = 0; i < sizeof hints / sizeof *hints; i++)
        h = add_hint(c, h, lar_member_name(hints[i]), members[hints[i]]);
    c->scope = add_hint(c, h, "metadata.user_id", lar_json_get(c->json, members[LAR_MEMBER_METADATA], "user_id"));
}

static bool is_read(lar_protocol p) { return p != LAR_PROTOCOL_NONE && p != LAR_PROTOCOL_EMBEDDINGS; }

static lar_error run_stages(lar_canon *c) {
    uint32_t n = c->view->segment_count;
    c->segments = lar_arena_zalloc(c->arena, n * sizeof *c->segments);
    if (!c->segments) return LAR_NO_MEMORY;
    for (uint32_t i = 0; i < n; i++) c->segments[i].text_node = LAR_JSON_NONE;
    lar_error e = lar_canon_head_read(c);
    if (!e) e = lar_canon_tools_read(c);
    if (!e) e = lar_canon_opening_read(c);
    for (uint32_t i = c->opening_end; i < n && !e; i++) e = lar_canon_hash_segment(c, i);
    if (!e) e = lar_rule_volatile(c);
    if (!e) e = lar_canon_head_finish(c);
    if (!e) e = lar_canon_tools_finish(c);
    if (!e) e = lar_canon_opening_finish(c);
    if (!e) e = lar_rule_tool_order(c);
    if (!e) e = lar_canon_recall(c);
    if (!e) e = lar_rule_cache_breakpoints(c);
    if (!e) e = lar_splices_finish(&c->out->splices, c->json->body.len);
    if (!e && c->out->segments_known) {
        uint32_t last = c->view->segments[c->out->segments_known - 1].node;
        c->out->prefix_known_bytes = lar_splices_map(&c->out->splices, c->json->nodes[last].end);
    }
    return e ? e : lar_canon_cuts(c);
}

lar_error lar_canon_run(const lar_canon_in *in, lar_arena *arena, lar_canon_out *out) {
    *out = (lar_canon_out){.turn = in->view->turn};
    lar_splices_init(&out->splices, arena);
    if (in->options->mode == LAR_CANON_OFF || !is_read(in->view->protocol) || in->view->segment_count == 0) {
        return lar_splices_finish(&out->splices, in->view->json->body.len);
    }
    if (in->view->segment_count > LAR_CANON_SEGMENTS_MAX) return LAR_LIMIT;
    lar_canon *c = lar_arena_alloc(arena, sizeof *c);
    if (!c) return LAR_NO_MEMORY;
    memset(c, 0, offsetof(lar_canon, groups));
    c->item = LAR_JSON_NONE;
    c->in = in;
    c->view = in->view;
    c->json = in->view->json;
    c->arena = arena;
    c->out = out;
    c->apply = in->options->mode == LAR_CANON_ON;
    c->clocks = LAR_CLOCK_BUDGET;
    c->work_left = LAR_CANON_WORK_MAX;
    c->form_edits_left = LAR_CANON_FORM_EDITS_MAX;
    read_scopes(c);
    out->scope = c->scope;
    out->texts = in->texts;
    lar_buf_init(&c->value, VALUE_BYTES_MAX);
    lar_json_forms_init(&c->forms, arena);
    lar_error e = run_stages(c);
    lar_buf_release(&c->value);
    lar_json_forms_release(&c->forms);
    if (e) {
        *out = (lar_canon_out){.turn = in->view->turn};
        lar_splices_init(&out->splices, arena);
    }
    return e;
}
