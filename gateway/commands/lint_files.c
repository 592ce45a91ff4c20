/* Which files are meant: names, folders, patterns.
 * Called by lint_main.c; blocks on folders; one thread. Invariants: 1. the order does not depend on the folder's.
 * 2. no recursion: folders wait in a list. 3. hidden folders are entered only if they are named.
 * Memory: names on the heap, at most FILES_MAX. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "gateway/commands/lint_command.h"

enum { FILES_MAX = 1 << 20, PATH_BYTES = 4096, FOLDERS_MAX = 1 << 16 };

/* -- patterns ------------------------------------------------------------------------------------------ */

/* [abc], [a-z], [!...] at p: behind it, 0 if it does not end; *fits whether c is in it. */
static size_t read_set(const char *p, char c, bool *fits) {
    size_t i = 1;
    bool not = p[i] == '!' || p[i] == '^', in = false;
    if (not ) i++;
    for (size_t first = i; p[i] && (p[i] != ']' || i == first); i++) {
        if (p[i + 1] == '-' && p[i + 2] && p[i + 2] != ']') {
            in = in || (c >= p[i] && c <= p[i + 2]);
            i += 2;
        } else in = in || p[i] == c;
    }
    *fits = in != not &&c != '/';
    return p[i] == ']' ? i + 1 : 0;
}

typedef struct again {
    const char *pattern, *path; /* where to go on when the rest does not fit */
} again;

/* One step of the match; false if the two do not go together here. */
static bool step(const char **p, const char **t) {
    bool fits = false;
    if (**p == '[') {
        size_t n = **t ? read_set(*p, **t, &fits) : 0;
        if (n) {
            *p += n, *t += 1;
            return fits;
        }
    }
    if (!**t || (**p == '?' ? **t == '/' : **p != **t)) return false;
    *p += 1, *t += 1;
    return true;
}

bool lar_lint_glob_match(const char *pattern, const char *path) {
    const char *p = pattern, *t = path;
    again one = {NULL, NULL}, many = {NULL, NULL};
    while (*t || *p) {
        if (p[0] == '*' && p[1] == '*') {
            p += 2;
            if (*p == '/') p++; /* a double star and its slash stand for no folder too */
            many = (again){p, t};
            one = (again){NULL, NULL};
        } else if (*p == '*') {
            one = (again){++p, t};
        } else if (!step(&p, &t)) {
            if (one.pattern && *one.path && *one.path != '/') {
                p = one.pattern, t = ++one.path;
            } else if (many.pattern && *many.path) {
                one = (again){NULL, NULL};
                p = many.pattern, t = ++many.path;
            } else return false;
        }
    }
    return true;
}

/* -- folders ------------------------------------------------------------------------------------------- */

static lar_error add_name(lar_lint_files *f, const char *name, lar_diag *d) {
    if (f->count == FILES_MAX) return lar_fail(LAR_LIMIT, d, "more than %d files", FILES_MAX);
    if (f->count == f->cap) {
        uint32_t cap = f->cap ? f->cap * 2 : 64;
        char **more = realloc(f->names, cap * sizeof(char *));
        if (!more) return LAR_NO_MEMORY;
        f->names = more;
        f->cap = cap;
    }
    f->names[f->count] = strdup(name);
    if (!f->names[f->count]) return LAR_NO_MEMORY;
    f->count++;
    return LAR_OK;
}

static bool ends_with(const char *name, const char *end) {
    size_t a = strlen(name), b = strlen(end);
    return a > b && strcmp(name + a - b, end) == 0;
}

typedef struct walking {
    lar_lint_files *files, folders;
    const char *pattern; /* NULL: all that a folder is read for */
    lar_diag *d;
} walking;

static lar_error entry(walking *w, const char *folder, const char *name) {
    char path[PATH_BYTES];
    struct stat st;
    bool here = strcmp(folder, ".") == 0 && w->pattern;
    int n = here ? snprintf(path, sizeof path, "%s", name) : snprintf(path, sizeof path, "%s/%s", folder, name);
    if (n < 0 || n >= (int)sizeof path || lstat(path, &st)) return LAR_OK;
    if (S_ISDIR(st.st_mode)) return add_name(&w->folders, path, w->d);
    if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode)) return LAR_OK;
    bool wanted = w->pattern ? lar_lint_glob_match(w->pattern, path)
                             : ends_with(path, ".json") || ends_with(path, ".jsonl") || ends_with(path, ".ndjson");
    return wanted ? add_name(w->files, path, w->d) : LAR_OK;
}

static lar_error walk(walking *w, const char *top) {
    lar_error e = add_name(&w->folders, top, w->d);
    for (uint32_t i = 0; i < w->folders.count && !e; i++) {
        DIR *dir = opendir(w->folders.names[i]);
        if (!dir && i == 0) e = lar_fail(LAR_IO, w->d, "%s: %s", top, strerror(errno));
        if (!dir) continue;
        for (struct dirent *x; !e && (x = readdir(dir)) != NULL;) {
            if (x->d_name[0] == '.' || w->folders.count >= FOLDERS_MAX) continue;
            e = entry(w, w->folders.names[i], x->d_name);
        }
        (void)closedir(dir);
    }
    lar_lint_files_release(&w->folders);
    return e;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static lar_error add_pattern(lar_lint_files *f, const char *pattern, lar_diag *d) {
    char top[PATH_BYTES];
    size_t special = strcspn(pattern, "*?["), n = special;
    while (n > 0 && pattern[n - 1] != '/') n--;
    if (n >= sizeof top) return lar_fail(LAR_INVALID, d, "the pattern is too long");
    memcpy(top, pattern, n);
    top[n] = 0;
    if (n > 1) top[n - 1] = 0; /* without its slash */
    walking w = {.files = f, .pattern = pattern, .d = d};
    return walk(&w, n ? top : ".");
}

/* A store of larder's is read as a whole. */
static bool is_store(const char *folder) {
    char data[PATH_BYTES];
    struct stat st;
    int n = snprintf(data, sizeof data, "%s/data.mdb", folder);
    return n > 0 && n < (int)sizeof data && stat(data, &st) == 0;
}

lar_error lar_lint_files_add(lar_lint_files *f, const char *path, lar_diag *d) {
    struct stat st;
    uint32_t before = f->count;
    if (strcmp(path, "-") == 0) return add_name(f, path, d);
    bool there = stat(path, &st) == 0;
    if (there && (!S_ISDIR(st.st_mode) || is_store(path))) return add_name(f, path, d);
    bool pattern = !there && path[strcspn(path, "*?[")] != 0;
    if (!there && !pattern) return lar_fail(LAR_NOT_FOUND, d, "%s: %s", path, strerror(errno));
    walking w = {.files = f, .d = d};
    lar_error e = pattern ? add_pattern(f, path, d) : walk(&w, path);
    if (!e && f->count == before)
        e = lar_fail(LAR_NOT_FOUND, d,
                     pattern ? "%s: no file matches"
                             : "%s: no .json, .jsonl or .ndjson file in it; prompts are given as files: '*.md'",
                     path);
    if (!e) qsort(f->names + before, f->count - before, sizeof(char *), by_name);
    return e;
}

void lar_lint_files_release(lar_lint_files *f) {
    for (uint32_t i = 0; i < f->count; i++) free(f->names[i]);
    free(f->names);
    *f = (lar_lint_files){0};
}
