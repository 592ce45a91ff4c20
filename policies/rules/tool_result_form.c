/* LR012: a tool's result that is JSON keeps the form in which it was first sent.
 * Called by canon_recall.c; never blocks. Remembered in the scope:
 *   r  calls and what their results mean -> the form of each result (output.h)
 * Invariants: 1. the first form stays: it is what the provider has. 2. a result that is no JSON object or array, or
 * means something else, stays. */
#include "policies/canon_state.h"

enum { LEARNT_MAX = 256 }; /* of one request */

static lar_error learn(lar_canon *c, uint32_t i) {
    lar_output_message m;
    lar_output_memory memory = lar_canon_output_memory(c);
    lar_buf record;
    lar_buf_init(&record, 2 * LAR_OUTPUT_RECORD_MAX);
    lar_error e = lar_canon_output_read(c, i, &m);
    if (!e) e = lar_output_record(&c->forms, &m, &memory, &record);
    if (!e) e = lar_canon_put_value(c, 'r', c->segments[i].core.keyed, lar_buf_slice(&record));
    lar_buf_release(&record);
    return e == LAR_INVALID ? LAR_OK : e;
}

lar_error lar_rule_tool_result_form(lar_canon *c, uint32_t from) {
    if (!lar_canon_rule_on(c, LAR_RULE_LR012) || !c->in->memory) return LAR_OK;
    uint32_t learnt = 0;
    lar_error e = LAR_OK;
    for (uint32_t i = from; i < c->view->segment_count && !e; i++) {
        const lar_output_core *core = &c->segments[i].core;
        if (c->view->segments[i].role != LAR_ROLE_TOOL || !lar_output_core_some(core)) continue;
        bool mended;
        if (!lar_canon_get(c, 'r', core->keyed)) {
            if (learnt++ < LEARNT_MAX) e = learn(c, i);
        } else if (!lar_output_same(lar_buf_slice(&c->value), c->scope, core)) {
            e = lar_canon_output_mend(c, i, lar_buf_slice(&c->value), LAR_RULE_LR012, &mended);
        }
    }
    return e;
}
