/* The rows of rules.def as an array; look-up by id or name. Any thread; no memory. */
#include "policies/canon.h"

enum { RULE_OFF, RULE_ON };

static const struct {
    const char *id, *name, *text;
    bool on;
} rows[LAR_RULE_COUNT] = {
#define LAR_RULE(id, name, on, text) {#id, #name, text, RULE_##on},
#include "policies/rules.def"
#undef LAR_RULE
};

const char *lar_rule_id(lar_rule r) { return (unsigned)r < LAR_RULE_COUNT ? rows[r].id : ""; }
const char *lar_rule_name(lar_rule r) { return (unsigned)r < LAR_RULE_COUNT ? rows[r].name : ""; }
const char *lar_rule_text(lar_rule r) { return (unsigned)r < LAR_RULE_COUNT ? rows[r].text : ""; }

uint64_t lar_rules_off_default(void) {
    uint64_t bits = 0;
    for (int r = 0; r < LAR_RULE_COUNT; r++) bits |= rows[r].on ? 0 : 1ull << r;
    return bits;
}

lar_rule lar_rule_find(lar_slice text) {
    for (int r = 0; r < LAR_RULE_COUNT; r++) {
        if (lar_slice_ieq(text, lar_slice_cstr(rows[r].id)) || lar_slice_ieq(text, lar_slice_cstr(rows[r].name)))
            return (lar_rule)r;
    }
    return LAR_RULE_COUNT;
}
