/* Whole files into bounded buffers: kinds, maxima, files that claim no size. */
#include "base/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit_base/expect.h"

static char folder[] = "/tmp/larder-file-XXXXXX";

static const char *path_of(const char *name) {
    static char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_bytes(const char *name, size_t len) {
    FILE *f = fopen(path_of(name), "wb");
    assert_non_null(f);
    for (size_t i = 0; i < len; i++) assert_int_not_equal(fputc((int)('a' + i % 26), f), EOF);
    assert_int_equal(fclose(f), 0);
}

static lar_error read_it(const char *path, lar_file_kinds kinds, size_t max, size_t *len) {
    lar_buf b;
    lar_diag d = {0};
    lar_buf_init(&b, max);
    lar_error e = lar_file_read(path, kinds, &b, &d);
    for (size_t i = 0; !e && path[0] == folder[0] && strncmp(path, folder, strlen(folder)) == 0 && i < b.len; i++)
        assert_int_equal(b.ptr[i], 'a' + i % 26);
    assert_int_equal(e != LAR_OK, *d.text != 0);
    *len = b.len;
    lar_buf_release(&b);
    return e;
}

static void sizes(void **state) {
    (void)state;
    static const size_t lens[] = {0, 1, 255, 256, 4096, 65536, 65537, 200000};
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        size_t len = 0;
        write_bytes("some", lens[i]);
        assert_int_equal(read_it(path_of("some"), LAR_FILE_REGULAR, lens[i] + 1, &len), LAR_OK);
        assert_int_equal(len, lens[i]);
        assert_int_equal(read_it(path_of("some"), LAR_FILE_REGULAR, lens[i], &len), LAR_OK);
        assert_int_equal(len, lens[i]);
        if (lens[i]) assert_int_equal(read_it(path_of("some"), LAR_FILE_REGULAR, lens[i] - 1, &len), LAR_LIMIT);
    }
}

static void kinds(void **state) {
    (void)state;
    size_t len = 0;
    assert_int_equal(read_it(path_of("absent"), LAR_FILE_REGULAR, 10, &len), LAR_NOT_FOUND);
    assert_int_equal(read_it(folder, LAR_FILE_REGULAR, 10, &len), LAR_INVALID);
    assert_int_equal(read_it(folder, LAR_FILE_OR_STREAM, 10, &len), LAR_INVALID);
    assert_int_equal(read_it("/dev/null", LAR_FILE_REGULAR, 10, &len), LAR_INVALID);
    assert_int_equal(read_it("/dev/null", LAR_FILE_OR_STREAM, 10, &len), LAR_OK);
    assert_int_equal(read_it("/dev/zero", LAR_FILE_OR_STREAM, 100000, &len), LAR_LIMIT);
    assert_int_equal(mkfifo(path_of("fifo"), 0600), 0);
    assert_int_equal(read_it(path_of("fifo"), LAR_FILE_REGULAR, 10, &len), LAR_INVALID); /* and does not wait */
}

/* Files of /proc say that they hold nothing. */
static void files_that_claim_no_size(void **state) {
    (void)state;
    size_t len = 0;
    assert_int_equal(read_it("/proc/self/status", LAR_FILE_REGULAR, 1 << 20, &len), LAR_OK);
    assert_true(len > 100);
    assert_int_equal(read_it("/proc/self/status", LAR_FILE_REGULAR, 64, &len), LAR_LIMIT);
}

/* A caller that wipes secrets gave the whole room first: it is not moved. */
static void full_room_stays_in_place(void **state) {
    (void)state;
    lar_buf b;
    write_bytes("key", 100);
    lar_buf_init(&b, 8192);
    assert_int_equal(lar_buf_reserve(&b, 8192), LAR_OK);
    const char *before = b.ptr;
    assert_int_equal(lar_file_read(path_of("key"), LAR_FILE_REGULAR, &b, NULL), LAR_OK);
    assert_ptr_equal(b.ptr, before);
    assert_int_equal(b.len, 100);
    lar_buf_release(&b);
}

static int clean(void **state) {
    (void)state;
    static const char *const names[] = {"some", "fifo", "key"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) (void)unlink(path_of(names[i]));
    return rmdir(folder);
}

static int prepare(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(kinds),
        cmocka_unit_test(files_that_claim_no_size),
        cmocka_unit_test(full_room_stays_in_place),
    };
    return cmocka_run_group_tests(tests, prepare, clean);
}
