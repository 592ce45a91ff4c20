/* Kept answers: which requests and answers qualify, the table's time and room, and requests that share one under way.
 * */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/answers/answers.h"
#include "gateway/answers/answers_rules.h"

/* -- requests ---------------------------------------------------------------------------------------------------- */

#define M "\"model\":\"m\""
#define T0 ",\"temperature\":0"
#define STORE ",\"store\":false"
#define CHAT LAR_PROTOCOL_CHAT
#define RESPONSES LAR_PROTOCOL_RESPONSES
#define MESSAGES LAR_PROTOCOL_MESSAGES
#define JSON LAR_ANSWERS_JSON
#define STREAM LAR_ANSWERS_STREAM

static void which_requests_qualify(void **state) {
    (void)state;
    static const struct {
        lar_protocol p;
        bool greedy, sampled; /* with answers.sampled off, and on */
        const char *body;
    } rows[] = {
        {CHAT, true, true, "{" M T0 "}"},
        {CHAT, true, true, "{" M ",\"temperature\":0.0}"},
        {CHAT, true, true, "{" M ",\"temperature\":-0e7}"},
        {CHAT, false, true, "{" M "}"},
        {CHAT, false, true, "{" M ",\"temperature\":null}"},
        {CHAT, false, true, "{" M ",\"temperature\":1}"},
        {CHAT, false, true, "{" M ",\"temperature\":0.0001}"},
        {CHAT, false, true, "{" M ",\"temperature\":\"0\"}"},
        {CHAT, false, true, "{" M ",\"temperature\":0,\"temperature\":1}"},
        {CHAT, false, true, "{" M ",\"temperature\":0,\"temperature\":0}"},
        {CHAT, false, true, "{" M ",\"options\":{\"temperature\":0}}"},
        {CHAT, false, true, "{" M ",\"top_p\":0,\"seed\":1}"},
        {CHAT, true, true, "{" M T0 STORE "}"},
        {CHAT, false, false, "{" M T0 ",\"store\":true}"},
        {CHAT, false, false, "{" M T0 ",\"store\":\"yes\"}"},
        {CHAT, false, false, "{" M T0 ",\"store\":false,\"store\":true}"},
        {CHAT, false, false, "{" M T0 ",\"web_search_options\":{\"a\":1}}"},
        {CHAT, true, true, "{" M T0 ",\"tools\":[{\"type\":\"function\",\"function\":{}},{\"type\":\"custom\"}]}"},
        {CHAT, false, false, "{" M T0 ",\"tools\":[{\"type\":\"function\"},{\"type\":\"web_search\"}]}"},
        {CHAT, false, false, "{" M T0 ",\"tools\":[{}]}"},
        {CHAT, false, false, "{" M T0 ",\"tools\":7}"},
        {LAR_PROTOCOL_COMPLETIONS, true, true, "{" M T0 "}"},
        {LAR_PROTOCOL_COMPLETIONS, false, true, "{" M "}"},
        {LAR_PROTOCOL_EMBEDDINGS, true, true, "{" M "}"},
        {LAR_PROTOCOL_NONE, false, false, "{" M T0 "}"},
        {RESPONSES, true, true, "{" M T0 STORE "}"},
        {RESPONSES, false, true, "{" M STORE "}"},
        {RESPONSES, false, false, "{" M T0 "}"},
        {RESPONSES, false, false, "{" M T0 ",\"store\":null}"},
        {RESPONSES, false, false, "{" M T0 ",\"store\":true}"},
        {RESPONSES, false, false, "{" M T0 STORE ",\"previous_response_id\":\"r\"}"},
        {RESPONSES, true, true, "{" M T0 STORE ",\"previous_response_id\":null}"},
        {RESPONSES, false, false, "{" M T0 STORE ",\"conversation\":\"c\"}"},
        {RESPONSES, false, false, "{" M T0 STORE ",\"background\":true}"},
        {RESPONSES, true, true, "{" M T0 STORE ",\"background\":false}"},
        {RESPONSES, false, false, "{" M T0 STORE ",\"prompt\":{\"id\":\"p\"}}"},
        {RESPONSES, true, true, "{" M T0 STORE ",\"tools\":[{\"type\":\"function\",\"name\":\"f\"}]}"},
        {RESPONSES, false, false, "{" M T0 STORE ",\"tools\":[{\"type\":\"mcp\"}]}"},
        {RESPONSES, false, false, "{" M T0 STORE ",\"tools\":[{\"type\":\"file_search\"}]}"},
        {MESSAGES, true, true, "{" M T0 "}"},
        {MESSAGES, false, true, "{" M "}"},
        {MESSAGES, true, true,
         "{" M T0 ",\"tools\":[{\"name\":\"f\"},{\"type\":\"bash_20250124\",\"name\":\"bash\"}]}"},
        {MESSAGES, false, false, "{" M T0 ",\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"w\"}]}"},
        {MESSAGES, false, false, "{" M T0 ",\"tools\":[{\"type\":\"code_execution_20250522\"}]}"},
        {MESSAGES, false, false, "{" M T0 ",\"mcp_servers\":[{\"url\":\"u\"}]}"},
        {MESSAGES, false, false, "{" M T0 ",\"container\":\"c\"}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lar_json j;
        lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
        lar_json_init(&j);
        assert_int_equal(lar_json_parse(&j, lar_slice_cstr(rows[i].body), &limits, NULL), LAR_OK);
        lar_request_view v = {.json = &j, .protocol = rows[i].p};
        if (lar_answers_may_keep(&v, LAR_ANSWERS_GREEDY_ONLY) != rows[i].greedy ||
            lar_answers_may_keep(&v, LAR_ANSWERS_ANY_SAMPLING) != rows[i].sampled)
            fail_msg("row %zu: %s", i, rows[i].body);
        lar_json_release(&j);
    }
}

/* -- answers ----------------------------------------------------------------------------------------------------- */

static void which_answers_are_whole(void **state) {
    (void)state;
    static const struct {
        lar_protocol p;
        lar_answers_form form;
        bool whole;
        const char *body;
    } rows[] = {
        {LAR_PROTOCOL_CHAT, JSON, true,
         "{\"choices\":[{\"finish_reason\":\"stop\"},{\"finish_reason\" : \"length\"}]}"},
        {LAR_PROTOCOL_CHAT, JSON, true,
         "{\"choices\":[{\"message\":{\"content\":\"\\\"finish_reason\\\":\\\"abort\\\"\"}}]}"},
        {LAR_PROTOCOL_CHAT, JSON, true, "{\"choices\":[{\"message\":{\"content\":\"finish_reason\"}}]}"},
        {LAR_PROTOCOL_CHAT, JSON, false, "{\"choices\":[{\"finish_reason\":\"stop\"},{\"finish_reason\":\"abort\"}]}"},
        {LAR_PROTOCOL_CHAT, JSON, false, "{\"choices\":[{\"finish_reason\"\n:\t\"insufficient_system_resource\"}]}"},
        {LAR_PROTOCOL_CHAT, STREAM, true,
         "data: {\"choices\":[{\"finish_reason\":null}]}\n\ndata: "
         "{\"choices\":[{\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n"},
        {LAR_PROTOCOL_CHAT, STREAM, false, "data: {\"choices\":[{\"finish_reason\":\"error\"}]}\n\ndata: [DONE]\n\n"},
        {LAR_PROTOCOL_CHAT, JSON, false, "{\"choices\":[{\"finish_reason\":null}]}"},
        {LAR_PROTOCOL_CHAT, JSON, false, "{\"choices\":[{\"finish_reason\":7}]}"},
        {LAR_PROTOCOL_CHAT, STREAM, false, "data: {\"choices\":[{\"finish_reason\":null}]}\n\ndata: [DONE]\n\n"},
        {LAR_PROTOCOL_COMPLETIONS, JSON, false, "{\"choices\":[{\"finish_reason\":\"abort\"}]}"},
        {LAR_PROTOCOL_MESSAGES, JSON, true, "{\"stop_reason\":\"end_turn\"}"},
        {LAR_PROTOCOL_MESSAGES, JSON, false, "{\"stop_reason\":null}"},
        {LAR_PROTOCOL_MESSAGES, STREAM, true,
         "data: {\"message\":{\"stop_reason\":null}}\n\ndata: {\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n"},
        {LAR_PROTOCOL_MESSAGES, JSON, false, "{\"stop_reason\":\"pause_turn\"}"},
        {LAR_PROTOCOL_RESPONSES, JSON, true, "{\"object\":\"response\",\"status\":\"completed\"}"},
        {LAR_PROTOCOL_RESPONSES, JSON, false, "{\"object\":\"response\",\"status\":\"incomplete\"}"},
        {LAR_PROTOCOL_RESPONSES, JSON, false, "{\"object\":\"response\",\"status\":\"in_progress\"}"},
        {LAR_PROTOCOL_RESPONSES, JSON, false, "{\"object\":\"response\"}"},
        {LAR_PROTOCOL_RESPONSES, JSON, false, "{\"status\":\"completed\",\"status\":\"failed\"}"},
        {LAR_PROTOCOL_RESPONSES, JSON, false, "{\"status\":\"completed\""},
        {LAR_PROTOCOL_RESPONSES, STREAM, true,
         "data: {\"type\":\"response.created\"}\n\ndata: "
         "{\"type\":\"response.completed\",\"response\":{}}\n\n"},
        {LAR_PROTOCOL_RESPONSES, STREAM, false, "data: {\"type\":\"response.incomplete\",\"response\":{}}\n\n"},
        {LAR_PROTOCOL_RESPONSES, STREAM, false, "data: {\"type\":\"response.completedly\"}\n\n"},
        {LAR_PROTOCOL_RESPONSES, STREAM, false, ""},
        {LAR_PROTOCOL_EMBEDDINGS, JSON, true, "{\"data\":[]}"},
        {LAR_PROTOCOL_NONE, JSON, false, "{}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (lar_answers_is_whole(rows[i].p, rows[i].form, lar_slice_cstr(rows[i].body)) != rows[i].whole)
            fail_msg("row %zu: %s", i, rows[i].body);
}

/* -- the table --------------------------------------------------------------------------------------------------- */

static lar_digest key(unsigned n) { return lar_digest_of(lar_slice_of((const char *)&n, sizeof n)); }

static lar_kept *kept(unsigned n, size_t bytes, uint64_t expires_ms) {
    char *body = calloc(1, bytes + 1);
    assert_non_null(body);
    memset(body, 'a' + (int)(n % 26), bytes);
    lar_kept *k = lar_kept_new(LAR_SLICE("HTTP/1.1 200 OK\r\n"), lar_slice_of(body, bytes));
    free(body);
    assert_non_null(k);
    k->key = key(n);
    k->expires_ms = expires_ms;
    return k;
}

static void put(lar_answers_table *t, unsigned n, size_t bytes, uint64_t expires_ms, lar_error e) {
    lar_kept *k = kept(n, bytes, expires_ms);
    assert_int_equal(lar_answers_table_put(t, k), e);
    lar_kept_unref(k);
    assert_true(t->bytes <= t->bytes_max);
}

static bool there(lar_answers_table *t, unsigned n, uint64_t now_ms) {
    lar_digest d = key(n);
    lar_kept *k = lar_answers_table_find(t, &d, now_ms);
    assert_true(!k || k->body.ptr[0] == (char)('a' + n % 26));
    return k != NULL;
}

static void answers_have_their_time(void **state) {
    (void)state;
    lar_answers_table t;
    lar_answers_table_init(&t, 1 << 20);
    put(&t, 1, 100, 50, LAR_OK);
    assert_true(there(&t, 1, 0) && there(&t, 1, 49));
    assert_false(there(&t, 1, 50));
    assert_int_equal(t.count, 0);
    assert_int_equal(t.bytes, 0);
    put(&t, 1, 100, 50, LAR_OK); /* a new one takes the place of the old one */
    put(&t, 1, 200, 90, LAR_OK);
    assert_int_equal(t.count, 1);
    assert_true(there(&t, 1, 60));
    assert_int_equal(t.evicted, 0);
    lar_answers_table_release(&t);
}

static void the_least_recently_used_goes(void **state) {
    (void)state;
    lar_answers_table t;
    lar_kept *one = kept(0, 1000, UINT64_MAX);
    uint64_t each = lar_kept_bytes(one);
    lar_answers_table_init(&t, 3 * each);
    for (unsigned n = 0; n < 3; n++) put(&t, n, 1000, UINT64_MAX, LAR_OK);
    assert_true(there(&t, 0, 0));
    put(&t, 3, 1000, UINT64_MAX, LAR_OK);
    assert_true(there(&t, 0, 0) && there(&t, 2, 0) && there(&t, 3, 0));
    assert_false(there(&t, 1, 0));
    assert_int_equal(t.evicted, 1);
    put(&t, 4, 3 * (size_t)each, UINT64_MAX, LAR_LIMIT); /* larger than everything: nobody goes for it */
    assert_int_equal(t.count, 3);
    lar_digest d = key(3);
    lar_kept *held = lar_kept_ref(lar_answers_table_find(&t, &d, 0));
    lar_answers_table_limit(&t, each);
    assert_int_equal(t.count, 1);
    assert_true(there(&t, 3, 0));
    lar_answers_table_limit(&t, 0);
    assert_int_equal(t.bytes, 0);
    assert_int_equal(held->body.len, 1000); /* whoever sends it still has it */
    lar_kept_unref(held);
    lar_kept_unref(one);
    lar_answers_table_release(&t);
}

static void many_answers_are_found(void **state) {
    (void)state;
    lar_answers_table t;
    lar_answers_table_init(&t, 1 << 20); /* few buckets at first, and room for all later */
    put(&t, 0, 0, UINT64_MAX, LAR_OK);
    lar_answers_table_limit(&t, 64 << 20);
    for (unsigned n = 0; n < 20000; n++) put(&t, n, n % 50, UINT64_MAX, LAR_OK);
    for (unsigned n = 0; n < 20000; n++) {
        lar_digest d = key(n);
        lar_kept *k = lar_answers_table_find(&t, &d, 0);
        assert_true(k && k->body.len == n % 50);
    }
    assert_int_equal(t.count, 20000);
    lar_answers_table_release(&t);
}

/* -- sharing ----------------------------------------------------------------------------------------------------- */

enum { SEATS = 6 };

typedef struct room {
    lar_answers *a;
    lar_answers_door door;
    unsigned rung;
    lar_answers_seat seats[SEATS];
} room;

static void ring(void *bell) { ++*(unsigned *)bell; }

static void open_room(room *r) {
    *r = (room){.a = lar_answers_new(NULL, 1 << 20)};
    assert_non_null(r->a);
    r->door = (lar_answers_door){.ring = ring, .bell = &r->rung};
    for (int i = 0; i < SEATS; i++) r->seats[i] = (lar_answers_seat){.door = &r->door, .owner = &r->seats[i]};
}

static lar_answers_said ask(room *r, int seat, unsigned n) {
    lar_digest d = key(n);
    lar_answers_question q = {.key = &d, .now_ms = 0, .share = true};
    lar_kept *k = NULL;
    lar_answers_said said = lar_answers_ask(r->a, &r->seats[seat], &q, &k);
    assert_true((said == LAR_ANSWERS_FOUND) == (k != NULL));
    lar_kept_unref(k);
    return said;
}

/* Seats 0 to `count` ask for the same; the first leads. */
static void fill(room *r, int count) {
    open_room(r);
    assert_int_equal(ask(r, 0, 1), LAR_ANSWERS_LEADS);
    for (int i = 1; i < count; i++) assert_int_equal(ask(r, i, 1), LAR_ANSWERS_WAITS);
    assert_int_equal(r->rung, 0);
}

typedef enum called { CALLED_NONE, CALLED_ANSWER, CALLED_LEADS, CALLED_ALONE } called;

static called fetch(room *r, int seat) {
    lar_kept *k;
    lar_answers_seat *s = lar_answers_called(r->a, &r->door, &k);
    if (!s) return CALLED_NONE;
    assert_ptr_equal(s, &r->seats[seat]);
    lar_kept_unref(k);
    if (k) assert_int_equal(s->role, LAR_ANSWERS_NOBODY);
    return k ? CALLED_ANSWER : s->role == LAR_ANSWERS_LEADER ? CALLED_LEADS : CALLED_ALONE;
}

static void keep(room *r, int seat, unsigned n, size_t bytes) {
    lar_kept *k = kept(n, bytes, UINT64_MAX);
    lar_answers_keep(r->a, &r->seats[seat], k);
    lar_kept_unref(k);
}

static void one_answer_for_all(void **state) {
    (void)state;
    room r;
    fill(&r, 4);
    assert_int_equal(ask(&r, 4, 2), LAR_ANSWERS_LEADS); /* another request is another matter */
    keep(&r, 0, 1, 100);
    for (int i = 1; i < 4; i++) assert_int_equal(fetch(&r, i), CALLED_ANSWER);
    assert_int_equal(fetch(&r, 0), CALLED_NONE);
    assert_int_equal(ask(&r, 5, 1), LAR_ANSWERS_FOUND);
    lar_answers_end(r.a, &r.seats[4], LAR_ANSWERS_FAILED);
    lar_answers_free(r.a);
}

/* One that has no room in the table is still the answer for those who waited. */
static void an_answer_too_large_to_keep(void **state) {
    (void)state;
    room r;
    fill(&r, 2);
    keep(&r, 0, 1, 2 << 20);
    assert_int_equal(fetch(&r, 1), CALLED_ANSWER);
    assert_int_equal(ask(&r, 2, 1), LAR_ANSWERS_LEADS);
    lar_answers_end(r.a, &r.seats[2], LAR_ANSWERS_LEFT);
    lar_answers_free(r.a);
}

static void the_next_leads(void **state) {
    (void)state;
    room r;
    fill(&r, 5);
    lar_answers_end(r.a, &r.seats[0], LAR_ANSWERS_LEFT); /* as often as clients leave */
    assert_int_equal(fetch(&r, 1), CALLED_LEADS);
    lar_answers_end(r.a, &r.seats[1], LAR_ANSWERS_LEFT);
    assert_int_equal(fetch(&r, 2), CALLED_LEADS);
    lar_answers_end(r.a, &r.seats[2], LAR_ANSWERS_FAILED);
    assert_int_equal(fetch(&r, 3), CALLED_LEADS);
    assert_int_equal(ask(&r, 0, 1), LAR_ANSWERS_WAITS);
    lar_answers_end(r.a, &r.seats[3], LAR_ANSWERS_FAILED); /* the second time nobody waits any more */
    assert_int_equal(fetch(&r, 4), CALLED_ALONE);
    assert_int_equal(fetch(&r, 0), CALLED_ALONE);
    assert_int_equal(fetch(&r, 0), CALLED_NONE);
    lar_answers_end(r.a, &r.seats[4], LAR_ANSWERS_FAILED); /* who goes alone owes nothing */
    assert_int_equal(ask(&r, 5, 1), LAR_ANSWERS_LEADS);
    lar_answers_end(r.a, &r.seats[5], LAR_ANSWERS_UNFIT);
    lar_answers_free(r.a);
}

static void unfit_for_all(void **state) {
    (void)state;
    room r;
    fill(&r, 3);
    lar_answers_end(r.a, &r.seats[0], LAR_ANSWERS_UNFIT);
    assert_int_equal(fetch(&r, 1), CALLED_ALONE);
    assert_int_equal(fetch(&r, 2), CALLED_ALONE);
    lar_answers_free(r.a);
}

/* In every state in which one can leave. */
static void who_waits_may_leave(void **state) {
    (void)state;
    room r;
    fill(&r, 5);
    lar_answers_leave(r.a, &r.seats[2]);
    lar_answers_leave(r.a, &r.seats[2]); /* it is nowhere now */
    lar_answers_end(r.a, &r.seats[0], LAR_ANSWERS_LEFT);
    lar_answers_leave(r.a, &r.seats[1]); /* called to lead, and gone: the next one is called */
    assert_int_equal(fetch(&r, 3), CALLED_LEADS);
    keep(&r, 3, 1, 10);
    lar_answers_leave(r.a, &r.seats[4]); /* called with the answer, and gone */
    assert_int_equal(fetch(&r, 4), CALLED_NONE);
    lar_answers_free(r.a);
}

/* Who is waited for leads on; who is not makes room for whoever comes. */
static void a_slow_leader(void **state) {
    (void)state;
    room r;
    fill(&r, 2);
    assert_true(lar_answers_awaited(r.a, &r.seats[0]));
    lar_answers_leave(r.a, &r.seats[1]);
    assert_false(lar_answers_awaited(r.a, &r.seats[0]));
    assert_int_equal(ask(&r, 2, 1), LAR_ANSWERS_LEADS);
    keep(&r, 0, 1, 10); /* its answer is kept all the same, and is nobody's but of who asks now */
    assert_int_equal(fetch(&r, 2), CALLED_NONE);
    assert_int_equal(ask(&r, 3, 1), LAR_ANSWERS_FOUND);
    assert_false(lar_answers_awaited(r.a, &r.seats[3]));
    lar_answers_end(r.a, &r.seats[2], LAR_ANSWERS_LEFT);
    lar_answers_free(r.a);
}

/* A request that asked for a new answer leads nobody, and keeps it all the same. */
static void a_new_answer_without_a_lead(void **state) {
    (void)state;
    room r;
    fill(&r, 2);
    keep(&r, 5, 1, 10);
    assert_int_equal(fetch(&r, 1), CALLED_NONE);
    assert_int_equal(ask(&r, 4, 1), LAR_ANSWERS_FOUND);
    lar_answers_end(r.a, &r.seats[0], LAR_ANSWERS_UNFIT);
    assert_int_equal(fetch(&r, 1), CALLED_ALONE);
    lar_answers_free(r.a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(which_requests_qualify),
        cmocka_unit_test(which_answers_are_whole),
        cmocka_unit_test(answers_have_their_time),
        cmocka_unit_test(the_least_recently_used_goes),
        cmocka_unit_test(many_answers_are_found),
        cmocka_unit_test(one_answer_for_all),
        cmocka_unit_test(an_answer_too_large_to_keep),
        cmocka_unit_test(the_next_leads),
        cmocka_unit_test(unfit_for_all),
        cmocka_unit_test(who_waits_may_leave),
        cmocka_unit_test(a_slow_leader),
        cmocka_unit_test(a_new_answer_without_a_lead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
