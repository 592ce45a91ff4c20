/* Folder, options and records for the store's tests. */
#include "store_fixture.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int fixture_setup(void **state) {
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    /* In memory where that is: hundreds of syncs on a busy disk take minutes and test nothing more. */
    (void)snprintf(f->dir, sizeof f->dir, "%s/larder-store-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(f->dir));
    f->metrics = lar_metrics_new();
    f->o = (lar_store_options){.dir = f->dir, .metrics = f->metrics, .commit_ms = 2, .sync_ms = 50};
    *state = f;
    return 0;
}

static void wipe(const char *dir) {
    DIR *d = opendir(dir);
    if (!d) return;
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        char path[512];
        if (e->d_name[0] == '.') continue;
        (void)snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (unlink(path) != 0) (void)rmdir(path);
    }
    (void)closedir(d);
}

void fixture_wipe(const fixture *f) {
    char pages[128];
    fixture_path(f, "pages", pages);
    wipe(pages);
    wipe(f->dir);
}

int fixture_teardown(void **state) {
    fixture *f = *state;
    lar_store_close(f->store);
    fixture_wipe(f);
    (void)rmdir(f->dir);
    lar_metrics_free(f->metrics);
    free(f);
    return 0;
}

lar_error fixture_try_open(fixture *f, lar_diag *d) {
    *d = (lar_diag){0};
    f->store = NULL;
    return lar_store_open(&f->o, &f->store, d);
}

void fixture_open(fixture *f) {
    lar_diag d;
    lar_error e = fixture_try_open(f, &d);
    if (e) fail_msg("open: %s: %s", lar_error_name(e), d.text);
}

void fixture_close(fixture *f) {
    lar_store_close(f->store);
    f->store = NULL;
}

void fixture_path(const fixture *f, const char *file, char out[128]) {
    (void)snprintf(out, 128, "%s/%s", f->dir, file);
}

/* As many places as n says, 0 to 48; the bytes are the same for all and lie in the program. */
static lar_slice chain_of(uint64_t n) {
    static uint8_t bytes[LAR_JREC_CUTS_MAX * LAR_JREC_CUT_BYTES];
    for (unsigned i = 0; i < LAR_JREC_CUTS_MAX && !bytes[sizeof bytes - 2]; i++) {
        uint8_t *p = bytes + (size_t)i * LAR_JREC_CUT_BYTES;
        for (unsigned k = 0; k < 12; k++) p[k] = (uint8_t)(i * 31 + k * 7 + 1);
        p[12] = (uint8_t)(i + 1); /* bytes */
        p[16] = (uint8_t)i;       /* at */
        p[18] = (uint8_t)(1 + i % (LAR_JREC_CUT_KINDS - 1));
        p[19] = (uint8_t)(i % 3);
    }
    return lar_slice_of((const char *)bytes, n % (LAR_JREC_CUTS_MAX + 1) * LAR_JREC_CUT_BYTES);
}

lar_journal_record record_of(uint64_t n) {
    int64_t i = (int64_t)n;
    lar_journal_record r = {
        .time_ms = 1796000000000 + i * 7,
        .tenant = n * 31 + 1,
        .status = (uint16_t)(200 + n % 300),
        .ending = (uint8_t)(n % LAR_END_COUNT),
        .spelling = (uint8_t)(n % LAR_SPELLING_COUNT),
        .error = (uint16_t)(n % 5 ? LAR_OK : LAR_UPSTREAM_TIMEOUT),
        .flags = (uint16_t)(n % 32),
        .ttft_us = i * 11,
        .total_us = i * 13 + 5,
        .tokens = {i + 100, i + 60, 40, 0, i + 7, LAR_TOKENS_UNKNOWN},
        .raw = {i + 100, i + 61, LAR_TOKENS_UNKNOWN, 0, i + 7, LAR_TOKENS_UNKNOWN},
        .request_bytes = n + 1000,
        .sent_bytes = n + 900,
        .response_bytes = n + 50,
        .prefix_known_bytes = n + 3,
        .prefix_hash = n * 0x9E3779B97F4A7C15u,
        .rules_fired = n & 3,
        .rules_seen = n & 7,
        .turn = (uint32_t)(n % 20),
        .edits = (uint32_t)(n & 3),
        .request_id = n * 0xD1B54A32D192ED03u + 1,
        .edition_hash = n + 17,
        .predicted_hit = i + 55,
        .predicted_bytes = n + 5,
        .prompt_bytes = n + 1005,
        .recall_hits = (uint32_t)(n % 7),
        .recall_misses = (uint32_t)(n % 3),
        .attempts = (uint8_t)(n % 4),
        .target = (uint8_t)(n % 2),
        .cold_tokens = (uint32_t)(n * 3),
        .begun_output = n % 4 == 3 ? i + 4 : LAR_TOKENS_UNKNOWN,
    };
    (void)snprintf(r.edition, sizeof r.edition, "2026.%d", (int)(n % 12));
    (void)snprintf(r.provider, sizeof r.provider, "provider-%d", (int)(n % 2));
    (void)snprintf(r.failure, sizeof r.failure, "%s", n % 4 > 1 ? "not_sent" : "");
    (void)snprintf(r.continued, sizeof r.continued, "%s", n % 4 == 3 ? "local" : "");
    r.chain = chain_of(n);
    (void)snprintf(r.route, sizeof r.route, "route-%d", (int)(n % 2));
    (void)snprintf(r.upstream, sizeof r.upstream, "upstream-%d", (int)(n % 3));
    (void)snprintf(r.model, sizeof r.model, "model-%d", (int)(n % 4));
    return r;
}

bool records_equal(const lar_journal_record *a, const lar_journal_record *b) {
    return a->time_ms == b->time_ms && a->tenant == b->tenant && !strcmp(a->route, b->route) &&
           !strcmp(a->upstream, b->upstream) && !strcmp(a->model, b->model) && a->status == b->status &&
           a->ending == b->ending && a->spelling == b->spelling && a->error == b->error && a->flags == b->flags &&
           a->ttft_us == b->ttft_us && a->total_us == b->total_us &&
           !memcmp(&a->tokens, &b->tokens, sizeof a->tokens) && !memcmp(&a->raw, &b->raw, sizeof a->raw) &&
           a->request_bytes == b->request_bytes && a->sent_bytes == b->sent_bytes &&
           a->response_bytes == b->response_bytes && a->prefix_known_bytes == b->prefix_known_bytes &&
           a->prefix_hash == b->prefix_hash && a->rules_fired == b->rules_fired && a->rules_seen == b->rules_seen &&
           a->turn == b->turn && a->edits == b->edits && a->request_id == b->request_id &&
           a->edition_hash == b->edition_hash && !strcmp(a->edition, b->edition) && !strcmp(a->provider, b->provider) &&
           a->predicted_hit == b->predicted_hit && a->predicted_bytes == b->predicted_bytes &&
           a->prompt_bytes == b->prompt_bytes && a->recall_hits == b->recall_hits &&
           a->recall_misses == b->recall_misses && a->attempts == b->attempts && a->target == b->target &&
           a->cold_tokens == b->cold_tokens && !strcmp(a->failure, b->failure) && !strcmp(a->continued, b->continued) &&
           a->begun_output == b->begun_output && lar_slice_eq(a->chain, b->chain);
}

lar_hash key_of(uint64_t n) { return lar_hash_of(lar_slice_of((const char *)&n, sizeof n)); }

static bool collect(void *ctx, uint64_t seq, const lar_journal_record *r) {
    collected *c = ctx;
    if (c->count == c->cap) {
        c->cap = c->cap ? c->cap * 2 : 256;
        c->records = realloc(c->records, c->cap * sizeof *c->records);
        c->seqs = realloc(c->seqs, c->cap * sizeof *c->seqs);
        assert_true(c->records && c->seqs);
    }
    c->records[c->count] = *r;
    if (r->chain.len) { /* it lies in the scan's buffer only as long as the call */
        lar_slice want = lar_slice_of(chain_of(LAR_JREC_CUTS_MAX).ptr, r->chain.len);
        assert_true(lar_slice_eq(r->chain, want));
        c->records[c->count].chain = want;
    }
    c->seqs[c->count++] = seq;
    return true;
}

collected fixture_scan(fixture *f, const lar_journal_filter *filter, uint64_t *damaged) {
    static const lar_journal_filter all = {0};
    collected c = {0};
    assert_int_equal(lar_store_scan(f->store, filter ? filter : &all, 0, collect, &c, damaged), LAR_OK);
    return c;
}

void collected_release(collected *c) {
    free(c->records);
    free(c->seqs);
}

bool memory_get(fixture *f, uint64_t key, char *out, size_t cap) {
    lar_hash k = key_of(key);
    lar_buf b;
    lar_buf_init(&b, cap - 1);
    lar_error e = lar_store_memory_get(f->store, &k, &b);
    if (!e && b.len) memcpy(out, b.ptr, b.len);
    out[e ? 0 : b.len] = 0;
    lar_buf_release(&b);
    return !e;
}
