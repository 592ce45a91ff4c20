/* Store, pages and plain bytes for the tests of pages on disk. */
#include "pages_fixture.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "store/segment_core.h"

pages_counts pages_count(const pages_fixture *t) {
    lar_page_segments *p = t->p;
    (void)pthread_mutex_lock(&p->lock);
    pages_counts c = {.pages = p->table.count, .bytes = p->bytes, .waiting_bytes = p->ring.used};
    (void)pthread_mutex_unlock(&p->lock);
    return c;
}

int pages_setup(void **state) {
    pages_fixture *t = calloc(1, sizeof *t);
    void *f;
    assert_non_null(t);
    assert_int_equal(fixture_setup(&f), 0);
    t->f = f;
    t->o = (lar_page_segments_options){.bytes_max = 16 << 20, .segment_bytes = 1 << 20, .sync_ms = 20, .retry_ms = 1};
    *state = t;
    return 0;
}

int pages_teardown(void **state) {
    pages_fixture *t = *state;
    void *f = t->f;
    lar_page_segments_close(t->p);
    free(t);
    return fixture_teardown(&f);
}

void pages_open(pages_fixture *t) {
    lar_diag d = {0};
    fixture_open(t->f);
    lar_error e = lar_page_segments_open(t->f->store, &t->o, &t->p, &d);
    if (e) fail_msg("open: %s: %s", lar_error_name(e), d.text);
}

void pages_close(pages_fixture *t) {
    lar_page_segments_close(t->p);
    t->p = NULL;
    fixture_close(t->f);
}

void pages_reopen(pages_fixture *t) {
    pages_close(t);
    pages_open(t);
}

lar_digest page_key(uint64_t n) { return lar_digest_of(lar_slice_of((const char *)&n, sizeof n)); }

void page_fill(uint64_t n, uint8_t *to, uint64_t bytes) {
    uint64_t x = n * 0x9E3779B97F4A7C15u + bytes;
    for (uint64_t i = 0; i < bytes; i += sizeof x) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        memcpy(to + i, &x, bytes - i < sizeof x ? bytes - i : sizeof x);
    }
}

lar_error page_write(pages_fixture *t, uint64_t n, uint64_t bytes) {
    uint8_t *page = malloc(bytes);
    lar_digest key = page_key(n);
    assert_non_null(page);
    page_fill(n, page, bytes);
    lar_error e = lar_page_segments_write(t->p, &key, page, bytes);
    free(page);
    return e;
}

lar_error page_read(pages_fixture *t, uint64_t n, uint64_t bytes) {
    uint8_t *got = malloc(bytes), *want = malloc(bytes);
    lar_digest key = page_key(n);
    assert_true(got && want);
    memset(got, 0x5a, bytes);
    page_fill(n, want, bytes);
    lar_error e = lar_page_segments_read(t->p, &key, got, bytes);
    bool same = memcmp(got, want, bytes) == 0;
    free(got);
    free(want);
    if (!e) assert_true(same);
    return e;
}

void page_put(pages_fixture *t, uint64_t n, uint64_t bytes) {
    assert_int_equal(page_write(t, n, bytes), LAR_OK);
    lar_page_segments_flush(t->p);
}

void pages_path(const pages_fixture *t, const char *file, char out[160]) {
    (void)snprintf(out, 160, "%s/pages/%s", t->f->dir, file);
}

static int by_name(const void *a, const void *b) { return strcmp(a, b); }

size_t pages_files(const pages_fixture *t, file_names names) {
    char path[160];
    size_t n = 0;
    pages_path(t, "", path);
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        if (!strstr(e->d_name, ".segment")) continue;
        assert_true(n < FILES_MOST);
        (void)snprintf(names[n++], FILE_NAME_BYTES, "%.60s", e->d_name);
    }
    (void)closedir(d);
    qsort(names, n, FILE_NAME_BYTES, by_name);
    return n;
}

uint64_t pages_disk_bytes(const pages_fixture *t) {
    static file_names names;
    uint64_t bytes = 0;
    size_t n = pages_files(t, names);
    for (size_t i = 0; i < n; i++) {
        char path[160];
        struct stat st;
        pages_path(t, names[i], path);
        if (stat(path, &st) == 0) bytes += (uint64_t)st.st_blocks * 512; /* it may be dropped just now */
    }
    return bytes;
}

int64_t pages_metric(const pages_fixture *t, lar_metric which) { return lar_metrics_get(t->f->metrics, which); }
