/* The error table's look-ups and the filling of diags.
 * Called by everybody; calls nobody. Any thread; never blocks; no memory. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

typedef struct error_row {
    const char *name;
    int status;
    lar_retry retry;
    lar_blame blame;
    const char *text;
} error_row;

static const error_row rows[LAR_ERROR_COUNT] = {
#define LAR_ERR(name, status, retry, blame, text) {#name, status, LAR_RETRY_##retry, LAR_BLAME_##blame, text},
#include "base/error.def"
#undef LAR_ERR
};

static const error_row *row(lar_error e) { return &rows[(unsigned)e < LAR_ERROR_COUNT ? e : LAR_INVALID]; }

const char *lar_error_name(lar_error e) { return row(e)->name; }
const char *lar_error_text(lar_error e) { return row(e)->text; }
int lar_error_status(lar_error e) { return row(e)->status; }
lar_retry lar_error_retry(lar_error e) { return row(e)->retry; }
lar_blame lar_error_blame(lar_error e) { return row(e)->blame; }

lar_error lar_fail(lar_error e, lar_diag *d, const char *fmt, ...) {
    if (d) {
        va_list ap;
        va_start(ap, fmt);
        (void)vsnprintf(d->text, sizeof d->text, fmt, ap);
        va_end(ap);
        d->has_offset = 0;
        d->offset = 0;
    }
    return e;
}

lar_error lar_fail_at(lar_error e, lar_diag *d, uint64_t offset, const char *fmt, ...) {
    if (d) {
        va_list ap;
        va_start(ap, fmt);
        (void)vsnprintf(d->text, sizeof d->text, fmt, ap);
        va_end(ap);
        d->has_offset = 1;
        d->offset = offset;
    }
    return e;
}
