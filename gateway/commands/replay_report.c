/* What larder replay found out, as tables for people and as JSON (header: replay.h).
 * Flow: replay.c calls once, with the sums of the pass and of those without a rule. One thread; blocks on the output.
 * Invariants: 1. a count is called an estimate. 2. Money is said only of requests whose model has a price, and says by
 * whose price. Memory: a table, or a cJSON tree, for the time of printing. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <string.h>

#include "gateway/commands/present.h"
#include "gateway/commands/replay.h"

static bool shown(const lar_replay_sums *s, uint32_t i) { return s->sent[i].all.requests > 0; }

static double percent(const lar_replay_count *c) { return 100 * lar_replay_rate(c); }

/* -- text ----------------------------------------------------------------------------------------------- */

static void rate_cell(lar_table *t, const lar_replay_count *c) {
    if (c->prompt) lar_table_cell(t, "%.1f%%", percent(c));
    else lar_table_cell(t, "-");
}

static void money_cell(lar_table *t, const lar_replay_sums *s, double usd) {
    if (s->priced) lar_table_cell(t, "$%.4f", usd);
    else lar_table_cell(t, "-");
}

static void print_providers(const lar_replay_options *o, const lar_replay_sums *s, FILE *to) {
    static const char *const head[] = {"provider",    "requests", "prompt tokens", "raw hit",
                                       "with larder", "hits won", "raw cost",      "with larder"};
    enum { COLUMNS = sizeof head / sizeof *head };
    lar_table *t = lar_table_new(COLUMNS);
    for (int c = 0; c < COLUMNS; c++) lar_table_cell(t, "%s", head[c]);
    for (uint32_t i = 0; i < o->provider_count; i++) {
        if (!shown(s, i)) continue;
        const lar_replay_side *raw = &s->raw[i], *sent = &s->sent[i];
        lar_table_cell(t, "%s", o->providers[i]->name);
        lar_table_cell(t, "%" PRIu64, raw->all.requests);
        lar_table_cell(t, "%" PRIu64, raw->all.prompt);
        rate_cell(t, &raw->all);
        rate_cell(t, &sent->all);
        lar_table_cell(t, "%+" PRId64, (int64_t)(sent->all.hit - raw->all.hit));
        money_cell(t, s, raw->cost);
        money_cell(t, s, sent->cost);
    }
    lar_table_print(t, to);
    lar_table_free(t);
}

static void print_turns(const lar_replay_options *o, const lar_replay_sums *s, FILE *to) {
    uint32_t columns = 1;
    for (uint32_t i = 0; i < o->provider_count; i++) columns += shown(s, i) ? 2 : 0;
    lar_table *t = lar_table_new(columns);
    lar_table_cell(t, "turn");
    for (uint32_t i = 0; i < o->provider_count; i++) {
        if (!shown(s, i)) continue;
        lar_table_cell(t, "%s raw", o->providers[i]->name);
        lar_table_cell(t, "with larder");
    }
    for (int turn = 0; turn < LAR_REPLAY_TURNS; turn++) {
        uint64_t any = 0;
        for (uint32_t i = 0; i < o->provider_count; i++) any += s->sent[i].turns[turn].requests;
        if (!any) continue;
        lar_table_cell(t, "%s", lar_replay_turn_names[turn]);
        for (uint32_t i = 0; i < o->provider_count; i++) {
            if (!shown(s, i)) continue;
            rate_cell(t, &s->raw[i].turns[turn]);
            rate_cell(t, &s->sent[i].turns[turn]);
        }
    }
    lar_table_print(t, to);
    lar_table_free(t);
}

static void print_rules(const lar_replay_options *o, const lar_replay_sums *s, const lar_replay_sums *without,
                        FILE *to) {
    uint32_t columns = 3;
    for (uint32_t i = 0; i < o->provider_count && o->by_rule; i++) columns += shown(s, i) ? 1 : 0;
    lar_table *t = lar_table_new(columns);
    lar_table_cell(t, "rule");
    lar_table_cell(t, "requests edited");
    lar_table_cell(t, "findings");
    for (uint32_t i = 0; i < o->provider_count && o->by_rule; i++)
        if (shown(s, i)) lar_table_cell(t, "%s", o->providers[i]->name);
    for (int r = 0; r < LAR_RULE_COUNT; r++) {
        if (!s->rule_requests[r]) continue;
        lar_table_cell(t, "%s %s", lar_rule_id((lar_rule)r), lar_rule_name((lar_rule)r));
        lar_table_cell(t, "%" PRIu64, s->rule_requests[r]);
        lar_table_cell(t, "%" PRIu64, s->rule_edits[r]);
        for (uint32_t i = 0; i < o->provider_count && o->by_rule; i++)
            if (shown(s, i)) lar_table_cell(t, "%+.1f", percent(&s->sent[i].all) - percent(&without[r].sent[i].all));
    }
    (void)fputs(o->by_rule
                    ? "\nWhat each rule contributes: points of the hit rate that are missing without it\n"
                    : "\nWhat each rule edited (read from a file, the log also shows what each rule contributes)\n",
                to);
    lar_table_print(t, to);
    lar_table_free(t);
}

static void print_saved(const lar_replay_options *o, const lar_replay_sums *s, FILE *to) {
    if (!s->priced) {
        (void)fputs("\nMoney: no request names a model whose price is known; --price-as MODEL takes another's.\n", to);
        return;
    }
    (void)fputc('\n', to);
    for (uint32_t i = 0; i < o->provider_count; i++) {
        double raw = s->raw[i].cost, sent = s->sent[i].cost;
        if (!shown(s, i) || raw <= 0) continue;
        const char *verb = sent <= raw ? "save" : "cost another";
        double by = sent <= raw ? raw - sent : sent - raw;
        (void)fprintf(to, "With %s's cache larder would %s $%.4f of $%.4f (%.0f%%).\n", o->providers[i]->name, verb, by,
                      raw, 100 * by / raw);
    }
    (void)fprintf(to, "Money is an estimate over %" PRIu64 " of %" PRIu64 " requests, by the price of %s (%s, %s)%s.\n",
                  s->priced, s->requests, s->price->model, s->price->source, s->price->date,
                  s->prices_mixed ? " and those of the other models" : "");
}

static void print_recorded(const lar_replay_sums *s, FILE *to) {
    if (s->reported.requests)
        (void)fprintf(to,
                      "\nThe logged responses themselves report %.1f%% of %" PRIu64 " prompt tokens read from the "
                      "cache (%" PRIu64 " requests).\n",
                      percent(&s->reported), s->reported.prompt, s->reported.requests);
    uint64_t lines = s->exported.requests + s->exported_unknown;
    if (!lines) return;
    (void)fprintf(to,
                  "\n%" PRIu64
                  " records of `larder export` hold numbers and no text: they cannot be simulated. What they\n"
                  "recorded: %.1f%% of %" PRIu64 " prompt tokens hit, over %" PRIu64 " requests; %" PRIu64 " unknown.\n"
                  "To simulate, log request bodies at the client or at a logging proxy and replay those.\n",
                  lines, percent(&s->exported), s->exported.prompt, s->exported.requests, s->exported_unknown);
}

void lar_replay_print(const lar_replay_options *o, const lar_replay_sums *s, const lar_replay_sums *without, FILE *to) {
    if (s->requests) {
        (void)fprintf(to,
                      "%" PRIu64 " requests, %" PRIu64 " with their answers, %" PRIu64
                      " with a time; larder would edit "
                      "%" PRIu64 " of them in %" PRIu64 " places\n"
                      "Tokens are pseudo-tokens of about four characters: rates compare, counts are estimates\n\n",
                      s->requests, s->answers, s->timed, s->edited, s->edits);
        print_providers(o, s, to);
        (void)fputs("\nHit rate by turn of the conversation\n", to);
        print_turns(o, s, to);
        if (s->edited) print_rules(o, s, without, to);
        print_saved(o, s, to);
    }
    print_recorded(s, to);
    if (s->passed)
        (void)fprintf(to, "\n%" PRIu64 " records that are no prompts (spans, embeddings) were passed over.\n",
                      s->passed);
    if (s->bad) (void)fprintf(to, "\n%" PRIu64 " records could not be read and were left out.\n", s->bad);
}

/* -- JSON ------------------------------------------------------------------------------------------------- */

static cJSON *count_json(const lar_replay_count *c) {
    cJSON *j = cJSON_CreateObject();
    cJSON_AddNumberToObject(j, "requests", (double)c->requests);
    cJSON_AddNumberToObject(j, "prompt_tokens", (double)c->prompt);
    cJSON_AddNumberToObject(j, "hit_tokens", (double)c->hit);
    cJSON_AddNumberToObject(j, "write_tokens", (double)c->write);
    if (c->prompt) cJSON_AddNumberToObject(j, "hit_rate", lar_replay_rate(c));
    else cJSON_AddNullToObject(j, "hit_rate");
    return j;
}

static void add_side(cJSON *to, const char *name, const lar_replay_side *side, bool priced) {
    cJSON *j = count_json(&side->all);
    if (priced) cJSON_AddNumberToObject(j, "cost_usd", side->cost);
    else cJSON_AddNullToObject(j, "cost_usd");
    cJSON_AddItemToObject(to, name, j);
}

static cJSON *provider_json(const lar_replay_options *o, const lar_replay_sums *s, uint32_t i) {
    const lar_provider *p = o->providers[i];
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "provider", p->name);
    cJSON_AddStringToObject(j, "rule", lar_cache_rule_name(p->rule));
    cJSON_AddStringToObject(j, "source", p->source);
    add_side(j, "raw", &s->raw[i], s->priced > 0);
    add_side(j, "with_larder", &s->sent[i], s->priced > 0);
    cJSON *turns = cJSON_AddArrayToObject(j, "turns");
    for (int turn = 0; turn < LAR_REPLAY_TURNS; turn++) {
        if (!s->sent[i].turns[turn].requests) continue;
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "turn", lar_replay_turn_names[turn]);
        cJSON_AddItemToObject(one, "raw", count_json(&s->raw[i].turns[turn]));
        cJSON_AddItemToObject(one, "with_larder", count_json(&s->sent[i].turns[turn]));
        cJSON_AddItemToArray(turns, one);
    }
    return j;
}

static cJSON *rule_json(const lar_replay_options *o, const lar_replay_sums *s, const lar_replay_sums *without, int r) {
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "rule", lar_rule_id((lar_rule)r));
    cJSON_AddStringToObject(j, "name", lar_rule_name((lar_rule)r));
    cJSON_AddNumberToObject(j, "requests", (double)s->rule_requests[r]);
    cJSON_AddNumberToObject(j, "findings", (double)s->rule_edits[r]);
    if (!o->by_rule) return j;
    cJSON *lost = cJSON_AddObjectToObject(j, "hit_rate_without");
    for (uint32_t i = 0; i < o->provider_count; i++)
        if (shown(s, i)) cJSON_AddNumberToObject(lost, o->providers[i]->name, lar_replay_rate(&without[r].sent[i].all));
    return j;
}

lar_error lar_replay_print_json(const lar_replay_options *o, const lar_replay_sums *s, const lar_replay_sums *without,
                                FILE *to) {
    cJSON *j = cJSON_CreateObject();
    cJSON_AddNumberToObject(j, "requests", (double)s->requests);
    cJSON_AddNumberToObject(j, "answers", (double)s->answers);
    cJSON_AddNumberToObject(j, "timed", (double)s->timed);
    cJSON_AddNumberToObject(j, "edited", (double)s->edited);
    cJSON_AddNumberToObject(j, "places", (double)s->edits);
    cJSON_AddNumberToObject(j, "passed", (double)s->passed);
    cJSON_AddNumberToObject(j, "bad", (double)s->bad);
    cJSON_AddNumberToObject(j, "priced", (double)s->priced);
    if (s->price) {
        cJSON *price = cJSON_AddObjectToObject(j, "price");
        cJSON_AddStringToObject(price, "model", s->price->model);
        cJSON_AddStringToObject(price, "source", s->price->source);
        cJSON_AddStringToObject(price, "date", s->price->date);
        cJSON_AddBoolToObject(price, "mixed", s->prices_mixed);
    }
    cJSON *providers = cJSON_AddArrayToObject(j, "providers");
    for (uint32_t i = 0; i < o->provider_count; i++)
        if (shown(s, i)) cJSON_AddItemToArray(providers, provider_json(o, s, i));
    cJSON *rules = cJSON_AddArrayToObject(j, "rules");
    for (int r = 0; r < LAR_RULE_COUNT; r++)
        if (s->rule_requests[r]) cJSON_AddItemToArray(rules, rule_json(o, s, without, r));
    cJSON_AddItemToObject(j, "reported", count_json(&s->reported));
    cJSON_AddItemToObject(j, "exported", count_json(&s->exported));
    cJSON_AddNumberToObject(j, "exported_unknown", (double)s->exported_unknown);
    return lar_present_document(j, to);
}
