/* New bytes of a file: in its place, or as a diff.
 * Flow: lint_main.c -> here. One thread; blocks on files. Invariants: 1. the file holds the old bytes or the new
 * ones, never a part of either: they are written beside it, synced, and renamed. 2. its mode stays; a symbolic link
 * stays one; a pipe or a device is left alone. 3. what somebody else wrote into it since it was read stays.
 * Memory: none of its own. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/commands/lint_command.h"

static bool write_all(int fd, lar_slice text) {
    while (text.len) {
        ssize_t n = write(fd, text.ptr, text.len);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        text = lar_slice_of(text.ptr + n, text.len - (size_t)n);
    }
    return true;
}

static void sync_folder(const char *path) {
    char folder[PATH_MAX];
    (void)snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = 0;
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd);
    (void)close(fd);
}

/* Whether the file holds those bytes. Its time and size would say less: both may stay when an editor is quick. */
static bool still_holds(const char *path, lar_slice read_before) {
    char block[64 * 1024];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool same = fd >= 0;
    for (lar_slice rest = read_before; same;) {
        ssize_t n = read(fd, block, sizeof block);
        if (n < 0 && errno == EINTR) continue;
        same = n >= 0 && (size_t)n <= rest.len && (n == 0 ? rest.len == 0 : memcmp(block, rest.ptr, (size_t)n) == 0);
        if (n <= 0) break;
        rest = lar_slice_of(rest.ptr + n, rest.len - (size_t)n);
    }
    if (fd >= 0) (void)close(fd);
    return same;
}

lar_error lar_lint_replace_file(const char *path, lar_slice text, const lar_slice *read, lar_diag *d) {
    char full[PATH_MAX], beside[PATH_MAX + 16];
    struct stat st;
    bool there = realpath(path, full) != NULL;
    if (!there && (errno != ENOENT || snprintf(full, sizeof full, "%s", path) >= (int)sizeof full))
        return lar_fail(LAR_IO, d, "%s: %s", path, strerror(errno));
    there = there && stat(full, &st) == 0;
    if (there && !S_ISREG(st.st_mode)) return lar_fail(LAR_IO, d, "%s: not written: it is no regular file", path);
    mode_t mask = umask(0);
    (void)umask(mask);
    mode_t mode = there ? st.st_mode & 07777 : 0666 & ~mask;
    (void)snprintf(beside, sizeof beside, "%s.XXXXXX", full);
    int fd = mkstemp(beside);
    if (fd < 0) return lar_fail(LAR_IO, d, "%s: cannot write beside it: %s", path, strerror(errno));
    bool good = write_all(fd, text) && fchmod(fd, mode) == 0 && fsync(fd) == 0;
    int why = errno;
    if (close(fd) != 0 && good) good = false, why = errno;
    if (good && read && !still_holds(full, *read)) { /* last, so that little time is left behind it */
        (void)unlink(beside);
        return lar_fail(LAR_IO, d, "%s: not written: it changed while it was read; run the command again", path);
    }
    if (good && rename(beside, full) != 0) good = false, why = errno;
    if (!good) {
        (void)unlink(beside);
        return lar_fail(LAR_IO, d, "%s: not written: %s", path, strerror(why));
    }
    sync_folder(full);
    return LAR_OK;
}

/* -- diff ---------------------------------------------------------------------------------------------- */

static lar_slice line_at(lar_slice s, size_t at) {
    const char *nl = at < s.len ? memchr(s.ptr + at, '\n', s.len - at) : NULL;
    size_t end = nl ? (size_t)(nl - s.ptr) + 1 : s.len;
    return lar_slice_of(s.ptr + at, at < s.len ? end - at : 0);
}

static bool put_lines(FILE *out, char sign, lar_slice s) {
    for (size_t at = 0; at < s.len;) {
        lar_slice line = line_at(s, at);
        if (fputc(sign, out) == EOF || fwrite(line.ptr, 1, line.len, out) != line.len) return false;
        at += line.len;
    }
    return !s.len || s.ptr[s.len - 1] == '\n' || fputs("\n\\ No newline at end of file\n", out) >= 0;
}

static size_t count_lines(lar_slice s) {
    size_t n = 0;
    for (size_t at = 0; at < s.len; n++) at += line_at(s, at).len;
    return n;
}

/* Bytes of whole lines, at the end of both, that are equal. */
static size_t equal_tail(lar_slice a, lar_slice b) {
    size_t n = 0, lines = 0;
    while (n < a.len && n < b.len && a.ptr[a.len - 1 - n] == b.ptr[b.len - 1 - n]) {
        if (n && a.ptr[a.len - 1 - n] == '\n') lines = n;
        n++;
    }
    bool begins = (n == a.len || a.ptr[a.len - 1 - n] == '\n') && (n == b.len || b.ptr[b.len - 1 - n] == '\n');
    return begins ? n : lines;
}

lar_error lar_lint_diff(const char *path, lar_slice before, lar_slice after, FILE *out) {
    if (lar_slice_eq(before, after)) return LAR_OK;
    bool good = fprintf(out, "--- %s\n+++ %s\n", path, path) >= 0;
    /* Edits rarely add or take lines: as long as both go on line by line, hunks are small. */
    bool even = count_lines(before) == count_lines(after);
    size_t a = 0, b = 0, line = 1;
    while (good && (a < before.len || b < after.len)) {
        lar_slice x = line_at(before, a), y = line_at(after, b);
        if (lar_slice_eq(x, y)) {
            a += x.len, b += y.len, line++;
            continue;
        }
        if (!even) {
            lar_slice rest_a = lar_slice_of(before.ptr + a, before.len - a),
                      rest_b = lar_slice_of(after.ptr + b, after.len - b);
            size_t tail = equal_tail(rest_a, rest_b);
            x = lar_slice_of(rest_a.ptr, rest_a.len - tail);
            y = lar_slice_of(rest_b.ptr, rest_b.len - tail);
        }
        size_t from = count_lines(x), to = count_lines(y);
        good = fprintf(out, "@@ -%zu,%zu +%zu,%zu @@\n", from ? line : line - 1, from, to ? line : line - 1, to) >= 0 &&
               put_lines(out, '-', x) && put_lines(out, '+', y);
        if (!even) break;
        a += x.len, b += y.len, line++;
    }
    return good ? LAR_OK : LAR_IO;
}
