/* Pages in a store of their own, and what must be in them. */
#ifndef LARDER_TESTS_PAGES_FIXTURE_H
#define LARDER_TESTS_PAGES_FIXTURE_H

#include "store/page_segments.h"
#include "store_fixture.h"

enum { PAGE_BYTES_MOST = 1 << 20 };

typedef struct pages_fixture {
    fixture *f;
    lar_page_segments *p;
    lar_page_segments_options o; /* what open uses; set fields before */
} pages_fixture;

int pages_setup(void **state);
int pages_teardown(void **state);

void pages_open(pages_fixture *t); /* store and pages */
void pages_close(pages_fixture *t);
void pages_reopen(pages_fixture *t);

typedef struct pages_counts {
    uint64_t pages;
    uint64_t bytes;         /* of all files */
    uint64_t waiting_bytes; /* in the ring */
} pages_counts;
pages_counts pages_count(const pages_fixture *t);

/* The n-th page, which is the same for every call. */
lar_digest page_key(uint64_t n);
void page_fill(uint64_t n, uint8_t *to, uint64_t bytes);

lar_error page_write(pages_fixture *t, uint64_t n, uint64_t bytes);
/* Fails the test where OK comes with other bytes than were written under that key. */
lar_error page_read(pages_fixture *t, uint64_t n, uint64_t bytes);
/* Writes and waits until it is on disk: each page alone, so that the ring is never full. */
void page_put(pages_fixture *t, uint64_t n, uint64_t bytes);

/* The names of segment files in order, and how many; what the folder takes on disk. */
enum { FILES_MOST = 512, FILE_NAME_BYTES = 64 };
typedef char file_names[FILES_MOST][FILE_NAME_BYTES];
size_t pages_files(const pages_fixture *t, file_names names);
uint64_t pages_disk_bytes(const pages_fixture *t);
void pages_path(const pages_fixture *t, const char *file, char out[160]);
int64_t pages_metric(const pages_fixture *t, lar_metric which);

#endif
