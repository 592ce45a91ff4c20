/* How much memory a process may still take, by files of the kernel as they are found: MemAvailable, and the limits of
 * control groups of both versions, of the process's own group and of those above it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/resident/memory_left.h"

static char root[] = "/tmp/larder-memory-XXXXXX";

static void put(const char *path, const char *text) {
    char full[300];
    (void)snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + sizeof root; (p = strchr(p, '/')); p++) {
        *p = 0;
        (void)mkdir(full, 0700);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static uint64_t left(void) {
    uint64_t bytes = 0;
    lar_diag d = {0};
    assert_int_equal(lar_memory_left(root, &bytes, &d), LAR_OK);
    return bytes;
}

static void nobody_says_how_much(void **state) {
    (void)state;
    uint64_t bytes;
    lar_diag d = {0};
    assert_int_equal(lar_memory_left(root, &bytes, &d), LAR_IO);
    put("/proc/meminfo", "MemTotal: 5 kB\nMemFree: 3 kB\n");
    assert_int_equal(lar_memory_left(root, &bytes, &d), LAR_IO);
    assert_non_null(strstr(d.text, "/proc/meminfo"));
}

static void what_the_system_has(void **state) {
    (void)state;
    put("/proc/meminfo", "MemTotal:       32000000 kB\nMemAvailable:   20000000 kB\n");
    assert_true(left() == 20000000ull << 10);
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/memory.max", "max\n");
    put("/sys/fs/cgroup/memory.current", "1000\n");
    assert_true(left() == 20000000ull << 10); /* a group without a limit */
}

static void limits_of_groups(void **state) {
    (void)state;
    put("/proc/meminfo", "MemAvailable: 20000000 kB\n");
    put("/sys/fs/cgroup/memory.max", "5000000\n");
    put("/sys/fs/cgroup/memory.current", "1000000\n");
    assert_true(left() == 4000000);
    put("/sys/fs/cgroup/memory.stat", "anon 5\nfile 9\ninactive_file 300000\nactive_file 400000\n");
    assert_true(left() == 4700000); /* files are given back at need */
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    put("/sys/fs/cgroup/a/b/memory.current", "7\n");
    put("/sys/fs/cgroup/a/memory.max", "2000\n");
    put("/sys/fs/cgroup/a/memory.current", "500\n");
    assert_true(left() == 1500); /* the group in between */
    put("/sys/fs/cgroup/a/b/memory.max", "5\n");
    assert_true(left() == 0); /* over its limit already */
}

static void groups_of_the_first_version(void **state) {
    (void)state;
    put("/proc/meminfo", "MemAvailable: 20000000 kB\n");
    put("/proc/self/cgroup", "12:cpu:/x\n5:memory:/docker/c\n");
    put("/sys/fs/cgroup/memory.max", "max\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "5\n");
    put("/sys/fs/cgroup/memory/docker/c/memory.limit_in_bytes", "9000\n");
    put("/sys/fs/cgroup/memory/docker/c/memory.usage_in_bytes", "1000\n");
    put("/sys/fs/cgroup/memory/docker/c/memory.stat", "inactive_file 1\ntotal_inactive_file 30\ntotal_active_file 4\n");
    assert_true(left() == 8034);
}

static void odd_files(void **state) {
    (void)state;
    put("/proc/meminfo", "MemAvailable: 20000000 kB\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "x\n");
    put("/proc/self/cgroup", "no colons\n::\n\n");
    put("/sys/fs/cgroup/memory.max", "");
    assert_true(left() == 20000000ull << 10);
    put("/sys/fs/cgroup/memory.max", "-1\n");
    assert_true(left() == 20000000ull << 10);
}

static int make(void **state) {
    (void)state;
    return mkdtemp(root) ? 0 : 1;
}

static int clean(void **state) {
    (void)state;
    static const char *const files[] = {"/proc/meminfo",
                                        "/proc/self/cgroup",
                                        "/sys/fs/cgroup/memory.max",
                                        "/sys/fs/cgroup/memory.current",
                                        "/sys/fs/cgroup/memory.stat",
                                        "/sys/fs/cgroup/a/b/memory.max",
                                        "/sys/fs/cgroup/a/b/memory.current",
                                        "/sys/fs/cgroup/a/memory.max",
                                        "/sys/fs/cgroup/a/memory.current",
                                        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                                        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
                                        "/sys/fs/cgroup/memory/docker/c/memory.limit_in_bytes",
                                        "/sys/fs/cgroup/memory/docker/c/memory.usage_in_bytes",
                                        "/sys/fs/cgroup/memory/docker/c/memory.stat"};
    static const char *const folders[] = {"/proc/self",
                                          "/proc",
                                          "/sys/fs/cgroup/a/b",
                                          "/sys/fs/cgroup/a",
                                          "/sys/fs/cgroup/memory/docker/c",
                                          "/sys/fs/cgroup/memory/docker",
                                          "/sys/fs/cgroup/memory",
                                          "/sys/fs/cgroup",
                                          "/sys/fs",
                                          "/sys",
                                          ""};
    char full[300];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        (void)snprintf(full, sizeof full, "%s%s", root, files[i]);
        (void)unlink(full);
    }
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        (void)snprintf(full, sizeof full, "%s%s", root, folders[i]);
        if (rmdir(full) != 0) return 1;
    }
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_says_how_much),
        cmocka_unit_test(what_the_system_has),
        cmocka_unit_test(limits_of_groups),
        cmocka_unit_test(groups_of_the_first_version),
        cmocka_unit_test(odd_files),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
