/* Reads parts of a file around the page cache.
 * Called by engine/experts, from its reading threads; any number of them; blocks on the disk.
 * Why a second descriptor: O_DIRECT belongs to a descriptor, and the mapping has none any more.
 * Why it falls back: some file systems (overlays, network, memory) take no direct reads and say so only at the first.
 * Source: open(2) on O_DIRECT and alignment. */
#include "engine/files/direct_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t down(uint64_t n) { return n / LAR_DIRECT_ALIGN * LAR_DIRECT_ALIGN; }

static uint64_t up(uint64_t n) { return down(n + LAR_DIRECT_ALIGN - 1); }

uint64_t lar_direct_room(uint64_t bytes) { return up(bytes) + LAR_DIRECT_ALIGN; }

/* Of a file that is read through the page cache: what is read ahead would stay there. */
static void read_nothing_ahead(const lar_direct_file *f) {
    if (atomic_load(&f->buffered)) (void)posix_fadvise(f->fd, 0, 0, POSIX_FADV_RANDOM);
}

lar_error lar_direct_file_open(const char *path, const lar_file_view *mapped, lar_direct_file *out, lar_diag *d) {
    struct stat st;
    const int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    out->name = mapped->name;
    out->fd = open(path, flags | O_DIRECT);
    atomic_init(&out->buffered, out->fd < 0 && errno == EINVAL);
    if (atomic_load(&out->buffered)) out->fd = open(path, flags);
    if (out->fd < 0)
        return lar_fail(errno == ENOENT ? LAR_NOT_FOUND : LAR_IO, d, "%.200s: opening it once more: %s", out->name,
                        strerror(errno));
    read_nothing_ahead(out);
    if (fstat(out->fd, &st) == 0 && st.st_dev == mapped->device && st.st_ino == mapped->inode &&
        (uint64_t)st.st_size == mapped->size)
        return LAR_OK;
    lar_direct_file_close(out);
    return lar_fail(LAR_IO, d, "%.200s: it was replaced while the model was opened", out->name);
}

void lar_direct_file_close(lar_direct_file *f) {
    if (f->fd >= 0) (void)close(f->fd);
    f->fd = -1;
}

/* Reads that need no alignment, from now on. */
static bool fall_back(lar_direct_file *f) {
    if (atomic_load(&f->buffered)) return true; /* another thread was faster */
    int flags = fcntl(f->fd, F_GETFL);
    if (flags < 0 || fcntl(f->fd, F_SETFL, flags & ~O_DIRECT) != 0) return false;
    atomic_store(&f->buffered, true);
    read_nothing_ahead(f);
    return true;
}

/* At least `needed` bytes from `offset` on; what is read behind them may be behind the file's end.
 * A short read goes on at a multiple of the alignment, and reads some bytes again. */
static lar_error read_all(lar_direct_file *f, uint64_t offset, uint64_t needed, uint8_t *to) {
    uint64_t wanted = up(needed), have = 0;
    while (have < needed) {
        uint64_t from = down(have);
        bool buffered = atomic_load(&f->buffered);
        ssize_t n = pread(f->fd, to + from, wanted - from, (off_t)(offset + from));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EINVAL && !buffered && fall_back(f)) continue;
        if (n < 0) return LAR_IO;
        if (from + (uint64_t)n <= have) return LAR_CORRUPT; /* the end */
        have = from + (uint64_t)n;
    }
    return LAR_OK;
}

lar_error lar_direct_file_read(lar_direct_file *f, const lar_direct_range *range, void *memory, const uint8_t **first,
                               lar_diag *d) {
    uint64_t offset = down(range->offset), skipped = range->offset - offset;
    lar_error e = read_all(f, offset, skipped + range->bytes, memory);
    if (e == LAR_CORRUPT)
        return lar_fail(LAR_IO, d, "%.150s: it ends before byte %" PRIu64 "; it was longer when it was opened", f->name,
                        range->offset + range->bytes);
    if (e) return lar_fail(e, d, "%.150s: reading byte %" PRIu64 ": %s", f->name, range->offset, strerror(errno));
    if (atomic_load(&f->buffered))
        (void)posix_fadvise(f->fd, (off_t)offset, (off_t)up(skipped + range->bytes), POSIX_FADV_DONTNEED);
    *first = (const uint8_t *)memory + skipped;
    return LAR_OK;
}

void lar_direct_file_forget(const lar_direct_file *f, const lar_file_view *mapped, const lar_direct_range *range) {
    uint64_t begin = up(range->offset), end = down(range->offset + range->bytes);
    if (begin >= end) return;
    /* Without either: clean pages that the system takes back when it needs them. */
    (void)madvise((void *)(uintptr_t)(mapped->bytes + begin), end - begin, MADV_DONTNEED);
    (void)posix_fadvise(f->fd, (off_t)begin, (off_t)(end - begin), POSIX_FADV_DONTNEED);
}
