/* The fields of an exported journal record, one row each: the same names and order in JSON and CSV. */
#ifndef LARDER_GATEWAY_COMMANDS_FIELDS_H
#define LARDER_GATEWAY_COMMANDS_FIELDS_H

#include "base/buf.h"
#include "store/journal.h"

/* {"seq":1,...} without a line end. Unknown is null. Whole numbers are written exactly. */
LAR_MUST_USE lar_error lar_fields_json(lar_buf *out, uint64_t seq, const lar_journal_record *r);
/* RFC 4180 without a line end. Unknown is empty. Text is shown as lar_present_name does, and has a ' in front where a
 * spreadsheet would take it for a formula (it begins with = + - @). */
LAR_MUST_USE lar_error lar_fields_csv(lar_buf *out, uint64_t seq, const lar_journal_record *r);
LAR_MUST_USE lar_error lar_fields_csv_head(lar_buf *out);
/* Ids of the rules in a set, parted by `between`; a bit that no rule has is "bit<n>". */
LAR_MUST_USE lar_error lar_fields_rules(lar_buf *out, uint64_t set, const char *between);
/* predicted - reported hit tokens; LAR_TOKENS_UNKNOWN if either is not known. */
int64_t lar_fields_drift(const lar_journal_record *r);
/* "tools", "top", "user"...; static text. */
const char *lar_fields_cut_kind(uint8_t kind);
/* docs/journal.md. */
LAR_MUST_USE lar_error lar_fields_markdown(lar_buf *out);

#endif
