/* Promise 2 as a property: whatever clients break, what is sent shares at least as much with what was sent
 * before as the raw traffic does with the raw traffic before it.
 *
 * Random conversations run interleaved: several prompts, tools, turns, tool rounds, regenerated answers, edited
 * messages, conversations that begin alike. Their traffic is broken at random: clocks that tick, stand still for
 * a while or are constant per conversation; tools and their members in any order; line ends, BOM,
 * blanks; billing nonces.
 * Each request is rendered as a model reads it, system first and tools first, and compared with all before. Where the
 * last tool carries cache_control, which no model reads, the last tool that is sent must carry it.
 * What is shared is counted without blanks and BOMs, so that CR LF sent as LF is no loss, and up to 12 bytes by
 * which pointers may be shorter than the values they stand for. Stated exceptions: the request in which a value of a
 * prompt with its tools moves for the first time, and conversations that began before that; a billing line's name,
 * dropped from two different texts that have it in common. Prompts begin with different words and sets of tools are
 * apart, because two texts that only begin alike may be first sent in two forms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "canon_harness.h"
#include "rng.h"

enum { PROMPTS = 4, CONVERSATIONS = 5, MESSAGES = 40, REQUESTS = 60, RUNS = 150 };

/* What stands beside the clock. */
typedef enum extra {
    EXTRA_NONE,
    EXTRA_REQUEST_ID,
    EXTRA_COUNTER,
    EXTRA_PATH,
    EXTRA_SESSION,
    EXTRA_TOOL_PATH,
    EXTRA_OPENING_PATH,
    EXTRA_COUNT
} extra;

typedef enum tick { TICK_NONE, TICK_ALWAYS, TICK_SLOW, TICK_CONVERSATION } tick;

/* What this run's clients break. */
typedef struct breakage {
    tick clock;
    uint32_t clock_place, clock_form; /* front, middle, end; see print_clock */
    extra extra;
    char value[96];
    bool tools, members, lines, user_blanks, billing, marker;
} breakage;

typedef struct message {
    char role; /* u, a, c (assistant with a tool call), t */
    uint32_t words;
    bool blank; /* this text was first sent with a line end at its end */
} message;

typedef struct conversation {
    uint32_t prompt, tools, count, constant, calls;
    bool sent;      /* at least once */
    uint64_t least; /* rules that moved something in each of its requests */
    message m[MESSAGES];
} conversation;

static const char *const names[PROMPTS] = {"Atlas", "Boreal", "Cedar", "Delta"};
static const char *const openers[] = {"Hello there", "What is the weather in Lisbon?", "Fix the test in parser.c",
                                      "请总结报告"};

static void add(lar_buf *b, const char *text) { assert_int_equal(lar_buf_add(b, text, strlen(text)), LAR_OK); }

static void print_clock(lar_buf *b, const breakage *k, uint32_t value) {
    uint32_t h = 8 + value / 3600 % 12, m = value / 60 % 60, s = value % 60;
    switch (k->clock_form) {
    case 0: assert_int_equal(lar_buf_printf(b, "Current time: 2031-04-09T%02u:%02u:%02u.118Z", h, m, s), LAR_OK); break;
    case 1:
        assert_int_equal(lar_buf_printf(b, "The current date and time is Wednesday, April 09, 2031, %02u:%02u:%02u %s.",
                                        h > 12 ? h - 12 : h, m, s, h >= 12 ? "PM" : "AM"),
                         LAR_OK);
        break;
    default: assert_int_equal(lar_buf_printf(b, "当前时间：2031年4月9日 %02u时%02u分%02u秒", h, m, s), LAR_OK); break;
    }
}

static void print_system(lar_buf *text, const conversation *c, const breakage *k, uint32_t value) {
    bool clock = k->clock != TICK_NONE;
    assert_int_equal(lar_buf_printf(text, "%s. ", names[c->prompt]), LAR_OK);
    if (clock && k->clock_place == 0) {
        print_clock(text, k, value);
        add(text, "\n\n");
    }
    assert_int_equal(lar_buf_printf(text, "You are assistant number %u.\nAnswer briefly.\n\n", c->prompt), LAR_OK);
    if (clock && k->clock_place == 1) {
        print_clock(text, k, value);
        add(text, " ");
    }
    for (uint32_t i = 0; i < 12; i++)
        assert_int_equal(lar_buf_printf(text, "Rule %u: policy effective 2024-05-15 holds.\n", i), LAR_OK);
    if (k->extra == EXTRA_REQUEST_ID || k->extra == EXTRA_COUNTER || k->extra == EXTRA_PATH ||
        k->extra == EXTRA_SESSION)
        add(text, k->value);
    add(text, "Thank you.");
    if (clock && k->clock_place == 2) {
        add(text, "\n\n");
        print_clock(text, k, value);
    }
}

/* The text in a random form, as a JSON string. */
static void print_form(lar_buf *out, lar_slice text, bool breaks, rng *r) {
    bool crlf = breaks && pick(r, 2), bom = breaks && pick(r, 3) == 0;
    if (bom) add(out, "\xEF\xBB\xBF");
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] == '\n') add(out, crlf ? "\\r\\n" : "\\n");
        else assert_int_equal(lar_buf_add(out, text.ptr + i, 1), LAR_OK); /* nothing else here needs an escape */
    }
    static const char *const tails[] = {"", "", "\\n", " \\n", "\\n\\n", "\\t"};
    if (breaks) add(out, tails[pick(r, 6)]);
}

#define MARKER ",\"cache_control\":{\"type\":\"ephemeral\"}"

static void print_tools(lar_buf *out, uint32_t set, const breakage *brk, rng *r) {
    bool shuffle = brk->tools;
    uint32_t n = 2 + set * 2, order[16];
    for (uint32_t i = 0; i < n; i++) order[i] = i;
    for (uint32_t i = n; shuffle && i-- > 1;) {
        uint32_t o = pick(r, i + 1), x = order[i];
        order[i] = order[o];
        order[o] = x;
    }
    add(out, "\"tools\":[");
    for (uint32_t i = 0; i < n; i++) {
        /* both begin alike, as the names of two sets do */
        static const char *const forms[] = {
            "%s{\"name\":\"tool_%u_%u\",\"description\":\"Does %u\",\"input_schema\":{\"type\":\"object\",\"a\":{}}%s}",
            "%s{\"name\":\"tool_%u_%u\",\"description\":\"Does %u\",\"input_schema\":{\"a\":{},\"type\":\"object\"}%s}"};
        char mark[160];
        (void)snprintf(mark, sizeof mark, "%s%s%s", brk->extra == EXTRA_TOOL_PATH ? brk->value : "",
                       brk->extra == EXTRA_TOOL_PATH ? "\"" : "", brk->marker && i + 1 == n ? MARKER : "");
        if (brk->extra == EXTRA_TOOL_PATH)
            assert_int_equal(lar_buf_printf(out, "%s{\"name\":\"tool_%u_%u\",\"description\":\"Does %u. %s}",
                                            i ? ", " : "", set, order[i], order[i], mark),
                             LAR_OK);
        else
            assert_int_equal(lar_buf_printf(out, forms[brk->members ? pick(r, 2) : 0], i ? ", " : "", set, order[i],
                                            order[i], mark),
                             LAR_OK);
    }
    add(out, "]");
}

static void print_one(lar_buf *out, const conversation *c, uint32_t i, const breakage *k, rng *r) {
    const message *m = &c->m[i];
    switch (m->role) {
    case 'u':
        add(out, ",{\"role\":\"user\",\"content\":\"");
        if (i == 0 && k->extra == EXTRA_OPENING_PATH) {
            add(out, k->value);
            for (int f = 0; f < 16; f++) add(out, "src/parser.c\\nsrc/parser.h\\nsrc/scan.c\\n");
        }
        assert_int_equal(lar_buf_printf(out, "%s, part %u.", openers[m->words % 4], m->words), LAR_OK);
        if (k->user_blanks && (m->blank || pick(r, 2))) add(out, "\\n");
        add(out, "\"}");
        break;
    case 'c':
        assert_int_equal(
            lar_buf_printf(
                out,
                ",{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"call_%u\",\"type\":\"function\","
                "\"function\":{\"name\":\"tool_1\",\"arguments\":\"{\\\"n\\\": %u}\"}}]}",
                i, m->words),
            LAR_OK);
        break;
    case 't':
        assert_int_equal(
            lar_buf_printf(out, ",{\"role\":\"tool\",\"tool_call_id\":\"call_%u\",\"content\":\"result %u\\r\\n\"}",
                           i - 1, m->words),
            LAR_OK);
        break;
    default:
        assert_int_equal(lar_buf_printf(out, ",{\"role\":\"assistant\",\"content\":\"Answer number %u. \"}", m->words),
                         LAR_OK);
        break;
    }
}

/* The value of this request: of the request, of the conversation, or the count of its calls. */
static void make_value(breakage *k, const conversation *c, uint32_t request) {
    static const char *const forms[EXTRA_COUNT] = {"",
                                                   "request_id: 3f2a%04x-77de-4e10-9a53-%04xaabbccdd\\n",
                                                   "Turn %u of 80.\\n",
                                                   "Working directory: /srv/work_%u\\n",
                                                   "session_id: 5e55%04x-77de-4e10-9a53-aabbccddeeff\\n",
                                                   "Working directory: /srv/work_%u\\n",
                                                   "Today's date: 2024-05-15\\nWorking directory: /srv/work_%u\\n"};
    uint32_t n = k->extra == EXTRA_REQUEST_ID ? request * 7919 & 0xFFFF
                 : k->extra == EXTRA_COUNTER  ? c->calls + 1
                                              : c->constant % 5;
    (void)snprintf(k->value, sizeof k->value, forms[k->extra], n, n);
}

static void print_body(lar_buf *out, const conversation *c, const breakage *k, uint32_t value, rng *r) {
    lar_buf text;
    lar_buf_init(&text, 1u << 20);
    print_system(&text, c, k, value);
    add(out, "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"");
    if (k->billing)
        assert_int_equal(lar_buf_printf(out, "x-acme-billing-header: v=1.%u; cch=%05x;\\n", pick(r, 3),
                                        pick(r, 1u << 20)),
                         LAR_OK);
    print_form(out, lar_buf_slice(&text), k->lines, r);
    add(out, "\"}");
    for (uint32_t i = 0; i < c->count; i++) print_one(out, c, i, k, r);
    add(out, "],");
    print_tools(out, c->tools, k, r);
    add(out, ",\"temperature\":0.30}");
    lar_buf_release(&text);
}

/* The tools as a model reads them: the marker, always at the end, is none of it. */
static lar_buf read_tools(lar_slice tools) {
    lar_buf out;
    lar_buf_init(&out, 1u << 20);
    assert_int_equal(lar_buf_add_slice(&out, tools), LAR_OK);
    assert_int_equal(lar_buf_add(&out, "", 1), LAR_OK);
    out.len--;
    char *at = strstr(out.ptr, MARKER);
    if (!at) return out;
    size_t n = sizeof MARKER - 1;
    assert_string_equal(at + n, "}]");
    memmove(at, at + n, strlen(at + n) + 1);
    out.len -= n;
    return out;
}

/* What the model reads; tools in front of the system text or behind it. */
static void render(lar_slice body, bool tools_first, lar_buf *out) {
    lar_json j;
    lar_diag d;
    lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
    lar_json_init(&j);
    assert_int_equal(lar_json_parse(&j, body, &limits, &d), LAR_OK);
    lar_buf plain = read_tools(lar_json_raw(&j, lar_json_get(&j, 0, "tools")));
    lar_slice tools = lar_buf_slice(&plain);
    if (tools_first) assert_int_equal(lar_buf_add_slice(out, tools), LAR_OK);
    uint32_t messages = lar_json_get(&j, 0, "messages");
    bool head = true;
    for (uint32_t m = lar_json_first(&j, messages); m != LAR_JSON_NONE; m = lar_json_after(&j, messages, m)) {
        uint32_t content = lar_json_get(&j, m, "content");
        assert_int_equal(lar_buf_printf(out, "<%.*s>", LAR_FMT(lar_json_inner(&j, lar_json_get(&j, m, "role")))),
                         LAR_OK);
        if (lar_json_is(&j, content, LAR_JSON_STRING)) assert_int_equal(lar_json_decode(&j, content, out), LAR_OK);
        assert_int_equal(lar_buf_add_slice(out, lar_json_raw(&j, lar_json_get(&j, m, "tool_calls"))), LAR_OK);
        if (head && !tools_first) assert_int_equal(lar_buf_add_slice(out, tools), LAR_OK);
        head = false;
    }
    lar_buf_release(&plain);
    lar_json_release(&j);
}

static size_t common(lar_slice a, lar_slice b) {
    size_t n = a.len < b.len ? a.len : b.len, shared = 0;
    for (size_t i = 0; i < n && a.ptr[i] == b.ptr[i]; i++) {
        unsigned char c = (unsigned char)a.ptr[i];
        shared += c > ' ' && c != 0xEF && c != 0xBB && c != 0xBF;
    }
    return shared;
}

typedef struct history {
    lar_buf of[REQUESTS][2]; /* rendered: system first, tools first */
} history;

static size_t best(history *h, uint32_t n, int order, lar_slice body) {
    size_t most = 0;
    lar_buf_init(&h->of[n][order], 8u << 20);
    render(body, order == 1, &h->of[n][order]);
    for (uint32_t i = 0; i < n; i++) {
        size_t k = common(lar_buf_slice(&h->of[i][order]), lar_buf_slice(&h->of[n][order]));
        if (k > most) most = k;
    }
    return most;
}

static void start(conversation *c, rng *r) {
    *c = (conversation){.prompt = pick(r, PROMPTS),
                        .tools = pick(r, 3),
                        .constant = pick(r, 40000),
                        .least = UINT64_MAX};
    c->m[c->count++] = (message){'u', pick(r, 4), pick(r, 2)};
}

/* The client's next step: another turn, a tool round, the same again, a changed last message. */
static void step(conversation *c, rng *r) {
    if (c->count + 4 >= MESSAGES || pick(r, 12) == 0) {
        start(c, r);
        return;
    }
    char last = c->m[c->count - 1].role;
    switch (pick(r, 6)) {
    case 0: return; /* regenerate */
    case 1:
        if (last == 'u') c->m[c->count - 1].words = pick(r, 8);
        return;
    case 2:
    case 3:
        c->m[c->count++] = (message){'c', pick(r, 3), false};
        c->m[c->count++] = (message){'t', pick(r, 3), false};
        return;
    default:
        c->m[c->count++] = (message){'a', pick(r, 3), false};
        c->m[c->count++] = (message){'u', pick(r, 8), pick(r, 2)};
    }
}

static const uint64_t volatile_rules = 1ull << LAR_RULE_LR001 | 1ull << LAR_RULE_LR006 | 1ull << LAR_RULE_LR007 |
                                       1ull << LAR_RULE_LR008 | 1ull << LAR_RULE_LR009;

static void one_run(uint64_t seed, uint64_t *raw_sum, uint64_t *via_sum) {
    rng r = {seed * 0x9E3779B97F4A7C15u + 1};
    for (int i = 0; i < 8; i++) (void)pick(&r, 2);
    breakage k = {.clock = (tick)pick(&r, 4),
                  .clock_place = pick(&r, 3),
                  .clock_form = pick(&r, 3),
                  .tools = pick(&r, 2),
                  .lines = pick(&r, 2),
                  .user_blanks = pick(&r, 2),
                  .billing = pick(&r, 3) == 0,
                  .members = seed % 2 == 0,
                  .marker = seed % 3 == 0,
                  .extra = (extra)(seed % EXTRA_COUNT)};
    harness h;
    harness_init(&h);
    history *raw = calloc(1, sizeof *raw), *via = calloc(1, sizeof *via);
    conversation c[CONVERSATIONS];
    for (uint32_t i = 0; i < CONVERSATIONS; i++) start(&c[i], &r);
    uint64_t moved[PROMPTS][3][5] = {{{0}}}; /* by prompt, tools and directory, which may stay */
    uint32_t clock = 0;
    for (uint32_t n = 0; n < REQUESTS; n++) {
        conversation *one = &c[pick(&r, CONVERSATIONS)];
        if (one->sent) step(one, &r);
        one->sent = true;
        clock += k.clock == TICK_SLOW ? (pick(&r, 4) == 0) * 60 : 20 + pick(&r, 70);
        lar_buf body;
        lar_buf_init(&body, 8u << 20);
        make_value(&k, one, n);
        one->calls++;
        print_body(&body, one, &k, k.clock == TICK_CONVERSATION ? one->constant : clock, &r);
        size_t len;
        char *sent = harness_send(&h, LAR_PROTOCOL_CHAT, lar_buf_slice(&body), &len);
        assert_non_null(sent);
        uint64_t moves = h.out.rules_fired & volatile_rules;
        one->least &= moves;
        uint64_t *before = &moved[one->prompt][one->tools][one->constant % 5];
        bool first_move = moves & ~(*before & one->least);
        *before |= moves;
        for (int order = 0; order < 2; order++) {
            size_t a = best(raw, n, order, lar_buf_slice(&body)), b = best(via, n, order, lar_slice_of(sent, len));
            size_t chance = (k.clock_form == 1 ? 4u : 0u) + (k.extra == EXTRA_SESSION ? 8u : 0u) +
                            (k.billing ? sizeof "x-acme-billing-header: v=1.0; cch=00000;" : 0u);
            *raw_sum += a;
            *via_sum += b;
            if (b + chance < a && !first_move) {
                print_error(
                    "seed %llu request %u order %d: raw shares %zu, sent shares %zu (extra %d clock %d place %u form %u tools %d lines %d blanks %d billing %d)\n",
                    (unsigned long long)seed, n, order, a, b, (int)k.extra, (int)k.clock, k.clock_place, k.clock_form,
                    k.tools, k.lines, k.user_blanks, k.billing);
                fail();
            }
        }
        free(sent);
        lar_buf_release(&body);
    }
    for (uint32_t n = 0; n < REQUESTS; n++) {
        for (int order = 0; order < 2; order++) {
            lar_buf_release(&raw->of[n][order]);
            lar_buf_release(&via->of[n][order]);
        }
    }
    free(raw);
    free(via);
    harness_release(&h);
}

static void test_never_worse(void **state) {
    (void)state;
    uint64_t raw = 0, via = 0;
    for (uint64_t seed = 1; seed <= RUNS; seed++) one_run(seed, &raw, &via);
    print_message("shared bytes: raw %llu, sent %llu\n", (unsigned long long)raw, (unsigned long long)via);
    assert_true(via > raw + raw / 4); /* and it is worth having */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_never_worse)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
