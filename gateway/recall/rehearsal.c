/* The request path's rules, alone (header: rehearsal.h): parse, view, repair of histories, canon, splices, commit.
 * Flow: a command calls once a request. One thread; never blocks; gateway/request/prepare.c does the same on its way.
 * Invariants: 1. a body that no rule edits is given back as it is. 2. every request counts as accepted.
 * Memory: one arena, reset for each request; two buffers for edited bodies; recall memory bounded by its owner. */
#include "gateway/recall/rehearsal.h"

#include <stdlib.h>
#include <string.h>

#include "gateway/recall/output_texts.h"
#include "gateway/recall/volatile_memory.h"
#include "policies/history.h"
#include "policies/output.h"

enum { ARENA_MAX = 1 << 30, ARENA_KEEP = 4 << 20, BODY_KEEP = 4 << 20, MEMO_ENTRIES = 1 << 14 };
#define MEMORY_DEFAULT (64u << 20)

struct lar_rehearsal {
    lar_canon_options options;
    lar_volatile_memory *memory;
    lar_output_texts *texts;
    lar_memory_ops ops, texts_ops;
    lar_norm_cache *cache;
    lar_json json;
    lar_arena arena;
    lar_buf mended, sent;
    lar_protocol protocol; /* of the last request */
    lar_hash scope, context;
    bool ran; /* the rules read it */
    lar_json answer;
    lar_buf answer_text;
};

lar_rehearsal *lar_rehearsal_new(uint64_t rules_off, uint64_t memory_bytes) {
    lar_rehearsal *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->options = (lar_canon_options){.mode = LAR_CANON_ON, .rules_off = rules_off};
    lar_json_init(&r->json);
    lar_arena_init(&r->arena, ARENA_MAX);
    lar_buf_init(&r->mended, UINT32_MAX);
    lar_buf_init(&r->sent, UINT32_MAX);
    lar_json_init(&r->answer);
    lar_buf_init(&r->answer_text, LAR_OUTPUT_ANSWER_MAX + 64);
    r->texts = lar_output_texts_new(memory_bytes ? memory_bytes : MEMORY_DEFAULT, NULL);
    r->memory = lar_volatile_memory_new(memory_bytes ? memory_bytes : MEMORY_DEFAULT);
    r->cache = lar_norm_cache_new(MEMO_ENTRIES);
    if (!r->memory || !r->texts || !r->cache) {
        lar_rehearsal_free(r);
        return NULL;
    }
    r->ops = lar_volatile_memory_ops(r->memory);
    r->texts_ops = lar_output_texts_ops(r->texts);
    return r;
}

void lar_rehearsal_free(lar_rehearsal *r) {
    if (!r) return;
    lar_volatile_memory_free(r->memory);
    lar_output_texts_free(r->texts);
    lar_norm_cache_free(r->cache);
    lar_json_release(&r->json);
    lar_arena_release(&r->arena);
    lar_buf_release(&r->mended);
    lar_buf_release(&r->sent);
    lar_json_release(&r->answer);
    lar_buf_release(&r->answer_text);
    free(r);
}

static lar_error read_view(lar_rehearsal *r, lar_slice body, lar_protocol p, lar_request_view *v, lar_diag *d) {
    lar_error e = lar_json_parse(&r->json, body, NULL, d);
    return e ? e : lar_request_view_read(v, &r->json, p, &r->arena, d);
}

static lar_error apply(lar_rehearsal *r, const lar_splices *edits, lar_slice body, lar_buf *to) {
    lar_buf_reset(to, BODY_KEEP);
    struct iovec *iov = lar_arena_alloc(&r->arena, (lar_splices_iov_max(edits) + 1) * sizeof *iov);
    lar_error e = iov ? lar_buf_reserve(to, lar_splices_length(edits, body.len)) : LAR_NO_MEMORY;
    uint32_t n = e ? 0 : lar_splices_iov(edits, body, iov);
    for (uint32_t i = 0; i < n && !e; i++) e = lar_buf_add(to, iov[i].iov_base, iov[i].iov_len);
    return e;
}

/* LR015 runs before the others, on the client's history; without a repair `out` stays. */
static lar_error mend(lar_rehearsal *r, lar_protocol p, lar_request_view *v, lar_rehearsed *out, lar_diag *d) {
    lar_splices edits;
    bool found;
    if (r->options.rules_off >> LAR_RULE_LR015 & 1) return LAR_OK;
    if (lar_rule_tool_history(v, &r->arena, &edits, &found) != LAR_OK) return LAR_OK;
    if (found) out->rules_seen |= 1ull << LAR_RULE_LR015;
    if (edits.count == 0 || apply(r, &edits, out->body, &r->mended) != LAR_OK) return LAR_OK;
    lar_slice before = out->body;
    if (read_view(r, lar_buf_slice(&r->mended), p, v, d) != LAR_OK) return read_view(r, before, p, v, d);
    out->body = lar_buf_slice(&r->mended);
    out->edited = true;
    out->edits = out->rule_edits[LAR_RULE_LR015] = edits.count;
    out->rules_fired |= 1ull << LAR_RULE_LR015;
    return LAR_OK;
}

static void canonicalise(lar_rehearsal *r, const lar_request_view *v, int64_t now_ms, lar_rehearsed *out) {
    lar_canon_out canon;
    lar_canon_in in = {.view = v,
                       .options = &r->options,
                       .memory = &r->ops,
                       .texts = &r->texts_ops,
                       .cache = r->cache,
                       .scope = lar_hash_of(LAR_SLICE("rehearsal")),
                       .now_ms = now_ms};
    if (lar_canon_run(&in, &r->arena, &canon) != LAR_OK) return;
    if (canon.splices.count) {
        if (apply(r, &canon.splices, out->body, &r->sent) != LAR_OK) return;
        out->body = lar_buf_slice(&r->sent);
        out->edited = true;
    }
    lar_canon_commit(&canon, &r->ops);
    r->ran = true;
    r->scope = canon.scope;
    r->context = canon.context;
    out->rules_fired |= canon.rules_fired;
    out->rules_seen |= canon.rules_seen;
    out->edits += canon.splices.count;
    for (uint32_t i = 0; i < canon.finding_count; i++)
        if (canon.findings[i].edited) out->rule_edits[canon.findings[i].rule]++;
}

lar_error lar_rehearsal_send(lar_rehearsal *r, const lar_rehearsal_request *q, lar_rehearsed *out, lar_diag *d) {
    lar_request_view v;
    *out = (lar_rehearsed){.body = q->body};
    lar_arena_reset(&r->arena, ARENA_KEEP);
    r->ran = false;
    r->protocol = q->protocol;
    lar_error e = read_view(r, q->body, q->protocol, &v, d);
    if (!e) e = mend(r, q->protocol, &v, out, d);
    if (!e) canonicalise(r, &v, q->now_ms, out);
    return e;
}

/* A whole response around the message, as the gateway would have read it. */
static lar_error wrap(lar_rehearsal *r, lar_slice message) {
    static const struct {
        const char *front, *behind;
    } around[LAR_PROTOCOL_COUNT] = {
        [LAR_PROTOCOL_CHAT] = {"{\"choices\":[{\"message\":", "}]}"}, [LAR_PROTOCOL_RESPONSES] = {"{\"output\":", "}"}};
    const char *front = around[r->protocol].front, *behind = around[r->protocol].behind;
    lar_buf *b = &r->answer_text;
    lar_buf_reset(b, BODY_KEEP);
    lar_error e = front ? lar_buf_add(b, front, strlen(front)) : LAR_OK;
    if (!e) e = lar_buf_add_slice(b, message);
    return e || !behind ? e : lar_buf_add(b, behind, strlen(behind));
}

void lar_rehearsal_answer(lar_rehearsal *r, const lar_json *j, uint32_t node) {
    uint64_t off = r->options.rules_off;
    lar_diag ignored;
    lar_output_memory m = {.scope = r->scope,
                           .context = r->context,
                           .forms = off >> LAR_RULE_LR011 & 1 ? NULL : &r->ops,
                           .texts = &r->texts_ops,
                           .arena = &r->arena,
                           .reasoning = !(off >> LAR_RULE_LR013 & 1)};
    if (!r->ran || (!m.forms && !m.reasoning) || wrap(r, lar_json_raw(j, node)) != LAR_OK) return;
    if (lar_json_parse(&r->answer, lar_buf_slice(&r->answer_text), NULL, &ignored) != LAR_OK) return;
    lar_output_remember_body(&r->answer, r->protocol, &m);
}
