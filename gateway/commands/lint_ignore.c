/* Comments that say which findings are wanted: "# larder-ignore LR001", "<!-- larder-ignore LR001 -->".
 * Called by lint_input.c for lines that are comments, by lint_main.c for findings. One thread; never blocks.
 * Memory: a list on the heap, at most IGNORES_MAX a file. */
#include <stdlib.h>
#include <string.h>

#include "gateway/commands/lint_command.h"

enum { IGNORES_MAX = 65536 };

static bool is_part(char c) {
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_' || c == '-';
}

static lar_error add(lar_lint_file *f, uint32_t line, uint64_t rules) {
    if (f->ignore_count == IGNORES_MAX) return LAR_LIMIT;
    if (f->ignore_count == f->ignore_cap) {
        uint32_t cap = f->ignore_cap ? f->ignore_cap * 2 : 16;
        lar_lint_ignore *more = realloc(f->ignores, cap * sizeof *more);
        if (!more) return LAR_NO_MEMORY;
        f->ignores = more;
        f->ignore_cap = cap;
    }
    f->ignores[f->ignore_count++] = (lar_lint_ignore){line, rules};
    return LAR_OK;
}

lar_error lar_lint_ignore_read(lar_lint_file *f, lar_slice text, uint32_t line) {
    static const char word[] = "larder-ignore";
    const char *at = text.len ? memmem(text.ptr, text.len, word, sizeof word - 1) : NULL;
    if (!at) return LAR_OK;
    size_t i = (size_t)(at - text.ptr) + sizeof word - 1;
    bool file = lar_slice_starts(lar_slice_of(text.ptr + i, text.len - i), LAR_SLICE("-file"));
    if (file) i += 5;
    uint64_t rules = 0;
    bool named = false;
    while (i < text.len) {
        while (i < text.len && (text.ptr[i] == ' ' || text.ptr[i] == ',' || text.ptr[i] == ':' || text.ptr[i] == '\t'))
            i++;
        size_t end = i;
        while (end < text.len && is_part(text.ptr[end])) end++;
        lar_slice name = lar_slice_of(text.ptr + i, end - i);
        if (!name.len || !lar_lint_rules_named(name, &rules)) break; /* the reason, or the end */
        named = true;
        i = end;
    }
    return add(f, file ? 0 : line, named ? rules : UINT64_MAX);
}

bool lar_lint_ignores(const lar_lint_file *f, const lar_lint_finding *x) {
    for (uint32_t i = 0; i < f->ignore_count; i++) {
        const lar_lint_ignore *g = &f->ignores[i];
        if (!(g->rules >> x->rule & 1)) continue;
        if (g->line == 0 || g->line == x->place.line || g->line + 1 == x->place.line) return true;
    }
    return false;
}
