/* Old findings, so that only new ones fail: written once, read by every later run.
 *
 *     {"version": 1, "findings": [{"rule": "LR001", "file": "a.jsonl", "key": "<32 hex digits>", "count": 1}]}
 *
 * A finding is known by rule, pointer without its numbers and label, not by its line. Called by lint_main.c; blocks on
 * files; one thread. Memory: the list on the heap, at most FILE_BYTES_MAX of text. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "gateway/commands/lint_command.h"

enum { FILE_BYTES_MAX = 64 << 20 };

typedef struct old_finding {
    char *file;
    char key[LAR_LINT_KEY_BYTES];
    uint32_t count;
} old_finding;

struct lar_lint_baseline {
    old_finding *list;
    uint32_t count;
};

/* The same file has one name, however it was found. */
static const char *plain(const char *file) {
    while (strncmp(file, "./", 2) == 0) file += 2;
    return file;
}

void lar_lint_baseline_free(lar_lint_baseline *b) {
    if (!b) return;
    for (uint32_t i = 0; i < b->count; i++) free(b->list[i].file);
    free(b->list);
    free(b);
}

static bool read_one(const cJSON *o, old_finding *to) {
    const char *file = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "file")),
               *key = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "key"));
    const cJSON *count = cJSON_GetObjectItemCaseSensitive(o, "count");
    if (!file || !key || strlen(key) != LAR_LINT_KEY_BYTES - 1 || !cJSON_IsNumber(count) || count->valuedouble < 1)
        return false;
    to->file = strdup(file);
    memcpy(to->key, key, LAR_LINT_KEY_BYTES);
    to->count = count->valuedouble < 1e9 ? (uint32_t)count->valuedouble : 1000000000;
    return to->file != NULL;
}

lar_error lar_lint_baseline_read(const char *path, lar_lint_baseline **out, lar_diag *d) {
    lar_buf text;
    lar_diag why = {0};
    *out = NULL;
    lar_buf_init(&text, FILE_BYTES_MAX);
    lar_error e = lar_file_read(path, LAR_FILE_OR_STREAM, &text, &why);
    cJSON *root = e ? NULL : cJSON_ParseWithLength(text.ptr, text.len);
    lar_buf_release(&text);
    if (e) return lar_fail(e, d, "%s: %s", path, why.text);
    const cJSON *version = cJSON_GetObjectItemCaseSensitive(root, "version"),
                *list = cJSON_GetObjectItemCaseSensitive(root, "findings"), *o;
    if (cJSON_IsNumber(version) && version->valuedouble > 1) {
        cJSON_Delete(root);
        return lar_fail(LAR_VERSION, d, "%s: written by a newer version of larder", path);
    }
    lar_lint_baseline *b = cJSON_IsArray(list) && cJSON_IsNumber(version) ? calloc(1, sizeof *b) : NULL;
    if (b) b->list = calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *b->list);
    bool good = b && b->list;
    for (o = good ? list->child : NULL; o; o = o->next) {
        good = good && read_one(o, &b->list[b->count]);
        if (good) b->count++;
    }
    cJSON_Delete(root);
    if (!good) {
        lar_lint_baseline_free(b);
        return lar_fail(LAR_INVALID, d, "%s: not a baseline of larder lint; write one with --write-baseline", path);
    }
    *out = b;
    return LAR_OK;
}

bool lar_lint_baseline_take(lar_lint_baseline *b, const lar_lint_finding *f, const char *file) {
    char key[LAR_LINT_KEY_BYTES];
    lar_lint_key_hex(f->key, key);
    for (uint32_t i = 0; b && i < b->count; i++) {
        if (!b->list[i].count || strcmp(b->list[i].key, key) != 0 || strcmp(b->list[i].file, plain(file)) != 0)
            continue;
        b->list[i].count--;
        return true;
    }
    return false;
}

uint32_t lar_lint_baseline_left(const lar_lint_baseline *b, const char *file) {
    uint32_t n = 0;
    for (uint32_t i = 0; b && i < b->count; i++) {
        if (strcmp(b->list[i].file, plain(file)) == 0) n += b->list[i].count;
    }
    return n;
}

lar_error lar_lint_baseline_write(const char *path, const lar_lint_report *r, lar_diag *d) {
    cJSON *root = cJSON_CreateObject();
    (void)cJSON_AddNumberToObject(root, "version", 1);
    cJSON *list = cJSON_AddArrayToObject(root, "findings");
    for (uint32_t i = 0; i < r->count; i++) {
        char key[LAR_LINT_KEY_BYTES];
        cJSON *o = cJSON_CreateObject();
        lar_lint_key_hex(r->findings[i].key, key);
        (void)cJSON_AddStringToObject(o, "rule", lar_rule_id(r->findings[i].rule));
        (void)cJSON_AddStringToObject(o, "file", plain(r->files[r->findings[i].place.file].name));
        (void)cJSON_AddStringToObject(o, "key", key);
        (void)cJSON_AddNumberToObject(o, "count", 1);
        (void)cJSON_AddItemToArray(list, o);
    }
    char *text = cJSON_Print(root);
    cJSON_Delete(root);
    lar_buf b;
    lar_buf_init(&b, FILE_BYTES_MAX);
    lar_error e = text ? lar_buf_printf(&b, "%s\n", text) : LAR_NO_MEMORY;
    free(text);
    if (!e) e = lar_lint_replace_file(path, lar_buf_slice(&b), NULL, d);
    lar_buf_release(&b);
    return e;
}
