/* Between preparing a request and sending it: what other larders know of it, where memory is shared.
 * Flow: exchange.c, once the request is prepared -> the keys that the rules looked at are asked for -> if a value was
 * newer there, the request is prepared again, which may lead to further keys; then it is sent. Loop thread; never
 * blocks: the exchange is in RECALL meanwhile. Invariants: 1. the waiting of all rounds together ends after
 * shared.wait. 2. whatever happens, the request goes out as it was prepared last. 3. a round is begun only if the arena
 * can hold twice what the last one took, so that a second look never costs what the first one had won.
 * Memory: the exchange's arena. Not here: the connection (gateway/shared). */
#include "gateway/request/exchange.h"

enum { ROUNDS_MAX = 5 };

static bool worth_asking(const lar_exchange *x) {
    if (!x->loop->shared || !x->canon_ran || x->recall_rounds >= ROUNDS_MAX) return false;
    size_t round = x->arena.used - x->arena_before;
    return x->arena.used + 2 * round < x->arena.limit;
}

bool lar_exchange_recall(lar_exchange *x) {
    if (!worth_asking(x) || !lar_shared_ask_start(&x->ask, &x->arena)) return false;
    if (x->recall_rounds++ == 0) {
        lar_exchange_move(x, EXCHANGE_RECALL);
        lar_deadline_set(&x->deadline, x->loop->gateway->boot->shared_wait_ms);
    }
    return true;
}

/* With client keys of larder's own the scope comes from a name, which is no secret. */
void lar_exchange_share_as(lar_exchange *x) {
    if (!x->loop->shared) return;
    bool secret = x->record.tenant && !x->config->key_count;
    lar_shared_link_scope(x->loop->shared, secret ? &x->scope : NULL);
}

void lar_exchange_on_recalled(void *owner, uint32_t changed) {
    lar_exchange *x = owner;
    lar_diag d = {{0}, 0, 0};
    lar_error e = LAR_OK;
    if (changed) {
        e = lar_exchange_prepare(x, &d);
        if (!e && lar_exchange_recall(x)) return;
    }
    lar_exchange_send(x, e, &d);
}

void lar_exchange_on_recall_due(lar_exchange *x) {
    lar_diag none = {{0}, 0, 0};
    lar_shared_ask_late(&x->ask);
    lar_exchange_send(x, LAR_OK, &none);
}
