/* What requests show alone and two by two: placeholders, fields, settings, images, addresses; and what they do not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "policies/checks.h"
#include "policies/checks_text.h"

typedef struct side {
    lar_json j;
    lar_request_view v;
} side;

typedef struct bench {
    lar_arena arena;
    side before, after;
    lar_notes notes;
} bench;

static void bench_init(bench *b) {
    lar_arena_init(&b->arena, 16u << 20);
    lar_json_init(&b->before.j);
    lar_json_init(&b->after.j);
}
static void bench_release(bench *b) {
    lar_arena_release(&b->arena);
    lar_json_release(&b->before.j);
    lar_json_release(&b->after.j);
}

static void read_side(bench *b, side *s, lar_protocol p, const char *body) {
    lar_diag d = {{0}, 0, 0};
    lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
    lar_error e = lar_json_parse(&s->j, lar_slice_cstr(body), &limits, &d);
    if (e) print_error("%s\n", body);
    assert_int_equal(e, LAR_OK);
    assert_int_equal(lar_request_view_read(&s->v, &s->j, p, &b->arena, &d), LAR_OK);
}

/* "LR101 /messages/0/content; LR105 ..." */
static void spell(const bench *b, const side *s, char *out, size_t room) {
    size_t at = 0;
    lar_buf p;
    lar_buf_init(&p, 4096);
    out[0] = 0;
    for (uint32_t i = 0; i < b->notes.count; i++) {
        const lar_note *n = &b->notes.list[i];
        p.len = 0;
        assert_int_equal(lar_json_pointer(&s->j, n->node, &p), LAR_OK);
        at += (size_t)snprintf(out + at, room - at, "%s%s %.*s", i ? "; " : "", lar_rule_id(n->rule),
                               LAR_FMT(lar_buf_slice(&p)));
        assert_true(n->what.len > 10 && n->advice.len > 10 && n->start < n->end && n->end <= s->j.body.len);
    }
    lar_buf_release(&p);
}

/* -- placeholders ------------------------------------------------------------------------------------------------ */

typedef struct words {
    const char *text, *found; /* NULL: nothing */
} words;

static void test_placeholders(void **state) {
    (void)state;
    static const words cases[] = {
        {"Current time: {{CURRENT_DATETIME}}.", "{{CURRENT_DATETIME}}"},
        {"Today is {{ current_date }}", "{{ current_date }}"},
        {"It is {date} now", "{date}"},
        {"Today is {now:%Y-%m-%d}", "{now:%Y-%m-%d}"},
        {"You help {user_name}. Today is {date}.", "{user_name}"},
        {"Now: ${NOW}", "${NOW}"},
        {"cwd: ${cwd}", "${cwd}"},
        {"当前时间：{{当前时间}}", "{{当前时间}}"},
        {"今天是 {日期}。", "{日期}"},
        {"Date: {{date | iso}}", "{{date | iso}}"},
        {"Session {{session-id}}", "{{session-id}}"},
        {"Time: {{datetime.now()}}", "{{datetime.now()}}"},
        /* what is meant to be there */
        {"Write files as {date}-{title}.md", NULL},
        {"Format: {date}", NULL},
        {"Use the placeholder {{date}} for the day.", NULL},
        {"Reply with {time}.", NULL},
        {"For example: it is {date}", NULL},
        {"输出 {日期}", NULL},
        {"Like:\n```\nnow = {date}\n```\n", NULL},
        {"    print(f'{date}')", NULL},
        {"GET /users/{user_id}/posts", NULL},
        {"see https://x.example/?day={date}", NULL},
        {"Call `{date}` first", NULL},
        {"the string \"{date}\" is", NULL},
        {"{\"date\": {date}}", NULL},
        {"{% if x %}{{ date }}{% endif %}", NULL},
        {"Hello {name_of_dog}", NULL},
        {"Answer with {{answer}}", NULL},
        {"{}", NULL},
        {"a {{ b", NULL},
        {"{{{date}}}", NULL},
        {"", NULL},
        {"${HOME}/bin", NULL},
        {"function f() { return time; }", NULL},
        {"set {x | x > time}", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lar_check_span at = {0, 0};
        lar_slice text = lar_slice_cstr(cases[i].text);
        bool found = lar_check_placeholder(text, 0, &at);
        if (found != (cases[i].found != NULL)) print_error("%s\n", cases[i].text);
        assert_int_equal(found, cases[i].found != NULL);
        if (found) assert_true(lar_slice_eq_cstr(lar_slice_of(text.ptr + at.start, at.end - at.start), cases[i].found));
    }
}

#define SIG "4f1c9a7e2b5d8036c1e4"

static void test_addresses(void **state) {
    (void)state;
    static const words cases[] = {
        {"see https://b.example/f?X-Amz-Date=20310409T0715Z&X-Amz-Signature=" SIG " there",
         "https://b.example/f?X-Amz-Date=20310409T0715Z&X-Amz-Signature=" SIG},
        {"(https://s.example/o?X-Goog-Signature=" SIG "&X-Goog-Expires=900)",
         "https://s.example/o?X-Goog-Signature=" SIG "&X-Goog-Expires=900"},
        {"<https://a.blob.example/c?sv=1&se=2031&sig=" SIG "%3D>",
         "https://a.blob.example/c?sv=1&se=2031&sig=" SIG "%3D"},
        {"https://oss.example/k?Expires=1933398942&OSSAccessKeyId=x&Signature=" SIG,
         "https://oss.example/k?Expires=1933398942&OSSAccessKeyId=x&Signature=" SIG},
        {"![x](https://d.example/p?Key-Pair-Id=K&Signature=" SIG ")",
         "https://d.example/p?Key-Pair-Id=K&Signature=" SIG},
        {"http://x https://c.example/k?q-sign-time=1;2&q-signature=" SIG,
         "https://c.example/k?q-sign-time=1;2&q-signature=" SIG},
        {"https://b.example/f?X-Amz-Date=1&X-Amz-Signature=<signature>", NULL},
        {"https://b.example/f?X-Amz-Date=1&X-Amz-Signature=...", NULL},
        {"https://b.example/f?X-Amz-Signature=" SIG, NULL},
        {"https://b.example/f?sig=abc&se=1", NULL},
        {"https://b.example/?q=Signature", NULL},
        {"```\nhttps://b.example/f?X-Amz-Date=1&X-Amz-Signature=" SIG "\n```", NULL},
        {"ftp://b.example/f?X-Amz-Date=1&X-Amz-Signature=" SIG, NULL},
        {"https://", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lar_check_span at = {0, 0};
        lar_slice text = lar_slice_cstr(cases[i].text);
        bool found = lar_check_presigned(text, 0, &at);
        if (found != (cases[i].found != NULL)) print_error("%s\n", cases[i].text);
        assert_int_equal(found, cases[i].found != NULL);
        if (found) assert_true(lar_slice_eq_cstr(lar_slice_of(text.ptr + at.start, at.end - at.start), cases[i].found));
    }
}

/* -- one request -------------------------------------------------------------------------------------------------- */

#define CHAT LAR_PROTOCOL_CHAT
#define MESSAGES LAR_PROTOCOL_MESSAGES
#define RESPONSES LAR_PROTOCOL_RESPONSES
#define U "{\"role\":\"user\",\"content\":\"u\"}"
#define SYS(text) "{\"role\":\"system\",\"content\":\"" text "\"}"
#define UUID "7f0c2f5e-3b1d-4a77-9c55-0d9a51be62a1"

typedef struct alone {
    lar_protocol protocol;
    const char *provider, *body, *notes;
} alone;

static const alone alones[] = {
    {CHAT, "", "{\"messages\":[" SYS("Be kind.") "," U "]}", ""},
    {CHAT, "", "{\"messages\":[" SYS("It is {date}\\n and {{now}}") "," U "]}",
     "LR101 /messages/0/content; LR101 /messages/0/content"},
    {CHAT, "", "{\"messages\":[{\"role\":\"user\",\"content\":\"It is {date}\"}]}", ""}, /* users may write braces */
    {CHAT, "",
     "{\"tools\":[{\"function\":{\"name\":\"f\",\"description\":\"Works in {{cwd}}\"}}],\"messages\":[" U "]}",
     "LR101 /tools/0/function/description"},
    {MESSAGES, "",
     "{\"system\":[{\"type\":\"text\",\"text\":\"x\"},{\"type\":\"text\",\"text\":\"Now: ${NOW}\"}],\"tools\":[{\"description\":\"at {time}\"}],\"messages\":[" U
     "]}",
     "LR101 /tools/0/description; LR101 /system/1/text"},
    {RESPONSES, "", "{\"instructions\":\"It is {{date}}\",\"input\":\"hi\"}", "LR101 /instructions"},
    {CHAT, "", "{\"messages\":[{\"role\":\"assistant\",\"content\":\"It is {{date}}\"}]}", ""},
    {CHAT, "",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"see https://b.example/f?X-Amz-Date=1&X-Amz-Signature=" SIG
     "\"}]}",
     "LR105 /messages/0/content"},
    {CHAT, "",
     "{\"messages\":[{\"role\":\"tool\",\"content\":\"https://b.example/f?X-Amz-Date=1&X-Amz-Signature=" SIG "\"}]}",
     ""},
    /* images */
    {CHAT, "",
     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"https://b.example/i.png?X-Amz-Expires=1&X-Amz-Signature=" SIG
     "\"}}]}]}",
     "LR104 /messages/0/content/0/image_url/url"},
    {RESPONSES, "",
     "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\",\"image_url\":\"https://b.example/i.png?t=1933398942118\"}]}]}",
     "LR104 /input/0/content/0/image_url"},
    {MESSAGES, "",
     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"source\":{\"type\":\"url\",\"url\":\"https:\\/\\/b.example\\/i.png?nonce=k3J9xq\"}}]}]}",
     "LR104 /messages/0/content/0/source/url"},
    {CHAT, "",
     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"https://b.example/i.png?v=3\"}}]}]}",
     ""},
    {CHAT, "",
     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,AAAA\"}}]}]}",
     ""},
    /* fields */
    {CHAT, "deepseek", "{\"user_id\":\"" UUID "\",\"messages\":[" U "]}", "LR102 /user_id"},
    {CHAT, "", "{\"user_id\":\"team-a\",\"messages\":[" U "]}", ""},
    {CHAT, "vllm", "{\"cache_salt\":\"" UUID "\",\"messages\":[" U "]}", "LR102 /cache_salt"},
    {CHAT, "", "{\"prompt_cache_key\":\"" UUID "\",\"messages\":[" U "]}",
     ""}, /* one a conversation is what it is for */
    {CHAT, "", "{\"prompt_cache_key\":\"req_" UUID "\",\"messages\":[" U "]}", "LR102 /prompt_cache_key"},
    {CHAT, "", "{\"prompt_cache_key\":\"run-1933398942118\",\"messages\":[" U "]}", "LR102 /prompt_cache_key"},
    {CHAT, "", "{\"user\":\"2031-04-09T07:15:42Z\",\"messages\":[" U "]}", "LR102 /user"},
    {CHAT, "", "{\"safety_identifier\":\"9f86d081884c7d659a2feaa0c55ad015\",\"messages\":[" U "]}",
     ""}, /* a hash, as asked for */
    {MESSAGES, "anthropic",
     "{\"metadata\":{\"user_id\":\"user_ab_account_" UUID "_session_" UUID "\"},\"messages\":[" U "]}", ""},
    {CHAT, "", "{\"user\":null,\"user_id\":{},\"metadata\":7,\"messages\":[" U "]}", ""},
    {LAR_PROTOCOL_COMPLETIONS, "", "{\"prompt\":\"x\",\"user\":\"u1\"}", ""},
    {LAR_PROTOCOL_EMBEDDINGS, "", "{\"input\":\"x\"}", ""},
};

static void test_alone(void **state) {
    (void)state;
    bench b;
    bench_init(&b);
    for (size_t i = 0; i < sizeof alones / sizeof *alones; i++) {
        const alone *a = &alones[i];
        char notes[1024];
        read_side(&b, &b.after, a->protocol, a->body);
        lar_notes_init(&b.notes, &b.arena);
        assert_int_equal(lar_check_request(&b.after.v, lar_slice_cstr(a->provider), &b.notes), LAR_OK);
        spell(&b, &b.after, notes, sizeof notes);
        if (strcmp(notes, a->notes) != 0) print_error("%s\n", a->body);
        assert_string_equal(notes, a->notes);
    }
    bench_release(&b);
}

/* The note's bytes are those of the placeholder, also behind escapes. */
static void test_place(void **state) {
    (void)state;
    bench b;
    bench_init(&b);
    read_side(&b, &b.after, CHAT, "{\"messages\":[" SYS("\\u4f60\\n\\\"x\\\" it is {date}") "]}");
    lar_notes_init(&b.notes, &b.arena);
    assert_int_equal(lar_check_request(&b.after.v, LAR_SLICE(""), &b.notes), LAR_OK);
    assert_int_equal(b.notes.count, 1);
    const lar_note *n = &b.notes.list[0];
    assert_true(lar_slice_eq_cstr(lar_slice_of(b.after.j.body.ptr + n->start, n->end - n->start), "{date}"));
    bench_release(&b);
}

/* -- two requests --------------------------------------------------------------------------------------------- */

typedef struct pair {
    lar_protocol protocol;
    const char *provider, *before, *after, *notes, *advice; /* how the first note's advice begins, or NULL */
} pair;

#define TURN2 U ",{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"v\"}"
#define OTHER "{\"role\":\"user\",\"content\":\"something else\"}"
#define BODY(fields, list) "{" fields "\"messages\":[" list "]}"
#define PIC(url) "{\"type\":\"image_url\",\"image_url\":{\"url\":\"" url "\"}}"
#define IMAGE(url) "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"t\"}," PIC(url) "]}"

static const pair pairs[] = {
    {CHAT, "", BODY("\"model\":\"m\",", U), BODY("\"model\":\"m\",", TURN2), "", NULL},
    /* who asks */
    {CHAT, "deepseek", BODY("\"user_id\":\"a\",", U), BODY("\"user_id\":\"b\",", TURN2), "LR102 /user_id",
     "DeepSeek keeps a cache for each"},
    {CHAT, "vllm", BODY("\"cache_salt\":\"a\",", U), BODY("\"cache_salt\":\"b\",", TURN2), "LR102 /cache_salt",
     "vLLM hashes the salt"},
    {CHAT, "openai", BODY("\"prompt_cache_key\":\"a\",", U), BODY("\"prompt_cache_key\":\"b\",", TURN2),
     "LR102 /prompt_cache_key", "OpenAI chooses the machine"},
    {MESSAGES, "anthropic", BODY("\"metadata\":{\"user_id\":\"a\"},", U),
     BODY("\"metadata\":{\"user_id\":\"b\"},", TURN2), "LR102 /metadata/user_id", NULL},
    {CHAT, "", BODY("\"user\":1,", U), BODY("\"user\":2,", TURN2), "LR102 /user", NULL},
    {CHAT, "", BODY("", U), BODY("\"safety_identifier\":\"b\",", TURN2), "LR102 /safety_identifier", NULL},
    {CHAT, "", BODY("\"user\":\"a\",", U), BODY("\"user\":\"b\",", OTHER), "",
     NULL}, /* another conversation, another user */
    {CHAT, "", BODY("\"prompt_cache_key\":\"" UUID "\",", U),
     BODY("\"prompt_cache_key\":\"01961e5b-0000-7000-8000-00000000abcd\",", OTHER), "", NULL},
    {CHAT, "", BODY("\"user\":\"req_1933398942\",", U), BODY("\"user\":\"req-1933398999\",", OTHER), "LR102 /user",
     NULL},
    /* settings */
    {CHAT, "openai", BODY("\"model\":\"a\",", U), BODY("\"model\":\"b\",", TURN2), "LR103 /model",
     "It costs the whole cached prefix"},
    {CHAT, "openai", BODY("\"model\":\"a\",", U), BODY("\"model\":\"b\",", OTHER), "", NULL},
    {CHAT, "openai", BODY("\"reasoning_effort\":\"low\",", U), BODY("\"reasoning_effort\":\"high\",", TURN2),
     "LR103 /reasoning_effort", "It costs the whole"},
    {CHAT, "kimi", BODY("\"reasoning_effort\":\"low\",", U), BODY("\"reasoning_effort\":\"high\",", TURN2),
     "LR103 /reasoning_effort", "It is not part"},
    {MESSAGES, "anthropic", BODY("\"tool_choice\":{\"type\":\"auto\"},", U),
     BODY("\"tool_choice\":{\"type\":\"any\"},", TURN2), "LR103 /tool_choice",
     "It costs the cached messages; tools and system"},
    {MESSAGES, "", BODY("\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024},", U),
     BODY("\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":2048},", TURN2), "LR103 /thinking",
     "It costs the cached messages, and with"},
    {MESSAGES, "anthropic", BODY("\"speed\":\"fast\",", U), BODY("", TURN2), "LR103 ",
     "It costs the cached system text"},
    {MESSAGES, "anthropic", BODY("\"output_config\":{\"effort\":\"low\"},", U),
     BODY("\"output_config\":{\"effort\":\"high\"},", TURN2), "LR103 /output_config/effort", NULL},
    {CHAT, "openai", BODY("\"response_format\":{\"type\":\"json_object\"},", U),
     BODY("\"response_format\": { \"type\" : \"json_object\" },", TURN2), "", NULL},
    {CHAT, "openai", BODY("\"response_format\":{\"type\":\"json_object\"},", U),
     BODY("\"response_format\":{\"type\":\"text\"},", TURN2), "LR103 /response_format", NULL},
    {RESPONSES, "openai",
     "{\"reasoning\":{\"effort\":\"low\"},\"text\":{\"format\":{\"type\":\"text\"}},\"input\":[" U "]}",
     "{\"reasoning\":{\"effort\":\"high\"},\"text\":{\"format\":{\"type\":\"json_object\"}},\"input\":[" TURN2 "]}",
     "LR103 /reasoning/effort; LR103 /text/format", NULL},
    {CHAT, "", BODY("\"temperature\":1,\"max_tokens\":5,\"stream\":true,", U),
     BODY("\"temperature\":0,\"max_tokens\":9,", TURN2), "", NULL},
    {CHAT, "", BODY("\"parallel_tool_calls\":true,", U), BODY("\"parallel_tool_calls\":false,", TURN2),
     "LR103 /parallel_tool_calls", "What it costs is not"},
    {CHAT, "openai", BODY("\"model\":\"a\",", U), BODY("\"model\":\"b\",", U), "", NULL}, /* asked again */
    /* one conversation also where the opening message holds a date, by the model's answer */
    {CHAT, "",
     BODY("\"model\":\"a\",",
          "{\"role\":\"user\",\"content\":\"Monday\"},{\"role\":\"assistant\",\"content\":\"a\"}," U),
     BODY("\"model\":\"b\",",
          "{\"role\":\"user\",\"content\":\"Tuesday\"},{\"role\":\"assistant\",\"content\":\"a\"}," U),
     "LR103 /model", NULL},
    /* images */
    {CHAT, "", BODY("", IMAGE("https://x.example/i?a=1")), BODY("", IMAGE("https://x.example/i?a=2")),
     "LR104 /messages/0/content/1/image_url/url", NULL},
    {CHAT, "", BODY("", IMAGE("https://x.example/1/i")), BODY("", IMAGE("https://x.example/2/i")),
     "LR104 /messages/0/content/1/image_url/url", NULL},
    {CHAT, "", BODY("", IMAGE("https://x.example/i")), BODY("", IMAGE("https://x.example/i")), "", NULL},
    {CHAT, "", BODY("", IMAGE("https://x.example/i")),
     BODY(
         "",
         "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"other\"},{\"type\":\"image_url\",\"image_url\":{\"url\":\"https://x.example/k\"}}]}"),
     "", NULL},
    {CHAT, "", BODY("", ""), BODY("", ""), "", NULL},
};

static void test_pairs(void **state) {
    (void)state;
    bench b;
    bench_init(&b);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const pair *p = &pairs[i];
        char notes[1024];
        read_side(&b, &b.before, p->protocol, p->before);
        read_side(&b, &b.after, p->protocol, p->after);
        lar_notes_init(&b.notes, &b.arena);
        assert_int_equal(lar_check_pair(&b.before.v, &b.after.v, lar_slice_cstr(p->provider), &b.notes), LAR_OK);
        spell(&b, &b.after, notes, sizeof notes);
        if (strcmp(notes, p->notes) != 0) print_error("%s\n", p->after);
        assert_string_equal(notes, p->notes);
        if (p->advice) assert_true(lar_slice_starts(b.notes.list[0].advice, lar_slice_cstr(p->advice)));
        /* a request beside itself shows nothing */
        lar_notes_init(&b.notes, &b.arena);
        assert_int_equal(lar_check_pair(&b.after.v, &b.after.v, lar_slice_cstr(p->provider), &b.notes), LAR_OK);
        assert_int_equal(b.notes.count, 0);
    }
    bench_release(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_placeholders), cmocka_unit_test(test_addresses),
                                       cmocka_unit_test(test_alone), cmocka_unit_test(test_place),
                                       cmocka_unit_test(test_pairs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
