/* Runs a fuzzer's function once over every file named on the command line or found in a folder named there.
 * Flow: main -> LLVMFuzzerTestOneInput. One thread. Blocks on files.
 * Why: builds without libFuzzer replay the corpus too. Each input is a block of its own exact size, so
 * that a sanitizer sees a read behind its end. Fails when there was nothing to run.
 * Memory: one input at a time. Not here: anything that makes new inputs. */
#include <dirent.h>
#include <sys/stat.h>

#include "base/arena.h"
#include "tests/fuzz/fuzz.h"

static int run_file(const char *path) {
    FILE *f = fopen(path, "rb");
    struct stat st;
    if (!f || fstat(fileno(f), &st) != 0) {
        perror(path);
        exit(1);
    }
    size_t size = (size_t)st.st_size;
    uint8_t *data = malloc(size ? size : 1);
    if (!data || fread(data, 1, size, f) != size) {
        perror(path);
        exit(1);
    }
    (void)fclose(f);
    (void)LLVMFuzzerTestOneInput(data, size);
    free(data);
    return 1;
}

static int run_folder(const char *folder, lar_arena *names) {
    DIR *d = opendir(folder);
    int count = 0;
    if (!d) {
        perror(folder);
        exit(1);
    }
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        if (e->d_name[0] == '.') continue;
        lar_slice path = lar_arena_printf(names, "%s/%s", folder, e->d_name);
        if (!path.ptr) abort();
        count += run_file(path.ptr);
        lar_arena_reset(names, 1 << 16);
    }
    (void)closedir(d);
    return count;
}

int main(int argc, char **argv) {
    lar_arena names;
    lar_arena_init(&names, 1 << 20);
    int count = 0;
    for (int i = 1; i < argc; i++) {
        struct stat st;
        if (stat(argv[i], &st) != 0) {
            perror(argv[i]);
            return 1;
        }
        count += S_ISDIR(st.st_mode) ? run_folder(argv[i], &names) : run_file(argv[i]);
    }
    lar_arena_release(&names);
    (void)printf("%d inputs\n", count);
    return count ? 0 : 1;
}
