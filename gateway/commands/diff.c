/* larder diff: options, and the two requests (header: diff.h).
 * Flow: main.c calls; each argument is a file, FILE:LINE or -; diff_find.c compares; diff_report.c prints.
 * One thread; blocks on files. Invariant: an option that is not understood ends the command. Memory: both requests. */
#include "gateway/commands/diff.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ARENA_MAX = 1 << 30, NAME_BYTES = 4096 };

static const char usage[] =
    "usage: larder diff [options] A B\n"
    "Where two requests part as the provider prints them in front of the model, how many tokens that costs, and which\n"
    "rule would mend it. A and B are files that hold one request each, FILE:LINE of a log, or - for standard input; all\n"
    "forms that `larder replay` reads. A conversation counts as one request with all its messages.\n"
    "  --provider NAME    whose template and cache (default: anthropic for its messages, else openai)\n"
    "  --protocol NAME    chat, messages, responses or completions, where a guess would be wrong\n"
    "  --format FORMAT    text (default) or json\n"
    "  --help             this text\n"
    "Exit codes: 0 the same prompt, 1 they differ, 2 usage or unreadable.\n";

typedef struct options {
    const lar_provider *provider;
    lar_request_log_options log;
    bool json;
    const char *ends[2];
    int end_count;
} options;

static int refuse(const char *name, const char *value, const char *want) {
    (void)fprintf(stderr, "larder: %s '%.100s': %s\n", name, value, want);
    return 2;
}

static int take_value(options *o, const char *name, const char *value) {
    if (!strcmp(name, "--provider")) {
        o->provider = lar_provider_find(lar_slice_cstr(value));
        return o->provider ? -1 : refuse(name, value, "no such provider; larder replay --provider help lists them");
    }
    if (!strcmp(name, "--format")) {
        o->json = !strcmp(value, "json");
        return o->json || !strcmp(value, "text") ? -1 : refuse(name, value, "text or json");
    }
    for (int p = LAR_PROTOCOL_CHAT; p < LAR_PROTOCOL_EMBEDDINGS; p++) {
        if (strcmp(value, lar_protocol_name((lar_protocol)p)) != 0) continue;
        o->log.protocol = (lar_protocol)p;
        return -1;
    }
    return refuse(name, value, "chat, messages, responses or completions");
}

static bool has_value(const char *arg, size_t len) {
    static const char *const names[] = {"--provider", "--protocol", "--format"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == len && !memcmp(arg, names[i], len)) return true;
    return false;
}

static int parse(options *o, int argc, char **argv) {
    char name[16];
    bool take = true;
    for (int i = 0; i < argc; i++) {
        const char *arg = argv[i], *equals = strchr(arg, '=');
        if (!take || arg[0] != '-' || !arg[1]) {
            if (o->end_count == 2) return (void)fprintf(stderr, "larder: wanted are two requests\n%s", usage), 2;
            o->ends[o->end_count++] = arg;
            continue;
        }
        if (!strcmp(arg, "--help") || !strcmp(arg, "-h")) return (void)fputs(usage, stdout), 0;
        if (!strcmp(arg, "--")) {
            take = false;
            continue;
        }
        size_t len = equals ? (size_t)(equals - arg) : strlen(arg);
        if (!has_value(arg, len)) return (void)fprintf(stderr, "larder: unknown option %.100s\n%s", arg, usage), 2;
        (void)snprintf(name, sizeof name, "%.*s", (int)len, arg);
        const char *value = equals ? equals + 1 : i + 1 < argc ? argv[++i] : NULL;
        if (!value) return (void)fprintf(stderr, "larder: %s needs a value\n", name), 2;
        int rc = take_value(o, name, value);
        if (rc != -1) return rc;
    }
    if (o->end_count != 2) return (void)fprintf(stderr, "larder: wanted are two requests\n%s", usage), 2;
    if (!strcmp(o->ends[0], "-") && !strcmp(o->ends[1], "-"))
        return (void)fprintf(stderr, "larder: only one of the two can be standard input\n"), 2;
    return -1;
}

/* -- reading ---------------------------------------------------------------------------------------------- */

/* "FILE:12" is line 12 of FILE, unless there is a file of that whole name. */
static uint64_t split_line(const char *arg, char file[NAME_BYTES]) {
    (void)snprintf(file, NAME_BYTES, "%s", arg);
    const char *colon = strrchr(arg, ':');
    size_t digits = colon ? strlen(colon + 1) : 0;
    if (!digits || digits > 15 || strspn(colon + 1, "0123456789") != digits || access(arg, F_OK) == 0) return 0;
    if ((size_t)(colon - arg) < NAME_BYTES) file[colon - arg] = 0;
    return strtoull(colon + 1, NULL, 10);
}

static int unreadable(const lar_log_request *q, lar_error e, const lar_diag *d) {
    (void)fprintf(stderr, "larder: %s:%" PRIu64 ": %s\n", q->file, q->line, d->text[0] ? d->text : lar_error_text(e));
    return 2;
}

/* The request at `line`, or the first one if it is 0. -1, or an exit code. */
static int take_request(lar_diff_end *end, uint64_t line) {
    lar_diag d;
    for (;;) {
        lar_error e = lar_request_log_next(end->log, &end->q, &d);
        if (e == LAR_NOT_FOUND || (!e && line && end->q.line > line)) {
            (void)fprintf(stderr, "larder: %s: no request begins at line %" PRIu64 "\n", end->file, line ? line : 1);
            return 2;
        }
        if (line && end->q.line < line && e != LAR_IO && e != LAR_NO_MEMORY) continue;
        if (e) return unreadable(&end->q, e, &d);
        if (end->q.form != LAR_LOG_EXPORT) return -1;
        (void)fprintf(stderr, "larder: %s:%" PRIu64 ": a line of `larder export` holds numbers and no text\n",
                      end->file, end->q.line);
        return 2;
    }
}

/* A file without a line must not leave open which of its requests is meant. Standard input is read once: its first. */
static int check_alone(const char *path, const lar_request_log_options *o) {
    lar_request_log *l;
    lar_log_request q;
    lar_diag d;
    if (!strcmp(path, "-") || lar_request_log_open(path, o, &l, &d) != LAR_OK) return -1;
    lar_error first = lar_request_log_next(l, &q, &d);
    lar_error second = first ? LAR_NOT_FOUND : lar_request_log_next(l, &q, &d);
    lar_request_log_close(l);
    if (second == LAR_NOT_FOUND) return -1;
    (void)fprintf(stderr, "larder: %s holds more than one request; say which: %s:LINE\n", path, path);
    return 2;
}

static void release_end(lar_diff_end *end) {
    lar_request_log_close(end->log);
    lar_json_release(&end->json);
    lar_arena_release(&end->arena);
    lar_buf_release(&end->text);
    lar_prompt_release(&end->prompt);
}

/* -1 and the request's view, or an exit code. */
static int read_end(lar_diff_end *end, const char *arg, char file[NAME_BYTES], const lar_request_log_options *o) {
    lar_diag d = {0};
    uint64_t line = split_line(arg, file);
    end->file = file;
    int rc = line ? -1 : check_alone(file, o);
    if (rc >= 0) return rc;
    lar_error e = lar_request_log_open(file, o, &end->log, &d);
    if (e) {
        (void)fprintf(stderr, "larder: %s: %s\n", file, d.text[0] ? d.text : lar_error_text(e));
        return 2;
    }
    rc = take_request(end, line);
    if (rc >= 0) return rc;
    e = lar_json_parse(&end->json, end->q.body, NULL, &d);
    if (!e) e = lar_request_view_read(&end->view, &end->json, end->q.protocol, &end->arena, &d);
    return e ? unreadable(&end->q, e, &d) : -1;
}

static lar_error render_end(lar_diff_end *end, const lar_provider *p) {
    lar_error e = lar_render_request(&end->rendering, &end->view, p->order, &end->arena);
    if (!e) e = lar_render_text(&end->rendering, &end->text);
    return e ? e : lar_prompt_set(&end->prompt, 0, &end->rendering);
}

static int compare(lar_diff *d, bool json) {
    lar_error e = render_end(&d->a, d->provider);
    if (!e) e = render_end(&d->b, d->provider);
    if (!e) e = lar_diff_find(d);
    if (e) return (void)fprintf(stderr, "larder: %s\n", lar_error_text(e)), 2;
    if (!json) lar_diff_print(d, stdout);
    else e = lar_diff_print_json(d, stdout);
    if (e == LAR_NO_MEMORY) return (void)fprintf(stderr, "larder: %s\n", lar_error_text(e)), 2;
    if (e || fflush(stdout)) return 2;
    return d->kind == LAR_DIFF_NONE ? 0 : 1;
}

static int run(const options *o, lar_diff *d) {
    char file[2][NAME_BYTES];
    int rc = read_end(&d->a, o->ends[0], file[0], &o->log);
    if (rc < 0) rc = read_end(&d->b, o->ends[1], file[1], &o->log);
    if (rc >= 0) return rc;
    lar_protocol a = d->a.q.protocol, b = d->b.q.protocol;
    if (a != b) {
        (void)fprintf(stderr, "larder: A is a request of %s, B of %s; --protocol says what both are\n",
                      lar_protocol_name(a), lar_protocol_name(b));
        return 2;
    }
    const char *usual = a == LAR_PROTOCOL_MESSAGES ? "anthropic" : "openai";
    d->provider = o->provider ? o->provider : lar_provider_find(lar_slice_cstr(usual));
    return compare(d, o->json);
}

int lar_command_diff(int argc, char **argv) {
    options o = {.log = {.reading = LAR_LOG_REQUESTS}};
    int rc = parse(&o, argc, argv);
    if (rc >= 0) return rc;
    lar_diff *d = calloc(1, sizeof *d);
    if (!d) return (void)fprintf(stderr, "larder: %s\n", lar_error_text(LAR_NO_MEMORY)), 2;
    lar_diff_end *ends[] = {&d->a, &d->b};
    for (int i = 0; i < 2; i++) {
        lar_json_init(&ends[i]->json);
        lar_arena_init(&ends[i]->arena, ARENA_MAX);
        lar_buf_init(&ends[i]->text, UINT32_MAX);
        lar_prompt_init(&ends[i]->prompt);
    }
    rc = run(&o, d);
    for (int i = 0; i < 2; i++) release_end(ends[i]);
    free(d);
    return rc;
}
