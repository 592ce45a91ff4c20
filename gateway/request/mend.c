/* LR015 on a request: a broken history of tool calls is repaired before any other rule reads the body.
 * Flow: prepare.c, once the route's mode is known -> the rule's splices -> a new body in x->body, parsed anew.
 * Loop thread; never blocks. Invariants: 1. without a flaw, or with one that cannot be mended, body and view stay.
 * 2. after the call the view is that of x->body. Slices into the body that were taken before it are void if
 * x->mended is set. Memory: one more body for the time of the copy, counted in the process's budget.
 * Not here: what is a flaw, and what is done about it (policies/history.h). */
#include "gateway/request/exchange.h"
#include "policies/history.h"

static lar_error copy_with(lar_exchange *x, const lar_splices *edits, lar_buf *to) {
    size_t bytes = lar_splices_length(edits, x->body.len);
    lar_buf_init(to, x->body.max);
    struct iovec *iov = lar_arena_alloc(&x->arena, (lar_splices_iov_max(edits) + 1) * sizeof *iov);
    lar_error e = iov && lar_exchange_budget(x, bytes) ? lar_buf_reserve(to, bytes) : LAR_NO_MEMORY;
    uint32_t n = e ? 0 : lar_splices_iov(edits, lar_buf_slice(&x->body), iov);
    for (uint32_t i = 0; i < n && !e; i++) e = lar_buf_add(to, iov[i].iov_base, iov[i].iov_len);
    return e;
}

lar_error lar_exchange_mend(lar_exchange *x, const lar_canon_options *options, lar_diag *d) {
    if (options->mode == LAR_CANON_OFF || options->rules_off >> LAR_RULE_LR015 & 1) return LAR_OK;
    lar_splices edits;
    bool found;
    if (lar_rule_tool_history(&x->view, &x->arena, &edits, &found) != LAR_OK) return LAR_OK;
    if (found) x->record.rules_seen |= 1ull << LAR_RULE_LR015;
    if (options->mode != LAR_CANON_ON || edits.count == 0) return LAR_OK;
    lar_buf fresh, old = x->body;
    if (copy_with(x, &edits, &fresh) != LAR_OK) {
        lar_buf_release(&fresh);
        return LAR_OK;
    }
    x->body = fresh;
    lar_error e = lar_exchange_parse(x, d);
    if (e) { /* it grew over a limit of the parser: as it was */
        x->body = old;
        lar_buf_release(&fresh);
        return lar_exchange_parse(x, d);
    }
    lar_buf_release(&old);
    x->mended = edits.count;
    return LAR_OK;
}
