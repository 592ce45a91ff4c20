/* Pages of the engine's prefix cache on disk: found by key, checked when read, bounded in bytes, there after a restart.
 *
 * Pages lie in append-only files of the folder pages/ of a store (files 0600, folder 0700), their index in the store's
 * LMDB. A thread of its own writes: lar_page_segments_write copies into a bounded ring and returns, and what waits
 * there is found like what is on disk. Files are synced in groups, and a page is in the index only once its bytes are
 * synced: what a crash leaves behind is either whole or not found. At the limit whole files go, the one first whose
 * pages were used longest ago on average; pages in it that were used again since they were written move to the newest
 * file.
 *
 * Everything here is a cache: a page that is damaged, missing, or of another size than asked for is forgotten, and the
 * engine computes it again. Keys are never logged: who knows them can test guesses of a prompt against them. */
#ifndef LARDER_STORE_PAGE_SEGMENTS_H
#define LARDER_STORE_PAGE_SEGMENTS_H

#include "base/digest.h"
#include "store/store.h"

typedef struct lar_page_segments lar_page_segments;

#define LAR_PAGE_SEGMENTS_RING_BYTES (UINT64_C(64) << 20)

typedef struct lar_page_segments_options {
    uint64_t bytes_max;     /* of all files in the folder together; at least 1 MiB */
    uint64_t segment_bytes; /* 0 = 256 MiB, or an eighth of bytes_max if that is less */
    uint64_t ring_bytes;    /* 0 = LAR_PAGE_SEGMENTS_RING_BYTES: of pages that wait for the disk; used as needed */
    uint32_t sync_ms;       /* 0 = 1000: what was written is synced and indexed after this at the latest */
    uint32_t retry_ms;      /* 0 = 1000: after a failed write, pages are refused for this long */
} lar_page_segments_options;

/* `store` is borrowed, open for writing, and outlives it; logs and metrics are the store's. INVALID (a limit below
 * 1 MiB, or a store that is read only), BUSY (its pages are open already), IO, NO_MEMORY. Blocks on the disk: reads the
 * index, looks at every file, removes what the index does not know and what is over the limit. */
LAR_MUST_USE lar_error lar_page_segments_open(lar_store *store, const lar_page_segments_options *o,
                                              lar_page_segments **out, lar_diag *d);
/* Writes, syncs and indexes what waits, then frees. Others must have stopped using it. NULL: nothing happens. */
void lar_page_segments_close(lar_page_segments *p);

/* Any thread; signatures fit lar_page_store of the engine. A call may wait for another's copy of a page; only a read
 * waits for the disk. */

/* True also for a page that still waits for the disk. */
bool lar_page_segments_has(void *segments, const lar_digest *key);
/* Exactly `bytes` into `to`. NOT_FOUND: also one that turned out damaged or of another size, which is forgotten then.
 * IO: the disk could not read it, and it is forgotten; or no descriptor was free, and it stays. What `to` holds after
 * an error is not said. */
lar_error lar_page_segments_read(void *segments, const lar_digest *key, uint8_t *to, uint64_t bytes);
/* Takes a copy of `bytes` (not 0). A page of that key and size that is there already is only marked as used. FULL: the
 * ring is full, the page is larger than the ring or a quarter of bytes_max, no memory, or the disk was full lately; IO:
 * the disk failed lately. It is not kept then. OK is no promise either: the disk may fail later, which
 * lar_page_segments_outcomes tells. */
lar_error lar_page_segments_write(void *segments, const lar_digest *key, const uint8_t *from, uint64_t bytes);
/* Of the pages that were taken since the opening, how many came to the disk, and how many it did not take after all. */
void lar_page_segments_outcomes(void *segments, uint64_t *kept, uint64_t *lost);
/* Returns once all that was written before is synced and indexed, or given up. For shutdown, where more is written than
 * the ring holds, and for tests. */
void lar_page_segments_flush(void *segments);

#endif
