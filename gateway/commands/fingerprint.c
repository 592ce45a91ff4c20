/* larder fingerprint: the edition that this program acts as, and the version of everything that decides what is sent.
 * Flow: main.c calls. One thread; blocks on stdout. Why: after an upgrade somebody wants to know what misses once, and
 * which edition to pin. Memory: one text. Not here: the versions (policies/edition.def). */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "gateway/commands/fingerprint.h"
#include "gateway/commands/present.h"
#include "policies/edition.h"

static const char usage[] =
    "usage: larder fingerprint [--edition NAME] [--format text|json]\n"
    "The edition that this program acts as: the version of every rule, hash and template that decides which bytes\n"
    "are sent, and one hash over all. `edition: " LAR_EDITION "` in the configuration pins it.\n"
    "  --edition NAME     also what has changed since that edition, and what misses once because of it\n"
    "  --format FORMAT    text (default) or json\n"
    "  --help             this text\n";

typedef struct asked {
    const char *edition;
    bool json;
} asked;

/* -1 to go on, or the exit code. */
static int parse(asked *a, int argc, char **argv) {
    for (int i = 0; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return (void)printf("%s", usage), 0;
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        bool edition = !strcmp(argv[i], "--edition"), format = !strcmp(argv[i], "--format");
        if (!edition && !format) return (void)fprintf(stderr, "larder: unknown option %.100s\n%s", argv[i], usage), 2;
        if (!value) return (void)fprintf(stderr, "larder: %s needs a value\n", argv[i]), 2;
        i++;
        if (edition) a->edition = value;
        else if (!strcmp(value, "json") || !strcmp(value, "text")) a->json = !strcmp(value, "json");
        else return (void)fprintf(stderr, "larder: --format '%.100s': text or json\n", value), 2;
    }
    if (!a->edition || lar_edition_known(lar_slice_cstr(a->edition))) return -1;
    (void)fprintf(stderr, "larder: no edition '%.100s' is known here; this program acts as %s\n", a->edition,
                  LAR_EDITION);
    return 2;
}

static void print_text(const asked *a, const lar_edition_row *rows, uint32_t n) {
    (void)printf("edition %s  %016" PRIx64 "%s\n\n", LAR_EDITION, lar_edition_hash(),
                 LAR_EDITION_OPEN ? "  (not released: its rows may still change)" : "");
    lar_table *t = lar_table_new(3);
    lar_table_cell(t, "what");
    lar_table_cell(t, "version");
    lar_table_cell(t, "misses once when it changes");
    for (uint32_t i = 0; i < n; i++) {
        lar_table_cell(t, "%s", rows[i].name);
        lar_table_cell(t, "%" PRIu32, rows[i].version);
        lar_table_cell(t, "%s", rows[i].touches);
    }
    lar_table_print(t, stdout);
    lar_table_free(t);
    if (!a->edition) return;
    lar_edition_change changes[LAR_EDITION_ROWS_MAX];
    uint32_t count = lar_edition_diff(lar_slice_cstr(a->edition), changes);
    (void)printf("\nsince %s: %s\n", a->edition, count ? "" : "nothing has changed");
    for (uint32_t i = 0; i < count; i++) {
        (void)printf("  %s ", changes[i].name);
        if (changes[i].was) (void)printf("%" PRIu32 " > %" PRIu32, changes[i].was, changes[i].is);
        else (void)printf("new");
        (void)printf(": %s\n", changes[i].touches);
    }
}

static int print_json(const asked *a, const lar_edition_row *rows, uint32_t n) {
    char hash[20];
    cJSON *o = cJSON_CreateObject();
    (void)snprintf(hash, sizeof hash, "%016" PRIx64, lar_edition_hash());
    (void)cJSON_AddStringToObject(o, "edition", LAR_EDITION);
    (void)cJSON_AddStringToObject(o, "hash", hash);
    (void)cJSON_AddBoolToObject(o, "released", !LAR_EDITION_OPEN);
    cJSON *versions = cJSON_AddObjectToObject(o, "versions");
    for (uint32_t i = 0; i < n; i++) (void)cJSON_AddNumberToObject(versions, rows[i].name, rows[i].version);
    if (a->edition) {
        lar_edition_change changes[LAR_EDITION_ROWS_MAX];
        uint32_t count = lar_edition_diff(lar_slice_cstr(a->edition), changes);
        (void)cJSON_AddStringToObject(o, "since", a->edition);
        cJSON *list = cJSON_AddArrayToObject(o, "changes");
        for (uint32_t i = 0; list && i < count; i++) {
            cJSON *row = cJSON_CreateObject();
            (void)cJSON_AddStringToObject(row, "name", changes[i].name);
            (void)cJSON_AddNumberToObject(row, "was", changes[i].was);
            (void)cJSON_AddNumberToObject(row, "is", changes[i].is);
            (void)cJSON_AddStringToObject(row, "touches", changes[i].touches);
            (void)cJSON_AddItemToArray(list, row);
        }
    }
    lar_error e = lar_present_document(o, stdout);
    if (e == LAR_NO_MEMORY) (void)fprintf(stderr, "larder: %s\n", lar_error_text(e));
    return e ? 1 : 0;
}

int lar_command_fingerprint(int argc, char **argv) {
    asked a = {0};
    lar_edition_row rows[LAR_EDITION_ROWS_MAX];
    int rc = parse(&a, argc, argv);
    if (rc >= 0) return rc;
    uint32_t n = lar_edition_rows(LAR_SLICE(LAR_EDITION), rows);
    if (a.json) return print_json(&a, rows, n);
    print_text(&a, rows, n);
    return 0;
}
