/* Tells models of this process that keep prefixes warm what goes by (gateway/resident/warmth.h).
 * Flow: exchange.c, once a request is prepared and goes out -> for each engine among its targets: the prefix's hash and
 * scope; of a new one also a text: the body as it goes out, with tools and leading system messages alone, and a word of
 * a user behind them. Loop thread; never blocks.
 * Why the text of what goes out: rules have moved from the prefix what changes from request to request.
 * How often earlier runs saw a prefix says the journal, by its fingerprint: read once at start, immutable from then on.
 * Memory: a copy of a body that is not too large, for the call; the counts. */
#include <stdlib.h>

#include "gateway/request/exchange.h"
#include "gateway/resident/resident.h"

enum { BODY_BYTES_MAX = 2 << 20, TEXT_BYTES_MAX = 1 << 20, SLOTS = 8192, PROBES = 16, RECORDS = 20000 };

/* What else of a request decides how its beginning is rendered. */
static const char *const members[] = {"tools", "tool_choice", "thinking", "reasoning_effort", "chat_template_kwargs"};

static bool leads(const lar_json *j, uint32_t message) {
    uint32_t role = lar_json_get_last(j, message, "role");
    return lar_json_is(j, message, LAR_JSON_OBJECT) &&
           (lar_json_eq(j, role, LAR_SLICE("system")) || lar_json_eq(j, role, LAR_SLICE("developer")));
}

static lar_error add_member(lar_buf *out, const char *name, lar_slice value) {
    lar_error e = lar_buf_printf(out, ",\"%s\":", name);
    return e ? e : lar_buf_add_slice(out, value);
}

/* *some: there is a prefix at all. */
static lar_error write_text(const lar_json *j, const char *model, lar_buf *out, bool *some) {
    uint32_t messages = lar_json_get_last(j, 0, "messages");
    lar_error e = lar_buf_add_slice(out, LAR_SLICE("{\"model\":\""));
    if (!e) e = lar_json_escape(out, lar_slice_cstr(model));
    if (!e) e = lar_buf_add_slice(out, LAR_SLICE("\",\"max_tokens\":1,\"messages\":["));
    *some = false;
    if (!lar_json_is(j, messages, LAR_JSON_ARRAY)) return e;
    for (uint32_t m = lar_json_first(j, messages); !e && m != LAR_JSON_NONE && leads(j, m);
         m = lar_json_after(j, messages, m)) {
        e = lar_buf_add_slice(out, lar_json_raw(j, m));
        if (!e) e = lar_buf_add_slice(out, LAR_SLICE(","));
        *some = true;
    }
    if (!e) e = lar_buf_add_slice(out, LAR_SLICE("{\"role\":\"user\",\"content\":\"Hello\"}]"));
    for (size_t i = 0; !e && i < sizeof members / sizeof *members; i++) {
        uint32_t node = lar_json_get_last(j, 0, members[i]);
        if (node == LAR_JSON_NONE) continue;
        *some |= i == 0;
        e = add_member(out, members[i], lar_json_raw(j, node));
    }
    return e ? e : lar_buf_add_slice(out, LAR_SLICE("}"));
}

/* The body as it goes to the first target; empty where it is too large. */
static lar_error copy_body(const lar_exchange *x, lar_buf *out) {
    lar_error e = LAR_OK;
    if (x->record.sent_bytes > BODY_BYTES_MAX) return LAR_LIMIT;
    for (uint32_t i = 1; !e && i < x->iov_count; i++)
        e = lar_buf_add_slice(out, lar_slice_of(x->iov[i].iov_base, x->iov[i].iov_len));
    return e;
}

static void give_text(const lar_exchange *x, lar_resident *r, const char *model, const lar_digest *scope) {
    const lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
    lar_buf body, text;
    lar_json json;
    bool some = false;
    lar_buf_init(&body, BODY_BYTES_MAX);
    lar_buf_init(&text, TEXT_BYTES_MAX);
    lar_json_init(&json);
    lar_error e = copy_body(x, &body);
    if (!e) e = lar_json_parse(&json, lar_buf_slice(&body), &limits, NULL);
    if (!e) e = write_text(&json, model, &text, &some);
    lar_resident_prefix_text(r, scope, x->canon.prefix_hash, e || !some ? LAR_SLICE("") : lar_buf_slice(&text));
    lar_json_release(&json);
    lar_buf_release(&text);
    lar_buf_release(&body);
}

/* -- what earlier runs saw ----------------------------------------------------------------------------------------- */

struct lar_prefix_counts {
    struct {
        uint64_t fingerprint;
        uint32_t count;
    } slots[SLOTS];
};

/* By the bits of the fingerprint, which is a keyed hash; where PROBES places are taken it is not counted. */
static uint32_t *slot_of(lar_prefix_counts *c, uint64_t fingerprint, bool make) {
    for (uint32_t i = 0; i < PROBES; i++) {
        uint32_t at = (uint32_t)(fingerprint + i) % SLOTS;
        if (!c->slots[at].fingerprint && make) c->slots[at].fingerprint = fingerprint;
        if (c->slots[at].fingerprint == fingerprint) return &c->slots[at].count;
    }
    return NULL;
}

static bool count_record(void *context, uint64_t seq, const lar_journal_record *r) {
    lar_prefix_counts *c = context;
    (void)seq;
    uint32_t *count = r->prefix_hash ? slot_of(c, r->prefix_hash, true) : NULL;
    if (count) ++*count;
    return true;
}

lar_error lar_prefix_counts_read(lar_store *store, lar_prefix_counts **out) {
    const lar_journal_filter all = {0};
    uint64_t last = lar_store_last_seq(store), damaged = 0;
    *out = calloc(1, sizeof **out);
    if (!*out) return LAR_NO_MEMORY;
    return lar_store_scan(store, &all, last > RECORDS ? last - RECORDS : 0, count_record, *out, &damaged);
}

void lar_prefix_counts_free(lar_prefix_counts *c) { free(c); }

static uint32_t seen_before(lar_prefix_counts *c, uint64_t fingerprint) {
    const uint32_t *count = c && fingerprint ? slot_of(c, fingerprint, false) : NULL;
    return count ? *count : 0;
}

/* -- what goes by ------------------------------------------------------------------------------------------------- */

void lar_exchange_note_prefix(const lar_exchange *x) {
    if (!x->understood || x->view.protocol != LAR_PROTOCOL_CHAT || !x->canon.prefix_hash) return;
    for (uint32_t i = 0; i < x->target_count; i++) {
        const lar_upstream_config *u = &x->config->upstreams[x->targets[i].upstream];
        if (!u->engine.keep_warm) continue;
        lar_resident *r = lar_gateway_resident(x->loop->gateway, u->name);
        lar_digest scope = lar_exchange_prefix_scope(x);
        uint32_t seen = seen_before(x->loop->gateway->prefixes_seen, x->record.prefix_hash);
        if (r && lar_resident_prefix_seen(r, &scope, x->canon.prefix_hash, seen))
            give_text(x, r, u->engine.served_name, &scope);
    }
}
