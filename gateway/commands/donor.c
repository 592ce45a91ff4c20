/* The search for the earlier request that shares most with one, and the verdict (header: donor.h).
 * Flow: explain.c offers every record of the journal, then asks. Pure; the caller's memory; never blocks.
 * Why running hashes are compared from the front: once two requests part they stay apart, so the last equal place is
 * the common prefix. Invariants: 1. what the provider refused is no donor. 2. of donors that share the same, the newest
 * counts: each use keeps a prefix alive. Not here: reading and printing (explain.c). */
#include "gateway/commands/donor.h"

#include <string.h>

#include "policies/predict.h"

static const lar_miss_row reasons[LAR_MISS_COUNT] = {
    [LAR_MISS_NOT_READ] = {"not_read",
                           "its text was not read: canonicalisation was off or gave up, it is no chat, or an "
                           "older larder recorded it",
                           "requests are compared where canon.mode is report or on"},
    [LAR_MISS_NOT_SENT] = {"not_sent", "no provider accepted it", "see its error and status (larder export)"},
    [LAR_MISS_NONE] = {"as_expected", "the provider read from its cache what it could; the rest is new text",
                       "nothing"},
    [LAR_MISS_FIRST] = {"first", "it is the first of its kind: no earlier request with this key, upstream and model",
                        "nothing: the first request fills the cache"},
    [LAR_MISS_TEXT] =
        {"text", "its text parts from that of every earlier request",
         "look at what varies there: larder tail shows which rules saw something, larder lint which text"},
    [LAR_MISS_MODEL] = {"other_model", "the same text went to another model before; caches are kept by model",
                        "keep to one model within a conversation"},
    [LAR_MISS_UPSTREAM] = {"other_upstream", "the same text went to another upstream before",
                           "route a conversation to one upstream (routes)"},
    [LAR_MISS_KEY] = {"other_key", "the same text came with another key before; providers keep caches by account",
                      "use keys of one account where tenants may share a cache"},
    [LAR_MISS_PARALLEL] = {"parallel", "the request that it shares most with had not been answered yet when it came",
                           "let one request begin to be answered before the others that share its prefix are sent"},
    [LAR_MISS_EXPIRED] = {"expired", "what it shares was last sent longer ago than the provider keeps it",
                          "ask for longer retention where the provider has it, or send a short request in between"},
    [LAR_MISS_SHORT] = {"too_short", "what it shares is shorter than the provider caches",
                        "nothing: short prompts are not cached"},
    [LAR_MISS_EDITION] = {"edition", "rules, hashes or templates changed between the two: what they touch misses once",
                          "nothing: the next request hits again; larder fingerprint says what changed"},
    [LAR_MISS_PROVIDER] = {"provider", "the same prefix was sent in time, but the provider did not have it",
                           "providers drop entries under load, need seconds to build them, and spread requests over "
                           "machines: see larder baseline whether it stays so"},
    [LAR_MISS_UNKNOWN] = {"unknown", "the provider did not say how much it read from its cache",
                          "ask for usage on streams (inject_usage), or look at the provider's own account"},
};

const lar_miss_row *lar_miss_get(lar_miss m) { return &reasons[m]; }

void lar_donor_keep(lar_donor *d, uint64_t seq, const lar_journal_record *r) {
    d->there = true;
    d->seq = seq;
    d->record = *r;
    d->cut_count = lar_journal_cuts(r, d->cuts);
    d->record.chain = (lar_slice){NULL, 0};
    d->common = d->common_raw = -1;
    d->common_bytes = 0;
    d->continued = false;
}

static void compare(const lar_donor *request, lar_donor *d) {
    for (uint32_t i = 0, k = 0; i < request->cut_count && k < d->cut_count;) {
        const lar_journal_cut *a = &request->cuts[i], *b = &d->cuts[k];
        if (a->at != b->at) {
            if (a->at < b->at) i++;
            else k++;
            continue;
        }
        if (a->sent == b->sent) {
            d->common = (int32_t)i;
            d->common_bytes = a->bytes;
            d->continued = k + 1 == d->cut_count;
        }
        if (a->raw == b->raw) d->common_raw = (int32_t)i;
        i++, k++;
    }
}

/* When the answer began: from then on the prefix can be read. */
static int64_t answered_ms(const lar_journal_record *r) {
    int64_t us = r->ttft_us != LAR_TOKENS_UNKNOWN && r->ttft_us >= 0 ? r->ttft_us : r->total_us;
    return r->time_ms + (us > 0 ? us / 1000 : 0);
}

static bool better(const lar_donor *a, const lar_donor *than) {
    if (!than->there || a->common_bytes != than->common_bytes)
        return !than->there || a->common_bytes > than->common_bytes;
    return a->record.time_ms > than->record.time_ms;
}

static bool same_name(const char *a, const char *b) { return strncmp(a, b, LAR_JREC_NAME_BYTES) == 0; }

void lar_donor_offer(lar_donor_search *s, uint64_t seq, const lar_journal_record *r) {
    const lar_journal_record *q = &s->request->record;
    bool earlier = r->time_ms < q->time_ms || (r->time_ms == q->time_ms && seq < s->request->seq);
    if (seq == s->request->seq || !earlier || r->status < 200 || r->status > 299 || !r->chain.len) return;
    lar_donor d;
    s->looked_at++;
    lar_donor_keep(&d, seq, r);
    compare(s->request, &d);
    bool key = r->tenant == q->tenant, upstream = same_name(r->upstream, q->upstream),
         model = same_name(r->model, q->model);
    if (!key || !upstream || !model) {
        lar_donor *other = !model ? &s->other_model : !upstream ? &s->other_upstream : &s->other_key;
        if (key + upstream + model == 2 && d.common_bytes && better(&d, other)) *other = d;
        return;
    }
    bool answered = answered_ms(r) <= q->time_ms;
    if (answered && (!s->newest.there || r->time_ms > s->newest.record.time_ms)) s->newest = d;
    if (!d.common_bytes) return;
    if (better(&d, &s->best)) s->best = d;
    bool alive = !s->ttl_s || q->time_ms - answered_ms(r) <= (int64_t)s->ttl_s * 1000;
    if (answered && alive && better(&d, &s->live)) s->live = d;
}

/* -- the verdict ------------------------------------------------------------------------------------------------ */

static int64_t worth(const lar_donor_search *s, const lar_donor *d, uint32_t step, uint32_t min) {
    const lar_journal_record *q = &s->request->record;
    lar_prediction_in in = {.known_bytes = d->there ? d->common_bytes : 0,
                            .prompt_bytes = q->prompt_bytes,
                            .prompt_tokens = q->tokens.prompt == LAR_TOKENS_UNKNOWN ? -1 : q->tokens.prompt,
                            .step_tokens = step,
                            .tokens_min = min};
    return lar_predict_hit(&in);
}

/* Where the text parts; -1 if the request only goes on behind all of the donor. */
static int32_t break_of(const lar_donor *request, const lar_donor *d) {
    if (!d->there || (d->continued && d->common >= 0)) return -1;
    return d->common + 1 < (int32_t)request->cut_count ? d->common + 1 : -1;
}

/* A donor under another key, upstream or model that shares clearly more than the request's own. */
static lar_miss elsewhere(const lar_donor_search *s, const lar_donor **out) {
    const lar_donor *list[] = {&s->other_model, &s->other_upstream, &s->other_key}, *best = NULL;
    const lar_miss misses[] = {LAR_MISS_MODEL, LAR_MISS_UPSTREAM, LAR_MISS_KEY};
    lar_miss m = LAR_MISS_COUNT;
    for (int i = 0; i < 3; i++) {
        if (!list[i]->there || list[i]->common_bytes <= (s->best.there ? s->best.common_bytes : 0)) continue;
        if (best && list[i]->common_bytes <= best->common_bytes) continue;
        best = list[i];
        m = misses[i];
    }
    if (best) *out = best;
    return m;
}

/* Nothing that this key, upstream and model sent in time is worth what would be needed. */
static lar_miss without_live(const lar_donor_search *s, lar_verdict *v) {
    lar_miss other = elsewhere(s, &v->donor);
    if (other != LAR_MISS_COUNT) return other;
    if (!s->best.there) {
        v->donor = s->newest.there ? &s->newest : NULL;
        return s->newest.there ? LAR_MISS_TEXT : LAR_MISS_FIRST;
    }
    v->donor = &s->best;
    return answered_ms(&s->best.record) > s->request->record.time_ms ? LAR_MISS_PARALLEL : LAR_MISS_EXPIRED;
}

static lar_miss judge(const lar_donor_search *s, lar_verdict *v, uint32_t step, uint32_t min) {
    const lar_journal_record *q = &s->request->record;
    if (!s->request->cut_count) return LAR_MISS_NOT_READ;
    if (q->status < 200 || q->status > 299) return LAR_MISS_NOT_SENT;
    bool lost = s->best.there && (!s->live.there || s->live.common_bytes < s->best.common_bytes);
    v->donor = s->live.there ? &s->live : NULL;
    v->expected_hit = worth(s, &s->live, step, min);
    int64_t hit = q->tokens.hit;
    if (hit == LAR_TOKENS_UNKNOWN || v->expected_hit == LAR_TOKENS_UNKNOWN) {
        v->donor = s->live.there ? &s->live : s->best.there ? &s->best : s->newest.there ? &s->newest : NULL;
        return LAR_MISS_UNKNOWN;
    }
    /* what the provider could have had at best, and did not read */
    if (hit + (int64_t)(step > 1 ? step : 1) < v->expected_hit) return LAR_MISS_PROVIDER;
    if (lost && worth(s, &s->best, step, min) > hit + (int64_t)(step > 1 ? step : 1)) return without_live(s, v);
    if (!s->best.there) return without_live(s, v);
    lar_miss other = elsewhere(s, &v->donor);
    if (other != LAR_MISS_COUNT && worth(s, v->donor, step, min) > hit) return other;
    v->donor = s->live.there ? &s->live : &s->best;
    if (q->tokens.prompt < (int64_t)min) return LAR_MISS_SHORT;
    if (break_of(s->request, v->donor) < 0)
        return worth(s, v->donor, 1, 0) < (int64_t)min ? LAR_MISS_SHORT : LAR_MISS_NONE;
    if (v->donor->record.edition_hash && q->edition_hash && v->donor->record.edition_hash != q->edition_hash)
        return LAR_MISS_EDITION;
    return LAR_MISS_TEXT;
}

lar_verdict lar_donor_judge(const lar_donor_search *s, uint32_t step_tokens, uint32_t tokens_min) {
    lar_verdict v = {.expected_hit = LAR_TOKENS_UNKNOWN, .shared_tokens = LAR_TOKENS_UNKNOWN, .broke = -1};
    v.miss = judge(s, &v, step_tokens, tokens_min);
    if (!v.donor) return v;
    v.shared_tokens = worth(s, v.donor, step_tokens, tokens_min);
    v.age_ms = s->request->record.time_ms - answered_ms(&v.donor->record);
    v.broke = break_of(s->request, v.donor);
    return v;
}
