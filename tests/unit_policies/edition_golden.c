/* What each row of the edition makes of a fixed set of requests, as hashes beside its version.
 *
 *     edition_golden [--compare FILE | --write FILE]
 *
 * A change of a rule, a hash or a template changes a hash here. Until its edition is released the file is simply
 * written anew (the target `docs`); from then on a row's hash may change only together with its version
 * (policies/edition.def), and --write refuses otherwise. One thread; blocks on files. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "canon_harness.h"
#include "policies/edition.h"

enum { PAGE_BYTES_MAX = 1 << 16, MINUTE_MS = 60000 };

#define LINE "One line of a system text that is long enough, six times over, to be worth a place in a cache. "

/* @ stands for the minute, so that the same text moves from one sending to the next. */
static const struct {
    lar_protocol protocol;
    const char *body;
} samples[] = {
    {LAR_PROTOCOL_CHAT,
     "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"Current time: "
     "2023-11-14T22:1@:20Z. Session id: 3f2504e0-4f89-41d3-9a0c-0305e82c330@. Be brief.\"},{\"role\":"
     "\"user\",\"content\":\"Hello\"}]}"},
    {LAR_PROTOCOL_CHAT,
     "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"Current time: 2023-11-14T22:1@:20Z. Session id: "
     "3f2504e0-4f89-41d3-9a0c-0305e82c330@. Be brief.\"},{\"role\":\"user\",\"content\":\"Hello\"},{\"role\":\"assistant\","
     "\"content\":\"Hi.\"},{\"role\":\"user\",\"content\":\"What is new?\\r\\n\"}],\"tools\":[{\"type\":\"function\","
     "\"function\":{\"name\":\"b\",\"parameters\":{\"type\":\"object\"}}},{\"type\":\"function\",\"function\":{\"name\":\"a\"}}]}"},
    {LAR_PROTOCOL_CHAT,
     "{\"model\":\"m\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\"}},{\"type\":\"function\",\"function\":"
     "{\"parameters\":{\"type\":\"object\"},\"name\":\"b\"}}],\"messages\":[{\"role\":\"system\",\"content\":\"Step @ of 9. "
     "cwd: /tmp/run-@@/work\\nBranch: main\"},{\"role\":\"user\",\"content\":\"Go on\"},{\"role\":\"assistant\",\"content\":"
     "null,\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"a\",\"arguments\":\"{\\\"x\\\": "
     "1}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"{\\\"ok\\\": true}\"}]}"},
    {LAR_PROTOCOL_CHAT,
     "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"\\ufeffRead this.  \\r\\nThen "
     "that.\"},{\"role\":\"user\",\"content\":\"Line one\\r\\nline two  \"}]}"},
    {LAR_PROTOCOL_CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"Read this.\\nThen that.\"},"
                        "{\"role\":\"user\",\"content\":\"Line one\\nline two\"}]}"},
    {LAR_PROTOCOL_MESSAGES,
     "{\"model\":\"m\",\"max_tokens\":9,\"system\":[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: "
     "cc_version=2.1.@; cch=0000@;\\nYou help.\"},{\"type\":\"text\",\"text\":\"Today's date: 2023-11-1@\",\"cache_control\":"
     "{\"type\":\"ephemeral\"}}],\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}"},
    {LAR_PROTOCOL_RESPONSES,
     "{\"model\":\"m\",\"instructions\":\"Request id: req_0123456789abcde@. Answer in French.\",\"input\":[{\"role\":"
     "\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"Hello\"}]}]}"},
    /* calls without a result, results too late or without a call; the last one is long enough for marks */
    {LAR_PROTOCOL_CHAT,
     "{\"model\":\"m\",\"messages\":[{\"role\":\"tool\",\"tool_call_id\":\"c0\",\"content\":\"1\"},{\"role\":"
     "\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c1\"},{\"id\":\"c2\"}]},{\"role\":\"user\",\"content\":"
     "\"Well?\"},{\"role\":\"tool\",\"tool_call_id\":\"c2\",\"content\":\"2\"}]}"},
    {LAR_PROTOCOL_RESPONSES,
     "{\"model\":\"m\",\"input\":[{\"type\":\"function_call\",\"call_id\":\"c1\"},{\"role\":"
     "\"user\",\"content\":\"Well?\"},{\"type\":\"function_call_output\",\"call_id\":\"c9\"}]}"},
    {LAR_PROTOCOL_MESSAGES,
     "{\"model\":\"claude-opus-5\",\"system\":\"" LINE LINE LINE LINE LINE LINE "\",\"messages\":[{\"role\":\"user\","
     "\"content\":\"Go\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"t1\"},{\"type\":"
     "\"tool_use\",\"id\":\"t2\"}]},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Well?\"},{\"type\":"
     "\"tool_result\",\"tool_use_id\":\"t2\",\"content\":\"2\"}]}]}"},
};
enum { SAMPLES = sizeof samples / sizeof *samples, ROUNDS = 4 };

/* What a row looks at. */
typedef enum view { VIEW_SENT, VIEW_PREFIX, VIEW_PUTS, VIEW_CUTS } view;

static const lar_hash_key key = {"the same key on every machine..."};

static lar_hash add_u64(lar_hash h, uint64_t v) {
    uint8_t b[8];
    for (int i = 0; i < 8; i++) b[i] = (uint8_t)(v >> (8 * i));
    return lar_hash_chain(h, lar_slice_of((const char *)b, sizeof b));
}

static lar_hash look(lar_hash h, view v, const harness *x, lar_slice sent) {
    if (v == VIEW_SENT) return lar_hash_chain(h, sent);
    if (v == VIEW_PREFIX) return add_u64(add_u64(h, x->out.prefix_hash), x->out.segments_known);
    for (uint32_t i = 0; v == VIEW_PUTS && i < x->out.put_count; i++)
        h = lar_hash_chain(lar_hash_join(h, x->out.puts[i].key), x->out.puts[i].value);
    for (uint32_t i = 0; v == VIEW_CUTS && i < x->out.cut_count; i++) {
        const lar_cut *c = &x->out.cuts[i];
        h = add_u64(add_u64(add_u64(h, c->sent), c->raw), (uint64_t)c->bytes << 32 | (uint64_t)c->at << 8 | c->kind);
    }
    return h;
}

static lar_hash run_samples(view v, uint64_t rules_off) {
    harness x;
    lar_hash h = {{0}};
    harness_init(&x);
    x.key = &key;
    x.options.rules_off = rules_off;
    for (int round = 0; round < ROUNDS; round++, x.now_ms += MINUTE_MS) {
        for (int i = 0; i < SAMPLES; i++) {
            char body[2048];
            size_t n = strlen(samples[i].body), len;
            if (n >= sizeof body) abort();
            memcpy(body, samples[i].body, n + 1);
            for (size_t k = 0; k < n; k++) body[k] = body[k] == '@' ? (char)('3' + round) : body[k];
            char *sent = harness_send(&x, samples[i].protocol, lar_slice_of(body, n), &len);
            if (!sent || x.error) {
                (void)fprintf(stderr, "sample %d: %s\n", i, lar_error_name(x.error));
                exit(2);
            }
            h = look(h, v, &x, lar_slice_of(sent, len));
            free(sent);
        }
    }
    harness_release(&x);
    return h;
}

static lar_hash hash_of(const char *row) {
    static const struct {
        const char *name;
        view v;
    } parts[] = {{"norm", VIEW_PREFIX},
                 {"exact", VIEW_CUTS},
                 {"facts", VIEW_SENT},
                 {"memory", VIEW_PUTS},
                 {"fingerprint", VIEW_CUTS}};
    uint64_t all = ~UINT64_C(0) >> (64 - LAR_RULE_COUNT);
    lar_rule r = lar_rule_find(lar_slice_cstr(row));
    if (r != LAR_RULE_COUNT) return run_samples(VIEW_SENT, all & ~(UINT64_C(1) << r));
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) {
        /* exact hashes are seen through fingerprints of what no rule touches */
        bool bare = strcmp(row, "exact") == 0;
        if (strcmp(row, parts[i].name) == 0) return run_samples(parts[i].v, bare ? all : lar_rules_off_default());
    }
    (void)fprintf(stderr, "no sample looks at the row %s\n", row);
    exit(2);
}

static void make_page(lar_buf *out) {
    lar_edition_row rows[LAR_EDITION_ROWS_MAX];
    uint32_t n = lar_edition_rows(LAR_SLICE(LAR_EDITION), rows);
    lar_error e = lar_buf_printf(out,
                                 "# Generated by the target `docs`: row, version, hash of what it makes of the "
                                 "samples in edition_golden.c.\nedition %s %s\n",
                                 LAR_EDITION, LAR_EDITION_OPEN ? "open" : "released");
    for (uint32_t i = 0; !e && i < n; i++) {
        lar_hash h = hash_of(rows[i].name);
        e = lar_buf_printf(out, "%s %" PRIu32 " ", rows[i].name, rows[i].version);
        for (int k = 0; !e && k < 8; k++) e = lar_buf_printf(out, "%02x", h.bytes[k]);
        if (!e) e = lar_buf_printf(out, "\n");
    }
    if (e || lar_buf_add(out, "", 1)) exit(2);
    out->len--;
}

static char *read_file(const char *file) {
    char *text = calloc(1, PAGE_BYTES_MAX);
    FILE *f = fopen(file, "rb");
    if (!text) exit(2);
    if (f) (void)!fread(text, 1, PAGE_BYTES_MAX - 1, f);
    if (f) (void)fclose(f);
    return text;
}

/* The line of `row` in a page, or NULL. */
static const char *line_of(const char *page, const char *row, size_t len) {
    for (const char *at = page; at; at = strchr(at, '\n'), at = at ? at + 1 : NULL) {
        if (strncmp(at, row, len) == 0 && at[len] == ' ') return at;
    }
    return NULL;
}

/* Rows of `was` with another hash and the same version in `now`; says each. */
static int same_version_other_hash(const char *was, const char *now) {
    int faults = 0;
    for (const char *at = now; *at; at = strchr(at, '\n') + 1) {
        size_t name = strcspn(at, " "), line = strcspn(at, "\n");
        const char *old = *at == '#' ? NULL : line_of(was, at, name);
        if (!old || strncmp(old, at, line + 1) == 0 || strncmp(at, "edition ", 8) == 0) continue;
        size_t version = name + 1 + strcspn(at + name + 1, " ");
        if (strncmp(old, at, version + 1) != 0) continue;
        (void)fprintf(stderr, "%.*s makes something else of the samples, but its version is the same\n", (int)name, at);
        faults++;
    }
    return faults;
}

int main(int argc, char **argv) {
    lar_buf page;
    lar_buf_init(&page, PAGE_BYTES_MAX);
    make_page(&page);
    if (argc < 3) return fputs(page.ptr, stdout) < 0;
    char *was = read_file(argv[2]);
    bool released = strstr(was, "edition " LAR_EDITION " released\n") != NULL;
    int rc = 0;
    if (strcmp(argv[1], "--compare") == 0) {
        rc = strcmp(was, page.ptr) != 0;
        if (rc) (void)same_version_other_hash(was, page.ptr);
        if (rc && LAR_EDITION_OPEN)
            (void)fprintf(stderr, "%s: edition " LAR_EDITION " is not released yet: build the target docs, commit it\n",
                          argv[2]);
        else if (rc)
            (void)fprintf(stderr, "%s: add a line with the next version to policies/edition.def, build docs\n",
                          argv[2]);
    } else if (released && same_version_other_hash(was, page.ptr)) {
        (void)fprintf(stderr, "%s is not written: edition " LAR_EDITION " is released\n", argv[2]);
        rc = 1;
    } else {
        FILE *f = fopen(argv[2], "wb");
        rc = !f || fputs(page.ptr, f) < 0 || fclose(f) != 0;
        if (rc) perror(argv[2]);
    }
    free(was);
    lar_buf_release(&page);
    return rc;
}
