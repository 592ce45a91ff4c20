/* Small files in the store's folder (header: side_file.h).
 * Flow: store.c at open, the gateway through it at start. Blocks on the disk: never on a loop thread.
 * Why no table of the environment: a damaged environment is set aside, and these must outlive it; and the key of
 * fingerprints must not travel with a copy of the journal. Invariant: a reader sees the old bytes or the new ones.
 * Memory: the caller's. */
#include "store/side_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, PIECE_BYTES = 4096 };

static bool path_of(const char *dir, const char *name, const char *tail, char out[PATH_BYTES]) {
    int n = snprintf(out, PATH_BYTES, "%s/%s%s", dir, name, tail);
    return n > 0 && n < PATH_BYTES;
}

lar_error lar_side_file_read(const char *dir, const char *name, lar_buf *out) {
    char path[PATH_BYTES], piece[PIECE_BYTES];
    if (!path_of(dir, name, "", path)) return LAR_IO;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return errno == ENOENT ? LAR_NOT_FOUND : LAR_IO;
    lar_error e = LAR_OK;
    ssize_t n;
    while (!e && (n = read(fd, piece, sizeof piece)) != 0) e = n < 0 ? LAR_IO : lar_buf_add(out, piece, (size_t)n);
    (void)close(fd);
    return e;
}

static bool write_all(int fd, lar_slice bytes) {
    while (bytes.len) {
        ssize_t n = write(fd, bytes.ptr, bytes.len);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        bytes = lar_slice_of(bytes.ptr + n, bytes.len - (size_t)n);
    }
    return fsync(fd) == 0;
}

lar_error lar_side_file_write(const char *dir, const char *name, lar_slice bytes) {
    char path[PATH_BYTES], fresh[PATH_BYTES];
    if (!path_of(dir, name, "", path) || !path_of(dir, name, ".new", fresh)) return LAR_IO;
    (void)unlink(fresh); /* of a process that was killed half-way; the writers' lock is held */
    int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return LAR_IO;
    bool ok = write_all(fd, bytes);
    ok = close(fd) == 0 && ok;
    if (ok && rename(fresh, path) == 0) return LAR_OK;
    (void)unlink(fresh);
    return LAR_IO;
}
