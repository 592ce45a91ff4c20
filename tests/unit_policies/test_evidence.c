/* What moves and what stays, by evidence: every class and every place, through the whole of canon. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "canon_harness.h"

#define POINTER "(see the latest <runtime-context>)"
#define OPEN                                                                                                           \
    "\\n\\n<runtime-context note=\\\"Added by the gateway. Facts valid for this turn only; not part of the user's request.\\\">\\n"
#define CLOSE "</runtime-context>"
#define CHAT(system, rest) "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"" system "\"}," rest "]}"
#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define ASSISTANT(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define TOOL_RESULT "{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"t\"}"

static void expect_as(harness *h, lar_protocol p, const char *body, const char *want) {
    size_t len;
    char *sent = harness_send(h, p, lar_slice_cstr(body), &len);
    assert_int_equal(h->error, LAR_OK);
    assert_string_equal(sent, want);
    free(sent);
}
static void expect(harness *h, const char *body, const char *want) { expect_as(h, LAR_PROTOCOL_CHAT, body, want); }
static void same(harness *h, const char *body) { expect(h, body, body); }
static bool fired(const harness *h, lar_rule r) { return h->out.rules_fired >> r & 1; }
static bool seen(const harness *h, lar_rule r) { return h->out.rules_seen >> r & 1; }

static void sent(harness *h, char *out, size_t room, const char *body) {
    size_t len;
    char *s = harness_send(h, LAR_PROTOCOL_CHAT, lar_slice_cstr(body), &len);
    assert_int_equal(h->error, LAR_OK);
    assert_true(len < room);
    memcpy(out, s, len + 1);
    free(s);
}

static const struct {
    lar_rule rule;
    lar_volatile_class class_id;
    const char *before, *values[3];
} slots[] = {
    {LAR_RULE_LR005, LAR_VOLATILE_DATE, "Today's date: ", {"2031-04-09", "2031-04-10", "2031-04-11"}},
    {LAR_RULE_LR006,
     LAR_VOLATILE_REQUEST_ID,
     "request_id: ",
     {"3f2a91bc-77de-4e10-9a53-0c1d2e3f4a5b", "a1b2c3d4-e5f6-4711-8899-aabbccddeeff",
      "01234567-89ab-4cde-8f01-23456789abcd"}},
    {LAR_RULE_LR007,
     LAR_VOLATILE_SESSION_ID,
     "session_id: ",
     {"3f2a91bc-77de-4e10-9a53-0c1d2e3f4a5b", "a1b2c3d4-e5f6-4711-8899-aabbccddeeff",
      "01234567-89ab-4cde-8f01-23456789abcd"}},
    {LAR_RULE_LR008, LAR_VOLATILE_BUDGET, "Remaining tokens: ", {"198,629", "197,001", "99,000"}},
    {LAR_RULE_LR009, LAR_VOLATILE_PATH, "Working directory: ", {"/tmp/job_0a1b2c", "/tmp/job_ffee11", "/srv/x"}}};
enum { SLOTS = sizeof slots / sizeof *slots };

/* Each class moves once its slot held another value, be it in another conversation; not with its rule off. */
static void test_every_class_moves(void **state) {
    (void)state;
    for (size_t i = 0; i < SLOTS; i++) {
        for (int off = 0; off < 2; off++) {
            harness h;
            harness_init(&h);
            h.options.rules_off = off ? 1ull << slots[i].rule : 0;
            char body[1024], got[2048];
            for (int k = 0; k < 3; k++) {
                (void)snprintf(body, sizeof body, CHAT("You are careful.\\n%s%s\\nBe brief.", USER("q%d")),
                               slots[i].before, slots[i].values[k], k);
                sent(&h, got, sizeof got, body);
                bool moves = !off && k > 0;
                assert_int_equal(strcmp(got, body) != 0, moves);
                assert_int_equal(fired(&h, slots[i].rule), moves);
                assert_int_equal(seen(&h, slots[i].rule), !off);
                if (off) continue;
                assert_true(h.out.finding_count >= 1);
                assert_int_equal(h.out.findings[0].class_id, slots[i].class_id);
                assert_int_equal(h.out.findings[0].confirmed, moves);
                if (moves) assert_non_null(strstr(strstr(got, "<runtime-context note"), slots[i].values[k]));
            }
            harness_release(&h);
        }
    }
}

/* A conversation that began with its value in the prompt keeps it there, whatever is learnt meanwhile. */
static void test_began_unmoved_stays_unmoved(void **state) {
    (void)state;
    for (size_t i = 0; i < SLOTS; i++) {
        harness h;
        harness_init(&h);
        h.options.rules_off = 0;
        h.now_ms = 1933485342000; /* the clock beside it moves from the start: 2031-04-09T07:15:42Z */
        char body[1024], got[2048];
        for (int k = 0; k < 6; k++) {
            int conversation = k % 2;
            (void)snprintf(body, sizeof body,
                           CHAT("You.\\nCurrent time: 2031-04-09T07:15:%02dZ\\n%s%s\\nEnd.", USER("question %d") "%s"),
                           42 + k, slots[i].before, slots[i].values[conversation], conversation,
                           k >= 4   ? "," ASSISTANT("a") "," USER("b") "," ASSISTANT("c") "," USER("d")
                           : k >= 2 ? "," ASSISTANT("a") "," USER("b")
                                    : "");
            sent(&h, got, sizeof got, body);
            assert_non_null(strstr(got, "Current time: " POINTER));
            char in_place[128];
            (void)snprintf(in_place, sizeof in_place, "%s%s\\nEnd.", slots[i].before, slots[i].values[conversation]);
            assert_int_equal(strstr(got, in_place) != NULL, conversation == 0);
        }
        harness_release(&h);
    }
}

/* A counter says 1 at the start of every conversation: that does not bring the old form back. */
static void test_counters_begin_again(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    char body[1024], got[2048];
    for (int conversation = 0; conversation < 3; conversation++) {
        for (int k = 0; k < 3; k++) {
            (void)snprintf(body, sizeof body, CHAT("You.\\n\\nTurn %d of 80.", USER("question %d") "%s"), k + 1,
                           conversation, k ? "," ASSISTANT("a") "," TOOL_RESULT : "");
            sent(&h, got, sizeof got, body);
            if (conversation == 0 && k == 0) assert_string_equal(got, body);
            else if (conversation > 0) assert_null(strstr(got, "\\n\\nTurn 1 of 80."));
        }
    }
    assert_true(fired(&h, LAR_RULE_LR008));
    harness_release(&h);
}

/* Two prompts that each hold a constant behind one label. */
static void test_constants_of_other_prompts(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    h.options.rules_off = 0;
    for (int i = 0; i < 20; i++) {
        char body[1024];
        (void)snprintf(body, sizeof body,
                       CHAT("Prompt %c, date: 2024-05-%02d, as of time: 2024-05-%02d 10:00.\\nWorking directory: "
                            "/srv/%c\\nrequest_id: abc-%04d",
                            USER("q")),
                       'a' + i % 4, 10 + i % 4, 10 + i % 4, 'a' + i % 4, 1234 + i % 4);
        same(&h, body);
    }
    harness_release(&h);
}

/* A label with several values is that of records or of a log, in a prompt or in what a user asks about: that it varies
 * elsewhere, or shows now, does not count. Where it was seen to vary itself, it moves. */
static void test_labels_of_several_values(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    h.now_ms = 1933485342000; /* 2031-04-09T07:15:42Z */
    same(&h, CHAT("You are careful.\\nUser ID: 48211700\\nBranch: feat/a", USER("q")));
    const char *head = CHAT("You are careful.\\nUser ID: 48211800\\nBranch: feat/b", USER("q"));
    char got[2048];
    sent(&h, got, sizeof got, head);
    assert_true(fired(&h, LAR_RULE_LR007) && fired(&h, LAR_RULE_LR009));
    same(&h, CHAT("Accounts:\\n- User ID: 48211700\\n  Branch: feat/c\\n- User ID: 50112900\\n  Branch: main\\n",
                  USER("q")));
    sent(&h, got, sizeof got, CHAT("Account:\\nUser ID: 48211700. Again, User ID: 48211700.", USER("q")));
    assert_true(fired(&h, LAR_RULE_LR007));
    same(&h, CHAT("Log.\\nTimestamp: 2031-04-09T07:15:02Z\\nstart\\nTimestamp: 2031-04-09T07:15:09Z\\nend", USER("q")));
    same(&h,
         "{\"messages\":[" USER("Which is ahead?\\nServer A, current time: 2031-04-09T07:15:02Z\\nServer B, current "
                                "time: 2031-04-09T07:15:40Z") "]}");
    sent(&h, got, sizeof got,
         CHAT("Log.\\nTimestamp: 2031-04-09T07:15:08Z\\nstart\\nTimestamp: 2031-04-09T07:15:31Z\\nend", USER("q")));
    assert_true(fired(&h, LAR_RULE_LR001));
    assert_non_null(strstr(got, "Timestamp: 2031-04-09T07:15:08Z\\nTimestamp: 2031-04-09T07:15:31Z"));
    harness_release(&h);
}

#define TOOL(name, text) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"description\":\"" text "\"}}"
#define TOOLS(list) "{\"model\":\"m\",\"messages\":[" USER("%s") "],\"tools\":[" list "]}"

/* Descriptions of tools: the value moves, order and sets hold whatever it is. */
static void test_tool_descriptions(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    char body[1024], want[1024];
    (void)snprintf(body, sizeof body, TOOLS(TOOL("bash", "Runs. Working directory: /tmp/a1") "," TOOL("get", "Gets.")),
                   "q");
    same(&h, body);
    (void)snprintf(body, sizeof body, TOOLS(TOOL("get", "Gets.") "," TOOL("bash", "Runs. Working directory: /tmp/b2")),
                   "q");
    (void)snprintf(want, sizeof want, TOOLS(TOOL("bash", "Runs. Working directory: " POINTER) "," TOOL("get", "Gets.")),
                   "q" OPEN "Working directory: /tmp/b2\\n" CLOSE);
    expect(&h, body, want);
    assert_true(fired(&h, LAR_RULE_LR003) && fired(&h, LAR_RULE_LR009));
    assert_int_equal(h.out.segments_known, 0);
    (void)snprintf(body, sizeof body, TOOLS(TOOL("bash", "Runs. Working directory: /tmp/c3") "," TOOL("get", "Gets.")),
                   "q");
    (void)snprintf(want, sizeof want, TOOLS(TOOL("bash", "Runs. Working directory: " POINTER) "," TOOL("get", "Gets.")),
                   "q" OPEN "Working directory: /tmp/c3\\n" CLOSE);
    expect(&h, body, want);
    /* members in another order, too */
    (void)snprintf(body, sizeof body,
                   TOOLS(TOOL("get", "Gets.") ",{\"function\":{\"description\":\"Runs. Working directory: "
                                              "/tmp/d4\",\"name\":\"bash\"},\"type\":\"function\"}"),
                   "q");
    (void)snprintf(want, sizeof want, TOOLS(TOOL("bash", "Runs. Working directory: " POINTER) "," TOOL("get", "Gets.")),
                   "q" OPEN "Working directory: /tmp/d4\\n" CLOSE);
    expect(&h, body, want);
    /* what first stood there stays there */
    (void)snprintf(body, sizeof body, TOOLS(TOOL("bash", "Runs. Working directory: /tmp/a1") "," TOOL("get", "Gets.")),
                   "q");
    same(&h, body);
    harness_release(&h);
}

/* Several tools with values, in any order: the block says the same. */
static void test_tools_in_any_order(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    char body[2048], first[2048], got[2048];
    static const char *const orders[] = {TOOLS("%s,%s,%s"), TOOLS("%s,%s,%s"), TOOLS("%s,%s,%s")};
    for (int k = 0; k < 4; k++) {
        char t[3][256];
        for (int i = 0; i < 3; i++)
            (void)snprintf(t[i], sizeof t[i], TOOL("t%d", "Working directory: /tmp/%c%d"), i, k == 0 ? 'a' : 'b', i);
        int a = k % 3, b = (k + 1) % 3, c = (k + 2) % 3;
        (void)snprintf(body, sizeof body, orders[0], "q", t[a], t[b], t[c]);
        sent(&h, got, sizeof got, body);
        if (k == 1) (void)snprintf(first, sizeof first, "%s", got);
        if (k > 1) assert_string_equal(got, first);
    }
    harness_release(&h);
}

/* What an agent tells of its folder: enough behind a value that moving it is worth something. */
#define FILES60 "src/parser.c\\nsrc/parser.h\\nsrc/scan.c\\nsrc/scan.h\\ntests/x.c\\n"
#define FILES FILES60 FILES60 FILES60 FILES60 FILES60 FILES60 FILES60 FILES60 FILES60
#define CONTEXT(dir) "Set-up.\\n- Today's date: 2024-05-15\\n- Working directory: " dir "\\n- Files:\\n" FILES

/* The message an agent opens with: by all that stands before the value, for the question makes each text another. */
static void test_openings(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    same(&h, CHAT("You.", USER(CONTEXT("/tmp/a1") "Question 1")));
    expect(&h, CHAT("You.", USER(CONTEXT("/tmp/b2") "Question 2")),
           CHAT("You.", USER(CONTEXT(POINTER) "Question 2" OPEN "Working directory: /tmp/b2\\n" CLOSE)));
    assert_true(fired(&h, LAR_RULE_LR009));
    /* tool rounds, a next turn */
    expect(&h, CHAT("You.", USER(CONTEXT("/tmp/b2") "Question 2") "," ASSISTANT("x") "," TOOL_RESULT),
           CHAT("You.", USER(CONTEXT(POINTER) "Question 2" OPEN "Working directory: /tmp/b2\\n" CLOSE) "," ASSISTANT(
                            "x") "," TOOL_RESULT));
    expect(&h, CHAT("You.", USER(CONTEXT("/tmp/b2") "Question 2") "," ASSISTANT("x") "," USER("next")),
           CHAT("You.", USER(CONTEXT(POINTER) "Question 2" OPEN "Working directory: /tmp/b2\\n" CLOSE) "," ASSISTANT(
                            "x") "," USER("next")));
    assert_int_equal(h.out.segments_known, 2);
    /* the conversation that began before stays as it was */
    same(&h, CHAT("You.", USER(CONTEXT("/tmp/a1") "Question 1") "," ASSISTANT("x") "," USER("next")));
    /* behind the first answer nothing is read */
    same(&h, CHAT("You.", USER("Hi") "," ASSISTANT("x") "," USER(CONTEXT("/tmp/c3"))));
    same(&h, CHAT("You.", USER("Hi") "," ASSISTANT("x") "," USER(CONTEXT("/tmp/d4"))));
    /* other words before it, or another prompt: another place */
    same(&h, CHAT("You.", USER("Look. " CONTEXT("/tmp/e5"))));
    same(&h, CHAT("Me.", USER(CONTEXT("/tmp/f6"))));
    harness_release(&h);
}

/* Context and question in messages and parts of their own; developer text in between. */
static void test_openings_in_several_messages(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
#define CODEX(dir, question, block)                                                                                    \
    "{\"model\":\"m\",\"instructions\":\"You.\",\"input\":[{\"type\":\"message\",\"role\":\"user\",\"content\":[{"     \
    "\"type\":\"input_text\",\"text\":\"<cwd>" dir "</cwd>" FILES                                                      \
    "\"}]},{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"" question         \
    "\"}" block "]}]}"
#define PART(text) ",{\"type\":\"input_text\",\"text\":\"" text "\"}"
    const lar_protocol p = LAR_PROTOCOL_RESPONSES;
    expect_as(&h, p, CODEX("/tmp/a1", "one", ""), CODEX("/tmp/a1", "one", ""));
    expect_as(&h, p, CODEX("/tmp/b2", "two", ""), CODEX(POINTER, "two", PART(OPEN "cwd: /tmp/b2\\n" CLOSE)));
    assert_int_equal(h.out.segments_known, 1);
    expect_as(&h, p, CODEX("/tmp/c3", "three", ""), CODEX(POINTER, "three", PART(OPEN "cwd: /tmp/c3\\n" CLOSE)));
    assert_int_equal(h.out.segments_known, 2);
    harness_release(&h);
}

/* Out of a user's own words nothing moves but clocks, however often its place was seen to vary. */
static void test_own_words_stay(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    static const char *const forms[] = {
        CHAT("You.", USER("User ID: 700000%d\\nDelete this user.")),
        CHAT("You.", USER("Request ID: req_9fK2aa%d\\nDelete this request.")),
        CHAT("You.", USER("User ID: 700000%d, session_id: sess_9fK2aa1%d\\n" FILES "Delete them.")),
        CHAT("You.", USER("Working directory: /srv/w%d\\n" FILES "Delete them.")),
        CHAT("You.", USER("Working directory: /srv/w%d\\nCurrent branch: x%d\\nDelete both.")),
        CHAT("You.", USER("Step 1%d of 20 fails.") "," USER("Delete it."))};
    for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
        for (int i = 0; i < 4; i++) {
            char body[2048];
            (void)snprintf(body, sizeof body, forms[k], i, i);
            same(&h, body);
            assert_int_equal(h.out.rules_seen, 0);
        }
    }
    harness_release(&h);
}

/* Nothing is shared behind a value that stays: what stands in front of it moves only for the text between them. */
static void test_nothing_behind_what_stays(void **state) {
    (void)state;
    static const struct {
        const char *body;
        uint32_t moved;
    } rows[] = {
        {CHAT("You.", USER("<cwd>/srv/w%d</cwd>" FILES "<root>/srv/w%d</root>" FILES) "," USER("Go")), 2},
        {CHAT("You.", USER("<cwd>/srv/w%d</cwd>" FILES "<root>/srv/w%d</root>") "," USER("Go")), 1},
        {CHAT("You.", USER("<cwd>/srv/w%d</cwd>" FILES60 "<root>/srv/w%d</root>" FILES60 FILES60) "," USER("Go")), 0},
        {CHAT("You.", USER("<cwd>/srv/w%d</cwd>" FILES60 "<cwd>/srv/w%d</cwd>") "," USER(FILES)), 2}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        harness h;
        harness_init(&h);
        char got[8192], body[4096];
        for (int i = 0; i < 2; i++) {
            (void)snprintf(body, sizeof body, rows[k].body, i + 10000000, i + 10000000);
            sent(&h, got, sizeof got, body);
        }
        uint32_t pointers = 0;
        for (const char *p = got; (p = strstr(p, POINTER)) != NULL; p++) pointers++;
        assert_int_equal(pointers, rows[k].moved);
        harness_release(&h);
    }
}

/* From 512 bytes behind the value on: up to the end of the opening's last message, the values themselves left out. */
static void test_enough_behind(void **state) {
    (void)state;
    for (int k = 0; k < 4; k++) {
        harness h;
        harness_init(&h);
        char got[4096], body[2048];
        for (int i = 0; i < 2; i++) {
            (void)snprintf(body, sizeof body, CHAT("You.", USER("Working directory: /srv/w%d%s\\n%0*d") "," USER("Go")),
                           i, k < 2 ? "" : "/and/a/longer/one", 512 - (int)strlen("\\n\"}," USER("Go")) - (k & 1), 7);
            sent(&h, got, sizeof got, body);
        }
        assert_int_equal(strstr(got, POINTER) != NULL, !(k & 1));
        harness_release(&h);
    }
}

/* As some agents open: date, folders and a tree whose root is named again, then the model's consent. The root moves
 * with its folder, so that the tree is shared. */
static void test_tree_in_an_opening(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
#define TREE(dir, root)                                                                                                \
    "Context for our chat.\\nToday's date is Thursday, May 16, 2024.\\nMy operating system is: linux\\nI'm currently " \
    "working in the directory: " dir "\\nHere is its folder structure:\\n\\n" root "\\n" FILES
#define AGREED(question) "," ASSISTANT("Got it.") "," USER(question)
#define TWO "/srv/checkout-two"
    same(&h, CHAT("You.", USER(TREE("/srv/checkout-one", "/srv/checkout-one/")) AGREED("Fix it.")));
    for (int i = 0; i < 3; i++)
        expect(&h, CHAT("You.", USER(TREE(TWO, TWO "/")) AGREED("Fix it.")),
               CHAT("You.", USER(TREE(POINTER, POINTER))
                                AGREED("Fix it." OPEN "working in the directory: " TWO "\\nValue: " TWO "/\\n" CLOSE)));
    assert_true(fired(&h, LAR_RULE_LR009));
    harness_release(&h);
}

/* A clock in an opening: when it shows now, or changes within its conversation; a constant stays. */
static void test_clocks_in_openings(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    for (int i = 0; i < 5; i++) {
        char body[512];
        (void)snprintf(body, sizeof body, CHAT("You.", USER("The current time is 2024-05-15 15:0%d:00 EST. Book %d.")),
                       i, i);
        same(&h, body);
    }
    same(&h, CHAT("You.", USER("Current time: 2024-05-15 15:00:00. Go") "," ASSISTANT("x") "," TOOL_RESULT));
    expect(&h, CHAT("You.", USER("Current time: 2024-05-15 15:00:09. Go") "," ASSISTANT("x") "," TOOL_RESULT),
           CHAT("You.", USER("Current time: " POINTER ". Go" OPEN
                             "Current time: 2024-05-15 15:00:09\\n" CLOSE) "," ASSISTANT("x") "," TOOL_RESULT));
    h.now_ms = 1933485342000;
    expect(&h, CHAT("You.", USER("Now: 2031-04-09 15:15:40. Hi")),
           CHAT("You.", USER("Now: " POINTER ". Hi" OPEN "Now: 2031-04-09 15:15:40\\n" CLOSE)));
    harness_release(&h);
}

#define SESSION(id, rest) CHAT("session_id: " id "\\nCurrent time: 2031-04-09T07:15:%02dZ\\nYou.", rest)
#define ID_A "3f2a91bc-77de-4e10-9a53-0c1d2e3f4a5b"
#define ID_B "a1b2c3d4-e5f6-4711-8899-aabbccddeeff"

/* No block of one session is recalled for another, however alike their conversations are. */
static void test_sessions_are_apart(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    char body[1024], got[4096];
    for (int k = 0; k < 12; k++) {
        const char *form[2] = {SESSION(ID_A, USER("hi") "%s"), SESSION(ID_B, USER("hi") "%s")};
        (void)snprintf(body, sizeof body, form[k / 2 % 2], 10 + k, k % 2 ? "," ASSISTANT("hello") "," USER("and") : "");
        sent(&h, got, sizeof got, body);
        if (k < 2) continue;
        bool moved = strstr(got, "session_id: " POINTER) != NULL;
        bool b = k / 2 % 2;
        assert_int_equal(moved, b); /* A began unmoved */
        assert_null(strstr(got, b ? ID_A : ID_B));
        assert_non_null(strstr(got, b ? ID_B : ID_A));
    }
    harness_release(&h);
}

/* Values lie in memory as hashes, but for blocks of facts, which are found by their conversation only. */
static void test_evidence_holds_no_values(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    char got[2048];
    sent(&h, got, sizeof got, CHAT("session_id: " ID_A "\\nYou.", USER("hi")));
    sent(&h, got, sizeof got, CHAT("session_id: " ID_B "\\nYou.", USER("hi")));
    uint32_t blocks = 0;
    for (uint32_t i = 0; i < h.out.put_count; i++) {
        lar_slice v = h.out.puts[i].value;
        bool held = memmem(v.ptr, v.len, ID_B, sizeof ID_B - 1) != NULL;
        blocks += held;
        assert_true(!held || memmem(v.ptr, v.len, "runtime-context", 15) != NULL);
    }
    assert_int_equal(blocks, 1);
    harness_release(&h);
}

#define RUN(folder, id, rest) CHAT("Working directory: " folder "\\nrequest_id: " id "\\nYou.", USER("fix it") rest)
#define CALL(n) "{\"id\":\"" n "\",\"type\":\"function\",\"function\":{\"name\":\"ls\",\"arguments\":\"{}\"}}"
#define CALLS(n)                                                                                                       \
    ",{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[" CALL(n) "]},{\"role\":\"tool\","                      \
                                                                         "\"tool_call_id\":\"" n                       \
                                                                         "\",\"content\":\"t\"}"

/* Of conversations that begin alike none is told the folder of another one: neither one that began with its folder in
 * the prompt, beside a value that is learnt later, nor one of more than there is room for. */
static void test_rounds_say_their_own_folder(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    char got[4096];
    sent(&h, got, sizeof got, RUN("/srv/one", "r-1001-aaaa", ""));
    sent(&h, got, sizeof got, RUN("/srv/two", "r-1002-bbbb", ""));
    assert_non_null(strstr(got, "\\nWorking directory: /srv/two\\n"));
    sent(&h, got, sizeof got, RUN("/srv/one", "r-1003-cccc", CALLS("a")));
    assert_non_null(strstr(got, "\"Working directory: /srv/one\\nrequest_id: " POINTER)); /* as it began */
    assert_null(strstr(got, "/srv/two"));
    static const char *const others[] = {RUN("/srv/6", "r-6", ""), RUN("/srv/5", "r-5", ""), RUN("/srv/4", "r-4", ""),
                                         RUN("/srv/3", "r-3", "")};
    for (int i = 0; i < 4; i++) sent(&h, got, sizeof got, others[i]);
    for (int round = 0; round < 2; round++) {
        const char *body = round ? RUN("/srv/two", "r-1005-eeee", CALLS("a") CALLS("b"))
                                 : RUN("/srv/two", "r-1004-dddd", CALLS("a"));
        sent(&h, got, sizeof got, body);
        assert_non_null(strstr(got, "\\nWorking directory: /srv/two\\n"));
        assert_null(strstr(got, "/srv/3"));
        assert_non_null(strstr(got, "r-1004-dddd")); /* opened anew once, then the bytes stay */
    }
    sent(&h, got, sizeof got, RUN("/srv/6", "r-7", "," ASSISTANT("done") "," USER("and")));
    assert_null(strstr(got, "/srv/3"));
    harness_release(&h);
}

#define AT(folder, rest) CHAT("Working directory: " folder "\\nYou.", USER("hi") rest)

/* Two that begin alike and get the same answer keep each its own block, and so the prefix of each. */
static void test_same_answer_own_folder(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    char got[4096], want[512];
    sent(&h, got, sizeof got, AT("/srv/one", ""));
    sent(&h, got, sizeof got, AT("/srv/two", ""));
    static const char *const bodies[][3] = {
        {"/srv/three", AT("/srv/three", ""), AT("/srv/three", "," ASSISTANT("hello") "," USER("and"))},
        {"/srv/four", AT("/srv/four", ""), AT("/srv/four", "," ASSISTANT("hello") "," USER("and"))}};
    for (int turn = 1; turn < 4; turn++) {
        for (int k = 0; k < 2; k++) {
            sent(&h, got, sizeof got, bodies[k][turn == 1 ? 1 : 2]);
            (void)snprintf(want, sizeof want, USER("hi" OPEN "Working directory: %s\\n" CLOSE), bodies[k][0]);
            assert_non_null(strstr(got, want));
            assert_null(strstr(got, bodies[!k][0]));
        }
    }
    harness_release(&h);
}

/* Fresh ids of input items mean nothing: the conversation is known, the bytes go as they came. */
static void test_item_ids(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    const lar_protocol p = LAR_PROTOCOL_RESPONSES;
#define ITEMS(n)                                                                                                       \
    "{\"model\":\"m\",\"input\":[{\"type\":\"message\",\"id\":\"msg_" n                                                \
    "1\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"hi\"}]},{\"type\":\"function_call\","      \
    "\"id\":\"fc_" n "2\",\"call_id\":\"c1\",\"name\":\"f\",\"arguments\":\"{}\"},{\"type\":\"function_call_output\"," \
    "\"id\":\"out_" n "3\",\"call_id\":\"c1\",\"output\":\"ok\"}]}"
    expect_as(&h, p, ITEMS("a"), ITEMS("a"));
    assert_int_equal(h.out.segments_known, 0);
    expect_as(&h, p, ITEMS("b"), ITEMS("b"));
    assert_int_equal(h.out.segments_known, 3);
    /* what refers to an item by its id is that id */
    expect_as(&h, p, "{\"model\":\"m\",\"input\":[{\"type\":\"item_reference\",\"id\":\"x1\"}]}",
              "{\"model\":\"m\",\"input\":[{\"type\":\"item_reference\",\"id\":\"x1\"}]}");
    expect_as(&h, p, "{\"model\":\"m\",\"input\":[{\"type\":\"item_reference\",\"id\":\"x2\"}]}",
              "{\"model\":\"m\",\"input\":[{\"type\":\"item_reference\",\"id\":\"x2\"}]}");
    assert_int_equal(h.out.segments_known, 0);
    harness_release(&h);
}

/* A plain prompt is where the model writes on: only a billing line is dropped, the rest is reported. */
static void test_plain_prompts(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    const lar_protocol p = LAR_PROTOCOL_COMPLETIONS;
    for (int k = 0; k < 4; k++) {
        char body[256];
        (void)snprintf(body, sizeof body,
                       "{\"model\":\"m\",\"prompt\":\"Current time: 2031-04-09T07:15:4%dZ\\nOnce%s\"}", k,
                       k % 2 ? "\\r\\n " : "");
        expect_as(&h, p, body, body);
        assert_true(seen(&h, LAR_RULE_LR001));
        assert_int_equal(h.out.findings[0].confirmed, k > 0);
        assert_int_equal(h.out.findings[0].edited, false);
    }
    expect_as(&h, p, "{\"prompt\":\"x-acme-billing-header: cch=1;\\nOnce\"}", "{\"prompt\":\"Once\"}");
    expect_as(&h, p, "{\"prompt\":[1,2,3]}", "{\"prompt\":[1,2,3]}");
    expect_as(&h, p, "{\"prompt\":[\"a\",\"b\"]}", "{\"prompt\":[\"a\",\"b\"]}");
    harness_release(&h);
}

#define ROUND "," ASSISTANT("x") "," TOOL_RESULT

/* canon.facts_refresh: in a long turn the block is told anew, and stays again. */
static void test_refresh(void **state) {
    (void)state;
    for (int on = 0; on < 2; on++) {
        harness h;
        harness_init(&h);
        h.options.facts_refresh_ms = on ? 60000 : 0;
        char got[4096], want[4096];
        sent(&h, got, sizeof got, CHAT("Current time: 2031-04-09T07:00:00Z\\nYou.", USER("warm")));
        static const char *const second[] = {"01:00", "01:30", "01:50", "02:10", "02:20"};
        static const char *const told[2][5] = {{"01:00", "01:00", "01:00", "01:00", "01:00"},
                                               {"01:00", "01:00", "01:00", "02:10", "02:10"}};
        static const char *const rounds[] = {"", ROUND, ROUND ROUND, ROUND ROUND ROUND, ROUND ROUND ROUND ROUND};
        int64_t start = h.now_ms;
        static const int at_s[] = {0, 30, 50, 70, 80};
        for (int k = 0; k < 5; k++) {
            char body[4096];
            h.now_ms = start + at_s[k] * 1000;
            (void)snprintf(body, sizeof body, CHAT("Current time: 2031-04-09T07:%sZ\\nYou.", USER("go") "%s"),
                           second[k], rounds[k]);
            (void)snprintf(want, sizeof want,
                           CHAT("Current time: " POINTER "\\nYou.",
                                USER("go" OPEN "Current time: 2031-04-09T07:%sZ\\n" CLOSE) "%s"),
                           told[on][k], rounds[k]);
            expect(&h, body, want);
        }
        harness_release(&h);
    }
}

/* Values that stand in a block are none of the client's: what was sent once goes through a second gateway. */
static void test_blocks_are_not_searched(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    char one[4096], two[4096];
    sent(&h, one, sizeof one, CHAT("You.", USER(CONTEXT("/tmp/a1") "Question 1")));
    for (int k = 0; k < 3; k++) {
        char body[2048];
        (void)snprintf(body, sizeof body, CHAT("You.", USER(CONTEXT("/tmp/b%d") "Question 2")), k);
        sent(&h, one, sizeof one, body);
        assert_string_not_equal(one, body);
        sent(&h, two, sizeof two, one);
        assert_string_equal(one, two);
    }
    harness_release(&h);
}

/* More spans than there are bits: those that are left stay where they are. */
static void test_many_spans(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    h.options.facts_bytes_max = 15000;
    char *body = malloc(100000), *got = malloc(200000);
    for (int k = 0; k < 2; k++) {
        size_t n = (size_t)snprintf(body, 100000, "{\"messages\":[{\"role\":\"system\",\"content\":\"");
        for (int i = 0; i < 200; i++)
            n += (size_t)snprintf(body + n, 100000 - n, "Item %c%c, current time: 2031-04-09T07:%02d:%02dZ\\n",
                                  'a' + i / 26, 'a' + i % 26, i % 60, i < 64 ? k : 0);
        (void)snprintf(body + n, 100000 - n, "\"}," USER("q") "]}");
        sent(&h, got, 200000, body);
        uint32_t pointers = 0;
        for (const char *p = got; (p = strstr(p, POINTER)) != NULL; p++) pointers++;
        assert_int_equal(pointers, k ? 64 : 0);
    }
    free(body);
    free(got);
    harness_release(&h);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_class_moves),
                                       cmocka_unit_test(test_began_unmoved_stays_unmoved),
                                       cmocka_unit_test(test_counters_begin_again),
                                       cmocka_unit_test(test_constants_of_other_prompts),
                                       cmocka_unit_test(test_labels_of_several_values),
                                       cmocka_unit_test(test_tool_descriptions),
                                       cmocka_unit_test(test_tools_in_any_order),
                                       cmocka_unit_test(test_openings),
                                       cmocka_unit_test(test_openings_in_several_messages),
                                       cmocka_unit_test(test_own_words_stay),
                                       cmocka_unit_test(test_enough_behind),
                                       cmocka_unit_test(test_nothing_behind_what_stays),
                                       cmocka_unit_test(test_tree_in_an_opening),
                                       cmocka_unit_test(test_clocks_in_openings),
                                       cmocka_unit_test(test_sessions_are_apart),
                                       cmocka_unit_test(test_evidence_holds_no_values),
                                       cmocka_unit_test(test_rounds_say_their_own_folder),
                                       cmocka_unit_test(test_same_answer_own_folder),
                                       cmocka_unit_test(test_item_ids),
                                       cmocka_unit_test(test_plain_prompts),
                                       cmocka_unit_test(test_refresh),
                                       cmocka_unit_test(test_blocks_are_not_searched),
                                       cmocka_unit_test(test_many_spans)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
