/* Options of the commands that ask the store, and the opening of it.
 * Flow: stats.c, tail.c, export.c call; messages go to stderr. One thread; blocks on the store's opening only.
 * Invariants: 1. an option that is not understood ends the command: a filter that is silently left out would
 * give wrong sums. 2. Times are UTC unless they say otherwise. Memory: none; slices borrow argv. */
#include "gateway/commands/query.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/digest.h"

static const char common_usage[] =
    "  --store DIR        the store's folder (or LARDER_STORE_DIR)\n"
    "  --since TIME       only from then on: 30m, 1h or 2d (that long ago), 2026-11-29, 2026-11-29T10:00:00Z\n"
    "  --until TIME       only before then\n"
    "  --model PATTERN    exact, or a beginning followed by *\n"
    "  --route PATTERN    likewise\n"
    "  --upstream PATTERN likewise\n"
    "  --tenant WHO       a tenant's name from the configuration (`keys`), or a fingerprint of 16 hexadecimal\n"
    "                     digits as stats and export print it\n"
    "  --help             this text\n";

/* -- times -------------------------------------------------------------------------------------------- */

static bool digits(const char **p, int count, int *out) {
    int v = 0;
    for (int i = 0; i < count; i++, ++*p) {
        if (!isdigit((unsigned char)**p)) return false;
        v = v * 10 + (**p - '0');
    }
    *out = v;
    return true;
}

static bool skip(const char **p, char c) {
    if (**p != c) return false;
    ++*p;
    return true;
}

static bool ago(const char *p, int64_t now_ms, int64_t *out) {
    static const struct {
        char unit;
        int64_t ms;
    } units[] = {{'s', 1000}, {'m', 60000}, {'h', 3600000}, {'d', 86400000}, {'w', 604800000}};
    int64_t total = 0;
    if (!*p) return false;
    while (*p) {
        int64_t n = 0;
        if (!isdigit((unsigned char)*p)) return false;
        for (; isdigit((unsigned char)*p); p++) {
            n = n * 10 + (*p - '0');
            if (n > 1000000000) return false;
        }
        int64_t ms = 0;
        for (unsigned i = 0; i < sizeof units / sizeof *units; i++) ms = *p == units[i].unit ? units[i].ms : ms;
        if (!ms) return false;
        p++;
        if (n > now_ms / ms || (total += n * ms) > now_ms) return false;
    }
    *out = now_ms - total;
    return true;
}

/* "Z", "+08:00", "+0800" or nothing. */
static bool zone(const char *p, int64_t *offset_ms) {
    int h, m;
    *offset_ms = 0;
    if (!*p || !strcmp(p, "Z") || !strcmp(p, "z")) return true;
    int sign = *p == '+' ? 1 : *p == '-' ? -1 : 0;
    if (!sign) return false;
    p++;
    if (!digits(&p, 2, &h)) return false;
    (void)skip(&p, ':');
    if (!digits(&p, 2, &m) || *p || h > 23 || m > 59) return false;
    *offset_ms = sign * (h * 3600000LL + m * 60000LL);
    return true;
}

static bool clock_part(const char **p, struct tm *t, int *ms) {
    int scale = 100;
    if (!digits(p, 2, &t->tm_hour) || !skip(p, ':') || !digits(p, 2, &t->tm_min)) return false;
    if (skip(p, ':') && !digits(p, 2, &t->tm_sec)) return false;
    if (t->tm_hour > 23 || t->tm_min > 59 || t->tm_sec > 60) return false;
    if (skip(p, '.')) {
        if (!isdigit((unsigned char)**p)) return false;
        for (; isdigit((unsigned char)**p); ++*p, scale /= 10) *ms += (**p - '0') * scale;
    }
    return true;
}

static bool moment(const char *p, int64_t *out) {
    struct tm t = {0};
    int year, month, day, ms = 0;
    int64_t offset;
    if (!digits(&p, 4, &year) || !skip(&p, '-') || !digits(&p, 2, &month) || !skip(&p, '-') || !digits(&p, 2, &day))
        return false;
    if (year < 1970 || month < 1 || month > 12 || day < 1) return false;
    t.tm_year = year - 1900;
    t.tm_mon = month - 1;
    t.tm_mday = day;
    if (*p == 'T' || *p == 't' || *p == ' ') {
        p++;
        if (!clock_part(&p, &t, &ms)) return false;
    }
    if (!zone(p, &offset)) return false;
    time_t seconds = timegm(&t);
    if (t.tm_mon != month - 1 || (t.tm_mday != day && t.tm_sec != 60)) return false; /* there is no 31 February */
    *out = (int64_t)seconds * 1000 + ms - offset;
    return true;
}

bool lar_query_time(const char *text, int64_t now_ms, int64_t *out) {
    if (!strcmp(text, "now")) {
        *out = now_ms;
        return true;
    }
    return ago(text, now_ms, out) || moment(text, out);
}

/* -- options ---------------------------------------------------------------------------------------------- */

typedef struct parse {
    lar_query *q;
    const char *name, *value; /* of the option at hand */
} parse;

static int refuse(const parse *p, const char *want) {
    (void)fprintf(stderr, "larder: %s '%s': %s\n", p->name, p->value, want);
    return 2;
}

static int take_time(parse *p, int64_t *out) {
    if (!lar_query_time(p->value, p->q->now_ms, out))
        return refuse(p, "not a time; say 1h, 2d, 2026-11-29 or 2026-11-29T10:00:00Z");
    return -1;
}

static int take_pattern(parse *p, lar_slice *out) {
    const char *star = strchr(p->value, '*');
    if (!*p->value || (star && star[1])) return refuse(p, "not a pattern; a * may stand at its end only");
    *out = lar_slice_cstr(p->value);
    return -1;
}

/* 16 digits or a 0x in front are a fingerprint; all else is a name, whose fingerprint is made as a request's is
 * (gateway/request/route.c). */
static int take_tenant(parse *p) {
    const char *text = p->value;
    bool marked = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    if (marked) text += 2;
    size_t len = strlen(text);
    bool hex = len && len <= 16 && strspn(text, "0123456789abcdefABCDEF") == len;
    if (marked && !hex) return refuse(p, "not a fingerprint; up to 16 hexadecimal digits");
    if (marked || (hex && len == 16)) {
        p->q->filter.tenant = strtoull(text, NULL, 16);
        return p->q->filter.tenant ? -1 : refuse(p, "0 stands for no credential and cannot be chosen");
    }
    if (!len) return refuse(p, "not a tenant; give a name or a fingerprint");
    lar_digest name = lar_digest_of(lar_slice_cstr(text));
    p->q->filter.tenant = lar_digest_short(&name);
    p->q->tenant_name = text;
    return -1;
}

static int take_lines(parse *p) {
    size_t len = strlen(p->value);
    if (!len || len > 9 || strspn(p->value, "0123456789") != len) return refuse(p, "not a number of lines");
    p->q->lines = strtoull(p->value, NULL, 10);
    return -1;
}

static int take_format(parse *p) {
    if (strcmp(p->value, "jsonl") && strcmp(p->value, "csv")) return refuse(p, "not a format; jsonl or csv");
    p->q->format = p->value;
    return -1;
}

static int take_report(parse *p) {
    if (strcmp(p->value, "text") && strcmp(p->value, "json")) return refuse(p, "not a format; text or json");
    p->q->json = !strcmp(p->value, "json");
    return -1;
}

static int take_store(parse *p) {
    p->q->store = p->value;
    return -1;
}

/* An option with a value; -2 if there is none of this name. */
static int take_value(parse *p, unsigned takes) {
    lar_journal_filter *f = &p->q->filter;
    if (!strcmp(p->name, "--store")) return take_store(p);
    if (!strcmp(p->name, "--since")) return take_time(p, &f->since_ms);
    if (!strcmp(p->name, "--until")) return take_time(p, &f->until_ms);
    if (!strcmp(p->name, "--model")) return take_pattern(p, &f->model);
    if (!strcmp(p->name, "--route")) return take_pattern(p, &f->route);
    if (!strcmp(p->name, "--upstream")) return take_pattern(p, &f->upstream);
    if (!strcmp(p->name, "--tenant")) return take_tenant(p);
    if (takes & LAR_QUERY_FORMAT && !strcmp(p->name, "--format")) return take_format(p);
    if (takes & LAR_QUERY_REPORT && !strcmp(p->name, "--format")) return take_report(p);
    if (takes & LAR_QUERY_FOLLOW && (!strcmp(p->name, "-n") || !strcmp(p->name, "--lines"))) return take_lines(p);
    if (takes & LAR_QUERY_ADMIN && !strcmp(p->name, "--admin")) return p->q->admin = p->value, -1;
    return -2;
}

static bool has_value(const char *name, unsigned takes) {
    static const char *const names[] = {"--store", "--since",    "--until", "--model",
                                        "--route", "--upstream", "--tenant"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strcmp(name, names[i])) return true;
    }
    return (takes & (LAR_QUERY_FORMAT | LAR_QUERY_REPORT) && !strcmp(name, "--format")) ||
           (takes & LAR_QUERY_ADMIN && !strcmp(name, "--admin")) ||
           (takes & LAR_QUERY_FOLLOW && (!strcmp(name, "-n") || !strcmp(name, "--lines")));
}

static bool take_flag(lar_query *q, const char *name, unsigned takes) {
    bool *flag = takes & LAR_QUERY_JSON && !strcmp(name, "--json")                                ? &q->json
                 : takes & LAR_QUERY_FOLLOW && (!strcmp(name, "-f") || !strcmp(name, "--follow")) ? &q->follow
                                                                                                  : NULL;
    if (flag) *flag = true;
    return flag != NULL;
}

static int finish(lar_query *q, const char *usage) {
    if (!q->store || !q->store[0]) q->store = getenv("LARDER_STORE_DIR");
    if (!q->store || !q->store[0]) {
        (void)fprintf(stderr, "larder: which store? Give --store DIR or set LARDER_STORE_DIR\n%s%s", usage,
                      common_usage);
        return 2;
    }
    if (q->filter.until_ms && q->filter.since_ms >= q->filter.until_ms) {
        (void)fprintf(stderr, "larder: --since is not before --until: nothing could match\n");
        return 2;
    }
    return -1;
}

int lar_query_parse(lar_query *q, const char *usage, unsigned takes, int argc, char **argv) {
    char name[32];
    *q = (lar_query){.now_ms = q->now_ms, .lines = 10, .format = "jsonl"};
    for (int i = 0; i < argc; i++) {
        const char *arg = argv[i], *equals = strncmp(arg, "--", 2) ? NULL : strchr(arg, '=');
        size_t len = equals ? (size_t)(equals - arg) : strlen(arg);
        if (!strcmp(arg, "--help") || !strcmp(arg, "-h")) {
            (void)printf("%s%s", usage, common_usage);
            return 0;
        }
        if (!equals && take_flag(q, arg, takes)) continue;
        (void)snprintf(name, sizeof name, "%.*s", (int)(len < sizeof name ? len : sizeof name - 1), arg);
        if (len >= sizeof name || !has_value(name, takes)) {
            (void)fprintf(stderr, "larder: unknown option %.100s\n%s%s", arg, usage, common_usage);
            return 2;
        }
        parse p = {q, name, equals ? equals + 1 : i + 1 < argc ? argv[++i] : NULL};
        if (!p.value) {
            (void)fprintf(stderr, "larder: %s needs a value\n", name);
            return 2;
        }
        int rc = take_value(&p, takes);
        if (rc >= 0) return rc;
    }
    return finish(q, usage);
}

int lar_query_open(const lar_query *q, lar_store **out) {
    lar_diag d = {0};
    lar_store_options o = {.dir = q->store, .read_only = true};
    lar_error e = lar_store_open(&o, out, &d);
    if (!e) return 0;
    (void)fprintf(stderr, "larder: %s\n", d.text[0] ? d.text : lar_error_text(e));
    return 1;
}
