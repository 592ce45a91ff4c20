/* larder tail: the last records, one line each, and with -f those that come.
 * Flow: main.c calls; query.c opens; a scan each 200 ms follows. One thread; blocks on stdout and on its timer.
 * Why signals through a descriptor: the end is an event of the same poll, and no global is needed.
 * Invariants: 1. SIGINT, SIGTERM and a reader that goes away end it with 0. 2. Names are made harmless.
 * Memory: a ring of the asked number of lines. */
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "gateway/commands/fields.h"
#include "gateway/commands/present.h"
#include "gateway/commands/query.h"

enum { POLL_MS = 200, LINES_MAX = 1000000, LINE_BYTES_MAX = 32768 };

static const char usage[] =
    "usage: larder tail --store DIR [options]\n"
    "Prints the last journal records, oldest first: time, route > upstream, model, status, ending, turn,\n"
    "tokens, hit rate, times, the rules that edited, seen: those that only found something, the hit tokens that were\n"
    "predicted, and the request's id for larder explain. Where an attempt failed: how many there were, the class of the\n"
    "first failure, and the place of the target that answered in its chain.\n"
    "  -n, --lines N      how many (10)\n"
    "  -f, --follow       go on with those that come\n"
    "  --json             one JSON object a line, as larder export has it\n";

typedef struct tail {
    const lar_query *q;
    lar_store *store;
    lar_buf line;
    uint64_t last_seq; /* of the newest record looked at */
    bool failed;       /* stdout takes no more */
    uint64_t *ring;    /* numbers of the last matching records */
    uint64_t ring_size, found;
} tail;

static void number(lar_buf *b, const char *label, int64_t n) {
    if (n == LAR_TOKENS_UNKNOWN) (void)!lar_buf_printf(b, "  %s -", label);
    else (void)!lar_buf_printf(b, "  %s %" PRId64, label, n);
}

static void seconds(lar_buf *b, const char *label, int64_t us) {
    char text[LAR_DURATION_BYTES];
    lar_present_duration(us, text);
    (void)!lar_buf_printf(b, "  %s %s", label, text);
}

static void name(lar_buf *b, const char *between, const char text[LAR_JREC_NAME_BYTES]) {
    char shown[LAR_SHOWN_BYTES];
    lar_present_name(lar_slice_of(text, strnlen(text, LAR_JREC_NAME_BYTES)), shown);
    (void)!lar_buf_printf(b, "%s%s", between, shown);
}

static void short_name(lar_buf *b, const char text[LAR_JREC_SHORT_BYTES]) {
    char shown[LAR_SHOWN_BYTES];
    lar_present_name(lar_slice_of(text, strnlen(text, LAR_JREC_SHORT_BYTES)), shown);
    (void)!lar_buf_printf(b, "%s", shown);
}

/* "rules LR003  seen:LR001": what edited, and what only found something. */
static void rules(lar_buf *b, const lar_journal_record *r) {
    uint64_t only_seen = r->rules_seen & ~r->rules_fired;
    (void)!lar_buf_printf(b, "  rules ");
    if (r->rules_fired) (void)!lar_fields_rules(b, r->rules_fired, "+");
    else (void)!lar_buf_printf(b, "-");
    if (!only_seen) return;
    (void)!lar_buf_printf(b, "  seen:");
    (void)!lar_fields_rules(b, only_seen, "+");
}

/* The line's buffer is larger than the longest line: additions cannot fail but for memory, and then it is cut. */
static void people_line(lar_buf *b, const lar_journal_record *r) {
    char time[LAR_TIME_BYTES];
    const lar_tokens *t = &r->tokens;
    lar_present_time(r->time_ms, time);
    (void)!lar_buf_printf(b, "%s", time);
    name(b, "  ", r->route);
    name(b, " > ", r->upstream);
    name(b, "  ", r->model);
    if (r->status) (void)!lar_buf_printf(b, "  %u", r->status);
    else (void)!lar_buf_printf(b, "  -");
    (void)!lar_buf_printf(b, "  %s", lar_ending_name((lar_ending)r->ending));
    if (r->error) (void)!lar_buf_printf(b, " (%s)", lar_error_name((lar_error)r->error));
    (void)!lar_buf_printf(b, "  turn %" PRIu32, r->turn);
    number(b, "prompt", t->prompt);
    number(b, "hit", t->hit);
    number(b, "miss", t->miss);
    double sum = t->hit == LAR_TOKENS_UNKNOWN || t->miss == LAR_TOKENS_UNKNOWN ? 0 : (double)t->hit + (double)t->miss;
    if (sum > 0) (void)!lar_buf_printf(b, "  %.1f%%", 100 * (double)t->hit / sum);
    else (void)!lar_buf_printf(b, "  -");
    seconds(b, "ttft", r->ttft_us);
    seconds(b, "total", r->total_us);
    if (r->flags & LAR_JREC_ANSWER_KEPT) (void)!lar_buf_printf(b, "  kept answer");
    if (r->attempts > 1) (void)!lar_buf_printf(b, "  attempts %u", r->attempts);
    if (r->failure[0]) (void)!lar_buf_printf(b, "  failure ");
    if (r->failure[0]) short_name(b, r->failure);
    if (r->target) (void)!lar_buf_printf(b, "  target %u", r->target);
    if (r->continued[0]) (void)!lar_buf_printf(b, "  continued by ");
    if (r->continued[0]) short_name(b, r->continued);
    rules(b, r);
    if (r->prompt_bytes) number(b, "predicted", r->predicted_hit);
    if (r->request_id) (void)!lar_buf_printf(b, "  lr-%016" PRIx64, r->request_id);
}

static bool print_record(void *ctx, uint64_t seq, const lar_journal_record *r) {
    tail *t = ctx;
    t->line.len = 0;
    t->last_seq = seq;
    if (!t->q->json) people_line(&t->line, r);
    else if (lar_fields_json(&t->line, seq, r)) return true;
    if (lar_buf_add(&t->line, "\n", 1)) return true;
    if (fwrite(t->line.ptr, 1, t->line.len, stdout) != t->line.len) t->failed = true;
    return !t->failed;
}

static bool remember(void *ctx, uint64_t seq, const lar_journal_record *r) {
    tail *t = ctx;
    (void)r;
    t->ring[t->found++ % t->ring_size] = seq;
    return true;
}

/* The number behind which the last N matching records lie. Windows that grow, from the end: without a filter the
 * first one is enough, and a rare match does not read the journal more than twice. */
static lar_error find_start(tail *t, uint64_t newest, uint64_t *after) {
    *after = newest;
    if (!t->q->lines || !newest) return LAR_OK;
    for (uint64_t window = t->ring_size;; window *= 4) {
        t->found = 0;
        *after = newest > window ? newest - window : 0;
        lar_error e = lar_store_scan(t->store, &t->q->filter, *after, remember, t, NULL);
        if (e) return e;
        if (t->found >= t->ring_size) {
            *after = t->ring[t->found % t->ring_size] - 1;
            return LAR_OK;
        }
        if (!*after) return LAR_OK;
    }
}

static lar_error print_from(tail *t, uint64_t after) {
    uint64_t newest = lar_store_last_seq(t->store);
    t->last_seq = after;
    lar_error e = lar_store_scan(t->store, &t->q->filter, after, print_record, t, NULL);
    if (!t->failed && newest > t->last_seq) t->last_seq = newest; /* what did not match need not be read again */
    if (fflush(stdout) != 0) t->failed = true;
    return e;
}

/* True when it is time to end. */
static bool wait_for_more(int signals) {
    struct pollfd p[2] = {{.fd = signals, .events = POLLIN}, {.fd = STDOUT_FILENO, .events = 0}};
    int n = poll(p, 2, POLL_MS);
    return n > 0 && (p[0].revents || p[1].revents & (POLLERR | POLLHUP | POLLNVAL));
}

static lar_error follow(tail *t) {
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    lar_error e = signals < 0 ? LAR_IO : LAR_OK;
    while (!e && !t->failed && !wait_for_more(signals)) {
        e = print_from(t, t->last_seq);
        if (e == LAR_BUSY) e = LAR_OK; /* every reader's slot is taken just now */
    }
    if (signals >= 0) close(signals);
    return e;
}

int lar_command_tail(int argc, char **argv) {
    lar_query q = {.now_ms = lar_clock_wall_ms()};
    tail t = {.q = &q};
    int rc = lar_query_parse(&q, usage, LAR_QUERY_JSON | LAR_QUERY_FOLLOW, argc, argv);
    if (rc >= 0) return rc;
    if (q.lines > LINES_MAX) q.lines = LINES_MAX;
    rc = lar_query_open(&q, &t.store);
    if (rc) return rc;
    (void)signal(SIGPIPE, SIG_IGN);
    lar_buf_init(&t.line, LINE_BYTES_MAX);
    t.ring_size = q.lines ? q.lines : 1;
    t.ring = calloc(t.ring_size, sizeof *t.ring);
    uint64_t after = 0;
    lar_error e = t.ring ? find_start(&t, lar_store_last_seq(t.store), &after) : LAR_NO_MEMORY;
    if (!e) e = print_from(&t, after);
    if (!e && q.follow && !t.failed) e = follow(&t);
    if (e) (void)fprintf(stderr, "larder: %s\n", lar_error_text(e));
    free(t.ring);
    lar_buf_release(&t.line);
    lar_store_close(t.store);
    return e ? 1 : 0;
}
