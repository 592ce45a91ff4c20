/* What a model answers is remembered as it goes by, so that a client that prints it anew breaks no prefix.
 * Flow: relay.c -> here -> policies/output.h, at the head, at each event, and when the answer is whole, before its end
 * goes to the client: the next request of that client may come at once. Loop thread; never blocks.
 * Invariants: 1. the answer is never changed or delayed. 2. of an answer that is cut, that failed or that is no 2xx
 * nothing is remembered. 3. what is held counts against the budget of buffered bytes.
 * Memory: one lar_output a stream, freed with the exchange at the latest. */
#include "gateway/request/exchange.h"
#include "policies/output.h"

static bool wanted(const lar_exchange *x) {
    const lar_loop *l = x->loop;
    uint64_t off = x->set->generation->canon.rules_off;
    bool forms = l->memory.put && !(off >> LAR_RULE_LR011 & 1);
    bool reasoning = l->texts.put && !(off >> LAR_RULE_LR013 & 1);
    lar_protocol p = x->view.protocol;
    bool known = p == LAR_PROTOCOL_CHAT || p == LAR_PROTOCOL_MESSAGES || p == LAR_PROTOCOL_RESPONSES;
    return x->canon_ran && known && x->status >= 200 && x->status < 300 && (forms || reasoning);
}

static lar_output_memory memory_of(lar_exchange *x) {
    const lar_loop *l = x->loop;
    uint64_t off = x->set->generation->canon.rules_off;
    return (lar_output_memory){.scope = x->canon.scope,
                               .context = x->canon.context,
                               .forms = l->memory.put && !(off >> LAR_RULE_LR011 & 1) ? &l->memory : NULL,
                               .texts = l->texts.put ? &l->texts : NULL,
                               .arena = &x->arena,
                               .reasoning = !(off >> LAR_RULE_LR013 & 1)};
}

void lar_exchange_watch_output(lar_exchange *x) {
    if (x->relay != RELAY_SSE || !wanted(x)) return;
    /* the tree of the loop is free between requests' preparations, and so while an event is read */
    const lar_output_options o = {.protocol = x->view.protocol,
                                  .reasoning = memory_of(x).reasoning,
                                  .work = &x->loop->json};
    x->output = lar_output_new(&o);
}

void lar_exchange_forget_output(lar_exchange *x) {
    lar_output_free(x->output);
    x->output = NULL;
}

void lar_exchange_output_event(lar_exchange *x, const lar_sse_event *e) {
    if (!x->output) return;
    size_t before = lar_output_bytes(x->output);
    lar_output_event(x->output, e->type, e->data);
    size_t now = lar_output_bytes(x->output);
    if (now > before && !lar_exchange_budget(x, now - before)) lar_exchange_forget_output(x);
}

/* Before the client hears of the end: its next request may go to another larder. */
static void share(lar_exchange *x) {
    if (x->loop->shared) lar_shared_link_flush(x->loop->shared);
}

void lar_exchange_output_whole(lar_exchange *x) {
    if (!x->output) return;
    lar_output_memory m = memory_of(x);
    lar_exchange_share_as(x);
    if (!x->usage.error_seen) lar_output_remember(x->output, &m);
    lar_exchange_forget_output(x);
    share(x);
}

void lar_exchange_output_body(lar_exchange *x) {
    if (!wanted(x) || x->usage.error_seen) return;
    lar_output_memory m = memory_of(x);
    lar_exchange_share_as(x);
    lar_output_remember_body(&x->usage.json, x->view.protocol, &m);
    share(x);
}
