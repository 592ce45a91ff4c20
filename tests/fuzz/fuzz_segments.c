/* Segment files and index values of a store's pages: whatever bytes they hold.
 *
 * The first byte chooses: 0 an index value under a fixed key, 1 a segment's head, 2 a segment file among those that are
 * listed at the start, 3 one from which a page is read. 1. no byte outside is read (sanitizers); 2. what decodes is
 * what encoding gives, and lies where a page can lie; 3. a page is read only where record, sum and index agree, and
 * then it is what the file has. With the sums made right the fields themselves are reached, not only the sums'
 * refusal. */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/slice.h"
#include "store/bytes.h"
#include "store/record.h"
#include "store/segment_files.h"
#include "store/segment_record.h"
#include "tests/fuzz/fuzz.h"

static const lar_digest key = {{1, 2, 3, 4, 5, 6, 7, 8}};
enum { NUMBER = 5, PAGE_MOST = 1 << 16, FILE_MOST = 1 << 17 };

static void value(lar_slice bytes) {
    lar_segment_place place;
    lar_segment_use use;
    uint8_t again[LAR_SEGMENT_VALUE_BYTES];
    if (lar_segment_value_decode(&key, bytes, &place, &use) != LAR_OK) return;
    FUZZ_CHECK(place.segment > 0 && place.bytes > 0 && place.offset >= LAR_SEGMENT_ALIGN);
    FUZZ_CHECK(place.offset % LAR_SEGMENT_ALIGN == 0);
    uint64_t end = place.offset + lar_segment_record_size(place.bytes);
    FUZZ_CHECK(end > place.offset && end < UINT64_MAX / 2);
    lar_segment_value_encode(&key, &place, &use, again);
    FUZZ_CHECK(bytes.len == sizeof again && !memcmp(again, bytes.ptr, sizeof again));
}

/* The same bytes with a sum that fits. */
static void value_sealed(lar_slice bytes) {
    uint8_t sealed[LAR_SEGMENT_VALUE_BYTES], all[sizeof key.bytes + sizeof sealed - 8];
    if (bytes.len < sizeof sealed) return;
    memcpy(sealed, bytes.ptr, sizeof sealed);
    memcpy(all, key.bytes, sizeof key.bytes);
    memcpy(all + sizeof key.bytes, sealed, sizeof sealed - 8);
    lar_record_checksum(lar_slice_of((const char *)all, sizeof all), sealed + sizeof sealed - 8);
    value(lar_slice_of((const char *)sealed, sizeof sealed));
}

static void head(lar_slice bytes) {
    uint8_t sealed[LAR_SEGMENT_HEAD_BYTES], want[LAR_SEGMENT_HEAD_BYTES];
    if (bytes.len < sizeof sealed) return;
    lar_segment_head_encode(NUMBER, want);
    memcpy(sealed, bytes.ptr, sizeof sealed);
    for (int i = 0; i < 2; i++) {
        if (lar_segment_head_check(sealed, NUMBER) == LAR_OK) FUZZ_CHECK(!memcmp(sealed, want, sizeof want));
        lar_record_checksum(lar_slice_of((const char *)sealed, sizeof sealed - 8), sealed + sizeof sealed - 8);
    }
}

/* -- files: in a folder of their own for each input ------------------------------------------------------- */

typedef struct box {
    char dir[32];
    int fd;
} box;

static const char file_name[] = "0000000000000005.segment";

static box box_with(const uint8_t *bytes, size_t size) {
    box b = {.fd = -1};
    (void)snprintf(b.dir, sizeof b.dir, "%s/lar-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    FUZZ_CHECK(mkdtemp(b.dir));
    b.fd = open(b.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int file = openat(b.fd, file_name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    FUZZ_CHECK(file >= 0 && write(file, bytes, size) == (ssize_t)size);
    (void)close(file);
    return b;
}

static void box_away(const box *b) {
    (void)unlinkat(b->fd, file_name, 0);
    (void)close(b->fd);
    FUZZ_CHECK(rmdir(b->dir) == 0);
}

/* 1 byte: record's place, and whether its head is made right; 2: the page's size; then the file from 4096 on. */
static void record(const uint8_t *data, size_t size) {
    static uint8_t file[FILE_MOST], page[PAGE_MOST];
    if (size < 3 || size - 3 > sizeof file - LAR_SEGMENT_ALIGN) return;
    size_t end = LAR_SEGMENT_ALIGN + size - 3;
    lar_segment_place place = {NUMBER, ((data[0] & 3) + 1u) * LAR_SEGMENT_ALIGN, 1 + lar_bytes_get_le(data + 1, 2), 7};
    uint8_t want[LAR_SEGMENT_RECORD_BYTES];
    memset(file, 0, sizeof file);
    lar_segment_head_encode(NUMBER, file);
    memcpy(file + LAR_SEGMENT_ALIGN, data + 3, size - 3);
    uint64_t at = place.offset + LAR_SEGMENT_ALIGN;
    bool whole = at + place.bytes <= end;
    if (whole) place.sum = lar_segment_sum(file + at, place.bytes) ^ (data[0] >> 7);
    lar_segment_record_encode(&key, &place, want);
    if (data[0] & 4 && place.offset + sizeof want <= end) memcpy(file + place.offset, want, sizeof want);
    bool right = whole && !(data[0] >> 7) && !memcmp(file + place.offset, want, sizeof want);
    box b = box_with(file, end);
    lar_error e = lar_segment_read(b.fd, &key, &place, page);
    FUZZ_CHECK(right ? e == LAR_OK : e == LAR_CORRUPT);
    if (right) FUZZ_CHECK(!memcmp(page, file + at, place.bytes));
    box_away(&b);
}

static lar_error listed(void *context, uint64_t number, uint64_t file_bytes) {
    FUZZ_CHECK(number == NUMBER && file_bytes > 0);
    ++*(int *)context;
    return LAR_OK;
}

/* A file that begins with anything: listed if its head is sound, removed otherwise. */
static void list(const uint8_t *data, size_t size) {
    int count = 0;
    bool sound = size >= LAR_SEGMENT_HEAD_BYTES && lar_segment_head_check(data, NUMBER) == LAR_OK;
    box b = box_with(data, size);
    FUZZ_CHECK(lar_segment_list(b.fd, listed, &count) == LAR_OK);
    FUZZ_CHECK(count == sound && (faccessat(b.fd, file_name, F_OK, 0) == 0) == sound);
    box_away(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    lar_slice rest = lar_slice_of((const char *)data + 1, size - 1);
    switch (data[0] & 3) {
    case 0:
        value(rest);
        value_sealed(rest);
        break;
    case 1: head(rest); break;
    case 2: list(data + 1, size - 1); break;
    default: record(data + 1, size - 1);
    }
    return 0;
}
