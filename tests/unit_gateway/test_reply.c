/* Errors that larder makes itself: valid JSON in the client's protocol, whatever the detail holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cjson/cJSON.h>

#include "gateway/request/reply.h"

static cJSON *parsed(const lar_buf *b, const char *before) {
    lar_slice s = lar_buf_slice(b);
    assert_true(lar_slice_starts(s, lar_slice_cstr(before)));
    cJSON *root = cJSON_ParseWithLength(s.ptr + strlen(before), s.len - strlen(before));
    assert_non_null(root);
    return root;
}

static const char *text(const cJSON *root, const char *object, const char *name) {
    const cJSON *at = object ? cJSON_GetObjectItemCaseSensitive(root, object) : root;
    const char *s = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(at, name));
    return s ? s : "(none)";
}

static void every_error_has_a_body_in_both_protocols(void **state) {
    (void)state;
    for (int e = 1; e < LAR_ERROR_COUNT; e++) {
        lar_buf b;
        lar_buf_init(&b, 4096);
        assert_int_equal(lar_reply_error_body(&b, false, (lar_error)e, "a \"quoted\"\ndetail"), LAR_OK);
        cJSON *root = parsed(&b, "");
        assert_non_null(strstr(text(root, "error", "message"), "a \"quoted\"\ndetail"));
        assert_true(text(root, "error", "code")[0] >= 'a' && text(root, "error", "code")[0] <= 'z');
        assert_string_not_equal(text(root, "error", "type"), "(none)");
        cJSON_Delete(root);
        b.len = 0;
        assert_int_equal(lar_reply_error_body(&b, true, (lar_error)e, ""), LAR_OK);
        root = parsed(&b, "");
        assert_string_equal(text(root, NULL, "type"), "error");
        assert_string_equal(text(root, "error", "message"), lar_error_text((lar_error)e));
        cJSON_Delete(root);
        lar_buf_release(&b);
    }
}

static void events_are_framed_as_the_protocol_has_it(void **state) {
    (void)state;
    static const struct {
        lar_protocol protocol;
        const char *before;
    } rows[] = {{LAR_PROTOCOL_CHAT, "data: "},
                {LAR_PROTOCOL_COMPLETIONS, "data: "},
                {LAR_PROTOCOL_MESSAGES, "event: error\ndata: "},
                {LAR_PROTOCOL_RESPONSES, "event: error\ndata: "}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lar_buf b;
        lar_buf_init(&b, 4096);
        assert_int_equal(lar_reply_error_event(&b, rows[i].protocol, LAR_UPSTREAM_CUT, "two\nlines"), LAR_OK);
        lar_slice s = lar_buf_slice(&b);
        assert_true(s.len > 2 && memcmp(s.ptr + s.len - 2, "\n\n", 2) == 0);
        const char *data = memmem(s.ptr, s.len, "data: ", 6);
        assert_non_null(data);
        assert_null(memchr(data, '\n', (size_t)(s.ptr + s.len - 2 - data))); /* one line of data */
        cJSON_Delete(parsed(&b, rows[i].before));
        lar_buf_release(&b);
    }
}

static void a_full_buffer_is_an_error_and_no_leak(void **state) {
    (void)state;
    lar_buf b;
    lar_buf_init(&b, 16);
    assert_int_not_equal(lar_reply_error_body(&b, false, LAR_INVALID, ""), LAR_OK);
    assert_int_not_equal(lar_reply_error_event(&b, LAR_PROTOCOL_MESSAGES, LAR_INVALID, ""), LAR_OK);
    lar_buf_release(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_error_has_a_body_in_both_protocols),
        cmocka_unit_test(events_are_framed_as_the_protocol_has_it),
        cmocka_unit_test(a_full_buffer_is_an_error_and_no_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
