/* Usage: every provider's spelling, streams and whole answers, errors, ends. */
#include "tests/unit_http1/usage_expect.h"

/* -- spellings ---------------------------------------------------------------------------------------- */

static void spellings_of_whole_answers(void **s) {
    (void)s;
    expect_body(
        CHAT,
        "{\"choices\":[],\"usage\":{\"prompt_tokens\":1000,\"completion_tokens\":50,\"total_tokens\":1050,"
        "\"prompt_cache_hit_tokens\":896,\"prompt_cache_miss_tokens\":104,"
        "\"completion_tokens_details\":{\"reasoning_tokens\":20},\"prompt_tokens_details\":{\"cached_tokens\":896}}}",
        LAR_SPELLING_DEEPSEEK, (want){1000, 896, 104, N, 50, 20});
    expect_body(CHAT,
                "{\"usage\":{\"prompt_tokens\":2006,\"completion_tokens\":300,\"total_tokens\":2306,"
                "\"prompt_tokens_details\":{\"cached_tokens\":1920,\"audio_tokens\":0}}}",
                LAR_SPELLING_OPENAI_CHAT, (want){2006, 1920, 86, N, 300, N});
    expect_body(CHAT,
                "{\"usage\":{\"prompt_tokens\":2000,\"completion_tokens\":3,"
                "\"prompt_tokens_details\":{\"cached_tokens\":1024,\"cache_write_tokens\":900}}}",
                LAR_SPELLING_OPENAI_CHAT, (want){2000, 1024, 976, 900, 3, N});
    expect_body(RESPONSES,
                "{\"object\":\"response\",\"status\":\"completed\",\"error\":null,\"output\":[],"
                "\"usage\":{\"input_tokens\":300,\"input_tokens_details\":{\"cached_tokens\":128},\"output_tokens\":9,"
                "\"output_tokens_details\":{\"reasoning_tokens\":4},\"total_tokens\":309}}",
                LAR_SPELLING_OPENAI_RESPONSES, (want){300, 128, 172, N, 9, 4});
    expect_body(CHAT, "{\"usage\":{\"prompt_tokens\":700,\"completion_tokens\":5,\"cached_tokens\":512}}",
                LAR_SPELLING_TOP_CACHED, (want){700, 512, 188, N, 5, N});
    expect_body(MESSAGES,
                "{\"type\":\"message\",\"content\":[],\"usage\":{\"input_tokens\":100,\"output_tokens\":57,"
                "\"cache_read_input_tokens\":900,\"cache_creation_input_tokens\":40,"
                "\"cache_creation\":{\"ephemeral_5m_input_tokens\":40,\"ephemeral_1h_input_tokens\":0}}}",
                LAR_SPELLING_ANTHROPIC, (want){1040, 900, 140, 40, 57, N});
    expect_body(MESSAGES,
                "{\"usage\":{\"input_tokens\":10,\"output_tokens\":1,\"cache_read_input_tokens\":90,"
                "\"cache_creation\":{\"ephemeral_5m_input_tokens\":30,\"ephemeral_1h_input_tokens\":5}}}",
                LAR_SPELLING_ANTHROPIC, (want){135, 90, 45, 35, 1, N});
    expect_body(LAR_PROTOCOL_NONE,
                "{\"candidates\":[],\"usageMetadata\":{\"promptTokenCount\":400,\"cachedContentTokenCount\":256,"
                "\"candidatesTokenCount\":20,\"thoughtsTokenCount\":11,\"totalTokenCount\":431}}",
                LAR_SPELLING_GEMINI, (want){400, 256, 144, N, 31, 11});
    expect_body(
        LAR_PROTOCOL_NONE,
        "{\"usage\":{\"inputTokens\":10,\"outputTokens\":4,\"cacheReadInputTokens\":80,\"cacheWriteInputTokens\":6}}",
        LAR_SPELLING_ANTHROPIC, (want){96, 80, 16, 6, 4, N});
    expect_body(
        LAR_PROTOCOL_EMBEDDINGS,
        "{\"object\":\"list\",\"data\":[{\"embedding\":[0.1]}],\"usage\":{\"prompt_tokens\":8,\"total_tokens\":8}}",
        LAR_SPELLING_PLAIN, (want){8, N, N, N, N, N});
}

static void absent_is_unknown(void **s) {
    (void)s;
    lar_usage u;
    body(&u, CHAT, "{\"choices\":[{\"message\":{\"content\":\"hi\"}}]}");
    assert_false(u.seen);
    assert_int_equal(u.spelling, LAR_SPELLING_NONE);
    assert_true(u.content_seen && u.finished && u.done);
    expect_tokens(&u, (want){N, N, N, N, N, N}, false);
    lar_usage_release(&u);
    expect_body(CHAT, "{\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":2,\"prompt_tokens_details\":null}}",
                LAR_SPELLING_PLAIN, (want){10, N, N, N, 2, N});
    expect_body(
        CHAT,
        "{\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":null}}}",
        LAR_SPELLING_PLAIN, (want){10, N, N, N, 2, N});
    expect_body(
        CHAT,
        "{\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":0}}}",
        LAR_SPELLING_OPENAI_CHAT, (want){10, 0, 10, N, 2, N});
    expect_body(CHAT, "{\"usage\":{\"prompt_cache_hit_tokens\":7,\"prompt_cache_miss_tokens\":3}}",
                LAR_SPELLING_DEEPSEEK, (want){10, 7, 3, N, N, N});
    expect_body(CHAT, "{\"usage\":{\"prompt_tokens\":10,\"prompt_cache_miss_tokens\":3}}", LAR_SPELLING_DEEPSEEK,
                (want){10, 7, 3, N, N, N});
    body(&u, CHAT, "{\"usage\":{}}");
    assert_false(u.seen);
    lar_usage_release(&u);
    body(&u, CHAT, "{\"usage\":null}");
    assert_false(u.seen || u.odd);
    lar_usage_release(&u);
}

static void u09_inside_and_beside(void **s) {
    (void)s;
    expect_body(
        CHAT,
        "{\"usage\":{\"prompt_tokens\":1000,\"completion_tokens\":1,\"prompt_tokens_details\":{\"cached_tokens\":900}}}",
        LAR_SPELLING_OPENAI_CHAT, (want){1000, 900, 100, N, 1, N});
    expect_body(
        MESSAGES,
        "{\"usage\":{\"input_tokens\":100,\"cache_read_input_tokens\":900,\"cache_creation_input_tokens\":0,\"output_tokens\":1}}",
        LAR_SPELLING_ANTHROPIC, (want){1000, 900, 100, 0, 1, N});
    /* Upstreams that translate write both; prompt_tokens is the whole. */
    expect_body(
        CHAT,
        "{\"usage\":{\"prompt_tokens\":1000,\"completion_tokens\":1,\"prompt_tokens_details\":{\"cached_tokens\":900},"
        "\"cache_read_input_tokens\":900,\"cache_creation_input_tokens\":50}}",
        LAR_SPELLING_OPENAI_CHAT, (want){1000, 900, 100, 50, 1, N});
    expect_body(MESSAGES, "{\"usage\":{\"input_tokens\":25,\"output_tokens\":15}}", LAR_SPELLING_PLAIN,
                (want){25, N, N, N, 15, N});
}

static void a_profile_can_say_which(void **s) {
    (void)s;
    static const char text[] =
        "{\"usage\":{\"input_tokens\":1000,\"cache_read_input_tokens\":900,\"output_tokens\":1}}";
    lar_usage u;
    lar_usage_init(&u, LAR_USAGE_INCLUDED);
    lar_usage_body(&u, MESSAGES, lar_slice_cstr(text));
    expect_tokens(&u, (want){1000, 900, 100, N, 1, N}, false);
    lar_usage_reset(&u, LAR_USAGE_BESIDE);
    lar_usage_body(&u, MESSAGES, lar_slice_cstr(text));
    expect_tokens(&u, (want){1900, 900, 1000, N, 1, N}, false);
    assert_int_equal(u.raw.prompt, 1000);
    lar_usage_reset(&u, LAR_USAGE_BESIDE);
    lar_usage_body(&u, CHAT, LAR_SLICE("{\"usage\":{\"prompt_tokens\":100,\"cached_tokens\":900}}"));
    expect_tokens(&u, (want){1000, 900, 100, N, N, N}, false);
    lar_usage_release(&u);
}

/* -- streams ------------------------------------------------------------------------------------------ */

static void u01_cumulative_output(void **s) {
    (void)s;
    lar_usage u;
    stream(
        &u, MESSAGES,
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n"
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\n"
        "event: ping\ndata: {\"type\":\"ping\"}\n\n"
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":15}}\n\n"
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        "fffff");
    expect_tokens(&u, (want){25, N, N, N, 15, N}, false);
    assert_true(u.finished && u.done && u.content_seen);
    assert_false(u.error_seen || u.odd);
    lar_usage_release(&u);
}

static void u02_repeated_usage(void **s) {
    (void)s;
    lar_usage u;
    stream(
        &u, MESSAGES,
        DATA(
            "{\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":100,\"cache_creation_input_tokens\":40,\"cache_read_input_tokens\":900,\"output_tokens\":4}}}")
            DATA("{\"type\":\"content_block_delta\",\"delta\":{\"text\":\"x\"}}") DATA(
                "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"input_tokens\":100,\"cache_creation_input_tokens\":40,\"cache_read_input_tokens\":900,\"output_tokens\":57}}"),
        "fff");
    expect_tokens(&u, (want){1040, 900, 140, 40, 57, N}, false);
    assert_true(u.finished && !u.done);
    assert_int_equal(u.raw.prompt, 100);
    lar_usage_release(&u);
}

static void u03_usage_on_every_chunk(void **s) {
    (void)s;
    lar_usage u;
    lar_usage_init(&u, LAR_USAGE_BY_SPELLING);
    for (int i = 1; i <= 50; i++) {
        char text[256];
        int n = snprintf(
            text, sizeof text,
            "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}],\"usage\":{\"prompt_tokens\":64,\"completion_tokens\":%d}}",
            i);
        assert_int_equal(lar_usage_event(&u, CHAT, (lar_slice){0}, lar_slice_of(text, (size_t)n)), LAR_USAGE_OTHER);
    }
    expect_tokens(&u, (want){64, N, N, N, 50, N}, false);
    lar_usage_release(&u);
}

static void u06_client_left_after_finish(void **s) {
    (void)s;
    lar_usage u;
    stream(&u, CHAT, TEXT("a") FINISH, "ff");
    assert_true(u.finished && !u.done && !u.seen);
    lar_usage_release(&u);
}

static void u12_same_usage_in_both_modes(void **s) {
    (void)s;
#define SAME                                                                                                           \
    "\"usage\":{\"prompt_tokens\":1000,\"completion_tokens\":7,\"prompt_cache_hit_tokens\":896,\"prompt_cache_miss_tokens\":104}"
    lar_usage whole, streamed;
    lar_tokens a, b;
    body(&whole, CHAT, "{\"choices\":[{\"message\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]," SAME "}");
    stream(&streamed, CHAT, TEXT("x") FINISH DATA("{\"choices\":[]," SAME "}") DONE, "ffud");
    (void)lar_usage_tokens(&whole, &a);
    (void)lar_usage_tokens(&streamed, &b);
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(whole.spelling, streamed.spelling);
    lar_usage_release(&whole);
    lar_usage_release(&streamed);
}

static void s08_usage_chunk(void **s) {
    (void)s;
    lar_usage u;
    stream(&u, CHAT,
           TEXT("a") TEXT("b") FINISH DATA("{\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2}}")
               DONE,
           "fffud");
    expect_tokens(&u, (want){5, N, N, N, 2, N}, false);
    assert_true(u.finished && u.done && u.content_seen);
    lar_usage_release(&u);
}

static void s09_empty_choices_first(void **s) {
    (void)s;
    lar_usage u;
    stream(&u, CHAT,
           DATA("{\"choices\":[],\"prompt_filter_results\":[{}]}") DATA("{\"choices\":null}") DATA("{\"id\":\"x\"}")
               DATA("{\"choices\":[],\"usage\":null}") TEXT("a"),
           "fffff");
    assert_false(u.finished || u.done || u.seen || u.odd);
    assert_true(u.content_seen);
    lar_usage_release(&u);
}

static void s11_ends(void **s) {
    (void)s;
    lar_usage u;
    stream(&u, CHAT, TEXT("a") TEXT("b"), "ff");
    assert_true(u.content_seen && !u.finished && !u.done);
    lar_usage_release(&u);
    stream(
        &u, CHAT,
        DATA(
            "{\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}"),
        "f");
    assert_false(u.content_seen || u.finished);
    lar_usage_release(&u);
    stream(&u, LAR_PROTOCOL_COMPLETIONS,
           DATA("{\"choices\":[{\"text\":\"a\",\"index\":0,\"finish_reason\":\"length\"}]}"), "f");
    assert_true(u.content_seen && u.finished && !u.done);
    lar_usage_release(&u);
    stream(&u, CHAT,
           DATA("{\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0}]},\"finish_reason\":null}]}"),
           "f");
    assert_true(u.content_seen);
    lar_usage_release(&u);
}

static void s15_errors_in_band(void **s) {
    (void)s;
    static const char *const errors[] = {
        "{\"error\":{\"message\":\"x\",\"code\":502}}",
        "{\"error\":\"text\"}",
        "{\"object\":\"error\",\"message\":\"x\"}",
        "{\"detail\":\"Not found\"}",
        "{\"detail\":[{\"loc\":[]}]}",
        "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}",
        "{\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"x\"}}}",
        "{\"choices\":[{\"delta\":{\"content\":\"\"},\"finish_reason\":\"error\"}],\"error\":{\"code\":429}}"};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        char text[1024];
        lar_usage u;
        assert_true(snprintf(text, sizeof text, "%sdata: %s\n\n", TEXT("a") TEXT("b"), errors[i]) < (int)sizeof text);
        stream(&u, CHAT, text, "fff");
        assert_true(u.error_seen && u.content_seen && !u.odd);
        lar_usage_release(&u);
        body(&u, CHAT, errors[i]); /* H-47 */
        assert_true(u.error_seen);
        lar_usage_release(&u);
    }
}

static void words_in_content_are_no_errors(void **s) {
    (void)s;
    static const char *const texts[] = {
        "{\"choices\":[{\"delta\":{\"content\":\"{\\\"error\\\":{}}\"}}]}",
        "{\"choices\":[{\"delta\":{\"content\":\"error\"}}]}",
        "{\"choices\":[{\"delta\":{\"content\":\"usage\"}}],\"error\":null}",
        "{\"choices\":[],\"error\":\"\",\"detail\":\"x\"}",
        "{\"choices\":[{\"delta\":{\"content\":\"b\"}}],\"error\":{}}",
        "{\"error\" : { }}",
        "{\"choices\":[{\"delta\":{\"content\":\"b\"}}],\"error\":[],\"detail\":{}}",
        "{\"type\":\"response.created\",\"response\":{\"status\":\"in_progress\",\"error\":{}}}",
        "{\"choices\":[{\"delta\":{\"content\":\"[DONE]\"}}],\"error\":false}",
        "{\"choices\":[{\"message\":{\"detail\":\"x\"}}]}",
        "{\"type\":\"response.created\",\"response\":{\"status\":\"in_progress\",\"error\":null,\"usage\":null}}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char text[1024];
        lar_usage u;
        assert_true(snprintf(text, sizeof text, "%sdata: %s\n\n", TEXT("a"), texts[i]) < (int)sizeof text);
        stream(&u, CHAT, text, "ff");
        assert_false(u.error_seen || u.finished || u.done || u.seen || u.odd);
        lar_usage_release(&u);
    }
}

static void r10_error_event(void **s) {
    (void)s;
    lar_usage u;
    stream(
        &u, MESSAGES,
        DATA(
            "{\"type\":\"content_block_delta\",\"delta\":{\"text\":\"x\"}}") "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n",
        "ff");
    assert_true(u.error_seen && !u.finished && !u.done);
    lar_usage_release(&u);
    stream(&u, MESSAGES, "event: error\ndata: plain words\n\n", "f");
    assert_true(u.error_seen);
    lar_usage_release(&u);
}

static void s17_no_objects(void **s) {
    (void)s;
    lar_usage u;
    stream(&u, CHAT,
           DATA("null") TEXT("a") DATA("null") DATA("\"\"") DATA("1") DATA("[]")
               DATA("{\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2}}") DATA("null") DONE,
           "ffffffufd");
    expect_tokens(&u, (want){5, N, N, N, 2, N}, false);
    assert_false(u.odd || u.error_seen);
    lar_usage_release(&u);
}

static void s19_usage_beside_the_finish(void **s) {
    (void)s;
    lar_usage u;
    stream(
        &u, CHAT,
        TEXT("a") DATA(
            "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3,\"prompt_cache_hit_tokens\":4,\"prompt_cache_miss_tokens\":5}}")
            DONE,
        "ffd");
    expect_tokens(&u, (want){9, 4, 5, N, 3, N}, false);
    assert_true(u.finished);
    lar_usage_release(&u);
    stream(&u, CHAT,
           TEXT("a") DATA("{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3}}") FINISH DONE,
           "fufd");
    expect_tokens(&u, (want){9, N, N, N, 3, N}, false);
    lar_usage_release(&u);
}

static void s21_one_broken_event(void **s) {
    (void)s;
    lar_usage u;
    stream(&u, CHAT,
           TEXT("a") DATA("{\"choices\":[{\"delta\":") TEXT("b")
               FINISH DATA("{\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2}}") DONE,
           "ffffud");
    assert_true(u.odd && u.finished && u.done && !u.error_seen);
    expect_tokens(&u, (want){5, N, N, N, 2, N}, false);
    lar_usage_release(&u);
}

static void s22_many_empty_chunks(void **s) {
    (void)s;
    lar_usage u;
    stream(&u, CHAT,
           TEXT("a") FINISH DATA("{\"id\":\"\",\"model\":\"\",\"choices\":[]}")
               DATA("{\"id\":\"\",\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2}}")
                   DATA("{\"choices\":[],\"cost\":\"0.1\"}") DONE,
           "fffufd");
    expect_tokens(&u, (want){5, N, N, N, 2, N}, false);
    lar_usage_release(&u);
}

static void a_failed_chunk_is_never_withheld(void **s) {
    (void)s;
    lar_usage u;
    stream(&u, CHAT, DATA("{\"choices\":[],\"error\":{\"message\":\"x\"},\"usage\":{\"prompt_tokens\":5}}"), "f");
    lar_usage_release(&u);
    stream(&u, RESPONSES, DATA("{\"choices\":[],\"usage\":{\"prompt_tokens\":5}}"), "f");
    lar_usage_release(&u);
}

static void responses_events(void **s) {
    (void)s;
    lar_usage u;
    stream(
        &u, RESPONSES,
        "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"status\":\"in_progress\",\"error\":null,\"usage\":null}}\n\n"
        "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"Hi\"}\n\n"
        "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"error\":null,\"usage\":{\"input_tokens\":300,\"input_tokens_details\":{\"cached_tokens\":128},\"output_tokens\":9,\"output_tokens_details\":{\"reasoning_tokens\":0}}}}\n\n",
        "fff");
    expect_tokens(&u, (want){300, 128, 172, N, 9, 0}, false);
    assert_true(u.finished && u.done && u.content_seen && !u.error_seen);
    lar_usage_release(&u);
    stream(
        &u, RESPONSES,
        DATA(
            "{\"type\":\"response.incomplete\",\"response\":{\"status\":\"incomplete\",\"error\":null,\"usage\":{\"input_tokens\":3,\"output_tokens\":9}}}"),
        "f");
    assert_true(u.done && !u.error_seen);
    lar_usage_release(&u);
    body(&u, RESPONSES, "{\"object\":\"response\",\"status\":\"failed\",\"error\":null}");
    assert_true(u.error_seen);
    lar_usage_release(&u);
}

static void other_places_of_usage(void **s) {
    (void)s;
    lar_usage u;
    stream(
        &u, CHAT,
        DATA(
            "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\",\"usage\":{\"prompt_tokens\":19,\"completion_tokens\":13,\"cached_tokens\":12}}]}"),
        "f");
    expect_tokens(&u, (want){19, 12, 7, N, 13, N}, false);
    lar_usage_release(&u);
    stream(
        &u, CHAT,
        TEXT("a") DATA(
            "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"x_groq\":{\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}}"),
        "ff");
    expect_tokens(&u, (want){3, N, N, N, 2, N}, false);
    lar_usage_release(&u);
    stream(
        &u, LAR_PROTOCOL_NONE,
        DATA(
            "{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]}}],\"usageMetadata\":{\"promptTokenCount\":8,\"candidatesTokenCount\":1}}")
            DATA(
                "{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"b\"}]},\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":8,\"candidatesTokenCount\":6}}"),
        "ff");
    expect_tokens(&u, (want){8, N, N, N, 6, N}, false);
    assert_true(u.content_seen && u.finished);
    lar_usage_release(&u);
}

static void later_null_keeps_the_earlier_value(void **s) {
    (void)s;
    lar_usage u;
    stream(
        &u, CHAT,
        TEXT("a") DATA(
            "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":4}}}")
            DATA(
                "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4,\"prompt_tokens_details\":null}}")
                DATA("{\"choices\":[],\"usage\":null}"),
        "fuuf");
    expect_tokens(&u, (want){9, 4, 5, N, 4, N}, false);
    assert_int_equal(u.spelling, LAR_SPELLING_OPENAI_CHAT);
    lar_usage_release(&u);
}

/* -- several choices ---------------------------------------------------------------------------------- */

static void choice(lar_usage *u, int index, int output, const char *text) {
    char json[256];
    int n = snprintf(
        json, sizeof json,
        "{\"choices\":[{\"index\":%d,\"delta\":{\"content\":\"%s\"}}],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":%d}}",
        index, text, output);
    (void)lar_usage_event(u, CHAT, (lar_slice){0}, lar_slice_of(json, (size_t)n));
}

static void j20_output_counted_by_choice(void **s) {
    (void)s;
    lar_usage u;
    lar_usage_init(&u, LAR_USAGE_BY_SPELLING);
    for (int i = 1; i <= 5; i++) {
        choice(&u, 0, i, "a");
        choice(&u, 1, i, "b");
    }
    choice(&u, 1, 6, "b");
    choice(&u, 0, 5, "");
    choice(&u, 1, 6, "");
    expect_tokens(&u, (want){10, N, N, N, 11, N}, false);
    /* A total at the end is the word that counts. */
    (void)lar_usage_event(&u, CHAT, (lar_slice){0},
                          LAR_SLICE("{\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":12}}"));
    expect_tokens(&u, (want){10, N, N, N, 12, N}, false);
    lar_usage_release(&u);
}

static void j20_output_counted_in_all(void **s) {
    (void)s;
    lar_usage u;
    lar_usage_init(&u, LAR_USAGE_BY_SPELLING);
    for (int i = 1; i <= 5; i++) {
        choice(&u, 0, 2 * i - 1, "a");
        choice(&u, 1, 2 * i, "b");
    }
    choice(&u, 0, 10, "");
    choice(&u, 1, 10, "");
    expect_tokens(&u, (want){10, N, N, N, 10, N}, false);
    lar_usage_release(&u);
}

static void choices_beyond_the_table(void **s) {
    (void)s;
    lar_usage u;
    lar_usage_init(&u, LAR_USAGE_BY_SPELLING);
    choice(&u, 127, 3, "a");
    choice(&u, 2147483647, 4, "a");
    choice(&u, -1, 5, "a");
    expect_tokens(&u, (want){10, N, N, N, 5, N}, false);
    lar_usage_release(&u);
}

/* -- bodies ------------------------------------------------------------------------------------------- */

static void j18_blank_lines_and_bom_before_a_body(void **s) {
    (void)s;
    lar_usage u;
    body(&u, CHAT, "\n\n\r\n \n{\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n");
    expect_tokens(&u, (want){1, N, N, N, 2, N}, false);
    lar_usage_release(&u);
    body(&u, CHAT, "\n\xef\xbb\xbf\n{\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}");
    expect_tokens(&u, (want){1, N, N, N, 2, N}, false);
    assert_false(u.odd);
    lar_usage_release(&u);
}

static void bodies_that_are_no_answers(void **s) {
    (void)s;
    lar_usage u;
    body(&u, CHAT, "");
    assert_false(u.odd || u.done);
    lar_usage_release(&u);
    body(&u, CHAT, "   ");
    assert_false(u.odd || u.done);
    lar_usage_release(&u);
    body(&u, CHAT, "<html>");
    assert_true(u.odd && !u.done);
    lar_usage_release(&u);
    body(&u, CHAT, "{\"usage\":{\"prompt_tokens\":1");
    assert_true(u.odd && !u.seen);
    lar_usage_release(&u);
    body(&u, CHAT, "[1]");
    assert_false(u.odd || u.done);
    lar_usage_release(&u);
}

/* An answer of `count` numbers with its usage at the end. */
static char *many_numbers(size_t count, size_t *len) {
    lar_buf b;
    lar_buf_init(&b, 64 << 20);
    assert_false(lar_buf_printf(&b, "{\"object\":\"list\",\"data\":[{\"usage\":{\"x\":1},\"embedding\":[0"));
    for (size_t i = 1; i < count; i++) assert_false(lar_buf_printf(&b, ",%zu", i % 10));
    assert_false(lar_buf_printf(
        &b, "]}],\"usage\" : {\"prompt_tokens\":8,\"note\":\"}\\\"{\",\"total_tokens\":8},\"model\":\"e\"}"));
    *len = b.len;
    return b.ptr;
}

static void large_embeddings(void **s) {
    (void)s;
    static const lar_protocol protocols[] = {LAR_PROTOCOL_EMBEDDINGS, LAR_PROTOCOL_NONE};
    static const size_t counts[] = {10, 100000, 400000};
    for (size_t i = 0; i < 6; i++) {
        lar_usage u;
        size_t len;
        char *text = many_numbers(counts[i / 2], &len);
        lar_usage_init(&u, LAR_USAGE_BY_SPELLING);
        lar_usage_body(&u, protocols[i % 2], lar_slice_of(text, len));
        expect_tokens(&u, (want){8, N, N, N, N, N}, false);
        assert_true(u.done && u.content_seen && !u.odd && !u.error_seen);
        lar_usage_reset(&u, LAR_USAGE_BY_SPELLING);
        assert_true(u.json.nodes_cap <= 4096);
        lar_usage_release(&u);
        free(text);
    }
}

static void duplicates_are_read_as_clients_read_them(void **s) {
    (void)s;
    expect_body(CHAT, "{\"usage\":{\"prompt_tokens\":1},\"usage\":{\"prompt_tokens\":2,\"prompt_tokens\":3}}",
                LAR_SPELLING_PLAIN, (want){3, N, N, N, N, N});
}

static void reset_forgets(void **s) {
    (void)s;
    lar_usage u;
    body(&u, CHAT, "{\"error\":{},\"usage\":{\"input_tokens\":1,\"cache_read_input_tokens\":5}}");
    lar_usage_reset(&u, LAR_USAGE_BY_SPELLING);
    assert_false(u.seen || u.error_seen || u.finished || u.done || u.content_seen || u.odd || u.beside);
    expect_tokens(&u, (want){N, N, N, N, N, N}, false);
    lar_usage_release(&u);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spellings_of_whole_answers),
        cmocka_unit_test(absent_is_unknown),
        cmocka_unit_test(u09_inside_and_beside),
        cmocka_unit_test(a_profile_can_say_which),
        cmocka_unit_test(u01_cumulative_output),
        cmocka_unit_test(u02_repeated_usage),
        cmocka_unit_test(u03_usage_on_every_chunk),
        cmocka_unit_test(u06_client_left_after_finish),
        cmocka_unit_test(u12_same_usage_in_both_modes),
        cmocka_unit_test(s08_usage_chunk),
        cmocka_unit_test(s09_empty_choices_first),
        cmocka_unit_test(s11_ends),
        cmocka_unit_test(s15_errors_in_band),
        cmocka_unit_test(words_in_content_are_no_errors),
        cmocka_unit_test(r10_error_event),
        cmocka_unit_test(s17_no_objects),
        cmocka_unit_test(s19_usage_beside_the_finish),
        cmocka_unit_test(s21_one_broken_event),
        cmocka_unit_test(s22_many_empty_chunks),
        cmocka_unit_test(a_failed_chunk_is_never_withheld),
        cmocka_unit_test(responses_events),
        cmocka_unit_test(other_places_of_usage),
        cmocka_unit_test(later_null_keeps_the_earlier_value),
        cmocka_unit_test(j20_output_counted_by_choice),
        cmocka_unit_test(j20_output_counted_in_all),
        cmocka_unit_test(choices_beyond_the_table),
        cmocka_unit_test(j18_blank_lines_and_bom_before_a_body),
        cmocka_unit_test(bodies_that_are_no_answers),
        cmocka_unit_test(large_embeddings),
        cmocka_unit_test(duplicates_are_read_as_clients_read_them),
        cmocka_unit_test(reset_forgets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
