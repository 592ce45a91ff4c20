/* The table of pages: linear probing, at most three quarters full, no tombstones.
 * Flow: page_segments.c and segment_writer.c, under their lock. Never blocks but for memory.
 * Invariant: between an entry's home slot and the entry no slot is free. Memory: heap; doubles, never shrinks.
 * Not here: what the entries mean. */
#include "store/segment_table.h"

#include <stdlib.h>
#include <string.h>

enum { CAP_FIRST = 64 };
#define CAP_MAX (UINT32_C(1) << 31)

static uint32_t home(const lar_segment_table *t, const lar_digest *key) {
    uint32_t h;
    memcpy(&h, key->bytes, sizeof h);
    return h & (t->cap - 1);
}

void lar_segment_table_release(lar_segment_table *t) {
    free(t->slots);
    *t = (lar_segment_table){0};
}

/* The slot of `key`, or the free one where it would be. */
static lar_page_entry *slot_of(const lar_segment_table *t, const lar_digest *key) {
    uint32_t i = home(t, key);
    while (t->slots[i].state != LAR_PAGE_ABSENT && memcmp(&t->slots[i].key, key, sizeof *key) != 0)
        i = (i + 1) & (t->cap - 1);
    return &t->slots[i];
}

lar_page_entry *lar_segment_table_find(const lar_segment_table *t, const lar_digest *key) {
    if (!t->cap) return NULL;
    lar_page_entry *e = slot_of(t, key);
    return e->state == LAR_PAGE_ABSENT ? NULL : e;
}

static bool grow(lar_segment_table *t) {
    if (t->cap == CAP_MAX) return false;
    lar_segment_table wide = {.cap = t->cap ? t->cap * 2 : CAP_FIRST, .count = t->count};
    wide.slots = calloc(wide.cap, sizeof *wide.slots);
    if (!wide.slots) return false;
    for (uint32_t i = 0; i < t->cap; i++) {
        if (t->slots[i].state != LAR_PAGE_ABSENT) *slot_of(&wide, &t->slots[i].key) = t->slots[i];
    }
    free(t->slots);
    *t = wide;
    return true;
}

lar_page_entry *lar_segment_table_add(lar_segment_table *t, const lar_digest *key) {
    if (t->count >= t->cap / 4 * 3 && !grow(t)) return NULL;
    lar_page_entry *e = slot_of(t, key);
    *e = (lar_page_entry){.key = *key};
    t->count++;
    return e;
}

void lar_segment_table_remove(lar_segment_table *t, lar_page_entry *e) {
    uint32_t mask = t->cap - 1, hole = (uint32_t)(e - t->slots);
    for (uint32_t i = (hole + 1) & mask; t->slots[i].state != LAR_PAGE_ABSENT; i = (i + 1) & mask) {
        uint32_t from_home = (i - home(t, &t->slots[i].key)) & mask;
        if (from_home < ((i - hole) & mask)) continue; /* its home lies behind the hole */
        t->slots[hole] = t->slots[i];
        hole = i;
    }
    t->slots[hole] = (lar_page_entry){.state = LAR_PAGE_ABSENT};
    t->count--;
}
