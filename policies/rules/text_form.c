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

lar_error lar_rule_text_form(lar_canon *c, uint32_t segment, lar_slice want) {
    lar_canon_segment *s = &c->segments[segment];
    if (s->text_node == LAR_JSON_NONE || !lar_canon_rule_on(c, LAR_RULE_LR004)) return LAR_OK;
    if (want.len < 2 || lar_slice_eq(want, s->recipe)) return LAR_OK;
    if ((uint8_t)want.ptr[0] >= LAR_RECIPE_ODD || (uint8_t)s->recipe.ptr[0] >= LAR_RECIPE_ODD) return LAR_OK;
    const lar_json_node *n = &c->json->nodes[s->text_node];
    lar_error e = lar_canon_find(c, (lar_finding){.rule = LAR_RULE_LR004,
                                                  .node = s->text_node,
                                                  .start = n->start,
                                                  .end = n->end,
                                                  .edited = c->apply});
    if (e || !c->apply) return e;
    want = lar_arena_copy(c->arena, want);
    if (!want.ptr) return LAR_NO_MEMORY;
    s->exact = lar_hash_join(s->norm, lar_hash_of(want));
    lar_canon_unit *u = head_unit(c, s->text_node), *units;
    if (u) {
        u->want = want; /* edited together with its other spans */
        return LAR_OK;
    }
    uint32_t count;
    e = lar_canon_units_read(c, segment, &units, &count);
    if (e || count != 1 || units[0].node != s->text_node) return e;
    units[0].want = want;
    return lar_canon_unit_edit(c, &units[0]);
}
