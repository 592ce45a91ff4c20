/* The store's records: the first byte chooses journal record, recall value, roll-up or block; the rest is its bytes.
 * 1. no byte outside is read (sanitizers); 2. what decodes is well formed and, encoded again, decodes to the same;
 * 3. with the checksum made right the fields themselves are reached, not only the checksum's refusal. */
#include <string.h>

#include "base/hash.h"
#include "store/bytes.h"
#include "store/record.h"
#include "tests/fuzz/fuzz.h"

static void terminated(const char *name) { FUZZ_CHECK(memchr(name, 0, LAR_JREC_NAME_BYTES)); }

/* Places in order, and written again the same bytes. */
static void cuts(const lar_journal_record *r) {
    lar_journal_cut list[LAR_JREC_CUTS_MAX];
    uint32_t n = lar_journal_cuts(r, list);
    FUZZ_CHECK(n <= LAR_JREC_CUTS_MAX && n * (size_t)LAR_JREC_CUT_BYTES == r->chain.len);
    for (uint32_t i = 1; i < n; i++) FUZZ_CHECK(list[i].at > list[i - 1].at && list[i].bytes >= list[i - 1].bytes);
    lar_buf b;
    lar_buf_init(&b, LAR_JREC_BYTES_MAX);
    FUZZ_CHECK(lar_journal_cuts_write(list, n, &b) == LAR_OK && lar_slice_eq(lar_buf_slice(&b), r->chain));
    lar_buf_release(&b);
}

static void journal(lar_slice bytes) {
    lar_journal_record r, again;
    if (lar_journal_decode(bytes, &r) != LAR_OK) return;
    FUZZ_CHECK(r.ending < LAR_END_COUNT && r.spelling < LAR_SPELLING_COUNT && r.error < LAR_ERROR_COUNT);
    terminated(r.model);
    terminated(r.route);
    terminated(r.upstream);
    FUZZ_CHECK(memchr(r.edition, 0, sizeof r.edition) && memchr(r.provider, 0, sizeof r.provider));
    FUZZ_CHECK(memchr(r.failure, 0, sizeof r.failure));
    cuts(&r);
    lar_buf b;
    lar_buf_init(&b, LAR_JREC_BYTES_MAX);
    FUZZ_CHECK(lar_journal_encode(&r, &b) == LAR_OK);
    FUZZ_CHECK(lar_journal_decode(lar_buf_slice(&b), &again) == LAR_OK);
    FUZZ_CHECK(!strcmp(r.model, again.model) && !strcmp(r.route, again.route) && !strcmp(r.upstream, again.upstream));
    FUZZ_CHECK(!memcmp(&r.tokens, &again.tokens, sizeof r.tokens) && !memcmp(&r.raw, &again.raw, sizeof r.raw));
    FUZZ_CHECK(r.time_ms == again.time_ms && r.error == again.error && r.edits == again.edits &&
               r.rules_seen == again.rules_seen && r.request_id == again.request_id &&
               r.predicted_hit == again.predicted_hit && lar_slice_eq(r.chain, again.chain));
    FUZZ_CHECK(r.attempts == again.attempts && r.target == again.target && r.cold_tokens == again.cold_tokens &&
               !strcmp(r.failure, again.failure) && !strcmp(r.continued, again.continued) &&
               r.begun_output == again.begun_output);
    lar_buf_release(&b);
}

/* The same bytes with a length and a checksum that fit. */
static void journal_sealed(const uint8_t *data, size_t size) {
    uint8_t copy[LAR_JREC_BYTES_MAX];
    if (size < 12 || size > sizeof copy) return;
    memcpy(copy, data, size);
    lar_bytes_put_le(copy + 2, size, 2);
    lar_record_checksum(lar_slice_of((const char *)copy, size - 8), copy + size - 8);
    journal(lar_slice_of((const char *)copy, size));
}

static void memory(lar_slice bytes) {
    lar_hash key = {{0}};
    uint32_t day;
    lar_slice value;
    uint8_t head[LAR_MEMORY_HEAD_BYTES];
    if (lar_memory_decode(&key, bytes, &day, &value) == LAR_OK) {
        FUZZ_CHECK(value.len == bytes.len - LAR_MEMORY_HEAD_BYTES);
        lar_memory_encode_head(&key, day, value, head);
        FUZZ_CHECK(!memcmp(head, bytes.ptr, sizeof head));
    }
}

static void rollup(const uint8_t *data, size_t size) {
    if (size < 2) return;
    size_t key_len = data[0] < size - 1 ? data[0] : size - 1;
    lar_slice key = lar_slice_of((const char *)data + 1, key_len),
              bytes = lar_slice_of((const char *)data + 1 + key_len, size - 1 - key_len);
    lar_rollup r, again;
    uint8_t k[LAR_ROLLUP_KEY_MAX], v[LAR_ROLLUP_BYTES];
    if (lar_rollup_decode(key, bytes, &r) != LAR_OK) return;
    terminated(r.model);
    terminated(r.route);
    size_t len = lar_rollup_encode_key(&r, k);
    lar_slice ks = lar_slice_of((const char *)k, len);
    lar_rollup_encode(&r, ks, v);
    FUZZ_CHECK(lar_rollup_decode(ks, lar_slice_of((const char *)v, sizeof v), &again) == LAR_OK);
    FUZZ_CHECK(!memcmp(&r.requests, &again.requests, 15 * sizeof r.requests));
}

enum { FUZZ_BLOCK = 7 };

static void block(lar_slice bytes) {
    lar_block b;
    uint8_t again[LAR_BLOCK_BYTES];
    if (lar_block_decode(FUZZ_BLOCK, bytes, &b) != LAR_OK) return;
    lar_block_encode(&b, FUZZ_BLOCK, again);
    FUZZ_CHECK(!memcmp(again, bytes.ptr, sizeof again));
}

/* The same bytes with a checksum that fits: of the key's hash, the body's hash and the head (record_sums.c). */
static void block_sealed(lar_slice bytes) {
    uint8_t key[8], sealed[LAR_BLOCK_BYTES], summed[16 + 16 + 4];
    if (bytes.len != sizeof sealed) return;
    memcpy(sealed, bytes.ptr, sizeof sealed);
    lar_bytes_put_be64(key, FUZZ_BLOCK);
    lar_hash k = lar_hash_of(lar_slice_of((const char *)key, sizeof key));
    lar_hash b = lar_hash_of(lar_slice_of((const char *)sealed + 4, 16));
    memcpy(summed, k.bytes, 16);
    memcpy(summed + 16, b.bytes, 16);
    memcpy(summed + 32, sealed, 4);
    lar_record_checksum(lar_slice_of((const char *)summed, sizeof summed), sealed + sizeof sealed - 8);
    block(lar_slice_of((const char *)sealed, sizeof sealed));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    lar_slice rest = lar_slice_of((const char *)data + 1, size - 1);
    switch (data[0] & 3) {
    case 0:
        journal(rest);
        journal_sealed(data + 1, size - 1);
        break;
    case 1: memory(rest); break;
    case 2: rollup(data + 1, size - 1); break;
    default: block(rest); block_sealed(rest);
    }
    return 0;
}
