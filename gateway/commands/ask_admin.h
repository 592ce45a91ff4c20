/* Asks a running larder's admin listener: what is in the process alone, and in no store. */
#ifndef LARDER_GATEWAY_COMMANDS_ASK_ADMIN_H
#define LARDER_GATEWAY_COMMANDS_ASK_ADMIN_H

#include "base/buf.h"

enum { LAR_ASK_ADMIN_BYTES_MAX = 4 << 20 };

/* What admin.listen is where nobody says otherwise. */
const char *lar_ask_admin_default(void);
/* Appends the body of its answer to GET `path`. `body` has room for LAR_ASK_ADMIN_BYTES_MAX. INVALID: `admin` is no
 * HOST:PORT; IO: nobody answers there, or not as a larder does; `d` says which. NO_MEMORY, LIMIT. */
LAR_MUST_USE lar_error lar_ask_admin(const char *admin, const char *path, lar_buf *body, lar_diag *d);

#endif
