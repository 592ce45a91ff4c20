/* A folder of its own for a test's files, and loading of YAML text through a file there.
 * Called by the tests of the configuration; blocks on files; one thread. */
#include "tests/unit_config/config_fixture.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static char folder[64];

int fixture_enter(void **state) {
    (void)state;
    for (bool again = true; again;) {
        again = false;
        for (char **p = environ; p && *p && !again; p++) {
            const char *equals = strchr(*p, '=');
            char name[128];
            if (!equals || strncmp(*p, "LARDER_", 7) != 0) continue;
            (void)snprintf(name, sizeof name, "%.*s", (int)(equals - *p), *p);
            again = unsetenv(name) == 0;
        }
    }
    (void)snprintf(folder, sizeof folder, "/tmp/larder-config-XXXXXX");
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

int fixture_leave(void **state) {
    (void)state;
    DIR *d = opendir(".");
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] != '.') (void)remove(e->d_name);
    }
    if (d) (void)closedir(d);
    return chdir("/") == 0 && rmdir(folder) == 0 ? 0 : -1;
}

void fixture_write(const char *name, const void *bytes, size_t len) {
    FILE *f = fopen(name, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

lar_error fixture_load(const char *yaml, const lar_config_flag *flags, uint32_t count, lar_config **out, lar_diag *d) {
    if (yaml) fixture_write("t.yaml", yaml, strlen(yaml));
    return lar_config_load(yaml ? "t.yaml" : NULL, flags, count, out, d);
}

lar_config *fixture_good(const char *yaml) {
    lar_config *c = NULL;
    lar_diag d = {0};
    if (fixture_load(yaml, NULL, 0, &c, &d)) fail_msg("refused: %s\n%s", d.text, yaml);
    assert_non_null(c);
    return c;
}

void fixture_bad(const char *yaml, const lar_config_flag *flags, uint32_t count, const char *parts) {
    lar_config *c = NULL;
    lar_diag d = {0};
    lar_error e = fixture_load(yaml, flags, count, &c, &d);
    if (e != LAR_CONFIG) fail_msg("got %s, not CONFIG, for:\n%s", lar_error_name(e), yaml ? yaml : "(no file)");
    assert_null(c);
    for (const char *p = parts; *p;) {
        size_t len = strcspn(p, "|");
        if (!memmem(d.text, strlen(d.text), p, len))
            fail_msg("'%.*s' is not in '%s', for:\n%s", (int)len, p, d.text, yaml ? yaml : "(no file)");
        p += len + (p[len] == '|');
    }
}
