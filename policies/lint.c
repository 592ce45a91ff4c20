/* The linter's engine (header: lint.h): one request after the other through the same stages.
 * Flow: canon (what larder would edit) -> texts -> predecessor -> values, head, history -> kept for the next.
 * One thread; never blocks. Invariants: 1. what canon edits is confirmed. 2. the same requests in the same order give
 * the same findings. 3. a request that fails leaves the engine usable.
 * Memory: l->strings and the heap, both bounded; a request's own in the caller's arena. */
#include <stdlib.h>

#include "policies/lint_state.h"

#define STRINGS_BYTES_MAX ((size_t)96 << 20)
#define MEMORY_BYTES_MAX ((size_t)64 << 20)
/* For lines and columns: then places are those of their requests. Some seconds. */
#define WALK_BYTES_MAX (8ull << 30)

/* -- canon's memory ------------------------------------------------------------------------------------ */

typedef struct remembered {
    size_t len;
    char bytes[];
} remembered;

static lar_error memory_get(void *ctx, const lar_hash *key, lar_buf *out) {
    const lar_lint *l = ctx;
    const remembered *r = lar_lint_map_get(&l->memory, *key);
    return r ? lar_buf_add(out, r->bytes, r->len) : LAR_NOT_FOUND;
}

static void memory_put(void *ctx, const lar_hash *key, lar_slice value) {
    lar_lint *l = ctx;
    if (l->memory_bytes + value.len + sizeof *key > MEMORY_BYTES_MAX) {
        l->dropped++;
        return;
    }
    remembered *old = lar_lint_map_get(&l->memory, *key), *r = malloc(sizeof *r + value.len);
    if (!r) return;
    r->len = value.len;
    memcpy(r->bytes, value.ptr, value.len);
    if (lar_lint_map_put(&l->memory, *key, r)) {
        free(r);
        return;
    }
    l->memory_bytes += value.len + sizeof *key;
    if (old) l->memory_bytes -= old->len + sizeof *key;
    free(old);
}

/* -- life ---------------------------------------------------------------------------------------------- */

lar_lint *lar_lint_new(const lar_lint_options *options) {
    lar_lint *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    l->options = *options;
    l->walk_left = WALK_BYTES_MAX;
    l->memory_ops = (lar_memory_ops){l, memory_get, memory_put};
    lar_arena_init(&l->strings, STRINGS_BYTES_MAX);
    return l;
}

void lar_lint_free(lar_lint *l) {
    if (!l) return;
    for (uint32_t i = 0; i < l->memory.cap; i++) free(l->memory.entries[i].value);
    for (uint32_t i = 0; i < l->kept_count; i++) lar_lint_kept_free(l->kept[i]);
    lar_lint_map_release(&l->memory);
    lar_lint_map_release(&l->sights);
    lar_arena_release(&l->strings);
    free(l->list);
    free(l->findings);
    free(l);
}

uint64_t lar_lint_dropped(const lar_lint *l) { return l->dropped; }

/* -- one request ---------------------------------------------------------------------------------------- */

static lar_error run_canon(lar_lint_run *run) {
    lar_lint *l = run->l;
    const lar_canon_options options = {.mode = LAR_CANON_ON, .rules_off = l->options.rules_off};
    const lar_canon_in in = {.view = run->view,
                             .options = &options,
                             .memory = &l->memory_ops,
                             .now_ms = run->in->sent_ms};
    lar_error e = lar_canon_run(&in, run->arena, &run->canon);
    if (e == LAR_LIMIT) return LAR_OK; /* it would go on untouched; the linter still reads it */
    if (!e) lar_canon_commit(&run->canon, &l->memory_ops);
    return e;
}

static lar_error run_stages(lar_lint_run *run) {
    lar_error e = run_canon(run);
    if (!e) e = lar_lint_units_read(run);
    if (!e) e = lar_lint_kept_read(run);
    if (!e) e = lar_lint_values(run);
    if (!e) e = lar_lint_head(run);
    if (!e) e = lar_lint_history(run);
    if (!e) e = lar_lint_notes(run);
    return e ? e : lar_lint_kept_store(run);
}

lar_error lar_lint_add(lar_lint *l, const lar_lint_request *r, lar_arena *arena, lar_splices *fix) {
    lar_lint_run *run = lar_arena_zalloc(arena, sizeof *run);
    if (!run) return LAR_NO_MEMORY;
    run->l = l;
    run->in = r;
    run->view = r->view;
    run->json = r->view->json;
    run->arena = arena;
    run->number = ++l->requests;
    run->cost.provider = lar_lint_provider(l, r->view);
    lar_json_init(&run->before_json);
    lar_error e = run_stages(run);
    l->cursor = (struct lar_lint_cursor){0};
    lar_json_release(&run->before_json);
    if (fix) {
        if (e) {
            lar_splices_init(fix, arena);
            if (lar_splices_finish(fix, run->json->body.len)) fix->count = 0;
        } else *fix = run->canon.splices;
    }
    return e;
}

lar_error lar_lint_end(lar_lint *l, lar_lint_finding **findings, uint32_t *count) {
    free(l->findings);
    lar_error e = lar_lint_findings(l, &l->findings, count);
    *findings = l->findings;
    return e;
}
