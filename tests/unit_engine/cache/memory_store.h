/* A lar_page_store in memory, with a check of each page and faults on demand. */
#ifndef LARDER_TESTS_MEMORY_STORE_H
#define LARDER_TESTS_MEMORY_STORE_H

#include "engine/cache/page_store.h"

typedef enum memory_fault {
    STORE_WORKS,
    STORE_WRITES_FAIL, /* IO */
    STORE_READS_FAIL,  /* IO; the page is still there */
    STORE_DAMAGES,     /* a byte of each page that is read has changed: found by its check, and the page forgotten */
    STORE_FAULTS
} memory_fault;

typedef struct memory_page {
    lar_page_key key;
    uint8_t *bytes;
    uint64_t size, check;
} memory_page;

typedef struct memory_store {
    lar_page_store store; /* for lar_prefix_options */
    memory_page *pages;
    uint32_t count, room; /* over `room` pages: FULL */
    memory_fault fault;
    uint64_t reads, writes;
    uint32_t ring, waiting; /* over `ring` pages that wait for a flush: FULL; 0: none ever wait */
} memory_store;

/* At a fixed address as long as it is used. */
void memory_store_init(memory_store *s, uint32_t room);
void memory_store_clear(memory_store *s); /* every page is gone */
void memory_store_release(memory_store *s);

#endif
