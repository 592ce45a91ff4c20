/* Assertions that stay on in release: a broken invariant aborts. Never on outside bytes. */
#ifndef LARDER_BASE_ENSURE_H
#define LARDER_BASE_ENSURE_H

_Noreturn void lar_abort(const char *file, int line, const char *what);

#define LAR_ASSERT(cond) ((cond) ? (void)0 : lar_abort(__FILE__, __LINE__, #cond))
#define LAR_UNREACHABLE(what) lar_abort(__FILE__, __LINE__, what)

#endif
