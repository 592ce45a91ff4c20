/* Usage from a stream and from a whole answer. Checks that normal counts are sound whatever is read, and that events
 * passed over unparsed would have changed nothing but `odd`. */
#include "gateway/usage/usage.h"
#include "tests/unit_http1/sse_play.h"

static bool known(int64_t v) { return v != LAR_TOKENS_UNKNOWN; }

static void check_sound(const lar_usage *u) {
    lar_tokens t;
    (void)lar_usage_tokens(u, &t);
    const int64_t all[] = {t.prompt, t.hit, t.miss, t.write, t.output, t.reasoning};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        SSE_CHECK(!known(all[i]) || (all[i] >= 0 && all[i] < (int64_t)1 << 42));
    if (known(t.prompt) && known(t.hit)) SSE_CHECK(known(t.miss) && t.hit + t.miss == t.prompt);
    if (known(t.prompt) && known(t.write)) SSE_CHECK(t.write <= t.prompt);
    SSE_CHECK(u->seen == (u->spelling != LAR_SPELLING_NONE));
    SSE_CHECK(!u->done || u->finished);
}

static bool same(const lar_usage *a, const lar_usage *b) {
    lar_tokens s, t;
    bool c = lar_usage_tokens(a, &s), d = lar_usage_tokens(b, &t);
    return c == d && memcmp(&s, &t, sizeof s) == 0 && memcmp(&a->raw, &b->raw, sizeof a->raw) == 0 &&
           a->seen == b->seen && a->error_seen == b->error_seen && a->finished == b->finished && a->done == b->done &&
           a->spelling == b->spelling;
}

static bool has_escaped_letters(lar_slice s) { return memmem(s.ptr, s.len, "\\u", 2) != NULL; }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const lar_usage_rule rules[] = {LAR_USAGE_BY_SPELLING, LAR_USAGE_INCLUDED, LAR_USAGE_BESIDE};
    lar_slice in = lar_slice_of((const char *)data, size);
    lar_usage_rule rule = rules[size % 3];
    lar_protocol p = (lar_protocol)(size / 3 % LAR_PROTOCOL_COUNT);
    lar_usage quick, full, body;
    lar_usage_init(&quick, rule);
    lar_usage_init(&full, rule);
    lar_usage_init(&body, rule);
    lar_sse s;
    lar_sse_event e;
    lar_sse_init(&s, 1 << 20);
    for (size_t pos = 0, used; pos < in.len && lar_sse_next(&s, in.ptr + pos, in.len - pos, &used, &e); pos += used) {
        lar_usage_kind a = lar_usage_event(&quick, p, e.type, e.data);
        full.content_seen = false; /* nothing is passed over */
        lar_usage_kind b = lar_usage_event(&full, p, e.type, e.data);
        if (!has_escaped_letters(in)) SSE_CHECK(a == b && same(&quick, &full));
        check_sound(&quick);
        check_sound(&full);
    }
    lar_usage_body(&body, p, in);
    check_sound(&body);
    lar_sse_release(&s);
    lar_usage_release(&quick);
    lar_usage_release(&full);
    lar_usage_release(&body);
    return 0;
}
