/* A served model without a model, for tests and fuzzers: see serving_box.h. lar_scheduler_submit and _cancel are
 * defined here, so that no scheduler is linked. One thread. */
#include "tests/unit_serving/serving_box.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"

const char box_template[] =
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}"
    "{% if tools and loop.first %}[tools {{ tools | tojson }}]{% endif %}"
    "{% elif m.role == 'user' %}{% if tools and loop.first %}[tools {{ tools | tojson }}]{% endif %}<U>{{ m.content }}"
    "{% elif m.role == 'assistant' %}<A>{% if m.content is not none %}{{ m.content }}{% endif %}"
    "{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments }}]{% endfor %}{{ eos_token }}"
    "{% else %}[result {{ m.content }}]{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<A>{% if enable_thinking %}<think>{% endif %}{% endif %}";

static const char *const marks[] = {
    "<s>",
    "</s>",
    "<U>",
    "<A>",
    "<think>",
    "</think>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
};
static const char *const words[] = {"ABC",   "DEF",    "HI", "Paris",  " gamma!", "beta", " gamma",    "beta gamma",
                                    "Hello", " world", "ab", "\nUser", "</thi",   "nk>",  "X</think>Y"};

_Static_assert(BOX_WORDS - BOX_BOS == sizeof marks / sizeof *marks, "an id for each");
_Static_assert(BOX_WORDS + sizeof words / sizeof *words <= BOX_VOCAB, "ids for all words");

/* -- the tokenizer ------------------------------------------------------------------------------------------------- */

/* The byte-level alphabet: printable bytes are themselves, the others follow from U+0100 on. */
static unsigned letter_of(unsigned byte) {
    unsigned next = 256;
    for (unsigned b = 0; b <= byte; b++) {
        bool self = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        if (b == byte) return self ? b : next;
        next += !self;
    }
    return 0;
}

static void add_token(lar_buf *json, uint32_t id, const char *text, bool special) {
    LAR_ASSERT(!lar_buf_printf(json, "%s{\"id\":%u,\"content\":\"", id > BOX_BOS ? "," : "", id));
    LAR_ASSERT(!lar_json_escape(json, lar_slice_cstr(text)));
    LAR_ASSERT(!lar_buf_printf(json,
                               "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,"
                               "\"special\":%s}",
                               special ? "true" : "false"));
}

static lar_tokenizer *tokenizer_of(const box_options *o) {
    lar_buf json, config;
    lar_tokenizer *t;
    lar_diag d = {.text = ""};
    lar_buf_init(&json, 1 << 20);
    lar_buf_init(&config, 1 << 10);
    LAR_ASSERT(!lar_buf_printf(&json, "{\"added_tokens\":["));
    for (uint32_t id = BOX_BOS; id < BOX_WORDS; id++) {
        bool thinks = id == BOX_THINK || id == BOX_THINK_END;
        add_token(&json, id, thinks && o->no_thinking ? (id == BOX_THINK ? "<idle>" : "</idle>") : marks[id - BOX_BOS],
                  true);
    }
    for (uint32_t i = 0; i < sizeof words / sizeof *words; i++) add_token(&json, BOX_WORDS + i, words[i], false);
    LAR_ASSERT(!lar_buf_printf(&json, "],\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                                      "\"use_regex\":false},\"decoder\":{\"type\":\"ByteLevel\"},"
                                      "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{"));
    for (unsigned b = 0; b < 256; b++)
        LAR_ASSERT(!lar_buf_printf(&json, "%s\"\\u%04x\":%u", b ? "," : "", letter_of(b), b));
    LAR_ASSERT(!lar_buf_printf(&json, "}}}"));
    LAR_ASSERT(!lar_buf_printf(&config, "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"add_bos_token\":%s}",
                               o->no_bos ? "false" : "true"));
    lar_error e = lar_tokenizer_from_json(lar_buf_slice(&json), lar_buf_slice(&config), &t, &d);
    if (e) (void)fprintf(stderr, "%s\n", d.text);
    LAR_ASSERT(!e);
    lar_buf_release(&json);
    lar_buf_release(&config);
    return t;
}

lar_serving *box_serving(const box_options *o) {
    lar_engine_text text = {.tokenizer = tokenizer_of(o), .calls = o->calls};
    lar_diag d = {.text = ""};
    lar_serving *s;
    const char *chat = o->chat ? o->chat : box_template;
    text.generation.sampling = LAR_SAMPLING_DEFAULT;
    lar_error e = *chat ? lar_template_parse(lar_slice_cstr(chat), &text.chat, &d) : LAR_OK;
    const lar_serving_options options = {.text = &text,
                                         .model = "tiny",
                                         .fingerprint = "fp_1",
                                         .any_model = o->any_model,
                                         .vocab = BOX_VOCAB,
                                         .context = o->context ? o->context : 1000,
                                         .call_tokens_max = o->call_tokens_max,
                                         .samples_max = o->samples_max,
                                         .prompts_max = o->prompts_max,
                                         .created = 1600000000};
    if (!e) e = lar_serving_new(&options, &s, &d);
    if (e) (void)fprintf(stderr, "%s\n", d.text);
    LAR_ASSERT(!e);
    return s;
}

/* -- the scheduler ------------------------------------------------------------------------------------------------- */

box_scheduler box_jobs;

lar_error lar_scheduler_submit(lar_scheduler *s, const lar_job_request *r, const lar_job_calls *calls,
                               lar_job_ticket *out, lar_diag *d) {
    LAR_ASSERT((void *)s == (void *)&box_jobs && box_jobs.count < BOX_JOBS_MAX);
    *out = (lar_job_ticket){.retry_ms = box_jobs.retry_ms};
    if (box_jobs.refuses && box_jobs.count >= box_jobs.refuses_at)
        return lar_fail(box_jobs.refuses, d, "%s", box_jobs.why);
    box_job *job = &box_jobs.jobs[box_jobs.count++];
    *job = (box_job){.request = *r, .calls = *calls};
    job->ids = malloc(r->count * sizeof *job->ids);
    LAR_ASSERT(job->ids && r->count && r->end_count <= 32 && r->samples && r->samples <= LAR_JOB_SAMPLES_MAX);
    memcpy(job->ids, r->ids, r->count * sizeof *job->ids);
    if (r->end_count) memcpy(job->ends, r->ends, r->end_count * sizeof *job->ends);
    job->request.ids = job->ids;
    job->request.ends = job->ends;
    for (uint32_t i = 0; i < r->mark_count; i++) LAR_ASSERT(r->marks[i] && r->marks[i] <= r->count);
    *out = (lar_job_ticket){.id = box_jobs.count};
    return LAR_OK;
}

void lar_scheduler_cancel(lar_scheduler *s, lar_job_id job) {
    LAR_ASSERT((void *)s == (void *)&box_jobs && job && job <= box_jobs.count);
    box_jobs.jobs[job - 1].cancelled = true;
}

/* -- the client ---------------------------------------------------------------------------------------------------- */

static void client_head(void *user, const lar_answer_head *h) {
    box_client *c = user;
    LAR_ASSERT(!c->heads && !c->ends);
    c->heads++;
    c->head = *h;
}

static void client_bytes(void *user, lar_slice bytes) {
    box_client *c = user;
    LAR_ASSERT(c->heads == 1 && !c->ends && bytes.len);
    c->events++;
    LAR_ASSERT(!lar_buf_add_slice(&c->body, bytes));
}

static void client_end(void *user, const lar_answer_end *e) {
    box_client *c = user;
    LAR_ASSERT(!c->ends);
    c->ends++;
    c->end = *e;
    if (c->heads && c->head.has_length) LAR_ASSERT(c->head.length == c->body.len);
}

void box_prepare(const lar_serving *s, const lar_serving_ask *ask, box_client *out) {
    const lar_answer_sink sink = {.user = out, .head = client_head, .bytes = client_bytes, .end = client_end};
    *out = (box_client){.heads = 0};
    lar_buf_init(&out->body, 64 << 20);
    LAR_ASSERT(!lar_answer_new(s, ask, &sink, &out->answer));
}

void box_ask(const lar_serving *s, lar_serving_endpoint endpoint, const char *body, box_client *out) {
    const lar_serving_ask ask = {.endpoint = endpoint,
                                 .body = lar_slice_cstr(body),
                                 .tenant = 5,
                                 .random = 7,
                                 .now = 1700000000,
                                 .local_now = 1700003600,
                                 .queue_ms_max = 250};
    box_prepare(s, &ask, out);
    lar_answer_start(out->answer, (lar_scheduler *)&box_jobs);
}

void box_clear(box_client *c) {
    LAR_ASSERT(c->ends == 1 || !c->answer);
    lar_answer_free(c->answer);
    lar_buf_release(&c->body);
    for (uint32_t i = 0; i < box_jobs.count; i++) free(box_jobs.jobs[i].ids);
    memset(&box_jobs, 0, sizeof box_jobs);
    *c = (box_client){.heads = 0};
}

const char *box_body(box_client *c) {
    LAR_ASSERT(!lar_buf_reserve(&c->body, 1));
    c->body.ptr[c->body.len] = '\0';
    return c->body.ptr;
}

/* -- playing ------------------------------------------------------------------------------------------------------- */

void box_begin(uint32_t job, uint32_t cached) {
    const lar_job_calls *calls = &box_jobs.jobs[job].calls;
    calls->on_begin(calls->user, &(lar_job_begin){.cached_tokens = cached, .queued_us = 3});
}

bool box_tell_id(uint32_t job, uint32_t sample, uint32_t id) {
    box_job *j = &box_jobs.jobs[job];
    lar_sampled sampled = {.id = id, .logprob = -0.5f, .top_count = j->request.sampling.logprobs};
    for (uint32_t i = 0; i < sampled.top_count; i++)
        sampled.top[i] = (lar_logprob){.id = i ? 'a' + i : id, .value = -0.5f - (float)i};
    const lar_job_token t = {.sample = sample, .index = j->told[sample]++, .sampled = &sampled};
    return j->calls.on_token(j->calls.user, &t);
}

bool box_tell(uint32_t job, uint32_t sample, const char *text) {
    static const char *const *const lists[] = {marks, words};
    static const uint32_t counts[] = {sizeof marks / sizeof *marks, sizeof words / sizeof *words};
    static const uint32_t first[] = {BOX_BOS, BOX_WORDS};
    for (size_t l = 0; l < 2; l++)
        for (uint32_t i = 0; i < counts[l]; i++)
            if (strcmp(lists[l][i], text) == 0) return box_tell_id(job, sample, first[l] + i);
    for (; *text; text++)
        if (!box_tell_id(job, sample, (unsigned char)*text)) return false;
    return true;
}

void box_sample_end(uint32_t job, uint32_t sample, lar_job_reason why) {
    const lar_job_calls *calls = &box_jobs.jobs[job].calls;
    calls->on_sample_end(calls->user, sample, why);
}

void box_end(uint32_t job, lar_error error) {
    box_job *j = &box_jobs.jobs[job];
    lar_job_end end = {.error = error, .detail = error ? "as planned" : "", .prompt_tokens = j->request.count};
    for (uint32_t i = 0; i < LAR_JOB_SAMPLES_MAX; i++) end.answer_tokens += j->told[i];
    j->ended = true;
    j->calls.on_end(j->calls.user, &end);
}

void box_play(const char *const *texts, lar_job_reason why) {
    bool more = true;
    box_begin(0, 0);
    for (; more && *texts; texts++) more = box_tell(0, 0, *texts);
    box_sample_end(0, 0, more ? why : LAR_JOB_ENDED);
    box_end(0, LAR_OK);
}
