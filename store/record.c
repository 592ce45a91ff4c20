/* Journal records as bytes: version, length, fields in a fixed order, names, checksum (docs/store-format.md).
 * Flow: the writer thread encodes, scans decode; both are pure. Any thread; never blocks.
 * Why versions: a newer larder reads what an older one wrote; an older one says VERSION and touches nothing.
 * Why the cuts lie in the record as bytes: a record is copied into a queue, and most have few (queue.c).
 * Invariants: 1. version, length and checksum lie at the same places in every version, so damage is told
 * from novelty. 2. What an old version did not have reads as unknown, never as 0 tokens.
 * Memory: the caller's buffer. Not here: keys, transactions (writer.c, scan.c). */
#include <string.h>

#include "base/ensure.h"
#include "base/hash.h"
#include "store/bytes.h"
#include "store/journal.h"
#include "store/record.h"

/* On disk an error is its name: numbers change when error.def gets a row in the middle. */
enum { ERROR_NAME_BYTES = 40, CHECKSUM_BYTES = 8, HEAD_BYTES = 4 };

void lar_record_checksum(lar_slice bytes, uint8_t out[8]) {
    lar_hash h = lar_hash_of(bytes);
    memcpy(out, h.bytes, 8);
}

typedef struct sink {
    uint8_t *at;
} sink;

static void put(sink *s, uint64_t v, unsigned bytes) {
    lar_bytes_put_le(s->at, v, bytes);
    s->at += bytes;
}

static void put_name(sink *s, const char *name, size_t cap) {
    size_t len = strnlen(name, cap - 1);
    put(s, len, 1);
    memcpy(s->at, name, len);
    s->at += len;
}

static void put_tokens(sink *s, const lar_tokens *t) {
    put(s, (uint64_t)t->prompt, 8);
    put(s, (uint64_t)t->hit, 8);
    put(s, (uint64_t)t->miss, 8);
    put(s, (uint64_t)t->write, 8);
    put(s, (uint64_t)t->output, 8);
    put(s, (uint64_t)t->reasoning, 8);
}

/* -- cuts: sent 8, raw 4, bytes 4, at 2, kind 1, rule 1 ------------------------------------------------------- */

static lar_journal_cut cut_at(lar_slice chain, size_t i) {
    const uint8_t *p = (const uint8_t *)chain.ptr + i * LAR_JREC_CUT_BYTES;
    return (lar_journal_cut){.sent = lar_bytes_get_le(p, 8),
                             .raw = (uint32_t)lar_bytes_get_le(p + 8, 4),
                             .bytes = (uint32_t)lar_bytes_get_le(p + 12, 4),
                             .at = (uint16_t)lar_bytes_get_le(p + 16, 2),
                             .kind = p[18],
                             .rule = p[19]};
}

/* Places in order, lengths that never shrink, kinds that are there. */
static bool chain_valid(lar_slice chain) {
    size_t n = chain.len / LAR_JREC_CUT_BYTES;
    if (chain.len % LAR_JREC_CUT_BYTES || n > LAR_JREC_CUTS_MAX) return false;
    lar_journal_cut before = {0};
    for (size_t i = 0; i < n; i++) {
        lar_journal_cut c = cut_at(chain, i);
        if (c.kind >= LAR_JREC_CUT_KINDS || (i && (c.at <= before.at || c.bytes < before.bytes))) return false;
        before = c;
    }
    return true;
}

lar_error lar_journal_cuts_write(const lar_journal_cut *cuts, uint32_t count, lar_buf *out) {
    if (count > LAR_JREC_CUTS_MAX) return LAR_INVALID;
    lar_error e = LAR_OK;
    for (uint32_t i = 0; !e && i < count; i++) {
        uint8_t p[LAR_JREC_CUT_BYTES];
        lar_bytes_put_le(p, cuts[i].sent, 8);
        lar_bytes_put_le(p + 8, cuts[i].raw, 4);
        lar_bytes_put_le(p + 12, cuts[i].bytes, 4);
        lar_bytes_put_le(p + 16, cuts[i].at, 2);
        p[18] = cuts[i].kind;
        p[19] = cuts[i].rule;
        e = lar_buf_add(out, p, sizeof p);
    }
    return e;
}

uint32_t lar_journal_cuts(const lar_journal_record *r, lar_journal_cut out[LAR_JREC_CUTS_MAX]) {
    uint32_t n = (uint32_t)(r->chain.len / LAR_JREC_CUT_BYTES);
    for (uint32_t i = 0; i < n && i < LAR_JREC_CUTS_MAX; i++) out[i] = cut_at(r->chain, i);
    return n;
}

lar_error lar_journal_encode(const lar_journal_record *r, lar_buf *out) {
    if (r->ending >= LAR_END_COUNT || r->spelling >= LAR_SPELLING_COUNT || r->error >= LAR_ERROR_COUNT ||
        !chain_valid(r->chain))
        return LAR_INVALID;
    uint8_t bytes[LAR_JREC_BYTES_MAX];
    sink s = {bytes};
    put(&s, LAR_RECORD_VERSION, 2);
    put(&s, 0, 2);
    put(&s, (uint64_t)r->time_ms, 8);
    put(&s, r->tenant, 8);
    put(&s, r->status, 2);
    put(&s, r->ending, 1);
    put(&s, r->spelling, 1);
    put(&s, r->flags, 2);
    put(&s, (uint64_t)r->ttft_us, 8);
    put(&s, (uint64_t)r->total_us, 8);
    put_tokens(&s, &r->tokens);
    put(&s, r->request_bytes, 8);
    put(&s, r->sent_bytes, 8);
    put(&s, r->response_bytes, 8);
    put(&s, r->prefix_known_bytes, 8);
    put(&s, r->prefix_hash, 8);
    put(&s, r->rules_fired, 8);
    put(&s, r->turn, 4);
    put_tokens(&s, &r->raw);
    put(&s, r->rules_seen, 8);
    put(&s, r->edits, 4);
    put(&s, r->request_id, 8);
    put(&s, r->edition_hash, 8);
    put(&s, (uint64_t)r->predicted_hit, 8);
    put(&s, r->predicted_bytes, 8);
    put(&s, r->prompt_bytes, 8);
    put(&s, r->recall_hits, 4);
    put(&s, r->recall_misses, 4);
    put_name(&s, r->edition, sizeof r->edition);
    put_name(&s, r->provider, sizeof r->provider);
    put(&s, r->chain.len, 2);
    if (r->chain.len) memcpy(s.at, r->chain.ptr, r->chain.len);
    s.at += r->chain.len;
    put(&s, r->attempts, 1);
    put(&s, r->target, 1);
    put(&s, r->cold_tokens, 4);
    put_name(&s, r->failure, sizeof r->failure);
    put_name(&s, r->continued, sizeof r->continued);
    put(&s, (uint64_t)r->begun_output, 8);
    put_name(&s, r->error ? lar_error_name((lar_error)r->error) : "", ERROR_NAME_BYTES);
    put_name(&s, r->route, LAR_JREC_NAME_BYTES);
    put_name(&s, r->upstream, LAR_JREC_NAME_BYTES);
    put_name(&s, r->model, LAR_JREC_NAME_BYTES);
    size_t len = (size_t)(s.at - bytes) + CHECKSUM_BYTES;
    LAR_ASSERT(len <= sizeof bytes);
    lar_bytes_put_le(bytes + 2, len, 2);
    lar_record_checksum(lar_slice_of((const char *)bytes, len - CHECKSUM_BYTES), s.at);
    return lar_buf_add(out, bytes, len);
}

static void take_name(lar_bytes_reader *in, char *out, size_t cap) {
    size_t len = (size_t)lar_bytes_read_le(in, 1);
    if (in->bad || len >= cap || (size_t)(in->end - in->at) < len || memchr(in->at, 0, len)) {
        in->bad = true;
        return;
    }
    memcpy(out, in->at, len);
    memset(out + len, 0, cap - len);
    in->at += len;
}

static void take_tokens(lar_bytes_reader *in, lar_tokens *t) {
    t->prompt = (int64_t)lar_bytes_read_le(in, 8);
    t->hit = (int64_t)lar_bytes_read_le(in, 8);
    t->miss = (int64_t)lar_bytes_read_le(in, 8);
    t->write = (int64_t)lar_bytes_read_le(in, 8);
    t->output = (int64_t)lar_bytes_read_le(in, 8);
    t->reasoning = (int64_t)lar_bytes_read_le(in, 8);
}

/* An error that this program has no name for was written by another build: it stays an error. */
static uint16_t error_of(const char *name) {
    if (!name[0]) return LAR_OK;
    for (unsigned e = 0; e < LAR_ERROR_COUNT; e++) {
        if (strcmp(name, lar_error_name((lar_error)e)) == 0) return (uint16_t)e;
    }
    return LAR_INVALID;
}

static void take_common(lar_bytes_reader *in, lar_journal_record *r) {
    r->time_ms = (int64_t)lar_bytes_read_le(in, 8);
    r->tenant = lar_bytes_read_le(in, 8);
    r->status = (uint16_t)lar_bytes_read_le(in, 2);
    r->ending = (uint8_t)lar_bytes_read_le(in, 1);
    r->spelling = (uint8_t)lar_bytes_read_le(in, 1);
    r->flags = (uint16_t)lar_bytes_read_le(in, 2);
    r->ttft_us = (int64_t)lar_bytes_read_le(in, 8);
    r->total_us = (int64_t)lar_bytes_read_le(in, 8);
    take_tokens(in, &r->tokens);
    r->request_bytes = lar_bytes_read_le(in, 8);
    r->sent_bytes = lar_bytes_read_le(in, 8);
    r->response_bytes = lar_bytes_read_le(in, 8);
    r->prefix_known_bytes = lar_bytes_read_le(in, 8);
    r->prefix_hash = lar_bytes_read_le(in, 8);
    r->rules_fired = lar_bytes_read_le(in, 8);
    r->turn = (uint32_t)lar_bytes_read_le(in, 4);
}

/* What came with version 5, for a record that is older. */
static void without_v5(lar_journal_record *r) {
    r->continued[0] = 0;
    r->begun_output = LAR_TOKENS_UNKNOWN;
}

/* What came with version 4, for a record that is older. */
static void without_v4(lar_journal_record *r) {
    without_v5(r);
    r->attempts = r->target = 0;
    r->cold_tokens = 0;
    r->failure[0] = 0;
}

/* What came with version 3, for a record that is older. */
static void without_v3(lar_journal_record *r) {
    r->request_id = r->edition_hash = r->predicted_bytes = r->prompt_bytes = 0;
    r->predicted_hit = LAR_TOKENS_UNKNOWN;
    r->recall_hits = r->recall_misses = 0;
    r->edition[0] = r->provider[0] = 0;
    r->chain = (lar_slice){NULL, 0};
    without_v4(r);
}

/* Version 1 kept no raw counts: what the upstream wrote is unknown; a rule that fired was seen. */
static void take_v1(lar_bytes_reader *in, lar_journal_record *r) {
    const int64_t unknown = LAR_TOKENS_UNKNOWN;
    take_common(in, r);
    without_v3(r);
    r->raw = (lar_tokens){unknown, unknown, unknown, unknown, unknown, unknown};
    r->rules_seen = r->rules_fired;
    r->edits = 0;
}

static void take_v2(lar_bytes_reader *in, lar_journal_record *r) {
    take_common(in, r);
    without_v3(r);
    take_tokens(in, &r->raw);
    r->rules_seen = lar_bytes_read_le(in, 8);
    r->edits = (uint32_t)lar_bytes_read_le(in, 4);
}

static void take_chain(lar_bytes_reader *in, lar_slice *chain) {
    size_t len = (size_t)lar_bytes_read_le(in, 2);
    *chain = (lar_slice){NULL, 0};
    if (in->bad || (size_t)(in->end - in->at) < len) {
        in->bad = true;
        return;
    }
    *chain = lar_slice_of((const char *)in->at, len);
    in->at += len;
    in->bad = !chain_valid(*chain);
}

static void take_v3(lar_bytes_reader *in, lar_journal_record *r) {
    take_v2(in, r);
    r->request_id = lar_bytes_read_le(in, 8);
    r->edition_hash = lar_bytes_read_le(in, 8);
    r->predicted_hit = (int64_t)lar_bytes_read_le(in, 8);
    r->predicted_bytes = lar_bytes_read_le(in, 8);
    r->prompt_bytes = lar_bytes_read_le(in, 8);
    r->recall_hits = (uint32_t)lar_bytes_read_le(in, 4);
    r->recall_misses = (uint32_t)lar_bytes_read_le(in, 4);
    take_name(in, r->edition, sizeof r->edition);
    take_name(in, r->provider, sizeof r->provider);
    take_chain(in, &r->chain);
}

static void take_v4(lar_bytes_reader *in, lar_journal_record *r) {
    take_v3(in, r);
    without_v5(r);
    r->attempts = (uint8_t)lar_bytes_read_le(in, 1);
    r->target = (uint8_t)lar_bytes_read_le(in, 1);
    r->cold_tokens = (uint32_t)lar_bytes_read_le(in, 4);
    take_name(in, r->failure, sizeof r->failure);
}

static void take_v5(lar_bytes_reader *in, lar_journal_record *r) {
    take_v4(in, r);
    take_name(in, r->continued, sizeof r->continued);
    r->begun_output = (int64_t)lar_bytes_read_le(in, 8);
}

/* One row a version: a new version is a new row, and the rows before it stay as they are. */
static void (*const versions[LAR_RECORD_VERSION + 1])(lar_bytes_reader *, lar_journal_record *) = {NULL,    take_v1,
                                                                                                   take_v2, take_v3,
                                                                                                   take_v4, take_v5};

lar_error lar_journal_decode(lar_slice bytes, lar_journal_record *out) {
    const uint8_t *p = (const uint8_t *)bytes.ptr;
    if (bytes.len < HEAD_BYTES + CHECKSUM_BYTES || bytes.len > LAR_JREC_BYTES_MAX) return LAR_CORRUPT;
    if (lar_bytes_get_le(p + 2, 2) != bytes.len) return LAR_CORRUPT;
    uint8_t sum[CHECKSUM_BYTES];
    lar_record_checksum(lar_slice_of(bytes.ptr, bytes.len - CHECKSUM_BYTES), sum);
    if (memcmp(sum, p + bytes.len - CHECKSUM_BYTES, CHECKSUM_BYTES) != 0) return LAR_CORRUPT;
    uint64_t version = lar_bytes_get_le(p, 2);
    if (version > LAR_RECORD_VERSION) return LAR_VERSION;
    if (version == 0) return LAR_CORRUPT;

    lar_bytes_reader in = {p + HEAD_BYTES, p + bytes.len - CHECKSUM_BYTES, false};
    char error[ERROR_NAME_BYTES] = "";
    versions[version](&in, out);
    take_name(&in, error, sizeof error);
    take_name(&in, out->route, sizeof out->route);
    take_name(&in, out->upstream, sizeof out->upstream);
    take_name(&in, out->model, sizeof out->model);
    if (in.bad || in.at != in.end) return LAR_CORRUPT;
    if (out->ending >= LAR_END_COUNT || out->spelling >= LAR_SPELLING_COUNT) return LAR_CORRUPT;
    out->error = error_of(error);
    return LAR_OK;
}

bool lar_record_time(lar_slice bytes, int64_t *time_ms) {
    if (bytes.len < HEAD_BYTES + 8 + CHECKSUM_BYTES) return false;
    *time_ms = (int64_t)lar_bytes_get_le((const uint8_t *)bytes.ptr + HEAD_BYTES, 8);
    return true;
}
