/* Edits of a body as a sorted list of spans with replacements; output as iovecs.
 * Flow: rules and request add splices; upstream writes the iovecs.
 * Thread: the one that owns the arena. Never blocks.
 * Invariants (of a finished list): 1. sorted by start; at one place insertions stand before the span that
 * is replaced there. 2. no two spans overlap. 3. every end is inside the body.
 * Memory: the arena; nothing of the body is copied. */
#include "base/splice.h"

#include <stdbool.h>

enum { LIST_FIRST = 16 };

void lar_splices_init(lar_splices *s, lar_arena *arena) { *s = (lar_splices){.arena = arena}; }

lar_error lar_splices_add(lar_splices *s, uint32_t start, uint32_t end, lar_slice with) {
    if (start > end) return LAR_INVALID;
    if (s->count == s->cap) {
        if (s->cap > UINT32_MAX / 2) return LAR_LIMIT;
        uint32_t cap = s->cap ? s->cap * 2 : LIST_FIRST;
        lar_splice *list = lar_arena_alloc(s->arena, (size_t)cap * sizeof *list);
        if (!list) return LAR_NO_MEMORY;
        if (s->count) memcpy(list, s->list, s->count * sizeof *list);
        s->list = list;
        s->cap = cap;
    }
    s->list[s->count++] = (lar_splice){start, end, with};
    return LAR_OK;
}

static bool comes_after(const lar_splice *a, const lar_splice *b) {
    if (a->start != b->start) return a->start > b->start;
    return a->end > a->start && b->end == b->start;
}

static bool is_sorted(const lar_splices *s) {
    for (uint32_t i = 1; i < s->count; i++)
        if (comes_after(&s->list[i - 1], &s->list[i])) return false;
    return true;
}

/* Merges from[a, b) and from[b, c) into to[a, c); of equals the left one comes first. */
static void merge(const lar_splice *from, lar_splice *to, const size_t at[3]) {
    size_t left = at[0], right = at[1];
    for (size_t i = at[0]; i < at[2]; i++) {
        bool take_right = left == at[1] || (right < at[2] && comes_after(&from[left], &from[right]));
        to[i] = from[take_right ? right++ : left++];
    }
}

/* Bottom-up merge sort: stable, n log n whatever the order, no recursion. */
static lar_error sort(lar_splices *s) {
    lar_splice *spare = lar_arena_alloc(s->arena, (size_t)s->cap * sizeof *spare);
    if (!spare) return LAR_NO_MEMORY;
    for (size_t width = 1; width < s->count; width *= 2) {
        for (size_t i = 0; i < s->count; i += 2 * width) {
            size_t b = i + width < s->count ? i + width : s->count;
            size_t c = i + 2 * width < s->count ? i + 2 * width : s->count;
            merge(s->list, spare, (size_t[3]){i, b, c});
        }
        lar_splice *list = s->list;
        s->list = spare;
        spare = list;
    }
    return LAR_OK;
}

lar_error lar_splices_finish(lar_splices *s, size_t body_len) {
    if (!is_sorted(s)) {
        lar_error e = sort(s);
        if (e) return e;
    }
    for (uint32_t i = 0; i < s->count; i++) {
        if (s->list[i].end > body_len) return LAR_INVALID;
        if (i && s->list[i].start < s->list[i - 1].end) return LAR_INVALID;
    }
    return LAR_OK;
}

size_t lar_splices_length(const lar_splices *s, size_t body_len) {
    size_t n = body_len;
    for (uint32_t i = 0; i < s->count; i++) n = n - (s->list[i].end - s->list[i].start) + s->list[i].with.len;
    return n;
}

uint32_t lar_splices_iov_max(const lar_splices *s) {
    return s->count > (UINT32_MAX - 1) / 2 ? UINT32_MAX : 2 * s->count + 1;
}

static uint32_t add_piece(struct iovec *iov, uint32_t used, lar_slice from, size_t start, size_t len) {
    if (!len) return used;
    iov[used].iov_base = (void *)(uintptr_t)(from.ptr + start); /* iovec has no const; writev only reads */
    iov[used].iov_len = len;
    return used + 1;
}

uint32_t lar_splices_iov(const lar_splices *s, lar_slice body, struct iovec *iov) {
    uint32_t used = 0;
    size_t at = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        const lar_splice *p = &s->list[i];
        used = add_piece(iov, used, body, at, p->start - at);
        used = add_piece(iov, used, p->with, 0, p->with.len);
        at = p->end;
    }
    return add_piece(iov, used, body, at, body.len - at);
}

size_t lar_splices_map(const lar_splices *s, size_t offset) {
    size_t removed = 0, added = 0;
    for (uint32_t i = 0; i < s->count && s->list[i].start <= offset; i++) {
        const lar_splice *p = &s->list[i];
        added += p->with.len;
        if (offset < p->end) return p->start - removed + added;
        removed += p->end - p->start;
    }
    return offset - removed + added;
}
