/* From a complete request to the bytes that go upstream: JSON, view, canonicalisation, route by model, head, iovecs.
 * Called by lar_exchange_run, and again where shared memory had something newer. Loop thread; never blocks. Memory: the
 * exchange's arena. Invariant: every byte of the body outside a splice is the client's own. Not here: sending. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/ensure.h"
#include "gateway/request/exchange.h"
#include "gateway/resident/engine_pool.h"
#include "policies/edition.h"

lar_error lar_exchange_parse(lar_exchange *x, lar_diag *d) {
    const lar_config *c = x->config;
    lar_slice coding = lar_http1_get(x->head, "content-encoding");
    if (coding.len && !lar_slice_ieq(coding, LAR_SLICE("identity")))
        return lar_fail(LAR_HTTP_CODING, d, "send the body without Content-Encoding");
    lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
    limits.depth_max = c->json_depth_max;
    lar_error e = lar_json_parse(&x->loop->json, lar_buf_slice(&x->body), &limits, d);
    if (!e) e = lar_request_view_read(&x->view, &x->loop->json, x->route.protocol, &x->arena, d);
    x->understood = !e;
    return e;
}

/* The member "model" of a body without a protocol. What is wrong with the body says who answers it. */
static uint32_t model_node(lar_exchange *x) {
    lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
    limits.depth_max = x->config->json_depth_max;
    if (lar_json_parse(&x->loop->json, lar_buf_slice(&x->body), &limits, NULL)) return LAR_JSON_NONE;
    return lar_json_is(&x->loop->json, 0, LAR_JSON_OBJECT) ? lar_json_get(&x->loop->json, 0, "model") : LAR_JSON_NONE;
}

/* The model's name, decoded. NUL in it is refused: names end up in records and C strings (J-12). */
static lar_error model_name(lar_exchange *x, lar_slice *out, lar_diag *d) {
    *out = x->route.model;
    if (!x->understood) x->view.model = x->route.model_in_body ? model_node(x) : LAR_JSON_NONE;
    uint32_t node = x->view.model;
    if (!lar_json_is(&x->loop->json, node, LAR_JSON_STRING)) return LAR_OK;
    *out = lar_json_inner(&x->loop->json, node);
    if (x->loop->json.nodes[node].flags & LAR_JSON_ESCAPED) {
        lar_buf b;
        lar_buf_init(&b, 4096);
        lar_error e = lar_json_decode(&x->loop->json, node, &b);
        if (!e) *out = lar_arena_copy(&x->arena, lar_buf_slice(&b));
        lar_buf_release(&b);
        if (e) return lar_fail(LAR_JSON_SHAPE, d, "/model is too long");
        if (!out->ptr) return LAR_NO_MEMORY;
    }
    if (memchr(out->ptr, 0, out->len)) return lar_fail(LAR_JSON_SHAPE, d, "/model holds a NUL");
    return LAR_OK;
}

static void copy_name(char *to, lar_slice from) {
    size_t n = from.len < LAR_JREC_NAME_BYTES - 1 ? from.len : LAR_JREC_NAME_BYTES - 1;
    while (n < from.len && n > 0 && ((unsigned char)from.ptr[n] & 0xC0) == 0x80) n--; /* not inside a character */
    if (n) memcpy(to, from.ptr, n);
    to[n] = 0;
}

static lar_hash scope_hash(const lar_exchange *x) {
    const lar_config *c = x->config;
    lar_hash h = lar_hash_of(lar_slice_of((const char *)x->scope.bytes, sizeof x->scope.bytes));
    h = lar_hash_chain(h, lar_slice_cstr(x->upstream->group));
    if (c->scope_header[0]) h = lar_hash_chain(h, lar_http1_get(x->head, c->scope_header));
    return h;
}

_Static_assert((int)LAR_CUTS_MAX == (int)LAR_JREC_CUTS_MAX && (int)LAR_CUT_KIND_COUNT == (int)LAR_JREC_CUT_KINDS,
               "what canonicalisation cuts, a record holds");

/* The fingerprints as the journal keeps them; without memory for them the record goes without. */
static void note_cuts(lar_exchange *x) {
    lar_journal_cut cuts[LAR_CUTS_MAX];
    lar_buf b;
    for (uint32_t i = 0; i < x->canon.cut_count; i++) {
        const lar_cut *c = &x->canon.cuts[i];
        cuts[i] = (lar_journal_cut){c->sent, c->raw, c->bytes, c->at, c->kind, c->rule};
    }
    lar_buf_init(&b, LAR_JREC_CUTS_MAX * LAR_JREC_CUT_BYTES);
    if (lar_journal_cuts_write(cuts, x->canon.cut_count, &b) == LAR_OK)
        x->record.chain = lar_arena_copy(&x->arena, lar_buf_slice(&b));
    lar_buf_release(&b);
}

/* What leaves the process says nothing about the text to who has not the installation's key. */
static uint64_t keyed(const lar_gateway *g, uint64_t fingerprint) {
    lar_hash h = {{0}};
    if (!g->store || !fingerprint) return fingerprint;
    memcpy(h.bytes, &fingerprint, sizeof fingerprint);
    return lar_hash_low(lar_hash_keyed(lar_store_key(g->store), h));
}

/* What canonicalisation did and knows, for the record. */
static void note_canon(lar_exchange *x) {
    lar_journal_record *r = &x->record;
    const lar_canon_out *o = &x->canon;
    r->rules_seen |= o->rules_seen; /* LR015 ran before */
    r->prefix_known_bytes = o->prefix_known_bytes;
    r->prefix_hash = keyed(x->loop->gateway, o->prefix_hash);
    (void)snprintf(r->edition, sizeof r->edition, "%s", LAR_EDITION);
    r->edition_hash = x->loop->gateway->edition_hash;
    r->predicted_bytes = o->known_bytes;
    r->prompt_bytes = o->prompt_bytes;
    r->recall_hits = o->recall_hits;
    r->recall_misses = o->recall_misses;
    if (o->cut_count) note_cuts(x);
}

static lar_canon_options canon_options(const lar_exchange *x) {
    lar_canon_options options = x->set->generation->canon;
    if (x->rule && x->rule->canon >= 0) options.mode = (lar_canon_mode)x->rule->canon;
    return options;
}

/* Canonicalisation never refuses a request: on any error the body goes on untouched. */
static void canonicalise(lar_exchange *x, const lar_canon_options *options) {
    lar_gateway *g = x->loop->gateway;
    if (options->mode == LAR_CANON_OFF) return;
    uint64_t t0 = lar_clock_mono_ns();
    lar_exchange_share_as(x);
    if (x->loop->shared) lar_shared_begin(&x->ask);
    lar_canon_in in = {.view = &x->view,
                       .options = options,
                       .memory = x->loop->memory.get ? &x->loop->memory : NULL,
                       .texts = x->loop->texts.get ? &x->loop->texts : NULL,
                       .cache = lar_loop_norm_cache(x->loop, x->set),
                       .scope = scope_hash(x),
                       .key = g->store ? lar_store_key(g->store) : NULL,
                       .now_ms = x->record.time_ms};
    if (lar_canon_run(&in, &x->arena, &x->canon) != LAR_OK) {
        x->canon = (lar_canon_out){0};
        return;
    }
    x->canon_ran = true;
    note_canon(x);
    lar_metrics_observe(g->metrics, LAR_METRIC_CANON_SECONDS, (lar_clock_mono_ns() - t0) / 1000);
}

static void note_edits(lar_exchange *x) {
    lar_journal_record *r = &x->record;
    if (x->mended) x->canon.rules_fired |= 1ull << LAR_RULE_LR015;
    r->rules_fired = x->canon.rules_fired;
    r->edits = x->canon.splices.count + x->mended;
}

_Static_assert((int)LAR_RULE_COUNT <= (int)LAR_METRIC_LABELS_MAX, "a counter for each rule");

static void count_by_rule(lar_metrics *m, const lar_canon_out *o) {
    uint32_t found[LAR_RULE_COUNT] = {0}, edited[LAR_RULE_COUNT] = {0};
    for (uint32_t i = 0; i < o->finding_count; i++) {
        found[o->findings[i].rule]++;
        edited[o->findings[i].rule] += o->findings[i].edited;
    }
    for (uint32_t r = 0; r < LAR_RULE_COUNT; r++) {
        if (!found[r]) continue;
        lar_metrics_add_by(m, LAR_METRIC_BY_RULE_FINDINGS_TOTAL, r, found[r]);
        lar_metrics_add_by(m, LAR_METRIC_BY_RULE_EDITS_TOTAL, r, edited[r]);
    }
}

void lar_exchange_count_prepared(lar_exchange *x) {
    const lar_journal_record *r = &x->record;
    lar_metrics *m = x->loop->gateway->metrics;
    lar_metrics_add(m, LAR_METRIC_BYTES_IN_TOTAL, (int64_t)r->request_bytes);
    count_by_rule(m, &x->canon);
    lar_metrics_add_by(m, LAR_METRIC_BY_RULE_FINDINGS_TOTAL, LAR_RULE_LR015, r->rules_seen >> LAR_RULE_LR015 & 1);
    lar_metrics_add_by(m, LAR_METRIC_BY_RULE_EDITS_TOTAL, LAR_RULE_LR015, x->mended);
    if (r->edits == 0) return;
    lar_metrics_add(m, LAR_METRIC_EDITS_TOTAL, r->edits);
    lar_metrics_add(m, LAR_METRIC_EDITED_REQUESTS_TOTAL, 1);
}

/* Asks for the usage event of a chat or completions stream; relay.c takes it out again (S-20). */
static lar_error inject_usage(lar_exchange *x) {
    const lar_upstream_config *u = x->upstream;
    bool wanted = u->inject_usage < 0 ? lar_profile_get(u->profile)->inject_usage : u->inject_usage == 1;
    lar_protocol p = x->view.protocol;
    if (!wanted || !x->view.streamed || x->view.wants_usage) return LAR_OK;
    if (p != LAR_PROTOCOL_CHAT && p != LAR_PROTOCOL_COMPLETIONS) return LAR_OK;
    const lar_json *j = &x->loop->json;
    uint32_t options = x->view.stream_options;
    lar_error e;
    if (lar_json_is(j, options, LAR_JSON_OBJECT)) {
        uint32_t flag = lar_json_get(j, options, "include_usage");
        uint32_t at = j->nodes[options].start + 1;
        if (flag != LAR_JSON_NONE)
            e = lar_splices_add(x->edits, j->nodes[flag].start, j->nodes[flag].end, LAR_SLICE("true"));
        else if (j->nodes[options].count) e = lar_splices_add(x->edits, at, at, LAR_SLICE("\"include_usage\":true,"));
        else e = lar_splices_add(x->edits, at, at, LAR_SLICE("\"include_usage\":true"));
    } else if (options != LAR_JSON_NONE) {
        e = lar_splices_add(x->edits, j->nodes[options].start, j->nodes[options].end,
                            LAR_SLICE("{\"include_usage\":true}"));
    } else {
        uint32_t at = j->nodes[x->view.stream].end;
        e = lar_splices_add(x->edits, at, at, LAR_SLICE(",\"stream_options\":{\"include_usage\":true}"));
    }
    if (!e) {
        x->usage_injected = true;
        x->record.flags |= LAR_JREC_USAGE_INJECTED;
    }
    return e;
}

/* The name under which the present target knows the model; NULL: the request's own. */
static const char *other_model(const lar_exchange *x, lar_slice model) {
    if (x->target_count && *x->targets[x->target].model) return x->targets[x->target].model;
    return lar_route_alias(x->config, model);
}

static lar_error apply_alias(lar_exchange *x, lar_slice *model) {
    const char *to = other_model(x, *model);
    if (!to || x->view.model == LAR_JSON_NONE) return LAR_OK;
    lar_buf b;
    lar_buf_init(&b, 4096);
    lar_error e = lar_json_escape(&b, lar_slice_cstr(to));
    lar_slice text = e ? (lar_slice){NULL, 0} : lar_arena_printf(&x->arena, "\"%.*s\"", LAR_FMT(lar_buf_slice(&b)));
    lar_buf_release(&b);
    if (!text.ptr) return LAR_NO_MEMORY;
    const lar_json_node *n = &x->loop->json.nodes[x->view.model];
    *model = lar_slice_cstr(to);
    return lar_splices_add(x->edits, n->start, n->end, text);
}

/* All edits of the body: recall and rules first, then what the gateway itself needs. */
static lar_error edit(lar_exchange *x, lar_slice model, lar_diag *d) {
    if (!x->understood) {
        x->edits = &x->canon.splices;
        lar_splices_init(x->edits, &x->arena);
        return apply_alias(x, &model);
    }
    lar_canon_options options = canon_options(x);
    lar_error e = lar_exchange_mend(x, &options, d);
    if (!e && x->mended) e = model_name(x, &model, d); /* it lay in the old body */
    if (e) return e;
    canonicalise(x, &options);
    note_edits(x);
    x->edits = &x->canon.splices;
    if (!x->canon_ran) lar_splices_init(x->edits, &x->arena);
    uint32_t from_canon = x->edits->count;
    e = apply_alias(x, &model);
    if (!e) e = inject_usage(x);
    if (e) return e;
    e = x->edits->count != from_canon || from_canon ? lar_splices_finish(x->edits, x->body.len) : LAR_OK;
    if (e) { /* edits that contradict each other: none of them */
        x->edits->count = 0;
        x->usage_injected = false;
        x->record.edits = x->mended;
    }
    return LAR_OK;
}

static bool is_credential(lar_slice name) {
    return lar_slice_ieq(name, LAR_SLICE("authorization")) || lar_slice_ieq(name, LAR_SLICE("x-api-key")) ||
           lar_slice_ieq(name, LAR_SLICE("api-key"));
}

static bool forwarded(const lar_exchange *x, const lar_http1_field *f, bool own_credential) {
    static const char *const never[] = {"host", "content-length", "expect", "transfer-encoding", "x-larder-cache"};
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++) {
        if (lar_slice_ieq(f->name, lar_slice_cstr(never[i]))) return false;
    }
    if (own_credential && is_credential(f->name)) return false;
    /* usage is read from the answer, so it must come uncompressed (H-26, U-13) */
    if (x->route.protocol != LAR_PROTOCOL_NONE && lar_slice_ieq(f->name, LAR_SLICE("accept-encoding"))) return false;
    return !lar_http1_hop_by_hop(x->head, f->name);
}

static lar_error build_head(lar_exchange *x, size_t body_bytes) {
    const lar_http1_head *h = x->head;
    const lar_upstream_config *u = x->upstream;
    lar_buf *b = &x->up_head;
    lar_slice path = lar_upstream_path(u, x->route.path);
    lar_error e = lar_buf_reserve(b, h->head_bytes + 512u);
    if (!e) e = lar_buf_add_slice(b, h->method);
    if (!e) e = lar_buf_add_slice(b, LAR_SLICE(" "));
    if (!e) e = lar_buf_add_slice(b, lar_slice_cstr(u->url.path));
    if (!e) e = lar_buf_add_slice(b, path);
    if (!e) e = lar_buf_add_slice(b, LAR_SLICE(" HTTP/1.1\r\nHost: "));
    if (!e) e = lar_buf_add_slice(b, lar_slice_cstr(u->url.authority));
    if (!e) e = lar_buf_add_slice(b, LAR_SLICE("\r\n"));
    bool own_credential = u->key[0] || x->config->key_count;
    for (uint32_t i = 0; !e && i < h->field_count; i++) {
        const lar_http1_field *f = &h->fields[i];
        if (!forwarded(x, f, own_credential)) continue;
        e = lar_buf_reserve(b, f->name.len + f->value.len + 4);
        if (!e) e = lar_buf_add_slice(b, f->name);
        if (!e) e = lar_buf_add_slice(b, LAR_SLICE(": "));
        if (!e) e = lar_buf_add_slice(b, f->value);
        if (!e) e = lar_buf_add_slice(b, LAR_SLICE("\r\n"));
    }
    if (!e) e = lar_upstream_credential(u, b);
    if (!e && x->route.protocol != LAR_PROTOCOL_NONE)
        e = lar_buf_add_slice(b, LAR_SLICE("Accept-Encoding: identity\r\n"));
    bool length = body_bytes || h->method_id == LAR_HTTP1_POST || h->method_id == LAR_HTTP1_PUT || h->has_body;
    if (!e && length) e = lar_buf_add_slice(b, LAR_SLICE("Content-Length: "));
    if (!e && length) e = lar_buf_add_u64(b, body_bytes);
    if (!e && length) e = lar_buf_add_slice(b, LAR_SLICE("\r\n"));
    return e ? e : lar_buf_add_slice(b, LAR_SLICE("\r\n"));
}

static lar_error build_iov(lar_exchange *x) {
    lar_slice body = lar_buf_slice(&x->body);
    bool edited = x->edits && x->edits->count;
    uint32_t most = 1 + (edited ? lar_splices_iov_max(x->edits) : 1);
    x->iov = lar_arena_alloc(&x->arena, most * sizeof *x->iov);
    if (!x->iov) return LAR_NO_MEMORY;
    x->iov[0] = (struct iovec){x->up_head.ptr, x->up_head.len};
    x->iov_count = 1;
    if (edited) x->iov_count += lar_splices_iov(x->edits, body, x->iov + 1);
    else if (body.len) x->iov[x->iov_count++] = (struct iovec){x->body.ptr, body.len};
    return LAR_OK;
}

/* Nothing of an earlier round may stay, but for what LR015 did to the body, which is done once. */
static void forget(lar_exchange *x) {
    lar_journal_record *r = &x->record;
    x->arena_before = x->arena.used;
    x->up_head.len = 0;
    x->edits = NULL;
    x->iov = NULL;
    x->iov_count = 0;
    x->view = (lar_request_view){0};
    x->canon = (lar_canon_out){0};
    x->canon_ran = x->usage_injected = x->understood = false;
    r->flags &= (uint16_t)~LAR_JREC_USAGE_INJECTED;
    r->edits = 0;
    r->rules_seen = x->mended ? 1ull << LAR_RULE_LR015 : 0;
    r->rules_fired = r->prefix_known_bytes = r->prefix_hash = r->predicted_bytes = r->prompt_bytes = 0;
    r->recall_hits = r->recall_misses = 0;
    r->chain = (lar_slice){NULL, 0};
}

/* A model in this process answers less than what a route may let through, and some that no provider has. */
static lar_error check_kind(lar_exchange *x, lar_diag *d) {
    x->allow = "GET, HEAD, POST, OPTIONS";
    if (x->upstream->kind == LAR_UPSTREAM_KIND_ENGINE) return lar_engine_pool_serves(x->head->method, x->route.path, d);
    return x->route.engine_only ? LAR_NO_ROUTE : LAR_OK;
}

lar_error lar_exchange_prepare(lar_exchange *x, lar_diag *d) {
    lar_slice model;
    forget(x);
    lar_error e = x->route.protocol != LAR_PROTOCOL_NONE ? lar_exchange_parse(x, d) : LAR_OK;
    if (!e) e = model_name(x, &model, d);
    if (e) return e;
    const char *other = model.len ? other_model(x, model) : NULL;
    lar_slice routed = other ? lar_slice_cstr(other) : model;
    if (!x->target_count) x->first_upstream = lar_route_upstream(x->config, &x->route, x->head, routed, &x->rule);
    if (x->failure == LAR_FAILURE_NONE) x->upstream_index = x->first_upstream;
    LAR_ASSERT(x->upstream_index < x->config->upstream_count);
    x->upstream = &x->config->upstreams[x->upstream_index];
    copy_name(x->record.route, lar_slice_cstr(x->route.name));
    copy_name(x->record.model, routed);
    (void)snprintf(x->record.provider, sizeof x->record.provider, "%s", lar_profile_get(x->upstream->profile)->name);
    if (!x->recall_rounds) x->record.request_bytes = x->body.len;
    if (x->understood) {
        x->record.turn = x->view.turn;
        if (x->view.streamed) x->record.flags |= LAR_JREC_STREAMED;
        lar_usage_reset(&x->usage, lar_profile_get(x->upstream->profile)->usage_rule);
    }
    e = check_kind(x, d);
    if (!e) e = edit(x, model, d);
    if (e) return e;
    if (x->failure == LAR_FAILURE_NONE) lar_exchange_choose(x);
    copy_name(x->record.upstream, lar_slice_cstr(x->upstream->name));
    bool edited = x->edits && x->edits->count;
    x->record.sent_bytes = edited ? lar_splices_length(x->edits, x->body.len) : x->body.len;
    if (x->upstream->kind == LAR_UPSTREAM_KIND_HTTP) e = build_head(x, x->record.sent_bytes);
    if (!e) e = build_iov(x);
    if (!e) lar_exchange_answers_prepared(x);
    return e;
}
