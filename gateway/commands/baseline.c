/* Counts a baseline from records, and writes and reads it as JSON (header: baseline.h).
 * Flow: baseline_command.c scans and prints. Pure but for the heap; one thread. Why blocks that double: a journal of
 * any length is read once, in bounded memory. Invariants: 1. unknown hits count as unknown, never as misses. 2. a file
 * that is read is checked number by number: it may have been edited. Memory: some hundred KiB.
 * Not here: the comparison (baseline_compare.c). */
#include "gateway/commands/baseline.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/commands/tally.h"

enum { FORMAT = 1, SLOTS = 1 << 14, SLOTS_USED_MAX = SLOTS / 2 };

const char *const lar_baseline_turn_names[LAR_BASELINE_TURNS] = {"0", "1", "2", "3-5", "6-10", "11+"};

/* -- a rate and its spread ----------------------------------------------------------------------------------- */

static void halve(lar_rate *r) {
    for (uint32_t i = 0; i < LAR_BATCHES_MAX / 2; i++) {
        r->batches[i].prompt = r->batches[2 * i].prompt + r->batches[2 * i + 1].prompt;
        r->batches[i].hit = r->batches[2 * i].hit + r->batches[2 * i + 1].hit;
    }
    for (uint32_t i = LAR_BATCHES_MAX / 2; i < LAR_BATCHES_MAX; i++) r->batches[i].prompt = r->batches[i].hit = 0;
    r->batch = LAR_BATCHES_MAX / 2;
    r->batch_requests *= 2;
}

void lar_rate_add(lar_rate *r, int64_t prompt, int64_t hit) {
    r->requests++;
    if (prompt == LAR_TOKENS_UNKNOWN || hit == LAR_TOKENS_UNKNOWN || prompt < 0 || hit < 0) return;
    if (!r->batch_requests) r->batch_requests = 1;
    if (r->in_batch == r->batch_requests) {
        r->in_batch = 0;
        if (++r->batch == LAR_BATCHES_MAX) halve(r);
    }
    r->batches[r->batch].prompt += (double)prompt;
    r->batches[r->batch].hit += (double)hit;
    r->in_batch++;
    r->known++;
    r->prompt += (uint64_t)prompt;
    r->hit += (uint64_t)hit;
}

lar_rate_sum lar_rate_finish(const lar_rate *r) {
    lar_rate_sum s = {r->requests, r->known, r->prompt, r->hit, -1, -1};
    if (!r->prompt) return s;
    s.rate = (double)r->hit / (double)r->prompt;
    uint32_t n = r->batch + (r->in_batch > 0);
    if (n < LAR_BATCHES_MIN) return s;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        double d = r->batches[i].hit - s.rate * r->batches[i].prompt;
        sum += d * d;
    }
    s.error = sqrt(sum * n / (n - 1)) / (double)r->prompt;
    return s;
}

/* -- counting ------------------------------------------------------------------------------------------------ */

struct lar_baseline_maker {
    lar_rate all, turns[LAR_BASELINE_TURNS];
    lar_baseline sums; /* models, editions, tokens */
    struct {
        uint64_t hash, count;
    } slots[SLOTS];
    uint32_t slots_used;
};

lar_baseline_maker *lar_baseline_maker_new(void) { return calloc(1, sizeof(lar_baseline_maker)); }
void lar_baseline_maker_free(lar_baseline_maker *m) { free(m); }

/* Names beyond the list's end are counted at no place: nobody has that many. */
static void count_name(lar_baseline_count *list, uint32_t *n, const char *name) {
    for (uint32_t i = 0; i < *n; i++) {
        if (strncmp(list[i].name, name, LAR_BASELINE_NAME_BYTES - 1) != 0) continue;
        list[i].count++;
        return;
    }
    if (*n == LAR_BASELINE_MODELS) return;
    (void)snprintf(list[*n].name, sizeof list[*n].name, "%s", name);
    list[(*n)++].count = 1;
}

/* Prefixes that come when the table is full are not in the sample. */
static void count_prefix(lar_baseline_maker *m, uint64_t hash) {
    m->sums.prefix_requests++;
    uint64_t at = hash % SLOTS;
    while (m->slots[at].count && m->slots[at].hash != hash) at = (at + 1) % SLOTS;
    if (!m->slots[at].count && m->slots_used == SLOTS_USED_MAX) return;
    m->slots_used += !m->slots[at].count;
    m->slots[at].hash = hash;
    m->slots[at].count++;
}

static uint64_t count_of(int64_t n) { return n > 0 ? (uint64_t)n : 0; }

void lar_baseline_add(lar_baseline_maker *m, const lar_journal_record *r) {
    if (!lar_tally_has_prompt(r) || r->status < 200 || r->status > 299) return;
    lar_baseline *b = &m->sums;
    uint32_t t = r->turn;
    bool first = m->all.requests == 0;
    lar_rate_add(&m->all, r->tokens.prompt, r->tokens.hit);
    lar_rate_add(&m->turns[t < 3 ? t : t <= 5 ? 3 : t <= 10 ? 4 : 5], r->tokens.prompt, r->tokens.hit);
    if (first || r->time_ms < b->from_ms) b->from_ms = r->time_ms;
    if (first || r->time_ms > b->to_ms) b->to_ms = r->time_ms;
    b->edited += r->edits > 0;
    if (r->tokens.hit != LAR_TOKENS_UNKNOWN) {
        b->output += count_of(r->tokens.output);
        b->write += count_of(r->tokens.write);
    }
    count_name(b->models, &b->model_count, r->model);
    if (r->edition[0]) count_name(b->editions, &b->edition_count, r->edition);
    if (r->prefix_hash) count_prefix(m, r->prefix_hash);
}

static void keep_prefix(lar_baseline *b, uint64_t hash, uint64_t count) {
    uint32_t at = b->prefix_count < LAR_BASELINE_PREFIXES ? b->prefix_count++ : LAR_BASELINE_PREFIXES;
    if (at == LAR_BASELINE_PREFIXES && b->prefixes[--at].count >= count) return;
    for (; at && b->prefixes[at - 1].count < count; at--) b->prefixes[at] = b->prefixes[at - 1];
    b->prefixes[at].hash = hash;
    b->prefixes[at].count = count;
}

void lar_baseline_finish(lar_baseline_maker *m, lar_baseline *out) {
    *out = m->sums;
    out->all = lar_rate_finish(&m->all);
    for (int t = 0; t < LAR_BASELINE_TURNS; t++) out->turns[t] = lar_rate_finish(&m->turns[t]);
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (m->slots[i].count) keep_prefix(out, m->slots[i].hash, m->slots[i].count);
    }
}

/* -- as JSON ------------------------------------------------------------------------------------------------- */

/* Counts fit a double up to 2^53, far beyond a journal. */
static void put_u64(cJSON *o, const char *name, uint64_t v) { (void)cJSON_AddNumberToObject(o, name, (double)v); }

static void put_part(cJSON *o, const char *name, double v) {
    if (v < 0) (void)cJSON_AddNullToObject(o, name);
    else (void)cJSON_AddNumberToObject(o, name, v);
}

static void put_rate(cJSON *o, const lar_rate_sum *s) {
    put_u64(o, "requests", s->requests);
    put_u64(o, "known", s->known);
    put_u64(o, "prompt_tokens", s->prompt);
    put_u64(o, "hit_tokens", s->hit);
    put_part(o, "hit_rate", s->rate);
    put_part(o, "standard_error", s->error);
}

static void put_counts(cJSON *o, const char *name, const lar_baseline_count *list, uint32_t n) {
    cJSON *a = cJSON_AddArrayToObject(o, name);
    for (uint32_t i = 0; a && i < n; i++) {
        cJSON *row = cJSON_CreateObject();
        (void)cJSON_AddStringToObject(row, "name", list[i].name);
        put_u64(row, "requests", list[i].count);
        (void)cJSON_AddItemToArray(a, row);
    }
}

static void put_prefixes(cJSON *o, const lar_baseline *b) {
    cJSON *a = cJSON_AddArrayToObject(o, "prefixes");
    for (uint32_t i = 0; a && i < b->prefix_count; i++) {
        char hash[20];
        cJSON *row = cJSON_CreateObject();
        (void)snprintf(hash, sizeof hash, "%016" PRIx64, b->prefixes[i].hash);
        (void)cJSON_AddStringToObject(row, "prefix", hash);
        put_u64(row, "requests", b->prefixes[i].count);
        (void)cJSON_AddItemToArray(a, row);
    }
}

lar_error lar_baseline_write(const lar_baseline *b, lar_buf *out) {
    cJSON *o = cJSON_CreateObject();
    if (!o) return LAR_NO_MEMORY;
    put_u64(o, "larder_baseline", FORMAT);
    (void)cJSON_AddStringToObject(o, "name", b->name);
    (void)cJSON_AddNumberToObject(o, "made_ms", (double)b->made_ms);
    (void)cJSON_AddNumberToObject(o, "from_ms", (double)b->from_ms);
    (void)cJSON_AddNumberToObject(o, "to_ms", (double)b->to_ms);
    (void)cJSON_AddStringToObject(o, "fingerprint_key", b->key);
    cJSON *settings = cJSON_AddObjectToObject(o, "settings");
    (void)cJSON_AddStringToObject(settings, "canon", b->canon);
    (void)cJSON_AddStringToObject(settings, "rules_off", b->rules_off);
    (void)cJSON_AddStringToObject(settings, "edition", b->pinned);
    put_rate(o, &b->all);
    put_u64(o, "edited", b->edited);
    put_u64(o, "output_tokens", b->output);
    put_u64(o, "write_tokens", b->write);
    cJSON *turns = cJSON_AddObjectToObject(o, "turns");
    for (int t = 0; t < LAR_BASELINE_TURNS; t++)
        put_rate(cJSON_AddObjectToObject(turns, lar_baseline_turn_names[t]), &b->turns[t]);
    put_counts(o, "models", b->models, b->model_count);
    put_counts(o, "editions", b->editions, b->edition_count);
    put_u64(o, "prefix_requests", b->prefix_requests);
    put_prefixes(o, b);
    char *text = cJSON_Print(o);
    lar_error e = text ? lar_buf_add(out, text, strlen(text)) : LAR_NO_MEMORY;
    if (!e) e = lar_buf_add(out, "\n", 1);
    cJSON_free(text);
    cJSON_Delete(o);
    return e;
}

typedef struct reader {
    lar_error error;
    lar_diag *d;
} reader;

static void wrong(reader *r, const char *name) {
    if (r->error) return;
    r->error = lar_fail(LAR_JSON_SHAPE, r->d, "\"%.60s\" is missing, or is not what a baseline has there", name);
}

static double number(reader *r, const cJSON *o, const char *name, double max) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, name);
    if (cJSON_IsNumber(v) && v->valuedouble >= 0 && v->valuedouble <= max) return v->valuedouble;
    wrong(r, name);
    return 0;
}

static uint64_t whole(reader *r, const cJSON *o, const char *name) {
    return (uint64_t)number(r, o, name, 9007199254740992.0);
}

/* A number or null, which is -1. */
static double part(reader *r, const cJSON *o, const char *name) {
    return cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(o, name)) ? -1 : number(r, o, name, 1e9);
}

static void text(reader *r, const cJSON *o, const char *name, char *out, size_t cap) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, name);
    if (cJSON_IsString(v) && strlen(v->valuestring) < cap) (void)snprintf(out, cap, "%s", v->valuestring);
    else wrong(r, name);
}

static void read_rate(reader *r, const cJSON *o, lar_rate_sum *s) {
    s->requests = whole(r, o, "requests");
    s->known = whole(r, o, "known");
    s->prompt = whole(r, o, "prompt_tokens");
    s->hit = whole(r, o, "hit_tokens");
    s->rate = part(r, o, "hit_rate");
    s->error = part(r, o, "standard_error");
}

static uint32_t read_counts(reader *r, const cJSON *o, const char *name, lar_baseline_count *list) {
    const cJSON *a = cJSON_GetObjectItemCaseSensitive(o, name), *row;
    uint32_t n = 0;
    if (!cJSON_IsArray(a) || cJSON_GetArraySize(a) > LAR_BASELINE_MODELS) {
        wrong(r, name);
        return 0;
    }
    cJSON_ArrayForEach(row, a) {
        text(r, row, "name", list[n].name, sizeof list[n].name);
        list[n++].count = whole(r, row, "requests");
    }
    return n;
}

static void read_prefixes(reader *r, const cJSON *o, lar_baseline *b) {
    const cJSON *a = cJSON_GetObjectItemCaseSensitive(o, "prefixes"), *row;
    if (!cJSON_IsArray(a) || cJSON_GetArraySize(a) > LAR_BASELINE_PREFIXES) {
        wrong(r, "prefixes");
        return;
    }
    cJSON_ArrayForEach(row, a) {
        char hash[17] = "";
        text(r, row, "prefix", hash, sizeof hash);
        if (strlen(hash) != 16 || strspn(hash, "0123456789abcdef") != 16) wrong(r, "prefix");
        b->prefixes[b->prefix_count].hash = strtoull(hash, NULL, 16);
        b->prefixes[b->prefix_count++].count = whole(r, row, "requests");
    }
}

static void read_all(reader *r, const cJSON *o, lar_baseline *b) {
    const cJSON *settings = cJSON_GetObjectItemCaseSensitive(o, "settings"),
                *turns = cJSON_GetObjectItemCaseSensitive(o, "turns");
    text(r, o, "name", b->name, sizeof b->name);
    text(r, o, "fingerprint_key", b->key, sizeof b->key);
    text(r, settings, "canon", b->canon, sizeof b->canon);
    text(r, settings, "rules_off", b->rules_off, sizeof b->rules_off);
    text(r, settings, "edition", b->pinned, sizeof b->pinned);
    b->made_ms = (int64_t)whole(r, o, "made_ms");
    b->from_ms = (int64_t)whole(r, o, "from_ms");
    b->to_ms = (int64_t)whole(r, o, "to_ms");
    read_rate(r, o, &b->all);
    b->edited = whole(r, o, "edited");
    b->output = whole(r, o, "output_tokens");
    b->write = whole(r, o, "write_tokens");
    for (int t = 0; t < LAR_BASELINE_TURNS; t++)
        read_rate(r, cJSON_GetObjectItemCaseSensitive(turns, lar_baseline_turn_names[t]), &b->turns[t]);
    b->model_count = read_counts(r, o, "models", b->models);
    b->edition_count = read_counts(r, o, "editions", b->editions);
    b->prefix_requests = whole(r, o, "prefix_requests");
    read_prefixes(r, o, b);
}

lar_error lar_baseline_read(lar_slice bytes, lar_baseline *out, lar_diag *d) {
    reader r = {LAR_OK, d};
    *out = (lar_baseline){0};
    cJSON *o = cJSON_ParseWithLength(bytes.ptr ? bytes.ptr : "", bytes.len);
    if (!o) return lar_fail(LAR_JSON_SYNTAX, d, "it is no JSON");
    const cJSON *format = cJSON_GetObjectItemCaseSensitive(o, "larder_baseline");
    if (!cJSON_IsNumber(format)) r.error = lar_fail(LAR_JSON_SHAPE, d, "it is no baseline of larder");
    else if (format->valuedouble > FORMAT) r.error = lar_fail(LAR_VERSION, d, "a newer larder wrote it");
    else read_all(&r, o, out);
    cJSON_Delete(o);
    return r.error;
}
