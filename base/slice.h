/* Borrowed view of bytes: pointer and length, never NUL-terminated by promise, never owned.
 * A slice lives as long as the buffer it points into; the function that returns one says which. */
#ifndef LARDER_BASE_SLICE_H
#define LARDER_BASE_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef struct lar_slice {
    const char *ptr;
    size_t len;
} lar_slice;

/* A slice of a string literal, without its NUL. */
#define LAR_SLICE(literal) ((lar_slice){(literal), sizeof(literal) - 1})

/* printf("%.*s", LAR_FMT(slice)) */
#define LAR_FMT(s) (int)(s).len, (s).ptr

static inline lar_slice lar_slice_of(const char *ptr, size_t len) { return (lar_slice){ptr, len}; }

static inline lar_slice lar_slice_cstr(const char *text) { return (lar_slice){text, text ? strlen(text) : 0}; }

static inline bool lar_slice_eq(lar_slice a, lar_slice b) {
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

static inline bool lar_slice_eq_cstr(lar_slice a, const char *text) { return lar_slice_eq(a, lar_slice_cstr(text)); }

/* ASCII case-insensitive equality, as for HTTP field names (RFC 9110 5.1). */
static inline bool lar_slice_ieq(lar_slice a, lar_slice b) {
    if (a.len != b.len) return false;
    for (size_t i = 0; i < a.len; i++) {
        char x = a.ptr[i], y = b.ptr[i];
        if (x >= 'A' && x <= 'Z') x = (char)(x + 32);
        if (y >= 'A' && y <= 'Z') y = (char)(y + 32);
        if (x != y) return false;
    }
    return true;
}

static inline bool lar_slice_starts(lar_slice a, lar_slice prefix) {
    return a.len >= prefix.len && (prefix.len == 0 || memcmp(a.ptr, prefix.ptr, prefix.len) == 0);
}

static inline bool lar_slice_starts_i(lar_slice a, lar_slice prefix) {
    return a.len >= prefix.len && lar_slice_ieq((lar_slice){a.ptr, prefix.len}, prefix);
}

/* Without blanks (space, tab) at both ends: optional white space of HTTP (RFC 9110 5.6.3). */
static inline lar_slice lar_slice_trim(lar_slice s) {
    while (s.len && (s.ptr[0] == ' ' || s.ptr[0] == '\t')) s.ptr++, s.len--;
    while (s.len && (s.ptr[s.len - 1] == ' ' || s.ptr[s.len - 1] == '\t')) s.len--;
    return s;
}

#endif
