/* Requests through the linter's engine, for tests. Single thread. */
#include "lint_harness.h"

#include <stdio.h>
#include <stdlib.h>

void lint_harness_init(lint_harness *h) {
    const lar_lint_options o = {.rules_off = lar_rules_off_default()};
    *h = (lint_harness){.lint = lar_lint_new(&o), .line = 1};
    lar_json_init(&h->json);
    lar_arena_init(&h->arena, 256u << 20);
}

void lint_harness_release(lint_harness *h) {
    lar_lint_free(h->lint);
    lar_json_release(&h->json);
    lar_arena_release(&h->arena);
}

lar_error lint_harness_add(lint_harness *h, lar_protocol p, lar_slice body, lar_splices *fix) {
    lar_request_view view;
    lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
    lar_diag d = {{0}, 0, 0};
    lar_arena_reset(&h->arena, 1u << 20);
    lar_error e = lar_json_parse(&h->json, body, &limits, &d);
    if (!e) e = lar_request_view_read(&view, &h->json, p, &h->arena, &d);
    if (e) return e;
    lar_lint_request r = {.view = &view, .line = h->line++, .column = 1, .origin = LAR_LINT_VERBATIM};
    return lar_lint_add(h->lint, &r, &h->arena, fix);
}

char *lint_harness_lines(lint_harness *h) {
    lar_error e = lar_lint_end(h->lint, &h->findings, &h->count);
    size_t cap = 1, at = 0;
    for (uint32_t i = 0; i < h->count; i++) cap += h->findings[i].place.pointer.len + 64;
    char *lines = calloc(1, cap);
    if (!lines || e) abort();
    for (uint32_t i = 0; i < h->count; i++) {
        const lar_lint_finding *f = &h->findings[i];
        at += (size_t)snprintf(lines + at, cap - at, "%s %.*s %s\n", lar_rule_id(f->rule), LAR_FMT(f->place.pointer),
                               f->state == LAR_LINT_CONFIRMED ? "confirmed" : "suspect");
    }
    return lines;
}
