/* LR004: client text goes out in the form in which it was first sent.
 * Called by canon_head.c for system texts and by canon_recall.c for user texts, each with the recipe that
 * memory holds for that text; never blocks. Invariants: 1. without a remembered form nothing is edited:
 * a text that always ends in a line end keeps it. 2. only BOM, line ends and blanks at the end change. */
#include "policies/canon_state.h"

static lar_canon_unit *head_unit(lar_canon *c, uint32_t node) {
    for (uint32_t u = 0; u < c->unit_count; u++) {
        if (c->units[u].node == node) return &c->units[u];
    }
    return NULL;
}

/* The text's unit, of the head or read now; NULL if there is none, or no memory. */
static lar_canon_unit *unit_of(lar_canon *c, uint32_t segment, lar_error *e) {
    uint32_t node = c->segments[segment].text_node, count;
    lar_canon_unit *u = head_unit(c, node);
    if (u) return u;
    *e = lar_canon_units_read(c, segment, &u, &count);
    return !*e && count == 1 && u->node == node ? u : NULL;
}

/* The edits that give the text its form. False if it stays as it is: the form does not fit it, or it takes more edits
 * than this request has left. */
static bool make_edits(lar_canon *c, lar_canon_unit *u, lar_slice want, lar_error *e) {
    lar_splices_init(&u->form_edits, c->arena);
    *e = lar_text_form_edit(&u->text, &u->form, want, &u->form_edits, c->form_edits_left);
    if (*e) u->form_edits.count = 0;
    if (*e == LAR_LIMIT) c->form_edits_left = 0; /* nor for the texts behind it: one long text, or many */
    if (*e == LAR_INVALID || *e == LAR_LIMIT) {
        *e = LAR_OK;
        return false;
    }
    c->form_edits_left -= u->form_edits.count;
    return !*e;
}

lar_error lar_rule_text_form(lar_canon *c, uint32_t segment, lar_slice want) {
    lar_canon_segment *s = &c->segments[segment];
    if (s->text_node == LAR_JSON_NONE || !lar_canon_rule_on(c, LAR_RULE_LR004)) return LAR_OK;
    if (want.len < 2 || lar_slice_eq(want, s->recipe)) return LAR_OK;
    if ((uint8_t)want.ptr[0] >= LAR_RECIPE_ODD || (uint8_t)s->recipe.ptr[0] >= LAR_RECIPE_ODD) return LAR_OK;
    lar_error e = LAR_OK;
    bool edited = false;
    lar_canon_unit *u = c->apply && c->form_edits_left ? unit_of(c, segment, &e) : NULL;
    if (u && !e) edited = make_edits(c, u, want, &e);
    const lar_json_node *n = &c->json->nodes[s->text_node];
    if (!e)
        e = lar_canon_find(c, (lar_finding){.rule = LAR_RULE_LR004,
                                            .node = s->text_node,
                                            .start = n->start,
                                            .end = n->end,
                                            .edited = edited});
    if (e || !edited) return e;
    s->exact = lar_hash_join(s->norm, lar_hash_of(want));
    if (head_unit(c, s->text_node)) return LAR_OK; /* the head's are edited together with their clocks */
    return lar_canon_unit_edit(c, u);
}
