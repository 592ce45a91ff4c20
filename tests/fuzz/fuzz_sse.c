/* Event streams against a plain reference: split all lines first, then follow HTML 9.2.6 line by line. */
#include "tests/unit_http1/sse_play.h"

typedef struct reference {
    lar_buf data, type, *out;
    size_t bytes, max;
    bool any, has_data;
} reference;

static void put(lar_buf *b, const char *bytes, size_t len) { SSE_CHECK(!lar_buf_add(b, bytes, len)); }

static void end_of_event(reference *r) {
    if (r->any && r->bytes > r->max) {
        put(r->out, "{+}", 3);
    } else if (r->any && !r->has_data) {
        put(r->out, "{:}", 3);
    } else if (r->any) {
        put(r->out, "{", 1);
        put(r->out, r->type.ptr, r->type.len);
        put(r->out, "|", 1);
        put(r->out, r->data.ptr, r->data.len);
        put(r->out, "}", 1);
    }
    r->data.len = r->type.len = r->bytes = 0;
    r->any = r->has_data = false;
}

static void one_line(reference *r, const char *line, size_t len) {
    size_t name = 0, value;
    while (name < len && line[name] != ':') name++;
    value = name < len ? name + 1 : len;
    if (value < len && line[value] == ' ') value++;
    r->any = true;
    r->bytes += len;
    if (name == 4 && memcmp(line, "data", 4) == 0) {
        if (r->has_data) put(&r->data, "\n", 1);
        put(&r->data, line + value, len - value);
        r->has_data = true;
    } else if (name == 5 && memcmp(line, "event", 5) == 0) {
        r->type.len = 0;
        put(&r->type, line + value, len - value);
    }
}

static void read_plainly(lar_slice in, size_t max, lar_buf *out) {
    reference r = {.out = out, .max = max};
    size_t at = in.len >= 3 && memcmp(in.ptr, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    lar_buf_init(&r.data, 16 << 20);
    lar_buf_init(&r.type, 16 << 20);
    while (at < in.len) {
        size_t eol = at;
        while (eol < in.len && in.ptr[eol] != '\r' && in.ptr[eol] != '\n') eol++;
        if (eol > at) one_line(&r, in.ptr + at, eol - at);
        else end_of_event(&r);
        at = eol + 1;
        if (eol < in.len && in.ptr[eol] == '\r' && at < in.len && in.ptr[at] == '\n') at++;
    }
    lar_buf_release(&r.data);
    lar_buf_release(&r.type);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lar_slice in = lar_slice_of((const char *)data, size);
    uint64_t seed = 1469598103934665603u;
    for (size_t i = 0; i < size; i++) seed = (seed ^ data[i]) * 1099511628211u;
    size_t max = seed % 4 == 0 ? seed / 4 % 40 : 1 << 20;
    const cuts ways[] = {{.kind = CUT_NONE}, {.kind = CUT_BYTES}, {.kind = CUT_RANDOM, .seed = seed}};
    lar_buf want, out;
    lar_buf_init(&want, 16 << 20);
    read_plainly(in, max, &want);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        lar_buf_init(&out, 16 << 20);
        sse_play(in, max, ways[i], &out);
        SSE_CHECK(lar_slice_eq(lar_buf_slice(&want), lar_buf_slice(&out)));
        lar_buf_release(&out);
    }
    lar_buf_release(&want);
    return 0;
}
