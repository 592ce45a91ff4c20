/* The rows of rules.def as an array; look-up by id or name. Any thread; no memory. */
#include "policies/canon.h"

static const struct {
    const char *id, *name, *text;
    lar_rule_mode mode;
} rows[LAR_RULE_COUNT] = {
#define LAR_RULE(id, name, mode, text) {#id, #name, text, LAR_RULE_MODE_##mode},
#include "policies/rules.def"
#undef LAR_RULE
};

const char *lar_rule_id(lar_rule r) { return (unsigned)r < LAR_RULE_COUNT ? rows[r].id : ""; }
const char *lar_rule_name(lar_rule r) { return (unsigned)r < LAR_RULE_COUNT ? rows[r].name : ""; }
const char *lar_rule_text(lar_rule r) { return (unsigned)r < LAR_RULE_COUNT ? rows[r].text : ""; }

lar_rule_mode lar_rule_mode_of(lar_rule r) { return (unsigned)r < LAR_RULE_COUNT ? rows[r].mode : LAR_RULE_MODE_LINT; }

uint64_t lar_rules_off_default(void) {
    uint64_t bits = 0;
    for (int r = 0; r < LAR_RULE_COUNT; r++) bits |= rows[r].mode == LAR_RULE_MODE_ON ? 0 : 1ull << r;
    return bits;
}

lar_rule lar_rule_find(lar_slice text) {
    for (int r = 0; r < LAR_RULE_COUNT; r++) {
        if (lar_slice_ieq(text, lar_slice_cstr(rows[r].id)) || lar_slice_ieq(text, lar_slice_cstr(rows[r].name)))
            return (lar_rule)r;
    }
    return LAR_RULE_COUNT;
}
