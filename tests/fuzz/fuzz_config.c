/* The configuration: any bytes as a file, as a URL and as a listen address.
 * 1. what is refused has a message of printable text, and nothing is left behind; 2. what is taken keeps the promises
 * of the types (ranges, indexes, no control characters); 3. loading it again gives the same; 4. a URL that is taken
 * gives itself when it is put together again. The file is in memory only. */
#include <sys/mman.h>
#include <unistd.h>

#include "gateway/config/config.h"
#include "gateway/config/option_rows.h"
#include "tests/fuzz/fuzz.h"

static void printable(const char *text) {
    FUZZ_CHECK(*text);
    for (const char *p = text; *p; p++) FUZZ_CHECK((unsigned char)*p >= 0x20 && *p != 0x7f);
}

static void check_numbers(const lar_config *c) {
    const lar_option_table *t = lar_option_scalars();
    for (uint32_t i = 0; i < t->count; i++) {
        const lar_option_row *row = &t->rows[i];
        const void *field = (const char *)c + row->offset;
        if (row->type == LAR_OPTION_U32 || row->type == LAR_OPTION_MS)
            FUZZ_CHECK(*(const uint32_t *)field >= row->min && *(const uint32_t *)field <= row->max);
        if (row->type == LAR_OPTION_BYTES)
            FUZZ_CHECK(*(const uint64_t *)field >= row->min && *(const uint64_t *)field <= row->max);
        if (row->type == LAR_OPTION_TEXT && **(const char *const *)field) printable(*(const char *const *)field);
    }
}

static void check(const lar_config *c) {
    check_numbers(c);
    FUZZ_CHECK(c->listen_count >= 1 || c->upstream_count >= 1);
    FUZZ_CHECK(c->upstream_count >= 1);
    for (uint32_t i = 0; i < c->upstream_count; i++) {
        const lar_upstream_config *u = &c->upstreams[i];
        printable(u->name);
        printable(u->url.host);
        FUZZ_CHECK(u->url.port > 0 && (unsigned)u->profile < LAR_PROFILE_COUNT && u->inject_usage >= -1 &&
                   u->inject_usage <= 1);
        for (uint32_t k = 0; k < i; k++) FUZZ_CHECK(strcmp(u->name, c->upstreams[k].name) != 0);
    }
    for (uint32_t i = 0; i < c->route_count; i++) {
        FUZZ_CHECK(c->routes[i].upstream < c->upstream_count);
        FUZZ_CHECK(!*c->routes[i].prefix || c->routes[i].prefix[0] == '/');
        FUZZ_CHECK(!*c->routes[i].header_name == !*c->routes[i].header_value);
    }
    for (uint32_t i = 0; i < c->key_count; i++) printable(c->keys[i].tenant);
    for (uint32_t i = 0; i < c->alias_count; i++) FUZZ_CHECK(*c->aliases[i].from && *c->aliases[i].to);
}

static void as_file(const uint8_t *data, size_t size) {
    int fd = memfd_create("config", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    lar_config *c = NULL, *again = NULL;
    lar_diag d = {0};
    lar_error e = lar_config_load(path, NULL, 0, &c, &d);
    FUZZ_CHECK((e == LAR_OK) == (c != NULL));
    if (e) {
        FUZZ_CHECK(e == LAR_CONFIG || e == LAR_NO_MEMORY);
        printable(d.text);
    } else {
        check(c);
        FUZZ_CHECK(lar_config_reload(c, &again, &d) == LAR_OK);
        const lar_option_table *t = lar_option_scalars();
        for (uint32_t i = 0; i < t->count; i++) FUZZ_CHECK(lar_option_equal(&t->rows[i], c, again));
        FUZZ_CHECK(c->upstream_count == again->upstream_count && c->rules_off_bits == again->rules_off_bits);
    }
    lar_config_free(c);
    lar_config_free(again);
    (void)close(fd);
}

static void as_url(lar_slice text) {
    lar_arena a;
    lar_arena_init(&a, 1 << 20);
    lar_url u, again;
    lar_diag d = {0};
    lar_error e = lar_url_parse(text, &a, &u, &d);
    if (e) {
        printable(d.text);
    } else {
        lar_slice whole = lar_arena_printf(&a, "%s://%s%s", u.tls ? "https" : "http", u.authority, u.path);
        FUZZ_CHECK(whole.ptr && lar_url_parse(whole, &a, &again, &d) == LAR_OK);
        FUZZ_CHECK(strcmp(u.host, again.host) == 0 && strcmp(u.path, again.path) == 0 &&
                   strcmp(u.authority, again.authority) == 0);
        FUZZ_CHECK(u.port == again.port && u.tls == again.tls && u.host_is_ip == again.host_is_ip);
    }
    lar_listen_config l;
    e = lar_listen_parse(text, &a, &l, &d);
    if (e) printable(d.text);
    else FUZZ_CHECK(*l.host && lar_slice_eq_cstr(text, l.text));
    lar_arena_release(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size && data[0] == '@') as_url(lar_slice_of((const char *)data + 1, size - 1));
    else as_file(data, size);
    return 0;
}
