/* canon_pipe: request bodies, one a line, on stdin; what would go upstream, one a line, on stdout.
 * Memory lives as long as the process, so a whole traffic can be played through without a gateway.
 *   canon_pipe [--protocol chat|messages|responses] [--mode on|report] [--now MS] [--rule-on ID] [--stats]
 *              [--repeat N]
 * --stats prints rules, findings and the predicted prefix to stderr; --repeat times each body. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "canon_harness.h"

static lar_protocol protocol_of(const char *name) {
    for (int p = 0; p < LAR_PROTOCOL_COUNT; p++) {
        if (strcmp(lar_protocol_name((lar_protocol)p), name) == 0) return (lar_protocol)p;
    }
    return LAR_PROTOCOL_CHAT;
}

static void print_stats(const harness *h) {
    fprintf(stderr, "error %s turn %u segments %u known %u prefix %llu puts %u fired", lar_error_name(h->error),
            h->out.turn, h->out.segments, h->out.segments_known, (unsigned long long)h->out.prefix_known_bytes,
            h->out.put_count);
    for (int r = 0; r < LAR_RULE_COUNT; r++) {
        if (h->out.rules_fired >> r & 1) fprintf(stderr, " %s", lar_rule_id((lar_rule)r));
    }
    fprintf(stderr, " findings %u\n", h->out.finding_count);
}

static void time_it(harness *h, lar_protocol p, lar_slice body, int repeat) {
    lar_diag d;
    lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
    uint64_t parse = 0, canon = 0;
    for (int i = 0; i < repeat; i++) {
        lar_request_view view;
        lar_arena_reset(&h->arena, 8u << 20);
        uint64_t t0 = lar_clock_mono_ns();
        if (lar_json_parse(&h->json, body, &limits, &d)) return;
        uint64_t t1 = lar_clock_mono_ns();
        if (lar_request_view_read(&view, &h->json, p, &h->arena, &d)) return;
        lar_canon_in in = {.view = &view,
                           .options = &h->options,
                           .memory = harness_memory_ops(h->memory),
                           .cache = h->cache,
                           .scope = h->scope,
                           .now_ms = h->now_ms};
        if (lar_canon_run(&in, &h->arena, &h->out)) return;
        uint64_t t2 = lar_clock_mono_ns();
        parse += t1 - t0;
        canon += t2 - t1;
    }
    fprintf(stderr, "bytes %zu parse %.1f us canon %.1f us\n", body.len, (double)parse / repeat / 1000,
            (double)canon / repeat / 1000);
}

int main(int argc, char **argv) {
    harness h;
    harness_init(&h);
    lar_protocol protocol = LAR_PROTOCOL_CHAT;
    bool stats = false;
    int repeat = 0;
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--protocol") == 0) protocol = protocol_of(next), i++;
        else if (strcmp(argv[i], "--mode") == 0)
            h.options.mode = strcmp(next, "report") == 0 ? LAR_CANON_REPORT : LAR_CANON_ON, i++;
        else if (strcmp(argv[i], "--rule-on") == 0)
            h.options.rules_off &= ~(1ull << lar_rule_find(lar_slice_cstr(next))), i++;
        else if (strcmp(argv[i], "--now") == 0) h.now_ms = strtoll(next, NULL, 10), i++;
        else if (strcmp(argv[i], "--repeat") == 0) repeat = (int)strtol(next, NULL, 10), i++;
        else if (strcmp(argv[i], "--stats") == 0) stats = true;
    }
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, stdin)) > 0) {
        if (line[n - 1] == '\n') n--;
        size_t len;
        char *sent = harness_send(&h, protocol, lar_slice_of(line, (size_t)n), &len);
        if (sent) fwrite(sent, 1, len, stdout);
        else fwrite(line, 1, (size_t)n, stdout);
        fputc('\n', stdout);
        fflush(stdout);
        if (stats) print_stats(&h);
        if (repeat) time_it(&h, protocol, lar_slice_of(line, (size_t)n), repeat);
        free(sent);
    }
    free(line);
    harness_release(&h);
    return 0;
}
