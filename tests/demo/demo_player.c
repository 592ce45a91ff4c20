/* demo_player: plays recorded conversations against a base URL, as the client that had them would send them.
 *
 * Flow: corpus line -> one request for each answer in it -> answer checked byte for byte -> tokens summed.
 * One thread; blocks in its HTTP client.
 * Why: an ordinary client that knows nothing of larder, whose traffic can be sloppy in known ways.
 * Invariants:
 *   1. Messages and tools are sent with the bytes of the corpus file; only the system text is printed anew.
 *   2. Anything that differs from the record is a fault, and one fault makes the exit status 1.
 * Memory: the corpus file stays in memory; buffers are used again. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "demo_client.h"
#include "demo_json.h"
#include "demo_kinds.h"

enum { MESSAGES_MAX = 512, TOOLS_MAX = 64, FAULTS_SHOWN = 20 };
#define FILE_MAX ((size_t)256 << 20)

static const char usage_text[] =
    "demo_player --url http://HOST:PORT/v1 [options] conversations.jsonl...\n"
    "  --also URL         another gateway: each second request goes there\n"
    "  --kind KIND        clean, clock, billing, tool_order, text_form, mixed, schema_keys, arguments_rewritten,\n"
    "                     request_id, counter, workdir (default clean)\n"
    "  --control URL      the demo upstream itself: recorded answers are planned there before each call\n"
    "  --reset            forget the upstream's cache and log first (needs --control)\n"
    "  --check-bodies     look at what reached the upstream: clean bodies must be the same byte for byte, in the\n"
    "                     other kinds nothing may be lost (needs --control)\n"
    "  --stream           ask for streams\n"
    "  --clock-start T    the first clock shows T (2031-04-09T15:15:42); default: the present\n"
    "  --key KEY          sent as a bearer token\n"
    "  --seed N           of what is random in a kind (default 1)\n"
    "  --json             print the sums as one JSON object\n";

typedef struct options {
    const char *url, *also, *control, *key;
    demo_kind kind;
    bool reset, check_bodies, stream, json;
    int64_t clock_start_ms; /* -1 = the present */
    uint64_t seed;
    int first_file;
} options;

typedef struct player {
    options o;
    demo_client client, also, control;
    uint64_t random, calls, prompt, hit, miss, output, no_usage, faults;
    int64_t now_ms;
    /* scratch */
    lar_buf body, plan, text, want;
    demo_system_out system;
    demo_response response, log;
    lar_buf kept; /* values of this turn, each ended by a zero byte */
    lar_buf sent; /* text and calls of each message of the model, as this client sent it */
    size_t sent_at[MESSAGES_MAX + 1];
    uint32_t turn;
} player;

typedef struct conversation {
    uint32_t index;
    lar_slice model, messages[MESSAGES_MAX], tools[TOOLS_MAX];
    uint32_t message_count, tool_count;
    char id_text[64];
} conversation;

static void die(const char *what, const char *value) {
    fprintf(stderr, "demo_player: %s: %s\n%s", what, value, usage_text);
    exit(64);
}

static void fault(player *p, const conversation *v, uint32_t call, const char *what) {
    if (p->faults++ < FAULTS_SHOWN) fprintf(stderr, "FAULT %s call %u: %s\n", v->id_text, call, what);
}

static bool has_role(lar_slice m, const char *role) {
    lar_slice r = demo_json_get(m, "role");
    return r.len >= 2 && lar_slice_eq_cstr(lar_slice_of(r.ptr + 1, r.len - 2), role);
}

/* -- one request ------------------------------------------------------------------------------------------ */

static void put_system(player *p, const conversation *v, lar_slice m, const demo_moment *at) {
    demo_kind kind = demo_kind_of(p->o.kind, v->index);
    if (kind == DEMO_KIND_CLEAN || kind == DEMO_KIND_TOOL_ORDER || kind == DEMO_KIND_SCHEMA_KEYS ||
        kind == DEMO_KIND_ARGUMENTS) {
        demo_put(&p->body, m);
        return;
    }
    lar_buf_reset(&p->text, 1u << 20);
    lar_buf_reset(&p->system.text, 1u << 20);
    demo_json_text(demo_json_get(m, "content"), &p->text);
    demo_kind_system(kind, lar_buf_slice(&p->text), at, &p->random, &p->system);
    DEMO_PUT(&p->body, "{\"role\": \"system\", \"content\": ");
    demo_json_quote(&p->body, lar_buf_slice(&p->system.text));
    DEMO_PUT(&p->body, "}");
}

static void put_tools(player *p, const conversation *v) {
    uint32_t order[TOOLS_MAX];
    for (uint32_t i = 0; i < v->tool_count; i++) order[i] = i;
    if (demo_kind_of(p->o.kind, v->index) == DEMO_KIND_TOOL_ORDER)
        for (uint32_t i = v->tool_count; i > 1; i--) {
            uint32_t j = demo_random(&p->random, i), t = order[i - 1];
            order[i - 1] = order[j];
            order[j] = t;
        }
    DEMO_PUT(&p->body, ", \"tools\": [");
    for (uint32_t i = 0; i < v->tool_count; i++) {
        if (i) DEMO_PUT(&p->body, ", ");
        if (demo_kind_of(p->o.kind, v->index) == DEMO_KIND_SCHEMA_KEYS)
            demo_kind_shuffle(v->tools[order[i]], &p->random, &p->body);
        else demo_put(&p->body, v->tools[order[i]]);
    }
    DEMO_PUT(&p->body, "]");
}

static void gather(lar_slice m, lar_buf *out);

/* A message of the model as this client returns it. */
static void put_answer(player *p, const conversation *v, lar_slice m) {
    size_t from = p->body.len;
    lar_slice rest = m, call;
    demo_json_iter it = demo_json_open(demo_json_get(m, "tool_calls"));
    while (demo_kind_of(p->o.kind, v->index) == DEMO_KIND_ARGUMENTS && demo_json_next(&it, NULL, &call)) {
        lar_slice old = demo_json_get(demo_json_get(call, "function"), "arguments");
        lar_buf_reset(&p->text, 1u << 20);
        lar_buf_reset(&p->want, 1u << 20);
        demo_json_text(old, &p->text);
        if (!demo_json_is_object(lar_buf_slice(&p->text))) continue;
        demo_kind_print_anew(lar_buf_slice(&p->text), &p->random, &p->want);
        demo_put(&p->body, lar_slice_of(rest.ptr, (size_t)(old.ptr - rest.ptr)));
        demo_json_quote(&p->body, lar_buf_slice(&p->want));
        rest = lar_slice_of(old.ptr + old.len, (size_t)(rest.ptr + rest.len - old.ptr) - old.len);
    }
    demo_put(&p->body, rest);
    gather(lar_slice_of(p->body.ptr + from, p->body.len - from), &p->sent);
}

/* The request whose answer was message `upto`. */
static void build(player *p, const conversation *v, uint32_t upto, const demo_moment *at) {
    lar_buf_reset(&p->body, 4u << 20);
    lar_buf_reset(&p->system.kept, 1024);
    DEMO_PUT(&p->body, "{\"model\": ");
    demo_put(&p->body, v->model);
    DEMO_PUT(&p->body, ", \"messages\": [");
    lar_buf_reset(&p->sent, 4u << 20);
    for (uint32_t i = 0; i < upto; i++) {
        if (i) DEMO_PUT(&p->body, ", ");
        p->sent_at[i] = p->sent.len;
        if (i == 0 && has_role(v->messages[0], "system")) put_system(p, v, v->messages[0], at);
        else if (has_role(v->messages[i], "assistant")) put_answer(p, v, v->messages[i]);
        else demo_put(&p->body, v->messages[i]);
    }
    p->sent_at[upto] = p->sent.len;
    DEMO_PUT(&p->body, "], \"temperature\": 0.30, \"seed\": 9007199254740993");
    if (v->tool_count) put_tools(p, v);
    if (p->o.stream) DEMO_PUT(&p->body, ", \"stream\": true, \"stream_options\": {\"include_usage\": true}");
    DEMO_PUT(&p->body, "}");
}

/* -- one answer ------------------------------------------------------------------------------------------- */

/* Appends reasoning, text and call arguments of a message or a delta. */
static void gather(lar_slice m, lar_buf *out) {
    lar_slice call;
    demo_json_text(demo_json_get(m, "reasoning_content"), out);
    demo_json_text(demo_json_get(m, "content"), out);
    demo_json_iter it = demo_json_open(demo_json_get(m, "tool_calls"));
    while (demo_json_next(&it, NULL, &call)) {
        lar_slice f = demo_json_get(call, "function");
        demo_json_text(demo_json_get(call, "id"), out);
        demo_json_text(demo_json_get(f, "name"), out);
        demo_json_text(demo_json_get(f, "arguments"), out);
    }
}

static bool add_usage(player *p, lar_slice usage) {
    uint64_t prompt = demo_json_u64(demo_json_get(usage, "prompt_tokens"), UINT64_MAX);
    lar_slice cached = demo_json_get(usage, "prompt_cache_hit_tokens");
    if (!cached.len) cached = demo_json_get(demo_json_get(usage, "prompt_tokens_details"), "cached_tokens");
    uint64_t hit = demo_json_u64(cached, UINT64_MAX);
    if (prompt == UINT64_MAX || hit == UINT64_MAX || hit > prompt) return false;
    p->prompt += prompt;
    p->hit += hit;
    p->miss += prompt - hit;
    p->output += demo_json_u64(demo_json_get(usage, "completion_tokens"), 0);
    return true;
}

static lar_slice choice_part(lar_slice object, const char *part) {
    lar_slice choice = {0};
    demo_json_iter it = demo_json_open(demo_json_get(object, "choices"));
    if (!demo_json_next(&it, NULL, &choice)) return (lar_slice){0};
    return demo_json_get(choice, part);
}

/* Reads a whole stream into p->text. NULL, or what is wrong with it. */
static const char *read_stream(player *p, bool *usage_seen) {
    lar_slice rest = lar_buf_slice(&p->response.body);
    bool done = false;
    while (rest.len) {
        const char *end = memmem(rest.ptr, rest.len, "\n\n", 2);
        if (!end) return "the stream ends inside an event";
        lar_slice event = lar_slice_of(rest.ptr, (size_t)(end - rest.ptr));
        rest = lar_slice_of(end + 2, rest.len - event.len - 2);
        if (!lar_slice_starts(event, LAR_SLICE("data: "))) return "an event without data";
        event = lar_slice_of(event.ptr + 6, event.len - 6);
        if (done) return "an event behind [DONE]";
        if (lar_slice_eq_cstr(event, "[DONE]")) {
            done = true;
            continue;
        }
        if (!demo_json_is_object(event)) return "an event that is no JSON object";
        gather(choice_part(event, "delta"), &p->text);
        lar_slice usage = demo_json_get(event, "usage");
        if (usage.len > 4 && add_usage(p, usage)) *usage_seen = true;
    }
    return done ? NULL : "a stream without [DONE]";
}

static void check_answer(player *p, const conversation *v, uint32_t call, lar_slice recorded) {
    lar_slice body = lar_buf_slice(&p->response.body);
    bool usage_seen = false;
    const char *wrong = NULL;
    if (p->response.status != 200) {
        char what[64];
        snprintf(what, sizeof what, "status %d", p->response.status);
        fault(p, v, call, what);
        return;
    }
    lar_buf_reset(&p->text, 1u << 20);
    if (p->o.stream) {
        wrong = read_stream(p, &usage_seen);
    } else if (!demo_json_is_object(body)) {
        wrong = "the answer is no JSON object";
    } else {
        gather(choice_part(body, "message"), &p->text);
        usage_seen = add_usage(p, demo_json_get(body, "usage"));
    }
    if (!usage_seen) p->no_usage++;
    lar_buf_reset(&p->want, 1u << 20);
    gather(recorded, &p->want);
    if (!wrong && p->control.host[0] && !lar_slice_eq(lar_buf_slice(&p->text), lar_buf_slice(&p->want)))
        wrong = "the client got another answer than the upstream gave";
    if (!wrong && p->text.len == 0) wrong = "an empty answer";
    if (wrong) fault(p, v, call, wrong);
}

/* -- what reached the upstream ---------------------------------------------------------------------------- */

static bool holds(lar_slice text, lar_slice part) {
    return part.len == 0 || memmem(text.ptr, text.len, part.ptr, part.len);
}

/* True if one of this turn's values is in `got`: a clock may stand still during tool rounds. */
static bool holds_kept(const player *p, lar_slice got) {
    lar_slice rest = lar_buf_slice(&p->kept);
    if (!rest.len) return true;
    while (rest.len) {
        lar_slice one = lar_slice_of(rest.ptr, strlen(rest.ptr));
        if (holds(got, one)) return true;
        rest = lar_slice_of(rest.ptr + one.len + 1, rest.len - one.len - 1);
    }
    return false;
}

/* True if the tool, or one with the same members in any order, was sent: then their bytes are the same ones sorted. */
static bool same_bytes(lar_slice a, lar_slice b) {
    int32_t count[256] = {0};
    for (size_t i = 0; i < a.len; i++) count[(uint8_t)a.ptr[i]]++;
    for (size_t i = 0; i < b.len; i++) count[(uint8_t)b.ptr[i]]--;
    for (int i = 0; i < 256; i++)
        if (count[i]) return false;
    return true;
}

static bool holds_tool(lar_slice got, lar_slice tool) {
    lar_slice one;
    demo_json_iter it = demo_json_open(demo_json_get(got, "tools"));
    while (demo_json_next(&it, NULL, &one))
        if (same_bytes(one, tool)) return true;
    return false;
}

/* A message of the model, whole: what the model wrote, or what the client sent. */
static bool is_whole(player *p, lar_slice got, lar_slice recorded, uint32_t i) {
    lar_buf_reset(&p->want, 1u << 20);
    gather(got, &p->want);
    lar_slice sent = lar_slice_of(p->sent.ptr + p->sent_at[i], p->sent_at[i + 1] - p->sent_at[i]);
    if (lar_slice_eq(lar_buf_slice(&p->want), sent)) return true;
    lar_buf_reset(&p->plan, 1u << 20);
    gather(recorded, &p->plan);
    return lar_slice_eq(lar_buf_slice(&p->want), lar_buf_slice(&p->plan));
}

static void check_answers(player *p, const conversation *v, uint32_t call, uint32_t upto) {
    lar_slice m;
    uint32_t i = 0;
    demo_json_iter it = demo_json_open(demo_json_get(lar_buf_slice(&p->text), "messages"));
    for (; demo_json_next(&it, NULL, &m) && i < upto; i++)
        if (has_role(m, "assistant") && !is_whole(p, m, v->messages[i], i))
            fault(p, v, call, "a message is neither the model's nor the client's");
    if (i != upto) fault(p, v, call, "a message is missing");
}

static void check_parts(player *p, const conversation *v, uint32_t call, uint32_t upto) {
    lar_slice got = lar_buf_slice(&p->text);
    if (!demo_json_is_object(got)) {
        fault(p, v, call, "the upstream received no JSON object");
        return;
    }
    for (uint32_t i = 0; i < upto; i++) {
        lar_slice m = v->messages[i];
        bool free_form = has_role(m, "assistant") && demo_kind_of(p->o.kind, v->index) == DEMO_KIND_ARGUMENTS;
        if ((has_role(m, "assistant") || has_role(m, "tool")) && !free_form && !holds(got, m))
            fault(p, v, call, "a message of the model or a tool changed");
        lar_slice content = demo_json_get(m, "content");
        if (!has_role(m, "user") || !demo_json_is_string(content)) continue;
        /* Without its closing quote: facts may follow it. */
        if (!holds(got, lar_slice_of(content.ptr, content.len - 1))) fault(p, v, call, "user text lost");
    }
    for (uint32_t i = 0; i < v->tool_count; i++)
        if (!holds_tool(got, v->tools[i])) fault(p, v, call, "a tool changed");
    check_answers(p, v, call, upto);
    if (!holds_kept(p, got)) fault(p, v, call, "a value is lost");
}

static void check_body(player *p, const conversation *v, uint32_t call, uint32_t upto) {
    char path[64];
    lar_slice entry = {0};
    snprintf(path, sizeof path, "/__log?from=%llu", (unsigned long long)p->calls - 1);
    if (!demo_client_call(&p->control, "GET", path, (lar_slice){0}, &p->log)) exit(1);
    demo_json_iter it = demo_json_open(demo_json_get(lar_buf_slice(&p->log.body), "entries"));
    uint32_t entries = 0;
    while (demo_json_next(&it, NULL, &entry)) entries++;
    if (entries != 1) {
        fault(p, v, call, "the upstream did not receive exactly one request");
        return;
    }
    lar_buf_reset(&p->text, 4u << 20);
    demo_json_text(demo_json_get(entry, "body"), &p->text);
    if (demo_kind_of(p->o.kind, v->index) != DEMO_KIND_CLEAN) check_parts(p, v, call, upto);
    else if (!lar_slice_eq(lar_buf_slice(&p->text), lar_buf_slice(&p->body)))
        fault(p, v, call, "the upstream received other bytes than were sent");
}

/* -- a conversation --------------------------------------------------------------------------------------- */

static void post_control(player *p, const char *path, lar_slice body) {
    if (demo_client_call(&p->control, "POST", path, body, &p->log) && p->log.status == 200) return;
    fprintf(stderr, "demo_player: the control endpoint %s did not answer\n", path);
    exit(1);
}

static void keep(player *p, uint32_t turn) {
    if (turn != p->turn) lar_buf_reset(&p->kept, 1024);
    p->turn = turn;
    if (!p->system.kept.len) return;
    demo_put(&p->kept, lar_buf_slice(&p->system.kept));
    demo_put(&p->kept, lar_slice_of("", 1));
}

static void play_call(player *p, const conversation *v, uint32_t upto, demo_moment *at) {
    uint32_t turn = 0;
    for (uint32_t i = 0; i < upto; i++)
        if (has_role(v->messages[i], "user")) turn = i + 1;
    p->now_ms += 1000 + demo_random(&p->random, 2000);
    at->ms = p->now_ms;
    build(p, v, upto, at);
    keep(p, turn);
    if (p->control.host[0]) {
        lar_buf_reset(&p->plan, 1u << 20);
        DEMO_PUT(&p->plan, "{\"message\": ");
        demo_put(&p->plan, v->messages[upto]);
        DEMO_PUT(&p->plan, "}");
        post_control(p, "/__next", lar_buf_slice(&p->plan));
    }
    demo_client *to = p->o.also && p->calls % 2 ? &p->also : &p->client;
    p->calls++;
    if (!demo_client_call(to, "POST", "/chat/completions", lar_buf_slice(&p->body), &p->response)) {
        fault(p, v, at->call, "no answer");
        return;
    }
    check_answer(p, v, at->call, v->messages[upto]);
    if (p->o.check_bodies) check_body(p, v, at->call, upto);
}

static void play(player *p, const conversation *v) {
    bool asked = false;
    uint32_t of_kind = p->o.kind == DEMO_KIND_MIXED ? v->index / 4 : v->index;
    demo_moment at = {.variant = of_kind % 3};
    p->turn = 0;
    lar_buf_reset(&p->kept, 1024);
    for (uint32_t i = 0; i < v->message_count; i++) {
        if (has_role(v->messages[i], "user")) asked = true;
        if (!asked || !has_role(v->messages[i], "assistant")) continue;
        play_call(p, v, i, &at);
        at.call++;
    }
}

static bool read_conversation(conversation *v, lar_slice line, uint32_t index) {
    lar_slice one = {0}, id = demo_json_get(line, "id");
    *v = (conversation){.index = index, .model = demo_json_get(line, "model")};
    if (!v->model.len) v->model = LAR_SLICE("\"deepseek-chat\"");
    snprintf(v->id_text, sizeof v->id_text, "%.*s", LAR_FMT(id));
    demo_json_iter it = demo_json_open(demo_json_get(line, "messages"));
    while (demo_json_next(&it, NULL, &one)) {
        if (v->message_count == MESSAGES_MAX) return false;
        v->messages[v->message_count++] = one;
    }
    it = demo_json_open(demo_json_get(line, "tools"));
    while (demo_json_next(&it, NULL, &one)) {
        if (v->tool_count == TOOLS_MAX) return false;
        v->tools[v->tool_count++] = one;
    }
    return v->message_count > 1;
}

static void read_file(const char *name, lar_buf *out) {
    char bytes[65536];
    size_t n;
    FILE *f = fopen(name, "rb");
    if (!f) die("cannot open", name);
    while ((n = fread(bytes, 1, sizeof bytes, f)) > 0) demo_put(out, lar_slice_of(bytes, n));
    fclose(f);
}

static uint32_t play_file(player *p, const char *name, uint32_t index) {
    lar_buf file;
    lar_buf_init(&file, FILE_MAX);
    read_file(name, &file);
    conversation *v = malloc(sizeof *v);
    if (!v) abort();
    lar_slice rest = lar_buf_slice(&file);
    while (rest.len) {
        const char *lf = memchr(rest.ptr, '\n', rest.len);
        lar_slice line = lar_slice_of(rest.ptr, lf ? (size_t)(lf - rest.ptr) : rest.len);
        rest = lf ? lar_slice_of(lf + 1, rest.len - line.len - 1) : (lar_slice){0};
        if (!line.len) continue;
        if (!demo_json_is_object(line) || !read_conversation(v, line, index)) die("not a conversation in", name);
        play(p, v);
        index++;
    }
    free(v);
    lar_buf_release(&file);
    return index;
}

/* -- options and sums ------------------------------------------------------------------------------------- */

static int64_t parse_clock(const char *text) {
    struct tm t = {0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &t);
    if (!end || *end) die("--clock-start", text);
    return (int64_t)timegm(&t) * 1000;
}

static bool take_flag(options *o, const char *name) {
    if (strcmp(name, "--reset") == 0) o->reset = true;
    else if (strcmp(name, "--check-bodies") == 0) o->check_bodies = true;
    else if (strcmp(name, "--stream") == 0) o->stream = true;
    else if (strcmp(name, "--json") == 0) o->json = true;
    else return false;
    return true;
}

static void take_value(options *o, const char *name, const char *value) {
    if (!value) die("missing value or unknown option", name);
    if (strcmp(name, "--url") == 0) o->url = value;
    else if (strcmp(name, "--also") == 0) o->also = value;
    else if (strcmp(name, "--control") == 0) o->control = value;
    else if (strcmp(name, "--key") == 0) o->key = value;
    else if (strcmp(name, "--clock-start") == 0) o->clock_start_ms = parse_clock(value);
    else if (strcmp(name, "--seed") == 0) o->seed = demo_json_u64(lar_slice_cstr(value), 0);
    else if (strcmp(name, "--kind") != 0) die("unknown option", name);
    else if (!demo_kind_find(value, &o->kind)) die("--kind", value);
}

static options parse(int argc, char **argv) {
    options o = {.clock_start_ms = -1, .seed = 1};
    int i = 1;
    while (i < argc && strncmp(argv[i], "--", 2) == 0) {
        if (strcmp(argv[i], "--help") == 0) {
            fputs(usage_text, stdout);
            exit(0);
        }
        if (take_flag(&o, argv[i])) {
            i++;
            continue;
        }
        take_value(&o, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
        i += 2;
    }
    o.first_file = i;
    if (!o.url || i >= argc) die("wanted", "--url and at least one file");
    if ((o.reset || o.check_bodies) && !o.control) die("--reset and --check-bodies need", "--control");
    if (!o.seed) die("--seed", "wants a number over 0");
    return o;
}

static void print_sums(const player *p) {
    double rate = p->prompt ? (double)p->hit / (double)p->prompt : 0.0;
    const char *format =
        p->o.json
            ? "{\"calls\":%llu,\"prompt_tokens\":%llu,\"hit_tokens\":%llu,\"miss_tokens\":%llu,\"completion_tokens\":%llu,"
              "\"answers_without_usage\":%llu,\"faults\":%llu,\"hit_rate\":%.4f}\n"
            : "calls=%llu prompt_tokens=%llu hit_tokens=%llu miss_tokens=%llu completion_tokens=%llu "
              "answers_without_usage=%llu faults=%llu hit_rate=%.4f\n";
    printf(format, (unsigned long long)p->calls, (unsigned long long)p->prompt, (unsigned long long)p->hit,
           (unsigned long long)p->miss, (unsigned long long)p->output, (unsigned long long)p->no_usage,
           (unsigned long long)p->faults, rate);
}

int main(int argc, char **argv) {
    player p = {.o = parse(argc, argv)};
    lar_buf *const scratch[] = {&p.body, &p.plan, &p.text, &p.want, &p.system.text, &p.system.kept, &p.kept, &p.sent};
    for (size_t i = 0; i < sizeof scratch / sizeof scratch[0]; i++) lar_buf_init(scratch[i], FILE_MAX);
    demo_response_init(&p.response);
    demo_response_init(&p.log);
    if (!demo_client_init(&p.client, p.o.url)) die("--url", p.o.url);
    if (p.o.also && !demo_client_init(&p.also, p.o.also)) die("--also", p.o.also);
    if (p.o.control && !demo_client_init(&p.control, p.o.control)) die("--control", p.o.control);
    if (p.o.key) snprintf(p.client.key, sizeof p.client.key, "%s", p.o.key);
    memcpy(p.also.key, p.client.key, sizeof p.also.key); /* one client, whoever answers it */
    p.random = p.o.seed;
    /* A minute back, and a second or two with each call: never far from the present, and never the same twice. */
    p.now_ms = p.o.clock_start_ms >= 0 ? p.o.clock_start_ms : lar_clock_wall_ms() - 60000;
    if (p.o.reset) post_control(&p, "/__reset", LAR_SLICE("{}"));
    uint32_t index = 0;
    for (int i = p.o.first_file; i < argc; i++) index = play_file(&p, argv[i], index);
    print_sums(&p);
    demo_client_release(&p.client);
    if (p.o.also) demo_client_release(&p.also);
    if (p.o.control) demo_client_release(&p.control);
    demo_response_release(&p.response);
    demo_response_release(&p.log);
    for (size_t i = 0; i < sizeof scratch / sizeof scratch[0]; i++) lar_buf_release(scratch[i]);
    return p.faults ? 1 : 0;
}
