/* A list of notes that grows in its arena (header: notes.h). Pure; never blocks. */
#include "policies/notes.h"

void lar_notes_init(lar_notes *n, lar_arena *arena) { *n = (lar_notes){.arena = arena}; }

lar_error lar_notes_add(lar_notes *n, const lar_note *note) {
    if (n->count == n->cap) {
        uint32_t cap = n->cap ? n->cap * 2 : 16;
        lar_note *more = lar_arena_alloc(n->arena, cap * sizeof *more);
        if (!more) return LAR_NO_MEMORY;
        if (n->count) memcpy(more, n->list, n->count * sizeof *more);
        n->list = more;
        n->cap = cap;
    }
    n->list[n->count++] = *note;
    return LAR_OK;
}
