/* LR002: a billing header line at the very start of a system text is dropped.
 * `x-anthropic-billing-header: cc_version=2.1.177.01c; cc_entrypoint=sdk-cli; cch=36ee5;` is telemetry that
 * no model reads; its nonce changes with every request and costs the whole prefix.
 * Called by canon_head.c; pure; no memory; never blocks. Invariants: 1. only `x-<word>-billing-header:` at
 * the first byte (or behind a BOM) counts, so no sentence of a prompt is ever taken for one. 2. a system
 * text never becomes empty: where nothing else stands in it, the line stays without its values. */
#include "policies/canon_state.h"

enum { WORD_MAX = 32, LINE_MAX = 4096, LINES_MAX = 16 };

static const char tail[] = "-billing-header:";

/* Length of the name with its colon at i, 0 if there is none. */
static size_t header_name(lar_slice t, size_t i) {
    if (t.len - i < 2 || (t.ptr[i] | 32) != 'x' || t.ptr[i + 1] != '-') return 0;
    for (size_t n = 3; n <= WORD_MAX + 2 && i + n + sizeof tail - 1 <= t.len; n++) {
        char c = t.ptr[i + n - 1], l = c | 32;
        if (!((l >= 'a' && l <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_')) return 0;
        if (lar_slice_ieq(lar_slice_of(t.ptr + i + n, sizeof tail - 1), lar_slice_of(tail, sizeof tail - 1)))
            return n + sizeof tail - 1;
    }
    return 0;
}

/* End of the line at i, its line end not included; 0 if it is longer than any such line. */
static size_t line_end(lar_slice t, size_t i) {
    size_t most = t.len - i > LINE_MAX ? i + LINE_MAX : t.len;
    while (i < most && t.ptr[i] != '\n' && t.ptr[i] != '\r') i++;
    return i < most || most == t.len ? i : 0;
}

static size_t behind_line_end(lar_slice t, size_t i) {
    if (i < t.len && t.ptr[i] == '\r') i++;
    if (i < t.len && t.ptr[i] == '\n') i++;
    return i;
}

/* The header lines at `start`: the offset behind them; *last: behind the name of the last one. */
static size_t header_lines(lar_slice t, size_t start, size_t *last) {
    size_t end = start, name, stop;
    for (int n = 0; n < LINES_MAX && end < t.len && (name = header_name(t, end)) != 0; n++) {
        if ((stop = line_end(t, end)) == 0) break;
        *last = end + name;
        end = behind_line_end(t, stop);
    }
    return end;
}

lar_error lar_rule_billing_nonce(lar_canon *c, lar_canon_unit *u, uint32_t elements) {
    lar_slice t = u->text.text;
    size_t start = t.len >= 3 && memcmp(t.ptr, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0, last = start;
    size_t end = header_lines(t, start, &last);
    if (end == start || !lar_canon_rule_on(c, LAR_RULE_LR002)) return LAR_OK;
    lar_error e = lar_canon_find(c, (lar_finding){.rule = LAR_RULE_LR002,
                                                  .node = u->node,
                                                  .edited = c->apply,
                                                  .start = lar_text_body_offset(&u->text, (uint32_t)start),
                                                  .end = lar_text_body_offset(&u->text, (uint32_t)end)});
    if (e || !c->apply) return e;
    u->drop_start = (uint32_t)start;
    u->drop_end = (uint32_t)end;
    lar_text_form_read(&u->form, &u->text, u->drop_end);
    if (u->form.end == u->form.begin) { /* only blanks behind it */
        bool marked = lar_json_get(c->json, u->part, "cache_control") != LAR_JSON_NONE;
        u->dropped = u->part != LAR_JSON_NONE && elements > 1 && !marked;
        u->blanked = !u->dropped;
        if (u->blanked) {
            u->drop_start = (uint32_t)last;
            u->drop_end = (uint32_t)line_end(t, last);
            lar_text_form_read(&u->form, &u->text, u->drop_end);
        }
    }
    return LAR_OK;
}
