/* Segment files: made, written, read, listed, removed.
 * Flow: segment_writer.c makes, writes and removes; page_segments.c reads, on the thread that asks. Blocks on the disk.
 * Why a file is opened for each read: a page is a megabyte, an open takes two microseconds, and the descriptors of a
 * few hundred segments are better left to connections. Invariants: 1. a file is 0600 from its first moment, and never
 * reached through a link. 2. What lar_segment_read calls OK are the bytes that were written under that key. Memory:
 * none. Not here: which segment is written or dropped. */
#include "store/segment_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_DIGITS = 16, NAME_BYTES = 32, PATH_BYTES = 4096 };
static const char name_end[] = ".segment";

static void name_of(uint64_t number, char out[NAME_BYTES]) {
    (void)snprintf(out, NAME_BYTES, "%0*" PRIu64 "%s", NAME_DIGITS, number, name_end);
}

/* 0: not the name of a segment. */
static uint64_t number_of(const char *name) {
    char again[NAME_BYTES];
    if (strspn(name, "0123456789") != NAME_DIGITS || strcmp(name + NAME_DIGITS, name_end) != 0) return 0;
    uint64_t number = strtoull(name, NULL, 10);
    name_of(number, again);
    return strcmp(again, name) == 0 ? number : 0;
}

static lar_error error_of(int error) {
    return error == ENOSPC || error == EDQUOT || error == EFBIG ? LAR_FULL : LAR_IO;
}

/* No descriptor or memory for now: says nothing about the file. */
static bool is_short(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM; }

lar_error lar_segment_folder_open(const char *dir, lar_log *log, int *fd, lar_diag *d) {
    char path[PATH_BYTES];
    struct stat st;
    int n = snprintf(path, sizeof path, "%s/pages", dir);
    if (n < 0 || n >= (int)sizeof path) return lar_fail(LAR_IO, d, "pages: the folder's path is too long");
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return lar_fail(LAR_IO, d, "pages: cannot create %s: %s", path, strerror(errno));
    *fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0) return lar_fail(LAR_IO, d, "pages: cannot open %s: %s", path, strerror(errno));
    if (fstat(*fd, &st) == 0 && st.st_mode & 077)
        LAR_LOG(log, LAR_LOG_WARN, "store_folder_open_to_others", LAR_F_CSTR("dir", path));
    return LAR_OK;
}

lar_error lar_segment_create(int folder, uint64_t number, int *fd) {
    char name[NAME_BYTES];
    uint8_t head[LAR_SEGMENT_ALIGN] = {0};
    name_of(number, name);
    *fd = openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (*fd < 0) return error_of(errno);
    lar_segment_head_encode(number, head);
    lar_error e = lar_segment_write(*fd, head, sizeof head, 0);
    if (!e) return LAR_OK;
    int error = errno;
    (void)close(*fd);
    *fd = -1;
    lar_segment_remove(folder, number);
    errno = error;
    return e;
}

lar_error lar_segment_resume(int folder, uint64_t number, uint64_t end, int *fd) {
    char name[NAME_BYTES];
    name_of(number, name);
    *fd = openat(folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (*fd < 0) return LAR_IO;
    if (ftruncate(*fd, (off_t)end) == 0) return LAR_OK;
    (void)close(*fd);
    *fd = -1;
    return LAR_IO;
}

lar_error lar_segment_write(int fd, const uint8_t *bytes, uint64_t count, uint64_t offset) {
    while (count) {
        ssize_t n = pwrite(fd, bytes, count, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return error_of(errno);
        if (n == 0) { /* no system does this; it must not become an endless loop */
            errno = EIO;
            return LAR_IO;
        }
        bytes += n;
        count -= (uint64_t)n;
        offset += (uint64_t)n;
    }
    return LAR_OK;
}

static lar_error read_all(int fd, uint8_t *to, uint64_t count, uint64_t offset) {
    while (count) {
        ssize_t n = pread(fd, to, count, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return LAR_IO;
        if (n == 0) return LAR_CORRUPT; /* the file ends here */
        to += n;
        count -= (uint64_t)n;
        offset += (uint64_t)n;
    }
    return LAR_OK;
}

lar_error lar_segment_read(int folder, const lar_digest *key, const lar_segment_place *place, uint8_t *to) {
    char name[NAME_BYTES];
    uint8_t head[LAR_SEGMENT_RECORD_BYTES];
    name_of(place->segment, name);
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return is_short(errno) ? LAR_BUSY : LAR_CORRUPT;
    lar_error e = read_all(fd, head, sizeof head, place->offset);
    if (!e) e = lar_segment_record_check(head, key, place);
    if (!e) e = read_all(fd, to, place->bytes, place->offset + LAR_SEGMENT_ALIGN);
    if (!e && lar_segment_sum(to, place->bytes) != place->sum) e = LAR_CORRUPT;
    (void)close(fd);
    return e;
}

void lar_segment_remove(int folder, uint64_t number) {
    char name[NAME_BYTES];
    name_of(number, name);
    (void)unlinkat(folder, name, 0);
}

/* OK and its size; NOT_FOUND: no file of ours; BUSY: not now; all else: it can go. */
static lar_error look_at(int folder, uint64_t number, uint64_t *bytes) {
    char name[NAME_BYTES];
    uint8_t head[LAR_SEGMENT_HEAD_BYTES];
    struct stat st;
    name_of(number, name);
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return is_short(errno) ? LAR_BUSY : LAR_NOT_FOUND;
    lar_error e = fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) ? LAR_NOT_FOUND : LAR_OK;
    if (!e) e = read_all(fd, head, sizeof head, 0);
    if (!e) e = lar_segment_head_check(head, number);
    (void)close(fd);
    *bytes = e ? 0 : (uint64_t)st.st_size;
    return e;
}

lar_error lar_segment_list(int folder, lar_segment_each each, void *context) {
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd >= 0) (void)close(fd);
        return LAR_IO;
    }
    lar_error e = LAR_OK;
    for (struct dirent *entry; !e && (entry = readdir(dir)) != NULL;) {
        uint64_t number = number_of(entry->d_name), bytes = 0;
        if (!number) continue;
        lar_error found = look_at(folder, number, &bytes);
        if (!found) e = each(context, number, bytes);
        else if (found == LAR_BUSY) e = LAR_IO;
        else if (found != LAR_NOT_FOUND) lar_segment_remove(folder, number);
    }
    (void)closedir(dir);
    return e;
}
