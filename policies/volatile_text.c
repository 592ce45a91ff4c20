/* The classes of volatile text, and the scan for all of them (header: volatile_text.h).
 * Flow: canon and the linter -> here -> rules/clock_scan.c for clocks. Pure; no memory; never blocks. */
#include "policies/volatile_text.h"
#include "base/ensure.h"

static const lar_volatile_row rows[LAR_VOLATILE_COUNT] = {
#define LAR_CLASS(name, rule, evidence, owner, text)                                                                   \
    [LAR_VOLATILE_##name] = {#name, #rule, text, LAR_EVIDENCE_##evidence, LAR_OWNER_##owner},
#include "policies/classes.def"
#undef LAR_CLASS
};

const lar_volatile_row *lar_volatile_row_of(lar_volatile_class c) {
    LAR_ASSERT((unsigned)c < LAR_VOLATILE_COUNT);
    return &rows[c];
}

static lar_volatile_class class_of(lar_clock_class c) {
    switch (c) {
    case LAR_CLOCK_DATETIME: return LAR_VOLATILE_DATETIME;
    case LAR_CLOCK_TIME: return LAR_VOLATILE_TIME;
    case LAR_CLOCK_EPOCH: return LAR_VOLATILE_EPOCH;
    default: return LAR_VOLATILE_DATE;
    }
}

static lar_clock_class clock_of(lar_volatile_class c) {
    switch (c) {
    case LAR_VOLATILE_DATETIME: return LAR_CLOCK_DATETIME;
    case LAR_VOLATILE_TIME: return LAR_CLOCK_TIME;
    case LAR_VOLATILE_EPOCH: return LAR_CLOCK_EPOCH;
    default: return LAR_CLOCK_DATE;
    }
}

enum { CHUNK = 32 };

uint32_t lar_volatile_scan(lar_slice text, lar_volatile_span *spans, uint32_t room, lar_clock_budget *budget) {
    lar_clock_span clocks[CHUNK];
    uint32_t n = lar_clock_scan(text, clocks, room < CHUNK ? room : CHUNK, budget);
    for (uint32_t i = 0; i < n; i++) {
        const lar_clock_span *c = &clocks[i];
        spans[i] = (lar_volatile_span){c->start,    c->end,     c->label_start, c->label_end, class_of(c->class_id),
                                       c->key_word, c->example, c->stamp};
    }
    return n;
}

lar_hash lar_volatile_slot(lar_slice text, const lar_volatile_span *s) {
    lar_clock_span c = {s->start, s->end, s->label_start, s->label_end, clock_of(s->class_id), false, false, s->stamp};
    return lar_clock_slot(text, &c);
}
