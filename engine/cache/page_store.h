/* Where pages go that memory has no room for, and come back from, also after a restart. The engine names pages by what
 * they hold and knows no files; store/page_segments.h is the one on disk. */
#ifndef LARDER_ENGINE_CACHE_PAGE_STORE_H
#define LARDER_ENGINE_CACHE_PAGE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/error.h"

/* SHA-256 of all that decides a page's bytes: model, formats, scope, and every token id up to its end. */
typedef lar_digest lar_page_key;

/* All but `outcomes` from the engine's thread; all but `has` and `outcomes` may block on the disk. */
typedef struct lar_page_store {
    void *context;
    bool (*has)(void *context, const lar_page_key *key);
    /* Exactly `bytes` into `to`, checked. NOT_FOUND: also one that turned out damaged or of another size, which is
     * forgotten then. IO. After an error `to` may hold anything. */
    lar_error (*read)(void *context, const lar_page_key *key, uint8_t *to, uint64_t bytes);
    /* Keeps a copy; one that is there already is only marked as used. FULL (also where too much waits for the disk),
     * IO: it is not kept, and the engine goes on. */
    lar_error (*write)(void *context, const lar_page_key *key, const uint8_t *from, uint64_t bytes);
    /* Returns once nothing of what was written waits any more: at the end, where all pages are written at once, write
     * is tried again then. NULL: nothing ever waits. */
    void (*flush)(void *context);
    /* Any thread. Of all pages that write has taken: how many are kept by now, and how many were given up later, as on
     * a full disk. NULL: what is taken is kept. */
    void (*outcomes)(void *context, uint64_t *kept, uint64_t *lost);
} lar_page_store;

#endif
