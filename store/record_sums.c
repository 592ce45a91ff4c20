/* Bytes of the store's other records: recall memory, roll-ups and journal blocks (docs/store-format.md).
 * Flow: writer.c encodes, memory.c and scan.c decode. Any thread; pure; never blocks; the caller's memory.
 * Invariants: 1. every checksum covers the key too, so that a value under a wrong key is damage.
 * 2. Sums saturate: a hostile count never wraps round. Not here: journal records (record.c). */
#include <string.h>

#include "store/bytes.h"
#include "store/record.h"

static void checksum_with_key(lar_slice key, lar_slice head, lar_slice body, uint8_t out[8]) {
    uint8_t all[16 + LAR_ROLLUP_BYTES];
    lar_hash k = lar_hash_of(key), b = lar_hash_of(body);
    memcpy(all, k.bytes, 16);
    memcpy(all + 16, b.bytes, 16);
    memcpy(all + 32, head.ptr, head.len);
    lar_record_checksum(lar_slice_of((const char *)all, 32 + head.len), out);
}

static lar_slice slice(const uint8_t *p, size_t len) { return lar_slice_of((const char *)p, len); }

/* -- recall memory: version 2, reserved 2, length 4, day 4, checksum 8 -- */

void lar_memory_encode_head(const lar_hash *key, uint32_t day, lar_slice value, uint8_t out[LAR_MEMORY_HEAD_BYTES]) {
    lar_bytes_put_le(out, LAR_MEMORY_VERSION, 2);
    lar_bytes_put_le(out + 2, 0, 2);
    lar_bytes_put_le(out + 4, value.len, 4);
    lar_bytes_put_le(out + 8, day, 4);
    checksum_with_key(slice(key->bytes, 16), slice(out, 12), value, out + 12);
}

lar_error lar_memory_decode(const lar_hash *key, lar_slice bytes, uint32_t *day, lar_slice *value) {
    const uint8_t *p = (const uint8_t *)bytes.ptr;
    if (bytes.len < LAR_MEMORY_HEAD_BYTES) return LAR_CORRUPT;
    *value = lar_slice_of(bytes.ptr + LAR_MEMORY_HEAD_BYTES, bytes.len - LAR_MEMORY_HEAD_BYTES);
    if (lar_bytes_get_le(p + 4, 4) != value->len) return LAR_CORRUPT;
    uint8_t sum[8];
    checksum_with_key(slice(key->bytes, 16), slice(p, 12), *value, sum);
    if (memcmp(sum, p + 12, 8) != 0) return LAR_CORRUPT;
    uint64_t version = lar_bytes_get_le(p, 2);
    if (version > LAR_MEMORY_VERSION) return LAR_VERSION;
    if (version == 0 || lar_bytes_get_le(p + 2, 2) != 0) return LAR_CORRUPT;
    *day = (uint32_t)lar_bytes_get_le(p + 8, 4);
    return LAR_OK;
}

/* -- roll-ups: key start 8, tenant 8, model (length, bytes), route (length, bytes) -- */

int64_t lar_rollup_start(lar_rollup_step step, int64_t time_ms) {
    static const int64_t widths[] = {
        [LAR_ROLLUP_MINUTE] = 60000, [LAR_ROLLUP_HOUR] = 3600000, [LAR_ROLLUP_DAY] = 86400000};
    if (time_ms < 0) time_ms = 0;
    return time_ms - time_ms % widths[step];
}

static size_t put_name(uint8_t *p, const char *name) {
    size_t len = strnlen(name, LAR_JREC_NAME_BYTES - 1);
    p[0] = (uint8_t)len;
    memcpy(p + 1, name, len);
    return 1 + len;
}

size_t lar_rollup_encode_key(const lar_rollup *r, uint8_t out[LAR_ROLLUP_KEY_MAX]) {
    lar_bytes_put_be64(out, (uint64_t)r->start_ms);
    lar_bytes_put_be64(out + 8, r->tenant);
    size_t len = 16;
    len += put_name(out + len, r->model);
    len += put_name(out + len, r->route);
    return len;
}

static const uint8_t *take_name(const uint8_t *p, const uint8_t *end, char *out) {
    if (!p || p == end || p[0] >= LAR_JREC_NAME_BYTES || (size_t)(end - p) < 1u + p[0] || memchr(p + 1, 0, p[0]))
        return NULL;
    memset(out, 0, LAR_JREC_NAME_BYTES);
    memcpy(out, p + 1, p[0]);
    return p + 1 + p[0];
}

enum { SUMS = 15 };

/* The order of the sums on disk. */
static void sums_of(lar_rollup *r, uint64_t *out[SUMS]) {
    uint64_t *order[SUMS] = {&r->requests,   &r->completed,     &r->usage_known, &r->prompt,         &r->hit,
                             &r->miss,       &r->write,         &r->output,      &r->ttft_us_sum,    &r->total_us_sum,
                             &r->ttft_known, &r->request_bytes, &r->sent_bytes,  &r->response_bytes, &r->edited};
    memcpy(out, order, sizeof order);
}

void lar_rollup_encode(const lar_rollup *r, lar_slice key, uint8_t out[LAR_ROLLUP_BYTES]) {
    lar_rollup copy = *r;
    uint64_t *sums[SUMS];
    sums_of(&copy, sums);
    lar_bytes_put_le(out, LAR_ROLLUP_VERSION, 2);
    lar_bytes_put_le(out + 2, LAR_ROLLUP_BYTES, 2);
    for (unsigned i = 0; i < SUMS; i++) lar_bytes_put_le(out + 4 + 8 * i, *sums[i], 8);
    checksum_with_key(key, slice(out, 4), slice(out + 4, 8 * SUMS), out + 4 + 8 * SUMS);
}

lar_error lar_rollup_decode(lar_slice key, lar_slice bytes, lar_rollup *out) {
    const uint8_t *k = (const uint8_t *)key.ptr, *end = k + key.len, *p = (const uint8_t *)bytes.ptr;
    *out = (lar_rollup){0};
    if (key.len < 18 || bytes.len < 12 || lar_bytes_get_le(p + 2, 2) != bytes.len) return LAR_CORRUPT;
    if (lar_bytes_get_le(p, 2) > LAR_ROLLUP_VERSION) return LAR_VERSION;
    if (bytes.len != LAR_ROLLUP_BYTES || lar_bytes_get_le(p, 2) != LAR_ROLLUP_VERSION) return LAR_CORRUPT;
    uint8_t sum[8];
    checksum_with_key(key, slice(p, 4), slice(p + 4, 8 * SUMS), sum);
    if (memcmp(sum, p + 4 + 8 * SUMS, 8) != 0) return LAR_CORRUPT;
    out->start_ms = (int64_t)lar_bytes_get_be64(k);
    out->tenant = lar_bytes_get_be64(k + 8);
    k = take_name(k + 16, end, out->model);
    k = take_name(k, end, out->route);
    if (k != end) return LAR_CORRUPT;
    uint64_t *sums[SUMS];
    sums_of(out, sums);
    for (unsigned i = 0; i < SUMS; i++) *sums[i] = lar_bytes_get_le(p + 4 + 8 * i, 8);
    return LAR_OK;
}

static void add(uint64_t *a, uint64_t b) { *a = *a > UINT64_MAX - b ? UINT64_MAX : *a + b; }

static uint64_t count_of(int64_t n) { return n > 0 ? (uint64_t)n : 0; }

void lar_rollup_count(lar_rollup *a, const lar_journal_record *r) {
    const lar_tokens *t = &r->tokens;
    const int64_t unknown = LAR_TOKENS_UNKNOWN;
    add(&a->requests, 1);
    add(&a->completed, r->ending == LAR_END_COMPLETE);
    if (t->prompt != unknown && t->hit != unknown && t->miss != unknown) {
        add(&a->usage_known, 1);
        add(&a->prompt, count_of(t->prompt));
        add(&a->hit, count_of(t->hit));
        add(&a->miss, count_of(t->miss));
        add(&a->write, count_of(t->write));
        add(&a->output, count_of(t->output));
    }
    if (r->ttft_us != unknown) {
        add(&a->ttft_known, 1);
        add(&a->ttft_us_sum, count_of(r->ttft_us));
    }
    add(&a->total_us_sum, count_of(r->total_us));
    add(&a->request_bytes, r->request_bytes);
    add(&a->sent_bytes, r->sent_bytes);
    add(&a->response_bytes, r->response_bytes);
    add(&a->edited, r->edits > 0);
}

void lar_rollup_add(lar_rollup *a, const lar_rollup *b) {
    lar_rollup copy = *b;
    uint64_t *to[SUMS], *from[SUMS];
    sums_of(a, to);
    sums_of(&copy, from);
    for (unsigned i = 0; i < SUMS; i++) add(to[i], *from[i]);
}

/* -- journal blocks: version 2, length 2, time_min 8, time_max 8, checksum 8 -- */

void lar_block_encode(const lar_block *b, uint64_t block, uint8_t out[LAR_BLOCK_BYTES]) {
    uint8_t key[8];
    lar_bytes_put_be64(key, block);
    lar_bytes_put_le(out, LAR_BLOCK_VERSION, 2);
    lar_bytes_put_le(out + 2, LAR_BLOCK_BYTES, 2);
    lar_bytes_put_le(out + 4, (uint64_t)b->time_min, 8);
    lar_bytes_put_le(out + 12, (uint64_t)b->time_max, 8);
    checksum_with_key(slice(key, 8), slice(out, 4), slice(out + 4, 16), out + 20);
}

lar_error lar_block_decode(uint64_t block, lar_slice bytes, lar_block *out) {
    const uint8_t *p = (const uint8_t *)bytes.ptr;
    uint8_t key[8], sum[8];
    if (bytes.len != LAR_BLOCK_BYTES) return LAR_CORRUPT;
    lar_bytes_put_be64(key, block);
    checksum_with_key(slice(key, 8), slice(p, 4), slice(p + 4, 16), sum);
    if (memcmp(sum, p + 20, 8) != 0) return LAR_CORRUPT;
    if (lar_bytes_get_le(p, 2) != LAR_BLOCK_VERSION) return LAR_VERSION;
    if (lar_bytes_get_le(p + 2, 2) != LAR_BLOCK_BYTES) return LAR_CORRUPT;
    out->time_min = (int64_t)lar_bytes_get_le(p + 4, 8);
    out->time_max = (int64_t)lar_bytes_get_le(p + 12, 8);
    return LAR_OK;
}
