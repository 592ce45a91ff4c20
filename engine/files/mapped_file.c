/* Files as bytes: mapped, or read whole.
 * Called by model_files.c and by readers of config.json and tokenizer.json; any thread. Blocks on the disk, a mapping
 * only when its pages are touched. Why: weights are larger than a copy may be, and pages that several programs map are
 * shared. Memory: the mapping; what is read goes to the caller's buffer, under its maximum.
 * Not here: what the bytes mean. Why a mapped file must not shrink is said in the header. */
#include "engine/files/mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

const char *lar_file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* A pipe or a device must neither hang the open nor be taken for an empty file. */
static lar_error open_regular(const char *path, int *fd, struct stat *st, lar_diag *d) {
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (*fd < 0) {
        lar_error e = errno == ENOENT || errno == ENOTDIR ? LAR_NOT_FOUND : LAR_IO;
        return lar_fail(e, d, "%.200s: %s", lar_file_name(path), strerror(errno));
    }
    if (fstat(*fd, st) == 0 && S_ISREG(st->st_mode)) return LAR_OK;
    (void)close(*fd);
    return lar_fail(LAR_IO, d, "%.200s: not a regular file", lar_file_name(path));
}

lar_error lar_mapped_file_open(const char *path, lar_file_view *out, lar_diag *d) {
    *out = (lar_file_view){.name = lar_file_name(path)};
    int fd;
    struct stat st;
    lar_error e = open_regular(path, &fd, &st, d);
    if (e) return e;
    uint64_t size = (uint64_t)st.st_size;
    if (size) {
        void *p = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
            e = lar_fail(errno == ENOMEM ? LAR_NO_MEMORY : LAR_IO, d, "%.200s: mapping it: %s", out->name,
                         strerror(errno));
        else out->bytes = p, out->size = size;
    }
    (void)close(fd);
    return e;
}

void lar_mapped_file_close(lar_file_view *f) {
    if (f->bytes) (void)munmap((void *)(uintptr_t)f->bytes, f->size);
    *f = (lar_file_view){0};
}

static lar_error read_all(int fd, const char *name, uint64_t size, lar_buf *out, lar_diag *d) {
    for (uint64_t done = 0; done < size;) {
        lar_error e = lar_buf_reserve(out, size - done);
        if (e) return lar_fail(e, d, "%.200s: %llu bytes", name, (unsigned long long)size);
        ssize_t n = read(fd, out->ptr + out->len, size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return lar_fail(LAR_IO, d, "%.200s: %s", name, strerror(errno));
        if (n == 0) return lar_fail(LAR_IO, d, "%.200s: it became shorter while it was read", name);
        out->len += (size_t)n;
        done += (uint64_t)n;
    }
    return LAR_OK;
}

lar_error lar_file_read(const char *path, lar_buf *out, lar_diag *d) {
    int fd;
    struct stat st;
    lar_error e = open_regular(path, &fd, &st, d);
    if (e) return e;
    const char *name = lar_file_name(path);
    uint64_t size = (uint64_t)st.st_size;
    if (size > out->max - out->len)
        e = lar_fail(LAR_LIMIT, d, "%.200s: %llu bytes; at most %zu are read", name, (unsigned long long)size,
                     out->max);
    else e = read_all(fd, name, size, out, d);
    (void)close(fd);
    return e;
}
