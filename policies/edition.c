/* The versions of what decides the bytes that are sent (header: edition.h; table: edition.def).
 * Flow: the gateway at start, configuration checks, larder fingerprint and explain. Pure; any thread; no memory.
 * Why a list of changes and not one number a row: an old edition's rows can be told from it, so that a pin that cannot
 * be kept says what differs. Invariants: 1. rows are in the same order for every edition. 2. the hash depends on names
 * and versions alone, not on texts. */
#include "policies/edition.h"

#include <string.h>

#include "base/hash.h"
#include "policies/canon.h"

static const struct {
    const char *name, *touches;
} parts[] = {
#define LAR_EDITION_PART(name, touches) {#name, touches},
#include "policies/edition.def"
};

static const struct {
    const char *name;
    uint32_t version;
    const char *edition, *why;
} changes[] = {
#define LAR_EDITION_CHANGE(name, version, edition, why) {#name, version, edition, why},
#include "policies/edition.def"
};

enum { PARTS = sizeof parts / sizeof *parts, CHANGES = sizeof changes / sizeof *changes };
_Static_assert((int)PARTS + (int)LAR_RULE_COUNT <= (int)LAR_EDITION_ROWS_MAX, "room for every row");

static const char rule_touches[] = "prefixes that this rule edits, once";

/* Names of editions are year and month: their order is that of their text. */
static int order(lar_slice a, lar_slice b) {
    size_t n = a.len < b.len ? a.len : b.len;
    int c = n ? memcmp(a.ptr, b.ptr, n) : 0;
    return c ? c : (a.len > b.len) - (a.len < b.len);
}

static lar_edition_row row_of(const char *name, lar_slice edition) {
    lar_edition_row r = {.name = name, .text = ""};
    bool changed = false;
    for (int i = 0; i < CHANGES; i++) {
        if (strcmp(changes[i].name, name) != 0) continue;
        changed = true;
        if (order(lar_slice_cstr(changes[i].edition), edition) > 0) continue;
        r.version = changes[i].version;
        r.text = changes[i].why;
    }
    if (!changed && order(LAR_SLICE(LAR_EDITION), edition) <= 0) {
        r.version = 1;
        r.text = "first";
    }
    return r;
}

uint32_t lar_edition_rows(lar_slice edition, lar_edition_row out[LAR_EDITION_ROWS_MAX]) {
    uint32_t n = 0;
    for (int r = 0; r < LAR_RULE_COUNT; r++) {
        if (lar_rule_mode_of((lar_rule)r) == LAR_RULE_MODE_LINT) continue;
        out[n] = row_of(lar_rule_id((lar_rule)r), edition);
        out[n].touches = rule_touches;
        out[n++].text = lar_rule_text((lar_rule)r);
    }
    for (int i = 0; i < PARTS; i++) {
        out[n] = row_of(parts[i].name, edition);
        out[n++].touches = parts[i].touches;
    }
    return n;
}

bool lar_edition_known(lar_slice edition) {
    if (lar_slice_eq(edition, LAR_SLICE(LAR_EDITION))) return true;
    for (int i = 0; i < CHANGES; i++) {
        if (lar_slice_eq(edition, lar_slice_cstr(changes[i].edition))) return true;
    }
    return false;
}

uint64_t lar_edition_hash(void) {
    lar_edition_row rows[LAR_EDITION_ROWS_MAX];
    uint32_t n = lar_edition_rows(LAR_SLICE(LAR_EDITION), rows);
    lar_hash h = lar_hash_of(LAR_SLICE(LAR_EDITION));
    for (uint32_t i = 0; i < n; i++) {
        uint8_t version[4] = {(uint8_t)rows[i].version, (uint8_t)(rows[i].version >> 8),
                              (uint8_t)(rows[i].version >> 16), (uint8_t)(rows[i].version >> 24)};
        h = lar_hash_chain(h, lar_slice_cstr(rows[i].name));
        h = lar_hash_chain(h, lar_slice_of((const char *)version, sizeof version));
    }
    uint64_t v = 0;
    for (int i = 0; i < 8; i++) v = v << 8 | h.bytes[i]; /* the same number on every machine */
    return v ? v : 1;
}

lar_error lar_edition_write(lar_buf *out) {
    lar_edition_row rows[LAR_EDITION_ROWS_MAX];
    uint32_t n = lar_edition_rows(LAR_SLICE(LAR_EDITION), rows);
    lar_error e = lar_buf_printf(out, "edition %s\n", LAR_EDITION);
    for (uint32_t i = 0; !e && i < n; i++) e = lar_buf_printf(out, "%s %u\n", rows[i].name, rows[i].version);
    return e;
}

static void add_change(lar_edition_change *c, lar_slice name, uint32_t was, const lar_edition_row *is) {
    *c = (lar_edition_change){.was = was, .is = is ? is->version : 0, .touches = is ? is->touches : ""};
    memcpy(c->name, name.ptr, name.len < sizeof c->name - 1 ? name.len : sizeof c->name - 1);
}

uint32_t lar_edition_diff(lar_slice edition, lar_edition_change out[LAR_EDITION_ROWS_MAX]) {
    lar_edition_row then[LAR_EDITION_ROWS_MAX], now[LAR_EDITION_ROWS_MAX];
    uint32_t n = lar_edition_rows(LAR_SLICE(LAR_EDITION), now), count = 0;
    (void)lar_edition_rows(edition, then);
    for (uint32_t i = 0; i < n; i++) {
        if (then[i].version != now[i].version)
            add_change(&out[count++], lar_slice_cstr(now[i].name), then[i].version, &now[i]);
    }
    return count;
}

/* "NAME NUMBER" of the line at the front of `text`, which it takes off. */
static bool take_line(lar_slice *text, lar_slice *name, lar_slice *value) {
    const char *end = memchr(text->ptr, '\n', text->len);
    if (!end) return false;
    lar_slice line = lar_slice_of(text->ptr, (size_t)(end - text->ptr));
    const char *blank = memchr(line.ptr, ' ', line.len);
    if (!blank || blank == line.ptr || blank + 1 == end) return false;
    *name = lar_slice_of(line.ptr, (size_t)(blank - line.ptr));
    *value = lar_slice_of(blank + 1, (size_t)(end - blank - 1));
    *text = lar_slice_of(end + 1, text->len - line.len - 1);
    return name->len < LAR_EDITION_NAME_BYTES && value->len < LAR_EDITION_NAME_BYTES;
}

/* Versions begin at 1. */
static bool number_of(lar_slice s, uint32_t *out) {
    *out = 0;
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] < '0' || s.ptr[i] > '9' || *out > 99999999) return false;
        *out = *out * 10 + (uint32_t)(s.ptr[i] - '0');
    }
    return *out > 0;
}

lar_error lar_edition_diff_text(lar_slice text, lar_slice *name, lar_edition_change out[LAR_EDITION_ROWS_MAX],
                                uint32_t *count) {
    lar_edition_row now[LAR_EDITION_ROWS_MAX];
    bool seen[LAR_EDITION_ROWS_MAX] = {false};
    uint32_t n = lar_edition_rows(LAR_SLICE(LAR_EDITION), now), rows = 0;
    lar_slice key, value;
    *count = 0;
    if (!take_line(&text, &key, name) || !lar_slice_eq(key, LAR_SLICE("edition"))) return LAR_CORRUPT;
    while (text.len) {
        uint32_t version, i = 0;
        if (!take_line(&text, &key, &value) || !number_of(value, &version) || ++rows > LAR_EDITION_ROWS_MAX)
            return LAR_CORRUPT;
        while (i < n && !lar_slice_eq(key, lar_slice_cstr(now[i].name))) i++;
        if (i < n) seen[i] = true;
        if ((i == n || now[i].version != version) && *count < LAR_EDITION_ROWS_MAX)
            add_change(&out[(*count)++], key, version, i < n ? &now[i] : NULL);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!seen[i] && now[i].version && *count < LAR_EDITION_ROWS_MAX)
            add_change(&out[(*count)++], lar_slice_cstr(now[i].name), 0, &now[i]);
    }
    return LAR_OK;
}

lar_error lar_edition_changes_text(const lar_edition_change *list, uint32_t count, lar_buf *out) {
    lar_error e = LAR_OK;
    for (uint32_t i = 0; !e && i < count; i++) {
        const char *between = i ? ", " : "";
        if (!list[i].was) e = lar_buf_printf(out, "%s%s new", between, list[i].name);
        else if (!list[i].is) e = lar_buf_printf(out, "%s%s gone", between, list[i].name);
        else e = lar_buf_printf(out, "%s%s %u > %u", between, list[i].name, list[i].was, list[i].is);
    }
    return e;
}
