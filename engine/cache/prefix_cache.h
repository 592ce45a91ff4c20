/* Which pages hold which prefixes: whole pages of tokens, found again by content.
 *
 * An empty prefix has the key of its root, SHA-256 of the model's digest, the page layout and the scope; each page
 * behind it SHA-256(parent key, LAR_PAGE_TOKENS ids). So equal keys are equal prefixes of the same model in the same
 * formats for the same scope, and nothing of one scope is ever found by another (vLLM's cache_salt, docs.vllm.ai
 * design/prefix_caching). A shared prefix is kept once. The cache is a tree: a page has a parent, and only leaves that
 * no sequence holds are let go, first the one that was given back longest ago; pinned ones not before their time is
 * over. One thread; counts may be read by any. */
#ifndef LARDER_ENGINE_CACHE_PREFIX_CACHE_H
#define LARDER_ENGINE_CACHE_PREFIX_CACHE_H

#include "engine/cache/page_pool.h"
#include "engine/cache/page_store.h"

typedef struct lar_prefix_cache lar_prefix_cache;

typedef struct lar_prefix_options {
    lar_page_pool *pool;               /* borrowed; its on_empty and on_holders become this cache's */
    lar_digest model;                  /* of weights and everything else that decides a latent */
    lar_page_store *store;             /* borrowed; NULL: pages that are let go are gone */
    uint32_t reads_max;                /* from it by one lar_prefix_find, which may be asked again; 0: no limit */
    uint64_t (*now_ms)(void *context); /* for pins */
    void *now_context;
} lar_prefix_options;

/* All memory for as many pages as the pool has is taken now; nothing is allocated later. NO_MEMORY. */
LAR_MUST_USE lar_error lar_prefix_cache_new(const lar_prefix_options *o, lar_prefix_cache **out, lar_diag *d);
/* Lets go of all pages; those in use by sequences stay theirs. Writes what is not in the store yet, leaves first: a
 * store that drops the oldest then drops the ends of prefixes before their beginnings. NULL is allowed. */
void lar_prefix_cache_free(lar_prefix_cache *c);

/* The end of a known prefix, so that a sequence that grows page by page hashes each of its tokens once. Embedded. */
typedef struct lar_prefix_end {
    lar_page_key key; /* of the last whole page; of the root where pages is 0 */
    uint32_t pages;
} lar_prefix_end;
lar_prefix_end lar_prefix_root(const lar_prefix_cache *c, const lar_digest *scope);

typedef struct lar_prefix_found {
    uint32_t pages;
    uint32_t from_store; /* of these, read from there */
} lar_prefix_found;
/* Extends *end over ids while pages are known (of `count` ids, only whole pages), reading from the store what memory
 * has not, and writes the pages, each with a holder more for the caller, to `pages` (room for count / LAR_PAGE_TOKENS).
 * Returns how many were added. `ids` begin where *end ends; the caller holds the pages before. */
lar_prefix_found lar_prefix_find(lar_prefix_cache *c, lar_prefix_end *end, const uint32_t *ids, uint32_t count,
                                 int32_t *pages);
/* `page` holds the LAR_PAGE_TOKENS ids behind *end, is whole, and will not be written again as long as it has another
 * holder than the caller; *end moves behind it. Where another equal page is kept already, that one stays and is
 * returned with a holder more, and the caller drops its own; otherwise `page` is returned. Behind a page that is not
 * kept any more (it was forgotten) nothing is kept. */
int32_t lar_prefix_publish(lar_prefix_cache *c, lar_prefix_end *end, const uint32_t *ids, int32_t page);
/* The pages of a prefix that are in memory stay until `until_ms` at least, or an earlier pin that is later; whole pages
 * only. At most half of the pool can be pinned: returns how many pages of the prefix are. */
uint32_t lar_prefix_pin(lar_prefix_cache *c, const lar_digest *scope, const uint32_t *ids, uint32_t count,
                        uint64_t until_ms);
/* Ends all pins: where pages that are pinned stand in the way of everything else. */
void lar_prefix_unpin(lar_prefix_cache *c);
/* Drops everything of one scope, or of all (NULL), also pinned pages; sequences go on with what they hold. What is in
 * the store stays there, and nothing is written to it. */
void lar_prefix_forget(lar_prefix_cache *c, const lar_digest *scope);

/* Any thread. */
typedef struct lar_prefix_counts {
    uint32_t pages;        /* kept */
    uint32_t idle;         /* of these, held by no sequence and not pinned: can be let go */
    uint32_t pinned;       /* also those whose time is over since prefixes or pages were last asked for */
    uint64_t hits, misses; /* pages that lar_prefix_find found, and those that were computed and kept */
    uint64_t evicted;      /* let go because a page was needed */
    /* Pages that the store took and gave back, and those that it refused or lost. What it took it may still give up:
     * its `outcomes`. */
    uint64_t spilled, reloaded, spill_failed, reload_failed;
} lar_prefix_counts;
lar_prefix_counts lar_prefix_cache_counts(const lar_prefix_cache *c);

#endif
