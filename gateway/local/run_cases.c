/* larder run --ids: reads cases of token ids, runs them, writes logits as safetensors.
 * Flow: run_command.c calls; the engine computes. One thread; blocks on files and while the model computes.
 * Why the header first: sizes are known before anything runs, so that no more than one case's logits are in memory.
 * Memory: the cases, and the logits of the largest. Sources: the safetensors format. */
#include "gateway/local/run_cases.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

enum { TEXT_BYTES_MAX = 256 << 20, HEADER_BYTES_MAX = 64 << 20, PATH_BYTES = 4096, PRINTED_MAX = 60 };

/* -- reading ----------------------------------------------------------------------------------------------------- */

static lar_error read_numbers(const lar_json *j, uint32_t list, uint32_t **out, uint32_t *count, lar_diag *d) {
    *count = lar_json_is(j, list, LAR_JSON_ARRAY) ? j->nodes[list].count : 0;
    *out = calloc(*count + (size_t)1, sizeof **out);
    if (!*out) return LAR_NO_MEMORY;
    if (list != LAR_JSON_NONE && !lar_json_is(j, list, LAR_JSON_ARRAY))
        return lar_fail_at(LAR_INVALID, d, j->nodes[list].start, "expected a list of whole numbers");
    uint32_t i = 0;
    for (uint32_t n = lar_json_first(j, list); n != LAR_JSON_NONE; n = lar_json_after(j, list, n)) {
        uint64_t v;
        if (!lar_json_u64(j, n, &v) || v > UINT32_MAX)
            return lar_fail_at(LAR_INVALID, d, j->nodes[n].start, "expected a token id or position, a whole number");
        (*out)[i++] = (uint32_t)v;
    }
    return LAR_OK;
}

static lar_error read_case(lar_run_case *c, const lar_json *j, uint32_t node, lar_diag *d) {
    uint32_t name = lar_json_get(j, node, "name"), positions = lar_json_get(j, node, "positions");
    uint32_t next = lar_json_get(j, node, "continuation");
    uint64_t at = j->nodes[node].start;
    if (!lar_json_is(j, name, LAR_JSON_STRING)) return lar_fail_at(LAR_INVALID, d, at, "the case has no name");
    c->name = lar_json_inner(j, name);
    lar_error e = read_numbers(j, lar_json_get(j, node, "ids"), &c->ids, &c->count, d);
    if (!e) e = read_numbers(j, positions, &c->positions, &c->position_count, d);
    if (e) return e;
    c->greedy_count = lar_json_is(j, next, LAR_JSON_ARRAY) ? j->nodes[next].count : 0;
    if (!c->count) return lar_fail_at(LAR_INVALID, d, at, "the case has no ids");
    if (positions == LAR_JSON_NONE && !c->greedy_count) c->positions[c->position_count++] = c->count - 1;
    for (uint32_t i = 0; i < c->position_count; i++)
        if (c->positions[i] >= c->count || (i && c->positions[i] <= c->positions[i - 1]))
            return lar_fail_at(LAR_INVALID, d, at, "position %u of %u tokens, or positions that do not ascend",
                               c->positions[i], c->count);
    return LAR_OK;
}

static lar_error read_all(lar_run_cases *c, const lar_json *j, lar_diag *d) {
    uint32_t list = lar_json_get(j, 0, "cases");
    if (!lar_json_is(j, list, LAR_JSON_ARRAY) || !j->nodes[list].count)
        return lar_fail(LAR_INVALID, d, "expected an object with a list of cases: {\"cases\": [...]}");
    c->items = calloc(j->nodes[list].count, sizeof *c->items);
    if (!c->items) return LAR_NO_MEMORY;
    lar_error e = LAR_OK;
    for (uint32_t n = lar_json_first(j, list); !e && n != LAR_JSON_NONE; n = lar_json_after(j, list, n)) {
        lar_run_case *item = &c->items[c->count++];
        e = read_case(item, j, n, d);
        for (uint32_t i = 0; !e && i + 1 < c->count; i++)
            if (lar_slice_eq(c->items[i].name, item->name))
                e = lar_fail_at(LAR_INVALID, d, j->nodes[n].start, "two cases have one name");
    }
    return e;
}

lar_error lar_run_cases_read(lar_run_cases *c, const char *path, lar_diag *d) {
    lar_json j;
    memset(c, 0, sizeof *c);
    lar_buf_init(&c->text, TEXT_BYTES_MAX);
    lar_json_init(&j);
    lar_error e = lar_file_read(path, LAR_FILE_OR_STREAM, &c->text, d);
    if (!e) e = lar_json_parse(&j, lar_buf_slice(&c->text), &(lar_json_limits){16, 64 << 20}, d);
    if (!e) e = read_all(c, &j, d);
    lar_json_release(&j);
    return e;
}

void lar_run_cases_release(lar_run_cases *c) {
    for (uint32_t i = 0; i < c->count; i++) {
        free(c->items[i].ids);
        free(c->items[i].positions);
    }
    free(c->items);
    lar_buf_release(&c->text);
    memset(c, 0, sizeof *c);
}

/* -- the header -------------------------------------------------------------------------------------------------- */

typedef struct header {
    lar_buf text;
    uint64_t bytes; /* of the tensors so far */
    lar_error error;
} header;

static void add(header *h, lar_slice name, const char *what, const char *type, const uint64_t shape[2]) {
    uint64_t end = h->bytes + shape[0] * (shape[1] ? shape[1] : 1) * 4;
    char dims[64];
    (void)snprintf(dims, sizeof dims, shape[1] ? "%llu,%llu" : "%llu", (unsigned long long)shape[0],
                   (unsigned long long)shape[1]);
    if (!h->error)
        h->error =
            lar_buf_printf(&h->text, ",\"%.*s.%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}",
                           LAR_FMT(name), what, type, dims, (unsigned long long)h->bytes, (unsigned long long)end);
    h->bytes = end;
}

static lar_error make_header(const lar_run_cases *c, uint32_t vocab, header *h) {
    h->error = lar_buf_printf(&h->text, "{\"__metadata__\":{\"made_by\":\"larder %s\"}", LARDER_VERSION);
    for (uint32_t i = 0; i < c->count; i++) {
        const lar_run_case *k = &c->items[i];
        if (k->position_count) add(h, k->name, "logits", "F32", (uint64_t[]){k->position_count, vocab});
        if (!k->greedy_count) continue;
        add(h, k->name, "continuation", "I32", (uint64_t[]){k->greedy_count, 0});
        add(h, k->name, "margin", "F32", (uint64_t[]){k->greedy_count, 0});
    }
    if (!h->error) h->error = lar_buf_printf(&h->text, "}");
    while (!h->error && h->text.len % 8) h->error = lar_buf_add(&h->text, " ", 1);
    return h->error;
}

/* -- running ----------------------------------------------------------------------------------------------------- */

/* The largest logit; *margin is how far it is above the next. */
static uint32_t best_of(const float *logits, uint32_t n, float *margin) {
    uint32_t best = 0, next = n;
    for (uint32_t i = 1; i < n; i++) {
        if (logits[i] > logits[best]) next = best, best = i;
        else if (next == n || logits[i] > logits[next]) next = i;
    }
    *margin = next == n ? 0 : logits[best] - logits[next];
    return best;
}

typedef struct runner {
    lar_engine *engine;
    FILE *out;
    lar_diag *d;
} runner;

static lar_error check_finite(const runner *r, const float *logits, uint64_t count) {
    for (uint64_t i = 0; i < count; i++)
        if (!isfinite(logits[i]))
            return lar_fail(LAR_INVALID, r->d,
                            "the model's logits are not finite: its weights are damaged, or an activation overflowed");
    return LAR_OK;
}

/* `logits` (vocab): of the last token. */
static lar_error continue_greedily(const runner *r, const lar_run_case *c, lar_sequence *s, float *logits) {
    uint32_t vocab = lar_engine_info_of(r->engine).vocab, first = 0;
    uint32_t *ids = calloc(c->greedy_count, sizeof *ids);
    float *margins = calloc(c->greedy_count, sizeof *margins);
    lar_error e = ids && margins ? LAR_OK : LAR_NO_MEMORY;
    for (uint32_t i = 0; !e && i < c->greedy_count; i++) {
        ids[i] = best_of(logits, vocab, &margins[i]);
        if (i + 1 < c->greedy_count)
            e = lar_engine_step(r->engine, &(lar_engine_part){s, &ids[i], 1, &first, 1}, 1, logits, r->d);
        if (!e) e = check_finite(r, logits, vocab);
    }
    if (!e) (void)fwrite(ids, sizeof *ids, c->greedy_count, r->out);
    if (!e) (void)fwrite(margins, sizeof *margins, c->greedy_count, r->out);
    free(ids);
    free(margins);
    return e;
}

/* Logits of the positions, and one row more for the last token where ids follow. */
static lar_error run_case(const runner *r, const lar_run_case *c) {
    uint64_t vocab = lar_engine_info_of(r->engine).vocab, rows = c->position_count;
    bool last_is_there = rows && c->positions[rows - 1] == c->count - 1;
    lar_sequence *s = NULL;
    float *logits = malloc((rows + 1) * vocab * sizeof *logits);
    uint32_t *wanted = malloc((rows + 1) * sizeof *wanted);
    lar_error e = logits && wanted ? LAR_OK : LAR_NO_MEMORY;
    if (!e) e = lar_sequence_new(r->engine, c->count + c->greedy_count, &s, r->d);
    if (!e) {
        memcpy(wanted, c->positions, rows * sizeof *wanted);
        wanted[rows] = c->count - 1;
        lar_engine_part part = {s, c->ids, c->count, wanted, (uint32_t)rows + (c->greedy_count && !last_is_there)};
        e = lar_engine_step(r->engine, &part, 1, logits, r->d);
        if (!e) e = check_finite(r, logits, part.wanted_count * vocab);
    }
    if (!e) (void)fwrite(logits, sizeof *logits, rows * vocab, r->out);
    float *last = last_is_there ? logits + (rows - 1) * vocab : logits + rows * vocab;
    if (!e && c->greedy_count) e = continue_greedily(r, c, s, last);
    lar_sequence_free(s);
    free(wanted);
    free(logits);
    return e;
}

static lar_error write_all(const lar_run_cases *c, lar_engine *e, FILE *out, lar_diag *d) {
    header h = {.bytes = 0};
    lar_buf_init(&h.text, HEADER_BYTES_MAX);
    lar_error error = make_header(c, lar_engine_info_of(e).vocab, &h);
    uint8_t length[8];
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)((uint64_t)h.text.len >> 8 * i);
    if (!error) (void)fwrite(length, 1, sizeof length, out);
    if (!error) (void)fwrite(h.text.ptr, 1, h.text.len, out);
    lar_buf_release(&h.text);
    for (uint32_t i = 0; !error && i < c->count; i++) {
        lar_diag inner = {0};
        error = run_case(&(runner){e, out, &inner}, &c->items[i]);
        lar_slice name = c->items[i].name;
        if (name.len > PRINTED_MAX) name.len = PRINTED_MAX;
        if (error) error = lar_fail(error, d, "case %.*s: %.200s", LAR_FMT(name), inner.text);
    }
    return error;
}

/* A file appears whole or not at all; what is no file (a device, a FIFO) is written to and stays what it is. */
static lar_error write_to(const lar_run_cases *c, lar_engine *e, const char *path, lar_diag *d) {
    char beside[PATH_BYTES];
    struct stat there;
    bool is_stream = stat(path, &there) == 0 && !S_ISREG(there.st_mode);
    int n = snprintf(beside, sizeof beside, "%s%s", path, is_stream ? "" : ".new");
    if (n < 0 || n >= PATH_BYTES) return lar_fail(LAR_INVALID, d, "the path of the output is too long");
    FILE *out = fopen(beside, "wb");
    if (!out) return lar_fail(LAR_IO, d, "%.200s: %s", beside, strerror(errno));
    lar_error error = write_all(c, e, out, d);
    bool failed = ferror(out) != 0;
    failed = fclose(out) != 0 || failed;
    if (!error && (failed || (!is_stream && rename(beside, path) != 0)))
        error = lar_fail(LAR_IO, d, "%.200s could not be written: %s", path, strerror(errno));
    if (error && !is_stream) (void)unlink(beside);
    return error;
}

lar_error lar_run_cases_run(const lar_run_cases *c, lar_engine *e, const char *path, lar_diag *d) {
    char *target = realpath(path, NULL); /* behind a link; NULL: the file is not there yet */
    lar_error error = write_to(c, e, target ? target : path, d);
    free(target);
    return error;
}
