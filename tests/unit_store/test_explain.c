/* larder explain: the donor that is found in generated journals, damaged records among them, and the reason that is
 * given, one by one. Chains are made up: equal numbers up to where two requests are to part. */
#include <fcntl.h>
#include <inttypes.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "gateway/commands/donor.h"
#include "gateway/commands/explain.h"
#include "store/bytes.h"
#include "store_fixture.h"

enum { BASE_MS = 1000000, BYTES_EACH = 4000, TOKENS_EACH = 1000, CHAIN_BYTES = LAR_JREC_CUTS_MAX * LAR_JREC_CUT_BYTES };

/* A request of `places` messages of one size; from `parts_at` on (0: nowhere) it is `flavour`'s own. */
typedef struct made {
    uint64_t id;
    int64_t time_s, ttft_ms;
    uint32_t places, parts_at;
    uint64_t flavour;
    int64_t hit;
    const char *model, *upstream;
    uint64_t tenant, edition;
} made;

static const made plain = {
    .ttft_ms = 100, .places = 8, .model = "deepseek-chat", .upstream = "deepseek", .tenant = 7, .edition = 1};

static lar_journal_record record_from(const made *m, char chain[CHAIN_BYTES]) {
    lar_journal_record r = record_of(m->id);
    lar_journal_cut cuts[LAR_JREC_CUTS_MAX];
    lar_buf b;
    for (uint32_t i = 0; i < m->places; i++) {
        bool own = m->parts_at && i + 1 >= m->parts_at;
        uint64_t h = (i + 1) * 0x9E3779B97F4A7C15u + (own ? m->flavour * 7919 : 0);
        cuts[i] = (lar_journal_cut){.sent = h,
                                    .raw = (uint32_t)h,
                                    .bytes = (i + 1) * BYTES_EACH,
                                    .at = (uint16_t)(i + 1),
                                    .kind = (uint8_t)(i ? 3 + i % 2 : 2)};
    }
    lar_buf_init(&b, CHAIN_BYTES);
    assert_int_equal(lar_journal_cuts_write(cuts, m->places, &b), LAR_OK);
    if (b.len) memcpy(chain, b.ptr, b.len);
    r.chain = lar_slice_of(chain, b.len);
    lar_buf_release(&b);
    r.request_id = m->id;
    r.time_ms = BASE_MS + m->time_s * 1000;
    r.ttft_us = m->ttft_ms * 1000;
    r.total_us = r.ttft_us + 1000000;
    r.status = 200;
    r.ending = LAR_END_COMPLETE;
    r.error = LAR_OK;
    r.tenant = m->tenant;
    r.edition_hash = m->edition;
    int64_t prompt = (int64_t)m->places * TOKENS_EACH;
    r.tokens = (lar_tokens){prompt, m->hit, m->hit == LAR_TOKENS_UNKNOWN ? m->hit : prompt - m->hit, 0, 5, 0};
    r.predicted_hit = 2000;
    r.prompt_bytes = (uint64_t)m->places * BYTES_EACH;
    r.rules_seen = 0;
    (void)snprintf(r.model, sizeof r.model, "%s", m->model);
    (void)snprintf(r.upstream, sizeof r.upstream, "%s", m->upstream);
    (void)snprintf(r.route, sizeof r.route, "chat");
    (void)snprintf(r.provider, sizeof r.provider, "openai");
    return r;
}

/* -- the search alone --------------------------------------------------------------------------------------------- */

typedef struct searched {
    lar_donor request;
    lar_donor_search search;
    lar_verdict verdict;
} searched;

/* OpenAI's rule: 128 tokens a step, 1024 at least, five minutes. */
static searched *judge(const made *request, const made *others, uint32_t count) {
    char chain[CHAIN_BYTES];
    searched *s = calloc(1, sizeof *s);
    assert_non_null(s);
    lar_journal_record r = record_from(request, chain);
    lar_donor_keep(&s->request, 1000, &r);
    s->search.request = &s->request;
    s->search.ttl_s = 300;
    for (uint32_t i = 0; i < count; i++) {
        r = record_from(&others[i], chain);
        lar_donor_offer(&s->search, i + 1, &r);
    }
    lar_donor_offer(&s->search, 1000, &r); /* itself: passed over */
    s->verdict = lar_donor_judge(&s->search, 128, 1024);
    return s;
}

static made with(made m, uint64_t id, int64_t time_s) {
    m.id = id;
    m.time_s = time_s;
    return m;
}

static void check(const made *request, const made *others, uint32_t count, lar_miss want, uint64_t donor_id) {
    searched *s = judge(request, others, count);
    if (s->verdict.miss != want) fail_msg("%s, not %s", lar_miss_get(s->verdict.miss)->code, lar_miss_get(want)->code);
    assert_int_equal(s->verdict.donor ? s->verdict.donor->record.request_id : 0, donor_id);
    free(s);
}

static void every_reason_is_found(void **state) {
    (void)state;
    made q = with(plain, 99, 1000), d = with(plain, 1, 990), other;
    q.hit = 0;
    check(&q, NULL, 0, LAR_MISS_FIRST, 0);

    d.places = 6; /* goes on behind all of it: 6000 of 8000 tokens */
    q.hit = 5888;
    check(&q, &d, 1, LAR_MISS_NONE, 1);
    q.hit = 5900 - 128;
    check(&q, &d, 1, LAR_MISS_NONE, 1); /* a step less is no miss */
    q.hit = 0;
    check(&q, &d, 1, LAR_MISS_PROVIDER, 1);
    d.time_s = 600;
    check(&q, &d, 1, LAR_MISS_EXPIRED, 1);
    d.time_s = 999;
    d.ttft_ms = 5000;
    check(&q, &d, 1, LAR_MISS_PARALLEL, 1);
    d = with(plain, 1, 990);
    d.time_s = 1001; /* later: no donor */
    check(&q, &d, 1, LAR_MISS_FIRST, 0);

    d = with(plain, 1, 990);
    d.parts_at = 4, d.flavour = 1;
    q.hit = 2944; /* 3000 shared */
    check(&q, &d, 1, LAR_MISS_TEXT, 1);
    d.edition = 2;
    check(&q, &d, 1, LAR_MISS_EDITION, 1);
    d = with(plain, 1, 990);
    d.parts_at = 1, d.flavour = 1; /* from the first text on: the newest one is named */
    q.hit = 0;
    check(&q, &d, 1, LAR_MISS_TEXT, 1);

    other = with(plain, 2, 990);
    other.model = "deepseek-reasoner";
    check(&q, &other, 1, LAR_MISS_MODEL, 2);
    other = with(plain, 3, 990);
    other.upstream = "elsewhere";
    check(&q, &other, 1, LAR_MISS_UPSTREAM, 3);
    other = with(plain, 4, 990);
    other.tenant = 8;
    check(&q, &other, 1, LAR_MISS_KEY, 4);
    other.model = "deepseek-reasoner"; /* two things differ: no explanation */
    check(&q, &other, 1, LAR_MISS_FIRST, 0);

    q.hit = LAR_TOKENS_UNKNOWN;
    d = with(plain, 1, 990);
    check(&q, &d, 1, LAR_MISS_UNKNOWN, 1);

    made small = with(plain, 98, 1000), before = with(plain, 1, 990);
    small.places = before.places = 1;
    small.hit = 0;
    check(&small, &before, 1, LAR_MISS_SHORT, 1);
    small.places = 0;
    check(&small, &before, 1, LAR_MISS_NOT_READ, 0);
}

static void the_best_and_newest_donor_wins(void **state) {
    (void)state;
    made others[200], q = with(plain, 99, 100000);
    q.places = 20;
    q.hit = 18944;
    for (uint32_t i = 0; i < 200; i++) {
        others[i] = with(plain, i + 1, 99800 + i % 50);
        others[i].places = 20;
        others[i].parts_at = 2 + i * 7 % 18; /* at most 18 shared */
        others[i].flavour = i + 1;
    }
    others[70] = with(plain, 71, 99790);
    others[70].places = 19; /* a whole turn */
    others[140] = with(plain, 141, 99810);
    others[140].places = 19;
    searched *s = judge(&q, others, 200);
    assert_int_equal(s->verdict.donor->record.request_id, 141);
    assert_int_equal(s->verdict.donor->common, 18);
    assert_true(s->verdict.donor->continued && s->verdict.broke == -1);
    assert_int_equal(s->verdict.miss, LAR_MISS_NONE);
    assert_int_equal(s->search.looked_at, 200);
    free(s);
    others[70].time_s = others[140].time_s = 50000; /* forgotten by now: what is left shares 17 */
    s = judge(&q, others, 200);
    assert_int_equal(s->search.best.common, 18);
    assert_int_equal(s->search.live.common, 17);
    free(s);
}

static void what_was_refused_is_no_donor(void **state) {
    (void)state;
    char chain[CHAIN_BYTES];
    made q = with(plain, 99, 1000), d = with(plain, 1, 990);
    searched *s = calloc(1, sizeof *s);
    assert_non_null(s);
    lar_journal_record r = record_from(&q, chain);
    lar_donor_keep(&s->request, 1000, &r);
    s->search.request = &s->request;
    const uint16_t refused[] = {0, 199, 300, 400, 429, 500};
    for (unsigned i = 0; i < sizeof refused / sizeof *refused; i++) {
        r = record_from(&d, chain);
        r.status = refused[i];
        lar_donor_offer(&s->search, i + 1, &r);
    }
    assert_false(s->search.best.there || s->search.newest.there);
    free(s);
}

/* -- the command --------------------------------------------------------------------------------------------------- */

typedef struct outcome {
    int rc;
    char out[20000], err[4000];
} outcome;

static void slurp(int fd, char *text, size_t cap) {
    ssize_t n = pread(fd, text, cap - 1, 0);
    text[n > 0 ? n : 0] = 0;
    close(fd);
}

static outcome *explain(const fixture *f, const char *what, const char *format) {
    char store[] = "--store", form[] = "--format", dir[128], request[64], kind[16], path[2][128];
    outcome *o = calloc(1, sizeof *o);
    int fds[2], saved[2];
    assert_non_null(o);
    (void)snprintf(dir, sizeof dir, "%s", f->dir);
    (void)snprintf(request, sizeof request, "%s", what);
    (void)snprintf(kind, sizeof kind, "%s", format);
    char *argv[] = {request, store, dir, form, kind, NULL};
    (void)fflush(NULL);
    for (int i = 0; i < 2; i++) {
        fixture_path(f, i ? "err.txt" : "out.txt", path[i]);
        fds[i] = open(path[i], O_RDWR | O_CREAT | O_TRUNC, 0600);
        saved[i] = dup(1 + i);
        assert_true(fds[i] >= 0 && dup2(fds[i], 1 + i) >= 0);
    }
    o->rc = lar_command_explain(5, argv);
    (void)fflush(NULL);
    for (int i = 0; i < 2; i++) {
        (void)dup2(saved[i], 1 + i);
        close(saved[i]);
    }
    slurp(fds[0], o->out, sizeof o->out);
    slurp(fds[1], o->err, sizeof o->err);
    return o;
}

/* A conversation of five turns, a stranger, and one request that parts in its third message. */
static void put_journal(fixture *f) {
    char chain[CHAIN_BYTES];
    fixture_open(f);
    for (uint64_t i = 0; i < 7; i++) {
        made m = with(plain, i + 1, 1000 + (int64_t)i * 10);
        m.places = i < 5 ? (uint32_t)(2 + 2 * i) : 10;
        m.parts_at = i == 5 ? 1 : i == 6 ? 3 : 0;
        m.flavour = i;
        m.hit = i && i < 5 ? (int64_t)i * 2 * TOKENS_EACH / 128 * 128 : 0;
        lar_journal_record r = record_from(&m, chain);
        lar_store_journal(f->store, &r);
    }
    lar_store_flush(f->store);
    fixture_close(f);
}

static void requests_are_explained_by_id_number_and_last(void **state) {
    fixture *f = *state;
    put_journal(f);
    outcome *o = explain(f, "lr-0000000000000004", "text");
    assert_int_equal(o->rc, 0);
    assert_non_null(strstr(o->out, "lr-0000000000000003 (seq 3"));
    assert_non_null(strstr(o->out, "parts     nowhere"));
    assert_non_null(strstr(o->out, "why       as_expected"));
    free(o);
    o = explain(f, "7", "text");
    assert_non_null(strstr(o->out, "parts in  user, /messages/2, bytes 8000 to 12000"));
    assert_non_null(strstr(o->out, "why       provider")); /* 2000 tokens shared, none read */
    free(o);
    o = explain(f, "last", "json");
    cJSON *j = cJSON_Parse(o->out);
    assert_non_null(j);
    assert_string_equal(cJSON_GetObjectItem(j, "why")->valuestring, "provider");
    assert_string_equal(cJSON_GetObjectItem(cJSON_GetObjectItem(j, "parts_in"), "pointer")->valuestring, "/messages/2");
    assert_true(cJSON_GetObjectItem(cJSON_GetObjectItem(j, "donor"), "shared_bytes")->valuedouble == 8000);
    assert_true(cJSON_GetObjectItem(cJSON_GetObjectItem(j, "request"), "drift_tokens")->valuedouble == 2000);
    cJSON_Delete(j);
    free(o);
    o = explain(f, "lr-0000000000000001", "json");
    assert_non_null(strstr(o->out, "\"first\""));
    free(o);
}

static void what_is_not_there_is_said(void **state) {
    fixture *f = *state;
    put_journal(f);
    outcome *o = explain(f, "lr-00000000000000ff", "text");
    assert_int_equal(o->rc, 1);
    assert_non_null(strstr(o->err, "no request lr-00000000000000ff"));
    assert_non_null(strstr(o->err, "larder tail"));
    assert_int_equal(o->out[0], 0);
    free(o);
    static const char *const bad[] = {"lr-",   "lr-xyz", "lr-00000000000000000", "0", "99999999999999999999",
                                      "first", ""};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        o = explain(f, bad[i], "text");
        assert_int_equal(o->rc, 2);
        free(o);
    }
    o = explain(f, "last", "xml");
    assert_int_equal(o->rc, 2);
    free(o);
}

/* The donor itself is damaged: the next best one is found, and the loss is said. */
static void damaged_records_are_passed_over(void **state) {
    fixture *f = *state;
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    uint8_t key[8];
    put_journal(f);
    assert_int_equal(mdb_env_create(&env), 0);
    assert_int_equal(mdb_env_set_maxdbs(env, 16), 0);
    assert_int_equal(mdb_env_open(env, f->dir, 0, 0600), 0);
    assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, "journal", 0, &dbi), 0);
    lar_bytes_put_be64(key, 3);
    MDB_val k = {8, key}, v = {8, (void *)"nonsense"};
    assert_int_equal(mdb_put(txn, dbi, &k, &v, 0), 0);
    assert_int_equal(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
    outcome *o = explain(f, "4", "text");
    assert_int_equal(o->rc, 0);
    assert_non_null(strstr(o->err, "1 damaged records"));
    assert_non_null(strstr(o->out, "donor     lr-0000000000000002"));
    free(o);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_reason_is_found),
        cmocka_unit_test(the_best_and_newest_donor_wins),
        cmocka_unit_test(what_was_refused_is_no_donor),
        TEST(requests_are_explained_by_id_number_and_last),
        TEST(what_is_not_there_is_said),
        TEST(damaged_records_are_passed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
