/* Findings as JSON and as SARIF 2.1.0 (OASIS), through cJSON.
 * Flow: lint_main.c -> here. One thread; blocks on the output. The fields of the JSON form are in
 * docs/howto/lint-prompts.md; they are only ever added to.
 * Memory: the whole report on the heap, bounded by the number of findings. */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/commands/lint_command.h"
#include "gateway/commands/present.h"

enum { SENTENCE_BYTES_MAX = 16384 };

/* -- parts --------------------------------------------------------------------------------------------- */

/* cJSON wants valid UTF-8 with a NUL behind it; what is none becomes U+FFFD. */
static void add_text(cJSON *to, const char *name, lar_slice s) {
    char *text = malloc(3 * s.len + 1);
    size_t n = 0;
    if (!text) return;
    for (size_t i = 0; i < s.len;) {
        unsigned char c = (unsigned char)s.ptr[i];
        size_t len = c < 0x80                 ? 1
                     : c >= 0xC2 && c <= 0xDF ? 2
                     : (c & 0xF0) == 0xE0     ? 3
                     : c >= 0xF0 && c <= 0xF4 ? 4
                                              : 0;
        bool good = len && i + len <= s.len && c != 0 &&
                    !(c == 0xED && (unsigned char)s.ptr[i + 1] >= 0xA0); /* no half of a pair */
        for (size_t k = 1; k < len && good; k++) good = ((unsigned char)s.ptr[i + k] & 0xC0) == 0x80;
        if (good) {
            memcpy(text + n, s.ptr + i, len);
            n += len;
            i += len;
        } else {
            memcpy(text + n, "\xEF\xBF\xBD", 3);
            n += 3;
            i++;
        }
    }
    text[n] = 0;
    (void)cJSON_AddStringToObject(to, name, text);
    free(text);
}

static void add_value(cJSON *to, const char *name, lar_slice value) {
    char shown[LAR_LINT_SHOWN_ROOM];
    lar_lint_show(value, shown);
    add_text(to, name, lar_slice_cstr(shown));
}

void lar_lint_key_hex(lar_hash key, char out[LAR_LINT_KEY_BYTES]) {
    for (int i = 0; i < 16; i++) (void)snprintf(out + 2 * (ptrdiff_t)i, 3, "%02x", key.bytes[i]);
}

static const char *state_name(lar_lint_state s) { return s == LAR_LINT_CONFIRMED ? "confirmed" : "suspect"; }

/* -- JSON ---------------------------------------------------------------------------------------------- */

static void add_place(cJSON *to, const lar_lint_report *r, const lar_lint_place *p) {
    add_text(to, "file", lar_slice_cstr(r->files[p->file].name));
    if (p->line) {
        (void)cJSON_AddNumberToObject(to, "line", p->line);
        (void)cJSON_AddNumberToObject(to, "column", p->column);
        (void)cJSON_AddNumberToObject(to, "end_line", p->end_line);
        (void)cJSON_AddNumberToObject(to, "end_column", p->end_column);
    }
    add_text(to, "pointer", p->pointer);
    add_value(to, "value", p->value);
}

static cJSON *finding_json(const lar_lint_report *r, const lar_lint_finding *f) {
    char key[LAR_LINT_KEY_BYTES];
    cJSON *o = cJSON_CreateObject();
    if (!o) return NULL;
    (void)cJSON_AddStringToObject(o, "rule", lar_rule_id(f->rule));
    (void)cJSON_AddStringToObject(o, "name", lar_rule_name(f->rule));
    (void)cJSON_AddStringToObject(o, "severity", lar_lint_severity_name(f->severity));
    (void)cJSON_AddStringToObject(o, "state", state_name(f->state));
    add_place(o, r, &f->place);
    if (f->before.request) {
        cJSON *before = cJSON_AddObjectToObject(o, "before");
        if (before) add_place(before, r, &f->before);
    } else (void)cJSON_AddNullToObject(o, "before");
    add_text(o, "what", f->what);
    add_text(o, "advice", f->advice);
    if (f->answer.len) add_text(o, "provider_answer", f->answer);
    if (f->tokens_known) (void)cJSON_AddNumberToObject(o, "tokens", (double)f->tokens);
    else (void)cJSON_AddNullToObject(o, "tokens");
    (void)cJSON_AddNumberToObject(o, "requests", f->requests);
    lar_lint_key_hex(f->key, key);
    (void)cJSON_AddStringToObject(o, "key", key);
    return o;
}

lar_error lar_lint_print_json(const lar_lint_report *r, FILE *out) {
    cJSON *root = cJSON_CreateObject();
    (void)cJSON_AddNumberToObject(root, "version", 1);
    cJSON *list = cJSON_AddArrayToObject(root, "findings"), *sum = cJSON_AddObjectToObject(root, "summary");
    for (uint32_t i = 0; i < r->count; i++) {
        cJSON *f = finding_json(r, &r->findings[i]);
        if (f && !cJSON_AddItemToArray(list, f)) cJSON_Delete(f);
    }
    (void)cJSON_AddNumberToObject(sum, "findings", r->count);
    (void)cJSON_AddNumberToObject(sum, "files", r->file_count);
    (void)cJSON_AddNumberToObject(sum, "requests", r->requests);
    (void)cJSON_AddNumberToObject(sum, "records", r->records);
    (void)cJSON_AddNumberToObject(sum, "ignored", r->ignored);
    (void)cJSON_AddNumberToObject(sum, "in_baseline", r->baselined);
    (void)cJSON_AddNumberToObject(sum, "gone_from_baseline", r->gone);
    (void)cJSON_AddBoolToObject(sum, "complete", !r->failed && !r->dropped);
    return lar_present_document(root, out);
}

/* -- SARIF --------------------------------------------------------------------------------------------- */

/* A relative path as a URI: what is no path character is %XX. */
static void add_uri(cJSON *to, const char *name, const char *path) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/";
    char *uri = malloc(3 * strlen(path) + 8);
    size_t n = 0;
    if (!uri) return;
    size_t room = 3 * strlen(path) + 8;
    if (path[0] == '/') n = (size_t)snprintf(uri, room, "file://");
    while (strncmp(path, "./", 2) == 0) path += 2;
    for (; *path; path++) {
        if (strchr(plain, *path)) uri[n++] = *path;
        else n += (size_t)snprintf(uri + n, room - n, "%%%02X", (unsigned)(unsigned char)*path);
    }
    uri[n] = 0;
    (void)cJSON_AddStringToObject(to, name, uri);
    free(uri);
}

static void fill_location(cJSON *to, const lar_lint_report *r, const lar_lint_place *p) {
    cJSON *physical = cJSON_AddObjectToObject(to, "physicalLocation");
    add_uri(cJSON_AddObjectToObject(physical, "artifactLocation"), "uri", r->files[p->file].name);
    if (p->line) {
        cJSON *region = cJSON_AddObjectToObject(physical, "region");
        (void)cJSON_AddNumberToObject(region, "startLine", p->line);
        (void)cJSON_AddNumberToObject(region, "startColumn", p->column);
        (void)cJSON_AddNumberToObject(region, "endLine", p->end_line);
        (void)cJSON_AddNumberToObject(region, "endColumn", p->end_column);
    }
    if (p->pointer.len) {
        cJSON *logical = cJSON_CreateObject();
        add_text(logical, "fullyQualifiedName", p->pointer);
        (void)cJSON_AddItemToArray(cJSON_AddArrayToObject(to, "logicalLocations"), logical);
    }
}

static void add_message(cJSON *to, const char *name, lar_slice text) {
    add_text(cJSON_AddObjectToObject(to, name), "text", text);
}

static lar_error fill_result(cJSON *o, const lar_lint_report *r, const lar_lint_finding *f) {
    static const char *const levels[] = {"note", "warning", "error"};
    char key[LAR_LINT_KEY_BYTES];
    lar_buf text;
    lar_buf_init(&text, SENTENCE_BYTES_MAX);
    lar_error e = lar_lint_sentence(r, f, &text);
    if (!e) e = lar_buf_printf(&text, ". ");
    if (!e) e = lar_buf_add_slice(&text, f->advice);
    (void)cJSON_AddStringToObject(o, "ruleId", lar_rule_id(f->rule));
    (void)cJSON_AddNumberToObject(o, "ruleIndex", f->rule);
    (void)cJSON_AddStringToObject(o, "level", levels[f->severity]);
    add_message(o, "message", lar_buf_slice(&text));
    lar_buf_release(&text);
    cJSON *location = cJSON_CreateObject();
    fill_location(location, r, &f->place);
    (void)cJSON_AddItemToArray(cJSON_AddArrayToObject(o, "locations"), location);
    if (f->before.request) {
        cJSON *related = cJSON_CreateObject();
        (void)cJSON_AddNumberToObject(related, "id", 1);
        fill_location(related, r, &f->before);
        add_message(related, "message", LAR_SLICE("The other value."));
        (void)cJSON_AddItemToArray(cJSON_AddArrayToObject(o, "relatedLocations"), related);
    }
    lar_lint_key_hex(f->key, key);
    (void)cJSON_AddStringToObject(cJSON_AddObjectToObject(o, "partialFingerprints"), "larder/v1", key);
    cJSON *properties = cJSON_AddObjectToObject(o, "properties");
    (void)cJSON_AddStringToObject(properties, "state", state_name(f->state));
    if (f->tokens_known) (void)cJSON_AddNumberToObject(properties, "tokens", (double)f->tokens);
    (void)cJSON_AddNumberToObject(properties, "requests", f->requests);
    return e;
}

static void fill_driver(cJSON *driver) {
    (void)cJSON_AddStringToObject(driver, "name", "larder");
    (void)cJSON_AddStringToObject(driver, "semanticVersion", LARDER_VERSION);
    cJSON *rules = cJSON_AddArrayToObject(driver, "rules");
    for (int i = 0; i < LAR_RULE_COUNT; i++) {
        cJSON *rule = cJSON_CreateObject();
        char text[400];
        (void)cJSON_AddStringToObject(rule, "id", lar_rule_id((lar_rule)i));
        (void)cJSON_AddStringToObject(rule, "name", lar_rule_name((lar_rule)i));
        (void)snprintf(text, sizeof text, "%s.", lar_rule_text((lar_rule)i));
        add_message(rule, "shortDescription", lar_slice_cstr(text));
        (void)snprintf(text, sizeof text, "`larder lint --explain %s` says more.", lar_rule_id((lar_rule)i));
        add_message(rule, "help", lar_slice_cstr(text));
        (void)cJSON_AddItemToArray(rules, rule);
    }
}

lar_error lar_lint_print_sarif(const lar_lint_report *r, FILE *out) {
    cJSON *root = cJSON_CreateObject(), *run = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(root, "$schema", "https://json.schemastore.org/sarif-2.1.0.json");
    (void)cJSON_AddStringToObject(root, "version", "2.1.0");
    (void)cJSON_AddItemToArray(cJSON_AddArrayToObject(root, "runs"), run);
    fill_driver(cJSON_AddObjectToObject(cJSON_AddObjectToObject(run, "tool"), "driver"));
    (void)cJSON_AddStringToObject(run, "columnKind", "unicodeCodePoints");
    cJSON *results = cJSON_AddArrayToObject(run, "results");
    lar_error e = LAR_OK;
    for (uint32_t i = 0; i < r->count && !e; i++) {
        cJSON *o = cJSON_CreateObject();
        if (!o || !cJSON_AddItemToArray(results, o)) {
            cJSON_Delete(o);
            e = LAR_NO_MEMORY;
            break;
        }
        e = fill_result(o, r, &r->findings[i]);
    }
    if (!e) return lar_present_document(root, out);
    cJSON_Delete(root);
    return e;
}
