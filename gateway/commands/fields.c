/* A table of a record's fields (fields.def); JSON, CSV and docs/journal.md walk it.
 * Flow: export.c and tail.c call. Any thread; pure; the caller's buffer. Why one table: formats and page cannot drift
 * apart, and a new field is one row. Invariants: 1. unknown tokens and times are null or empty, never 0.
 * 2. Identifiers (tenant, prefix hash) are hexadecimal text: a double would round them. 3. A name is whatever a client
 * sent: in CSV it neither drives a terminal nor is taken for a formula by a spreadsheet. */
#include "gateway/commands/fields.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "gateway/commands/present.h"
#include "policies/canon.h"

typedef enum field_kind {
    FIELD_SEQ,
    FIELD_TIME,
    FIELD_I64,
    FIELD_U64,
    FIELD_U32,
    FIELD_STATUS,
    FIELD_HEX,
    FIELD_NAME,
    FIELD_U8,
    FIELD_ENDING,
    FIELD_SPELLING,
    FIELD_ERROR,
    FIELD_FLAG,
    FIELD_RULES,
    FIELD_REQUEST,
    FIELD_DRIFT,
    FIELD_CUTS
} field_kind;

typedef struct field {
    const char *name;
    field_kind kind;
    uint32_t where; /* offset in the record; FIELD_FLAG: the bit */
    const char *unit, *meaning;
} field;

#define LAR_AT(member) (uint32_t) offsetof(lar_journal_record, member)

static const field fields[] = {
#define LAR_FIELD(name, kind, where, unit, meaning) {#name, FIELD_##kind, where, unit, meaning},
#include "gateway/commands/fields.def"
#undef LAR_FIELD
};
/* A cut is at most 5 + 9 + 10 + 16 + 8 + 5 characters and 6 signs long. */
enum { FIELDS = sizeof fields / sizeof *fields, TEXT_BYTES_MAX = LAR_JREC_CUTS_MAX * 64 };

lar_error lar_fields_rules(lar_buf *out, uint64_t set, const char *between) {
    lar_error e = LAR_OK;
    bool first = true;
    for (int bit = 0; !e && bit < 64; bit++) {
        if (!(set >> bit & 1)) continue;
        if (bit < LAR_RULE_COUNT) e = lar_buf_printf(out, "%s%s", first ? "" : between, lar_rule_id((lar_rule)bit));
        else e = lar_buf_printf(out, "%sbit%d", first ? "" : between, bit);
        first = false;
    }
    return e;
}

/* The numbers in records: docs/store-format.md. */
static const char *const cut_kinds[LAR_JREC_CUT_KINDS] = {"tools",     "top",  "system", "user",
                                                          "assistant", "tool", "other"};

const char *lar_fields_cut_kind(uint8_t kind) { return kind < LAR_JREC_CUT_KINDS ? cut_kinds[kind] : "other"; }

static lar_error cuts_of(const lar_journal_record *r, lar_buf *out) {
    lar_journal_cut cuts[LAR_JREC_CUTS_MAX];
    uint32_t n = lar_journal_cuts(r, cuts);
    lar_error e = LAR_OK;
    for (uint32_t i = 0; !e && i < n; i++) {
        const lar_journal_cut *c = &cuts[i];
        const char *rule = !c->rule ? "-" : c->rule <= LAR_RULE_COUNT ? lar_rule_id((lar_rule)(c->rule - 1)) : "?";
        e = lar_buf_printf(out, "%s%u:%s:%" PRIu32 ":%016" PRIx64 ":%08" PRIx32 ":%s", i ? " " : "", c->at,
                           lar_fields_cut_kind(c->kind), c->bytes, c->sent, c->raw, rule);
    }
    return e;
}

static lar_error drift_of(const lar_journal_record *r, lar_buf *out) {
    int64_t drift = lar_fields_drift(r);
    return drift == LAR_TOKENS_UNKNOWN ? LAR_OK : lar_buf_printf(out, "%" PRId64, drift);
}

int64_t lar_fields_drift(const lar_journal_record *r) {
    int64_t predicted = r->predicted_hit, hit = r->tokens.hit;
    if (predicted == LAR_TOKENS_UNKNOWN || hit == LAR_TOKENS_UNKNOWN || predicted < 0 || hit < 0)
        return LAR_TOKENS_UNKNOWN;
    return predicted - hit;
}

/* A field as plain text; what is unknown appends nothing. */
static lar_error text_of(const field *f, uint64_t seq, const lar_journal_record *r, lar_buf *out) {
    const char *p = (const char *)r + f->where;
    char time[LAR_TIME_BYTES];
    int64_t i64;
    uint64_t u64;
    switch (f->kind) {
    case FIELD_SEQ: return lar_buf_printf(out, "%" PRIu64, seq);
    case FIELD_TIME: lar_present_time(r->time_ms, time); return lar_buf_printf(out, "%s", time);
    case FIELD_I64:
        memcpy(&i64, p, sizeof i64);
        return i64 == LAR_TOKENS_UNKNOWN ? LAR_OK : lar_buf_printf(out, "%" PRId64, i64);
    case FIELD_U64: memcpy(&u64, p, sizeof u64); return lar_buf_printf(out, "%" PRIu64, u64);
    case FIELD_HEX: memcpy(&u64, p, sizeof u64); return u64 ? lar_buf_printf(out, "%016" PRIx64, u64) : LAR_OK;
    case FIELD_U32: return lar_buf_printf(out, "%" PRIu32, *(const uint32_t *)(const void *)p);
    case FIELD_U8: return lar_buf_printf(out, "%u", *(const uint8_t *)p);
    case FIELD_STATUS: return r->status ? lar_buf_printf(out, "%u", r->status) : LAR_OK;
    case FIELD_NAME: return lar_buf_add(out, p, strnlen(p, LAR_JREC_NAME_BYTES));
    case FIELD_ENDING: return lar_buf_printf(out, "%s", lar_ending_name((lar_ending)r->ending));
    case FIELD_SPELLING:
        return r->spelling ? lar_buf_printf(out, "%s", lar_spelling_name((lar_spelling)r->spelling)) : LAR_OK;
    case FIELD_ERROR: return r->error ? lar_buf_printf(out, "%s", lar_error_name((lar_error)r->error)) : LAR_OK;
    case FIELD_FLAG: return lar_buf_printf(out, "%s", r->flags & f->where ? "true" : "false");
    case FIELD_RULES: memcpy(&u64, p, sizeof u64); return lar_fields_rules(out, u64, " ");
    case FIELD_REQUEST: return r->request_id ? lar_buf_printf(out, "lr-%016" PRIx64, r->request_id) : LAR_OK;
    case FIELD_DRIFT: return drift_of(r, out);
    case FIELD_CUTS: return cuts_of(r, out);
    }
    return LAR_OK;
}

static bool is_text(field_kind k) {
    return k == FIELD_TIME || k == FIELD_HEX || k == FIELD_NAME || k == FIELD_ENDING || k == FIELD_SPELLING ||
           k == FIELD_ERROR || k == FIELD_REQUEST;
}

/* ["LR001","LR003"] */
static lar_error json_rules(lar_buf *out, const field *f, const lar_journal_record *r) {
    uint64_t set;
    memcpy(&set, (const char *)r + f->where, sizeof set);
    lar_error e = lar_buf_printf(out, set ? "[\"" : "[");
    if (!e) e = lar_fields_rules(out, set, "\",\"");
    return e ? e : lar_buf_printf(out, set ? "\"]" : "]");
}

lar_error lar_fields_json(lar_buf *out, uint64_t seq, const lar_journal_record *r) {
    lar_buf text;
    lar_buf_init(&text, TEXT_BYTES_MAX);
    lar_error e = LAR_OK;
    for (unsigned i = 0; !e && i < FIELDS; i++) {
        const field *f = &fields[i];
        text.len = 0;
        e = lar_buf_printf(out, "%s\"%s\":", i ? "," : "{", f->name);
        if (!e && f->kind != FIELD_RULES) e = text_of(f, seq, r, &text);
        if (e) break;
        if (f->kind == FIELD_RULES) e = json_rules(out, f, r);
        else if (!text.len && f->kind != FIELD_NAME) e = lar_buf_add(out, "null", 4);
        else
            e = is_text(f->kind) || f->kind == FIELD_CUTS ? lar_present_json(out, lar_buf_slice(&text))
                                                          : lar_buf_add_slice(out, lar_buf_slice(&text));
    }
    lar_buf_release(&text);
    return e ? e : lar_buf_add(out, "}", 1);
}

/* RFC 4180: quoted where a comma, a quote or a line end is inside. Blanks at the ends are quoted as well, which
 * many readers strip otherwise. */
static lar_error csv_cell(lar_buf *out, lar_slice text) {
    bool quote = text.len && (text.ptr[0] == ' ' || text.ptr[text.len - 1] == ' ');
    for (size_t i = 0; i < text.len && !quote; i++) quote = text.ptr[i] && strchr(",\"\r\n", text.ptr[i]);
    if (!quote) return lar_buf_add_slice(out, text);
    lar_error e = lar_buf_add(out, "\"", 1);
    for (size_t i = 0; !e && i < text.len; i++)
        e = text.ptr[i] == '"' ? lar_buf_add(out, "\"\"", 2) : lar_buf_add(out, text.ptr + i, 1);
    return e ? e : lar_buf_add(out, "\"", 1);
}

/* What makes a spreadsheet compute a cell: the signs of a formula, also in full width, behind any blanks. */
static bool begins_formula(const char *text) {
    static const char *const signs[] = {"=",           "+", "-", "@", "\xef\xbc\x9d", "\xef\xbc\x8b", "\xef\xbc\x8d",
                                        "\xef\xbc\xa0"};
    while (*text == ' ') text++;
    for (unsigned i = 0; i < sizeof signs / sizeof *signs; i++)
        if (!strncmp(text, signs[i], strlen(signs[i]))) return true;
    return false;
}

static lar_error csv_text(lar_buf *out, lar_slice text) {
    _Static_assert(4 * LAR_JREC_NAME_BYTES + 13 < LAR_SHOWN_BYTES, "a name with every byte escaped is not cut");
    char shown[1 + LAR_SHOWN_BYTES] = "'";
    if (!text.len) return LAR_OK;
    lar_present_name(text, shown + 1);
    return csv_cell(out, lar_slice_cstr(shown + (begins_formula(shown + 1) ? 0 : 1)));
}

lar_error lar_fields_csv(lar_buf *out, uint64_t seq, const lar_journal_record *r) {
    lar_buf text;
    lar_buf_init(&text, TEXT_BYTES_MAX);
    lar_error e = LAR_OK;
    for (unsigned i = 0; !e && i < FIELDS; i++) {
        text.len = 0;
        if (i) e = lar_buf_add(out, ",", 1);
        if (!e) e = text_of(&fields[i], seq, r, &text);
        if (!e) e = (is_text(fields[i].kind) ? csv_text : csv_cell)(out, lar_buf_slice(&text));
    }
    lar_buf_release(&text);
    return e;
}

lar_error lar_fields_csv_head(lar_buf *out) {
    lar_error e = LAR_OK;
    for (unsigned i = 0; !e && i < FIELDS; i++) e = lar_buf_printf(out, "%s%s", i ? "," : "", fields[i].name);
    return e;
}

/* -- docs/journal.md ------------------------------------------------------------------------------------------ */

static const char page_head[] =
    "# The journal\n"
    "\n"
    "<!-- Generated from gateway/commands/fields.def by the target `docs`; edit that. -->\n"
    "\n"
    "One record a request: numbers and names, never text of prompts or answers. `larder export` prints every field, as\n"
    "JSON lines or CSV, in this order; `larder tail --json` prints the same. `larder stats` sums them up. How records lie\n"
    "on disk is in [store-format.md](store-format.md), what a crash can cost in [durability.md](durability.md), the\n"
    "lines of the log in [log.md](log.md).\n"
    "\n"
    "**Unknown is not 0.** A count that the upstream did not report, a time that never came, is `null` in JSON and an\n"
    "empty cell in CSV; sums leave it out and count it as unknown. A name that is not there is the empty string. Whole\n"
    "numbers are written exactly, beyond what a double holds.\n"
    "\n"
    "| field | unit | meaning |\n"
    "|---|---|---|\n";

static const char *const ending_texts[LAR_END_COUNT] = {
    [LAR_END_COMPLETE] = "the answer reached the client whole",
    [LAR_END_REFUSED] = "larder answered an error itself before any upstream was asked",
    [LAR_END_UPSTREAM_ERROR] = "the upstream answered 4xx or 5xx, or an error in the answer",
    [LAR_END_UPSTREAM_FAILED] = "no whole answer: connect, TLS, a time limit, a cut",
    [LAR_END_CLIENT_GONE] = "the client went away first",
    [LAR_END_SHUTDOWN] = "larder was stopped",
};

static const char *const spelling_texts[LAR_SPELLING_COUNT] = {
    [LAR_SPELLING_DEEPSEEK] = "`prompt_cache_hit_tokens` and `prompt_cache_miss_tokens`",
    [LAR_SPELLING_OPENAI_CHAT] = "`prompt_tokens_details.cached_tokens`",
    [LAR_SPELLING_OPENAI_RESPONSES] = "`input_tokens_details.cached_tokens`",
    [LAR_SPELLING_TOP_CACHED] = "`cached_tokens` of the usage itself (Kimi)",
    [LAR_SPELLING_ANTHROPIC] = "`cache_read_input_tokens` beside `input_tokens`",
    [LAR_SPELLING_GEMINI] = "`cachedContentTokenCount`",
    [LAR_SPELLING_PLAIN] = "prompt and output only: hits are unknown",
};

lar_error lar_fields_markdown(lar_buf *out) {
    lar_error e = lar_buf_add_slice(out, LAR_SLICE(page_head));
    for (unsigned i = 0; !e && i < FIELDS; i++)
        e = lar_buf_printf(out, "| `%s` | %s | %s |\n", fields[i].name, fields[i].unit, fields[i].meaning);
    if (!e) e = lar_buf_printf(out, "\n## ending\n\n| value | meaning |\n|---|---|\n");
    for (int i = 0; !e && i < LAR_END_COUNT; i++)
        e = lar_buf_printf(out, "| `%s` | %s |\n", lar_ending_name((lar_ending)i), ending_texts[i]);
    if (!e) e = lar_buf_printf(out, "\n## usage_spelling\n\n| value | hit tokens come from |\n|---|---|\n");
    for (int i = LAR_SPELLING_NONE + 1; !e && i < LAR_SPELLING_COUNT; i++)
        e = lar_buf_printf(out, "| `%s` | %s |\n", lar_spelling_name((lar_spelling)i), spelling_texts[i]);
    return e;
}
