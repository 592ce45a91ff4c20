/* An in-process memory (open addressing) and one request through canon, for tests. Single thread. */
#include "canon_harness.h"

#include <stdio.h>
#include <stdlib.h>

#include "policies/history.h"

typedef struct slot {
    lar_hash key;
    char *value;
    size_t len;
} slot;

struct harness_memory {
    slot *slots;
    size_t cap, count;
    lar_memory_ops ops;
};

static slot *find(const harness_memory *m, const lar_hash *key) {
    size_t i = lar_hash_low(*key) & (m->cap - 1);
    while (m->slots[i].value && !lar_hash_eq(m->slots[i].key, *key)) i = (i + 1) & (m->cap - 1);
    return &m->slots[i];
}

static lar_error get(void *ctx, const lar_hash *key, lar_buf *out) {
    const slot *s = find(ctx, key);
    return s->value ? lar_buf_add(out, s->value, s->len) : LAR_NOT_FOUND;
}

static void grow(harness_memory *m) {
    slot *old = m->slots;
    size_t n = m->cap;
    m->cap *= 2;
    m->slots = calloc(m->cap, sizeof *m->slots);
    for (size_t i = 0; i < n; i++) {
        if (old[i].value) *find(m, &old[i].key) = old[i];
    }
    free(old);
}

static void put(void *ctx, const lar_hash *key, lar_slice value) {
    harness_memory *m = ctx;
    if (m->count * 2 >= m->cap) grow(m);
    slot *s = find(m, key);
    if (!s->value) m->count++;
    free(s->value);
    s->key = *key;
    s->value = malloc(value.len + 1);
    s->len = value.len;
    if (value.len) memcpy(s->value, value.ptr, value.len);
}

harness_memory *harness_memory_new(void) {
    harness_memory *m = calloc(1, sizeof *m);
    m->cap = 1024;
    m->slots = calloc(m->cap, sizeof *m->slots);
    m->ops = (lar_memory_ops){m, get, put};
    return m;
}

void harness_memory_free(harness_memory *m) {
    for (size_t i = 0; i < m->cap; i++) free(m->slots[i].value);
    free(m->slots);
    free(m);
}

const lar_memory_ops *harness_memory_ops(harness_memory *m) { return &m->ops; }
size_t harness_memory_count(const harness_memory *m) { return m->count; }

void harness_memory_damage(harness_memory *m, unsigned seed) {
    for (size_t i = 0; i < m->cap; i++) {
        slot *s = &m->slots[i];
        if (!s->value || s->len == 0) continue;
        seed = seed * 1103515245u + 12345u;
        switch (seed >> 16 & 3) {
        case 0: s->len -= 1; break;
        case 1: s->value[(seed >> 18) % s->len] ^= (char)(1u << (seed >> 26 & 7)); break;
        case 2: s->value[0] = 9; break;
        default: s->len = (seed >> 18) % s->len; break;
        }
    }
}

void harness_init(harness *h) {
    *h = (harness){.memory = harness_memory_new(),
                   .texts = harness_memory_new(),
                   .cache = lar_norm_cache_new(4096),
                   .options = {.mode = LAR_CANON_ON, .rules_off = lar_rules_off_default()}};
    lar_json_init(&h->json);
    lar_arena_init(&h->arena, 64u << 20);
    h->scope = lar_hash_of(LAR_SLICE("tenant"));
    h->now_ms = 1700000000000;
}

void harness_release(harness *h) {
    harness_memory_free(h->memory);
    harness_memory_free(h->texts);
    lar_norm_cache_free(h->cache);
    lar_json_release(&h->json);
    lar_arena_release(&h->arena);
}

/* The body with its edits; malloc'ed, NUL-terminated. */
static char *flat(const lar_splices *edits, lar_slice body, size_t *len) {
    struct iovec *iov = calloc(lar_splices_iov_max(edits) + 1, sizeof *iov);
    uint32_t n = lar_splices_iov(edits, body, iov);
    *len = 0;
    for (uint32_t i = 0; i < n; i++) *len += iov[i].iov_len;
    char *sent = malloc(*len + 1);
    size_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        memcpy(sent + at, iov[i].iov_base, iov[i].iov_len);
        at += iov[i].iov_len;
    }
    sent[at] = 0;
    free(iov);
    return sent;
}

/* As the gateway does it: LR015 first, on a body of its own that is parsed anew. */
static bool mend(harness *h, lar_request_view *view, lar_slice *body) {
    lar_diag d = {{0}, 0, 0};
    lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
    lar_splices edits;
    bool found;
    if (lar_rule_tool_history(view, &h->arena, &edits, &found) != LAR_OK || edits.count == 0) return false;
    size_t len;
    char *sent = flat(&edits, *body, &len);
    *body = lar_arena_copy(&h->arena, lar_slice_of(sent, len));
    free(sent);
    h->error = lar_json_parse(&h->json, *body, &limits, &d);
    if (!h->error) h->error = lar_request_view_read(view, &h->json, view->protocol, &h->arena, &d);
    return true;
}

static char *run(harness *h, lar_protocol p, lar_slice body, size_t *len, bool commit) {
    lar_diag d = {{0}, 0, 0};
    lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
    lar_request_view view;
    lar_arena_reset(&h->arena, 8u << 20);
    h->error = lar_json_parse(&h->json, body, &limits, &d);
    if (h->error) return NULL;
    h->error = lar_request_view_read(&view, &h->json, p, &h->arena, &d);
    if (h->error) return NULL;
    bool mended = false;
    if (!(h->options.rules_off >> LAR_RULE_LR015 & 1)) mended = mend(h, &view, &body);
    lar_canon_in in = {.view = &view,
                       .options = &h->options,
                       .memory = harness_memory_ops(h->memory),
                       .texts = harness_memory_ops(h->texts),
                       .cache = h->cache,
                       .scope = h->scope,
                       .key = h->key,
                       .now_ms = h->now_ms};
    h->error = lar_canon_run(&in, &h->arena, &h->out);
    if (!h->error && commit) lar_canon_commit(&h->out, in.memory);
    if (mended) h->out.rules_fired |= 1ull << LAR_RULE_LR015;
    return flat(&h->out.splices, body, len);
}

char *harness_send(harness *h, lar_protocol p, lar_slice body, size_t *len) { return run(h, p, body, len, true); }
char *harness_try(harness *h, lar_protocol p, lar_slice body, size_t *len) { return run(h, p, body, len, false); }

static lar_output_memory output_memory(harness *h, lar_arena *arena) {
    return (lar_output_memory){.scope = h->out.scope,
                               .context = h->out.context,
                               .forms = harness_memory_ops(h->memory),
                               .texts = harness_memory_ops(h->texts),
                               .arena = arena,
                               .reasoning = !(h->options.rules_off >> LAR_RULE_LR013 & 1)};
}

void harness_answer(harness *h, lar_protocol p, lar_slice body) {
    lar_json j;
    lar_arena arena;
    lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
    lar_json_init(&j);
    lar_arena_init(&arena, 64u << 20);
    lar_output_memory m = output_memory(h, &arena);
    if (lar_json_parse(&j, body, &limits, NULL) == LAR_OK) lar_output_remember_body(&j, p, &m);
    lar_arena_release(&arena);
    lar_json_release(&j);
}

void harness_stream(harness *h, lar_protocol p, lar_slice lines, harness_lines kind) {
    lar_arena arena;
    lar_arena_init(&arena, 64u << 20);
    lar_output_memory m = output_memory(h, &arena);
    lar_json work;
    lar_json_init(&work);
    const lar_output_options options = {.protocol = p, .reasoning = m.reasoning, .work = &work};
    lar_output *o = lar_output_new(&options);
    while (lines.len) {
        const char *nl = memchr(lines.ptr, '\n', lines.len);
        size_t n = nl ? (size_t)(nl - lines.ptr) : lines.len;
        lar_slice data = lar_slice_of(lines.ptr, n), type = {"", 0};
        const char *blank = kind == HARNESS_TYPES ? memchr(data.ptr, ' ', n) : NULL;
        if (blank) {
            type = lar_slice_of(data.ptr, (size_t)(blank - data.ptr));
            data = lar_slice_of(blank + 1, n - type.len - 1);
        }
        lar_output_event(o, type, data);
        lines = lar_slice_of(lines.ptr + n + (nl ? 1 : 0), lines.len - n - (nl ? 1 : 0));
    }
    lar_output_remember(o, &m);
    lar_output_free(o);
    lar_json_release(&work);
    lar_arena_release(&arena);
}
