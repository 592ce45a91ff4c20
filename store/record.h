/* What the store's own files share about records; callers outside use journal.h. */
#ifndef LARDER_STORE_RECORD_H
#define LARDER_STORE_RECORD_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/hash.h"
#include "store/journal.h"
#include "store/store.h"

enum { LAR_RECORD_VERSION = 5, LAR_MEMORY_VERSION = 1, LAR_ROLLUP_VERSION = 1, LAR_BLOCK_VERSION = 1 };

/* First 8 bytes of XXH3-128 in canonical order. */
void lar_record_checksum(lar_slice bytes, uint8_t out[8]);
/* The time of an encoded journal record, checksum unchecked: for retention, where a wrong guess costs nothing. */
bool lar_record_time(lar_slice bytes, int64_t *time_ms);

/* -- recall memory: 20 bytes of head, then the value ------------------------------------------------- */
enum { LAR_MEMORY_HEAD_BYTES = 20 };
void lar_memory_encode_head(const lar_hash *key, uint32_t day, lar_slice value, uint8_t out[LAR_MEMORY_HEAD_BYTES]);
/* CORRUPT or VERSION; `value` borrows `bytes`. */
LAR_MUST_USE lar_error lar_memory_decode(const lar_hash *key, lar_slice bytes, uint32_t *day, lar_slice *value);

/* -- roll-ups: start and tenant and names are the key, sums the value --------------------------------- */
enum { LAR_ROLLUP_KEY_MAX = 8 + 8 + 2 * LAR_JREC_NAME_BYTES, LAR_ROLLUP_BYTES = 4 + 15 * 8 + 8 };
/* Start of the step that holds `time_ms`. Times before 1970 count as 1970. */
int64_t lar_rollup_start(lar_rollup_step step, int64_t time_ms);
/* Returns the key's length. */
size_t lar_rollup_encode_key(const lar_rollup *r, uint8_t out[LAR_ROLLUP_KEY_MAX]);
void lar_rollup_encode(const lar_rollup *r, lar_slice key, uint8_t out[LAR_ROLLUP_BYTES]);
LAR_MUST_USE lar_error lar_rollup_decode(lar_slice key, lar_slice bytes, lar_rollup *out);
/* Adds one record, or the sums of `b` (same key), saturating. */
void lar_rollup_count(lar_rollup *a, const lar_journal_record *r);
void lar_rollup_add(lar_rollup *a, const lar_rollup *b);

/* -- journal blocks: the span of times in 1024 neighbouring records ----------------------------------- */
enum { LAR_BLOCK_RECORDS = 1024, LAR_BLOCK_BYTES = 4 + 16 + 8 };
typedef struct lar_block {
    int64_t time_min, time_max;
} lar_block;
void lar_block_encode(const lar_block *b, uint64_t block, uint8_t out[LAR_BLOCK_BYTES]);
LAR_MUST_USE lar_error lar_block_decode(uint64_t block, lar_slice bytes, lar_block *out);

#endif
