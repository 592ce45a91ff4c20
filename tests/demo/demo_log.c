/* A ring of received requests.
 *
 * Called by the demo upstream, once a request, and by its /__log endpoint.
 * One thread; never blocks.
 * Why: "untouched means untouched" can only be shown with the bytes that arrived.
 * Invariants:
 *   1. A body's bytes are kept as they came; where they are not UTF-8 they are printed in Base64 beside the text.
 *   2. Bodies kept never exceed BYTES_MAX together; the oldest go first.
 * Memory: the ring owns the bodies; a body moves in without a copy. */
#include "demo_log.h"

#include <openssl/evp.h>
#include <stdlib.h>

#include "demo_json.h"

#define BYTES_MAX ((uint64_t)1 << 30)
#define BUF_MAX ((size_t)1 << 30)

void demo_log_init(demo_log *l, uint64_t entries_max) {
    *l = (demo_log){.cap = entries_max};
    if (!entries_max) return;
    l->ring = calloc(entries_max, sizeof *l->ring);
    if (!l->ring) abort();
}

static void entry_release(demo_log *l, demo_entry *e) {
    l->bytes -= e->body.len;
    lar_buf_release(&e->head);
    lar_buf_release(&e->body);
    lar_buf_release(&e->usage);
    *e = (demo_entry){0};
}

void demo_log_reset(demo_log *l) {
    for (uint64_t i = 0; i < l->cap && i < l->count; i++) entry_release(l, &l->ring[i]);
    l->count = l->aborted = 0;
}

void demo_log_release(demo_log *l) {
    demo_log_reset(l);
    free(l->ring);
    l->ring = NULL;
}

demo_entry *demo_log_at(demo_log *l, uint64_t number) {
    if (!l->cap || number >= l->count || l->count - number > l->cap) return NULL;
    return &l->ring[number % l->cap];
}

/* Takes oldest bodies out until the rest fits; their entries stay, with an empty body. */
static void make_room(demo_log *l, uint64_t bytes) {
    uint64_t first = l->count > l->cap ? l->count - l->cap : 0;
    for (uint64_t i = first; i < l->count && l->bytes + bytes > BYTES_MAX; i++) {
        demo_entry *e = &l->ring[i % l->cap];
        l->bytes -= e->body.len;
        lar_buf_release(&e->body);
        lar_buf_init(&e->body, BUF_MAX);
    }
}

uint64_t demo_log_add(demo_log *l, const demo_request *r) {
    uint64_t number = l->count++;
    if (!l->cap) return number;
    demo_entry *e = &l->ring[number % l->cap];
    if (number >= l->cap) entry_release(l, e);
    make_room(l, r->body->len);
    lar_buf_init(&e->head, BUF_MAX);
    lar_buf_init(&e->usage, BUF_MAX);
    e->failed[0] = 0;
    DEMO_PUT(&e->head, "\"method\":");
    demo_json_quote(&e->head, r->method);
    DEMO_PUT(&e->head, ",\"target\":");
    demo_json_quote(&e->head, r->target);
    DEMO_PUT(&e->head, ",\"headers\":[");
    for (uint32_t i = 0; i < r->field_count; i++) {
        demo_put(&e->head, i ? LAR_SLICE(",[") : LAR_SLICE("["));
        demo_json_quote(&e->head, r->fields[i].name);
        DEMO_PUT(&e->head, ",");
        demo_json_quote(&e->head, r->fields[i].value);
        DEMO_PUT(&e->head, "]");
    }
    DEMO_PUT(&e->head, "]");
    e->body = *r->body;
    lar_buf_init(r->body, e->body.max);
    l->bytes += e->body.len;
    return number;
}

static void put_base64(lar_slice s, lar_buf *out) {
    unsigned char text[4100];
    while (s.len) {
        size_t n = s.len < 3072 ? s.len : 3072;
        int made = EVP_EncodeBlock(text, (const unsigned char *)s.ptr, (int)n);
        demo_put(out, lar_slice_of((const char *)text, (size_t)made));
        s = lar_slice_of(s.ptr + n, s.len - n);
    }
}

static void put_entry(const demo_entry *e, lar_buf *out) {
    lar_slice body = lar_buf_slice(&e->body);
    DEMO_PUT(out, "{");
    demo_put(out, lar_buf_slice(&e->head));
    DEMO_PUT(out, ",\"body\":");
    demo_json_quote(out, body);
    if (!demo_utf8_valid(body)) {
        DEMO_PUT(out, ",\"body_base64\":\"");
        put_base64(body, out);
        DEMO_PUT(out, "\"");
    }
    if (e->usage.len) {
        DEMO_PUT(out, ",\"usage\":");
        demo_put(out, lar_buf_slice(&e->usage));
    }
    if (e->failed[0]) demo_putf(out, ",\"failed\":\"%s\"", e->failed);
    demo_putf(out, ",\"aborted\":%s,\"done\":%s}", e->aborted ? "true" : "false", e->done ? "true" : "false");
}

void demo_log_print(demo_log *l, uint64_t from, lar_buf *out) {
    uint64_t first = l->count > l->cap ? l->count - l->cap : 0;
    if (from < first) from = first;
    demo_putf(out, "{\"count\":%llu,\"aborted\":%llu,\"kept\":%s,\"entries\":[", (unsigned long long)l->count,
              (unsigned long long)l->aborted, l->cap ? "true" : "false");
    for (uint64_t i = from; i < l->count && l->cap; i++) {
        if (i > from) DEMO_PUT(out, ",");
        put_entry(&l->ring[i % l->cap], out);
    }
    DEMO_PUT(out, "]}");
}
