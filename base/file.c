/* Reading a whole file (header: file.h).
 * Called by the configuration loader, the offline commands and the engine's loader; blocks on the disk: never on a
 * loop. Invariants: 1. what is read is bounded by the buffer's maximum. 2. opening a FIFO that nobody writes to does
 * not hang where only regular files are wanted. 3. no message holds the path: a credential may stand there by mistake.
 * Memory: the caller's buffer. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE_BYTES = 64 << 10 };

static lar_error check_kind(const struct stat *st, lar_file_kinds kinds, const lar_buf *out, lar_diag *d) {
    if (S_ISDIR(st->st_mode)) return lar_fail(LAR_INVALID, d, "is a folder, not a file");
    if (!S_ISREG(st->st_mode))
        return kinds == LAR_FILE_OR_STREAM ? LAR_OK : lar_fail(LAR_INVALID, d, "is not a regular file");
    if (st->st_size > 0 && (uint64_t)st->st_size > out->max - out->len)
        return lar_fail(LAR_LIMIT, d, "is larger than the %zu bytes allowed", out->max);
    return LAR_OK;
}

/* Room for the next piece; with no room left, one byte more is tried, to see whether the file ends there. */
static lar_error read_all(int fd, lar_buf *out, lar_diag *d) {
    for (;;) {
        size_t room = out->max - out->len;
        if (room > PIECE_BYTES && out->cap - out->len < room) room = PIECE_BYTES;
        lar_error e = lar_buf_reserve(out, room);
        if (e) return lar_fail(e, d, "cannot be read: out of memory");
        char beyond;
        ssize_t n = room ? read(fd, out->ptr + out->len, room) : read(fd, &beyond, 1);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return lar_fail(LAR_IO, d, "cannot be read (%s)", strerror(errno));
        if (n == 0) return LAR_OK;
        if (!room) return lar_fail(LAR_LIMIT, d, "is larger than the %zu bytes allowed", out->max);
        out->len += (size_t)n;
    }
}

lar_error lar_file_read(const char *path, lar_file_kinds kinds, lar_buf *out, lar_diag *d) {
    int wait = kinds == LAR_FILE_REGULAR ? O_NONBLOCK : 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | wait);
    if (fd < 0) {
        int why = errno;
        return lar_fail(why == ENOENT ? LAR_NOT_FOUND : LAR_IO, d, "cannot be opened (%s)", strerror(why));
    }
    struct stat st;
    lar_error e =
        fstat(fd, &st) ? lar_fail(LAR_IO, d, "cannot be read (%s)", strerror(errno)) : check_kind(&st, kinds, out, d);
    if (!e && S_ISREG(st.st_mode) && st.st_size > 0) {
        e = lar_buf_reserve(out, (size_t)st.st_size);
        if (e) e = lar_fail(e, d, "cannot be read: out of memory");
    }
    if (!e) e = read_all(fd, out, d);
    (void)close(fd);
    return e;
}
