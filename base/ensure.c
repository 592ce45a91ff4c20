/* What a broken invariant does: one line on stderr, then abort. Any thread. */
#include "base/ensure.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void lar_abort(const char *file, int line, const char *what) {
    (void)fprintf(stderr, "larder: broken invariant at %s:%d: %s\n", file, line, what);
    (void)fflush(stderr);
    abort();
}
