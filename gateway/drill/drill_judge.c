/* Expectation and verdict (header: drill_judge.h). Called by drill.c after each request. Pure; any thread.
 * Why by rule and not by what larder does: what is expected comes from failure.def and from the chain alone. A chain
 * that its own limits keep from answering fails, and drill_explain.c says which limit that is. */
#include "gateway/drill/drill_judge.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* -- what must be seen -------------------------------------------------------------------------------------------- */

static void must(lar_drill_expect *e, lar_drill_must what, uint32_t by) {
    e->must = what;
    e->by = by;
}

static bool has_status(lar_drill_fault f) {
    return f == LAR_DRILL_FAULT_STATUS || f == LAR_DRILL_FAULT_RETRY_MS || f == LAR_DRILL_FAULT_RETRY_SECONDS ||
           f == LAR_DRILL_FAULT_RETRY_DATE || f == LAR_DRILL_FAULT_TOO_LONG;
}

static bool names_time(lar_drill_fault f) {
    return f == LAR_DRILL_FAULT_RETRY_MS || f == LAR_DRILL_FAULT_RETRY_SECONDS || f == LAR_DRILL_FAULT_RETRY_DATE;
}

static bool reaches_nobody(lar_drill_fault f) {
    return f == LAR_DRILL_FAULT_REFUSE || f == LAR_DRILL_FAULT_NAME || f == LAR_DRILL_FAULT_TLS;
}

/* Nobody else answers: the client reads what failed. */
static void expect_told(lar_drill_expect *e, const lar_drill_scene *s, lar_drill_fault f, uint32_t by) {
    e->failure = s->scenario->failure;
    e->alone = true;
    must(e, has_status(f) ? LAR_DRILL_MUST_PASS_ON : LAR_DRILL_MUST_TELL, by);
    e->status = (uint16_t)(has_status(f) ? s->scenario->arg : 0);
    e->retry_after = names_time(f);
}

/* The first fails in this class. */
static void expect_of_class(lar_drill_expect *e, const lar_drill_scene *s, const lar_upstream_config *u,
                            lar_drill_fault f) {
    lar_failure class = s->scenario->failure;
    uint32_t next = lar_drill_next(s->line);
    if (class == LAR_FAILURE_NONE && s->line->protocol == LAR_PROTOCOL_RESPONSES)
        class = LAR_FAILURE_BROKEN_LATE; /* the one protocol in which nothing before the last event is an end */
    e->most[0] = reaches_nobody(f) ? 0 : s->line->targets[0].members;
    if (class == LAR_FAILURE_NONE) {
        e->no_last_event = true;
        must(e, LAR_DRILL_MUST_ANSWER, 0);
    } else if (class == LAR_FAILURE_BROKEN_LATE) {
        bool text = s->line->protocol == LAR_PROTOCOL_CHAT && s->scenario->arg != LAR_DRILL_AT_TOOL;
        bool goes_on = text && s->line->continue_with != LAR_DRILL_NONE;
        must(e, goes_on ? LAR_DRILL_MUST_CONTINUE : LAR_DRILL_MUST_BREAK, 0);
    } else if (class == LAR_FAILURE_CLIENT) {
        must(e, LAR_DRILL_MUST_PASS_ON, 0);
        e->status = (uint16_t)s->scenario->arg;
    } else if (next != LAR_DRILL_NONE) {
        must(e, LAR_DRILL_MUST_ANSWER, next);
        e->failure = class;
        e->most[next] = s->line->targets[next].members;
        if (f == LAR_DRILL_FAULT_RETRY_MS) { /* with replicas another one of them may be asked first */
            e->or_by = 0;
            e->most[0] *= u->retry_attempts;
        }
    } else if (f == LAR_DRILL_FAULT_RETRY_MS && u->retry_attempts > 1 && u->retry_wait_ms >= LAR_DRILL_RETRY_MS) {
        must(e, LAR_DRILL_MUST_ANSWER, 0);
        e->failure = class;
        e->most[0] *= u->retry_attempts;
    } else {
        expect_told(e, s, f, 0);
    }
}

/* Every upstream of kind http fails. */
static void expect_of_all(lar_drill_expect *e, const lar_drill_scene *s) {
    const lar_drill_line *l = s->line;
    e->failure = s->scenario->failure;
    for (uint32_t t = 0; t < l->target_count; t++) {
        if (l->targets[t].engine && !l->targets[t].cannot) {
            must(e, LAR_DRILL_MUST_ANSWER, t);
            return;
        }
        e->most[t] = reaches_nobody(s->scenario->fault) ? 0 : l->targets[t].members;
    }
    expect_told(e, s, s->scenario->fault, lar_drill_last(l));
    e->alone = false;
}

lar_drill_expect lar_drill_expect_of(const lar_drill_scene *s, const lar_drill_plan *p, uint32_t round) {
    lar_drill_expect e = {.or_by = LAR_DRILL_NONE};
    const lar_drill_line *l = s->line;
    lar_drill_fault f = lar_drill_fault_of(s, 0, round, 0);
    uint32_t next = lar_drill_next(l);
    if (s->scenario->where == LAR_DRILL_ALL) {
        expect_of_all(&e, s);
    } else if (s->scenario->where == LAR_DRILL_BEFORE) {
        must(&e, LAR_DRILL_MUST_ANSWER, s->target);
        e.failure = s->scenario->failure;
        e.most[s->target] = l->targets[s->target].members;
    } else if (s->scenario->course == LAR_DRILL_REST && round + 2 == s->rounds) { /* its breaker is open */
        must(&e, LAR_DRILL_MUST_ANSWER, next);
        e.failure = LAR_FAILURE_CROWDED;
        e.most[next] = l->targets[next].members;
    } else if (s->scenario->course == LAR_DRILL_REPLICA) {
        must(&e, LAR_DRILL_MUST_ANSWER, 0);
        e.failure = s->scenario->failure;
        e.most[0] = l->targets[0].members;
    } else if (f == LAR_DRILL_FAULT_NONE) {
        must(&e, LAR_DRILL_MUST_ANSWER, 0);
        e.most[0] = l->targets[0].members;
        if (s->scenario->course == LAR_DRILL_FLAP && next != LAR_DRILL_NONE) { /* its breaker may be open */
            e.or_by = next;
            e.most[next] = l->targets[next].members;
        }
    } else {
        expect_of_class(&e, s, &p->upstreams[l->targets[0].upstream], f);
        if (s->scenario->course == LAR_DRILL_FLAP) e.failure = LAR_FAILURE_NONE;
    }
    return e;
}

/* -- whether it was ----------------------------------------------------------------------------------------------- */

typedef struct judge {
    const lar_drill_scene *scene;
    const lar_drill_expect *expect;
    const lar_drill_saw *saw;
    const lar_drill_seen *seen;
    lar_drill_verdict v;
} judge;

static void fail(judge *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void fail(judge *j, const char *fmt, ...) {
    va_list args;
    if (!j->v.held) return; /* the first reason is the one to read */
    j->v.held = false;
    va_start(args, fmt);
    (void)vsnprintf(j->v.why, sizeof j->v.why, fmt, args);
    va_end(args);
}

static const lar_drill_target *target(const judge *j, uint32_t t) { return &j->scene->line->targets[t]; }

/* Whose answer it is. Larder names it where there is more than one target; a text of its own is nobody's. */
static uint32_t who(const judge *j) {
    const lar_drill_line *l = j->scene->line;
    uint32_t t = 0;
    while (t < l->target_count && strcmp(j->saw->by, l->targets[t].name) != 0) t++;
    if (t == l->target_count) t = !j->saw->by[0] ? 0 : LAR_DRILL_NONE;
    if (t == LAR_DRILL_NONE || l->targets[t].engine) return t;
    bool said = j->seen[t].requests && j->seen[t].status == j->saw->status;
    bool own = j->saw->status >= 400 && !lar_slice_eq(lar_buf_slice(&j->saw->body), lar_buf_slice(&j->seen[t].said));
    return said && !own ? t : LAR_DRILL_NONE;
}

static size_t common(lar_slice a, lar_slice b) {
    size_t n = 0;
    while (n < a.len && n < b.len && a.ptr[n] == b.ptr[n]) n++;
    return n;
}

/* Bytes that are another's or missing, and tokens that the client did not get. Larder's own error event behind the last
 * whole event of an upstream is neither. */
static void measure(judge *j) {
    const lar_drill_line *l = j->scene->line;
    size_t same = 0;
    j->v.wrong = -1;
    if (j->v.by != LAR_DRILL_NONE && !l->targets[j->v.by].engine) {
        const lar_drill_seen *seen = &j->seen[j->v.by];
        lar_slice said = lar_slice_of(seen->said.ptr, seen->whole), got = lar_buf_slice(&j->saw->body);
        if (j->expect->must == LAR_DRILL_MUST_CONTINUE) { /* behind its last whole piece another one goes on */
            said.len = seen->piece_ends[LAR_DRILL_PIECES_BEFORE_CUT - 1];
            if (got.len > said.len) got.len = said.len;
        }
        if (j->saw->error_at >= said.len && j->saw->error_at < got.len) got.len = j->saw->error_at;
        same = common(said, got);
        j->v.wrong = (int64_t)(said.len - same + got.len - same);
    }
    for (uint32_t t = 0; t < l->target_count; t++)
        for (uint32_t i = 0; i < j->seen[t].pieces; i++) j->v.lost += t != j->v.by || j->seen[t].piece_ends[i] > same;
}

static void check_requests(judge *j) {
    for (uint32_t t = 0; t < j->scene->line->target_count; t++) {
        if (target(j, t)->engine || j->seen[t].requests <= j->expect->most[t]) continue;
        fail(j, "%.95s was asked %u times, at most %u may be", target(j, t)->name, (unsigned)j->seen[t].requests,
             (unsigned)j->expect->most[t]);
    }
}

static void describe(const judge *j, char *out, size_t cap) {
    const lar_drill_saw *saw = j->saw;
    const char *name = j->v.by == LAR_DRILL_NONE ? "larder itself" : target(j, j->v.by)->name;
    if (saw->trouble) (void)snprintf(out, cap, "%s", saw->trouble);
    else
        (void)snprintf(out, cap, "%.95s answered %u%s%s%s%s", name, (unsigned)saw->status, *saw->message ? " (" : "",
                       saw->message, *saw->message ? ")" : "",
                       saw->status == 200 && saw->error ? ", a stream that ends in an error" : "");
}

static void check_answer(judge *j) {
    const lar_drill_expect *e = j->expect;
    const lar_drill_saw *saw = j->saw;
    bool right = j->v.by != LAR_DRILL_NONE && (j->v.by == e->by || j->v.by == e->or_by);
    char got[LAR_DRILL_WHY_BYTES - 120];
    describe(j, got, sizeof got);
    if (!right || saw->status != 200 || saw->error) {
        fail(j, "%.95s must answer; %s", target(j, e->by)->name, got);
        return;
    }
    if (!saw->whole) fail(j, "the answer of %.95s is not whole", target(j, j->v.by)->name);
    if (saw->streamed != j->scene->streamed)
        fail(j, "%s was asked for", j->scene->streamed ? "a stream" : "a whole answer");
    if (j->scene->streamed && !e->no_last_event && !saw->last_event)
        fail(j, "the stream of %.95s has no end", target(j, j->v.by)->name);
    if (!target(j, j->v.by)->engine && !j->seen[j->v.by].named_model)
        fail(j, "%.95s was not asked for the model that the chain names", target(j, j->v.by)->name);
}

static void check_told(judge *j) {
    const lar_drill_saw *saw = j->saw;
    bool by_status = saw->status >= 400 && saw->error;
    bool in_stream = saw->status == 200 && saw->streamed && saw->error && !saw->last_event;
    if (!by_status && !in_stream)
        fail(j, "the client must be told of the failure; it read status %u", (unsigned)saw->status);
}

static void check_broken(judge *j) {
    const lar_drill_saw *saw = j->saw;
    if (saw->status != 200 || j->v.by != j->expect->by)
        fail(j, "the stream must be %.95s's", target(j, j->expect->by)->name);
    if (!saw->error) fail(j, "the broken stream has no error event");
    if (saw->last_event) fail(j, "the broken stream has a clean end");
}

/* The seam is marked in the stream itself (docs/failures.md). */
static void check_continued(judge *j) {
    static const char seam[] = "\"continued_by\":";
    const lar_drill_saw *saw = j->saw;
    bool marked = saw->body.len && memmem(saw->body.ptr, saw->body.len, seam, sizeof seam - 1);
    if (saw->status != 200 || saw->error || !saw->last_event || !saw->whole || !marked)
        fail(j, "a model of this process must go on with the stream of %.95s; %s", target(j, j->expect->by)->name,
             saw->error         ? *saw->message ? saw->message : "it ends in an error"
             : !saw->last_event ? "it has no end"
                                : "it ends without another's words");
    else if (j->v.held) (void)snprintf(j->v.why, sizeof j->v.why, "gone on with by a model of this process");
}

static void check_passed_on(judge *j) {
    if (j->saw->status != j->expect->status || j->v.by != j->expect->by)
        fail(j, "the %u of %.95s must be passed on; the client read %u", (unsigned)j->expect->status,
             target(j, j->expect->by)->name, (unsigned)j->saw->status);
    if (j->expect->retry_after && !j->saw->retry_after) fail(j, "the time to come back was not passed on");
}

static void check_class(judge *j) {
    if (j->expect->failure == LAR_FAILURE_NONE || (j->saw->status == 200 && j->expect->must == LAR_DRILL_MUST_TELL))
        return;
    const char *name = lar_failure_info_of(j->expect->failure)->name;
    if (strcmp(j->saw->failure, name) != 0)
        fail(j, "the failure is of class %s; larder says '%s'", name, j->saw->failure);
}

lar_drill_verdict lar_drill_judge(const lar_drill_scene *s, const lar_drill_expect *e, const lar_drill_saw *saw,
                                  const lar_drill_seen *seen) {
    judge j = {.scene = s, .expect = e, .saw = saw, .seen = seen, .v = {.held = true, .by = LAR_DRILL_NONE}};
    if (!saw->trouble) j.v.by = who(&j);
    measure(&j);
    if (saw->trouble) fail(&j, "%s", saw->trouble);
    switch (e->must) {
    case LAR_DRILL_MUST_ANSWER: check_answer(&j); break;
    case LAR_DRILL_MUST_PASS_ON: check_passed_on(&j); break;
    case LAR_DRILL_MUST_TELL: check_told(&j); break;
    case LAR_DRILL_MUST_BREAK: check_broken(&j); break;
    case LAR_DRILL_MUST_CONTINUE: check_continued(&j); break;
    }
    if (j.v.wrong > 0) fail(&j, "%lld bytes are not those of %.95s", (long long)j.v.wrong, target(&j, j.v.by)->name);
    check_requests(&j);
    check_class(&j);
    if (j.v.held && e->alone && saw->status == 200)
        (void)snprintf(j.v.why, sizeof j.v.why, "no fallback: the client sees a stream that ends in an error");
    else if (j.v.held && e->alone)
        (void)snprintf(j.v.why, sizeof j.v.why, "no fallback: the client sees %u", (unsigned)saw->status);
    return j.v;
}
