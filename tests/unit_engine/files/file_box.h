/* A temporary folder of a test, with the files that it wrote. */
#ifndef LARDER_TESTS_FILE_BOX_H
#define LARDER_TESTS_FILE_BOX_H

#include <stddef.h>

#include "base/slice.h"

enum { BOX_PATH_BYTES = 512 };

typedef struct file_box {
    char path[64];
} file_box;

void box_make(file_box *b);
/* Path of a file in it, in `out`. */
const char *box_path(const file_box *b, const char *name, char out[BOX_PATH_BYTES]);
void box_write(const file_box *b, const char *name, lar_slice bytes);
void box_folder(const file_box *b, const char *name);
/* Removes it with all files and folders of files in it. */
void box_remove(const file_box *b);

/* One for all tests of a program, and its cmocka fixtures: made before the first test, where
 * `state` is it, removed behind the last. */
extern file_box test_box;
int box_setup(void **state);
int box_teardown(void **state);

#endif
