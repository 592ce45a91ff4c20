/* larder upstreams: asks a running larder's admin listener for /upstreams and prints it as a table.
 * Flow: main.c calls; ask_admin.c asks. One thread; blocks as that does. Why the listener and not the store: the
 * standing is in the process alone.
 * Invariants: 1. what answers may be anything: an answer is read by cJSON, and every name is made harmless. Memory: one
 * answer. */
#include "gateway/commands/upstreams.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "gateway/commands/ask_admin.h"
#include "gateway/commands/present.h"

static const char usage[] =
    "usage: larder upstreams [--admin ADDRESS] [--json]\n"
    "How each upstream of a running larder stands: its breaker, what it was asked, what failed.\n"
    "  --admin ADDRESS    HOST:PORT of its admin listener (%s)\n"
    "  --json             what the listener answered, for programs\n"
    "  --help             this text\n";

typedef struct asked {
    const char *admin;
    bool json;
} asked;

static int complain(const char *what, const char *text) {
    (void)fprintf(stderr, "larder: %s '%.100s'\n", what, text);
    (void)fprintf(stderr, usage, lar_ask_admin_default());
    return 2;
}

/* -1 to go on, or the exit code. */
static int parse(asked *a, int argc, char **argv) {
    for (int i = 0; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return (void)printf(usage, lar_ask_admin_default()), 0;
        if (!strcmp(argv[i], "--json")) a->json = true;
        else if (!strncmp(argv[i], "--admin=", 8)) a->admin = argv[i] + 8;
        else if (strcmp(argv[i], "--admin") != 0) return complain("unknown option", argv[i]);
        else if (i + 1 == argc) return complain("a value is missing behind", argv[i]);
        else a->admin = argv[++i];
    }
    return -1;
}

/* -- the table ---------------------------------------------------------------------------------------------------- */

static void add_text(lar_table *t, const cJSON *o, const char *name) {
    char shown[LAR_SHOWN_BYTES];
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, name));
    lar_present_name(lar_slice_cstr(text ? text : ""), shown);
    lar_table_cell(t, "%s", shown);
}

static double number(const cJSON *o, const char *name) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, name);
    return cJSON_IsNumber(v) ? v->valuedouble : 0;
}

static void add_number(lar_table *t, const cJSON *o, const char *name) { lar_table_cell(t, "%.0f", number(o, name)); }

/* "not_sent 3, refused 1", without those that never happened. */
static void add_failures(lar_table *t, const cJSON *classes) {
    char text[LAR_SHOWN_BYTES] = "", shown[LAR_SHOWN_BYTES];
    const cJSON *v;
    size_t at = 0;
    cJSON_ArrayForEach(v, classes) {
        if (!cJSON_IsNumber(v) || v->valuedouble < 1 || at + 64 > sizeof text) continue;
        lar_present_name(lar_slice_cstr(v->string ? v->string : ""), shown);
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%.24s %.0f", at ? ", " : "", shown,
                               v->valuedouble < 1e15 ? v->valuedouble : 1e15);
    }
    lar_table_cell(t, "%s", at ? text : "-");
}

static void add_row(lar_table *t, const cJSON *u) {
    char wait[LAR_DURATION_BYTES];
    const cJSON *window = cJSON_GetObjectItemCaseSensitive(u, "window");
    double ms = number(u, "wait_ms");
    lar_present_duration(ms >= 1 && ms < 1e12 ? (int64_t)ms * 1000 : -1, wait);
    add_text(t, u, "name");
    add_text(t, u, "kind");
    add_text(t, u, "group");
    add_text(t, u, cJSON_GetObjectItemCaseSensitive(u, "engine") ? "engine" : "state"); /* of a model of its process */
    lar_table_cell(t, "%s", wait);
    add_number(t, u, "load");
    add_number(t, window, "requests");
    add_number(t, window, "failed");
    add_number(t, window, "slow");
    add_number(t, window, "retries");
    add_number(t, u, "opened");
    add_number(t, u, "attempts");
    add_number(t, u, "repeated");
    add_number(t, u, "fallback");
    add_failures(t, cJSON_GetObjectItemCaseSensitive(u, "failures"));
}

static int print(const asked *a, const lar_buf *body) {
    static const char *const heads[] = {"upstream", "kind",     "group",    "state",    "asked in",
                                        "load",     "window",   "failed",   "slow",     "retries",
                                        "opened",   "attempts", "repeated", "fallback", "failures"};
    enum { COLUMNS = sizeof heads / sizeof *heads };
    cJSON *o = cJSON_ParseWithLength(body->ptr, body->len);
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(o, "upstreams"), *u;
    if (!cJSON_IsArray(list)) {
        (void)fprintf(stderr, "larder: %.100s answers something else than a list of upstreams\n", a->admin);
        cJSON_Delete(o);
        return 1;
    }
    if (a->json) {
        (void)fwrite(body->ptr, 1, body->len, stdout);
    } else {
        lar_table *t = lar_table_new(COLUMNS);
        for (int i = 0; i < COLUMNS; i++) lar_table_cell(t, "%s", heads[i]);
        cJSON_ArrayForEach(u, list) add_row(t, u);
        lar_table_print(t, stdout);
        lar_table_free(t);
    }
    cJSON_Delete(o);
    return 0;
}

int lar_command_upstreams(int argc, char **argv) {
    asked a = {.admin = lar_ask_admin_default()};
    int rc = parse(&a, argc, argv);
    if (rc >= 0) return rc;
    lar_diag d = {0};
    lar_buf body;
    lar_buf_init(&body, LAR_ASK_ADMIN_BYTES_MAX);
    lar_error e = lar_ask_admin(a.admin, "/upstreams", &body, &d);
    if (e) (void)fprintf(stderr, "larder: %s\n", *d.text ? d.text : lar_error_text(e));
    rc = e == LAR_INVALID ? 2 : e ? 1 : print(&a, &body);
    lar_buf_release(&body);
    return rc;
}
