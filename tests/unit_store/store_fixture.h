/* A store in a folder of its own, and records to put into it. */
#ifndef LARDER_TESTS_STORE_FIXTURE_H
#define LARDER_TESTS_STORE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/metrics.h"
#include "store/store.h"

typedef struct fixture {
    char dir[64];
    lar_metrics *metrics;
    lar_store *store;
    lar_store_options o; /* what open uses; set fields before */
} fixture;

int fixture_setup(void **state);
int fixture_teardown(void **state);

void fixture_open(fixture *f);
void fixture_close(fixture *f);
lar_error fixture_try_open(fixture *f, lar_diag *d);
void fixture_path(const fixture *f, const char *file, char out[128]);
/* Removes the folder's files, so that a test starts with nothing. */
void fixture_wipe(const fixture *f);

/* A record whose fields are all set, different for every n. */
lar_journal_record record_of(uint64_t n);
bool records_equal(const lar_journal_record *a, const lar_journal_record *b);
lar_hash key_of(uint64_t n);

/* Every record that matches, in order. */
typedef struct collected {
    lar_journal_record *records;
    uint64_t *seqs;
    size_t count, cap;
} collected;
collected fixture_scan(fixture *f, const lar_journal_filter *filter, uint64_t *damaged);
void collected_release(collected *c);

/* The value of `key` as a string in `out`, or false. */
bool memory_get(fixture *f, uint64_t key, char *out, size_t cap);

#endif
