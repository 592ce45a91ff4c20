/* Temporary folders for tests of model files. Errors end the program. Not here: what the files hold. */
#include "tests/unit_engine/files/file_box.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void box_make(file_box *b) {
    (void)snprintf(b->path, sizeof b->path, "/tmp/larder-files-XXXXXX");
    if (!mkdtemp(b->path)) abort();
}

const char *box_path(const file_box *b, const char *name, char out[BOX_PATH_BYTES]) {
    if (snprintf(out, BOX_PATH_BYTES, "%s/%s", b->path, name) >= BOX_PATH_BYTES) abort();
    return out;
}

void box_write(const file_box *b, const char *name, lar_slice bytes) {
    char path[BOX_PATH_BYTES];
    FILE *f = fopen(box_path(b, name, path), "wb");
    if (!f || (bytes.len && fwrite(bytes.ptr, bytes.len, 1, f) != 1) || fclose(f)) abort();
}

void box_folder(const file_box *b, const char *name) {
    char path[BOX_PATH_BYTES];
    if (mkdir(box_path(b, name, path), 0777)) abort();
}

/* Files go at once; folders that are not empty stay for the second round. */
static void empty(const char *folder, int depth) {
    DIR *d = opendir(folder);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));) {
        char path[BOX_PATH_BYTES];
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, e->d_name) >= BOX_PATH_BYTES) abort();
        if (remove(path) && depth) {
            empty(path, depth - 1);
            (void)remove(path);
        }
    }
    (void)closedir(d);
}

void box_remove(const file_box *b) {
    empty(b->path, 1);
    (void)remove(b->path);
}

file_box test_box;

int box_setup(void **state) {
    box_make(&test_box);
    *state = &test_box;
    return 0;
}

int box_teardown(void **state) {
    (void)state;
    box_remove(&test_box);
    return 0;
}
