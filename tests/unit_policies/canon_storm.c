/* canon_storm: generated conversations against all promises of canon; prints the seed of a failure and exits 1.
 *   canon_storm [REQUESTS] [FIRST-SEED]        ctest runs 20000
 * A run is a small world: tenants, persons, agents, conversations that grow, are regenerated, edited, sent twice, begin
 * alike; whatever clients break is broken at random; the memo and the memory are lost or damaged. Checked of each
 * request:
 *   1. what is sent parses, has the same members, messages and tools; canonicalising it again changes nothing;
 *   2. assistant and tool messages are the client's bytes; a user's words are all there;
 *   3. each volatile value of this turn is readable; in the block, a directory is this conversation's own;
 *   4. nothing of another tenant or session is in it;
 *   5. messages that were sent before go out as they were sent, and so do tools: the prefix of a conversation lives
 *      on, but where a value moves for the first time.
 * Not looked at: 3 and 5 between conversations that are alike word by word. Pure; one thread. */
#include <stdio.h>
#include <stdlib.h>

#include "canon_harness.h"
#include "rng.h"

enum { TENANTS = 2, CONVERSATIONS = 6, MESSAGES = 24, RUN_REQUESTS = 120, KEPT = 64, TOOLS = 5, TEXT_MAX = 128 };

static bool chance(rng *r, uint32_t one_in) { return pick(r, one_in) == 0; }

typedef enum value {
    VALUE_CLOCK,
    VALUE_REQUEST,
    VALUE_SESSION,
    VALUE_COUNTER,
    VALUE_BUDGET,
    VALUE_PATH,
    VALUE_BRANCH,
    VALUE_COUNT
} value;

/* Where an agent of this run puts a value. */
typedef enum place { PLACE_NONE, PLACE_FRONT, PLACE_END, PLACE_TOOL, PLACE_OPENING, PLACE_COUNT } place;

typedef struct world {
    uint64_t seed;
    rng r;
    lar_protocol protocol;
    place where[VALUE_COUNT];
    bool parts, tool_order, member_order, lines, user_blanks, billing, alike, damage;
    bool tree, keys; /* a long opening; a prompt_cache_key for each conversation */
    uint32_t clock, requests;
    int64_t start_ms;
} world;

typedef struct message {
    char role; /* u, a, c (assistant with a tool call), t */
    uint32_t words;
} message;

typedef struct conversation {
    uint32_t tenant, session, agent, id, path, branch, count, calls;
    message m[MESSAGES];
    uint32_t shared;   /* of the messages that were sent last, how many stand as they were */
    uint32_t pointers; /* in what was sent last, outside of blocks: how much had moved */
    bool sent;
    lar_buf last;                           /* what was sent */
    char kept[KEPT][VALUE_COUNT][TEXT_MAX]; /* values of the requests of this turn */
    uint32_t kept_count, turn;
} conversation;

typedef struct failure {
    const char *what;
    uint32_t index;
} failure;

static void add(lar_buf *b, const char *text) {
    if (lar_buf_add(b, text, strlen(text))) abort();
}

/* -- what a client writes --------------------------------------------------------------------------- */

static void make_values(const world *w, const conversation *c, char out[VALUE_COUNT][TEXT_MAX]) {
    uint32_t t = w->clock, n = w->requests * 7919u + (uint32_t)w->seed * 104729u;
    snprintf(out[VALUE_CLOCK], TEXT_MAX, "2031-04-%02uT%02u:%02u:%02u.118Z", 9 + t / 86400 % 20, t / 3600 % 24,
             t / 60 % 60, t % 60);
    snprintf(out[VALUE_REQUEST], TEXT_MAX, "%08x-77de-4e10-9a53-%04x1d2e3f4a", n, n >> 7 & 0xFFFF);
    snprintf(out[VALUE_SESSION], TEXT_MAX, "5e55%04x-%04x-4711-8899-aabbccddeeff", c->session,
             c->session * 40503u & 0xFFFF);
    snprintf(out[VALUE_COUNTER], TEXT_MAX, "%u", c->calls + 1);
    snprintf(out[VALUE_BUDGET], TEXT_MAX, "%u,%03u", 190 - c->calls, n % 1000);
    snprintf(out[VALUE_PATH], TEXT_MAX, "/srv/tenant%u/work_%u", c->tenant, c->path);
    snprintf(out[VALUE_BRANCH], TEXT_MAX, "feature/t%u-b%u", c->tenant, c->branch);
}

static const char *const labels[VALUE_COUNT] = {"Current time: %.99s",
                                                "request_id: %.99s",
                                                "session_id: %.99s",
                                                "Turn %.99s of 80.",
                                                "Remaining budget: %.99s tokens.",
                                                "Working directory: %.99s",
                                                "Current branch: %.99s"};

static void add_value(lar_buf *b, value v, const char *text) {
    char line[256];
    snprintf(line, sizeof line, labels[v], text);
    add(b, line);
    add(b, "\\n");
}

static void add_values(lar_buf *b, const world *w, place at, char values[VALUE_COUNT][TEXT_MAX]) {
    for (value v = 0; v < VALUE_COUNT; v++) {
        if (w->where[v] == at) add_value(b, v, values[v]);
    }
}

static void add_system_text(lar_buf *b, world *w, const conversation *c, char values[VALUE_COUNT][TEXT_MAX]) {
    char line[256];
    bool crlf = w->lines && chance(&w->r, 2);
    lar_buf text;
    lar_buf_init(&text, 1 << 20);
    if (w->billing) {
        snprintf(line, sizeof line, "x-acme-billing-header: v=2.%u; cch=%05x;\\n", pick(&w->r, 9),
                 pick(&w->r, 1 << 20));
        add(&text, line);
    }
    add_values(&text, w, PLACE_FRONT, values);
    snprintf(line, sizeof line, "You are agent number %c.\\nAnswer briefly. Policy effective 2024-05-15 holds.\\n",
             'A' + (int)c->agent);
    add(&text, line);
    for (int i = 0; i < 4; i++) add(&text, "Use each tool with care and say what you did.\\n");
    add_values(&text, w, PLACE_END, values);
    add(&text, "Thank you.");
    if (w->lines && chance(&w->r, 3)) add(b, "\xEF\xBB\xBF");
    for (size_t i = 0; i < text.len; i++) {
        bool end = text.ptr[i] == '\\' && text.ptr[i + 1] == 'n';
        if (end && crlf) add(b, "\\r");
        if (lar_buf_add(b, text.ptr + i, 1)) abort();
    }
    static const char *const tails[] = {"", "\\n", " \\n", "\\n\\n", "\\t"};
    if (w->lines) add(b, tails[pick(&w->r, 5)]);
    lar_buf_release(&text);
}

static void add_tools(lar_buf *b, world *w, const conversation *c, char values[VALUE_COUNT][TEXT_MAX]) {
    uint32_t order[TOOLS], n = 2 + c->agent % 4;
    for (uint32_t i = 0; i < n; i++) order[i] = i;
    for (uint32_t i = n; w->tool_order && i-- > 1;) {
        uint32_t o = pick(&w->r, i + 1), x = order[i];
        order[i] = order[o];
        order[o] = x;
    }
    add(b, ",\"tools\":[");
    for (uint32_t i = 0; i < n; i++) {
        char name[64], description[64];
        snprintf(name, sizeof name, "\"name\":\"tool_%u_%u\"", c->agent, order[i]);
        snprintf(description, sizeof description, "\"description\":\"Does %u. ", order[i]);
        bool turned = w->member_order && chance(&w->r, 2);
        add(b, i ? ", {\"type\":\"function\",\"function\":{" : "{\"type\":\"function\",\"function\":{");
        if (!turned) add(b, name), add(b, ",");
        add(b, description);
        if (order[i] == 1) add_values(b, w, PLACE_TOOL, values);
        add(b, "\"");
        if (turned) add(b, ","), add(b, name);
        add(b, "}}");
    }
    add(b, "]");
}

static void add_user(lar_buf *b, world *w, const conversation *c, uint32_t i, char values[VALUE_COUNT][TEXT_MAX]) {
    char line[256];
    bool parts = w->parts;
    const char *type = w->protocol == LAR_PROTOCOL_RESPONSES ? "input_text" : "text";
    snprintf(line, sizeof line, "{\"role\":\"user\",\"content\":%s", parts ? "[{\"type\":\"" : "\"");
    add(b, line);
    if (parts) add(b, type), add(b, "\",\"text\":\"");
    if (i == 0) {
        add(b, "This is the set-up.\\n");
        add_values(b, w, PLACE_OPENING, values);
        for (int k = 0; k < 12 && w->tree; k++) add(b, "src/parser.c\\nsrc/parser.h\\nsrc/scan.c\\nsrc/scan.h\\n");
        add(b, "That was it.\\n");
        if (parts && !w->user_blanks) add(b, "\"},{\"type\":\""), add(b, type), add(b, "\",\"text\":\"");
    }
    snprintf(line, sizeof line, "Question %u about theme %u.", c->m[i].words, w->alike ? c->agent : c->id);
    add(b, line);
    if (w->user_blanks && chance(&w->r, 2)) add(b, "\\n");
    add(b, parts ? "\"}]}" : "\"}");
}

static void add_message(lar_buf *b, world *w, const conversation *c, uint32_t i, char values[VALUE_COUNT][TEXT_MAX]) {
    const message *m = &c->m[i];
    char line[512];
    switch (m->role) {
    case 'u': add_user(b, w, c, i, values); return;
    case 'c':
        snprintf(line, sizeof line,
                 "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"call_%u\",\"type\":\"function\","
                 "\"function\":{\"name\":\"tool_1\",\"arguments\":\"{\\\"n\\\": %u}\"}}]}",
                 i, m->words);
        break;
    case 't':
        snprintf(line, sizeof line, "{\"role\":\"tool\",\"tool_call_id\":\"call_%u\",\"content\":\"result %u\\r\\n\"}",
                 i - 1, m->words);
        break;
    default:
        snprintf(line, sizeof line,
                 "{\"role\":\"assistant\",\"content\":\"Answer %u. Current time: 2031-01-01 00:00:0%u \"}", m->words,
                 m->words % 10);
        break;
    }
    add(b, line);
}

static void add_body(lar_buf *b, world *w, const conversation *c, char values[VALUE_COUNT][TEXT_MAX]) {
    static const char *const heads[] = {"\"messages\":[{\"role\":\"system\",\"content\":\"", "\"system\":\"",
                                        "\"instructions\":\""};
    static const char *const ends[] = {"\"},", "\",\"messages\":[", "\",\"input\":["};
    int k = w->protocol == LAR_PROTOCOL_MESSAGES ? 1 : w->protocol == LAR_PROTOCOL_RESPONSES ? 2 : 0;
    add(b, "{\"model\":\"m\",");
    add(b, heads[k]);
    add_system_text(b, w, c, values);
    add(b, ends[k]);
    for (uint32_t i = 0; i < c->count; i++) {
        if (i) add(b, ",");
        add_message(b, w, c, i, values);
    }
    add(b, "]");
    add_tools(b, w, c, values);
    if (w->keys) {
        char key[64];
        snprintf(key, sizeof key, ",\"prompt_cache_key\":\"k%u\"", c->id);
        add(b, key);
    }
    add(b, ",\"seed\":9007199254740993}");
}

/* -- what is checked --------------------------------------------------------------------------------- */

typedef struct parsed {
    lar_json json;
    lar_arena arena;
    lar_request_view view;
} parsed;

static bool parse(parsed *p, lar_protocol protocol, lar_slice body) {
    lar_diag d;
    lar_json_init(&p->json);
    lar_arena_init(&p->arena, 16u << 20);
    return lar_json_parse(&p->json, body, NULL, &d) == LAR_OK &&
           lar_request_view_read(&p->view, &p->json, protocol, &p->arena, &d) == LAR_OK;
}

static void parsed_release(parsed *p) {
    lar_json_release(&p->json);
    lar_arena_release(&p->arena);
}

static bool has(lar_slice text, const char *what) { return memmem(text.ptr, text.len, what, strlen(what)) != NULL; }

static bool same_shape(const parsed *a, const parsed *b) {
    const lar_json *x = &a->json, *y = &b->json;
    if (x->nodes[0].count != y->nodes[0].count || a->view.segment_count != b->view.segment_count) return false;
    if (x->nodes[a->view.tools].count != y->nodes[b->view.tools].count) return false;
    if (!lar_slice_eq(lar_json_raw(x, lar_json_get(x, 0, "seed")), lar_json_raw(y, lar_json_get(y, 0, "seed"))))
        return false;
    for (uint32_t i = 0; i < a->view.segment_count; i++) {
        if (a->view.segments[i].role != b->view.segments[i].role) return false;
    }
    return true;
}

/* Model output byte for byte; a user's question word for word. */
static bool messages_kept(const world *w, const conversation *c, const parsed *a, const parsed *b) {
    uint32_t first = a->view.segment_count - c->count;
    for (uint32_t i = 0; i < c->count; i++) {
        lar_slice was = lar_json_raw(&a->json, a->view.segments[first + i].node);
        lar_slice is = lar_json_raw(&b->json, b->view.segments[first + i].node);
        char question[64];
        snprintf(question, sizeof question, "Question %u about theme %u.", c->m[i].words, w->alike ? c->agent : c->id);
        if (c->m[i].role == 'u' ? !has(is, question) : !lar_slice_eq(was, is)) return false;
        if (c->m[i].role == 'u' && i == 0 && !(has(is, "This is the set-up.") && has(is, "That was it."))) return false;
    }
    return true;
}

/* All values of this request, or of an earlier one of this turn. */
static bool values_kept(const world *w, const conversation *c, lar_slice sent) {
    for (uint32_t k = 0; k < c->kept_count; k++) {
        bool all = true;
        for (value v = 0; v < VALUE_COUNT && all; v++) all = w->where[v] == PLACE_NONE || has(sent, c->kept[k][v]);
        if (all) return true;
    }
    return false;
}

static uint32_t pointers_in(lar_slice s) {
    static const char pointer[] = "(see the latest <runtime-context>)";
    uint32_t n = 0;
    const char *p = s.ptr, *end = s.ptr + s.len;
    while ((p = memmem(p, (size_t)(end - p), pointer, sizeof pointer - 1)) != NULL) n++, p += sizeof pointer - 1;
    return n;
}

/* The directory in the last block is this conversation's. */
static bool block_is_own(const conversation *c, lar_slice sent, char values[VALUE_COUNT][TEXT_MAX]) {
    const char *at = NULL, *p = sent.ptr, *end = sent.ptr + sent.len;
    (void)c;
    while ((p = memmem(p, (size_t)(end - p), "<runtime-context note=", 22)) != NULL) at = p++;
    if (!at) return true;
    const char *stop = memmem(at, (size_t)(end - at), "</runtime-context>", 18);
    if (!stop) return false;
    lar_slice block = lar_slice_of(at, (size_t)(stop - at));
    return !has(block, "Working directory") || has(block, values[VALUE_PATH]);
}

static bool leaks(const conversation *all, const conversation *c, const world *w, lar_slice sent) {
    char mark[64];
    for (uint32_t t = 0; t < TENANTS; t++) {
        snprintf(mark, sizeof mark, "/tenant%u/", t);
        if (t != c->tenant && has(sent, mark)) return true;
        snprintf(mark, sizeof mark, "feature/t%u-", t);
        if (t != c->tenant && has(sent, mark)) return true;
    }
    for (uint32_t i = 0; i < CONVERSATIONS; i++) {
        char values[VALUE_COUNT][TEXT_MAX];
        make_values(w, &all[i], values);
        if (all[i].session != c->session && has(sent, values[VALUE_SESSION])) return true;
    }
    return false;
}

/* Messages that were sent before are sent so again. */
static bool prefix_lives(const conversation *c, const parsed *is, uint32_t head) {
    parsed was;
    bool same = parse(&was, is->view.protocol, lar_buf_slice(&c->last));
    for (uint32_t i = 0; i < head + c->shared && same; i++) {
        same = i < was.view.segment_count && lar_slice_eq(lar_json_raw(&was.json, was.view.segments[i].node),
                                                          lar_json_raw(&is->json, is->view.segments[i].node));
    }
    same = same && lar_slice_eq(lar_json_raw(&was.json, was.view.tools), lar_json_raw(&is->json, is->view.tools));
    parsed_release(&was);
    return same;
}

static const char *check(harness *h, world *w, conversation *all, conversation *c, lar_slice body, lar_slice sent,
                         char values[VALUE_COUNT][TEXT_MAX], bool whole) {
    parsed a, b;
    const char *wrong = NULL;
    bool ok = parse(&a, w->protocol, body), good = parse(&b, w->protocol, sent);
    uint32_t pointers = pointers_in(sent);
    if (!ok || !good) wrong = "what is sent does not parse";
    else if (h->error) wrong = "canon ended in an error";
    else if (!same_shape(&a, &b)) wrong = "members, messages or tools differ";
    else if (!messages_kept(w, c, &a, &b)) wrong = "a message lost or changed words";
    else if (!w->alike && !values_kept(w, c, sent)) wrong = "a value is lost";
    else if (!w->alike && !block_is_own(c, sent, values)) wrong = "the directory of another conversation";
    else if (leaks(all, c, w, sent)) wrong = "something of another tenant or session";
    else if (whole && !w->alike && c->sent && pointers == c->pointers &&
             !prefix_lives(c, &b, a.view.segment_count - c->count))
        wrong = "a prefix that was sent before has changed";
    c->pointers = pointers;
    parsed_release(&a);
    parsed_release(&b);
    return wrong;
}

/* -- how a world goes on ----------------------------------------------------------------------------- */

static void begin(world *w, conversation *c) {
    static const uint32_t sessions = 3;
    lar_buf last = c->last;
    *c = (conversation){.tenant = pick(&w->r, TENANTS), .agent = pick(&w->r, 3), .path = pick(&w->r, 3)};
    c->id = pick(&w->r, 1u << 30);
    c->branch = pick(&w->r, 3);
    c->session = c->tenant * sessions + pick(&w->r, sessions) + 1;
    c->last = last;
    c->m[c->count++] = (message){'u', pick(&w->r, 4)};
    c->turn = UINT32_MAX;
}

static void step(world *w, conversation *c) {
    if (c->count + 4 >= MESSAGES || chance(&w->r, 12)) {
        begin(w, c);
        return;
    }
    char last = c->m[c->count - 1].role;
    c->shared = c->count;
    switch (pick(&w->r, 7)) {
    case 0: /* sent again, regenerated: the message that opens the turn may say something newer */
        c->shared = last == 'u' ? c->count - 1 : c->count;
        return;
    case 1:
        if (last == 'u') c->m[c->count - 1].words += 4;
        c->shared = last == 'u' ? c->count - 1 : c->count;
        return;
    case 2:
    case 3:
    case 4:
        c->m[c->count++] = (message){'c', pick(&w->r, 3)};
        c->m[c->count++] = (message){'t', pick(&w->r, 3)};
        return;
    default: c->m[c->count++] = (message){'a', pick(&w->r, 30)}; c->m[c->count++] = (message){'u', pick(&w->r, 8)};
    }
}

static void make_world(world *w, uint64_t seed) {
    static const lar_protocol protocols[] = {LAR_PROTOCOL_CHAT, LAR_PROTOCOL_CHAT, LAR_PROTOCOL_MESSAGES,
                                             LAR_PROTOCOL_RESPONSES};
    *w = (world){.seed = seed, .r = {seed * 0x9E3779B97F4A7C15u + 1}, .start_ms = 1700000000000};
    for (int i = 0; i < 8; i++) (void)pick(&w->r, 2);
    w->protocol = protocols[pick(&w->r, 4)];
    for (value v = 0; v < VALUE_COUNT; v++) {
        w->where[v] = chance(&w->r, 2) ? PLACE_NONE : (place)pick(&w->r, PLACE_COUNT);
        bool agents_put_it_there = v == VALUE_SESSION || v == VALUE_PATH || v == VALUE_BRANCH;
        if (w->where[v] == PLACE_OPENING && !agents_put_it_there) w->where[v] = PLACE_END;
    }
    w->parts = chance(&w->r, 3);
    w->tool_order = chance(&w->r, 2);
    w->member_order = chance(&w->r, 2);
    w->lines = chance(&w->r, 3);
    w->user_blanks = chance(&w->r, 3);
    w->billing = chance(&w->r, 4);
    w->alike = chance(&w->r, 6);
    w->damage = chance(&w->r, 5);
    w->tree = !chance(&w->r, 4);
    w->keys = chance(&w->r, 3);
    w->clock = pick(&w->r, 86400);
}

/* The values of this request, for as long as the turn lasts. */
static void keep_values(conversation *c, char values[VALUE_COUNT][TEXT_MAX]) {
    uint32_t turn = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        if (c->m[i].role == 'u') turn = i;
    }
    if (turn != c->turn) c->kept_count = 0;
    c->turn = turn;
    if (c->kept_count == KEPT) memmove(c->kept[1], c->kept[2], sizeof c->kept[0] * (KEPT - 2)), c->kept_count--;
    memcpy(c->kept[c->kept_count++], values, sizeof c->kept[0]);
}

static const char *one_request(harness *h, world *w, conversation *all, conversation *c, bool whole) {
    char values[VALUE_COUNT][TEXT_MAX];
    char scope[32];
    lar_buf body;
    size_t len, again_len;
    w->clock += 1 + pick(&w->r, 90);
    w->requests++;
    make_values(w, c, values);
    keep_values(c, values);
    lar_buf_init(&body, 1 << 20);
    add_body(&body, w, c, values);
    snprintf(scope, sizeof scope, "tenant %u", c->tenant);
    h->scope = lar_hash_of(lar_slice_cstr(scope));
    h->now_ms = w->start_ms + (int64_t)w->clock * 1000;
    char *sent = harness_send(h, w->protocol, lar_buf_slice(&body), &len);
    if (!sent) return "the body does not parse";
    const char *wrong = check(h, w, all, c, lar_buf_slice(&body), lar_slice_of(sent, len), values, whole);
    char *again = wrong ? NULL : harness_try(h, w->protocol, lar_slice_of(sent, len), &again_len);
    if (!wrong && (!again || again_len != len || memcmp(again, sent, len) != 0)) wrong = "twice is not once";
    if (wrong)
        fprintf(stderr, "body %.*s\nsent %s\nlast %.*s\n", (int)body.len, body.ptr, sent, (int)c->last.len,
                c->last.ptr);
    if (wrong && again) fprintf(stderr, "again %s\n", again);
    c->last.len = 0;
    if (lar_buf_add(&c->last, sent, len)) abort();
    c->sent = true;
    c->calls++;
    free(again);
    free(sent);
    lar_buf_release(&body);
    return wrong;
}

/* True if all promises held. */
static bool one_world(uint64_t seed) {
    world w;
    harness h;
    conversation all[CONVERSATIONS] = {{0}};
    make_world(&w, seed);
    harness_init(&h);
    for (uint32_t i = 0; i < CONVERSATIONS; i++) {
        lar_buf_init(&all[i].last, 1 << 20);
        begin(&w, &all[i]);
    }
    const char *wrong = NULL;
    bool whole = true; /* nothing was lost of what was learnt */
    for (uint32_t n = 0; n < RUN_REQUESTS && !wrong; n++) {
        conversation *c = &all[pick(&w.r, CONVERSATIONS)];
        if (c->sent) step(&w, c);
        if (chance(&w.r, 40)) { /* a restart */
            lar_norm_cache_free(h.cache);
            h.cache = lar_norm_cache_new(4096);
        }
        if (w.damage && chance(&w.r, 30)) {
            harness_memory_damage(h.memory, (unsigned)pick(&w.r, 1u << 30));
            whole = false;
        }
        wrong = one_request(&h, &w, all, c, whole);
        if (wrong) fprintf(stderr, "canon_storm: seed %llu request %u: %s\n", (unsigned long long)seed, n, wrong);
    }
    for (uint32_t i = 0; i < CONVERSATIONS; i++) lar_buf_release(&all[i].last);
    harness_release(&h);
    return !wrong;
}

int main(int argc, char **argv) {
    uint64_t requests = argc > 1 ? strtoull(argv[1], NULL, 10) : 20000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1, done = 0;
    for (; done < requests; done += RUN_REQUESTS, seed++) {
        if (!one_world(seed)) return 1;
    }
    printf("%llu requests, no promise broken; next seed %llu\n", (unsigned long long)done, (unsigned long long)seed);
    return 0;
}
