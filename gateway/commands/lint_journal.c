/* What larder's own records say: which rules found something, for which model, how many tokens missed meanwhile.
 * Flow: lint_input.c (lines of an export) and lint_main.c (a store's folder) -> here -> findings. One thread; blocks
 * on the store. Records hold no text: a finding has no place but its file. Memory: one row a rule, model and file. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "gateway/commands/lint_command.h"
#include "gateway/commands/request_log.h"
#include "store/store.h"

enum { ROWS_MAX = 4096, STRINGS_BYTES_MAX = 8 << 20, MODEL_BYTES = 96 };

typedef struct row {
    char model[MODEL_BYTES];
    uint32_t file;
    uint64_t requests, missed;              /* of the model; tokens, where they are known */
    uint64_t seen[64], fired[64], lost[64]; /* by rule: requests, edited ones, tokens missed in them */
    bool store;
} row;

struct lar_lint_records {
    row *rows[ROWS_MAX];
    uint32_t row_count, record_count;
    lar_arena strings;
    lar_lint_finding *findings;
};

lar_lint_records *lar_lint_records_new(void) {
    lar_lint_records *r = calloc(1, sizeof *r);
    if (r) lar_arena_init(&r->strings, STRINGS_BYTES_MAX);
    return r;
}

void lar_lint_records_free(lar_lint_records *r) {
    if (!r) return;
    for (uint32_t i = 0; i < r->row_count; i++) free(r->rows[i]);
    lar_arena_release(&r->strings);
    free(r->findings);
    free(r);
}

uint32_t lar_lint_records_count(const lar_lint_records *r) { return r->record_count; }

static row *row_of(lar_lint_records *r, lar_slice model, uint32_t file) {
    if (model.len >= MODEL_BYTES) model.len = MODEL_BYTES - 1;
    for (uint32_t i = 0; i < r->row_count; i++) {
        if (r->rows[i]->file == file && lar_slice_eq_cstr(model, r->rows[i]->model)) return r->rows[i];
    }
    row *n = r->row_count < ROWS_MAX ? calloc(1, sizeof *n) : NULL;
    if (!n) return NULL;
    if (model.len) memcpy(n->model, model.ptr, model.len);
    n->file = file;
    r->rows[r->row_count++] = n;
    return n;
}

typedef struct record {
    lar_slice model;
    uint64_t seen, fired;
    uint64_t missed; /* 0 where unknown */
} record;

static lar_error count(lar_lint_records *r, const record *x, uint32_t file, row **out) {
    row *w = row_of(r, x->model, file);
    if (!w) return r->row_count < ROWS_MAX ? LAR_NO_MEMORY : LAR_LIMIT;
    r->record_count++;
    w->requests++;
    w->missed += x->missed;
    for (int i = 0; i < LAR_RULE_COUNT; i++) {
        if (!((x->seen | x->fired) >> i & 1)) continue;
        w->seen[i]++;
        w->fired[i] += x->fired >> i & 1;
        w->lost[i] += x->missed;
    }
    if (out) *out = w;
    return LAR_OK;
}

static uint64_t read_rules(const lar_json *j, uint32_t list) {
    uint64_t rules = 0;
    for (uint32_t i = lar_json_first(j, list); i != LAR_JSON_NONE; i = lar_json_after(j, list, i)) {
        lar_rule r = lar_rule_find(lar_json_inner(j, i));
        if (r < LAR_RULE_COUNT) rules |= 1ull << r;
    }
    return rules;
}

lar_error lar_lint_records_add(lar_lint_records *r, const lar_log_request *q, uint32_t file) {
    const lar_json *j = q->record;
    record x = {.model = lar_json_inner(j, lar_json_get(j, q->record_node, "model"))};
    x.seen = read_rules(j, lar_json_get(j, q->record_node, "rules_seen"));
    x.fired = read_rules(j, lar_json_get(j, q->record_node, "rules_fired"));
    if (!lar_json_u64(j, lar_json_get(j, q->record_node, "miss_tokens"), &x.missed)) x.missed = 0;
    return count(r, &x, file, NULL);
}

/* -- a store ------------------------------------------------------------------------------------------- */

typedef struct scanning {
    lar_lint_records *r;
    uint32_t file;
    lar_error e;
} scanning;

static bool one(void *ctx, uint64_t seq, const lar_journal_record *j) {
    scanning *s = ctx;
    (void)seq;
    record x = {lar_slice_cstr(j->model), j->rules_seen, j->rules_fired, 0};
    if (j->tokens.miss > 0) x.missed = (uint64_t)j->tokens.miss;
    row *w;
    s->e = count(s->r, &x, s->file, &w);
    if (!s->e) w->store = true;
    return !s->e;
}

lar_error lar_lint_records_store(lar_lint_records *r, const char *folder, uint32_t file, lar_diag *d) {
    char data[4096];
    struct stat st;
    int n = snprintf(data, sizeof data, "%s/data.mdb", folder);
    if (n < 0 || n >= (int)sizeof data || stat(data, &st) != 0) return LAR_NOT_FOUND;
    lar_store *s;
    lar_store_options o = {.dir = folder, .read_only = true};
    lar_error e = lar_store_open(&o, &s, d);
    if (e) return e == LAR_NOT_FOUND ? LAR_IO : e;
    scanning scan = {r, file, LAR_OK};
    const lar_journal_filter all = {0};
    uint64_t damaged = 0;
    e = lar_store_scan(s, &all, 0, one, &scan, &damaged);
    lar_store_close(s);
    if (damaged) (void)fprintf(stderr, "larder lint: %s: %" PRIu64 " damaged records were left out\n", folder, damaged);
    return e ? e : scan.e;
}

/* -- findings ------------------------------------------------------------------------------------------ */

static lar_error finding_of(lar_lint_records *r, const row *w, int rule, lar_lint_finding *f) {
    *f = (lar_lint_finding){.rule = (lar_rule)rule, .severity = LAR_SEVERITY_INFO, .state = LAR_LINT_CONFIRMED};
    f->place.file = w->file;
    f->requests = w->seen[rule] < UINT32_MAX ? (uint32_t)w->seen[rule] : UINT32_MAX;
    f->what = lar_arena_printf(&r->strings,
                               "records of model %s: %s was found in %" PRIu64 " of %" PRIu64
                               " requests and edited in %" PRIu64 "; %" PRIu64 " tokens missed the cache in them",
                               *w->model ? w->model : "(none)", lar_rule_name((lar_rule)rule), w->seen[rule],
                               w->requests, w->fired[rule], w->lost[rule]);
    bool all = w->fired[rule] == w->seen[rule];
    f->advice =
        all ? LAR_SLICE("larder mends it; records hold no text: lint a log of the requests to see where it stands.")
            : LAR_SLICE("Run `larder serve --canon on` to have it mended; records hold no text: lint a log of the "
                        "requests to see where it stands.");
    f->key = lar_hash_chain(lar_hash_of(lar_slice_cstr(lar_rule_id((lar_rule)rule))), lar_slice_cstr(w->model));
    return f->what.ptr ? LAR_OK : LAR_NO_MEMORY;
}

static bool is_clean(const row *w, int rule) { return w->seen[rule] == 0 || w->seen[rule] == w->fired[rule]; }

lar_error lar_lint_records_end(lar_lint_records *r, lar_lint_finding **findings, uint32_t *count_out) {
    uint32_t n = 0;
    free(r->findings);
    r->findings = calloc((size_t)r->row_count * LAR_RULE_COUNT + 1, sizeof *r->findings);
    if (!r->findings) return LAR_NO_MEMORY;
    lar_error e = LAR_OK;
    for (uint32_t i = 0; i < r->row_count && !e; i++) {
        for (int rule = 0; rule < LAR_RULE_COUNT && !e; rule++) {
            if (!is_clean(r->rows[i], rule)) e = finding_of(r, r->rows[i], rule, &r->findings[n++]);
        }
    }
    *findings = r->findings;
    *count_out = n;
    return e;
}
