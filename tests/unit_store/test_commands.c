/* larder stats, tail and export as their user sees them: what they print and how they end. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "base/clock.h"
#include "base/digest.h"
#include "gateway/commands/fields.h"
#include "gateway/commands/present.h"
#include "gateway/commands/query.h"
#include "gateway/commands/tally.h"
#include "store_fixture.h"

typedef int command(int argc, char **argv);
enum { OUTPUT_BYTES = 1 << 22, ARGS_MAX = 16 };

typedef struct outcome {
    int rc; /* exit code, or 1000 + signal */
    char *out, *err;
} outcome;

static void read_all(const char *path, char **text) {
    *text = calloc(1, OUTPUT_BYTES);
    assert_non_null(*text);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    (void)!fread(*text, 1, OUTPUT_BYTES - 1, f);
    (void)fclose(f);
}

static int ended(pid_t child) {
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static pid_t start(command *c, const char *const *args, int out, int err) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child) return child;
    char *argv[ARGS_MAX];
    int argc = 0;
    for (; args[argc] && argc < ARGS_MAX; argc++) argv[argc] = (char *)args[argc];
    (void)dup2(out, STDOUT_FILENO);
    (void)dup2(err, STDERR_FILENO);
    for (int fd = 3; fd < 256; fd++) (void)close(fd); /* or the child itself would be the pipe's reader */
    int rc = c(argc, argv);
    (void)fflush(NULL);
    _exit(rc);
}

static outcome run(fixture *f, command *c, const char *const *args) {
    char out_path[128], err_path[128];
    outcome o;
    fixture_path(f, "stdout.txt", out_path);
    fixture_path(f, "stderr.txt", err_path);
    int out = open(out_path, O_RDWR | O_CREAT | O_TRUNC, 0600), err = open(err_path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(out >= 0 && err >= 0);
    (void)fflush(NULL);
    o.rc = ended(start(c, args, out, err));
    close(out);
    close(err);
    read_all(out_path, &o.out);
    read_all(err_path, &o.err);
    return o;
}

static void done(outcome *o) {
    free(o->out);
    free(o->err);
}

#define ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Numbers that can be added up by hand. */
static void put_records(fixture *f, int64_t now) {
    const int64_t u = LAR_TOKENS_UNKNOWN;
    fixture_open(f);
    for (int i = 0; i < 10; i++) {
        lar_journal_record r = {.time_ms = now - 60000 + i,
                                .tenant = i < 5 ? 0xaa : 0xbb,
                                .status = 200,
                                .ending = LAR_END_COMPLETE,
                                .spelling = LAR_SPELLING_DEEPSEEK,
                                .ttft_us = (i + 1) * 100000,
                                .total_us = 2000000,
                                .tokens = {1000, i ? 900 : 0, i ? 100 : 1000, 0, 50, u},
                                .turn = (uint32_t)i,
                                .edits = i % 2 == 0,
                                .rules_fired = i % 2 == 0 ? 1 : 0,
                                .rules_seen = 1,
                                .raw = {1000, 900, 100, u, 50, u}};
        (void)snprintf(r.model, sizeof r.model, "%s", i < 8 ? "deepseek-v4-flash" : "local/\"odd\", model");
        (void)snprintf(r.route, sizeof r.route, "chat");
        (void)snprintf(r.upstream, sizeof r.upstream, "%s", i < 8 ? "deepseek" : "own");
        r.prompt_bytes = 4000;
        r.predicted_hit = i == 1 ? 1000 : i ? 880 : 0;
        r.recall_hits = 3;
        r.recall_misses = 1;
        r.request_id = 0x1000u + (unsigned)i;
        lar_store_journal(f->store, &r);
    }
    lar_journal_record lost = {.time_ms = now - 50000,
                               .ending = LAR_END_UPSTREAM_FAILED,
                               .error = LAR_UPSTREAM_TIMEOUT,
                               .status = 504,
                               .ttft_us = u,
                               .total_us = 10,
                               .tokens = {u, u, u, u, u, u},
                               .raw = {u, u, u, u, u, u},
                               .flags = LAR_JREC_USAGE_PARTIAL};
    (void)snprintf(lost.model, sizeof lost.model, "\x1b[31mred\xff\xe2\x80\xae");
    lar_store_journal(f->store, &lost);
    fixture_close(f);
}

static const cJSON *at(const cJSON *o, const char *name) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, name);
    if (!v) fail_msg("no %s", name);
    return v;
}

static void assert_close(double got, double want) {
    if (got - want > 1e-9 || want - got > 1e-9) fail_msg("got %.12f, want %.12f", got, want);
}

static void stats_add_up(void **state) {
    fixture *f = *state;
    put_records(f, lar_clock_wall_ms());
    outcome o = run(f, lar_command_stats, ARGS("--store", f->dir, "--json"));
    assert_int_equal(o.rc, 0);
    cJSON *j = cJSON_Parse(o.out);
    assert_non_null(j);
    const cJSON *all = at(j, "all");
    assert_int_equal(at(all, "requests")->valueint, 11);
    assert_int_equal(at(all, "known")->valueint, 10);
    assert_int_equal(at(all, "unknown")->valueint, 1);
    assert_int_equal(at(all, "hit_tokens")->valueint, 8100);
    assert_int_equal(at(all, "miss_tokens")->valueint, 1900);
    assert_close(at(all, "hit_rate")->valuedouble, 0.81);
    assert_int_equal(at(all, "ttft_p50_us")->valueint, 500000);
    assert_int_equal(at(all, "ttft_p95_us")->valueint, 1000000);
    assert_int_equal(at(all, "usage_partial")->valueint, 1);
    assert_int_equal(at(all, "edited")->valueint, 5);
    assert_int_equal(at(all, "priced")->valueint, 8);
    /* 8 requests of V4 Flash: 6300 hits, 1700 misses, 400 output tokens */
    const cJSON *models = at(j, "models"), *flash = cJSON_GetArrayItem(models, 0);
    assert_int_equal(cJSON_GetArraySize(models), 3);
    assert_string_equal(at(flash, "name")->valuestring, "deepseek-v4-flash");
    double in = at(at(flash, "price"), "input")->valuedouble, hit = at(at(flash, "price"), "hit")->valuedouble,
           out = at(at(flash, "price"), "output")->valuedouble;
    assert_true(strlen(at(at(flash, "price"), "source")->valuestring) > 0 &&
                strlen(at(at(flash, "price"), "date")->valuestring) > 0);
    assert_close(at(flash, "cost_usd")->valuedouble, (1700 * in + 6300 * hit + 400 * out) / 1e6);
    assert_close(at(flash, "saved_usd")->valuedouble, 6300 * (in - hit) / 1e6);
    assert_true(cJSON_IsNull(at(cJSON_GetArrayItem(models, 1), "price")));
    assert_true(cJSON_IsNull(at(cJSON_GetArrayItem(models, 1), "cost_usd")));
    assert_int_equal(at(at(at(j, "turns"), "0"), "requests")->valueint, 2);
    assert_close(at(at(at(j, "turns"), "0"), "hit_rate")->valuedouble, 0);
    assert_int_equal(at(at(at(j, "turns"), "3-5"), "requests")->valueint, 3);
    assert_int_equal(at(at(at(j, "turns"), "6-10"), "requests")->valueint, 4);
    assert_int_equal(at(at(j, "endings"), "upstream-failed")->valueint, 1);
    assert_int_equal(at(j, "predicted_requests")->valueint, 10);
    assert_int_equal(at(j, "predicted_hit_tokens")->valueint, 8040);
    assert_int_equal(at(j, "drift_over_tokens")->valueint, 100);
    assert_int_equal(at(j, "drift_under_tokens")->valueint, 160);
    assert_int_equal(at(j, "recall_hits")->valueint, 30);
    assert_int_equal(at(j, "recall_misses")->valueint, 10);
    const cJSON *rule = at(at(j, "rules"), "LR001");
    assert_int_equal(at(rule, "seen")->valueint, 10);
    assert_int_equal(at(rule, "edited")->valueint, 5);
    assert_int_equal(cJSON_GetArraySize(at(j, "tenants")), 3);
    assert_int_equal(cJSON_GetArraySize(at(j, "upstreams")), 3);
    cJSON_Delete(j);
    done(&o);
}

static int requests_of(fixture *f, const char *const *args) {
    outcome o = run(f, lar_command_stats, args);
    assert_int_equal(o.rc, 0);
    cJSON *j = cJSON_Parse(o.out);
    assert_non_null(j);
    int n = at(at(j, "all"), "requests")->valueint;
    cJSON_Delete(j);
    done(&o);
    return n;
}

static void filters_apply(void **state) {
    fixture *f = *state;
    put_records(f, lar_clock_wall_ms());
    assert_int_equal(requests_of(f, ARGS("--store", f->dir, "--json", "--model", "deepseek*")), 8);
    assert_int_equal(requests_of(f, ARGS("--store", f->dir, "--json", "--tenant=00000000000000aa")), 5);
    assert_int_equal(requests_of(f, ARGS("--store", f->dir, "--json", "--tenant", "0xbb")), 5);
    assert_int_equal(requests_of(f, ARGS("--store", f->dir, "--json", "--tenant", "aa")), 0); /* a name */
    assert_int_equal(requests_of(f, ARGS("--store", f->dir, "--json", "--upstream", "own", "--route=chat")), 2);
    assert_int_equal(requests_of(f, ARGS("--store", f->dir, "--json", "--since", "1h")), 11);
    assert_int_equal(requests_of(f, ARGS("--store", f->dir, "--json", "--since=55s")), 1);
    assert_int_equal(requests_of(f, ARGS("--store", f->dir, "--json", "--until", "1h")), 0);
    assert_int_equal(setenv("LARDER_STORE_DIR", f->dir, 1), 0);
    assert_int_equal(requests_of(f, ARGS("--json")), 11);
    assert_int_equal(unsetenv("LARDER_STORE_DIR"), 0);
}

static bool is_clean(const char *text) {
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if ((*p < 0x20 && *p != '\n' && *p != '\r') || *p == 0x7f) return false;
    }
    return !strstr(text, "\xe2\x80\xae") && !strstr(text, "\xff");
}

static void tables_are_aligned_and_harmless(void **state) {
    fixture *f = *state;
    put_records(f, lar_clock_wall_ms());
    outcome o = run(f, lar_command_stats, ARGS("--store", f->dir));
    assert_int_equal(o.rc, 0);
    assert_true(is_clean(o.out));
    assert_non_null(strstr(o.out, "\\x1b[31mred\\xff\\u202e"));
    assert_non_null(strstr(o.out, "hit rate  81.0% of 10 requests with known hits; unknown for 1"));
    assert_non_null(strstr(o.out, "api-docs.deepseek.com"));
    assert_non_null(strstr(o.out, "unknown"));
    done(&o);
    o = run(f, lar_command_stats, ARGS("--store", f->dir, "--model", "nobody"));
    assert_string_equal(o.out, "no requests match\n");
    done(&o);
}

static void put(fixture *f, lar_journal_record r, const char *route, const char *model) {
    (void)snprintf(r.route, sizeof r.route, "%s", route);
    (void)snprintf(r.model, sizeof r.model, "%s", model);
    (void)snprintf(r.upstream, sizeof r.upstream, "up");
    lar_store_journal(f->store, &r);
}

/* Rules that only found something are seen; what never was a prompt is no model, no turn and not unknown. */
static void what_only_looks_is_shown(void **state) {
    fixture *f = *state;
    const int64_t u = LAR_TOKENS_UNKNOWN;
    lar_digest name = lar_digest_of(lar_slice_cstr("team-a"));
    lar_journal_record r = {.time_ms = lar_clock_wall_ms(),
                            .tenant = lar_digest_short(&name),
                            .status = 200,
                            .ttft_us = 1500,
                            .total_us = 1234000,
                            .rules_seen = 1,
                            .tokens = {100, 40, 60, u, 5, u}};
    fixture_open(f);
    put(f, r, "chat", "m");
    r.rules_seen = 0;
    r.ttft_us = u;
    r.tokens = (lar_tokens){u, u, u, u, u, u};
    put(f, r, "chat", "silent"); /* a prompt whose hits are unknown */
    put(f, r, "models", "");
    r.ending = LAR_END_REFUSED;
    put(f, r, "chat", "m");
    fixture_close(f);
    outcome o = run(f, lar_command_stats, ARGS("--store", f->dir));
    assert_int_equal(o.rc, 0);
    assert_non_null(strstr(o.out, "requests  4, edited 0\n"));
    assert_non_null(strstr(o.out, "hit rate  40.0% of 1 requests with known hits; unknown for 1\n"));
    assert_non_null(strstr(o.out, "\nno prompt 2 requests"));
    assert_non_null(strstr(o.out, "p50 1.5ms"));
    assert_non_null(strstr(o.out, "without a price or known tokens: 2 requests"));
    assert_non_null(strstr(o.out, "rule                  seen  edited\nLR001 volatile_clock     1       0\n"));
    assert_null(strstr(o.out, "\ntenant"));
    assert_null(strstr(o.out, "\n-  "));
    done(&o);
    o = run(f, lar_command_stats, ARGS("--store", f->dir, "--tenant", "team-a"));
    char line[64];
    (void)snprintf(line, sizeof line, "%016llx is 'team-a'\n", (unsigned long long)lar_digest_short(&name));
    assert_non_null(strstr(o.out, "\ntenant"));
    assert_non_null(strstr(o.out, line));
    done(&o);
    o = run(f, lar_command_stats, ARGS("--store", f->dir, "--json"));
    cJSON *j = cJSON_Parse(o.out);
    assert_non_null(j);
    assert_int_equal(at(at(j, "all"), "no_prompt")->valueint, 2);
    assert_int_equal(at(at(j, "all"), "unknown")->valueint, 1);
    assert_int_equal(cJSON_GetArraySize(at(j, "models")), 2);
    assert_int_equal(at(at(at(j, "turns"), "0"), "requests")->valueint, 2);
    assert_int_equal(at(cJSON_GetArrayItem(at(j, "tenants"), 0), "requests")->valueint, 4);
    cJSON_Delete(j);
    done(&o);
}

/* Every column of the export is a row of the page, with a unit. */
/* Two answers by the second target, one by the first after a repetition, one that nobody answered. */
static void fallbacks_are_told(void **state) {
    fixture *f = *state;
    static const struct {
        const char *upstream, *failure;
        uint16_t status;
        uint8_t attempts, target;
        uint32_t cold;
        const char *continued;
    } rows[] = {{"two", "failed", 200, 2, 1, 70, ""},          {"two", "crowded", 200, 1, 1, 0, ""},
                {"one", "refused", 200, 2, 0, 0, ""},          {"two", "not_sent", 502, 2, 1, 5, ""},
                {"one", "broken_late", 200, 1, 0, 0, "local"},  /* went on to its end: 20 tokens behind 9 */
                {"one", "broken_late", 200, 1, 0, 0, "local"}}; /* broke again: nobody knows how many */
    const int64_t u = LAR_TOKENS_UNKNOWN, now = lar_clock_wall_ms();
    fixture_open(f);
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        lar_journal_record r = {.time_ms = now - 5000 + i,
                                .status = rows[i].status,
                                .tokens = {u, u, u, u, i == 4 ? 29 : u, u},
                                .raw = {u, u, u, u, u, u},
                                .begun_output = *rows[i].continued ? 9 : u,
                                .attempts = rows[i].attempts,
                                .target = rows[i].target,
                                .cold_tokens = rows[i].cold};
        (void)snprintf(r.upstream, sizeof r.upstream, "%s", rows[i].upstream);
        (void)snprintf(r.failure, sizeof r.failure, "%s", rows[i].failure);
        (void)snprintf(r.continued, sizeof r.continued, "%s", rows[i].continued);
        lar_store_journal(f->store, &r);
    }
    fixture_close(f);
    outcome o = run(f, lar_command_stats, ARGS("--store", f->dir));
    assert_non_null(strstr(o.out, "fallback  2 answers by a further target: two 2; 75 warm tokens were cold there\n"));
    assert_non_null(strstr(o.out, "repeated  3 requests took more than one attempt\n"));
    assert_non_null(strstr(o.out, "continued 2 streams that broke, by models of this process: 20 output tokens from "));
    done(&o);
    o = run(f, lar_command_stats, ARGS("--store", f->dir, "--json"));
    cJSON *j = cJSON_Parse(o.out);
    assert_close(at(j, "fallback_answers")->valuedouble, 2);
    assert_close(at(j, "repeated_requests")->valuedouble, 3);
    assert_close(at(j, "cold_tokens")->valuedouble, 75);
    assert_close(at(j, "continued_streams")->valuedouble, 2);
    assert_close(at(j, "continued_output_tokens")->valuedouble, 20);
    assert_string_equal(at(cJSON_GetArrayItem(at(j, "fallbacks"), 0), "name")->valuestring, "two");
    cJSON_Delete(j);
    done(&o);
    o = run(f, lar_command_tail, ARGS("--store", f->dir));
    assert_non_null(strstr(o.out, "  attempts 2  failure failed  target 1  rules"));
    assert_non_null(strstr(o.out, "  failure crowded  target 1  rules"));
    assert_non_null(strstr(o.out, "  failure broken_late  continued by local  rules"));
    done(&o);
    o = run(f, lar_command_export, ARGS("--store", f->dir));
    assert_non_null(strstr(o.out, "\"attempts\":2,\"failure\":\"failed\",\"target\":1,\"cold_tokens\":70,"));
    done(&o);
}

static void the_page_has_every_field(void **state) {
    (void)state;
    lar_buf head, page;
    lar_buf_init(&head, 8192);
    lar_buf_init(&page, 1 << 16);
    assert_int_equal(lar_fields_csv_head(&head), LAR_OK);
    assert_int_equal(lar_buf_add(&head, "", 1), LAR_OK);
    assert_int_equal(lar_fields_markdown(&page), LAR_OK);
    assert_int_equal(lar_buf_add(&page, "", 1), LAR_OK);
    int rows = 0;
    for (const char *p = head.ptr; *p; rows++) {
        char row[80];
        size_t len = strcspn(p, ",");
        (void)snprintf(row, sizeof row, "\n| `%.*s` | ", (int)len, p);
        const char *there = strstr(page.ptr, row);
        if (!there) fail_msg("%s is not on the page", row);
        assert_true(there && there[strlen(row)] != ' ');
        p += len + (p[len] == ',');
    }
    assert_int_equal(rows, 57);
    lar_buf_release(&head);
    lar_buf_release(&page);
}

static void export_has_every_field(void **state) {
    fixture *f = *state;
    put_records(f, lar_clock_wall_ms());
    outcome o = run(f, lar_command_export, ARGS("--store", f->dir));
    assert_int_equal(o.rc, 0);
    assert_true(is_clean(o.out));
    int lines = 0;
    for (char *line = o.out, *end; (end = strchr(line, '\n')); line = end + 1, lines++) {
        *end = 0;
        cJSON *j = cJSON_ParseWithOpts(line, NULL, true);
        assert_non_null(j);
        assert_int_equal(at(j, "seq")->valueint, lines + 1);
        if (lines < 10) {
            assert_int_equal(at(j, "raw_hit_tokens")->valueint, 900);
            assert_true(cJSON_IsNull(at(j, "raw_write_tokens")));
            assert_true(cJSON_IsNull(at(j, "error")));
            assert_string_equal(at(j, "tenant")->valuestring, lines < 5 ? "00000000000000aa" : "00000000000000bb");
            assert_int_equal(cJSON_GetArraySize(at(j, "rules_fired")), lines % 2 == 0);
        } else {
            assert_true(cJSON_IsNull(at(j, "prompt_tokens")) && cJSON_IsNull(at(j, "ttft_us")) &&
                        cJSON_IsNull(at(j, "tenant")));
            assert_string_equal(at(j, "error")->valuestring, "UPSTREAM_TIMEOUT");
            assert_true(cJSON_IsTrue(at(j, "usage_partial")));
            assert_string_equal(at(j, "model")->valuestring, "\x1b[31mred\xef\xbf\xbd\xe2\x80\xae");
            assert_string_equal(at(j, "route")->valuestring, "");
        }
        cJSON_Delete(j);
    }
    assert_int_equal(lines, 11);
    done(&o);
}

static void csv_is_rfc_4180(void **state) {
    fixture *f = *state;
    put_records(f, lar_clock_wall_ms());
    outcome o = run(f, lar_command_export, ARGS("--store", f->dir, "--format", "csv", "--upstream", "own"));
    assert_int_equal(o.rc, 0);
    assert_int_equal(strncmp(o.out, "seq,time,time_ms,tenant,route,upstream,model,status,", 52), 0);
    assert_non_null(strstr(o.out, ",\"local/\"\"odd\"\", model\",200,complete,,"));
    size_t head = 0, commas = 0;
    char *line = strstr(o.out, "\r\n");
    assert_non_null(line);
    for (char *p = o.out; p < line; p++) head += *p == ',';
    bool quoted = false;
    char *end = strstr(line + 2, "\r\n");
    assert_non_null(end);
    for (char *p = line + 2; p < end; p++) {
        if (*p == '"') quoted = !quoted;
        else if (*p == ',' && !quoted) commas++;
    }
    assert_int_equal(commas, head);
    done(&o);
}

/* What clients chose as a model's name neither drives a terminal nor a spreadsheet. */
static void csv_defuses_names(void **state) {
    (void)state;
    static const struct {
        const char *name, *cell;
    } cases[] = {
        {"plain-1.5", ",plain-1.5,"},
        {"=HYPERLINK(\"http://x\")", ",\"'=HYPERLINK(\"\"http://x\"\")\","},
        {"=1+1", ",'=1+1,"},
        {"+1", ",'+1,"},
        {"-1", ",'-1,"},
        {"@SUM(A1)", ",'@SUM(A1),"},
        {" =1", ",' =1,"},
        {"\xef\xbc\x9d"
         "1",
         ",'\xef\xbc\x9d"
         "1,"},
        {"\t=1", ",\\x09=1,"},
        {"\r\n=1", ",\\x0d\\x0a=1,"},
        {"\x1b[31mred", ",\\x1b[31mred,"},
        {"a\xc2\x9b"
         "2J",
         ",a\\u009b2J,"},
        {"a\xe2\x80\xae"
         "b",
         ",a\\u202eb,"},
        {"a\xff", ",a\\xff,"},
        {"a=b-c@d+", ",a=b-c@d+,"},
        {"\xe6\xa8\xa1\xe5\x9e\x8b", ",\xe6\xa8\xa1\xe5\x9e\x8b,"},
        {"", ",own,,200,"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lar_journal_record r = {.status = 200, .raw.prompt = -5};
        (void)snprintf(r.model, sizeof r.model, "%s", cases[i].name);
        (void)snprintf(r.upstream, sizeof r.upstream, "own");
        lar_buf b;
        lar_buf_init(&b, 8192);
        assert_int_equal(lar_fields_csv(&b, 1, &r), LAR_OK);
        assert_int_equal(lar_buf_add(&b, "", 1), LAR_OK);
        if (!strstr(b.ptr, cases[i].cell)) fail_msg("no %s in %s", cases[i].cell, b.ptr);
        assert_non_null(strstr(b.ptr, ",-5,")); /* a number is no formula */
        for (const char *p = b.ptr; *p; p++) assert_true((unsigned char)*p >= 0x20);
        lar_buf_release(&b);
    }
    lar_journal_record r = {.status = 200};
    memset(r.model, 1, sizeof r.model - 1); /* the longest there is, and every byte escaped */
    lar_buf b;
    lar_buf_init(&b, 8192);
    assert_int_equal(lar_fields_csv(&b, 1, &r), LAR_OK);
    assert_int_equal(lar_buf_add(&b, "", 1), LAR_OK);
    const char *first = strstr(b.ptr, "\\x01");
    assert_non_null(first);
    assert_int_equal(strspn(first, "\\x01"), 4 * (sizeof r.model - 1));
    lar_buf_release(&b);
}

/* Numbers no double holds come out exactly. */
static void numbers_are_exact(void **state) {
    (void)state;
    lar_journal_record r = {.time_ms = INT64_MAX,
                            .tenant = UINT64_MAX,
                            .tokens.prompt = 9007199254740993,
                            .request_bytes = UINT64_MAX,
                            .rules_fired = UINT64_C(1) << 63 | 1};
    lar_buf b;
    lar_buf_init(&b, 8192);
    assert_int_equal(lar_fields_json(&b, UINT64_MAX, &r), LAR_OK);
    assert_int_equal(lar_buf_add(&b, "", 1), LAR_OK);
    assert_non_null(strstr(b.ptr, "\"seq\":18446744073709551615"));
    assert_non_null(strstr(b.ptr, "\"prompt_tokens\":9007199254740993"));
    assert_non_null(strstr(b.ptr, "\"tenant\":\"ffffffffffffffff\""));
    assert_non_null(strstr(b.ptr, "\"rules_fired\":[\"LR001\",\"bit63\"]"));
    cJSON *j = cJSON_ParseWithOpts(b.ptr, NULL, true);
    assert_non_null(j);
    cJSON_Delete(j);
    lar_buf_release(&b);
}

static void tail_shows_the_last(void **state) {
    fixture *f = *state;
    put_records(f, lar_clock_wall_ms());
    outcome o = run(f, lar_command_tail, ARGS("--store", f->dir, "-n", "2", "--model", "deepseek*"));
    assert_int_equal(o.rc, 0);
    char *second = strchr(o.out, '\n');
    assert_non_null(second);
    assert_non_null(strstr(o.out, "turn 6"));
    assert_non_null(strstr(
        second,
        "Z  chat > deepseek  deepseek-v4-flash  200  complete  turn 7  prompt 1000  hit 900  miss 100  90.0%  ttft 800ms  "
        "total 2.000s  rules -  seen:LR001  predicted 880  lr-0000000000001007\n"));
    assert_non_null(strstr(o.out, "rules LR001  predicted 880  lr-0000000000001006\n"));
    assert_int_equal(strchr(second + 1, '\n')[1], 0);
    done(&o);
    o = run(f, lar_command_tail, ARGS("--store", f->dir, "-n1"));
    assert_int_equal(o.rc, 2);
    done(&o);
    o = run(f, lar_command_tail, ARGS("--store", f->dir, "-n", "1"));
    assert_true(is_clean(o.out));
    assert_non_null(strstr(o.out, "504  upstream-failed (UPSTREAM_TIMEOUT)"));
    assert_non_null(strstr(o.out, "prompt -  hit -  miss -  -  ttft -  total 0.0ms  rules -\n"));
    done(&o);
    o = run(f, lar_command_tail, ARGS("--store", f->dir, "-n", "0"));
    assert_string_equal(o.out, "");
    done(&o);
    o = run(f, lar_command_tail, ARGS("--store", f->dir, "--lines=100", "--json"));
    int lines = 0;
    for (char *p = o.out; (p = strchr(p, '\n')); p++) lines++;
    assert_int_equal(lines, 11);
    done(&o);
}

/* Reads until `want` line ends came, or nothing comes any more. */
static int read_lines(int fd, int want) {
    int got = 0;
    char b[4096];
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (got < want && poll(&p, 1, 20000) > 0) {
        ssize_t n = read(fd, b, sizeof b);
        if (n <= 0) break;
        for (ssize_t i = 0; i < n; i++) got += b[i] == '\n';
    }
    return got;
}

static void tail_follows_until_it_is_told_to_end(void **state) {
    fixture *f = *state;
    int fds[2];
    put_records(f, lar_clock_wall_ms());
    assert_int_equal(pipe(fds), 0);
    (void)fflush(NULL);
    pid_t child = start(lar_command_tail, ARGS("--store", f->dir, "-f", "-n", "3"), fds[1], STDERR_FILENO);
    close(fds[1]);
    assert_int_equal(read_lines(fds[0], 3), 3);
    fixture_open(f); /* a larder starts beside it */
    lar_journal_record r = record_of(1);
    r.time_ms = lar_clock_wall_ms();
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 4; i++) lar_store_journal(f->store, &r);
        lar_store_flush(f->store);
        assert_int_equal(read_lines(fds[0], 4), 4);
    }
    assert_int_equal(kill(child, SIGINT), 0);
    assert_int_equal(ended(child), 0);
    close(fds[0]);
}

static void tail_ends_when_nobody_reads(void **state) {
    fixture *f = *state;
    int fds[2];
    put_records(f, lar_clock_wall_ms());
    assert_int_equal(pipe(fds), 0);
    (void)fflush(NULL);
    pid_t child = start(lar_command_tail, ARGS("--store", f->dir, "-f", "-n", "1"), fds[1], STDERR_FILENO);
    close(fds[1]);
    assert_int_equal(read_lines(fds[0], 1), 1);
    close(fds[0]); /* and no further record comes: it must notice by itself */
    assert_int_equal(ended(child), 0);
}

static void wrong_use_is_said(void **state) {
    fixture *f = *state;
    static const struct {
        const char *args[5], *says;
    } rows[] = {
        {{"--since", "yesterday"}, "not a time"},
        {{"--since", ""}, "not a time"},
        {{"--since", "5"}, "not a time"},
        {{"--since", "-1h"}, "not a time"},
        {{"--since", "2026-02-30"}, "not a time"},
        {{"--since", "2026-13-01"}, "not a time"},
        {{"--since", "99999999999h"}, "not a time"},
        {{"--since", "2026-11-29T25:00"}, "not a time"},
        {{"--until"}, "needs a value"},
        {{"--modle", "x"}, "unknown option"},
        {{"x"}, "unknown option"},
        {{"--tenant", "0xyz"}, "not a fingerprint"},
        {{"--tenant", "0x0"}, "0 stands"},
        {{"--tenant", "0000000000000000"}, "0 stands"},
        {{"--tenant", "0x11111111111111111"}, "not a fingerprint"},
        {{"--tenant="}, "not a tenant"},
        {{"--model", "a*b"}, "not a pattern"},
        {{"--model="}, "not a pattern"},
        {{"--since", "1h", "--until", "2h"}, "nothing could match"},
        {{"-f"}, "unknown option"},
        {{"--format", "csv"}, "unknown option"},
        {{"--json=1"}, "unknown option"},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *args[8] = {"--store", f->dir};
        for (int a = 0; a < 5 && rows[i].args[a]; a++) args[2 + a] = rows[i].args[a];
        outcome o = run(f, lar_command_stats, args);
        if (o.rc != 2 || !strstr(o.err, rows[i].says)) fail_msg("row %u: rc %d, %s", i, o.rc, o.err);
        assert_string_equal(o.out, "");
        done(&o);
    }
    outcome o = run(f, lar_command_stats, ARGS("--json"));
    assert_int_equal(o.rc, 2);
    assert_non_null(strstr(o.err, "LARDER_STORE_DIR"));
    done(&o);
    o = run(f, lar_command_export, ARGS("--store", f->dir));
    assert_int_equal(o.rc, 1);
    assert_non_null(strstr(o.err, "no store in"));
    done(&o);
    o = run(f, lar_command_tail, ARGS("--help"));
    assert_int_equal(o.rc, 0);
    assert_non_null(strstr(o.out, "--follow"));
    done(&o);
}

static void times_are_read(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } rows[] = {
        {"now", 1800000000000},
        {"30s", 1800000000000 - 30000},
        {"1h30m", 1800000000000 - 5400000},
        {"2d", 1800000000000 - 172800000},
        {"1w", 1800000000000 - 604800000},
        {"2026-11-29", 1795910400000},
        {"2026-11-29T10:00:00Z", 1795946400000},
        {"2026-11-29T10:00", 1795946400000},
        {"2026-11-29 10:00:00.25", 1795946400250},
        {"2026-11-29T18:00:00+08:00", 1795946400000},
        {"2026-11-29T05:00:00-0500", 1795946400000},
        {"2028-02-29", 1835395200000},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t got = 0;
        if (!lar_query_time(rows[i].text, 1800000000000, &got) || got != rows[i].ms)
            fail_msg("%s: %lld", rows[i].text, (long long)got);
    }
    const char *wrong[] = {"",
                           "1",
                           "h",
                           "1x",
                           "1h ",
                           "2026",
                           "2026-11",
                           "2026-11-29T",
                           "2026-11-29T10",
                           "2026-11-29T10:00:00ZZ",
                           "2026-11-29T10:00:00.",
                           "2026-11-29T10:00:00+25:00",
                           "26-11-29",
                           "2027-02-29",
                           "1h30"};
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int64_t got;
        if (lar_query_time(wrong[i], 1800000000000, &got)) fail_msg("%s was taken for a time", wrong[i]);
    }
    char text[LAR_TIME_BYTES];
    lar_present_time(1795946400250, text);
    assert_string_equal(text, "2026-11-29T10:00:00.250Z");
    lar_present_time(-1, text);
    assert_string_equal(text, "1969-12-31T23:59:59.999Z");
    lar_present_time(INT64_MIN, text);
    assert_string_equal(text, "-9223372036854775808ms");
}

static void durations_have_their_unit(void **state) {
    (void)state;
    static const struct {
        int64_t us;
        const char *text;
    } rows[] = {{0, "0.0ms"},       {3200, "3.2ms"},       {9949, "9.9ms"},
                {9950, "10ms"},     {850000, "850ms"},     {999499, "999ms"},
                {999500, "1.000s"}, {61000000, "61.000s"}, {LAR_TOKENS_UNKNOWN, "-"}};
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[LAR_DURATION_BYTES];
        lar_present_duration(rows[i].us, text);
        assert_string_equal(text, rows[i].text);
    }
    char text[LAR_DURATION_BYTES];
    lar_present_duration(INT64_MAX, text);
    assert_true(strlen(text) > 15);
}

static void names_keep_their_width(void **state) {
    (void)state;
    char shown[LAR_SHOWN_BYTES];
    lar_present_name(LAR_SLICE("模型-é"), shown);
    assert_string_equal(shown, "模型-é");
    assert_int_equal(lar_present_width(shown), 6);
    lar_present_name(LAR_SLICE(""), shown);
    assert_string_equal(shown, "-");
    lar_present_name(LAR_SLICE("a\nb\xc2\x85\xe6\xa8"), shown); /* cut inside a character, as a long name is */
    assert_string_equal(shown, "a\\x0ab\\u0085\\xe6\\xa8");
    char longest[LAR_SHOWN_BYTES];
    memset(longest, 1, sizeof longest);
    lar_present_name(lar_slice_of(longest, sizeof longest), shown);
    assert_true(strlen(shown) < LAR_SHOWN_BYTES);
}

static void percentiles_and_groups_are_bounded(void **state) {
    (void)state;
    lar_samples s = {0};
    assert_int_equal(lar_samples_at(&s, 0.5), -1);
    for (int i = 1; i <= 20; i++) lar_samples_add(&s, i * 10);
    assert_int_equal(lar_samples_at(&s, 0.50), 100);
    assert_int_equal(lar_samples_at(&s, 0.95), 190);
    for (int64_t i = 0; i < 1000000; i++) lar_samples_add(&s, i % 1000);
    assert_true(s.count <= 1 << 18);
    int64_t p50 = lar_samples_at(&s, 0.5);
    assert_true(p50 > 480 && p50 < 520);
    free(s.values);

    lar_groups *g = lar_groups_new();
    assert_non_null(g);
    for (int i = 0; i < 5000; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "model %d", i);
        lar_groups_get(g, name)->requests++;
        lar_groups_get(g, "model 7")->requests++;
    }
    uint32_t count;
    lar_tally *rows = lar_groups_sorted(g, &count);
    assert_int_equal(count, LAR_GROUPS_MAX + 1);
    assert_string_equal(rows[0].name, "model 7");
    assert_string_equal(rows[count - 1].name, "(others)");
    assert_int_equal(rows[count - 1].requests, 5000 - LAR_GROUPS_MAX);
    lar_groups_free(g);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(stats_add_up),
        TEST(filters_apply),
        TEST(tables_are_aligned_and_harmless),
        TEST(what_only_looks_is_shown),
        TEST(fallbacks_are_told),
        cmocka_unit_test(the_page_has_every_field),
        TEST(export_has_every_field),
        TEST(csv_is_rfc_4180),
        TEST(csv_defuses_names),
        cmocka_unit_test(numbers_are_exact),
        TEST(tail_shows_the_last),
        TEST(tail_follows_until_it_is_told_to_end),
        TEST(tail_ends_when_nobody_reads),
        TEST(wrong_use_is_said),
        cmocka_unit_test(times_are_read),
        cmocka_unit_test(durations_have_their_unit),
        cmocka_unit_test(names_keep_their_width),
        cmocka_unit_test(percentiles_and_groups_are_bounded),
    };
    (void)unsetenv("LARDER_STORE_DIR");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
