/* larder explain REQUEST-ID: the earlier request that shares most with it, where they part, and why that did not hit.
 * Flow: main.c calls; query.c opens; one scan finds the request, a second one offers every earlier record to donor.c.
 * One thread; blocks on file reads and stdout. Why two scans: a record lies in the journal where it ended, so donors
 * may stand behind it. Invariants: 1. nothing of a text is printed: places, lengths and names of rules. 2. what is not
 * known is said, not guessed. Memory: a few records. Not here: the verdict (donor.c). */
#include "gateway/commands/explain.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "gateway/commands/donor.h"
#include "gateway/commands/fields.h"
#include "gateway/commands/present.h"
#include "gateway/commands/query.h"
#include "policies/canon.h"
#include "policies/provider.h"

enum { PLACE_BYTES = 96, ID_BYTES = 24, JSON_NAME_BYTES = 4096 };

static const char usage[] =
    "usage: larder explain REQUEST --store DIR [options]\n"
    "Why a request hit the provider's prefix cache or missed it: the best earlier request in the journal, where the\n"
    "two part, and what was predicted against what the provider reported.\n"
    "REQUEST is what the client got as x-larder-request-id (lr- and 16 hexadecimal digits), a number of the journal\n"
    "(seq), or `last`: the newest request with a prompt.\n"
    "  --format FORMAT    text (default) or json\n";

typedef struct explaining {
    lar_query q;
    uint64_t id, seq; /* which request; both 0: the last */
    lar_donor request;
    lar_donor_search search;
    uint64_t records, damaged;
    int64_t first_ms, last_ms; /* of the records */
} explaining;

/* -- which request ------------------------------------------------------------------------------------------- */

/* -1 to go on. */
static int take_request(explaining *x, const char *text) {
    size_t len = strlen(text);
    if (!strcmp(text, "last")) return -1;
    if (!strncmp(text, "lr-", 3) && len == 19 && strspn(text + 3, "0123456789abcdefABCDEF") == 16) {
        x->id = strtoull(text + 3, NULL, 16);
        if (x->id) return -1;
    } else if (len && len < 19 && strspn(text, "0123456789") == len) {
        x->seq = strtoull(text, NULL, 10);
        if (x->seq) return -1;
    }
    (void)fprintf(stderr, "larder: '%.100s' is no request: lr- and 16 hexadecimal digits, a number, or last\n", text);
    return 2;
}

static bool find_request(void *ctx, uint64_t seq, const lar_journal_record *r) {
    explaining *x = ctx;
    if (!x->records++ || r->time_ms < x->first_ms) x->first_ms = r->time_ms;
    if (x->records == 1 || r->time_ms > x->last_ms) x->last_ms = r->time_ms;
    bool wanted = x->id ? r->request_id == x->id : x->seq ? seq == x->seq : r->model[0] && r->prompt_bytes;
    if (wanted) lar_donor_keep(&x->request, seq, r);
    return true;
}

static bool offer(void *ctx, uint64_t seq, const lar_journal_record *r) {
    lar_donor_offer(&((explaining *)ctx)->search, seq, r);
    return true;
}

static int not_found(const explaining *x) {
    char first[LAR_TIME_BYTES], last[LAR_TIME_BYTES];
    lar_present_time(x->first_ms, first);
    lar_present_time(x->last_ms, last);
    if (x->id) (void)fprintf(stderr, "larder: no request lr-%016" PRIx64 " in %.200s: ", x->id, x->q.store);
    else if (x->seq) (void)fprintf(stderr, "larder: no request of number %" PRIu64 " in %.200s: ", x->seq, x->q.store);
    else (void)fprintf(stderr, "larder: no request with a prompt in %.200s: ", x->q.store);
    if (!x->records) (void)fprintf(stderr, "no record matches\n");
    else (void)fprintf(stderr, "%" PRIu64 " records from %s to %s match\n", x->records, first, last);
    (void)fprintf(stderr,
                  "The journal keeps records for store.days and up to store.bytes, those of a request once it has "
                  "ended, and ids from version 3 on; look with: larder tail --store DIR, larder export\n");
    return 1;
}

/* -- places ---------------------------------------------------------------------------------------------------- */

/* "/messages/3", "/tools"; of a stretch of several, the first. `at`: segments up to the end of the place. */
static void pointer_of(const lar_donor *d, uint32_t cut, uint32_t at, char out[PLACE_BYTES]) {
    const lar_journal_cut *c = &d->cuts[cut];
    const char *route = d->record.route;
    bool top = false;
    for (uint32_t i = 0; i < d->cut_count; i++) top = top || d->cuts[i].kind == 1;
    const char *list = !strcmp(route, "responses") ? "/input" : !strcmp(route, "completions") ? "/prompt" : "/messages";
    if (c->kind == 0) (void)snprintf(out, PLACE_BYTES, "/tools");
    else if (c->kind == 1) (void)snprintf(out, PLACE_BYTES, strcmp(route, "responses") ? "/system" : "/instructions");
    else (void)snprintf(out, PLACE_BYTES, "%s/%" PRIu32, list, at - 1 - (top ? 1 : 0));
}

typedef struct place {
    char pointer[PLACE_BYTES]; /* of the first message in question */
    char last[PLACE_BYTES];    /* of the last one; the same where it is one */
    const char *kind;
    uint32_t from_bytes, to_bytes; /* of what is sent */
    const char *rule;              /* id of the first rule that found something there, or NULL */
} place;

/* What lies between the cut before `cut` and `cut`. */
static place place_of(const lar_donor *d, int32_t cut) {
    place p = {.kind = lar_fields_cut_kind(d->cuts[cut].kind), .to_bytes = d->cuts[cut].bytes};
    uint32_t at = d->cuts[cut].at, first = cut ? d->cuts[cut - 1].at + 1u : at;
    if (cut) p.from_bytes = d->cuts[cut - 1].bytes;
    pointer_of(d, (uint32_t)cut, first < at ? first : at, p.pointer);
    pointer_of(d, (uint32_t)cut, at, p.last);
    uint8_t rule = d->cuts[cut].rule;
    if (rule && rule <= LAR_RULE_COUNT) p.rule = lar_rule_id((lar_rule)(rule - 1));
    return p;
}

/* -- for people ------------------------------------------------------------------------------------------------- */

static void print_tokens(const char *label, int64_t n) {
    if (n == LAR_TOKENS_UNKNOWN) (void)printf("%s unknown", label);
    else (void)printf("%s %" PRId64, label, n);
}

static void print_id(const lar_donor *d) {
    char time[LAR_TIME_BYTES];
    lar_present_time(d->record.time_ms, time);
    if (d->record.request_id) (void)printf("lr-%016" PRIx64 " ", d->record.request_id);
    (void)printf("(seq %" PRIu64 ", %s)", d->seq, time);
}

static void print_name(const char *before, const char *name) {
    char shown[LAR_SHOWN_BYTES];
    lar_present_name(lar_slice_of(name, strnlen(name, LAR_JREC_NAME_BYTES)), shown);
    (void)printf("%s%s", before, shown);
}

static void print_rules(const lar_journal_record *r) {
    lar_buf b;
    lar_buf_init(&b, 1024);
    if (r->rules_seen && !lar_fields_rules(&b, r->rules_seen, " ") && !lar_buf_add(&b, "", 1))
        (void)printf("rules     saw something: %s", b.ptr);
    b.len = 0;
    if (r->rules_fired && !lar_fields_rules(&b, r->rules_fired, " ") && !lar_buf_add(&b, "", 1))
        (void)printf("; edited: %s", b.ptr);
    if (r->rules_seen) (void)putchar('\n');
    lar_buf_release(&b);
}

static void print_place(const char *label, const lar_donor *d, int32_t cut) {
    place p = place_of(d, cut);
    (void)printf("%s%s, %s", label, p.kind, p.pointer);
    if (strcmp(p.pointer, p.last)) (void)printf(" to %s", p.last);
    (void)printf(", bytes %" PRIu32 " to %" PRIu32 " of what is sent", p.from_bytes, p.to_bytes);
    if (p.rule) (void)printf("; %s found something there", p.rule);
    (void)putchar('\n');
}

static void print_donor(const explaining *x, const lar_verdict *v) {
    char age[LAR_DURATION_BYTES];
    const lar_donor *d = v->donor, *q = &x->request;
    (void)printf("donor     ");
    print_id(d);
    lar_present_duration(v->age_ms < 0 ? -v->age_ms * 1000 : v->age_ms * 1000, age);
    (void)printf("\n          its answer began %s %s; shares %" PRIu32 " of %" PRIu64 " bytes", age,
                 v->age_ms < 0 ? "after this request came" : "before", d->common_bytes, q->record.prompt_bytes);
    if (v->shared_tokens != LAR_TOKENS_UNKNOWN) (void)printf(", worth %" PRId64 " tokens", v->shared_tokens);
    (void)putchar('\n');
    if (v->broke >= 0) print_place("parts in  ", q, v->broke);
    else (void)printf("parts     nowhere: all that the donor sent is sent again, new text follows\n");
    if (d->common_raw < d->common && d->common_raw + 1 < (int32_t)q->cut_count)
        print_place("mended    as the clients wrote them they part already in ", q, d->common_raw + 1);
}

/* A kept answer was nobody's prompt: there is nothing to hit or miss. */
static const lar_miss_row *why_of(const explaining *x, const lar_verdict *v) {
    static const lar_miss_row kept = {
        .code = "kept_answer",
        .text = "the client got an answer that larder had kept, and nothing was sent upstream",
        .todo = "nothing; a request with the field x-larder-cache: bypass asks the upstream"};
    return x->request.record.flags & LAR_JREC_ANSWER_KEPT ? &kept : lar_miss_get(v->miss);
}

static void print_text(const explaining *x, const lar_verdict *v, const lar_provider *p) {
    const lar_journal_record *r = &x->request.record;
    const lar_miss_row *why = why_of(x, v);
    (void)printf("request   ");
    print_id(&x->request);
    print_name("\n          ", r->route);
    print_name(" > ", r->upstream);
    print_name("  ", r->model);
    (void)printf("  turn %" PRIu32 "\n", r->turn);
    print_tokens("reported  prompt", r->tokens.prompt);
    print_tokens(", hit", r->tokens.hit);
    print_tokens(", miss", r->tokens.miss);
    print_tokens("\npredicted hit", r->predicted_hit);
    print_tokens(", drift", lar_fields_drift(r));
    (void)putchar('\n');
    if (v->donor) print_donor(x, v);
    print_rules(r);
    (void)printf("why       %s: %s\n", why->code, why->text);
    if (v->miss == LAR_MISS_EXPIRED && p)
        (void)printf("          (%s keeps it for %" PRIu32 " s)\n", p->name, p->ttl_s);
    if (v->miss == LAR_MISS_SHORT && p)
        (void)printf("          (%s caches from %" PRIu32 " tokens on)\n", p->name,
                     lar_provider_tokens_min(p, lar_slice_cstr(r->model)));
    if (v->miss == LAR_MISS_EDITION && v->donor)
        (void)printf("          (%s, hash %016" PRIx64 ", then %s, hash %016" PRIx64 ")\n", v->donor->record.edition,
                     v->donor->record.edition_hash, r->edition, r->edition_hash);
    (void)printf("what to do  %s\n", why->todo);
    (void)printf("%" PRIu64 " earlier requests were compared\n", x->search.looked_at);
}

/* -- for programs ------------------------------------------------------------------------------------------------ */

/* cJSON's numbers are doubles: whole numbers go in as text. */
static void json_i64(cJSON *o, const char *name, int64_t v) {
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRId64, v);
    (void)cJSON_AddRawToObject(o, name, v == LAR_TOKENS_UNKNOWN ? "null" : text);
}

static void json_text(cJSON *o, const char *name, const char *text) {
    lar_buf b;
    lar_buf_init(&b, JSON_NAME_BYTES);
    bool ok = !lar_present_json(&b, lar_slice_of(text, strnlen(text, LAR_JREC_NAME_BYTES))) && !lar_buf_add(&b, "", 1);
    (void)cJSON_AddRawToObject(o, name, ok ? b.ptr : "null");
    lar_buf_release(&b);
}

static void json_record(cJSON *o, const lar_donor *d) {
    char text[LAR_TIME_BYTES];
    (void)snprintf(text, sizeof text, "lr-%016" PRIx64, d->record.request_id);
    if (d->record.request_id) (void)cJSON_AddStringToObject(o, "request_id", text);
    else (void)cJSON_AddNullToObject(o, "request_id");
    json_i64(o, "seq", (int64_t)d->seq);
    lar_present_time(d->record.time_ms, text);
    (void)cJSON_AddStringToObject(o, "time", text);
    json_text(o, "route", d->record.route);
    json_text(o, "upstream", d->record.upstream);
    json_text(o, "model", d->record.model);
    json_text(o, "edition", d->record.edition);
}

static void json_place(cJSON *o, const char *name, const lar_donor *d, int32_t cut) {
    cJSON *j = cut < 0 || cut >= (int32_t)d->cut_count ? NULL : cJSON_AddObjectToObject(o, name);
    if (!j) {
        if (!cJSON_HasObjectItem(o, name)) (void)cJSON_AddNullToObject(o, name);
        return;
    }
    place p = place_of(d, cut);
    (void)cJSON_AddStringToObject(j, "kind", p.kind);
    (void)cJSON_AddStringToObject(j, "pointer", p.pointer);
    (void)cJSON_AddStringToObject(j, "last_pointer", p.last);
    json_i64(j, "from_bytes", p.from_bytes);
    json_i64(j, "to_bytes", p.to_bytes);
    if (p.rule) (void)cJSON_AddStringToObject(j, "rule", p.rule);
    else (void)cJSON_AddNullToObject(j, "rule");
}

static int print_json(const explaining *x, const lar_verdict *v) {
    const lar_journal_record *r = &x->request.record;
    const lar_donor *d = v->donor;
    cJSON *o = cJSON_CreateObject(), *q = o ? cJSON_AddObjectToObject(o, "request") : NULL;
    if (q) {
        json_record(q, &x->request);
        json_i64(q, "turn", r->turn);
        json_i64(q, "prompt_tokens", r->tokens.prompt);
        json_i64(q, "hit_tokens", r->tokens.hit);
        json_i64(q, "predicted_hit_tokens", r->predicted_hit);
        json_i64(q, "drift_tokens", lar_fields_drift(r));
        json_i64(q, "prompt_bytes", (int64_t)r->prompt_bytes);
    }
    cJSON *j = o && d ? cJSON_AddObjectToObject(o, "donor") : NULL;
    if (j) {
        json_record(j, d);
        json_i64(j, "shared_bytes", d->common_bytes);
        json_i64(j, "shared_tokens", v->shared_tokens);
        json_i64(j, "answered_before_ms", v->age_ms);
    } else if (o) {
        (void)cJSON_AddNullToObject(o, "donor");
    }
    if (o) json_place(o, "parts_in", &x->request, v->broke);
    if (o) json_place(o, "written_parts_in", &x->request, d && d->common_raw < d->common ? d->common_raw + 1 : -1);
    if (o) json_i64(o, "expected_hit_tokens", v->expected_hit);
    if (o) (void)cJSON_AddStringToObject(o, "why", why_of(x, v)->code);
    if (o) (void)cJSON_AddStringToObject(o, "text", why_of(x, v)->text);
    if (o) (void)cJSON_AddStringToObject(o, "what_to_do", why_of(x, v)->todo);
    if (o) json_i64(o, "compared", (int64_t)x->search.looked_at);
    lar_error e = lar_present_document(o, stdout);
    if (e == LAR_NO_MEMORY) (void)fprintf(stderr, "larder: %s\n", lar_error_text(e));
    return e ? 1 : 0;
}

/* -- the command -------------------------------------------------------------------------------------------------- */

static int explain(explaining *x, lar_store *s) {
    lar_journal_filter all = {0};
    lar_error e = lar_store_scan(s, &x->q.filter, 0, find_request, x, &x->damaged);
    if (!e && !x->request.there) return not_found(x);
    const lar_provider *p = lar_provider_find(lar_slice_cstr(x->request.record.provider));
    x->search = (lar_donor_search){.request = &x->request, .ttl_s = p ? p->ttl_s : 0};
    if (!e) e = lar_store_scan(s, &all, 0, offer, x, NULL);
    if (e) {
        (void)fprintf(stderr, "larder: %s\n", lar_error_text(e));
        return 1;
    }
    uint32_t min = p ? lar_provider_tokens_min(p, lar_slice_cstr(x->request.record.model)) : 0;
    lar_verdict v = lar_donor_judge(&x->search, p ? p->step_tokens : 0, min);
    if (x->damaged) (void)fprintf(stderr, "larder: %" PRIu64 " damaged records were left out\n", x->damaged);
    if (x->q.json) return print_json(x, &v);
    print_text(x, &v, p);
    return 0;
}

int lar_command_explain(int argc, char **argv) {
    explaining *x = calloc(1, sizeof *x);
    lar_store *s;
    if (!x) return 1;
    x->q.now_ms = lar_clock_wall_ms();
    bool named = argc > 0 && argv[0][0] != '-';
    int rc = lar_query_parse(&x->q, usage, LAR_QUERY_REPORT, argc - named, argv + named);
    if (rc < 0 && !named) {
        (void)fprintf(stderr, "larder: which request?\n%s", usage);
        rc = 2;
    }
    if (rc < 0) rc = take_request(x, argv[0]);
    if (rc < 0) rc = lar_query_open(&x->q, &s);
    else s = NULL;
    if (rc == 0 && s) {
        rc = explain(x, s);
        lar_store_close(s);
    }
    free(x);
    return rc;
}
