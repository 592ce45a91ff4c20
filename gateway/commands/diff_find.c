/* The first difference of two renderings, its class, and the rules that would mend it (header: diff.h).
 * Flow: diff.c has read and rendered both; the texts are compared; both go through the rules behind traffic of their
 * kind, and what is sent is compared again; then once more without each rule that edited.
 * One thread; never blocks. Invariant: a rule is named only if without it less would be shared.
 * Memory: the ends' own; the sent bodies for the time of the comparison. */
#include "gateway/commands/diff.h"

#include <string.h>

#include "base/clock.h"
#include "gateway/recall/rehearsal.h"

enum { ARENA_MAX = 1 << 30, WINDOW_BYTES = 2048, SPANS = 64 };

/* -- where ------------------------------------------------------------------------------------------------ */

/* A byte inside a character is no place: back to its first. */
static size_t first_difference(lar_slice a, lar_slice b) {
    size_t n = 0, most = a.len < b.len ? a.len : b.len;
    while (n < most && a.ptr[n] == b.ptr[n]) n++;
    while (n > 0 && n < most && ((unsigned char)a.ptr[n] & 0xC0) == 0x80) n--;
    return n;
}

static void find_place(lar_diff_end *e, size_t offset) {
    lar_render_place place;
    e->node = e->segment = LAR_JSON_NONE;
    if (!lar_render_where(&e->rendering, offset, &place)) return;
    e->node = place.node;
    e->segment = place.piece->segment;
    lar_request_log_place(e->log, place.body_offset, &e->line, &e->column);
}

/* Fields that part caches, whatever the text is. */
static const char *apart(const lar_diff *d) {
    static const char *const members[] = {"model", "cache_salt", "user_id"};
    const lar_json *a = &d->a.json, *b = &d->b.json;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        lar_slice x = lar_json_raw(a, lar_json_get(a, 0, members[i])),
                  y = lar_json_raw(b, lar_json_get(b, 0, members[i]));
        if (!lar_slice_eq(x, y)) return members[i];
    }
    return NULL;
}

static lar_error simulate(lar_diff *d) {
    lar_cachesim_options o = {.provider = d->provider, .automatic_marker = true};
    lar_cachesim *sim = lar_cachesim_new(&o);
    lar_cachesim_usage u;
    if (!sim) return LAR_NO_MEMORY;
    lar_slice model = lar_json_inner(&d->b.json, d->b.view.model);
    uint32_t least = lar_provider_tokens_min(d->provider, model);
    lar_error e = lar_cachesim_request(sim, &d->a.prompt, least, 0, &u);
    if (!e) e = lar_cachesim_request(sim, &d->b.prompt, least, 0, &u);
    if (!e) d->hit = u.hit;
    lar_cachesim_free(sim);
    return e;
}

/* -- what ------------------------------------------------------------------------------------------------- */

/* A volatile span of this end that the difference lies in, or ends; only the text near it is looked at. */
static bool span_at(const lar_diff_end *e, size_t offset, lar_volatile_class *out) {
    lar_volatile_span spans[SPANS];
    lar_clock_budget budget = LAR_CLOCK_BUDGET;
    lar_slice text = lar_buf_slice(&e->text);
    size_t from = offset > WINDOW_BYTES ? offset - WINDOW_BYTES : 0;
    size_t to = text.len - offset > WINDOW_BYTES ? offset + WINDOW_BYTES : text.len;
    while (from > 0 && text.ptr[from - 1] != '\n') { /* a label begins its line */
        if (offset - from > 2 * WINDOW_BYTES) break;
        from--;
    }
    while (from < offset && ((unsigned char)text.ptr[from] & 0xC0) == 0x80) from++;
    while (to > offset && to < text.len && ((unsigned char)text.ptr[to] & 0xC0) == 0x80) to--;
    uint32_t n = lar_volatile_scan(lar_slice_of(text.ptr + from, to - from), spans, SPANS, &budget);
    for (uint32_t i = 0; i < n; i++) {
        if (from + spans[i].start > offset || offset > from + spans[i].end) continue;
        *out = spans[i].class_id;
        return true;
    }
    return false;
}

/* -- what would mend it ------------------------------------------------------------------------------- */

typedef struct sent {
    lar_buf body[2];
    lar_json json;
    lar_arena arena;
    lar_prompt prompt[2];
    uint64_t fired;
} sent;

/* Where a text may be added at the end of the last head segment: in front of a closing quote; 0 if there is none. */
static uint32_t end_of_head(const lar_diff_end *e) {
    const lar_json *j = &e->json;
    uint32_t head = 0;
    while (head < e->view.segment_count && e->view.segments[head].role == LAR_ROLE_SYSTEM) head++;
    uint32_t node = head ? e->view.segments[head - 1].content : LAR_JSON_NONE, last = LAR_JSON_NONE;
    for (uint32_t p = lar_json_is(j, node, LAR_JSON_ARRAY) ? lar_json_first(j, node) : LAR_JSON_NONE;
         p != LAR_JSON_NONE; p = lar_json_after(j, node, p))
        last = lar_json_get(j, p, "text");
    if (last != LAR_JSON_NONE) node = last;
    return lar_json_is(j, node, LAR_JSON_STRING) ? j->nodes[node].end - 1 : 0;
}

/* The same request of another prompt with the same labels: its head ends in a few more words. */
static lar_error vary(const lar_diff_end *e, int round, lar_buf *out) {
    static const char *const words[] = {" One.", " One two."};
    lar_slice body = e->q.body;
    uint32_t at = end_of_head(e);
    out->len = 0;
    lar_error error = lar_buf_add(out, body.ptr, at);
    if (!error && at) error = lar_buf_add(out, words[round], strlen(words[round]));
    return error ? error : lar_buf_add(out, body.ptr + at, body.len - at);
}

/* Evidence comes from traffic: two rounds of both, of prompts that only begin alike, show what varies at those labels.
 * Then both are sent as they are; these two are compared. */
static lar_error send_both(const lar_diff *d, uint64_t rules_off, sent *s) {
    enum { WARM = 4 };
    lar_rehearsal *r = lar_rehearsal_new(rules_off, 0);
    lar_diag ignored;
    lar_rehearsed out;
    lar_error e = r ? LAR_OK : LAR_NO_MEMORY;
    const lar_diff_end *ends[2] = {&d->a, &d->b};
    int64_t now = lar_clock_wall_ms();
    s->fired = 0;
    for (int i = 0; i < WARM + 2 && !e; i++) {
        const lar_log_request *q = &ends[i % 2]->q;
        lar_buf *body = &s->body[i % 2];
        lar_rehearsal_request request = {q->body, q->protocol, q->time_ms ? q->time_ms : now};
        if (i < WARM) {
            e = vary(ends[i % 2], i / 2, body);
            request.body = lar_buf_slice(body);
        }
        if (!e) e = lar_rehearsal_send(r, &request, &out, &ignored);
        if (e || i < WARM) continue;
        s->fired |= out.rules_fired;
        body->len = 0;
        e = lar_buf_add_slice(body, out.body);
    }
    lar_rehearsal_free(r);
    return e;
}

static lar_error render_sent(const lar_diff *d, sent *s, int which) {
    lar_request_view v;
    lar_rendering r;
    lar_diag ignored;
    lar_arena_reset(&s->arena, ARENA_MAX);
    lar_error e = lar_json_parse(&s->json, lar_buf_slice(&s->body[which]), NULL, &ignored);
    if (!e) e = lar_request_view_read(&v, &s->json, d->a.q.protocol, &s->arena, &ignored);
    if (!e) e = lar_render_request(&r, &v, d->provider->order, &s->arena);
    return e ? e : lar_prompt_set(&s->prompt[which], 0, &r);
}

/* Tokens that the sent ones share, once both were seen. */
static lar_error share_sent(const lar_diff *d, uint64_t rules_off, sent *s, uint32_t *shared) {
    lar_error e = send_both(d, rules_off, s);
    for (int i = 0; i < 2 && !e; i++) e = render_sent(d, s, i);
    if (!e) *shared = lar_prompt_common(&s->prompt[0], &s->prompt[1]);
    return e;
}

static lar_error find_mending(lar_diff *d, uint64_t off, sent *s) {
    lar_error e = share_sent(d, off, s, &d->mended_shared);
    if (e) return e;
    d->mended_tokens = s->prompt[1].tokens;
    uint64_t fired = s->fired;
    for (int r = 0; r < LAR_RULE_COUNT && !e && d->mended_shared > d->shared; r++) {
        uint32_t without;
        if (!(fired >> r & 1)) continue;
        e = share_sent(d, off | 1ull << r, s, &without);
        if (!e && without < d->mended_shared) d->mended_by |= 1ull << r;
    }
    return e;
}

/* With the rules as they are by default; if none of them helps, with all that edit. */
static lar_error try_rules(lar_diff *d, sent *s) {
    uint64_t off = lar_rules_off_default(), never = 0;
    for (int r = 0; r < LAR_RULE_COUNT; r++)
        if (lar_rule_mode_of((lar_rule)r) == LAR_RULE_MODE_LINT) never |= 1ull << r;
    lar_error e = find_mending(d, off, s);
    return e || d->mended_by || off == never ? e : find_mending(d, never, s);
}

static lar_error mend(lar_diff *d) {
    sent s = {0};
    for (int i = 0; i < 2; i++) {
        lar_buf_init(&s.body[i], UINT32_MAX);
        lar_prompt_init(&s.prompt[i]);
    }
    lar_json_init(&s.json);
    lar_arena_init(&s.arena, ARENA_MAX);
    lar_error e = try_rules(d, &s);
    for (int i = 0; i < 2; i++) {
        lar_buf_release(&s.body[i]);
        lar_prompt_release(&s.prompt[i]);
    }
    lar_json_release(&s.json);
    lar_arena_release(&s.arena);
    return e;
}

lar_error lar_diff_find(lar_diff *d) {
    lar_slice a = lar_buf_slice(&d->a.text), b = lar_buf_slice(&d->b.text);
    d->member = apart(d);
    d->offset = first_difference(a, b);
    d->shared = lar_prompt_common(&d->a.prompt, &d->b.prompt);
    bool ends = d->offset == a.len || d->offset == b.len;
    d->kind = d->member                              ? LAR_DIFF_APART
              : d->offset == a.len && a.len == b.len ? LAR_DIFF_NONE
              : ends                                 ? LAR_DIFF_GROWN
                                                     : LAR_DIFF_TEXT;
    find_place(&d->a, d->offset);
    find_place(&d->b, d->offset);
    if (d->kind == LAR_DIFF_APART) return LAR_OK; /* nothing is read, and nothing that larder sends would change it */
    lar_error e = simulate(d);
    if (e || d->kind != LAR_DIFF_TEXT) return e;
    lar_volatile_class other;
    d->classed = span_at(&d->a, d->offset, &d->class_id) && span_at(&d->b, d->offset, &other) && other == d->class_id;
    return mend(d);
}
