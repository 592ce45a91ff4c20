/* A table of a record's fields; JSON and CSV walk it.
 * Flow: export.c and tail.c call. Any thread; pure; the caller's buffer. Why one table: the two formats cannot drift
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
    FIELD_ENDING,
    FIELD_SPELLING,
    FIELD_ERROR,
    FIELD_FLAG,
    FIELD_RULES
} field_kind;

typedef struct field {
    const char *name;
    field_kind kind;
    uint32_t where; /* offset in the record; FIELD_FLAG: the bit */
} field;

#define AT(member) (uint32_t) offsetof(lar_journal_record, member)

static const field fields[] = {
    {"seq", FIELD_SEQ, 0},
    {"time", FIELD_TIME, AT(time_ms)},
    {"time_ms", FIELD_I64, AT(time_ms)},
    {"tenant", FIELD_HEX, AT(tenant)},
    {"route", FIELD_NAME, AT(route)},
    {"upstream", FIELD_NAME, AT(upstream)},
    {"model", FIELD_NAME, AT(model)},
    {"status", FIELD_STATUS, AT(status)},
    {"ending", FIELD_ENDING, AT(ending)},
    {"error", FIELD_ERROR, AT(error)},
    {"streamed", FIELD_FLAG, LAR_JREC_STREAMED},
    {"reused", FIELD_FLAG, LAR_JREC_REUSED},
    {"usage_spelling", FIELD_SPELLING, AT(spelling)},
    {"usage_partial", FIELD_FLAG, LAR_JREC_USAGE_PARTIAL},
    {"usage_odd", FIELD_FLAG, LAR_JREC_USAGE_ODD},
    {"usage_injected", FIELD_FLAG, LAR_JREC_USAGE_INJECTED},
    {"ttft_us", FIELD_I64, AT(ttft_us)},
    {"total_us", FIELD_I64, AT(total_us)},
    {"prompt_tokens", FIELD_I64, AT(tokens.prompt)},
    {"hit_tokens", FIELD_I64, AT(tokens.hit)},
    {"miss_tokens", FIELD_I64, AT(tokens.miss)},
    {"write_tokens", FIELD_I64, AT(tokens.write)},
    {"output_tokens", FIELD_I64, AT(tokens.output)},
    {"reasoning_tokens", FIELD_I64, AT(tokens.reasoning)},
    {"raw_prompt_tokens", FIELD_I64, AT(raw.prompt)},
    {"raw_hit_tokens", FIELD_I64, AT(raw.hit)},
    {"raw_miss_tokens", FIELD_I64, AT(raw.miss)},
    {"raw_write_tokens", FIELD_I64, AT(raw.write)},
    {"raw_output_tokens", FIELD_I64, AT(raw.output)},
    {"raw_reasoning_tokens", FIELD_I64, AT(raw.reasoning)},
    {"request_bytes", FIELD_U64, AT(request_bytes)},
    {"sent_bytes", FIELD_U64, AT(sent_bytes)},
    {"response_bytes", FIELD_U64, AT(response_bytes)},
    {"prefix_known_bytes", FIELD_U64, AT(prefix_known_bytes)},
    {"prefix_hash", FIELD_HEX, AT(prefix_hash)},
    {"rules_fired", FIELD_RULES, AT(rules_fired)},
    {"rules_seen", FIELD_RULES, AT(rules_seen)},
    {"turn", FIELD_U32, AT(turn)},
    {"edits", FIELD_U32, AT(edits)},
};
enum { FIELDS = sizeof fields / sizeof *fields };

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
    case FIELD_STATUS: return r->status ? lar_buf_printf(out, "%u", r->status) : LAR_OK;
    case FIELD_NAME: return lar_buf_add(out, p, strnlen(p, LAR_JREC_NAME_BYTES));
    case FIELD_ENDING: return lar_buf_printf(out, "%s", lar_ending_name((lar_ending)r->ending));
    case FIELD_SPELLING:
        return r->spelling ? lar_buf_printf(out, "%s", lar_spelling_name((lar_spelling)r->spelling)) : LAR_OK;
    case FIELD_ERROR: return r->error ? lar_buf_printf(out, "%s", lar_error_name((lar_error)r->error)) : LAR_OK;
    case FIELD_FLAG: return lar_buf_printf(out, "%s", r->flags & f->where ? "true" : "false");
    case FIELD_RULES: memcpy(&u64, p, sizeof u64); return lar_fields_rules(out, u64, " ");
    }
    return LAR_OK;
}

static bool is_text(field_kind k) {
    return k == FIELD_TIME || k == FIELD_HEX || k == FIELD_NAME || k == FIELD_ENDING || k == FIELD_SPELLING ||
           k == FIELD_ERROR;
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
    lar_buf_init(&text, LAR_SHOWN_BYTES);
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
            e = is_text(f->kind) ? lar_present_json(out, lar_buf_slice(&text))
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
    lar_buf_init(&text, LAR_SHOWN_BYTES);
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
