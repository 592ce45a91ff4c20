/* Which pages hold which prefixes: whole pages of tokens, found again by content.
 *
 * A page's key is SHA-256(root) for an empty prefix and SHA-256(parent key, LAR_PAGE_TOKENS ids) for each page after it;
 * root is made of the model's digest, the page layout and the scope. So equal keys are equal prefixes of the same model
 * in the same formats for the same scope, and nothing of one scope is ever found by another (vLLM's cache_salt,
 * docs.vllm.ai design/prefix_caching). A shared prefix is kept once. The cache is a tree: a page has a parent, and only
 * leaves without other holders are let go, the least recently used first; pinned ones last of all, and only ever after
 * their time is over. One thread; counts may be read by any. */
#ifndef LARDER_ENGINE_CACHE_PREFIX_CACHE_H
#define LARDER_ENGINE_CACHE_PREFIX_CACHE_H

#include "engine/cache/page_pool.h"
#include "engine/cache/page_store.h"

typedef struct lar_prefix_cache lar_prefix_cache;

typedef struct lar_prefix_options {
    lar_page_pool *pool;               /* borrowed; its on_empty becomes this cache's */
    lar_digest model;                  /* of weights and everything else that decides a latent */
    lar_page_store *store;             /* borrowed; NULL: pages that are let go are gone */
    uint64_t (*now_ms)(void *context); /* for pins */
    void *now_context;
} lar_prefix_options;

LAR_MUST_USE lar_error lar_prefix_cache_new(const lar_prefix_options *o, lar_prefix_cache **out, lar_diag *d);
/* Lets go of all pages; those in use by sequences stay theirs. Writes what is not in the store yet. NULL is allowed. */
void lar_prefix_cache_free(lar_prefix_cache *c);

/* The end of a known prefix, so that a sequence that grows page by page hashes each of its tokens once. Embedded. */
typedef struct lar_prefix_end {
    lar_page_key key; /* of the last whole page; of the root where pages is 0 */
    uint32_t pages;
} lar_prefix_end;
lar_prefix_end lar_prefix_root(const lar_prefix_cache *c, const lar_digest *scope);

/* Extends *end over ids while pages are known (of `count` ids, only whole pages), reading from the store what memory
 * has not, and writes the pages, each with a holder more for the caller, to `pages` (room for count / 64). Returns how
 * many were added; *from_store how many of these were read from there. `ids` begin where *end ends. */
uint32_t lar_prefix_find(lar_prefix_cache *c, lar_prefix_end *end, const uint32_t *ids, uint32_t count, int32_t *pages,
                         uint32_t *from_store);
/* `page` holds the LAR_PAGE_TOKENS ids behind *end, is whole, and will not be written again; *end moves behind it. Where
 * an equal page is kept already, that one stays and is returned with a holder more, and the caller drops its own;
 * otherwise `page` is returned. */
int32_t lar_prefix_publish(lar_prefix_cache *c, lar_prefix_end *end, const uint32_t *ids, int32_t page);
/* The pages of a known prefix stay until `until_ms` at least, or an earlier pin that is later; whole pages only. At most
 * half of the pool can be pinned: returns how many pages are. */
uint32_t lar_prefix_pin(lar_prefix_cache *c, const lar_digest *scope, const uint32_t *ids, uint32_t count,
                        uint64_t until_ms);
/* Drops everything of one scope, or of all (NULL), but what sequences hold; also pinned pages. Not in the store. */
void lar_prefix_forget(lar_prefix_cache *c, const lar_digest *scope);

/* Any thread. */
typedef struct lar_prefix_counts {
    uint32_t pages; /* kept */
    uint32_t idle;  /* of these, held by no sequence: can be let go, but for pinned ones */
    uint32_t pinned;
    uint64_t hits, misses; /* pages found and not found by lar_prefix_find, in whole pages of the ids */
    uint64_t evicted, spilled, reloaded, spill_failed;
} lar_prefix_counts;
lar_prefix_counts lar_prefix_cache_counts(const lar_prefix_cache *c);

#endif
