/* One value of the configuration, from text. */
#ifndef LARDER_GATEWAY_OPTION_VALUE_H
#define LARDER_GATEWAY_OPTION_VALUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/slice.h"

/* Longest text value. */
#define LAR_OPTION_TEXT_MAX 4096

/* All return INVALID with the reason in `d`. No message repeats the text it was given.
 * Numbers are decimal digits without sign or leading zeros. */
LAR_MUST_USE lar_error lar_value_number(lar_slice text, uint64_t *out, lar_diag *d);
/* true, yes, on, false, no, off. */
LAR_MUST_USE lar_error lar_value_bool(lar_slice text, bool *out, lar_diag *d);
/* A number with ms, s, m, h or d behind it; only 0 may stand without unit. */
LAR_MUST_USE lar_error lar_value_ms(lar_slice text, uint64_t *out, lar_diag *d);
/* A number of bytes, or one with KiB, MiB, GiB or TiB behind it. */
LAR_MUST_USE lar_error lar_value_bytes(lar_slice text, uint64_t *out, lar_diag *d);
/* The index of `text` in a NULL-terminated list. */
LAR_MUST_USE lar_error lar_value_enum(lar_slice text, const char *const *names, uint32_t *out, lar_diag *d);
/* Refuses control characters (NUL and line ends too: paths and field values cannot hold them) and overlong text. */
LAR_MUST_USE lar_error lar_value_text(lar_slice text, lar_diag *d);

#endif
