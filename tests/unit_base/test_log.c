/* Log lines as a reader of the descriptor gets them. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "tests/unit_base/expect.h"

typedef struct pipe_log {
    lar_log *log;
    int out, in;
    char text[65536];
} pipe_log;

static void open_log(pipe_log *p, lar_log_level level, lar_log_format format) {
    int fds[2];
    assert_int_equal(pipe2(fds, O_NONBLOCK), 0);
    p->out = fds[0];
    p->in = fds[1];
    p->log = lar_log_new(&(lar_log_options){.level = level, .format = format, .fd = p->in});
}

static void close_log(pipe_log *p) {
    lar_log_free(p->log);
    (void)close(p->out);
    (void)close(p->in);
}

/* What was written since the last call; NUL-terminated. */
static const char *written(pipe_log *p) {
    ssize_t n = read(p->out, p->text, sizeof p->text - 1);
    p->text[n > 0 ? n : 0] = 0;
    return p->text;
}

/* The line behind its time and level, which differ from run to run. */
static const char *behind_time(const char *line, const char *level) {
    assert_non_null(line);
    const char *at = strstr(line, level);
    assert_non_null(at);
    return at + strlen(level);
}

static void logfmt_fields_are_quoted_where_needed(void **state) {
    (void)state;
    static pipe_log p;
    open_log(&p, LAR_LOG_INFO, LAR_LOG_LOGFMT);
    LAR_LOG(p.log, LAR_LOG_INFO, "done", LAR_F_CSTR("path", "/v1/x"), LAR_F_CSTR("empty", ""), LAR_F_INT("n", -5),
            LAR_F_MS("took_ms", 1234567), LAR_F_CSTR("say", "a \"b\"\\=\n\t\r\x1b[31m\x7f"));
    const char *line = written(&p);
    assert_memory_equal(line, "time=2", 6);
    assert_string_equal(behind_time(line, "level=info "), "event=done path=/v1/x empty=\"\" n=-5 took_ms=1234.567 "
                                                          "say=\"a \\\"b\\\"\\\\=\\n\\t\\r\\u001b[31m\\u007f\"\n");
    LAR_LOG(p.log, LAR_LOG_ERROR, "e", LAR_F_CSTR("a", "k=v"), LAR_F_CSTR("b", "\xE4\xBD\xA0"),
            LAR_F_CSTR("c", "\xC2\x9B"), LAR_F_CSTR("d", "\xE2\x80\xA8\xE2\x80\xAE"), LAR_F_CSTR("f", "x\xFFy\xE4\xBD"),
            LAR_F_TEXT("g", ((lar_slice){0})));
    assert_string_equal(
        behind_time(written(&p), "level=error "),
        "event=e a=\"k=v\" b=\"\xE4\xBD\xA0\" c=\"\\u009b\" d=\"\\u2028\\u202e\" f=\"x\\ufffdy\\ufffd\\ufffd\" g=\"\"\n");
    close_log(&p);
}

static void json_lines_are_json(void **state) {
    (void)state;
    static pipe_log p;
    open_log(&p, LAR_LOG_DEBUG, LAR_LOG_JSON);
    char hostile[256];
    for (int i = 0; i < 256; i++) hostile[i] = (char)i;
    LAR_LOG(p.log, LAR_LOG_DEBUG, "x", LAR_F_TEXT("all", lar_slice_of(hostile, sizeof hostile)),
            LAR_F_INT("n", INT64_MIN), LAR_F_MS("ms", -1), LAR_F_CSTR("last", "\"}\n{\""));
    const char *line = written(&p);
    assert_int_equal(strcspn(line, "\n"), strlen(line) - 1);
    lar_json j;
    lar_json_init(&j);
    assert_ok(lar_json_parse(&j, lar_slice_cstr(line), NULL, NULL));
    assert_int_equal(j.nodes[0].count, 7);
    assert_true(lar_json_eq(&j, lar_json_get(&j, 0, "level"), LAR_SLICE("debug")));
    assert_true(lar_json_eq(&j, lar_json_get(&j, 0, "event"), LAR_SLICE("x")));
    assert_true(lar_json_eq(&j, lar_json_get(&j, 0, "last"), LAR_SLICE("\"}\n{\"")));
    assert_slice(lar_json_raw(&j, lar_json_get(&j, 0, "n")), LAR_SLICE("-9223372036854775808"));
    assert_slice(lar_json_raw(&j, lar_json_get(&j, 0, "ms")), LAR_SLICE("-0.001"));
    lar_slice time = lar_json_inner(&j, lar_json_get(&j, 0, "time"));
    assert_int_equal(time.len, 24);
    assert_true(time.ptr[10] == 'T' && time.ptr[19] == '.' && time.ptr[23] == 'Z');
    lar_json_release(&j);
    close_log(&p);
}

static void text_is_cut_between_characters(void **state) {
    (void)state;
    static pipe_log p;
    open_log(&p, LAR_LOG_INFO, LAR_LOG_LOGFMT);
    char text[1000];
    for (size_t i = 0; i + 3 <= sizeof text; i += 3) memcpy(text + i, "\xE4\xBD\xA0", 3);
    LAR_LOG(p.log, LAR_LOG_INFO, "x", LAR_F_TEXT("t", lar_slice_of(text, 999)), LAR_F_INT("n", 1));
    const char *at = behind_time(written(&p), "t=\"");
    assert_memory_equal(at, text, 510); /* 512 would cut the 171st character */
    assert_string_equal(at + 510, "...\" n=1\n");
    memset(text, 'a', sizeof text);
    LAR_LOG(p.log, LAR_LOG_INFO, "x", LAR_F_TEXT("t", lar_slice_of(text, 513)));
    at = behind_time(written(&p), "t=\"");
    assert_memory_equal(at, text, 512);
    assert_string_equal(at + 512, "...\"\n");
    close_log(&p);
}

static void a_line_is_never_longer_than_a_pipe_takes_at_once(void **state) {
    (void)state;
    for (int format = 0; format < 2; format++) {
        static pipe_log p;
        open_log(&p, LAR_LOG_INFO, (lar_log_format)format);
        char text[512];
        memset(text, 1, sizeof text); /* each becomes six bytes */
        lar_slice s = lar_slice_of(text, sizeof text);
        LAR_LOG(p.log, LAR_LOG_INFO, "x", LAR_F_TEXT("a", s), LAR_F_TEXT("b", s), LAR_F_INT("c", 3));
        const char *line = written(&p);
        assert_true(strlen(line) <= 4096);
        assert_int_equal(line[strlen(line) - 1], '\n');
        assert_non_null(strstr(line, "u0001"));
        assert_non_null(
            strstr(line, format == LAR_LOG_JSON ? ",\"c\":3,\"truncated\":true}\n" : " c=3 truncated=true\n"));
        assert_null(strstr(line, format == LAR_LOG_JSON ? "\"b\"" : " b="));
        close_log(&p);
    }
}

static void levels_are_filtered(void **state) {
    (void)state;
    static pipe_log p;
    open_log(&p, LAR_LOG_WARN, LAR_LOG_LOGFMT);
    LAR_LOG(p.log, LAR_LOG_INFO, "x", LAR_F_INT("n", 1));
    assert_string_equal(written(&p), "");
    LAR_LOG(p.log, LAR_LOG_WARN, "x", LAR_F_INT("n", 1));
    assert_non_null(strstr(written(&p), "level=warn event=x n=1\n"));
    lar_log_write(p.log, LAR_LOG_ERROR, "none", NULL, 0);
    assert_non_null(strstr(written(&p), "level=error event=none\n"));
    LAR_LOG(NULL, LAR_LOG_ERROR, "x", LAR_F_INT("n", 1));
    assert_int_equal(lar_log_dropped(NULL), 0);
    close_log(&p);
}

static void lines_that_cannot_be_written_are_counted(void **state) {
    (void)state;
    static pipe_log p;
    open_log(&p, LAR_LOG_INFO, LAR_LOG_LOGFMT);
    char text[400];
    memset(text, 'a', sizeof text);
    int tries = 0;
    while (lar_log_dropped(p.log) < 3 && tries++ < 10000)
        LAR_LOG(p.log, LAR_LOG_INFO, "x", LAR_F_TEXT("t", lar_slice_of(text, sizeof text)));
    assert_int_equal(lar_log_dropped(p.log), 3);
    size_t whole = 0, rest = 0;
    for (const char *at = written(&p); *at; at = written(&p))
        for (; *at; at++) {
            whole += *at == '\n';
            rest = *at == '\n' ? 0 : rest + 1;
        }
    assert_int_equal(whole, (size_t)tries - 3);
    assert_int_equal(rest, 0);
    (void)close(p.out);
    void (*before)(int) = signal(SIGPIPE, SIG_IGN);
    LAR_LOG(p.log, LAR_LOG_INFO, "x", LAR_F_INT("n", 1));
    assert_int_equal(lar_log_dropped(p.log), 4);
    (void)signal(SIGPIPE, before);
    lar_log_free(p.log);
    (void)close(p.in);
}

static void urls_lose_their_secrets(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"https://api.example.com/v1", "https://api.example.com/v1"},
        {"https://user:pass@api.example.com:8443/v1?key=abc#f", "https://api.example.com:8443/v1"},
        {"http://token@h", "http://h"},
        {"http://a@b:c@h/x", "http://h/x"},
        {"http://u:p/w@h/x", "http://h/x"},
        {"http://u:p?w@h/x", "http://h/x"},
        {"http://u:p#w@h/x", "http://h/x"},
        {"http://u@x:p/w@h", "http://h"},
        {"http://[::1]:80/@me?x", "http://[::1]:80/@me"},
        {"http://h:80/@me", "http://h:80/@me"},
        {"http://u:p@h/v1/@me", "http://h/v1/@me"},
        {"u:p@h/a?b", "h/a"},
        {"//u:p@h/a", "//h/a"},
        {"/v1/chat?api_key=sk-1", "/v1/chat"},
        {"/redirect?to=http://u:p@x/", "/redirect"},
        {"?key=1", ""},
        {"", ""},
        {"http://", "http://"},
        {"http://u:p@", "http://"},
        {"http://h/\r\nSet-Cookie: x\xFF", "http://h/??Set-Cookie:?x?"},
    };
    char out[100];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lar_log_redact_url(lar_slice_cstr(rows[i][0]), out, sizeof out);
        assert_string_equal(out, rows[i][1]);
    }
    lar_log_redact_url(LAR_SLICE("http://u:p@host/"), out, 10);
    assert_string_equal(out, "http://ho");
    lar_log_redact_url(LAR_SLICE("http://h"), out, 1);
    assert_string_equal(out, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logfmt_fields_are_quoted_where_needed),
        cmocka_unit_test(json_lines_are_json),
        cmocka_unit_test(text_is_cut_between_characters),
        cmocka_unit_test(a_line_is_never_longer_than_a_pipe_takes_at_once),
        cmocka_unit_test(levels_are_filtered),
        cmocka_unit_test(lines_that_cannot_be_written_are_counted),
        cmocka_unit_test(urls_lose_their_secrets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
