/* Maps files, read only.
 * Called by model_files.c; any thread. Blocks on the disk, a mapping only when its pages are touched. Why: weights are
 * larger than a copy may be, and pages that several programs map are shared. Memory: the mapping.
 * Not here: what the bytes mean; small texts, which are read whole (base/file.h). Why a mapped file must not shrink is
 * said in the header. */
#include "engine/files/mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

const char *lar_file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* A pipe or a device must neither hang the open nor be taken for an empty file. */
static lar_error open_regular(const char *path, int *fd, lar_file_view *out, lar_diag *d) {
    struct stat st;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (*fd < 0) {
        lar_error e = errno == ENOENT || errno == ENOTDIR ? LAR_NOT_FOUND : LAR_IO;
        return lar_fail(e, d, "%.200s: %s", lar_file_name(path), strerror(errno));
    }
    if (fstat(*fd, &st) == 0 && S_ISREG(st.st_mode)) {
        out->size = (uint64_t)st.st_size, out->device = st.st_dev, out->inode = st.st_ino;
        return LAR_OK;
    }
    (void)close(*fd);
    return lar_fail(LAR_IO, d, "%.200s: not a regular file", lar_file_name(path));
}

lar_error lar_mapped_file_open(const char *path, lar_file_view *out, lar_diag *d) {
    *out = (lar_file_view){.name = lar_file_name(path)};
    int fd;
    lar_file_view view = {.name = out->name};
    lar_error e = open_regular(path, &fd, &view, d);
    if (e) return e;
    if (view.size) {
        void *p = mmap(NULL, view.size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
            e = lar_fail(errno == ENOMEM ? LAR_NO_MEMORY : LAR_IO, d, "%.200s: mapping it: %s", out->name,
                         strerror(errno));
        else view.bytes = p;
    }
    if (!e) *out = view;
    (void)close(fd);
    return e;
}

void lar_mapped_file_close(lar_file_view *f) {
    if (f->bytes) (void)munmap((void *)(uintptr_t)f->bytes, f->size);
    *f = (lar_file_view){0};
}
