/* The inside of lar_page_segments, for its own files. */
#ifndef LARDER_STORE_SEGMENT_CORE_H
#define LARDER_STORE_SEGMENT_CORE_H

#include <pthread.h>

#include "store/page_segments.h"
#include "store/segment_index.h"
#include "store/segment_ring.h"
#include "store/segment_table.h"
#include "store/store_core.h"

/* The list of keys of which the index is behind. Callers fill only half of it, so that the thread always has room. */
enum { LAR_SEGMENT_DIRTY_MAX = 1024, LAR_SEGMENT_DIRTY_HALF = 512 };

typedef struct lar_segment {
    uint64_t number, bytes; /* of the file */
    uint64_t end;           /* behind its last page that the index knows; at open only */
    double used_sum;        /* of its pages' last uses, and */
    uint32_t pages;         /* how many these are; while one is chosen only */
} lar_segment;

struct lar_page_segments {
    lar_store *store;
    lar_page_segments_options o; /* defaults filled in */
    uint64_t carry_bytes_max;    /* of pages that move out of a dropped segment; kept free for them */
    uint32_t pages_max;
    int folder; /* descriptor */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake; /* the thread waits here */
    pthread_cond_t done; /* flushes wait here */

    /* under the lock */
    lar_segment_table table;
    uint64_t clock; /* grows with every use of a page */
    lar_segment_ring ring;
    lar_digest dirty[LAR_SEGMENT_DIRTY_MAX];
    uint32_t dirty_count;
    bool missed;              /* there is an entry that is `missed` */
    uint64_t due_ns;          /* when dirty entries must be indexed at the latest, once there are any */
    lar_error refusing;       /* what writes are told until refuse_until_ns */
    uint64_t refuse_until_ns; /* 0: nothing failed */
    uint64_t flushes_wanted, flushes_done;
    uint64_t flush_to;   /* items of the ring that the newest flush waits for */
    uint64_t kept, lost; /* of the pages that were taken: synced, and given up */
    bool stop;

    /* the thread's, and open's before there is one; count and bytes change under the lock too */
    lar_segment *segments; /* by number */
    uint32_t segment_count, segment_cap;
    uint64_t bytes; /* of all files */
    uint64_t next_number;
    int fd;                  /* of the newest segment while it is written, or -1 */
    uint64_t end;            /* of what was written to it */
    uint64_t unsynced_bytes; /* of these, not synced */
    bool folder_unsynced;    /* a file was made since the folder was synced */
    uint8_t *carried;        /* room for one record */
    uint64_t carried_cap;
    lar_index_change changes[LAR_SEGMENT_DIRTY_MAX];
};

/* -- page_segments.c; under the lock -------------------------------------------------------------------- */
/* The index must learn of this key. False where the list is full of `limit` keys. */
bool lar_segment_dirty(lar_page_segments *p, const lar_digest *key, uint32_t limit);
/* Takes an entry out of the table that the disk did not keep. */
void lar_segment_lose(lar_page_segments *p, lar_page_entry *e);

/* -- segment_writer.c ------------------------------------------------------------------------------------ */
void *lar_segment_writer_main(void *segments);

/* -- segment_drop.c; the thread, and open before there is one ---------------------------------------------- */
/* The segment of that number, or NULL. */
lar_segment *lar_segment_find(const lar_page_segments *p, uint64_t number);
/* NO_MEMORY. Numbers must grow but at open. */
LAR_MUST_USE lar_error lar_segment_add(lar_page_segments *p, uint64_t number, uint64_t bytes);
void lar_segment_forget(lar_page_segments *p, lar_segment *g); /* not its file */
typedef enum lar_segment_carry { LAR_CARRY_NOTHING, LAR_CARRY_USED } lar_segment_carry;
/* Drops the segment whose pages were used longest ago, but never the one that is written. False: there is none. */
bool lar_segment_drop(lar_page_segments *p, lar_segment_carry carry);

/* -- segment_append.c; the thread ----------------------------------------------------------------------- */
/* Appends a record (LAR_SEGMENT_ALIGN of room for its head, the page, zeros up to its size) to the newest segment, or a
 * new one, whatever the limit says. FULL, IO: nothing of it is left. */
LAR_MUST_USE lar_error lar_segment_append(lar_page_segments *p, const lar_digest *key, uint8_t *record, uint64_t bytes,
                                          lar_segment_place *place);
/* Syncs what was written, then has the index learn what it is behind with. */
void lar_segment_settle(lar_page_segments *p);
/* A write or sync has failed with errno `error`: counted, logged, and writes are refused for a while. */
void lar_segment_failed(lar_page_segments *p, int error);
/* Settles, and closes the newest segment: the next record begins another. */
void lar_segment_end(lar_page_segments *p);

#endif
