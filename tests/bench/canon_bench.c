/* What canonicalisation costs: span tree, view, rules and recall of a request body, beside cJSON's parse and print of
 * the same body, in turns, in one process.
 *   canon_bench [ROUNDS]   default 9; prints CSV: mode,bytes,canon_us,parse_us,cjson_us,gb_s,times_cjson,memory_ratio
 * Modes: resend   the same body again and again: every segment is known
 *        grow     each body is the one before and another turn, and the clock in its system text has moved on
 *        cold     no two bodies share a text
 * Times: of each round the fastest body, so that what else the machine does counts least; the median of the rounds.
 * memory_ratio: arena and span tree by body bytes. */
#include <cjson/cJSON.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "canon_harness.h"

enum { ROUNDS_MAX = 99, SMALL = 1024 };
/* With a store every request has its fingerprints. */
static const lar_hash_key key = {"a key as good as any other one"};

/* A body under construction, and the seed of its words. */
typedef struct writer {
    char *at;
    size_t len, cap;
    uint64_t seed;
} writer;

static void put(writer *w, const char *text) {
    size_t n = strlen(text);
    if (w->len + n + 1 > w->cap) {
        w->cap = (w->len + n + 1) * 2;
        w->at = realloc(w->at, w->cap);
        if (!w->at) abort();
    }
    memcpy(w->at + w->len, text, n + 1);
    w->len += n;
}

static uint32_t next(writer *w) {
    w->seed = w->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(w->seed >> 33);
}

/* About `bytes` of prose: English with Chinese between, some escapes, as prompts and code have them. */
static void prose(writer *w, size_t bytes) {
    static const char *const words[] = {"the ",
                                        "request ",
                                        "of ",
                                        "a service ",
                                        "returns ",
                                        "when ",
                                        "error ",
                                        "function ",
                                        "and ",
                                        "value ",
                                        "缓存",
                                        "前缀",
                                        "模型的输出",
                                        "一个",
                                        "in line ",
                                        "\\\"name\\\" ",
                                        "we ",
                                        "should ",
                                        "check the size, ",
                                        "等等。",
                                        "then ",
                                        "\\n",
                                        "\\n    ",
                                        "return x;",
                                        "if (n > 4) ",
                                        "用户",
                                        "see ",
                                        "README "};
    for (size_t end = w->len + bytes; w->len < end;) put(w, words[next(w) % (sizeof words / sizeof *words)]);
}

static void message(writer *w, const char *role, size_t bytes) {
    char head[64];
    (void)snprintf(head, sizeof head, ",{\"role\":\"%s\",\"content\":\"", role);
    put(w, head);
    prose(w, bytes);
    put(w, "\"}");
}

/* A conversation of about `bytes`, of messages of 2 KB or of a quarter of it. `minute` moves its clock; `extra` turns
 * stand behind. */
static void conversation(writer *w, size_t bytes, unsigned minute, unsigned extra, uint64_t seed) {
    char clock[96];
    size_t part = bytes / 4 < 2048 ? bytes / 8 : 2048;
    w->len = 0;
    w->seed = seed;
    (void)snprintf(clock, sizeof clock, "Current time: 2031-04-09T%02u:%02u:42Z\\n\\n", 10 + minute / 60 % 12,
                   minute % 60);
    put(w, "{\"model\":\"deepseek-chat\",\"temperature\":0.3,\"messages\":[{\"role\":\"system\",\"content\":\"");
    put(w, clock);
    prose(w, part);
    put(w, "\"}");
    message(w, "user", part);
    while (w->len + 2 * part < bytes) {
        message(w, "assistant", part);
        message(w, "user", part);
    }
    for (unsigned i = 0; i < extra; i++) {
        message(w, "assistant", part / 2);
        message(w, "user", part / 2);
    }
    put(w, "]}");
}

typedef struct sample {
    uint64_t parse, canon, cjson; /* ns; canon with the parse */
} sample;

static void canon_once(harness *h, const writer *w, sample *s) {
    lar_diag d;
    lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
    lar_request_view view;
    lar_slice body = lar_slice_of(w->at, w->len);
    lar_arena_reset(&h->arena, 8u << 20);
    uint64_t t0 = lar_clock_mono_ns();
    if (lar_json_parse(&h->json, body, &limits, &d)) abort();
    uint64_t t1 = lar_clock_mono_ns();
    if (lar_request_view_read(&view, &h->json, LAR_PROTOCOL_CHAT, &h->arena, &d)) abort();
    lar_canon_in in = {.view = &view,
                       .options = &h->options,
                       .memory = harness_memory_ops(h->memory),
                       .cache = h->cache,
                       .scope = h->scope,
                       .key = &key,
                       .now_ms = h->now_ms};
    if (lar_canon_run(&in, &h->arena, &h->out)) abort();
    uint64_t t2 = lar_clock_mono_ns();
    lar_canon_commit(&h->out, in.memory);
    s->parse = t1 - t0;
    s->canon = t2 - t0;
}

static void cjson_once(const writer *w, sample *s) {
    uint64_t t0 = lar_clock_mono_ns();
    cJSON *tree = cJSON_ParseWithLength(w->at, w->len);
    char *printed = tree ? cJSON_PrintUnformatted(tree) : NULL;
    if (!printed) abort();
    s->cjson = lar_clock_mono_ns() - t0;
    free(printed);
    cJSON_Delete(tree);
}

typedef enum mode { RESEND, GROW, COLD, MODES } mode;

/* One body of a mode in a harness that has seen the ones before; many of a small one, for the clock's sake. */
static sample measure(mode m, size_t bytes, unsigned round) {
    unsigned times = bytes <= SMALL ? 2000 : 20;
    harness h;
    harness_init(&h);
    writer w = {0};
    sample best = {.canon = UINT64_MAX, .cjson = UINT64_MAX}, s = {0};
    unsigned warm = m == COLD ? 0 : 3;
    for (unsigned i = 0; i < 2 * (times + warm); i++) {
        unsigned k = i / 2, extra = m == GROW ? k % 8 : 0; /* in turns, each with a body that was just written */
        uint64_t seed = m == COLD ? round * 100000ull + k + 1 : m == GROW ? 1 + k / 8 : 7;
        conversation(&w, bytes, m == GROW ? k : 0, extra, seed);
        if (i % 2) cjson_once(&w, &s);
        else canon_once(&h, &w, &s);
        if (i % 2 == 0 || k < warm) continue;
        if (s.canon < best.canon) best.canon = s.canon, best.parse = s.parse;
        if (s.cjson < best.cjson) best.cjson = s.cjson;
    }
    harness_release(&h);
    free(w.at);
    return best;
}

/* Heap that one request takes, with a harness that is new but for its memo and memory. */
static double memory_ratio(size_t bytes) {
    harness h;
    harness_init(&h);
    writer w = {0};
    sample s;
    conversation(&w, bytes, 0, 0, 99);
    lar_arena_release(&h.arena);
    lar_arena_init(&h.arena, 1u << 30);
    struct mallinfo2 before = mallinfo2();
    canon_once(&h, &w, &s);
    struct mallinfo2 after = mallinfo2();
    double used = (double)(after.uordblks + after.hblkhd) - (double)(before.uordblks + before.hblkhd);
    double ratio = used / (double)w.len;
    harness_release(&h);
    free(w.at);
    return ratio;
}

static int by_canon(const void *a, const void *b) {
    const sample *x = a, *y = b;
    return x->canon < y->canon ? -1 : x->canon > y->canon;
}

int main(int argc, char **argv) {
    static const size_t sizes[] = {SMALL, 16 * 1024, 256 * 1024, 1024 * 1024, 4 * 1024 * 1024};
    static const char *const names[MODES] = {"resend", "grow", "cold"};
    long given = argc > 1 ? strtol(argv[1], NULL, 10) : 9;
    unsigned rounds = given < 1 ? 1 : given > ROUNDS_MAX ? ROUNDS_MAX : (unsigned)given;
    printf("mode,bytes,canon_us,parse_us,cjson_us,gb_s,times_cjson,memory_ratio\n");
    for (size_t z = 0; z < sizeof sizes / sizeof *sizes; z++) {
        double memory = memory_ratio(sizes[z]);
        for (int m = 0; m < MODES; m++) {
            sample all[ROUNDS_MAX];
            for (unsigned r = 0; r < rounds; r++) all[r] = measure((mode)m, sizes[z], r);
            qsort(all, rounds, sizeof *all, by_canon);
            const sample *s = &all[rounds / 2];
            printf("%s,%zu,%.2f,%.2f,%.2f,%.2f,%.1f,%.2f\n", names[m], sizes[z], (double)s->canon / 1000,
                   (double)s->parse / 1000, (double)s->cjson / 1000, (double)sizes[z] / (double)s->canon,
                   (double)s->cjson / (double)s->canon, memory);
            (void)fflush(stdout);
        }
    }
    return 0;
}
