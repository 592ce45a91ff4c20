/* The span tree's outside: memory, limits, the choice of a parser, and what errors say.
 * Flow: request and policies call lar_json_parse; it picks one of json_scalar.c, json_sse2.c,
 * json_avx2.c, json_avx512.c by what the processor has.
 * Thread: the one that owns the lar_json. Never blocks.
 * Invariants: 1. count is 0 after an error. 2. a diag holds one byte of the body at most, in hex.
 * Memory: nodes and stack grow by doubling, up to the limits, and stay for the next parse.
 * Not here: reading the tree (json_read.c). */
#include "base/json.h"

#include <stdlib.h>

#include "base/json_scan.h"
#include "base/utf8.h"

enum { NODES_FIRST = 256, STACK_FIRST = 32 };

void lar_json_init(lar_json *j) { *j = (lar_json){0}; }

void lar_json_release(lar_json *j) {
    free(j->nodes);
    free(j->stack);
    *j = (lar_json){0};
}

static void set_room(lar_json_run *run) {
    const lar_json *j = run->j;
    run->room = j->nodes_cap < run->limits.nodes_max ? j->nodes_cap : run->limits.nodes_max;
    run->deep = j->stack_cap < run->limits.depth_max ? j->stack_cap : run->limits.depth_max;
}

lar_error lar_json_grow_nodes(lar_json_run *run, const unsigned char *at) {
    lar_json *j = run->j;
    uint32_t max = run->limits.nodes_max;
    if (run->count >= max)
        return lar_fail_at(LAR_JSON_SIZE, run->d, (uint64_t)(at - run->base), "more than %u JSON values, at byte %u",
                           max, (unsigned)(at - run->base));
    if (run->count < j->nodes_cap) return LAR_OK;
    uint32_t cap = j->nodes_cap < NODES_FIRST ? NODES_FIRST : j->nodes_cap > UINT32_MAX / 2 ? max : j->nodes_cap * 2;
    lar_json_node *nodes = realloc(j->nodes, (size_t)cap * sizeof *nodes);
    if (!nodes) return lar_fail(LAR_NO_MEMORY, run->d, "no memory for %u JSON values", cap);
    j->nodes = nodes;
    j->nodes_cap = cap;
    set_room(run);
    return LAR_OK;
}

lar_error lar_json_grow_stack(lar_json_run *run, const unsigned char *at) {
    lar_json *j = run->j;
    if (run->depth >= run->limits.depth_max)
        return lar_fail_at(LAR_JSON_DEPTH, run->d, (uint64_t)(at - run->base),
                           "the JSON is nested more than %u deep, at byte %u", run->limits.depth_max,
                           (unsigned)(at - run->base));
    if (run->depth < j->stack_cap) return LAR_OK;
    uint32_t cap = j->stack_cap < STACK_FIRST ? STACK_FIRST : j->stack_cap * 2;
    uint32_t *stack = realloc(j->stack, (size_t)cap * sizeof *stack);
    if (!stack) return lar_fail(LAR_NO_MEMORY, run->d, "no memory for JSON nested %u deep", cap);
    j->stack = stack;
    j->stack_cap = cap;
    set_room(run);
    return LAR_OK;
}

static lar_error not_utf8(const lar_json_run *run, const unsigned char *at) {
    return lar_fail_at(LAR_JSON_UTF8, run->d, (uint64_t)(at - run->base),
                       "the body is not valid UTF-8 at byte %u (0x%02x)", (unsigned)(at - run->base), *at);
}

lar_error lar_json_unexpected(const lar_json_run *run, const unsigned char *at, const char *wanted) {
    unsigned offset = (unsigned)(at - run->base);
    if (at == run->end)
        return lar_fail_at(LAR_JSON_SYNTAX, run->d, offset, "the JSON ends at byte %u where %s was expected", offset,
                           wanted);
    if (!lar_utf8_sequence(at, run->end)) return not_utf8(run, at);
    return lar_fail_at(LAR_JSON_SYNTAX, run->d, offset, "expected %s at byte %u, found 0x%02x", wanted, offset, *at);
}

static int is_hex(unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* Length of the escape at the backslash p: 2 or 6; 0 if it is none, -1 if the body ends first. */
static int escape_length(const unsigned char *p, const unsigned char *end) {
    if (end - p < 2) return -1;
    if (p[1] != 'u') return p[1] && strchr("\"\\/bfnrt", p[1]) ? 2 : 0;
    for (int i = 2; i < 6; i++) {
        if (p + i == end) return -1;
        if (!is_hex(p[i])) return 0;
    }
    return 6;
}

lar_error lar_json_scan_string(const lar_json_run *run, const unsigned char *p, const unsigned char **end,
                               uint8_t *flags) {
    for (p++; p < run->end && *p != '"';) {
        if (*p < 0x20) return lar_json_unexpected(run, p, "an escaped control character");
        if (*p == '\\') {
            int n = escape_length(p, run->end);
            if (n < 0) return lar_json_unexpected(run, run->end, "the rest of a string");
            if (n == 0)
                return lar_fail_at(LAR_JSON_SYNTAX, run->d, (uint64_t)(p - run->base),
                                   "bad escape in a string at byte %u", (unsigned)(p - run->base));
            *flags |= LAR_JSON_ESCAPED;
            p += n;
            continue;
        }
        size_t n = lar_utf8_sequence(p, run->end);
        if (!n) return not_utf8(run, p);
        p += n;
    }
    if (p == run->end) return lar_json_unexpected(run, p, "the rest of a string");
    *end = p + 1;
    return LAR_OK;
}

#if defined(__x86_64__)
lar_json_isa lar_json_isa_best(void) {
    if (__builtin_cpu_supports("avx512bw")) return LAR_JSON_AVX512;
    if (__builtin_cpu_supports("avx2")) return LAR_JSON_AVX2;
    return LAR_JSON_SSE2; /* every x86-64 has it */
}

static lar_error run_with(lar_json_isa isa, lar_json_run *run, const unsigned char *p) {
    switch (isa) {
    case LAR_JSON_AVX512: return lar_json_run_avx512(run, p);
    case LAR_JSON_AVX2: return lar_json_run_avx2(run, p);
    case LAR_JSON_SSE2: return lar_json_run_sse2(run, p);
    case LAR_JSON_SCALAR: break;
    }
    return lar_json_run_scalar(run, p);
}
#else
lar_json_isa lar_json_isa_best(void) { return LAR_JSON_SCALAR; }

static lar_error run_with(lar_json_isa isa, lar_json_run *run, const unsigned char *p) {
    (void)isa;
    return lar_json_run_scalar(run, p);
}
#endif

lar_error lar_json_parse_isa(lar_json_isa isa, lar_json *j, lar_slice body, const lar_json_limits *limits,
                             lar_diag *d) {
    j->count = 0;
    j->body = body;
    if (body.len >= UINT32_MAX) return lar_fail_at(LAR_JSON_SIZE, d, UINT32_MAX, "the body is larger than 4 GiB");
    const unsigned char *base = (const unsigned char *)(body.ptr ? body.ptr : "");
    lar_json_run run = {
        .j = j, .d = d, .base = base, .end = base + body.len, .limits = limits ? *limits : LAR_JSON_LIMITS_DEFAULT};
    if (run.limits.depth_max > UINT16_MAX) run.limits.depth_max = UINT16_MAX;
    if (run.limits.nodes_max > UINT32_MAX - 1) run.limits.nodes_max = UINT32_MAX - 1;
    set_room(&run);
    const unsigned char *p = body.len >= 3 && memcmp(base, "\xEF\xBB\xBF", 3) == 0 ? base + 3 : base;
    lar_error e = run_with(isa, &run, p);
    if (e == LAR_OK) j->count = run.count;
    return e;
}

lar_error lar_json_parse(lar_json *j, lar_slice body, const lar_json_limits *limits, lar_diag *d) {
    return lar_json_parse_isa(lar_json_isa_best(), j, body, limits, d);
}

lar_error lar_json_parse_scalar(lar_json *j, lar_slice body, const lar_json_limits *limits, lar_diag *d) {
    return lar_json_parse_isa(LAR_JSON_SCALAR, j, body, limits, d);
}
