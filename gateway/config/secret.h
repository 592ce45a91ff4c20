/* Credentials, read from the environment or a file. No message holds any of their bytes, nor the name or path that
 * was given: somebody may have written the credential itself there. */
#ifndef LARDER_GATEWAY_SECRET_H
#define LARDER_GATEWAY_SECRET_H

#include "base/arena.h"
#include "base/error.h"
#include "base/slice.h"

/* Bytes of a credential at most; of its file too. */
#define LAR_SECRET_BYTES_MAX 8192

/* Both copy the credential, blanks and line ends at its ends removed, into `arena`. INVALID with the reason in `d`
 * if it is not there, empty, too long, of several lines or not printable ASCII; NO_MEMORY. */
LAR_MUST_USE lar_error lar_secret_from_env(const char *name, lar_arena *arena, lar_slice *out, lar_diag *d);
LAR_MUST_USE lar_error lar_secret_from_file(const char *path, lar_arena *arena, lar_slice *out, lar_diag *d);

/* Overwrites the bytes. */
void lar_secret_wipe(lar_slice s);

#endif
