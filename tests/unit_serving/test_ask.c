/* What requests may say: values that are taken, and fields that are refused with their name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit_serving/serving_box.h"

#define CHAT LAR_SERVING_CHAT
#define TEXT LAR_SERVING_COMPLETIONS

/* A request that is fine, with these fields in addition. */
static void with_fields(lar_serving_endpoint endpoint, const char *fields, char *out, size_t cap) {
    const char *base = endpoint == CHAT ? "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]" : "\"prompt\":\"hi\"";
    int n = snprintf(out, cap, "{\"model\":\"tiny\",%s%s%s}", base, *fields ? "," : "", fields);
    assert_true(n > 0 && (size_t)n < cap);
}

static void refused(const lar_serving *s, lar_serving_endpoint endpoint, const char *body, const char *param,
                    const char *code) {
    box_client c;
    char want_param[128], want_code[64];
    box_ask(s, endpoint, body, &c);
    (void)snprintf(want_param, sizeof want_param, *param ? "\"param\":\"%s\"" : "\"param\":null%s", param);
    (void)snprintf(want_code, sizeof want_code, "\"code\":\"%s\"", code);
    if (c.heads != 1 || c.head.status < 400 || !strstr(box_body(&c), want_param) || !strstr(box_body(&c), want_code))
        fail_msg("%s\nis answered with %d %s", body, c.head.status, box_body(&c));
    assert_int_equal(c.head.status, strcmp(code, "model_not_found") == 0 ? 404 : 400);
    assert_non_null(strstr(box_body(&c), "\"type\":\"invalid_request_error\""));
    assert_int_equal(box_jobs.count, 0);
    assert_int_equal(c.end.error, LAR_OK);
    assert_int_equal(c.end.status, c.head.status);
    assert_int_equal(c.answer->prompts.count, 0);
    box_clear(&c);
}

static const struct {
    lar_serving_endpoint endpoint;
    const char *fields, *param, *code;
} bad[] = {
    {CHAT, "\"temperature\":2.1", "temperature", "invalid_value"},
    {CHAT, "\"temperature\":-0.1", "temperature", "invalid_value"},
    {CHAT, "\"temperature\":\"1\"", "temperature", "invalid_type"},
    {CHAT, "\"temperature\":1e400", "temperature", "invalid_type"},
    {CHAT, "\"top_p\":1.01", "top_p", "invalid_value"},
    {CHAT, "\"top_k\":-2", "top_k", "invalid_value"},
    {CHAT, "\"top_k\":1.5", "top_k", "invalid_type"},
    {CHAT, "\"min_p\":2", "min_p", "invalid_value"},
    {CHAT, "\"presence_penalty\":-2.5", "presence_penalty", "invalid_value"},
    {CHAT, "\"frequency_penalty\":3", "frequency_penalty", "invalid_value"},
    {CHAT, "\"repetition_penalty\":0", "repetition_penalty", "invalid_value"},
    {CHAT, "\"n\":0", "n", "invalid_value"},
    {CHAT, "\"n\":17", "n", "invalid_value"},
    {CHAT, "\"n\":128", "n", "invalid_value"},
    {CHAT, "\"n\":true", "n", "invalid_type"},
    {CHAT, "\"max_tokens\":0", "max_tokens", "invalid_value"},
    {CHAT, "\"max_tokens\":-1", "max_tokens", "invalid_value"},
    {CHAT, "\"max_tokens\":99999999999999999999", "max_tokens", "invalid_type"},
    {CHAT, "\"max_tokens\":1000", "max_tokens", "context_length_exceeded"},
    {CHAT, "\"max_completion_tokens\":1000", "max_completion_tokens", "context_length_exceeded"},
    {CHAT, "\"stop\":\"\"", "stop", "invalid_value"},
    {CHAT, "\"stop\":[\"a\",\"\"]", "stop", "invalid_value"},
    {CHAT, "\"stop\":[1]", "stop", "invalid_type"},
    {CHAT, "\"stop\":{}", "stop", "invalid_type"},
    {CHAT,
     "\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\"]",
     "stop", "invalid_value"},
    {CHAT, "\"seed\":1.5", "seed", "invalid_type"},
    {CHAT, "\"seed\":9223372036854775808", "seed", "invalid_type"},
    {CHAT, "\"logprobs\":1", "logprobs", "invalid_type"},
    {CHAT, "\"logprobs\":true,\"top_logprobs\":21", "top_logprobs", "invalid_value"},
    {CHAT, "\"top_logprobs\":2", "top_logprobs", "invalid_value"},
    {CHAT, "\"logit_bias\":{\"-1\":1}", "logit_bias", "invalid_value"},
    {CHAT, "\"logit_bias\":{\"5\":1,\"6\":1,\"05\":2}", "logit_bias", "invalid_value"},
    {CHAT, "\"logit_bias\":{\"5\":1,\"5\":1}", "logit_bias", "invalid_value"},
    {CHAT, "\"logit_bias\":{\"320\":1}", "logit_bias", "invalid_value"},
    {CHAT, "\"logit_bias\":{\"2147483648\":1}", "logit_bias", "invalid_value"},
    {CHAT, "\"logit_bias\":{\"abc\":1}", "logit_bias", "invalid_value"},
    {CHAT, "\"logit_bias\":{\"\":1}", "logit_bias", "invalid_value"},
    {CHAT, "\"logit_bias\":{\"5\":101}", "logit_bias", "invalid_value"},
    {CHAT, "\"logit_bias\":{\"5\":\"1\"}", "logit_bias", "invalid_value"},
    {CHAT, "\"logit_bias\":[]", "logit_bias", "invalid_type"},
    {CHAT, "\"stream\":\"yes\"", "stream", "invalid_type"},
    {CHAT, "\"stream_options\":{\"include_usage\":true}", "stream_options", "invalid_value"},
    {CHAT, "\"stream\":true,\"stream_options\":{\"include_usage\":1}", "stream_options.include_usage", "invalid_type"},
    {CHAT, "\"stream\":true,\"stream\":true", "stream", "invalid_value"},
    {CHAT, "\"messages\":[{\"role\":\"user\",\"content\":\"other\"}]", "messages", "invalid_value"},
    {CHAT, "\"response_format\":{\"type\":\"json_object\"}", "response_format", "unsupported_value"},
    {CHAT, "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{}}", "response_format", "unsupported_value"},
    {CHAT, "\"response_format\":{\"type\":\"xml\"}", "response_format", "invalid_value"},
    {CHAT, "\"tool_choice\":\"required\"", "tool_choice", "unsupported_value"},
    {CHAT, "\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}", "tool_choice", "unsupported_value"},
    {CHAT, "\"tool_choice\":\"maybe\"", "tool_choice", "invalid_value"},
    {CHAT, "\"tools\":{}", "tools", "invalid_type"},
    {CHAT, "\"tools\":[{\"type\":\"custom\",\"custom\":{\"name\":\"f\"}}]", "tools[0].type", "unsupported_value"},
    {CHAT, "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}},{\"type\":\"function\",\"function\":{}}]",
     "tools[1].function.name", "invalid_type"},
    {CHAT, "\"tools\":[1]", "tools[0]", "invalid_type"},
    {CHAT, "\"modalities\":[\"text\",\"audio\"]", "modalities", "unsupported_value"},
    {CHAT, "\"audio\":{\"voice\":\"x\",\"format\":\"wav\"}", "audio", "unsupported_parameter"},
    {CHAT, "\"prediction\":{\"type\":\"content\",\"content\":\"x\"}", "prediction", "unsupported_parameter"},
    {CHAT, "\"web_search_options\":{\"search_context_size\":\"low\"}", "web_search_options", "unsupported_parameter"},
    {CHAT, "\"functions\":[{\"name\":\"f\"}]", "functions", "unsupported_parameter"},
    {CHAT, "\"function_call\":\"auto\"", "function_call", "unsupported_parameter"},
    {CHAT, "\"store\":true", "store", "unsupported_parameter"},
    {CHAT, "\"guided_json\":{\"type\":\"object\"}", "guided_json", "unsupported_parameter"},
    {CHAT, "\"grammar\":\"root ::= x\"", "grammar", "unsupported_parameter"},
    {CHAT, "\"min_tokens\":3", "min_tokens", "unsupported_parameter"},
    {CHAT, "\"chat_template\":\"{{ x }}\"", "chat_template", "unsupported_parameter"},
    {CHAT, "\"chat_template_kwargs\":{\"messages\":[]}", "chat_template_kwargs", "invalid_value"},
    {CHAT, "\"chat_template_kwargs\":{\"bos_token\":\"\"}", "chat_template_kwargs", "invalid_value"},
    {CHAT, "\"chat_template_kwargs\":{\"\":1}", "chat_template_kwargs", "invalid_value"},
    {CHAT, "\"chat_template_kwargs\":{\"a\\u0000b\":1}", "chat_template_kwargs", "invalid_value"},
    {CHAT, "\"chat_template_kwargs\":3", "chat_template_kwargs", "invalid_type"},
    {CHAT, "\"thinking\":{\"type\":\"perhaps\"}", "thinking", "invalid_value"},
    {CHAT, "\"thinking\":true", "thinking", "invalid_type"},
    {CHAT, "\"reasoning_effort\":\"huge\"", "reasoning_effort", "invalid_value"},
    {CHAT, "\"thinking\":{\"type\":\"enabled\"},\"reasoning_effort\":\"none\"", "reasoning_effort", "invalid_value"},
    {TEXT, "\"suffix\":\"end\"", "suffix", "unsupported_parameter"},
    {TEXT, "\"best_of\":2", "best_of", "unsupported_value"},
    {TEXT, "\"logprobs\":21", "logprobs", "invalid_value"},
    {TEXT, "\"logprobs\":true", "logprobs", "invalid_type"},
    {TEXT, "\"echo\":true,\"logprobs\":1", "echo", "unsupported_value"},
    {TEXT, "\"prompt\":\"twice\"", "prompt", "invalid_value"},
};

static void test_refused_fields(void **state) {
    char body[1024];
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        with_fields(bad[i].endpoint, bad[i].fields, body, sizeof body);
        refused(s, bad[i].endpoint, body, bad[i].param, bad[i].code);
    }
    lar_serving_free(s);
}

#define MESSAGES(text) "{\"model\":\"tiny\",\"messages\":" text "}"
#define USER "{\"role\":\"user\",\"content\":\"hi\"}"

static const struct {
    lar_serving_endpoint endpoint;
    const char *body, *param, *code;
} bad_bodies[] = {
    {CHAT, "", "", "json_syntax"},
    {CHAT, "{\"model\":\"tiny\"", "", "json_syntax"},
    {CHAT, "[]", "", "invalid_type"},
    {CHAT, "{\"messages\":[" USER "]}", "model", "missing_required_parameter"},
    {CHAT, "{\"model\":null,\"messages\":[" USER "]}", "model", "missing_required_parameter"},
    {CHAT, "{\"model\":5,\"messages\":[" USER "]}", "model", "invalid_type"},
    {CHAT, "{\"model\":\"gpt-4o\",\"messages\":[" USER "]}", "model", "model_not_found"},
    {CHAT, "{\"model\":\"tiny\"}", "messages", "missing_required_parameter"},
    {CHAT, MESSAGES("[]"), "messages", "invalid_value"},
    {CHAT, MESSAGES("\"hi\""), "messages", "invalid_type"},
    {CHAT, MESSAGES("[\"hi\"]"), "messages[0]", "invalid_type"},
    {CHAT, MESSAGES("[{\"content\":\"hi\"}]"), "messages[0].role", "missing_required_parameter"},
    {CHAT, MESSAGES("[{\"role\":1,\"content\":\"hi\"}]"), "messages[0].role", "invalid_type"},
    {CHAT, MESSAGES("[" USER ",{\"role\":\"function\",\"name\":\"f\",\"content\":\"hi\"}]"), "messages[1].role",
     "invalid_value"},
    {CHAT, MESSAGES("[{\"role\":\"User\",\"content\":\"hi\"}]"), "messages[0].role", "invalid_value"},
    {CHAT, MESSAGES("[{\"role\":\"user\"}]"), "messages[0].content", "missing_required_parameter"},
    {CHAT, MESSAGES("[{\"role\":\"user\",\"content\":null}]"), "messages[0].content", "invalid_type"},
    {CHAT, MESSAGES("[{\"role\":\"user\",\"content\":5}]"), "messages[0].content", "invalid_type"},
    {CHAT,
     MESSAGES("[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"see\"},"
              "{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:\"}}]}]"),
     "messages[0].content[1].type", "unsupported_value"},
    {CHAT, MESSAGES("[{\"role\":\"user\",\"content\":[{\"type\":\"input_audio\",\"input_audio\":{}}]}]"),
     "messages[0].content[0].type", "unsupported_value"},
    {CHAT, MESSAGES("[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]"), "messages[0].content[0].text",
     "invalid_type"},
    {CHAT, MESSAGES("[{\"role\":\"user\",\"content\":[\"hi\"]}]"), "messages[0].content[0]", "invalid_value"},
    {CHAT, MESSAGES("[{\"role\":\"user\",\"content\":\"hi\",\"name\":3}]"), "messages[0].name", "invalid_type"},
    {CHAT, MESSAGES("[{\"role\":\"user\",\"content\":\"hi\",\"tool_calls\":[{}]}]"), "messages[0].tool_calls",
     "invalid_value"},
    {CHAT,
     MESSAGES(
         "[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":{}}}]}]"),
     "messages[0].tool_calls[0]", "invalid_type"},
    {CHAT, MESSAGES("[{\"role\":\"assistant\",\"tool_calls\":3}]"), "messages[0].tool_calls", "invalid_type"},
    {CHAT,
     MESSAGES("[{\"role\":\"assistant\",\"content\":\"x\",\"prefix\":true},{\"role\":\"user\",\"content\":\"x\"}]"),
     "messages[0].prefix", "invalid_value"},
    {CHAT, MESSAGES("[{\"role\":\"assistant\",\"content\":\"x\",\"function_call\":{\"name\":\"f\"}}]"),
     "messages[0].function_call", "unsupported_parameter"},
    {CHAT,
     MESSAGES(
         "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\",\"cache_control\":{\"type\":\"x\"}}]}]"),
     "messages[0].cache_control", "invalid_value"},
    {CHAT,
     MESSAGES("[{\"role\":\"user\",\"content\":\"a\",\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"2h\"}}]"),
     "messages[0].cache_control", "invalid_value"},
    {TEXT, "{\"model\":\"tiny\"}", "prompt", "missing_required_parameter"},
    {TEXT, "{\"model\":\"tiny\",\"prompt\":5}", "prompt", "invalid_type"},
    {TEXT, "{\"model\":\"tiny\",\"prompt\":[]}", "prompt", "invalid_type"},
    {TEXT, "{\"model\":\"tiny\",\"prompt\":[{}]}", "prompt", "invalid_type"},
    {TEXT, "{\"model\":\"tiny\",\"prompt\":[\"a\",[1]]}", "prompt", "invalid_type"},
    {TEXT, "{\"model\":\"tiny\",\"prompt\":[[]]}", "prompt", "invalid_value"},
    {TEXT, "{\"model\":\"tiny\",\"prompt\":[1,320]}", "prompt", "invalid_value"},
    {TEXT, "{\"model\":\"tiny\",\"prompt\":[1,-1]}", "prompt", "invalid_value"},
    {TEXT, "{\"model\":\"tiny\",\"prompt\":[1,\"a\"]}", "prompt", "invalid_value"},
    {TEXT,
     "{\"model\":\"tiny\",\"prompt\":[\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\"]}",
     "prompt", "invalid_value"},
    {TEXT, "{\"model\":\"tiny\",\"prompt\":\"\",\"add_special_tokens\":false}", "prompt", "invalid_value"},
    {LAR_SERVING_TOKENIZE, "{\"prompt\":[\"a\"]}", "prompt", "invalid_type"},
    {LAR_SERVING_TOKENIZE, "{}", "prompt", "missing_required_parameter"},
    {LAR_SERVING_DETOKENIZE, "{}", "tokens", "missing_required_parameter"},
    {LAR_SERVING_DETOKENIZE, "{\"tokens\":[1,320]}", "tokens", "invalid_value"},
    {LAR_SERVING_DETOKENIZE, "{\"tokens\":[\"a\"]}", "tokens", "invalid_value"},
};

static void test_refused_bodies(void **state) {
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    (void)state;
    for (size_t i = 0; i < sizeof bad_bodies / sizeof *bad_bodies; i++)
        refused(s, bad_bodies[i].endpoint, bad_bodies[i].body, bad_bodies[i].param, bad_bodies[i].code);
    lar_serving_free(s);
}

/* E-07: what is no UTF-8 in a string of a body: overlong forms, surrogates, beyond U+10FFFF. */
static void test_e07_bytes_that_are_no_utf8(void **state) {
    static const char *const bytes[] = {"\xC0\x80",         "\xE0\x80\xAF",     "\xF0\x80\x80\xAF", "\xED\xA0\x80",
                                        "\xF4\x90\x80\x80", "\xF7\xBF\xBF\xBF", "\xE2\x9C",         "\x85"};
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    char body[256];
    (void)state;
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        (void)snprintf(body, sizeof body, "{\"model\":\"tiny\",\"prompt\":\"a%sb\"}", bytes[i]);
        refused(s, TEXT, body, "", "json_utf8");
    }
    lar_serving_free(s);
}

/* What the job was asked for with these fields. */
static const box_job *accepted(const lar_serving *s, lar_serving_endpoint endpoint, const char *fields, box_client *c) {
    char body[4096];
    with_fields(endpoint, fields, body, sizeof body);
    box_ask(s, endpoint, body, c);
    if (c->heads) fail_msg("%s\n%s", body, box_body(c));
    assert_int_equal(box_jobs.count, 1);
    assert_int_equal(c->answer->prompts.count, 1);
    assert_int_equal(c->answer->end.prompt_tokens, box_jobs.jobs[0].request.count);
    return &box_jobs.jobs[0];
}

static void finish(box_client *c) {
    for (uint32_t i = 0; i < box_jobs.count; i++) box_end(i, LAR_CLIENT_GONE);
    box_clear(c);
}

static void test_values(void **state) {
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    box_client c;
    (void)state;
    const lar_job_request *r =
        &accepted(s, CHAT,
                  "\"temperature\":0.5,\"top_p\":0,\"top_k\":-1,\"min_p\":0.25,\"n\":3,\"seed\":-2,"
                  "\"max_tokens\":7,\"max_completion_tokens\":9,\"presence_penalty\":-2,"
                  "\"frequency_penalty\":1.5,\"repetition_penalty\":1.25,\"logprobs\":true,"
                  "\"top_logprobs\":20,\"logit_bias\":{\"7\":-100,\"319\":2.5}",
                  &c)
             ->request;
    assert_float_equal(r->sampling.temperature, 0.5, 0);
    assert_true(r->sampling.top_p > 0 && r->sampling.top_p < 1e-6);
    assert_int_equal(r->sampling.top_k, 0);
    assert_float_equal(r->sampling.min_p, 0.25, 0);
    assert_float_equal(r->sampling.presence, -2, 0);
    assert_float_equal(r->sampling.frequency, 1.5, 0);
    assert_float_equal(r->sampling.repetition, 1.25, 0);
    assert_int_equal(r->sampling.logprobs, 20);
    assert_true(r->sampling.seed == (uint64_t)-2);
    assert_int_equal(r->sampling.bias_count, 2);
    assert_int_equal(r->sampling.biases[1].id, 319);
    assert_float_equal(r->sampling.biases[0].bias, -100, 0);
    assert_int_equal(r->samples, 3);
    assert_int_equal(r->answer_max, 9);
    assert_int_equal(r->tenant, 5);
    assert_int_equal(r->queue_ms_max, 250);
    assert_int_equal(r->end_count, 1);
    assert_int_equal(r->ends[0], BOX_EOS);
    finish(&c);
    lar_serving_free(s);
}

/* Absent, null and what is known to change nothing: the defaults of the model. */
static void test_defaults(void **state) {
    static const struct {
        lar_serving_endpoint endpoint;
        const char *fields;
    } rows[] = {
        {CHAT, ""},
        {CHAT, "\"temperature\":null,\"n\":null,\"stop\":null,\"seed\":null,\"max_tokens\":null,\"logit_bias\":null"},
        {CHAT,
         "\"user\":\"u\",\"metadata\":{\"a\":\"b\"},\"store\":false,\"service_tier\":\"auto\",\"cache_salt\":\"x\""},
        {CHAT, "\"prompt_cache_key\":\"k\",\"modalities\":[\"text\"],\"response_format\":{\"type\":\"text\"}"},
        {CHAT, "\"functions\":[],\"audio\":null,\"prediction\":{},\"min_tokens\":0,\"tools\":[],\"stop\":[]"},
        {CHAT, "\"x_new_param\":{\"deep\":[1]},\"api_base\":\"http://127.0.0.1:1/\",\"suffix\":\"completions only\""},
        {CHAT, "\"tool_choice\":\"auto\",\"parallel_tool_calls\":true,\"logprobs\":false,\"stream_options\":null"},
        {CHAT, "\"reasoning_effort\":\"low\",\"chat_template_kwargs\":{\"enable_thinking\":false,\"other\":[1,{}]}"},
        {TEXT, "\"best_of\":1,\"n\":1,\"suffix\":null,\"logprobs\":null,\"echo\":false,\"max_tokens\":16"},
    };
    lar_serving *s = box_serving(&(box_options){.calls = LAR_OUTPUT_FORMAT_V31});
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        box_client c;
        const lar_job_request *r = &accepted(s, rows[i].endpoint, rows[i].fields, &c)->request;
        assert_float_equal(r->sampling.temperature, 1, 0);
        assert_float_equal(r->sampling.top_p, 1, 0);
        assert_int_equal(r->sampling.bias_count, 0);
        assert_int_equal(r->samples, 1);
        assert_int_equal(r->answer_max, rows[i].endpoint == CHAT ? 0 : 16);
        assert_int_equal(r->mark_count, 0);
        assert_int_equal(r->end_count, 1);
        finish(&c);
    }
    lar_serving_free(s);
}

/* The seed of a request without one is the caller's randomness, and no other request's. */
static void test_seed_is_random_where_absent(void **state) {
    lar_serving *s = box_serving(&(box_options){.no_thinking = true});
    uint64_t seeds[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        box_client c;
        const lar_serving_ask ask = {.endpoint = TEXT,
                                     .body = LAR_SLICE("{\"model\":\"tiny\",\"prompt\":\"a\",\"ignore_eos\":true}"),
                                     .random = 7 + (uint64_t)i};
        box_prepare(s, &ask, &c);
        lar_answer_start(c.answer, (lar_scheduler *)&box_jobs);
        seeds[i] = box_jobs.jobs[0].request.sampling.seed;
        assert_int_equal(box_jobs.jobs[0].request.end_count, 0);
        finish(&c);
    }
    assert_true(seeds[0] != seeds[1]);
    lar_serving_free(s);
}

/* A model without marks, without a place for tools, without a template at all. */
static void test_what_a_model_cannot(void **state) {
    const char *tools = "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]";
    char body[512], more[256];
    box_client c;
    (void)state;
    lar_serving *s = box_serving(&(box_options){.chat = "{{ messages[0].content }}", .any_model = true});
    with_fields(CHAT, tools, body, sizeof body);
    refused(s, CHAT, body, "tools", "unsupported_parameter");
    with_fields(CHAT, "\"thinking\":{\"type\":\"enabled\"}", body, sizeof body);
    refused(s, CHAT, body, "thinking", "unsupported_parameter");
    with_fields(CHAT, "\"reasoning_effort\":\"none\"", body, sizeof body);
    refused(s, CHAT, body, "reasoning_effort", "unsupported_parameter");
    box_ask(s, CHAT, "{\"model\":\"whatever\",\"messages\":[" USER "]}", &c);
    assert_int_equal(box_jobs.count, 1);
    finish(&c);
    lar_serving_free(s);

    s = box_serving(&(box_options){.no_thinking = true}); /* tools in the template, calls in no form that is read */
    with_fields(CHAT, tools, body, sizeof body);
    refused(s, CHAT, body, "tools", "unsupported_parameter");
    (void)snprintf(more, sizeof more, "%s,\"tool_choice\":\"none\"", tools);
    (void)accepted(s, CHAT, more, &c);
    finish(&c);
    lar_serving_free(s);

    s = box_serving(&(box_options){.chat = "{{ messages[0].content }}", .no_thinking = true});
    (void)accepted(s, CHAT, "\"thinking\":{\"type\":\"disabled\"}", &c); /* there is nothing to disable */
    finish(&c);
    lar_serving_free(s);

    s = box_serving(&(box_options){.chat = "{{ raise_exception('turns must alternate') }}"});
    with_fields(CHAT, "", body, sizeof body);
    refused(s, CHAT, body, "messages", "invalid_value");
    lar_serving_free(s);

    s = box_serving(&(box_options){.samples_max = 2, .no_thinking = true});
    with_fields(CHAT, "\"n\":3", body, sizeof body);
    refused(s, CHAT, body, "n", "invalid_value");
    (void)accepted(s, CHAT, "\"n\":2", &c);
    finish(&c);
    lar_serving_free(s);

    s = box_serving(&(box_options){.chat = ""});
    refused(s, CHAT, body, "messages", "unsupported_parameter");
    lar_serving_free(s);
}

static void test_paths(void **state) {
    static const struct {
        const char *method, *path;
        lar_error error;
        lar_serving_endpoint endpoint;
        const char *id;
    } rows[] = {
        {"POST", "/v1/chat/completions", LAR_OK, CHAT, ""},
        {"POST", "/chat/completions", LAR_OK, CHAT, ""},
        {"POST", "/v1/completions", LAR_OK, TEXT, ""},
        {"POST", "/tokenize", LAR_OK, LAR_SERVING_TOKENIZE, ""},
        {"POST", "/v1/detokenize", LAR_OK, LAR_SERVING_DETOKENIZE, ""},
        {"GET", "/v1/models", LAR_OK, LAR_SERVING_MODELS, ""},
        {"GET", "/v1/models/deepseek-ai/V3", LAR_OK, LAR_SERVING_MODEL, "deepseek-ai/V3"},
        {"GET", "/v1/models/", LAR_NO_ROUTE, CHAT, ""},
        {"GET", "/v1/chat/completions", LAR_METHOD, CHAT, ""},
        {"DELETE", "/v1/models/tiny", LAR_METHOD, LAR_SERVING_MODEL, "tiny"},
        {"POST", "/v1/embeddings", LAR_NO_ROUTE, CHAT, ""},
        {"POST", "/v2/completions", LAR_NO_ROUTE, CHAT, ""},
        {"POST", "", LAR_NO_ROUTE, CHAT, ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lar_serving_endpoint endpoint = CHAT;
        lar_slice id;
        lar_error e = lar_serving_find(lar_slice_cstr(rows[i].method), lar_slice_cstr(rows[i].path), &endpoint, &id);
        assert_int_equal(e, rows[i].error);
        assert_int_equal(endpoint, rows[i].endpoint);
        assert_true(lar_slice_eq_cstr(id, rows[i].id));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_fields),
        cmocka_unit_test(test_refused_bodies),
        cmocka_unit_test(test_e07_bytes_that_are_no_utf8),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_seed_is_random_where_absent),
        cmocka_unit_test(test_what_a_model_cannot),
        cmocka_unit_test(test_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
