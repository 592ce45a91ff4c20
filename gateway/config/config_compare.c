/* What a reload cannot take over: the options that differ between two configurations and act at start only.
 * Called on SIGHUP; any thread; never blocks; no memory but the caller's buffer. */
#include "gateway/config/config_parts.h"

static lar_error add(lar_buf *out, uint32_t found, const char *name) {
    return lar_buf_printf(out, "%s%s", found ? " " : "", name);
}

static bool same_listens(const lar_config *a, const lar_config *b) {
    bool equal = a->listen_count == b->listen_count;
    for (uint32_t i = 0; equal && i < a->listen_count; i++) equal = strcmp(a->listens[i].text, b->listens[i].text) == 0;
    return equal;
}

/* Which files hold the certificate may change; whether there is one may not: a client would be spoken to in another
 * protocol than the one it connected for. */
static bool same_tls(const lar_config *a, const lar_config *b) { return !*a->tls_cert == !*b->tls_cert; }

uint32_t lar_config_restart_names(const lar_config *now, const lar_config *next, lar_buf *out) {
    const lar_option_table *t = lar_option_scalars();
    uint32_t found = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        if (t->rows[i].reload == LAR_OPTION_LIVE || lar_option_equal(&t->rows[i], now, next)) continue;
        if (add(out, found, t->rows[i].path)) return found;
        found++;
    }
    if (!same_tls(now, next) && !add(out, found, "tls.cert")) found++;
    if (!same_listens(now, next) && !add(out, found, "listen")) found++;
    return found;
}
