/* Which pages there are and where: a table in memory, open addressing by the first bytes of a key (keys are SHA-256, so
 * that nobody can make them meet). Not locked: who shares it locks. */
#ifndef LARDER_STORE_SEGMENT_TABLE_H
#define LARDER_STORE_SEGMENT_TABLE_H

#include "store/segment_record.h"

typedef enum lar_page_state {
    LAR_PAGE_ABSENT,  /* the slot is free */
    LAR_PAGE_QUEUED,  /* in the ring at place.offset */
    LAR_PAGE_WRITTEN, /* in its segment, not synced yet */
    LAR_PAGE_SYNCED
} lar_page_state;

typedef struct lar_page_entry {
    lar_digest key;
    lar_segment_place place;
    lar_segment_use use;
    uint8_t state; /* lar_page_state */
    bool dirty;    /* the index is behind, and the key is listed */
    bool missed;   /* the index is behind in its last use, and there was no room in the list */
    bool fresh;    /* taken from the engine, and not synced for the first time yet */
} lar_page_entry;

typedef struct lar_segment_table {
    lar_page_entry *slots;
    uint32_t cap; /* a power of two, or 0 */
    uint32_t count;
} lar_segment_table;

/* Zero-initialised is empty. */
void lar_segment_table_release(lar_segment_table *t);
/* NULL: none. Valid until the next add or remove. */
lar_page_entry *lar_segment_table_find(const lar_segment_table *t, const lar_digest *key);
/* A new entry for a key that has none, all zero but the key; its state must be set before the next call. NULL: out of
 * memory, or 2^31 entries. */
lar_page_entry *lar_segment_table_add(lar_segment_table *t, const lar_digest *key);
/* Entries behind it may move into its slot and the slots between: a loop over the slots that removes looks at the same
 * slot again, and then sees every entry at least once. */
void lar_segment_table_remove(lar_segment_table *t, lar_page_entry *e);

#endif
