/* What a prefix cache must keep, find and let go, said as plainly as possible: lists of whole prefixes, searched from
 * front to back, without keys, tables or trees. A page is named by everything that is in it and before it. */
#ifndef LARDER_TESTS_PLAIN_PREFIXES_H
#define LARDER_TESTS_PLAIN_PREFIXES_H

#include "engine/cache/prefix_cache.h"

enum { PLAIN_PAGES_MAX = 64, PLAIN_TOKENS_MAX = 6 * LAR_PAGE_TOKENS, PLAIN_STORE_MAX = 64 };

typedef struct plain_prefix {
    uint32_t scope, length; /* whole pages of tokens */
    uint32_t ids[PLAIN_TOKENS_MAX];
} plain_prefix;

typedef struct plain_page {
    plain_prefix prefix; /* to the page's end */
    int32_t page;
    bool idle;
    uint64_t since; /* when it became idle */
    uint64_t pin;   /* until; 0: none */
} plain_page;

typedef struct plain_prefixes {
    plain_page kept[PLAIN_PAGES_MAX];
    plain_prefix stored[PLAIN_STORE_MAX];
    uint32_t count, stored_count;
    uint32_t pages, free;               /* of the pool */
    bool has_store, store_fails_writes; /* as the store is now */
    uint32_t store_room;
    uint64_t now, moments;
    lar_prefix_counts counts;
} plain_prefixes;

/* NULL: not kept, or not stored. */
plain_page *plain_find(plain_prefixes *p, uint32_t scope, const uint32_t *ids, uint32_t length);
plain_prefix *plain_stored(plain_prefixes *p, uint32_t scope, const uint32_t *ids, uint32_t length);
plain_page *plain_of_page(plain_prefixes *p, int32_t page);

/* A page is wanted from the pool: true if there is one, for which something may have been let go. */
bool plain_take(plain_prefixes *p);
/* The page now has a sequence that holds it; or none any more, and is free if it is not kept. */
void plain_held(plain_prefixes *p, int32_t page);
void plain_given_back(plain_prefixes *p, int32_t page);
/* Keeps the prefix in `page`, if the one before it is kept; else false. */
bool plain_keep(plain_prefixes *p, uint32_t scope, const uint32_t *ids, uint32_t length, int32_t page);
void plain_unstore(plain_prefixes *p, plain_prefix *s);
/* Pins whose time is over end when somebody asks for pages or prefixes. */
void plain_end_pins(plain_prefixes *p, uint64_t now);
uint32_t plain_pin(plain_prefixes *p, uint32_t scope, const uint32_t *ids, uint32_t length, uint64_t until);
/* Of one scope, or of all (UINT32_MAX). */
void plain_forget(plain_prefixes *p, uint32_t scope);
/* The cache ends: everything goes to the store. `held`: pages that sequences hold. */
void plain_end(plain_prefixes *p);

#endif
