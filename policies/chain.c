/* Fingerprints of a request where two requests may part (header: chain.h).
 * Flow: canon.c calls once all splices are finished. Pure; memory from the request's arena; never blocks.
 * Why not a hash of every segment: a record must stay small. Where requests part, the journal then knows between which
 * two places; near both ends that is one message. Invariants: 1. `at` grows from cut to cut, `bytes` never shrinks.
 * 2. equal `sent` = the model reads the same up to there (canon_recall.c). 3. at most LAR_CUTS_MAX. */
#include "policies/canon_state.h"

_Static_assert(LAR_CUTS_FIRST + LAR_CUTS_LAST + 11 + 2 <= LAR_CUTS_MAX, "ends, powers of two, head's end and tools");
_Static_assert(LAR_CANON_SEGMENTS_MAX <= 1 << 14, "between the ends lie eleven powers of two: 2^4 to 2^14");

bool lar_cut_wanted(uint32_t at, uint32_t count, uint32_t head) {
    return at <= LAR_CUTS_FIRST || count - at < LAR_CUTS_LAST || (at & (at - 1)) == 0 || at == head;
}

uint64_t lar_cut_bytes(const lar_splices *s, uint32_t start, uint32_t end, uint32_t *from) {
    uint64_t n = end - start;
    if (*from > s->count || (*from && s->list[*from - 1].start >= start)) *from = 0;
    while (*from < s->count && s->list[*from].start < start) ++*from;
    for (; *from < s->count && s->list[*from].start < end; ++*from) {
        const lar_splice *p = &s->list[*from];
        n += p->with.len;
        n -= (p->end < end ? p->end : end) - p->start;
    }
    return n;
}

static uint8_t kind_of(const lar_canon *c, uint32_t i) {
    static const uint8_t kinds[] = {[LAR_ROLE_SYSTEM] = LAR_CUT_SYSTEM,
                                    [LAR_ROLE_USER] = LAR_CUT_USER,
                                    [LAR_ROLE_ASSISTANT] = LAR_CUT_ASSISTANT,
                                    [LAR_ROLE_TOOL] = LAR_CUT_TOOL,
                                    [LAR_ROLE_OTHER] = LAR_CUT_OTHER};
    const lar_segment *s = &c->view->segments[i];
    uint32_t system = c->view->members[LAR_MEMBER_SYSTEM], instructions = c->view->members[LAR_MEMBER_INSTRUCTIONS];
    if (i == 0 && (s->node == system || s->node == instructions)) return LAR_CUT_TOP;
    return kinds[s->role];
}

/* The rule of the first finding in the body's span, as in lar_cut. */
static uint8_t rule_in(const lar_canon_out *o, uint32_t start, uint32_t end) {
    for (uint32_t i = 0; i < o->finding_count; i++) {
        if (o->findings[i].rule == LAR_RULE_LR014) continue; /* a mark is no part of the prefix */
        if (o->findings[i].start >= start && o->findings[i].start < end) return (uint8_t)(o->findings[i].rule + 1);
    }
    return 0;
}

static uint64_t fingerprint(const lar_canon *c, lar_hash h) { return lar_hash_low(lar_hash_keyed(c->in->key, h)); }

static void add(const lar_canon *c, lar_cut cut, lar_hash sent, lar_hash raw) {
    cut.sent = fingerprint(c, sent);
    cut.raw = (uint32_t)fingerprint(c, raw);
    cut.bytes = c->out->prompt_bytes < UINT32_MAX ? (uint32_t)c->out->prompt_bytes : UINT32_MAX;
    c->out->cuts[c->out->cut_count++] = cut;
}

lar_error lar_canon_cuts(lar_canon *c) {
    lar_canon_out *o = c->out;
    const lar_json *j = c->json;
    uint32_t n = c->view->segment_count, tools = c->view->tools, from = 0, since = 0;
    lar_hash raw = {{0}};
    if (c->in->key) {
        o->cuts = lar_arena_alloc(c->arena, LAR_CUTS_MAX * sizeof *o->cuts);
        if (!o->cuts) return LAR_NO_MEMORY;
    }
    if (tools != LAR_JSON_NONE) {
        o->prompt_bytes = lar_cut_bytes(&o->splices, j->nodes[tools].start, j->nodes[tools].end, &from);
        if (o->cuts) raw = lar_hash_of(lar_json_raw(j, tools));
        lar_cut cut = {.kind = LAR_CUT_TOOLS, .rule = rule_in(o, j->nodes[tools].start, j->nodes[tools].end)};
        if (o->cuts) add(c, cut, c->tools_exact, raw);
    }
    for (uint32_t i = 0; i < n; i++) {
        const lar_json_node *node = &j->nodes[c->view->segments[i].node];
        o->prompt_bytes += lar_cut_bytes(&o->splices, node->start, node->end, &from);
        if (i + 1 == o->segments_known) o->known_bytes = o->prompt_bytes;
        raw = lar_hash_join(raw, c->segments[i].key);
        if (!since) since = node->start;
        if (!o->cuts || !lar_cut_wanted(i + 1, n, c->head_count)) continue;
        lar_cut cut = {.at = (uint16_t)(i + 1), .kind = kind_of(c, i), .rule = rule_in(o, since, node->end)};
        add(c, cut, c->segments[i].sent, raw);
        since = 0;
    }
    return LAR_OK;
}
