/* larder stats: hit rates, tokens, first-byte times and money, in all and by model, upstream, tenant, turn, ending.
 * Flow: main.c calls; query.c opens; one scan fills the tallies; printed as tables or as JSON; with --admin a running
 * larder is asked for what no store has (stats_experts.c). One thread.
 * Invariants: 1. a rate is over requests whose hits are known, and the number of others stands beside it.
 * 2. Money is over requests with a price and known tokens; a model without a row is "unknown", not free.
 * 3. What never was a prompt (tally.h) is counted on a line of its own, and is neither a model's nor a turn's.
 * Memory: tallies, bounded (tally.c). Not here: the sums (tally.c), the look of text (present.c). */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "gateway/commands/fields.h"
#include "gateway/commands/present.h"
#include "gateway/commands/query.h"
#include "gateway/commands/stats_experts.h"
#include "gateway/commands/tally.h"
#include "policies/canon.h"

enum { TURNS = 6, ROWS_SHOWN = 50, JSON_NAME_BYTES = 4096 };

static const char usage[] = "usage: larder stats --store DIR [options]\n"
                            "Sums of the journal: hit rates, tokens, first-byte times, money.\n"
                            "  --json             for programs\n"
                            "  --admin ADDRESS    HOST:PORT of a running larder's admin listener: also hit rates of\n"
                            "                     experts in a budget since its start, by layer, and advice\n";

static const char *const turn_names[TURNS] = {"0", "1", "2", "3-5", "6-10", "11+"};

typedef struct stats {
    lar_tally all, turns[TURNS];
    uint64_t endings[LAR_END_COUNT];
    uint64_t seen[LAR_RULE_COUNT], edited[LAR_RULE_COUNT];
    uint64_t predicted, predicted_hit, drift_over, drift_under; /* requests with both known; tokens */
    uint64_t recall_hits, recall_misses;
    uint64_t answered_further, repeated, cold_tokens; /* requests: by a further target, with more than one attempt */
    uint64_t continued, continued_output;             /* streams that broke and went on; output tokens from there on */
    uint64_t damaged;
    int64_t first_ms, last_ms;
    lar_groups *models, *upstreams, *tenants, *further; /* further: who answered where the first target did not */
} stats;

/* -- adding ------------------------------------------------------------------------------------------- */

static int turn_of(uint32_t turn) { return turn < 3 ? (int)turn : turn <= 5 ? 3 : turn <= 10 ? 4 : 5; }

static void add_prediction(stats *s, const lar_journal_record *r) {
    int64_t drift = lar_fields_drift(r);
    s->recall_hits += r->recall_hits;
    s->recall_misses += r->recall_misses;
    if (!r->prompt_bytes || drift == LAR_TOKENS_UNKNOWN) return;
    s->predicted++;
    s->predicted_hit += (uint64_t)r->predicted_hit;
    if (drift > 0) s->drift_over += (uint64_t)drift;
    else s->drift_under += (uint64_t)-drift;
}

static void add_attempts(stats *s, const lar_journal_record *r, const lar_price *price) {
    s->repeated += r->attempts > 1;
    s->cold_tokens += r->cold_tokens;
    if (!r->target || r->status < 200 || r->status > 299) return;
    s->answered_further++;
    lar_tally_add(lar_groups_get(s->further, r->upstream), r, price);
}

static void add_continued(stats *s, const lar_journal_record *r) {
    if (!r->continued[0]) return;
    s->continued++;
    if (r->tokens.output > r->begun_output && r->begun_output >= 0)
        s->continued_output += (uint64_t)(r->tokens.output - r->begun_output);
}

static bool add_record(void *ctx, uint64_t seq, const lar_journal_record *r) {
    stats *s = ctx;
    char where[2 * LAR_JREC_NAME_BYTES + 8], tenant[20] = "";
    (void)seq;
    const lar_price *price = lar_price_find(lar_slice_cstr(r->model));
    (void)snprintf(where, sizeof where, "%s > %s", r->route[0] ? r->route : "-", r->upstream[0] ? r->upstream : "-");
    lar_tally_add(&s->all, r, price);
    lar_tally_add(lar_groups_get(s->upstreams, where), r, price);
    if (r->tenant) (void)snprintf(tenant, sizeof tenant, "%016" PRIx64, r->tenant);
    lar_tally_add(lar_groups_get(s->tenants, tenant), r, price);
    if (lar_tally_has_prompt(r)) {
        lar_tally_add(lar_groups_get(s->models, r->model), r, price);
        lar_tally_add(&s->turns[turn_of(r->turn)], r, price);
    }
    s->endings[r->ending]++;
    add_prediction(s, r);
    add_attempts(s, r, price);
    add_continued(s, r);
    for (int i = 0; i < LAR_RULE_COUNT; i++) {
        s->seen[i] += (r->rules_seen | r->rules_fired) >> i & 1;
        s->edited[i] += r->rules_fired >> i & 1;
    }
    if (s->all.requests == 1 || r->time_ms < s->first_ms) s->first_ms = r->time_ms;
    if (s->all.requests == 1 || r->time_ms > s->last_ms) s->last_ms = r->time_ms;
    return true;
}

/* -- for people ------------------------------------------------------------------------------------------ */

static void add_rate(lar_table *t, double rate) {
    if (rate < 0) lar_table_cell(t, "-");
    else lar_table_cell(t, "%.1f%%", 100 * rate);
}

static void add_duration(lar_table *t, int64_t us) {
    char text[LAR_DURATION_BYTES];
    lar_present_duration(us, text);
    lar_table_cell(t, "%s", text);
}

static void add_money(lar_table *t, const lar_tally *n, double usd) {
    if (n->priced) lar_table_cell(t, "%.6f", usd);
    else lar_table_cell(t, "unknown");
}

static lar_table *table_new(const char *first) {
    static const char *const heads[] = {"requests", "known", "hit rate", "prompt", "hit",    "miss",
                                        "output",   "p50",   "p95",      "cost $", "saved $"};
    lar_table *t = lar_table_new(1 + sizeof heads / sizeof *heads);
    lar_table_cell(t, "%s", first);
    for (unsigned i = 0; i < sizeof heads / sizeof *heads; i++) lar_table_cell(t, "%s", heads[i]);
    return t;
}

static void add_row(lar_table *t, const char *name, lar_tally *n) {
    lar_table_cell(t, "%s", name);
    lar_table_cell(t, "%" PRIu64, n->requests);
    lar_table_cell(t, "%" PRIu64, n->known);
    add_rate(t, lar_tally_rate(n));
    lar_table_cell(t, "%" PRIu64, n->prompt);
    lar_table_cell(t, "%" PRIu64, n->hit);
    lar_table_cell(t, "%" PRIu64, n->miss);
    lar_table_cell(t, "%" PRIu64, n->output);
    add_duration(t, lar_samples_at(&n->ttft, 0.50));
    add_duration(t, lar_samples_at(&n->ttft, 0.95));
    add_money(t, n, n->cost);
    add_money(t, n, n->saved);
}

static void finish_table(lar_table *t) {
    (void)putchar('\n');
    lar_table_print(t, stdout);
    lar_table_free(t);
}

static void print_groups(lar_groups *g, const char *head) {
    char shown[LAR_SHOWN_BYTES];
    uint32_t count;
    lar_tally *rows = lar_groups_sorted(g, &count);
    lar_table *t = table_new(head);
    for (uint32_t i = 0; i < count && i < ROWS_SHOWN; i++) {
        lar_present_name(lar_slice_cstr(rows[i].name), shown);
        add_row(t, shown, &rows[i]);
    }
    finish_table(t);
    if (count > ROWS_SHOWN) (void)printf("and %" PRIu32 " more (--json has them)\n", count - ROWS_SHOWN);
}

static void print_attempts(stats *s) {
    char shown[LAR_SHOWN_BYTES];
    uint32_t count;
    lar_tally *rows = lar_groups_sorted(s->further, &count);
    if (s->answered_further) (void)printf("fallback  %" PRIu64 " answers by a further target:", s->answered_further);
    for (uint32_t i = 0; i < count; i++) {
        lar_present_name(lar_slice_cstr(rows[i].name), shown);
        (void)printf("%s %s %" PRIu64, i ? "," : "", shown, rows[i].requests);
    }
    if (s->answered_further) (void)printf("; %" PRIu64 " warm tokens were cold there\n", s->cold_tokens);
    if (s->repeated) (void)printf("repeated  %" PRIu64 " requests took more than one attempt\n", s->repeated);
    if (s->continued)
        (void)printf("continued %" PRIu64 " streams that broke, by models of this process: %" PRIu64
                     " output tokens from there on\n",
                     s->continued, s->continued_output);
}

static void print_totals(stats *s) {
    char first[LAR_TIME_BYTES], last[LAR_TIME_BYTES];
    lar_tally *n = &s->all;
    lar_present_time(s->first_ms, first);
    lar_present_time(s->last_ms, last);
    (void)printf("%s to %s\n", first, last);
    double rate = lar_tally_rate(n);
    (void)printf("requests  %" PRIu64 ", edited %" PRIu64 "\n", n->requests, n->edited);
    if (rate < 0) (void)printf("hit rate  unknown");
    else (void)printf("hit rate  %.1f%%", 100 * rate);
    (void)printf(" of %" PRIu64 " requests with known hits; unknown for %" PRIu64 "\n", n->known, lar_tally_unknown(n));
    if (n->promptless > n->kept)
        (void)printf("no prompt %" PRIu64 " requests: refused, or not to a model (lists of models)\n",
                     n->promptless - n->kept);
    if (n->kept)
        (void)printf("kept      %" PRIu64 " requests got a kept answer: %" PRIu64 " prompt and %" PRIu64
                     " output tokens not asked for again\n",
                     n->kept, n->kept_prompt, n->kept_output);
    (void)printf("tokens    prompt %" PRIu64 ", hit %" PRIu64 ", miss %" PRIu64 " (written %" PRIu64
                 "), output %" PRIu64 "\n",
                 n->prompt, n->hit, n->miss, n->write, n->output);
    if (s->predicted)
        (void)printf("predicted hit %" PRIu64 " of %" PRIu64 " requests; not reported %" PRIu64
                     ", reported beyond %" PRIu64 "\n",
                     s->predicted_hit, s->predicted, s->drift_over, s->drift_under);
    if (s->recall_hits || s->recall_misses)
        (void)printf("recall    %" PRIu64 " look-ups found something, %" PRIu64 " nothing\n", s->recall_hits,
                     s->recall_misses);
    int64_t p50 = lar_samples_at(&n->ttft, 0.50), p95 = lar_samples_at(&n->ttft, 0.95);
    lar_present_duration(p50, first);
    lar_present_duration(p95, last);
    if (p50 >= 0) (void)printf("first byte  p50 %s, p95 %s\n", first, last);
    if (n->priced) (void)printf("money     cost $%.6f, saved by hits $%.6f", n->cost, n->saved);
    else (void)printf("money     unknown");
    (void)printf("; without a price or known tokens: %" PRIu64 " requests\n", n->requests - n->promptless - n->priced);
    if (n->partial || n->odd)
        (void)printf("notes     %" PRIu64 " answers were cut, their usage is partial; %" PRIu64
                     " had contradicting numbers (clamped)\n",
                     n->partial, n->odd);
    print_attempts(s);
    if (s->damaged) (void)printf("damaged   %" PRIu64 " records could not be read and were left out\n", s->damaged);
}

static void print_endings(const stats *s) {
    lar_table *t = lar_table_new(2);
    lar_table_cell(t, "ending");
    lar_table_cell(t, "requests");
    for (int i = 0; i < LAR_END_COUNT; i++) {
        if (!s->endings[i]) continue;
        lar_table_cell(t, "%s", lar_ending_name((lar_ending)i));
        lar_table_cell(t, "%" PRIu64, s->endings[i]);
    }
    finish_table(t);
}

static void print_rules(const stats *s) {
    bool any = false;
    lar_table *t = lar_table_new(3);
    lar_table_cell(t, "rule");
    lar_table_cell(t, "seen");
    lar_table_cell(t, "edited");
    for (int i = 0; i < LAR_RULE_COUNT; i++) {
        if (!s->seen[i]) continue;
        any = true;
        lar_table_cell(t, "%s %s", lar_rule_id((lar_rule)i), lar_rule_name((lar_rule)i));
        lar_table_cell(t, "%" PRIu64, s->seen[i]);
        lar_table_cell(t, "%" PRIu64, s->edited[i]);
    }
    if (any) finish_table(t);
    else lar_table_free(t);
}

/* One tenant alone is the totals once more, unless it was asked for. */
static void print_tenants(stats *s, const lar_query *q) {
    uint32_t count;
    (void)lar_groups_sorted(s->tenants, &count);
    if (count < 2 && !q->filter.tenant) return;
    print_groups(s->tenants, "tenant");
    if (q->tenant_name) (void)printf("%016" PRIx64 " is '%s'\n", q->filter.tenant, q->tenant_name);
}

/* Each source once, with the models it was used for left to the tables. */
static void print_prices(stats *s) {
    uint32_t count, rows_count;
    const lar_price *rows = lar_price_rows(&rows_count);
    lar_tally *models = lar_groups_sorted(s->models, &count);
    bool *used = calloc(rows_count, sizeof *used);
    if (!used) return;
    for (uint32_t i = 0; i < count; i++) {
        const lar_price *p = models[i].priced ? lar_price_find(lar_slice_cstr(models[i].name)) : NULL;
        if (p) used[p - rows] = true;
    }
    for (uint32_t i = 0; i < rows_count; i++) {
        const lar_price *p = &rows[i];
        if (!used[i]) continue;
        (void)printf("price  %s: $%g in, $%g hit, $%g write, $%g out per million tokens", p->model, p->input, p->hit,
                     p->write, p->output);
        (void)printf("; %s, %s\n", p->source, p->date);
    }
    free(used);
}

static void print_people(stats *s, const lar_query *q) {
    if (!s->all.requests) {
        (void)printf("no requests match\n");
        if (s->damaged) (void)printf("damaged   %" PRIu64 " records could not be read\n", s->damaged);
        return;
    }
    print_totals(s);
    print_groups(s->models, "model");
    print_groups(s->upstreams, "route > upstream");
    print_tenants(s, q);
    lar_table *t = table_new("turn");
    for (int i = 0; i < TURNS; i++) {
        if (s->turns[i].requests) add_row(t, turn_names[i], &s->turns[i]);
    }
    finish_table(t);
    print_endings(s);
    print_rules(s);
    (void)putchar('\n');
    print_prices(s);
}

/* -- for programs ------------------------------------------------------------------------------------------- */

/* cJSON's numbers are doubles: whole numbers go in as text. */
static void json_u64(cJSON *o, const char *name, uint64_t v) {
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRIu64, v);
    (void)cJSON_AddRawToObject(o, name, text);
}

static void json_fixed(cJSON *o, const char *name, double v, bool known) {
    char text[64];
    (void)snprintf(text, sizeof text, "%.9f", v);
    (void)cJSON_AddRawToObject(o, name, known ? text : "null");
}

static void json_us(cJSON *o, const char *name, int64_t us) {
    if (us < 0) (void)cJSON_AddNullToObject(o, name);
    else json_u64(o, name, (uint64_t)us);
}

static void json_text(cJSON *o, const char *name, const char *text) {
    lar_buf b;
    lar_buf_init(&b, JSON_NAME_BYTES);
    bool ok = !lar_present_json(&b, lar_slice_cstr(text)) && !lar_buf_add(&b, "", 1);
    (void)cJSON_AddRawToObject(o, name, ok ? b.ptr : "null");
    lar_buf_release(&b);
}

static void json_tally(cJSON *o, lar_tally *n) {
    double rate = lar_tally_rate(n);
    json_u64(o, "requests", n->requests);
    json_u64(o, "known", n->known);
    json_u64(o, "unknown", lar_tally_unknown(n));
    json_u64(o, "no_prompt", n->promptless - n->kept);
    json_u64(o, "kept_answers", n->kept);
    json_u64(o, "kept_prompt_tokens", n->kept_prompt);
    json_u64(o, "kept_output_tokens", n->kept_output);
    json_fixed(o, "hit_rate", rate, rate >= 0);
    json_u64(o, "prompt_tokens", n->prompt);
    json_u64(o, "hit_tokens", n->hit);
    json_u64(o, "miss_tokens", n->miss);
    json_u64(o, "write_tokens", n->write);
    json_u64(o, "output_tokens", n->output);
    json_us(o, "ttft_p50_us", lar_samples_at(&n->ttft, 0.50));
    json_us(o, "ttft_p95_us", lar_samples_at(&n->ttft, 0.95));
    json_u64(o, "edited", n->edited);
    json_u64(o, "usage_partial", n->partial);
    json_u64(o, "usage_odd", n->odd);
    json_u64(o, "priced", n->priced);
    json_fixed(o, "cost_usd", n->cost, n->priced > 0);
    json_fixed(o, "saved_usd", n->saved, n->priced > 0);
}

static void json_price(cJSON *o, const char *model) {
    const lar_price *p = lar_price_find(lar_slice_cstr(model));
    cJSON *j = p ? cJSON_AddObjectToObject(o, "price") : cJSON_AddNullToObject(o, "price");
    if (!p || !j) return;
    (void)cJSON_AddNumberToObject(j, "input", p->input);
    (void)cJSON_AddNumberToObject(j, "hit", p->hit);
    (void)cJSON_AddNumberToObject(j, "write", p->write);
    (void)cJSON_AddNumberToObject(j, "output", p->output);
    (void)cJSON_AddStringToObject(j, "source", p->source);
    (void)cJSON_AddStringToObject(j, "date", p->date);
}

typedef enum json_detail { JSON_PLAIN, JSON_PRICED } json_detail;

static void json_groups(cJSON *o, const char *name, lar_groups *g, json_detail detail) {
    uint32_t count;
    lar_tally *rows = lar_groups_sorted(g, &count);
    cJSON *list = cJSON_AddArrayToObject(o, name);
    for (uint32_t i = 0; list && i < count; i++) {
        cJSON *row = cJSON_CreateObject();
        if (!row) return;
        json_text(row, "name", rows[i].name);
        json_tally(row, &rows[i]);
        if (detail == JSON_PRICED) json_price(row, rows[i].name);
        (void)cJSON_AddItemToArray(list, row);
    }
}

static void json_rules(cJSON *o, const stats *s) {
    cJSON *rules = cJSON_AddObjectToObject(o, "rules");
    for (int i = 0; rules && i < LAR_RULE_COUNT; i++) {
        cJSON *row = cJSON_AddObjectToObject(rules, lar_rule_id((lar_rule)i));
        if (!row) return;
        json_u64(row, "seen", s->seen[i]);
        json_u64(row, "edited", s->edited[i]);
    }
}

static int print_json(stats *s, const lar_stats_experts *experts) {
    cJSON *o = cJSON_CreateObject();
    cJSON *all = o ? cJSON_AddObjectToObject(o, "all") : NULL;
    if (all) json_tally(all, &s->all);
    if (o && s->all.requests) {
        char time[LAR_TIME_BYTES];
        lar_present_time(s->first_ms, time);
        (void)cJSON_AddStringToObject(o, "first", time);
        lar_present_time(s->last_ms, time);
        (void)cJSON_AddStringToObject(o, "last", time);
    }
    if (o) json_u64(o, "damaged", s->damaged);
    if (o) json_u64(o, "predicted_requests", s->predicted);
    if (o) json_u64(o, "predicted_hit_tokens", s->predicted_hit);
    if (o) json_u64(o, "drift_over_tokens", s->drift_over);
    if (o) json_u64(o, "drift_under_tokens", s->drift_under);
    if (o) json_u64(o, "recall_hits", s->recall_hits);
    if (o) json_u64(o, "recall_misses", s->recall_misses);
    if (o) json_u64(o, "fallback_answers", s->answered_further);
    if (o) json_u64(o, "repeated_requests", s->repeated);
    if (o) json_u64(o, "cold_tokens", s->cold_tokens);
    if (o) json_u64(o, "continued_streams", s->continued);
    if (o) json_u64(o, "continued_output_tokens", s->continued_output);
    if (o) json_groups(o, "fallbacks", s->further, JSON_PLAIN);
    if (o) json_groups(o, "models", s->models, JSON_PRICED);
    if (o) json_groups(o, "upstreams", s->upstreams, JSON_PLAIN);
    if (o) json_groups(o, "tenants", s->tenants, JSON_PLAIN);
    cJSON *turns = o ? cJSON_AddObjectToObject(o, "turns") : NULL;
    for (int i = 0; turns && i < TURNS; i++) {
        cJSON *row = cJSON_AddObjectToObject(turns, turn_names[i]);
        if (row) json_tally(row, &s->turns[i]);
    }
    cJSON *endings = o ? cJSON_AddObjectToObject(o, "endings") : NULL;
    for (int i = 0; endings && i < LAR_END_COUNT; i++) json_u64(endings, lar_ending_name((lar_ending)i), s->endings[i]);
    if (o) json_rules(o, s);
    if (o) lar_stats_experts_json(experts, o);
    lar_error e = lar_present_document(o, stdout);
    if (e == LAR_NO_MEMORY) (void)fprintf(stderr, "larder: %s\n", lar_error_text(e));
    return e ? 1 : 0;
}

static void stats_free(stats *s) {
    if (!s) return;
    lar_tally_release(&s->all);
    for (int i = 0; i < TURNS; i++) lar_tally_release(&s->turns[i]);
    lar_groups_free(s->models);
    lar_groups_free(s->upstreams);
    lar_groups_free(s->tenants);
    lar_groups_free(s->further);
    free(s);
}

static int sum_up(const lar_query *q, const lar_stats_experts *experts) {
    lar_store *store;
    int rc = lar_query_open(q, &store);
    if (rc) return rc;
    stats *s = calloc(1, sizeof *s);
    if (s) s->models = lar_groups_new();
    if (s) s->upstreams = lar_groups_new();
    if (s) s->tenants = lar_groups_new();
    if (s) s->further = lar_groups_new();
    bool ready = s && s->models && s->upstreams && s->tenants && s->further;
    lar_error e = ready ? lar_store_scan(store, &q->filter, 0, add_record, s, &s->damaged) : LAR_NO_MEMORY;
    lar_store_close(store);
    if (e) {
        (void)fprintf(stderr, "larder: %s\n", lar_error_text(e));
        rc = 1;
    } else if (q->json) {
        rc = print_json(s, experts);
    } else {
        print_people(s, q);
        lar_stats_experts_print(experts, stdout);
    }
    (void)fflush(stdout);
    stats_free(s);
    return rc;
}

int lar_command_stats(int argc, char **argv) {
    lar_query q = {.now_ms = lar_clock_wall_ms()};
    lar_stats_experts experts = {NULL};
    int rc = lar_query_parse(&q, usage, LAR_QUERY_JSON | LAR_QUERY_ADMIN, argc, argv);
    if (rc >= 0) return rc;
    rc = q.admin ? lar_stats_experts_ask(&experts, q.admin) : 0;
    if (!rc) rc = sum_up(&q, &experts);
    lar_stats_experts_release(&experts);
    return rc;
}
