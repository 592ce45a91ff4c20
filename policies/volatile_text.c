/* The classes of volatile text, and the slots that their spans fill (header: volatile_text.h).
 * Flow: canon and the linter -> here; the scan is rules/volatile_scan.c. Pure; no memory; never blocks. */
#include "policies/volatile_text.h"
#include "base/ensure.h"
#include "policies/rules/scan_text.h"

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

static lar_clock_class clock_of(lar_volatile_class c) {
    switch (c) {
    case LAR_VOLATILE_DATETIME: return LAR_CLOCK_DATETIME;
    case LAR_VOLATILE_TIME: return LAR_CLOCK_TIME;
    case LAR_VOLATILE_EPOCH: return LAR_CLOCK_EPOCH;
    default: return LAR_CLOCK_DATE;
    }
}

enum { SLOT_MAX = 96, CLASS_OFFSET = 64 };

/* Letters alone, in lower case: request_id, Request-ID and requestId are one. */
static lar_hash keyed_slot(lar_slice text, const lar_volatile_span *s) {
    char out[SLOT_MAX];
    size_t n = 0;
    out[n++] = (char)(CLASS_OFFSET + s->class_id); /* apart from the classes of clocks */
    for (size_t i = s->label_start; i < s->label_end && n < sizeof out; i++) {
        char c = lar_scan_low(text.ptr[i]);
        if (lar_scan_is_digit(c)) c = '0';
        if (c == '0' && out[n - 1] == '0') continue;
        if (lar_scan_is_alnum(c) || lar_scan_is_wide(c)) out[n++] = c;
    }
    if (n >= 4 && memcmp(out + n - 3, "：", 3) == 0) n -= 3;
    return lar_hash_of(lar_slice_of(out, n));
}

lar_hash lar_volatile_slot(lar_slice text, const lar_volatile_span *s) {
    if (s->class_id > LAR_VOLATILE_DATE) return keyed_slot(text, s);
    lar_clock_span c = {s->start, s->end, s->label_start, s->label_end, clock_of(s->class_id), false, false, s->stamp};
    return lar_clock_slot(text, &c);
}
