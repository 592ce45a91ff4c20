/* Options of the commands that run or plan a model (header: local_options.h).
 * Called by run_command.c, bench_model.c, kv_check_command.c and plan_command.c. One thread; never blocks. Memory:
 * borrows argv. Not here: what values mean; each command reads its own. */
#include "gateway/local/local_options.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/config/nearest.h"

int lar_local_options_bad(const lar_local_options *o, const char *format, const char *what) {
    (void)fprintf(stderr, "larder %s: ", o->command);
    (void)fprintf(stderr, format, what);
    (void)fprintf(stderr, "; larder %s --help lists the options\n", o->command);
    return LAR_LOCAL_USAGE;
}

static int unknown(const lar_local_options *o, const char *name) {
    lar_nearest n;
    if (*name != '-') return lar_local_options_bad(o, "'%.100s' stands behind no option", name);
    lar_nearest_init(&n, lar_slice_cstr(name));
    for (size_t i = 0; i < o->count; i++) lar_nearest_offer(&n, lar_slice_cstr(o->rows[i].name));
    if (!n.best.ptr) return lar_local_options_bad(o, "there is no option '%.100s'", name);
    (void)fprintf(stderr, "larder %s: there is no option '%.100s'; did you mean %.*s?\n", o->command, name,
                  LAR_FMT(n.best));
    return LAR_LOCAL_USAGE;
}

static const lar_local_option *find(const lar_local_options *o, lar_slice name) {
    for (size_t i = 0; i < o->count; i++)
        if (lar_slice_eq_cstr(name, o->rows[i].name)) return &o->rows[i];
    return NULL;
}

int lar_local_options_take(const lar_local_options *o, int argc, char **argv, void *into) {
    for (int i = 1; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        lar_slice name = {argv[i], equals ? (size_t)(equals - argv[i]) : strlen(argv[i])};
        if (lar_slice_eq_cstr(name, "--help") || lar_slice_eq_cstr(name, "-h")) {
            (void)fputs(o->usage, stdout);
            return LAR_LOCAL_OK;
        }
        const lar_local_option *row = find(o, name);
        if (!row) return unknown(o, argv[i]);
        void *to = (char *)into + row->at;
        if (row->kind == LAR_LOCAL_FLAG) {
            if (equals) return lar_local_options_bad(o, "%s takes no value", row->name);
            *(bool *)to = true;
            continue;
        }
        if (!equals && i + 1 == argc) return lar_local_options_bad(o, "%s needs a value", argv[i]);
        *(const char **)to = equals ? equals + 1 : argv[++i];
    }
    return -1;
}

bool lar_local_option_given(const lar_local_option *row, const void *options) {
    const void *at = (const char *)options + row->at;
    return row->kind == LAR_LOCAL_FLAG ? *(const bool *)at : *(const char *const *)at != NULL;
}

bool lar_local_number(const char *text, double step, const char *units, uint64_t *out) {
    size_t digits = strspn(text, "0123456789"), whole = digits;
    if (!digits || digits > 18) return false;
    if (text[whole] == '.') whole += 1 + strspn(text + whole + 1, "0123456789");
    double value = strtod(text, NULL);
    const char *rest = text + whole, *unit = isalpha((unsigned char)*rest) ? strchr(units, *rest & ~0x20) : NULL;
    if (unit) {
        value *= pow(step, (double)(unit - units));
        rest++;
        if (step == 1024 && *rest == 'i') rest++;
        if (step == 1024 && *rest == 'B') rest++;
    }
    if (*rest || value < 1 || value > 0x1p60 || value != floor(value)) return false;
    *out = (uint64_t)value;
    return true;
}

bool lar_local_size(const char *text, uint64_t *out) { return lar_local_number(text, 1024, "?KMGTP", out); }
