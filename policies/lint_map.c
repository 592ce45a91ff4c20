/* A table from hashes to heap pointers: open addressing, never shrinks, never forgets one key.
 * Called by lint.c and lint_sight.c; one thread; never blocks. Memory: the entries; the values are the caller's. */
#include <stdlib.h>

#include "policies/lint_state.h"

enum { FIRST_CAP = 256 };

static struct lar_lint_entry *find(const lar_lint_map *m, lar_hash key) {
    uint32_t i = (uint32_t)lar_hash_low(key) & (m->cap - 1);
    while (m->entries[i].value && !lar_hash_eq(m->entries[i].key, key)) i = (i + 1) & (m->cap - 1);
    return &m->entries[i];
}

void *lar_lint_map_get(const lar_lint_map *m, lar_hash key) { return m->cap ? find(m, key)->value : NULL; }

static lar_error grow(lar_lint_map *m) {
    lar_lint_map more = {.cap = m->cap ? m->cap * 2 : FIRST_CAP, .count = m->count};
    more.entries = calloc(more.cap, sizeof *more.entries);
    if (!more.entries) return LAR_NO_MEMORY;
    for (uint32_t i = 0; i < m->cap; i++) {
        if (m->entries[i].value) *find(&more, m->entries[i].key) = m->entries[i];
    }
    free(m->entries);
    *m = more;
    return LAR_OK;
}

lar_error lar_lint_map_put(lar_lint_map *m, lar_hash key, void *value) {
    if (m->count * 2 >= m->cap) {
        lar_error e = grow(m);
        if (e) return e;
    }
    struct lar_lint_entry *at = find(m, key);
    if (!at->value) m->count++;
    *at = (struct lar_lint_entry){key, value};
    return LAR_OK;
}

void lar_lint_map_release(lar_lint_map *m) {
    free(m->entries);
    *m = (lar_lint_map){0};
}
