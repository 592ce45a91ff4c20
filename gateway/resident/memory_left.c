/* Memory that is left (header: memory_left.h). Called at start; reads files of the kernel, blocks little.
 * Limits of control groups: memory.max of version 2, memory.limit_in_bytes of version 1, of every group from the
 * process's own up to the root. What a group uses counts without file pages that the kernel gives back at need.
 * Memory: one buffer at a time. */
#include "gateway/resident/memory_left.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum { FILE_BYTES_MAX = 1 << 20, PATH_BYTES = 1024 };

static bool read_text(const char *root, const char *path, lar_buf *out) {
    char full[2 * PATH_BYTES];
    lar_diag ignored = {0};
    lar_buf_init(out, FILE_BYTES_MAX);
    int n = snprintf(full, sizeof full, "%s%s", root, path);
    bool fits = n > 0 && (size_t)n < sizeof full;
    return fits && lar_file_read(full, LAR_FILE_REGULAR, out, &ignored) == LAR_OK && lar_buf_add(out, "", 1) == LAR_OK;
}

/* The number behind `name`, which begins a line; "" names the whole text. False: there is none, as with "max". */
static bool number_of(const lar_buf *text, const char *name, uint64_t *out) {
    const char *at = text->ptr;
    size_t n = strlen(name);
    while (n && at && strncmp(at, name, n) != 0) {
        at = strchr(at, '\n');
        if (at) at++;
    }
    if (!at) return false;
    at += n + strspn(at + n, " \t");
    char *end;
    *out = strtoull(at, &end, 10);
    return end != at && *at != '-';
}

static bool read_number(const char *root, const char *folder, const char *file, const char *name, uint64_t *out) {
    char path[PATH_BYTES];
    lar_buf text;
    int n = snprintf(path, sizeof path, "%s/%s", folder, file);
    if (n < 0 || (size_t)n >= sizeof path) return false;
    bool found = read_text(root, path, &text) && number_of(&text, name, out);
    lar_buf_release(&text);
    return found;
}

typedef struct group_files {
    const char *mount, *limit, *usage, *inactive, *active;
} group_files;

static const group_files versions[] = {
    {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file", "active_file"},
    {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
     "total_active_file"},
};

/* Of one group; UINT64_MAX: it has no limit. */
static uint64_t left_in(const char *root, const char *folder, const group_files *f) {
    uint64_t limit, used, part, files = 0;
    if (!read_number(root, folder, f->limit, "", &limit) || !read_number(root, folder, f->usage, "", &used))
        return UINT64_MAX;
    if (read_number(root, folder, "memory.stat", f->inactive, &part)) files += part;
    if (read_number(root, folder, "memory.stat", f->active, &part)) files += part;
    used = used > files ? used - files : 0;
    return limit > used ? limit - used : 0;
}

/* The path of the process's group below the mount: "0::/path" of version 2, "N:...memory...:/path" of version 1. */
static void own_group(const char *root, bool first_version, char out[PATH_BYTES]) {
    lar_buf text;
    *out = 0;
    bool read = read_text(root, "/proc/self/cgroup", &text);
    for (const char *line = read ? text.ptr : NULL; line && *line; line = strchr(line, '\n'), line += line != NULL) {
        const char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) break;
        size_t n = strcspn(path + 1, "\n");
        bool unified = path == controllers + 1;
        bool memory = !unified && memmem(controllers, (size_t)(path - controllers), "memory", 6);
        if ((first_version ? memory : unified) && n < PATH_BYTES) {
            memcpy(out, path + 1, n);
            out[n] = 0;
        }
    }
    lar_buf_release(&text);
}

static uint64_t left_in_groups(const char *root, const group_files *f) {
    char group[PATH_BYTES], folder[2 * PATH_BYTES];
    uint64_t least = UINT64_MAX;
    own_group(root, f == &versions[1], group);
    for (;;) {
        (void)snprintf(folder, sizeof folder, "%s%s", f->mount, strcmp(group, "/") == 0 ? "" : group);
        uint64_t left = left_in(root, folder, f);
        if (left < least) least = left;
        char *slash = strrchr(group, '/');
        if (!slash) return least;
        *slash = 0;
    }
}

lar_error lar_memory_left(const char *root, uint64_t *out, lar_diag *d) {
    uint64_t kib;
    if (!read_number(root, "/proc", "meminfo", "MemAvailable:", &kib))
        return lar_fail(LAR_IO, d, "/proc/meminfo does not say how much memory is available");
    *out = kib << 10;
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        uint64_t left = left_in_groups(root, &versions[i]);
        if (left < *out) *out = left;
    }
    return LAR_OK;
}
