/* Bytes of segment files and of their index.
 * Flow: segment_files.c and segment_writer.c encode and check heads, segment_index.c values. Any thread; pure; never
 * blocks. Why two accounts of one page: the index says what must be there, the record what is; only where both agree
 * and the page's own sum fits is it given out. Invariants: 1. the sum of a head or value covers the key and the place,
 * so that nothing is taken for what belongs elsewhere. 2. No number is given on before its range was checked.
 * Memory: the caller's. Not here: files, transactions. */
#include "store/segment_record.h"

#include <string.h>

#include "base/slice.h"
#include "store/bytes.h"
#include "store/record.h"

enum { SUM_BYTES = 8, MAGIC_BYTES = 8, FLAG_AGAIN = 1 };
/* Segment numbers, sizes and places stay below, so that sums of two of them never wrap round. */
#define NUMBER_LIMIT (UINT64_C(1) << 62)
static const uint8_t segment_magic[MAGIC_BYTES] = "LARSEGS", record_magic[MAGIC_BYTES] = "LARPAGE";

static void seal(uint8_t *bytes, size_t len) {
    lar_record_checksum(lar_slice_of((const char *)bytes, len - SUM_BYTES), bytes + len - SUM_BYTES);
}

static bool sealed(const uint8_t *bytes, size_t len) {
    uint8_t sum[SUM_BYTES];
    lar_record_checksum(lar_slice_of((const char *)bytes, len - SUM_BYTES), sum);
    return memcmp(sum, bytes + len - SUM_BYTES, SUM_BYTES) == 0;
}

uint64_t lar_segment_record_size(uint64_t bytes) {
    return LAR_SEGMENT_ALIGN + (bytes + LAR_SEGMENT_ALIGN - 1) / LAR_SEGMENT_ALIGN * LAR_SEGMENT_ALIGN;
}

uint64_t lar_segment_sum(const uint8_t *page, uint64_t bytes) {
    uint8_t sum[SUM_BYTES];
    lar_record_checksum(lar_slice_of((const char *)page, bytes), sum);
    return lar_bytes_get_le(sum, SUM_BYTES);
}

/* -- segment: magic 8, version 4, alignment 4, number 8, checksum 8 -- */

void lar_segment_head_encode(uint64_t number, uint8_t out[LAR_SEGMENT_HEAD_BYTES]) {
    memcpy(out, segment_magic, MAGIC_BYTES);
    lar_bytes_put_le(out + 8, LAR_SEGMENT_VERSION, 4);
    lar_bytes_put_le(out + 12, LAR_SEGMENT_ALIGN, 4);
    lar_bytes_put_le(out + 16, number, 8);
    seal(out, LAR_SEGMENT_HEAD_BYTES);
}

lar_error lar_segment_head_check(const uint8_t head[LAR_SEGMENT_HEAD_BYTES], uint64_t number) {
    if (memcmp(head, segment_magic, MAGIC_BYTES) != 0 || !sealed(head, LAR_SEGMENT_HEAD_BYTES)) return LAR_CORRUPT;
    if (lar_bytes_get_le(head + 8, 4) > LAR_SEGMENT_VERSION) return LAR_VERSION;
    bool fits = lar_bytes_get_le(head + 8, 4) == LAR_SEGMENT_VERSION &&
                lar_bytes_get_le(head + 12, 4) == LAR_SEGMENT_ALIGN && lar_bytes_get_le(head + 16, 8) == number;
    return fits ? LAR_OK : LAR_CORRUPT;
}

/* -- record: magic 8, segment 8, offset 8, bytes 8, key 32, sum of the page 8, checksum 8 -- */

void lar_segment_record_encode(const lar_digest *key, const lar_segment_place *place,
                               uint8_t out[LAR_SEGMENT_RECORD_BYTES]) {
    memcpy(out, record_magic, MAGIC_BYTES);
    lar_bytes_put_le(out + 8, place->segment, 8);
    lar_bytes_put_le(out + 16, place->offset, 8);
    lar_bytes_put_le(out + 24, place->bytes, 8);
    memcpy(out + 32, key->bytes, sizeof key->bytes);
    lar_bytes_put_le(out + 64, place->sum, 8);
    seal(out, LAR_SEGMENT_RECORD_BYTES);
}

lar_error lar_segment_record_check(const uint8_t head[LAR_SEGMENT_RECORD_BYTES], const lar_digest *key,
                                   const lar_segment_place *place) {
    uint8_t want[LAR_SEGMENT_RECORD_BYTES];
    lar_segment_record_encode(key, place, want);
    return memcmp(head, want, sizeof want) == 0 ? LAR_OK : LAR_CORRUPT;
}

/* -- value: version 2, flags 2, segment 8, offset 8, bytes 8, sum of the page 8, used 8, checksum 8 of key and these
 * -- */

static void value_checksum(const lar_digest *key, const uint8_t *value, uint8_t out[SUM_BYTES]) {
    uint8_t all[sizeof key->bytes + LAR_SEGMENT_VALUE_BYTES - SUM_BYTES];
    memcpy(all, key->bytes, sizeof key->bytes);
    memcpy(all + sizeof key->bytes, value, LAR_SEGMENT_VALUE_BYTES - SUM_BYTES);
    lar_record_checksum(lar_slice_of((const char *)all, sizeof all), out);
}

void lar_segment_value_encode(const lar_digest *key, const lar_segment_place *place, const lar_segment_use *use,
                              uint8_t out[LAR_SEGMENT_VALUE_BYTES]) {
    lar_bytes_put_le(out, LAR_SEGMENT_VERSION, 2);
    lar_bytes_put_le(out + 2, use->again ? FLAG_AGAIN : 0, 2);
    lar_bytes_put_le(out + 4, place->segment, 8);
    lar_bytes_put_le(out + 12, place->offset, 8);
    lar_bytes_put_le(out + 20, place->bytes, 8);
    lar_bytes_put_le(out + 28, place->sum, 8);
    lar_bytes_put_le(out + 36, use->last, 8);
    value_checksum(key, out, out + LAR_SEGMENT_VALUE_BYTES - SUM_BYTES);
}

lar_error lar_segment_value_decode(const lar_digest *key, lar_slice bytes, lar_segment_place *place,
                                   lar_segment_use *use) {
    const uint8_t *p = (const uint8_t *)bytes.ptr;
    uint8_t sum[SUM_BYTES];
    if (bytes.len != LAR_SEGMENT_VALUE_BYTES) return LAR_CORRUPT;
    value_checksum(key, p, sum);
    if (memcmp(sum, p + LAR_SEGMENT_VALUE_BYTES - SUM_BYTES, SUM_BYTES) != 0) return LAR_CORRUPT;
    if (lar_bytes_get_le(p, 2) > LAR_SEGMENT_VERSION) return LAR_VERSION;
    *place = (lar_segment_place){lar_bytes_get_le(p + 4, 8), lar_bytes_get_le(p + 12, 8), lar_bytes_get_le(p + 20, 8),
                                 lar_bytes_get_le(p + 28, 8)};
    uint64_t flags = lar_bytes_get_le(p + 2, 2);
    *use = (lar_segment_use){lar_bytes_get_le(p + 36, 8), (flags & FLAG_AGAIN) != 0};
    bool sound = lar_bytes_get_le(p, 2) == LAR_SEGMENT_VERSION && !(flags & ~(uint64_t)FLAG_AGAIN) && place->segment &&
                 place->segment < NUMBER_LIMIT && place->offset >= LAR_SEGMENT_ALIGN && place->offset < NUMBER_LIMIT &&
                 place->offset % LAR_SEGMENT_ALIGN == 0 && place->bytes && place->bytes < NUMBER_LIMIT &&
                 use->last < NUMBER_LIMIT;
    return sound ? LAR_OK : LAR_CORRUPT;
}
