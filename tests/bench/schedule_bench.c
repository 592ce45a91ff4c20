/* The scheduler on a model: how much more many answers at once are than one, and what a long prompt costs a stream.
 *   schedule_bench MODEL [--threads N] [--tokens N] [--rounds N] [--long N] [--gap MS] [--sequences N]
 *   [--pages MIB]    CSV to stdout
 * together: 1, 2, 4, ... sequences (to 8) that decode at once; tokens a second of all while all decode, beside those
 * of the first row. `experts` is how many of a layer's experts a step touches if routing is even: E (1 - (1 - k/E)^n);
 * so much more of their weights is read, and a mixture of experts gains less than a dense model.
 * gap: one stream decodes, a prompt of --long tokens comes: the stream's longest and mean time between tokens before
 * and meanwhile, and the prompt's tokens a second. Random ids; not a test, and nothing here fails by time. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/schedule/scheduler.h"

enum { SEQUENCES_MOST = 8, TOKENS_MOST = 1 << 20, SHORT_PROMPT = 16 };

typedef struct options {
    const char *model;
    uint32_t threads, tokens, rounds, long_prompt, gap_ms, sequences, pages_mib;
} options;

typedef struct stream {
    struct bench *bench;
    uint64_t *at_ns;                /* of each token, (most) */
    uint32_t most, count, together; /* tokens to tell, told, told since all have begun */
    uint64_t begun_ns;
    bool ended;
    lar_job_ticket ticket;
} stream;

typedef struct bench {
    options o;
    lar_engine *engine;
    lar_scheduler *scheduler;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    stream streams[SEQUENCES_MOST + 1];
    uint32_t expected, begun; /* together: how many are to decode at once, and how many have begun */
    uint64_t all_ns;          /* when the last did; 0: not yet */
    uint64_t seed;
} bench;

static void must(lar_error e, const lar_diag *d) {
    if (!e) return;
    (void)fprintf(stderr, "schedule_bench: %s\n", *d->text ? d->text : lar_error_text(e));
    exit(1);
}

/* -- callbacks --------------------------------------------------------------------------------------------------- */

static void on_begin(void *user, const lar_job_begin *b) {
    stream *s = user;
    (void)b;
    (void)pthread_mutex_lock(&s->bench->lock);
    s->begun_ns = lar_clock_mono_ns();
    if (++s->bench->begun == s->bench->expected) s->bench->all_ns = s->begun_ns;
    (void)pthread_cond_broadcast(&s->bench->changed);
    (void)pthread_mutex_unlock(&s->bench->lock);
}

static bool on_token(void *user, const lar_job_token *t) {
    stream *s = user;
    (void)t;
    (void)pthread_mutex_lock(&s->bench->lock);
    s->at_ns[s->count++] = lar_clock_mono_ns();
    if (s->bench->all_ns) s->together++;
    bool more = s->count < s->most && (!s->bench->expected || s->together < s->bench->o.tokens);
    (void)pthread_cond_broadcast(&s->bench->changed);
    (void)pthread_mutex_unlock(&s->bench->lock);
    return more;
}

static void on_sample_end(void *user, uint32_t sample, lar_job_reason why) { (void)user, (void)sample, (void)why; }

static void on_end(void *user, const lar_job_end *e) {
    stream *s = user;
    if (e->error && e->error != LAR_CLIENT_GONE)
        (void)fprintf(stderr, "schedule_bench: %s: %s\n", lar_error_name(e->error), e->detail);
    (void)pthread_mutex_lock(&s->bench->lock);
    s->ended = true;
    (void)pthread_cond_broadcast(&s->bench->changed);
    (void)pthread_mutex_unlock(&s->bench->lock);
}

/* -- streams ----------------------------------------------------------------------------------------------------- */

/* `tokens` of answer; 0: until it is cancelled, or the pages are full. */
static void start(bench *b, stream *s, uint32_t prompt, uint32_t tokens) {
    uint32_t vocab = lar_engine_info_of(b->engine).vocab, *ids = calloc(prompt, sizeof *ids);
    free(s->at_ns);
    *s = (stream){.bench = b, .most = tokens ? tokens : TOKENS_MOST};
    s->at_ns = calloc(s->most, sizeof *s->at_ns);
    if (!ids || !s->at_ns) must(LAR_NO_MEMORY, &(lar_diag){0});
    for (uint32_t i = 0; i < prompt; i++) {
        b->seed = b->seed * 6364136223846793005u + 1442695040888963407u;
        ids[i] = (uint32_t)(b->seed >> 33) % vocab;
    }
    lar_job_request r = {
        .ids = ids, .count = prompt, .answer_max = tokens, .samples = 1, .sampling = LAR_SAMPLING_DEFAULT};
    lar_job_calls calls = {s, on_begin, on_token, on_sample_end, on_end};
    lar_diag d = {0};
    r.sampling.seed = b->seed;
    must(lar_scheduler_submit(b->scheduler, &r, &calls, &s->ticket, &d), &d);
    free(ids);
}

static void await_tokens(bench *b, stream *s, uint32_t tokens) {
    (void)pthread_mutex_lock(&b->lock);
    while (s->count < tokens && !s->ended) (void)pthread_cond_wait(&b->changed, &b->lock);
    (void)pthread_mutex_unlock(&b->lock);
}

static void await_end(bench *b, stream *s) {
    (void)pthread_mutex_lock(&b->lock);
    while (!s->ended) (void)pthread_cond_wait(&b->changed, &b->lock);
    (void)pthread_mutex_unlock(&b->lock);
}

/* -- what is measured -------------------------------------------------------------------------------------------- */

/* Tokens a second of all streams, from when the last has begun to when one has told enough tokens since. */
static double together(bench *b, uint32_t n) {
    uint64_t to = UINT64_MAX, tokens = 0;
    b->expected = n, b->begun = 0, b->all_ns = 0;
    for (uint32_t i = 0; i < n; i++) start(b, &b->streams[i], SHORT_PROMPT, 0);
    for (uint32_t i = 0; i < n; i++) await_end(b, &b->streams[i]);
    for (uint32_t i = 0; i < n; i++) {
        const stream *s = &b->streams[i];
        if (s->at_ns[s->count - 1] < to) to = s->at_ns[s->count - 1];
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < b->streams[i].count; k++)
            tokens += b->streams[i].at_ns[k] > b->all_ns && b->streams[i].at_ns[k] <= to;
    return to > b->all_ns ? (double)tokens * 1e9 / (double)(to - b->all_ns) : 0;
}

static double experts_touched(const bench *b, uint32_t n) {
    lar_engine_info info = lar_engine_info_of(b->engine);
    double untouched = 1;
    if (!info.experts) return 0;
    for (uint32_t i = 0; i < n; i++) untouched *= 1 - (double)info.experts_used / info.experts;
    return info.experts * (1 - untouched);
}

typedef struct gaps {
    double longest_ms, mean_ms;
} gaps;

static gaps gaps_between(const stream *s, uint64_t from, uint64_t to) {
    gaps g = {0};
    uint32_t n = 0;
    for (uint32_t k = 1; k < s->count; k++) {
        if (s->at_ns[k] <= from || s->at_ns[k - 1] >= to) continue;
        double ms = (double)(s->at_ns[k] - s->at_ns[k - 1]) / 1e6;
        if (ms > g.longest_ms) g.longest_ms = ms;
        g.mean_ms += ms;
        n++;
    }
    if (n) g.mean_ms /= n;
    return g;
}

static void long_prompt(bench *b, uint32_t round) {
    stream *s = &b->streams[0], *l = &b->streams[SEQUENCES_MOST];
    b->expected = 0, b->all_ns = 0;
    start(b, s, SHORT_PROMPT, 0);
    await_tokens(b, s, b->o.tokens);
    uint64_t from = lar_clock_mono_ns();
    start(b, l, b->o.long_prompt, 2);
    await_end(b, l);
    lar_scheduler_cancel(b->scheduler, s->ticket.id);
    await_end(b, s);
    gaps before = gaps_between(s, s->at_ns[0], from), meanwhile = gaps_between(s, from, l->begun_ns);
    (void)printf("gap,%u,%u,%u,%.1f,%.1f,%.1f,%.1f,%.1f\n", round, b->o.gap_ms, b->o.long_prompt, before.mean_ms,
                 before.longest_ms, meanwhile.mean_ms, meanwhile.longest_ms,
                 b->o.long_prompt * 1e9 / (double)(l->begun_ns - from));
    (void)fflush(stdout);
}

static void measure(bench *b) {
    double one = 0;
    (void)printf("together,round,sequences,tokens_s,x_one,experts\n");
    for (uint32_t round = 0; round < b->o.rounds; round++)
        for (uint32_t n = 1; n <= b->o.sequences; n *= 2) {
            double rate = together(b, n);
            if (n == 1) one = rate;
            (void)printf("together,%u,%u,%.2f,%.2f,%.1f\n", round, n, rate, one > 0 ? rate / one : 0,
                         experts_touched(b, n));
            (void)fflush(stdout);
        }
    if (!b->o.long_prompt) return;
    (void)printf("gap,round,gap_ms,prompt,mean_before_ms,longest_before_ms,mean_ms,longest_ms,prompt_tokens_s\n");
    for (uint32_t round = 0; round < b->o.rounds; round++) long_prompt(b, round);
}

/* -- the command line -------------------------------------------------------------------------------------------- */

static const char usage[] = "usage: schedule_bench MODEL [--threads N] [--tokens N] [--rounds N] [--long N] [--gap MS] "
                            "[--sequences N] [--pages MIB]\n";

static bool read_option(options *o, const char *name, const char *text) {
    const struct {
        const char *name;
        uint32_t *at;
    } all[] = {{"--threads", &o->threads},  {"--tokens", &o->tokens}, {"--rounds", &o->rounds},
               {"--long", &o->long_prompt}, {"--gap", &o->gap_ms},    {"--sequences", &o->sequences},
               {"--pages", &o->pages_mib}};
    for (size_t i = 0; text && i < sizeof all / sizeof *all; i++) {
        char *end;
        if (strcmp(name, all[i].name)) continue;
        unsigned long value = strtoul(text, &end, 10);
        *all[i].at = (uint32_t)value;
        return *text && !*end && value <= TOKENS_MOST;
    }
    return false;
}

static void open_all(bench *b) {
    lar_diag d = {0};
    lar_engine_options e = {.path = b->o.model,
                            .threads = b->o.threads,
                            .activations = LAR_ACTIVATIONS_BY_TYPE,
                            .page_bytes = (uint64_t)b->o.pages_mib << 20};
    must(lar_engine_open(&e, &b->engine, &d), &d);
    lar_scheduler_options s = {.engine = b->engine,
                               .sequences_max = SEQUENCES_MOST,
                               .queue_max = SEQUENCES_MOST + 1,
                               .gap_ms = b->o.gap_ms};
    must(lar_scheduler_open(&s, &b->scheduler, &d), &d);
}

int main(int argc, char **argv) {
    static bench b = {.o = {.tokens = 32, .rounds = 3, .gap_ms = 200, .sequences = SEQUENCES_MOST, .pages_mib = 1024},
                      .lock = PTHREAD_MUTEX_INITIALIZER,
                      .changed = PTHREAD_COND_INITIALIZER,
                      .seed = 1};
    if (argc < 2 || *argv[1] == '-') return (void)fputs(usage, stderr), 2;
    b.o.model = argv[1];
    for (int i = 2; i < argc; i += 2)
        if (!read_option(&b.o, argv[i], argv[i + 1])) return (void)fputs(usage, stderr), 2;
    if (!b.o.tokens || !b.o.gap_ms || !b.o.pages_mib || !b.o.sequences || b.o.sequences > SEQUENCES_MOST)
        return (void)fputs(usage, stderr), 2;
    open_all(&b);
    measure(&b);
    lar_scheduler_close(b.scheduler);
    lar_engine_close(b.engine);
    for (uint32_t i = 0; i <= SEQUENCES_MOST; i++) free(b.streams[i].at_ns);
    return 0;
}
