/* LR011: what the model wrote is sent as it wrote it, where a client changed nothing but its form.
 * Called by canon_recall.c; never blocks. The gateway has remembered each message as it went by (output.c), in the
 * scope, under
 *   h  what it means and what it answered     m  what it means, with the ids of its calls     n  without them
 * Messages that lie deeper than what is known of the conversation were not sent yet: they are looked up under all
 * three, and what is found is noted under h. Of those that were sent, only h counts: it says how, and stays.
 * Invariants: 1. a message is the model's or the client's as a whole. 2. the last message, if it is the model's, is to
 * be continued and stays. 3. what means something else stays. */
#include "policies/canon_state.h"

enum { PINS_MAX = 256 }; /* notes of one request */

static lar_error mend(lar_canon *c, uint32_t i, bool sent_before, uint32_t *pins) {
    static const char kinds[] = {'h', 'm', 'n'};
    const lar_output_core *core = &c->segments[i].core;
    lar_hash here = lar_hash_join(lar_canon_context(c, i), core->keyed);
    const lar_hash what[] = {here, core->keyed, core->free};
    for (uint32_t k = 0; k < (sent_before ? 1u : 3u); k++) {
        bool mended;
        if (!lar_canon_get(c, kinds[k], what[k])) continue;
        lar_slice record = lar_buf_slice(&c->value);
        if (lar_output_same(record, c->scope, core)) return LAR_OK;
        lar_error e = lar_canon_output_mend(c, i, record, LAR_RULE_LR011, &mended);
        if (e || !mended || k == 0 || *pins == PINS_MAX) return e;
        ++*pins;
        return lar_canon_put_value(c, 'h', here, lar_buf_slice(&c->value));
    }
    return LAR_OK;
}

lar_error lar_rule_model_output(lar_canon *c, uint32_t from, uint32_t deepest) {
    if (!lar_canon_rule_on(c, LAR_RULE_LR011) || !c->in->memory) return LAR_OK;
    uint32_t end = lar_canon_output_end(c), pins = 0;
    lar_error e = LAR_OK;
    for (uint32_t i = from; i < end && !e; i++) {
        if (c->view->segments[i].role != LAR_ROLE_ASSISTANT || !lar_output_core_some(&c->segments[i].core)) continue;
        e = mend(c, i, deepest != LAR_JSON_NONE && i <= deepest, &pins);
    }
    return e;
}
