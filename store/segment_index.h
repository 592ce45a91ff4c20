/* The index of pages in LMDB (LAR_DB_PAGES): what of the table in memory outlives the process. */
#ifndef LARDER_STORE_SEGMENT_INDEX_H
#define LARDER_STORE_SEGMENT_INDEX_H

#include "store/segment_record.h"
#include "store/store.h"

typedef enum lar_index_kind { LAR_INDEX_PUT, LAR_INDEX_REMOVE } lar_index_kind;
typedef struct lar_index_change {
    lar_digest key;
    lar_segment_place place; /* PUT */
    lar_segment_use use;     /* PUT */
    lar_index_kind kind;
} lar_index_change;

typedef struct lar_index_batch {
    const lar_index_change *changes;
    uint32_t count;
} lar_index_batch;

/* How many pages the index of this store may have, so that it leaves LMDB's map to the journal and the memory. */
uint32_t lar_index_pages_max(const lar_store *s);

/* Calls `each` for every entry, and for those that cannot be read with place NULL; inside a read transaction. IO, BUSY,
 * NO_MEMORY, and what `each` says. */
typedef lar_error (*lar_index_each)(void *context, const lar_digest *key, const lar_segment_place *place,
                                    const lar_segment_use *use);
LAR_MUST_USE lar_error lar_index_load(lar_store *s, lar_index_each each, void *context);
/* Has the writer thread commit the changes, in order, and waits for it: one caller at a time. What cannot be
 * committed is counted and logged there, and the index stays as it was: it is behind the table then, which no reader
 * of it minds. */
void lar_index_commit(lar_store *s, const lar_index_change *changes, uint32_t count);

/* Writer thread. */
void lar_index_apply(lar_store *s, const lar_index_batch *batch);

#endif
