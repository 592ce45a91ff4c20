/* Evidence: which volatile spans vary, by what was seen of them before (docs/design/0004).
 * Flow: rules/volatile_move.c -> here, once for each group (the head, a tool, the opening). Never blocks; one request
 * at a time. Remembered in the scope, values as hashes only:
 *   T  shape of a group -> for each span the last value and what it did; masks with which the group was sent
 *   L  class and label of a span that was seen to change: counts for other heads and tools with that label
 *   K  all that stands before a span of an opening, and its label -> its last value, whether it changed
 *   R  group as it was sent under a mask -> it was sent so: the same text is decided the same way again
 * Invariants: 1. a span that never changed and does not show now is not touched. 2. spans of two prompts are never
 * taken for one: their shapes, and what stands before them, differ. 3. a conversation that began with a span in its
 * place keeps it there. */
#include "policies/canon_state.h"

enum {
    VERSION = 2,
    SEEN = 0,
    REPEATED = 1,
    CHANGED = 2,
    OFF = 3,
    MASKS_MAX = 4,
    HEAD_BYTES = 11,
    ROW_BYTES = 9,
    K_BYTES = 10
};
enum { BYTES_MAX = HEAD_BYTES + MASKS_MAX * 8 + LAR_CANON_SPANS_MAX * ROW_BYTES };

typedef struct record {
    uint64_t on; /* bit i: spans[i] is of a class that is on; not in memory */
    bool found, dirty;
    const lar_hash *place; /* of a new opening: of each of its spans; else NULL */
    uint64_t opener;       /* what the conversation began with when the values were seen */
    uint32_t mask_count;
    uint64_t mask[MASKS_MAX]; /* oldest first */
    uint64_t value[LAR_CANON_SPANS_MAX];
    uint8_t state[LAR_CANON_SPANS_MAX];
} record;

lar_rule lar_canon_rule_of(lar_volatile_class class_id) {
    static const lar_rule rules[LAR_VOLATILE_COUNT] = {
#define LAR_CLASS(name, rule, evidence, owner, text) [LAR_VOLATILE_##name] = LAR_RULE_##rule,
#include "policies/classes.def"
#undef LAR_CLASS
    };
    return (unsigned)class_id < LAR_VOLATILE_COUNT ? rules[class_id] : LAR_RULE_COUNT;
}

bool lar_canon_class_on(const lar_canon *c, lar_volatile_class class_id) {
    return lar_volatile_row_of(class_id)->evidence != LAR_EVIDENCE_NEVER &&
           lar_canon_rule_on(c, lar_canon_rule_of(class_id));
}

const lar_canon_unit *lar_canon_unit_of_span(const lar_canon *c, uint32_t span) {
    for (uint32_t u = 0; u < c->unit_count; u++) {
        if (span - c->units[u].span_first < c->units[u].span_count) return &c->units[u];
    }
    return NULL;
}

lar_slice lar_canon_span_text(const lar_canon *c, uint32_t span) {
    const lar_volatile_span *s = &c->spans[span];
    return lar_slice_of(lar_canon_unit_of_span(c, span)->text.text.ptr + s->start, s->end - s->start);
}

bool lar_canon_ticks(lar_volatile_class class_id) {
    lar_rule r = lar_canon_rule_of(class_id);
    return r == LAR_RULE_LR001 || r == LAR_RULE_LR006 || r == LAR_RULE_LR008;
}

/* -- records -------------------------------------------------------------------------------------- */

static void read_record(lar_canon *c, const lar_canon_group *g, record *r) {
    *r = (record){0};
    if (!lar_canon_get(c, 'T', g->shape) || c->value.len < HEAD_BYTES) return;
    const uint8_t *p = (const uint8_t *)c->value.ptr;
    size_t masks = p[2], at = HEAD_BYTES;
    if (p[0] != VERSION || p[1] != g->span_count || masks > MASKS_MAX) return;
    if (c->value.len != HEAD_BYTES + masks * 8 + (size_t)g->span_count * ROW_BYTES) return;
    memcpy(&r->opener, p + 3, 8);
    r->mask_count = (uint32_t)masks;
    for (uint32_t i = 0; i < masks; i++, at += 8) memcpy(&r->mask[i], p + at, 8);
    for (uint32_t i = 0; i < g->span_count; i++, at += ROW_BYTES) {
        memcpy(&r->value[i], p + at, 8);
        r->state[i] = p[at + 8];
    }
    r->found = true;
}

static lar_error write_record(lar_canon *c, const lar_canon_group *g, const record *r) {
    char v[BYTES_MAX] = {VERSION, (char)g->span_count, (char)r->mask_count};
    size_t at = HEAD_BYTES;
    memcpy(v + 3, &r->opener, 8);
    for (uint32_t i = 0; i < r->mask_count; i++, at += 8) memcpy(v + at, &r->mask[i], 8);
    for (uint32_t i = 0; i < g->span_count; i++, at += ROW_BYTES) {
        memcpy(v + at, &r->value[i], 8);
        v[at + 8] = (char)r->state[i];
    }
    return lar_canon_put_value(c, 'T', g->shape, lar_slice_of(v, at));
}

static lar_hash slot_of(const lar_canon *c, uint32_t i) {
    return lar_volatile_slot(lar_canon_unit_of_span(c, i)->text.text, &c->spans[i]);
}

/* Whether its label names one value in the group. A label with several is that of records, a log or a list: out of
 * their places nobody could tell which value belongs to what. */
static bool names_one(const lar_canon *c, const lar_canon_group *g, uint32_t i) {
    lar_hash slot = slot_of(c, i);
    lar_slice value = lar_canon_span_text(c, i);
    for (uint32_t k = g->span_first; k < g->span_first + g->span_count; k++) {
        if (c->spans[k].class_id != c->spans[i].class_id || lar_slice_eq(lar_canon_span_text(c, k), value)) continue;
        if (lar_hash_eq(slot_of(c, k), slot)) return false;
    }
    return true;
}

/* A slot counts for other prompts only if its label names the value for what it is, and no other one beside it. What
 * stands in an opening may be a user's own words: there only the very same place counts. */
static bool slot_changed(lar_canon *c, const lar_canon_group *g, uint32_t i) {
    if (g->place == LAR_PLACE_OPENING || !c->spans[i].key_word) return false;
    return lar_canon_get(c, 'L', slot_of(c, i)) && c->value.ptr[0] == VERSION && names_one(c, g, i);
}

static bool shows_now(const lar_canon *c, const lar_canon_group *g, uint32_t i) {
    const lar_volatile_span *s = &c->spans[i];
    if (lar_volatile_row_of(s->class_id)->evidence != LAR_EVIDENCE_NOW) return false;
    bool trusted = s->key_word || (s->stamp.zone == LAR_ZONE_OFFSET && s->stamp.has_seconds);
    return trusted && lar_clock_shows(&s->stamp, c->in->now_ms) && names_one(c, g, i);
}

/* -- the opening: by all that stands before a span --------------------------------------------------- */

/* Fills place[k] for each span of the opening: all bytes before it, other spans masked, and its label. */
static lar_error places(lar_canon *c, const lar_canon_group *g, lar_hash *place) {
    lar_hash h = lar_hash_join(c->hash_template, c->tools_set);
    uint32_t segment = c->head_count;
    for (uint32_t u = g->unit_first; u < g->unit_first + g->unit_count; u++) {
        const lar_canon_unit *unit = &c->units[u];
        for (; segment < unit->segment; segment++) {
            bool kept = u > g->unit_first && c->units[u - 1].segment == segment;
            if (!kept) h = lar_hash_join(h, c->segments[segment].norm);
        }
        lar_text_form piece = unit->form;
        for (uint32_t i = unit->span_first; i <= unit->span_first + unit->span_count; i++) {
            bool last = i == unit->span_first + unit->span_count;
            lar_hash bytes;
            piece.end = last ? unit->form.end : c->spans[i].start;
            lar_error e = lar_text_norm(&bytes, &unit->text, &piece, NULL, c->arena);
            if (e) return e;
            h = lar_hash_join(h, bytes);
            if (last) break;
            place[i - g->span_first] = lar_hash_join(h, slot_of(c, i));
            piece.begin = c->spans[i].end;
        }
    }
    return LAR_OK;
}

/* Whether the same place held another value before; remembers this one. */
static lar_error place_changed(lar_canon *c, const lar_hash *place, uint64_t value, bool *changed) {
    char v[K_BYTES] = {VERSION, SEEN};
    memcpy(v + 2, &value, 8);
    *changed = false;
    if (lar_canon_get(c, 'K', *place) && c->value.len == K_BYTES && c->value.ptr[0] == VERSION) {
        bool same = memcmp(c->value.ptr + 2, v + 2, 8) == 0;
        *changed = c->value.ptr[1] == CHANGED || !same;
        if (c->value.ptr[1] == CHANGED || same) return LAR_OK;
        v[1] = CHANGED;
    }
    return lar_canon_put_value(c, 'K', *place, lar_slice_of(v, sizeof v));
}

/* -- judgement ------------------------------------------------------------------------------------- */

/* One span against what was seen before; learns on the way. It varies if its state is CHANGED then.
 * A clock that stood still for several requests and then differs in another conversation is a constant of that
 * conversation: then only a change within one conversation counts. Of other classes any change counts, for the
 * constants of a conversation are what keeps its head from being that of all. */
static lar_error judge(lar_canon *c, const lar_canon_group *g, record *r, uint32_t i) {
    uint32_t k = i - g->span_first;
    bool clock = lar_volatile_row_of(c->spans[i].class_id)->evidence == LAR_EVIDENCE_NOW, varies = false;
    bool by_place = r->place && !clock && !lar_canon_ticks(c->spans[i].class_id);
    uint64_t value = lar_hash_low(lar_hash_of(lar_canon_span_text(c, i)));
    lar_error e = LAR_OK;
    if (r->found && r->state[k] == CHANGED) return LAR_OK;
    if (!r->found || r->state[k] == OFF) {
        if (by_place) e = place_changed(c, &r->place[k], value, &varies);
        varies = varies || slot_changed(c, g, i) || shows_now(c, g, i);
    } else if (r->value[k] == value) {
        if (r->state[k] == SEEN) r->state[k] = REPEATED, r->dirty = true;
        return LAR_OK;
    } else {
        varies = !clock || r->state[k] == SEEN || r->opener == c->opener || slot_changed(c, g, i) || shows_now(c, g, i);
    }
    r->value[k] = value;
    r->state[k] = varies ? CHANGED : SEEN;
    r->dirty = true;
    return e;
}

/* The group as it is sent under a mask. `by_opener`: in the conversation that begins so. */
static lar_error sent_key(lar_canon *c, const lar_canon_group *g, uint64_t mask, bool by_opener, lar_hash *out) {
    lar_hash h = g->shape;
    for (uint32_t u = g->unit_first; u < g->unit_first + g->unit_count; u++) {
        lar_hash one;
        lar_error e = lar_canon_unit_norm(c, &c->units[u], mask, &one);
        if (e) return e;
        h = lar_hash_join(h, one);
    }
    *out = by_opener ? lar_hash_chain(h, lar_slice_of((const char *)&c->opener, sizeof c->opener)) : h;
    return LAR_OK;
}

/* Those of the mask that tick within a conversation. */
static uint64_t ticks_of(const lar_canon *c, uint64_t mask) {
    uint64_t ticks = 0;
    for (uint32_t i = 0; i < c->span_count; i++) {
        if (mask >> i & 1 && lar_canon_ticks(c->spans[i].class_id)) ticks |= 1ull << i;
    }
    return ticks;
}

static lar_error is_noted(lar_canon *c, const lar_canon_group *g, uint64_t mask, bool by_opener, bool *yes) {
    lar_hash key;
    lar_error e = sent_key(c, g, mask, by_opener, &key);
    *yes = !e && lar_canon_get(c, 'R', key) && c->value.ptr[0] == VERSION;
    return e;
}

/* The mask with which this very text went before, if fewer spans moved then; else one with which it went but for what
 * ticks: a directory that began in the prompt stays there when a counter beside it is learnt; else `mask`. Of what
 * ticks, only the same conversation counts: a counter says "1" at the start of each. */
static lar_error settled(lar_canon *c, const lar_canon_group *g, const record *r, uint64_t mask, uint64_t *out) {
    uint64_t ticks = ticks_of(c, r->on);
    *out = mask;
    for (uint32_t k = 0; k < r->mask_count; k++) {
        uint64_t was = r->mask[k] << g->span_first;
        bool yes;
        if (was == mask) break;
        if ((was & ~mask) || !(mask & ~was)) continue;
        lar_error e = is_noted(c, g, was, ticks_of(c, mask & ~was) != 0, &yes);
        if (!e && !yes && (mask & ~was & ~ticks)) {
            e = is_noted(c, g, was | ticks, false, &yes);
            was |= ticks & mask;
        }
        if (e) return e;
        if (!yes) continue;
        *out = was;
        break;
    }
    return LAR_OK;
}

/* Notes the masks with which a group was sent, in their order. */
static void note_mask(record *r, uint64_t own) {
    if (r->mask_count && r->mask[r->mask_count - 1] == own) return;
    if (r->mask_count == MASKS_MAX) memmove(r->mask, r->mask + 1, (MASKS_MAX - 1) * sizeof *r->mask);
    else r->mask_count++;
    r->mask[r->mask_count - 1] = own;
    r->dirty = true;
}

static lar_error note_sent(lar_canon *c, const lar_canon_group *g, uint64_t mask, bool by_opener) {
    lar_hash key;
    char one = VERSION;
    lar_error e = sent_key(c, g, mask, by_opener, &key);
    if (e || (lar_canon_get(c, 'R', key) && c->value.ptr[0] == VERSION)) return e;
    return lar_canon_put_value(c, 'R', key, lar_slice_of(&one, 1));
}

/* Notes that the text goes so, where a span that stays may move one day: as it is, in its conversation, and whatever
 * ticks in it. */
static lar_error settle(lar_canon *c, const lar_canon_group *g, uint64_t mask, uint64_t all) {
    uint64_t stays = all & ~mask, ticks = ticks_of(c, all);
    if (stays == 0) return LAR_OK;
    lar_error e = note_sent(c, g, mask, false);
    if (!e && (stays & ticks)) e = note_sent(c, g, mask, true);
    if (!e && ticks && (stays & ~ticks)) e = note_sent(c, g, mask | ticks, false);
    return e;
}

static lar_error remember_slots(lar_canon *c, uint64_t slots) {
    lar_error e = LAR_OK;
    char one = VERSION;
    for (uint32_t i = 0; i < c->span_count && !e; i++) {
        if (slots >> i & 1 && c->spans[i].key_word)
            e = lar_canon_put_value(c, 'L', slot_of(c, i), lar_slice_of(&one, 1));
    }
    return e;
}

lar_error lar_canon_evidence(lar_canon *c, const lar_canon_group *g) {
    record r;
    lar_hash place[LAR_CANON_SPANS_MAX];
    uint64_t varies = 0, news = 0, goes;
    read_record(c, g, &r);
    if (g->place == LAR_PLACE_OPENING && !r.found) r.place = place;
    lar_error e = r.place ? places(c, g, place) : LAR_OK;
    for (uint32_t i = g->span_first; i < g->span_first + g->span_count && !e; i++) {
        uint32_t k = i - g->span_first;
        if (!lar_canon_class_on(c, c->spans[i].class_id)) {
            if (!r.found) r.state[k] = OFF;
            continue;
        }
        bool had = r.found && r.state[k] == CHANGED;
        r.on |= 1ull << i;
        e = judge(c, g, &r, i);
        if (r.state[k] != CHANGED) continue;
        varies |= 1ull << i;
        if (r.found && !had) news |= 1ull << i;
    }
    if (!e) e = settled(c, g, &r, varies, &goes);
    if (e) return e;
    c->confirmed |= varies;
    c->moving |= goes;
    if (c->apply && goes == varies) note_mask(&r, goes >> g->span_first);
    if (c->apply) e = settle(c, g, goes, r.on);
    r.opener = c->opener;
    if (!e && (!r.found || r.dirty)) e = write_record(c, g, &r);
    return e || g->place == LAR_PLACE_OPENING ? e : remember_slots(c, news);
}
