/* Reading of credentials.
 * Called by the configuration loader, before the loops start or on a reload; blocks on the disk.
 * Invariants: 1. no byte of a credential, nor the path that was meant to name it, gets into a message; a variable's
 * name only if it is unlike any key (a key may stand there by mistake). 2. only regular files are read. 3. no copy of
 * a file's bytes stays in memory. */
#include "gateway/config/secret.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

static lar_error take(lar_slice text, const char *what, lar_arena *arena, lar_slice *out, lar_diag *d) {
    while (text.len && is_blank(text.ptr[0])) text.ptr++, text.len--;
    while (text.len && is_blank(text.ptr[text.len - 1])) text.len--;
    if (text.len == 0) return lar_fail(LAR_INVALID, d, "the %s is empty; it must hold the key", what);
    if (text.len > LAR_SECRET_BYTES_MAX)
        return lar_fail(LAR_INVALID, d, "the %s holds more than %d bytes", what, LAR_SECRET_BYTES_MAX);
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if (c == '\n' || c == '\r')
            return lar_fail(LAR_INVALID, d, "the %s must hold the key on one line, nothing else", what);
        if (c <= 0x20 || c >= 0x7f)
            return lar_fail(LAR_INVALID, d,
                            "the %s holds a byte (at %zu) that no key has: printable ASCII without blanks only", what,
                            i + 1);
    }
    *out = lar_arena_copy(arena, text);
    return out->ptr ? LAR_OK : lar_fail(LAR_NO_MEMORY, d, "out of memory");
}

/* DEEPSEEK_API_KEY, TOKEN: capitals with '_' between words, or without any digit. No provider's keys look so. */
static bool may_be_shown(const char *name) {
    size_t len = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    return !name[len] && len <= 64 && (strchr(name, '_') || !strpbrk(name, "0123456789"));
}

lar_error lar_secret_from_env(const char *name, lar_arena *arena, lar_slice *out, lar_diag *d) {
    for (const char *p = name; *p; p++) {
        bool letter = (*p >= 'A' && *p <= 'Z') || (*p >= 'a' && *p <= 'z') || *p == '_';
        if (!letter && (p == name || *p < '0' || *p > '9'))
            return lar_fail(LAR_INVALID, d,
                            "must be the name of an environment variable (letters, digits, _), never the key itself");
    }
    const char *value = getenv(name);
    if (!value)
        return lar_fail(LAR_INVALID, d, "the environment variable %s is not set; export it before larder starts",
                        may_be_shown(name) ? name : "named here");
    return take(lar_slice_cstr(value), "environment variable", arena, out, d);
}

lar_error lar_secret_from_file(const char *path, lar_arena *arena, lar_slice *out, lar_diag *d) {
    lar_buf text;
    lar_diag why = {0};
    lar_buf_init(&text, LAR_SECRET_BYTES_MAX);
    lar_error e = lar_buf_reserve(&text, LAR_SECRET_BYTES_MAX); /* all at once: growing would leave copies behind */
    if (e) return lar_fail(e, d, "out of memory");
    e = lar_file_read(path, LAR_FILE_REGULAR, &text, &why);
    if (e) e = lar_fail(e == LAR_NO_MEMORY ? e : LAR_INVALID, d, "the file named here %s", why.text);
    else e = take(lar_buf_slice(&text), "file", arena, out, d);
    lar_secret_wipe(lar_buf_slice(&text));
    lar_buf_release(&text);
    return e;
}

void lar_secret_wipe(lar_slice s) {
    if (s.len) explicit_bzero((char *)(uintptr_t)s.ptr, s.len);
}
