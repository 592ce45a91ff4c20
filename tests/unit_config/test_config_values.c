/* Single values, URLs, listen addresses and suggestions: tables of text and outcome. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gateway/config/config.h"
#include "gateway/config/nearest.h"
#include "gateway/config/option_rows.h"
#include "gateway/config/option_value.h"

static void durations(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t ms;
        const char *error; /* NULL: fine */
    } rows[] = {
        {"0", 0, NULL},
        {"0s", 0, NULL},
        {"250ms", 250, NULL},
        {"30s", 30000, NULL},
        {"5m", 300000, NULL},
        {"1h", 3600000, NULL},
        {"2d", 172800000, NULL},
        {"30 s", 30000, NULL},
        {"30", 0, "needs a unit"},
        {"", 0, "missing"},
        {"s", 0, "missing"},
        {"-1s", 0, "missing"},
        {"+1s", 0, "missing"},
        {"1.5s", 0, "needs a unit"},
        {"30S", 0, "needs a unit"},
        {"1m30s", 0, "needs a unit"},
        {"30sec", 0, "needs a unit"},
        {"010s", 0, "leading zero"},
        {"1e3ms", 0, "needs a unit"},
        {"0x10ms", 0, "needs a unit"},
        {"99999999999999999999s", 0, "too large"},
        {"18446744073709551615d", 0, "too large"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t ms = 0;
        lar_diag d = {0};
        lar_error e = lar_value_ms(lar_slice_cstr(rows[i].text), &ms, &d);
        if (!rows[i].error && (e || ms != rows[i].ms)) fail_msg("%s: %s", rows[i].text, d.text);
        if (rows[i].error && (e != LAR_INVALID || !strstr(d.text, rows[i].error)))
            fail_msg("%s gives '%s'", rows[i].text, d.text);
    }
}

static void sizes(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
        const char *error;
    } rows[] = {
        {"0", 0, NULL},
        {"1024", 1024, NULL},
        {"1B", 1, NULL},
        {"64KiB", 65536, NULL},
        {"1 MiB", 1048576, NULL},
        {"1GiB", 1073741824, NULL},
        {"1TiB", 1099511627776, NULL},
        {"16777215TiB", 16777215ull << 40, NULL},
        {"16777216TiB", 0, "too large"},
        {"64K", 0, "unknown unit"},
        {"64KB", 0, "unknown unit"},
        {"64kib", 0, "unknown unit"},
        {"1.5MiB", 0, "unknown unit"},
        {"MiB", 0, "missing"},
        {"-1", 0, "missing"},
        {"18446744073709551615", UINT64_MAX, NULL},
        {"18446744073709551616", 0, "too large"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t v = 0;
        lar_diag d = {0};
        lar_error e = lar_value_bytes(lar_slice_cstr(rows[i].text), &v, &d);
        if (!rows[i].error && (e || v != rows[i].bytes)) fail_msg("%s: %s", rows[i].text, d.text);
        if (rows[i].error && (e != LAR_INVALID || !strstr(d.text, rows[i].error)))
            fail_msg("%s gives '%s'", rows[i].text, d.text);
    }
}

static void booleans_and_texts(void **state) {
    (void)state;
    bool b = false;
    assert_int_equal(lar_value_bool(LAR_SLICE("Yes"), &b, NULL), LAR_OK);
    assert_true(b);
    assert_int_equal(lar_value_bool(LAR_SLICE("off"), &b, NULL), LAR_OK);
    assert_false(b);
    assert_int_equal(lar_value_bool(LAR_SLICE("1"), &b, NULL), LAR_INVALID);
    assert_int_equal(lar_value_bool(LAR_SLICE(""), &b, NULL), LAR_INVALID);
    assert_int_equal(lar_value_text(LAR_SLICE("/var/lib/l\xc3\xa4rder"), NULL), LAR_OK);
    assert_int_equal(lar_value_text(lar_slice_of("/etc/x\0y", 8), NULL), LAR_INVALID); /* */
    assert_int_equal(lar_value_text(LAR_SLICE("a\nb"), NULL), LAR_INVALID);
    static char big[LAR_OPTION_TEXT_MAX + 2];
    memset(big, 'x', sizeof big - 1);
    assert_int_equal(lar_value_text(lar_slice_of(big, LAR_OPTION_TEXT_MAX), NULL), LAR_OK);
    assert_int_equal(lar_value_text(lar_slice_of(big, LAR_OPTION_TEXT_MAX + 1), NULL), LAR_INVALID);
}

static void good_urls(void **state) {
    (void)state;
    static const struct {
        const char *text, *host, *path, *authority;
        uint16_t port;
        bool tls, ip;
    } rows[] = {
        {"https://api.deepseek.com", "api.deepseek.com", "", "api.deepseek.com", 443, true, false},
        {"https://api.deepseek.com/", "api.deepseek.com", "", "api.deepseek.com", 443, true, false},
        {"https://api.openai.com/v1", "api.openai.com", "/v1", "api.openai.com", 443, true, false},
        {"https://api.openai.com/v1///", "api.openai.com", "/v1", "api.openai.com", 443, true, false},
        {"HTTPS://API.OpenAI.com:443/V1", "api.openai.com", "/V1", "api.openai.com", 443, true, false},
        {"http://localhost:80/a/b", "localhost", "/a/b", "localhost", 80, false, false},
        {"http://localhost:443", "localhost", "", "localhost:443", 443, false, false},
        {"https://host:80", "host", "", "host:80", 80, true, false},
        {"http://127.0.0.1:9000", "127.0.0.1", "", "127.0.0.1:9000", 9000, false, true},
        {"http://[::1]:9000/v1", "::1", "/v1", "[::1]:9000", 9000, false, true},
        {"https://[2001:DB8::1]", "2001:db8::1", "", "[2001:db8::1]", 443, true, true},
        {"http://my_host-1.svc.cluster.local:65535", "my_host-1.svc.cluster.local", "",
         "my_host-1.svc.cluster.local:65535", 65535, false, false},
        {"https://host/a%20b/~x;y=1", "host", "/a%20b/~x;y=1", "host", 443, true, false},
        {"https://1and1.example", "1and1.example", "", "1and1.example", 443, true, false},
    };
    lar_arena a;
    lar_arena_init(&a, 1 << 20);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lar_url u;
        lar_diag d = {0};
        if (lar_url_parse(lar_slice_cstr(rows[i].text), &a, &u, &d)) fail_msg("%s: %s", rows[i].text, d.text);
        assert_string_equal(u.host, rows[i].host);
        assert_string_equal(u.path, rows[i].path);
        assert_string_equal(u.authority, rows[i].authority);
        assert_int_equal(u.port, rows[i].port);
        assert_int_equal(u.tls, rows[i].tls);
        assert_int_equal(u.host_is_ip, rows[i].ip);
    }
    lar_arena_release(&a);
}

static void bad_urls(void **state) {
    (void)state;
    static const struct {
        const char *text, *error;
    } rows[] = {
        {"", "missing"},
        {"api.deepseek.com", "must begin with"},
        {"//host", "must begin with"},
        {"https:/host", "must begin with"},
        {"https:host", "must begin with"},
        {"ftp://host", "other schemes"},
        {"file:///etc/passwd", "other schemes"},
        {" https://host", "other schemes"},
        {"://host", "other schemes"},
        {"https://", "host is missing"},
        {"https:///v1", "host is missing"},
        {"http://:80", "host is missing"},
        {"https://user@host", "user or password"},
        {"https://user:s3cret-x@host/v1", "user or password"},
        {"https://host/v1?key=s3cret-x", "query"},
        {"https://host?", "query"},
        {"https://host/#frag", "fragment"},
        {"https://host:0", "port"},
        {"https://host:65536", "port"},
        {"https://host:", "port"},
        {"https://host:080", "port"},
        {"https://host:-1", "port"},
        {"https://host:+80", "port"},
        {"https://host:8o", "port"},
        {"https://host:99999999999999999999", "port"},
        {"https://a:1:2", "brackets"},
        {"https://::1", "brackets"},
        {"https://[::1", "] of the IPv6"},
        {"https://[::1]x", "colon and the port"},
        {"https://[::1%25eth0]", "no IPv6"},
        {"https://[1.2.3.4]", "no IPv6"},
        {"https://[]", "no IPv6"},
        {"https://[::g]", "no IPv6"},
        {"https://a..b", "empty part"},
        {"https://.a", "empty part"},
        {"https://a.", "empty part"},
        {"https://h\xc3\xb6st", "xn--"},
        {"https://ho st", "not allowed"},
        {"https://ho%41st", "not allowed"},
        {"https://host\\@evil", "backslash"},
        {"https://127.1", "IPv4"},
        {"https://2130706433", "IPv4"},
        {"https://0x7f.0.0.0x1", "IPv4"},
        {"https://1.2.3.256", "IPv4"},
        {"https://1.2.3.4.5", "IPv4"},
        {"https://host/a//b", "segment"},
        {"https://host/../x", "segment"},
        {"https://host/a/./b", "segment"},
        {"https://host/a b", "not allowed"},
        {"https://host/a\x01", "not allowed"},
        {"https://host/\"", "not allowed"},
        {"https://host/a%2", "hex"},
        {"https://host/a%zz", "hex"},
        {"https://host/v1/chat/completions", "endpoint"},
        {"https://host/v1/messages/", "endpoint"},
    };
    lar_arena a;
    lar_arena_init(&a, 1 << 20);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lar_url u;
        lar_diag d = {0};
        lar_error e = lar_url_parse(lar_slice_cstr(rows[i].text), &a, &u, &d);
        if (e != LAR_INVALID) fail_msg("%s was taken", rows[i].text);
        if (!strstr(d.text, rows[i].error)) fail_msg("%s gives '%s'", rows[i].text, d.text);
        if (strstr(d.text, "s3cret")) fail_msg("a secret in '%s'", d.text);
    }
    lar_url u;
    assert_int_equal(lar_url_parse(lar_slice_of("http://a\0b", 10), &a, &u, NULL), LAR_INVALID);
    assert_int_equal(lar_url_parse(lar_slice_of("http://a/\0b", 11), &a, &u, NULL), LAR_INVALID);
    char label[80] = "http://";
    memset(label + 7, 'a', 64);
    assert_int_equal(lar_url_parse(lar_slice_of(label, 7 + 63), &a, &u, NULL), LAR_OK);
    assert_int_equal(lar_url_parse(lar_slice_of(label, 7 + 64), &a, &u, NULL), LAR_INVALID);
    lar_arena_release(&a);
}

static void listen_addresses(void **state) {
    (void)state;
    static const struct {
        const char *text, *host;
        uint16_t port;
        const char *error;
    } rows[] = {
        {"127.0.0.1:8080", "127.0.0.1", 8080, NULL},
        {"0.0.0.0:0", "0.0.0.0", 0, NULL},
        {"[::]:8080", "::", 8080, NULL},
        {"[::1]:65535", "::1", 65535, NULL},
        {"localhost:1", "127.0.0.1", 1, NULL},
        {"", "", 0, "must be an address"},
        {":8080", "", 0, "must be an address"},
        {"8080", "", 0, "must be an address"},
        {"127.0.0.1", "", 0, "port is missing"},
        {"*:8080", "", 0, "must be an address"},
        {"example.com:80", "", 0, "must be an address"},
        {"::1:8080", "", 0, "brackets"},
        {"[::1]", "", 0, "port is missing"},
        {"127.0.0.1:65536", "", 0, "port"},
        {"127.0.0.1:", "", 0, "port"},
        {"127.0.0.1:8080/", "", 0, "port"},
        {"http://127.0.0.1:8080", "", 0, "brackets"},
        {"127.1:80", "", 0, "must be an address"},
    };
    lar_arena a;
    lar_arena_init(&a, 1 << 20);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lar_listen_config l;
        lar_diag d = {0};
        lar_error e = lar_listen_parse(lar_slice_cstr(rows[i].text), &a, &l, &d);
        if (rows[i].error) {
            if (e != LAR_INVALID || !strstr(d.text, rows[i].error)) fail_msg("%s gives '%s'", rows[i].text, d.text);
            continue;
        }
        if (e) fail_msg("%s: %s", rows[i].text, d.text);
        assert_string_equal(l.text, rows[i].text);
        assert_string_equal(l.host, rows[i].host);
        assert_int_equal(l.port, rows[i].port);
    }
    lar_arena_release(&a);
}

static const char *nearest_of(const char *wanted) {
    static const char *const names[] = {"listen", "limits", "timeouts", "canon.mode", "store.dir"};
    lar_nearest n;
    lar_nearest_init(&n, lar_slice_cstr(wanted));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) lar_nearest_offer(&n, lar_slice_cstr(names[i]));
    return n.best.ptr ? n.best.ptr : "";
}

static void suggestions(void **state) {
    (void)state;
    assert_string_equal(nearest_of("lisetn"), "listen");
    assert_string_equal(nearest_of("timeout"), "timeouts");
    assert_string_equal(nearest_of("Canon-Mode"), "canon.mode");
    assert_string_equal(nearest_of("storedir"), "store.dir");
    assert_string_equal(nearest_of("zz"), "");
    assert_string_equal(nearest_of("something_else"), "");
    assert_string_equal(nearest_of(""), "");
    char big[1000];
    memset(big, 'l', sizeof big);
    lar_nearest n;
    lar_nearest_init(&n, lar_slice_of(big, sizeof big));
    lar_nearest_offer(&n, lar_slice_of(big, sizeof big));
    assert_null(n.best.ptr);
    lar_nearest_init(&n, LAR_SLICE("tool_oder"));
    lar_nearest_offer_rules(&n);
    assert_string_equal(n.best.ptr, "tool_order");
}

static void every_default_is_valid(void **state) {
    (void)state;
    const lar_option_table *tables[] = {lar_option_scalars(), lar_option_upstream(), lar_option_route(),
                                        lar_option_key()};
    union {
        lar_config c;
        lar_upstream_raw u;
        lar_route_raw r;
        lar_key_raw k;
    } base;
    lar_arena a;
    lar_arena_init(&a, 1 << 20);
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        assert_true(tables[t]->count > 0);
        memset(&base, 0, sizeof base);
        for (uint32_t i = 0; i < tables[t]->count; i++) {
            const lar_option_row *row = &tables[t]->rows[i];
            lar_diag d = {0};
            if (lar_option_set(row, &base, lar_slice_cstr(row->def), &a, &d))
                fail_msg("%s: the default %s", row->path, d.text);
            assert_true(row->min <= row->max);
            const char *dot = strchr(row->path, '.');
            assert_true(!dot || !strchr(dot + 1, '.'));
            assert_ptr_equal(lar_option_find(tables[t], lar_slice_cstr(row->path)), row);
            assert_ptr_equal(lar_option_find_loose(tables[t], lar_slice_cstr(row->path)), row);
        }
    }
    lar_arena_release(&a);
}

static void ranges_hold(void **state) {
    (void)state;
    const lar_option_table *t = lar_option_scalars();
    lar_config c = {0};
    lar_arena a;
    lar_arena_init(&a, 1 << 20);
    for (uint32_t i = 0; i < t->count; i++) {
        const lar_option_row *row = &t->rows[i];
        bool ms = row->type == LAR_OPTION_MS;
        if (!ms && row->type != LAR_OPTION_U32 && row->type != LAR_OPTION_BYTES) continue;
        lar_diag d = {0};
        assert_int_equal(lar_option_set(row, &c,
                                        lar_arena_printf(&a, "%llu%s", (unsigned long long)row->max, ms ? "ms" : ""),
                                        &a, &d),
                         LAR_OK);
        assert_int_equal(
            lar_option_set(row, &c, lar_arena_printf(&a, "%llu%s", (unsigned long long)row->max + 1, ms ? "ms" : ""),
                           &a, &d),
            LAR_INVALID);
        assert_non_null(strstr(d.text, "out of range"));
        if (row->min)
            assert_int_equal(lar_option_set(row, &c,
                                            lar_arena_printf(&a, "%llu%s", (unsigned long long)row->min - 1,
                                                             ms ? "ms" : ""),
                                            &a, &d),
                             LAR_INVALID);
    }
    lar_arena_release(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations),          cmocka_unit_test(sizes),
        cmocka_unit_test(booleans_and_texts), cmocka_unit_test(good_urls),
        cmocka_unit_test(bad_urls),           cmocka_unit_test(listen_addresses),
        cmocka_unit_test(suggestions),        cmocka_unit_test(every_default_is_valid),
        cmocka_unit_test(ranges_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
